/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device from the inside. Who may touch what:
 *
 *   control thread ... everything, but what the workers use only while they are paused
 *   worker ........... its pair, its two queues, its queue of the port; reads rules, control and
 *                      toeplitz; with steering also other receive queues, under their locks
 */
#ifndef VW_DEVICE_INTERNAL_H
#define VW_DEVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/bits.h"
#include "base/iov.h"
#include "base/log.h"
#include "device/counters.h"
#include "device/device.h"
#include "device/pair.h"
#include "device/queue.h"
#include "device/worker.h"
#include "memory/memory.h"
#include "net/checksum.h"
#include "net/config.h"
#include "net/control.h"
#include "net/features.h"
#include "net/filter.h"
#include "net/header.h"
#include "net/rarp.h"
#include "transport/socket.h"
#include "transport/transport.h"

/* How long a frame waits for more buffers while the guest offers some, but too few. Long against
 * the time that a guest takes to post more (it does so within its next poll), short against the
 * timeouts of people. */
#define VW_STARVED_TIMEOUT_MS 500

/* What the datapath follows. Made anew by vw_device_set_rules whenever something changes. */
struct vw_rules {
    uint64_t features;       /* negotiated */
    uint64_t guest_offloads; /* GUEST_* in force */
    unsigned header_size;    /* of the virtio-net header: 10, 12 or 20 */
    unsigned max_frame;      /* longest unsegmented frame to the guest; 0: any */
    unsigned active_pairs;
    bool mergeable, filter, hash, steering;
    bool coalescing; /* of any queue */
};

/* The channel for requests of ours (back_end.c); workers send in-band calls on it. */
struct vw_back_end {
    pthread_mutex_t lock;
    int fd;         /* -1: none */
    bool under_way; /* a request waits for its acknowledgement */
    bool config_noted;
    uint64_t calls_noted[VW_VU_MAX_RINGS / 64], errors_noted[VW_VU_MAX_RINGS / 64];
    struct vw_socket_receiver receiver;
};

struct vw_device {
    struct vw_device_options options;
    const struct vw_log *log;
    struct vw_log_limit log_limit;
    struct vw_port *port;

    int epoll_fd;
    struct vw_socket_listener listener; /* fd -1: none */
    bool accept_failed;                 /* and was told */
    int retry_fd;                       /* client mode: timer for the next attempt; -1 */
    int again_fd; /* eventfd: the control thread has left something for its next turn */

    /* The connection. */
    bool connected;                        /* there is a front-end: */
    int socket;                            /* over this socket, or -1 and */
    const struct vw_transport *in_process; /* through this transport */
    bool config_changed;                   /* which it is to be told */
    struct vw_socket_receiver receiver;
    uint64_t offered, acknowledged; /* virtio features, without bit 30 */
    bool front_end_features;        /* SET_FEATURES came, and */
    bool ring_enable;               /* bit 30 was in it: rings wait for SET_VRING_ENABLE */
    uint64_t protocol_offered, protocol;
    uint8_t status;
    const char *why; /* phrase for a refused message */
    struct vw_memory *memory;

    struct vw_back_end back_end;

    struct vw_net_config config;
    struct vw_net_control_state control;
    struct vw_net_toeplitz toeplitz;
    struct vw_rules rules;

    unsigned pair_count;
    unsigned served_pairs; /* queues of the port that are active, from the first on */
    struct vw_pair *pairs;
    unsigned worker_count;
    struct vw_worker *workers;
    struct vw_queue *queues;  /* 2 a pair, then the control queue */
    int control_kick_watched; /* the control queue's kick descriptor in epoll, or -1 */
    bool paused;
    bool interrupts;      /* vw_interrupt_begin was called for the control thread */
    _Atomic bool blocked; /* a notifier blocked the thread that wrote to it */

    struct vw_device_counters counters;
};

/* What woke the control thread. */
enum vw_device_event {
    VW_EVENT_LISTENER,
    VW_EVENT_SOCKET,
    VW_EVENT_BACK_END,
    VW_EVENT_CONTROL_KICK,
    VW_EVENT_LINK,
    VW_EVENT_RETRY,
    VW_EVENT_MEMORY_LOST,
    VW_EVENT_AGAIN,
};

/* device.c: waits, pauses, rules */
int vw_device_watch(struct vw_device *device, int fd, uint32_t events, enum vw_device_event event);
void vw_device_unwatch(struct vw_device *device, int fd);
void vw_device_pause(struct vw_device *device);
void vw_device_resume(struct vw_device *device);
void vw_device_come_again(struct vw_device *device); /* there is more for the control queue */
void vw_device_wake_after(struct vw_device *device, unsigned milliseconds);
void vw_device_set_rules(struct vw_device *device);
void vw_device_reset_config(struct vw_device *device); /* as the options say */
void vw_device_reset_mac(struct vw_device *device);
void vw_device_set_link(struct vw_device *device, bool up);
uint16_t vw_device_steer(const struct vw_device *device, const struct vw_net_hash *hash);

static inline struct vw_queue *vw_device_control_queue(struct vw_device *device)
{
    return &device->queues[2 * device->pair_count];
}

/* session.c: the front-end's connection; without a socket, that of in_process.c */
void vw_session_start(struct vw_device *device, int socket);
void vw_session_end(struct vw_device *device, const char *reason, bool fault);
void vw_session_readable(struct vw_device *device);

/* Checks and carries out a message that came without a socket, with a descriptor that stays the
 * caller's, or -1. Returns 0, and in *reply the reply of a request that has one of its own; or
 * -errno with device->why. Workers may stay paused. */
int vw_session_request(struct vw_device *device, const struct vw_vu_message *message, int fd,
                       struct vw_vu_message *reply);

/* Back to what a front-end finds when it connects, or after a device reset. Paused. */
void vw_session_reset_rings(struct vw_device *device);

/* messages.c: carries out one message that was checked. Returns 0, or -errno with device->why. For
 * a request with a reply of its own, *reply is that reply. */
int vw_session_handle(struct vw_device *device, const struct vw_vu_message *message,
                      struct vw_vu_message *reply);

/* messages.c: adds a region that is mapped. Returns 0, or -errno with device->why, and then the
 * mapping is the caller's. Workers stay paused. */
int vw_session_add_region(struct vw_device *device, const struct vw_memory_region *region);

/* back_end.c: requests of ours */
void vw_back_end_set(struct vw_device *device, int fd);
void vw_back_end_readable(struct vw_device *device);
void vw_back_end_config_changed(struct vw_device *device);
bool vw_back_end_call(struct vw_device *device, unsigned index);
void vw_back_end_error(struct vw_device *device, unsigned index);

/* control_queue.c: commands of the guest's driver */
void vw_control_queue_run(struct vw_device *device);
int vw_control_queue_watch(struct vw_device *device);
void vw_control_queue_unwatch(struct vw_device *device);

#endif
