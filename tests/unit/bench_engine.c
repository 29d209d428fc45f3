/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of the bench, with a runner whose samples are written down beforehand. */
#include "bench/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a variant of the scripted runner does. */
struct script {
    double value, step;     /* frames a second: value, value + step, value, ... */
    unsigned fails_opening; /* the so-manieth opening fails; 0: none */
    unsigned fails_slice, interrupts_slice;
    double busy;
};

/* What happened, for all variants of the test. */
struct log {
    char order[4096]; /* "oA oB sA sB cA cB ...": opened, slice, closed */
    unsigned opened, closed;
    volatile bool interrupted;
    struct {
        unsigned openings, slices;
    } of[26];
    struct script scripts[4];
    size_t variants;
};

struct state {
    struct log *log;
    struct script script;
    unsigned number;
};

struct parameters {
    struct log *log;
    unsigned number;
};

static void note(struct log *log, char what, unsigned number)
{
    size_t length = strlen(log->order);

    snprintf(log->order + length, sizeof(log->order) - length, "%c%c ", what, (int)('A' + number));
}

static int scripted_open(struct bench_context *context, struct bench_variant *variant, void **state)
{
    const struct parameters *parameters = variant->parameters;
    struct log *log = parameters->log;
    struct script script = log->scripts[parameters->number];
    struct state *new;

    note(log, 'o', parameters->number);
    if (++log->of[parameters->number].openings == script.fails_opening)
        return bench_fail(context, "it does not open");
    new = bench_allocate(sizeof(*new));
    *new = (struct state){.log = log, .script = script, .number = parameters->number};
    log->opened++;
    *state = new;
    return 0;
}

static int scripted_slice(struct bench_context *context, void *opaque, double seconds,
                          struct bench_sample *sample)
{
    struct state *state = opaque;
    unsigned slice = ++state->log->of[state->number].slices;

    note(state->log, 's', state->number);
    assert_true(isnan(sample->value[BENCH_FRAMES]) && !sample->faulty);
    if (slice == state->script.fails_slice)
        return bench_fail(context, "it broke");
    if (slice == state->script.interrupts_slice) {
        state->log->interrupted = true;
        return bench_fail(context, "interrupted");
    }
    sample->seconds = seconds;
    sample->busy = state->script.busy > 0 ? state->script.busy : NAN;
    sample->value[BENCH_FRAMES] = state->script.value + (slice % 2) * state->script.step;
    return 0;
}

static void scripted_close(void *opaque)
{
    struct state *state = opaque;

    note(state->log, 'c', state->number);
    state->log->closed++;
    free(state);
}

static const struct bench_runner scripted = {scripted_open, scripted_slice, scripted_close};

/* ---- an experiment of one cell --------------------------------------------------------------- */

static const char *const headings[] = {"label", NULL};
static struct log *planned; /* plan() is not told what the test wants */

static int plan(struct bench_context *context, struct bench_cell_list *cells)
{
    const char *labels[] = {"the cell", NULL};
    struct bench_cell *cell = bench_plan_cell(cells, labels);

    (void)context;
    cell->cores = 1;
    for (unsigned i = 0; i < planned->variants; i++)
        bench_plan_variant(cell, "variant", &scripted,
                           &(struct parameters){.log = planned, .number = i},
                           sizeof(struct parameters));
    return 0;
}

static const struct bench_experiment experiment = {
    .name = "scripted",
    .title = "scripted",
    .summary = "",
    .label_headings = headings,
    .headline = BENCH_FRAMES,
    .plan = plan,
};

static void run(struct log *log, struct bench_options *options, struct bench_cell_list *cells)
{
    struct bench_context context = {
        .options = options, .program = "", .folder = NULL, .interrupted = &log->interrupted};

    planned = log;
    assert_int_equal(bench_run(&context, &experiment, cells), 0);
    assert_int_equal(log->opened, log->closed);
}

