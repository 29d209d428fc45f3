# SPDX-License-Identifier: BSD-3-Clause
"""Front-ends that break the vhost-user protocol: they harm themselves, and nobody else."""

import os
import socket
import struct

import vhost_user_client as vu
from harness import check, check_equal, run_tests, wait_for
from hostile_lab import TwoGuests, expecting_close, not_accepted
from virtio_driver import NetDriver
from vhost_user_client import NEED_REPLY, VERSION, bit

ACK = bit(vu.PF_REPLY_ACK)
EVERYTHING = 0xfffff          # all protocol features that are offered

# A well-formed payload for each request that has one; the others have none.
PAYLOADS = {
    vu.SET_FEATURES: vu.u64(bit(vu.F_VERSION_1) | bit(vu.F_PROTOCOL_FEATURES)),
    vu.SET_LOG_BASE: bytes(16), vu.SET_VRING_NUM: vu.state(0, 64),
    vu.SET_VRING_ADDR: vu.vring_address(0, 0, 0, 0), vu.SET_VRING_BASE: vu.state(0, 0),
    vu.GET_VRING_BASE: vu.state(0), vu.SET_VRING_KICK: vu.u64(vu.NOFD),
    vu.SET_VRING_CALL: vu.u64(vu.NOFD), vu.SET_VRING_ERR: vu.u64(vu.NOFD),
    vu.SET_PROTOCOL_FEATURES: vu.u64(0), vu.SET_VRING_ENABLE: vu.state(0, 0),
    vu.SET_MEM_TABLE: vu.memory_table([]), vu.SEND_RARP: vu.u64(2), vu.NET_SET_MTU: vu.u64(1500),
    vu.IOTLB_MSG: bytes(32), vu.SET_VRING_ENDIAN: vu.state(0, 0),
    vu.GET_CONFIG: struct.pack("=3I", 0, 6, 0) + bytes(6),
    vu.SET_CONFIG: struct.pack("=3I", 0, 6, 0) + bytes(6), vu.CREATE_CRYPTO_SESSION: bytes(64),
    vu.CLOSE_CRYPTO_SESSION: bytes(8), vu.GET_INFLIGHT_FD: bytes(24), vu.SET_INFLIGHT_FD: bytes(24),
    vu.VRING_KICK: vu.state(0), vu.ADD_MEM_REG: bytes(40), vu.REM_MEM_REG: bytes(40),
    vu.SET_STATUS: vu.u64(0), vu.GET_SHARED_OBJECT: bytes(16), vu.SET_DEVICE_STATE_FD: bytes(8),
}


def transcript(front_end, request, payload=b"", fds=(), flags=VERSION):
    """The answers to one message. Another request behind it, with an answer of its own, is the
    barrier that tells that no more will come."""
    barrier = vu.GET_PROTOCOL_FEATURES if request == vu.GET_FEATURES else vu.GET_FEATURES
    front_end.send(request, payload, fds, flags)
    front_end.send(barrier)
    answers = []
    while True:
        answer = front_end.receive()
        if answer[0] == barrier and answer[0] != request:
            return answers
        answers.append(answer)


def flood_of_descriptors():
    "10 000 messages with 0, 1, 8 and 9 descriptors leave no descriptor open"
    with TwoGuests() as lab:
        spare = os.open("/dev/null", os.O_RDONLY)
        before = lab.device.open_descriptors()
        front_end = lab.connect(EVERYTHING & ~bit(vu.PF_INBAND))
        for number in range(10000):
            request = number // 4 % 46
            try:
                transcript(front_end, request, PAYLOADS.get(request, b""),
                           [spare] * (0, 1, 8, 9)[number % 4])
            except vu.Closed:
                front_end.close()
                front_end = lab.connect(EVERYTHING & ~bit(vu.PF_INBAND), owner=number % 3 > 0)
        front_end.close()
        os.close(spare)
        wait_for("as many open descriptors as before",
                 lambda: lab.device.open_descriptors() == before, alive=lab.device)
        lab.works()


