/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vhost-user back-end that does what a test tells it: it answers properly, records what came, and
 * at one request does one thing wrong.
 *
 * Theory of operation
 * -------------------
 * It runs in a thread of its own on one end of a socket pair until its front-end closes the other.
 * The test looks at the record after scripted_end, which waits for that. Descriptors that come are
 * kept only where a test can want them.
 */
#ifndef VW_TESTS_SCRIPTED_BACK_END_H
#define VW_TESTS_SCRIPTED_BACK_END_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "transport/socket.h"
#include "vhost/message.h"

#define SCRIPTED_MAX_RECORDS 256

enum scripted_fault {
    FAULT_NONE,
    FAULT_SILENT,          /* no reply */
    FAULT_CLOSE,           /* the connection instead of a reply */
    FAULT_HALF_HEADER,     /* six bytes, then silence */
    FAULT_HALF_THEN_CLOSE, /* six bytes, then the end */
    FAULT_OTHER_REQUEST,   /* a reply to another request */
    FAULT_NO_REPLY_FLAG,
    FAULT_VERSION,
    FAULT_EMPTY,       /* no payload */
    FAULT_LONG,        /* eight bytes more than there should be */
    FAULT_HUGE,        /* a header that announces 2 GiB */
    FAULT_DESCRIPTOR,  /* one where none belongs */
    FAULT_DESCRIPTORS, /* as many as the kernel takes in a message */
    FAULT_TWICE,       /* a second reply that nobody asked for */
    FAULT_VALUE,       /* the right shape, but `value` for the u64 or the second half of it */
    FAULT_INDEX,       /* GET_VRING_BASE: another ring; GET_CONFIG: another offset */
    FAULT_CALL_FIRST,  /* `ask` is sent on the channel, and its reply awaited, before the reply */
};

struct scripted_record {
    uint32_t request, flags, size;
    unsigned fd_count;
    uint64_t u64; /* the first eight bytes of the payload, or 0 */
};

struct scripted {
    /* What the test says. */
    uint64_t features, protocol; /* offered */
    uint64_t pairs, slots;
    uint32_t base; /* the answer to GET_VRING_BASE */
    uint8_t config[24];
    uint32_t fault_at; /* 0: nowhere */
    enum scripted_fault fault;
    uint64_t value;
    struct vw_vu_message ask; /* for FAULT_CALL_FIRST */

    /* What is seen. */
    unsigned count;
    struct scripted_record records[SCRIPTED_MAX_RECORDS];
    struct vw_vu_memory table;     /* of the last SET_MEM_TABLE */
    struct vw_vu_region slot;      /* of the last ADD_MEM_REG or REM_MEM_REG */
    struct vw_vu_address address;  /* of the last SET_VRING_ADDR */
    struct vw_vu_message answered; /* to what was asked on the channel; request 0: nothing */
    int channel, kick, call;       /* the last of each; -1 */

    uint64_t negotiated; /* protocol features */
    uint64_t status;
    int socket;
    struct vw_socket_receiver receiver;
    pthread_t thread;
};

static inline void scripted_keep(struct scripted *back_end, int *slot)
{
    if (*slot >= 0)
        close(*slot);
    *slot = vw_socket_take_fd(&back_end->receiver, 0);
}

static inline void scripted_note(struct scripted *back_end, const struct vw_vu_message *message)
{
    struct scripted_record *record = &back_end->records[back_end->count];

    if (back_end->count == SCRIPTED_MAX_RECORDS)
        return;
    *record = (struct scripted_record){message->header.request, message->header.flags,
                                       message->header.size, back_end->receiver.fd_count, 0};
    if (message->header.size >= 8)
        record->u64 = message->payload.u64;
    back_end->count++;
}

