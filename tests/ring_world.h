/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small world for ring tests: one memory file, which the driver maps in one piece and the device
 * in many. Guest addresses follow the driver's mapping, from a base of their own; the device's
 * regions lie apart and out of order, so that a buffer across a region's end is several pieces to
 * it. Two mappings also mean that no pointer of one side is good for the other by chance.
 */
#ifndef VW_TESTS_RING_WORLD_H
#define VW_TESTS_RING_WORLD_H

#include <assert.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/memory.h"
#include "ring/device.h"
#include "ring/driver.h"

#define WORLD_GUEST UINT64_C(0x7654300000)
#define WORLD_USER UINT64_C(0x7f0000000000)

struct world {
    char *local; /* as the driver sees it */
    uint64_t size;
    uint64_t allocated;
    struct vw_memory memory; /* as the device sees it */
};

/* Reserves room that the device's mappings are then scattered in, with holes between them. */
static inline void world_map_regions(struct world *world, int fd, uint64_t first, uint64_t rest)
{
    unsigned count = rest ? (unsigned)((world->size - first) / rest) + 1 : 1;
    uint64_t stride = (first > rest ? first : rest) + 4096;
    char *room = mmap(NULL, stride * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert(room != MAP_FAILED);
    for (unsigned i = 0; i < count; i++) {
        uint64_t offset = i == 0 ? 0 : first + (i - 1) * rest;
        struct vw_memory_region region = {.guest = WORLD_GUEST + offset,
                                          .user = WORLD_USER + offset,
                                          .size = i == 0 ? first : rest,
                                          .mapping = i == 0 ? room : NULL,
                                          .mapping_size = i == 0 ? stride * count : 0};
        unsigned place = (i * 7 + 3) % count;

        if (count % 7 == 0)
            place = count - 1 - i;
        region.local = mmap(room + place * stride, region.size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
        assert(region.local != MAP_FAILED);
        int added = vw_memory_add(&world->memory, &region);
        assert(added == 0);
        (void)added;
    }
}

/* One region of `first` bytes (rings go there), then `count` regions of `rest` bytes: pages. */
static inline struct world *world_open(uint64_t first, unsigned count, uint64_t rest)
{
    struct world *world = calloc(1, sizeof(*world));

    assert(world);
    world->size = first + count * rest;
    int fd = memfd_create("ring-world", MFD_CLOEXEC);
    assert(fd >= 0);
    int grown = ftruncate(fd, (off_t)world->size);
    assert(grown == 0);
    (void)grown;
    world->local = mmap(NULL, world->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(world->local != MAP_FAILED);
    world_map_regions(world, fd, first, count ? rest : 0);
    close(fd);
    return world;
}

static inline void world_close(struct world *world)
{
    for (unsigned i = 0; i < world->memory.count; i++)
        if (world->memory.regions[i].mapping)
            munmap(world->memory.regions[i].mapping, world->memory.regions[i].mapping_size);
    munmap(world->local, world->size);
    free(world);
}

static inline void *world_allocate(struct world *world, uint64_t bytes, uint64_t alignment)
{
    uint64_t start = (world->allocated + alignment - 1) / alignment * alignment;

    assert(start + bytes <= world->size);
    world->allocated = start + bytes;
    return world->local + start;
}

/* The driver's pointer as a guest address, and as the device's pointer. */
static inline uint64_t world_guest(const struct world *world, const void *pointer)
{
    return WORLD_GUEST + (uint64_t)((const char *)pointer - world->local);
}

static inline void *world_device(const struct world *world, const void *pointer, uint64_t bytes)
{
    void *local = vw_memory_from_guest(&world->memory, world_guest(world, pointer), bytes);

    assert(local);
    return local;
}

/* A driver and a device half on one ring. */
struct pair {
    struct world *world;
    struct vw_driver_ring driver;
    struct vw_device_ring device;
    struct vw_ring_config driver_config, device_config;
    void *state;
};

static inline void *pair_area(struct world *world, const struct vw_ring_config *config,
                              enum vw_ring_area area, void **for_device)
{
    uint64_t bytes = vw_ring_area_size(config->format, area, config->size);
    void *place = world_allocate(world, bytes, vw_ring_area_alignment(config->format, area));

    *for_device = world_device(world, place, bytes);
    return place;
}

/* Lays a ring out in the world and starts both halves. `indirect`: segments in a table, 0: none. */
static inline void pair_start(struct pair *pair, struct world *world, enum vw_ring_format format,
                              uint32_t size, uint64_t features, uint32_t indirect)
{
    struct vw_ring_config mine = {.format = format, .size = size, .features = features};
    struct vw_ring_config theirs = mine;
    struct vw_indirect_tables tables = {.segments = indirect};

    memset(pair, 0, sizeof(*pair));
    pair->world = world;
    mine.descriptor_area =
        pair_area(world, &mine, VW_RING_DESCRIPTOR_AREA, &theirs.descriptor_area);
    mine.driver_area = pair_area(world, &mine, VW_RING_DRIVER_AREA, &theirs.driver_area);
    mine.device_area = pair_area(world, &mine, VW_RING_DEVICE_AREA, &theirs.device_area);
    if (indirect) {
        tables.memory = world_allocate(world, (uint64_t)size * indirect * 16, 16);
        tables.address = world_guest(world, tables.memory);
    }
    pair->state = aligned_alloc(16, vw_driver_ring_state_size(size));
    assert(pair->state);
    pair->driver_config = mine;
    pair->device_config = theirs;
    int driver = vw_driver_ring_init(&pair->driver, &mine, pair->state, indirect ? &tables : NULL);
    int device = vw_device_ring_init(&pair->device, &theirs, &world->memory);
    assert(driver == 0 && device == 0);
    (void)driver;
    (void)device;
}

static inline void pair_stop(struct pair *pair)
{
    free(pair->state);
}

#endif
