/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the device calls: notification coalescing (virtio 1.x, section 5.1.6.5.9) and urgent
 * buffers, against a small front-end.
 *
 * Nothing here takes a time. Where a call must not come for a while, its time limit is an hour;
 * where it must come by time alone, its packet limit is out of reach. A control command stops the
 * workers, so that after one all that they had to do is done, and no call comes late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../device_traffic.h"
#include "base/urgent.h"
#include "net/control.h"

#define AN_HOUR UINT32_C(3600000000)
#define BIT(number) (UINT64_C(1) << (number))
#define VERSION_1 BIT(VIRTIO_F_VERSION_1)
#define PACKED BIT(VIRTIO_F_RING_PACKED)
#define EVENT_IDX BIT(VIRTIO_RING_F_EVENT_IDX)
#define IN_ORDER BIT(VIRTIO_F_IN_ORDER)
#define INDIRECT BIT(VIRTIO_RING_F_INDIRECT_DESC)
#define COALESCING (F(CTRL_VQ) | F(NOTF_COAL) | F(VQ_NOTF_COAL))

static const uint64_t ring_kinds[] = {
    0,
    EVENT_IDX,
    IN_ORDER,
    EVENT_IDX | IN_ORDER,
    PACKED,
    PACKED | EVENT_IDX,
    PACKED | IN_ORDER,
    PACKED | EVENT_IDX | IN_ORDER,
    INDIRECT,
    PACKED | INDIRECT | EVENT_IDX,
};

static const struct shape one_pair = {.pairs = 1,
                                      .device_pairs = 1,
                                      .size = 64,
                                      .transmit_bytes = 2048,
                                      .receive_smallest = 2048,
                                      .receive_largest = 2048,
                                      .receive_segments = 1};

/* ---- Commands ---- */

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint8_t limit_queue(struct front_end *front, unsigned queue, uint32_t packets,
                           uint32_t usecs)
{
    uint8_t data[12] = {0};

    put(data, queue, 2);
    put(data + 4, packets, 4);
    put(data + 8, usecs, 4);
    return control(front, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, data, 12);
}

static uint8_t limit_all(struct front_end *front, bool transmit, uint32_t packets, uint32_t usecs)
{
    uint8_t data[8];

    put(data, packets, 4);
    put(data + 4, usecs, 4);
    return control(front, VIRTIO_NET_CTRL_NOTF_COAL,
                   transmit ? VIRTIO_NET_CTRL_NOTF_COAL_TX_SET : VIRTIO_NET_CTRL_NOTF_COAL_RX_SET,
                   data, 8);
}

static void assert_limits(struct front_end *front, unsigned queue, uint32_t packets, uint32_t usecs)
{
    uint8_t data[4] = {(uint8_t)queue, (uint8_t)(queue >> 8)}, answer[8] = {0}, wanted[8];

    put(wanted, packets, 4);
    put(wanted + 4, usecs, 4);
    assert_int_equal(control_ask(front, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET,
                                 data, 4, answer, 8),
                     VIRTIO_NET_OK);
    assert_memory_equal(answer, wanted, 8);
}

/* Every worker has done what it had to do. */
static void settle(struct front_end *front)
{
    static const uint8_t nothing[8];

    control(front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, nothing, 1);
}

/* ---- Frames and calls ---- */

static uint64_t calls_of(struct running_device *running, unsigned queue)
{
    return queue_statistics(running, queue).counters.calls;
}

/* Takes the calls that came so far; true if there was one. */
static bool take_call(struct front_ring *ring)
{
    eventfd_t calls;

    return eventfd_read(ring->call, &calls) == 0;
}

static void await_call(struct front_ring *ring)
{
    struct pollfd wait = {.fd = ring->call, .events = POLLIN};

    if (poll(&wait, 1, WAIT_MS) == 0)
        fail_msg("a call was lost");
    assert_true(take_call(ring));
}

/* Adds `count` frames of one segment, and publishes them. */
static void send_frames(struct front_end *front, unsigned pair, unsigned count, bool urgent)
{
    struct front_ring *ring = &front->transmit[pair];

    for (unsigned i = 0; i < count; i++) {
        struct buffer *buffer = ring->free[--ring->free_count];
        const struct vw_segment segment = {FRONT_END_GUEST + buffer->offset,
                                           front->header_size + 60};

        memset(front->memory + buffer->offset, 0, front->header_size + 60);
        memset(front->memory + buffer->offset + front->header_size, 0x52, 60);
        assert_int_equal((urgent ? vw_driver_ring_add_urgent
                                 : vw_driver_ring_add)(&ring->ring, &segment, 1, 0, buffer),
                         0);
    }
    ring_publish(ring);
}

