/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of frames in flight when their device is lost.
 *
 * Theory of operation
 * -------------------
 * Slots remember the order of sending and all segments, in private memory. So what the lost device
 * had not completed is given to its successor once more, in the same order; or, if there is to be
 * none, told as not sent. Here the pair is down: no other thread touches it, and no lock is held
 * while tx_done runs.
 */
#include <stdlib.h>

#include "driver/slot.h"

static int by_number(const void *a, const void *b)
{
    const struct vw_tx_slot *const *first = a, *const *second = b;

    return (int32_t)((*first)->number - (*second)->number) < 0 ? -1 : 1;
}

/* All slots in use, oldest first; the room is behind the free ones in the same array. */
static unsigned sort_in_flight(struct vw_tx *tx, struct vw_tx_slot **sorted)
{
    unsigned count = 0;

    for (unsigned i = 0; i < tx->queue.size; i++)
        if (tx->slots[i].in_use)
            sorted[count++] = &tx->slots[i];
    qsort(sorted, count, sizeof(struct vw_tx_slot *), by_number);
    return count;
}

void vw_tx_resend(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_tx_slot **sorted = tx->free + tx->free_count;
    unsigned count = sort_in_flight(tx, sorted);

    for (unsigned i = 0; i < count; i++)
        if (vw_tx_add_slot(tx, sorted[i]) == 0) /* they fitted into the same ring before */
            tx->held++;
    vw_tx_flush(pair);
}

void vw_tx_lose_all(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_tx_slot **sorted = tx->free + tx->free_count;
    unsigned count = sort_in_flight(tx, sorted);

    for (unsigned i = 0; i < count; i++) {
        struct vw_tx_slot *slot = sorted[i]; /* vw_tx_release_slot writes it where it is already */

        vw_tx_release_slot(tx, slot);
        vw_tx_tell_done(pair, slot->token, 0);
    }
    vw_counter_add(&tx->counters.drop_lost, count);
    vw_limit_forget(&tx->limit, vw_tx_now_ms());
    vw_tx_wake_if_room(tx);
}
