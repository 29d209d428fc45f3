# SPDX-License-Identifier: BSD-3-Clause
"""The command line of `virtwire device`: what it says, what it refuses, what it leaves behind."""

import json
import os
import signal
import socket
import subprocess
import time

import vhost_user_client as vu
from harness import (PATIENCE, VIRTWIRE, VirtwireDevice, check, check_equal, private_folder,
                     run_tests, wait_for)
from lab.process import RESOURCES, die_with_parent
from hostile_lab import queue_counters
from numbered_frames import NumberedFrames
from vhost_user_client import bit
from virtio_driver import NetDriver

OPTIONS = ("--socket-path", "--fd", "--port", "--queue-pairs", "--queue-size", "--mac", "--mtu",
           "--mode", "--busy-poll-us", "--workers", "--cpus", "--realtime", "--features", "--stats-interval", "--json", "--client", "--print-capabilities", "--help")


def virtwire(*arguments, **options):
    """Runs the program to its end: (status, standard output, standard error)."""
    done = subprocess.run([VIRTWIRE, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE, preexec_fn=die_with_parent, **options)
    return done.returncode, done.stdout, done.stderr


def fresh_socket(name="cli.sock"):
    path = os.path.join(private_folder(), name)
    if os.path.exists(path):
        os.unlink(path)
    return path


def help_texts():
    "--help tells every option, on standard output, with status 0"
    for arguments in (["--help"], ["device", "--help"]):
        status, out, err = virtwire(*arguments)
        check_equal((status, err), (0, ""), f"virtwire {' '.join(arguments)}")
        check("device" in out, f"no word of the device in the help: {out}")
    for option in OPTIONS:
        check(option in out, f"virtwire device --help does not tell {option}")
    check(max(map(len, out.splitlines())) <= 100, "a line of the help is too long")


def bad_usage():
    "Bad options end with status 2 and one message that names what is wrong"
    path = fresh_socket()
    good = ["device", "--socket-path=" + path, "--port=null"]
    bad = {
        "--nonsense": [*good, "--nonsense"], "-Q": [*good, "-Q"],
        "surplus": [*good, "surplus"], "socket-path": ["device", "--port=null"],
        "port": ["device", "--socket-path=" + path], "carrier-pigeon":
        [*good[:2], "--port=carrier-pigeon"], "queue-pairs": [*good, "--queue-pairs=0"],
        "128": [*good, "--queue-pairs=128"], "many": [*good, "--queue-pairs=many"],
        "3x": [*good, "--queue-pairs=3x"], "-1": [*good, "--queue-pairs=-1"],
        "queue-size": [*good, "--queue-size=0"], "65536": [*good, "--queue-size=65536"],
        "mac": [*good, "--mac=12:34"], "zz:": [*good, "--mac=zz:00:00:00:00:01"],
        "01:00:5e": [*good, "--mac=01:00:5e:00:00:01"], "mtu": [*good, "--mtu=67"],
        "70000": [*good, "--mtu=70000"], "teleport": [*good, "--features=teleport=off"],
        "mrg_rxbuf=on": [*good, "--features=mrg_rxbuf=maybe"], "stats-interval":
        [*good, "--stats-interval=soon"], "colour": [*good[:2], "--port=tap,colour=red"],
        "--fd": ["device", "--fd=cat", "--port=null"],
        "sleepy": [*good, "--mode=sleepy"], "events": [*good, "--mode=events"],
        "busy-poll-us=0": [*good, "--busy-poll-us=0"], "busy-poll-us=1s":
        [*good, "--busy-poll-us=1s"], "workers=0": [*good, "--workers=0"],
        "workers=2": [*good, "--workers=2"], "realtime=0": [*good, "--realtime=0"],
        "realtime=100": [*good, "--realtime=100"], "cpus=": [*good, "--cpus="],
        "cpus=x": [*good, "--cpus=x"], "cpus=0,": [*good, "--cpus=0,"],
        "cpus=0-": [*good, "--cpus=0-"], "cpus=1-0": [*good, "--cpus=1-0"],
        "cpus=0-1023": [*good, "--cpus=0-1023"], "cpus=1000": [*good, "--cpus=1000"],
        "cpus=99999999999999999999": [*good, "--cpus=99999999999999999999"],
        "--port is given twice": [*good, "--port=loop"], "--mac is given twice":
        [*good, "--mac=52:54:00:12:34:56", "--mac=52:54:00:12:34:56"],
        "--stats-interval is given twice": [*good, "--stats-interval=1", "--stats-interval=2"],
        "pktgen: --size is given twice": ["pktgen", "--size=64", "--size=1514"],
        "sink: --json is given twice": ["sink", "--json", "--json"],
        "echo: --socket-path is given twice":
        ["echo", "--socket-path=" + path, "--socket-path=" + path],
        "two devices": [*good, "--socket-path=" + path, "--port=null"],
        "path is empty": ["device", "--socket-path=", "--port=null"],
        "107 bytes": ["device", "--client", "--socket-path=/" + "x" * 107, "--port=null"],
        "names none": [*good, "--features="], "'' is no feature": [*good, "--features=,"],
        "needs a value": [*good[:2], "--port=tap,name="],
        "twice": [*good[:2], "--port=null,mtu=1500,mtu=1500"],
        "fd=0": ["device", "--fd=0", "--port=null"], "fd=99": ["device", "--fd=99", "--port=null"],
        "pktgen: --fd=0": ["pktgen", "--fd=0"], "sink: --fd=0": ["sink", "--fd=0"],
        "echo: --fd=0": ["echo", "--fd=0"], "echo: --socket-path": ["echo", "--socket-path="],
        "pktgen: --socket-path": ["pktgen", "--socket-path=/" + "x" * 107],
        "sink: no device": ["sink"], "there is no option '--version'": ["sink", "--version"],
    }
    for word, arguments in bad.items():
        status, out, err = virtwire(*arguments)
        check_equal((status, out), (2, ""), f"virtwire {' '.join(arguments)}: {err}")
        check(word.strip("-") in err, f"the message does not name {word!r}: {err!r}")
        check(len(err.splitlines()) <= 3, f"a long message for a small mistake: {err!r}")
        check(not os.path.exists(path), f"a socket was left after {arguments}")
    status, out, err = virtwire()
    check_equal((status, out), (2, ""), "virtwire without a word")
    check("device" in err, f"no hint at what there is: {err!r}")
    status, _, err = virtwire("fly")
    check(status == 2 and "fly" in err, f"virtwire fly: {status}, {err!r}")


def things_that_cannot_be_opened():
    "What cannot be opened ends with status 1, a reason, and no socket"
    path = os.path.join(private_folder(), "no", "such", "folder.sock")
    status, out, err = virtwire("device", "--socket-path=" + path, "--port=null")
    check(status == 1 and path in err and not out, f"a folder that is not there: {status}, {err!r}")
    long = "/" + "x" * 200
    status, out, err = virtwire("device", "--socket-path=" + long, "--port=null")
    check(status == 2 and err and not out, f"a path that is too long: {status}, {err!r}")


def output_that_nobody_takes():
    "Standard output that is full is an error, one that is closed by its reader is not, or a signal"
    for arguments in (["--help"], ["--version"], ["device", "--print-capabilities"],
                      ["device", "--features=help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([VIRTWIRE, *arguments], stdin=subprocess.DEVNULL, stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        check(done.returncode == 1 and "standard output" in done.stderr,
              f"{arguments} into a full file: {done.returncode}, {done.stderr!r}")
    path, (reader, writer) = fresh_socket(), os.pipe()
    os.close(reader)
    device = subprocess.Popen([VIRTWIRE, "device", "--socket-path=" + path, "--port=loop",
                               "--stats-interval=1"], stdin=subprocess.DEVNULL, stdout=writer,
                              preexec_fn=die_with_parent)
    os.close(writer)
    wait_for("the socket", lambda: os.path.exists(path))
    with NetDriver(path) as driver:
        for turn in range(12):        # reports fail meanwhile
            check_equal(driver.exchange(NumberedFrames(turn), 0, 50), 50, "frames")
            device.send_signal(signal.SIGUSR1)
            time.sleep(0.1)
    device.send_signal(signal.SIGTERM)
    check_equal(device.wait(PATIENCE), 0, "status of a device whose reports nobody reads")


def capabilities():
    "--print-capabilities is JSON with the type and the features, and starts nothing"
    status, out, err = virtwire("device", "--print-capabilities")
    check_equal((status, err), (0, ""), "virtwire device --print-capabilities")
    document = json.loads(out)
    check_equal(document.get("type"), "net", "type of the back-end")
    check(isinstance(document.get("features"), list), f"no list of features in {document}")


def start(*arguments, **options):
    return VirtwireDevice(None, *arguments, **{"port": "loop", **options})


def ends_in_order():
    "SIGTERM and SIGINT end the program with status 0 and remove its socket"
    for number in (signal.SIGTERM, signal.SIGINT):
        for connected in (False, True):
            device = start()
            driver = NetDriver(device.socket_path) if connected else None
            if driver:
                check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames")
            RESOURCES.remove(device)
            device.signal(number)
            check_equal(device.wait(), 0, f"status after {signal.Signals(number).name}")
            check(not os.path.exists(device.socket_path), "the socket is still there")
            if driver:
                check(driver.front_end.closed_by_peer(), "the connection is still open")
                driver.close()


def json_report():
    "With --json, SIGUSR1 prints one document a device, which agrees with what was carried"
    device = start()
    with NetDriver(device.socket_path) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 77), 77, "frames")
        for index, role in enumerate(("receive", "transmit")):
            queue = queue_counters(device, device.socket_path, index)
            check_equal((queue["role"], queue["frames"]), (role, 77), f"queue {index}")