/* Waits, without asking for a call, until `count` frames came back. */
static void await_reaped(struct front_end *front, unsigned pair, unsigned count)
{
    for (unsigned reaped = 0, turn = 0; reaped < count; turn++) {
        assert_true(turn < WAIT_MS);
        reaped += reap_transmitted(front, pair);
        if (reaped < count)
            usleep(1000);
    }
}

/* The first decision of a ring always calls: get it over with. */
static void warm_up(struct front_end *front, unsigned pair)
{
    struct front_ring *ring = &front->transmit[pair];

    send_frames(front, pair, 1, false);
    await_reaped(front, pair, 1);
    settle(front);
    take_call(ring);
    assert_true(vw_driver_ring_enable_calls(&ring->ring));
}

/* ---- Coalescing ---- */

static void the_packet_limit(void **unused)
{
    (void)unused;
    for (unsigned kind = 0; kind < VW_ARRAY_SIZE(ring_kinds); kind++) {
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "null", VERSION_1 | COALESCING | F(CTRL_RX) | ring_kinds[kind],
              &one_pair, random_seed());
        struct front_ring *ring = &front.transmit[0];
        warm_up(&front, 0);
        assert_int_equal(limit_all(&front, true, 8, AN_HOUR), VIRTIO_NET_OK);
        for (unsigned round = 0; round < 20; round++) {
            uint64_t before = calls_of(&running, 1);

            for (unsigned i = 1; i < 8; i++) {
                send_frames(&front, 0, 1, false);
                wait_for_counter(&running, 1, frames, 8 * round + i + 1);
            }
            assert_true(calls_of(&running, 1) == before);
            assert_false(take_call(ring));
            send_frames(&front, 0, 1, false);
            await_call(ring);
            await_reaped(&front, 0, 8);
            settle(&front);
            assert_true(calls_of(&running, 1) == before + 1);
            assert_true(vw_driver_ring_enable_calls(&ring->ring));
        }
        assert_true(queue_statistics(&running, 1).counters.calls_put_off == 20 * 7);
        end(&running, &front);
    }
}

static void the_time_limit(void **unused)
{
    (void)unused;
    for (unsigned kind = 0; kind < VW_ARRAY_SIZE(ring_kinds); kind++) {
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "null", VERSION_1 | COALESCING | F(CTRL_RX) | ring_kinds[kind],
              &one_pair, random_seed());
        struct front_ring *ring = &front.transmit[0];
        warm_up(&front, 0);
        assert_int_equal(limit_queue(&front, 1, UINT32_MAX, 300), VIRTIO_NET_OK);
        for (unsigned round = 0; round < 20; round++) {
            send_frames(&front, 0, 1, false);
            await_call(ring);
            await_reaped(&front, 0, 1);
            assert_true(vw_driver_ring_enable_calls(&ring->ring));
        }
        end(&running, &front);
    }
}

/* More than a ring holds can not be on its way: its driver would wait for ever. */
static void a_limit_beyond_the_ring(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "null", VERSION_1 | COALESCING | F(CTRL_RX), &one_pair, random_seed());
    warm_up(&front, 0);
    assert_int_equal(limit_queue(&front, 1, UINT32_MAX, UINT32_MAX), VIRTIO_NET_OK);
    send_frames(&front, 0, 64, false);
    await_call(&front.transmit[0]);
    end(&running, &front);
}

/* A driver that asks for no call gets none, whatever the limits say. */
static void suppression_stays(void **unused)
{
    (void)unused;
    for (unsigned kind = 0; kind < VW_ARRAY_SIZE(ring_kinds); kind++) {
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "null", VERSION_1 | COALESCING | F(CTRL_RX) | ring_kinds[kind],
              &one_pair, random_seed());
        warm_up(&front, 0);
        assert_int_equal(limit_all(&front, true, 10, AN_HOUR), VIRTIO_NET_OK);
        uint64_t before = calls_of(&running, 1);
        for (unsigned round = 0; round < 20; round++) {
            vw_driver_ring_disable_calls(&front.transmit[0].ring);
            send_frames(&front, 0, 6, false);
            await_reaped(&front, 0, 6);
        }
        settle(&front);
        assert_true(calls_of(&running, 1) == before);
        assert_true(queue_statistics(&running, 1).counters.calls_put_off > 0);
        end(&running, &front);
    }
}

