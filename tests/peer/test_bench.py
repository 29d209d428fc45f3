# SPDX-License-Identifier: BSD-3-Clause
"""
`virtwire bench`: its command line, its reports, and each experiment in its quick form. What is
asserted are counts and contents, never times.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

from harness import (VIRTWIRE, NetNs, Process, check, check_equal, log_folder, private_folder,
                     run_tests, wait_for)
from lab.process import die_with_parent

QUICK_SECONDS = 120  # patience with a quick form
SAMPLE_KEYS = {"round", "start", "position", "seconds", "round_trip_seconds", "busy", "steady",
               "faulty", "used", "values"}


def virtwire(*arguments, status=0, environment=None):
    """Runs `virtwire bench` to its end; returns what it printed on both outputs."""
    done = subprocess.run([VIRTWIRE, "bench", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=QUICK_SECONDS,
                          preexec_fn=die_with_parent, env={**os.environ, **(environment or {})})
    check_equal(done.returncode, status, f"status of virtwire bench {' '.join(arguments)}: "
                f"{done.stderr[-1000:]}")
    return done.stdout, done.stderr


def fresh_folder():
    return tempfile.mkdtemp(dir=private_folder())


def quick(experiment, *arguments):
    """The JSON of an experiment's quick form, whose frames all arrived."""
    path = os.path.join(fresh_folder(), "report.json")
    table, _ = virtwire(experiment, "--quick", f"--json={path}", *arguments)
    with open(path) as file:
        report = json.load(file)
    check_equal(report["format"], "virtwire-bench/1", "format of the report")
    (result,) = report["results"]
    check_equal(result["experiment"], experiment, "experiment of the report")
    check(experiment in table, f"no table of {experiment}: {table}")
    check(result["cells"], "there are no cells")
    for cell in result["cells"]:
        check_cell(cell)
    return result


def check_cell(cell):
    """What is true of each cell of each experiment."""
    check_equal(cell["error"], None, f"error of {cell['labels']}")
    check(cell["variants"], f"no variants in {cell['labels']}")
    for variant in cell["variants"]:
        what = f"{variant['name']} of {cell['labels']}"
        check_equal(variant["faults"], None, f"faults of {what}")
        check(len(variant["samples"]) >= 2, f"too few samples of {what}")
        check(variant["summary"], f"nothing was measured of {what}")
        for sample in variant["samples"]:
            check_equal(set(sample), SAMPLE_KEYS, f"keys of a sample of {what}")
            check(sample["seconds"] > 0 and sample["values"], f"an empty sample of {what}")


def values(cell, name, metric):
    """All values of a metric of a cell's variant."""
    (variant,) = [variant for variant in cell["variants"] if variant["name"] == name]
    return [sample["values"][metric] for sample in variant["samples"]]


def bad_usage():
    "Bad options end with status 2 and one message that names what is wrong"
    folder = fresh_folder()
    bad = {
        "no-such": ["no-such"], "--nonsense": ["tx-completion", "--nonsense"],
        "name an experiment": [], "twice": ["tx-completion", "tx-completion"],
        "--rounds=1": ["tx-completion", "--rounds=1"], "--seconds=0": ["tx-completion", "--seconds=0"],
        "--cores=0": ["tx-completion", "--cores=0"], "--cores=0,0": ["tx-completion", "--cores=0,0"],
        "--cores=0,4000": ["tx-completion", "--cores=0,4000"],
        "--quick or --rounds": ["tx-completion", "--quick", "--rounds=5"],
        "given twice": ["tx-completion", "--quick", "--quick"],
        "/nowhere/": ["tx-completion", "--quick", f"--json={folder}/nowhere/x.json"],
    }
    for part, arguments in bad.items():
        out, err = virtwire(*arguments, status=2)
        check(part in err and not out, f"{arguments} says: {err}")
    check_equal(os.listdir(folder), [], "files that were left behind")


