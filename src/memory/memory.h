/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest's memory as a back-end sees it: regions of guest addresses, each backed by a mapping of
 * our own.
 *
 * Theory of operation
 * -------------------
 * Two kinds of address come from outside. Descriptors carry *guest* addresses; vhost-user gives
 * ring addresses as *user* addresses of the front-end's process. Both are turned into local
 * pointers here and nowhere else. A run of guest addresses may cross from one region into the
 * next, so a translation yields pieces.
 *
 * A table is immutable while rings use it: the session builds a new one and swaps it at a
 * quiescent point of all workers. Nothing here locks.
 */
#ifndef VW_MEMORY_MEMORY_H
#define VW_MEMORY_MEMORY_H

#include <errno.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/bits.h"

/* vhost-user's limit with memory slots, chosen by QEMU's front-end as the kernel's own. */
#define VW_MEMORY_MAX_REGIONS 509

struct vw_memory_region {
    uint64_t guest; /* first guest physical address */
    uint64_t user;  /* first address in the front-end's process */
    uint64_t size;  /* bytes, never 0; guest + size and user + size do not overflow */
    char *local;    /* where byte 0 of the region lies in this process */
    void *mapping;  /* what to unmap, and how much of it; NULL if not ours */
    uint64_t mapping_size;
    unsigned again; /* how many times more the front-end has added this very region */
};

struct vw_memory {
    unsigned count;
    struct vw_memory_region regions[VW_MEMORY_MAX_REGIONS]; /* sorted by guest, never overlapping */
};

/*
 * Adds a region. Returns 0, or -EINVAL (empty, overflowing, or overlapping another region in
 * guest or user addresses), or -ENOSPC.
 */
int vw_memory_add(struct vw_memory *memory, const struct vw_memory_region *region);

/* The region with exactly these addresses, or NULL. */
struct vw_memory_region *vw_memory_find(struct vw_memory *memory, uint64_t guest, uint64_t user,
                                        uint64_t size);

/*
 * Takes the region with exactly these addresses out and hands it to `removed` (vhost-user
 * REM_MEM_REG). Returns 0 or -ENOENT.
 */
int vw_memory_remove(struct vw_memory *memory, uint64_t guest, uint64_t user, uint64_t size,
                     struct vw_memory_region *removed);

/*
 * The local pointer to `length` bytes at a front-end *user* address, or NULL if they do not lie
 * inside one region. (A ring part must lie in one piece.)
 */
void *vw_memory_from_user(const struct vw_memory *memory, uint64_t user, uint64_t length);

/* The same for a *guest* address. */
void *vw_memory_from_guest(const struct vw_memory *memory, uint64_t guest, uint64_t length);

/* The part of vw_memory_translate that is not the common case. */
int vw_memory_translate_pieces(const struct vw_memory *memory, uint64_t guest, uint64_t length,
                               struct iovec *pieces, unsigned room, unsigned *hint);

/*
 * Turns `length` bytes at guest address `guest` into at most `room` pieces of local memory.
 * Returns the number of pieces (0 for length 0), -EFAULT if any byte is outside the table, or
 * -ENOBUFS if there is not room for all pieces. `*hint` remembers the region of the last success;
 * each ring keeps its own, starting with 0.
 */
static VW_ALWAYS_INLINE int vw_memory_translate(const struct vw_memory *memory, uint64_t guest,
                                                uint64_t length, struct iovec *pieces,
                                                unsigned room, unsigned *hint)
{
    const struct vw_memory_region *region = &memory->regions[*hint];
    uint64_t offset = guest - region->guest; /* wraps to a huge number below the region */

    if (vw_unlikely(*hint >= memory->count || length == 0 || room == 0 || offset >= region->size ||
                    length > region->size - offset))
        return vw_memory_translate_pieces(memory, guest, length, pieces, room, hint);
    pieces->iov_base = region->local + offset;
    pieces->iov_len = length;
    return 1;
}

#endif
