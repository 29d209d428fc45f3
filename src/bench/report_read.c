/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A report out of a file, which may hold anything: each value is asked for by its key and its type.
 * The first that is not as it must be is told with its place, such as results[0].cells[3].error,
 * and from then on nothing more is read: what is asked for is nothing, and loops end.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/engine.h"
#include "bench/report.h"

/* A full run is some megabytes. */
#define LONGEST_FILE (256L << 20)

/* How many there may be: some times what an experiment has. */
#define MOST_RESULTS 100
#define MOST_CELLS 10000
#define MOST_VARIANTS 100
#define MOST_SAMPLES 100000
#define MOST_COLUMNS 100
#define MOST_LABELS 20
#define MOST_NOTES 100

struct reader {
    struct bench_context *context;
    const char *file;
    bool failed;
};

/* Where a value is: inside of another. */
struct place {
    const struct place *outer; /* NULL: this is the document */
    const char *key;           /* NULL: the index counts */
    size_t index;
    json_t *value;
};

/* A terminal takes control characters for orders: those of a file do not get that far. The two-byte
 * ones of UTF-8 (U+0080 to U+009F) are meant as well. */
static void tame(char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char one = (unsigned char)text[0], two = (unsigned char)text[1];

        if ((one < ' ' && one != '\n' && one != '\t') || one == 0x7f)
            *text = '?';
        else if (one == 0xc2 && two >= 0x80 && two <= 0x9f)
            text[0] = text[1] = '?';
    }
}

/* All texts of the document; JSON's reader has limited its depth. */
static void tame_all(json_t *value)
{
    size_t index;
    char *text;

    if (json_is_string(value)) {
        text = bench_format("%s", json_string_value(value));
        tame(text);
        json_string_set(value, text);
        free(text);
    }
    for (index = 0; index < json_array_size(value); index++)
        tame_all(json_array_get(value, index));
    for (void *member = json_object_iter(value); member != NULL;
         member = json_object_iter_next(value, member))
        tame_all(json_object_iter_value(member));
}

static char *place_text(const struct place *place)
{
    char *outer, *text;

    if (place->outer == NULL)
        return bench_format("%s", "");
    outer = place_text(place->outer);
    if (place->key == NULL)
        text = bench_format("%s[%zu]", outer, place->index);
    else
        text = bench_format("%s%s%.60s", outer, *outer != '\0' ? "." : "", place->key);
    free(outer);
    return text;
}

static void __attribute__((format(printf, 3, 4)))
refuse(struct reader *reader, const struct place *place, const char *format, ...)
{
    va_list arguments;
    char *where, *what;

    if (reader->failed)
        return;
    reader->failed = true;
    va_start(arguments, format);
    if (vasprintf(&what, format, arguments) < 0)
        abort();
    va_end(arguments);
    where = place_text(place);
    tame(where);
    bench_fail(reader->context, "%s: %s%s%s", reader->file, where, *where != '\0' ? " " : "", what);
    free(where);
    free(what);
}

static const char *type_name(json_type type)
{
    static const char *const names[] = {"an object", "an array", "a text", "a whole number",
                                        "a number",  "true",     "false",  "null"};

    return names[type];
}

/* ---- values by their keys -------------------------------------------------------------------- */

/* The member, of whatever type; its value is NULL after a failure. */
static struct place member(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = {.outer = outer, .key = key};

    if (reader->failed)
        return place;
    place.value = json_object_get(outer->value, key);
    if (place.value == NULL)
        refuse(reader, &place, "is missing: is this a file that 'virtwire bench --json' wrote?");
    return place;
}

static struct place typed(struct reader *reader, const struct place *outer, const char *key,
                          json_type type)
{
    struct place place = member(reader, outer, key);

    if (!reader->failed && json_typeof(place.value) != type) {
        refuse(reader, &place, "must be %s, and is %s", type_name(type),
               type_name(json_typeof(place.value)));
        place.value = NULL;
    }
    return place;
}

/* An array of so many at most. */
static struct place list(struct reader *reader, const struct place *outer, const char *key,
                         size_t most)
{
    struct place place = typed(reader, outer, key, JSON_ARRAY);

    if (!reader->failed && json_array_size(place.value) > most)
        refuse(reader, &place, "has %zu elements, and may have %zu", json_array_size(place.value),
               most);
    return place;
}

static size_t length(const struct reader *reader, const struct place *array)
{
    return reader->failed ? 0 : json_array_size(array->value);
}

/* An element, which must be an object. */
static struct place element(struct reader *reader, const struct place *array, size_t index)
{
    struct place place = {.outer = array, .index = index};

    place.value = json_array_get(array->value, index);
    if (!json_is_object(place.value))
        refuse(reader, &place, "must be an object, and is %s", type_name(json_typeof(place.value)));
    return place;
}

