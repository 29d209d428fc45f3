/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/config.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/overflow.h"

static_assert(sizeof(struct virtio_net_config) >= VW_NET_CONFIG_SIZE, "configuration space");

void vw_net_config_init(struct vw_net_config *config)
{
    *config = (struct vw_net_config){
        .link_up = true,
        .max_pairs = 1,
        .mtu = 1500,
        .speed = VW_NET_SPEED_UNKNOWN,
        .duplex = VW_NET_DUPLEX_FULL,
        .rss_max_key = VW_NET_RSS_MAX_KEY,
        .rss_max_table = VW_NET_RSS_MAX_TABLE,
        .hash_types = VW_NET_HASH_TYPES,
    };
}

void vw_net_config_read(const struct vw_net_config *config, uint32_t offset, uint32_t size,
                        void *to)
{
    struct virtio_net_config space = {
        .status = htole16((uint16_t)((config->link_up ? VIRTIO_NET_S_LINK_UP : 0) |
                                     (config->announce ? VIRTIO_NET_S_ANNOUNCE : 0))),
        .max_virtqueue_pairs = htole16(config->max_pairs),
        .mtu = htole16(config->mtu),
        .speed = htole32(config->speed),
        .duplex = config->duplex,
        .rss_max_key_size = config->rss_max_key,
        .rss_max_indirection_table_length = htole16(config->rss_max_table),
        .supported_hash_types = htole32(config->hash_types),
    };
    uint32_t there = offset < VW_NET_CONFIG_SIZE ? VW_NET_CONFIG_SIZE - offset : 0;

    memcpy(space.mac, config->mac, sizeof(space.mac));
    if (there > size)
        there = size;
    if (there > 0)
        memcpy(to, (const char *)&space + offset, there);
    if (size > there)
        memset((char *)to + there, 0, size - there);
}

int vw_net_config_write(struct vw_net_config *config, uint64_t features, uint32_t offset,
                        uint32_t size, const void *from)
{
    /* Sections 5.1.4 and 5.1.4.3: read-only, but for the MAC address of a legacy driver. */
    if (vw_has(features, VIRTIO_F_VERSION_1) || vw_has(features, VIRTIO_NET_F_CTRL_MAC_ADDR))
        return -EPERM;
    if (size == 0 || !vw_range_fits(offset, size, sizeof(config->mac)))
        return -EPERM;
    memcpy(config->mac + offset, from, size);
    return 0;
}

/* Bytes of the space that must be there so that all that the features make valid is. */
static uint32_t space_needed(uint64_t features)
{
    static const struct {
        unsigned feature;
        uint32_t end;
    } fields[] = {
        {VIRTIO_NET_F_MAC, 6},           {VIRTIO_NET_F_STATUS, 8}, {VIRTIO_NET_F_MQ, 10},
        {VIRTIO_NET_F_MTU, 12},          {VIRTIO_NET_F_RSS, 24},   {VIRTIO_NET_F_HASH_REPORT, 24},
        {VIRTIO_NET_F_SPEED_DUPLEX, 17},
    };
    uint32_t needed = 0;

    for (unsigned i = 0; i < VW_ARRAY_SIZE(fields); i++)
        if (vw_has(features, fields[i].feature) && fields[i].end > needed)
            needed = fields[i].end;
    return needed;
}

static bool mac_usable(const uint8_t mac[VW_NET_MAC_SIZE])
{
    static const uint8_t zero[VW_NET_MAC_SIZE];

    return !(mac[0] & 1) && memcmp(mac, zero, sizeof(zero)) != 0;
}

/* The values whose features were negotiated; the others keep what they have. */
static void take_fields(struct vw_net_config *config, uint64_t features,
                        const struct virtio_net_config *space)
{
    if (vw_has(features, VIRTIO_NET_F_MAC))
        memcpy(config->mac, space->mac, sizeof(config->mac));
    if (vw_has(features, VIRTIO_NET_F_STATUS)) {
        config->link_up = le16toh(space->status) & VIRTIO_NET_S_LINK_UP;
        config->announce = le16toh(space->status) & VIRTIO_NET_S_ANNOUNCE;
    }
    if (vw_has(features, VIRTIO_NET_F_MQ) || vw_has(features, VIRTIO_NET_F_RSS))
        config->max_pairs = le16toh(space->max_virtqueue_pairs);
    if (vw_has(features, VIRTIO_NET_F_MTU) && le16toh(space->mtu) >= VW_NET_MIN_MTU)
        config->mtu = le16toh(space->mtu);
    if (vw_has(features, VIRTIO_NET_F_SPEED_DUPLEX)) {
        if (le32toh(space->speed) <= INT32_MAX)
            config->speed = le32toh(space->speed);
        config->duplex = space->duplex;
    }
    if (vw_has(features, VIRTIO_NET_F_RSS))
        config->rss_max_table = le16toh(space->rss_max_indirection_table_length);
    if (vw_has(features, VIRTIO_NET_F_RSS) || vw_has(features, VIRTIO_NET_F_HASH_REPORT)) {
        config->rss_max_key = space->rss_max_key_size;
        config->hash_types = le32toh(space->supported_hash_types);
    }
}

int vw_net_config_parse(struct vw_net_config *config, uint64_t features, const void *wire,
                        uint32_t size)
{
    /* Section 5.1.4.2: what to assume without the features. */
    struct vw_net_config parsed = {
        .link_up = true,
        .max_pairs = 1,
        .speed = VW_NET_SPEED_UNKNOWN,
        .duplex = VW_NET_DUPLEX_UNKNOWN,
    };
    struct virtio_net_config space = {0};

    if (size < space_needed(features))
        return -ENODATA;
    if (size > 0)
        memcpy(&space, wire, vw_min64(size, sizeof(space)));
    take_fields(&parsed, features, &space);
    if (parsed.max_pairs < VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN ||
        parsed.max_pairs > VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX)
        return -EINVAL;
    if (vw_has(features, VIRTIO_NET_F_MAC) && !mac_usable(parsed.mac))
        return -EINVAL;
    *config = parsed;
    return 0;
}
