/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots: a frame from the moment it is given to the device until it comes back. Private to
 * transmit.c and loss.c.
 */
#ifndef VW_DRIVER_SLOT_H
#define VW_DRIVER_SLOT_H

#include <time.h>

#include "driver/internal.h"

/* For the byte limit, which needs no more than this clock's few milliseconds. */
static inline uint64_t vw_tx_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void vw_tx_tell_done(struct vw_driver_pair *pair, void *token, int sent)
{
    const struct vw_net_options *options = &pair->net->options;

    if (options->tx_done)
        options->tx_done(options->tx_context, pair->index, token, sent);
}

/* Gives a slot back; returns the bytes that leave the byte limit. */
static VW_ALWAYS_INLINE uint32_t vw_tx_release_slot(struct vw_tx *tx, struct vw_tx_slot *slot)
{
    if (slot->flow)
        vw_flow_remove(slot->flow, slot->bytes);
    slot->in_use = false;
    tx->free[tx->free_count++] = slot;
    return slot->counted ? slot->bytes : 0;
}

static VW_ALWAYS_INLINE int vw_tx_add_slot(struct vw_tx *tx, struct vw_tx_slot *slot)
{
    return vw_unlikely(slot->urgent)
               ? vw_driver_ring_add_urgent(&tx->queue.ring, slot->segments, slot->segment_count, 0,
                                           slot)
               : vw_driver_ring_add(&tx->queue.ring, slot->segments, slot->segment_count, 0, slot);
}

/* The queue is stopped if there is no room, though no frame took it. */
void vw_tx_stop_if_full(struct vw_tx *tx);

/* The queue goes on if it was stopped and there is room. */
void vw_tx_wake_if_room(struct vw_tx *tx);

#endif
