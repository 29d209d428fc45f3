/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring memory for fuzz targets: a few small regions, each an allocation of its own so that the
 * address checker sees every byte past an end, and the hostile side's ways to write to them.
 */
#ifndef VW_TESTS_FUZZ_RING_IMAGE_H
#define VW_TESTS_FUZZ_RING_IMAGE_H

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "input.h"
#include "memory/memory.h"
#include "ring/descriptor.h"
#include "ring/ring.h"

/* Guest addresses are small, so that inputs hit them: three regions that touch, and one apart. */
#define IMAGE_RINGS 4096
#define IMAGE_REGIONS 4
#define IMAGE_MAX_SIZE 64

static const struct {
    uint64_t guest, size;
} image_regions[IMAGE_REGIONS] = {{0, IMAGE_RINGS}, {4096, 256}, {4352, 40}, {0xff00, 300}};

struct image {
    struct vw_memory memory;
    struct vw_ring_config config;
};

/* The descriptor area, the driver's and the device's lie one behind the other in region 0. */
static inline void image_open(struct image *image, struct input *input)
{
    static const uint32_t sizes[] = {1, 2, 4, 8, 16, 64, 5, 3};
    uint8_t choice = input_byte(input);
    struct vw_ring_config *config = &image->config;

    memset(image, 0, sizeof(*image));
    for (unsigned i = 0; i < IMAGE_REGIONS; i++) {
        struct vw_memory_region region = {.guest = image_regions[i].guest,
                                          .user = image_regions[i].guest,
                                          .size = image_regions[i].size,
                                          .local = calloc(1, image_regions[i].size)};

        INVARIANT(region.local && vw_memory_add(&image->memory, &region) == 0);
    }
    config->format = choice & 8 ? VW_RING_PACKED : VW_RING_SPLIT;
    config->size = sizes[choice & 7];
    if (config->format == VW_RING_SPLIT && !vw_is_power_of_two(config->size))
        config->size = 32;
    config->features = (choice & 16 ? vw_bit(VIRTIO_RING_F_INDIRECT_DESC) : 0) |
                       (choice & 32 ? vw_bit(VIRTIO_RING_F_EVENT_IDX) : 0) |
                       (choice & 64 ? vw_bit(VIRTIO_F_IN_ORDER) : 0) |
                       (choice & 128 ? vw_bit(VW_F_URGENT) : 0);
    config->descriptor_area = image->memory.regions[0].local;
    config->driver_area = image->memory.regions[0].local + 16 * IMAGE_MAX_SIZE;
    config->device_area = image->memory.regions[0].local + 20 * IMAGE_MAX_SIZE;
}

static inline void image_close(struct image *image)
{
    for (unsigned i = 0; i < image->memory.count; i++)
        free(image->memory.regions[i].local);
}

/* Any bytes at any place of region 0. */
static inline void image_poke(struct image *image, struct input *input)
{
    size_t offset = input_take(input, 2) % IMAGE_RINGS, bytes = input_byte(input) % 64;

    if (bytes > IMAGE_RINGS - offset)
        bytes = IMAGE_RINGS - offset;
    input_copy(input, image->memory.regions[0].local + offset, bytes);
}

/* A descriptor that has a chance to be good, in the ring or in a table behind the areas. */
static inline void image_put_descriptor(struct image *image, struct input *input)
{
    static const uint64_t bases[] = {0, 4096, 4300, 0xff00, UINT64_MAX, 2048, 2048, 8192};
    uint8_t place = input_byte(input), what = input_byte(input), small = input_byte(input);
    uint16_t flags = what & 7, other = (uint16_t)(input_byte(input) % (image->config.size + 1));
    size_t offset =
        place & 128 ? 2048 + 16 * (size_t)(place & 31) : 16 * (place % image->config.size);
    uint64_t address = bases[what >> 5] + (small >> 4);
    uint32_t length = flags & VRING_DESC_F_INDIRECT ? 16 * (small & 15) : small & 15;

    if (place & 64)
        flags |= VW_DESCRIPTOR_F_URGENT;
    if ((what & 24) == 0)
        length = (uint32_t)input_take(input, 4);
    if ((what & 24) == 8)
        other = input_byte(input);
    if (image->config.format == VW_RING_PACKED) {
        flags |= (uint16_t)(input_byte(input) & 1 ? 0x80 : 0x8000);
        vw_descriptor_store(image->memory.regions[0].local + offset, address, length, other, flags);
    } else {
        vw_descriptor_store(image->memory.regions[0].local + offset, address, length, flags, other);
    }
}

#endif
