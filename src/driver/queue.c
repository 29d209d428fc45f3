/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring, its memory, its notifications, and what broke it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + VW_CACHE_LINE - 1) & ~(uint64_t)(VW_CACHE_LINE - 1);
}

static enum vw_ring_format format_of(const struct vw_net *net)
{
    return vw_has(net->features, VIRTIO_F_RING_PACKED) ? VW_RING_PACKED : VW_RING_SPLIT;
}

/* What the driver writes and what the device writes never share a cache line. */
static uint64_t lay_out(const struct vw_net *net, unsigned size, unsigned segments,
                        uint64_t areas[3], uint64_t *tables)
{
    uint64_t at = 0;

    for (enum vw_ring_area area = VW_RING_DESCRIPTOR_AREA; area <= VW_RING_DEVICE_AREA; area++) {
        areas[area] = at;
        at += round_up(vw_ring_area_size(format_of(net), area, size));
    }
    *tables = at;
    return at + round_up((uint64_t)size * segments * 16);
}

static unsigned table_segments(const struct vw_net *net, unsigned segments)
{
    return vw_has(net->features, VIRTIO_RING_F_INDIRECT_DESC) ? segments : 0;
}

uint64_t vw_driver_queue_bytes(const struct vw_net *net, unsigned size, unsigned segments)
{
    uint64_t areas[3], tables;

    return lay_out(net, size, table_segments(net, segments), areas, &tables);
}

int vw_driver_queue_create(struct vw_net *net, struct vw_driver_queue *queue, unsigned index,
                           unsigned size, unsigned segments)
{
    *queue = (struct vw_driver_queue){
        .net = net, .index = index, .size = size, .segments = table_segments(net, segments)};
    if (!vw_ring_size_valid(format_of(net), size))
        return vw_driver_fail(net, -EINVAL, "%u is no size for a %s ring: %s", size,
                              format_of(net) == VW_RING_PACKED ? "packed" : "split",
                              format_of(net) == VW_RING_PACKED
                                  ? "choose 1 to 32768"
                                  : "choose a power of two, at most 32768");
    uint64_t bytes = lay_out(net, size, queue->segments, queue->areas, &queue->tables);
    queue->memory = vw_shared_alloc(&net->shared, bytes);
    queue->state = aligned_alloc(16, (vw_driver_ring_state_size(size) + 15) & ~(size_t)15);
    if (!queue->memory || !queue->state) {
        vw_driver_queue_destroy(queue);
        return vw_driver_fail(net, -ENOMEM, "no memory for a ring of %u entries", size);
    }
    return 0;
}

void vw_driver_queue_destroy(struct vw_driver_queue *queue)
{
    free(queue->state);
    if (queue->memory)
        vw_shared_free(&queue->net->shared, queue->memory);
    queue->state = NULL;
    queue->memory = NULL;
}

static struct vw_ring_config config_of(const struct vw_driver_queue *queue)
{
    return (struct vw_ring_config){
        .format = format_of(queue->net),
        .size = queue->size,
        .features = queue->net->features,
        .descriptor_area = queue->memory + queue->areas[VW_RING_DESCRIPTOR_AREA],
        .driver_area = queue->memory + queue->areas[VW_RING_DRIVER_AREA],
        .device_area = queue->memory + queue->areas[VW_RING_DEVICE_AREA]};
}

int vw_driver_queue_begin(struct vw_driver_queue *queue)
{
    struct vw_ring_config config = config_of(queue);
    const struct vw_indirect_tables tables = {.memory = queue->memory + queue->tables,
                                              .address = (uintptr_t)(queue->memory + queue->tables),
                                              .segments = queue->segments};

    vw_shared_store(&queue->broken, false);
    return vw_driver_ring_init(&queue->ring, &config, queue->state,
                               queue->segments ? &tables : NULL);
}

/* A fresh ring: packed, both positions 0 and both wrap counters 1. */
int vw_driver_queue_tell(struct vw_driver_queue *queue)
{
    struct vw_transport *transport = queue->net->transport;
    const struct vw_transport_queue told = {
        .index = queue->index,
        .ring = config_of(queue),
        .base = format_of(queue->net) == VW_RING_PACKED ? 0x80008000u : 0};

    return transport->ops->set_queue(transport, &told);
}

void vw_driver_queue_break(struct vw_driver_queue *queue, const char *why)
{
    if (queue->broken)
        return;
    snprintf(queue->why, sizeof(queue->why), "queue %u: %s", queue->index, why);
    if (queue->ring.error == VW_RING_OK) /* so that every loop over it ends */
        queue->ring.error = VW_RING_BAD_USED_LENGTH;
    vw_shared_release(&queue->broken, true);
    vw_log(&queue->net->log, VW_LOG_ERROR, "%s; it is out of use until the device is set up again",
           queue->why);
}

bool vw_driver_queue_broken(struct vw_driver_queue *queue)
{
    if (vw_likely(queue->ring.error == VW_RING_OK))
        return false;
    vw_driver_queue_break(queue, vw_ring_error_text(queue->ring.error));
    return true;
}

void vw_driver_queue_publish(struct vw_driver_queue *queue, uint64_t *kicks)
{
    struct vw_transport *transport = queue->net->transport;

    if (!vw_driver_ring_publish(&queue->ring))
        return;
    transport->ops->kick(transport, queue->index);
    if (kicks)
        vw_counter_add(kicks, 1);
}
