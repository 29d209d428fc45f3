# SPDX-License-Identifier: BSD-3-Clause
"""Guest memory whose pages come only when somebody else likes: refused, and nobody waits."""

import contextlib
import os
import struct

import vhost_user_client as vu
from harness import BUILD, check, check_equal, private_folder, run_tests
from hostile_lab import TwoGuests
from lab.fuse import SilentFileSystem
from vhost_user_client import NEED_REPLY, VERSION

SIZE = 1 << 20


def region():
    return struct.pack("=4Q", 0x100000, SIZE, 0x7000_0010_0000, 0)


def offer(lab, request, fd):
    """Offers the file as guest memory. Was it accepted?"""
    front_end = lab.connect(1 << vu.PF_REPLY_ACK | 1 << vu.PF_CONFIGURE_MEM_SLOTS)
    payload = vu.memory_table([region()]) if request == vu.SET_MEM_TABLE else vu.u64(0) + region()
    answer = front_end.question(request, payload, [fd], VERSION | NEED_REPLY)
    front_end.barrier()
    front_end.close()
    return not any(answer)


def give_up(files, fd):
    """Whoever waits for the file system goes on, so that the device can end, and we, too."""
    files.close()
    with contextlib.suppress(OSError):
        os.close(fd)


def memory_of_a_silent_file_system():
    "Memory on a FUSE file system is refused, whether that answers or not"
    folder = os.path.join(private_folder(), "fuse")
    os.mkdir(folder)
    files = SilentFileSystem(folder, SIZE)
    fd = os.open(files.path(), os.O_RDWR)
    with TwoGuests() as lab:
        for silent in (False, True):
            for request in (vu.SET_MEM_TABLE, vu.ADD_MEM_REG):
                check(not offer(lab, request, fd), f"accepted, silent: {silent}")
                lab.steady.goes_on()
            check("no file in memory" in lab.device.errors_text(), "no word about why")
            check(not files.pages_were_asked_for(), "the device asked for a page")
            if not silent:
                files.be_silent()
        lab.works()
        give_up(files, fd)


def descriptors_of_a_silent_file_system():
    "Descriptors that nobody can close at once come with all messages, and hold up nobody"
    folder = os.path.join(private_folder(), "fuse-2")
    os.mkdir(folder)
    with TwoGuests() as lab:
        files = SilentFileSystem(folder, SIZE)
        fd = os.open(files.path(), os.O_RDWR)
        files.be_silent()
        front_end = lab.connect(1 << vu.PF_REPLY_ACK | 1 << vu.PF_BACKEND_REQ)
        for request, payload in ((vu.SET_VRING_KICK, vu.u64(0)), (vu.SET_VRING_CALL, vu.u64(0)),
                                 (vu.SET_VRING_ERR, vu.u64(0)), (vu.SET_BACKEND_REQ_FD, b"")):
            check(any(front_end.question(request, payload, [fd], VERSION | NEED_REPLY)),
                  f"request {request} was accepted")
            lab.steady.goes_on()
        front_end.close()
        front_end = lab.connect()
        front_end.send(vu.SET_OWNER, fds=[fd] * 8)      # it wants none
        front_end.closed_by_peer()
        front_end.close()
        lab.works()
        give_up(files, fd)


def disk_of(path):
    """The type of the file system on which a path lies."""
    with open("/proc/self/mountinfo") as mounts:
        numbers = {line.split()[2]: line.split(" - ")[1].split()[0] for line in mounts}
    device = os.stat(path).st_dev
    return numbers.get(f"{os.major(device)}:{os.minor(device)}")


def memory_that_is_local():
    "A file on tmpfs is accepted as memory, and one on a disk's file system"
    with TwoGuests(steady=False) as lab:
        for folder in (private_folder(), BUILD):
            path = os.path.join(folder, "guest-memory")
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
            os.unlink(path)
            os.ftruncate(fd, SIZE)
            kind = disk_of(folder)
            check_equal(offer(lab, vu.SET_MEM_TABLE, fd), kind in
                        ("tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"), f"on {kind}")
            os.close(fd)
        lab.works()


run_tests(memory_of_a_silent_file_system, descriptors_of_a_silent_file_system, memory_that_is_local)
