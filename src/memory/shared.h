/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that a driver shares with its device, and an allocator for it.
 *
 * Theory of operation
 * -------------------
 * One memory file, mapped once, whole. Its size is sealed: the device gets the descriptor, and a
 * device that could cut the file would kill this process with SIGBUS. Hugepages are taken if the
 * system has free ones, since they save the device's translation misses; they are never needed.
 *
 * The allocator keeps all it knows in private memory, because the device can write to every byte
 * of the shared one. Blocks are runs of 64-byte units; neighbours that are free are one block.
 * Free blocks hang in lists by the power of two of their length, and a request is served from the
 * first list that certainly fits, so that its time does not grow with the number of blocks. Where
 * only its own list can still serve it, that one is searched to the end.
 *
 * vw_shared_alloc and vw_shared_free may be called by any thread: a lock is held for the time of a
 * few list operations. They are for buffers that live long, not for one frame each.
 */
#ifndef VW_MEMORY_SHARED_H
#define VW_MEMORY_SHARED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VW_SHARED_ALIGNMENT 64

struct vw_shared_block;

struct vw_shared {
    int fd;
    bool huge;     /* of hugepages */
    char *address; /* where byte 0 of the file lies; page-aligned */
    size_t size;   /* bytes of the file, a multiple of its page */

    /* Private to shared.c, under the lock. */
    pthread_mutex_t lock;
    size_t in_use;                  /* bytes */
    struct vw_shared_block *blocks; /* records; a record is named by its place here */
    uint32_t block_count, block_capacity;
    uint32_t spare;    /* list of records that no block uses */
    uint32_t *at;      /* the record of the block that begins at a unit; valid there alone */
    uint32_t free[32]; /* lists of free blocks, by the logarithm of their length in units */
    uint32_t filled;   /* a bit for each list that is not empty */
};

/*
 * Makes `size` bytes or a little more. `huge`: try hugepages first. Returns 0, -EINVAL for no bytes
 * or more than 128 GiB, or -errno; then nothing is to be closed.
 */
int vw_shared_open(struct vw_shared *shared, size_t size, bool huge);

/* Unmaps and closes everything, allocated or not. */
void vw_shared_close(struct vw_shared *shared);

/* `size` bytes, aligned to VW_SHARED_ALIGNMENT, with undefined contents; NULL if there is no room,
 * or for no bytes. */
void *vw_shared_alloc(struct vw_shared *shared, size_t size);

/* Gives a block back; NULL is fine. Returns 0, or -EINVAL if no allocated block begins there: then
 * nothing is changed. */
int vw_shared_free(struct vw_shared *shared, void *memory);

/* Bytes that are allocated, each block rounded up to its units. */
size_t vw_shared_in_use(struct vw_shared *shared);

static inline bool vw_shared_contains(const struct vw_shared *shared, const void *memory,
                                      size_t size)
{
    uintptr_t start = (uintptr_t)memory - (uintptr_t)shared->address;

    return start <= shared->size && size <= shared->size - start;
}

#endif
