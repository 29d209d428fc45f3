/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The vhost-user front-end against a back-end that sends every frame back, at the socket that the
 * argument names: the test that starts DPDK's testpmd runs this.
 *
 * Each case connects anew, stops its rings again and again, goes on where the back-end says that
 * they stand, and compares that with what was sent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "../line.h"

#define ROUNDS 10
#define FRAMES_A_ROUND                                                                             \
    13 /* does not divide the ring's size: the base comes to every kind of place */

static const char *path;

static void with_features(uint64_t features)
{
    struct vw_transport_vhost_user_options options = {.socket_path = path,
                                                      .fd = -1,
                                                      .connect_ms = LINE_WAIT_MS,
                                                      .request_ms = LINE_WAIT_MS,
                                                      .queues = 2};
    struct line line;
    unsigned pairs = 0;

    line_open(&line, features, &options);
    line_connect(&line);
    assert_int_equal(line.ops->max_pairs(line.transport, &pairs), 0);
    assert_true(pairs >= 1);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        uint32_t expected = line_base(&line, round * FRAMES_A_ROUND);

        for (unsigned i = 0; i < FRAMES_A_ROUND; i++)
            line_exchange(&line);
        assert_int_equal(line.ops->stop_queue(line.transport, 0, &line.receive.queue.base), 0);
        assert_int_equal(line.ops->stop_queue(line.transport, 1, &line.transmit.queue.base), 0);
        assert_int_equal(line.receive.queue.base, expected);
        assert_int_equal(line.transmit.queue.base, expected);
        line_start(&line);
    }
    line_exchange(&line);
    assert_int_equal(line.ops->process(line.transport), 0);
    line_stop(&line);
    line_close(&line);
}

static void split(void **state)
{
    (void)state;
    with_features(vw_bit(VIRTIO_NET_F_MRG_RXBUF));
}

static void split_in_order(void **state)
{
    (void)state;
    with_features(vw_bit(VIRTIO_NET_F_MRG_RXBUF) | vw_bit(VIRTIO_F_IN_ORDER));
}

static void packed(void **state)
{
    (void)state;
    with_features(vw_bit(VIRTIO_NET_F_MRG_RXBUF) | vw_bit(VIRTIO_F_RING_PACKED));
}

static void packed_in_order(void **state)
{
    (void)state;
    with_features(vw_bit(VIRTIO_F_IN_ORDER) | vw_bit(VIRTIO_F_RING_PACKED));
}

/* What it refuses, and that it goes on all the same. */
static void refusal(void **state)
{
    struct vw_transport_vhost_user_options options = {.socket_path = path,
                                                      .fd = -1,
                                                      .connect_ms = LINE_WAIT_MS,
                                                      .request_ms = LINE_WAIT_MS,
                                                      .queues = 2};
    struct line line;
    uint64_t offered;
    uint8_t byte;
    (void)state;

    line_open(&line, 0, &options);
    assert_int_equal(line.ops->connect(line.transport, &offered), 0);
    assert_int_equal(line.ops->accept(line.transport, ~offered), -EINVAL);
    assert_int_equal(line.ops->read_config(line.transport, 0, 1, &byte), -ENOTSUP);
    line_close(&line);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split),          cmocka_unit_test(packed),
        cmocka_unit_test(split_in_order), cmocka_unit_test(packed_in_order),
        cmocka_unit_test(refusal),        cmocka_unit_test(split),
    };

    if (argc != 2)
        return 2;
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
