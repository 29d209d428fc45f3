/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each vhost-user message does to a device. By the time a handler runs, size, descriptors,
 * gate and contents of its message are checked (vhost/message.h), and it changes rings, memory or
 * rules only after vw_device_pause.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "device/internal.h"
#include "memory/map.h"

typedef int (*message_handler)(struct vw_device *device, const struct vw_vu_message *message,
                               struct vw_vu_message *reply);

static int refuse(struct vw_device *device, int error, const char *why)
{
    device->why = why;
    return error;
}

/*
 * The queue with a vhost-user index. The control queue comes after the pairs that the *negotiated*
 * features allow (section 5.1.2), so its place depends on whether MQ or RSS was accepted.
 */
static struct vw_queue *queue_at(struct vw_device *device, uint32_t index)
{
    if (vw_has(device->acknowledged, VIRTIO_NET_F_CTRL_VQ) &&
        index == vw_net_control_queue_index(device->acknowledged, device->pair_count))
        return vw_device_control_queue(device);
    return index < 2 * device->pair_count ? &device->queues[index] : NULL;
}

static int find_queue(struct vw_device *device, uint32_t index, struct vw_queue **queue)
{
    *queue = queue_at(device, index);
    return *queue != NULL ? 0 : refuse(device, -EINVAL, "there is no such ring");
}

static int refresh(struct vw_device *device, struct vw_queue *queue)
{
    bool packed = vw_has(device->acknowledged, VIRTIO_F_RING_PACKED);
    const char *why = "";
    int error = vw_queue_refresh(queue, packed ? VW_RING_PACKED : VW_RING_SPLIT,
                                 device->acknowledged, device->memory, &why);

    vw_device_set_rules(device);
    if (queue->role == VW_QUEUE_CONTROL)
        vw_control_queue_run(device);
    return error < 0 ? refuse(device, error, why) : 0;
}

/* After the memory table changed: a ring that it does not hold any more stops; that is the ring's
 * fault, not the message's. */
static void refresh_all(struct vw_device *device)
{
    for (unsigned i = 0; i <= 2 * device->pair_count; i++) {
        device->why = "";
        if (refresh(device, &device->queues[i]) < 0)
            vw_log_limited(device->log, &device->log_limit, VW_LOG_WARNING, "queue %u stopped: %s",
                           device->queues[i].index, device->why);
    }
}

/* A ring that is set up anew without GET_VRING_BASE stops first: User-mode Linux does that. */
static void stop_if_started(struct vw_device *device, struct vw_queue *queue)
{
    vw_device_pause(device);
    if (queue->started)
        vw_queue_stop(queue);
}

static int get_features(struct vw_device *device, const struct vw_vu_message *message,
                        struct vw_vu_message *reply)
{
    vw_vu_reply_u64(reply, message, device->offered | vw_bit(VW_VU_F_PROTOCOL_FEATURES));
    return 0;
}

static bool any_ring_enabled(const struct vw_device *device)
{
    for (unsigned i = 0; i <= 2 * device->pair_count; i++)
        if (device->queues[i].enabled && device->queues[i].started)
            return true;
    return false;
}

static void enable_all(struct vw_device *device, bool enabled)
{
    for (unsigned i = 0; i <= 2 * device->pair_count; i++)
        device->queues[i].enabled = enabled;
}

/*
 * Without bit 30 all rings are enabled at once; with it they keep their state, since QEMU enables
 * rings before its first SET_FEATURES.
 *
 * The same features again, while rings run, change nothing. Otherwise a driver starts from the
 * beginning: its features differ, or it has disabled all rings before (or had no way to), as
 * User-mode Linux does when the guest loads its driver again on the same connection.
 */
static int set_features(struct vw_device *device, const struct vw_vu_message *message,
                        struct vw_vu_message *reply)
{
    uint64_t features = message->payload.u64 & ~vw_bit(VW_VU_F_PROTOCOL_FEATURES);
    bool ring_enable = vw_has(message->payload.u64, VW_VU_F_PROTOCOL_FEATURES);
    struct vw_features_fault fault;

