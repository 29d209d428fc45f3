/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/coalesce.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/bits.h"
#include "base/iov.h"
#include "net/checksum.h"
#include "net/uapi.h"
#include "net/wire.h"

#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_VLAN 0x8100
#define TYPE_SERVICE_VLAN 0x88a8
#define MAX_TAGS 2

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

#define IPV4_DF 0x4000
#define MAX_IP 65535

/* Flags that the frames of a merge may have, and those that end it. */
#define FLAGS_ALLOWED (VW_TCP_ACK | VW_TCP_ECE | FLAGS_LAST)
#define FLAGS_LAST (VW_TCP_FIN | VW_TCP_PSH)

static bool look_ipv4(struct vw_net_mergeable *frame, uint32_t copied, uint32_t length)
{
    const uint8_t *ip = frame->headers + frame->ip_offset;

    if ((uint32_t)frame->ip_offset + VW_IPV4_HEADER > copied || ip[0] != 0x45)
        return false;
    if (vw_get_be16(ip + 2) != length - frame->ip_offset || (vw_get_be16(ip + 6) & ~IPV4_DF) != 0 ||
        vw_net_sum(ip, VW_IPV4_HEADER) != 0xffff)
        return false;
    frame->transport_offset = (uint16_t)(frame->ip_offset + VW_IPV4_HEADER);
    frame->tcp = ip[9] == PROTOCOL_TCP;
    return frame->tcp || ip[9] == PROTOCOL_UDP;
}

static bool look_ipv6(struct vw_net_mergeable *frame, uint32_t copied, uint32_t length)
{
    const uint8_t *ip = frame->headers + frame->ip_offset;

    if ((uint32_t)frame->ip_offset + VW_IPV6_HEADER > copied || ip[0] >> 4 != 6)
        return false;
    if (vw_get_be16(ip + 4) != length - frame->ip_offset - VW_IPV6_HEADER)
        return false;
    frame->transport_offset = (uint16_t)(frame->ip_offset + VW_IPV6_HEADER);
    frame->tcp = ip[6] == PROTOCOL_TCP;
    return frame->tcp || ip[6] == PROTOCOL_UDP;
}

static bool look_ip(struct vw_net_mergeable *frame, uint32_t copied, uint32_t length)
{
    uint32_t at = VW_NET_ETHERNET_HEADER;
    uint16_t type = vw_get_be16(frame->headers + at - 2);

    for (unsigned tags = 0; type == TYPE_VLAN || type == TYPE_SERVICE_VLAN; tags++, at += 4) {
        if (tags == MAX_TAGS || at + 4 > copied)
            return false;
        type = vw_get_be16(frame->headers + at + 2);
    }
    frame->ip_offset = (uint16_t)at;
    frame->ipv6 = type == TYPE_IPV6;
    if (frame->ipv6)
        return look_ipv6(frame, copied, length);
    return type == TYPE_IPV4 && look_ipv4(frame, copied, length);
}

static bool look_tcp(struct vw_net_mergeable *frame, uint32_t copied)
{
    const uint8_t *tcp = frame->headers + frame->transport_offset;

    if ((uint32_t)frame->transport_offset + VW_TCP_HEADER > copied ||
        vw_tcp_header_length(tcp) < VW_TCP_HEADER)
        return false;
    frame->header_length = (uint16_t)(frame->transport_offset + vw_tcp_header_length(tcp));
    return (tcp[13] & VW_TCP_ACK) != 0 && (tcp[13] & ~FLAGS_ALLOWED) == 0;
}

static bool look_udp(struct vw_net_mergeable *frame, uint32_t copied, uint32_t length)
{
    const uint8_t *udp = frame->headers + frame->transport_offset;

    if ((uint32_t)frame->transport_offset + VW_UDP_HEADER > copied)
        return false;
    frame->header_length = (uint16_t)(frame->transport_offset + VW_UDP_HEADER);
    return vw_get_be16(udp + 4) == length - frame->transport_offset &&
           (udp[6] | udp[7]) != 0; /* 0: there is none, and after the merge there would be one */
}

