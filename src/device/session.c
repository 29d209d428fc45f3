/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A front-end's connection: receive, check, carry out, answer.
 *
 * The workers are paused at the first message of a burst that may touch them and resumed when the
 * socket is empty, so that a set-up of many messages costs one pause.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "device/internal.h"
#include "memory/map.h"

/* A front-end that sends without end must not keep the control thread from everything else. */
#define MESSAGES_A_TURN 64

void vw_session_start(struct vw_device *device, int socket)
{
    struct vw_socket_peer peer = {.pid = getpid()};

    device->connected = true;
    device->socket = socket;
    device->config_changed = false;
    device->acknowledged = 0;
    device->front_end_features = false;
    device->ring_enable = true;
    device->protocol = 0;
    device->status = 0;
    vw_socket_receiver_init(&device->receiver, VW_VU_FRONT_END, false);
    /* What came while there was no guest is for none. */
    vw_device_pause(device);
    for (unsigned i = 0; i < device->pair_count; i++)
        vw_receive_discard(&device->pairs[i]);
    vw_count(&device->counters.connections, 1);
    if (socket >= 0)
        vw_socket_peer(socket, &peer);
    vw_log_limited(device->log, &device->log_limit, VW_LOG_INFO, "front-end connected (process %d)",
                   (int)peer.pid);
    if (socket >= 0 && vw_device_watch(device, socket, EPOLLIN, VW_EVENT_SOCKET) < 0)
        vw_session_end(device, "it cannot be waited for", true);
}

void vw_session_reset_rings(struct vw_device *device)
{
    const char *why;

    for (unsigned i = 0; i <= 2 * device->pair_count; i++) {
        struct vw_queue *queue = &device->queues[i];

        vw_queue_stop(queue);
        vw_queue_refresh(queue, VW_RING_SPLIT, 0, device->memory, &why);
    }
    device->config.announce = false;
    vw_device_reset_mac(device); /* whatever the driver before had set */
    vw_net_control_reset(&device->control, device->acknowledged, (uint16_t)device->pair_count,
                         device->config.mac);
    vw_device_set_rules(device);
}

void vw_session_end(struct vw_device *device, const char *reason, bool fault)
{
    if (!device->connected)
        return;
    vw_device_pause(device);
    if (device->socket >= 0) {
        vw_device_unwatch(device, device->socket);
        close(device->socket);
    }
    device->connected = false;
    device->socket = -1;
    device->in_process = NULL;
    vw_socket_receiver_destroy(&device->receiver);
    vw_back_end_set(device, -1);
    vw_control_queue_unwatch(device);
    for (unsigned i = 0; i < device->pair_count; i++) {
        vw_worker_unwatch_kicks(&device->pairs[i]);
        vw_receive_discard(&device->pairs[i]);
    }
    for (unsigned i = 0; i <= 2 * device->pair_count; i++)
        vw_queue_reset(&device->queues[i]);
    vw_memory_unmap_all(device->memory);
    device->acknowledged = 0;
    device->ring_enable = true;
    vw_device_reset_config(device);
    vw_session_reset_rings(device);
    device->port->ops->set_guest_offloads(device->port, 0);
    if (fault)
        vw_count(&device->counters.connections_dropped, 1);
    vw_log_limited(device->log, &device->log_limit, fault ? VW_LOG_WARNING : VW_LOG_INFO,
                   "front-end %s: %s", fault ? "dropped" : "disconnected", reason);
}

/* Sends a reply; a front-end that let hundreds of replies pile up is not worth waiting for. */
static bool send_reply(struct vw_device *device, const struct vw_vu_message *reply)
{
    int error = vw_socket_send_within(device->socket, reply, NULL, 0, 0);

    if (error < 0)
        vw_session_end(device, error == -EPIPE ? "it went away" : "it does not read our replies",
                       error != -EPIPE && error != -ECONNRESET);
    return error == 0;
}

