#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
The demonstration: a guest's network card served by virtwire, and what it counted.

Makes a network namespace, starts `virtwire device` in it with a TAP, boots a User-mode Linux guest
on its socket, lets guest and host ping each other and sends files both ways over TCP. All of it
happens inside namespaces that vanish with this program, however it ends (see tests/peer/lab/box.py).
"""
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests", "peer"))
os.environ.setdefault("VIRTWIRE_BUILD", os.path.join(ROOT, "build"))

from lab import report  # noqa: E402
from lab.box import NetNs, enter_box  # noqa: E402
from lab.device import VirtwireDevice  # noqa: E402
from lab.guest import UmlGuest  # noqa: E402
from lab.images import uml_initramfs  # noqa: E402
from lab.process import RESOURCES, Failure  # noqa: E402
from lab.traffic import GUEST, HOST, Wire  # noqa: E402

MEGABYTES = int(os.environ.get("DEMO_MEGABYTES", "32"))
TAP = "vw0"


def step(text):
    print(f"[{time.monotonic() - step.start:5.1f} s] {text}", flush=True)


step.start = time.monotonic()


def number(value):
    return f"{value:,}".replace(",", " ")


def report_direction(title, queue):
    frames = queue["frames"] or 1
    print(f"  {title}")
    print(f"    frames   {number(queue['frames']):>14}    of them larger than the MTU (TSO) "
          f"{number(queue['gso_frames'])}")
    print(f"    bytes    {number(queue['bytes']):>14}    {queue['bytes'] / frames:.0f} a frame")
    print(f"    kicks    {number(queue['kicks']):>14}    {queue['kicks'] / frames:.3f} a frame")
    print(f"    calls    {number(queue['calls']):>14}    {queue['calls'] / frames:.3f} a frame")
    print(f"    batches  {number(queue['batches']):>14}    "
          f"{frames / (queue['batches'] or 1):.1f} frames each")
    drops = {name[len("drop_"):]: value for name, value in queue.items()
             if name.startswith("drop_") and value}
    print("    dropped  " + (", ".join(f"{number(value)} ({name})" for name, value in drops.items())
                             if drops else f"{0:>14}"))


def wrapped(words, indent="    ", width=88):
    line = indent
    for word in words:
        if len(line) + len(word) > width:
            print(line.rstrip())
            line = indent
        line += word + " "
    print(line.rstrip())


def print_report(statistics):
    queues = {queue["role"]: queue for queue in statistics["queues"]}
    print(f"\nWhat the device counted ({statistics['port']['description']}, "
          f"{statistics['ring_format']} ring of {queues['transmit']['size']} entries)\n")
    print("  features negotiated")
    wrapped(statistics["features"])
    print()
    report_direction("guest to host", queues["transmit"])
    print()
    report_direction("host to guest", queues["receive"])
    print()


def demonstrate():
    namespace = NetNs()
    device = VirtwireDevice(namespace, port=f"tap,name={TAP}")
    step(f"virtwire device serves a vhost-user socket and the TAP {TAP}, in a namespace of its own")
    guest = UmlGuest(device.socket_path)
    step("a User-mode Linux guest has booted: " + guest.shell("uname -sr"))
    wire = Wire(namespace, guest, tap=TAP)
    wire.wait_reachable()
    wire.ping_from_host(count=5)
    step(f"host {HOST} pings guest {GUEST}: 5 of 5 came back")
    wire.ping_from_guest(count=5)
    step(f"guest {GUEST} pings host {HOST}: 5 of 5 came back")
    for title, transfer in (("host to guest", wire.tcp_to_guest),
                            ("guest to host", wire.tcp_from_guest)):
        seconds = transfer(MEGABYTES << 20)
        step(f"TCP {title}: {MEGABYTES} MiB in {seconds:.1f} s, same SHA-256 at both ends")
    statistics = device.statistics()
    complaints = guest.bad_news()
    if complaints:
        raise Failure("the guest's kernel complains:\n" + "\n".join(complaints))
    guest.power_off()
    device.close()
    step("the guest has powered off, and the device has ended with status 0")
    print_report(statistics)


def main():
    print("A guest on virtwire: pings and TCP both ways, every byte compared.\n"
          "Takes about half a minute.\n", flush=True)
    try:
        uml_initramfs()  # the cached image belongs to the build tree, not into the box
        report.Place.folder = report.Place.logs = enter_box(
            keep_visible=[report.BUILD, report.CACHE, report.VIRTWIRE])
        demonstrate()
        print("Nothing stays behind: namespace, TAP, processes, socket and files went together.")
        status = 0
    except Failure as problem:
        print(f"\nThe demonstration failed: {problem}", file=sys.stderr)
        status = 1
    except SystemExit as ending:  # a signal
        print("\nInterrupted; nothing stays behind.", file=sys.stderr)
        status = ending.code
    for problem in RESOURCES.close_all():
        print(f"while tidying up: {problem}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
