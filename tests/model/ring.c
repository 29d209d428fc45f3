/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our driver half against our device half, by random operations, beside a model that knows the
 * answer to each of them.
 *
 * Theory of operation
 * -------------------
 * The model numbers buffers in the order of adding, and counts: added >= published >= fetched and
 * used >= visible >= reaped. It keeps each place in two units, buffers and ring entries, because
 * split rings count in the first and packed rings in the second. From those it predicts every
 * chain, every completion, and every decision about a kick or a call, exactly. (Where the device
 * puts call decisions off over more than a packed ring's size, an event word may be taken for an
 * older one; then the decision must only be right for the last round.)
 *
 * A buffer's bytes follow from its number. Driver and device see them through different mappings
 * and addresses, and regions end in the middle of buffers.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "base/urgent.h"
#include "random.h"

#define UNTOUCHED 0xa5

/* When the other side is to be notified: always, never, or as a place is passed. */
struct want {
    enum { ALWAYS, NEVER, AT } kind;
    uint64_t place;
};

/* A place on the way round and round: in buffers and in ring entries. */
struct place {
    uint64_t buffers;
    uint64_t slots;
};

/* One for each room of payload; a buffer in flight has the room to itself. */
struct buffer {
    uint64_t number;
    uint32_t readable, writable; /* bytes */
    uint32_t written;
    uint32_t slots;
    bool urgent;
    struct vw_chain chain;
};

struct model {
    uint64_t seed;
    struct random random;
    struct world *world;
    struct pair pair;
    enum vw_ring_format format;
    bool event_index, in_order, urgent;
    uint32_t size, room; /* room: bytes of payload for each buffer */
    char *payload;       /* `size` rooms */
    struct buffer *buffers;
    uint32_t *free; /* rooms that are free, a stack */
    uint32_t free_count;
    uint32_t *add_order;  /* rooms by number modulo size, from the oldest fetched on */
    uint32_t *used_order; /* rooms by order of use modulo size, from the oldest reaped on */
    uint32_t *out;        /* rooms that the device has, in the order of fetching */
    uint32_t out_count;
    struct vw_segment *segments;
    struct vw_completion *completions;
    struct vw_chain *chains;
    struct iovec *iov;
    uint32_t max_segments, iov_capacity;

    struct place added, published, fetched, high; /* high: the furthest ever fetched */
    struct place used, visible, reaped;
    struct place decided_to;          /* the device has decided about calls up to here */
    bool urgent_used, urgent_visible; /* of what is not visible, or not decided about, yet */
    struct want kick, call;
    bool decided; /* the device's first call decision is behind */
    uint64_t operations;
};

#define CHECK(model, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s; VW_SEED=%#llx size %u operation %llu", #condition,                       \
                     (unsigned long long)(model)->seed, (model)->size,                             \
                     (unsigned long long)(model)->operations);                                     \
    } while (0)

static bool packed(const struct model *model)
{
    return model->format == VW_RING_PACKED;
}

static uint64_t units(const struct model *model, const struct place *place)
{
    return packed(model) ? place->slots : place->buffers;
}

static char *room_of(const struct model *model, const struct buffer *buffer)
{
    return model->payload + (uint64_t)(buffer - model->buffers) * model->room;
}

static uint8_t byte_of(uint64_t number, uint32_t offset, bool written)
{
    return (uint8_t)((number * 31 + offset * 7 + (offset >> 8)) ^ (written ? 0x3c : 0));
}

/*
 * Does moving from `from` to `to` pass the place? Event words have 16 bits in a split ring; in a
 * packed one they tell two rounds apart. So old places come round again.
 */
static bool passes(const struct model *model, const struct want *want, uint64_t from, uint64_t to)
{
    uint64_t modulus = packed(model) ? 2 * (uint64_t)model->size : 65536;
    uint64_t ahead = (want->place % modulus + modulus - from % modulus) % modulus;

    if (want->kind != AT)
        return want->kind == ALWAYS;
    return ahead < to - from;
}

/* Random lengths of `count` segments that fit into `bytes`; some are 0. */
static uint32_t fill_segments(struct model *model, uint32_t count, uint32_t bytes, uint64_t address,
                              uint32_t from)
{
    uint32_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t left = bytes - total;
        uint32_t length = left == 0 ? 0 : random_below(&model->random, left / (count - i) * 2 + 2);

        if (length > left || random_one_in(&model->random, 20))
            length = left < 1 ? 0 : random_below(&model->random, 2);
        model->segments[from + i] = (struct vw_segment){address + total, length};
        total += length;
    }
    return total;
}

