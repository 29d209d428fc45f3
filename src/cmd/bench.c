/* SPDX-License-Identifier: BSD-3-Clause */
/* `virtwire bench`: the experiments, run and reported. */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/engine.h"
#include "bench/helpers.h"
#include "bench/report.h"
#include "cmd/bench_report.h"
#include "cmd/command.h"
#include "cmd/parse.h"

#define COMMAND "bench"
#define MOST_ROUNDS 1000

static const char help[] =
    "usage: virtwire bench --list\n"
    "       virtwire bench NAME... [OPTION...]\n"
    "       virtwire bench report FILE.json [OPTION...]\n"
    "       virtwire bench compare A.json B.json [OPTION...]\n"
    "\n"
    "Repeats experiments on this machine: mechanisms of virtio networking switched on and off,\n"
    "interleaved, with statistics. Prints a table for each. NAME may be 'all'.\n"
    "\n"
    "how long:\n"
    "  --quick               few cells and short slices: does it work, what are the counts?\n"
    "  --rounds=N            so many rounds of each cell (until the 95 % confidence intervals\n"
    "                        are narrow, or --cell-seconds are over)\n"
    "  --seconds=S           length of a slice (the experiment's choice, mostly 0.3)\n"
    "  --cell-seconds=S      no further round of a cell begins after so long (mostly 20)\n"
    "\n"
    "what:\n"
    "  --only=TEXT           only cells whose labels, with commas between, contain this\n"
    "  --cores=A,B           the driver's side runs on core A, the device's on core B (0,1)\n"
    "  --list                name the experiments and exit\n"
    "\n"
    "report:\n"
    "  --json=FILE           also as JSON, with every sample\n"
    "  --html=FILE           also as a page with plots that needs nothing but itself\n"
    "  --help                this text\n"
    "\n"
    "Nothing else should run on the two cores. Ctrl-C ends the run, and reports what there is.\n"
    "Exit status: 0; 1 if a cell failed, was interrupted, or lost frames; 2 for wrong options.\n"
    "\n"
    "examples:\n"
    "  virtwire bench tx-completion --quick\n"
    "  virtwire bench tx-completion --only=packed --json=today.json\n"
    "  virtwire bench compare yesterday.json today.json\n"
    "  virtwire bench all --cores=2,3 --rounds=9 --html=page.html\n";

enum option_code {
    OPTION_LIST = 256,
    OPTION_QUICK,
    OPTION_ROUNDS,
    OPTION_SECONDS,
    OPTION_CELL_SECONDS,
    OPTION_ONLY,
    OPTION_CORES,
    OPTION_JSON,
    OPTION_HTML,
    OPTION_HELP,
};

static const struct option options[] = {
    {"list", no_argument, NULL, OPTION_LIST},
    {"quick", no_argument, NULL, OPTION_QUICK},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"cell-seconds", required_argument, NULL, OPTION_CELL_SECONDS},
    {"only", required_argument, NULL, OPTION_ONLY},
    {"cores", required_argument, NULL, OPTION_CORES},
    {"json", required_argument, NULL, OPTION_JSON},
    {"html", required_argument, NULL, OPTION_HTML},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

struct command_line {
    struct bench_options options;
    const char *json, *html;
    bool list;
    const struct bench_experiment **experiments;
    size_t count;
};

/* ---- the command line ------------------------------------------------------------------------ */

static int parse_cores(const char *text, unsigned cores[2])
{
    unsigned count = 0, list[2];
    int status = parse_cpus(COMMAND, "cores", text, list, 2, &count);

    if (status >= 0)
        return status;
    if (count != 2 || list[0] == list[1])
        return command_usage_error(COMMAND, "--cores=%s: give two different ones, such as 0,1",
                                   text);
    memcpy(cores, list, sizeof(list));
    return -1;
}

