# SPDX-License-Identifier: BSD-3-Clause
"""DPDK's virtio-user, an independent front-end and driver, on a loop and on a TAP interface."""

import itertools
import os
import random
import struct

from harness import (NetNs, Testpmd, VirtwireDevice, check, check_equal, private_folder, run_tests,
                     tap_port, wait_for)
from hostile_lab import queue_counters
from numbered_frames import NumberedFrames

FRAMES = 2000
BURST = 200


def virtio_user(device, queues=1, size=256, **options):
    """A --vdev argument; in the options 0 and 1 mean off and on, as virtio-user wants it."""
    text = "".join(f",{name}={value}" for name, value in options.items())
    return f"net_virtio_user0,path={device.socket_path},queues={queues},queue_size={size}{text}"


def write_capture(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("=4I", number, 0, len(frame), len(frame)) + frame)


def read_capture(path):
    with open(path, "rb") as file:
        data = file.read()
    frames, at = [], 24
    while at + 16 <= len(data):
        length = struct.unpack_from("=I", data, at + 8)[0]
        if at + 16 + length > len(data):
            break
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return frames


def carry_around(device, numbered, eal=(), **options):
    """2000 frames go from a file through virtio-user around the loop into another file."""
    source, sink = (os.path.join(private_folder(), name) for name in ("in.pcap", "out.pcap"))
    write_capture(source, [numbered.frame(i) for i in range(FRAMES)])
    testpmd = Testpmd(f"net_pcap0,rx_pcap={source},tx_pcap={sink}", virtio_user(device, **options),
                      name="front-end", eal=eal, arguments=["--no-flush-rx"])
    testpmd.execute("set fwd io retry")
    # testpmd drops a burst for which it finds no room that long: 5 s, more than a busy host keeps
    # the device waiting for a processor.
    testpmd.execute("set burst tx delay 50 retry 100000")
    testpmd.execute("start")
    wait_for(f"{FRAMES} frames around the loop",
             lambda: testpmd.statistics(0).get("TX-packets", 0) >= FRAMES, alive=testpmd, pause=0.2)
    check_equal(testpmd.stop(), 0, "status of testpmd")
    came = read_capture(sink)
    check_equal(len(came), FRAMES, f"frames that came back, {options}")
    for number, frame in enumerate(came):
        check(frame == numbered.returned(number), f"frame {number} came back damaged, {options}")
    return testpmd


def contents_around_the_loop():
    "Split and packed x in-order x mergeable: 2000 random frames come back whole and in order"
    device = VirtwireDevice(port="loop")
    for number, (packed, in_order, mergeable) in enumerate(itertools.product((0, 1), repeat=3)):
        carry_around(device, NumberedFrames(number), packed_vq=packed, in_order=in_order,
                     mrg_rxbuf=mergeable)
    for index in (0, 1):
        counters = queue_counters(device, device.socket_path, index)
        check_equal(counters["broken"], 0, f"times that ring {index} broke")
        check_equal(counters["frames"], 8 * FRAMES, f"frames of ring {index}")


def vectorised_paths():
    "virtio-user's vectorised paths: 2000 random frames come back whole and in order"
    device = VirtwireDevice(port="loop")
    wide = ["--force-max-simd-bitwidth=512"]
    paths = [(dict(packed_vq=0, in_order=0, mrg_rxbuf=0, vectorized=1), []),
             (dict(packed_vq=1, in_order=1, mrg_rxbuf=1, vectorized=1), wide),
             (dict(packed_vq=1, in_order=1, mrg_rxbuf=0, vectorized=1), wide)]
    for number, (options, eal) in enumerate(paths):
        log = ["--log-level=pmd.net.virtio.*:info"]
        testpmd = carry_around(device, NumberedFrames(number), eal=eal + log, **options)
        check("vector" in testpmd.log_text().lower(),
              f"virtio-user did not take a vectorised path: {options}")


def sizes_of_rings():
    "Rings of 32 to 1024 entries, and frames of every length"
    device = VirtwireDevice(port="loop")
    for number, (packed, size) in enumerate(itertools.product((0, 1), (32, 128, 1024))):
        carry_around(device, NumberedFrames(number), packed_vq=packed, size=size)


