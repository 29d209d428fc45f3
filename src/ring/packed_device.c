/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device half of a packed ring (virtio 1.x, section 2.8).
 *
 * Theory of operation
 * -------------------
 * One ring of descriptors goes round and round. Two bits in the flags of each say whose it is, to
 * be read with a wrap counter that flips at the end of the ring. We look only at the next head
 * that we expect: members of a chain may look available before their head does. One used
 * descriptor is written for a chain, at our own next position, and both sides then skip as many
 * entries as the chain had.
 *
 * The driver looks only at the next used descriptor that it expects, too. So all of a batch may be
 * written at leisure except the flags of its first descriptor, which publish stores last.
 *
 * Barriers, by name:
 *   [available]  the driver releases a head's flags; we acquire them, and then read the chain
 *   [used]       we release the flags of a batch's first used descriptor; the driver acquires them
 *   [call]       full: used flags stored, then the driver's event structure read. Pairs with the
 *                driver's full barrier between arming calls and looking at the next descriptor
 *   [kick]       full: our event structure stored, then the next descriptor's flags read. Pairs
 *                with the driver's full barrier between storing a head's flags and deciding
 */
#include <linux/virtio_config.h>

#include "ring/formats.h"
#include "ring/gather.h"
#include "ring/notify.h"

static VW_ALWAYS_INLINE struct vring_packed_desc *descriptor_at(const struct vw_device_ring *ring,
                                                                uint32_t position)
{
    struct vring_packed_desc *descriptors = ring->config.descriptor_area;

    return &descriptors[position];
}

static VW_ALWAYS_INLINE int gather_table(const struct vw_device_ring *ring,
                                         struct vw_gather *gather,
                                         const struct vw_descriptor *descriptor, uint16_t slots)
{
    uint32_t size = ring->config.size;

    if (vw_unlikely(!ring->indirect))
        return VW_RING_UNNEGOTIATED;
    if (vw_unlikely(slots > 1 || descriptor->flags & VRING_DESC_F_NEXT))
        return VW_RING_NESTED_INDIRECT;
    gather->budget = size;
    return vw_gather_packed_table(gather, descriptor->address, descriptor->length, size);
}

/*
 * Gathers the chain whose head is the next available descriptor. A list has either direct
 * descriptors or one that refers to a table, never both (2.8.7.1). The id is the last one's.
 */
static VW_ALWAYS_INLINE int gather_chain(const struct vw_device_ring *ring, struct vw_chain *chain,
                                         struct vw_gather *gather)
{
    uint32_t size = ring->config.size;
    uint32_t position = ring->next_available;
    int urgency = 0;

    for (uint16_t slots = 1;; slots++) {
        struct vw_descriptor descriptor = vw_descriptor_copy(descriptor_at(ring, position), true);

        chain->id = descriptor.other;
        chain->slots = slots;
        if (descriptor.flags & VW_GATHER_SPECIAL) {
            urgency |= vw_gather_urgency(ring, descriptor.flags, slots == 1);
            if (descriptor.flags & VRING_DESC_F_INDIRECT) {
                int result = gather_table(ring, gather, &descriptor, slots);
                return result != 0 ? result : urgency;
            }
        }
        int result = vw_gather_add(gather, descriptor.address, descriptor.length,
                                   (descriptor.flags & VRING_DESC_F_WRITE) != 0);
        if (vw_unlikely(result != 0))
            return result;
        if (!(descriptor.flags & VRING_DESC_F_NEXT))
            return urgency;
        if (++position == size)
            position = 0;
    }
}

static VW_ALWAYS_INLINE bool next_is_available(const struct vw_device_ring *ring)
{
    uint16_t flags =
        vw_acquire_le16(&descriptor_at(ring, ring->next_available)->flags); /* [available] */

    return vw_packed_is_available(flags, ring->available_wrap);
}

/* Takes one chain; 0, -ENOBUFS, or an error. What is out can not be available as well. */
static VW_ALWAYS_INLINE int fetch_one(struct vw_device_ring *ring, struct vw_chain *chain,
                                      struct vw_iov_pool *pool)
{
    uint32_t budget = ring->config.size - ring->out;
    struct vw_gather gather;