static int parse_option(int option, const char *name, const char *value, struct command_line *line)
{
    unsigned long number = 0;
    int status = -1;

    switch (option) {
    case OPTION_LIST:
        line->list = true;
        break;
    case OPTION_QUICK:
        line->options.quick = true;
        break;
    case OPTION_ROUNDS:
        status = parse_number(COMMAND, name, value, 2, MOST_ROUNDS, &number);
        line->options.rounds = (unsigned)number;
        break;
    case OPTION_SECONDS:
        return parse_scaled(COMMAND, name, value, &line->options.seconds);
    case OPTION_CELL_SECONDS:
        return parse_scaled(COMMAND, name, value, &line->options.cell_seconds);
    case OPTION_ONLY:
        line->options.only = value;
        break;
    case OPTION_CORES:
        return parse_cores(value, line->options.cores);
    case OPTION_JSON:
        line->json = value;
        break;
    case OPTION_HTML:
        line->html = value;
        break;
    default:
        fputs(help, stdout);
        return EXIT_SUCCESS;
    }
    return status;
}

static int parse_names(int argc, char **argv, struct command_line *line)
{
    line->experiments = bench_allocate((bench_experiment_count + (size_t)argc) * sizeof(void *));
    if (argc == 1 && strcmp(argv[0], "all") == 0) {
        while (line->count < bench_experiment_count) {
            line->experiments[line->count] = bench_experiments[line->count];
            line->count++;
        }
        return -1;
    }
    for (int i = 0; i < argc; i++) {
        const struct bench_experiment *experiment = bench_find_experiment(argv[i]);

        if (experiment == NULL)
            return command_usage_error(COMMAND, "there is no experiment '%s'; --list names them",
                                       argv[i]);
        for (size_t j = 0; j < line->count; j++)
            if (line->experiments[j] == experiment)
                return command_usage_error(COMMAND, "'%s' is named twice", argv[i]);
        line->experiments[line->count++] = experiment;
    }
    if (line->count == 0 && !line->list)
        return command_usage_error(COMMAND, "name an experiment, or 'all'; --list names them");
    return -1;
}

/* Names and options in any order. Returns -1 to go on, or an exit status. */
static int parse_command_line(int argc, char **argv, struct command_line *line)
{
    int option, place = 0, status;
    uint64_t given = 0;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", options, &place)) != -1) {
        if (option == ':')
            return command_usage_error(COMMAND, "%s needs a value", argv[optind - 1]);
        if (option == '?')
            return command_usage_error(COMMAND, "there is no option '%s'", argv[optind - 1]);
        if (option == 'h')
            option = OPTION_HELP;
        else if ((status = note_given(COMMAND, options[place].name,
                                      (unsigned)(option - OPTION_LIST), "", &given)) >= 0)
            return status;
        status = parse_option(option, options[place].name, optarg, line);
        if (status >= 0)
            return status;
    }
    if (line->options.quick && line->options.rounds > 0)
        return command_usage_error(COMMAND, "give --quick or --rounds");
    return parse_names(argc - optind, argv + optind, line);
}

