/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver against a device that lies: used lengths, ids and indices, num_buffers, headers,
 * configuration values. What a lie must not do is reach outside of what was posted (the sanitizer
 * builds see that), lose or repeat a token, or keep a call from returning.
 *
 * The test's own thread is driver and device in turn; a scripted back-end answers the handshake.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_world.h"
#include "../model/random.h"

/* ---- receiving ---- */

static const uint64_t formats[] = {0, PACKED};

#define FOR_EACH_FORMAT(format)                                                                    \
    for (const uint64_t *format = formats; format < formats + VW_ARRAY_SIZE(formats); format++)

static void an_honest_device_is_believed(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format | F(GUEST_CSUM));
        struct vw_net_header header = {.flags = VIRTIO_NET_HDR_F_DATA_VALID, .num_buffers = 1};
        struct vw_rx_packet packet;

        for (unsigned i = 0; i < 100; i++) {
            deliver_good(world, 14 + i);
            expect_frame(world, 14 + i);
        }
        deliver(world, &header, 60, 72);
        assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), 1);
        assert_int_equal(packet.offload.flags, VW_OFFLOAD_DATA_VALID);
        assert_int_equal(packet.piece_count, 1);
        vw_rx_release(world->net, 0, &packet, 1);
        header = (struct vw_net_header){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                        .csum_start = 34,
                                        .csum_offset = 6,
                                        .num_buffers = 1};
        deliver(world, &header, 60, 72);
        assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), 1);
        assert_int_equal(packet.offload.flags, VW_OFFLOAD_NEEDS_CSUM);
        assert_int_equal(packet.offload.csum_start, 34);
        vw_rx_release(world->net, 0, &packet, 1);
        assert_true(rx_counters(world).frames == 102);
        end(world);
    }
}

static void lengths_beyond_the_buffer(void **unused)
{
    static const uint32_t lengths[] = {1601, 65536, UINT32_C(1) << 31, UINT32_MAX};

    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned i = 0; i < VW_ARRAY_SIZE(lengths); i++) {
        struct world *world = begin(*format | F(MRG_RXBUF));
        const struct vw_net_header header = {.num_buffers = 1};

        deliver_good(world, 60);
        deliver(world, &header, 60, lengths[i]);
        expect_frame(world, 60);
        expect_broken(world, "written more than the buffer holds");
        end(world);
    }
}

static void ids_that_are_not_in_flight(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned kind = 0; kind < 2; kind++) {
        struct world *world = begin(*format);
        struct vw_chain chain = take(world, &world->rx);

        chain.written = 72;
        if (kind == 0) {
            chain.id = 16;
        } else {
            struct vw_chain second = take(world, &world->rx);

            give(&world->rx, &chain);
            expect_frame(world, 60);
            /* The id may be in flight again by now, for another buffer; then it is no lie. */
            chain.id = (uint16_t)(second.id + 100);
        }
        give(&world->rx, &chain);
        expect_broken(world, "not in flight");
        end(world);
    }
}

static void impossible_num_buffers(void **unused)
{
    static const uint16_t counts[] = {0, 17, 49, 65535};

    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
        struct world *world = begin(*format | F(MRG_RXBUF));
        const struct vw_net_header header = {.num_buffers = counts[i]};

        deliver_good(world, 60);
        deliver(world, &header, 60, 72);
        deliver_good(world, 60);
        expect_frame(world, 60);
        expect_broken(world, "frame of no buffers");
        assert_true(rx_counters(world).drop_header == 1);
        end(world);
    }
}

static void buffers_that_never_come(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format | F(MRG_RXBUF));
        const struct vw_net_header header = {.num_buffers = 3};

        deliver(world, &header, 60, 72);
        deliver_good(world, 60);
        expect_broken(world, "not used together");
        assert_true(rx_counters(world).drop_buffers == 1);
        end(world);
    }
}

/* Without MRG_RXBUF num_buffers means nothing, and old devices leave rubbish there. */
static void num_buffers_without_the_feature(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format);
        const struct vw_net_header header = {.num_buffers = 0xbeef};

        deliver(world, &header, 60, 72);
        expect_frame(world, 60);
        end(world);
    }
}

