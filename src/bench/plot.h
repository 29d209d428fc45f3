/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plot of one metric of an experiment: a group of bars for each cell, one bar for each variant,
 * as long as its median, with its samples as dots and the 95 % confidence interval of the mean as a
 * whisker; to the right of each bar but the first the difference to the first, with its interval.
 *
 * It is an SVG for a page of HTML, whose style sheet gives the colours: see report_style.c.
 */
#ifndef VW_BENCH_PLOT_H
#define VW_BENCH_PLOT_H

#include <stdbool.h>
#include <stdio.h>

#include "bench/report.h"

/* Colours that tell variants apart; the first is that of what the others are compared with. */
#define PLOT_COLOURS 8

/* Writes nothing, and returns false, if the metric was not measured anywhere. `id` is a word of its
 * own in the page. */
bool bench_plot(FILE *to, const struct bench_result *result, enum bench_metric metric,
                const char *id);

#endif
