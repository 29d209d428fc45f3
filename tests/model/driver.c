/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole driver against the whole device: every policy, ring format, receive mode and manner of
 * a caller, on rings of 64 (driver_lab.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_lab.h"
#include "driver/internal.h"

static char where[200];

static int say_where(void **unused)
{
    (void)unused;
    if (where[0] != '\0')
        print_message("last case: %s (VW_SEED=%#llx)\n", where, (unsigned long long)random_seed());
    where[0] = '\0';
    return 0;
}

static void say(const struct lab_case *test)
{
    snprintf(where, sizeof(where), "%s, %s, receive mode %d, %s, pieces %u, longest %u",
             test->features, policy_name(test->policy), test->mode, manner_name(test->manner),
             test->pieces, test->longest);
}

static void exchange(const struct lab_case *test)
{
    say(test);
    struct lab *lab = lab_begin(test, "loop");
    lab_run(lab, true);
    lab_check_counters(lab, true);
    lab_end(lab);
    where[0] = '\0';
}

static const char *const rings[] = {
    "packed=off,event_idx=off,in_order=off",
    "packed=off,in_order=off",
    "packed=off,indirect_desc=off",
    "packed=on,event_idx=off,in_order=off",
    "packed=on,in_order=off,indirect_desc=off",
    "packed=on",
};

static void every_mode(enum vw_tx_policy policy)
{
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (enum vw_rx_mode mode = VW_RX_SMALL; mode <= VW_RX_MERGEABLE; mode++)
            for (enum manner manner = BUSY; manner < MANNERS; manner++) {
                struct lab_case test = {.features = rings[r],
                                        .policy = policy,
                                        .mode = mode,
                                        .manner = manner,
                                        .ring = 64,
                                        .pieces = 1 + (r * 5 + mode) % VW_TX_MAX_PIECES,
                                        .shortest = 60,
                                        .longest = mode == VW_RX_SMALL ? 1518 : 9000,
                                        .more = r % 2,
                                        .hold = (r + manner) % 2,
                                        .headroom = (r + mode) % 2,
                                        .no_limit = r == 5,
                                        .count = 400};

                exchange(&test);
            }
}

#define POLICY(name, policy)                                                                       \
    static void name(void **unused)                                                                \
    {                                                                                              \
        (void)unused;                                                                              \
        every_mode(policy);                                                                        \
    }

POLICY(deferred, VW_TX_DEFERRED)
POLICY(orphan, VW_TX_ORPHAN)
POLICY(urgent, VW_TX_URGENT)
POLICY(delayed, VW_TX_DELAYED)
POLICY(scheduled, VW_TX_SCHEDULED)

/* ---- other things that a program does ---- */

static void *run_thread(void *argument)
{
    lab_run(argument, true);
    return NULL;
}

/* Each pair by a thread of its own; their tokens and flows do not mix. */
static void two_pairs(void **unused)
{
    (void)unused;
    for (unsigned packed = 0; packed < 2; packed++) {
        const struct lab_case test = {.features = packed ? "packed=on" : "packed=off",
                                      .policy = packed ? VW_TX_SCHEDULED : VW_TX_DEFERRED,
                                      .mode = VW_RX_AUTO,
                                      .manner = packed ? WAITING : OWN_LOOP,
                                      .ring = 64,
                                      .pairs = 2,
                                      .pieces = 3,
                                      .shortest = 60,
                                      .longest = 1514,
                                      .more = true,
                                      .count = 3000};
        struct lab *lab = lab_begin(&test, "loop"), *second = calloc(1, sizeof(*second));
        struct vw_tx_counters tx[2];
        pthread_t thread;

        assert_non_null(second);
        second->test = &test;
        second->net = lab->net;
        second->pair = 1;
        second->random.state = 77;
        lab->of_pair[1] = second;
        lab_buffers(second, 128);
        assert_int_equal(pthread_create(&thread, NULL, run_thread, second), 0);
        lab_run(lab, true);
        pthread_join(thread, NULL);
        for (unsigned i = 0; i < 2; i++) {
            vw_counters(lab->net, i, &tx[i], NULL);
            assert_true(tx[i].frames == test.count && tx[i].reaped == test.count);
        }
        vw_flow_free(second->flow);
        free(second);
        lab_end(lab);
    }
}

/* The longest frames, in as many buffers as that takes. */
static void the_longest_frames(void **unused)
{
    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (enum vw_rx_mode mode = VW_RX_BIG; mode <= VW_RX_MERGEABLE; mode++) {
            const struct lab_case test = {.features = rings[r],
                                          .policy = VW_TX_DEFERRED,
                                          .mode = mode,
                                          .manner = OWN_LOOP,
                                          .ring = 64,
                                          .pieces = VW_TX_MAX_PIECES,
                                          .shortest = 60000,
                                          .longest = VW_NET_MAX_FRAME - 4, /* without a tag */
                                          .count = 60};

            exchange(&test);
        }
}

/* On rings that have fewer entries than such a frame has pages. */
static void the_longest_frames_on_short_rings(void **unused)
{
    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (enum vw_rx_mode mode = VW_RX_BIG; mode <= VW_RX_MERGEABLE; mode++)
            for (unsigned ring = 4; ring <= 16; ring *= 2) {
                const struct lab_case test = {.features = rings[r],
                                              .policy = VW_TX_DEFERRED,
                                              .mode = mode,
                                              .manner = OWN_LOOP,
                                              .ring = ring,
                                              .pieces = 2,
                                              .shortest = 60000,
                                              .longest = VW_NET_MAX_FRAME - 4,
                                              .count = 20};

                exchange(&test);
            }
}

/* A program that keeps every twentieth frame has as many buffers fewer, and no more. */
static void frames_that_are_held_for_long(void **unused)
{
    (void)unused;
    for (enum vw_rx_mode mode = VW_RX_SMALL; mode <= VW_RX_MERGEABLE; mode++) {
        const struct lab_case test = {.features = "packed=off",
                                      .policy = VW_TX_DEFERRED,
                                      .mode = mode,
                                      .manner = BUSY,
                                      .ring = 256,
                                      .pieces = 1,
                                      .shortest = 60,
                                      .longest = 1514,
                                      .count = 10000};
        struct lab *lab = lab_begin(&test, "loop");
        struct vw_rx_packet held[480], packet;
        unsigned held_count = 0;

        while (lab->received < test.count) {
            lab_send(lab);
            assert_true(vw_tx_reap(lab->net, 0) >= 0);
            while (vw_rx_burst(lab->net, 0, &packet, 1) == 1) {
                lab_check(lab, &packet);
                if (lab->received % 20 == 0 && held_count < VW_ARRAY_SIZE(held))
                    held[held_count++] = packet;
                else
                    vw_rx_release(lab->net, 0, &packet, 1);
            }
        }
        assert_int_equal(held_count, VW_ARRAY_SIZE(held));
        vw_rx_release(lab->net, 0, held, held_count);
        while (vw_tx_in_flight(lab->net, 0) > 0)
            assert_true(vw_tx_reap(lab->net, 0) >= 0);
        lab_end(lab);
    }
}

/* MTU 9000: five descriptors a buffer instead of nineteen, and 51 buffers in a ring of 256 instead
 * of 13, where the device sends no GSO frames, and nobody asked for the maximum. */
static void buffers_for_the_mtu(void **unused)
{
#define NO_GSO "guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off"
    static const struct {
        const char *features;
        enum vw_rx_big big;
        unsigned descriptors, buffers;
    } cases[] = {
        {"indirect_desc=off," NO_GSO, VW_RX_BIG_MTU, 5, 51},
        {"indirect_desc=off," NO_GSO, VW_RX_BIG_MAXIMUM, 19, 13},
        {"indirect_desc=off,packed=off," NO_GSO, VW_RX_BIG_MTU, 5, 51},
        {"indirect_desc=off,packed=off," NO_GSO, VW_RX_BIG_MAXIMUM, 19, 13},
        {"indirect_desc=off", VW_RX_BIG_MTU, 19, 13},
        {"packed=off," NO_GSO, VW_RX_BIG_MTU, 5, 256},
        {"packed=off," NO_GSO, VW_RX_BIG_MAXIMUM, 19, 256},
        {"packed=on," NO_GSO, VW_RX_BIG_MTU, 1, 256}, /* pages that follow one another */
        {"packed=on," NO_GSO, VW_RX_BIG_MAXIMUM, 1, 256},
    };
    struct lab_case test = {.policy = VW_TX_DEFERRED,
                            .mode = VW_RX_BIG,
                            .manner = OWN_LOOP,
                            .ring = 256,
                            .mtu = 9000,
                            .pieces = 2,
                            .shortest = 60,
                            .longest = 9018,
                            .count = 500};
    struct vw_net_info info;

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        bool maximum = cases[i].big == VW_RX_BIG_MAXIMUM || !strstr(cases[i].features, NO_GSO);

        test.features = cases[i].features;
        test.big = cases[i].big;
        struct lab *lab = lab_begin(&test, "loop");
        vw_net_info(lab->net, &info);
        assert_int_equal(info.mtu, 9000);
        assert_int_equal(info.rx_mode, VW_RX_BIG);
        assert_int_equal(info.rx_buffer_descriptors, cases[i].descriptors);
        assert_int_equal(info.rx_ring_buffers, cases[i].buffers);
        assert_int_equal(lab->net->pairs[0].rx.posted, cases[i].buffers);
        assert_int_equal(info.rx_buffer_bytes, info.header_size + (maximum ? 18 : 4) * 4096 - 32);
        lab_run(lab, true);
        lab_end(lab);
    }
}

