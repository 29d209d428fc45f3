/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An opened device from the inside; private to driver/.
 *
 * Theory of operation
 * -------------------
 *   options.c ....... what the caller wants, checked; names of features
 *   net.c ........... open and close; the steps from a connection to running queues; loss and
 *                     return of the device
 *   queue.c ......... a ring with its memory; kicks; what broke it
 *   transmit.c ...... frames into the ring, completed ones back to their owner; stop and wake;
 *                     slot.h, loss.c: what is in flight, and when its device is lost; flow.c
 *   policy.c ........ when that happens, and who asks for calls: one table
 *   limit.h ......... byte limit of a transmit queue
 *   receive.c ....... frames out of the ring; buffers.c: the buffers, and the refill
 *   shape.c ......... what a receive buffer looks like in each mode; pure. reshape.c: when that
 *                     changes
 *   poll.c .......... NAPI's rules, and the adaptive wait
 *   control.c ....... commands to the device; commands.c: those of the public interface;
 *                     adaptive.c, moderation.c: calls that follow the load
 *
 * Threads. A pair belongs to one thread at a time; all else to the control thread (vw_process and
 * the commands). Where the control thread touches a pair (the device was lost, or is back; receive
 * buffers change their shape), it holds the pair's lock, which each call of the pair's thread takes
 * and gives back: one locked instruction for a burst, and nobody ever waits but for those moments.
 * A pair whose device is lost is `down`: its calls leave its rings alone, and the control thread
 * may then set them up for as long as it likes. What the lost device had used is still handed out,
 * and what it had sent still told, by the pair's own thread.
 */
#ifndef VW_DRIVER_INTERNAL_H
#define VW_DRIVER_INTERNAL_H

#include <stdatomic.h>

#include "base/bits.h"
#include "base/linger.h"
#include "base/log.h"
#include "base/shared.h"
#include "base/urgent.h"
#include "driver/limit.h"
#include "driver/shape.h"
#include "memory/shared.h"
#include "net/config.h"
#include "net/header.h"
#include "ring/driver.h"
#include "transport/transport.h"
#include "virtwire/net.h"

/* A ring and its memory. */
struct vw_driver_queue {
    struct vw_driver_ring ring;
    struct vw_net *net;
    unsigned index; /* the device's number of it */
    unsigned size;
    unsigned segments; /* in each indirect table; 0: none */
    void *state;       /* private */
    char *memory;      /* shared: the areas, then the tables */
    uint64_t areas[3]; /* in `memory`, by enum vw_ring_area */
    uint64_t tables;
    bool broken;   /* set last, with release: `why` is there */
    char why[120]; /* why it is broken */
};

/* ---- sending ---- */

/* A frame on its way, or a free place for one. Private memory: what is in flight can be given to
 * the device once more after a loss. */
struct vw_tx_slot {
    void *token;
    struct vw_flow *flow; /* NULL: nobody's, or released at once */
    uint32_t bytes;       /* of the frame */
    uint32_t number;      /* in the order of sending, modulo 2^32 */
    uint16_t segment_count;
    bool counted; /* in the byte limit */
    bool urgent;
    bool in_use; /* the device has it */
    bool sent;   /* of one that waits in `returned` */
    struct vw_segment segments[1 + VW_TX_MAX_PIECES];
} __attribute__((aligned(VW_CACHE_LINE)));

struct vw_tx_policy_rules;

struct vw_tx {
    struct vw_driver_queue queue;
    const struct vw_tx_policy_rules *rules;
    enum vw_tx_policy policy;
    bool stopped;    /* no frame is taken until there is room */
    bool woken;      /* it was stopped, goes on, and no burst came since */
    bool armed;      /* a call was asked for, and none came since */
    bool in_done;    /* tx_done runs, in some thread; see struct vw_in_done */
    unsigned worst;  /* ring entries that any frame may need: stop below, wake from it on */
    unsigned pieces; /* most pieces of a frame */
    uint32_t number; /* of the next frame */
    uint32_t held;   /* frames added since the last publication */
    bool kick_owed;  /* the device wanted a kick for what was published, and none was sent yet */
    struct vw_byte_limit limit;
    bool limited; /* does the limit apply at all? */
    struct vw_tx_slot *slots;
    struct vw_tx_slot **free;
    unsigned free_count;
    struct vw_tx_slot **returned; /* a lost device's, to be told by the pair's thread: loss.c */
    unsigned returned_count;
    char *headers;                       /* shared: one header for each slot, HEADER_STRIDE apart */
    const struct vw_memory_range *range; /* where the last piece lay */
    struct vw_tx_counters counters;
};

/* ---- receiving ---- */

#define VW_RX_BATCH 64