    if (vw_unlikely(budget == 0))
        return VW_RING_BAD_AVAILABLE_INDEX;
    if (vw_unlikely(!vw_gather_begin(&gather, ring, pool, budget)))
        return -ENOBUFS;
    int result = gather_chain(ring, chain, &gather);
    if (vw_unlikely(result != 0) && result != VW_GATHER_URGENT)
        return result;
    vw_gather_end(&gather, ring, chain, pool);
    if (vw_unlikely(result != 0))
        vw_urgent_arrives(ring, chain);
    vw_packed_advance(&ring->next_available, &ring->available_wrap, chain->slots,
                      ring->config.size);
    ring->out += chain->slots;
    ring->given_back -= chain->slots < ring->given_back ? chain->slots : ring->given_back;
    return 0;
}

/* How many descriptors ahead of being read their lines, of four each, are asked for. Three lines:
 * 10.5 -> 13.4 million frames a second to a driver on another core. (Beyond the end of the ring, or
 * of what is available, it does no harm.) */
#define PREFETCH_AHEAD 12

/* What the loop over plain chains keeps at hand. */
struct plain_place {
    uint16_t position;
    bool wrap;
    uint32_t left; /* ring entries that may still be available */
    struct vw_iov_pool pool;
};

/* Takes the next chain if it is plain; else, or if none is available, false, with nothing changed.
 */
static VW_ALWAYS_INLINE bool take_plain(struct vring_packed_desc *ring, uint32_t size,
                                        const struct vw_plain_region *region,
                                        struct plain_place *place, struct vw_chain *chain)
{
    struct iovec *iov = place->pool.iov + place->pool.used + place->pool.headroom;
    struct vw_descriptor first, second;

    first = vw_descriptor_acquire(&ring[place->position]); /* [available] */
    if (!vw_packed_is_available(first.flags, place->wrap))
        return false;
    bool writable = (first.flags & VRING_DESC_F_WRITE) != 0;
    if (writable) /* each of them gets a used descriptor */
        vw_prefetch_write(&ring[place->position + PREFETCH_AHEAD]);
    else
        vw_prefetch(&ring[place->position + PREFETCH_AHEAD]);
    if (vw_unlikely(place->left < 2 || !vw_plain_room(&place->pool) ||
                    first.flags & VW_GATHER_SPECIAL || !vw_plain_piece(region, &first, &iov[0])))
        return false;
    if (!(first.flags & VRING_DESC_F_NEXT)) {
        if (!vw_plain_end(chain, &place->pool, 1, writable, first.other, 1))
            return false;
        vw_packed_advance(&place->position, &place->wrap, 1, size);
        place->left--;
        return true;
    }
    uint32_t next = place->position + 1u;
    second = vw_descriptor_copy(&ring[next == size ? 0 : next], true);
    if (vw_unlikely(second.flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT) ||
                    ((second.flags & VRING_DESC_F_WRITE) != 0) != writable ||
                    !vw_plain_piece(region, &second, &iov[1]) ||
                    !vw_plain_end(chain, &place->pool, 2, writable, second.other, 2)))
        return false;
    vw_packed_advance(&place->position, &place->wrap, 2, size);
    place->left -= 2;
    return true;
}

/* Takes plain chains as long as there are any; returns how many. */
static uint32_t fetch_plain(struct vw_device_ring *ring, struct vw_chain *chains, uint32_t max,
                            struct vw_iov_pool *pool)
{
    uint32_t size = ring->config.size, left = size - ring->out, done = 0;
    struct plain_place place = {ring->next_available, ring->available_wrap, left, *pool};
    struct vw_plain_region region = vw_plain_region(ring);

    while (done < max && take_plain(descriptor_at(ring, 0), size, &region, &place, &chains[done]))
        done++;
    pool->used = place.pool.used;
    ring->next_available = place.position;
    ring->available_wrap = place.wrap;
    uint32_t taken = left - place.left;
    ring->out += taken;
    ring->given_back -= taken < ring->given_back ? taken : ring->given_back;
    return done;
}

