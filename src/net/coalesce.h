/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merging consecutive frames of a flow into one TSO or USO frame: the reverse of net/segment.h.
 *
 * Theory of operation
 * -------------------
 * The rules are those by which Linux merges received frames (its GRO), and where those differ
 * between kernels, or would lose something, the stricter ones: cutting the merged frame again
 * yields the frames that went in.
 *
 *   each frame ... whole, neither padded nor a fragment; no IP options, no IPv6 extension headers;
 *                  with payload; its checksums right
 *     TCP ........ ACK, perhaps ECE; PSH and FIN end the merge; SYN, RST, URG, CWR: none
 *     UDP ........ with a checksum
 *   two frames ... equal Ethernet addresses, tags, IP addresses, traffic class, TTL or hop limit,
 *                  flow label, ports
 *     IPv4 ....... equal DF; identification counted up by one, or with DF always the same
 *     TCP ........ in sequence; equal acknowledgement, window, flags and options
 *     sizes ...... payloads of equal size; a shorter one ends the merge
 *   in all ....... at most 65535 bytes of IP; of UDP at most 64 datagrams
 *
 * Identifications that are all the same count up after the merged frame is cut. DF says that
 * nobody looks at them (RFC 6864).
 *
 * Headers are read once, into private memory. The checksum of a frame is verified when it has a
 * partner, and not before: that takes a look at all its bytes.
 */
#ifndef VW_NET_COALESCE_H
#define VW_NET_COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/header.h"

/* Two tags, IPv6 and the longest TCP header: 122 bytes. */
#define VW_NET_COALESCE_HEADERS 128

/* What Linux merges at most, and what every Linux cuts. */
#define VW_NET_COALESCE_DATAGRAMS 64

/* A frame that may be merged with others. */
struct vw_net_mergeable {
    uint8_t headers[VW_NET_COALESCE_HEADERS];
    uint32_t payload;
    uint16_t header_length, ip_offset, transport_offset;
    bool ipv6, tcp;
    bool partial; /* the checksum is still to be completed, and so cannot be wrong */
};

/* Frames that were merged so far. */
struct vw_net_merge {
    struct vw_net_mergeable first; /* its headers become those of the merged frame */
    uint32_t count;
    uint32_t payload; /* in all */
    bool closed;      /* it takes no more */
    bool fixed_id;
};

/*
 * Looks into a frame of `length` bytes that starts at the list's first byte, with this (checked)
 * header. True: it may be merged into what a receiver with `features` (CSUM and HOST_*) takes.
 */
bool vw_net_mergeable_look(struct vw_net_mergeable *frame, const struct vw_net_header *header,
                           uint64_t features, const struct iovec *iov, size_t count,
                           uint32_t length);

/* Is the checksum of the same frame right? */
bool vw_net_mergeable_verify(const struct vw_net_mergeable *frame, const struct iovec *iov,
                             size_t count);

/* Starts a merge with its first frame. */
void vw_net_merge_begin(struct vw_net_merge *merge, const struct vw_net_mergeable *first);

/* May this frame, whose checksum is right, follow those merged so far? */
bool vw_net_merge_fits(const struct vw_net_merge *merge, const struct vw_net_mergeable *next);

/* It does: takes it in. */
void vw_net_merge_add(struct vw_net_merge *merge, const struct vw_net_mergeable *next);

/*
 * Ends a merge of two frames or more: makes first.headers (header_length bytes) those of the merged
 * frame, whose payload is those of all frames in turn, and gives its virtio-net header.
 */
void vw_net_merge_finish(struct vw_net_merge *merge, struct vw_net_header *header);

#endif
