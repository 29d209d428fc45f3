/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What both halves of both ring formats share: configuration, and the ways in which a peer can
 * break a ring.
 *
 * The ring layer makes no system call, allocates nothing, logs nothing and holds no lock. Each
 * ring object belongs to one thread at a time. The caller provides all memory and sends the kicks
 * and calls that the ring asks for, so that the layer can be embedded anywhere.
 */
#ifndef VW_RING_RING_H
#define VW_RING_RING_H

#include <stdbool.h>
#include <stdint.h>

/* Virtio 1.x, sections 2.7 and 2.8.10.1. */
#define VW_RING_MAX_SIZE 32768

enum vw_ring_format {
    VW_RING_SPLIT,  /* section 2.7 */
    VW_RING_PACKED, /* section 2.8 */
};

/*
 * Where a ring lies. The three areas are local pointers to memory that the peer also maps, of the
 * sizes that vw_ring_area_size gives and aligned as the specification demands; the caller has
 * checked that they lie in mapped memory.
 */
struct vw_ring_config {
    enum vw_ring_format format;
    uint32_t size;         /* ring entries: 1..32768, for a split ring a power of two */
    uint64_t features;     /* negotiated; INDIRECT_DESC, EVENT_IDX and IN_ORDER matter here */
    void *descriptor_area; /* split: descriptor table; packed: descriptor ring. Aligned to 16 */
    void *driver_area;     /* split: available ring (2); packed: driver event suppression (4) */
    void *device_area;     /* split: used ring (4); packed: device event suppression (4) */
};

enum vw_ring_area {
    VW_RING_DESCRIPTOR_AREA,
    VW_RING_DRIVER_AREA,
    VW_RING_DEVICE_AREA,
};

/* Bytes and alignment of an area; the event words are counted whether negotiated or not. */
uint64_t vw_ring_area_size(enum vw_ring_format format, enum vw_ring_area area, uint32_t size);
unsigned vw_ring_area_alignment(enum vw_ring_format format, enum vw_ring_area area);

/* Is `size` one that the format allows? */
bool vw_ring_size_valid(enum vw_ring_format format, uint32_t size);

/*
 * What a peer did to break a ring. A broken ring stays broken until it is set up again: it
 * yields nothing, accepts nothing, asks for no notification, and every loop over it ends.
 */
enum vw_ring_error {
    VW_RING_OK,
    VW_RING_BAD_AVAILABLE_INDEX, /* more available, or out, than the ring holds */
    VW_RING_BAD_HEAD,            /* head of a chain, or a next index, not below the ring's size */
    VW_RING_LOOP,                /* a chain longer than the ring, or than its table */
    VW_RING_TOO_LONG,            /* more than 2^32 - 1 bytes, or more pieces than we take */
    VW_RING_BAD_ADDRESS,         /* a buffer outside the guest's memory */
    VW_RING_BAD_ORDER,           /* a device-readable descriptor after a device-writable one */
    VW_RING_BAD_INDIRECT,        /* table's length no multiple of 16, 0, or over the ring's size;
                                  * or a next index that the table does not have */
    VW_RING_NESTED_INDIRECT,     /* an indirect descriptor in an indirect table, or with NEXT */
    VW_RING_WRONG_DIRECTION,     /* a writable buffer to transmit, a readable one to receive into */
    VW_RING_UNNEGOTIATED,        /* an indirect descriptor although the feature was not accepted */
    VW_RING_BAD_USED_INDEX,      /* device: used more than was available */
    VW_RING_BAD_USED_ID,         /* device: an id that is not in flight */
    VW_RING_BAD_USED_LENGTH,     /* device: more bytes than the buffer has */
    VW_RING_ERROR_COUNT,
};

/* One phrase for a log line, such as "head of a chain is not below the ring's size". */
const char *vw_ring_error_text(enum vw_ring_error error);

#endif
