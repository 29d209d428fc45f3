/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive buffers: which mode, how large, how many descriptors (sections 5.1.6.3, 5.1.6.3.1). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bits.h"
#include "driver/shape.h"
#include "net/uapi.h"

#define F(name) (UINT64_C(1) << VIRTIO_NET_F_##name)

static struct vw_rx_situation situation(uint64_t features, unsigned mtu, unsigned ring_size)
{
    return (struct vw_rx_situation){.features = features,
                                    .guest_offloads = features & ~F(MRG_RXBUF),
                                    .mtu = mtu,
                                    .ring_size = ring_size,
                                    .header_size = 12};
}

static struct vw_rx_shape shape_of(struct vw_rx_situation situation)
{
    struct vw_rx_shape shape;

    assert_int_equal(vw_rx_shape_choose(&situation, &shape), 0);
    return shape;
}

static void the_mode_follows_the_features(void **unused)
{
    (void)unused;
    assert_int_equal(shape_of(situation(0, 1500, 256)).mode, VW_RX_SMALL);
    assert_int_equal(shape_of(situation(F(GUEST_CSUM), 1500, 256)).mode, VW_RX_SMALL);
    assert_int_equal(shape_of(situation(0, 1501, 256)).mode, VW_RX_BIG);
    assert_int_equal(shape_of(situation(F(GUEST_TSO4), 1500, 256)).mode, VW_RX_BIG);
    assert_int_equal(shape_of(situation(F(GUEST_TSO6), 1500, 256)).mode, VW_RX_BIG);
    assert_int_equal(shape_of(situation(F(GUEST_USO4), 1500, 256)).mode, VW_RX_BIG);
    assert_int_equal(shape_of(situation(F(MRG_RXBUF), 1500, 256)).mode, VW_RX_MERGEABLE);
    assert_int_equal(shape_of(situation(F(MRG_RXBUF) | F(GUEST_TSO4), 9000, 256)).mode,
                     VW_RX_MERGEABLE);
}

static void small_buffers_take_a_tagged_frame(void **unused)
{
    struct vw_rx_shape shape = shape_of(situation(0, 1500, 256));

    (void)unused;
    assert_int_equal(shape.bytes, 1530);
    assert_int_equal(shape.descriptors, 1);
    assert_int_equal(vw_rx_shape_capacity(&shape), 1518);
}

/* Five instead of nineteen: 51 buffers in a ring of 256 instead of 13. */
static void big_buffers_are_as_large_as_the_mtu(void **unused)
{
    struct vw_rx_shape shape = shape_of(situation(0, 9000, 256));

    (void)unused;
    assert_int_equal(shape.pages, 3);
    assert_int_equal(shape.descriptors, 5);
    assert_int_equal(256 / shape.descriptors, 51);
    shape = shape_of(situation(F(GUEST_TSO4), 9000, 256));
    assert_int_equal(shape.pages, 17);
    assert_int_equal(shape.descriptors, 19);
    assert_int_equal(256 / shape.descriptors, 13);
}

/* As drivers had it before: the same nineteen for any MTU. */
static void big_buffers_of_the_maximum(void **unused)
{
    const unsigned mtus[] = {68, 1500, 9000, 65535};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(mtus); i++) {
        struct vw_rx_situation now = situation(0, mtus[i], 256);

        now.wanted = VW_RX_BIG;
        now.big = VW_RX_BIG_MAXIMUM;
        assert_int_equal(shape_of(now).pages, 17);
        assert_int_equal(shape_of(now).descriptors, 19);
    }
}

/* A header and each MTU: Ethernet and a tag come on top, and always fit. */
static void big_buffers_take_every_frame_of_their_mtu(void **unused)
{
    (void)unused;
    for (unsigned mtu = 1501; mtu <= 65535; mtu++) {
        struct vw_rx_shape shape = shape_of(situation(0, mtu, 256));

        assert_true(vw_rx_shape_capacity(&shape) >= mtu + 18);
        assert_true(shape.pages == (mtu + 4095) / 4096);
    }
    struct vw_rx_shape shape = shape_of(situation(F(GUEST_TSO6), 1500, 256));
    assert_true(vw_rx_shape_capacity(&shape) >= 14 + 40 + 65535);
}

static void big_buffers_fit_into_the_ring(void **unused)
{
    struct vw_rx_shape shape = shape_of(situation(F(GUEST_TSO4), 1500, 16));
    struct vw_rx_situation tiny = situation(0, 9000, 2);

    (void)unused;
    /* What the ring has no descriptors for is in the last one: no frame finds too little room. */
    assert_int_equal(shape.descriptors, 16);
    assert_int_equal(shape.pages, 17);
    assert_true(vw_rx_shape_capacity(&shape) >= 18 + 65535);
    shape = shape_of(situation(F(GUEST_TSO4), 1500, 4));
    assert_int_equal(shape.descriptors, 4);
    assert_true(vw_rx_shape_capacity(&shape) >= 18 + 65535);
    tiny.wanted = VW_RX_BIG;
    assert_int_equal(vw_rx_shape_choose(&tiny, &shape), -EINVAL);
}

