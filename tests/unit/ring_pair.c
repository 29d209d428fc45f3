/* SPDX-License-Identifier: BSD-3-Clause */
/* Both halves on one ring: the wraps, the orders and the notifications, case by case. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "base/shared.h"
#include "base/urgent.h"
#include "ring/descriptor.h"

#define EVENT_IDX vw_bit(VIRTIO_RING_F_EVENT_IDX)
#define IN_ORDER vw_bit(VIRTIO_F_IN_ORDER)
#define INDIRECT vw_bit(VIRTIO_RING_F_INDIRECT_DESC)
#define URGENT vw_bit(VW_F_URGENT)
#define MAX 512

struct bench {
    struct world *world;
    struct pair pair;
    struct vw_chain chains[MAX];
    struct vw_completion completions[MAX];
    struct iovec iov[4 * MAX];
    struct vw_iov_pool pool;
    char *payload;
    char tokens[MAX];
};

static void bench_open(struct bench *bench, enum vw_ring_format format, uint32_t size,
                       uint64_t features)
{
    memset(bench, 0, sizeof(*bench));
    bench->world = world_open(65536, 8, 32768);
    pair_start(&bench->pair, bench->world, format, size, features, features & INDIRECT ? 4 : 0);
    bench->payload = world_allocate(bench->world, 65536, 64);
    bench->pool = (struct vw_iov_pool){.iov = bench->iov, .capacity = VW_ARRAY_SIZE(bench->iov)};
}

static void bench_close(struct bench *bench)
{
    pair_stop(&bench->pair);
    world_close(bench->world);
}

/* Adds a buffer of `readable` and `writable` segments of 16 bytes, with token number `number`. */
static int add(struct bench *bench, uint32_t readable, uint32_t writable, unsigned number)
{
    struct vw_segment segments[MAX];

    for (uint32_t i = 0; i < readable + writable; i++)
        segments[i] = (struct vw_segment){
            .address = world_guest(bench->world, bench->payload + 64 * i), .length = 16};
    return vw_driver_ring_add(&bench->pair.driver, segments, readable, writable,
                              &bench->tokens[number]);
}

/* The same, urgent. */
static int add_urgent(struct bench *bench, uint32_t readable, uint32_t writable, unsigned number)
{
    struct vw_segment segments[MAX];

    for (uint32_t i = 0; i < readable + writable; i++)
        segments[i] = (struct vw_segment){
            .address = world_guest(bench->world, bench->payload + 64 * i), .length = 16};
    return vw_driver_ring_add_urgent(&bench->pair.driver, segments, readable, writable,
                                     &bench->tokens[number]);
}

static uint32_t fetch(struct bench *bench, uint32_t max)
{
    bench->pool.used = 0;
    return vw_device_ring_fetch(&bench->pair.device, bench->chains, max, &bench->pool);
}

static uint32_t reap(struct bench *bench, uint32_t max)
{
    return vw_driver_ring_reap(&bench->pair.driver, bench->completions, max);
}

/* Chains of 1 to the ring's size, in turn, four times round the ring. */
static void run_lengths(enum vw_ring_format format, uint32_t size, uint64_t features)
{
    struct bench bench;
    uint32_t passed = 0, length = 1;

    bench_open(&bench, format, size, features);
    while (passed < 4 * size + 1) {
        assert_int_equal(add(&bench, length - length / 2, length / 2, 0), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, 2), 1);
        assert_int_equal(bench.chains[0].readable_length, 16 * (length - length / 2));
        assert_int_equal(bench.chains[0].writable_length, 16 * (length / 2));
        bench.chains[0].written = 16 * (length / 2);
        vw_device_ring_use(&bench.pair.device, bench.chains, 1);
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, 2), 1);
        assert_ptr_equal(bench.completions[0].token, &bench.tokens[0]);
        assert_int_equal(bench.completions[0].length, 16 * (length / 2));
        passed += length;
        length = length == size ? 1 : size - length < 3 ? size : length + 3;
    }
    assert_int_equal(bench.pair.driver.free, size);
    assert_int_equal(bench.pair.device.out, 0);
    bench_close(&bench);
}

static void test_chain_lengths(void **state)
{
    const uint64_t features[] = {0, EVENT_IDX, IN_ORDER, EVENT_IDX | IN_ORDER};

    (void)state;
    for (unsigned f = 0; f < VW_ARRAY_SIZE(features); f++) {
        run_lengths(VW_RING_PACKED, 1, features[f]);
        run_lengths(VW_RING_PACKED, 5, features[f]);
        run_lengths(VW_RING_PACKED, 255, features[f]);
        run_lengths(VW_RING_PACKED, 256, features[f]);
        run_lengths(VW_RING_SPLIT, 1, features[f]);
        run_lengths(VW_RING_SPLIT, 4, features[f]);
        run_lengths(VW_RING_SPLIT, 256, features[f]);
    }
}

