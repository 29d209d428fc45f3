/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair: one receive queue, one transmit queue, one queue of the port.
 *
 * Theory of operation
 * -------------------
 * A worker (worker.h), the pair's own or shared with others, alternates between the two directions,
 * a batch at a time, so that neither starves the other.
 *
 *   guest -> port (transmit.c): fetch chains, check headers, hand one batch to the port, use the
 *       chains as the port completes them, publish once
 *   port -> guest (receive.c): borrow a batch of frames, fill buffers, publish once, give the
 *       frames back to the port
 *
 * The control thread stops the workers at a quiescent point before it changes anything that they
 * use: after vw_device_pause no transmitted frame is in flight and no chain is held, and
 * vw_device_resume lets the workers go on. Frames that the port lent and that found no
 * buffer stay where they are.
 */
#ifndef VW_DEVICE_PAIR_H
#define VW_DEVICE_PAIR_H

#include <linux/virtio_net.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/queue.h"
#include "device/worker.h"
#include "net/segment.h"
#include "port/port.h"

/* Frames on their way to the port. frames[i] came in chain frame_chain[i] of the queue. */
struct vw_transmit_batch {
    struct vw_frame frames[VW_PORT_BATCH];
    struct virtio_net_hdr_v1 headers[VW_PORT_BATCH];
    struct virtio_net_hdr_v1 no_offload; /* all zero: the header of frames that ask for nothing */
    uint16_t sums[VW_PORT_BATCH];        /* checksums that were completed here */
    uint16_t frame_chain[VW_PORT_BATCH];
    uint32_t frame_count;
    uint32_t submitted; /* frames that the port took */
    uint32_t completed; /* frames that the port finished */
    char *copies;       /* with the option batch_copy: room for VW_PORT_BATCH frames */

    /* What is to be counted of a chain once it is used: a chain that is given back comes again. */
    struct vw_transmit_note {
        uint16_t chain;
        uint16_t what; /* enum vw_net_header_error, or one of those in transmit.c */
    } notes[VW_PORT_BATCH];
    uint32_t note_first, note_count;
};

/* Frames that the port lent. */
struct vw_receive_batch {
    struct vw_frame frames[VW_PORT_BATCH];
    bool done[VW_PORT_BATCH]; /* delivered or dropped, out of turn, by steering */
    uint32_t first, count;
    bool starved;          /* frames[first] found not enough buffers */
    uint32_t starved_held; /* how many it found at the last look */
    int64_t starved_since; /* when that was, in milliseconds */
    /* The frame that is being segmented; its first segments may have been delivered. NULL: none */
    const struct vw_frame *cut;
    struct vw_net_segmenter segmenter;
};

struct vw_pair {
    struct vw_device *device;
    unsigned index;
    struct vw_queue *receive, *transmit;
    struct vw_port_queue *port_queue;
    struct vw_transmit_batch out;
    struct vw_receive_batch in;

    struct vw_worker *worker;
    struct vw_pair *next_of_worker;
    int port_fd; /* descriptor of the port in the worker's epoll set, or -1 */
    uint32_t port_events;
    bool keeps_deadlines;              /* of calls that it put off, see coalesce.c */
    int kick_fds[2];                   /* those of receive and transmit in the epoll set, or -1 */
    bool transmit_kicked;              /* a kick for a disabled transmit queue, see transmit.c */
    _Atomic uint32_t in_band_kicks[2]; /* that came for receive and transmit */
    uint32_t in_band_seen[2];
};

/* One turn of each direction; true if anything moved. Worker only. */
bool vw_transmit_run(struct vw_pair *pair);
bool vw_receive_run(struct vw_pair *pair);

/* What transmission needs beyond the pair itself: 0 or -ENOMEM. The end may follow either. */
int vw_transmit_create(struct vw_pair *pair);
void vw_transmit_destroy(struct vw_pair *pair);

/* Asks for the kicks that the direction needs. False: there is work, do not sleep. */
bool vw_transmit_arm(struct vw_pair *pair);
bool vw_receive_arm(struct vw_pair *pair);

/* Quiescence: completes or gives back all chains. */
void vw_transmit_drain(struct vw_pair *pair);
void vw_receive_drain(struct vw_pair *pair);

/* While paused: the transmit queue has just been disabled. */
void vw_transmit_disabled(struct vw_pair *pair);

/* While paused: drops all frames that wait for a guest which is gone. */
void vw_receive_discard(struct vw_pair *pair);

/* Frames that were fetched and that the port did not take yet? */
static inline bool vw_transmit_blocked(const struct vw_pair *pair)
{
    return pair->out.submitted < pair->out.frame_count;
}

/*
 * Decides about calls that were put off, where it is time. Returns the next deadline that this
 * worker keeps, or VW_NO_DEADLINE. Worker only; with coalescing in the rules.
 */
#define VW_NO_DEADLINE UINT64_MAX
uint64_t vw_coalescing_run(struct vw_pair *pair);

/* Nanoseconds from now to a deadline; 0 if it is over. */
int64_t vw_coalescing_wait_ns(uint64_t deadline);

/* Does the receive direction want frames from the port? */
bool vw_receive_wanted(const struct vw_pair *pair);

/* How long the worker may sleep, in milliseconds, before vw_receive_slept has something to do; -1:
 * for ever. vw_receive_slept is for after each sleep. */
int vw_receive_timeout(const struct vw_pair *pair);
void vw_receive_slept(struct vw_pair *pair);

#endif
