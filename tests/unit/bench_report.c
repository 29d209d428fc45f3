/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of the bench: written, read again, compared; and files that are no reports. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "bench/report.h"

/* ---- a report -------------------------------------------------------------------------------- */

static const char *const headings[] = {"ring", "calls", NULL};
static const struct bench_column columns[] = {
    {BENCH_COLUMN_BEFORE, BENCH_FRAMES, "before"},
    {BENCH_COLUMN_AFTER, BENCH_FRAMES, "after"},
    {BENCH_COLUMN_GAIN, BENCH_FRAMES, "gain"},
    {BENCH_COLUMN_ELIMINATED, BENCH_CALLS, NULL},
};
static const struct bench_experiment experiment = {
    .name = "tx-something",
    .title = "<script>alert(1)</script> & \"more\"",
    .summary = "What it does.",
    .label_headings = headings,
    .columns = columns,
    .column_count = 4,
    .headline = BENCH_FRAMES,
};

static void add_variant(struct bench_cell *cell, const char *name, double rate, double calls)
{
    struct bench_variant *variant = bench_plan_variant(cell, name, NULL, "", 0);

    bench_variant_note(variant, "virtwire device\nvirtwire pktgen", "VERSION_1 EVENT_IDX");
    variant->sample_count = 4;
    variant->samples = bench_allocate(4 * sizeof(*variant->samples));
    for (unsigned i = 0; i < 4; i++) {
        struct bench_sample *sample = &variant->samples[i];

        for (int m = 0; m < BENCH_METRICS; m++)
            sample->value[m] = NAN;
        sample->value[BENCH_FRAMES] = rate * (1 + 0.02 * i);
        sample->value[BENCH_CALLS] = calls;
        sample->round = i;
        sample->seconds = 0.3;
        sample->round_trip[0] = sample->round_trip[1] = 95e-9;
        sample->busy = NAN;
        sample->steady = sample->used = true;
    }
}

static void add_cell(struct bench_result *result, const char *ring, double rate)
{
    struct bench_cell *cell =
        bench_plan_cell(&result->cells, (const char *[]){ring, "another core", NULL});

    add_variant(cell, "delayed", rate, 0.02);
    add_variant(cell, "deferred", 2 * rate, 0.01);
    cell->outcome = BENCH_NARROW;
}

static char *text(const char *string)
{
    return bench_format("%s", string);
}

/* Split and packed, packed at `packed` frames a second. */
static struct bench_report report_of(const char *kernel, double packed)
{
    struct bench_report report = {
        .machine = {.kernel = text(kernel),
                    .cpu = text("a processor"),
                    .mitigations = text("none"),
                    .virtual_machine = text("yes"),
                    .virtwire = text("0.1.0"),
                    .commit = text("0123456789ab"),
                    .dpdk = text("none"),
                    .when = text("2026-01-01T00:00:00Z"),
                    .command = text("virtwire bench tx-something"),
                    .cores = {0, 1},
                    .system_call = 123e-9,
                    .kick_cost = 5e-6,
                    .kick_latency = 9e-6,
                    .kick_idle_cost = 2e-7,
                    .round_trip = NAN},
        .results = bench_allocate(sizeof(struct bench_result)),
        .result_count = 1,
    };

    report.results[0].experiment = &experiment;
    report.results[0].slice_seconds = 0.3;
    report.results[0].seconds = 10;
    add_cell(&report.results[0], "split", 5e6);
    add_cell(&report.results[0], "packed", packed);
    return report;
}

