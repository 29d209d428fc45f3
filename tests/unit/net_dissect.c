/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "net/dissect.h"
#include "net_frames.h"

#define A6 "2001:db8::1"
#define B6 "2001:db8::2"

/* Dissects from memory of exactly that size, so that AddressSanitizer sees any read behind it. */
static struct vw_net_packet dissect(const struct frame *frame, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    struct vw_net_packet packet;

    assert_non_null(copy);
    memcpy(copy, frame->data, length);
    memset(&packet, 0xee, sizeof(packet));
    vw_net_dissect(&packet, copy, length);
    free(copy);
    return packet;
}

static struct vw_net_packet whole(const struct frame *frame)
{
    return dissect(frame, frame->length);
}

static void plain_frames(void **state)
{
    static const struct {
        unsigned protocol, options;
        enum vw_net_transport transport;
    } table[] = {
        {6, 0, VW_NET_TRANSPORT_TCP},   {17, 0, VW_NET_TRANSPORT_UDP},
        {1, 0, VW_NET_TRANSPORT_OTHER}, {6, 10, VW_NET_TRANSPORT_TCP},
        {17, 1, VW_NET_TRANSPORT_UDP},  {132, 0, VW_NET_TRANSPORT_OTHER},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (int vlan = -1; vlan < 4096; vlan += 4096) {
            unsigned at = vlan < 0 ? 14 : 18;
            struct vw_net_packet packet;
            struct frame frame;

            ethernet(&frame, vlan, 0x0800);
            ipv4(&frame, "10.0.0.1", "10.0.0.2", table[i].protocol, table[i].options, 0x4000);
            ports(&frame, 1000, 2000);
            packet = whole(&frame);
            assert_true(packet.ethernet);
            assert_int_equal(packet.tagged, vlan >= 0);
            assert_int_equal(packet.vlan, vlan < 0 ? 0 : vlan);
            assert_int_equal(packet.ethertype, 0x0800);
            assert_int_equal(packet.ip_version, 4);
            assert_int_equal(packet.ip_offset, at);
            assert_int_equal(packet.source, at + 12);
            assert_int_equal(packet.destination, at + 16);
            assert_int_equal(packet.transport, table[i].transport);
            assert_int_equal(packet.protocol, table[i].protocol);
            assert_int_equal(packet.transport_offset, at + 20 + 4 * table[i].options);
            if (table[i].transport != VW_NET_TRANSPORT_OTHER)
                assert_int_equal(packet.ports, packet.transport_offset);
            assert_false(packet.fragment || packet.extended);
        }
    }
}

static void tags(void **state)
{
    struct vw_net_packet packet;
    struct frame frame;

    (void)state;
    ethernet(&frame, 0xe123, 0x0806);
    put_zeros(&frame, 28);
    packet = whole(&frame);
    assert_true(packet.tagged);
    assert_int_equal(packet.tag_type, 0x8100);
    assert_int_equal(packet.vlan, 0x123);
    assert_int_equal(packet.ethertype, 0x0806);
    assert_int_equal(packet.ip_version, 0);

    /* Two tags: the second is left as it is. */
    ethernet(&frame, -1, 0x88a8);
    put16(&frame, 5);
    put16(&frame, 0x8100);
    put16(&frame, 6);
    put16(&frame, 0x0800);
    ipv4(&frame, "10.0.0.1", "10.0.0.2", 6, 0, 0);
    ports(&frame, 1, 2);
    packet = whole(&frame);
    assert_int_equal(packet.tag_type, 0x88a8);
    assert_int_equal(packet.vlan, 5);
    assert_int_equal(packet.ethertype, 0x8100);
    assert_int_equal(packet.ip_version, 0);
}

static void ipv4_fragments_have_no_transport(void **state)
{
    static const struct {
        unsigned field;
        bool fragment;
    } table[] = {{0, false}, {0x4000, false}, {0x8000, false}, {0x2000, true},
                 {1, true},  {0x1fff, true},  {0x2001, true}};

    (void)state;
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct vw_net_packet packet;
        struct frame frame;

        ethernet(&frame, -1, 0x0800);
        ipv4(&frame, "10.0.0.1", "10.0.0.2", 17, 0, table[i].field);
        ports(&frame, 1, 2);
        packet = whole(&frame);
        assert_int_equal(packet.ip_version, 4);
        assert_int_equal(packet.fragment, table[i].fragment);
        assert_int_equal(packet.transport,
                         table[i].fragment ? VW_NET_TRANSPORT_NONE : VW_NET_TRANSPORT_UDP);
    }
}

