/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/command.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "net/features.h"

static void put(struct vw_net_command *command, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        command->bytes[command->length++] = (uint8_t)(value >> 8 * i);
}

static void put_bytes(struct vw_net_command *command, const void *from, size_t length)
{
    if (length > 0)
        memcpy(command->bytes + command->length, from, length);
    command->length += (uint32_t)length;
}

/* Only what is used of a command is ever written or read. */
static void begin(struct vw_net_command *command, unsigned class, unsigned number, unsigned feature)
{
    command->feature = (uint8_t)feature;
    command->identity = 2;
    command->answer_size = 0;
    command->length = 0;
    put(command, class, 1);
    put(command, number, 1);
}

int vw_net_command_mode(struct vw_net_command *command, unsigned mode, bool on)
{
    if (mode > VIRTIO_NET_CTRL_RX_NOBCAST)
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_RX, mode,
          mode <= VIRTIO_NET_CTRL_RX_ALLMULTI ? VIRTIO_NET_F_CTRL_RX : VIRTIO_NET_F_CTRL_RX_EXTRA);
    put(command, on, 1);
    return 0;
}

int vw_net_command_mac(struct vw_net_command *command, const uint8_t mac[VW_NET_MAC_SIZE])
{
    static const uint8_t zero[VW_NET_MAC_SIZE];

    if ((mac[0] & 1) || memcmp(mac, zero, sizeof(zero)) == 0)
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_F_CTRL_MAC_ADDR);
    put_bytes(command, mac, VW_NET_MAC_SIZE);
    return 0;
}

static int put_macs(struct vw_net_command *command, const uint8_t (*macs)[VW_NET_MAC_SIZE],
                    size_t count, unsigned group)
{
    put(command, count, 4);
    for (size_t i = 0; i < count; i++) {
        if ((macs[i][0] & 1) != group)
            return -EINVAL;
        put_bytes(command, macs[i], VW_NET_MAC_SIZE);
    }
    return 0;
}

int vw_net_command_mac_table(struct vw_net_command *command,
                             const uint8_t (*unicast)[VW_NET_MAC_SIZE], size_t unicast_count,
                             const uint8_t (*multicast)[VW_NET_MAC_SIZE], size_t multicast_count)
{
    const size_t room = (VW_NET_COMMAND_MAX - 2 - 2 * 4) / VW_NET_MAC_SIZE;

    if (unicast_count > room || multicast_count > room - unicast_count)
        return -ENOSPC;
    begin(command, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_F_CTRL_RX);
    int error = put_macs(command, unicast, unicast_count, 0);
    return error ? error : put_macs(command, multicast, multicast_count, 1);
}

int vw_net_command_vlan(struct vw_net_command *command, unsigned vlan, bool add)
{
    if (vlan > 4095)
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_VLAN, add ? VIRTIO_NET_CTRL_VLAN_ADD : VIRTIO_NET_CTRL_VLAN_DEL,
          VIRTIO_NET_F_CTRL_VLAN);
    put(command, vlan, 2);
    command->identity = 4;
    return 0;
}

void vw_net_command_announced(struct vw_net_command *command)
{
    begin(command, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK,
          VIRTIO_NET_F_GUEST_ANNOUNCE);
}

int vw_net_command_pairs(struct vw_net_command *command, unsigned pairs, unsigned max_pairs)
{
    if (pairs < VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN || pairs > max_pairs ||
        pairs > VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX)
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_F_MQ);
    put(command, pairs, 2);
    return 0;
}

/* Types and key, which both hash commands have. Types without a key would all give hash 0. */
static bool hash_possible(const struct vw_net_rss_settings *rss, const struct vw_net_config *config)
{
    return (rss->hash_types & ~config->hash_types) == 0 && rss->key_length <= config->rss_max_key &&
           (rss->hash_types == 0 || rss->key_length > 0);
}

