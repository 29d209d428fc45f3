/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vhost-user front-end: the operations of transport.h. vhost_user.h tells how it works.
 *
 * Order of the messages, with what was negotiated in brackets:
 *
 *   connect ..... SET_OWNER, GET_FEATURES, [30: GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES],
 *                 [MQ: GET_QUEUE_NUM], [CONFIGURE_MEM_SLOTS: GET_MAX_MEM_SLOTS],
 *                 [BACKEND_REQ: SET_BACKEND_REQ_FD]
 *   accept ...... SET_FEATURES, [STATUS: SET_STATUS up to FEATURES_OK, GET_STATUS]
 *   share ....... ADD_MEM_REG or SET_MEM_TABLE
 *   set_queue ... SET_VRING_NUM, BASE, ADDR, CALL, KICK
 *   enable ...... [30: SET_VRING_ENABLE]
 *   start ....... a write to each kick descriptor, [STATUS: SET_STATUS with DRIVER_OK]
 *   stop_queue .. [30: SET_VRING_ENABLE 0], GET_VRING_BASE
 *
 * By the text a ring starts when its kick descriptor becomes readable, real back-ends start with
 * SET_VRING_KICK: the write in `start` serves both.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/overflow.h"
#include "transport/vhost_user.h"

/* Status bits, section 2.1: the two steps in which DPDK's front-end tells them. */
#define STATUS_FEATURES_OK                                                                         \
    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK)
#define STATUS_DRIVER_OK (STATUS_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK)

int vw_vhost_user_fail(struct vw_vhost_user *user, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(user->transport.why, sizeof(user->transport.why), format, arguments);
    va_end(arguments);
    return error;
}

