/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* After a pair goes on: caches, and whatever heap of frames was left. */
#define SETTLE_SECONDS 0.1
#define SETTLE_QUICK_SECONDS 0.02

#define FLOW_PATIENCE_SECONDS 20.0
#define MOST_THREADS 160

enum side { DEVICE, DRIVER, SIDES };

struct reading {
    json_t *document;
    double cpu, seconds; /* when the CPU time was read */
    struct bench_thread_time threads[MOST_THREADS];
    size_t thread_count;
};

struct bench_pair {
    const struct bench_pair_parameters *parameters;
    struct bench_variant *variant;
    struct bench_process *processes[SIDES];
    struct reading before[SIDES], after[SIDES];
};

/* ---- documents ------------------------------------------------------------------------------- */

double bench_document_number(const json_t *document, const char *path)
{
    const char *end = strchrnul(path, '.');
    size_t length = (size_t)(end - path);
    double sum = NAN, value;
    json_t *element;
    size_t i;
    char *name;

    if (*path == '\0')
        return json_is_number(document) ? json_number_value(document) : NAN;
    if (*end == '.')
        end++;
    if (length == 1 && *path == '*') {
        json_array_foreach(document, i, element)
        {
            value = bench_document_number(element, end);
            sum = isnan(sum) ? value : isnan(value) ? sum : sum + value;
        }
        return sum;
    }
    if (json_is_array(document))
        return bench_document_number(json_array_get(document, strtoul(path, NULL, 10)), end);
    name = strndup(path, length);
    element = json_object_get(document, name);
    free(name);
    return element != NULL ? bench_document_number(element, end) : NAN;
}

double bench_document_difference(const json_t *before, const json_t *after, const char *path)
{
    return bench_document_number(after, path) - bench_document_number(before, path);
}

bool bench_document_has_feature(const json_t *document, const char *name)
{
    json_t *feature;
    size_t i;

    json_array_foreach(json_object_get(document, "features"), i,
                       feature) if (strcmp(json_string_value(feature), name) == 0) return true;
    return false;
}

char *bench_document_features(const json_t *document)
{
    char *list = bench_format("%s", ""), *longer;
    json_t *feature;
    size_t i;

    json_array_foreach(json_object_get(document, "features"), i, feature)
    {
        longer = bench_format("%s%s%s", list, i > 0 ? " " : "", json_string_value(feature));
        free(list);
        list = longer;
    }
    return list;
}

/* ---- where frames arrive --------------------------------------------------------------------- */

/* Counters of the far side: frames, bytes, and what checked them (NULL: nothing did). */
struct arrivals {
    enum side side;
    const char *frames, *probe;
    enum side bytes_side;
    const char *bytes;
};

static const struct arrivals device_probe = {DEVICE, "port.queues.*.probe.frames",
                                             "port.queues.*.probe", DEVICE,
                                             "port.queues.*.probe.bytes"};
/* Of the transmit queue, since the port counts frames that it merged as one. The bench has one
 * queue pair. */
static const struct arrivals device_port = {DEVICE, "queues.1.frames", NULL, DRIVER, "sent.bytes"};
static const struct arrivals driver_probe = {DRIVER, "probe.frames", "probe", DRIVER,
                                             "probe.bytes"};
static const struct arrivals driver_ring = {DRIVER, "received.frames", NULL, DRIVER,
                                            "received.bytes"};

static const struct arrivals device_stream = {DEVICE, "port.queues.*.stream.segments",
                                              "port.queues.*.stream", DEVICE,
                                              "port.queues.*.stream.bytes"};
static const struct arrivals driver_stream = {DRIVER, "stream.segments", "stream", DRIVER,
                                              "stream.bytes"};

static bool came(const struct reading readings[SIDES], const struct arrivals *arrivals)
{
    return bench_document_number(readings[arrivals->side].document, arrivals->frames) > 0;
}

static const struct arrivals *arrivals_of(const struct bench_pair *pair,
                                          const struct reading readings[SIDES])
{
    if (pair->parameters->direction == BENCH_TO_DEVICE && came(readings, &device_stream))
        return &device_stream;
    if (pair->parameters->direction == BENCH_TO_DEVICE)
        return isnan(bench_document_number(readings[DEVICE].document, device_probe.frames))
                   ? &device_port
                   : &device_probe;
    if (came(readings, &driver_stream))
        return &driver_stream;
    return came(readings, &driver_probe) ? &driver_probe : &driver_ring;
}

/* ---- starting -------------------------------------------------------------------------------- */

static int network_of(const int *network)
{
    return network != NULL ? *network : -1;
}

