/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a driver reaches a device: one interface for vhost-user, and later kernel vhost, vDPA, PCI.
 *
 * Theory of operation
 * -------------------
 * The driver goes through these steps, in this order; after a loss of the device it begins again
 * with `connect`, with the same memory and the positions that its rings have reached:
 *
 *   open ......... makes the object; nothing is sent
 *   connect ...... reaches the device and learns what it offers
 *   accept ....... the driver's choice of features
 *   share ........ memory that the device is to see; before the queues, and more of it at any time
 *   set_queue .... ring size, place and base of each queue; gives its kick and call descriptors
 *   start ........ the device may use the queues
 *   stop ......... the device no longer does; the base of each queue comes back
 *
 * Device addresses of memory are its addresses in this process: a driver in user space writes into
 * a descriptor the pointer that it has itself (vhost-user: guest address = user address).
 *
 * A device that is lost (it went away, it broke the protocol, it did not answer in time) is told by
 * `process` with VW_TRANSPORT_LOST, once; until the next `connect` all but `close`, `process` and
 * the descriptors fail with -ENOTCONN. `event_fd` goes on: where a device can be reached again, it
 * becomes readable for it and `process` answers VW_TRANSPORT_REACHABLE; `connect` does then not
 * wait for the device to appear. `connect` forgets memory and queues: they are all given again.
 * Call descriptors stay the same for the life of the transport.
 *
 * One thread uses a transport, but for `kick`, which any thread may call for its own queue, at any
 * time after its first set_queue.
 */
#ifndef VW_TRANSPORT_TRANSPORT_H
#define VW_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "ring/ring.h"

struct vw_transport;

/* A queue as the device is to find it. */
struct vw_transport_queue {
    unsigned index;
    struct vw_ring_config ring; /* areas are local pointers inside shared memory */
    /* Where the ring stands, in vhost-user's encoding: a split ring's available index; a packed
     * ring's available position and wrap bit, and the used ones in the upper half (a fresh ring:
     * 0x80008000). Some back-ends (DPDK) look at the lower half alone and take the used position
     * for the same, so that a packed ring should be set up with nothing in flight. */
    uint32_t base;
};

struct vw_transport_ops {
    const char *name;
    void (*close)(struct vw_transport *transport);

    /* Reaches the device. *offered: its features, without those of the transport. -errno. */
    int (*connect)(struct vw_transport *transport, uint64_t *offered);
    int (*accept)(struct vw_transport *transport, uint64_t features);
    /* Gives the device up: for a driver that cannot use what it reached, and waits for another.
     * As a loss, but for VW_TRANSPORT_LOST, which is not told. */
    void (*disconnect)(struct vw_transport *transport);

    /* `size` bytes at `address`, which is `fd` mapped from `offset` on. unshare: same values. */
    int (*share)(struct vw_transport *transport, int fd, uint64_t offset, void *address,
                 uint64_t size);
    int (*unshare)(struct vw_transport *transport, void *address, uint64_t size);

    /* Bytes of configuration space; -ENOTSUP if the device has none to read, -EREMOTEIO if it
     * refuses. */
    int (*read_config)(struct vw_transport *transport, uint32_t offset, uint32_t size, void *to);
    /* Queue pairs that the device has. */
    int (*max_pairs)(struct vw_transport *transport, unsigned *pairs);
    /* Tells the device the MTU in use. -ENOTSUP if it does not want to know. */
    int (*set_mtu)(struct vw_transport *transport, unsigned mtu);

    /* The ring's memory is initialised before: some devices start with this call. */
    int (*set_queue)(struct vw_transport *transport, const struct vw_transport_queue *queue);
    /* A queue begins disabled. -ENOTSUP to disable one where that cannot be done. */
    int (*enable_queue)(struct vw_transport *transport, unsigned index, bool enabled);
    int (*start)(struct vw_transport *transport);
    /* *base: where the device stands. -errno if it did not answer (the queue is stopped all the
     * same). */
    int (*stop_queue)(struct vw_transport *transport, unsigned index, uint32_t *base);

    void (*kick)(struct vw_transport *transport, unsigned index);
    /* Readable when the device called; to be read (8 bytes) by the driver. -1 if there is none. */
    int (*call_fd)(const struct vw_transport *transport, unsigned index);

    /* Readable when `process` has something to do. process returns VW_TRANSPORT_* bits. */
    int (*event_fd)(const struct vw_transport *transport);
    int (*process)(struct vw_transport *transport);
};

#define VW_TRANSPORT_CONFIG_CHANGED 1 /* the device says that its configuration changed */
#define VW_TRANSPORT_LOST 2           /* the device is gone; transport->why says how */
#define VW_TRANSPORT_REACHABLE 4      /* it is there again, or another: connect */

struct vw_transport {
    const struct vw_transport_ops *ops;
    const struct vw_log *log;
    char why[160]; /* one sentence about the last failure */
};

struct vw_transport_vhost_user_options {
    const char *socket_path;
    int fd;                /* connected socket, the transport's from now on; or -1 */
    bool listen;           /* at socket_path, instead of connecting to it */
    unsigned connect_ms;   /* how long `connect` waits for a back-end to appear */
    unsigned request_ms;   /* time limit of each request */
    unsigned queues;       /* at most so many will be set up, control queue included; 0: 256 */
    const struct vw_log *log;
};

/*
 * A vhost-user front-end. Nothing is sent yet, but with `listen` the socket is made: the errors are
 * those of vw_socket_listen, or -EINVAL for neither or both of a path and a descriptor. On failure
 * the descriptor stays the caller's.
 */
int vw_transport_vhost_user_open(const struct vw_transport_vhost_user_options *options,
                                 struct vw_transport **transport);

#endif
