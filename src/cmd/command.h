/* SPDX-License-Identifier: BSD-3-Clause */
/* What the subcommands of the virtwire program share. */
#ifndef VW_CMD_COMMAND_H
#define VW_CMD_COMMAND_H

#include <stdbool.h>

#include "base/log.h"

/* Exit statuses: 0 all went well, 1 something failed, 2 the command line was wrong. */
#define EXIT_USAGE 2

/* A subcommand; argv[0] is its own name. Returns the exit status. */
typedef int (*command_function)(int argc, char **argv);

int command_device(int argc, char **argv);
int command_pktgen(int argc, char **argv);
int command_sink(int argc, char **argv);
int command_echo(int argc, char **argv);
int command_bridge(int argc, char **argv);
int command_bench(int argc, char **argv);

/* Log lines to standard error, with the level in front of what is no information. */
void command_log(void *context, enum vw_log_level level, const char *line);

/* Says what is wrong with the command line and where help is; returns EXIT_USAGE. */
int command_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
