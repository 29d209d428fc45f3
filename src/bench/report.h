/* SPDX-License-Identifier: BSD-3-Clause */
/* What reports are made of, and the reports. */
#ifndef VW_BENCH_REPORT_H
#define VW_BENCH_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/bench.h"

/* The machine, as it was found and measured when the run began. Texts are never NULL. */
struct bench_machine {
    char *kernel;          /* such as "Linux 6.12.1 x86_64" */
    char *cpu;             /* model, and how many cores this process may use */
    char *mitigations;     /* "name: state; name: state" of those that are not "Not affected" */
    char *virtual_machine; /* "yes" or "no", by the processor's flag */
    char *virtwire;        /* version */
    char *commit;          /* "unknown", in a tree without git; "-dirty" behind it: changed since */
    char *dpdk;            /* version of dpdk-testpmd; "none" */
    char *when;            /* ISO 8601, UTC */
    char *command;         /* the bench's command line */
    unsigned cores[2];
    /* seconds, NAN: not measured */
    double system_call;    /* the cheapest one */
    double kick_cost;      /* an eventfd write to a thread that sleeps in poll, its writer's time */
    double kick_latency;   /* until that thread runs */
    double kick_idle_cost; /* an eventfd write when nobody waits */
    double round_trip;     /* of a cache line between the cores */
};

/* An experiment that was run. */
struct bench_result {
    const struct bench_experiment *experiment;
    struct bench_experiment *own; /* experiment, if it came with the report; else NULL */
    struct bench_cell_list cells;
    double slice_seconds;
    double seconds;   /* that it took */
    char *conclusion; /* lines; NULL: none */
};

#define BENCH_FORMAT "virtwire-bench/1"

struct bench_report {
    struct bench_machine machine;
    struct bench_machine *other; /* of a comparison: that of the second report; else NULL */
    char **notes;                /* what a reader must know besides, a sentence or two each */
    size_t note_count;
    bool quick;
    bool interrupted;
    struct bench_result *results;
    size_t result_count;
};

/* Measures for about a second. */
void bench_machine_read(struct bench_machine *machine, const struct bench_options *options,
                        int argc, char **argv);
void bench_machine_free(struct bench_machine *machine);

/* What a table shows: one row for each variant but the first of each cell (or for that, if it is
 * the only one). `text` is as it is to be printed, with [ ] around a significant gain, "!" behind
 * what has faults; `value` NAN: nothing to show, and the text is "-". */
struct bench_shown {
    char text[48];
    double value;     /* in the metric's unit, or percent, or a ratio */
    bool significant; /* BENCH_COLUMN_GAIN, BENCH_COLUMN_ELIMINATED, BENCH_COLUMN_RATIO */
    bool faulty;      /* frames were lost or damaged in what this is made of */
};
void bench_show(const struct bench_column *column, const struct bench_cell *cell,
                const struct bench_variant *variant, struct bench_shown *shown);

/* Do two variants differ significantly? The best one of a cell; NULL: none was measured. A
 * variant's ratio to it, of medians, at most 1. */
bool bench_differ(const struct bench_variant *before, const struct bench_variant *after,
                  enum bench_metric metric);
const struct bench_variant *bench_best(const struct bench_cell *cell, enum bench_metric metric);
double bench_to_best(const struct bench_cell *cell, const struct bench_variant *variant,
                     enum bench_metric metric);

/* The heading of a column; to be freed. */
char *bench_column_heading(const struct bench_column *column);

/* report_terminal.c: one machine's header, and an experiment's table. */
void bench_print_machine(FILE *file, const struct bench_machine *machine);
void bench_print_result(FILE *file, const struct bench_result *result);

/* report_json.c: every sample; "format": "virtwire-bench/1". To be given to json_decref. */
json_t *bench_report_json(const struct bench_report *report);

/* The key of a kind of columns, and the kind of a key; -1: there is none. */
const char *bench_column_kind_name(enum bench_column_kind kind);
int bench_column_kind_of(const char *name);

/* report_read.c: a report from a file of JSON, which may hold anything. -1 after bench_fail, which
 * says in which file, where in it, and what is wrong. To be given to bench_report_free. */
int bench_report_read(struct bench_context *context, const char *path, struct bench_report *report);

/* As fopen for reading, but a FIFO that nobody writes to is not waited for. */
FILE *bench_open_file(const char *path);
void bench_report_free(struct bench_report *report);

/* compare.c: what differs between two reports, as a report: see there. -1 after bench_fail: they
 * have nothing in common. To be given to bench_report_free. */
int bench_report_compare(struct bench_context *context, const struct bench_report *a,
                         const struct bench_report *b, struct bench_report *comparison);
void bench_report_note(struct bench_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* report_html.c: one self-contained page. 0 or -errno of the writing. */
int bench_report_html(FILE *file, const struct bench_report *report);

/* report_markdown.c: tables with what somebody read in them; `readings`: see there, or NULL. 0, or
 * -1 after bench_fail. */
int bench_report_markdown(struct bench_context *context, FILE *file,
                          const struct bench_report *report, const char *readings);

#endif
