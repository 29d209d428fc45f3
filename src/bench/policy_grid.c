/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every option over every workload, each value beside the default.
 *
 * Theory of operation
 * -------------------
 * A cell is a workload and an option, its variants are the option's values, the default first. What
 * a workload is good for differs (frames or bytes a second, or frames for a second of CPU time
 * where the rate is given), so that each is noted as BENCH_WORK, too. An option is not
 * varied over a workload that fixes it, or to which it means nothing.
 *
 * The verdict on an option is made over all of its cells: how far its default is behind the best
 * value where it does worst, and which value would be least behind there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "bench/engine.h"
#include "bench/experiments.h"
#include "bench/lanes.h"
#include "bench/report.h"

static const char *const headings[] = {"workload", "option", NULL};

static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_WORK, "default"},
    {BENCH_COLUMN_AFTER, BENCH_WORK, "value"},
    {BENCH_COLUMN_RATIO, BENCH_WORK, "value/default"},
    {BENCH_COLUMN_BEFORE_TO_BEST, BENCH_WORK, "default/best"},
    {BENCH_COLUMN_AFTER_TO_BEST, BENCH_WORK, "value/best"},
    {BENCH_COLUMN_BEFORE, BENCH_CPU, "CPU% default"},
    {BENCH_COLUMN_AFTER, BENCH_CPU, "CPU% value"},
    {BENCH_COLUMN_BEFORE, BENCH_LAST_FRAME_MEDIAN, "us a burst default"},
    {BENCH_COLUMN_AFTER, BENCH_LAST_FRAME_MEDIAN, "us a burst value"},
};

/* What an option needs to matter. */
enum matter {
    SENDS = 1 << 0,    /* the driver sends at full rate */
    RECEIVES = 1 << 1, /* the driver receives */
    SHORT = 1 << 2,    /* no frame is longer than 1514 bytes */
    TAP = 1 << 3,      /* the port is a TAP */
    STREAMS = 1 << 4,  /* of TCP, through two network stacks */
    CORKS = 1 << 5,    /* senders form segments by what is in flight, and mark urgent ones */
    ANY = 0,
};

/* ---- workloads ------------------------------------------------------------------------------- */

#define PAIR &bench_pair_runner, 0, 0
#define DROP &bench_drop_runner, 0, 0
#define WRITES(streams, bytes) &bench_stream_runner, streams, bytes

