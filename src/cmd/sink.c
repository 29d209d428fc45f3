/* SPDX-License-Identifier: BSD-3-Clause */
/* `virtwire sink`: receives frames and checks those that are probes. */
#include <stddef.h>

#include "cmd/command.h"
#include "cmd/traffic.h"

/* With --count: has this queue pair had its share? */
static bool had_enough(const struct traffic_worker *worker, uint64_t share)
{
    return share != 0 && worker->received_frames >= share;
}

static void sink_run(struct traffic_worker *worker)
{
    const struct traffic *traffic = worker->traffic;
    uint64_t share = traffic->options.count / traffic->worker_count +
                     (worker->pair < traffic->options.count % traffic->worker_count);

    while (!traffic_ends(worker) && !had_enough(worker, share)) {
        int received = traffic_poll(worker, traffic_check);

        if (received < 0)
            return;
        if (received == 0)
            traffic_wait(worker, TRAFFIC_PATIENCE_MS);
    }
}

static const char help[] =
    "usage: virtwire sink --socket-path=PATH [OPTION...]\n"
    "\n"
    "Receives frames from a virtio-net device, as a guest's driver would. Probe frames (from\n"
    "virtwire pktgen or virtwire device --port source) are checked: what was lost, reordered,\n"
    "duplicated or corrupted is counted for each flow; a flow must keep to one queue pair. Ends\n"
    "with a summary, at Ctrl-C or at --duration or --count.\n"
    "\n"
    "frames:\n"
    "  --burst=N             frames taken at a time in poll mode, 1 to 256 (32)\n"
    "  --duration=S          seconds to receive (until Ctrl-C)\n"
    "  --count=N             frames to receive in all, the same share from each queue pair\n";

static const struct traffic_role role = {
    .name = "sink",
    .help = help,
    .run = sink_run,
};

int command_sink(int argc, char **argv)
{
    return traffic_main(&role, argc, argv);
}
