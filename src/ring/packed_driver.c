/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver half of a packed ring (virtio 1.x, section 2.8).
 *
 * Theory of operation
 * -------------------
 * Descriptors are written at the next available position, whichever buffers are still in flight;
 * what a used descriptor says is the buffer's id, by which the private record tells how many ring
 * entries it had. Ids come from a private list of free ones; with IN_ORDER the id of a buffer is
 * the position of its head, so that ids are as much in order as the buffers.
 *
 * The device looks only at the next head that it expects. So all descriptors of everything added
 * since the last publish are written at leisure except the flags of the very first one, which
 * publish stores last: the device sees nothing, or all of it (2.8.21).
 *
 * Barriers, by name:
 *   [available]  we release the first head's flags; the device acquires them, and then reads
 *   [used]       the device releases a used descriptor's flags; we acquire them in reap, and then
 *                read its id and length, and the payload
 *   [kick]       full: flags stored, then the device's event structure read. Pairs with the
 *                device's full barrier between arming kicks and looking at the next descriptor
 *   [call]       full: our event structure stored, then the next descriptor's flags read. Pairs
 *                with the device's full barrier between storing used flags and deciding
 */
#include "ring/formats.h"
#include "ring/notify.h"
#include "ring/offer.h"

static VW_ALWAYS_INLINE struct vring_packed_desc *descriptor_at(const struct vw_driver_ring *ring,
                                                                uint32_t position)
{
    struct vring_packed_desc *descriptors = ring->config.descriptor_area;

    return &descriptors[position];
}

/* All of a descriptor but its flags. */
static VW_ALWAYS_INLINE void store_hidden(struct vring_packed_desc *descriptor, uint64_t address,
                                          uint32_t length, uint16_t id)
{
    vw_alias64 *word = (void *)descriptor;

    vw_shared_store(word, htole64(address));
    vw_store_le32(&descriptor->len, length);
    vw_store_le16(&descriptor->id, id);
}

/* Writes the next available descriptor. The first unpublished one keeps its flags until publish. */
static VW_ALWAYS_INLINE void put_descriptor(struct vw_driver_ring *ring, uint64_t address,
                                            uint32_t length, uint16_t id, uint16_t flags,
                                            bool first)
{
    struct vring_packed_desc *descriptor = descriptor_at(ring, ring->next_available);

    flags |= vw_packed_available_bits(ring->available_wrap);
    if (first) {
        store_hidden(descriptor, address, length, id);
        ring->head_position = ring->next_available;
        ring->head_flags = flags;
    } else {
        vw_descriptor_store(descriptor, address, length, id, flags);
    }
    vw_packed_advance(&ring->next_available, &ring->available_wrap, 1, ring->config.size);
}

static VW_ALWAYS_INLINE uint16_t take_id(struct vw_driver_ring *ring, bool in_order)
{
    uint16_t id = ring->free_head;

    if (in_order)
        return ring->next_available;
    ring->free_head = ring->entries[id].next;
    return id;
}

static VW_ALWAYS_INLINE int add_body(struct vw_driver_ring *ring, const struct vw_segment *segments,
                                     uint32_t readable, uint32_t writable, void *token,
                                     uint16_t mark, bool in_order)
{
    bool first = ring->unpublished == 0;
    struct vw_offer offer;

    int result = vw_offer_prepare(&offer, ring, segments, readable, writable);
    if (vw_unlikely(result != 0))
        return result;
    uint16_t id = take_id(ring, in_order);
    if (offer.indirect) {
        put_descriptor(ring, vw_offer_fill_table(ring, &offer, id, true),
                       offer.count * VW_DESCRIPTOR_SIZE, id,
                       (uint16_t)(VRING_DESC_F_INDIRECT | mark), first);
    } else {
        /* Only the last descriptor needs the id (2.8.6); all of them is simpler. */
        for (uint32_t i = 0; i < offer.count; i++)
            put_descriptor(ring, segments[i].address, segments[i].length, id,
                           (uint16_t)(vw_offer_flags(&offer, i) | (i == 0 ? mark : 0)),
                           first && i == 0);
    }
    vw_offer_record(ring, &offer, id, token, in_order);
    return 0;
}

static int packed_add(struct vw_driver_ring *ring, const struct vw_segment *segments,
                      uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, 0, false);
}

static int packed_add_urgent(struct vw_driver_ring *ring, const struct vw_segment *segments,
                             uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, VW_DESCRIPTOR_F_URGENT, false);
}

static int packed_add_in_order(struct vw_driver_ring *ring, const struct vw_segment *segments,
                               uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, 0, true);
}

