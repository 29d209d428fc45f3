/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Port to guest.
 *
 * Theory of operation
 * -------------------
 * Buffers are fetched ahead, a batch at a time, and held in queue->chains[chain_first ..
 * chain_count). A receive chain has only device-writable pieces and the pool leaves no gap between
 * chains, so the pieces of consecutive buffers form one list: a frame that needs several mergeable
 * buffers is one copy into that list.
 *
 * A frame that finds not enough buffers stays in the batch, and the port is not asked for more: the
 * queue is *starved* until the guest's next kick. Held buffers stay fetched meanwhile, so that the
 * kick asked for is one for *more* of them. That neither spins nor freezes.
 *
 * With RSS a frame may belong to another pair's queue. Then each ring is used under its queue's
 * lock, taken once for each batch and queue; a frame for another pair's queue that has no buffers
 * is dropped, as a network card does, since waiting would hold back the flows of this queue.
 */

#include "base/clock.h"
#include "device/internal.h"
#include "device/pair.h"

/* Batches that are dropped at the end of a connection: more than a TAP's queue of 500 frames. */
#define DISCARD_BATCHES 16

/* What became of a frame. */
enum delivery {
    DELIVERED, /* or dropped and counted: either way done with */
    STARVED,   /* not enough buffers for now */
};

static enum delivery drop(uint64_t *counter)
{
    vw_count(counter, 1);
    return DELIVERED;
}

/* Pieces of a segment's payload at most: a port lends frames in a few pieces. */
#define CUT_PIECES 16

/* The most buffers fetched ahead. A frame of 64 KiB in buffers of a page needs 17. */
#define FETCH_AHEAD 64

/* Adds available buffers to those that are held. False if there are no more, or no room. */
static bool fetch_more(struct vw_queue *queue, uint32_t wanted)
{
    if (queue->chain_first > 0) {
        /* What was used is done with; what is left is fetched again, to the start of the pool. */
        vw_queue_give_back(queue);
        queue->chain_first = queue->chain_count = 0;
        queue->pool.used = 0;
    }
    uint32_t room = queue->chain_capacity - queue->chain_count;
    if (wanted > room)
        wanted = room;
    if (wanted == 0)
        return false;
    uint32_t count = vw_device_ring_fetch(&queue->ring, &queue->chains[queue->chain_count], wanted,
                                          &queue->pool);
    for (uint32_t i = 0; i < count; i++) {
        struct vw_chain *chain = &queue->chains[queue->chain_count];

        if (vw_unlikely(chain->readable_count > 0 || chain->writable_length == 0)) {
            /* A receiveq buffer is for us to write (virtio 1.x, section 5.1.6.3). */
            vw_queue_break(queue, VW_RING_WRONG_DIRECTION);
            break;
        }
        queue->chain_count++;
    }
    vw_queue_report_broken(queue);
    return count > 0 && queue->ring.error == VW_RING_OK;
}

/*
 * How many held buffers take `need` bytes, fetching more as necessary; 0 if there are too few, and
 * then `*full` says whether there are more that we have no room for.
 */
static uint32_t reserve(struct vw_queue *queue, uint64_t need, bool *full)
{
    uint64_t have = 0;
    uint32_t count = 0;

    *full = false;

    for (;;) {
        while (queue->chain_first + count < queue->chain_count) {
            have += queue->chains[queue->chain_first + count].writable_length;
            count++;
            if (have >= need)
                return count;
        }
        if (queue->chain_first > 0)
            have = count = 0; /* the held ones move to the front */
        /* Twice: a buffer may have become available just after the first look. If there are some
         * and still none is fetched, there is no room for its pieces. */
        if (!fetch_more(queue, FETCH_AHEAD)) {
            *full = vw_device_ring_pending(&queue->ring);
            if (!*full || !fetch_more(queue, FETCH_AHEAD))
                return 0;
            *full = false;
        }
    }
}

/*
 * All the buffers that the ring can ever offer, or that we can hold, are in hand. Those that were
 * used and are not published yet are not: the guest will post others in their place.
 */
static bool holds_everything(const struct vw_queue *queue)
{
    uint32_t slots = 0;

    for (uint32_t i = queue->chain_first; i < queue->chain_count; i++)
        slots += queue->chains[i].slots;
    return slots >= queue->size || vw_queue_held(queue) == queue->chain_capacity;
}

