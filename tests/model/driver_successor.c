/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device that comes in place of a lost one is another one: with other features, other pairs,
 * another configuration. What the driver cannot use it gives up, says so, and tries again; the next
 * device that fits takes over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_lab.h"

struct stage {
    char folder[32], path[64];
    struct vw_device_options options; /* of the next device */
    struct running_device running;
    struct vw_net *net;
    char last_error[200];
    unsigned errors;
};

static void note_line(void *context, enum vw_level level, const char *line)
{
    struct stage *stage = context;

    if (level != VW_ERROR)
        return;
    snprintf(stage->last_error, sizeof(stage->last_error), "%s", line);
    stage->errors++;
}

static void start(struct stage *stage)
{
    stage->options.socket_path = stage->path;
    stage->options.fd = -1;
    device_open(&stage->running, "loop", &stage->options);
}

static void stop(struct stage *stage)
{
    device_stop(&stage->running);
    device_close(&stage->running);
}

static void begin_stage(struct stage *stage, const char *features, unsigned pairs, unsigned mtu)
{
    struct vw_net_options options;
    char error[256] = "";

    snprintf(stage->folder, sizeof(stage->folder), "/tmp/vw-test-XXXXXX");
    assert_non_null(mkdtemp(stage->folder));
    snprintf(stage->path, sizeof(stage->path), "%s/s", stage->folder);
    start(stage);
    vw_net_options_init(&options);
    options.socket_path = stage->path;
    options.features = features;
    options.queue_pairs = pairs;
    options.mtu = mtu;
    options.connect_ms = WAIT_MS;
    options.log = note_line;
    options.log_context = stage;
    if (vw_net_open(&options, &stage->net, error, sizeof(error)) != 0)
        fail_msg("vw_net_open: %s", error);
}

static void end_stage(struct stage *stage)
{
    vw_net_close(stage->net);
    stop(stage);
    rmdir(stage->folder);
}

/* Until one of these events is told; returns all that were told with it. */
static int await(struct stage *stage, int wanted)
{
    struct pollfd wait = {.fd = vw_net_fd(stage->net), .events = POLLIN};

    for (;;) {
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        int events = vw_process(stage->net);
        assert_true(events >= 0);
        if (events & wanted)
            return events;
        assert_false(events & (VW_EVENT_RECONNECTED | VW_EVENT_UNSUITABLE));
    }
}

/* A frame goes out and comes back through the loop. */
static void exchange(struct stage *stage, unsigned length)
{
    struct vw_piece piece = {vw_alloc(stage->net, length), length};
    const struct vw_tx_packet packet = {.pieces = &piece, .piece_count = 1};
    struct vw_rx_packet received;

    assert_non_null(piece.data);
    memset(piece.data, 0xff, length); /* to all */
    assert_int_equal(vw_tx_burst(stage->net, 0, &packet, 1, 0), 1);
    for (;;) {
        int count = vw_rx_burst(stage->net, 0, &received, 1);

        assert_true(count >= 0);
        if (count == 1)
            break;
        assert_int_equal(vw_wait(stage->net, 0, WAIT_MS), 1);
    }
    assert_int_equal(received.length, length);
    vw_rx_release(stage->net, 0, &received, 1);
    while (vw_tx_in_flight(stage->net, 0) > 0)
        assert_true(vw_tx_reap(stage->net, 0) >= 0);
    vw_free(stage->net, piece.data);
}

/* The device as it is in stage->options does not suit; it is tried more than once, and told once.
 */
static void expect_given_up(struct stage *stage, const char *why)
{
    unsigned errors;

    stop(stage);
    assert_true(await(stage, VW_EVENT_DISCONNECTED));
    errors = stage->errors;
    start(stage);
    for (unsigned i = 0; i < 2; i++)
        assert_true(await(stage, VW_EVENT_UNSUITABLE));
    if (!strstr(stage->last_error, why))
        fail_msg("\"%s\" instead of \"%s\"", stage->last_error, why);
    assert_int_equal(stage->errors, errors + 1);
    stop(stage);
}

static void expect_taken(struct stage *stage, bool other_configuration)
{
    start(stage);
    int events = await(stage, VW_EVENT_RECONNECTED | VW_EVENT_UNSUITABLE);
    while (events & VW_EVENT_UNSUITABLE) /* of one before that was seen late */
        events = await(stage, VW_EVENT_RECONNECTED | VW_EVENT_UNSUITABLE);
    assert_int_equal((events & VW_EVENT_CONFIG) != 0, other_configuration);
    exchange(stage, 60);
}

static void another_device_without_features_in_use(void **unused)
{
    struct stage stage = {.options = {.queue_pairs = 1}};

    (void)unused;
    begin_stage(&stage, "packed=on", 1, 0);
    stage.options.features_off = UINT64_C(1) << VIRTIO_F_RING_PACKED;
    expect_given_up(&stage, "lacks features");
    stage.options.features_off = 0;
    expect_taken(&stage, false);
    end_stage(&stage);
}

static void another_device_with_other_pairs(void **unused)
{
    struct stage stage = {.options = {.queue_pairs = 2}};

    (void)unused;
    begin_stage(&stage, "packed=off", 2, 0);
    stage.options.queue_pairs = 3; /* its control queue is another one */
    expect_given_up(&stage, "has 3 queue pairs, not 2");
    stage.options.queue_pairs = 2;
    expect_taken(&stage, false);
    end_stage(&stage);
}

static void another_device_with_a_smaller_mtu(void **unused)
{
    struct stage stage = {.options = {.queue_pairs = 1, .mtu = 9000}};

    (void)unused;
    begin_stage(&stage, NULL, 1, 4000);
    stage.options.mtu = 2000;
    expect_given_up(&stage, "takes 2000 at most");
    stage.options.mtu = 4000;
    expect_taken(&stage, true);
    end_stage(&stage);
}

/* What the device's configuration says is read again: address, MTU. */
static void another_device_with_another_configuration(void **unused)
{
    static const char *const modes[] = {"packed=off",
                                        "packed=on,mrg_rxbuf=off,guest_tso4=off,guest_tso6=off,"
                                        "guest_uso4=off,guest_uso6=off"};

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(modes); i++) {
        struct stage stage = {
            .options = {
                .queue_pairs = 1, .mtu = 1500, .has_mac = true, .mac = {0x52, 0x54, 0, 0, 0, 1}}};
        struct vw_net_info info;

        begin_stage(&stage, modes[i], 1, 0);
        exchange(&stage, 1514);
        stop(&stage);
        assert_true(await(&stage, VW_EVENT_DISCONNECTED));
        stage.options.mac[5] = 2;
        stage.options.mtu = 9000;
        expect_taken(&stage, true);
        vw_net_info(stage.net, &info);
        assert_int_equal(info.mac[5], 2);
        assert_int_equal(info.mtu, 9000);
        exchange(&stage, 9014);
        end_stage(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_device_without_features_in_use),
        cmocka_unit_test(another_device_with_other_pairs),
        cmocka_unit_test(another_device_with_a_smaller_mtu),
        cmocka_unit_test(another_device_with_another_configuration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
