# SPDX-License-Identifier: BSD-3-Clause
"""
Guests: a Linux kernel with its own virtio_net driver, in User-mode Linux or in QEMU.

Theory of operation
-------------------
The guest's console is a pair of pipes: commands go in, and what comes out goes to a log file in
the build tree, which is also where answers are looked for. guest/init tells the framing: each
command has a mark of its own, so that neither the echo of an old answer nor stray output can be
taken for the answer.

Neither kind of guest needs rights on the host. A User-mode Linux kernel and its helper processes
live in a pid namespace of their own, since nothing else ends all of them for sure.
"""
import base64
import ctypes
import errno
import os
import re
import shutil
import signal
import struct
import subprocess

from lab import images, report, standstill
from lab.process import LIBC, PATIENCE, Deadline, Failure, Process, die_with_parent, wait_for

# What a healthy driver never says.
# ("MP-BIOS bug: 8254 timer" is a slow machine, and no news of the driver.)
BAD_NEWS = re.compile(
    r"WARNING: CPU|(?<!MP-BIOS )BUG:|\bOops\b|Kernel panic|NETDEV WATCHDOG|transmit timed out|bad gso|csum failure"
    r"|virtio.*(fail|error|out of range|not a head|bogus|broken)|eth\d.*(fail|error|bad|short)",
    re.IGNORECASE)


class Guest(Process):
    """The common part: commands over the console."""
    started = 0
    boot_patience = 2 * PATIENCE

    def __init__(self, kind, command, **options):
        Guest.started += 1
        self.mark = 0
        self.position = 0
        super().__init__(f"{kind}-{Guest.started}", command, report.log_folder(),
                         stdin=subprocess.PIPE, **options)

    def _wait_for(self, what, condition, patience):
        try:
            return wait_for(what, condition, patience, alive=self)
        except Deadline as problem:
            raise Failure(f"{problem}{self.findings(condition)}") from None

    def _ready(self):
        text = self.log_text()
        if "Kernel panic" in text:  # some kernels go on for ever after it
            raise Failure(f"{self.name} panicked\n" + text[-4000:])
        return "virtwire-guest-ready" in text

    def wait_booted(self):
        self._wait_for("the guest's start", self._ready, self.boot_patience)
        if "no module" in self.log_text():
            raise Failure(f"{self.name} could not load its modules\n{self.log_text()[-2000:]}")
        return self

    def _answer(self, mark):
        with open(self.output, errors="replace") as log:
            log.seek(self.position)
            text = log.read().replace("\r", "")
        begin = text.find(f"{mark}<\n")
        end = re.search(rf"\n{mark}>(\d+)\n", text[begin:]) if begin >= 0 else None
        if not end:
            return None
        return int(end.group(1)), text[begin + len(mark) + 2:begin + end.start()]

    def shell(self, command, check=True, patience=None):
        """Runs a shell command in the guest and returns its output."""
        self.mark += 1
        mark = f"@{self.name}.{self.mark}"
        line = f"{mark} {base64.b64encode(command.encode()).decode()}\n"
        if len(line) > 4000:
            raise Failure("a command too long for a console line")
        if self.ended():
            raise Failure(f"{self.name} has ended\n{self.log_text()[-2000:]}")
        self.position = os.path.getsize(self.output)
        self.child.stdin.write(line.encode())
        self.child.stdin.flush()
        status, output = self._wait_for(f"{self.name}: {command}", lambda: self._answer(mark),
                                        patience)
        if check and status != 0:
            raise Failure(f"{self.name}: status {status}: {command}\n{output}")
        return output.strip("\n")

    def findings(self, answered):
        """What more can be learnt of a guest that does not answer: lines of text."""
        return ""

    def bad_news(self):
        """Lines of the kernel's log that a healthy driver never writes."""
        lines = self.shell("dmesg").splitlines()
        return [line for line in lines if BAD_NEWS.search(line)]

    def driver_features(self, interface="eth0"):
        """The feature bits that the guest's driver accepted, as a set of numbers."""
        text = self.shell(f"cat /sys/class/net/{interface}/device/features").strip()
        return {bit for bit, value in enumerate(text) if value == "1"}

    def poke(self):
        """A line that the guest's init takes for an empty command."""
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()

    def power_off(self):
        self.child.stdin.write(b"poweroff\n")
        self.child.stdin.flush()
        self.wait()


# For the C library of the guest's programs: memory and string functions that need no AVX.
PLAIN_PROCESSOR = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX_Fast_Unaligned_Load"