static int start_both(struct bench_context *context, struct bench_pair *pair)
{
    const struct bench_pair_parameters *parameters = pair->parameters;
    unsigned driver_core = context->options->cores[parameters->one_core ? 1 : 0];
    char *name = bench_format("device%u", ++context->serial);
    char *socket = bench_format("%s.sock", name);
    int result = -1;

    pair->processes[DEVICE] = bench_process_run(
        context, name, context->options->cores[1], network_of(parameters->device_network),
        "virtwire device --socket-path=%s %s --json", socket, parameters->device);
    if (pair->processes[DEVICE] == NULL ||
        bench_wait_for_file(context, pair->processes[DEVICE], socket) < 0)
        goto out;
    free(name);
    name = bench_format("driver%u", context->serial);
    pair->processes[DRIVER] =
        bench_process_run(context, name, driver_core, network_of(parameters->driver_network),
                          "virtwire %s --socket-path=%s --json", parameters->driver, socket);
    /* Only then are both ready to be asked for counters. */
    if (pair->processes[DRIVER] != NULL)
        result = bench_wait_for_text(context, pair->processes[DEVICE], "connected");
out:
    free(name);
    free(socket);
    return result;
}

static int read_documents(struct bench_context *context, struct bench_pair *pair,
                          struct reading readings[SIDES])
{
    for (int side = 0; side < SIDES; side++) {
        json_decref(readings[side].document);
        readings[side].document = bench_process_document(context, pair->processes[side]);
        if (readings[side].document == NULL)
            return -1;
    }
    return 0;
}

static int wait_for_frames(struct bench_context *context, struct bench_pair *pair)
{
    double until = (double)vw_clock_ns() * 1e-9 + FLOW_PATIENCE_SECONDS;

    for (;;) {
        if (read_documents(context, pair, pair->before) < 0)
            return -1;
        const struct arrivals *arrivals = arrivals_of(pair, pair->before);
        if (pair->parameters->idle ||
            bench_document_number(pair->before[arrivals->side].document, arrivals->frames) > 0)
            return 0;
        if ((double)vw_clock_ns() * 1e-9 > until)
            return bench_fail(context, "no frames arrive: %s | %s",
                              bench_process_command(pair->processes[DEVICE]),
                              bench_process_command(pair->processes[DRIVER]));
        if (bench_sleep(context, 0.01) < 0)
            return -1;
    }
}

static int check_features(struct bench_context *context, struct bench_pair *pair)
{
    const struct bench_pair_parameters *parameters = pair->parameters;
    const json_t *document = pair->before[DRIVER].document;
    char *list = bench_document_features(document), *commands;

    commands = bench_format("%s\n%s", bench_process_command(pair->processes[DEVICE]),
                            bench_process_command(pair->processes[DRIVER]));
    bench_variant_note(pair->variant, commands, list);
    free(list);
    free(commands);
    if (parameters->feature != NULL && !bench_document_has_feature(document, parameters->feature))
        return bench_fail(context, "%s was not negotiated", parameters->feature);
    if (parameters->absent != NULL && bench_document_has_feature(document, parameters->absent))
        return bench_fail(context, "%s was negotiated", parameters->absent);
    return 0;
}

struct bench_pair *bench_pair_start(struct bench_context *context, struct bench_variant *variant,
                                    const struct bench_pair_parameters *parameters)
{
    struct bench_pair *pair = bench_allocate(sizeof(*pair));

    pair->parameters = parameters;
    pair->variant = variant;
    if (start_both(context, pair) == 0 && wait_for_frames(context, pair) == 0 &&
        check_features(context, pair) == 0)
        return pair;
    bench_pair_end(pair);
    return NULL;
}

void bench_pair_end(struct bench_pair *pair)
{
    if (pair == NULL)
        return;
    /* The driver first, which is not to see its device go, and waits for its last frames. */
    if (pair->processes[DEVICE] != NULL)
        bench_process_go(pair->processes[DEVICE]);
    bench_process_end(pair->processes[DRIVER]);
    bench_process_end(pair->processes[DEVICE]);
    for (int side = 0; side < SIDES; side++) {
        json_decref(pair->before[side].document);
        json_decref(pair->after[side].document);
    }
    free(pair);
}

/* Who waits for the other goes on first, and stops last. */
void bench_pair_go(struct bench_pair *pair)
{
    bench_process_go(pair->processes[DEVICE]);
    bench_process_go(pair->processes[DRIVER]);
}

void bench_pair_stop(struct bench_pair *pair)
{
    bench_process_stop(pair->processes[DRIVER]);
    bench_process_stop(pair->processes[DEVICE]);
}

