/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model of the bench: what is compared, how it is run, what is known of it afterwards.
 *
 * Theory of operation
 * -------------------
 * An *experiment* plans *cells*, rows of its table such as "packed, calls on another core". A cell
 * has *variants* of one thing, the first of which is what the others are compared with ("before").
 * The engine opens all variants of a cell, each with processes of its own that stand still, and
 * then goes round and round: one *slice* of each in a round, in changing order, so that a machine
 * that changes speed changes them alike. What a slice tells is a *sample*: a value for each metric.
 * Reports (terminal, JSON, HTML) are made of the finished cells alone.
 *
 * A variant is run by a *runner*, which knows how to start it, how to measure it for a while and
 * how to end it. Few runners serve all experiments; their parameters are what differs.
 */
#ifndef VW_BENCH_BENCH_H
#define VW_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a slice may tell. A value that was not measured is NAN. Frames are counted, and checked,
 * where they arrive. */
enum bench_metric {
    BENCH_FRAMES,            /* a second */
    BENCH_BYTES,             /* a second; of the payload that the experiment counts */
    BENCH_TRANSACTIONS,      /* a second */
    BENCH_KICKS,             /* a frame; "a frame" is a transaction where BENCH_FRAMES is NAN */
    BENCH_CALLS,             /* a frame */
    BENCH_SYSTEM_CALLS,      /* a frame, of both sides */
    BENCH_DRIVER_CPU,        /* seconds a frame, all threads of that side */
    BENCH_DEVICE_CPU,        /* the same of the other side */
    BENCH_CPU,               /* seconds a second, both sides: 1.3 are 1.3 cores */
    BENCH_BYTES_PER_CPU,     /* bytes for each second of CPU time of both sides */
    BENCH_PER_CPU,           /* frames (transactions) for each second of CPU time */
    BENCH_LAST_FRAME_MEDIAN, /* seconds from a burst's start to its last frame's completion */
    BENCH_LAST_FRAME_P99,
    BENCH_LATENCY_MEDIAN, /* seconds of a transaction */
    BENCH_LATENCY_P99,
    BENCH_FRAME_BYTES,     /* mean length of a frame */
    BENCH_LOST,            /* share of the frames that were sent, 0 to 1 */
    BENCH_DESCRIPTORS,     /* of a receive buffer */
    BENCH_BUFFER_BYTES,    /* memory of a receive buffer */
    BENCH_BUFFERS,         /* receive buffers that a ring holds */
    BENCH_WORK,            /* a second: frames, bytes, ... whatever the workload is good for */
    BENCH_DEVICE_CPU_BYTE, /* seconds a byte, all threads of the device's side */
    BENCH_BATCH,           /* frames that the device fetched in one go, in the mean */
    BENCH_MERGED,          /* frames that the far side's network stack received as one */
    BENCH_LIMIT,           /* frames a second of the bare mechanism, measured in the same round */
    BENCH_METRICS,
};

enum bench_better { BENCH_LESS_IS_BETTER = -1, BENCH_NEITHER = 0, BENCH_MORE_IS_BETTER = 1 };

struct bench_metric_text {
    const char *name;  /* key in JSON */
    const char *title; /* heading */
    const char *unit;  /* in which it is shown, such as "Mpps" */
    double scale;      /* shown value = value * scale */
    int digits;        /* after the point, when shown */
    enum bench_better better;
};

extern const struct bench_metric_text bench_metrics[BENCH_METRICS];

/* One slice. */
struct bench_sample {
    double value[BENCH_METRICS];
    double seconds;       /* how long it really was */
    unsigned round;       /* from 0; the warm-up is no sample */
    unsigned start;       /* from 0: the processes were started anew since the last */
    unsigned position;    /* in the order of its round */
    double round_trip[2]; /* seconds between the cores, before and after; NAN: one core */
    double busy; /* smallest share of a core that a thread got which wants all; NAN: none */
    bool steady; /* placement did not change, and the threads had their cores */
    bool faulty; /* frames were lost, reordered, duplicated or corrupted */
    bool used;   /* medians and tests are made of it: see engine.h */
};

struct bench_cell_list;
struct bench_context;
struct bench_variant;

struct bench_runner {
    /* Starts all that the variant needs, waits until frames flow, and leaves it standing still.
     * 0, or -1 after bench_fail. Notes command lines and features with bench_variant_note. */
    int (*open)(struct bench_context *context, struct bench_variant *variant, void **state);
    /* Lets it run, measures for about so long, and has it stand still again. Fills values, seconds,
     * busy and faulty; the engine does the rest, and has set all to NAN and 0. As open. */
    int (*slice)(struct bench_context *context, void *state, double seconds,
                 struct bench_sample *sample);
    /* Ends it; nothing is left behind. Also after a failure. */
    void (*close)(void *state);
};

struct bench_variant {
    char *name; /* such as "deferred" */
    const struct bench_runner *runner;
    void *parameters; /* the runner's; freed with free() */

    /* Filled by the run. */
    char *commands; /* command lines, one a line; NULL: not known */
    char *features; /* negotiated, separated by blanks */
    char *faults;   /* what was wrong, for people; NULL: nothing */
    struct bench_sample *samples;
    size_t sample_count;
};

