# SPDX-License-Identifier: BSD-3-Clause
"""virtwire pktgen, sink and echo against virtwire device: their command lines, and every frame."""
import json
import os
import signal
import socket
import subprocess

from harness import (PATIENCE, VIRTWIRE, Process, VirtwireDevice, check, check_equal, log_folder,
                     private_folder, run_tests, wait_for)
from lab.process import die_with_parent

COMMON = ("--socket-path", "--fd", "--in-process", "--listen", "--no-reconnect", "--queue-pairs", "--ring-size",
          "--features", "--rx-mode", "--rx-big", "--tx-policy", "--byte-queue-limits", "--mtu", "--mode",
          "--spin-us", "--burst", "--duration", "--stats-interval", "--json", "--strict",
          "--verbose", "--help")
OWN = {
    "pktgen": ("--rate", "--size", "--flows", "--count", "--loop", "--urgent-every",
               "--completion-cpu", "--source-mac", "--destination-mac", "--source-ip",
               "--destination-ip", "--streams", "--write", "--acknowledged", "--think-us"),
    "sink": ("--count", "--acknowledge",),
    "echo": (),
}
MODES = ("poll", "adaptive", "interrupt")


def virtwire(*arguments):
    """Runs the program to its end: (status, standard output, standard error)."""
    done = subprocess.run([VIRTWIRE, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE, preexec_fn=die_with_parent)
    return done.returncode, done.stdout, done.stderr


def traffic(command, device, *arguments):
    """Runs one of the programs against a device; returns its summary."""
    status, out, err = virtwire(command, f"--socket-path={device.socket_path}", "--json",
                                *arguments)
    check_equal(status, 0, f"virtwire {command} {' '.join(arguments)}: {err}\n{out}")
    return json.loads(out.splitlines()[-1])


class Running(Process):
    """One of the programs in the background, with JSON; to be ended by a signal."""

    def __init__(self, command, device, *arguments):
        super().__init__(f"{command}-{device.name}", [
            VIRTWIRE, command, f"--socket-path={device.socket_path}", "--json",
            "--stats-interval=1", *arguments], log_folder(), merge=False)
        # a line of rates: it is up, and takes signals for what they mean
        wait_for(f"rates of {command}", lambda: '"rates"' in self.log_text(), alive=self)

    def documents(self, kind):
        lines = [json.loads(line) for line in self.log_text().splitlines(keepends=True)
                 if line.endswith("\n")]
        return [document for document in lines if document["type"] == kind]

    def finish(self, number=signal.SIGINT):
        self.signal(number)
        return self.wait()


def probe_of(device):
    return [queue["probe"] for queue in device.statistics()["port"]["queues"]]


def check_clean(probe, what):
    for name in ("lost", "reordered", "duplicate", "stale", "corrupt", "foreign", "restarts"):
        check_equal(probe[name], 0, f"{name}, {what}")


def help_texts():
    "--help tells every option of each program, with examples"
    for command, own in OWN.items():
        status, out, err = virtwire(command, "--help")
        check_equal((status, err), (0, ""), f"virtwire {command} --help")
        for option in COMMON + own:
            check(option in out, f"virtwire {command} --help does not tell {option}")
        check("examples" in out and f"virtwire {command}" in out, f"no example for {command}")
        check(max(map(len, out.splitlines())) <= 100, "a line of the help is too long")


def bad_usage():
    "Bad options end with status 2 and one message that names what is wrong"
    path = "--socket-path=" + os.path.join(private_folder(), "none.sock")
    for command, own in OWN.items():
        bad = [["--nonsense"], ["surplus"], ["--queue-pairs=0"], ["--queue-pairs=128"],
               ["--ring-size=0"], ["--ring-size=65536"], ["--ring-size=3x"], ["--rx-mode=huge"],
               ["--rx-big=huge"],
               ["--tx-policy=never"], ["--byte-queue-limits=maybe"], ["--mtu=67"],
               ["--mode=sleepy"], ["--mode=events"], ["--spin-us=-1"], ["--burst=0"], ["--burst=257"],
               ["--duration=0"], ["--duration=-1"], ["--duration=nan"], ["--duration=inf"],
               ["--duration=0x10"], ["--duration=1kk"], ["--duration="], ["--stats-interval=x"],
               ["--fd=3"]]
        if command == "pktgen":
            bad += [["--port=null"], ["--rate=0"], ["--rate=fast"], ["--size=59"], ["--size=65550"],
                    ["--size=64,"], ["--size=70-60"], ["--size="], ["--flows=0"],
                    ["--flows=1", "--queue-pairs=2"], ["--count=0"], ["--urgent-every=0"],
                    ["--completion-cpu=x"], ["--completion-cpu=0", "--loop"],
                    ["--completion-cpu=0", "--mode=poll"],
                    ["--source-mac=1"], ["--destination-mac=01:00:5e:00:00:01"],
                    ["--source-ip=1.2.3"], ["--destination-ip=x"], ["--streams=0"], ["--streams=1025"],
                    ["--write=64"], ["--acknowledged"], ["--write=0", "--streams=1"],
                    ["--streams=1", "--size=64"], ["--streams=1", "--rate=1k"],
                    ["--streams=1", "--flows=2"], ["--think-us=5"], ["--think-us=5", "--streams=1"],
                    ["--loop", "--streams=1", "--acknowledged"],
                    ["--streams=1", "--completion-cpu=0"]]
        if command == "sink":
            bad += [["--acknowledge=0"], ["--acknowledge=1001"]]
        for option in OWN["pktgen"]:
            if option not in own:  # another program's option
                bad.append([f"{option}=1" if option not in ("--loop", "--acknowledged") else option])
        for arguments in bad:
            status, out, err = virtwire(command, path, *arguments)
            check_equal((status, out), (2, ""), f"virtwire {command} {arguments}: {err}")
            check(arguments[0].split("=")[0] in err or "--fd" in arguments[0],
                  f"the message does not name {arguments[0]}: {err!r}")
            check(len(err.splitlines()) <= 3, f"a long message for a small mistake: {err!r}")
        for arguments in [], ["--listen"], [path, "--duration"]:
            status, out, err = virtwire(command, *arguments)
            check_equal((status, out), (2, ""), f"virtwire {command} {arguments}: {err}")
        for arguments in ([path, "--in-process=loop"], ["--in-process=loop", "--listen"],
                          ["--in-process=carrier-pigeon"], ["--in-process="],
                          ["--in-process=loop,queues=3"]):
            status, out, err = virtwire(command, *arguments)
            check_equal((status, out), (2, ""), f"virtwire {command} {arguments}: {err}")
            check("in-process" in err or "--listen" in arguments, f"message: {err!r}")
        status, out, err = virtwire(command, path, "--features=teleport=off")
        check(status == 2 and "teleport" in err, f"unknown feature: {status}, {err!r}")


def no_device():
    "Without a back-end: status 1 and one line that says so"
    path = os.path.join(private_folder(), "nobody.sock")
    for command in OWN:
        status, out, err = virtwire(command, f"--socket-path={path}")
        check_equal((status, out), (1, ""), f"virtwire {command}: {err}")
        check(path in err and len(err.splitlines()) == 1, f"message: {err!r}")


def to_device():
    "pktgen into a sink: all frames, none twice, in every combination"
    for packed in "on", "off":
        for mode in MODES:
            for device_mode in MODES:
                device = VirtwireDevice(None, f"--mode={device_mode}", port="sink")
                what = f"packed={packed}, {mode}, device {device_mode}"
                summary = traffic("pktgen", device, "--count=20000", "--size=60-1514",
                                  f"--mode={mode}", f"--features=packed={packed}")
                check_equal(summary["ring_format"], "packed" if packed == "on" else "split", what)
                check_equal(summary["sent"]["frames"], 20000, what)
                probe, = probe_of(device)
                check_equal((probe["frames"], probe["before"]), (20000, 0), what)
                check_equal(probe["bytes"], summary["sent"]["bytes"], what)
                check_clean(probe, what)
                device.close()


def completions_by_a_thread_of_their_own():
    "pktgen --completion-cpu: another thread takes the frames back, all of them, with each policy"
    for packed in "on", "off":
        for policy in "deferred", "orphan", "delayed", "scheduled":
            for cpu in sorted(os.sched_getaffinity(0))[:2]:
                device = VirtwireDevice(None, "--mode=poll", port="sink")
                what = f"packed={packed}, {policy}, CPU {cpu}"
                summary = traffic("pktgen", device, "--count=20000", "--burst=256",
                                  f"--completion-cpu={cpu}", f"--tx-policy={policy}",
                                  f"--features=packed={packed}")
                check_equal(summary["sent"]["frames"], 20000, what)
                check_equal(summary["queues"][0]["transmit"]["reaped"], 20000, f"reaped, {what}")
                probe, = probe_of(device)
                check_equal(probe["frames"], 20000, what)
                check_clean(probe, what)
                device.close()
    device = VirtwireDevice(None, port="sink")
    status, _, err = virtwire("pktgen", f"--socket-path={device.socket_path}", "--count=1",
                              "--completion-cpu=1000")
    check(status == 1 and "--completion-cpu" in err, f"a CPU that is not there: {status}, {err!r}")


def to_driver():
    "A source into sink: all frames, none twice, in every combination"
    for packed in "on", "off":
        for mergeable in "on", "off":
            for mode in MODES:
                device = VirtwireDevice(None, port="source,count=20000,size=60-1514")
                what = f"packed={packed}, mergeable={mergeable}, {mode}"
                summary = traffic("sink", device, "--count=20000", f"--mode={mode}",
                                  f"--features=packed={packed},mrg_rxbuf={mergeable}")
                probe = summary["probe"]
                check_equal((probe["frames"], probe["before"]), (20000, 0), what)
                check_clean(probe, what)
                check(summary["clean"], what)
                device.close()


def big_buffers():
    "Big receive buffers for an MTU of 9000: 5 descriptors, 51 in a ring; for the maximum 19 and 13"
    small = "mrg_rxbuf=off,guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off"
    for indirect, packed in ("off", "off"), ("off", "on"), ("on", "off"), ("on", "on"):
        for size, want in ("mtu", (5, 51)), ("maximum", (19, 13)):
            device = VirtwireDevice(None, "--mtu=9000", port="source,size=9014")
            features = f"{small},indirect_desc={indirect},packed={packed}"
            summary = traffic("sink", device, "--count=3000", "--strict", "--rx-mode=big",
                              f"--rx-big={size}", f"--features={features}")
            buffer, what = summary["rx_buffer"], f"{size}, {features}"
            if indirect == "on":
                want = (1 if packed == "on" else want[0], 256)
            check_equal((buffer["descriptors"], buffer["in_ring"]), want, what)
            check_equal(buffer["bytes"] // 4096, 3 if size == "mtu" else 17, what)
            check_equal(summary["rx_mode"], "big", what)
            check_clean(summary["probe"], what)
            device.close()


def there_and_back():
    "pktgen through a loop: every policy, full rings, sizes to 9000"
    for policy in "deferred", "orphan", "delayed", "scheduled":
        device = VirtwireDevice(None, "--features=urgent=on", port="loop,mtu=9000")
        for arguments in (["--ring-size=64", "--burst=256", "--size=64"],
                          ["--size=60-9014", "--mode=interrupt"], ["--size=imix", "--flows=99"]):
            summary = traffic("pktgen", device, "--loop", "--count=10000", "--strict",
                              f"--tx-policy={policy}", "--urgent-every=7", *arguments)
            check_equal(summary["probe"]["frames"], 10000, f"{policy}, {arguments}")
            check(summary["clean"], f"{policy}, {arguments}: {summary['probe']}")
            check_equal(summary["queues"][0]["transmit"]["reaped"], 10000, "frames completed")
        device.close()


def in_process(command, port, *arguments):
    """Runs one of the programs with a device of its own: (device, summary) of the last report."""
    status, out, err = virtwire(command, f"--in-process={port}", "--json", *arguments)
    check_equal((status, err), (0, ""), f"virtwire {command} --in-process={port} {arguments}: {out}")
    device, summary = (json.loads(line) for line in out.splitlines()[-2:])
    check("type" not in device and summary["type"] == "summary", "the device comes first")
    check_equal(device["device"]["messages_refused"], 0, "messages refused")
    return device, summary


def a_device_in_the_process():
    "Driver and device in one process: there and back, one way each, two queue pairs, each mode"
    for mode in MODES:
        _, summary = in_process("pktgen", "loop,mtu=9000", "--loop", "--count=10000", "--strict",
                                "--size=60-9014", "--mode=" + mode)
        check_equal(summary["mtu"], 9000, "MTU of the port")
        check_equal(summary["probe"]["frames"], 10000, f"frames that came back, {mode}")
        device, _ = in_process("pktgen", "sink", "--count=10000", "--queue-pairs=2",
                               "--features=packed=off", "--mode=" + mode)
        for queue in device["port"]["queues"]:
            check_equal(queue["probe"]["frames"], 5000, f"frames in the sink, {mode}")
            check_clean(queue["probe"], mode)
        _, summary = in_process("sink", "source,count=10000", "--count=10000", "--strict",
                                "--mode=" + mode)
        check_equal(summary["probe"]["frames"], 10000, f"frames from the source, {mode}")
    device, summary = in_process("echo", "source,count=5000", "--duration=1")
    check_clean(device["port"]["queues"][0]["probe"], "echo")
    check_equal(device["port"]["queues"][0]["probe"]["frames"], summary["sent"]["frames"],
                "frames that echo sent back")


def queue_pairs():
    "Queue pairs share flows, count and rate"
    device = VirtwireDevice(None, port="sink,queues=3")
    summary = traffic("pktgen", device, "--queue-pairs=3", "--flows=8", "--count=9001")
    probes = probe_of(device)
    check_equal([probe["flows"] for probe in probes], [3, 3, 2], "flows of each queue")
    check_equal([probe["frames"] for probe in probes], [3001, 3000, 3000], "frames of each queue")
    check_equal([queue["transmit"]["frames"] for queue in summary["queues"]], [3001, 3000, 3000],
                "frames that each queue counts")
    for probe in probes:
        check_clean(probe, "three queues")


def a_rate():
    "pktgen keeps to a rate, and never goes beyond it"
    device = VirtwireDevice(None, port="loop")
    summary = traffic("pktgen", device, "--loop", "--rate=2k", "--duration=1", "--strict")
    sent, seconds = summary["sent"]["frames"], summary["seconds"]
    check(1 <= sent <= 2000 * seconds + 64, f"{sent} frames in {seconds} s")


def echo():
    "echo sends every frame back unchanged but for its addresses"
    for mode in MODES:
        for mergeable in "on", "off":
            device = VirtwireDevice(None, port="source,count=20000,size=60-1514")
            running = Running("echo", device, f"--mode={mode}", f"--features=mrg_rxbuf={mergeable}")
            wait_for("all frames back", lambda: probe_of(device)[0]["frames"] == 20000,
                     alive=running)
            check_clean(probe_of(device)[0], f"{mode}, mergeable={mergeable}")
            check_equal(running.finish(), 0, "status")
            summary, = running.documents("summary")
            check_equal((summary["sent"]["frames"], summary["received"]["frames"],
                         summary["refused"]), (20000, 20000, 0), "echo's own count")
            device.close()


def signals():
    "SIGINT and SIGTERM end with a summary and status 0, SIGUSR1 prints one in between"
    for command, port in (("pktgen", "sink"), ("sink", "source"), ("echo", "source")):
        for number in signal.SIGINT, signal.SIGTERM:
            device = VirtwireDevice(None, port=port)
            running = Running(command, device)
            running.signal(signal.SIGUSR1)
            wait_for("a report", lambda: running.documents("report"), alive=running)
            check_equal(running.finish(number), 0, f"{command}: {running.errors_text()}")
            summary, = running.documents("summary")
            report, = running.documents("report")
            check_equal(summary["command"], command, "command")
            check(summary["monotonic_seconds"] > report["monotonic_seconds"], "clock")
            for direction in "sent", "received":
                check(summary[direction]["frames"] >= report[direction]["frames"], direction)
            check_equal(running.errors_text(), "", "standard error")
            device.close()


class SilentBackEnd:
    """Connects, or is connected to, and takes the first request without ever answering it."""

    def __init__(self, command, listens):
        self.path = os.path.join(private_folder(), f"silent-{command}-{listens}.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(PATIENCE)
        if listens:
            self.listener.bind(self.path)
            self.listener.listen()
        self.driver = Process(f"{command}-silent-{listens}", [
            VIRTWIRE, command, f"--socket-path={self.path}", *([] if listens else ["--listen"])],
            log_folder(), merge=False)

    def connect(self, listens):
        if listens:
            self.connection, _ = self.listener.accept()
        else:
            wait_for("a socket", lambda: os.path.exists(self.path), alive=self.driver)
            self.connection = self.listener
            wait_for("a listener", lambda: self.connection.connect_ex(self.path) == 0, alive=self.driver)
        self.connection.settimeout(PATIENCE)
        check(self.connection.recv(12), "no request")


def signal_while_a_silent_back_end_is_opened():
    "SIGINT, SIGTERM and SIGHUP end the opening of a back-end that never answers, SIGUSR1 does not"
    for command in OWN:
        for listens in True, False:
            for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
                silent = SilentBackEnd(command, listens)
                silent.connect(listens)
                silent.driver.signal(signal.SIGUSR1)
                silent.driver.signal(number)
                check_equal(silent.driver.wait(), -number, f"status of {command}")
                check_equal(silent.driver.errors_text(), "", f"what {command} said")
                check_equal(os.path.exists(silent.path), listens, f"a socket is left by {command}")
                silent.connection.close()
                silent.listener.close()
                if listens:
                    os.unlink(silent.path)


def signal_while_no_back_end_connects():
    "SIGTERM ends a wait for a back-end, and no socket is left"
    silent = SilentBackEnd("sink", listens=False)
    wait_for("a socket", lambda: os.path.exists(silent.path), alive=silent.driver)
    # bound is not yet listened at: to be seen from outside in this list only
    wait_for("a listener", lambda: any(line.split()[3] == "00010000" and line.endswith(silent.path + "\n")
                                       for line in open("/proc/net/unix")), alive=silent.driver)
    silent.driver.signal(signal.SIGTERM)
    check_equal(silent.driver.wait(), -signal.SIGTERM, "status")
    check(not os.path.exists(silent.path), "a socket is left")
    silent.listener.close()


def strict():
    "--strict turns a summary that is not clean into status 1"
    device = VirtwireDevice(None, port="null")  # nothing comes back
    arguments = ["pktgen", f"--socket-path={device.socket_path}", "--json", "--loop", "--count=10"]
    status, out, err = virtwire(*arguments)
    check_equal(status, 0, err)
    check_equal(json.loads(out.splitlines()[-1])["clean"], False, "clean")
    status, out, err = virtwire(*arguments, "--strict")
    check_equal(status, 1, err)


def device_gone():
    "The back-end is killed: --no-reconnect ends with status 1, otherwise it goes on"
    device = VirtwireDevice(None, port="sink")
    running = Running("pktgen", device, "--no-reconnect")
    device.kill()
    check_equal(running.wait(), 1, "status")
    check("gone" in running.errors_text(), f"message: {running.errors_text()!r}")
    check(running.documents("summary"), "no summary")

    device = VirtwireDevice(None, port="sink")
    running = Running("pktgen", device)
    device.kill()
    again = VirtwireDevice(None, port="sink", socket_path=device.socket_path)
    wait_for("frames after the restart", lambda: probe_of(again)[0]["frames"] > 0, alive=running)
    check_equal(running.finish(), 0, f"status: {running.errors_text()}")
    probe, = probe_of(again)
    for name in "lost", "reordered", "corrupt", "foreign":
        check_equal(probe[name], 0, f"{name} after the restart")


def text_summary():
    "Without --json: lines of rates and a summary that people can read"
    device = VirtwireDevice(None, port="loop")
    status, out, err = virtwire("pktgen", f"--socket-path={device.socket_path}", "--loop",
                                "--count=1000")
    check_equal((status, err), (0, ""), "status and errors")
    for words in "sent 1000 frames", "received 1000 frames", "queue pair 0", "Mb/s":
        check(words in out, f"no word of {words!r}: {out}")


run_tests(help_texts, bad_usage, no_device, to_device,
          completions_by_a_thread_of_their_own, to_driver, big_buffers, there_and_back,
          a_device_in_the_process, queue_pairs, a_rate, echo, signals,
          signal_while_a_silent_back_end_is_opened, signal_while_no_back_end_connects, strict,
          device_gone, text_summary)
