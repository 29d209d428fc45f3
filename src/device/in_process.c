/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/in_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/overflow.h"
#include "base/system_calls.h"
#include "device/internal.h"

/* A device that was busy, or not good enough, is tried again after this time. Not tuned: as a
 * back-end at a socket. */
#define RETRY_MS 500

struct in_process_queue {
    int kick, call; /* -1 until the first set_queue */
    bool set;
};

struct in_process {
    struct vw_transport transport;
    struct vw_device *device;
    bool connected;   /* as the driver knows it: a loss is told by process */
    int64_t retry_at; /* without: when it may connect, on vw_clock_ms' clock */
    struct in_process_queue queues[VW_VU_MAX_RINGS];
};

static struct in_process *in_process_of(const struct vw_transport *transport)
{
    return vw_container_of((struct vw_transport *)(uintptr_t)transport, struct in_process,
                           transport);
}

/* Is the device's front-end this one? */
static bool is_ours(const struct in_process *own)
{
    return own->device->in_process == &own->transport;
}

__attribute__((format(printf, 3, 4))) static int fail(struct in_process *own, int error,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(own->transport.why, sizeof(own->transport.why), format, arguments);
    va_end(arguments);
    return error;
}

/* ---- messages ---- */

static int request(struct in_process *own, const struct vw_vu_message *message, int fd,
                   struct vw_vu_message *reply)
{
    if (!is_ours(own))
        return -ENOTCONN;
    if (vw_session_request(own->device, message, fd, reply) == 0)
        return 0;
    return fail(own, -EREMOTEIO, "%s: %s",
                vw_vu_request_name(VW_VU_FRONT_END, message->header.request), own->device->why);
}

static int tell_u64(struct in_process *own, uint32_t kind, uint64_t value)
{
    struct vw_vu_message message, reply;

    vw_vu_request_u64(&message, kind, value);
    return request(own, &message, -1, &reply);
}

static int tell_state(struct in_process *own, uint32_t kind, unsigned index, uint32_t value,
                      struct vw_vu_message *reply)
{
    struct vw_vu_message message;

    vw_vu_request_state(&message, kind, index, value);
    return request(own, &message, -1, reply);
}

static int tell_ring_fd(struct in_process *own, uint32_t kind, unsigned index, int fd)
{
    struct vw_vu_message message, reply;

    vw_vu_request_ring_fd(&message, kind, index, true);
    return request(own, &message, fd, &reply);
}

static int tell_address(struct in_process *own, const struct vw_transport_queue *queue)
{
    struct vw_vu_message message, reply;

    vw_vu_request(&message, VW_VU_SET_VRING_ADDR, sizeof(struct vw_vu_address));
    message.payload.address.index = queue->index;
    message.payload.address.descriptor = (uintptr_t)queue->ring.descriptor_area;
    message.payload.address.available = (uintptr_t)queue->ring.driver_area;
    message.payload.address.used = (uintptr_t)queue->ring.device_area;
    return request(own, &message, -1, &reply);
}

/* The end of each operation: the workers go on. */
static int done(struct in_process *own, int error)
{
    vw_device_resume(own->device);
    return error;
}

/* ---- connect and disconnect ---- */

static void try_again_after(struct in_process *own, unsigned milliseconds)
{
    own->connected = false;
    own->retry_at = vw_clock_ms() + milliseconds;
    vw_device_wake_after(own->device, milliseconds);
}

static void end_session(struct in_process *own, const char *reason)
{
    if (is_ours(own))
        vw_session_end(own->device, reason, false);
    vw_device_resume(own->device);
}

static int connect_device(struct vw_transport *transport, uint64_t *offered)
{
    struct in_process *own = in_process_of(transport);
    struct vw_device *device = own->device;
    uint64_t wanted =
        vw_bit(VW_VU_PF_CONFIG) | vw_bit(VW_VU_PF_MTU) | vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS);

    end_session(own, "the driver begins again");
    if (device->connected) {
        try_again_after(own, RETRY_MS);
        return fail(own, -EBUSY, "the device has another front-end");
    }
    vw_session_start(device, -1);
    device->in_process = transport;
    own->connected = true;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(own->queues); i++)
        own->queues[i].set = false;
    *offered = device->offered;
    return done(own, tell_u64(own, VW_VU_SET_PROTOCOL_FEATURES, wanted & device->protocol_offered));
}

