# SPDX-License-Identifier: BSD-3-Clause
"""A device under pressure: its port vanishes, goes down, has no room; its guest stops, or goes.

Nothing spins (told by how often the device's threads sleep), nothing stalls, each frame arrives or
is counted, and all is well when the cause goes away. VIRTWIRE_SLOW_SECONDS makes the slow reader
read for so long."""

import os
import signal
import socket
import time

import vhost_user_client as vu
from harness import (BRIEF, NetNs, VirtwireDevice, check, check_equal, run_tests, tap_port,
                     wait_for)
from host_link import HostLink
from hostile_lab import TwoGuests
from numbered_frames import NumberedFrames
from virtio_driver import NetDriver

MODES = ("adaptive", "interrupt", "poll")
WAYS = [(mode, io) for mode in MODES for io in ("plain", "uring")]
SLOW_SECONDS = float(os.environ.get("VIRTWIRE_SLOW_SECONDS", "0"))
NOBODY = "02:00:00:00:00:03"


def check_quiet(device, mode, what):
    """A device that cannot go on sleeps, and is not woken for nothing. (poll never sleeps.)"""
    if mode == "poll":
        return

    def quiet():
        before = device.sleeps()
        time.sleep(0.5)
        states = []
        for task in os.listdir(f"/proc/{device.pid}/task"):
            with open(f"/proc/{device.pid}/task/{task}/stat") as stat:
                states.append(stat.read().rpartition(")")[2].split()[0])
        return device.sleeps() - before < 10 and "R" not in states
    wait_for(f"a device that sleeps: {what}", quiet, alive=device)


def scene(mode, io, options=""):
    namespace = NetNs()
    namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
    device = VirtwireDevice(namespace, f"--mode={mode}", port=tap_port(options, io))
    namespace.run("ip", "link", "set", "vw0", "up")
    return namespace, device


def accounted(device, carried, **drops):
    """The transmit queue's counters must say exactly this."""
    queue = device.statistics()["queues"][1]
    found = {name: value for name, value in queue.items() if name.startswith("drop_") and value}
    check_equal((queue["frames"], found), (carried, drops), "frames carried, and dropped")


def send_all(driver, frames, numbers):
    numbers = list(numbers)
    check_equal(driver.send([frames.frame(number) for number in numbers]), len(numbers),
                "frames that the device took")
    check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")


def deleted(mode, io):
    "The TAP is deleted under traffic"
    namespace, device = scene(mode, io)
    frames, host = NumberedFrames(1), HostLink(namespace, "vw0")
    with NetDriver(device.socket_path, packed=True) as driver:
        send_all(driver, frames, range(200))
        host.expect(frames, 0, 200, "frames before the deletion", device)
        driver.send([frames.frame(number) for number in range(200, 250)])
        namespace.run("ip", "link", "delete", "vw0")
        send_all(driver, frames, range(250, 500))
        queue = device.statistics()["queues"][1]
        check(queue["drop_port_gone"] >= 250, f"no loss counted: {queue}")
        accounted(device, 500 - queue["drop_port_gone"], drop_port_gone=queue["drop_port_gone"])
        check_equal(device.statistics()["link_up"], False, "link")
        check_quiet(device, mode, "TAP deleted")
    device.close()


def down_and_up(mode, io):
    "The TAP goes down under traffic and comes up again"
    namespace, device = scene(mode, io)
    frames, host = NumberedFrames(2), HostLink(namespace, "vw0")
    with NetDriver(device.socket_path, packed=False) as driver:
        for turn in range(3):
            first = turn * 300
            send_all(driver, frames, range(first, first + 200))
            host.expect(frames, first, 200, f"frames while up, turn {turn}", device)
            namespace.run("ip", "link", "set", "vw0", "down")
            try:
                host.take()
            except OSError:       # ENETDOWN, once
                pass
            send_all(driver, frames, range(first + 200, first + 300))
            accounted(device, (turn + 1) * 200, drop_port_down=(turn + 1) * 100)
            check_quiet(device, mode, "TAP down")
            namespace.run("ip", "link", "set", "vw0", "up")
            wait_for("the link", lambda: device.statistics()["link_up"], alive=device)
        host.send(frames.frame(number) for number in range(50))
        check_equal([received.frame for received in driver.receive(50)],
                    [frames.frame(number) for number in range(50)], "frames to the guest")
    device.close()


