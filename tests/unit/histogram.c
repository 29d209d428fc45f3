/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/histogram.h"

static struct vw_histogram histogram;

static int begin(void **unused)
{
    (void)unused;
    memset(&histogram, 0, sizeof(histogram));
    return 0;
}

/* Numbers of buckets grow with the values, by one at a time, up to the last. */
static void buckets_cover_all_values_in_order(void **unused)
{
    (void)unused;
    assert_int_equal(vw_histogram_bucket(0), 0);
    assert_int_equal(vw_histogram_bucket(UINT64_MAX), VW_HISTOGRAM_BUCKETS - 1);
    for (unsigned bit = 1; bit < 64; bit++) {
        uint64_t power = UINT64_C(1) << bit;

        assert_int_equal(vw_histogram_bucket(power), vw_histogram_bucket(power - 1) + 1);
    }
    for (unsigned i = 0; i < VW_HISTOGRAM_BUCKETS; i++)
        assert_int_equal(vw_histogram_bucket(vw_histogram_value(i)), i);
}

static void a_value_is_told_to_one_in_sixty(void **unused)
{
    (void)unused;
    for (uint64_t value = 1; value < UINT64_C(1) << 62; value += value / 7 + 1) {
        uint64_t told = vw_histogram_value(vw_histogram_bucket(value));
        uint64_t off = told > value ? told - value : value - told;

        assert_true(off <= value / 60);
    }
}

static void percentiles_are_those_of_the_values(void **unused)
{
    (void)unused;
    assert_int_equal(vw_histogram_percentile(&histogram, 50), 0);
    for (unsigned value = 1; value <= 30; value++)
        vw_histogram_add(&histogram, value);
    assert_int_equal(vw_histogram_count(&histogram), 30);
    assert_int_equal(vw_histogram_percentile(&histogram, 1), 1);
    assert_int_equal(vw_histogram_percentile(&histogram, 50), 15);
    assert_int_equal(vw_histogram_percentile(&histogram, 51), 16);
    assert_int_equal(vw_histogram_percentile(&histogram, 100), 30);
}

static void one_far_value_in_a_hundred_is_beyond_p99(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 99; i++)
        vw_histogram_add(&histogram, 7);
    vw_histogram_add(&histogram, 1000000);
    assert_int_equal(vw_histogram_percentile(&histogram, 99), 7);
    vw_histogram_add(&histogram, 1000000);
    assert_in_range(vw_histogram_percentile(&histogram, 99), 984000, 1016000);
}

static void a_copy_taken_away_leaves_what_came_after_it(void **unused)
{
    static struct vw_histogram before, sum;

    (void)unused;
    memset(&before, 0, sizeof(before));
    memset(&sum, 0, sizeof(sum));
    vw_histogram_add(&histogram, 3);
    vw_histogram_merge(&before, &histogram);
    vw_histogram_add(&histogram, 9);
    vw_histogram_add(&histogram, 9);
    vw_histogram_merge(&sum, &histogram);
    vw_histogram_subtract(&sum, &before);
    assert_int_equal(vw_histogram_count(&sum), 2);
    assert_int_equal(vw_histogram_percentile(&sum, 1), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(buckets_cover_all_values_in_order, begin),
        cmocka_unit_test_setup(a_value_is_told_to_one_in_sixty, begin),
        cmocka_unit_test_setup(percentiles_are_those_of_the_values, begin),
        cmocka_unit_test_setup(one_far_value_in_a_hundred_is_beyond_p99, begin),
        cmocka_unit_test_setup(a_copy_taken_away_leaves_what_came_after_it, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
