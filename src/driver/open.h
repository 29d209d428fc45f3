/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening a device over a transport that the caller made: for what is no socket. */
#ifndef VW_DRIVER_OPEN_H
#define VW_DRIVER_OPEN_H

#include "transport/transport.h"
#include "virtwire/net.h"

/*
 * As vw_net_open; socket_path and fd of the options are left out. The transport is the device's
 * from now on, and closed with it, also on failure.
 */
int vw_net_open_over(const struct vw_net_options *options, struct vw_transport *transport,
                     struct vw_net **net, char *error, size_t error_size);

#endif