/* To be freed; never NULL. */
static char *text(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = typed(reader, outer, key, JSON_STRING);

    return bench_format("%s", reader->failed ? "" : json_string_value(place.value));
}

/* To be freed; NULL for null. */
static char *text_or_null(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = member(reader, outer, key);

    return reader->failed || json_is_null(place.value) ? NULL : text(reader, outer, key);
}

static bool truth(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = member(reader, outer, key);

    if (!reader->failed && !json_is_boolean(place.value))
        refuse(reader, &place, "must be true or false, and is %s",
               type_name(json_typeof(place.value)));
    return !reader->failed && json_is_true(place.value);
}

static unsigned count(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = typed(reader, outer, key, JSON_INTEGER);
    json_int_t value = json_integer_value(place.value);

    if (!reader->failed && (value < 0 || value > INT_MAX))
        refuse(reader, &place, "must be a count up to %d", INT_MAX);
    return reader->failed ? 0 : (unsigned)value;
}

/* What is measured is never negative. NAN for null. */
static double measured_value(struct reader *reader, const struct place *place)
{
    double value = json_is_number(place->value) ? json_number_value(place->value) : NAN;

    if (reader->failed || json_is_null(place->value))
        return NAN;
    if (!json_is_number(place->value))
        refuse(reader, place, "must be a number, and is %s", type_name(json_typeof(place->value)));
    else if (!isfinite(value) || value < 0)
        refuse(reader, place, "must not be negative");
    return value;
}

static double measured(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = member(reader, outer, key);

    return measured_value(reader, &place);
}

/* One of the names of a list; its number. */
static int metric_of(struct reader *reader, const struct place *place, const char *name)
{
    for (int m = 0; m < BENCH_METRICS; m++)
        if (strcmp(bench_metrics[m].name, name) == 0)
            return m;
    refuse(reader, place, "is of a metric that this version does not know: use a newer virtwire");
    return 0;
}

static enum bench_metric metric(struct reader *reader, const struct place *outer, const char *key)
{
    struct place place = typed(reader, outer, key, JSON_STRING);

    return reader->failed
               ? 0
               : (enum bench_metric)metric_of(reader, &place, json_string_value(place.value));
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void read_machine(struct reader *reader, const struct place *outer, const char *key,
                         struct bench_machine *machine)
{
    struct place at = typed(reader, outer, key, JSON_OBJECT);

    machine->kernel = text(reader, &at, "kernel");
    machine->cpu = text(reader, &at, "cpu");
    machine->mitigations = text(reader, &at, "mitigations");
    machine->virtual_machine = text(reader, &at, "virtual_machine");
    machine->virtwire = text(reader, &at, "virtwire");
    machine->commit = text(reader, &at, "commit");
    machine->dpdk = text(reader, &at, "dpdk");
    machine->when = text(reader, &at, "when");
    machine->command = text(reader, &at, "command");
    machine->cores[0] = count(reader, &at, "driver_core");
    machine->cores[1] = count(reader, &at, "device_core");
    machine->system_call = measured(reader, &at, "system_call_seconds");
    machine->kick_idle_cost = measured(reader, &at, "kick_idle_seconds");
    machine->kick_cost = measured(reader, &at, "kick_seconds");
    machine->kick_latency = measured(reader, &at, "kick_latency_seconds");
    machine->round_trip = measured(reader, &at, "round_trip_seconds");
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void read_values(struct reader *reader, const struct place *outer,
                        struct bench_sample *sample)
{
    struct place at = typed(reader, outer, "values", JSON_OBJECT);
    const char *key;
    json_t *value;

    for (int m = 0; m < BENCH_METRICS; m++)
        sample->value[m] = NAN;
    json_object_foreach(at.value, key, value)
    {
        struct place place = {.outer = &at, .key = key, .value = value};

        sample->value[metric_of(reader, &place, key)] = measured_value(reader, &place);
    }
}

static void read_sample(struct reader *reader, const struct place *at, struct bench_sample *sample)
{
    struct place trips = list(reader, at, "round_trip_seconds", 2);

    for (size_t i = 0; i < 2; i++) {
        struct place trip = {.outer = &trips, .index = i};

        trip.value = json_array_get(trips.value, i);
        if (!reader->failed && trip.value == NULL)
            refuse(reader, &trips, "must have two elements");
        sample->round_trip[i] = measured_value(reader, &trip);
    }
    sample->round = count(reader, at, "round");
    sample->start = count(reader, at, "start");
    sample->position = count(reader, at, "position");
    sample->seconds = measured(reader, at, "seconds");
    sample->busy = measured(reader, at, "busy");
    sample->steady = truth(reader, at, "steady");
    sample->faulty = truth(reader, at, "faulty");
    sample->used = truth(reader, at, "used");
    read_values(reader, at, sample);
}

static void read_variant(struct reader *reader, const struct place *at, struct bench_cell *cell)
{
    char *name = text(reader, at, "name");
    struct bench_variant *variant = bench_plan_variant(cell, name, NULL, "", 0);
    struct place samples = list(reader, at, "samples", MOST_SAMPLES);

    free(name);
    variant->commands = text_or_null(reader, at, "commands");
    variant->features = text_or_null(reader, at, "features");
    variant->faults = text_or_null(reader, at, "faults");
    variant->samples = bench_allocate(length(reader, &samples) * sizeof(*variant->samples));
    for (size_t i = 0; i < length(reader, &samples); i++) {
        struct place sample = element(reader, &samples, i);

        read_sample(reader, &sample, &variant->samples[variant->sample_count++]);
    }
}

static enum bench_outcome outcome(struct reader *reader, const struct place *outer)
{
    struct place place = typed(reader, outer, "outcome", JSON_STRING);

