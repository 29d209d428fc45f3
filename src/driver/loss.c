/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of frames in flight when their device is lost.
 *
 * Theory of operation
 * -------------------
 * Slots remember the order of sending and all segments, in private memory. So what the lost device
 * had not completed is given to its successor once more, in the same order; or, if there is to be
 * none, told as not sent.
 *
 * The control thread learns of the loss, but tx_done belongs to the pair's thread, which may have a
 * list of free buffers without any lock. So what is to be told is kept in `returned`, oldest first,
 * and still counts as in flight until the pair's thread asks (vw_tx_reap, vw_poll).
 */
#include <stdlib.h>

#include "driver/slot.h"

static int by_number(const void *a, const void *b)
{
    const struct vw_tx_slot *const *first = a, *const *second = b;

    return (int32_t)((*first)->number - (*second)->number) < 0 ? -1 : 1;
}

/* All slots that the device has, oldest first. */
static unsigned sort_in_flight(struct vw_tx *tx, struct vw_tx_slot **sorted)
{
    unsigned count = 0;

    for (unsigned i = 0; i < tx->queue.size; i++)
        if (tx->slots[i].in_use)
            sorted[count++] = &tx->slots[i];
    qsort(sorted, count, sizeof(struct vw_tx_slot *), by_number);
    return count;
}

static void give_back(struct vw_tx *tx, struct vw_tx_slot *slot, bool sent)
{
    slot->in_use = false;
    slot->sent = sent;
    tx->returned[tx->returned_count++] = slot;
}

void vw_tx_salvage(struct vw_driver_pair *pair)
{
    struct vw_completion done;
    struct vw_tx *tx = &pair->tx;

    while (vw_driver_ring_reap(&tx->queue.ring, &done, 1) == 1)
        give_back(tx, done.token, true);
}

/* The array has room: what is free, returned and in flight is together as many as there are. */
void vw_tx_resend(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_tx_slot **sorted = tx->returned + tx->returned_count;
    unsigned count = sort_in_flight(tx, sorted);

    for (unsigned i = 0; i < count; i++)
        if (vw_tx_add_slot(tx, sorted[i]) == 0) /* they fitted into the same ring before */
            tx->held++;
    vw_tx_flush(pair);
    vw_tx_wake_if_room(tx);
    vw_tx_stop_if_full(tx);
}

void vw_tx_lose_all(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_tx_slot **sorted = tx->returned + tx->returned_count;
    unsigned count = sort_in_flight(tx, sorted);

    for (unsigned i = 0; i < count; i++)
        give_back(tx, sorted[i], false); /* where it is already */
    vw_counter_add(&tx->counters.drop_lost, count);
}

unsigned vw_tx_tell_returned(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    unsigned count = tx->returned_count, sent = 0;
    struct vw_in_done record;
    uint64_t bytes = 0;

    if (count == 0)
        return 0;
    vw_done_begin(pair, &record);
    for (unsigned i = 0; i < count; i++) {
        struct vw_tx_slot *slot = tx->returned[i];

        bytes += vw_tx_release_slot(tx, slot);
        sent += slot->sent;
        vw_tx_tell_done(pair, slot->token, slot->sent);
    }
    tx->returned_count = 0;
    vw_done_end(pair, &record);
    vw_counter_add(&tx->counters.reaped, sent);
    if (bytes > 0)
        vw_limit_complete(&tx->limit, bytes, vw_tx_now_ms());
    if (!vw_pair_is_down(pair)) /* else its ring is the control thread's */
        vw_tx_wake_if_room(tx);
    return count;
}