/* Bursts of plain buffers of all lengths round the ring, with a chain between them; more than there
 * is room for; and what the device sees of each. */
static void run_bursts(enum vw_ring_format format, uint32_t size, uint64_t features, bool writable)
{
    struct vw_plain_buffer buffers[MAX];
    struct bench bench;
    uint32_t passed = 0, length = 1;
    int chain;

    bench_open(&bench, format, size, features);
    uint32_t (*burst)(struct vw_driver_ring *, const struct vw_plain_buffer *, uint32_t) =
        writable ? vw_driver_ring_add_writable : vw_driver_ring_add_readable;
    for (uint32_t i = 0; i < MAX; i++)
        buffers[i] = (struct vw_plain_buffer){
            {world_guest(bench.world, bench.payload + 64 * i), 1 + i % 64}, &bench.tokens[i]};
    while (passed < 6 * size + 1) {
        uint32_t half = length / 2;

        assert_int_equal(burst(&bench.pair.driver, buffers, half), half);
        assert_int_equal(vw_driver_ring_in_flight(&bench.pair.driver), half);
        chain = add(&bench, 1, 1, MAX - 1);
        uint32_t fits = size - half - (chain == 0 ? 2 : 0), rest = length - half;
        if (rest > fits)
            rest = fits;
        assert_int_equal(burst(&bench.pair.driver, buffers + half, length - half), rest);
        assert_int_equal(fetch(&bench, MAX), 0); /* nothing is visible yet */
        vw_driver_ring_publish(&bench.pair.driver);
        uint32_t count = fetch(&bench, MAX);
        assert_int_equal(count, half + rest + (chain == 0));
        for (uint32_t i = 0, number = 0; i < count; i++) {
            struct vw_chain *seen = &bench.chains[i];

            seen->written = seen->writable_length;
            if (chain == 0 && i == half) /* its first piece is that of the first buffer, too */
                continue;
            assert_int_equal(seen->readable_length, writable ? 0 : 1 + number % 64);
            assert_int_equal(seen->writable_length, writable ? 1 + number % 64 : 0);
            assert_ptr_equal(seen->iov[0].iov_base,
                             (char *)bench.chains[0].iov[0].iov_base + 64 * number);
            number++;
        }
        vw_device_ring_use(&bench.pair.device, bench.chains, count);
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), count);
        for (uint32_t i = 0, number = 0; i < count; i++) {
            bool between = chain == 0 && i == half;

            assert_ptr_equal(bench.completions[i].token, &bench.tokens[between ? MAX - 1 : number]);
            if (between)
                continue;
            assert_int_equal(bench.completions[i].length, writable ? 1 + number % 64 : 0);
            number++;
        }
        assert_int_equal(bench.pair.driver.free, size);
        passed += count;
        length = length == size + 2 ? 1 : length + 1;
    }
    bench.pair.driver.error = VW_RING_BAD_USED_ID;
    assert_int_equal(burst(&bench.pair.driver, buffers, 1), 0);
    bench_close(&bench);
}

static void test_bursts(void **state)
{
    const uint64_t features[] = {0, EVENT_IDX, IN_ORDER, EVENT_IDX | IN_ORDER};

    (void)state;
    for (unsigned f = 0; f < VW_ARRAY_SIZE(features); f++) {
        for (unsigned writable = 0; writable < 2; writable++) {
            run_bursts(VW_RING_PACKED, 7, features[f], writable);
            run_bursts(VW_RING_PACKED, 64, features[f], writable);
            run_bursts(VW_RING_SPLIT, 8, features[f], writable);
            run_bursts(VW_RING_SPLIT, 64, features[f], writable);
        }
    }
}

/* A device that is in order, though it did not promise, makes us use the descriptors in turn. */
static void test_descriptors_in_turn(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, VW_RING_SPLIT, 16, 0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(add(&bench, 1, 0, 0), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, 2), 1);
        assert_int_equal(bench.chains[0].id, i % 16);
        vw_device_ring_use(&bench.pair.device, bench.chains, 1);
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, 2), 1);
    }
    bench_close(&bench);
}

/* All buffers of a full ring come back in another order than they went, four times round. */
static void run_permuted(enum vw_ring_format format, uint32_t size)
{
    struct bench bench;

    bench_open(&bench, format, size, EVENT_IDX);
    for (unsigned round = 0; round < 4 * size && round < 100; round++) {
        bool seen[MAX] = {false};

        for (uint32_t i = 0; i < size; i++)
            assert_int_equal(add(&bench, 0, 1, i), 0);
        assert_int_equal(add(&bench, 0, 1, 0), -ENOSPC);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), size);
        for (uint32_t i = 0; i < size; i++) { /* 7 and 11 share no factor with a size here */
            struct vw_chain *chain = &bench.chains[(i * 7 + round) % size];

            chain->written = 1 + (uint32_t)(chain - bench.chains) % 16;
            vw_device_ring_use(&bench.pair.device, chain, 1);
        }
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), size);
        for (uint32_t i = 0; i < size; i++) {
            size_t number = (size_t)((char *)bench.completions[i].token - bench.tokens);

            assert_int_equal(number, (i * 7 + round) % size);
            assert_int_equal(bench.completions[i].length, 1 + number % 16);
            assert_false(seen[number]);
            seen[number] = true;
        }
    }
    bench_close(&bench);
}

