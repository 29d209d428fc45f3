/* SPDX-License-Identifier: BSD-3-Clause */
/* The device of --in-process: pktgen, sink and echo have both ends of the wire then. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "cmd/command.h"
#include "cmd/traffic.h"
#include "device/in_process.h"
#include "net/features.h"

static enum vw_device_mode mode_of(enum traffic_mode mode)
{
    static const enum vw_device_mode modes[] = {
        [TRAFFIC_ADAPTIVE] = VW_DEVICE_ADAPTIVE,
        [TRAFFIC_INTERRUPT] = VW_DEVICE_INTERRUPT,
        [TRAFFIC_POLL] = VW_DEVICE_POLL,
    };

    return modes[mode];
}

int traffic_port_open(struct traffic_device *own, const struct traffic_role *role,
                      const struct traffic_options *options, const char *option,
                      const char *description)
{
    char error[256] = "";

    own->log = (struct vw_log){
        .function = command_log,
        .level = options->verbose ? VW_LOG_DEBUG : VW_LOG_WARNING,
    };
    int result = vw_port_open(description, options->net.queue_pairs, &own->log, &own->port, error,
                              sizeof(error));
    if (result == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "virtwire %s: --%s %s: %s\n", role->name, option, description, error);
    return result == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
}

int traffic_device_open(struct traffic_device *own, const struct traffic_role *role,
                        const struct traffic_options *options, struct vw_transport **transport)
{
    struct vw_device_options device = {
        .fd = -1,
        .mode = mode_of(options->mode),
        .queue_pairs = options->net.queue_pairs,
        .features_on = vw_bit(VW_F_URGENT),
        .log = &own->log,
    };
    char error[256] = "";

    int status = traffic_port_open(own, role, options, "in-process", options->in_process);
    if (status != EXIT_SUCCESS)
        return status;
    device.port = own->port;
    if (own->port->mtu_chosen)
        device.mtu = own->port->mtu;
    int result = vw_device_create(&device, &own->device, error, sizeof(error));
    if (result == 0)
        result = vw_device_transport_open(own->device, transport);
    if (result < 0)
        fprintf(stderr, "virtwire %s: the device in this process: %s\n", role->name, error);
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

void traffic_device_close(struct traffic_device *own)
{
    if (own->device != NULL)
        vw_device_destroy(own->device);
    if (own->port != NULL)
        own->port->ops->close(own->port);
}
