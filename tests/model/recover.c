/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packed ring's device is killed at any step, and another one finds its place from the ring.
 *
 * Theory of operation
 * -------------------
 * The driver half adds chains of random lengths and publishes them, or has not yet. The device half
 * fetches them, uses them in order, in one call or several, publishes; and then it is forgotten and
 * another one is set up with what vw_packed_recover says. A plain list of the chains' lengths knows
 * where it must stand: behind everything published, and everything of an unpublished batch of two
 * used descriptors or more, which the driver must then see as well, with its lengths.
 *
 * Where the driver's place lies within an old chain, that one's id did not come again, and no used
 * descriptor is left, the ring does not tell; no device is killed there, but these are counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "base/shared.h"
#include "random.h"
#include "ring/recover.h"

#define BUFFER 64

/* A chain, by its number modulo the ring's size. */
struct buffer {
    uint64_t number;
    uint64_t place; /* ring entries before it, since the beginning */
    uint32_t slots, written;
    uint16_t id;
    bool headed; /* it got a used descriptor of its own */
};

struct model {
    struct random random;
    struct world *world;
    struct pair pair;
    uint32_t size, longest;
    bool in_order, writable;
    char *payload;
    struct buffer *buffers;
    struct vw_chain *chains; /* fetched, from `used` on */
    struct iovec *iov;
    uint64_t added, published, fetched, used, visible, reaped; /* buffers */
    uint64_t added_slots;
    uint32_t batch; /* used descriptors of the unpublished batch */
    uint64_t kills, batches_completed, unknown;
};

static struct buffer *buffer_at(const struct model *model, uint64_t number)
{
    return &model->buffers[number % model->size];
}

static uint64_t place_of(const struct model *model, uint64_t number)
{
    return number == model->added ? model->added_slots : buffer_at(model, number)->place;
}

static void add(struct model *model)
{
    struct vw_segment segments[8];
    uint32_t count = 1 + random_below(&model->random, model->longest);
    uint32_t readable = model->writable ? 0 : count;
    struct buffer *buffer = buffer_at(model, model->added);
    uint64_t address = world_guest(model->world, model->payload);

    if (model->added - model->reaped == model->size)
        return;
    for (uint32_t i = 0; i < count; i++)
        segments[i] = (struct vw_segment){address + (uint64_t)i * BUFFER, BUFFER};
    bool indirect = count > 1 && count <= model->pair.driver.indirect.segments;
    struct buffer filled = {
        .number = model->added, .place = model->added_slots, .slots = indirect ? 1 : count};
    if (vw_driver_ring_add(&model->pair.driver, segments, readable, count - readable, buffer) != 0)
        return;
    const struct vring_packed_desc *ring = model->pair.driver_config.descriptor_area;
    filled.id = vw_load_le16(&ring[filled.place % model->size].id);
    *buffer = filled;
    model->added++;
    model->added_slots += filled.slots;
}

static void fetch(struct model *model, uint32_t max)
{
    struct vw_iov_pool pool = {.iov = model->iov, .capacity = 8 * model->size};
    uint32_t out = (uint32_t)(model->fetched - model->used);
    uint32_t count = vw_device_ring_fetch(&model->pair.device, &model->chains[out], max, &pool);

    assert_int_equal(model->pair.device.error, VW_RING_OK);
    for (uint32_t i = 0; i < count; i++) {
        const struct buffer *buffer = buffer_at(model, model->fetched + i);

        assert_true(model->fetched + i < model->published);
        assert_int_equal(model->chains[out + i].slots, buffer->slots);
    }
    assert_true(count == max || model->fetched + count == model->published);
    model->fetched += count;
}

