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
#include "device/internal.h"
#include "memory/shared.h"
#include "transport/transport.h"

#define SIZE 64
#define HEADER 12
#define FRAME 200
#define BUFFER 2048
#define FEATURES(packed)                                                                           \
    (vw_bit(VIRTIO_F_VERSION_1) | vw_bit(VIRTIO_NET_F_MAC) | vw_bit(VIRTIO_NET_F_MRG_RXBUF) |      \
     vw_bit(VIRTIO_NET_F_STATUS) | ((packed) ? vw_bit(VIRTIO_F_RING_PACKED) : 0))

static const uint8_t mac_address[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};

struct side {
    struct vw_transport_queue queue;
    struct vw_driver_ring ring;
    void *state;
};

struct line {
    struct running_device running;
    struct vw_transport *transport;
    const struct vw_transport_ops *ops;
    struct vw_shared memory;
    bool packed;
    struct side receive, transmit;
    uint8_t next; /* tells frames from one another */
};

static struct vw_device_options device_options(void)
{
    struct vw_device_options options = {.queue_pairs = 2, .has_mac = true, .fd = -1};

    memcpy(options.mac, mac_address, sizeof(mac_address));
    return options;
}

static void line_open(struct line *line, bool packed,
                      const struct vw_transport_vhost_user_options *options)
{
    line->packed = packed;
    line->next = 1;
    assert_int_equal(vw_shared_open(&line->memory, 1 << 20, false), 0);
    assert_int_equal(vw_transport_vhost_user_open(options, &line->transport), 0);
    line->ops = line->transport->ops;
}

static void *area(struct line *line, enum vw_ring_format format, enum vw_ring_area which)
{
    void *memory = vw_shared_alloc(&line->memory, vw_ring_area_size(format, which, SIZE));

    assert_non_null(memory);
    return memory;
}

static void side_make(struct line *line, struct side *side, unsigned index)
{
    enum vw_ring_format format = line->packed ? VW_RING_PACKED : VW_RING_SPLIT;

    side->queue.index = index;
    side->queue.base = line->packed ? 0x80008000 : 0;
    side->queue.ring =
        (struct vw_ring_config){.format = format,
                                .size = SIZE,
                                .features = FEATURES(line->packed),
                                .descriptor_area = area(line, format, VW_RING_DESCRIPTOR_AREA),
                                .driver_area = area(line, format, VW_RING_DRIVER_AREA),
                                .device_area = area(line, format, VW_RING_DEVICE_AREA)};
    side->state = calloc(1, vw_driver_ring_state_size(SIZE));
    assert_non_null(side->state);
    assert_int_equal(vw_driver_ring_init(&side->ring, &side->queue.ring, side->state, NULL), 0);
}

static void side_unmake(struct line *line, struct side *side)
{
    vw_shared_free(&line->memory, side->queue.ring.descriptor_area);
    vw_shared_free(&line->memory, side->queue.ring.driver_area);
    vw_shared_free(&line->memory, side->queue.ring.device_area);
    free(side->state);
}

static void start(struct line *line)
{
    assert_int_equal(line->ops->set_queue(line->transport, &line->receive.queue), 0);
    assert_int_equal(line->ops->set_queue(line->transport, &line->transmit.queue), 0);
    assert_int_equal(line->ops->enable_queue(line->transport, 0, true), 0);
    assert_int_equal(line->ops->enable_queue(line->transport, 1, true), 0);
    assert_int_equal(line->ops->start(line->transport), 0);
}

static void connect_and_start(struct line *line)
{
    uint64_t offered;

    assert_int_equal(line->ops->connect(line->transport, &offered), 0);
    assert_true((FEATURES(line->packed) & ~offered) == 0);
    assert_int_equal(line->ops->accept(line->transport, FEATURES(line->packed)), 0);
    assert_int_equal(line->ops->share(line->transport, line->memory.fd, 0, line->memory.address,
                                      line->memory.size),
                     0);
    side_make(line, &line->receive, 0);
    side_make(line, &line->transmit, 1);
    start(line);
}

static void give(struct line *line, struct side *side, char *memory, uint32_t length)
{
    struct vw_segment segment = {(uintptr_t)memory, length};
    bool receives = side == &line->receive;

    assert_int_equal(vw_driver_ring_add(&side->ring, &segment, !receives, receives, memory), 0);
    if (vw_driver_ring_publish(&side->ring))
        line->ops->kick(line->transport, side->queue.index);
}

