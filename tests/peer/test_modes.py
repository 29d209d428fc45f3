# SPDX-License-Identifier: BSD-3-Clause
"""What a worker does when there is nothing to do, how many workers there are, and where they run."""
import json
import os
import subprocess

from harness import (PATIENCE, VIRTWIRE, UmlGuest, VirtwireDevice, check, check_equal, run_tests,
                     wait_for)
from lab.process import die_with_parent
from lab.scenario import Scene, features_off

MODES = ("adaptive", "interrupt", "poll")


def guest_case(mode, ring_format):
    def case():
        scene = Scene(UmlGuest, f"--mode={mode}",
                      *features_off(*([] if ring_format == "packed" else ["packed"])))
        scene.wire.ping()
        scene.wire.udp_echo()
        scene.wire.tcp_to_guest(1 << 20)
        scene.wire.tcp_from_guest(1 << 20)
        statistics = scene.device.statistics()
        check_equal(statistics["ring_format"], ring_format, "ring format")
        worker, = statistics["workers"]
        check_equal((worker["sleeps"] > 0, worker["spins_found"] + worker["spins_vain"] > 0),
                    (mode != "poll", mode == "adaptive"), f"slept, spun in mode {mode}: {worker}")
        if mode == "poll":
            # Kicks are asked for by a ring that was just set up or is disabled, by no other.
            check(statistics["queues"][1]["kicks"] < 20, f"kicks: {statistics['queues'][1]}")
        check_equal(scene.guest.bad_news(), [], "the guest's kernel complains")
        scene.finish()
    return f"a guest, {mode}, {ring_format}", case


def pktgen(device, *arguments):
    done = subprocess.run([VIRTWIRE, "pktgen", f"--socket-path={device.socket_path}", "--json",
                           "--strict", *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal(done.returncode, 0, f"pktgen {arguments}: {done.stderr}\n{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def workers_of(device):
    """The status of each worker thread, by its name."""
    found = {}
    for task in os.listdir(f"/proc/{device.pid}/task"):
        with open(f"/proc/{device.pid}/task/{task}/status") as status:
            fields = dict(line.split(":", 1) for line in status.read().splitlines())
        if (name := fields["Name"].strip()).startswith("vw-worker-"):
            found[name] = {**fields, "task": int(task)}
    return found


def shared_workers():
    "Four queue pairs are served by one, three or four workers, in each mode, and none starves"
    for mode in MODES:
        for workers in (1, 3, None):
            device = VirtwireDevice(None, f"--mode={mode}",
                                    *([f"--workers={workers}"] if workers else []),
                                    port="loop,queues=4")
            check_equal(len(workers_of(device)), workers or 4, "worker threads")
            summary = pktgen(device, "--loop", "--queue-pairs=4", "--count=4000", "--flows=4",
                             "--ring-size=64")
            check_equal([queue["receive"]["frames"] for queue in summary["queues"]], [1000] * 4,
                        f"frames of each queue, {workers} workers, {mode}")
            check_equal(len(device.statistics()["workers"]), workers or 4, "workers in the report")
            device.close()


def shared_worker_sleeps():
    "A worker of four idle queue pairs sleeps, and each of them wakes it"
    device = VirtwireDevice(None, "--workers=1", port="loop,queues=4")
    for _ in range(3):
        pktgen(device, "--loop", "--queue-pairs=4", "--count=40", "--flows=4", "--rate=400")
    worker, = device.statistics()["workers"]
    check(worker["sleeps"] > 12, f"the worker hardly slept: {worker}")


def pinned():
    "--cpus puts the workers on these processors, in turn"
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[-2:]
    device = VirtwireDevice(None, f"--cpus={','.join(map(str, chosen))}", port="loop,queues=4")
    for name, worker in workers_of(device).items():
        number = int(name.rpartition("-")[2])
        check_equal(worker["Cpus_allowed_list"].strip(), str(chosen[number % len(chosen)]), name)
    pktgen(device, "--loop", "--queue-pairs=4", "--count=400", "--flows=4")


def real_time():
    "--realtime gives the workers that priority, and no other thread"
    device = VirtwireDevice(None, "--realtime=7", port="loop,queues=2")
    tasks = [worker["task"] for worker in workers_of(device).values()]
    check_equal([(os.sched_getscheduler(task), os.sched_getparam(task).sched_priority)
                 for task in tasks], [(os.SCHED_FIFO, 7)] * 2, "policy and priority")
    check_equal(os.sched_getscheduler(device.pid), os.SCHED_OTHER, "policy of the main thread")
    pktgen(device, "--loop", "--queue-pairs=2", "--count=400", "--flows=2")


def real_time_not_allowed():
    "Without the right to a real-time priority: status 1, and a message that says what is needed"
    done = subprocess.run(["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice",
                           "prlimit", "--rtprio=0", VIRTWIRE, "device", "--realtime=7",
                           "--socket-path=/nowhere/at/all.sock", "--port=null"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal((done.returncode, done.stdout), (1, ""), done.stderr)
    check("CAP_SYS_NICE" in done.stderr and "7" in done.stderr, f"message: {done.stderr!r}")


def too_many_workers():
    "More workers than queue pairs are refused with status 2"
    done = subprocess.run([VIRTWIRE, "device", "--workers=3", "--port=null,queues=2",
                           "--socket-path=/nowhere/at/all.sock"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    check_equal((done.returncode, done.stdout), (2, ""), done.stderr)
    check("--workers=3" in done.stderr and "2" in done.stderr, f"message: {done.stderr!r}")


run_tests(*(guest_case(mode, ring_format) for mode in MODES for ring_format in ("packed", "split")),
          shared_workers, shared_worker_sleeps, pinned, real_time, real_time_not_allowed,
          too_many_workers)
