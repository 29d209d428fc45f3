/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control commands of our driver to our device: what each one changes there, what is refused, and
 * what happens when the device does not answer, is lost, or comes back.
 *
 * The device's state is looked at from the inside, under the lock of its thread. Nothing takes a
 * time: where a device must not answer, its thread is stopped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../front_end.h"

#include "device/internal.h"
#include "driver/internal.h"
#include "net/command.h"

#define PAIRS 2

struct lab {
    struct running_device running;
    struct vw_net *net;
    char path[64];
};

static void open_device(struct lab *lab, int fd, bool listen)
{
    struct vw_device_options options = {.queue_pairs = PAIRS,
                                        .fd = fd,
                                        .socket_path = listen ? lab->path : NULL,
                                        .mtu = 9000,
                                        .has_mac = true,
                                        .mac = {0x52, 0x54, 0, 0x12, 0x34, 0x56}};

    device_open(&lab->running, "loop", &options);
}

static void open_driver(struct lab *lab, int fd, const char *features)
{
    struct vw_net_options options;
    char error[256] = "";

    vw_net_options_init(&options);
    options.fd = fd;
    options.socket_path = fd < 0 ? lab->path : NULL;
    options.features = features;
    options.queue_pairs = PAIRS;
    options.request_ms = WAIT_MS;
    options.rx_mode = VW_RX_BIG;
    options.tx_ring_size = options.rx_ring_size = 64;
    if (vw_net_open(&options, &lab->net, error, sizeof(error)) != 0)
        fail_msg("vw_net_open: %s", error);
}

/* Both over a socket pair, or by a path. */
static struct lab *lab_begin(const char *features, bool path)
{
    struct lab *lab = calloc(1, sizeof(*lab));
    int ends[2] = {-1, -1};

    assert_non_null(lab);
    snprintf(lab->path, sizeof(lab->path), "/tmp/vw-control-%d.sock", (int)getpid());
    if (!path)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                         0);
    open_device(lab, ends[0], path);
    open_driver(lab, ends[1], features);
    return lab;
}

static void device_end(struct lab *lab)
{
    device_stop(&lab->running);
    device_close(&lab->running);
}

static void lab_end(struct lab *lab)
{
    vw_net_close(lab->net);
    device_end(lab);
    free(lab);
}

/* Its thread goes on where device_stop stopped it. */
static void device_go_on(struct lab *lab)
{
    eventfd_t stops;

    assert_int_equal(eventfd_read(lab->running.stop_fd, &stops), 0);
    atomic_store(&lab->running.stop, false);
    assert_int_equal(pthread_create(&lab->running.thread, NULL, running_device_main, &lab->running),
                     0);
}

/* A copy of what the device was told. */
static void look(struct lab *lab, struct vw_net_control_state *state)
{
    pthread_mutex_lock(&lab->running.lock);
    *state = lab->running.device->control;
    pthread_mutex_unlock(&lab->running.lock);
}