/* The device may send no more GSO frames: buffers become as large as the MTU, in traffic, and as
 * large as before when it may again. */
static void offloads_at_run_time(void **unused)
{
    struct lab_case test = {.features = "indirect_desc=off",
                            .policy = VW_TX_DEFERRED,
                            .mode = VW_RX_BIG,
                            .manner = BUSY,
                            .ring = 256,
                            .mtu = 9000,
                            .pieces = 2,
                            .shortest = 60,
                            .longest = 9000,
                            .count = 300};
    struct lab *lab = lab_begin(&test, "loop");
    struct vw_net_info info;
    uint64_t all;

    (void)unused;
    vw_net_info(lab->net, &info);
    all = info.features & VW_NET_GUEST_OFFLOADS;
    for (unsigned turn = 0; turn < 6; turn++) {
        assert_int_equal(vw_set_guest_offloads(lab->net, turn % 2 ? all : F(GUEST_CSUM)), 0);
        vw_net_info(lab->net, &info);
        assert_int_equal(info.rx_buffer_descriptors, turn % 2 ? 19 : 5);
        lab_run(lab, true);
        test.count += 300;
    }
    lab_end(lab);
}

/* A larger MTU, or segments again: the next frames are too long for what is posted, all of it. */
static void frames_longer_than_the_buffers_of_before(void **unused)
{
    static const char *const no_gso = "guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off";

    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (unsigned mergeable = 0; mergeable < 2; mergeable++)
            for (enum manner manner = BUSY; manner < MANNERS; manner++) {
                char features[200];
                struct lab_case test = {.features = features,
                                        .policy = VW_TX_DEFERRED,
                                        .mode = VW_RX_AUTO,
                                        .manner = manner,
                                        .ring = mergeable ? 4 : 64,
                                        .mtu = 9000,
                                        .pieces = 1,
                                        .shortest = 60,
                                        .longest = 9014};
                struct vw_net_info info;

                snprintf(features, sizeof(features), "%s,%s,mrg_rxbuf=%s", rings[r], no_gso,
                         mergeable ? "on" : "off");
                say(&test);
                struct lab *lab = lab_begin(&test, "loop");
                assert_int_equal(vw_set_mtu(lab->net, 1500), 0);
                for (unsigned turn = 0; turn < 4; turn++) {
                    test.shortest = test.longest = turn % 2 ? 9014 : 1514;
                    test.count += 100;
                    lab_run(lab, true);
                    assert_int_equal(vw_set_mtu(lab->net, turn % 2 ? 1500 : 9000), 0);
                    vw_net_info(lab->net, &info);
                    assert_int_equal(info.mtu, turn % 2 ? 1500 : 9000);
                }
                lab_end(lab);
                where[0] = '\0';
            }
}

