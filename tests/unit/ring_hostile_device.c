/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver half against a device that lies about what it used. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "ring/descriptor.h"

#define SIZE 8
#define IN_ORDER vw_bit(VIRTIO_F_IN_ORDER)

/* The device half is not used: its entries are written by hand. */
struct bench {
    struct world *world;
    struct pair pair;
    struct vw_completion completions[SIZE];
    char tokens[SIZE];
    uint16_t used; /* split: index; packed: position */
    bool wrap;
};

static void bench_open(struct bench *bench, enum vw_ring_format format, uint64_t features)
{
    memset(bench, 0, sizeof(*bench));
    bench->world = world_open(65536, 0, 0);
    pair_start(&bench->pair, bench->world, format, SIZE, features, 0);
    bench->wrap = true;
    /* Buffers of 0, 64 and 64 writable bytes in 1, 2 and 1 entries: ids 0, 1 and 3 or 2. */
    for (unsigned i = 0; i < 3; i++) {
        const struct vw_segment segments[] = {{WORLD_GUEST, 64}, {WORLD_GUEST, 64}};

        assert_int_equal(
            vw_driver_ring_add(&bench->pair.driver, segments, i<2, i> 0, &bench->tokens[i]), 0);
    }
    vw_driver_ring_publish(&bench->pair.driver);
}

static void bench_close(struct bench *bench)
{
    pair_stop(&bench->pair);
    world_close(bench->world);
}

static bool packed(const struct bench *bench)
{
    return bench->pair.driver_config.format == VW_RING_PACKED;
}

/* Writes a used entry; `slots`: how many ring entries a packed ring skips after it. */
static void put_used(struct bench *bench, uint32_t id, uint32_t length, uint16_t slots)
{
    if (packed(bench)) {
        struct vring_packed_desc *ring = bench->pair.driver_config.descriptor_area;
        uint16_t flags = vw_packed_used_bits(bench->wrap) | VRING_DESC_F_WRITE;

        ring[bench->used] =
            (struct vring_packed_desc){.len = length, .id = (uint16_t)id, .flags = flags};
        vw_packed_advance(&bench->used, &bench->wrap, slots, SIZE);
    } else {
        struct vring_used *used = bench->pair.driver_config.device_area;

        used->ring[bench->used % SIZE].id = id;
        used->ring[bench->used % SIZE].len = length;
        used->idx = ++bench->used;
    }
}

static void expect_broken(struct bench *bench, uint32_t good, enum vw_ring_error error)
{
    const struct vw_segment segment = {WORLD_GUEST, 64};
    struct vw_driver_ring *ring = &bench->pair.driver;
    unsigned detached = 0;

    assert_int_equal(vw_driver_ring_reap(ring, bench->completions, SIZE), good);
    assert_int_equal(ring->error, error);
    assert_int_equal(vw_driver_ring_reap(ring, bench->completions, SIZE), 0);
    assert_int_equal(vw_driver_ring_add(ring, &segment, 1, 0, ring), -EIO);
    assert_false(vw_driver_ring_publish(ring));
    assert_true(vw_driver_ring_enable_calls(ring));
    assert_true(vw_driver_ring_enable_calls_delayed(ring));
    assert_false(vw_driver_ring_poll(ring, 0));
    vw_driver_ring_disable_calls(ring);
    while (vw_driver_ring_detach(ring))
        detached++;
    assert_int_equal(detached, 3 - good);
}

#define FORMATS(format)                                                                            \
    for (enum vw_ring_format format = VW_RING_SPLIT; format <= VW_RING_PACKED; format++)

static void test_unknown_id(void **state)
{
    (void)state;
    FORMATS(format)
    {
        static const uint32_t ids[] = {SIZE, SIZE + 1, 7, 255, 32768, 65535};

        for (unsigned i = 0; i < VW_ARRAY_SIZE(ids); i++) {
            for (unsigned order = 0; order < 2; order++) {
                struct bench bench;

                bench_open(&bench, format, order ? IN_ORDER : 0);
                put_used(&bench, 0, 0, 1);
                put_used(&bench, ids[i], 0, 1);
                expect_broken(&bench, 1, VW_RING_BAD_USED_ID);
                bench_close(&bench);
            }
        }
    }
}

/* A split ring's id has 32 bits: the upper ones are not to be dropped. */
static void test_wide_id(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, VW_RING_SPLIT, 0);
    put_used(&bench, 0x10000, 0, 1);
    expect_broken(&bench, 0, VW_RING_BAD_USED_ID);
    bench_close(&bench);
}

static void test_repeated_id(void **state)
{
    (void)state;
    FORMATS(format)
    {
        for (unsigned order = 0; order < 2; order++) {
            struct bench bench;

            bench_open(&bench, format, order ? IN_ORDER : 0);
            put_used(&bench, 0, 0, 1);
            put_used(&bench, 0, 0, 1);
            expect_broken(&bench, 1, VW_RING_BAD_USED_ID);
            bench_close(&bench);
        }
    }
}

/* A descriptor in the middle of a chain is no buffer. */
static void test_middle_of_chain(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 2; order++) {
        struct bench bench;

        bench_open(&bench, VW_RING_SPLIT, order ? IN_ORDER : 0);
        put_used(&bench, 2, 0, 1);
        expect_broken(&bench, 0, VW_RING_BAD_USED_ID);
        bench_close(&bench);
    }
}