def two_queue_pairs():
    "Two queue pairs, chosen through virtio-user's control queue, both carry frames"
    for packed, mergeable in itertools.product((0, 1), repeat=2):
        device = VirtwireDevice(None, "--queue-pairs=2", port="loop")
        testpmd = Testpmd(virtio_user(device, queues=2, packed_vq=packed, mrg_rxbuf=mergeable),
                          name="front-end", arguments=["--rxq=2", "--txq=2"])
        testpmd.execute("start tx_first 4")
        for index in range(4):
            wait_for(f"frames on ring {index}, packed {packed}",
                     lambda: queue_counters(device, device.socket_path, index)["frames"] > 10000,
                     alive=testpmd)
        check_equal(testpmd.stop(), 0, "status of testpmd")
        for index in range(4):
            check_equal(queue_counters(device, device.socket_path, index)["broken"], 0,
                        "rings broken")
        check_equal(device.stop(), 0, "status of the device")


def into_a_tap():
    "Every frame that testpmd sends arrives at the TAP interface, by the kernel's counters"
    for packed, in_order, length, io in ((0, 0, 64, "uring"), (1, 0, 64, "plain"),
                                         (0, 1, 1514, "plain"), (1, 1, 1514, "uring")):
        namespace = NetNs()
        device = VirtwireDevice(namespace, port=tap_port(io=io))
        namespace.configure("vw0")
        before = namespace.counter("vw0", "rx_packets")
        testpmd = Testpmd(virtio_user(device, packed_vq=packed, in_order=in_order),
                          name="front-end")
        testpmd.execute("set fwd txonly")
        testpmd.execute(f"set txpkts {length}")
        testpmd.execute("start")
        wait_for("100 000 frames to be sent",
                 lambda: testpmd.statistics().get("TX-packets", 0) > 100000, alive=testpmd,
                 pause=0.1)
        testpmd.execute("stop")
        sent = testpmd.statistics()["TX-packets"]
        seen = lambda: namespace.counter("vw0", "rx_packets") - before
        wait_for(f"{sent} frames at the TAP interface, packed {packed}", lambda: seen() >= sent,
                 alive=device)
        carried = queue_counters(device, device.socket_path, 1)
        drops = {name: value for name, value in carried.items()
                 if name.startswith("drop") and value}
        check_equal((carried["frames"], drops), (sent, {}), "frames carried, and dropped")
        check_equal(testpmd.stop(), 0, "status of testpmd")
        check_equal(device.stop(), 0, "status of the device")
        namespace.close()


def from_a_tap():
    "Every frame that the kernel sends through the TAP interface arrives at testpmd"
    for packed, mergeable in itertools.product((0, 1), repeat=2):
        namespace = NetNs()
        io = ("uring", "plain")[packed ^ mergeable]
        device = VirtwireDevice(namespace, port=tap_port(io=io))
        namespace.configure("vw0", "10.9.0.1/24")
        namespace.run("ip", "neighbour", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:02",
                      "dev", "vw0")
        testpmd = Testpmd(virtio_user(device, packed_vq=packed, mrg_rxbuf=mergeable,
                                      mac="02:00:00:00:00:02"), name="front-end")
        testpmd.execute("set fwd rxonly")
        testpmd.execute("start")
        before = testpmd.statistics()["RX-packets"]
        chance = random.Random(packed)
        # A TAP's queue holds 500 frames, and the kernel drops what does not fit: in bursts, then.
        with namespace.socket(kind=2) as sender:      # SOCK_DGRAM
            for sent in range(BURST, FRAMES + 1, BURST):
                for _ in range(BURST):
                    sender.sendto(chance.randbytes(chance.randint(1, 1472)), ("10.9.0.2", 9))
                wait_for(f"{sent} datagrams at testpmd, packed {packed}",
                         lambda: testpmd.statistics()["RX-packets"] - before >= sent,
                         alive=testpmd)
        check_equal(testpmd.stop(), 0, "status of testpmd")
        check_equal(device.stop(), 0, "status of the device")
        namespace.close()


def restarted_front_ends():
    "testpmd ends, is killed, and starts again on the same device"
    device = VirtwireDevice(port="loop")
    for turn in range(3):
        carry_around(device, NumberedFrames(turn), packed_vq=turn & 1)
        victim = Testpmd(virtio_user(device, packed_vq=turn & 1), name="killed")
        victim.execute("start tx_first 4")
        before = queue_counters(device, device.socket_path, 1)["frames"]
        wait_for("frames of the one to be killed",
                 lambda: queue_counters(device, device.socket_path, 1)["frames"] > before + 10000,
                 alive=victim)
        victim.kill()


run_tests(contents_around_the_loop, vectorised_paths, sizes_of_rings, two_queue_pairs, into_a_tap,
          from_a_tap, restarted_front_ends)
