/* SPDX-License-Identifier: BSD-3-Clause */
/* What the bench concludes of a grid of options and workloads, and what its plans hold. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/experiments.h"
#include "bench/pair.h"
#include "bench/report.h"
#include "device/device.h"
#include "virtwire/net.h"

static struct bench_cell_list plan(const struct bench_experiment *experiment, bool quick)
{
    const struct bench_options options = {.quick = quick};
    struct bench_context context = {.options = &options};
    struct bench_cell_list cells = {0};

    assert_int_equal(experiment->plan(&context, &cells), 0);
    return cells;
}

static struct bench_cell *cell_of(struct bench_cell_list *cells, const char *workload,
                                  const char *option)
{
    for (size_t i = 0; i < cells->count; i++)
        if (strcmp(cells->cells[i].labels[0], workload) == 0 &&
            strcmp(cells->cells[i].labels[1], option) == 0)
            return &cells->cells[i];
    return NULL;
}

/* Three samples of a work of about so much. */
static void measure(struct bench_variant *variant, double work)
{
    variant->samples = bench_allocate(3 * sizeof(*variant->samples));
    variant->sample_count = 3;
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned m = 0; m < BENCH_METRICS; m++)
            variant->samples[i].value[m] = NAN;
        variant->samples[i].value[BENCH_WORK] = work * (0.999 + 0.001 * i);
        variant->samples[i].round = i;
        variant->samples[i].used = true;
    }
}

static void add(struct bench_cell_list *cells, const char *workload, const char *option,
                const double *works, const char *const *names)
{
    const char *labels[] = {workload, option, NULL};
    struct bench_cell *cell = bench_plan_cell(cells, labels);

    for (unsigned i = 0; names[i] != NULL; i++) {
        struct bench_variant *variant =
            bench_plan_variant(cell, names[i], &bench_pair_runner, "", 1);

        if (works[i] > 0)
            measure(variant, works[i]);
    }
}

static void the_ratio_to_the_best(void **unused)
{
    const struct bench_column before = {.kind = BENCH_COLUMN_BEFORE_TO_BEST, .metric = BENCH_WORK},
                              after = {.kind = BENCH_COLUMN_AFTER_TO_BEST, .metric = BENCH_WORK};
    static const char *const names[] = {"a", "b", "c", "unknown", NULL};
    struct bench_cell_list cells = {0};
    struct bench_shown shown;

    (void)unused;
    add(&cells, "w", "o", (const double[]){8, 10, 5, 0}, names);
    struct bench_cell *cell = &cells.cells[0];
    assert_ptr_equal(bench_best(cell, BENCH_WORK), &cell->variants[1]);
    bench_show(&before, cell, &cell->variants[2], &shown);
    assert_string_equal(shown.text, "0.800");
    bench_show(&after, cell, &cell->variants[2], &shown);
    assert_string_equal(shown.text, "0.500");
    bench_show(&after, cell, &cell->variants[1], &shown);
    assert_string_equal(shown.text, "1.000");
    bench_show(&after, cell, &cell->variants[3], &shown);
    assert_string_equal(shown.text, "-");
    assert_null(bench_best(cell, BENCH_FRAMES));
    bench_cells_free(&cells);
}

/* The worst cell decides; a value that is not possible in each cell can be no default. */
static void a_verdict_is_the_least_loss(void **unused)
{
    static const char *const three[] = {"now", "other", "special", NULL};
    static const char *const two[] = {"now", "other", NULL};
    struct bench_cell_list cells = {0};

    (void)unused;
    add(&cells, "up", "option", (const double[]){90, 99, 100}, three);
    add(&cells, "down", "option", (const double[]){100, 98}, two);
    add(&cells, "up", "good", (const double[]){100, 50}, two);
    char *text = bench_policy_grid.conclude(&cells);
    assert_string_equal(
        text, "option: the default, now, is at worst 0.900 of the best (up); more than 3 % behind "
              "in 1 of 2 workloads; least behind is other, at worst 0.980 (down)\n"
              "good: the default, now, is at worst 1.000 of the best (up); more than 3 % behind in "
              "0 of 1 workloads; no other value is less behind\n");
    free(text);
    bench_cells_free(&cells);
}

/* What is no more than noise is not held against a value; what failed is not counted. */
static void noise_is_no_loss(void **unused)
{
    static const char *const two[] = {"now", "other", NULL};
    struct bench_cell_list cells = {0};

    (void)unused;
    add(&cells, "up", "option", (const double[]){100, 100.05}, two);
    add(&cells, "failed", "option", (const double[]){0, 0}, two);
    add(&cells, "failed", "another", (const double[]){0, 0}, two);
    char *text = bench_policy_grid.conclude(&cells);
    assert_string_equal(
        text, "option: the default, now, is at worst 1.000 of the best (up); more than 3 % behind "
              "in 0 of 1 workloads; no other value is less behind\n"
              "another: not measured\n");
    free(text);
    bench_cells_free(&cells);
}