def slow_reader(mode, io):
    "A send buffer of 4 KiB in front of a slow reader: no frame is lost, and none is overtaken"
    namespace, device = scene(mode, io, ",sndbuf=4096")
    for command in ("link add slow type bridge", "link set slow up",
                    "link add vs0 type veth peer name vs1", "link set vs0 up", "link set vs1 up",
                    "link set vw0 master slow", "link set vs0 master slow"):
        namespace.run("ip", *command.split())
    namespace.run(*"tc qdisc replace dev vs0 root tbf rate 16mbit burst 2000 limit 1000000".split())
    for name in ("vw0", "vs0"):
        wait_for("the bridge", lambda: "state forwarding" in namespace.run(
            "bridge", "link", "show", "dev", name))
    frames, host = NumberedFrames(3, destination=NOBODY), HostLink(namespace, "vs1")
    before, end, sent = device.sleeps(), time.monotonic() + SLOW_SECONDS, 0
    with NetDriver(device.socket_path, packed=True) as driver:
        while sent < 400 or time.monotonic() < end:
            check_equal(driver.send([frames.frame(sent + i) for i in range(100)]), 100, "sent")
            host.expect(frames, sent, 100, "frames behind the slow queue", device)
            sent += 100
        check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
        accounted(device, sent)
        port = device.statistics()["port"]["queues"][0]
        check(port["transmit_full"] > 0, "the send buffer was never full: nothing is tested")
        # Each try finds no room, or room for a frame at least.
        check(port["transmit_full"] < 4 * sent or mode == "poll", f"tried in vain: {port}")
        woken = device.sleeps() - before
        check(woken < 10 * sent, f"{woken} sleeps for {sent} frames")
        check_quiet(device, mode, "after the slow reader")
    device.close()


def never_refilled(mode, io):
    "A guest that gives no receive buffers back, under a flood"
    namespace, device = scene(mode, io)
    frames, host = NumberedFrames(4), HostLink(namespace, "vw0")
    with NetDriver(device.socket_path, packed=mode != "interrupt", size=64) as driver:
        base = namespace.counter("vw0", "tx_dropped")
        flood = 3000
        host.send(frames.frame(number) for number in range(64))
        wait_for("a ring without buffers", lambda: device.statistics()["queues"][0]["frames"] == 64,
                 alive=device)
        before = device.sleeps()
        host.send(frames.frame(number) for number in range(64, flood))
        woken = device.sleeps() - before
        check(woken < 100 or mode == "poll", f"woken {woken} times by frames that nobody can take")
        check_quiet(device, mode, "no receive buffers")
        queue = device.statistics()["queues"][0]
        check(queue["waits"] < 100, f"waits: {queue}")
        # The cause goes away: what the device and the TAP held comes first, in order.
        lost = namespace.counter("vw0", "tx_dropped") - base
        check(lost > 0, "the TAP's queue was never full: nothing is tested")
        numbers = [frames.number(received.frame) for received in driver.receive(flood - lost)]
        check_equal(len(numbers), flood - lost, "frames that the kernel did not drop")
        check_equal(numbers, sorted(set(numbers)), "frames in order, each once")
        host.send(frames.frame(number) for number in range(flood, flood + 100))
        check_equal([received.frame for received in driver.receive(100)],
                    [frames.frame(number) for number in range(flood, flood + 100)],
                    "frames once there are buffers again")
    device.close()


