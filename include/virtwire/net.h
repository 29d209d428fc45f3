/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * virtwire: a virtio network device, seen from its driver.
 *
 * With this library a program without a virtual machine opens a virtio-net device (a vhost-user
 * back-end) and sends and receives Ethernet frames, as a guest's driver does.
 *
 * Theory of operation
 * -------------------
 * A device has queue pairs. A pair (its transmit and its receive side) may be used by one thread at
 * a time; different pairs by different threads, without locks. Everything else (opening, control,
 * vw_process) belongs to one thread, the one that opened the device or another, but only one.
 *
 * The caller owns the event loop. Three ways to work:
 *
 *   busy ....... call vw_tx_burst, vw_tx_reap and vw_rx_burst (or vw_poll) in a loop; nothing sleeps,
 *                nothing is armed
 *   events ..... wait for vw_queue_fd, then call vw_poll; when it returns less than its budget, it
 *                has armed a call, looked again, and the descriptor may be waited for
 *   adaptive ... vw_wait spins for a bounded time, then arms and sleeps; then call vw_poll
 *
 * A pair is busy until the first vw_queue_fd or vw_wait for it. From the first vw_queue_fd on the
 * transmit policy asks for calls as it is defined to; for a caller of vw_wait that is done there.
 *
 * Buffers lie in memory that the device maps, too: from vw_alloc, or the caller's own after
 * vw_memory_share. Nothing is copied between the caller and the device's rings.
 *
 * The device is not trusted: what it says of buffers, lengths and offsets is checked, and a lie
 * breaks the queue (vw_queue_error), never the program.
 *
 * All functions that return int return 0 or more, or a negative errno value. Nothing here prints or
 * exits. Names follow virtio 1.x; sections are cited where they rule.
 */
#ifndef VIRTWIRE_NET_H
#define VIRTWIRE_NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VW_API __attribute__((visibility("default")))
#else
#define VW_API
#endif

struct vw_net;  /* an opened device */
struct vw_flow; /* an owner of frames: its bytes in flight are visible */

/* When transmitted frames are found completed, and who asks for a call. man 7 virtwire-tx-policies */
enum vw_tx_policy {
    VW_TX_DEFERRED,  /* transmit never reaps; the poll does. The default */
    VW_TX_ORPHAN,    /* no calls; reaped by the next transmit; released from its flow at once */
    VW_TX_URGENT,    /* as orphan, but marked frames ask for a call and stay in their flow */
    VW_TX_DELAYED,   /* transmit reaps, then arms a call for 3/4 of what is in flight */
    VW_TX_SCHEDULED, /* transmit schedules the poll once; only the poll arms */
};

/* How receive buffers are made (virtio 1.x, 5.1.6.3.1). */
enum vw_rx_mode {
    VW_RX_AUTO,      /* as a kernel driver chooses from what was negotiated */
    VW_RX_SMALL,     /* one buffer of 1518 bytes and the header */
    VW_RX_BIG,       /* several pages, for MTU or for 64 KiB */
    VW_RX_MERGEABLE, /* a frame may take several buffers; sized by a moving average */
};

/* How large big buffers are where the device sends no segments that are still to be cut (for those
 * they take 64 KiB in either case). */
enum vw_rx_big {
    VW_RX_BIG_MTU,     /* as many pages as a frame of the MTU needs. The default */
    VW_RX_BIG_MAXIMUM, /* 64 KiB all the same, as drivers had it before: for comparison */
};

enum vw_level { VW_ERROR, VW_WARNING, VW_INFO, VW_DEBUG };

/* Filled by vw_net_options_init; then change what you need. */
struct vw_net_options {
    size_t size;             /* of this structure, as the caller knows it */
    const char *socket_path; /* vhost-user socket to connect to, or to listen at */
    int fd;                  /* a connected socket instead; -1 */
    int listen;              /* 1: listen at socket_path and wait for the back-end */
    unsigned connect_ms;     /* how long to try to connect, or wait; default 5000 */
    unsigned request_ms;     /* time limit of each request and control command; default 5000 */
    unsigned queue_pairs;    /* default 1 */
    unsigned tx_ring_size;   /* entries, default 256; a split ring's is a power of two */
    unsigned rx_ring_size;   /* default 256 */
    const char *features;    /* "packed=off,in_order=off,...", names as `virtwire device`; or NULL */
    enum vw_tx_policy tx_policy;
    enum vw_rx_mode rx_mode;
    enum vw_rx_big rx_big;   /* of mode big */
    unsigned mtu;            /* 0: the device's, else 1500 */
    int byte_queue_limits;   /* 1: limit the bytes in flight dynamically; default 1 */
    int reconnect;           /* 1: connect again when the back-end went away; default 1 */
    size_t memory;           /* bytes for vw_alloc; default 16 MiB */
    unsigned spin_us;        /* vw_wait: how long to spin before sleeping; default 100; 0: not */
    void (*log)(void *context, enum vw_level level, const char *line); /* or NULL */
    void *log_context;
    /* Completed transmit frames, within a call of the pair's functions or vw_net_close. `sent` is 0
     * if the device was lost, or closed, before it said that it had the frame. Of the same pair it
     * may receive and release frames, set the policy, and ask (vw_queue_fd, vw_tx_in_flight, ...);
     * sending, reaping, polling and waiting, and vw_process, vw_set_mtu and vw_set_guest_offloads of
     * the same device, are -EBUSY. It must not call vw_net_close. Or NULL. */
    void (*tx_done)(void *context, unsigned pair, void *token, int sent);
    void *tx_context;
};