static void frames_that_are_too_short(void **unused)
{
    static const uint32_t lengths[] = {0, 1, 11, 12, 25};

    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned mergeable = 0; mergeable < 2; mergeable++) {
        struct world *world = begin(*format | (mergeable ? F(MRG_RXBUF) : 0));
        const struct vw_net_header header = {.num_buffers = 1};

        for (unsigned round = 0; round < 10; round++)
            for (unsigned i = 0; i < VW_ARRAY_SIZE(lengths); i++) {
                deliver(world, &header, 60, lengths[i]);
                expect_nothing(world);
                deliver_good(world, 14);
                expect_frame(world, 14);
            }
        assert_true(rx_counters(world).drop_short == 50);
        end(world);
    }
}

static void headers_that_cannot_be(void **unused)
{
    static const struct vw_net_header headers[] = {
        {.flags = 1, .csum_start = 65000, .csum_offset = 6, .num_buffers = 1},
        {.flags = 1, .csum_start = 34, .csum_offset = 65535, .num_buffers = 1},
        {.flags = 1, .csum_start = 59, .csum_offset = 0, .num_buffers = 1},
        {.gso_type = VIRTIO_NET_HDR_GSO_TCPV4, .gso_size = 10, .num_buffers = 1},
        {.flags = 1,
         .csum_start = 34,
         .csum_offset = 16,
         .gso_type = VIRTIO_NET_HDR_GSO_TCPV6,
         .gso_size = 10,
         .num_buffers = 1}, /* not negotiated */
        {.flags = 1,
         .csum_start = 34,
         .csum_offset = 16,
         .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
         .gso_size = 0,
         .num_buffers = 1},
        {.flags = 1,
         .csum_start = 34,
         .csum_offset = 16,
         .gso_type = 0x7f,
         .gso_size = 10,
         .num_buffers = 1},
    };

    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format | F(GUEST_CSUM) | F(GUEST_TSO4) | F(MRG_RXBUF));

        for (unsigned i = 0; i < VW_ARRAY_SIZE(headers); i++) {
            deliver(world, &headers[i], 60, 72);
            expect_nothing(world);
            deliver_good(world, 60);
            expect_frame(world, 60);
        }
        assert_true(rx_counters(world).drop_header == VW_ARRAY_SIZE(headers));
        end(world);
    }
}

/* ---- sending ---- */

static void completions_that_are_none(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned kind = 0; kind < 3; kind++) {
        struct world *world = begin(*format | UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC);

        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(send_frame(world), 1);
        struct vw_chain chain = take(world, &world->tx);
        if (kind == 0)
            chain.id = 99;
        if (kind == 1)
            chain.written = 5; /* into a buffer that it may only read */
        if (kind == 2) {
            give(&world->tx, &chain);
            chain.id = 15; /* is not in flight */
        }
        give(&world->tx, &chain);
        int reaped = vw_tx_reap(world->net, 0);
        assert_true(reaped == (kind == 2 ? 1 : -EIO));
        assert_int_equal(vw_tx_reap(world->net, 0), -EIO);
        assert_int_equal(send_frame(world), -EIO);
        assert_non_null(vw_queue_error(world->net, 0));
        expect_loops_to_end(world);
        end(world);
    }
}

