/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cutting a TSO or USO frame into the frames that go over the wire (virtio 1.x, section 5.1.6.2).
 *
 * Theory of operation
 * -------------------
 * A frame with a gso_type is one set of headers and a payload of many segments. Each segment gets
 * the headers again, changed where segments differ, and its part of the payload:
 *
 *   IPv4 .. total length, identification counted up, header checksum
 *   IPv6 .. payload length; extension headers as they are
 *   TCP ... sequence number; FIN and PSH on the last segment only, CWR on the first only; checksum
 *   UDP ... length, checksum (0 becomes 0xffff: RFC 768)
 *
 * The headers are copied to private memory once, checked there, and made anew from that copy: a
 * guest may change them meanwhile, and harms only its own payload. The payload is not copied: a
 * segment is a list of pieces of the original frame. Pseudo-headers are summed up from the
 * addresses, so the partial checksum that a guest wrote need not be right.
 */
#ifndef VW_NET_SEGMENT_H
#define VW_NET_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/header.h"

/* The longest headers, Ethernet to TCP, of a frame that is cut. With two tags and all options that
 * IPv4 and TCP can have they are 142 bytes long; the rest is for IPv6's extension headers. */
#define VW_NET_SEGMENT_HEADERS 256

struct vw_net_segmenter {
    uint8_t headers[VW_NET_SEGMENT_HEADERS];
    uint32_t header_length; /* of the frame and of each segment */
    uint32_t payload;       /* bytes behind the headers */
    uint32_t size;          /* of them in each segment, the last one excepted */
    uint32_t index, count;  /* the segment in turn, and how many there are */
    uint16_t ip_offset, transport_offset;
    uint16_t pseudo_sum; /* of the addresses and the protocol, without the length */
    bool ipv6, tcp;
    const struct iovec *iov; /* where the payload of the segment in turn starts */
    size_t iov_count, iov_offset;
};

/*
 * Begins to cut the frame of `length` bytes that starts at the list's first byte and has this
 * (checked, or a port's own) header with a gso_type other than NONE. The list must stay as it is.
 * Returns 0, or -EINVAL if the frame is not what its header says, or has more headers than
 * VW_NET_SEGMENT_HEADERS.
 */
int vw_net_segment_begin(struct vw_net_segmenter *segmenter, const struct vw_net_header *header,
                         const struct iovec *iov, size_t count, uint32_t length);

/* Are there segments left? */
static inline bool vw_net_segment_left(const struct vw_net_segmenter *segmenter)
{
    return segmenter->index < segmenter->count;
}

/*
 * Makes the segment in turn: writes its headers, header_length bytes, to `headers`, and the pieces
 * of its payload to pieces[0 .. room). `*pieces_used` says how many. Returns the segment's bytes,
 * headers included, or 0 if there are more pieces than `room`.
 */
uint32_t vw_net_segment_make(const struct vw_net_segmenter *segmenter, uint8_t *headers,
                             struct iovec *pieces, size_t room, size_t *pieces_used);

/* The segment in turn is done with. */
void vw_net_segment_next(struct vw_net_segmenter *segmenter);

#endif
