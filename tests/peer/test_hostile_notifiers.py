# SPDX-License-Identifier: BSD-3-Clause
"""Kick, call and error descriptors of the wrong kind, or that would block whoever uses them: the
queue that they belong to does without, and nobody else notices.

An eventfd blocks if it is full and O_NONBLOCK is not set, which the front-end, who shares the open
file, can take away at any time."""

import contextlib
import os
import pty
import select
import signal
import socket

import vhost_user_client as vu
from harness import BRIEF, VirtwireDevice, check, check_equal, private_folder, run_tests, wait_for
from hostile_lab import TwoGuests, queue_counters
from lab.process import LIBC, PR_SET_PDEATHSIG
from numbered_frames import NumberedFrames
from vhost_user_client import NEED_REPLY, VERSION, bit
from virtio_driver import NetDriver

FRAMES = NumberedFrames(6)
NOT_NOTIFIERS = ("file", "zero", "directory", "pipe", "closed pipe", "fifo", "terminal",
                 "internet socket", "memory file", "epoll")


@contextlib.contextmanager
def descriptor(what):
    """A descriptor of that kind. What else belongs to it stays open as long."""
    path = os.path.join(private_folder(), what.replace(" ", "-"))
    others = []
    if what == "file":
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
    elif what == "zero":
        fd = os.open("/dev/zero", os.O_RDWR)
    elif what == "directory":
        fd = os.open("/", os.O_RDONLY)
    elif what == "pipe":
        other, fd = os.pipe()
        others.append(other)
    elif what == "closed pipe":
        other, fd = os.pipe()
        os.close(other)
    elif what == "fifo":
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        fd = os.open(path, os.O_RDWR)
    elif what == "terminal":
        fd, other = pty.openpty()
        others.append(other)
    elif what == "internet socket":
        fd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()
    elif what == "memory file":
        fd = os.memfd_create("[eventfd]")
    elif what == "epoll":
        with select.epoll() as epoll:
            fd = os.dup(epoll.fileno())
    else:
        kind = socket.SOCK_DGRAM if "datagram" in what else socket.SOCK_STREAM
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        fd = one.detach()
        if "closed" in what:
            other.close()
        else:
            others.append(other.detach())
    try:
        yield fd
    finally:
        for number in (fd, *others):
            os.close(number)


def give(driver, request, queue, fd):
    """Gives a ring another descriptor. Was it accepted?"""
    answer = driver.front_end.question(request, vu.u64(queue.index), [fd], VERSION | NEED_REPLY)
    return not any(answer)


def fill_and_block(event):
    """Now each write to this eventfd blocks."""
    os.set_blocking(event, False)
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(event)
    os.eventfd_write(event, 0xfffffffffffffffe)
    os.set_blocking(event, True)


def said(lab, words):
    return [line for line in lab.device.errors_text().splitlines() if words in line]


def refuses(driver, request, queue, what):
    with descriptor(what) as fd:
        check(not give(driver, request, queue, fd), f"a {what} was accepted for request {request}")


def other_kinds_of_descriptor_were_accepted():
    "Pipes, FIFOs, files, terminals and others are refused as notifiers, by name of what is wanted"
    wanted = {vu.SET_VRING_KICK: "no eventfd", vu.SET_VRING_CALL: "no eventfd and no UNIX socket",
              vu.SET_VRING_ERR: "no eventfd and no UNIX socket"}
    for request, words in wanted.items():
        with TwoGuests(steady=False) as lab, NetDriver(lab.path) as driver:
            for what in NOT_NOTIFIERS:
                refuses(driver, request, driver.tx(), what)
            check(said(lab, words), f"no word that the descriptor is {words}")
            driver.renew(1)
            check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames after a proper descriptor came")


def kick_socket_was_accepted():
    "A socket is refused for kicks: to read it can block, whatever flags are set"
    with TwoGuests(steady=False) as lab, NetDriver(lab.path) as driver:
        for what in ("stream socket", "datagram socket", "closed socket"):
            refuses(driver, vu.SET_VRING_KICK, driver.tx(), what)
        driver.renew(1)
        check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames after a proper descriptor came")


def channel_of_another_kind_was_accepted():
    "A back-end request channel that is no UNIX stream socket is refused"
    with TwoGuests(steady=False) as lab:
        for what in (*NOT_NOTIFIERS, "datagram socket"):
            front_end = lab.connect(1 << vu.PF_REPLY_ACK | 1 << vu.PF_BACKEND_REQ)
            with descriptor(what) as fd:
                answer = front_end.question(vu.SET_BACKEND_REQ_FD, b"", [fd], VERSION | NEED_REPLY)
                check(any(answer), f"a {what} was accepted as a channel")
            front_end.close()
        lab.works()


def without_calls(driver, start):
    """Frames go around although no call arrives."""
    came = []
    for number in range(start, start + 100):
        driver.reap_tx()
        driver.tx().ring.arm()
        driver.rx().ring.arm()
        driver.send([FRAMES.frame(number)])
        wait_for("a frame without calls", driver.poll, pause=0)
        came += [driver.received[0].popleft().frame for _ in range(len(driver.received[0]))]
    check_equal(came, [FRAMES.returned(i) for i in range(start, start + 100)],
                "frames without calls")


