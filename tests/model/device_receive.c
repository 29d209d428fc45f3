/* SPDX-License-Identifier: BSD-3-Clause */
/* The receive direction of a device when buffers are few, small, or come late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "../device_traffic.h"
#include "../offload_frames.h"

#define MERGEABLE (vw_bit(VIRTIO_F_VERSION_1) | F(MRG_RXBUF))

static const uint64_t formats[] = {
    0, UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX, UINT64_C(1) << VIRTIO_F_RING_PACKED,
    UINT64_C(1) << VIRTIO_F_RING_PACKED | UINT64_C(1) << VIRTIO_F_IN_ORDER |
        UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX};

/* A device on a loop with one pair and receive buffers all of one size. */
static void begin_small(struct running_device *running, struct front_end *front, uint64_t features,
                        uint32_t ring, uint32_t buffer)
{
    const struct shape shape = {.pairs = 1,
                                .device_pairs = 1,
                                .size = ring,
                                .transmit_bytes = 8192,
                                .receive_smallest = buffer,
                                .receive_largest = buffer,
                                .receive_segments = 1};

    begin(running, front, "loop", features, &shape, random_seed());
}

/* Sends one frame of zeros with a number in it. */
static void send_number(struct front_end *front, uint32_t number, uint32_t length)
{
    const struct vw_net_header header = {.flags = 0};
    uint8_t bytes[8192] = {0x52};

    memcpy(bytes + 14, &number, 4);
    while (!send_frame(front, 0, &header, bytes, length)) {
        if (reap_transmitted(front, 0) == 0)
            wait_for_calls(front);
    }
    ring_publish(&front->transmit[0]);
}

static void post(struct front_end *front, unsigned count)
{
    assert_int_equal(post_buffers(front, 0, count), count);
    ring_publish(&front->receive[0]);
}

static void expect_number(struct front_end *front, uint32_t number, uint32_t length)
{
    static struct received frame;
    uint32_t got;

    await_frame(front, 0, &frame);
    memcpy(&got, frame.bytes + 14, 4);
    assert_int_equal(got, number);
    assert_int_equal(frame.length, length);
}

static void frames_wait_for_buffers(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(formats); i++) {
        struct running_device running;
        struct front_end front;

        begin_small(&running, &front, MERGEABLE | formats[i], 64, 512);
        for (uint32_t n = 0; n < 200; n++)
            send_number(&front, n, 100);
        wait_for_counter(&running, 0, waits, 1);
        assert_true(queue_statistics(&running, 0).counters.frames == 0);
        for (uint32_t n = 0; n < 200; n++) { /* one buffer at a time: starved again each time */
            post(&front, 1);
            expect_number(&front, n, 100);
        }
        struct vw_queue_statistics statistics = queue_statistics(&running, 0);
        assert_true(statistics.counters.frames == 200);
        assert_true(dropped(&statistics) == 0);
        end(&running, &front);
    }
}

/* Transmission stops when nobody receives, and goes on when somebody does. */
static void a_loop_holds_the_transmitter_back(void **unused)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));

    (void)unused;
    assert_non_null(traffic);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(formats); i++) {
        struct running_device running;
        struct front_end front;

        begin_small(&running, &front, MERGEABLE | formats[i], 64, 512);
        *traffic =
            (struct traffic){.front = &front, .session = 40 + i, .count = 2000, .max_frame = 1514};
        while (queue_statistics(&running, 1).counters.waits == 0)
            pump_transmit(traffic, 0);
        assert_true(traffic->sent[0] < traffic->count);
        run_traffic(traffic);
        check_counters(traffic, &running);
        end(&running, &front);
    }
    free(traffic);
}

static void a_frame_that_no_ring_full_of_buffers_holds_is_dropped(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(formats); i++) {
        struct running_device running;
        struct front_end front;

        begin_small(&running, &front, MERGEABLE | formats[i], 8, 128);
        post(&front, 8);
        send_number(&front, 1, 8 * 128 - 12); /* to the last byte */
        expect_number(&front, 1, 8 * 128 - 12);
        post(&front, 8);
        send_number(&front, 2, 8 * 128 - 11); /* one more */
        send_number(&front, 3, 500);
        expect_number(&front, 3, 500);
        struct vw_queue_statistics statistics = queue_statistics(&running, 0);
        assert_true(statistics.counters.drop_too_small == 1);
        assert_true(dropped(&statistics) == 1);
        end(&running, &front);
    }
}

