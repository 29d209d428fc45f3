# SPDX-License-Identifier: BSD-3-Clause
"""A guest that accepts an offload without what that needs: QEMU leaves such sets behind when one
property is switched off. They are accepted, and traffic flows."""

from harness import QemuGuest, check, check_equal, run_tests
from hostile_lab import TwoGuests
from lab.scenario import CSUM, GUEST_CSUM, GUEST_TSO4, HOST_TSO4, Scene
from numbered_frames import NumberedFrames
from vhost_user_client import bit
from virtio_driver import NetDriver

GUEST_TSO6, GUEST_ECN, HOST_TSO6, HOST_ECN = 8, 9, 12, 13
OFFLOADS = (CSUM, GUEST_CSUM, GUEST_TSO4, GUEST_TSO6, GUEST_ECN, HOST_TSO4, HOST_TSO6, HOST_ECN,
            54, 55, 56)         # and USO
# What is off, and an offload that stays although it needs that.
SETS = {"guest_csum": ({GUEST_CSUM}, GUEST_TSO4), "csum": ({CSUM}, HOST_TSO4),
        "guest_tso": ({GUEST_TSO4, GUEST_TSO6}, GUEST_ECN),
        "host_tso": ({HOST_TSO4, HOST_TSO6}, HOST_ECN)}


def carries(path, packed, off, left):
    wanted = sum(bit(number) for number in OFFLOADS if number not in off)
    with NetDriver(path, packed=packed, wanted=wanted) as driver:
        check(driver.features & bit(left), f"bit {left} is not offered: nothing is tested")
        frames = NumberedFrames(stream=31)
        check_equal(driver.exchange(frames, 0, 100), 100, f"frames without {off}")
        driver.front_end.set_features(driver.features)     # and again, while it runs
        check_equal(driver.exchange(frames, 100, 100), 100, f"more frames without {off}")


def sets_case(name, off, left):
    def case():
        with TwoGuests(steady=False) as lab:
            for packed in (False, True):
                carries(lab.path, packed, off, left)

    return f"A driver that accepted everything but {name} carries frames", case


def linux_without_guest_csum():
    "A Linux guest in QEMU with guest_csum=off: ping, and TCP both ways"
    scene = Scene(QemuGuest, guest_options={"guest_csum": "off"})
    scene.check_features([GUEST_TSO4], [GUEST_CSUM])
    scene.wire.wait_reachable()
    scene.wire.ping_from_host()
    scene.wire.ping_from_guest()
    scene.wire.tcp_to_guest(1 << 20)
    scene.wire.tcp_from_guest(1 << 20)
    scene.check_healthy()
    scene.finish()


run_tests(*(sets_case(name, *what) for name, what in SETS.items()), linux_without_guest_csum)
