/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands of the control queue, and what the datapath makes of them: queue pairs in use, filters,
 * offloads, and steering, where workers deliver into each other's rings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../device_traffic.h"
#include "net/hash.h"

#define CONTROL (vw_bit(VIRTIO_F_VERSION_1) | F(CTRL_VQ) | F(MRG_RXBUF))
#define PACKED (UINT64_C(1) << VIRTIO_F_RING_PACKED)

static const struct shape one_pair = {.pairs = 1,
                                      .device_pairs = 1,
                                      .size = 128,
                                      .transmit_bytes = 4096,
                                      .receive_smallest = 2048,
                                      .receive_largest = 2048,
                                      .receive_segments = 1};
static const struct shape two_pairs = {.pairs = 2,
                                       .device_pairs = 2,
                                       .size = 128,
                                       .transmit_bytes = 4096,
                                       .receive_smallest = 2048,
                                       .receive_largest = 2048,
                                       .receive_segments = 1};
static const uint8_t own[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};

static void post_all(struct front_end *front)
{
    for (unsigned i = 0; i < front->pairs; i++) {
        post_buffers(front, i, UINT32_MAX);
        ring_publish(&front->receive[i]);
    }
}

/* A frame that comes back to `mac`, perhaps with a VLAN tag. */
static void send_to(struct front_end *front, unsigned pair, const uint8_t *mac, int vlan,
                    uint8_t mark)
{
    const struct vw_net_header header = {.flags = 0};
    uint8_t bytes[64] = {0x52};

    memcpy(bytes + 6, mac, 6);
    bytes[12] = vlan < 0 ? 0x88 : 0x81;
    bytes[13] = vlan < 0 ? 0xb5 : 0x00;
    bytes[14] = vlan < 0 ? 0 : (uint8_t)(vlan >> 8);
    bytes[15] = vlan < 0 ? 0 : (uint8_t)vlan;
    bytes[63] = mark;
    assert_true(send_frame(front, pair, &header, bytes, sizeof(bytes)));
    ring_publish(&front->transmit[pair]);
}

static void expect_mark(struct front_end *front, unsigned pair, uint8_t mark)
{
    static struct received frame;

    await_frame(front, pair, &frame);
    assert_int_equal(frame.length, 64);
    assert_int_equal(frame.bytes[63], mark);
    post_all(front);
}

static void commands_that_cannot_be_are_refused(void **unused)
{
    static const struct {
        uint8_t class, command, length, data[16];
    } cases[] = {
        {99, 0, 0, {0}},
        {VIRTIO_NET_CTRL_MQ, 77, 2, {1}},
        {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 1, {1}},
        {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 2, {0, 0}},
        {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, 2, {3, 0}},
        {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, 16, {1}}, /* not negotiated */
        {VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, 4, {0, 0, 0, 0x80}},
        {VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, 8, {2}},
    };
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "loop", CONTROL | F(MQ) | F(CTRL_RX), &two_pairs, random_seed());
    for (size_t i = 0; i < VW_ARRAY_SIZE(cases); i++)
        assert_int_equal(
            control(&front, cases[i].class, cases[i].command, cases[i].data, cases[i].length),
            VIRTIO_NET_ERR);
    assert_int_equal(use_pairs(&front, 1), VIRTIO_NET_OK);
    struct vw_queue_statistics statistics = queue_statistics(&running, 4);
    assert_true(statistics.counters.commands_refused == VW_ARRAY_SIZE(cases));
    assert_true(statistics.counters.commands == 2);
    assert_null(statistics.broken);
    end(&running, &front);
}

