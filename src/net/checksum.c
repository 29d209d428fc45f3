/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/checksum.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/iov.h"
#include "base/overflow.h"
#include "net/dissect.h"

#define UDP_CSUM_OFFSET 6
#define PROTOCOL_UDP 17
#define PROTOCOL_UDP_LITE 136

/* Two words at once, in whatever the processor has for it. Of three ways to add, this is the
 * fastest: for 1500 bytes 46 ns, against 71 ns of scalar halves; add with carry came last. */
typedef uint64_t pair __attribute__((vector_size(16)));

static pair load_pair(const char *at)
{
    pair words;

    memcpy(&words, at, sizeof(words));
    return words;
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

/* The sum of fewer than 32 bytes. */
static uint64_t sum_rest(const char *at, size_t length)
{
    uint64_t sum = 0;

    for (; length >= 4; at += 4, length -= 4) {
        uint32_t word;

        memcpy(&word, at, sizeof(word));
        sum += word;
    }
    if (length & 2) {
        uint16_t word;

        memcpy(&word, at, sizeof(word));
        sum += word;
        at += 2;
    }
    if (length & 1)
        sum += htole16((uint8_t)*at); /* the first byte of a word whose second is 0 */
    return sum;
}

uint16_t vw_net_sum(const void *data, size_t length)
{
    const char *at = data;
    const pair low = {0xffffffff, 0xffffffff};
    pair even = {0}, odd = {0};

    /* Halves of 32 bits are added up in 64, which takes 2^31 rounds to overflow. */
    for (; length >= 32; at += 32, length -= 32) {
        pair first = load_pair(at), second = load_pair(at + 16);

        even += (first & low) + (first >> 32);
        odd += (second & low) + (second >> 32);
    }
    even += odd;
    /* Each lane is folded alone: their sum might overflow if the data were that long. */
    return fold((uint64_t)fold(even[0]) + fold(even[1]) + sum_rest(at, length));
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
