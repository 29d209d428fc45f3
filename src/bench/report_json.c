/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as JSON: everything that was measured, so that another report can be made of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/report.h"
#include "bench/statistics.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text(const char *string)
{
    return string != NULL ? json_string(string) : json_null();
}

static json_t *machine_json(const struct bench_machine *machine)
{
    json_t *object = json_object();

    json_object_set_new(object, "kernel", text(machine->kernel));
    json_object_set_new(object, "cpu", text(machine->cpu));
    json_object_set_new(object, "mitigations", text(machine->mitigations));
    json_object_set_new(object, "virtual_machine", text(machine->virtual_machine));
    json_object_set_new(object, "virtwire", text(machine->virtwire));
    json_object_set_new(object, "commit", text(machine->commit));
    json_object_set_new(object, "dpdk", text(machine->dpdk));
    json_object_set_new(object, "when", text(machine->when));
    json_object_set_new(object, "command", text(machine->command));
    json_object_set_new(object, "driver_core", json_integer(machine->cores[0]));
    json_object_set_new(object, "device_core", json_integer(machine->cores[1]));
    json_object_set_new(object, "system_call_seconds", number(machine->system_call));
    json_object_set_new(object, "kick_idle_seconds", number(machine->kick_idle_cost));
    json_object_set_new(object, "kick_seconds", number(machine->kick_cost));
    json_object_set_new(object, "kick_latency_seconds", number(machine->kick_latency));
    json_object_set_new(object, "round_trip_seconds", number(machine->round_trip));
    return object;
}

/* ---- samples and what they tell -------------------------------------------------------------- */

static json_t *sample_json(const struct bench_sample *sample)
{
    json_t *object = json_object(), *values = json_object();

    for (size_t i = 0; i < BENCH_METRICS; i++)
        if (isfinite(sample->value[i]))
            json_object_set_new(values, bench_metrics[i].name, json_real(sample->value[i]));
    json_object_set_new(object, "round", json_integer(sample->round));
    json_object_set_new(object, "start", json_integer(sample->start));
    json_object_set_new(object, "position", json_integer(sample->position));
    json_object_set_new(object, "seconds", number(sample->seconds));
    json_object_set_new(
        object, "round_trip_seconds",
        json_pack("[o, o]", number(sample->round_trip[0]), number(sample->round_trip[1])));
    json_object_set_new(object, "busy", number(sample->busy));
    json_object_set_new(object, "steady", json_boolean(sample->steady));
    json_object_set_new(object, "faulty", json_boolean(sample->faulty));
    json_object_set_new(object, "used", json_boolean(sample->used));
    json_object_set_new(object, "values", values);
    return object;
}

static double *used_values(const struct bench_variant *variant, enum bench_metric metric,
                           size_t *count)
{
    double *values = bench_allocate(variant->sample_count * sizeof(*values));

    *count = bench_values(variant, metric, values, variant->sample_count);
    return values;
}

/* A summary of each metric that was measured. */
static json_t *summary_json(const struct bench_variant *variant)
{
    json_t *object = json_object();

    for (size_t i = 0; i < BENCH_METRICS; i++) {
        struct bench_summary summary;
        size_t count;
        double *values = used_values(variant, (enum bench_metric)i, &count);

        bench_summarize(values, count, &summary);
        free(values);
        if (count == 0)
            continue;
        json_object_set_new(object, bench_metrics[i].name,
                            json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "count",
                                      (json_int_t)count, "median", number(summary.median), "mean",
                                      number(summary.mean), "deviation", number(summary.deviation),
                                      "deviation_percent", number(summary.deviation_percent), "low",
                                      number(summary.low), "high", number(summary.high)));
    }
    return object;
}

/* Against the cell's first variant. */
static json_t *difference_json(const struct bench_variant *before,
                               const struct bench_variant *after)
{
    json_t *object = json_object();

    for (size_t i = 0; i < BENCH_METRICS; i++) {
        struct bench_difference difference;
        size_t count[2];
        double *values[2] = {used_values(before, (enum bench_metric)i, &count[0]),
                             used_values(after, (enum bench_metric)i, &count[1])};

        bench_compare(values[0], count[0], values[1], count[1], &difference);
        free(values[0]);
        free(values[1]);
        if (count[0] == 0 || count[1] == 0)
            continue;
        json_object_set_new(object, bench_metrics[i].name,
                            json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "difference",
                                      number(difference.difference), "low", number(difference.low),
                                      "high", number(difference.high), "percent",
                                      number(difference.percent), "low_percent",
                                      number(difference.low_percent), "high_percent",
                                      number(difference.high_percent), "p", number(difference.p),
                                      "significant", difference.significant));
    }
    return object;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static json_t *variant_json(const struct bench_cell *cell, const struct bench_variant *variant)
{
    json_t *object = json_object(), *samples = json_array();

    for (size_t i = 0; i < variant->sample_count; i++)
        json_array_append_new(samples, sample_json(&variant->samples[i]));
    json_object_set_new(object, "name", text(variant->name));
    json_object_set_new(object, "commands", text(variant->commands));
    json_object_set_new(object, "features", text(variant->features));
    json_object_set_new(object, "faults", text(variant->faults));
    json_object_set_new(object, "summary", summary_json(variant));
    json_object_set_new(object, "difference",
                        variant != &cell->variants[0] ? difference_json(&cell->variants[0], variant)
                                                      : json_null());
    json_object_set_new(object, "samples", samples);
    return object;
}

