/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to src/port: the TAP port, between its opening (tap_open.c), its
 * configuration (tap_control.c) and its work (tap.c). */
#ifndef VW_PORT_TAP_H
#define VW_PORT_TAP_H

#include <linux/if_tun.h>
#include <stdbool.h>
#include <stdint.h>

#include "port/kinds.h"
#include "port/link.h"
#include "port/results.h"
#include "port/tap_ring.h"

/* Newer than the headers of the oldest distribution that we build on (Linux 6.2). */
#define VW_TUN_F_USO4 0x20U
#define VW_TUN_F_USO6 0x40U
#ifdef TUN_F_USO4
_Static_assert(VW_TUN_F_USO4 == TUN_F_USO4 && VW_TUN_F_USO6 == TUN_F_USO6, "<linux/if_tun.h>");
#endif

/* Why transmit stopped, and so what want has to wait for. */
enum vw_tap_blocked {
    VW_TAP_NOT_BLOCKED,
    VW_TAP_NO_ROOM,   /* EAGAIN: the send buffer is full; EPOLLOUT tells when it is not */
    VW_TAP_NO_MEMORY, /* ENOBUFS, ENOMEM: nothing tells; only time helps */
};

/* The buffers of received frames, by number. Each is free, being read into, read, or lent. */
struct vw_tap_received {
    uint8_t free[VW_PORT_BATCH]; /* a stack: what was used last is still in the cache */
    uint32_t free_count;
    uint8_t order[VW_PORT_BATCH]; /* oldest first from `first`: those lent, then those read */
    uint32_t first, lent, read;
    uint32_t length[VW_PORT_BATCH]; /* of the frame in each buffer, with its header */

    uint32_t goal;  /* reads in one go: as many as there may be frames */
    uint32_t along; /* reads that the next batch of writes takes along */
    bool dry;       /* ... and they found less than they asked for */
};

struct vw_tap_queue {
    struct vw_port_queue queue;
    int fd;
    bool attached; /* the kernel steers frames to it; control thread, workers quiescent */
    bool gone;     /* the interface was deleted: the descriptor will never work again */
    enum vw_tap_blocked blocked;
    unsigned no_memory; /* how often in a row the frame at the head found no memory */
    bool room_limited;  /* the send buffer can fill up: see the order of writes in tap.c */
    struct vw_tap_ring ring;
    struct vw_tap_received received;
    char *buffers; /* VW_PORT_BATCH for receive, then one for linearising */
    struct vw_port_results results;
    struct iovec iov[VW_PORT_BATCH][2];
};

struct vw_tap {
    struct vw_port port;
    struct vw_link_monitor monitor;
    bool created; /* by us: it vanishes with the last descriptor */
    bool moved;   /* to another network namespace, where we cannot watch it */
    bool deleted; /* as the monitor says, told to the workers: a macvtap swallows frames then */
    struct vw_port_queue *queues[VW_PORT_MAX_QUEUES];
};

static inline struct vw_tap *vw_tap_of(struct vw_port *port)
{
    return vw_container_of(port, struct vw_tap, port);
}

static inline struct vw_tap_queue *vw_tap_queue_of(struct vw_port_queue *queue)
{
    return vw_container_of(queue, struct vw_tap_queue, queue);
}

extern const struct vw_port_ops vw_tap_ops;

/*
 * Switches the receive offloads, as TUN_F_* flags, to the greatest part of what these GUEST_*
 * features ask for that the kernel accepts. Returns the features that took effect, or -errno.
 */
int64_t vw_tap_set_offloads(int fd, uint64_t features);

bool vw_tap_link_changed(struct vw_port *port);

/* All buffers are free. */
void vw_tap_received_init(struct vw_tap_received *received);

/* Frees the buffers of frames that were read and not lent; returns how many. */
uint32_t vw_tap_received_discard(struct vw_tap_received *received);

/* Ends the use of a ring that failed. The queue goes on with plain system calls. */
void vw_tap_ring_lost(struct vw_tap_queue *tap, int error);

/* The configuration's operations, tap_control.c. */
int64_t vw_tap_set_guest_offloads(struct vw_port *port, uint64_t features);
int vw_tap_set_active_queues(struct vw_port *port, unsigned count);
void vw_tap_close(struct vw_port *port);

#endif
