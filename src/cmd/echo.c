/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire echo`: sends every frame back where it came from, with its MAC addresses swapped.
 *
 * Theory of operation
 * -------------------
 * Nothing is copied: a received frame's own buffer is sent, and given back to the receive queue
 * when that is completed. Completed frames are collected first and given back after the call that
 * told of them, since the library is in the middle of its work then.
 *
 * Frames that find no room in the transmit queue wait, in order, and hold their receive buffers
 * meanwhile: in the end the device sees a receive queue without buffers, and waits, too. The
 * library has no more buffers than the table has places, so that nothing is lost here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/traffic.h"

#define ETHERNET_HEADER 14

/* Frames in hand for each entry of the receive ring, beyond what the transmit ring holds. */
#define FRAMES_PER_ENTRY 4

struct echo {
    struct vw_rx_packet *packets; /* all frames in hand, in any order */
    struct vw_rx_packet **free;   /* elements of `packets` without a frame */
    unsigned capacity, free_count;

    struct vw_tx_packet *waiting; /* ring of `capacity`: for room in the transmit queue */
    unsigned first, count;

    struct vw_rx_packet *done; /* completed: to be given back */
    unsigned done_count;
};

static void echo_release(struct traffic_worker *worker)
{
    struct echo *echo = worker->role;

    if (echo == NULL)
        return;
    free(echo->packets);
    free(echo->free);
    free(echo->done);
    free(echo->waiting);
    free(echo);
    worker->role = NULL;
}

static int echo_prepare(struct traffic_worker *worker)
{
    const struct vw_net_options *options = &worker->traffic->options.net;
    struct echo *echo = calloc(1, sizeof(*echo));

    worker->role = echo;
    if (echo == NULL)
        return -ENOMEM;
    echo->capacity =
        options->tx_ring_size + FRAMES_PER_ENTRY * options->rx_ring_size + TRAFFIC_MAX_BURST;
    echo->packets = calloc(echo->capacity, sizeof(*echo->packets));
    echo->done = calloc(echo->capacity, sizeof(*echo->done));
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers is meant */
    echo->free = calloc(echo->capacity, sizeof(*echo->free));
    echo->waiting = calloc(echo->capacity, sizeof(*echo->waiting));
    if (echo->packets == NULL || echo->done == NULL || echo->free == NULL || echo->waiting == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < echo->capacity; i++)
        echo->free[echo->free_count++] = &echo->packets[i];
    return 0;
}

static void echo_sent(struct traffic_worker *worker, void *token)
{
    struct echo *echo = worker->role;
    struct vw_rx_packet *packet = token;

    echo->done[echo->done_count++] = *packet;
    echo->free[echo->free_count++] = packet;
}

static void give_back(struct traffic_worker *worker)
{
    struct echo *echo = worker->role;

    if (echo->done_count == 0)
        return;
    vw_rx_release(worker->net, worker->pair, echo->done, echo->done_count);
    echo->done_count = 0;
}

static bool swap_addresses(const struct vw_rx_packet *packet)
{
    uint8_t *frame = packet->pieces[0].data, address[6];

    if (packet->pieces[0].length < ETHERNET_HEADER)
        return false;
    memcpy(address, frame, 6);
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, address, 6);
    return true;
}

/* A vw_rx_function: the frames join those that wait. */
static void take(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct traffic_worker *worker = context;
    struct echo *echo = worker->role;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += packets[i].length;
        if (packets[i].piece_count > VW_TX_MAX_PIECES || echo->free_count == 0 ||
            !swap_addresses(&packets[i])) {
            traffic_count(&worker->refused_frames, 1);
            vw_rx_release(worker->net, pair, &packets[i], 1);
            continue;
        }
        struct vw_rx_packet *packet = echo->free[--echo->free_count];
        struct vw_tx_packet *place = &echo->waiting[(echo->first + echo->count++) % echo->capacity];

        *packet = packets[i];
        *place = (struct vw_tx_packet){
            .pieces = packet->pieces,
            .piece_count = packet->piece_count,
            .offload = packet->offload,
            .token = packet,
        };
        /* DATA_VALID and the like are the device's to say, not ours (virtio 1.x, 5.1.6.2.1). */
        place->offload.flags &= VW_OFFLOAD_NEEDS_CSUM;
    }
    traffic_count(&worker->received_frames, count);
    traffic_count(&worker->received_bytes, bytes);
}

/* 1: something was sent or refused; 0: nothing; -1: the thread is to end. */
static int send_waiting(struct traffic_worker *worker)
{
    struct echo *echo = worker->role;
    int done = 0;

    if (echo->count > 0) {
        unsigned to_end = echo->capacity - echo->first;

        done = traffic_send(worker, &echo->waiting[echo->first],
                            echo->count < to_end ? echo->count : to_end);
        if (done < 0)
            return -1;
        echo->first = (echo->first + (unsigned)done) % echo->capacity;
        echo->count -= (unsigned)done;
    }
    vw_tx_reap(worker->net, worker->pair);
    give_back(worker);
    return done > 0;
}

/* Until what was received is sent and completed. */
static void finish(struct traffic_worker *worker)
{
    double deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;
    const struct echo *echo = worker->role;

    while ((echo->count > 0 || vw_tx_in_flight(worker->net, worker->pair) > 0) &&
           vw_clock_seconds() < deadline) {
        int sent = send_waiting(worker);

        if (sent < 0)
            return;
        if (sent == 0) {
            vw_count_system_call();
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    traffic_count(&worker->refused_frames, echo->count);
}

static void echo_run(struct traffic_worker *worker)
{
    while (!traffic_ends(worker)) {
        uint64_t completed = worker->completed;
        int sent = send_waiting(worker);
        int received = sent < 0 ? 0 : traffic_poll(worker, take);

        give_back(worker);
        if (sent < 0 || received < 0)
            return;
        /* With room made by completed frames the ring is tried again before a wait. */
        if (sent == 0 && received == 0 && worker->completed == completed)
            traffic_wait(worker, TRAFFIC_PATIENCE_MS);
    }
    finish(worker);
}

static const char help[] =
    "usage: virtwire echo --socket-path=PATH [OPTION...]\n"
    "\n"
    "Sends every frame that it receives from a virtio-net device back to it, with the MAC\n"
    "addresses swapped and without a copy. Nothing is dropped: what finds no room waits. Ends\n"
    "with a summary, at Ctrl-C or at --duration.\n"
    "\n"
    "frames:\n"
    "  --burst=N             frames taken at a time in poll mode, 1 to 256 (32)\n"
    "  --duration=S          seconds to run (until Ctrl-C)\n";

static const struct traffic_role role = {
    .name = "echo",
    .help = help,
    .sends = true,
    .forwards = true,
    .prepare = echo_prepare,
    .release = echo_release,
    .run = echo_run,
    .sent = echo_sent,
};

int command_echo(int argc, char **argv)
{
    return traffic_main(&role, argc, argv);
}
