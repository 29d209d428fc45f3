# SPDX-License-Identifier: BSD-3-Clause
"""Front-ends that take memory away, take descriptors away, come in crowds, or do not listen:
they harm themselves, and nobody else."""

import os
import resource
import signal
import struct

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from hostile_lab import TwoGuests, expecting_close, not_accepted, processor_share
from lab.process import LIBC, PR_SET_PDEATHSIG
from numbered_frames import NumberedFrames
from vhost_user_client import bit
from virtio_driver import NetDriver, Queue


def memory_cut_short():
    "Memory that is truncated under traffic ends that connection only"
    for packed in (False, True):
        for victim in ("buffers", "rings"):
            with TwoGuests(packed=packed) as lab:
                cut_memory(lab, packed, victim)
                lab.works(packed=packed)


def cut_memory(lab, packed, victim):
    driver = NetDriver(lab.path, packed=packed, start=False)
    buffers = vu.GuestMemory(1 << 20, guest=0x10000000)
    driver.front_end.set_memory(driver.memory, buffers)
    driver.start()
    check_equal(driver.exchange(NumberedFrames(3), 0, 200), 200, "frames before the cut")
    # From here on nothing may touch the memory that is gone: we would die of it ourselves.
    at = buffers.allocate(2048)
    buffers.write(at, bytes(12) + NumberedFrames(3).frame(0))
    for _ in range(8):
        driver.tx().ring.add([(at, 200, False)], None)
    driver.tx().ring.publish()
    os.ftruncate((buffers if victim == "buffers" else driver.memory).fd, 0)
    driver.tx().force_kick()
    driver.rx().force_kick()
    check(driver.front_end.closed_by_peer(), f"the connection outlived the guest's {victim}")
    driver.close()
    buffers.close()


def replies_never_read():
    "A front-end that reads no reply is dropped, and holds nobody up"
    with TwoGuests() as lab:
        front_end = lab.connect()
        with expecting_close():
            while True:
                front_end.send(vu.GET_FEATURES)
        front_end.close()
        lab.steady.goes_on()
        lab.works()


def many_memory_slots():
    "509 memory slots are added and removed under traffic; more are refused"
    for packed in (False, True):
        with TwoGuests() as lab, NetDriver(lab.path, packed=packed) as driver:
            slots_under_traffic(driver)


def slots_under_traffic(driver):
    front_end, frames, done = driver.front_end, NumberedFrames(5), 0
    most = front_end.get_u64(vu.GET_MAX_MEM_SLOTS)
    check_equal(most, 509, "GET_MAX_MEM_SLOTS")
    extra = [vu.GuestMemory(4096, guest=0x40000000 + 8192 * i) for i in range(most)]
    for turn in range(2):
        for memory in extra[:-1]:
            front_end.add_memory(memory)
            done += driver.exchange(frames, done, 4)
        check_equal(done, (turn * 2 + 1) * 4 * (most - 1), "frames while adding")
        front_end.add_memory(extra[0])    # once more, as QEMU does; then it goes twice as well
        front_end.remove_memory(extra[0])
        overlapping = struct.pack("=4Q", extra[0].guest, 4096, extra[-1].user, 0)
        for what, region in (("one region too many", extra[-1].region()),
                             ("a region that overlaps another", overlapping)):
            check_equal(not_accepted(front_end, what, vu.ADD_MEM_REG, vu.u64(0) + region,
                                     [extra[-1].fd]), "refused", what)
        send_across_regions(driver, extra[7], frames)
        for memory in reversed(extra[:-1]):
            front_end.remove_memory(memory)
            done += driver.exchange(frames, done, 4)
        check_equal(done, (turn * 2 + 2) * 4 * (most - 1), "frames while removing")
        check_equal(not_accepted(front_end, "a region that is gone", vu.REM_MEM_REG,
                                 vu.u64(0) + extra[0].region()), "refused", "removing it again")
    for memory in extra:
        memory.close()


def send_across_regions(driver, region, frames):
    """A frame whose buffer lies in a region that was added while the ring ran."""
    frame = frames.frame(77)
    region.write(region.guest, bytes(12) + frame)
    ring = driver.tx().ring
    address = driver.tx_free[0].pop()
    check(ring.add([(region.guest, 12 + len(frame), False)], address), "no room in the ring")
    driver.tx().notify()
    check_equal([r.frame for r in driver.receive(1)], [frames.returned(77)],
                "the frame in an added region")
    check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")


