/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/command.h"

static void tell(const struct output *output, int error)
{
    fprintf(stderr, "virtwire %s: cannot write %s: %s\n", output->command, output->path,
            strerror(error));
}

int output_open(struct output *output, const char *command, const char *path)
{
    *output = (struct output){.command = command, .path = path};
    if (path == NULL)
        return -1;
    if (asprintf(&output->partial, "%s.partial-%d", path, (int)getpid()) < 0)
        abort();
    output->file = fopen(output->partial, "wxe");
    if (output->file != NULL)
        return -1;
    tell(output, errno);
    free(output->partial);
    output->path = NULL;
    return EXIT_USAGE;
}

bool output_finish(struct output *output, int error)
{
    if (error == 0 && (fflush(output->file) == EOF || ferror(output->file) != 0))
        error = errno != 0 ? -errno : -EIO;
    if (fclose(output->file) == EOF && error == 0)
        error = -errno;
    if (error == 0 && rename(output->partial, output->path) < 0)
        error = -errno;
    if (error != 0) {
        tell(output, -error);
        unlink(output->partial);
    }
    free(output->partial);
    output->path = NULL;
    return error == 0;
}

void output_drop(struct output *output)
{
    if (output->path == NULL)
        return;
    fclose(output->file);
    unlink(output->partial);
    free(output->partial);
    output->path = NULL;
}
