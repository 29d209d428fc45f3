/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver, and a device of which the test does every single act: a scripted back-end answers the
 * handshake; behind it, the device's halves of the first pair's rings lie in the test's own hands.
 * Everything happens in the test's thread, driver and device in turn.
 */
#ifndef VW_TESTS_DRIVER_WORLD_H
#define VW_TESTS_DRIVER_WORLD_H

#include <stdlib.h>

#include "scripted_back_end.h"
#include "base/iov.h"
#include "driver/internal.h"
#include "ring/device.h"

#define F(name) (UINT64_C(1) << VIRTIO_NET_F_##name)
#define VERSION_1 (UINT64_C(1) << VIRTIO_F_VERSION_1)
#define PACKED (UINT64_C(1) << VIRTIO_F_RING_PACKED)
#define TOKENS 4096

struct world {
    struct scripted back_end;
    struct vw_net *net;
    int opened; /* what vw_net_open said */
    char error[256];
    struct vw_memory memory;
    struct vw_device_ring rx, tx;
    struct iovec iov[256];
    unsigned done[TOKENS], lost[TOKENS]; /* how often each token came back */
    unsigned tokens;
    char *frame; /* to send */
    struct vw_flow *flow;
    void (*hook)(struct world *world); /* called in tx_done */
};

static inline void tx_done(void *context, unsigned pair, void *token, int sent)
{
    struct world *world = context;
    uintptr_t number = (uintptr_t)token;

    assert_int_equal(pair, 0);
    assert_true(number < world->tokens);
    (sent ? world->done : world->lost)[number]++;
    if (world->hook)
        world->hook(world);
}

static inline void put16(uint8_t *to, unsigned value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

static inline struct world *prepare(uint64_t features)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    scripted_init(&world->back_end, features | VERSION_1);
    world->back_end.protocol &= ~vw_bit(VW_VU_PF_STATUS);
    memcpy(world->back_end.config, "\x52\x54\x00\x12\x34\x56\x01\x00", 8);
    put16(world->back_end.config + 8, 1);
    put16(world->back_end.config + 10, 1500);
    return world;
}

static inline void open_with(struct world *world, unsigned pairs, enum vw_tx_policy policy,
                             bool limit)
{
    struct vw_net_options options;

    vw_net_options_init(&options);
    options.fd = scripted_begin(&world->back_end);
    options.queue_pairs = pairs;
    options.tx_ring_size = options.rx_ring_size = 16;
    options.memory = 1 << 20;
    options.tx_done = tx_done;
    options.tx_context = world;
    options.tx_policy = policy;
    options.byte_queue_limits = limit;
    world->opened = vw_net_open(&options, &world->net, world->error, sizeof(world->error));
}

/* The device's halves of the first pair's rings, in the same memory. */
static inline void attach(struct world *world)
{
    struct vw_net *net = world->net;
    const struct vw_memory_region region = {.guest = (uintptr_t)net->shared.address,
                                            .user = (uintptr_t)net->shared.address,
                                            .size = net->shared.size,
                                            .local = net->shared.address};

    assert_int_equal(vw_memory_add(&world->memory, &region), 0);
    assert_int_equal(
        vw_device_ring_init(&world->rx, &net->pairs[0].rx.queue.ring.config, &world->memory), 0);
    assert_int_equal(
        vw_device_ring_init(&world->tx, &net->pairs[0].tx.queue.ring.config, &world->memory), 0);
    world->frame = vw_alloc(net, 2048);
    assert_non_null(world->frame);
    memset(world->frame, 0x55, 2048);
}

static inline struct world *begin_as(uint64_t features, enum vw_tx_policy policy, bool limit)
{
    struct world *world = prepare(features);

    open_with(world, 1, policy, limit);
    if (world->opened != 0)
        fail_msg("%s", world->error);
    attach(world);
    return world;
}

static inline struct world *begin(uint64_t features)
{
    return begin_as(features, VW_TX_DEFERRED, false);
}

/* Each token that was given to the driver has come back once by then. */
static inline void end(struct world *world)
{
    if (world->opened == 0) {
        vw_net_close(world->net);
        for (unsigned i = 0; i < world->tokens; i++)
            assert_int_equal(world->done[i] + world->lost[i], 1);
    }
    scripted_end(&world->back_end);
    free(world);
}

