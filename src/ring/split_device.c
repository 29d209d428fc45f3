/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device half of a split ring (virtio 1.x, section 2.7).
 *
 * Theory of operation
 * -------------------
 * The driver owns the descriptor table and the available ring; we own the used ring. Indices run
 * freely modulo 65536, and the slot is the index masked by the size, a power of two.
 *
 * Barriers, by name:
 *   [available]  the driver releases available.idx; we acquire it in fetch, and then read ring
 *                slots, descriptors and payload
 *   [used]       we release used.idx in publish; the driver acquires it, and then reads used
 *                entries and payload
 *   [call]       full: used.idx stored, then the driver's event word or flags read. Pairs with the
 *                driver's full barrier between arming calls and looking at used.idx
 *   [kick]       full: event word or flags stored in arm, then available.idx read. Pairs with the
 *                driver's full barrier between storing available.idx and deciding about a kick
 */
#include <linux/virtio_config.h>

#include "ring/formats.h"
#include "ring/gather.h"
#include "ring/notify.h"

static VW_ALWAYS_INLINE struct vring_avail *available_ring(const struct vw_device_ring *ring)
{
    return ring->config.driver_area;
}

static VW_ALWAYS_INLINE struct vring_used *used_ring(const struct vw_device_ring *ring)
{
    return ring->config.device_area;
}

/* The event words lie behind the other side's entries: used_event in the driver's ring (2.7.6),
 * avail_event in ours (2.7.8). */
static VW_ALWAYS_INLINE uint16_t *used_event(const struct vw_device_ring *ring)
{
    return &available_ring(ring)->ring[ring->config.size];
}

static VW_ALWAYS_INLINE uint16_t *available_event(const struct vw_device_ring *ring)
{
    return (uint16_t *)(void *)&used_ring(ring)->ring[ring->config.size];
}

/*
 * How many chains there are to fetch. Reads the available index only when the one read before is
 * used up. What is out and what is available can not be more than the ring holds.
 */
static VW_ALWAYS_INLINE uint32_t count_available(struct vw_device_ring *ring)
{
    uint16_t available = (uint16_t)(ring->available_seen - ring->next_available);

    if (available != 0)
        return available;
    uint16_t seen = vw_acquire_le16(&available_ring(ring)->idx); /* [available] */
    available = (uint16_t)(seen - ring->next_available);
    if (vw_unlikely(available + ring->out > ring->config.size)) {
        ring->error = VW_RING_BAD_AVAILABLE_INDEX;
        return 0;
    }
    ring->available_seen = seen;
    return available;
}

/* All heads of a batch first, so that the descriptors are on their way when we come to them. */
static VW_ALWAYS_INLINE void read_heads(const struct vw_device_ring *ring, struct vw_chain *chains,
                                        uint32_t count)
{
    const struct vring_desc *table = ring->config.descriptor_area;
    const struct vring_avail *available = available_ring(ring);
    uint32_t mask = ring->config.size - 1, next = ring->next_available;

    for (uint32_t i = 0; i < count; i++) {
        chains[i].id = vw_load_le16(&available->ring[next++ & mask]);
        vw_prefetch(&table[chains[i].id & mask]);
    }
}

/* The used entries that these chains will have. The driver read those lines last, and a store to
 * each would have publish's barrier wait for it. */
static VW_ALWAYS_INLINE void prefetch_used(const struct vw_device_ring *ring, uint32_t count)
{
    struct vring_used *used = used_ring(ring);
    uint32_t mask = ring->config.size - 1, per_line = VW_CACHE_LINE / sizeof(used->ring[0]);

    for (uint32_t i = 0; i < count; i += per_line)
        vw_prefetch_write(&used->ring[(ring->next_used + i) & mask]);
}

static VW_ALWAYS_INLINE int gather_table(const struct vw_device_ring *ring,
                                         struct vw_gather *gather,
                                         const struct vw_descriptor *descriptor)
{
    if (vw_unlikely(!ring->indirect))
        return VW_RING_UNNEGOTIATED;
    if (vw_unlikely(descriptor->flags & VRING_DESC_F_NEXT))
        return VW_RING_NESTED_INDIRECT;
    return vw_gather_split_table(gather, descriptor->address, descriptor->length,
                                 ring->config.size);
}

/* Follows the chain whose head is chain->id: direct descriptors, of which the last one may refer
 * to a table (2.7.5.3.2). */
static VW_ALWAYS_INLINE int gather_chain(const struct vw_device_ring *ring,
                                         const struct vw_chain *chain, struct vw_gather *gather)
{
    const struct vring_desc *table = ring->config.descriptor_area;
    uint32_t size = ring->config.size;
    uint32_t index = chain->id;
    int urgency = 0;

    for (;;) {
        if (vw_unlikely(index >= size))
            return VW_RING_BAD_HEAD;
        struct vw_descriptor descriptor = vw_descriptor_copy(&table[index], false);
        if (descriptor.flags & VW_GATHER_SPECIAL) {
            urgency |= vw_gather_urgency(ring, descriptor.flags, index == chain->id);
            if (descriptor.flags & VRING_DESC_F_INDIRECT) {
                int result = gather_table(ring, gather, &descriptor);
                return result != 0 ? result : urgency;
            }
        }
        int result = vw_gather_add(gather, descriptor.address, descriptor.length,
                                   (descriptor.flags & VRING_DESC_F_WRITE) != 0);
        if (vw_unlikely(result != 0))
            return result;
        if (!(descriptor.flags & VRING_DESC_F_NEXT))
            return urgency;
        index = descriptor.other;
    }
}

