/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/mixed_pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bench/handover.h"
#include "bench/testpmd.h"

#define SETTLE_SECONDS                                                                             \
    0.1 /* after the pair goes on: caches, and whatever heap of frames was left */
#define LIMIT_SECONDS 0.03  /* of the bare handover, in each slice */
#define DRAIN_SECONDS 0.002 /* between two looks whether the receiver has taken everything */
#define DRAIN_LOOKS 2000
#define LOST_LOOKS 3
#define FLOW_SECONDS 20 /* until the first frame is there */
#define MAX_THREADS 32

/* So long the receiver must have looked for more in vain. The kernel adds up a thread's time at its
 * ticks, up to 10 ms apart, so that a shorter time may be one before the sender stood still. */
#define DRAIN_BUSY_SECONDS 0.012

/* How many frames may be between the sender's count and the receiver's: what a ring holds and a
 * batch that the sender has in hand (VW_PORT_BATCH), which in a loop are there twice. To testpmd's
 * driver another ring's worth was seen now and then, which had arrived when it was looked at later.
 * What is lost adds up with each slice, and passes this soon. */
#define UNDER_WAY (2 * (BENCH_MIXED_RING + 64))

struct side {
    bool is_driver;
    const struct bench_mixed_parameters *parameters;
    struct bench_testpmd *testpmd; /* NULL: it is ours */
    struct bench_process *ours;
};

/* What a side counted, and when. */
struct count {
    double sent, received;      /* frames so far */
    double received_per_second; /* by its own clock since it was last asked; NAN: not known */
    double wrong;               /* frames that were lost or damaged on their way to it */
    double notified;            /* kicks, or calls, that it made; NAN: not known */
    double when;                /* seconds */
    double cpu;
    struct bench_thread_time threads[MAX_THREADS];
    size_t thread_count;
};

struct pair {
    const struct bench_mixed_parameters *parameters;
    struct bench_variant *variant;
    char *socket;
    struct side driver, device;
    struct side *sender, *receiver; /* in a loop: both the driver */
    double lost;                    /* when it was last looked at */
};

static struct bench_process *process_of(const struct side *side)
{
    return side->testpmd != NULL ? bench_testpmd_process(side->testpmd) : side->ours;
}

/* ---- counting -------------------------------------------------------------------------------- */

static void count_device(const json_t *document, struct count *count)
{
    count->sent = bench_document_number(document, "queues.0.frames");
    count->received = bench_document_number(document, "port.queues.*.probe.frames") +
                      bench_document_number(document, "port.queues.*.probe.foreign");
    count->notified = bench_document_number(document, "queues.*.calls");
}

static void count_driver(const json_t *document, struct count *count)
{
    count->sent = bench_document_number(document, "sent.frames");
    count->received = bench_document_number(document, "probe.frames") +
                      bench_document_number(document, "probe.foreign");
    count->notified = bench_document_number(document, "queues.*.transmit.kicks") +
                      bench_document_number(document, "queues.*.receive.kicks");
}

/* Frames of testpmd's are no probes; ours are nothing else. */
static double wrong_frames(const struct side *side, const json_t *document)
{
    static const char *const names[] = {"lost",  "reordered", "duplicate",
                                        "stale", "corrupt",   "foreign"};
    const struct bench_mixed_parameters *parameters = side->parameters;
    enum bench_maker sender = side->is_driver && parameters->direction == BENCH_TO_DRIVER
                                  ? parameters->device
                                  : parameters->driver;
    size_t names_count = sizeof(names) / sizeof(names[0]) - (sender == BENCH_DPDK);
    double sum = 0;

    for (size_t i = 0; i < names_count; i++) {
        char *path = bench_format("%sprobe.%s", side->is_driver ? "" : "port.queues.*.", names[i]);
        double number = bench_document_number(document, path);

        sum += isnan(number) ? 0 : number;
        free(path);
    }
    return sum;
}

static int count_ours(struct bench_context *context, struct side *side, struct count *count)
{
    json_t *document = bench_process_document(context, side->ours);

    if (document == NULL)
        return -1;
    (side->is_driver ? count_driver : count_device)(document, count);
    count->wrong = wrong_frames(side, document);
    count->when = bench_document_number(document, "monotonic_seconds");
    json_decref(document);
    return 0;
}

static int count_testpmd(struct bench_context *context, struct side *side, struct count *count)
{
    struct bench_testpmd_counters counters;

    if (bench_testpmd_count(context, side->testpmd, &counters) < 0)
        return -1;
    count->sent = counters.sent;
    count->received = counters.received;
    count->received_per_second = counters.received_per_second;
    count->wrong = counters.failed;
    count->when = vw_clock_seconds();
    return 0;
}

