# SPDX-License-Identifier: BSD-3-Clause
"""Large frames for a guest without segmentation offloads that spreads its flows by RSS: each
segment is exactly what it should be, in order, on the queue of its flow; with VLAN tags, and with
frames that coalescing made out of smaller ones.

What is expected is computed here, by code that shares nothing with the device's."""

import struct

import vhost_user_client as vu
from harness import (NetNs, VirtwireDevice, check, check_equal, run_tests, tap_port, wait_for)
from vhost_user_client import bit
from virtio_driver import NetDriver

CTRL_GUEST_OFFLOADS, GUEST_TSO4, HOST_TSO4, HOST_TSO6, HOST_USO, RSS = 2, 7, 11, 12, 56, 60
GSO_TCPV4, GSO_UDP, GSO_TCPV6 = 1, 5, 4
NEEDS_CSUM = 1
TCP4, UDP4, TCP6, UDP6 = 1, 2, 4, 5        # bits of hash types
REPORT = {TCP4: 2, UDP4: 3, TCP6: 5, UDP6: 6}
KEY = bytes(i * 37 + 11 & 0xff for i in range(40))
TABLE = (0, 1, 1, 0, 1, 0, 0, 1)
UNCLASSIFIED = 1
SIZE = 100                                 # of a segment's payload


