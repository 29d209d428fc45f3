/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts that several reports share. */
#ifndef VW_BENCH_TEXTS_H
#define VW_BENCH_TEXTS_H

#include <stdbool.h>

#include "bench/report.h"
#include "bench/statistics.h"

#define BENCH_FACTS 15

/* What a machine is like. */
struct bench_fact {
    const char *title;
    char *text;
    bool of_the_machine; /* not of the run: two reports of one machine and kernel have it alike */
    bool is_long;        /* is given a line of its own */
};

void bench_machine_facts(const struct bench_machine *machine, struct bench_fact facts[BENCH_FACTS]);
void bench_facts_free(struct bench_fact facts[BENCH_FACTS]);

/* The labels of a cell, with commas. To be freed. */
char *bench_cell_name(const struct bench_cell *cell);

/* What a row of a table compares: "before → after". To be freed. */
char *bench_compared(const struct bench_cell *cell, const struct bench_variant *variant);

/* The first variant of a cell that has a row of its own: see bench.h. */
static inline size_t bench_first_row(const struct bench_cell *cell)
{
    return cell->variant_count > 1 ? 1 : 0;
}

/* Whether frames were lost or damaged in one of the samples that are used. */
bool bench_is_faulty(const struct bench_variant *variant);

/* A summary of the used samples, in the metric's own unit (not the one that is shown). */
struct bench_summary bench_summary_of(const struct bench_variant *variant,
                                      enum bench_metric metric);

/* Whether a sample of any variant has it. */
bool bench_was_measured(const struct bench_result *result, enum bench_metric metric);

#endif