static void malformed_ip_is_not_ip(void **state)
{
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x0800);
    ipv4(&frame, "10.0.0.1", "10.0.0.2", 6, 0, 0);
    ports(&frame, 1, 2);
    frame.data[14] = 0x44; /* a header of 16 bytes */
    assert_int_equal(whole(&frame).ip_version, 0);
    frame.data[14] = 0x65; /* version 6 under the type of IPv4 */
    assert_int_equal(whole(&frame).ip_version, 0);
    frame.data[14] = 0x4f; /* options beyond the frame */
    assert_int_equal(whole(&frame).ip_version, 4);
    assert_int_equal(whole(&frame).transport, VW_NET_TRANSPORT_NONE);

    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 6);
    ports(&frame, 1, 2);
    frame.data[14] = 0x45;
    assert_int_equal(whole(&frame).ip_version, 0);
}

static void options_header(struct frame *frame, unsigned next, unsigned length8)
{
    put8(frame, next);
    put8(frame, length8);
    put8(frame, 1); /* PadN over the rest */
    put8(frame, 4 + 8 * length8);
    put_zeros(frame, 4 + 8 * length8);
}

static void ipv6_with_extensions(void **state)
{
    struct vw_net_packet packet;
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 17);
    ports(&frame, 1, 2);
    packet = whole(&frame);
    assert_int_equal(packet.ip_version, 6);
    assert_int_equal(packet.transport, VW_NET_TRANSPORT_UDP);
    assert_int_equal(packet.transport_offset, 54);
    assert_false(packet.extended);

    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 0);
    options_header(&frame, 60, 0);
    options_header(&frame, 51, 1);
    put8(&frame, 6); /* authentication: (4 + 2) words */
    put8(&frame, 4);
    put_zeros(&frame, 22);
    ports(&frame, 1, 2);
    packet = whole(&frame);
    assert_true(packet.extended);
    assert_int_equal(packet.transport, VW_NET_TRANSPORT_TCP);
    assert_int_equal(packet.transport_offset, 54 + 8 + 16 + 24);
    assert_int_equal(packet.ports, packet.transport_offset);
    assert_int_equal(packet.home_source, packet.source);
    assert_int_equal(packet.routed_destination, packet.destination);
}

static void ipv6_fragments(void **state)
{
    static const struct {
        unsigned field;
        bool fragment;
    } table[] = {{0, false}, {6, false}, {1, true}, {8, true}, {0xfff8, true}};

    (void)state;
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct vw_net_packet packet;
        struct frame frame;

        ethernet(&frame, -1, 0x86dd);
        ipv6(&frame, A6, B6, 44);
        put8(&frame, 17);
        put8(&frame, 255); /* reserved: no length */
        put16(&frame, table[i].field);
        put_zeros(&frame, 4);
        ports(&frame, 1, 2);
        packet = whole(&frame);
        assert_int_equal(packet.fragment, table[i].fragment);
        assert_true(packet.extended);
        assert_int_equal(packet.transport,
                         table[i].fragment ? VW_NET_TRANSPORT_NONE : VW_NET_TRANSPORT_UDP);
    }
}

static void mobile_addresses(void **state)
{
    uint8_t home[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1};
    struct vw_net_packet packet;
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 60);
    put8(&frame, 43); /* destination options: Pad1, PadN, home address */
    put8(&frame, 2);
    put8(&frame, 0);
    put8(&frame, 1);
    put8(&frame, 0);
    put8(&frame, 0xc9);
    put8(&frame, 16);
    put(&frame, home, 16);
    put8(&frame, 0);
    put8(&frame, 6); /* routing header of type 2 */
    put8(&frame, 2);
    put8(&frame, 2);
    put8(&frame, 1);
    put_zeros(&frame, 4);
    put(&frame, home, 16);
    ports(&frame, 1, 2);
    packet = whole(&frame);
    assert_int_equal(packet.source, 22);
    assert_int_equal(packet.destination, 38);
    assert_int_equal(packet.home_source, 54 + 7);
    assert_int_equal(packet.routed_destination, 54 + 24 + 8);
    assert_int_equal(packet.transport, VW_NET_TRANSPORT_TCP);

    frame.data[54 + 24 + 2] = 0; /* another type of routing header */
    assert_int_equal(whole(&frame).routed_destination, 38);
    frame.data[54 + 6] = 15; /* another length of the option */
    assert_int_equal(whole(&frame).home_source, 22);
    frame.data[54 + 6] = 255; /* beyond its header */
    assert_int_equal(whole(&frame).home_source, 22);
    assert_int_equal(whole(&frame).transport, VW_NET_TRANSPORT_TCP);
}

