/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/ring.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <string.h>

#include "base/bits.h"
#include "base/urgent.h"
#include "ring/formats.h"

/* Sections 2.7 (split: the flags and index of a ring, its entries, the event word) and 2.8.10. */
uint64_t vw_ring_area_size(enum vw_ring_format format, enum vw_ring_area area, uint32_t size)
{
    switch (area) {
    case VW_RING_DESCRIPTOR_AREA:
        return UINT64_C(16) * size;
    case VW_RING_DRIVER_AREA:
        return format == VW_RING_SPLIT ? 6 + UINT64_C(2) * size : 4;
    case VW_RING_DEVICE_AREA:
        return format == VW_RING_SPLIT ? 6 + UINT64_C(8) * size : 4;
    }
    return 0;
}

unsigned vw_ring_area_alignment(enum vw_ring_format format, enum vw_ring_area area)
{
    if (area == VW_RING_DESCRIPTOR_AREA)
        return 16;
    return format == VW_RING_SPLIT && area == VW_RING_DRIVER_AREA ? 2 : 4;
}

bool vw_ring_size_valid(enum vw_ring_format format, uint32_t size)
{
    if (size == 0 || size > VW_RING_MAX_SIZE)
        return false;
    return format == VW_RING_PACKED || vw_is_power_of_two(size);
}

const char *vw_ring_error_text(enum vw_ring_error error)
{
    static const char *const texts[] = {
        [VW_RING_OK] = "ring is in order",
        [VW_RING_BAD_AVAILABLE_INDEX] = "more was made available than the ring holds",
        [VW_RING_BAD_HEAD] = "head or next index of a chain is not below the ring's size",
        [VW_RING_LOOP] = "chain is longer than the ring, or runs in a circle",
        [VW_RING_TOO_LONG] = "chain has more bytes or pieces than can be taken",
        [VW_RING_BAD_ADDRESS] = "buffer is outside the guest's memory",
        [VW_RING_BAD_ORDER] = "device-readable descriptor follows a device-writable one",
        [VW_RING_BAD_INDIRECT] = "indirect table has a bad length or a bad next index",
        [VW_RING_NESTED_INDIRECT] = "indirect descriptor inside a table, or in a chain",
        [VW_RING_WRONG_DIRECTION] = "buffer of the wrong direction for this queue",
        [VW_RING_UNNEGOTIATED] = "indirect descriptor, but the feature was not negotiated",
        [VW_RING_BAD_USED_INDEX] = "device used more than was available",
        [VW_RING_BAD_USED_ID] = "device used a buffer that is not in flight",
        [VW_RING_BAD_USED_LENGTH] = "device claims to have written more than the buffer holds",
    };

    _Static_assert(VW_ARRAY_SIZE(texts) == VW_RING_ERROR_COUNT, "one text for each error");
    if ((unsigned)error >= VW_RING_ERROR_COUNT)
        return "unknown error";
    return texts[error];
}

static bool area_valid(enum vw_ring_format format, enum vw_ring_area area, const void *place)
{
    return place && ((uintptr_t)place & (vw_ring_area_alignment(format, area) - 1)) == 0;
}

static bool config_valid(const struct vw_ring_config *config)
{
    enum vw_ring_format format = config->format;

    return (format == VW_RING_SPLIT || format == VW_RING_PACKED) &&
           vw_ring_size_valid(format, config->size) &&
           area_valid(format, VW_RING_DESCRIPTOR_AREA, config->descriptor_area) &&
           area_valid(format, VW_RING_DRIVER_AREA, config->driver_area) &&
           area_valid(format, VW_RING_DEVICE_AREA, config->device_area);
}

/* Offset 0 and both wrap counters 1 (2.8.1): what a fresh packed ring has as its base. */
#define PACKED_START 0x80008000u

int vw_device_ring_init(struct vw_device_ring *ring, const struct vw_ring_config *config,
                        const struct vw_memory *memory)
{
    if (!config_valid(config))
        return -EINVAL;
    memset(ring, 0, sizeof(*ring));
    ring->config = *config;
    ring->memory = memory;
    ring->event_index = vw_has(config->features, VIRTIO_RING_F_EVENT_IDX);
    ring->in_order = vw_has(config->features, VIRTIO_F_IN_ORDER);
    ring->indirect = vw_has(config->features, VIRTIO_RING_F_INDIRECT_DESC);
    ring->urgent = vw_has(config->features, VW_F_URGENT);
    ring->ops = config->format == VW_RING_PACKED
                    ? vw_packed_device_ops(ring->in_order, ring->event_index)
                    : vw_split_device_ops(ring->in_order, ring->event_index);
    return vw_device_ring_set_base(ring, config->format == VW_RING_PACKED ? PACKED_START : 0);
}

size_t vw_driver_ring_state_size(uint32_t size)
{
    return (size_t)size * sizeof(struct vw_driver_entry);
}

static void clear_area(const struct vw_ring_config *config, enum vw_ring_area area, void *place)
{
    memset(place, 0, vw_ring_area_size(config->format, area, config->size));
}

/* Without the feature, or without memory, no chain has as many segments as the tables take. */
static int set_indirect(struct vw_driver_ring *ring, const struct vw_indirect_tables *indirect)
{
    if (!indirect || !indirect->memory ||
        !vw_has(ring->config.features, VIRTIO_RING_F_INDIRECT_DESC))
        return 0;
    if (((uintptr_t)indirect->memory & 15) != 0)
        return -EINVAL;
    ring->indirect = *indirect;
    return 0;
}

int vw_driver_ring_init(struct vw_driver_ring *ring, const struct vw_ring_config *config,
                        void *state, const struct vw_indirect_tables *indirect)
{
    if (!config_valid(config) || !state || ((uintptr_t)state & 15) != 0)
        return -EINVAL;
    memset(ring, 0, sizeof(*ring));
    ring->config = *config;
    if (set_indirect(ring, indirect) != 0)
        return -EINVAL;
    ring->entries = state;
    for (uint32_t i = 0; i < config->size; i++)
        ring->entries[i] = (struct vw_driver_entry){.next = (uint16_t)(i + 1)};
    ring->free = config->size;
    ring->free_tail = (uint16_t)(config->size - 1);
    ring->event_index = vw_has(config->features, VIRTIO_RING_F_EVENT_IDX);
    ring->in_order = vw_has(config->features, VIRTIO_F_IN_ORDER);
    ring->urgent = vw_has(config->features, VW_F_URGENT);
    ring->available_wrap = ring->used_wrap = true; /* 2.8.1 */
    ring->calls_enabled = true;                    /* what zeros mean in both formats */
    clear_area(config, VW_RING_DESCRIPTOR_AREA, config->descriptor_area);
    clear_area(config, VW_RING_DRIVER_AREA, config->driver_area);
    clear_area(config, VW_RING_DEVICE_AREA, config->device_area);
    ring->ops = config->format == VW_RING_PACKED
                    ? vw_packed_driver_ops(ring->in_order, ring->event_index)
                    : vw_split_driver_ops(ring->in_order, ring->event_index);
    return 0;
}

void *vw_driver_ring_detach(struct vw_driver_ring *ring)
{
    for (; ring->detached < ring->config.size; ring->detached++) {
        struct vw_driver_entry *entry = &ring->entries[ring->detached];

        if (entry->slots == 0)
            continue;
        entry->slots = 0;
        ring->reaped++;
        return entry->token;
    }
    return NULL;
}
