/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "../offload_frames.h"
#include "base/bits.h"
#include "net/coalesce.h"
#include "net/features.h"

static uint8_t payload[65536];
static struct recipe_frame frame;

static const struct recipe plain = {
    .ttl = 64,
    .tos = 2,
    .flags = RECIPE_ACK,
    .id = 0xfffe,
    .window = 1000,
    .sequence = 0xfffff000,
    .acknowledged = 5,
    .timestamp = 99,
    .source_port = 1000,
    .destination_port = 2000,
    .payload = payload,
    .payload_length = 5000,
};

/* Looks at a frame in memory of exactly its size, in pieces of an odd size. */
static bool look_at(const struct recipe_frame *one, const struct vw_net_header *header,
                    struct vw_net_mergeable *mergeable, bool *right)
{
    uint8_t *memory = malloc(one->length);
    struct iovec iov[3] = {{memory, 61}, {memory + 61, 0}};

    assert_non_null(memory);
    memcpy(memory, one->bytes, one->length);
    if (one->length < 61)
        iov[0].iov_len = one->length;
    iov[2] = (struct iovec){memory + iov[0].iov_len, one->length - iov[0].iov_len};
    bool may = vw_net_mergeable_look(mergeable, header, VW_NET_HOST_OFFLOADS, iov, 3,
                                     (uint32_t)one->length);
    if (may)
        *right = vw_net_mergeable_verify(mergeable, iov, 3);
    free(memory);
    return may;
}

static bool look(const struct recipe *recipe, struct vw_net_mergeable *mergeable)
{
    struct vw_net_header header = {0};
    bool right = false;

    recipe_make(&frame, recipe);
    if (recipe->partial) {
        struct virtio_net_hdr_v1 wire = recipe_header(recipe, &frame, 0);

        vw_net_header_decode(&header, &wire, sizeof(wire));
        header.gso_type = VIRTIO_NET_HDR_GSO_NONE;
    }
    bool may = look_at(&frame, &header, mergeable, &right);
    assert_true(!may || right);
    return may;
}

/* Is `second` merged with `first`? */
static bool fits(const struct recipe *first, const struct recipe *second)
{
    struct vw_net_mergeable one, other;
    struct vw_net_merge merge;

    if (!look(first, &one) || !look(second, &other))
        return false;
    vw_net_merge_begin(&merge, &one);
    return vw_net_merge_fits(&merge, &other);
}

/* Cuts a frame by the recipe, merges the segments, and compares with the frame. */
static void check_round(const struct recipe *whole, unsigned size)
{
    struct vw_net_mergeable mergeable;
    struct vw_net_merge merge;
    struct vw_net_header header;
    struct recipe segment, partial = *whole;
    unsigned index = 0;

    for (; recipe_segment(whole, size, index, &segment); index++) {
        segment.partial = index % 3 == 1; /* both kinds of checksum may be mixed */
        assert_true(look(&segment, &mergeable));
        if (index > 0)
            assert_true(vw_net_merge_fits(&merge, &mergeable));
        if (index > 0)
            vw_net_merge_add(&merge, &mergeable);
        else
            vw_net_merge_begin(&merge, &mergeable);
    }
    assert_true(index > 1);
    assert_int_equal(merge.count, index);
    assert_int_equal(merge.payload, whole->payload_length);
    vw_net_merge_finish(&merge, &header);
    partial.partial = true;
    recipe_make(&frame, &partial);
    assert_int_equal(merge.first.header_length, frame.payload);
    assert_memory_equal(merge.first.headers, frame.bytes, frame.payload);

    struct virtio_net_hdr_v1 wire, expected = recipe_header(&partial, &frame, size);
    vw_net_header_encode(&header, &wire, sizeof(wire));
    assert_memory_equal(&wire, &expected, sizeof(wire));
}

static void what_was_cut_is_merged_to_what_it_was(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 4 * 3 * 4; kind++) {
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe.tags = kind / 4 % 3;
        recipe.tcp_option_words = kind / 12 * 3;
        for (unsigned size = 79; size < 5000; size = size * 2 + 1) {
            recipe.flags = RECIPE_ACK;
            check_round(&recipe, size);
            recipe.flags |= RECIPE_PSH | RECIPE_ECE;
            check_round(&recipe, size);
            recipe.flags |= RECIPE_FIN;
            check_round(&recipe, size);
        }
        recipe.payload_length = 65000;
        check_round(&recipe, 1448);
    }
}

static void a_frame_alone(void **state)
{
    struct vw_net_mergeable mergeable;
    struct recipe recipe;

    (void)state;
#define NOT_MERGEABLE(change)                                                                      \
    do {                                                                                           \
        recipe = plain;                                                                            \
        recipe.payload_length = 100;                                                               \
        assert_true(look(&recipe, &mergeable));                                                    \
        change;                                                                                    \
        assert_false(look(&recipe, &mergeable));                                                   \
    } while (0)
    NOT_MERGEABLE(recipe.ip_option_words = 1);
    NOT_MERGEABLE(recipe.ip_option_words = 1; recipe.ipv6 = true);
    NOT_MERGEABLE(recipe.payload_length = 0);
    NOT_MERGEABLE(recipe.payload_length = 0; recipe.udp = true);
    NOT_MERGEABLE(recipe.tags = 3);
    for (unsigned flags = 0; flags < 256; flags++) {
        recipe = plain;
        recipe.flags = (uint8_t)flags;
        bool expected = (flags & RECIPE_ACK) != 0 && (flags & 0xa6) == 0; /* CWR URG RST SYN */
        assert_true(look(&recipe, &mergeable) == expected);
    }
}

