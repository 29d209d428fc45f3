/* SPDX-License-Identifier: BSD-3-Clause */
#include "port/cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "net/checksum.h"
#include "net/features.h"
#include "net/header.h"
#include "net/segment.h"
#include "port/kinds.h"

/* Segments under way that have headers of ours: one full frame of 64 KiB at Ethernet's MTU. */
#define SLOTS 64

/* Pieces of a frame that is not copied first. Linux has up to 17 fragments and the head. */
#define PIECES 20

/* Units under way, and taken frames that the device has not asked about: as many as results.h. */
#define UNITS 256

struct slot {
    struct virtio_net_hdr_v1 wire;
    uint8_t headers[VW_NET_SEGMENT_HEADERS]; /* or the checksum alone, for a frame not cut */
    struct iovec iov[PIECES + 4];
};

/* One frame of the port below, or one that never gets there. */
struct unit {
    bool slot;    /* it has the oldest slot */
    bool last;    /* of its frame */
    bool copied;  /* its frame lies in the buffer */
    bool refused; /* here: the port below does not know it */
};

struct cut_queue {
    struct unit units[UNITS];
    uint8_t finished[UNITS];          /* results of whole frames */
    uint32_t units_added, units_done; /* all free-running */
    uint32_t finished_added, finished_taken;
    uint32_t slots_added, slots_done;
    enum vw_port_result result; /* of the frame whose units are completing */
    bool in_progress;           /* the frame at the head of the device's was begun */
    bool copied;                /* and lies in the buffer */
    bool buffer_busy;
    char *buffer;
    struct iovec copy; /* the frame in the buffer */
    struct vw_net_segmenter segmenter;
    struct slot slots[SLOTS];
};

struct vw_port_cut {
    struct vw_port_ops ops;
    const struct vw_port_ops *below;
    uint64_t features; /* of the port below */
    unsigned queue_count;
    struct cut_queue *queues[VW_PORT_MAX_QUEUES];
};

_Static_assert((UNITS & (UNITS - 1)) == 0 && (SLOTS & (SLOTS - 1)) == 0, "indices wrap");

static struct cut_queue *cut_queue(const struct vw_port_queue *queue)
{
    return queue->port->cut->queues[queue->index];
}

static uint32_t unit_room(const struct cut_queue *cut)
{
    return UNITS - (cut->units_added - cut->units_done) -
           (cut->finished_added - cut->finished_taken);
}

static uint32_t slot_room(const struct cut_queue *cut)
{
    return SLOTS - (cut->slots_added - cut->slots_done);
}

static void add_unit(struct cut_queue *cut, struct unit unit)
{
    cut->units[cut->units_added++ % UNITS] = unit;
    cut->slots_added += unit.slot;
}

static void finish_unit(struct cut_queue *cut, enum vw_port_result result)
{
    const struct unit *unit = &cut->units[cut->units_done++ % UNITS];

    cut->slots_done += unit->slot;
    if (cut->result == VW_PORT_SENT)
        cut->result = result;
    if (!unit->last)
        return;
    cut->finished[cut->finished_added++ % UNITS] = (uint8_t)cut->result;
    cut->result = VW_PORT_SENT;
    if (unit->copied)
        cut->buffer_busy = false;
}

static void finish_refused(struct cut_queue *cut)
{
    while (cut->units_done != cut->units_added && cut->units[cut->units_done % UNITS].refused)
        finish_unit(cut, VW_PORT_REFUSED);
}

/* Asks the port below how its frames fared. */
static void harvest(struct vw_port_queue *queue)
{
    struct cut_queue *cut = cut_queue(queue);
    enum vw_port_result results[VW_PORT_BATCH];
    uint32_t count;

    finish_refused(cut);
    do {
        count = queue->port->cut->below->complete(queue, results, VW_PORT_BATCH);
        for (uint32_t i = 0; i < count; i++) {
            finish_unit(cut, results[i]);
            finish_refused(cut);
        }
    } while (count == VW_PORT_BATCH);
}

static unsigned work_for(const struct vw_port_queue *queue, const struct vw_frame *frame,
                         struct vw_net_header *header)
{
    uint8_t raw[VW_PORT_HEADER];

    vw_iov_read(frame->iov, 1, 0, raw, sizeof(raw));
    vw_net_header_decode(header, raw, sizeof(raw));
    return vw_net_header_work_for_port(header, queue->port->cut->features);
}

