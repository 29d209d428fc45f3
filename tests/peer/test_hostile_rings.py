# SPDX-License-Identifier: BSD-3-Clause
"""Guests that break their rings, buffers, headers and commands: one queue breaks, or one frame is
dropped, it is counted, and everything else goes on."""

import contextlib
import mmap
import os
import signal
import struct

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from hostile_lab import TwoGuests, queue_counters
from lab.process import die_with_parent
from numbered_frames import NumberedFrames
from vhost_user_client import bit
from virtio_driver import NetDriver
from virtio_rings import INDIRECT, NEXT, WRITE

FORMATS = (False, True)
OFFLOADS = bit(vu.F_CSUM) | bit(vu.F_GUEST_CSUM)
FRAMES = NumberedFrames(stream=11)
FAR = 0x7fff_ffff_0000        # a guest address that no memory is at


@contextlib.contextmanager
def victim(lab, packed, **options):
    """A guest with two queue pairs, both at work; at the end the second one still is."""
    options.setdefault("pairs", 2)
    with NetDriver(lab.path, packed=packed, control=True, **options) as driver:
        if options["pairs"] > 1:
            check_equal(driver.command(struct.pack("<BBH", 4, 0, 2)), 0, "MQ_VQ_PAIRS_SET")
        for pair in range(options["pairs"]):
            check_equal(driver.exchange(FRAMES, 0, 20, pair), 20, f"frames on pair {pair} at first")
        yield driver
        if options["pairs"] > 1:
            check_equal(driver.exchange(FRAMES, 20, 50, 1), 50, "frames on the other pair")


def broken(lab, index):
    return queue_counters(lab.device, lab.path, index)["broken"]


def breaks(lab, driver, index, what, poke):
    """After `poke` and a kick, ring `index` is broken, and told so once; set up again, it works."""
    queue = driver.queues[index]
    before = broken(lab, index)
    poke(queue.ring)
    queue.force_kick()
    wait_for(f"ring {index} to be broken by {what}", lambda: broken(lab, index) > before,
             alive=lab.device)
    queue.force_kick()        # a broken ring is not looked at again
    driver.front_end.barrier()
    check_equal(broken(lab, index), before + 1, f"times that ring {index} broke by {what}")
    if driver.pairs > 1:
        check_equal(driver.exchange(FRAMES, 500, 20, 1), 20,
                    f"frames on the other pair after {what}")
    driver.renew(index)
    settle(driver)            # frames that were sent while nothing was received
    check_equal(driver.exchange(FRAMES, 1000, 50), 50, f"frames after {what}, set up again")


def chain_poke(driver, descriptors):
    """Makes a chain of (address, length, flags) available, whatever it says."""
    def poke(ring):
        if ring.packed:
            ring.poke_chain([(*descriptor, 5) for descriptor in descriptors])
        else:
            for i, (address, length, flags) in enumerate(descriptors):
                ring.poke_descriptor(i, address, length, flags, i + 1)
            ring.poke_available(0)
        ring.publish()
    return poke


def split_faults(memory, address):
    """What only a split ring's format lets a driver do."""
    def head(value):
        def poke(ring):
            ring.poke_available(value)
            ring.publish()
        return poke

    def loop(ring):
        ring.poke_descriptor(3, address, 64, NEXT, 3)
        head(3)(ring)

    def long_loop(ring):
        for i in range(ring.size):
            ring.poke_descriptor(i, address, 64, NEXT, (i + 1) % ring.size)
        head(0)(ring)

    def bad_next(ring):
        ring.poke_descriptor(3, address, 64, NEXT, ring.size)
        head(3)(ring)

    def table_loop(ring):
        table = memory.allocate(64, 16)
        for i in range(4):
            ring.poke_descriptor(i, address, 64, NEXT, (i + 1) % 4, table)
        ring.poke_descriptor(3, table, 64, INDIRECT)
        head(3)(ring)

    def table_next(ring):
        table = memory.allocate(64, 16)
        ring.poke_descriptor(0, address, 64, NEXT, 60000, table)
        ring.poke_descriptor(3, table, 64, INDIRECT)
        head(3)(ring)

    return {
        "a head that is the ring's size": head(64), "head 65535": head(65535),
        "a descriptor that follows itself": loop, "a loop of the whole ring": long_loop,
        "a next index that is the ring's size": bad_next,
        "an available index that jumps by the size plus one":
            lambda ring: ring.poke_index(ring.index + ring.size + 1),
        "an available index that jumps by 32768": lambda ring: ring.poke_index(ring.index + 32768),
        "an available index that goes back": lambda ring: ring.poke_index(ring.index - 1),
        "a loop in an indirect table": table_loop, "a next index outside its table": table_next,
    }


