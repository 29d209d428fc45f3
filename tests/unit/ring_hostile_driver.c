/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device half against a driver that breaks the rules: each violation has its exact error, the
 * chains before it are good, every loop ends, and no other ring notices.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../ring_world.h"
#include "ring/descriptor.h"

#define SIZE 8
#define NEXT VRING_DESC_F_NEXT
#define WRITE VRING_DESC_F_WRITE
#define TABLE VRING_DESC_F_INDIRECT
#define BASE (WORLD_GUEST + 65536)       /* the first region for payload */
#define END (WORLD_GUEST + 65536 + 8192) /* behind the last region */

/* One descriptor as a driver may write it; `next` is ignored in a packed ring. */
struct raw {
    uint64_t address;
    uint32_t length;
    uint16_t flags;
    uint16_t next;
};

struct bench {
    struct world *world;
    struct pair pair;
    char *table; /* for indirect tables: 16 entries that cross the end of a region */
    uint64_t table_address;
    struct vw_chain chains[64];
    struct iovec iov[256];
    struct vw_iov_pool pool;
    uint16_t available; /* split: index; packed: position */
    bool wrap;
};

static void bench_open(struct bench *bench, enum vw_ring_format format, uint64_t features)
{
    memset(bench, 0, sizeof(*bench));
    bench->world = world_open(65536, 2, 4096);
    pair_start(&bench->pair, bench->world, format, SIZE, features, 0);
    bench->table = bench->world->local + 65536 + 4096 - 3 * 16 - 8;
    bench->table_address = world_guest(bench->world, bench->table);
    bench->pool = (struct vw_iov_pool){.iov = bench->iov, .capacity = VW_ARRAY_SIZE(bench->iov)};
    bench->wrap = true;
}

static void bench_close(struct bench *bench)
{
    pair_stop(&bench->pair);
    world_close(bench->world);
}

static bool packed(const struct bench *bench)
{
    return bench->pair.driver_config.format == VW_RING_PACKED;
}

static void put_descriptor(struct bench *bench, char *at, const struct raw *raw, uint16_t flags,
                           uint16_t id)
{
    struct vring_desc split = {raw->address, raw->length, flags, raw->next};
    struct vring_packed_desc packed_one = {raw->address, raw->length, id, flags};

    memcpy(at, packed(bench) ? (void *)&packed_one : (void *)&split, 16);
}

/* Writes an indirect table. */
static void put_table(struct bench *bench, const struct raw *raw, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put_descriptor(bench, bench->table + 16 * i, &raw[i], raw[i].flags, 0);
}

/* Split: table entries from `at`, where `next` counts from entry 0, and then the head. */
static void put_split(struct bench *bench, const struct raw *raw, unsigned count, uint16_t at,
                      uint16_t head)
{
    struct vring_avail *available = bench->pair.driver_config.driver_area;
    char *table = bench->pair.driver_config.descriptor_area;

    for (unsigned i = 0; i < count; i++)
        put_descriptor(bench, table + 16 * (at + i), &raw[i], raw[i].flags, 0);
    available->ring[bench->available % SIZE] = head;
    available->idx = ++bench->available;
}

static void put_packed(struct bench *bench, const struct raw *raw, unsigned count, uint16_t id)
{
    char *ring = bench->pair.driver_config.descriptor_area;

    for (unsigned i = 0; i < count; i++) {
        uint16_t flags = raw[i].flags | vw_packed_available_bits(bench->wrap);

        put_descriptor(bench, ring + 16 * bench->available, &raw[i], flags, id);
        vw_packed_advance(&bench->available, &bench->wrap, 1, SIZE);
    }
}

/* Makes one chain available; in a split ring at table entry `at`. */
static void put_chain(struct bench *bench, const struct raw *raw, unsigned count, uint16_t at)
{
    if (packed(bench))
        put_packed(bench, raw, count, at);
    else
        put_split(bench, raw, count, at, at);
}

static uint32_t fetch(struct bench *bench)
{
    return vw_device_ring_fetch(&bench->pair.device, bench->chains, 64, &bench->pool);
}

/* The ring is broken for good, and everything asked of it has an answer that ends a loop. */
static void expect_broken(struct bench *bench, enum vw_ring_error error)
{
    struct vw_device_ring *ring = &bench->pair.device;

    assert_int_equal(ring->error, error);
    assert_int_equal(fetch(bench), 0);
    assert_false(vw_device_ring_pending(ring));
    assert_true(vw_device_ring_arm(ring));
    vw_device_ring_disarm(ring);
    assert_int_equal(ring->error, error);
}

