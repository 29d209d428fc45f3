/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP streams for measurements: a sender that forms segments by TCP's own rules, and a reader that
 * checks every byte. No connection of a real stack is behind them: nothing is ever sent again.
 *
 * Theory of operation
 * -------------------
 * A stream is bytes with a known content: a pattern of VW_STREAM_PATTERN bytes, a prime number,
 * goes on and on, and where a stream begins in it depends on its number. The byte with a sequence
 * number is thus known without any state, and bytes in a wrong place do not fit. Frames are
 * Ethernet, IPv4 and TCP without options, to the discard port; the stream's number is in the source
 * port. A stream begins with a SYN, which is not answered.
 *
 * The *sender* of a stream is an application, which writes so many bytes at a time as fast as it
 * may, and the part of TCP that decides what goes into a frame:
 *
 *   - a write joins the pending segment, until that is full: as many times the MSS as fit into one
 *     frame with segmentation offload, one without. What is left of the write waits.
 *   - PSH is set if the segment ends where a write ends.
 *   - *small queues*: nothing goes while more than `in_flight_max` bytes of the stream are with the
 *     driver
 *   - *auto-corking*: a segment that is not full waits while any bytes of the stream are with the
 *     driver, and goes when they are completed or when an acknowledgement comes
 *   - *Nagle's rule, as Minshall changed it*: less than an MSS waits while an earlier segment that
 *     was less than an MSS is not acknowledged; whole MSSs in front of it go
 *   - the *window*: no more than so many bytes are unacknowledged
 *
 * The last two apply only if the far side acknowledges (window != 0). How much is with the driver
 * is what the driver says: one that releases frames too early says less, and segments become small.
 *
 * The *reader* compares contents, checksums and sequence numbers, and notes which streams are to be
 * acknowledged: after every so many full segments' worth. Acknowledgements are cumulative, so that
 * one due for a stream is enough, however late it is asked for.
 *
 * Senders and readers belong to one thread each; counters may be read by others.
 */
#ifndef VW_NET_STREAM_H
#define VW_NET_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "net/probe.h"

#define VW_STREAM_MAX 1024     /* streams of one sender, numbered from 0 */
#define VW_STREAM_PORT 32768   /* source port of stream 0 */
#define VW_STREAM_HEADERS 54   /* Ethernet, IPv4, TCP */
#define VW_STREAM_TRANSPORT 34 /* where TCP begins, and where in it its checksum lies */
#define VW_STREAM_CHECKSUM 16
#define VW_STREAM_PAYLOAD (65535 - 40) /* bytes in a frame at most */
#define VW_STREAM_FRAME_MAX (VW_STREAM_HEADERS + VW_STREAM_PAYLOAD)
#define VW_STREAM_PATTERN 4093
#define VW_STREAM_WRITE_MAX (1U << 30)

#define VW_STREAM_SYN 0x02
#define VW_STREAM_RST 0x04
#define VW_STREAM_PSH 0x08
#define VW_STREAM_ACK 0x10

/* ---- contents -------------------------------------------------------------------------------- */

struct vw_stream_pattern {
    uint8_t bytes[VW_STREAM_PATTERN];
};

void vw_stream_pattern_init(struct vw_stream_pattern *pattern);

/* Writes the bytes of a stream from this sequence number on, or compares them. */
void vw_stream_fill(const struct vw_stream_pattern *pattern, unsigned stream, uint32_t sequence,
                    uint8_t *to, uint32_t length);
bool vw_stream_equal(const struct vw_stream_pattern *pattern, unsigned stream, uint32_t sequence,
                     const uint8_t *bytes, uint32_t length);

/* ---- frames ---------------------------------------------------------------------------------- */

/* What a frame's headers say besides its addresses. */
struct vw_stream_segment {
    uint32_t sequence, acknowledgement;
    uint32_t length; /* of the payload */
    uint8_t flags;   /* VW_STREAM_* */
};

/* Writes all headers of the frame whose payload lies behind them already. `partial`: the checksum
 * is left to the device, and its field has the sum of the pseudo-header (virtio 1.x, 5.1.6.2). */
void vw_stream_write_headers(uint8_t *frame, const struct vw_probe_addresses *addresses,
                             unsigned stream, const struct vw_stream_segment *segment,
                             bool partial);

/* Is it an acknowledgement of one of our streams? Frames are taken as they are at some time: others
 * may write to them. */
bool vw_stream_read_acknowledgement(const uint8_t *frame, uint32_t length, unsigned *stream,
                                    uint32_t *acknowledgement);

/* ---- sending --------------------------------------------------------------------------------- */