static const uint8_t mac[6] = {0x52, 0x54, 0, 1, 2, 3};
static const uint8_t unicast[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
static const uint8_t multicast[1][6] = {{0x33, 0x33, 0, 0, 0, 1}};
static const uint16_t table[4] = {0, 1, 1, 0};
static const uint8_t key[40] = {1, 2, 3};
static const struct vw_rss rss = {.hash_types = 7,
                                  .table = table,
                                  .table_size = 4,
                                  .unclassified = 1,
                                  .tx_pairs = 2,
                                  .key = key,
                                  .key_length = 40};

/* Sets all there is. `limits`: a number that shows in what is set. */
static void set_everything(struct lab *lab, unsigned limits)
{
    struct vw_net *net = lab->net;

    assert_int_equal(vw_set_promiscuous(net, 1), 0);
    assert_int_equal(vw_set_all_multicast(net, 1), 0);
    assert_int_equal(vw_set_mac(net, mac), 0);
    assert_int_equal(vw_set_mac_table(net, unicast, 2, multicast, 1), 0);
    assert_int_equal(vw_vlan_add(net, 5), 0);
    assert_int_equal(vw_vlan_add(net, 4095), 0);
    assert_int_equal(vw_vlan_add(net, 261), 0); /* 5 in its low byte */
    assert_int_equal(vw_vlan_remove(net, 4095), 0);
    assert_int_equal(vw_set_coalescing(net, 1, 0, limits, 90), 0);
    assert_int_equal(vw_set_coalescing(net, 1, 1, limits + 1, 91), 0);
    assert_int_equal(vw_set_coalescing(net, -1, 0, limits + 2, 92), 0);
    assert_int_equal(vw_set_coalescing(net, 0, 1, limits + 3, 93), 0);
    assert_int_equal(vw_set_queue_pairs(net, 1), 0);
    assert_int_equal(vw_set_rss(net, &rss), 0);
    assert_int_equal(vw_set_hash(net, 3, key, 40), 0);
    assert_int_equal(vw_set_guest_offloads(net, F(GUEST_CSUM) | F(GUEST_TSO4)), 0);
}

static void check_everything(struct lab *lab, unsigned limits)
{
    struct vw_net_control_state state;

    look(lab, &state);
    assert_true(state.promiscuous && state.all_multicast);
    assert_memory_equal(state.mac, mac, 6);
    assert_int_equal(state.unicast.count, 2);
    assert_memory_equal(state.unicast.mac, unicast, 12);
    assert_int_equal(state.multicast.count, 1);
    assert_memory_equal(state.multicast.mac, multicast, 6);
    for (unsigned vlan = 0; vlan < 4096; vlan++)
        assert_int_equal(vw_has(state.vlans[vlan / 64], vlan % 64), vlan == 5 || vlan == 261);
    assert_int_equal(state.coalescing[0].max_packets, limits + 2);
    assert_int_equal(state.coalescing[0].max_usecs, 92);
    assert_int_equal(state.coalescing[1].max_packets, limits + 3);
    assert_int_equal(state.coalescing[2].max_packets, limits + 2); /* the later one */
    assert_int_equal(state.coalescing[3].max_packets, limits + 1);
    assert_true(state.rss.steering); /* RSS came after the number of pairs */
    assert_int_equal(state.rss.mask, 3);
    assert_memory_equal(state.rss.table, table, sizeof(table));
    assert_int_equal(state.rss.unclassified, 1);
    assert_int_equal(state.rss.hash_types, 3);
    assert_int_equal(state.rss.key_length, 40);
    assert_memory_equal(state.rss.key, key, 40);
    assert_int_equal(state.pairs, 2);
    assert_true(state.guest_offloads == (F(GUEST_CSUM) | F(GUEST_TSO4)));
}

static const char *const rings[] = {
    "packed=off,event_idx=off,in_order=off,mrg_rxbuf=off", "packed=off,mrg_rxbuf=off",
    "packed=on,in_order=off,mrg_rxbuf=off", "packed=on,indirect_desc=off,mrg_rxbuf=off"};

static void every_command(void **unused)
{
    (void)unused;
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++) {
        struct lab *lab = lab_begin(rings[r], false);
        struct vw_net_control_state state;
        struct vw_net_info info;

        look(lab, &state);
        assert_int_equal(state.pairs, PAIRS);            /* as it was opened */
        for (unsigned round = 0; round < 100; round++) { /* round the ring */
            set_everything(lab, round);
            check_everything(lab, round);
        }
        vw_net_info(lab->net, &info);
        assert_memory_equal(info.mac, mac, 6);
        assert_int_equal(vw_set_queue_pairs(lab->net, 1), 0);
        assert_int_equal(vw_set_promiscuous(lab->net, 0), 0);
        look(lab, &state);
        assert_int_equal(state.pairs, 1);
        assert_false(state.rss.steering);
        assert_false(state.promiscuous);
        lab_end(lab);
    }
}

