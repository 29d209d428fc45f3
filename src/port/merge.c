/* SPDX-License-Identifier: BSD-3-Clause */
#include "port/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "net/coalesce.h"
#include "net/features.h"
#include "net/header.h"
#include "port/kinds.h"

/* Frames under way and results that nobody asked for yet: as many as results.h. */
#define FRAMES 256

/* Merged frames under way. Each has at least two frames of a device's. */
#define SLOTS (FRAMES / 2)

/* Pieces of merged frames under way: frames of two pieces each, and the headers. */
#define POOL 1024

/* auto: after so many batches in a row without a pair it looks away for so many. Looking for
 * nothing at every batch took 2.6 % of the rate of small frames, at one in 65 0.1 %: less than the
 * noise. */
#define MISSES 4
#define LOOK_AWAY 64

/* A merged frame's own part. */
struct slot {
    struct virtio_net_hdr_v1 wire;
    uint8_t headers[VW_NET_COALESCE_HEADERS];
};

/* What the port below took: a run of single frames, or one merged frame. */
struct unit {
    bool merged;
    uint32_t frames;
    uint32_t pool_end; /* merged: where its part of the pool ends */
};

/* Frames for the port below, until it says how many of them it takes. */
struct batch {
    struct vw_frame frames[VW_PORT_BATCH];
    struct unit units[VW_PORT_BATCH];
    uint32_t count;
};

struct merge_queue {
    enum vw_port_coalesce coalesce; /* OFF once a merged frame was refused */
    uint32_t misses, away;          /* auto */
    uint32_t under_way;             /* frames, finished ones included, that the device waits for */
    uint32_t units_added, units_done; /* all free-running */
    uint32_t slots_added, slots_done;
    uint32_t pool_added, pool_done;
    uint32_t kept_added, kept_done;
    uint32_t finished_added, finished_taken;
    struct unit units[FRAMES];
    struct vw_frame kept[FRAMES]; /* the frames of merged ones, in case that they are refused */
    uint8_t finished[FRAMES];     /* results */
    struct slot slots[SLOTS];
    struct iovec pool[POOL];
};

struct vw_port_merge {
    struct vw_port_ops ops;
    const struct vw_port_ops *below;
    unsigned queue_count;
    struct merge_queue *queues[VW_PORT_MAX_QUEUES];
};

_Static_assert((FRAMES & (FRAMES - 1)) == 0 && (SLOTS & (SLOTS - 1)) == 0 &&
                   (POOL & (POOL - 1)) == 0,
               "free-running indices wrap");

static struct merge_queue *merge_queue(const struct vw_port_queue *queue)
{
    return queue->port->merge->queues[queue->index];
}

/* ---- transmit ---------------------------------------------------------------------------------
 */

/* A part of the pool that lies together, at `*start`; it may leave out the pool's end. */
static uint32_t pool_room(const struct merge_queue *merge, uint32_t *start)
{
    uint32_t free = POOL - (merge->pool_added - merge->pool_done);
    uint32_t to_end = POOL - merge->pool_added % POOL;

    *start = merge->pool_added;
    if (free <= to_end)
        return free;
    if (to_end >= free - to_end)
        return to_end;
    *start += to_end;
    return free - to_end;
}

/*
 * Makes the merged frame of these frames, in the next slot. False if there is no room for it, and
 * then they are handed on singly.
 */
static bool build(struct merge_queue *merge, struct vw_net_merge *frames_of,
                  const struct vw_frame *frames, struct batch *batch)
{
    struct slot *slot = &merge->slots[merge->slots_added % SLOTS];
    uint32_t start, room = pool_room(merge, &start), used = 2;
    struct iovec *iov = &merge->pool[start % POOL];
    struct vw_net_header header;

    if (merge->slots_added - merge->slots_done == SLOTS)
        return false;
    for (uint32_t i = 0; i < frames_of->count; i++) {
        if (used >= room)
            return false;
        used += (uint32_t)vw_iov_slice(iov + used, room - used, frames[i].iov + 1,
                                       frames[i].iov_count - 1, frames_of->first.header_length,
                                       SIZE_MAX);
    }
    if (used > room)
        return false;
    vw_net_merge_finish(frames_of, &header);
    vw_net_header_encode(&header, &slot->wire, VW_PORT_HEADER);
    memcpy(slot->headers, frames_of->first.headers, frames_of->first.header_length);
    iov[0] = (struct iovec){&slot->wire, VW_PORT_HEADER};
    iov[1] = (struct iovec){slot->headers, frames_of->first.header_length};
    batch->frames[batch->count] =
        (struct vw_frame){iov, used, (uint32_t)frames_of->first.header_length + frames_of->payload};
    merge->slots_added++;
    merge->pool_added = start + used;
    batch->units[batch->count++] =
        (struct unit){.merged = true, .frames = frames_of->count, .pool_end = merge->pool_added};
    return true;
}

