/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coalescing in front of a port that keeps what it was given, takes as many frames as the test
 * says, and refuses what the test says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "../offload_frames.h"
#include "base/bits.h"
#include "base/iov.h"
#include "net/features.h"
#include "port/merge.h"

#define FLOWS 4
#define SEGMENT 100

static uint8_t payload[65536];

/* ---- the port ----------------------------------------------------------------------------------
 */

struct kept {
    uint8_t header[VW_PORT_HEADER];
    uint8_t bytes[8000];
    uint32_t length, result;
};

static struct {
    struct vw_port port;
    struct vw_port_queue queue, *queues[1];
    struct kept frames[1024];
    uint32_t count, completed, visible;
    uint32_t room;      /* frames that it takes */
    bool asynchronous;  /* results come with drain only */
    bool refuses_large; /* frames with a gso_type */
    bool closed;
} below;

static uint32_t below_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    (void)queue;
    if (count > below.room)
        count = below.room;
    for (uint32_t i = 0; i < count; i++) {
        struct kept *kept = &below.frames[below.count++];

        assert_true(below.count <= 1024 && frames[i].length <= sizeof(kept->bytes));
        assert_int_equal(frames[i].iov[0].iov_len, VW_PORT_HEADER);
        memcpy(kept->header, frames[i].iov[0].iov_base, VW_PORT_HEADER);
        kept->length = frames[i].length;
        assert_int_equal(vw_iov_length(frames[i].iov + 1, frames[i].iov_count - 1), kept->length);
        vw_iov_read(frames[i].iov + 1, frames[i].iov_count - 1, 0, kept->bytes, kept->length);
        kept->result = below.refuses_large && kept->header[1] != 0 ? VW_PORT_REFUSED : VW_PORT_SENT;
    }
    below.room -= count;
    if (!below.asynchronous)
        below.visible = below.count;
    return count;
}

static uint32_t below_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                               uint32_t max)
{
    uint32_t count = 0;

    (void)queue;
    while (count < max && below.completed < below.visible)
        results[count++] = (enum vw_port_result)below.frames[below.completed++].result;
    return count;
}

static void below_drain(struct vw_port_queue *queue)
{
    (void)queue;
    below.visible = below.count;
}

static void below_close(struct vw_port *port)
{
    (void)port;
    below.closed = true;
}

static const struct vw_port_ops below_ops = {
    .transmit = below_transmit,
    .complete = below_complete,
    .drain = below_drain,
    .close = below_close,
};

static struct vw_port *open_merge(enum vw_port_coalesce coalesce)
{
    memset(&below, 0, sizeof(below));
    below.room = UINT32_MAX;
    below.queue.port = &below.port;
    below.queues[0] = &below.queue;
    below.port.ops = &below_ops;
    below.port.queues = below.queues;
    below.port.queue_count = 1;
    below.port.features = VW_NET_HOST_OFFLOADS;
    assert_int_equal(vw_port_merge(&below.port, coalesce), 0);
    return &below.port;
}

static void close_merge(struct vw_port *port)
{
    port->ops->close(port);
    assert_true(below.closed && port->ops == &below_ops);
}

/* ---- frames ------------------------------------------------------------------------------------
 */

struct given {
    struct recipe_frame frame;
    struct virtio_net_hdr_v1 wire;
    struct iovec iov[3];
};

static struct given *given; /* 64 */
static struct vw_frame views[VW_PORT_BATCH];
static struct recipe flows[FLOWS];

static void reset_flows(void)
{
    for (unsigned i = 0; i < FLOWS; i++)
        flows[i] = (struct recipe){.ipv6 = i & 1,
                                   .udp = i & 2,
                                   .ttl = 64,
                                   .flags = RECIPE_ACK,
                                   .source_port = (uint16_t)i,
                                   .payload = payload,
                                   .payload_length = SEGMENT};
}

static const struct recipe_frame *make_next(unsigned flow, struct recipe_frame *to)
{
    recipe_make(to, &flows[flow]);
    flows[flow].id++;
    flows[flow].sequence += SEGMENT;
    return to;
}

/* The next frame of a flow as number `i` of the batch. */
static void give(unsigned i, unsigned flow)
{
    struct given *one = &given[i];

    make_next(flow, &one->frame);
    one->wire = (struct virtio_net_hdr_v1){0};
    one->iov[0] = (struct iovec){&one->wire, VW_PORT_HEADER};
    one->iov[1] = (struct iovec){one->frame.bytes, 40};
    one->iov[2] = (struct iovec){one->frame.bytes + 40, one->frame.length - 40};
    views[i] = (struct vw_frame){one->iov, 3, (uint32_t)one->frame.length};
}

static uint32_t transmit(struct vw_port *port, uint32_t first, uint32_t count)
{
    return port->ops->transmit(&below.queue, views + first, count);
}