static uint32_t random_segments(struct model *model)
{
    uint32_t limit = model->max_segments;

    if (random_one_in(&model->random, 100) && model->pair.driver.free == model->size)
        limit = model->size;
    else if (limit > 6 && !random_one_in(&model->random, 20))
        limit = 6;
    if (limit == model->size && random_one_in(&model->random, 4))
        return limit;
    return 1 + random_below(&model->random, limit);
}

/* The driver's side of a buffer: readable bytes have their values, writable ones a mark. */
static void prepare_room(struct model *model, const struct buffer *buffer)
{
    char *room = room_of(model, buffer);

    for (uint32_t i = 0; i < buffer->readable; i++)
        room[i] = (char)byte_of(buffer->number, i, false);
    memset(room + buffer->readable, UNTOUCHED, model->room - buffer->readable);
}

/* A buffer of one segment as a burst of one. */
static int add_plain(struct vw_driver_ring *ring, const struct vw_segment *segments,
                     uint32_t readable, uint32_t writable, void *token)
{
    const struct vw_plain_buffer buffer = {segments[0], token};

    (void)writable;
    uint32_t added = readable ? vw_driver_ring_add_readable(ring, &buffer, 1)
                              : vw_driver_ring_add_writable(ring, &buffer, 1);
    return added == 1 ? 0 : -ENOSPC;
}

static bool add_one(struct model *model)
{
    struct vw_driver_ring *ring = &model->pair.driver;
    uint64_t number = model->added.buffers;
    uint32_t count = random_segments(model), free = ring->free;
    uint32_t readable = random_below(&model->random, count + 1);

    int (*add)(struct vw_driver_ring *, const struct vw_segment *, uint32_t, uint32_t, void *) =
        vw_driver_ring_add;

    if (model->free_count == 0) { /* as many buffers as entries are in flight */
        CHECK(model, vw_driver_ring_add(ring, model->segments, 1, 0, model) == -ENOSPC);
        return false;
    }
    uint32_t room = model->free[model->free_count - 1];
    struct buffer *buffer = &model->buffers[room];
    if (random_one_in(&model->random, 2))
        readable = random_one_in(&model->random, 2) ? count : 0;
    uint64_t address = world_guest(model->world, room_of(model, buffer));
    *buffer = (struct buffer){.number = number};
    buffer->readable = fill_segments(model, readable, model->room / 2, address, 0);
    buffer->writable = fill_segments(model, count - readable, model->room - buffer->readable,
                                     address + buffer->readable, readable);
    prepare_room(model, buffer);
    if (count == 1 && random_one_in(&model->random, 2)) {
        add = add_plain;
    } else if (random_one_in(&model->random, 8)) {
        buffer->urgent = model->urgent;
        add = vw_driver_ring_add_urgent;
        if (!model->urgent) { /* refused, and nothing has happened */
            CHECK(model,
                  add(ring, model->segments, readable, count - readable, buffer) == -ENOTSUP);
            add = vw_driver_ring_add;
        }
    }
    int result = add(ring, model->segments, readable, count - readable, buffer);
    bool indirect = count > 1 && count <= ring->indirect.segments;
    buffer->slots = indirect ? 1 : count;
    CHECK(model, result == (buffer->slots <= free ? 0 : -ENOSPC));
    if (result != 0)
        return false;
    model->free_count--;
    model->add_order[number % model->size] = room;
    CHECK(model, ring->free == free - buffer->slots);
    model->added.buffers++;
    model->added.slots += buffer->slots;
    return true;
}

static void driver_publish(struct model *model)
{
    uint64_t from = units(model, &model->published), to = units(model, &model->added);
    bool kick = vw_driver_ring_publish(&model->pair.driver);

    CHECK(model, kick == (to != from && passes(model, &model->kick, from, to)));
    model->published = model->added;
}

