/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver and the device in one process, without a socket between them: one thread is the
 * driver's and the device's control thread (device/in_process.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_lab.h"
#include "device/internal.h"

static const char *const rings[] = {
    "packed=off,event_idx=off,in_order=off",
    "packed=off,in_order=off",
    "packed=off,indirect_desc=off",
    "packed=on,event_idx=off,in_order=off",
    "packed=on,in_order=off,indirect_desc=off",
    "packed=on",
};

static const struct lab_case simple = {.features = "packed=on",
                                       .policy = VW_TX_DEFERRED,
                                       .mode = VW_RX_AUTO,
                                       .manner = WAITING,
                                       .ring = 64,
                                       .pieces = 3,
                                       .shortest = 60,
                                       .longest = 1514,
                                       .in_process = true,
                                       .count = 400};

static char where[200];

static int say_where(void **unused)
{
    (void)unused;
    if (where[0] != '\0')
        print_message("last case: %s (VW_SEED=%#llx)\n", where, (unsigned long long)random_seed());
    where[0] = '\0';
    return 0;
}

static void exchange(const struct lab_case *test)
{
    snprintf(where, sizeof(where), "%s, %s, receive mode %d, %s, device mode %d", test->features,
             policy_name(test->policy), test->mode, manner_name(test->manner), test->device_mode);
    struct lab *lab = lab_begin(test, "loop");
    lab_run(lab, true);
    lab_check_counters(lab, true);
    lab_end(lab);
    where[0] = '\0';
}

/* Manners of a caller and modes of the device go round, so that each meets each. */
static void every_ring_policy_and_receive_mode(void **unused)
{
    unsigned number = 0;

    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++)
            for (enum vw_rx_mode mode = VW_RX_SMALL; mode <= VW_RX_MERGEABLE; mode++) {
                struct lab_case test = simple;

                test.features = rings[r];
                test.policy = policy;
                test.mode = mode;
                test.manner = number % MANNERS;
                test.device_mode = number / MANNERS % (VW_DEVICE_POLL + 1);
                test.pieces = 1 + number % VW_TX_MAX_PIECES;
                test.longest = mode == VW_RX_SMALL ? 1518 : 9000;
                test.more = number % 2;
                test.hold = number % 5 < 2;
                test.headroom = number % 4 < 2;
                number++;
                exchange(&test);
            }
}

/* ---- one driver after another ---- */

static void start_again(struct lab *lab)
{
    lab->sent = lab->done = lab->received = 0;
    lab->free_count = 0;
    lab_open_in_process(lab);
    lab_buffers(lab, 128);
}

static void close_driver(struct lab *lab)
{
    vw_net_close(lab->net);
    vw_flow_free(lab->flow);
}

/* Each finds the device as new, whatever the one before had negotiated, set, or left waiting. */
static void drivers_come_and_go(void **unused)
{
    const uint8_t other[6] = {0x52, 0x54, 0, 1, 2, 3};
    struct vw_device_statistics statistics;
    struct lab_case test = simple;
    struct lab *lab = lab_begin(&test, "loop");

    (void)unused;
    for (unsigned turn = 0; turn < 30; turn++) {
        lab_run(lab, true);
        assert_int_equal(vw_set_mac(lab->net, other), 0);
        assert_memory_equal(lab->running.device->control.mac, other, 6);
        close_driver(lab);
        vw_device_statistics(lab->running.device, &statistics);
        assert_false(statistics.connected);
        assert_int_equal(statistics.acknowledged, 0);
        assert_int_equal(lab->running.device->memory->count, 0);
        assert_int_equal(statistics.counters.connections, turn + 1);
        assert_int_equal(statistics.counters.messages_refused, 0);
        test.features = rings[turn % VW_ARRAY_SIZE(rings)];
        test.mode = VW_RX_SMALL + turn % 3;
        start_again(lab);
    }
    lab_run(lab, true);
    lab_end(lab);
}

static void one_at_a_time(void **unused)
{
    struct lab *lab = lab_begin(&simple, "loop");
    struct vw_transport *second;
    struct vw_net_options options;
    struct vw_net *net = NULL;
    char error[256] = "";

    (void)unused;
    lab_options(lab, &options);
    assert_int_equal(vw_device_transport_open(lab->running.device, &second), 0);
    assert_int_equal(vw_net_open_over(&options, second, &net, error, sizeof(error)), -EBUSY);
    assert_non_null(strstr(error, "another front-end"));
    assert_null(net);
    lab_run(lab, true); /* the first one is not disturbed */
    lab_check_counters(lab, true);
    lab_end(lab);
}

/* A device that listens, too, sends others away while it has a driver in its process. */
static void a_socket_beside(void **unused)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct lab *lab = calloc(1, sizeof(*lab));
    struct vw_device_statistics statistics;
    struct sockaddr_un bound;
    socklen_t length = sizeof(bound);
    struct vw_transport *second;
    uint64_t offered;
    char byte;

    (void)unused;
    assert_non_null(lab);
    /* a name that the kernel chooses */
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(sa_family_t)), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&bound, &length), 0);
    lab->test = &simple;
    lab->of_pair[0] = lab;
    lab_open_device(lab, "loop", 0, listener, NULL);
    lab_open_in_process(lab);
    lab_buffers(lab, 128);
    assert_int_equal(connect(client, (struct sockaddr *)&bound, length), 0);
    assert_int_equal(vw_process(lab->net), 0);
    assert_int_equal(read(client, &byte, 1), 0); /* closed */
    close(client);
    vw_device_statistics(lab->running.device, &statistics);
    assert_int_equal(statistics.counters.connections_refused, 1);
    lab_run(lab, true);
    close_driver(lab);

    /* and the other way round */
    client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&bound, length), 0);
    vw_device_process(lab->running.device);
    assert_int_equal(vw_device_transport_open(lab->running.device, &second), 0);
    assert_int_equal(second->ops->connect(second, &offered), -EBUSY);
    close(client);
    vw_device_process(lab->running.device);
    assert_int_equal(second->ops->connect(second, &offered), 0);
    second->ops->close(second);
    device_close(&lab->running);
    free(lab);
}

