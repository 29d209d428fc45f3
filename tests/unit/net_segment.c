/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "../offload_frames.h"
#include "base/bits.h"
#include "base/iov.h"
#include "net/segment.h"

static uint8_t payload[65536];
static struct recipe_frame whole, expected;

static const struct recipe plain = {
    .partial = true,
    .ttl = 64,
    .flags = RECIPE_ACK,
    .id = 0xfffe,
    .window = 1000,
    .sequence = 0xfffff000,
    .acknowledged = 5,
    .source_port = 1000,
    .destination_port = 2000,
    .payload = payload,
    .payload_length = 5000,
};

/* Cuts bytes into pieces of at most `piece` bytes each, in memory of exactly the frame's size. */
static size_t pieces_of(const struct recipe_frame *frame, size_t piece, struct iovec *iov,
                        uint8_t **memory)
{
    size_t count = 0;

    *memory = malloc(frame->length);
    assert_non_null(*memory);
    memcpy(*memory, frame->bytes, frame->length);
    for (size_t at = 0; at < frame->length; at += piece, count++)
        iov[count] = (struct iovec){*memory + at, vw_min64(piece, frame->length - at)};
    return count;
}

static struct vw_net_header decoded(const struct virtio_net_hdr_v1 *wire)
{
    struct vw_net_header header;

    vw_net_header_decode(&header, wire, sizeof(*wire));
    return header;
}

static void check_segment(const struct vw_net_segmenter *segmenter)
{
    static uint8_t joined[RECIPE_MAX];
    static struct iovec pieces[4096];
    uint8_t *headers = malloc(segmenter->header_length);
    size_t count = 0;

    assert_non_null(headers);
    uint32_t length = vw_net_segment_make(segmenter, headers, pieces, 4096, &count);
    assert_int_equal(length, expected.length);
    memcpy(joined, headers, segmenter->header_length);
    assert_int_equal(vw_iov_read(pieces, count, 0, joined + segmenter->header_length,
                                 length - segmenter->header_length),
                     length - segmenter->header_length);
    assert_memory_equal(joined, expected.bytes, length);
    free(headers);
}

/* Cuts a frame of this recipe, and compares every segment with one made directly. */
static void check_cut(const struct recipe *recipe, unsigned size, size_t piece)
{
    static struct iovec iov[RECIPE_MAX];
    struct vw_net_segmenter segmenter;
    struct recipe segment;
    unsigned index = 0;
    uint8_t *memory;

    recipe_make(&whole, recipe);
    struct virtio_net_hdr_v1 wire = recipe_header(recipe, &whole, size);
    struct vw_net_header header = decoded(&wire);
    size_t count = pieces_of(&whole, piece, iov, &memory);

    assert_int_equal(vw_net_segment_begin(&segmenter, &header, iov, count, (uint32_t)whole.length),
                     0);
    for (; recipe_segment(recipe, size, index, &segment); index++) {
        assert_true(vw_net_segment_left(&segmenter));
        recipe_make(&expected, &segment);
        check_segment(&segmenter);
        vw_net_segment_next(&segmenter);
    }
    assert_false(vw_net_segment_left(&segmenter));
    assert_int_equal(segmenter.count, index);
    free(memory);
}

static void every_kind_of_frame(void **state)
{
    static const size_t pieces[] = {1, 7, 66, 1500, RECIPE_MAX};

    (void)state;
    for (unsigned kind = 0; kind < 4 * 3 * 3 * 2; kind++) {
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe.tags = kind / 4 % 3;
        recipe.ip_option_words = kind / 12 % 3;
        recipe.tcp_option_words = kind / 36 * 3;
        for (unsigned i = 0; i < VW_ARRAY_SIZE(pieces); i++) {
            check_cut(&recipe, 1448, pieces[i]);
            check_cut(&recipe, 1, pieces[i]); /* odd sums everywhere */
            check_cut(&recipe, 999, pieces[i]);
        }
    }
}

static void lengths_around_whole_segments(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t length = 1; length < 45; length++) {
            struct recipe recipe = plain;

            recipe.ipv6 = kind & 1;
            recipe.udp = kind & 2;
            recipe.payload_length = length;
            check_cut(&recipe, 11, 64);
        }
    }
    for (unsigned kind = 0; kind < 4; kind++) {
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe.payload_length = 65535 - 60;
        check_cut(&recipe, 1460, 4096);
        check_cut(&recipe, 65000, 4096);
    }
}

static void flags_of_first_and_last_segment(void **state)
{
    (void)state;
    for (unsigned flags = 0; flags < 256; flags++) {
        struct recipe recipe = plain;

        recipe.flags = (uint8_t)flags;
        check_cut(&recipe, 1460, 1500);
        recipe.ipv6 = true;
        check_cut(&recipe, 5000, 1500); /* first and last in one */
    }
}

