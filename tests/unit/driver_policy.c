/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each transmit policy, act by act: what a burst reaps, when it kicks, when the device is to call.
 * The definitions are those of src/driver/policy.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_world.h"

#define RING 16 /* with indirect descriptors: as many frames */
#define FEATURES                                                                                   \
    (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC | UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX |         \
     UINT64_C(1) << VW_F_URGENT)

static const uint64_t formats[] = {FEATURES, FEATURES | PACKED};

#define FOR_EACH_FORMAT(format)                                                                    \
    for (const uint64_t *format = formats; format < formats + VW_ARRAY_SIZE(formats); format++)

static bool readable(struct world *world)
{
    struct pollfd wait = {.fd = vw_queue_fd(world->net, 0), .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static void poll_all(struct world *world)
{
    assert_int_equal(vw_poll(world->net, 0, 8, NULL, NULL), 0);
}

static int send_many(struct world *world, unsigned count, bool more, bool urgent)
{
    const struct vw_piece piece = {world->frame, 60};
    struct vw_tx_packet packets[32];

    for (unsigned i = 0; i < count; i++)
        packets[i] = (struct vw_tx_packet){.pieces = &piece,
                                           .piece_count = 1,
                                           .token = (void *)(uintptr_t)(world->tokens + i),
                                           .flow = world->flow,
                                           .urgent = urgent};
    world->tokens += count;
    int taken = vw_tx_burst(world->net, 0, packets, count, more);
    world->tokens -= count - (unsigned)(taken > 0 ? taken : 0);
    return taken;
}

/* Completes the next frame. Is the driver to be called? */
static bool complete(struct world *world)
{
    struct vw_chain chain = take(world, &world->tx);

    return give(&world->tx, &chain);
}

/* A waiting caller: its first poll is done, and the first call decision, which is always yes. */
static struct world *begin_waiting(uint64_t features, enum vw_tx_policy policy, bool limit)
{
    struct world *world = begin_as(features, policy, limit);

    world->flow = vw_flow_new(world->net);
    assert_non_null(world->flow);
    assert_true(readable(world));
    poll_all(world);
    assert_int_equal(send_many(world, 1, false, false), 1);
    complete(world);
    poll_all(world);
    assert_int_equal(vw_tx_reap(world->net, 0), 0);
    poll_all(world);
    assert_false(readable(world));
    assert_int_equal(vw_tx_in_flight(world->net, 0), 0);
    return world;
}

static void finish(struct world *world)
{
    struct vw_flow *flow = world->flow;

    end(world);
    vw_flow_free(flow);
}

static void deferred_leaves_reaping_to_the_poll(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_DEFERRED, false);

        assert_int_equal(send_many(world, 2, false, false), 2);
        complete(world);
        complete(world);
        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 3);
        assert_true(vw_flow_in_flight(world->flow) == 180);
        poll_all(world);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 1);
        assert_true(vw_flow_in_flight(world->flow) == 60);
        finish(world);
    }
}

/* Four in flight: a call once three more than the first are done; the kick comes first. */
static void deferred_arms_behind_the_kick(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_DEFERRED, false);

        assert_int_equal(send_many(world, 4, false, false), 4);
        assert_false(complete(world));
        assert_false(complete(world));
        assert_false(complete(world));
        assert_true(complete(world));
        finish(world);
    }
}

/* On a split ring the poll is scheduled if more than 3/4 are done by then; on a packed one if
 * anything is. */
static void deferred_schedules_the_poll_if_it_is_late(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_DEFERRED, false);

        assert_int_equal(send_many(world, 4, true, false), 4);
        poll_all(world);
        for (unsigned i = 0; i < 4; i++)
            complete(world);
        assert_false(readable(world)); /* the calls are not made in this test */
        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_true(readable(world));
        poll_all(world);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 1);
        assert_false(readable(world));
        finish(world);
    }
}

/* Frames of a burst with `more` are not visible; the poll kicks them if nobody else does. */
static void a_burst_without_a_kick(void **unused)
{
    static const enum vw_tx_policy policies[] = {VW_TX_DEFERRED, VW_TX_DELAYED, VW_TX_SCHEDULED};

    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned i = 0; i < VW_ARRAY_SIZE(policies); i++) {
        struct world *world = begin_waiting(*format, policies[i], false);
        uint64_t kicks = tx_counters(world).kicks;

        assert_true(vw_device_ring_arm(&world->tx));
        assert_int_equal(send_many(world, 3, true, false), 3);
        assert_false(vw_device_ring_pending(&world->tx));
        assert_true(tx_counters(world).kicks == kicks);
        assert_true(readable(world)); /* calls are off: somebody must come back to it */
        poll_all(world);
        assert_true(vw_device_ring_pending(&world->tx));
        assert_true(tx_counters(world).kicks == kicks + 1);
        assert_true(complete(world)); /* and they are on again */
        finish(world);
    }
}

