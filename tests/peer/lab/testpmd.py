# SPDX-License-Identifier: BSD-3-Clause
"""DPDK's testpmd, driven over its prompt."""
import os
import re
import shutil
import subprocess

from lab import report
from lab.process import RESOURCES, Failure, Process, wait_for


class Testpmd(Process):
    """
    One testpmd. `devices` are its --vdev arguments, such as
    "net_virtio_user0,path=/x/v.sock,queues=1,queue_size=256,packed_vq=1". Without hugepages; its
    two threads share one core (`core`), and the forwarding one burns it while it forwards. A
    device that failed does not fail testpmd: check that frames move.
    """
    started = 0

    def __init__(self, *devices, name="testpmd", core=0, arguments=(), eal=(), mbufs=16384,
                 memory=256):
        if not shutil.which("dpdk-testpmd"):
            raise Failure("no DPDK testpmd (package dpdk-dev): run `make deps-test`")
        Testpmd.started += 1
        self.position = 0
        command = ["stdbuf", "-oL", "dpdk-testpmd", "--lcores", f"0@{core},1@{core}", "--no-huge",
                   "-m", str(memory), "--no-pci", "--iova-mode=va", "--no-telemetry",
                   f"--file-prefix=virtwire{os.getpid()}n{Testpmd.started}", *eal]
        for device in devices:
            command += ["--vdev", device]
        command += ["--", "-i", "--no-mlockall", f"--total-num-mbufs={mbufs}", *arguments]
        super().__init__(f"{name}-{Testpmd.started}", command, report.log_folder(),
                         stdin=subprocess.PIPE,
                         environment={"RUNTIME_DIRECTORY": report.private_folder()})
        self.wait_prompt()

    def _new_text(self):
        return self.log_text()[self.position:]

    def wait_prompt(self, patience=None):
        """Waits for the prompt; returns what was printed before it."""
        text = wait_for("testpmd's prompt",
                        lambda: self._new_text() if "testpmd> " in self._new_text() else None,
                        patience=patience, alive=self)
        end = text.index("testpmd> ") + len("testpmd> ")
        self.position += end
        return text[:end]

    def execute(self, text, patience=None):
        """Runs one command and returns what it printed."""
        self.child.stdin.write((text + "\n").encode())
        self.child.stdin.flush()
        return self.wait_prompt(patience)

    def statistics(self, port=0):
        """The counters of `show port stats`, such as "RX-packets" and "Tx-pps"."""
        text = self.execute(f"show port stats {port}")
        return {name: int(value) for name, value in re.findall(r"([RT][Xx]-\w+):\s+(\d+)", text)}

    def stop(self):
        """Ends it in an orderly way; returns its status."""
        RESOURCES.remove(self)
        if not self.ended():
            self.child.stdin.write(b"stop\nquit\n")
            self.child.stdin.close()
        return self.wait()
