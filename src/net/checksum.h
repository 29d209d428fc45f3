/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Internet checksum, over scattered memory (virtio 1.x, sections 5.1.6.2 and 5.1.6.4).
 *
 * Theory of operation
 * -------------------
 * A partial checksum must not leave the domain that understands it: for a port or a guest without
 * the offload it is completed here. The place of the checksum holds the sum of the pseudo-header;
 * the sum over everything from csum_start to the end of the frame therefore is the final one.
 *
 * One's complement sums may be added up in words of any width and folded at the end, and a sum that
 * started at an odd byte is the right one with its bytes swapped: that is all the arithmetic here.
 */
#ifndef VW_NET_CHECKSUM_H
#define VW_NET_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * One's complement sum of the bytes as 16-bit words in memory order, folded to 16 bits and not
 * inverted. vw_net_sum_add joins the sums of two neighbouring pieces; `first_length` is the number
 * of bytes of the first, which may be odd.
 */
uint16_t vw_net_sum(const void *data, size_t length);
uint16_t vw_net_sum_add(uint16_t first, size_t first_length, uint16_t second);

/* The same over bytes [offset, offset + length) of a list; what the list lacks counts as zero. */
uint16_t vw_net_sum_iov(const struct iovec *iov, size_t count, size_t offset, size_t length);

/*
 * Computes the checksum of a frame of `length` bytes that starts at the list's first byte, from
 * csum_start `start` to its end, and gives the two bytes in memory order that belong to
 * start + offset. Writes nothing: for frames in memory that is not ours to write.
 * A result of 0 becomes 0xffff for UDP, where 0 means "no checksum" (RFC 768, RFC 8200).
 * Returns 0, or -EINVAL if the place does not lie inside the frame or the list is shorter.
 */
int vw_net_checksum_value(const struct iovec *iov, size_t count, size_t start, size_t offset,
                          size_t length, uint16_t *value);

/* The same, and writes the checksum into its place. */
int vw_net_complete_checksum(const struct iovec *iov, size_t count, size_t start, size_t offset,
                             size_t length);

#endif