/* The same from the control thread, while the pair's thread is at work. */
static void buffers_that_grow_in_traffic(void **unused)
{
    (void)unused;
    for (unsigned packed = 0; packed < 2; packed++) {
        const struct lab_case test = {.features = packed ? "packed=on" : "packed=off",
                                      .policy = VW_TX_DEFERRED,
                                      .mode = VW_RX_BIG,
                                      .manner = packed ? WAITING : OWN_LOOP,
                                      .ring = 64,
                                      .mtu = 9000,
                                      .pieces = 2,
                                      .shortest = 60,
                                      .longest = 9000,
                                      .count = 4000};
        struct lab *lab = lab_begin(&test, "loop");
        struct vw_net_info info;
        pthread_t thread;

        vw_net_info(lab->net, &info);
        assert_int_equal(pthread_create(&thread, NULL, run_thread, lab), 0);
        for (unsigned turn = 0; turn < 40; turn++)
            assert_int_equal(
                vw_set_guest_offloads(lab->net, turn % 2 ? info.features & VW_NET_GUEST_OFFLOADS
                                                         : F(GUEST_CSUM)),
                0);
        pthread_join(thread, NULL);
        lab_end(lab);
    }
}

/* The device takes no memory twice: it would not come back. */
static void memory_that_is_shared_twice(void **unused)
{
    const struct lab_case test = {.ring = 64, .longest = 60};
    struct lab *lab = lab_begin(&test, "loop");
    const size_t size = 1 << 16;
    int file = memfd_create("vw-test-own", MFD_CLOEXEC);
    char *own;

    (void)unused;
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)size), 0);
    own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(own != MAP_FAILED);
    assert_int_equal(vw_memory_share(lab->net, file, 0, own, size), 0);
    assert_int_equal(vw_memory_share(lab->net, file, 0, own, size), -EEXIST);
    assert_int_equal(vw_memory_share(lab->net, file, 4096, own + 4096, 4096), -EEXIST);
    assert_int_equal(vw_memory_share(lab->net, file, 0, lab->net->shared.address, 4096), -EEXIST);
    close(file);
    lab_end(lab);
    munmap(own, size);
}

