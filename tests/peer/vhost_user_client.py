# SPDX-License-Identifier: BSD-3-Clause
"""A vhost-user front-end that says exactly what it is told to say, true or not.

Theory of operation
-------------------
`FrontEnd` is the socket: it frames messages, carries file descriptors with byte 0 of the header,
and reads replies. Every field of a message can be set by hand, so that a test can send what no
honest front-end would. `GuestMemory` is a file in memory (memfd) that both ends map; addresses in
it are guest addresses, and the front-end's user addresses are the same plus a constant, so that a
back-end that mixes the two up is found out.

Words of ring memory are written through typed memory views: one store of 2, 4 or 8 bytes, as the
rings need it. (struct.pack_into may store byte by byte.)

The virtio driver that lives in this memory is in virtio_driver.py.
"""

import mmap
import os
import select
import socket
import struct
import threading
import time

# Front-end requests.
GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE = 1, 2, 3, 4, 5
SET_LOG_BASE, SET_LOG_FD, SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE = 6, 7, 8, 9, 10
GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR = 11, 12, 13, 14
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE = 15, 16, 17, 18
SEND_RARP, NET_SET_MTU, SET_BACKEND_REQ_FD, IOTLB_MSG, SET_VRING_ENDIAN = 19, 20, 21, 22, 23
GET_CONFIG, SET_CONFIG, CREATE_CRYPTO_SESSION, CLOSE_CRYPTO_SESSION = 24, 25, 26, 27
POSTCOPY_ADVISE, POSTCOPY_LISTEN, POSTCOPY_END = 28, 29, 30
GET_INFLIGHT_FD, SET_INFLIGHT_FD = 31, 32
GPU_SET_SOCKET, RESET_DEVICE, VRING_KICK, GET_MAX_MEM_SLOTS = 33, 34, 35, 36
ADD_MEM_REG, REM_MEM_REG, SET_STATUS, GET_STATUS, GET_SHARED_OBJECT = 37, 38, 39, 40, 41
SET_DEVICE_STATE_FD, CHECK_DEVICE_STATE, GET_SHMEM_CONFIG = 42, 43, 44

# Back-end requests, on the channel of SET_BACKEND_REQ_FD.
BACKEND_CONFIG_CHANGE, BACKEND_VRING_CALL, BACKEND_VRING_ERR = 2, 4, 5

# Bits of a message's flags.
VERSION, REPLY, NEED_REPLY = 1, 4, 8

# Protocol features, as bit numbers.
PF_MQ, PF_LOG_SHMFD, PF_RARP, PF_REPLY_ACK, PF_MTU, PF_BACKEND_REQ = 0, 1, 2, 3, 4, 5
PF_CONFIG, PF_INFLIGHT_SHMFD, PF_RESET_DEVICE, PF_INBAND = 9, 12, 13, 14
PF_CONFIGURE_MEM_SLOTS, PF_STATUS = 15, 16

# Feature bits that the tests name.
F_CSUM, F_GUEST_CSUM, F_MTU, F_MAC, F_HOST_TSO4, F_HOST_UFO = 0, 1, 3, 5, 11, 14
F_MRG_RXBUF, F_STATUS = 15, 16
F_CTRL_VQ, F_CTRL_RX, F_CTRL_VLAN, F_GUEST_ANNOUNCE, F_MQ, F_CTRL_MAC_ADDR = 17, 18, 19, 21, 22, 23
F_LOG_ALL, F_INDIRECT_DESC, F_EVENT_IDX, F_PROTOCOL_FEATURES = 26, 28, 29, 30
F_VERSION_1, F_ACCESS_PLATFORM, F_RING_PACKED, F_IN_ORDER, F_HASH_REPORT = 32, 33, 34, 35, 57

NOFD = 0x100            # in the payload of SET_VRING_KICK, CALL and ERR
USER_OFFSET = 0x7000_0000_0000

# Requests that have an answer of their own, whether or not NEED_REPLY is set.
ALWAYS_ANSWERED = {GET_FEATURES, GET_PROTOCOL_FEATURES, GET_VRING_BASE, GET_QUEUE_NUM, GET_CONFIG,
                   GET_MAX_MEM_SLOTS, GET_STATUS}

DEADLINE = float(os.environ.get("VIRTWIRE_PATIENCE", "180"))   # for any single wait

_fence_lock = threading.Lock()


