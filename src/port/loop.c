/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The port that sends every frame back on the queue on which it came.
 *
 * Theory of operation
 * -------------------
 * Each queue has a ring of LOOP_SLOTS buffers. transmit copies a frame into the next free one and
 * swaps its MAC addresses, so that a guest which checks them takes the answer for its own; receive
 * lends the buffers in the same order; release frees the oldest:
 *
 *     released ........ lent ........ stored ........ released + LOOP_SLOTS
 *       with the device   waiting        free
 *
 * When no buffer is free, transmit takes fewer frames, and nothing is ever dropped: a guest that
 * does not look at what it received stops its own transmission, like a wire with flow control.
 * All three counters belong to the queue's worker; there is no descriptor to wait for, and none
 * is needed, since only that worker's own calls change anything.
 *
 * The virtio-net header comes back as it went: a partial checksum stays partial, a segment to be
 * cut stays whole, and it is the device that finishes it for a guest which did not ask for the
 * offload (virtio 1.3, section 5.1.6.4). Flags that have no meaning on transmission, and another
 * one on reception (DATA_VALID, RSC_INFO; 5.1.6.2), do not come back.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "port/kinds.h"
#include "port/results.h"

/* As many as the usual virtqueue has entries, so that one full transmit ring fits. */
#define LOOP_SLOTS 256

struct loop_slot {
    struct iovec iov[2];
    uint32_t length;
};

struct loop_queue {
    struct vw_port_queue queue;
    char *buffers;
    uint32_t stored; /* all three free-running */
    uint32_t lent;
    uint32_t released;
    struct vw_port_results results;
    struct loop_slot slots[LOOP_SLOTS];
};

_Static_assert((LOOP_SLOTS & (LOOP_SLOTS - 1)) == 0, "free-running indices wrap");

struct loop_port {
    struct vw_port port;
    struct vw_port_queue *queues[VW_PORT_MAX_QUEUES];
};

static struct loop_queue *loop_queue(struct vw_port_queue *queue)
{
    return vw_container_of(queue, struct loop_queue, queue);
}

static void loop_close(struct vw_port *port)
{
    for (unsigned i = 0; i < port->queue_count; i++) {
        struct loop_queue *loop = loop_queue(port->queues[i]);

        vw_port_buffers_unmap(loop->buffers, LOOP_SLOTS);
        free(loop);
    }
    free(vw_container_of(port, struct loop_port, port));
}

static int64_t loop_set_guest_offloads(struct vw_port *port, uint64_t features)
{
    return (int64_t)(features & port->features);
}

static int loop_set_active_queues(struct vw_port *port, unsigned count)
{
    return count >= 1 && count <= port->queue_count ? 0 : -EINVAL;
}

static bool loop_full(const struct loop_queue *loop)
{
    return loop->stored - loop->released >= LOOP_SLOTS;
}

static void swap_addresses(unsigned char *frame)
{
    unsigned char destination[6];

    memcpy(destination, frame, 6);
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, destination, 6);
}

/* Turns the header of a transmitted frame into that of a received one (section 5.1.6.4). */
static void turn_header(char *buffer)
{
    struct virtio_net_hdr_v1 header;

    memcpy(&header, buffer, sizeof(header));
    header.flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header.num_buffers = 0;
    memcpy(buffer, &header, sizeof(header));
}

static enum vw_port_result loop_store(struct loop_queue *loop, const struct vw_frame *frame)
{
    uint32_t index = loop->stored % LOOP_SLOTS;
    struct loop_slot *slot = &loop->slots[index];
    char *buffer = loop->buffers + (size_t)index * VW_PORT_BUFFER_STRIDE;
    size_t size = VW_PORT_HEADER + (size_t)frame->length;

    if (frame->length < VW_PORT_ETHERNET_HEADER || frame->length > VW_PORT_MAX_FRAME)
        return VW_PORT_REFUSED;
    if (vw_iov_read(frame->iov, frame->iov_count, 0, buffer, size) != size)
        return VW_PORT_FAILED;
    turn_header(buffer);
    swap_addresses((unsigned char *)buffer + VW_PORT_HEADER);
    slot->length = frame->length;
    loop->stored++;
    return VW_PORT_SENT;
}

