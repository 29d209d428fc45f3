# SPDX-License-Identifier: BSD-3-Clause
"""A guest on AF_XDP: on one end of a veth pair, whose other end is the host."""
import ctypes
import fcntl
import os
import struct
import time

from harness import *
from lab.scenario import HOST_TSO4, PACKED, Scene, features_off

SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17


def without_transmit_checksums(namespace, interface):
    """What the host sends has to be complete: through AF_XDP nobody can say that it is not."""
    value = ctypes.create_string_buffer(struct.pack("=II", ETHTOOL_STXCSUM, 0))
    with namespace.socket(kind=2) as control:
        fcntl.ioctl(control, SIOCETHTOOL,
                    struct.pack("16sP", interface.encode(), ctypes.addressof(value)))


def afxdp_scene(*options):
    namespace = NetNs()
    namespace.run("ip", "link", "add", "vx0", "type", "veth", "peer", "name", "vw0")
    namespace.run("ip", "link", "set", "vx0", "up")
    without_transmit_checksums(namespace, "vw0")
    return Scene(UmlGuest, *options, port="afxdp,if=vx0", namespace=namespace)


def traffic():
    "Ping, UDP and TCP both ways, with the guest's large segments cut here; split and packed"
    for packed in (False, True):
        scene = afxdp_scene(*features_off(*(["packed"] if not packed else [])))
        scene.check_features(present=[HOST_TSO4] + ([PACKED] if packed else []))
        scene.exchange()
        statistics = scene.check_healthy("packed" if packed else "split")
        port = statistics["port"]["queues"][0]
        check(port["transmit_cut"] > 0, "no large segment was cut: nothing is tested")
        check_equal(port["receive_missed"], 0, "frames that the kernel had no room for")
        scene.finish()


def ticks(process):
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def down_up_and_deleted():
    "The interface goes down, comes up, and is deleted: nothing spins"
    scene = afxdp_scene()
    scene.wire.ping()
    for command in ("set", "vx0", "down"), ("set", "vx0", "up"), ("delete", "vx0"):
        scene.namespace.run("ip", "link", *command)
        scene.guest.shell(f"agent udp-send {HOST} 9 300 100", check=False)
        before = ticks(scene.device)
        time.sleep(2)
        used = ticks(scene.device) - before
        check(used < 0.5, f"{command}: {used} s of processor time in 2 s")
        if command[-1] == "up":
            scene.exchange()
    scene.finish()


if os.geteuid() == 0:
    run_tests(traffic, down_up_and_deleted)
else:
    print("1..0 # SKIP AF_XDP needs root")