/* Pieces of one received frame. 64 KiB in buffers of 1518 bytes are 44; nothing needs more. */
#define VW_RX_MAX_PIECES 48

struct vw_rx_buffer {
    struct vw_rx_buffer *next; /* in the free list, or the next buffer of the same frame */
    char *memory;              /* the header begins here */
    uint32_t size;             /* bytes that were posted, header included */
    uint32_t capacity;         /* bytes of its memory; 0: it has none yet */
    uint32_t pages;            /* big: as posted; 0: header and frame in one run of memory */
    struct vw_piece pieces[VW_RX_MAX_PIECES];
} __attribute__((aligned(VW_CACHE_LINE))); /* a frame in one piece needs one line of it */

struct vw_rx {
    struct vw_driver_queue queue;
    struct vw_rx_shape shape; /* of new buffers */
    uint64_t check_features;  /* what headers may ask for, as vw_net_header_check wants it */
    bool flat;                /* each buffer is one run of memory, and one descriptor */
    bool idle;                /* the last look found nothing: returned buffers are posted at once */
    bool armed;               /* a call was asked for, and none came since */
    struct vw_packet_average average;
    struct vw_completion *done; /* reaped, and not handed out yet */
    unsigned done_next, done_count, done_capacity;
    unsigned kept;                /* the first so many of `done` are a lost device's; 0: none */
    struct vw_rx_buffer *buffers; /* all */
    struct vw_rx_buffer *free;    /* list */
    unsigned buffer_count, free_count, posted;
    struct vw_rx_counters counters;
};

/* ---- a pair ---- */

struct vw_driver_pair {
    struct vw_net *net;
    unsigned index;
    _Atomic int lock;
    _Atomic bool down; /* no device: written under the lock */
    bool scheduled;    /* the poll is to run once more */
    bool polling;      /* it runs */
    bool sleeps;       /* the caller waits for calls somewhere; else nothing is ever armed */
    bool own_loop;     /* ... in its own event loop: vw_poll arms, and schedule_fd is written */
    bool may_wait;     /* the last vw_poll was complete: descriptors may have become readable */
    int epoll_fd;      /* both call descriptors and schedule_fd */
    int schedule_fd;
    struct vw_linger linger[2]; /* of vw_wait: for frames, for completions */
    struct vw_tx tx;
    struct vw_rx rx;
} __attribute__((aligned(VW_CACHE_LINE)));

/* ---- the device ---- */

struct vw_memory_range {
    uint64_t start;
    uint64_t size;
    uint64_t offset; /* in fd */
    int fd;
};

#define VW_MAX_RANGES 64

/* Interrupt moderation that follows the load: adaptive.c. */
struct vw_adaptive {
    bool on;
    unsigned interval_ms;
    uint64_t sampled_us;            /* when */
    struct vw_adaptive_pair *pairs; /* one for each pair */
};

struct vw_remembered;

/* The control queue. queue.memory NULL: there is none. */
struct vw_driver_control {
    struct vw_driver_queue queue;
    char *buffer;      /* shared, VW_CONTROL_BUFFER bytes, for commands and answers */
    unsigned limit_ms; /* of a command */
    bool outstanding;  /* a command was never answered: the buffer is the device's */
    struct vw_remembered *first,
        **last;   /* what was set, in this order, for a device that is back */
    int timer_fd; /* wakes the control thread: for adaptive, and for `events`; -1: none */
    int epoll_fd; /* it and the transport's events */
    int events;   /* of the transport, seen while an answer was awaited */
    struct vw_adaptive adaptive;
};
#define VW_CONTROL_BUFFER 4096
#define VW_CONTROL_RING 64

struct vw_net {
    struct vw_net_options options; /* pointers are our own copies */
    struct vw_log log;
    struct vw_transport *transport;
    struct vw_shared shared;
    struct vw_memory_range ranges[VW_MAX_RANGES]; /* [0] is `shared` */
    _Atomic unsigned range_count;

    uint64_t refused, asked; /* features that the caller named with off and with on */
    uint64_t features;       /* negotiated */
    uint64_t guest_offloads; /* GUEST_* bits in force */
    struct vw_net_config config;
    bool mac_set; /* by the caller: config.mac is not the device's own */
    unsigned header_size;
    unsigned mtu; /* in use; options.mtu: wanted, 0 for the device's */
    unsigned max_pairs, pair_count;
    enum vw_rx_mode rx_mode;
    struct vw_driver_pair *pairs;
    struct vw_driver_control control;
    char *zero_header; /* shared: the header of all frames without offloads */
    bool connected;
    char why[200]; /* what the last failure was */
};

