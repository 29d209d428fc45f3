/* SPDX-License-Identifier: BSD-3-Clause */
/* The byte limit of a transmit queue against a device of which we decide what it completes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/limit.h"

#define FRAME 1500u
#define NO_MAXIMUM (UINT64_MAX / 4)

/* Fills the queue as a busy sender does; returns the bytes in flight. */
static uint64_t fill(struct vw_byte_limit *limit)
{
    while (vw_limit_open(limit))
        vw_limit_queue(limit, FRAME);
    return vw_limit_in_flight(limit);
}

static void one_frame_always_passes(void **unused)
{
    struct vw_byte_limit limit;

    (void)unused;
    vw_limit_init(&limit, 0, NO_MAXIMUM, 0);
    assert_true(vw_limit_open(&limit));
    vw_limit_queue(&limit, 65549);
    assert_false(vw_limit_open(&limit));
    vw_limit_complete(&limit, 65549, 0);
    assert_true(vw_limit_open(&limit));
    assert_true(vw_limit_in_flight(&limit) == 0);
}

/* A device that completes all that it has was starved each time: the limit grows until it holds
 * what the device could take, here without end. */
static void a_starved_device_gets_more(void **unused)
{
    struct vw_byte_limit limit;
    uint64_t last = 0;

    (void)unused;
    vw_limit_init(&limit, 0, NO_MAXIMUM, 0);
    for (unsigned round = 0; round < 12; round++) {
        uint64_t in_flight = fill(&limit);

        assert_true(in_flight > last);
        last = in_flight;
        vw_limit_complete(&limit, in_flight, 0);
    }
    assert_true(last > 10 * FRAME);
}

/* Rounds of a device that works off `rate` bytes a round, never all: the limit settles. */
static uint64_t settle(struct vw_byte_limit *limit, uint64_t rate, unsigned rounds, uint64_t *now)
{
    uint64_t in_flight = 0;

    for (unsigned round = 0; round < rounds; round++) {
        in_flight = fill(limit);
        *now += 10;
        vw_limit_complete(limit, rate < in_flight ? rate : in_flight, *now);
    }
    return in_flight;
}

static void the_limit_settles_near_twice_a_round(void **unused)
{
    struct vw_byte_limit limit;
    uint64_t now = 0;

    (void)unused;
    vw_limit_init(&limit, 0, NO_MAXIMUM, now);
    settle(&limit, 30000, 3000, &now);
    uint64_t before = limit.limit;
    assert_true(before >= 30000 && before <= 4 * 30000);
    /* A device that became ten times slower: the surplus goes. */
    settle(&limit, 3000, 3000, &now);
    assert_true(limit.limit >= 3000 && limit.limit <= 4 * 3000);
    /* And faster again. */
    settle(&limit, 30000, 3000, &now);
    assert_true(limit.limit >= 30000 && limit.limit <= 4 * 30000);
}

/* A surplus that did not last is kept. */
static void shrinking_takes_its_time(void **unused)
{
    struct vw_byte_limit limit;

    (void)unused;
    vw_limit_init(&limit, 100000, NO_MAXIMUM, 0);
    limit.minimum = 0;
    for (uint64_t now = 0; now <= VW_LIMIT_HOLD_MS; now += 100) {
        fill(&limit);
        vw_limit_complete(&limit, 10 * FRAME, now);
        assert_true(limit.limit == 100000);
    }
    fill(&limit);
    vw_limit_complete(&limit, 10 * FRAME, VW_LIMIT_HOLD_MS + 1);
    /* Twice a round covers a round, so all above that goes, but for the frame that overruns. */
    assert_true(limit.limit < 100000 && limit.limit >= 2 * 10 * FRAME - FRAME);
}

/* One round without a surplus within the time, and nothing shrinks. */
static void the_least_surplus_counts(void **unused)
{
    struct vw_byte_limit limit;

    (void)unused;
    vw_limit_init(&limit, 100000, NO_MAXIMUM, 0);
    limit.minimum = 0;
    for (uint64_t now = 0; now <= VW_LIMIT_HOLD_MS + 1; now += 100) {
        fill(&limit);
        vw_limit_complete(&limit, now == 500 ? 60000 : 10 * FRAME, now);
        assert_true(limit.limit == 100000);
    }
}

/* A sender slower than its limit has no effect on it. */
static void an_idle_sender_changes_nothing(void **unused)
{
    struct vw_byte_limit limit;

    (void)unused;
    vw_limit_init(&limit, 50000, NO_MAXIMUM, 0);
    limit.minimum = 0;
    for (uint64_t now = 0; now < 10000; now += 10) {
        vw_limit_queue(&limit, FRAME);
        vw_limit_complete(&limit, FRAME, now);
    }
    assert_true(limit.limit == 50000);
}

static void bounds_hold(void **unused)
{
    struct vw_byte_limit limit;
    uint64_t now = 0;

    (void)unused;
    vw_limit_init(&limit, 5000, 20000, 0);
    for (unsigned round = 0; round < 20; round++)
        vw_limit_complete(&limit, fill(&limit), 0);
    assert_true(limit.limit == 20000);
    settle(&limit, 100, 3000, &now);
    assert_true(limit.limit == 5000);
}

static void a_lost_device_leaves_the_limit(void **unused)
{
    struct vw_byte_limit limit;

    (void)unused;
    vw_limit_init(&limit, 0, NO_MAXIMUM, 0);
    for (unsigned round = 0; round < 5; round++)
        vw_limit_complete(&limit, fill(&limit), 0);
    uint64_t found = limit.limit;
    fill(&limit);
    vw_limit_forget(&limit, 0);
    assert_true(limit.limit == found);
    assert_true(vw_limit_in_flight(&limit) == 0);
    assert_true(vw_limit_open(&limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_frame_always_passes),
        cmocka_unit_test(a_starved_device_gets_more),
        cmocka_unit_test(the_limit_settles_near_twice_a_round),
        cmocka_unit_test(shrinking_takes_its_time),
        cmocka_unit_test(the_least_surplus_counts),
        cmocka_unit_test(an_idle_sender_changes_nothing),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(a_lost_device_leaves_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
