# SPDX-License-Identifier: BSD-3-Clause
"""
Where the threads of a process stand, as the host's kernel sees them: whether one spins, and what one
that sleeps waits for.
"""
import contextlib
import os
import time


def _family(pid):
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as children:
                    found += map(int, children.read().split())
    return found


def _read_threads(pids):
    """By thread: its name, state, place in the kernel, and processor time in user mode and kernel."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
                folder = f"/proc/{pid}/task/{task}"
                with open(folder + "/stat") as stat, open(folder + "/wchan") as place:
                    name, _, rest = stat.read().partition("(")[2].rpartition(")")
                    fields = rest.split()
                    found[task] = (name, fields[0], place.read(), int(fields[11]), int(fields[12]))
    return found


def describe_threads(pid, seconds=1):
    """A line for each thread of a process and of its descendants, watched for some seconds."""
    pids = _family(pid)
    before = _read_threads(pids)
    time.sleep(seconds)
    lines = []
    for task, (name, state, place, user, system) in _read_threads(pids).items():
        *_, user_before, system_before = before.get(task, (user, system))
        lines.append(f"thread {task} {name}: state {state} in {place}, {user - user_before} user and "
                     f"{system - system_before} system ticks in {seconds} s")
    return lines
