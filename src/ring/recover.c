/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/recover.h"

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "ring/descriptor.h"

/* A look at the ring, oldest entry first. */
struct walk {
    struct vring_packed_desc *descriptors;
    uint32_t size, left;
    uint16_t position;
    bool wrap; /* of the round in which the entry was written, if it is not ahead */
};

struct chain {
    uint16_t position, flags, id;
    bool wrap;
    uint32_t slots; /* 0: there is no chain */
};

static uint16_t flags_at(const struct walk *walk, uint32_t position)
{
    return vw_acquire_le16(&walk->descriptors[position].flags);
}

static uint16_t id_at(const struct walk *walk, uint32_t position)
{
    return vw_load_le16(&walk->descriptors[position].id);
}

static bool round_of(const struct walk *walk, uint32_t position)
{
    return (flags_at(walk, position) & VW_PACKED_AVAILABLE) != 0;
}

static void step(struct walk *walk, uint32_t slots)
{
    vw_packed_advance(&walk->position, &walk->wrap, slots, walk->size);
    walk->left -= slots;
}

/* Was the entry made available in the round after the walk's? */
static bool is_ahead(const struct walk *walk)
{
    return vw_packed_is_available(flags_at(walk, walk->position), !walk->wrap);
}

/*
 * A driver writes what it adds, all but the first flags, before it publishes: behind its place, a
 * run of entries may be a round ahead, and none else. Begins the walk behind them, if the driver
 * may be at this place.
 */
static bool begin(struct walk *walk, uint32_t place)
{
    walk->position = (uint16_t)place;
    walk->wrap = round_of(walk, place);
    walk->left = walk->size;

    struct walk next = *walk;
    step(&next, 1);
    while (next.left > 0 && is_ahead(&next)) {
        step(&next, 1);
        *walk = next;
    }
    for (; next.left > 0; step(&next, 1))
        if (round_of(&next, next.position) != next.wrap)
            return false;
    return true;
}

/* Of an honest driver there are three flips at most. */
#define FLIPS 4

/* The driver's place: where the round flips, and the fewest entries are ahead. */
static uint16_t find_driver(struct walk *walk)
{
    uint32_t best = 0, flips = 0, left = 0;

    for (uint32_t place = 0; place < walk->size && flips < FLIPS; place++) {
        if (place > 0 && round_of(walk, place) == round_of(walk, place - 1))
            continue;
        flips++;
        if (begin(walk, place) && walk->left > left) {
            left = walk->left;
            best = place;
        }
    }
    begin(walk, best);
    return vw_packed_encode((uint16_t)best, !round_of(walk, best));
}

static bool used(const struct walk *walk)
{
    return vw_packed_is_used(flags_at(walk, walk->position), walk->wrap);
}

/* The chain that seems to be available here. */
static struct chain chain_at(struct walk walk)
{
    struct chain chain = {
        .position = walk.position, .wrap = walk.wrap, .flags = flags_at(&walk, walk.position)};
    uint16_t flags;

    do {
        flags = flags_at(&walk, walk.position);
        if (!vw_packed_is_available(flags, walk.wrap))
            break;
        chain.id = id_at(&walk, walk.position);
        chain.slots++;
        step(&walk, 1);
    } while (flags & VRING_DESC_F_NEXT && walk.left > 0);
    return chain;
}

/* Does a later used descriptor, or the last one of a later chain, bear this id? */
static bool comes_again(struct walk walk, const struct chain *chain, bool in_order)
{
    for (step(&walk, chain->slots); walk.left > 0; step(&walk, 1)) {
        bool last = !(flags_at(&walk, walk.position) & VRING_DESC_F_NEXT) && !in_order;

        if ((used(&walk) || last) && id_at(&walk, walk.position) == chain->id)
            return true;
    }
    return false;
}

/* Behind a used descriptor: the rest of its chain, and with IN_ORDER the chains that it covers. */
static void skip_used(struct walk *walk, bool in_order)
{
    bool chained = (flags_at(walk, walk->position) & VRING_DESC_F_NEXT) != 0;
    bool written = vw_shared_load(&walk->descriptors[walk->position].addr) != 0; /* ever */
    uint16_t id = id_at(walk, walk->position);
    struct chain chain = {0};

    step(walk, 1);
    if (chained && walk->left > 0) {
        chain = chain_at(*walk);
        step(walk, chain.slots);
    }
    if (!in_order || !written || (chain.slots > 0 && chain.id == id))
        return;
    struct walk further = *walk;
    while (further.left > 0 && (chain = chain_at(further)).slots > 0) {
        step(&further, chain.slots);
        if (chain.id == id) {
            *walk = further;
            return;
        }
    }
}

/*
 * Of the chains from `walk` to a used descriptor where `left` entries are left, the one that hides
 * it, with the descriptor that was to be published last: the one right before it; with IN_ORDER
 * that may stand for several, and then bears the last one's id.
 */
static struct chain find_hiding(struct walk walk, uint32_t left, bool in_order)
{
    struct chain chain, last = {0};

    for (struct walk next = walk; next.left > left;
         step(&next, chain.slots > 0 ? chain.slots : 1)) {
        chain = chain_at(next);
        if (chain.slots > 0)
            last = chain;
    }
    while (in_order && walk.left > left) {
        chain = chain_at(walk);
        if (chain.slots > 0 && id_at(&walk, walk.position) == last.id)
            return chain;
        step(&walk, chain.slots > 0 ? chain.slots : 1);
    }
    return last;
}

/* What publish would have stored. Not if it is no longer what was seen: a driver would have written
 * it, and this was no chain. */
static void complete(const struct walk *walk, const struct chain *chain)
{
    struct vring_packed_desc *descriptor = &walk->descriptors[chain->position];
    uint16_t flags = vw_packed_used_bits(chain->wrap), seen = htole16(chain->flags);

    flags |= chain->flags & VRING_DESC_F_NEXT;
    if (vw_load_le32(&descriptor->len) > 0)
        flags |= VRING_DESC_F_WRITE;
    __atomic_compare_exchange_n(&descriptor->flags, &seen, htole16(flags), false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

uint32_t vw_packed_recover(const struct vw_ring_config *config)
{
    bool in_order = vw_has(config->features, VIRTIO_F_IN_ORDER), leading = true;
    struct walk walk = {.descriptors = config->descriptor_area, .size = config->size};
    struct walk open = {0}; /* at the first chain that is not used; left 0: none so far */
    uint16_t place = find_driver(&walk);

    while (walk.left > 0) {
        struct chain chain = chain_at(walk);

        if (used(&walk)) {
            if (open.left > 0) {
                chain = find_hiding(open, walk.left, in_order);
                complete(&walk, &chain);
            }
            open.left = 0;
            skip_used(&walk, in_order);
        } else {
            bool stale = chain.slots == 0 || (leading && comes_again(walk, &chain, in_order));

            if (!stale && open.left == 0)
                open = walk;
            step(&walk, chain.slots > 0 ? chain.slots : 1);
        }
        leading = false;
    }
    if (open.left > 0)
        place = vw_packed_encode(open.position, open.wrap);
    return (uint32_t)place << 16 | place;
}
