/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to ring/: does the other side want to be notified?
 *
 * Theory of operation
 * -------------------
 * A side that moved on from `old` to `new` notifies if the place that the other side asked to be
 * woken for lies in [old, new), modulo 65536 (2.7.10). `old` is where the last *decision* was
 * taken, not where the last batch began: forgetting entries between two decisions loses events.
 * Here every publish decides, so that at most a ring's size of entries, less than 65536, lies
 * between two decisions, and the formula is always meaningful. Only a device that coalesces calls
 * puts decisions off; a driver that sleeps can then still be no further behind than the ring's
 * size, and where 65536 entries or more have passed, the answer is yes.
 *
 * A packed ring counts in descriptors, and its places wrap at the ring's size; the event's wrap
 * counter tells whether it lies in this round or in the last one (2.8.14). Both halves use the
 * same structure, so that one function serves kicks and calls.
 */
#ifndef VW_RING_NOTIFY_H
#define VW_RING_NOTIFY_H

#include "ring/descriptor.h"
#include "ring/ring.h"

_Static_assert(VW_RING_MAX_SIZE < 65536, "one publish never laps the event index");

static VW_ALWAYS_INLINE bool vw_need_event(uint16_t event, uint16_t new, uint16_t old)
{
    return (uint16_t)(new - event - 1) < (uint16_t)(new - old);
}

/* The event suppression structure in one word, so that both halves of it change together. */
static VW_ALWAYS_INLINE void vw_packed_event_store(void *area, uint16_t place, uint16_t flags)
{
    vw_alias32 *word = area;

    vw_shared_store(word, htole32((uint32_t)flags << 16 | place));
}

/* `moved` descriptors were passed up to the place (position, wrap). */
static VW_ALWAYS_INLINE bool vw_packed_need_event(const void *area, uint32_t size,
                                                  uint16_t position, bool wrap, uint32_t moved,
                                                  bool event_index)
{
    const vw_alias32 *word = area;
    uint32_t snapshot = le32toh(vw_shared_load(word));
    uint32_t flags = snapshot >> 16 & 3;
    uint16_t event = snapshot & 0x7fff;
    bool event_wrap = (snapshot >> VRING_PACKED_EVENT_F_WRAP_CTR & 1) != 0;

    if (flags == VRING_PACKED_EVENT_FLAG_DISABLE)
        return false;
    if (flags != VRING_PACKED_EVENT_FLAG_DESC || !event_index)
        return true; /* enabled; or reserved, where one notification too many is the safe side */
    if (vw_unlikely(moved > UINT16_MAX))
        return true; /* the same */
    if (event_wrap != wrap)
        event = (uint16_t)(event - size);
    return vw_need_event(event, position, (uint16_t)(position - moved));
}

#endif
