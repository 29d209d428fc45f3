/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP port at work: one descriptor for each queue, one system call for each frame.
 *
 * Theory of operation
 * -------------------
 * transmit writes each frame, header first, straight from the guest's memory, so every frame it
 * takes is complete at once; the results wait for the device in a FIFO all the same, because a
 * port is asynchronous to its user. Where the host cannot take a frame *now*, it stays with the
 * device, which will offer it again, so nothing is lost and nothing overtakes:
 *
 *   EAGAIN            the send buffer is full. EPOLLOUT comes when half of it is free; the time
 *                     limit is for a buffer so small that half of it never is.
 *   ENOBUFS, ENOMEM   the host has no memory. No event will ever tell that it has again, so time
 *                     does; and a frame that finds none for a second is given up, so that one
 *                     which can never be had does not stop the queue for ever.
 *
 * Every other error concerns the one frame: EINVAL (a header that the kernel does not accept; the
 * device may complete the checksum itself and offer the frame anew), EIO (the interface is down).
 * After EBADFD the interface was deleted. The descriptor is then readable and in error for ever,
 * so that any wait for it would burn the core; want never asks for it again.
 *
 * receive reads into VW_PORT_BATCH buffers, used round and round; the device gives the oldest back
 * first. The kernel writes 10 of the header's 12 bytes and skips the others, and cuts a frame that
 * is longer than the buffer without a word, so the buffer is one byte longer than any frame, and
 * one that fills it was cut.
 */
#include "port/tap.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/iov.h"

#define WRITE_IOV_MAX 1024    /* the kernel's UIO_MAXIOV */
#define NO_ROOM_TIMEOUT_MS 10 /* see EAGAIN above */
#define NO_MEMORY_TIMEOUT_MS 1
#define NO_MEMORY_TRIES 1000 /* about a second */

static void tap_gone(struct vw_tap_queue *tap)
{
    if (!tap->gone)
        vw_log(tap->queue.port->log, VW_LOG_WARNING, "%s: the interface was deleted",
               tap->queue.port->description);
    tap->gone = true;
}

/* macvtap, whose descriptors work like a TAP's, says ENOLINK or ENODEV where TAP says EBADFD. */
static bool is_gone(int error)
{
    return error == EBADFD || error == ENODEV || error == ENXIO || error == ENOLINK ||
           error == EBADF;
}

/*
 * Puts a frame in more pieces than one system call takes into one piece. The device bounded its
 * length, and the pieces' lengths are private to us; only their bytes may still change.
 */
static struct iovec linearise(struct vw_tap_queue *tap, const struct vw_frame *frame)
{
    char *buffer = tap->buffers + (size_t)VW_PORT_BATCH * VW_PORT_BUFFER_STRIDE;
    size_t length = vw_iov_read(frame->iov, frame->iov_count, 0, buffer,
                                VW_PORT_HEADER + (size_t)frame->length);

    vw_port_count(&tap->queue.counters.transmit_linearised);
    return (struct iovec){buffer, length};
}

static int write_frame(struct vw_tap_queue *tap, const struct vw_frame *frame)
{
    struct iovec linear;
    const struct iovec *iov = frame->iov;
    int count = (int)frame->iov_count;
    ssize_t written;

    if (frame->iov_count > WRITE_IOV_MAX) {
        linear = linearise(tap, frame);
        iov = &linear;
        count = 1;
    }
    do {
        written = writev(tap->fd, iov, count);
    } while (written < 0 && errno == EINTR);
    return written < 0 ? errno : 0;
}

/* Returns true if the frame stays with the device, because it can go later but not now. */
static bool can_go_later(struct vw_tap_queue *tap, int error)
{
    if (error == EAGAIN) {
        tap->blocked = VW_TAP_NO_ROOM;
        vw_port_count(&tap->queue.counters.transmit_full);
        return true;
    }
    if ((error == ENOBUFS || error == ENOMEM) && tap->no_memory < NO_MEMORY_TRIES) {
        tap->blocked = VW_TAP_NO_MEMORY;
        tap->no_memory++;
        vw_port_count(&tap->queue.counters.transmit_no_memory);
        return true;
    }
    tap->no_memory = 0;
    return false;
}

static enum vw_port_result result_of(struct vw_tap_queue *tap, int error)
{
    if (error == 0)
        return VW_PORT_SENT;
    if (error == EINVAL)
        return VW_PORT_REFUSED;
    if (error == EIO || error == ENETDOWN)
        return VW_PORT_DOWN;
    if (is_gone(error)) {
        tap_gone(tap);
        return VW_PORT_GONE;
    }
    return VW_PORT_FAILED;
}

static uint32_t tap_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct vw_tap_queue *tap = vw_tap_queue_of(queue);
    uint32_t taken = 0;

    tap->blocked = VW_TAP_NOT_BLOCKED;
    for (; taken < count && !vw_port_results_full(&tap->results); taken++) {
        const struct vw_frame *frame = &frames[taken];
        enum vw_port_result result = VW_PORT_GONE;

        if (frame->length < VW_PORT_ETHERNET_HEADER || frame->length > VW_PORT_MAX_FRAME) {
            result = VW_PORT_REFUSED;
        } else if (!tap->gone) {
            int error = write_frame(tap, frame);

            if (can_go_later(tap, error))
                break;
            result = result_of(tap, error);
        }
        vw_port_results_add(&tap->results, queue, result);
    }
    return taken;
}

static uint32_t tap_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                             uint32_t max)
{
    return vw_port_results_take(&vw_tap_queue_of(queue)->results, results, max);
}

