/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/statistics.h"

#define ROUND_TRIP_SECONDS 0.02
#define ROUND_TRIP_QUICK_SECONDS 0.002
#define QUICK_SLICE_SECONDS 0.1
#define QUICK_ROUNDS 2

/* With --rounds: how many times as many rounds may be tried until so many are used. */
#define MOST_TRIES 3

/* One cell that is run. */
struct run {
    struct bench_context *context;
    const struct bench_experiment *experiment;
    struct bench_cell *cell;
    void **states; /* of the open variants; NULL: not open */
    double slice, began;
    unsigned rounds, starts;

    /* for the progress line */
    size_t number, count;
    double all_began;
};

double bench_slice_seconds(const struct bench_context *context,
                           const struct bench_experiment *experiment)
{
    if (context->options->seconds > 0)
        return context->options->seconds;
    if (context->options->quick)
        return QUICK_SLICE_SECONDS;
    return experiment->slice_seconds > 0 ? experiment->slice_seconds : BENCH_SLICE_SECONDS;
}

/* ---- which samples are used ------------------------------------------------------------------ */

static double trip_of(const struct bench_sample *sample)
{
    return (sample->round_trip[0] + sample->round_trip[1]) / 2;
}

static bool in_group(const struct bench_sample *sample, double low)
{
    double trip = trip_of(sample);

    return sample->steady && (isnan(trip) || (trip >= low && trip <= low * BENCH_GROUP_WIDTH));
}

/* Of how many samples the group is that begins with this round trip. */
static size_t group_size(const struct bench_cell *cell, double low)
{
    size_t size = 0;

    for (size_t v = 0; v < cell->variant_count; v++)
        for (size_t i = 0; i < cell->variants[v].sample_count; i++)
            size += in_group(&cell->variants[v].samples[i], low);
    return size;
}

/* Where the largest group begins. */
static double largest_group(const struct bench_cell *cell)
{
    double best = 0;
    size_t size, most = 0;

    for (size_t v = 0; v < cell->variant_count; v++)
        for (size_t i = 0; i < cell->variants[v].sample_count; i++) {
            double low = trip_of(&cell->variants[v].samples[i]);

            size = group_size(cell, low);
            if (size > most) {
                most = size;
                best = low;
            }
        }
    return best;
}

void bench_choose_used(struct bench_cell *cell)
{
    double low = largest_group(cell);
    bool all = false;

    for (size_t v = 0; v < cell->variant_count; v++) {
        struct bench_variant *variant = &cell->variants[v];
        size_t used = 0;

        for (size_t i = 0; i < variant->sample_count; i++) {
            variant->samples[i].used = in_group(&variant->samples[i], low);
            used += variant->samples[i].used;
        }
        all |= used == 0;
    }
    for (size_t v = 0; all && v < cell->variant_count; v++)
        for (size_t i = 0; i < cell->variants[v].sample_count; i++)
            cell->variants[v].samples[i].used = true;
}

size_t bench_values(const struct bench_variant *variant, enum bench_metric metric, double *values,
                    size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < variant->sample_count && count < room; i++)
        if (variant->samples[i].used && !isnan(variant->samples[i].value[metric]))
            values[count++] = variant->samples[i].value[metric];
    return count;
}

double bench_round_trip_of(const struct bench_cell *cell)
{
    double *trips, median;
    size_t room = 0, count = 0;

    for (size_t v = 0; v < cell->variant_count; v++)
        room += cell->variants[v].sample_count;
    trips = bench_allocate(room * sizeof(*trips));
    for (size_t v = 0; v < cell->variant_count; v++)
        for (size_t i = 0; i < cell->variants[v].sample_count; i++) {
            const struct bench_sample *sample = &cell->variants[v].samples[i];

            if (sample->used && !isnan(trip_of(sample)))
                trips[count++] = trip_of(sample);
        }
    median = bench_median(trips, count);
    free(trips);
    return median;
}

const char *bench_placement(const struct bench_cell *cell)
{
    double trip = bench_round_trip_of(cell);

    for (size_t v = 0; v < cell->variant_count; v++)
        for (size_t i = 0; i < cell->variants[v].sample_count; i++)
            if (cell->variants[v].samples[i].used && !cell->variants[v].samples[i].steady)
                return "unsteady";
    if (isnan(trip))
        return cell->cores == 1 ? "one core" : "not measured";
    return trip >= BENCH_FAR_SECONDS ? "far" : "near";
}

const char *bench_outcome_text(enum bench_outcome outcome)
{
    static const char *const texts[] = {
        [BENCH_NOT_RUN] = "not run",
        [BENCH_NARROW] = "intervals are narrow",
        [BENCH_ROUNDS_DONE] = "as many rounds as asked for",
        [BENCH_TIME_UP] = "time is up",
        [BENCH_INTERRUPTED] = "interrupted",
        [BENCH_FAILED] = "failed",
    };

    return texts[outcome];
}

/* ---- when is it enough? ---------------------------------------------------------------------- */