/* Waits for one used buffer. */
static uint32_t take(struct line *line, struct side *side, const char *expected)
{
    struct vw_completion completion;
    struct pollfd wait = {.fd = line->ops->call_fd(line->transport, side->queue.index),
                          .events = POLLIN};
    eventfd_t calls;

    while (vw_driver_ring_reap(&side->ring, &completion, 1) == 0) {
        assert_int_equal(side->ring.error, VW_RING_OK);
        if (!vw_driver_ring_enable_calls(&side->ring))
            continue;
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        (void)!eventfd_read(wait.fd, &calls);
    }
    assert_ptr_equal(completion.token, expected);
    return completion.length;
}

/* One frame out and back, in buffers that were made for it. */
static void exchange(struct line *line)
{
    char *out = vw_shared_alloc(&line->memory, HEADER + FRAME);
    char *in = vw_shared_alloc(&line->memory, BUFFER);

    assert_true(out != NULL && in != NULL);
    memset(out, 0, HEADER);
    memset(out + HEADER, line->next++, FRAME);
    memset(in, 0xee, BUFFER);
    give(line, &line->receive, in, BUFFER);
    give(line, &line->transmit, out, HEADER + FRAME);
    assert_int_equal(take(line, &line->receive, in), HEADER + FRAME);
    take(line, &line->transmit, out);
    assert_memory_equal(in + HEADER, out + HEADER, FRAME);
    assert_int_equal(vw_shared_free(&line->memory, out), 0);
    assert_int_equal(vw_shared_free(&line->memory, in), 0);
}

static void line_stop(struct line *line)
{
    side_unmake(line, &line->receive);
    side_unmake(line, &line->transmit);
}

static void line_close(struct line *line)
{
    line->ops->close(line->transport);
    assert_int_equal(vw_shared_in_use(&line->memory), 0);
    vw_shared_close(&line->memory);
}

static void begin_pair(struct line *line, bool packed)
{
    struct vw_device_options options = device_options();
    struct vw_transport_vhost_user_options own = {.request_ms = WAIT_MS, .queues = 5};
    int ends[2];

    memset(line, 0, sizeof(*line));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    options.fd = ends[0];
    own.fd = ends[1];
    device_open(&line->running, "loop", &options);
    line_open(line, packed, &own);
}

static void end_pair(struct line *line)
{
    line_close(line);
    device_stop(&line->running);
    device_close(&line->running);
}

static void what_it_learns(void **state)
{
    struct line line;
    unsigned pairs = 0;
    uint8_t mac[6];
    (void)state;

    begin_pair(&line, false);
    connect_and_start(&line);
    assert_int_equal(line.ops->max_pairs(line.transport, &pairs), 0);
    assert_int_equal(pairs, 2);
    assert_int_equal(line.ops->read_config(line.transport, 0, 6, mac), 0);
    assert_memory_equal(mac, mac_address, 6);
    assert_int_equal(line.ops->read_config(line.transport, 250, 7, mac), -EINVAL);
    assert_int_equal(line.ops->process(line.transport), 0);
    line_stop(&line);
    end_pair(&line);
}

static void frames(void **state)
{
    (void)state;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct line line;

        begin_pair(&line, packed);
        connect_and_start(&line);
        for (unsigned i = 0; i < 5 * SIZE; i++)
            exchange(&line);
        line_stop(&line);
        end_pair(&line);
    }
}

/* A stopped ring goes on where the device says that it stands. */
static void stop_and_go_on(void **state)
{
    (void)state;
    for (unsigned packed = 0; packed < 2; packed++) {
        struct line line;

        begin_pair(&line, packed);
        connect_and_start(&line);
        for (unsigned round = 1; round < 40; round++) {
            uint32_t expected =
                packed ? (round * 5 % SIZE) | (round * 5 / SIZE % 2 ? 0 : 0x8000) : round * 5;

            for (unsigned i = 0; i < 5; i++)
                exchange(&line);
            if (packed)
                expected |= expected << 16;
            assert_int_equal(line.ops->stop_queue(line.transport, 0, &line.receive.queue.base), 0);
            assert_int_equal(line.ops->stop_queue(line.transport, 1, &line.transmit.queue.base), 0);
            assert_int_equal(line.receive.queue.base, expected);
            assert_int_equal(line.transmit.queue.base, expected);
            start(&line);
        }
        line_stop(&line);
        end_pair(&line);
    }
}