/* Ends the merge that is under way with frames[0 .. count). */
static bool close_merge(struct merge_queue *merge, struct vw_net_merge *merged,
                        const struct vw_frame *frames, uint32_t count, struct batch *batch)
{
    if (count > 1 && build(merge, merged, frames, batch))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        batch->frames[batch->count] = frames[i];
        batch->units[batch->count++] = (struct unit){.frames = 1};
    }
    return false;
}

static bool look(const struct vw_port_queue *queue, const struct vw_frame *frame,
                 struct vw_net_mergeable *mergeable)
{
    struct vw_net_header header;
    uint8_t raw[VW_PORT_HEADER];

    vw_iov_read(frame->iov, 1, 0, raw, sizeof(raw));
    vw_net_header_decode(&header, raw, sizeof(raw));
    return vw_net_mergeable_look(mergeable, &header, queue->port->features, frame->iov + 1,
                                 frame->iov_count - 1, frame->length);
}

static bool verify(const struct vw_net_mergeable *mergeable, const struct vw_frame *frame)
{
    return vw_net_mergeable_verify(mergeable, frame->iov + 1, frame->iov_count - 1);
}

/* Puts the frames into the batch, merged where they may be. Returns how many merged ones it has. */
static uint32_t merge_batch(struct vw_port_queue *queue, const struct vw_frame *frames,
                            uint32_t count, struct batch *batch)
{
    struct merge_queue *merge = merge_queue(queue);
    struct vw_net_merge merged = {.closed = true};
    struct vw_net_mergeable next;
    uint32_t start = 0, built = 0;

    for (uint32_t i = 0; i < count; i++) {
        bool may = look(queue, &frames[i], &next);

        if (may && vw_net_merge_fits(&merged, &next) &&
            (merged.count > 1 || verify(&merged.first, &frames[start])) &&
            verify(&next, &frames[i])) {
            vw_net_merge_add(&merged, &next);
            continue;
        }
        built += close_merge(merge, &merged, &frames[start], i - start, batch);
        start = i;
        merged.closed = true;
        if (may)
            vw_net_merge_begin(&merged, &next);
    }
    built += close_merge(merge, &merged, &frames[start], count - start, batch);
    return built;
}

static void add_singles(struct merge_queue *merge, uint32_t count)
{
    struct unit *last = &merge->units[(merge->units_added - 1) % FRAMES];

    merge->under_way += count;
    if (merge->units_added != merge->units_done && !last->merged)
        last->frames += count;
    else if (count > 0)
        merge->units[merge->units_added++ % FRAMES] = (struct unit){.frames = count};
}

static uint32_t add_merged(struct merge_queue *merge, const struct vw_frame *frames,
                           const struct unit *unit)
{
    for (uint32_t i = 0; i < unit->frames; i++)
        merge->kept[merge->kept_added++ % FRAMES] = frames[i];
    merge->units[merge->units_added++ % FRAMES] = *unit;
    merge->under_way += unit->frames;
    return unit->frames;
}

/* Hands the batch on; returns how many of `frames` went. */
static uint32_t send_batch(struct vw_port_queue *queue, const struct vw_frame *frames,
                           struct batch *batch, uint32_t slots_before, uint32_t pool_before)
{
    struct merge_queue *merge = merge_queue(queue);
    uint32_t done = 0;
    uint32_t taken = queue->port->merge->below->transmit(queue, batch->frames, batch->count);

