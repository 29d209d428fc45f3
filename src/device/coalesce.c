/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notification coalescing (virtio 1.x, section 5.1.6.5.9): calls that are put off.
 *
 * Theory of operation
 * -------------------
 * With limits in force, used buffers become visible at once, as ever, but the decision about a call
 * waits until max_packets packets or max_usecs have gone by. Only then is the driver's suppression
 * looked at, once for all that became visible meanwhile: a driver that has polled in between, and
 * asks for no call any more, gets none. Nothing is lost by that: the decision reads the driver's
 * wish after a full barrier, and covers every used entry since the last one (ring/notify.h).
 *
 * The first packet after a decision starts the time, and the worker that published it is the
 * *keeper*: its wait ends no later than the deadline. With RSS that need not be the queue's own
 * worker. An urgent buffer (docs/urgent.md) does not wait, nor does a queue that has no more
 * buffers, whose driver has nothing left to wait for.
 *
 * A pause decides at once about everything. So limits change only while nothing is pending, and
 * limits that are exceeded when they come into force have had their call.
 */

#include "base/clock.h"
#include "device/internal.h"

void vw_queue_set_coalescing(struct vw_queue *queue, const struct vw_net_coalescing *limits)
{
    /* "If either is 0, the device sends a notification for every packet" (5.1.6.5.9.2). */
    bool on = limits->max_packets != 0 && limits->max_usecs != 0;

    queue->coalescing.max_packets = on ? limits->max_packets : 0;
    queue->coalescing.max_usecs = on ? limits->max_usecs : 0;
}

void vw_queue_decide(struct vw_queue *queue)
{
    queue->coalescing.keeper = NULL;
    queue->coalescing.packets = 0;
    if (queue->live && vw_device_ring_decide(&queue->ring))
        vw_queue_call(queue);
}

void vw_queue_publish_coalesced(struct vw_queue *queue, struct vw_pair *by, uint32_t packets)
{
    struct vw_queue_coalescing *coalescing = &queue->coalescing;
    bool at_once = vw_device_ring_expose(&queue->ring);

    if (!vw_device_ring_undecided(&queue->ring))
        return;
    coalescing->packets += packets;
    /* No more than the ring holds can be on its way to a driver that sleeps. */
    if (at_once || coalescing->packets >= coalescing->max_packets ||
        coalescing->packets >= queue->size) {
        vw_queue_decide(queue);
        return;
    }
    vw_count(&queue->counters.calls_put_off, 1);
    if (coalescing->keeper != NULL)
        return;
    coalescing->keeper = by;
    coalescing->deadline = vw_clock_ns() + (uint64_t)coalescing->max_usecs * 1000;
    by->keeps_deadlines = true;
}

/* One queue: decides if it is time, else returns its deadline. */
static uint64_t look_at(struct vw_queue *queue, const struct vw_pair *pair, uint64_t now)
{
    if (queue->coalescing.keeper != pair)
        return VW_NO_DEADLINE;
    if (now < queue->coalescing.deadline)
        return queue->coalescing.deadline;
    vw_queue_decide(queue);
    return VW_NO_DEADLINE;
}

uint64_t vw_coalescing_run(struct vw_pair *pair)
{
    struct vw_device *device = pair->device;
    bool steering = device->rules.steering;

    if (!pair->keeps_deadlines)
        return VW_NO_DEADLINE;
    uint64_t now = vw_clock_ns();
    uint64_t next = look_at(pair->transmit, pair, now);
    if (!steering)
        next = vw_min64(next, look_at(pair->receive, pair, now));
    for (unsigned i = 0; steering && i < device->pair_count; i++) {
        struct vw_queue *queue = device->pairs[i].receive;

        pthread_mutex_lock(&queue->lock);
        next = vw_min64(next, look_at(queue, pair, now));
        pthread_mutex_unlock(&queue->lock);
    }
    pair->keeps_deadlines = next != VW_NO_DEADLINE;
    return next;
}

int64_t vw_coalescing_wait_ns(uint64_t deadline)
{
    uint64_t now = vw_clock_ns();

    return deadline > now ? (int64_t)(deadline - now) : 0;
}
