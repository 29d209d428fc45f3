/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/bits.h"
#include "net/features.h"
#include "net/header.h"

#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)
#define ALL VW_NET_DEVICE_FEATURES
#define CSUM VIRTIO_NET_HDR_F_NEEDS_CSUM
#define TCP4 VIRTIO_NET_HDR_GSO_TCPV4
#define TCP6 VIRTIO_NET_HDR_GSO_TCPV6
#define USO VIRTIO_NET_HDR_GSO_UDP_L4
#define ECN VIRTIO_NET_HDR_GSO_ECN

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(vw_net_header_size(0), 10);
    assert_int_equal(vw_net_header_size(BIT(MRG_RXBUF)), 12);
    assert_int_equal(vw_net_header_size(vw_bit(VIRTIO_F_VERSION_1)), 12);
    assert_int_equal(vw_net_header_size(vw_bit(VIRTIO_F_VERSION_1) | BIT(MRG_RXBUF)), 12);
    assert_int_equal(vw_net_header_size(BIT(HASH_REPORT)), 20);
    assert_int_equal(vw_net_header_size(ALL), 20);
}

/* Bytes as section 5.1.6 lays them out. */
static const uint8_t wire[20] = {0x01, 0x04, 0x36, 0x01, 0xa8, 0x05, 0x22, 0x03, 0x10, 0x00,
                                 0x02, 0x80, 0x78, 0x56, 0x34, 0x12, 0x05, 0x00, 0x00, 0x00};
static const struct vw_net_header plain = {
    .flags = 1,
    .gso_type = 4,
    .hdr_len = 0x136,
    .gso_size = 0x5a8,
    .csum_start = 0x322,
    .csum_offset = 16,
    .num_buffers = 0x8002,
    .hash_value = 0x12345678,
    .hash_report = 5,
};

static void assert_same(const struct vw_net_header *a, const struct vw_net_header *b)
{
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->gso_type, b->gso_type);
    assert_int_equal(a->hdr_len, b->hdr_len);
    assert_int_equal(a->gso_size, b->gso_size);
    assert_int_equal(a->csum_start, b->csum_start);
    assert_int_equal(a->csum_offset, b->csum_offset);
    assert_int_equal(a->num_buffers, b->num_buffers);
    assert_int_equal(a->hash_value, b->hash_value);
    assert_int_equal(a->hash_report, b->hash_report);
}

static void decodes_and_encodes_every_size(void **state)
{
    (void)state;
    static const unsigned each[] = {10, 12, 20};

    for (unsigned i = 0; i < VW_ARRAY_SIZE(each); i++) {
        struct vw_net_header expected = plain, header;
        uint8_t encoded[24];

        if (each[i] < 12)
            expected.num_buffers = 0;
        if (each[i] < 20)
            expected.hash_value = expected.hash_report = 0;
        memset(&header, 0xee, sizeof(header));
        vw_net_header_decode(&header, wire, each[i]);
        assert_same(&header, &expected);

        memset(encoded, 0xee, sizeof(encoded));
        vw_net_header_encode(&plain, encoded, each[i]);
        assert_memory_equal(encoded, wire, each[i]);
        for (unsigned j = each[i]; j < sizeof(encoded); j++)
            assert_int_equal(encoded[j], 0xee);
    }
}

/* A header, the frame's length, the features, and what the check says. */
struct row {
    const char *name;
    uint8_t flags, gso_type;
    uint16_t gso_size, csum_start, csum_offset;
    uint32_t length;
    uint64_t features;
    enum vw_net_header_error error;
};