def both_faults(driver, address, writable):
    """What both formats let a driver do."""
    memory, way = driver.memory, WRITE if writable else 0
    end = memory.guest + memory.size
    table = memory.allocate(16 * 128, 16)

    def entry(at, target, length, flags):
        memory.set64(table + 16 * at, target)
        memory.set32(table + 16 * at + 8, length)
        driver.memory.set16(table + 16 * at + (14 if driver.queues[0].ring.packed else 12), flags)

    entry(0, address, 64, way)
    entry(64, table, 64, INDIRECT)
    entry(80, FAR, 64, way)
    faults = {
        "an address outside memory": [(FAR, 64, way)],
        "an address that overflows": [((1 << 64) - 32, 64, way)],
        "a buffer over the end of memory": [(end - 32, 64, way)],
        "a buffer of 4 GiB": [(address, 0xffffffff, way)],
        "a chain of more than 4 GiB":
            [(address, 0xf0000000, NEXT | way)] * 3 + [(address, 64, way)],
        "an indirect table of 17 bytes": [(table, 17, INDIRECT)],
        "an empty indirect table": [(table, 0, INDIRECT)],
        "an indirect table longer than the ring": [(table, 16 * 65, INDIRECT)],
        "an indirect table outside memory": [(FAR, 64, INDIRECT)],
        "an indirect table over the end of memory": [(end - 16, 64, INDIRECT)],
        "an indirect table in an indirect table": [(table + 16 * 64, 16, INDIRECT)],
        "an indirect entry outside memory": [(table + 16 * 80, 16, INDIRECT)],
        "INDIRECT together with NEXT": [(table, 16, INDIRECT | NEXT), (address, 64, way)],
        "the wrong direction": [(address, 64, way ^ WRITE)],
        "readable after writable": [(address, 64, WRITE | NEXT), (address, 64, 0)],
        "a chain longer than the ring": [(address, 64, NEXT | way)] * 70,
    }
    return {what: chain_poke(driver, chain) for what, chain in faults.items()}


def broken_transmit_rings():
    "Every way to break a transmit ring breaks that ring alone, once, until it is set up again"
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, \
                victim(lab, packed, indirect=True) as driver:
            address = driver.memory.allocate(4096, 64)
            faults = both_faults(driver, address, False)
            if not packed:
                faults.pop("a chain longer than the ring")       # split: see "a loop"
                faults |= split_faults(driver.memory, address)
            for what, poke in faults.items():
                breaks(lab, driver, 1, what, poke)


def broken_receive_rings():
    "Every way to break a receive ring breaks that ring alone, once, until it is set up again"
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, \
                victim(lab, packed, indirect=True) as driver:
            address = driver.memory.allocate(4096, 64)
            faults = both_faults(driver, address, True)
            if not packed:
                faults.pop("a chain longer than the ring")
                faults |= split_faults(driver.memory, address)
            for what, poke in faults.items():
                breaks_receive(lab, driver, what, poke)


def breaks_receive(lab, driver, what, poke):
    """The receive ring gets nothing but the bad chain, and then frames that want buffers."""
    driver.rx_buffers[0], kept = [], driver.rx_buffers[0]
    driver.renew(0)
    driver.rx_buffers[0] = kept

    def poke_and_send(ring):
        poke(ring)
        driver.send([FRAMES.frame(i) for i in range(8)])
    breaks(lab, driver, 0, what, poke_and_send)


def not_negotiated():
    "An indirect descriptor that was not negotiated breaks the ring"
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, victim(lab, packed) as driver:
            table = driver.memory.allocate(64, 16)
            breaks(lab, driver, 1, "an indirect descriptor",
                   chain_poke(driver, [(table, 16, INDIRECT)]))