static bool rss_possible(const struct vw_net_rss_settings *rss, const struct vw_net_config *config)
{
    size_t room = (VW_NET_COMMAND_MAX - 2 - 8 - 2 - 1 - UINT8_MAX) / 2;

    if (!hash_possible(rss, config) || !vw_is_power_of_two(rss->table_size) ||
        rss->table_size > room || rss->table_size > config->rss_max_table ||
        rss->unclassified >= config->max_pairs || rss->tx_pairs < 1 ||
        rss->tx_pairs > config->max_pairs)
        return false;
    for (size_t i = 0; i < rss->table_size; i++)
        if (rss->table[i] >= config->max_pairs)
            return false;
    return true;
}

/* Section 5.1.6.5.6: an entry is the number of a receive queue, its virtqueue index shifted by 1.
 */
int vw_net_command_rss(struct vw_net_command *command, const struct vw_net_rss_settings *rss,
                       const struct vw_net_config *config)
{
    if (!rss_possible(rss, config))
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, VIRTIO_NET_F_RSS);
    put(command, rss->hash_types, 4);
    put(command, rss->table_size - 1, 2);
    put(command, rss->unclassified, 2);
    for (size_t i = 0; i < rss->table_size; i++)
        put(command, rss->table[i], 2);
    put(command, rss->tx_pairs, 2);
    put(command, rss->key_length, 1);
    put_bytes(command, rss->key, rss->key_length);
    return 0;
}

int vw_net_command_hash(struct vw_net_command *command, const struct vw_net_rss_settings *rss,
                        const struct vw_net_config *config)
{
    if (!hash_possible(rss, config))
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_HASH_CONFIG, VIRTIO_NET_F_HASH_REPORT);
    put(command, rss->hash_types, 4);
    put(command, 0, 8); /* reserved */
    put(command, rss->key_length, 1);
    put_bytes(command, rss->key, rss->key_length);
    return 0;
}

int vw_net_command_offloads(struct vw_net_command *command, uint64_t offloads, uint64_t negotiated)
{
    if (offloads & ~(negotiated & VW_NET_GUEST_OFFLOADS))
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
          VIRTIO_NET_F_CTRL_GUEST_OFFLOADS);
    put(command, offloads, 8);
    return 0;
}

static void put_limits(struct vw_net_command *command, const struct vw_net_coalescing *limits)
{
    put(command, limits->max_packets, 4);
    put(command, limits->max_usecs, 4);
}

void vw_net_command_coalescing(struct vw_net_command *command, bool transmit,
                               const struct vw_net_coalescing *limits)
{
    begin(command, VIRTIO_NET_CTRL_NOTF_COAL,
          transmit ? VIRTIO_NET_CTRL_NOTF_COAL_TX_SET : VIRTIO_NET_CTRL_NOTF_COAL_RX_SET,
          VIRTIO_NET_F_NOTF_COAL);
    put_limits(command, limits);
}

static int begin_queue(struct vw_net_command *command, unsigned number, unsigned queue)
{
    if (queue > UINT16_MAX)
        return -EINVAL;
    begin(command, VIRTIO_NET_CTRL_NOTF_COAL, number, VIRTIO_NET_F_VQ_NOTF_COAL);
    put(command, queue, 2);
    put(command, 0, 2); /* reserved */
    command->identity = 4;
    return 0;
}

int vw_net_command_queue_coalescing(struct vw_net_command *command, unsigned queue,
                                    const struct vw_net_coalescing *limits)
{
    int error = begin_queue(command, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, queue);

    if (error == 0)
        put_limits(command, limits);
    return error;
}

int vw_net_command_ask_coalescing(struct vw_net_command *command, unsigned queue)
{
    int error = begin_queue(command, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, queue);

    command->answer_size = 8;
    return error;
}

static uint32_t le32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void vw_net_answer_coalescing(const uint8_t *answer, struct vw_net_coalescing *limits)
{
    limits->max_packets = le32(answer);
    limits->max_usecs = le32(answer + 4);
}