struct bench_process *bench_pair_device(struct bench_pair *pair)
{
    return pair->processes[DEVICE];
}

struct bench_process *bench_pair_driver(struct bench_pair *pair)
{
    return pair->processes[DRIVER];
}

/* ---- a slice --------------------------------------------------------------------------------- */

static int read_all(struct bench_context *context, struct bench_pair *pair,
                    struct reading readings[SIDES])
{
    for (int side = 0; side < SIDES; side++) {
        struct reading *reading = &readings[side];

        reading->cpu = bench_process_cpu(pair->processes[side]);
        reading->seconds = (double)vw_clock_ns() * 1e-9;
        reading->thread_count =
            bench_process_threads(pair->processes[side], reading->threads, MOST_THREADS);
    }
    return read_documents(context, pair, readings);
}

int bench_pair_begin(struct bench_context *context, struct bench_pair *pair)
{
    return read_all(context, pair, pair->before);
}

/* How much a counter rose in a second; both sides' documents have their own times. */
static double rate(const struct bench_pair *pair, enum side side, const char *path)
{
    const json_t *before = pair->before[side].document, *after = pair->after[side].document;

    return bench_document_difference(before, after, path) /
           bench_document_difference(before, after, "monotonic_seconds");
}

static double cpu_share(const struct bench_pair *pair, enum side side)
{
    const struct reading *before = &pair->before[side], *after = &pair->after[side];

    return (after->cpu - before->cpu) / (after->seconds - before->seconds);
}

static double busy_share(const struct bench_pair *pair, enum side side)
{
    const struct reading *before = &pair->before[side], *after = &pair->after[side];

    return bench_busiest_thread(before->threads, before->thread_count, after->threads,
                                after->thread_count) /
           (after->seconds - before->seconds);
}

/* Everything that names a frame lost on the way, which no probe saw: the device's own counters. */
static double dropped(const struct bench_pair *pair)
{
    static const char *const names[] = {"drop_header",    "drop_short",        "drop_long",
                                        "drop_disabled",  "drop_port_refused", "drop_port_down",
                                        "drop_port_gone", "drop_port_failed",  "drop_filter",
                                        "drop_mtu",       "drop_no_offload",   "drop_too_small",
                                        "drop_ring_full"};
    double sum = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = bench_format("queues.*.%s", names[i]);
        double count = bench_document_difference(pair->before[DEVICE].document,
                                                 pair->after[DEVICE].document, path);

        free(path);
        sum += isnan(count) ? 0 : count;
    }
    return sum;
}

/* What was wrong with the frames of this slice, and what share of them was lost. */
static void read_faults(const struct bench_pair *pair, const struct arrivals *arrivals,
                        double frames, struct bench_sample *sample)
{
    static const char *const names[] = {"lost",  "reordered", "duplicate",
                                        "stale", "late",      "corrupt"};
    double lost = 0;

    for (size_t i = 0; arrivals->probe != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = bench_format("%s.%s", arrivals->probe, names[i]);
        double count = bench_document_difference(pair->before[arrivals->side].document,
                                                 pair->after[arrivals->side].document, path);

        free(path);
        if (i == 0)
            lost = count;
        if (!(count > 0)) /* or there is no such counter */
            continue;
        sample->faulty = true;
        bench_variant_fault(pair->variant, "frames %s", names[i]);
    }
    if (arrivals->probe == NULL && (lost = dropped(pair)) > 0) {
        sample->faulty = true;
        bench_variant_fault(pair->variant, "frames dropped by the device");
    }
    sample->value[BENCH_LOST] = frames + lost > 0 ? lost / (frames + lost) : NAN;
}

static void read_burst_times(const struct bench_pair *pair, struct bench_sample *sample)
{
    const json_t *document = pair->after[DRIVER].document;

    if (!(bench_document_number(document, "last_frame_seconds.count") > 0))
        return;
    sample->value[BENCH_LAST_FRAME_MEDIAN] =
        bench_document_number(document, "last_frame_seconds.median");
    sample->value[BENCH_LAST_FRAME_P99] = bench_document_number(document, "last_frame_seconds.p99");
}

static void read_values(const struct bench_pair *pair, const struct arrivals *arrivals,
                        struct bench_sample *sample)
{
    double frames = rate(pair, arrivals->side, arrivals->frames);
    double bytes = rate(pair, arrivals->bytes_side, arrivals->bytes);
    double cpu = cpu_share(pair, DEVICE) + cpu_share(pair, DRIVER), *value = sample->value;

