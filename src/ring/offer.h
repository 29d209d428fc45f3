/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to ring/: what the two driver halves do in the same way with a buffer before it goes into
 * the ring, and after it came back.
 */
#ifndef VW_RING_OFFER_H
#define VW_RING_OFFER_H

#include <errno.h>

#include "ring/descriptor.h"
#include "ring/driver.h"

struct vw_offer {
    const struct vw_segment *segments;
    uint32_t readable;
    uint32_t count;
    uint32_t slots; /* ring entries that it needs */
    uint32_t writable_length;
    bool indirect;
};

/*
 * A buffer of more than one segment goes through an indirect table if it fits into one. A chain is
 * never longer than the ring, its table included (2.7.5.3.1), nor has it 2^32 bytes (2.7.5.2).
 */
static VW_ALWAYS_INLINE int vw_offer_prepare(struct vw_offer *offer,
                                             const struct vw_driver_ring *ring,
                                             const struct vw_segment *segments, uint32_t readable,
                                             uint32_t writable)
{
    uint32_t size = ring->config.size;
    uint64_t before = 0, length = 0;

    if (vw_unlikely(ring->error != VW_RING_OK))
        return -EIO;
    if (vw_unlikely(readable > size || writable > size - readable || readable + writable == 0))
        return -EINVAL;
    offer->segments = segments;
    offer->readable = readable;
    offer->count = readable + writable;
    for (uint32_t i = 0; i < offer->count; i++) {
        if (i == readable)
            before = length;
        length += segments[i].length;
    }
    if (vw_unlikely(length > UINT32_MAX))
        return -EINVAL;
    offer->writable_length = writable ? (uint32_t)(length - before) : 0;
    offer->indirect = offer->count > 1 && offer->count <= ring->indirect.segments;
    offer->slots = offer->indirect ? 1 : offer->count;
    return offer->slots > ring->free ? -ENOSPC : 0;
}

/* NEXT and WRITE of segment `i` in a chain. */
static VW_ALWAYS_INLINE uint16_t vw_offer_flags(const struct vw_offer *offer, uint32_t i)
{
    return (uint16_t)((i + 1 < offer->count ? VRING_DESC_F_NEXT : 0) |
                      (i >= offer->readable ? VRING_DESC_F_WRITE : 0));
}

/*
 * Fills the indirect table of ring entry `entry` and returns its address for the device. Split
 * entries are chained in order from 0 (2.7.5.3.1); in packed tables only WRITE has a meaning
 * (2.8.7), the rest is 0.
 */
static VW_ALWAYS_INLINE uint64_t vw_offer_fill_table(const struct vw_driver_ring *ring,
                                                     const struct vw_offer *offer, uint16_t entry,
                                                     bool packed)
{
    uint64_t offset = (uint64_t)entry * ring->indirect.segments * VW_DESCRIPTOR_SIZE;
    char *to = (char *)ring->indirect.memory + offset;

    for (uint32_t i = 0; i < offer->count; i++, to += VW_DESCRIPTOR_SIZE) {
        const struct vw_segment *segment = &offer->segments[i];
        uint16_t flags = vw_offer_flags(offer, i);

        if (packed)
            vw_descriptor_store(to, segment->address, segment->length, 0,
                                flags & VRING_DESC_F_WRITE);
        else
            vw_descriptor_store(to, segment->address, segment->length, flags,
                                flags & VRING_DESC_F_NEXT ? (uint16_t)(i + 1) : 0);
    }
    return ring->indirect.address + offset;
}

/* The private record. The numbering of IN_ORDER uses the field that links free entries else. */
static VW_ALWAYS_INLINE void vw_offer_record(struct vw_driver_ring *ring,
                                             const struct vw_offer *offer, uint16_t id, void *token,
                                             bool in_order)
{
    struct vw_driver_entry *entry = &ring->entries[id];

    entry->token = token;
    entry->writable_length = offer->writable_length;
    entry->slots = (uint16_t)offer->slots;
    if (in_order)
        entry->next = ring->added;
    ring->added++;
    ring->free -= offer->slots;
    ring->unpublished += offer->slots;
}

/*
 * A burst of plain buffers: what its loop changes. Kept out of *ring, so that it stays in
 * registers: after each access to shared memory the compiler would load all that is in *ring anew.
 */
struct vw_plain_burst {
    struct vw_driver_entry *entries;
    void *descriptors;
    void *available; /* split: the ring of indices */
    uint32_t size;
    uint16_t position; /* packed: of the next descriptor; split: of the next index, not masked */
    uint16_t free_head;
    bool wrap;
};

/* Puts one descriptor into the ring; returns the entry that keeps its record. */
typedef uint16_t vw_put_plain(struct vw_plain_burst *burst, const struct vw_segment *segment,
                              uint16_t flags, bool hidden);

/* Sends for the lines of `count` descriptors from `position` on: the device was the last to read or
 * write them, and one miss after the other would be a large part of what a frame costs. */
static VW_ALWAYS_INLINE void vw_prefetch_descriptors(const char *descriptors, uint32_t position,
                                                     uint32_t count, uint32_t size)
{
    for (uint32_t i = 0; i < count; i += VW_CACHE_LINE / VW_DESCRIPTOR_SIZE) {
        uint32_t at = position + i;

        vw_prefetch_write(descriptors + (at < size ? at : at - size) * VW_DESCRIPTOR_SIZE);
    }
}