static bool refuse(struct vw_device *device, const struct vw_vu_message *message, uint64_t protocol,
                   const char *why)
{
    struct vw_vu_message reply;
    char text[256];
    bool fatal = false;

    vw_vu_describe(VW_VU_FRONT_END, &message->header, device->receiver.fd_count, why, text,
                   sizeof(text));
    vw_count(&device->counters.messages_refused, 1);
    bool answer = vw_vu_refuse(VW_VU_FRONT_END, &reply, message, protocol, &fatal);
    if (fatal) {
        vw_session_end(device, text, true);
        return false;
    }
    vw_log_limited(device->log, &device->log_limit, VW_LOG_WARNING, "refused: %s", text);
    return !answer || send_reply(device, &reply);
}

static enum vw_vu_verdict check_message(struct vw_device *device, const char **why)
{
    const struct vw_vu_message *message = &device->receiver.message;
    const struct vw_vu_limits limits = {
        .offered_features = device->offered | vw_bit(VW_VU_F_PROTOCOL_FEATURES),
        .acknowledged_features =
            device->acknowledged |
            (device->front_end_features && device->ring_enable ? vw_bit(VW_VU_F_PROTOCOL_FEATURES)
                                                               : 0),
        .offered_protocol = device->protocol_offered,
        .acknowledged_protocol = device->protocol,
        .rings = 2 * device->pair_count + 1,
        .max_ring_size = device->options.queue_size,
        .config_size = VW_VU_MAX_CONFIG,
    };

    vw_count(&device->counters.messages, 1);
    return vw_vu_check(VW_VU_FRONT_END, message, device->receiver.fd_count, &limits, why);
}

/* One message. False: the connection is over. */
static bool process_message(struct vw_device *device)
{
    const struct vw_vu_message *message = &device->receiver.message;
    struct vw_vu_message reply;
    char text[256];
    const char *why = "";

    switch (check_message(device, &why)) {
    case VW_VU_OK:
        break;
    case VW_VU_REFUSED:
    case VW_VU_UNKNOWN:
        return refuse(device, message, device->protocol, why);
    case VW_VU_FATAL:
        vw_session_end(device,
                       vw_vu_describe(VW_VU_FRONT_END, &message->header, device->receiver.fd_count,
                                      why, text, sizeof(text)),
                       true);
        return false;
    }

    enum vw_vu_answer answer = vw_vu_answer(VW_VU_FRONT_END, message, device->protocol);
    device->why = "it cannot be done";
    if (vw_session_handle(device, message, &reply) < 0)
        return refuse(device, message, device->protocol, device->why);
    if (device->socket < 0)
        return false;
    if (answer == VW_VU_ANSWER_ACK)
        vw_vu_ack(VW_VU_FRONT_END, &reply, message, device->protocol, 0);
    return answer == VW_VU_ANSWER_NONE || send_reply(device, &reply);
}

void vw_session_readable(struct vw_device *device)
{
    for (unsigned i = 0; i < MESSAGES_A_TURN && device->socket >= 0; i++) {
        int result = vw_socket_receive(&device->receiver, device->socket);

        if (result == -EAGAIN)
            return;
        if (result == 1) {
            /* Who makes this thread wait has had the turn: it is not to wait for 64 messages. */
            if (!process_message(device) || atomic_exchange(&device->blocked, false))
                return;
        } else if (result == 0 || result == -ECONNRESET) {
            vw_session_end(device, "it closed the connection", false);
        } else {
            vw_session_end(device, result == -EPROTO ? device->receiver.why : strerror(-result),
                           true);
        }
    }
}

int vw_session_request(struct vw_device *device, const struct vw_vu_message *message, int fd,
                       struct vw_vu_message *reply)
{
    struct vw_socket_receiver *receiver = &device->receiver;
    int error = 0;

    receiver->message = *message;
    receiver->fd_count = fd >= 0;
    receiver->fds[0] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    device->why = "it cannot be done";
    if (fd >= 0 && receiver->fds[0] < 0)
        error = -errno;
    if (error == 0 && check_message(device, &device->why) != VW_VU_OK)
        error = -EINVAL;
    if (error == 0)
        error = vw_session_handle(device, &receiver->message, reply);
    if (error < 0)
        vw_count(&device->counters.messages_refused, 1);
    fd = vw_socket_take_fd(receiver, 0); /* nobody wanted it */
    if (fd >= 0)
        close(fd);
    return error;
}
