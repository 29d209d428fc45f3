/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When transmitted frames are reaped, and who asks for calls: one row for each policy.
 *
 * Theory of operation
 * -------------------
 * A burst goes through five points, and a policy says what happens at each:
 *
 *   begin ........ calls off (deferred, delayed, scheduled: whoever sends does not need them);
 *                  reap (orphan, urgent, delayed)
 *   last ......... before the last frame of a burst that kicks: reap, arm for 3/4 of what is in
 *                  flight, again until nothing more is there (delayed)
 *   stop ......... no room for another frame: the burst kicks whatever `more` says
 *   kick ......... after it: arm for 3/4 of what is in flight; if so much is done already, schedule
 *                  the poll (deferred); schedule the poll, once (scheduled)
 *   stopped ...... after the kick: arm, or reap and go on (orphan, urgent); or have the poll do it
 *                  (delayed)
 *
 * and the poll reaps in each, but arms only in those where frames wait for it. The race rules:
 *
 *   - a queue that is stopped always kicks, and always comes to arming behind it; arming looks
 *     again, and if there is something to reap, reaps or has the poll scheduled
 *   - arming in front of the kick would be undone by the next burst of the same run, which
 *     switches calls off; so it comes after, and a run that ends without a kick, against the rule
 *     of `more`, has the poll scheduled, which kicks and arms
 *   - on a broken ring, arming says that all is well and reaping finds nothing: each loop ends
 *   - nobody arms for a caller that never sleeps, and for one that sleeps in vw_wait that alone
 * does
 */
#ifndef VW_DRIVER_POLICY_H
#define VW_DRIVER_POLICY_H

#include "driver/internal.h"

struct vw_tx_policy_rules {
    const char *name;
    bool owned;          /* frames stay in their flow, and in the byte limit, until completion */
    bool urgent;         /* marked frames do so, and ask for a call */
    bool calls_off;      /* begin */
    bool reap;           /* begin */
    bool reap_last;      /* last */
    bool arm_after_kick; /* kick */
    bool schedule;       /* kick */
    bool arm_stopped;    /* stopped */
    bool stopped_reaps;  /* stopped: else the poll is scheduled */
    bool poll_arms;      /* always; else only for a stopped queue */
};

extern const struct vw_tx_policy_rules vw_tx_policies[];

/* The points of a burst. begin is false if the queue is stopped, and stays as it is; without
 * frames, calls stay as they are. */
bool vw_tx_policy_begin(struct vw_driver_pair *pair, bool frames);
void vw_tx_policy_last(struct vw_driver_pair *pair);
void vw_tx_policy_end(struct vw_driver_pair *pair, bool kicked);

/* Does anybody wait for the completion of what is in flight? Then the poll has to arm. */
bool vw_tx_awaited(const struct vw_tx *tx);

#endif
