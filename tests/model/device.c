/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole device against a small front-end, in every combination of ring features: random frames
 * out through a loop and back (device_traffic.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../device_traffic.h"

static char where[160]; /* the configuration under test, for a failure */

static int say_where(void **unused)
{
    (void)unused;
    if (where[0] != '\0')
        print_message("last configuration: %s (VW_SEED=%#llx)\n", where,
                      (unsigned long long)random_seed());
    return 0;
}

struct combination {
    bool packed, mergeable, indirect, event_index, in_order, wide_header;
    unsigned pairs;
};

static uint64_t features_of(const struct combination *c, struct random *random)
{
    uint64_t features = vw_bit(VIRTIO_F_VERSION_1) | F(CTRL_VQ) | F(MAC);

    if (c->packed)
        features |= vw_bit(VIRTIO_F_RING_PACKED);
    if (c->mergeable)
        features |= F(MRG_RXBUF);
    if (c->indirect)
        features |= vw_bit(VIRTIO_RING_F_INDIRECT_DESC);
    if (c->event_index)
        features |= vw_bit(VIRTIO_RING_F_EVENT_IDX);
    if (c->in_order)
        features |= vw_bit(VIRTIO_F_IN_ORDER);
    if (c->wide_header)
        features |= F(HASH_REPORT);
    if (c->pairs > 1)
        features |= F(MQ);
    if (random_one_in(random, 2))
        features |= F(CSUM);
    if (random_one_in(random, 2))
        features |= F(GUEST_CSUM) | F(GUEST_TSO4);
    if (vw_has(features, VIRTIO_NET_F_CSUM))
        features |= F(HOST_TSO4);
    return features;
}

static struct shape shape_of(const struct combination *c, struct random *random)
{
    static const uint32_t split[] = {16, 64, 128, 256}, packed[] = {17, 48, 127, 256};
    const uint32_t *sizes = c->packed ? packed : split;
    struct shape shape = {.pairs = c->pairs,
                          .device_pairs = c->pairs,
                          .size = sizes[random_below(random, 4)],
                          .receive_segments = 1 + random_below(random, 3),
                          .batch = random_below(random, 3) * random_below(random, 33),
                          .batch_singly = random_below(random, 2)};

    if (c->mergeable) {
        shape.receive_smallest = 64;
        shape.receive_largest = 4096;
    } else {
        shape.receive_smallest = 2048;
        shape.receive_largest = 4096;
    }
    return shape;
}

/* What fits for sure: a frame to the receive buffers, all together if they are mergeable. */
static uint32_t largest_frame(struct front_end *front, const struct combination *c)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < front->pairs; i++) {
        uint64_t sum = 0;

        for (unsigned b = 0; b < front->receive[i].buffer_count; b++)
            sum += front->receive[i].buffers[b].size;
        least = vw_min64(least, sum);
    }
    if (!c->mergeable)
        least = 2048;
    return (uint32_t)vw_min64(least - front->header_size, 40000);
}

static void exchange(const struct combination *c, uint64_t seed, uint64_t count)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    struct random random = {seed};
    struct running_device running;
    struct front_end front;
    uint64_t features = features_of(c, &random);
    struct shape shape = shape_of(c, &random);

    assert_non_null(traffic);
    shape.transmit_bytes = 40000 + VW_NET_HEADER_MAX;
    snprintf(where, sizeof(where), "features %#llx, size %u, receive segments %u, pairs %u",
             (unsigned long long)features, shape.size, shape.receive_segments, shape.pairs);
    begin(&running, &front, "loop", features, &shape, seed);
    *traffic = (struct traffic){.front = &front, .session = (uint32_t)seed, .count = count};
    traffic->max_frame = largest_frame(&front, c);
    run_traffic(traffic);
    check_counters(traffic, &running);
    end(&running, &front);
    free(traffic);
    where[0] = '\0';
}

static void all_combinations(bool packed, unsigned pairs)
{
    for (unsigned bits = 0; bits < 32; bits++) {
        struct combination c = {.packed = packed,
                                .pairs = pairs,
                                .mergeable = bits & 1,
                                .indirect = bits & 2,
                                .event_index = bits & 4,
                                .in_order = bits & 8,
                                .wide_header = bits & 16};

        exchange(&c, random_seed() + bits + 100 * packed + 1000 * pairs, 600);
    }
}