/*
 * Reads one frame. Returns its bytes with the header, 0 if one was lost, or -EAGAIN if there is
 * none, now or for ever.
 */
static ssize_t read_frame(struct vw_tap_queue *tap, char *buffer)
{
    struct vw_port_counters *counters = &tap->queue.counters;
    ssize_t length;

    do {
        length = read(tap->fd, buffer, VW_PORT_BUFFER_SIZE);
    } while (length < 0 && errno == EINTR);
    if (length < 0) {
        if (errno == EAGAIN)
            return -EAGAIN;
        /* These lose one frame: a segment of a kind that has no header, or no memory for one. */
        if (errno == EINVAL || errno == EFAULT || errno == ENOMEM) {
            vw_port_count(&counters->receive_failed);
            return 0;
        }
        /* Anything else will not pass, and a descriptor that is ready and of no use burns CPU. */
        tap_gone(tap);
        return -EAGAIN;
    }
    if (length < VW_PORT_HEADER + VW_PORT_ETHERNET_HEADER) {
        vw_port_count(&counters->receive_short);
        return 0;
    }
    if (length == VW_PORT_BUFFER_SIZE) {
        vw_port_count(&counters->receive_clipped);
        return 0;
    }
    return length;
}

static void lend(struct vw_tap_queue *tap, uint32_t index, size_t length, struct vw_frame *frame)
{
    char *buffer = tap->buffers + (size_t)index * VW_PORT_BUFFER_STRIDE;
    struct iovec *iov = tap->iov[index];

    /* num_buffers: the kernel leaves what the last frame had there. */
    memset(buffer + offsetof(struct virtio_net_hdr_v1, num_buffers), 0, sizeof(uint16_t));
    iov[0] = (struct iovec){buffer, VW_PORT_HEADER};
    iov[1] = (struct iovec){buffer + VW_PORT_HEADER, length - VW_PORT_HEADER};
    *frame = (struct vw_frame){iov, 2, (uint32_t)(length - VW_PORT_HEADER)};
    vw_port_count(&tap->queue.counters.receive_frames);
}

static uint32_t tap_receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    struct vw_tap_queue *tap = vw_tap_queue_of(queue);
    uint32_t count = 0;

    /* A lost frame counts as one of `max`, so that the loop is bounded whatever arrives. */
    for (uint32_t i = 0; i < max && tap->lent < VW_PORT_BATCH && !tap->gone; i++) {
        uint32_t index = tap->next % VW_PORT_BATCH;
        ssize_t length = read_frame(tap, tap->buffers + (size_t)index * VW_PORT_BUFFER_STRIDE);

        if (length < 0)
            break;
        if (length == 0)
            continue;
        lend(tap, index, (size_t)length, &frames[count++]);
        tap->next++;
        tap->lent++;
    }
    return count;
}

static void tap_release(struct vw_port_queue *queue, uint32_t count)
{
    struct vw_tap_queue *tap = vw_tap_queue_of(queue);

    tap->lent -= (uint32_t)vw_min64(count, tap->lent);
}

static void tap_want(struct vw_port_queue *queue, bool receive, bool transmit,
                     struct vw_port_wait *wait)
{
    const struct vw_tap_queue *tap = vw_tap_queue_of(queue);

    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = -1};
    if (!tap->gone && receive)
        wait->events |= EPOLLIN;
    if (transmit) {
        wait->timeout_ms = 0; /* not blocked, or gone: transmit takes them at once */
        if (!tap->gone && tap->blocked == VW_TAP_NO_ROOM) {
            wait->events |= EPOLLOUT;
            wait->timeout_ms = NO_ROOM_TIMEOUT_MS;
        } else if (!tap->gone && tap->blocked == VW_TAP_NO_MEMORY) {
            wait->timeout_ms = NO_MEMORY_TIMEOUT_MS;
        }
    }
    /* Asked about nothing, the descriptor is left alone: even "only errors" would be reported for
     * ever by a deleted interface, and nobody would call receive to find out. */
    if (wait->events != 0)
        wait->fd = tap->fd;
}

static void tap_drain(struct vw_port_queue *queue)
{
    (void)queue; /* every frame was complete when transmit returned */
}

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

static int64_t tap_set_guest_offloads(struct vw_port *port, uint64_t features)
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
    return 0;
}

/*
 * The kernel numbers attached queues without gaps, moving the last one into a hole: detaching from
 * the end and attaching from the front keeps its numbers equal to ours.
 */
static int tap_set_active_queues(struct vw_port *port, unsigned count)
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
    }
    port->link_up = tap->monitor.up || (!tap->monitor.present && tap->moved);
    return port->link_up != before;
}

static void tap_close(struct vw_port *port)
{
    struct vw_tap *tap = vw_tap_of(port);

    for (unsigned i = 0; i < port->queue_count; i++) {
        struct vw_tap_queue *queue = vw_tap_queue_of(port->queues[i]);

        if (queue->fd >= 0)
            close(queue->fd);
        vw_port_buffers_unmap(queue->buffers, VW_PORT_BATCH + 1);
        free(queue);
    }
    vw_link_monitor_close(&tap->monitor);
    free(tap);
}

const struct vw_port_ops vw_tap_ops = {
    .name = "tap",
    .close = tap_close,
    .set_guest_offloads = tap_set_guest_offloads,
    .set_active_queues = tap_set_active_queues,
    .transmit = tap_transmit,
    .complete = tap_complete,
    .receive = tap_receive,
    .release = tap_release,
    .want = tap_want,
    .drain = tap_drain,
};
