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
import os
import signal
import threading
import time

import vhost_user_client as vu
from harness import Failure, VirtwireDevice, check, private_folder, wait_for
from numbered_frames import NumberedFrames
from virtio_driver import NetDriver


class SteadyFlow(threading.Thread):
    """An honest guest whose frames go around a loop until it is told to finish."""

    def __init__(self, path, **options):
        super().__init__(daemon=True)
        self.driver = NetDriver(path, **options)
        self.frames = NumberedFrames(stream=0x57ead7)
        self.done, self.problem, self.last_round = 0, None, False

    def run(self):
        try:
            while not self.last_round:
                came = self.driver.exchange(self.frames, self.done, 64)
                self.done += came
                if came < 64:
                    raise Failure(f"the steady guest's frame {self.done} did not come back")
        except Exception as problem:  # told by finish(), in the main thread
            self.problem = problem

    def goes_on(self):
        """Waits until it carried more frames than up to now."""
        before = self.done
        wait_for("the steady guest's frames to go on",
                 lambda: self.problem or self.done > before + 64)
        if self.problem:
            raise Failure(f"the steady guest: {self.problem!r}")

    def finish(self):
        self.last_round = True
        self.join()
        if self.problem:
            raise Failure(f"the steady guest: {self.problem!r}")
        check(self.done > 0, "the steady guest carried nothing")
        self.driver.close()


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
            self.steady.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            if self.steady:
                self.steady.last_round = True
        else:
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
