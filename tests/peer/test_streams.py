# SPDX-License-Identifier: BSD-3-Clause
"""TCP streams of virtwire pktgen and of the port source: every byte, both ways, and what a kernel makes of them."""
import json
import subprocess

from harness import (PATIENCE, VIRTWIRE, NetNs, VirtwireDevice, check, check_equal,
                     run_tests, wait_for)
from lab.process import die_with_parent

POLICIES = ("orphan", "urgent", "delayed", "deferred", "scheduled")


def traffic(command, device, *arguments):
    """Runs one of the programs against a device; returns its summary."""
    done = subprocess.run([VIRTWIRE, command, f"--socket-path={device.socket_path}", "--json",
                           *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal(done.returncode, 0, f"virtwire {command} {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def stream_of(device):
    return device.statistics()["port"]["queues"][0]["stream"]


def check_clean(stream, what):
    for name in "lost", "late", "corrupt", "restarts":
        check_equal(stream[name], 0, f"{name}, {what}")


def sent_and_arrived(arguments, *, streams, count=3000, acknowledge=True):
    """Streams into a sink; compares both ends and returns what the sender counted."""
    device = VirtwireDevice(NetNs(), "--features=urgent=on",
                            port="sink,acknowledge=2" if acknowledge else "sink")
    summary = traffic("pktgen", device, f"--streams={streams}", f"--count={count}", "--strict",
                      *(["--acknowledged"] if acknowledge else []), *arguments)
    sent, arrived = summary["stream_sent"], stream_of(device)
    what = f"{streams} streams, {' '.join(arguments)}"
    check_clean(arrived, what)
    check_equal(arrived["streams"], streams, f"streams, {what}")
    check_equal(arrived["segments"], summary["sent"]["frames"], f"segments with SYNs, {what}")
    check_equal(arrived["bytes"], sent["bytes"], f"bytes, {what}")
    check_equal(arrived["pushed"], sent["pushed"], f"segments with PSH, {what}")
    check_equal(sent["urgent"], sent["segments"] - sent["pushed"], f"segments marked urgent, {what}")
    check(sent["acknowledgements"] <= arrived["acknowledged"], f"acknowledgements, {what}")
    check((sent["acknowledgements"] > 0) == acknowledge, f"acknowledgements came, {what}")
    device.stop()
    return sent


def every_byte_to_the_device():
    "Every byte of TCP streams arrives, with each policy, ring format, mode and set of offloads"
    for policy in POLICIES:
        for features in ("packed=on", "packed=off"):
            sent_and_arrived([f"--tx-policy={policy}", f"--features={features}", "--write=700"],
                             streams=4)
    for mode in "poll", "interrupt":
        for policy in POLICIES:
            sent_and_arrived([f"--tx-policy={policy}", f"--mode={mode}", "--write=20000"],
                             streams=3)
    for features in "host_tso4=off", "csum=off,host_tso4=off,host_tso6=off,host_ecn=off,host_uso=off":
        sent_and_arrived([f"--features={features}", "--write=5000"], streams=2)
    sent_and_arrived(["--write=64", "--burst=1"], streams=40)
    sent_and_arrived(["--write=65535", "--ring-size=16"], streams=1, acknowledge=False)


def small_writes_are_joined_where_bytes_stay_visible():
    "A driver that releases frames at once gets one frame a write; one that does not, fewer"
    # Nobody acknowledges, and the ring never fills: only what is with the driver holds a write back.
    options = ["--write=64", "--byte-queue-limits=off", "--ring-size=4096"]
    for policy in POLICIES:
        sent = sent_and_arrived([f"--tx-policy={policy}", *options], streams=1, count=3000,
                                acknowledge=False)
        if policy in ("orphan", "urgent"):  # each write ends its segment, so that none is urgent
            # but perhaps for the first, which waits for the SYN
            check(sent["corked"] <= 1 and sent["segments"] >= sent["writes"] - 1, f"{policy}: {sent}")
        else:
            check(sent["segments"] + sent["corked"] >= sent["writes"] > sent["segments"],
                  f"{policy}: {sent}")


def every_byte_to_the_driver():
    "Every byte of a source's TCP streams arrives, cut or not, and acknowledgements go back"
    for features in ("packed=on", "packed=off", "guest_tso4=off", "guest_csum=off"):
        for write in 64, 16384, 65535:
            if features == "guest_csum=off":  # without it there is no segmentation either
                features += ",guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_uso4=off,guest_uso6=off"
            device = VirtwireDevice(NetNs(), port=f"source,streams=3,write={write},count=2000")
            cut = write > 1460 and "guest_tso4=off" in features
            frames = 2000
            if cut and write == 16384:
                frames *= 12
            elif cut:  # a write is a frame of 44 segments and one of 1295 bytes
                frames = sum((share + 1) // 2 * 44 + share // 2 for share in (667, 667, 666))
            summary = traffic("sink", device, "--acknowledge=2", f"--count={frames}", "--strict",
                              f"--features={features}")
            stream, what = summary["stream"], f"write={write} {features}"
            check_clean(stream, what)
            check_equal(stream["streams"], 3, f"streams, {what}")
            check_equal(stream["segments"], frames, f"segments, {what}")
            check_equal(summary["probe"]["foreign"], 0, f"foreign frames, {what}")
            back = stream_of(device)
            check(0 < back["acknowledgements"] <= stream["acknowledged"], f"{back}, {what}")
            device.stop()


def requests_and_responses():
    "Sessions send a request when the last one is back: one a session under way, with each policy"
    device = VirtwireDevice(NetNs(), "--features=urgent=on", port="loop")
    for policy in POLICIES:
        for size, mode in (256, "adaptive"), (4096, "interrupt"), (65535, "poll"):
            sessions, count = 25, 1500
            summary = traffic("pktgen", device, "--loop", f"--streams={sessions}", f"--write={size}",
                              f"--count={count}", f"--tx-policy={policy}", f"--mode={mode}", "--strict")
            sent, back, what = summary["stream_sent"], summary["stream"], f"{policy} {size} {mode}"
            check_clean(back, what)
            check_equal(summary["sent"]["frames"], count, f"frames, {what}")
            check_equal(back["segments"], count, f"frames that came back, {what}")
            check_equal(back["bytes"], sent["bytes"], f"bytes that came back, {what}")
            # the SYNs are none, and the last request of each session may have been its end
            most = sent["writes"]
            check(most - sessions <= sent["transactions"] <= most, f"transactions, {what}: {sent}")
            check_equal(summary["latency_seconds"]["count"], sent["transactions"], f"latencies, {what}")
            if size == 256:
                check_equal(sent["writes"], count - sessions, f"requests, {what}")


def kernel_counters(namespace):
    lines = namespace.run("cat", "/proc/net/snmp").splitlines()
    return {f"{names.split()[0]}{name}": int(value) for names, values in zip(lines[::2], lines[1::2])
            for name, value in zip(names.split()[1:], values.split()[1:])}


def a_kernel_takes_them_for_tcp():
    "A kernel behind a TAP finds every segment's checksum right, whole or left to it, and answers"
    for features in ("packed=on", "csum=off,host_tso4=off,host_tso6=off,host_ecn=off,host_uso=off"):
        namespace = NetNs()
        device = VirtwireDevice(namespace, port="tap,name=vw0")
        namespace.configure("vw0", "198.18.0.2/24", mac="02:00:00:00:00:02")
        namespace.run("ip", "neigh", "add", "198.18.0.1", "lladdr", "02:00:00:00:00:01", "dev", "vw0")
        before = kernel_counters(namespace)
        summary = traffic("pktgen", device, "--streams=4", "--write=3000", "--count=500",
                          f"--features={features}")
        sent = summary["stream_sent"]

        def arrived(name, before=before, namespace=namespace):
            return kernel_counters(namespace)[name] - before[name]

        wait_for("segments", lambda: arrived("Tcp:InSegs") >= 500)
        check_equal(arrived("Tcp:InErrs"), 0, f"segments with errors, {features}")
        check_equal(arrived("Tcp:InCsumErrors"), 0, f"wrong checksums, {features}")
        check_equal(arrived("Ip:InHdrErrors"), 0, f"wrong IP headers, {features}")
        # Nobody listens there, and so each is answered by a reset.
        check_equal(arrived("Tcp:OutRsts"), 500, f"resets, {features}")
        check_equal(sent["acknowledgements"], 0, "resets are no acknowledgements")
        device.stop()


run_tests(every_byte_to_the_device, small_writes_are_joined_where_bytes_stay_visible,
          every_byte_to_the_driver, requests_and_responses, a_kernel_takes_them_for_tcp)