def ones_sum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def toeplitz(data):
    key, result = int.from_bytes(KEY, "big"), 0
    for i in range(8 * len(data)):
        if data[i // 8] >> (7 - i % 8) & 1:
            result ^= key >> (8 * len(KEY) - 32 - i) & 0xffffffff
    return result


class Flow:
    """One flow: of TCP or UDP, IPv4 or IPv6, with or without a VLAN tag."""

    def __init__(self, number, tcp, ipv6, vlan):
        self.number, self.tcp, self.ipv6, self.vlan = number, tcp, ipv6, vlan
        if ipv6:
            self.source, self.target = (b"\xfd" + bytes(14) + bytes([n]) for n in (1, 2))
        else:
            self.source, self.target = b"\x0a\x09\0\1", b"\x0a\x09\0\2"
        self.ports = struct.pack(">HH", 1000 + 77 * number, 9)

    def headers(self, payload, sequence, index, last, whole=False):
        """The frame with `payload`; `whole`: large, its checksum left to the device."""
        protocol = 6 if self.tcp else 17
        if self.tcp:
            flags = 0x10 | (0x08 if last else 0)
            transport = self.ports + struct.pack(">IIBBHHH", sequence, 7, 0x80, flags, 500, 0, 0)
            transport += b"\1\1\x08\x0a" + struct.pack(">II", 1234, 5678)
            place = 16
        else:
            transport = self.ports + struct.pack(">HH", 8 + len(payload), 0)
            place = 6
        length = len(transport) + len(payload)
        pseudo = self.source + self.target + struct.pack(">II", length, protocol)
        total = ones_sum(pseudo) if whole else ones_sum(pseudo + transport + payload) ^ 0xffff
        if not whole and not self.tcp:
            total = total or 0xffff
        transport = transport[:place] + struct.pack(">H", total) + transport[place + 2:]
        if self.ipv6:
            ip = struct.pack(">IHBB", 6 << 28, length, protocol, 64) + self.source + self.target
        else:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 100 + index, 0x4000, 64, protocol,
                             0)
            ip += self.source + self.target
            ip = ip[:10] + struct.pack(">H", ones_sum(ip) ^ 0xffff) + ip[12:]
        ethernet = struct.pack(">HHH", 0x8100, 5, 0x86dd if self.ipv6 else 0x0800)[
            0 if self.vlan else 4:]
        return ethernet + ip, transport

    def payload(self, count):
        """Enough for so many segments, of which the last is shorter."""
        length = SIZE * count - 13
        return bytes((self.number * 5 + i + i // SIZE) & 0xff for i in range(length))

    def segments(self, count, ends=("52:54:00:00:00:02", "52:54:00:00:00:01")):
        """The frames as they are to arrive."""
        addresses = bytes.fromhex("".join(ends).replace(":", ""))
        data = self.payload(count)
        for index in range(count):
            piece = data[index * SIZE:(index + 1) * SIZE]
            front, transport = self.headers(piece, 5000 + index * SIZE, index, index + 1 == count)
            yield addresses + front + transport + piece

    def large(self, count):
        """One frame to be cut, and its virtio-net header."""
        data = self.payload(count)
        front, transport = self.headers(data, 5000, 0, True, whole=True)
        start = 12 + len(front)
        kind = (GSO_TCPV6 if self.ipv6 else GSO_TCPV4) if self.tcp else GSO_UDP
        header = struct.pack("<BBHHHHH", NEEDS_CSUM, kind, start + len(transport), SIZE, start,
                             16 if self.tcp else 6, 0)
        return header, bytes.fromhex("525400000001525400000002") + front + transport + data

    def expected(self):
        """(pair, hash, kind of hash)"""
        value = toeplitz(self.source + self.target + self.ports)
        kind = {(True, False): TCP4, (False, False): UDP4,
                (True, True): TCP6, (False, True): UDP6}[self.tcp, self.ipv6]
        return TABLE[value & len(TABLE) - 1], value, REPORT[kind]


FLOWS = [Flow(number, tcp=number % 2 == 0, ipv6=number // 2 % 2 == 1, vlan=number // 4 % 3 == 2)
         for number in range(24)]


def steered_driver(device, packed, wanted=0, **options):
    driver = NetDriver(device.socket_path, packed=packed, pairs=2, control=True,
                       wanted=wanted | bit(RSS) | bit(vu.F_HASH_REPORT) | bit(vu.F_CTRL_RX),
                       **options)
    types = sum(1 << kind for kind in REPORT)
    command = struct.pack("<IHH", types, len(TABLE) - 1, UNCLASSIFIED)
    command += struct.pack(f"<{len(TABLE)}H", *TABLE)
    command += struct.pack("<HB", 2, len(KEY)) + KEY
    check_equal(driver.command(b"\4\1" + command), 0, "RSS_CONFIG")
    return driver


def expect_flow(driver, flow, segments):
    pair, value, kind = flow.expected()
    came = driver.receive(len(segments), pair)
    check_equal([received.frame.hex() for received in came], [frame.hex() for frame in segments],
                f"segments of flow {flow.number} on pair {pair}")
    for received in came:
        check_equal(received.header[:10], bytes(10), "offloads of a segment")
        check_equal(struct.unpack("<IH", received.header[12:18]), (value, kind), "hash")


def cut(packed):
    device = VirtwireDevice(None, port="loop,queues=2")
    wanted = sum(map(bit, (vu.F_CSUM, HOST_TSO4, HOST_TSO6, HOST_USO)))
    with steered_driver(device, packed, wanted) as driver:
        check(driver.features & wanted == wanted, "offloads that are offered")
        pairs = set()
        for flow in FLOWS:
            count = 2 + flow.number % 16
            header, frame = flow.large(count)
            pairs.add(flow.expected()[0])
            check_equal(driver.send([frame], flow.number % 2, header), 1, "sent")
            expect_flow(driver, flow, list(flow.segments(count)))
        check_equal(pairs, {0, 1}, "pairs")
        queues = device.statistics()["queues"]
        check_equal(sum(queue["frames_cut"] for queue in queues), len(FLOWS), "frames cut")
    device.close()


def starved(packed):
    "A cut frame waits in the middle for buffers"
    device = VirtwireDevice(None, port="loop,queues=2")
    wanted = sum(map(bit, (vu.F_CSUM, HOST_TSO4, HOST_TSO6, HOST_USO)))
    with steered_driver(device, packed, wanted, size=8) as driver:
        for flow in FLOWS:
            header, frame = flow.large(17)
            driver.send([frame], flow.expected()[0], header)  # its own pair: the frame may wait
            expect_flow(driver, flow, list(flow.segments(17)))
    device.close()


def changed_in_the_middle(packed):
    device = VirtwireDevice(None, port="loop")
    wanted = sum(map(bit, (vu.F_CSUM, HOST_TSO4, vu.F_GUEST_CSUM, GUEST_TSO4, CTRL_GUEST_OFFLOADS)))
    with NetDriver(device.socket_path, packed=packed, control=True, size=8,
                   wanted=wanted) as driver:
        def offloads(*bits):
            command = b"\5\0" + struct.pack("<Q", sum(map(bit, bits)))
            check_equal(driver.command(command), 0, "GUEST_OFFLOADS_SET")

        first, second = FLOWS[0], Flow(99, tcp=True, ipv6=False, vlan=False)
        offloads()
        header, frame = first.large(17)
        driver.send([frame], 0, header)
        came = [received.frame for received in driver.receive(8, refill=False)]
        check_equal(came, list(first.segments(17))[:8], "segments before the buffers ran out")
        offloads(vu.F_GUEST_CSUM, GUEST_TSO4)
        for address in driver.rx_buffers[0]:
            driver.rx().ring.add([(address, driver.rx_buffer, True)], address)
        driver.rx().notify()
        whole, = driver.receive(1)
        check_equal(whole.frame[12:], frame[12:], "the frame, which need not be cut any more")
        offloads()
        header, frame = second.large(11)
        driver.send([frame], 0, header)
        came = [received.frame.hex() for received in driver.receive(11)]
        check_equal(came, [frame.hex() for frame in second.segments(11)],
                    "segments of the next frame")
    device.close()


def coalesced(packed):
    namespace = NetNs()
    namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
    sender = VirtwireDevice(namespace, port=tap_port(",coalesce=on"))
    receiver = VirtwireDevice(namespace, port=tap_port(",queues=2").replace("vw0", "vw1"))
    for command in ("link add bridge0 type bridge", "link set bridge0 up", "link set vw0 up",
                    "link set vw1 up", "link set vw0 master bridge0",
                    "link set vw1 master bridge0"):
        namespace.run("ip", *command.split())
    for name in ("vw0", "vw1"):
        wait_for("the bridge", lambda: "state forwarding" in namespace.run(
            "bridge", "link", "show", "dev", name))
    with NetDriver(sender.socket_path, packed=packed) as source, \
            steered_driver(receiver, packed) as driver:
        for flow in FLOWS:
            frames = list(flow.segments(2 + flow.number % 16))
            check_equal(source.send(frames), len(frames), "sent")
            expect_flow(driver, flow, frames)
        port = sender.statistics()["port"]["queues"][0]
        check(port["transmit_merged"] > 100, f"next to nothing was merged: {port}")
    sender.close()
    receiver.close()


run_tests(*((f"{what}, {'packed' if packed else 'split'}",
             lambda case=case, packed=packed: case(packed))
            for what, case in (("Large frames are cut and spread by RSS", cut),
                               ("A cut frame waits for buffers on its own queue", starved),
                               ("A frame half cut when offloads change spoils no later one",
                                changed_in_the_middle),
                               ("Frames are merged, forwarded, cut, and spread by RSS", coalesced))
            for packed in (True, False)))