VW_API void vw_net_options_init(struct vw_net_options *options);

/*
 * Opens a device: connects, negotiates, sets the queues up, fills the receive rings. On failure
 * `error`, if not NULL, gets one sentence that says what was wrong and what to do.
 */
VW_API int vw_net_open(const struct vw_net_options *options, struct vw_net **net, char *error,
                       size_t error_size);

/* Stops all queues and frees everything, memory of vw_alloc included. Returns tokens of frames in
 * flight through tx_done first: with sent 1 those that the device has completed by then, all others
 * with sent 0. No other call may be under way. */
VW_API void vw_net_close(struct vw_net *net);

struct vw_net_info {
    uint64_t features;       /* negotiated */
    unsigned queue_pairs;    /* opened */
    unsigned max_queue_pairs;
    unsigned mtu;
    int has_mac;
    uint8_t mac[6];
    int link_up;
    int packed;
    enum vw_rx_mode rx_mode; /* in effect */
    unsigned header_size;
    unsigned rx_buffer_descriptors; /* of one receive buffer: ring entries, or of a table's */
    size_t rx_buffer_bytes;         /* of one receive buffer, as the next are posted */
    unsigned rx_ring_buffers;       /* receive buffers that a ring holds */
    int connected;
};
VW_API void vw_net_info(const struct vw_net *net, struct vw_net_info *info);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory that the device sees; aligned to 64. NULL if there is no more. */
VW_API void *vw_alloc(struct vw_net *net, size_t size);
VW_API void vw_free(struct vw_net *net, void *memory);

/* Lets the device see the caller's own shared memory: `size` bytes at `address`, which is where the
 * file `fd` is mapped from `offset` on. Page-aligned. -EEXIST if part of it is shared already, -ENOSPC
 * if the device takes no more regions. */
VW_API int vw_memory_share(struct vw_net *net, int fd, uint64_t offset, void *address, size_t size);

/* ---- sending --------------------------------------------------------------------------------- */

struct vw_piece {
    void *data; /* in memory that the device sees */
    uint32_t length;
};

/* Work that is left to the device; all zero for none (virtio 1.x, 5.1.6.2). */
struct vw_offload {
    uint8_t flags;     /* VW_OFFLOAD_* */
    uint8_t gso_type;  /* VIRTIO_NET_HDR_GSO_*: 0 none, 1 TCPv4, 4 TCPv6, 5 UDP; | 0x80 ECN */
    uint16_t hdr_len;
    uint16_t gso_size;
    uint16_t csum_start;
    uint16_t csum_offset;
};
#define VW_OFFLOAD_NEEDS_CSUM 1
#define VW_OFFLOAD_DATA_VALID 2 /* received: the device has checked the checksum */

struct vw_tx_packet {
    const struct vw_piece *pieces; /* an Ethernet frame, without a virtio-net header */
    unsigned piece_count;          /* 1 .. VW_TX_MAX_PIECES */
    struct vw_offload offload;
    void *token;                   /* for tx_done; any value */
    struct vw_flow *flow;          /* or NULL */
    int urgent;                    /* policy `urgent`: ask for a call */
    /* Bytes before pieces[0].data that the library may overwrite. With 20 or more (in memory that
     * the device sees) the virtio-net header goes there, and the frame takes one descriptor less,
     * which is what a small frame costs most. 0 is always right. */
    unsigned headroom;
};
#define VW_TX_MAX_PIECES 18 /* what a kernel driver's frame has at most: 17 fragments and a head */

/*
 * Sends frames of queue pair `pair`. Returns how many were taken, from the first on; fewer if the
 * ring or the byte limit is full (the queue is then *stopped* until vw_poll or vw_tx_reap has made
 * room), or a negative errno value if the first frame can not be taken: -EINVAL, -EIO (broken),
 * -ENOTCONN. `more`: further frames follow at once, the kick may wait for them; vw_poll and vw_wait
 * do not let it wait. A queue that is stopped always kicks.
 */
