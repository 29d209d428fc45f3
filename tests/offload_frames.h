/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP and UDP frames for the tests of segmentation and merging, made field by field from a recipe,
 * without any code of net/: what a frame has to be after it was cut is made here a second time.
 */
#ifndef VW_TESTS_OFFLOAD_FRAMES_H
#define VW_TESTS_OFFLOAD_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "net/uapi.h"

#define RECIPE_MAX 66000

#define RECIPE_FIN 0x01
#define RECIPE_PSH 0x08
#define RECIPE_ACK 0x10
#define RECIPE_ECE 0x40
#define RECIPE_CWR 0x80

struct recipe {
    bool ipv6, udp;
    bool partial;             /* the checksum is that of the pseudo-header only */
    unsigned tags;            /* 0 to 2 */
    unsigned ip_option_words; /* IPv4: of 4 bytes. IPv6: destination options of 8 bytes each */
    unsigned tcp_option_words;
    uint8_t tos, ttl, flags;
    bool fragmentable; /* IPv4: DF is not set */
    uint16_t id, window;
    uint32_t sequence, acknowledged, flow;
    uint32_t timestamp; /* in the TCP options, if there are 3 words or more */
    uint16_t source_port, destination_port;
    const uint8_t *payload;
    size_t payload_length;
};

/* What a frame looks like from outside. */
struct recipe_frame {
    uint8_t bytes[RECIPE_MAX];
    size_t length;
    size_t ip, transport, payload; /* offsets */
};