/* A UDP checksum that comes out as 0 goes out as 0xffff; a TCP one does not. */
static void a_udp_checksum_of_zero(void **state)
{
    unsigned zeros = 0;

    (void)state;
    for (unsigned udp = 0; udp < 2; udp++) {
        struct recipe recipe = plain;

        recipe.udp = udp;
        recipe.payload_length = 2;
        for (unsigned value = 0; value < 65536; value++) { /* one of them gives the sum 0xffff */
            recipe16(payload, value);
            check_cut(&recipe, 2, RECIPE_MAX);
            zeros += expected.bytes[expected.transport + (udp ? 6 : 16)] == (udp ? 0xff : 0) &&
                     expected.bytes[expected.transport + (udp ? 7 : 17)] == (udp ? 0xff : 0);
        }
    }
    recipe_fill(payload, sizeof(payload), 1);
    assert_true(zeros >= 2);
}

/* Whatever partial checksum the guest wrote, the segments' are right. */
static void a_wrong_pseudo_header_sum_does_not_matter(void **state)
{
    struct vw_net_segmenter segmenter;
    struct recipe segment;

    (void)state;
    recipe_make(&whole, &plain);
    struct virtio_net_hdr_v1 wire = recipe_header(&plain, &whole, 1000);
    struct vw_net_header header = decoded(&wire);
    whole.bytes[whole.transport + 16] ^= 0x55;
    struct iovec iov = {whole.bytes, whole.length};
    assert_int_equal(vw_net_segment_begin(&segmenter, &header, &iov, 1, (uint32_t)whole.length), 0);
    recipe_segment(&plain, 1000, 0, &segment);
    recipe_make(&expected, &segment);
    check_segment(&segmenter);
}

static int begin(const struct virtio_net_hdr_v1 *wire, uint32_t length)
{
    struct vw_net_segmenter segmenter;
    struct vw_net_header header = decoded(wire);
    uint8_t *memory = malloc(length ? length : 1);
    struct iovec iov = {memory, length};

    assert_non_null(memory);
    memcpy(memory, whole.bytes, length);
    int result = vw_net_segment_begin(&segmenter, &header, &iov, 1, length);
    free(memory);
    return result;
}

static void frames_that_are_not_what_their_header_says(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct recipe recipe = plain;

        recipe.ipv6 = kind & 1;
        recipe.udp = kind & 2;
        recipe_make(&whole, &recipe);
        const struct virtio_net_hdr_v1 right = recipe_header(&recipe, &whole, 1000);
        struct virtio_net_hdr_v1 wrong = right;

        for (unsigned type = 0; type < 256; type++) {
            bool same = (type & ~VIRTIO_NET_HDR_GSO_ECN) == right.gso_type;

            wrong.gso_type = (uint8_t)type;
            assert_int_equal(begin(&wrong, (uint32_t)whole.length), same ? 0 : -EINVAL);
        }
        wrong = right;
        for (unsigned start = 0; start < 100; start++) {
            wrong.csum_start = (uint16_t)start;
            assert_int_equal(begin(&wrong, (uint32_t)whole.length),
                             start == right.csum_start ? 0 : -EINVAL);
        }
        wrong = right;
        wrong.gso_size = 0;
        assert_int_equal(begin(&wrong, (uint32_t)whole.length), -EINVAL);
        for (uint32_t length = 0; length <= whole.payload; length++) /* cut off anywhere */
            assert_int_equal(begin(&right, length), length == whole.payload ? 0 : -EINVAL);
    }
    recipe_make(&whole, &plain);
    struct virtio_net_hdr_v1 header = recipe_header(&plain, &whole, 1000);
    whole.bytes[whole.transport + 12] = 4 << 4; /* a TCP header of 16 bytes */
    assert_int_equal(begin(&header, (uint32_t)whole.length), -EINVAL);
    recipe_make(&whole, &plain);
    whole.bytes[whole.ip + 6] |= 0x20; /* a fragment */
    assert_int_equal(begin(&header, (uint32_t)whole.length), -EINVAL);
}

static void too_many_pieces(void **state)
{
    struct vw_net_segmenter segmenter;
    struct iovec iov[600], pieces[16];
    uint8_t headers[VW_NET_SEGMENT_HEADERS];
    uint8_t *memory;
    size_t used;

    (void)state;
    recipe_make(&whole, &plain);
    struct virtio_net_hdr_v1 wire = recipe_header(&plain, &whole, 170);
    struct vw_net_header header = decoded(&wire);
    size_t count = pieces_of(&whole, 10, iov, &memory);
    assert_int_equal(vw_net_segment_begin(&segmenter, &header, iov, count, (uint32_t)whole.length),
                     0);
    assert_int_equal(vw_net_segment_make(&segmenter, headers, pieces, 16, &used), 0);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_frame),
        cmocka_unit_test(lengths_around_whole_segments),
        cmocka_unit_test(flags_of_first_and_last_segment),
        cmocka_unit_test(a_udp_checksum_of_zero),
        cmocka_unit_test(a_wrong_pseudo_header_sum_does_not_matter),
        cmocka_unit_test(frames_that_are_not_what_their_header_says),
        cmocka_unit_test(too_many_pieces),
    };

    recipe_fill(payload, sizeof(payload), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
