/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver half of a ring: makes buffers available, reaps them when the device has used them.
 *
 * Theory of operation
 * -------------------
 * All state that matters is private: the ring memory is written, and of what the device writes
 * only the used entries are read, each checked against the private record of what is in flight.
 * Nothing that was published is ever read back.
 *
 *   add ........ one buffer of readable and then writable segments; not visible yet
 *   publish .... makes everything added visible, answers whether the device wants a kick
 *   reap ....... takes used buffers back, with the token given to add and the length written
 *   calls ...... disable / enable_prepare + poll / enable / enable_delayed, with the race rule:
 *                write the event word, full barrier, look again
 *
 * Units differ between the formats where the specification does: free slots are ring entries; a
 * chain takes one entry if it goes through an indirect table and as many as it has segments if
 * not.
 */
#ifndef VW_RING_DRIVER_H
#define VW_RING_DRIVER_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/ring.h"

/* A run of bytes at an address as the *device* knows it. */
struct vw_segment {
    uint64_t address;
    uint32_t length;
};

/* A buffer of one segment, for vw_driver_ring_add_plain. */
struct vw_plain_buffer {
    struct vw_segment segment;
    void *token; /* not NULL */
};

/* A buffer that came back. */
struct vw_completion {
    void *token;     /* as given to add */
    uint32_t length; /* bytes that the device says it wrote; never more than were offered */
};

/*
 * Memory for indirect tables, one per ring entry, used if the feature was negotiated and a chain
 * has more than one segment and at most `segments` of them. Without it (memory NULL) all chains
 * are direct.
 */
struct vw_indirect_tables {
    void *memory;      /* size * segments * 16 bytes, aligned to 16, mapped by the device */
    uint64_t address;  /* of `memory`, as the device knows it */
    uint32_t segments; /* entries in each table */
};

struct vw_driver_ring;

struct vw_driver_ring_ops {
    int (*add)(struct vw_driver_ring *ring, const struct vw_segment *segments, uint32_t readable,
               uint32_t writable, void *token);
    int (*add_urgent)(struct vw_driver_ring *ring, const struct vw_segment *segments,
                      uint32_t readable, uint32_t writable, void *token);
    uint32_t (*add_readable)(struct vw_driver_ring *ring, const struct vw_plain_buffer *buffers,
                             uint32_t count);
    uint32_t (*add_writable)(struct vw_driver_ring *ring, const struct vw_plain_buffer *buffers,
                             uint32_t count);
    bool (*publish)(struct vw_driver_ring *ring);
    uint32_t (*reap)(struct vw_driver_ring *ring, struct vw_completion *completions, uint32_t max);
    void (*disable_calls)(struct vw_driver_ring *ring);
    uint32_t (*enable_calls_prepare)(struct vw_driver_ring *ring);
    bool (*poll)(struct vw_driver_ring *ring, uint32_t position);
    bool (*enable_calls_delayed)(struct vw_driver_ring *ring);
};

/* Private record of a ring entry (split: by descriptor index; packed: by buffer id). */
struct vw_driver_entry {
    void *token;
    uint32_t writable_length;
    uint16_t slots; /* ring entries of the buffer that starts here; 0: none does */
    uint16_t next;  /* the next free entry, and in flight the next of a split chain.
                     * IN_ORDER needs neither: the buffer's number in the order of adding */
};

/* Private to ring/. Declared here only so that the caller can place it where it wants. */
struct vw_driver_ring {
    const struct vw_driver_ring_ops *ops;
    struct vw_ring_config config;
    struct vw_indirect_tables indirect;
    struct vw_driver_entry *entries;
    enum vw_ring_error error;
    bool event_index, in_order, urgent;
    bool calls_enabled; /* shadow of what we told the device */

    /* Buffers, numbered as they are added, modulo 65536. A split ring's indices are the same. */
    uint16_t added;
    uint16_t published; /* those before it are visible to the device */
    uint16_t reaped;
    uint16_t used_seen; /* split: the used index as last read */

    uint32_t free;        /* ring entries; free + published_slots + unpublished = size */
    uint32_t unpublished; /* of buffers added and not yet visible */
    uint32_t published_slots;
    uint16_t free_head; /* the first free entry (IN_ORDER, split: the next of the table) */
    uint16_t free_tail; /* the last one, if there is one; not with IN_ORDER */

    /* Packed: positions and their wrap counters. */
    uint16_t next_available;
    uint16_t next_used;
    bool available_wrap;
    bool used_wrap;
    uint16_t head_position; /* the first unpublished descriptor, and its flags for publish */
    uint16_t head_flags;

    /* IN_ORDER: the oldest buffer in flight, and what is left to hand out of a used batch. */
    uint16_t oldest;
    uint16_t batch_left;
    uint32_t batch_length; /* written to the batch's last buffer */

    uint32_t detached; /* entries that detach has been through */
};

