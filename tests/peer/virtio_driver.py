# SPDX-License-Identifier: BSD-3-Clause
"""A minimal but real virtio-net driver over vhost-user, for tests.

Theory of operation
-------------------
`NetDriver` negotiates, sets up its queue pairs, keeps the receive rings full, and sends and
receives Ethernet frames. It sleeps only on its call descriptor after arming, as a real driver
does: a lost notification makes a test fail at its deadline instead of being polled away. One
thread uses it at a time.
"""

import collections
import os
import struct
import time

import vhost_user_client as vu
from numbered_frames import describe
from vhost_user_client import bit
from virtio_rings import PackedRing, SplitRing

Received = collections.namedtuple("Received", "header frame")


class Queue:
    """One ring of the driver with its notifications."""

    def __init__(self, driver, index, size, features):
        self.driver, self.index = driver, index
        self.ring = (PackedRing if features & bit(vu.F_RING_PACKED) else SplitRing)(
            driver.memory, size, features)
        self.kick = self.call = None
        self.kicks = self.calls = 0

    def start(self, base=None, front_end=None):
        front_end = front_end or self.driver.front_end
        ring = self.ring
        front_end.order(vu.SET_VRING_NUM, vu.state(self.index, ring.size))
        front_end.order(vu.SET_VRING_BASE,
                        vu.state(self.index, ring.initial_base if base is None else base))
        front_end.order(vu.SET_VRING_ADDR, vu.vring_address(
            self.index, *(a + vu.USER_OFFSET for a in ring.addresses())))
        if self.driver.inband:
            front_end.order(vu.SET_VRING_CALL, vu.u64(self.index | vu.NOFD))
            front_end.order(vu.SET_VRING_KICK, vu.u64(self.index | vu.NOFD))
            front_end.order(vu.VRING_KICK, vu.state(self.index))
            return
        self.close()
        self.kick, self.call = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
        front_end.order(vu.SET_VRING_CALL, vu.u64(self.index), [self.call])
        front_end.order(vu.SET_VRING_KICK, vu.u64(self.index), [self.kick])
        os.eventfd_write(self.kick, 1)        # a ring starts with its first kick

    def notify(self, always=False):
        self.ring.publish()
        if self.ring.kick_needed() or always:
            self.force_kick()

    def force_kick(self):
        self.kicks += 1
        if self.driver.inband:
            self.driver.front_end.order(vu.VRING_KICK, vu.state(self.index))
        else:
            os.eventfd_write(self.kick, 1)

    def wait(self, seconds=vu.DEADLINE):
        """Arms, looks again, and sleeps until the device calls. False: it did not."""
        if not self.ring.arm():
            return True
        fd = self.driver.front_end.channel if self.driver.inband else self.call
        if not vu.wait_readable([fd], seconds):
            return False
        if self.driver.inband:
            self.driver.front_end.serve_channel()
        else:
            self.calls += os.eventfd_read(fd)
        return True

    def reap_until(self, count, seconds=vu.DEADLINE):
        """Reaps at least `count` buffers, or as many as come before the deadline."""
        finished, end = [], time.monotonic() + seconds
        while True:
            finished += self.ring.reap()
            left = end - time.monotonic()
            if len(finished) >= count or left <= 0:
                return finished
            self.wait(left)

    def close(self):
        for fd in (self.kick, self.call):
            if fd is not None:
                os.close(fd)
        self.kick = self.call = None


