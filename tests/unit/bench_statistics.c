/* SPDX-License-Identifier: BSD-3-Clause */
/* The statistics of the bench, against values from the literature. */
#include "bench/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NEAR(value, known, digits) assert_true(fabs((value) - (known)) <= 0.5 * pow(10, -(digits)))

/*
 * Hours of sleep gained with two drugs by ten patients: "Student" (W. S. Gosset), The probable
 * error of a mean, Biometrika 6 (1908), the data set `sleep` of R. What R 4 says of it:
 * t.test(extra ~ group) and, of the differences, t.test(..., paired = TRUE).
 */
static const double drug_1[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
static const double drug_2[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

static void test_welch_is_that_of_r_on_students_sleep_data(void **state)
{
    struct bench_difference difference;

    (void)state;
    bench_compare(drug_1, COUNT(drug_1), drug_2, COUNT(drug_2), &difference);
    NEAR(difference.difference, 2.33 - 0.75, 9);
    NEAR(difference.t, 1.8608, 4);
    NEAR(difference.degrees_of_freedom, 17.776, 3);
    NEAR(difference.p, 0.07939, 5);
    NEAR(difference.low, -0.2054832, 7);
    NEAR(difference.high, 3.3654832, 7);
    NEAR(difference.percent, 100 * 1.58 / 0.75, 6);
    assert_false(difference.significant);
}

static void test_interval_of_a_mean_is_that_of_r(void **state)
{
    double differences[COUNT(drug_1)];
    struct bench_summary summary;

    (void)state;
    for (size_t i = 0; i < COUNT(drug_1); i++)
        differences[i] = drug_1[i] - drug_2[i];
    bench_summarize(differences, COUNT(differences), &summary);
    assert_int_equal(summary.count, 10);
    NEAR(summary.mean, -1.58, 9);
    NEAR(summary.low, -2.4598858, 7);
    NEAR(summary.high, -0.7001142, 7);
    NEAR(summary.median, -1.3, 9);
}

/* NIST Statistical Reference Datasets, univariate, NumAcc1: hard for who adds squares up. */
static void test_deviation_of_numacc1(void **state)
{
    static const double values[] = {10000001, 10000003, 10000002};
    struct bench_summary summary;

    (void)state;
    bench_summarize(values, COUNT(values), &summary);
    NEAR(summary.mean, 10000002, 9);
    NEAR(summary.deviation, 1, 9);
    NEAR(summary.deviation_percent, 1e-5, 11);
}

/* Type 7 of Hyndman and Fan, Sample quantiles in statistical packages (1996), R's default. */
static void test_percentiles_are_those_of_r(void **state)
{
    static const double values[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 10};
    static const double four[] = {4, 2, 3, 1};

    (void)state;
    NEAR(bench_percentile(values, 10, 0.9), 9.1, 9);
    NEAR(bench_percentile(values, 10, 0.99), 9.91, 9);
    NEAR(bench_percentile(values, 10, 0), 1, 9);
    NEAR(bench_percentile(values, 10, 1), 10, 9);
    NEAR(bench_percentile(four, 4, 0.25), 1.75, 9);
    NEAR(bench_median(four, 4), 2.5, 9);
    NEAR(bench_median(four, 1), 4, 9);
    assert_true(isnan(bench_median(four, 0)));
}

static void test_a_clear_difference_is_significant(void **state)
{
    static const double before[] = {100, 101, 99, 100}, after[] = {110, 111, 109, 110};
    struct bench_difference difference;

    (void)state;
    bench_compare(before, 4, after, 4, &difference);
    assert_true(difference.significant);
    assert_true(difference.low > 0 && difference.high < 20);
    NEAR(difference.percent, 10, 9);
}

static void test_too_few_samples_tell_nothing(void **state)
{
    static const double one[] = {1}, two[] = {5, 6};
    struct bench_difference difference;
    struct bench_summary summary;

    (void)state;
    bench_compare(one, 1, two, 2, &difference);
    assert_false(difference.significant);
    assert_true(isnan(difference.p) && isnan(difference.low));
    bench_compare(two, 0, two, 2, &difference);
    assert_false(difference.significant);
    bench_summarize(one, 1, &summary);
    assert_true(summary.mean == 1 && isnan(summary.deviation) && isnan(summary.low));
    bench_summarize(one, 0, &summary);
    assert_true(isnan(summary.mean) && isnan(summary.median));
}

/* Counts may be the same in every round. */
static void test_samples_without_deviation(void **state)
{
    static const double before[] = {19, 19, 19}, after[] = {5, 5, 5};
    struct bench_difference difference;

    (void)state;
    bench_compare(before, 3, after, 3, &difference);
    assert_true(difference.significant && difference.low == -14 && difference.high == -14);
    bench_compare(before, 3, before, 3, &difference);
    assert_false(difference.significant);
    assert_true(difference.p == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_welch_is_that_of_r_on_students_sleep_data),
        cmocka_unit_test(test_interval_of_a_mean_is_that_of_r),
        cmocka_unit_test(test_deviation_of_numacc1),
        cmocka_unit_test(test_percentiles_are_those_of_r),
        cmocka_unit_test(test_a_clear_difference_is_significant),
        cmocka_unit_test(test_too_few_samples_tell_nothing),
        cmocka_unit_test(test_samples_without_deviation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
