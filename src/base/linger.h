/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long to go on looking when there is nothing to do, before a sleep. Pure: the caller tells the
 * time.
 *
 * Theory of operation
 * -------------------
 * A sleep and its wake-up cost both sides tens of microseconds, so it pays to look a little longer,
 * if work comes soon. Looking for as long as a sleep would cost is never worse than twice the best;
 * to do better, the last gaps are remembered: the time between running out of work and the next
 * work, whether it was slept through or not. While at least half of them, the latest counting most,
 * ended within the limit, the caller lingers; otherwise it sleeps at once.
 *
 *   goes_on .... nothing was found: look once more?
 *   sleeps ..... it did not go on, and is about to sleep
 *   found ...... there was work; for the gap that goes_on began
 *
 * A gap that was slept through is longer than it would have been: the wake-up is taken off.
 */
#ifndef VW_BASE_LINGER_H
#define VW_BASE_LINGER_H

#include <stdbool.h>
#include <stdint.h>

/* A bare wake-up through an eventfd takes 50 us in the median, 88 us at the 99th percentile
 * (bench/sleeping tells what it is on a machine). */
#define VW_LINGER_WAKE_NS 50000

/* All gaps were short; a gap moves what is remembered by an eighth. */
#define VW_LINGER_ALL 256

struct vw_linger {
    uint64_t limit_ns;
    uint64_t since; /* when work ran out; 0: it did not */
    int32_t share;  /* of gaps that ended within the limit, of VW_LINGER_ALL */
    bool lingered, slept;
};

/* `limit_ns` 0: never lingers. */
static inline void vw_linger_init(struct vw_linger *linger, uint64_t limit_ns)
{
    *linger = (struct vw_linger){.limit_ns = limit_ns, .share = VW_LINGER_ALL};
}

/* The gap ended for a reason that says nothing. */
static inline void vw_linger_forget(struct vw_linger *linger)
{
    linger->since = 0;
    linger->lingered = linger->slept = false;
}

/* Have enough of the last gaps been short? */
static inline bool vw_linger_pays(const struct vw_linger *linger)
{
    return linger->share >= VW_LINGER_ALL / 2 && linger->limit_ns > 0;
}

static inline bool vw_linger_goes_on(struct vw_linger *linger, uint64_t now)
{
    if (linger->since == 0)
        linger->since = now;
    if (linger->slept || !vw_linger_pays(linger) || now - linger->since >= linger->limit_ns)
        return false;
    linger->lingered = true;
    return true;
}

/* Returns true if lingering was in vain. */
static inline bool vw_linger_sleeps(struct vw_linger *linger)
{
    bool vain = linger->lingered && !linger->slept;

    linger->slept = true;
    return vain;
}

/* Returns true if it was found by lingering. */
static inline bool vw_linger_found(struct vw_linger *linger, uint64_t now)
{
    uint64_t allowed = linger->limit_ns + (linger->slept ? VW_LINGER_WAKE_NS : 0);
    bool lingered = linger->lingered && !linger->slept;

    if (linger->since == 0)
        return false;
    int32_t aim = now - linger->since <= allowed ? VW_LINGER_ALL : 0;
    linger->share += (aim - linger->share) / 8;
    vw_linger_forget(linger);
    return lingered;
}

#endif
