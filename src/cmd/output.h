/* SPDX-License-Identifier: BSD-3-Clause */
/* A file that appears under its name only when it is whole. */
#ifndef VW_CMD_OUTPUT_H
#define VW_CMD_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    const char *command; /* the subcommand's name, for messages */
    const char *path;    /* NULL: not wanted */
    char *partial;
    FILE *file;
};

/* To be done before the work: that the file cannot be written is to be told at once. `path` may be
 * NULL. Returns -1 to go on, or the exit status after having told what is wrong. */
int output_open(struct output *output, const char *command, const char *path);

/* `error`: 0, or -errno of the writing. Returns whether the file is there; tells if not. */
bool output_finish(struct output *output, int error);

/* Nothing is left of it, if it was opened and not finished. */
void output_drop(struct output *output);

#endif