/* Nothing is sent that can not be meant; what the device refuses is told. */
static void refused_commands(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", false);
    struct vw_net *net = lab->net;
    struct vw_rss bad = rss;
    struct vw_net_command command;
    struct vw_queue_statistics before = queue_statistics(&lab->running, 2 * PAIRS), after;
    uint16_t wild[1] = {PAIRS};

    (void)unused;
    assert_int_equal(vw_set_mac(net, multicast[0]), -EINVAL);
    assert_int_equal(vw_set_mac_table(net, multicast, 1, NULL, 0), -EINVAL);
    assert_int_equal(vw_set_mac_table(net, unicast, 100000, NULL, 0), -ENOSPC);
    assert_int_equal(vw_vlan_add(net, 4096), -EINVAL);
    assert_int_equal(vw_vlan_remove(net, 4096), -EINVAL);
    assert_int_equal(vw_set_queue_pairs(net, 0), -EINVAL);
    assert_int_equal(vw_set_queue_pairs(net, PAIRS + 1), -EINVAL);
    bad.table = wild;
    bad.table_size = 1;
    assert_int_equal(vw_set_rss(net, &bad), -EINVAL);
    assert_int_equal(vw_set_hash(net, 0x80000000, key, 40), -EINVAL);
    assert_int_equal(vw_set_guest_offloads(net, F(CSUM)), -EINVAL);
    assert_int_equal(vw_set_coalescing(net, PAIRS, 0, 1, 1), -EINVAL);
    assert_int_equal(vw_set_coalescing(net, -2, 0, 1, 1), -EINVAL);
    assert_int_equal(vw_set_mtu(net, 67), -EINVAL);
    assert_int_equal(vw_set_mtu(net, 9001), -EINVAL);
    after = queue_statistics(&lab->running, 2 * PAIRS);
    assert_true(before.counters.commands == after.counters.commands);
    assert_true(after.counters.commands_refused == 0);

    /* A number that only the device finds wrong. */
    assert_int_equal(vw_net_command_vlan(&command, 7, true), 0);
    command.bytes[3] = 0xff;
    assert_int_equal(vw_driver_set(net, &command), -EREMOTEIO);
    assert_int_equal(vw_set_promiscuous(net, 1), 0); /* and all goes on */
    after = queue_statistics(&lab->running, 2 * PAIRS);
    assert_true(after.counters.commands_refused == 1);
    lab_end(lab);
}