    merge->slots_added = slots_before;
    merge->pool_added = pool_before;
    for (uint32_t i = 0; i < taken; i++) {
        const struct unit *unit = &batch->units[i];

        if (!unit->merged) {
            add_singles(merge, 1);
            done++;
            continue;
        }
        merge->slots_added++;
        merge->pool_added = unit->pool_end;
        done += add_merged(merge, frames + done, unit);
        vw_shared_store(&queue->counters.transmit_merged,
                        queue->counters.transmit_merged + unit->frames);
    }
    return done;
}

/* Is this batch worth a look? */
static bool looks(struct merge_queue *merge, uint32_t count)
{
    if (merge->coalesce == VW_PORT_COALESCE_OFF || count < 2)
        return false;
    if (vw_likely(merge->away == 0))
        return true;
    merge->away--;
    return false;
}

static void note(struct merge_queue *merge, uint32_t built)
{
    if (built > 0) {
        merge->misses = 0;
    } else if (merge->coalesce == VW_PORT_COALESCE_AUTO && ++merge->misses >= MISSES) {
        merge->misses = MISSES - 1; /* one look, and away again */
        merge->away = LOOK_AWAY;
    }
}

static uint32_t merge_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct merge_queue *merge = merge_queue(queue);
    struct batch batch;

    count = (uint32_t)vw_min64(count, FRAMES - merge->under_way);
    if (!looks(merge, count)) {
        uint32_t taken = queue->port->merge->below->transmit(queue, frames, count);

        add_singles(merge, taken);
        return taken;
    }
    count = (uint32_t)vw_min64(count, VW_PORT_BATCH);
    batch.count = 0;
    uint32_t slots = merge->slots_added, pool = merge->pool_added;
    note(merge, merge_batch(queue, frames, count, &batch));
    return send_batch(queue, frames, &batch, slots, pool);
}

/* ---- complete ---------------------------------------------------------------------------------
 */

static void finish(struct merge_queue *merge, uint32_t frames, enum vw_port_result result)
{
    for (uint32_t i = 0; i < frames; i++)
        merge->finished[merge->finished_added++ % FRAMES] = (uint8_t)result;
}

/*
 * The frames of a refused merged one, singly. What the port does not take at once is given up:
 * nothing else is under way that it could wait for.
 */
static void resend(struct vw_port_queue *queue, uint32_t frames)
{
    struct merge_queue *merge = merge_queue(queue);
    const struct vw_port_ops *below = queue->port->merge->below;

    if (merge->coalesce != VW_PORT_COALESCE_OFF)
        vw_log(queue->port->log, VW_LOG_WARNING,
               "%s: refused a merged frame; queue %u merges no more", queue->port->description,
               queue->index);
    merge->coalesce = VW_PORT_COALESCE_OFF;
    for (uint32_t i = 0; i < frames; i++) {
        struct vw_frame frame = merge->kept[(merge->kept_done + i) % FRAMES];
        enum vw_port_result result = VW_PORT_FAILED;

        if (below->transmit(queue, &frame, 1) == 1) {
            below->drain(queue);
            below->complete(queue, &result, 1);
        }
        finish(merge, 1, result);
    }
}

static void finish_merged(struct vw_port_queue *queue, const struct unit *unit,
                          enum vw_port_result result)
{
    struct merge_queue *merge = merge_queue(queue);

    if (vw_unlikely(result == VW_PORT_REFUSED))
        resend(queue, unit->frames);
    else
        finish(merge, unit->frames, result);
    merge->kept_done += unit->frames;
    merge->pool_done = unit->pool_end;
    merge->slots_done++;
}

/*
 * A merged frame was refused. All that is under way is brought to its end, and then its frames go
 * out, before anybody hears of the results.
 */
static void settle(struct vw_port_queue *queue)
{
    struct merge_queue *merge = merge_queue(queue);
    const struct vw_port_ops *below = queue->port->merge->below;
    enum vw_port_result results[FRAMES];
    uint32_t count = 1, more, at = 0;

    results[0] = VW_PORT_REFUSED;
    below->drain(queue);
    while ((more = below->complete(queue, results + count, FRAMES - count)) > 0)
        count += more;
    for (; merge->units_done != merge->units_added; merge->units_done++) {
        const struct unit *unit = &merge->units[merge->units_done % FRAMES];

        if (unit->merged)
            finish_merged(queue, unit, at < count ? results[at++] : VW_PORT_FAILED);
        for (uint32_t i = 0; !unit->merged && i < unit->frames; i++)
            finish(merge, 1, at < count ? results[at++] : VW_PORT_FAILED);
    }
}