static void frames_that_cannot_be_sent(void **unused)
{
    struct world *world = begin(F(CSUM) | F(HOST_TSO4));
    struct vw_piece pieces[20];
    char outside[64];
    struct vw_tx_packet packet = {.pieces = pieces, .piece_count = 1};
    struct vw_tx_counters before, after;

    (void)unused;
    before = tx_counters(world);
    pieces[0] = (struct vw_piece){outside, 60};
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    pieces[0] = (struct vw_piece){world->net->shared.address + world->net->shared.size - 10, 60};
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    pieces[0] = (struct vw_piece){world->net->shared.address, 60};
    packet.headroom = 20; /* in front of the memory */
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    packet.headroom = 0;
    pieces[0] = (struct vw_piece){world->frame, 13};
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    pieces[0].length = 0;
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    packet.piece_count = 0;
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    for (unsigned i = 0; i < 20; i++)
        pieces[i] = (struct vw_piece){world->frame, 60};
    packet.piece_count = 16; /* with the header one more than the ring has */
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    packet.piece_count = UINT32_MAX;
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    after = tx_counters(world);
    assert_true(after.drop_invalid == before.drop_invalid + 8 && after.frames == 0);
    packet.piece_count = 1;
    packet.offload = (struct vw_offload){
        .flags = 1, .csum_start = 34, .csum_offset = 16, .gso_type = 4, .gso_size = 10};
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    packet.offload = (struct vw_offload){.flags = 1, .csum_start = 60};
    assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), -EINVAL);
    after = tx_counters(world);
    assert_true(after.drop_offload == 2 && after.frames == 0);
    assert_int_equal(vw_tx_burst(world->net, 1, &packet, 1, 0), -EINVAL);
    assert_int_equal(vw_tx_in_flight(world->net, 0), 0);
    end(world);
}

/* A frame's header reaches the device as it was asked for, wherever it lies. */
static void headers_of_sent_frames(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned headroom = 0; headroom < 2; headroom++) {
        struct world *world = begin(*format | F(CSUM));
        const struct vw_piece piece = {world->frame + 64, 60};
        struct vw_tx_packet packet = {.pieces = &piece,
                                      .piece_count = 1,
                                      .headroom = headroom ? 64 : 0,
                                      .offload = {.flags = 1, .csum_start = 34, .csum_offset = 6}};

        for (unsigned round = 0; round < 40; round++) {
            bool plain = round % 3 == 0;
            struct vw_net_header header;
            char bytes[72];

            packet.offload =
                plain ? (struct vw_offload){0}
                      : (struct vw_offload){.flags = 1, .csum_start = 34, .csum_offset = 6};
            packet.token = (void *)(uintptr_t)world->tokens++;
            assert_int_equal(vw_tx_burst(world->net, 0, &packet, 1, 0), 1);
            struct vw_chain chain = take(world, &world->tx);
            assert_int_equal(chain.readable_count, headroom ? 1 : 2);
            assert_int_equal(chain.readable_length, 72);
            assert_int_equal(vw_iov_read(chain.iov, chain.readable_count, 0, bytes, 72), 72);
            vw_net_header_decode(&header, bytes, 12);
            assert_int_equal(header.flags, plain ? 0 : 1);
            assert_int_equal(header.csum_start, plain ? 0 : 34);
            assert_memory_equal(bytes + 12, world->frame + 64, 60);
            give(&world->tx, &chain);
            assert_int_equal(vw_tx_reap(world->net, 0), 1);
        }
        end(world);
    }
}

/* ---- a device that goes away ---- */

static void count_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct world *world = context;

    assert_int_equal(packets[0].length, 61);
    vw_rx_release(world->net, pair, packets, count);
}

static void frames_of_before_a_loss_are_handed_out_first(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format);
        struct vw_rx_packet packet;

        deliver_good(world, 60);
        deliver_good(world, 61);
        deliver_good(world, 62);
        lose_device(world);
        expect_frame(world, 60);
        assert_int_equal(vw_poll(world->net, 0, 1, count_frames, world), 1);
        assert_int_equal(vw_wait(world->net, 0, -1), 1);
        expect_frame(world, 62);
        assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -ENOTCONN);
        assert_int_equal(vw_poll(world->net, 0, 1, count_frames, world), 0);
        end(world);
    }
}

static void a_frame_that_a_lost_device_did_not_finish(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = begin(*format | F(MRG_RXBUF));
        const struct vw_net_header two = {.num_buffers = 2}, three = {.num_buffers = 3};
        struct vw_rx_packet packet;

        deliver_good(world, 60);
        deliver(world, &two, 60, 72);
        deliver_good(world, 60);
        deliver(world, &three, 60, 72);
        deliver_good(world, 60);
        lose_device(world);
        expect_frame(world, 60);
        expect_frame(world, 60 + 72);
        assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -ENOTCONN);
        assert_true(rx_counters(world).drop_buffers == 1);
        assert_null(vw_queue_error(world->net, 0));
        end(world);
    }
}