static const struct raw good[] = {{BASE, 100, 0, 0}};

/* A good chain, the violation, a good chain: one comes, and can still be used. */
static void expect_error(struct bench *bench, const struct raw *raw, unsigned count,
                         enum vw_ring_error error)
{
    put_chain(bench, good, 1, 0);
    put_chain(bench, raw, count, 1);
    put_chain(bench, good, 1, 0);
    assert_int_equal(fetch(bench), 1);
    assert_int_equal(bench->chains[0].readable_length, 100);
    assert_int_equal(bench->pool.used, 1);
    expect_broken(bench, error);
    vw_device_ring_use(&bench->pair.device, bench->chains, 1);
    assert_false(vw_device_ring_publish(&bench->pair.device));
    expect_broken(bench, error);
}

#define EXPECT(format, features, error, ...)                                                       \
    do {                                                                                           \
        const struct raw violation[] = {__VA_ARGS__};                                              \
        struct bench bench;                                                                        \
                                                                                                   \
        bench_open(&bench, format, features);                                                      \
        expect_error(&bench, violation, VW_ARRAY_SIZE(violation), error);                          \
        bench_close(&bench);                                                                       \
    } while (0)

#define INDIRECT vw_bit(VIRTIO_RING_F_INDIRECT_DESC)

static void test_direct_violations(void **state)
{
    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        enum vw_ring_format format = (enum vw_ring_format)f;

        EXPECT(format, 0, VW_RING_BAD_ADDRESS, {0, 1, 0, 0});
        EXPECT(format, 0, VW_RING_BAD_ADDRESS, {END, 1, 0, 0});
        EXPECT(format, 0, VW_RING_BAD_ADDRESS, {END - 1, 2, 0, 0});
        EXPECT(format, 0, VW_RING_BAD_ADDRESS, {UINT64_MAX, 2, 0, 0});
        EXPECT(format, 0, VW_RING_BAD_ADDRESS, {BASE, 4, NEXT, 2}, {END, 4, WRITE, 0});
        EXPECT(format, 0, VW_RING_BAD_ORDER, {BASE, 4, NEXT | WRITE, 2}, {BASE, 4, 0, 0});
        EXPECT(format, 0, VW_RING_BAD_ORDER, {BASE, 0, NEXT | WRITE, 2}, {BASE, 4, 0, 0});
        EXPECT(format, 0, VW_RING_TOO_LONG, {BASE, 4096, NEXT, 2}, {BASE, 4096, NEXT, 3},
               {BASE, UINT32_MAX - 8191, 0, 0});
        EXPECT(format, 0, VW_RING_TOO_LONG, {BASE, 1, NEXT, 2}, {BASE, UINT32_MAX, WRITE, 0});
        EXPECT(format, 0, VW_RING_UNNEGOTIATED, {BASE, 16, TABLE, 0});
        EXPECT(format, INDIRECT, VW_RING_NESTED_INDIRECT, {BASE, 16, TABLE | NEXT, 2},
               {BASE, 16, 0, 0});
    }
}

static void test_split_violations(void **state)
{
    (void)state;
    EXPECT(VW_RING_SPLIT, 0, VW_RING_BAD_HEAD, {BASE, 4, NEXT, SIZE});
    EXPECT(VW_RING_SPLIT, 0, VW_RING_BAD_HEAD, {BASE, 4, NEXT, 65535});
    EXPECT(VW_RING_SPLIT, 0, VW_RING_LOOP, {BASE, 4, NEXT, 1});
    EXPECT(VW_RING_SPLIT, 0, VW_RING_LOOP, {BASE, 0, NEXT, 1});
    EXPECT(VW_RING_SPLIT, 0, VW_RING_LOOP, {BASE, 4, NEXT, 2}, {BASE, 4, NEXT, 1});
}

static void test_split_heads(void **state)
{
    static const uint16_t heads[] = {SIZE, SIZE + 1, 255, 32768, 65535};

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(heads); i++) {
        struct bench bench;

        bench_open(&bench, VW_RING_SPLIT, 0);
        put_split(&bench, good, 1, 0, 0);
        put_split(&bench, good, 1, 1, heads[i]);
        put_split(&bench, good, 1, 2, 2);
        assert_int_equal(fetch(&bench), 1);
        expect_broken(&bench, VW_RING_BAD_HEAD);
        bench_close(&bench);
    }
}

