/* SPDX-License-Identifier: BSD-3-Clause */
/* When transmitted frames are reaped, and who asks for calls (seed 000). */
#include <stdio.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/lanes.h"

static const char *const headings[] = {"ring", "calls handled", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_FRAMES, "Mpps before"},
    {BENCH_COLUMN_AFTER, BENCH_FRAMES, "Mpps after"},
    {BENCH_COLUMN_GAIN, BENCH_FRAMES, "gain"},
    {BENCH_COLUMN_ELIMINATED, BENCH_CALLS, "calls eliminated"},
    {BENCH_COLUMN_DEVIATION_BEFORE, BENCH_FRAMES, "%stddev before"},
    {BENCH_COLUMN_DEVIATION_AFTER, BENCH_FRAMES, "%stddev after"},
    {BENCH_COLUMN_BEFORE, BENCH_BYTES, "Gbit/s before"},
    {BENCH_COLUMN_AFTER, BENCH_BYTES, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_CALLS, "calls/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_CALLS, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_DRIVER_CPU, "driver ns/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_DRIVER_CPU, "after"},
};

/* The first is the mechanism that seed 000 replaces. */
static const char *const policies[] = {"delayed", "orphan", "deferred", "scheduled"};

/* Who takes sent frames back when the device calls. */
static const char *const handlers[] = {"by the sender", "sender's core", "device's core"};
enum handler { SENDER, SENDERS_CORE, DEVICES_CORE, HANDLERS };

/* The driver may sleep: by itself while the ring is full, or else its other thread. */
static void add_variant(const struct bench_context *context, struct bench_cell *cell, bool packed,
                        enum handler handler, const char *policy)
{
    struct bench_pair_parameters parameters = {.driver_sleeps = true};
    char completions[32] = "";

    if (handler != SENDER)
        snprintf(completions, sizeof(completions), " --completion-cpu=%u",
                 context->options->cores[handler == SENDERS_CORE ? 0 : 1]);
    /* On the device's core the other thread takes from the device what it needs. */
    parameters.device_sleeps = handler == DEVICES_CORE;
    snprintf(parameters.device, sizeof(parameters.device), "--port sink --mode=poll");
    snprintf(parameters.driver, sizeof(parameters.driver),
             "pktgen --burst=256 --size=64 --tx-policy=%s --features=packed=%s%s", policy,
             packed ? "on" : "off", completions);
    *(packed ? &parameters.feature : &parameters.absent) = "packed";
    bench_plan_variant(cell, policy, &bench_pair_runner, &parameters, sizeof(parameters));
}

/* ---- a stream to a TAP ----------------------------------------------------------------------- */

static void plan_stream(struct bench_cell_list *cells, bool packed)
{
    const char *labels[] = {packed ? "packed" : "split", "TSO stream to a TAP, one core", NULL};
    struct bench_cell *cell = bench_plan_cell(cells, labels);

    cell->cores = 1;
    for (size_t i = 0; i < VW_ARRAY_SIZE(policies); i++) {
        struct bench_pair_parameters parameters = {
            .driver_sleeps = true, .device_sleeps = true, .one_core = true};

        snprintf(parameters.device, sizeof(parameters.device),
                 "--port tap,name=host0 --mode=interrupt");
        snprintf(parameters.driver, sizeof(parameters.driver),
                 "pktgen --streams=1 --write=65536 --mode=interrupt --tx-policy=%s "
                 "--features=packed=%s",
                 policies[i], packed ? "on" : "off");
        *(packed ? &parameters.feature : &parameters.absent) = "packed";
        bench_plan_variant(cell, policies[i], &bench_tap_runner, &parameters, sizeof(parameters));
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void plan_cell(const struct bench_context *context, struct bench_cell_list *cells,
                      bool packed, enum handler handler)
{
    const char *labels[] = {packed ? "packed" : "split", handlers[handler], NULL};
    struct bench_cell *cell = bench_plan_cell(cells, labels);

    for (size_t i = 0; i < VW_ARRAY_SIZE(policies); i++)
        add_variant(context, cell, packed, handler, policies[i]);
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    if (context->options->quick) {
        plan_cell(context, cells, false, SENDERS_CORE);
        plan_cell(context, cells, true, SENDERS_CORE);
        plan_stream(cells, true);
        return 0;
    }
    for (int handler = 0; handler < HANDLERS; handler++)
        for (int packed = 0; packed < 2; packed++)
            plan_cell(context, cells, packed, (enum handler)handler);
    for (int packed = 0; packed < 2; packed++)
        plan_stream(cells, packed);
    return 0;
}

const struct bench_experiment bench_tx_completion = {
    .name = "tx-completion",
    .title = "when transmitted frames are found completed, and who asks for calls",
    .summary =
        "A driver sends bursts of 256 frames of 64 bytes, at full speed, to a device that polls "
        "and checks them. The policies differ in when sent frames are taken back, and in who "
        "asks the device for calls. 'delayed' is what Linux did before seed 000, 'deferred' "
        "what it does since. Calls are handled by the sending thread itself when it has to wait "
        "for room; or by a thread of its own on the sender's core, which takes that core from "
        "the sender, as an interrupt does; or on the device's core, from which it takes time "
        "(in the seed: on a third core). The seed saw, with an interrupt for a call, 6.89 to "
        "10.7 Mpps (split) and 7.09 to 10.7 (packed) on the sender's core, 5.29 to 10.4 on "
        "another, and 32 to 99 % of the interrupts gone. The last cells are one TCP stream of "
        "64 KiB segments to a TAP, both sides and the host's stack on one core (seed: 31 to 58 "
        "Gbit/s); the sender forms its segments by what the driver says is in flight, and "
        "nobody acknowledges.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_FRAMES,
    .needs_network = true,
    .plan = plan,
};
