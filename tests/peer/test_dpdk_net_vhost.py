# SPDX-License-Identifier: BSD-3-Clause
"""Our vhost-user front-end and driver against DPDK's back-end, which sends every frame back."""

import itertools
import json
import os
import re
import subprocess

from harness import (BUILD, PATIENCE, VIRTWIRE, Process, Testpmd, check, check_equal, log_folder,
                     private_folder, run, run_tests, wait_for)
from lab.process import die_with_parent

PROGRAM = os.path.join(BUILD, "tests", "peer", "net-vhost")


class BackEnd(Testpmd):
    """testpmd that sends every frame back; with a core of its own, since the driver has the other."""

    def __init__(self, path, queues=1, burst=32):
        super().__init__(f"net_vhost0,iface={path},queues={queues}", name="back-end", core=1,
                         arguments=["--forward-mode=io", "--auto-start", f"--burst={burst}",
                                    f"--rxq={queues}", f"--txq={queues}"])
        wait_for("testpmd's socket", lambda: os.path.exists(path), alive=self)

    def dropped(self):
        """Frames that it had taken and found no buffers of ours for, since the last time."""
        found = re.search(r"TX-dropped: (\d+)\s+TX-total: \d+\s+-+\s+\++ Accumulated",
                          self.execute("show fwd stats all"))
        self.execute("clear fwd stats all")
        return int(found.group(1))


def pktgen(path, *arguments):
    "Runs pktgen in a loop to its end; returns its summary"
    command = [VIRTWIRE, "pktgen", f"--socket-path={path}", "--loop", "--json", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, preexec_fn=die_with_parent)
    check_equal((done.returncode, done.stderr), (0, ""), " ".join(command))
    return json.loads(done.stdout.splitlines()[-1])


def handshake_frames_and_bases():
    "Split and packed, in order and not: frames come back, and rings go on where DPDK says they are"
    path = os.path.join(private_folder(), "dpdk.sock")
    testpmd = BackEnd(path, burst=1)
    run(PROGRAM, path)
    check_equal(testpmd.stop(), 0, "status of testpmd")


def every_frame_at_full_rate():
    "Every ring, mergeable or not, in order or not, one and two pairs: each frame is accounted for"
    for pairs in 1, 2:
        path = os.path.join(private_folder(), f"matrix{pairs}.sock")
        testpmd = BackEnd(path, pairs)
        for packed, mergeable, in_order in itertools.product(("off", "on"), repeat=3):
            features = f"packed={packed},mrg_rxbuf={mergeable},in_order={in_order}"
            what = f"{features}, {pairs} pairs"
            summary = pktgen(path, f"--features={features}", f"--queue-pairs={pairs}",
                             "--size=60-9014", "--mtu=9000", "--ring-size=512", "--duration=0.7")
            sent, probe = summary["sent"]["frames"], summary["probe"]
            check_equal(summary["ring_format"], "packed" if packed == "on" else "split", what)
            check(sent > 1000, f"{sent} frames sent, {what}")
            check_equal(probe["frames"] + testpmd.dropped(), sent, f"frames back, {what}")
            for name in "reordered", "duplicate", "stale", "corrupt", "foreign", "restarts":
                check_equal(probe[name], 0, f"{name}, {what}")
            for queue in summary["queues"]:
                transmit = queue["transmit"]
                check_equal(transmit["reaped"], transmit["frames"], f"frames completed, {what}")
                for name in "drop_short", "drop_header", "drop_buffers":
                    check_equal(queue["receive"][name], 0, f"{name}, {what}")
        check_equal(testpmd.stop(), 0, "status of testpmd")


def killed_and_restarted():
    "The back-end is killed in the middle and started again: frames go on, none is damaged"
    for packed in "off", "on":
        path = os.path.join(private_folder(), f"restart-{packed}.sock")
        testpmd = BackEnd(path)
        driver = Process("pktgen", [
            VIRTWIRE, "pktgen", f"--socket-path={path}", "--loop", "--json", "--stats-interval=1",
            "--size=60-9014", "--mtu=9000", f"--features=packed={packed}"], log_folder(), merge=False)

        def moving(since, driver=driver):
            """Lines of rates so far, if frames came back in one behind the first `since`."""
            lines = [json.loads(line) for line in driver.log_text().splitlines(keepends=True)
                     if line.endswith("\n")]
            good = any(line["received_frames_per_second"] > 100 for line in lines[since:])
            return len(lines) if good else 0

        before = wait_for("frames", lambda: moving(0), alive=driver)
        testpmd.kill()
        os.unlink(path)
        testpmd = BackEnd(path)
        # The line that was under way when it was killed may still tell of frames.
        wait_for("frames from the next back-end", lambda: moving(before + 1), alive=driver)
        driver.signal(2)
        check_equal(driver.wait(), 0, f"status of pktgen: {driver.errors_text()}")
        summary = json.loads(driver.log_text().splitlines()[-1])
        for name in "corrupt", "foreign", "restarts":
            check_equal(summary["probe"][name], 0, f"{name}, packed={packed}")
        transmit = summary["queues"][0]["transmit"]
        check_equal(transmit["reaped"], transmit["frames"], f"frames completed, packed={packed}")
        check_equal(transmit["drop_lost"], 0, "frames that were never sent again")
        check_equal(testpmd.stop(), 0, "status of testpmd")


run_tests(handshake_frames_and_bases, every_frame_at_full_rate, killed_and_restarted)