    for (int i = 0; !reader->failed && i <= BENCH_FAILED; i++)
        if (strcmp(bench_outcome_text((enum bench_outcome)i), json_string_value(place.value)) == 0)
            return (enum bench_outcome)i;
    refuse(reader, &place, "is an outcome that this version does not know: use a newer virtwire");
    return BENCH_NOT_RUN;
}

/* All cells have the labels of the first, in its order; they become the headings. */
static void read_labels(struct reader *reader, const struct place *outer,
                        struct bench_experiment *experiment, const char *values[MOST_LABELS + 1])
{
    struct place at = typed(reader, outer, "labels", JSON_OBJECT);
    size_t labels = json_object_size(at.value);
    const char **headings;
    const char *key;
    json_t *value;

    if (labels > MOST_LABELS)
        refuse(reader, &at, "has %zu members, and may have %d", labels, MOST_LABELS);
    if (reader->failed)
        return;
    if (experiment->label_headings == NULL) {
        headings = bench_allocate((labels + 1) * sizeof(*headings));
        labels = 0;
        json_object_foreach(at.value, key, value) headings[labels++] = bench_format("%s", key);
        experiment->label_headings = headings;
    }
    for (labels = 0; experiment->label_headings[labels] != NULL && !reader->failed; labels++) {
        struct place label = typed(reader, &at, experiment->label_headings[labels], JSON_STRING);

        values[labels] = json_string_value(label.value);
    }
    if (!reader->failed && labels != json_object_size(at.value))
        refuse(reader, &at, "has others than the first cell");
}

static void read_cell(struct reader *reader, const struct place *at,
                      struct bench_experiment *experiment, struct bench_cell_list *cells)
{
    const char *labels[MOST_LABELS + 1] = {NULL};
    struct place variants = list(reader, at, "variants", MOST_VARIANTS);
    struct bench_cell *cell;

    read_labels(reader, at, experiment, labels);
    if (reader->failed)
        return;
    cell = bench_plan_cell(cells, labels);
    cell->cores = count(reader, at, "cores");
    cell->outcome = outcome(reader, at);
    cell->error = text_or_null(reader, at, "error");
    if (length(reader, &variants) == 0)
        refuse(reader, &variants, "is empty");
    for (size_t i = 0; i < length(reader, &variants); i++) {
        struct place variant = element(reader, &variants, i);

        read_variant(reader, &variant, cell);
    }
}

/* ---- experiments ----------------------------------------------------------------------------- */

static void read_column(struct reader *reader, const struct place *at, struct bench_column *column)
{
    struct place kind = typed(reader, at, "kind", JSON_STRING);
    int found = reader->failed ? -1 : bench_column_kind_of(json_string_value(kind.value));

    column->metric = metric(reader, at, "metric");
    column->heading = text(reader, at, "heading");
    if (found < 0)
        refuse(reader, &kind, "is a kind that this version does not know: use a newer virtwire");
    else
        column->kind = (enum bench_column_kind)found;
}

static void read_result(struct reader *reader, const struct place *at, struct bench_result *result)
{
    struct bench_experiment *experiment = bench_allocate(sizeof(*experiment));
    struct place columns = list(reader, at, "columns", MOST_COLUMNS);
    struct place cells = list(reader, at, "cells", MOST_CELLS);
    struct bench_column *column = bench_allocate(length(reader, &columns) * sizeof(*column));

    result->experiment = result->own = experiment;
    experiment->columns = column;
    experiment->name = text(reader, at, "experiment");
    experiment->title = text(reader, at, "title");
    experiment->summary = text(reader, at, "summary");
    experiment->headline = metric(reader, at, "headline");
    result->conclusion = text_or_null(reader, at, "conclusion");
    result->slice_seconds = measured(reader, at, "slice_seconds");
    result->seconds = measured(reader, at, "seconds");
    for (size_t i = 0; i < length(reader, &columns); i++) {
        struct place one = element(reader, &columns, i);

        read_column(reader, &one, &column[experiment->column_count++]);
    }
    for (size_t i = 0; i < length(reader, &cells); i++) {
        struct place cell = element(reader, &cells, i);

        read_cell(reader, &cell, experiment, &result->cells);
    }
    if (experiment->label_headings == NULL)
        experiment->label_headings = bench_allocate(sizeof(*experiment->label_headings));
}

/* What only the comparison of two runs has. */
static void read_comparison(struct reader *reader, const struct place *at,
                            struct bench_report *report)
{
    struct place other = member(reader, at, "other_machine");
    struct place notes = list(reader, at, "notes", MOST_NOTES);

