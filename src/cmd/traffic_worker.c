/* SPDX-License-Identifier: BSD-3-Clause */
/* What the threads of pktgen, sink and echo have in common. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/shared.h"
#include "cmd/traffic.h"

/* Frames that one poll hands out at most, as NAPI does. */
#define POLL_BUDGET 64

void traffic_fail(struct traffic_worker *worker, int error, const char *doing)
{
    const char *why = vw_queue_error(worker->net, worker->pair);

    snprintf(worker->error, sizeof(worker->error), "queue pair %u: cannot %s: %s", worker->pair,
             doing, why != NULL ? why : strerror(error));
}

/* Poll mode: nothing is armed, and completed frames are looked for only when somebody waits for
 * their buffers (vw_tx_reap in pktgen and echo). */
static int poll_busily(struct traffic_worker *worker, vw_rx_function receive)
{
    struct vw_rx_packet packets[TRAFFIC_MAX_BURST];
    int count = vw_rx_burst(worker->net, worker->pair, packets, worker->traffic->options.burst);

    if (count > 0)
        receive(worker, worker->pair, packets, (unsigned)count);
    return count;
}

int traffic_poll(struct traffic_worker *worker, vw_rx_function receive)
{
    int count = worker->traffic->options.mode == TRAFFIC_POLL
                    ? poll_busily(worker, receive)
                    : vw_poll(worker->net, worker->pair, POLL_BUDGET, receive, worker);

    traffic_tell(worker);
    if (vw_unlikely(count == -ENOTCONN))
        return 0; /* the main thread connects again, or ends us */
    if (vw_unlikely(count < 0))
        traffic_fail(worker, -count, "receive");
    return count;
}

void traffic_wait(struct traffic_worker *worker, int timeout_ms)
{
    struct pollfd called = {.events = POLLIN};

    switch (worker->traffic->options.mode) {
    case TRAFFIC_ADAPTIVE:
        if (vw_wait(worker->net, worker->pair, timeout_ms) >= 0)
            break;
        /* no device, or a broken queue, which the next call tells: not at once again and again */
        vw_count_system_call();
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        break;
    case TRAFFIC_INTERRUPT:
        /* Only here: whoever asks for it has calls armed from then on. */
        called.fd = vw_queue_fd(worker->net, worker->pair);
        vw_count_system_call();
        poll(&called, 1, timeout_ms);
        break;
    case TRAFFIC_POLL:
        vw_cpu_relax();
        break;
    }
    traffic_tell(worker);
}

/* Received frames that are checked together. */
#define CHECK_BATCH 64

/* The frame in one piece. It lies in memory that the device writes: what it says is taken once. */
static void *whole(struct traffic_worker *worker, const struct vw_rx_packet *packet)
{
    uint32_t length = 0;

    if (vw_likely(packet->piece_count == 1))
        return packet->pieces[0].data;
    for (unsigned i = 0; i < packet->piece_count; i++) {
        const struct vw_piece *piece = &packet->pieces[i];
        size_t room = VW_PROBE_MAX_FRAME - length;

        memcpy(worker->scratch + length, piece->data, vw_min64(piece->length, room));
        length += (uint32_t)vw_min64(piece->length, room);
    }
    return worker->scratch;
}

void traffic_check(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct traffic_worker *worker = context;
    struct iovec frames[CHECK_BATCH];
    uint64_t bytes = 0;
    unsigned waiting = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += packets[i].length;
        frames[waiting++] = (struct iovec){whole(worker, &packets[i]),
                                           vw_min64(packets[i].length, VW_PROBE_MAX_FRAME)};
        /* What was put together is to be checked before the next one takes its place. */
        if (waiting == CHECK_BATCH || packets[i].piece_count != 1 || i + 1 == count) {
            vw_probe_read_burst(&worker->reader, frames, waiting);
            waiting = 0;
        }
    }
    traffic_count(&worker->received_frames, count);
    traffic_count(&worker->received_bytes, bytes);
    vw_rx_release(worker->net, pair, packets, count);
}

static uint64_t bytes_of(const struct vw_tx_packet *packets, unsigned count)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < packets[i].piece_count; j++)
            bytes += packets[i].pieces[j].length;
    return bytes;
}

int traffic_send(struct traffic_worker *worker, const struct vw_tx_packet *packets, unsigned count)
{
    traffic_lock(worker);
    int taken = vw_tx_burst(worker->net, worker->pair, packets, count, 0);
    traffic_unlock(worker);

    traffic_tell(worker);
    if (vw_likely(taken > 0)) {
        traffic_count(&worker->sent_frames, (unsigned)taken);
        traffic_count(&worker->sent_bytes, bytes_of(packets, (unsigned)taken));
        return taken;
    }
    if (taken == 0 || taken == -ENOTCONN)
        return 0;
    if (taken == -EINVAL) {
        traffic_count(&worker->refused_frames, 1);
        traffic_lock(worker);
        worker->traffic->role->sent(worker, packets[0].token);
        traffic_unlock(worker);
        return 1;
    }
    traffic_fail(worker, -taken, "send");
    return -1;
}
