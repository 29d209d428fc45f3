# SPDX-License-Identifier: BSD-3-Clause
"""What can happen to the TAP under a running guest."""
import os
import time

from harness import *
from lab.scenario import Scene


def processor_ticks(process):
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def check_idle(process, what):
    """A loop that burns a core would take all of these two seconds."""
    before = processor_ticks(process)
    time.sleep(2)
    used = (processor_ticks(process) - before) / os.sysconf("SC_CLK_TCK")
    check(used < 0.5, f"{what}: the device used {used} s of processor time in 2 s")


def down_and_up(io):
    "The TAP goes down and comes up again"
    scene = Scene(UmlGuest, port=tap_port(io=io))
    scene.wire.ping()
    scene.namespace.run("ip", "link", "set", "vw0", "down")
    scene.guest.shell(f"agent udp-send {HOST} 9 300 100", check=False)
    check_idle(scene.device, "TAP down")
    scene.namespace.run("ip", "link", "set", "vw0", "up")
    scene.exchange()
    scene.finish()


def deleted(io):
    "The TAP is deleted: frames are dropped and counted, nothing spins"
    scene = Scene(UmlGuest, port=tap_port(io=io))
    scene.wire.ping()
    scene.namespace.run("ip", "link", "delete", "vw0")
    scene.guest.shell(f"ip neigh flush dev eth0; agent udp-send {HOST} 9 300 100", check=False)
    check_idle(scene.device, "TAP deleted")
    queues = scene.device.statistics()["queues"]
    check_equal([queue["broken"] for queue in queues], [0, 0, 0], "broken rings")
    scene.finish()


def no_buffers(io):
    "A flood for a guest that does not run: nothing spins, and all is well when it runs again"
    scene = Scene(UmlGuest, port=tap_port(io=io))
    scene.wire.ping()
    scene.guest.shell("ip link set eth0 down")
    with scene.namespace.socket(kind=2) as flood:
        scene.namespace.run("ip", "neigh", "replace", GUEST, "lladdr", "02:00:00:00:00:99",
                            "dev", "vw0")
        for _ in range(3000):
            flood.sendto(bytes(500), (GUEST, 9))
    check_idle(scene.device, "flood without buffers")
    scene.namespace.run("ip", "neigh", "delete", GUEST, "dev", "vw0")
    scene.guest.shell("ip link set eth0 up")
    scene.exchange()
    scene.finish()


def nothing_to_do():
    "An idle device with an idle guest uses no processor time"
    scene = Scene(UmlGuest)
    scene.wire.ping()
    check_idle(scene.device, "idle")
    scene.finish()


def with_io(case, io):
    return f"{case.__doc__} (io={io})", lambda: case(io)


run_tests(*(with_io(case, io) for case in (down_and_up, deleted, no_buffers)
            for io in ("plain", "uring")), nothing_to_do)
