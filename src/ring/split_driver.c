/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver half of a split ring (virtio 1.x, section 2.7).
 *
 * Theory of operation
 * -------------------
 * We own the descriptor table and the available ring; the device owns the used ring. Free
 * descriptors are linked in private memory, newest first, because a descriptor just freed is still
 * in the cache. With IN_ORDER the table is instead used round and round (2.7.9), so that the
 * oldest buffer, and with it the size of a used batch, follows from our own record.
 *
 * Barriers, by name:
 *   [available]  we release available.idx in publish; the device acquires it, and then reads ring
 *                slots, descriptors and payload
 *   [used]       the device releases used.idx; we acquire it in reap, and then read used entries
 *                and payload
 *   [kick]       full: available.idx stored, then the device's event word or flags read. Pairs
 *                with the device's full barrier between arming kicks and looking at available.idx
 *   [call]       full: our event word or flags stored, then used.idx read. Pairs with the device's
 *                full barrier between storing used.idx and deciding about a call
 */
#include "ring/formats.h"
#include "ring/notify.h"
#include "ring/offer.h"

static VW_ALWAYS_INLINE struct vring_avail *available_ring(const struct vw_driver_ring *ring)
{
    return ring->config.driver_area;
}

static VW_ALWAYS_INLINE struct vring_used *used_ring(const struct vw_driver_ring *ring)
{
    return ring->config.device_area;
}

static VW_ALWAYS_INLINE uint16_t *used_event(const struct vw_driver_ring *ring)
{
    return &available_ring(ring)->ring[ring->config.size];
}

static VW_ALWAYS_INLINE uint16_t *available_event(const struct vw_driver_ring *ring)
{
    return (uint16_t *)(void *)&used_ring(ring)->ring[ring->config.size];
}

/* Fills descriptors from `index` on; returns the first one that is still free. `mark` is a flag for
 * the head. */
static VW_ALWAYS_INLINE uint16_t fill_chain(const struct vw_driver_ring *ring,
                                            const struct vw_offer *offer, uint16_t index,
                                            uint16_t mark, bool in_order)
{
    struct vring_desc *table = ring->config.descriptor_area;
    uint32_t mask = ring->config.size - 1;

    for (uint32_t i = 0; i < offer->count; i++) {
        uint16_t next = in_order ? (uint16_t)((index + 1) & mask) : ring->entries[index].next;

        vw_descriptor_store(&table[index], offer->segments[i].address, offer->segments[i].length,
                            (uint16_t)(vw_offer_flags(offer, i) | (i == 0 ? mark : 0)), next);
        index = next;
    }
    return index;
}

/* One descriptor that refers to the table. */
static VW_ALWAYS_INLINE uint16_t fill_indirect(const struct vw_driver_ring *ring,
                                               const struct vw_offer *offer, uint16_t index,
                                               uint16_t mark, bool in_order)
{
    struct vring_desc *table = ring->config.descriptor_area;

    vw_descriptor_store(&table[index], vw_offer_fill_table(ring, offer, index, false),
                        offer->count * VW_DESCRIPTOR_SIZE, (uint16_t)(VRING_DESC_F_INDIRECT | mark),
                        0);
    return in_order ? (uint16_t)((index + 1u) & (ring->config.size - 1))
                    : ring->entries[index].next;
}

static VW_ALWAYS_INLINE int add_body(struct vw_driver_ring *ring, const struct vw_segment *segments,
                                     uint32_t readable, uint32_t writable, void *token,
                                     uint16_t mark, bool in_order)
{
    uint16_t head = ring->free_head;
    struct vw_offer offer;

    int result = vw_offer_prepare(&offer, ring, segments, readable, writable);
    if (vw_unlikely(result != 0))
        return result;
    ring->free_head = offer.indirect ? fill_indirect(ring, &offer, head, mark, in_order)
                                     : fill_chain(ring, &offer, head, mark, in_order);
    vw_store_le16(&available_ring(ring)->ring[ring->added & (ring->config.size - 1)], head);
    vw_offer_record(ring, &offer, head, token, in_order);
    return 0;
}

