# SPDX-License-Identifier: BSD-3-Clause
"""Messages that each are allowed or nearly so, in any order, with any ring memory, beside traffic.

The seed stands in the log; VIRTWIRE_SEED repeats a run's choices."""

import os
import random
import struct

import vhost_user_client as vu
from harness import BRIEF, check, run_tests
from hostile_lab import TwoGuests
from numbered_frames import NumberedFrames
from vhost_user_client import NEED_REPLY, VERSION
from virtio_driver import NetDriver

NUMBERS = (0, 1, 2, 3, 5, 63, 64, 255, 256, 0x7fff, 0x8000, 0xffff, 0x10000, 0x80008000,
           0x00400040, 0xffffffff)


class Storm:
    """One connection of a front-end that does anything."""

    def __init__(self, driver, chance):
        self.driver, self.front_end, self.chance = driver, driver.front_end, chance
        self.extra = [vu.GuestMemory(1 << 16, guest=0x40000000 + (i << 17)) for i in range(3)]

    def close(self):
        for memory in self.extra:
            memory.close()

    def state(self):
        return vu.state(self.chance.randrange(7), self.chance.choice(NUMBERS))

    def ring(self):
        """SET_VRING_ADDR: often right, sometimes of another ring, sometimes nowhere."""
        queue = self.chance.choice(self.driver.queues)
        addresses = [a + vu.USER_OFFSET for a in queue.ring.addresses()]
        if self.chance.random() < 0.3:
            addresses[self.chance.randrange(3)] += self.chance.choice((1, 2, 16, 4096, 1 << 40))
        return vu.vring_address(self.chance.randrange(5), *addresses)

    def table(self):
        memories = self.chance.sample([self.driver.memory, *self.extra], self.chance.randrange(4))
        return vu.memory_table([m.region() for m in memories]), [m.fd for m in memories]

    def slot(self):
        memory = self.chance.choice([self.driver.memory, *self.extra])
        return vu.u64(0) + memory.region(), memory.fd

    def config(self):
        offset, size = self.chance.choice(((0, 6), (0, 60), (6, 2), (59, 1), (0, 256), (300, 4)))
        return struct.pack("=3I", offset, size, 0) + self.chance.randbytes(size)

    def message(self):
        chance, kind = self.chance, self.chance.randrange(16)
        queue = chance.choice(self.driver.queues)
        slot, slot_fd = self.slot()
        table, table_fds = self.table()
        return (
            (vu.SET_VRING_ENABLE, vu.state(chance.randrange(6), chance.randrange(2)), ()),
            (vu.SET_VRING_NUM, self.state(), ()), (vu.SET_VRING_BASE, self.state(), ()),
            (vu.GET_VRING_BASE, self.state(), ()), (vu.SET_VRING_ADDR, self.ring(), ()),
            (vu.SET_VRING_KICK, vu.u64(chance.randrange(5)), [queue.kick]),
            (vu.SET_VRING_CALL, vu.u64(chance.randrange(5)), [queue.call]),
            (vu.SET_VRING_KICK, vu.u64(chance.randrange(5) | vu.NOFD), ()),
            (vu.SET_MEM_TABLE, table, table_fds), (vu.ADD_MEM_REG, slot, [slot_fd]),
            (vu.REM_MEM_REG, slot, ()), (vu.SET_CONFIG, self.config(), ()),
            (vu.GET_CONFIG, self.config(), ()),
            (vu.SET_FEATURES, vu.u64(self.driver.features ^ (1 << chance.choice(
                (vu.F_RING_PACKED, vu.F_EVENT_IDX, vu.F_MRG_RXBUF, vu.F_MQ, vu.F_CTRL_VQ,
                 vu.F_PROTOCOL_FEATURES, 2)))), ()),
            (vu.SET_STATUS, vu.u64(chance.choice((0, 1, 15, 128))), ()),
            (chance.choice((vu.RESET_DEVICE, vu.RESET_OWNER, vu.SET_OWNER)), b"", ()))[kind]

    def scribble(self):
        """Into the rings, but not the event suppression of ours that says whom to kick."""
        ring = self.chance.choice(self.driver.queues).ring
        address = self.chance.choice(ring.addresses()) & ~1
        for _ in range(8):
            self.driver.memory.set16(address + 2 * self.chance.randrange(64),
                                     self.chance.choice(NUMBERS))

    def turn(self):
        if self.chance.random() < 0.3:
            self.scribble()
            for queue in self.driver.queues:
                os.eventfd_write(queue.kick, 1)
        self.front_end.question(*self.message(), VERSION | NEED_REPLY)


def anything_in_any_order():
    "Messages in any order, beside rings of any content: the device lives, the other guest goes on"
    seed = int(os.environ.get("VIRTWIRE_SEED", random.randrange(1 << 32)))
    print(f"# VIRTWIRE_SEED={seed}", flush=True)
    chance, frames = random.Random(seed), NumberedFrames(9)
    for packed in (False, True):
        with TwoGuests("--queue-pairs=2", packed=packed) as lab:
            messages = 0
            for _ in range(20 if BRIEF else 100):
                with NetDriver(lab.path, packed=packed, pairs=2, control=True) as driver:
                    driver.send([frames.frame(i) for i in range(20)])
                    storm = Storm(driver, chance)
                    try:
                        for _ in range(100):
                            storm.turn()
                            messages += 1
                    except vu.Closed:
                        pass
                    storm.close()
            print(f"# {messages} messages", flush=True)
            check(messages > 500, f"only {messages} messages were answered")
            lab.steady.goes_on()
            lab.works(packed=packed)


run_tests(anything_in_any_order)
