/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a device's frames go: one interface for a TAP, a loop, nothing at all, and what comes
 * later.
 *
 * Theory of operation
 * -------------------
 * A port has as many queues as its device has queue pairs, and each queue belongs to one worker
 * thread. Frames move in batches, in order, and asynchronously:
 *
 *   transmit ... hands over up to `count` frames; the port takes the first so many. Their iovecs
 *                and the memory behind them stay untouched by the device until they complete.
 *   complete ... tells, strictly in the order of transmit, which frames are finished and how each
 *                one fared. A synchronous port finishes them inside transmit and reports them here.
 *   receive .... lends frames that arrived to the device, oldest first
 *   release .... gives the oldest lent frames back to the port
 *   want ....... before the worker sleeps: what it is to wait for. A port that is not asked about
 *                received frames does not wake the worker for them.
 *
 * Every frame starts with a virtio-net header of 12 bytes, little-endian, in iov[0] (struct
 * virtio_net_hdr_v1; num_buffers is of no meaning here), in memory that no guest can reach. The
 * rest of the list is the Ethernet frame. A port that has no use for the header starts at iov[1].
 *
 * Configuration calls (offloads, active queues, drain) come while every worker of the port is
 * quiescent, so that no call here ever needs a lock.
 */
#ifndef VW_PORT_PORT_H
#define VW_PORT_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/shared.h"
#include "net/probe.h"
#include "net/stream.h"

/* Bytes of the header in iov[0] of each frame. */
#define VW_PORT_HEADER 12

/* The longest Ethernet frame that any port carries: 14 + 40 of IPv6 + 65535, and a VLAN tag. */
#define VW_PORT_MAX_FRAME (14 + 4 + 40 + 65535)

/* Queues of one port at most: what a TAP can have. */
#define VW_PORT_MAX_QUEUES 256

/* Frames in one batch: 64 frames a system call reach 93 % of what 128 do (host-cost table in
 * docs/performance.md: 242 ns a frame against 231), and fit the second-level cache. */
#define VW_PORT_BATCH 64

struct vw_frame {
    struct iovec *iov; /* [0] the header, then the Ethernet frame */
    uint32_t iov_count;
    uint32_t length; /* bytes of the Ethernet frame, without the header */
};

/* How a transmitted frame fared. */
enum vw_port_result {
    VW_PORT_SENT,
    VW_PORT_REFUSED, /* the port does not take such a frame (for a TAP: EINVAL) */
    VW_PORT_DOWN,    /* the interface is down */
    VW_PORT_GONE,    /* the interface was deleted */
    VW_PORT_FAILED,  /* anything else */
    VW_PORT_RESULT_COUNT,
};

/*
 * What to wait for before calling a queue again. With fd -1 the queue's descriptor is not to be
 * polled at all, not even for errors: a deleted interface would report one for ever.
 */
struct vw_port_wait {
    int fd;          /* to be polled level-triggered, or -1 */
    uint32_t events; /* EPOLLIN and/or EPOLLOUT; after any event call what was asked about */
    int timeout_ms;  /* call again after this time at the latest; 0: at once; -1: no need to */
};

/* What a queue counts: written by its worker, read by anyone, each with one relaxed store. */
#define VW_PORT_COUNTERS(X)                                                                        \
    X(transmit_sent)       /* frames that the port took */                                         \
    X(transmit_refused)    /* VW_PORT_REFUSED: the port does not take such a frame */              \
    X(transmit_down)       /* VW_PORT_DOWN */                                                      \
    X(transmit_gone)       /* VW_PORT_GONE */                                                      \
    X(transmit_failed)     /* VW_PORT_FAILED */                                                    \
    X(transmit_full)       /* times that the port had no room; the frame stayed with the device */ \
    X(transmit_no_memory)  /* times that the host had no memory; the frame stayed likewise */      \
    X(transmit_linearised) /* frames in more pieces than one system call takes, copied first */    \
    X(transmit_merged)     /* frames that went merged, which the others count as one (merge.h) */  \
    X(transmit_cut)        /* frames cut into segments, which the other counters count (cut.h) */  \
    X(transmit_checksums)  /* partial checksums completed before the port saw them (cut.h) */      \
    X(transmit_overtaken)  /* of those that failed: a later frame of the batch found memory */     \
    X(batches)             /* system calls that carried several reads and writes (io_uring) */     \
    X(batched)             /* the reads and writes in them */                                      \
    X(receive_frames)      /* frames lent to the device */                                         \
    X(receive_short)       /* dropped: shorter than the two headers */                             \
    X(receive_clipped)     /* dropped: longer than the buffer */                                   \
    X(receive_missed)      /* AF_XDP: lost for want of a buffer or of room, says the kernel */     \
    X(receive_failed)      /* lost: the host refused to hand the frame over */

struct vw_port_counters {
#define VW_PORT_COUNTER_FIELD(name) uint64_t name;
    VW_PORT_COUNTERS(VW_PORT_COUNTER_FIELD)
#undef VW_PORT_COUNTER_FIELD
};

struct vw_port;
struct vw_port_queue;

static inline void vw_port_count(uint64_t *counter)
{
    vw_shared_store(counter, vw_shared_load(counter) + 1);
}

struct vw_port_ops {
    const char *name;

    void (*close)(struct vw_port *port);