static void without_the_features(void **unused)
{
    struct lab lab = {.path = ""};
    struct vw_net_options options;
    char error[256] = "";
    int ends[2];

    (void)unused;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    open_device(&lab, ends[0], false);
    vw_net_options_init(&options);
    options.fd = ends[1];
    options.features = "ctrl_vq=off";
    assert_int_equal(vw_net_open(&options, &lab.net, error, sizeof(error)), 0);
    assert_int_equal(vw_set_promiscuous(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_set_all_multicast(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_set_mac(lab.net, mac), -ENOTSUP);
    assert_int_equal(vw_set_mac_table(lab.net, unicast, 1, NULL, 0), -ENOTSUP);
    assert_int_equal(vw_vlan_add(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_vlan_remove(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_set_queue_pairs(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_set_rss(lab.net, &rss), -ENOTSUP);
    assert_int_equal(vw_set_hash(lab.net, 0, NULL, 0), -ENOTSUP);
    assert_int_equal(vw_set_guest_offloads(lab.net, 0), -ENOTSUP);
    assert_int_equal(vw_set_coalescing(lab.net, -1, 0, 1, 1), -ENOTSUP);
    assert_int_equal(vw_set_coalescing(lab.net, 0, 1, 1, 1), -ENOTSUP);
    assert_int_equal(vw_set_adaptive_coalescing(lab.net, 1), -ENOTSUP);
    assert_int_equal(vw_announced(lab.net), -ENOTSUP);
    vw_net_close(lab.net);
    device_end(&lab);
}

/* With only one of the two coalescing features the library gets by, as far as it can. */
static void one_coalescing_feature(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off,notf_coal=off", false);
    struct vw_net_control_state state;

    (void)unused;
    assert_int_equal(vw_set_coalescing(lab->net, -1, 1, 4, 5), 0);
    look(lab, &state);
    assert_int_equal(state.coalescing[1].max_packets, 4);
    assert_int_equal(state.coalescing[3].max_packets, 4);
    assert_int_equal(state.coalescing[0].max_packets, 0);
    lab_end(lab);
    lab = lab_begin("mrg_rxbuf=off,vq_notf_coal=off", false);
    assert_int_equal(vw_set_coalescing(lab->net, -1, 1, 4, 5), 0);
    assert_int_equal(vw_set_coalescing(lab->net, 0, 1, 4, 5), -ENOTSUP);
    assert_int_equal(vw_set_adaptive_coalescing(lab->net, 1), -ENOTSUP);
    lab_end(lab);
}

/* No answer: an error in the end, at once for what follows, and all is well when it answers. */
static void a_device_that_does_not_answer(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", false);
    struct vw_net_control_state state;
    int result;

    (void)unused;
    device_stop(&lab->running);
    lab->net->control.limit_ms = 30;
    assert_int_equal(vw_set_promiscuous(lab->net, 1), -ETIMEDOUT);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(vw_set_all_multicast(lab->net, 1), -ETIMEDOUT);
    assert_int_equal(vw_driver_ring_in_flight(&lab->net->control.queue.ring), 1);
    device_go_on(lab);
    lab->net->control.limit_ms = WAIT_MS;
    for (unsigned turn = 0; (result = vw_set_all_multicast(lab->net, 1)) == -ETIMEDOUT; turn++) {
        assert_true(turn < WAIT_MS);
        usleep(1000);
    }
    assert_int_equal(result, 0);
    look(lab, &state);
    assert_true(state.promiscuous && state.all_multicast);
    lab_end(lab);
}

static void *destroy(void *argument)
{
    struct lab *lab = argument;

    device_close(&lab->running);
    return NULL;
}

/* A device that is lost in the middle of a command ends it at once, and vw_process tells the loss.
 */
static void a_device_that_is_lost(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", false);
    struct pollfd wait = {.events = POLLIN};
    pthread_t thread;

    (void)unused;
    device_stop(&lab->running);
    assert_int_equal(pthread_create(&thread, NULL, destroy, lab), 0);
    assert_int_equal(vw_set_promiscuous(lab->net, 1), -ENOTCONN);
    assert_int_equal(vw_set_promiscuous(lab->net, 1), -ENOTCONN);
    pthread_join(thread, NULL);
    wait.fd = vw_net_fd(lab->net);
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    assert_int_equal(vw_process(lab->net), VW_EVENT_DISCONNECTED);
    assert_int_equal(vw_set_promiscuous(lab->net, 1), -ENOTCONN);
    vw_net_close(lab->net);
    free(lab);
}

static int await_event(struct lab *lab, int event)
{
    struct pollfd wait = {.fd = vw_net_fd(lab->net), .events = POLLIN};
    int events = 0;

    while (!(events & event)) {
        if (poll(&wait, 1, WAIT_MS) == 0)
            fail_msg("no event %d", event);
        int result = vw_process(lab->net);
        assert_true(result >= 0);
        events |= result;
    }
    return events;
}

/* A device that comes back is told all that was set, and the last command wins again. */
static void a_device_that_comes_back(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", true);
    struct vw_net_control_state state;

    (void)unused;
    look(lab, &state);
    assert_int_equal(state.pairs, PAIRS);
    for (unsigned round = 0; round < 3; round++) {
        device_end(lab);
        await_event(lab, VW_EVENT_DISCONNECTED);
        assert_int_equal(vw_set_all_multicast(lab->net, 0), -ENOTCONN);
        open_device(lab, -1, true);
        await_event(lab, VW_EVENT_RECONNECTED);
        if (round == 0) {
            look(lab, &state);
            assert_int_equal(state.pairs, PAIRS);
            assert_false(state.promiscuous);
            for (unsigned i = 0; i < 20; i++)
                set_everything(lab, 10);
        } else {
            /* Each thing once, however often it was set. */
            assert_true(queue_statistics(&lab->running, 2 * PAIRS).counters.commands == 14);
        }
        check_everything(lab, 10);
    }
    lab_end(lab);
}

/* The device asks for an announcement, and is told that it was made. */
static void announcements(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", false);
    struct vw_net_control_state state;

    (void)unused;
    for (unsigned round = 0; round < 3; round++) {
        pthread_mutex_lock(&lab->running.lock);
        vw_device_set_link(lab->running.device, true);
        vw_device_resume(lab->running.device);
        pthread_mutex_unlock(&lab->running.lock);
        assert_true(await_event(lab, VW_EVENT_ANNOUNCE) & VW_EVENT_CONFIG);
        look(lab, &state);
        assert_true(state.announce);
        assert_int_equal(vw_announced(lab->net), 0);
        look(lab, &state);
        assert_false(state.announce);
    }
    lab_end(lab);
}

/* Receive buffers follow what may come: seed of `big` buffers, 19 descriptors or 5. */
static void buffers_follow_offloads_and_mtu(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off,indirect_desc=off", false);
    uint64_t gso = F(GUEST_CSUM) | F(GUEST_TSO4);
    struct vw_net_info info;

    (void)unused;
    vw_net_info(lab->net, &info);
    assert_int_equal(info.rx_mode, VW_RX_BIG);
    assert_int_equal(info.rx_buffer_descriptors, 19);
    assert_int_equal(vw_set_guest_offloads(lab->net, F(GUEST_CSUM)), 0);
    vw_net_info(lab->net, &info);
    assert_int_equal(info.rx_buffer_descriptors, 5);
    assert_int_equal(vw_set_mtu(lab->net, 4000), 0);
    vw_net_info(lab->net, &info);
    assert_int_equal(info.rx_buffer_descriptors, 3);
    assert_int_equal(info.mtu, 4000);
    assert_int_equal(vw_set_guest_offloads(lab->net, gso), 0);
    vw_net_info(lab->net, &info);
    assert_int_equal(info.rx_buffer_descriptors, 19);
    assert_int_equal(vw_set_guest_offloads(lab->net, F(GUEST_TSO4) | F(CSUM)), -EINVAL);
    vw_net_info(lab->net, &info);
    assert_int_equal(info.rx_buffer_descriptors, 19);
    lab_end(lab);
}

/* A sample as if `frames` had come within a tenth of a second. */
static void pretend(struct lab *lab, uint64_t frames)
{
    struct vw_net *net = lab->net;

    vw_counter_add(&net->pairs[1].rx.counters.frames, frames);
    net->control.adaptive.sampled_us -= 100000;
    vw_adaptive_sample(net);
}

static void adaptive_coalescing(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", false);
    struct vw_net_control_state state;

    (void)unused;
    assert_int_equal(vw_set_coalescing(lab->net, -1, 0, 9, 9), 0);
    assert_int_equal(vw_set_coalescing(lab->net, -1, 1, 7, 7), 0);
    assert_int_equal(vw_set_adaptive_coalescing(lab->net, 1), 0);
    look(lab, &state);
    assert_int_equal(state.coalescing[2].max_packets, 0);
    for (unsigned i = 0; i < 30; i++)
        pretend(lab, 10000000);
    look(lab, &state);
    assert_int_equal(state.coalescing[0].max_packets, 0); /* pair 0 has no load */
    assert_true(state.coalescing[2].max_packets >= 64 && state.coalescing[2].max_usecs > 0);
    assert_int_equal(state.coalescing[3].max_packets, 7); /* transmit queues are not touched */
    for (unsigned i = 0; i < 30; i++)
        pretend(lab, 0);
    look(lab, &state);
    assert_int_equal(state.coalescing[2].max_packets, 0);
    assert_true(lab->net->control.adaptive.interval_ms >= 1000); /* idle: looked at seldom */
    pretend(lab, 10000000);
    pretend(lab, 10000000);
    assert_int_equal(lab->net->control.adaptive.interval_ms, 10);
    assert_int_equal(vw_set_adaptive_coalescing(lab->net, 0), 0);
    look(lab, &state);
    assert_int_equal(state.coalescing[2].max_packets, 0);

    /* The timer is behind vw_net_fd, and a value that is set by hand stays. */
    assert_int_equal(vw_set_adaptive_coalescing(lab->net, 1), 0);
    struct pollfd wait = {.fd = vw_net_fd(lab->net), .events = POLLIN};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(vw_process(lab->net), 0);
    }
    assert_int_equal(vw_set_coalescing(lab->net, 1, 0, 5, 6), 0);
    assert_false(lab->net->control.adaptive.on);
    look(lab, &state);
    assert_int_equal(state.coalescing[2].max_packets, 5);
    lab_end(lab);
}

/* It goes on with a device that is back, though its timer ran out while there was none. */
static void adaptive_coalescing_outlives_a_device(void **unused)
{
    struct lab *lab = lab_begin("mrg_rxbuf=off", true);

    (void)unused;
    assert_int_equal(vw_set_adaptive_coalescing(lab->net, 1), 0);
    device_end(lab);
    await_event(lab, VW_EVENT_DISCONNECTED);
    vw_driver_wake_after(lab->net, 0);
    assert_int_equal(vw_process(lab->net), 0);
    open_device(lab, -1, true);
    await_event(lab, VW_EVENT_RECONNECTED);
    struct pollfd wait = {.fd = vw_net_fd(lab->net), .events = POLLIN};
    for (uint64_t before = lab->net->control.adaptive.sampled_us;
         lab->net->control.adaptive.sampled_us == before;) {
        if (poll(&wait, 1, WAIT_MS) == 0)
            fail_msg("no more samples");
        assert_true(vw_process(lab->net) >= 0);
    }
    lab_end(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command),
        cmocka_unit_test(refused_commands),
        cmocka_unit_test(without_the_features),
        cmocka_unit_test(one_coalescing_feature),
        cmocka_unit_test(a_device_that_does_not_answer),
        cmocka_unit_test(a_device_that_is_lost),
        cmocka_unit_test(a_device_that_comes_back),
        cmocka_unit_test(announcements),
        cmocka_unit_test(buffers_follow_offloads_and_mtu),
        cmocka_unit_test(adaptive_coalescing),
        cmocka_unit_test(adaptive_coalescing_outlives_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
