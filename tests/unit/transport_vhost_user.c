/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The vhost-user front-end against our own device: from nothing to frames that go and come back,
 * on both ring formats; stop and go on; a device that goes away and comes back, with each end
 * listening.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../front_end.h"
#include "../line.h"
#include "device/internal.h"

#define FEATURES (F(MAC) | F(MRG_RXBUF) | F(STATUS))
#define PACKED (vw_bit(VIRTIO_F_RING_PACKED))

static const uint8_t mac_address[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};

static struct vw_device_options device_options(void)
{
    struct vw_device_options options = {.queue_pairs = 2, .has_mac = true, .fd = -1};

    memcpy(options.mac, mac_address, sizeof(mac_address));
    return options;
}

struct rig {
    struct running_device running;
    struct line line;
};

static void begin_pair(struct rig *rig, uint64_t features)
{
    struct vw_device_options options = device_options();
    struct vw_transport_vhost_user_options own = {.request_ms = WAIT_MS, .queues = 5};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    options.fd = ends[0];
    own.fd = ends[1];
    device_open(&rig->running, "loop", &options);
    line_open(&rig->line, features, &own);
}

static void end_pair(struct rig *rig)
{
    line_close(&rig->line);
    device_stop(&rig->running);
    device_close(&rig->running);
}

static void what_it_learns(void **state)
{
    struct rig rig;
    unsigned pairs = 0;
    uint8_t mac[6];
    (void)state;

    begin_pair(&rig, FEATURES);
    line_connect(&rig.line);
    assert_int_equal(rig.line.ops->max_pairs(rig.line.transport, &pairs), 0);
    assert_int_equal(pairs, 2);
    assert_int_equal(rig.line.ops->read_config(rig.line.transport, 0, 6, mac), 0);
    assert_memory_equal(mac, mac_address, 6);
    assert_int_equal(rig.line.ops->read_config(rig.line.transport, 250, 7, mac), -EINVAL);
    assert_int_equal(rig.line.ops->process(rig.line.transport), 0);
    line_stop(&rig.line);
    end_pair(&rig);
}

static void frames(void **state)
{
    (void)state;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct rig rig;

        begin_pair(&rig, packed ? FEATURES | PACKED : FEATURES);
        line_connect(&rig.line);
        for (unsigned i = 0; i < 5 * LINE_SIZE; i++)
            line_exchange(&rig.line);
        line_stop(&rig.line);
        end_pair(&rig);
    }
}

/* A stopped ring goes on where the device says that it stands. */
static void stop_and_go_on(void **state)
{
    (void)state;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct rig rig;

        begin_pair(&rig, packed ? FEATURES | PACKED : FEATURES);
        line_connect(&rig.line);
        for (unsigned round = 1; round < 40; round++) {
            for (unsigned i = 0; i < 5; i++)
                line_exchange(&rig.line);
            uint32_t expected = line_base(&rig.line, 5 * round);
            assert_int_equal(
                rig.line.ops->stop_queue(rig.line.transport, 0, &rig.line.receive.queue.base), 0);
            assert_int_equal(
                rig.line.ops->stop_queue(rig.line.transport, 1, &rig.line.transmit.queue.base), 0);
            assert_int_equal(rig.line.receive.queue.base, expected);
            assert_int_equal(rig.line.transmit.queue.base, expected);
            line_start(&rig.line);
        }
        line_stop(&rig.line);
        end_pair(&rig);
    }
}

