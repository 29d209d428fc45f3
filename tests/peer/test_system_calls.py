# SPDX-License-Identifier: BSD-3-Clause
"""The system calls that device and driver say they made, against what strace saw of the same threads."""
import json
import os
import re
from collections import Counter

from harness import (VIRTWIRE, NetNs, Process, VirtwireDevice, check, check_equal, log_folder,
                     run_tests, tap_port, wait_for)

# What a thread does at its start and end, and while the control thread has it stand still.
SET_UP = {"rseq", "set_robust_list", "rt_sigprocmask", "rt_sigaction", "gettid", "getpid", "timer_create",
          "timer_delete", "futex", "madvise", "mmap", "munmap", "mprotect", "brk", "exit", "rt_sigtimedwait", "tgkill",
          "sched_setaffinity"}
FRAMES = 2000
LAST_WRITE = 1  # pktgen's last thread tells the main thread that it has ended


class Traced:
    """strace around a command. Its own process is a grandchild: signals and statuses are the command's."""

    def __init__(self, name):
        self.path = os.path.join(log_folder(), name + ".strace")

    @property
    def prefix(self):
        return ["strace", "-D", "-f", "-o", self.path]

    def thread_calls(self, pid, at_least):
        """The datapath's system calls of all threads but the first, once the trace has caught up."""
        wait_for("the trace", lambda: self._seen(pid).total() >= at_least, patience=10)
        return self._seen(pid)

    def _seen(self, pid):
        calls = Counter()
        with open(self.path) as log:
            for line in log:
                found = re.match(r"(\d+) +(\w+)\(", line)
                if found and int(found[1]) != pid and found[2] not in SET_UP:
                    calls[found[2]] += 1
        return calls


def exchange(what, port, device_options, driver_options, expect, namespace=None):
    """Runs both ends under strace, and compares what each says with what it did."""
    ends = Traced(f"device-{what}"), Traced(f"pktgen-{what}")
    device = VirtwireDevice(namespace, *device_options, port=port, prefix=ends[0].prefix)
    driver = Process(f"pktgen-{what}", [
        *ends[1].prefix, VIRTWIRE, "pktgen", f"--socket-path={device.socket_path}", "--json",
        f"--count={FRAMES}", *driver_options], log_folder(), merge=False)
    check_equal(driver.wait(), 0, f"{what}: pktgen's status: {driver.errors_text()}")
    summary = json.loads(driver.log_text().splitlines()[-1])
    check_equal(summary["sent"]["frames"], FRAMES, f"{what}: frames")
    # The last word of a thread that is about to sleep: it has said it once two looks agree.
    def at_rest():
        first = device.statistics()
        return first if device.statistics()["system_calls"] == first["system_calls"] else None
    statistics = wait_for(f"{what}: a device at rest", at_rest, pause=0.1)
    for name, process, end, said, apart in (("device", device, ends[0], statistics, 0),
                                            ("pktgen", driver, ends[1], summary, LAST_WRITE)):
        calls = end.thread_calls(process.pid, said["system_calls"] + apart)
        check_equal(said["system_calls"] + apart, calls.total(), f"{what}: {name}: {calls}")
        check(said["cpu_seconds"] > 0, f"{what}: {name}: CPU time")
        if name == "device":
            for call in expect:
                check(calls[call] > 0, f"{what}: the device made no {call}: {calls}")
    device.close()
    return statistics, summary


def sleeping():
    "Interrupt mode, frame by frame: kicks, calls, sleeps, timers and naps are all counted"
    statistics, _ = exchange("sleeping", "sink", ["--mode=interrupt"],
                             ["--mode=interrupt", "--rate=2000", "--burst=1"], ["epoll_wait", "write"])
    workers = statistics["workers"]
    check_equal(sum(worker["system_calls"] for worker in workers), statistics["system_calls"], "workers")
    check(statistics["system_calls"] > sum(worker["sleeps"] for worker in workers), "more than sleeps")


def both_ways():
    "Adaptive mode with all frames back"
    exchange("both ways", "loop", [], ["--loop", "--rate=20000"], ["epoll_wait"])


def polling_makes_none():
    "Poll mode on both sides: no kick but those before the device's first look, and nothing else"
    device = VirtwireDevice(None, "--mode=poll", port="sink")
    trace = Traced("polling")
    driver = Process("pktgen-polling", [
        *trace.prefix, VIRTWIRE, "pktgen", f"--socket-path={device.socket_path}", "--json", "--mode=poll",
        "--count=200000"], log_folder(), merge=False)
    check_equal(driver.wait(), 0, driver.errors_text())
    summary = json.loads(driver.log_text().splitlines()[-1])
    calls = trace.thread_calls(driver.pid, LAST_WRITE)
    check_equal(summary["system_calls"] + LAST_WRITE, calls.total(), f"system calls: {calls}")
    check(summary["system_calls"] < 10, f"for 200000 frames: {calls}")
    device.close()


def tap():
    "A TAP's writes are counted, one by one and by the batch"
    for io, call in ("plain", "writev"), ("uring", "io_uring_enter"):
        port = tap_port(io=io)
        if f"io={io}" in port:
            exchange(f"tap {io}", port, [], ["--mode=interrupt"], [call], namespace=NetNs())


def last_frames_of_bursts():
    "pktgen times bursts to their last frame's completion; each report tells those since the one before"
    device = VirtwireDevice(None, port="sink")
    driver = Process("pktgen-timed", [VIRTWIRE, "pktgen", f"--socket-path={device.socket_path}", "--json",
                                      "--count=640", "--burst=32", "--rate=6400"], log_folder())
    check_equal(driver.wait(), 0, "status")
    times = json.loads(driver.log_text().splitlines()[-1])["last_frame_seconds"]
    check(1 <= times["count"] <= 640, f"{times}")
    check(0 < times["median"] <= times["p99"] < 60, f"{times}")
    driver = Process("sink-untimed", [VIRTWIRE, "sink", f"--socket-path={device.socket_path}", "--json",
                                      "--duration=0.1"], log_folder())
    check_equal(driver.wait(), 0, "status")
    check_equal(json.loads(driver.log_text().splitlines()[-1])["last_frame_seconds"], None, "of a sink")
    device.close()


run_tests(sleeping, both_ways, polling_makes_none, tap, last_frames_of_bursts)
