# SPDX-License-Identifier: BSD-3-Clause
"""
The back-end goes and comes back under a running QEMU guest, which reconnects by itself.

A split ring goes on where it was: QEMU reads the position from the used index in the guest's
memory. A packed ring has no such index there, and QEMU keeps none of its own when a back-end is
gone without a GET_VRING_BASE: the device reads its place from the descriptors.
"""
import signal
import time

from harness import *
from lab.scenario import Scene


def again(scene):
    """A new device at the same path, and the TAP's addresses again: the old one went with it."""
    scene.device = VirtwireDevice(scene.namespace, socket_path=scene.device.socket_path)
    scene.namespace.configure("vw0", HOST + "/24", HOST6 + "/64")
    wait_for("the front-end to come back", lambda: scene.device.statistics()["connected"])
    scene.wire.wait_reachable()


def transmit_endlessly(scene):
    scene.guest.shell(f"(while :; do agent udp-send {HOST} 9 200 500; done) >/dev/null 2>&1 &"
                      " echo $! >/tmp/endless")


def stop_transmitting(scene):
    scene.guest.shell("kill $(cat /tmp/endless)")


def goes(packed, killed):
    def case():
        scene = Scene(QemuGuest, guest_options={"packed": packed, "reconnect": 1})
        scene.wire.ping()
        for _ in range(2):
            transmit_endlessly(scene)
            if killed:
                scene.device.kill()
            else:
                scene.device.close()
            again(scene)
            stop_transmitting(scene)
            scene.wire.udp_from_guest(count=600)
            scene.wire.udp_to_guest(count=600)
            scene.wire.tcp_to_guest(1 << 20)
            scene.wire.tcp_from_guest(1 << 20)
        check_equal(scene.guest.bad_news(), [], "the guest's kernel complains")
        scene.finish()
    how = "killed" if killed else "stopped"
    return f"device {how} twice in traffic, {'packed' if packed == 'on' else 'split'} ring", case


def stalled():
    "A device that is stopped for 15 seconds: the guest recovers when it continues"
    scene = Scene(QemuGuest)
    scene.wire.ping()
    transmit_endlessly(scene)
    scene.device.signal(signal.SIGSTOP)
    time.sleep(15)
    scene.device.signal(signal.SIGCONT)
    stop_transmitting(scene)
    scene.wire.ping()
    scene.wire.udp_from_guest()
    scene.wire.tcp_from_guest(1 << 20)
    scene.finish()


run_tests(goes("off", killed=True), goes("off", killed=False), goes("on", killed=True),
          goes("on", killed=False), stalled)
