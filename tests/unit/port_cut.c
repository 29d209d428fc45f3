/* SPDX-License-Identifier: BSD-3-Clause */
/* Offloads in software in front of a port that has none: a loop, which keeps what it was given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../offload_frames.h"
#include "base/bits.h"
#include "base/iov.h"
#include "net/features.h"
#include "port/cut.h"

#define LOOP_ROOM 256

static uint8_t payload[65536];
static struct recipe_frame expected;

static const struct recipe plain = {
    .partial = true,
    .ttl = 64,
    .flags = RECIPE_ACK | RECIPE_PSH,
    .source_port = 1000,
    .destination_port = 2000,
    .payload = payload,
};

/* A frame as a device hands it over, in one piece or in many. */
struct given {
    struct recipe_frame frame;
    struct virtio_net_hdr_v1 wire;
    struct iovec iov[1 + 700];
    struct vw_frame view;
};

static struct given given[4];

static void give(struct given *one, const struct recipe *recipe, unsigned size, size_t piece)
{
    size_t count = 1;

    recipe_make(&one->frame, recipe);
    one->wire = recipe_header(recipe, &one->frame, size);
    if (size == 0)
        one->wire.gso_type = VIRTIO_NET_HDR_GSO_NONE;
    if (!recipe->partial)
        one->wire = (struct virtio_net_hdr_v1){0};
    one->iov[0] = (struct iovec){&one->wire, VW_PORT_HEADER};
    for (size_t at = 0; at < one->frame.length; at += piece, count++) {
        assert_true(count <= 700);
        one->iov[count] =
            (struct iovec){one->frame.bytes + at, vw_min64(piece, one->frame.length - at)};
    }
    one->view = (struct vw_frame){one->iov, (uint32_t)count, (uint32_t)one->frame.length};
}

static struct vw_port *open_cut(uint64_t *features)
{
    struct vw_port *port;
    char error[100] = "";

    assert_int_equal(vw_port_open("loop,offload=off", 1, NULL, &port, error, sizeof(error)), 0);
    assert_int_equal(port->features, 0);
    assert_int_equal(vw_port_cut(port), 0);
    *features = port->features;
    return port;
}

static uint32_t transmit(struct vw_port *port, struct vw_frame *frames, uint32_t count)
{
    return port->ops->transmit(port->queues[0], frames, count);
}

/* The next frame of the loop must be `expected`, but for the addresses. */
static void expect_frame(struct vw_port *port)
{
    static uint8_t bytes[RECIPE_MAX];
    const struct virtio_net_hdr_v1 zero = {0};
    struct vw_frame frame;

    assert_int_equal(port->ops->receive(port->queues[0], &frame, 1), 1);
    assert_memory_equal(frame.iov[0].iov_base, &zero, sizeof(zero));
    assert_int_equal(frame.length, expected.length);
    vw_iov_read(frame.iov + 1, frame.iov_count - 1, 0, bytes, frame.length);
    assert_memory_equal(bytes + 12, expected.bytes + 12, frame.length - 12);
    port->ops->release(port->queues[0], 1);
}

static unsigned expect_segments(struct vw_port *port, const struct recipe *recipe, size_t size,
                                unsigned from, unsigned to)
{
    struct recipe segment;
    unsigned index = from;

    for (; index < to && recipe_segment(recipe, size, index, &segment); index++) {
        recipe_make(&expected, &segment);
        expect_frame(port);
    }
    return index;
}

static void expect_nothing(struct vw_port *port)
{
    struct vw_frame frame;

    assert_int_equal(port->ops->receive(port->queues[0], &frame, 1), 0);
}

static void expect_results(struct vw_port *port, unsigned count,
                           enum vw_port_result expected_result)
{
    for (unsigned i = 0; i < count; i++) {
        enum vw_port_result result = VW_PORT_RESULT_COUNT;

        assert_int_equal(port->ops->complete(port->queues[0], &result, 1), 1);
        assert_int_equal(result, expected_result);
    }
}

static void expect_no_results(struct vw_port *port)
{
    enum vw_port_result result;

    assert_int_equal(port->ops->complete(port->queues[0], &result, 1), 0);
}

static struct recipe recipe_with(bool ipv6, bool udp, size_t length)
{
    struct recipe recipe = plain;

    recipe.ipv6 = ipv6;
    recipe.udp = udp;
    recipe.payload_length = length;
    return recipe;
}

static void the_port_offers_every_offload(void **state)
{
    uint64_t features;
    struct vw_port *port = open_cut(&features);
    char error[100] = "";

    (void)state;
    assert_int_equal(features, VW_NET_HOST_OFFLOADS);
    port->ops->close(port);
    assert_int_equal(vw_port_open("loop", 1, NULL, &port, error, sizeof(error)), 0);
    const struct vw_port_ops *ops = port->ops;
    assert_int_equal(vw_port_cut(port), 0);
    assert_ptr_equal(port->ops, ops); /* there is nothing to do */
    port->ops->close(port);
}

