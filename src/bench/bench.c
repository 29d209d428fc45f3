/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct bench_metric_text bench_metrics[BENCH_METRICS] = {
    [BENCH_FRAMES] = {"frames_per_second", "rate", "Mpps", 1e-6, 2, BENCH_MORE_IS_BETTER},
    [BENCH_BYTES] = {"bytes_per_second", "throughput", "Gbit/s", 8e-9, 2, BENCH_MORE_IS_BETTER},
    [BENCH_TRANSACTIONS] = {"transactions_per_second", "transactions", "k/s", 1e-3, 1,
                            BENCH_MORE_IS_BETTER},
    [BENCH_KICKS] = {"kicks_per_frame", "kicks a frame", "", 1, 4, BENCH_LESS_IS_BETTER},
    [BENCH_CALLS] = {"calls_per_frame", "calls a frame", "", 1, 4, BENCH_LESS_IS_BETTER},
    [BENCH_SYSTEM_CALLS] = {"system_calls_per_frame", "system calls a frame", "", 1, 4,
                            BENCH_LESS_IS_BETTER},
    [BENCH_DRIVER_CPU] = {"driver_cpu_seconds_per_frame", "driver CPU a frame", "ns", 1e9, 0,
                          BENCH_LESS_IS_BETTER},
    [BENCH_DEVICE_CPU] = {"device_cpu_seconds_per_frame", "device CPU a frame", "ns", 1e9, 0,
                          BENCH_LESS_IS_BETTER},
    [BENCH_CPU] = {"cpu_seconds_per_second", "CPU", "%", 100, 1, BENCH_LESS_IS_BETTER},
    [BENCH_BYTES_PER_CPU] = {"bytes_per_cpu_second", "throughput per CPU", "Gbit/s", 8e-9, 2,
                             BENCH_MORE_IS_BETTER},
    [BENCH_PER_CPU] = {"frames_per_cpu_second", "frames per CPU second", "M", 1e-6, 2,
                       BENCH_MORE_IS_BETTER},
    [BENCH_LAST_FRAME_MEDIAN] = {"last_frame_median_seconds", "last frame of a burst, median", "us",
                                 1e6, 1, BENCH_LESS_IS_BETTER},
    [BENCH_LAST_FRAME_P99] = {"last_frame_p99_seconds", "last frame of a burst, 99 %", "us", 1e6, 1,
                              BENCH_LESS_IS_BETTER},
    [BENCH_LATENCY_MEDIAN] = {"latency_median_seconds", "latency, median", "us", 1e6, 1,
                              BENCH_LESS_IS_BETTER},
    [BENCH_LATENCY_P99] = {"latency_p99_seconds", "latency, 99 %", "us", 1e6, 1,
                           BENCH_LESS_IS_BETTER},
    [BENCH_FRAME_BYTES] = {"bytes_per_frame", "bytes a frame", "", 1, 0, BENCH_NEITHER},
    [BENCH_LOST] = {"lost_share", "lost", "%", 100, 2, BENCH_LESS_IS_BETTER},
    [BENCH_DESCRIPTORS] = {"descriptors_per_buffer", "descriptors a buffer", "", 1, 0,
                           BENCH_LESS_IS_BETTER},
    [BENCH_BUFFER_BYTES] = {"bytes_per_buffer", "memory a buffer", "KiB", 1.0 / 1024, 1,
                            BENCH_LESS_IS_BETTER},
    [BENCH_BUFFERS] = {"buffers_in_ring", "buffers in the ring", "", 1, 0, BENCH_MORE_IS_BETTER},
    [BENCH_WORK] = {"work_per_second", "work", "M/s", 1e-6, 3, BENCH_MORE_IS_BETTER},
    [BENCH_DEVICE_CPU_BYTE] = {"device_cpu_seconds_per_byte", "device CPU a byte", "ns", 1e9, 3,
                               BENCH_LESS_IS_BETTER},
    [BENCH_BATCH] = {"frames_per_batch", "frames a batch", "", 1, 1, BENCH_NEITHER},
    [BENCH_MERGED] = {"frames_per_segment", "frames received as one", "", 1, 1, BENCH_NEITHER},
    [BENCH_LIMIT] = {"bare_limit_per_second", "bare limit", "Mpps", 1e-6, 2, BENCH_NEITHER},
};