def told_once():
    "A broken ring is told in one log line and through its error descriptor"
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, victim(lab, packed) as driver:
            error = os.eventfd(0, os.EFD_NONBLOCK)
            driver.front_end.order(vu.SET_VRING_ERR, vu.u64(1), [error])
            breaks(lab, driver, 1, "an address outside memory",
                   chain_poke(driver, [(FAR, 64, 0)]))
            check_equal(os.eventfd_read(error), 1, "signals on the error descriptor")
            os.close(error)
            lines = [line for line in lab.device.errors_text().splitlines() if "broke" in line]
            check_equal(len(lines), 1, f"log lines about the broken ring: {lines}")


def short_and_odd_frames():
    "Transmit chains shorter than a header are dropped; headers in pieces are put together"
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, size=128) as driver:
            address = driver.memory.allocate(4096, 64)
            frame = FRAMES.frame(3)[:200]
            driver.memory.write(address, bytes(12) + frame)
            odd_frames(lab, driver, address, frame)
            check_equal(driver.exchange(FRAMES, 0, 100), 100, "frames afterwards")


def odd_frames(lab, driver, address, frame):
    before = queue_counters(lab.device, lab.path, 1)
    dropped = [[1], [11], [12], [13], [12, 13], [4, 4], [4, 4, 4], [25]]
    whole = [[12, 200], [4, 4, 4, 200], [1] * 12 + [200], [5, 207], [212], [11, 1, 199, 1],
             [1] * 26 + [186]]
    for lengths in dropped + whole:
        pieces, at = [], address
        for length in lengths:
            pieces.append((at, length, False))
            at += length
        check(driver.tx().ring.add(pieces, address), "no room in the ring")
        driver.tx().notify()
    driver.reap_tx()
    check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
    turned = frame[6:12] + frame[:6] + frame[12:]
    check_equal([r.frame for r in driver.receive(len(whole))], [turned] * len(whole),
                "frames whose header was in pieces")
    after = queue_counters(lab.device, lab.path, 1)
    check_equal(after["drop_short"] - before["drop_short"], len(dropped), "short frames counted")
    check_equal(after["broken"], before["broken"], "rings broken by short frames")
    check_equal(set(driver.used_lengths), {0}, "used lengths of transmitted buffers")
    driver.tx_free[0] = list(driver.tx_buffers[0])


def empty_descriptors():
    "A transmit chain with a descriptor of no bytes is sent, dropped or breaks the ring: no more"
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, NetDriver(lab.path, packed=packed) as driver:
            address = driver.memory.allocate(4096, 64)
            driver.memory.write(address, bytes(12) + FRAMES.frame(3))
            for lengths in ([0, 12, 60], [12, 0, 60], [12, 60, 0], [0], [0, 0, 0]):
                chain = [(address, length, NEXT) for length in lengths]
                chain[-1] = (*chain[-1][:2], 0)
                driver.front_end.barrier()
                chain_poke(driver, chain)(driver.tx().ring)
                driver.tx().force_kick()
                driver.renew(1)
            driver.renew(0)
            driver.received[0].clear()
            check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames afterwards")


def tiny_receive_buffers():
    "Mergeable buffers of 1, 11, 12 and 13 bytes carry frames whole, and num_buffers is right"
    for packed in FORMATS:
        for size in (1, 11, 12, 13):
            frames = NumberedFrames(stream=size, lengths=(60, 60 if size == 1 else 200))
            with TwoGuests(packed=packed) as lab, \
                    NetDriver(lab.path, packed=packed, size=256, rx_buffer=size) as driver:
                check_equal(driver.exchange(frames, 0, 60, window=1), 60,
                            f"frames in buffers of {size} bytes")


def receive_buffers_too_small():
    "Without MRG_RXBUF a frame that its buffer cannot take is dropped and counted; the rest goes on"
    for packed in FORMATS:
        for size in (1, 11, 12, 13, 71):
            frames = NumberedFrames(stream=size, lengths=(60, 200))
            with TwoGuests(packed=packed) as lab, \
                    NetDriver(lab.path, packed=packed, mergeable=False, rx_buffer=size) as driver:
                check_equal(driver.send([frames.frame(i) for i in range(50)]), 50, "frames sent")
                check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
                wait_for("50 frames to be dropped", lambda: queue_counters(
                    lab.device, lab.path, 0)["drop_too_small"] == 50, alive=lab.device)
                check_equal(driver.rx().ring.reap(), [], "buffers used for frames that do not fit")
                driver.rx_buffers[0] = [driver.memory.allocate(2048, 64) for _ in range(64)]
                driver.rx_buffer = 2048
                driver.renew(0)
                check_equal(driver.exchange(frames, 100, 50), 50, "frames in buffers of 2048 bytes")