static int split_add(struct vw_driver_ring *ring, const struct vw_segment *segments,
                     uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, 0, false);
}

static int split_add_urgent(struct vw_driver_ring *ring, const struct vw_segment *segments,
                            uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, VW_DESCRIPTOR_F_URGENT, false);
}

static int split_add_in_order(struct vw_driver_ring *ring, const struct vw_segment *segments,
                              uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, 0, true);
}

static int split_add_urgent_in_order(struct vw_driver_ring *ring, const struct vw_segment *segments,
                                     uint32_t readable, uint32_t writable, void *token)
{
    return add_body(ring, segments, readable, writable, token, VW_DESCRIPTOR_F_URGENT, true);
}

static VW_ALWAYS_INLINE bool publish_body(struct vw_driver_ring *ring, bool event_index)
{
    uint16_t old = ring->published, new = ring->added;

    if (new == old || ring->error != VW_RING_OK)
        return false;
    vw_release_le16(&available_ring(ring)->idx, new); /* [available] */
    ring->published = new;
    ring->published_slots += ring->unpublished;
    ring->unpublished = 0;
    vw_full_barrier(); /* [kick] */
    if (event_index)
        return vw_need_event(vw_load_le16(available_event(ring)), new, old);
    return !(vw_load_le16(&used_ring(ring)->flags) & VRING_USED_F_NO_NOTIFY);
}

static bool split_publish(struct vw_driver_ring *ring)
{
    return publish_body(ring, false);
}

static bool split_publish_event(struct vw_driver_ring *ring)
{
    return publish_body(ring, true);
}

/*
 * Is there a used buffer to take? Reads the used index when the one read before is used up.
 */
static VW_ALWAYS_INLINE bool look_for_used(struct vw_driver_ring *ring)
{
    if (ring->used_seen != ring->reaped)
        return true;
    uint16_t seen = vw_acquire_le16(&used_ring(ring)->idx); /* [used] */
    if (vw_unlikely((uint16_t)(seen - ring->reaped) > (uint16_t)(ring->published - ring->reaped))) {
        ring->error = VW_RING_BAD_USED_INDEX;
        return false;
    }
    ring->used_seen = seen;
    return seen != ring->reaped;
}

/* Puts a chain's descriptors back in front of the free ones. */
static VW_ALWAYS_INLINE void free_chain(struct vw_driver_ring *ring, uint16_t head, uint16_t slots)
{
    uint16_t last = head;

    while (--slots > 0)
        last = ring->entries[last].next;
    ring->entries[last].next = ring->free_head;
    ring->free_head = head;
}

static VW_ALWAYS_INLINE bool take_one(struct vw_driver_ring *ring, struct vw_completion *completion)
{
    const struct vring_used_elem *used =
        &used_ring(ring)->ring[ring->reaped & (ring->config.size - 1)];
    uint32_t id = vw_load_le32(&used->id), length = vw_load_le32(&used->len);

    if (!vw_used_valid(ring, id, length))
        return false;
    uint16_t slots = vw_used_complete(ring, completion, id, length);
    free_chain(ring, (uint16_t)id, slots);
    return true;
}

/* A used entry names the last buffer of its batch, and stands where the first one's would (2.7.9).
 */
static VW_ALWAYS_INLINE bool take_one_in_order(struct vw_driver_ring *ring,
                                               struct vw_completion *completion)
{
    uint32_t mask = ring->config.size - 1;

    if (ring->batch_left == 0) {
        const struct vring_used_elem *used = &used_ring(ring)->ring[ring->reaped & mask];

        if (!vw_used_batch(ring, vw_load_le32(&used->id), vw_load_le32(&used->len),
                           (uint16_t)(ring->used_seen - ring->reaped)))
            return false;
    }
    uint32_t length = vw_used_batch_length(ring);
    uint16_t slots = vw_used_complete(ring, completion, ring->oldest, length);
    ring->oldest = (uint16_t)((ring->oldest + slots) & mask);
    return true;
}