static void a_later_burst_kicks_for_both(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_DEFERRED, false);
        uint64_t kicks = tx_counters(world).kicks;

        assert_true(vw_device_ring_arm(&world->tx));
        assert_int_equal(send_many(world, 3, true, false), 3);
        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_true(tx_counters(world).kicks == kicks + 1);
        for (unsigned i = 0; i < 4; i++)
            assert_true(complete(world) == (i == 3));
        finish(world);
    }
}

/* With `more`, with every policy: kicked, armed for, and it goes on. */
static void a_stopped_queue_kicks_and_arms(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++) {
        struct world *world = begin_waiting(*format, policy, false);
        uint64_t kicks = tx_counters(world).kicks;
        bool called = false;

        assert_true(vw_device_ring_arm(&world->tx));
        assert_int_equal(send_many(world, RING + 4, true, false), RING);
        assert_true(tx_counters(world).kicks == kicks + 1);
        assert_true(tx_counters(world).stops == 1 && tx_counters(world).ring_full == 1);
        /* Another attempt takes nothing, and must not switch off what was armed. */
        assert_int_equal(send_many(world, 1, false, false), 0);
        if (policy == VW_TX_SCHEDULED) {
            assert_true(readable(world));
            poll_all(world);
        }
        assert_false(readable(world));
        for (unsigned i = 0; i < RING; i++)
            called |= complete(world);
        assert_true(called);
        poll_all(world);
        assert_true(tx_counters(world).wakes == 1);
        assert_true(readable(world)); /* whoever was refused is to try again */
        assert_int_equal(send_many(world, 1, false, false), 1);
        finish(world);
    }
}

static void orphan_asks_for_nothing(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_ORPHAN, true);

        assert_int_equal(send_many(world, 8, false, false), 8); /* no byte limit applies */
        assert_true(vw_flow_in_flight(world->flow) == 0);
        for (unsigned i = 0; i < 8; i++)
            assert_false(complete(world));
        assert_false(readable(world));
        assert_int_equal(send_many(world, 1, false, false), 1); /* reaps */
        assert_int_equal(vw_tx_in_flight(world->net, 0), 1);
        finish(world);
    }
}

static void urgent_frames_are_called_for(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_URGENT, false);

        assert_int_equal(send_many(world, 2, false, false), 2);
        assert_true(vw_flow_in_flight(world->flow) == 0);
        assert_false(complete(world));
        assert_false(complete(world));
        assert_int_equal(send_many(world, 1, false, true), 1);
        assert_true(vw_flow_in_flight(world->flow) == 60);
        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_true(complete(world));
        assert_false(complete(world));
        poll_all(world);
        assert_true(vw_flow_in_flight(world->flow) == 0);
        finish(world);
    }
}

/* Transmit reaps, and arms for 3/4 of what is in flight before the last frame of the burst. */
static void delayed_reaps_in_transmit(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_DELAYED, false);

        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_true(complete(world));
        assert_int_equal(send_many(world, 5, false, false), 5);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 5);
        for (unsigned i = 0; i < 5; i++)
            assert_true(complete(world) == (i == 3));
        finish(world);
    }
}

static void scheduled_leaves_arming_to_the_poll(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_SCHEDULED, false);

        assert_int_equal(send_many(world, 4, false, false), 4);
        assert_true(readable(world));
        assert_false(complete(world));
        assert_false(complete(world));
        assert_int_equal(vw_tx_in_flight(world->net, 0), 4);
        poll_all(world);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 2);
        assert_false(readable(world));
        assert_true(complete(world));
        finish(world);
    }
}

/* A caller that never waits is never armed for, and wakes its queue by reaping. */
static void nothing_is_armed_for_a_busy_caller(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++) {
        struct world *world = begin_as(*format, policy, false);

        assert_int_equal(send_many(world, 1, false, false), 1);
        complete(world); /* the first decision is always for a call */
        assert_int_equal(vw_tx_reap(world->net, 0), 1);
        for (unsigned round = 0; round < 4; round++) {
            assert_int_equal(send_many(world, RING + 1, false, false), RING);
            for (unsigned i = 0; i < RING; i++)
                assert_false(complete(world));
            assert_int_equal(vw_tx_reap(world->net, 0), RING);
        }
        assert_true(tx_counters(world).calls == 0);
        assert_true(tx_counters(world).wakes == 4);
        finish(world);
    }
}

