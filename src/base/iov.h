/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks over scatter-gather lists, for headers and frames that straddle descriptors in any way.
 *
 * The memory behind an iovec is usually shared with a guest: a byte may change between two reads,
 * so callers copy out once and work on the copy.
 */
#ifndef VW_BASE_IOV_H
#define VW_BASE_IOV_H

#include <stddef.h>
#include <sys/uio.h>

/* Total number of bytes. */
size_t vw_iov_length(const struct iovec *iov, size_t count);

/* Copies up to `length` bytes from byte `offset` of the list; returns how many there were. */
size_t vw_iov_read(const struct iovec *iov, size_t count, size_t offset, void *to, size_t length);

/* Copies up to `length` bytes to byte `offset` of the list; returns how many fitted. */
size_t vw_iov_write(const struct iovec *iov, size_t count, size_t offset, const void *from,
                    size_t length);

/* Copies `length` bytes from list to list; returns how many both sides had. */
size_t vw_iov_copy(const struct iovec *to, size_t to_count, size_t to_offset,
                   const struct iovec *from, size_t from_count, size_t from_offset, size_t length);

/*
 * Drops the first `bytes` bytes: elements wholly dropped are skipped, the one that straddles is
 * shortened in place. Returns how many elements to skip; `*iov + returned` starts the rest.
 */
size_t vw_iov_drop(struct iovec *iov, size_t count, size_t bytes);

/* Cuts the list to `bytes` bytes in place; returns the number of elements left. */
size_t vw_iov_truncate(struct iovec *iov, size_t count, size_t bytes);

#endif
