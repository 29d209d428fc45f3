/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver half of a ring against a device that writes anything anywhere. */
#include <errno.h>

#include "ring/driver.h"
#include "ring_image.h"

#define SEGMENTS 4 /* of an indirect table */

/* A buffer in flight: the address of its record is the token. */
struct flight {
    bool in_flight;
    uint32_t writable_length;
};

struct target {
    struct image image;
    struct vw_driver_ring ring;
    struct vw_driver_entry state[IMAGE_MAX_SIZE] __attribute__((aligned(16)));
    char tables[IMAGE_MAX_SIZE * SEGMENTS * 16] __attribute__((aligned(16)));
    struct flight flights[IMAGE_MAX_SIZE];
    uint32_t in_flight;
};

static void add(struct target *target, struct input *input)
{
    uint32_t size = target->image.config.size, choice = input_byte(input), writable_length = 0;
    uint32_t readable = choice & 7, writable = choice >> 3 & 7, slot = 0;
    bool broken = target->ring.error != VW_RING_OK;
    struct vw_segment segments[14];

    while (slot < size && target->flights[slot].in_flight)
        slot++;
    for (uint32_t i = 0; i < readable + writable; i++) {
        segments[i] = (struct vw_segment){4096, input_byte(input)};
        writable_length += i < readable ? 0 : segments[i].length;
    }
    struct flight *flight = &target->flights[slot < size ? slot : 0];
    int result = vw_driver_ring_add(&target->ring, segments, readable, writable, flight);
    INVARIANT(result == 0 || result == -ENOSPC || result == -EINVAL || result == -EIO);
    INVARIANT((result == -EIO) == broken);
    if (result != 0)
        return;
    INVARIANT(slot < size);
    *flight = (struct flight){true, writable_length};
    target->in_flight++;
}

static struct flight *check_token(struct target *target, void *token)
{
    struct flight *flight = token;

    INVARIANT(flight >= target->flights && flight < target->flights + IMAGE_MAX_SIZE);
    INVARIANT(flight->in_flight);
    flight->in_flight = false;
    target->in_flight--;
    return flight;
}

static void reap(struct target *target, struct input *input)
{
    struct vw_completion completions[IMAGE_MAX_SIZE];
    uint32_t max = input_byte(input) % (IMAGE_MAX_SIZE + 1);
    bool broken = target->ring.error != VW_RING_OK;

    uint32_t count = vw_driver_ring_reap(&target->ring, completions, max);
    INVARIANT(count <= max && !(broken && count > 0));
    for (uint32_t i = 0; i < count; i++) {
        struct flight *flight = check_token(target, completions[i].token);

        INVARIANT(completions[i].length <= flight->writable_length);
    }
}

/* A used entry where the driver looks next, with an id that has a chance to be right. */
static void put_used(struct target *target, struct input *input)
{
    const struct vw_ring_config *config = &target->image.config;
    uint8_t choice = input_byte(input);
    uint16_t id = (uint16_t)(input_byte(input) % (config->size + 1));
    uint32_t length = choice & 128 ? input_byte(input) : 0;

    if (config->format == VW_RING_SPLIT) {
        struct vring_used *used = config->device_area;

        used->ring[used->idx & (config->size - 1)] = (vring_used_elem_t){id, length};
        used->idx = (uint16_t)(used->idx + (choice & 3));
    } else {
        struct vring_packed_desc *ring = config->descriptor_area;
        uint16_t flags = vw_packed_used_bits(target->ring.used_wrap) | (choice & 2);

        ring[target->ring.next_used] =
            (struct vring_packed_desc){.len = length, .id = id, .flags = flags};
    }
}

static void notifications(struct target *target, struct input *input)
{
    struct vw_driver_ring *ring = &target->ring;
    bool broken = ring->error != VW_RING_OK;
    uint32_t anywhere = (uint32_t)input_take(input, 4);

    INVARIANT(vw_driver_ring_enable_calls(ring) || !broken);
    INVARIANT(vw_driver_ring_enable_calls_delayed(ring) || !broken);
    INVARIANT(!(vw_driver_ring_poll(ring, anywhere) && broken));
    vw_driver_ring_disable_calls(ring);
}

static void check_counts(const struct target *target)
{
    const struct vw_driver_ring *ring = &target->ring;

    INVARIANT(ring->free + ring->published_slots + ring->unpublished == target->image.config.size);
    INVARIANT(vw_driver_ring_in_flight(ring) == target->in_flight);
    INVARIANT(ring->next_available < target->image.config.size);
    INVARIANT(ring->next_used < target->image.config.size);
    INVARIANT(ring->error < VW_RING_ERROR_COUNT);
}

static void step(struct target *target, struct input *input)
{
    bool broken = target->ring.error != VW_RING_OK;

    switch (input_byte(input) & 15) {
    case 0:
        image_poke(&target->image, input);
        break;
    case 1:
        image_put_descriptor(&target->image, input);
        break;
    case 2 ... 5:
        add(target, input);
        break;
    case 6 ... 7:
        INVARIANT(!(vw_driver_ring_publish(&target->ring) && broken));
        break;
    case 8 ... 11:
        put_used(target, input);
        break;
    case 12 ... 14:
        reap(target, input);
        break;
    default:
        notifications(target, input);
    }
    check_counts(target);
}

/* Whatever the device did, every buffer comes back exactly once. */
static void detach_all(struct target *target)
{
    void *token;

    while ((token = vw_driver_ring_detach(&target->ring)) != NULL)
        check_token(target, token);
    INVARIANT(target->in_flight == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct target target = {.in_flight = 0};
    const struct vw_indirect_tables tables = {target.tables, 8192, SEGMENTS};

    image_open(&target.image, &input);
    INVARIANT(vw_driver_ring_init(&target.ring, &target.image.config, target.state, &tables) == 0);
    while (input.left > 0)
        step(&target, &input);
    detach_all(&target);
    image_close(&target.image);
    return 0;
}