static void split_rings_one_pair(void **unused)
{
    (void)unused;
    all_combinations(false, 1);
}

static void split_rings_two_pairs(void **unused)
{
    (void)unused;
    all_combinations(false, 2);
}

static void packed_rings_one_pair(void **unused)
{
    (void)unused;
    all_combinations(true, 1);
}

static void packed_rings_two_pairs(void **unused)
{
    (void)unused;
    all_combinations(true, 2);
}

/* The header of 10 bytes: neither VERSION_1 nor mergeable buffers. */
static void a_legacy_driver(void **unused)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    const struct shape shape = {.pairs = 1,
                                .device_pairs = 1,
                                .size = 64,
                                .transmit_bytes = 2048,
                                .receive_smallest = 2048,
                                .receive_largest = 2048,
                                .receive_segments = 2};
    struct running_device running;
    struct front_end front;

    (void)unused;
    assert_non_null(traffic);
    begin(&running, &front, "loop", F(MAC) | F(CSUM), &shape, random_seed());
    assert_int_equal(front.header_size, 10);
    *traffic = (struct traffic){.front = &front, .session = 7, .count = 1000, .max_frame = 1600};
    run_traffic(traffic);
    check_counters(traffic, &running);
    end(&running, &front);
    free(traffic);
}

/* The longest frame there is, into buffers of a page and of a small frame. */
static void the_longest_frames(void **unused)
{
    static const uint32_t sizes[] = {4096, 1526, 300};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(sizes); i++) {
        struct traffic *traffic = calloc(1, sizeof(*traffic));
        const struct shape shape = {.pairs = 1,
                                    .device_pairs = 1,
                                    .size = 256,
                                    .transmit_bytes = FRONT_END_MAX_BYTES,
                                    .receive_smallest = sizes[i],
                                    .receive_largest = sizes[i],
                                    .receive_segments = 1};
        struct running_device running;
        struct front_end front;

        assert_non_null(traffic);
        begin(&running, &front, "loop",
              vw_bit(VIRTIO_F_VERSION_1) | F(MRG_RXBUF) | F(CSUM) | F(GUEST_CSUM) | F(HOST_TSO4) |
                  F(GUEST_TSO4),
              &shape, random_seed());
        *traffic = (struct traffic){
            .front = &front, .session = 8, .count = 200, .max_frame = VW_NET_MAX_FRAME};
        run_traffic(traffic);
        check_counters(traffic, &running);
        end(&running, &front);
        free(traffic);
    }
}

/* The null port takes everything and gives nothing; every buffer comes back. */
static void the_null_port_swallows_all(void **unused)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    const struct shape shape = {.pairs = 2,
                                .device_pairs = 2,
                                .size = 128,
                                .transmit_bytes = 2048,
                                .receive_smallest = 2048,
                                .receive_largest = 2048,
                                .receive_segments = 1};
    struct running_device running;
    struct front_end front;

    (void)unused;
    assert_non_null(traffic);
    for (unsigned packed = 0; packed < 2; packed++) {
        uint64_t features = vw_bit(VIRTIO_F_VERSION_1) | F(CTRL_VQ) | F(MQ);

        if (packed)
            features |= vw_bit(VIRTIO_F_RING_PACKED);
        begin(&running, &front, "null", features, &shape, random_seed());
        *traffic =
            (struct traffic){.front = &front, .session = 9, .count = 2000, .max_frame = 1514};
        for (unsigned i = 0; i < 2; i++) {
            while (traffic->sent[i] < traffic->count ||
                   vw_driver_ring_in_flight(&front.transmit[i].ring) > 0)
                if (!pump_transmit(traffic, i))
                    wait_for_calls(&front);
            assert_false(receive_frame(&front, i, &traffic->frame));
            assert_true(queue_statistics(&running, 2 * i + 1).counters.frames == 2000);
        }
        end(&running, &front);
    }
    free(traffic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(split_rings_one_pair, say_where),
        cmocka_unit_test_teardown(split_rings_two_pairs, say_where),
        cmocka_unit_test_teardown(packed_rings_one_pair, say_where),
        cmocka_unit_test_teardown(packed_rings_two_pairs, say_where),
        cmocka_unit_test(a_legacy_driver),
        cmocka_unit_test(the_longest_frames),
        cmocka_unit_test(the_null_port_swallows_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