static uint32_t packed_fetch(struct vw_device_ring *ring, struct vw_chain *chains, uint32_t max,
                             struct vw_iov_pool *pool)
{
    uint32_t done = 0;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return 0;
    for (;;) {
        done += fetch_plain(ring, &chains[done], max - done, pool);
        if (done == max || !next_is_available(ring))
            break;
        int result = fetch_one(ring, &chains[done], pool);
        if (vw_unlikely(result != 0)) {
            vw_gather_failed(ring, result, pool);
            break;
        }
        done++;
    }
    return done;
}

static void packed_give_back(struct vw_device_ring *ring, const struct vw_chain *chains,
                             uint32_t count)
{
    uint32_t slots = 0;

    vw_urgent_leave(ring, chains, count, false);
    for (uint32_t i = 0; i < count; i++)
        slots += chains[i].slots;
    vw_packed_rewind(&ring->next_available, &ring->available_wrap, slots, ring->config.size);
    ring->out -= slots;
    ring->given_back += slots;
}

/* Writes one used descriptor (2.8.6). WRITE says that the length counts. The first of a batch keeps
 * its old flags for now; publish makes those of the others visible with its [used]. */
static VW_ALWAYS_INLINE void put_used(struct vw_device_ring *ring, uint16_t position, bool wrap,
                                      const struct vw_chain *chain, bool first)
{
    struct vring_packed_desc *descriptor = descriptor_at(ring, position);
    uint16_t flags = vw_packed_used_bits(wrap);

    if (chain->written > 0)
        flags |= VRING_DESC_F_WRITE;
    if (vw_likely(!first)) {
        vw_descriptor_store_end(descriptor, chain->written, chain->id, flags);
        return;
    }
    vw_store_le32(&descriptor->len, chain->written);
    vw_store_le16(&descriptor->id, chain->id);
    ring->batch_position = position;
    ring->batch_flags = flags;
}

static VW_ALWAYS_INLINE void use_body(struct vw_device_ring *ring, const struct vw_chain *chains,
                                      uint32_t count, bool in_order)
{
    uint32_t size = ring->config.size, batch = ring->batch_slots;
    uint16_t position = ring->next_used;
    bool wrap = ring->used_wrap;

    vw_urgent_leave(ring, chains, count, true);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slots = chains[i].slots;

        /* Only what has nothing to write may be skipped: its length can not be lost. */
        while (in_order && i + 1 < count && chains[i].writable_length == 0 &&
               chains[i + 1].writable_length == 0)
            slots += chains[++i].slots;
        put_used(ring, position, wrap, &chains[i], batch == 0);
        vw_packed_advance(&position, &wrap, slots, size);
        batch += slots;
    }
    ring->next_used = position;
    ring->used_wrap = wrap;
    ring->batch_slots = batch;
}

static void packed_use(struct vw_device_ring *ring, const struct vw_chain *chains, uint32_t count)
{
    use_body(ring, chains, count, false);
}

static void packed_use_in_order(struct vw_device_ring *ring, const struct vw_chain *chains,
                                uint32_t count)
{
    use_body(ring, chains, count, true);
}

/*
 * We never meet an entry that is used in the round in which we expect it to become available,
 * unless another one served the ring before: one that died with a batch written and its first
 * descriptor not yet published, or QEMU, which drops frames itself while it has no back-end. The
 * driver passes by it when it gets there, and so do we. Returns how many; at most a ring, whatever
 * the driver does.
 */
static uint32_t skip_used(struct vw_device_ring *ring)
{
    uint32_t skipped = 0;

    while (skipped < ring->config.size &&
           vw_packed_is_used(vw_load_le16(&descriptor_at(ring, ring->next_available)->flags),
                             ring->available_wrap)) {
        vw_packed_advance(&ring->next_available, &ring->available_wrap, 1, ring->config.size);
        skipped++;
    }
    ring->next_used = ring->next_available;
    ring->used_wrap = ring->available_wrap;
    return skipped;
}