/* Takes the chain whose head is chain->id if it is plain; else false, with nothing changed. */
static VW_ALWAYS_INLINE bool take_plain(const struct vring_desc *table, uint32_t size,
                                        const struct vw_plain_region *region,
                                        struct vw_chain *chain, struct vw_iov_pool *pool)
{
    uint16_t id = chain->id;

    if (vw_unlikely(id >= size || !vw_plain_room(pool)))
        return false;
    struct iovec *iov = pool->iov + pool->used + pool->headroom;
    struct vw_descriptor first = vw_descriptor_copy(&table[id], false);
    bool writable = (first.flags & VRING_DESC_F_WRITE) != 0;
    if (vw_unlikely(first.flags & VW_GATHER_SPECIAL || !vw_plain_piece(region, &first, &iov[0])))
        return false;
    if (!(first.flags & VRING_DESC_F_NEXT))
        return vw_plain_end(chain, pool, 1, writable, id, 1);

    if (vw_unlikely(first.other >= size || first.other == id))
        return false;
    struct vw_descriptor second = vw_descriptor_copy(&table[first.other], false);
    if (vw_unlikely(second.flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT) ||
                    ((second.flags & VRING_DESC_F_WRITE) != 0) != writable ||
                    !vw_plain_piece(region, &second, &iov[1])))
        return false;
    return vw_plain_end(chain, pool, 2, writable, id, 1);
}

/* Takes the chain whose head is chain->id, whatever it is; 0, -ENOBUFS, or an error. */
static int take_any(struct vw_device_ring *ring, struct vw_chain *chain, struct vw_iov_pool *pool)
{
    struct vw_gather gather;

    if (vw_unlikely(!vw_gather_begin(&gather, ring, pool, ring->config.size)))
        return -ENOBUFS;
    int result = gather_chain(ring, chain, &gather);
    if (vw_unlikely(result != 0) && result != VW_GATHER_URGENT)
        return result;
    vw_gather_end(&gather, ring, chain, pool);
    if (vw_unlikely(result != 0))
        vw_urgent_arrives(ring, chain);
    chain->slots = 1;
    return 0;
}

static uint32_t split_fetch(struct vw_device_ring *ring, struct vw_chain *chains, uint32_t max,
                            struct vw_iov_pool *pool)
{
    const struct vring_desc *table = ring->config.descriptor_area;
    uint32_t size = ring->config.size, done = 0;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    uint32_t count = count_available(ring);
    if (count > max)
        count = max;
    read_heads(ring, chains, count);
    prefetch_used(ring, count);
    struct vw_plain_region region = vw_plain_region(ring);
    struct vw_iov_pool here = *pool; /* the loop's own */
    for (; done < count; done++) {
        if (vw_likely(take_plain(table, size, &region, &chains[done], &here)))
            continue;
        pool->used = here.used;
        int result = take_any(ring, &chains[done], pool);
        if (vw_unlikely(result != 0)) {
            vw_gather_failed(ring, result, pool);
            break;
        }
        region = vw_plain_region(ring);
        here.used = pool->used;
    }
    pool->used = here.used;
    ring->next_available = (uint16_t)(ring->next_available + done);
    ring->out += done;
    ring->given_back -= done < ring->given_back ? done : ring->given_back;
    return done;
}

static void split_give_back(struct vw_device_ring *ring, const struct vw_chain *chains,
                            uint32_t count)
{
    vw_urgent_leave(ring, chains, count, false);
    ring->next_available = (uint16_t)(ring->next_available - count);
    ring->out -= count;
    ring->given_back += count;
}

static VW_ALWAYS_INLINE void use_body(struct vw_device_ring *ring, const struct vw_chain *chains,
                                      uint32_t count, bool in_order)
{
    struct vring_used_elem *entries = used_ring(ring)->ring;
    uint32_t mask = ring->config.size - 1;
    uint16_t next = ring->next_used;

    vw_urgent_leave(ring, chains, count, true);
    for (uint32_t i = 0; i < count; i++) {
        struct vring_used_elem *entry = &entries[next++ & mask];

        /* Only what has nothing to write may be skipped: its length can not be lost. Of the entries
         * that it would have, the first is the one that counts (2.7.9). */
        for (; in_order && i + 1 < count && chains[i].writable_length == 0 &&
               chains[i + 1].writable_length == 0;
             i++)
            next++;
        vw_store_le32(&entry->id, chains[i].id);
        vw_store_le32(&entry->len, chains[i].written);
    }
    ring->next_used = next;
}