static int count_side(struct bench_context *context, struct side *side, struct count *count)
{
    struct bench_process *process = process_of(side);

    *count = (struct count){.received_per_second = NAN, .notified = NAN};
    count->cpu = bench_process_cpu(process);
    count->thread_count = bench_process_threads(process, count->threads, MAX_THREADS);
    return (side->testpmd != NULL ? count_testpmd : count_ours)(context, side, count);
}

/* CPU time of the side's thread that ran most in between. */
static double busy_seconds(const struct count *before, const struct count *after)
{
    return bench_busiest_thread(before->threads, before->thread_count, after->threads,
                                after->thread_count);
}

/* ---- starting -------------------------------------------------------------------------------- */

static const char *on_off(bool on)
{
    return on ? "on" : "off";
}

static struct bench_testpmd *start_testpmd(struct bench_context *context, const struct side *side,
                                           const char *name, const char *devices)
{
    const struct bench_mixed_parameters *parameters = side->parameters;
    struct bench_testpmd_options options = {.name = name,
                                            .devices = devices,
                                            .core =
                                                context->options->cores[side->is_driver ? 0 : 1],
                                            .network = -1,
                                            .vectorised = side->is_driver && parameters->vectorised,
                                            .frame_bytes = parameters->frame_bytes,
                                            .burst = BENCH_MIXED_BURST};

    return bench_testpmd_start(context, &options);
}

static struct bench_testpmd *start_net_vhost(struct bench_context *context, struct pair *pair,
                                             const char *name)
{
    char *devices = bench_format("--vdev net_vhost0,iface=%s,queues=1", pair->socket);
    struct bench_testpmd *testpmd = start_testpmd(context, &pair->device, name, devices);

    free(devices);
    return testpmd;
}

static struct bench_process *start_our_device(struct bench_context *context, struct pair *pair,
                                              const char *name)
{
    static const char *const ports[] = {
        [BENCH_TO_DEVICE] = "sink", [BENCH_TO_DRIVER] = "source", [BENCH_LOOP] = "loop"};
    enum bench_direction direction = pair->parameters->direction;
    char size[32] = "";

    if (direction == BENCH_TO_DRIVER)
        snprintf(size, sizeof(size), ",size=%u", pair->parameters->frame_bytes);
    return bench_process_run(context, name, context->options->cores[1], -1,
                             "virtwire device --socket-path=%s --port %s%s --mode=poll --json",
                             pair->socket, ports[direction], size);
}

static struct bench_testpmd *start_virtio_user(struct bench_context *context, struct pair *pair,
                                               const char *name)
{
    const struct bench_mixed_parameters *parameters = pair->parameters;
    char *devices = bench_format(
        "--log-level=pmd.net.virtio.*:info --vdev "
        "net_virtio_user0,path=%s,queues=1,queue_size=%u,packed_vq=%d,mrg_rxbuf=%d,in_order=%d%s",
        pair->socket, BENCH_MIXED_RING, parameters->packed, parameters->mergeable,
        parameters->in_order, parameters->vectorised ? ",vectorized=1" : "");
    struct bench_testpmd *testpmd = start_testpmd(context, &pair->driver, name, devices);

    free(devices);
    return testpmd;
}

/* net_vhost has no control queue: it neither filters nor hashes; testpmd asks for no offload. */
static struct bench_process *start_our_driver(struct bench_context *context, struct pair *pair,
                                              const char *name)
{
    const struct bench_mixed_parameters *parameters = pair->parameters;
    static const char *const commands[] = {
        [BENCH_TO_DEVICE] = "pktgen", [BENCH_TO_DRIVER] = "sink", [BENCH_LOOP] = "pktgen --loop"};
    char size[32] = "";

    if (parameters->direction != BENCH_TO_DRIVER)
        snprintf(size, sizeof(size), " --size=%u", parameters->frame_bytes);
    return bench_process_run(context, name, context->options->cores[0], -1,
                             "virtwire %s --socket-path=%s --mode=poll --burst=%u --ring-size=%u%s "
                             "--features=packed=%s,mrg_rxbuf=%s,in_order=%s,ctrl_vq=off,csum=off,"
                             "guest_csum=off --json",
                             commands[parameters->direction], pair->socket, BENCH_MIXED_BURST,
                             BENCH_MIXED_RING, size, on_off(parameters->packed),
                             on_off(parameters->mergeable), on_off(parameters->in_order));
}

