/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runners for a pair whose device writes to a TAP in a network namespace of its own, where each
 * frame is dropped: by the host's stack, or before it by an XDP program.
 */
#include <stdlib.h>
#include <unistd.h>

#include "bench/lanes.h"
#include "bench/network.h"
#include "bench/process.h"

struct lane {
    struct bench_pair_parameters parameters;
    int network;
    struct bench_pair *pair;
    struct bench_process *dropper; /* NULL: the stack drops */
};

static void lane_close(void *state)
{
    struct lane *lane = state;

    bench_pair_end(lane->pair);
    bench_process_end(lane->dropper);
    if (lane->network >= 0)
        close(lane->network);
    free(lane);
}

static int start_dropper(struct bench_context *context, struct lane *lane)
{
    char *name = bench_format("dropper%u", ++context->serial);

    lane->dropper = bench_process_run(context, name, context->options->cores[1], lane->network,
                                      "virtwire bench xdp-drop host0");
    free(name);
    return lane->dropper == NULL ? -1 : bench_wait_for_text(context, lane->dropper, "dropping");
}

static int lane_start(struct bench_context *context, struct bench_variant *variant,
                      struct lane *lane, bool drop)
{
    lane->network = bench_network_open(context);
    if (lane->network < 0)
        return -1;
    lane->parameters.device_network = &lane->network;
    lane->pair = bench_pair_start(context, variant, &lane->parameters);
    if (lane->pair == NULL)
        return -1;
    return drop ? start_dropper(context, lane) : 0;
}

static int lane_open(struct bench_context *context, struct bench_variant *variant, void **state,
                     bool drop)
{
    struct lane *lane = bench_allocate(sizeof(*lane));

    lane->parameters = *(const struct bench_pair_parameters *)variant->parameters;
    if (lane_start(context, variant, lane, drop) < 0) {
        lane_close(lane);
        return -1;
    }
    bench_pair_stop(lane->pair);
    *state = lane;
    return 0;
}

static int open_to_stack(struct bench_context *context, struct bench_variant *variant, void **state)
{
    return lane_open(context, variant, state, false);
}

static int open_to_dropper(struct bench_context *context, struct bench_variant *variant,
                           void **state)
{
    return lane_open(context, variant, state, true);
}

static int lane_slice(struct bench_context *context, void *state, double seconds,
                      struct bench_sample *sample)
{
    return bench_pair_runner.slice(context, ((struct lane *)state)->pair, seconds, sample);
}

const struct bench_runner bench_tap_runner = {
    .open = open_to_stack,
    .slice = lane_slice,
    .close = lane_close,
};

const struct bench_runner bench_drop_runner = {
    .open = open_to_dropper,
    .slice = lane_slice,
    .close = lane_close,
};