/* ---- the device's acts ---- */

static inline struct vw_chain take(struct world *world, struct vw_device_ring *ring)
{
    struct vw_iov_pool pool = {.iov = world->iov, .capacity = VW_ARRAY_SIZE(world->iov)};
    struct vw_chain chain;

    assert_int_equal(vw_device_ring_fetch(ring, &chain, 1, &pool), 1);
    return chain;
}

/* True: the driver wants a call. */
static inline bool give(struct vw_device_ring *ring, const struct vw_chain *chain)
{
    vw_device_ring_use(ring, chain, 1);
    return vw_device_ring_publish(ring);
}

/* Writes a header and `length` bytes of frame into the next buffer; says `used` bytes. */
static inline void deliver(struct world *world, const struct vw_net_header *header, uint32_t length,
                           uint32_t used)
{
    struct vw_chain chain = take(world, &world->rx);
    uint8_t bytes[2048];
    unsigned header_size = world->net->header_size;

    assert_true(header_size + length <= sizeof(bytes));
    memset(bytes, 0xa5, sizeof(bytes));
    vw_net_header_encode(header, bytes, header_size);
    vw_iov_write(chain.iov, chain.writable_count, 0, bytes, header_size + length);
    chain.written = used;
    give(&world->rx, &chain);
}

static inline void deliver_good(struct world *world, uint32_t length)
{
    const struct vw_net_header header = {.num_buffers = 1};

    deliver(world, &header, length, world->net->header_size + length);
}

/* ---- the driver's acts ---- */

/* Takes one frame of this length. */
static inline void expect_frame(struct world *world, uint32_t length)
{
    struct vw_rx_packet packet;

    assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), 1);
    assert_int_equal(packet.length, length);
    vw_rx_release(world->net, 0, &packet, 1);
}

static inline void expect_nothing(struct world *world)
{
    struct vw_rx_packet packet;

    assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), 0);
}

/* Whoever polls or waits is told that a queue is broken. */
static inline void expect_loops_to_end(struct world *world)
{
    assert_int_equal(vw_poll(world->net, 0, 8, NULL, NULL), -EIO);
    assert_true(vw_wait(world->net, 0, -1) != 0); /* 1 for what was noted before, */
    assert_int_equal(vw_wait(world->net, 0, -1), -EIO);
}

static inline void expect_broken(struct world *world, const char *why)
{
    struct vw_rx_packet packet;

    assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -EIO);
    assert_non_null(vw_queue_error(world->net, 0));
    if (!strstr(vw_queue_error(world->net, 0), why))
        fail_msg("\"%s\" instead of \"%s\"", vw_queue_error(world->net, 0), why);
    assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -EIO);
    expect_loops_to_end(world);
}

static inline int send_frame(struct world *world)
{
    const struct vw_piece piece = {world->frame, 60};
    const struct vw_tx_packet packet = {
        .pieces = &piece, .piece_count = 1, .token = (void *)(uintptr_t)world->tokens};
    int result;

    world->tokens++; /* before tx_done can see it */
    result = vw_tx_burst(world->net, 0, &packet, 1, 0);
    if (result != 1)
        world->tokens--;
    return result;
}

/* The device goes away. */
static inline void lose_device(struct world *world)
{
    struct pollfd wait = {.fd = vw_net_fd(world->net), .events = POLLIN};
    int events = 0;

    shutdown(world->back_end.socket, SHUT_RDWR);
    while (!(events & VW_EVENT_DISCONNECTED)) {
        assert_int_equal(poll(&wait, 1, 60000), 1);
        events = vw_process(world->net);
        assert_true(events >= 0);
    }
}

static inline struct vw_rx_counters rx_counters(struct world *world)
{
    struct vw_rx_counters counters;

    vw_counters(world->net, 0, NULL, &counters);
    return counters;
}

static inline struct vw_tx_counters tx_counters(struct world *world)
{
    struct vw_tx_counters counters;

    vw_counters(world->net, 0, &counters, NULL);
    return counters;
}

#endif
