/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to ring/: descriptors in shared memory, and places in a packed ring.
 *
 * Theory of operation
 * -------------------
 * Both formats have descriptors of 16 bytes that differ only in the order of the last two fields
 * (split 2.7.5: flags, next; packed 2.8.13: id, flags). A descriptor is copied with two loads of
 * eight bytes, so that a check and a use can never see two different values.
 */
#ifndef VW_RING_DESCRIPTOR_H
#define VW_RING_DESCRIPTOR_H

#include <linux/virtio_ring.h>
#include <string.h>

#include "base/bits.h"
#include "base/shared.h"
#include "base/urgent.h"

#define VW_DESCRIPTOR_SIZE 16

/* The ring is also reached through the kernel's structures, whose types differ. */
typedef uint64_t __attribute__((may_alias)) vw_alias64;
typedef uint32_t __attribute__((may_alias)) vw_alias32;

/* A private copy. */
struct vw_descriptor {
    uint64_t address;
    uint32_t length;
    uint16_t flags;
    uint16_t other; /* split: next; packed: id */
};

/* `second` is bytes 8 to 15 in the processor's order. */
static VW_ALWAYS_INLINE struct vw_descriptor vw_descriptor_decode(uint64_t first, uint64_t second,
                                                                  bool packed)
{
    uint16_t at12 = (uint16_t)(second >> 32), at14 = (uint16_t)(second >> 48);

    return (struct vw_descriptor){.address = first,
                                  .length = (uint32_t)second,
                                  .flags = packed ? at14 : at12,
                                  .other = packed ? at12 : at14};
}

/* `from` is aligned to 8. */
static VW_ALWAYS_INLINE struct vw_descriptor vw_descriptor_copy(const void *from, bool packed)
{
    const vw_alias64 *words = from;

    return vw_descriptor_decode(le64toh(vw_shared_load(&words[0])),
                                le64toh(vw_shared_load(&words[1])), packed);
}

/* The same of a packed ring, acquiring what the peer wrote before it released the flags. */
static VW_ALWAYS_INLINE struct vw_descriptor
vw_descriptor_acquire(const struct vring_packed_desc *from)
{
    const vw_alias64 *words = (const void *)from;
    uint64_t second = le64toh(vw_shared_acquire(&words[1]));

#if defined(__SANITIZE_THREAD__)
    /* The race detector pairs an acquire only with a release of the very same address. */
    (void)vw_acquire_le16(&from->flags);
#endif
    return vw_descriptor_decode(le64toh(vw_shared_load(&words[0])), second, true);
}

/* The last eight bytes of a descriptor, stored at once. */
static VW_ALWAYS_INLINE void vw_descriptor_store_end(void *to, uint32_t length, uint16_t at12,
                                                     uint16_t at14)
{
    vw_alias64 *words = to;

    vw_shared_store(&words[1],
                    htole64((uint64_t)at14 << 48 | (uint64_t)at12 << 32 | (uint64_t)length));
}

static VW_ALWAYS_INLINE void vw_descriptor_store(void *to, uint64_t address, uint32_t length,
                                                 uint16_t at12, uint16_t at14)
{
    vw_alias64 *words = to;

    vw_shared_store(&words[0], htole64(address));
    vw_descriptor_store_end(to, length, at12, at14);
}

#define VW_PACKED_AVAILABLE ((uint16_t)(1u << VRING_PACKED_DESC_F_AVAIL))
#define VW_PACKED_USED ((uint16_t)(1u << VRING_PACKED_DESC_F_USED))

/* Available: AVAIL is the driver's wrap counter and USED its inverse (2.8.1). */
static VW_ALWAYS_INLINE uint16_t vw_packed_available_bits(bool wrap)
{
    return wrap ? VW_PACKED_AVAILABLE : VW_PACKED_USED;
}

/* Used: both are the device's wrap counter. */
static VW_ALWAYS_INLINE uint16_t vw_packed_used_bits(bool wrap)
{
    return wrap ? (uint16_t)(VW_PACKED_AVAILABLE | VW_PACKED_USED) : 0;
}

/* Comparing the two bits with each other is not enough: a ring of zeros would look used. */
static VW_ALWAYS_INLINE bool vw_packed_is_available(uint16_t flags, bool wrap)
{
    return (flags & (VW_PACKED_AVAILABLE | VW_PACKED_USED)) == vw_packed_available_bits(wrap);
}

static VW_ALWAYS_INLINE bool vw_packed_is_used(uint16_t flags, bool wrap)
{
    return (flags & (VW_PACKED_AVAILABLE | VW_PACKED_USED)) == vw_packed_used_bits(wrap);
}

/*
 * Places in a packed ring. The size need not be a power of two (2.8.10.1), so that a place is
 * never masked but compared; the wrap counter flips whenever the end is passed. `slots` <= size.
 */
static VW_ALWAYS_INLINE void vw_packed_advance(uint16_t *position, bool *wrap, uint32_t slots,
                                               uint32_t size)
{
    uint32_t next = *position + slots;

    if (next >= size) {
        next -= size;
        *wrap = !*wrap;
    }
    *position = (uint16_t)next;
}

static VW_ALWAYS_INLINE void vw_packed_rewind(uint16_t *position, bool *wrap, uint32_t slots,
                                              uint32_t size)
{
    uint32_t from = *position;

    if (from < slots) {
        from += size;
        *wrap = !*wrap;
    }
    *position = (uint16_t)(from - slots);
}

/* As the event suppression structure and vhost-user write a place: wrap counter in bit 15. */
static VW_ALWAYS_INLINE uint16_t vw_packed_encode(uint16_t position, bool wrap)
{
    return (uint16_t)(position | (wrap ? 1u << VRING_PACKED_EVENT_F_WRAP_CTR : 0));
}

#endif
