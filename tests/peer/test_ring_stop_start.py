# SPDX-License-Identifier: BSD-3-Clause
"""Rings that are stopped, started, enabled, disabled, reset and taken over, under traffic."""

import os
import signal
import struct
import time

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from hostile_lab import TwoGuests, processor_share, queue_counters
from numbered_frames import NumberedFrames, describe
from vhost_user_client import bit
from virtio_driver import NetDriver

FORMATS = (False, True)
FRAMES = NumberedFrames(stream=21)


def every_kind_of_driver():
    "Split and packed x mergeable x event index x indirect x in-order: every frame comes back"
    with TwoGuests(steady=False) as lab:
        for packed in FORMATS:
            for choice in range(16):
                options = dict(mergeable=bool(choice & 1), event_index=bool(choice & 2),
                               indirect=bool(choice & 4), in_order=bool(choice & 8))
                with NetDriver(lab.path, packed=packed, **options) as driver:
                    check_equal(driver.exchange(FRAMES, 0, 300), 300,
                                f"frames, packed {packed}, {options}")
                    check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
                    check_equal(set(driver.used_lengths), {0}, "used lengths when transmitting")


def header_sizes():
    "Headers of 10 (legacy), 12 and 20 bytes (HASH_REPORT) are right in both directions"
    with TwoGuests(steady=False) as lab:
        hashes = bit(vu.F_HASH_REPORT) | bit(vu.F_CTRL_VQ)
        for size, options in ((10, dict(version_1=False, mergeable=False)),
                              (12, dict(version_1=False)), (12, dict(mergeable=False)),
                              (20, dict(wanted=hashes)), (20, dict(wanted=hashes, packed=True))):
            with NetDriver(lab.path, **options) as driver:
                check_equal(driver.header, size, f"header with {options}")
                check_equal(driver.exchange(FRAMES, 0, 200), 200, f"frames with {options}")


def ring_sizes():
    "Rings of every size that is allowed, packed ones also of odd sizes, many times round"
    with TwoGuests(steady=False) as lab:
        for packed, sizes in ((False, (2, 4, 8, 256, 1024)), (True, (2, 3, 5, 7, 255, 256, 1000))):
            for size in sizes:
                with NetDriver(lab.path, packed=packed, size=size, memory_size=16 << 20) as driver:
                    count = max(200, size * 9 // 2)
                    check_equal(driver.exchange(FRAMES, 0, count, window=min(size, 32)), count,
                                f"frames with rings of {size}, packed {packed}")


def inband_notifications():
    "Kicks and calls as messages, without any eventfd"
    with TwoGuests(steady=False) as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed, inband=True) as driver:
                check_equal(driver.exchange(FRAMES, 0, 200), 200, "frames")
                calls = driver.front_end.calls_inband
                before = calls.get(0, 0)
                driver.rx().ring.arm()
                driver.send([FRAMES.frame(200)])
                while calls.get(0, 0) == before:
                    check(vu.wait_readable([driver.front_end.channel]), "no call message came")
                    driver.front_end.serve_channel()


def two_queue_pairs():
    "Two queue pairs carry their own frames, with and without the control queue"
    with TwoGuests("--queue-pairs=2", steady=False) as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed, pairs=2, control=True) as driver:
                check_equal(driver.queue_pairs(), 2, "GET_QUEUE_NUM")
                check_equal(driver.command(struct.pack("<BBH", 4, 0, 2)), 0, "MQ_VQ_PAIRS_SET")
                for turn in range(4):
                    for pair in range(2):
                        came = driver.exchange(NumberedFrames(pair), turn * 100, 100, pair)
                        check_equal(came, 100, f"frames of pair {pair}")


def stop_and_start_again():
    "GET_VRING_BASE and SET_VRING_BASE under traffic: nothing is lost or comes twice"
    with TwoGuests() as lab:
        for packed in FORMATS:
            for in_order in (False, True):
                with NetDriver(lab.path, packed=packed, in_order=in_order, size=128) as driver:
                    sent = came = 0
                    for turn in range(60):
                        for _ in range(min(40, 100 - (sent - came))):
                            driver.queue_frame(FRAMES.frame(sent))
                            sent += 1
                        driver.tx().notify()
                        came = take(driver, came)
                        stop_and_start(driver, turn)
                    while came < sent:
                        before, came = came, take(driver, came, 1)
                        check(came > before, f"frame {came} of {sent} did not come back")
                    check_equal(take(driver, came), came, "frames after the last one")


