/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a front-end changes while frames are under way: rings stopped and started, memory replaced,
 * added and removed, features told again, connections that come and go. Nothing may be lost or
 * reordered, and no descriptor or mapping left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "../device_traffic.h"

#define BASE_FEATURES                                                                              \
    (vw_bit(VIRTIO_F_VERSION_1) | F(CTRL_VQ) | F(MRG_RXBUF) | F(MQ) | F(CSUM) |                    \
     vw_bit(VIRTIO_RING_F_EVENT_IDX))

static const struct shape usual = {.pairs = 2,
                                   .device_pairs = 2,
                                   .size = 128,
                                   .transmit_bytes = 10000,
                                   .receive_smallest = 300,
                                   .receive_largest = 2000,
                                   .receive_segments = 2};

/* Runs traffic with a disturbance over both formats and both orders; each must have come often. */
static void disturbed(void (*disturb)(struct traffic *traffic, unsigned round), uint64_t count)
{
    static const uint64_t formats[] = {
        0, UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC, UINT64_C(1) << VIRTIO_F_RING_PACKED,
        UINT64_C(1) << VIRTIO_F_RING_PACKED | UINT64_C(1) << VIRTIO_F_IN_ORDER};
    struct traffic *traffic = calloc(1, sizeof(*traffic));

    assert_non_null(traffic);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(formats); i++) {
        struct running_device running;
        struct front_end front;
        struct shape shape = usual;

        if (vw_has(formats[i], VIRTIO_F_RING_PACKED))
            shape.size = 101;
        begin(&running, &front, "loop", BASE_FEATURES | formats[i], &shape, random_seed() + i);
        *traffic = (struct traffic){.front = &front,
                                    .running = &running,
                                    .session = 20 + i,
                                    .count = count,
                                    .max_frame = 9000,
                                    .disturb = disturb};
        run_traffic(traffic);
        assert_true(traffic->rounds > 10);
        check_counters(traffic, &running);
        assert_true(device_statistics(&running).counters.messages_refused == 0);
        end(&running, &front);
    }
    free(traffic);
}

static struct front_ring *some_ring(struct traffic *traffic, unsigned round)
{
    struct front_end *front = traffic->front;
    unsigned pair = round / 2 % front->pairs;

    return round % 2 ? &front->transmit[pair] : &front->receive[pair];
}

static void stop_and_start_a_ring(struct traffic *traffic, unsigned round)
{
    struct front_ring *ring = some_ring(traffic, round);
    uint32_t base = ring_stop(traffic->front, ring);

    assert_int_equal(ring_stop(traffic->front, ring), base); /* stopped twice is stopped once */
    ring_start(traffic->front, ring, base);
}

static void a_ring_goes_on_where_it_was_stopped(void **unused)
{
    (void)unused;
    disturbed(stop_and_start_a_ring, 3000);
}

/* New descriptors for kicks and calls, which the worker has to wait for instead of the old. */
static void replace_descriptors(struct traffic *traffic, unsigned round)
{
    struct front_ring *ring = some_ring(traffic, round);
    int kick = ring->kick, call = ring->call;

    ring->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ring->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tell_ring_fd(traffic->front, VW_VU_SET_VRING_KICK, ring->index, ring->kick);
    tell_ring_fd(traffic->front, VW_VU_SET_VRING_CALL, ring->index, ring->call);
    close(kick);
    close(call);
}

static void kick_and_call_descriptors_are_replaced(void **unused)
{
    (void)unused;
    disturbed(replace_descriptors, 3000);
}

static void replace_the_table(struct traffic *traffic, unsigned round)
{
    (void)round;
    cut_memory(traffic->front);
    tell_memory(traffic->front);
}

static void the_memory_table_is_replaced(void **unused)
{
    (void)unused;
    disturbed(replace_the_table, 3000);
}