/* "If the new limits are exceeded already, notify at once"; and no limits mean: every packet. */
static void new_limits_take_effect_at_once(void **unused)
{
    static const struct vw_net_coalescing changes[] = {{2, AN_HOUR}, {0, 0}, {0, 5}, {5, 0}};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(changes); i++) {
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "null", VERSION_1 | COALESCING | F(CTRL_RX), &one_pair,
              random_seed());
        struct front_ring *ring = &front.transmit[0];
        warm_up(&front, 0);
        assert_int_equal(limit_all(&front, true, 50, AN_HOUR), VIRTIO_NET_OK);
        send_frames(&front, 0, 3, false);
        wait_for_counter(&running, 1, frames, 4);
        assert_false(take_call(ring));
        assert_int_equal(limit_queue(&front, 1, changes[i].max_packets, changes[i].max_usecs),
                         VIRTIO_NET_OK);
        await_call(ring);
        await_reaped(&front, 0, 3);
        assert_true(vw_driver_ring_enable_calls(&ring->ring));
        send_frames(&front, 0, i == 0 ? 2 : 1, false);
        await_call(ring);
        end(&running, &front);
    }
}

static void what_is_asked_is_answered(void **unused)
{
    static const uint8_t no_queue[12] = {2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "null", VERSION_1 | COALESCING, &one_pair, random_seed());
    assert_limits(&front, 0, 0, 0);
    assert_int_equal(limit_queue(&front, 0, 3, 4), VIRTIO_NET_OK);
    assert_int_equal(limit_all(&front, true, 5, UINT32_MAX), VIRTIO_NET_OK);
    assert_limits(&front, 0, 3, 4);
    assert_limits(&front, 1, 5, UINT32_MAX);
    for (unsigned command = 2; command < 4; command++) /* the control queue, and none at all */
        for (uint8_t queue = 2; queue < 4; queue++) {
            uint8_t data[12];

            memcpy(data, no_queue, 12);
            data[0] = queue;
            assert_int_equal(
                control_ask(&front, VIRTIO_NET_CTRL_NOTF_COAL, (uint8_t)command, data, 12, NULL, 8),
                VIRTIO_NET_ERR);
        }
    /* A place for the acknowledgement alone: the rest is cut, and nothing else is written. */
    assert_int_equal(
        control(&front, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, "\0\0\0\0", 4),
        VIRTIO_NET_OK);
    end(&running, &front);
}

/* RSS puts the frames of pair 1 into pair 0's queue, whose own worker sleeps: the one that put them
 * there keeps the time. */
static void steered_frames(void **unused)
{
    const struct shape shape = {.pairs = 2,
                                .device_pairs = 2,
                                .size = 64,
                                .transmit_bytes = 2048,
                                .receive_smallest = 2048,
                                .receive_largest = 2048,
                                .receive_segments = 1};
    static const uint8_t rss[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0}; /* all to pair 0 */
    struct received *frame = malloc(sizeof(*frame));

    (void)unused;
    assert_non_null(frame);
    for (unsigned packed = 0; packed < 2; packed++) {
        uint64_t features = VERSION_1 | COALESCING | F(CTRL_RX) | F(MQ) | F(RSS) | EVENT_IDX;
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "loop", features | (packed ? PACKED : 0), &shape, random_seed());
        assert_int_equal(
            control(&front, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, rss, sizeof(rss)),
            VIRTIO_NET_OK);
        assert_int_equal(control(&front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, "\1", 1),
                         VIRTIO_NET_OK);
        assert_int_equal(limit_queue(&front, 0, UINT32_MAX, 300), VIRTIO_NET_OK);
        post_buffers(&front, 0, UINT32_MAX);
        ring_publish(&front.receive[0]);
        take_call(&front.receive[0]);
        for (unsigned round = 0; round < 50; round++) {
            assert_true(vw_driver_ring_enable_calls(&front.receive[0].ring));
            send_frames(&front, 1, 1, false);
            await_call(&front.receive[0]);
            assert_true(receive_frame(&front, 0, frame));
            assert_int_equal(frame->length, 60);
            post_buffers(&front, 0, 1);
            ring_publish(&front.receive[0]);
            await_reaped(&front, 1, 1);
        }
        assert_true(queue_statistics(&running, 0).counters.calls_put_off >= 50);
        end(&running, &front);
    }
    free(frame);
}