static void disconnect_device(struct vw_transport *transport)
{
    struct in_process *own = in_process_of(transport);

    if (!own->connected)
        return;
    end_session(own, "the driver gave it up");
    try_again_after(own, RETRY_MS);
}

static void close_transport(struct vw_transport *transport)
{
    struct in_process *own = in_process_of(transport);

    end_session(own, "the driver ended");
    for (unsigned i = 0; i < VW_ARRAY_SIZE(own->queues); i++) {
        if (own->queues[i].kick >= 0)
            close(own->queues[i].kick);
        if (own->queues[i].call >= 0)
            close(own->queues[i].call);
    }
    free(own);
}

/* ---- features, memory, configuration ---- */

/* Bit 30 goes with them: each queue is enabled by a message of its own. */
static int accept_features(struct vw_transport *transport, uint64_t features)
{
    struct in_process *own = in_process_of(transport);

    return done(own,
                tell_u64(own, VW_VU_SET_FEATURES, features | vw_bit(VW_VU_F_PROTOCOL_FEATURES)));
}

static int share_memory(struct vw_transport *transport, int fd, uint64_t offset, void *address,
                        uint64_t size)
{
    struct in_process *own = in_process_of(transport);
    const struct vw_memory_region region = {
        .guest = (uintptr_t)address, .user = (uintptr_t)address, .size = size, .local = address};

    uint64_t end;

    (void)fd, (void)offset; /* it is mapped already */
    if (!is_ours(own))
        return -ENOTCONN;
    if (size == 0 || !vw_add_u64(region.user, size, &end))
        return fail(own, -EINVAL, "memory of no bytes, or beyond the last address");
    int error = vw_session_add_region(own->device, &region);
    if (error == -EINVAL)
        error = -EEXIST; /* nothing else is wrong with it */
    return done(own, error < 0 ? fail(own, error, "%s", own->device->why) : 0);
}

static int unshare_memory(struct vw_transport *transport, void *address, uint64_t size)
{
    struct in_process *own = in_process_of(transport);
    struct vw_vu_message message, reply;

    vw_vu_request(&message, VW_VU_REM_MEM_REG, sizeof(struct vw_vu_single_region));
    message.payload.region.region = (struct vw_vu_region){
        .guest = (uintptr_t)address, .user = (uintptr_t)address, .size = size};
    return done(own, request(own, &message, -1, &reply));
}

static int read_config(struct vw_transport *transport, uint32_t offset, uint32_t size, void *to)
{
    struct in_process *own = in_process_of(transport);
    struct vw_vu_message message, reply;

    if (!vw_range_fits(offset, size, VW_VU_MAX_CONFIG))
        return fail(own, -EINVAL, "a part of the configuration space beyond %d", VW_VU_MAX_CONFIG);
    vw_vu_request(&message, VW_VU_GET_CONFIG, VW_VU_CONFIG_HEADER + size);
    message.payload.config.offset = offset;
    message.payload.config.size = size;
    int error = request(own, &message, -1, &reply);
    if (error == 0)
        memcpy(to, reply.payload.config.bytes, size);
    return done(own, error);
}

static int max_pairs(struct vw_transport *transport, unsigned *pairs)
{
    struct in_process *own = in_process_of(transport);

    *pairs = own->device->pair_count;
    return is_ours(own) ? 0 : -ENOTCONN;
}

static int set_mtu(struct vw_transport *transport, unsigned mtu)
{
    struct in_process *own = in_process_of(transport);

    if (is_ours(own) && !vw_has(own->device->protocol, VW_VU_PF_MTU))
        return fail(own, -ENOTSUP, "the device does not want to know the MTU");
    return done(own, tell_u64(own, VW_VU_NET_SET_MTU, mtu));
}

/* ---- queues ---- */

static int make_descriptors(struct in_process_queue *queue)
{
    if (queue->kick < 0)
        queue->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->call < 0)
        queue->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return queue->kick < 0 || queue->call < 0 ? -EMFILE : 0;
}

