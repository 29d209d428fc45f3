/* SPDX-License-Identifier: BSD-3-Clause */
/* Which limits a load gets, and how they change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/moderation.h"

#define MS UINT64_C(1000)

/* Samples of 10 ms at a rate, until nothing changes; returns how many changed something. */
static unsigned settle(struct vw_moderation *moderation, uint64_t rate)
{
    unsigned changes = 0;

    for (unsigned i = 0; i < 50; i++)
        changes += vw_moderation_sample(moderation, rate / 100, 10 * MS);
    assert_false(vw_moderation_sample(moderation, rate / 100, 10 * MS));
    return changes;
}

static void each_load_has_its_level(void **unused)
{
    static const struct {
        uint64_t rate;
        unsigned level;
    } loads[] = {{0, 0},      {100, 0},    {49900, 0},  {50000, 1},   {149900, 1},  {150000, 2},
                 {399900, 2}, {400000, 3}, {999900, 3}, {1000000, 4}, {20000000, 4}};

    (void)unused;
    for (unsigned i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        struct vw_moderation moderation = {0};

        assert_int_equal(settle(&moderation, loads[i].rate), loads[i].level);
        assert_int_equal(moderation.level, loads[i].level);
    }
}

static void limits_grow_with_the_level(void **unused)
{
    (void)unused;
    assert_int_equal(vw_moderation_limits(0)->max_packets, 0);
    assert_int_equal(vw_moderation_limits(0)->max_usecs, 0);
    for (unsigned level = 1; level < VW_MODERATION_LEVELS; level++) {
        const struct vw_net_coalescing *limits = vw_moderation_limits(level);

        assert_true(limits->max_packets > vw_moderation_limits(level - 1)->max_packets);
        assert_true(limits->max_usecs > vw_moderation_limits(level - 1)->max_usecs);
        assert_true(limits->max_usecs < 1000);
    }
    assert_int_equal(vw_moderation_limits(VW_MODERATION_LEVELS)->max_packets, 0);
    assert_int_equal(vw_moderation_limits(UINT32_MAX)->max_packets, 0);
}

/* Up: one level at a time, after two samples each. Down: at once, and as far as the rate says. */
static void up_slowly_down_at_once(void **unused)
{
    struct vw_moderation moderation = {0};

    (void)unused;
    for (unsigned level = 1; level < VW_MODERATION_LEVELS; level++) {
        assert_false(vw_moderation_sample(&moderation, 50000, 10 * MS));
        assert_true(vw_moderation_sample(&moderation, 50000, 10 * MS));
        assert_int_equal(moderation.level, level);
    }
    assert_true(vw_moderation_sample(&moderation, 1, 10 * MS));
    assert_int_equal(moderation.level, 0);
    /* One burst among quiet samples changes nothing. */
    for (unsigned i = 0; i < 100; i++)
        assert_false(vw_moderation_sample(&moderation, i % 2 ? 50000 : 1, 10 * MS));
}

/* A rate that flickers about a level's own stays at it. */
static void a_flicker_changes_nothing(void **unused)
{
    struct vw_moderation moderation = {0};

    (void)unused;
    settle(&moderation, 420000);
    assert_int_equal(moderation.level, 3);
    for (unsigned i = 0; i < 100; i++)
        assert_false(vw_moderation_sample(&moderation, i % 2 ? 4400 : 3100, 10 * MS));
    assert_true(vw_moderation_sample(&moderation, 2900, 10 * MS)); /* below three quarters */
    assert_int_equal(moderation.level, 2);
}

static void odd_samples(void **unused)
{
    struct vw_moderation moderation = {0};

    (void)unused;
    assert_false(vw_moderation_sample(&moderation, 1000, 0));
    assert_false(vw_moderation_sample(&moderation, UINT64_MAX, 1));
    assert_true(vw_moderation_sample(&moderation, UINT64_MAX, 1));
    assert_true(vw_moderation_sample(&moderation, UINT64_MAX, UINT64_MAX));
    assert_int_equal(moderation.level, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_load_has_its_level),
        cmocka_unit_test(limits_grow_with_the_level),
        cmocka_unit_test(up_slowly_down_at_once),
        cmocka_unit_test(a_flicker_changes_nothing),
        cmocka_unit_test(odd_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
