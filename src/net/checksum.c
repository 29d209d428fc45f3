/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/checksum.h"

#include <errno.h>
#include <string.h>

#include "base/iov.h"
#include "base/overflow.h"
#include "net/dissect.h"

#define UDP_CSUM_OFFSET 6
#define PROTOCOL_UDP 17
#define PROTOCOL_UDP_LITE 136

static uint64_t load64(const char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

/* 2^16 = 1 modulo 0xffff, so halves may be added until one is left. */
static uint16_t fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Fewer than 8 bytes, as if zeros followed. */
static uint64_t load_rest(const char *at, size_t length)
{
    uint64_t word = 0;

    memcpy(&word, at, length);
    return word;
}

uint16_t vw_net_sum(const void *data, size_t length)
{
    const char *at = data;
    unsigned __int128 even = 0, odd = 0;

    /* 128 bits take the carries of 2^64 words, and the compiler makes an add and an add-with-carry
     * of each step; two sums, so that the one need not wait for the other. */
    for (; length >= 32; at += 32, length -= 32) {
        even += load64(at);
        odd += load64(at + 8);
        even += load64(at + 16);
        odd += load64(at + 24);
    }
    for (; length >= 8; at += 8, length -= 8)
        even += load64(at);
    if (length > 0)
        odd += load_rest(at, length);
    even += odd;
    return vw_net_sum_add(fold((uint64_t)even), 0, fold((uint64_t)(even >> 64)));
}

uint16_t vw_net_sum_add(uint16_t first, size_t first_length, uint16_t second)
{
    if (first_length & 1)
        second = __builtin_bswap16(second);
    return fold((uint64_t)first + second);
}

uint16_t vw_net_sum_iov(const struct iovec *iov, size_t count, size_t offset, size_t length)
{
    uint16_t sum = 0;
    size_t done = 0;

    for (; count > 0 && done < length; iov++, count--) {
        size_t here = iov->iov_len;

        if (offset >= here) {
            offset -= here;
            continue;
        }
        here -= offset;
        if (here > length - done)
            here = length - done;
        sum = vw_net_sum_add(sum, done, vw_net_sum((const char *)iov->iov_base + offset, here));
        done += here;
        offset = 0;
    }
    return sum;
}

/*
 * May a checksum of 0 stand? For UDP it means that there is none; 0xffff is the same number in
 * one's complement. Only a dissected protocol that is not UDP keeps its 0: in a frame that is not
 * understood, in a tunnel say, 0xffff is right for everybody.
 */
static bool zero_allowed(const struct iovec *iov, size_t count, size_t start, size_t offset)
{
    uint8_t data[VW_NET_DISSECT_BYTES];
    struct vw_net_packet packet;

    if (offset != UDP_CSUM_OFFSET)
        return true;
    vw_net_dissect_iov(&packet, data, iov, count, 0);
    return packet.transport != VW_NET_TRANSPORT_NONE && packet.transport_offset == start &&
           packet.protocol != PROTOCOL_UDP && packet.protocol != PROTOCOL_UDP_LITE;
}

int vw_net_checksum_value(const struct iovec *iov, size_t count, size_t start, size_t offset,
                          size_t length, uint16_t *value)
{
    uint64_t place;

    if (!vw_add_u64(start, offset, &place) || !vw_range_fits(place, 2, length) ||
        vw_iov_length(iov, count) < length)
        return -EINVAL;
    *value = (uint16_t)~vw_net_sum_iov(iov, count, start, length - start);
    if (*value == 0 && !zero_allowed(iov, count, start, offset))
        *value = 0xffff;
    return 0;
}

int vw_net_complete_checksum(const struct iovec *iov, size_t count, size_t start, size_t offset,
                             size_t length)
{
    uint16_t value;
    int error = vw_net_checksum_value(iov, count, start, offset, length, &value);

    if (error == 0)
        vw_iov_write(iov, count, start + offset, &value, sizeof(value));
    return error;
}
