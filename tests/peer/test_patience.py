# SPDX-License-Identifier: BSD-3-Clause
"""
The tests' own patience: it outlasts a machine that was halted, it has an end all the same, and a
guest for which it ended says where it stands.
"""
from unittest import mock

from harness import *
from lab.process import Countdown, Deadline

SECONDS = 60  # of patience


class Clock:
    """A clock of its own, which only sleep() and halt() move."""

    def __init__(self):
        self.now = 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    halt = sleep


def looks_until(wanted, halted_at=()):
    """How many looks a wait takes for what is there with look number `wanted`."""
    clock, looks = Clock(), 0

    def look():
        nonlocal looks
        looks += 1
        if looks in halted_at:
            clock.halt(10 * SECONDS)
        return looks == wanted

    with mock.patch("lab.process.time", clock):
        wait_for("the look that is wanted", look, SECONDS, pause=1)
    return looks


def halted():
    "A wait goes on after a machine was halted for longer than it would have lasted"
    check_equal(looks_until(30, halted_at=(1, 10, 20)), 30, "looks")


def ends():
    "A wait for what never comes ends, with halts and without"
    for halts in ((), (1, 10, 20)):
        try:
            looks_until(2 * SECONDS, halted_at=halts)
        except Deadline as problem:
            check("gave up waiting" in str(problem), f"the Deadline says {problem}")
        else:
            raise Failure("it waited for longer than its patience")


def standing_guest():
    "A guest that does not answer tells what its processors and programs do"
    device = VirtwireDevice(NetNs())
    guest = QemuGuest(device.socket_path, cpus=2)
    try:
        guest.shell("sleep 1000", patience=Countdown.LONGEST_STEP)
    except Failure as problem:
        text = str(problem)
    else:
        raise Failure("the guest slept for 1000 s")
    for sign in ("a newline on its console did not wake it", "VM status: running", "CPU#1",
                 "redir", "Kernel panic - not syncing: NMI", "task:sleep", "do_nanosleep",
                 '"role": "receive"'):
        check(sign in text, f"no {sign!r} in what is told of a guest:\n{text}")


run_tests(halted, ends, standing_guest)