static const struct workload {
    const char *name;
    const char *port, *device, *driver; /* the rest of both command lines */
    enum bench_direction direction;
    unsigned matters;
    enum bench_metric work; /* what it is good for */
    const struct bench_runner *runner;
    unsigned streams, write; /* of bench_stream_runner */
} workloads[] = {
    {"send 64", "sink", "", "pktgen --size=64", BENCH_TO_DEVICE, SENDS | SHORT, BENCH_FRAMES, PAIR},
    {"send 1514", "sink", "", "pktgen --size=1514", BENCH_TO_DEVICE, SENDS | SHORT, BENCH_FRAMES,
     PAIR},
    {"send 64, bursts of 256 to a device that polls", "sink", "--mode=poll",
     "pktgen --size=64 --burst=256", BENCH_TO_DEVICE, SENDS | SHORT, BENCH_FRAMES, PAIR},
    {"receive 64", "source,size=64", "", "sink", BENCH_TO_DRIVER, RECEIVES | SHORT, BENCH_FRAMES,
     PAIR},
    {"receive 1514", "source,size=1514", "", "sink", BENCH_TO_DRIVER, RECEIVES | SHORT,
     BENCH_FRAMES, PAIR},
    {"receive 9014", "source,size=9014", "--mtu=9000", "sink", BENCH_TO_DRIVER, RECEIVES,
     BENCH_FRAMES, PAIR},
    {"loop 64", "loop", "", "pktgen --loop --size=64", BENCH_LOOP, SENDS | RECEIVES | SHORT,
     BENCH_FRAMES, PAIR},
    {"loop, mixed sizes", "loop", "", "pktgen --loop --size=imix", BENCH_LOOP,
     SENDS | RECEIVES | SHORT, BENCH_FRAMES, PAIR},
    {"4 TCP senders, writes of 256", "sink,acknowledge=2", "--features=urgent=on",
     "pktgen --streams=4 --write=256 --acknowledged", BENCH_TO_DEVICE, SENDS | CORKS, BENCH_BYTES,
     PAIR},
    {"4 TCP senders, writes of 16384", "sink,acknowledge=2", "--features=urgent=on",
     "pktgen --streams=4 --write=16384 --acknowledged", BENCH_TO_DEVICE, SENDS | CORKS, BENCH_BYTES,
     PAIR},
    {"1 TCP client, requests of 256", "loop", "", "pktgen --loop --streams=1 --write=256",
     BENCH_LOOP, SENDS | RECEIVES | SHORT, BENCH_TRANSACTIONS, PAIR},
    {"25 TCP clients, requests of 256", "loop", "", "pktgen --loop --streams=25 --write=256",
     BENCH_LOOP, SENDS | RECEIVES | SHORT, BENCH_TRANSACTIONS, PAIR},
    /* at a given rate, which is nobody's merit: what it costs */
    {"send 64, 20000 a second", "sink", "", "pktgen --size=64 --rate=20k", BENCH_TO_DEVICE, SHORT,
     BENCH_PER_CPU, PAIR},
    {"loop 64, 1000 a second", "loop", "", "pktgen --loop --size=64 --rate=1k --burst=1",
     BENCH_LOOP, SHORT, BENCH_PER_CPU, PAIR},
    {"64 to a TAP that drops", "tap,name=host0", "",
     "pktgen --size=64 --features=ctrl_vq=off,csum=off", BENCH_TO_DEVICE, SENDS | SHORT | TAP,
     BENCH_FRAMES, DROP},
    {"TCP, writes of 64, to a TAP", "tap,name=host0", "", "bridge --port tap,name=guest0",
     BENCH_TO_DEVICE, SENDS | TAP | STREAMS, BENCH_BYTES, WRITES(1, 64)},
    {"TCP, 12 of 4096, to a TAP", "tap,name=host0", "", "bridge --port tap,name=guest0",
     BENCH_TO_DEVICE, SENDS | TAP | STREAMS, BENCH_BYTES, WRITES(12, 4096)},
    {"TCP, 12 of 4096 in frames of 1514, to a TAP", "tap,name=host0", "",
     "bridge --port tap,name=guest0 --features=host_tso4=off,host_tso6=off,host_uso=off",
     BENCH_TO_DEVICE, SENDS | TAP | STREAMS, BENCH_BYTES, WRITES(12, 4096)},
};

/* ---- options --------------------------------------------------------------------------------- */

enum place { PORT, DEVICE, DRIVER };

#define MOST_VALUES 8

static const struct option {
    const char *name;
    enum place place;
    const char *text;                /* in front of the value */
    const char *values[MOST_VALUES]; /* the default first */
    unsigned matters;                /* all of these must hold of the workload */
} options[] = {
    {"transmit policy",
     DRIVER,
     "--tx-policy=",
     {"deferred", "orphan", "urgent", "delayed", "scheduled"},
     SENDS},
    {"byte queue limits", DRIVER, "--byte-queue-limits=", {"on", "off"}, SENDS},
    {"receive buffers", DRIVER, "--rx-mode=", {"mergeable", "big", "small"}, RECEIVES},
    {"driver's mode", DRIVER, "--mode=", {"adaptive", "interrupt", "poll"}, ANY},
    {"spin-us", DRIVER, "--spin-us=", {"100", "0", "20", "50", "200", "500"}, ANY},
    {"device's mode", DEVICE, "--mode=", {"adaptive", "interrupt", "poll"}, ANY},
    {"busy-poll-us", DEVICE, "--busy-poll-us=", {"50", "10", "20", "100", "200", "500"}, ANY},
    {"batch", DEVICE, "--batch=", {"64", "1", "8", "16", "32"}, SENDS},
    {"batch fetch", DEVICE, "--batch-fetch=", {"together", "singly"}, SENDS},
    {"io of a TAP", PORT, ",io=", {"auto", "uring", "plain"}, TAP},
    {"coalesce", PORT, ",coalesce=", {"auto", "off", "on"}, STREAMS},
    {"napi", PORT, ",napi=", {"off", "on"}, TAP},
    {"ring format", DRIVER, "--features=packed=", {"on", "off"}, ANY},
    {"in-order", DRIVER, "--features=in_order=", {"on", "off"}, ANY},
    {"ring size", DRIVER, "--ring-size=", {"256", "64", "128", "512", "1024"}, ANY},
};