static int tell_region(struct front_end *front, uint32_t number, const struct vw_vu_region *region,
                       int fd)
{
    struct vw_vu_message message;

    vw_vu_request(&message, number, sizeof(struct vw_vu_single_region));
    message.payload.region.region = *region;
    return request(front, &message, fd);
}

/* A region beside the others comes and goes. */
static void plug_and_unplug(struct traffic *traffic, unsigned round)
{
    struct front_end *front = traffic->front;
    const struct vw_vu_region region = {.guest = FRONT_END_GUEST + 2 * FRONT_END_MEMORY,
                                        .user = FRONT_END_USER + 2 * FRONT_END_MEMORY,
                                        .size = 65536,
                                        .offset = 4096};

    assert_int_equal(tell_region(front, round % 2 ? VW_VU_REM_MEM_REG : VW_VU_ADD_MEM_REG, &region,
                                 round % 2 ? -1 : front->file),
                     0);
}

static void memory_is_plugged_and_unplugged(void **unused)
{
    (void)unused;
    disturbed(plug_and_unplug, 3000);
}

/* All memory slots there are, added one by one beside a ring that runs. */
static void all_memory_slots_are_used(void **unused)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    struct running_device running;
    struct front_end front;

    (void)unused;
    assert_non_null(traffic);
    begin(&running, &front, "loop", BASE_FEATURES, &usual, random_seed());
    uint64_t slots = ask_u64(&front, VW_VU_GET_MAX_MEM_SLOTS);
    assert_true(slots == 509);
    unsigned before = front.region_count;
    *traffic = (struct traffic){.front = &front, .session = 31, .count = 500, .max_frame = 1514};
    for (uint64_t i = before; i <= slots; i++) {
        struct vw_vu_region region = {.guest = FRONT_END_GUEST + FRONT_END_MEMORY + i * 8192,
                                      .user = FRONT_END_USER + FRONT_END_MEMORY + i * 8192,
                                      .size = 4096,
                                      .offset = i * 4096};
        int expected = i == slots ? -EINVAL : 0;

        assert_int_equal(tell_region(&front, VW_VU_ADD_MEM_REG, &region, front.file), expected);
    }
    run_traffic(traffic);
    check_counters(traffic, &running);
    end(&running, &front);
    free(traffic);
}

static void tell_the_same_features(struct traffic *traffic, unsigned round)
{
    (void)round;
    tell_u64(traffic->front, VW_VU_SET_FEATURES,
             traffic->front->features | vw_bit(VW_VU_F_PROTOCOL_FEATURES));
}

static void the_same_features_again_change_nothing(void **unused)
{
    (void)unused;
    disturbed(tell_the_same_features, 3000);
}

/* Receive rings off and on: the frames wait meanwhile. */
static void switch_receiving(struct traffic *traffic, unsigned round)
{
    struct front_ring *ring = &traffic->front->receive[round / 2 % 2];

    tell_state(traffic->front, VW_VU_SET_VRING_ENABLE, ring->index, round % 2);
    if (round % 2 == 0) /* a driver may go on in between; then it is switched on at once */
        tell_state(traffic->front, VW_VU_SET_VRING_ENABLE, ring->index, 1);
}

static void a_receive_ring_is_disabled_and_enabled(void **unused)
{
    (void)unused;
    disturbed(switch_receiving, 3000);
}

static void everything_at_once(struct traffic *traffic, unsigned round)
{
    static void (*const all[])(struct traffic *, unsigned) = {
        stop_and_start_a_ring, replace_descriptors, replace_the_table, tell_the_same_features,
        switch_receiving};
    unsigned choice = random_below(&traffic->front->random, VW_ARRAY_SIZE(all));

    all[choice](traffic, round);
}

static void all_changes_mixed(void **unused)
{
    (void)unused;
    disturbed(everything_at_once, 5000);
}

/*
 * A packed ring whose next place is 0 in an even round has the base 0. Its first descriptor lay
 * within a chain in the round before, so that it still looks available in an odd round: taken for
 * a fresh ring it would be transmitted again.
 */