enum bench_outcome {
    BENCH_NOT_RUN,
    BENCH_NARROW,      /* enough rounds for narrow intervals */
    BENCH_ROUNDS_DONE, /* as many rounds as were asked for */
    BENCH_TIME_UP,
    BENCH_INTERRUPTED,
    BENCH_FAILED, /* see cell->error */
};

struct bench_cell {
    char **labels;                  /* values, one for each of the experiment's label headings */
    struct bench_variant *variants; /* [0] is what the others are compared with */
    size_t variant_count;
    unsigned cores; /* on which its sides run: 2, or 1 where they share one */

    enum bench_outcome outcome;
    char *error;
};

/* What a column of an experiment's table shows. A table has one row for each variant but the first
 * of each cell (or, if a cell has only one, for that). */
enum bench_column_kind {
    BENCH_COLUMN_BEFORE,           /* median of the first variant */
    BENCH_COLUMN_AFTER,            /* median of the row's variant */
    BENCH_COLUMN_GAIN,             /* percent; [ ] around it if significant */
    BENCH_COLUMN_RATIO,            /* after over before: median of the rounds' own ratios */
    BENCH_COLUMN_ELIMINATED,       /* percent of before that is gone */
    BENCH_COLUMN_BEFORE_TO_BEST,   /* ratio of the first variant to the best of the cell's */
    BENCH_COLUMN_AFTER_TO_BEST,    /* of the row's */
    BENCH_COLUMN_DEVIATION_BEFORE, /* standard deviation in percent of the mean */
    BENCH_COLUMN_DEVIATION_AFTER,
};

struct bench_cell_list {
    struct bench_cell *cells;
    size_t count;
};

struct bench_column {
    enum bench_column_kind kind;
    enum bench_metric metric;
    const char *heading; /* NULL: made of the kind and the metric's title */
};

struct bench_experiment {
    const char *name;    /* on the command line */
    const char *title;   /* a line */
    const char *summary; /* a paragraph: what is compared, what the seed saw, what is different */
    const char *const *label_headings; /* ends with NULL */
    const struct bench_column *columns;
    size_t column_count;
    enum bench_metric headline; /* the one that decides, that is plotted first, whose interval
                                 * is to become narrow */
    double slice_seconds;       /* how long a slice is to be; 0: BENCH_SLICE_SECONDS */
    double cell_seconds; /* when a cell's last round begins at the latest; 0: BENCH_CELL_SECONDS */
    bool needs_network;  /* runs in network namespaces of its own */
    bool needs_testpmd;
    /* Adds the cells with bench_plan_cell. 0 or -1 after bench_fail. */
    int (*plan)(struct bench_context *context, struct bench_cell_list *cells);
    /* What follows from the finished cells, a sentence a line; to be freed. NULL: the table tells
     * all. */
    char *(*conclude)(const struct bench_cell_list *cells);
};

/* The experiments, in the order of the seeds. */
extern const struct bench_experiment *const bench_experiments[];
extern const size_t bench_experiment_count;
const struct bench_experiment *bench_find_experiment(const char *name);

struct bench_options {
    bool quick;          /* few cells, two short rounds: does it work, and what are the counts? */
    unsigned rounds;     /* of each cell; 0: until intervals are narrow */
    double seconds;      /* of a slice; 0: the experiment's choice, see bench_slice_seconds */
    double cell_seconds; /* the time after which no further round of a cell begins; 0: as above */
    unsigned cores[2];   /* of the driver's side and of the device's */
    const char *only;    /* only cells whose labels, with commas between, contain it; NULL: all */
};

/* One run. */
struct bench_context {
    const struct bench_options *options;
    const char *program;        /* this program's own file, for the processes of the runners */
    char *folder;               /* a new directory for sockets and logs, removed at the end */
    unsigned serial;            /* counted up for names in the folder */
    char error[1024];           /* of the last failure, for people */
    volatile bool *interrupted; /* set by bench_sleep when SIGINT, SIGTERM or SIGHUP came, which
                                 * are blocked */
    /* Tells what goes on; `line` has no newline. */
    void (*progress)(void *, const char *line);
    void *progress_context;
};

/* Notes why something failed; returns -1. */
int bench_fail(struct bench_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a cell; `labels` as the experiment has headings, copied. Never NULL: see bench_allocate. */
struct bench_cell *bench_plan_cell(struct bench_cell_list *list, const char *const *labels);

/* Adds a variant to the cell. `parameters` are copied. The pointer holds until the next is added.
 */
struct bench_variant *bench_plan_variant(struct bench_cell *cell, const char *name,
                                         const struct bench_runner *runner, const void *parameters,
                                         size_t size);

/* Command lines and features of an open variant. NULL leaves what is there. */
void bench_variant_note(struct bench_variant *variant, const char *commands, const char *features);

/* Adds to the variant's faults, unless it is there already. */
void bench_variant_fault(struct bench_variant *variant, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void bench_cells_free(struct bench_cell_list *list);

/* Zeroed memory, or the program ends: a bench that runs out of memory has nothing to tell. */
void *bench_allocate(size_t size);
char *bench_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
