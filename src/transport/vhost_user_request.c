/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and replies, in both directions; why it is done so is told in vhost_user.h.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/vhost_user.h"

void vw_vhost_user_set_pending(struct vw_vhost_user *user, int events)
{
    user->pending |= events;
    eventfd_write(user->wake_fd, 1);
}

void vw_vhost_user_close_channel(struct vw_vhost_user *user)
{
    if (user->channel < 0)
        return;
    vw_socket_receiver_destroy(&user->channel_receiver);
    close(user->channel); /* and so it leaves the epoll set: nobody else has it */
    user->channel = -1;
}

void vw_vhost_user_disconnect(struct vw_vhost_user *user)
{
    if (user->socket < 0)
        return;
    vw_vhost_user_close_channel(user);
    vw_socket_receiver_destroy(&user->receiver);
    /* The caller may have given us a socket of which it has copies: they must not keep it alive in
     * the epoll set. */
    epoll_ctl(user->epoll_fd, EPOLL_CTL_DEL, user->socket, NULL);
    close(user->socket);
    user->socket = -1;
    vw_vhost_user_forget_memory(user);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(user->queues); i++)
        user->queues[i].set = user->queues[i].enabled = false;
}

int vw_vhost_user_lose(struct vw_vhost_user *user, int error)
{
    if (user->socket < 0)
        return error;
    vw_vhost_user_disconnect(user);
    vw_log_limited(user->transport.log, &user->log_limit, VW_LOG_WARNING,
                   "connection to the back-end ended: %s", user->transport.why);
    vw_vhost_user_set_pending(user, VW_TRANSPORT_LOST);
    vw_vhost_user_watch_for_back_end(user, true);
    return error;
}

/* ---- requests of ours ---- */

static int lose_at(struct vw_vhost_user *user, const struct vw_vu_message *message, int error,
                   const char *what)
{
    vw_vhost_user_fail(user, error, "%s: %s",
                       vw_vu_request_name(VW_VU_FRONT_END, message->header.request), what);
    return vw_vhost_user_lose(user, error);
}

/* Sleeps until the reply, or a request of the back-end, has come. */
static void wait_for_input(const struct vw_vhost_user *user, int64_t left)
{
    struct pollfd wait[2] = {{.fd = user->socket, .events = POLLIN},
                             {.fd = user->channel, .events = POLLIN}}; /* -1 is left out */

    poll(wait, 2, (int)left);
}

static int receive_reply(struct vw_vhost_user *user, const struct vw_vu_message *message,
                         int64_t deadline)
{
    for (;;) {
        int result = vw_socket_receive(&user->receiver, user->socket);
        int64_t left = deadline - vw_clock_ms();

        if (result == 1)
            return 0;
        if (result == 0 || result == -ECONNRESET)
            return lose_at(user, message, -ECONNRESET, "the back-end closed the connection");
        if (result == -EPROTO)
            return lose_at(user, message, result, user->receiver.why);
        if (result != -EAGAIN)
            return lose_at(user, message, result, strerror(-result));
        if (left <= 0)
            return lose_at(user, message, -ETIMEDOUT, "the back-end did not answer in time");
        wait_for_input(user, left);
        vw_vhost_user_serve_channel(user);
    }
}

int vw_vhost_user_request(struct vw_vhost_user *user, struct vw_vu_message *message, const int *fds,
                          unsigned fd_count)
{
    int64_t deadline = vw_clock_ms() + user->options.request_ms;
    const char *why = "";
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    /* Not for the choice of protocol features, which is what allows to ask: not every back-end
     * counts the choice that the very message carries. */
    if (message->header.request != VW_VU_SET_PROTOCOL_FEATURES)
        vw_vu_need_reply(VW_VU_FRONT_END, message, user->protocol);
    error =
        vw_socket_send_within(user->socket, message, fds, fd_count, (int)user->options.request_ms);
    if (error == -EPIPE || error == -ECONNRESET)
        return lose_at(user, message, -ECONNRESET, "the back-end closed the connection");
    if (error < 0)
        return lose_at(user, message, error,
                       error == -ETIMEDOUT ? "the back-end reads no messages" : strerror(-error));
    if (vw_vu_answer(VW_VU_FRONT_END, message, user->protocol) == VW_VU_ANSWER_NONE)
        return 0;
    error = receive_reply(user, message, deadline);
    if (error < 0)
        return error;
    switch (vw_vu_check_reply(VW_VU_FRONT_END, message, &user->receiver.message,
                              user->receiver.fd_count, &why)) {
    case VW_VU_OK:
        return 0;
    case VW_VU_REFUSED:
        return vw_vhost_user_fail(user, -EREMOTEIO, "%s: %s",
                                  vw_vu_request_name(VW_VU_FRONT_END, message->header.request),
                                  why);
    case VW_VU_UNKNOWN:
    case VW_VU_FATAL:
        break;
    }
    return lose_at(user, message, -EPROTO, why);
}