static int start_side(struct bench_context *context, struct pair *pair, struct side *side)
{
    bool dpdk =
        (side->is_driver ? pair->parameters->driver : pair->parameters->device) == BENCH_DPDK;
    char *name = bench_format("%s%u", side->is_driver ? "driver" : "device", context->serial);

    if (dpdk)
        side->testpmd =
            (side->is_driver ? start_virtio_user : start_net_vhost)(context, pair, name);
    else
        side->ours = (side->is_driver ? start_our_driver : start_our_device)(context, pair, name);
    free(name);
    return side->testpmd != NULL || side->ours != NULL ? 0 : -1;
}

/* testpmd begins when it is told to. As a loop's far end it waits for room, as ours does, before it
 * drops a frame; as its near end it sends the frames of a full ring, and then those that are back.
 */
static int start_forwarding(struct bench_context *context, struct pair *pair)
{
    static const char *const device_modes[] = {
        [BENCH_TO_DEVICE] = "rxonly", [BENCH_TO_DRIVER] = "txonly", [BENCH_LOOP] = "io retry"};
    static const char *const driver_modes[] = {
        [BENCH_TO_DEVICE] = "txonly", [BENCH_TO_DRIVER] = "rxonly", [BENCH_LOOP] = "io"};
    enum bench_direction direction = pair->parameters->direction;
    struct bench_testpmd *device = pair->device.testpmd, *driver = pair->driver.testpmd;

    if (device != NULL && direction == BENCH_LOOP &&
        bench_testpmd_command(context, device, "set burst tx delay 1 retry 1000000") < 0)
        return -1;
    if (device != NULL && bench_testpmd_forward(context, device, device_modes[direction], "") < 0)
        return -1;
    if (driver == NULL)
        return 0;
    return bench_testpmd_forward(context, driver, driver_modes[direction],
                                 direction == BENCH_LOOP ? "tx_first 8" : "");
}

/* ---- what was negotiated --------------------------------------------------------------------- */

/* testpmd tells which path it takes; asked for one that it does not have, it takes another. */
static int check_path(struct bench_context *context, struct pair *pair)
{
    char *log = bench_process_errors(process_of(&pair->driver));
    bool vectorised = strstr(log, "using packed ring vectorized") != NULL ||
                      strstr(log, "using vectorized") != NULL;

    free(log);
    if (vectorised == pair->parameters->vectorised)
        return 0;
    return bench_fail(context, "testpmd's driver %s a vectorised path",
                      vectorised ? "took" : "did not take");
}

static int check_features(struct bench_context *context, struct pair *pair)
{
    const struct bench_mixed_parameters *parameters = pair->parameters;
    const struct {
        const char *name;
        bool wanted;
    } features[] = {{"packed", parameters->packed},
                    {"mrg_rxbuf", parameters->mergeable},
                    {"in_order", parameters->in_order}};
    const struct side *side = pair->driver.ours != NULL ? &pair->driver : &pair->device;
    json_t *document = bench_process_document(context, side->ours);
    int result = document == NULL ? -1 : 0;

    for (size_t i = 0; result == 0 && i < VW_ARRAY_SIZE(features); i++)
        if (bench_document_has_feature(document, features[i].name) != features[i].wanted)
            result = bench_fail(context, "%s was%s negotiated", features[i].name,
                                features[i].wanted ? " not" : "");
    if (result == 0) {
        char *list = bench_document_features(document);

        bench_variant_note(pair->variant, NULL, list);
        free(list);
    }
    json_decref(document);
    return result;
}

static int check(struct bench_context *context, struct pair *pair)
{
    if (pair->driver.testpmd != NULL && check_path(context, pair) < 0)
        return -1;
    if (pair->driver.ours == NULL && pair->device.ours == NULL)
        return 0;
    return check_features(context, pair);
}

/* ---- a slice --------------------------------------------------------------------------------- */

static void both(struct pair *pair, void (*what)(struct bench_process *))
{
    what(process_of(&pair->device));
    what(process_of(&pair->driver));
}

/* CPU time, in between, of the thread that forwards: that which has run most in all. */
static double forwarding_seconds(const struct count *before, const struct count *after)
{
    const struct bench_thread_time *most = &after->threads[0];

    for (size_t i = 1; i < after->thread_count; i++)
        if (after->threads[i].seconds > most->seconds)
            most = &after->threads[i];
    return bench_busiest_thread(before->threads, before->thread_count, most,
                                after->thread_count > 0);
}

/* Waits until the receiver, whose sender stands still, has taken everything: it has run, and more
 * has not come. Time alone tells nothing, as others may want its core; nor does the time of the
 * thread that answers. */