static void test_permuted_ids(void **state)
{
    (void)state;
    run_permuted(VW_RING_PACKED, 5);
    run_permuted(VW_RING_PACKED, 255);
    run_permuted(VW_RING_PACKED, 256);
    run_permuted(VW_RING_SPLIT, 4);
    run_permuted(VW_RING_SPLIT, 256);
}

/* Given back chains come again, the same ones, and do not disarm: arm asks for what is new. */
static void run_give_back(enum vw_ring_format format, uint32_t size, uint64_t features)
{
    struct bench bench;

    bench_open(&bench, format, size, features);
    for (unsigned round = 0; round < 3 * size; round++) {
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(add(&bench, 1, 0, i), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 3);
        uint16_t second = bench.chains[1].id;
        vw_device_ring_use(&bench.pair.device, &bench.chains[0], 1);
        vw_device_ring_give_back(&bench.pair.device, &bench.chains[1], 2);
        assert_true(vw_device_ring_pending(&bench.pair.device));
        assert_true(vw_device_ring_arm(&bench.pair.device));
        assert_int_equal(add(&bench, 1, 0, 3), 0);
        assert_true(vw_driver_ring_publish(&bench.pair.driver));
        assert_false(vw_device_ring_arm(&bench.pair.device));
        assert_int_equal(fetch(&bench, 1), 1);
        assert_int_equal(bench.chains[0].id, second);
        vw_device_ring_use(&bench.pair.device, &bench.chains[0], 1);
        assert_int_equal(fetch(&bench, MAX), format == VW_RING_SPLIT ? 1 : 2);
        vw_device_ring_use(&bench.pair.device, &bench.chains[0], 1);
        if (format == VW_RING_SPLIT)
            assert_int_equal(fetch(&bench, MAX), 1);
        vw_device_ring_use(&bench.pair.device, &bench.chains[format == VW_RING_SPLIT ? 0 : 1], 1);
        assert_false(vw_device_ring_pending(&bench.pair.device));
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), 4);
        for (unsigned i = 0; i < 4; i++)
            assert_ptr_equal(bench.completions[i].token, &bench.tokens[i]);
    }
    bench_close(&bench);
}

static void test_give_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t features = (i & 1 ? EVENT_IDX : 0) | (i & 2 ? IN_ORDER : 0);

        run_give_back(VW_RING_SPLIT, 4, features);
        run_give_back(VW_RING_PACKED, 4, features);
        run_give_back(VW_RING_PACKED, 5, features);
    }
}

/* A second device takes over at the first one's base, with buffers of the driver in between. */
static void run_hand_over(enum vw_ring_format format, uint32_t size, uint64_t features,
                          uint32_t expected)
{
    struct vw_device_ring second;
    struct bench bench;

    bench_open(&bench, format, size, features);
    assert_int_equal(vw_device_ring_base(&bench.pair.device),
                     format == VW_RING_SPLIT ? 0 : 0x80008000);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(add(&bench, 1, 0, i), 0);
    vw_driver_ring_publish(&bench.pair.driver);
    assert_int_equal(fetch(&bench, 2), 2);
    vw_device_ring_use(&bench.pair.device, bench.chains, 2);
    vw_device_ring_publish(&bench.pair.device);
    vw_device_ring_disarm(&bench.pair.device);
    uint32_t base = vw_device_ring_base(&bench.pair.device);
    assert_int_equal(base, expected);

    assert_int_equal(vw_device_ring_init(&second, &bench.pair.device_config, &bench.world->memory),
                     0);
    assert_int_equal(vw_device_ring_set_base(&second, base), 0);
    assert_int_equal(vw_device_ring_base(&second), base);
    bench.pair.device = second;
    assert_int_equal(fetch(&bench, MAX), 1);
    vw_device_ring_use(&bench.pair.device, bench.chains, 1);
    assert_true(vw_device_ring_publish(&bench.pair.device)); /* the first decision always calls */
    assert_int_equal(reap(&bench, MAX), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(bench.completions[i].token, &bench.tokens[i]);
    /* Kicks are on again without a word, except that an event index has to be set. */
    if (features & EVENT_IDX)
        assert_true(vw_device_ring_arm(&bench.pair.device));
    assert_int_equal(add(&bench, 1, 0, 0), 0);
    assert_true(vw_driver_ring_publish(&bench.pair.driver));
    bench_close(&bench);
}

static void test_hand_over(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t features = i ? EVENT_IDX : 0;

        run_hand_over(VW_RING_SPLIT, 8, features, 2);
        run_hand_over(VW_RING_PACKED, 8, features, 0x80028002);
        run_hand_over(VW_RING_PACKED, 5, features, 0x80028002);
        run_hand_over(VW_RING_PACKED, 3, features, 0x80028002);
    }
}

