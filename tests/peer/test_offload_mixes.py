# SPDX-License-Identifier: BSD-3-Clause
"""
Guests and ports of which one has offloads that the other lacks: what is missing is done in
software, and every byte arrives. User-mode Linux's kernel has no IPv6, QEMU's has.
"""
from harness import *
from lab.scenario import CSUM, GUEST_TSO4, HOST_TSO4, Scene, features_off

NO_OFFLOADS = features_off("csum", "guest_csum")


def port_counters(scene):
    return scene.device.statistics()["port"]["queues"][0]


def large_frames_are_cut(guest, options=""):
    def case():
        scene = Scene(guest, port="tap,name=vw0,offload=off" + options)
        scene.check_features(present=[CSUM, HOST_TSO4])
        scene.exchange()
        counters = port_counters(scene)
        check(counters["transmit_cut"] > 0, "no frame was cut")
        scene.check_healthy()
        scene.finish()
    return f"{guest.__name__} with offloads, TAP without{options}: large frames are cut", case


def segments_are_merged(guest, options=""):
    def case():
        scene = Scene(guest, *NO_OFFLOADS, port="tap,name=vw0,coalesce=on" + options)
        scene.check_features(absent=[CSUM, HOST_TSO4, GUEST_TSO4])
        scene.exchange()
        counters = port_counters(scene)
        check(counters["transmit_merged"] > 0, "no frames were merged")
        check(counters["transmit_refused"] == 0, "the kernel refused merged frames")
        scene.check_healthy()
        scene.finish()
    return f"{guest.__name__} without offloads, coalesce=on{options}: segments are merged", case


def nothing_is_merged():
    "coalesce=off merges nothing"
    scene = Scene(UmlGuest, *NO_OFFLOADS, port="tap,name=vw0,coalesce=off")
    scene.exchange()
    check_equal(port_counters(scene)["transmit_merged"], 0, "merged frames")
    scene.check_healthy()
    scene.finish()


WITH_QEMU = () if BRIEF else (large_frames_are_cut(QemuGuest), segments_are_merged(QemuGuest))

run_tests(
    *WITH_QEMU,
    large_frames_are_cut(UmlGuest, ",io=plain"),
    segments_are_merged(UmlGuest, ",io=plain"),
    segments_are_merged(UmlGuest, ",io=uring"),
    nothing_is_merged)