static bool is_narrow(const struct run *run)
{
    const struct bench_variant *variants = run->cell->variants;
    enum bench_metric metric = run->experiment->headline;
    double *first = bench_allocate(run->rounds * sizeof(*first));
    double *other = bench_allocate(run->rounds * sizeof(*other));
    size_t first_count = bench_values(&variants[0], metric, first, run->rounds), count;
    struct bench_summary summary;
    struct bench_difference difference;
    bool narrow = true;

    bench_summarize(first, first_count, &summary);
    /* not true of NAN either */
    if (run->cell->variant_count == 1)
        narrow = summary.high - summary.mean <= BENCH_NARROW_PERCENT / 100 * summary.mean;
    for (size_t v = 1; v < run->cell->variant_count; v++) {
        count = bench_values(&variants[v], metric, other, run->rounds);
        bench_compare(first, first_count, other, count, &difference);
        if (!((difference.high_percent - difference.low_percent) / 2 <= BENCH_NARROW_PERCENT))
            narrow = false;
    }
    free(first);
    free(other);
    return narrow;
}

/* The fewest used samples that a variant has. */
static size_t fewest_used(const struct bench_cell *cell)
{
    size_t fewest = SIZE_MAX, used;

    for (size_t v = 0; v < cell->variant_count; v++) {
        used = 0;
        for (size_t i = 0; i < cell->variants[v].sample_count; i++)
            used += cell->variants[v].samples[i].used && cell->variants[v].samples[i].steady;
        if (used < fewest)
            fewest = used;
    }
    return fewest;
}

static double cell_seconds(const struct run *run)
{
    const double seconds[] = {run->context->options->cell_seconds, run->experiment->cell_seconds};

    return seconds[0] > 0 ? seconds[0] : seconds[1] > 0 ? seconds[1] : BENCH_CELL_SECONDS;
}

