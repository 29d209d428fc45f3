# SPDX-License-Identifier: BSD-3-Clause
"""
What can be learnt of a QEMU guest that does not answer on its console.

Theory of operation
-------------------
Five things look the same from the console: the program in the guest waits, the guest's kernel
hangs, an interrupt was lost in QEMU, QEMU itself stands, or the host does. They are told apart from
the outside in, and the last step costs the guest its life:

1. the threads of the process, as the host's kernel sees them (lab/threads.py; every wait for a
   process that is given up tells them);
2. QEMU's monitor: processors and interrupt controllers. One that does not answer is the finding:
   the main loop hangs, or a processor holds QEMU's lock;
3. a newline on the console. It raises an interrupt of the serial port, and if that brings the
   answer, then the guest was well and an earlier interrupt was lost;
4. an NMI, on which the kernel panics (its command line says so), with the stack of each processor
   and all tasks on the console, printed by polling.
"""
import re
import socket
import time

from lab.process import RESOURCES

PROMPT = b"(qemu) "
QUESTIONS = ("info status", "info registers -a", "info pic", "info lapic 0", "info irq")
# What nobody needs of the answers: pins that are not in use, segments, floating point.
NOISE = re.compile(r"pin \d+ +0x0000000000010000|^(FPR|XMM|YMM|FCW|\s*$|[A-Z]?LDT|TR|[GI]DT|DR\d|CCS|[CDEFGS]S *=)")
# Kernel threads that wait as they should (their parent is 2), and the debugging of the scheduler.
WAITING_THREAD = re.compile(r"task:\S+ +state:[SI] .* ppid:2 ")


class Monitor:
    """QEMU's monitor for people: a command brings text."""

    def __init__(self, path, patience=10):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(patience)
        self.socket.connect(path)
        self._until_prompt()

    def _until_prompt(self):
        text = b""
        while not text.endswith(PROMPT):
            piece = self.socket.recv(65536)
            if not piece:
                raise OSError("it was closed")
            text += piece
        return text[:-len(PROMPT)].decode(errors="replace")

    def ask(self, command):
        self.socket.sendall(command.encode() + b"\n")
        # The first line is the command, with an escape sequence for each key.
        return self._until_prompt().replace("\r", "").partition("\n")[2].strip("\n")


def _essence(text):
    """Of a panic: without the tasks of the kernel that wait for work."""
    blocks = re.split(r"(?m)^(?=.*\btask:)", text.partition("Sched Debug Version")[0])
    return "".join(block for block in blocks if not WAITING_THREAD.search(block))


def _ask_all(monitor):
    lines = []
    for question in QUESTIONS:
        lines.append("(qemu) " + question)
        lines += [line for line in monitor.ask(question).splitlines() if not NOISE.search(line)]
    return lines


def examine(guest, answered):
    """
    The findings on a guest that stands still, as text, the most telling first; `answered`
    tells whether what was waited for has come. The guest does not survive it.
    """
    brief, details = [], []
    logs = RESOURCES.log_tails()  # as they are before the end
    monitor = None
    try:
        monitor = Monitor(guest.monitor_path)
        details += _ask_all(monitor)
    except OSError as problem:
        brief.append(f"QEMU does not answer: {problem}")
    brief += [line for line in details if line.startswith("RIP=")]
    if answered():
        brief.append("the answer came now, late")
    else:
        guest.poke()
        time.sleep(3)
        brief.append("a newline on its console woke it: an interrupt was lost" if answered() else
                     "a newline on its console did not wake it")
    if monitor:
        end = len(guest.log_text())
        monitor.socket.sendall(b"nmi\n")
        time.sleep(5)
        panic = guest.log_text()[end:]
        brief += re.findall(r"RIP: 0010:.*|cpu \d+ skipped: idling at .*", panic)
        details += ["(qemu) nmi", *_essence(panic).splitlines()]
    return "\n".join([f"{guest.name} stands still:", *brief, logs, *details])
