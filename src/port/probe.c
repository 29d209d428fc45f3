/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ports for measurements: `sink` checks the probe frames and the segments of TCP streams that
 * it is given, and may acknowledge these; `source` makes some.
 *
 * Theory of operation
 * -------------------
 * A sink copies each frame into memory of its own and checks the copy: its sequence number tells of
 * loss, reordering and duplication, its checksum of corruption (net/probe.h). A source yields
 * frames as fast as the device takes them. Both do what a receiver and a sender of real frames
 * would: every byte is moved once.
 *
 *   sink ..... transmit copies and checks; there is nothing to receive but acknowledgements
 *   source ... receive makes frames in a ring of buffers; transmit checks as a sink does, so that
 *              frames that are sent back are counted
 *
 * The streams of a source do not wait for acknowledgements, and nothing is ever with a driver that
 * they would wait for: each write goes as it is made, in as many segments as it needs.
 *
 * The frames of a batch are copied first and checked then. The copies come from memory that
 * another core has just written, and each waits for its cache line: next to each other they wait
 * together.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/iov.h"
#include "net/probe.h"
#include "port/kinds.h"

/* What a device borrows at most at a time. Few, so that they stay in the first-level cache. */
#define SOURCE_SLOTS VW_PORT_BATCH

/* Copies lie side by side in so many bytes, two thirds of a first-level cache; a frame that is
 * longer is copied and checked by itself. */
#define SINK_BYTES 32768

struct sink {
    struct vw_probe_reader reader;
    struct vw_stream_reader streams;
    uint8_t *copies; /* VW_PORT_BUFFER_STRIDE bytes: the longest frame fits */
};

enum source_kind { SOURCE_NOTHING, SOURCE_PROBES, SOURCE_STREAMS, SOURCE_ACKNOWLEDGEMENTS };

struct source {
    enum source_kind kind;
    struct vw_probe_writer writer;
    uint64_t *sequences; /* of the writer's flows */
    struct vw_probe_sizes sizes;

    struct vw_stream_sender *senders;
    unsigned sender_count, turn;
    struct vw_stream_rules rules;
    struct vw_stream_pattern pattern;
    struct vw_probe_addresses addresses;
    bool partial; /* checksums of streams are left to the device */

    uint64_t left; /* frames still to be made */
    char *buffers;
    size_t stride;
    uint32_t lent, released; /* free-running */
    struct iovec iov[SOURCE_SLOTS][2];
};

struct probe_queue {
    struct vw_port_queue queue;
    uint32_t sent; /* transmitted frames whose completion was not asked for yet */
    struct sink sink;
    struct source source;
};

_Static_assert((SOURCE_SLOTS & (SOURCE_SLOTS - 1)) == 0, "free-running indices wrap");
_Static_assert(SINK_BYTES <= VW_PORT_BUFFER_STRIDE, "the longest frame decides the size");

struct probe_port {
    struct vw_port port;
    struct vw_port_queue *queues[VW_PORT_MAX_QUEUES];
};

static struct probe_queue *probe_queue(struct vw_port_queue *queue)
{
    return vw_container_of(queue, struct probe_queue, queue);
}

static void count_frames(uint64_t *counter, uint32_t count)
{
    vw_shared_store(counter, vw_shared_load(counter) + count);
}

static void probe_close(struct vw_port *port)
{
    for (unsigned i = 0; i < port->queue_count; i++) {
        struct probe_queue *probe = probe_queue(port->queues[i]);

        free(probe->sink.reader.flows);
        free(probe->sink.streams.streams);
        free(probe->sink.copies);
        free(probe->source.sequences);
        free(probe->source.senders);
        free(probe->source.buffers);
        free(probe);
    }
    free(vw_container_of(port, struct probe_port, port));
}

static int64_t probe_set_guest_offloads(struct vw_port *port, uint64_t features)
{
    return (int64_t)(features & port->features);
}

static int probe_set_active_queues(struct vw_port *port, unsigned count)
{
    return count >= 1 && count <= port->queue_count ? 0 : -EINVAL;
}

static uint32_t probe_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                               uint32_t max)
{
    struct probe_queue *probe = probe_queue(queue);
    uint32_t count = (uint32_t)vw_min64(probe->sent, max);

    for (uint32_t i = 0; i < count; i++)
        results[i] = VW_PORT_SENT;
    probe->sent -= count;
    return count;
}

