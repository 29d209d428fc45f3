/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/hash.h"

#include <string.h>

/* The 32 bits of the key that start at bit `bit`. */
static uint32_t key_window(const uint8_t key[VW_NET_RSS_MAX_KEY], unsigned bit)
{
    uint64_t five = 0;

    for (unsigned i = 0; i < 5; i++)
        five = five << 8 | key[bit / 8 + i];
    return (uint32_t)(five >> (8 - bit % 8));
}

void vw_net_toeplitz_init(struct vw_net_toeplitz *toeplitz, const uint8_t *key, unsigned length)
{
    uint8_t padded[VW_NET_RSS_MAX_KEY] = {0};

    static_assert(VW_NET_RSS_MAX_KEY == VW_NET_HASH_INPUT + 4, "each window lies in the key");
    if (length > 0)
        memcpy(padded, key, length < sizeof(padded) ? length : sizeof(padded));
    for (unsigned place = 0; place < 2 * VW_NET_HASH_INPUT; place++) {
        for (unsigned value = 0; value < 16; value++) {
            uint32_t hash = 0;

            for (unsigned bit = 0; bit < 4; bit++)
                if (value & 8u >> bit)
                    hash ^= key_window(padded, 4 * place + bit);
            toeplitz->table[place][value] = hash;
        }
    }
}

uint32_t vw_net_toeplitz(const struct vw_net_toeplitz *toeplitz, const uint8_t *input,
                         unsigned length)
{
    uint32_t hash = 0;

    if (length > VW_NET_HASH_INPUT)
        length = VW_NET_HASH_INPUT;
    for (unsigned i = 0; i < length; i++)
        hash ^= toeplitz->table[2 * i][input[i] >> 4] ^ toeplitz->table[2 * i + 1][input[i] & 15];
    return hash;
}

/* Is the type that hash_report `report` stands for enabled? */
static bool enabled(uint32_t hash_types, unsigned report)
{
    return hash_types >> (report - 1) & 1;
}

/* Section 5.1.6.4.3.2: TCP first, else UDP, else the addresses. 0 for none. */
static uint16_t choose_ipv4(uint32_t hash_types, const struct vw_net_packet *packet)
{
    if (packet->transport == VW_NET_TRANSPORT_TCP &&
        enabled(hash_types, VIRTIO_NET_HASH_REPORT_TCPv4))
        return VIRTIO_NET_HASH_REPORT_TCPv4;
    if (packet->transport == VW_NET_TRANSPORT_UDP &&
        enabled(hash_types, VIRTIO_NET_HASH_REPORT_UDPv4))
        return VIRTIO_NET_HASH_REPORT_UDPv4;
    if (enabled(hash_types, VIRTIO_NET_HASH_REPORT_IPv4))
        return VIRTIO_NET_HASH_REPORT_IPv4;
    return VIRTIO_NET_HASH_REPORT_NONE;
}

/*
 * Sections 5.1.6.4.3.3 and 5.1.6.4.3.4: the _EX types are for frames with extension headers, which
 * without an _EX type that fits are hashed as if they had none.
 */
static uint16_t choose_ipv6(uint32_t hash_types, const struct vw_net_packet *packet)
{
    bool tcp = packet->transport == VW_NET_TRANSPORT_TCP;
    bool udp = packet->transport == VW_NET_TRANSPORT_UDP;

    if (packet->extended) {
        if (tcp && enabled(hash_types, VIRTIO_NET_HASH_REPORT_TCPv6_EX))
            return VIRTIO_NET_HASH_REPORT_TCPv6_EX;
        if (udp && enabled(hash_types, VIRTIO_NET_HASH_REPORT_UDPv6_EX))
            return VIRTIO_NET_HASH_REPORT_UDPv6_EX;
        if (enabled(hash_types, VIRTIO_NET_HASH_REPORT_IPv6_EX))
            return VIRTIO_NET_HASH_REPORT_IPv6_EX;
    }
    if (tcp && enabled(hash_types, VIRTIO_NET_HASH_REPORT_TCPv6))
        return VIRTIO_NET_HASH_REPORT_TCPv6;
    if (udp && enabled(hash_types, VIRTIO_NET_HASH_REPORT_UDPv6))
        return VIRTIO_NET_HASH_REPORT_UDPv6;
    if (enabled(hash_types, VIRTIO_NET_HASH_REPORT_IPv6))
        return VIRTIO_NET_HASH_REPORT_IPv6;
    return VIRTIO_NET_HASH_REPORT_NONE;
}

static bool report_has_ports(uint16_t report)
{
    return report != VIRTIO_NET_HASH_REPORT_IPv4 && report != VIRTIO_NET_HASH_REPORT_IPv6 &&
           report != VIRTIO_NET_HASH_REPORT_IPv6_EX;
}

struct vw_net_hash vw_net_hash_frame(const struct vw_net_toeplitz *toeplitz, uint32_t hash_types,
                                     const struct vw_net_packet *packet, const uint8_t *data)
{
    struct vw_net_hash hash = {.report = VIRTIO_NET_HASH_REPORT_NONE};
    unsigned address = packet->ip_version == 4 ? 4 : 16;
    unsigned length = 2 * address;
    uint8_t input[VW_NET_HASH_INPUT];
    bool mobile;

    if (packet->ip_version == 4)
        hash.report = choose_ipv4(hash_types, packet);
    else if (packet->ip_version == 6)
        hash.report = choose_ipv6(hash_types, packet);
    if (hash.report == VIRTIO_NET_HASH_REPORT_NONE)
        return hash;
    mobile = hash.report >= VIRTIO_NET_HASH_REPORT_IPv6_EX;
    memcpy(input, data + (mobile ? packet->home_source : packet->source), address);
    memcpy(input + address, data + (mobile ? packet->routed_destination : packet->destination),
           address);
    if (report_has_ports(hash.report)) {
        memcpy(input + length, data + packet->ports, 4);
        length += 4;
    }
    hash.value = vw_net_toeplitz(toeplitz, input, length);
    return hash;
}