/* Buffers that were added and did not come back. */
static inline uint32_t vw_driver_ring_in_flight(const struct vw_driver_ring *ring)
{
    return (uint16_t)(ring->added - ring->reaped);
}

/* Bytes of private memory that a ring of this size needs; aligned to 16. */
size_t vw_driver_ring_state_size(uint32_t size);

/*
 * Sets a ring up and initialises the shared areas, which the device must not be using. `state` is
 * private memory of vw_driver_ring_state_size bytes that outlives the ring. `indirect` may be NULL.
 * Returns 0 or -EINVAL.
 */
int vw_driver_ring_init(struct vw_driver_ring *ring, const struct vw_ring_config *config,
                        void *state, const struct vw_indirect_tables *indirect);

/*
 * Adds one buffer: `readable` segments for the device to read, then `writable` segments for it to
 * write. Returns 0, -ENOSPC if the ring is too full, -EINVAL for no segments, for more than the
 * ring's size, or for more than 2^32 - 1 bytes, -EIO on a broken ring. Nothing is visible to the
 * device before publish. The token is not NULL.
 */
static inline int vw_driver_ring_add(struct vw_driver_ring *ring, const struct vw_segment *segments,
                                     uint32_t readable, uint32_t writable, void *token)
{
    return ring->ops->add(ring, segments, readable, writable, token);
}

/*
 * The same, and the device is to call once it has used the buffer, whatever it was told about
 * calls (docs/urgent.md). -ENOTSUP if VW_F_URGENT was not negotiated.
 */
static inline int vw_driver_ring_add_urgent(struct vw_driver_ring *ring,
                                            const struct vw_segment *segments, uint32_t readable,
                                            uint32_t writable, void *token)
{
    return ring->urgent ? ring->ops->add_urgent(ring, segments, readable, writable, token)
                        : -ENOTSUP;
}

/*
 * Adds buffers of one segment each, all for the device to read or all for it to write: what most
 * frames are, in one call for a burst. Returns how many were added: fewer than `count` if the ring
 * is too full, 0 on a broken ring.
 */
static inline uint32_t vw_driver_ring_add_readable(struct vw_driver_ring *ring,
                                                   const struct vw_plain_buffer *buffers,
                                                   uint32_t count)
{
    return ring->ops->add_readable(ring, buffers, count);
}

static inline uint32_t vw_driver_ring_add_writable(struct vw_driver_ring *ring,
                                                   const struct vw_plain_buffer *buffers,
                                                   uint32_t count)
{
    return ring->ops->add_writable(ring, buffers, count);
}

/* Makes all added buffers visible. Returns true if the device wants a kick; false if broken. */
static inline bool vw_driver_ring_publish(struct vw_driver_ring *ring)
{
    return ring->ops->publish(ring);
}

/*
 * Takes up to `max` used buffers. A device's lie breaks the ring (ring->error); the buffers before
 * it are still good. With IN_ORDER, a device that skips a buffer has used all of its writable
 * bytes (2.7.9, 2.8.6), and that is the length reported.
 */
static inline uint32_t vw_driver_ring_reap(struct vw_driver_ring *ring,
                                           struct vw_completion *completions, uint32_t max)
{
    return ring->ops->reap(ring, completions, max);
}

/* Asks for no calls. A hint: a split ring with EVENT_IDX may still call once in 65536 entries. */
static inline void vw_driver_ring_disable_calls(struct vw_driver_ring *ring)
{
    ring->ops->disable_calls(ring);
}

/*
 * Arms a call for the next used buffer; the position returned is for vw_driver_ring_poll, which
 * answers, after a full barrier, whether a buffer was used since. A caller that sleeps must poll
 * between arming and sleeping. On a broken ring the answer is false.
 */
static inline uint32_t vw_driver_ring_enable_calls_prepare(struct vw_driver_ring *ring)
{
    return ring->ops->enable_calls_prepare(ring);
}

static inline bool vw_driver_ring_poll(struct vw_driver_ring *ring, uint32_t position)
{
    return ring->ops->poll(ring, position);
}

/* Arms and looks again. True: armed, nothing to reap. False: there is something to reap. */
static inline bool vw_driver_ring_enable_calls(struct vw_driver_ring *ring)
{
    return !vw_driver_ring_poll(ring, vw_driver_ring_enable_calls_prepare(ring));
}

/*
 * Arms a call for when three quarters of what is in flight is used. Returns false if the caller
 * should reap now instead. The formats differ: split says false only if more than three quarters
 * are used already; packed says false as soon as the very next descriptor is used. True on a
 * broken ring, so that reap/arm loops end.
 */
static inline bool vw_driver_ring_enable_calls_delayed(struct vw_driver_ring *ring)
{
    return ring->ops->enable_calls_delayed(ring);
}

/*
 * After the device was stopped: takes one buffer that never came back, in any order, or NULL when
 * none is left. The ring then has to be set up again.
 */
void *vw_driver_ring_detach(struct vw_driver_ring *ring);

#endif