class NetDriver:
    """A virtio-net driver on one vhost-user connection.

    `wanted` are net and ring feature bits to acknowledge if offered (VERSION_1 and the protocol
    bit come on top). Everything else is how the driver shall behave.
    """

    def __init__(self, path, packed=False, mergeable=True, event_index=True, indirect=False,
                 in_order=False, version_1=True, pairs=1, size=64, rx_buffer=2048, wanted=0,
                 protocol=bit(vu.PF_REPLY_ACK) | bit(vu.PF_MQ) | bit(vu.PF_CONFIG)
                 | bit(vu.PF_STATUS) | bit(vu.PF_RESET_DEVICE) | bit(vu.PF_CONFIGURE_MEM_SLOTS),
                 inband=False, control=False, memory_size=8 << 20, fill=True, start=True,
                 sock=None):
        self.inband, self.use_indirect, self.rx_buffer = inband, indirect, rx_buffer
        self.pairs, self.size, self.control = pairs, size, None
        self.memory = vu.GuestMemory(memory_size)
        self.front_end = front_end = vu.FrontEnd(path, sock)
        front_end.order(vu.SET_OWNER)
        self.offer = front_end.barrier()
        if inband:
            protocol |= bit(vu.PF_INBAND) | bit(vu.PF_BACKEND_REQ)
        if self.offer & bit(vu.F_PROTOCOL_FEATURES):
            front_end.set_protocol_features(protocol)
        for name, number in (("packed", vu.F_RING_PACKED), ("mergeable", vu.F_MRG_RXBUF),
                             ("event_index", vu.F_EVENT_IDX), ("indirect", vu.F_INDIRECT_DESC),
                             ("in_order", vu.F_IN_ORDER), ("version_1", vu.F_VERSION_1),
                             ("control", vu.F_CTRL_VQ)):
            if locals()[name]:
                if not self.offer & bit(number):
                    raise AssertionError("the device does not offer %s" % name)
                wanted |= bit(number)
        if pairs > 1 or control:
            wanted |= bit(vu.F_MQ)
        self.features = (wanted | bit(vu.F_PROTOCOL_FEATURES)) & self.offer
        if inband:
            front_end.open_channel()
        front_end.set_features(self.features)
        self.header = 20 if self.features & bit(vu.F_HASH_REPORT) else \
            12 if self.features & (bit(vu.F_VERSION_1) | bit(vu.F_MRG_RXBUF)) else 10
        front_end.set_memory(self.memory)
        self.queues = [Queue(self, i, size, self.features) for i in range(2 * pairs)]
        if control:
            most = self.queue_pairs() if self.features & bit(vu.F_MQ) else 1
            self.control = Queue(self, 2 * most, 64, self.features)
            self.queues.append(self.control)
        self._buffers(fill)
        if start:
            self.start()

    def queue_pairs(self):
        if not self.front_end.protocol & bit(vu.PF_MQ):
            return 1
        return self.front_end.get_u64(vu.GET_QUEUE_NUM)

    def _buffers(self, fill):
        self.tx_buffers = [[self.memory.allocate(2048, 64) for _ in range(self.size)]
                           for _ in range(self.pairs)]
        self.tx_free = [list(buffers) for buffers in self.tx_buffers]
        self.tables, self.partial = {}, [[] for _ in range(self.pairs)]
        self.rx_buffers = [[self.memory.allocate(self.rx_buffer, 64) for _ in range(self.size)]
                           if fill else [] for _ in range(self.pairs)]
        self.received = [collections.deque() for _ in range(self.pairs)]
        self.used_lengths = []        # of transmitted buffers; each must be 0
        for pair in range(self.pairs):
            for address in self.rx_buffers[pair]:
                self.rx(pair).ring.add([(address, self.rx_buffer, True)], address)
            self.rx(pair).ring.publish()

    def rx(self, pair=0):
        return self.queues[2 * pair]

    def tx(self, pair=0):
        return self.queues[2 * pair + 1]

    def start(self):
        self.set_status(0xb)          # ACKNOWLEDGE, DRIVER, FEATURES_OK
        for queue in self.queues:
            queue.start()
        self.enable()
        self.set_status(0xf)          # and DRIVER_OK

    def set_status(self, status):
        if self.front_end.protocol & bit(vu.PF_STATUS):
            self.front_end.order(vu.SET_STATUS, vu.u64(status))

    def enable(self, on=True):
        if self.features & bit(vu.F_PROTOCOL_FEATURES):
            for queue in self.queues:
                self.front_end.enable(queue.index, on)

    def stop(self):
        """Stops every ring; returns their positions."""
        return [self.front_end.get_base(queue.index) for queue in self.queues]

    def renew(self, index):
        """Stops one ring, and starts a fresh one in its place."""
        old = self.queues[index]
        self.front_end.get_base(index)
        old.close()
        queue = self.queues[index] = Queue(self, index, old.ring.size, self.features)
        pair = index // 2
        if old is self.control:
            self.control = queue
        elif index % 2:
            self.tx_free[pair] = list(self.tx_buffers[pair])
        else:
            self.partial[pair].clear()
            for address in self.rx_buffers[pair]:
                queue.ring.add([(address, self.rx_buffer, True)], address)
            queue.ring.publish()
        queue.start()
        if self.features & bit(vu.F_PROTOCOL_FEATURES):
            self.front_end.enable(index)
        return queue

    # Transmit.

    def reap_tx(self, pair=0):
        """Takes transmitted buffers back; returns how many."""
        used = self.tx(pair).ring.reap()
        for address, length in used:
            self.tx_free[pair].append(address)
            self.used_lengths.append(length)
        return len(used)

    def queue_frame(self, frame, pair=0, header=b""):
        """Adds one frame to the transmit ring, unpublished. False: no room."""
        self.reap_tx(pair)
        free, ring = self.tx_free[pair], self.tx(pair).ring
        if not free or ring.room() < 2:
            return False
        address = free.pop()
        data = header.ljust(self.header, b"\0") + frame
        self.memory.write(address, data)
        table = None
        parts = [(address, len(data), False)]
        if self.use_indirect:
            if address not in self.tables:
                self.tables[address] = self.memory.allocate(64, 16)
            table = self.tables[address]
            parts = [(address, self.header, False),
                     (address + self.header, len(data) - self.header, False)]
        if not ring.add(parts, address, table):
            free.append(address)
            return False
        return True

    def send(self, frames, pair=0, header=b"", seconds=vu.DEADLINE):
        """Sends all frames, waiting for room. Returns how many were taken before the deadline."""
        end, sent = time.monotonic() + seconds, 0
        for frame in frames:
            while not self.queue_frame(frame, pair, header):
                self.tx(pair).notify()
                if time.monotonic() > end:
                    return sent
                self.tx(pair).wait(end - time.monotonic())
            sent += 1
        self.tx(pair).notify()
        return sent

    def flush_tx(self, pair=0, seconds=vu.DEADLINE):
        """Waits until every transmitted buffer came back. Returns how many did not."""
        end = time.monotonic() + seconds
        while self.tx(pair).ring.flying and time.monotonic() < end:
            self.reap_tx(pair)
            if self.tx(pair).ring.flying:
                self.tx(pair).wait(end - time.monotonic())
        self.reap_tx(pair)
        return len(self.tx(pair).ring.flying)

    # Receive.

    def poll(self, pair=0, refill=True):
        """Takes what has arrived, and gives the buffers back. Returns the number of buffers."""
        ring, pieces = self.rx(pair).ring, self.partial[pair]
        used = ring.reap()
        for address, length in used:
            pieces.append(self.memory.read(address, length))
            data = b"".join(pieces)   # buffers may be smaller than the header
            if len(pieces) == self._count(data):
                pieces.clear()
                self.received[pair].append(Received(data[:self.header], data[self.header:]))
            if refill:
                ring.add([(address, self.rx_buffer, True)], address)
        if used and refill:
            self.rx(pair).notify()
        return len(used)

    def _count(self, data):
        if self.header < 12:
            return 1
        if len(data) < 12:
            return None
        count = struct.unpack("<H", data[10:12])[0]
        if count == 0 or not self.features & bit(vu.F_MRG_RXBUF) and count != 1:
            raise AssertionError("num_buffers is %d" % count)
        return count

    def receive(self, count, pair=0, seconds=vu.DEADLINE, refill=True):
        """Waits for `count` frames; returns those that came before the deadline."""
        end, arrived = time.monotonic() + seconds, self.received[pair]
        while len(arrived) < count:
            if not self.poll(pair, refill):
                left = end - time.monotonic()
                if left <= 0 or not self.rx(pair).wait(left):
                    self.poll(pair, refill)
                    break
        return [arrived.popleft() for _ in range(min(count, len(arrived)))]

    def receive_into(self, pair, seconds):
        """Waits until at least one frame has arrived, and leaves it in self.received."""
        first = self.receive(1, pair, seconds)
        self.received[pair].extendleft(first)
        return bool(first)

    def exchange(self, frames, start, count, pair=0, window=16, seconds=vu.DEADLINE, others=False):
        """Sends numbered frames around a loop, at most `window` at a time; each must come back
        complete, once, and in order. Returns how many did. With `others`, frames that somebody
        else sent into the loop before us are let pass."""
        done = asked = 0
        end = time.monotonic() + seconds
        while done < count:
            more = min(window - (asked - done), count - asked)
            if more:
                if self.send([frames.frame(start + asked + i) for i in range(more)], pair,
                             seconds=end - time.monotonic()) < more:
                    return done
                asked += more
            if not self.receive_into(pair, end - time.monotonic()):
                return done
            while self.received[pair]:
                frame = self.received[pair].popleft().frame
                if frame == frames.returned(start + done):
                    done += 1
                elif not others or frames.mine(frame):
                    raise AssertionError("expected frame %d, got %s"
                                         % (start + done, describe(frame)))
        return done

    # Control.

    def command(self, data, split=None, result=1, seconds=vu.DEADLINE):
        """Runs a control command; `split` are the lengths of its readable pieces. Returns the
        acknowledgement, or None if the device did not answer."""
        memory = self.memory
        if not hasattr(self, "command_buffer"):
            self.command_buffer = memory.allocate(8192, 16)
        start = self.command_buffer
        memory.write(start, data)
        answer = start + 8000
        memory.write(answer, b"\xff" * result)
        pieces, at = [], start
        for length in split or [min(2, len(data)), max(0, len(data) - 2)]:
            if length:
                pieces.append((at, length, False))
                at += length
        pieces.append((answer, result, True))
        assert self.control.ring.add(pieces, "command")
        self.control.notify()
        finished = self.control.reap_until(1, seconds)
        if not finished:
            return None
        self.command_length = finished[0][1]
        return memory.read(answer, 1)[0]

    def close(self):
        self.front_end.close()
        for queue in self.queues:
            queue.close()
        self.memory.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
