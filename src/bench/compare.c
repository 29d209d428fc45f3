/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two reports, set beside each other: each variant of each cell that is in both becomes a cell of a
 * third report, whose variants are what A and what B measured. So all reports there are show it.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/texts.h"
#include "bench/report.h"

/* More than these of one kind are counted, not named. */
#define MOST_NAMED 12

void bench_report_note(struct bench_report *report, const char *format, ...)
{
    va_list arguments;
    char *note;

    va_start(arguments, format);
    if (vasprintf(&note, format, arguments) < 0)
        abort();
    va_end(arguments);
    report->notes = reallocarray(report->notes, report->note_count + 1, sizeof(*report->notes));
    if (report->notes == NULL)
        abort();
    report->notes[report->note_count++] = note;
}

/* ---- lists of names -------------------------------------------------------------------------- */

struct names {
    char *text; /* NULL: none */
    size_t count;
};

static void name(struct names *names, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void name(struct names *names, const char *format, ...)
{
    va_list arguments;
    char *one, *longer;

    if (names->count++ >= MOST_NAMED)
        return;
    va_start(arguments, format);
    if (vasprintf(&one, format, arguments) < 0)
        abort();
    va_end(arguments);
    longer = bench_format("%s%s%s", names->text != NULL ? names->text : "",
                          names->text != NULL ? "; " : "", one);
    free(names->text);
    free(one);
    names->text = longer;
}

static void note_names(struct bench_report *report, const char *what, struct names *names)
{
    if (names->count > MOST_NAMED)
        bench_report_note(report, "%s: %s; and %zu more.", what, names->text,
                          names->count - MOST_NAMED);
    else if (names->count > 0)
        bench_report_note(report, "%s: %s.", what, names->text);
    free(names->text);
    *names = (struct names){0};
}

/* To be freed. */
static char *full_name(const struct bench_result *result, const struct bench_cell *cell)
{
    char *labels = bench_cell_name(cell);
    char *text = bench_format("%s, %s", result->experiment->name, labels);

    free(labels);
    return text;
}

/* ---- what belongs together ------------------------------------------------------------------- */

static bool labels_equal(char *const *one, char *const *other)
{
    for (; *one != NULL && *other != NULL; one++, other++)
        if (strcmp(*one, *other) != 0)
            return false;
    return *one == *other;
}

static const struct bench_cell *find_cell(const struct bench_result *result,
                                          const struct bench_cell *like)
{
    for (size_t i = 0; i < result->cells.count; i++)
        if (labels_equal(result->cells.cells[i].labels, like->labels))
            return &result->cells.cells[i];
    return NULL;
}

static const struct bench_variant *find_variant(const struct bench_cell *cell, const char *name)
{
    for (size_t v = 0; v < cell->variant_count; v++)
        if (strcmp(cell->variants[v].name, name) == 0)
            return &cell->variants[v];
    return NULL;
}

static const struct bench_result *find_result(const struct bench_report *report, const char *name)
{
    for (size_t i = 0; i < report->result_count; i++)
        if (strcmp(report->results[i].experiment->name, name) == 0)
            return &report->results[i];
    return NULL;
}

static bool has_samples(const struct bench_variant *variant, enum bench_metric metric)
{
    double value;

    return bench_values(variant, metric, &value, 1) > 0;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static char *copy(const char *text)
{
    return text != NULL ? bench_format("%s", text) : NULL;
}

static void add_side(struct bench_cell *cell, const char *side, const struct bench_variant *from)
{
    struct bench_variant *variant = bench_plan_variant(cell, side, NULL, "", 0);

    bench_variant_note(variant, from->commands, from->features);
    variant->faults = copy(from->faults);
    variant->samples = bench_allocate(from->sample_count * sizeof(*from->samples));
    memcpy(variant->samples, from->samples, from->sample_count * sizeof(*from->samples));
    variant->sample_count = from->sample_count;
}

static void add_cell(struct bench_cell_list *list, const struct bench_cell *a,
                     const struct bench_variant *of_a, const struct bench_cell *b,
                     const struct bench_variant *of_b)
{
    const char *placement[2] = {bench_placement(a), bench_placement(b)};
    const char **labels;
    struct bench_cell *cell;
    size_t count = 0;
    char *both;

    while (a->labels[count] != NULL)
        count++;
    labels = bench_allocate((count + 3) * sizeof(*labels));
    memcpy(labels, a->labels, count * sizeof(*labels));
    both = strcmp(placement[0], placement[1]) == 0
               ? copy(placement[0])
               : bench_format("A %s, B %s", placement[0], placement[1]);
    labels[count] = of_a->name;
    labels[count + 1] = both;
    cell = bench_plan_cell(list, labels);
    free(labels);
    free(both);
    cell->cores = a->cores;
    cell->outcome = a->outcome > b->outcome ? a->outcome : b->outcome;
    if (cell->outcome == BENCH_FAILED)
        cell->error = bench_format("A: %s; B: %s", a->error != NULL ? a->error : "fine",
                                   b->error != NULL ? b->error : "fine");
    add_side(cell, "A", of_a);
    add_side(cell, "B", of_b);
}

struct missing {
    struct names only_a, only_b; /* what has no partner */
    struct names moved;          /* was measured with the cores placed differently */
};

static void compare_cells(const struct bench_result *a, const struct bench_result *b,
                          struct bench_cell_list *list, struct missing *missing)
{
    for (size_t i = 0; i < a->cells.count; i++) {
        const struct bench_cell *cell = &a->cells.cells[i], *partner = find_cell(b, cell);
        char *text = full_name(a, cell);

        if (partner == NULL)
            name(&missing->only_a, "%s", text);
        else if (strcmp(bench_placement(cell), bench_placement(partner)) != 0)
            name(&missing->moved, "%s", text);
        for (size_t v = 0; partner != NULL && v < cell->variant_count; v++) {
            const struct bench_variant *variant = &cell->variants[v];
            const struct bench_variant *other = find_variant(partner, variant->name);

            if (other != NULL)
                add_cell(list, cell, variant, partner, other);
            else
                name(&missing->only_a, "%s, %s", text, variant->name);
        }
        free(text);
    }
}

static void find_only_in_b(const struct bench_result *a, const struct bench_result *b,
                           struct missing *missing)
{
    for (size_t i = 0; i < b->cells.count; i++) {
        const struct bench_cell *cell = &b->cells.cells[i], *partner = find_cell(a, cell);
        char *text = full_name(b, cell);

        if (partner == NULL)
            name(&missing->only_b, "%s", text);
        for (size_t v = 0; partner != NULL && v < cell->variant_count; v++)
            if (find_variant(partner, cell->variants[v].name) == NULL)
                name(&missing->only_b, "%s, %s", text, cell->variants[v].name);
        free(text);
    }
}

/* ---- the experiment that this is ------------------------------------------------------------- */

static bool both_measured(const struct bench_cell_list *list, enum bench_metric metric)
{
    for (size_t i = 0; i < list->count; i++)
        if (has_samples(&list->cells[i].variants[0], metric) &&
            has_samples(&list->cells[i].variants[1], metric))
            return true;
    return false;
}

static void add_column(struct bench_experiment *experiment, struct bench_column *columns,
                       enum bench_column_kind kind, enum bench_metric metric, char *heading)
{
    columns[experiment->column_count++] = (struct bench_column){kind, metric, heading};
}

/* The headline's values, and the differences of all that both measured. */
static void add_columns(struct bench_experiment *experiment, const struct bench_cell_list *list)
{
    struct bench_column *columns = bench_allocate((3 + BENCH_METRICS) * sizeof(*columns));
    const struct bench_metric_text *text = &bench_metrics[experiment->headline];
    const char *comma = *text->unit != '\0' ? ", " : "";

    experiment->columns = columns;
    add_column(experiment, columns, BENCH_COLUMN_BEFORE, experiment->headline,
               bench_format("A: %s%s%s", text->title, comma, text->unit));
    add_column(experiment, columns, BENCH_COLUMN_AFTER, experiment->headline,
               bench_format("B: %s%s%s", text->title, comma, text->unit));
    add_column(experiment, columns, BENCH_COLUMN_GAIN, experiment->headline,
               bench_format("%s, B to A", text->title));
    for (int m = 0; m < BENCH_METRICS; m++)
        if (m != (int)experiment->headline && bench_metrics[m].better != BENCH_NEITHER &&
            both_measured(list, (enum bench_metric)m))
            add_column(experiment, columns, BENCH_COLUMN_GAIN, (enum bench_metric)m,
                       bench_format("%s, B to A", bench_metrics[m].title));
}

static struct bench_experiment *comparison_of(const struct bench_experiment *of,
                                              const struct bench_cell_list *list)
{
    struct bench_experiment *experiment = bench_allocate(sizeof(*experiment));
    const char **headings;
    size_t count = 0;

    while (of->label_headings[count] != NULL)
        count++;
    headings = bench_allocate((count + 3) * sizeof(*headings));
    for (size_t i = 0; i < count; i++)
        headings[i] = copy(of->label_headings[i]);
    headings[count] = copy("variant");
    headings[count + 1] = copy("placement");
    experiment->label_headings = headings;
    experiment->name = copy(of->name);
    experiment->title = bench_format("%s, two runs compared", of->title);
    experiment->summary = copy("The same measurement in two runs, A and B. They were not measured "
                               "in turns: what changed on the machine between them is part of the "
                               "difference.");
    experiment->headline = of->headline;
    add_columns(experiment, list);
    return experiment;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void machine_copy(struct bench_machine *to, const struct bench_machine *from)
{
    *to = *from;
    to->kernel = copy(from->kernel);
    to->cpu = copy(from->cpu);
    to->mitigations = copy(from->mitigations);
    to->virtual_machine = copy(from->virtual_machine);
    to->virtwire = copy(from->virtwire);
    to->commit = copy(from->commit);
    to->dpdk = copy(from->dpdk);
    to->when = copy(from->when);
    to->command = copy(from->command);
}

static void note_machines(struct bench_report *comparison, const struct bench_machine *a,
                          const struct bench_machine *b)
{
    struct bench_fact facts[2][BENCH_FACTS];
    struct names names = {0};

    bench_machine_facts(a, facts[0]);
    bench_machine_facts(b, facts[1]);
    for (int i = 0; i < BENCH_FACTS; i++)
        if (facts[0][i].of_the_machine && strcmp(facts[0][i].text, facts[1][i].text) != 0)
            name(&names, "%s (A: %s, B: %s)", facts[0][i].title, facts[0][i].text,
                 facts[1][i].text);
    note_names(comparison, "The machines differ, so the figures may for that reason alone", &names);
    bench_facts_free(facts[0]);
    bench_facts_free(facts[1]);
}

static void compare_result(const struct bench_result *a, const struct bench_result *b,
                           struct bench_report *comparison, struct missing *missing)
{
    struct bench_result *result = &comparison->results[comparison->result_count];

    compare_cells(a, b, &result->cells, missing);
    find_only_in_b(a, b, missing);
    if (result->cells.count == 0)
        return;
    result->own = comparison_of(a->experiment, &result->cells);
    result->experiment = result->own;
    result->slice_seconds = a->slice_seconds;
    result->seconds = a->seconds + b->seconds;
    comparison->result_count++;
}

static void note_experiments(const struct bench_report *one, const struct bench_report *other,
                             struct names *only)
{
    for (size_t i = 0; i < one->result_count; i++)
        if (find_result(other, one->results[i].experiment->name) == NULL)
            name(only, "all of %s", one->results[i].experiment->name);
}

int bench_report_compare(struct bench_context *context, const struct bench_report *a,
                         const struct bench_report *b, struct bench_report *comparison)
{
    struct missing missing = {0};

    *comparison = (struct bench_report){
        .quick = a->quick || b->quick,
        .interrupted = a->interrupted || b->interrupted,
        .other = bench_allocate(sizeof(*comparison->other)),
        .results = bench_allocate(a->result_count * sizeof(*comparison->results)),
    };
    machine_copy(&comparison->machine, &a->machine);
    machine_copy(comparison->other, &b->machine);
    note_machines(comparison, &a->machine, &b->machine);
    note_experiments(a, b, &missing.only_a);
    note_experiments(b, a, &missing.only_b);
    for (size_t i = 0; i < a->result_count; i++) {
        const struct bench_result *partner = find_result(b, a->results[i].experiment->name);

        if (partner != NULL)
            compare_result(&a->results[i], partner, comparison, &missing);
    }
    note_names(comparison, "Only in A", &missing.only_a);
    note_names(comparison, "Only in B", &missing.only_b);
    note_names(comparison, "The cores were placed differently in A and B", &missing.moved);
    if (comparison->result_count > 0)
        return 0;
    bench_report_free(comparison);
    return bench_fail(context, "the two runs have no cell with the same labels and variants in "
                               "common");
}
