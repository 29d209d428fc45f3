# SPDX-License-Identifier: BSD-3-Clause
"""The host's side of a device with a TAP, for drivers that this program plays itself: datagrams
that the host sends to a neighbour whose address it was told, without any answer of a guest."""

import socket

from harness import GUEST, HOST, Failure, NetNs, VirtwireDevice, tap_port, wait_for

NEIGHBOUR = "52:54:00:00:00:02"


class TapHost:
    def __init__(self, *arguments, port=None):
        self.namespace = NetNs()
        self.device = VirtwireDevice(self.namespace, *arguments,
                                     port=port or tap_port())
        self.path = self.device.socket_path
        self.namespace.set("net/ipv6/conf/vw0/disable_ipv6", "1")
        self.namespace.configure("vw0", HOST + "/24")
        self.namespace.run("ip", "neighbour", "add", GUEST, "lladdr", NEIGHBOUR, "dev", "vw0")

    def send(self, text, count, flows=1):
        """`count` datagrams in each of so many flows: the kernel spreads flows over queues."""
        for flow in range(flows):
            with self.namespace.socket(kind=socket.SOCK_DGRAM) as host:
                for _ in range(count):
                    host.sendto(text, (GUEST, 5000 + flow))

    def wait_no_guest(self):
        """Until the device has seen that its front-end is gone."""
        wait_for("the end of the connection",
                 lambda: not self.device.statistics()["connected"], alive=self.device)


def take(driver, text):
    """What has arrived and holds `text`, a count for each pair; the rest is thrown away."""
    for pair in range(driver.pairs):
        while driver.poll(pair):
            pass
    counts = [sum(text in received.frame for received in arrived) for arrived in driver.received]
    for arrived in driver.received:
        arrived.clear()
    return counts


def expect(driver, text, count, what):
    """Waits for `count` frames that hold `text`; returns how many came on each pair."""
    counts = [0] * driver.pairs

    def more():
        for pair, came in enumerate(take(driver, text)):
            counts[pair] += came
        return sum(counts) >= count

    try:
        wait_for(what, more)
    except Failure:
        raise Failure(f"{what}: of {count} frames came {counts}") from None
    return counts