/* It could still write to what it had used. */
static void a_lost_device_that_changes_its_mind(void **unused)
{
    static const uint16_t counts[] = {0, 2, 65535};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
        struct world *world = begin(F(MRG_RXBUF));
        const struct vw_rx *rx = &world->net->pairs[0].rx;
        const struct vw_net_header header = {.num_buffers = counts[i]};
        struct vw_rx_packet packet;

        deliver_good(world, 60);
        lose_device(world);
        assert_int_equal(rx->done_count, 1);
        vw_net_header_encode(&header, ((struct vw_rx_buffer *)rx->done[0].token)->memory, 12);
        assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -ENOTCONN);
        assert_null(vw_queue_error(world->net, 0)); /* the next device is not to blame */
        end(world);
    }
}

/* What the device completed is told as sent, the rest not, and by nobody but the pair's calls. */
static void tokens_of_a_lost_device_come_back_with_the_pairs_calls(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    for (unsigned how = 0; how < 3; how++) {
        struct world *world = begin(*format | UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC);
        struct vw_rx_packet packet;

        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(send_frame(world), 1);
        struct vw_chain chain = take(world, &world->tx);
        give(&world->tx, &chain);
        if (how < 2)
            lose_device(world);
        assert_int_equal(world->done[0] + world->lost[0], 0);
        assert_int_equal(vw_tx_in_flight(world->net, 0), 3);
        if (how == 0)
            assert_int_equal(vw_tx_reap(world->net, 0), 1);
        if (how == 1)
            assert_int_equal(vw_poll(world->net, 0, 1, NULL, NULL), 0);
        if (how < 2) {
            assert_int_equal(world->done[0], 1);
            assert_int_equal(vw_tx_in_flight(world->net, 0), 2);
            assert_int_equal(vw_tx_reap(world->net, 0), -ENOTCONN);
            assert_int_equal(vw_rx_burst(world->net, 0, &packet, 1), -ENOTCONN);
        }
        vw_net_close(world->net);
        assert_int_equal(world->done[0], 1);
        for (unsigned i = 1; i < 3; i++)
            assert_true(world->done[i] == 0 && world->lost[i] == 1);
        world->opened = -1; /* it is closed */
        end(world);
    }
}

/* ---- what tx_done may call ---- */

static void call_everything(struct world *world)
{
    struct vw_net *net = world->net;
    struct vw_rx_packet packet;

    world->hook = NULL;
    assert_int_equal(send_frame(world), -EBUSY);
    assert_int_equal(vw_tx_reap(net, 0), -EBUSY);
    assert_int_equal(vw_poll(net, 0, 1, NULL, NULL), -EBUSY);
    assert_int_equal(vw_wait(net, 0, -1), -EBUSY);
    assert_int_equal(vw_process(net), -EBUSY);
    assert_int_equal(vw_set_mtu(net, 1400), -EBUSY);
    assert_int_equal(vw_set_guest_offloads(net, 0), -EBUSY);
    assert_int_equal(vw_rx_burst(net, 0, &packet, 1), 1);
    vw_rx_release(net, 0, &packet, 1);
    assert_int_equal(vw_tx_set_policy(net, 0, VW_TX_ORPHAN), 0);
    assert_true(vw_queue_fd(net, 0) >= 0);
    assert_true(vw_tx_in_flight(net, 0) <= 1);
    assert_null(vw_queue_error(net, 0));
}

