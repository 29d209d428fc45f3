/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A report as Markdown, with what somebody read in it.
 *
 * The readings are Markdown as well: what comes first stands at the top, and what follows a line
 * "## NAME" below the table of the experiment of that name. No figure is typed there:
 *
 *     {{LABEL, LABEL; VARIANT; HEADING}}
 *
 * stands for what the table shows in the row of these labels and this variant, below this heading.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/texts.h"
#include "bench/report.h"

/* ---- tables ---------------------------------------------------------------------------------- */

/* Text that is nothing but text, in one line. */
static void write_line(FILE *to, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("|\\*`", *text) != NULL)
            fputc('\\', to);
        if (*text == '<')
            fputs("&lt;", to);
        else
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, to);
    }
}

/* A cell of a table. */
static void write_text(FILE *to, const char *text)
{
    fputc(' ', to);
    write_line(to, text);
    fputs(" |", to);
}

static void write_headings(FILE *to, const struct bench_experiment *experiment)
{
    fputs("|", to);
    for (size_t i = 0; experiment->label_headings[i] != NULL; i++)
        write_text(to, experiment->label_headings[i]);
    write_text(to, "compared");
    for (size_t i = 0; i < experiment->column_count; i++) {
        char *heading = bench_column_heading(&experiment->columns[i]);

        write_text(to, heading);
        free(heading);
    }
    fputs("\n|", to);
    for (size_t i = 0; experiment->label_headings[i] != NULL; i++)
        fputs("---|", to);
    fputs("---|", to);
    for (size_t i = 0; i < experiment->column_count; i++)
        fputs("---:|", to);
    fputs("\n", to);
}

static void write_row(FILE *to, const struct bench_experiment *experiment,
                      const struct bench_cell *cell, size_t variant)
{
    char *compared = bench_compared(cell, &cell->variants[variant]);

    fputs("|", to);
    for (char **label = cell->labels; *label != NULL; label++)
        write_text(to, *label);
    write_text(to, compared);
    free(compared);
    for (size_t i = 0; i < experiment->column_count; i++) {
        struct bench_shown shown;

        bench_show(&experiment->columns[i], cell, &cell->variants[variant], &shown);
        write_text(to, shown.text);
    }
    fputs("\n", to);
}

static void write_table(FILE *to, const struct bench_result *result)
{
    write_headings(to, result->experiment);
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        for (size_t v = bench_first_row(cell); v < cell->variant_count; v++)
            write_row(to, result->experiment, cell, v);
    }
}

static void write_machine(FILE *to, const struct bench_machine *machine)
{
    struct bench_fact facts[BENCH_FACTS];

    bench_machine_facts(machine, facts);
    fputs("| | |\n|---|---|\n", to);
    for (int i = 0; i < BENCH_FACTS; i++) {
        fputs("|", to);
        write_text(to, facts[i].title);
        write_text(to, facts[i].text);
        fputs("\n", to);
    }
    bench_facts_free(facts);
}

/* ---- what went wrong, and where the cores were ----------------------------------------------- */

