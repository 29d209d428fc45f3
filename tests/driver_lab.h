/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our driver against our device, both in this process, over a socket pair or without one; numbered
 * frames out through a loop and back, every byte compared.
 *
 * Theory of operation
 * -------------------
 * A frame's length and contents follow from its number. A loop drops nothing and a pair keeps its
 * order, so the numbers that come back are 0, 1, 2, ... Three manners of a caller: one that is
 * busy, one with its own event loop, one that uses vw_wait. Nothing here takes a time: a sleep that
 * lasts WAIT_MS means a wake-up that was lost, and fails.
 */
#ifndef VW_TESTS_DRIVER_LAB_H
#define VW_TESTS_DRIVER_LAB_H

#include "device/in_process.h"
#include "driver/open.h"
#include "front_end.h"
#include "virtwire/net.h"

enum manner { BUSY, OWN_LOOP, WAITING, MANNERS };

static inline const char *manner_name(enum manner manner)
{
    static const char *const names[] = {"busy", "own loop", "waiting"};

    return names[manner];
}

static inline const char *policy_name(enum vw_tx_policy policy)
{
    static const char *const names[] = {"deferred", "orphan", "urgent", "delayed", "scheduled"};

    return names[policy];
}

#define LAB_HEAD 22 /* addresses, type, number */
#define LAB_MAX_BUFFERS 512

struct lab_case {
    const char *features; /* of the driver */
    enum vw_tx_policy policy;
    enum vw_rx_mode mode;
    enum vw_rx_big big;
    enum manner manner;
    unsigned ring, mtu, pieces; /* pieces: most of a frame */
    unsigned pairs;             /* 0: one */
    enum vw_device_mode device_mode;
    unsigned busy_poll_us; /* of the device, adaptive; 0: the default */
    uint32_t shortest, longest;
    bool more;       /* bursts now and then leave their kick to the next one */
    bool hold;       /* received frames are given back late */
    bool headroom;   /* the header may lie in front of the frame */
    bool no_limit;   /* no byte limit */
    bool in_process; /* no socket, and no thread that serves the device */
    uint64_t count;
};

struct lab {
    const struct lab_case *test;
    unsigned pair;
    struct lab *of_pair[2]; /* in the first one: for tx_done */
    struct running_device running;
    struct vw_net *net;
    struct random random;
    char *memory; /* all buffers */
    uint32_t stride, buffers;
    uint32_t free[LAB_MAX_BUFFERS], free_count;
    struct vw_piece pieces[LAB_MAX_BUFFERS][VW_TX_MAX_PIECES];
    uint64_t sent, done, lost, received;
    struct vw_flow *flow;
    struct vw_rx_packet held[64];
    unsigned held_count;
    uint8_t bytes[FRONT_END_MAX_BYTES], want[FRONT_END_MAX_BYTES];
    uint64_t waits;
};

static inline uint32_t lab_length(const struct lab *lab, uint64_t number)
{
    struct random random = {number * 31 + 7};
    uint32_t span = lab->test->longest - lab->test->shortest;

    if (random_one_in(&random, 8))
        return lab->test->longest;
    return lab->test->shortest +
           random_below(&random, (random_one_in(&random, 4) || span < 200 ? span : 200) + 1);
}

