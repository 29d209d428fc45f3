# SPDX-License-Identifier: BSD-3-Clause
"""
Traffic between the host's namespace and a guest, with every byte compared.

The host's ends are sockets of this program, made inside the namespace; the guest's ends are
busybox and the agent. Contents are random where a checksum compares them, so that a shifted,
repeated or missing piece always shows.
"""
import contextlib
import errno
import hashlib
import random
import re
import select
import socket
import struct
import threading
import time

from lab.process import PATIENCE, RESOURCES, Failure, wait_for

HOST, GUEST = "10.9.0.1", "10.9.0.2"
HOST6, GUEST6 = "fd09::1", "fd09::2"


def _datagram(number, size):
    """The rule of guest/agent.c."""
    pattern = bytes((number * 31 + i * 7) & 255 for i in range(256))
    body = (pattern * (size // 256 + 1))[:size]
    return number.to_bytes(4, "big") + body[4:]


def _ping(namespace, address, number, content, patience):
    """One echo request; true if the answer came and holds the same bytes."""
    six = ":" in address
    namespace.set("net/ipv4/ping_group_range", "0 0")
    with namespace.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM,
                          58 if six else 1) as host:  # IPPROTO_ICMPV6 or IPPROTO_ICMP
        host.settimeout(patience)
        try:
            # Type, code, checksum and identifier (both for the kernel to fill in), number.
            host.sendto(struct.pack("!BBHHH", 128 if six else 8, 0, 0, 0, number) + content,
                        (address, 0))
            answer = host.recv(65536)
        except TimeoutError:
            return False
        except OSError as problem:
            if problem.errno not in (errno.EHOSTUNREACH, errno.ENETUNREACH):
                raise
            time.sleep(0.1)
            return False
    if answer[8:] != content:
        raise Failure(f"ping {address}: {len(content)} bytes came back changed")
    return True


class Wire:
    """A guest's interface and the host's end of it, with addresses on both."""

    def __init__(self, namespace, guest, tap="vw0", interface="eth0", mtu=None):
        self.namespace, self.guest = namespace, guest
        self.tap, self.interface = tap, interface
        self.port = 5000
        if tap not in namespace.interfaces():
            raise Failure(f"no interface {tap} in the namespace")
        if not namespace.run("ip", "-json", "address", "show", "dev", tap).count(HOST):
            namespace.configure(tap, HOST + "/24", HOST6 + "/64", mtu=mtu)
        self.configure_guest(mtu)

    def configure_guest(self, mtu=None):
        name = self.interface
        wait_for("the guest's interface", lambda: "yes" in self.guest.shell(
            f"test -e /sys/class/net/{name} && echo yes", check=False), pause=0.2)
        if mtu:
            self.guest.shell(f"ip link set {name} mtu {mtu}")
        self.guest.shell(f"ip address add {GUEST}/24 dev {name}")
        # Debian's User-mode Linux is built without IPv6.
        self.has_ipv6 = "yes" in self.guest.shell("test -e /proc/net/if_inet6 && echo yes",
                                                  check=False)
        if self.has_ipv6:
            self.guest.shell(f"echo 0 >/proc/sys/net/ipv6/conf/{name}/accept_dad; "
                             f"ip -6 address add {GUEST6}/64 dev {name}")
        self.guest.shell(f"ip link set {name} up")
        # A driver that was loaded again has another random MAC address.
        self.namespace.run("ip", "neigh", "flush", "dev", self.tap)

    def _next_port(self):
        self.port += 1
        return self.port

    def ping_from_host(self, count=3, size=56, address=GUEST, patience=PATIENCE):
        """Every echo must come back with the same contents."""
        for number in range(count):
            if not _ping(self.namespace, address, number, random.randbytes(size), patience):
                raise Failure(f"ping {address} with {size} bytes: no answer")

    def ping_from_guest(self, count=3, size=56, address=HOST, patience=PATIENCE):
        text = self.guest.shell(f"ping -c {count} -i 0.1 -W {patience:.0f} -s {size} -q {address}")
        if f"{count} packets transmitted, {count} packets received" not in text:
            raise Failure("ping from the guest:\n" + text)

    def wait_reachable(self):
        """The first frame may be lost while an interface comes up: this only waits."""
        wait_for("the guest to answer ping",
                 lambda: _ping(self.namespace, GUEST, 1, b"there?", patience=1))

    def ping(self):
        self.wait_reachable()
        for size in (0, 56, 1472, 9000):
            self.ping_from_host(size=size)
            self.ping_from_guest(size=size)
        if self.has_ipv6:
            self.ping_from_host(address=GUEST6)
            self.ping_from_guest(address=HOST6)

    def _wait_listening(self, protocol, port):
        command = f"netstat -ln{protocol} 2>/dev/null | grep -q ':{port} ' && echo yes"
        wait_for("the guest to listen", lambda: "yes" in self.guest.shell(command, check=False))

    @contextlib.contextmanager
    def _listener(self):
        with self.namespace.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.settimeout(PATIENCE)
            listener.bind((HOST, self._next_port()))
            listener.listen(1)
            yield listener

    def tcp_to_guest(self, size, patience=2 * PATIENCE):
        """Sends random bytes into the guest and compares checksums; returns seconds."""
        content = random.randbytes(size)
        port = self._next_port()
        self.guest.shell(f"agent tcp-receive {port} /tmp/in >/tmp/in.error 2>&1 &")
        self._wait_listening("t", port)
        started = time.monotonic()
        with self.namespace.socket() as connection:
            connection.settimeout(patience)
            try:
                connection.connect((GUEST, port))
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
            except OSError as problem:
                raise Failure(f"TCP to the guest: {problem}\n" + RESOURCES.log_tails()) \
                    from problem
        seconds = time.monotonic() - started
        seen = self.guest.shell("cat /tmp/in.error; sha256sum </tmp/in; rm /tmp/in",
                                patience=patience).split()[0]
        if seen != hashlib.sha256(content).hexdigest():
            raise Failure(f"TCP to the guest: {size} bytes arrived with another checksum ({seen})")
        return seconds

    def tcp_from_guest(self, size, patience=2 * PATIENCE):
        """Receives random bytes from the guest and compares checksums; returns seconds."""
        expected = self.guest.shell(f"head -c {size} /dev/urandom >/tmp/out; sha256sum </tmp/out",
                                    patience=patience).split()[0]
        with self._listener() as listener:
            port = listener.getsockname()[1]
            self.guest.shell(f"agent tcp-send {HOST} {port} /tmp/out >/tmp/out.error 2>&1 &")
            try:
                connection, _ = listener.accept()
            except OSError as problem:
                raise Failure(f"TCP from the guest: {problem}\n" + RESOURCES.log_tails()) \
                    from problem
            started = time.monotonic()
            content = self._receive_all(connection, size, patience)
        seconds = time.monotonic() - started
        self.guest.shell("rm /tmp/out")
        if len(content) != size or hashlib.sha256(content).hexdigest() != expected:
            raise Failure(f"TCP from the guest: {len(content)} of {size} bytes, or another "
                          "checksum: " + self.guest.shell("cat /tmp/out.error"))
        return seconds

    @staticmethod
    def _receive_all(connection, size, patience):
        content = bytearray()
        with connection:
            connection.settimeout(patience)
            try:
                while piece := connection.recv(1 << 20):
                    content += piece
            except OSError as problem:
                raise Failure(f"TCP from the guest after {len(content)} of {size} bytes: "
                              f"{problem}\n" + RESOURCES.log_tails()) from problem
        return content

    def udp_echo(self, count=100, sizes=(1, 18, 46, 47, 512, 1472, 4000)):
        """Datagrams to the guest and back, each compared; a few are on the way at a time."""
        port = self._next_port()
        self.guest.shell(f"agent udp-echo {port} >/dev/null 2>&1 & echo $! >/tmp/echo.pid")
        self._wait_listening("u", port)
        with self.namespace.socket(kind=socket.SOCK_DGRAM) as host:
            host.bind((HOST, 0))
            host.connect((GUEST, port))
            host.settimeout(PATIENCE)
            for first in range(0, count, 4):
                batch = [random.randbytes(sizes[n % len(sizes)]) for n in range(first, first + 4)]
                for datagram in batch:
                    host.send(datagram)
                self._expect_echoes(host, batch)
        self.guest.shell("kill $(cat /tmp/echo.pid)")

    @staticmethod
    def _expect_echoes(host, batch):
        missing = list(batch)
        while missing:
            try:
                missing.remove(host.recv(65536))
            except ValueError:
                raise Failure("a datagram came back changed") from None
            except TimeoutError:
                raise Failure(f"{len(missing)} of {len(batch)} datagrams did not come back, of "
                              f"{[len(m) for m in missing]} bytes") from None

    def udp_from_guest(self, count=2000, size=1000):
        """One-way transmission: all of it must arrive although nothing goes the other way."""
        port = self._next_port()
        with self.namespace.socket(kind=socket.SOCK_DGRAM) as host:
            host.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: no loss up here
            host.bind((HOST, port))
            seen = {}
            done = threading.Event()
            reader = threading.Thread(target=self._collect, args=(host, seen, done), daemon=True)
            reader.start()
            text = self.guest.shell(f"agent udp-send {HOST} {port} {count} {size}")
            if f"sent {count}" not in text:
                raise Failure("UDP from the guest: " + text)
            with contextlib.suppress(Failure):
                wait_for("all datagrams", lambda: len(seen) >= count)
            done.set()
            reader.join()
        wrong = [n for n, datagram in seen.items() if datagram != _datagram(n, size)]
        if len(seen) != count or wrong:
            raise Failure(f"UDP from the guest: {len(seen)} of {count}, {len(wrong)} changed")

    @staticmethod
    def _collect(host, seen, done):
        while not done.is_set():
            if select.select([host], [], [], 0.1)[0]:
                datagram = host.recv(65536)
                seen[int.from_bytes(datagram[:4], "big")] = datagram

    def udp_to_guest(self, count=500, size=1000, pace=0.0005):
        """One-way reception, at a pace that the guest holds out."""
        port = self._next_port()
        self.guest.shell(f"agent udp-receive {port} {count} {size} {PATIENCE:.0f} >/tmp/udp.{port} 2>&1 &")
        self._wait_listening("u", port)
        with self.namespace.socket(kind=socket.SOCK_DGRAM) as host:
            for number in range(count):
                host.sendto(_datagram(number, size), (GUEST, port))
                time.sleep(pace)
        text = wait_for("the guest's count", lambda: re.search(
            r"good \d+ bad \d+", self.guest.shell(f"cat /tmp/udp.{port}")),
            patience=2 * PATIENCE).group(0)
        if text != f"good {count} bad 0":
            raise Failure(f"UDP to the guest: {text} of {count}")
