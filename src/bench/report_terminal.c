/* SPDX-License-Identifier: BSD-3-Clause */
/* A run's reports as text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/report.h"

void bench_print_machine(FILE *file, const struct bench_machine *machine)
{
    fprintf(file, "virtwire %s (%s), %s\n", machine->virtwire, machine->commit, machine->when);
    fprintf(file, "  %s; virtual machine: %s; cores %u (driver) and %u (device) of %s\n",
            machine->kernel, machine->virtual_machine, machine->cores[0], machine->cores[1],
            machine->cpu);
    fprintf(file, "  mitigations: %s\n", machine->mitigations);
    fprintf(
        file,
        "  system call %.0f ns; kick: nobody waits %.0f ns, to a sleeper %.1f us, who runs after "
        "%.1f us; cache line to the other core and back %.0f ns\n",
        machine->system_call * 1e9, machine->kick_idle_cost * 1e9, machine->kick_cost * 1e6,
        machine->kick_latency * 1e6, machine->round_trip * 1e9);
    fprintf(file, "  DPDK: %s\n", machine->dpdk);
}

/* ---- a table --------------------------------------------------------------------------------- */

struct table {
    char **texts; /* rows * columns; the first row are the headings */
    size_t columns, rows;
    size_t left; /* so many columns are set to the left */
};

static void add(struct table *table, size_t column, char *text)
{
    if (column == 0) {
        table->texts = reallocarray(table->texts, ++table->rows * table->columns, sizeof(char *));
        if (table->texts == NULL)
            abort();
    }
    table->texts[(table->rows - 1) * table->columns + column] = text;
}

static size_t width_of(const struct table *table, size_t column)
{
    size_t width = 0, length;

    for (size_t row = 0; row < table->rows; row++) {
        length = strlen(table->texts[row * table->columns + column]);
        width = length > width ? length : width;
    }
    return width;
}

static void print_and_free(FILE *file, struct table *table)
{
    for (size_t row = 0; row < table->rows; row++)
        for (size_t column = 0; column < table->columns; column++) {
            char **text = &table->texts[row * table->columns + column];
            int width = (int)width_of(table, column);

            fprintf(file, "%s%*s%s", column > 0 ? "  " : "", column < table->left ? -width : width,
                    *text, column + 1 == table->columns ? "\n" : "");
        }
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->texts[i]);
    free(table->texts);
}

static char *compared(const struct bench_cell *cell, const struct bench_variant *variant)
{
    if (variant == &cell->variants[0])
        return bench_format("%s", variant->name);
    return bench_format("%s > %s", cell->variants[0].name, variant->name);
}

static void add_row(struct table *table, const struct bench_experiment *experiment,
                    const struct bench_cell *cell, const struct bench_variant *variant)
{
    struct bench_shown shown;
    size_t column = 0;

    for (size_t i = 0; cell->labels[i] != NULL; i++)
        add(table, column++, bench_format("%s", cell->labels[i]));
    add(table, column++, compared(cell, variant));
    for (size_t i = 0; i < experiment->column_count; i++) {
        bench_show(&experiment->columns[i], cell, variant, &shown);
        add(table, column++, bench_format("%s", shown.text));
    }
    add(table, column, bench_format("%zu, %s", variant->sample_count, bench_placement(cell)));
}

static void add_headings(struct table *table, const struct bench_experiment *experiment)
{
    for (size_t i = 0; i < table->left - 1; i++)
        add(table, i, bench_format("%s", experiment->label_headings[i]));
    add(table, table->left - 1, bench_format("compared"));
    for (size_t i = 0; i < experiment->column_count; i++)
        add(table, table->left + i, bench_column_heading(&experiment->columns[i]));
    add(table, table->columns - 1, bench_format("rounds, cores"));
}

static void print_notes(FILE *file, const struct bench_result *result)
{
    size_t outcomes[BENCH_FAILED + 1] = {0};

    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        outcomes[cell->outcome]++;
        if (cell->outcome == BENCH_FAILED) {
            fputs("failed:", file);
            for (char **label = cell->labels; *label != NULL; label++)
                fprintf(file, " %s%s", *label, label[1] != NULL ? "," : "");
            fprintf(file, ": %s\n", cell->error);
        }
        for (size_t v = 0; v < cell->variant_count; v++)
            if (cell->variants[v].faults != NULL)
                fprintf(file, "! %s, %s: %s\n", cell->labels[0] != NULL ? cell->labels[0] : "",
                        cell->variants[v].name, cell->variants[v].faults);
    }
    fputs("[ ]: significant (Welch's t-test, 95 %). Why the rounds ended:", file);
    for (int i = 0; i <= BENCH_FAILED; i++)
        if (outcomes[i] > 0)
            fprintf(file, " %s (%zu cells);", bench_outcome_text((enum bench_outcome)i),
                    outcomes[i]);
    fprintf(file, " slices of %.2f s, %.0f s in all.\n", result->slice_seconds, result->seconds);
}

void bench_print_result(FILE *file, const struct bench_result *result)
{
    const struct bench_experiment *experiment = result->experiment;
    struct table table = {0};

    while (experiment->label_headings[table.left] != NULL)
        table.left++;
    table.left++;
    table.columns = table.left + experiment->column_count + 1;
    add_headings(&table, experiment);
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        for (size_t v = cell->variant_count > 1 ? 1 : 0; v < cell->variant_count; v++)
            if (cell->variants[v].sample_count > 0)
                add_row(&table, experiment, cell, &cell->variants[v]);
    }
    fprintf(file, "\n%s: %s\n\n", experiment->name, experiment->title);
    print_and_free(file, &table);
    if (result->conclusion != NULL)
        fprintf(file, "%s", result->conclusion);
    print_notes(file, result);
}