static void probe_drain(struct vw_port_queue *queue)
{
    (void)queue; /* every frame was complete when transmit returned */
}

/* ---- sink ------------------------------------------------------------------------------------ */

static uint32_t copy_frame(uint8_t *to, const struct vw_frame *frame)
{
    const struct iovec *iov = frame->iov + 1;
    uint32_t length = (uint32_t)vw_min64(frame->length, VW_PORT_MAX_FRAME);

    if (vw_unlikely(frame->iov_count != 2 || iov->iov_len < length))
        return (uint32_t)vw_iov_read(iov, frame->iov_count - 1, 0, to, length);
    vw_copy_short(to, iov->iov_base, length);
    return length;
}

/* Checks frames from the first on, as many as are copied side by side; returns how many. */
static uint32_t check_some(struct sink *sink, const struct vw_frame *frames, uint32_t count)
{
    struct iovec copies[VW_PORT_BATCH];
    uint8_t *to = sink->copies, *end = to + SINK_BYTES;
    uint32_t copied = 0;

    for (; copied < count && copied < VW_PORT_BATCH; copied++) {
        if (copied > 0 && (ptrdiff_t)frames[copied].length > end - to)
            break; /* the first one may have passed the end */
        uint32_t length = copy_frame(to, &frames[copied]);
        copies[copied] = (struct iovec){.iov_base = to, .iov_len = length};
        to += (length + VW_CACHE_LINE - 1) / VW_CACHE_LINE * VW_CACHE_LINE;
    }
    vw_probe_read_burst(&sink->reader, copies, copied);
    return copied;
}

static uint32_t sink_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct probe_queue *probe = probe_queue(queue);

    for (uint32_t checked = 0; checked < count;)
        checked += check_some(&probe->sink, frames + checked, count - checked);
    probe->sent += count;
    count_frames(&queue->counters.transmit_sent, count);
    return count;
}

/* ---- source ---------------------------------------------------------------------------------- */

static bool source_has_more(const struct probe_queue *probe)
{
    const struct source *source = &probe->source;

    if (source->lent - source->released >= SOURCE_SLOTS)
        return false;
    return source->kind == SOURCE_ACKNOWLEDGEMENTS
               ? vw_stream_acknowledgement_due(&probe->sink.streams)
               : source->left > 0;
}

/* What is left to the device of a stream's segment. */
static void write_offload(const struct source *source, uint32_t payload, void *to)
{
    struct virtio_net_hdr_v1 header = {0};

    if (source->partial) {
        header.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        header.csum_start = htole16(VW_STREAM_TRANSPORT);
        header.csum_offset = htole16(VW_STREAM_CHECKSUM);
    }
    if (payload > source->rules.mss) {
        header.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        header.hdr_len = htole16(VW_STREAM_HEADERS);
        header.gso_size = htole16((uint16_t)source->rules.mss);
    }
    memcpy(to, &header, sizeof(header));
}

/* The next segment, of the streams in turn. */
static uint32_t make_segment(struct source *source, const struct iovec *iov)
{
    unsigned stream = source->turn;
    struct vw_stream_sender *sender = &source->senders[stream];
    uint8_t *frame = iov[1].iov_base;
    struct vw_stream_segment segment;

    source->turn = stream + 1 < source->sender_count ? stream + 1 : 0;
    vw_stream_write(sender, &source->rules, &source->pattern, stream, frame + VW_STREAM_HEADERS);
    vw_stream_cut(sender, &source->rules, sender->length, &segment);
    vw_stream_write_headers(frame, &source->addresses, stream, &segment, source->partial);
    write_offload(source, segment.length, iov[0].iov_base);
    return VW_STREAM_HEADERS + segment.length;
}

static uint32_t make_frame(struct probe_queue *probe, const struct iovec *iov)
{
    struct source *source = &probe->source;
    uint32_t length = VW_PROBE_MIN_FRAME;

    switch (source->kind) {
    case SOURCE_PROBES:
        length = vw_probe_sizes_next(&source->sizes);
        vw_probe_write(&source->writer, iov[1].iov_base, length);
        break;
    case SOURCE_STREAMS:
        return make_segment(source, iov);
    case SOURCE_ACKNOWLEDGEMENTS:
        vw_stream_make_acknowledgement(&probe->sink.streams, iov[1].iov_base);
        break;
    case SOURCE_NOTHING:
        break;
    }
    return length;
}

