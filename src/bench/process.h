/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that the bench runs: on one core, with its output in files, stopped while others are
 * measured.
 *
 * It is in a process group of its own, so that a Ctrl-C reaches the bench alone, which then ends
 * it in order. Its working directory is the context's folder, so that the names of sockets and
 * files in it are short; its own are NAME.log and NAME.err. It dies with the bench
 * (PR_SET_PDEATHSIG), whatever happens to that. All functions are for the main thread.
 */
#ifndef VW_BENCH_PROCESS_H
#define VW_BENCH_PROCESS_H

#include <jansson.h>

#include "bench/bench.h"

struct bench_process;

struct bench_process_options {
    const char *name;             /* of its files in the context's folder; unique in it */
    const char *const *arguments; /* ends with NULL. [0] is looked for in PATH, but "virtwire" is
                                     this very program */
    unsigned core;
    int network;             /* descriptor of a network namespace; -1: ours */
    bool input;              /* its standard input is a pipe, see bench_process_write */
    const char *environment; /* one NAME=VALUE to set; NULL: none */
};

/* Starts it. NULL after bench_fail. */
struct bench_process *bench_process_start(struct bench_context *context,
                                          const struct bench_process_options *options);

/* As bench_process_start of a program whose arguments stand in one text, separated by blanks;
 * `core` and `network` as above. */
struct bench_process *bench_process_run(struct bench_context *context, const char *name,
                                        unsigned core, int network, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Lets it stand still, which it does when this returns, and go on. */
void bench_process_stop(struct bench_process *process);
void bench_process_go(struct bench_process *process);

/* SIGTERM, and SIGKILL if that does not help in two seconds. Frees it; NULL is no process. */
void bench_process_end(struct bench_process *process);

/* The same by SIGKILL, of a program that has nothing to set right. */
void bench_process_kill(struct bench_process *process);

/* Is it still there? */
bool bench_process_runs(struct bench_process *process);
int bench_process_id(const struct bench_process *process);

/* The command line, as one would type it. */
const char *bench_process_command(const struct bench_process *process);

/* CPU time of all its threads so far, in seconds; NAN: it is gone. */
double bench_process_cpu(const struct bench_process *process);

/* The same of each thread there is now, up to `room`; returns how many. */
struct bench_thread_time {
    int thread;
    double seconds;
};
size_t bench_process_threads(const struct bench_process *process, struct bench_thread_time *times,
                             size_t room);

/* The time of the thread that ran most between the two lists. */
double bench_busiest_thread(const struct bench_thread_time *before, size_t before_count,
                            const struct bench_thread_time *after, size_t after_count);

/* Writes to its standard input. 0 or -1 after bench_fail. */
int bench_process_write(struct bench_context *context, struct bench_process *process,
                        const char *text);

/* What it printed to standard output so far, from `offset` on; to be freed. Never NULL. */
char *bench_process_output(const struct bench_process *process, size_t offset);

/* The same of standard error, all of it. */
char *bench_process_errors(const struct bench_process *process);

/*
 * Has a subcommand with --json print its counters (SIGUSR1), and waits for them. A program ignores
 * the signal until it is ready, so that it must be known to be: see bench_wait_for. NULL after
 * bench_fail; to be given to json_decref.
 */
json_t *bench_process_document(struct bench_context *context, struct bench_process *process);

/*
 * Waits until `condition` returns true, but not for longer than `seconds`, nor for a process that
 * has ended (NULL: none), nor after a Ctrl-C. 0, or -1 after bench_fail, which tells that it waited
 * for `what`, and what the process printed last.
 */
int bench_wait_for(struct bench_context *context, struct bench_process *process, const char *what,
                   double seconds, bool (*condition)(void *), void *argument);

/* Common conditions: standard error has this text; there is a file of this path. */
int bench_wait_for_text(struct bench_context *context, struct bench_process *process,
                        const char *text);
int bench_wait_for_file(struct bench_context *context, struct bench_process *process,
                        const char *path);

/* Sleeps. 0, or -1 after bench_fail if a Ctrl-C came. */
int bench_sleep(struct bench_context *context, double seconds);

#endif
