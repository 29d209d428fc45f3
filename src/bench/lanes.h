/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runners for a pair whose device has a TAP, each with network namespaces of its own, for several
 * experiments. Interfaces in them are named host0, the device's, and guest0.
 */
#ifndef VW_BENCH_LANES_H
#define VW_BENCH_LANES_H

#include "bench/pair.h"

/* tap_lane.c: what the device writes to host0 is dropped by the host's stack, since its address is
 * another's and nobody answers; or before it, by an XDP program. Parameters:
 * struct bench_pair_parameters. */
extern const struct bench_runner bench_tap_runner;
extern const struct bench_runner bench_drop_runner;

/* stream_lane.c: TCP streams from the namespace of guest0, which `virtwire bridge` joins to the
 * device, to that of host0. */
struct bench_stream_parameters {
    struct bench_pair_parameters pair;
    unsigned streams, write; /* how many; bytes of a write */
    bool forward;            /* no pair: a plain program between the TAPs, on the device's core */
};
extern const struct bench_runner bench_stream_runner;

#endif
