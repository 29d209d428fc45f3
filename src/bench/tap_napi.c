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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "bench/experiments.h"
#include "bench/lanes.h"
#include "bench/network.h"

#define GUEST_ADDRESS "10.0.0.1"
#define HOST_ADDRESS "10.0.0.2"
#define STREAM_PORT 5001

/* After a stream went on: TCP finds its pace within some round trips of a millisecond each. */
#define SETTLE_SECONDS 0.3
#define SETTLE_QUICK_SECONDS 0.05

/* What is on the way when the sender stands still arrives, and is acknowledged, within this: no
 * segment is to be taken for lost while others are measured. */
#define EMPTY_SECONDS 0.03

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

/* ---- the runner ------------------------------------------------------------------------------ */

struct lane {
    const struct bench_stream_parameters *parameters;
    struct bench_pair_parameters pair;
    struct bench_variant *variant;
    int guest, host; /* namespaces */
    struct bench_pair *both;
    struct bench_process *sender, *receiver;
};

static void lane_close(void *state)
{
    struct lane *lane = state;

    bench_process_end(lane->sender);
    bench_process_end(lane->receiver);
    bench_pair_end(lane->both);
    if (lane->guest >= 0)
        close(lane->guest);
    if (lane->host >= 0)
        close(lane->host);
    free(lane);
}

static int start_streams(struct bench_context *context, struct lane *lane)
{
    const struct bench_stream_parameters *parameters = lane->parameters;
    const unsigned *cores = context->options->cores;
    char *name = bench_format("receiver%u", ++context->serial);

    lane->receiver = bench_process_run(context, name, cores[1], lane->host,
                                       "virtwire bench stream-receive %s %d %u", HOST_ADDRESS,
                                       STREAM_PORT, parameters->streams);
    free(name);
    if (lane->receiver == NULL || bench_wait_for_text(context, lane->receiver, "listening") < 0)
        return -1;
    name = bench_format("sender%u", context->serial);
    lane->sender = bench_process_run(context, name, cores[0], lane->guest,
                                     "virtwire bench stream-send %s %d %u %u", HOST_ADDRESS,
                                     STREAM_PORT, parameters->streams, parameters->write);
    free(name);
    if (lane->sender == NULL || bench_wait_for_text(context, lane->sender, "streaming") < 0)
        return -1;
    return bench_wait_for_text(context, lane->receiver, "streaming");
}

/* Adds the command lines of the streams to those of the pair. */
static void note_commands(struct lane *lane)
{
    char *commands =
        bench_format("%s\n%s\n%s", lane->variant->commands, bench_process_command(lane->sender),
                     bench_process_command(lane->receiver));

    bench_variant_note(lane->variant, commands, NULL);
    free(commands);
}

static int lane_start(struct bench_context *context, struct lane *lane)
{
    lane->guest = bench_network_open(context);
    if (lane->guest < 0)
        return -1;
    lane->host = bench_network_open(context);
    if (lane->host < 0)
        return -1;
    lane->pair.device_network = &lane->host;
    lane->pair.driver_network = &lane->guest;
    lane->both = bench_pair_start(context, lane->variant, &lane->pair);
    if (lane->both == NULL ||
        bench_network_address(context, lane->host, "host0", HOST_ADDRESS) < 0 ||
        bench_network_address(context, lane->guest, "guest0", GUEST_ADDRESS) < 0)
        return -1;
    return start_streams(context, lane);
}

static void go(struct lane *lane)
{
    bench_pair_go(lane->both);
    bench_process_go(lane->receiver);
    bench_process_go(lane->sender);
}

static void stop(struct bench_context *context, struct lane *lane)
{
    bench_process_stop(lane->sender);
    (void)!bench_sleep(context, EMPTY_SECONDS); /* a Ctrl-C is seen by whoever sleeps next */
    bench_process_stop(lane->receiver);
    bench_pair_stop(lane->both);
}

static int lane_open(struct bench_context *context, struct bench_variant *variant, void **state)
{
    struct lane *lane = bench_allocate(sizeof(*lane));

    lane->parameters = variant->parameters;
    lane->pair = lane->parameters->pair;
    lane->variant = variant;
    lane->guest = lane->host = -1;
    if (lane_start(context, lane) < 0) {
        lane_close(lane);
        return -1;
    }
    note_commands(lane);
    stop(context, lane);
    *state = lane;
    return 0;
}

/* What the receiver has seen. */
struct arrived {
    json_t *document;
    double segments; /* after GRO */
};