def fence():
    """A full barrier: taking a lock is an atomic read-modify-write."""
    with _fence_lock:
        pass


def bit(number):
    return 1 << number


class Closed(Exception):
    """The back-end closed the connection."""


class Refused(Exception):
    """The back-end answered a request with a non-zero acknowledgement."""


class GuestMemory:
    """`size` bytes of guest memory from guest address `guest` on, in a memfd of its own."""

    def __init__(self, size=4 << 20, guest=0x100000, fd_offset=0):
        self.size, self.guest, self.fd_offset = size, guest, fd_offset
        self.fd = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, fd_offset + size)
        self.map = mmap.mmap(self.fd, size, offset=fd_offset)
        self.u8 = memoryview(self.map)
        self.u16, self.u32, self.u64 = (self.u8.cast(code) for code in "HIQ")
        self._next = 0

    @property
    def user(self):
        return self.guest + USER_OFFSET

    def allocate(self, length, align=16):
        """A fresh piece, filled with zeros. Returns its guest address."""
        start = -(-self._next // align) * align
        if start + length > self.size:
            raise MemoryError("the test asks for more guest memory than it made")
        self._next = start + length
        return self.guest + start

    def _at(self, address, length):
        offset = address - self.guest
        if offset < 0 or offset + length > self.size:
            raise IndexError("guest address %#x is outside this memory" % address)
        return offset

    def write(self, address, data):
        offset = self._at(address, len(data))
        self.u8[offset:offset + len(data)] = data

    def read(self, address, length):
        offset = self._at(address, length)
        return bytes(self.u8[offset:offset + length])

    def get16(self, address):
        return self.u16[self._at(address, 2) >> 1]

    def get32(self, address):
        return self.u32[self._at(address, 4) >> 2]

    def set16(self, address, value):
        self.u16[self._at(address, 2) >> 1] = value & 0xffff

    def set32(self, address, value):
        self.u32[self._at(address, 4) >> 2] = value & 0xffffffff

    def set64(self, address, value):
        self.u64[self._at(address, 8) >> 3] = value & 0xffffffffffffffff

    def region(self):
        """As a message has it: guest address, size, user address, offset in the file."""
        return struct.pack("=4Q", self.guest, self.size, self.user, self.fd_offset)

    def close(self):
        for view in (self.u16, self.u32, self.u64, self.u8):
            view.release()
        self.map.close()
        os.close(self.fd)


def state(index, number=0):
    """The payload {index, num} of the SET_VRING_* family."""
    return struct.pack("=2I", index, number)


def u64(value):
    return struct.pack("=Q", value & 0xffffffffffffffff)


def memory_table(regions):
    """The payload of SET_MEM_TABLE, from packed regions."""
    return struct.pack("=2I", len(regions), 0) + b"".join(regions)


def vring_address(index, descriptor, available, used, flags=0, log=0):
    """The payload of SET_VRING_ADDR; the used ring comes before the available ring."""
    return struct.pack("=2I4Q", index, flags, descriptor, used, available, log)


def receive_exactly(sock, length):
    data = b""
    while len(data) < length:
        piece = sock.recv(length - len(data))
        if not piece:
            raise Closed("closed in the middle of a message")
        data += piece
    return data


def receive_message(sock):
    """One message: (request, flags, payload, file descriptors)."""
    try:
        head, fds, _, _ = socket.recv_fds(sock, 12, 16)
        if not head:
            raise Closed("the other end closed the connection")
        head += receive_exactly(sock, 12 - len(head))
        request, flags, size = struct.unpack("=3I", head)
        return request, flags, receive_exactly(sock, size), fds
    except ConnectionError as error:
        raise Closed(str(error)) from error


def pack_message(request, payload=b"", flags=VERSION, size=None):
    return struct.pack("=3I", request, flags, len(payload) if size is None else size) + payload


def connect(sock, path):
    """Connects, also to a socket that exists and is about to listen."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return sock.connect(path)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


class FrontEnd:
    """One connection to a back-end."""

    def __init__(self, path=None, sock=None):
        if sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connect(sock, str(path))
        sock.settimeout(DEADLINE)
        self.sock = sock
        self.features = 0             # acknowledged
        self.protocol = 0             # acknowledged
        self.channel = None           # our end of the back-end's request channel
        self.calls_inband = {}        # ring index -> VRING_CALL messages received
        self.config_changes = 0

    # Raw messages.

    def send(self, request, payload=b"", fds=(), flags=VERSION, size=None):
        data = pack_message(request, payload, flags, size)
        try:
            sent = socket.send_fds(self.sock, [data], list(fds)) if fds else self.sock.send(data)
            if sent < len(data):
                self.sock.sendall(data[sent:])
        except ConnectionError as error:
            raise Closed(str(error)) from error

    def receive(self):
        return receive_message(self.sock)

    def question(self, request, payload=b"", fds=(), flags=VERSION):
        """Sends a request that is always answered, and returns the answer's payload."""
        self.send(request, payload, fds, flags)
        answered, reply_flags, reply, reply_fds = self.receive()
        for fd in reply_fds:
            os.close(fd)
        if answered != request or reply_flags & 7 != VERSION | REPLY:
            raise AssertionError("request %d got the answer of %d with flags %#x"
                                 % (request, answered, reply_flags))
        return reply

    def order(self, request, payload=b"", fds=()):
        """Sends a request without an answer of its own; asks for an acknowledgement if it may."""
        if not self.protocol & bit(PF_REPLY_ACK):
            self.send(request, payload, fds)
            return
        reply = self.question(request, payload, fds, VERSION | NEED_REPLY)
        if len(reply) != 8 or struct.unpack("=Q", reply)[0]:
            raise Refused("request %d: answer %s" % (request, reply.hex()))

    def barrier(self):
        """All that was sent before has been handled once this returns. Returns the offer."""
        return struct.unpack("=Q", self.question(GET_FEATURES))[0]

    def closed_by_peer(self):
        """Waits for the back-end to close. Replies that come first are thrown away."""
        try:
            while True:
                for fd in self.receive()[3]:
                    os.close(fd)
        except Closed:
            return True
        except TimeoutError:
            return False

    # Messages with a meaning.

    def get_u64(self, request):
        return struct.unpack("=Q", self.question(request))[0]

    def set_protocol_features(self, wanted):
        """Acknowledges those of `wanted` that are offered."""
        self.protocol_offer = self.get_u64(GET_PROTOCOL_FEATURES)
        acknowledged = wanted & self.protocol_offer
        self.send(SET_PROTOCOL_FEATURES, u64(acknowledged))
        self.protocol = acknowledged

    def set_features(self, features):
        self.order(SET_FEATURES, u64(features))
        self.features = features

    def set_memory(self, *memories):
        self.order(SET_MEM_TABLE, memory_table([m.region() for m in memories]),
                   [m.fd for m in memories])

    def add_memory(self, memory):
        self.order(ADD_MEM_REG, u64(0) + memory.region(), [memory.fd])

    def remove_memory(self, memory):
        self.order(REM_MEM_REG, u64(0) + memory.region())

    def enable(self, index, on=True):
        self.order(SET_VRING_ENABLE, state(index, int(on)))

    def get_base(self, index):
        index_back, base = struct.unpack("=2I", self.question(GET_VRING_BASE, state(index)))
        assert index_back == index
        return base

    def get_config(self, offset, size):
        reply = self.question(GET_CONFIG, struct.pack("=3I", offset, size, 0) + bytes(size))
        if not reply:
            raise Refused("GET_CONFIG %d, %d" % (offset, size))
        assert struct.unpack("=2I", reply[:8]) == (offset, size) and len(reply) == 12 + size
        return reply[12:]

    # The channel on which the back-end asks us.

    def open_channel(self):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel.settimeout(DEADLINE)
        with theirs:
            self.order(SET_BACKEND_REQ_FD, fds=[theirs.fileno()])

    def serve_channel(self):
        """Handles one back-end request; acknowledges it if asked to."""
        request, flags, payload, fds = receive_message(self.channel)
        for fd in fds:
            os.close(fd)
        if request == BACKEND_VRING_CALL:
            index = struct.unpack("=2I", payload)[0]
            self.calls_inband[index] = self.calls_inband.get(index, 0) + 1
        elif request == BACKEND_CONFIG_CHANGE:
            self.config_changes += 1
        if flags & NEED_REPLY:
            self.channel.sendall(pack_message(request, u64(0), VERSION | REPLY))
        return request

    def close(self):
        self.sock.close()
        if self.channel:
            self.channel.close()


def wait_readable(fds, seconds=DEADLINE):
    """Waits until one of the descriptors is readable; returns those that are."""
    return select.select(fds, [], [], seconds)[0]