/* Memory that comes and goes while frames do. */
static void more_memory(void **state)
{
    struct line line;
    struct vw_shared more;
    (void)state;

    begin_pair(&line, false);
    connect_and_start(&line);
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(vw_shared_open(&more, 65536, false), 0);
        assert_int_equal(line.ops->share(line.transport, more.fd, 0, more.address, more.size), 0);
        char *in = vw_shared_alloc(&more, BUFFER), *out = vw_shared_alloc(&more, HEADER + FRAME);
        memset(out, 0, HEADER);
        memset(out + HEADER, 77, FRAME);
        give(&line, &line.receive, in, BUFFER);
        give(&line, &line.transmit, out, HEADER + FRAME);
        assert_int_equal(take(&line, &line.receive, in), HEADER + FRAME);
        take(&line, &line.transmit, out);
        assert_memory_equal(in + HEADER, out + HEADER, FRAME);
        assert_int_equal(line.ops->unshare(line.transport, more.address, more.size), 0);
        vw_shared_close(&more);
        exchange(&line);
    }
    line_stop(&line);
    end_pair(&line);
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
    struct line line;
    uint8_t status[2];
    (void)state;

    begin_pair(&line, false);
    connect_and_start(&line);
    for (unsigned up = 0; up < 2; up++) {
        pthread_mutex_lock(&line.running.lock);
        vw_device_set_link(line.running.device, up);
        vw_device_resume(line.running.device);
        pthread_mutex_unlock(&line.running.lock);
        await_events(&line, VW_TRANSPORT_CONFIG_CHANGED);
        assert_int_equal(line.ops->read_config(line.transport, 6, 2, status), 0);
        assert_int_equal(status[0] & VIRTIO_NET_S_LINK_UP, up);
    }
    exchange(&line);
    line_stop(&line);
    end_pair(&line);
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
    struct line line;

    make_path();
    memset(&line, 0, sizeof(line));
    options.socket_path = path;
    options.client = listens;
    if (listens) /* the socket is there before the device */
        line_open(&line, true, &own);
    device_open(&line.running, "loop", &options);
    if (!listens)
        line_open(&line, true, &own);
    connect_and_start(&line);
    int call = line.ops->call_fd(line.transport, 0);

    for (unsigned i = 0; i < 3; i++) {
        exchange(&line);
        device_stop(&line.running);
        device_close(&line.running);
        await_events(&line, VW_TRANSPORT_LOST);
        all_is_refused(&line);
        line_stop(&line);
        device_open(&line.running, "loop", &options);
        await_events(&line, VW_TRANSPORT_REACHABLE);
        connect_and_start(&line);
        assert_int_equal(line.ops->call_fd(line.transport, 0), call);
    }
    exchange(&line);
    line_stop(&line);
    end_pair(&line);
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
    struct line *line = argument;
    struct vw_device_options options = device_options();

    usleep(100000);
    options.socket_path = path;
    device_open(&line->running, "loop", &options);
    return NULL;
}

/* `connect` waits for a back-end that is not there yet. */
static void patience(void **state)
{
    struct vw_transport_vhost_user_options own = {
        .socket_path = path, .fd = -1, .connect_ms = WAIT_MS, .request_ms = WAIT_MS};
    struct line line;
    pthread_t thread;
    (void)state;

    make_path();
    memset(&line, 0, sizeof(line));
    line_open(&line, false, &own);
    assert_int_equal(pthread_create(&thread, NULL, open_late, &line), 0);
    connect_and_start(&line);
    assert_int_equal(pthread_join(thread, NULL), 0);
    exchange(&line);
    line_stop(&line);
    end_pair(&line);
}

/* Nobody comes: it ends, and says what it was waiting for. */
static void nobody_there(void **state)
{
    struct line line;
    uint64_t offered;
    (void)state;

    make_path();
    for (unsigned listens = 0; listens < 2; listens++) {
        struct vw_transport_vhost_user_options own = {
            .socket_path = path, .fd = -1, .listen = listens, .connect_ms = 30};

        memset(&line, 0, sizeof(line));
        line_open(&line, false, &own);
        assert_int_equal(line.ops->connect(line.transport, &offered),
                         listens ? -ETIMEDOUT : -ENOENT);
        assert_non_null(strstr(line.transport->why, path));
        line_close(&line);
    }
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_learns),        cmocka_unit_test(frames),
        cmocka_unit_test(stop_and_go_on),        cmocka_unit_test(more_memory),
        cmocka_unit_test(configuration_change),  cmocka_unit_test(device_comes_back),
        cmocka_unit_test(device_connects_again), cmocka_unit_test(patience),
        cmocka_unit_test(nobody_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
