# SPDX-License-Identifier: BSD-3-Clause
"""What the hostile tests share: one device process that serves two guests.

Theory of operation
-------------------
One guest is hostile, the other is honest and carries numbered frames around a loop all the time.
Whatever the first one does, the second one must not lose, repeat or damage a single frame, and the
process must live and end in order. So each test case is `with TwoGuests() as lab:` around what
its hostile guest does; the rest is checked at its end.
"""

import contextlib
import multiprocessing
import os
import signal
import time

import vhost_user_client as vu
from harness import (PATIENCE, RESOURCES, Failure, VirtwireDevice, check, private_folder,
                     wait_for)
from lab.process import die_with_parent
from numbered_frames import NumberedFrames
from virtio_driver import NetDriver


FORK = multiprocessing.get_context("fork")


class SteadyFlow:
    """
    An honest guest whose frames go around a loop until it is told to finish. It is a process of its
    own: a thread would wait for the interpreter whenever the hostile guest works.
    """
    ROUND = 64                # frames between two looks at whether to finish

    def __init__(self, path, **options):
        self.done, self.last_round = (FORK.Value("Q", 0, lock=False) for _ in range(2))
        self.problem, tell = FORK.Pipe(duplex=False)
        driver = NetDriver(path, **options)
        self.process = FORK.Process(target=self._carry, args=(driver, tell), daemon=True)
        self.process.start()
        driver.close()        # it is the other process's now
        tell.close()
        RESOURCES.add(self)

    def _carry(self, driver, tell):
        die_with_parent()
        frames = NumberedFrames(stream=0x57ead7)
        try:
            while not self.last_round.value:
                came = driver.exchange(frames, self.done.value, self.ROUND)
                self.done.value += came
                if came < self.ROUND:
                    raise Failure(f"frame {self.done.value} did not come back")
            driver.close()
        except Exception as problem:
            tell.send(repr(problem))

    def _check(self):
        """Raises what went wrong over there, if anything did."""
        with contextlib.suppress(EOFError):     # it ended without a word
            if self.problem.poll():
                raise Failure(f"the steady guest: {self.problem.recv()}")
        if self.process.exitcode:
            raise Failure(f"the steady guest ended with status {self.process.exitcode}")

    def goes_on(self):
        """Waits until it carried more frames than up to now."""
        before = self.done.value
        wait_for("the steady guest's frames to go on",
                 lambda: not self.process.is_alive() or self.done.value > before + self.ROUND)
        self._check()
        check(self.process.is_alive(), "the steady guest ended by itself")

    def finish(self):
        self.last_round.value = 1
        self.process.join(2 * PATIENCE)
        self._check()
        check(not self.process.is_alive(), "the steady guest does not finish")
        check(self.done.value > 0, "the steady guest carried nothing")
        self.close()

    def close(self):
        RESOURCES.remove(self)
        self.process.kill()
        self.process.join()
        self.problem.close()


class TwoGuests:
    """A device with two sockets, each with a loop; a steady flow on the second one."""

    def __init__(self, *arguments, port="loop", steady=True, **steady_options):
        self.steady_path = os.path.join(private_folder(),
                                        f"steady-{VirtwireDevice.started + 1}.sock")
        self.device = VirtwireDevice(None, *arguments, "--socket-path=" + self.steady_path,
                                     "--port", "loop", port=port)
        self.path = self.device.socket_path
        wait_for("the second socket", lambda: os.path.exists(self.steady_path), alive=self.device)
        self.steady = None
        if steady:
            self.steady = SteadyFlow(self.steady_path, **steady_options)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            return            # what is open is closed at the end of the case
        check(not self.device.ended(), f"the device ended, status {self.device.status()}")
        if self.steady:
            self.steady.goes_on()
            self.steady.finish()

    def connect(self, protocol=(1 << vu.PF_REPLY_ACK) | (1 << vu.PF_MQ), owner=True):
        """A front-end that has come as far as the protocol features."""
        front_end = vu.FrontEnd(self.path)
        if owner:
            front_end.order(vu.SET_OWNER)
            front_end.barrier()
            if protocol:
                front_end.set_protocol_features(protocol)
        return front_end

    def works(self, **options):
        """An honest guest on the hostile one's socket is served again."""
        with NetDriver(self.path, **options) as driver:
            came = driver.exchange(NumberedFrames(stream=7), 0, 100, others=True)
            check(came == 100, f"{came} of 100 frames came back to the next front-end")


def not_accepted(front_end, what, request, payload=b"", fds=()):
    """Sends what no device may accept. Returns "refused" or "closed"."""
    try:
        reply = front_end.question(request, payload, fds, vu.VERSION | vu.NEED_REPLY)
    except vu.Closed:
        return "closed"
    check(any(reply), f"the device accepted {what}")
    return "refused"


@contextlib.contextmanager
def expecting_close():
    """The connection may end in here: the device is free to drop who breaks the protocol."""
    try:
        yield
    except vu.Closed:
        pass


def statistics_of(device, path):
    """The counters of the device at one socket; a process prints a document for each."""
    count = sum(word.startswith("--socket-path=") for word in device.command)
    device.documents()
    device.signal(signal.SIGUSR1)
    found = []
    wait_for("statistics after SIGUSR1",
             lambda: found.extend(device.documents()) or len(found) >= count, alive=device)
    return {document["socket"]: document for document in found}[path]


def queue_counters(device, path, index):
    """The counters of one ring, by its vhost-user index."""
    queues = statistics_of(device, path)["queues"]
    return next(queue for queue in queues if queue["index"] == index)


def processor_share(device, seconds):
    """The share of one core that the device used, by its own account, over that time."""
    def spent():
        total = 0
        for task in os.listdir(f"/proc/{device.pid}/task"):
            with open(f"/proc/{device.pid}/task/{task}/schedstat") as text:
                total += int(text.read().split()[0])
        return total
    time.sleep(0.2)           # let what came before settle
    before, start = spent(), time.monotonic()
    time.sleep(seconds)
    return (spent() - before) / 1e9 / (time.monotonic() - start)