static VW_ALWAYS_INLINE uint32_t reap_body(struct vw_driver_ring *ring,
                                           struct vw_completion *completions, uint32_t max,
                                           bool in_order)
{
    uint32_t done = 0;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    while (done < max && look_for_used(ring)) {
        if (!(in_order ? take_one_in_order(ring, &completions[done])
                       : take_one(ring, &completions[done])))
            break;
        done++;
    }
    return done;
}

static uint32_t split_reap(struct vw_driver_ring *ring, struct vw_completion *completions,
                           uint32_t max)
{
    return reap_body(ring, completions, max, false);
}

static uint32_t split_reap_in_order(struct vw_driver_ring *ring, struct vw_completion *completions,
                                    uint32_t max)
{
    return reap_body(ring, completions, max, true);
}

/*
 * With EVENT_IDX there is no off switch: the flags stay 0 (2.7.7.1), and the event word is put as
 * far behind as the device may be behind us, so that it is passed only after another turn of it.
 */
static void split_disable_calls(struct vw_driver_ring *ring)
{
    if (!ring->calls_enabled || ring->error != VW_RING_OK)
        return;
    ring->calls_enabled = false;
    if (ring->event_index)
        vw_store_le16(used_event(ring), (uint16_t)(ring->reaped - 1 - ring->config.size));
    else
        vw_store_le16(&available_ring(ring)->flags, VRING_AVAIL_F_NO_INTERRUPT);
}

/* Asks for a call when the used index has passed `index`. */
static void arm_calls(struct vw_driver_ring *ring, uint16_t index)
{
    if (ring->event_index)
        vw_store_le16(used_event(ring), index);
    else if (!ring->calls_enabled)
        vw_store_le16(&available_ring(ring)->flags, 0);
    ring->calls_enabled = true;
}

static uint32_t split_enable_calls_prepare(struct vw_driver_ring *ring)
{
    if (ring->error == VW_RING_OK)
        arm_calls(ring, ring->reaped);
    return ring->reaped;
}

static bool split_poll(struct vw_driver_ring *ring, uint32_t position)
{
    if (vw_unlikely(ring->error != VW_RING_OK))
        return false;
    vw_full_barrier(); /* [call] */
    return vw_load_le16(&used_ring(ring)->idx) != (uint16_t)position;
}

static bool split_enable_calls_delayed(struct vw_driver_ring *ring)
{
    uint16_t wait = (uint16_t)((uint16_t)(ring->published - ring->reaped) * 3u / 4);

    if (vw_unlikely(ring->error != VW_RING_OK))
        return true;
    arm_calls(ring, (uint16_t)(ring->reaped + wait));
    vw_full_barrier(); /* [call] */
    return (uint16_t)(vw_load_le16(&used_ring(ring)->idx) - ring->reaped) <= wait;
}

#define OPS(add_function, urgent_function, publish_function, reap_function)                        \
    {                                                                                              \
        .add = add_function, .add_urgent = urgent_function, .publish = publish_function,           \
        .reap = reap_function, .disable_calls = split_disable_calls,                               \
        .enable_calls_prepare = split_enable_calls_prepare, .poll = split_poll,                    \
        .enable_calls_delayed = split_enable_calls_delayed,                                        \
    }

const struct vw_driver_ring_ops *vw_split_driver_ops(bool in_order, bool event_index)
{
    static const struct vw_driver_ring_ops ops[2][2] = {
        {OPS(split_add, split_add_urgent, split_publish, split_reap),
         OPS(split_add, split_add_urgent, split_publish_event, split_reap)},
        {OPS(split_add_in_order, split_add_urgent_in_order, split_publish, split_reap_in_order),
         OPS(split_add_in_order, split_add_urgent_in_order, split_publish_event,
             split_reap_in_order)},
    };

    return &ops[in_order][event_index];
}
