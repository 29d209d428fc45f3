# SPDX-License-Identifier: BSD-3-Clause
"""A guest that vanishes in the middle of traffic: the device cleans up and serves the next one."""
from harness import *
from lab.scenario import Scene, features_off

ROUNDS = 1 if BRIEF else 2


def begin_traffic(scene):
    """Endless transmission, and frames for the guest."""
    scene.guest.shell(f"(while :; do agent udp-send {HOST} 9 1000 1000; done) >/dev/null 2>&1 &")
    before = scene.device.statistics()["queues"][1]["frames"]
    wait_for("frames from the guest",
             lambda: scene.device.statistics()["queues"][1]["frames"] > before + 100)


def killed(format, *options):
    def case():
        scene = Scene(UmlGuest, *options)
        scene.wire.ping()
        resting = None
        for _ in range(ROUNDS):
            begin_traffic(scene)
            scene.guest.kill()
            wait_for("the end of the connection",
                     lambda: not scene.device.statistics()["connected"])
            now = (scene.device.open_descriptors(), len(scene.device.memory_maps()))
            resting = resting or now
            check(now[0] == resting[0] and now[1] <= resting[1] + 2,
                  f"open files and memory maps grow: {resting}, then {now}")
            scene.restart_guest(UmlGuest)
            scene.wire.ping()
            scene.wire.tcp_to_guest(1 << 20)
            scene.wire.tcp_from_guest(1 << 20)
        statistics = scene.device.statistics()
        check_equal(statistics["device"]["connections"], ROUNDS + 1, "connections")
        check_equal(statistics["device"]["connections_dropped"], 0, "connections dropped")
        check_equal(scene.guest.bad_news(), [], "the guest's kernel complains")
        scene.finish()
    return f"guest killed in traffic {ROUNDS} times, {format} ring", case


def device_killed():
    "User-mode Linux survives the end of its device, and a new guest finds a new device"
    scene = Scene(UmlGuest)
    begin_traffic(scene)
    scene.device.kill()
    check_equal(scene.guest.shell("echo alive"), "alive", "the guest without its device")
    scene.guest.kill()
    scene.device = VirtwireDevice(scene.namespace, socket_path=scene.device.socket_path)
    scene.restart_guest(UmlGuest)
    scene.exchange()
    scene.check_healthy()
    scene.finish()


def one_guest_at_a_time():
    "A second front-end is refused, or waits, and the first one does not notice"
    scene = Scene(UmlGuest)
    scene.wire.ping()
    second = UmlGuest(scene.device.socket_path, boot=False)
    scene.wire.udp_echo()
    scene.wire.tcp_from_guest(1 << 20)
    second.kill()
    scene.wire.tcp_to_guest(1 << 20)
    scene.check_healthy()
    scene.finish()


run_tests(killed("split", *features_off("packed")), killed("packed"), device_killed,
          one_guest_at_a_time)