def take(driver, came, wanted=0):
    """Checks the numbered frames that arrived, in order and without a gap."""
    driver.poll()
    arrived = driver.receive(max(wanted, len(driver.received[0])))
    for received in arrived:
        check(received.frame == FRAMES.returned(came),
              f"instead of frame {came} came {describe(received.frame)}")
        came += 1
    return came


def stop_and_start(driver, turn):
    """Stops one ring or both, and continues where the device stood."""
    which = ([1], [0], [0, 1], [1, 0])[turn % 4]
    bases = {index: driver.front_end.get_base(index) for index in which}
    for index, base in bases.items():
        ring = driver.queues[index].ring
        if ring.packed:
            check(base & 0x7fff < ring.size and base >> 16 & 0x7fff < ring.size,
                  f"packed base {base:#x} is not a position")
        else:
            check(base < 0x10000, f"split base {base:#x}")
        driver.queues[index].start(base)
        driver.front_end.enable(index)


def idle_bases():
    "The base of a fresh ring is 0 (split) or 0x80008000 (packed), and advances with the frames"
    with TwoGuests(steady=False) as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed, fill=False) as driver:
                check_equal(driver.stop(), [0x80008000 if packed else 0] * 2, "bases of idle rings")
            with NetDriver(lab.path, packed=packed) as driver:
                driver.exchange(FRAMES, 0, 100)
                driver.flush_tx()
                expected = [position(packed, 64, 100)] * 2
                check_equal(driver.stop(), expected, "bases after 100 frames in rings of 64")


def stop_at_the_end_of_a_lap():
    "A ring stopped exactly at its end, where a packed base is 0, goes on where it was"
    with TwoGuests() as lab:
        for packed in FORMATS:
            for in_order in (False, True):
                with NetDriver(lab.path, packed=packed, in_order=in_order, size=64) as driver:
                    for lap in range(5):
                        check_equal(driver.exchange(FRAMES, lap * 64, 64), 64, f"frames, lap {lap}")
                        check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
                        bases = driver.stop()
                        check_equal(bases, [position(packed, 64, 64 * (lap + 1))] * 2, "bases")
                        for queue, base in zip(driver.queues, bases):
                            queue.start(base)
                            driver.front_end.enable(queue.index)


def position(packed, size, count):
    """Where a device stands after `count` single-descriptor chains."""
    if not packed:
        return count
    here = count % size | (1 ^ count // size & 1) << 15
    return here | here << 16


def started_and_enabled():
    "Started x enabled: a disabled ring discards what is sent, and delivers nothing"
    with TwoGuests() as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed) as driver:
                check_equal(driver.exchange(FRAMES, 0, 20), 20, "frames while enabled")
                dropped = queue_counters(lab.device, lab.path, 1)["drop_disabled"]
                driver.front_end.enable(1, False)
                check_equal(driver.send([FRAMES.frame(i) for i in range(30)]), 30, "frames sent")
                driver.tx().force_kick()
                check_equal(driver.flush_tx(), 0, "buffers that a disabled ring kept")
                check_equal(queue_counters(lab.device, lab.path, 1)["drop_disabled"] - dropped, 30,
                            "frames discarded by a disabled ring")
                driver.front_end.enable(1)
                check_equal(driver.exchange(FRAMES, 20, 20), 20, "frames, enabled again")
                nothing_while_disabled(driver)
                stopped_is_untouched(driver)