    /*
     * The receive offloads that the guest accepted, as virtio-net GUEST_* feature bits. Returns
     * those of them that the port will make use of, or -errno.
     */
    int64_t (*set_guest_offloads)(struct vw_port *port, uint64_t features);

    /*
     * Frames are to come on the first `count` queues only, 1 to queue_count. Frames that wait
     * in the others are lost. Returns 0 or -errno. After the opening all queues are active.
     */
    int (*set_active_queues)(struct vw_port *port, unsigned count);

    /* The rest is for the worker of the queue. */

    /* Takes the first so many frames. A port keeps a bounded number of results: frames are only
     * taken while there is room for theirs, so complete is to be called after each transmit. */
    uint32_t (*transmit)(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count);
    uint32_t (*complete)(struct vw_port_queue *queue, enum vw_port_result *results, uint32_t max);
    uint32_t (*receive)(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max);
    void (*release)(struct vw_port_queue *queue, uint32_t count);

    /*
     * Fills `wait`: `receive` says that the device has room, `transmit` that it has frames left
     * which the port did not take. A loop has no descriptor: its transmit goes on after the
     * device released frames, and the worker that released some tries again by itself.
     */
    void (*want)(struct vw_port_queue *queue, bool receive, bool transmit,
                 struct vw_port_wait *wait);

    /* Lets no transmitted frame be in flight any more; they are then all complete. */
    void (*drain)(struct vw_port_queue *queue);
};

struct vw_port_queue {
    struct vw_port *port;
    unsigned index;
    struct vw_port_counters counters;
    const struct vw_probe_counters *probe;   /* what a sink or source found; NULL: neither */
    const struct vw_stream_counters *stream; /* the same of TCP streams */
};

/* The part of a port that every kind has. `queues` points to its `queue_count` queue objects. */
struct vw_port {
    const struct vw_port_ops *ops;
    const struct vw_log *log;
    unsigned queue_count;
    struct vw_port_queue **queues;
    struct vw_port_cut *cut;     /* offloads in software: cut.h; NULL: none */
    struct vw_port_merge *merge; /* coalescing: merge.h; NULL: none */

    /*
     * What the port is able to do, in virtio-net feature bits: CSUM, HOST_TSO4, HOST_TSO6,
     * HOST_ECN, HOST_USO for frames given to it; GUEST_* for frames that it lends. The header of
     * each lent frame is what counts: one that was queued before a change of offloads, and every
     * frame of a loop, may use an offload that is now off.
     */
    uint64_t features;
    unsigned mtu;    /* 0: the port has no opinion */
    bool on_demand;  /* frames are made when they are asked for: none is ever stale */
    bool mtu_chosen; /* the user gave it: worth telling the guest */

    /* For changes of link state: a descriptor to poll for reading (or -1), and what to call then.
     * Both belong to the control thread. link_changed returns true if link_up changed. */
    int link_fd;
    bool (*link_changed)(struct vw_port *port);
    bool link_up;         /* the interface exists and is up, as far as we can see it */
    char description[64]; /* for people: "tap vw0" */
    char settings[32];    /* what the port chose, or was told: "io=uring napi=off", or nothing */
};

/*
 * Opens a port from its description on the command line. `queues` is the device's number of queue
 * pairs, or 0 for as many as the description asks for. On failure returns -errno, and `error`
 * holds one sentence that says what was wrong and what to do.
 *
 *   null ................. swallows every frame, yields none
 *   loop ................. sends every frame back with its MAC addresses swapped
 *   sink ................. swallows as null does, and checks probe frames (net/probe.h) and TCP
 *                          streams (net/stream.h)
 *   source ............... yields probe frames as fast as they are taken, and checks those that
 *                          come back
 *   tap,name=vw0 ......... a TAP interface: an existing one is used, and keeps its state; one that
 *                          does not exist is made and set up, and vanishes with the port. Without
 *                          a name the kernel chooses the next free one of vw0, vw1, ...
 *   tap,path=/dev/tap7 ... a macvtap interface, through its device
 *   tap,fd=5:6 ........... open TAP descriptors, one for each queue; after success they belong
 *                          to the port
 *
 *   afxdp,if=eth0,queue=0  one queue of any interface, through AF_XDP; the interface belongs to
 *                          someone else, and its other queues go on as before
 *
 *   queues=N ............. for all; must agree with `queues`
 *   mtu=N ................ for all; a TAP's interface is set to it
 *   offload=on|off ....... for all; on unless told
 *   size=64 .............. source: length of its frames, or 64:1514, 60-9000, imix
 *   flows=N .............. source: number of flows
 *   count=N .............. source: frames that each queue makes in all
 *   streams=N ............ source: as many TCP streams in each queue, and no probes
 *   write=BYTES .......... source: what a stream's sender writes at a time, 16384 unless told
 *   acknowledge=N ........ sink: acknowledge every N segments of a TCP stream; not unless told
 *   napi=off|on|auto ..... TAP: IFF_NAPI; auto: if the kernel has it; off unless told
 *   coalesce=on|off|auto . TAP: merge.h; auto unless told
 *   sndbuf=BYTES ......... TAP: how much may be under way in the host before transmit has to wait
 *   io=auto|uring|plain .. TAP: many frames in a system call through io_uring, or one in each;
 *                          auto, which it is unless told, times both and takes the faster one
 */
int vw_port_open(const char *description, unsigned queues, const struct vw_log *log,
                 struct vw_port **port, char *error, unsigned error_size);

#endif