static int drain(struct bench_context *context, struct pair *pair, struct count *received)
{
    struct count now_received;

    if (count_side(context, pair->receiver, received) < 0)
        return -1;
    for (unsigned look = 0; look < DRAIN_LOOKS; look++) {
        if (bench_sleep(context, DRAIN_SECONDS) < 0 ||
            count_side(context, pair->receiver, &now_received) < 0)
            return -1;
        if (now_received.received != received->received)
            *received = now_received;
        else if (forwarding_seconds(received, &now_received) >= DRAIN_BUSY_SECONDS)
            return 0;
    }
    return bench_fail(context, "frames go on arriving while their sender stands still");
}

/*
 * Frames that the sender counted and the receiver did not, beyond those that may be under way; or
 * less than none that came twice. Leaves both standing still.
 *
 * The receiver is asked while the sender stands still, and the sender while the receiver does: it
 * has filled the ring meanwhile; or it has not got its core yet, and a burst that was published is
 * not counted.
 */
static int look_for_lost(struct bench_context *context, struct pair *pair, double *lost)
{
    struct bench_process *sender = process_of(pair->sender), *receiver = process_of(pair->receiver);
    struct count sent, received;

    bench_process_stop(sender);
    if (drain(context, pair, &received) < 0)
        return -1;
    bench_process_stop(receiver);
    bench_process_go(sender);
    if (count_side(context, pair->sender, &sent) < 0)
        return -1;
    bench_process_stop(sender);
    *lost = sent.sent - received.received;
    if (*lost >= 0)
        *lost = fmax(*lost - UNDER_WAY, 0);
    else
        *lost = fmin(*lost + BENCH_MIXED_BURST, 0);
    return 0;
}

static int look_for_lost_in_loop(struct bench_context *context, struct pair *pair, double *lost)
{
    struct count count;

    if (count_side(context, &pair->driver, &count) < 0)
        return -1;
    both(pair, bench_process_stop);
    *lost = fmax(count.sent - count.received - UNDER_WAY, 0);
    return 0;
}

/* What was lost stays lost, at every look; a receiver that did not get its core as long as it
 * seemed only looks like it once. */
static int look_again(struct bench_context *context, struct pair *pair, double *lost)
{
    bool loop = pair->parameters->direction == BENCH_LOOP;

    for (unsigned look = 0; look < LOST_LOOKS; look++) {
        both(pair, bench_process_go);
        if ((loop ? look_for_lost_in_loop : look_for_lost)(context, pair, lost) < 0)
            return -1;
        if (*lost == pair->lost)
            return 0;
    }
    return 0;
}

static void note_faults(struct pair *pair, const struct count *before, const struct count *after,
                        double lost, struct bench_sample *sample)
{
    double wrong = after->wrong - before->wrong, more = lost - pair->lost;

    if (wrong != 0)
        bench_variant_fault(pair->variant, "frames lost or damaged, as their receiver tells");
    if (more != 0)
        bench_variant_fault(pair->variant,
                            "%+.0f frames that the sender counted, and the receiver not", more);
    sample->faulty = wrong != 0 || more != 0;
    sample->value[BENCH_LOST] = fmax(more, 0) / (after->received - before->received);
    pair->lost = lost;
}

/* `counts`: of driver and device, before and after. */
static void fill(const struct pair *pair, const struct count counts[2][2], double wall,
                 struct bench_sample *sample)
{
    bool at_device = pair->receiver == &pair->device;
    const struct count *before = &counts[at_device][0], *after = &counts[at_device][1];
    double driver_cpu = (counts[0][1].cpu - counts[0][0].cpu) / wall;
    double device_cpu = (counts[1][1].cpu - counts[1][0].cpu) / wall;
    double *value = sample->value, frames;

    frames = after->received_per_second;
    if (isnan(frames))
        frames = (after->received - before->received) / (after->when - before->when);
    value[BENCH_FRAMES] = frames;
    value[BENCH_BYTES] = frames * pair->parameters->frame_bytes;
    value[BENCH_FRAME_BYTES] = pair->parameters->frame_bytes;
    value[BENCH_KICKS] = (counts[0][1].notified - counts[0][0].notified) / wall / frames;
    value[BENCH_CALLS] = (counts[1][1].notified - counts[1][0].notified) / wall / frames;
    value[BENCH_DRIVER_CPU] = driver_cpu / frames;
    value[BENCH_DEVICE_CPU] = device_cpu / frames;
    value[BENCH_CPU] = driver_cpu + device_cpu;
    value[BENCH_PER_CPU] = frames / (driver_cpu + device_cpu);
    value[BENCH_BYTES_PER_CPU] = value[BENCH_BYTES] / (driver_cpu + device_cpu);
    sample->seconds = wall;
    sample->busy = fmin(busy_seconds(&counts[0][0], &counts[0][1]),
                        busy_seconds(&counts[1][0], &counts[1][1])) /
                   wall;
}

