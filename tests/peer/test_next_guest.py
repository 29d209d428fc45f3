# SPDX-License-Identifier: BSD-3-Clause
"""What one guest, or the time without any, leaves behind must not reach the next one."""

import time

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from hostile_lab import TwoGuests, queue_counters
from numbered_frames import NumberedFrames
from tap_flows import TapHost, expect, take
from vhost_user_client import bit
from virtio_driver import NetDriver

FILTERS = bit(vu.F_CTRL_RX) | bit(vu.F_CTRL_MAC_ADDR)


def frames_while_nobody_was_there():
    "Frames that the host sent while no guest was connected do not reach the next guest"
    host = TapHost()
    for packed in (False, True):
        NetDriver(host.path, packed=packed, size=128).close()
        host.wait_no_guest()
        host.send(b"for nobody", 50)
        with NetDriver(host.path, packed=packed, size=128) as driver:
            host.send(b"for the guest", 5)
            seen = stale_before(driver, 5)
            check_equal(seen, 0, f"frames for nobody that the next guest saw, packed {packed}")
        host.wait_no_guest()


def stale_before(driver, fresh, stale=b"for nobody"):
    """How many old frames come before the fresh ones: a queue keeps the order."""
    old = new = 0
    while new < fresh:
        arrived = driver.receive(1)
        check(arrived, f"{new} of {fresh} frames came")
        old += stale in arrived[0].frame
        new += b"for the guest" in arrived[0].frame
    return old


def promiscuous_off(driver):
    check_equal(driver.command(b"\0\0\0"), 0, "promiscuous mode off")


def mac_of_the_guest_before():
    "A MAC address that one guest set does not filter the frames of the next one, nor after a reset"
    host = TapHost()
    with NetDriver(host.path, control=True, wanted=FILTERS) as driver:
        promiscuous_off(driver)
        check_equal(driver.command(b"\1\1" + bytes.fromhex("525400000099")), 0, "MAC_ADDR_SET")
        host.send(b"for another", 5)
        host.send(b"for another", 5)
        time.sleep(0.1)           # time to do wrong; nothing is measured
        check_equal(take(driver, b"for another"), [0], "frames that the filter let pass")
        driver.front_end.order(vu.RESET_DEVICE)
        driver.front_end.set_features(driver.features)
        driver.set_status(0xb)
        for index in range(3):
            driver.renew(index)
        driver.set_status(0xf)
        promiscuous_off(driver)
        host.send(b"after reset", 5)
        expect(driver, b"after reset", 5, "frames after a reset")
        check_equal(driver.command(b"\1\1" + bytes.fromhex("525400000099")), 0, "MAC_ADDR_SET")
    host.wait_no_guest()
    with NetDriver(host.path, control=True, wanted=FILTERS) as driver:
        promiscuous_off(driver)
        host.send(b"for the next", 5)
        expect(driver, b"for the next", 5, "frames of the next guest")


def quiet(device):
    """A second with fewer wake-ups than a polled ring causes in 20 ms."""
    before = device.sleeps()
    time.sleep(1)
    return device.sleeps() - before < 20


def polled_ring_of_the_guest_before():
    "A ring without a kick descriptor is polled no longer when its front-end is gone"
    with TwoGuests(steady=False) as lab:
        front_end = vu.FrontEnd(lab.path)
        front_end.barrier()
        front_end.set_features(0)
        front_end.order(vu.SET_VRING_KICK, vu.u64(0 | vu.NOFD))
        front_end.barrier()
        before = lab.device.sleeps()
        wait_for("wake-ups for a polled ring", lambda: lab.device.sleeps() > before + 200)
        front_end.close()
        wait_for("a second without wake-ups once the front-end is gone",
                 lambda: quiet(lab.device))
        front_end = vu.FrontEnd(lab.path)
        front_end.barrier()
        wait_for("a second without wake-ups for a front-end without rings",
                 lambda: quiet(lab.device))
        front_end.close()
        lab.works()


def disabled_with_frames_waiting():
    "A transmit ring that is disabled while frames wait in it discards them at once"
    with TwoGuests(steady=False) as lab:
        for packed in (False, True):
            with NetDriver(lab.path, packed=packed, size=256, fill=False) as driver:
                frames = [NumberedFrames(33).frame(i) for i in range(8192)]
                before = queue_counters(lab.device, lab.path, 1)
                sent = 0
                while (more := driver.send(frames[sent:], seconds=0.5)):
                    sent += more                          # the loop takes what it has room for
                driver.front_end.enable(1, False)
                check_equal(driver.flush_tx(), 0, f"frames kept, packed {packed}")
                after = queue_counters(lab.device, lab.path, 1)
                dropped = after["drop_disabled"] - before["drop_disabled"]
                check(dropped > 0, f"none of {sent} frames waited: nothing is tested")
                check_equal(after["frames"] - before["frames"] + dropped, sent,
                            "frames carried and discarded, of those sent")


run_tests(frames_while_nobody_was_there, mac_of_the_guest_before, polled_ring_of_the_guest_before,
          disabled_with_frames_waiting)
