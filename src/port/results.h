/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to src/port: the results of transmitted frames, waiting for the device to ask.
 *
 * A synchronous port knows how a frame fared inside transmit, while the device learns it from
 * complete, in the order of transmit. Here the results wait in between. Both ends are the worker
 * of the queue.
 */
#ifndef VW_PORT_RESULTS_H
#define VW_PORT_RESULTS_H

#include "base/bits.h"
#include "port/port.h"

/* Four batches: a device that completes after each transmit never meets the limit. */
#define VW_PORT_RESULTS (4 * VW_PORT_BATCH)

struct vw_port_results {
    uint32_t added; /* both free-running: added - taken are waiting */
    uint32_t taken;
    uint8_t ring[VW_PORT_RESULTS];
};

_Static_assert((VW_PORT_RESULTS & (VW_PORT_RESULTS - 1)) == 0, "free-running indices wrap");

static inline bool vw_port_results_full(const struct vw_port_results *results)
{
    return results->added - results->taken >= VW_PORT_RESULTS;
}

/* Adds the result of one frame and counts it. The caller looked whether there is room. */
static inline void vw_port_results_add(struct vw_port_results *results, struct vw_port_queue *queue,
                                       enum vw_port_result result)
{
    results->ring[results->added++ % VW_PORT_RESULTS] = (uint8_t)result;
    switch (result) {
    case VW_PORT_SENT:
        vw_port_count(&queue->counters.transmit_sent);
        break;
    case VW_PORT_REFUSED:
        vw_port_count(&queue->counters.transmit_refused);
        break;
    case VW_PORT_DOWN:
        vw_port_count(&queue->counters.transmit_down);
        break;
    case VW_PORT_GONE:
        vw_port_count(&queue->counters.transmit_gone);
        break;
    case VW_PORT_FAILED:
    case VW_PORT_RESULT_COUNT:
        vw_port_count(&queue->counters.transmit_failed);
        break;
    }
}

/* The body of every synchronous port's complete. */
static inline uint32_t vw_port_results_take(struct vw_port_results *waiting,
                                            enum vw_port_result *results, uint32_t max)
{
    uint32_t count = 0;

    while (count < max && waiting->taken != waiting->added)
        results[count++] = (enum vw_port_result)waiting->ring[waiting->taken++ % VW_PORT_RESULTS];
    return count;
}

#endif