static const struct row rows[] = {
    {"plain", 0, 0, 0, 0, 0, 60, 0, VW_NET_HEADER_OK},
    {"shortest", 0, 0, 0, 0, 0, 14, 0, VW_NET_HEADER_OK},
    {"too short", 0, 0, 0, 0, 0, 13, ALL, VW_NET_HEADER_FRAME_SHORT},
    {"empty", 0, 0, 0, 0, 0, 0, ALL, VW_NET_HEADER_FRAME_SHORT},
    {"longest", 0, 0, 0, 0, 0, VW_NET_MAX_FRAME, 0, VW_NET_HEADER_OK},
    {"too long", 0, 0, 0, 0, 0, VW_NET_MAX_FRAME + 1, ALL, VW_NET_HEADER_FRAME_LONG},
    {"2^32 - 1", 0, 0, 0, 0, 0, UINT32_MAX, ALL, VW_NET_HEADER_FRAME_LONG},

    {"csum", CSUM, 0, 0, 34, 16, 60, ALL, VW_NET_HEADER_OK},
    {"csum fills the frame", CSUM, 0, 0, 34, 24, 60, ALL, VW_NET_HEADER_OK},
    {"csum one byte beyond", CSUM, 0, 0, 34, 25, 60, ALL, VW_NET_HEADER_CSUM_PLACE},
    {"csum_start 65000", CSUM, 0, 0, 65000, 16, 60, ALL, VW_NET_HEADER_CSUM_PLACE},
    {"csum sums over 16 bits", CSUM, 0, 0, 65535, 65535, 1500, ALL, VW_NET_HEADER_CSUM_PLACE},
    {"csum wraps 16 bits", CSUM, 0, 0, 34, 65520, 1500, ALL, VW_NET_HEADER_CSUM_PLACE},
    {"csum in Ethernet", CSUM, 0, 0, 13, 16, 60, ALL, VW_NET_HEADER_CSUM_PLACE},
    {"csum early but lawful", CSUM, 0, 0, 14, 16, 60, ALL, VW_NET_HEADER_OK},
    {"csum unnegotiated", CSUM, 0, 0, 34, 16, 60, ALL & ~BIT(CSUM),
     VW_NET_HEADER_CSUM_UNNEGOTIATED},
    {"fields without the flag", 0, 0, 777, 65000, 65000, 60, 0, VW_NET_HEADER_OK},

    {"tso4", CSUM, TCP4, 1448, 34, 16, 9000, ALL, VW_NET_HEADER_OK},
    {"tso6", CSUM, TCP6, 1428, 54, 16, 9000, ALL, VW_NET_HEADER_OK},
    {"uso", CSUM, USO, 1400, 42 - 8, 6, 9000, ALL, VW_NET_HEADER_OK},
    {"ufo", CSUM, 3, 1400, 34, 6, 9000, ALL, VW_NET_HEADER_GSO_UFO},
    {"ufo though accepted", CSUM, 3, 1400, 34, 6, 9000, UINT64_MAX, VW_NET_HEADER_GSO_UFO},
    {"type 2", CSUM, 2, 1400, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_UNKNOWN},
    {"type 6", CSUM, 6, 1400, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_UNKNOWN},
    {"type 0x11", CSUM, 0x11, 1400, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_UNKNOWN},
    {"tunnel 4", CSUM, 0x20 | TCP4, 1400, 84, 16, 9000, UINT64_MAX, VW_NET_HEADER_GSO_TUNNEL},
    {"tunnel 6", CSUM, 0x40 | TCP4, 1400, 84, 16, 9000, UINT64_MAX, VW_NET_HEADER_GSO_TUNNEL},
    {"tunnel 4 and 6", CSUM, 0x60 | TCP4, 1, 84, 16, 9000, UINT64_MAX, VW_NET_HEADER_GSO_TUNNEL},
    {"tso4 unnegotiated", CSUM, TCP4, 1448, 34, 16, 9000, ALL & ~BIT(HOST_TSO4),
     VW_NET_HEADER_GSO_UNNEGOTIATED},
    {"tso6 unnegotiated", CSUM, TCP6, 1428, 54, 16, 9000, ALL & ~BIT(HOST_TSO6),
     VW_NET_HEADER_GSO_UNNEGOTIATED},
    {"uso unnegotiated", CSUM, USO, 1400, 34, 6, 9000, ALL & ~BIT(HOST_USO),
     VW_NET_HEADER_GSO_UNNEGOTIATED},
    {"tso4 without csum", 0, TCP4, 1448, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_NO_CSUM},
    {"uso without csum", 0, USO, 1448, 34, 6, 9000, ALL, VW_NET_HEADER_GSO_NO_CSUM},
    {"gso_size 0", CSUM, TCP4, 0, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_SIZE},
    {"gso_size 65535", CSUM, TCP4, 65535, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_SIZE},
    {"uso, gso_size 0", CSUM, USO, 0, 34, 6, 9000, ALL, VW_NET_HEADER_GSO_SIZE},
    {"tso4 in the IP header", CSUM, TCP4, 1448, 33, 16, 9000, ALL, VW_NET_HEADER_GSO_PLACE},
    {"tso6 in the IP header", CSUM, TCP6, 1428, 53, 16, 9000, ALL, VW_NET_HEADER_GSO_PLACE},
    {"tso4, TCP header cut off", CSUM, TCP4, 1448, 34, 16, 53, ALL, VW_NET_HEADER_GSO_PLACE},
    {"tso4, TCP header whole", CSUM, TCP4, 1448, 34, 16, 54, ALL, VW_NET_HEADER_OK},
    {"uso, UDP header whole", CSUM, USO, 1448, 34, 6, 42, ALL, VW_NET_HEADER_OK},
    {"tso4, csum of UDP", CSUM, TCP4, 1448, 34, 6, 9000, ALL, VW_NET_HEADER_GSO_CSUM_OFFSET},
    {"uso, csum of TCP", CSUM, USO, 1448, 34, 16, 9000, ALL, VW_NET_HEADER_GSO_CSUM_OFFSET},
    {"uso, 128 segments", CSUM, USO, 10, 34, 6, 42 + 1280, ALL, VW_NET_HEADER_OK},
    {"uso, 129 segments", CSUM, USO, 10, 34, 6, 42 + 1281, ALL, VW_NET_HEADER_GSO_SEGMENTS},
    {"ecn", CSUM, TCP4 | ECN, 1448, 34, 16, 9000, ALL, VW_NET_HEADER_OK},
    {"ecn unnegotiated", CSUM, TCP4 | ECN, 1448, 34, 16, 9000, ALL & ~BIT(HOST_ECN),
     VW_NET_HEADER_ECN},
    {"ecn with uso", CSUM, USO | ECN, 1448, 34, 6, 9000, ALL, VW_NET_HEADER_ECN},
    {"ecn with nothing", CSUM, ECN, 1448, 34, 16, 9000, ALL, VW_NET_HEADER_ECN},
};