    if (!reader->failed && !json_is_null(other.value)) {
        report->other = bench_allocate(sizeof(*report->other));
        read_machine(reader, at, "other_machine", report->other);
    }
    for (size_t i = 0; i < length(reader, &notes); i++) {
        struct place note = {.outer = &notes, .index = i, .value = json_array_get(notes.value, i)};

        if (json_is_string(note.value))
            bench_report_note(report, "%s", json_string_value(note.value));
        else
            refuse(reader, &note, "must be a text");
    }
}

static void read_report(struct reader *reader, json_t *document, struct bench_report *report)
{
    struct place at = {.value = document};
    struct place format, results;

    if (!json_is_object(document)) {
        refuse(reader, &at, "must be a JSON object that 'virtwire bench --json' wrote");
        return;
    }
    format = typed(reader, &at, "format", JSON_STRING);
    if (!reader->failed && strcmp(json_string_value(format.value), BENCH_FORMAT) != 0)
        refuse(reader, &format, "is '%.40s', and this version reads '%s'",
               json_string_value(format.value), BENCH_FORMAT);
    report->quick = truth(reader, &at, "quick");
    report->interrupted = truth(reader, &at, "interrupted");
    read_machine(reader, &at, "machine", &report->machine);
    read_comparison(reader, &at, report);
    results = list(reader, &at, "results", MOST_RESULTS);
    report->results = bench_allocate(length(reader, &results) * sizeof(*report->results));
    for (size_t i = 0; i < length(reader, &results); i++) {
        struct place result = element(reader, &results, i);

        read_result(reader, &result, &report->results[report->result_count++]);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

FILE *bench_open_file(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return descriptor < 0 ? NULL : fdopen(descriptor, "r");
}

static json_t *load(struct bench_context *context, const char *path)
{
    FILE *file = bench_open_file(path);
    json_error_t error;
    json_t *document;
    struct stat status;

    if (file == NULL || fstat(fileno(file), &status) < 0) {
        bench_fail(context, "%s: %s", path, strerror(errno));
        if (file != NULL)
            fclose(file);
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || status.st_size > LONGEST_FILE) {
        bench_fail(context, "%s: %s", path,
                   S_ISREG(status.st_mode) ? "longer than 256 MiB: not a report of the bench"
                                           : "not a regular file");
        fclose(file);
        return NULL;
    }
    document = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (document == NULL)
        bench_fail(context, "%s: line %d, column %d: no JSON that can be read: %s", path,
                   error.line, error.column, error.text);
    return document;
}

int bench_report_read(struct bench_context *context, const char *path, struct bench_report *report)
{
    struct reader reader = {.context = context, .file = path};
    json_t *document = load(context, path);

    *report = (struct bench_report){0};
    if (document == NULL)
        return -1;
    tame_all(document);
    read_report(&reader, document, report);
    json_decref(document);
    if (reader.failed)
        bench_report_free(report);
    return reader.failed ? -1 : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void experiment_free(struct bench_experiment *experiment)
{
    if (experiment == NULL)
        return;
    free((char *)experiment->name);
    free((char *)experiment->title);
    free((char *)experiment->summary);
    for (size_t i = 0; i < experiment->column_count; i++)
        free((char *)experiment->columns[i].heading);
    free((struct bench_column *)experiment->columns);
    for (size_t i = 0; experiment->label_headings != NULL && experiment->label_headings[i]; i++)
        free((char *)experiment->label_headings[i]);
    free((const char **)experiment->label_headings);
    free(experiment);
}

void bench_report_free(struct bench_report *report)
{
    for (size_t i = 0; i < report->result_count; i++) {
        bench_cells_free(&report->results[i].cells);
        experiment_free(report->results[i].own);
        free(report->results[i].conclusion);
    }
    free(report->results);
    for (size_t i = 0; i < report->note_count; i++)
        free(report->notes[i]);
    free(report->notes);
    if (report->other != NULL)
        bench_machine_free(report->other);
    free(report->other);
    bench_machine_free(&report->machine);
    *report = (struct bench_report){0};
}