static void write_point(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A point of a list. */
static void write_point(FILE *to, const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    fputs("\n- ", to);
    write_line(to, text);
    free(text);
}

static void write_faults(FILE *to, const struct bench_cell *cell)
{
    char *name = bench_cell_name(cell);

    if (cell->outcome == BENCH_FAILED)
        write_point(to, "%s: failed: %s", name, cell->error != NULL ? cell->error : "");
    for (size_t v = 0; v < cell->variant_count; v++)
        if (cell->variants[v].faults != NULL)
            write_point(to, "!: %s, %s: %s", name, cell->variants[v].name,
                        cell->variants[v].faults);
    free(name);
}

static void write_placements(FILE *to, const struct bench_cell_list *list)
{
    static const char *const placements[] = {"near", "far", "unsteady", "one core", "not measured"};
    size_t counts[5] = {0};
    const char *comma = "";

    for (size_t i = 0; i < list->count; i++)
        for (size_t p = 0; p < 5; p++)
            counts[p] += strcmp(bench_placement(&list->cells[i]), placements[p]) == 0;
    fputs("\nPlacement of the cores: ", to);
    for (size_t p = 0; p < 5; p++)
        if (counts[p] > 0) {
            fprintf(to, "%s%s in %zu", comma, placements[p], counts[p]);
            comma = ", ";
        }
    fprintf(to, " of %zu cells.\n", list->count);
    for (size_t i = 0; i < list->count; i++)
        write_faults(to, &list->cells[i]);
    fputs("\n", to);
}

/* ---- readings -------------------------------------------------------------------------------- */

/* A part of a text. */
struct span {
    const char *start;
    size_t length;
};

static struct span trimmed(struct span span)
{
    while (span.length > 0 && isspace((unsigned char)*span.start)) {
        span.start++;
        span.length--;
    }
    while (span.length > 0 && isspace((unsigned char)span.start[span.length - 1]))
        span.length--;
    return span;
}

static bool equals(struct span span, const char *text)
{
    return strlen(text) == span.length && memcmp(span.start, text, span.length) == 0;
}

/* What comes before the separator; the rest stays. */
static struct span cut(struct span *rest, char separator)
{
    const char *end = memchr(rest->start, separator, rest->length);
    struct span part = *rest;

    if (end != NULL)
        part.length = (size_t)(end - rest->start);
    rest->start += part.length + (end != NULL);
    rest->length -= part.length + (end != NULL);
    return trimmed(part);
}

static const struct bench_cell *find_cell(const struct bench_cell_list *list, struct span labels)
{
    for (size_t i = 0; i < list->count; i++) {
        char *name = bench_cell_name(&list->cells[i]);
        bool found = equals(labels, name);

        free(name);
        if (found)
            return &list->cells[i];
    }
    return NULL;
}

static const struct bench_column *find_column(const struct bench_experiment *experiment,
                                              struct span heading)
{
    for (size_t i = 0; i < experiment->column_count; i++) {
        char *text = bench_column_heading(&experiment->columns[i]);
        bool found = equals(heading, text);

        free(text);
        if (found)
            return &experiment->columns[i];
    }
    return NULL;
}

/* Writes the figure that is meant. NULL, or what there is none of. */
static const char *write_figure(FILE *to, const struct bench_result *result, struct span meant)
{
    const struct bench_cell *cell = find_cell(&result->cells, cut(&meant, ';'));
    struct span name = cut(&meant, ';'), heading = cut(&meant, ';');
    const struct bench_column *column = find_column(result->experiment, heading);
    const struct bench_variant *variant = NULL;
    struct bench_shown shown;

    for (size_t v = 0; cell != NULL && v < cell->variant_count; v++)
        if (equals(name, cell->variants[v].name))
            variant = &cell->variants[v];
    if (cell == NULL || variant == NULL || column == NULL)
        return cell == NULL ? "cell" : variant == NULL ? "variant" : "heading";
    bench_show(column, cell, variant, &shown);
    fputs(shown.text, to);
    return NULL;
}

/* Writes a reading with the figures that it asks for. */
static int write_reading(struct bench_context *context, FILE *to, const struct bench_result *result,
                         struct span reading)
{
    const char *end = reading.start + reading.length;

    while (reading.start < end) {
        const char *open = memmem(reading.start, (size_t)(end - reading.start), "{{", 2);
        const char *close = open != NULL ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        const char *missing;

        if (close == NULL) {
            fwrite(reading.start, 1, (size_t)(end - reading.start), to);
            return 0;
        }
        fwrite(reading.start, 1, (size_t)(open - reading.start), to);
        missing = write_figure(to, result, (struct span){open + 2, (size_t)(close - open - 2)});
        if (missing != NULL)
            return bench_fail(context, "the reading of %s: %.*s: there is no such %s",
                              result->experiment->name, (int)(close + 2 - open), open, missing);
        reading.start = close + 2;
    }
    return 0;
}

/* The lines up to the next "## NAME", which `rest` then begins with. */
static struct span next_section(struct span *rest)
{
    const char *end = rest->start + rest->length, *next = rest->start;
    struct span section = *rest;

    while (next < end && (next == rest->start || strncmp(next, "## ", 3) != 0)) {
        const char *newline = memchr(next, '\n', (size_t)(end - next));

        next = newline != NULL ? newline + 1 : end;
    }
    section.length = (size_t)(next - section.start);
    rest->start += section.length;
    rest->length -= section.length;
    return section;
}

/* The reading of the experiment; empty: there is none. */
static struct span reading_of(const char *readings, const char *name)
{
    struct span rest = {readings, strlen(readings)};

    while (rest.length > 0) {
        struct span section = next_section(&rest), heading = cut(&section, '\n');

        if (heading.length > 3 && strncmp(heading.start, "## ", 3) == 0 &&
            equals(trimmed((struct span){heading.start + 3, heading.length - 3}), name))
            return trimmed(section);
    }
    return (struct span){readings, 0};
}

/* What comes first in the readings, unless that is a section. */
static struct span preface_of(const char *readings)
{
    struct span rest = {readings, strlen(readings)};

    if (strncmp(readings, "## ", 3) == 0)
        return (struct span){readings, 0};
    return trimmed(next_section(&rest));
}

/* Each reading is of an experiment that is here. */
static int check_sections(struct bench_context *context, const struct bench_report *report,
                          const char *readings)
{
    struct span rest = {readings, strlen(readings)};

    while (rest.length > 0) {
        struct span section = next_section(&rest), heading = cut(&section, '\n'), name;
        bool found = false;

        if (heading.length < 3 || strncmp(heading.start, "## ", 3) != 0)
            continue;
        name = trimmed((struct span){heading.start + 3, heading.length - 3});
        for (size_t i = 0; i < report->result_count; i++)
            found |= equals(name, report->results[i].experiment->name);
        if (!found)
            return bench_fail(context,
                              "the readings have a section '%.*s', and the report has no "
                              "such experiment",
                              (int)name.length, name.start);
    }
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Each line of it a point of a list. */
static void write_conclusion(FILE *to, const char *conclusion)
{
    struct span rest = {conclusion, strlen(conclusion)};

    while (rest.length > 0) {
        struct span line = cut(&rest, '\n');

        if (line.length > 0)
            write_point(to, "%.*s", (int)line.length, line.start);
    }
    fputs("\n", to);
}

static int write_result(struct bench_context *context, FILE *to, const struct bench_result *result,
                        const char *readings)
{
    struct span reading = reading_of(readings, result->experiment->name);

    fprintf(to, "\n## %s: ", result->experiment->name);
    write_line(to, result->experiment->title);
    fputs("\n\n", to);
    write_line(to, result->experiment->summary);
    fputs("\n\n", to);
    write_table(to, result);
    write_placements(to, &result->cells);
    if (result->conclusion != NULL)
        write_conclusion(to, result->conclusion);
    if (reading.length == 0)
        return 0;
    fputs("\n", to);
    if (write_reading(context, to, result, reading) < 0)
        return -1;
    fputs("\n", to);
    return 0;
}

int bench_report_markdown(struct bench_context *context, FILE *file,
                          const struct bench_report *report, const char *readings)
{
    struct span preface;

    readings = readings != NULL ? readings : "";
    preface = preface_of(readings);
    if (check_sections(context, report, readings) < 0)
        return -1;
    if (preface.length > 0)
        fprintf(file, "%.*s\n\n", (int)preface.length, preface.start);
    else
        fputs("# Results of virtwire bench\n\n", file);
    if (report->quick)
        fputs("A quick run: its counts can be trusted, its times cannot.\n\n", file);
    if (report->interrupted)
        fputs("The run was interrupted.\n\n", file);
    for (size_t i = 0; i < report->note_count; i++) {
        write_line(file, report->notes[i]);
        fputs("\n\n", file);
    }
    write_machine(file, &report->machine);
    fputs(
        "\nFigures are medians. [ ]: significant at 95 % (Welch's t-test). !: frames were lost or "
        "damaged.\n",
        file);
    for (size_t i = 0; i < report->result_count; i++)
        if (write_result(context, file, &report->results[i], readings) < 0)
            return -1;
    if (fflush(file) == EOF || ferror(file) != 0)
        return bench_fail(context, "%s", strerror(errno != 0 ? errno : EIO));
    return 0;
}