def too_many_descriptors_at_once():
    "40 descriptors with one message: the connection ends, no descriptor stays"
    with TwoGuests() as lab:
        before = lab.device.open_descriptors()
        for count in (10, 33, 40, 253):
            front_end = lab.connect()
            spare = os.open("/dev/null", os.O_RDONLY)
            with expecting_close():
                transcript(front_end, vu.SET_OWNER, fds=[spare] * count)
            front_end.close()
            os.close(spare)
        wait_for("as many open descriptors as before",
                 lambda: lab.device.open_descriptors() == before, alive=lab.device)
        lab.works()


def bad_memory_tables():
    "Regions past the end of their file, overflowing, overlapping, empty, too many: refused"
    region = lambda guest, size, user, offset: struct.pack("=4Q", guest, size, user, offset)
    top = (1 << 64) - 4096
    tables = {
        "a region past the end of its file": ([region(0, 8192, 0x10000, 0)], 1),
        "an offset past the end of the file": ([region(0, 4096, 0x10000, 1 << 40)], 1),
        "an offset that overflows": ([region(0, 4096, 0x10000, top)], 1),
        "a size that overflows": ([region(0, (1 << 64) - 1, 0x10000, 0)], 1),
        "a guest address that overflows": ([region(top, 8192, 0x10000, 0)], 1),
        "a user address that overflows": ([region(0, 8192, top, 0)], 1),
        "an empty region": ([region(0, 0, 0x10000, 0)], 1),
        "overlapping guest addresses":
            ([region(0, 4096, 0x10000, 0), region(0, 4096, 0x20000, 0)], 2),
        "overlapping user addresses":
            ([region(0, 4096, 0x10000, 0), region(8192, 4096, 0x10000, 0)], 2),
        "more regions than descriptors": ([region(0, 4096, 0x10000, 0)], 0),
        "more descriptors than regions": ([region(0, 4096, 0x10000, 0)], 2),
        "nine regions": ([region(i << 13, 4096, i << 13, 0) for i in range(9)], 9),
    }
    with TwoGuests() as lab:
        file = os.memfd_create("short")
        os.ftruncate(file, 4096)
        for what, (regions, count) in tables.items():
            front_end = lab.connect()
            not_accepted(front_end, what, vu.SET_MEM_TABLE, vu.memory_table(regions),
                         [file] * count)
            front_end.close()
        counts = {"2^32 - 1 regions": 0xffffffff, "two regions in the space of one": 2}
        for what, number in counts.items():
            front_end = lab.connect()
            not_accepted(front_end, what, vu.SET_MEM_TABLE,
                         struct.pack("=2I", number, 0) + region(0, 4096, 0x10000, 0), [file])
            front_end.close()
        os.close(file)
        lab.works()


def memory_that_is_no_memory():
    "A memory region that is a pipe, a directory, /dev/zero or read-only: refused, no harm"
    with TwoGuests() as lab:
        reader, writer = os.pipe()
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        sealed = os.memfd_create("read-only")
        os.ftruncate(sealed, 4096)
        read_only = os.open(f"/proc/self/fd/{sealed}", os.O_RDONLY)
        for what, fd in (("a pipe", writer), ("a directory", folder), ("read-only", read_only)):
            front_end = lab.connect()
            not_accepted(front_end, "memory that is " + what, vu.SET_MEM_TABLE,
                         vu.memory_table([struct.pack("=4Q", 0, 4096, 0x10000, 0)]), [fd])
            front_end.close()
        for fd in (reader, writer, folder, sealed, read_only):
            os.close(fd)
        lab.works()


def bad_ring_configuration():
    "Ring indices, sizes, positions and addresses that cannot be: refused"
    for packed in (False, True):
        with TwoGuests() as lab:
            with NetDriver(lab.path, packed=packed, start=False) as driver:
                memory, inside = driver.memory, driver.tx().ring.addresses()
                wrong = bad_ring_messages(packed, memory, inside)
            for what, prepare, request, payload in wrong:
                with NetDriver(lab.path, packed=packed, start=False) as driver:
                    for message, content in prepare:
                        driver.front_end.order(message, content)
                    refused_before_use(driver, what, request, payload)
            lab.works(packed=packed)


