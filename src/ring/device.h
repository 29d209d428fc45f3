/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device half of a ring: takes the chains that a driver made available, gives them back used.
 *
 * Theory of operation
 * -------------------
 * Work flows in batches and always in this order:
 *
 *   fetch ..... up to N available chains in one go: heads first, then each chain's descriptors,
 *               every descriptor copied once into private memory, checked, and translated into
 *               pieces of local memory
 *   use ....... completed chains are written to the used side, unpublished
 *   publish ... everything used since the last publish becomes visible with one store, then one
 *               decision whether the driver wants a call; an urgent chain (docs/urgent.md) among
 *               it decides for a call, whatever the driver's suppression says
 *   arm ....... before sleeping: ask for a kick, and look again
 *
 * The driver sees either nothing or all of what one publish covers. This is also what mergeable
 * receive buffers need: in a packed ring the *first* used descriptor of the batch is the one whose
 * flags are stored last (section 2.8.21 and the multi-buffer rule of 2.8.9).
 *
 * Chains may be given back to the available side (give_back), newest first, as long as nothing was
 * used in between that was fetched later. With IN_ORDER, chains must be used in the order in which
 * they were fetched; a run of chains with nothing written becomes one used entry, while a chain
 * with data gets its own entry, since a batch entry would lose its length (2.7.9, 2.8.6).
 */
#ifndef VW_RING_DEVICE_H
#define VW_RING_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "memory/memory.h"
#include "ring/ring.h"

/* One available buffer: its pieces of local memory, device-readable ones first. */
struct vw_chain {
    struct iovec *iov; /* readable_count elements, then writable_count elements */
    uint32_t readable_count;
    uint32_t writable_count : 31;
    uint32_t urgent : 1;      /* the driver wants a call for it in any case */
    uint32_t readable_length; /* bytes */
    uint32_t writable_length;
    uint32_t written; /* set by the caller before use: bytes written, from the first */
    uint16_t id;      /* split: the head's index; packed: the buffer id */
    uint16_t slots;   /* ring entries that it occupies: split 1, packed chain length */
};

/*
 * Where fetched pieces go. The caller empties it (used = 0) once no chain refers to it any more.
 * `headroom` elements are left free in front of each chain's pieces, as iov[-1] and so on; they
 * belong to the caller, which puts its own header there without moving anything.
 */
struct vw_iov_pool {
    struct iovec *iov;
    uint32_t capacity;
    uint32_t used;
    uint32_t headroom;
};

struct vw_device_ring;

struct vw_device_ring_ops {
    uint32_t (*fetch)(struct vw_device_ring *ring, struct vw_chain *chains, uint32_t max,
                      struct vw_iov_pool *pool);
    void (*give_back)(struct vw_device_ring *ring, const struct vw_chain *chains, uint32_t count);
    void (*use)(struct vw_device_ring *ring, const struct vw_chain *chains, uint32_t count);
    bool (*publish)(struct vw_device_ring *ring);
    bool (*expose)(struct vw_device_ring *ring);
    bool (*decide)(struct vw_device_ring *ring);
    bool (*arm)(struct vw_device_ring *ring);
    void (*disarm)(struct vw_device_ring *ring);
    bool (*pending)(struct vw_device_ring *ring);
    uint32_t (*base)(const struct vw_device_ring *ring);
    int (*set_base)(struct vw_device_ring *ring, uint32_t base);
};

/* Private to ring/. Declared here only so that the caller can place it where it wants. */
struct vw_device_ring {
    const struct vw_device_ring_ops *ops;
    const struct vw_memory *memory; /* may be replaced while no chain is out */
    unsigned memory_hint;
    struct vw_ring_config config;
    enum vw_ring_error error;
    bool event_index, in_order, indirect, urgent;
    bool urgent_used; /* an urgent chain was used since the last decision */
    bool armed;       /* shadow of what we told the driver about kicks */
    bool skips_used;  /* packed: see vw_device_ring_skip_used */
    bool decided;     /* was there a call decision since set-up? The first one always calls */

    /* Free-running in a split ring; in a packed ring a position below the size and its wrap bit. */
    uint16_t next_available;
    uint16_t next_used;
    bool available_wrap;
    bool used_wrap;

    /* In chains for a split ring, in ring entries for a packed one. */
    uint32_t out;        /* fetched, and not yet published as used; never more than the size */
    uint32_t given_back; /* fetched once and given back: what arm does not ask about */
    uint32_t undecided;  /* visible since the last call decision; above 65535: many */
    uint32_t urgent_out; /* urgent chains that are fetched and not yet used */