static void split_use(struct vw_device_ring *ring, const struct vw_chain *chains, uint32_t count)
{
    use_body(ring, chains, count, false);
}

static void split_use_in_order(struct vw_device_ring *ring, const struct vw_chain *chains,
                               uint32_t count)
{
    use_body(ring, chains, count, true);
}

static bool split_expose(struct vw_device_ring *ring)
{
    uint16_t new = ring->next_used;
    uint32_t passed = (uint16_t)(new - ring->used_published);

    if (passed == 0)
        return false;
    vw_release_le16(&used_ring(ring)->idx, new); /* [used] */
    ring->used_published = new;
    ring->out -= passed < ring->out ? passed : ring->out;
    vw_note_undecided(ring, passed);
    return ring->urgent_used;
}

static VW_ALWAYS_INLINE bool decide_body(struct vw_device_ring *ring, bool event_index)
{
    uint16_t new = ring->used_published;
    uint32_t passed = ring->undecided;

    if (passed == 0)
        return false;
    vw_full_barrier(); /* [call] */
    int early = vw_decide_early(ring);
    if (vw_unlikely(early != 0))
        return early > 0;
    if (event_index)
        return passed > UINT16_MAX || /* more than the index tells apart: the safe side */
               vw_need_event(vw_load_le16(used_event(ring)), new, (uint16_t)(new - passed));
    return !(vw_load_le16(&available_ring(ring)->flags) & VRING_AVAIL_F_NO_INTERRUPT);
}

static bool split_decide(struct vw_device_ring *ring)
{
    return decide_body(ring, false);
}

static bool split_decide_event(struct vw_device_ring *ring)
{
    return decide_body(ring, true);
}

static bool split_publish(struct vw_device_ring *ring)
{
    split_expose(ring);
    return decide_body(ring, false);
}

static bool split_publish_event(struct vw_device_ring *ring)
{
    split_expose(ring);
    return decide_body(ring, true);
}

static VW_ALWAYS_INLINE bool arm_body(struct vw_device_ring *ring, bool event_index)
{
    uint16_t place = (uint16_t)(ring->next_available + ring->given_back);

    if (vw_unlikely(ring->error != VW_RING_OK))
        return true;
    if (event_index)
        vw_store_le16(available_event(ring), place);
    else if (!ring->armed)
        vw_store_le16(&used_ring(ring)->flags, 0);
    ring->armed = true;
    vw_full_barrier(); /* [kick] */
    return vw_load_le16(&available_ring(ring)->idx) == place;
}

static bool split_arm(struct vw_device_ring *ring)
{
    return arm_body(ring, false);
}

static bool split_arm_event(struct vw_device_ring *ring)
{
    return arm_body(ring, true);
}

static void split_disarm(struct vw_device_ring *ring)
{
    if (!ring->armed || ring->error != VW_RING_OK)
        return;
    vw_store_le16(&used_ring(ring)->flags, VRING_USED_F_NO_NOTIFY);
    ring->armed = false;
}

/* With EVENT_IDX the flags stay 0 (2.7.10), and an event word that was passed asks for nothing. */
static void split_disarm_event(struct vw_device_ring *ring)
{
    ring->armed = false;
}

static bool split_pending(struct vw_device_ring *ring)
{
    if (vw_unlikely(ring->error != VW_RING_OK))
        return false;
    return ring->available_seen != ring->next_available ||
           vw_load_le16(&available_ring(ring)->idx) != ring->next_available;
}

static uint32_t split_base(const struct vw_device_ring *ring)
{
    return ring->next_available;
}

static int split_set_base(struct vw_device_ring *ring, uint32_t base)
{
    if (base > UINT16_MAX)
        return -EINVAL;
    ring->next_available = ring->available_seen = (uint16_t)base;
    ring->next_used = ring->used_published = vw_load_le16(&used_ring(ring)->idx);
    ring->out = ring->given_back = ring->undecided = ring->urgent_out = 0;
    ring->decided = ring->urgent_used = false;
    /* Whoever served the ring before may have left kicks turned off. */
    vw_store_le16(&used_ring(ring)->flags, 0);
    if (ring->event_index)
        vw_store_le16(available_event(ring), (uint16_t)base);
    ring->armed = true;
    return 0;
}

#define OPS(use_function, event)                                                                   \
    {                                                                                              \
        .fetch = split_fetch, .give_back = split_give_back, .use = use_function,                   \
        .publish = split_publish##event, .expose = split_expose, .decide = split_decide##event,    \
        .arm = split_arm##event, .disarm = split_disarm##event, .pending = split_pending,          \
        .base = split_base, .set_base = split_set_base,                                            \
    }

const struct vw_device_ring_ops *vw_split_device_ops(bool in_order, bool event_index)
{
    static const struct vw_device_ring_ops ops[2][2] = {
        {OPS(split_use, ), OPS(split_use, _event)},
        {OPS(split_use_in_order, ), OPS(split_use_in_order, _event)},
    };

    return &ops[in_order][event_index];
}