static void test_length(void **state)
{
    (void)state;
    FORMATS(format)
    {
        static const uint32_t lengths[] = {65, 128, 0x7fffffff, 0x80000000, UINT32_MAX};

        for (unsigned i = 0; i < VW_ARRAY_SIZE(lengths); i++) {
            for (unsigned order = 0; order < 2; order++) {
                struct bench bench;

                bench_open(&bench, format, order ? IN_ORDER : 0);
                put_used(&bench, 0, 0, 1);
                put_used(&bench, 1, lengths[i], 2);
                expect_broken(&bench, 1, VW_RING_BAD_USED_LENGTH);
                bench_close(&bench);

                bench_open(&bench, format, order ? IN_ORDER : 0);
                put_used(&bench, 0, lengths[i], 1); /* nothing there may be written */
                expect_broken(&bench, 0, VW_RING_BAD_USED_LENGTH);
                bench_close(&bench);
            }
        }
    }
}

/* Packed: without WRITE the length is not one (2.8.6). */
static void test_length_without_write(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, VW_RING_PACKED, 0);
    struct vring_packed_desc *ring = bench.pair.driver_config.descriptor_area;
    ring[0] =
        (struct vring_packed_desc){.len = 0x80000000, .id = 0, .flags = vw_packed_used_bits(true)};
    assert_int_equal(vw_driver_ring_reap(&bench.pair.driver, bench.completions, SIZE), 1);
    assert_int_equal(bench.completions[0].length, 0);
    assert_int_equal(bench.pair.driver.error, VW_RING_OK);
    bench_close(&bench);
}

static void test_used_index(void **state)
{
    static const uint16_t indices[] = {4, 9, 32768, 65535};

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(indices); i++) {
        for (unsigned order = 0; order < 2; order++) {
            struct bench bench;

            bench_open(&bench, VW_RING_SPLIT, order ? IN_ORDER : 0);
            ((struct vring_used *)bench.pair.driver_config.device_area)->idx = indices[i];
            expect_broken(&bench, 0, VW_RING_BAD_USED_INDEX);
            bench_close(&bench);
        }
    }
}

/* More used than is visible: buffers that are added and not published do not count. */
static void test_unpublished(void **state)
{
    (void)state;
    FORMATS(format)
    {
        const struct vw_segment segment = {WORLD_GUEST, 64};
        struct bench bench;

        bench_open(&bench, format, 0);
        put_used(&bench, 0, 0, 1);
        put_used(&bench, 1, 0, 2);
        put_used(&bench, format == VW_RING_SPLIT ? 3 : 2, 0, 1);
        struct vw_driver_ring *ring = &bench.pair.driver;
        assert_int_equal(vw_driver_ring_reap(ring, bench.completions, SIZE), 3);
        uint16_t id = ring->free_head;
        assert_int_equal(vw_driver_ring_add(ring, &segment, 1, 0, &bench.tokens[0]), 0);
        put_used(&bench, id, 0, 1);
        assert_int_equal(vw_driver_ring_reap(ring, bench.completions, SIZE), 0);
        assert_int_equal(ring->error, VW_RING_BAD_USED_INDEX);
        bench_close(&bench);
    }
}

/* IN_ORDER: a batch may not reach over what is used (split) or available (both). */
static void test_in_order_batch(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, VW_RING_SPLIT, IN_ORDER);
    put_used(&bench, 3, 0, 1); /* three buffers, but the index moved by one */
    expect_broken(&bench, 0, VW_RING_BAD_USED_ID);
    bench_close(&bench);

    FORMATS(format)
    {
        bench_open(&bench, format, IN_ORDER);
        put_used(&bench, format == VW_RING_SPLIT ? 3 : 3, 5, 4);
        if (format == VW_RING_SPLIT)
            ((struct vring_used *)bench.pair.driver_config.device_area)->idx = 3;
        assert_int_equal(vw_driver_ring_reap(&bench.pair.driver, bench.completions, SIZE), 3);
        assert_int_equal(bench.completions[0].length, 0);
        assert_int_equal(bench.completions[1].length, 64); /* skipped: completely used */
        assert_int_equal(bench.completions[2].length, 5);
        for (unsigned i = 0; i < 3; i++)
            assert_ptr_equal(bench.completions[i].token, &bench.tokens[i]);
        bench_close(&bench);
    }
}

/* What the device does to the memory that the driver wrote changes nothing for the driver. */
static void test_shared_memory_overwritten(void **state)
{
    (void)state;
    FORMATS(format)
    {
        struct bench bench;

        bench_open(&bench, format, 0);
        if (format == VW_RING_SPLIT) {
            memset(bench.pair.driver_config.descriptor_area, 0xff, 16 * SIZE);
            memset(bench.pair.driver_config.driver_area, 0xff, 6 + 2 * SIZE);
        } else {
            memset((char *)bench.pair.driver_config.descriptor_area + 16, 0x7f, 16 * SIZE - 16);
            memset(bench.pair.driver_config.driver_area, 0xff, 4);
        }
        put_used(&bench, 1, 64, 2);
        assert_int_equal(vw_driver_ring_reap(&bench.pair.driver, bench.completions, 1), 1);
        assert_ptr_equal(bench.completions[0].token, &bench.tokens[1]);
        assert_int_equal(bench.completions[0].length, 64);
        assert_int_equal(bench.pair.driver.free, SIZE - 2);
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_id),     cmocka_unit_test(test_wide_id),
        cmocka_unit_test(test_repeated_id),    cmocka_unit_test(test_middle_of_chain),
        cmocka_unit_test(test_length),         cmocka_unit_test(test_length_without_write),
        cmocka_unit_test(test_used_index),     cmocka_unit_test(test_unpublished),
        cmocka_unit_test(test_in_order_batch), cmocka_unit_test(test_shared_memory_overwritten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
