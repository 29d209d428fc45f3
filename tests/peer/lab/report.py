# SPDX-License-Identifier: BSD-3-Clause
"""Runs test cases and reports them by the Test Anything Protocol, one line a case."""
import os
import signal
import sys
import time
import traceback

from lab import box
from lab.process import RESOURCES, Failure

BUILD = os.environ.get("VIRTWIRE_BUILD", os.path.join(os.getcwd(), "build"))
CACHE = os.environ.get("VIRTWIRE_CACHE", os.path.join(BUILD, "guest"))
BRIEF = bool(os.environ.get("VIRTWIRE_BRIEF"))
VIRTWIRE = os.environ.get("VIRTWIRE", os.path.join(BUILD, "virtwire"))


class Place:
    """Where this program keeps its files."""
    folder = None   # private: gone with the program
    logs = None     # kept in the build tree, for a look after the end


def log_folder():
    if Place.logs is None:
        raise Failure("call run_tests() (or enter a box) first")
    return Place.logs


def private_folder():
    if Place.folder is None:
        raise Failure("call run_tests() (or enter a box) first")
    return Place.folder


def enter(name, logs=None):
    """Enters the box; `logs` is a folder for the logs, by default one in the build tree."""
    if logs is None:
        logs = os.path.join(BUILD, "peer-logs", name)
    os.makedirs(logs, exist_ok=True)
    Place.folder = box.enter_box(keep_visible=[BUILD, CACHE, VIRTWIRE, logs])
    Place.logs = logs


def _comment(text):
    for line in str(text).splitlines():
        print("# " + line, flush=True)


def _run_case(function):
    """Returns None, or what went wrong."""
    mark = len(RESOURCES.open)
    RESOURCES.logs.clear()
    problem = None
    try:
        function()
    except Exception as raised:
        problem = traceback.format_exc(limit=-4) if not isinstance(raised, Failure) else \
            str(raised) + "\n" + "".join(traceback.format_tb(raised.__traceback__)[-2:])
        if "--- " not in problem:
            problem += "\n" + RESOURCES.log_tails()
    for late in RESOURCES.close_all(mark):
        problem = (problem or "") + f"\nwhile tidying up: {late}"
    return problem


def run_tests(*cases):
    """
    Enters the box and runs the cases: functions, or pairs of a name and a function. A case fails
    by raising, best a Failure (see check()). What it opened is closed after it. Does not return.
    """
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    only = os.environ.get("VIRTWIRE_ONLY", "")
    named = [case if isinstance(case, tuple) else
             (case.__doc__.strip().splitlines()[0] if case.__doc__ else case.__name__, case)
             for case in cases]
    named = [(title, function) for title, function in named if only in title]
    print(f"1..{len(named)}", flush=True)
    if not named:
        sys.exit(f"no case matches {only}")
    enter(name)
    failed = 0
    try:
        for number, (title, function) in enumerate(named, 1):
            started = time.monotonic()
            problem = _run_case(function)
            failed += problem is not None
            print(f"{'not ok' if problem else 'ok'} {number} - {title}", flush=True)
            _comment(f"{time.monotonic() - started:.1f} s")
            if problem:
                _comment(problem)
    finally:
        RESOURCES.close_all()
        signal.alarm(0)
    sys.stdout.flush()
    sys.exit(1 if failed else 0)


def check(condition, message):
    """A check by hand: `message` says what was expected and what was seen."""
    if not condition:
        raise Failure(message)


def check_equal(seen, expected, what):
    if seen != expected:
        raise Failure(f"{what}: expected {expected!r}, saw {seen!r}")
