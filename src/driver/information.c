/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program may ask about its device, and the memory that both see. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "driver/internal.h"

void vw_net_info(const struct vw_net *net, struct vw_net_info *info)
{
    const struct vw_rx *rx = &net->pairs[0].rx;
    const struct vw_rx_shape *shape = &rx->shape;

    *info = (struct vw_net_info){
        .features = net->features,
        .queue_pairs = net->pair_count,
        .max_queue_pairs = net->max_pairs,
        .mtu = net->mtu,
        .has_mac = vw_has(net->features, VIRTIO_NET_F_MAC),
        .link_up = net->config.link_up,
        .packed = vw_has(net->features, VIRTIO_F_RING_PACKED),
        .rx_mode = shape->mode,
        .header_size = net->header_size,
        .rx_buffer_descriptors = rx->flat ? 1 : shape->descriptors,
        .rx_buffer_bytes = shape->mode == VW_RX_MERGEABLE
                               ? vw_rx_mergeable_bytes(shape, &rx->average)
                               : shape->bytes,
        .rx_ring_buffers = rx->queue.size / vw_rx_entries(rx),
        .connected = net->connected,
    };
    memcpy(info->mac, net->config.mac, sizeof(info->mac));
}

#define COPY(name, text) to->name = vw_shared_load(&from->name);

static void copy_tx(struct vw_tx_counters *to, const struct vw_tx_counters *from)
{
    VW_TX_COUNTERS(COPY)
}

static void copy_rx(struct vw_rx_counters *to, const struct vw_rx_counters *from)
{
    VW_RX_COUNTERS(COPY)
}

void vw_counters(const struct vw_net *net, unsigned index, struct vw_tx_counters *transmit,
                 struct vw_rx_counters *receive)
{
    const struct vw_driver_pair *pair = vw_pair_of(net, index);

    if (!pair)
        return;
    if (transmit)
        copy_tx(transmit, &pair->tx.counters);
    if (receive)
        copy_rx(receive, &pair->rx.counters);
}

const char *vw_queue_error(const struct vw_net *net, unsigned index)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);

    if (!pair)
        return NULL;
    if (vw_shared_acquire(&pair->rx.queue.broken))
        return pair->rx.queue.why;
    return vw_shared_acquire(&pair->tx.queue.broken) ? pair->tx.queue.why : NULL;
}

/* ---- memory ---- */

void *vw_alloc(struct vw_net *net, size_t size)
{
    return vw_shared_alloc(&net->shared, size);
}

void vw_free(struct vw_net *net, void *memory)
{
    vw_shared_free(&net->shared, memory);
}

/* Pairs read the ranges without a lock: one is complete before the count says that it is there. */
int vw_memory_share(struct vw_net *net, int fd, uint64_t offset, void *address, size_t size)
{
    struct vw_transport *transport = net->transport;
    unsigned count = net->range_count;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (size == 0 || ((uintptr_t)address | offset | size) % page != 0 ||
        (uintptr_t)address + size < (uintptr_t)address)
        return -EINVAL;
    /* A device takes no memory twice, and would not when it is back either. */
    for (unsigned i = 0; i < count; i++)
        if ((uintptr_t)address < net->ranges[i].start + net->ranges[i].size &&
            net->ranges[i].start < (uintptr_t)address + size)
            return -EEXIST;
    if (count == VW_MAX_RANGES)
        return -ENOSPC;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return -errno;
    int error = net->connected ? transport->ops->share(transport, own, offset, address, size) : 0;
    if (error != 0) {
        close(own);
        return vw_driver_fail(net, error, "sharing memory: %s", transport->why);
    }
    net->ranges[count] = (struct vw_memory_range){
        .start = (uintptr_t)address, .size = size, .offset = offset, .fd = own};
    atomic_store_explicit(&net->range_count, count + 1, memory_order_release);
    return 0;
}