struct vw_stream_rules {
    uint32_t write;         /* bytes in each write of the application */
    uint32_t mss;           /* bytes in a frame on the wire */
    uint32_t segment_max;   /* bytes in a segment: a multiple of the MSS */
    uint32_t in_flight_max; /* small queues */
    uint32_t window;        /* 0: nothing is acknowledged */
};

/* Linux's limit of small queues in 2014 (tcp_limit_output_bytes), and a window that is larger than
 * what any device here keeps under way. */
#define VW_STREAM_IN_FLIGHT_MAX 131072
#define VW_STREAM_WINDOW (1024 * 1024)

/* The rules for frames of `mtu`; `segmentation`: the device cuts them. */
struct vw_stream_rules vw_stream_rules_for(uint32_t write, unsigned mtu, bool segmentation,
                                           bool acknowledged);

struct vw_stream_sender {
    uint32_t sent;         /* sequence number of the pending segment's first byte */
    uint32_t acknowledged; /* of the first byte that is not */
    uint32_t small_end;    /* end of the last segment that was less than an MSS */
    uint32_t length;       /* of the pending segment */
    uint32_t write_left;   /* of the write under way */
    bool news;             /* acknowledged since the last look */
};

/* Begins at a sequence number; the SYN has the one before it. */
void vw_stream_sender_init(struct vw_stream_sender *sender, uint32_t sequence);

/* The application writes, or goes on with a write, as far as the pending segment, which begins at
 * `segment`, has room. Returns how many bytes. */
uint32_t vw_stream_write(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                         const struct vw_stream_pattern *pattern, unsigned stream,
                         uint8_t *segment);

/* How many bytes of the pending segment are to be sent now, while `in_flight` of the stream's are
 * with the driver; 0: none. */
uint32_t vw_stream_due(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                       uint64_t in_flight);

/* Makes so many bytes a segment of their own; the rest is the new pending segment. */
void vw_stream_cut(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                   uint32_t length, struct vw_stream_segment *segment);

void vw_stream_acknowledge(struct vw_stream_sender *sender, uint32_t acknowledgement);

/* Bulk data whose end nobody waits for: neither pushed nor an acknowledgement alone. */
static inline bool vw_stream_is_urgent(const struct vw_stream_segment *segment)
{
    return segment->length > 0 && (segment->flags & VW_STREAM_PSH) == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* X(name, text for people) */
#define VW_STREAM_COUNTERS(X)                                                                      \
    X(segments, "segments of streams that arrived intact")                                         \
    X(bytes, "payload bytes of these")                                                             \
    X(frame_bytes, "bytes of their frames")                                                        \
    X(pushed, "of these segments, with PSH")                                                       \
    X(partial, "of these segments, with the checksum left to the device")                          \
    X(lost, "payload bytes missing in between")                                                    \
    X(late, "segments that came after later ones, or twice")                                       \
    X(corrupt, "segments with a wrong checksum, header or content")                                \
    X(acknowledged, "acknowledgements made")                                                       \
    X(acknowledgements, "acknowledgements that came")                                              \
    X(streams, "streams seen")                                                                     \
    X(restarts, "times that a stream began again")

struct vw_stream_counters {
#define VW_STREAM_FIELD(name, text) uint64_t name;
    VW_STREAM_COUNTERS(VW_STREAM_FIELD)
#undef VW_STREAM_FIELD
};

struct vw_stream_state {
    uint32_t next;           /* sequence number expected */
    uint32_t unacknowledged; /* segments' worth since the last acknowledgement */
    bool seen, due;
    struct vw_probe_addresses addresses; /* of the acknowledgements */
};

struct vw_stream_reader {
    struct vw_stream_state *streams; /* VW_STREAM_MAX elements, zero at first */
    unsigned every;                  /* acknowledge each so many full segments; 0: never */
    uint32_t mss;                    /* what a full segment is */
    uint16_t due[VW_STREAM_MAX];     /* streams to be acknowledged, oldest first; each once */
    uint32_t due_added, due_taken;   /* free-running */
    struct vw_stream_pattern pattern;
    struct vw_stream_counters counters;
};

/* `streams` has VW_STREAM_MAX elements, zero, and outlives the reader. */
void vw_stream_reader_init(struct vw_stream_reader *reader, struct vw_stream_state *streams,
                           unsigned every);

/* Checks a frame of a stream, or an acknowledgement, and counts it. False, and nothing is counted:
 * it is neither. */
bool vw_stream_read(struct vw_stream_reader *reader, const uint8_t *frame, uint32_t length);

static inline bool vw_stream_acknowledgement_due(const struct vw_stream_reader *reader)
{
    return reader->due_taken != reader->due_added;
}

/* Writes the oldest acknowledgement that is due: a frame of VW_PROBE_MIN_FRAME bytes. One must be
 * due. */
void vw_stream_make_acknowledgement(struct vw_stream_reader *reader, uint8_t *frame);

#endif