/*
 * A device comes to entries that another one used in this round: the rest of a batch whose first
 * descriptor was not published, or frames that QEMU dropped while it had no back-end.
 */
static void run_used_by_another(uint32_t size, uint32_t done, uint32_t mine, uint32_t others,
                                uint32_t behind)
{
    struct vw_device_ring *device;
    struct bench bench;
    uint32_t all = mine + others + behind;

    bench_open(&bench, VW_RING_PACKED, size, EVENT_IDX | INDIRECT);
    device = &bench.pair.device;
    for (uint32_t i = 0; i < done; i++) {
        assert_int_equal(add(&bench, 1, 0, 0), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 1);
        vw_device_ring_use(device, bench.chains, 1);
        vw_device_ring_publish(device);
        assert_int_equal(reap(&bench, MAX), 1);
    }
    for (uint32_t i = 0; i < all; i++)
        assert_int_equal(add(&bench, 1, 0, i), 0);
    vw_driver_ring_publish(&bench.pair.driver);
    struct vring_packed_desc *entries = bench.pair.driver_config.descriptor_area;
    for (uint32_t i = mine; i < mine + others; i++) {
        uint32_t place = (done + i) % size;

        vw_store_le16(&entries[place].flags,
                      vw_packed_used_bits((done + i) / size % 2 == 0)); /* in the round it is of */
    }
    uint32_t base = vw_device_ring_base(device);
    assert_int_equal(vw_device_ring_init(device, &bench.pair.device_config, &bench.world->memory),
                     0);
    assert_int_equal(vw_device_ring_set_base(device, base), 0);
    vw_device_ring_skip_used(device);
    assert_int_equal(fetch(&bench, MAX), mine);
    assert_int_equal(fetch(&bench, MAX), 0);
    vw_device_ring_use(device, bench.chains, mine);
    assert_true(vw_device_ring_publish(device));
    assert_int_equal(reap(&bench, MAX), mine + others);
    assert_int_equal(fetch(&bench, MAX), behind);
    vw_device_ring_use(device, bench.chains, behind);
    vw_device_ring_publish(device);
    assert_int_equal(reap(&bench, MAX), behind);
    assert_int_equal(bench.pair.driver.free, size);
    bench_close(&bench);
}

static void test_used_by_another(void **state)
{
    (void)state;
    run_used_by_another(8, 6, 2, 1, 2);  /* as QEMU leaves it: the first entry of the next round */
    run_used_by_another(8, 6, 1, 3, 4);  /* over the end of the ring */
    run_used_by_another(8, 14, 1, 4, 1); /* in the other round */
    run_used_by_another(5, 0, 1, 1, 1);
    run_used_by_another(8, 3, 1, 7, 0); /* all the rest of the ring */
}

static void test_base_refused(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, VW_RING_PACKED, 5, 0);
    assert_int_equal(vw_device_ring_set_base(&bench.pair.device, 0x80058000), -EINVAL);
    assert_int_equal(vw_device_ring_set_base(&bench.pair.device, 0x80008005), -EINVAL);
    assert_int_equal(vw_device_ring_base(&bench.pair.device), 0x80008000);
    assert_int_equal(vw_device_ring_set_base(&bench.pair.device, 0x00048003), 0);
    assert_int_equal(vw_device_ring_base(&bench.pair.device), 0x00048003);
    bench_close(&bench);
    bench_open(&bench, VW_RING_SPLIT, 4, 0);
    assert_int_equal(vw_device_ring_set_base(&bench.pair.device, 65536), -EINVAL);
    assert_int_equal(vw_device_ring_set_base(&bench.pair.device, 65535), 0);
    assert_int_equal(vw_device_ring_base(&bench.pair.device), 65535);
    bench_close(&bench);
}

/* Entries of the used ring that the device wrote, by their ids not being a mark. */
static uint32_t count_used_entries(struct bench *bench, uint32_t mark)
{
    const struct vring_used *used = bench->pair.driver_config.device_area;
    uint32_t count = 0;

    for (uint32_t i = 0; i < bench->pair.driver_config.size; i++)
        count += used->ring[i].id != mark;
    return count;
}