static int watch(struct vw_vhost_user *user, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    return epoll_ctl(user->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* ---- connect ---- */

/* Section 8 of vhost-user: requests of the back-end go over a socket that we make. */
static int open_channel(struct vw_vhost_user *user)
{
    struct vw_vu_message message;
    int ends[2], error;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return vw_vhost_user_fail(user, -errno, "a socket for the back-end: %s", strerror(errno));
    user->channel = ends[0];
    vw_socket_receiver_init(&user->channel_receiver, VW_VU_BACK_END, false);
    vw_vu_request(&message, VW_VU_SET_BACKEND_REQ_FD, 0);
    error = watch(user, user->channel, EPOLLIN);
    if (error == 0)
        error = vw_vhost_user_request(user, &message, &ends[1], 1);
    close(ends[1]);
    return error;
}

/* What is asked for, of what the back-end offers. Requests of the back-end are of use only to tell
 * that the configuration space changed. */
static uint64_t wanted_protocol(uint64_t offered)
{
    uint64_t wanted = vw_bit(VW_VU_PF_MQ) | vw_bit(VW_VU_PF_REPLY_ACK) | vw_bit(VW_VU_PF_MTU) |
                      vw_bit(VW_VU_PF_CONFIG) | vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS) |
                      vw_bit(VW_VU_PF_STATUS);

    if (vw_has(offered, VW_VU_PF_CONFIG))
        wanted |= vw_bit(VW_VU_PF_BACKEND_REQ);
    return offered & wanted;
}

static int negotiate_protocol(struct vw_vhost_user *user)
{
    uint64_t wanted;
    int error;

    if (!vw_has(user->offered, VW_VU_F_PROTOCOL_FEATURES))
        return 0;
    error = vw_vhost_user_ask_u64(user, VW_VU_GET_PROTOCOL_FEATURES, &user->protocol_offered);
    if (error < 0)
        return error;
    wanted = wanted_protocol(user->protocol_offered);
    error = vw_vhost_user_tell_u64(user, VW_VU_SET_PROTOCOL_FEATURES, wanted);
    user->protocol = wanted;
    return error;
}

static int learn_limits(struct vw_vhost_user *user)
{
    uint64_t pairs = 1, slots = VW_VU_MAX_TABLE_REGIONS;
    int error = 0;

    /* Both QEMU and DPDK count queue *pairs* here. */
    if (vw_has(user->protocol, VW_VU_PF_MQ))
        error = vw_vhost_user_ask_u64(user, VW_VU_GET_QUEUE_NUM, &pairs);
    if (error == 0 && vw_has(user->protocol, VW_VU_PF_CONFIGURE_MEM_SLOTS))
        error = vw_vhost_user_ask_u64(user, VW_VU_GET_MAX_MEM_SLOTS, &slots);
    if (error < 0)
        return error;
    if (pairs == 0 || slots == 0) {
        vw_vhost_user_fail(user, -EPROTO, "the back-end says that it has no %s",
                           pairs == 0 ? "queues" : "memory slots");
        return vw_vhost_user_lose(user, -EPROTO);
    }
    user->max_pairs = (unsigned)vw_min64(pairs, VW_VU_MAX_RINGS / 2);
    user->max_regions = (unsigned)vw_min64(slots, VW_VHOST_USER_MAX_REGIONS);
    return 0;
}

static int handshake(struct vw_vhost_user *user)
{
    struct vw_vu_message message;
    int error;

    vw_vu_request(&message, VW_VU_SET_OWNER, 0);
    error = vw_vhost_user_request(user, &message, NULL, 0);
    if (error == 0)
        error = vw_vhost_user_ask_u64(user, VW_VU_GET_FEATURES, &user->offered);
    if (error == 0)
        error = negotiate_protocol(user);
    if (error == 0)
        error = learn_limits(user);
    if (error == 0 && vw_has(user->protocol, VW_VU_PF_BACKEND_REQ)) {
        error = open_channel(user);
        if (error == -EREMOTEIO) {
            vw_vhost_user_close_channel(user);
            error = 0;
        }
    }
    return error;
}

static void begin_connection(struct vw_vhost_user *user, int socket)
{
    struct vw_socket_peer peer = {0};

    user->socket = socket;
    user->offered = user->acknowledged = 0;
    user->protocol_offered = user->protocol = 0;
    user->status = 0;
    user->max_pairs = 1;
    user->max_regions = VW_VU_MAX_TABLE_REGIONS;
    vw_socket_receiver_init(&user->receiver, VW_VU_FRONT_END, true);
    vw_socket_peer(socket, &peer);
    vw_log(user->transport.log, VW_LOG_INFO, "connected to a back-end (process %d)", (int)peer.pid);
}

static int connect_device(struct vw_transport *transport, uint64_t *offered)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    eventfd_t woken;
    int socket, error;

    vw_vhost_user_disconnect(user);
    vw_vhost_user_watch_for_back_end(user, false);
    user->pending = 0; /* what the connection before had to say */
    socket = vw_vhost_user_reach(user);
    if (socket < 0) {
        vw_vhost_user_watch_for_back_end(user, true);
        return socket;
    }
    begin_connection(user, socket);
    error = watch(user, socket, EPOLLIN | EPOLLRDHUP);
    if (error < 0)
        vw_vhost_user_fail(user, error, "the back-end's socket: %s", strerror(-error));
    if (error == 0)
        error = handshake(user);
    if (error < 0) {
        vw_vhost_user_lose(user, error);
        user->pending = 0; /* told by this return */
        eventfd_read(user->wake_fd, &woken);
        return error;
    }
    *offered = user->offered & ~(vw_bit(VW_VU_F_PROTOCOL_FEATURES) | vw_bit(VW_VU_F_LOG_ALL));
    return 0;
}

static void disconnect_device(struct vw_transport *transport)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);

    if (user->socket < 0)
        return;
    vw_vhost_user_disconnect(user);
    user->pending = 0;
    vw_vhost_user_pause_longer(user);
    vw_vhost_user_watch_for_back_end(user, true);
}

/* ---- features, status, configuration ---- */

