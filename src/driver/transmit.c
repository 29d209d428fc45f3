/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames into the transmit ring, and completed ones back to their owner.
 *
 * Theory of operation
 * -------------------
 * A frame takes a slot (private: token, flow, segments) and becomes one chain: its virtio-net
 * header, then its pieces. Where the header lies is what a small frame costs most:
 *
 *   - in the caller's headroom, right in front of the frame: one descriptor
 *   - with no offload, the one header of zeros that all frames share, and which stays in the
 *     device's cache
 *   - else in the slot's own place in shared memory
 *
 * Most frames are of the first kind, in one piece, and ask for no offload: those are put into the
 * ring many at a time (put_plain_frames), all others one by one (put_frame).
 *
 * The burst is published once. A frame is only begun while any frame has room: `worst` ring entries
 * (a header and VW_TX_MAX_PIECES pieces, or one if chains are indirect), and bytes within the
 * limit; without, the queue is stopped before the next frame would have to be refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/policy.h"
#include "driver/slot.h"

/* ---- life ---- */

/* In one table: the header, and as many pieces as any frame may have. */
#define TABLE_SEGMENTS 20u
_Static_assert(TABLE_SEGMENTS >= 1 + VW_TX_MAX_PIECES, "a table takes any frame");

static void make_slots_free(struct vw_tx *tx)
{
    tx->free_count = 0;
    for (unsigned i = tx->queue.size; i-- > 0;)
        tx->free[tx->free_count++] = &tx->slots[i];
}

static void set_worst(struct vw_tx *tx)
{
    unsigned most = 1 + VW_TX_MAX_PIECES;

    if (most > tx->queue.size) /* not even an indirect chain is longer than its ring (2.7.5.3.1) */
        most = tx->queue.size;
    tx->pieces = most - 1;
    tx->worst = tx->queue.segments ? 1 : most;
}

int vw_tx_create(struct vw_driver_pair *pair)
{
    struct vw_net *net = pair->net;
    struct vw_tx *tx = &pair->tx;
    unsigned size = net->options.tx_ring_size;

    int error = vw_driver_queue_create(net, &tx->queue, 2 * pair->index + 1, size, TABLE_SEGMENTS);
    if (error != 0)
        return error;
    tx->slots = aligned_alloc(VW_CACHE_LINE, size * sizeof(*tx->slots));
    tx->free = calloc(size, sizeof(struct vw_tx_slot *));
    tx->returned = calloc(size, sizeof(struct vw_tx_slot *));
    tx->headers = vw_shared_alloc(&net->shared, (size_t)size * VW_TX_HEADER_STRIDE);
    if (!tx->slots || !tx->free || !tx->returned || !tx->headers)
        return vw_driver_fail(net, -ENOMEM, "no memory for a transmit queue");
    memset(tx->slots, 0, size * sizeof(*tx->slots));
    make_slots_free(tx);
    set_worst(tx);
    tx->policy = net->options.tx_policy;
    tx->rules = &vw_tx_policies[tx->policy];
    tx->limited = net->options.byte_queue_limits != 0;
    tx->range = &net->ranges[0];
    vw_limit_init(&tx->limit, 0, UINT64_MAX / 4, vw_tx_now_ms());
    return 0;
}

void vw_tx_destroy(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;

    vw_driver_queue_destroy(&tx->queue);
    free(tx->slots);
    free(tx->free);
    free(tx->returned);
    if (tx->headers)
        vw_shared_free(&pair->net->shared, tx->headers);
}

void vw_tx_begin(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;

    tx->held = 0;
    tx->kick_owed = false;
    tx->armed = true;
    vw_tx_disarm(tx);
}

/* ---- calls ---- */

void vw_tx_disarm(struct vw_tx *tx)
{
    vw_driver_ring_disable_calls(&tx->queue.ring);
    tx->armed = false;
}

bool vw_tx_arm_delayed(struct vw_tx *tx)
{
    tx->armed = true;
    return vw_driver_ring_enable_calls_delayed(&tx->queue.ring);
}