static uint32_t loop_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct loop_queue *loop = loop_queue(queue);
    uint32_t taken = 0;

    for (; taken < count && !vw_port_results_full(&loop->results); taken++) {
        if (loop_full(loop)) {
            vw_port_count(&queue->counters.transmit_full);
            break;
        }
        vw_port_results_add(&loop->results, queue, loop_store(loop, &frames[taken]));
    }
    return taken;
}

static uint32_t loop_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                              uint32_t max)
{
    return vw_port_results_take(&loop_queue(queue)->results, results, max);
}

static uint32_t loop_receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    struct loop_queue *loop = loop_queue(queue);
    uint32_t count = 0;

    for (; count < max && loop->lent != loop->stored; count++) {
        uint32_t index = loop->lent++ % LOOP_SLOTS;
        struct loop_slot *slot = &loop->slots[index];
        char *buffer = loop->buffers + (size_t)index * VW_PORT_BUFFER_STRIDE;

        /* Anew for each loan: whoever borrows the list may shorten it. */
        slot->iov[0] = (struct iovec){buffer, VW_PORT_HEADER};
        slot->iov[1] = (struct iovec){buffer + VW_PORT_HEADER, slot->length};
        frames[count] = (struct vw_frame){slot->iov, 2, slot->length};
        vw_port_count(&queue->counters.receive_frames);
    }
    return count;
}

static void loop_release(struct vw_port_queue *queue, uint32_t count)
{
    struct loop_queue *loop = loop_queue(queue);

    loop->released += (uint32_t)vw_min64(count, loop->lent - loop->released);
}

static void loop_want(struct vw_port_queue *queue, bool receive, bool transmit,
                      struct vw_port_wait *wait)
{
    const struct loop_queue *loop = loop_queue(queue);
    bool at_once = (receive && loop->lent != loop->stored) || (transmit && !loop_full(loop));

    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = at_once ? 0 : -1};
}

static void loop_drain(struct vw_port_queue *queue)
{
    (void)queue; /* every frame was complete when transmit returned */
}

static const struct vw_port_ops loop_ops = {
    .name = "loop",
    .close = loop_close,
    .set_guest_offloads = loop_set_guest_offloads,
    .set_active_queues = loop_set_active_queues,
    .transmit = loop_transmit,
    .complete = loop_complete,
    .receive = loop_receive,
    .release = loop_release,
    .want = loop_want,
    .drain = loop_drain,
};

static int add_queue(struct vw_port *port)
{
    struct loop_queue *loop = vw_port_allocate(sizeof(*loop));

    if (loop == NULL)
        return -ENOMEM;
    loop->queue.port = port;
    loop->queue.index = port->queue_count;
    port->queues[port->queue_count++] = &loop->queue; /* from here on close frees it */
    loop->buffers = vw_port_buffers_map(LOOP_SLOTS);
    return loop->buffers != NULL ? 0 : -ENOMEM;
}

int vw_port_loop_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **opened, const struct vw_port_error *error)
{
    struct loop_port *loop = vw_port_allocate(sizeof(*loop));

    if (loop == NULL)
        return vw_port_fail(error, -ENOMEM, "loop: no memory");
    struct vw_port *port = &loop->port;
    port->ops = &loop_ops;
    port->log = log;
    port->queues = loop->queues;
    port->features = options->offload ? VW_PORT_OFFLOADS | VW_PORT_OFFLOADS_USO : 0;
    port->mtu = options->mtu;
    port->link_fd = -1;
    port->link_up = true;
    snprintf(port->description, sizeof(port->description), "loop");
    while (port->queue_count < options->queues) {
        if (add_queue(port) < 0) {
            loop_close(port);
            return vw_port_fail(error, -ENOMEM, "loop: no memory for %u queues", options->queues);
        }
    }
    *opened = port;
    return 0;
}