def listing_and_help():
    "--list and --help tell each experiment and option"
    names = [line.split()[0] for line in virtwire("--list")[0].splitlines()]
    check("tx-completion" in names, f"--list: {names}")
    text, err = virtwire("--help")
    check_equal(err, "", "standard error of --help")
    check("--json" in text and "--cores" in text, f"--help: {text}")
    check(max(map(len, text.splitlines())) <= 100, "a line of the help is too long")


def children(process):
    """Processes that this one started."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        return [int(word) for word in file.read().split()]


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def interrupted():
    "Ctrl-C: what there is is reported, status 1, no process and no file is left behind"
    folder = fresh_folder()
    path = os.path.join(folder, "interrupted.json")
    bench = subprocess.Popen([VIRTWIRE, "bench", "tx-completion", "--rounds=500", "--seconds=0.1",
                              "--only=split", f"--json={path}"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=die_with_parent, env={**os.environ, "TMPDIR": folder})
    try:
        started = wait_for("the processes of the first cell",
                           lambda: len(children(bench)) >= 8 and children(bench))
        time.sleep(1)
        check(not os.path.exists(path), "the report is there before it is whole")
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=30)
    finally:
        bench.kill()
    check_equal(bench.returncode, 1, f"status after Ctrl-C: {err}")
    for pid in started:
        check(is_gone(pid), f"process {pid} was left behind")
    with open(path) as file:
        report = json.load(file)
    check_equal(report["interrupted"], True, "the report's word of it")
    check_equal(report["results"][0]["cells"][0]["outcome"], "interrupted", "the cell's outcome")
    check("interrupted" in out, f"the table does not tell: {out}")
    check_equal(os.listdir(folder), ["interrupted.json"], "files that were left behind")


def no_folder():
    "Without a place for its files it says so, and ends with status 1"
    path = os.path.join(fresh_folder(), "report.json")
    _, err = virtwire("tx-completion", "--quick", f"--json={path}", status=1,
                      environment={"TMPDIR": "/nowhere"})
    check("/nowhere" in err, f"it says: {err}")
    check_equal(os.path.exists(path), False, "a report of nothing")


def no_cell():
    "--only that fits no cell says so, and ends with status 1"
    _, err = virtwire("tx-completion", "--quick", "--only=square", status=1)
    check("no cell with 'square'" in err, f"it says: {err}")


def tx_completion():
    "tx-completion: orphan has the device call less often than delayed; a stream's frames are large"
    *handled, stream = quick("tx-completion")["cells"]
    for cell in handled:
        check(min(values(cell, "orphan", "calls_per_frame")) <
              max(values(cell, "delayed", "calls_per_frame")), f"calls of {cell['labels']}")
    for variant in stream["variants"]:
        check(min(values(stream, variant["name"], "bytes_per_frame")) > 10000, "segments of 64 KiB")


def tap_napi():
    "tap-napi: whole streams arrive; only coalesce has the receiver's stack see several frames as one"
    cell, bulk = quick("tap-napi")["cells"]
    check_equal(cell["labels"], {"streams": "12", "write": "4096", "frames": "1514 bytes"}, "cell")
    for variant in cell["variants"]:
        check(min(values(cell, variant["name"], "bytes_per_second")) > 0, "no bytes")
        commands = variant["commands"]
        check("bridge" in commands and "stream-send" in commands, f"commands: {commands}")
    for name in "plain forwarding", "device":
        check(min(values(bulk, name, "bytes_per_second")) > 0, f"no bytes: {name}")
    check(min(values(bulk, "device", "bytes_per_frame")) > 2000, "no large frames")
    check(max(values(cell, "neither", "frames_per_segment")) < 1.5, "merged by nobody")
    check(max(values(cell, "coalesce", "frames_per_segment")) > 3, "not merged")


def tx_batch():
    "tx-batch: frames are fetched singly with batch=1, and many at once with 64"
    (cell,) = quick("tx-batch")["cells"]
    check_equal(cell["labels"], {"port": "tap", "ring": "packed"}, "cell")
    for mean in values(cell, "1", "frames_per_batch"):  # counters that are read one by one
        check_equal(round(mean, 2), 1, "frames a batch, batch=1")
    many = values(cell, "64", "frames_per_batch")
    check(4 < min(many) and round(max(many) / 64, 2) <= 1, f"frames a batch, batch=64: {many}")


def streams_compare_every_byte():
    "The bench's streams: what was sent is counted, and a byte that is wrong is found"
    namespace = NetNs()
    with namespace.entered():
        receivers = [Process(f"stream-receive{i}", [
            VIRTWIRE, "bench", "stream-receive", "127.0.0.1", str(5001 + i), "1"],
            log_folder(), merge=False) for i in range(2)]
        for receiver in receivers:
            wait_for("the receiver", lambda: "listening" in receiver.errors_text(), alive=receiver)
        sender = Process("stream-send", [VIRTWIRE, "bench", "stream-send", "127.0.0.1", "5001", "1",
                                         "1000"], log_folder(), merge=False)

    def counters(process):
        seen = len(process.log_text().splitlines())
        process.signal(signal.SIGUSR1)
        wait_for("counters", lambda: process.log_text().count("\n") > seen, alive=process)
        return json.loads(process.log_text().splitlines()[-1])

    for process in receivers[0], sender:
        wait_for("the stream", lambda: "streaming" in process.errors_text(), alive=process)
    wait_for("100 MB", lambda: counters(receivers[0])["bytes"] > 10**8)
    sender.signal(signal.SIGTERM)
    check_equal(sender.wait(), 0, "the sender's status")
    check_equal(counters(receivers[0])["corrupt"], 0, "wrong bytes of a right stream")
    with namespace.socket() as connection:
        connection.connect(("127.0.0.1", 5002))
        wait_for("the stream", lambda: "streaming" in receivers[1].errors_text())
        connection.sendall(bytes(100))
        wait_for("100 bytes", lambda: counters(receivers[1])["bytes"] == 100)
    check(counters(receivers[1])["corrupt"] >= 1, "zeros are not the pattern")
    for receiver in receivers:
        receiver.signal(signal.SIGTERM)
        check_equal(receiver.wait(), 0, "the receiver's status")
    namespace.close()


def helpers_without_arguments():
    "The bench's own helpers refuse wrong arguments with status 2"
    for arguments in (["stream-send"], ["stream-send", "127.0.0.1", "5001", "1", "0"],
                      ["stream-send", "127.0.0.1", "5001", "1", "65537"],
                      ["stream-receive", "x", "5001", "1"],
                      ["stream-receive", "127.0.0.1", "0", "1"],
                      ["stream-receive", "127.0.0.1", "70000", "1"],
                      ["stream-receive", "127.0.0.1", "5001", "257"],
                      ["xdp-drop"], ["xdp-drop", "no-such"]):
        virtwire(*arguments, status=2)


def tx_interrupt():
    "tx-interrupt: bulk data asks for calls under urgent alone; frames as long as their writes elsewhere"
    cells = {tuple(cell["labels"].values()): cell for cell in quick("tx-interrupt")["cells"]}
    for bytes_, sessions in ("64", "1"), ("1024", "8"):
        cell, what = cells["transmit", bytes_, sessions], f"writes of {bytes_}, {sessions} sessions"
        calls = {name: values(cell, name, "calls_per_frame") for name in ("orphan", "urgent", "deferred")}
        check(max(calls["orphan"] + calls["deferred"]) < min(calls["urgent"]),
              f"calls a frame, {what}: {calls}")
    for name in "orphan", "urgent", "deferred":
        check_equal({round(size) for size in values(cells["receive", "16384", "4"], name,
                                                    "bytes_per_frame")}, {16384}, f"received, {name}")
        check_equal({round(size) for size in values(cells["requests", "256", "25"], name,
                                                    "bytes_per_frame")}, {256}, f"requests, {name}")
        check(min(values(cells["requests", "256", "25"], name, "transactions_per_second")) > 0,
              f"transactions, {name}")


def rx_big():
    "rx-big: at MTU 9000 on a ring of 256, 5 descriptors a buffer instead of 19, 51 buffers, not 13"
    cells = {cell["labels"]["features"]: cell for cell in quick("rx-big")["cells"]}
    for features, name, descriptors, buffers, kib in (
            ("plain", "maximum", 19, 13, 72), ("plain", "mtu", 5, 51, 16),
            ("plain", "mergeable", 1, 256, 4), ("indirect, packed", "maximum", 1, 256, 72),
            ("indirect, packed", "mtu", 1, 256, 16)):
        cell, what = cells[features], f"{features}, {name}"
        check_equal((cell["labels"]["MTU"], cell["labels"]["ring"]), ("9000", "256"), "the cell")
        check_equal(set(values(cell, name, "descriptors_per_buffer")), {descriptors}, what)
        check_equal(set(values(cell, name, "buffers_in_ring")), {buffers}, what)
        for size in values(cell, name, "bytes_per_buffer"):
            check_equal(-(-size // 1024), kib, f"KiB a buffer, {what}")
        check_equal({round(size) for size in values(cell, name, "bytes_per_frame")}, {9014}, what)


def peers():
    "peers: every pair carries frames and loses none; hardly a kick or call, since all poll"
    names = ["dpdk-dpdk", "virtwire-virtwire", "virtwire-dpdk", "dpdk-virtwire"]
    cells = quick("peers")["cells"]
    check_equal({cell["labels"]["direction"] for cell in cells}, {"to_device", "to_driver", "loop"},
                "directions")
    for cell in cells:
        check_equal([variant["name"] for variant in cell["variants"]], names, "pairs")
        for variant in cell["variants"]:
            driver, _, device = variant["name"].partition("-")
            what = f"{variant['name']} of {cell['labels']}"
            commands = variant["commands"]
            check_equal(len(re.findall("dpdk-testpmd", commands)),
                        (driver == "dpdk") + (device == "dpdk"), f"testpmd in the commands of {what}")
            size = int(cell["labels"]["bytes"])
            for sample in (sample["values"] for sample in variant["samples"]):
                check(sample["frames_per_second"] > 0, f"no frames, {what}")
                check(sample["bare_limit_per_second"] > 0, f"no bare limit, {what}")
                check_equal(sample["lost_share"], 0, f"lost, {what}")
                check_equal(round(sample["bytes_per_second"] / sample["frames_per_second"]), size,
                            f"bytes a frame, {what}")
                if driver == "virtwire":
                    check(sample["kicks_per_frame"] < 0.01, f"kicks, {what}")
                if device == "virtwire":
                    check(sample["calls_per_frame"] < 0.01, f"calls, {what}")


def without_testpmd():
    "Without testpmd peers says which package has it, and ends with status 1"
    _, err = virtwire("peers", "--quick", status=1, environment={"PATH": fresh_folder()})
    check("dpdk-testpmd" in err and "dpdk-dev" in err, f"it says: {err}")


def policy_grid():
    "policy-grid: values beside the default, and a verdict on each option"
    result = quick("policy-grid")
    verdicts = result["conclusion"].splitlines()
    options = [cell["labels"]["option"] for cell in result["cells"]]
    check_equal([line.partition(":")[0] for line in verdicts], options, "verdicts")
    for cell, verdict in zip(result["cells"], verdicts):
        default = cell["variants"][0]["name"]
        # On a busy machine a slice may not be steady, and what is left tells too little.
        if all(sum(sample["used"] for sample in variant["samples"]) >= 2
               for variant in cell["variants"]):
            check(f"the default, {default}, is at worst" in verdict, verdict)
        for variant in cell["variants"]:
            for sample in variant["samples"]:
                check_equal(sample["values"]["work_per_second"],
                            sample["values"]["frames_per_second"], "work of a workload of frames")


run_tests(bad_usage, listing_and_help, no_folder, no_cell, interrupted, tx_completion, tap_napi,
          tx_batch, streams_compare_every_byte, helpers_without_arguments, tx_interrupt, rx_big, peers,
          without_testpmd, policy_grid)
