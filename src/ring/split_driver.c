/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver half of a split ring (virtio 1.x, section 2.7).
 *
 * Theory of operation
 * -------------------
 * We own the descriptor table and the available ring; the device owns the used ring. Free
 * descriptors are linked in private memory, oldest first: a device that is in order, though it did
 * not promise, makes us use the table from front to back, whole lines at a time. (Newest first, a
 * descriptor would be in *our* cache, but the device has just read it: to write it, its line has to
 * be taken back all the same.) With IN_ORDER the table is used round and round (2.7.9), so that the
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

static VW_ALWAYS_INLINE uint16_t put_plain(struct vw_plain_burst *burst,
                                           const struct vw_segment *segment, uint16_t flags,
                                           bool in_order)
{
    struct vring_desc *table = burst->descriptors;
    uint16_t *indices = burst->available, index = burst->free_head;
    uint32_t mask = burst->size - 1;

    burst->free_head = in_order ? (uint16_t)((index + 1u) & mask) : burst->entries[index].next;
    vw_descriptor_store(&table[index], segment->address, segment->length, flags, 0);
    vw_store_le16(&indices[burst->position++ & mask], index);
    return index;
}

static VW_ALWAYS_INLINE uint16_t put_listed(struct vw_plain_burst *burst,
                                            const struct vw_segment *segment, uint16_t flags,
                                            bool hidden)
{
    (void)hidden;
    return put_plain(burst, segment, flags, false);
}

static VW_ALWAYS_INLINE uint16_t put_in_order(struct vw_plain_burst *burst,
                                              const struct vw_segment *segment, uint16_t flags,
                                              bool hidden)
{
    (void)hidden;
    return put_plain(burst, segment, flags, true);
}

static VW_ALWAYS_INLINE uint32_t add_plain_body(struct vw_driver_ring *ring,
                                                const struct vw_plain_buffer *buffers,
                                                uint32_t count, bool writable, bool in_order)
{
    struct vw_plain_burst burst = {.entries = ring->entries,
                                   .descriptors = ring->config.descriptor_area,
                                   .available = available_ring(ring)->ring,
                                   .size = ring->config.size,
                                   .position = ring->added,
                                   .free_head = ring->free_head};

    if (count > ring->free)
        count = ring->free;
    if (vw_unlikely(count == 0 || ring->error != VW_RING_OK))
        return 0;
    vw_prefetch_descriptors(burst.descriptors, burst.free_head, count, burst.size);
    return vw_offer_plain(ring, &burst, buffers, count, writable, false, in_order,
                          in_order ? put_in_order : put_listed);
}

static uint32_t split_add_readable(struct vw_driver_ring *ring,
                                   const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, false, false);
}

static uint32_t split_add_writable(struct vw_driver_ring *ring,
                                   const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, true, false);
}

static uint32_t split_add_readable_in_order(struct vw_driver_ring *ring,
                                            const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, false, true);
}

