# SPDX-License-Identifier: BSD-3-Clause
"""
A QEMU guest in eight combinations of six two-way choices. They are the rows of an orthogonal
array: any two of the choices meet in all four ways, so ring format and queue pairs in particular.
"""
from harness import *
from lab.scenario import EVENT_IDX, INDIRECT, MQ, MRG_RXBUF, PACKED, Scene


def rows():
    for a in (0, 1):
        for b in (0, 1):
            for c in (0, 1):
                yield {"packed": a, "pairs": 1 + b, "mrg_rxbuf": c, "indirect_desc": a ^ b ^ 1,
                       "event_idx": a ^ c ^ 1, "mtu": (1500, 9000)[b ^ c]}


def both_pairs_work(scene):
    """Flows enough that both receive queues have their share; the guest's CPUs choose for transmit."""
    for cpu in (1, 2):
        scene.guest.shell(f"taskset {cpu} agent udp-send {HOST} 9 50 400")
    for _ in range(64):  # chance, too, chooses the receive queue of a flow
        scene.wire.udp_echo(count=8)
        queues = scene.device.statistics()["queues"]
        idle = [queue["index"] for queue in queues[:4] if queue["frames"] == 0]
        if not idle:
            break
    check_equal(idle, [], "queues without a frame")


def matrix_case(row):
    def on(name):
        return "on" if row[name] else "off"

    def case():
        scene = Scene(
            QemuGuest, f"--queue-pairs={row['pairs']}",
            port=f"tap,name=vw0,mtu={row['mtu']}", mtu=row["mtu"],
            guest_options={"queue_pairs": row["pairs"], "packed": on("packed"),
                           "mrg_rxbuf": on("mrg_rxbuf"), "indirect_desc": on("indirect_desc"),
                           "event_idx": on("event_idx"), "host_mtu": row["mtu"]})
        bits = {PACKED: row["packed"], MRG_RXBUF: row["mrg_rxbuf"],
                INDIRECT: row["indirect_desc"], EVENT_IDX: row["event_idx"], MQ: row["pairs"] > 1}
        scene.check_features([b for b, value in bits.items() if value],
                             [b for b, value in bits.items() if not value])
        scene.exchange()
        scene.wire.ping_from_host(size=row["mtu"] - 28)
        scene.wire.ping_from_guest(size=row["mtu"] - 28)
        if row["pairs"] > 1:
            both_pairs_work(scene)
        scene.check_healthy("packed" if row["packed"] else "split")
        scene.finish()

    title = ", ".join([("split", "packed")[row["packed"]], f"{row['pairs']} queue pairs",
                       *(f"{name} {on(name)}" for name in ("mrg_rxbuf", "indirect_desc",
                                                            "event_idx")), f"MTU {row['mtu']}"])
    return title, case


def microvm():
    "A microvm: virtio over MMIO"
    scene = Scene(QemuGuest, guest_options={"machine": "microvm"})
    scene.exchange()
    scene.check_healthy()
    scene.finish()


def no_offloads():
    "A guest that took no offload at all"
    off = dict.fromkeys(("csum", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "host_tso4",
                         "host_tso6", "host_ecn", "mrg_rxbuf"), "off")
    scene = Scene(QemuGuest, guest_options=off)
    scene.check_features(absent=range(0, 2))
    scene.exchange()
    scene.check_healthy()
    scene.finish()


def large_rings():
    "Rings of 1024 entries"
    scene = Scene(QemuGuest, guest_options={"rx_queue_size": 1024, "tx_queue_size": 1024})
    scene.exchange()
    statistics = scene.check_healthy()
    check_equal([queue["size"] for queue in statistics["queues"][:2]], [1024, 1024], "ring sizes")
    scene.finish()


run_tests(*map(matrix_case, rows()), microvm, no_offloads, large_rings)
