/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probe frames: UDP frames that carry a sequence number and a checksum of their payload, so that
 * loss, reordering, duplication and corruption on the way are counted and not assumed.
 *
 * Theory of operation
 * -------------------
 * A *writer* makes the frames of one or more flows, a *reader* checks them. The smallest probe is
 * a 60-byte Ethernet frame; all numbers of the probe itself are little-endian:
 *
 *     0  Ethernet, IPv4 and UDP to the discard port; the flow is in the UDP source port, too, so
 *        that a device which hashes keeps a flow in one queue
 *    42  magic number, 2 bytes
 *    44  checksum of what follows and of the frame's length, 4 bytes
 *    48  run, 2 bytes: a sender that starts again is not taken for a reordered one
 *    50  flow, 2 bytes
 *    52  sequence number within the flow, 8 bytes
 *    60  filling to the end of the frame, which differs from frame to frame
 *
 * The filling depends on flow and sequence number: a part of one frame in the place of another's
 * does not go unnoticed. The UDP checksum is left out (0): ours is the stronger one.
 *
 * The reader keeps, for each flow, the next number that it expects and one bit for each of the
 * last VW_PROBE_WINDOW numbers, whether it came:
 *
 *     number is the expected one ... in order
 *     beyond it .................... those between are lost, until they come
 *     before it, bit clear ......... reordered, and not lost after all
 *     before it, bit set ........... duplicate
 *     before the window ............ stale: late or duplicate, nobody can tell; still lost
 *
 * Numbers are compared by their difference, so that they may wrap. The first frame of a flow sets
 * where the flow begins; how many had been sent before is in `before`.
 *
 * Writers and readers belong to one thread each; counters may be read by others.
 */
#ifndef VW_NET_PROBE_H
#define VW_NET_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define VW_PROBE_HEADERS 42      /* Ethernet, IPv4, UDP */
#define VW_PROBE_CONSTANT 44     /* so many bytes are the same in each frame of a flow and length */
#define VW_PROBE_MIN_FRAME 60    /* the shortest Ethernet frame, without its check sequence */
#define VW_PROBE_MAX_FRAME 65549 /* 14 + the longest IPv4 packet */
#define VW_PROBE_UDP_PORT 9      /* discard */

/* Flows that a writer can have: the source ports from VW_PROBE_SOURCE_PORT on. */
#define VW_PROBE_MAX_FLOWS 32768
#define VW_PROBE_SOURCE_PORT 32768

/* Elements of a reader's table: one for each flow number that a frame can carry. What a frame says
 * needs no check, therefore, however often it changes while it is read. */
#define VW_PROBE_FLOW_TABLE 65536

/* How far a frame may be behind and still be told from a duplicate: four full rings of 256. */
#define VW_PROBE_WINDOW 1024

/* ---- frame sizes ----------------------------------------------------------------------------- */

#define VW_PROBE_MAX_SIZES 16

/* A list of lengths that are taken in turn, or all from one to another. */
struct vw_probe_sizes {
    uint32_t lengths[VW_PROBE_MAX_SIZES]; /* of a range: the first and the last */
    unsigned count;
    bool range;
    uint32_t next; /* place in the list, or what to add to the range's first */
};

/*
 * "64", "64:1514" or "64,1514" in turn, "60-9000" one byte longer each time, or "imix": of twelve
 * frames seven of 60, four of 590 and one of 1514 bytes (IP packets of 40, 576 and 1500). Lengths
 * are those of the frame without its check sequence. False: not understood, or out of range.
 */
bool vw_probe_sizes_parse(struct vw_probe_sizes *sizes, const char *text);
uint32_t vw_probe_sizes_longest(const struct vw_probe_sizes *sizes);

static inline uint32_t vw_probe_sizes_next(struct vw_probe_sizes *sizes)
{
    uint32_t at = sizes->next++;

    if (!sizes->range) {
        if (sizes->next == sizes->count)
            sizes->next = 0;
        return sizes->lengths[at];
    }
    if (sizes->next > sizes->lengths[1] - sizes->lengths[0])
        sizes->next = 0;
    return sizes->lengths[0] + at;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct vw_probe_addresses {
    uint8_t destination[6], source[6];
    uint32_t destination_ip, source_ip; /* host order */
};

/* Where a probe goes if nobody says otherwise: locally administered addresses, and the network
 * 198.18.0.0/15, which is set aside for benchmarks (RFC 2544). */
void vw_probe_addresses_default(struct vw_probe_addresses *addresses);

struct vw_probe_writer {
    uint8_t headers[VW_PROBE_HEADERS]; /* all but lengths, source port and checksum */
    uint32_t ip_sum;                   /* of the IPv4 header so far */
    uint16_t run;
    unsigned first, step, count; /* the flows: first, first + step, ... */
    unsigned next;               /* which of them is next */
    uint64_t *sequences;         /* of each flow its next number */

    /* The headers' words that depend on the length, from these bytes on, for the last length. */
    uint32_t length;
    uint64_t at_16, at_24, at_32;
};

/* `sequences` has `count` elements, zero at first, and outlives the writer. The flows must stay
 * below VW_PROBE_MAX_FLOWS. */
void vw_probe_writer_init(struct vw_probe_writer *writer,
                          const struct vw_probe_addresses *addresses, uint16_t run, unsigned first,
                          unsigned step, unsigned count, uint64_t *sequences);

/* Writes the next frame, of VW_PROBE_MIN_FRAME to VW_PROBE_MAX_FRAME bytes; flows in turn. */
void vw_probe_write(struct vw_probe_writer *writer, void *frame, uint32_t length);

/* ---- reading --------------------------------------------------------------------------------- */

/* X(name, text for people) */
#define VW_PROBE_COUNTERS(X)                                                                       \
    X(frames, "probes that arrived intact, duplicates included")                                   \
    X(bytes, "bytes of these")                                                                     \
    X(lost, "probes lost")                                                                         \
    X(reordered, "probes that later ones had overtaken")                                           \
    X(duplicate, "probes that had come before")                                                    \
    X(stale, "probes too late to be told from duplicates")                                         \
    X(corrupt, "probes whose checksum is wrong")                                                   \
    X(foreign, "frames that are no probes")                                                        \
    X(before, "probes sent before the first that came")                                            \
    X(flows, "flows seen")                                                                         \
    X(restarts, "times that a flow's sender started again")

struct vw_probe_counters {
#define VW_PROBE_FIELD(name, text) uint64_t name;
    VW_PROBE_COUNTERS(VW_PROBE_FIELD)
#undef VW_PROBE_FIELD
};

struct vw_probe_flow {
    uint64_t next; /* number expected */
    uint64_t base; /* the lowest number seen: what lies below was never counted as lost */
    uint64_t window[VW_PROBE_WINDOW / 64];
    uint16_t run;
    bool seen;
};

struct vw_stream_reader;

struct vw_probe_reader {
    struct vw_probe_flow *flows;      /* VW_PROBE_FLOW_TABLE elements, zero at first */
    struct vw_stream_reader *streams; /* what is no probe may be of these; NULL: none (stream.h) */
    struct vw_probe_counters counters;
};

/* Checks frames, each in one piece, and counts them. Others may write to a frame meanwhile: what it
 * says is then taken as it was at some time. */
void vw_probe_read_burst(struct vw_probe_reader *reader, const struct iovec *frames,
                         unsigned frame_count);

static inline void vw_probe_read(struct vw_probe_reader *reader, const void *frame, uint32_t length)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)frame, .iov_len = length};

    vw_probe_read_burst(reader, &piece, 1);
}

#endif
