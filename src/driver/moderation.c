/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver/moderation.h"

/*
 * Each rung waits for about as many frames as come within its time at the rate where it begins: 2,
 * 8, 25 and, bounded by what a ring of 256 holds, 128. The longest time stays near what a sleeping
 * receiver needs to wake up. These are reasoned, not measured.
 */
static const struct {
    uint64_t from; /* frames a second */
    struct vw_net_coalescing limits;
} ladder[VW_MODERATION_LEVELS] = {
    {0, {0, 0}}, {50000, {16, 32}}, {150000, {32, 48}}, {400000, {64, 64}}, {1000000, {128, 128}},
};

const struct vw_net_coalescing *vw_moderation_limits(unsigned level)
{
    return &ladder[level < VW_MODERATION_LEVELS ? level : 0].limits;
}

static unsigned level_for(uint64_t rate)
{
    unsigned level = VW_MODERATION_LEVELS - 1;

    while (rate < ladder[level].from)
        level--;
    return level;
}

bool vw_moderation_sample(struct vw_moderation *moderation, uint64_t frames, uint64_t usecs)
{
    unsigned level = moderation->level;

    if (usecs == 0)
        return false;
    /* No device delivers 10^12 frames between two samples; a counter that says so must not wrap. */
    if (frames > UINT64_C(1000000000000))
        frames = UINT64_C(1000000000000);
    uint64_t rate = frames * 1000000 / usecs;
    unsigned wanted = level_for(rate);
    bool rising = wanted > level;

    if (rising && moderation->rising)
        moderation->level++;
    else if (wanted < level && rate < ladder[level].from / 4 * 3)
        moderation->level = wanted;
    /* After a step up, two samples more are needed for the next one. */
    moderation->rising = rising && moderation->level == level;
    return moderation->level != level;
}