int vw_vhost_user_ask_u64(struct vw_vhost_user *user, uint32_t request, uint64_t *answer)
{
    struct vw_vu_message message;
    int error;

    vw_vu_request(&message, request, 0);
    error = vw_vhost_user_request(user, &message, NULL, 0);
    if (error == 0)
        *answer = user->receiver.message.payload.u64;
    return error;
}

int vw_vhost_user_tell_u64(struct vw_vhost_user *user, uint32_t request, uint64_t value)
{
    struct vw_vu_message message;

    vw_vu_request_u64(&message, request, value);
    return vw_vhost_user_request(user, &message, NULL, 0);
}

int vw_vhost_user_tell_state(struct vw_vhost_user *user, uint32_t request, uint32_t index,
                             uint32_t value)
{
    struct vw_vu_message message;

    vw_vu_request_state(&message, request, index, value);
    return vw_vhost_user_request(user, &message, NULL, 0);
}

int vw_vhost_user_barrier(struct vw_vhost_user *user)
{
    uint64_t ignored;

    if (vw_has(user->protocol, VW_VU_PF_REPLY_ACK))
        return user->socket < 0 ? -ENOTCONN : 0; /* each request was one */
    return vw_vhost_user_ask_u64(user, VW_VU_GET_FEATURES, &ignored);
}

/* ---- requests of the back-end ---- */

static void end_channel(struct vw_vhost_user *user, const char *why)
{
    vw_log_limited(user->transport.log, &user->log_limit, VW_LOG_WARNING,
                   "the back-end's requests are no longer listened to: %s", why);
    vw_vhost_user_close_channel(user);
}

static void answer_channel(struct vw_vhost_user *user, const struct vw_vu_message *reply)
{
    if (vw_socket_send_within(user->channel, reply, NULL, 0, 0) < 0)
        end_channel(user, "the back-end does not read our replies");
}

/* Of all requests only the change of the configuration says something to a front-end like this;
 * IOTLB and in-band calls were not negotiated, and the gates of the table refuse them. */
static void serve_request(struct vw_vhost_user *user)
{
    const struct vw_vu_message *message = &user->channel_receiver.message;
    unsigned fd_count = user->channel_receiver.fd_count;
    struct vw_vu_limits limits = {.offered_features = user->offered,
                                  .acknowledged_features = user->acknowledged,
                                  .offered_protocol = user->protocol_offered,
                                  .acknowledged_protocol = user->protocol,
                                  .rings = VW_VU_MAX_RINGS};
    struct vw_vu_message reply;
    const char *why = "";
    char text[256];
    bool fatal = false;
    enum vw_vu_verdict verdict = vw_vu_check(VW_VU_BACK_END, message, fd_count, &limits, &why);

    if (verdict == VW_VU_OK && message->header.request == VW_VU_BACK_END_CONFIG_CHANGE_MSG) {
        vw_vhost_user_set_pending(user, VW_TRANSPORT_CONFIG_CHANGED);
        if (vw_vu_ack(VW_VU_BACK_END, &reply, message, user->protocol, 0))
            answer_channel(user, &reply);
        return;
    }
    if (verdict == VW_VU_OK)
        why = "not supported";
    vw_vu_describe(VW_VU_BACK_END, &message->header, fd_count, why, text, sizeof(text));
    bool answer = vw_vu_refuse(VW_VU_BACK_END, &reply, message, user->protocol, &fatal);
    if (verdict == VW_VU_FATAL || fatal) {
        end_channel(user, text);
        return;
    }
    vw_log_limited(user->transport.log, &user->log_limit, VW_LOG_WARNING,
                   "request of the back-end refused: %s", text);
    if (answer)
        answer_channel(user, &reply);
}

void vw_vhost_user_serve_channel(struct vw_vhost_user *user)
{
    for (unsigned i = 0; i < VW_VHOST_USER_MESSAGES_A_TURN && user->channel >= 0; i++) {
        int result = vw_socket_receive(&user->channel_receiver, user->channel);

        if (result == -EAGAIN)
            return;
        if (result == 1)
            serve_request(user);
        else if (result == 0 || result == -ECONNRESET)
            vw_vhost_user_close_channel(user); /* it wants to tell nothing more */
        else
            end_channel(user, result == -EPROTO ? user->channel_receiver.why : strerror(-result));
    }
}
