/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver/shape.h"

#include <errno.h>

#include "base/bits.h"
#include "net/features.h"

#define ETHERNET_AND_TAG 18u

bool vw_guest_gso(uint64_t offloads)
{
    /* Linux asks for both USO bits; one is enough for a device to send such frames. */
    return vw_has(offloads, VIRTIO_NET_F_GUEST_TSO4) || vw_has(offloads, VIRTIO_NET_F_GUEST_TSO6) ||
           vw_has(offloads, VIRTIO_NET_F_GUEST_ECN) || vw_has(offloads, VIRTIO_NET_F_GUEST_UFO) ||
           vw_has(offloads, VIRTIO_NET_F_GUEST_USO4) || vw_has(offloads, VIRTIO_NET_F_GUEST_USO6);
}

static unsigned divide_up(unsigned a, unsigned b)
{
    return (a + b - 1) / b;
}

static enum vw_rx_mode choose_mode(const struct vw_rx_situation *situation)
{
    if (situation->wanted != VW_RX_AUTO)
        return situation->wanted;
    if (vw_has(situation->features, VIRTIO_NET_F_MRG_RXBUF))
        return VW_RX_MERGEABLE;
    return vw_guest_gso(situation->guest_offloads) || situation->mtu > 1500 ? VW_RX_BIG
                                                                            : VW_RX_SMALL;
}

static void shape_small(struct vw_rx_shape *shape)
{
    shape->descriptors = 1;
    shape->bytes = shape->header_size + VW_SMALL_FRAME;
}

/*
 * The first page's rest takes more than Ethernet and tag need, so that pages for the MTU alone are
 * enough. No chain may be longer than its ring (2.7.5.3.1): where the ring is that short, the last
 * descriptor has all pages that are left.
 */
static void shape_big(struct vw_rx_shape *shape, const struct vw_rx_situation *situation)
{
    bool longest = situation->big == VW_RX_BIG_MAXIMUM || vw_guest_gso(situation->guest_offloads);

    shape->pages = longest ? VW_BIG_MAX_PAGES : divide_up(situation->mtu, VW_PAGE);
    if (shape->pages > VW_BIG_MAX_PAGES)
        shape->pages = VW_BIG_MAX_PAGES;
    shape->descriptors = shape->pages + 2;
    if (shape->descriptors > situation->ring_size)
        shape->descriptors = situation->ring_size;
    shape->bytes = shape->header_size + (shape->pages + 1) * VW_PAGE - VW_BIG_HEADER_ROOM;
}

/* Whole cache lines, an odd number of them, so that the headers of a row of buffers do not all fall
 * into the same few sets of the cache. */
static uint32_t odd_lines(uint32_t bytes)
{
    return ((bytes + VW_CACHE_LINE - 1) / VW_CACHE_LINE | 1) * VW_CACHE_LINE;
}

/* So long that a ring full of them takes the longest frame: on a short ring more than a page. */
static void shape_mergeable(struct vw_rx_shape *shape, const struct vw_rx_situation *situation)
{
    unsigned longest = vw_guest_gso(situation->guest_offloads) ? 65535 : situation->mtu;
    unsigned each =
        divide_up(shape->header_size + ETHERNET_AND_TAG + longest, situation->ring_size);

    shape->descriptors = 1;
    shape->least = each > shape->header_size ? each - shape->header_size : 0;
    if (shape->least < VW_SMALL_FRAME)
        shape->least = VW_SMALL_FRAME;
    shape->bytes = odd_lines(shape->header_size + shape->least);
    if (shape->bytes < VW_PAGE)
        shape->bytes = VW_PAGE;
}

int vw_rx_shape_choose(const struct vw_rx_situation *situation, struct vw_rx_shape *shape)
{
    bool mergeable = vw_has(situation->features, VIRTIO_NET_F_MRG_RXBUF);

    *shape =
        (struct vw_rx_shape){.mode = choose_mode(situation), .header_size = situation->header_size};
    if ((shape->mode == VW_RX_MERGEABLE) != mergeable || situation->ring_size == 0)
        return -EINVAL;
    switch (shape->mode) {
    case VW_RX_SMALL:
        shape_small(shape);
        return vw_guest_gso(situation->guest_offloads) || situation->mtu > 1500 ? -EINVAL : 0;
    case VW_RX_BIG:
        shape_big(shape, situation);
        return situation->ring_size < 3 ? -EINVAL : 0;
    case VW_RX_MERGEABLE:
        shape_mergeable(shape, situation);
        return 0;
    default:
        return -EINVAL;
    }
}

uint32_t vw_rx_shape_capacity(const struct vw_rx_shape *shape)
{
    return shape->bytes - shape->header_size;
}

uint32_t vw_rx_mergeable_bytes(const struct vw_rx_shape *shape,
                               const struct vw_packet_average *average)
{
    uint32_t frame = vw_average_read(average);
    uint32_t bytes = odd_lines(shape->header_size + (frame < shape->least ? shape->least : frame));

    return bytes < shape->bytes ? bytes : shape->bytes;
}

uint32_t vw_rx_shape_memory(const struct vw_rx_shape *shape, uint32_t bytes)
{
    switch (shape->mode) {
    case VW_RX_BIG:
        return (shape->pages + 1) * VW_PAGE;
    case VW_RX_MERGEABLE: {
        uint32_t usual = odd_lines(shape->header_size + shape->least);

        return bytes <= usual ? usual : odd_lines(shape->bytes);
    }
    default:
        return odd_lines(bytes);
    }
}