static int set_status(struct vw_vhost_user *user, uint8_t status)
{
    int error;

    if (!vw_has(user->protocol, VW_VU_PF_STATUS))
        return 0;
    error = vw_vhost_user_tell_u64(user, VW_VU_SET_STATUS, status);
    if (error == 0)
        user->status = status;
    return error;
}

static int accept_features(struct vw_transport *transport, uint64_t features)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    uint64_t protocol_bit = user->offered & vw_bit(VW_VU_F_PROTOCOL_FEATURES);
    uint64_t status = 0;
    int error = 0;

    if (user->socket < 0)
        return -ENOTCONN;
    if (features & ~user->offered)
        return vw_vhost_user_fail(user, -EINVAL, "features that the back-end does not offer");
    if (user->status != 0)
        error = set_status(user, 0);
    if (error == 0)
        error = vw_vhost_user_tell_u64(user, VW_VU_SET_FEATURES, features | protocol_bit);
    if (error < 0)
        return error;
    user->acknowledged = features | protocol_bit;
    error = set_status(user, STATUS_FEATURES_OK);
    /* Section 3.1.1, step 6: only if the bit is still there the device agreed. */
    if (error == 0 && vw_has(user->protocol, VW_VU_PF_STATUS))
        error = vw_vhost_user_ask_u64(user, VW_VU_GET_STATUS, &status);
    if (error == 0 && vw_has(user->protocol, VW_VU_PF_STATUS) &&
        !(status & VIRTIO_CONFIG_S_FEATURES_OK))
        return vw_vhost_user_fail(user, -EREMOTEIO, "the back-end does not take these features");
    return error;
}

static int read_config(struct vw_transport *transport, uint32_t offset, uint32_t size, void *to)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    struct vw_vu_message message;
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    if (!vw_has(user->protocol, VW_VU_PF_CONFIG))
        return vw_vhost_user_fail(user, -ENOTSUP, "the back-end has no configuration space");
    if (!vw_range_fits(offset, size, VW_VU_MAX_CONFIG))
        return vw_vhost_user_fail(user, -EINVAL, "a part of the configuration space beyond 256");
    vw_vu_request(&message, VW_VU_GET_CONFIG, VW_VU_CONFIG_HEADER + size);
    message.payload.config.offset = offset;
    message.payload.config.size = size;
    error = vw_vhost_user_request(user, &message, NULL, 0);
    if (error == 0)
        memcpy(to, user->receiver.message.payload.config.bytes, size);
    return error;
}

static int max_pairs(struct vw_transport *transport, unsigned *pairs)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);

    *pairs = user->max_pairs;
    return user->socket < 0 ? -ENOTCONN : 0;
}

static int set_mtu(struct vw_transport *transport, unsigned mtu)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);

    if (user->socket < 0)
        return -ENOTCONN;
    if (!vw_has(user->protocol, VW_VU_PF_MTU) || !vw_has(user->offered, VIRTIO_NET_F_MTU))
        return vw_vhost_user_fail(user, -ENOTSUP, "the back-end does not want to know the MTU");
    return vw_vhost_user_tell_u64(user, VW_VU_NET_SET_MTU, mtu);
}

static int start(struct vw_transport *transport)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    for (unsigned i = 0; i < user->options.queues; i++)
        if (user->queues[i].set)
            vw_vhost_user_kick(transport, i);
    error = set_status(user, STATUS_DRIVER_OK);
    if (error == 0)
        error = vw_vhost_user_barrier(user);
    if (error == 0)
        user->pause_ms = 0;
    return error;
}

/* ---- events ---- */

static int event_fd(const struct vw_transport *transport)
{
    return vw_container_of(transport, const struct vw_vhost_user, transport)->epoll_fd;
}

/* Between requests a back-end has nothing to say on the main socket. */
static void check_socket(struct vw_vhost_user *user)
{
    char byte;
    ssize_t n = recv(user->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        vw_vhost_user_fail(user, -EPROTO, "the back-end sent something that nobody asked for");
        vw_vhost_user_lose(user, -EPROTO);
        return;
    }
    vw_vhost_user_fail(user, -ECONNRESET, "the back-end closed the connection");
    vw_vhost_user_lose(user, -ECONNRESET);
}