def hundred_connections_a_second():
    "Hundreds of connections come and go beside a steady flow, of which no frame is lost"
    for packed in (False, True):
        with TwoGuests(packed=packed) as lab:
            for number in range(300):
                stage = number % 5
                if stage == 0:
                    vu.FrontEnd(lab.path).close()
                elif stage == 1:
                    front_end = lab.connect()
                    front_end.sock.sendall(vu.pack_message(vu.SET_MEM_TABLE, bytes(40))[:20])
                    front_end.close()
                elif stage == 2:
                    NetDriver(lab.path, packed=packed, start=False).close()
                elif stage == 3:
                    NetDriver(lab.path, packed=packed).close()
                else:
                    with NetDriver(lab.path, packed=packed) as driver:
                        driver.send([NumberedFrames(9).frame(i) for i in range(32)])
            lab.works(packed=packed)


def out_of_descriptors():
    "Out of descriptors the listener does not spin, says so, and serves again afterwards"
    with TwoGuests(steady=False) as lab:
        before = resource.prlimit(lab.device.pid, resource.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir(f"/proc/{lab.device.pid}/fd")}
        first_free = min(set(range(len(taken) + 1)) - taken)
        said = len(lab.device.errors_text().splitlines())
        resource.prlimit(lab.device.pid, resource.RLIMIT_NOFILE, (first_free, before[1]))
        front_end = vu.FrontEnd(lab.path)
        wait_for("a line in the log", lambda: len(lab.device.errors_text().splitlines()) > said)
        used = processor_share(lab.device, 1)
        lines = lab.device.errors_text().splitlines()[said:]
        resource.prlimit(lab.device.pid, resource.RLIMIT_NOFILE, before)
        check(used < 0.3, f"{used:.0%} of a core while a front-end cannot be accepted")
        # Each attempt may say so; a listener that spins makes thousands.
        check(len(lines) == 1 and "cannot be accepted" in lines[0], f"lines logged: {lines}")
        check(front_end.barrier(), "no answer to the front-end that waited")
        front_end.close()
        lab.works()


def commands_without_end():
    "A driver that posts control commands without end keeps no other device from answering"
    with TwoGuests(steady=False) as lab:
        driver = NetDriver(lab.path, control=True, start=False, memory_size=16 << 20,
                           wanted=bit(vu.F_CTRL_RX) | bit(vu.F_HASH_REPORT))
        driver.control = driver.queues[2] = Queue(driver, 2, 32768, driver.features)
        driver.start()
        pump = pump_commands(driver)
        try:
            driver.control.force_kick()
            used, served, answers = driver.control.ring.used + 2, set(), 0
            while len(served) < 100:      # each answer, or it fails at the socket's deadline
                front_end = vu.FrontEnd(lab.steady_path)
                front_end.barrier()
                front_end.close()
                answers += 1
                served.add(driver.memory.get16(used))
                check(answers < 100000, "the device serves no commands")
        finally:
            os.kill(pump, signal.SIGKILL)
            os.waitpid(pump, 0)
        driver.close()
        lab.works()


def pump_commands(driver):
    """A process that makes the same command available again as fast as the device serves it."""
    ring, memory = driver.control.ring, driver.memory
    command = b"\4\2" + struct.pack("<I", 1) + bytes(8) + b"\x28" + bytes(range(40))
    at = memory.allocate(128)
    memory.write(at, command)
    ring.poke_descriptor(0, at, len(command), 1, 1)
    ring.poke_descriptor(1, at + 100, 1, 2)
    available, used = ((address - memory.guest + 2) // 2 for address in (ring.available, ring.used))
    kick, ahead = driver.control.kick, ring.size - 16
    child = os.fork()
    if child == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        words = memory.u16
        try:
            while True:
                try:
                    os.eventfd_write(kick, 1)
                except BlockingIOError:
                    pass
                for _ in range(1000):
                    words[available] = words[used] + ahead & 0xffff
        finally:
            os._exit(1)
    return child


run_tests(memory_cut_short, replies_never_read, many_memory_slots, hundred_connections_a_second,
          out_of_descriptors, commands_without_end)
