/* SPDX-License-Identifier: BSD-3-Clause */
/* What `virtwire bench` does with reports: `report` and `compare`; and the files it writes. */
#ifndef VW_CMD_BENCH_REPORT_H
#define VW_CMD_BENCH_REPORT_H

#include <stdbool.h>

#include "bench/report.h"
#include "cmd/output.h"

/* The files that a report goes to. */
struct report_files {
    struct output json, html;
};

/* Paths may be NULL. Returns -1 to go on, or the exit status after having told what is wrong. */
int report_files_open(struct report_files *files, const char *command, const char *json,
                      const char *html);

/* Returns whether all that is wanted is there. */
bool report_files_write(struct report_files *files, const struct bench_report *report);

/* Nothing is left of what was not written. */
void report_files_drop(struct report_files *files);

/* Subcommands of bench; argv[0] is their own name. Return the exit status. */
int command_bench_report(int argc, char **argv);
int command_bench_compare(int argc, char **argv);

#endif