/* Memory that comes and goes while frames do. */
static void more_memory(void **state)
{
    struct rig rig;
    struct vw_shared more;
    (void)state;

    begin_pair(&rig, FEATURES);
    line_connect(&rig.line);
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(vw_shared_open(&more, 65536, false), 0);
        assert_int_equal(
            rig.line.ops->share(rig.line.transport, more.fd, 0, more.address, more.size), 0);
        char *in = vw_shared_alloc(&more, LINE_BUFFER),
             *out = vw_shared_alloc(&more, LINE_HEADER + LINE_FRAME);
        memset(out, 0, LINE_HEADER);
        memset(out + LINE_HEADER, 77, LINE_FRAME);
        side_give(&rig.line, &rig.line.receive, in, LINE_BUFFER);
        side_give(&rig.line, &rig.line.transmit, out, LINE_HEADER + LINE_FRAME);
        assert_int_equal(side_take(&rig.line, &rig.line.receive, in), LINE_HEADER + LINE_FRAME);
        side_take(&rig.line, &rig.line.transmit, out);
        assert_memory_equal(in + LINE_HEADER, out + LINE_HEADER, LINE_FRAME);
        assert_int_equal(rig.line.ops->unshare(rig.line.transport, more.address, more.size), 0);
        vw_shared_close(&more);
        line_exchange(&rig.line);
    }
    line_stop(&rig.line);
    end_pair(&rig);
}

static void await_events(struct line *line, int expected)
{
    struct pollfd wait = {.fd = line->ops->event_fd(line->transport), .events = POLLIN};
    int events = 0;

    while (events == 0) {
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        events = line->ops->process(line->transport);
    }
    assert_int_equal(events, expected);
}

static void configuration_change(void **state)
{
    struct rig rig;
    uint8_t status[2];
    (void)state;

    begin_pair(&rig, FEATURES);
    line_connect(&rig.line);
    for (unsigned up = 0; up < 2; up++) {
        pthread_mutex_lock(&rig.running.lock);
        vw_device_set_link(rig.running.device, up);
        vw_device_resume(rig.running.device);
        pthread_mutex_unlock(&rig.running.lock);
        await_events(&rig.line, VW_TRANSPORT_CONFIG_CHANGED);
        assert_int_equal(rig.line.ops->read_config(rig.line.transport, 6, 2, status), 0);
        assert_int_equal(status[0] & VIRTIO_NET_S_LINK_UP, up);
    }
    line_exchange(&rig.line);
    line_stop(&rig.line);
    end_pair(&rig);
}

/* ---- a device that goes away ---- */

static char path[108];

static void make_path(void)
{
    snprintf(path, sizeof(path), "/tmp/vw-test-transport-%d.sock", (int)getpid());
}

static void all_is_refused(struct line *line)
{
    struct vw_transport *transport = line->transport;
    uint32_t base;
    unsigned pairs;
    char byte;

    assert_int_equal(line->ops->accept(transport, 0), -ENOTCONN);
    assert_int_equal(line->ops->share(transport, line->memory.fd, 0, line->memory.address, 4096),
                     -ENOTCONN);
    assert_int_equal(line->ops->unshare(transport, line->memory.address, 4096), -ENOTCONN);
    assert_int_equal(line->ops->read_config(transport, 0, 1, &byte), -ENOTCONN);
    assert_int_equal(line->ops->max_pairs(transport, &pairs), -ENOTCONN);
    assert_int_equal(line->ops->set_mtu(transport, 1500), -ENOTCONN);
    assert_int_equal(line->ops->set_queue(transport, &line->receive.queue), -ENOTCONN);
    assert_int_equal(line->ops->enable_queue(transport, 0, true), -ENOTCONN);
    assert_int_equal(line->ops->start(transport), -ENOTCONN);
    assert_int_equal(line->ops->stop_queue(transport, 0, &base), -ENOTCONN);
    line->ops->kick(transport, 0);
}

