# SPDX-License-Identifier: BSD-3-Clause
"""The driver's half of both ring formats, for tests.

Theory of operation
-------------------
`SplitRing` (section 2.7) and `PackedRing` (2.8) have the same honest calls: add, publish,
kick_needed, reap and arm. The calls that begin with `poke` write what the test says, without any
check, so that a test can break exactly one rule. What the device gives back is always checked: an
id that is not in flight is an AssertionError.
"""

import collections

import vhost_user_client as vu
from vhost_user_client import bit, fence

NEXT, WRITE, INDIRECT = 1, 2, 4
AVAILABLE, USED = 1 << 7, 1 << 15


def event_passed(event, new, old):
    """Does the event word lie in what was added? (2.7.10)"""
    return (new - event - 1) & 0xffff < (new - old) & 0xffff


class SplitRing:
    packed = False

    def __init__(self, memory, size, features=0):
        self.memory, self.size = memory, size
        self.event_index = bool(features & bit(vu.F_EVENT_IDX))
        self.in_order = bool(features & bit(vu.F_IN_ORDER))
        self.descriptors = memory.allocate(16 * size, 16)
        self.available = memory.allocate(6 + 2 * size, 2)
        self.used = memory.allocate(6 + 8 * size, 4)
        self.free = collections.deque(range(size))
        self.index = 0              # next available index, not yet published
        self.last_used = 0
        self.decided = 0            # available index at the last kick decision
        self.flying = {}            # head -> (descriptors, token, indirect table)
        self.order = collections.deque()
        self.initial_base = 0

    def addresses(self):
        return self.descriptors, self.available, self.used

    def poke_descriptor(self, index, address, length, flags, following=0, table=None):
        at = (self.descriptors if table is None else table) + 16 * index
        memory = self.memory
        memory.set64(at, address)
        memory.set32(at + 8, length)
        memory.set16(at + 12, flags)
        memory.set16(at + 14, following)

    def poke_available(self, head):
        self.memory.set16(self.available + 4 + 2 * (self.index % self.size), head)
        self.index = (self.index + 1) & 0xffff

    def poke_index(self, index):
        self.memory.set16(self.available + 2, index)

    def room(self):
        return len(self.free)

    def add(self, buffers, token=None, table=None):
        """Adds one chain of (address, length, writable); through an indirect table at `table`."""
        needed = 1 if table is not None else len(buffers)
        if needed > len(self.free):
            return False
        taken = [self.free.popleft() for _ in range(needed)]
        if table is not None:
            for i, (address, length, writable) in enumerate(buffers):
                more = NEXT if i + 1 < len(buffers) else 0
                self.poke_descriptor(i, address, length, more | (WRITE if writable else 0), i + 1,
                                     table)
            self.poke_descriptor(taken[0], table, 16 * len(buffers), INDIRECT)
        else:
            for i, (address, length, writable) in enumerate(buffers):
                more = i + 1 < needed
                self.poke_descriptor(taken[i], address, length,
                                     (NEXT if more else 0) | (WRITE if writable else 0),
                                     taken[i + 1] if more else 0)
        self.flying[taken[0]] = taken, token
        self.order.append(taken[0])
        self.poke_available(taken[0])
        return True

    def publish(self):
        self.poke_index(self.index)

    def kick_needed(self):
        fence()                       # the index before the event word (2.7.13.4.1)
        old, self.decided = self.decided, self.index
        if self.event_index:
            event = self.memory.get16(self.used + 4 + 8 * self.size)
            return event_passed(event, self.index, old)
        return not self.memory.get16(self.used) & 1

    def used_index(self):
        return self.memory.get16(self.used + 2)

    def reap(self):
        """What was used since the last time: a list of (token, length)."""
        finished = []
        index = self.used_index()
        while self.last_used != index:
            at = self.used + 4 + 8 * (self.last_used % self.size)
            head, length = self.memory.get32(at), self.memory.get32(at + 4)
            for _ in range(self.size):
                first = self.order[0] if self.in_order else head
                if first not in self.flying:
                    raise AssertionError("used entry %d names %d, which is not in flight"
                                         % (self.last_used, first))
                self.order.remove(first)
                taken, token = self.flying.pop(first)
                self.free.extend(taken)
                finished.append((token, length if first == head else 0))
                self.last_used = (self.last_used + 1) & 0xffff
                if first == head:
                    break
        return finished

    def arm(self):
        """Asks for a call. Returns True if nothing came in between."""
        if self.event_index:
            self.memory.set16(self.available + 4 + 2 * self.size, self.last_used)
        else:
            self.memory.set16(self.available, 0)
        fence()                       # the event word before the index (2.7.7)
        return self.used_index() == self.last_used

    def disarm(self):
        if not self.event_index:
            self.memory.set16(self.available, 1)

    def positions(self):
        """What SET_VRING_BASE would be for a device that has used everything."""
        return self.index