static json_t *document(void)
{
    struct bench_report report = report_of("Linux 6.12", 6e6);
    json_t *json = bench_report_json(&report);

    bench_report_free(&report);
    return json;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char path[] = "/tmp/virtwire-test-report-XXXXXX";

static int make_file(void **state)
{
    int descriptor = mkstemp(path);

    (void)state;
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *content, size_t length)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void assert_refused(const char *expected)
{
    struct bench_context context = {0};
    struct bench_report report;

    assert_int_equal(bench_report_read(&context, path, &report), -1);
    if (strstr(context.error, path) == NULL || strstr(context.error, expected) == NULL)
        fail_msg("'%s' does not say '%s'", context.error, expected);
}

static void a_report_is_read_as_it_was_written(void **state)
{
    struct bench_context context = {0};
    struct bench_report report;
    json_t *before = document(), *after;

    (void)state;
    assert_int_equal(json_dump_file(before, path, 0), 0);
    assert_int_equal(bench_report_read(&context, path, &report), 0);
    after = bench_report_json(&report);
    assert_true(json_equal(before, after));
    assert_string_equal(report.results[0].experiment->label_headings[1], "calls");
    assert_true(isnan(report.machine.round_trip));
    bench_report_free(&report);
    json_decref(before);
    json_decref(after);
}

/* One value is replaced by another (NULL: taken away). */
static const struct {
    const char *where, *value, *expected;
} wrong_values[] = {
    {"format", "\"virtwire-bench/2\"", "format is 'virtwire-bench/2', and this version reads"},
    {"format", "7", "format must be a text, and is a whole number"},
    {"machine", NULL, "machine is missing"},
    {"machine/kernel", "null", "machine.kernel must be a text, and is null"},
    {"machine/system_call_seconds", "\"fast\"", "machine.system_call_seconds must be a number"},
    {"machine/driver_core", "-1", "machine.driver_core must be a count"},
    {"machine/driver_core", "1e3", "machine.driver_core must be a whole number, and is a number"},
    {"results", "{}", "results must be an array, and is an object"},
    {"results/0", "null", "results[0] must be an object, and is null"},
    {"results/0/headline", "\"frames\"", "results[0].headline is of a metric that this version"},
    {"results/0/columns/2/kind", "\"loss\"", "results[0].columns[2].kind is a kind that this"},
    {"results/0/columns/0/metric", "[]", "results[0].columns[0].metric must be a text"},
    {"results/0/cells/1/labels", "[\"a\"]", "results[0].cells[1].labels must be an object"},
    {"results/0/cells/1/labels/ring", NULL, "results[0].cells[1].labels.ring is missing"},
    {"results/0/cells/1/labels/more", "\"x\"", "labels has others than the first cell"},
    {"results/0/cells/0/outcome", "\"well\"", "outcome is an outcome that this version does not"},
    {"results/0/cells/0/variants", "[]", "results[0].cells[0].variants is empty"},
    {"results/0/cells/0/variants/1/name", NULL, "variants[1].name is missing"},
    {"results/0/cells/0/variants/1/samples/3/used", "1",
     "results[0].cells[0].variants[1].samples[3].used must be true or false"},
    {"results/0/cells/0/variants/0/samples/0/round", "4294967296", "round must be a count"},
    {"results/0/cells/0/variants/0/samples/0/round_trip_seconds", "[1e-7]",
     "round_trip_seconds must have two elements"},
    {"results/0/cells/0/variants/0/samples/0/round_trip_seconds", "[1, 2, 3]",
     "round_trip_seconds has 3 elements, and may have 2"},
    {"results/0/cells/0/variants/0/samples/0/values/frames_per_second", "-1",
     "samples[0].values.frames_per_second must not be negative"},
    {"results/0/cells/0/variants/0/samples/0/values/frames_per_second", "\"NaN\"",
     "values.frames_per_second must be a number, and is a text"},
    {"results/0/cells/0/variants/0/samples/0/values/speed", "1",
     "values.speed is of a metric that this version does not know"},
    {"notes", "[1]", "notes[0] must be a text"},
    {"other_machine", "true", "other_machine must be an object, and is true"},
};

static void replace(json_t *at, const char *where, const char *value)
{
    const char *slash = strchr(where, '/');
    char *key =
        bench_format("%.*s", slash != NULL ? (int)(slash - where) : (int)strlen(where), where);
    json_t *new = value != NULL ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;

    if (slash != NULL)
        replace(json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
                                  : json_object_get(at, key),
                slash + 1, value);
    else if (json_is_array(at))
        assert_int_equal(json_array_set_new(at, strtoul(key, NULL, 10), json_incref(new)), 0);
    else if (value != NULL)
        assert_int_equal(json_object_set(at, key, new), 0);
    else
        assert_int_equal(json_object_del(at, key), 0);
    json_decref(new);
    free(key);
}

static void a_wrong_value_is_refused_and_its_place_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong_values) / sizeof(wrong_values[0]); i++) {
        json_t *json = document();

        replace(json, wrong_values[i].where, wrong_values[i].value);
        assert_int_equal(json_dump_file(json, path, 0), 0);
        json_decref(json);
        assert_refused(wrong_values[i].expected);
    }
}

