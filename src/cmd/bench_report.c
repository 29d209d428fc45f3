/* SPDX-License-Identifier: BSD-3-Clause */
/* `virtwire bench report` and `virtwire bench compare`: reports made anew from files of JSON. */
#include "cmd/bench_report.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/command.h"
#include "cmd/parse.h"

/* Of somebody's readings. */
#define LONGEST_READINGS (1L << 20)

/* ---- files ----------------------------------------------------------------------------------- */

int report_files_open(struct report_files *files, const char *command, const char *json,
                      const char *html)
{
    int status = output_open(&files->json, command, json);

    files->html.path = NULL;
    if (status < 0)
        status = output_open(&files->html, command, html);
    if (status >= 0)
        report_files_drop(files);
    return status;
}

static int write_json(FILE *file, const struct bench_report *report)
{
    json_t *object = bench_report_json(report);
    int result = json_dumpf(object, file, JSON_INDENT(1) | JSON_PRESERVE_ORDER);

    json_decref(object);
    fputc('\n', file);
    return result < 0 ? -EIO : 0;
}

bool report_files_write(struct report_files *files, const struct bench_report *report)
{
    bool fine = true;

    if (files->json.path != NULL)
        fine &= output_finish(&files->json, write_json(files->json.file, report));
    if (files->html.path != NULL)
        fine &= output_finish(&files->html, bench_report_html(files->html.file, report));
    return fine;
}

void report_files_drop(struct report_files *files)
{
    output_drop(&files->json);
    output_drop(&files->html);
}

/* ---- command lines --------------------------------------------------------------------------- */

static const char report_help[] =
    "usage: virtwire bench report FILE.json [OPTION...]\n"
    "\n"
    "Prints the tables of a run that 'virtwire bench --json' wrote, and makes other reports of "
    "it.\n"
    "\n"
    "  --html=FILE           a page with plots that needs nothing but itself\n"
    "  --markdown=FILE       the tables as Markdown\n"
    "  --readings=FILE       what is to stand below each table there: Markdown with a section\n"
    "                        '## NAME' for each experiment (man virtwire-bench)\n"
    "  --help                this text\n"
    "\n"
    "example:\n"
    "  virtwire bench report today.json --html=today.html\n";

static const char compare_help[] =
    "usage: virtwire bench compare A.json B.json [OPTION...]\n"
    "\n"
    "Compares two runs that 'virtwire bench --json' wrote, cell by cell: what B measured against\n"
    "what A did, with [ ] around differences that are significant (Welch's t-test, 95 %).\n"
    "Says what only one of them has, and how the machines differ.\n"
    "\n"
    "  --json=FILE           the comparison as JSON\n"
    "  --html=FILE           as a page with plots that needs nothing but itself\n"
    "  --markdown=FILE       as Markdown\n"
    "  --help                this text\n"
    "\n"
    "example:\n"
    "  virtwire bench compare yesterday.json today.json --html=difference.html\n";

enum option_code {
    OPTION_JSON = 256,
    OPTION_HTML,
    OPTION_MARKDOWN,
    OPTION_READINGS,
    OPTION_HELP,
};

/* report has no --json, compare no --readings. */
static const struct option options[] = {
    {"json", required_argument, NULL, OPTION_JSON},
    {"html", required_argument, NULL, OPTION_HTML},
    {"markdown", required_argument, NULL, OPTION_MARKDOWN},
    {"readings", required_argument, NULL, OPTION_READINGS},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

struct command_line {
    const char *command; /* such as "bench compare" */
    const char *json, *html, *markdown, *readings;
    const char *inputs[2];
    size_t input_count; /* that the command takes */
};

static int parse_option(int option, const char *value, struct command_line *line)
{
    switch (option) {
    case OPTION_JSON:
        line->json = value;
        return -1;
    case OPTION_HTML:
        line->html = value;
        return -1;
    case OPTION_MARKDOWN:
        line->markdown = value;
        return -1;
    case OPTION_READINGS:
        line->readings = value;
        return -1;
    default:
        fputs(line->input_count == 1 ? report_help : compare_help, stdout);
        return EXIT_SUCCESS;
    }
}

static int check(const struct command_line *line, int argc, char **argv)
{
    bool is_report = line->input_count == 1;

    if (is_report && line->json != NULL)
        return command_usage_error(line->command, "--json is none of its options: it reads that");
    if (!is_report && line->readings != NULL)
        return command_usage_error(line->command, "--readings is an option of 'bench report'");
    if (line->readings != NULL && line->markdown == NULL)
        return command_usage_error(line->command, "--readings needs --markdown");
    if ((size_t)argc < line->input_count)
        return command_usage_error(line->command, "name %s that 'virtwire bench --json' wrote",
                                   is_report ? "a file" : "two files");
    if ((size_t)argc > line->input_count)
        return command_usage_error(line->command, "'%s' is one file too many",
                                   argv[line->input_count]);
    return -1;
}

static int parse_command_line(int argc, char **argv, struct command_line *line)
{
    int option, place = 0, status;
    uint64_t given = 0;

    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":h", options, &place)) != -1) {
        if (option == ':')
            return command_usage_error(line->command, "%s needs a value", argv[optind - 1]);
        if (option == '?')
            return command_usage_error(line->command, "there is no option '%s'", argv[optind - 1]);
        if (option == 'h')
            option = OPTION_HELP;
        else if ((status = note_given(line->command, options[place].name,
                                      (unsigned)(option - OPTION_JSON), "", &given)) >= 0)
            return status;
        status = parse_option(option, optarg, line);
        if (status >= 0)
            return status;
    }
    status = check(line, argc - optind, argv + optind);
    for (size_t i = 0; status < 0 && i < line->input_count; i++)
        line->inputs[i] = argv[optind + (int)i];
    return status;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* One file's report, or the comparison of two. */
