/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks over scatter-gather lists, for headers and frames that straddle descriptors in any way.
 *
 * The memory behind an iovec is usually shared with a guest: a byte may change between two reads,
 * so callers copy out once and work on the copy.
 */
#ifndef VW_BASE_IOV_H
#define VW_BASE_IOV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "base/bits.h"

/* Total number of bytes. */
size_t vw_iov_length(const struct iovec *iov, size_t count);

/* Copies `length` bytes from list to list; returns how many both sides had. */
size_t vw_iov_copy(const struct iovec *to, size_t to_count, size_t to_offset,
                   const struct iovec *from, size_t from_count, size_t from_offset, size_t length);

/* Do `length` bytes from `offset` on lie in the list's first element? Most often they do. */
static inline bool vw_iov_in_first(const struct iovec *iov, size_t count, size_t offset,
                                   size_t length)
{
    return count > 0 && offset <= iov->iov_len && length <= iov->iov_len - offset;
}

/* Copies a frame that is short as a rule: 32 to 128 bytes without a call and without a loop, in
 * blocks that overlap. */
static VW_ALWAYS_INLINE void vw_copy_short(void *to, const void *from, size_t length)
{
    char *target = to;
    const char *source = from;

    if (vw_unlikely(length < 32 || length > 128)) {
        memcpy(target, source, length);
        return;
    }
    if (length > 64) {
        memcpy(target, source, 32);
        memcpy(target + 32, source + 32, 32);
        memcpy(target + length - 64, source + length - 64, 32);
    } else {
        memcpy(target, source, 32);
    }
    memcpy(target + length - 32, source + length - 32, 32);
}

/* Copies up to `length` bytes from byte `offset` of the list; returns how many there were. */
static inline size_t vw_iov_read(const struct iovec *iov, size_t count, size_t offset, void *to,
                                 size_t length)
{
    if (vw_likely(vw_iov_in_first(iov, count, offset, length))) {
        memcpy(to, (const char *)iov->iov_base + offset, length);
        return length;
    }
    struct iovec flat = {.iov_base = to, .iov_len = length};
    return vw_iov_copy(&flat, 1, 0, iov, count, offset, length);
}

/* Copies up to `length` bytes to byte `offset` of the list; returns how many fitted. */
static inline size_t vw_iov_write(const struct iovec *iov, size_t count, size_t offset,
                                  const void *from, size_t length)
{
    if (vw_likely(vw_iov_in_first(iov, count, offset, length))) {
        memcpy((char *)iov->iov_base + offset, from, length);
        return length;
    }
    struct iovec flat = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
    return vw_iov_copy(iov, count, offset, &flat, 1, 0, length);
}

/*
 * Drops the first `bytes` bytes: elements wholly dropped are skipped, the one that straddles is
 * shortened in place. Returns how many elements to skip; `*iov + returned` starts the rest.
 */
size_t vw_iov_drop(struct iovec *iov, size_t count, size_t bytes);

/* Cuts the list to `bytes` bytes in place; returns the number of elements left. */
size_t vw_iov_truncate(struct iovec *iov, size_t count, size_t bytes);

/*
 * Lists the pieces of bytes [offset, offset + length) of a list, or of what it has of them, in
 * to[0 .. room). Returns how many pieces there are; if that is more than `room`, the rest is not
 * written, nor are pieces behind the first one too many counted.
 */
size_t vw_iov_slice(struct iovec *to, size_t room, const struct iovec *iov, size_t count,
                    size_t offset, size_t length);

#endif
