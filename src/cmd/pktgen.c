/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire pktgen`: sends probe frames, at full speed or at a rate, and may check them when they
 * come back.
 *
 * Theory of operation
 * -------------------
 * Each thread has a pool of frame buffers, somewhat more than its ring can hold. A burst is
 * written, then offered until all of it is taken: a frame that found no room is not written again,
 * for its sequence number is its own. Buffers come back through `sent`.
 *
 * The number of frames that may have been sent by now follows from the rate and the time since the
 * start. What could not be sent for longer than RATE_BACKLOG_SECONDS is not made up for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/shared.h"
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/traffic.h"
#include "net/header.h"

#define RATE_BACKLOG_SECONDS 0.01

/*
 * In front of each frame, for its virtio-net header: one descriptor then does for both. So many
 * bytes that what differs from frame to frame begins with a cache line. The line in front of it is
 * written once, and then stays in the caches of both cores. (A headroom of 32, with
 * both lines written each time, gave 2 % fewer frames on cores 160 ns apart.)
 */
#define HEADROOM (VW_CACHE_LINE - VW_PROBE_CONSTANT)
_Static_assert(HEADROOM >= VW_NET_HEADER_MAX, "room for any header");

/* At most so long a sleep between two bursts of a rate: received frames want to be looked at, and
 * the sleep itself is not exact. */
#define RATE_NAP_SECONDS 200e-6

struct pktgen {
    struct vw_probe_writer writer;
    uint64_t *sequences;
    struct vw_probe_sizes sizes;
    uint8_t *buffers;
    size_t stride;
    uint8_t **free;
    unsigned free_count, buffer_count;
    uint8_t **returned; /* by the completions' thread; under its lock */
    unsigned returned_count;

    /* The burst: packets[first .. first + count) are written and wait for room. */
    struct vw_tx_packet packets[TRAFFIC_MAX_BURST];
    struct vw_piece pieces[TRAFFIC_MAX_BURST];
    unsigned first, count;

    uint64_t bursts;
    const void *timed; /* the last buffer of a burst that is timed, until it is back; NULL: none */
    uint64_t timed_since;

    uint64_t limit; /* frames in all; UINT64_MAX: none */
    uint64_t made;  /* frames written so far */
    unsigned urgent_every;
    double rate;  /* 0: none */
    double began; /* the rate's zero: `made` frames are due at began + made / rate */
};

/* ---- set-up ---------------------------------------------------------------------------------- */

static size_t stride_of(const struct traffic_options *options)
{
    size_t longest = HEADROOM + vw_probe_sizes_longest(&options->sizes);

    return (longest + VW_CACHE_LINE - 1) / VW_CACHE_LINE * VW_CACHE_LINE;
}

static unsigned buffers_of(const struct traffic_options *options)
{
    return options->net.tx_ring_size + options->burst;
}

static size_t pktgen_memory(const struct traffic_options *options)
{
    return buffers_of(options) * stride_of(options);
}

/* Queue `index` of `queues` has every queues-th flow and its share of count and rate. */
static int share_work(struct pktgen *pktgen, const struct traffic_worker *worker)
{
    const struct traffic_options *options = &worker->traffic->options;
    unsigned index = worker->pair, queues = worker->traffic->worker_count;
    unsigned flows = options->flows > index ? (options->flows - index - 1) / queues + 1 : 0;
    uint16_t run;

    if (getrandom(&run, sizeof(run), 0) < 0)
        return -errno;
    pktgen->sequences = calloc(flows + 1u, sizeof(*pktgen->sequences));
    if (pktgen->sequences == NULL)
        return -ENOMEM;
    vw_probe_writer_init(&pktgen->writer, &options->addresses, run, index, queues, flows,
                         pktgen->sequences);
    pktgen->sizes = options->sizes;
    pktgen->rate = options->rate / queues;
    pktgen->urgent_every = options->urgent_every;
    pktgen->limit = UINT64_MAX;
    if (options->count != 0)
        pktgen->limit = options->count / queues + (index < options->count % queues);
    return 0;
}

static void pktgen_release(struct traffic_worker *worker)
{
    struct pktgen *pktgen = worker->role;

    if (pktgen == NULL)
        return;
    free(pktgen->free);
    free(pktgen->returned);
    free(pktgen->sequences);
    free(pktgen);
    worker->role = NULL;
}

static int pktgen_prepare(struct traffic_worker *worker)
{
    const struct traffic_options *options = &worker->traffic->options;
    struct pktgen *pktgen = calloc(1, sizeof(*pktgen));

    worker->role = pktgen; /* from here on released with the worker */
    if (pktgen == NULL)
        return -ENOMEM;
    pktgen->stride = stride_of(options);
    pktgen->buffer_count = buffers_of(options);
    pktgen->buffers = vw_alloc(worker->net, pktgen->buffer_count * pktgen->stride);
    pktgen->free = calloc(pktgen->buffer_count, sizeof(*pktgen->free));
    pktgen->returned = calloc(pktgen->buffer_count, sizeof(*pktgen->returned));
    if (pktgen->buffers == NULL || pktgen->free == NULL || pktgen->returned == NULL)
        return -ENOMEM;
    for (unsigned i = pktgen->buffer_count; i > 0; i--)
        pktgen->free[pktgen->free_count++] = pktgen->buffers + (i - 1) * pktgen->stride + HEADROOM;
    return share_work(pktgen, worker);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void pktgen_sent(struct traffic_worker *worker, void *token)
{
    struct pktgen *pktgen = worker->role;

    if (worker->completions.used)
        pktgen->returned[pktgen->returned_count++] = token;
    else
        pktgen->free[pktgen->free_count++] = token;
    if (vw_unlikely(token == pktgen->timed)) {
        vw_histogram_add(&worker->last_frame, vw_clock_ns() - pktgen->timed_since);
        pktgen->timed = NULL;
    }
}

/* At full speed so many bursts go untimed between two that are: a look at the clock costs as much
 * as a frame. Not in step with the ring, of whose size bursts are a power of two's part. */
#define BURSTS_A_TIMING 61

/* A burst is about to be offered: perhaps its way is to be timed. One at a time. */
static void time_burst(struct pktgen *pktgen)
{
    if (pktgen->timed != NULL || pktgen->count == 0 ||
        (pktgen->rate <= 0 && pktgen->bursts++ % BURSTS_A_TIMING != 0))
        return;
    pktgen->timed = pktgen->packets[pktgen->count - 1].token;
    pktgen->timed_since = vw_clock_ns();
}

/* How many frames ahead of being written a buffer is asked for: 8 gave 12.5 -> 21.1 million frames
 * a second towards a sink on another core (split, in order), 16 gave 19.4. */
#define PREFETCH_AHEAD 8

/* The device has just read the buffer: the line that changes is with the other core, and a store to
 * it would hold up all that follow. */
static void prefetch_buffer(const struct pktgen *pktgen)
{
    if (pktgen->free_count < PREFETCH_AHEAD)
        return;
    const uint8_t *ahead = pktgen->free[pktgen->free_count - PREFETCH_AHEAD];
    vw_prefetch_write(ahead + VW_PROBE_CONSTANT);
}

/* Writes the next burst, of at most `most` frames. */
static void write_burst(struct pktgen *pktgen, unsigned most)
{
    unsigned every = pktgen->urgent_every;
    unsigned count = most < pktgen->free_count ? most : pktgen->free_count;

    for (unsigned i = 0; i < count; i++) {
        uint8_t *buffer = pktgen->free[--pktgen->free_count];
        prefetch_buffer(pktgen);
        uint32_t length = vw_probe_sizes_next(&pktgen->sizes);

        vw_probe_write(&pktgen->writer, buffer, length);
        pktgen->pieces[i] = (struct vw_piece){buffer, length};
        pktgen->packets[i] = (struct vw_tx_packet){
            .pieces = &pktgen->pieces[i],
            .piece_count = 1,
            .token = buffer,
            .headroom = HEADROOM,
            .urgent = every != 0 && (pktgen->made + i) % every == 0,
        };
    }
    pktgen->first = 0;
    pktgen->count = count;
    pktgen->made += count;
}

/* How many frames may be made now; *wait_seconds: until there are some, if there are none. */
static unsigned frames_due(struct pktgen *pktgen, unsigned burst, double *wait_seconds)
{
    uint64_t left = pktgen->limit - pktgen->made;

    *wait_seconds = 0;
    if (pktgen->rate > 0 && left > 0) {
        double now = vw_clock_seconds();
        double behind = (now - pktgen->began) * pktgen->rate - (double)pktgen->made;
        double backlog = RATE_BACKLOG_SECONDS * pktgen->rate + burst;

        if (behind > backlog) {
            pktgen->began += (behind - backlog) / pktgen->rate;
            behind = backlog;
        }
        if (behind < 1) {
            *wait_seconds = (1 - behind) / pktgen->rate;
            return 0;
        }
        left = vw_min64(left, (uint64_t)behind);
    }
    return (unsigned)vw_min64(left, burst);
}

/* Looks for completed frames, or for those that the completions' thread found. */
static void reap(struct traffic_worker *worker)
{
    struct pktgen *pktgen = worker->role;

    if (!worker->completions.used) {
        vw_tx_reap(worker->net, worker->pair);
        return;
    }
    traffic_lock(worker);
    memcpy(pktgen->free + pktgen->free_count, pktgen->returned,
           pktgen->returned_count * sizeof(*pktgen->free));
    pktgen->free_count += pktgen->returned_count;
    pktgen->returned_count = 0;
    traffic_unlock(worker);
}

/* Offers what is written, after having written more if that is due. Returns as traffic_send. */
static int send_some(struct traffic_worker *worker, double *wait_seconds)
{
    struct pktgen *pktgen = worker->role;
    unsigned burst = worker->traffic->options.burst;

    *wait_seconds = 0;
    if (pktgen->count == 0) {
        unsigned due = frames_due(pktgen, burst, wait_seconds);

        if (due > 0 && pktgen->free_count < due)
            reap(worker);
        write_burst(pktgen, due);
        traffic_lock(worker);
        time_burst(pktgen);
        traffic_unlock(worker);
        if (pktgen->count == 0)
            return 0;
    }
    int done = traffic_send(worker, &pktgen->packets[pktgen->first], pktgen->count);
    if (done > 0) {
        pktgen->first += (unsigned)done;
        pktgen->count -= (unsigned)done;
    }
    if (pktgen->count > 0 && done >= 0 && !worker->completions.used) /* the ring is full */
        reap(worker);
    return done;
}

/* Until the next frame of a rate is due. */
static void nap(struct traffic_worker *worker, double seconds)
{
    if (seconds * 1000 >= 2) {
        traffic_wait(worker, seconds * 1000 > TRAFFIC_PATIENCE_MS ? TRAFFIC_PATIENCE_MS
                                                                  : (int)(seconds * 1000) - 1);
    } else if (worker->traffic->options.mode != TRAFFIC_POLL) {
        double length = seconds < RATE_NAP_SECONDS ? seconds : RATE_NAP_SECONDS;

        vw_count_system_call();
        nanosleep(&(struct timespec){.tv_nsec = (long)(length * 1e9)}, NULL);
    }
}

/* Must received frames be looked at in this turn? Without a loop there are none that anybody wants;
 * but before a wait the poll gives them back, reaps and arms. */
static bool polls(const struct traffic_options *options, bool waits)
{
    return options->loop || (waits && options->mode != TRAFFIC_POLL);
}

/* After the last frame: until all are completed and, in a loop, back. */
static void finish(struct traffic_worker *worker)
{
    const struct traffic_options *options = &worker->traffic->options;
    double deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;
    const struct vw_probe_counters *probe = &worker->reader.counters;

    while (vw_tx_in_flight(worker->net, worker->pair) > 0 ||
           (options->loop && probe->frames - probe->duplicate < worker->sent_frames)) {
        int received = polls(options, true) ? traffic_poll(worker, traffic_check) : 0;

        if (received < 0)
            return;
        int reaped = vw_tx_reap(worker->net, worker->pair);
        if (received > 0 || reaped > 0)
            deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;
        else if (vw_clock_seconds() > deadline)
            return;
        else
            traffic_wait(worker, 10);
    }
}

/* Whoever sends does nothing else, and finds room when the other thread has made some. */
static void run_with_completions(struct traffic_worker *worker)
{
    struct pktgen *pktgen = worker->role;
    double wait_seconds, deadline;
    unsigned left;
    int sent = 0;

    while (!traffic_ends(worker) && sent >= 0 &&
           (pktgen->made < pktgen->limit || pktgen->count > 0)) {
        sent = send_some(worker, &wait_seconds);
        if (wait_seconds > 0)
            nap(worker, wait_seconds);
        else if (sent == 0)
            traffic_stand_back(worker);
    }
    deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        traffic_lock(worker);
        left = vw_tx_in_flight(worker->net, worker->pair);
        traffic_unlock(worker);
    } while (left > 0 && sent >= 0 && vw_clock_seconds() < deadline);
}

static void pktgen_run(struct traffic_worker *worker)
{
    const struct traffic_options *options = &worker->traffic->options;
    struct pktgen *pktgen = worker->role;

    pktgen->began = vw_clock_seconds();
    if (options->completion_cpu >= 0) {
        int error = traffic_completions_start(worker);

        if (error < 0) {
            traffic_fail(worker, -error, "start a thread on the CPU of --completion-cpu");
            return;
        }
        run_with_completions(worker);
        traffic_completions_stop(worker);
        reap(worker);
        return;
    }
    while (!traffic_ends(worker) && (pktgen->made < pktgen->limit || pktgen->count > 0)) {
        uint64_t completed = worker->completed;
        double wait_seconds;
        int sent = send_some(worker, &wait_seconds);
        int received = polls(options, sent <= 0) ? traffic_poll(worker, traffic_check) : 0;

        if (sent < 0 || received < 0)
            return;
        /* Completed frames made room: no call may come any more, so that the ring is tried again
         * before a wait. */
        if (sent > 0 || received > 0 || worker->completed != completed)
            continue;
        if (wait_seconds > 0)
            nap(worker, wait_seconds);
        else
            traffic_wait(worker, TRAFFIC_PATIENCE_MS);
    }
    finish(worker);
}

static const char help[] =
    "usage: virtwire pktgen --socket-path=PATH [OPTION...]\n"
    "\n"
    "Sends UDP frames into a virtio-net device, as a guest's driver would. Each carries a\n"
    "sequence number and a checksum, so that the far side (virtwire sink, virtwire device\n"
    "--port sink, or pktgen itself with --loop) counts what was lost, reordered, duplicated or\n"
    "corrupted. Ends with a summary, at Ctrl-C or at --duration or --count.\n"
    "\n"
    "frames:\n"
    "  --rate=N              frames a second of all queues, such as 50k or 1.5M (full speed)\n"
    "  --size=N[,N...]|N-N|imix   bytes without the check sequence, 60 to 65549: lengths in\n"
    "                        turn, each one byte longer, or 7 x 60, 4 x 590, 1 x 1514 (64)\n"
    "  --flows=N             flows, told apart by their source port (one a queue pair)\n"
    "  --burst=N             frames handed over at a time, 1 to 256 (32)\n"
    "  --duration=S          seconds to send (until Ctrl-C)\n"
    "  --count=N             frames to send in all\n"
    "  --loop                the device sends the frames back: check them, and wait for the\n"
    "                        last ones\n"
    "  --urgent-every=N      mark each N-th frame urgent, for --tx-policy=urgent\n"
    "  --streams=N           TCP streams in place of probes, 1 to 1024 of each queue pair, whose\n"
    "                        applications write as fast as they may\n"
    "  --write=BYTES         what they write at a time (16384)\n"
    "  --acknowledged        the far side acknowledges (--port sink,acknowledge=2): keep to\n"
    "                        Nagle's rule and to the window\n"
    "                        with --loop: requests, each when the last one is back\n"
    "  --think-us=N          with --loop: how long to work on each response (0)\n"
    "  --completion-cpu=N    a thread of its own, on this CPU, is called and takes back what was\n"
    "                        sent, as a kernel's interrupt does (the sender, when it waits)\n"
    "  --source-mac=ADDRESS, --destination-mac=ADDRESS   (02:00:00:00:00:01 and ...:02)\n"
    "  --source-ip=ADDRESS, --destination-ip=ADDRESS     (198.18.0.1 and 198.18.0.2)\n";

static const struct traffic_role *select_role(const struct traffic_options *options)
{
    return options->streams > 0 ? &traffic_streams_role : NULL;
}

static const struct traffic_role role = {
    .name = "pktgen",
    .help = help,
    .select = select_role,
    .sends = true,
    .memory = pktgen_memory,
    .prepare = pktgen_prepare,
    .release = pktgen_release,
    .run = pktgen_run,
    .sent = pktgen_sent,
};

int command_pktgen(int argc, char **argv)
{
    return traffic_main(&role, argc, argv);
}