bool vw_tx_arm(struct vw_tx *tx)
{
    tx->armed = true;
    return vw_driver_ring_enable_calls(&tx->queue.ring);
}

/* ---- completion ---- */

static _Thread_local struct vw_in_done *innermost;

void vw_done_begin(struct vw_driver_pair *pair, struct vw_in_done *record)
{
    *record = (struct vw_in_done){.pair = pair, .outer = innermost};
    innermost = record;
    vw_shared_store(&pair->tx.in_done, true);
}

void vw_done_end(struct vw_driver_pair *pair, struct vw_in_done *record)
{
    vw_shared_store(&pair->tx.in_done, false);
    innermost = record->outer;
}

bool vw_done_finds(const struct vw_driver_pair *pair)
{
    for (const struct vw_in_done *record = innermost; record; record = record->outer)
        if (record->pair == pair)
            return true;
    return false;
}

bool vw_net_in_done(const struct vw_net *net)
{
    for (const struct vw_in_done *record = innermost; record; record = record->outer)
        if (record->pair->net == net)
            return true;
    return false;
}

static bool has_room(const struct vw_tx *tx)
{
    /* A lost device's slots that were not told yet are in neither ring. */
    return tx->queue.ring.free >= tx->worst && tx->free_count > 0 && vw_limit_open(&tx->limit);
}

void vw_tx_wake_if_room(struct vw_tx *tx)
{
    if (!tx->stopped || !has_room(tx))
        return;
    tx->stopped = false;
    tx->woken = true;
    vw_counter_add(&tx->counters.wakes, 1);
}

#define COMPLETIONS 64

unsigned vw_tx_collect(struct vw_driver_pair *pair)
{
    struct vw_completion done[COMPLETIONS];
    struct vw_tx *tx = &pair->tx;
    struct vw_in_done record;
    uint64_t bytes = 0;
    uint32_t total = 0, count, told = 0;

    if (vw_unlikely(tx->returned_count > 0))
        told = vw_tx_tell_returned(pair);
    if (vw_unlikely(vw_pair_is_down(pair))) /* its ring is the control thread's */
        return told;
    vw_done_begin(pair, &record);
    do {
        count = vw_driver_ring_reap(&tx->queue.ring, done, COMPLETIONS);
        for (uint32_t i = 0; i < count; i++) {
            struct vw_tx_slot *slot = done[i].token;

            bytes += vw_tx_release_slot(tx, slot);
            vw_tx_tell_done(pair, slot->token, 1);
        }
        total += count;
    } while (count == COMPLETIONS);
    vw_done_end(pair, &record);
    if (total > 0) {
        vw_counter_add(&tx->counters.reaped, total);
        vw_counter_add(&tx->counters.reaps, 1);
    }
    if (bytes > 0)
        vw_limit_complete(&tx->limit, bytes, vw_tx_now_ms());
    vw_tx_wake_if_room(tx);
    return told + total;
}

/* ---- frames ---- */

/* Does the device see these bytes? */
static bool find_range(struct vw_driver_pair *pair, uint64_t start, uint64_t size)
{
    struct vw_net *net = pair->net;
    unsigned count = atomic_load_explicit(&net->range_count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        uint64_t offset = start - net->ranges[i].start;

        if (offset <= net->ranges[i].size && size <= net->ranges[i].size - offset) {
            pair->tx.range = &net->ranges[i];
            return true;
        }
    }
    return false;
}

static VW_ALWAYS_INLINE bool visible(struct vw_driver_pair *pair, uint64_t start, uint64_t size)
{
    const struct vw_memory_range *range = pair->tx.range;
    uint64_t offset = start - range->start;

    return vw_likely(offset <= range->size && size <= range->size - offset) ||
           find_range(pair, start, size);
}

/* Is nothing left to the device? With two loads: a frame has better things to do. */
static VW_ALWAYS_INLINE bool is_plain(const struct vw_offload *offload)
{
    uint64_t first;
    uint16_t last;

    _Static_assert(sizeof(*offload) == sizeof(first) + sizeof(last), "all of it");
    memcpy(&first, offload, sizeof(first));
    memcpy(&last, (const char *)offload + sizeof(first), sizeof(last));
    return (first | last) == 0;
}

