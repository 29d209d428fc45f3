/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive buffers: where their memory comes from, and how they get into the ring.
 *
 * Theory of operation
 * -------------------
 * A queue has twice as many buffer records as ring entries: one set is posted while the other may
 * be with the caller. Records hang in a list, newest first, since what was given back last is still
 * in the cache. Each buffer owns its memory, taken when first needed and again when the shape grew,
 * or the average frame did: a frame that is held for long keeps its own buffers, and nothing else,
 * out of use.
 *
 * Posting is done in bulk, with one publication and one kick at most: when many entries are free;
 * or, as soon as nothing more was found, all of them. The device may need more buffers for one
 * frame than are posted, so none may stay unposted while both sides wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "net/features.h"

/* Ring entries that may be free while frames still come: as Linux has it for a budget of 64. */
static unsigned refill_threshold(const struct vw_rx *rx)
{
    return (rx->queue.size < 64 ? rx->queue.size : 64) / 2;
}

/* ---- shape ---- */

int vw_rx_shape_of(const struct vw_net *net, struct vw_rx_shape *shape)
{
    const struct vw_rx_situation situation = {.features = net->features,
                                              .guest_offloads = net->guest_offloads,
                                              .wanted = net->rx_mode,
                                              .big = net->options.rx_big,
                                              .mtu = net->mtu,
                                              .ring_size = net->options.rx_ring_size,
                                              .header_size = net->header_size};

    return vw_rx_shape_choose(&situation, shape);
}

/* Segments of a big buffer's chain, which an indirect table must take. */
#define TABLE_SEGMENTS 20u
_Static_assert(TABLE_SEGMENTS >= VW_BIG_MAX_PAGES + 2, "a table takes any buffer");

/*
 * On a packed ring with indirect descriptors a big buffer is one direct descriptor instead: it
 * takes one ring entry either way, its pages follow one another, and DPDK 22.11 (the batch path of
 * its receive) takes an indirect table for the buffer itself and writes the frame there.
 */
static bool is_flat(const struct vw_net *net)
{
    return vw_has(net->features, VIRTIO_F_RING_PACKED) &&
           vw_has(net->features, VIRTIO_RING_F_INDIRECT_DESC);
}

static unsigned table_segments(const struct vw_net *net, const struct vw_rx_shape *shape)
{
    return shape->mode == VW_RX_BIG && !is_flat(net) ? TABLE_SEGMENTS : 0;
}

uint64_t vw_rx_bytes(const struct vw_net *net)
{
    unsigned size = net->options.rx_ring_size;
    struct vw_rx_shape shape;

    if (vw_rx_shape_of(net, &shape) != 0)
        return 0; /* told by vw_rx_create */
    uint64_t ring = vw_driver_queue_bytes(net, size, table_segments(net, &shape));
    uint64_t each = vw_rx_shape_memory(&shape, shape.bytes);
    if (shape.mode == VW_RX_MERGEABLE) /* both sizes: holes that the usual one left may be in use */
        each += vw_rx_shape_memory(&shape, 0);
    if (shape.mode == VW_RX_BIG && !vw_has(net->features, VIRTIO_RING_F_INDIRECT_DESC))
        size = size / shape.descriptors + 1;
    return ring + 2 * (uint64_t)size * (each + VW_CACHE_LINE);
}

/* ---- life ---- */

static int refuse_shape(struct vw_net *net)
{
    if (net->options.rx_mode == VW_RX_MERGEABLE)
        return vw_driver_fail(net, -ENOTSUP, "the device has no mergeable receive buffers");
    return vw_driver_fail(net, -EINVAL,
                          "receive buffers of this mode take no frames of MTU %u on a ring of %u; "
                          "choose another rx_mode or a larger rx_ring_size",
                          net->mtu, net->options.rx_ring_size);
}