def bad_ring_messages(packed, memory, inside):
    """A list of (what is wrong, messages before, request, payload)."""
    wrong = []
    for index in (256, 0x10000, 0x7fffffff, 0xffffffff):
        what = f"ring index {index:#x}"
        for request in (vu.SET_VRING_NUM, vu.SET_VRING_BASE, vu.SET_VRING_ENABLE,
                        vu.GET_VRING_BASE):
            wrong.append((what, [], request, vu.state(index, 1)))
        wrong.append((what, [], vu.SET_VRING_ADDR, vu.vring_address(index, *inside)))
    wrong.append(("a kick for ring 255", [], vu.SET_VRING_KICK, vu.u64(255 | vu.NOFD)))
    for size in (0, 65536, 32769, 0xffffffff) + (() if packed else (3, 255)):
        wrong.append((f"ring size {size}", [], vu.SET_VRING_NUM, vu.state(1, size)))
    size = [(vu.SET_VRING_NUM, vu.state(1, 64))]
    base = 0x10000 if not packed else 64 << 16 | 64
    wrong.append((f"base {base:#x}", size, vu.SET_VRING_BASE, vu.state(1, base)))
    descriptor, available, used = (part + vu.USER_OFFSET for part in inside)
    end = memory.user + memory.size
    for what, parts in {
            "a misaligned descriptor area": (descriptor + 8, available, used),
            "a misaligned driver area": (descriptor, available + 1, used),
            "a misaligned device area": (descriptor, available, used + 2),
            "an address outside memory": (descriptor, end + 4096, used),
            "an area over the end of memory": (end - 16, available, used),
            "an area that overflows": ((1 << 64) - 16, available, used),
            "guest addresses": inside}.items():
        wrong.append((what, size, vu.SET_VRING_ADDR, vu.vring_address(1, *parts)))
    return wrong


def refused_before_use(driver, what, request, payload):
    """The wrong message, or the start of the ring with it, is refused or ends the connection."""
    front_end, queue = driver.front_end, driver.tx()
    with expecting_close():
        if request == vu.GET_VRING_BASE:
            front_end.question(request, payload)
            front_end.barrier()
            return
        if any(front_end.question(request, payload, (), VERSION | NEED_REPLY)):
            return
        queue.kick, queue.call = os.eventfd(0), os.eventfd(0)
        os.eventfd_write(queue.kick, 1)
        parts = [part + vu.USER_OFFSET for part in queue.ring.addresses()]
        rest = {vu.SET_VRING_NUM: (vu.state(1, 64), []),
                vu.SET_VRING_BASE: (vu.state(1, queue.ring.initial_base), []),
                vu.SET_VRING_ADDR: (vu.vring_address(1, *parts), []),
                vu.SET_VRING_CALL: (vu.u64(1), [queue.call]),
                vu.SET_VRING_KICK: (vu.u64(1), [queue.kick]),
                vu.SET_VRING_ENABLE: (vu.state(1, 1), [])}
        rest.pop(request, None)
        for message, (content, fds) in rest.items():
            if any(front_end.question(message, content, fds, VERSION | NEED_REPLY)):
                return
        check(False, f"the device accepted {what} and started the ring")


def features_outside_the_offer():
    "SET_FEATURES with any single bit that was not offered is refused"
    with TwoGuests() as lab:
        front_end = lab.connect()
        offer = front_end.barrier()
        check(not offer & bit(vu.F_LOG_ALL), "LOG_ALL is offered, but there is no dirty log")
        check(offer & bit(vu.F_VERSION_1), "VERSION_1 is not offered")
        front_end.close()
        tried = 0
        for number in range(64):
            if not offer & bit(number):
                front_end = lab.connect()
                not_accepted(front_end, f"feature {number}", vu.SET_FEATURES,
                             vu.u64(bit(number) | bit(vu.F_VERSION_1)))
                front_end.close()
                tried += 1
        check(tried > 20, f"only {tried} bits are outside the offer")
        lab.works()


def protocol_features_outside_the_offer():
    "SET_PROTOCOL_FEATURES with a bit that was not offered, or in-band without its needs: refused"
    with TwoGuests() as lab:
        front_end = lab.connect()
        offer = front_end.protocol_offer
        front_end.close()
        for number in range(64):
            if not offer & bit(number):
                front_end = lab.connect()
                not_accepted(front_end, f"protocol feature {number}", vu.SET_PROTOCOL_FEATURES,
                             vu.u64(bit(number) | ACK))
                front_end.close()
        front_end = lab.connect(protocol=0)
        with expecting_close():
            front_end.send(vu.SET_PROTOCOL_FEATURES, vu.u64(bit(vu.PF_INBAND)))
            front_end.barrier()
            check(False, "in-band notifications without BACKEND_REQ and REPLY_ACK were accepted")
        front_end.close()
        lab.works()


