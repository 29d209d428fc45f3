/* SPDX-License-Identifier: BSD-3-Clause */
/* Gaps of known lengths, on a clock that the test turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/linger.h"

#define LIMIT 1000000 /* long against a wake-up */

struct clock {
    uint64_t now;
    uint64_t looks; /* that were made while lingering */
    unsigned found, vain;
};

/* Work runs out, and comes again after `gap`, as a worker sees it. */
static void live(struct vw_linger *linger, struct clock *clock, uint64_t gap)
{
    uint64_t end = clock->now + gap;

    while (clock->now < end) {
        if (vw_linger_goes_on(linger, clock->now)) {
            clock->looks++;
            clock->now += LIMIT / 100;
        } else {
            clock->vain += vw_linger_sleeps(linger);
            clock->now = end + VW_LINGER_WAKE_NS;
        }
    }
    clock->found += vw_linger_found(linger, clock->now);
    clock->now += 12345;
}

static struct clock live_often(struct vw_linger *linger, unsigned times, uint64_t gap)
{
    struct clock clock = {.now = 1};

    for (unsigned i = 0; i < times; i++)
        live(linger, &clock, gap);
    return clock;
}

static void short_gaps_are_spun_through(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, LIMIT);
    struct clock clock = live_often(&linger, 100, LIMIT / 2);
    assert_int_equal(clock.found, 100);
    assert_int_equal(clock.vain, 0);
}

static void long_gaps_are_soon_slept_through(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, LIMIT);
    struct clock clock = live_often(&linger, 100, 10 * LIMIT);
    assert_int_equal(clock.found, 0);
    assert_in_range(clock.vain, 1, 8);
    assert_in_range(clock.looks, 1, 8 * 100);
}

static void it_learns_that_gaps_have_become_short(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, LIMIT);
    live_often(&linger, 1000, 10 * LIMIT);
    assert_false(vw_linger_pays(&linger));
    struct clock clock = live_often(&linger, 100, LIMIT / 2);
    assert_true(vw_linger_pays(&linger));
    assert_in_range(clock.found, 90, 100);
}

/* The sleep itself makes a gap longer: that must not keep it asleep. */
static void the_wake_up_is_taken_off_a_gap(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, VW_LINGER_WAKE_NS);
    live_often(&linger, 1000, 10 * LIMIT);
    live_often(&linger, 100, VW_LINGER_WAKE_NS / 2);
    assert_true(vw_linger_pays(&linger));
}

static void one_long_gap_among_short_ones_changes_nothing(void **unused)
{
    struct vw_linger linger;
    struct clock clock = {.now = 1};

    (void)unused;
    vw_linger_init(&linger, LIMIT);
    for (unsigned i = 0; i < 100; i++) {
        live(&linger, &clock, LIMIT / 4);
        live(&linger, &clock, LIMIT / 4);
        live(&linger, &clock, 20 * LIMIT);
    }
    assert_int_equal(clock.found, 200);
    assert_int_equal(clock.vain, 100);
}

static void a_sleep_that_ends_without_work_is_not_spun_after(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, LIMIT);
    assert_true(vw_linger_goes_on(&linger, 1));
    assert_false(vw_linger_goes_on(&linger, 1 + LIMIT));
    assert_true(vw_linger_sleeps(&linger));
    assert_false(vw_linger_goes_on(&linger, 2 + LIMIT));
    assert_false(vw_linger_sleeps(&linger));
    assert_false(vw_linger_found(&linger, 3 + LIMIT));
    assert_true(vw_linger_goes_on(&linger, 4 + LIMIT));
}

static void without_a_limit_it_never_lingers(void **unused)
{
    struct vw_linger linger;

    (void)unused;
    vw_linger_init(&linger, 0);
    struct clock clock = live_often(&linger, 10, 1);
    assert_int_equal(clock.looks, 0);
    assert_int_equal(clock.vain, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_gaps_are_spun_through),
        cmocka_unit_test(long_gaps_are_soon_slept_through),
        cmocka_unit_test(it_learns_that_gaps_have_become_short),
        cmocka_unit_test(the_wake_up_is_taken_off_a_gap),
        cmocka_unit_test(one_long_gap_among_short_ones_changes_nothing),
        cmocka_unit_test(a_sleep_that_ends_without_work_is_not_spun_after),
        cmocka_unit_test(without_a_limit_it_never_lingers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
