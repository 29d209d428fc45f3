/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tables of all reports show. */
#include "bench/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/statistics.h"

/* The used values of a variant; to be freed. */
static double *values_of(const struct bench_variant *variant, enum bench_metric metric,
                         size_t *count)
{
    double *values = bench_allocate(variant->sample_count * sizeof(*values));

    *count = bench_values(variant, metric, values, variant->sample_count);
    return values;
}

static void summarize(const struct bench_variant *variant, enum bench_metric metric,
                      struct bench_summary *summary)
{
    size_t count;
    double *values = values_of(variant, metric, &count);

    bench_summarize(values, count, summary);
    free(values);
}

bool bench_differ(const struct bench_variant *before, const struct bench_variant *after,
                  enum bench_metric metric)
{
    struct bench_difference difference;
    size_t count[2];
    double *values[2] = {values_of(before, metric, &count[0]), values_of(after, metric, &count[1])};

    bench_compare(values[0], count[0], values[1], count[1], &difference);
    free(values[0]);
    free(values[1]);
    return difference.significant;
}

static bool is_faulty(const struct bench_variant *variant)
{
    for (size_t i = 0; i < variant->sample_count; i++)
        if (variant->samples[i].used && variant->samples[i].faulty)
            return true;
    return false;
}

/* Median over the rounds in which both were used. */
static double ratio_of(const struct bench_variant *before, const struct bench_variant *after,
                       enum bench_metric metric)
{
    size_t rounds =
        before->sample_count < after->sample_count ? before->sample_count : after->sample_count;
    double *ratios = bench_allocate(rounds * sizeof(*ratios)), ratio;
    size_t count = 0;

    for (size_t i = 0; i < rounds; i++) {
        if (!before->samples[i].used || !after->samples[i].used)
            continue;
        ratio = after->samples[i].value[metric] / before->samples[i].value[metric];
        if (isfinite(ratio))
            ratios[count++] = ratio;
    }
    ratio = bench_median(ratios, count);
    free(ratios);
    return ratio;
}

static double median_of(const struct bench_variant *variant, enum bench_metric metric)
{
    struct bench_summary summary;

    summarize(variant, metric, &summary);
    return summary.median;
}

const struct bench_variant *bench_best(const struct bench_cell *cell, enum bench_metric metric)
{
    bool less = bench_metrics[metric].better == BENCH_LESS_IS_BETTER;
    const struct bench_variant *best = NULL;
    double value, best_value = NAN;

    for (size_t v = 0; v < cell->variant_count; v++) {
        value = median_of(&cell->variants[v], metric);
        if (isnan(value) || (best != NULL && (less ? value >= best_value : value <= best_value)))
            continue;
        best = &cell->variants[v];
        best_value = value;
    }
    return best;
}

double bench_to_best(const struct bench_cell *cell, const struct bench_variant *variant,
                     enum bench_metric metric)
{
    const struct bench_variant *best = bench_best(cell, metric);
    double ratio = best == NULL ? NAN : median_of(variant, metric) / median_of(best, metric);

    return bench_metrics[metric].better == BENCH_LESS_IS_BETTER ? 1 / ratio : ratio;
}

static double shown_value(const struct bench_column *column, const struct bench_cell *cell,
                          const struct bench_variant *after)
{
    const struct bench_variant *before = &cell->variants[0];
    double scale = bench_metrics[column->metric].scale;
    struct bench_summary first, second;

    summarize(before, column->metric, &first);
    summarize(after, column->metric, &second);
    switch (column->kind) {
    case BENCH_COLUMN_BEFORE:
        return first.median * scale;
    case BENCH_COLUMN_AFTER:
        return second.median * scale;
    case BENCH_COLUMN_GAIN:
        return 100 * (second.median / first.median - 1);
    case BENCH_COLUMN_RATIO:
        return ratio_of(before, after, column->metric);
    case BENCH_COLUMN_ELIMINATED:
        return 100 * (1 - second.median / first.median);
    case BENCH_COLUMN_BEFORE_TO_BEST:
        return bench_to_best(cell, before, column->metric);
    case BENCH_COLUMN_AFTER_TO_BEST:
        return bench_to_best(cell, after, column->metric);
    case BENCH_COLUMN_DEVIATION_BEFORE:
        return first.deviation_percent;
    case BENCH_COLUMN_DEVIATION_AFTER:
        return second.deviation_percent;
    }
    return NAN;
}

