# SPDX-License-Identifier: BSD-3-Clause
"""A front-end that acknowledges the back-end's requests late: one request is under way at a time,
and what is noted meanwhile is lost no more than it comes early."""

import os
import struct

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from numbered_frames import NumberedFrames
from tap_flows import TapHost
from vhost_user_client import NEED_REPLY, REPLY, VERSION, bit
from virtio_driver import NetDriver

QUIET = 0.3                     # seconds in which a request that comes too early would come
EXPECTED = {(vu.BACKEND_VRING_CALL, 1), (vu.BACKEND_VRING_CALL, 3), (vu.BACKEND_VRING_CALL, 5),
            (vu.BACKEND_CONFIG_CHANGE, None)}


def next_request(front_end, patience=vu.DEADLINE):
    """What the back-end asks: (request, ring), or None if nothing came."""
    if not vu.wait_readable([front_end.channel], patience):
        return None
    request, flags, payload, fds = vu.receive_message(front_end.channel)
    for fd in fds:
        os.close(fd)
    check(flags & NEED_REPLY, f"request {request} does not ask for an acknowledgement")
    ring = struct.unpack("=2I", payload)[0] if request == vu.BACKEND_VRING_CALL else None
    return request, ring


def acknowledge(front_end, request):
    front_end.channel.sendall(vu.pack_message(request, vu.u64(0), VERSION | REPLY))


def transmit(driver, pair):
    """One frame, whose call we ask for."""
    driver.tx(pair).ring.arm()
    check_equal(driver.send([NumberedFrames(41).frame(pair)], pair), 1, "frames sent")


def collect(front_end, first):
    """Acknowledges one after the other, until all that we expect came; between them nothing may."""
    came, request = set(), first
    while request:
        came.add(request)
        early = next_request(front_end, QUIET)
        check(early is None, f"{early} came before {request} was acknowledged")
        acknowledge(front_end, request[0])
        request = next_request(front_end, QUIET if EXPECTED <= came else vu.DEADLINE)
    return came


def calls_and_a_change_meanwhile():
    "Calls of two rings and a change of the configuration wait for an acknowledgement, then come"
    host = TapHost("--queue-pairs=3")
    for packed in (False, True):
        with NetDriver(host.path, packed=packed, pairs=3, inband=True,
                       wanted=bit(vu.F_STATUS)) as driver:
            front_end = driver.front_end
            while (request := next_request(front_end, QUIET)):    # what the start brought
                acknowledge(front_end, request[0])
            transmit(driver, 0)
            while (first := next_request(front_end)) != (vu.BACKEND_VRING_CALL, 1):
                check(first is not None, "no call for the first frame")
                acknowledge(front_end, first[0])              # it, too, came of the start, late
            transmit(driver, 1)
            transmit(driver, 2)
            host.namespace.run("ip", "link", "set", "vw0", "down")
            came = collect(front_end, first)
            check(EXPECTED <= came, f"not all requests came: {came}")
            wait_for("the link to be down", lambda: not front_end.get_config(6, 2)[0] & 1)
            check_equal([len(driver.tx(p).reap_until(1)) for p in range(3)], [1, 1, 1],
                        "frames sent")
        host.namespace.run("ip", "link", "set", "vw0", "up")
        host.wait_no_guest()


run_tests(calls_and_a_change_meanwhile)
