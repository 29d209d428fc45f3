/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Urgent buffers: a private extension between our driver and our device (docs/urgent.md).
 *
 * The driver marks the head descriptor of a buffer; the device calls once it has used the buffer,
 * whatever the driver's suppression of calls says. Neither number is assigned by virtio 1.4, and
 * neither is offered to, or accepted from, anybody who did not ask for it by name.
 */
#ifndef VW_BASE_URGENT_H
#define VW_BASE_URGENT_H

/*
 * Feature bit. Of those that virtio keeps in reserve for no device type in particular (44 to 49;
 * the bits from 50 on are network devices' own, and nearly used up): not 44 and 45, which come next
 * in that range, nor 46 and 47, which the command GUEST_OFFLOADS uses as aliases.
 */
#define VW_F_URGENT 48

/* Descriptor flag, split and packed: far from 1, 2 and 4, after which more may follow, and neither
 * bit 7 nor bit 15, which say whose a packed descriptor is. */
#define VW_DESCRIPTOR_F_URGENT 0x4000

#endif