/* ---- the runner: the workload's own ---------------------------------------------------------- */

struct grid_parameters {
    struct bench_stream_parameters lane; /* begins with those of a pair: any runner's */
    const struct workload *workload;
};

struct grid_state {
    const struct workload *workload;
    void *lane;
};

static int grid_open(struct bench_context *context, struct bench_variant *variant, void **state)
{
    const struct grid_parameters *parameters = variant->parameters;
    struct grid_state *grid = bench_allocate(sizeof(*grid));

    grid->workload = parameters->workload;
    if (grid->workload->runner->open(context, variant, &grid->lane) < 0) {
        free(grid);
        return -1;
    }
    *state = grid;
    return 0;
}

static int grid_slice(struct bench_context *context, void *state, double seconds,
                      struct bench_sample *sample)
{
    struct grid_state *grid = state;
    int result = grid->workload->runner->slice(context, grid->lane, seconds, sample);

    sample->value[BENCH_WORK] = sample->value[grid->workload->work];
    return result;
}

static void grid_close(void *state)
{
    struct grid_state *grid = state;

    grid->workload->runner->close(grid->lane);
    free(grid);
}

static const struct bench_runner runner = {
    .open = grid_open,
    .slice = grid_slice,
    .close = grid_close,
};

static void read_requests(const struct bench_pair_slice *slice, struct bench_sample *sample)
{
    const json_t *before = slice->driver_before, *after = slice->driver_after;

    sample->value[BENCH_TRANSACTIONS] =
        bench_document_difference(before, after, "stream_sent.transactions") / slice->seconds;
    sample->value[BENCH_LATENCY_MEDIAN] = bench_document_number(after, "latency_seconds.median");
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool fixes(const char *command, const char *text)
{
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)(strcspn(text, "=") + 1), text);
    return strstr(command, name) != NULL;
}

static bool is_varied(const struct workload *workload, const struct option *option)
{
    const char *command = option->place == DRIVER ? workload->driver : workload->device;

    if ((workload->matters & option->matters) != option->matters)
        return false;
    /* how long to look is nothing to who looks for ever */
    if (strcmp(option->name, "busy-poll-us") == 0 && fixes(command, "--mode="))
        return false;
    return !fixes(command, option->text);
}

static bool is_possible(const struct workload *workload, const char *value)
{
    if (strcmp(value, "urgent") == 0) /* without a frame that is marked it is orphan */
        return (workload->matters & CORKS) != 0;
    return strcmp(value, "small") != 0 || (workload->matters & SHORT);
}

static void plan_value(struct bench_cell *cell, const struct workload *workload,
                       const struct option *option, const char *value)
{
    struct grid_parameters parameters = {
        .lane = {.pair = {.direction = workload->direction,
                          .device_sleeps = true,
                          .driver_sleeps = true,
                          .more = read_requests,
                          .idle = (workload->matters & STREAMS) != 0},
                 .streams = workload->streams,
                 .write = workload->write},
        .workload = workload,
    };
    struct bench_pair_parameters *pair = &parameters.lane.pair;
    char *text = bench_format("%s%s", option->text, value);

    snprintf(pair->device, sizeof(pair->device), "--port %s%s %s %s", workload->port,
             option->place == PORT ? text : "", workload->device,
             option->place == DEVICE ? text : "");
    snprintf(pair->driver, sizeof(pair->driver), "%s %s", workload->driver,
             option->place == DRIVER ? text : "");
    bench_plan_variant(cell, value, &runner, &parameters, sizeof(parameters));
    free(text);
}

static void plan_cell(struct bench_cell_list *cells, const struct workload *workload,
                      const struct option *option)
{
    const char *labels[] = {workload->name, option->name, NULL};
    struct bench_cell *cell = bench_plan_cell(cells, labels);

    for (size_t i = 0; i < MOST_VALUES && option->values[i] != NULL; i++)
        if (is_possible(workload, option->values[i]))
            plan_value(cell, workload, option, option->values[i]);
}

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    if (context->options->quick) {
        plan_cell(cells, &workloads[0], &options[1]);
        plan_cell(cells, &workloads[3], &options[2]);
        return 0;
    }
    for (size_t o = 0; o < VW_ARRAY_SIZE(options); o++)
        for (size_t w = 0; w < VW_ARRAY_SIZE(workloads); w++)
            if (is_varied(&workloads[w], &options[o]))
                plan_cell(cells, &workloads[w], &options[o]);
    return 0;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* What is called behind: a smaller difference is no reason to change a default. */