/* The index may be as far ahead as the ring is long, and no further; nor may it go back. */
static void test_available_index(void **state)
{
    static const struct {
        uint16_t index;
        uint32_t chains;
        enum vw_ring_error error;
    } cases[] = {
        {SIZE, SIZE, VW_RING_OK},
        {SIZE + 1, 0, VW_RING_BAD_AVAILABLE_INDEX},
        {65535, 0, VW_RING_BAD_AVAILABLE_INDEX},
        {32768, 0, VW_RING_BAD_AVAILABLE_INDEX},
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        struct bench bench;

        bench_open(&bench, VW_RING_SPLIT, 0);
        put_split(&bench, good, 1, 0, 0);
        struct vring_avail *available = bench.pair.driver_config.driver_area;
        available->idx = cases[i].index;
        assert_int_equal(fetch(&bench), cases[i].chains);
        assert_int_equal(bench.pair.device.error, cases[i].error);
        /* With all of them out, one more is a lie, although the index alone allows it. */
        if (cases[i].error == VW_RING_OK) {
            available->idx++;
            assert_int_equal(fetch(&bench), 0);
            expect_broken(&bench, VW_RING_BAD_AVAILABLE_INDEX);
        }
        bench_close(&bench);
    }
}

/* Packed: a chain that does not end, and descriptors made available again while they are out. */
static void test_packed_overrun(void **state)
{
    struct raw endless[2 * SIZE];
    struct bench bench;

    (void)state;
    for (unsigned i = 0; i < 2 * SIZE; i++)
        endless[i] = (struct raw){BASE, 4, NEXT, 0};
    bench_open(&bench, VW_RING_PACKED, 0);
    put_packed(&bench, endless, SIZE, 0);
    assert_int_equal(fetch(&bench), 0);
    expect_broken(&bench, VW_RING_LOOP);
    bench_close(&bench);

    bench_open(&bench, VW_RING_PACKED, 0);
    put_packed(&bench, good, 1, 0);
    put_packed(&bench, endless, SIZE - 1, 0);
    assert_int_equal(fetch(&bench), 1); /* the second runs on into the first */
    expect_broken(&bench, VW_RING_LOOP);
    bench_close(&bench);

    bench_open(&bench, VW_RING_PACKED, 0);
    for (unsigned i = 0; i < SIZE; i++)
        put_packed(&bench, good, 1, 0);
    assert_int_equal(fetch(&bench), SIZE);
    put_packed(&bench, good, 1, 0);
    assert_int_equal(fetch(&bench), 0);
    expect_broken(&bench, VW_RING_BAD_AVAILABLE_INDEX);
    bench_close(&bench);
}

/* One indirect descriptor of `length` bytes at `address`, with `raw` in the table. */
static void expect_table(enum vw_ring_format format, const struct raw *raw, unsigned count,
                         uint64_t offset, uint32_t length, enum vw_ring_error error)
{
    struct bench bench;

    bench_open(&bench, format, INDIRECT);
    put_table(&bench, raw, count);
    struct raw refers = {bench.table_address + offset, length, TABLE, 0};
    expect_error(&bench, &refers, 1, error);
    bench_close(&bench);
}

static void test_table_violations(void **state)
{
    static const struct raw nested[] = {{BASE, 16, NEXT, 1}, {BASE, 16, TABLE, 0}};
    static const struct raw order[] = {{BASE, 4, NEXT | WRITE, 1}, {BASE, 4, 0, 0}};
    static const struct raw outside[] = {{BASE, 4, NEXT, 1}, {END, 4, 0, 0}};
    static const struct raw long_one[] = {{BASE, 4, NEXT, 1}, {BASE, UINT32_MAX - 3, 0, 0}};

    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        enum vw_ring_format format = (enum vw_ring_format)f;
        static const uint32_t bad[] = {0, 1, 15, 17, 31, 16 * SIZE + 16, UINT32_MAX, 0xfffffff0u};

        for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++)
            expect_table(format, nested, 2, 0, bad[i], VW_RING_BAD_INDIRECT);
        expect_table(format, nested, 2, 0, 32, VW_RING_NESTED_INDIRECT);
        expect_table(format, order, 2, 0, 32, VW_RING_BAD_ORDER);
        expect_table(format, outside, 2, 0, 32, VW_RING_BAD_ADDRESS);
        expect_table(format, long_one, 2, 0, 32, VW_RING_TOO_LONG);
        expect_table(format, order, 2, 65536, 32, VW_RING_BAD_ADDRESS);
        expect_table(format, order, 2, 0 - WORLD_GUEST, 32, VW_RING_BAD_ADDRESS);
        /* The table itself runs out of the memory. */
        expect_table(format, order, 0, 4096 + 3 * 16 + 8 - 16, 32, VW_RING_BAD_ADDRESS);
    }
}