/* A run of readable chains is one used entry; a chain with writable memory keeps its length. */
static void run_in_order(enum vw_ring_format format, uint32_t size, unsigned rounds)
{
    static const uint32_t lengths[8] = {0, 0, 0, 5, 0, 0, 9, 0};
    static const bool writable[8] = {false, false, false, true, true, false, true, false};
    struct bench bench;

    bench_open(&bench, format, size, IN_ORDER | EVENT_IDX);
    for (unsigned round = 0; round < rounds; round++) {
        if (format == VW_RING_SPLIT)
            memset(((struct vring_used *)bench.pair.driver_config.device_area)->ring, 0xee,
                   8 * size);
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(add(&bench, writable[i] ? 0 : 1, writable[i] ? 1 : 0, i), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 8);
        for (unsigned i = 0; i < 8; i++)
            bench.chains[i].written = lengths[i];
        vw_device_ring_use(&bench.pair.device, bench.chains, 8);
        vw_device_ring_publish(&bench.pair.device);
        if (format == VW_RING_SPLIT) /* 3 together, then one by one */
            assert_int_equal(count_used_entries(&bench, 0xeeeeeeee), 6);
        assert_int_equal(reap(&bench, 2), 2); /* stops inside a batch */
        assert_false(vw_driver_ring_enable_calls(&bench.pair.driver));
        assert_int_equal(reap(&bench, 0), 0);
        assert_ptr_equal(bench.completions[1].token, &bench.tokens[1]);
        assert_int_equal(reap(&bench, MAX), 6);
        for (unsigned i = 2; i < 8; i++) {
            assert_ptr_equal(bench.completions[i - 2].token, &bench.tokens[i]);
            assert_int_equal(bench.completions[i - 2].length, lengths[i]);
        }
        assert_true(vw_driver_ring_enable_calls(&bench.pair.driver));
    }
    bench_close(&bench);
}

static void test_in_order_batches(void **state)
{
    (void)state;
    run_in_order(VW_RING_SPLIT, 8, 8200); /* over the index's end */
    run_in_order(VW_RING_SPLIT, 16, 10);
    run_in_order(VW_RING_PACKED, 8, 10);
    run_in_order(VW_RING_PACKED, 13, 100);
}

/* Calls: the first always, then only what the driver armed for; none when disabled. */
static void run_calls(enum vw_ring_format format, uint64_t features)
{
    struct bench bench;

    bench_open(&bench, format, 16, features);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(add(&bench, 1, 0, i), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 8);
        vw_driver_ring_disable_calls(&bench.pair.driver);
        vw_device_ring_use(&bench.pair.device, &bench.chains[0], 1);
        assert_int_equal(vw_device_ring_publish(&bench.pair.device), round == 0);
        assert_false(vw_device_ring_publish(&bench.pair.device)); /* nothing new */
        assert_int_equal(reap(&bench, MAX), 1);
        uint32_t position = vw_driver_ring_enable_calls_prepare(&bench.pair.driver);
        assert_false(vw_driver_ring_poll(&bench.pair.driver, position));
        vw_device_ring_use(&bench.pair.device, &bench.chains[1], 1);
        assert_true(vw_device_ring_publish(&bench.pair.device));
        assert_true(vw_driver_ring_poll(&bench.pair.driver, position));
        assert_false(vw_driver_ring_enable_calls(&bench.pair.driver));
        vw_device_ring_use(&bench.pair.device, &bench.chains[2], 1);
        /* With the event index the place was passed; without it, calls go on. */
        assert_int_equal(vw_device_ring_publish(&bench.pair.device), !(features & EVENT_IDX));
        assert_int_equal(reap(&bench, MAX), 2);
        vw_driver_ring_disable_calls(&bench.pair.driver);
        vw_device_ring_use(&bench.pair.device, &bench.chains[3], 5);
        assert_false(vw_device_ring_publish(&bench.pair.device));
        assert_int_equal(reap(&bench, MAX), 5);
    }
    bench_close(&bench);
}

static void test_calls(void **state)
{
    (void)state;
    run_calls(VW_RING_SPLIT, 0);
    run_calls(VW_RING_SPLIT, EVENT_IDX);
    run_calls(VW_RING_PACKED, 0);
    run_calls(VW_RING_PACKED, EVENT_IDX);
    run_calls(VW_RING_SPLIT, EVENT_IDX | IN_ORDER);
    run_calls(VW_RING_PACKED, EVENT_IDX | IN_ORDER);
}

/* Of 8 in flight the delayed call comes with the seventh; the formats differ in what is refused. */
static void run_delayed(enum vw_ring_format format)
{
    struct bench bench;

    bench_open(&bench, format, 13 + (format == VW_RING_SPLIT ? 3 : 0), EVENT_IDX);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(add(&bench, 1, 0, i), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 8);
        assert_true(vw_driver_ring_enable_calls_delayed(&bench.pair.driver));
        for (unsigned i = 0; i < 8; i++) {
            vw_device_ring_use(&bench.pair.device, &bench.chains[i], 1);
            bool call = vw_device_ring_publish(&bench.pair.device);
            assert_int_equal(call, i == 6 || (round == 0 && i == 0));
            bool armed = vw_driver_ring_enable_calls_delayed(&bench.pair.driver);
            assert_int_equal(armed, format == VW_RING_SPLIT && i < 6);
        }
        assert_int_equal(reap(&bench, MAX), 8);
        assert_true(vw_driver_ring_enable_calls_delayed(&bench.pair.driver));
    }
    bench_close(&bench);
}