/* One sample of the best, or of the value itself, is no verdict. */
static void one_sample_tells_nothing(void **unused)
{
    static const char *const two[] = {"now", "other", NULL};
    struct bench_cell_list cells = {0};

    (void)unused;
    add(&cells, "up", "option", (const double[]){50, 100}, two);
    for (unsigned v = 0; v < 2; v++) {
        cells.cells[0].variants[v].sample_count = 1;
        char *text = bench_policy_grid.conclude(&cells);
        assert_string_equal(text, "option: not measured\n");
        free(text);
        cells.cells[0].variants[v].sample_count = 3;
    }
    bench_cells_free(&cells);
}

/* The first of an option's values is what a driver, or a device, does that is told nothing. */
static void defaults_come_first(void **unused)
{
    struct bench_cell_list cells = plan(&bench_policy_grid, false);
    struct vw_net_options options;
    struct bench_cell *cell;

    (void)unused;
    vw_net_options_init(&options);
    assert_non_null(cell = cell_of(&cells, "send 64", "spin-us"));
    assert_int_equal(strtoul(cell->variants[0].name, NULL, 10), options.spin_us);
    assert_non_null(cell = cell_of(&cells, "send 64", "busy-poll-us"));
    assert_int_equal(strtoul(cell->variants[0].name, NULL, 10), VW_DEVICE_BUSY_POLL_US);
    assert_non_null(cell = cell_of(&cells, "send 64", "ring size"));
    assert_int_equal(strtoul(cell->variants[0].name, NULL, 10), options.tx_ring_size);
    assert_non_null(cell = cell_of(&cells, "send 64", "transmit policy"));
    assert_int_equal(options.tx_policy, VW_TX_DEFERRED);
    assert_string_equal(cell->variants[0].name, "deferred");
    assert_non_null(cell = cell_of(&cells, "send 64", "byte queue limits"));
    assert_int_equal(options.byte_queue_limits, 1);
    assert_string_equal(cell->variants[0].name, "on");
    bench_cells_free(&cells);
}

static void options_that_mean_nothing_are_not_varied(void **unused)
{
    struct bench_cell_list cells = plan(&bench_policy_grid, false);

    (void)unused;
    assert_null(cell_of(&cells, "receive 64", "transmit policy"));
    assert_null(cell_of(&cells, "send 64", "receive buffers"));
    assert_int_equal(cell_of(&cells, "receive 64", "receive buffers")->variant_count, 3);
    assert_int_equal(cell_of(&cells, "receive 9014", "receive buffers")->variant_count, 2);
    for (size_t i = 0; i < cells.count; i++)
        for (size_t v = 0; v < cells.cells[i].variant_count; v++) {
            const struct bench_pair_parameters *of = cells.cells[i].variants[v].parameters;
            const char *mode = strstr(of->device, "--mode=");

            assert_true(!mode || !strstr(mode + 1, "--mode="));
            assert_true(!mode || !strstr(of->device, "--busy-poll-us"));
        }
    bench_cells_free(&cells);
}

/* 2 MTUs, 2 rings, 4 sets of features, 2 ways of waiting; in each the same three kinds of buffers,
 * of which only the kind differs. */
static void big_buffers_in_every_cell(void **unused)
{
    struct bench_cell_list cells = plan(&bench_rx_big, false);

    (void)unused;
    assert_int_equal(cells.count, 32);
    for (size_t i = 0; i < cells.count; i++) {
        const struct bench_cell *cell = &cells.cells[i];
        const struct bench_pair_parameters *of[3];

        assert_int_equal(cell->variant_count, 3);
        for (unsigned v = 0; v < 3; v++)
            of[v] = cell->variants[v].parameters;
        assert_string_equal(of[0]->device, of[1]->device);
        assert_string_equal(of[0]->device, of[2]->device);
        assert_non_null(strstr(of[0]->driver, "--rx-mode=big --rx-big=maximum"));
        assert_non_null(strstr(of[1]->driver, "--rx-mode=big --rx-big=mtu"));
        assert_non_null(strstr(of[2]->driver, "--rx-mode=mergeable"));
    }
    bench_cells_free(&cells);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ratio_to_the_best),
        cmocka_unit_test(a_verdict_is_the_least_loss),
        cmocka_unit_test(noise_is_no_loss),
        cmocka_unit_test(one_sample_tells_nothing),
        cmocka_unit_test(defaults_come_first),
        cmocka_unit_test(options_that_mean_nothing_are_not_varied),
        cmocka_unit_test(big_buffers_in_every_cell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