static void tx_done_that_calls_the_pairs_own_functions(void **unused)
{
    (void)unused;
    for (unsigned how = 0; how < 3; how++) {
        struct world *world = begin(F(GUEST_CSUM));

        assert_int_equal(send_frame(world), 1);
        struct vw_chain chain = take(world, &world->tx);
        give(&world->tx, &chain);
        deliver_good(world, 60);
        world->hook = call_everything;
        if (how == 0)
            assert_int_equal(vw_tx_reap(world->net, 0), 1);
        if (how == 1)
            assert_int_equal(vw_poll(world->net, 0, 1, NULL, NULL), 0);
        if (how == 2) {
            lose_device(world);
            assert_int_equal(vw_tx_reap(world->net, 0), 1);
        }
        assert_null(world->hook);
        assert_int_equal(world->done[0], 1);
        end(world);
    }
}

/* ---- configuration ---- */

static void configuration_values(void **unused)
{
    static const struct {
        unsigned offset, bytes;
        const char *value;
        unsigned pairs;
        int result;
    } cases[] = {
        {0, 6, "\x00\x00\x00\x00\x00\x00", 1, -EINVAL}, /* no address */
        {0, 6, "\x01\x00\x5e\x00\x00\x01", 1, -EINVAL}, /* a group's */
        {8, 2, "\x00\x00", 2, -EINVAL},                 /* no pairs */
        {8, 2, "\xff\xff", 2, -EINVAL},                 /* too many */
        {8, 2, "\x01\x00", 2, -ENOTSUP},                /* fewer than wanted */
        {10, 2, "\x0a\x00", 1, 0},                      /* an MTU below 68 counts as none */
        {10, 2, "\xff\xff", 1, 0},
    };

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        struct world *world =
            prepare(F(MAC) | F(MTU) | F(STATUS) | (cases[i].pairs > 1 ? F(MQ) | F(CTRL_VQ) : 0));
        struct vw_net_info info;

        memcpy(world->back_end.config + cases[i].offset, cases[i].value, cases[i].bytes);
        open_with(world, cases[i].pairs, VW_TX_DEFERRED, true);
        assert_int_equal(world->opened, cases[i].result);
        if (world->opened == 0) {
            vw_net_info(world->net, &info);
            assert_int_equal(info.mtu, cases[i].value[0] == '\x0a' ? 1500 : 65535);
        } else {
            assert_true(world->error[0] != '\0');
        }
        end(world);
    }
}

static void tell_change(struct world *world)
{
    struct vw_vu_message message;

    vw_vu_config_change(&message);
    assert_int_equal(vw_socket_send(world->back_end.channel, &message, NULL, 0), 0);
    assert_true(vw_process(world->net) & VW_EVENT_CONFIG);
}

/* The device's MTU grows: so do the buffers that are posted, at once. Then it shrinks. */
static void an_mtu_that_changes_at_run_time(void **unused)
{
    (void)unused;
    FOR_EACH_FORMAT(format)
    {
        struct world *world = prepare(*format | F(MTU));
        const char zeros[VW_NET_HEADER_MAX] = {0};
        struct vw_chain chain;
        struct vw_net_info info;

        put16(world->back_end.config + 10, 1500);
        open_with(world, 1, VW_TX_DEFERRED, true);
        assert_int_equal(world->opened, 0);
        attach(world);
        deliver_good(world, 60);
        put16(world->back_end.config + 10, 9000);
        tell_change(world);
        vw_net_info(world->net, &info);
        assert_int_equal(info.mtu, 9000);
        expect_frame(world, 60);
        assert_int_equal(vw_device_ring_init(&world->rx, &world->net->pairs[0].rx.queue.ring.config,
                                             &world->memory),
                         0);
        chain = take(world, &world->rx);
        assert_true(chain.writable_length >= 12 + 18 + 9000);
        vw_iov_write(chain.iov, chain.writable_count, 0, zeros, 12);
        chain.written = 12 + 9014;
        give(&world->rx, &chain);
        expect_frame(world, 9014);
        put16(world->back_end.config + 10, 1280);
        tell_change(world);
        vw_net_info(world->net, &info);
        assert_int_equal(info.mtu, 1280);
        assert_int_equal(vw_set_mtu(world->net, 1281), -EINVAL);
        end(world);
    }
}

/* A back-end without a configuration space has no control queue either, whatever it offers; and one
 * with too many pairs cannot have one. Several pairs work all the same. */