static int count_both(struct bench_context *context, struct pair *pair, struct count counts[2][2],
                      int when)
{
    return count_side(context, &pair->driver, &counts[0][when]) < 0 ||
                   count_side(context, &pair->device, &counts[1][when]) < 0
               ? -1
               : 0;
}

static double limit(const struct bench_context *context, const struct pair *pair)
{
    bool to_driver = pair->parameters->direction == BENCH_TO_DRIVER;
    const unsigned *cores = context->options->cores;

    return bench_handover(cores[to_driver], cores[!to_driver], pair->parameters->frame_bytes,
                          pair->parameters->direction == BENCH_LOOP, LIMIT_SECONDS);
}

static int slice(struct bench_context *context, void *state, double seconds,
                 struct bench_sample *sample)
{
    struct pair *pair = state;
    bool at_device = pair->receiver == &pair->device;
    struct count counts[2][2];
    double began, wall, lost;

    both(pair, bench_process_go);
    if (bench_sleep(context, SETTLE_SECONDS) < 0 || count_both(context, pair, counts, 0) < 0)
        return -1;
    began = vw_clock_seconds();
    if (bench_sleep(context, seconds) < 0 || count_both(context, pair, counts, 1) < 0)
        return -1;
    wall = vw_clock_seconds() - began;
    fill(pair, counts, wall, sample);
    if (look_again(context, pair, &lost) < 0)
        return -1;
    note_faults(pair, &counts[at_device][0], &counts[at_device][1], lost, sample);
    sample->value[BENCH_LIMIT] = limit(context, pair);
    return 0;
}

/* ---- its life -------------------------------------------------------------------------------- */

static int wait_for_frames(struct bench_context *context, struct pair *pair)
{
    struct count count;
    double end = vw_clock_seconds() + FLOW_SECONDS;

    do {
        if (count_side(context, pair->receiver, &count) < 0)
            return -1;
        if (count.received > 0)
            return 0;
    } while (bench_sleep(context, DRAIN_SECONDS) == 0 && vw_clock_seconds() < end);
    return bench_fail(context, "no frames arrive");
}

static void note_commands(struct pair *pair)
{
    char *commands = bench_format("%s\n%s", bench_process_command(process_of(&pair->device)),
                                  bench_process_command(process_of(&pair->driver)));

    bench_variant_note(pair->variant, commands, NULL);
    free(commands);
}

static int start(struct bench_context *context, struct pair *pair)
{
    if (start_side(context, pair, &pair->device) < 0 ||
        bench_wait_for_file(context, process_of(&pair->device), pair->socket) < 0 ||
        start_side(context, pair, &pair->driver) < 0)
        return -1;
    /* Only then do ours take SIGUSR1 for what it means. */
    if (bench_wait_for_text(context, process_of(&pair->device),
                            pair->device.testpmd != NULL ? "virtio is now ready for processing"
                                                         : "connected") < 0)
        return -1;
    note_commands(pair);
    if (start_forwarding(context, pair) < 0 || wait_for_frames(context, pair) < 0 ||
        check(context, pair) < 0)
        return -1;
    both(pair, bench_process_stop);
    return 0;
}

static void close_pair(void *state)
{
    struct pair *pair = state;

    bench_testpmd_end(pair->driver.testpmd);
    bench_process_end(pair->driver.ours);
    bench_testpmd_end(pair->device.testpmd);
    bench_process_end(pair->device.ours);
    free(pair->socket);
    free(pair);
}

static int open_pair(struct bench_context *context, struct bench_variant *variant, void **state)
{
    struct pair *pair = bench_allocate(sizeof(*pair));

    pair->parameters = variant->parameters;
    pair->variant = variant;
    pair->driver = (struct side){.is_driver = true, .parameters = pair->parameters};
    pair->device = (struct side){.parameters = pair->parameters};
    pair->sender = pair->parameters->direction == BENCH_TO_DRIVER ? &pair->device : &pair->driver;
    pair->receiver = pair->parameters->direction == BENCH_TO_DEVICE ? &pair->device : &pair->driver;
    pair->socket = bench_format("pair%u.sock", ++context->serial);
    if (start(context, pair) < 0) {
        close_pair(pair);
        return -1;
    }
    *state = pair;
    return 0;
}

const struct bench_runner bench_mixed_runner = {
    .open = open_pair, .slice = slice, .close = close_pair};
