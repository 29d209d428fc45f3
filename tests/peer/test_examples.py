# SPDX-License-Identifier: BSD-3-Clause
"""The programs of examples/ with a device that breaks their queues."""
import mmap
import os

from harness import (NetNs, Process, VirtwireDevice, check, check_equal, log_folder, run_tests,
                     wait_for)
from host_link import HostLink

EXAMPLES = os.path.join(os.environ["VIRTWIRE_BUILD"], "examples")


def spoil_memory(process):
    """Makes nonsense of all rings: what a driver reads next in a used ring cannot be."""
    folder = f"/proc/{process.pid}/fd"
    paths = [os.path.join(folder, fd) for fd in os.listdir(folder)]
    # opened at once: the program may end while its memory is written
    found = [os.open(path, os.O_RDWR) for path in paths
             if os.readlink(path).startswith("/memfd:virtwire")]
    check(found, "the program shares no memory")
    for fd in found:
        with mmap.mmap(fd, 0) as memory:
            for at in range(0, len(memory), 1 << 20):
                end = min(at + (1 << 20), len(memory))
                memory[at:end] = b"\xff" * (end - at)
        os.close(fd)


def broken_queue_of_tap_bridge():
    "tap_bridge ends with a message when the device broke a queue, where it waited for ever"
    for ring in "packed=off", "packed=on":
        device = VirtwireDevice(None, f"--features={ring}", port="null")
        namespace = NetNs()
        namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
        with namespace.entered():
            bridge = Process("tap_bridge", [os.path.join(EXAMPLES, "tap_bridge"),
                                            device.socket_path, "br0"], log_folder(), merge=False)
        wait_for("the interface", lambda: "br0" in namespace.run("ip", "-o", "link"), alive=bridge)
        namespace.run("ip", "link", "set", "br0", "up")
        link = HostLink(namespace, "br0")
        spoil_memory(bridge)
        # wakes the bridge, whose rings are spoilt by now
        link.send([b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x88\xb5" + bytes(46)])
        check_equal(bridge.wait(), 1, "status")
        check("broke a queue" in bridge.errors_text(), f"message: {bridge.errors_text()!r}")
        device.close()


def broken_queue_of_echo():
    "echo ends with a message when the device broke a queue, where it spun for ever"
    for ring in "packed=off", "packed=on":
        device = VirtwireDevice(None, f"--features={ring}", port="source,count=50")
        echo = Process("example-echo", [os.path.join(EXAMPLES, "echo"), device.socket_path],
                       log_folder(), merge=False)
        # Fewer than a ring holds: none is dropped. Then it is quiet, and nobody sets a ring right again.
        wait_for("all frames",
                 lambda: device.statistics()["port"]["queues"][0]["probe"]["frames"] == 50,
                 alive=echo)
        spoil_memory(echo)
        check_equal(echo.wait(), 1, "status")
        check("broke a queue" in echo.errors_text(), f"message: {echo.errors_text()!r}")
        device.close()


run_tests(broken_queue_of_tap_bridge, broken_queue_of_echo)