/* Is the cell done? Then its outcome is set. */
static bool is_done(struct run *run)
{
    const struct bench_options *options = run->context->options;
    enum bench_outcome *outcome = &run->cell->outcome;

    if (options->quick || options->rounds > 0) {
        unsigned wanted = options->rounds > 0 ? options->rounds : QUICK_ROUNDS;

        if ((options->quick && run->rounds >= wanted) || fewest_used(run->cell) >= wanted ||
            run->rounds >= MOST_TRIES * wanted)
            *outcome = BENCH_ROUNDS_DONE;
    } else if (run->starts >= 2 && run->rounds >= 2 * BENCH_START_ROUNDS && is_narrow(run)) {
        *outcome = BENCH_NARROW;
    } else if (vw_clock_seconds() - run->began >= cell_seconds(run)) {
        *outcome = BENCH_TIME_UP;
    }
    return *outcome != BENCH_NOT_RUN;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* What is left of this cell, at most, and of the others as those before took. */
static double seconds_left(const struct run *run)
{
    const struct bench_options *options = run->context->options;
    double done = vw_clock_seconds() - run->began, before = run->began - run->all_began, cell, left;
    unsigned wanted = options->rounds > 0 ? options->rounds : options->quick ? QUICK_ROUNDS : 0;

    cell = wanted == 0 ? cell_seconds(run)
                       : (run->rounds > 0 ? done / run->rounds
                                          : run->slice * 2 * (double)run->cell->variant_count) *
                             wanted;
    left = cell > done ? cell - done : 0;
    if (run->number > 1)
        cell = before / (double)(run->number - 1);
    return left + cell * (double)(run->count - run->number);
}

static void tell(const struct run *run, const struct bench_variant *variant)
{
    double left = seconds_left(run);
    char *labels, *line;

    if (run->context->progress == NULL)
        return;
    labels = bench_format("%s", "");
    for (size_t i = 0; run->cell->labels[i] != NULL; i++) {
        char *longer = bench_format("%s%s%s", labels, i > 0 ? ", " : "", run->cell->labels[i]);

        free(labels);
        labels = longer;
    }
    line = bench_format("%s %zu/%zu: %s, round %u, %s; %.0f:%02.0f left", run->experiment->name,
                        run->number, run->count, labels, run->rounds + 1, variant->name,
                        floor(left / 60), floor(fmod(left, 60)));
    run->context->progress(run->context->progress_context, line);
    free(line);
    free(labels);
}

/* ---- running --------------------------------------------------------------------------------- */

static double round_trip(const struct run *run)
{
    const struct bench_options *options = run->context->options;

    if (run->cell->cores == 1)
        return NAN;
    return bench_round_trip(options->cores[0], options->cores[1],
                            options->quick ? ROUND_TRIP_QUICK_SECONDS : ROUND_TRIP_SECONDS);
}

static bool is_steady(const struct bench_sample *sample)
{
    double a = sample->round_trip[0], b = sample->round_trip[1];

    if (fmax(a, b) > fmin(a, b) * BENCH_PLACEMENT_TOLERANCE)
        return false;
    return isnan(sample->busy) || sample->busy >= BENCH_BUSY_SHARE;
}

static int slice(struct run *run, size_t number, double seconds, struct bench_sample *sample)
{
    struct bench_variant *variant = &run->cell->variants[number];

    *sample = (struct bench_sample){.busy = NAN};
    for (size_t i = 0; i < BENCH_METRICS; i++)
        sample->value[i] = NAN;
    return variant->runner->slice(run->context, run->states[number], seconds, sample);
}

static void keep(struct bench_variant *variant, const struct bench_sample *sample)
{
    variant->samples =
        reallocarray(variant->samples, variant->sample_count + 1, sizeof(*variant->samples));
    if (variant->samples == NULL)
        abort();
    variant->samples[variant->sample_count++] = *sample;
}

/* One slice of each variant. A round that was not finished leaves no sample. */
static int one_round(struct run *run)
{
    size_t count = run->cell->variant_count;
    struct bench_sample *samples = bench_allocate(count * sizeof(*samples));
    double trip = round_trip(run);
    int result = 0;

    for (size_t i = 0; i < count && result == 0; i++) {
        size_t number = (i + run->rounds) % count;
        struct bench_sample *sample = &samples[number];

        tell(run, &run->cell->variants[number]);
        result = slice(run, number, run->slice, sample);
        sample->round = run->rounds;
        sample->start = run->starts - 1;
        sample->position = (unsigned)i;
        sample->round_trip[0] = trip;
        sample->round_trip[1] = trip = round_trip(run);
        sample->steady = is_steady(sample);
    }
    for (size_t i = 0; i < count && result == 0; i++)
        keep(&run->cell->variants[i], &samples[i]);
    free(samples);
    if (result == 0) {
        run->rounds++;
        bench_choose_used(run->cell);
    }
    return result;
}

static void close_variants(struct run *run)
{
    for (size_t v = 0; v < run->cell->variant_count; v++) {
        if (run->states[v] != NULL)
            run->cell->variants[v].runner->close(run->states[v]);
        run->states[v] = NULL;
    }
}

/* Opens all, and lets each run once without a sample. */
static int open_variants(struct run *run)
{
    struct bench_sample nothing;

    run->starts++;
    for (size_t v = 0; v < run->cell->variant_count; v++) {
        struct bench_variant *variant = &run->cell->variants[v];

        tell(run, variant);
        if (variant->runner->open(run->context, variant, &run->states[v]) < 0 ||
            slice(run, v, run->slice / 3, &nothing) < 0)
            return -1;
    }
    return 0;
}

/* Until it is done; 0, or -1 after bench_fail. */
static int rounds(struct run *run)
{
    int result = 0;

    while (result == 0) {
        if (run->rounds == run->starts * BENCH_START_ROUNDS) {
            close_variants(run);
            result = open_variants(run);
        }
        if (result == 0)
            result = one_round(run);
        if (result == 0 && is_done(run))
            break;
    }
    return result;
}

static void run_cell(struct run *run)
{
    run->states = bench_allocate(run->cell->variant_count * sizeof(*run->states));
    run->began = vw_clock_seconds();
    run->rounds = run->starts = 0;
    if (rounds(run) < 0) {
        run->cell->outcome = *run->context->interrupted ? BENCH_INTERRUPTED : BENCH_FAILED;
        run->cell->error = bench_format("%s", run->context->error);
    }
    close_variants(run);
    free(run->states);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Of the labels as one text, so that some that follow each other can be asked for. */
static bool wanted(const struct bench_cell *cell, const char *only)
{
    char *text = bench_format("%s", cell->labels[0]), *longer;
    bool found;

    for (size_t i = 1; cell->labels[i] != NULL; i++) {
        longer = bench_format("%s,%s", text, cell->labels[i]);
        free(text);
        text = longer;
    }
    found = only == NULL || strstr(text, only) != NULL;
    free(text);
    return found;
}

int bench_run(struct bench_context *context, const struct bench_experiment *experiment,
              struct bench_cell_list *cells)
{
    struct bench_cell_list planned = {0}, rest = {0};
    struct run run = {.context = context,
                      .experiment = experiment,
                      .slice = bench_slice_seconds(context, experiment),
                      .all_began = vw_clock_seconds()};

    *cells = (struct bench_cell_list){0};
    if (experiment->plan(context, &planned) < 0) {
        bench_cells_free(&planned);
        return -1;
    }
    cells->cells = bench_allocate(planned.count * sizeof(*cells->cells));
    rest.cells = bench_allocate(planned.count * sizeof(*rest.cells));
    for (size_t i = 0; i < planned.count; i++) {
        struct bench_cell_list *list =
            wanted(&planned.cells[i], context->options->only) ? cells : &rest;

        list->cells[list->count++] = planned.cells[i];
    }
    free(planned.cells);
    bench_cells_free(&rest);
    run.count = cells->count;
    for (size_t i = 0; i < cells->count && !*context->interrupted; i++) {
        run.number = i + 1;
        run.cell = &cells->cells[i];
        run_cell(&run);
    }
    return 0;
}