static bool is_of_both(enum bench_column_kind kind)
{
    return kind == BENCH_COLUMN_GAIN || kind == BENCH_COLUMN_RATIO ||
           kind == BENCH_COLUMN_ELIMINATED;
}

static char *value_text(const struct bench_column *column, double value)
{
    switch (column->kind) {
    case BENCH_COLUMN_BEFORE:
    case BENCH_COLUMN_AFTER:
        return bench_format("%.*f", bench_metrics[column->metric].digits, value);
    case BENCH_COLUMN_RATIO:
    case BENCH_COLUMN_BEFORE_TO_BEST:
    case BENCH_COLUMN_AFTER_TO_BEST:
        return bench_format("%.3f", value);
    case BENCH_COLUMN_GAIN:
        return bench_format("%+.1f%%", value);
    default:
        return bench_format("%.1f%%", value);
    }
}

void bench_show(const struct bench_column *column, const struct bench_cell *cell,
                const struct bench_variant *variant, struct bench_shown *shown)
{
    const struct bench_variant *before = &cell->variants[0];
    bool of_first = column->kind == BENCH_COLUMN_BEFORE ||
                    column->kind == BENCH_COLUMN_BEFORE_TO_BEST ||
                    column->kind == BENCH_COLUMN_DEVIATION_BEFORE;
    char *text;

    *shown = (struct bench_shown){.text = "-", .value = NAN};
    if (before == variant && is_of_both(column->kind))
        return;
    shown->value = shown_value(column, cell, variant);
    if (!isfinite(shown->value)) {
        shown->value = NAN;
        return;
    }
    shown->significant = is_of_both(column->kind) && bench_differ(before, variant, column->metric);
    shown->faulty =
        is_faulty(of_first ? before : variant) || (is_of_both(column->kind) && is_faulty(before));
    text = value_text(column, shown->value);
    snprintf(shown->text, sizeof(shown->text), "%s%s%s%s", shown->significant ? "[" : "", text,
             shown->significant ? "]" : "", shown->faulty ? "!" : "");
    free(text);
}

char *bench_column_heading(const struct bench_column *column)
{
    const struct bench_metric_text *metric = &bench_metrics[column->metric];
    const char *kind = "";

    if (column->heading != NULL)
        return bench_format("%s", column->heading);
    switch (column->kind) {
    case BENCH_COLUMN_BEFORE:
    case BENCH_COLUMN_AFTER:
        return bench_format("%s%s%s %s", metric->title, *metric->unit != '\0' ? ", " : "",
                            metric->unit, column->kind == BENCH_COLUMN_BEFORE ? "before" : "after");
    case BENCH_COLUMN_GAIN:
        kind = "gain";
        break;
    case BENCH_COLUMN_RATIO:
        kind = "ratio";
        break;
    case BENCH_COLUMN_ELIMINATED:
        kind = "eliminated";
        break;
    case BENCH_COLUMN_BEFORE_TO_BEST:
        kind = "before to the best";
        break;
    case BENCH_COLUMN_AFTER_TO_BEST:
        kind = "after to the best";
        break;
    case BENCH_COLUMN_DEVIATION_BEFORE:
        kind = "%stddev before";
        break;
    case BENCH_COLUMN_DEVIATION_AFTER:
        kind = "%stddev after";
        break;
    }
    return bench_format("%s, %s", metric->title, kind);
}