static uint32_t split_add_writable_in_order(struct vw_driver_ring *ring,
                                            const struct vw_plain_buffer *buffers, uint32_t count)
{
    return add_plain_body(ring, buffers, count, true, true);
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

/* How many used buffers are there to take? Reads the used index only when what was seen before is
 * used up. */
static VW_ALWAYS_INLINE uint16_t look_for_used(struct vw_driver_ring *ring)
{
    if (ring->used_seen == ring->reaped) {
        uint16_t seen = vw_acquire_le16(&used_ring(ring)->idx); /* [used] */

        if (vw_unlikely((uint16_t)(seen - ring->reaped) >
                        (uint16_t)(ring->published - ring->reaped))) {
            ring->error = VW_RING_BAD_USED_INDEX;
            return 0;
        }
        ring->used_seen = seen;
    }
    return (uint16_t)(ring->used_seen - ring->reaped);
}

/* A used entry, copied with one load. */
static VW_ALWAYS_INLINE void read_used(const struct vring_used_elem *from, uint32_t *id,
                                       uint32_t *length)
{
    uint64_t both = vw_load_le64((const void *)from);

    *id = (uint32_t)both;
    *length = (uint32_t)(both >> 32);
}

/* Puts the descriptors of a chain behind the free ones. */
static VW_ALWAYS_INLINE void free_chain(struct vw_reaping *reaping, uint16_t head)
{
    uint16_t last = head;

    for (uint16_t left = reaping->entries[head].slots; vw_unlikely(left > 1); left--)
        last = reaping->entries[last].next;
    vw_entries_free(reaping, head, last, reaping->free > 0);
}

/* Takes `count` used buffers that are there. Returns how many; fewer if one of them is a lie. */
static VW_ALWAYS_INLINE uint32_t take_used(struct vw_driver_ring *ring,
                                           struct vw_completion *completions, uint32_t count)
{
    const struct vring_used_elem *used = used_ring(ring)->ring;
    struct vw_reaping reaping = vw_reaping_begin(ring);
    uint32_t mask = ring->config.size - 1, done;

    for (done = 0; done < count; done++) {
        uint32_t id, length;

        read_used(&used[reaping.reaped & mask], &id, &length);
        if (!vw_used_valid(ring, &reaping, id, length))
            break;
        free_chain(&reaping, (uint16_t)id);
        vw_used_complete(&reaping, &completions[done], id, length);
    }
    vw_reaping_end(ring, &reaping);
    return done;
}

/* A used entry names the last buffer of its batch, and stands where the first one's would (2.7.9).
 */
static VW_ALWAYS_INLINE uint32_t take_used_in_order(struct vw_driver_ring *ring,
                                                    struct vw_completion *completions,
                                                    uint32_t count)
{
    const struct vring_used_elem *used = used_ring(ring)->ring;
    struct vw_reaping reaping = vw_reaping_begin(ring);
    uint32_t mask = ring->config.size - 1, done;

    for (done = 0; done < count; done++) {
        if (reaping.batch_left == 0) {
            uint32_t id, length;

            read_used(&used[reaping.reaped & mask], &id, &length);
            if (!vw_used_batch(ring, &reaping, id, length,
                               (uint16_t)(ring->used_seen - reaping.reaped)))
                break;
        }
        uint32_t length = vw_used_batch_length(&reaping);
        uint16_t slots = vw_used_complete(&reaping, &completions[done], reaping.oldest, length);

        reaping.oldest = (uint16_t)((reaping.oldest + slots) & mask);
    }
    vw_reaping_end(ring, &reaping);
    return done;
}

/* What was seen by an earlier call, and, behind it, what one more look at the index finds: the line
 * that it lies in is the device's, and each look takes it away. */
static VW_ALWAYS_INLINE uint32_t reap_body(struct vw_driver_ring *ring,
                                           struct vw_completion *completions, uint32_t max,
                                           bool in_order)
{
    uint32_t done = 0;
    bool again;

    do {
        again = ring->used_seen != ring->reaped;
        if (vw_unlikely(ring->error != VW_RING_OK))
            break;
        uint32_t count = look_for_used(ring);
        if (count > max - done)
            count = max - done;
        if (count == 0)
            break;
        done += in_order ? take_used_in_order(ring, &completions[done], count)
                         : take_used(ring, &completions[done], count);
    } while (again && done < max);
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

#define OPS(suffix, publish_function)                                                              \
    {                                                                                              \
        .add = split_add##suffix, .add_urgent = split_add_urgent##suffix,                          \
        .add_readable = split_add_readable##suffix, .add_writable = split_add_writable##suffix,    \
        .publish = publish_function, .reap = split_reap##suffix,                                   \
        .disable_calls = split_disable_calls, .enable_calls_prepare = split_enable_calls_prepare,  \
        .poll = split_poll, .enable_calls_delayed = split_enable_calls_delayed,                    \
    }

const struct vw_driver_ring_ops *vw_split_driver_ops(bool in_order, bool event_index)
{
    static const struct vw_driver_ring_ops ops[2][2] = {
        {OPS(, split_publish), OPS(, split_publish_event)},
        {OPS(_in_order, split_publish), OPS(_in_order, split_publish_event)},
    };

    return &ops[in_order][event_index];
}
