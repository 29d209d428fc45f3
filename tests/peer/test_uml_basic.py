# SPDX-License-Identifier: BSD-3-Clause
"""A User-mode Linux guest in every combination of the ring features that change the code's way."""
from harness import *
from lab.scenario import (EVENT_IDX, GUEST_TSO4, HOST_TSO4, INDIRECT, MRG_RXBUF, PACKED, Scene,
                          features_off)


def ring_case(packed, mergeable, event_idx, indirect):
    wanted = {"packed": (packed, PACKED), "mrg_rxbuf": (mergeable, MRG_RXBUF),
              "event_idx": (event_idx, EVENT_IDX), "indirect_desc": (indirect, INDIRECT)}

    def case():
        scene = Scene(UmlGuest, *features_off(*(n for n, (on, _) in wanted.items() if not on)))
        scene.check_features([bit for on, bit in wanted.values() if on],
                             [bit for on, bit in wanted.values() if not on])
        scene.exchange()
        scene.check_healthy("packed" if packed else "split")
        scene.finish()

    words = [name.replace("_desc", "") if on else f"no {name.replace('_desc', '')}"
             for name, (on, _) in wanted.items() if name != "packed"]
    return f"{'packed' if packed else 'split'}, {', '.join(words)}", case


def offload_case(title, device_options, port, absent):
    def case():
        scene = Scene(UmlGuest, *device_options, port=port)
        scene.check_features(absent=absent)
        scene.exchange()
        scene.check_healthy()
        scene.finish()
    return title, case


# With the ring format and mergeable buffers in full, each pair of the other two comes twice.
RINGS = [(packed, mergeable, event_idx, event_idx == mergeable)
         for packed in (False, True) for mergeable in (True, False)
         for event_idx in (True, False)][::3 if BRIEF else 1]

run_tests(
    *(ring_case(*ring) for ring in RINGS),
    offload_case("small receive buffers: neither mergeable nor segmentation offload",
                 features_off("mrg_rxbuf", "guest_tso4", "guest_tso6", "guest_uso4", "guest_uso6",
                              "guest_ecn"), tap_port(), [MRG_RXBUF, GUEST_TSO4]),
    offload_case("a guest without any offload", features_off("csum", "guest_csum"),
                 tap_port(), [0, 1, GUEST_TSO4, HOST_TSO4]),
    offload_case("a guest without receive offloads: checksums are completed for it",
                 features_off("guest_csum"), "tap,name=vw0", [1, GUEST_TSO4]),
    offload_case("a port without offloads", [], "tap,name=vw0,offload=off", []))