static void test_split_table_violations(void **state)
{
    static const struct raw self[] = {{BASE, 4, NEXT, 0}, {BASE, 4, 0, 0}};
    static const struct raw circle[] = {{BASE, 0, NEXT, 1}, {BASE, 0, NEXT, 0}};
    static const struct raw beyond[] = {{BASE, 4, NEXT, 2}, {BASE, 4, 0, 0}};
    static const struct raw three[] = {{BASE, 4, NEXT, 1}, {BASE, 4, NEXT, 2}, {BASE, 4, 0, 0}};
    struct bench bench;

    (void)state;
    expect_table(VW_RING_SPLIT, self, 2, 0, 32, VW_RING_LOOP);
    expect_table(VW_RING_SPLIT, circle, 2, 0, 32, VW_RING_LOOP);
    expect_table(VW_RING_SPLIT, beyond, 2, 0, 32, VW_RING_BAD_INDIRECT);

    /* A table that turns in a circle is found out before it fills a pool. */
    bench_open(&bench, VW_RING_SPLIT, INDIRECT);
    bench.pool.capacity = 3;
    put_table(&bench, self, 2);
    struct raw refers = {bench.table_address, 32, TABLE, 0};
    expect_error(&bench, &refers, 1, VW_RING_LOOP);
    bench_close(&bench);

    /* Six direct descriptors and three in a table are more than the ring's 8 (2.7.5.3.1). */
    bench_open(&bench, VW_RING_SPLIT, INDIRECT);
    put_table(&bench, three, 3);
    struct raw direct[7];
    for (uint16_t i = 0; i < 6; i++)
        direct[i] = (struct raw){BASE, 4, NEXT, (uint16_t)(i + 2)};
    direct[6] = (struct raw){bench.table_address, 48, TABLE, 0};
    expect_error(&bench, direct, 7, VW_RING_LOOP);
    bench_close(&bench);
}

/* Packed lists do not mix direct descriptors with an indirect one (2.8.7.1); split ones do. */
static void test_direct_then_indirect(void **state)
{
    static const struct raw table[] = {{BASE + 4, 4, NEXT, 1}, {BASE + 8, 8, WRITE, 0}};

    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        struct bench bench;

        bench_open(&bench, (enum vw_ring_format)f, INDIRECT);
        put_table(&bench, table, 2);
        /* WRITE of the descriptor that refers means nothing. */
        struct raw raw[] = {{BASE, 4, NEXT, 2}, {bench.table_address, 32, TABLE | WRITE, 0}};
        if (f == VW_RING_PACKED) {
            expect_error(&bench, raw, 2, VW_RING_NESTED_INDIRECT);
        } else {
            put_chain(&bench, raw, 2, 1);
            assert_int_equal(fetch(&bench), 1);
            assert_int_equal(bench.chains[0].id, 1);
            assert_int_equal(bench.chains[0].readable_count, 2);
            assert_int_equal(bench.chains[0].readable_length, 8);
            assert_int_equal(bench.chains[0].writable_count, 1);
            assert_int_equal(bench.chains[0].writable_length, 8);
            assert_int_equal(bench.pair.device.error, VW_RING_OK);
        }
        bench_close(&bench);
    }
}