static void without_a_control_queue(void **unused)
{
    (void)unused;
    for (unsigned config = 0; config < 2; config++)
        for (unsigned pairs = 1; pairs <= 2; pairs++) {
            struct world *world =
                prepare(F(MQ) | F(CTRL_VQ) | F(CTRL_RX) | F(HASH_REPORT) | F(MAC) | F(MTU));
            struct vw_net_info info;

            if (!config)
                world->back_end.protocol &= ~vw_bit(VW_VU_PF_CONFIG);
            world->back_end.pairs = 128;
            put16(world->back_end.config + 8, 128);
            open_with(world, pairs, VW_TX_DEFERRED, true);
            if (config && pairs == 1) { /* without MQ it is queue 2, and nobody serves it */
                assert_int_equal(world->opened, 0);
                vw_net_info(world->net, &info);
                assert_true(info.features & F(CTRL_VQ));
            } else {
                assert_int_equal(world->opened, 0);
                vw_net_info(world->net, &info);
                assert_int_equal(info.queue_pairs, pairs);
                assert_true(!(info.features & (F(CTRL_VQ) | F(CTRL_RX) | F(HASH_REPORT))));
                assert_int_equal(info.header_size, 12);
                assert_int_equal(vw_set_promiscuous(world->net, 1), -ENOTSUP);
                assert_int_equal(info.mtu, 1500);
            }
            end(world);
        }
}

static void urgent_needs_a_device_that_knows_it(void **unused)
{
    struct world *world = prepare(0);

    (void)unused;
    open_with(world, 1, VW_TX_URGENT, true);
    assert_int_equal(world->opened, -ENOTSUP);
    assert_non_null(strstr(world->error, "urgent"));
    end(world);
}

/* A ring of four thousand million entries was "no shared memory of 1472070231424 bytes". */
static void ring_sizes_that_no_ring_has(void **unused)
{
    static const unsigned sizes[] = {0, 1, 32769, 4000000000u};
    struct vw_net_options options;
    struct vw_net *net;
    char error[200];

    (void)unused;
    for (unsigned i = 0; i < 2 * VW_ARRAY_SIZE(sizes); i++) {
        bool transmit = i % 2 == 0;

        if (sizes[i / 2] == 1 && !transmit)
            continue;
        vw_net_options_init(&options);
        options.socket_path = "/nowhere";
        *(transmit ? &options.tx_ring_size : &options.rx_ring_size) = sizes[i / 2];
        assert_int_equal(vw_net_open(&options, &net, error, sizeof(error)), -EINVAL);
        assert_non_null(strstr(error, transmit ? "tx_ring_size is" : "rx_ring_size is"));
    }
}

/* ---- at random ---- */

/* Something that a device could write anywhere in what it can write to. */
static void scribble(struct world *world, struct random *random)
{
    struct vw_driver_queue *queue =
        random_one_in(random, 2) ? &world->net->pairs[0].rx.queue : &world->net->pairs[0].tx.queue;
    const struct vw_ring_config *config = &queue->ring.config;
    bool descriptors = config->format == VW_RING_PACKED;
    uint64_t bytes = vw_ring_area_size(
        config->format, descriptors ? VW_RING_DESCRIPTOR_AREA : VW_RING_DEVICE_AREA, config->size);
    uint8_t *area = descriptors ? config->descriptor_area : config->device_area;

    for (unsigned i = 1 + random_below(random, 4); i > 0; i--)
        area[random_below(random, (uint32_t)bytes)] = (uint8_t)random_next(random);
}

static void take_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct world *world = context;

    vw_rx_release(world->net, pair, packets, count);
}

