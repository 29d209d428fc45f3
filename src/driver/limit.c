/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver/limit.h"

#include "base/bits.h"

static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void hold_anew(struct vw_byte_limit *limit, uint64_t now_ms)
{
    limit->least_surplus = UINT64_MAX;
    limit->hold_since = now_ms;
}

void vw_limit_init(struct vw_byte_limit *limit, uint64_t minimum, uint64_t maximum, uint64_t now_ms)
{
    *limit = (struct vw_byte_limit){.limit = minimum, .minimum = minimum, .maximum = maximum};
    hold_anew(limit, now_ms);
}

void vw_limit_forget(struct vw_byte_limit *limit, uint64_t now_ms)
{
    limit->queued = limit->completed = limit->round_start = 0;
    limit->round_overrun = limit->last_frame = 0;
    hold_anew(limit, now_ms);
}

/* Did the device run dry because of the limit, in this round or at the end of the last one? */
static bool starved(const struct vw_byte_limit *limit, uint64_t completed, uint64_t overrun)
{
    bool dry = completed == limit->queued;
    bool all_of_last = completed >= limit->round_start;

    return (overrun > 0 && dry) || (limit->round_overrun > 0 && all_of_last);
}

/*
 * The part of the limit that a round did not need. The device works off what one round completes
 * while the answer to the next completion is under way, so twice that amount keeps it busy. Where
 * the overrun was all one frame, the part of it within the limit was needed to let it in.
 */
static uint64_t surplus(const struct vw_byte_limit *limit, uint64_t bytes)
{
    uint64_t unused = above(limit->limit + limit->round_overrun, 2 * bytes);
    uint64_t of_frame =
        limit->round_overrun > 0 ? above(limit->last_frame, limit->round_overrun) : 0;

    return unused > of_frame ? unused : of_frame;
}

static void shrink(struct vw_byte_limit *limit, uint64_t spare, uint64_t now_ms)
{
    if (spare < limit->least_surplus)
        limit->least_surplus = spare;
    if (now_ms - limit->hold_since <= VW_LIMIT_HOLD_MS)
        return;
    limit->limit = above(limit->limit, limit->least_surplus);
    hold_anew(limit, now_ms);
}

void vw_limit_complete(struct vw_byte_limit *limit, uint64_t bytes, uint64_t now_ms)
{
    uint64_t before = limit->limit;
    uint64_t completed = limit->completed + bytes;
    uint64_t overrun = above(limit->queued - limit->completed, limit->limit);

    if (starved(limit, completed, overrun)) {
        limit->limit += above(completed, limit->round_start) + limit->round_overrun;
        hold_anew(limit, now_ms);
    } else if (completed < limit->queued && completed < limit->round_start) {
        shrink(limit, surplus(limit, bytes), now_ms);
    }
    if (limit->limit < limit->minimum)
        limit->limit = limit->minimum;
    if (limit->limit > limit->maximum)
        limit->limit = limit->maximum;
    limit->round_overrun = limit->limit == before ? overrun : 0;
    limit->round_start = limit->queued;
    limit->completed = completed;
}
