# SPDX-License-Identifier: BSD-3-Clause
"""
virtwire bridge: the TAP that it joins to a device is a network card of its system. Two kernels'
stacks, in namespaces of their own, talk to one another through both.
"""
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import threading

from harness import (BRIEF, GUEST, HOST, PATIENCE, VIRTWIRE, NetNs, Process, VirtwireDevice, check,
                     check_equal, log_folder, private_folder, run_tests, tap_port, wait_for)
from lab.process import die_with_parent

MAC = "52:54:00:00:00:01"  # of the device's TAP, also when that is made again
BYTES = (1 if BRIEF else 8) << 20


class Bridged:
    """The device's TAP in one namespace, the bridge's in another, both with an address."""

    def __init__(self, *arguments, port=None, features=None, device=()):
        self.host, self.guest = NetNs(), NetNs()
        for namespace in self.host, self.guest:
            namespace.set("net/ipv6/conf/default/disable_ipv6", "1")
        self.device = VirtwireDevice(self.host, *device, port=port or tap_port())
        command = [VIRTWIRE, "bridge", "--socket-path=" + self.device.socket_path,
                   "--json", *arguments]
        if not any(argument.startswith("--port") for argument in arguments):
            command.append("--port=tap,name=br0")
        if features:
            command.append("--features=" + features)
        with self.guest.entered():
            self.bridge = Process("bridge", command, log_folder(), merge=False)
        wait_for("the connection", lambda: self.device.statistics()["connected"], alive=self.bridge)
        self.host.configure("vw0", HOST + "/24", mac=MAC)
        self.guest.configure("br0", GUEST + "/24")

    def stream(self, sender, receiver, address):
        """BYTES of noise over TCP; the receiver's digest is to be the sender's."""
        content, digests = random.Random(1).randbytes(BYTES), []

        def receive(listener):
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE)
            digest = hashlib.sha256()
            with connection:
                while data := connection.recv(1 << 16):
                    digest.update(data)
            digests.append(digest.hexdigest())

        with receiver.socket() as listener, sender.socket() as connection:
            listener.settimeout(PATIENCE)
            connection.settimeout(PATIENCE)
            listener.bind((address, 0))
            listener.listen(1)
            thread = threading.Thread(target=receive, args=(listener,))
            thread.start()
            connection.connect(listener.getsockname())
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            thread.join(PATIENCE)
        check_equal(digests, [hashlib.sha256(content).hexdigest()], "what arrived")

    def both_ways(self):
        self.stream(self.guest, self.host, HOST)
        self.stream(self.host, self.guest, GUEST)

    def end(self):
        """The summary after a signal."""
        self.bridge.signal(signal.SIGINT)
        check_equal(self.bridge.wait(), 0, "the bridge's status")
        return json.loads(self.bridge.log_text().splitlines()[-1])

    def close(self):
        self.device.close()
        self.host.close()
        self.guest.close()


def streams_through_a_bridge():
    "TCP in both directions, whole, with each ring format, way to wait, and set of offloads"
    plain = ("csum=off,guest_csum=off,host_tso4=off,host_tso6=off,host_ecn=off,host_uso=off,"
             "guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_uso4=off,guest_uso6=off")
    cases = {"packed, adaptive": ((), None), "interrupt": (("--mode=interrupt",), "packed=off"),
             "poll": (("--mode=poll",), None), "spinning never": (("--spin-us=0",), None),
             "no offloads": ((), plain), "no offloads at the TAP": (
                 ("--port=tap,name=br0,offload=off",), None),
             "small ring, orphan": (("--ring-size=16", "--tx-policy=orphan"), None),
             "big ring, orphan": (("--ring-size=1024", "--tx-policy=orphan"), None),
             "plain system calls": (("--port=tap,name=br0,io=plain",), "mrg_rxbuf=off"),
             "two pairs": (("--queue-pairs=2",), None)}
    for name, (arguments, features) in cases.items():
        print(f"# {name}", flush=True)
        pairs = "two" in name
        bridged = Bridged(*arguments, features=features,
                          port=tap_port(",queues=2") if pairs else None,
                          device=("--queue-pairs=2",) if pairs else ())
        bridged.both_ways()
        summary = bridged.end()
        check(summary["clean"], f"{name}: {summary}")
        large = sum(queue["gso_frames"] for queue in bridged.device.statistics()["queues"])
        counts = summary["sent"]
        check(counts["bytes"] >= BYTES and summary["received"]["bytes"] >= BYTES,
              f"{name}: too few bytes in {summary}")
        if features == plain:
            check(counts["frames"] >= BYTES // 1448, f"{name}: {counts}: fewer than full frames")
            check_equal(large, 0, f"{name}: large frames without the feature")
        elif "offload=off" not in str(arguments):
            check(large > 0, f"{name}: no large frame was handed on")
        bridged.close()


def interface_that_goes_away():
    "The interface is deleted: the bridge ends with a message"
    bridged = Bridged()
    bridged.guest.run("ip", "link", "delete", "br0")
    with bridged.host.socket(kind=socket.SOCK_DGRAM) as host:
        def ended():
            host.sendto(b"who is there", (GUEST, 9))
            return bridged.bridge.ended()
        bridged.host.run("ip", "neighbour", "replace", GUEST, "lladdr", "52:54:00:00:00:02", "dev",
                         "vw0")
        wait_for("the bridge's end", ended)
    check_equal(bridged.bridge.wait(), 1, "the bridge's status")
    check("cannot send to the port" in bridged.bridge.errors_text(),
          f"message: {bridged.bridge.errors_text()!r}")
    bridged.close()


def device_that_goes_away():
    "The device's process is killed and started again: the bridge goes on"
    bridged = Bridged()
    bridged.both_ways()
    path = bridged.device.socket_path
    bridged.device.kill()
    bridged.device = VirtwireDevice(bridged.host, port=tap_port(), socket_path=path)
    wait_for("the connection", lambda: bridged.device.statistics()["connected"],
             alive=bridged.bridge)
    bridged.host.configure("vw0", HOST + "/24", mac=MAC)
    bridged.both_ways()
    check_equal(bridged.end()["connected"], True, "connected")
    bridged.close()


def mistakes_of_a_bridge():
    "A command line without a port, or with a bad one, is refused with status 2"
    path = "--socket-path=" + os.path.join(private_folder(), "none.sock")
    for word, arguments in {"no port": [path], "carrier-pigeon": [path, "--port=carrier-pigeon"],
                            "no device": ["--port=null"],
                            "--burst": [path, "--port=null", "--burst=3"],
                            "--count": [path, "--port=null", "--count=3"],
                            "--rate": [path, "--port=null", "--rate=3"],
                            "given twice": [path, "--port=null", "--port=null"]}.items():
        done = subprocess.run([VIRTWIRE, "bridge", *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE,
                              preexec_fn=die_with_parent)
        status, out, err = done.returncode, done.stdout, done.stderr
        check_equal((status, out), (2, ""), f"virtwire bridge {' '.join(arguments)}: {err}")
        check(word in err, f"the message does not say {word!r}: {err!r}")


run_tests(streams_through_a_bridge, interface_that_goes_away, device_that_goes_away,
          mistakes_of_a_bridge)
