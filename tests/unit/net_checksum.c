/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/checksum.h"
#include "net_frames.h"

static uint32_t seed = 1;

static uint8_t random_byte(void)
{
    seed = seed * 1664525 + 1013904223;
    return (uint8_t)(seed >> 24);
}

/* RFC 1071, two bytes at a time, as a number in host order. */
static uint16_t slow_sum(const uint8_t *data, size_t length)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < length; i++) {
        sum += i & 1 ? data[i] : (uint32_t)data[i] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

/* 0 and 0xffff are the same number in one's complement. */
static uint16_t normal(uint16_t sum)
{
    return sum == 0xffff ? 0 : sum;
}

static void assert_sum(uint16_t in_memory_order, uint16_t expected)
{
    assert_int_equal(normal(ntohs(in_memory_order)), normal(expected));
}

static void sums_of_every_length_and_alignment(void **state)
{
    (void)state;
    for (size_t length = 0; length < 300; length++) {
        for (size_t shift = 0; shift < 9; shift++) {
            uint8_t *block = malloc(length + shift + 1);

            assert_non_null(block);
            for (size_t i = 0; i < length; i++)
                block[shift + i] = random_byte();
            block = realloc(block, length + shift ? length + shift : 1);
            assert_non_null(block);
            assert_sum(vw_net_sum(block + shift, length), slow_sum(block + shift, length));
            free(block);
        }
    }
}

static void sums_of_extremes(void **state)
{
    static uint8_t block[65536 + 64];

    (void)state;
    memset(block, 0xff, sizeof(block));
    for (size_t length = sizeof(block) - 70; length <= sizeof(block); length++)
        assert_sum(vw_net_sum(block, length), slow_sum(block, length));
    memset(block, 0, sizeof(block));
    assert_int_equal(vw_net_sum(block, sizeof(block)), 0);
}

static void published_example(void **state)
{
    /* RFC 1071, section 3. */
    static const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};

    (void)state;
    assert_int_equal(ntohs(vw_net_sum(bytes, sizeof(bytes))), 0xddf2);
}

static void sums_join_at_any_place(void **state)
{
    uint8_t block[131];

    (void)state;
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = random_byte();
    for (size_t cut = 0; cut <= sizeof(block); cut++)
        assert_sum(vw_net_sum_add(vw_net_sum(block, cut), cut,
                                  vw_net_sum(block + cut, sizeof(block) - cut)),
                   slow_sum(block, sizeof(block)));
}

/* Cuts `length` bytes into pieces of random sizes, empty ones among them. */
static size_t scatter(struct iovec *pieces, size_t room, uint8_t *data, size_t length)
{
    size_t count = 0, at = 0;

    while (at < length && count + 1 < room) {
        size_t step = random_byte() % 40;

        if (step > length - at)
            step = length - at;
        pieces[count++] = (struct iovec){data + at, step};
        at += step;
    }
    if (at < length)
        pieces[count++] = (struct iovec){data + at, length - at};
    return count;
}

static void sums_over_scattered_memory(void **state)
{
    uint8_t block[700];
    struct iovec pieces[64];

    (void)state;
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = random_byte();
    for (unsigned round = 0; round < 2000; round++) {
        size_t count = scatter(pieces, 64, block, sizeof(block));
        size_t offset = (random_byte() * 3u) % 700, length = (random_byte() * 3u) % 700;
        size_t there = length < 700 - offset ? length : 700 - offset;

        assert_sum(vw_net_sum_iov(pieces, count, offset, length), slow_sum(block + offset, there));
    }
    assert_int_equal(vw_net_sum_iov(pieces, 0, 0, 10), 0);
}

/* The pseudo-header's sum at the checksum's place, as a driver leaves it (section 5.1.6.2). */
static void put_pseudo_sum(struct frame *frame, size_t ip, unsigned version, size_t transport,
                           unsigned offset, unsigned protocol)
{
    size_t address = version == 4 ? 8 : 32;
    size_t length = frame->length - transport;
    uint8_t tail[4] = {0, (uint8_t)protocol, (uint8_t)(length >> 8), (uint8_t)length};
    uint32_t sum = slow_sum(frame->data + ip + (version == 4 ? 12 : 8), address);

    sum += slow_sum(tail, 4);
    sum = (sum & 0xffff) + (sum >> 16);
    frame->data[transport + offset] = (uint8_t)(sum >> 8);
    frame->data[transport + offset + 1] = (uint8_t)sum;
}