static void test_delayed_calls(void **state)
{
    (void)state;
    run_delayed(VW_RING_SPLIT);
    run_delayed(VW_RING_PACKED);
}

/* Kicks: none while disarmed (where the format has an off switch), one after arming. */
static void run_kicks(enum vw_ring_format format, uint64_t features)
{
    struct bench bench;

    bench_open(&bench, format, 8, features);
    assert_false(vw_driver_ring_publish(&bench.pair.driver)); /* nothing added */
    for (unsigned round = 0; round < 40; round++) {
        assert_true(vw_device_ring_arm(&bench.pair.device));
        assert_int_equal(add(&bench, 1, 0, 0), 0);
        assert_false(vw_device_ring_pending(&bench.pair.device));
        assert_true(vw_driver_ring_publish(&bench.pair.driver));
        assert_true(vw_device_ring_pending(&bench.pair.device));
        vw_device_ring_disarm(&bench.pair.device);
        assert_int_equal(add(&bench, 1, 0, 1), 0);
        assert_false(vw_driver_ring_publish(&bench.pair.driver));
        assert_false(vw_device_ring_arm(&bench.pair.device));
        vw_device_ring_disarm(&bench.pair.device);
        assert_int_equal(fetch(&bench, MAX), 2);
        /* What is fetched and kept does not count. */
        assert_true(vw_device_ring_arm(&bench.pair.device));
        vw_device_ring_use(&bench.pair.device, bench.chains, 2);
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), 2);
    }
    bench_close(&bench);
}

static void test_kicks(void **state)
{
    (void)state;
    run_kicks(VW_RING_SPLIT, 0);
    run_kicks(VW_RING_SPLIT, EVENT_IDX);
    run_kicks(VW_RING_PACKED, 0);
    run_kicks(VW_RING_PACKED, EVENT_IDX);
}

/* The driver sees nothing of a batch before publish, then all of it (mergeable buffers). */
static void run_all_or_nothing(enum vw_ring_format format)
{
    struct bench bench;

    bench_open(&bench, format, 8, 0);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(add(&bench, 0, 1, i), 0);
        assert_int_equal(fetch(&bench, MAX), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 5);
        for (unsigned i = 0; i < 5; i++) {
            bench.chains[i].written = 16;
            vw_device_ring_use(&bench.pair.device, &bench.chains[i], 1);
            assert_int_equal(reap(&bench, MAX), 0);
        }
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), 5);
    }
    bench_close(&bench);
}

static void test_all_or_nothing(void **state)
{
    (void)state;
    run_all_or_nothing(VW_RING_SPLIT);
    run_all_or_nothing(VW_RING_PACKED);
}

/* What never came back is handed out once, whether it was published or not. */
static void test_detach(void **state)
{
    (void)state;
    for (int format = VW_RING_SPLIT; format <= VW_RING_PACKED; format++) {
        struct bench bench;
        bool seen[6] = {false};
        void *token;
        unsigned count = 0;

        bench_open(&bench, (enum vw_ring_format)format, 16, 0);
        for (unsigned i = 0; i < 6; i++) {
            assert_int_equal(add(&bench, 2, 0, i), 0);
            if (i == 3)
                vw_driver_ring_publish(&bench.pair.driver);
        }
        assert_int_equal(fetch(&bench, 1), 1);
        vw_device_ring_use(&bench.pair.device, bench.chains, 1);
        vw_device_ring_publish(&bench.pair.device);
        assert_int_equal(reap(&bench, MAX), 1);
        assert_int_equal(vw_driver_ring_in_flight(&bench.pair.driver), 5);
        while ((token = vw_driver_ring_detach(&bench.pair.driver)) != NULL) {
            size_t number = (size_t)((char *)token - bench.tokens);

            assert_in_range(number, 1, 5);
            assert_false(seen[number]);
            seen[number] = true;
            count++;
        }
        assert_int_equal(count, 5);
        assert_int_equal(vw_driver_ring_in_flight(&bench.pair.driver), 0);
        bench_close(&bench);
    }
}

