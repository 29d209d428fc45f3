/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire pktgen --streams`: bulk senders of TCP, whose frames depend on what the driver tells
 * them of their bytes in flight.
 *
 * Theory of operation
 * -------------------
 * Each stream has an application that writes, and a sender that forms segments by TCP's rules
 * (net/stream.h). The thread goes round: each stream in turn writes once, if its pending segment
 * has room, and hands over what is due. The device is looked at when the streams have written
 * LOOK_BYTES, with every policy alike: a kernel's sender is interrupted, which nobody can do here.
 *
 * Segments wait in a burst until the round is over or the burst is full (--burst), as frames do in
 * a kernel that knows that more follow. What the ring or the byte limit did not take waits there,
 * too; its bytes count as in flight, as those in front of a driver's queue do.
 *
 * With --loop the streams are sessions of requests and responses: an application writes only when
 * all that it wrote has come back, and there is nothing that a segment would wait for.
 *
 * A segment is written in the memory from which it is sent. What is left of a pending segment when
 * its first part goes, less than an MSS, is copied to the next one's.
 */
#include <errno.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/shared.h"
#include "cmd/json.h"
#include "cmd/traffic.h"
#include "net/header.h"

/* In front of each frame, for its virtio-net header. Payloads begin with a cache line. */
#define HEADROOM (2 * VW_CACHE_LINE - VW_STREAM_HEADERS)
_Static_assert(HEADROOM >= VW_NET_HEADER_MAX, "room for any header");

/* So many bytes are written between two looks at the device, or each stream has written once: one
 * MSS, the least that a bulk sender has to say. With a look after each write of 64 bytes (one
 * stream, orphan) half of the time went into looking. */
#define LOOK_BYTES 1460

struct stream {
    struct vw_stream_sender sender;
    struct vw_flow *flow;
    uint8_t *frame;  /* of the pending segment; NULL: there was no memory */
    uint64_t queued; /* bytes of its frames in the burst */
    uint64_t asked;  /* in a loop: when the write was made that is not back; 0: none */
};

struct streams {
    struct stream *streams;
    unsigned count;
    struct vw_stream_rules rules;
    struct vw_stream_pattern pattern;
    struct vw_probe_addresses addresses;
    bool partial; /* checksums are left to the device */
    bool loop;

    uint8_t **free;
    unsigned free_count;

    /* The burst: packets[0 .. waiting) wait for the device. */
    struct vw_tx_packet packets[TRAFFIC_MAX_BURST];
    struct vw_piece pieces[TRAFFIC_MAX_BURST];
    struct stream *owners[TRAFFIC_MAX_BURST];
    unsigned waiting;

    uint64_t limit, made; /* frames */
    uint32_t unlooked;    /* bytes written since the device was looked at */
};

/* ---- set-up ---------------------------------------------------------------------------------- */

/* For the longest segment that any MTU allows; pages that are not used are not touched. */
static size_t stride_of(void)
{
    return HEADROOM + (VW_STREAM_FRAME_MAX + VW_CACHE_LINE - 1) / VW_CACHE_LINE * VW_CACHE_LINE;
}

static unsigned buffers_of(const struct traffic_options *options)
{
    return options->net.tx_ring_size + options->burst + options->streams;
}

static size_t streams_memory(const struct traffic_options *options)
{
    return buffers_of(options) * stride_of();
}

static void streams_release(struct traffic_worker *worker)
{
    struct streams *streams = worker->role;

    if (streams == NULL)
        return;
    for (unsigned i = 0; streams->streams != NULL && i < streams->count; i++)
        vw_flow_free(streams->streams[i].flow);
    free(streams->streams);
    free(streams->free);
    free(streams);
    worker->role = NULL;
}

static int make_streams(struct traffic_worker *worker, struct streams *streams)
{
    streams->streams = calloc(streams->count, sizeof(*streams->streams));
    if (streams->streams == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < streams->count; i++) {
        struct stream *stream = &streams->streams[i];
        uint32_t sequence;

        if (getrandom(&sequence, sizeof(sequence), 0) < 0)
            return -errno;
        vw_stream_sender_init(&stream->sender, sequence);
        stream->flow = vw_flow_new(worker->net);
        if (stream->flow == NULL)
            return -ENOMEM;
    }
    return 0;
}

static void set_rules(struct traffic_worker *worker, struct streams *streams)
{
    const struct traffic_options *options = &worker->traffic->options;
    struct vw_net_info info;

    vw_net_info(worker->net, &info);
    streams->loop = options->loop;
    streams->partial = vw_has(info.features, VIRTIO_NET_F_CSUM);
    streams->rules =
        vw_stream_rules_for(options->write, info.mtu, vw_has(info.features, VIRTIO_NET_F_HOST_TSO4),
                            options->acknowledged);
    /* Each queue pair has its own streams, from different addresses. */
    streams->addresses = options->addresses;
    streams->addresses.source_ip += worker->pair << 8;
    vw_stream_pattern_init(&streams->pattern);
}

static int streams_prepare(struct traffic_worker *worker)
{
    const struct traffic_options *options = &worker->traffic->options;
    struct streams *streams = calloc(1, sizeof(*streams));
    unsigned buffers = buffers_of(options), queues = worker->traffic->worker_count;

    worker->role = streams; /* from here on released with the worker */
    if (streams == NULL)
        return -ENOMEM;
    streams->count = options->streams;
    uint8_t *memory = vw_alloc(worker->net, buffers * stride_of());
    streams->free = calloc(buffers, sizeof(*streams->free));
    if (memory == NULL || streams->free == NULL)
        return -ENOMEM;
    for (unsigned i = buffers; i > 0; i--)
        streams->free[streams->free_count++] = memory + (i - 1) * stride_of() + HEADROOM;
    streams->limit = UINT64_MAX;
    if (options->count != 0)
        streams->limit = options->count / queues + (worker->pair < options->count % queues);
    set_rules(worker, streams);
    return make_streams(worker, streams);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void streams_sent(struct traffic_worker *worker, void *token)
{
    struct streams *streams = worker->role;

    streams->free[streams->free_count++] = token;
}

/* Offers what waits. Returns as traffic_send. */
static int flush(struct traffic_worker *worker, struct streams *streams)
{
    if (streams->waiting == 0)
        return 0;
    int done = traffic_send(worker, streams->packets, streams->waiting);
    if (done <= 0)
        return done;
    unsigned left = streams->waiting - (unsigned)done;
    for (unsigned i = 0; i < streams->waiting; i++) {
        unsigned to = i - (unsigned)done;

        if (i < (unsigned)done) {
            streams->owners[i]->queued -= streams->pieces[i].length;
            continue;
        }
        streams->packets[to] = streams->packets[i];
        streams->pieces[to] = streams->pieces[i];
        streams->packets[to].pieces = &streams->pieces[to];
        streams->owners[to] = streams->owners[i];
    }
    streams->waiting = left;
    return done;
}

/* What is left to the device of a segment. */
static struct vw_offload offload_of(const struct streams *streams,
                                    const struct vw_stream_segment *segment)
{
    struct vw_offload offload = {0};

    if (!streams->partial)
        return offload;
    offload.flags = VW_OFFLOAD_NEEDS_CSUM;
    offload.csum_start = VW_STREAM_TRANSPORT;
    offload.csum_offset = VW_STREAM_CHECKSUM;
    if (segment->length > streams->rules.mss) {
        offload.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        offload.gso_size = (uint16_t)streams->rules.mss;
        offload.hdr_len = VW_STREAM_HEADERS;
    }
    return offload;
}

/* Puts a segment whose payload is written into the burst, which has room. */
static void put(struct traffic_worker *worker, struct streams *streams, struct stream *stream,
                uint8_t *frame, const struct vw_stream_segment *segment)
{
    unsigned at = streams->waiting++, number = (unsigned)(stream - streams->streams);
    struct traffic_stream_counters *counters = &worker->stream_sent;
    bool urgent = vw_stream_is_urgent(segment);

    vw_stream_write_headers(frame, &streams->addresses, number, segment, streams->partial);
    streams->pieces[at] = (struct vw_piece){frame, VW_STREAM_HEADERS + segment->length};
    streams->packets[at] = (struct vw_tx_packet){
        .pieces = &streams->pieces[at],
        .piece_count = 1,
        .token = frame,
        .headroom = HEADROOM,
        .flow = stream->flow,
        .urgent = urgent,
        .offload = offload_of(streams, segment),
    };
    streams->owners[at] = stream;
    stream->queued += streams->pieces[at].length;
    streams->made++;
    if (segment->length == 0)
        return;
    traffic_count(&counters->segments, 1);
    traffic_count(&counters->bytes, segment->length);
    traffic_count(&counters->pushed, (segment->flags & VW_STREAM_PSH) != 0);
    traffic_count(&counters->urgent, urgent);
}

static uint8_t *take_buffer(struct traffic_worker *worker, struct streams *streams)
{
    if (streams->free_count == 0)
        vw_tx_reap(worker->net, worker->pair);
    return streams->free_count > 0 ? streams->free[--streams->free_count] : NULL;
}

/* Puts what is due of a stream into the burst. False: nothing was. */
static bool send_due(struct traffic_worker *worker, struct streams *streams, struct stream *stream)
{
    uint64_t in_flight = streams->loop ? 0 : vw_flow_in_flight(stream->flow) + stream->queued;
    struct vw_stream_segment segment;
    uint8_t *frame = stream->frame, *next;

    if (streams->waiting >= worker->traffic->options.burst)
        return false;
    uint32_t due = vw_stream_due(&stream->sender, &streams->rules, in_flight);
    if (due == 0)
        return false;
    next = take_buffer(worker, streams);
    if (next == NULL)
        return false;
    vw_stream_cut(&stream->sender, &streams->rules, due, &segment);
    memcpy(next + VW_STREAM_HEADERS, frame + VW_STREAM_HEADERS + due, stream->sender.length);
    stream->frame = next;
    put(worker, streams, stream, frame, &segment);
    return true;
}

static void think(const struct traffic_worker *worker)
{
    unsigned think_us = worker->traffic->options.think_us;

    for (uint64_t end = vw_clock_ns() + think_us * UINT64_C(1000); think_us > 0;)
        if (vw_clock_ns() >= end)
            break;
}

/* In a loop: may the application write again? Its last write is back, then, or, at the beginning,
 * the SYN. */
static bool is_answered(struct traffic_worker *worker, struct streams *streams,
                        struct stream *stream)
{
    unsigned number = (unsigned)(stream - streams->streams);
    const struct vw_stream_state *back = &worker->streams.streams[number];

    if (stream->sender.write_left > 0)
        return true; /* to go on with the same write */
    if (stream->sender.length > 0 || !back->seen || back->next != stream->sender.sent)
        return false;
    if (stream->asked != 0) {
        vw_histogram_add(&worker->latency, vw_clock_ns() - stream->asked);
        traffic_count(&worker->stream_sent.transactions, 1);
        think(worker);
    }
    stream->asked = vw_clock_ns();
    return true;
}

/* A stream's turn: a write, and what then is due. Returns whether anything moved. */
static bool serve(struct traffic_worker *worker, struct streams *streams, struct stream *stream)
{
    struct traffic_stream_counters *counters = &worker->stream_sent;
    unsigned number = (unsigned)(stream - streams->streams);
    uint32_t written = 0;

    if (stream->sender.length < streams->rules.segment_max &&
        (!streams->loop || is_answered(worker, streams, stream))) {
        written = vw_stream_write(&stream->sender, &streams->rules, &streams->pattern, number,
                                  stream->frame + VW_STREAM_HEADERS);
        traffic_count(&counters->writes, stream->sender.write_left == 0);
        traffic_count(&counters->written, written);
        streams->unlooked += written;
    }
    if (send_due(worker, streams, stream))
        return true;
    traffic_count(&counters->corked, written > 0);
    return written > 0;
}

/* A stream begins with a SYN, which nobody answers. */
static int begin_streams(struct traffic_worker *worker, struct streams *streams)
{
    for (unsigned i = 0; i < streams->count; i++) {
        struct stream *stream = &streams->streams[i];
        struct vw_stream_segment syn = {.sequence = stream->sender.sent - 1,
                                        .flags = VW_STREAM_SYN};
        uint8_t *frame = take_buffer(worker, streams);

        stream->frame = take_buffer(worker, streams);
        if (frame == NULL || stream->frame == NULL)
            return -ENOBUFS;
        put(worker, streams, stream, frame, &syn);
        while (streams->waiting >= worker->traffic->options.burst && !traffic_ends(worker)) {
            if (flush(worker, streams) < 0)
                return -EIO;
            vw_tx_reap(worker->net, worker->pair);
        }
    }
    return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Acknowledgements; anything else that comes is checked as always. A vw_rx_function. */
static void on_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct traffic_worker *worker = context;
    struct streams *streams = worker->role;

    for (unsigned i = 0; i < count; i++) {
        const struct vw_piece *piece = &packets[i].pieces[0];
        uint32_t acknowledgement;
        unsigned number;

        if (vw_stream_read_acknowledgement(piece->data, piece->length, &number, &acknowledgement) &&
            number < streams->count) {
            vw_stream_acknowledge(&streams->streams[number].sender, acknowledgement);
            traffic_count(&worker->stream_sent.acknowledgements, 1);
        }
    }
    traffic_check(context, pair, packets, count);
}

/* ---- running --------------------------------------------------------------------------------- */

static bool may_make_more(const struct traffic_worker *worker, const struct streams *streams)
{
    return !traffic_ends(worker) && streams->made < streams->limit;
}

/* In a loop: is a part of what was sent not back? */
static bool is_awaited(const struct traffic_worker *worker, const struct streams *streams)
{
    return streams->loop && worker->streams.counters.segments < streams->made;
}

/* Until all that was sent is completed and, in a loop, back. */
static void finish(struct traffic_worker *worker, struct streams *streams)
{
    double deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;

    while (streams->waiting > 0 || vw_tx_in_flight(worker->net, worker->pair) > 0 ||
           is_awaited(worker, streams)) {
        int sent = flush(worker, streams), received = traffic_poll(worker, on_frames);

        if (sent < 0 || received < 0 || vw_clock_seconds() > deadline)
            return;
        if (vw_tx_reap(worker->net, worker->pair) <= 0 && sent == 0 && received == 0)
            traffic_wait(worker, 10);
    }
}

/* Each stream once. Returns whether anything moved, or -1: the thread is to end. */
static int go_round(struct traffic_worker *worker, struct streams *streams)
{
    int moved = 0, sent;

    for (unsigned i = 0; i < streams->count && may_make_more(worker, streams); i++) {
        moved |= serve(worker, streams, &streams->streams[i]);
        if (streams->waiting < worker->traffic->options.burst)
            continue;
        sent = flush(worker, streams);
        if (sent < 0)
            return -1;
        moved |= sent > 0;
    }
    sent = flush(worker, streams);
    return sent < 0 ? -1 : moved | (sent > 0);
}

/* Goes round until the device is to be looked at. As go_round. */
static int go_on(struct traffic_worker *worker, struct streams *streams)
{
    int all = 0, moved;

    streams->unlooked = 0;
    do {
        moved = go_round(worker, streams);
        if (moved < 0)
            return -1;
        all |= moved;
    } while (moved > 0 && streams->unlooked < LOOK_BYTES && !streams->loop &&
             may_make_more(worker, streams));
    return all;
}

static void streams_run(struct traffic_worker *worker)
{
    struct streams *streams = worker->role;
    bool polling = worker->traffic->options.mode == TRAFFIC_POLL;

    if (begin_streams(worker, streams) < 0)
        return;
    while (may_make_more(worker, streams)) {
        uint64_t completed = worker->completed;
        int moved = go_on(worker, streams), received = 0;

        if (moved >= 0)
            received = traffic_poll(worker, on_frames);
        if (moved < 0 || received < 0)
            return;
        if (polling) /* where a poll reaps nothing */
            vw_tx_reap(worker->net, worker->pair);
        if (moved == 0 && received == 0 && worker->completed == completed)
            traffic_wait(worker, TRAFFIC_PATIENCE_MS);
    }
    finish(worker, streams);
}

const struct traffic_role traffic_streams_role = {
    .name = "pktgen",
    .sends = true,
    .memory = streams_memory,
    .prepare = streams_prepare,
    .release = streams_release,
    .run = streams_run,
    .sent = streams_sent,
};