/* A header of zeros, written only where it is not there already: a cache line that is not written
 * stays in both caches. Whatever the device puts there, it is the device that reads it. */
static VW_ALWAYS_INLINE void put_zeros(char *to, unsigned size)
{
    static const char zeros[VW_NET_HEADER_MAX];

    if (size == sizeof(struct virtio_net_hdr_v1)) {
        if (vw_unlikely(memcmp(to, zeros, sizeof(struct virtio_net_hdr_v1)) != 0))
            memset(to, 0, sizeof(struct virtio_net_hdr_v1));
    } else if (memcmp(to, zeros, size) != 0) {
        memset(to, 0, size);
    }
}

static int put_offload(const struct vw_net *net, const struct vw_offload *offload, uint32_t length,
                       char *to)
{
    struct vw_net_header header = {.flags = offload->flags,
                                   .gso_type = offload->gso_type,
                                   .hdr_len = offload->hdr_len,
                                   .gso_size = offload->gso_size,
                                   .csum_start = offload->csum_start,
                                   .csum_offset = offload->csum_offset};

    if (vw_net_header_check(&header, length, net->features) != VW_NET_HEADER_OK)
        return -EINVAL;
    vw_net_header_encode(&header, to, net->header_size);
    return 0;
}

/* The header may share a descriptor with the frame (5.1.6.2) unless the device is a legacy one. */
static VW_ALWAYS_INLINE bool header_in_headroom(const struct vw_net *net,
                                                const struct vw_tx_packet *packet)
{
    return packet->headroom >= net->header_size && vw_has(net->features, VIRTIO_F_VERSION_1);
}

/* Fills the slot's segments. 0, or -EINVAL, counted. */
static VW_ALWAYS_INLINE int fill_slot(struct vw_driver_pair *pair, struct vw_tx_slot *slot,
                                      const struct vw_tx_packet *packet)
{
    struct vw_net *net = pair->net;
    struct vw_tx *tx = &pair->tx;
    bool inside = header_in_headroom(net, packet), plain = is_plain(&packet->offload);
    unsigned room = inside ? net->header_size : 0, count = inside ? 0 : 1;
    uint64_t length = 0;

    if (vw_unlikely(packet->piece_count - 1u >= tx->pieces))
        goto invalid;
    for (unsigned i = 0; i < packet->piece_count; i++, count++) {
        uint64_t start = (uintptr_t)packet->pieces[i].data - room;
        uint64_t size = (uint64_t)packet->pieces[i].length + room;

        if (vw_unlikely(packet->pieces[i].length == 0 || !visible(pair, start, size)))
            goto invalid;
        slot->segments[count] = (struct vw_segment){start, (uint32_t)size};
        length += size - room;
        room = 0;
    }
    if (vw_unlikely(length < VW_NET_ETHERNET_HEADER || length > VW_NET_MAX_FRAME))
        goto invalid;
    slot->bytes = (uint32_t)length;
    slot->segment_count = (uint16_t)count;
    char *header = inside  ? (char *)(uintptr_t)slot->segments[0].address
                   : plain ? net->zero_header
                           : tx->headers + (size_t)(slot - tx->slots) * VW_TX_HEADER_STRIDE;
    if (!inside)
        slot->segments[0] = (struct vw_segment){(uintptr_t)header, net->header_size};
    if (vw_likely(plain)) {
        if (inside)
            put_zeros(header, net->header_size);
    } else if (put_offload(net, &packet->offload, (uint32_t)length, header) != 0) {
        vw_counter_add(&tx->counters.drop_offload, 1);
        return -EINVAL;
    }
    return 0;
invalid:
    vw_counter_add(&tx->counters.drop_invalid, 1);
    return -EINVAL;
}