/* The unit at the head is a merged frame: takes its result. False if there is none yet. */
static bool take_merged(struct vw_port_queue *queue)
{
    struct merge_queue *merge = merge_queue(queue);
    enum vw_port_result result;

    if (queue->port->merge->below->complete(queue, &result, 1) == 0)
        return false;
    if (vw_unlikely(result == VW_PORT_REFUSED)) {
        settle(queue);
        return true;
    }
    finish_merged(queue, &merge->units[merge->units_done % FRAMES], result);
    merge->units_done++;
    return true;
}

/* The unit at the head is a run of single frames: their results are the device's. */
static uint32_t take_singles(struct vw_port_queue *queue, enum vw_port_result *results,
                             uint32_t max)
{
    struct merge_queue *merge = merge_queue(queue);
    struct unit *unit = &merge->units[merge->units_done % FRAMES];
    uint32_t count =
        queue->port->merge->below->complete(queue, results, (uint32_t)vw_min64(max, unit->frames));

    unit->frames -= count;
    if (unit->frames == 0)
        merge->units_done++;
    return count;
}

static uint32_t merge_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                               uint32_t max)
{
    struct merge_queue *merge = merge_queue(queue);
    uint32_t count = 0;

    while (count < max) {
        if (merge->finished_taken != merge->finished_added) {
            results[count++] =
                (enum vw_port_result)merge->finished[merge->finished_taken++ % FRAMES];
        } else if (merge->units_done == merge->units_added) {
            break;
        } else if (merge->units[merge->units_done % FRAMES].merged) {
            if (!take_merged(queue))
                break;
        } else {
            uint32_t more = take_singles(queue, results + count, max - count);

            if (more == 0)
                break;
            count += more;
        }
    }
    merge->under_way -= count;
    return count;
}

/* A refused frame would start anew what is to be under way no more: it is found here. */
static void merge_drain(struct vw_port_queue *queue)
{
    struct merge_queue *merge = merge_queue(queue);
    const struct vw_port_ops *below = queue->port->merge->below;

    below->drain(queue);
    while (merge->units_done != merge->units_added) {
        struct unit *unit = &merge->units[merge->units_done % FRAMES];
        enum vw_port_result result;

        if (unit->merged) {
            if (!take_merged(queue))
                break;
        } else if (take_singles(queue, &result, 1) == 1) {
            finish(merge, 1, result);
        } else {
            break;
        }
    }
}

/* ---- set-up -----------------------------------------------------------------------------------
 */

static void merge_free(struct vw_port *port)
{
    for (unsigned i = 0; i < port->merge->queue_count; i++)
        free(port->merge->queues[i]);
    free(port->merge);
    port->merge = NULL;
}

static void merge_close(struct vw_port *port)
{
    port->ops = port->merge->below;
    merge_free(port);
    port->ops->close(port);
}

int vw_port_merge(struct vw_port *port, enum vw_port_coalesce coalesce)
{
    uint64_t segmentation = vw_bit(VIRTIO_NET_F_HOST_TSO4) | vw_bit(VIRTIO_NET_F_HOST_TSO6) |
                            vw_bit(VIRTIO_NET_F_HOST_USO);

    if (coalesce == VW_PORT_COALESCE_OFF || (port->features & segmentation) == 0)
        return 0;
    struct vw_port_merge *merge = vw_port_allocate(sizeof(*merge));
    if (merge == NULL)
        return -ENOMEM;
    port->merge = merge;
    for (; merge->queue_count < port->queue_count; merge->queue_count++) {
        struct merge_queue *queue = vw_port_allocate(sizeof(*queue));

        if (queue == NULL) {
            merge_free(port);
            return -ENOMEM;
        }
        queue->coalesce = coalesce;
        merge->queues[merge->queue_count] = queue;
    }
    merge->below = port->ops;
    merge->ops = *port->ops;
    merge->ops.close = merge_close;
    merge->ops.transmit = merge_transmit;
    merge->ops.complete = merge_complete;
    merge->ops.drain = merge_drain;
    port->ops = &merge->ops;
    return 0;
}