static void a_packed_ring_at_the_start_of_an_even_round_is_not_fresh(void **unused)
{
    static const unsigned descriptors[] = {1, 2, 2, 2, 2, 2, 2, 2}; /* 15: three rounds of 5 */
    const struct shape shape = {.pairs = 1,
                                .device_pairs = 1,
                                .size = 5,
                                .transmit_bytes = 2048,
                                .receive_smallest = 2048,
                                .receive_largest = 2048,
                                .receive_segments = 1};
    struct running_device running;
    struct front_end front;

    (void)unused;
    for (unsigned how = 0; how < 2; how++) {
        begin(&running, &front, "null", vw_bit(VIRTIO_F_VERSION_1) | vw_bit(VIRTIO_F_RING_PACKED),
              &shape, random_seed());
        struct front_ring *ring = &front.transmit[0];
        for (unsigned i = 0; i < VW_ARRAY_SIZE(descriptors); i++) {
            struct buffer *buffer = ring->free[--ring->free_count];
            struct vw_segment segments[2] = {{FRONT_END_GUEST + buffer->offset, 12},
                                             {FRONT_END_GUEST + buffer->offset + 12, 60}};

            memset(front.memory + buffer->offset, 0, 72);
            if (descriptors[i] == 1)
                segments[0].length = 72;
            assert_int_equal(vw_driver_ring_add(&ring->ring, segments, descriptors[i], 0, buffer),
                             0);
            ring_publish(ring);
            while (reap_transmitted(&front, 0) == 0)
                wait_for_calls(&front);
        }
        if (how == 0) {
            uint32_t base = ring_stop(&front, ring);

            assert_int_equal(base, 0);
            ring_start(&front, ring, base);
        } else {
            tell_memory(&front);
        }
        assert_true(send_frame(&front, 0, &(struct vw_net_header){0}, (uint8_t[60]){0}, 60));
        ring_publish(ring);
        while (reap_transmitted(&front, 0) == 0)
            wait_for_calls(&front);
        assert_true(queue_statistics(&running, 1).counters.frames == 9);
        assert_null(queue_statistics(&running, 1).broken);
        end(&running, &front);
    }
}

static unsigned open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static unsigned mappings_of_guests(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, "vw-test-guest") != NULL;
    fclose(file);
    return count;
}

/* Frames that the loop still holds from the connection before come first; they are no one's. */
static void skip_strays(struct front_end *front, struct traffic *traffic)
{
    struct vw_net_header header;
    uint8_t last[NUMBERED_MIN] = {0x52};
    uint32_t session = 0;

    post_buffers(front, 0, UINT32_MAX);
    ring_publish(&front->receive[0]);
    memset(&header, 0, sizeof(header));
    memcpy(last + 14, &traffic->session, 4);
    assert_true(send_frame(front, 0, &header, last, sizeof(last)));
    ring_publish(&front->transmit[0]);
    do {
        await_frame(front, 0, &traffic->frame);
        memcpy(&session, traffic->frame.bytes + 14, 4);
        post_buffers(front, 0, UINT32_MAX);
        ring_publish(&front->receive[0]);
    } while (session != traffic->session);
}

/* Connects, works, and goes away in the middle, in one of several ways. */
static void visit(const char *path, unsigned round)
{
    static const uint64_t formats[] = {0, UINT64_C(1) << VIRTIO_F_RING_PACKED};
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    struct front_end front;
    struct shape shape = usual;
    int socket = vw_socket_connect(path);

    assert_true(socket >= 0);
    assert_non_null(traffic);
    shape.pairs = 1;
    front_end_memory(&front, random_seed() + round);
    negotiate(&front, socket, BASE_FEATURES | formats[round % 2]);
    make_rings(&front, &shape);
    tell_memory(&front);
    start_rings(&front);
    *traffic = (struct traffic){
        .front = &front, .session = 1000 + round, .count = 200 + round % 100, .max_frame = 3000};
    skip_strays(&front, traffic);
    if (round % 3 == 0) {
        run_traffic(traffic);
    } else {
        for (unsigned i = 0; i < round % 20; i++)
            pump(traffic);
    }
    if (round % 5 == 0) { /* half a message, and the end */
        uint32_t header[2] = {VW_VU_SET_MEM_TABLE, 1};

        assert_int_equal(send(front.socket, header, sizeof(header), 0), sizeof(header));
    }
    front_end_end(&front);
    free(traffic);
}

