/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/texts.h"
#include "bench/markup.h"
#include "bench/plot.h"
#include "bench/report.h"
#include "bench/report_style.h"
#include "bench/statistics.h"

static void write_notice(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void write_notice(FILE *to, const char *format, ...)
{
    va_list arguments;

    fputs("<p class=\"notice\">", to);
    va_start(arguments, format);
    markup_list(to, format, arguments);
    va_end(arguments);
    fputs("</p>\n", to);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void write_cell(FILE *to, const char *class, const char *text)
{
    fprintf(to, "<td class=\"%s\">", class);
    markup_text(to, text);
    fputs("</td>", to);
}

static void write_facts(FILE *to, const struct bench_fact *facts)
{
    fputs("<dl>\n", to);
    for (int i = 0; i < BENCH_FACTS; i++) {
        fprintf(to, "<div%s><dt>%s</dt><dd>", facts[i].is_long ? " class=\"wide\"" : "",
                facts[i].title);
        markup_text(to, facts[i].text);
        fputs("</dd></div>\n", to);
    }
    fputs("</dl>\n", to);
}

/* Those of a comparison, side by side. */
static void write_both_facts(FILE *to, const struct bench_fact *one, const struct bench_fact *other)
{
    fputs("<div class=\"scroll\"><table class=\"machine\">\n"
          "<thead><tr><td></td><th scope=\"col\">A</th><th scope=\"col\">B</th></tr></thead>\n",
          to);
    for (int i = 0; i < BENCH_FACTS; i++) {
        fprintf(to, "<tr><th scope=\"row\">%s</th>", one[i].title);
        write_cell(to, "", one[i].text);
        write_cell(to, "", other[i].text);
        fputs("</tr>\n", to);
    }
    fputs("</table></div>\n", to);
}

static void write_machine(FILE *to, const struct bench_report *report)
{
    struct bench_fact facts[2][BENCH_FACTS];

    bench_machine_facts(&report->machine, facts[0]);
    if (report->other != NULL) {
        bench_machine_facts(report->other, facts[1]);
        write_both_facts(to, facts[0], facts[1]);
        bench_facts_free(facts[1]);
    } else {
        write_facts(to, facts[0]);
    }
    bench_facts_free(facts[0]);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* What all rows compare, to be freed; NULL: not all the same. */
static char *common_comparison(const struct bench_cell_list *list)
{
    char *common = NULL;

    for (size_t i = 0; i < list->count; i++)
        for (size_t v = bench_first_row(&list->cells[i]); v < list->cells[i].variant_count; v++) {
            char *text = bench_compared(&list->cells[i], &list->cells[i].variants[v]);

            if (common == NULL) {
                common = text;
                continue;
            }
            if (strcmp(common, text) != 0) {
                free(common);
                free(text);
                return NULL;
            }
            free(text);
        }
    return common;
}

static void write_heading(FILE *to, const char *class, const char *text)
{
    fprintf(to, "<th scope=\"col\" class=\"%s\">", class);
    markup_text(to, text);
    fputs("</th>", to);
}

static void write_label_headings(FILE *to, const struct bench_experiment *experiment)
{
    for (const char *const *heading = experiment->label_headings; *heading != NULL; heading++)
        write_heading(to, "label", *heading);
}

static void write_labels(FILE *to, const struct bench_cell *cell)
{
    for (char **label = cell->labels; *label != NULL; label++) {
        fputs("<th scope=\"row\">", to);
        markup_text(to, *label);
        fputs("</th>", to);
    }
}

/* Brackets and marks take no room of their own, so that the decimals stand below each other. */
static void write_shown(FILE *to, const struct bench_shown *shown, enum bench_column_kind kind)
{
    size_t length = strcspn(shown->text, "!");
    bool may_have_brackets =
        kind == BENCH_COLUMN_GAIN || kind == BENCH_COLUMN_RATIO || kind == BENCH_COLUMN_ELIMINATED;
    bool bracket;

    while (length > 0 && shown->text[length - 1] == ' ')
        length--;
    bracket = length > 0 && shown->text[length - 1] == ']';
    fprintf(to, "<td class=\"number%s%s\">", shown->significant ? " strong" : "",
            shown->faulty ? " faulty-rate" : "");
    markup_format(to, "%.*s", (int)length, shown->text);
    if (may_have_brackets && !bracket)
        fputs("<span class=\"ghost\" aria-hidden=\"true\">]</span>", to);
    if (shown->faulty)
        fputs("<b class=\"mark\" title=\"frames were lost or damaged\">!</b>", to);
    fputs("</td>", to);
}

static size_t used_samples(const struct bench_variant *variant)
{
    size_t count = 0;

    for (size_t i = 0; i < variant->sample_count; i++)
        count += variant->samples[i].used;
    return count;
}

static void write_row(FILE *to, const struct bench_experiment *experiment,
                      const struct bench_cell *cell, size_t variant, bool name_it)
{
    fputs("<tr>", to);
    write_labels(to, cell);
    if (name_it) {
        char *text = bench_compared(cell, &cell->variants[variant]);

        write_cell(to, "variant", text);
        free(text);
    }
    for (size_t i = 0; i < experiment->column_count; i++) {
        struct bench_shown shown;

        bench_show(&experiment->columns[i], cell, &cell->variants[variant], &shown);
        write_shown(to, &shown, experiment->columns[i].kind);
    }
    fprintf(to, "<td class=\"number dim\">%zu, %s</td></tr>\n",
            used_samples(&cell->variants[variant]), bench_placement(cell));
}

/* The table of the experiment, in its own shape. */
static void write_table(FILE *to, const struct bench_result *result)
{
    const struct bench_experiment *experiment = result->experiment;
    char *common = common_comparison(&result->cells);

    fputs("<div class=\"scroll\"><table class=\"figures\">\n<caption>", to);
    if (common != NULL)
        markup_format(to, "%s. ", common);
    fputs("Medians; [ ]: significant at 95 % (Welch's t-test); !: with loss or damage.</caption>\n"
          "<thead><tr>",
          to);
    write_label_headings(to, experiment);
    if (common == NULL)
        write_heading(to, "label", "compared");
    for (size_t i = 0; i < experiment->column_count; i++) {
        char *heading = bench_column_heading(&experiment->columns[i]);

        write_heading(to, "number", heading);
        free(heading);
    }
    write_heading(to, "number", "slices, cores");
    fputs("</tr></thead>\n<tbody>\n", to);
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        for (size_t v = bench_first_row(cell); v < cell->variant_count; v++)
            write_row(to, experiment, cell, v, common == NULL);
    }
    fputs("</tbody></table></div>\n", to);
    free(common);
}

/* ---- everything that was measured ------------------------------------------------------------ */

static void write_metric(FILE *to, const struct bench_variant *variant, enum bench_metric metric)
{
    const struct bench_metric_text *text = &bench_metrics[metric];
    struct bench_summary summary = bench_summary_of(variant, metric);

    if (summary.count == 0) {
        fputs("<td class=\"number dim\">-</td>", to);
        return;
    }
    fprintf(to, "<td class=\"number\">%.*f", text->digits, summary.median * text->scale);
    if (isfinite(summary.low))
        fprintf(to, " <span class=\"dim\">±%.*f</span>", text->digits,
                (summary.high - summary.low) / 2 * text->scale);
    fputs("</td>", to);
}

static void write_everything(FILE *to, const struct bench_result *result)
{
    bool measured[BENCH_METRICS];

    fputs("<details class=\"everything\"><summary>All that was measured</summary>\n"
          "<div class=\"scroll\"><table>\n<caption>Medians, ± half of the 95 % confidence interval "
          "of the mean.</caption>\n<thead><tr>",
          to);
    write_label_headings(to, result->experiment);
    write_heading(to, "label", "variant");
    for (int m = 0; m < BENCH_METRICS; m++) {
        const struct bench_metric_text *text = &bench_metrics[m];

        measured[m] = bench_was_measured(result, (enum bench_metric)m);
        if (measured[m]) {
            char *heading =
                bench_format("%s%s%s", text->title, *text->unit ? ", " : "", text->unit);

            write_heading(to, "number", heading);
            free(heading);
        }
    }
    write_heading(to, "number", "slices used");
    write_heading(to, "label", "placement");
    write_heading(to, "label", "ended");
    fputs("</tr></thead>\n<tbody>\n", to);
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        for (size_t v = 0; v < cell->variant_count; v++) {
            const struct bench_variant *variant = &cell->variants[v];

            fputs("<tr>", to);
            write_labels(to, cell);
            write_cell(to, "variant", variant->name);
            for (int m = 0; m < BENCH_METRICS; m++)
                if (measured[m])
                    write_metric(to, variant, (enum bench_metric)m);
            fprintf(to, "<td class=\"number\">%zu of %zu</td>", used_samples(variant),
                    variant->sample_count);
            write_cell(to, "", bench_placement(cell));
            write_cell(to, "", bench_outcome_text(cell->outcome));
            fputs("</tr>\n", to);
        }
    }
    fputs("</tbody></table></div></details>\n", to);
}

/* What went wrong stands where it is seen. */
static void write_faults(FILE *to, const struct bench_result *result)
{
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];
        char *name = bench_cell_name(cell);

        if (cell->outcome == BENCH_FAILED)
            write_notice(to, "%s: failed: %s", name, cell->error != NULL ? cell->error : "");
        for (size_t v = 0; v < cell->variant_count; v++)
            if (cell->variants[v].faults != NULL)
                write_notice(to, "%s, %s: %s", name, cell->variants[v].name,
                             cell->variants[v].faults);
        free(name);
    }
}