static bool packed_expose(struct vw_device_ring *ring)
{
    uint32_t slots = ring->batch_slots;

    if (slots == 0)
        return false;
    vw_release_le16(&descriptor_at(ring, ring->batch_position)->flags,
                    ring->batch_flags); /* [used] */
    ring->batch_slots = 0;
    ring->out -= slots < ring->out ? slots : ring->out;
    if (vw_unlikely(ring->skips_used) && ring->out == 0)
        slots += skip_used(ring);
    vw_note_undecided(ring, slots);
    return ring->urgent_used;
}

/* Nothing is used and not exposed, so that next_used is where the driver sees us. */
static bool packed_decide(struct vw_device_ring *ring)
{
    uint32_t slots = ring->undecided;

    if (slots == 0)
        return false;
    vw_full_barrier(); /* [call] */
    int early = vw_decide_early(ring);
    if (vw_unlikely(early != 0))
        return early > 0;
    return vw_packed_need_event(ring->config.driver_area, ring->config.size, ring->next_used,
                                ring->used_wrap, slots, ring->event_index);
}

static bool packed_publish(struct vw_device_ring *ring)
{
    packed_expose(ring);
    return packed_decide(ring);
}

static bool packed_arm(struct vw_device_ring *ring)
{
    uint16_t position = ring->next_available;
    bool wrap = ring->available_wrap;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return true;
    vw_packed_advance(&position, &wrap, ring->given_back, ring->config.size);
    if (ring->event_index)
        vw_packed_event_store(ring->config.device_area, vw_packed_encode(position, wrap),
                              VRING_PACKED_EVENT_FLAG_DESC);
    else if (!ring->armed)
        vw_packed_event_store(ring->config.device_area, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    ring->armed = true;
    vw_full_barrier(); /* [kick] */
    return !vw_packed_is_available(vw_load_le16(&descriptor_at(ring, position)->flags), wrap);
}

static void packed_disarm(struct vw_device_ring *ring)
{
    if (!ring->armed || ring->error != VW_RING_OK)
        return;
    vw_packed_event_store(ring->config.device_area, 0, VRING_PACKED_EVENT_FLAG_DISABLE);
    ring->armed = false;
}

static bool packed_pending(struct vw_device_ring *ring)
{
    return ring->error == VW_RING_OK && next_is_available(ring);
}

static uint32_t packed_base(const struct vw_device_ring *ring)
{
    return vw_packed_encode(ring->next_available, ring->available_wrap) |
           (uint32_t)vw_packed_encode(ring->next_used, ring->used_wrap) << 16;
}

static int packed_set_base(struct vw_device_ring *ring, uint32_t base)
{
    uint16_t available = base & 0x7fff, used = base >> 16 & 0x7fff;

    if (available >= ring->config.size || used >= ring->config.size)
        return -EINVAL;
    ring->next_available = available;
    ring->available_wrap = (base >> 15 & 1) != 0;
    ring->next_used = used;
    ring->used_wrap = (base >> 31 & 1) != 0;
    ring->out = ring->given_back = ring->batch_slots = 0;
    ring->undecided = ring->urgent_out = 0;
    ring->decided = ring->urgent_used = false;
    /* Whoever served the ring before may have left kicks turned off. */
    vw_packed_event_store(ring->config.device_area, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    ring->armed = true;
    return 0;
}

#define OPS(use_function)                                                                          \
    {                                                                                              \
        .fetch = packed_fetch, .give_back = packed_give_back, .use = use_function,                 \
        .publish = packed_publish, .expose = packed_expose, .decide = packed_decide,               \
        .arm = packed_arm, .disarm = packed_disarm, .pending = packed_pending,                     \
        .base = packed_base, .set_base = packed_set_base,                                          \
    }

/* The event index changes one test of a word that was loaded anyway; only use is worth two bodies.
 */
const struct vw_device_ring_ops *vw_packed_device_ops(bool in_order, bool event_index)
{
    static const struct vw_device_ring_ops ops[2] = {OPS(packed_use), OPS(packed_use_in_order)};

    (void)event_index;
    return &ops[in_order];
}
