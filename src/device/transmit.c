/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest to port.
 *
 * Theory of operation
 * -------------------
 * One batch is under way at a time. Its chains lie in queue->chains[0 .. chain_count), those that
 * hold a frame worth sending have an entry in out.frames, and everything advances in order:
 *
 *   chains:  [ used ........ | waiting for completion | not taken by the port yet ]
 *            0               chain_first              frame_chain[submitted]
 *
 * Payload goes from guest memory straight to the port. The virtio-net header is copied out once,
 * checked, and the checked copy takes its place: as iov[-1] of the chain, in the element that the
 * ring layer left free. A header that asks for nothing, as most do, needs no copy of its own: one
 * of zeros stands for all of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "device/internal.h"
#include "device/pair.h"

/* Room for a copied frame: whole cache lines. */
#define COPY_STRIDE 65664
_Static_assert(COPY_STRIDE >= VW_PORT_MAX_FRAME && COPY_STRIDE % VW_CACHE_LINE == 0, "any frame");

/* Notes about frames that are sent; the others are reasons why one is not. */
enum {
    NOTE_SEGMENTED = VW_NET_HEADER_ERROR_COUNT,
    NOTE_CHECKSUM_COMPLETED,
};

/* At most once for each chain. */
static void note(struct vw_pair *pair, const struct vw_chain *chain, unsigned what)
{
    struct vw_transmit_batch *out = &pair->out;

    out->notes[out->note_count++] = (struct vw_transmit_note){
        .chain = (uint16_t)(chain - pair->transmit->chains), .what = (uint16_t)what};
}

/* Drops the frame of a chain whose header or size is wrong; the chain itself goes back used. */
static bool refuse(struct vw_pair *pair, const struct vw_chain *chain,
                   enum vw_net_header_error error)
{
    note(pair, chain, error);
    return false;
}

static void count_note(struct vw_queue *queue, unsigned what)
{
    switch (what) {
    case NOTE_SEGMENTED:
        vw_count(&queue->counters.gso_frames, 1);
        break;
    case NOTE_CHECKSUM_COMPLETED:
        vw_count(&queue->counters.checksums_completed, 1);
        break;
    case VW_NET_HEADER_FRAME_SHORT:
        vw_count(&queue->counters.drop_short, 1);
        break;
    case VW_NET_HEADER_FRAME_LONG:
        vw_count(&queue->counters.drop_long, 1);
        break;
    default:
        vw_count(&queue->counters.drop_header, 1);
        vw_count(&queue->header_errors[what], 1);
    }
}

/* The chains before `end` are used. */
static void count_notes(struct vw_pair *pair, uint32_t end)
{
    struct vw_transmit_batch *out = &pair->out;

    for (; out->note_first < out->note_count && out->notes[out->note_first].chain < end;
         out->note_first++)
        count_note(pair->transmit, out->notes[out->note_first].what);
}

/*
 * Linux refuses a partial checksum that starts in an unusual place. It is completed here, in two
 * private bytes that are spliced into the frame: guest memory that is ours to read only is not
 * written. The pieces before the place move down, into the chain's headroom.
 */
static int splice_checksum(struct vw_frame *frame, const struct vw_net_header *header,
                           uint16_t *sum)
{
    struct iovec wire = frame->iov[0], *iov = frame->iov + 1;
    size_t place = (size_t)header->csum_start + header->csum_offset;
    uint32_t count = frame->iov_count - 1, front = 0;

    if (vw_net_checksum_value(iov, count, header->csum_start, header->csum_offset, frame->length,
                              sum) < 0)
        return -EINVAL;
    for (; place >= iov[front].iov_len; front++)
        place -= iov[front].iov_len;

    struct iovec head = {.iov_base = iov[front].iov_base, .iov_len = place};
    uint32_t rest = front + (uint32_t)vw_iov_drop(iov + front, count - front, place + 2);
    struct iovec *start = iov + rest - 2 - front;

    memmove(start, iov, front * sizeof(*iov));
    start[front] = head;
    start[front + 1] = (struct iovec){.iov_base = sum, .iov_len = sizeof(*sum)};
    start[-1] = wire;
    frame->iov = start - 1;
    frame->iov_count = 1 + front + 2 + (count - rest);
    return 0;
}