static void test_add_refuses(void **state)
{
    (void)state;
    for (int format = VW_RING_SPLIT; format <= VW_RING_PACKED; format++) {
        struct vw_segment huge[2] = {{WORLD_GUEST, UINT32_MAX}, {WORLD_GUEST, 1}};
        struct bench bench;

        bench_open(&bench, (enum vw_ring_format)format, 4, 0);
        struct vw_driver_ring *driver = &bench.pair.driver;
        assert_int_equal(add(&bench, 0, 0, 0), -EINVAL);
        assert_int_equal(add(&bench, 3, 2, 0), -EINVAL);
        assert_int_equal(vw_driver_ring_add(driver, huge, UINT32_MAX, 2, huge), -EINVAL);
        assert_int_equal(vw_driver_ring_add(driver, huge, 1, 1, huge), -EINVAL);
        assert_int_equal(add(&bench, 1, 0, 0), 0);
        assert_int_equal(add(&bench, 2, 2, 0), -ENOSPC);
        assert_int_equal(add(&bench, 3, 0, 1), 0);
        vw_driver_ring_publish(driver);
        assert_int_equal(fetch(&bench, MAX), 2);
        assert_int_equal(bench.chains[0].readable_count, 1);
        assert_int_equal(bench.chains[1].readable_count, 3);
        bench_close(&bench);
    }
}

/* Chains of 2 to 4 segments take one entry; of 1 or 5 segments they are direct. */
static void test_indirect(void **state)
{
    (void)state;
    for (int format = VW_RING_SPLIT; format <= VW_RING_PACKED; format++) {
        struct bench bench;

        bench_open(&bench, (enum vw_ring_format)format, 8, INDIRECT);
        for (unsigned round = 0; round < 10; round++) {
            static const uint32_t slots[] = {1, 2, 3, 6, 4};
            static const uint32_t used_slots[] = {1, 1, 1, 6, 1};

            for (unsigned i = 0; i < VW_ARRAY_SIZE(slots); i++) {
                uint32_t before = bench.pair.driver.free;

                if (i == 3) { /* direct: needs most of the ring */
                    vw_driver_ring_publish(&bench.pair.driver);
                    assert_int_equal(fetch(&bench, MAX), 3);
                    vw_device_ring_use(&bench.pair.device, bench.chains, 3);
                    vw_device_ring_publish(&bench.pair.device);
                    assert_int_equal(reap(&bench, MAX), 3);
                    before = bench.pair.driver.free;
                }
                assert_int_equal(add(&bench, 1, slots[i] - 1, i), 0);
                assert_int_equal(before - bench.pair.driver.free, used_slots[i]);
            }
            vw_driver_ring_publish(&bench.pair.driver);
            assert_int_equal(fetch(&bench, MAX), 2);
            for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(bench.chains[i].readable_count, 1);
                assert_int_equal(bench.chains[i].writable_count, slots[3 + i] - 1);
                bench.chains[i].written = bench.chains[i].writable_length;
            }
            vw_device_ring_use(&bench.pair.device, bench.chains, 2);
            vw_device_ring_publish(&bench.pair.device);
            assert_int_equal(reap(&bench, MAX), 2);
            assert_int_equal(bench.completions[0].length, 5 * 16);
            assert_int_equal(bench.completions[1].length, 3 * 16);
        }
        bench_close(&bench);
    }
}

/* How many descriptors in the ring have the urgent flag. */
static unsigned count_marks(const struct bench *bench)
{
    const struct vw_ring_config *config = &bench->pair.driver_config;
    const uint16_t *words = config->descriptor_area;
    unsigned place = config->format == VW_RING_PACKED ? 7 : 6, marks = 0;

    for (uint32_t i = 0; i < config->size; i++)
        marks += (vw_load_le16(&words[8 * i + place]) & VW_DESCRIPTOR_F_URGENT) != 0;
    return marks;
}

/* Uses chain `i` and tells whether the driver is to be called. */
static bool use_one(struct bench *bench, unsigned i)
{
    vw_device_ring_use(&bench->pair.device, &bench->chains[i], 1);
    return vw_device_ring_publish(&bench->pair.device);
}

/*
 * Calls are off, and stay off for everything but the second and fourth of five buffers, one direct
 * or indirect of `segments`, one of a single segment. What was given back is urgent once, not
 * twice.
 */