/* What the device sees of a chain, through its own mapping, is what the driver put there. */
static void check_chain(struct model *model, const struct vw_chain *chain,
                        const struct buffer *buffer)
{
    uint32_t offset = 0, pieces = chain->readable_count + chain->writable_count;

    CHECK(model, chain->readable_length == buffer->readable);
    CHECK(model, chain->writable_length == buffer->writable);
    CHECK(model, chain->slots == (packed(model) ? buffer->slots : 1));
    CHECK(model, chain->urgent == buffer->urgent);
    for (uint32_t i = 0; i < pieces; i++) {
        const uint8_t *bytes = chain->iov[i].iov_base;

        CHECK(model, chain->iov[i].iov_len > 0);
        for (size_t j = 0; j < chain->iov[i].iov_len; j++, offset++)
            CHECK(model,
                  bytes[j] == (i < chain->readable_count ? byte_of(buffer->number, offset, false)
                                                         : UNTOUCHED));
        CHECK(model, i + 1 != chain->readable_count || offset == buffer->readable);
    }
    CHECK(model, offset == buffer->readable + buffer->writable);
}

/* The chain stays out: its pieces are copied, for the pool is used again. */
static void take_chain(struct model *model, const struct vw_chain *chain)
{
    uint32_t room = model->add_order[model->fetched.buffers % model->size];
    struct buffer *buffer = &model->buffers[room];
    uint32_t pieces = chain->readable_count + chain->writable_count;

    CHECK(model, model->fetched.buffers < model->published.buffers);
    check_chain(model, chain, buffer);
    buffer->chain = *chain;
    buffer->chain.iov = malloc((pieces + 1) * sizeof(struct iovec));
    assert_non_null(buffer->chain.iov);
    memcpy(buffer->chain.iov, chain->iov, pieces * sizeof(struct iovec));
    model->out[model->out_count++] = room;
    model->fetched.buffers++;
    model->fetched.slots += buffer->slots;
}

static void device_fetch(struct model *model, uint32_t max)
{
    uint32_t longest = 2 * model->size + 16; /* pieces, with room for the ends of regions */
    struct vw_iov_pool pool = {.iov = model->iov, .headroom = random_below(&model->random, 3)};

    pool.capacity = longest + random_below(&model->random, model->iov_capacity - longest + 1);
    uint32_t count = vw_device_ring_fetch(&model->pair.device, model->chains, max, &pool);
    CHECK(model, model->pair.device.error == VW_RING_OK);
    CHECK(model, count > 0 || max == 0 || model->fetched.buffers == model->published.buffers);
    for (uint32_t i = 0; i < count; i++)
        take_chain(model, &model->chains[i]);
    if (model->fetched.buffers > model->high.buffers)
        model->high = model->fetched;
}

/* The newest chains go back, newest first, as far as they are all out. */
static void device_give_back(struct model *model, uint32_t max)
{
    uint32_t count = 0;

    while (count < max && model->out_count > 0) {
        struct buffer *buffer = &model->buffers[model->out[model->out_count - 1]];

        if (buffer->number != model->fetched.buffers - 1)
            break;
        model->out_count--;
        free(buffer->chain.iov);
        model->fetched.buffers--;
        model->fetched.slots -= buffer->slots;
        count++;
        model->chains[model->size - count] = buffer->chain;
    }
    if (count > 0)
        vw_device_ring_give_back(&model->pair.device, &model->chains[model->size - count], count);
}

/* Writes what the device writes, from the first writable byte. */
static void write_payload(struct model *model, struct buffer *buffer)
{
    const struct iovec *piece = buffer->chain.iov + buffer->chain.readable_count;
    uint32_t offset = 0;

    buffer->written =
        random_one_in(&model->random, 3) ? 0 : random_below(&model->random, buffer->writable + 1);
    for (; offset < buffer->written; piece++) {
        uint8_t *bytes = piece->iov_base;

        for (size_t j = 0; j < piece->iov_len && offset < buffer->written; j++)
            bytes[j] = byte_of(buffer->number, offset++, true);
    }
    buffer->chain.written = buffer->written;
}

/* Not even in the order of fetching: exchanges the first and the last of `count` used chains. */
static void exchange(struct model *model, uint32_t count)
{
    uint32_t *first = &model->used_order[(model->used.buffers - count) % model->size];
    uint32_t *last = &model->used_order[(model->used.buffers - 1) % model->size];
    struct vw_chain chain = model->chains[0];
    uint32_t room = *first;

    model->chains[0] = model->chains[count - 1];
    model->chains[count - 1] = chain;
    *first = *last;
    *last = room;
}