static void expect_results(struct vw_port *port, unsigned count, enum vw_port_result expected)
{
    for (unsigned i = 0; i < count; i++) {
        enum vw_port_result result = VW_PORT_RESULT_COUNT;

        assert_int_equal(port->ops->complete(&below.queue, &result, 1), 1);
        assert_int_equal(result, expected);
    }
}

static void expect_no_results(struct vw_port *port)
{
    enum vw_port_result result[1];

    assert_int_equal(port->ops->complete(&below.queue, result, 1), 0);
}

/* Number `i` of what the port got is made of `segments` frames of the batch from `from` on. */
static void expect_kept(unsigned i, unsigned from, unsigned segments)
{
    const struct kept *kept = &below.frames[i];
    const struct recipe_frame *first = &given[from].frame;
    size_t data = first->length - SEGMENT;

    assert_true(i < below.count);
    assert_int_equal(kept->length, data + segments * SEGMENT);
    if (segments == 1) {
        assert_memory_equal(kept->bytes, first->bytes, first->length);
        assert_int_equal(kept->header[1], VIRTIO_NET_HDR_GSO_NONE);
        return;
    }
    assert_int_not_equal(kept->header[1], VIRTIO_NET_HDR_GSO_NONE);
    for (unsigned s = 0; s < segments; s++)
        assert_memory_equal(kept->bytes + data + s * SEGMENT, given[from + s].frame.bytes + data,
                            SEGMENT);
}

/* ---- the tests ----------------------------------------------------------------------------------
 */

static void runs_of_a_flow_are_merged(void **state)
{
    static const unsigned runs[] = {5, 1, 1, 2, 10, 1, 20, 3};
    struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);

    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        unsigned at = 0, before = below.count;

        for (unsigned run = 0; run < VW_ARRAY_SIZE(runs); run++)
            for (unsigned i = 0; i < runs[run]; i++)
                give(at++, (run + round) % FLOWS);
        assert_int_equal(transmit(port, 0, at), at);
        expect_results(port, at, VW_PORT_SENT);
        expect_no_results(port);
        assert_int_equal(below.count - before, VW_ARRAY_SIZE(runs));
        at = 0;
        for (unsigned run = 0; run < VW_ARRAY_SIZE(runs); at += runs[run++])
            expect_kept(before + run, at, runs[run]);
        assert_int_equal(below.queue.counters.transmit_merged, (round + 1) * 40);
    }
    close_merge(port);
}

static void flows_in_turn_are_left_alone(void **state)
{
    struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);

    (void)state;
    for (unsigned i = 0; i < VW_PORT_BATCH; i++)
        give(i, i % FLOWS);
    assert_int_equal(transmit(port, 0, VW_PORT_BATCH), VW_PORT_BATCH);
    expect_results(port, VW_PORT_BATCH, VW_PORT_SENT);
    assert_int_equal(below.count, VW_PORT_BATCH);
    for (unsigned i = 0; i < VW_PORT_BATCH; i++)
        expect_kept(i, i, 1);
    close_merge(port);
}

static void a_wrong_checksum_is_not_merged_away(void **state)
{
    struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);

    (void)state;
    for (unsigned flow = 0; flow < FLOWS; flow++) {
        below.count = below.completed = below.visible = 0;
        for (unsigned i = 0; i < 10; i++)
            give(i, flow);
        given[0].frame.bytes[given[0].frame.length - 1] ^= 1;
        given[5].frame.bytes[given[5].frame.length - 1] ^= 1;
        assert_int_equal(transmit(port, 0, 10), 10);
        expect_results(port, 10, VW_PORT_SENT);
        assert_int_equal(below.count, 4);
        expect_kept(0, 0, 1);
        expect_kept(1, 1, 4);
        expect_kept(2, 5, 1);
        expect_kept(3, 6, 4);
    }
    close_merge(port);
}

/* The port takes few: what stays with the device is offered again, in order, and nothing is lost.
 */
static void a_port_without_room(void **state)
{
    for (unsigned asynchronous = 0; asynchronous < 2; asynchronous++) {
        struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);
        uint32_t taken = 0, turns = 0;

        (void)state;
        below.asynchronous = asynchronous;
        for (unsigned i = 0; i < 60; i++)
            give(i, i / 6 % 2 ? i % 2 : 0);
        while (taken < 60) {
            below.room = turns++ % 3;
            taken += transmit(port, taken, 60 - taken);
        }
        if (asynchronous) {
            expect_no_results(port);
            port->ops->drain(&below.queue);
        }
        expect_results(port, 60, VW_PORT_SENT);
        expect_no_results(port);
        assert_true(below.count < 60);
        unsigned at = 0;
        for (unsigned i = 0; i < below.count; i++) {
            unsigned segments =
                (unsigned)((below.frames[i].length - given[at].frame.payload) / SEGMENT);

            expect_kept(i, at, segments);
            at += segments;
        }
        assert_int_equal(at, 60);
        close_merge(port);
    }
}

