/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every option over every workload, each value beside the default.
 *
 * Theory of operation
 * -------------------
 * A cell is a workload and an option, its variants are the option's values, the default first. What
 * a workload is good for differs (frames or bytes a second, transactions, frames for a second of
 * CPU time where the rate is given), so that each notes its own as BENCH_WORK. An option is not
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
#include "bench/experiments.h"
#include "bench/pair.h"
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
};

/* What an option needs to matter. */
enum matter {
    SENDS = 1 << 0,    /* the driver sends at full rate */
    RECEIVES = 1 << 1, /* the driver receives */
    SHORT = 1 << 2,    /* no frame is longer than 1514 bytes */
    TAP = 1 << 3,      /* the port is a TAP */
    ANY = 0,
};

/* ---- workloads ------------------------------------------------------------------------------- */

static void frames_count(const struct bench_pair_slice *slice, struct bench_sample *sample)
{
    (void)slice;
    sample->value[BENCH_WORK] = sample->value[BENCH_FRAMES];
}

/* At a given rate, which is nobody's merit. */
static void cpu_counts(const struct bench_pair_slice *slice, struct bench_sample *sample)
{
    (void)slice;
    sample->value[BENCH_WORK] = sample->value[BENCH_PER_CPU];
}

static const struct workload {
    const char *name;
    const char *port, *device, *driver; /* the rest of both command lines */
    enum bench_direction direction;
    unsigned matters;
    void (*work)(const struct bench_pair_slice *slice, struct bench_sample *sample);
} workloads[] = {
    {"send 64", "sink", "", "pktgen --size=64", BENCH_TO_DEVICE, SENDS | SHORT, frames_count},
    {"send 1514", "sink", "", "pktgen --size=1514", BENCH_TO_DEVICE, SENDS | SHORT, frames_count},
    {"send 64, bursts of 256 to a device that polls", "sink", "--mode=poll",
     "pktgen --size=64 --burst=256", BENCH_TO_DEVICE, SENDS | SHORT, frames_count},
    {"receive 64", "source,size=64", "", "sink", BENCH_TO_DRIVER, RECEIVES | SHORT, frames_count},
    {"receive 1514", "source,size=1514", "", "sink", BENCH_TO_DRIVER, RECEIVES | SHORT,
     frames_count},
    {"receive 9014", "source,size=9014", "--mtu=9000", "sink", BENCH_TO_DRIVER, RECEIVES,
     frames_count},
    {"loop 64", "loop", "", "pktgen --loop --size=64", BENCH_LOOP, SENDS | RECEIVES | SHORT,
     frames_count},
    {"loop, mixed sizes", "loop", "", "pktgen --loop --size=imix", BENCH_LOOP,
     SENDS | RECEIVES | SHORT, frames_count},
    {"send 64, 20000 a second: frames a CPU second", "sink", "", "pktgen --size=64 --rate=20k",
     BENCH_TO_DEVICE, SHORT, cpu_counts},
    {"loop 64, 1000 a second: frames a CPU second", "loop", "",
     "pktgen --loop --size=64 --rate=1k --burst=1", BENCH_LOOP, SHORT, cpu_counts},
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
     {"deferred", "orphan", "delayed", "scheduled"},
     SENDS},
    {"byte queue limits", DRIVER, "--byte-queue-limits=", {"on", "off"}, SENDS},
    {"receive buffers", DRIVER, "--rx-mode=", {"mergeable", "big", "small"}, RECEIVES},
    {"driver's mode", DRIVER, "--mode=", {"adaptive", "interrupt", "poll"}, ANY},
    {"spin-us", DRIVER, "--spin-us=", {"100", "0", "20", "50", "200", "500"}, ANY},
    {"device's mode", DEVICE, "--mode=", {"adaptive", "interrupt", "poll"}, ANY},
    {"busy-poll-us", DEVICE, "--busy-poll-us=", {"50", "10", "20", "100", "200", "500"}, ANY},
    {"batch", DEVICE, "--batch=", {"64", "1", "8", "16", "32"}, SENDS},
    {"batch fetch", DEVICE, "--batch-fetch=", {"together", "singly"}, SENDS},
    {"ring format", DRIVER, "--features=packed=", {"on", "off"}, ANY},
    {"in-order", DRIVER, "--features=in_order=", {"on", "off"}, ANY},
    {"ring size", DRIVER, "--ring-size=", {"256", "64", "128", "512", "1024"}, ANY},
};

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
    return strcmp(value, "small") != 0 || (workload->matters & SHORT);
}

static void plan_value(struct bench_cell *cell, const struct workload *workload,
                       const struct option *option, const char *value)
{
    struct bench_pair_parameters parameters = {.direction = workload->direction,
                                               .device_sleeps = true,
                                               .driver_sleeps = true,
                                               .more = workload->work};
    char *text = bench_format("%s%s", option->text, value);

    snprintf(parameters.device, sizeof(parameters.device), "--port %s%s %s %s", workload->port,
             option->place == PORT ? text : "", workload->device,
             option->place == DEVICE ? text : "");
    snprintf(parameters.driver, sizeof(parameters.driver), "%s %s", workload->driver,
             option->place == DRIVER ? text : "");
    bench_plan_variant(cell, value, &bench_pair_runner, &parameters, sizeof(parameters));
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

/* To the best of its cell; 1 where that cannot be told from it. */
static double to_best(const struct bench_cell *cell, const struct bench_variant *variant)
{
    const struct bench_variant *best = bench_best(cell, BENCH_WORK);

    if (best == NULL || best == variant || !bench_differ(best, variant, BENCH_WORK))
        return best == NULL ? NAN : 1;
    return bench_to_best(cell, variant, BENCH_WORK);
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
    return count == 0 || records[0].cells == 0 ? bench_format("%s: not measured\n", option)
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
    .slice_seconds = 0.15,
    .cell_seconds = 8,
    .plan = plan,
    .conclude = conclude,
};
