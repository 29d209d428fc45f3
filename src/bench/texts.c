/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/texts.h"

#include <math.h>
#include <stdlib.h>

#include "bench/engine.h"

static char *duration_text(double seconds)
{
    if (!isfinite(seconds))
        return bench_format("not measured");
    if (seconds < 1e-6)
        return bench_format("%.0f ns", seconds * 1e9);
    return bench_format("%.1f µs", seconds * 1e6);
}

static char *copy(const char *text)
{
    return bench_format("%s", text);
}

void bench_machine_facts(const struct bench_machine *machine, struct bench_fact facts[BENCH_FACTS])
{
    const struct bench_fact all[BENCH_FACTS] = {
        {"Command", copy(machine->command), false, true},
        {"Processor", copy(machine->cpu), true, true},
        {"Mitigations", copy(machine->mitigations), true, true},
        {"Kernel", copy(machine->kernel), true, false},
        {"Date", copy(machine->when), false, false},
        {"Virtual machine", copy(machine->virtual_machine), true, false},
        {"virtwire", copy(machine->virtwire), false, false},
        {"DPDK", copy(machine->dpdk), false, false},
        {"Commit", copy(machine->commit), false, false},
        {"Cores", bench_format("driver %u, device %u", machine->cores[0], machine->cores[1]), true,
         false},
        {"Round trip between the cores", duration_text(machine->round_trip), false, false},
        {"A system call", duration_text(machine->system_call), false, false},
        {"A kick when nobody waits", duration_text(machine->kick_idle_cost), false, false},
        {"A kick to a sleeper, its cost", duration_text(machine->kick_cost), false, false},
        {"A kick to a sleeper, until it runs", duration_text(machine->kick_latency), false, false},
    };

    for (int i = 0; i < BENCH_FACTS; i++)
        facts[i] = all[i];
}

void bench_facts_free(struct bench_fact facts[BENCH_FACTS])
{
    for (int i = 0; i < BENCH_FACTS; i++)
        free(facts[i].text);
}

char *bench_cell_name(const struct bench_cell *cell)
{
    char *text = bench_format("%s", cell->labels[0] != NULL ? cell->labels[0] : "");

    for (size_t i = 1; cell->labels[0] != NULL && cell->labels[i] != NULL; i++) {
        char *longer = bench_format("%s, %s", text, cell->labels[i]);

        free(text);
        text = longer;
    }
    return text;
}

char *bench_compared(const struct bench_cell *cell, const struct bench_variant *variant)
{
    const char *first = cell->variants[0].name;

    return variant == &cell->variants[0] ? copy(first)
                                         : bench_format("%s → %s", first, variant->name);
}

bool bench_is_faulty(const struct bench_variant *variant)
{
    for (size_t i = 0; i < variant->sample_count; i++)
        if (variant->samples[i].used && variant->samples[i].faulty)
            return true;
    return false;
}

struct bench_summary bench_summary_of(const struct bench_variant *variant, enum bench_metric metric)
{
    double *values = bench_allocate(variant->sample_count * sizeof(*values));
    size_t count = bench_values(variant, metric, values, variant->sample_count);
    struct bench_summary summary;

    bench_summarize(values, count, &summary);
    free(values);
    return summary;
}

bool bench_was_measured(const struct bench_result *result, enum bench_metric metric)
{
    double value;

    for (size_t i = 0; i < result->cells.count; i++)
        for (size_t v = 0; v < result->cells.cells[i].variant_count; v++)
            if (bench_values(&result->cells.cells[i].variants[v], metric, &value, 1) > 0)
                return true;
    return false;
}