/* Merged frames that the port refuses go singly, behind what was under way, and that was the end.
 */
static void a_port_that_refuses_merged_frames(void **state)
{
    for (unsigned asynchronous = 0; asynchronous < 2; asynchronous++) {
        struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);

        (void)state;
        below.refuses_large = true;
        below.asynchronous = asynchronous;
        for (unsigned i = 0; i < 4; i++)
            give(i, 0);
        give(4, 1);
        for (unsigned i = 5; i < 8; i++)
            give(i, 2);
        assert_int_equal(transmit(port, 0, 8), 8);
        if (asynchronous) {
            expect_no_results(port);
            port->ops->drain(&below.queue);
        }
        expect_results(port, 8, VW_PORT_SENT);
        expect_no_results(port);
        assert_int_equal(below.count, 3 + 4 + 3);
        for (unsigned i = 0; i < 4; i++)
            expect_kept(3 + i, i, 1);
        for (unsigned i = 0; i < 3; i++)
            expect_kept(7 + i, 5 + i, 1);
        for (unsigned i = 0; i < 8; i++)
            give(i, 0);
        assert_int_equal(transmit(port, 0, 8), 8);
        assert_int_equal(below.count, 10 + 8);
        port->ops->drain(&below.queue);
        expect_results(port, 8, VW_PORT_SENT);
        close_merge(port);
    }
}

static void refused_frames_that_find_no_room_are_told(void **state)
{
    struct vw_port *port = open_merge(VW_PORT_COALESCE_ON);

    (void)state;
    below.refuses_large = true;
    below.room = 3;
    for (unsigned i = 0; i < 4; i++)
        give(i, 0);
    assert_int_equal(transmit(port, 0, 4), 4);
    expect_results(port, 2, VW_PORT_SENT);
    expect_results(port, 2, VW_PORT_FAILED);
    expect_no_results(port);
    close_merge(port);
}

/* auto looks away after batches without a pair, and back. */
static void auto_finds_its_way_back(void **state)
{
    struct vw_port *port = open_merge(VW_PORT_COALESCE_AUTO);
    unsigned batches = 0;

    (void)state;
    for (unsigned round = 0; round < 50; round++) {
        below.count = below.completed = below.visible = 0;
        for (unsigned i = 0; i < 8; i++)
            give(i, i % FLOWS);
        assert_int_equal(transmit(port, 0, 8), 8);
        expect_results(port, 8, VW_PORT_SENT);
    }
    do {
        below.count = below.completed = below.visible = 0;
        for (unsigned i = 0; i < 8; i++)
            give(i, 0);
        assert_int_equal(transmit(port, 0, 8), 8);
        expect_results(port, 8, VW_PORT_SENT);
        batches++;
    } while (below.count == 8);
    assert_true(batches > 2 && batches < 200);
    for (unsigned round = 0; round < 10; round++) {
        below.count = below.completed = below.visible = 0;
        for (unsigned i = 0; i < 8; i++)
            give(i, 0);
        assert_int_equal(transmit(port, 0, 8), 8);
        expect_results(port, 8, VW_PORT_SENT);
        assert_int_equal(below.count, 1);
    }
    close_merge(port);
}

static void off_changes_nothing(void **state)
{
    struct vw_port *port = open_merge(VW_PORT_COALESCE_OFF);

    (void)state;
    assert_ptr_equal(port->ops, &below_ops);
    below.port.features = vw_bit(VIRTIO_NET_F_CSUM); /* nothing could be merged */
    assert_int_equal(vw_port_merge(&below.port, VW_PORT_COALESCE_ON), 0);
    assert_ptr_equal(port->ops, &below_ops);
}

static int setup(void **state)
{
    (void)state;
    reset_flows();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(runs_of_a_flow_are_merged, setup),
        cmocka_unit_test_setup(flows_in_turn_are_left_alone, setup),
        cmocka_unit_test_setup(a_wrong_checksum_is_not_merged_away, setup),
        cmocka_unit_test_setup(a_port_without_room, setup),
        cmocka_unit_test_setup(a_port_that_refuses_merged_frames, setup),
        cmocka_unit_test_setup(refused_frames_that_find_no_room_are_told, setup),
        cmocka_unit_test_setup(auto_finds_its_way_back, setup),
        cmocka_unit_test_setup(off_changes_nothing, setup),
    };

    given = calloc(VW_PORT_BATCH, sizeof(*given));
    if (given == NULL)
        return 1;
    recipe_fill(payload, sizeof(payload), 3);
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    free(given);
    return result;
}
