# SPDX-License-Identifier: BSD-3-Clause
"""Ethernet frames whose every byte follows from a stream and a number.

Whoever receives one can tell that it is complete, and which one it is: so a test can say of each
frame that it arrived once, or did not.
"""

import random
import struct


def mac_bytes(text):
    return bytes(int(part, 16) for part in text.split(":"))


class NumberedFrames:
    ETHERTYPE = b"\x88\xb5"           # for local experiments

    def __init__(self, stream=0, lengths=(60, 1514), source="02:00:00:00:00:01",
                 destination="02:00:00:00:00:02"):
        self.stream, self.lengths = stream, lengths
        self.addresses = mac_bytes(destination) + mac_bytes(source)

    def frame(self, number):
        chance = random.Random(self.stream << 40 | number)
        length = chance.randint(*self.lengths)
        head = self.addresses + self.ETHERTYPE + struct.pack(">IQ", self.stream, number)
        return head + chance.randbytes(max(0, length - len(head)))

    def returned(self, number):
        """The frame as a loop gives it back: with its two addresses exchanged."""
        frame = self.frame(number)
        return frame[6:12] + frame[:6] + frame[12:]

    def mine(self, frame):
        """Is it a frame of this stream?"""
        return frame[14:18] == struct.pack(">I", self.stream)

    @staticmethod
    def number(frame):
        return struct.unpack(">Q", frame[18:26])[0]


def describe(frame):
    """A received frame, for people."""
    if len(frame) >= 26 and frame[12:14] == NumberedFrames.ETHERTYPE:
        return "frame %d of stream %d, %d bytes" % (NumberedFrames.number(frame),
                                                   struct.unpack(">I", frame[14:18])[0], len(frame))
    return "%d bytes: %s" % (len(frame), frame[:32].hex())
