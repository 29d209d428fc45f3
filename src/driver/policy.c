/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver/policy.h"

const struct vw_tx_policy_rules vw_tx_policies[] = {
    [VW_TX_DEFERRED] = {.name = "deferred",
                        .owned = true,
                        .calls_off = true,
                        .arm_after_kick = true,
                        .poll_arms = true},
    [VW_TX_ORPHAN] = {.name = "orphan", .reap = true, .arm_stopped = true, .stopped_reaps = true},
    [VW_TX_URGENT] = {.name = "urgent",
                      .urgent = true,
                      .reap = true,
                      .arm_stopped = true,
                      .stopped_reaps = true},
    [VW_TX_DELAYED] = {.name = "delayed",
                       .owned = true,
                       .calls_off = true,
                       .reap = true,
                       .reap_last = true,
                       .arm_stopped = true,
                       .poll_arms = true},
    [VW_TX_SCHEDULED] = {.name = "scheduled",
                         .owned = true,
                         .calls_off = true,
                         .schedule = true,
                         .poll_arms = true},
};

/* A stopped queue has asked for its call already: switching it off here, burst after burst, would
 * leave it to the poll to ask again and again. */
bool vw_tx_policy_begin(struct vw_driver_pair *pair, bool frames)
{
    struct vw_tx *tx = &pair->tx;

    if (tx->rules->reap) {
        vw_tx_collect(pair);
        if (tx->armed && !tx->stopped && !tx->rules->poll_arms)
            vw_tx_disarm(tx);
    }
    if (tx->stopped)
        return false;
    if (tx->rules->calls_off && frames)
        vw_tx_disarm(tx);
    return true;
}

/*
 * What is in flight counts all frames but the last, so these become visible now; the kick that the
 * device wants for them waits for the last one.
 */
void vw_tx_policy_last(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;

    if (!tx->rules->reap_last || !pair->own_loop || tx->stopped)
        return;
    tx->kick_owed |= vw_driver_ring_publish(&tx->queue.ring);
    tx->held = 0;
    do {
        vw_tx_disarm(tx);
        vw_tx_collect(pair);
    } while (!vw_tx_arm_delayed(tx));
}

/*
 * Arms until nothing is left that would have to be reaped first. A place to be called at that was
 * passed while we reaped would never be passed again.
 */
static void arm_and_reap(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;

    while (!vw_tx_arm_delayed(tx)) {
        vw_tx_collect(pair);
        if (!tx->stopped) {
            vw_tx_disarm(tx);
            return;
        }
    }
}

void vw_tx_policy_end(struct vw_driver_pair *pair, bool kicked)
{
    struct vw_tx *tx = &pair->tx;
    const struct vw_tx_policy_rules *rules = tx->rules;

    if (!pair->own_loop)
        return;
    if (rules->schedule || (!kicked && rules->calls_off)) {
        vw_pair_schedule(pair);
    } else if (rules->arm_after_kick) {
        if (!vw_tx_arm_delayed(tx))
            vw_pair_schedule(pair);
    } else if (rules->arm_stopped && tx->stopped) {
        if (rules->stopped_reaps)
            arm_and_reap(pair);
        else if (!vw_tx_arm_delayed(tx))
            vw_pair_schedule(pair);
    }
}

bool vw_tx_awaited(const struct vw_tx *tx)
{
    return tx->rules->poll_arms || tx->stopped;
}