static int read_arrived(struct bench_context *context, struct lane *lane, struct arrived *arrived)
{
    arrived->document = bench_process_document(context, lane->receiver);
    arrived->segments = bench_network_counter(lane->receiver, "Tcp", "InSegs");
    return arrived->document != NULL ? 0 : -1;
}

static void read_sample(struct lane *lane, const struct arrived *before,
                        const struct arrived *after, struct bench_sample *sample)
{
    double bytes = bench_document_difference(before->document, after->document, "bytes"),
           seconds =
               bench_document_difference(before->document, after->document, "monotonic_seconds"),
           device = sample->value[BENCH_DEVICE_CPU] * sample->value[BENCH_FRAMES];

    sample->value[BENCH_MERGED] =
        sample->value[BENCH_FRAMES] * sample->seconds / (after->segments - before->segments);
    sample->value[BENCH_BYTES] = bytes / seconds;
    sample->value[BENCH_FRAME_BYTES] = bytes / seconds / sample->value[BENCH_FRAMES];
    sample->value[BENCH_BYTES_PER_CPU] = bytes / seconds / sample->value[BENCH_CPU];
    sample->value[BENCH_DEVICE_CPU_BYTE] = device / (bytes / seconds);
    if (bench_document_difference(before->document, after->document, "corrupt") > 0) {
        sample->faulty = true;
        bench_variant_fault(lane->variant, "wrong bytes arrived");
    }
}

static int measure(struct bench_context *context, struct lane *lane, double seconds,
                   struct bench_sample *sample)
{
    struct arrived before = {0}, after = {0};
    int result = -1;

    if (bench_pair_begin(context, lane->both) == 0 && read_arrived(context, lane, &before) == 0 &&
        bench_sleep(context, seconds) == 0 && read_arrived(context, lane, &after) == 0 &&
        bench_pair_finish(context, lane->both, sample) == 0) {
        result = 0;
        read_sample(lane, &before, &after, sample);
    }
    json_decref(before.document);
    json_decref(after.document);
    return result;
}

static int lane_slice(struct bench_context *context, void *state, double seconds,
                      struct bench_sample *sample)
{
    struct lane *lane = state;
    int result = -1;

    go(lane);
    if (bench_sleep(context, context->options->quick ? SETTLE_QUICK_SECONDS : SETTLE_SECONDS) == 0)
        result = measure(context, lane, seconds, sample);
    stop(context, lane);
    return result;
}

const struct bench_runner bench_stream_runner = {
    .open = lane_open,
    .slice = lane_slice,
    .close = lane_close,
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

static void plan_cell(struct bench_cell_list *cells, unsigned streams, unsigned write,
                      const struct frames *frames)
{
    char streams_text[16], write_text[16];
    const char *labels[] = {streams_text, write_text, frames->name, NULL};
    struct bench_cell *cell;

    snprintf(streams_text, sizeof(streams_text), "%u", streams);
    snprintf(write_text, sizeof(write_text), "%u", write);
    cell = bench_plan_cell(cells, labels);
    for (size_t i = 0; i < VW_ARRAY_SIZE(taps); i++) {
        struct bench_stream_parameters parameters = {
            .pair = {.device_sleeps = true, .driver_sleeps = true, .idle = true},
            .streams = streams,
            .write = write,
        };

        snprintf(parameters.pair.device, sizeof(parameters.pair.device),
                 "--port tap,name=host0,io=%s,%s --mode=interrupt", frames->io, taps[i].options);
        snprintf(parameters.pair.driver, sizeof(parameters.pair.driver),
                 "bridge --port tap,name=guest0 --mode=interrupt%s", frames->bridge);
        bench_plan_variant(cell, taps[i].name, &bench_stream_runner, &parameters,
                           sizeof(parameters));
    }
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    static const unsigned stream_counts[] = {1, 12}, writes[] = {64, 128, 4096};

    if (context->options->quick) {
        plan_cell(cells, 12, 4096, &frame_kinds[1]);
        return 0;
    }
    for (size_t f = 0; f < VW_ARRAY_SIZE(frame_kinds); f++)
        for (size_t s = 0; s < VW_ARRAY_SIZE(stream_counts); s++)
            for (size_t w = 0; w < VW_ARRAY_SIZE(writes); w++)
                plan_cell(cells, stream_counts[s], writes[w], &frame_kinds[f]);
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
        "receiver's TCP saw. Large frames (segmentation left to the device) need no merging.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_BYTES,
    .slice_seconds = 0.5,
    .needs_network = true,
    .plan = plan,
};
