# SPDX-License-Identifier: BSD-3-Clause
"""Our vhost-user front-end against DPDK's back-end, which sends every frame back."""

import os

from harness import BUILD, Testpmd, check_equal, private_folder, run, run_tests, wait_for

PROGRAM = os.path.join(BUILD, "tests", "peer", "net-vhost")


def handshake_frames_and_bases():
    "Split and packed, in order and not: frames come back, and rings go on where DPDK says they are"
    path = os.path.join(private_folder(), "dpdk.sock")
    testpmd = Testpmd(f"net_vhost0,iface={path},queues=1", name="back-end",
                      arguments=["--forward-mode=io", "--auto-start", "--burst=1"])
    wait_for("testpmd's socket", lambda: os.path.exists(path), alive=testpmd)
    run(PROGRAM, path)
    check_equal(testpmd.stop(), 0, "status of testpmd")


run_tests(handshake_frames_and_bases)
