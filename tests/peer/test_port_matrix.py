# SPDX-License-Identifier: BSD-3-Clause
"""Each mode, ring format and port: every frame arrives, once, complete and in order, both ways.

The guest is a driver that this program plays; test_modes.py has a guest kernel for each mode."""

import os
import subprocess

from harness import (PATIENCE, VIRTWIRE, NetNs, VirtwireDevice, check, check_equal, run_tests,
                     tap_port)
from host_link import HostLink
from lab.process import die_with_parent
from numbered_frames import NumberedFrames
from virtio_driver import NetDriver

MODES = ("poll", "adaptive", "interrupt")
COUNT = 300


def tap(io):
    namespace = NetNs()
    namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
    return namespace, tap_port(io=io), "vw0"


def veth():
    namespace = NetNs()
    namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
    namespace.run("ip", "link", "add", "vx0", "type", "veth", "peer", "name", "vw0")
    namespace.run("ip", "link", "set", "vx0", "up")
    return namespace, "afxdp,if=vx0", "vw0"


PORTS = {"tap io=plain": lambda: tap("plain"), "tap io=uring": lambda: tap("uring"),
         "afxdp": veth, "loop": lambda: (NetNs(), "loop", None)}


def both_ways(device, namespace, interface, driver):
    namespace.run("ip", "link", "set", interface, "up")
    host = HostLink(namespace, interface)
    out, back = NumberedFrames(1), NumberedFrames(2)
    for first in range(0, COUNT, 50):     # a burst at a time, each of them into a sleeping device
        frames = range(first, first + 50)
        check_equal(driver.send([out.frame(number) for number in frames]), 50, "frames sent")
        host.expect(out, first, 50, "frames from the guest", device)
        host.send(back.frame(number) for number in frames)
        check_equal([received.frame for received in driver.receive(50)],
                    [back.frame(number) for number in frames], "frames to the guest")
    check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
    host.close()


def matrix_case(mode, packed, port):
    def case():
        namespace, description, interface = PORTS[port]()
        device = VirtwireDevice(namespace, f"--mode={mode}", port=description)
        with NetDriver(device.socket_path, packed=packed) as driver:
            if interface is None:
                check_equal(driver.exchange(NumberedFrames(3), 0, COUNT), COUNT, "frames looped")
            else:
                both_ways(device, namespace, interface, driver)
            queues = device.statistics()["queues"]
            for queue in queues[:2]:
                drops = {name: count for name, count in queue.items()
                         if name.startswith("drop_") and count and name != "drop_disconnected"}
                check_equal(drops, {}, f"drops of queue {queue['index']}")
                check(queue["frames"] >= COUNT, f"frames of queue {queue['index']}")
        device.close()
    return f"{mode}, {'packed' if packed else 'split'}, {port}", case


def memory_not_to_be_locked():
    "afxdp with less memory that may be locked than it needs: status 1, and a message that says so"
    namespace, description, _ = veth()
    with namespace.entered():
        done = subprocess.run(["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock",
                               "prlimit", "--memlock=1048576", VIRTWIRE, "device",
                               f"--port={description}", "--socket-path=/nowhere/at/all.sock"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal((done.returncode, done.stdout), (1, ""), done.stderr)
    check("ulimit -l" in done.stderr and "vx0" in done.stderr, f"message: {done.stderr!r}")


run_tests(*(matrix_case(mode, packed, port) for mode in MODES for packed in (True, False)
            for port in PORTS if port != "afxdp" or os.geteuid() == 0),
          *([memory_not_to_be_locked] if os.geteuid() == 0 else []))