def without_extended_state():
    """
    Runs in the child that becomes User-mode Linux, before exec: ptrace(PTRACE_GETREGSET) fails.

    User-mode Linux 6.1 has room for 2696 bytes of processor state, and a processor with AMX has
    11008: there its first process dies of "ptrace set fp regs failed". Where that request fails it
    uses the older one, for x87 and SSE, which works everywhere. So it is refused everywhere, by a
    filter for system calls, that all hosts be alike; and the guest's programs must not use AVX
    (PLAIN_PROCESSOR), whose registers are then lost with every page fault.
    """
    x86_64, ptrace, get_register_set = 0xc000003e, 101, 0x4204
    load, jump_if_equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.EINVAL
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in (
        (load, 0, 0, 4), (jump_if_equal, 0, 5, x86_64),             # struct seccomp_data: arch,
        (load, 0, 0, 0), (jump_if_equal, 0, 3, ptrace),             # nr,
        (load, 0, 0, 16), (jump_if_equal, 0, 1, get_register_set),  # and the first argument
        (answer, 0, 0, refuse), (answer, 0, 0, allow)))
    code = ctypes.create_string_buffer(program, len(program))
    filter = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8,
                                                     ctypes.addressof(code)))
    die_with_parent()
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if LIBC.prctl(no_new_privileges, 1, 0, 0, 0) or LIBC.prctl(set_seccomp, mode_filter, filter):
        raise OSError(ctypes.get_errno(), "a filter for system calls")


class UmlGuest(Guest):
    """User-mode Linux connected to a vhost-user socket; one CPU, ring size 256, no reconnect."""

    def __init__(self, socket_path, memory="160M", boot=True, arguments=()):
        if not shutil.which("linux"):
            raise Failure("no User-mode Linux (package user-mode-linux): run `make deps-test`")
        # The box has seen to the propagation of mounts.
        command = ["unshare", "-pf", "--kill-child", "--propagation", "unchanged", "--mount-proc",
                   "setarch", "-R", "linux", f"mem={memory}",
                   "initrd=" + images.uml_initramfs(), "con=null",
                   "con0=fd:0,fd:1", "quiet", "panic=1", f"virtio_uml.device={socket_path}:1",
                   PLAIN_PROCESSOR, *arguments]
        super().__init__("uml", command, before_exec=without_extended_state)
        if boot:
            self.wait_booted()


class QemuGuest(Guest):
    """
    QEMU without KVM. `nic` holds properties of the virtio-net device, such as packed="on";
    `reconnect` is the interval in seconds at which it tries again when the back-end went away.
    """
    # On an NMI the kernel ends with the stacks of all processors and a list of all tasks.
    ON_NMI = " unknown_nmi_panic panic_print=0x41"

    def __init__(self, socket_path, machine="q35", queue_pairs=1, cpus=None, memory=512,
                 reconnect=None, boot=True, arguments=(), **nic):
        if not shutil.which("qemu-system-x86_64"):
            raise Failure("no QEMU (package qemu-system-x86): run `make deps-test`")
        self.monitor_path = os.path.join(report.private_folder(),
                                         f"monitor-{Guest.started + 1}.sock")
        chardev = f"socket,id=c0,path={socket_path}"
        if reconnect:
            chardev += f",reconnect={reconnect}"
        command = ["qemu-system-x86_64", "-machine", self._machine(machine), "-cpu", "max",
                   "-smp", str(cpus or queue_pairs), "-m", str(memory),
                   "-object", f"memory-backend-memfd,id=mem,size={memory}M,share=on",
                   "-machine", "memory-backend=mem", "-nodefaults", "-no-user-config",
                   "-display", "none", "-serial", "stdio", "-no-reboot",
                   "-monitor", f"unix:{self.monitor_path},server=on,wait=off",
                   "-kernel", images.cloud_kernel(), "-initrd", images.cloud_initramfs(),
                   "-append", "console=ttyS0 quiet panic=-1 tsc=reliable" + self.ON_NMI
                   + self._clock(machine),
                   "-chardev", chardev,
                   "-netdev", f"vhost-user,id=n0,chardev=c0,queues={queue_pairs}",
                   "-device", self._nic(machine, queue_pairs, nic),
                   "-global", "virtio-mmio.force-legacy=false", *arguments]
        super().__init__("qemu", command)
        if boot:
            self.wait_booted()

    def findings(self, answered):
        return "\n" + standstill.examine(self, answered)

    @staticmethod
    def _machine(machine):
        # Without KVM only the plain devices of a microvm are of use.
        return {"q35": "q35,accel=tcg",
                "microvm": "microvm,accel=tcg,rtc=on,pit=on,pic=on"}[machine]

    @staticmethod
    def _clock(machine):
        # A microvm has no clock to measure the processor's by, and hangs in trying on a busy host.
        return " tsc_early_khz=2000000 lpj=4000000" if machine == "microvm" else ""

    @staticmethod
    def _nic(machine, queue_pairs, nic):
        if machine == "microvm":
            device = "virtio-net-device,netdev=n0"
        else:
            # With MSI-X (vectors > 0) this QEMU crashes over vhost-user when there is no KVM.
            device = "virtio-net-pci,netdev=n0,vectors=0,disable-legacy=on"
        if queue_pairs > 1:
            device += ",mq=on"
        for name, value in nic.items():
            device += f",{name}={value}"
        return device

    def power_off(self):
        super().power_off()
        if self.status() not in (0, -signal.SIGKILL):
            raise Failure(f"QEMU ended with status {self.status()}\n{self.log_text()[-2000:]}")