    (void)reply;
    if (vw_features_check_accepted(device->offered, features, VW_FEATURES_OF_FRONT_END, &fault) <
        0) {
        char text[160];

        vw_features_fault_format(&fault, text, sizeof(text));
        vw_log_limited(device->log, &device->log_limit,
                       fault.missing == 0 ? VW_LOG_WARNING : VW_LOG_INFO, "SET_FEATURES: %s%s",
                       text, fault.missing == 0 ? "" : "; it is not in force");
        if (fault.missing == 0)
            return refuse(device, -EINVAL, "a feature that was not offered");
    }
    vw_device_pause(device);
    if (ring_enable != device->ring_enable)
        enable_all(device, !ring_enable);
    bool again = device->front_end_features && features == device->acknowledged &&
                 device->ring_enable && any_ring_enabled(device);
    device->acknowledged = features;
    device->front_end_features = true;
    device->ring_enable = ring_enable;
    if (!again) {
        vw_session_reset_rings(device);
        device->port->ops->set_guest_offloads(device->port, device->rules.guest_offloads);
    }
    vw_device_set_rules(device);
    return 0;
}

static int set_owner(struct vw_device *device, const struct vw_vu_message *message,
                     struct vw_vu_message *reply)
{
    (void)device, (void)message, (void)reply;
    return 0;
}

/* Deprecated; to disable all rings is what the specification asks for. */
static int reset_owner(struct vw_device *device, const struct vw_vu_message *message,
                       struct vw_vu_message *reply)
{
    (void)message, (void)reply;
    vw_device_pause(device);
    enable_all(device, false);
    return 0;
}

static int reset_device(struct vw_device *device, const struct vw_vu_message *message,
                        struct vw_vu_message *reply)
{
    (void)message, (void)reply;
    vw_device_pause(device);
    vw_session_reset_rings(device);
    enable_all(device, !device->ring_enable);
    return 0;
}

static int add_region(struct vw_device *device, struct vw_memory *memory,
                      const struct vw_memory_region *region)
{
    int error = vw_memory_add(memory, region);

    return error < 0 ? refuse(device, error, "a region overlaps another or there are too many") : 0;
}

static int map_region(struct vw_device *device, struct vw_memory *memory,
                      const struct vw_vu_region *wire, int fd)
{
    struct vw_memory_region region = {.guest = wire->guest, .user = wire->user, .size = wire->size};
    int error = vw_memory_map(&region, fd, wire->offset);

    if (error == -ENOTSUP)
        return refuse(
            device, error,
            "a region is no file in memory (memfd, /dev/shm, hugetlbfs) or on a local disk");
    if (error == -ENXIO)
        return refuse(device, error, "a region reaches beyond the end of its file");
    if (error < 0)
        return refuse(device, error, "a region cannot be mapped");
    error = add_region(device, memory, &region);
    if (error < 0)
        vw_memory_unmap(&region);
    return error;
}

int vw_session_add_region(struct vw_device *device, const struct vw_memory_region *region)
{
    vw_device_pause(device);
    int error = add_region(device, device->memory, region);
    if (error == 0)
        refresh_all(device);
    return error;
}

static int set_mem_table(struct vw_device *device, const struct vw_vu_message *message,
                         struct vw_vu_message *reply)
{
    const struct vw_vu_memory *table = &message->payload.memory;
    struct vw_memory *memory = calloc(1, sizeof(*memory));
    int error = 0;

    (void)reply;
    if (memory == NULL)
        return refuse(device, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < table->count && error == 0; i++)
        error = map_region(device, memory, &table->regions[i], device->receiver.fds[i]);
    if (error < 0) {
        vw_memory_unmap_all(memory);
        free(memory);
        return error;
    }
    vw_device_pause(device);
    struct vw_memory *old = device->memory;
    device->memory = memory;
    refresh_all(device);
    vw_memory_unmap_all(old);
    free(old);
    return 0;
}

static int get_max_mem_slots(struct vw_device *device, const struct vw_vu_message *message,
                             struct vw_vu_message *reply)
{
    (void)device;
    vw_vu_reply_u64(reply, message, VW_MEMORY_MAX_REGIONS);
    return 0;
}

/*
 * QEMU 7.2 keeps a table for each queue pair and adds, and removes, each region once for each of
 * them. The region is there from the first until the last.
 */
static int add_mem_reg(struct vw_device *device, const struct vw_vu_message *message,
                       struct vw_vu_message *reply)
{
    const struct vw_vu_region *wire = &message->payload.region.region;

    (void)reply;
    struct vw_memory_region *known =
        vw_memory_find(device->memory, wire->guest, wire->user, wire->size);
    if (known != NULL) {
        known->again++;
        return 0;
    }
    vw_device_pause(device);
    int error = map_region(device, device->memory, wire, device->receiver.fds[0]);
    if (error == 0)
        refresh_all(device);
    return error;
}

