/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs an experiment: see bench.h for the words.
 *
 * For each cell all variants are opened and warmed up. A round is a slice of each, in an order that
 * rotates, with the round trip of a cache line between the cores measured before, between and after
 * the slices. Two things would pass for a difference between variants, but are none:
 *
 *   - The host moves a virtual machine's cores about, and the same programs may run at twice the
 *     rate when theirs are close. So a sample is *steady* if the round trips before and after it
 *     agree within BENCH_PLACEMENT_TOLERANCE and each thread that wants all of a core had
 *     BENCH_BUSY_SHARE of it; and of the steady ones the largest group with similar round trips is
 *     *used*: medians, intervals and tests are made of these alone. If a variant has none, all are
 *     used, and the cell's placement is "unsteady".
 *   - Where the memory of a process lies stays as it is for its life, and makes it faster or slower
 *     by some percent. So all are closed and opened anew after BENCH_START_ROUNDS rounds.
 *
 * The cell is done when the 95 % confidence interval of the difference of the headline metric to
 * the first variant is narrow for all variants, or when the rounds that were asked for, or the
 * time, are over. What stops it is the width of the interval, never what the test says: else one
 * would go on until chance says yes.
 */
#ifndef VW_BENCH_ENGINE_H
#define VW_BENCH_ENGINE_H

#include "bench/bench.h"

#define BENCH_PLACEMENT_TOLERANCE 1.15
#define BENCH_GROUP_WIDTH 1.2    /* of the two speed levels, 1.45 apart, a group holds one */
#define BENCH_FAR_SECONDS 200e-9 /* near is about 95 ns, far 350 and more */
#define BENCH_BUSY_SHARE 0.96

#define BENCH_SLICE_SECONDS 0.3
#define BENCH_CELL_SECONDS 20.0

#define BENCH_START_ROUNDS 3

/* Half of the interval, in percent of the first variant's mean: half of what the seeds' tables call
 * a gain at the least (5 %) is told from nothing. Only after two starts. */
#define BENCH_NARROW_PERCENT 2.5

/* Plans the experiment's cells, of which those that options->only leaves out are dropped, and runs
 * them. 0: see each cell's outcome; -1 after bench_fail: none was planned. */
int bench_run(struct bench_context *context, const struct bench_experiment *experiment,
              struct bench_cell_list *cells);

/* How long a slice is. */
double bench_slice_seconds(const struct bench_context *context,
                           const struct bench_experiment *experiment);

/* Marks the samples that are used; after each round. */
void bench_choose_used(struct bench_cell *cell);

/* The values of the used samples of a variant, without those that were not measured, up to `room`;
 * returns how many. */
size_t bench_values(const struct bench_variant *variant, enum bench_metric metric, double *values,
                    size_t room);

/* "near", "far", "unsteady", or "one core". */
const char *bench_placement(const struct bench_cell *cell);

/* Median round trip of the used samples in seconds; NAN: not measured. */
double bench_round_trip_of(const struct bench_cell *cell);

/* What stands for an outcome in reports. */
const char *bench_outcome_text(enum bench_outcome outcome);

/* round_trip.c: the round trip of a cache line between two cores, in seconds, measured for so long;
 * NAN: it cannot be measured. */
double bench_round_trip(unsigned one_core, unsigned other_core, double seconds);

#endif
