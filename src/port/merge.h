/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coalescing: consecutive frames of a flow in one batch become one TSO or USO frame before they
 * reach a port that takes such (net/coalesce.h).
 *
 * Theory of operation
 * -------------------
 * vw_port_merge puts itself in front of a port's transmit, complete and drain; everything else of
 * the port stays as it is. The frames of one batch are looked at in order. A run of frames that may
 * be merged becomes one frame of the port below, made of headers of ours and of the payloads where
 * they lie; every other frame is handed on as it is. No frame overtakes another, and a batch never
 * waits for the next one. When the merged frame completes, all that it was made of do, with its
 * result.
 *
 * A port that refuses a merged frame, contrary to its features, gets its frames singly, after all
 * that is under way; and from then on its queue merges nothing.
 *
 * Looking costs, so `auto` looks away for a while where it found nothing several times.
 */
#ifndef VW_PORT_MERGE_H
#define VW_PORT_MERGE_H

#include "port/port.h"

enum vw_port_coalesce {
    VW_PORT_COALESCE_OFF,
    VW_PORT_COALESCE_ON,
    VW_PORT_COALESCE_AUTO,
};

/*
 * From here on the port merges. Does nothing with OFF, or for a port that takes no segmentation.
 * Before its workers start; undone when the port is closed. Returns 0 or -ENOMEM.
 */
int vw_port_merge(struct vw_port *port, enum vw_port_coalesce coalesce);

#endif
