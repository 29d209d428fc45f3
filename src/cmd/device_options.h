/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of `virtwire device`. */
#ifndef VW_CMD_DEVICE_OPTIONS_H
#define VW_CMD_DEVICE_OPTIONS_H

#include <stdbool.h>

#include "device/device.h"

/* Devices in one process, each begun by --socket-path or --fd. Enough for a host's guests; each
 * has threads of its own. */
#define MAX_DEVICES 64

struct device_arguments {
    struct vw_device_options device; /* port still NULL */
    const char *port;                /* description; NULL: not given */
    bool pairs_given;
    uint64_t given; /* options that were given, by their number in device_options.c */
    unsigned cpus[VW_DEVICE_MAX_PAIRS];
};

struct device_command_line {
    struct device_arguments devices[MAX_DEVICES];
    unsigned count;
    uint64_t given;          /* as above, options of the whole program */
    unsigned stats_interval; /* seconds; 0: no line of live counters */
    bool json;
    bool verbose;
    bool print_capabilities;
};

/*
 * Reads the command line. Returns -1 to go on; otherwise an exit status, after having printed help
 * or an error.
 */
int device_parse_command_line(int argc, char **argv, struct device_command_line *line);

#endif
