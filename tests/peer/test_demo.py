# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: it succeeds, and leaves nothing behind, however it ends."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

from harness import *
from lab.box import cover
from lab.process import die_with_parent

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "demo", "demo.py")
# Folders of the test's own are compared whole; in those of all programs, which are covered as far as
# we do not live there ourselves, what bears our names.
SHARED = ("/tmp", "/dev/shm", "/run", "/run/netns", "/var/tmp")
OURS = re.compile(r"uml|virtwire|vm_file|initramfs|vw\d|\bbox\b")


def listed(folder):
    if not os.path.isdir(folder):
        return set()
    return {os.path.join(folder, name) for name in os.listdir(folder)}


def traces():
    """What the demonstration could leave behind: files, mounts, interfaces, processes."""
    files = listed("/mnt") | listed(private_folder()) | listed(os.path.dirname(DEMO))
    files |= listed(os.path.expanduser("~/.uml"))
    files |= {path for folder in SHARED for path in listed(folder)
              if OURS.search(os.path.basename(path))}
    with open("/proc/self/mounts") as mounts:
        return {"files": files, "mounts": set(mounts), "processes": processes(),
                "interfaces": set(run("ip", "-o", "link").splitlines())}


def processes():
    """The other processes of this test's box; the demonstration's are all below its first one."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            name, _, state = stat.read().rpartition(")")
            if state.split()[0] != "Z" and int(pid) != os.getpid():
                found.add((pid, name.partition("(")[2]))
    return found


def start(**environment):
    output = os.path.join(log_folder(), "demo.log")
    RESOURCES.logs["demo"] = output
    with open(output, "w") as log:
        return subprocess.Popen([sys.executable, DEMO], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
                                start_new_session=True, env={**os.environ, **environment}), output


def text_of(path):
    with open(path) as file:
        return file.read()


def check_nothing_left(before):
    # The kernel takes a namespace down shortly after the last process in it.
    wait_for("the demonstration's processes to go",
             lambda: processes() <= before["processes"])
    after = traces()
    new = {kind: sorted(after[kind] - before[kind]) for kind in before}
    check_equal({kind: names for kind, names in new.items() if names}, {}, "left behind")


def succeeds():
    "It reports pings, transfers and counters, with status 0, and leaves nothing behind"
    cover(SHARED, keep_visible=[ROOT, BUILD, CACHE, VIRTWIRE])
    before = traces()
    demo, output = start()
    check_equal(demo.wait(4 * PATIENCE), 0, "status of the demonstration: " + text_of(output))
    text = text_of(output)
    for words in ("host 10.9.0.1 pings guest", "guest 10.9.0.2 pings host",
                  "TCP host to guest: 32 MiB", "TCP guest to host: 32 MiB", "same SHA-256",
                  "features negotiated", "ring of 256 entries", "frames", "bytes", "kicks",
                  "calls", "dropped", "ended with status 0"):
        check(words in text, f"the report does not say {words!r}:\n{text}")
    check_nothing_left(before)


def interrupted(number, moment, status):
    def case():
        before = traces()
        demo, output = start()
        wait_for(f"the demonstration to say {moment}", lambda: moment in text_of(output))
        time.sleep(0.3)
        # Ctrl-C reaches every process of the terminal's foreground group.
        (os.killpg if number == signal.SIGINT else os.kill)(demo.pid, number)
        check_equal(demo.wait(PATIENCE), status, "status: " + text_of(output))
        check_nothing_left(before)
    return f"{signal.Signals(number).name} after '{moment}' leaves nothing behind", case


run_tests(succeeds,
          interrupted(signal.SIGINT, "namespace of its own", 128 + signal.SIGINT),
          interrupted(signal.SIGINT, "guest 10.9.0.2 pings host", 128 + signal.SIGINT),
          interrupted(signal.SIGTERM, "guest 10.9.0.2 pings host", 128 + signal.SIGTERM),
          interrupted(signal.SIGKILL, "guest 10.9.0.2 pings host", -signal.SIGKILL))
