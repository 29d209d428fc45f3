/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small programs that experiments run as processes of their own: `virtwire bench NAME ARGUMENT...`,
 * which are not for people, and told of in reports only. Each is ready when it has said so on
 * standard error, prints its counters as a line of JSON after SIGUSR1, and ends with SIGTERM.
 */
#ifndef VW_BENCH_HELPERS_H
#define VW_BENCH_HELPERS_H

#include <stdbool.h>

/* If argv[0] names such a program, runs it, and sets its exit status. */
bool bench_helper(int argc, char **argv, int *status);

/* Each returns an exit status. */
int bench_forward(int argc, char **argv);
int bench_stream_receive(int argc, char **argv);
int bench_stream_send(int argc, char **argv);
int bench_xdp_drop(int argc, char **argv);

#endif