def one_short_of_enough():
    "A frame that needs one buffer more than there is waits for it, and then comes whole"
    frames = NumberedFrames(stream=3, lengths=(1000, 1000))
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, rx_buffer=128, fill=False) as driver:
            ring = driver.rx().ring
            buffers = [driver.memory.allocate(128, 64) for _ in range(64)]
            for address in buffers[:7]:
                ring.add([(address, 128, True)], address)
            driver.rx().notify(always=True)
            driver.send([frames.frame(0)])
            check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
            ring.arm()
            for address in buffers[7:]:
                ring.add([(address, 128, True)], address)
            driver.rx().notify()
            came = driver.receive(1, refill=False)
            # The device may have given the frame up while there was too little room for it.
            counters = queue_counters(lab.device, lab.path, 0)
            check_equal(len(came) + counters["drop_too_small"], 1, "frames delivered or counted")
            for received in came:
                check_equal(received.frame, frames.returned(0), "the frame")
            check_equal(driver.exchange(frames, 1, 4, window=1), 4, "frames afterwards")


def big_mergeable_frames():
    "Frames of up to 64 KiB come whole through buffers of 1526 bytes"
    frames = NumberedFrames(stream=4, lengths=(1, 1))
    lengths = (1515, 3000, 9014, 40000, 65535 + 14)
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, size=256, rx_buffer=1526) as driver:
            at = driver.memory.allocate(1 << 17, 64)
            for number, length in enumerate(lengths):
                frame = frames.frame(number) + bytes(number + i & 0xff for i in range(length))
                frame = frame[:length]
                driver.memory.write(at, bytes(12) + frame)
                driver.tx().ring.add([(at, 12 + length, False)], at)
                driver.tx().notify()
                came = driver.receive(1)
                check_equal(len(came), 1, f"frames of {length} bytes that came")
                check(came[0].frame == frame[6:12] + frame[:6] + frame[12:],
                      f"a frame of {length} bytes came damaged")
            driver.flush_tx()