/* Uses up to `max` chains in one call: the oldest ones, or any when the order is free. */
static void device_use(struct model *model, uint32_t max)
{
    uint32_t count = 0, left = 0;

    for (uint32_t i = 0; i < model->out_count; i++) {
        uint32_t room = model->out[i];
        struct buffer *buffer = &model->buffers[room];

        if (count == max || (!model->in_order && random_one_in(&model->random, 3))) {
            model->out[left++] = room;
            continue;
        }
        write_payload(model, buffer);
        free(buffer->chain.iov);
        model->used_order[model->used.buffers % model->size] = room;
        model->used.buffers++;
        model->used.slots += buffer->slots;
        model->urgent_used |= buffer->urgent;
        model->chains[count++] = buffer->chain;
    }
    model->out_count = left;
    if (!model->in_order && count > 1 && random_one_in(&model->random, 2))
        exchange(model, count);
    vw_device_ring_use(&model->pair.device, model->chains, count);
}

static void used_is_visible(struct model *model)
{
    model->visible = model->used;
    model->urgent_visible |= model->urgent_used;
    model->urgent_used = false;
}

/* The device has decided about everything visible. */
static void check_call(struct model *model, bool call)
{
    uint64_t from = units(model, &model->decided_to), to = units(model, &model->visible);
    uint64_t round = to - from > model->size ? to - model->size : from;

    if (from == to)
        CHECK(model, !call);
    else if (!model->decided || model->urgent_visible)
        CHECK(model, call);
    else if (call)
        CHECK(model, passes(model, &model->call, from, to));
    else
        CHECK(model, !passes(model, &model->call, packed(model) ? round : from, to));
    model->decided |= from != to;
    model->decided_to = model->visible;
    model->urgent_visible = false;
}

static void device_publish(struct model *model)
{
    bool call = vw_device_ring_publish(&model->pair.device);

    used_is_visible(model);
    check_call(model, call);
}

static void device_expose(struct model *model)
{
    bool used = model->used.buffers != model->visible.buffers;
    bool at_once = vw_device_ring_expose(&model->pair.device);

    used_is_visible(model);
    CHECK(model, at_once == (used && model->urgent_visible));
    CHECK(model, vw_device_ring_undecided(&model->pair.device) ==
                     (model->decided_to.buffers != model->visible.buffers));
    if (random_one_in(&model->random, 2))
        check_call(model, vw_device_ring_decide(&model->pair.device));
}

static void device_arm(struct model *model)
{
    bool sleep = vw_device_ring_arm(&model->pair.device);

    CHECK(model, sleep == (model->high.buffers == model->published.buffers));
    model->kick = (struct want){model->event_index ? AT : ALWAYS, units(model, &model->high)};
}

static void device_disarm(struct model *model)
{
    vw_device_ring_disarm(&model->pair.device);
    if (packed(model) || !model->event_index)
        model->kick.kind = NEVER;
}

static void check_completion(struct model *model, const struct vw_completion *completion)
{
    uint32_t room = model->used_order[model->reaped.buffers % model->size];
    struct buffer *buffer = &model->buffers[room];
    const uint8_t *bytes = (const uint8_t *)room_of(model, buffer) + buffer->readable;

    CHECK(model, model->reaped.buffers < model->visible.buffers);
    CHECK(model, completion->token == buffer);
    CHECK(model, completion->length == buffer->written);
    for (uint32_t i = 0; i < buffer->writable; i++)
        CHECK(model,
              bytes[i] == (i < buffer->written ? byte_of(buffer->number, i, true) : UNTOUCHED));
    model->free[model->free_count++] = room;
    model->reaped.buffers++;
    model->reaped.slots += buffer->slots;
}

static void driver_reap(struct model *model, uint32_t max)
{
    uint32_t count = vw_driver_ring_reap(&model->pair.driver, model->completions, max);

    CHECK(model, model->pair.driver.error == VW_RING_OK);
    CHECK(model, count > 0 || max == 0 || model->reaped.buffers == model->visible.buffers);
    for (uint32_t i = 0; i < count; i++)
        check_completion(model, &model->completions[i]);
}

static void driver_enable(struct model *model)
{
    uint32_t position = vw_driver_ring_enable_calls_prepare(&model->pair.driver);

    CHECK(model, vw_driver_ring_poll(&model->pair.driver, position) ==
                     (model->reaped.buffers != model->visible.buffers));
    model->call = (struct want){model->event_index ? AT : ALWAYS, units(model, &model->reaped)};
}

