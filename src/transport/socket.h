/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vhost-user messages over a UNIX stream socket, and the life of such a socket.
 *
 * Theory of operation
 * -------------------
 * The peer may send one byte at a time, several messages in one write, or any number of
 * descriptors. The receiver is a state machine that an event loop feeds: it asks the socket for
 * exactly the bytes that are missing, first of the header, then of the payload, so that it never
 * takes bytes, and with them descriptors, of the next message. Descriptors come with the first
 * byte of a header and nowhere else. Those that nobody took are closed when the next message
 * begins, or with the receiver.
 *
 * Sending is synchronous: messages are small and the peer's buffer takes hundreds of them. A peer
 * that stopped reading fills it, and would hang us: after VW_SOCKET_SEND_TIMEOUT_MS the send
 * fails, part of a message may be out, and the connection is of no more use.
 */
#ifndef VW_TRANSPORT_SOCKET_H
#define VW_TRANSPORT_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "vhost/message.h"

/* More than any message has, so that too many are seen, told, and closed; the kernel closes what
 * goes beyond. */
#define VW_SOCKET_MAX_FDS 32

/* How long a peer may keep us waiting with a full socket buffer. Not tuned: any live front-end
 * reads its replies within milliseconds, and one stopped in a debugger should survive a little. */
#define VW_SOCKET_SEND_TIMEOUT_MS 5000

struct vw_socket_receiver {
    enum vw_vu_requester requester; /* whose requests the socket carries */
    bool replies;                   /* replies to them are expected, not requests */
    bool complete;                  /* message and fds are those of a whole message */
    uint32_t received;              /* bytes of message */
    unsigned fd_count;              /* that came with the message */
    int fds[VW_SOCKET_MAX_FDS];     /* -1: taken */
    const char *why;                /* after -EPROTO: what was wrong */
    struct vw_vu_message message;
};

void vw_socket_receiver_init(struct vw_socket_receiver *receiver, enum vw_vu_requester requester,
                             bool replies);

/* Closes all descriptors that were not taken. The socket is the caller's. */
void vw_socket_receiver_destroy(struct vw_socket_receiver *receiver);

/*
 * Reads what is there, at most to the end of one message; never blocks. The message before it is
 * forgotten, with its descriptors. Returns
 *   1            a whole message is in receiver->message, its header checked, with fd_count fds
 *   -EAGAIN      not yet; poll the socket for reading
 *   0            the peer closed the connection between two messages
 *   -EPROTO      a bad header, descriptors where none may be, or the end within a message:
 *                receiver->why says which; all descriptors are closed; drop the connection
 *   -errno       of recvmsg
 * After anything but 1 and -EAGAIN the receiver is of no more use but to be destroyed.
 */
int vw_socket_receive(struct vw_socket_receiver *receiver, int socket);

/* The same, but waits up to `timeout_ms` for a whole message; then returns -ETIMEDOUT. */
int vw_socket_receive_wait(struct vw_socket_receiver *receiver, int socket, int timeout_ms);

/* Descriptor `index` of the message, now the caller's to close; -1 if there is none (any more). */
int vw_socket_take_fd(struct vw_socket_receiver *receiver, unsigned index);

/*
 * Sends a message, and `fd_count` (up to VW_VU_MAX_FDS) descriptors with it, which stay the
 * caller's. Returns 0, -ETIMEDOUT after VW_SOCKET_SEND_TIMEOUT_MS in all, or -errno (-EPIPE if the
 * peer is gone; no signal is raised). After an error the connection is of no more use.
 */
int vw_socket_send(int socket, const struct vw_vu_message *message, const int *fds,
                   unsigned fd_count);

/* The same with another bound on the wait, in milliseconds; 0: do not wait. */
int vw_socket_send_within(int socket, const struct vw_vu_message *message, const int *fds,
                          unsigned fd_count, int timeout_ms);

struct vw_socket_listener {
    int fd;         /* poll for reading, then vw_socket_accept; -1 if closed */
    bool owns_path; /* we made the socket file */
    dev_t device;   /* which file that is */
    ino_t inode;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/*
 * Listens at `path`. A socket file that nobody listens at any more (its process was killed) is
 * replaced. Access to it follows the caller's umask. Returns 0, or
 *   -EADDRINUSE     another process listens there
 *   -EEXIST         there is a file that is no socket; it is left alone
 *   -ENAMETOOLONG   the path has 108 bytes or more
 * or another -errno.
 */
int vw_socket_listen(struct vw_socket_listener *listener, const char *path);

/* Takes over a listening socket that was made elsewhere (socket activation). 0 or -EINVAL. */
int vw_socket_listen_adopt(struct vw_socket_listener *listener, int fd);

/* Closes, and unlinks the socket file if it is still the one that we made. */
void vw_socket_listener_close(struct vw_socket_listener *listener);

/*
 * Accepts one connection: a non-blocking socket, or -EAGAIN, or -errno. With -EMFILE or -ENFILE
 * the listener stays readable: the caller should leave it out of its poll until it closed some.
 */
int vw_socket_accept(const struct vw_socket_listener *listener);

/* Connects to a listener: a non-blocking socket, or -errno. */
int vw_socket_connect(const char *path);

/* Who is at the other end, as the kernel says; for log lines. Returns 0 or -errno. */
struct vw_socket_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};
int vw_socket_peer(int socket, struct vw_socket_peer *peer);

#endif
