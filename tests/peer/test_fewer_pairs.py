# SPDX-License-Identifier: BSD-3-Clause
"""A guest that serves fewer queue pairs than the TAP has: no flow that the host begins may end in
a queue that nobody serves."""

import struct

from harness import (GUEST, PATIENCE, Failure, QemuGuest, check, check_equal, run_tests,
                     tap_port)
from lab.scenario import Scene
from tap_flows import TapHost, expect
from virtio_driver import NetDriver

FLOWS = 64


def flows_arrive(host, driver, when, pairs=1):
    """All flows come, on the first `pairs` pairs and on each of these."""
    host.send(b"flow", 1, flows=FLOWS)
    counts = expect(driver, b"flow", FLOWS, when)
    check(all(counts[:pairs]) and not any(counts[pairs:]),
          f"{when}: {counts} frames on the pairs, {pairs} to be used")


def pairs_set(driver, count):
    check_equal(driver.command(struct.pack("<BBH", 4, 0, count)), 0, f"MQ_VQ_PAIRS_SET {count}")


def one_pair_of_two():
    "A driver with one pair on a TAP with two queues gets every flow; so does one with both"
    host = TapHost(port=tap_port(",queues=2"))
    for packed in (False, True):
        for pairs in (1, 2, 1):
            with NetDriver(host.path, packed=packed, pairs=pairs, size=128) as driver:
                flows_arrive(host, driver, f"{pairs} of 2 pairs, packed {packed}", pairs)
            host.wait_no_guest()


def second_pair_disabled():
    "SET_VRING_ENABLE 0 for the second pair: every flow comes on the first one, until it is back"
    host = TapHost(port=tap_port(",queues=2"))
    with NetDriver(host.path, pairs=2, size=128) as driver:
        flows_arrive(host, driver, "both pairs enabled", 2)
        for index in (2, 3):
            driver.front_end.enable(index, False)
        flows_arrive(host, driver, "the second pair disabled")
        for index in (2, 3):
            driver.front_end.enable(index)
        flows_arrive(host, driver, "the second pair enabled again", 2)
        driver.front_end.get_base(2)
        flows_arrive(host, driver, "the second receive ring stopped")


def pairs_by_command():
    "With a control queue of ours one pair is used until VQ_PAIRS_SET says otherwise"
    host = TapHost(port=tap_port(",queues=2"))
    for _ in range(2):          # the second driver finds what the first one found
        with NetDriver(host.path, pairs=2, control=True, size=128) as driver:
            flows_arrive(host, driver, "before any command")
            pairs_set(driver, 2)
            flows_arrive(host, driver, "after VQ_PAIRS_SET 2", 2)
            pairs_set(driver, 1)
            flows_arrive(host, driver, "after VQ_PAIRS_SET 1")
            pairs_set(driver, 2)
        host.wait_no_guest()


def guest_with_one_processor():
    "A Linux guest with one processor and two of four pairs answers every connection"
    scene = Scene(QemuGuest, "--queue-pairs=4", guest_options={"queue_pairs": 2, "cpus": 1})
    scene.wire.wait_reachable()
    for port in range(9000, 9040):
        with scene.namespace.socket() as host:
            host.settimeout(PATIENCE)
            try:
                host.connect((GUEST, port))
                raise Failure(f"somebody listens on port {port}")
            except ConnectionRefusedError:
                pass
            except TimeoutError:
                raise Failure(f"connection {port - 9000} of 40 was not answered") from None
    check_equal(scene.guest.bad_news(), [], "the guest's kernel complains")
    scene.finish()


run_tests(one_pair_of_two, second_pair_disabled, pairs_by_command, guest_with_one_processor)