/* Does what has to be done; the reply, should there be one of its own. */
static inline void scripted_do(struct scripted *back_end, const struct vw_vu_message *message,
                               struct vw_vu_message *reply)
{
    switch (message->header.request) {
    case VW_VU_GET_FEATURES:
        vw_vu_reply_u64(reply, message, back_end->features);
        break;
    case VW_VU_GET_PROTOCOL_FEATURES:
        vw_vu_reply_u64(reply, message, back_end->protocol);
        break;
    case VW_VU_SET_PROTOCOL_FEATURES:
        back_end->negotiated = message->payload.u64;
        break;
    case VW_VU_GET_QUEUE_NUM:
        vw_vu_reply_u64(reply, message, back_end->pairs);
        break;
    case VW_VU_GET_MAX_MEM_SLOTS:
        vw_vu_reply_u64(reply, message, back_end->slots);
        break;
    case VW_VU_SET_STATUS:
        back_end->status = message->payload.u64;
        break;
    case VW_VU_GET_STATUS:
        vw_vu_reply_u64(reply, message, back_end->status);
        break;
    case VW_VU_GET_CONFIG:
        vw_vu_reply_config(reply, message, back_end->config + message->payload.config.offset);
        break;
    case VW_VU_GET_VRING_BASE:
        vw_vu_reply_state(reply, message, message->payload.state.index, back_end->base);
        break;
    case VW_VU_SET_MEM_TABLE:
        back_end->table = message->payload.memory;
        break;
    case VW_VU_ADD_MEM_REG:
    case VW_VU_REM_MEM_REG:
        back_end->slot = message->payload.region.region;
        break;
    case VW_VU_SET_VRING_ADDR:
        back_end->address = message->payload.address;
        break;
    case VW_VU_SET_BACKEND_REQ_FD:
        scripted_keep(back_end, &back_end->channel);
        break;
    case VW_VU_SET_VRING_KICK:
        scripted_keep(back_end, &back_end->kick);
        break;
    case VW_VU_SET_VRING_CALL:
        scripted_keep(back_end, &back_end->call);
        break;
    default:
        break;
    }
}

/* Asks the front-end something on the channel and waits for its reply. */
static inline void scripted_ask(struct scripted *back_end, const struct vw_vu_message *ask)
{
    struct vw_socket_receiver receiver;

    back_end->answered.header.request = 0;
    vw_socket_receiver_init(&receiver, VW_VU_BACK_END, true);
    if (vw_socket_send(back_end->channel, ask, NULL, 0) == 0 &&
        (ask->header.flags & VW_VU_FLAG_NEED_REPLY) &&
        vw_socket_receive_wait(&receiver, back_end->channel, 60000) == 1)
        back_end->answered = receiver.message;
    vw_socket_receiver_destroy(&receiver);
}

/* Does it wrong. Returns false if nothing is to follow. */
static inline bool scripted_fail(struct scripted *back_end, struct vw_vu_message *reply)
{
    int fds[VW_VU_MAX_FDS], count = 0;

    switch (back_end->fault) {
    case FAULT_NONE:
        break;
    case FAULT_SILENT:
        return true;
    case FAULT_CLOSE:
        return false;
    case FAULT_HALF_HEADER:
        return send(back_end->socket, reply, 6, MSG_NOSIGNAL) == 6;
    case FAULT_HALF_THEN_CLOSE:
        send(back_end->socket, reply, 6, MSG_NOSIGNAL);
        return false;
    case FAULT_OTHER_REQUEST:
        reply->header.request = VW_VU_GET_STATUS;
        break;
    case FAULT_NO_REPLY_FLAG:
        reply->header.flags &= ~VW_VU_FLAG_REPLY;
        break;
    case FAULT_VERSION:
        reply->header.flags ^= VW_VU_FLAG_VERSION;
        break;
    case FAULT_EMPTY:
        reply->header.size = 0;
        break;
    case FAULT_LONG:
        memset(reply->payload.bytes + reply->header.size, 0, 8);
        reply->header.size += 8;
        break;
    case FAULT_HUGE:
        reply->header.size = UINT32_C(1) << 31;
        return send(back_end->socket, reply, VW_VU_HEADER_SIZE, MSG_NOSIGNAL) == VW_VU_HEADER_SIZE;
    case FAULT_DESCRIPTORS:
        count = VW_VU_MAX_FDS - 1;
        __attribute__((fallthrough));
    case FAULT_DESCRIPTOR:
        count++;
        for (int i = 0; i < count; i++)
            fds[i] = back_end->socket;
        break;
    case FAULT_TWICE:
        vw_socket_send(back_end->socket, reply, NULL, 0);
        break;
    case FAULT_VALUE:
        if (reply->header.size == sizeof(struct vw_vu_state) &&
            reply->header.request == VW_VU_GET_VRING_BASE)
            reply->payload.state.num = (uint32_t)back_end->value;
        else
            reply->payload.u64 = back_end->value;
        break;
    case FAULT_INDEX:
        reply->payload.state.index++; /* the first field of GET_CONFIG's, too */
        break;
    case FAULT_CALL_FIRST:
        scripted_ask(back_end, &back_end->ask);
        break;
    }
    vw_socket_send(back_end->socket, reply, fds, (unsigned)count);
    return true;
}

