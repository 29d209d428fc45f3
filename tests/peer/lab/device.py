# SPDX-License-Identifier: BSD-3-Clause
"""The program under test: `virtwire device`."""
import json
import os
import signal
import stat
import time

from lab import report
from lab.process import RESOURCES, Failure, Process, wait_for


def _io_uring_works():
    """Whether the kernel can read a TAP through io_uring without waiting (Linux 6.4), and may."""
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    try:
        with open("/proc/sys/kernel/io_uring_disabled") as setting:
            return version >= (6, 4) and int(setting.read()) == 0
    except FileNotFoundError:     # the setting is of Linux 6.6
        return version >= (6, 4)


def tap_port(options="", io="uring"):
    """The description of a TAP that is read and written in this way, if that works here."""
    if not _io_uring_works():
        io = "plain"
    return f"tap,name=vw0,io={io}{options}"


def without_zeros(document):
    """A report with nothing in it but what is worth reading: no zeros, no list of what was offered."""
    if isinstance(document, dict):
        return {name: without_zeros(value) for name, value in document.items()
                if value not in (0, None) and name != "offered"}
    return [without_zeros(value) for value in document] if isinstance(document, list) else document


class VirtwireDevice(Process):
    """
    One running back-end. Its standard output is JSON (a document for each SIGUSR1 and one at the
    end), its standard error is for people. Closing it sends SIGTERM and demands exit status 0 and
    no sanitizer report, so that each test checks the orderly end as well.
    """
    started = 0

    def __init__(self, namespace=None, *arguments, port="tap,name=vw0", socket_path=None,
                 json_output=True, wait=True, prefix=(), **options):
        VirtwireDevice.started += 1
        name = f"device-{VirtwireDevice.started}"
        self.socket_path = socket_path or os.path.join(report.private_folder(), name + ".sock")
        command = [*prefix, report.VIRTWIRE, "device", "--socket-path=" + self.socket_path, "--port", port,
                   *(["--json"] if json_output else []), *arguments]
        if not os.access(report.VIRTWIRE, os.X_OK):
            raise Failure(f"no program {report.VIRTWIRE}: build it first")
        self.position = 0
        self.expect_status = 0
        before = self._inode()
        if namespace is None:
            super().__init__(name, command, report.log_folder(), merge=False, **options)
        else:
            with namespace.entered():
                super().__init__(name, command, report.log_folder(), merge=False, **options)
        if wait:
            wait_for(f"the socket {self.socket_path}",
                     lambda: self._inode() not in (None, before), alive=self)

    def _inode(self):
        """The identity of the socket file: a stale one is not ours."""
        try:
            found = os.stat(self.socket_path)
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None

    def _next_document(self):
        with open(self.output, errors="replace") as log:
            log.seek(self.position)
            text = log.read()
        start = len(text) - len(text.lstrip())
        try:
            document, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            return None
        self.position += len(text[:end].encode())
        return document

    def documents(self):
        """All documents that were printed since the last call."""
        found = []
        while (document := self._next_document()) is not None:
            found.append(document)
        return found

    def statistics(self):
        """All counters now, as the program's JSON says."""
        self.documents()
        self.signal(signal.SIGUSR1)
        return wait_for("statistics after SIGUSR1", self._next_document, alive=self)

    def last_words(self):
        """For the report of a failure: the counters, if it still answers."""
        self.documents()
        self.signal(signal.SIGUSR1)
        for _ in range(20):
            if (document := self._next_document()) is not None:
                return json.dumps(without_zeros(document))
            time.sleep(0.05)
        return f"no answer to SIGUSR1 (status {self.status()})"

    def sleeps(self):
        """How often its threads went to sleep up to now."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/status") as text:
                total += sum(int(line.split()[1]) for line in text
                             if line.startswith("voluntary_ctxt_switches"))
        return total

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_maps(self):
        with open(f"/proc/{self.pid}/maps") as maps:
            return maps.read().splitlines()

    def sanitizer_report(self):
        text = self.errors_text()
        for sign in ("ERROR: AddressSanitizer", "runtime error:", "WARNING: ThreadSanitizer",
                     "ERROR: LeakSanitizer"):
            if sign in text:
                return text
        return None

    def stop(self):
        """SIGTERM; returns the exit status."""
        RESOURCES.remove(self)
        self.signal(signal.SIGTERM)
        status = self.wait()
        if self.sanitizer_report():
            raise Failure("a sanitizer's report:\n" + self.errors_text())
        return status

    def close(self):
        if self.status() == -signal.SIGKILL and self.expect_status == -signal.SIGKILL:
            return
        try:
            status = self.stop()
        except Failure:
            self.child.kill()
            self.child.wait()
            raise
        if status != self.expect_status:
            raise Failure(f"{self.name} ended with status {status}\n{self.errors_text()[-4000:]}")

    def kill(self):
        self.expect_status = -signal.SIGKILL
        super().kill()