def stopped_guest(mode, packed):
    "A guest that is stopped in the middle of a burst, and goes on"
    with TwoGuests(f"--mode={mode}", packed=packed) as lab:
        flow = lab.steady
        for _ in range(3):
            flow.goes_on()
            os.kill(flow.process.pid, signal.SIGSTOP)
            check_quiet(lab.device, mode, "the guest is stopped")
            os.kill(flow.process.pid, signal.SIGCONT)
            flow.goes_on()        # and it complains of each frame that is not there


def stopped_under_a_flood(mode, io):
    "A guest that stops half-way through what arrives: held, not lost, and no spin"
    namespace, device = scene(mode, io)
    frames, host = NumberedFrames(5), HostLink(namespace, "vw0")
    with NetDriver(device.socket_path, packed=True, size=64) as driver:
        for turn in range(3):
            first = turn * 300
            host.send(frames.frame(number) for number in range(first, first + 300))
            got = [received.frame for received in driver.receive(100)]
            check_quiet(device, mode, "the guest stopped half-way")
            driver.send([frames.frame(number) for number in range(20)])   # the other way goes on
            check_equal(driver.flush_tx(), 0, "transmit buffers kept while receive waits")
            got += [received.frame for received in driver.receive(200)]
            check_equal(got, [frames.frame(number) for number in range(first, first + 300)],
                        "frames around the stop")
    device.close()


def resources(device):
    """Descriptors, threads, and mappings of guests' memory."""
    guests = sum("memfd:guest" in line for line in device.memory_maps())
    return device.open_descriptors(), len(os.listdir(f"/proc/{device.pid}/task")), guests


def short_life(device, host, number):
    """A guest's life, each of a different kind; its end is abrupt."""
    kind = number % 5
    if kind == 0:
        vu.FrontEnd(device.socket_path).close()
        return
    driver = NetDriver(device.socket_path, packed=bool(number & 1), start=kind != 1,
                       fill=kind != 2)
    frames = NumberedFrames(100 + number)
    if kind >= 2:
        host.send(frames.frame(i) for i in range(32))
        driver.send([frames.frame(i) for i in range(40)])
    if kind == 3:
        check_equal(driver.flush_tx(), 0, "transmit buffers that did not come back")
        check_equal(len(driver.receive(8)), 8, "frames received")
    driver.close()


def hundred_guests(mode, io):
    "A hundred short-lived guests leave nothing behind"
    namespace, device = scene(mode, io)
    host = HostLink(namespace, "vw0")

    def gone():
        return not device.statistics()["connected"]

    start = size = None
    for number in range(40 if BRIEF else 100):
        short_life(device, host, number)
        wait_for("the end of the connection", gone, alive=device)
        host.take()
        if start is None:
            start = resources(device)
        wait_for(f"as much in use as at the start, after guest {number}",
                 lambda: resources(device) == start, alive=device)
        if number == 19:
            size = len(device.memory_maps())
    check(len(device.memory_maps()) <= size + 2, f"mappings: {size}, {len(device.memory_maps())}")
    with NetDriver(device.socket_path, packed=True) as driver:
        frames = NumberedFrames(9)
        send_all(driver, frames, range(100))
        host.expect(frames, 0, 100, "frames of the guest after them", device)
    device.close()


def named(case, *settings):
    return f"{case.__doc__} ({', '.join(map(str, settings))})", lambda: case(*settings)


run_tests(*(named(case, *way) for case in (deleted, down_and_up, slow_reader, never_refilled,
                                           stopped_under_a_flood) for way in WAYS),
          *(named(hundred_guests, *way) for way in (("adaptive", "uring"), ("interrupt", "plain"))),
          *((f"{stopped_guest.__doc__} ({mode}, packed {packed})",
             lambda mode=mode, packed=packed: stopped_guest(mode, packed))
            for mode, packed in (("adaptive", True), ("interrupt", False), ("poll", True))))