static void random_turn(struct world *world, struct random *random)
{
    struct vw_rx_packet packets[8];
    struct vw_net_header header = {.num_buffers = (uint16_t)(1 + random_below(random, 2))};

    switch (random_below(random, 8)) {
    case 0:
        send_frame(world);
        break;
    case 1:
        vw_tx_reap(world->net, 0);
        break;
    case 2: {
        int count = vw_rx_burst(world->net, 0, packets, 8);

        for (int i = 0; i < count; i++)
            for (unsigned p = 0; p < packets[i].piece_count; p++)
                memset(packets[i].pieces[p].data, 0, packets[i].pieces[p].length);
        if (count > 0)
            vw_rx_release(world->net, 0, packets, (unsigned)count);
        break;
    }
    case 3:
    case 4: {
        struct vw_iov_pool pool = {.iov = world->iov, .capacity = VW_ARRAY_SIZE(world->iov)};
        struct vw_device_ring *ring = random_one_in(random, 2) ? &world->rx : &world->tx;
        struct vw_chain chain;

        if (vw_device_ring_fetch(ring, &chain, 1, &pool) != 1)
            break;
        if (chain.writable_count > 0) {
            char wire[VW_NET_HEADER_MAX];

            header.flags = (uint8_t)random_below(random, 4);
            header.csum_start = (uint16_t)random_below(random, 100);
            vw_net_header_encode(&header, wire, world->net->header_size);
            vw_iov_write(chain.iov, chain.writable_count, 0, wire, world->net->header_size);
            chain.written = random_below(random, random_one_in(random, 20) ? 70000 : 1500);
        }
        give(ring, &chain);
        break;
    }
    case 5:
        vw_tx_burst(world->net, 0, NULL, 0, 0);
        break;
    case 6:
        vw_poll(world->net, 0, 4, take_frames, world);
        break;
    case 7:
        if (random_one_in(random, 8))
            scribble(world, random);
        break;
    }
}

static void a_device_at_random(void **unused)
{
    struct random random = {random_seed()};

    (void)unused;
    for (unsigned life = 0; life < 200; life++) {
        uint64_t features = F(GUEST_CSUM);

        if (random_one_in(&random, 2))
            features |= PACKED;
        if (random_one_in(&random, 2))
            features |= F(MRG_RXBUF);
        if (random_one_in(&random, 2))
            features |= UINT64_C(1) << VIRTIO_F_IN_ORDER;
        if (random_one_in(&random, 2))
            features |= UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX;
        if (random_one_in(&random, 2))
            features |= UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC;
        enum vw_tx_policy policies[] = {VW_TX_DEFERRED, VW_TX_ORPHAN, VW_TX_DELAYED,
                                        VW_TX_SCHEDULED};
        struct world *world =
            begin_as(features, policies[random_below(&random, 4)], random_one_in(&random, 2));
        if (random_one_in(&random, 2)) /* one that is armed for */
            assert_true(vw_queue_fd(world->net, 0) >= 0);
        for (unsigned turn = 0; turn < 600 && world->tokens < TOKENS - 1; turn++)
            random_turn(world, &random);
        end(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_device_is_believed),
        cmocka_unit_test(lengths_beyond_the_buffer),
        cmocka_unit_test(ids_that_are_not_in_flight),
        cmocka_unit_test(impossible_num_buffers),
        cmocka_unit_test(buffers_that_never_come),
        cmocka_unit_test(num_buffers_without_the_feature),
        cmocka_unit_test(frames_that_are_too_short),
        cmocka_unit_test(headers_that_cannot_be),
        cmocka_unit_test(completions_that_are_none),
        cmocka_unit_test(frames_that_cannot_be_sent),
        cmocka_unit_test(headers_of_sent_frames),
        cmocka_unit_test(frames_of_before_a_loss_are_handed_out_first),
        cmocka_unit_test(a_frame_that_a_lost_device_did_not_finish),
        cmocka_unit_test(a_lost_device_that_changes_its_mind),
        cmocka_unit_test(tokens_of_a_lost_device_come_back_with_the_pairs_calls),
        cmocka_unit_test(tx_done_that_calls_the_pairs_own_functions),
        cmocka_unit_test(configuration_values),
        cmocka_unit_test(an_mtu_that_changes_at_run_time),
        cmocka_unit_test(without_a_control_queue),
        cmocka_unit_test(urgent_needs_a_device_that_knows_it),
        cmocka_unit_test(ring_sizes_that_no_ring_has),
        cmocka_unit_test(a_device_at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