static int packed_add_urgent_in_order(struct vw_driver_ring *ring,
                                      const struct vw_segment *segments, uint32_t readable,
                                      uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, VW_DESCRIPTOR_F_URGENT, true);
}

static VW_ALWAYS_INLINE uint16_t put_plain(struct vw_plain_burst *burst,
                                           const struct vw_segment *segment, uint16_t flags,
                                           bool hidden, bool in_order)
{
    struct vring_packed_desc *descriptor =
        &((struct vring_packed_desc *)burst->descriptors)[burst->position];
    uint16_t id = in_order ? burst->position : burst->free_head;

    if (!in_order)
        burst->free_head = burst->entries[id].next;
    if (vw_unlikely(hidden))
        store_hidden(descriptor, segment->address, segment->length, id);
    else
        vw_descriptor_store(descriptor, segment->address, segment->length, id,
                            flags | vw_packed_available_bits(burst->wrap));
    vw_packed_advance(&burst->position, &burst->wrap, 1, burst->size);
    return id;
}

static VW_ALWAYS_INLINE uint16_t put_listed(struct vw_plain_burst *burst,
                                            const struct vw_segment *segment, uint16_t flags,
                                            bool hidden)
{
    return put_plain(burst, segment, flags, hidden, false);
}

static VW_ALWAYS_INLINE uint16_t put_in_order(struct vw_plain_burst *burst,
                                              const struct vw_segment *segment, uint16_t flags,
                                              bool hidden)
{
    return put_plain(burst, segment, flags, hidden, true);
}

static VW_ALWAYS_INLINE uint32_t add_plain_body(struct vw_driver_ring *ring,
                                                const struct vw_plain_buffer *buffers,
                                                uint32_t count, bool writable, bool in_order)
{
    struct vw_plain_burst burst = {.entries = ring->entries,
                                   .descriptors = ring->config.descriptor_area,
                                   .size = ring->config.size,
                                   .position = ring->next_available,
                                   .free_head = ring->free_head,
                                   .wrap = ring->available_wrap};
    bool hidden = ring->unpublished == 0;

    if (count > ring->free)
        count = ring->free;
    if (vw_unlikely(count == 0 || ring->error != VW_RING_OK))
        return 0;
    if (hidden) {
        ring->head_position = burst.position;
        ring->head_flags =
            (writable ? VRING_DESC_F_WRITE : 0) | vw_packed_available_bits(burst.wrap);
    }
    vw_prefetch_descriptors(burst.descriptors, burst.position, count, burst.size);
    vw_offer_plain(ring, &burst, buffers, count, writable, hidden, in_order,
                   in_order ? put_in_order : put_listed);
    ring->next_available = burst.position;
    ring->available_wrap = burst.wrap;
    return count;
}

static uint32_t packed_add_readable(struct vw_driver_ring *ring,
                                    const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, false, false);
}

static uint32_t packed_add_writable(struct vw_driver_ring *ring,
                                    const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, true, false);
}

static uint32_t packed_add_readable_in_order(struct vw_driver_ring *ring,
                                             const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, false, true);
}

static uint32_t packed_add_writable_in_order(struct vw_driver_ring *ring,
                                             const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, true, true);
}

static bool packed_publish(struct vw_driver_ring *ring)
{
    uint32_t slots = ring->unpublished;

    if (slots == 0 || ring->error != VW_RING_OK)
        return false;
    vw_release_le16(&descriptor_at(ring, ring->head_position)->flags,
                    ring->head_flags); /* [available] */
    ring->published = ring->added;
    ring->published_slots += slots;
    ring->unpublished = 0;
    vw_full_barrier(); /* [kick] */
    return vw_packed_need_event(ring->config.device_area, ring->config.size, ring->next_available,
                                ring->available_wrap, slots, ring->event_index);
}

/* The next used descriptor, if it is there. Without WRITE its length means nothing (2.8.6). */
static VW_ALWAYS_INLINE bool read_used(const struct vring_packed_desc *descriptor, bool wrap,
                                       uint16_t *id, uint32_t *length)
{
    struct vw_descriptor used = vw_descriptor_acquire(descriptor); /* [used] */

    *id = used.other;
    *length = used.flags & VRING_DESC_F_WRITE ? used.length : 0;
    return vw_packed_is_used(used.flags, wrap);
}

