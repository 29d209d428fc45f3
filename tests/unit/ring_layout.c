/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes, places and the arithmetic of notifications. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "ring/notify.h"

static void test_area_sizes(void **state)
{
    (void)state;
    assert_int_equal(vw_ring_area_size(VW_RING_SPLIT, VW_RING_DESCRIPTOR_AREA, 256), 4096);
    assert_int_equal(vw_ring_area_size(VW_RING_SPLIT, VW_RING_DRIVER_AREA, 256), 6 + 512);
    assert_int_equal(vw_ring_area_size(VW_RING_SPLIT, VW_RING_DEVICE_AREA, 256), 6 + 2048);
    assert_int_equal(vw_ring_area_size(VW_RING_SPLIT, VW_RING_DEVICE_AREA, 32768), 262150);
    assert_int_equal(vw_ring_area_size(VW_RING_PACKED, VW_RING_DESCRIPTOR_AREA, 255), 4080);
    assert_int_equal(vw_ring_area_size(VW_RING_PACKED, VW_RING_DRIVER_AREA, 255), 4);
    assert_int_equal(vw_ring_area_size(VW_RING_PACKED, VW_RING_DEVICE_AREA, 255), 4);
    assert_int_equal(vw_ring_area_alignment(VW_RING_SPLIT, VW_RING_DESCRIPTOR_AREA), 16);
    assert_int_equal(vw_ring_area_alignment(VW_RING_SPLIT, VW_RING_DRIVER_AREA), 2);
    assert_int_equal(vw_ring_area_alignment(VW_RING_SPLIT, VW_RING_DEVICE_AREA), 4);
    assert_int_equal(vw_ring_area_alignment(VW_RING_PACKED, VW_RING_DESCRIPTOR_AREA), 16);
    assert_int_equal(vw_ring_area_alignment(VW_RING_PACKED, VW_RING_DRIVER_AREA), 4);
    assert_int_equal(vw_ring_area_alignment(VW_RING_PACKED, VW_RING_DEVICE_AREA), 4);
}

static void test_valid_sizes(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 32768; size *= 2)
        assert_true(vw_ring_size_valid(VW_RING_SPLIT, size));
    assert_false(vw_ring_size_valid(VW_RING_SPLIT, 0));
    assert_false(vw_ring_size_valid(VW_RING_SPLIT, 255));
    assert_false(vw_ring_size_valid(VW_RING_SPLIT, 65536));
    assert_true(vw_ring_size_valid(VW_RING_PACKED, 1));
    assert_true(vw_ring_size_valid(VW_RING_PACKED, 5));
    assert_true(vw_ring_size_valid(VW_RING_PACKED, 32768));
    assert_false(vw_ring_size_valid(VW_RING_PACKED, 0));
    assert_false(vw_ring_size_valid(VW_RING_PACKED, 32769));
}

static void test_init_refuses(void **state)
{
    static const enum vw_ring_format formats[] = {VW_RING_SPLIT, VW_RING_PACKED};
    struct world *world = world_open(65536, 0, 0);

    (void)state;
    for (unsigned f = 0; f < 2; f++) {
        struct vw_driver_ring driver;
        struct vw_device_ring device;
        struct pair pair;

        pair_start(&pair, world, formats[f], 8, 0, 0);
        struct vw_ring_config bad[] = {pair.driver_config, pair.driver_config, pair.driver_config,
                                       pair.driver_config, pair.driver_config};
        bad[0].size = formats[f] == VW_RING_SPLIT ? 7 : 32769;
        bad[1].descriptor_area = (char *)bad[1].descriptor_area + 8;
        bad[2].driver_area = (char *)bad[2].driver_area + 1;
        bad[3].device_area = (char *)bad[3].device_area + 2;
        bad[4].device_area = NULL;
        for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
            assert_int_equal(vw_device_ring_init(&device, &bad[i], &world->memory), -EINVAL);
            assert_int_equal(vw_driver_ring_init(&driver, &bad[i], pair.state, NULL), -EINVAL);
        }
        assert_int_equal(
            vw_driver_ring_init(&driver, &pair.driver_config, (char *)pair.state + 4, NULL),
            -EINVAL);
        pair_stop(&pair);
    }
    world_close(world);
}

static void test_error_texts(void **state)
{
    (void)state;
    for (int i = 0; i < VW_RING_ERROR_COUNT; i++) {
        const char *text = vw_ring_error_text((enum vw_ring_error)i);

        assert_non_null(text);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(text, vw_ring_error_text((enum vw_ring_error)j));
    }
    assert_string_equal(vw_ring_error_text(VW_RING_ERROR_COUNT), "unknown error");
}

