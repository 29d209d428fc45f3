/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a handful of samples tells. None of these may be NAN; bench_values leaves those out. No
 * system calls, any thread.
 */
#ifndef VW_BENCH_STATISTICS_H
#define VW_BENCH_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>

/* With no sample all are NAN, with one the deviation and the interval. */
struct bench_summary {
    size_t count;
    double median, mean;
    double deviation;         /* standard deviation of the sample (n - 1) */
    double deviation_percent; /* of the mean */
    double low, high;         /* 95 % confidence interval of the mean (Student's t) */
};

void bench_summarize(const double *values, size_t count, struct bench_summary *summary);

/*
 * Welch's unpaired t-test: is the mean of `after` another than that of `before`? With fewer than
 * two samples on a side nothing is known: not significant, and NAN. If neither side deviates at
 * all, as counts may not, any difference is significant.
 */
struct bench_difference {
    double difference; /* of the means, after - before */
    double low, high;  /* its 95 % confidence interval */
    double percent;    /* the same three, in percent of the mean of `before` */
    double low_percent, high_percent;
    double t, degrees_of_freedom;
    double p;         /* two-sided */
    bool significant; /* p < 0.05 */
};

void bench_compare(const double *before, size_t before_count, const double *after,
                   size_t after_count, struct bench_difference *difference);

/* The value below which `share` (0 to 1) of the values lie, straight between two neighbours. */
double bench_percentile(const double *values, size_t count, double share);

static inline double bench_median(const double *values, size_t count)
{
    return bench_percentile(values, count, 0.5);
}

#endif