static void check_answers(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct vw_net_header header = {
            .flags = row->flags,
            .gso_type = row->gso_type,
            .hdr_len = 4711,
            .gso_size = row->gso_size,
            .csum_start = row->csum_start,
            .csum_offset = row->csum_offset,
            .num_buffers = 9,
        };
        struct vw_net_header before = header;
        enum vw_net_header_error error = vw_net_header_check(&header, row->length, row->features);

        if (error != row->error)
            fail_msg("%s: got %s, expected %s", row->name, vw_net_header_error_name(error),
                     vw_net_header_error_name(row->error));
        if (error != VW_NET_HEADER_OK)
            assert_same(&header, &before);
    }
}

/* What header.h promises of a header that passed. */
static void assert_sanitised(const struct vw_net_header *header, uint32_t length, uint64_t features)
{
    unsigned base = header->gso_type & ~(unsigned)ECN;

    assert_true(header->flags == 0 || header->flags == CSUM);
    assert_true(header->flags == 0 || vw_has(features, VIRTIO_NET_F_CSUM));
    if (header->flags) {
        assert_in_range(header->csum_start, 14, length);
        assert_true((uint32_t)header->csum_start + header->csum_offset + 2 <= length);
        assert_true(header->hdr_len >=
                    vw_min64(header->csum_start + header->csum_offset + 2, 65535));
    } else {
        assert_int_equal(header->csum_start, 0);
        assert_int_equal(header->csum_offset, 0);
    }
    assert_true(header->hdr_len <= length);
    if (header->gso_type == 0) {
        assert_int_equal(header->gso_size, 0);
    } else {
        assert_true(base == TCP4 || base == TCP6 || header->gso_type == USO);
        assert_int_equal(header->flags, CSUM);
        assert_in_range(header->gso_size, base == USO ? 1 : VW_NET_MIN_TCP_SEGMENT, 65534);
        assert_true(header->csum_start + header->gso_size < length);
    }
    assert_int_equal(header->num_buffers, 0);
    assert_int_equal(header->hash_value, 0);
    assert_int_equal(header->hash_report, 0);
}

/* Every flags byte with every gso_type, over edges of the other fields. */
static void every_header_that_passes_is_sanitised(void **state)
{
    static const uint16_t sizes_of[] = {0, 1, 7, 1448, 65534, 65535};
    static const uint16_t starts[] = {0, 13, 14, 33, 34, 54, 65000};
    static const uint16_t offsets[] = {0, 6, 16, 65535};
    static const uint32_t lengths[] = {14, 60, 9000, VW_NET_MAX_FRAME};
    unsigned passed = 0, refused = 0;

    (void)state;
    for (unsigned types = 0; types < 256 * 256; types++) {
        for (unsigned edge = 0; edge < 6 * 7 * 4 * 4; edge++) {
            uint32_t length = lengths[edge % 4];
            struct vw_net_header again, header = {
                                            .flags = (uint8_t)types,
                                            .gso_type = (uint8_t)(types >> 8),
                                            .hdr_len = (uint16_t)(types * 31),
                                            .gso_size = sizes_of[edge / 4 / 4 / 7],
                                            .csum_start = starts[edge / 4 / 4 % 7],
                                            .csum_offset = offsets[edge / 4 % 4],
                                            .num_buffers = 1,
                                            .hash_value = 1,
                                            .hash_report = 1,
                                        };

            /* Most types are unknown: for them a few edges do. */
            if ((types >> 8 & 0x7f) > 5 && edge > 40)
                break;
            if (vw_net_header_check(&header, length, ALL) != VW_NET_HEADER_OK) {
                refused++;
                continue;
            }
            passed++;
            assert_sanitised(&header, length, ALL);
            again = header;
            assert_int_equal(vw_net_header_check(&again, length, ALL), VW_NET_HEADER_OK);
            assert_same(&again, &header);
        }
    }
    assert_true(passed > 1000 && refused > 1000);
}