/* Hands on the frames at the front that need nothing; returns how many the port below took. */
static uint32_t pass(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct cut_queue *cut = cut_queue(queue);
    struct vw_net_header header;
    uint32_t run = 0;

    if (unit_room(cut) < count)
        harvest(queue);
    count = (uint32_t)vw_min64(count, unit_room(cut));
    while (run < count && work_for(queue, &frames[run], &header) == 0)
        run++;
    if (run == 0)
        return 0;
    uint32_t taken = queue->port->cut->below->transmit(queue, frames, run);
    for (uint32_t i = 0; i < taken; i++)
        add_unit(cut, (struct unit){.last = true});
    return taken;
}

/*
 * The frame's list without the virtio-net header. A frame in too many pieces is copied into the
 * buffer, if that is free. Returns the number of pieces, or 0 if it is not.
 */
static size_t pieces_of(struct cut_queue *cut, const struct vw_frame *frame,
                        const struct iovec **iov)
{
    *iov = frame->iov + 1;
    if (frame->iov_count - 1 <= PIECES)
        return frame->iov_count - 1;
    if (cut->buffer_busy)
        return 0;
    cut->copy = (struct iovec){.iov_base = cut->buffer, .iov_len = frame->length};
    vw_iov_read(frame->iov + 1, frame->iov_count - 1, 0, cut->buffer, frame->length);
    cut->buffer_busy = cut->copied = true;
    *iov = &cut->copy;
    return 1;
}

static bool refuse(struct cut_queue *cut)
{
    add_unit(cut, (struct unit){.last = true, .copied = cut->copied, .refused = true});
    cut->copied = false;
    return true;
}

/* Completes the checksum of the frame in two bytes of our own. True: the frame is done with. */
static bool complete_checksum(struct vw_port_queue *queue, const struct vw_frame *frame,
                              const struct vw_net_header *header)
{
    struct cut_queue *cut = cut_queue(queue);
    struct slot *slot = &cut->slots[cut->slots_added % SLOTS];
    size_t place = (size_t)header->csum_start + header->csum_offset, front;
    const struct iovec *iov;
    uint16_t sum;

    size_t count = pieces_of(cut, frame, &iov);
    if (count == 0)
        return false;
    if (vw_net_checksum_value(iov, count, header->csum_start, header->csum_offset, frame->length,
                              &sum) < 0)
        return refuse(cut);
    slot->wire = (struct virtio_net_hdr_v1){0};
    memcpy(slot->headers, &sum, sizeof(sum));
    slot->iov[0] = (struct iovec){&slot->wire, VW_PORT_HEADER};
    front = 1 + vw_iov_slice(slot->iov + 1, PIECES, iov, count, 0, place);
    slot->iov[front++] = (struct iovec){slot->headers, sizeof(sum)};
    front += vw_iov_slice(slot->iov + front, PIECES + 4 - front, iov, count, place + sizeof(sum),
                          frame->length - place - sizeof(sum));

    struct vw_frame unit = {slot->iov, (uint32_t)front, frame->length};
    bool taken = queue->port->cut->below->transmit(queue, &unit, 1) == 1;
    if (taken) {
        add_unit(cut, (struct unit){.slot = true, .last = true, .copied = cut->copied});
        vw_port_count(&queue->counters.transmit_checksums);
    } else if (cut->copied) {
        cut->buffer_busy = false;
    }
    cut->copied = false;
    return taken;
}

/* The segment in turn, in the slot of this number. */
static struct vw_frame make_unit(struct cut_queue *cut, uint32_t number)
{
    struct slot *slot = &cut->slots[number % SLOTS];
    size_t pieces = 0;
    uint32_t length =
        vw_net_segment_make(&cut->segmenter, slot->headers, slot->iov + 2, PIECES, &pieces);

    slot->wire = (struct virtio_net_hdr_v1){0};
    slot->iov[0] = (struct iovec){&slot->wire, VW_PORT_HEADER};
    slot->iov[1] = (struct iovec){slot->headers, cut->segmenter.header_length};
    return (struct vw_frame){slot->iov, (uint32_t)(2 + pieces), length};
}

/* Begins to cut a frame. False: the buffer is not free. */
static bool begin(struct cut_queue *cut, const struct vw_frame *frame,
                  const struct vw_net_header *header, bool *refused)
{
    const struct iovec *iov;
    size_t count = pieces_of(cut, frame, &iov);

    if (count == 0)
        return false;
    cut->in_progress =
        vw_net_segment_begin(&cut->segmenter, header, iov, count, frame->length) == 0;
    *refused = !cut->in_progress && refuse(cut);
    return true;
}