/* Writes header and frame into the first `count` held buffers and uses them. */
static void fill(struct vw_queue *queue, uint32_t count, const struct vw_net_header *header,
                 unsigned header_size, const struct vw_frame *frame)
{
    struct vw_chain *chains = &queue->chains[queue->chain_first];
    uint8_t raw[VW_NET_HEADER_MAX];
    uint32_t pieces = 0, left = header_size + frame->length;

    for (uint32_t i = 0; i < count; i++) {
        pieces += chains[i].writable_count;
        chains[i].written = left < chains[i].writable_length ? left : chains[i].writable_length;
        left -= chains[i].written;
    }
    vw_net_header_encode(header, raw, header_size);
    vw_iov_write(chains[0].iov, pieces, 0, raw, header_size);
    if (vw_likely(frame->iov_count == 2))
        vw_iov_write(chains[0].iov, pieces, header_size, frame->iov[1].iov_base, frame->length);
    else
        vw_iov_copy(chains[0].iov, pieces, header_size, frame->iov + 1, frame->iov_count - 1, 0,
                    frame->length);
    vw_device_ring_use(&queue->ring, chains, count);
    queue->chain_first += count;
}

static bool refuse(uint64_t *counter)
{
    vw_count(counter, 1);
    return false;
}

/*
 * Makes the header what the guest may see: an offload that it did not accept is carried out here,
 * or the frame is dropped, counted, and false returned.
 */
static bool adapt_header(struct vw_queue *queue, const struct vw_rules *rules,
                         struct vw_net_header *header, const struct vw_frame *frame)
{
    struct vw_queue_counters *counters = &queue->counters;
    unsigned work = vw_net_header_work_for_guest(header, rules->guest_offloads);

    if (work & VW_NET_WORK_SEGMENT)
        return refuse(&counters->drop_no_offload);
    if (header->gso_type != VIRTIO_NET_HDR_GSO_NONE)
        vw_count(&counters->gso_frames, 1);
    else if (rules->max_frame != 0 && frame->length > rules->max_frame)
        return refuse(&counters->drop_mtu);
    if (work & VW_NET_WORK_CHECKSUM) {
        /* The frame lies in the port's memory, which nobody else writes. */
        if (vw_net_complete_checksum(frame->iov + 1, frame->iov_count - 1, header->csum_start,
                                     header->csum_offset, frame->length) < 0)
            return refuse(&counters->drop_header);
        vw_net_header_checksum_done(header);
        vw_count(&counters->checksums_completed, 1);
    }
    vw_net_header_finish_for_guest(header, rules->guest_offloads);
    return true;
}

static enum delivery deliver(struct vw_queue *queue, const struct vw_rules *rules,
                             struct vw_frame *frame, const struct vw_net_hash *hash)
{
    struct vw_net_header header;
    uint8_t raw[VW_PORT_HEADER];
    uint32_t count = 1;
    bool full;

    uint64_t need = (uint64_t)rules->header_size + frame->length;
    if (rules->mergeable) {
        count = reserve(queue, need, &full);
        if (count == 0)
            return full || holds_everything(queue) ? drop(&queue->counters.drop_too_small)
                                                   : STARVED;
    } else {
        if (reserve(queue, 1, &full) == 0)
            return STARVED;
        if (queue->chains[queue->chain_first].writable_length < need)
            return drop(&queue->counters.drop_too_small);
    }

    vw_iov_read(frame->iov, 1, 0, raw, sizeof(raw));
    vw_net_header_decode(&header, raw, sizeof(raw));
    if (!adapt_header(queue, rules, &header, frame))
        return DELIVERED;
    header.num_buffers = (uint16_t)count;
    header.hash_value = hash->value;
    header.hash_report = hash->report;
    fill(queue, count, &header, rules->header_size, frame);
    vw_count(&queue->counters.frames, 1);
    vw_count(&queue->counters.bytes, frame->length);
    return DELIVERED;
}

/* Does the port's header ask for nothing? It is the port's own memory. */
static VW_ALWAYS_INLINE bool no_offload(const void *wire)
{
    uint64_t start; /* flags to csum_start */
    uint16_t csum_offset;

    memcpy(&start, wire, sizeof(start));
    memcpy(&csum_offset, (const char *)wire + sizeof(start), sizeof(csum_offset));
    return (start | csum_offset) == 0;
}

/*
 * The same as deliver for a run of frames that need no look into them, have no offload, and each
 * fit into the first piece of one buffer. Ends before the first frame that is not like that, or has
 * no buffer; returns how many were delivered.
 */
