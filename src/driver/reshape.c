/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive buffers of another shape, while the device runs.
 *
 * Theory of operation
 * -------------------
 * Buffers that become shorter do so one by one, as they come back: what is posted takes what may
 * come all the same. Buffers that become longer do not. A device that has a frame too long for the
 * buffers that are posted leaves them where they are, so that they never come back; therefore the
 * queue is stopped, its buffers are taken out, and it begins anew with buffers of the new shape.
 * What the device had used is kept and handed out. The pair's thread may go on with its calls all
 * the while: it finds a ring in which nothing happens.
 */
#include <errno.h>
#include <string.h>

#include "driver/internal.h"

static bool is_longer(const struct vw_rx_shape *now, const struct vw_rx_shape *before)
{
    return now->mode == VW_RX_MERGEABLE ? now->least > before->least : now->bytes > before->bytes;
}

static void set_shape(struct vw_driver_pair *pair, const struct vw_rx_shape *shape)
{
    vw_pair_lock(pair);
    pair->rx.shape = *shape;
    vw_pair_unlock(pair);
}

/* The device has stopped: an empty ring again. */
static int empty_ring(struct vw_driver_pair *pair, const struct vw_rx_shape *shape)
{
    struct vw_rx *rx = &pair->rx;

    vw_pair_lock(pair);
    vw_rx_salvage(pair);
    vw_rx_reset(pair);
    rx->shape = *shape;
    int error = vw_driver_queue_begin(&rx->queue);
    vw_rx_begin(pair);
    vw_pair_unlock(pair);
    return error;
}

static int start_again(struct vw_driver_pair *pair)
{
    struct vw_driver_queue *queue = &pair->rx.queue;
    struct vw_transport *transport = pair->net->transport;
    int error = vw_driver_queue_tell(queue);

    if (error == 0)
        error = transport->ops->enable_queue(transport, queue->index, true);
    vw_pair_lock(pair);
    if (error == 0) {
        vw_rx_refill(pair, true);
        /* What the pair's thread posted meanwhile it kicked for in vain. */
        transport->ops->kick(transport, queue->index);
    } else if (error != -ENOTCONN) {
        vw_driver_queue_break(queue, "the device does not start it again with other buffers");
    }
    vw_pair_wake(pair);
    vw_pair_unlock(pair);
    return error;
}

/* -ENOMEM: not one buffer of that shape; the queue has the one of before. */
static int restart(struct vw_driver_pair *pair, const struct vw_rx_shape *shape)
{
    struct vw_transport *transport = pair->net->transport;
    const struct vw_rx_shape before = pair->rx.shape;
    uint32_t base;

    if (vw_shared_load(&pair->rx.queue.broken)) { /* stays so */
        set_shape(pair, shape);
        return 0;
    }
    int error = transport->ops->stop_queue(transport, pair->rx.queue.index, &base);
    if (error == 0 || error == -EREMOTEIO) /* refused, but stopped: transport.h */
        error = empty_ring(pair, shape);
    if (error == 0 && !vw_rx_has_memory(pair)) {
        empty_ring(pair, &before);
        error = start_again(pair);
        return error ? error : -ENOMEM;
    }
    return error ? error : start_again(pair);
}

static int reshape_pair(struct vw_driver_pair *pair, const struct vw_rx_shape *shape)
{
    int error = 0;

    if (pair->net->connected && is_longer(shape, &pair->rx.shape))
        error = restart(pair, shape);
    else
        set_shape(pair, shape);
    return error == -ENOTCONN ? 0 : error; /* the next device finds the new shape */
}

int vw_driver_reshape(struct vw_net *net)
{
    struct vw_rx_shape shape;
    int error = vw_rx_shape_of(net, &shape);

    for (unsigned i = 0; i < net->pair_count && error == 0; i++)
        error = reshape_pair(&net->pairs[i], &shape);
    return error == 0 ? 0
                      : vw_driver_fail(net, error, "receive buffers for an MTU of %u: %s", net->mtu,
                                       strerror(-error));
}