static inline void recipe16(uint8_t *to, unsigned value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static inline void recipe32(uint8_t *to, uint32_t value)
{
    recipe16(to, value >> 16);
    recipe16(to + 2, value & 0xffff);
}

/* The sum of RFC 1071, not inverted. */
static inline uint32_t recipe_sum(uint32_t sum, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (sum & 0xffff) + (sum >> 16);
}

static inline void recipe_ethernet(struct recipe_frame *frame, const struct recipe *recipe)
{
    static const uint8_t addresses[12] = {0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2};
    size_t at = sizeof(addresses);

    memcpy(frame->bytes, addresses, sizeof(addresses));
    for (unsigned i = 0; i < recipe->tags; i++, at += 4) {
        recipe16(frame->bytes + at, i + 1 < recipe->tags ? 0x88a8 : 0x8100);
        recipe16(frame->bytes + at + 2, 0x2000 + 100 + i);
    }
    recipe16(frame->bytes + at, recipe->ipv6 ? 0x86dd : 0x0800);
    frame->ip = at + 2;
}

static inline void recipe_ip(struct recipe_frame *frame, const struct recipe *recipe, size_t rest)
{
    uint8_t *ip = frame->bytes + frame->ip;
    size_t options = recipe->ip_option_words * (recipe->ipv6 ? 8u : 4u);
    uint8_t protocol = recipe->udp ? 17 : 6;

    if (recipe->ipv6) {
        recipe32(ip, 6u << 28 | (uint32_t)recipe->tos << 20 | recipe->flow);
        recipe16(ip + 4, (unsigned)(options + rest));
        ip[6] = options > 0 ? 60 : protocol;
        ip[7] = recipe->ttl;
        memcpy(ip + 8, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
        memcpy(ip + 24, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
        if (options > 0) { /* one header, filled with a PadN option */
            memset(ip + 40, 0, options);
            ip[40] = protocol;
            ip[41] = (uint8_t)(recipe->ip_option_words - 1);
            ip[42] = 1;
            ip[43] = (uint8_t)(options - 4);
        }
        frame->transport = frame->ip + 40 + options;
        return;
    }
    ip[0] = (uint8_t)(0x45 + recipe->ip_option_words);
    ip[1] = recipe->tos;
    recipe16(ip + 2, (unsigned)(20 + options + rest));
    recipe16(ip + 4, recipe->id);
    recipe16(ip + 6, recipe->fragmentable ? 0 : 0x4000);
    ip[8] = recipe->ttl;
    ip[9] = protocol;
    memcpy(ip + 12, "\x0a\x63\0\x02\x0a\x63\0\x01", 8);
    memset(ip + 20, 1, options);
    recipe16(ip + 10, 0);
    recipe16(ip + 10, ~recipe_sum(0, ip, 20 + options) & 0xffff);
    frame->transport = frame->ip + 20 + options;
}

static inline void recipe_tcp(uint8_t *tcp, const struct recipe *recipe)
{
    recipe32(tcp + 4, recipe->sequence);
    recipe32(tcp + 8, recipe->acknowledged);
    tcp[12] = (uint8_t)((5 + recipe->tcp_option_words) << 4);
    tcp[13] = recipe->flags;
    recipe16(tcp + 14, recipe->window);
    recipe32(tcp + 16, 0);
    memset(tcp + 20, 1, 4 * recipe->tcp_option_words);
    if (recipe->tcp_option_words >= 3) {
        memcpy(tcp + 20, "\x01\x01\x08\x0a", 4);
        recipe32(tcp + 24, recipe->timestamp);
        recipe32(tcp + 28, 77);
    }
}

static inline void recipe_checksum(struct recipe_frame *frame, const struct recipe *recipe)
{
    uint8_t *transport = frame->bytes + frame->transport;
    size_t addresses = recipe->ipv6 ? 8 : 12, size = recipe->ipv6 ? 32 : 8;
    size_t length = frame->length - frame->transport;
    uint32_t sum = recipe_sum(0, frame->bytes + frame->ip + addresses, size);

    sum += (recipe->udp ? 17 : 6) + (uint32_t)length;
    sum = (sum & 0xffff) + (sum >> 16);
    if (!recipe->partial)
        sum = ~recipe_sum(sum, transport, length) & 0xffff;
    if (sum == 0 && recipe->udp)
        sum = 0xffff;
    recipe16(transport + (recipe->udp ? 6 : 16), sum);
}

static inline void recipe_make(struct recipe_frame *frame, const struct recipe *recipe)
{
    size_t header = recipe->udp ? 8 : 20 + 4 * recipe->tcp_option_words;

    recipe_ethernet(frame, recipe);
    recipe_ip(frame, recipe, header + recipe->payload_length);
    frame->payload = frame->transport + header;
    frame->length = frame->payload + recipe->payload_length;
    uint8_t *transport = frame->bytes + frame->transport;
    recipe16(transport, recipe->source_port);
    recipe16(transport + 2, recipe->destination_port);
    if (recipe->udp) {
        recipe16(transport + 4, (unsigned)(header + recipe->payload_length));
        recipe16(transport + 6, 0);
    } else {
        recipe_tcp(transport, recipe);
    }
    memcpy(frame->bytes + frame->payload, recipe->payload, recipe->payload_length);
    recipe_checksum(frame, recipe);
}

/* Segment `index` of those into which a frame of this recipe is cut. Returns false behind the last.
 */
static inline bool recipe_segment(const struct recipe *whole, size_t size, unsigned index,
                                  struct recipe *segment)
{
    size_t start = index * size;
    bool last = start + size >= whole->payload_length;

    if (start >= whole->payload_length)
        return false;
    *segment = *whole;
    segment->partial = false;
    segment->payload = whole->payload + start;
    segment->payload_length = last ? whole->payload_length - start : size;
    segment->id = (uint16_t)(whole->id + index);
    segment->sequence = (uint32_t)(whole->sequence + start);
    if (!last)
        segment->flags &= (uint8_t) ~(RECIPE_FIN | RECIPE_PSH);
    if (index > 0)
        segment->flags &= (uint8_t)~RECIPE_CWR;
    return true;
}

/* A virtio-net header with a gso_type for such a frame. */
static inline struct virtio_net_hdr_v1
recipe_header(const struct recipe *recipe, const struct recipe_frame *frame, unsigned size)
{
    struct virtio_net_hdr_v1 header = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .hdr_len = (uint16_t)frame->payload,
        .gso_size = (uint16_t)size,
        .csum_start = (uint16_t)frame->transport,
        .csum_offset = recipe->udp ? 6 : 16,
    };

    header.gso_type = recipe->udp    ? VIRTIO_NET_HDR_GSO_UDP_L4
                      : recipe->ipv6 ? VIRTIO_NET_HDR_GSO_TCPV6
                                     : VIRTIO_NET_HDR_GSO_TCPV4;
    if (!recipe->udp && (recipe->flags & RECIPE_CWR))
        header.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
    return header;
}

/* Bytes that depend on where they are. */
static inline void recipe_fill(uint8_t *payload, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        payload[i] = (uint8_t)(seed >> 24);
    }
}

#endif
