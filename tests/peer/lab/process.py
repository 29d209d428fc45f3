# SPDX-License-Identifier: BSD-3-Clause
"""
Processes that never outlive the program which started them.

Theory of operation
-------------------
Whatever a test opens (a process, a namespace, a socket) enters one list and is closed in the
reverse order when its test case ends, whether it passed or not. Against SIGKILL, where no code of
ours runs any more, each child asks the kernel to be killed with its parent (PR_SET_PDEATHSIG),
and the whole program lives in namespaces of its own (lab/box.py).

Every wait has a deadline. One that passes raises Failure with the ends of all the logs, since the
reason is nearly always in there.
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import time

from lab.threads import describe_threads

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1

# A machine under load is slow, not wrong: a deadline only ends a wait that would never end. Waits in
# the kernel and in guests go by the clock, and machines have stood still for two minutes (Countdown).
PATIENCE = float(os.environ.get("VIRTWIRE_PATIENCE", "180"))


# In the end of a log that is quoted; a report in JSON is one line of thousands of characters.
LONGEST_LINE = 300


class Failure(Exception):
    """A check that did not hold, in words for people."""


class Deadline(Failure):
    """Patience that came to its end."""


class Resources:
    """What is open, newest last."""

    def __init__(self):
        self.open = []
        self.logs = {}

    def add(self, resource):
        self.open.append(resource)

    def remove(self, resource):
        if resource in self.open:
            self.open.remove(resource)

    def close_all(self, mark=0):
        """Closes all that was opened since `mark`; returns the failures of doing so."""
        problems = []
        while len(self.open) > mark:
            resource = self.open.pop()
            try:
                resource.close()
            except Exception as problem:  # the others must be closed as well
                problems.append(problem)
        return problems

    def log_tails(self, lines=40):
        """The end of every log, newest first, and what else open resources have to say."""
        text = []
        for resource in self.open:
            if hasattr(resource, "last_words"):
                text.append(f"--- {resource.name}: {resource.last_words()}")
        for name, path in reversed(list(self.logs.items())):
            with contextlib.suppress(OSError), open(path, errors="replace") as log:
                tail = [line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " ..."
                        for line in log.read().splitlines()[-lines:]]
                text.append(f"--- {name} ({path}), last {len(tail)} lines")
                text += tail
        return "\n".join(text)


RESOURCES = Resources()


def die_with_parent():
    """Runs in a child before exec."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Countdown:
    """
    The rest of a wait's patience. What passes between two looks counts for LONGEST_STEP at most: a
    virtual machine that was halted, and goes on, finds its clocks far ahead, while nobody in it has
    had the time. (One of two minutes ended a run of these tests.)
    """
    LONGEST_STEP = 2.0

    def __init__(self, patience=None):
        self.left = PATIENCE if patience is None else patience
        self.before = time.monotonic()
        self.longest = 0

    def over(self):
        now = time.monotonic()
        step, self.before = now - self.before, now
        self.left -= min(step, self.LONGEST_STEP)
        self.longest = max(self.longest, step)
        return self.left < 0


def wait_for(what, condition, patience=None, alive=None, pause=0.02):
    """
    Calls `condition` until it returns something true, and returns that. `alive` is a Process that
    must not end meanwhile. Patience that ends raises Deadline, which tells where its threads stand.
    """
    countdown = Countdown(patience)
    while True:
        value = condition()
        if value:
            return value
        if alive is not None and alive.ended():
            raise Failure(f"{alive.name} ended with status {alive.status()} before {what}\n"
                          + RESOURCES.log_tails())
        if countdown.over():
            raise Deadline("\n".join([f"gave up waiting: {what} (longest time between two looks: "
                                      f"{countdown.longest:.1f} s)",
                                      *(describe_threads(alive.pid) if alive else [])]))
        time.sleep(pause)


def _communicate(child, input, patience):
    """The output of a child that ends, or None."""
    countdown = Countdown(patience)
    while True:
        try:
            return child.communicate(input, timeout=1)[0]
        except subprocess.TimeoutExpired:
            input = None
            if countdown.over():
                return None


def run(*command, check=True, input=None, patience=None):
    """Runs a short command and returns its output; its failure is a Failure."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 preexec_fn=die_with_parent)
    except FileNotFoundError as problem:
        raise Failure(f"no program {command[0]}: run `make deps-test`") from problem
    with child:
        output = _communicate(child, input, patience)
        if output is None:
            child.kill()
            raise Failure(f"did not end: {' '.join(command)}")
    if check and child.returncode != 0:
        raise Failure(f"status {child.returncode}: {' '.join(command)}\n{output}")
    return output


class Process:
    """A running child with its output in files."""

    def __init__(self, name, command, log_directory, stdin=subprocess.DEVNULL, environment=None,
                 merge=True, before_exec=die_with_parent, **options):
        self.name = name
        self.command = command
        self.output = os.path.join(log_directory, name + ".log")
        self.errors = self.output if merge else os.path.join(log_directory, name + ".err")
        with open(self.output, "wb") as out, open(self.errors, "ab" if merge else "wb") as err:
            try:
                self.child = subprocess.Popen(command, stdin=stdin, stdout=out,
                                              stderr=subprocess.STDOUT if merge else err,
                                              env={**os.environ, **(environment or {})},
                                              preexec_fn=before_exec, **options)
            except FileNotFoundError as problem:
                raise Failure(f"no program {command[0]}: run `make deps-test`") from problem
        RESOURCES.logs[name] = self.output
        if not merge:
            RESOURCES.logs[name + " (errors)"] = self.errors
        RESOURCES.add(self)

    @property
    def pid(self):
        return self.child.pid

    def ended(self):
        return self.child.poll() is not None

    def status(self):
        """The exit status, or minus the signal that ended it, or None."""
        return self.child.poll()

    def signal(self, number):
        if not self.ended():
            self.child.send_signal(number)

    def wait(self, patience=None):
        try:
            wait_for(f"the end of {self.name}", self.ended, patience)
        except Deadline as problem:
            raise Deadline("\n".join([str(problem), *describe_threads(self.pid)])) from None
        return self.status()

    def kill(self):
        """SIGKILL: for tests of what a crash leaves behind."""
        self.signal(signal.SIGKILL)
        self.child.wait()
        RESOURCES.remove(self)

    def close(self):
        self.kill()

    def log_text(self):
        with open(self.output, errors="replace") as log:
            return log.read()

    def errors_text(self):
        with open(self.errors, errors="replace") as log:
            return log.read()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        RESOURCES.remove(self)
        self.close()