static int set_queue(struct vw_transport *transport, const struct vw_transport_queue *queue)
{
    struct in_process *own = in_process_of(transport);
    unsigned index = queue->index;
    struct vw_vu_message reply;

    if (index >= VW_ARRAY_SIZE(own->queues))
        return fail(own, -EINVAL, "queue %u is beyond the last one", index);
    struct in_process_queue *mine = &own->queues[index];
    if (make_descriptors(mine) < 0)
        return fail(own, -EMFILE, "no descriptors for queue %u", index);
    int error = tell_state(own, VW_VU_SET_VRING_NUM, index, queue->ring.size, &reply);
    if (error == 0)
        error = tell_state(own, VW_VU_SET_VRING_BASE, index, queue->base, &reply);
    if (error == 0)
        error = tell_address(own, queue);
    if (error == 0)
        error = tell_ring_fd(own, VW_VU_SET_VRING_CALL, index, mine->call);
    if (error == 0)
        error = tell_ring_fd(own, VW_VU_SET_VRING_KICK, index, mine->kick);
    mine->set = error == 0;
    return done(own, error);
}

static bool was_set(const struct in_process *own, unsigned index)
{
    return index < VW_ARRAY_SIZE(own->queues) && own->queues[index].set;
}

static int enable_queue(struct vw_transport *transport, unsigned index, bool enabled)
{
    struct in_process *own = in_process_of(transport);
    struct vw_vu_message reply;

    if (!was_set(own, index))
        return fail(own, -EINVAL, "queue %u was not set up", index);
    return done(own, tell_state(own, VW_VU_SET_VRING_ENABLE, index, enabled, &reply));
}

/* It fails only when the counter is full, and then the descriptor is readable. */
static void kick(struct vw_transport *transport, unsigned index)
{
    vw_count_system_call();
    eventfd_write(in_process_of(transport)->queues[index].kick, 1);
}

static int start(struct vw_transport *transport)
{
    struct in_process *own = in_process_of(transport);

    if (!is_ours(own))
        return -ENOTCONN;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(own->queues); i++)
        if (own->queues[i].set)
            kick(transport, i);
    return 0;
}

static int stop_queue(struct vw_transport *transport, unsigned index, uint32_t *base)
{
    struct in_process *own = in_process_of(transport);
    struct vw_vu_message reply;

    if (!was_set(own, index))
        return fail(own, -EINVAL, "queue %u was not set up", index);
    own->queues[index].set = false;
    int error = tell_state(own, VW_VU_SET_VRING_ENABLE, index, 0, &reply);
    if (error == 0)
        error = tell_state(own, VW_VU_GET_VRING_BASE, index, 0, &reply);
    if (error == 0)
        *base = reply.payload.state.num;
    return done(own, error);
}

static int call_fd(const struct vw_transport *transport, unsigned index)
{
    const struct in_process *own = in_process_of(transport);

    return index < VW_ARRAY_SIZE(own->queues) ? own->queues[index].call : -1;
}

/* ---- events ---- */

static int event_fd(const struct vw_transport *transport)
{
    return vw_device_fd(in_process_of(transport)->device);
}

/* Is it time to connect? Where the device is taken, it may be free a little later. */
static int look_for_device(struct in_process *own)
{
    if (vw_clock_ms() < own->retry_at)
        return 0;
    if (!own->device->connected)
        return VW_TRANSPORT_REACHABLE;
    try_again_after(own, RETRY_MS);
    return 0;
}

static int process(struct vw_transport *transport)
{
    struct in_process *own = in_process_of(transport);
    struct vw_device *device = own->device;

    vw_device_process(device);
    if (!own->connected)
        return look_for_device(own);
    if (!is_ours(own)) {
        fail(own, -ECONNRESET, "the device ended the connection");
        try_again_after(own, 0);
        return VW_TRANSPORT_LOST;
    }
    if (!device->config_changed)
        return 0;
    device->config_changed = false;
    return VW_TRANSPORT_CONFIG_CHANGED;
}

static const struct vw_transport_ops operations = {
    .name = "in-process",
    .close = close_transport,
    .connect = connect_device,
    .accept = accept_features,
    .disconnect = disconnect_device,
    .share = share_memory,
    .unshare = unshare_memory,
    .read_config = read_config,
    .max_pairs = max_pairs,
    .set_mtu = set_mtu,
    .set_queue = set_queue,
    .enable_queue = enable_queue,
    .start = start,
    .stop_queue = stop_queue,
    .kick = kick,
    .call_fd = call_fd,
    .event_fd = event_fd,
    .process = process,
};

int vw_device_transport_open(struct vw_device *device, struct vw_transport **transport)
{
    struct in_process *own = calloc(1, sizeof(*own));

    if (own == NULL)
        return -ENOMEM;
    own->transport.ops = &operations;
    own->transport.log = device->log;
    own->device = device;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(own->queues); i++)
        own->queues[i].kick = own->queues[i].call = -1;
    *transport = &own->transport;
    return 0;
}
