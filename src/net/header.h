/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The virtio-net header that precedes each frame (virtio 1.x, section 5.1.6).
 *
 * Theory of operation
 * -------------------
 * On the wire the header has 10, 12 or 20 bytes, as the negotiated features decide, the same size
 * in both directions. In the program it is a plain structure in host order. The way of a header:
 *
 *   from a guest: gather its bytes into private memory (it may straddle descriptors), decode,
 *   vw_net_header_check, and from then on use only the checked structure: all that a port, a
 *   segmentation engine or another guest relies on holds for it.
 *
 *   to a guest or port: vw_net_header_work tells what must be done in software because the
 *   receiver does not have the offload; after that, encode.
 *
 * Nothing here looks at the frame itself. What gso_type claims about it (that it is TCP over IPv4,
 * say) is for whoever segments the frame to compare.
 */
#ifndef VW_NET_HEADER_H
#define VW_NET_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/uapi.h"

/* The largest header that a feature set of ours can lead to: with HASH_REPORT. */
#define VW_NET_HEADER_MAX 20

#define VW_NET_ETHERNET_HEADER 14

/* The longest frame: Ethernet, one VLAN tag, IPv6, and 65535 bytes (section 5.1.6.3.1). */
#define VW_NET_MAX_FRAME (14 + 4 + 40 + 65535)

/* A datagram with UDP_L4 is cut into at most so many segments: what Linux takes since 6.9. */
#define VW_NET_MAX_UDP_SEGMENTS 128

/* TCP segments are not made smaller than this, whatever gso_size says: as Linux does. */
#define VW_NET_MIN_TCP_SEGMENT 8

struct vw_net_header {
    uint8_t flags;    /* VIRTIO_NET_HDR_F_* */
    uint8_t gso_type; /* VIRTIO_NET_HDR_GSO_* */
    uint16_t hdr_len; /* a hint */
    uint16_t gso_size;
    uint16_t csum_start;
    uint16_t csum_offset;
    uint16_t num_buffers;
    uint32_t hash_value;
    uint16_t hash_report; /* VIRTIO_NET_HASH_REPORT_* */
};

/* Bytes of the header with these negotiated features: 10, 12 or 20. */
unsigned vw_net_header_size(uint64_t features);

/* Decodes `size` (10, 12 or 20) bytes of private memory; fields that such a header lacks are 0. */
void vw_net_header_decode(struct vw_net_header *header, const void *wire, unsigned size);

/* Encodes to `size` (10, 12 or 20) bytes. */
void vw_net_header_encode(const struct vw_net_header *header, void *wire, unsigned size);

/* Why a frame from a guest is refused. Each reason has a counter of its own at the device. */
enum vw_net_header_error {
    VW_NET_HEADER_OK,
    VW_NET_HEADER_FRAME_SHORT,       /* shorter than an Ethernet header */
    VW_NET_HEADER_FRAME_LONG,        /* longer than VW_NET_MAX_FRAME */
    VW_NET_HEADER_CSUM_UNNEGOTIATED, /* NEEDS_CSUM without CSUM */
    VW_NET_HEADER_CSUM_PLACE,        /* checksum's place before the payload or beyond the frame */
    VW_NET_HEADER_GSO_UNKNOWN,       /* a gso_type that does not exist */
    VW_NET_HEADER_GSO_UFO,           /* UFO is never offered */
    VW_NET_HEADER_GSO_TUNNEL,        /* UDP tunnel bits are never offered */
    VW_NET_HEADER_GSO_UNNEGOTIATED,  /* HOST_TSO4, HOST_TSO6 or HOST_USO not accepted */
    VW_NET_HEADER_GSO_NO_CSUM,       /* GSO without NEEDS_CSUM */
    VW_NET_HEADER_GSO_SIZE,          /* gso_size 0 or 0xffff */
    VW_NET_HEADER_GSO_PLACE,         /* transport header before its time or beyond the frame */
    VW_NET_HEADER_GSO_CSUM_OFFSET,   /* not the checksum of TCP or UDP */
    VW_NET_HEADER_GSO_SEGMENTS,      /* UDP_L4: too many segments */
    VW_NET_HEADER_ECN,               /* ECN without TCP, or HOST_ECN not accepted */
    VW_NET_HEADER_ERROR_COUNT,
};

/*
 * Checks a header that a guest sent for a frame of `length` bytes (without the header), given the
 * negotiated features. On VW_NET_HEADER_OK the header is sanitised:
 *   - flags is 0 or NEEDS_CSUM: flags of the receive direction and unknown ones are gone;
 *   - csum_start >= 14 and csum_start + csum_offset + 2 <= length, or both are 0;
 *   - gso_type is NONE, TCPV4, TCPV6 (these two perhaps with ECN) or UDP_L4, with NEEDS_CSUM and a
 *     usable gso_size; a frame that fits into one segment has become NONE with gso_size 0;
 *   - hdr_len reaches over the headers known, and not beyond the frame;
 *   - num_buffers, hash_value and hash_report are 0.
 * Otherwise the header is unchanged.
 */
enum vw_net_header_error vw_net_header_check(struct vw_net_header *header, uint32_t length,
                                             uint64_t features);

/* One phrase for a log line, and one word (lower case, underscores) for a counter's name. */
const char *vw_net_header_error_text(enum vw_net_header_error error);
const char *vw_net_header_error_name(enum vw_net_header_error error);

/*
 * Linux refuses partial checksums that start before the end of the shortest IP header; a frame
 * with such a one is valid all the same, and is to be completed in software before a TAP sees it.
 */
static inline bool vw_net_header_csum_unusual(const struct vw_net_header *header)
{
    return (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) &&
           header->csum_start < VW_NET_ETHERNET_HEADER + 20;
}

/* What a frame needs before a receiver without the offload may have it. */
#define VW_NET_WORK_CHECKSUM 0x1u /* complete the checksum */
#define VW_NET_WORK_SEGMENT 0x2u  /* cut it into segments (whose checksums are then complete) */

/*
 * What must be done to a frame with this (checked, or a port's own) header for a receiver that
 * accepted `features`: for a guest its GUEST_* bits, for a port its CSUM and HOST_* bits.
 */
unsigned vw_net_header_work_for_guest(const struct vw_net_header *header, uint64_t features);
unsigned vw_net_header_work_for_port(const struct vw_net_header *header, uint64_t features);

/* The checksum was completed: the header no longer asks for it. */
void vw_net_header_checksum_done(struct vw_net_header *header);

/*
 * The last step before the header of a frame goes to a guest: clears what the guest did not accept
 * and what no header of ours says (a port's leftovers), sets num_buffers to 1 (section 5.1.6.4.1
 * wants it even without MRG_RXBUF) and the hash to none. `features` are the negotiated ones, with
 * the GUEST_* bits as they are in force.
 */
void vw_net_header_finish_for_guest(struct vw_net_header *header, uint64_t features);

#endif