static uint32_t source_receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    struct probe_queue *probe = probe_queue(queue);
    struct source *source = &probe->source;
    uint32_t count = 0;

    for (; count < max && source_has_more(probe); count++, source->left--) {
        uint32_t slot = source->lent++ % SOURCE_SLOTS;
        uint32_t length = make_frame(probe, source->iov[slot]);

        source->iov[slot][1].iov_len = length;
        frames[count] = (struct vw_frame){source->iov[slot], 2, length};
    }
    count_frames(&queue->counters.receive_frames, count);
    return count;
}

static void source_release(struct vw_port_queue *queue, uint32_t count)
{
    struct source *source = &probe_queue(queue)->source;

    source->released += (uint32_t)vw_min64(count, source->lent - source->released);
}

static void source_want(struct vw_port_queue *queue, bool receive, bool transmit,
                        struct vw_port_wait *wait)
{
    bool at_once = (receive && source_has_more(probe_queue(queue))) || transmit;

    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = at_once ? 0 : -1};
}

static const struct vw_port_ops sink_ops = {
    .name = "sink",
    .close = probe_close,
    .set_guest_offloads = probe_set_guest_offloads,
    .set_active_queues = probe_set_active_queues,
    .transmit = sink_transmit,
    .complete = probe_complete,
    .receive = source_receive,
    .release = source_release,
    .want = source_want,
    .drain = probe_drain,
};

static const struct vw_port_ops source_ops = {
    .name = "source",
    .close = probe_close,
    .set_guest_offloads = probe_set_guest_offloads,
    .set_active_queues = probe_set_active_queues,
    .transmit = sink_transmit,
    .complete = probe_complete,
    .receive = source_receive,
    .release = source_release,
    .want = source_want,
    .drain = probe_drain,
};

/* ---- opening --------------------------------------------------------------------------------- */

static int init_sink(struct probe_queue *probe, const struct vw_port_options *options)
{
    struct sink *sink = &probe->sink;
    struct vw_stream_state *states = calloc(VW_STREAM_MAX, sizeof(*states));

    /* Not touched until a flow is seen: the table costs what its flows fill. */
    sink->reader.flows = calloc(VW_PROBE_FLOW_TABLE, sizeof(*sink->reader.flows));
    sink->copies = aligned_alloc(VW_CACHE_LINE, VW_PORT_BUFFER_STRIDE);
    vw_stream_reader_init(&sink->streams, states, options->acknowledge);
    sink->reader.streams = &sink->streams;
    probe->queue.probe = &sink->reader.counters;
    probe->queue.stream = &sink->streams.counters;
    return sink->reader.flows != NULL && states != NULL && sink->copies != NULL ? 0 : -ENOMEM;
}

/* Frames of a source are at most so long. */
static int make_slots(struct source *source, uint32_t longest)
{
    source->left = UINT64_MAX;
    source->stride = (VW_PORT_HEADER + longest + VW_CACHE_LINE - 1) / VW_CACHE_LINE * VW_CACHE_LINE;
    source->buffers = vw_port_allocate(SOURCE_SLOTS * source->stride);
    if (source->buffers == NULL)
        return -ENOMEM;
    for (unsigned slot = 0; slot < SOURCE_SLOTS; slot++) {
        char *buffer = source->buffers + slot * source->stride;

        source->iov[slot][0] = (struct iovec){buffer, VW_PORT_HEADER}; /* zero, but for streams */
        source->iov[slot][1].iov_base = buffer + VW_PORT_HEADER;
    }
    return 0;
}

/* Queue `index` of `queues` makes every queues-th flow. */
static int init_probes(struct source *source, const struct vw_port_options *options, unsigned index)
{
    unsigned queues = options->queues;
    unsigned flows = options->flows > index ? (options->flows - index - 1) / queues + 1 : 0;
    struct vw_probe_addresses addresses;
    uint16_t run = 0;

    if (getrandom(&run, sizeof(run), 0) < 0)
        return -errno;
    source->kind = SOURCE_PROBES;
    source->sizes = options->sizes;
    source->sequences = calloc(flows + 1u, sizeof(*source->sequences));
    if (source->sequences == NULL)
        return -ENOMEM;
    vw_probe_addresses_default(&addresses);
    vw_probe_writer_init(&source->writer, &addresses, run, index, queues, flows, source->sequences);
    return make_slots(source, vw_probe_sizes_longest(&source->sizes));
}

