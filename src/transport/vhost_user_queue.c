/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues of a vhost-user front-end: set-up, enabling, kicks, stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "transport/vhost_user.h"

#define PACKED_BASE_HALF 16

static struct vw_vhost_user_queue *find_queue(struct vw_vhost_user *user, unsigned index)
{
    return index < user->options.queues ? &user->queues[index] : NULL;
}

int vw_vhost_user_new_eventfd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    return fd < 0 ? -errno : fd;
}

/*
 * The call descriptor stays the same. The kick descriptor is a new one each time, under the number
 * of the old one: a back-end of before that lives on, with its copy, could otherwise read kicks
 * away from the one of today. dup3 is atomic, so that a kick in this moment finds one of the two.
 */
static int make_descriptors(struct vw_vhost_user_queue *queue)
{
    int kick = vw_vhost_user_new_eventfd();
    int error = 0;

    if (kick < 0)
        return kick;
    if (queue->call < 0)
        queue->call = vw_vhost_user_new_eventfd();
    if (queue->call < 0)
        error = queue->call;
    else if (queue->kick < 0)
        queue->kick = kick;
    else if (dup3(kick, queue->kick, O_CLOEXEC) < 0)
        error = -errno;
    if (error < 0 || queue->kick != kick)
        close(kick);
    return error;
}

static int send_ring_fd(struct vw_vhost_user *user, uint32_t request, unsigned index, int fd)
{
    struct vw_vu_message message;

    vw_vu_request_ring_fd(&message, request, index, true);
    return vw_vhost_user_request(user, &message, &fd, 1);
}

static int send_address(struct vw_vhost_user *user, const struct vw_transport_queue *queue)
{
    struct vw_vu_message message;

    vw_vu_request(&message, VW_VU_SET_VRING_ADDR, sizeof(struct vw_vu_address));
    message.payload.address.index = queue->index;
    message.payload.address.descriptor = (uintptr_t)queue->ring.descriptor_area;
    message.payload.address.available = (uintptr_t)queue->ring.driver_area;
    message.payload.address.used = (uintptr_t)queue->ring.device_area;
    return vw_vhost_user_request(user, &message, NULL, 0);
}

int vw_vhost_user_set_queue(struct vw_transport *transport, const struct vw_transport_queue *queue)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    struct vw_vhost_user_queue *own = find_queue(user, queue->index);
    unsigned index = queue->index;
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    if (own == NULL)
        return vw_vhost_user_fail(user, -EINVAL, "queue %u is beyond the last one", index);
    error = make_descriptors(own);
    if (error < 0)
        return vw_vhost_user_fail(user, error, "descriptors of queue %u: %s", index,
                                  strerror(-error));
    own->packed = queue->ring.format == VW_RING_PACKED;
    own->set = true;
    own->enabled = !vw_has(user->acknowledged, VW_VU_F_PROTOCOL_FEATURES);
    error = vw_vhost_user_tell_state(user, VW_VU_SET_VRING_NUM, index, queue->ring.size);
    if (error == 0)
        error = vw_vhost_user_tell_state(user, VW_VU_SET_VRING_BASE, index, queue->base);
    if (error == 0)
        error = send_address(user, queue);
    if (error == 0)
        error = send_ring_fd(user, VW_VU_SET_VRING_CALL, index, own->call);
    if (error == 0)
        error = send_ring_fd(user, VW_VU_SET_VRING_KICK, index, own->kick);
    if (error < 0)
        own->set = false;
    return error;
}

int vw_vhost_user_enable_queue(struct vw_transport *transport, unsigned index, bool enabled)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    struct vw_vhost_user_queue *queue = find_queue(user, index);
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    if (queue == NULL || !queue->set)
        return vw_vhost_user_fail(user, -EINVAL, "queue %u was not set up", index);
    if (!vw_has(user->acknowledged, VW_VU_F_PROTOCOL_FEATURES))
        return enabled ? 0 : -ENOTSUP; /* such rings are enabled from the start */
    error = vw_vhost_user_tell_state(user, VW_VU_SET_VRING_ENABLE, index, enabled);
    if (error == 0)
        queue->enabled = enabled;
    return error;
}

void vw_vhost_user_kick(struct vw_transport *transport, unsigned index)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);

    /* It fails only when the counter is full, and then the descriptor is readable. A back-end that
     * clears O_NONBLOCK, which it shares with us, and fills the counter makes this wait until it
     * reads: Linux has no write to an eventfd that does not wait regardless (pwritev2 with
     * RWF_NOWAIT is -EOPNOTSUPP there), and to look before would leave the same gap open. It is
     * documented (virtwire-net(3)). */
    vw_count_system_call();
    eventfd_write(user->queues[index].kick, 1);
}

/* A packed base of which the upper half is missing, as DPDK sends it: the used position is the
 * available one, since nothing may be in flight in a ring that was stopped. */
static uint32_t complete_base(uint32_t base, bool packed)
{
    return packed && base >> PACKED_BASE_HALF == 0 ? base << PACKED_BASE_HALF | base : base;
}

int vw_vhost_user_stop_queue(struct vw_transport *transport, unsigned index, uint32_t *base)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    struct vw_vhost_user_queue *queue = find_queue(user, index);
    const struct vw_vu_state *state = &user->receiver.message.payload.state;
    int error = 0;

    if (user->socket < 0)
        return -ENOTCONN;
    if (queue == NULL || !queue->set)
        return vw_vhost_user_fail(user, -EINVAL, "queue %u was not set up", index);
    if (queue->enabled && vw_has(user->acknowledged, VW_VU_F_PROTOCOL_FEATURES))
        error = vw_vhost_user_enable_queue(transport, index, false);
    if (error == 0 || error == -EREMOTEIO)
        error = vw_vhost_user_tell_state(user, VW_VU_GET_VRING_BASE, index, 0);
    queue->set = queue->enabled = false;
    if (error < 0)
        return error;
    if (state->index != index || (!queue->packed && state->num > UINT16_MAX)) {
        vw_vhost_user_fail(user, -EPROTO, "GET_VRING_BASE: %s",
                           state->index != index ? "reply is about another ring"
                                                 : "base of a split ring has more than 16 bits");
        return vw_vhost_user_lose(user, -EPROTO);
    }
    *base = complete_base(state->num, queue->packed);
    return 0;
}

int vw_vhost_user_call_fd(const struct vw_transport *transport, unsigned index)
{
    const struct vw_vhost_user *user =
        vw_container_of(transport, const struct vw_vhost_user, transport);

    return index < user->options.queues ? user->queues[index].call : -1;
}