/* The guest posts a few buffers and no more: after a while the frame gives way to the next. */
static void a_frame_too_large_for_the_few_buffers_gives_way(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin_small(&running, &front, MERGEABLE, 64, 128);
    post(&front, 4);
    send_number(&front, 1, 600);
    send_number(&front, 2, 400);
    expect_number(&front, 2, 400);
    assert_true(queue_statistics(&running, 0).counters.drop_too_small == 1);
    end(&running, &front);
}

static void a_frame_larger_than_one_buffer_is_dropped_if_not_mergeable(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin_small(&running, &front, vw_bit(VIRTIO_F_VERSION_1), 64, 512);
    post(&front, 4);
    send_number(&front, 1, 501);
    send_number(&front, 2, 500);
    expect_number(&front, 2, 500);
    assert_true(queue_statistics(&running, 0).counters.drop_too_small == 1);
    end(&running, &front);
}

/* Many frames are lent, the ring is used up in one batch: the next frame waits for new buffers. */
static void buffers_used_and_not_published_are_not_in_hand(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(formats); i++) {
        struct running_device running;
        struct front_end front;

        begin_small(&running, &front, MERGEABLE | formats[i], 16, 300);
        for (uint32_t n = 0; n < 60; n++)
            send_number(&front, n, n % 4 == 3 ? 1000 : 200);
        wait_for_counter(&running, 0, waits, 1);
        post(&front, 16);
        for (uint32_t n = 0; n < 60; n++) {
            expect_number(&front, n, n % 4 == 3 ? 1000 : 200);
            post_buffers(&front, 0, UINT32_MAX);
            ring_publish(&front.receive[0]);
        }
        struct vw_queue_statistics statistics = queue_statistics(&running, 0);
        assert_true(dropped(&statistics) == 0);
        end(&running, &front);
    }
}

static uint64_t milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * A ring without a kick descriptor is looked at every millisecond: that is no reason to drop a
 * frame that waits for more buffers. If this thread itself was held up too long, it tries again.
 */
static void a_polled_ring_does_not_cut_the_wait_for_buffers_short(void **unused)
{
    struct running_device running;
    struct front_end front;
    uint64_t began, drops = 0;
    uint32_t number = 0;

    (void)unused;
    begin_small(&running, &front, MERGEABLE, 64, 128);
    tell_ring_fd(&front, VW_VU_SET_VRING_KICK, 0, -1);
    do {
        uint64_t waits = queue_statistics(&running, 0).counters.waits;

        drops = queue_statistics(&running, 0).counters.drop_too_small;
        began = milliseconds();
        post(&front, 4);
        send_number(&front, ++number, 600);
        wait_for_counter(&running, 0, waits, waits + 1);
        usleep(20000);
        post(&front, 4);
    } while (milliseconds() - began > 300);
    expect_number(&front, number, 600);
    assert_true(queue_statistics(&running, 0).counters.drop_too_small == drops);
    end(&running, &front);
}

/* ---- segmentation for a guest that sends large frames and does not accept any ---------------- */

#define ONE_WAY                                                                                    \
    (vw_bit(VIRTIO_F_VERSION_1) | F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_USO) | F(HOST_ECN))

static const uint8_t payload[16384] = {1, 2, 3};

static struct recipe large_frame(unsigned kind, uint32_t number)
{
    return (struct recipe){.ipv6 = kind & 1,
                           .udp = kind & 2,
                           .partial = true,
                           .ttl = 64,
                           .flags = RECIPE_ACK | RECIPE_PSH,
                           .sequence = number,
                           .source_port = 1,
                           .destination_port = 2,
                           .payload = payload,
                           .payload_length = 7000 + number};
}

