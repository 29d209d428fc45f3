/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP port's configuration: offloads, queues, link state, the end. The control thread's part;
 * what the workers do is in tap.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "port/tap.h"

/* A device without segmentation offloads is 0; those that need another one follow it. */
static unsigned offload_flags(uint64_t features)
{
    unsigned flags = 0;

    if (!vw_has(features, VIRTIO_NET_F_GUEST_CSUM))
        return 0; /* every other one needs it (virtio 1.3, section 5.1.3.1) */
    flags |= TUN_F_CSUM;
    if (vw_has(features, VIRTIO_NET_F_GUEST_TSO4))
        flags |= TUN_F_TSO4;
    if (vw_has(features, VIRTIO_NET_F_GUEST_TSO6))
        flags |= TUN_F_TSO6;
    if (vw_has(features, VIRTIO_NET_F_GUEST_ECN) && (flags & (TUN_F_TSO4 | TUN_F_TSO6)) != 0)
        flags |= TUN_F_TSO_ECN;
    /* The kernel knows one kind of UDP segment for both, and takes them only together. */
    if (vw_has(features, VIRTIO_NET_F_GUEST_USO4) && vw_has(features, VIRTIO_NET_F_GUEST_USO6))
        flags |= VW_TUN_F_USO4 | VW_TUN_F_USO6;
    return flags;
}

static uint64_t offload_features(unsigned flags)
{
    static const struct {
        unsigned flag;
        unsigned feature;
    } pairs[] = {
        {TUN_F_CSUM, VIRTIO_NET_F_GUEST_CSUM},    {TUN_F_TSO4, VIRTIO_NET_F_GUEST_TSO4},
        {TUN_F_TSO6, VIRTIO_NET_F_GUEST_TSO6},    {TUN_F_TSO_ECN, VIRTIO_NET_F_GUEST_ECN},
        {VW_TUN_F_USO4, VIRTIO_NET_F_GUEST_USO4}, {VW_TUN_F_USO6, VIRTIO_NET_F_GUEST_USO6},
    };
    uint64_t features = 0;

    for (unsigned i = 0; i < VW_ARRAY_SIZE(pairs); i++) {
        if ((flags & pairs[i].flag) != 0)
            features |= vw_bit(pairs[i].feature);
    }
    return features;
}

int64_t vw_tap_set_offloads(int fd, uint64_t features)
{
    /* The newest first, and nothing last. */
    static const unsigned given_up[] = {
        0,
        VW_TUN_F_USO4 | VW_TUN_F_USO6,
        VW_TUN_F_USO4 | VW_TUN_F_USO6 | TUN_F_TSO_ECN,
        VW_TUN_F_USO4 | VW_TUN_F_USO6 | TUN_F_TSO_ECN | TUN_F_TSO4 | TUN_F_TSO6,
        ~0U,
    };
    unsigned wanted = offload_flags(features);

    for (unsigned i = 0; i < VW_ARRAY_SIZE(given_up); i++) {
        unsigned flags = wanted & ~given_up[i];

        if (ioctl(fd, TUNSETOFFLOAD, (unsigned long)flags) == 0)
            return (int64_t)offload_features(flags);
        if (errno != EINVAL)
            break;
    }
    return -errno;
}

int64_t vw_tap_set_guest_offloads(struct vw_port *port, uint64_t features)
{
    /* They belong to the interface, not to the queue. */
    int64_t result =
        vw_tap_set_offloads(vw_tap_queue_of(port->queues[0])->fd, features & port->features);

    return result == -EBADFD ? -ENODEV : result;
}

static int set_attached(struct vw_tap_queue *tap, bool attached)
{
    struct ifreq request = {
        .ifr_flags = attached ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE,
    };

    if (tap->attached == attached)
        return 0;
    if (ioctl(tap->fd, TUNSETQUEUE, &request) < 0)
        return errno == EBADFD ? -ENODEV : -errno;
    tap->attached = attached;
    vw_tap_received_discard(&tap->received); /* lost, like what waits in the kernel */
    return 0;
}

/*
 * The kernel numbers attached queues without gaps, moving the last one into a hole: detaching from
 * the end and attaching from the front keeps its numbers equal to ours.
 */
int vw_tap_set_active_queues(struct vw_port *port, unsigned count)
{
    int result = 0;

    if (count < 1 || count > port->queue_count)
        return -EINVAL;
    for (unsigned i = port->queue_count; i > count && result == 0; i--)
        result = set_attached(vw_tap_queue_of(port->queues[i - 1]), false);
    for (unsigned i = 0; i < count && result == 0; i++)
        result = set_attached(vw_tap_queue_of(port->queues[i]), true);
    return result;
}

/*
 * The monitor reports an interface that moved to another namespace as deleted. The descriptor
 * knows better; what we can no longer see is taken to be up.
 */
bool vw_tap_link_changed(struct vw_port *port)
{
    struct vw_tap *tap = vw_tap_of(port);
    struct ifreq request;
    bool before = port->link_up;

    if (tap->monitor.index == 0)
        return false;
    vw_link_monitor_read(&tap->monitor);
    if (!tap->monitor.present && !tap->moved) {
        memset(&request, 0, sizeof(request));
        tap->moved = ioctl(vw_tap_queue_of(port->queues[0])->fd, TUNGETIFF, &request) == 0;
        if (tap->moved)
            vw_log(port->log, VW_LOG_WARNING,
                   "%s: the interface moved to another network namespace; its link state can no "
                   "longer be watched",
                   port->description);
        vw_shared_store(&tap->deleted, !tap->moved);
    }
    port->link_up = tap->monitor.up || (!tap->monitor.present && tap->moved);
    return port->link_up != before;
}

void vw_tap_close(struct vw_port *port)
{
    struct vw_tap *tap = vw_tap_of(port);

    for (unsigned i = 0; i < port->queue_count; i++) {
        struct vw_tap_queue *queue = vw_tap_queue_of(port->queues[i]);

        vw_tap_ring_close(&queue->ring);
        if (queue->fd >= 0)
            close(queue->fd);
        vw_port_buffers_unmap(queue->buffers, VW_PORT_BATCH + 1);
        free(queue);
    }
    vw_link_monitor_close(&tap->monitor);
    free(tap);
}