def one_answer_each():
    "Each request x NEED_REPLY x REPLY_ACK: neither an answer too few nor one too many"
    with TwoGuests() as lab:
        for acknowledged in (EVERYTHING & ~bit(vu.PF_INBAND), 0, ACK):
            for need_reply in (0, NEED_REPLY):
                for request in [*range(1, 46), 0, 1000, 0xffffffff]:
                    one_transcript(lab, acknowledged, need_reply, request)
        lab.works()


def one_transcript(lab, acknowledged, need_reply, request):
    front_end = lab.connect(acknowledged)
    memory = vu.GuestMemory(65536)
    payload, fds = PAYLOADS.get(request, b""), []
    if request == vu.SET_PROTOCOL_FEATURES:
        payload = vu.u64(front_end.protocol)
    if request == vu.SET_MEM_TABLE:
        payload, fds = vu.memory_table([memory.region()]), [memory.fd]
    if request in (vu.ADD_MEM_REG, vu.REM_MEM_REG):
        if request == vu.REM_MEM_REG and front_end.protocol & bit(vu.PF_CONFIGURE_MEM_SLOTS):
            front_end.add_memory(memory)
        payload = vu.u64(0) + memory.region()
        fds = [memory.fd] if request == vu.ADD_MEM_REG else []
    what = f"request {request}, protocol {front_end.protocol:#x}, NEED_REPLY {bool(need_reply)}"
    spare = socket.socketpair()
    if request == vu.SET_BACKEND_REQ_FD:
        fds = [spare[0].fileno()]
    try:
        answers = transcript(front_end, request, payload, fds, VERSION | need_reply)
        for answered, flags, content, _ in answers:
            check_equal((answered, flags & 7), (request, VERSION | vu.REPLY), what)
        own = request in vu.ALWAYS_ANSWERED
        due = 1 if own or need_reply and front_end.protocol & ACK else 0
        check_equal(len(answers), due, "answers to " + what)
        if due and not own:
            check_equal(len(answers[0][2]), 8, "length of the acknowledgement of " + what)
    except vu.Closed:
        check(may_close(request, front_end.protocol), "the connection ended after " + what)
    for end in spare:
        end.close()
    front_end.close()
    memory.close()


# The protocol feature without which a request may not be sent; None: we offer no such feature.
GATES = {vu.GET_QUEUE_NUM: vu.PF_MQ, vu.SEND_RARP: vu.PF_RARP, vu.NET_SET_MTU: vu.PF_MTU,
         vu.SET_BACKEND_REQ_FD: vu.PF_BACKEND_REQ, vu.GET_CONFIG: vu.PF_CONFIG,
         vu.SET_CONFIG: vu.PF_CONFIG, vu.RESET_DEVICE: vu.PF_RESET_DEVICE,
         vu.VRING_KICK: vu.PF_INBAND, vu.GET_MAX_MEM_SLOTS: vu.PF_CONFIGURE_MEM_SLOTS,
         vu.ADD_MEM_REG: vu.PF_CONFIGURE_MEM_SLOTS,
         vu.REM_MEM_REG: vu.PF_CONFIGURE_MEM_SLOTS, vu.SET_STATUS: vu.PF_STATUS,
         vu.GET_STATUS: vu.PF_STATUS, vu.SET_LOG_BASE: None, vu.SET_LOG_FD: None}
HONEST = set(range(1, 26)) | {vu.RESET_DEVICE, vu.VRING_KICK, vu.GET_MAX_MEM_SLOTS, vu.ADD_MEM_REG,
                              vu.REM_MEM_REG, vu.SET_STATUS, vu.GET_STATUS}


def may_close(request, protocol):
    """A request that was not negotiated may end the connection; an unknown one must not."""
    if request in (vu.SET_VRING_ADDR, vu.IOTLB_MSG, vu.SET_VRING_ENDIAN, vu.SET_VRING_ENABLE):
        return True           # an address outside memory; features that were not acknowledged
    if request in HONEST:
        gate = GATES.get(request, -1)
        return gate is None or gate >= 0 and not protocol & bit(gate)
    return request in range(26, 45)