static int rem_mem_reg(struct vw_device *device, const struct vw_vu_message *message,
                       struct vw_vu_message *reply)
{
    const struct vw_vu_region *wire = &message->payload.region.region;
    struct vw_memory_region removed;

    (void)reply;
    struct vw_memory_region *known =
        vw_memory_find(device->memory, wire->guest, wire->user, wire->size);
    if (known != NULL && known->again > 0) {
        known->again--;
        return 0;
    }
    vw_device_pause(device);
    if (vw_memory_remove(device->memory, wire->guest, wire->user, wire->size, &removed) < 0)
        return refuse(device, -ENOENT, "there is no such region");
    refresh_all(device);
    vw_memory_unmap(&removed);
    return 0;
}

static int set_vring_num(struct vw_device *device, const struct vw_vu_message *message,
                         struct vw_vu_message *reply)
{
    const struct vw_vu_state *state = &message->payload.state;
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, state->index, &queue) < 0)
        return -EINVAL;
    if (state->num > device->options.queue_size)
        return refuse(device, -EINVAL, "the ring is larger than --queue-size allows");
    stop_if_started(device, queue);
    queue->size = state->num;
    return refresh(device, queue);
}

static int set_vring_addr(struct vw_device *device, const struct vw_vu_message *message,
                          struct vw_vu_message *reply)
{
    const struct vw_vu_address *address = &message->payload.address;
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, address->index, &queue) < 0)
        return -EINVAL;
    if (queue->addressed && queue->descriptor_user == address->descriptor &&
        queue->driver_user == address->available && queue->device_user == address->used)
        return 0; /* only the log address or flag differs, which we do not offer */
    vw_device_pause(device);
    queue->descriptor_user = address->descriptor;
    queue->driver_user = address->available;
    queue->device_user = address->used;
    queue->addressed = true;
    return refresh(device, queue);
}

static int set_vring_base(struct vw_device *device, const struct vw_vu_message *message,
                          struct vw_vu_message *reply)
{
    const struct vw_vu_state *state = &message->payload.state;
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, state->index, &queue) < 0)
        return -EINVAL;
    stop_if_started(device, queue);
    vw_queue_set_base(queue, state->num);
    return refresh(device, queue);
}

static int get_vring_base(struct vw_device *device, const struct vw_vu_message *message,
                          struct vw_vu_message *reply)
{
    struct vw_queue *queue;

    if (find_queue(device, message->payload.state.index, &queue) < 0)
        return -EINVAL;
    vw_device_pause(device);
    vw_vu_reply_state(reply, message, message->payload.state.index, vw_queue_stop(queue));
    queue->base_told = true;
    vw_device_set_rules(device);
    return 0;
}

/* Puts a new kick descriptor (-1: none) where the queue's own thread waits for it. */
static int replace_kick(struct vw_device *device, struct vw_queue *queue, int fd)
{
    if (queue->role == VW_QUEUE_CONTROL) {
        vw_control_queue_unwatch(device);
        int error = vw_queue_set_kick_fd(queue, fd);
        return error < 0 ? error : vw_control_queue_watch(device);
    }
    struct vw_pair *pair = &device->pairs[queue->index / 2];
    vw_worker_unwatch_kicks(pair);
    int error = vw_queue_set_kick_fd(queue, fd);
    int watched = vw_worker_watch_kicks(pair);
    return error < 0 ? error : watched;
}

/*
 * A ring starts here, and not with the first kick: a front-end that comes back to a ring with work
 * in it need not kick again. Without a descriptor kicks come in-band, or not at all, and the worker
 * looks from time to time.
 */
static int set_vring_kick(struct vw_device *device, const struct vw_vu_message *message,
                          struct vw_vu_message *reply)
{
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, (uint32_t)message->payload.u64 & VW_VU_RING_MASK, &queue) < 0)
        return -EINVAL;
    vw_device_pause(device);
    if (replace_kick(device, queue, vw_socket_take_fd(&device->receiver, 0)) < 0) {
        replace_kick(device, queue, -1);
        return refuse(device, -EINVAL, "the descriptor is no eventfd");
    }
    queue->polled = queue->kick_fd < 0 && !vw_has(device->protocol, VW_VU_PF_INBAND_NOTIFICATIONS);
    queue->started = true;
    return queue->live ? 0 : refresh(device, queue);
}