static void use(struct model *model, uint32_t max)
{
    uint32_t out = (uint32_t)(model->fetched - model->used), count = max < out ? max : out;

    for (uint32_t i = 0; i < count; i++) {
        struct buffer *buffer = buffer_at(model, model->used + i);

        buffer->headed = i == 0 || !model->in_order || model->writable;
        buffer->written = model->writable ? random_below(&model->random, BUFFER + 1) : 0;
        model->chains[i].written = buffer->written;
    }
    vw_device_ring_use(&model->pair.device, model->chains, count);
    memmove(model->chains, &model->chains[count], (out - count) * sizeof(*model->chains));
    model->used += count;
    /* With IN_ORDER, what has nothing to write becomes one used descriptor. */
    model->batch += model->in_order && !model->writable && count > 0 ? 1 : count;
}

static void publish(struct model *model)
{
    vw_device_ring_publish(&model->pair.device);
    model->visible = model->used;
    model->batch = 0;
}

static void reap(struct model *model, uint32_t max)
{
    struct vw_completion completions[8];
    uint32_t count = vw_driver_ring_reap(&model->pair.driver, completions, max);

    assert_int_equal(model->pair.driver.error, VW_RING_OK);
    for (uint32_t i = 0; i < count; i++, model->reaped++) {
        struct buffer *buffer = buffer_at(model, model->reaped);

        assert_true(model->reaped < model->visible);
        assert_ptr_equal(completions[i].token, buffer);
        assert_int_equal(completions[i].length, buffer->written);
    }
    assert_true(count == max || model->reaped == model->visible);
}

/* Is there a used descriptor, or the id of an old chain whose rest begins the ring, to tell? */
static bool told(const struct model *model)
{
    uint64_t end = place_of(model, model->published);
    uint64_t written = model->added_slots > end + 1 ? model->added_slots : end; /* it shows */
    uint64_t oldest = written - model->size;
    uint64_t number = model->published, used = model->batch > 1 ? model->used : model->visible;
    const struct buffer *buffer = NULL;

    if (model->added_slots - end == model->size)
        return false; /* all of the ring is about to be published, and looks as if it were */
    /* What is about to be published may be taken for the rest of an old chain, and the other way,
     * if there is much of it or the ring is nearly full. Of other drivers than ours it is never
     * more than one chain, and most leave room. */
    if (model->added > model->published && (model->longest > 1 || model->in_order) &&
        (model->added > model->published + 1 ||
         model->added_slots - place_of(model, model->reaped) + model->longest > model->size))
        return false;
    if (written < model->size)
        return true;
    while (number-- > 0 && number + model->size >= model->added) {
        buffer = buffer_at(model, number);
        if (buffer->place <= oldest)
            break;
        if (number < used && buffer->headed && buffer->place + model->size >= model->added_slots)
            return true;
    }
    if (buffer == NULL || buffer->place > oldest)
        return false;
    if (buffer->place == oldest)
        return number >= used ||
               (buffer->headed && (!model->in_order || model->added == model->published));
    for (uint64_t later = number + 1; later < model->published && !model->in_order; later++)
        if (buffer_at(model, later)->id == buffer->id)
            return model->added == model->published;
    return false;
}

/* The new device stands where the list says, and the driver sees what the old one had used. */
static void kill_device(struct model *model)
{
    if (!told(model)) {
        model->unknown++;
        return;
    }
    uint32_t base = vw_packed_recover(&model->pair.device_config);
    if (model->batch > 1) {
        model->visible = model->used;
        model->batches_completed++;
    }
    model->used = model->fetched = model->visible;
    model->batch = 0;
    uint64_t place = place_of(model, model->visible);
    uint32_t half = (uint32_t)(place % model->size) | (place / model->size % 2 ? 0 : 0x8000u);
    if (base != (half << 16 | half))
        fail_msg("base %#x, not %#x; VW_SEED size %u", base, half << 16 | half, model->size);
    int error =
        vw_device_ring_init(&model->pair.device, &model->pair.device_config, &model->world->memory);
    assert_int_equal(error, 0);
    assert_int_equal(vw_device_ring_set_base(&model->pair.device, base), 0);
    model->kills++;
}

