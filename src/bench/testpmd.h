/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DPDK's testpmd, run over its prompt.
 *
 * It is never asked for --stats-period: its main thread would then take half of the core that it
 * shares with the thread that forwards. At its prompt the main thread sleeps.
 */
#ifndef VW_BENCH_TESTPMD_H
#define VW_BENCH_TESTPMD_H

#include "bench/bench.h"
#include "bench/process.h"

struct bench_testpmd;

struct bench_testpmd_options {
    const char *name;     /* as a process is named */
    const char *devices;  /* options that make its ports, separated by blanks */
    unsigned core;        /* of all its threads */
    int network;          /* descriptor of a network namespace; -1: ours */
    bool vectorised;      /* may use instructions of 512 bit */
    unsigned frame_bytes; /* of what it makes, in mode txonly */
    unsigned burst;       /* frames at a time */
};

struct bench_testpmd_counters {
    double received, sent;                       /* frames so far */
    double received_per_second, sent_per_second; /* since it was last asked, by its own clock */
    double failed; /* frames that a port could not receive or send for want of memory or by error */
};

/* Is it installed? 0, or -1 after bench_fail, which names the package. */
int bench_testpmd_present(struct bench_context *context);

/* Starts it and waits for its prompt. NULL after bench_fail; also if it has no port then, since a
 * device that cannot be made does not end it. */
struct bench_testpmd *bench_testpmd_start(struct bench_context *context,
                                          const struct bench_testpmd_options *options);
void bench_testpmd_end(struct bench_testpmd *testpmd); /* NULL is none */

/* Gives it a command, and waits for the next prompt. 0, or -1 after bench_fail. */
int bench_testpmd_command(struct bench_context *context, struct bench_testpmd *testpmd,
                          const char *command);

/* Has it forward in a mode, such as "rxonly"; `how` is more for the command start, or "". */
int bench_testpmd_forward(struct bench_context *context, struct bench_testpmd *testpmd,
                          const char *mode, const char *how);

/* Counters of its first port. 0, or -1 after bench_fail. */
int bench_testpmd_count(struct bench_context *context, struct bench_testpmd *testpmd,
                        struct bench_testpmd_counters *counters);

struct bench_process *bench_testpmd_process(struct bench_testpmd *testpmd);

#endif