static void driver_enable_delayed(struct model *model)
{
    uint64_t wait = (units(model, &model->published) - units(model, &model->reaped)) * 3 / 4;
    bool armed = vw_driver_ring_enable_calls_delayed(&model->pair.driver);
    uint64_t done = model->visible.buffers - model->reaped.buffers;

    CHECK(model, armed == (packed(model) ? done == 0 : done <= wait));
    model->call =
        (struct want){model->event_index ? AT : ALWAYS, units(model, &model->reaped) + wait};
}

static void driver_disable(struct model *model)
{
    bool enabled = model->pair.driver.calls_enabled;

    vw_driver_ring_disable_calls(&model->pair.driver);
    if (packed(model) || !model->event_index)
        model->call.kind = NEVER;
    else if (enabled)
        model->call.place = model->reaped.buffers - 1 - model->size;
}

/* Another device goes on where this one stood, which it can when nothing is out. */
static void hand_over(struct model *model)
{
    struct vw_device_ring *ring = &model->pair.device;
    uint32_t base = vw_device_ring_base(ring);

    if (model->used.buffers != model->fetched.buffers ||
        model->visible.buffers != model->used.buffers)
        return;
    CHECK(model, vw_device_ring_init(ring, &model->pair.device_config, &model->world->memory) == 0);
    CHECK(model, vw_device_ring_set_base(ring, base) == 0);
    CHECK(model, vw_device_ring_base(ring) == base);
    model->decided = model->urgent_visible = false;
    model->decided_to = model->visible;
    model->high = model->fetched;
    model->kick =
        (struct want){packed(model) || !model->event_index ? ALWAYS : AT, model->fetched.buffers};
}

/* Bursts are mostly short, sometimes as long as the ring. */
static uint32_t burst(struct model *model)
{
    uint32_t limit = random_one_in(&model->random, 4) ? model->size : model->size / 8 + 1;

    return 1 + random_below(&model->random, limit);
}

static void add_burst(struct model *model)
{
    uint32_t count = burst(model);

    while (count-- > 0 && add_one(model))
        ;
}

static void step(struct model *model)
{
    model->operations++;
    switch (random_below(&model->random, 16)) {
    case 0 ... 1:
        add_burst(model);
        break;
    case 2 ... 3:
        driver_publish(model);
        break;
    case 4 ... 5:
        device_fetch(model, burst(model));
        break;
    case 6:
        device_give_back(model, burst(model));
        break;
    case 7 ... 8:
        device_use(model, burst(model));
        break;
    case 9:
        random_one_in(&model->random, 2) ? device_publish(model) : device_expose(model);
        break;
    case 10 ... 11:
        driver_reap(model, burst(model));
        break;
    case 12:
        random_one_in(&model->random, 2) ? device_arm(model) : device_disarm(model);
        break;
    case 13:
        random_one_in(&model->random, 2) ? driver_enable(model) : driver_enable_delayed(model);
        break;
    case 14:
        driver_disable(model);
        break;
    default:
        hand_over(model);
    }
    CHECK(model, vw_device_ring_pending(&model->pair.device) ==
                     (model->fetched.buffers != model->published.buffers));
    CHECK(model, vw_driver_ring_in_flight(&model->pair.driver) ==
                     model->added.buffers - model->reaped.buffers);
}

/* At the end everything comes back. */
static void drain(struct model *model)
{
    driver_publish(model);
    while (model->fetched.buffers != model->published.buffers)
        device_fetch(model, model->size);
    while (model->used.buffers != model->fetched.buffers)
        device_use(model, model->size);
    device_publish(model);
    while (model->reaped.buffers != model->visible.buffers)
        driver_reap(model, model->size);
    CHECK(model, model->reaped.buffers == model->added.buffers);
    CHECK(model, model->pair.driver.free == model->size);
    CHECK(model, model->pair.device.out == 0);
    CHECK(model, model->pair.device.urgent_out == 0);
    CHECK(model, model->free_count == model->size);
}