static void what_is_no_json_is_refused(void **state)
{
    static const struct {
        const char *content, *expected;
    } files[] = {
        {"", "line 1"},
        {"[]", "must be a JSON object that 'virtwire bench --json' wrote"},
        {"{\"format\": NaN}", "no JSON that can be read"},
        {"{\"format\": 1e999}", "no JSON that can be read"},
        {"{\"format\": 1, \"format\": 2}", "no JSON that can be read"},
        {"{\"format\": \"\\u0000\"}", "no JSON that can be read"},
        {"{\"format\": \"\xff\"}", "no JSON that can be read"},
        {"{} {}", "no JSON that can be read"},
    };
    char *deep = bench_allocate(1000000);

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        write_file(files[i].content, strlen(files[i].content));
        assert_refused(files[i].expected);
    }
    memset(deep, '[', 1000000);
    write_file(deep, 1000000);
    assert_refused("no JSON that can be read");
    memset(deep, '\0', 1000000);
    write_file(deep, 1000000);
    assert_refused("no JSON that can be read");
    free(deep);
}

static void what_is_no_file_is_refused(void **state)
{
    struct bench_context context = {0};
    struct bench_report report;

    (void)state;
    assert_int_equal(bench_report_read(&context, "/proc/self", &report), -1);
    assert_non_null(strstr(context.error, "/proc/self: "));
    assert_int_equal(bench_report_read(&context, "/dev/zero", &report), -1);
    assert_string_equal(context.error, "/dev/zero: not a regular file");
    assert_int_equal(bench_report_read(&context, "/nonexistent", &report), -1);
    assert_string_equal(context.error, "/nonexistent: No such file or directory");
}

/* ---- two reports ----------------------------------------------------------------------------- */

static void two_reports_are_compared_cell_by_cell(void **state)
{
    struct bench_report a = report_of("Linux 6.12", 6e6), b = report_of("Linux 6.13", 9e6);
    struct bench_context context = {0};
    struct bench_report comparison;
    const struct bench_result *result;
    struct bench_shown shown;

    (void)state;
    add_cell(&b.results[0], "third", 1e6);
    free(a.results[0].cells.cells[0].variants[1].name);
    a.results[0].cells.cells[0].variants[1].name = text("scheduled");
    assert_int_equal(bench_report_compare(&context, &a, &b, &comparison), 0);
    result = &comparison.results[0];
    assert_int_equal(result->cells.count, 3); /* split's delayed, and both of packed */
    assert_string_equal(result->cells.cells[1].labels[2], "delayed");
    assert_string_equal(result->cells.cells[1].labels[3], "near");
    bench_show(&result->experiment->columns[2], &result->cells.cells[0],
               &result->cells.cells[0].variants[1], &shown);
    assert_string_equal(shown.text, "+0.0%");
    bench_show(&result->experiment->columns[2], &result->cells.cells[1],
               &result->cells.cells[1].variants[1], &shown);
    assert_string_equal(shown.text, "[+50.0%]");
    assert_int_equal(comparison.note_count, 3);
    assert_non_null(strstr(comparison.notes[0], "Kernel (A: Linux 6.12, B: Linux 6.13)"));
    assert_string_equal(comparison.notes[1],
                        "Only in A: tx-something, split, another core, scheduled.");
    assert_string_equal(comparison.notes[2], "Only in B: tx-something, split, another core, "
                                             "deferred; tx-something, third, another core.");
    bench_report_free(&comparison);
    bench_report_free(&a);
    bench_report_free(&b);
}

static void another_placement_of_the_cores_is_told(void **state)
{
    struct bench_report a = report_of("Linux", 6e6), b = report_of("Linux", 6e6), comparison;
    struct bench_variant *variants = b.results[0].cells.cells[1].variants;
    struct bench_context context = {0};

    (void)state;
    for (size_t i = 0; i < 8; i++)
        variants[i / 4].samples[i % 4].round_trip[0] =
            variants[i / 4].samples[i % 4].round_trip[1] = 400e-9;
    assert_int_equal(bench_report_compare(&context, &a, &b, &comparison), 0);
    assert_string_equal(comparison.results[0].cells.cells[2].labels[3], "A near, B far");
    assert_int_equal(comparison.note_count, 1);
    assert_string_equal(comparison.notes[0], "The cores were placed differently in A and B: "
                                             "tx-something, packed, another core.");
    bench_report_free(&comparison);
    bench_report_free(&a);
    bench_report_free(&b);
}

