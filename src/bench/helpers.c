/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/helpers.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} helpers[] = {
    {"forward", bench_forward},
    {"stream-receive", bench_stream_receive},
    {"stream-send", bench_stream_send},
    {"xdp-drop", bench_xdp_drop},
};

bool bench_helper(int argc, char **argv, int *status)
{
    for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
        if (argc > 0 && strcmp(argv[0], helpers[i].name) == 0) {
            *status = helpers[i].run(argc, argv);
            return true;
        }
    return false;
}