def calls_that_nobody_takes():
    "A call descriptor that is full, or whose other end is closed, holds up neither device nor frames"
    for what in ("eventfd", "stream socket", "datagram socket", "closed socket"):
        with TwoGuests() as lab, NetDriver(lab.path) as driver, \
                (descriptor(what) if what != "eventfd" else contextlib.nullcontext()) as fd:
            if fd is None:
                fd = os.eventfd(0, os.EFD_NONBLOCK)
                os.eventfd_write(fd, 0xfffffffffffffffe)
            elif "closed" not in what:
                with contextlib.suppress(BlockingIOError):
                    os.set_blocking(fd, False)
                    while True:
                        os.write(fd, b"x")
                os.set_blocking(fd, True)
            for queue in (driver.rx(), driver.tx()):
                check(give(driver, vu.SET_VRING_CALL, queue, fd), f"a {what} was refused")
            without_calls(driver, 0)
            for queue in (driver.rx(), driver.tx()):
                check(queue_counters(lab.device, lab.path, queue.index)["calls_refused"] > 0,
                      "no call was tried")
                check(give(driver, vu.SET_VRING_CALL, queue, queue.call), "a call descriptor")
            check_equal(driver.exchange(FRAMES, 100, 100), 100, "frames with calls again")


def call_descriptor_was_made_to_block():
    "A worker whose call would block goes on without; the queue works again with another descriptor"
    for packed in (False, True):
        for indices in ((0,), (1,), (0, 1)):
            with TwoGuests(packed=packed) as lab, NetDriver(lab.path, packed=packed) as driver:
                check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames at first")
                for index in indices:
                    fill_and_block(driver.queues[index].call)
                lab.steady.goes_on()
                without_calls(driver, 50)
                for index in indices:
                    check_equal(len(said(lab, f"queue {index}: the front-end made its call")), 1,
                                "lines about a call descriptor that blocks")
                    check(queue_counters(lab.device, lab.path, index)["calls_refused"] == 1,
                          "the descriptor was written to again")
                    os.close(driver.queues[index].call)
                    driver.queues[index].call = os.eventfd(0, os.EFD_NONBLOCK)
                    check(give(driver, vu.SET_VRING_CALL, driver.queues[index],
                               driver.queues[index].call), "a proper call descriptor")
                check_equal(driver.exchange(FRAMES, 150, 100), 100, "frames with calls again")


def break_ring(driver):
    """The transmit ring gets a buffer outside memory."""
    ring = driver.tx().ring
    if ring.packed:
        ring.poke_chain([(1 << 60, 64, 0, 5)])
    else:
        ring.poke_descriptor(0, 1 << 60, 64, 0)
        ring.poke_available(0)
    ring.publish()
    driver.tx().force_kick()


def error_descriptor_was_made_to_block():
    "A ring that breaks and cannot say so harms nobody, and can be set up again"
    for packed in (False, True):
        with TwoGuests(packed=packed) as lab, NetDriver(lab.path, packed=packed) as driver:
            check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames at first")
            error = os.eventfd(0)
            check(give(driver, vu.SET_VRING_ERR, driver.tx(), error), "an error descriptor")
            fill_and_block(error)
            break_ring(driver)
            wait_for("the log", lambda: said(lab, "queue 1: the front-end made its error"))
            lab.steady.goes_on()
            driver.renew(1)
            check_equal(driver.exchange(FRAMES, 50, 50), 50, "frames after it was set up again")
            os.close(error)


def control_queue_was_made_to_block():
    "The control thread is not blocked by the call of a control queue"
    for packed in (False, True):
        with TwoGuests(packed=packed) as lab, \
                NetDriver(lab.path, packed=packed, control=True,
                          wanted=bit(vu.F_CTRL_RX)) as driver:
            check_equal(driver.command(b"\0\0\1"), 0, "a command at first")
            fill_and_block(driver.control.call)
            driver.control.ring.arm()
            at = driver.command_buffer
            driver.memory.write(at, b"\0\0\1")
            driver.control.ring.add([(at, 3, False), (at + 8000, 1, True)], "command")
            driver.control.notify()
            wait_for("the log", lambda: said(lab, "the front-end made its call"))
            lab.device.statistics()
            lab.steady.goes_on()


def racing_for_the_control_thread():
    "Descriptors that turn blocking while the control thread calls, one after the other"
    with TwoGuests() as lab, NetDriver(lab.path) as driver:
        event = os.eventfd(0)
        fill_and_block(event)
        child = os.fork()
        if child == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            while True:
                os.set_blocking(event, True)
        try:
            for _ in range(20 if BRIEF else 200):
                check(give(driver, vu.SET_VRING_CALL, driver.rx(), event), "a call descriptor")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        lab.steady.goes_on()
        check(give(driver, vu.SET_VRING_CALL, driver.rx(), driver.rx().call), "a proper one")
        check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames afterwards")
        os.close(event)


def process_did_not_end():
    "The program ends in order while descriptors of every kind block"
    for number in (signal.SIGTERM, signal.SIGINT):
        with VirtwireDevice(port="loop") as device, \
                NetDriver(device.socket_path, control=True) as driver:
            check_equal(driver.exchange(FRAMES, 0, 50), 50, "frames at first")
            error = os.eventfd(0)
            give(driver, vu.SET_VRING_ERR, driver.tx(), error)
            for event in (error, *(queue.call for queue in driver.queues)):
                fill_and_block(event)
            for queue in driver.queues:
                queue.ring.arm()
            driver.send([FRAMES.frame(50)])
            break_ring(driver)
            device.signal(number)
            check_equal(device.wait(), 0, "the exit status")
            os.close(error)


run_tests(other_kinds_of_descriptor_were_accepted, kick_socket_was_accepted,
          channel_of_another_kind_was_accepted, calls_that_nobody_takes, call_descriptor_was_made_to_block,
          error_descriptor_was_made_to_block, control_queue_was_made_to_block,
          racing_for_the_control_thread, process_did_not_end)
