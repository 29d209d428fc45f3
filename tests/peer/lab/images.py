# SPDX-License-Identifier: BSD-3-Clause
"""
Guest images: an initramfs of busybox, the init script, the agent and the kernel's own virtio
modules. Nothing is fetched here (`make deps-test` does that); what is missing is a Failure.

An image is kept in the cache under a name made of a hash of all that went into it, so that a
changed script or a new kernel package makes a new image and a second test run makes none.
"""
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import tempfile

from lab import report
from lab.process import Failure, run

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guest")

UML_MODULES = ["net/core/failover.ko", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko"]

# In the order in which they need each other.
CLOUD_MODULES = ["drivers/virtio/virtio_ring.ko", "drivers/virtio/virtio.ko",
                 "drivers/virtio/virtio_pci_modern_dev.ko",
                 "drivers/virtio/virtio_pci_legacy_dev.ko", "drivers/virtio/virtio_pci.ko",
                 "drivers/virtio/virtio_mmio.ko", "net/core/failover.ko",
                 "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko"]


def require(path, what):
    """The one file that matches, or a Failure that says how to get it."""
    found = sorted(glob.glob(path))
    if not found:
        raise Failure(f"{what} is missing ({path}): run `make deps-test`")
    return found[-1]


def _digest(paths, extra):
    digest = hashlib.sha256(extra.encode())
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def _agent():
    source = os.path.join(SOURCES, "agent.c")
    target = os.path.join(report.CACHE, f"agent-{_digest([source], '')}")
    if not os.path.exists(target):
        partial = f"{target}.{os.getpid()}"
        run(os.environ.get("CC", "cc"), "-O2", "-static", "-o", partial, source)
        os.rename(partial, target)
    return target


def _pack(folder, target):
    """cpio and gzip, atomically into place."""
    partial = f"{target}.{os.getpid()}"
    with open(partial, "wb") as out:
        subprocess.run("find . | busybox cpio -o -H newc 2>/dev/null | gzip -1", shell=True,
                       cwd=folder, stdout=out, check=True)
    os.rename(partial, target)


def initramfs(kind, modules):
    """The path of an image with these modules, loaded in this order; made if it is not there."""
    os.makedirs(report.CACHE, exist_ok=True)
    with open(os.path.join(report.CACHE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busybox = require("/bin/busybox", "the package busybox-static")
        init = os.path.join(SOURCES, "init")
        agent = _agent()
        digest = _digest([busybox, init, agent, *modules], " ".join(modules))
        target = os.path.join(report.CACHE, f"{kind}-{digest}.gz")
        if os.path.exists(target):
            return target
        for old in glob.glob(os.path.join(report.CACHE, kind + "-*.gz")):
            os.remove(old)
        with tempfile.TemporaryDirectory(prefix="initramfs-") as folder:
            os.makedirs(os.path.join(folder, "bin"))
            os.makedirs(os.path.join(folder, "modules"))
            for source, name in ((busybox, "bin/busybox"), (agent, "bin/agent"), (init, "init")):
                shutil.copy(source, os.path.join(folder, name))
                os.chmod(os.path.join(folder, name), 0o755)
            for module in modules:
                shutil.copy(module, os.path.join(folder, "modules"))
            with open(os.path.join(folder, "modules", "order"), "w") as order:
                order.writelines(os.path.basename(module) + "\n" for module in modules)
            _pack(folder, target)
        return target


def uml_initramfs():
    root = require("/usr/lib/uml/modules/*/kernel", "the package user-mode-linux")
    return initramfs("uml", [require(os.path.join(root, name), name) for name in UML_MODULES])


def cloud_kernel():
    """The kernel that a QEMU guest boots."""
    return require(os.path.join(report.CACHE, "kernel/boot/vmlinuz-*"),
                   "the kernel linux-image-cloud-amd64")


def cloud_initramfs():
    root = require(os.path.join(report.CACHE, "kernel/lib/modules/*/kernel"),
                   "the kernel linux-image-cloud-amd64")
    return initramfs("cloud", [require(os.path.join(root, name), name) for name in CLOUD_MODULES])