static void model_open(struct model *model, enum vw_ring_format format, uint32_t size,
                       uint64_t features, uint64_t seed)
{
    uint32_t room = size <= 8 ? 1500 : size <= 256 ? 160 : 72;
    uint32_t indirect = size > 256 ? 3 : 12;

    memset(model, 0, sizeof(*model));
    uint64_t rings = ((uint64_t)size * 26 + 64 + 4095) / 4096 * 4096;
    uint64_t payload = (uint64_t)size * (room + indirect * 16) + 4096;
    uint64_t region = (payload / 400 + 4095) / 4096 * 4096; /* no multiple of a room */
    model->world = world_open(rings, (unsigned)(payload / region) + 1, region);
    model->seed = seed;
    model->random.state = seed;
    model->format = format;
    model->size = size;
    model->room = room;
    model->event_index = vw_has(features, VIRTIO_RING_F_EVENT_IDX);
    model->in_order = vw_has(features, VIRTIO_F_IN_ORDER);
    model->urgent = vw_has(features, VW_F_URGENT);
    pair_start(&model->pair, model->world, format, size, features,
               vw_has(features, VIRTIO_RING_F_INDIRECT_DESC) ? indirect : 0);
    model->payload = world_allocate(model->world, (uint64_t)size * room, 8);
    model->max_segments = size < 20 ? size : 20;
    model->iov_capacity = 6 * size + 256;
    model->buffers = calloc(size, sizeof(*model->buffers));
    model->free = calloc(size, sizeof(*model->free));
    model->add_order = calloc(size, sizeof(*model->add_order));
    model->used_order = calloc(size, sizeof(*model->used_order));
    model->out = calloc(size, sizeof(*model->out));
    model->segments = calloc(size, sizeof(*model->segments));
    model->completions = calloc(size, sizeof(*model->completions));
    model->chains = calloc(size, sizeof(*model->chains));
    model->iov = calloc(model->iov_capacity, sizeof(*model->iov));
    for (uint32_t i = 0; i < size; i++)
        model->free[model->free_count++] = i;
    model->kick.kind = model->call.kind =
        format == VW_RING_SPLIT && model->event_index ? AT : ALWAYS;
}

static void model_close(struct model *model)
{
    pair_stop(&model->pair);
    world_close(model->world);
    free(model->buffers);
    free(model->free);
    free(model->add_order);
    free(model->out);
    free(model->used_order);
    free(model->segments);
    free(model->completions);
    free(model->chains);
    free(model->iov);
}

/* Every combination of features; indices pass 65536 in split rings of 256 and of 32768. */
static void run(enum vw_ring_format format, uint32_t size)
{
    uint64_t buffers = size > 256 ? 3 * size : 3000;

    if (size == 256 && format == VW_RING_SPLIT)
        buffers = 70000;

    for (unsigned i = 0; i < 16; i++) {
        uint64_t features = (i & 1 ? vw_bit(VIRTIO_RING_F_INDIRECT_DESC) : 0) |
                            (i & 2 ? vw_bit(VIRTIO_RING_F_EVENT_IDX) : 0) |
                            (i & 4 ? vw_bit(VIRTIO_F_IN_ORDER) : 0) |
                            (i & 8 ? vw_bit(VW_F_URGENT) : 0);
        struct model model;

        model_open(&model, format, size, features, random_seed() + i);
        while (model.reaped.buffers < buffers)
            step(&model);
        drain(&model);
        model_close(&model);
    }
}

#define RING(name, format, size)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run(format, size);                                                                         \
    }

RING(split_1, VW_RING_SPLIT, 1)
RING(split_2, VW_RING_SPLIT, 2)
RING(split_4, VW_RING_SPLIT, 4)
RING(split_8, VW_RING_SPLIT, 8)
RING(split_256, VW_RING_SPLIT, 256)
RING(split_32768, VW_RING_SPLIT, 32768)
RING(packed_1, VW_RING_PACKED, 1)
RING(packed_2, VW_RING_PACKED, 2)
RING(packed_5, VW_RING_PACKED, 5)
RING(packed_8, VW_RING_PACKED, 8)
RING(packed_255, VW_RING_PACKED, 255)
RING(packed_256, VW_RING_PACKED, 256)
RING(packed_32768, VW_RING_PACKED, 32768)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_1),      cmocka_unit_test(split_2),    cmocka_unit_test(split_4),
        cmocka_unit_test(split_8),      cmocka_unit_test(split_256),  cmocka_unit_test(split_32768),
        cmocka_unit_test(packed_1),     cmocka_unit_test(packed_2),   cmocka_unit_test(packed_5),
        cmocka_unit_test(packed_8),     cmocka_unit_test(packed_255), cmocka_unit_test(packed_256),
        cmocka_unit_test(packed_32768),
    };

    printf("# VW_SEED=%#llx\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