/* Bytes that make a frame unfit, by their offset from the IP or transport header. */
static void damaged_frames(void **state)
{
    static const struct {
        bool udp, transport;
        unsigned offset, value;
        bool looks; /* only the checksum tells */
    } table[] = {
        {false, false, 0, 0x55, false},  /* version */
        {false, false, 0, 0x44, false},  /* header length */
        {false, false, 3, 1, false},     /* total length */
        {false, false, 6, 0x20, false},  /* more fragments */
        {false, false, 6, 0x80, false},  /* the reserved flag */
        {false, false, 7, 1, false},     /* fragment offset */
        {false, false, 9, 132, false},   /* protocol */
        {false, false, 10, 0xee, false}, /* checksum */
        {false, true, 12, 0x40, false},  /* data offset */
        {false, true, 16, 0xee, true},   /* checksum */
        {false, true, 40, 0xee, true},   /* payload */
        {true, true, 5, 1, false},       /* length */
        {true, true, 6, 0xee, true},     /* checksum */
        {true, true, 20, 0xee, true},    /* payload */
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++) {
        const struct vw_net_header header = {0};
        struct vw_net_mergeable mergeable;
        struct recipe recipe = plain;
        bool right = true;

        recipe.udp = table[i].udp;
        recipe.payload_length = 100;
        recipe_make(&frame, &recipe);
        uint8_t *byte =
            frame.bytes + (table[i].transport ? frame.transport : frame.ip) + table[i].offset;
        assert_int_not_equal(*byte, table[i].value);
        *byte = (uint8_t)table[i].value;
        if (!table[i].transport && table[i].offset != 10) { /* the IP checksum is right */
            recipe16(frame.bytes + frame.ip + 10, 0);
            recipe16(frame.bytes + frame.ip + 10,
                     ~recipe_sum(0, frame.bytes + frame.ip, 20) & 0xffff);
        }
        assert_true(look_at(&frame, &header, &mergeable, &right) == table[i].looks);
        assert_true(!table[i].looks || !right);
    }
}

static void a_datagram_without_a_checksum(void **state)
{
    const struct vw_net_header header = {0};
    struct vw_net_mergeable mergeable;
    struct recipe recipe = plain;
    bool right;

    (void)state;
    recipe.udp = true;
    recipe.payload_length = 100;
    recipe_make(&frame, &recipe);
    assert_true(look_at(&frame, &header, &mergeable, &right) && right);
    recipe16(frame.bytes + frame.transport + 6, 0);
    assert_false(look_at(&frame, &header, &mergeable, &right));
}

static void padded_and_cut_off_frames(void **state)
{
    const struct vw_net_header header = {0};
    struct vw_net_mergeable mergeable;
    bool right;

    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe.payload_length = 3;
        recipe_make(&frame, &recipe);
        size_t length = frame.length;
        for (frame.length = 14; frame.length < length + 20; frame.length++)
            assert_true(look_at(&frame, &header, &mergeable, &right) == (frame.length == length));
    }
}

static void headers_that_ask_for_something(void **state)
{
    struct vw_net_mergeable mergeable;
    struct recipe recipe = plain;
    bool right;

    (void)state;
    recipe_make(&frame, &recipe);
    struct vw_net_header header = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                   .csum_start = (uint16_t)frame.transport,
                                   .csum_offset = 16};
    assert_true(look_at(&frame, &header, &mergeable, &right));
    header.csum_start++;
    assert_false(look_at(&frame, &header, &mergeable, &right));
    header.csum_start--;
    header.csum_offset = 6;
    assert_false(look_at(&frame, &header, &mergeable, &right));
    header = (struct vw_net_header){.gso_type = VIRTIO_NET_HDR_GSO_TCPV4, .gso_size = 100};
    assert_false(look_at(&frame, &header, &mergeable, &right));
}

static void what_the_receiver_does_not_take(void **state)
{
    static const unsigned features[4] = {VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
                                         VIRTIO_NET_F_HOST_USO, VIRTIO_NET_F_HOST_USO};
    const struct vw_net_header header = {0};

    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct vw_net_mergeable mergeable;
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe_make(&frame, &recipe);
        struct iovec iov = {frame.bytes, frame.length};
        uint64_t only = vw_bit(features[kind]) | vw_bit(VIRTIO_NET_F_CSUM);
#define LOOK(set) vw_net_mergeable_look(&mergeable, &header, set, &iov, 1, (uint32_t)frame.length)
        assert_true(LOOK(only));
        assert_false(LOOK(VW_NET_HOST_OFFLOADS & ~vw_bit(features[kind])));
        assert_false(LOOK(vw_bit(features[kind])));
    }
}

