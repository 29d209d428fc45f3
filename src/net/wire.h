/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to src/net: fields of IP, TCP and UDP headers that lie in private memory, by their
 * offsets (RFC 791, 8200, 9293, 768). For whoever makes headers; dissect.h finds them.
 */
#ifndef VW_NET_WIRE_H
#define VW_NET_WIRE_H

#include <stdint.h>
#include <string.h>

#include "net/checksum.h"

#define VW_IPV4_HEADER 20
#define VW_IPV6_HEADER 40
#define VW_TCP_HEADER 20
#define VW_UDP_HEADER 8

/* Where the checksum lies in the transport header. */
#define VW_TCP_CHECKSUM 16
#define VW_UDP_CHECKSUM 6

/* Flags in byte 13 of TCP's header. */
#define VW_TCP_FIN 0x01
#define VW_TCP_PSH 0x08
#define VW_TCP_ACK 0x10
#define VW_TCP_ECE 0x40
#define VW_TCP_CWR 0x80

static inline uint16_t vw_get_be16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void vw_put_be16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline uint32_t vw_get_be32(const uint8_t *at)
{
    return (uint32_t)vw_get_be16(at) << 16 | vw_get_be16(at + 2);
}

static inline void vw_put_be32(uint8_t *at, uint32_t value)
{
    vw_put_be16(at, (uint16_t)(value >> 16));
    vw_put_be16(at + 2, (uint16_t)value);
}

static inline uint32_t vw_ipv4_header_length(const uint8_t *ip)
{
    return (ip[0] & 0xfu) * 4;
}

static inline uint32_t vw_tcp_header_length(const uint8_t *tcp)
{
    return (tcp[12] >> 4) * 4u;
}

static inline void vw_ipv4_set_checksum(uint8_t *ip)
{
    uint16_t sum;

    memset(ip + 10, 0, sizeof(sum));
    sum = (uint16_t)~vw_net_sum(ip, vw_ipv4_header_length(ip));
    memcpy(ip + 10, &sum, sizeof(sum));
}

#endif