@contextlib.contextmanager
def flipping(memory, words):
    """A process that writes to guest memory without pause: (address, bytes, one, other)."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        view = memoryview(mmap.mmap(memory.fd, memory.size, offset=memory.fd_offset))
        todo = [(view.cast({2: "H", 4: "I"}[size]), (address - memory.guest) // size, one, other)
                for address, size, one, other in words]
        while True:
            for cells, index, one, other in todo:
                cells[index] = one
                cells[index] = other
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def pump(driver, until):
    """Takes whatever comes on both rings, frames unseen, until `until()` is true."""
    rx, tx = driver.rx(), driver.tx()

    def turn():
        moved = recycle(driver) + driver.reap_tx()
        if until(moved):
            return True
        if not moved and rx.ring.arm() and tx.ring.arm():
            for fd in vu.wait_readable([rx.call, tx.call], 0.02):
                os.eventfd_read(fd)
        return False
    wait_for("both rings to move on", turn, pause=0)


def recycle(driver):
    """Gives received buffers back without a look at what is in them."""
    ring = driver.rx().ring
    used = ring.reap()
    for address, _ in used:
        ring.add([(address, driver.rx_buffer, True)], address)
    driver.rx().notify(always=True)
    return len(used)


def settle(driver):
    """Takes whatever is still under way, until nothing comes any more."""
    quiet = []
    pump(driver, lambda moved: quiet.append(moved or driver.tx().ring.flying)
         or len(quiet) > 5 and not any(quiet[-5:]))
    driver.partial[0].clear()
    driver.received[0].clear()
    driver.tx_free[0] = list(driver.tx_buffers[0])


def flipped_lengths_and_headers():
    "Lengths and checksum starts that change while the device reads them do no harm"
    for packed in FORMATS:
        for mergeable in (True, False):
            with TwoGuests(packed=packed) as lab, \
                    NetDriver(lab.path, packed=packed, mergeable=mergeable, wanted=OFFLOADS,
                              size=256) as driver:
                flip_transmit(driver)
                settle(driver)
                check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames afterwards")


def flip_transmit(driver, rounds=200):
    """One buffer is sent over and over while its lengths and its header change."""
    memory, ring = driver.memory, driver.tx().ring
    at = memory.allocate(1 << 17, 64)
    memory.write(at, struct.pack("<BBHHHHH", 1, 0, 0, 0, 34, 16, 0) + FRAMES.frame(1)[:1400])
    words = [(at + 6, 2, 34, 65000), (at, 2, 0x0001, 0x0101)]
    words += [(ring.descriptors + 16 * i + 8, 4, 64, 65535) for i in range(0, ring.size, 7)]
    with flipping(memory, words):
        for _ in range(rounds):
            while ring.add([(at, 64, False)], None):
                pass
            driver.tx().notify(always=True)
            pump(driver, lambda _: len(ring.flying) <= ring.size - 16)


def flipped_receive_lengths():
    "Receive buffers whose length changes while the device fills them do no harm"
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, mergeable=False) as driver:
            ring, tx = driver.rx().ring, driver.tx().ring
            words = [(ring.descriptors + 16 * i + 8, 4, 1, 2048) for i in range(0, 64, 3)]
            with flipping(driver.memory, words):
                for number in range(200):
                    for i in range(8):
                        driver.queue_frame(FRAMES.frame(number * 8 + i))
                    driver.tx().notify()
                    pump(driver, lambda moved: moved or not tx.flying)
            driver.renew(0)
            settle(driver)
            check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames afterwards")


def header(flags=0, gso_type=0, hdr_len=0, gso_size=0, csum_start=0, csum_offset=0):
    return struct.pack("<BBHHHHH", flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, 0)


def bad_net_headers():
    "UFO, unknown GSO types, checksums outside the frame, GSO of size 0: dropped, counted, no more"
    tso = dict(flags=1, gso_type=1, hdr_len=54, gso_size=1448, csum_start=34, csum_offset=16)
    bad = [dict(gso_type=kind) for kind in (1, 2, 3, 4, 5, 6, 0x7f, 0x80, 0x81, 0x20, 0x41, 0xff)]
    bad += [tso | change for change in (
        dict(gso_type=2), dict(gso_type=3), dict(gso_type=6), dict(gso_type=0x21), dict(gso_size=0),
        dict(gso_size=0xffff), dict(csum_start=65000), dict(csum_offset=65535), dict(csum_start=0),
        dict(flags=0), dict(csum_offset=6), dict(gso_type=0x7f), dict(csum_start=0xffff,
                                                                      csum_offset=0xffff))]
    bad += [dict(flags=1, csum_start=start, csum_offset=offset)
            for start, offset in ((0, 0), (65000, 0), (34, 65000), (34, 1479), (0xffff, 0xffff))]
    frames = NumberedFrames(stream=12, lengths=(1514, 1514))
    features = OFFLOADS | bit(vu.F_HOST_TSO4)
    for packed in FORMATS:
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, wanted=features) as driver:
            before = queue_counters(lab.device, lab.path, 1)
            for fields in bad:
                driver.send([frames.frame(0)], header=header(**fields))
            check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
            after = queue_counters(lab.device, lab.path, 1)
            check_equal(after["drop_header"] - before["drop_header"], len(bad), "headers refused")
            check_equal(after["broken"], 0, "rings broken by a header")
            check_equal(driver.exchange(frames, 0, 50), 50, "frames afterwards")


def bad_commands():
    "Malformed control commands are answered with ERR, whatever their pieces; good ones still work"
    mac = bytes(range(6))
    bad = {
        "a MAC table of 2^31": struct.pack("<BBI", 1, 0, 1 << 31) + mac,
        "a MAC table of 2^32 - 1": struct.pack("<BBI", 1, 0, 0xffffffff),
        "a MAC table that ends early": struct.pack("<BBI", 1, 0, 2) + mac,
        "MQ of 1 byte": b"\4\0\1", "MQ of nothing": b"\4\0", "MQ of 0 pairs": b"\4\0\0\0",
        "MQ of 65535 pairs": b"\4\0\xff\xff", 
        "an unknown class": b"\x63\0\0\0", "an unknown command": b"\0\x63\1", "one byte": b"\0",
        "PROMISC of nothing": b"\0\0", "a MAC of 5 bytes": b"\1\1" + mac[:5],
        "RSS of nothing": b"\4\1", "VLAN of 1 byte": b"\2\0\1", "4 KiB": b"\x63" * 4096,
        "RSS with a key of 255 bytes": struct.pack("<BBIHHHHB", 4, 1, 0x3f, 0, 0, 0, 1, 255),
        "RSS with a table of 65536": struct.pack("<BBIHH", 4, 1, 0x3f, 65535, 0),
        "offloads that were not negotiated": struct.pack("<BBQ", 5, 0, (1 << 64) - 1),
    }
    wanted = sum(bit(b) for b in range(64) if 17 <= b <= 23 or b in (2, 60))
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, \
                victim(lab, packed, wanted=wanted) as driver:
            for what, data in bad.items():
                check_equal(driver.command(data), 1, "answer to " + what)
                check_equal(driver.command_length, 1, "used length of the answer to " + what)
                check_equal(driver.command(data, split=[1] * min(len(data), 40)
                                           + [max(0, len(data) - 40)]), 1,
                            f"answer to {what}, byte by byte")
            good_commands(driver, mac)
            check_equal(broken(lab, driver.control.index), 0, "control queues broken")


def good_commands(driver, mac):
    features = driver.features
    good = [(vu.F_MQ, struct.pack("<BBH", 4, 0, 2)), (vu.F_CTRL_RX, b"\0\0\1"),
            (vu.F_CTRL_RX, struct.pack("<BBI", 1, 0, 1) + mac + struct.pack("<I", 1) + mac),
            (vu.F_CTRL_MAC_ADDR, b"\1\1\2" + mac[1:]), (vu.F_CTRL_VLAN, b"\2\0\7\0"),
            (vu.F_CTRL_VLAN, b"\2\1\7\0")]
    for feature, data in good:
        if features & bit(feature):
            for split in (None, [len(data)], [1] * len(data), [1, len(data) - 1]):
                check_equal(driver.command(data, split), 0, f"answer to {data.hex()} in {split}")
    check_equal(driver.command(b"\0\0\1", result=16), 0, "answer into 16 bytes")
    check_equal(driver.command_length, 1, "used length of an answer into 16 bytes")


def broken_control_queues():
    "A cyclic or unanswerable control chain breaks the control queue only"
    for packed in FORMATS:
        with TwoGuests("--queue-pairs=2", packed=packed) as lab, victim(lab, packed) as driver:
            index, address = driver.control.index, driver.memory.allocate(4096, 16)
            faults = {"an address outside memory": chain_poke(driver, [(FAR, 64, 0)]),
                      "no place for the answer": chain_poke(driver, [(address, 4, 0)]),
                      "readable after writable": chain_poke(driver, [(address, 1, WRITE | NEXT),
                                                                     (address, 4, 0)])}
            if not packed:
                def cycle(ring):
                    for i in range(3):
                        ring.poke_descriptor(i, address, 4, NEXT, (i + 1) % 3)
                    ring.poke_available(0)
                    ring.publish()
                faults["a cycle"] = cycle
            for what, poke in faults.items():
                breaks(lab, driver, index, what, poke)
                check_equal(driver.command(struct.pack("<BBH", 4, 0, 2)), 0, "MQ after " + what)
            odd_answers(driver, address)


def odd_answers(driver, address):
    """The answer's byte lies in the first writable descriptor that has room."""
    memory, ring = driver.memory, driver.control.ring
    memory.write(address, struct.pack("<BBH", 4, 0, 2) + b"\xff\xff")
    for pieces in ([1, 1], [1, 3, 100]):
        memory.write(address + 1000, b"\xff" * 200)
        chain, at = [(address, 3, False), (address + 3, 1, False)], address + 1000
        for length in pieces:
            chain.append((at, length, True))
            at += length + 8
        ring.add(chain, "odd")
        driver.control.notify()
        check_equal(driver.control.reap_until(1), [("odd", 1)], f"answer into {pieces}")
        check_equal(memory.read(address + 1000, 2), b"\0\xff", "the answer and the byte behind it")


run_tests(broken_transmit_rings, broken_receive_rings, not_negotiated, told_once,
          short_and_odd_frames, empty_descriptors, tiny_receive_buffers, receive_buffers_too_small,
          one_short_of_enough, big_mergeable_frames, flipped_lengths_and_headers,
          flipped_receive_lengths, bad_net_headers, bad_commands, broken_control_queues)
