/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define END_PATIENCE_SECONDS 2.0
#define DOCUMENT_PATIENCE_SECONDS 20.0
#define WAIT_SECONDS 0.001 /* between two looks */
#define TAIL 600           /* bytes of output in a failure's text */

struct bench_process {
    char *name, *command;
    char *output, *errors; /* paths */
    pid_t id;
    bool ended;
    int input; /* -1: none */
};

/* ---- starting -------------------------------------------------------------------------------- */

static char *command_text(const char *const *arguments)
{
    char *text = bench_format("%s", arguments[0]), *longer;

    for (size_t i = 1; arguments[i] != NULL; i++) {
        const char *quote = strpbrk(arguments[i], " ;&|<>$\"'*?") != NULL ? "'" : "";

        longer = bench_format("%s %s%s%s", text, quote, arguments[i], quote);
        free(text);
        text = longer;
    }
    return text;
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

/* In the child. Returns only if it failed, with errno. */
static void become(struct bench_context *context, const struct bench_process *process,
                   const struct bench_process_options *options, int input, pid_t parent)
{
    const char *file = options->arguments[0];
    sigset_t none;
    cpu_set_t cores;
    int output, errors;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    CPU_ZERO(&cores);
    CPU_SET(options->core, &cores);
    if (sched_setaffinity(0, sizeof(cores), &cores) < 0)
        return;
    if (options->network >= 0 && setns(options->network, CLONE_NEWNET) < 0)
        return;
    output = open_file(process->output);
    errors = open_file(process->errors);
    if (output < 0 || errors < 0 || chdir(context->folder) < 0 || dup2(input, 0) < 0 ||
        dup2(output, 1) < 0 || dup2(errors, 2) < 0)
        return;
    if (options->environment != NULL && putenv((char *)(uintptr_t)options->environment) != 0)
        return;
    if (strcmp(file, "virtwire") == 0)
        file = context->program;
    execvp(file, (char *const *)(uintptr_t)options->arguments);
}

/* Forks; 0, or an errno value, of the child's as well. */
static int spawn(struct bench_context *context, struct bench_process *process,
                 const struct bench_process_options *options, int input)
{
    int told[2], error = 0;
    pid_t parent = getpid();

    if (pipe2(told, O_CLOEXEC) < 0)
        return errno;
    process->id = fork();
    if (process->id == 0) {
        become(context, process, options, input, parent);
        error = errno;
        (void)!write(told[1], &error, sizeof(error));
        _exit(127);
    }
    if (process->id < 0)
        error = errno;
    close(told[1]);
    /* its end closes the pipe, whether by exec or by exit */
    if (process->id > 0 && read(told[0], &error, sizeof(error)) != (ssize_t)sizeof(error))
        error = 0;
    close(told[0]);
    return error;
}

static void process_free(struct bench_process *process)
{
    if (process->input >= 0)
        close(process->input);
    free(process->name);
    free(process->command);
    free(process->output);
    free(process->errors);
    free(process);
}

struct bench_process *bench_process_start(struct bench_context *context,
                                          const struct bench_process_options *options)
{
    struct bench_process *process;
    int input[2] = {-1, -1}, error = 0;

    if (options->arguments[0] == NULL) {
        bench_fail(context, "no program to run as %s", options->name);
        return NULL;
    }
    process = bench_allocate(sizeof(*process));
    process->name = bench_format("%s", options->name);
    process->command = command_text(options->arguments);
    process->output = bench_format("%s/%s.log", context->folder, options->name);
    process->errors = bench_format("%s/%s.err", context->folder, options->name);
    if (options->input ? pipe2(input, O_CLOEXEC) < 0
                       : (input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        error = errno;
    process->input = input[1];
    if (error == 0)
        error = spawn(context, process, options, input[0]);
    if (input[0] >= 0)
        close(input[0]);
    if (error == 0)
        return process;
    bench_fail(context, "cannot start %s: %s", process->command, strerror(error));
    if (process->id > 0)
        waitpid(process->id, NULL, 0);
    process_free(process);
    return NULL;
}

struct bench_process *bench_process_run(struct bench_context *context, const char *name,
                                        unsigned core, int network, const char *format, ...)
{
    const char *arguments[64] = {NULL};
    struct bench_process *process;
    va_list list;
    char *text, *rest, *word;
    size_t count = 0;

    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        abort();
    va_end(list);
    for (word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        if (count < sizeof(arguments) / sizeof(arguments[0]) - 1)
            arguments[count++] = word;
    process = bench_process_start(
        context, &(struct bench_process_options){
                     .name = name, .arguments = arguments, .core = core, .network = network});
    free(text);
    return process;
}

/* ---- signals --------------------------------------------------------------------------------- */

bool bench_process_runs(struct bench_process *process)
{
    if (!process->ended && waitpid(process->id, NULL, WNOHANG) != 0)
        process->ended = true;
    return !process->ended;
}

static void signal_to(struct bench_process *process, int number)
{
    if (bench_process_runs(process))
        kill(-process->id, number);
}

/* One thread takes the signal, and only when it gets the core that another may be polling on; then
 * the others stop. The parent is told when all have. */
void bench_process_stop(struct bench_process *process)
{
    siginfo_t info;

    signal_to(process, SIGSTOP);
    while (!process->ended &&
           waitid(P_PID, (id_t)process->id, &info, WSTOPPED | WEXITED | WNOWAIT) < 0 &&
           errno == EINTR)
        ;
}

void bench_process_go(struct bench_process *process)
{
    signal_to(process, SIGCONT);
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
              NULL);
}

static void end_now(struct bench_process *process)
{
    if (!process->ended) {
        kill(-process->id, SIGKILL);
        waitpid(process->id, NULL, 0);
    }
    process_free(process);
}

void bench_process_end(struct bench_process *process)
{
    double until = vw_clock_seconds() + END_PATIENCE_SECONDS;

    if (process == NULL)
        return;
    signal_to(process, SIGTERM);
    signal_to(process, SIGCONT);
    while (bench_process_runs(process) && vw_clock_seconds() < until)
        nap(WAIT_SECONDS);
    end_now(process);
}

void bench_process_kill(struct bench_process *process)
{
    if (process != NULL)
        end_now(process);
}

int bench_process_id(const struct bench_process *process)
{
    return process->id;
}

const char *bench_process_command(const struct bench_process *process)
{
    return process->command;
}

/* ---- time on the processors ------------------------------------------------------------------ */

double bench_process_cpu(const struct bench_process *process)
{
    struct timespec time;
    clockid_t clock;

    if (process->ended || clock_getcpuclockid(process->id, &clock) != 0 ||
        clock_gettime(clock, &time) < 0)
        return NAN;
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

size_t bench_process_threads(const struct bench_process *process, struct bench_thread_time *times,
                             size_t room)
{
    char *path = bench_format("/proc/%d/task", (int)process->id);
    DIR *tasks = opendir(path);
    struct dirent *entry;
    size_t count = 0;

    free(path);
    while (tasks != NULL && count < room && (entry = readdir(tasks)) != NULL) {
        unsigned long long nanoseconds;
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        path = bench_format("/proc/%d/task/%s/schedstat", (int)process->id, entry->d_name);
        file = fopen(path, "re");
        free(path);
        if (file == NULL)
            continue;
        if (fscanf(file, "%llu", &nanoseconds) == 1)
            times[count++] = (struct bench_thread_time){.thread = atoi(entry->d_name),
                                                        .seconds = (double)nanoseconds * 1e-9};
        fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

double bench_busiest_thread(const struct bench_thread_time *before, size_t before_count,
                            const struct bench_thread_time *after, size_t after_count)
{
    double most = 0;

    for (size_t i = 0; i < after_count; i++) {
        double seconds = after[i].seconds;

        for (size_t j = 0; j < before_count; j++)
            if (before[j].thread == after[i].thread)
                seconds -= before[j].seconds;
        if (seconds > most)
            most = seconds;
    }
    return most;
}

/* ---- what it says and is told ---------------------------------------------------------------- */

int bench_process_write(struct bench_context *context, struct bench_process *process,
                        const char *text)
{
    size_t length = strlen(text);

    if (process->input < 0 || write(process->input, text, length) != (ssize_t)length)
        return bench_fail(context, "cannot write to %s: %s", process->name, strerror(errno));
    return 0;
}

static char *read_from(const char *path, size_t offset)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    size_t length = 0, room = 0;
    ssize_t count;
    char *text;

    if (file >= 0 && fstat(file, &status) == 0 && (size_t)status.st_size > offset)
        room = (size_t)status.st_size - offset;
    text = bench_allocate(room + 1);
    while (length < room) {
        count = pread(file, text + length, room - length, (off_t)(offset + length));
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    text[length] = '\0';
    if (file >= 0)
        close(file);
    return text;
}

char *bench_process_output(const struct bench_process *process, size_t offset)
{
    return read_from(process->output, offset);
}

char *bench_process_errors(const struct bench_process *process)
{
    return read_from(process->errors, 0);
}

static const char *tail(const char *text)
{
    size_t length = strlen(text);

    return length > TAIL ? text + length - TAIL : text;
}

/* What it was doing, and what the process said last: a failure. */
static int fail_waiting(struct bench_context *context, const struct bench_process *process,
                        const char *how, const char *what)
{
    char *errors, *output;

    if (process == NULL)
        return bench_fail(context, "%s %s", how, what);
    errors = bench_process_errors(process);
    output = bench_process_output(process, 0);
    bench_fail(context, "%s: %s %s%s%s", process->name, how, what,
               *errors != '\0' || *output != '\0' ? ". It said: " : "",
               tail(*errors != '\0' ? errors : output));
    free(errors);
    free(output);
    return -1;
}

int bench_wait_for(struct bench_context *context, struct bench_process *process, const char *what,
                   double seconds, bool (*condition)(void *), void *argument)
{
    double until = vw_clock_seconds() + seconds;

    while (!condition(argument)) {
        if (process != NULL && !bench_process_runs(process))
            return fail_waiting(context, process, "ended before", what);
        if (vw_clock_seconds() > until)
            return fail_waiting(context, process, "gave up waiting for", what);
        if (bench_sleep(context, WAIT_SECONDS) < 0)
            return -1;
    }
    return 0;
}

struct text_wanted {
    const struct bench_process *process;
    const char *text;
};

static bool has_text(void *argument)
{
    const struct text_wanted *wanted = argument;
    char *errors = bench_process_errors(wanted->process);
    bool found = strstr(errors, wanted->text) != NULL;

    free(errors);
    return found;
}

int bench_wait_for_text(struct bench_context *context, struct bench_process *process,
                        const char *text)
{
    struct text_wanted wanted = {.process = process, .text = text};

    return bench_wait_for(context, process, text, DOCUMENT_PATIENCE_SECONDS, has_text, &wanted);
}

static bool has_file(void *path)
{
    return access(path, F_OK) == 0;
}

int bench_wait_for_file(struct bench_context *context, struct bench_process *process,
                        const char *path)
{
    char *whole =
        path[0] == '/' ? bench_format("%s", path) : bench_format("%s/%s", context->folder, path);
    int result =
        bench_wait_for(context, process, whole, DOCUMENT_PATIENCE_SECONDS, has_file, whole);

    free(whole);
    return result;
}

struct document_wanted {
    const struct bench_process *process;
    size_t offset; /* where the line begins */
    json_t *document;
};

static bool has_document(void *argument)
{
    struct document_wanted *wanted = argument;
    char *text = bench_process_output(wanted->process, wanted->offset);

    if (strchr(text, '\n') != NULL)
        wanted->document = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    free(text);
    return wanted->document != NULL;
}

json_t *bench_process_document(struct bench_context *context, struct bench_process *process)
{
    struct document_wanted wanted = {.process = process};
    struct stat status;

    if (stat(process->output, &status) == 0)
        wanted.offset = (size_t)status.st_size;
    signal_to(process, SIGUSR1);
    if (bench_wait_for(context, process, "its counters", DOCUMENT_PATIENCE_SECONDS, has_document,
                       &wanted) < 0)
        return NULL;
    return wanted.document;
}

int bench_sleep(struct bench_context *context, double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    if (!*context->interrupted && sigtimedwait(&signals, NULL, &time) > 0)
        *context->interrupted = true;
    return *context->interrupted ? bench_fail(context, "interrupted") : 0;
}