VW_API int vw_tx_burst(struct vw_net *net, unsigned pair, const struct vw_tx_packet *packets,
                       unsigned count, int more);

/* Reaps what is completed now; returns how many frames, or a negative errno value once there are
 * none: -EIO (broken), -ENOTCONN. For loops that do not use vw_poll. */
VW_API int vw_tx_reap(struct vw_net *net, unsigned pair);

/* Frames given to the device and not reaped; 0 means that all memory is the caller's again. */
VW_API unsigned vw_tx_in_flight(const struct vw_net *net, unsigned pair);

VW_API int vw_tx_set_policy(struct vw_net *net, unsigned pair, enum vw_tx_policy policy);

/* A flow counts the bytes of its frames from vw_tx_burst to their completion (policy `orphan`: to
 * the end of vw_tx_burst). A sender may thus hold back while enough is under way. */
VW_API struct vw_flow *vw_flow_new(struct vw_net *net);
VW_API void vw_flow_free(struct vw_flow *flow); /* not before its frames completed */
VW_API uint64_t vw_flow_in_flight(const struct vw_flow *flow);

/* ---- receiving ------------------------------------------------------------------------------- */

struct vw_rx_packet {
    const struct vw_piece *pieces; /* an Ethernet frame; valid until vw_rx_release */
    unsigned piece_count;
    uint32_t length;
    struct vw_offload offload;
    uint32_t hash;
    uint16_t hash_report; /* VIRTIO_NET_HASH_REPORT_*, 0 for none */
    void *handle;         /* the library's */
};

/* Takes up to `count` received frames. Returns how many, or, once all that came before are taken, a
 * negative errno value: -EIO (broken), -ENOTCONN. */
VW_API int vw_rx_burst(struct vw_net *net, unsigned pair, struct vw_rx_packet *packets,
                       unsigned count);

/* Gives frames back, in any order; the library refills the ring in bulk, one kick at most. */
VW_API void vw_rx_release(struct vw_net *net, unsigned pair, const struct vw_rx_packet *packets,
                          unsigned count);

/* ---- polling and sleeping -------------------------------------------------------------------- */

/* Called for received frames; releases them itself, now or later. */
typedef void (*vw_rx_function)(void *context, unsigned pair, struct vw_rx_packet *packets,
                               unsigned count);

/* Readable when the device has called queue pair `pair` (both directions share the descriptor), or
 * when the poll was scheduled. */
VW_API int vw_queue_fd(const struct vw_net *net, unsigned pair);

/*
 * A transmit queue that was stopped and goes on makes the descriptor readable, too, until the next
 * vw_poll.
 *
 * One poll by NAPI's rules: reaps transmitted frames, hands at most `budget` received frames to
 * `receive`, and returns how many. If that is less than the budget, calls are armed, the queues
 * were looked at again, and the caller may wait; else it must poll again. -EIO if one of the pair's
 * queues is broken and no frame was received. While there is no device, what the lost one had left
 * is handed out, then 0.
 */
VW_API int vw_poll(struct vw_net *net, unsigned pair, unsigned budget, vw_rx_function receive,
                   void *context);

/* Spins for options.spin_us (if at least half of the latest waits were as short), then arms and
 * sleeps, until there is something for vw_poll, a transmit
 * queue that was stopped goes on, the device is lost or back, or `timeout_ms` (-1: for ever) is over.
 * 1: something, 0: time is over, or a negative errno value: -EIO if one of the pair's queues is
 * broken. */
VW_API int vw_wait(struct vw_net *net, unsigned pair, int timeout_ms);

/* ---- the device as a whole ------------------------------------------------------------------- */

/* Readable when vw_process has something to do: configuration changes, loss of the back-end,
 * reconnection. vw_process returns a mask of VW_EVENT_*. With options.reconnect it waits for
 * answers of the back-end that it connects to again, each up to options.request_ms: one that
 * accepts and never answers holds it that long at each try. Who must not wait sets a shorter limit,
 * or leaves vw_process to another thread. */
VW_API int vw_net_fd(const struct vw_net *net);
VW_API int vw_process(struct vw_net *net);
#define VW_EVENT_CONFIG 1       /* vw_net_info shows what is new */
#define VW_EVENT_ANNOUNCE 2     /* the device asks for gratuitous packets; then vw_announced */
#define VW_EVENT_DISCONNECTED 4
#define VW_EVENT_RECONNECTED 8
/* A device is there in place of the lost one, but it can not take over (it lacks features that are
 * in use, or has other queue pairs, or a smaller MTU than was asked for): `log` was told why. It is
 * tried again, less and less often, and so is any other that appears. */
#define VW_EVENT_UNSUITABLE 16