static inline void lab_frame(uint64_t number, uint8_t *bytes, uint32_t length, bool back)
{
    struct random random = {number};

    memcpy(bytes,
           back ? "\x52\x54\x00\x12\x34\x56\x52\x54\x00\xaa\x00\x01\x88\xb5"
                : "\x52\x54\x00\xaa\x00\x01\x52\x54\x00\x12\x34\x56\x88\xb5",
           14);
    memcpy(bytes + 14, &number, 8);
    for (uint32_t i = LAB_HEAD; i < length; i += 8) {
        uint64_t word = random_next(&random);

        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

static inline void lab_tx_done(void *context, unsigned pair, void *token, int sent)
{
    struct lab *first = context, *lab = first->of_pair[pair];

    assert_true(lab->free_count < lab->buffers);
    lab->free[lab->free_count++] = (uint32_t)(uintptr_t)token;
    *(sent ? &lab->done : &lab->lost) += 1;
}

static inline void lab_open_device(struct lab *lab, const char *port, unsigned mtu, int fd,
                                   const char *path)
{
    unsigned pairs = lab->test->pairs ? lab->test->pairs : 1;
    struct vw_device_options options = {.queue_pairs = pairs,
                                        .workers = 1 + random_below(&lab->random, pairs),
                                        .mode = lab->test->device_mode,
                                        .busy_poll_us = lab->test->busy_poll_us,
                                        .fd = fd,
                                        .socket_path = path,
                                        .mtu = mtu,
                                        .features_on = vw_bit(VW_F_URGENT),
                                        .has_mac = true,
                                        .mac = {0x52, 0x54, 0, 0x12, 0x34, 0x56}};

    if (lab->test->in_process)
        device_create(&lab->running, port, &options);
    else
        device_open(&lab->running, port, &options);
}

static inline void lab_buffers(struct lab *lab, unsigned count)
{
    lab->stride = (lab->test->longest + 64 + 63) / 64 * 64 + 64;
    lab->buffers = count;
    lab->memory = vw_alloc(lab->net, (size_t)count * lab->stride);
    assert_non_null(lab->memory);
    for (unsigned i = 0; i < count; i++)
        lab->free[lab->free_count++] = i;
    lab->flow = vw_flow_new(lab->net);
    assert_non_null(lab->flow);
}

static inline void lab_options(struct lab *lab, struct vw_net_options *options)
{
    const struct lab_case *test = lab->test;

    vw_net_options_init(options);
    options->features = test->features;
    options->tx_policy = test->policy;
    options->queue_pairs = test->pairs ? test->pairs : 1;
    options->rx_mode = test->mode;
    options->rx_big = test->big;
    options->tx_ring_size = options->rx_ring_size = test->ring;
    options->byte_queue_limits = !test->no_limit;
    options->tx_done = lab_tx_done;
    options->tx_context = lab;
    options->memory = (size_t)32 << 20;
    options->spin_us = test->manner == WAITING && lab->random.state % 2 ? 20 : 0;
}

/* The driver of the lab's device, which serves it with its own calls. */
static inline void lab_open_in_process(struct lab *lab)
{
    struct vw_net_options options;
    struct vw_transport *transport;
    char error[256] = "";

    lab_options(lab, &options);
    assert_int_equal(vw_device_transport_open(lab->running.device, &transport), 0);
    if (vw_net_open_over(&options, transport, &lab->net, error, sizeof(error)) != 0)
        fail_msg("vw_net_open_over: %s", error);
}

static inline void lab_open_over_socket(struct lab *lab, int fd)
{
    struct vw_net_options options;
    char error[256] = "";

    lab_options(lab, &options);
    options.fd = fd;
    if (vw_net_open(&options, &lab->net, error, sizeof(error)) != 0)
        fail_msg("vw_net_open: %s", error);
}

static inline struct lab *lab_begin(const struct lab_case *test, const char *port)
{
    struct lab *lab = calloc(1, sizeof(*lab));
    int ends[2] = {-1, -1};

    assert_non_null(lab);
    lab->test = test;
    lab->of_pair[0] = lab;
    lab->random.state = random_seed() + test->policy * 3 + test->mode * 17 + test->manner;
    if (!test->in_process)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                         0);
    lab_open_device(lab, port, test->mtu, ends[0], NULL);
    if (test->in_process)
        lab_open_in_process(lab);
    else
        lab_open_over_socket(lab, ends[1]);
    lab_buffers(lab, test->ring * 2 < LAB_MAX_BUFFERS ? test->ring * 2 : LAB_MAX_BUFFERS);
    return lab;
}

static inline void lab_end(struct lab *lab)
{
    vw_net_close(lab->net);
    vw_flow_free(lab->flow); /* only now: frames in flight count down in it */
    if (!lab->test->in_process)
        device_stop(&lab->running);
    device_close(&lab->running);
    free(lab);
}

/* Cuts buffer `index` into pieces. The first one keeps its headroom. */
static inline unsigned lab_cut(struct lab *lab, uint32_t index, uint32_t length)
{
    struct vw_piece *pieces = lab->pieces[index];
    char *at = lab->memory + (size_t)index * lab->stride + 64;
    unsigned most = 1 + random_below(&lab->random, lab->test->pieces), count = 0;

    while (length > 0) {
        uint32_t part = count + 1 == most ? length : 1 + random_below(&lab->random, length);

        pieces[count++] = (struct vw_piece){at, part};
        at += part;
        length -= part;
    }
    return count;
}

static inline bool lab_send(struct lab *lab)
{
    struct vw_tx_packet packets[32];
    unsigned burst = 1 + random_below(&lab->random, 32), count = 0;

    for (; count < burst && count < lab->free_count && lab->sent + count < lab->test->count;
         count++) {
        uint32_t index = lab->free[lab->free_count - 1 - count];
        uint32_t length = lab_length(lab, lab->sent + count);

        lab_frame(lab->sent + count, (uint8_t *)lab->memory + (size_t)index * lab->stride + 64,
                  length, false);
        packets[count] = (struct vw_tx_packet){
            .pieces = lab->pieces[index],
            .piece_count = lab_cut(lab, index, length),
            .token = (void *)(uintptr_t)index,
            .flow = lab->flow,
            .urgent = random_one_in(&lab->random, 4),
            .headroom = lab->test->headroom && random_one_in(&lab->random, 2) ? 64 : 0};
    }
    if (count == 0)
        return false;
    bool more = lab->test->more && random_one_in(&lab->random, 3);
    uint32_t offered[32];

    /* Tokens may come back within the call. packets[i] has offered[count - 1 - i]. */
    memcpy(offered, &lab->free[lab->free_count - count], count * sizeof(*offered));
    lab->free_count -= count;
    int taken = vw_tx_burst(lab->net, lab->pair, packets, count, more);
    if (taken < 0)
        fail_msg("vw_tx_burst: %s (%s)", strerror(-taken), vw_queue_error(lab->net, lab->pair));
    for (unsigned i = (unsigned)taken; i < count; i++)
        lab->free[lab->free_count++] = offered[count - 1 - i];
    lab->sent += (unsigned)taken;
    return taken > 0;
}

static inline void lab_check(struct lab *lab, const struct vw_rx_packet *packet)
{
    uint32_t length = lab_length(lab, lab->received), at = 0;

    assert_int_equal(packet->length, length);
    for (unsigned i = 0; i < packet->piece_count; i++) {
        assert_true(packet->pieces[i].length > 0 && packet->pieces[i].length <= length - at);
        memcpy(lab->bytes + at, packet->pieces[i].data, packet->pieces[i].length);
        at += packet->pieces[i].length;
    }
    assert_int_equal(at, length);
    lab_frame(lab->received, lab->want, length, true);
    if (memcmp(lab->bytes, lab->want, length) != 0)
        assert_memory_equal(lab->bytes, lab->want, length);
    assert_int_equal(packet->offload.gso_type, 0);
    lab->received++;
}

static inline void lab_take(void *context, unsigned pair, struct vw_rx_packet *packets,
                            unsigned count)
{
    struct lab *lab = context;

    assert_int_equal(pair, lab->pair);
    for (unsigned i = 0; i < count; i++)
        lab_check(lab, &packets[i]);
    if (!lab->test->hold || lab->held_count + count > VW_ARRAY_SIZE(lab->held)) {
        vw_rx_release(lab->net, lab->pair, packets, count);
        vw_rx_release(lab->net, lab->pair, lab->held, lab->held_count);
        lab->held_count = 0;
        return;
    }
    memcpy(lab->held + lab->held_count, packets, count * sizeof(*packets));
    lab->held_count += count;
}

static inline void lab_give_back(struct lab *lab)
{
    vw_rx_release(lab->net, lab->pair, lab->held, lab->held_count);
    lab->held_count = 0;
}

/* One turn of receiving and reaping; true if the caller may wait. */
static inline bool lab_serve(struct lab *lab)
{
    struct vw_rx_packet packets[16];

    if (lab->test->manner == BUSY) {
        int reaped = vw_tx_reap(lab->net, lab->pair);
        int count = vw_rx_burst(lab->net, lab->pair, packets, 1 + random_below(&lab->random, 16));

        assert_true(reaped >= 0 && count >= 0);
        lab_take(lab, 0, packets, (unsigned)count);
        if (count == 0)
            lab_give_back(lab);
        return false;
    }
    unsigned budget = 1 + random_below(&lab->random, 64);
    int count = vw_poll(lab->net, lab->pair, budget, lab_take, lab);
    assert_true(count >= 0);
    return (unsigned)count < budget;
}

static inline void lab_sleep(struct lab *lab)
{
    struct pollfd wait = {.fd = -1, .events = POLLIN};

    lab_give_back(lab);
    lab->waits++;
    if (lab->test->manner == WAITING) {
        int result = vw_wait(lab->net, lab->pair, WAIT_MS);

        if (result != 1)
            fail_msg("vw_wait: %d; sent %llu, done %llu, received %llu", result,
                     (unsigned long long)lab->sent, (unsigned long long)lab->done,
                     (unsigned long long)lab->received);
        return;
    }
    wait.fd = vw_queue_fd(lab->net, lab->pair);
    if (poll(&wait, 1, WAIT_MS) != 1)
        fail_msg("nothing moves: a wake-up was lost; sent %llu, done %llu, received %llu",
                 (unsigned long long)lab->sent, (unsigned long long)lab->done,
                 (unsigned long long)lab->received);
}

/* Kicks what the last burst may have held back. */
static inline void lab_flush(struct lab *lab)
{
    assert_int_equal(vw_tx_burst(lab->net, lab->pair, NULL, 0, 0), 0);
}

static inline bool lab_all_done(const struct lab *lab, bool loop)
{
    return lab->sent == lab->test->count && (!loop || lab->received == lab->test->count);
}

/* All frames out, and with a loop all back. A policy without calls leaves completions to the end.
 */
static inline void lab_run(struct lab *lab, bool loop)
{
    while (!lab_all_done(lab, loop)) {
        bool sent = lab_send(lab);

        if (!sent)
            lab_flush(lab);
        if (lab_serve(lab) && !sent && !lab_all_done(lab, loop))
            lab_sleep(lab);
    }
    lab_flush(lab);
    lab_give_back(lab);
    while (vw_tx_in_flight(lab->net, lab->pair) > 0)
        assert_true(vw_tx_reap(lab->net, lab->pair) >= 0);
    assert_true(lab->done == lab->test->count);
    assert_true(lab->lost == 0);
    assert_true(vw_flow_in_flight(lab->flow) == 0);
    assert_null(vw_queue_error(lab->net, lab->pair));
}

static inline void lab_check_counters(struct lab *lab, bool loop)
{
    struct vw_tx_counters tx;
    struct vw_rx_counters rx;

    vw_counters(lab->net, lab->pair, &tx, &rx);
    assert_true(tx.frames == lab->test->count && tx.reaped == lab->test->count);
    assert_true(tx.drop_invalid == 0 && tx.drop_offload == 0 && tx.drop_lost == 0);
    assert_true(rx.frames == (loop ? lab->test->count : 0));
    assert_true(rx.drop_short == 0 && rx.drop_header == 0 && rx.drop_buffers == 0);
    assert_true(tx.wakes <= tx.stops && tx.stops <= tx.wakes + 1);
    if (lab->test->manner == BUSY)
        assert_true(tx.calls == 0 && rx.calls == 0);
}

#endif
