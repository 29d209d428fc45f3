/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to ring/: the device half turns the descriptors of one chain into pieces of local memory.
 *
 * Theory of operation
 * -------------------
 * A chain is gathered into the caller's pool. Every descriptor costs one of a budget that starts
 * as the ring's size, entries of an indirect table included (2.7.5.3.1), so that no loop of
 * descriptors lasts. The results are 0, a positive vw_ring_error, or -ENOBUFS where the pool is
 * full, which breaks nothing: the chain is taken again later.
 *
 * Nearly all chains are *plain*: one or two direct descriptors of one direction, with memory in the
 * region that the last success lay in. The formats take those in a loop of their own, a few
 * comparisons a descriptor, and leave everything else, violations included, to the way above.
 */
#ifndef VW_RING_GATHER_H
#define VW_RING_GATHER_H

#include "ring/descriptor.h"
#include "ring/device.h"

struct vw_gather {
    const struct vw_memory *memory;
    unsigned hint;
    struct iovec *iov; /* where the next piece goes */
    uint32_t room;     /* pieces that still fit */
    uint32_t budget;   /* descriptors that the chain may still have */
    uint64_t readable_length;
    uint64_t writable_length;
    uint32_t readable_count;
    uint32_t writable_count;
    bool writable_seen;
};

/* A result like the others: the chain is complete, and urgent. So that the usual chain pays nothing
 * for it, the flag is looked for together with INDIRECT, and the result with the failures. */
#define VW_GATHER_URGENT 1000
_Static_assert(VW_GATHER_URGENT > VW_RING_ERROR_COUNT, "no error has this number");

/* Descriptors that need a closer look. */
#define VW_GATHER_SPECIAL (VRING_DESC_F_INDIRECT | VW_DESCRIPTOR_F_URGENT)

/* Only the head's flag counts, and without the feature it means nothing. */
static VW_ALWAYS_INLINE int vw_gather_urgency(const struct vw_device_ring *ring, uint16_t flags,
                                              bool head)
{
    return head && ring->urgent && (flags & VW_DESCRIPTOR_F_URGENT) ? VW_GATHER_URGENT : 0;
}

/* Begins a chain in the pool. False: not even its headroom fits. */
static VW_ALWAYS_INLINE bool vw_gather_begin(struct vw_gather *gather,
                                             const struct vw_device_ring *ring,
                                             const struct vw_iov_pool *pool, uint32_t budget)
{
    uint32_t room = pool->capacity - pool->used;

    if (vw_unlikely(room < pool->headroom))
        return false;
    *gather = (struct vw_gather){.memory = ring->memory,
                                 .hint = ring->memory_hint,
                                 .iov = pool->iov + pool->used + pool->headroom,
                                 .room = room - pool->headroom,
                                 .budget = budget};
    return true;
}

/* Takes the bytes of one descriptor. A length of 0 is legal and yields no piece. */
static VW_ALWAYS_INLINE int vw_gather_add(struct vw_gather *gather, uint64_t address,
                                          uint32_t length, bool writable)
{
    if (vw_unlikely(gather->budget == 0))
        return VW_RING_LOOP;
    gather->budget--;
    if (writable)
        gather->writable_seen = true;
    else if (vw_unlikely(gather->writable_seen))
        return VW_RING_BAD_ORDER; /* 2.7.4.2 */
    if (length == 0)
        return 0;
    if (vw_unlikely(gather->readable_length + gather->writable_length + length > UINT32_MAX))
        return VW_RING_TOO_LONG; /* 2.7.5.2 */
    int pieces = vw_memory_translate(gather->memory, address, length, gather->iov, gather->room,
                                     &gather->hint);
    if (vw_unlikely(pieces < 0))
        return pieces == -ENOBUFS ? -ENOBUFS : VW_RING_BAD_ADDRESS;
    gather->iov += pieces;
    gather->room -= (uint32_t)pieces;
    if (writable) {
        gather->writable_count += (uint32_t)pieces;
        gather->writable_length += length;
    } else {
        gather->readable_count += (uint32_t)pieces;
        gather->readable_length += length;
    }
    return 0;
}

/* Takes the entries of an indirect table (split 2.7.5.3, packed 2.8.7). */
int vw_gather_split_table(struct vw_gather *gather, uint64_t address, uint32_t length,
                          uint32_t ring_size);
int vw_gather_packed_table(struct vw_gather *gather, uint64_t address, uint32_t length,
                           uint32_t ring_size);

/* The region of the last success, in variables of the loop's own. */
struct vw_plain_region {
    uint64_t guest, size; /* size 0: there is none, and no address lies in it */
    char *local;
};

static VW_ALWAYS_INLINE struct vw_plain_region vw_plain_region(const struct vw_device_ring *ring)
{
    const struct vw_memory_region *region = &ring->memory->regions[ring->memory_hint];

    if (vw_unlikely(ring->memory_hint >= ring->memory->count))
        return (struct vw_plain_region){0};
    return (struct vw_plain_region){
        .guest = region->guest, .size = region->size, .local = region->local};
}