static json_t *cell_json(const struct bench_experiment *experiment, const struct bench_cell *cell)
{
    json_t *object = json_object(), *labels = json_object(), *variants = json_array();

    for (size_t i = 0; cell->labels[i] != NULL; i++)
        json_object_set_new(labels, experiment->label_headings[i], text(cell->labels[i]));
    for (size_t v = 0; v < cell->variant_count; v++)
        json_array_append_new(variants, variant_json(cell, &cell->variants[v]));
    json_object_set_new(object, "labels", labels);
    json_object_set_new(object, "cores", json_integer(cell->cores));
    json_object_set_new(object, "outcome", text(bench_outcome_text(cell->outcome)));
    json_object_set_new(object, "error", text(cell->error));
    json_object_set_new(object, "placement", text(bench_placement(cell)));
    json_object_set_new(object, "round_trip_seconds", number(bench_round_trip_of(cell)));
    json_object_set_new(object, "variants", variants);
    return object;
}

static const char *const kind_names[] = {
    [BENCH_COLUMN_BEFORE] = "before",
    [BENCH_COLUMN_AFTER] = "after",
    [BENCH_COLUMN_GAIN] = "gain",
    [BENCH_COLUMN_RATIO] = "ratio",
    [BENCH_COLUMN_ELIMINATED] = "eliminated",
    [BENCH_COLUMN_BEFORE_TO_BEST] = "before_to_best",
    [BENCH_COLUMN_AFTER_TO_BEST] = "after_to_best",
    [BENCH_COLUMN_DEVIATION_BEFORE] = "deviation_before",
    [BENCH_COLUMN_DEVIATION_AFTER] = "deviation_after",
};

const char *bench_column_kind_name(enum bench_column_kind kind)
{
    return kind_names[kind];
}

int bench_column_kind_of(const char *name)
{
    for (int i = 0; i <= BENCH_COLUMN_DEVIATION_AFTER; i++)
        if (strcmp(kind_names[i], name) == 0)
            return i;
    return -1;
}

/* The table as all reports show it. */
static json_t *table_json(const struct bench_result *result)
{
    const struct bench_experiment *experiment = result->experiment;
    json_t *columns = json_array();

    for (size_t i = 0; i < experiment->column_count; i++) {
        const struct bench_column *column = &experiment->columns[i];
        char *heading = bench_column_heading(column);

        json_array_append_new(
            columns, json_pack("{s:s, s:s, s:s}", "kind", bench_column_kind_name(column->kind),
                               "metric", bench_metrics[column->metric].name, "heading", heading));
        free(heading);
    }
    return columns;
}

static json_t *result_json(const struct bench_result *result)
{
    const struct bench_experiment *experiment = result->experiment;
    json_t *object = json_object(), *cells = json_array();

    for (size_t i = 0; i < result->cells.count; i++)
        json_array_append_new(cells, cell_json(experiment, &result->cells.cells[i]));
    json_object_set_new(object, "experiment", text(experiment->name));
    json_object_set_new(object, "title", text(experiment->title));
    json_object_set_new(object, "summary", text(experiment->summary));
    json_object_set_new(object, "headline", text(bench_metrics[experiment->headline].name));
    json_object_set_new(object, "columns", table_json(result));
    json_object_set_new(object, "slice_seconds", number(result->slice_seconds));
    json_object_set_new(object, "seconds", number(result->seconds));
    json_object_set_new(object, "conclusion", text(result->conclusion));
    json_object_set_new(object, "cells", cells);
    return object;
}

json_t *bench_report_json(const struct bench_report *report)
{
    json_t *object = json_object(), *results = json_array(), *notes = json_array();

    for (size_t i = 0; i < report->note_count; i++)
        json_array_append_new(notes, text(report->notes[i]));
    for (size_t i = 0; i < report->result_count; i++)
        json_array_append_new(results, result_json(&report->results[i]));
    json_object_set_new(object, "format", json_string(BENCH_FORMAT));
    json_object_set_new(object, "quick", json_boolean(report->quick));
    json_object_set_new(object, "interrupted", json_boolean(report->interrupted));
    json_object_set_new(object, "machine", machine_json(&report->machine));
    json_object_set_new(object, "other_machine",
                        report->other != NULL ? machine_json(report->other) : json_null());
    json_object_set_new(object, "notes", notes);
    json_object_set_new(object, "results", results);
    return object;
}
