/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/memory.h"

#include <string.h>

#include "base/overflow.h"

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

int vw_memory_add(struct vw_memory *memory, const struct vw_memory_region *region)
{
    uint64_t end;
    unsigned place = 0;

    if (region->size == 0 || !vw_add_u64(region->guest, region->size, &end) ||
        !vw_add_u64(region->user, region->size, &end))
        return -EINVAL;
    for (unsigned i = 0; i < memory->count; i++) {
        const struct vw_memory_region *other = &memory->regions[i];

        if (overlap(region->guest, region->size, other->guest, other->size) ||
            overlap(region->user, region->size, other->user, other->size))
            return -EINVAL;
        if (other->guest < region->guest)
            place = i + 1;
    }
    if (memory->count == VW_MEMORY_MAX_REGIONS)
        return -ENOSPC;
    memmove(&memory->regions[place + 1], &memory->regions[place],
            (memory->count - place) * sizeof(memory->regions[0]));
    memory->regions[place] = *region;
    memory->count++;
    return 0;
}

struct vw_memory_region *vw_memory_find(struct vw_memory *memory, uint64_t guest, uint64_t user,
                                        uint64_t size)
{
    for (unsigned i = 0; i < memory->count; i++) {
        struct vw_memory_region *region = &memory->regions[i];

        if (region->guest == guest && region->user == user && region->size == size)
            return region;
    }
    return NULL;
}

int vw_memory_remove(struct vw_memory *memory, uint64_t guest, uint64_t user, uint64_t size,
                     struct vw_memory_region *removed)
{
    struct vw_memory_region *region = vw_memory_find(memory, guest, user, size);

    if (region == NULL)
        return -ENOENT;
    *removed = *region;
    memory->count--;
    memmove(region, region + 1,
            (size_t)(&memory->regions[memory->count] - region) * sizeof(*region));
    return 0;
}

/* The index of the region that holds guest address `guest`, or memory->count. */
static unsigned find_guest(const struct vw_memory *memory, uint64_t guest)
{
    unsigned low = 0, high = memory->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct vw_memory_region *region = &memory->regions[middle];

        if (guest < region->guest)
            high = middle;
        else if (guest - region->guest >= region->size)
            low = middle + 1;
        else
            return middle;
    }
    return memory->count;
}

void *vw_memory_from_user(const struct vw_memory *memory, uint64_t user, uint64_t length)
{
    for (unsigned i = 0; i < memory->count; i++) {
        const struct vw_memory_region *region = &memory->regions[i];

        if (user >= region->user && vw_range_fits(user - region->user, length, region->size))
            return region->local + (user - region->user);
    }
    return NULL;
}

void *vw_memory_from_guest(const struct vw_memory *memory, uint64_t guest, uint64_t length)
{
    unsigned i = find_guest(memory, guest);

    if (i == memory->count)
        return NULL;
    const struct vw_memory_region *region = &memory->regions[i];
    if (!vw_range_fits(guest - region->guest, length, region->size))
        return NULL;
    return region->local + (guest - region->guest);
}

int vw_memory_translate_pieces(const struct vw_memory *memory, uint64_t guest, uint64_t length,
                               struct iovec *pieces, unsigned room, unsigned *hint)
{
    unsigned count = 0;
    uint64_t end;

    if (!vw_add_u64(guest, length, &end))
        return -EFAULT;
    while (length > 0) {
        unsigned i = find_guest(memory, guest);

        if (i == memory->count)
            return -EFAULT;
        const struct vw_memory_region *region = &memory->regions[i];
        uint64_t offset = guest - region->guest;
        uint64_t step = vw_min64(length, region->size - offset);

        if (count == room)
            return -ENOBUFS;
        pieces[count].iov_base = region->local + offset;
        pieces[count].iov_len = step;
        count++;
        guest += step;
        length -= step;
        *hint = i;
    }
    return (int)count;
}
