/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/statistics.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

#define SIGNIFICANCE 0.05

static int compare_numbers(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;

    return (difference > 0) - (difference < 0);
}

double bench_percentile(const double *values, size_t count, double share)
{
    double *sorted, place, result;
    size_t below;

    if (count == 0)
        return NAN;
    sorted = bench_allocate(count * sizeof(*sorted));
    memcpy(sorted, values, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_numbers);
    place = fmin(fmax(share, 0), 1) * (double)(count - 1);
    below = (size_t)place;
    result = sorted[below];
    if (below + 1 < count)
        result += (sorted[below + 1] - sorted[below]) * (place - (double)below);
    free(sorted);
    return result;
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count > 0 ? sum / (double)count : NAN;
}

/* Of the sample. */
static double variance_of(const double *values, size_t count, double mean)
{
    double sum = 0;

    if (count < 2)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return sum / (double)(count - 1);
}

/* How many standard errors the 95 % interval reaches to either side. */
static double reach(double degrees_of_freedom)
{
    return gsl_cdf_tdist_Qinv(SIGNIFICANCE / 2, degrees_of_freedom);
}

void bench_summarize(const double *values, size_t count, struct bench_summary *summary)
{
    double half = NAN;

    *summary = (struct bench_summary){.count = count};
    summary->median = bench_median(values, count);
    summary->mean = mean_of(values, count);
    summary->deviation = sqrt(variance_of(values, count, summary->mean));
    summary->deviation_percent = summary->mean != 0 ? 100 * summary->deviation / summary->mean
                                 : summary->deviation == 0 ? 0
                                                           : NAN;
    if (count >= 2)
        half = reach((double)(count - 1)) * summary->deviation / sqrt((double)count);
    summary->low = summary->mean - half;
    summary->high = summary->mean + half;
}

void bench_compare(const double *before, size_t before_count, const double *after,
                   size_t after_count, struct bench_difference *result)
{
    double mean_before = mean_of(before, before_count), mean_after = mean_of(after, after_count);
    /* squared standard errors of the means */
    double b = variance_of(before, before_count, mean_before) / (double)before_count;
    double a = variance_of(after, after_count, mean_after) / (double)after_count;
    double half = NAN;

    result->difference = mean_after - mean_before;
    result->t = result->degrees_of_freedom = result->p = NAN;
    if (a + b > 0) {
        /* Welch and Satterthwaite */
        result->degrees_of_freedom =
            (a + b) * (a + b) /
            (a * a / (double)(after_count - 1) + b * b / (double)(before_count - 1));
        result->t = result->difference / sqrt(a + b);
        result->p = 2 * gsl_cdf_tdist_Q(fabs(result->t), result->degrees_of_freedom);
        half = reach(result->degrees_of_freedom) * sqrt(a + b);
    } else if (a + b == 0) {
        result->p = result->difference != 0 ? 0 : 1;
        half = 0;
    }
    result->significant = result->p < SIGNIFICANCE;
    result->low = result->difference - half;
    result->high = result->difference + half;
    result->percent = 100 * result->difference / mean_before;
    result->low_percent = 100 * result->low / mean_before;
    result->high_percent = 100 * result->high / mean_before;
}
