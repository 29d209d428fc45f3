/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One virtqueue of a device: what the front-end configured, its ring while it runs, and how to
 * notify the guest.
 *
 * Theory of operation
 * -------------------
 * vhost-user keeps two independent bits for each ring. *Started* becomes true with a kick
 * descriptor (or an in-band kick) and false with GET_VRING_BASE; *enabled* follows
 * SET_VRING_ENABLE, or SET_FEATURES without bit 30. A started ring is processed; if it is disabled,
 * transmitted frames are taken and discarded, and nothing is received.
 *
 * A queue is *live* while it is started and its size, addresses and memory are all there: only then
 * does its ring object exist. Sizes and addresses may come in any order, and may change while the
 * ring runs, so every change ends in vw_queue_refresh, which makes the ring what the configuration
 * says.
 *
 * All of this is done by the control thread while the workers are quiescent.
 */
#ifndef VW_DEVICE_QUEUE_H
#define VW_DEVICE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "device/counters.h"
#include "memory/memory.h"
#include "net/control.h"
#include "net/header.h"
#include "ring/device.h"

struct vw_device;
struct vw_pair;

/* What a queue carries. */
enum vw_queue_role {
    VW_QUEUE_RECEIVE,
    VW_QUEUE_TRANSMIT,
    VW_QUEUE_CONTROL,
};

/* Calls that are put off: coalesce.c. Belongs to whoever owns the ring. */
struct vw_queue_coalescing {
    uint32_t max_packets; /* 0: none is put off */
    uint32_t max_usecs;
    uint32_t packets;       /* that became visible since the last decision about a call */
    struct vw_pair *keeper; /* whose worker decides at the deadline; NULL: there is no deadline */
    uint64_t deadline;      /* CLOCK_MONOTONIC, in nanoseconds */
};

/* Where we write to tell the front-end something. */
struct vw_notifier {
    int fd;         /* -1: none */
    bool is_socket; /* else an eventfd */
};

struct vw_queue {
    struct vw_device *device;
    unsigned index;
    enum vw_queue_role role;

    /* As the front-end configured it. */
    uint32_t size;
    bool addressed;
    uint64_t descriptor_user, driver_user, device_user; /* addresses in the front-end's process */
    uint32_t base;
    bool base_exact; /* it is our own, not one that a front-end may have filled in half */
    bool base_told;  /* GET_VRING_BASE handed it out: the same value comes back as it went */
    bool started, enabled;

    bool live;
    struct vw_device_ring ring;

    /* Chains that are fetched and not yet used; the transmit path keeps its batch here, the
     * receive path the buffers that it holds ready. */
    struct vw_chain *chains;
    uint32_t chain_capacity;
    uint32_t chain_first, chain_count;
    struct vw_iov_pool pool;

    /* Receive only, and only with steering: other workers deliver into this ring, too. */
    pthread_mutex_t lock;

    struct vw_queue_coalescing coalescing;

    int kick_fd; /* an eventfd; -1: none */
    struct vw_notifier call, error;
    bool call_in_band;
    bool polled;                    /* no kicks will come: look from time to time */
    enum vw_ring_error broken_told; /* why the ring is broken, once that was told; the statistics
                                     * read it at any time, and ring.error is its worker's */

    struct vw_queue_counters counters;
    uint64_t header_errors[VW_NET_HEADER_ERROR_COUNT]; /* drop_header, by reason */
};

int vw_queue_init(struct vw_queue *queue, struct vw_device *device, unsigned index,
                  enum vw_queue_role role);
void vw_queue_destroy(struct vw_queue *queue);

/* Forgets everything that a front-end configured, and closes its descriptors. */
void vw_queue_reset(struct vw_queue *queue);

/*
 * Makes the ring agree with the configuration: sets it up, tears it down, or, if only memory moved,
 * finds its areas again. Returns 0, or -errno if the configuration cannot work (the ring is then
 * not live), with a phrase in `*why`.
 */
int vw_queue_refresh(struct vw_queue *queue, enum vw_ring_format format, uint64_t features,
                     const struct vw_memory *memory, const char **why);

/* Stops the ring and returns its base, for GET_VRING_BASE. */
uint32_t vw_queue_stop(struct vw_queue *queue);

/* SET_VRING_BASE, for a stopped ring. */
void vw_queue_set_base(struct vw_queue *queue, uint32_t base);

/*
 * Takes over a descriptor, closing the one before; -1 for none. Returns 0, or -EINVAL for one of
 * the wrong kind; the queue then has none, and `fd` is closed. Kicks come by eventfds alone. Calls
 * and errors may go to UNIX sockets as well, 8 bytes each, as User-mode Linux wants it.
 */
int vw_queue_set_kick_fd(struct vw_queue *queue, int fd);
int vw_queue_set_call_fd(struct vw_queue *queue, int fd);
int vw_queue_set_error_fd(struct vw_queue *queue, int fd);

/* Gives all fetched chains that hold no frame back to the available side. */
void vw_queue_give_back(struct vw_queue *queue);

/* Chains that are held in queue->chains, ready to be filled. */
static inline uint32_t vw_queue_held(const struct vw_queue *queue)
{
    return queue->chain_count - queue->chain_first;
}

/* Calls the guest's driver. Any thread that owns the ring. */
void vw_queue_call(struct vw_queue *queue);

/* Limits of section 5.1.6.5.9; nothing is pending. */
void vw_queue_set_coalescing(struct vw_queue *queue, const struct vw_net_coalescing *limits);

/* Decides now about a call that was put off. */
void vw_queue_decide(struct vw_queue *queue);

void vw_queue_publish_coalesced(struct vw_queue *queue, struct vw_pair *by, uint32_t packets);

/*
 * Publishes what was used, and calls the guest if it wants that, now or, with notification
 * coalescing, later. `by`: the pair whose worker does this; `packets`: how many are new.
 */
static inline void vw_queue_publish(struct vw_queue *queue, struct vw_pair *by, uint32_t packets)
{
    if (vw_unlikely(queue->coalescing.max_packets != 0))
        vw_queue_publish_coalesced(queue, by, packets);
    else if (vw_device_ring_publish(&queue->ring))
        vw_queue_call(queue);
}

/* Breaks the ring for a fault that the ring layer cannot see. */
void vw_queue_break(struct vw_queue *queue, enum vw_ring_error error);

/* Tells the world, once, that the ring is broken; call it when ring.error may have changed. */
void vw_queue_report_broken(struct vw_queue *queue);

static inline bool vw_queue_works(const struct vw_queue *queue)
{
    return queue->live && queue->ring.error == VW_RING_OK;
}

#endif