static void frames_of_each_kind_in_order(void **state)
{
    static const size_t pieces[] = {100, 1500, RECIPE_MAX};
    uint64_t features;
    struct vw_port *port = open_cut(&features);

    (void)state;
    for (unsigned kind = 0; kind < 4 * VW_ARRAY_SIZE(pieces); kind++) {
        size_t piece = pieces[kind / 4];
        struct recipe large = recipe_with(kind & 1, kind & 2, 30000);
        struct recipe partial = recipe_with(kind & 1, kind & 2, 1001);
        struct recipe complete = recipe_with(kind & 1, kind & 2, 500);
        struct vw_frame frames[4];

        complete.partial = false;
        give(&given[0], &large, 1400, piece);
        give(&given[1], &complete, 0, piece);
        give(&given[2], &partial, 0, piece);
        give(&given[3], &large, 1000, piece);
        for (unsigned i = 0; i < 4; i++)
            frames[i] = given[i].view;
        assert_int_equal(transmit(port, frames, 4), 4);
        expect_results(port, 4, VW_PORT_SENT);
        expect_no_results(port);
        assert_int_equal(expect_segments(port, &large, 1400, 0, 100), 22);
        recipe_make(&expected, &complete);
        expect_frame(port);
        partial.partial = false;
        recipe_make(&expected, &partial);
        expect_frame(port);
        assert_int_equal(expect_segments(port, &large, 1000, 0, 100), 30);
        expect_nothing(port);
    }
    assert_int_equal(port->queues[0]->counters.transmit_cut, 2 * 12);
    assert_int_equal(port->queues[0]->counters.transmit_checksums, 12);
    port->ops->close(port);
}

static void a_frame_of_a_great_many_segments(void **state)
{
    uint64_t features;
    struct vw_port *port = open_cut(&features);
    struct recipe recipe = recipe_with(false, false, 60000);
    unsigned from = 0;

    (void)state;
    give(&given[0], &recipe, 8, 100);
    give(&given[1], &recipe, 8, 100); /* waits for the buffer, too */
    for (unsigned i = 0; i < 2; i++, from = 0) {
        while (transmit(port, &given[i].view, 1) == 0) { /* as the loop has room */
            expect_no_results(port);
            from = expect_segments(port, &recipe, 8, from, from + LOOP_ROOM);
        }
        from = expect_segments(port, &recipe, 8, from, 60000);
        assert_int_equal(from, 7500);
        expect_nothing(port);
        expect_results(port, 1, VW_PORT_SENT);
        expect_no_results(port);
    }
    port->ops->close(port);
}

static void a_frame_begun_goes_out_anew_after_a_drain(void **state)
{
    uint64_t features;
    struct vw_port *port = open_cut(&features);
    struct recipe recipe = recipe_with(true, true, 40000);
    struct recipe small = recipe_with(true, false, 100);

    (void)state;
    give(&given[0], &recipe, 100, 60);
    assert_int_equal(transmit(port, &given[0].view, 1), 0);
    port->ops->drain(port->queues[0]);
    expect_no_results(port);
    assert_int_equal(expect_segments(port, &recipe, 100, 0, LOOP_ROOM), LOOP_ROOM);
    expect_nothing(port);
    give(&given[1], &small, 0, 60); /* another frame comes first: nothing is left of the old one */
    assert_int_equal(transmit(port, &given[1].view, 1), 1);
    expect_results(port, 1, VW_PORT_SENT);
    small.partial = false;
    recipe_make(&expected, &small);
    expect_frame(port);
    assert_int_equal(transmit(port, &given[0].view, 1), 0);
    assert_int_equal(expect_segments(port, &recipe, 100, 0, LOOP_ROOM), LOOP_ROOM);
    assert_int_equal(transmit(port, &given[0].view, 1), 1);
    expect_results(port, 1, VW_PORT_SENT);
    assert_int_equal(expect_segments(port, &recipe, 100, LOOP_ROOM, 1000), 400);
    port->ops->close(port);
}

static void what_cannot_be_cut_is_refused_in_its_turn(void **state)
{
    uint64_t features;
    struct vw_port *port = open_cut(&features);
    struct recipe recipe = recipe_with(false, false, 3000);
    struct vw_frame frames[4];

    (void)state;
    for (size_t piece = 10; piece < 4000; piece += 3900) {
        for (unsigned i = 0; i < 4; i++)
            give(&given[i], &recipe, 1000, piece);
        given[1].wire.gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
        given[2].wire = (struct virtio_net_hdr_v1){
            .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 2000, .csum_offset = 2000};
        for (unsigned i = 0; i < 4; i++)
            frames[i] = given[i].view;
        uint32_t taken = transmit(port, frames, 4);
        expect_results(port, 1, VW_PORT_SENT);
        expect_results(port, 2, VW_PORT_REFUSED);
        if (taken < 4)
            assert_int_equal(transmit(port, frames + taken, 4 - taken), 4 - taken);
        expect_results(port, 1, VW_PORT_SENT);
        expect_no_results(port);
        expect_segments(port, &recipe, 1000, 0, 10);
        expect_segments(port, &recipe, 1000, 0, 10);
        expect_nothing(port);
    }
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_port_offers_every_offload),
        cmocka_unit_test(frames_of_each_kind_in_order),
        cmocka_unit_test(a_frame_of_a_great_many_segments),
        cmocka_unit_test(a_frame_begun_goes_out_anew_after_a_drain),
        cmocka_unit_test(what_cannot_be_cut_is_refused_in_its_turn),
    };

    recipe_fill(payload, sizeof(payload), 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