static void write_commands(FILE *to, const struct bench_result *result)
{
    fputs("<details class=\"commands\"><summary>Command lines and negotiated features</summary>\n",
          to);
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];
        char *name = bench_cell_name(cell);

        fputs("<h3>", to);
        markup_text(to, name);
        fputs("</h3>\n", to);
        free(name);
        for (size_t v = 0; v < cell->variant_count; v++) {
            const struct bench_variant *variant = &cell->variants[v];

            fputs("<p>", to);
            markup_text(to, variant->name);
            if (variant->features != NULL)
                markup_format(to, ": %s", variant->features);
            fputs("</p>\n<pre>", to);
            markup_text(to, variant->commands != NULL ? variant->commands : "not known");
            fputs("</pre>\n", to);
        }
    }
    fputs("</details>\n", to);
}

/* ---- plots ----------------------------------------------------------------------------------- */

/* The headline's is seen at once; those of the other columns unfold. */
static void write_plots(FILE *to, const struct bench_result *result, size_t number)
{
    const struct bench_experiment *experiment = result->experiment;
    bool done[BENCH_METRICS] = {false};
    char id[64];

    snprintf(id, sizeof(id), "plot-%zu-%d", number, (int)experiment->headline);
    fputs("<figure class=\"scroll\">\n", to);
    bench_plot(to, result, experiment->headline, id);
    fputs("</figure>\n", to);
    done[experiment->headline] = true;
    for (size_t i = 0; i < experiment->column_count; i++) {
        enum bench_metric metric = experiment->columns[i].metric;

        if (done[metric] || !bench_was_measured(result, metric))
            continue;
        done[metric] = true;
        fputs("<details class=\"more\"><summary>Plot: ", to);
        markup_text(to, bench_metrics[metric].title);
        fputs("</summary>\n<figure class=\"scroll\">\n", to);
        snprintf(id, sizeof(id), "plot-%zu-%d", number, (int)metric);
        bench_plot(to, result, metric, id);
        fputs("</figure></details>\n", to);
    }
}