/* One message. Returns false at the end of the connection. */
static inline bool scripted_message(struct scripted *back_end)
{
    const struct vw_vu_message *message = &back_end->receiver.message;
    enum vw_vu_answer answer = vw_vu_answer(VW_VU_FRONT_END, message, back_end->negotiated);
    struct vw_vu_message reply;

    scripted_note(back_end, message);
    scripted_do(back_end, message, &reply);
    if (answer == VW_VU_ANSWER_ACK)
        vw_vu_reply_u64(&reply, message, 0);
    if (message->header.request == back_end->fault_at) {
        if (answer == VW_VU_ANSWER_NONE)
            return back_end->fault != FAULT_CLOSE;
        return scripted_fail(back_end, &reply);
    }
    return answer == VW_VU_ANSWER_NONE || vw_socket_send(back_end->socket, &reply, NULL, 0) == 0;
}

static inline void *scripted_main(void *argument)
{
    struct scripted *back_end = argument;

    vw_socket_receiver_init(&back_end->receiver, VW_VU_FRONT_END, false);
    while (vw_socket_receive_wait(&back_end->receiver, back_end->socket, 60000) == 1 &&
           scripted_message(back_end))
        ;
    vw_socket_receiver_destroy(&back_end->receiver);
    shutdown(back_end->socket, SHUT_RDWR);
    return NULL;
}

/* What a good one offers; the test then spoils it. */
static inline void scripted_init(struct scripted *back_end, uint64_t features)
{
    memset(back_end, 0, sizeof(*back_end));
    back_end->features = features | vw_bit(VW_VU_F_PROTOCOL_FEATURES);
    back_end->protocol = vw_bit(VW_VU_PF_MQ) | vw_bit(VW_VU_PF_REPLY_ACK) | vw_bit(VW_VU_PF_MTU) |
                         vw_bit(VW_VU_PF_BACKEND_REQ) | vw_bit(VW_VU_PF_CONFIG) |
                         vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS) | vw_bit(VW_VU_PF_STATUS) |
                         vw_bit(VW_VU_PF_INBAND_NOTIFICATIONS) | vw_bit(VW_VU_PF_LOG_SHMFD) |
                         vw_bit(VW_VU_PF_INFLIGHT_SHMFD);
    back_end->pairs = 4;
    back_end->slots = 32;
    back_end->channel = back_end->kick = back_end->call = -1;
}

/* Starts it; returns the front-end's end of the socket pair. */
static inline int scripted_begin(struct scripted *back_end)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    back_end->socket = ends[1];
    assert_int_equal(pthread_create(&back_end->thread, NULL, scripted_main, back_end), 0);
    return ends[0];
}

/* Waits for the end of the connection; what the back-end kept is closed. */
static inline void scripted_end(struct scripted *back_end)
{
    int *kept[4] = {&back_end->socket, &back_end->channel, &back_end->kick, &back_end->call};

    assert_int_equal(pthread_join(back_end->thread, NULL), 0);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(kept); i++)
        if (*kept[i] >= 0)
            close(*kept[i]);
}

/* How often a request came, and the record of the nth. */
static inline unsigned scripted_seen(const struct scripted *back_end, uint32_t request)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < back_end->count; i++)
        seen += back_end->records[i].request == request;
    return seen;
}

static inline const struct scripted_record *scripted_find(const struct scripted *back_end,
                                                          uint32_t request, unsigned nth)
{
    for (unsigned i = 0; i < back_end->count; i++)
        if (back_end->records[i].request == request && nth-- == 0)
            return &back_end->records[i];
    fail_msg("%s did not come", vw_vu_request_name(VW_VU_FRONT_END, request));
    return NULL;
}

#endif
