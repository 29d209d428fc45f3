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

/* Writes the next available descriptor. The first unpublished one keeps its flags until publish. */
static VW_ALWAYS_INLINE void put_descriptor(struct vw_driver_ring *ring, uint64_t address,
                                            uint32_t length, uint16_t id, uint16_t flags,
                                            bool first)
{
    struct vring_packed_desc *descriptor = descriptor_at(ring, ring->next_available);

    flags |= vw_packed_available_bits(ring->available_wrap);
    if (first) {
        vw_alias64 *word = (void *)descriptor;

        vw_shared_store(word, htole64(address));
        vw_store_le32(&descriptor->len, length);
        vw_store_le16(&descriptor->id, id);
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

/* Is the next used descriptor there? */
static VW_ALWAYS_INLINE bool next_is_used(const struct vw_driver_ring *ring)
{
    uint16_t flags = vw_acquire_le16(&descriptor_at(ring, ring->next_used)->flags); /* [used] */

    return vw_packed_is_used(flags, ring->used_wrap);
}

/* The next used descriptor, copied. Without WRITE its length means nothing (2.8.6). */
static VW_ALWAYS_INLINE void read_used(const struct vw_driver_ring *ring, uint16_t *id,
                                       uint32_t *length)
{
    struct vw_descriptor used = vw_descriptor_copy(descriptor_at(ring, ring->next_used), true);

    *id = used.other;
    *length = used.flags & VRING_DESC_F_WRITE ? used.length : 0;
}

static VW_ALWAYS_INLINE bool take_one(struct vw_driver_ring *ring, struct vw_completion *completion)
{
    uint32_t length;
    uint16_t id;

    if (!next_is_used(ring))
        return false;
    read_used(ring, &id, &length);
    if (!vw_used_valid(ring, id, length))
        return false;
    uint16_t slots = vw_used_complete(ring, completion, id, length);
    ring->entries[id].next = ring->free_head;
    ring->free_head = id;
    vw_packed_advance(&ring->next_used, &ring->used_wrap, slots, ring->config.size);
    return true;
}

/* A used descriptor names the last buffer of its batch, and stands at the first one's head. */
static VW_ALWAYS_INLINE bool take_one_in_order(struct vw_driver_ring *ring,
                                               struct vw_completion *completion)
{
    if (ring->batch_left == 0) {
        uint32_t length;
        uint16_t id;

        if (!next_is_used(ring))
            return false;
        read_used(ring, &id, &length);
        if (!vw_used_batch(ring, id, length, (uint16_t)(ring->published - ring->reaped)))
            return false;
    }
    uint32_t length = vw_used_batch_length(ring);
    uint16_t slots = vw_used_complete(ring, completion, ring->oldest, length);
    vw_packed_advance(&ring->next_used, &ring->used_wrap, slots, ring->config.size);
    ring->oldest = ring->next_used;
    return true;
}

static VW_ALWAYS_INLINE uint32_t reap_body(struct vw_driver_ring *ring,
                                           struct vw_completion *completions, uint32_t max,
                                           bool in_order)
{
    uint32_t done = 0;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    while (done < max && (in_order ? take_one_in_order(ring, &completions[done])
                                   : take_one(ring, &completions[done])))
        done++;
    return done;
}

static uint32_t packed_reap(struct vw_driver_ring *ring, struct vw_completion *completions,
                            uint32_t max)
{
    return reap_body(ring, completions, max, false);
}

static uint32_t packed_reap_in_order(struct vw_driver_ring *ring, struct vw_completion *completions,
                                     uint32_t max)
{
    return reap_body(ring, completions, max, true);
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

#define OPS(add_function, urgent_function, reap_function)                                          \
    {                                                                                              \
        .add = add_function, .add_urgent = urgent_function, .publish = packed_publish,             \
        .reap = reap_function, .disable_calls = packed_disable_calls,                              \
        .enable_calls_prepare = packed_enable_calls_prepare, .poll = packed_poll,                  \
        .enable_calls_delayed = packed_enable_calls_delayed,                                       \
    }

/* As in the device half, only IN_ORDER is worth two bodies. */
const struct vw_driver_ring_ops *vw_packed_driver_ops(bool in_order, bool event_index)
{
    static const struct vw_driver_ring_ops ops[2] = {
        OPS(packed_add, packed_add_urgent, packed_reap),
        OPS(packed_add_in_order, packed_add_urgent_in_order, packed_reap_in_order)};

    (void)event_index;
    return &ops[in_order];
}