int vw_rx_create(struct vw_driver_pair *pair)
{
    struct vw_net *net = pair->net;
    struct vw_rx *rx = &pair->rx;
    unsigned size = net->options.rx_ring_size;

    if (vw_rx_shape_of(net, &rx->shape) != 0)
        return refuse_shape(net);
    int error = vw_driver_queue_create(net, &rx->queue, 2 * pair->index, size,
                                       table_segments(net, &rx->shape));
    if (error != 0)
        return error;
    rx->flat = is_flat(net);
    rx->buffer_count = 2 * size;
    rx->buffers = aligned_alloc(VW_CACHE_LINE, rx->buffer_count * sizeof(*rx->buffers));
    if (rx->buffers)
        memset(rx->buffers, 0, rx->buffer_count * sizeof(*rx->buffers));
    rx->done_capacity = size + VW_RX_BATCH;
    rx->done = calloc(rx->done_capacity, sizeof(*rx->done));
    if (!rx->buffers || !rx->done)
        return vw_driver_fail(net, -ENOMEM, "no memory for receive buffers");
    for (unsigned i = rx->buffer_count; i-- > 0;)
        vw_rx_put_back(rx, &rx->buffers[i]);
    return 0;
}

void vw_rx_destroy(struct vw_driver_pair *pair)
{
    struct vw_shared *shared = &pair->net->shared;
    struct vw_rx *rx = &pair->rx;

    vw_driver_queue_destroy(&rx->queue);
    for (unsigned i = 0; rx->buffers && i < rx->buffer_count; i++)
        if (rx->buffers[i].capacity > 0)
            vw_shared_free(shared, rx->buffers[i].memory);
    free(rx->buffers);
    free(rx->done);
}

/* ---- memory ---- */

/* Ring entries that a buffer of the present shape takes. */
unsigned vw_rx_entries(const struct vw_rx *rx)
{
    return rx->queue.segments || rx->flat ? 1 : rx->shape.descriptors;
}

static bool grow(struct vw_shared *shared, struct vw_rx *rx, struct vw_rx_buffer *buffer,
                 uint32_t bytes)
{
    uint32_t needed = vw_rx_shape_memory(&rx->shape, bytes);

    if (buffer->capacity > 0)
        vw_shared_free(shared, buffer->memory);
    buffer->memory = vw_shared_alloc(shared, needed);
    buffer->capacity = buffer->memory ? needed : 0;
    return buffer->memory != NULL;
}

/* Bytes of the next buffers. */
static uint32_t bytes_of(const struct vw_rx *rx)
{
    return rx->shape.mode == VW_RX_MERGEABLE ? vw_rx_mergeable_bytes(&rx->shape, &rx->average)
                                             : rx->shape.bytes;
}

/* Gives a free buffer `bytes` of memory, and the present shape. */
static VW_ALWAYS_INLINE bool equip(struct vw_driver_pair *pair, struct vw_rx_buffer *buffer,
                                   uint32_t bytes)
{
    struct vw_rx *rx = &pair->rx;

    /* A big buffer's memory is its pages, a little more than its bytes. */
    if (vw_unlikely(buffer->capacity < bytes) && !grow(&pair->net->shared, rx, buffer, bytes))
        return false;
    buffer->size = bytes;
    buffer->pages = rx->flat ? 0 : rx->shape.pages;
    return true;
}

/* Is there memory for as many buffers of the present shape as the ring takes, or for one at least?
 * Less than a full ring is told. */
bool vw_rx_has_memory(struct vw_driver_pair *pair)
{
    struct vw_rx *rx = &pair->rx;
    unsigned wanted = rx->queue.size / vw_rx_entries(rx), count = 0;

    vw_pair_lock(pair);
    for (struct vw_rx_buffer *buffer = rx->free; buffer && count < wanted; buffer = buffer->next) {
        if (!equip(pair, buffer, bytes_of(rx)))
            break;
        count++;
    }
    if (count < wanted && rx->free_count > count)
        vw_log(&pair->net->log, VW_LOG_WARNING,
               "queue %u: memory for %u receive buffers instead of %u", rx->queue.index, count,
               wanted);
    bool some = count > 0 || !rx->free;
    vw_pair_unlock(pair);
    return some;
}

/* ---- posting ---- */

/* Header; the rest of its page; whole pages, the last ones in one segment if the ring is short.
 * Returns the number of segments. */
static unsigned big_segments(const struct vw_rx *rx, const struct vw_rx_buffer *buffer,
                             struct vw_segment *segments)
{
    uint64_t start = (uintptr_t)buffer->memory;
    unsigned count = 0;