static uint32_t packed_reap(struct vw_driver_ring *ring, struct vw_completion *completions,
                            uint32_t max)
{
    struct vw_reaping reaping = vw_reaping_begin(ring);
    uint16_t next = ring->next_used;
    bool wrap = ring->used_wrap;
    uint32_t done;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    for (done = 0; done < max; done++) {
        uint32_t length;
        uint16_t id;

        if (!read_used(descriptor_at(ring, next), wrap, &id, &length) ||
            !vw_used_valid(ring, &reaping, id, length))
            break;
        /* A chain has many ring entries, but one id. */
        vw_entries_free(&reaping, id, id, (uint16_t)(ring->added - reaping.reaped) < reaping.size);
        uint16_t slots = vw_used_complete(&reaping, &completions[done], id, length);
        vw_packed_advance(&next, &wrap, slots, reaping.size);
    }
    vw_reaping_end(ring, &reaping);
    ring->next_used = next;
    ring->used_wrap = wrap;
    return done;
}

/* A used descriptor names the last buffer of its batch, and stands at the first one's head. */
static uint32_t packed_reap_in_order(struct vw_driver_ring *ring, struct vw_completion *completions,
                                     uint32_t max)
{
    struct vw_reaping reaping = vw_reaping_begin(ring);
    bool wrap = ring->used_wrap;
    uint32_t done;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    for (done = 0; done < max; done++) {
        if (reaping.batch_left == 0) {
            uint32_t length;
            uint16_t id;

            if (!read_used(descriptor_at(ring, reaping.oldest), wrap, &id, &length) ||
                !vw_used_batch(ring, &reaping, id, length,
                               (uint16_t)(ring->published - reaping.reaped)))
                break;
        }
        uint32_t length = vw_used_batch_length(&reaping);
        uint16_t slots = vw_used_complete(&reaping, &completions[done], reaping.oldest, length);
        vw_packed_advance(&reaping.oldest, &wrap, slots, reaping.size);
    }
    vw_reaping_end(ring, &reaping);
    ring->next_used = reaping.oldest;
    ring->used_wrap = wrap;
    return done;
}

static void packed_disable_calls(struct vw_driver_ring *ring)
{
    if (!ring->calls_enabled || ring->error != VW_RING_OK)
        return;
    ring->calls_enabled = false;
    vw_packed_event_store(ring->config.driver_area, 0, VRING_PACKED_EVENT_FLAG_DISABLE);
}

/* Asks for a call when the device has used the descriptor `wait` entries on. */
static void arm_calls(struct vw_driver_ring *ring, uint32_t wait)
{
    uint16_t position = ring->next_used;
    bool wrap = ring->used_wrap;

    vw_packed_advance(&position, &wrap, wait, ring->config.size);
    if (ring->event_index)
        vw_packed_event_store(ring->config.driver_area, vw_packed_encode(position, wrap),
                              VRING_PACKED_EVENT_FLAG_DESC);
    else if (!ring->calls_enabled)
        vw_packed_event_store(ring->config.driver_area, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    ring->calls_enabled = true;
}

static uint32_t packed_enable_calls_prepare(struct vw_driver_ring *ring)
{
    if (ring->error == VW_RING_OK)
        arm_calls(ring, 0);
    return vw_packed_encode(ring->next_used, ring->used_wrap);
}

/* What is left of a batch has no used descriptors of its own, but it is there to be reaped. */
static bool packed_poll(struct vw_driver_ring *ring, uint32_t position)
{
    uint32_t place = position & 0x7fff;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return false;
    if (ring->batch_left > 0)
        return true;
    vw_full_barrier(); /* [call] */
    return place < ring->config.size &&
           vw_packed_is_used(vw_load_le16(&descriptor_at(ring, place)->flags),
                             (position >> 15 & 1) != 0);
}

static bool packed_enable_calls_delayed(struct vw_driver_ring *ring)
{
    if (vw_unlikely(ring->error != VW_RING_OK))
        return true;
    arm_calls(ring, ring->published_slots * 3 / 4);
    return !packed_poll(ring, vw_packed_encode(ring->next_used, ring->used_wrap));
}

#define OPS(suffix)                                                                                \
    {                                                                                              \
        .add = packed_add##suffix, .add_urgent = packed_add_urgent##suffix,                        \
        .add_readable = packed_add_readable##suffix, .add_writable = packed_add_writable##suffix,  \
        .publish = packed_publish, .reap = packed_reap##suffix,                                    \
        .disable_calls = packed_disable_calls,                                                     \
        .enable_calls_prepare = packed_enable_calls_prepare, .poll = packed_poll,                  \
        .enable_calls_delayed = packed_enable_calls_delayed,                                       \
    }

/* As in the device half, only IN_ORDER is worth two bodies. */
const struct vw_driver_ring_ops *vw_packed_driver_ops(bool in_order, bool event_index)
{
    static const struct vw_driver_ring_ops ops[2] = {OPS(), OPS(_in_order)};

    (void)event_index;
    return &ops[in_order];
}
