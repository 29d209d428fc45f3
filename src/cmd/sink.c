/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire sink`: receives frames, checks those that are probes or segments of TCP streams, and
 * may acknowledge these.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "cmd/command.h"
#include "cmd/traffic.h"

/* In front of each acknowledgement, for its virtio-net header; each takes two cache lines. */
#define HEADROOM VW_CACHE_LINE
#define STRIDE ((size_t)HEADROOM + VW_CACHE_LINE)

/* Only with --acknowledge. */
struct sink {
    uint8_t **free;
    unsigned free_count;
    struct vw_tx_packet packets[TRAFFIC_MAX_BURST]; /* [first .. first + count) wait for room */
    struct vw_piece pieces[TRAFFIC_MAX_BURST];
    unsigned first, count;
};

/* ---- acknowledging --------------------------------------------------------------------------- */

static unsigned buffers_of(const struct traffic_options *options)
{
    return options->acknowledge != 0 ? options->net.tx_ring_size + options->burst : 0;
}

static size_t sink_memory(const struct traffic_options *options)
{
    return buffers_of(options) * STRIDE;
}

static void sink_release(struct traffic_worker *worker)
{
    struct sink *sink = worker->role;

    if (sink != NULL)
        free(sink->free);
    free(sink);
    worker->role = NULL;
}

static int sink_prepare(struct traffic_worker *worker)
{
    unsigned buffers = buffers_of(&worker->traffic->options);
    uint8_t *memory;
    struct sink *sink;

    if (buffers == 0)
        return 0;
    worker->role = sink = calloc(1, sizeof(*sink)); /* from here on released with the worker */
    if (sink == NULL)
        return -ENOMEM;
    memory = vw_alloc(worker->net, buffers * STRIDE);
    sink->free = calloc(buffers, sizeof(*sink->free));
    if (memory == NULL || sink->free == NULL)
        return -ENOMEM;
    for (unsigned i = buffers; i > 0; i--)
        sink->free[sink->free_count++] = memory + (i - 1) * STRIDE + HEADROOM;
    return 0;
}

static void sink_sent(struct traffic_worker *worker, void *token)
{
    struct sink *sink = worker->role;

    sink->free[sink->free_count++] = token;
}

/* Writes the acknowledgements that are due, as many as a burst takes. */
static void write_burst(struct traffic_worker *worker, struct sink *sink)
{
    unsigned burst = worker->traffic->options.burst;

    sink->first = sink->count = 0;
    while (sink->count < burst && sink->free_count > 0 &&
           vw_stream_acknowledgement_due(&worker->streams)) {
        uint8_t *frame = sink->free[--sink->free_count];
        unsigned at = sink->count++;

        vw_stream_make_acknowledgement(&worker->streams, frame);
        sink->pieces[at] = (struct vw_piece){frame, VW_PROBE_MIN_FRAME};
        sink->packets[at] = (struct vw_tx_packet){
            .pieces = &sink->pieces[at],
            .piece_count = 1,
            .token = frame,
            .headroom = HEADROOM,
        };
    }
}

/* Returns how many went, or -1: the thread is to end. */
static int acknowledge(struct traffic_worker *worker)
{
    struct sink *sink = worker->role;
    int total = 0;

    if (sink == NULL)
        return 0;
    for (;;) {
        if (sink->count == 0)
            write_burst(worker, sink);
        if (sink->count == 0)
            break;
        int sent = traffic_send(worker, &sink->packets[sink->first], sink->count);
        if (sent < 0)
            return -1;
        sink->first += (unsigned)sent;
        sink->count -= (unsigned)sent;
        total += sent;
        if (sent == 0)
            break;
    }
    /* Where a poll reaps nothing, or the ring is full. */
    if (sink->count > 0 || sink->free_count < worker->traffic->options.burst)
        vw_tx_reap(worker->net, worker->pair);
    return total;
}

/* ---- running --------------------------------------------------------------------------------- */

/* With --count: has this queue pair had its share? */
static bool had_enough(const struct traffic_worker *worker, uint64_t share)
{
    return share != 0 && worker->received_frames >= share;
}

static void sink_run(struct traffic_worker *worker)
{
    const struct traffic *traffic = worker->traffic;
    uint64_t share = traffic->options.count / traffic->worker_count +
                     (worker->pair < traffic->options.count % traffic->worker_count);

    while (!traffic_ends(worker) && !had_enough(worker, share)) {
        int received = traffic_poll(worker, traffic_check);
        int sent = received >= 0 ? acknowledge(worker) : 0;

        if (received < 0 || sent < 0)
            return;
        if (received == 0 && sent == 0)
            traffic_wait(worker, TRAFFIC_PATIENCE_MS);
    }
}

static const char help[] =
    "usage: virtwire sink --socket-path=PATH [OPTION...]\n"
    "\n"
    "Receives frames from a virtio-net device, as a guest's driver would. Probe frames (from\n"
    "virtwire pktgen or virtwire device --port source) are checked: what was lost, reordered,\n"
    "duplicated or corrupted is counted for each flow; a flow must keep to one queue pair. So are\n"
    "segments of their TCP streams. Ends with a summary, at Ctrl-C or at --duration or --count.\n"
    "\n"
    "frames:\n"
    "  --burst=N             frames taken at a time in poll mode, 1 to 256 (32)\n"
    "  --duration=S          seconds to receive (until Ctrl-C)\n"
    "  --count=N             frames to receive in all, the same share from each queue pair\n"
    "  --acknowledge=N       acknowledge each N segments of a TCP stream (never)\n";

static const struct traffic_role role = {
    .name = "sink",
    .help = help,
    .memory = sink_memory,
    .prepare = sink_prepare,
    .release = sink_release,
    .run = sink_run,
    .sent = sink_sent,
};

int command_sink(int argc, char **argv)
{
    return traffic_main(&role, argc, argv);
}
