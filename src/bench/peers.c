/* SPDX-License-Identifier: BSD-3-Clause */
/* virtwire beside DPDK: every pair of a driver and a device of theirs. */
#include <stdio.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/mixed_pair.h"
#include "bench/testpmd.h"

static const char *const headings[] = {"ring",  "mergeable",     "in order", "direction",
                                       "bytes", "DPDK's driver", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_FRAMES, "dpdk-dpdk, Mpps"},
    {BENCH_COLUMN_AFTER, BENCH_FRAMES, "Mpps"},
    {BENCH_COLUMN_RATIO, BENCH_FRAMES, "ratio"},
    {BENCH_COLUMN_GAIN, BENCH_FRAMES, "gain"},
    {BENCH_COLUMN_AFTER, BENCH_LIMIT, "no ring, Mpps"},
    {BENCH_COLUMN_DEVIATION_BEFORE, BENCH_FRAMES, "%stddev"},
    {BENCH_COLUMN_DEVIATION_AFTER, BENCH_FRAMES, "%stddev"},
    {BENCH_COLUMN_AFTER, BENCH_DRIVER_CPU, "driver ns/frame"},
    {BENCH_COLUMN_AFTER, BENCH_DEVICE_CPU, "device ns/frame"},
};

/* Who is the driver, and who the device. The first is what the others are compared with. */
static const struct {
    const char *name;
    enum bench_maker driver, device;
} pairs[] = {
    {"dpdk-dpdk", BENCH_DPDK, BENCH_DPDK},
    {"virtwire-virtwire", BENCH_VIRTWIRE, BENCH_VIRTWIRE},
    {"virtwire-dpdk", BENCH_VIRTWIRE, BENCH_DPDK},
    {"dpdk-virtwire", BENCH_DPDK, BENCH_VIRTWIRE},
};

static const char *const directions[] = {
    [BENCH_TO_DEVICE] = "to_device", [BENCH_TO_DRIVER] = "to_driver", [BENCH_LOOP] = "loop"};

static void plan_cell(struct bench_cell_list *cells, struct bench_mixed_parameters parameters)
{
    char bytes[16];
    const char *labels[] = {parameters.packed ? "packed" : "split",
                            parameters.mergeable ? "mergeable=on" : "mergeable=off",
                            parameters.in_order ? "in_order=on" : "in_order=off",
                            directions[parameters.direction],
                            bytes,
                            parameters.vectorised ? "vectorised" : "scalar",
                            NULL};
    struct bench_cell *cell;

    snprintf(bytes, sizeof(bytes), "%u", parameters.frame_bytes);
    cell = bench_plan_cell(cells, labels);
    for (size_t i = 0; i < VW_ARRAY_SIZE(pairs); i++) {
        parameters.driver = pairs[i].driver;
        parameters.device = pairs[i].device;
        bench_plan_variant(cell, pairs[i].name, &bench_mixed_runner, &parameters,
                           sizeof(parameters));
    }
}

/* Each kind of ring, and each direction, once. */
static void plan_quick(struct bench_cell_list *cells)
{
    plan_cell(cells, (struct bench_mixed_parameters){
                         .mergeable = true, .in_order = true, .frame_bytes = 64});
    plan_cell(cells, (struct bench_mixed_parameters){
                         .packed = true, .direction = BENCH_TO_DRIVER, .frame_bytes = 1518});
    plan_cell(cells, (struct bench_mixed_parameters){.packed = true,
                                                     .in_order = true,
                                                     .vectorised = true,
                                                     .direction = BENCH_LOOP,
                                                     .frame_bytes = 64});
}

/* Where virtio-user has vectorised paths, DPDK's best: on a packed ring with in-order, to receive
 * only without mergeable; on a split one to receive, without either. */
static bool has_vectorised_path(const struct bench_mixed_parameters *parameters)
{
    if (parameters->packed)
        return parameters->in_order &&
               (!parameters->mergeable || parameters->direction == BENCH_TO_DEVICE);
    return !parameters->in_order && !parameters->mergeable &&
           parameters->direction == BENCH_TO_DRIVER;
}

static void plan_all(struct bench_cell_list *cells, unsigned frame_bytes)
{
    for (unsigned i = 0; i < 8 * VW_ARRAY_SIZE(directions); i++) {
        struct bench_mixed_parameters parameters = {.packed = (i & 4) != 0,
                                                    .mergeable = (i & 2) == 0,
                                                    .in_order = (i & 1) == 0,
                                                    .direction = (enum bench_direction)(i / 8),
                                                    .frame_bytes = frame_bytes};

        plan_cell(cells, parameters);
        parameters.vectorised = true;
        if (has_vectorised_path(&parameters))
            plan_cell(cells, parameters);
    }
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    if (bench_testpmd_present(context) < 0)
        return -1;
    if (context->options->quick) {
        plan_quick(cells);
        return 0;
    }
    plan_all(cells, 64);
    plan_all(cells, 1518);
    return 0;
}

const struct bench_experiment bench_peers = {
    .name = "peers",
    .title = "virtwire beside DPDK: every pair of their drivers and devices",
    .summary =
        "A pair is named by its driver, then its device: virtwire's, or DPDK's testpmd "
        "(virtio-user "
        "and net_vhost). All poll, with rings of 256 entries, bursts of 32 and no offloads, and "
        "each "
        "device copies every frame. Who receives counts the frames. Those of virtwire are numbered "
        "and filled anew each time, and checked where virtwire receives them; testpmd sends the "
        "same "
        "bytes again and again, and looks at none, which spares it most of the work with frames of "
        "1518 bytes. So that nothing is lost unseen, the totals of sender and receiver are "
        "compared "
        "after each slice. In a loop the device returns what the driver sent, and as many frames "
        "are under way as its rings hold. \"No ring\" is what two cores hand over through plain "
        "cache lines, without descriptors, measured at the end of each slice.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_FRAMES,
    .needs_testpmd = true,
    .plan = plan,
};