static uint32_t deliver_plain(struct vw_queue *queue, const struct vw_rules *rules,
                              const struct vw_frame *frames, uint32_t count)
{
    static const struct virtio_net_hdr_v1 header = {.num_buffers = 1};
    uint32_t longest = rules->max_frame != 0 ? rules->max_frame : UINT32_MAX;
    uint64_t bytes = 0;
    uint32_t done = 0;

    if (rules->header_size != sizeof(header))
        return 0;
    if (vw_queue_held(queue) == 0 && !fetch_more(queue, count))
        return 0;
    if (count > vw_queue_held(queue))
        count = vw_queue_held(queue);
    struct vw_chain *chains = &queue->chains[queue->chain_first];
    for (; done < count; done++) {
        const struct vw_frame *frame = &frames[done];
        const struct iovec *buffer = chains[done].iov;
        uint64_t need = sizeof(header) + (uint64_t)frame->length;

        if (vw_unlikely(buffer->iov_len < need || frame->iov_count != 2 ||
                        frame->length > longest || !no_offload(frame->iov[0].iov_base)))
            break;
        memcpy(buffer->iov_base, &header, sizeof(header));
        vw_copy_short((char *)buffer->iov_base + sizeof(header), frame->iov[1].iov_base,
                      frame->length);
        chains[done].written = (uint32_t)need;
        bytes += frame->length;
    }
    vw_device_ring_use(&queue->ring, chains, done);
    queue->chain_first += done;
    vw_count(&queue->counters.frames, done);
    vw_count(&queue->counters.bytes, bytes);
    return done;
}

/*
 * Cuts a frame to be segmented for a guest that did not accept that. If buffers run out, it goes
 * on later at the segment that found none.
 */
static enum delivery deliver_cut(struct vw_pair *pair, struct vw_queue *queue,
                                 const struct vw_frame *frame, const struct vw_net_header *header,
                                 const struct vw_net_hash *hash)
{
    struct vw_receive_batch *in = &pair->in;
    struct virtio_net_hdr_v1 wire = {0};
    uint8_t headers[VW_NET_SEGMENT_HEADERS];
    struct iovec iov[2 + CUT_PIECES] = {{&wire, VW_PORT_HEADER}, {headers, 0}};

    if (in->cut != frame) {
        if (vw_net_segment_begin(&in->segmenter, header, frame->iov + 1, frame->iov_count - 1,
                                 frame->length) < 0)
            return drop(&queue->counters.drop_no_offload);
        in->cut = frame;
        vw_count(&queue->counters.frames_cut, 1);
    }
    iov[1].iov_len = in->segmenter.header_length;
    for (; vw_net_segment_left(&in->segmenter); vw_net_segment_next(&in->segmenter)) {
        size_t pieces = 0;
        uint32_t length =
            vw_net_segment_make(&in->segmenter, headers, iov + 2, CUT_PIECES, &pieces);
        struct vw_frame segment = {iov, (uint32_t)(2 + pieces), length};

        if (length == 0)
            drop(&queue->counters.drop_no_offload);
        else if (deliver(queue, &pair->device->rules, &segment, hash) == STARVED)
            return STARVED;
    }
    in->cut = NULL;
    return DELIVERED;
}

/* As deliver, for a frame of any kind. */
static enum delivery deliver_any(struct vw_pair *pair, struct vw_queue *queue,
                                 struct vw_frame *frame, const struct vw_net_hash *hash)
{
    const struct vw_rules *rules = &pair->device->rules;
    struct vw_net_header header;
    uint8_t raw[VW_PORT_HEADER];

    vw_iov_read(frame->iov, 1, 0, raw, sizeof(raw));
    if (vw_likely(raw[offsetof(struct virtio_net_hdr_v1, gso_type)] == VIRTIO_NET_HDR_GSO_NONE))
        return deliver(queue, rules, frame, hash);
    vw_net_header_decode(&header, raw, sizeof(raw));
    if (vw_net_header_work_for_guest(&header, rules->guest_offloads) & VW_NET_WORK_SEGMENT)
        return deliver_cut(pair, queue, frame, &header, hash);
    return deliver(queue, rules, frame, hash);
}

