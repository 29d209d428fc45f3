# SPDX-License-Identifier: BSD-3-Clause
"""
What a peer test imports. A test file is

    from harness import *

    def case():
        "what the case shows, in one line"
        namespace = NetNs()
        device = VirtwireDevice(namespace, "--queue-pairs", "2", port="tap,name=vw0")
        namespace.configure("vw0", "10.9.0.1/24")
        check(device.statistics()["..."] == 0, "...")

    run_tests(case)

and runs in namespaces of its own (lab/box.py). The environment says where things are:
VIRTWIRE (the program), VIRTWIRE_BUILD (the build tree; logs go to its peer-logs/), VIRTWIRE_CACHE
(guest images), VIRTWIRE_ONLY (run only the cases whose name contains this), VIRTWIRE_BRIEF (fewer
combinations and repetitions, where a test knows which to leave out).
"""
import sys

sys.dont_write_bytecode = True  # nothing is written into the source tree

from lab.box import NetNs  # noqa: E402
from lab.device import VirtwireDevice, tap_port  # noqa: E402
from lab.guest import QemuGuest, UmlGuest  # noqa: E402
from lab.process import PATIENCE, RESOURCES, Failure, Process, run, wait_for  # noqa: E402
from lab.report import (BRIEF, BUILD, CACHE, VIRTWIRE, check, check_equal, log_folder,  # noqa: E402
                        private_folder, run_tests)
from lab.testpmd import Testpmd  # noqa: E402
from lab.traffic import GUEST, GUEST6, HOST, HOST6, Wire  # noqa: E402

__all__ = ["BRIEF", "BUILD", "CACHE", "VIRTWIRE", "PATIENCE", "RESOURCES", "Failure", "GUEST", "GUEST6",
           "HOST", "HOST6", "NetNs", "Process", "QemuGuest", "Testpmd", "UmlGuest",
           "VirtwireDevice", "Wire", "check", "check_equal", "log_folder", "private_folder", "run",
           "run_tests", "tap_port", "wait_for"]