const struct bench_experiment *bench_find_experiment(const char *name)
{
    for (size_t i = 0; i < bench_experiment_count; i++)
        if (strcmp(bench_experiments[i]->name, name) == 0)
            return bench_experiments[i];
    return NULL;
}

void *bench_allocate(size_t size)
{
    void *memory = calloc(1, size > 0 ? size : 1);

    if (memory == NULL)
        abort();
    return memory;
}

static char *format_list(const char *format, va_list arguments)
{
    char *text;

    if (vasprintf(&text, format, arguments) < 0)
        abort();
    return text;
}

char *bench_format(const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    text = format_list(format, arguments);
    va_end(arguments);
    return text;
}

int bench_fail(struct bench_context *context, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(context->error, sizeof(context->error), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- planning -------------------------------------------------------------------------------- */

static void *one_more(void *array, size_t count, size_t size)
{
    char *longer = reallocarray(array, count + 1, size);

    if (longer == NULL)
        abort();
    memset(longer + count * size, 0, size);
    return longer;
}

struct bench_cell *bench_plan_cell(struct bench_cell_list *list, const char *const *labels)
{
    struct bench_cell *cell;
    size_t count = 0;

    while (labels[count] != NULL)
        count++;
    list->cells = one_more(list->cells, list->count, sizeof(*list->cells));
    cell = &list->cells[list->count++];
    cell->cores = 2;
    cell->labels = bench_allocate((count + 1) * sizeof(*cell->labels));
    for (size_t i = 0; i < count; i++)
        cell->labels[i] = bench_format("%s", labels[i]);
    return cell;
}

struct bench_variant *bench_plan_variant(struct bench_cell *cell, const char *name,
                                         const struct bench_runner *runner, const void *parameters,
                                         size_t size)
{
    struct bench_variant *variant;

    cell->variants = one_more(cell->variants, cell->variant_count, sizeof(*cell->variants));
    variant = &cell->variants[cell->variant_count++];
    variant->name = bench_format("%s", name);
    variant->runner = runner;
    variant->parameters = bench_allocate(size);
    memcpy(variant->parameters, parameters, size);
    return variant;
}

void bench_variant_note(struct bench_variant *variant, const char *commands, const char *features)
{
    if (commands != NULL) {
        free(variant->commands);
        variant->commands = bench_format("%s", commands);
    }
    if (features != NULL) {
        free(variant->features);
        variant->features = bench_format("%s", features);
    }
}

void bench_variant_fault(struct bench_variant *variant, const char *format, ...)
{
    char *fault, *all;
    va_list arguments;

    va_start(arguments, format);
    fault = format_list(format, arguments);
    va_end(arguments);
    if (variant->faults == NULL) {
        variant->faults = fault;
        return;
    }
    if (strstr(variant->faults, fault) == NULL) {
        all = bench_format("%s; %s", variant->faults, fault);
        free(variant->faults);
        variant->faults = all;
    }
    free(fault);
}

static void variant_free(struct bench_variant *variant)
{
    free(variant->name);
    free(variant->parameters);
    free(variant->commands);
    free(variant->features);
    free(variant->faults);
    free(variant->samples);
}

void bench_cells_free(struct bench_cell_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct bench_cell *cell = &list->cells[i];

        for (size_t v = 0; v < cell->variant_count; v++)
            variant_free(&cell->variants[v]);
        free(cell->variants);
        for (char **label = cell->labels; *label != NULL; label++)
            free(*label);
        free(cell->labels);
        free(cell->error);
    }
    free(list->cells);
    *list = (struct bench_cell_list){0};
}
