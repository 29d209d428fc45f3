/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * Each function looks at the payload of one kind of request and at nothing else. The payload is a
 * private copy, so that looking at a field twice is safe. All fields are the peer's: an index is
 * compared at its full width before it indexes anything, and sums are taken with base/overflow.h.
 */
#include "vhost/payload.h"

#include <linux/virtio_config.h>

#include "base/overflow.h"

/* Virtio 1.x, sections 2.7 and 2.8.10.1: the largest ring of either format. */
#define MAX_RING_SIZE 32768

/* The smallest MTU of IPv4 (RFC 791), and what 16 bits of configuration space can say. */
#define MIN_MTU 68
#define MAX_MTU 65535

static enum vw_vu_verdict refuse(const char **why, const char *phrase)
{
    *why = phrase;
    return VW_VU_REFUSED;
}

static enum vw_vu_verdict fatal(const char **why, const char *phrase)
{
    *why = phrase;
    return VW_VU_FATAL;
}

VW_VU_CHECK(features)
{
    (void)fd_count;
    if (message->payload.u64 & ~limits->offered_features)
        return refuse(why, "a virtio feature that was not offered");
    return VW_VU_OK;
}

VW_VU_CHECK(protocol_features)
{
    uint64_t bits = message->payload.u64;

    (void)fd_count;
    if (bits & ~limits->offered_protocol)
        return refuse(why, "a protocol feature that was not offered");
    /* The specification asks for the end of the connection here: calls in messages need a socket
     * for them, and acknowledgements to be told from replies. */
    if (vw_has(bits, VW_VU_PF_INBAND_NOTIFICATIONS) &&
        !(vw_has(bits, VW_VU_PF_BACKEND_REQ) && vw_has(bits, VW_VU_PF_REPLY_ACK)))
        return fatal(why, "in-band notifications without BACKEND_REQ and REPLY_ACK");
    return VW_VU_OK;
}

static const char *region_fault(const struct vw_vu_region *region)
{
    uint64_t end;

    if (region->size == 0)
        return "a memory region of no bytes";
    if (!vw_add_u64(region->guest, region->size, &end))
        return "a memory region beyond the last guest address";
    if (!vw_add_u64(region->user, region->size, &end))
        return "a memory region beyond the last user address";
    if (!vw_add_u64(region->offset, region->size, &end))
        return "a memory region beyond the last offset of a file";
    return NULL;
}

/* Both ranges are known not to overflow. */
static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

static const char *regions_fault(const struct vw_vu_memory *memory)
{
    for (unsigned i = 0; i < memory->count; i++) {
        struct vw_vu_region a = memory->regions[i];
        const char *fault = region_fault(&a);

        if (fault)
            return fault;
        for (unsigned j = 0; j < i; j++) {
            struct vw_vu_region b = memory->regions[j];

            if (overlap(a.guest, a.size, b.guest, b.size))
                return "memory regions that overlap in guest addresses";
            if (overlap(a.user, a.size, b.user, b.size))
                return "memory regions that overlap in user addresses";
        }
    }
    return NULL;
}

VW_VU_CHECK(memory_table)
{
    const struct vw_vu_memory *memory = &message->payload.memory;
    const char *fault;

    (void)limits;
    if (memory->count > VW_VU_MAX_TABLE_REGIONS)
        return fatal(why, "more than 8 memory regions in one table");
    /* More room than regions is legal: User-mode Linux always sends room for two. */
    if (message->header.size < 8 + memory->count * sizeof(struct vw_vu_region))
        return fatal(why, "fewer memory regions than the table says");
    if (fd_count != memory->count)
        return fatal(why, "not one file descriptor for each memory region");
    fault = regions_fault(memory);
    return fault ? refuse(why, fault) : VW_VU_OK;
}

VW_VU_CHECK(memory_region)
{
    struct vw_vu_region region = message->payload.region.region;
    const char *fault = region_fault(&region);

    (void)fd_count;
    (void)limits;
    return fault ? refuse(why, fault) : VW_VU_OK;
}

/* With LOG_SHMFD; the older form, a u64 without a descriptor, does not pass the gate. */
VW_VU_CHECK(log_base)
{
    uint64_t end;

    (void)limits;
    if (message->header.size != sizeof(struct vw_vu_log_area))
        return fatal(why, "not the 16 bytes that LOG_SHMFD asks for");
    if (fd_count != 1)
        return fatal(why, "not one file descriptor for the log");
    if (message->payload.log.size == 0 ||
        !vw_add_u64(message->payload.log.size, message->payload.log.offset, &end))
        return refuse(why, "a log of no bytes, or beyond the last offset of a file");
    return VW_VU_OK;
}

/* The first field of vring state and vring address alike. */
VW_VU_CHECK(ring_index)
{
    (void)fd_count;
    if (message->payload.state.index >= limits->rings)
        return refuse(why, "ring index is not below the number of rings");
    return VW_VU_OK;
}

/*
 * Which sizes the format allows is decided when the ring starts, since the front-end may still
 * choose it: here only what no choice can make right.
 */
VW_VU_CHECK(ring_num)
{
    uint32_t num = message->payload.state.num;
    uint32_t max = limits->max_ring_size ? limits->max_ring_size : MAX_RING_SIZE;

    if (num == 0 || num > max)
        return refuse(why, "ring size is zero or above the maximum");
    /* Section 2.7: the size of a split ring is a power of two. */
    if (!vw_is_power_of_two(num) && !vw_has(limits->offered_features, VIRTIO_F_RING_PACKED))
        return refuse(why, "ring size is not a power of two");
    return vw_vu_check_ring_index(message, fd_count, limits, why);
}