def text_report():
    "Without --json, SIGUSR1 prints statistics for people"
    device = start(json_output=False)
    with NetDriver(device.socket_path) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 77), 77, "frames")
        device.signal(signal.SIGUSR1)
        wait_for("77 frames in the report",
                 lambda: "77" in device.log_text() + device.errors_text(), alive=device)


def regular_report():
    "--stats-interval prints statistics again and again"
    device = start("--stats-interval=1")
    seen = []
    wait_for("two reports", lambda: len(seen.extend(device.documents()) or seen) >= 2, alive=device)


def stale_and_live_sockets():
    "A socket that nobody serves is replaced; one that is served, or another file, is not touched"
    path = fresh_socket()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    with start(socket_path=path) as first:
        with NetDriver(path) as driver:
            check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames")
        status, out, err = virtwire("device", "--socket-path=" + path, "--port=null")
        check(status == 1 and path in err and not out, f"a live socket: {status}, {err!r}")
        check(not first.ended(), "the first program ended")
        with NetDriver(path) as driver:
            check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames of the first one")
    with open(path, "w") as file:
        file.write("precious")
    status, _, err = virtwire("device", "--socket-path=" + path, "--port=null")
    check(status == 1 and path in err, f"a regular file in the way: {status}, {err!r}")
    with open(path) as file:
        check_equal(file.read(), "precious", "the file in the way")


