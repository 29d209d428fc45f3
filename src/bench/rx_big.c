/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Big receive buffers sized by the MTU (seed 004).
 *
 * A device sends full frames as fast as it finds buffers. A big buffer is a chain of pages: without
 * indirect descriptors each page takes an entry of the ring, and 256 of them are 13 buffers of
 * 64 KiB, or 51 for an MTU of 9000. Segments that are still to be cut are not accepted in any of
 * the cells: for those a buffer must take 64 KiB.
 *
 * How much that matters depends on how long the device waits for new buffers, so that there are two
 * ways of waiting: both sides adaptive, the default, in which neither sleeps while frames flow; and
 * what the seed measured, a device that looks by itself as hardware does, and a driver that sleeps
 * until it is called.
 */
#include <stdio.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/pair.h"

static const char *const headings[] = {"MTU", "ring", "features", "waiting", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_BYTES, "Gbit/s before"},
    {BENCH_COLUMN_AFTER, BENCH_BYTES, "Gbit/s after"},
    {BENCH_COLUMN_GAIN, BENCH_BYTES, "gain"},
    {BENCH_COLUMN_DEVIATION_BEFORE, BENCH_BYTES, "%stddev before"},
    {BENCH_COLUMN_DEVIATION_AFTER, BENCH_BYTES, "%stddev after"},
    {BENCH_COLUMN_BEFORE, BENCH_DESCRIPTORS, "descriptors before"},
    {BENCH_COLUMN_AFTER, BENCH_DESCRIPTORS, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_BUFFER_BYTES, "KiB a buffer before"},
    {BENCH_COLUMN_AFTER, BENCH_BUFFER_BYTES, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_BUFFERS, "buffers before"},
    {BENCH_COLUMN_AFTER, BENCH_BUFFERS, "after"},
};

/* Those of the seed. The rings of all but the last are split. */
static const struct features {
    const char *name;
    bool mtu, indirect, packed;
} feature_sets[] = {
    {"MTU feature off", false, false, false},
    {"plain", true, false, false},
    {"indirect", true, true, false},
    {"indirect, packed", true, true, true},
};

static const struct waiting {
    const char *name, *device, *driver;
} waitings[] = {
    {"adaptive", "adaptive", "adaptive"},
    {"driver sleeps", "poll", "interrupt"},
};

static const struct buffers {
    const char *name, *options, *mergeable;
} buffer_kinds[] = {
    {"maximum", "--rx-mode=big --rx-big=maximum", "off"},
    {"mtu", "--rx-mode=big --rx-big=mtu", "off"},
    {"mergeable", "--rx-mode=mergeable", "on"},
};

#define NO_SEGMENTS "guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off"

static void read_buffers(const struct bench_pair_slice *slice, struct bench_sample *sample)
{
    const json_t *driver = slice->driver_after;

    sample->value[BENCH_DESCRIPTORS] = bench_document_number(driver, "rx_buffer.descriptors");
    sample->value[BENCH_BUFFER_BYTES] = bench_document_number(driver, "rx_buffer.bytes");
    sample->value[BENCH_BUFFERS] = bench_document_number(driver, "rx_buffer.in_ring");
}

static const char *off_on(bool on)
{
    return on ? "on" : "off";
}

static void plan_variant(struct bench_cell *cell, unsigned mtu, unsigned ring,
                         const struct features *features, const struct waiting *waiting,
                         const struct buffers *buffers)
{
    struct bench_pair_parameters parameters = {
        .direction = BENCH_TO_DRIVER, .driver_sleeps = true, .more = read_buffers};
    char told[32];

    /* Who does not hear of the MTU from the device is told it by its user. */
    snprintf(told, sizeof(told), " --mtu=%u", mtu);
    snprintf(parameters.device, sizeof(parameters.device), "--port source,size=%u --mode=%s%s",
             mtu + 14, waiting->device, features->mtu ? told : "");
    snprintf(parameters.driver, sizeof(parameters.driver),
             "sink --mode=%s --ring-size=%u%s %s "
             "--features=" NO_SEGMENTS ",mrg_rxbuf=%s,indirect_desc=%s,packed=%s",
             waiting->driver, ring, features->mtu ? "" : told, buffers->options, buffers->mergeable,
             off_on(features->indirect), off_on(features->packed));
    *(features->mtu ? &parameters.feature : &parameters.absent) = "mtu";
    bench_plan_variant(cell, buffers->name, &bench_pair_runner, &parameters, sizeof(parameters));
}

static void plan_cell(struct bench_cell_list *cells, unsigned mtu, unsigned ring,
                      const struct features *features, const struct waiting *waiting)
{
    char mtu_text[16], ring_text[16];
    const char *labels[] = {mtu_text, ring_text, features->name, waiting->name, NULL};
    struct bench_cell *cell;

    snprintf(mtu_text, sizeof(mtu_text), "%u", mtu);
    snprintf(ring_text, sizeof(ring_text), "%u", ring);
    cell = bench_plan_cell(cells, labels);
    for (size_t i = 0; i < VW_ARRAY_SIZE(buffer_kinds); i++)
        plan_variant(cell, mtu, ring, features, waiting, &buffer_kinds[i]);
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    static const unsigned mtus[] = {1500, 9000}, rings[] = {256, 1024};

    if (context->options->quick) {
        plan_cell(cells, 9000, 256, &feature_sets[1], &waitings[0]);
        plan_cell(cells, 9000, 256, &feature_sets[3], &waitings[1]);
        return 0;
    }
    for (size_t w = 0; w < VW_ARRAY_SIZE(waitings); w++)
        for (size_t m = 0; m < VW_ARRAY_SIZE(mtus); m++)
            for (size_t r = 0; r < VW_ARRAY_SIZE(rings); r++)
                for (size_t f = 0; f < VW_ARRAY_SIZE(feature_sets); f++)
                    plan_cell(cells, mtus[m], rings[r], &feature_sets[f], &waitings[w]);
    return 0;
}

const struct bench_experiment bench_rx_big = {
    .name = "rx-big",
    .title = "big receive buffers sized by the MTU, not by 64 KiB",
    .summary =
        "A device sends full frames as fast as it finds buffers. Before: receive buffers of mode "
        "big take 64 KiB, as drivers had them. After: as many pages as the MTU needs, or mergeable "
        "buffers. Frames that are still to be segmented are not accepted. Seed 004 saw 5.5 times "
        "the throughput on a ring of 256 at MTU 9000 (2.15 to 11.9 Gbit/s), twice on one of 1024, "
        "and no difference at MTU 1500 or with indirect descriptors. There a network card, whose "
        "driver sleeps until it is interrupted, ran out of buffers; \"driver sleeps\" is like it, "
        "with a device that polls; \"adaptive\" is the default of both sides. At MTU 1500 the "
        "seed's "
        "driver had small buffers in either case; here mode big is kept. \"MTU feature off\": the "
        "driver is told the MTU by its user. On a packed ring with indirect descriptors a big "
        "buffer is one descriptor of adjacent pages.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_BYTES,
    .plan = plan,
};
