/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls for transmitted bulk data alone, so that its senders see their bytes in flight (seed 003).
 */
#include <stdio.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/pair.h"

static const char *const headings[] = {"workload", "bytes", "sessions", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_BYTES, "Gbit/s before"},
    {BENCH_COLUMN_GAIN, BENCH_BYTES, "throughput"},
    {BENCH_COLUMN_GAIN, BENCH_CPU, "CPU"},
    {BENCH_COLUMN_GAIN, BENCH_BYTES_PER_CPU, "per CPU"},
    {BENCH_COLUMN_BEFORE, BENCH_FRAME_BYTES, "bytes/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_FRAME_BYTES, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_CALLS, "calls/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_CALLS, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_KICKS, "kicks/frame before"},
    {BENCH_COLUMN_AFTER, BENCH_KICKS, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_LATENCY_MEDIAN, "us before"},
    {BENCH_COLUMN_AFTER, BENCH_LATENCY_MEDIAN, "after"},
};

/* The first is what seed 003 replaces, the second is what it proposes, and the last is what its
 * reviewers asked for: everything completed at some time, limits, and deferred kicks. */
static const struct policy {
    const char *name, *options, *feature;
} policies[] = {
    {"orphan", "--tx-policy=orphan --byte-queue-limits=off --burst=1", NULL},
    {"urgent", "--tx-policy=urgent --byte-queue-limits=off --burst=1", "urgent"},
    {"deferred", "--tx-policy=deferred --byte-queue-limits=on --burst=32", NULL},
};

enum workload { TRANSMIT, RECEIVE, REQUESTS };

static void read_latency(const struct bench_pair_slice *slice, struct bench_sample *sample)
{
    double transactions = bench_document_difference(slice->driver_before, slice->driver_after,
                                                    "stream_sent.transactions");

    sample->value[BENCH_TRANSACTIONS] = transactions / slice->seconds;
    sample->value[BENCH_LATENCY_MEDIAN] =
        bench_document_number(slice->driver_after, "latency_seconds.median");
    sample->value[BENCH_LATENCY_P99] =
        bench_document_number(slice->driver_after, "latency_seconds.p99");
}

#define SIZE sizeof(((struct bench_pair_parameters *)NULL)->device)

static void set_options(struct bench_pair_parameters *parameters, enum workload workload,
                        unsigned bytes, unsigned sessions, const char *policy)
{
    switch (workload) {
    case TRANSMIT:
        parameters->direction = BENCH_TO_DEVICE;
        snprintf(parameters->device, SIZE, "--features=urgent=on --port sink,acknowledge=2");
        snprintf(parameters->driver, SIZE, "pktgen --streams=%u --write=%u --acknowledged %s",
                 sessions, bytes, policy);
        break;
    case RECEIVE:
        parameters->direction = BENCH_TO_DRIVER;
        snprintf(parameters->device, SIZE, "--features=urgent=on --port source,streams=%u,write=%u",
                 sessions, bytes);
        snprintf(parameters->driver, SIZE, "sink --acknowledge=2 %s", policy);
        break;
    case REQUESTS:
        parameters->direction = BENCH_LOOP;
        parameters->more = read_latency;
        snprintf(parameters->device, SIZE, "--features=urgent=on --port loop");
        snprintf(parameters->driver, SIZE, "pktgen --loop --streams=%u --write=%u %s", sessions,
                 bytes, policy);
        break;
    }
}

static void plan_cell(struct bench_cell_list *cells, enum workload workload, unsigned bytes,
                      unsigned sessions)
{
    static const char *const names[] = {"transmit", "receive", "requests"};
    char bytes_text[16], sessions_text[16];
    const char *labels[] = {names[workload], bytes_text, sessions_text, NULL};
    struct bench_cell *cell;

    snprintf(bytes_text, sizeof(bytes_text), "%u", bytes);
    snprintf(sessions_text, sizeof(sessions_text), "%u", sessions);
    cell = bench_plan_cell(cells, labels);
    for (size_t i = 0; i < VW_ARRAY_SIZE(policies); i++) {
        /* Both sides are adaptive, the default, and sleep when the other one is slower. */
        struct bench_pair_parameters parameters = {
            .device_sleeps = true, .driver_sleeps = true, .feature = policies[i].feature};

        set_options(&parameters, workload, bytes, sessions, policies[i].options);
        bench_plan_variant(cell, policies[i].name, &bench_pair_runner, &parameters,
                           sizeof(parameters));
    }
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    static const unsigned sizes[] = {64, 256, 1024, 4096, 16384, 65535}, sessions[] = {1, 2, 4, 8};
    static const unsigned requests[] = {256, 4096}, clients[] = {1, 25, 50};

    if (context->options->quick) {
        plan_cell(cells, TRANSMIT, 64, 1);
        plan_cell(cells, TRANSMIT, 1024, 8);
        plan_cell(cells, RECEIVE, 16384, 4);
        plan_cell(cells, REQUESTS, 256, 25);
        return 0;
    }
    for (int workload = TRANSMIT; workload <= RECEIVE; workload++)
        for (size_t i = 0; i < VW_ARRAY_SIZE(sizes); i++)
            for (size_t j = 0; j < VW_ARRAY_SIZE(sessions); j++)
                plan_cell(cells, (enum workload)workload, sizes[i], sessions[j]);
    for (size_t i = 0; i < VW_ARRAY_SIZE(requests); i++)
        for (size_t j = 0; j < VW_ARRAY_SIZE(clients); j++)
            plan_cell(cells, REQUESTS, requests[i], clients[j]);
    return 0;
}

const struct bench_experiment bench_tx_interrupt = {
    .name = "tx-interrupt",
    .title = "calls for transmitted bulk data, so that its senders see what is in flight",
    .summary =
        "Senders of TCP write so many bytes at a time. Before: the driver releases each frame from "
        "its sender at once (orphan). After: bulk data, that is segments without PSH, asks for a "
        "call and stays in its sender's account until it is completed (urgent, seed 003); or all "
        "frames do, with calls and kicks deferred and the bytes in flight limited (deferred, what "
        "the seed's reviewers asked for). No stack of a kernel is here. The senders are a model: "
        "an "
        "application writes as fast as it may; a write joins the pending segment while bytes of "
        "the stream are with the driver (auto-corking) or, less than an MSS, while an earlier "
        "small segment is not acknowledged (Nagle's rule); none goes while more than 128 KiB are "
        "with the driver (small queues) or 1 MiB is not acknowledged. Segments have up to 64 KiB, "
        "which the device is asked to cut, and their checksums are left to it. The far side "
        "compares each byte, acknowledges every second segment, and never loses any, so that "
        "nothing is sent again. A write is a copy of its bytes; there is no system call, and no "
        "interrupt stops it: the sender looks at the device when the streams have written 1460 "
        "bytes, under all policies. receive: the device sends a segment a write, the driver "
        "acknowledges every second. requests: each session sends its next request when the device "
        "has sent the last one back. Seed 003 saw 68 to 75 % more throughput of 64-byte writes, 48 "
        "to 160 % of 256-byte ones, nothing above 4096, and nothing received or in requests.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_BYTES,
    .plan = plan,
};