/* Hands on the next segments of the frame in progress. False: the port took not all of them. */
static bool advance(struct vw_port_queue *queue)
{
    struct cut_queue *cut = cut_queue(queue);
    struct vw_net_segmenter before = cut->segmenter;
    struct vw_frame units[SLOTS];
    uint32_t count = 0, room = (uint32_t)vw_min64(slot_room(cut), unit_room(cut));

    for (; count < room && vw_net_segment_left(&cut->segmenter); count++) {
        units[count] = make_unit(cut, cut->slots_added + count);
        vw_net_segment_next(&cut->segmenter);
    }
    uint32_t taken = count > 0 ? queue->port->cut->below->transmit(queue, units, count) : 0;
    if (taken < count) {
        cut->segmenter = before;
        for (uint32_t i = 0; i < taken; i++)
            vw_net_segment_next(&cut->segmenter);
    }
    bool left = vw_net_segment_left(&cut->segmenter);
    for (uint32_t i = 0; i < taken; i++)
        add_unit(cut, (struct unit){
                          .slot = true, .last = !left && i + 1 == taken, .copied = cut->copied});
    return taken == count && count > 0;
}

/* Cuts a frame, as far as the port takes its segments. True: it took the whole frame. */
static bool cut_frame(struct vw_port_queue *queue, const struct vw_frame *frame,
                      const struct vw_net_header *header)
{
    struct cut_queue *cut = cut_queue(queue);
    bool refused = false;

    if (!cut->in_progress && !begin(cut, frame, header, &refused))
        return false;
    if (refused)
        return true;
    while (vw_net_segment_left(&cut->segmenter)) {
        if (slot_room(cut) == 0 || unit_room(cut) == 0)
            harvest(queue);
        if (!advance(queue))
            return false;
    }
    cut->in_progress = cut->copied = false;
    vw_port_count(&queue->counters.transmit_cut);
    return true;
}

static uint32_t cut_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct cut_queue *cut = cut_queue(queue);
    uint32_t taken = 0;

    while (taken < count) {
        struct vw_net_header header;
        unsigned work = work_for(queue, &frames[taken], &header);
        bool done;

        if (work == 0) {
            uint32_t passed = pass(queue, &frames[taken], count - taken);

            if (passed == 0)
                break;
            taken += passed;
            continue;
        }
        harvest(queue); /* so that a synchronous port never makes us wait */
        if (unit_room(cut) == 0 || slot_room(cut) == 0)
            break;
        done = work & VW_NET_WORK_SEGMENT ? cut_frame(queue, &frames[taken], &header)
                                          : complete_checksum(queue, &frames[taken], &header);
        if (!done)
            break;
        taken++;
    }
    return taken;
}

static uint32_t cut_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                             uint32_t max)
{
    struct cut_queue *cut = cut_queue(queue);
    uint32_t count = 0;

    harvest(queue);
    while (count < max && cut->finished_taken != cut->finished_added)
        results[count++] = (enum vw_port_result)cut->finished[cut->finished_taken++ % UNITS];
    return count;
}

/* A frame of which some units were taken goes back to the device, which offers it anew later. */
static void cut_drain(struct vw_port_queue *queue)
{
    struct cut_queue *cut = cut_queue(queue);

    queue->port->cut->below->drain(queue);
    harvest(queue);
    cut->result = VW_PORT_SENT;
    cut->in_progress = cut->copied = cut->buffer_busy = false;
}

static void cut_free(struct vw_port *port)
{
    struct vw_port_cut *cut = port->cut;

    for (unsigned i = 0; i < cut->queue_count; i++) {
        vw_port_buffers_unmap(cut->queues[i]->buffer, 1);
        free(cut->queues[i]);
    }
    port->cut = NULL;
    free(cut);
}

static void cut_close(struct vw_port *port)
{
    port->ops = port->cut->below;
    cut_free(port);
    port->ops->close(port);
}

static bool add_queue(struct vw_port_cut *cut)
{
    struct cut_queue *queue = vw_port_allocate(sizeof(*queue));

    if (queue == NULL)
        return false;
    cut->queues[cut->queue_count++] = queue; /* from here on cut_free frees it */
    queue->buffer = vw_port_buffers_map(1);
    return queue->buffer != NULL;
}

int vw_port_cut(struct vw_port *port)
{
    if ((port->features & VW_NET_HOST_OFFLOADS) == VW_NET_HOST_OFFLOADS)
        return 0;
    struct vw_port_cut *cut = vw_port_allocate(sizeof(*cut));
    if (cut == NULL)
        return -ENOMEM;
    port->cut = cut;
    while (cut->queue_count < port->queue_count) {
        if (!add_queue(cut)) {
            cut_free(port);
            return -ENOMEM;
        }
    }
    cut->below = port->ops;
    cut->ops = *port->ops;
    cut->ops.close = cut_close;
    cut->ops.transmit = cut_transmit;
    cut->ops.complete = cut_complete;
    cut->ops.drain = cut_drain;
    cut->features = port->features;
    port->ops = &cut->ops;
    port->features |= VW_NET_HOST_OFFLOADS;
    return 0;
}