static inline struct vw_driver_pair *vw_pair_of(const struct vw_net *net, unsigned pair)
{
    return net && pair < net->pair_count ? &net->pairs[pair] : NULL;
}

/* Bytes between the headers of transmit slots: two share a cache line. */
#define VW_TX_HEADER_STRIDE 32

/* options.c */
int vw_driver_take_options(struct vw_net *net, const struct vw_net_options *given);
void vw_driver_drop_options(struct vw_net *net);
uint64_t vw_driver_wanted_features(const struct vw_net *net);

/* net.c: writes net->why, logs it, returns `error`. */
int vw_driver_fail(struct vw_net *net, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* queue.c */
int vw_driver_queue_create(struct vw_net *net, struct vw_driver_queue *queue, unsigned index,
                           unsigned size, unsigned segments);
void vw_driver_queue_destroy(struct vw_driver_queue *queue);
uint64_t vw_driver_queue_bytes(const struct vw_net *net, unsigned size, unsigned segments);
/* Begins anew, with an empty ring; then tells the device of it. */
int vw_driver_queue_begin(struct vw_driver_queue *queue);
int vw_driver_queue_tell(struct vw_driver_queue *queue);
/* Breaks the queue, for a reason other than the ring's own. */
void vw_driver_queue_break(struct vw_driver_queue *queue, const char *why);
/* Notices that the ring broke. True if the queue is broken. */
bool vw_driver_queue_broken(struct vw_driver_queue *queue);
/* Publishes; kicks if the device wants it, and counts that. */
void vw_driver_queue_publish(struct vw_driver_queue *queue, uint64_t *kicks);

/* transmit.c. All under the pair's lock. */
int vw_tx_create(struct vw_driver_pair *pair);
void vw_tx_destroy(struct vw_driver_pair *pair);
void vw_tx_begin(struct vw_driver_pair *pair);       /* the ring was set up */
unsigned vw_tx_collect(struct vw_driver_pair *pair); /* reaps, wakes; returns frames */
void vw_tx_publish(struct vw_driver_pair *pair);     /* and kick, if the device wants it */
void vw_tx_flush(struct vw_driver_pair *pair);       /* what a burst with `more` held back */
void vw_tx_tell_woken(struct vw_driver_pair *pair);
void vw_tx_disarm(struct vw_tx *tx);
bool vw_tx_arm_delayed(struct vw_tx *tx); /* false: reap now */
bool vw_tx_arm(struct vw_tx *tx);         /* for the next completion; false: there is one */

/* loss.c. All under the pair's lock. */
void vw_tx_salvage(struct vw_driver_pair *pair);  /* keeps what the device has completed */
void vw_tx_resend(struct vw_driver_pair *pair);   /* all that is in flight, into an empty ring */
void vw_tx_lose_all(struct vw_driver_pair *pair); /* all of it is to be told as not sent */
unsigned vw_tx_tell_returned(struct vw_driver_pair *pair); /* both: now; returns frames */

/* receive.c and buffers.c. All under the pair's lock. */
int vw_rx_create(struct vw_driver_pair *pair);
void vw_rx_destroy(struct vw_driver_pair *pair);
unsigned vw_rx_entries(const struct vw_rx *rx);
uint64_t vw_rx_bytes(const struct vw_net *net); /* shared memory that a queue's buffers take */
int vw_rx_shape_of(const struct vw_net *net, struct vw_rx_shape *shape);
void vw_rx_begin(struct vw_driver_pair *pair); /* the ring was set up */
void vw_rx_reset(struct vw_driver_pair *pair); /* takes all posted buffers back; the ring is gone */
unsigned vw_rx_refill(struct vw_driver_pair *pair, bool all);
unsigned vw_rx_take(struct vw_driver_pair *pair, struct vw_rx_packet *packets, unsigned count);
bool vw_rx_pending(struct vw_driver_pair *pair);
void vw_rx_salvage(struct vw_driver_pair *pair); /* keeps what the ring has, before it is reset */
/* Frees a whole frame's buffers. */
static inline void vw_rx_put_back(struct vw_rx *rx, struct vw_rx_buffer *first)
{
    while (first) {
        struct vw_rx_buffer *buffer = first;

        first = buffer->next;
        buffer->next = rx->free;
        rx->free = buffer;
        rx->free_count++;
    }
}
void vw_rx_disarm(struct vw_rx *rx);
bool vw_rx_arm(struct vw_rx *rx);                   /* false: there is a frame */
bool vw_rx_has_memory(struct vw_driver_pair *pair); /* for buffers of the present shape. No lock */

/* reshape.c. Control thread: the MTU in use or the guest offloads in force changed. -EINVAL for
 * what the receive mode has no buffers for, -ENOMEM. */
int vw_driver_reshape(struct vw_net *net);

/* poll.c */
int vw_pair_create(struct vw_driver_pair *pair); /* descriptors */
void vw_pair_destroy(struct vw_driver_pair *pair);
int vw_pair_watch(struct vw_driver_pair *pair);     /* call descriptors, once they are there */
void vw_pair_schedule(struct vw_driver_pair *pair); /* the pair's thread, under the lock */
void vw_pair_wake(struct vw_driver_pair *pair);     /* the control thread, under the lock */

/* control.c */
int vw_driver_control_create(struct vw_net *net); /* queue and buffer, if CTRL_VQ was negotiated */
void vw_driver_control_destroy(struct vw_net *net);
/* The device runs, for the first time or again: tells it what was set before (all that a device
 * that came back forgot), and how many pairs are in use. */
int vw_driver_control_start(struct vw_net *net);
/* Readable when vw_driver_events has something; that returns the transport's events, and does what
 * is due here. */
int vw_driver_event_fd(const struct vw_net *net);
int vw_driver_events(struct vw_net *net);
/* Sends a command and waits for its answer. vw_driver_set also remembers it. */
struct vw_net_command;
int vw_driver_command(struct vw_net *net, const struct vw_net_command *command, uint8_t *answer);
int vw_driver_set(struct vw_net *net, const struct vw_net_command *command);
void vw_driver_forget(struct vw_net *net, const struct vw_net_command *command);
/* The control thread is to be woken after so many milliseconds; 0: at once. */
void vw_driver_wake_after(struct vw_net *net, unsigned milliseconds);

/* adaptive.c */
void vw_adaptive_sample(struct vw_net *net);
void vw_adaptive_destroy(struct vw_net *net);

/* ---- the pair's lock ---- */

static inline void vw_pair_lock_wait(struct vw_driver_pair *pair)
{
    while (atomic_exchange_explicit(&pair->lock, 1, memory_order_acquire) != 0)
        while (atomic_load_explicit(&pair->lock, memory_order_relaxed) != 0)
            vw_cpu_relax();
}

static inline void vw_pair_unlock(struct vw_driver_pair *pair)
{
    atomic_store_explicit(&pair->lock, 0, memory_order_release);
}

static inline void vw_pair_lock(struct vw_driver_pair *pair)
{
    if (vw_unlikely(atomic_exchange_explicit(&pair->lock, 1, memory_order_acquire) != 0))
        vw_pair_lock_wait(pair);
}

/*
 * tx_done is called under the pair's lock. What it may call itself for the same pair knows by these
 * that its thread has the lock already. One for each call that is under way, innermost first, since
 * tx_done of one pair may call functions of another.
 */
struct vw_in_done {
    const struct vw_driver_pair *pair;
    struct vw_in_done *outer;
};

void vw_done_begin(struct vw_driver_pair *pair, struct vw_in_done *record);
void vw_done_end(struct vw_driver_pair *pair, struct vw_in_done *record);
bool vw_done_finds(const struct vw_driver_pair *pair); /* among this thread's */
bool vw_net_in_done(const struct vw_net *net);         /* any pair's of it, in this thread */

static inline bool vw_pair_in_done(const struct vw_driver_pair *pair)
{
    return vw_unlikely(vw_shared_load(&pair->tx.in_done)) && vw_done_finds(pair);
}

/* Locks, but in tx_done; returns whether vw_pair_leave is to unlock. */
static inline bool vw_pair_enter(struct vw_driver_pair *pair)
{
    if (vw_pair_in_done(pair))
        return false;
    vw_pair_lock(pair);
    return true;
}

static inline void vw_pair_leave(struct vw_driver_pair *pair, bool locked)
{
    if (locked)
        vw_pair_unlock(pair);
}

/* ---- flows ---- */

struct vw_flow {
    uint64_t bytes; /* atomic: several pairs may carry one flow */
};

static inline void vw_flow_add(struct vw_flow *flow, uint32_t bytes)
{
    __atomic_fetch_add(&flow->bytes, bytes, __ATOMIC_RELAXED);
}

static inline void vw_flow_remove(struct vw_flow *flow, uint32_t bytes)
{
    __atomic_fetch_sub(&flow->bytes, bytes, __ATOMIC_RELAXED);
}

static inline bool vw_pair_is_down(const struct vw_driver_pair *pair)
{
    return atomic_load_explicit(&pair->down, memory_order_relaxed);
}

/* Written by one thread, read by anyone. */
static inline void vw_counter_add(uint64_t *counter, uint64_t n)
{
    vw_shared_store(counter, vw_shared_load(counter) + n);
}

#endif
