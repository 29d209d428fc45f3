# SPDX-License-Identifier: BSD-3-Clause
"""
Namespaces: a box around the whole program, and network namespaces inside it.

Theory of operation
-------------------
A program that is killed cannot tidy up. So everything that could stay behind lives in namespaces
which the kernel takes down with the last process in them: processes in a pid namespace, whose
init is the program itself; sockets, images and User-mode Linux's ~/.uml on a tmpfs that only the
box's mount namespace sees; TAP interfaces in unnamed network namespaces (nothing in /run/netns).

The process outside only waits, and hands signals on. If it is killed with SIGKILL, the kernel
kills the box's init (PR_SET_PDEATHSIG), and with that all the rest.

Without root, a user namespace gives the same rights inside the box, where the system allows it.
"""
import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys

from lab.process import LIBC, RESOURCES, Failure, die_with_parent, run

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000

# Where the box mounts its tmpfs: a folder of the file system standard that is made for mounting.
MOUNT_POINTS = ("/mnt", "/media", "/srv")


def _call(name, *arguments):
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source, target, kind, flags):
    _call("mount", source.encode(), target.encode(), kind.encode() if kind else None,
          ctypes.c_ulong(flags), None)


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _become_root_of_user_namespace():
    user, group = os.getuid(), os.getgid()
    _call("unshare", CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1")
    _write("/proc/self/gid_map", f"0 {group} 1")


def _mount_point(keep_visible):
    for point in MOUNT_POINTS:
        hidden = [path for path in keep_visible if os.path.realpath(path).startswith(point + "/")]
        if os.path.isdir(point) and not hidden:
            return point
    raise Failure("found no folder to mount a private tmpfs on: " + ", ".join(MOUNT_POINTS))


def _wait_outside(child):
    """The outer process: hands signals on, and returns the box's exit status."""
    def hand_on(number, _frame):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, hand_on)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _stop(number, _frame):
    raise SystemExit(128 + number)


def _keep_mounts_to_ourselves():
    """
    From here on no mount of ours is seen outside. In a chroot the root of all mounts lies above our
    own root: we go up to it for that, and come back.
    """
    try:
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        return
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a root that is no mount point
            raise
    root, here = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in ("/", "."))
    os.chroot("/proc")  # so that our own root no longer ends the way up
    os.fchdir(root)
    while not os.path.samefile(".", ".."):
        os.chdir("..")
    os.chroot(".")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    os.fchdir(root)
    os.chroot(".")
    os.fchdir(here)
    os.close(root)
    os.close(here)


def enter_box(keep_visible=()):
    """
    Puts the rest of the program into the box and returns its private folder. The process outside
    does not return: it ends with the status of the one inside.
    """
    point = _mount_point([sys.argv[0], os.getcwd(), *keep_visible])
    try:
        if os.geteuid() != 0:
            _become_root_of_user_namespace()
        _call("unshare", CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET)
    except OSError as problem:
        raise Failure(f"no rights to create namespaces ({problem}). Run as root, or allow "
                      "unprivileged user namespaces.") from problem
    parent_alive, child_end = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child != 0:
        os.close(parent_alive)
        status = _wait_outside(child)
        sys.stdout.flush()
        os._exit(status if status >= 0 else 128 - status)
    os.close(child_end)
    die_with_parent()
    os.set_blocking(parent_alive, False)
    with contextlib.suppress(BlockingIOError):
        os.read(parent_alive, 1)  # end of file: the parent died before die_with_parent()
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, _stop)
    _keep_mounts_to_ourselves()
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("virtwire", point, "tmpfs", MS_NOSUID | MS_NODEV)
    folder = os.path.join(point, "box")
    os.mkdir(folder, 0o700)
    os.environ.update(HOME=folder, TMPDIR=folder)
    run("ip", "link", "set", "lo", "up")
    return folder


def cover(folders, keep_visible=()):
    """Inside the box: puts an empty tmpfs over each of these folders that holds none of the others."""
    needed = [os.path.realpath(path) + "/" for path in (sys.argv[0], os.getcwd(), *keep_visible)]
    for folder in map(os.path.realpath, folders):
        if os.path.isdir(folder) and not any(path.startswith(folder + "/") for path in needed):
            _mount("virtwire", folder, "tmpfs", MS_NOSUID | MS_NODEV)


class NetNs:
    """
    A network namespace without a name. It lives as long as something is in it or holds `fd`.
    Processes and sockets made inside `with namespace.entered():` belong to it.
    """

    def __init__(self, name="host"):
        self.name = name
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _call("unshare", CLONE_NEWNET)
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", before, CLONE_NEWNET)
        os.close(before)
        RESOURCES.add(self)
        self.run("ip", "link", "set", "lo", "up")

    @contextlib.contextmanager
    def entered(self):
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", self.fd, CLONE_NEWNET)
        try:
            yield self
        finally:
            _call("setns", before, CLONE_NEWNET)
            os.close(before)

    def run(self, *command, **options):
        """Runs a command inside and returns its output."""
        with self.entered():
            return run(*command, **options)

    def set(self, name, value):
        """Sets one of the namespace's own parameters: a path below /proc/sys."""
        with self.entered():
            _write("/proc/sys/" + name, value)

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
        with self.entered():
            return socket.socket(family, kind, protocol)

    def configure(self, interface, *addresses, mtu=None, mac=None):
        """Gives an interface its addresses ("10.9.0.1/24") and brings it up."""
        if mac:
            self.run("ip", "link", "set", interface, "address", mac)
        if mtu:
            self.run("ip", "link", "set", interface, "mtu", str(mtu))
        for address in addresses:
            self.run("ip", "address", "add", address, "dev", interface,
                     *(["nodad"] if ":" in address else []))
        self.run("ip", "link", "set", interface, "up")

    def counter(self, interface, name):
        """One of the kernel's counters of an interface, such as "rx_packets"."""
        text = self.run("ip", "-s", "-json", "link", "show", "dev", interface)
        statistics = json.loads(text)[0]["stats64"]
        way, what = name.split("_", 1)
        return statistics[way][what]

    def interfaces(self):
        with self.entered():
            return sorted(name for _, name in socket.if_nameindex())

    def close(self):
        RESOURCES.remove(self)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()