/* ---- what a driver does in its only thread ---- */

static void commands(void **unused)
{
    const uint8_t other[6] = {0x52, 0x54, 0, 1, 2, 3};

    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++) {
        struct lab_case test = simple;

        test.features = rings[r];
        test.pairs = 2;
        struct lab *lab = lab_begin(&test, "loop");
        const struct vw_device *device = lab->running.device;
        assert_int_equal(device->control.pairs, 2);
        for (unsigned turn = 0; turn < 20; turn++) {
            assert_int_equal(vw_set_mac(lab->net, other), 0);
            assert_memory_equal(device->control.mac, other, 6);
            assert_int_equal(vw_set_promiscuous(lab->net, turn % 2), 0);
            assert_true(device->control.promiscuous == (turn % 2 != 0));
            assert_int_equal(vw_set_queue_pairs(lab->net, 1), 0);
            assert_int_equal(device->control.pairs, 1);
            assert_int_equal(vw_set_queue_pairs(lab->net, 2), 0);
            assert_int_equal(device->control.pairs, 2);
        }
        assert_int_equal(vw_set_promiscuous(lab->net, 1), 0); /* it has another address now */
        lab_run(lab, true);
        lab_end(lab);
    }
}

static void mtu_of_the_device(void **unused)
{
    struct lab_case test = simple;
    struct vw_net_info info;

    (void)unused;
    test.mtu = 9000;
    test.longest = 9014;
    struct lab *lab = lab_begin(&test, "loop");
    vw_net_info(lab->net, &info);
    assert_int_equal(info.mtu, 9000);
    lab_run(lab, true);
    assert_int_equal(vw_set_mtu(lab->net, 2000), 0);
    vw_net_info(lab->net, &info);
    assert_int_equal(info.mtu, 2000);
    test.longest = 2014;
    test.count *= 2;
    lab_run(lab, true);
    lab_end(lab);
}

static void expect_event(struct lab *lab, int event)
{
    struct pollfd wait = {.fd = vw_net_fd(lab->net), .events = POLLIN};
    int events = 0;

    while (events == 0) {
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        events = vw_process(lab->net);
    }
    assert_int_equal(events, event);
}

static void a_link_that_goes_and_comes(void **unused)
{
    struct lab *lab = lab_begin(&simple, "loop");
    struct vw_net_info info;

    (void)unused;
    for (unsigned turn = 0; turn < 3; turn++) {
        vw_device_set_link(lab->running.device, false);
        vw_device_resume(lab->running.device);
        expect_event(lab, VW_EVENT_CONFIG);
        vw_net_info(lab->net, &info);
        assert_false(info.link_up);
        vw_device_set_link(lab->running.device, true);
        vw_device_resume(lab->running.device);
        expect_event(lab, VW_EVENT_CONFIG | VW_EVENT_ANNOUNCE);
        vw_net_info(lab->net, &info);
        assert_true(info.link_up);
        assert_int_equal(vw_announced(lab->net), 0);
    }
    lab_run(lab, true);
    lab_end(lab);
}

/* The device ends the connection; the driver is told, connects again, and goes on. */
static void a_connection_that_ended(void **unused)
{
    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++) {
        struct lab_case test = simple;

        test.features = rings[r];
        struct lab *lab = lab_begin(&test, "loop");
        for (unsigned turn = 0; turn < 5; turn++) {
            lab_run(lab, true);
            vw_session_end(lab->running.device, "a test", false);
            vw_device_resume(lab->running.device);
            vw_device_come_again(lab->running.device);
            expect_event(lab, VW_EVENT_DISCONNECTED);
            assert_int_equal(vw_set_promiscuous(lab->net, 1), -ENOTCONN);
            expect_event(lab, VW_EVENT_RECONNECTED);
            test.count += 200;
        }
        lab_run(lab, true);
        lab_end(lab);
    }
}

/* Frames in memory of the program, which is used where it is: no second mapping is made. */
static void memory_of_the_program(void **unused)
{
    const size_t size = 1 << 20;
    struct lab *lab = lab_begin(&simple, "loop");
    int fd = memfd_create("program", MFD_CLOEXEC);

    (void)unused;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(vw_memory_share(lab->net, fd, 0, memory, size), 0);
    assert_int_equal(vw_memory_share(lab->net, fd, 4096, memory + 4096, 4096), -EEXIST);
    const struct vw_memory *seen = lab->running.device->memory;
    assert_int_equal(seen->count, 2);
    for (unsigned i = 0; i < seen->count; i++) {
        assert_ptr_equal(seen->regions[i].local, (void *)(uintptr_t)seen->regions[i].user);
        assert_null(seen->regions[i].mapping);
    }
    lab->memory = memory;
    lab_run(lab, true);
    vw_net_close(lab->net);
    vw_flow_free(lab->flow);
    assert_int_equal(munmap(memory, size), 0);
    close(fd);
    device_close(&lab->running);
    free(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_ring_policy_and_receive_mode, say_where),
        cmocka_unit_test(drivers_come_and_go),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(a_socket_beside),
        cmocka_unit_test(commands),
        cmocka_unit_test(mtu_of_the_device),
        cmocka_unit_test(a_link_that_goes_and_comes),
        cmocka_unit_test(a_connection_that_ended),
        cmocka_unit_test(memory_of_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
