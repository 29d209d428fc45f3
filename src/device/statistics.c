/* SPDX-License-Identifier: BSD-3-Clause */
/* Snapshots for people and programs. Counters go on changing while they are read, one by one. */
#include "device/internal.h"

void vw_device_statistics(const struct vw_device *device, struct vw_device_statistics *statistics)
{
    *statistics = (struct vw_device_statistics){
        .connected = device->connected,
        .offered = device->offered,
        .acknowledged = device->acknowledged,
        .protocol = device->protocol,
        .pairs = device->pair_count,
        .active_pairs = device->rules.active_pairs,
        .queue_count = 2 * device->pair_count + 1,
        .worker_count = device->worker_count,
        .link_up = device->config.link_up,
        .counters = device->counters,
    };
}

void vw_device_queue_statistics(const struct vw_device *device, unsigned index,
                                struct vw_queue_statistics *statistics)
{
    static const char *const roles[] = {"receive", "transmit", "control"};
    const struct vw_queue *queue = &device->queues[index];
    enum vw_ring_error error =
        queue->live ? __atomic_load_n(&queue->broken_told, __ATOMIC_RELAXED) : VW_RING_OK;

    *statistics = (struct vw_queue_statistics){
        .role = roles[queue->role],
        .index = queue->index,
        .size = queue->size,
        .started = queue->started,
        .enabled = queue->enabled,
        .live = queue->live,
        .broken = error != VW_RING_OK ? vw_ring_error_text(error) : NULL,
    };
#define COPY(name, text) statistics->counters.name = vw_counter(&queue->counters.name);
    VW_QUEUE_COUNTERS(COPY)
#undef COPY
    for (unsigned i = 0; i < VW_NET_HEADER_ERROR_COUNT; i++)
        statistics->header_errors[i] = vw_counter(&queue->header_errors[i]);
}

void vw_device_worker_counters(const struct vw_device *device, unsigned index,
                               struct vw_worker_counters *counters)
{
#define COPY(name, text) counters->name = vw_counter(&device->workers[index].counters.name);
    VW_WORKER_COUNTERS(COPY)
#undef COPY
}