/* Looks into the frame only as far as the guest asked for. False: the guest does not want it. */
static bool classify(struct vw_pair *pair, const struct vw_frame *frame, struct vw_net_hash *hash)
{
    const struct vw_device *device = pair->device;
    uint8_t start[VW_NET_DISSECT_BYTES];
    struct vw_net_packet packet;

    *hash = (struct vw_net_hash){.report = VIRTIO_NET_HASH_REPORT_NONE};
    if (!device->rules.filter && !device->rules.hash)
        return true;
    size_t length = vw_net_dissect_iov(&packet, start, frame->iov + 1, frame->iov_count - 1, 0);
    if (device->rules.filter && vw_net_filter(&device->control, start, length) != VW_NET_PASS)
        return false;
    if (device->rules.hash)
        *hash =
            vw_net_hash_frame(&device->toeplitz, device->control.rss.hash_types, &packet, start);
    return true;
}

/* Gives the port back the frames at the front that are done with. */
static bool release_done(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    uint32_t before = in->first;

    while (in->first < in->count && in->done[in->first])
        in->first++;
    if (in->first == before)
        return false;
    pair->port_queue->port->ops->release(pair->port_queue, in->first - before);
    return true;
}

static void note_starved(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->receive;

    vw_count(&queue->counters.waits, 1);
    pair->in.starved = true;
    pair->in.starved_held = vw_queue_held(queue);
    if (pair->in.starved_held > 0) /* else it matters to nobody, see vw_receive_timeout */
        pair->in.starved_since = vw_clock_ms();
}

/* Frames that are all for this pair's own queue: the usual case, with no lock. */
static void deliver_own(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    const struct vw_rules *rules = &pair->device->rules;
    struct vw_queue *queue = pair->receive;
    bool plain = !rules->filter && !rules->hash && !rules->steering;
    uint64_t before = queue->counters.frames;
    struct vw_net_hash hash;

    for (uint32_t i = in->first; i < in->count; i++) {
        if (plain) {
            uint32_t count = deliver_plain(queue, rules, &in->frames[i], in->count - i);

            memset(&in->done[i], true, count);
            i += count;
            if (i == in->count)
                break;
        }
        if (in->done[i])
            continue;
        if (!classify(pair, &in->frames[i], &hash)) {
            drop(&queue->counters.drop_filter);
        } else if (deliver_any(pair, queue, &in->frames[i], &hash) == STARVED) {
            note_starved(pair);
            break;
        }
        in->done[i] = true;
        /* Whatever it was that ended a frame half cut: other offloads or a filter, too. */
        in->cut = NULL;
    }
    vw_queue_publish(queue, pair, (uint32_t)(queue->counters.frames - before));
    if (vw_unlikely(in->starved && queue->coalescing.keeper != NULL))
        vw_queue_decide(queue); /* the driver is to post more buffers */
}

/* With steering: first what belongs to others, queue by queue, then our own. */
static void deliver_others(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    struct vw_device *device = pair->device;
    struct vw_net_hash hashes[VW_PORT_BATCH];
    uint16_t targets[VW_PORT_BATCH];

    if (in->cut != NULL) /* a frame of ours is half cut: it goes first, even if steering changed */
        return;
    for (uint32_t i = in->first; i < in->count; i++) {
        targets[i] = (uint16_t)pair->index;
        if (in->done[i])
            continue;
        if (classify(pair, &in->frames[i], &hashes[i]))
            targets[i] = vw_device_steer(device, &hashes[i]);
        /* a frame that the filter drops is dropped by deliver_own, on our own queue's account */
    }
    for (unsigned target = 0; target < device->pair_count; target++) {
        struct vw_queue *queue = device->pairs[target].receive;

        if (target == pair->index || !queue->live || !queue->enabled)
            continue;
        pthread_mutex_lock(&queue->lock);
        uint64_t before = queue->counters.frames;
        for (uint32_t i = in->first; i < in->count && vw_queue_works(queue); i++) {
            if (in->done[i] || targets[i] != target)
                continue;
            if (deliver_any(pair, queue, &in->frames[i], &hashes[i]) == STARVED) {
                in->cut = NULL;
                drop(&queue->counters.drop_ring_full);
            }
            in->done[i] = true;
        }
        vw_queue_publish(queue, pair, (uint32_t)(queue->counters.frames - before));
        pthread_mutex_unlock(&queue->lock);
    }
}

/*
 * May frames go to this pair's queue? Not if the driver uses fewer pairs (section 5.1.6.5.5).
 * Whether the ring is broken is looked at later, under the queue's lock.
 */
static bool receive_open(const struct vw_pair *pair)
{
    return pair->receive->live && pair->receive->enabled &&
           pair->index < pair->device->rules.active_pairs;
}

bool vw_receive_wanted(const struct vw_pair *pair)
{
    return receive_open(pair) && !pair->in.starved;
}