/* Call and error descriptors: the ring that the message names takes what came with it, or none. */
static int take_notifier(struct vw_device *device, const struct vw_vu_message *message,
                         int (*set)(struct vw_queue *queue, int fd), struct vw_queue **queue)
{
    if (find_queue(device, (uint32_t)message->payload.u64 & VW_VU_RING_MASK, queue) < 0)
        return -EINVAL;
    vw_device_pause(device);
    if (set(*queue, vw_socket_take_fd(&device->receiver, 0)) < 0)
        return refuse(device, -EINVAL, "the descriptor is no eventfd and no UNIX socket");
    return 0;
}

static int set_vring_call(struct vw_device *device, const struct vw_vu_message *message,
                          struct vw_vu_message *reply)
{
    struct vw_queue *queue;

    (void)reply;
    int error = take_notifier(device, message, vw_queue_set_call_fd, &queue);
    /* A call may have gone to the descriptor before this one and never have been seen. */
    if (error == 0 && queue->live && queue->call.fd >= 0)
        vw_queue_call(queue);
    return error;
}

static int set_vring_err(struct vw_device *device, const struct vw_vu_message *message,
                         struct vw_vu_message *reply)
{
    struct vw_queue *queue;

    (void)reply;
    return take_notifier(device, message, vw_queue_set_error_fd, &queue);
}

static int vring_kick(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, message->payload.state.index, &queue) < 0)
        return -EINVAL;
    if (!queue->started) {
        vw_device_pause(device);
        queue->started = true;
        if (refresh(device, queue) < 0)
            return -EINVAL;
    }
    if (queue->role == VW_QUEUE_CONTROL) {
        vw_count(&queue->counters.kicks, 1);
        vw_control_queue_run(device);
    } else {
        vw_worker_kick(&device->pairs[queue->index / 2], queue);
    }
    return 0;
}

static int set_vring_enable(struct vw_device *device, const struct vw_vu_message *message,
                            struct vw_vu_message *reply)
{
    const struct vw_vu_state *state = &message->payload.state;
    struct vw_queue *queue;

    (void)reply;
    if (find_queue(device, state->index, &queue) < 0)
        return -EINVAL;
    vw_device_pause(device);
    queue->enabled = state->num != 0;
    if (!queue->enabled && queue->role == VW_QUEUE_TRANSMIT)
        vw_transmit_disabled(&device->pairs[queue->index / 2]);
    vw_device_set_rules(device);
    if (queue->role == VW_QUEUE_CONTROL)
        vw_control_queue_run(device);
    return 0;
}

static int get_protocol_features(struct vw_device *device, const struct vw_vu_message *message,
                                 struct vw_vu_message *reply)
{
    vw_vu_reply_u64(reply, message, device->protocol_offered);
    return 0;
}

static int set_protocol_features(struct vw_device *device, const struct vw_vu_message *message,
                                 struct vw_vu_message *reply)
{
    (void)reply;
    vw_device_pause(device);
    device->protocol = message->payload.u64;
    for (unsigned i = 0; i <= 2 * device->pair_count; i++)
        device->queues[i].call_in_band = vw_has(device->protocol, VW_VU_PF_INBAND_NOTIFICATIONS);
    return 0;
}

/* For a network device this counts queue *pairs*: QEMU and DPDK agree on that. */
static int get_queue_num(struct vw_device *device, const struct vw_vu_message *message,
                         struct vw_vu_message *reply)
{
    vw_vu_reply_u64(reply, message, device->pair_count);
    return 0;
}

static int send_rarp(struct vw_device *device, const struct vw_vu_message *message,
                     struct vw_vu_message *reply)
{
    uint8_t bytes[VW_NET_RARP_SIZE];
    struct virtio_net_hdr_v1 header = {0};
    struct iovec iov[2] = {{.iov_base = &header, .iov_len = VW_PORT_HEADER},
                           {.iov_base = bytes, .iov_len = sizeof(bytes)}};
    struct vw_frame frame = {.iov = iov, .iov_count = 2, .length = sizeof(bytes)};
    struct vw_port_queue *queue = device->port->queues[0];
    enum vw_port_result result;

    (void)reply;
    vw_net_rarp(bytes, (const uint8_t *)&message->payload.u64);
    vw_device_pause(device); /* nothing of the worker's is in flight: the completion is ours */
    if (device->port->ops->transmit(queue, &frame, 1) == 1) {
        device->port->ops->drain(queue);
        device->port->ops->complete(queue, &result, 1);
    }
    return 0;
}

