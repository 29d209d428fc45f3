/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to src/port: the TAP port, between its opening (tap_open.c) and its work (tap.c). */
#ifndef VW_PORT_TAP_H
#define VW_PORT_TAP_H

#include <linux/if_tun.h>
#include <stdbool.h>
#include <stdint.h>

#include "port/kinds.h"
#include "port/link.h"
#include "port/results.h"

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

struct vw_tap_queue {
    struct vw_port_queue queue;
    int fd;
    bool attached; /* the kernel steers frames to it; control thread, workers quiescent */
    bool gone;     /* the interface was deleted: the descriptor will never work again */
    enum vw_tap_blocked blocked;
    unsigned no_memory; /* how often in a row the frame at the head found no memory */
    uint32_t next;      /* free-running: the buffer for the next frame */
    uint32_t lent;      /* buffers before `next` that are with the device */
    char *buffers;      /* VW_PORT_BATCH for receive, then one for linearising */
    struct vw_port_results results;
    struct iovec iov[VW_PORT_BATCH][2];
};

struct vw_tap {
    struct vw_port port;
    struct vw_link_monitor monitor;
    bool created; /* by us: it vanishes with the last descriptor */
    bool moved;   /* to another network namespace, where we cannot watch it */
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

#endif
