/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a packed ring goes on whose device died without telling anybody: from the ring itself.
 *
 * Theory of operation
 * -------------------
 * The AVAIL bit of an entry tells in which round it was last written, whoever did it; it flips
 * where the driver goes on. From there, oldest first, come entries that are free or used, and then
 * those that are in flight. Both the driver and we go through the ring in order, so that the first
 * chain behind the last used descriptor is the one to go on with. Three things hide it:
 *
 *   - The second and later entries of a used chain still look available. Our used descriptors keep
 *     the NEXT bit of a chain's first one, which drivers ignore (2.8.5): then the rest is skipped.
 *     With IN_ORDER, one used descriptor stands for all chains up to the one whose id it bears.
 *   - The driver's place may lie within an old chain, the rest of which looks available. It is
 *     finished for certain if the same id comes again in a later chain; ids in flight differ.
 *   - The device may have died between writing a batch and publishing it, which it does with the
 *     first descriptor's flags. The length and id are there already, once a second one is written:
 *     the flags are stored now, and the driver gets that batch as if nothing had happened. Of a
 * batch of one chain nothing is written before, and that one is done again.
 *
 * What cannot be told: the order of a device that uses chains out of order; the chains of a device
 * that does not keep NEXT bits; a rest of an old chain whose id did not come again.
 */
#ifndef VW_RING_RECOVER_H
#define VW_RING_RECOVER_H

#include "ring/ring.h"

/*
 * Returns the base (vw_device_ring_base's encoding) of a packed ring that no device serves, and
 * publishes what its last one had used. The driver may go on meanwhile. It may have missed a call.
 */
uint32_t vw_packed_recover(const struct vw_ring_config *config);

#endif