/*
 * Adds plain buffers: the loop of both formats, whose `put` is inlined. `hidden`: the flags of the
 * first descriptor are stored by publish.
 */
static VW_ALWAYS_INLINE uint32_t vw_offer_plain(struct vw_driver_ring *ring,
                                                struct vw_plain_burst *burst,
                                                const struct vw_plain_buffer *buffers,
                                                uint32_t count, bool writable, bool hidden,
                                                bool in_order, vw_put_plain put)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct vw_plain_buffer *buffer = &buffers[i];
        uint16_t id =
            put(burst, &buffer->segment, writable ? VRING_DESC_F_WRITE : 0, hidden && i == 0);
        struct vw_driver_entry *entry = &burst->entries[id];

        entry->token = buffer->token;
        entry->writable_length = writable ? buffer->segment.length : 0;
        entry->slots = 1;
        if (in_order)
            entry->next = (uint16_t)(ring->added + i);
    }
    ring->free_head = burst->free_head;
    ring->added = (uint16_t)(ring->added + count);
    ring->free -= count;
    ring->unpublished += count;
    return count;
}

/*
 * A run of used buffers being taken: what the loop changes, in registers as that of a burst. What
 * the device says is checked against the private record only.
 */
struct vw_reaping {
    struct vw_driver_entry *entries;
    uint32_t size;
    uint32_t free;
    uint32_t published_slots;
    uint32_t batch_length;
    uint16_t reaped;
    uint16_t free_head, free_tail;
    uint16_t oldest, batch_left;
};

static VW_ALWAYS_INLINE struct vw_reaping vw_reaping_begin(const struct vw_driver_ring *ring)
{
    return (struct vw_reaping){.entries = ring->entries,
                               .size = ring->config.size,
                               .free = ring->free,
                               .published_slots = ring->published_slots,
                               .batch_length = ring->batch_length,
                               .reaped = ring->reaped,
                               .free_head = ring->free_head,
                               .free_tail = ring->free_tail,
                               .oldest = ring->oldest,
                               .batch_left = ring->batch_left};
}

static VW_ALWAYS_INLINE void vw_reaping_end(struct vw_driver_ring *ring,
                                            const struct vw_reaping *reaping)
{
    ring->free = reaping->free;
    ring->published_slots = reaping->published_slots;
    ring->batch_length = reaping->batch_length;
    ring->reaped = reaping->reaped;
    ring->free_head = reaping->free_head;
    ring->free_tail = reaping->free_tail;
    ring->oldest = reaping->oldest;
    ring->batch_left = reaping->batch_left;
}

/*
 * Checks what the device says about a buffer against the record. An id that was added and is not
 * visible yet passes, as long as as much is in flight: the owner gets a buffer back that no honest
 * device has touched, and every count stays right.
 */
static VW_ALWAYS_INLINE bool vw_used_valid(struct vw_driver_ring *ring,
                                           const struct vw_reaping *reaping, uint32_t id,
                                           uint32_t length)
{
    const struct vw_driver_entry *entry = &reaping->entries[id];

    if (vw_unlikely(id >= reaping->size || entry->slots == 0))
        ring->error = VW_RING_BAD_USED_ID;
    else if (vw_unlikely(entry->slots > reaping->published_slots))
        ring->error = VW_RING_BAD_USED_INDEX;
    else if (vw_unlikely(length > entry->writable_length))
        ring->error = VW_RING_BAD_USED_LENGTH;
    else
        return true;
    return false;
}

/*
 * IN_ORDER: buffer `id` was used, and with it all that are older. `limit`: how many may have been.
 */
static VW_ALWAYS_INLINE bool vw_used_batch(struct vw_driver_ring *ring, struct vw_reaping *reaping,
                                           uint32_t id, uint32_t length, uint32_t limit)
{
    if (!vw_used_valid(ring, reaping, id, length))
        return false;
    uint32_t count = (uint32_t)(uint16_t)(reaping->entries[id].next - reaping->reaped) + 1;
    if (vw_unlikely(count > limit)) {
        ring->error = VW_RING_BAD_USED_ID;
        return false;
    }
    reaping->batch_left = (uint16_t)count;
    reaping->batch_length = length;
    return true;
}

/* IN_ORDER: the length of the oldest buffer, which is the next of the batch. */
static VW_ALWAYS_INLINE uint32_t vw_used_batch_length(struct vw_reaping *reaping)
{
    return --reaping->batch_left == 0 ? reaping->batch_length
                                      : reaping->entries[reaping->oldest].writable_length;
}

/* Puts the entries from `first` to `last`, linked as they are, behind the free ones, if any. */
static VW_ALWAYS_INLINE void vw_entries_free(struct vw_reaping *reaping, uint16_t first,
                                             uint16_t last, bool any)
{
    if (vw_unlikely(!any))
        reaping->free_head = first;
    else
        reaping->entries[reaping->free_tail].next = first;
    reaping->free_tail = last;
}

/* The buffer is its owner's again. Returns how many ring entries became free. */
static VW_ALWAYS_INLINE uint16_t vw_used_complete(struct vw_reaping *reaping,
                                                  struct vw_completion *completion, uint32_t id,
                                                  uint32_t length)
{
    struct vw_driver_entry *entry = &reaping->entries[id];
    uint16_t slots = entry->slots;

    completion->token = entry->token;
    completion->length = length;
    entry->slots = 0;
    reaping->reaped++;
    reaping->free += slots;
    reaping->published_slots -= slots;
    return slots;
}

#endif
