/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of a device, for people or as JSON, to standard output. */
#ifndef VW_CMD_DEVICE_REPORT_H
#define VW_CMD_DEVICE_REPORT_H

#include <stdbool.h>

#include "device/device.h"

/* Everything that a device counts. `name` is the socket's path or descriptor. */
void report_all(const char *name, const struct vw_device *device, const struct vw_port *port,
                bool json);

/* What report_rates compares with. Zeroed before the first use. */
struct report_before {
    uint64_t frames[2], bytes[2], kicks, calls, drops;
};

/* One line: what happened since the last call, `seconds` ago. */
void report_rates(const char *name, const struct vw_device *device, double seconds, bool json,
                  struct report_before *before);

#endif