/* `listens`: the front-end does, and the device connects. */
static void away_and_back(bool listens)
{
    struct vw_transport_vhost_user_options own = {.socket_path = path,
                                                  .fd = -1,
                                                  .listen = listens,
                                                  .connect_ms = WAIT_MS,
                                                  .request_ms = WAIT_MS,
                                                  .queues = 5};
    struct vw_device_options options = device_options();
    struct rig rig;

    make_path();
    options.socket_path = path;
    options.client = listens;
    if (listens) /* the socket is there before the device */
        line_open(&rig.line, FEATURES | PACKED, &own);
    device_open(&rig.running, "loop", &options);
    if (!listens)
        line_open(&rig.line, FEATURES | PACKED, &own);
    line_connect(&rig.line);
    int call = rig.line.ops->call_fd(rig.line.transport, 0);

    for (unsigned i = 0; i < 3; i++) {
        line_exchange(&rig.line);
        device_stop(&rig.running);
        device_close(&rig.running);
        await_events(&rig.line, VW_TRANSPORT_LOST);
        all_is_refused(&rig.line);
        line_stop(&rig.line);
        device_open(&rig.running, "loop", &options);
        await_events(&rig.line, VW_TRANSPORT_REACHABLE);
        line_connect(&rig.line);
        assert_int_equal(rig.line.ops->call_fd(rig.line.transport, 0), call);
    }
    line_exchange(&rig.line);
    line_stop(&rig.line);
    end_pair(&rig);
    assert_int_equal(access(path, F_OK), -1);
}

static void device_comes_back(void **state)
{
    (void)state;
    away_and_back(false);
}

static void device_connects_again(void **state)
{
    (void)state;
    away_and_back(true);
}

static void *open_late(void *argument)
{
    struct rig *rig = argument;
    struct vw_device_options options = device_options();

    usleep(100000);
    options.socket_path = path;
    device_open(&rig->running, "loop", &options);
    return NULL;
}

/* `connect` waits for a back-end that is not there yet. */
static void patience(void **state)
{
    struct vw_transport_vhost_user_options own = {
        .socket_path = path, .fd = -1, .connect_ms = WAIT_MS, .request_ms = WAIT_MS};
    struct rig rig;
    pthread_t thread;
    (void)state;

    make_path();
    line_open(&rig.line, FEATURES, &own);
    assert_int_equal(pthread_create(&thread, NULL, open_late, &rig), 0);
    line_connect(&rig.line);
    assert_int_equal(pthread_join(thread, NULL), 0);
    line_exchange(&rig.line);
    line_stop(&rig.line);
    end_pair(&rig);
}

/* A device that is of no use is given up; it, or another, is found again. */
static void given_up(void **state)
{
    struct vw_transport_vhost_user_options own = {
        .socket_path = path, .fd = -1, .connect_ms = WAIT_MS, .request_ms = WAIT_MS};
    struct vw_device_options options = device_options();
    struct rig rig;
    (void)state;

    make_path();
    options.socket_path = path;
    device_open(&rig.running, "loop", &options);
    line_open(&rig.line, FEATURES, &own);
    for (unsigned i = 0; i < 3; i++) {
        line_connect(&rig.line);
        line_exchange(&rig.line);
        rig.line.ops->disconnect(rig.line.transport);
        all_is_refused(&rig.line);
        line_stop(&rig.line);
        await_events(&rig.line, VW_TRANSPORT_REACHABLE);
    }
    rig.line.ops->disconnect(rig.line.transport);
    end_pair(&rig);
}

/* Nobody comes: it ends, and says what it was waiting for. */
static void nobody_there(void **state)
{
    struct rig rig;
    uint64_t offered;
    (void)state;

    make_path();
    for (unsigned listens = 0; listens < 2; listens++) {
        struct vw_transport_vhost_user_options own = {
            .socket_path = path, .fd = -1, .listen = listens, .connect_ms = 30};

        line_open(&rig.line, FEATURES, &own);
        assert_int_equal(rig.line.ops->connect(rig.line.transport, &offered),
                         listens ? -ETIMEDOUT : -ENOENT);
        assert_non_null(strstr(rig.line.transport->why, path));
        line_close(&rig.line);
    }
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_learns),
        cmocka_unit_test(frames),
        cmocka_unit_test(stop_and_go_on),
        cmocka_unit_test(more_memory),
        cmocka_unit_test(configuration_change),
        cmocka_unit_test(device_comes_back),
        cmocka_unit_test(device_connects_again),
        cmocka_unit_test(patience),
        cmocka_unit_test(given_up),
        cmocka_unit_test(nobody_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
