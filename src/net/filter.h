/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which received frames a guest wants (virtio 1.x, sections 5.1.6.5.1 to 5.1.6.5.3).
 *
 * Theory of operation
 * -------------------
 * Filtering is best effort: a device may let too much pass, never too little. Without CTRL_RX
 * every address passes, without CTRL_VLAN every tag. With CTRL_VLAN the table starts empty, so
 * that all tagged frames are dropped until the guest adds their VLAN. Promiscuous mode lets
 * everything pass.
 */
#ifndef VW_NET_FILTER_H
#define VW_NET_FILTER_H

#include <stddef.h>

#include "base/bits.h"
#include "net/control.h"

/* Bytes at the start of a frame that the filter looks at. */
#define VW_NET_FILTER_BYTES 18

enum vw_net_verdict {
    VW_NET_PASS,
    VW_NET_DROP_SHORT, /* no whole Ethernet header */
    VW_NET_DROP_MAC,   /* destination address not wanted */
    VW_NET_DROP_VLAN,  /* VLAN not wanted */
    VW_NET_VERDICT_COUNT,
};

/* Can this state drop any frame at all? If not, the device need not look. */
static inline bool vw_net_filter_active(const struct vw_net_control_state *state)
{
    return !state->promiscuous && (vw_has(state->features, VIRTIO_NET_F_CTRL_RX) ||
                                   vw_has(state->features, VIRTIO_NET_F_CTRL_VLAN));
}

/*
 * Decides about a frame whose first min(its length, VW_NET_FILTER_BYTES) bytes, `length` in
 * number, are at `data`.
 */
enum vw_net_verdict vw_net_filter(const struct vw_net_control_state *state, const uint8_t *data,
                                  size_t length);

#endif
