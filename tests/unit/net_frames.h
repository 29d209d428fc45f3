/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for the tests of net/: written field by field, without any code of net/. */
#ifndef VW_TESTS_NET_FRAMES_H
#define VW_TESTS_NET_FRAMES_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

struct frame {
    uint8_t data[2048];
    size_t length;
};

static inline void put(struct frame *frame, const void *bytes, size_t length)
{
    memcpy(frame->data + frame->length, bytes, length);
    frame->length += length;
}

static inline void put8(struct frame *frame, unsigned value)
{
    uint8_t byte = (uint8_t)value;

    put(frame, &byte, 1);
}

static inline void put16(struct frame *frame, unsigned value)
{
    uint16_t word = htons((uint16_t)value);

    put(frame, &word, 2);
}

static inline void put_zeros(struct frame *frame, size_t count)
{
    memset(frame->data + frame->length, 0, count);
    frame->length += count;
}

/* Starts a frame; `vlan` below 0: no tag. */
static inline void ethernet(struct frame *frame, int vlan, unsigned type)
{
    static const uint8_t addresses[12] = {0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2};

    frame->length = 0;
    put(frame, addresses, sizeof(addresses));
    if (vlan >= 0) {
        put16(frame, 0x8100);
        put16(frame, (unsigned)vlan);
    }
    put16(frame, type);
}

static inline void ipv4(struct frame *frame, const char *source, const char *destination,
                        unsigned protocol, unsigned option_words, unsigned fragment)
{
    uint8_t address[4];

    put8(frame, 0x45 + option_words);
    put8(frame, 0);
    put16(frame, 0); /* total length: not looked at */
    put16(frame, 0x1234);
    put16(frame, fragment);
    put8(frame, 64);
    put8(frame, protocol);
    put16(frame, 0);
    inet_pton(AF_INET, source, address);
    put(frame, address, 4);
    inet_pton(AF_INET, destination, address);
    put(frame, address, 4);
    for (unsigned i = 0; i < 4 * option_words; i++)
        put8(frame, 1); /* no-operation */
}

static inline void ipv6(struct frame *frame, const char *source, const char *destination,
                        unsigned protocol)
{
    uint8_t address[16];

    put16(frame, 0x6000);
    put16(frame, 0);
    put16(frame, 0); /* payload length: not looked at */
    put8(frame, protocol);
    put8(frame, 64);
    inet_pton(AF_INET6, source, address);
    put(frame, address, 16);
    inet_pton(AF_INET6, destination, address);
    put(frame, address, 16);
}

/* Source and destination port, and as many zeros as TCP's header then has. */
static inline void ports(struct frame *frame, unsigned source, unsigned destination)
{
    put16(frame, source);
    put16(frame, destination);
    put_zeros(frame, 16);
}

#endif