def socket_of_another():
    "A socket that was replaced by somebody else's is not removed at the end"
    device = start()
    front_end = vu.FrontEnd(device.socket_path)
    front_end.barrier()       # it listens, and knows its own socket, by now
    front_end.close()
    os.unlink(device.socket_path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(device.socket_path)
        other.listen()
        check_equal(device.stop(), 0, "status")
        check(os.path.exists(device.socket_path), "the other program's socket was removed")


def killed_and_started_again():
    "After SIGKILL the same command starts again, in place of the socket that was left"
    path = fresh_socket()
    for _ in range(3):
        device = start(socket_path=path)
        with NetDriver(path) as driver:
            check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames")
        device.kill()
        check(os.path.exists(path), "SIGKILL cannot remove a socket; who did?")


def file_descriptors():
    "--fd takes a listening socket, and a connected one"
    path = fresh_socket()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        device = spawn("--fd", listener)
        for _ in range(2):
            with NetDriver(path) as driver:
                check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames")
        device.send_signal(signal.SIGTERM)
        check_equal(device.wait(PATIENCE), 0, "status")
        check(os.path.exists(path), "the socket of whoever gave it was removed")
    ours, theirs = socket.socketpair()
    device = spawn("--fd", theirs)
    theirs.close()
    with NetDriver(None, sock=ours) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames on a connected socket")
    check_equal(device.wait(PATIENCE), 0, "status after the only connection ended")


def spawn(option, inherited):
    return subprocess.Popen([VIRTWIRE, "device", f"{option}={inherited.fileno()}", "--port=loop"],
                            pass_fds=[inherited.fileno()], stdin=subprocess.DEVNULL,
                            preexec_fn=die_with_parent)


def client_mode():
    "--client connects to a front-end's socket, and tries again until there is one, and again"
    path = fresh_socket()
    device = start("--client", socket_path=path, wait=False)
    time.sleep(0.3)           # it has failed to connect at least once by now, most likely
    check(not device.ended(), "it gave up since nobody listens yet")
    for turn in range(3):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.settimeout(PATIENCE)
            listener.bind(path)
            listener.listen()
            connection, _ = listener.accept()
        os.unlink(path)
        with NetDriver(None, sock=connection) as driver:
            check_equal(driver.exchange(NumberedFrames(turn), 0, 50), 50, f"frames, turn {turn}")


def one_front_end_at_a_time():
    "A second front-end is turned away, and the first one does not notice"
    device = start()
    with NetDriver(device.socket_path) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames")
        for _ in range(20):
            second = vu.FrontEnd(device.socket_path)
            try:
                second.send(vu.GET_FEATURES)
            except vu.Closed:
                pass
            check(second.closed_by_peer(), "a second front-end was served")
            second.close()
            check_equal(driver.exchange(NumberedFrames(1), 50, 20), 20, "frames of the first one")
    with NetDriver(device.socket_path) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames of the next one")


def offer_of(*arguments):
    device = start(*arguments)
    front_end = vu.FrontEnd(device.socket_path)
    offer = front_end.barrier()
    front_end.set_protocol_features(0xffff)
    config = front_end.get_config(0, 12)
    front_end.close()
    check_equal(device.stop(), 0, "status")
    return offer, config


def features_by_name():
    "--features switches off what it names, and nothing else"
    everything, _ = offer_of()
    for name, number in (("mrg_rxbuf", vu.F_MRG_RXBUF), ("event_idx", vu.F_EVENT_IDX),
                         ("packed", vu.F_RING_PACKED), ("in_order", vu.F_IN_ORDER),
                         ("indirect_desc", vu.F_INDIRECT_DESC)):
        offer, _ = offer_of(f"--features={name}=off")
        check(everything & bit(number), f"{name} is not offered by default")
        check_equal(everything & ~offer, bit(number), f"what --features={name}=off took away")
    offer, _ = offer_of("--features=csum=off")
    left = offer & sum(bit(b) for b in (0, 11, 12, 13, 56))
    check_equal(left, 0, "csum=off leaves what needs CSUM")
    offer, _ = offer_of("--features=ctrl_vq=off")
    left = offer & sum(bit(b) for b in (17, 18, 19, 20, 21, 22, 23, 60))
    check_equal(left, 0, "ctrl_vq=off leaves what needs CTRL_VQ")
    offer, _ = offer_of("--features=packed=off,mrg_rxbuf=off")
    check_equal(everything & ~offer, bit(vu.F_RING_PACKED) | bit(vu.F_MRG_RXBUF), "two names")


def configuration_space():
    "--mac, --mtu and --queue-pairs are what the guest reads"
    offer, config = offer_of("--mac=52:54:00:12:34:56", "--mtu=1400", "--queue-pairs=3")
    check(offer & bit(vu.F_MAC) and offer & bit(vu.F_MTU), f"MAC or MTU not offered: {offer:#x}")
    check_equal(config[:6].hex(":"), "52:54:00:12:34:56", "mac")
    check_equal(int.from_bytes(config[6:8], "little") & 1, 1, "link up")
    check_equal(int.from_bytes(config[8:10], "little"), 3, "max_virtqueue_pairs")
    check_equal(int.from_bytes(config[10:12], "little"), 1400, "mtu")


def queue_size_limit():
    "--queue-size refuses larger rings"
    device = start("--queue-size=128")
    with NetDriver(device.socket_path, size=128) as driver:
        check_equal(driver.exchange(NumberedFrames(1), 0, 50), 50, "frames in rings of 128")
        try:
            driver.front_end.order(vu.SET_VRING_NUM, vu.state(0, 256))
            check(False, "a ring of 256 was accepted")
        except (vu.Refused, vu.Closed):
            pass


run_tests(help_texts, bad_usage, things_that_cannot_be_opened, output_that_nobody_takes,
          capabilities, ends_in_order, json_report, text_report, regular_report, stale_and_live_sockets, socket_of_another,
          killed_and_started_again, file_descriptors, client_mode, one_front_end_at_a_time,
          features_by_name, configuration_space, queue_size_limit)