def nothing_while_disabled(driver):
    """Frames for a disabled receive ring wait or are lost, but are not delivered."""
    driver.front_end.enable(0, False)
    driver.send([FRAMES.frame(1000 + i) for i in range(10)])
    driver.flush_tx()
    driver.front_end.barrier()
    check_equal(driver.poll(), 0, "buffers used on a disabled receive ring")
    driver.front_end.enable(0)
    late = driver.receive(10, seconds=10)      # a loop keeps them; a port may also drop them
    check_equal([r.frame for r in late], [FRAMES.returned(1000 + i) for i in range(len(late))],
                "frames after the receive ring was enabled again")
    check_equal(driver.exchange(FRAMES, 40, 20), 20, "frames afterwards")


def stopped_is_untouched(driver):
    """After GET_VRING_BASE the ring's memory does not change, whatever kicks come."""
    bases = driver.stop()
    ring = driver.tx().ring
    start, end = ring.descriptors, ring.used + 6 + 8 * ring.size
    for number in range(8):
        driver.queue_frame(FRAMES.frame(2000 + number))
    driver.tx().ring.publish()
    before = driver.memory.read(start, end - start)
    driver.tx().force_kick()
    driver.rx().force_kick()
    driver.front_end.barrier()
    time.sleep(0.1)           # time to do wrong; nothing is measured
    check(driver.memory.read(start, end - start) == before, "a stopped ring was written to")
    for queue, base in zip(driver.queues, bases):
        queue.start(base)
        driver.front_end.enable(queue.index)
    came = driver.receive(8)
    check_equal([r.frame for r in came], [FRAMES.returned(2000 + i) for i in range(8)],
                "frames that waited in a stopped ring")


def without_protocol_features():
    "Without bit 30, SET_FEATURES enables every ring, and no SET_VRING_ENABLE follows"
    with TwoGuests() as lab:
        for packed in FORMATS:
            driver = NetDriver(lab.path, packed=packed, protocol=0, start=False)
            driver.front_end.set_features(driver.features & ~bit(vu.F_PROTOCOL_FEATURES))
            driver.features = driver.front_end.features
            driver.start()
            check_equal(driver.exchange(FRAMES, 0, 100), 100, "frames without bit 30")
            driver.close()


def features_while_running():
    "SET_FEATURES again while frames move changes nothing"
    with TwoGuests() as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed) as driver:
                for turn in range(50):
                    driver.front_end.set_features(driver.features)
                    check_equal(driver.exchange(FRAMES, turn * 10, 10), 10, "frames")


def configuration_while_running():
    "New kick and call descriptors, the same memory again and GET_CONFIG while frames move"
    with TwoGuests() as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed) as driver:
                front_end = driver.front_end
                for turn in range(50):
                    sent = driver.send([FRAMES.frame(turn * 16 + i) for i in range(16)])
                    front_end.set_memory(driver.memory)
                    for queue in driver.queues:
                        front_end.order(vu.SET_VRING_CALL, vu.u64(queue.index), [queue.call])
                        front_end.order(vu.SET_VRING_KICK, vu.u64(queue.index), [queue.kick])
                    front_end.get_config(0, 12)
                    check_equal(sent, 16, "frames sent")
                    check_equal(take(driver, turn * 16, 16), turn * 16 + 16, "frames came")


def reset_by(driver, how):
    front_end = driver.front_end
    if how == "RESET_DEVICE":
        front_end.order(vu.RESET_DEVICE)
    elif how == "RESET_OWNER":
        front_end.order(vu.RESET_OWNER)
        driver.stop()
    else:
        front_end.order(vu.SET_STATUS, vu.u64(0))


def resets():
    "RESET_DEVICE, STATUS 0 and RESET_OWNER: the next set-up on the connection works"
    with TwoGuests() as lab:
        for packed in FORMATS:
            for how in ("RESET_DEVICE", "STATUS 0", "RESET_OWNER"):
                with NetDriver(lab.path, packed=packed) as driver:
                    for turn in range(5):
                        check_equal(driver.exchange(FRAMES, 0, 30), 30, f"frames, {how} {turn}")
                        reset_by(driver, how)
                        driver.front_end.barrier()
                        driver.front_end.set_features(driver.features)
                        driver.set_status(0xb)
                        driver.renew(0)
                        driver.renew(1)
                        driver.set_status(0xf)


