# SPDX-License-Identifier: BSD-3-Clause
"""A file system that answers only as long as it likes, spoken by hand (<linux/fuse.h>).

It has one file, `memory`. Whoever asks for a page of it waits; once it is silenced, so does
whoever asks for anything. A process of its own serves it, since whoever hangs must be another."""
import ctypes
import os
import signal
import stat
import struct

from lab.process import LIBC, PR_SET_PDEATHSIG, RESOURCES, Failure

LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 36, 42
ENOENT, ENOSYS = 2, 38
ROOT, MEMORY = 1, 2


def _attributes(node, size):
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o666
    return struct.pack("=6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096,
                       0)


class SilentFileSystem:
    """Mounted at `folder` until it is closed."""

    def __init__(self, folder, size):
        self.size, self.folder, self.name = size, folder, "file system"
        self.silence, told = os.pipe()
        os.set_blocking(self.silence, False)
        self.asked_for_pages, asked = os.pipe()
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
        if LIBC.mount(b"fuse", folder.encode(), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
            raise Failure(f"cannot mount a FUSE file system: {os.strerror(ctypes.get_errno())}")
        self.server = os.fork()
        if self.server == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                self._serve(device, asked)
            finally:
                os._exit(1)
        os.close(device)
        os.close(asked)
        self.told = told
        RESOURCES.add(self)

    def path(self):
        return os.path.join(self.folder, "memory")

    def be_silent(self):
        os.write(self.told, b"x")

    def pages_were_asked_for(self):
        os.set_blocking(self.asked_for_pages, False)
        try:
            return bool(os.read(self.asked_for_pages, 1))
        except BlockingIOError:
            return False

    def close(self):
        """Whoever waits for the file system gets an error now."""
        if self.server is None:
            return
        RESOURCES.remove(self)
        os.kill(self.server, signal.SIGKILL)
        os.waitpid(self.server, 0)
        self.server = None
        LIBC.umount2(self.folder.encode(), 2)
        for fd in (self.silence, self.told, self.asked_for_pages):
            os.close(fd)

    def _serve(self, device, asked):
        while True:
            request = os.read(device, 1 << 17)
            _, operation, unique, node = struct.unpack_from("=IIQQ", request)
            if operation in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            if operation == READ:
                os.write(asked, b"x")
                continue
            try:
                os.read(self.silence, 1)
                while True:
                    signal.pause()
            except BlockingIOError:
                pass
            error, answer = self._answer(operation, node, request[40:])
            os.write(device, struct.pack("=IiQ", 16 + len(answer), -error, unique) + answer)

    def _answer(self, operation, node, body):
        if operation == INIT:
            return 0, struct.pack("=4I2H2I2H8I", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 16, 0, *[0] * 8)
        if operation == LOOKUP:
            if body != b"memory\0":
                return ENOENT, b""
            return 0, struct.pack("=4Q2I", MEMORY, 0, 0, 0, 0, 0) + _attributes(MEMORY, self.size)
        if operation == GETATTR:
            return 0, struct.pack("=Q2I", 0, 0, 0) + _attributes(node, self.size)
        if operation == OPEN:
            return 0, struct.pack("=Q2I", 0, 0, 0)
        if operation == 25:           # FLUSH, at each close
            return 0, b""
        return ENOSYS, b""