/* Two segments in a row, and what of the second one must not differ. */
static void two_frames(void **state)
{
    struct recipe first, next;

    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct recipe whole = plain;

        whole.ipv6 = kind & 1;
        whole.udp = kind & 2;
        whole.tags = 1;
        whole.tcp_option_words = 3;
        whole.payload_length = 2000;
        assert_true(recipe_segment(&whole, 1000, 0, &first));
#define MERGED(change, expected)                                                                   \
    do {                                                                                           \
        assert_true(recipe_segment(&whole, 1000, 1, &next));                                       \
        assert_true(fits(&first, &next));                                                          \
        change;                                                                                    \
        assert_int_equal(fits(&first, &next), expected);                                           \
    } while (0)
        MERGED(next.ttl--, false);
        MERGED(next.tos = 3, false);
        MERGED(next.tags = 0, false);
        MERGED(next.source_port++, false);
        MERGED(next.destination_port++, false);
        MERGED(next.ipv6 = !next.ipv6, false);
        MERGED(next.udp = !next.udp, false);
        MERGED(next.payload_length = 1001, false);
        MERGED(next.payload_length = 999, true);
        MERGED(next.flow++, !whole.ipv6);
        MERGED(next.id++, whole.ipv6);
        MERGED(next.id--, true); /* all the same, with DF */
        MERGED(next.fragmentable = true, whole.ipv6);
        MERGED(next.sequence++, whole.udp);
        MERGED(next.acknowledged++, whole.udp);
        MERGED(next.window++, whole.udp);
        MERGED(next.timestamp++, whole.udp);
        MERGED(next.tcp_option_words = 2, whole.udp);
        MERGED(next.flags |= RECIPE_ECE, whole.udp);
        MERGED(next.flags |= RECIPE_PSH | RECIPE_FIN, true);
        MERGED(first.flags |= RECIPE_PSH, whole.udp);
        first.flags = RECIPE_ACK;
    }
}

static void identifications(void **state)
{
    struct recipe recipe = plain, first, second, third;
    struct vw_net_mergeable mergeable;
    struct vw_net_merge merge;

    (void)state;
    recipe.payload_length = 300;
    for (unsigned step = 0; step < 2; step++) {
        for (unsigned last = 0; last < 3; last++) {
            recipe_segment(&recipe, 100, 0, &first);
            recipe_segment(&recipe, 100, 1, &second);
            recipe_segment(&recipe, 100, 2, &third);
            second.id = (uint16_t)(first.id + step);
            third.id = (uint16_t)(second.id + last);
            assert_true(look(&first, &mergeable));
            vw_net_merge_begin(&merge, &mergeable);
            assert_true(look(&second, &mergeable));
            assert_true(vw_net_merge_fits(&merge, &mergeable));
            vw_net_merge_add(&merge, &mergeable);
            assert_true(look(&third, &mergeable));
            assert_int_equal(vw_net_merge_fits(&merge, &mergeable), last == step);
        }
    }
    first.fragmentable = second.fragmentable = true; /* all the same, without DF */
    second.id = first.id;
    assert_false(fits(&first, &second));
    second.id++;
    assert_true(fits(&first, &second));
}

static unsigned count_merged(struct recipe *whole, unsigned size)
{
    struct vw_net_mergeable mergeable;
    struct vw_net_merge merge;
    struct recipe segment;

    recipe_segment(whole, size, 0, &segment);
    assert_true(look(&segment, &mergeable));
    vw_net_merge_begin(&merge, &mergeable);
    for (unsigned index = 1;; index++) {
        segment.id++;
        segment.sequence += size;
        assert_true(look(&segment, &mergeable));
        if (!vw_net_merge_fits(&merge, &mergeable))
            return index;
        vw_net_merge_add(&merge, &mergeable);
    }
}

static void as_many_as_one_ip_packet_holds(void **state)
{
    struct recipe recipe = plain;

    (void)state;
    recipe.payload_length = 65535;
    assert_int_equal(count_merged(&recipe, 1000), (65535 - 40) / 1000);
    assert_int_equal(count_merged(&recipe, 13099), 65495 / 13099); /* to the last byte */
    recipe.ipv6 = true;
    assert_int_equal(count_merged(&recipe, 13103), 65515 / 13103);
    recipe.udp = true;
    assert_int_equal(count_merged(&recipe, 2000), (65535 - 8) / 2000);
    assert_int_equal(count_merged(&recipe, 100), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_cut_is_merged_to_what_it_was),
        cmocka_unit_test(a_frame_alone),
        cmocka_unit_test(damaged_frames),
        cmocka_unit_test(a_datagram_without_a_checksum),
        cmocka_unit_test(padded_and_cut_off_frames),
        cmocka_unit_test(headers_that_ask_for_something),
        cmocka_unit_test(what_the_receiver_does_not_take),
        cmocka_unit_test(two_frames),
        cmocka_unit_test(identifications),
        cmocka_unit_test(as_many_as_one_ip_packet_holds),
    };

    recipe_fill(payload, sizeof(payload), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