static void the_byte_limit_stops_the_queue(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_as(*format, VW_TX_DEFERRED, true);
        int last = 1;

        /* It begins with one frame, and grows as long as the device runs dry. */
        assert_int_equal(send_many(world, RING, false, false), 1);
        assert_true(tx_counters(world).limited == 1 && tx_counters(world).stops == 1);
        for (unsigned round = 0; last < RING && round < 20; round++) {
            for (int i = 0; i < last; i++)
                complete(world);
            assert_int_equal(vw_tx_reap(world->net, 0), last);
            int taken = send_many(world, RING, false, false);
            assert_true(taken >= last);
            last = taken;
        }
        assert_int_equal(last, RING);
        finish(world);
    }
}

/* What a device may leave behind when it breaks; each call returns. */
static void a_broken_ring_ends_every_loop(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++) {
        struct world *world = begin_waiting(*format, policy, false);
        struct vw_chain chain;

        assert_int_equal(send_many(world, 5, false, false), 5);
        chain = take(world, &world->tx);
        chain.id = 77;
        give(&world->tx, &chain);
        send_many(world, 3, false, false);
        assert_int_equal(vw_poll(world->net, 0, 8, NULL, NULL), -EIO);
        assert_int_equal(send_many(world, 1, false, false), -EIO);
        assert_int_equal(vw_tx_reap(world->net, 0), -EIO);
        assert_non_null(vw_queue_error(world->net, 0));
        expect_loops_to_end(world);
        finish(world);
    }
}

static void change_of_policy(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_waiting(*format, VW_TX_ORPHAN, false);

        assert_int_equal(send_many(world, 2, false, false), 2);
        assert_int_equal(vw_tx_set_policy(world->net, 0, VW_TX_DEFERRED), 0);
        assert_true(readable(world)); /* the poll is to see what waits now */
        poll_all(world);
        assert_true(complete(world));
        assert_true(vw_flow_in_flight(world->flow) == 0);
        assert_int_equal(send_many(world, 1, false, false), 1);
        assert_true(vw_flow_in_flight(world->flow) == 60);
        assert_int_equal(vw_tx_set_policy(world->net, 0, (enum vw_tx_policy)5), -EINVAL);
        assert_int_equal(vw_tx_set_policy(world->net, 1, VW_TX_DEFERRED), -EINVAL);
        finish(world);
    }
}

/* In tx_done: a received frame may be given back, but nothing sent on the same pair. */
static struct vw_rx_packet echoed;

static void in_done(struct world *world)
{
    const struct vw_piece piece = {world->frame, 60};
    const struct vw_tx_packet packet = {.pieces = &piece, .piece_count = 1};

    world->hook = NULL;
    vw_rx_release(world->net, 0, &echoed, 1);
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EBUSY);
    assert_int_equal(vw_tx_reap(world->net, 0), -EBUSY);
    assert_int_equal(vw_poll(world->net, 0, 1, NULL, NULL), -EBUSY);
}

static void echo_gives_back_when_it_was_sent(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin_as(*format, VW_TX_DEFERRED, false);

        for (unsigned round = 0; round < 100; round++) {
            struct vw_tx_packet packet;

            deliver_good(world, 60);
            assert_int_equal(vw_rx_burst(world->net, 0, &echoed, 1), 1);
            packet = (struct vw_tx_packet){.pieces = echoed.pieces,
                                           .piece_count = echoed.piece_count,
                                           .token = (void *)(uintptr_t)world->tokens++,
                                           .headroom = 12};
            assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), 1);
            complete(world);
            world->hook = in_done;
            assert_int_equal(vw_tx_reap(world->net, 0), 1);
            assert_null(world->hook);
        }
        finish(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_leaves_reaping_to_the_poll),
        cmocka_unit_test(deferred_arms_behind_the_kick),
        cmocka_unit_test(deferred_schedules_the_poll_if_it_is_late),
        cmocka_unit_test(a_burst_without_a_kick),
        cmocka_unit_test(a_later_burst_kicks_for_both),
        cmocka_unit_test(a_stopped_queue_kicks_and_arms),
        cmocka_unit_test(orphan_asks_for_nothing),
        cmocka_unit_test(urgent_frames_are_called_for),
        cmocka_unit_test(delayed_reaps_in_transmit),
        cmocka_unit_test(scheduled_leaves_arming_to_the_poll),
        cmocka_unit_test(nothing_is_armed_for_a_busy_caller),
        cmocka_unit_test(the_byte_limit_stops_the_queue),
        cmocka_unit_test(a_broken_ring_ends_every_loop),
        cmocka_unit_test(change_of_policy),
        cmocka_unit_test(echo_gives_back_when_it_was_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