/*
 * A starved queue is looked at again when it has more buffers than at the last look: available
 * ones, or ones that another worker fetched and left over. A broken ring starves for good.
 */
static bool still_starved(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    struct vw_queue *queue = pair->receive;

    if (vw_unlikely(!vw_queue_works(queue))) {
        in->starved = true;
        in->starved_held = 0;
    } else if (in->starved &&
               (vw_queue_held(queue) > in->starved_held || vw_device_ring_pending(&queue->ring))) {
        in->starved = false;
    }
    return in->starved;
}

/* With steering, rings are shared. */
static void lock_own(const struct vw_pair *pair)
{
    if (pair->device->rules.steering)
        pthread_mutex_lock(&pair->receive->lock);
}

static void unlock_own(const struct vw_pair *pair)
{
    if (pair->device->rules.steering)
        pthread_mutex_unlock(&pair->receive->lock);
}

bool vw_receive_run(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    struct vw_queue *queue = pair->receive;

    if (!receive_open(pair))
        return false;
    if (in->first == in->count) {
        in->starved = false;
        in->first = 0;
        in->count =
            pair->port_queue->port->ops->receive(pair->port_queue, in->frames, VW_PORT_BATCH);
        if (in->count == 0)
            return false;
        memset(in->done, 0, sizeof(in->done));
        vw_count(&queue->counters.batches, 1);
    }
    if (pair->device->rules.steering)
        deliver_others(pair);
    lock_own(pair);
    if (!still_starved(pair)) {
        vw_device_ring_disarm(&queue->ring);
        deliver_own(pair);
    }
    unlock_own(pair);
    return release_done(pair);
}

bool vw_receive_arm(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->receive;
    bool nothing_more = true;

    /* With frames waiting for buffers a kick is wanted; otherwise none ever is. */
    if (!pair->in.starved || !receive_open(pair))
        return true;
    lock_own(pair);
    if (vw_queue_works(queue)) {
        /* Another worker may meanwhile have fetched buffers that we wait for, or used ours. */
        nothing_more =
            vw_queue_held(queue) <= pair->in.starved_held && vw_device_ring_arm(&queue->ring);
        if (nothing_more)
            pair->in.starved_held = vw_queue_held(queue);
    }
    unlock_own(pair);
    return nothing_more;
}

/*
 * The guest offers some buffers, but for a while no more, and they do not suffice: a driver that
 * waits for us to use them before it posts others would wait for ever. The frame is dropped. The
 * time counts from the last look, however often the worker woke since for something else.
 */
int vw_receive_timeout(const struct vw_pair *pair)
{
    const struct vw_receive_batch *in = &pair->in;

    if (!in->starved || in->starved_held == 0 || in->first == in->count)
        return -1;
    int64_t left = in->starved_since + VW_STARVED_TIMEOUT_MS - vw_clock_ms();
    return left > 0 ? (int)left : 0;
}

void vw_receive_slept(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;

    if (vw_likely(!in->starved) || vw_receive_timeout(pair) != 0)
        return;
    lock_own(pair);
    vw_count(&pair->receive->counters.drop_too_small, 1);
    unlock_own(pair);
    in->done[in->first] = true;
    in->cut = NULL;
    in->starved = false;
    release_done(pair);
}

void vw_receive_drain(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->receive;

    vw_queue_give_back(queue);
    queue->chain_first = queue->chain_count = 0;
    queue->pool.used = 0;
    pair->in.starved = false;
}

/*
 * The front-end went: frames that came for its guest are not for the next one. What the port lent
 * goes back, and what it still holds is dropped; a TAP that goes on receiving is left to it after
 * as many frames as its queue holds.
 */
void vw_receive_discard(struct vw_pair *pair)
{
    struct vw_receive_batch *in = &pair->in;
    const struct vw_port_ops *port = pair->port_queue->port->ops;
    uint32_t count = in->count - in->first;

    port->drain(pair->port_queue);
    for (unsigned batch = 0; batch < DISCARD_BATCHES; batch++) {
        if (count > 0)
            port->release(pair->port_queue, count);
        vw_count(&pair->receive->counters.drop_disconnected, count);
        count = 0;
        if (pair->port_queue->port->on_demand)
            break;
        count = port->receive(pair->port_queue, in->frames, VW_PORT_BATCH);
        if (count == 0)
            break;
    }
    if (count > 0)
        port->release(pair->port_queue, count);
    vw_count(&pair->receive->counters.drop_disconnected, count);
    in->first = in->count = 0;
    in->cut = NULL;
    in->starved = false;
}