class PackedRing:
    packed = True

    def __init__(self, memory, size, features=0):
        self.memory, self.size = memory, size
        self.event_index = bool(features & bit(vu.F_EVENT_IDX))
        self.in_order = bool(features & bit(vu.F_IN_ORDER))
        self.descriptors = memory.allocate(16 * size, 16)
        self.available = memory.allocate(4, 4)    # driver event suppression
        self.used = memory.allocate(4, 4)         # device event suppression
        self.free_ids = collections.deque(range(size))
        self.free_slots = size
        self.next_available, self.available_wrap = 0, 1
        self.next_used, self.used_wrap = 0, 1
        self.added = 0                # descriptors since the last kick decision
        self.flying = {}              # id -> (slots, token)
        self.order = collections.deque()
        self.pending_heads = []
        self.initial_base = 0x80008000

    def addresses(self):
        return self.descriptors, self.available, self.used

    def poke_descriptor(self, index, address, length, flags, identity=0, table=None):
        at = (self.descriptors if table is None else table) + 16 * index
        memory = self.memory
        memory.set64(at, address)
        memory.set32(at + 8, length)
        memory.set16(at + 12, identity)
        memory.set16(at + 14, flags)

    def ownership(self):
        return AVAILABLE if self.available_wrap else USED

    def _advance(self):
        self.next_available += 1
        if self.next_available == self.size:
            self.next_available, self.available_wrap = 0, self.available_wrap ^ 1

    def poke_chain(self, descriptors):
        """Makes (address, length, flags, id) available as they are; the head's flags come last."""
        head = None
        for address, length, flags, identity in descriptors:
            complete = flags | self.ownership()
            if head is None:
                head = self.next_available, complete
                complete = self.memory.get16(self.descriptors + 16 * self.next_available + 14)
            self.poke_descriptor(self.next_available, address, length, complete, identity)
            self._advance()
            self.added += 1
        self.pending_heads.append(head)

    def room(self):
        return min(self.free_slots, len(self.free_ids))

    def add(self, buffers, token=None, table=None):
        needed = 1 if table is not None else len(buffers)
        if needed > self.room():
            return False
        identity = self.free_ids.popleft()
        if table is not None:
            for i, (address, length, writable) in enumerate(buffers):
                self.poke_descriptor(i, address, length, WRITE if writable else 0, 0, table)
            chain = [(table, 16 * len(buffers), INDIRECT, identity)]
        else:
            chain = [(address, length, (NEXT if i + 1 < needed else 0) | (WRITE if writable else 0),
                      identity) for i, (address, length, writable) in enumerate(buffers)]
        self.flying[identity] = needed, token
        self.order.append(identity)
        self.free_slots -= needed
        self.poke_chain(chain)
        return True

    def publish(self):
        for slot, flags in self.pending_heads:
            self.memory.set16(self.descriptors + 16 * slot + 14, flags)
        self.pending_heads.clear()

    def kick_needed(self):
        fence()                       # the flags before the event structure (2.8.21.3)
        word = self.memory.get32(self.used)
        added, self.added = self.added, 0
        flags = word >> 16 & 3
        if flags != 2:
            return flags != 1
        event, new = word & 0x7fff, self.next_available
        if (word >> 15 & 1) != self.available_wrap:
            event -= self.size
        return event_passed(event & 0xffff, new, (new - added) & 0xffff)

    def _is_used(self):
        flags = self.memory.get16(self.descriptors + 16 * self.next_used + 14)
        return bool(flags & AVAILABLE) == bool(flags & USED) == bool(self.used_wrap)

    def reap(self):
        finished = []
        while self._is_used():
            at = self.descriptors + 16 * self.next_used
            identity, flags = self.memory.get16(at + 12), self.memory.get16(at + 14)
            length = self.memory.get32(at + 8) if flags & WRITE else 0
            for _ in range(self.size):
                first = self.order[0] if self.in_order else identity
                if first not in self.flying:
                    raise AssertionError("used descriptor %d names id %d, which is not in flight"
                                         % (self.next_used, first))
                self.order.remove(first)
                slots, token = self.flying.pop(first)
                self.free_ids.append(first)
                self.free_slots += slots
                self.next_used += slots
                if self.next_used >= self.size:
                    self.next_used -= self.size
                    self.used_wrap ^= 1
                finished.append((token, length if first == identity else 0))
                if first == identity:
                    break
        return finished

    def arm(self):
        if self.event_index:
            self.memory.set16(self.available, self.next_used | self.used_wrap << 15)
            self.memory.set16(self.available + 2, 2)
        else:
            self.memory.set16(self.available + 2, 0)
        fence()                       # the structure before the descriptor (2.8.21.3.1)
        return not self._is_used()

    def disarm(self):
        self.memory.set16(self.available + 2, 1)

    def positions(self):
        here = self.next_available | self.available_wrap << 15
        return here | here << 16