/* The event lies in [old, new) modulo 65536: compared with a count along the way. */
static void test_need_event(void **state)
{
    static const uint16_t starts[] = {0, 1, 65530, 65535, 32767, 32768};
    static const uint16_t lengths[] = {0, 1, 2, 10, 256, 32768, 65535};

    (void)state;
    for (unsigned s = 0; s < VW_ARRAY_SIZE(starts); s++) {
        for (unsigned l = 0; l < VW_ARRAY_SIZE(lengths); l++) {
            uint16_t old = starts[s], new = (uint16_t)(old + lengths[l]);

            for (int distance = -3; distance < lengths[l] + 3; distance++) {
                bool inside = distance >= 0 && distance < lengths[l];

                if (lengths[l] == 65535 && (distance < 0 || distance >= 65535))
                    continue; /* the same place as one inside */
                assert_int_equal(vw_need_event((uint16_t)(old + distance), new, old), inside);
            }
        }
    }
    assert_true(vw_need_event(65535, 4, 65530));
    assert_true(vw_need_event(3, 4, 65530));
    assert_false(vw_need_event(4, 4, 65530));
    assert_false(vw_need_event(65529, 4, 65530));
}

/* For every place and batch of a ring of 5, the event is in the batch or it is not. */
static void test_packed_need_event(void **state)
{
    const uint32_t size = 5;

    (void)state;
    for (uint32_t start = 0; start < 2 * size; start++) {
        for (uint32_t moved = 1; moved <= size; moved++) {
            uint16_t position = (uint16_t)(start % size);
            bool wrap = start < size;

            vw_packed_advance(&position, &wrap, moved, size);
            for (uint32_t ahead = 0; ahead < size; ahead++) {
                uint16_t place = (uint16_t)(start % size);
                bool place_wrap = start < size;
                uint32_t area;

                vw_packed_advance(&place, &place_wrap, ahead, size);
                vw_packed_event_store(&area, vw_packed_encode(place, place_wrap),
                                      VRING_PACKED_EVENT_FLAG_DESC);
                assert_int_equal(vw_packed_need_event(&area, size, position, wrap, moved, true),
                                 ahead < moved);
            }
        }
    }
}

static void test_packed_event_flags(void **state)
{
    uint32_t area;

    (void)state;
    vw_packed_event_store(&area, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    assert_true(vw_packed_need_event(&area, 8, 4, true, 1, true));
    vw_packed_event_store(&area, 3, VRING_PACKED_EVENT_FLAG_DISABLE);
    assert_false(vw_packed_need_event(&area, 8, 4, true, 1, true));
    /* A place without EVENT_IDX, and the reserved value, ask for every notification. */
    vw_packed_event_store(&area, 0x8000 | 7, VRING_PACKED_EVENT_FLAG_DESC);
    assert_false(vw_packed_need_event(&area, 8, 4, true, 1, true));
    assert_true(vw_packed_need_event(&area, 8, 4, true, 1, false));
    vw_packed_event_store(&area, 0x8000 | 7, 3);
    assert_true(vw_packed_need_event(&area, 8, 4, true, 1, true));
    /* The two halves of the structure lie where the specification puts them (2.8.14). */
    vw_packed_event_store(&area, 0x8123, VRING_PACKED_EVENT_FLAG_DESC);
    const struct vring_packed_desc_event *event = (const void *)&area;
    assert_int_equal(le16toh(event->off_wrap), 0x8123);
    assert_int_equal(le16toh(event->flags), 2);
}

static void test_packed_places(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 7; size++) {
        uint16_t position = 0;
        bool wrap = true;
        uint32_t total = 0;

        for (uint32_t step = 0; step <= size; step++) {
            uint16_t back = position;
            bool back_wrap = wrap;

            vw_packed_advance(&position, &wrap, step, size);
            total += step;
            assert_int_equal(position, total % size);
            assert_int_equal(wrap, (total / size) % 2 == 0);
            uint16_t again = position;
            bool again_wrap = wrap;
            vw_packed_rewind(&again, &again_wrap, step, size);
            assert_int_equal(again, back);
            assert_int_equal(again_wrap, back_wrap);
        }
    }
    assert_int_equal(vw_packed_encode(0, true), 0x8000);
    assert_int_equal(vw_packed_encode(32767, false), 0x7fff);
}

/* A ring of zeros, as it is before first use, holds nothing available and nothing used. */
static void test_packed_ownership(void **state)
{
    (void)state;
    assert_false(vw_packed_is_available(0, true));
    assert_false(vw_packed_is_used(0, true));
    for (int wrap = 0; wrap < 2; wrap++) {
        assert_true(vw_packed_is_available(vw_packed_available_bits(wrap), wrap));
        assert_false(vw_packed_is_available(vw_packed_available_bits(wrap), !wrap));
        assert_false(vw_packed_is_used(vw_packed_available_bits(wrap), wrap));
        assert_false(vw_packed_is_used(vw_packed_available_bits(wrap), !wrap));
        assert_true(vw_packed_is_used(vw_packed_used_bits(wrap), wrap));
        assert_false(vw_packed_is_used(vw_packed_used_bits(wrap), !wrap));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_area_sizes),         cmocka_unit_test(test_valid_sizes),
        cmocka_unit_test(test_init_refuses),       cmocka_unit_test(test_error_texts),
        cmocka_unit_test(test_need_event),         cmocka_unit_test(test_packed_need_event),
        cmocka_unit_test(test_packed_event_flags), cmocka_unit_test(test_packed_places),
        cmocka_unit_test(test_packed_ownership),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