static void flags_of_the_other_direction_are_cleared(void **state)
{
    struct vw_net_header header = {.flags = 0xff & ~CSUM};

    (void)state;
    assert_int_equal(vw_net_header_check(&header, 60, ALL), VW_NET_HEADER_OK);
    assert_int_equal(header.flags, 0);
    header = (struct vw_net_header){.flags = 0xff, .csum_start = 34, .csum_offset = 16};
    assert_int_equal(vw_net_header_check(&header, 60, ALL), VW_NET_HEADER_OK);
    assert_int_equal(header.flags, CSUM);
}

static struct vw_net_header checked(uint8_t type, uint16_t gso_size, uint16_t hdr_len,
                                    uint32_t length)
{
    struct vw_net_header header = {
        .flags = CSUM,
        .gso_type = type,
        .hdr_len = hdr_len,
        .gso_size = gso_size,
        .csum_start = 34,
        .csum_offset = type == USO ? 6 : 16,
    };

    assert_int_equal(vw_net_header_check(&header, length, ALL), VW_NET_HEADER_OK);
    return header;
}

static void one_segment_is_no_gso(void **state)
{
    struct vw_net_header header = checked(TCP4 | ECN, 1448, 54, 54 + 1448);

    (void)state;
    assert_int_equal(header.gso_type, 0);
    assert_int_equal(header.gso_size, 0);
    assert_int_equal(header.flags, CSUM);
    assert_int_equal(header.csum_start, 34);
    header = checked(TCP4 | ECN, 1448, 54, 54 + 1449);
    assert_int_equal(header.gso_type, TCP4 | ECN);
    assert_int_equal(header.gso_size, 1448);
    header = checked(USO, 1000, 42, 42 + 1000);
    assert_int_equal(header.gso_type, 0);
    header = checked(USO, 1000, 42, 42 + 1001);
    assert_int_equal(header.gso_type, USO);
    assert_int_equal(header.gso_size, 1000);
}

static void tiny_tcp_segments_grow(void **state)
{
    struct vw_net_header header = checked(TCP4, 1, 54, 60000);

    (void)state;
    assert_int_equal(header.gso_size, VW_NET_MIN_TCP_SEGMENT);
    assert_int_equal(header.gso_type, TCP4);
}

static void header_length_is_only_a_hint(void **state)
{
    struct vw_net_header header = {.hdr_len = 65535};

    (void)state;
    assert_int_equal(checked(TCP4, 1448, 0, 9000).hdr_len, 54);
    assert_int_equal(checked(TCP4, 1448, 66, 9000).hdr_len, 66);
    assert_int_equal(checked(TCP4, 1448, 65535, 9000).hdr_len, 9000);
    assert_int_equal(checked(0, 0, 0, 9000).hdr_len, 34 + 16 + 2);
    assert_int_equal(vw_net_header_check(&header, 60, 0), VW_NET_HEADER_OK);
    assert_int_equal(header.hdr_len, 60);
}

static void unusual_checksum_starts_are_told(void **state)
{
    struct vw_net_header header = {.flags = CSUM, .csum_start = 33};

    (void)state;
    assert_true(vw_net_header_csum_unusual(&header));
    header.csum_start = 34;
    assert_false(vw_net_header_csum_unusual(&header));
    header = (struct vw_net_header){.csum_start = 5};
    assert_false(vw_net_header_csum_unusual(&header));
}