static VW_ALWAYS_INLINE int put_frame(struct vw_driver_pair *pair,
                                      const struct vw_tx_packet *packet)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_tx_slot *slot = tx->free[tx->free_count - 1];

    int error = fill_slot(pair, slot, packet);
    if (vw_unlikely(error != 0))
        return error;
    slot->urgent = tx->rules->urgent && packet->urgent;
    error = vw_tx_add_slot(tx, slot);
    if (vw_unlikely(error != 0))
        return error;
    tx->free_count--;
    bool owned = tx->rules->owned || slot->urgent;
    slot->token = packet->token;
    slot->flow = owned ? packet->flow : NULL;
    slot->counted = owned && tx->limited;
    slot->number = tx->number++;
    slot->in_use = true;
    if (slot->flow)
        vw_flow_add(slot->flow, slot->bytes);
    if (slot->counted)
        vw_limit_queue(&tx->limit, slot->bytes);
    return 0;
}

/* ---- many frames ---- */

/* Frames that are made ready before they go into the ring together. */
#define PLAIN_BATCH 32

/*
 * How many frames of one ring entry each may be begun: each but the last leaves room for any. The
 * ring may have room for more frames than there are slots: those of frames that a lost device had
 * completed are free when the program was told.
 */
static VW_ALWAYS_INLINE unsigned plain_room(const struct vw_tx *tx)
{
    uint32_t free = tx->queue.ring.free, room = PLAIN_BATCH;

    if (vw_unlikely(free < tx->worst || tx->queue.ring.error != VW_RING_OK))
        return 0;
    free = free - tx->worst + 1;
    if (free < room)
        room = free;
    return tx->free_count < room ? tx->free_count : room;
}

/* Bytes that may be queued before the byte limit lets no frame in any more. */
static VW_ALWAYS_INLINE uint64_t bytes_allowed(const struct vw_tx *tx, bool counted)
{
    uint64_t in_flight = vw_limit_in_flight(&tx->limit);

    if (!counted)
        return UINT64_MAX;
    return in_flight < tx->limit.limit ? tx->limit.limit - in_flight : 0;
}

/* Is it one of the frames that can go the short way? */
static VW_ALWAYS_INLINE bool is_short(struct vw_driver_pair *pair,
                                      const struct vw_tx_packet *packet, unsigned header_size,
                                      bool urgent)
{
    if (packet->piece_count != 1 || packet->headroom < header_size || !is_plain(&packet->offload) ||
        (urgent && packet->urgent))
        return false;
    uint32_t length = packet->pieces[0].length;
    return length >= VW_NET_ETHERNET_HEADER && length <= VW_NET_MAX_FRAME &&
           visible(pair, (uintptr_t)packet->pieces[0].data - header_size,
                   (uint64_t)length + header_size);
}

static VW_ALWAYS_INLINE void
fill_short_slot(struct vw_tx_slot *slot, const struct vw_tx_packet *packet, unsigned header_size)
{
    uint32_t length = packet->pieces[0].length;
    uint64_t start = (uintptr_t)packet->pieces[0].data - header_size;

    put_zeros((char *)(uintptr_t)start, header_size);
    slot->token = packet->token;
    slot->bytes = length;
    slot->segment_count = 1;
    slot->urgent = false;
    slot->in_use = true;
    slot->segments[0] = (struct vw_segment){start, length + header_size};
}

/*
 * The short way: frames of one piece, without offloads, whose header lies in their headroom. One
 * descriptor does for each, so that a batch goes into the ring at once. Stops in front of the first
 * frame that is not like that (the long way tells what is wrong with it, if anything is), and when
 * the byte limit is reached. The queue has room. Returns how many were taken.
 */