static void the_receive_filter(void **unused)
{
    static const uint8_t table[] = {1, 0, 0, 0, 0x02, 0, 0,    0, 0, 0x77, /* one unicast address */
                                    1, 0, 0, 0, 0x01, 0, 0x5e, 0, 0, 1};   /* one group */
    static const uint8_t stranger[6] = {0x02, 9, 9, 9, 9, 9}, listed[6] = {0x02, 0, 0, 0, 0, 0x77},
                         group[6] = {1, 0, 0x5e, 0, 0, 1}, other_group[6] = {1, 0, 0x5e, 0, 0, 2},
                         all[6] = {255, 255, 255, 255, 255, 255};
    struct running_device running;
    struct front_end front;
    uint8_t on = 1, off = 0;

    (void)unused;
    begin(&running, &front, "loop", CONTROL | F(CTRL_RX) | F(CTRL_MAC_ADDR) | F(MAC), &one_pair,
          random_seed());
    post_all(&front);
    assert_int_equal(
        control(&front, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, table, sizeof(table)),
        VIRTIO_NET_OK);
    const uint8_t *wanted[] = {own, listed, group, all}, *unwanted[] = {stranger, other_group};
    for (uint8_t i = 0; i < 4; i++) {
        send_to(&front, 0, unwanted[i % 2], -1, 0xee);
        send_to(&front, 0, wanted[i], -1, i);
        expect_mark(&front, 0, i);
    }
    assert_true(queue_statistics(&running, 0).counters.drop_filter == 4);
    assert_int_equal(control(&front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, &on, 1),
                     VIRTIO_NET_OK);
    send_to(&front, 0, stranger, -1, 50);
    expect_mark(&front, 0, 50);
    assert_int_equal(control(&front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, &off, 1),
                     VIRTIO_NET_OK);
    /* A new address of its own: the old one is a stranger's. */
    assert_int_equal(
        control(&front, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, stranger, 6),
        VIRTIO_NET_OK);
    send_to(&front, 0, own, -1, 0xee);
    send_to(&front, 0, stranger, -1, 51);
    expect_mark(&front, 0, 51);
    assert_true(queue_statistics(&running, 0).counters.drop_filter == 5);
    end(&running, &front);
}

static void the_vlan_filter(void **unused)
{
    static const uint8_t vlan[2] = {0x2a, 0x01}; /* 298 */
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "loop", CONTROL | F(CTRL_VLAN), &one_pair, random_seed());
    post_all(&front);
    send_to(&front, 0, own, 298, 0xee);
    send_to(&front, 0, own, -1, 1);
    expect_mark(&front, 0, 1);
    assert_int_equal(control(&front, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, vlan, 2),
                     VIRTIO_NET_OK);
    send_to(&front, 0, own, 299, 0xee);
    send_to(&front, 0, own, 298, 2);
    expect_mark(&front, 0, 2);
    assert_int_equal(control(&front, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_DEL, vlan, 2),
                     VIRTIO_NET_OK);
    send_to(&front, 0, own, 298, 0xee);
    send_to(&front, 0, own, -1, 3);
    expect_mark(&front, 0, 3);
    assert_true(queue_statistics(&running, 0).counters.drop_filter == 3);
    end(&running, &front);
}

/* What a pair that is not in use received waits until the driver uses it. */
static void a_pair_that_is_not_in_use_receives_nothing(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "loop", CONTROL | F(MQ), &two_pairs, random_seed());
    post_all(&front);
    assert_true(device_statistics(&running).active_pairs == 2);
    assert_int_equal(use_pairs(&front, 1), VIRTIO_NET_OK);
    assert_true(device_statistics(&running).active_pairs == 1);
    send_to(&front, 1, own, -1, 1);
    wait_for_counter(&running, 3, frames, 1);
    send_to(&front, 0, own, -1, 2);
    expect_mark(&front, 0, 2);
    assert_true(queue_statistics(&running, 2).counters.frames == 0);
    assert_int_equal(use_pairs(&front, 2), VIRTIO_NET_OK);
    expect_mark(&front, 1, 1);
    end(&running, &front);
}

/* Commands while frames are under way, which change nothing for them. */
static void command_something(struct traffic *traffic, unsigned round)
{
    struct front_end *front = traffic->front;
    uint8_t on = 1, bytes[8] = {0};

    switch (round % 4) {
    case 0:
        assert_int_equal(use_pairs(front, 2), VIRTIO_NET_OK);
        break;
    case 1:
        assert_int_equal(control(front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, &on, 1),
                         VIRTIO_NET_OK);
        break;
    case 2:
        assert_int_equal(control(front, VIRTIO_NET_CTRL_MQ, 99, &on, 1), VIRTIO_NET_ERR);
        break;
    default:
        bytes[0] = 1 << VIRTIO_NET_F_GUEST_CSUM;
        assert_int_equal(control(front, VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                                 VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, bytes, 8),
                         VIRTIO_NET_OK);
    }
}

static void commands_under_traffic(void **unused)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));

    (void)unused;
    assert_non_null(traffic);
    for (unsigned packed = 0; packed < 2; packed++) {
        struct running_device running;
        struct front_end front;
        uint8_t on = 1;

        begin(&running, &front, "loop",
              CONTROL | F(MQ) | F(CTRL_RX) | F(CSUM) | F(GUEST_CSUM) | F(CTRL_GUEST_OFFLOADS) |
                  (packed ? PACKED : 0),
              &two_pairs, random_seed() + packed);
        assert_int_equal(control(&front, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, &on, 1),
                         VIRTIO_NET_OK);
        *traffic = (struct traffic){.front = &front,
                                    .session = 60 + packed,
                                    .count = 4000,
                                    .max_frame = 2000,
                                    .disturb = command_something};
        run_traffic(traffic);
        assert_true(traffic->rounds > 20);
        check_counters(traffic, &running);
        end(&running, &front);
    }
    free(traffic);
}

