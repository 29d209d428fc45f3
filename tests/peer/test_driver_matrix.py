# SPDX-License-Identifier: BSD-3-Clause
"""
Our driver on our device, in every combination of ring options, receive buffers and transmit
policies, on rings of 64 that stop and go on all the time.
"""
import itertools
import json
import os
import subprocess

from harness import PATIENCE, VIRTWIRE, VirtwireDevice, check, check_equal, run_tests
from lab.process import die_with_parent

BRIEF = bool(os.environ.get("VIRTWIRE_BRIEF"))
POLICIES = ("deferred", "orphan", "urgent", "delayed", "scheduled")
# What receive buffers are made of: without mergeable ones, segments towards us need big ones.
BUFFERS = {"mergeable": "mrg_rxbuf=on", "big": "mrg_rxbuf=off",
           "small": "mrg_rxbuf=off,guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off"}
COUNT = 1000 if BRIEF else 20000


def pktgen(device, *arguments):
    """Runs pktgen in a loop to its end; returns its summary, which has to be clean."""
    command = [VIRTWIRE, "pktgen", f"--socket-path={device.socket_path}", "--loop", "--json",
               "--strict", f"--count={COUNT}", "--ring-size=64", "--burst=256", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal((done.returncode, done.stderr), (0, ""), f"{' '.join(command)}\n{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def check_queue(summary, what):
    """All is back and completed; the queue was stopped, and went on each time but the last."""
    queue, = summary["queues"]
    transmit, receive = queue["transmit"], queue["receive"]
    check_equal((summary["probe"]["frames"], transmit["reaped"]), (COUNT, COUNT), what)
    check(transmit["stops"] > 0, f"the queue was never stopped: {what}")
    check(transmit["stops"] - transmit["wakes"] in (0, 1),
          f"stopped {transmit['stops']} times, went on {transmit['wakes']} times: {what}")
    for name in "drop_short", "drop_header", "drop_buffers":
        check_equal(receive[name], 0, f"{name}, {what}")


def stop_and_wake(packed):
    device = VirtwireDevice(None, "--features=urgent=on", port="loop")
    combinations = itertools.product(("on", "off"), ("on", "off"), ("on", "off"), BUFFERS, POLICIES)
    for number, (in_order, indirect, event_idx, buffers, policy) in enumerate(combinations):
        if BRIEF and number % 7:
            continue
        features = (f"packed={packed},in_order={in_order},indirect_desc={indirect},"
                    f"event_idx={event_idx},{BUFFERS[buffers]}")
        mode = ("interrupt", "adaptive", "poll")[number // 5 % 3]
        what = f"{features}, {buffers}, {policy}, {mode}"
        summary = pktgen(device, f"--features={features}", f"--rx-mode={buffers}",
                         f"--tx-policy={policy}", f"--mode={mode}", "--urgent-every=5",
                         "--size=60-1514")
        check_equal((summary["ring_format"], summary["rx_mode"]),
                    ("packed" if packed == "on" else "split", buffers), what)
        check_queue(summary, what)


def split_rings():
    "Split rings of 64: every option, policy and kind of receive buffers"
    stop_and_wake("off")


def packed_rings():
    "Packed rings of 64: every option, policy and kind of receive buffers"
    stop_and_wake("on")


run_tests(split_rings, packed_rings)