/*
 * Sections 2.7 and 2.8: descriptors are aligned to 16; a split ring's available ring to 2 and its
 * used ring to 4; a packed ring's event suppression structures to 4. That the parts lie in guest
 * memory is seen when the ring starts: the memory table may come later.
 */
VW_VU_CHECK(ring_address)
{
    const struct vw_vu_address *address = &message->payload.address;
    bool packed = vw_has(limits->acknowledged_features, VIRTIO_F_RING_PACKED);

    if (address->descriptor % 16 != 0)
        return refuse(why, "descriptor table is not aligned to 16 bytes");
    if (address->used % 4 != 0)
        return refuse(why, "used ring is not aligned to 4 bytes");
    if (address->available % (packed ? 4 : 2) != 0)
        return refuse(why, "available ring is not aligned");
    return vw_vu_check_ring_index(message, fd_count, limits, why);
}

/* A split ring's base is an available index of 16 bits; a packed ring's has two positions. */
VW_VU_CHECK(ring_base)
{
    if (!vw_has(limits->acknowledged_features, VIRTIO_F_RING_PACKED) &&
        message->payload.state.num > UINT16_MAX)
        return refuse(why, "base of a split ring has more than 16 bits");
    return vw_vu_check_ring_index(message, fd_count, limits, why);
}

VW_VU_CHECK(ring_fd)
{
    uint64_t value = message->payload.u64;

    (void)fd_count;
    if (value & ~(uint64_t)(VW_VU_RING_MASK | VW_VU_RING_NOFD))
        return refuse(why, "ring index of more than 8 bits, or an unknown flag");
    if ((value & VW_VU_RING_MASK) >= limits->rings)
        return refuse(why, "ring index is not below the number of rings");
    return VW_VU_OK;
}

/* SET_VRING_ENABLE and SET_VRING_ENDIAN. */
VW_VU_CHECK(ring_switch)
{
    if (message->payload.state.num > 1)
        return refuse(why, "neither 0 nor 1");
    return vw_vu_check_ring_index(message, fd_count, limits, why);
}

VW_VU_CHECK(mtu)
{
    (void)fd_count;
    (void)limits;
    if (message->payload.u64 < MIN_MTU || message->payload.u64 > MAX_MTU)
        return refuse(why, "MTU is not between 68 and 65535");
    return VW_VU_OK;
}

VW_VU_CHECK(iotlb)
{
    const struct vw_vu_iotlb *iotlb = &message->payload.iotlb;
    uint64_t end;

    (void)fd_count;
    (void)limits;
    if (iotlb->type < 1 || iotlb->type > 4 || iotlb->permission > 3)
        return refuse(why, "unknown type of IOTLB message, or unknown permission");
    /* The whole address space has a size that no u64 can say; its last byte must be inside. */
    if (iotlb->size != 0 && (!vw_add_u64(iotlb->iova, iotlb->size - 1, &end) ||
                             !vw_add_u64(iotlb->user, iotlb->size - 1, &end)))
        return refuse(why, "an IOTLB range beyond the last address");
    return VW_VU_OK;
}

VW_VU_CHECK(config)
{
    const struct vw_vu_config *config = &message->payload.config;
    uint32_t limit = limits->config_size ? limits->config_size : VW_VU_MAX_CONFIG;

    (void)fd_count;
    if (message->header.size - VW_VU_CONFIG_HEADER != config->size)
        return fatal(why, "payload is not as long as the configuration bytes in it");
    if (!vw_range_fits(config->offset, config->size, limit))
        return refuse(why, "beyond the end of the configuration space");
    return VW_VU_OK;
}

VW_VU_CHECK(set_config)
{
    if (message->payload.config.flags > 1)
        return refuse(why, "unknown flags of a configuration write");
    return vw_vu_check_config(message, fd_count, limits, why);
}

VW_VU_CHECK(inflight)
{
    const struct vw_vu_inflight *inflight = &message->payload.inflight;
    uint64_t end;

    (void)fd_count;
    if (inflight->queues == 0 || inflight->queues > limits->rings)
        return refuse(why, "in-flight area for no rings, or for more than there are");
    if (inflight->queue_size == 0 || inflight->queue_size > MAX_RING_SIZE)
        return refuse(why, "in-flight area for rings of an impossible size");
    if (!vw_add_u64(inflight->mmap_size, inflight->mmap_offset, &end))
        return refuse(why, "in-flight area beyond the last offset of a file");
    return VW_VU_OK;
}

VW_VU_CHECK(status)
{
    (void)fd_count;
    (void)limits;
    if (message->payload.u64 > UINT8_MAX)
        return refuse(why, "device status of more than 8 bits");
    return VW_VU_OK;
}

VW_VU_CHECK(device_state)
{
    (void)fd_count;
    (void)limits;
    if (message->payload.device_state.direction > 1 || message->payload.device_state.phase != 0)
        return refuse(why, "unknown direction or phase of a device state transfer");
    return VW_VU_OK;
}

/* Host notifier of a ring, sent by a back-end. */
VW_VU_CHECK(area)
{
    uint64_t end;

    if (!vw_add_u64(message->payload.area.size, message->payload.area.offset, &end))
        return refuse(why, "a notification area beyond the last offset of a file");
    return vw_vu_check_ring_fd(message, fd_count, limits, why);
}