static int read_inputs(const struct command_line *line, struct bench_context *context,
                       struct bench_report *report)
{
    struct bench_report a, b;
    int result;

    if (line->input_count == 1)
        return bench_report_read(context, line->inputs[0], report);
    if (bench_report_read(context, line->inputs[0], &a) < 0)
        return -1;
    result = bench_report_read(context, line->inputs[1], &b);
    if (result == 0) {
        result = bench_report_compare(context, &a, &b, report);
        bench_report_free(&b);
    }
    bench_report_free(&a);
    return result;
}

/* To be freed; NULL after bench_fail. */
static char *read_readings(const char *path, struct bench_context *context)
{
    char *text = bench_allocate(LONGEST_READINGS + 1);
    FILE *file = bench_open_file(path);
    size_t length = 0;

    if (file != NULL)
        length = fread(text, 1, LONGEST_READINGS + 1, file);
    if (file == NULL || ferror(file) != 0)
        bench_fail(context, "%s: %s", path, strerror(errno));
    else if (length > LONGEST_READINGS || memchr(text, '\0', length) != NULL)
        bench_fail(context, "%s: no text of up to 1 MiB", path);
    else {
        fclose(file);
        text[length] = '\0';
        return text;
    }
    if (file != NULL)
        fclose(file);
    free(text);
    return NULL;
}

static int write_markdown(const struct command_line *line, struct bench_context *context,
                          struct output *output, const struct bench_report *report)
{
    char *readings = NULL;
    int result;

    if (line->readings != NULL) {
        readings = read_readings(line->readings, context);
        if (readings == NULL)
            return -1;
    }
    result = bench_report_markdown(context, output->file, report, readings);
    free(readings);
    if (result < 0)
        return -1;
    return output_finish(output, 0) ? 0 : bench_fail(context, "%s was not written", line->markdown);
}

static void print_report(const struct bench_report *report)
{
    bench_print_machine(stdout, &report->machine);
    if (report->other != NULL)
        bench_print_machine(stdout, report->other);
    for (size_t i = 0; i < report->note_count; i++)
        printf("%s\n", report->notes[i]);
    for (size_t i = 0; i < report->result_count; i++)
        bench_print_result(stdout, &report->results[i]);
}

static int run(const struct command_line *line, struct report_files *files, struct output *markdown)
{
    struct bench_context context = {0};
    struct bench_report report = {0};
    bool fine;

    if (read_inputs(line, &context, &report) < 0) {
        fprintf(stderr, "virtwire %s: %s\n", line->command, context.error);
        return EXIT_FAILURE;
    }
    print_report(&report);
    fine = report_files_write(files, &report);
    if (markdown->path != NULL && write_markdown(line, &context, markdown, &report) < 0) {
        fprintf(stderr, "virtwire %s: %s\n", line->command, context.error);
        fine = false;
    }
    bench_report_free(&report);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int command(int argc, char **argv, struct command_line *line)
{
    struct report_files files;
    struct output markdown;
    int status = parse_command_line(argc, argv, line);

    if (status < 0)
        status = report_files_open(&files, line->command, line->json, line->html);
    if (status >= 0)
        return status;
    status = output_open(&markdown, line->command, line->markdown);
    if (status < 0)
        status = run(line, &files, &markdown);
    report_files_drop(&files);
    output_drop(&markdown);
    return status;
}

int command_bench_report(int argc, char **argv)
{
    struct command_line line = {.command = "bench report", .input_count = 1};

    return command(argc, argv, &line);
}

int command_bench_compare(int argc, char **argv)
{
    struct command_line line = {.command = "bench compare", .input_count = 2};

    return command(argc, argv, &line);
}