static void offloads_that_are_switched_off_count_no_more(void **unused)
{
    struct vw_rx_situation now = situation(F(GUEST_CSUM) | F(GUEST_TSO4), 9000, 256);

    (void)unused;
    assert_int_equal(shape_of(now).descriptors, 19);
    now.guest_offloads = F(GUEST_CSUM);
    assert_int_equal(shape_of(now).descriptors, 5);
    now.mtu = 1500;
    now.wanted = VW_RX_BIG;
    assert_int_equal(shape_of(now).descriptors, 3);
}

static void forced_modes_must_be_possible(void **unused)
{
    struct vw_rx_situation wanted = situation(0, 1500, 256);
    struct vw_rx_shape shape;

    (void)unused;
    wanted.wanted = VW_RX_MERGEABLE;
    assert_int_equal(vw_rx_shape_choose(&wanted, &shape), -EINVAL);
    wanted.wanted = VW_RX_SMALL;
    assert_int_equal(vw_rx_shape_choose(&wanted, &shape), 0);
    wanted.mtu = 1501;
    assert_int_equal(vw_rx_shape_choose(&wanted, &shape), -EINVAL);
    wanted = situation(F(GUEST_TSO4), 1500, 256);
    wanted.wanted = VW_RX_SMALL;
    assert_int_equal(vw_rx_shape_choose(&wanted, &shape), -EINVAL);
    wanted = situation(F(MRG_RXBUF), 1500, 256);
    wanted.wanted = VW_RX_BIG;
    assert_int_equal(vw_rx_shape_choose(&wanted, &shape), -EINVAL);
}

static void mergeable_buffers_follow_the_average(void **unused)
{
    struct vw_rx_shape shape = shape_of(situation(F(MRG_RXBUF), 1500, 256));
    struct vw_packet_average average = {0};

    (void)unused;
    /* Never less than a usual frame, whole lines, an odd number of them; never more than a page. */
    assert_int_equal(vw_rx_mergeable_bytes(&shape, &average), 1600);
    for (unsigned i = 0; i < 1000; i++)
        vw_average_add(&average, 60);
    assert_int_equal(vw_average_read(&average), 60);
    assert_int_equal(vw_rx_mergeable_bytes(&shape, &average), 1600);
    for (unsigned i = 0; i < 1000; i++)
        vw_average_add(&average, 3000);
    assert_in_range(vw_average_read(&average), 2990, 3000);
    assert_in_range(vw_rx_mergeable_bytes(&shape, &average), 3012, 3012 + 128);
    for (unsigned i = 0; i < 1000; i++)
        vw_average_add(&average, 65000);
    assert_int_equal(vw_rx_mergeable_bytes(&shape, &average), 4096);
}

/* One packet moves the average by a 64th of the difference. */
static void the_average_moves_slowly(void **unused)
{
    struct vw_packet_average average = {0};

    (void)unused;
    vw_average_add(&average, 1000);
    assert_int_equal(vw_average_read(&average), 1000);
    vw_average_add(&average, 1000 + 6400);
    assert_int_equal(vw_average_read(&average), 1100);
    vw_average_add(&average, 0);
    assert_int_equal(vw_average_read(&average), 1082);
}

/* A full ring takes the longest frame, however few buffers there are. */
static void a_full_ring_takes_the_longest_frame(void **unused)
{
    const unsigned sizes[] = {1, 2, 4, 8, 16, 17, 20, 32, 64, 128, 256, 1024};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(sizes); i++) {
        struct vw_rx_shape shape =
            shape_of(situation(F(MRG_RXBUF) | F(GUEST_TSO4), 1500, sizes[i]));
        struct vw_packet_average average = {0};
        uint64_t bytes = (uint64_t)vw_rx_mergeable_bytes(&shape, &average) * sizes[i];

        assert_true(bytes >= 12 + 18 + 65535);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mode_follows_the_features),
        cmocka_unit_test(small_buffers_take_a_tagged_frame),
        cmocka_unit_test(big_buffers_are_as_large_as_the_mtu),
        cmocka_unit_test(big_buffers_of_the_maximum),
        cmocka_unit_test(big_buffers_take_every_frame_of_their_mtu),
        cmocka_unit_test(big_buffers_fit_into_the_ring),
        cmocka_unit_test(offloads_that_are_switched_off_count_no_more),
        cmocka_unit_test(forced_modes_must_be_possible),
        cmocka_unit_test(mergeable_buffers_follow_the_average),
        cmocka_unit_test(the_average_moves_slowly),
        cmocka_unit_test(a_full_ring_takes_the_longest_frame),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
