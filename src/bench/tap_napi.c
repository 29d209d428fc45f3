/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How frames of TCP streams enter the host's stack through a TAP (seed 001).
 *
 * Two namespaces with a network stack each. The guest's half is a TAP that `virtwire bridge` joins
 * to the device as its driver; the device's port is the other TAP. Streams of small writes go from
 * the one to the other: the sender and the bridge share a core, as in a guest, the device and the
 * receiver the other one. Since they share, nobody spins (--mode=interrupt): with the adaptive mode
 * the rates varied three times as much, and were lower where writes are small (128 bytes, 12
 * streams: 1.68 Gbit/s against 1.94), as the time that one spins is the other's.
 *
 * The device writes many frames with one system call, but the kernel takes each by itself. With
 * IFF_NAPI it puts it into a queue of the TAP and polls that at once: GRO, which is to merge
 * segments, then sees one at a time. vhost, for which the seed was made, hands over up to 64 frames
 * in one message. How many frames the receiver's stack saw as one is in the table: it counts
 * segments after GRO.
 */
#include <stdio.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/lanes.h"

#define BULK_WRITE 65536

static const char *const headings[] = {"streams", "write", "frames", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_BYTES, "Gbit/s before"},
    {BENCH_COLUMN_AFTER, BENCH_BYTES, "Gbit/s after"},
    {BENCH_COLUMN_GAIN, BENCH_BYTES, "gain"},
    {BENCH_COLUMN_DEVIATION_BEFORE, BENCH_BYTES, "%stddev before"},
    {BENCH_COLUMN_DEVIATION_AFTER, BENCH_BYTES, "%stddev after"},
    {BENCH_COLUMN_BEFORE, BENCH_DEVICE_CPU_BYTE, "device ns/byte before"},
    {BENCH_COLUMN_AFTER, BENCH_DEVICE_CPU_BYTE, "after"},
    {BENCH_COLUMN_BEFORE, BENCH_MERGED, "frames as one before"},
    {BENCH_COLUMN_AFTER, BENCH_MERGED, "after"},
};

/* ---- the plan -------------------------------------------------------------------------------- */

/* What the guest sends: large frames, to be segmented by whoever needs that, or none. */
static const struct frames {
    const char *name, *io, *bridge;
} frame_kinds[] = {
    {"large", "uring", ""},
    {"1514 bytes", "uring", " --features=host_tso4=off,host_tso6=off,host_uso=off"},
    {"1514, write()", "plain", " --features=host_tso4=off,host_tso6=off,host_uso=off"},
};

static const struct tap {
    const char *name, *options;
} taps[] = {
    {"neither", "napi=off,coalesce=off"},
    {"napi", "napi=on,coalesce=off"},
    {"coalesce", "napi=off,coalesce=on"},
};

static struct bench_cell *plan_labels(struct bench_cell_list *cells, unsigned streams,
                                      unsigned write, const char *frames)
{
    char streams_text[16], write_text[16];
    const char *labels[] = {streams_text, write_text, frames, NULL};

    snprintf(streams_text, sizeof(streams_text), "%u", streams);
    snprintf(write_text, sizeof(write_text), "%u", write);
    return bench_plan_cell(cells, labels);
}

static void plan_device(struct bench_cell *cell, const char *name, unsigned streams, unsigned write,
                        const struct frames *frames, const char *tap)
{
    struct bench_stream_parameters parameters = {
        .pair = {.device_sleeps = true, .driver_sleeps = true, .idle = true},
        .streams = streams,
        .write = write,
    };

    snprintf(parameters.pair.device, sizeof(parameters.pair.device),
             "--port tap,name=host0,io=%s,%s --mode=interrupt", frames->io, tap);
    snprintf(parameters.pair.driver, sizeof(parameters.pair.driver),
             "bridge --port tap,name=guest0 --mode=interrupt%s", frames->bridge);
    bench_plan_variant(cell, name, &bench_stream_runner, &parameters, sizeof(parameters));
}

static void plan_cell(struct bench_cell_list *cells, unsigned streams, unsigned write,
                      const struct frames *frames)
{
    struct bench_cell *cell = plan_labels(cells, streams, write, frames->name);

    for (size_t i = 0; i < VW_ARRAY_SIZE(taps); i++)
        plan_device(cell, taps[i].name, streams, write, frames, taps[i].options);
}

/* Large writes, beside what a plain program carries from TAP to TAP. */
static void plan_bulk(struct bench_cell_list *cells)
{
    struct bench_stream_parameters parameters = {
        .forward = true, .streams = 1, .write = BULK_WRITE};
    struct bench_cell *cell = plan_labels(cells, 1, BULK_WRITE, "large, bulk");

    bench_plan_variant(cell, "plain forwarding", &bench_stream_runner, &parameters,
                       sizeof(parameters));
    plan_device(cell, "device", 1, BULK_WRITE, &frame_kinds[0], "napi=off");
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    static const unsigned stream_counts[] = {1, 12}, writes[] = {64, 128, 4096};

    if (context->options->quick) {
        plan_cell(cells, 12, 4096, &frame_kinds[1]);
        plan_bulk(cells);
        return 0;
    }
    for (size_t f = 0; f < VW_ARRAY_SIZE(frame_kinds); f++)
        for (size_t s = 0; s < VW_ARRAY_SIZE(stream_counts); s++)
            for (size_t w = 0; w < VW_ARRAY_SIZE(writes); w++)
                plan_cell(cells, stream_counts[s], writes[w], &frame_kinds[f]);
    plan_bulk(cells);
    return 0;
}

const struct bench_experiment bench_tap_napi = {
    .name = "tap-napi",
    .title = "TCP streams into a TAP: IFF_NAPI, and merging in user space",
    .summary =
        "TCP streams of small writes from a guest's network stack to the host's. Before: every "
        "frame enters the host's stack by itself. After: napi=on lets the kernel queue frames and "
        "merge them (GRO), as seed 001 has QEMU do for vhost; coalesce=on merges the segments of a "
        "batch in user space before they are written. The seed saw 18 to 31 % more throughput, up "
        "to the speed of the network card. There vhost hands the kernel up to 64 frames in one "
        "message; a write, and a batch of io_uring as well, hands over one at a time, and each is "
        "polled by itself: nothing is merged, as \"frames as one\" tells, which counts what the "
        "receiver's TCP saw. Large frames (segmentation left to the device) need no merging. "
        "\"Bulk\" sets the device beside a plain program that forwards between the two TAPs, with "
        "a "
        "read and a write a frame, on the device's core. The guest's half, which here is a program "
        "between a TAP and the ring, is then not there.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_BYTES,
    .slice_seconds = 0.5,
    .needs_network = true,
    .plan = plan,
};