static unsigned put_plain_frames(struct vw_driver_pair *pair, const struct vw_tx_packet *packets,
                                 unsigned count, uint64_t *all_bytes)
{
    struct vw_plain_buffer buffers[PLAIN_BATCH];
    struct vw_tx *tx = &pair->tx;
    const unsigned header_size = pair->net->header_size, room = plain_room(tx);
    const bool owned = tx->rules->owned, counted = owned && tx->limited, urgent = tx->rules->urgent;
    const uint64_t allowed = bytes_allowed(tx, counted);
    uint64_t bytes = 0;
    unsigned taken = 0;

    if (count > room)
        count = room;
    while (taken < count && bytes <= allowed) {
        const struct vw_tx_packet *packet = &packets[taken];
        struct vw_tx_slot *slot = tx->free[tx->free_count - 1 - taken];

        if (vw_unlikely(!is_short(pair, packet, header_size, urgent)))
            break;
        fill_short_slot(slot, packet, header_size);
        slot->number = tx->number + taken;
        slot->flow = owned ? packet->flow : NULL;
        slot->counted = counted;
        if (slot->flow)
            vw_flow_add(slot->flow, slot->bytes);
        buffers[taken++] = (struct vw_plain_buffer){slot->segments[0], slot};
        bytes += slot->bytes;
    }
    if (taken == 0)
        return 0;
    vw_driver_ring_add_readable(&tx->queue.ring, buffers, taken); /* there is room */
    tx->free_count -= taken;
    tx->number += taken;
    if (counted) {
        vw_limit_queue(&tx->limit, bytes - packets[taken - 1].pieces[0].length);
        vw_limit_queue(&tx->limit, packets[taken - 1].pieces[0].length);
    }
    *all_bytes += bytes;
    return taken;
}

static void stop(struct vw_tx *tx)
{
    tx->stopped = true;
    vw_counter_add(&tx->counters.stops, 1);
}

void vw_tx_stop_if_full(struct vw_tx *tx)
{
    if (!tx->stopped && !has_room(tx))
        stop(tx);
}

/* Adds frames until the queue stops; returns how many. *error: why the next one is refused. */
static unsigned put_frames(struct vw_driver_pair *pair, const struct vw_tx_packet *packets,
                           unsigned count, int *error)
{
    struct vw_tx *tx = &pair->tx;
    uint64_t bytes = 0;
    unsigned taken = 0;

    /* What the short way does not take, the long way does, or refuses. */
    bool short_way = vw_has(pair->net->features, VIRTIO_F_VERSION_1);

    while (taken < count && !tx->stopped) {
        unsigned plain =
            short_way ? put_plain_frames(pair, &packets[taken], count - taken, &bytes) : 0;

        if (plain > 0) {
            taken += plain;
            if (vw_unlikely(!has_room(tx)))
                stop(tx);
            continue;
        }
        *error = put_frame(pair, &packets[taken]);
        if (vw_unlikely(*error != 0))
            break;
        bytes += tx->free[tx->free_count]->bytes;
        taken++;
        if (vw_unlikely(!has_room(tx)))
            stop(tx);
    }
    tx->held += taken;
    vw_counter_add(&tx->counters.frames, taken);
    vw_counter_add(&tx->counters.bytes, bytes);
    return taken;
}

/* ---- the burst ---- */

void vw_tx_publish(struct vw_driver_pair *pair)
{
    struct vw_tx *tx = &pair->tx;
    struct vw_transport *transport = pair->net->transport;

    if (vw_driver_ring_publish(&tx->queue.ring) || tx->kick_owed) {
        transport->ops->kick(transport, tx->queue.index);
        vw_counter_add(&tx->counters.kicks, 1);
    }
    tx->kick_owed = false;
    tx->held = 0;
}

void vw_tx_flush(struct vw_driver_pair *pair)
{
    if (pair->tx.held > 0 || pair->tx.kick_owed)
        vw_tx_publish(pair);
}

static void count_cut(struct vw_tx *tx)
{
    if (tx->queue.ring.free < tx->worst)
        vw_counter_add(&tx->counters.ring_full, 1);
    else
        vw_counter_add(&tx->counters.limited, 1);
}