static void run_urgent(enum vw_ring_format format, uint64_t features, uint32_t segments)
{
    struct bench bench;

    bench_open(&bench, format, 32, features | URGENT);
    assert_int_equal(add(&bench, 1, 0, 0), 0);
    vw_driver_ring_publish(&bench.pair.driver);
    assert_int_equal(fetch(&bench, MAX), 1);
    assert_true(use_one(&bench, 0)); /* the first decision always calls */
    assert_int_equal(reap(&bench, MAX), 1);
    for (unsigned round = 0; round < 20; round++) {
        vw_driver_ring_disable_calls(&bench.pair.driver);
        assert_int_equal(add(&bench, segments, 0, 0), 0);
        assert_int_equal(add_urgent(&bench, segments - 1, 1, 1), 0);
        assert_int_equal(add(&bench, 1, 0, 2), 0);
        assert_int_equal(add_urgent(&bench, 1, 0, 3), 0);
        assert_int_equal(add(&bench, 0, 1, 4), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        if (round == 0)
            assert_int_equal(count_marks(&bench), 2); /* heads only */
        assert_int_equal(fetch(&bench, MAX), 5);
        vw_device_ring_give_back(&bench.pair.device, &bench.chains[1], 4);
        struct vw_chain first = bench.chains[0];
        assert_int_equal(fetch(&bench, MAX), 4);
        memmove(&bench.chains[1], &bench.chains[0], 4 * sizeof(first));
        bench.chains[0] = first;
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(bench.chains[i].urgent, i == 1 || i == 3);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(use_one(&bench, i), i == 1 || i == 3);
        assert_int_equal(bench.pair.device.urgent_out, 0);
        assert_int_equal(reap(&bench, MAX), 5);
    }
    bench_close(&bench);
}

static void test_urgent(void **state)
{
    const uint64_t features[] = {0, EVENT_IDX, IN_ORDER, EVENT_IDX | IN_ORDER};

    (void)state;
    for (unsigned f = 0; f < VW_ARRAY_SIZE(features); f++) {
        for (uint32_t segments = 1; segments <= 5; segments++) {
            run_urgent(VW_RING_SPLIT, features[f], segments);
            run_urgent(VW_RING_PACKED, features[f], segments);
            run_urgent(VW_RING_SPLIT, features[f] | INDIRECT, segments);
            run_urgent(VW_RING_PACKED, features[f] | INDIRECT, segments);
        }
    }
}

/* Without the feature a driver can not mark, and to a device a mark means nothing. */
static void run_not_urgent(enum vw_ring_format format)
{
    struct bench bench;

    bench_open(&bench, format, 8, 0);
    assert_int_equal(add_urgent(&bench, 1, 0, 0), -ENOTSUP);
    assert_int_equal(vw_driver_ring_in_flight(&bench.pair.driver), 0);
    bench.pair.driver.urgent = true; /* a driver that was told so, and marks all the same */
    vw_driver_ring_disable_calls(&bench.pair.driver);
    for (unsigned round = 0; round < 20; round++) {
        assert_int_equal(add_urgent(&bench, 2, 1, 0), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 1);
        assert_false(bench.chains[0].urgent);
        assert_int_equal(bench.chains[0].writable_count, 1);
        assert_int_equal(use_one(&bench, 0), round == 0);
        assert_int_equal(reap(&bench, MAX), 1);
    }
    bench_close(&bench);
}

static void test_not_urgent(void **state)
{
    (void)state;
    run_not_urgent(VW_RING_SPLIT);
    run_not_urgent(VW_RING_PACKED);
}

/* One decision for what was exposed in several steps, at the place that the driver asked for. */
static void run_put_off(enum vw_ring_format format)
{
    struct bench bench;

    bench_open(&bench, format, 16, EVENT_IDX | URGENT);
    for (unsigned round = 0; round < 40; round++) {
        if (round % 2 == 0)
            assert_true(vw_driver_ring_enable_calls(&bench.pair.driver)); /* for the first one */
        else
            vw_driver_ring_disable_calls(&bench.pair.driver);
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(
                round % 5 == 4 && i == 3 ? add_urgent(&bench, 1, 0, i) : add(&bench, 1, 0, i), 0);
        vw_driver_ring_publish(&bench.pair.driver);
        assert_int_equal(fetch(&bench, MAX), 6);
        assert_false(vw_device_ring_undecided(&bench.pair.device));
        for (unsigned i = 0; i < 6; i++) {
            vw_device_ring_use(&bench.pair.device, &bench.chains[i], 1);
            assert_int_equal(vw_device_ring_expose(&bench.pair.device), round % 5 == 4 && i >= 3);
        }
        assert_true(vw_device_ring_undecided(&bench.pair.device));
        assert_int_equal(reap(&bench, MAX), 6); /* visible, decided or not */
        assert_int_equal(vw_device_ring_decide(&bench.pair.device),
                         round % 2 == 0 || round % 5 == 4);
        assert_false(vw_device_ring_decide(&bench.pair.device));
    }
    bench_close(&bench);
}

static void test_put_off(void **state)
{
    (void)state;
    run_put_off(VW_RING_SPLIT);
    run_put_off(VW_RING_PACKED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bursts),           cmocka_unit_test(test_descriptors_in_turn),
        cmocka_unit_test(test_chain_lengths),    cmocka_unit_test(test_permuted_ids),
        cmocka_unit_test(test_give_back),        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_base_refused),     cmocka_unit_test(test_used_by_another),
        cmocka_unit_test(test_in_order_batches), cmocka_unit_test(test_calls),
        cmocka_unit_test(test_delayed_calls),    cmocka_unit_test(test_kicks),
        cmocka_unit_test(test_all_or_nothing),   cmocka_unit_test(test_detach),
        cmocka_unit_test(test_add_refuses),      cmocka_unit_test(test_indirect),
        cmocka_unit_test(test_urgent),           cmocka_unit_test(test_not_urgent),
        cmocka_unit_test(test_put_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
