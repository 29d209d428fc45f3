/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device's process is killed in the middle of traffic, and started again. What it had completed
 * it had completed; everything else is sent to its successor, and comes back from it.
 *
 * The device runs in a child process, on a loop. Frames are numbered; contents follow from the
 * number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../driver_lab.h"

#define BUFFERS 128
#define FRAMES 40000
#define LIVES 8 /* of the device, at most */

struct scene {
    struct lab lab;
    char folder[32], path[64];
    pid_t device, devices[LIVES];
    int gates[LIVES]; /* each holds a device back until it is closed */
    unsigned next_device;
    uint64_t number[BUFFERS]; /* of the frame that lies in each buffer */
    bool in_flight[BUFFERS];
    uint64_t received[FRAMES]; /* how often each frame came back */
    uint64_t resent[BUFFERS];
    unsigned resent_count;
    unsigned disconnected, reconnected;
    bool processing; /* vw_process runs, which tells no tokens */
};

/* The life of a child: nothing of cmocka here. It begins when its pipe is closed. */
static void device_main(struct scene *scene, int gate)
{
    struct vw_device_options options = {
        .queue_pairs = 1, .fd = -1, .socket_path = scene->path, .features_on = vw_bit(VW_F_URGENT)};
    struct vw_device *device;
    char error[256];

    (void)!read(gate, error, 1);
    if (vw_port_open("loop", 1, NULL, &options.port, error, sizeof(error)) != 0 ||
        vw_device_create(&options, &device, error, sizeof(error)) != 0)
        _exit(1);
    struct pollfd wait = {.fd = vw_device_fd(device), .events = POLLIN};
    for (;;) {
        poll(&wait, 1, -1);
        vw_device_process(device);
    }
}