/*
 * The same as prepare_frame where there is nothing to check or to change: a header in one piece, of
 * which everything that means something in this direction is 0. False, with nothing changed or
 * counted, for all else. All that is read of the guest's memory is compared with 0 once.
 */
static VW_ALWAYS_INLINE bool prepare_plain(struct vw_transmit_batch *out, struct vw_chain *chain,
                                           uint32_t header_size, struct vw_frame *frame)
{
    struct iovec *iov = chain->iov;
    uint64_t start; /* flags to csum_start */
    uint16_t csum_offset;

    if (vw_unlikely(chain->readable_count == 0 || iov[0].iov_len < header_size))
        return false;
    memcpy(&start, iov[0].iov_base, sizeof(start));
    memcpy(&csum_offset, (const char *)iov[0].iov_base + sizeof(start), sizeof(csum_offset));
    uint32_t length = chain->readable_length - header_size;
    if (vw_unlikely((start | csum_offset) != 0 || length < VW_NET_ETHERNET_HEADER ||
                    length > VW_NET_MAX_FRAME))
        return false;
    uint32_t alone = iov[0].iov_len == header_size; /* else the frame begins in the same piece */
    if (!alone) {
        iov[0].iov_base = (char *)iov[0].iov_base + header_size;
        iov[0].iov_len -= header_size;
    }
    iov += (int)alone - 1;
    iov[0] = (struct iovec){.iov_base = &out->no_offload, .iov_len = VW_PORT_HEADER};
    *frame = (struct vw_frame){
        .iov = iov, .iov_count = chain->readable_count + 1 - alone, .length = length};
    return true;
}

/* Turns a fetched chain into a frame for the port. False: nothing to send. */
static bool prepare_frame(struct vw_pair *pair, struct vw_chain *chain, uint32_t slot)
{
    const struct vw_rules *rules = &pair->device->rules;
    struct virtio_net_hdr_v1 *wire = &pair->out.headers[slot];
    struct vw_frame *frame = &pair->out.frames[slot];
    uint8_t raw[VW_NET_HEADER_MAX];
    struct vw_net_header header;

    if (vw_iov_read(chain->iov, chain->readable_count, 0, raw, rules->header_size) <
        rules->header_size)
        return refuse(pair, chain, VW_NET_HEADER_FRAME_SHORT);
    uint32_t length = chain->readable_length - rules->header_size;
    vw_net_header_decode(&header, raw, rules->header_size);
    enum vw_net_header_error error = vw_net_header_check(&header, length, rules->features);
    if (vw_unlikely(error != VW_NET_HEADER_OK))
        return refuse(pair, chain, error);

    size_t skipped = vw_iov_drop(chain->iov, chain->readable_count, rules->header_size);
    frame->iov = chain->iov + skipped - 1;
    frame->iov_count = chain->readable_count - (uint32_t)skipped + 1;
    frame->iov[0].iov_base = wire;
    frame->iov[0].iov_len = VW_PORT_HEADER;
    frame->length = length;
    if (vw_unlikely(vw_net_header_csum_unusual(&header)) &&
        header.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        if (splice_checksum(frame, &header, &pair->out.sums[slot]) < 0)
            return refuse(pair, chain, VW_NET_HEADER_CSUM_PLACE);
        vw_net_header_checksum_done(&header);
        note(pair, chain, NOTE_CHECKSUM_COMPLETED);
    }
    vw_net_header_encode(&header, wire, VW_PORT_HEADER);
    if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE)
        note(pair, chain, NOTE_SEGMENTED);
    return true;
}

/*
 * Takes chains from the ring, all in one go or each by itself: the two ways of batching that were
 * discussed when vhost-net got it, and that docs/performance.md compares. Whatever is fetched so is
 * sent as one batch, and published once.
 */
static uint32_t fetch_chains(struct vw_pair *pair)
{
    const struct vw_device_options *options = &pair->device->options;
    struct vw_queue *queue = pair->transmit;
    uint32_t count = 0;

    if (vw_likely(!options->batch_singly))
        return vw_device_ring_fetch(&queue->ring, queue->chains, options->batch, &queue->pool);
    while (count < options->batch &&
           vw_device_ring_fetch(&queue->ring, &queue->chains[count], 1, &queue->pool) == 1)
        count++;
    return count;
}