static int burst(struct vw_driver_pair *pair, const struct vw_tx_packet *packets, unsigned count,
                 bool more)
{
    struct vw_tx *tx = &pair->tx;
    bool split = tx->rules->reap_last && pair->own_loop && !more && count > 0;
    unsigned taken;
    int error = 0;

    tx->woken = false;
    if (!vw_tx_policy_begin(pair, count > 0)) {
        if (count > 0)
            count_cut(tx);
        return vw_driver_queue_broken(&tx->queue) ? -EIO : 0;
    }
    taken = put_frames(pair, packets, split ? count - 1 : count, &error);
    if (split && error == 0) {
        vw_tx_policy_last(pair);
        taken += put_frames(pair, packets + taken, count - taken, &error);
    }
    if (vw_unlikely(taken < count && error == 0))
        count_cut(tx);
    bool kick = !more || tx->stopped;
    if (kick && (tx->held > 0 || tx->kick_owed)) {
        vw_tx_publish(pair);
        vw_tx_policy_end(pair, true);
    } else if (tx->held > 0) {
        vw_tx_policy_end(pair, false);
    } else if (tx->rules->calls_off && count > 0 && pair->own_loop) {
        vw_pair_schedule(pair); /* calls were switched off, and no frame followed */
    }
    if (vw_driver_queue_broken(&tx->queue))
        return taken > 0 ? (int)taken : -EIO;
    return taken > 0 ? (int)taken : error;
}

/* A caller whose policy reaps in transmit may look nowhere else. */
static int burst_without_device(struct vw_driver_pair *pair)
{
    if (pair->tx.rules->reap)
        vw_tx_tell_returned(pair);
    return -ENOTCONN;
}

int vw_tx_burst(struct vw_net *net, unsigned index, const struct vw_tx_packet *packets,
                unsigned count, int more)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);
    int result;

    if (vw_unlikely(!pair || count > INT32_MAX))
        return -EINVAL;
    if (vw_pair_in_done(pair))
        return -EBUSY;
    vw_pair_lock(pair);
    if (vw_unlikely(vw_pair_is_down(pair)))
        result = burst_without_device(pair);
    else if (vw_unlikely(vw_driver_queue_broken(&pair->tx.queue)))
        result = -EIO;
    else
        result = burst(pair, packets, count, more != 0);
    vw_pair_unlock(pair);
    return result;
}

static int reap(struct vw_driver_pair *pair)
{
    unsigned count = vw_tx_collect(pair);

    if (vw_pair_is_down(pair))
        return count > 0 ? (int)count : -ENOTCONN;
    vw_tx_tell_woken(pair);
    return count == 0 && vw_driver_queue_broken(&pair->tx.queue) ? -EIO : (int)count;
}

int vw_tx_reap(struct vw_net *net, unsigned index)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);
    int result;

    if (!pair)
        return -EINVAL;
    if (vw_pair_in_done(pair))
        return -EBUSY;
    vw_pair_lock(pair);
    result = reap(pair);
    vw_pair_unlock(pair);
    return result;
}

/* Whoever found the queue stopped may wait by now: it is to try again. */
void vw_tx_tell_woken(struct vw_driver_pair *pair)
{
    if (pair->tx.woken && pair->sleeps)
        vw_pair_schedule(pair);
    pair->tx.woken = false;
}

unsigned vw_tx_in_flight(const struct vw_net *net, unsigned index)
{
    const struct vw_driver_pair *pair = vw_pair_of(net, index);

    return pair ? pair->tx.queue.size - vw_shared_load(&pair->tx.free_count) : 0;
}

int vw_tx_set_policy(struct vw_net *net, unsigned index, enum vw_tx_policy policy)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);

    if (!pair || (unsigned)policy > VW_TX_SCHEDULED)
        return -EINVAL;
    if (policy == VW_TX_URGENT && !vw_has(net->features, VW_F_URGENT))
        return -ENOTSUP;
    bool locked = vw_pair_enter(pair);
    /* What is in flight keeps the accounts that it has; the poll takes over what waits. */
    pair->tx.policy = policy;
    pair->tx.rules = &vw_tx_policies[policy];
    if (pair->sleeps)
        vw_pair_wake(pair);
    vw_pair_leave(pair, locked);
    return 0;
}
