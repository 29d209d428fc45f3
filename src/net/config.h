/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration space of a network device (virtio 1.x, section 5.1.4).
 *
 * Theory of operation
 * -------------------
 * The device keeps plain values; the bytes are made whenever somebody reads, so that they are never
 * stale. All of it is read-only, but for the MAC address with a legacy driver. A front-end may ask
 * for any range: what lies behind the end reads as zero.
 */
#ifndef VW_NET_CONFIG_H
#define VW_NET_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "net/uapi.h"

#define VW_NET_CONFIG_SIZE 24
#define VW_NET_MAC_SIZE 6

/* Section 5.1.4.1: at least 40, and at least 128. */
#define VW_NET_RSS_MAX_KEY 40
#define VW_NET_RSS_MAX_TABLE 128

/* All hash types of section 5.1.6.4.3.1 but those of tunnels. */
#define VW_NET_HASH_TYPES 0x1ffu

#define VW_NET_SPEED_UNKNOWN 0xffffffffu
/* Not the reverse, as one paragraph of the specification has it. */
#define VW_NET_DUPLEX_HALF 0
#define VW_NET_DUPLEX_FULL 1
#define VW_NET_DUPLEX_UNKNOWN 0xff

/* Section 5.1.4.1: the limits of what a device may offer as its MTU. */
#define VW_NET_MIN_MTU 68
#define VW_NET_MAX_MTU 65535

struct vw_net_config {
    uint8_t mac[VW_NET_MAC_SIZE];
    bool link_up;
    bool announce;      /* the guest is to announce itself */
    uint16_t max_pairs; /* queue pairs of the device, 1..0x8000 */
    uint16_t mtu;
    uint32_t speed; /* Mb/s, or VW_NET_SPEED_UNKNOWN */
    uint8_t duplex;
    uint8_t rss_max_key;
    uint16_t rss_max_table;
    uint32_t hash_types;
};

/* Sets what a device of ours has: link up, one pair, MTU 1500, speed unknown, full duplex, RSS
 * sizes as above, all hash types. The MAC address stays zero. */
void vw_net_config_init(struct vw_net_config *config);

/* Reads bytes [offset, offset + size) of the space; bytes behind its end are zero. */
void vw_net_config_read(const struct vw_net_config *config, uint32_t offset, uint32_t size,
                        void *to);

/*
 * A driver writes. Allowed is only the MAC address, wholly or in part, if neither VERSION_1 nor
 * CTRL_MAC_ADDR was negotiated; otherwise -EPERM, and nothing changes.
 */
int vw_net_config_write(struct vw_net_config *config, uint64_t features, uint32_t offset,
                        uint32_t size, const void *from);

/*
 * For a driver: takes what a device showed (`size` bytes from the space's start) with the
 * negotiated features. Fields that no feature makes valid get their defaults (link up, one pair,
 * no MTU: 0, speed and duplex unknown); an MTU below 68 counts as none, and a speed out of range as
 * unknown. Returns 0, -ENODATA if a field that a feature promises lies behind `size`, or -EINVAL
 * for values that no device may show: no or too many pairs, a MAC address that is zero or a
 * group's. On failure `config` is unchanged.
 */
int vw_net_config_parse(struct vw_net_config *config, uint64_t features, const void *wire,
                        uint32_t size);

/* Index of the control queue (section 5.1.2): behind the pairs of the device if MQ or RSS was
 * negotiated, whatever their number in use, else 2. */
static inline unsigned vw_net_control_queue_index(uint64_t features, unsigned max_pairs)
{
    bool many =
        (features & (UINT64_C(1) << VIRTIO_NET_F_MQ | UINT64_C(1) << VIRTIO_NET_F_RSS)) != 0;

    return many ? 2 * max_pairs : 2;
}

#endif