/*
 * Control commands: -ENOTSUP without the feature, -EINVAL for what cannot be, -EREMOTEIO if the
 * device refuses, -ETIMEDOUT after options.request_ms (and at once as long as that command is not
 * answered), -ENOTCONN. What was set is set again on a device that comes back.
 *
 * A device with the features ctrl_rx and ctrl_vlan filters: it passes frames to its own address, to
 * all, and to those of the table; and of tagged frames only those of a VLAN that was added.
 */
VW_API int vw_set_promiscuous(struct vw_net *net, int on);
VW_API int vw_set_all_multicast(struct vw_net *net, int on);
VW_API int vw_set_mac(struct vw_net *net, const uint8_t mac[6]);
VW_API int vw_set_mac_table(struct vw_net *net, const uint8_t (*unicast)[6], unsigned unicast_count,
                            const uint8_t (*multicast)[6], unsigned multicast_count);
VW_API int vw_vlan_add(struct vw_net *net, unsigned vlan);
VW_API int vw_vlan_remove(struct vw_net *net, unsigned vlan);
VW_API int vw_set_queue_pairs(struct vw_net *net, unsigned pairs);
VW_API int vw_set_mtu(struct vw_net *net, unsigned mtu);
VW_API int vw_set_guest_offloads(struct vw_net *net, uint64_t features);
VW_API int vw_announced(struct vw_net *net);

struct vw_rss {
    uint32_t hash_types;  /* VIRTIO_NET_RSS_HASH_TYPE_* */
    const uint16_t *table; /* pairs; table_size is a power of two */
    unsigned table_size;
    unsigned unclassified;
    unsigned tx_pairs;
    const uint8_t *key;
    unsigned key_length;
};
VW_API int vw_set_rss(struct vw_net *net, const struct vw_rss *rss);
VW_API int vw_set_hash(struct vw_net *net, uint32_t hash_types, const uint8_t *key,
                       unsigned key_length);

/*
 * Interrupt moderation: a call for max_packets packets, or after max_usecs, whichever is first; if
 * either is 0, for each. pair -1: all. `adaptive` lets the library choose for receive queues, by
 * their load, in vw_process; setting values for them ends it.
 */
VW_API int vw_set_coalescing(struct vw_net *net, int pair, int transmit, unsigned max_packets,
                             unsigned max_usecs);
VW_API int vw_set_adaptive_coalescing(struct vw_net *net, int on);

/* ---- counters -------------------------------------------------------------------------------- */

/* Each counter: name, what it counts. */
#define VW_TX_COUNTERS(X)                                                                          \
    X(frames, "frames given to the device")                                                       \
    X(bytes, "bytes of these")                                                                     \
    X(kicks, "kicks")                                                                              \
    X(calls, "calls that came")                                                                    \
    X(spurious_calls, "calls that found nothing")                                                  \
    X(reaped, "frames completed")                                                                  \
    X(reaps, "times that completed frames were looked for and found")                              \
    X(stops, "times that the queue was stopped")                                                   \
    X(wakes, "times that it went on")                                                              \
    X(limited, "bursts cut short by the byte limit")                                               \
    X(ring_full, "bursts cut short by the ring")                                                   \
    X(drop_invalid, "frames refused: no pieces, too many, or outside shared memory")               \
    X(drop_offload, "frames refused: an offload that was not negotiated")                          \
    X(drop_lost, "frames given to a device that was lost")

#define VW_RX_COUNTERS(X)                                                                          \
    X(frames, "frames received")                                                                   \
    X(bytes, "bytes of these")                                                                     \
    X(kicks, "kicks")                                                                              \
    X(calls, "calls that came")                                                                    \
    X(spurious_calls, "calls that found nothing")                                                  \
    X(refills, "times that buffers were posted")                                                   \
    X(ring_empty, "times that all buffers were used up")                                           \
    X(spins_found, "times that vw_wait looked on for a while and found something")                 \
    X(spins_vain, "times that it found nothing")                                                   \
    X(sleeps, "times that it slept")                                                               \
    X(drop_short, "frames shorter than their headers")                                             \
    X(drop_header, "frames with an impossible header")                                             \
    X(drop_buffers, "frames whose buffers never came")

#define VW_COUNTER_FIELD(name, text) uint64_t name;
struct vw_tx_counters {
    VW_TX_COUNTERS(VW_COUNTER_FIELD)
};
struct vw_rx_counters {
    VW_RX_COUNTERS(VW_COUNTER_FIELD)
};
#undef VW_COUNTER_FIELD

VW_API void vw_counters(const struct vw_net *net, unsigned pair, struct vw_tx_counters *transmit,
                        struct vw_rx_counters *receive);

/* Why the queues of a pair are broken, or NULL. */
VW_API const char *vw_queue_error(const struct vw_net *net, unsigned pair);

#ifdef __cplusplus
}
#endif

#endif
