/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * <linux/virtio_net.h>, and the constants of virtio-net that older kernel headers lack.
 *
 * Each constant is defined only if the header does not have it; the assertions at the end hold
 * with any header, so that a wrong number here, or a surprise there, does not compile.
 */
#ifndef VW_NET_UAPI_H
#define VW_NET_UAPI_H

#include <assert.h>
#include <stddef.h>

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>

/* Section 6, reserved (device-independent) feature bits. */
#ifndef VIRTIO_F_NOTIFICATION_DATA
#define VIRTIO_F_NOTIFICATION_DATA 38
#endif
#ifndef VIRTIO_F_NOTIF_CONFIG_DATA
#define VIRTIO_F_NOTIF_CONFIG_DATA 39
#endif

/* Section 5.1.3, feature bits of network devices. */
#ifndef VIRTIO_NET_F_DEVICE_STATS
#define VIRTIO_NET_F_DEVICE_STATS 50
#endif
#ifndef VIRTIO_NET_F_HASH_TUNNEL
#define VIRTIO_NET_F_HASH_TUNNEL 51
#endif
#ifndef VIRTIO_NET_F_VQ_NOTF_COAL
#define VIRTIO_NET_F_VQ_NOTF_COAL 52
#endif
#ifndef VIRTIO_NET_F_NOTF_COAL
#define VIRTIO_NET_F_NOTF_COAL 53
#endif
#ifndef VIRTIO_NET_F_GUEST_USO4
#define VIRTIO_NET_F_GUEST_USO4 54
#endif
#ifndef VIRTIO_NET_F_GUEST_USO6
#define VIRTIO_NET_F_GUEST_USO6 55
#endif
#ifndef VIRTIO_NET_F_HOST_USO
#define VIRTIO_NET_F_HOST_USO 56
#endif
#ifndef VIRTIO_NET_F_GUEST_HDRLEN
#define VIRTIO_NET_F_GUEST_HDRLEN 59
#endif

/* Section 5.1.6.5.9, notification coalescing. */
#ifndef VIRTIO_NET_CTRL_NOTF_COAL
#define VIRTIO_NET_CTRL_NOTF_COAL 6
#define VIRTIO_NET_CTRL_NOTF_COAL_TX_SET 0
#define VIRTIO_NET_CTRL_NOTF_COAL_RX_SET 1
#endif
#ifndef VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET 2
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET 3
#endif

/* Section 5.1.6, packet header. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 0x20
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6 0x40
#endif

static_assert(VIRTIO_RING_F_INDIRECT_DESC == 28, "feature bit");
static_assert(VIRTIO_RING_F_EVENT_IDX == 29, "feature bit");
static_assert(VIRTIO_F_RING_RESET == 40, "feature bit");
static_assert(VIRTIO_F_NOTIFICATION_DATA == 38, "feature bit");
static_assert(VIRTIO_F_NOTIF_CONFIG_DATA == 39, "feature bit");
static_assert(VIRTIO_NET_F_MTU == 3, "feature bit: some old headers say 25");
static_assert(VIRTIO_NET_F_DEVICE_STATS == 50, "feature bit");
static_assert(VIRTIO_NET_F_HASH_TUNNEL == 51, "feature bit");
static_assert(VIRTIO_NET_F_VQ_NOTF_COAL == 52, "feature bit");
static_assert(VIRTIO_NET_F_NOTF_COAL == 53, "feature bit");
static_assert(VIRTIO_NET_CTRL_NOTF_COAL == 6, "command class");
static_assert(VIRTIO_NET_CTRL_NOTF_COAL_TX_SET == 0, "command");
static_assert(VIRTIO_NET_CTRL_NOTF_COAL_RX_SET == 1, "command");
static_assert(VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET == 2, "command");
static_assert(VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET == 3, "command");
static_assert(VIRTIO_NET_F_GUEST_USO4 == 54, "feature bit");
static_assert(VIRTIO_NET_F_GUEST_USO6 == 55, "feature bit");
static_assert(VIRTIO_NET_F_HOST_USO == 56, "feature bit");
static_assert(VIRTIO_NET_F_GUEST_HDRLEN == 59, "feature bit");
static_assert(VIRTIO_NET_HDR_GSO_UDP_L4 == 5, "gso_type");
static_assert(sizeof(struct virtio_net_hdr) == 10, "packet header");
static_assert(sizeof(struct virtio_net_hdr_v1) == 12, "packet header");
static_assert(sizeof(struct virtio_net_hdr_v1_hash) == 20, "packet header");
static_assert(offsetof(struct virtio_net_config, status) == 6, "configuration space");
static_assert(offsetof(struct virtio_net_config, mtu) == 10, "configuration space");
static_assert(offsetof(struct virtio_net_config, speed) == 12, "configuration space");
static_assert(offsetof(struct virtio_net_config, rss_max_key_size) == 17, "configuration space");
static_assert(offsetof(struct virtio_net_config, supported_hash_types) == 20,
              "configuration space");

#endif