/* Frames in memory of the caller's own. */
static void memory_of_the_caller(void **unused)
{
    const struct lab_case test = {.features = "packed=on",
                                  .policy = VW_TX_DEFERRED,
                                  .mode = VW_RX_AUTO,
                                  .manner = OWN_LOOP,
                                  .ring = 64,
                                  .pieces = 4,
                                  .shortest = 60,
                                  .longest = 1514,
                                  .headroom = true,
                                  .count = 1000};
    struct lab *lab = lab_begin(&test, "loop");
    size_t size = 1 << 20;
    int file = memfd_create("vw-test-own", MFD_CLOEXEC);
    char *own;

    (void)unused;
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)size), 0);
    own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(own != MAP_FAILED);
    assert_int_equal(vw_memory_share(lab->net, file, 0, own + 1, size), -EINVAL);
    assert_int_equal(vw_memory_share(lab->net, file, 0, own, size), 0);
    close(file);
    assert_true((size_t)lab->buffers * lab->stride <= size);
    lab->memory = own;
    lab_run(lab, true);
    lab_end(lab);
    munmap(own, size);
}

/* A device that takes everything and gives nothing. */
static void into_the_void(void **unused)
{
    (void)unused;
    for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++)
        for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++) {
            const struct lab_case test = {.features = rings[r],
                                          .policy = policy,
                                          .mode = VW_RX_AUTO,
                                          .manner = (enum manner)(r % MANNERS),
                                          .ring = 64,
                                          .pieces = 1,
                                          .shortest = 60,
                                          .longest = 64,
                                          .headroom = true,
                                          .count = 3000};
            struct lab *lab = lab_begin(&test, "null");

            say(&test);
            lab_run(lab, false);
            lab_check_counters(lab, false);
            lab_end(lab);
            where[0] = '\0';
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(deferred, say_where),
        cmocka_unit_test_teardown(orphan, say_where),
        cmocka_unit_test_teardown(urgent, say_where),
        cmocka_unit_test_teardown(delayed, say_where),
        cmocka_unit_test_teardown(scheduled, say_where),
        cmocka_unit_test(two_pairs),
        cmocka_unit_test_teardown(the_longest_frames, say_where),
        cmocka_unit_test_teardown(the_longest_frames_on_short_rings, say_where),
        cmocka_unit_test(frames_that_are_held_for_long),
        cmocka_unit_test(buffers_for_the_mtu),
        cmocka_unit_test(offloads_at_run_time),
        cmocka_unit_test_teardown(frames_longer_than_the_buffers_of_before, say_where),
        cmocka_unit_test(buffers_that_grow_in_traffic),
        cmocka_unit_test(memory_of_the_caller),
        cmocka_unit_test(memory_that_is_shared_twice),
        cmocka_unit_test_teardown(into_the_void, say_where),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
