# SPDX-License-Identifier: BSD-3-Clause
"""The host's end of a port, as a socket for whole Ethernet frames: numbered frames both ways."""

import socket

from harness import check_equal, wait_for

ETHERTYPE = 0x88b5                # as in numbered_frames.py
SO_RCVBUFFORCE = 33


class HostLink:
    """All frames of our kind that come in at `interface`, and a way to send some out."""

    def __init__(self, namespace, interface):
        self.socket = namespace.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.bind((interface, ETHERTYPE))
        self.socket.setblocking(False)

    def send(self, frames):
        for frame in frames:
            self.socket.send(frame)

    def take(self):
        """What has come up to now."""
        came = []
        try:
            while True:
                frame, address = self.socket.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING:
                    came.append(frame)
        except BlockingIOError:
            return came

    def expect(self, frames, first, count, what, alive):
        """Waits for these numbered frames: each once, complete, in order, and no other."""
        came = []
        wait_for(what, lambda: came.extend(self.take()) or len(came) >= count, alive=alive)
        check_equal([frames.number(frame) for frame in came], list(range(first, first + count)),
                    what)
        for number, frame in enumerate(came, first):
            check_equal(frame, frames.frame(number), f"{what}: frame {number}")

    def close(self):
        self.socket.close()