/* Does the receiver take what such frames are merged into? */
static bool is_taken(const struct vw_net_mergeable *frame, uint64_t features)
{
    unsigned feature = !frame->tcp   ? VIRTIO_NET_F_HOST_USO
                       : frame->ipv6 ? VIRTIO_NET_F_HOST_TSO6
                                     : VIRTIO_NET_F_HOST_TSO4;

    return vw_has(features, VIRTIO_NET_F_CSUM) && vw_has(features, feature);
}

static uint16_t checksum_place(const struct vw_net_mergeable *frame)
{
    return frame->tcp ? VW_TCP_CHECKSUM : VW_UDP_CHECKSUM;
}

bool vw_net_mergeable_look(struct vw_net_mergeable *frame, const struct vw_net_header *header,
                           uint64_t features, const struct iovec *iov, size_t count,
                           uint32_t length)
{
    if (header->gso_type != VIRTIO_NET_HDR_GSO_NONE)
        return false;
    uint32_t copied = (uint32_t)vw_iov_read(iov, count, 0, frame->headers,
                                            vw_min64(length, VW_NET_COALESCE_HEADERS));
    if (copied < VW_NET_ETHERNET_HEADER || !look_ip(frame, copied, length) ||
        !is_taken(frame, features))
        return false;
    if (!(frame->tcp ? look_tcp(frame, copied) : look_udp(frame, copied, length)))
        return false;
    if (frame->header_length > copied || frame->header_length >= length)
        return false;
    frame->payload = length - frame->header_length;
    frame->partial = (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0;
    return !frame->partial || (header->csum_start == frame->transport_offset &&
                               header->csum_offset == checksum_place(frame));
}

/* Sum of the pseudo-header for `length` bytes of transport header and payload. */
static uint16_t sum_pseudo(const struct vw_net_mergeable *frame, uint32_t length)
{
    const uint8_t *ip = frame->headers + frame->ip_offset;
    uint16_t sum = frame->ipv6 ? vw_net_sum(ip + 8, 32) : vw_net_sum(ip + 12, 8);

    sum = vw_net_sum_add(sum, 0, htons(frame->tcp ? PROTOCOL_TCP : PROTOCOL_UDP));
    return vw_net_sum_add(sum, 0, htons((uint16_t)length));
}

bool vw_net_mergeable_verify(const struct vw_net_mergeable *frame, const struct iovec *iov,
                             size_t count)
{
    uint32_t header = (uint32_t)frame->header_length - frame->transport_offset; /* even */

    if (frame->partial)
        return true;
    uint16_t sum = sum_pseudo(frame, header + frame->payload);
    sum = vw_net_sum_add(sum, 0, vw_net_sum(frame->headers + frame->transport_offset, header));
    sum = vw_net_sum_add(sum, 0, vw_net_sum_iov(iov, count, frame->header_length, frame->payload));
    return sum == 0xffff;
}

void vw_net_merge_begin(struct vw_net_merge *merge, const struct vw_net_mergeable *first)
{
    const uint8_t *transport = first->headers + first->transport_offset;

    merge->first = *first;
    merge->count = 1;
    merge->payload = first->payload;
    merge->closed = first->tcp && (transport[13] & FLAGS_LAST) != 0;
    merge->fixed_id = false;
}

static bool fits_ip(const struct vw_net_merge *merge, const uint8_t *first, const uint8_t *next)
{
    if (merge->first.ipv6) /* all but the payload length */
        return memcmp(first, next, 4) == 0 && memcmp(first + 6, next + 6, 34) == 0;
    if (memcmp(first, next, 2) != 0 || memcmp(first + 6, next + 6, 4) != 0 ||
        memcmp(first + 12, next + 12, 8) != 0)
        return false;
    uint16_t distance = (uint16_t)(vw_get_be16(next + 4) - vw_get_be16(first + 4));
    if (merge->count == 1 && distance == 0)
        return (vw_get_be16(first + 6) & IPV4_DF) != 0;
    return distance == (merge->fixed_id ? 0 : merge->count);
}

static bool fits_tcp(const struct vw_net_merge *merge, const uint8_t *first, const uint8_t *next)
{
    uint32_t options = vw_tcp_header_length(first) - VW_TCP_HEADER;

    return memcmp(first, next, 4) == 0 &&
           vw_get_be32(next + 4) == vw_get_be32(first + 4) + merge->payload &&
           memcmp(first + 8, next + 8, 5) == 0 && ((first[13] ^ next[13]) & ~FLAGS_LAST) == 0 &&
           memcmp(first + 14, next + 14, 2) == 0 && memcmp(first + 18, next + 18, 2) == 0 &&
           memcmp(first + VW_TCP_HEADER, next + VW_TCP_HEADER, options) == 0;
}

static bool fits_size(const struct vw_net_merge *merge, const struct vw_net_mergeable *next)
{
    uint32_t start = merge->first.ip_offset + (merge->first.ipv6 ? VW_IPV6_HEADER : 0u);

    return next->payload <= merge->first.payload &&
           merge->first.header_length - start + merge->payload + next->payload <= MAX_IP &&
           (merge->first.tcp || merge->count < VW_NET_COALESCE_DATAGRAMS);
}

bool vw_net_merge_fits(const struct vw_net_merge *merge, const struct vw_net_mergeable *next)
{
    const struct vw_net_mergeable *first = &merge->first;

    if (merge->closed || first->header_length != next->header_length ||
        first->ip_offset != next->ip_offset || first->ipv6 != next->ipv6 ||
        first->tcp != next->tcp || !fits_size(merge, next))
        return false;
    if (memcmp(first->headers, next->headers, first->ip_offset) != 0 ||
        !fits_ip(merge, first->headers + first->ip_offset, next->headers + first->ip_offset))
        return false;
    const uint8_t *transport = first->headers + first->transport_offset;
    const uint8_t *other = next->headers + first->transport_offset;
    return first->tcp ? fits_tcp(merge, transport, other) : memcmp(transport, other, 4) == 0;
}

void vw_net_merge_add(struct vw_net_merge *merge, const struct vw_net_mergeable *next)
{
    struct vw_net_mergeable *first = &merge->first;
    uint8_t last = 0;

    if (!first->ipv6 && merge->count == 1)
        merge->fixed_id = memcmp(first->headers + first->ip_offset + 4,
                                 next->headers + first->ip_offset + 4, 2) == 0;
    if (first->tcp) {
        last = next->headers[first->transport_offset + 13] & FLAGS_LAST;
        first->headers[first->transport_offset + 13] |= last;
    }
    merge->closed = last != 0 || next->payload < first->payload;
    merge->payload += next->payload;
    merge->count++;
}

void vw_net_merge_finish(struct vw_net_merge *merge, struct vw_net_header *header)
{
    struct vw_net_mergeable *first = &merge->first;
    uint8_t *ip = first->headers + first->ip_offset;
    uint8_t *transport = first->headers + first->transport_offset;
    uint32_t length = first->header_length - first->transport_offset + merge->payload;
    uint16_t sum = sum_pseudo(first, length);

    if (first->ipv6) {
        vw_put_be16(ip + 4, (uint16_t)length);
    } else {
        vw_put_be16(ip + 2, (uint16_t)(length + VW_IPV4_HEADER));
        vw_ipv4_set_checksum(ip);
    }
    if (!first->tcp)
        vw_put_be16(transport + 4, (uint16_t)length);
    memcpy(transport + checksum_place(first), &sum, sizeof(sum));

    *header = (struct vw_net_header){
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = !first->tcp   ? VIRTIO_NET_HDR_GSO_UDP_L4
                    : first->ipv6 ? VIRTIO_NET_HDR_GSO_TCPV6
                                  : VIRTIO_NET_HDR_GSO_TCPV4,
        .hdr_len = first->header_length,
        .gso_size = (uint16_t)first->payload,
        .csum_start = first->transport_offset,
        .csum_offset = checksum_place(first),
    };
}