    segments[count++] = (struct vw_segment){start, rx->shape.header_size};
    segments[count++] =
        (struct vw_segment){start + VW_BIG_HEADER_ROOM, VW_PAGE - VW_BIG_HEADER_ROOM};
    for (unsigned page = 1; page <= buffer->pages; page++) {
        bool last = count + 1 == rx->shape.descriptors;
        unsigned pages = last ? buffer->pages + 1 - page : 1;

        segments[count++] = (struct vw_segment){start + (uint64_t)page * VW_PAGE, pages * VW_PAGE};
        if (last)
            break;
    }
    return count;
}

/* Takes a free buffer out of the list, with memory. NULL: there is none. */
static VW_ALWAYS_INLINE struct vw_rx_buffer *take_free(struct vw_driver_pair *pair, uint32_t bytes)
{
    struct vw_rx *rx = &pair->rx;
    struct vw_rx_buffer *buffer = rx->free;

    if (vw_unlikely(!buffer || !equip(pair, buffer, bytes)))
        return NULL;
    rx->free = buffer->next;
    rx->free_count--;
    buffer->next = NULL;
    return buffer;
}

/* Posts buffers of several pieces, while there is room. */
static unsigned post_chains(struct vw_driver_pair *pair)
{
    struct vw_rx *rx = &pair->rx;
    struct vw_segment segments[VW_BIG_MAX_PAGES + 2];
    unsigned entries = vw_rx_entries(rx), count = 0;
    struct vw_rx_buffer *buffer;

    while (rx->queue.ring.free >= entries && (buffer = take_free(pair, bytes_of(rx))) != NULL) {
        unsigned pieces = big_segments(rx, buffer, segments);

        if (vw_driver_ring_add(&rx->queue.ring, segments, 0, pieces, buffer) != 0) {
            vw_rx_put_back(rx, buffer); /* only a broken ring refuses here */
            break;
        }
        count++;
    }
    return count;
}

/* Buffers that go into the ring together. */
#define POST_BATCH 64

/* Posts buffers of one piece. Fewer than POST_BATCH: no more have room, or are there. */
static unsigned post_batch(struct vw_driver_pair *pair)
{
    struct vw_plain_buffer batch[POST_BATCH];
    struct vw_rx *rx = &pair->rx;
    struct vw_rx_buffer *buffer;
    uint32_t bytes = bytes_of(rx), count = 0, room = rx->queue.ring.free;

    if (room > POST_BATCH)
        room = POST_BATCH;
    while (count < room && (buffer = take_free(pair, bytes)) != NULL)
        batch[count++] =
            (struct vw_plain_buffer){{(uintptr_t)buffer->memory, buffer->size}, buffer};
    uint32_t added = vw_driver_ring_add_writable(&rx->queue.ring, batch, count);
    while (vw_unlikely(count > added)) /* only a broken ring refuses here */
        vw_rx_put_back(rx, batch[--count].token);
    return added;
}

static unsigned post_all(struct vw_driver_pair *pair)
{
    unsigned count = 0, posted;

    if (pair->rx.shape.pages > 0 && !pair->rx.flat)
        return post_chains(pair);
    do
        count += posted = post_batch(pair);
    while (posted == POST_BATCH);
    return count;
}

unsigned vw_rx_refill(struct vw_driver_pair *pair, bool all)
{
    struct vw_rx *rx = &pair->rx;
    unsigned count;

    if (!all && rx->queue.ring.free <= refill_threshold(rx))
        return 0;
    count = post_all(pair);
    if (count == 0)
        return 0;
    rx->posted += count;
    vw_driver_queue_publish(&rx->queue, &rx->counters.kicks);
    vw_counter_add(&rx->counters.refills, 1);
    return count;
}

/* ---- set-up, and the end ---- */

void vw_rx_begin(struct vw_driver_pair *pair)
{
    struct vw_rx *rx = &pair->rx;

    /* The rules of sent headers hold for received ones. What was negotiated, not what is in force:
     * frames may be under way when that is narrowed. */
    rx->check_features = vw_features_host_of(pair->net->features);
    rx->armed = true;
    vw_rx_disarm(rx);
    rx->idle = true;
}

void vw_rx_reset(struct vw_driver_pair *pair)
{
    struct vw_rx *rx = &pair->rx;
    struct vw_rx_buffer *buffer;

    while ((buffer = vw_driver_ring_detach(&rx->queue.ring)) != NULL)
        vw_rx_put_back(rx, buffer);
    rx->posted = 0;
}
