# SPDX-License-Identifier: BSD-3-Clause
"""rmmod and insmod of the guest's driver: everything is set up again on the same connection."""
import contextlib
import socket
import threading
import time

from harness import *
from lab.scenario import Scene, features_off

RELOADS = 1 if BRIEF else 3


def reload_case(format, *options):
    def case():
        scene = Scene(UmlGuest, *options)
        scene.wire.ping()
        descriptors = scene.device.open_descriptors()
        for _ in range(RELOADS):
            scene.guest.shell("rmmod virtio_net && insmod /modules/virtio_net.ko")
            scene.wire.configure_guest()
            scene.wire.ping()
            scene.wire.udp_from_guest(count=600)
            scene.wire.tcp_to_guest(1 << 20)
            scene.wire.tcp_from_guest(1 << 20)
        check_equal(scene.device.open_descriptors(), descriptors, "open files after reloads")
        statistics = scene.check_healthy(format)
        check_equal(statistics["device"]["connections"], 1, "connections")
        scene.finish()
    return f"driver reloaded {RELOADS} times, {format} ring", case


def reload_in_traffic():
    "The driver goes while frames arrive, and comes back"
    scene = Scene(UmlGuest)
    scene.wire.wait_reachable()
    with scene.namespace.socket(kind=socket.SOCK_DGRAM) as flood, stop_flag() as stopped:
        thread = threading.Thread(target=send_until, args=(flood, stopped), daemon=True)
        thread.start()
        for _ in range(RELOADS):
            scene.guest.shell("rmmod virtio_net && insmod /modules/virtio_net.ko")
            scene.wire.configure_guest()
            scene.wire.wait_reachable()
        stopped.set()
        thread.join()
    scene.wire.tcp_from_guest(1 << 20)
    check_equal(scene.guest.bad_news(), [], "the guest's kernel complains")
    scene.finish()


@contextlib.contextmanager
def stop_flag():
    flag = threading.Event()
    try:
        yield flag
    finally:
        flag.set()


def send_until(flood, stopped):
    while not stopped.is_set():
        with contextlib.suppress(OSError):  # no route while the guest has no address
            flood.sendto(bytes(700), (GUEST, 9))
        time.sleep(0.001)


run_tests(reload_case("split", *features_off("packed")), reload_case("packed"), reload_in_traffic)