static void front_ends_come_and_go(void **unused)
{
    char directory[] = "/tmp/vw-test-XXXXXX", path[64];
    struct vw_device_options options = {.queue_pairs = 2, .fd = -1};
    struct running_device running;
    unsigned before = open_descriptors(), with_device;

    (void)unused;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/device", directory);
    options.socket_path = path;
    device_open(&running, "loop", &options);
    with_device = open_descriptors();
    for (unsigned round = 0; round < 60; round++)
        visit(path, round);
    /* The device has seen the last one go when it answers the next. */
    for (unsigned turn = 0; device_statistics(&running).connected; turn++) {
        assert_true(turn < WAIT_MS);
        usleep(1000);
    }
    assert_int_equal(open_descriptors(), with_device);
    assert_int_equal(mappings_of_guests(), 0);
    struct vw_device_statistics statistics = device_statistics(&running);
    assert_true(statistics.counters.connections == 60);
    assert_true(statistics.counters.connections_refused == 0);
    assert_true(statistics.counters.connections_dropped == 12); /* those with half a message */
    device_stop(&running);
    device_close(&running);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(rmdir(directory), 0); /* its socket is gone, too */
}

/* While one is served another is turned away, and harms nothing. */
static void a_second_front_end_is_turned_away(void **unused)
{
    char directory[] = "/tmp/vw-test-XXXXXX", path[64], byte;
    struct vw_device_options options = {.queue_pairs = 2, .fd = -1};
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    struct running_device running;
    struct front_end front;

    (void)unused;
    assert_non_null(traffic);
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/device", directory);
    options.socket_path = path;
    device_open(&running, "loop", &options);
    front_end_memory(&front, random_seed());
    negotiate(&front, vw_socket_connect(path), BASE_FEATURES);
    make_rings(&front, &usual);
    tell_memory(&front);
    start_rings(&front);
    *traffic = (struct traffic){.front = &front, .session = 5, .count = 1000, .max_frame = 1514};
    for (unsigned i = 0; i < 20; i++) {
        int second = vw_socket_connect(path);
        struct pollfd wait = {.fd = second, .events = POLLIN};

        assert_true(second >= 0);
        pump(traffic);
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(recv(second, &byte, 1, 0), 0);
        close(second);
    }
    run_traffic(traffic);
    check_counters(traffic, &running);
    assert_true(device_statistics(&running).counters.connections_refused == 20);
    device_stop(&running);
    front_end_end(&front);
    device_close(&running);
    rmdir(directory);
    free(traffic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_goes_on_where_it_was_stopped),
        cmocka_unit_test(kick_and_call_descriptors_are_replaced),
        cmocka_unit_test(the_memory_table_is_replaced),
        cmocka_unit_test(memory_is_plugged_and_unplugged),
        cmocka_unit_test(all_memory_slots_are_used),
        cmocka_unit_test(the_same_features_again_change_nothing),
        cmocka_unit_test(a_receive_ring_is_disabled_and_enabled),
        cmocka_unit_test(all_changes_mixed),
        cmocka_unit_test(a_packed_ring_at_the_start_of_an_even_round_is_not_fresh),
        cmocka_unit_test(front_ends_come_and_go),
        cmocka_unit_test(a_second_front_end_is_turned_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
