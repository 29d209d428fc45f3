/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/bits.h"
#include "net/hash.h"
#include "net_frames.h"

/* The key and the results that Microsoft publishes for verifying RSS hash calculation. */
static const uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

static const struct vector {
    const char *destination;
    unsigned destination_port;
    const char *source;
    unsigned source_port;
    uint32_t addresses, with_ports;
} vectors[] = {
    {"161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178},
    {"65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea},
    {"12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a},
    {"209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f},
    {"202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2},
    {"3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d},
    {"ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf},
    {"fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61e985,
     0x02d1feef},
};

#define IPV4 0x001u
#define TCP4 0x002u
#define UDP4 0x004u
#define IPV6 0x008u
#define TCP6 0x010u
#define UDP6 0x020u
#define IP_EX 0x040u
#define TCP_EX 0x080u
#define UDP_EX 0x100u

static struct vw_net_toeplitz toeplitz;

static int prepare(void **state)
{
    (void)state;
    vw_net_toeplitz_init(&toeplitz, key, sizeof(key));
    return 0;
}

static bool is_ipv6(const struct vector *vector)
{
    return strchr(vector->source, ':') != NULL;
}

static void build(struct frame *frame, const struct vector *vector, unsigned protocol, int vlan)
{
    ethernet(frame, vlan, is_ipv6(vector) ? 0x86dd : 0x0800);
    if (is_ipv6(vector))
        ipv6(frame, vector->source, vector->destination, protocol);
    else
        ipv4(frame, vector->source, vector->destination, protocol, 0, 0);
    ports(frame, vector->source_port, vector->destination_port);
}

static struct vw_net_hash hash(const struct frame *frame, uint32_t types)
{
    struct vw_net_packet packet;

    vw_net_dissect(&packet, frame->data, frame->length);
    return vw_net_hash_frame(&toeplitz, types, &packet, frame->data);
}

static void assert_hash(struct vw_net_hash got, unsigned report, uint32_t value)
{
    assert_int_equal(got.report, report);
    assert_int_equal(got.value, value);
}

static void published_vectors(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(vectors); i++) {
        const struct vector *vector = &vectors[i];
        unsigned shift = is_ipv6(vector) ? 3 : 0; /* from IPv4's types and reports to IPv6's */

        for (int vlan = -1; vlan < 4096; vlan += 4096) {
            struct frame frame;

            build(&frame, vector, 6, vlan);
            assert_hash(hash(&frame, VW_NET_HASH_TYPES), 2 + shift, vector->with_ports);
            assert_hash(hash(&frame, IPV4 << shift), 1 + shift, vector->addresses);
            assert_hash(hash(&frame, (IPV4 | UDP4) << shift), 1 + shift, vector->addresses);
            assert_hash(hash(&frame, TCP4 << shift), 2 + shift, vector->with_ports);
            assert_hash(hash(&frame, UDP4 << shift), 0, 0);
            assert_hash(hash(&frame, (IPV4 | TCP4 | UDP4) << (3 - shift)), 0, 0);
            build(&frame, vector, 17, vlan);
            assert_hash(hash(&frame, VW_NET_HASH_TYPES), 3 + shift, vector->with_ports);
            assert_hash(hash(&frame, TCP4 << shift), 0, 0);
            build(&frame, vector, 1, vlan);
            assert_hash(hash(&frame, VW_NET_HASH_TYPES), 1 + shift, vector->addresses);
            assert_hash(hash(&frame, 0), 0, 0);
        }
    }
}

static void fragments_are_hashed_by_address(void **state)
{
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x0800);
    ipv4(&frame, vectors[0].source, vectors[0].destination, 17, 0, 0x2000);
    ports(&frame, 1, 2);
    assert_hash(hash(&frame, VW_NET_HASH_TYPES), VIRTIO_NET_HASH_REPORT_IPv4, vectors[0].addresses);
    assert_hash(hash(&frame, UDP4), 0, 0);
    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, vectors[5].source, vectors[5].destination, 44);
    put16(&frame, 17 << 8);
    put16(&frame, 1);
    put_zeros(&frame, 4);
    ports(&frame, 1, 2);
    assert_hash(hash(&frame, IPV6 | UDP6), VIRTIO_NET_HASH_REPORT_IPv6, vectors[5].addresses);
    assert_hash(hash(&frame, IPV6 | IP_EX | UDP_EX), VIRTIO_NET_HASH_REPORT_IPv6_EX,
                vectors[5].addresses);
}

/*
 * A mobile node's frame: other addresses stand in IP's header than in the extension headers, which
 * have those of a published vector, so that its results tell which of them were hashed.
 */
static void build_mobile(struct frame *frame, const struct vector *vector, unsigned protocol)
{
    uint8_t address[16];

    ethernet(frame, -1, 0x86dd);
    ipv6(frame, "2001:db8::1", "2001:db8::2", 60);
    put8(frame, 43);
    put8(frame, 2);
    put16(frame, 0x0102);
    put16(frame, 0);
    put8(frame, 0xc9);
    put8(frame, 16);
    inet_pton(AF_INET6, vector->source, address);
    put(frame, address, 16);
    put8(frame, protocol);
    put8(frame, 2);
    put8(frame, 2);
    put8(frame, 1);
    put_zeros(frame, 4);
    inet_pton(AF_INET6, vector->destination, address);
    put(frame, address, 16);
    ports(frame, vector->source_port, vector->destination_port);
}

static void extended_types_use_mobile_addresses(void **state)
{
    const struct vector *vector = &vectors[7];
    struct vector carrier = {
        "2001:db8::2", vector->destination_port, "2001:db8::1", vector->source_port, 0, 0};
    struct frame frame, plain;

    (void)state;
    build(&plain, &carrier, 6, -1);
    build_mobile(&frame, vector, 6);
    assert_hash(hash(&frame, VW_NET_HASH_TYPES), VIRTIO_NET_HASH_REPORT_TCPv6_EX,
                vector->with_ports);
    assert_hash(hash(&frame, IP_EX | TCP6), VIRTIO_NET_HASH_REPORT_IPv6_EX, vector->addresses);
    /* Without a type of theirs, extension headers are skipped. */
    assert_hash(hash(&frame, TCP6 | IPV6), VIRTIO_NET_HASH_REPORT_TCPv6, hash(&plain, TCP6).value);
    assert_hash(hash(&frame, IPV6 | UDP_EX), VIRTIO_NET_HASH_REPORT_IPv6, hash(&plain, IPV6).value);
    build_mobile(&frame, vector, 17);
    assert_hash(hash(&frame, VW_NET_HASH_TYPES), VIRTIO_NET_HASH_REPORT_UDPv6_EX,
                vector->with_ports);
    /* And without extension headers there is no type of theirs. */
    assert_hash(hash(&plain, IP_EX | TCP_EX | UDP_EX), 0, 0);
}

static void what_is_not_ip_has_no_hash(void **state)
{
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x0806);
    put_zeros(&frame, 46);
    assert_hash(hash(&frame, VW_NET_HASH_TYPES), 0, 0);
    frame.length = 3;
    assert_hash(hash(&frame, VW_NET_HASH_TYPES), 0, 0);
}

/* The definition, bit by bit, against the tables, for keys of every length. */
static uint32_t slow_toeplitz(const uint8_t *k, const uint8_t *input, unsigned length)
{
    uint32_t result = 0;

    for (unsigned bit = 0; bit < 8 * length; bit++) {
        if (!(input[bit / 8] & 0x80 >> bit % 8))
            continue;
        for (unsigned i = 0; i < 32; i++)
            if (k[(bit + i) / 8] & 0x80 >> (bit + i) % 8)
                result ^= UINT32_C(1) << (31 - i);
    }
    return result;
}

static void tables_equal_the_definition(void **state)
{
    uint8_t input[VW_NET_HASH_INPUT], padded[40];
    struct vw_net_toeplitz other;
    uint32_t random = 1;

    (void)state;
    for (unsigned key_length = 0; key_length <= 40; key_length++) {
        for (unsigned i = 0; i < 40; i++)
            padded[i] = i < key_length ? key[i] : 0;
        vw_net_toeplitz_init(&other, key, key_length);
        for (unsigned length = 0; length <= sizeof(input); length++) {
            for (unsigned i = 0; i < sizeof(input); i++) {
                random = random * 1664525 + 1013904223;
                input[i] = (uint8_t)(random >> 24);
            }
            assert_int_equal(vw_net_toeplitz(&other, input, length),
                             slow_toeplitz(padded, input, length));
        }
    }
}

static void steering_by_table(void **state)
{
    struct vw_net_rss rss = {.steering = true, .mask = 127, .unclassified = 3};

    (void)state;
    for (unsigned i = 0; i < 128; i++)
        rss.table[i] = (uint16_t)(i * 7 % 5);
    for (uint32_t value = 0; value < 100000; value += 17) {
        struct vw_net_hash some = {.value = value * 2654435761u, .report = 2};

        assert_int_equal(vw_net_rss_pair(&rss, some), (some.value & 127) * 7 % 5);
    }
    assert_int_equal(vw_net_rss_pair(&rss, (struct vw_net_hash){.report = 0}), 3);
    rss.mask = 0;
    rss.table[0] = 2;
    assert_int_equal(vw_net_rss_pair(&rss, (struct vw_net_hash){UINT32_MAX, 1}), 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(fragments_are_hashed_by_address),
        cmocka_unit_test(extended_types_use_mobile_addresses),
        cmocka_unit_test(what_is_not_ip_has_no_hash),
        cmocka_unit_test(tables_equal_the_definition),
        cmocka_unit_test(steering_by_table),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