def truncated_messages():
    "Messages cut off at every byte, then closed: nothing stays behind"
    with TwoGuests() as lab:
        spare = os.open("/dev/null", os.O_RDONLY)
        before = lab.device.open_descriptors()
        for request in (vu.SET_MEM_TABLE, vu.SET_VRING_KICK, vu.GET_FEATURES):
            whole = vu.pack_message(request, {vu.SET_MEM_TABLE: vu.memory_table([bytes(32)]),
                                              vu.SET_VRING_KICK: vu.u64(0)}.get(request, b""))
            for length in range(1, len(whole)):
                front_end = lab.connect()
                socket.send_fds(front_end.sock, [whole[:length]], [spare])
                front_end.close()
        os.close(spare)
        wait_for("as many open descriptors as before",
                 lambda: lab.device.open_descriptors() == before, alive=lab.device)
        lab.works()


class Trickle(vu.FrontEnd):
    """A front-end whose messages arrive byte by byte."""

    def send(self, request, payload=b"", fds=(), flags=VERSION, size=None):
        data = vu.pack_message(request, payload, flags, size)
        socket.send_fds(self.sock, [data[:1]], list(fds))
        for byte in data[1:]:
            self.sock.sendall(bytes([byte]))


def byte_by_byte():
    "A front-end that sends byte by byte is served like any other"
    honest = vu.FrontEnd
    with TwoGuests() as lab:
        vu.FrontEnd = Trickle
        try:
            for packed in (False, True):
                lab.works(packed=packed)
        finally:
            vu.FrontEnd = honest


def several_messages_at_once():
    "Messages that arrive in one piece are told apart, and keep their own descriptors"
    with TwoGuests() as lab:
        front_end = lab.connect()
        front_end.sock.sendall(vu.pack_message(vu.GET_FEATURES) * 100)
        check_equal([front_end.receive()[0] for _ in range(100)], [vu.GET_FEATURES] * 100,
                    "answers")
        front_end.close()
        lab.works()


def malformed_headers():
    "Oversized payloads, wrong versions and replies that nobody asked for end the connection"
    wrong = [("payload of 4 GiB", VERSION, 0xffffffff), ("payload of 1 MiB", VERSION, 1 << 20),
             ("version 0", 0, 0), ("version 2", 2, 0), ("version 3", 3, 0),
             ("a reply", VERSION | 4, 0)]
    with TwoGuests() as lab:
        for what, flags, size in wrong:
            for request in (vu.GET_FEATURES, vu.SET_MEM_TABLE, 99):
                front_end = lab.connect()
                front_end.send(request, b"", flags=flags, size=size)
                check(front_end.closed_by_peer(), f"the connection survived {what} ({request})")
                front_end.close()
        for request, payload in PAYLOADS.items():
            # A memory table may have room for more regions than it holds.
            for wrong_size in (payload[:-1], payload + b"\0")[:1 + (request != vu.SET_MEM_TABLE)]:
                front_end = lab.connect(EVERYTHING & ~bit(vu.PF_INBAND))
                with expecting_close():
                    if request not in vu.ALWAYS_ANSWERED and request != vu.SET_PROTOCOL_FEATURES:
                        not_accepted(front_end, f"request {request} of {len(wrong_size)} bytes",
                                     request, wrong_size)
                    else:
                        front_end.send(request, wrong_size)
                        front_end.barrier()
                front_end.close()
        lab.works()


def messages_out_of_order():
    "Any message as the very first one, and any twice, does no harm"
    with TwoGuests() as lab:
        for request in range(0, 46):
            for repeat in (1, 2):
                front_end = vu.FrontEnd(lab.path)
                with expecting_close():
                    for _ in range(repeat):
                        front_end.send(request, PAYLOADS.get(request, b""))
                    front_end.send(vu.GET_FEATURES)
                    front_end.sock.shutdown(socket.SHUT_WR)
                    while True:
                        front_end.receive()
                front_end.close()
        lab.works()


run_tests(flood_of_descriptors, too_many_descriptors_at_once, bad_memory_tables,
          memory_that_is_no_memory, bad_ring_configuration, features_outside_the_offer,
          protocol_features_outside_the_offer, one_answer_each, truncated_messages, byte_by_byte,
          several_messages_at_once, malformed_headers, messages_out_of_order)