static void a_home_address_must_lie_in_its_header(void **state)
{
    struct vw_net_packet packet;
    struct frame frame;

    (void)state;
    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 60);
    put16(&frame, 6 << 8);
    put16(&frame, 0);
    put16(&frame, 0);
    put8(&frame, 0xc9); /* the last two bytes of a header of 8 */
    put8(&frame, 16);
    ports(&frame, 1, 2);
    packet = whole(&frame);
    assert_int_equal(packet.home_source, packet.source);
    assert_int_equal(packet.transport, VW_NET_TRANSPORT_TCP);
    frame.data[60] = 0;
    frame.data[61] = 0xc9; /* and no byte left for its length */
    packet = dissect(&frame, 62);
    assert_int_equal(packet.home_source, packet.source);
}

static void endless_extensions_end(void **state)
{
    struct vw_net_packet packet;
    struct frame frame;

    (void)state;
    for (unsigned count = 1; count < 20; count++) {
        ethernet(&frame, -1, 0x86dd);
        ipv6(&frame, A6, B6, 60);
        for (unsigned i = 0; i < count; i++)
            options_header(&frame, i + 1 < count ? 60 : 17, 0);
        ports(&frame, 1, 2);
        packet = whole(&frame);
        assert_int_equal(packet.transport, count <= VW_NET_MAX_EXTENSIONS ? VW_NET_TRANSPORT_UDP
                                                                          : VW_NET_TRANSPORT_NONE);
        assert_int_equal(packet.ip_version, 6);
    }
    ethernet(&frame, -1, 0x86dd);
    ipv6(&frame, A6, B6, 59);
    put_zeros(&frame, 40);
    assert_int_equal(whole(&frame).transport, VW_NET_TRANSPORT_NONE);
}

/* A frame with all kinds of headers, cut at each byte: what is found lies inside, and is right. */
static void frames_cut_anywhere(void **state)
{
    struct vw_net_packet packet, full;
    struct frame frame;

    (void)state;
    ethernet(&frame, 5, 0x86dd);
    ipv6(&frame, A6, B6, 0);
    options_header(&frame, 60, 0);
    options_header(&frame, 43, 3);
    put8(&frame, 6);
    put8(&frame, 2);
    put8(&frame, 2);
    put_zeros(&frame, 21);
    ports(&frame, 1, 2);
    full = whole(&frame);
    assert_int_equal(full.transport, VW_NET_TRANSPORT_TCP);
    for (size_t length = 0; length < frame.length; length++) {
        packet = dissect(&frame, length);
        assert_int_equal(packet.ethernet, length >= 14);
        assert_int_equal(packet.tagged, length >= 18);
        assert_int_equal(packet.ip_version, length >= 58 ? 6 : 0);
        assert_int_equal(packet.transport,
                         length >= full.ports + 4u ? VW_NET_TRANSPORT_TCP : VW_NET_TRANSPORT_NONE);
        assert_int_equal(packet.routed_destination, length < 58 ? 0
                                                    : length < full.routed_destination + 16u
                                                        ? packet.destination
                                                        : full.routed_destination);
    }
}

static void scattered_frames(void **state)
{
    uint8_t data[VW_NET_DISSECT_BYTES];
    struct vw_net_packet packet;
    struct iovec pieces[80];
    struct frame frame;

    (void)state;
    ethernet(&frame, 5, 0x0800);
    ipv4(&frame, "10.0.0.1", "10.0.0.2", 6, 0, 0);
    ports(&frame, 1, 2);
    /* A header of 12 bytes before it, and then one byte in each piece. */
    pieces[0] = (struct iovec){data, 12};
    for (size_t i = 0; i < frame.length; i++)
        pieces[i + 1] = (struct iovec){frame.data + i, 1};
    assert_int_equal(vw_net_dissect_iov(&packet, data, pieces, frame.length + 1, 12), frame.length);
    assert_memory_equal(data, frame.data, frame.length);
    assert_int_equal(packet.transport, VW_NET_TRANSPORT_TCP);
    assert_int_equal(packet.transport_offset, 38);
    assert_int_equal(vw_net_dissect_iov(&packet, data, pieces, 1, 12), 0);
    assert_false(packet.ethernet);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_frames),
        cmocka_unit_test(tags),
        cmocka_unit_test(ipv4_fragments_have_no_transport),
        cmocka_unit_test(malformed_ip_is_not_ip),
        cmocka_unit_test(ipv6_with_extensions),
        cmocka_unit_test(ipv6_fragments),
        cmocka_unit_test(mobile_addresses),
        cmocka_unit_test(a_home_address_must_lie_in_its_header),
        cmocka_unit_test(endless_extensions_end),
        cmocka_unit_test(frames_cut_anywhere),
        cmocka_unit_test(scattered_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