/* With the offload the checksum stays partial; switched off at run time it is completed. */
static void checksums_are_completed_once_the_offload_is_off(void **unused)
{
    static const uint8_t off[8] = {0}, on[8] = {1 << VIRTIO_NET_F_GUEST_CSUM};
    static struct received frame;
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "loop", CONTROL | F(CSUM) | F(GUEST_CSUM) | F(CTRL_GUEST_OFFLOADS),
          &one_pair, random_seed());
    for (unsigned i = 0; i < 30; i++) {
        struct vw_net_header header = {
            .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 34, .csum_offset = 16};
        uint32_t length = 60 + 17 * i;
        uint8_t bytes[1024];

        assert_int_equal(control(&front, VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                                 VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, i % 2 ? off : on, 8),
                         VIRTIO_NET_OK);
        for (uint32_t b = 0; b < length; b++)
            bytes[b] = (uint8_t)(b * b + i);
        post_all(&front);
        assert_true(send_frame(&front, 0, &header, bytes, length));
        ring_publish(&front.transmit[0]);
        await_frame(&front, 0, &frame);
        model_swap(bytes);
        if (i % 2)
            model_complete(&header, bytes, length);
        check_header(&frame.header, &header, 1);
        assert_int_equal(frame.length, length);
        assert_memory_equal(frame.bytes, bytes, length);
    }
    assert_true(queue_statistics(&running, 0).counters.checksums_completed == 15);
    end(&running, &front);
}

/* ---- Steering ---- */

#define STEERING (CONTROL | F(MQ) | F(RSS) | F(HASH_REPORT))
#define ENTRIES 16

/* Any key in which ports make a difference. */
static const uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/* Types, table and key as the command has them. `pair_of` gives the pair of each entry. */
static uint8_t tell_steering(struct front_end *front, uint16_t unclassified,
                             uint16_t (*pair_of)(unsigned entry))
{
    uint32_t types = 1u << 2; /* UDP over IPv4 */
    uint16_t mask = ENTRIES - 1, pairs = 2;
    uint8_t data[256], length = sizeof(key);
    uint32_t used = 0;

#define PUT(value) (memcpy(data + used, &(value), sizeof(value)), used += sizeof(value))
    PUT(types);
    PUT(mask);
    PUT(unclassified);
    for (unsigned i = 0; i < ENTRIES; i++) {
        uint16_t ring = pair_of(i);

        PUT(ring);
    }
    PUT(pairs);
    PUT(length);
    PUT(key);
#undef PUT
    return control(front, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, data, used);
}

static uint16_t odd_and_even(unsigned entry)
{
    return entry % 2;
}

static uint16_t always_first(unsigned entry)
{
    (void)entry;
    return 0;
}

static uint16_t crosswise(unsigned entry)
{
    return entry % 3 == 0;
}

struct datagram {
    uint8_t bytes[80];
};

/* Ethernet, IPv4 and UDP, with source pair and number behind. */
static struct datagram datagram(unsigned pair, uint32_t number)
{
    struct datagram d = {.bytes = {0x52, 0x54, 0,    0, 0, 1,  0x52, 0x54, 0, 0x12, 0x34, 0x56,
                                   8,    0,    0x45, 0, 0, 66, 0,    0,    0, 0,    64,   17,
                                   0,    0,    10,   0, 0, 1,  10,   0,    0, 2}};

    d.bytes[34] = (uint8_t)(number >> 3);
    d.bytes[35] = (uint8_t)(number * 5);
    d.bytes[37] = 53;
    d.bytes[39] = 46;
    d.bytes[42] = (uint8_t)pair;
    memcpy(d.bytes + 44, &number, 4);
    return d;
}

static struct vw_net_hash hash_of(const struct datagram *d)
{
    static struct vw_net_toeplitz toeplitz;
    struct iovec iov = {(void *)(uintptr_t)d->bytes, sizeof(d->bytes)};
    struct vw_net_packet packet;
    uint8_t start[VW_NET_DISSECT_BYTES];

    vw_net_toeplitz_init(&toeplitz, key, sizeof(key));
    vw_net_dissect_iov(&packet, start, &iov, 1, 0);
    return vw_net_hash_frame(&toeplitz, 1u << 2, &packet, start);
}