/* A table that lies across the end of a region, at an odd address, and fills the whole ring. */
static void test_table_across_regions(void **state)
{
    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        for (uint64_t shift = 0; shift < 16; shift += 3) {
            struct raw table[SIZE];
            struct bench bench;

            bench_open(&bench, (enum vw_ring_format)f, INDIRECT);
            bench.table += shift;
            for (uint16_t i = 0; i < SIZE; i++)
                table[i] = (struct raw){BASE + 10u * i, 1u + i,
                                        (uint16_t)((i + 1 < SIZE ? NEXT : 0) | (i > 3 ? WRITE : 0)),
                                        (uint16_t)(i + 1)};
            put_table(&bench, table, SIZE);
            struct raw refers = {bench.table_address + shift, 16 * SIZE, TABLE, 0};
            put_chain(&bench, &refers, 1, 0);
            assert_int_equal(fetch(&bench), 1);
            assert_int_equal(bench.chains[0].readable_count, 4);
            assert_int_equal(bench.chains[0].writable_count, 4);
            for (uint16_t i = 0; i < SIZE; i++) {
                assert_ptr_equal(bench.chains[0].iov[i].iov_base,
                                 vw_memory_from_guest(&bench.world->memory, BASE + 10u * i, 1));
                assert_int_equal(bench.chains[0].iov[i].iov_len, 1 + i);
            }
            bench_close(&bench);
        }
    }
}

/* Buffers across regions are several pieces, empty ones none, unknown flags are ignored. */
static void test_pieces(void **state)
{
    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        const struct raw raw[] = {{BASE + 4000, 200, NEXT | 0x78, 1},
                                  {0, 0, NEXT, 2},
                                  {BASE + 4095, 1, NEXT, 3},
                                  {0, 0, NEXT | WRITE, 4},
                                  {BASE + 4090, 10, WRITE, 0}};
        struct bench bench;

        bench_open(&bench, (enum vw_ring_format)f, 0);
        bench.pool.headroom = 2;
        put_chain(&bench, raw, 5, 0);
        assert_int_equal(fetch(&bench), 1);
        assert_ptr_equal(bench.chains[0].iov, &bench.iov[2]);
        assert_int_equal(bench.chains[0].readable_count, 3);
        assert_int_equal(bench.chains[0].readable_length, 201);
        assert_int_equal(bench.chains[0].writable_count, 2);
        assert_int_equal(bench.chains[0].writable_length, 10);
        assert_int_equal(bench.iov[2].iov_len, 96);
        assert_int_equal(bench.iov[3].iov_len, 104);
        assert_int_equal(bench.iov[5].iov_len, 6);
        assert_int_equal(bench.iov[6].iov_len, 4);
        assert_int_equal(bench.pool.used, 7);
        assert_int_equal(bench.pair.device.error, VW_RING_OK);
        bench_close(&bench);
    }
}

/* A pool that is full stops the batch; a chain that no empty pool would hold breaks the ring. */
static void test_pool(void **state)
{
    (void)state;
    for (int f = VW_RING_SPLIT; f <= VW_RING_PACKED; f++) {
        const struct raw raw[] = {{BASE, 4, NEXT, 3}, {BASE, 4, NEXT, 4}, {BASE, 4, 0, 0}};
        struct bench bench;

        bench_open(&bench, (enum vw_ring_format)f, 0);
        bench.pool.capacity = 4;
        bench.pool.headroom = 1;
        put_chain(&bench, good, 1, 0);
        put_chain(&bench, raw, 3, 2);
        put_chain(&bench, good, 1, 1);
        assert_int_equal(fetch(&bench), 1);
        assert_int_equal(bench.pool.used, 2);
        assert_int_equal(fetch(&bench), 0);
        assert_int_equal(bench.pair.device.error, VW_RING_OK);
        assert_false(vw_device_ring_arm(&bench.pair.device));
        bench.pool.used = 0;
        assert_int_equal(fetch(&bench), 1);
        assert_int_equal(bench.chains[0].readable_count, 3);
        assert_int_equal(bench.pool.used, 4);
        bench.pool.used = 0;
        bench.pool.capacity = 1;
        assert_int_equal(fetch(&bench), 0);
        expect_broken(&bench, VW_RING_TOO_LONG);
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct_violations),
        cmocka_unit_test(test_split_violations),
        cmocka_unit_test(test_split_heads),
        cmocka_unit_test(test_available_index),
        cmocka_unit_test(test_packed_overrun),
        cmocka_unit_test(test_table_violations),
        cmocka_unit_test(test_split_table_violations),
        cmocka_unit_test(test_direct_then_indirect),
        cmocka_unit_test(test_table_across_regions),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