#define BEHIND 0.97

/* One value of an option over all cells. */
struct record {
    const char *value;
    double worst; /* ratio to the best value of a cell */
    const struct bench_cell *where;
    size_t cells, behind;
};

static bool is_measured(const struct bench_variant *variant)
{
    double values[2];

    return bench_values(variant, BENCH_WORK, values, 2) == 2;
}

/* To the best of its cell; 1 where that cannot be told from it. NAN: one sample tells nothing. */
static double to_best(const struct bench_cell *cell, const struct bench_variant *variant)
{
    const struct bench_variant *best = bench_best(cell, BENCH_WORK);

    if (best == NULL || !is_measured(best) || !is_measured(variant))
        return NAN;
    return bench_differ(best, variant, BENCH_WORK) ? bench_to_best(cell, variant, BENCH_WORK) : 1;
}

static void note(struct record *records, const struct bench_cell *cell,
                 const struct bench_variant *variant)
{
    double ratio = to_best(cell, variant);
    struct record *record = records;

    while (record->value != NULL && strcmp(record->value, variant->name) != 0)
        record++;
    if (record->value == NULL)
        *record = (struct record){.value = variant->name, .worst = INFINITY};
    if (!(ratio > 0))
        return;
    record->cells++;
    record->behind += ratio < BEHIND;
    if (ratio < record->worst) {
        record->worst = ratio;
        record->where = cell;
    }
}

static char *verdict_text(const char *option, const struct record *records, size_t cells)
{
    const struct record *least = records;
    char *text, *longer;

    text = bench_format("%s: the default, %s, is at worst %.3f of the best (%s); more than 3 %% "
                        "behind in %zu of %zu workloads",
                        option, records[0].value, records[0].worst, records[0].where->labels[0],
                        records[0].behind, records[0].cells);
    for (const struct record *record = records + 1; record->value != NULL; record++)
        if (record->cells == cells && record->worst > least->worst)
            least = record;
    if (least == records)
        longer = bench_format("%s; no other value is less behind\n", text);
    else
        longer = bench_format("%s; least behind is %s, at worst %.3f (%s)\n", text, least->value,
                              least->worst, least->where->labels[0]);
    free(text);
    return longer;
}

/* Of the option of cells[first]; moves on to the next option. */
static char *verdict(const struct bench_cell_list *cells, size_t *first)
{
    struct record records[MOST_VALUES + 1] = {0};
    const char *option = cells->cells[*first].labels[1];
    size_t count = 0;

    for (; *first < cells->count && strcmp(cells->cells[*first].labels[1], option) == 0; ++*first) {
        const struct bench_cell *cell = &cells->cells[*first];

        if (bench_best(cell, BENCH_WORK) == NULL)
            continue;
        count++;
        for (size_t v = 0; v < cell->variant_count; v++)
            note(records, cell, &cell->variants[v]);
    }
    /* The default stands in each cell first. */
    return records[0].where == NULL ? bench_format("%s: not measured\n", option)
                                    : verdict_text(option, records, count);
}

static char *conclude(const struct bench_cell_list *cells)
{
    char *text = bench_format("%s", ""), *one, *longer;

    for (size_t i = 0; i < cells->count;) {
        one = verdict(cells, &i);
        longer = bench_format("%s%s", text, one);
        free(one);
        free(text);
        text = longer;
    }
    return text;
}

const struct bench_experiment bench_policy_grid = {
    .name = "policy-grid",
    .title = "every option over every workload, each value beside the default",
    .summary =
        "For each workload and each option that matters to it, the default and the other values, "
        "in turn. Work is what the workload is good for: frames a second, or, where the rate is "
        "given, frames for each second of CPU time. Beside each value stands its ratio to the best "
        "of its row's workload and option. A verdict counts a value as behind only if the "
        "difference is significant.",
    .label_headings = headings,
    .columns = columns,
    .column_count = VW_ARRAY_SIZE(columns),
    .headline = BENCH_WORK,
    .needs_network = true,
    .slice_seconds = 0.15,
    .cell_seconds = 8,
    .plan = plan,
    .conclude = conclude,
};
