/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to ring/: how ring.c reaches the four halves. The ops table is chosen once, at set-up;
 * in each, loops are compiled for the features that were negotiated.
 */
#ifndef VW_RING_FORMATS_H
#define VW_RING_FORMATS_H

#include "ring/device.h"
#include "ring/driver.h"

const struct vw_device_ring_ops *vw_split_device_ops(bool in_order, bool event_index);
const struct vw_device_ring_ops *vw_packed_device_ops(bool in_order, bool event_index);
const struct vw_driver_ring_ops *vw_split_driver_ops(bool in_order, bool event_index);
const struct vw_driver_ring_ops *vw_packed_driver_ops(bool in_order, bool event_index);

#endif