struct steered {
    struct front_end *front;
    struct running_device *running;
    uint16_t (*pair_of)(unsigned entry); /* NULL: any pair will do */
    uint32_t count, sent[2];
    uint32_t next[2][2]; /* [source][target]: lowest number that may come */
    uint64_t received;
};

static void check_datagram(struct steered *steered, unsigned target, struct received *frame)
{
    uint32_t number;
    unsigned source = frame->bytes[42];

    assert_int_equal(frame->length, sizeof(struct datagram));
    assert_true(source < 2);
    memcpy(&number, frame->bytes + 44, 4);
    struct datagram want = datagram(source, number);
    struct vw_net_hash hash = hash_of(&want);
    model_swap(want.bytes);
    assert_memory_equal(frame->bytes, want.bytes, sizeof(want.bytes));
    steered->received++;
    if (steered->pair_of == NULL)
        return;
    assert_int_equal(hash.report, VIRTIO_NET_HASH_REPORT_UDPv4);
    assert_int_equal(target, steered->pair_of(hash.value % ENTRIES));
    assert_int_equal(frame->header.hash_report, VIRTIO_NET_HASH_REPORT_UDPv4);
    assert_int_equal(frame->header.hash_value, hash.value);
    assert_true(number >= steered->next[source][target]); /* in order */
    steered->next[source][target] = number + 1;
}

static uint64_t drops_of(struct running_device *running)
{
    struct vw_queue_statistics first = queue_statistics(running, 0);
    struct vw_queue_statistics second = queue_statistics(running, 2);

    assert_true(dropped(&first) == first.counters.drop_ring_full);
    assert_true(dropped(&second) == second.counters.drop_ring_full);
    return dropped(&first) + dropped(&second);
}

/* One turn of both pairs; true if anything moved. */
static bool pump_steered(struct steered *steered)
{
    static struct received frame;
    struct front_end *front = steered->front;
    const struct vw_net_header header = {.flags = 0};
    bool moved = false;

    for (unsigned i = 0; i < 2; i++) {
        unsigned burst = 1 + random_below(&front->random, 30);

        moved |= reap_transmitted(front, i) > 0;
        for (; burst > 0 && steered->sent[i] < steered->count; burst--) {
            struct datagram d = datagram(i, steered->sent[i]);

            if (!send_frame(front, i, &header, d.bytes, sizeof(d.bytes)))
                break;
            steered->sent[i]++;
            moved = true;
        }
        ring_publish(&front->transmit[i]);
        while (receive_frame(front, i, &frame)) {
            check_datagram(steered, i, &frame);
            moved = true;
        }
    }
    post_all(front);
    return moved;
}

/* A frame for another pair's full ring is dropped and counted, so that only the sum is known. */
static void run_steered(struct steered *steered, void (*disturb)(struct steered *, unsigned))
{
    unsigned idle = 0, rounds = 0;

    post_all(steered->front);
    while (steered->received + drops_of(steered->running) < 2 * (uint64_t)steered->count) {
        if (pump_steered(steered)) {
            idle = 0;
        } else {
            assert_true(idle++ < WAIT_MS);
            usleep(1000);
        }
        if (disturb != NULL && random_one_in(&steered->front->random, 8))
            disturb(steered, rounds++);
    }
    assert_true(steered->received + drops_of(steered->running) == 2 * (uint64_t)steered->count);
}

static void frames_are_steered_by_their_hash(void **unused)
{
    (void)unused;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct running_device running;
        struct front_end front;
        struct steered steered = {
            .front = &front, .running = &running, .pair_of = odd_and_even, .count = 4000};

        begin(&running, &front, "loop", STEERING | (packed ? PACKED : 0), &two_pairs,
              random_seed());
        assert_int_equal(front.header_size, 20);
        assert_int_equal(tell_steering(&front, 0, odd_and_even), VIRTIO_NET_OK);
        run_steered(&steered, NULL);
        for (unsigned i = 0; i < 2; i++)
            for (unsigned target = 0; target < 2; target++)
                assert_true(steered.next[i][target] > 0);
        end(&running, &front);
    }
}

static void steer_differently(struct steered *steered, unsigned round)
{
    if (round % 4 == 3) { /* back to automatic steering, and pairs */
        assert_int_equal(use_pairs(steered->front, 2), VIRTIO_NET_OK);
        return;
    }
    assert_int_equal(tell_steering(steered->front, (uint16_t)(round % 2),
                                   round % 4 == 0   ? crosswise
                                   : round % 4 == 1 ? always_first
                                                    : odd_and_even),
                     VIRTIO_NET_OK);
}