static void send_large(struct front_end *front, const struct recipe *recipe, unsigned size)
{
    static struct recipe_frame frame;
    struct vw_net_header header;

    recipe_make(&frame, recipe);
    struct virtio_net_hdr_v1 wire = recipe_header(recipe, &frame, size);
    vw_net_header_decode(&header, &wire, sizeof(wire));
    while (!send_frame(front, 0, &header, frame.bytes, (uint32_t)frame.length)) {
        if (reap_transmitted(front, 0) == 0)
            wait_for_calls(front);
    }
    ring_publish(&front->transmit[0]);
}

/* Posts one buffer at a time, if `sparing`; then each segment but the first finds none at first. */
static void expect_segments(struct front_end *front, const struct recipe *recipe, unsigned size,
                            bool sparing)
{
    static struct recipe_frame expected;
    static struct received got;
    struct recipe segment;

    for (unsigned i = 0; recipe_segment(recipe, size, i, &segment); i++) {
        recipe_make(&expected, &segment);
        model_swap(expected.bytes);
        post_buffers(front, 0, sparing ? 1 : UINT32_MAX);
        ring_publish(&front->receive[0]);
        await_frame(front, 0, &got);
        assert_int_equal(got.header.flags, 0);
        assert_int_equal(got.header.gso_type, VIRTIO_NET_HDR_GSO_NONE);
        assert_int_equal(got.length, expected.length);
        assert_memory_equal(got.bytes, expected.bytes, expected.length);
    }
}

static void large_frames_are_cut_for_a_guest_that_accepts_none(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 2 * VW_ARRAY_SIZE(formats); i++) {
        bool mergeable = i % 2, sparing = i / 2 % 2;
        struct running_device running;
        struct front_end front;

        begin_small(&running, &front, ONE_WAY | (mergeable ? F(MRG_RXBUF) : 0) | formats[i / 2], 64,
                    2048);
        for (uint32_t n = 0; n < 40; n++) {
            struct recipe recipe = large_frame(n, n);

            send_large(&front, &recipe, 1400);
            expect_segments(&front, &recipe, 1400, sparing);
        }
        struct vw_queue_statistics statistics = queue_statistics(&running, 0);
        assert_true(statistics.counters.frames_cut == 40);
        assert_true(statistics.counters.frames == 40 * 6 - 1); /* 5 for the first, of 7000 bytes */
        assert_true(dropped(&statistics) == 0);
        end(&running, &front);
    }
}

/* What claims to be TCP and is not cannot be cut: it is dropped, counted, and the next one comes.
 */
static void a_large_frame_that_is_not_what_it_says_is_dropped(void **unused)
{
    struct running_device running;
    struct front_end front;
    struct recipe udp = large_frame(2, 1), tcp = large_frame(0, 2);
    static struct recipe_frame frame;
    struct vw_net_header header;

    (void)unused;
    begin_small(&running, &front, ONE_WAY, 64, 2048);
    recipe_make(&frame, &tcp);
    struct virtio_net_hdr_v1 wire = recipe_header(&tcp, &frame, 1400);
    vw_net_header_decode(&header, &wire, sizeof(wire));
    recipe_make(&frame, &udp);
    assert_true(send_frame(&front, 0, &header, frame.bytes, (uint32_t)frame.length));
    ring_publish(&front.transmit[0]);
    send_large(&front, &tcp, 1400);
    expect_segments(&front, &tcp, 1400, false);
    assert_true(queue_statistics(&running, 0).counters.drop_no_offload == 1);
    end(&running, &front);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_wait_for_buffers),
        cmocka_unit_test(a_loop_holds_the_transmitter_back),
        cmocka_unit_test(a_frame_that_no_ring_full_of_buffers_holds_is_dropped),
        cmocka_unit_test(a_frame_too_large_for_the_few_buffers_gives_way),
        cmocka_unit_test(a_frame_larger_than_one_buffer_is_dropped_if_not_mergeable),
        cmocka_unit_test(buffers_used_and_not_published_are_not_in_hand),
        cmocka_unit_test(a_polled_ring_does_not_cut_the_wait_for_buffers_short),
        cmocka_unit_test(large_frames_are_cut_for_a_guest_that_accepts_none),
        cmocka_unit_test(a_large_frame_that_is_not_what_it_says_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