static void use_chains(struct vw_pair *pair, const struct vw_chain *chains, uint32_t count)
{
    struct vw_device_ring *ring = &pair->transmit->ring;

    if (vw_likely(!pair->device->options.batch_singly))
        vw_device_ring_use(ring, chains, count);
    else
        for (uint32_t i = 0; i < count; i++)
            vw_device_ring_use(ring, &chains[i], 1);
}

/*
 * Copies the batch's payload to memory of our own, as a datapath without zero copy does: for
 * comparison (docs/performance.md). The descriptions of the guest's pieces are not needed any more.
 */
static void copy_batch(struct vw_transmit_batch *out)
{
    for (uint32_t i = 0; i < out->frame_count; i++) {
        struct vw_frame *frame = &out->frames[i];
        char *copy = out->copies + (size_t)i * COPY_STRIDE;

        vw_iov_read(frame->iov + 1, frame->iov_count - 1, 0, copy, frame->length);
        frame->iov[1] = (struct iovec){.iov_base = copy, .iov_len = frame->length};
        frame->iov_count = 2;
    }
}

int vw_transmit_create(struct vw_pair *pair)
{
    if (!pair->device->options.batch_copy)
        return 0;
    pair->out.copies = malloc((size_t)VW_PORT_BATCH * COPY_STRIDE);
    return pair->out.copies != NULL ? 0 : -ENOMEM;
}

void vw_transmit_destroy(struct vw_pair *pair)
{
    free(pair->out.copies);
    pair->out.copies = NULL;
}

/* Fetches a new batch. The queue's old one is wholly used. */
static void fetch_batch(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;
    struct vw_transmit_batch *out = &pair->out;
    unsigned header_size = pair->device->rules.header_size;

    queue->pool.used = 0;
    queue->chain_first = 0;
    out->frame_count = out->submitted = out->completed = 0;
    out->note_first = out->note_count = 0;
    queue->chain_count = fetch_chains(pair);
    for (uint32_t i = 0; i < queue->chain_count; i++) {
        struct vw_chain *chain = &queue->chains[i];

        chain->written = 0;
        if (vw_unlikely(chain->writable_count > 0)) {
            /* A transmitq buffer has nothing for us to write (virtio 1.x, section 5.1.6.2). */
            queue->chain_count = i;
            vw_queue_break(queue, VW_RING_WRONG_DIRECTION);
            break;
        }
        if (vw_likely(prepare_plain(out, chain, header_size, &out->frames[out->frame_count])) ||
            prepare_frame(pair, chain, out->frame_count))
            out->frame_chain[out->frame_count++] = (uint16_t)i;
    }
    if (vw_unlikely(out->copies != NULL))
        copy_batch(out);
    vw_queue_report_broken(queue);
}

static void submit(struct vw_pair *pair)
{
    struct vw_transmit_batch *out = &pair->out;
    struct vw_port_queue *port_queue = pair->port_queue;

    if (!vw_transmit_blocked(pair))
        return;
    out->submitted += port_queue->port->ops->transmit(port_queue, &out->frames[out->submitted],
                                                      out->frame_count - out->submitted);
    if (vw_transmit_blocked(pair))
        vw_count(&pair->transmit->counters.waits, 1);
}

static void count_failure(struct vw_queue *queue, enum vw_port_result result)
{
    struct vw_queue_counters *counters = &queue->counters;

    switch (result) {
    case VW_PORT_REFUSED:
        vw_count(&counters->drop_port_refused, 1);
        break;
    case VW_PORT_DOWN:
        vw_count(&counters->drop_port_down, 1);
        break;
    case VW_PORT_GONE:
        vw_count(&counters->drop_port_gone, 1);
        break;
    case VW_PORT_SENT:
    case VW_PORT_FAILED:
    case VW_PORT_RESULT_COUNT:
        vw_count(&counters->drop_port_failed, 1);
        break;
    }
}

static void count_results(struct vw_queue *queue, const struct vw_frame *frames,
                          const enum vw_port_result *results, uint32_t count)
{
    uint64_t sent = 0, bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (vw_likely(results[i] == VW_PORT_SENT)) {
            sent++;
            bytes += frames[i].length;
        } else {
            count_failure(queue, results[i]);
        }
    }
    vw_count(&queue->counters.frames, sent);
    vw_count(&queue->counters.bytes, bytes);
}