/* Each queue has its own streams, from different addresses. */
static int init_streams(struct source *source, const struct vw_port_options *options,
                        unsigned index)
{
    unsigned mtu = options->mtu != 0 ? options->mtu : 1500;

    source->kind = SOURCE_STREAMS;
    source->partial = options->offload;
    source->rules = vw_stream_rules_for(options->write, mtu, options->offload, false);
    source->sender_count = options->streams;
    source->senders = calloc(options->streams, sizeof(*source->senders));
    if (source->senders == NULL)
        return -ENOMEM;
    vw_stream_pattern_init(&source->pattern);
    vw_probe_addresses_default(&source->addresses);
    source->addresses.source_ip += index << 8;
    return make_slots(source, VW_STREAM_HEADERS +
                                  (uint32_t)vw_min64(options->write, source->rules.segment_max));
}

static int init_source(struct probe_queue *probe, const struct vw_port_options *options)
{
    struct source *source = &probe->source;
    int error = 0;

    if (probe->queue.port->ops == &source_ops)
        error = options->streams != 0 ? init_streams(source, options, probe->queue.index)
                                      : init_probes(source, options, probe->queue.index);
    else if (options->acknowledge != 0) {
        source->kind = SOURCE_ACKNOWLEDGEMENTS;
        error = make_slots(source, VW_PROBE_MIN_FRAME);
    }
    if (options->frames != 0)
        source->left = options->frames;
    return error;
}

static int add_queue(struct vw_port *port, const struct vw_port_options *options)
{
    struct probe_queue *probe = vw_port_allocate(sizeof(*probe));

    if (probe == NULL)
        return -ENOMEM;
    probe->queue.port = port;
    probe->queue.index = port->queue_count;
    port->queues[port->queue_count++] = &probe->queue; /* from here on close frees it */
    int error = init_sink(probe, options);

    return error == 0 ? init_source(probe, options) : error;
}

static int open_probe(const struct vw_port_options *options, const struct vw_port_ops *ops,
                      const struct vw_log *log, struct vw_port **opened,
                      const struct vw_port_error *error)
{
    struct probe_port *probe = vw_port_allocate(sizeof(*probe));

    if (probe == NULL)
        return vw_port_fail(error, -ENOMEM, "%s: no memory", ops->name);
    struct vw_port *port = &probe->port;
    port->ops = ops;
    port->log = log;
    port->queues = probe->queues;
    port->features = options->offload ? VW_PORT_OFFLOADS | VW_PORT_OFFLOADS_USO : 0;
    port->mtu = options->mtu;
    port->link_fd = -1;
    port->on_demand = true;
    port->link_up = true;
    snprintf(port->description, sizeof(port->description), "%s", ops->name);
    while (port->queue_count < options->queues) {
        if (add_queue(port, options) < 0) {
            probe_close(port);
            return vw_port_fail(error, -ENOMEM, "%s: no memory for %u queues", ops->name,
                                options->queues);
        }
    }
    *opened = port;
    return 0;
}

int vw_port_sink_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **opened, const struct vw_port_error *error)
{
    return open_probe(options, &sink_ops, log, opened, error);
}

int vw_port_source_open(const struct vw_port_options *options, const struct vw_log *log,
                        struct vw_port **opened, const struct vw_port_error *error)
{
    struct vw_port_options with_defaults = *options;

    if (options->streams != 0 && (options->flows != 0 || options->sizes.count != 0))
        return vw_port_fail(error, -EINVAL, "source: streams= goes with write=, not with %s=",
                            options->flows != 0 ? "flows" : "size");
    if (options->write != 0 && options->streams == 0)
        return vw_port_fail(error, -EINVAL, "source: write= needs streams=");
    if (with_defaults.write == 0)
        with_defaults.write = 16384;
    if (with_defaults.sizes.count == 0)
        vw_probe_sizes_parse(&with_defaults.sizes, "64");
    /* Every queue has something to do. */
    if (with_defaults.flows == 0)
        with_defaults.flows = options->queues;
    if (with_defaults.flows < options->queues)
        return vw_port_fail(error, -EINVAL, "source: flows=%u is less than its %u queues",
                            options->flows, options->queues);
    return open_probe(&with_defaults, &source_ops, log, opened, error);
}
