/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many calls a receive queue is to make, chosen by its load. Pure.
 *
 * Theory of operation
 * -------------------
 * A call costs the same whether one frame or fifty wait behind it. At a low rate each frame should
 * have its own, for the sake of latency; at a high one a call for many frames costs no latency that
 * anybody would notice. So there is a ladder of limits, each rung with the rate of frames from
 * which it holds.
 *
 * Rates flicker, and each change is a command that stops the device for a moment. Hence: up, one
 * rung at a time, and only when two samples in a row ask for it; down, when the rate is a quarter
 * below the rung's own, but then as far as the rate says, since a flow that has slowed down waits
 * for every frame.
 */
#ifndef VW_DRIVER_MODERATION_H
#define VW_DRIVER_MODERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "net/control.h"

#define VW_MODERATION_LEVELS 5

struct vw_moderation {
    unsigned level; /* 0: a call for each frame */
    bool rising;    /* the last sample asked for more */
};

/* Takes a sample: frames in so many microseconds. True if the level changed. */
bool vw_moderation_sample(struct vw_moderation *moderation, uint64_t frames, uint64_t usecs);

const struct vw_net_coalescing *vw_moderation_limits(unsigned level);

#endif
