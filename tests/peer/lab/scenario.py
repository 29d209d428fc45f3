# SPDX-License-Identifier: BSD-3-Clause
"""The scene of most tests: one device with a TAP, one guest on it, addresses on both ends."""
from lab.box import NetNs
from lab.device import VirtwireDevice
from lab.process import Failure
from lab.report import check, check_equal
from lab.traffic import Wire

# Bits of features, as the guest's driver shows them.
CSUM, GUEST_CSUM, MTU, GUEST_TSO4, HOST_TSO4, MRG_RXBUF, MQ = 0, 1, 3, 7, 11, 15, 22
INDIRECT, EVENT_IDX, VERSION_1, PACKED, IN_ORDER = 28, 29, 32, 34, 35


class Scene:
    """`guest` is a class or function that takes the socket's path (and `guest_options`)."""

    def __init__(self, guest, *device_options, port="tap,name=vw0", mtu=None, guest_options=None,
                 namespace=None):
        self.namespace = namespace or NetNs()
        self.device = VirtwireDevice(self.namespace, *device_options, port=port)
        self.guest = guest(self.device.socket_path, **(guest_options or {}))
        self.mtu = mtu
        self.wire = Wire(self.namespace, self.guest, mtu=mtu)

    def exchange(self, megabytes=2):
        """Each kind of traffic, both ways."""
        self.wire.ping()
        self.wire.udp_echo()
        self.wire.udp_from_guest()
        self.wire.udp_to_guest()
        self.wire.tcp_to_guest(megabytes << 20)
        self.wire.tcp_from_guest(megabytes << 20)

    def check_features(self, present=(), absent=()):
        accepted = self.guest.driver_features()
        check(set(present) <= accepted and not accepted & set(absent),
              f"accepted features {sorted(accepted)}, expected {sorted(present)} "
              f"and not {sorted(absent)}")

    def check_healthy(self, ring_format=None):
        """No ring broken, no frame dropped, nothing refused, and the guest has no complaint."""
        statistics = self.device.statistics()
        if ring_format:
            check_equal(statistics["ring_format"], ring_format, "ring format")
        for queue in statistics["queues"]:
            drops = {name: value for name, value in queue.items()
                     if name.startswith("drop_") and value != 0}
            # Until its own interface is up, a guest may send what the host's cannot take yet; and
            # the host sends to multicast groups that the guest did not join.
            drops.pop("drop_port_down", None)
            drops.pop("drop_filter", None)
            drops.pop("drop_disconnected", None)  # what the host sent before the guest was there
            check_equal((queue["broken"], drops), (0, {}), f"queue {queue['index']}: broken, drops")
        # A receive ring need not be kicked, nor a transmit ring call: both may poll.
        for queue, names in zip(statistics["queues"], (("frames", "bytes", "calls"),
                                                       ("frames", "bytes", "kicks"))):
            check_equal([name for name in names if queue[name] == 0], [],
                        f"queue {queue['index']}: counters at 0")
        check_equal(statistics["device"]["messages_refused"], 0, "messages refused")
        check_equal(self.guest.bad_news(), [], "the guest's kernel complains")
        return statistics

    def restart_guest(self, guest, **guest_options):
        """Another guest on the same device."""
        if not self.guest.ended():
            raise Failure("the guest before has not ended")
        self.guest = guest(self.device.socket_path, **guest_options)
        self.wire = Wire(self.namespace, self.guest, mtu=self.mtu)

    def finish(self):
        """The orderly end: guest first, then the device, whose status must be 0."""
        self.guest.power_off()
        self.device.close()


def features_off(*names):
    """The device's option that takes features out of its offer."""
    return ["--features=" + ",".join(name + "=off" for name in names)] if names else []
