/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a receive buffer looks like (virtio 1.x, sections 5.1.6.3 and 5.1.6.3.1).
 *
 * Theory of operation
 * -------------------
 *   small ....... one buffer for the header and 1518 bytes: Ethernet, a VLAN tag and 1500
 *   big ......... a header, the rest of its page, and `pages` whole pages: num + 2 descriptors.
 *                 As many pages as the longest frame needs if the device may send frames to be
 *                 segmented later; otherwise as many as the MTU needs. With MTU 9000 that makes
 *                 five descriptors instead of nineteen, and a ring of 256 without indirect
 *                 descriptors holds 51 buffers instead of 13. (VW_RX_BIG_MAXIMUM: nineteen always.)
 *   mergeable ... a frame takes as many buffers as it needs; they are as long as frames are on
 *                 average, so that memory is not wasted on the rest of each, and on a short ring as
 *                 long as it takes for all of them together to hold the longest frame
 *
 * Pure functions; the caller asks again whenever the MTU in use or the guest offloads in force
 * change, and new buffers have the new shape.
 */
#ifndef VW_DRIVER_SHAPE_H
#define VW_DRIVER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "virtwire/net.h"

#define VW_PAGE 4096u

/* Where the first bytes of a big buffer's frame begin in its first page. A constant, so that the
 * frame is aligned alike with each header size, the largest of which is 20. */
#define VW_BIG_HEADER_ROOM 32u

/* Pages behind the first one for a frame of 64 KiB: as many fragments as a Linux frame has. */
#define VW_BIG_MAX_PAGES 17u

/* 14 of Ethernet, 4 of a VLAN tag, 1500. */
#define VW_SMALL_FRAME 1518u

struct vw_rx_shape {
    enum vw_rx_mode mode; /* never AUTO */
    unsigned header_size;
    unsigned pages;       /* big: behind the first page */
    unsigned descriptors; /* of one buffer's chain: ring entries if it is not indirect */
    uint32_t bytes;       /* of one buffer, its header included. mergeable: at most */
    uint32_t least;       /* mergeable: bytes of a frame that every buffer takes at least */
};

struct vw_rx_situation {
    uint64_t features;       /* negotiated */
    uint64_t guest_offloads; /* GUEST_* bits in force, among them */
    enum vw_rx_mode wanted;
    enum vw_rx_big big;
    unsigned mtu; /* in use */
    unsigned ring_size;
    unsigned header_size;
};

/* Can the device send frames longer than the MTU? */
bool vw_guest_gso(uint64_t guest_offloads);

/* -EINVAL for a wanted mode that the features do not allow: mergeable without MRG_RXBUF, another
 * with it, or buffers in which frames that the device may send have no room. */
int vw_rx_shape_choose(const struct vw_rx_situation *situation, struct vw_rx_shape *shape);

/* Bytes of frame that a buffer of this shape holds. */
uint32_t vw_rx_shape_capacity(const struct vw_rx_shape *shape);

/*
 * Moving average of packet lengths: each new packet counts for 1/64, as in Linux, so that a burst
 * of acknowledgements does not shrink the buffers of a bulk transfer.
 */
struct vw_packet_average {
    uint64_t scaled; /* 64 times the average */
};

static inline void vw_average_add(struct vw_packet_average *average, uint32_t length)
{
    if (average->scaled == 0)
        average->scaled = (uint64_t)length << 6;
    else
        average->scaled += length - (average->scaled >> 6);
}

static inline uint32_t vw_average_read(const struct vw_packet_average *average)
{
    return (uint32_t)(average->scaled >> 6);
}

/* Bytes of the next mergeable buffer, header included: whole cache lines, at most shape->bytes. */
uint32_t vw_rx_mergeable_bytes(const struct vw_rx_shape *shape,
                               const struct vw_packet_average *average);

/* Memory that a buffer of so many bytes is to have. Mergeable ones have two sizes, so that one
 * whose frames grow gets other memory once, not at each step. */
uint32_t vw_rx_shape_memory(const struct vw_rx_shape *shape, uint32_t bytes);

#endif