/* One piece at `piece`; false if the descriptor is not plain. It is asked for at once: the first
 * two lines are all that a small frame has. */
static VW_ALWAYS_INLINE bool vw_plain_piece(const struct vw_plain_region *region,
                                            const struct vw_descriptor *descriptor,
                                            struct iovec *piece)
{
    uint64_t offset = descriptor->address - region->guest;
    uint32_t length = descriptor->length;

    if (vw_unlikely(length == 0 || offset >= region->size || length > region->size - offset))
        return false;
    char *local = region->local + offset;
    *piece = (struct iovec){.iov_base = local, .iov_len = length};
    if (descriptor->flags & VRING_DESC_F_WRITE) {
        vw_prefetch_write(local);
        vw_prefetch_write(local + VW_CACHE_LINE);
    } else {
        vw_prefetch(local);
        vw_prefetch(local + VW_CACHE_LINE);
    }
    return true;
}

/* Room for a plain chain? */
static VW_ALWAYS_INLINE bool vw_plain_room(const struct vw_iov_pool *pool)
{
    return pool->capacity - pool->used >= pool->headroom + 2;
}

/* Takes over a plain chain whose `count` pieces, 1 or 2, stand at their place in the pool. False,
 * and nothing changed: it is longer than any chain can be. */
static VW_ALWAYS_INLINE bool vw_plain_end(struct vw_chain *chain, struct vw_iov_pool *pool,
                                          uint32_t count, bool writable, uint16_t id,
                                          uint16_t slots)
{
    struct iovec *iov = pool->iov + pool->used + pool->headroom;
    uint64_t length = iov[0].iov_len + (count > 1 ? iov[1].iov_len : 0);

    if (vw_unlikely(length > UINT32_MAX))
        return false;
    /* Two literals, so that each is a few stores of known values. */
    if (writable)
        *chain = (struct vw_chain){.iov = iov,
                                   .writable_count = count & 0x7fffffff,
                                   .writable_length = (uint32_t)length,
                                   .id = id,
                                   .slots = slots};
    else
        *chain = (struct vw_chain){.iov = iov,
                                   .readable_count = count,
                                   .readable_length = (uint32_t)length,
                                   .id = id,
                                   .slots = slots};
    pool->used += pool->headroom + count;
    return true;
}

/* The chain is complete: fills what does not depend on the format, and keeps the pieces. */
static VW_ALWAYS_INLINE void vw_gather_end(const struct vw_gather *gather,
                                           struct vw_device_ring *ring, struct vw_chain *chain,
                                           struct vw_iov_pool *pool)
{
    chain->iov = pool->iov + pool->used + pool->headroom;
    chain->readable_count = gather->readable_count;
    chain->writable_count = gather->writable_count & 0x7fffffff;
    chain->urgent = 0;
    chain->readable_length = (uint32_t)gather->readable_length;
    chain->writable_length = (uint32_t)gather->writable_length;
    chain->written = 0;
    pool->used += pool->headroom + gather->readable_count + gather->writable_count;
    ring->memory_hint = gather->hint;
}

/* After vw_gather_end, for a chain with the result VW_GATHER_URGENT. */
static inline void vw_urgent_arrives(struct vw_device_ring *ring, struct vw_chain *chain)
{
    chain->urgent = 1;
    ring->urgent_out++;
}

/* Chains leave the device's hands: used (then publish must call), or given back. */
static VW_ALWAYS_INLINE void vw_urgent_leave(struct vw_device_ring *ring,
                                             const struct vw_chain *chains, uint32_t count,
                                             bool used)
{
    if (vw_likely(ring->urgent_out == 0))
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (!chains[i].urgent)
            continue;
        ring->urgent_out--;
        ring->urgent_used |= used;
    }
}

/* `passed` more became visible. */
static VW_ALWAYS_INLINE void vw_note_undecided(struct vw_device_ring *ring, uint32_t passed)
{
    uint32_t undecided = ring->undecided + passed;

    ring->undecided = undecided > UINT16_MAX ? UINT16_MAX + 1u : undecided;
}

/* What decides about a call before the driver's wish is looked at: > 0: call; < 0: no call; 0: ask.
 */
static VW_ALWAYS_INLINE int vw_decide_early(struct vw_device_ring *ring)
{
    bool urgent = ring->urgent_used;

    ring->undecided = 0;
    ring->urgent_used = false;
    if (vw_unlikely(ring->error != VW_RING_OK))
        return -1;
    if (vw_unlikely(!ring->decided)) {
        ring->decided = true; /* we can not know what the driver last saw of our predecessor */
        return 1;
    }
    return urgent;
}

/* A chain could not be taken: breaks the ring, unless a pool with other chains in it is just full.
 */
static inline void vw_gather_failed(struct vw_device_ring *ring, int result,
                                    const struct vw_iov_pool *pool)
{
    if (result > 0)
        ring->error = (enum vw_ring_error)result;
    else if (pool->used == 0)
        ring->error = VW_RING_TOO_LONG;
}

#endif