/* A receiver's view: pseudo-header, header and payload together must give 0xffff. */
static uint16_t receiver_sum(const struct frame *frame, size_t ip, unsigned version,
                             size_t transport, unsigned protocol)
{
    size_t length = frame->length - transport;
    uint8_t tail[4] = {0, (uint8_t)protocol, (uint8_t)(length >> 8), (uint8_t)length};
    uint32_t sum = slow_sum(frame->data + ip + (version == 4 ? 12 : 8), version == 4 ? 8 : 32);

    sum += slow_sum(tail, 4);
    sum += slow_sum(frame->data + transport, length);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

static void build(struct frame *frame, unsigned version, unsigned protocol, size_t payload)
{
    ethernet(frame, -1, version == 4 ? 0x0800 : 0x86dd);
    if (version == 4)
        ipv4(frame, "10.0.0.1", "10.0.0.2", protocol, 0, 0);
    else
        ipv6(frame, "2001:db8::1", "2001:db8::2", protocol);
    put16(frame, 1000);
    put16(frame, 2000);
    put_zeros(frame, protocol == 6 ? 16 : 4);
    for (size_t i = 0; i < payload; i++)
        put8(frame, random_byte());
}

static void completes_tcp_and_udp_anywhere(void **state)
{
    static const struct {
        unsigned version, protocol, offset;
    } table[] = {{4, 6, 16}, {6, 6, 16}, {4, 17, 6}, {6, 17, 6}};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        size_t transport = table[i].version == 4 ? 34 : 54;

        for (size_t payload = 0; payload < 200; payload++) {
            struct frame frame, before;
            struct iovec pieces[32];
            size_t count, place = transport + table[i].offset;
            uint16_t value;

            build(&frame, table[i].version, table[i].protocol, payload);
            put_pseudo_sum(&frame, 14, table[i].version, transport, table[i].offset,
                           table[i].protocol);
            before = frame;
            count = scatter(pieces, 32, frame.data, frame.length);
            assert_int_equal(vw_net_checksum_value(pieces, count, transport, table[i].offset,
                                                   frame.length, &value),
                             0);
            assert_memory_equal(frame.data, before.data, frame.length);
            assert_int_equal(
                vw_net_complete_checksum(pieces, count, transport, table[i].offset, frame.length),
                0);
            assert_memory_equal(frame.data + place, &value, 2);
            assert_int_equal(
                receiver_sum(&frame, 14, table[i].version, transport, table[i].protocol), 0xffff);
            /* Nothing else was written. */
            memcpy(frame.data + place, before.data + place, 2);
            assert_memory_equal(frame.data, before.data, frame.length);
        }
    }
}

/* Makes the payload such that the checksum comes out as 0, and completes it. */
static uint16_t complete_zero(unsigned version, unsigned protocol, unsigned offset, int vlan)
{
    size_t ip = vlan < 0 ? 14 : 18, transport = ip + (version == 4 ? 20 : 40);
    struct frame frame;
    struct iovec piece;
    uint16_t sum;

    ethernet(&frame, vlan, version == 4 ? 0x0800 : 0x86dd);
    if (version == 4)
        ipv4(&frame, "10.0.0.1", "10.0.0.2", protocol, 0, 0);
    else
        ipv6(&frame, "2001:db8::1", "2001:db8::2", protocol);
    put16(&frame, 1000);
    put16(&frame, 2000);
    put_zeros(&frame, 20);
    put_pseudo_sum(&frame, ip, version, transport, offset, protocol);
    sum = (uint16_t)~slow_sum(frame.data + transport, frame.length - transport);
    frame.data[frame.length - 2] = (uint8_t)(sum >> 8);
    frame.data[frame.length - 1] = (uint8_t)sum;
    piece = (struct iovec){frame.data, frame.length};
    assert_int_equal(vw_net_complete_checksum(&piece, 1, transport, offset, frame.length), 0);
    return (uint16_t)(frame.data[transport + offset] << 8 | frame.data[transport + offset + 1]);
}

/* known-faults: a UDP sum of 0 becomes 0xffff. */
static void zero_means_none_for_udp_alone(void **state)
{
    (void)state;
    assert_int_equal(complete_zero(4, 17, 6, -1), 0xffff);
    assert_int_equal(complete_zero(6, 17, 6, -1), 0xffff);
    assert_int_equal(complete_zero(4, 17, 6, 100), 0xffff);
    assert_int_equal(complete_zero(6, 17, 6, 100), 0xffff);
    assert_int_equal(complete_zero(4, 136, 6, -1), 0xffff); /* UDP-Lite */
    assert_int_equal(complete_zero(4, 6, 16, -1), 0);
    assert_int_equal(complete_zero(6, 6, 16, -1), 0);
    assert_int_equal(complete_zero(4, 33, 6, -1), 0); /* DCCP: the place of UDP's, yet not UDP */
    assert_int_equal(complete_zero(4, 59, 6, -1), 0xffff); /* not understood: to be sure */
}

static void places_outside_the_frame_are_refused(void **state)
{
    static const struct {
        size_t start, offset, length;
        int result;
    } table[] = {
        {34, 16, 60, 0},
        {34, 24, 60, 0},
        {34, 25, 60, -EINVAL},
        {60, 0, 60, -EINVAL},
        {65000, 16, 60, -EINVAL},
        {34, 65000, 60, -EINVAL},
        {34, 16, 61, -EINVAL},
        {34, 16, SIZE_MAX, -EINVAL},
        {SIZE_MAX, 2, 60, -EINVAL},
        {34, SIZE_MAX, 60, -EINVAL},
        {0, 0, 2, 0},
        {0, 0, 1, -EINVAL},
        {0, 0, 0, -EINVAL},
        {34, 16, 52, 0},
        {34, 16, 51, -EINVAL},
    };
    uint8_t *frame = calloc(1, 60);
    struct iovec pieces[2] = {{frame, 35}, {frame + 35, 25}};

    (void)state;
    assert_non_null(frame);
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        uint16_t value;

        assert_int_equal(vw_net_checksum_value(pieces, 2, table[i].start, table[i].offset,
                                               table[i].length, &value),
                         table[i].result);
        assert_int_equal(
            vw_net_complete_checksum(pieces, 2, table[i].start, table[i].offset, table[i].length),
            table[i].result);
    }
    free(frame);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_every_length_and_alignment),
        cmocka_unit_test(sums_of_extremes),
        cmocka_unit_test(published_example),
        cmocka_unit_test(sums_join_at_any_place),
        cmocka_unit_test(sums_over_scattered_memory),
        cmocka_unit_test(completes_tcp_and_udp_anywhere),
        cmocka_unit_test(zero_means_none_for_udp_alone),
        cmocka_unit_test(places_outside_the_frame_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