static void steering_changes_under_traffic(void **unused)
{
    (void)unused;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct running_device running;
        struct front_end front;
        struct steered steered = {.front = &front, .running = &running, .count = 4000};

        begin(&running, &front, "loop", STEERING | (packed ? PACKED : 0), &two_pairs,
              random_seed());
        run_steered(&steered, steer_differently);
        end(&running, &front);
    }
}

/*
 * Pair 0 waits for buffers. They come, and before it looks another worker fetches them all for one
 * frame of its own: what that worker left over is for the waiting frame.
 */
static void buffers_that_another_worker_fetched_end_the_wait(void **unused)
{
    const struct vw_net_header header = {.flags = 0};
    static struct received frame;
    struct running_device running;
    struct front_end front;
    struct datagram first = datagram(0, 1), second = datagram(1, 2);
    uint32_t number;

    (void)unused;
    begin(&running, &front, "loop", STEERING, &two_pairs, random_seed());
    assert_int_equal(tell_steering(&front, 0, always_first), VIRTIO_NET_OK);
    post_buffers(&front, 1, UINT32_MAX);
    ring_publish(&front.receive[1]);
    assert_true(send_frame(&front, 0, &header, first.bytes, sizeof(first.bytes)));
    ring_publish(&front.transmit[0]);
    wait_for_counter(&running, 0, waits, 1);
    usleep(10000); /* for worker 0 to be asleep; without that the test shows less */
    post_buffers(&front, 0, 20);
    bool kick = vw_driver_ring_publish(&front.receive[0].ring);
    assert_true(send_frame(&front, 1, &header, second.bytes, sizeof(second.bytes)));
    ring_publish(&front.transmit[1]);
    wait_for_counter(&running, 0, frames, 1);
    if (kick)
        ring_kick(&front.receive[0]);
    await_frame(&front, 0, &frame);
    memcpy(&number, frame.bytes + 44, 4);
    if (number == 2) {
        await_frame(&front, 0, &frame);
        memcpy(&number, frame.bytes + 44, 4);
        assert_int_equal(number, 1);
    }
    end(&running, &front);
}

/*
 * A ring that its driver broke takes nothing. The frame that finds it out is lost; later ones go to
 * the pair on which they came.
 */
static void a_broken_ring_does_not_stop_the_others(void **unused)
{
    const struct vw_segment nowhere = {.address = 0x10, .length = 2048};
    struct running_device running;
    struct front_end front;
    struct steered steered = {.front = &front, .running = &running, .count = 0};
    static struct received frame;

    (void)unused;
    begin(&running, &front, "loop", STEERING, &two_pairs, random_seed());
    assert_int_equal(tell_steering(&front, 0, always_first), VIRTIO_NET_OK);
    assert_int_equal(vw_driver_ring_add(&front.receive[0].ring, &nowhere, 0, 1, &front), 0);
    ring_publish(&front.receive[0]);
    post_buffers(&front, 1, UINT32_MAX);
    ring_publish(&front.receive[1]);
    for (uint32_t n = 0; n <= 40; n++) {
        const struct vw_net_header header = {.flags = 0};
        struct datagram d = datagram(1, n);

        while (!send_frame(&front, 1, &header, d.bytes, sizeof(d.bytes))) {
            if (reap_transmitted(&front, 1) == 0)
                wait_for_calls(&front);
        }
        ring_publish(&front.transmit[1]);
        if (n == 0) {
            wait_for_counter(&running, 0, drop_ring_full, 1);
            continue;
        }
        await_frame(&front, 1, &frame);
        check_datagram(&steered, 1, &frame);
        post_buffers(&front, 1, UINT32_MAX);
        ring_publish(&front.receive[1]);
    }
    assert_true(steered.received == 40);
    assert_true(drops_of(&running) == 1);
    assert_true(queue_statistics(&running, 0).counters.broken == 1);
    end(&running, &front);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_that_cannot_be_are_refused),
        cmocka_unit_test(the_receive_filter),
        cmocka_unit_test(the_vlan_filter),
        cmocka_unit_test(a_pair_that_is_not_in_use_receives_nothing),
        cmocka_unit_test(commands_under_traffic),
        cmocka_unit_test(checksums_are_completed_once_the_offload_is_off),
        cmocka_unit_test(frames_are_steered_by_their_hash),
        cmocka_unit_test(steering_changes_under_traffic),
        cmocka_unit_test(buffers_that_another_worker_fetched_end_the_wait),
        cmocka_unit_test(a_broken_ring_does_not_stop_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
