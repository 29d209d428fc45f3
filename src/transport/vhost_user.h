/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The vhost-user front-end from the inside; private to transport/.
 *
 * Theory of operation
 * -------------------
 *   vhost_user.c ............ the operations, one after another as a driver uses them
 *   vhost_user_queue.c ...... those for one queue
 *   vhost_user_connect.c .... reaching a back-end: connect or listen, and again after a loss
 *   vhost_user_request.c .... a request and its reply within a time limit; requests of the back-end
 *   vhost_user_memory.c ..... memory regions, as one table or slot by slot
 *
 * The front-end asks, the back-end answers, one request at a time. Wherever it was negotiated an
 * acknowledgement is asked for, so that a failure is told where it happens. A reply that is late,
 * malformed or to another request ends the connection: afterwards nobody could tell which reply
 * belongs to what. A refusal does not.
 *
 * While a reply is awaited the back-end's own requests are served, too: a back-end that waits for
 * our acknowledgement before it answers must not wait for ever.
 *
 * What was learnt outside of `process` (a configuration change while a reply was awaited, a loss)
 * is remembered in `pending`, and `wake_fd` makes the event descriptor readable for it.
 */
#ifndef VW_TRANSPORT_VHOST_USER_H
#define VW_TRANSPORT_VHOST_USER_H

#include "base/bits.h"
#include "transport/socket.h"
#include "transport/transport.h"
#include "vhost/message.h"

/* As many as QEMU and the kernel take with memory slots. */
#define VW_VHOST_USER_MAX_REGIONS 509

/* Messages of the back-end that are served in one turn, so that one which sends without end does
 * not keep the caller for ever. */
#define VW_VHOST_USER_MESSAGES_A_TURN 64

struct vw_vhost_user_region {
    struct vw_vu_region wire;
    int fd; /* our own, since a table names all regions each time */
};

struct vw_vhost_user_queue {
    int kick, call; /* -1 until the first set_queue */
    bool set, enabled, packed;
};

struct vw_vhost_user {
    struct vw_transport transport;
    struct vw_transport_vhost_user_options options; /* socket_path is our own copy */
    struct vw_log_limit log_limit;

    struct vw_socket_listener listener; /* fd -1: none */
    int candidate;                      /* a socket to be used by the next connect; -1 */
    int retry_fd;                       /* timer for the next attempt to connect; -1: never */
    unsigned pause_ms; /* before it, if the last back-end was not good enough; 0: it was */
    int epoll_fd, wake_fd;
    int pending; /* VW_TRANSPORT_*, to be told by process */

    /* The connection. */
    int socket; /* -1: there is none */
    struct vw_socket_receiver receiver;
    uint64_t offered, acknowledged; /* virtio features, bit 30 included */
    uint64_t protocol_offered, protocol;
    unsigned max_pairs;
    uint8_t status;

    /* Requests of the back-end. */
    int channel; /* -1: there is none */
    struct vw_socket_receiver channel_receiver;

    unsigned region_count, max_regions;
    struct vw_vhost_user_region regions[VW_VHOST_USER_MAX_REGIONS];

    struct vw_vhost_user_queue queues[VW_VU_MAX_RINGS];
};

static inline struct vw_vhost_user *vw_vhost_user_of(struct vw_transport *transport)
{
    return vw_container_of(transport, struct vw_vhost_user, transport);
}

/* vhost_user.c: writes transport->why and returns `error`. */
int vw_vhost_user_fail(struct vw_vhost_user *user, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* vhost_user_connect.c */
int vw_vhost_user_prepare(struct vw_vhost_user *user);
void vw_vhost_user_unprepare(struct vw_vhost_user *user);

/* A connected socket, or -errno and why. */
int vw_vhost_user_reach(struct vw_vhost_user *user);

/* Looks from time to time, from now on, whether a back-end can be reached; or no longer. */
void vw_vhost_user_watch_for_back_end(struct vw_vhost_user *user, bool watch);

/* The next watches look less often, until the device was started. */
void vw_vhost_user_pause_longer(struct vw_vhost_user *user);

/* Looks now; VW_TRANSPORT_REACHABLE or 0. */
int vw_vhost_user_look_for_back_end(struct vw_vhost_user *user);

/* vhost_user_request.c: sends a request, and waits for its reply or acknowledgement if one is due.
 * 0, -EREMOTEIO if the back-end refused; otherwise -errno and the connection is over. The reply is
 * in user->receiver.message. */
int vw_vhost_user_request(struct vw_vhost_user *user, struct vw_vu_message *message, const int *fds,
                          unsigned fd_count);
int vw_vhost_user_ask_u64(struct vw_vhost_user *user, uint32_t request, uint64_t *answer);
int vw_vhost_user_tell_u64(struct vw_vhost_user *user, uint32_t request, uint64_t value);
int vw_vhost_user_tell_state(struct vw_vhost_user *user, uint32_t request, uint32_t index,
                             uint32_t value);

/* Returns when the back-end has carried out all that was sent before. */
int vw_vhost_user_barrier(struct vw_vhost_user *user);

/* Reads what the back-end sent on its channel. */
void vw_vhost_user_serve_channel(struct vw_vhost_user *user);
void vw_vhost_user_close_channel(struct vw_vhost_user *user);

/* Ends the connection after a fault or a loss, which process will tell. Returns `error`. */
int vw_vhost_user_lose(struct vw_vhost_user *user, int error);

/* Ends the connection, if there is one. */
void vw_vhost_user_disconnect(struct vw_vhost_user *user);

void vw_vhost_user_set_pending(struct vw_vhost_user *user, int events);

/* vhost_user_queue.c */
int vw_vhost_user_new_eventfd(void);
int vw_vhost_user_set_queue(struct vw_transport *transport, const struct vw_transport_queue *queue);
int vw_vhost_user_enable_queue(struct vw_transport *transport, unsigned index, bool enabled);
void vw_vhost_user_kick(struct vw_transport *transport, unsigned index);
int vw_vhost_user_stop_queue(struct vw_transport *transport, unsigned index, uint32_t *base);
int vw_vhost_user_call_fd(const struct vw_transport *transport, unsigned index);

/* vhost_user_memory.c */
int vw_vhost_user_share(struct vw_transport *transport, int fd, uint64_t offset, void *address,
                        uint64_t size);
int vw_vhost_user_unshare(struct vw_transport *transport, void *address, uint64_t size);
void vw_vhost_user_forget_memory(struct vw_vhost_user *user);

#endif
