/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runner for a driver and a device of which each is virtwire's or DPDK's.
 *
 *             driver                                device
 *   virtwire  virtwire pktgen, or sink              virtwire device --port sink, source, or loop
 *   DPDK      testpmd, net_virtio_user              testpmd, net_vhost
 *
 * Both poll, with the same rings and bursts, and no offloads; the device copies each frame. Who
 * receives counts. Frames of virtwire are numbered, and checked where virtwire receives them;
 * testpmd looks at none. Therefore, whoever they are, the totals of both sides are compared at the
 * end of each slice, when the sender stands still and the receiver has taken what was under way.
 */
#ifndef VW_BENCH_MIXED_PAIR_H
#define VW_BENCH_MIXED_PAIR_H

#include "bench/bench.h"
#include "bench/pair.h"

#define BENCH_MIXED_RING 256
#define BENCH_MIXED_BURST 32

enum bench_maker { BENCH_VIRTWIRE, BENCH_DPDK };

struct bench_mixed_parameters {
    enum bench_maker driver, device;
    bool packed, mergeable, in_order;
    bool vectorised; /* DPDK's driver: of 512 bit; must have such a path, or open fails */
    enum bench_direction direction;
    unsigned frame_bytes;
};

extern const struct bench_runner bench_mixed_runner;

#endif
