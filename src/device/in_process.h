/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device for a driver in the same process.
 *
 * Theory of operation
 * -------------------
 * The driver's configuration calls become the same messages that a front-end sends over a socket:
 * the same checks, the same handlers, only that they are called, not sent. Memory is used where the
 * driver has it mapped, under the same addresses, so that caches and TLBs hold it once. Kicks and
 * calls are eventfds, as ever, and the device's workers are its threads, as ever.
 *
 * The thread that uses the transport is the device's control thread, too: `event_fd` is
 * vw_device_fd, and `process` ends in vw_device_process. Nobody else needs to call that, and a
 * driver that waits for its control queue, in its only thread, serves it meanwhile.
 *
 * Such a driver is trusted as far as its memory goes: a file that the program shared and then cuts
 * off (ftruncate) raises SIGBUS in the worker that finds its end, as it does in the program itself.
 */
#ifndef VW_DEVICE_IN_PROCESS_H
#define VW_DEVICE_IN_PROCESS_H

#include "device/device.h"
#include "transport/transport.h"

/*
 * A transport to `device`, which outlives it. The device may have a socket, too: it serves one
 * front-end at a time, and `connect` fails with -EBUSY while there is another. To be called, and
 * used, in the thread that created the device. Returns 0 or -ENOMEM.
 */
int vw_device_transport_open(struct vw_device *device, struct vw_transport **transport);

#endif
