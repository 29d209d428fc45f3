/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transmit offloads for a port that lacks them: frames to be segmented are cut, partial checksums
 * completed, before they reach the port (net/segment.h, net/checksum.h).
 *
 * Theory of operation
 * -------------------
 * vw_port_cut puts itself in front of a port's transmit, complete and drain; everything else of
 * the port stays as it is. Frames that need nothing are handed on in runs, untouched. Any other
 * frame becomes one or more *units* of the port below: private headers, and pieces of the original
 * payload. A frame counts as taken when its last unit is, and completes with it, with the first
 * result among its units that is not VW_PORT_SENT.
 *
 * When the port below takes some of a frame's units, the frame stays at the head of what the
 * device offers and goes on where it was. Only a drain between makes it start anew: then its first
 * segments go out twice, and nothing is lost.
 *
 * A frame in very many pieces is copied into one first.
 */
#ifndef VW_PORT_CUT_H
#define VW_PORT_CUT_H

#include "port/port.h"

/*
 * From here on the port takes every offload of VW_NET_HOST_OFFLOADS. Does nothing for a port that
 * has them. Before its workers start; undone when the port is closed. Returns 0 or -ENOMEM.
 */
int vw_port_cut(struct vw_port *port);

#endif