static int list_experiments(void)
{
    for (size_t i = 0; i < bench_experiment_count; i++)
        printf("%-14s %s%s%s\n", bench_experiments[i]->name, bench_experiments[i]->title,
               bench_experiments[i]->needs_network ? " (network namespaces)" : "",
               bench_experiments[i]->needs_testpmd ? " (dpdk-testpmd)" : "");
    return EXIT_SUCCESS;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* On a terminal one line, written anew each time; elsewhere a line for each cell. */
static void show_progress(void *context, const char *line)
{
    char *shown = context;
    size_t same = strcspn(line, ":");

    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s", line);
        return;
    }
    if (strncmp(shown, line, same) == 0 && shown[same] == '\0')
        return;
    snprintf(shown, 256, "%.*s", (int)same, line);
    fprintf(stderr, "%s\n", line);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool is_clean(const struct bench_result *result)
{
    for (size_t i = 0; i < result->cells.count; i++) {
        const struct bench_cell *cell = &result->cells.cells[i];

        if (cell->outcome >= BENCH_INTERRUPTED || cell->outcome == BENCH_NOT_RUN)
            return false;
        for (size_t v = 0; v < cell->variant_count; v++)
            if (cell->variants[v].faults != NULL)
                return false;
    }
    return true;
}

/* Returns whether all went well. */
static bool run_experiment(struct bench_context *context, const struct bench_experiment *experiment,
                           struct bench_report *report)
{
    struct bench_result *result = &report->results[report->result_count];
    double began = (double)vw_clock_ns() * 1e-9;

    result->experiment = experiment;
    result->slice_seconds = bench_slice_seconds(context, experiment);
    if (bench_run(context, experiment, &result->cells) < 0) {
        end_progress();
        fprintf(stderr, "virtwire bench: %s: %s\n", experiment->name, context->error);
        return false;
    }
    end_progress();
    result->seconds = (double)vw_clock_ns() * 1e-9 - began;
    if (experiment->conclude != NULL)
        result->conclusion = experiment->conclude(&result->cells);
    if (result->cells.count == 0) {
        fprintf(stderr, "virtwire bench: %s has no cell with '%s'\n", experiment->name,
                context->options->only);
        return false;
    }
    report->result_count++;
    bench_print_result(stdout, result);
    fflush(stdout);
    return is_clean(result);
}

/* To be freed; NULL, after having told why: there is none. */
static char *new_folder(void)
{
    const char *parent = getenv("TMPDIR");
    char *folder = bench_format("%s/virtwire-bench-XXXXXX", parent != NULL ? parent : "/tmp");

    if (mkdtemp(folder) != NULL)
        return folder;
    fprintf(stderr, "virtwire bench: cannot make %s: %s\n", folder, strerror(errno));
    free(folder);
    return NULL;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_folder(const char *folder)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int run_all(struct command_line *line, int argc, char **argv, struct report_files *files)
{
    char shown[256] = "", program[4096] = "", *folder = new_folder();
    struct bench_report report = {.quick = line->options.quick};
    struct bench_context context = {.options = &line->options,
                                    .program = program,
                                    .progress = show_progress,
                                    .progress_context = shown};
    volatile bool interrupted = false;
    bool fine = true;

    context.interrupted = &interrupted;
    if (folder == NULL)
        return EXIT_FAILURE;
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
        fprintf(stderr, "virtwire bench: /proc/self/exe: %s\n", strerror(errno));
    context.folder = folder;
    report.results = bench_allocate(line->count * sizeof(*report.results));
    bench_machine_read(&report.machine, &line->options, argc, argv);
    bench_print_machine(stdout, &report.machine);
    fflush(stdout);
    for (size_t i = 0; i < line->count && !interrupted; i++)
        fine &= run_experiment(&context, line->experiments[i], &report);
    report.interrupted = interrupted;
    remove_folder(folder);
    free(folder);
    fine &= report_files_write(files, &report);
    for (size_t i = 0; i < report.result_count; i++) {
        bench_cells_free(&report.results[i].cells);
        free(report.results[i].conclusion);
    }
    free(report.results);
    bench_machine_free(&report.machine);
    return fine && !interrupted ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A Ctrl-C waits until bench_sleep looks for it. */
static void take_signals(void)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int command_bench(int argc, char **argv)
{
    struct command_line line = {.options = {.cores = {0, 1}}};
    struct report_files files = {0};
    int status;

    if (argc > 1 && strcmp(argv[1], "report") == 0)
        return command_bench_report(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "compare") == 0)
        return command_bench_compare(argc - 1, argv + 1);
    if (bench_helper(argc - 1, argv + 1, &status))
        return status;
    status = parse_command_line(argc, argv, &line);
    if (status < 0 && line.list)
        status = list_experiments();
    if (status < 0)
        status = report_files_open(&files, COMMAND, line.json, line.html);
    if (status < 0) {
        take_signals();
        status = run_all(&line, argc, argv, &files);
    }
    report_files_drop(&files);
    free(line.experiments);
    return status;
}