    uint16_t available_seen; /* split: the available index as last read */
    uint16_t used_published; /* split: the used index as last stored */
    uint16_t batch_position; /* packed: where the unpublished batch begins, and the flags that */
    uint16_t batch_flags;    /*         publish stores there last */
    uint32_t batch_slots;    /* packed: ring entries of the batch, 0 for none */
};

/*
 * Sets a ring up, at base 0 (packed 0x80008000). `memory` translates buffer addresses and must
 * outlive the ring. Returns 0 or -EINVAL for a size or an alignment that the format forbids.
 */
int vw_device_ring_init(struct vw_device_ring *ring, const struct vw_ring_config *config,
                        const struct vw_memory *memory);

/*
 * Where the device stands, in vhost-user's encoding (VRING_BASE): split, the next available index;
 * packed, available position and wrap bit in the low 16 bits, used ones in the high 16. Chains
 * that are fetched and not yet used count as taken. set_base returns -EINVAL for a position that
 * the ring does not have; a split ring's used index is then read from the ring itself.
 */
static inline uint32_t vw_device_ring_base(const struct vw_device_ring *ring)
{
    return ring->ops->base(ring);
}

static inline int vw_device_ring_set_base(struct vw_device_ring *ring, uint32_t base)
{
    return ring->ops->set_base(ring, base);
}

/*
 * For a packed ring, before its first fetch, in which each buffer takes one entry: entries where we
 * are to go on that somebody else used in this round are passed by, each time that nothing is out.
 */
static inline void vw_device_ring_skip_used(struct vw_device_ring *ring)
{
    ring->skips_used = true;
}

/*
 * Fetches up to `max` chains. Returns how many; fewer if no more are available, if the pool is
 * full, or if the ring broke (ring->error): the chains before the broken one are still good. A
 * single chain that does not fit into an empty pool breaks the ring.
 */
static inline uint32_t vw_device_ring_fetch(struct vw_device_ring *ring, struct vw_chain *chains,
                                            uint32_t max, struct vw_iov_pool *pool)
{
    return ring->ops->fetch(ring, chains, max, pool);
}

/*
 * Makes the `count` most recently fetched chains available again; `chains` points to the oldest of
 * them. The pool is the caller's to rewind.
 */
static inline void vw_device_ring_give_back(struct vw_device_ring *ring,
                                            const struct vw_chain *chains, uint32_t count)
{
    ring->ops->give_back(ring, chains, count);
}

/*
 * Writes chains to the used side, with chain->written bytes each; the driver does not see them.
 * Chains that were fetched before a ring broke may still be used and published.
 */
static inline void vw_device_ring_use(struct vw_device_ring *ring, const struct vw_chain *chains,
                                      uint32_t count)
{
    ring->ops->use(ring, chains, count);
}

/* Makes all used chains visible. Returns true if the driver is to be called; false if broken. */
static inline bool vw_device_ring_publish(struct vw_device_ring *ring)
{
    return ring->ops->publish(ring);
}

/*
 * The two halves of publish, for a device that puts the decision off (section 5.1.6.5.9,
 * notification coalescing). expose makes all used chains visible, and returns true if there is an
 * urgent one among them, so that the decision may not wait. decide takes one decision for all that
 * became visible since the last one; nothing may be used and not exposed at that time.
 */
static inline bool vw_device_ring_expose(struct vw_device_ring *ring)
{
    return ring->ops->expose(ring);
}

static inline bool vw_device_ring_decide(struct vw_device_ring *ring)
{
    return ring->ops->decide(ring);
}

/* Is there anything that decide would decide about? */
static inline bool vw_device_ring_undecided(const struct vw_device_ring *ring)
{
    return ring->undecided > 0;
}

/*
 * Asks the driver for a kick with the next chain that we have not had yet. Returns true if there
 * is none so far, so that the caller may sleep; false if there is work already. Chains that are
 * out, and chains that were given back, do not count: a caller that waits for more buffers than
 * there are may keep or give back what it has, arm, and sleep. True on a broken ring.
 */
static inline bool vw_device_ring_arm(struct vw_device_ring *ring)
{
    return ring->ops->arm(ring);
}

/* Tells the driver that no kick is needed. A hint: kicks may come all the same. */
static inline void vw_device_ring_disarm(struct vw_device_ring *ring)
{
    ring->ops->disarm(ring);
}

/* Is there an available chain? Reads the ring, changes nothing. False on a broken ring. */
static inline bool vw_device_ring_pending(struct vw_device_ring *ring)
{
    return ring->ops->pending(ring);
}

#endif