    value[BENCH_FRAMES] = frames;
    value[BENCH_BYTES] = bytes;
    value[BENCH_FRAME_BYTES] = bytes / frames;
    value[BENCH_KICKS] = (rate(pair, DRIVER, "queues.*.transmit.kicks") +
                          rate(pair, DRIVER, "queues.*.receive.kicks")) /
                         frames;
    value[BENCH_CALLS] = rate(pair, DEVICE, "queues.*.calls") / frames;
    value[BENCH_SYSTEM_CALLS] =
        (rate(pair, DEVICE, "system_calls") + rate(pair, DRIVER, "system_calls")) / frames;
    value[BENCH_DEVICE_CPU] = cpu_share(pair, DEVICE) / frames;
    value[BENCH_DRIVER_CPU] = cpu_share(pair, DRIVER) / frames;
    value[BENCH_CPU] = cpu;
    value[BENCH_PER_CPU] = frames / cpu;
    value[BENCH_BYTES_PER_CPU] = bytes / cpu;
}

/* How many frames arrived since the beginning of the slice, by `after`. */
static double arrived(const struct bench_pair *pair, const struct arrivals *arrivals)
{
    return bench_document_difference(pair->before[arrivals->side].document,
                                     pair->after[arrivals->side].document, arrivals->frames);
}

/* Reads the end of the slice. On a machine that is busy with something else a short one may pass
 * without a frame: then it lasts longer. */
static int read_end(struct bench_context *context, struct bench_pair *pair)
{
    double until = (double)vw_clock_ns() * 1e-9 + FLOW_PATIENCE_SECONDS;

    for (;;) {
        if (read_all(context, pair, pair->after) < 0)
            return -1;
        if (pair->parameters->idle || arrived(pair, arrivals_of(pair, pair->after)) > 0)
            return 0;
        if ((double)vw_clock_ns() * 1e-9 > until)
            return bench_fail(context, "no frame arrived in %.0f s: %s", FLOW_PATIENCE_SECONDS,
                              bench_process_command(pair->processes[DRIVER]));
        if (bench_sleep(context, 0.01) < 0)
            return -1;
    }
}

/* The smallest share of a core that a thread got which wants all of it; NAN: none does. */
static double least_busy(const struct bench_pair *pair)
{
    double busy = pair->parameters->device_sleeps ? NAN : busy_share(pair, DEVICE);

    return pair->parameters->driver_sleeps ? busy : fmin(busy, busy_share(pair, DRIVER));
}

int bench_pair_finish(struct bench_context *context, struct bench_pair *pair,
                      struct bench_sample *sample)
{
    const struct arrivals *arrivals;
    double frames;

    if (read_end(context, pair) < 0)
        return -1;
    arrivals = arrivals_of(pair, pair->after);
    frames = arrived(pair, arrivals);
    sample->seconds =
        bench_document_difference(pair->before[arrivals->side].document,
                                  pair->after[arrivals->side].document, "monotonic_seconds");
    sample->busy = least_busy(pair);
    read_values(pair, arrivals, sample);
    read_faults(pair, arrivals, frames, sample);
    read_burst_times(pair, sample);
    if (pair->parameters->more != NULL)
        pair->parameters->more(
            &(struct bench_pair_slice){.device_before = pair->before[DEVICE].document,
                                       .device_after = pair->after[DEVICE].document,
                                       .driver_before = pair->before[DRIVER].document,
                                       .driver_after = pair->after[DRIVER].document,
                                       .seconds = sample->seconds,
                                       .frames = frames},
            sample);
    return 0;
}

/* ---- the runner ------------------------------------------------------------------------------ */

static int pair_open(struct bench_context *context, struct bench_variant *variant, void **state)
{
    struct bench_pair *pair = bench_pair_start(context, variant, variant->parameters);

    if (pair == NULL)
        return -1;
    bench_pair_stop(pair);
    *state = pair;
    return 0;
}

static int pair_slice(struct bench_context *context, void *state, double seconds,
                      struct bench_sample *sample)
{
    struct bench_pair *pair = state;
    int result = -1;

    bench_pair_go(pair);
    if (bench_sleep(context, context->options->quick ? SETTLE_QUICK_SECONDS : SETTLE_SECONDS) ==
            0 &&
        bench_pair_begin(context, pair) == 0 && bench_sleep(context, seconds) == 0)
        result = bench_pair_finish(context, pair, sample);
    bench_pair_stop(pair);
    return result;
}

static void pair_close(void *state)
{
    bench_pair_end(state);
}

const struct bench_runner bench_pair_runner = {
    .open = pair_open,
    .slice = pair_slice,
    .close = pair_close,
};