/* ---- the page -------------------------------------------------------------------------------- */

static void write_result(FILE *to, const struct bench_result *result, size_t number)
{
    fprintf(to, "<section id=\"experiment-%zu\">\n<h2>", number);
    markup_format(to, "%s: %s", result->experiment->name, result->experiment->title);
    fputs("</h2>\n<p>", to);
    markup_text(to, result->experiment->summary);
    fputs("</p>\n", to);
    write_faults(to, result);
    write_plots(to, result, number);
    write_table(to, result);
    if (result->conclusion != NULL) {
        fputs("<pre class=\"conclusion\">", to);
        markup_text(to, result->conclusion);
        fputs("</pre>\n", to);
    }
    write_everything(to, result);
    write_commands(to, result);
    fputs("</section>\n", to);
}

static void write_head(FILE *to, const struct bench_report *report)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" "
          "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
          "<title>virtwire bench: ",
          to);
    for (size_t i = 0; i < report->result_count; i++)
        markup_format(to, "%s%s", i > 0 ? ", " : "", report->results[i].experiment->name);
    fputs("</title>\n<style>\n", to);
    fputs(bench_report_style, to);
    fputs("</style>\n</head>\n<body>\n<header>\n<h1>virtwire bench</h1>\n", to);
    if (report->quick)
        write_notice(to, "A quick run: its counts can be trusted, its times cannot.");
    if (report->interrupted)
        write_notice(to, "The run was interrupted: some cells are missing or short.");
    for (size_t i = 0; i < report->note_count; i++)
        write_notice(to, "%s", report->notes[i]);
    write_machine(to, report);
    fputs("</header>\n", to);
}

static void write_navigation(FILE *to, const struct bench_report *report)
{
    if (report->result_count < 2)
        return;
    fputs("<nav aria-label=\"Experiments\"><ul>\n", to);
    for (size_t i = 0; i < report->result_count; i++) {
        fprintf(to, "<li><a href=\"#experiment-%zu\">", i);
        markup_text(to, report->results[i].experiment->name);
        fputs("</a></li>\n", to);
    }
    fputs("</ul></nav>\n", to);
}

int bench_report_html(FILE *file, const struct bench_report *report)
{
    errno = 0;
    write_head(file, report);
    write_navigation(file, report);
    fputs("<main>\n", file);
    for (size_t i = 0; i < report->result_count; i++)
        write_result(file, &report->results[i], i);
    fputs(
        "</main>\n<footer class=\"dim\">A bar is as long as the median of its slices; dots are the "
        "slices, whiskers 95 % confidence intervals of the mean (Student) and of the difference "
        "(Welch). All variants of a cell were measured in turns, slice by slice.</footer>\n"
        "</body>\n</html>\n",
        file);
    if (fflush(file) == EOF || ferror(file))
        return errno != 0 ? -errno : -EIO;
    return 0;
}