static int process(struct vw_transport *transport)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    eventfd_t woken;
    int events;

    eventfd_read(user->wake_fd, &woken);
    if (user->socket >= 0) {
        vw_vhost_user_serve_channel(user);
        check_socket(user);
    } else if (!(user->pending & VW_TRANSPORT_LOST)) {
        user->pending |= vw_vhost_user_look_for_back_end(user);
    }
    eventfd_read(user->wake_fd, &woken); /* it was written for what is told now */
    events = user->pending;
    user->pending = 0;
    return events;
}

/* ---- open and close ---- */

static void close_transport(struct vw_transport *transport)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);

    vw_vhost_user_disconnect(user);
    vw_vhost_user_unprepare(user);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(user->queues); i++) {
        if (user->queues[i].kick >= 0)
            close(user->queues[i].kick);
        if (user->queues[i].call >= 0)
            close(user->queues[i].call);
    }
    if (user->wake_fd >= 0)
        close(user->wake_fd);
    if (user->epoll_fd >= 0)
        close(user->epoll_fd);
    free((char *)(uintptr_t)user->options.socket_path);
    free(user);
}

static const struct vw_transport_ops operations = {
    .name = "vhost-user",
    .close = close_transport,
    .connect = connect_device,
    .accept = accept_features,
    .disconnect = disconnect_device,
    .share = vw_vhost_user_share,
    .unshare = vw_vhost_user_unshare,
    .read_config = read_config,
    .max_pairs = max_pairs,
    .set_mtu = set_mtu,
    .set_queue = vw_vhost_user_set_queue,
    .enable_queue = vw_vhost_user_enable_queue,
    .start = start,
    .stop_queue = vw_vhost_user_stop_queue,
    .kick = vw_vhost_user_kick,
    .call_fd = vw_vhost_user_call_fd,
    .event_fd = event_fd,
    .process = process,
};

static int open_descriptors(struct vw_vhost_user *user)
{
    int error;

    user->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    user->wake_fd = vw_vhost_user_new_eventfd();
    if (user->epoll_fd < 0 || user->wake_fd < 0)
        return -errno;
    error = watch(user, user->wake_fd, EPOLLIN);
    return error < 0 ? error : vw_vhost_user_prepare(user);
}

int vw_transport_vhost_user_open(const struct vw_transport_vhost_user_options *options,
                                 struct vw_transport **transport)
{
    struct vw_vhost_user *user;
    int flags, error;

    if ((options->socket_path != NULL) == (options->fd >= 0) ||
        (options->listen && options->fd >= 0) || options->queues > VW_VU_MAX_RINGS)
        return -EINVAL;
    user = calloc(1, sizeof(*user));
    if (user == NULL)
        return -ENOMEM;
    user->transport.ops = &operations;
    user->transport.log = options->log;
    user->options = *options;
    user->options.socket_path = options->socket_path ? strdup(options->socket_path) : NULL;
    if (user->options.queues == 0)
        user->options.queues = VW_VU_MAX_RINGS;
    user->listener.fd = user->candidate = user->retry_fd = -1;
    user->epoll_fd = user->wake_fd = -1;
    user->socket = user->channel = -1;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(user->queues); i++)
        user->queues[i].kick = user->queues[i].call = -1;
    error = options->socket_path != NULL && user->options.socket_path == NULL
                ? -ENOMEM
                : open_descriptors(user);
    if (error == 0 && options->fd >= 0) {
        flags = fcntl(options->fd, F_GETFL);
        if (flags < 0 || fcntl(options->fd, F_SETFL, flags | O_NONBLOCK) < 0)
            error = -errno;
        else
            user->candidate = options->fd;
    }
    if (error < 0) {
        close_transport(&user->transport);
        return error;
    }
    *transport = &user->transport;
    return 0;
}