/* All children at once, as long as this process has one thread. */
static void prepare_devices(struct scene *scene)
{
    pid_t parent = getpid();

    for (unsigned i = 0; i < LIVES; i++) {
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        scene->devices[i] = fork();
        assert_true(scene->devices[i] >= 0);
        if (scene->devices[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (unsigned k = 0; k < i; k++)
                close(scene->gates[k]);
            close(ends[1]);
            if (getppid() == parent)
                device_main(scene, ends[0]);
            _exit(1);
        }
        close(ends[0]);
        scene->gates[i] = ends[1];
    }
    scene->next_device = 0;
}

static void start_device(struct scene *scene)
{
    assert_true(scene->next_device < LIVES);
    scene->device = scene->devices[scene->next_device];
    close(scene->gates[scene->next_device++]);
}

static void kill_device(struct scene *scene)
{
    int status;

    assert_int_equal(kill(scene->device, SIGKILL), 0);
    assert_int_equal(waitpid(scene->device, &status, 0), scene->device);
    assert_true(WIFSIGNALED(status)); /* it did not end by itself */
}

static void done(void *context, unsigned pair, void *token, int sent)
{
    struct scene *scene = context;
    struct lab *lab = &scene->lab;
    uint32_t index = (uint32_t)(uintptr_t)token;

    assert_int_equal(pair, 0);
    assert_true(index < BUFFERS && scene->in_flight[index]); /* comes back once */
    assert_false(scene->processing);
    scene->in_flight[index] = false;
    lab->free[lab->free_count++] = index;
    *(sent ? &lab->done : &lab->lost) += 1;
}

static void take(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct scene *scene = context;
    struct lab *lab = &scene->lab;

    for (unsigned i = 0; i < count; i++) {
        uint64_t number;
        uint32_t at = 0;

        for (unsigned p = 0; p < packets[i].piece_count; p++) {
            memcpy(lab->bytes + at, packets[i].pieces[p].data, packets[i].pieces[p].length);
            at += packets[i].pieces[p].length;
        }
        assert_int_equal(at, packets[i].length);
        memcpy(&number, lab->bytes + 14, 8);
        assert_true(number < lab->sent + 32 && number < FRAMES);
        assert_int_equal(at, lab_length(lab, number));
        lab_frame(number, lab->want, at, true);
        assert_memory_equal(lab->bytes, lab->want, at);
        scene->received[number]++;
    }
    vw_rx_release(lab->net, pair, packets, count);
}

static void send_some(struct scene *scene)
{
    struct lab *lab = &scene->lab;
    struct vw_tx_packet packets[16];
    unsigned burst = 1 + random_below(&lab->random, 16), count = 0;
    uint32_t offered[16];

    for (; count < burst && count < lab->free_count; count++) {
        uint32_t index = lab->free[lab->free_count - 1 - count];
        uint32_t length = lab_length(lab, lab->sent + count);

        offered[count] = index;
        scene->number[index] = lab->sent + count;
        lab_frame(lab->sent + count, (uint8_t *)lab->memory + (size_t)index * lab->stride + 64,
                  length, false);
        packets[count] = (struct vw_tx_packet){.pieces = lab->pieces[index],
                                               .piece_count = lab_cut(lab, index, length),
                                               .token = (void *)(uintptr_t)index,
                                               .flow = lab->flow,
                                               .urgent = random_one_in(&lab->random, 2)};
        scene->in_flight[index] = true;
    }
    lab->free_count -= count;
    int taken = vw_tx_burst(lab->net, 0, packets, count, random_one_in(&lab->random, 4));
    if (taken == -ENOTCONN)
        taken = 0;
    assert_true(taken >= 0);
    for (unsigned i = count; i-- > (unsigned)taken;) {
        scene->in_flight[offered[i]] = false;
        lab->free[lab->free_count++] = offered[i];
    }
    lab->sent += (unsigned)taken;
}

static void poll_once(struct scene *scene)
{
    int count = vw_poll(scene->lab.net, 0, 64, take, scene);

    assert_true(count >= 0);
}

/* Waits for the device or for the control descriptor, and serves both. */
static void wait_for_both(struct scene *scene)
{
    struct vw_net *net = scene->lab.net;
    struct pollfd wait[2] = {{.fd = vw_net_fd(net), .events = POLLIN},
                             {.fd = vw_queue_fd(net, 0), .events = POLLIN}};

    if (poll(wait, 2, WAIT_MS) <= 0)
        fail_msg("nothing moves: in flight %u, disconnected %u, reconnected %u",
                 vw_tx_in_flight(net, 0), scene->disconnected, scene->reconnected);
    if (wait[0].revents) {
        scene->processing = true;
        int events = vw_process(net);
        scene->processing = false;

        assert_true(events >= 0);
        if (events & VW_EVENT_DISCONNECTED) {
            while (vw_tx_reap(net, 0) > 0)
                ;
            scene->disconnected++;
            scene->resent_count = 0;
            for (uint32_t i = 0; i < BUFFERS; i++)
                if (scene->in_flight[i])
                    scene->resent[scene->resent_count++] = scene->number[i];
        }
        scene->reconnected += (events & VW_EVENT_RECONNECTED) != 0;
    }
}

typedef void done_function(void *context, unsigned pair, void *token, int sent);

static void open_scene(struct scene *scene, const struct lab_case *test, int reconnect,
                       done_function *tx_done, void *context)
{
    struct vw_net_options options;
    struct lab *lab = &scene->lab;
    char error[256];

    lab->test = test;
    lab->random.state = random_seed() + test->policy;
    snprintf(scene->folder, sizeof(scene->folder), "/tmp/vw-test-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    snprintf(scene->path, sizeof(scene->path), "%s/s", scene->folder);
    prepare_devices(scene);
    start_device(scene);
    lab_options(lab, &options);
    options.socket_path = scene->path;
    options.reconnect = reconnect;
    options.connect_ms = WAIT_MS;
    options.tx_done = tx_done;
    options.tx_context = context;
    if (vw_net_open(&options, &lab->net, error, sizeof(error)) != 0)
        fail_msg("vw_net_open: %s", error);
    lab_buffers(lab, BUFFERS);
    if (test->manner == OWN_LOOP)
        assert_true(vw_queue_fd(lab->net, 0) >= 0);
}

static void close_scene(struct scene *scene)
{
    vw_net_close(scene->lab.net);
    vw_flow_free(scene->lab.flow);
    kill_device(scene);
    while (scene->next_device < LIVES) {
        start_device(scene);
        kill_device(scene);
    }
    unlink(scene->path);
    rmdir(scene->folder);
}

static void traffic(struct scene *scene, unsigned turns)
{
    while (turns-- > 0) {
        send_some(scene);
        poll_once(scene);
    }
}

/* Everything that was resent comes back from the new device, and everything is completed. */
static void check_resent(struct scene *scene)
{
    struct vw_net *net = scene->lab.net;

    assert_int_equal(vw_tx_burst(net, 0, NULL, 0, 0), 0);
    for (unsigned i = 0; i < scene->resent_count; i++)
        while (scene->received[scene->resent[i]] == 0) {
            poll_once(scene);
            if (scene->received[scene->resent[i]] == 0)
                wait_for_both(scene);
        }
    while (vw_tx_in_flight(net, 0) > 0) {
        poll_once(scene);
        assert_true(vw_tx_reap(net, 0) >= 0);
    }
    assert_true(scene->lab.done == scene->lab.sent && scene->lab.lost == 0);
    assert_int_equal(scene->lab.free_count, BUFFERS);
    assert_true(vw_flow_in_flight(scene->lab.flow) == 0);
    assert_null(vw_queue_error(net, 0));
}

static unsigned killed_and_started_again(const struct lab_case *test)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    unsigned resent = 0;

    assert_non_null(scene);
    open_scene(scene, test, 1, done, scene);
    for (unsigned life = 0; life < 6; life++) {
        traffic(scene, 1 + random_below(&scene->lab.random, 200));
        kill_device(scene);
        send_some(scene);
        /* A complete poll before each wait, as the interface asks for. */
        while (scene->disconnected == life) {
            poll_once(scene);
            wait_for_both(scene);
        }
        start_device(scene);
        while (scene->reconnected == life) {
            poll_once(scene);
            wait_for_both(scene);
        }
        resent += scene->resent_count;
        check_resent(scene);
    }
    close_scene(scene);
    free(scene);
    return resent;
}

static void everything_is_sent_again(void **unused)
{
    static const char *const rings[] = {"packed=off", "packed=on", "packed=off,indirect_desc=off",
                                        "packed=on,in_order=off,indirect_desc=off"};
    unsigned resent = 0;

    (void)unused;
    for (enum vw_tx_policy policy = VW_TX_DEFERRED; policy <= VW_TX_SCHEDULED; policy++)
        for (unsigned i = 0; i < VW_ARRAY_SIZE(rings); i++) {
            const struct lab_case test = {.features = rings[i],
                                          .policy = policy,
                                          .mode = (enum vw_rx_mode)(VW_RX_SMALL + (i + policy) % 3),
                                          .manner = OWN_LOOP,
                                          .ring = 64,
                                          .pieces = 1 + i,
                                          .shortest = 60,
                                          .longest = 1500,
                                          .no_limit = i % 2};

            resent += killed_and_started_again(&test);
        }
    assert_true(resent > 0); /* or the test has shown nothing */
}

/* Without reconnecting, what was in flight is told as not sent. */
static void told_as_lost(void **unused)
{
    const struct lab_case test = {.features = "packed=on",
                                  .policy = VW_TX_DEFERRED,
                                  .mode = VW_RX_MERGEABLE,
                                  .manner = OWN_LOOP,
                                  .ring = 64,
                                  .pieces = 2,
                                  .shortest = 60,
                                  .longest = 1500,
                                  .no_limit = true};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct vw_tx_counters counters;
    struct vw_rx_packet packet;
    int count;

    (void)unused;
    assert_non_null(scene);
    open_scene(scene, &test, 0, done, scene);
    traffic(scene, 20);
    kill_device(scene);
    send_some(scene);
    while (scene->disconnected == 0) {
        poll_once(scene);
        wait_for_both(scene);
    }
    assert_int_equal(vw_tx_in_flight(scene->lab.net, 0), 0);
    assert_true(scene->lab.done + scene->lab.lost == scene->lab.sent && scene->lab.lost > 0);
    vw_counters(scene->lab.net, 0, &counters, NULL);
    assert_true(counters.drop_lost == scene->lab.lost);
    assert_int_equal(vw_tx_burst(scene->lab.net, 0, NULL, 0, 0), -ENOTCONN);
    while ((count = vw_rx_burst(scene->lab.net, 0, &packet, 1)) == 1)
        vw_rx_release(scene->lab.net, 0, &packet, 1);
    assert_int_equal(count, -ENOTCONN);
    assert_int_equal(vw_wait(scene->lab.net, 0, 0), 1); /* it was woken for the loss, */
    vw_wait(scene->lab.net, 0, 0);                      /* by flag and by descriptor */
    assert_int_equal(vw_wait(scene->lab.net, 0, 0), 0);
    start_device(scene);
    close_scene(scene);
    free(scene);
}

/* ---- the pair in one thread, the device's coming and going in another ---- */

struct duet {
    struct scene scene;
    _Atomic bool stop;
    pthread_t thread; /* the pair's, and no other gets tokens */
    uint64_t sent, done;
    char *frame;
};

static void duet_done(void *context, unsigned pair, void *token, int sent)
{
    struct duet *duet = context;

    assert_true(pair == 0 && token == duet && sent);
    assert_true(pthread_equal(pthread_self(), duet->thread));
    duet->done++;
}

static void *duet_thread(void *argument)
{
    struct duet *duet = argument;
    struct vw_net *net = duet->scene.lab.net;
    const struct vw_piece piece = {duet->frame, 60};
    struct vw_tx_packet packets[8];
    struct vw_rx_packet received[8];
    unsigned turns = 0;

    duet->thread = pthread_self();
    for (unsigned i = 0; i < 8; i++)
        packets[i] =
            (struct vw_tx_packet){.pieces = &piece, .piece_count = 1, .token = duet, .flow = NULL};
    while (!atomic_load(&duet->stop)) {
        int taken = vw_tx_burst(net, 0, packets, 8, 0);
        int count = vw_rx_burst(net, 0, received, 8);

        assert_true(taken >= 0 || taken == -ENOTCONN);
        assert_true(count >= 0 || count == -ENOTCONN);
        duet->sent += taken > 0 ? (unsigned)taken : 0;
        if (count > 0)
            vw_rx_release(net, 0, received, (unsigned)count);
        if (taken <= 0 && count <= 0)
            assert_true(vw_wait(net, 0, 1) >= 0);
        if (turns++ % 4 == 0)
            vw_tx_reap(net, 0);
    }
    return NULL;
}

static void the_pair_in_another_thread(void **unused)
{
    const struct lab_case test = {.features = "packed=off",
                                  .policy = VW_TX_DEFERRED,
                                  .mode = VW_RX_AUTO,
                                  .manner = WAITING,
                                  .ring = 64,
                                  .longest = 60};
    struct duet *duet = calloc(1, sizeof(*duet));
    struct scene *scene = &duet->scene;
    pthread_t thread;

    (void)unused;
    assert_non_null(duet);
    open_scene(scene, &test, 1, duet_done, duet);
    duet->frame = vw_alloc(scene->lab.net, 64);
    lab_frame(0, (uint8_t *)duet->frame, 60, false);
    assert_int_equal(pthread_create(&thread, NULL, duet_thread, duet), 0);
    for (unsigned life = 0; life < 4; life++) {
        struct pollfd wait = {.fd = vw_net_fd(scene->lab.net), .events = POLLIN};

        usleep(20000); /* lets traffic flow; nothing depends on how much */
        assert_int_equal(vw_tx_set_policy(scene->lab.net, 0, (enum vw_tx_policy)(life % 2)), 0);
        kill_device(scene);
        start_device(scene);
        while (scene->reconnected == life) {
            assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
            int events = vw_process(scene->lab.net);
            assert_true(events >= 0);
            scene->reconnected += (events & VW_EVENT_RECONNECTED) != 0;
        }
    }
    atomic_store(&duet->stop, true);
    pthread_join(thread, NULL);
    duet->thread = pthread_self();
    assert_int_equal(vw_tx_burst(scene->lab.net, 0, NULL, 0, 0), 0);
    while (vw_tx_in_flight(scene->lab.net, 0) > 0)
        assert_true(vw_tx_reap(scene->lab.net, 0) >= 0);
    assert_true(duet->done == duet->sent && duet->sent > 0);
    close_scene(scene);
    free(duet);
}

/* ---- frames that a lost device had completed, and of which nobody was told yet ---- */

struct tally {
    uint64_t done;
};

static void tally_done(void *context, unsigned pair, void *token, int sent)
{
    struct tally *tally = context;

    assert_true(pair == 0 && token == tally && sent);
    tally->done++;
}

static void reconnect(struct scene *scene)
{
    struct pollfd wait = {.fd = vw_net_fd(scene->lab.net), .events = POLLIN};
    int events = 0;

    kill_device(scene);
    start_device(scene);
    while (!(events & VW_EVENT_RECONNECTED)) {
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        events = vw_process(scene->lab.net);
        assert_true(events >= 0);
    }
}

/* The successor's ring is empty, but the slots of those frames are not free before they are told:
 * a burst of frames that go the short way took more slots than there were. */
static void slots_that_wait_to_be_told_are_no_room(void **unused)
{
    const struct lab_case test = {.features = "packed=off",
                                  .policy = VW_TX_DEFERRED,
                                  .mode = VW_RX_SMALL,
                                  .manner = WAITING,
                                  .ring = 64,
                                  .longest = 60,
                                  .no_limit = true};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct tally tally = {0};
    struct vw_tx_packet packets[64];
    struct vw_rx_packet received[64];
    uint64_t sent = 0;

    (void)unused;
    assert_non_null(scene);
    open_scene(scene, &test, 1, tally_done, &tally);
    char *frame = vw_alloc(scene->lab.net, 64);
    const struct vw_piece piece = {frame, 60};

    lab_frame(0, (uint8_t *)frame, 60, false);
    for (unsigned i = 0; i < 64; i++)
        packets[i] = (struct vw_tx_packet){
            .pieces = &piece, .piece_count = 1, .headroom = 32, .token = &tally};
    for (unsigned life = 0; life < 3; life++) {
        /* Nobody reaps: what comes back tells that the device had the frames. */
        int taken = vw_tx_burst(scene->lab.net, 0, packets, 40, 0);

        assert_true(taken > 0);
        sent += (unsigned)taken;
        for (int back = 0, count; back < taken; back += count) {
            count = vw_rx_burst(scene->lab.net, 0, received, 64);
            assert_true(count >= 0);
            vw_rx_release(scene->lab.net, 0, received, (unsigned)count);
        }
        reconnect(scene);
        taken = vw_tx_burst(scene->lab.net, 0, packets, 64, 0);
        assert_in_range(taken, 0, 64);
        sent += (unsigned)taken;
        while (vw_tx_in_flight(scene->lab.net, 0) > 0)
            assert_true(vw_tx_reap(scene->lab.net, 0) >= 0);
        assert_true(tally.done == sent);
        while (vw_rx_burst(scene->lab.net, 0, received, 1) == 1)
            vw_rx_release(scene->lab.net, 0, received, 1);
    }
    close_scene(scene);
    free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_sent_again),
        cmocka_unit_test(told_as_lost),
        cmocka_unit_test(the_pair_in_another_thread),
        cmocka_unit_test(slots_that_wait_to_be_told_are_no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
