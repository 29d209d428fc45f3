/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/segment.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/iov.h"
#include "net/checksum.h"
#include "net/dissect.h"
#include "net/wire.h"

static uint32_t payload_of(const struct vw_net_segmenter *segmenter)
{
    uint32_t left = segmenter->payload - segmenter->index * segmenter->size;

    return left < segmenter->size ? left : segmenter->size;
}

/* Sum of the pseudo-header without its length: RFC 9293, section 3.1, and RFC 8200, section 8.1. */
static uint16_t sum_pseudo(const struct vw_net_packet *packet, const uint8_t *headers)
{
    size_t size = packet->ip_version == 4 ? 4 : 16;
    uint16_t sum = vw_net_sum(headers + packet->home_source, size);

    sum = vw_net_sum_add(sum, 0, vw_net_sum(headers + packet->routed_destination, size));
    return vw_net_sum_add(sum, 0, htons(packet->protocol));
}

/* Is the frame of the kind that gso_type says, with its transport header where csum_start says? */
static bool is_as_told(const struct vw_net_packet *packet, const struct vw_net_header *header)
{
    if (packet->transport_offset != header->csum_start)
        return false;
    switch (header->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return packet->ip_version == 4 && packet->transport == VW_NET_TRANSPORT_TCP;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        return packet->ip_version == 6 && packet->transport == VW_NET_TRANSPORT_TCP;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        return packet->transport == VW_NET_TRANSPORT_UDP;
    default:
        return false;
    }
}

/* Bytes up to the end of the transport header; 0 if they are not all there. */
static uint32_t find_header_length(const struct vw_net_packet *packet, const uint8_t *headers,
                                   size_t copied)
{
    size_t at = packet->transport_offset;
    uint32_t length = VW_UDP_HEADER;

    if (packet->transport == VW_NET_TRANSPORT_TCP) {
        if (at + VW_TCP_HEADER > copied)
            return 0;
        length = vw_tcp_header_length(headers + at);
        if (length < VW_TCP_HEADER)
            return 0;
    }
    return at + length <= copied ? (uint32_t)at + length : 0;
}

int vw_net_segment_begin(struct vw_net_segmenter *segmenter, const struct vw_net_header *header,
                         const struct iovec *iov, size_t count, uint32_t length)
{
    struct vw_net_packet packet;
    size_t copied =
        vw_iov_read(iov, count, 0, segmenter->headers, vw_min64(length, VW_NET_SEGMENT_HEADERS));

    vw_net_dissect_tagged(&packet, segmenter->headers, copied);
    if (!is_as_told(&packet, header) || header->gso_size == 0)
        return -EINVAL;
    uint32_t header_length = find_header_length(&packet, segmenter->headers, copied);
    if (header_length == 0)
        return -EINVAL;

    segmenter->header_length = header_length;
    segmenter->payload = length - header_length;
    segmenter->size = header->gso_size;
    segmenter->index = 0;
    segmenter->count =
        segmenter->payload == 0 ? 1 : (segmenter->payload + segmenter->size - 1) / segmenter->size;
    segmenter->ip_offset = packet.ip_offset;
    segmenter->transport_offset = packet.transport_offset;
    segmenter->pseudo_sum = sum_pseudo(&packet, segmenter->headers);
    segmenter->ipv6 = packet.ip_version == 6;
    segmenter->tcp = packet.transport == VW_NET_TRANSPORT_TCP;
    segmenter->iov = iov;
    segmenter->iov_count = count;
    segmenter->iov_offset = header_length;
    return 0;
}

static void finish_ip(const struct vw_net_segmenter *segmenter, uint8_t *headers, uint32_t length)
{
    uint8_t *ip = headers + segmenter->ip_offset;

    if (segmenter->ipv6) {
        vw_put_be16(ip + 4, (uint16_t)(length - segmenter->ip_offset - VW_IPV6_HEADER));
        return;
    }
    vw_put_be16(ip + 2, (uint16_t)(length - segmenter->ip_offset));
    vw_put_be16(ip + 4, (uint16_t)(vw_get_be16(ip + 4) + segmenter->index));
    vw_ipv4_set_checksum(ip);
}

static void finish_tcp(const struct vw_net_segmenter *segmenter, uint8_t *tcp)
{
    vw_put_be32(tcp + 4, vw_get_be32(tcp + 4) + segmenter->index * segmenter->size);
    if (segmenter->index > 0)
        tcp[13] &= (uint8_t)~VW_TCP_CWR;
    if (segmenter->index + 1 < segmenter->count)
        tcp[13] &= (uint8_t) ~(VW_TCP_FIN | VW_TCP_PSH);
}

/* The checksum over the pseudo-header, the transport header (its place is 0) and the payload. */
static uint16_t transport_checksum(const struct vw_net_segmenter *segmenter, const uint8_t *headers,
                                   const struct iovec *pieces, size_t count, uint32_t length)
{
    uint32_t header = segmenter->header_length - segmenter->transport_offset; /* even */
    uint16_t sum = segmenter->pseudo_sum;

    sum = vw_net_sum_add(sum, 0, htons((uint16_t)(length - segmenter->transport_offset)));
    sum = vw_net_sum_add(sum, 0, vw_net_sum(headers + segmenter->transport_offset, header));
    sum =
        vw_net_sum_add(sum, 0, vw_net_sum_iov(pieces, count, 0, length - segmenter->header_length));
    return (uint16_t)~sum;
}

uint32_t vw_net_segment_make(const struct vw_net_segmenter *segmenter, uint8_t *headers,
                             struct iovec *pieces, size_t room, size_t *pieces_used)
{
    uint8_t *transport = headers + segmenter->transport_offset;
    uint32_t payload = payload_of(segmenter);
    uint32_t length = segmenter->header_length + payload;
    size_t count = vw_iov_slice(pieces, room, segmenter->iov, segmenter->iov_count,
                                segmenter->iov_offset, payload);

    if (count > room)
        return 0;
    memcpy(headers, segmenter->headers, segmenter->header_length);
    finish_ip(segmenter, headers, length);
    if (segmenter->tcp)
        finish_tcp(segmenter, transport);
    else
        vw_put_be16(transport + 4, (uint16_t)(length - segmenter->transport_offset));

    size_t place = segmenter->tcp ? VW_TCP_CHECKSUM : VW_UDP_CHECKSUM;
    memset(transport + place, 0, 2);
    uint16_t checksum = transport_checksum(segmenter, headers, pieces, count, length);
    if (checksum == 0 && !segmenter->tcp)
        checksum = 0xffff;
    memcpy(transport + place, &checksum, sizeof(checksum));
    *pieces_used = count;
    return length;
}

void vw_net_segment_next(struct vw_net_segmenter *segmenter)
{
    segmenter->iov_offset += payload_of(segmenter);
    while (segmenter->iov_count > 0 && segmenter->iov_offset >= segmenter->iov->iov_len) {
        segmenter->iov_offset -= segmenter->iov->iov_len;
        segmenter->iov++;
        segmenter->iov_count--;
    }
    segmenter->index++;
}
