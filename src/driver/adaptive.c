/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adaptive coalescing: the limits of each receive queue follow its load.
 *
 * Theory of operation
 * -------------------
 * The control thread looks at the pairs' frame counters from time to time (a timer behind
 * vw_net_fd), and moderation.c chooses. A device with nothing to do is looked at less and less
 * often, down to once a second, so that an idle program stays idle.
 *
 * The commands are those of vw_set_coalescing for one queue (5.1.6.5.9), and a device that refuses
 * one, or does not answer, ends it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "driver/internal.h"
#include "driver/moderation.h"
#include "net/command.h"

/* Samples are long enough to count thousands of frames where it matters, short against what a user
 * calls a moment. */
#define SHORTEST_INTERVAL_MS 10u
#define LONGEST_INTERVAL_MS 1000u

struct vw_adaptive_pair {
    struct vw_moderation moderation;
    uint64_t frames; /* at the last sample */
};

static uint64_t frames_of(const struct vw_net *net, unsigned pair)
{
    return vw_shared_load(&net->pairs[pair].rx.counters.frames);
}

static int tell(struct vw_net *net, unsigned pair, const struct vw_net_coalescing *limits)
{
    struct vw_net_command command;
    int error = vw_net_command_queue_coalescing(&command, net->pairs[pair].rx.queue.index, limits);

    return error ? error : vw_driver_set(net, &command);
}

static void start_samples(struct vw_net *net)
{
    struct vw_adaptive *adaptive = &net->control.adaptive;

    for (unsigned i = 0; i < net->pair_count; i++)
        adaptive->pairs[i].frames = frames_of(net, i);
    adaptive->sampled_us = vw_clock_us();
    vw_driver_wake_after(net, adaptive->interval_ms);
}

void vw_adaptive_sample(struct vw_net *net)
{
    struct vw_adaptive *adaptive = &net->control.adaptive;
    uint64_t elapsed = vw_clock_us() - adaptive->sampled_us, all = 0;
    int error = 0;

    if (elapsed < SHORTEST_INTERVAL_MS * 1000 / 2) { /* woken for something else */
        vw_driver_wake_after(net, SHORTEST_INTERVAL_MS);
        return;
    }
    for (unsigned i = 0; i < net->pair_count && error == 0; i++) {
        struct vw_adaptive_pair *pair = &adaptive->pairs[i];
        uint64_t frames = frames_of(net, i) - pair->frames;

        all += frames;
        if (vw_moderation_sample(&pair->moderation, frames, elapsed))
            error = tell(net, i, vw_moderation_limits(pair->moderation.level));
    }
    if (error != 0 && error != -ENOTCONN) {
        vw_log(&net->log, VW_LOG_WARNING, "adaptive coalescing ends: %s", strerror(-error));
        adaptive->on = false;
        return;
    }
    adaptive->interval_ms = all > 0 ? SHORTEST_INTERVAL_MS
                            : 2 * adaptive->interval_ms < LONGEST_INTERVAL_MS
                                ? 2 * adaptive->interval_ms
                                : LONGEST_INTERVAL_MS;
    start_samples(net);
}

/* Off: back to a call for each frame. */
static int switch_off(struct vw_net *net)
{
    struct vw_adaptive *adaptive = &net->control.adaptive;
    int error = 0;

    adaptive->on = false;
    for (unsigned i = 0; i < net->pair_count && error == 0; i++)
        error = tell(net, i, vw_moderation_limits(0));
    return error;
}

int vw_set_adaptive_coalescing(struct vw_net *net, int on)
{
    struct vw_adaptive *adaptive = &net->control.adaptive;
    int error = 0;

    if (!net->control.queue.memory || !vw_has(net->features, VIRTIO_NET_F_VQ_NOTF_COAL))
        return -ENOTSUP;
    if (!on)
        return adaptive->on ? switch_off(net) : 0;
    if (adaptive->on)
        return 0;
    if (!adaptive->pairs)
        adaptive->pairs = calloc(net->pair_count, sizeof(*adaptive->pairs));
    if (!adaptive->pairs)
        return -ENOMEM;
    memset(adaptive->pairs, 0, net->pair_count * sizeof(*adaptive->pairs));
    for (unsigned i = 0; i < net->pair_count && error == 0; i++)
        error = tell(net, i, vw_moderation_limits(0)); /* whatever was set before */
    if (error != 0)
        return error;
    adaptive->on = true;
    adaptive->interval_ms = SHORTEST_INTERVAL_MS;
    start_samples(net);
    return 0;
}

void vw_adaptive_destroy(struct vw_net *net)
{
    free(net->control.adaptive.pairs);
}
