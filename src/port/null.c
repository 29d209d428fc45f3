/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The port that swallows every frame and yields none.
 *
 * Theory of operation
 * -------------------
 * It is for measurements of everything but the port, and for a guest without a network. Nothing
 * ever blocks, so there is nothing to wait for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "port/kinds.h"
#include "port/results.h"

struct null_queue {
    struct vw_port_queue queue;
    struct vw_port_results results;
};

struct null_port {
    struct vw_port port;
    struct vw_port_queue *queues[VW_PORT_MAX_QUEUES];
};

static struct null_queue *null_queue(struct vw_port_queue *queue)
{
    return vw_container_of(queue, struct null_queue, queue);
}

static void null_close(struct vw_port *port)
{
    for (unsigned i = 0; i < port->queue_count; i++)
        free(null_queue(port->queues[i]));
    free(vw_container_of(port, struct null_port, port));
}

static int64_t null_set_guest_offloads(struct vw_port *port, uint64_t features)
{
    return (int64_t)(features & port->features);
}

static int null_set_active_queues(struct vw_port *port, unsigned count)
{
    return count >= 1 && count <= port->queue_count ? 0 : -EINVAL;
}

static uint32_t null_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct vw_port_results *results = &null_queue(queue)->results;
    uint32_t taken = 0;

    (void)frames;
    for (; taken < count && !vw_port_results_full(results); taken++)
        vw_port_results_add(results, queue, VW_PORT_SENT);
    return taken;
}

static uint32_t null_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                              uint32_t max)
{
    return vw_port_results_take(&null_queue(queue)->results, results, max);
}

static uint32_t null_receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    (void)queue;
    (void)frames;
    (void)max;
    return 0;
}

static void null_release(struct vw_port_queue *queue, uint32_t count)
{
    (void)queue;
    (void)count;
}

static void null_want(struct vw_port_queue *queue, bool receive, bool transmit,
                      struct vw_port_wait *wait)
{
    (void)queue;
    (void)receive;
    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = transmit ? 0 : -1};
}

static void null_drain(struct vw_port_queue *queue)
{
    (void)queue; /* every frame was complete when transmit returned */
}

static const struct vw_port_ops null_ops = {
    .name = "null",
    .close = null_close,
    .set_guest_offloads = null_set_guest_offloads,
    .set_active_queues = null_set_active_queues,
    .transmit = null_transmit,
    .complete = null_complete,
    .receive = null_receive,
    .release = null_release,
    .want = null_want,
    .drain = null_drain,
};

int vw_port_null_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **opened, const struct vw_port_error *error)
{
    struct null_port *null = vw_port_allocate(sizeof(*null));

    if (null == NULL)
        return vw_port_fail(error, -ENOMEM, "null: no memory");
    struct vw_port *port = &null->port;
    port->ops = &null_ops;
    port->log = log;
    port->queues = null->queues;
    port->features = options->offload ? VW_PORT_OFFLOADS | VW_PORT_OFFLOADS_USO : 0;
    port->mtu = options->mtu;
    port->link_fd = -1;
    port->link_up = true;
    snprintf(port->description, sizeof(port->description), "null");
    while (port->queue_count < options->queues) {
        struct null_queue *queue = vw_port_allocate(sizeof(*queue));

        if (queue == NULL) {
            null_close(port);
            return vw_port_fail(error, -ENOMEM, "null: no memory for %u queues", options->queues);
        }
        queue->queue.port = port;
        queue->queue.index = port->queue_count;
        port->queues[port->queue_count++] = &queue->queue;
    }
    *opened = port;
    return 0;
}