static int net_set_mtu(struct vw_device *device, const struct vw_vu_message *message,
                       struct vw_vu_message *reply)
{
    uint64_t mtu = message->payload.u64;

    (void)reply;
    if (mtu < VW_NET_MIN_MTU || mtu > VW_NET_MAX_MTU)
        return refuse(device, -EINVAL, "no interface has such an MTU");
    if (device->port->mtu != 0 && mtu > device->port->mtu)
        return refuse(device, -EINVAL, "the port's MTU is smaller");
    vw_device_pause(device);
    device->config.mtu = (uint16_t)mtu;
    vw_device_set_rules(device);
    return 0;
}

static int set_backend_req_fd(struct vw_device *device, const struct vw_vu_message *message,
                              struct vw_vu_message *reply)
{
    (void)message, (void)reply;
    if (!vw_fd_is_unix_socket(device->receiver.fds[0], true))
        return refuse(device, -EINVAL, "the descriptor is no UNIX stream socket");
    vw_device_pause(device);
    vw_back_end_set(device, vw_socket_take_fd(&device->receiver, 0));
    return 0;
}

static int get_config(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    uint8_t bytes[VW_VU_MAX_CONFIG];

    vw_net_config_read(&device->config, message->payload.config.offset,
                       message->payload.config.size, bytes);
    vw_vu_reply_config(reply, message, bytes);
    return 0;
}

static int set_config(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    const struct vw_vu_config *config = &message->payload.config;

    (void)reply;
    vw_device_pause(device);
    if (vw_net_config_write(&device->config, device->acknowledged, config->offset, config->size,
                            config->bytes) < 0)
        return refuse(device, -EPERM, "the driver may not write this");
    memcpy(device->control.mac, device->config.mac, VW_NET_MAC_SIZE);
    return 0;
}

static int set_status(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    (void)reply;
    device->status = (uint8_t)message->payload.u64;
    if (device->status == 0) {
        vw_device_pause(device);
        vw_session_reset_rings(device);
        enable_all(device, !device->ring_enable);
    }
    return 0;
}

static int get_status(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    vw_vu_reply_u64(reply, message, device->status);
    return 0;
}

/* Requests that are not here are refused by their gate in the message table. */
static const message_handler handlers[VW_VU_REQUEST_END] = {
    [VW_VU_GET_FEATURES] = get_features,
    [VW_VU_SET_FEATURES] = set_features,
    [VW_VU_SET_OWNER] = set_owner,
    [VW_VU_RESET_OWNER] = reset_owner,
    [VW_VU_SET_MEM_TABLE] = set_mem_table,
    [VW_VU_SET_VRING_NUM] = set_vring_num,
    [VW_VU_SET_VRING_ADDR] = set_vring_addr,
    [VW_VU_SET_VRING_BASE] = set_vring_base,
    [VW_VU_GET_VRING_BASE] = get_vring_base,
    [VW_VU_SET_VRING_KICK] = set_vring_kick,
    [VW_VU_SET_VRING_CALL] = set_vring_call,
    [VW_VU_SET_VRING_ERR] = set_vring_err,
    [VW_VU_GET_PROTOCOL_FEATURES] = get_protocol_features,
    [VW_VU_SET_PROTOCOL_FEATURES] = set_protocol_features,
    [VW_VU_GET_QUEUE_NUM] = get_queue_num,
    [VW_VU_SET_VRING_ENABLE] = set_vring_enable,
    [VW_VU_SEND_RARP] = send_rarp,
    [VW_VU_NET_SET_MTU] = net_set_mtu,
    [VW_VU_SET_BACKEND_REQ_FD] = set_backend_req_fd,
    [VW_VU_GET_CONFIG] = get_config,
    [VW_VU_SET_CONFIG] = set_config,
    [VW_VU_RESET_DEVICE] = reset_device,
    [VW_VU_VRING_KICK] = vring_kick,
    [VW_VU_GET_MAX_MEM_SLOTS] = get_max_mem_slots,
    [VW_VU_ADD_MEM_REG] = add_mem_reg,
    [VW_VU_REM_MEM_REG] = rem_mem_reg,
    [VW_VU_SET_STATUS] = set_status,
    [VW_VU_GET_STATUS] = get_status,
};

int vw_session_handle(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply)
{
    message_handler handler = handlers[message->header.request];

    if (handler == NULL)
        return refuse(device, -ENOTSUP, "this back-end does not do that");
    return handler(device, message, reply);
}