/* All kinds of limits, changed again and again under traffic: nothing is lost, nothing stalls. */
static void change_limits(struct traffic *traffic, unsigned round)
{
    struct random *random = &traffic->front->random;
    uint32_t packets = random_below(random, 40), usecs = random_below(random, 400);
    unsigned queue = random_below(random, 2 * traffic->front->pairs);

    (void)round;
    if (random_one_in(random, 2))
        assert_int_equal(limit_queue(traffic->front, queue, packets, usecs), VIRTIO_NET_OK);
    else
        assert_int_equal(limit_all(traffic->front, queue % 2, packets, usecs), VIRTIO_NET_OK);
}

static void limits_under_traffic(void **unused)
{
    const struct shape shape = {.pairs = 2,
                                .device_pairs = 2,
                                .size = 64,
                                .transmit_bytes = 20000,
                                .receive_smallest = 300,
                                .receive_largest = 2048,
                                .receive_segments = 1};

    (void)unused;
    for (unsigned kind = 0; kind < VW_ARRAY_SIZE(ring_kinds); kind++) {
        struct traffic *traffic = calloc(1, sizeof(*traffic));
        uint64_t features = VERSION_1 | COALESCING | F(MQ) | F(MRG_RXBUF) | ring_kinds[kind];
        struct running_device running;
        struct front_end front;

        assert_non_null(traffic);
        begin(&running, &front, "loop", features, &shape, random_seed() + kind);
        *traffic = (struct traffic){.front = &front,
                                    .session = kind,
                                    .count = 1500,
                                    .max_frame = 9000,
                                    .disturb = change_limits};
        run_traffic(traffic);
        check_counters(traffic, &running);
        assert_true(queue_statistics(&running, 1).counters.calls_put_off > 0);
        end(&running, &front);
        free(traffic);
    }
}

/* ---- Urgent buffers ---- */

/* A marked frame is called for: calls off, and limits that would put them off. */
static void urgent_frames(void **unused)
{
    (void)unused;
    for (unsigned kind = 0; kind < VW_ARRAY_SIZE(ring_kinds); kind++) {
        uint64_t features =
            VERSION_1 | COALESCING | F(CTRL_RX) | vw_bit(VW_F_URGENT) | ring_kinds[kind];
        struct running_device running;
        struct front_end front;

        begin(&running, &front, "null", features, &one_pair, random_seed());
        struct front_ring *ring = &front.transmit[0];
        warm_up(&front, 0);
        for (unsigned coalesced = 0; coalesced < 2; coalesced++) {
            uint64_t before;

            if (coalesced)
                assert_int_equal(limit_all(&front, true, 50, AN_HOUR), VIRTIO_NET_OK);
            vw_driver_ring_disable_calls(&ring->ring);
            before = calls_of(&running, 1);
            for (unsigned round = 0; round < 10; round++) {
                send_frames(&front, 0, 3, false);
                await_reaped(&front, 0, 3);
                assert_false(take_call(ring));
                send_frames(&front, 0, 1, true);
                await_call(ring);
                await_reaped(&front, 0, 1);
            }
            settle(&front);
            assert_true(calls_of(&running, 1) == before + 10);
            assert_false(
                vw_driver_ring_poll(&ring->ring, vw_driver_ring_enable_calls_prepare(&ring->ring)));
        }
        end(&running, &front);
    }
}

static void urgent_is_offered_to_who_asks(void **unused)
{
    struct vw_device_options options = {.queue_pairs = 1};

    (void)unused;
    assert_false(vw_has(vw_device_offer(&options), VW_F_URGENT));
    options.features_on = UINT64_MAX;
    assert_int_equal(vw_device_offer(&options) & ~VW_NET_DEVICE_FEATURES, vw_bit(VW_F_URGENT));
    options.features_off = vw_bit(VW_F_URGENT);
    assert_false(vw_has(vw_device_offer(&options), VW_F_URGENT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_packet_limit),
        cmocka_unit_test(the_time_limit),
        cmocka_unit_test(a_limit_beyond_the_ring),
        cmocka_unit_test(suppression_stays),
        cmocka_unit_test(new_limits_take_effect_at_once),
        cmocka_unit_test(what_is_asked_is_answered),
        cmocka_unit_test(steered_frames),
        cmocka_unit_test(limits_under_traffic),
        cmocka_unit_test(urgent_frames),
        cmocka_unit_test(urgent_is_offered_to_who_asks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