static void step(struct model *model)
{
    uint32_t some = 1 + random_below(&model->random, 8);

    switch (random_below(&model->random, 12)) {
    case 0 ... 3:
        for (uint32_t i = 0; i < some; i++)
            add(model);
        break;
    case 4 ... 5:
        vw_driver_ring_publish(&model->pair.driver);
        model->published = model->added;
        break;
    case 6 ... 7:
        fetch(model, some);
        break;
    case 8:
        use(model, some);
        break;
    case 9:
        publish(model);
        break;
    case 10:
        reap(model, some);
        break;
    default:
        kill_device(model);
    }
}

static void run(uint32_t size, uint32_t longest, bool in_order, bool writable, uint32_t indirect)
{
    struct model model = {.random = {random_seed() + size * 8 + longest},
                          .size = size,
                          .longest = longest,
                          .in_order = in_order,
                          .writable = writable};
    uint64_t features = vw_bit(VIRTIO_F_VERSION_1) | (in_order ? vw_bit(VIRTIO_F_IN_ORDER) : 0) |
                        (indirect ? vw_bit(VIRTIO_RING_F_INDIRECT_DESC) : 0);

    model.world = world_open(1 << 20, 0, 0);
    pair_start(&model.pair, model.world, VW_RING_PACKED, size, features, indirect);
    model.payload = world_allocate(model.world, 8 * BUFFER, 8);
    model.buffers = calloc(size, sizeof(*model.buffers));
    model.chains = calloc(size, sizeof(*model.chains));
    model.iov = calloc(8 * size, sizeof(*model.iov));
    for (unsigned i = 0; i < 100000; i++)
        step(&model);
    printf("# %u entries, chains to %u, %s%s: %llu kills, %llu batches completed, %llu untold\n",
           size, longest, in_order ? "in order, " : "", writable ? "writable" : "readable",
           (unsigned long long)model.kills, (unsigned long long)model.batches_completed,
           (unsigned long long)model.unknown);
    assert_true(model.kills > 1000);
    assert_true(size < 4 || model.batches_completed > 100 || (in_order && !writable));
    pair_stop(&model.pair);
    world_close(model.world);
    free(model.buffers);
    free(model.chains);
    free(model.iov);
}

/* Any content: there is an end, and a place in the ring. */
static void hostile_rings(void **state)
{
    struct random random = {random_seed()};
    struct vring_packed_desc ring[9];

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        struct vw_ring_config config = {.format = VW_RING_PACKED, .descriptor_area = ring};

        config.size = 1 + random_below(&random, 9);
        config.features = random_one_in(&random, 2) ? vw_bit(VIRTIO_F_IN_ORDER) : 0;
        for (uint32_t j = 0; j < config.size; j++)
            ring[j] = (struct vring_packed_desc){.addr = random_below(&random, 2),
                                                 .len = random_below(&random, 2),
                                                 .id = (uint16_t)random_below(&random, 4),
                                                 .flags = (uint16_t)random_next(&random) & 0x8087};
        uint32_t base = vw_packed_recover(&config);
        assert_true((base & 0x7fff) < config.size);
        assert_int_equal(base >> 16, base & 0xffff);
    }
}

#define KILLED(name, longest, in_order, indirect)                                                  \
    static void name(void **state)                                                                 \
    {                                                                                              \
        static const uint32_t sizes[] = {1, 2, 5, 16, 256};                                        \
                                                                                                   \
        (void)state;                                                                               \
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)                            \
            for (unsigned writable = 0; writable < 2; writable++)                                  \
                run(sizes[i], longest, in_order, writable, indirect);                              \
    }

KILLED(single_entries, 1, false, 0)
KILLED(single_entries_in_order, 1, true, 0)
KILLED(indirect_tables, 4, false, 4)
KILLED(chains_of_several_entries, 4, false, 0)
KILLED(chains_of_several_entries_in_order, 4, true, 0)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_entries),
        cmocka_unit_test(single_entries_in_order),
        cmocka_unit_test(indirect_tables),
        cmocka_unit_test(chains_of_several_entries),
        cmocka_unit_test(chains_of_several_entries_in_order),
        cmocka_unit_test(hostile_rings),
    };

    printf("# VW_SEED=%#llx\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
