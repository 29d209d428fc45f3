/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic limit of the bytes that a transmit queue has in flight.
 *
 * Theory of operation
 * -------------------
 * A ring of 256 entries holds 16 MB of segmentation-offload frames, seconds of work for a slow
 * device, in front of a frame that is urgent. The right number of bytes is just so many that the
 * device never runs dry between two completions; it depends on the device, on the frames and on
 * how often completions are looked for, so it is found while running:
 *
 *   The queue may take frames while what is in flight does not exceed the limit (the frame that
 *   passes it is still taken). Completions end a *round*.
 *
 *   starved ... the limit held frames back and then the device ran dry: all that was in flight was
 *               completed. It could have used more, so the limit grows by what was completed
 *               beyond what was there when the round began, and by what it was overrun.
 *   slack ..... the device was busy all through the round, and bytes from the beginning of the
 * round are still in flight: half of the limit would have been enough to cover what one round
 * completes. How much of the limit was never needed is noted; when the least such surplus of a
 * whole VW_LIMIT_HOLD_MS is above zero, the limit shrinks by it.
 *
 * Growth is at once and shrinking is slow, since a limit too small costs rate and a limit too
 * large only costs latency. Without memory or time of its own: the caller tells the time.
 */
#ifndef VW_DRIVER_LIMIT_H
#define VW_DRIVER_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* How long a surplus must last. Long against the pauses of a bursty sender, as in Linux: 1 s. */
#define VW_LIMIT_HOLD_MS 1000

struct vw_byte_limit {
    uint64_t limit;
    uint64_t queued, completed; /* bytes, since the beginning */
    uint64_t round_start;       /* `queued` at the last completion */
    uint64_t round_overrun;     /* by how much the limit was exceeded then */
    uint64_t last_frame;        /* bytes of the frame that was queued last */
    uint64_t least_surplus;     /* of the rounds since hold_since; UINT64_MAX: no such round */
    uint64_t hold_since;        /* ms */
    uint64_t minimum, maximum;
};

/* Starts with a limit of `minimum`, which may be 0: one frame is always taken. */
void vw_limit_init(struct vw_byte_limit *limit, uint64_t minimum, uint64_t maximum,
                   uint64_t now_ms);

static inline uint64_t vw_limit_in_flight(const struct vw_byte_limit *limit)
{
    return limit->queued - limit->completed;
}

/* May another frame be queued? */
static inline bool vw_limit_open(const struct vw_byte_limit *limit)
{
    return vw_limit_in_flight(limit) <= limit->limit;
}

static inline void vw_limit_queue(struct vw_byte_limit *limit, uint64_t bytes)
{
    limit->queued += bytes;
    limit->last_frame = bytes;
}

/* `bytes` that were queued are completed. Not more than are in flight. */
void vw_limit_complete(struct vw_byte_limit *limit, uint64_t bytes, uint64_t now_ms);

/* All that is in flight was lost: starts again, with the limit that was found. */
void vw_limit_forget(struct vw_byte_limit *limit, uint64_t now_ms);

#endif
