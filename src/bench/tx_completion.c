/* SPDX-License-Identifier: BSD-3-Clause */
/* When transmitted frames are reaped, and who asks for calls (seed 000). */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/pair.h"

static const char *const headings[] = {"ring", "calls handled", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_FRAMES, "Mpps before"},
    {BENCH_COLUMN_AFTER, BENCH_FRAMES, "Mpps after"},
    {BENCH_COLUMN_GAIN, BENCH_FRAMES, "gain"},
    {BENCH_COLUMN_ELIMINATED, BENCH_CALLS, "calls eliminated"},
    {BENCH_COLUMN_DEVIATION_BEFORE, BENCH_FRAMES, "%stddev before"},
    {BENCH_COLUMN_DEVIATION_AFTER, BENCH_FRAMES, "%stddev after"},
    {BENCH_COLUMN_BEFORE, BENCH_CALLS, "calls/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_CALLS, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_DRIVER_CPU, "driver ns/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_DRIVER_CPU, "after"},
};

/* The first is the mechanism that seed 000 replaces. */
static const char *const policies[] = {"delayed", "orphan", "deferred", "scheduled"};

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    (void)context;
    for (int packed = 0; packed < 2; packed++) {
        const char *labels[] = {packed ? "packed" : "split", "by the sender", NULL};
        struct bench_cell *cell = bench_plan_cell(cells, labels);

        for (size_t i = 0; i < VW_ARRAY_SIZE(policies); i++) {
            struct bench_pair_parameters parameters = {.driver_sleeps = true};

            snprintf(parameters.device, sizeof(parameters.device), "--port sink --mode=poll");
            snprintf(parameters.driver, sizeof(parameters.driver),
                     "pktgen --burst=256 --size=64 --tx-policy=%s --features=packed=%s",
                     policies[i], packed ? "on" : "off");
            *(packed ? &parameters.feature : &parameters.absent) = "packed";
            bench_plan_variant(cell, policies[i], &bench_pair_runner, &parameters,
                               sizeof(parameters));
        }
    }
    return 0;
}

const struct bench_experiment bench_tx_completion = {
    .name = "tx-completion",
    .title = "when transmitted frames are found completed, and who asks for calls",
    .summary = "A driver sends bursts of 256 frames of 64 bytes to a device that polls.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_FRAMES,
    .plan = plan,
};
