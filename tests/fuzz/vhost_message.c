/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that sends anything: what was negotiated, then pieces of a stream, each with any number
 * of descriptors. What passes the checks has to be what its handlers rely on, and no descriptor
 * may stay open.
 *
 * Input: 1 byte of flags, 1 byte of rings, 8 bytes each of offered and acknowledged features and
 * acknowledged protocol features; then pieces: 1 byte of length, 1 byte of descriptors, bytes.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/socket.h"
#include "vhost/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SETUP_BYTES 26
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            __builtin_trap();                                                                      \
    } while (0)

/* What handlers take for granted about an accepted request of a front-end. */
static void must_hold(const struct vw_vu_message *message, unsigned fds,
                      const struct vw_vu_limits *limits)
{
    switch (message->header.request) {
    case VW_VU_SET_FEATURES:
        MUST((message->payload.u64 & ~limits->offered_features) == 0);
        break;
    case VW_VU_SET_MEM_TABLE:
        MUST(message->payload.memory.count <= VW_VU_MAX_TABLE_REGIONS);
        MUST(message->payload.memory.count == fds);
        MUST(message->header.size >= 8 + message->payload.memory.count * 32);
        for (uint32_t i = 0; i < message->payload.memory.count; i++)
            MUST(message->payload.memory.regions[i].size > 0);
        break;
    case VW_VU_SET_VRING_NUM:
        MUST(message->payload.state.num > 0 && message->payload.state.num <= 32768);
        MUST(message->payload.state.index < limits->rings);
        break;
    case VW_VU_SET_VRING_ADDR:
    case VW_VU_SET_VRING_BASE:
    case VW_VU_GET_VRING_BASE:
    case VW_VU_SET_VRING_ENABLE:
        MUST(message->payload.state.index < limits->rings);
        break;
    case VW_VU_SET_VRING_KICK:
    case VW_VU_SET_VRING_CALL:
    case VW_VU_SET_VRING_ERR:
        MUST((message->payload.u64 & VW_VU_RING_MASK) < limits->rings);
        MUST(fds == !(message->payload.u64 & VW_VU_RING_NOFD));
        break;
    case VW_VU_GET_CONFIG:
    case VW_VU_SET_CONFIG:
        MUST(message->payload.config.size <= VW_VU_MAX_CONFIG);
        MUST(message->payload.config.offset <= VW_VU_MAX_CONFIG - message->payload.config.size);
        break;
    default:
        break;
    }
}

static void one_message(struct vw_socket_receiver *receiver, const struct vw_vu_limits *limits)
{
    const struct vw_vu_message *message = &receiver->message;
    enum vw_vu_requester requester = receiver->requester;
    struct vw_vu_message reply;
    const char *why = NULL;
    char text[64];
    bool fatal;
    enum vw_vu_verdict verdict;

    MUST(message->header.size <= VW_VU_MAX_PAYLOAD);
    if (receiver->replies) {
        vw_vu_request_u64(&reply, message->header.request, 0);
        verdict = vw_vu_check_reply(requester, &reply, message, receiver->fd_count, &why);
    } else {
        verdict = vw_vu_check(requester, message, receiver->fd_count, limits, &why);
        if (verdict == VW_VU_OK && requester == VW_VU_FRONT_END)
            must_hold(message, receiver->fd_count, limits);
        if (vw_vu_refuse(requester, &reply, message, limits->acknowledged_protocol, &fatal))
            MUST(!fatal && reply.header.flags == (VW_VU_VERSION | VW_VU_FLAG_REPLY));
        if (verdict == VW_VU_REFUSED || verdict == VW_VU_UNKNOWN)
            MUST(!fatal);
    }
    MUST(verdict == VW_VU_OK || why);
    vw_vu_describe(requester, &message->header, receiver->fd_count, why ? why : "", text,
                   sizeof(text));
    if (message->header.flags & VW_VU_FLAG_NEED_REPLY) /* some keep a descriptor */
        close(vw_socket_take_fd(receiver, 0));
}

static void send_piece(int socket, const uint8_t *bytes, size_t length, unsigned fd_count)
{
    union {
        char bytes[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec iov = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (unsigned i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &socket, sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    MUST(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length);
}

/* The lowest number that is free: a descriptor left open moves it, or takes it. */
static int lowest_free(void)
{
    int fd = dup(STDERR_FILENO);

    MUST(fd >= 0);
    close(fd);
    return fd;
}

static void feed(struct vw_socket_receiver *receiver, const struct vw_vu_limits *limits,
                 const uint8_t *data, size_t size)
{
    int sockets[2], result = -EAGAIN;

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    while (size > 2 && result == -EAGAIN) {
        size_t length = data[0] < size - 2 ? data[0] : size - 2;

        if (length > 0)
            send_piece(sockets[0], data + 2, length, data[1] < 128 ? 0 : data[1] % 64);
        data += 2 + length;
        size -= 2 + length;
        while ((result = vw_socket_receive(receiver, sockets[1])) == 1)
            one_message(receiver, limits);
        MUST(result == -EAGAIN || result == -EPROTO);
    }
    close(sockets[0]);
    if (result == -EAGAIN)
        MUST(vw_socket_receive(receiver, sockets[1]) != 1);
    vw_socket_receiver_destroy(receiver);
    close(sockets[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vw_socket_receiver receiver;
    struct vw_vu_limits limits = {0};
    int free_before = lowest_free();

    if (size < SETUP_BYTES)
        return 0;
    limits.rings = data[1];
    memcpy(&limits.offered_features, data + 2, 8);
    memcpy(&limits.acknowledged_features, data + 10, 8);
    memcpy(&limits.acknowledged_protocol, data + 18, 8);
    limits.offered_protocol = ~UINT64_C(0);
    vw_socket_receiver_init(&receiver, data[0] & 1 ? VW_VU_BACK_END : VW_VU_FRONT_END, data[0] & 2);
    feed(&receiver, &limits, data + SETUP_BYTES, size - SETUP_BYTES);
    MUST(lowest_free() == free_before);
    return 0;
}