/* Takes completions, uses their chains, publishes once. True if anything was used. */
static bool complete(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;
    struct vw_transmit_batch *out = &pair->out;
    enum vw_port_result results[VW_PORT_BATCH];
    uint32_t count = 0;

    if (out->completed < out->submitted)
        count = pair->port_queue->port->ops->complete(pair->port_queue, results,
                                                      out->submitted - out->completed);
    count_results(queue, &out->frames[out->completed], results, count);
    out->completed += count;

    /* Chains without a frame go along with the frames before them. */
    uint32_t end =
        out->completed == out->frame_count ? queue->chain_count : out->frame_chain[out->completed];
    if (end == queue->chain_first)
        return false;
    uint32_t used = end - queue->chain_first;
    count_notes(pair, end);
    use_chains(pair, &queue->chains[queue->chain_first], used);
    queue->chain_first = end;
    vw_queue_publish(queue, pair, used);
    return true;
}

/*
 * A disabled queue discards what is transmitted. It does so once for each kick and does not look at
 * the ring otherwise: User-mode Linux leaves a ring started and disabled when the guest unloads its
 * driver, and reuses the memory, so a ring that nobody kicks must not be touched.
 */
static bool discard(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;

    if (!pair->transmit_kicked)
        return false;
    queue->pool.used = 0;
    queue->chain_first = queue->chain_count = 0;
    uint32_t count = vw_device_ring_fetch(&queue->ring, queue->chains, VW_PORT_BATCH, &queue->pool);
    for (uint32_t i = 0; i < count; i++)
        queue->chains[i].written = 0;
    vw_queue_report_broken(queue);
    if (count == 0) {
        pair->transmit_kicked = !vw_device_ring_arm(&queue->ring);
        return pair->transmit_kicked;
    }
    vw_device_ring_use(&queue->ring, queue->chains, count);
    vw_count(&queue->counters.drop_disabled, count);
    vw_queue_publish(queue, pair, count);
    return true;
}

/*
 * The front-end disables the queue. While it was enabled, kicks may have been off: what is in the
 * ring is discarded now, while the ring is certainly still there, and a kick asked for.
 */
void vw_transmit_disabled(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;

    if (!vw_queue_works(queue))
        return;
    pair->transmit_kicked = true;
    for (uint32_t done = 0; done <= queue->size && discard(pair); done += VW_PORT_BATCH)
        ;
}

bool vw_transmit_run(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;

    if (!vw_queue_works(queue) && vw_queue_held(queue) == 0)
        return false;
    if (!queue->enabled && vw_queue_held(queue) == 0)
        return discard(pair);
    pair->transmit_kicked = false;
    if (vw_queue_held(queue) == 0) {
        vw_device_ring_disarm(&queue->ring);
        fetch_batch(pair);
        if (queue->chain_count == 0)
            return false;
        vw_count(&queue->counters.batches, 1);
    }
    uint32_t before = pair->out.submitted;
    submit(pair);
    return complete(pair) || pair->out.submitted != before;
}

bool vw_transmit_arm(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;

    /* A disabled queue was armed when its last discard found nothing. With chains in hand the port
     * wakes us, and the guest has no need to. */
    if (!vw_queue_works(queue) || !queue->enabled || vw_queue_held(queue) > 0)
        return true;
    return vw_device_ring_arm(&queue->ring);
}

/*
 * What the port has taken completes; what it has not taken goes back to the guest's ring and is
 * fetched again afterwards, in order, so that a pause loses and reorders nothing.
 */
void vw_transmit_drain(struct vw_pair *pair)
{
    struct vw_queue *queue = pair->transmit;
    struct vw_transmit_batch *out = &pair->out;

    if (vw_queue_held(queue) == 0)
        return;
    if (vw_transmit_blocked(pair)) {
        uint32_t first = out->frame_chain[out->submitted];

        vw_device_ring_give_back(&queue->ring, &queue->chains[first], queue->chain_count - first);
        queue->chain_count = first;
        out->frame_count = out->submitted;
    }
    pair->port_queue->port->ops->drain(pair->port_queue);
    while (vw_queue_held(queue) > 0 && complete(pair))
        ;
}
