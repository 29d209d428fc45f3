/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"

#define UNIT VW_SHARED_ALIGNMENT
#define NONE UINT32_MAX
#define MAX_SIZE (UINT64_C(128) << 30) /* so that units fit 31 bits, and the lists are enough */

/* How many blocks of the request's own list are looked at before a longer block is cut. Keeps the
 * time bounded with thousands of free blocks of one size, and still finds the block that was just
 * freed, which is the first. */
#define LOOKS 8

/* A block: `count` units from `first` on. Names of other records, or NONE. */
struct vw_shared_block {
    uint32_t first, count;
    uint32_t before, after;  /* neighbours in memory */
    uint32_t previous, next; /* in its list of free blocks, or of spare records */
    bool free;
};

/* ---- the memory file ---- */

/* Nobody can change the size any more. A hole that the device punches reads as zeros, as if it had
 * written them (hugepages apart: if none is free to fill it, touching it raises SIGBUS). */
static int seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

static int map_file(struct vw_shared *shared, size_t size, unsigned flags)
{
    struct stat status;
    void *address;
    int error = 0;

    shared->fd = memfd_create("virtwire", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (shared->fd < 0)
        return -errno;
    if (fstat(shared->fd, &status) < 0) {
        error = -errno;
    } else {
        /* The block size of such a file is its page. */
        size_t page = status.st_blksize > 0 ? (size_t)status.st_blksize : 4096;

        shared->size = (size + page - 1) / page * page;
        if (ftruncate(shared->fd, (off_t)shared->size) < 0)
            error = -errno;
    }
    if (error == 0)
        error = seal(shared->fd);
    if (error == 0) {
        /* Hugepages are reserved here, or the call fails: none is missing later. */
        address = mmap(NULL, shared->size, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
        if (address != MAP_FAILED) {
            shared->address = address;
            return 0;
        }
        error = -errno;
    }
    close(shared->fd);
    return error;
}

/* ---- records and lists ---- */

static uint32_t logarithm(uint32_t count)
{
    return 31u - (uint32_t)__builtin_clz(count);
}

/* A record, or NONE. Records move when their array grows: pointers to them are not kept. */
static uint32_t take_record(struct vw_shared *shared)
{
    uint32_t record = shared->spare;

    if (record != NONE) {
        shared->spare = shared->blocks[record].next;
        return record;
    }
    if (shared->block_count == shared->block_capacity) {
        uint32_t capacity = shared->block_capacity ? 2 * shared->block_capacity : 64;
        struct vw_shared_block *grown = realloc(shared->blocks, capacity * sizeof(*grown));

        if (grown == NULL)
            return NONE;
        shared->blocks = grown;
        shared->block_capacity = capacity;
    }
    return shared->block_count++;
}

static void spare_record(struct vw_shared *shared, uint32_t record)
{
    shared->blocks[record].count = 0;
    shared->blocks[record].next = shared->spare;
    shared->spare = record;
}

static void list_insert(struct vw_shared *shared, uint32_t record)
{
    struct vw_shared_block *block = &shared->blocks[record];
    uint32_t list = logarithm(block->count);

    block->free = true;
    block->previous = NONE;
    block->next = shared->free[list];
    if (block->next != NONE)
        shared->blocks[block->next].previous = record;
    shared->free[list] = record;
    shared->filled |= UINT32_C(1) << list;
}

static void list_remove(struct vw_shared *shared, uint32_t record)
{
    struct vw_shared_block *block = &shared->blocks[record];
    uint32_t list = logarithm(block->count);

    block->free = false;
    if (block->next != NONE)
        shared->blocks[block->next].previous = block->previous;
    if (block->previous != NONE)
        shared->blocks[block->previous].next = block->next;
    else
        shared->free[list] = block->next;
    if (shared->free[list] == NONE)
        shared->filled &= ~(UINT32_C(1) << list);
}

/* The first of at most `looks` blocks of a list that has `count` units; or NONE. */
static uint32_t search_list(const struct vw_shared *shared, uint32_t list, uint32_t count,
                            uint32_t looks)
{
    uint32_t record = shared->free[list];

    while (record != NONE && shared->blocks[record].count < count)
        record = --looks > 0 ? shared->blocks[record].next : NONE;
    return record;
}

/* A free block of at least `count` units, or NONE. */
static uint32_t find_free(const struct vw_shared *shared, uint32_t count)
{
    uint32_t list = logarithm(count);
    uint32_t longer = list < 31 ? shared->filled >> (list + 1) << (list + 1) : 0;
    uint32_t record = search_list(shared, list, count, LOOKS);

    if (record != NONE)
        return record;
    if (longer != 0)
        return shared->free[__builtin_ctz(longer)];
    return search_list(shared, list, count, UINT32_MAX);
}

/* Leaves `count` units in a block; the rest becomes a free block behind it. */
static int split(struct vw_shared *shared, uint32_t record, uint32_t count)
{
    uint32_t rest;

    if (shared->blocks[record].count == count)
        return 0;
    rest = take_record(shared);
    if (rest == NONE)
        return -ENOMEM;
    struct vw_shared_block *block = &shared->blocks[record];
    struct vw_shared_block *tail = &shared->blocks[rest];
    *tail = (struct vw_shared_block){.first = block->first + count,
                                     .count = block->count - count,
                                     .before = record,
                                     .after = block->after};
    if (tail->after != NONE)
        shared->blocks[tail->after].before = rest;
    block->after = rest;
    block->count = count;
    list_insert(shared, rest);
    return 0;
}

/* Appends the block behind `record` to it. Both are in no list. */
static void join(struct vw_shared *shared, uint32_t record)
{
    struct vw_shared_block *block = &shared->blocks[record];
    uint32_t swallowed = block->after;

    block->count += shared->blocks[swallowed].count;
    block->after = shared->blocks[swallowed].after;
    if (block->after != NONE)
        shared->blocks[block->after].before = record;
    spare_record(shared, swallowed);
}

/* ---- for the caller ---- */

int vw_shared_open(struct vw_shared *shared, size_t size, bool huge)
{
    int error = -ENOMEM;

    memset(shared, 0, sizeof(*shared));
    if (size == 0 || size > MAX_SIZE)
        return -EINVAL;
    shared->huge = huge && map_file(shared, size, MFD_HUGETLB) == 0;
    if (!shared->huge) {
        error = map_file(shared, size, 0);
        if (error < 0)
            return error;
    }
    for (unsigned i = 0; i < VW_ARRAY_SIZE(shared->free); i++)
        shared->free[i] = NONE;
    shared->spare = NONE;
    /* calloc of this size is a mapping of its own: only what is written takes memory. */
    shared->at = calloc(shared->size / UNIT, sizeof(*shared->at));
    uint32_t all = shared->at ? take_record(shared) : NONE;
    if (all != NONE)
        error = -pthread_mutex_init(&shared->lock, NULL);
    if (all == NONE || error < 0) {
        munmap(shared->address, shared->size);
        close(shared->fd);
        free(shared->at);
        free(shared->blocks);
        return all == NONE ? -ENOMEM : error;
    }
    shared->blocks[all] = (struct vw_shared_block){
        .count = (uint32_t)(shared->size / UNIT), .before = NONE, .after = NONE};
    list_insert(shared, all);
    return 0;
}

void vw_shared_close(struct vw_shared *shared)
{
    munmap(shared->address, shared->size);
    close(shared->fd);
    free(shared->at);
    free(shared->blocks);
    pthread_mutex_destroy(&shared->lock);
    memset(shared, 0, sizeof(*shared));
    shared->fd = -1;
}

void *vw_shared_alloc(struct vw_shared *shared, size_t size)
{
    void *memory = NULL;

    if (size == 0 || size > shared->size)
        return NULL;
    uint32_t count = (uint32_t)((size + UNIT - 1) / UNIT);
    pthread_mutex_lock(&shared->lock);
    uint32_t record = find_free(shared, count);
    if (record != NONE) {
        list_remove(shared, record);
        if (split(shared, record, count) == 0) {
            uint32_t first = shared->blocks[record].first;

            shared->at[first] = record;
            shared->in_use += (size_t)count * UNIT;
            memory = shared->address + (size_t)first * UNIT;
        } else {
            list_insert(shared, record);
        }
    }
    pthread_mutex_unlock(&shared->lock);
    return memory;
}

/* The record of the allocated block that begins at `memory`, or NONE. `at` may be stale, or never
 * written; what it names decides. */
static uint32_t find_allocated(const struct vw_shared *shared, const void *memory)
{
    size_t offset = (uintptr_t)memory - (uintptr_t)shared->address;

    if (offset >= shared->size || offset % UNIT != 0)
        return NONE;
    uint32_t record = shared->at[offset / UNIT];
    if (record >= shared->block_count || shared->blocks[record].free ||
        shared->blocks[record].count == 0 || shared->blocks[record].first != offset / UNIT)
        return NONE;
    return record;
}

int vw_shared_free(struct vw_shared *shared, void *memory)
{
    if (memory == NULL)
        return 0;
    pthread_mutex_lock(&shared->lock);
    uint32_t record = find_allocated(shared, memory);
    if (record != NONE) {
        uint32_t after = shared->blocks[record].after;
        uint32_t before = shared->blocks[record].before;

        shared->in_use -= (size_t)shared->blocks[record].count * UNIT;
        if (after != NONE && shared->blocks[after].free) {
            list_remove(shared, after);
            join(shared, record);
        }
        if (before != NONE && shared->blocks[before].free) {
            list_remove(shared, before);
            join(shared, before);
            record = before;
        }
        list_insert(shared, record);
    }
    pthread_mutex_unlock(&shared->lock);
    return record == NONE ? -EINVAL : 0;
}

size_t vw_shared_in_use(struct vw_shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    size_t in_use = shared->in_use;
    pthread_mutex_unlock(&shared->lock);
    return in_use;
}