static void work_for_guests_and_ports(void **state)
{
    static const struct {
        uint8_t flags, type;
        uint64_t guest, port;  /* what is just enough for no work */
        unsigned work_without; /* any one of these */
    } table[] = {
        {0, 0, 0, 0, 0},
        {CSUM, 0, BIT(GUEST_CSUM), BIT(CSUM), VW_NET_WORK_CHECKSUM},
        {CSUM, TCP4, BIT(GUEST_TSO4) | BIT(GUEST_CSUM), BIT(HOST_TSO4) | BIT(CSUM),
         VW_NET_WORK_SEGMENT},
        {CSUM, TCP6, BIT(GUEST_TSO6) | BIT(GUEST_CSUM), BIT(HOST_TSO6) | BIT(CSUM),
         VW_NET_WORK_SEGMENT},
        {CSUM, USO, BIT(GUEST_USO4) | BIT(GUEST_USO6) | BIT(GUEST_CSUM), BIT(HOST_USO) | BIT(CSUM),
         VW_NET_WORK_SEGMENT},
        {CSUM, TCP4 | ECN, BIT(GUEST_TSO4) | BIT(GUEST_ECN) | BIT(GUEST_CSUM),
         BIT(HOST_TSO4) | BIT(HOST_ECN) | BIT(CSUM), VW_NET_WORK_SEGMENT},
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++) {
        struct vw_net_header header = {.flags = table[i].flags, .gso_type = table[i].type};

        assert_int_equal(vw_net_header_work_for_guest(&header, table[i].guest), 0);
        assert_int_equal(vw_net_header_work_for_port(&header, table[i].port), 0);
        assert_int_equal(vw_net_header_work_for_guest(&header, 0), table[i].work_without);
        assert_int_equal(vw_net_header_work_for_port(&header, 0), table[i].work_without);
        for (unsigned bit = 0; bit < 64; bit++) {
            unsigned expected =
                bit == VIRTIO_NET_F_GUEST_CSUM ? VW_NET_WORK_CHECKSUM : table[i].work_without;

            if (vw_has(table[i].guest, bit))
                assert_int_equal(
                    vw_net_header_work_for_guest(&header, table[i].guest & ~vw_bit(bit)), expected);
        }
        /* The features of one direction say nothing about the other. */
        assert_int_equal(vw_net_header_work_for_guest(&header, table[i].port),
                         table[i].work_without);
        assert_int_equal(vw_net_header_work_for_port(&header, table[i].guest),
                         table[i].work_without);
    }
}

static void finished_for_a_guest(void **state)
{
    struct vw_net_header header = {.flags = 0xfe,
                                   .csum_start = 7,
                                   .csum_offset = 8,
                                   .num_buffers = 0x1234,
                                   .hash_value = 5,
                                   .hash_report = 6};

    (void)state;
    vw_net_header_finish_for_guest(&header, BIT(GUEST_CSUM));
    assert_int_equal(header.flags, VIRTIO_NET_HDR_F_DATA_VALID);
    assert_int_equal(header.csum_start, 0);
    assert_int_equal(header.num_buffers, 1);
    assert_int_equal(header.hash_value, 0);
    assert_int_equal(header.hash_report, 0);
    vw_net_header_finish_for_guest(&header, 0);
    assert_int_equal(header.flags, 0);

    header = (struct vw_net_header){.flags = 0xff, .csum_start = 34, .csum_offset = 16};
    vw_net_header_finish_for_guest(&header, BIT(GUEST_CSUM));
    assert_int_equal(header.flags, CSUM);
    assert_int_equal(header.csum_start, 34);
    vw_net_header_checksum_done(&header);
    assert_int_equal(header.flags, 0);
    assert_int_equal(header.csum_start, 0);
    assert_int_equal(header.csum_offset, 0);
}

static void every_error_has_its_words(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VW_NET_HEADER_ERROR_COUNT; i++) {
        assert_non_null(vw_net_header_error_text(i));
        assert_non_null(vw_net_header_error_name(i));
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(vw_net_header_error_name(i), vw_net_header_error_name(j));
    }
    assert_string_equal(vw_net_header_error_name(VW_NET_HEADER_ERROR_COUNT), "unknown");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(decodes_and_encodes_every_size),
        cmocka_unit_test(check_answers),
        cmocka_unit_test(every_header_that_passes_is_sanitised),
        cmocka_unit_test(flags_of_the_other_direction_are_cleared),
        cmocka_unit_test(one_segment_is_no_gso),
        cmocka_unit_test(tiny_tcp_segments_grow),
        cmocka_unit_test(header_length_is_only_a_hint),
        cmocka_unit_test(unusual_checksum_starts_are_told),
        cmocka_unit_test(work_for_guests_and_ports),
        cmocka_unit_test(finished_for_a_guest),
        cmocka_unit_test(every_error_has_its_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
