/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runner for TCP streams from one network namespace to another, through a device or through a
 * plain program between two TAPs (forward.c).
 *
 * Everything stands still between two slices. So that TCP takes no segment for lost meanwhile, the
 * sender is stopped first, and the rest when all that it had sent has arrived and is acknowledged.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

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

/* ---- life ---------------------------------------------------------------------------------- */

struct lane {
    const struct bench_stream_parameters *parameters;
    struct bench_pair_parameters pair;
    struct bench_variant *variant;
    int guest, host;         /* namespaces */
    struct bench_pair *both; /* or */
    struct bench_process *forwarder;
    struct bench_process *sender, *receiver;
};

static void lane_close(void *state)
{
    struct lane *lane = state;

    bench_process_end(lane->sender);
    bench_process_end(lane->receiver);
    bench_pair_end(lane->both);
    bench_process_end(lane->forwarder);
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

static void note_commands(struct lane *lane)
{
    char *commands = bench_format(
        "%s\n%s\n%s",
        lane->both != NULL ? lane->variant->commands : bench_process_command(lane->forwarder),
        bench_process_command(lane->sender), bench_process_command(lane->receiver));

    bench_variant_note(lane->variant, commands, NULL);
    free(commands);
}

static int start_device(struct bench_context *context, struct lane *lane)
{
    lane->pair.device_network = &lane->host;
    lane->pair.driver_network = &lane->guest;
    lane->both = bench_pair_start(context, lane->variant, &lane->pair);
    return lane->both != NULL ? 0 : -1;
}

static int start_forwarder(struct bench_context *context, struct lane *lane)
{
    char *name = bench_format("forward%u", ++context->serial);

    lane->forwarder = bench_process_run(context, name, context->options->cores[1], lane->guest,
                                        "virtwire bench forward guest0 /proc/%d/fd/%d host0",
                                        (int)getpid(), lane->host);
    free(name);
    return lane->forwarder == NULL ? -1
                                   : bench_wait_for_text(context, lane->forwarder, "forwarding");
}

static int lane_start(struct bench_context *context, struct lane *lane)
{
    lane->guest = bench_network_open(context);
    if (lane->guest < 0)
        return -1;
    lane->host = bench_network_open(context);
    if (lane->host < 0)
        return -1;
    if ((lane->parameters->forward ? start_forwarder : start_device)(context, lane) < 0 ||
        bench_network_address(context, lane->host, "host0", HOST_ADDRESS) < 0 ||
        bench_network_address(context, lane->guest, "guest0", GUEST_ADDRESS) < 0)
        return -1;
    return start_streams(context, lane);
}

static void go(struct lane *lane)
{
    if (lane->both != NULL)
        bench_pair_go(lane->both);
    else
        bench_process_go(lane->forwarder);
    bench_process_go(lane->receiver);
    bench_process_go(lane->sender);
}

static void stop(struct bench_context *context, struct lane *lane)
{
    bench_process_stop(lane->sender);
    (void)!bench_sleep(context, EMPTY_SECONDS); /* a Ctrl-C is seen by whoever sleeps next */
    bench_process_stop(lane->receiver);
    if (lane->both != NULL)
        bench_pair_stop(lane->both);
    else
        bench_process_stop(lane->forwarder);
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

/* ---- a slice --------------------------------------------------------------------------------- */

/* What the receiver has seen, and a forwarder has cost. */
struct arrived {
    json_t *document;
    double segments; /* after GRO */
    double cpu;
};

static int read_arrived(struct bench_context *context, struct lane *lane, struct arrived *arrived)
{
    arrived->cpu = lane->forwarder != NULL ? bench_process_cpu(lane->forwarder) : NAN;
    arrived->document = bench_process_document(context, lane->receiver);
    arrived->segments = bench_network_counter(lane->receiver, "Tcp", "InSegs");
    return arrived->document != NULL ? 0 : -1;
}

static void read_sample(struct lane *lane, const struct arrived *before,
                        const struct arrived *after, struct bench_sample *sample)
{
    double seconds =
        bench_document_difference(before->document, after->document, "monotonic_seconds");
    double bytes = bench_document_difference(before->document, after->document, "bytes") / seconds;
    double *value = sample->value;

    value[BENCH_BYTES] = bytes;
    if (lane->both != NULL) {
        value[BENCH_MERGED] =
            value[BENCH_FRAMES] * sample->seconds / (after->segments - before->segments);
        value[BENCH_FRAME_BYTES] = bytes / value[BENCH_FRAMES];
        value[BENCH_BYTES_PER_CPU] = bytes / value[BENCH_CPU];
        value[BENCH_DEVICE_CPU_BYTE] = value[BENCH_DEVICE_CPU] * value[BENCH_FRAMES] / bytes;
    } else {
        sample->seconds = seconds;
        sample->busy = NAN;
        value[BENCH_DEVICE_CPU_BYTE] = (after->cpu - before->cpu) / seconds / bytes;
    }
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

    if ((lane->both == NULL || bench_pair_begin(context, lane->both) == 0) &&
        read_arrived(context, lane, &before) == 0 && bench_sleep(context, seconds) == 0 &&
        read_arrived(context, lane, &after) == 0 &&
        (lane->both == NULL || bench_pair_finish(context, lane->both, sample) == 0)) {
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
