/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages over a socket; what this does and why is told in socket.h. listener.c has the rest.
 */
#include "transport/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/fd.h"

static void close_fds(struct vw_socket_receiver *receiver)
{
    for (unsigned i = 0; i < receiver->fd_count; i++) {
        if (receiver->fds[i] >= 0)
            vw_fd_close(receiver->fds[i]);
    }
    receiver->fd_count = 0;
}

static void begin(struct vw_socket_receiver *receiver)
{
    close_fds(receiver);
    receiver->complete = false;
    receiver->received = 0;
}

static int fail(struct vw_socket_receiver *receiver, const char *why)
{
    close_fds(receiver);
    receiver->why = why;
    return -EPROTO;
}

void vw_socket_receiver_init(struct vw_socket_receiver *receiver, enum vw_vu_requester requester,
                             bool replies)
{
    memset(receiver, 0, sizeof(*receiver));
    receiver->requester = requester;
    receiver->replies = replies;
}

void vw_socket_receiver_destroy(struct vw_socket_receiver *receiver)
{
    begin(receiver);
}

int vw_socket_take_fd(struct vw_socket_receiver *receiver, unsigned index)
{
    int fd;

    if (index >= receiver->fd_count)
        return -1;
    fd = receiver->fds[index];
    receiver->fds[index] = -1;
    return fd;
}

/* Takes over every descriptor that came with a piece of the message; returns how many came. */
static unsigned collect_fds(struct vw_socket_receiver *receiver, struct msghdr *piece)
{
    unsigned came = 0;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(piece); cmsg; cmsg = CMSG_NXTHDR(piece, cmsg)) {
        size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd), sizeof(fd));
            came++;
            if (receiver->fd_count < VW_SOCKET_MAX_FDS)
                receiver->fds[receiver->fd_count++] = fd;
            else
                vw_fd_close(fd);
        }
    }
    return came;
}

/*
 * Reads at most `length` bytes more. There is always room for descriptors: where none may be, they
 * are to be seen and closed. Returns the number of bytes, or as vw_socket_receive.
 */
static int receive_piece(struct vw_socket_receiver *receiver, int socket, uint32_t length)
{
    union {
        char bytes[CMSG_SPACE(VW_SOCKET_MAX_FDS * sizeof(int))];
        struct cmsghdr alignment;
    } control;
    struct iovec iov = {(char *)&receiver->message + receiver->received, length};
    struct msghdr piece = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
    unsigned came;
    ssize_t n;

    do {
        n = recvmsg(socket, &piece, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;

    came = collect_fds(receiver, &piece);
    if (piece.msg_flags & MSG_CTRUNC)
        return fail(receiver, "more file descriptors than any message has, or none left for them");
    if (came > 0 && receiver->received > 0)
        return fail(receiver, "file descriptors within a message");
    if (n == 0 && receiver->received > 0)
        return fail(receiver, "the peer closed the connection within a message");
    receiver->received += (uint32_t)n;
    return (int)n;
}

int vw_socket_receive(struct vw_socket_receiver *receiver, int socket)
{
    if (receiver->why)
        return -EPROTO;
    if (receiver->complete)
        begin(receiver);
    for (;;) {
        uint32_t end = VW_VU_HEADER_SIZE;
        int result;

        /* The size was checked when the header became whole: it fits into the message. */
        if (receiver->received >= VW_VU_HEADER_SIZE)
            end += receiver->message.header.size;
        if (receiver->received >= VW_VU_HEADER_SIZE && receiver->received == end)
            break;
        result = receive_piece(receiver, socket, end - receiver->received);
        if (result <= 0)
            return result;
        if (receiver->received == VW_VU_HEADER_SIZE &&
            vw_vu_check_header(receiver->requester, receiver->replies, &receiver->message.header,
                               &receiver->why) != VW_VU_OK)
            return fail(receiver, receiver->why);
    }
    receiver->complete = true;
    return 1;
}

/* Waits for the socket, at most until `deadline`. Returns 0 if it is worth another try. */
static int wait_until(int socket, short events, int64_t deadline)
{
    int64_t left = deadline - vw_clock_ms();
    struct pollfd entry = {.fd = socket, .events = events};
    int ready;

    if (left <= 0)
        return -ETIMEDOUT;
    ready = poll(&entry, 1, (int)left);
    if (ready < 0 && errno != EINTR)
        return -errno;
    return 0;
}

int vw_socket_receive_wait(struct vw_socket_receiver *receiver, int socket, int timeout_ms)
{
    int64_t deadline = vw_clock_ms() + timeout_ms;

    for (;;) {
        int result = vw_socket_receive(receiver, socket);

        if (result != -EAGAIN)
            return result;
        result = wait_until(socket, POLLIN, deadline);
        if (result)
            return result;
    }
}

/* One try to send what is left. The descriptors go with the first byte, and so at most once. */
static ssize_t send_piece(int socket, const char *bytes, size_t length, const int *fds,
                          unsigned fd_count)
{
    union {
        char bytes[CMSG_SPACE(VW_VU_MAX_FDS * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec iov = {(char *)(uintptr_t)bytes, length};
    struct msghdr piece = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
        piece.msg_control = &control;
        piece.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    do {
        n = sendmsg(socket, &piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int vw_socket_send_within(int socket, const struct vw_vu_message *message, const int *fds,
                          unsigned fd_count, int timeout_ms)
{
    size_t length = VW_VU_HEADER_SIZE + (size_t)message->header.size;
    size_t sent = 0;
    int64_t deadline = vw_clock_ms() + timeout_ms;

    if (message->header.size > VW_VU_MAX_PAYLOAD || fd_count > VW_VU_MAX_FDS)
        return -EINVAL;
    while (sent < length) {
        ssize_t n = send_piece(socket, (const char *)message + sent, length - sent, fds,
                               sent == 0 ? fd_count : 0);
        int error;

        if (n >= 0) {
            sent += (size_t)n;
            continue;
        }
        if (n != -EAGAIN && n != -EWOULDBLOCK)
            return (int)n;
        error = wait_until(socket, POLLOUT, deadline);
        if (error)
            return error;
    }
    return 0;
}

int vw_socket_send(int socket, const struct vw_vu_message *message, const int *fds,
                   unsigned fd_count)
{
    return vw_socket_send_within(socket, message, fds, fd_count, VW_SOCKET_SEND_TIMEOUT_MS);
}