def hundred_reconnections():
    "100 front-ends in a row, half of them gone without a word in the middle of traffic"
    with TwoGuests() as lab:
        before = lab.device.open_descriptors()
        for number in range(100):
            driver = NetDriver(lab.path, packed=bool(number & 1), mergeable=bool(number & 2))
            check_equal(driver.exchange(FRAMES, 0, 20), 20, f"frames of front-end {number}")
            if number & 4:
                driver.stop()
            else:
                driver.send([FRAMES.frame(i) for i in range(40)])
            driver.close()
        wait_for("as many open descriptors as before",
                 lambda: lab.device.open_descriptors() == before, alive=lab.device)


def no_frames_of_another_guest():
    "The next front-end sees no frame of the one before"
    with TwoGuests(steady=False) as lab:
        for _ in range(20):
            with NetDriver(lab.path, fill=False) as driver:
                driver.send([NumberedFrames(666).frame(i) for i in range(30)])
                driver.flush_tx()
            with NetDriver(lab.path) as driver:
                check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames of the next front-end")


def flood_without_receive_buffers():
    "Without receive buffers the device waits without burning, and goes on at the guest's kick"
    with TwoGuests(steady=False) as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed, size=256, fill=False) as driver:
                sent = 0
                while driver.queue_frame(FRAMES.frame(sent)):
                    sent += 1
                driver.tx().notify()
                driver.front_end.barrier()
                used = processor_share(lab.device, 1)
                check(used < 0.2, f"{used:.0%} of a core while nothing can move")
                for _ in range(256):
                    address = driver.memory.allocate(2048, 64)
                    driver.rx().ring.add([(address, 2048, True)], address)
                driver.rx().notify()
                came = 0
                while came < sent:
                    before, came = came, take(driver, came, 1)
                    check(came > before, f"frame {came} of {sent} did not come")
                check_equal(driver.exchange(FRAMES, 5000, 100), 100, "frames afterwards")


def idle_device_sleeps():
    "An idle device with a connected guest uses no processor to speak of"
    with TwoGuests(steady=False) as lab, NetDriver(lab.path) as driver:
        check_equal(driver.exchange(FRAMES, 0, 100), 100, "frames")
        used = processor_share(lab.device, 1)
        check(used < 0.2, f"{used:.0%} of a core while nothing moves")
        check_equal(driver.exchange(FRAMES, 100, 100), 100, "frames after the pause")


def stopped_for_seconds():
    "A device that was stopped for seconds (SIGSTOP) goes on where it was"
    with TwoGuests() as lab:
        for packed in FORMATS:
            with NetDriver(lab.path, packed=packed) as driver:
                check_equal(driver.exchange(FRAMES, 0, 100), 100, "frames before")
                os.kill(lab.device.pid, signal.SIGSTOP)
                sent = driver.send([FRAMES.frame(100 + i) for i in range(60)])
                time.sleep(3)
                os.kill(lab.device.pid, signal.SIGCONT)
                check_equal(take(driver, 100, sent), 100 + sent, "frames after it went on")
                check_equal(driver.exchange(FRAMES, 1000, 100), 100, "frames afterwards")


def one_way_only():
    "A guest that only transmits never stalls, with a ring of 256, however long"
    with TwoGuests(port="null") as lab:
        for packed in FORMATS:
            for event_index in (False, True):
                with NetDriver(lab.path, packed=packed, event_index=event_index,
                               size=256) as driver:
                    sent = 0
                    for _ in range(40):
                        sent += driver.send([FRAMES.frame(sent + i) for i in range(100)])
                    check_equal((sent, driver.flush_tx()), (4000, 0),
                                "frames sent, and buffers not returned")


run_tests(every_kind_of_driver, header_sizes, ring_sizes, inband_notifications, two_queue_pairs,
          stop_and_start_again, idle_bases, stop_at_the_end_of_a_lap, started_and_enabled,
          without_protocol_features, features_while_running, configuration_while_running, resets,
          hundred_reconnections, no_frames_of_another_guest, flood_without_receive_buffers,
          idle_device_sleeps, stopped_for_seconds, one_way_only)