static void reports_with_nothing_in_common_are_refused(void **state)
{
    struct bench_experiment other = experiment;
    struct bench_report a = report_of("Linux", 6e6), b = report_of("Linux", 6e6), comparison;
    struct bench_context context = {0};

    (void)state;
    other.name = "rx-something";
    b.results[0].experiment = &other;
    assert_int_equal(bench_report_compare(&context, &a, &b, &comparison), -1);
    assert_non_null(strstr(context.error, "in common"));
    bench_report_free(&a);
    bench_report_free(&b);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void text_in_a_page_is_nothing_but_text(void **state)
{
    struct bench_report report = report_of("<img src=x onerror=alert(1)>", 6e6);
    size_t length;
    char *page;
    FILE *file = open_memstream(&page, &length);

    (void)state;
    bench_variant_note(&report.results[0].cells.cells[0].variants[0], "a </pre><b>", "\x01");
    bench_variant_fault(&report.results[0].cells.cells[0].variants[0], "<i>%s", "lost");
    assert_int_equal(bench_report_html(file, &report), 0);
    fclose(file);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "<i>"));
    assert_null(strstr(page, "\x01"));
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;"));
    assert_non_null(strstr(page, "a &lt;/pre&gt;&lt;b&gt;"));
    free(page);
    bench_report_free(&report);
}

/* A full disk, and the like. */
static void a_page_that_is_not_written_is_no_success(void **state)
{
    struct bench_report report = report_of("Linux", 6e6);
    FILE *file = fopen("/dev/full", "w");

    (void)state;
    assert_non_null(file);
    assert_true(bench_report_html(file, &report) < 0);
    fclose(file);
    bench_report_free(&report);
}

static int markdown_of(const char *readings, char **text, struct bench_context *context)
{
    struct bench_report report = report_of("a|b", 6e6);
    size_t length;
    FILE *file = open_memstream(text, &length);
    int result = bench_report_markdown(context, file, &report, readings);

    fclose(file);
    bench_report_free(&report);
    return result;
}

static void figures_of_readings_are_those_of_the_tables(void **state)
{
    struct bench_context context = {0};
    char *markdown;

    (void)state;
    assert_int_equal(markdown_of("# Title\n\nIntroduction.\n\n## tx-something\n\nGains "
                                 "{{split, another core; deferred; gain}}, from {{ packed, another "
                                 "core ;deferred;before}}.\n",
                                 &markdown, &context),
                     0);
    assert_ptr_equal(strstr(markdown, "# Title\n\nIntroduction.\n"), markdown);
    assert_non_null(strstr(markdown, "\nGains [+100.0%], from 6.18.\n"));
    assert_non_null(strstr(markdown, "| split | another core | delayed → deferred | 5.15 | 10.30 | "
                                     "[+100.0%] | [50.0%] |\n"));
    assert_non_null(strstr(markdown, "a\\|b"));
    free(markdown);
}

static void readings_of_what_is_not_there_are_refused(void **state)
{
    static const char *const readings[][2] = {
        {"## rx-something\n", "section 'rx-something'"},
        {"## tx-something\n{{split; deferred; gain}}", "{{split; deferred; gain}}: there is no "
                                                       "such cell"},
        {"## tx-something\n{{split, another core; urgent; gain}}", "no such variant"},
        {"## tx-something\n{{split, another core; deferred; loss}}", "no such heading"},
        {"## tx-something\n{{}}", "no such cell"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++) {
        struct bench_context context = {0};
        char *markdown;

        assert_int_equal(markdown_of(readings[i][0], &markdown, &context), -1);
        assert_non_null(strstr(context.error, readings[i][1]));
        free(markdown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_read_as_it_was_written),
        cmocka_unit_test(a_wrong_value_is_refused_and_its_place_named),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(two_reports_are_compared_cell_by_cell),
        cmocka_unit_test(another_placement_of_the_cores_is_told),
        cmocka_unit_test(reports_with_nothing_in_common_are_refused),
        cmocka_unit_test(text_in_a_page_is_nothing_but_text),
        cmocka_unit_test(a_page_that_is_not_written_is_no_success),
        cmocka_unit_test(figures_of_readings_are_those_of_the_tables),
        cmocka_unit_test(readings_of_what_is_not_there_are_refused),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