static unsigned slices_in(const struct log *log, char variant)
{
    char what[] = {'s', variant, ' ', '\0'};
    unsigned count = 0;

    for (const char *at = log->order; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_quick_is_two_rounds_in_rotating_order_after_a_warm_up(void **state)
{
    struct log log = {.scripts = {{.value = 1}, {.value = 2}, {.value = 3}}, .variants = 3};
    struct bench_options options = {.quick = true};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_string_equal(log.order, "oA sA oB sB oC sC sA sB sC sB sC sA cA cB cC ");
    assert_int_equal(cells.cells[0].outcome, BENCH_ROUNDS_DONE);
    for (unsigned i = 0; i < 3; i++) {
        const struct bench_variant *variant = &cells.cells[0].variants[i];

        assert_int_equal(variant->sample_count, 2);
        for (unsigned round = 0; round < 2; round++) {
            assert_int_equal(variant->samples[round].round, round);
            assert_true(variant->samples[round].used && variant->samples[round].steady);
            assert_true(variant->samples[round].value[BENCH_FRAMES] == i + 1);
        }
    }
    assert_string_equal(bench_placement(&cells.cells[0]), "one core");
    bench_cells_free(&cells);
}

static void test_processes_are_started_anew_after_three_rounds(void **state)
{
    struct log log = {.scripts = {{.value = 1}, {.value = 2}}, .variants = 2};
    struct bench_options options = {.rounds = 7};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(log.of[0].openings, 3);
    assert_int_equal(slices_in(&log, 'A'), 7 + 3);
    assert_int_equal(cells.cells[0].variants[0].sample_count, 7);
    assert_int_equal(cells.cells[0].variants[0].samples[5].start, 1);
    assert_int_equal(cells.cells[0].variants[0].samples[6].start, 2);
    bench_cells_free(&cells);
}

static void test_narrow_intervals_end_a_cell_after_two_starts(void **state)
{
    struct log log = {.scripts = {{.value = 100, .step = 0.1}, {.value = 110, .step = 0.1}},
                      .variants = 2};
    struct bench_options options = {.cell_seconds = 60};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(cells.cells[0].outcome, BENCH_NARROW);
    assert_int_equal(cells.cells[0].variants[0].sample_count, 6);
    assert_int_equal(log.of[0].openings, 2);
    bench_cells_free(&cells);
}

static void test_wide_intervals_go_on_until_the_time_is_up(void **state)
{
    struct log log = {.scripts = {{.value = 100, .step = 50}, {.value = 110, .step = 60}},
                      .variants = 2};
    struct bench_options options = {.cell_seconds = 0.005};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(cells.cells[0].outcome, BENCH_TIME_UP);
    assert_true(cells.cells[0].variants[0].sample_count > 0);
    bench_cells_free(&cells);
}

static void test_samples_without_their_core_are_not_used(void **state)
{
    struct log log = {.scripts = {{.value = 1, .busy = 0.99}, {.value = 2, .busy = 0.5}},
                      .variants = 2};
    struct bench_options options = {.rounds = 2};
    struct bench_cell_list cells;
    double values[8];

    (void)state;
    run(&log, &options, &cells);
    /* three times as many rounds were tried; a variant without a steady sample has all used */
    assert_int_equal(cells.cells[0].variants[1].sample_count, 6);
    assert_false(cells.cells[0].variants[1].samples[0].steady);
    assert_int_equal(bench_values(&cells.cells[0].variants[1], BENCH_FRAMES, values, 8), 6);
    assert_string_equal(bench_placement(&cells.cells[0]), "unsteady");
    bench_cells_free(&cells);
}

static void test_a_variant_that_does_not_open_fails_its_cell_alone(void **state)
{
    struct log log = {.scripts = {{.value = 1}, {.value = 2, .fails_opening = 1}}, .variants = 2};
    struct bench_options options = {.quick = true};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_string_equal(log.order, "oA sA oB cA ");
    assert_int_equal(cells.cells[0].outcome, BENCH_FAILED);
    assert_string_equal(cells.cells[0].error, "it does not open");
    bench_cells_free(&cells);
}

static void test_a_round_that_broke_leaves_no_sample(void **state)
{
    /* the first slice of each is its warm-up */
    struct log log = {.scripts = {{.value = 1}, {.value = 2, .fails_slice = 3}}, .variants = 2};
    struct bench_options options = {.rounds = 5};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(cells.cells[0].outcome, BENCH_FAILED);
    assert_string_equal(cells.cells[0].error, "it broke");
    assert_int_equal(cells.cells[0].variants[0].sample_count, 1);
    assert_int_equal(cells.cells[0].variants[1].sample_count, 1);
    bench_cells_free(&cells);
}

static void test_an_interruption_keeps_the_rounds_before(void **state)
{
    struct log log = {.scripts = {{.value = 1, .interrupts_slice = 4}, {.value = 2}},
                      .variants = 2};
    struct bench_options options = {.rounds = 9};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(cells.cells[0].outcome, BENCH_INTERRUPTED);
    assert_int_equal(cells.cells[0].variants[0].sample_count, 2);
    bench_cells_free(&cells);
}

static void test_only_leaves_cells_out_by_their_labels(void **state)
{
    struct log log = {.scripts = {{.value = 1}}, .variants = 1};
    struct bench_options options = {.quick = true, .only = "another"};
    struct bench_cell_list cells;

    (void)state;
    run(&log, &options, &cells);
    assert_int_equal(cells.count, 0);
    bench_cells_free(&cells);
    options.only = "cell";
    run(&log, &options, &cells);
    assert_int_equal(cells.count, 1);
    bench_cells_free(&cells);
}

/* ---- placement ------------------------------------------------------------------------------- */

static void test_slices_of_one_placement_alone_are_used(void **state)
{
    /* near and far by turns, four of seven far; and one in which the cores moved */
    static const double trips[][2] = {{95e-9, 95e-9},  {400e-9, 410e-9}, {400e-9, 400e-9},
                                      {95e-9, 400e-9}, {99e-9, 95e-9},   {420e-9, 400e-9},
                                      {410e-9, 405e-9}};
    struct bench_sample samples[7] = {0};
    struct bench_variant variant = {.samples = samples, .sample_count = 7};
    struct bench_cell cell = {.variants = &variant, .variant_count = 1, .cores = 2};
    double values[7];

    (void)state;
    for (int i = 0; i < 7; i++) {
        samples[i].value[BENCH_FRAMES] = i;
        memcpy(samples[i].round_trip, trips[i], sizeof(trips[i]));
        samples[i].steady = i != 3;
    }
    bench_choose_used(&cell);
    assert_int_equal(bench_values(&variant, BENCH_FRAMES, values, 7), 4);
    assert_true(values[0] == 1 && values[1] == 2 && values[2] == 5 && values[3] == 6);
    assert_string_equal(bench_placement(&cell), "far");
    assert_true(fabs(bench_round_trip_of(&cell) - 406e-9) < 5e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick_is_two_rounds_in_rotating_order_after_a_warm_up),
        cmocka_unit_test(test_processes_are_started_anew_after_three_rounds),
        cmocka_unit_test(test_narrow_intervals_end_a_cell_after_two_starts),
        cmocka_unit_test(test_wide_intervals_go_on_until_the_time_is_up),
        cmocka_unit_test(test_samples_without_their_core_are_not_used),
        cmocka_unit_test(test_a_variant_that_does_not_open_fails_its_cell_alone),
        cmocka_unit_test(test_a_round_that_broke_leaves_no_sample),
        cmocka_unit_test(test_an_interruption_keeps_the_rounds_before),
        cmocka_unit_test(test_only_leaves_cells_out_by_their_labels),
        cmocka_unit_test(test_slices_of_one_placement_alone_are_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
