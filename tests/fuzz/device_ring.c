/* SPDX-License-Identifier: BSD-3-Clause */
/* The device half of a ring against any memory and any order of operations. */
#include "ring/device.h"
#include "ring_image.h"

#define MAX_OUT IMAGE_MAX_SIZE
#define POOL 48

struct target {
    struct image image;
    struct vw_device_ring ring;
    struct vw_chain chains[MAX_OUT]; /* out, oldest first */
    uint32_t out;
    struct iovec iov[POOL];
};

static void check_piece(const struct target *target, const struct iovec *piece)
{
    const char *start = piece->iov_base;
    bool inside = false;

    for (unsigned i = 0; i < IMAGE_REGIONS; i++) {
        const struct vw_memory_region *region = &target->image.memory.regions[i];

        inside |= start >= region->local && start < region->local + region->size &&
                  piece->iov_len <= (size_t)(region->local + region->size - start);
    }
    INVARIANT(piece->iov_len > 0 && inside);
}

static void check_chain(const struct target *target, const struct vw_chain *chain,
                        const struct vw_iov_pool *pool)
{
    uint64_t lengths[2] = {0, 0};
    uint32_t pieces = chain->readable_count + chain->writable_count;

    INVARIANT(chain->iov >= pool->iov + pool->headroom);
    INVARIANT(chain->iov + pieces <= pool->iov + pool->used);
    for (uint32_t i = 0; i < pieces; i++) {
        check_piece(target, &chain->iov[i]);
        lengths[i >= chain->readable_count] += chain->iov[i].iov_len;
    }
    INVARIANT(lengths[0] == chain->readable_length && lengths[1] == chain->writable_length);
    INVARIANT(lengths[0] + lengths[1] <= UINT32_MAX);
    INVARIANT(chain->slots >= 1 && chain->slots <= target->image.config.size);
}

static void fetch(struct target *target, struct input *input)
{
    uint8_t choice = input_byte(input);
    struct vw_iov_pool pool = {.iov = target->iov, .capacity = POOL, .headroom = choice >> 6};
    uint32_t max = choice & 63;
    bool broken = target->ring.error != VW_RING_OK;

    if (max > MAX_OUT - target->out)
        max = MAX_OUT - target->out;
    struct vw_chain *chains = &target->chains[target->out];
    uint32_t count = vw_device_ring_fetch(&target->ring, chains, max, &pool);
    INVARIANT(count <= max && pool.used <= POOL && !(broken && count > 0));
    for (uint32_t i = 0; i < count; i++)
        check_chain(target, &chains[i], &pool);
    target->out += count;
    INVARIANT(target->out <= target->image.config.size);
    INVARIANT(target->ring.out <= target->image.config.size);
    INVARIANT(target->ring.error < VW_RING_ERROR_COUNT);
}

static void use(struct target *target, struct input *input)
{
    uint32_t count = input_byte(input);

    if (count > target->out)
        count = target->out;
    for (uint32_t i = 0; i < count; i++)
        target->chains[i].written = target->chains[i].writable_length;
    vw_device_ring_use(&target->ring, target->chains, count);
    target->out -= count;
    memmove(target->chains, target->chains + count, target->out * sizeof(target->chains[0]));
}

static void give_back(struct target *target, struct input *input)
{
    uint32_t count = input_byte(input) & 7;

    if (count > target->out)
        count = target->out;
    target->out -= count;
    vw_device_ring_give_back(&target->ring, &target->chains[target->out], count);
}

/* Split: moves the index. Packed: offers a descriptor where the device looks next. */
static void make_available(struct target *target, struct input *input)
{
    uint8_t choice = input_byte(input);
    const struct vw_ring_config *config = &target->image.config;

    if (config->format == VW_RING_SPLIT) {
        struct vring_avail *available = config->driver_area;

        available->ring[choice >> 3 & (config->size - 1)] =
            (uint16_t)(input_byte(input) % config->size);
        available->idx = (uint16_t)(available->idx + (choice & 7));
    } else {
        struct vring_packed_desc *ring = config->descriptor_area;
        struct vring_packed_desc *descriptor = &ring[target->ring.next_available];

        descriptor->flags =
            (uint16_t)(choice & 7) | vw_packed_available_bits(target->ring.available_wrap);
    }
}

static void set_up_again(struct target *target, struct input *input)
{
    uint32_t base = (uint32_t)input_take(input, 4);

    INVARIANT(vw_device_ring_init(&target->ring, &target->image.config, &target->image.memory) ==
              0);
    target->out = 0;
    if (vw_device_ring_set_base(&target->ring, base) == 0)
        INVARIANT(vw_device_ring_base(&target->ring) == base);
}

/* As many urgent chains are out as the ring believes. */
static void check_urgent(const struct target *target)
{
    uint32_t urgent = 0;

    for (uint32_t i = 0; i < target->out; i++)
        urgent += target->chains[i].urgent;
    INVARIANT(target->ring.urgent_out == urgent);
    INVARIANT(urgent == 0 || target->ring.urgent);
}

/* The decision put off, and taken: all that was used becomes visible first. */
static void publish_in_two(struct target *target, bool broken)
{
    vw_device_ring_expose(&target->ring);
    INVARIANT(!(vw_device_ring_decide(&target->ring) && broken));
    INVARIANT(!vw_device_ring_undecided(&target->ring));
}

static void notifications(struct target *target)
{
    bool broken = target->ring.error != VW_RING_OK;

    INVARIANT(vw_device_ring_arm(&target->ring) || !broken);
    INVARIANT(!(vw_device_ring_pending(&target->ring) && broken));
    vw_device_ring_disarm(&target->ring);
}

static void step(struct target *target, struct input *input)
{
    bool broken = target->ring.error != VW_RING_OK;

    switch (input_byte(input) & 15) {
    case 0:
        image_poke(&target->image, input);
        break;
    case 1 ... 4:
        image_put_descriptor(&target->image, input);
        break;
    case 5 ... 7:
        make_available(target, input);
        break;
    case 8 ... 9:
        fetch(target, input);
        break;
    case 10 ... 11:
        use(target, input);
        break;
    case 12:
        if (input_byte(input) & 1)
            publish_in_two(target, broken);
        else
            INVARIANT(!(vw_device_ring_publish(&target->ring) && broken));
        break;
    case 13:
        give_back(target, input);
        break;
    case 14:
        notifications(target);
        break;
    default:
        if (broken || input_byte(input) < 8)
            set_up_again(target, input);
    }
    check_urgent(target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct target target = {.out = 0};

    image_open(&target.image, &input);
    INVARIANT(vw_device_ring_init(&target.ring, &target.image.config, &target.image.memory) == 0);
    while (input.left > 0)
        step(&target, &input);
    image_close(&target.image);
    return 0;
}
