/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP port through io_uring, where several frames share one system call, against a kernel that
 * fails in the middle of it.
 *
 * Failures that no kernel gives on demand are put in by functions of this file in front of
 * liburing's.
 */
#include <dlfcn.h>
#include <liburing.h>

#include "tap_lab.h"

static int submit_fails_with; /* -errno, or 0; once */
static bool submit_does_its_work;
static int init_fails_with;
static unsigned fail_from, fail_to; /* the requests of the next submission that fail ... */
static int fail_with;               /* ... with this -errno, or 0 */
static int requests_done;

/* Before the submission: a request that is to fail becomes one that does nothing. */
static void spoil(struct io_uring *ring)
{
    for (unsigned i = fail_from; i < fail_to; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[(ring->sq.sqe_head + i) & *ring->sq.kring_mask];
        uint64_t data = sqe->user_data;

        io_uring_prep_nop(sqe);
        sqe->user_data = data;
    }
}

static void tell_failures(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned head, i = 0;

    io_uring_for_each_cqe(ring, head, cqe)
    {
        if (i >= fail_from && i < fail_to)
            cqe->res = fail_with;
        i++;
    }
    fail_from = fail_to = 0;
}

int io_uring_submit(struct io_uring *ring)
{
    int failure = submit_fails_with;

    submit_fails_with = 0;
    if (failure != 0 && !submit_does_its_work)
        return failure;
    spoil(ring);
    int result = io_uring_submit_and_wait(ring, 0);
    if (result > 0)
        requests_done += result;
    tell_failures(ring);
    return failure != 0 ? failure : result;
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                               struct io_uring_params *params)
{
    typedef int init_function(unsigned, struct io_uring *, struct io_uring_params *);
    init_function *real;

    if (init_fails_with != 0)
        return init_fails_with;
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_queue_init_params");
    return real(entries, ring, params);
}

static struct vw_port *open_ring_port(const char *name)
{
    char description[64];

    snprintf(description, sizeof(description), "tap,name=%s", name);
    struct vw_port *port = open_port(description, 1);
    assert_string_equal(port->settings, "io=uring napi=off");
    return port;
}

/* Offers frames with these numbers at once; returns how many the port took. */
static uint32_t offer(struct vw_port_queue *queue, uint32_t first, uint32_t count)
{
    static unsigned char header[VW_PORT_HEADER], bytes[VW_PORT_BATCH][60];
    struct iovec iov[VW_PORT_BATCH][2];
    struct vw_frame frames[VW_PORT_BATCH];

    for (uint32_t i = 0; i < count; i++) {
        fill_frame(bytes[i], sizeof(bytes[i]), first + i);
        iov[i][0] = (struct iovec){header, sizeof(header)};
        iov[i][1] = (struct iovec){bytes[i], sizeof(bytes[i])};
        frames[i] = (struct vw_frame){iov[i], 2, sizeof(bytes[i])};
    }
    return queue->port->ops->transmit(queue, frames, count);
}

static void all_completed(struct vw_port_queue *queue, uint32_t count, enum vw_port_result expected)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(completed(queue), expected);
}

static void arrive(int packet, uint32_t first, uint32_t count)
{
    unsigned char got[100];

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
        check_frame(got, 60, first + i);
    }
}

static void nothing_more_arrives(int packet)
{
    unsigned char got[100];

    assert_int_equal(recv(packet, got, sizeof(got), MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void what_finds_no_memory_at_the_end_of_a_batch_goes_later(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);
    struct vw_port_wait wait;

    (void)state;
    fail_from = 10;
    fail_to = 64;
    fail_with = -ENOMEM;
    assert_int_equal(offer(queue, 0, 64), 10);
    all_completed(queue, 10, VW_PORT_SENT);
    port->ops->want(queue, false, true, &wait);
    assert_int_equal(wait.fd, -1);
    assert_true(wait.timeout_ms > 0);
    assert_int_equal(offer(queue, 10, 54), 54);
    all_completed(queue, 54, VW_PORT_SENT);
    arrive(packet, 0, 64);
    nothing_more_arrives(packet);
    assert_int_equal(queue->counters.transmit_no_memory, 1);
    assert_int_equal(queue->counters.transmit_overtaken, 0);
    close(packet);
    port->ops->close(port);
}

static void what_was_overtaken_is_lost_and_counted(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);

    (void)state;
    fail_from = 3;
    fail_to = 5;
    fail_with = -ENOBUFS;
    assert_int_equal(offer(queue, 0, 8), 8);
    all_completed(queue, 3, VW_PORT_SENT);
    all_completed(queue, 2, VW_PORT_FAILED);
    all_completed(queue, 3, VW_PORT_SENT);
    arrive(packet, 0, 3);
    arrive(packet, 5, 3);
    nothing_more_arrives(packet);
    assert_int_equal(queue->counters.transmit_overtaken, 2);
    assert_int_equal(queue->counters.transmit_sent, 6);
    assert_int_equal(queue->counters.transmit_failed, 2);
    close(packet);
    port->ops->close(port);
}

static void memory_that_never_comes_costs_one_frame_of_a_batch(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    unsigned tries = 0;

    (void)state;
    do {
        assert_true(tries++ < 10000);
        fail_to = 2;
        fail_with = -ENOMEM;
    } while (offer(queue, 0, 2) == 0);
    fail_to = 0;
    assert_true(tries > 100);
    assert_int_equal(completed(queue), VW_PORT_FAILED);
    assert_int_equal(offer(queue, 1, 2), 2);
    all_completed(queue, 2, VW_PORT_SENT);
    port->ops->close(port);
}

/* A sandbox that closes later, or a kernel that runs out of something. */
static void a_ring_that_fails_is_done_without(void **state)
{
    (void)state;
    for (int works = 0; works <= 1; works++) {
        struct vw_port *port = open_ring_port("tring");
        struct vw_port_queue *queue = port->queues[0];
        int packet = packet_socket("tring", TEST_TYPE);
        struct vw_frame frame;

        while (port->ops->receive(queue, &frame, 1) == 1)
            port->ops->release(queue, 1);
        submit_fails_with = -EPERM;
        submit_does_its_work = works == 1;
        assert_int_equal(offer(queue, 0, 64), 64);
        all_completed(queue, 64, VW_PORT_SENT);
        assert_int_equal(offer(queue, 64, 64), 64);
        all_completed(queue, 64, VW_PORT_SENT);
        arrive(packet, 0, 128);
        nothing_more_arrives(packet);
        assert_int_equal(queue->counters.batches, 1);
        for (uint32_t n = 0; n < 100; n++) {
            unsigned char bytes[60];

            fill_frame(bytes, sizeof(bytes), n);
            assert_int_equal(send(packet, bytes, sizeof(bytes), 0), sizeof(bytes));
        }
        for (uint32_t n = 0; n < 100; n++) {
            frame = receive_type(queue, TEST_TYPE);
            check_frame(frame.iov[1].iov_base, frame.length, n);
            port->ops->release(queue, 1);
        }
        close(packet);
        port->ops->close(port);
    }
}

static void a_kernel_short_of_memory_for_requests_is_asked_again(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);

    (void)state;
    submit_fails_with = -EAGAIN;
    submit_does_its_work = false;
    assert_int_equal(offer(queue, 0, 64), 64);
    all_completed(queue, 64, VW_PORT_SENT);
    assert_int_equal(offer(queue, 64, 64), 64);
    all_completed(queue, 64, VW_PORT_SENT);
    arrive(packet, 0, 128);
    assert_int_equal(queue->counters.batches, 2);
    close(packet);
    port->ops->close(port);
}

/* io_uring is forbidden in many containers. */
static void without_io_uring_it_does_without(void **state)
{
    struct vw_port *port = NULL;
    char error[256] = "";

    (void)state;
    init_fails_with = -EPERM;
    refused("tap,name=tring,io=uring", 1, -EPERM, "io_uring is forbidden here");
    assert_int_equal(if_nametoindex("tring"), 0);
    assert_int_equal(vw_port_open("tap,name=tring,io=auto", 1, NULL, &port, error, sizeof(error)),
                     0);
    assert_string_equal(port->settings, "io=plain napi=off");
    assert_int_equal(offer(port->queues[0], 0, 64), 64);
    all_completed(port->queues[0], 64, VW_PORT_SENT);
    assert_int_equal(port->queues[0]->counters.batches, 0);
    port->ops->close(port);
    init_fails_with = 0;
    refused("tap,name=tring,io=fast", 1, -EINVAL, "io=fast: must be auto, uring or plain");
}

/* One system call for both directions, and frames that were read so are neither lost nor late. */
static void reads_go_along_with_writes(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);
    struct vw_port_wait wait;
    struct vw_frame frames[VW_PORT_BATCH];
    unsigned char bytes[60];

    (void)state;
    while (port->ops->receive(queue, frames, 1) == 1)
        port->ops->release(queue, 1);
    for (uint32_t n = 0; n < 100; n++) {
        int before = requests_done;

        fill_frame(bytes, sizeof(bytes), n);
        assert_int_equal(send(packet, bytes, sizeof(bytes), 0), sizeof(bytes));
        assert_int_equal(offer(queue, n, 1), 1);
        assert_int_equal(completed(queue), VW_PORT_SENT);
        assert_true(requests_done >= before + 2);
        port->ops->want(queue, true, false, &wait);
        assert_int_equal(wait.timeout_ms, 0); /* it is no longer in the TAP, which would wake us */
        int alone = requests_done;
        struct vw_frame frame = receive_type(queue, TEST_TYPE);
        check_frame(frame.iov[1].iov_base, frame.length, n);
        assert_true(requests_done - alone <= 4);
        port->ops->release(queue, 1);
        while (port->ops->receive(queue, frames, 1) == 1)
            port->ops->release(queue, 1);
    }
    arrive(packet, 0, 100);
    close(packet);
    port->ops->close(port);
}

/* What was read along, and not yet lent, belongs to the guest that is going. */
static void a_drained_queue_hides_nothing(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);
    struct vw_frame frames[VW_PORT_BATCH];
    unsigned char bytes[60];
    uint32_t seen = 0, count;

    (void)state;
    while (port->ops->receive(queue, frames, 1) == 1)
        port->ops->release(queue, 1);
    assert_int_equal(offer(queue, 0, 2), 2); /* its read finds nothing */
    all_completed(queue, 2, VW_PORT_SENT);
    for (uint32_t n = 0; n < 50; n++) {
        fill_frame(bytes, sizeof(bytes), n);
        assert_int_equal(send(packet, bytes, sizeof(bytes), 0), sizeof(bytes));
    }
    port->ops->drain(queue);
    while ((count = port->ops->receive(queue, frames, VW_PORT_BATCH)) > 0) {
        seen += count;
        port->ops->release(queue, count);
    }
    assert_true(seen >= 50);
    close(packet);
    port->ops->close(port);
}

static void a_batch_for_a_deleted_interface(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];

    (void)state;
    assert_int_equal(offer(queue, 0, 64), 64);
    all_completed(queue, 64, VW_PORT_SENT);
    run("ip link del tring");
    assert_int_equal(offer(queue, 64, 64), 64);
    all_completed(queue, 64, VW_PORT_GONE);
    unsigned batches = (unsigned)queue->counters.batches;
    assert_int_equal(offer(queue, 64, 64), 64);
    all_completed(queue, 64, VW_PORT_GONE);
    assert_int_equal(queue->counters.batches, batches); /* it asks no more */
    assert_false(wait_as_wanted(queue, true, false));
    port->ops->close(port);
}

/* A frame that no system call takes in pieces, or at all, in the middle of a batch keeps its place.
 */
static void odd_frames_keep_their_place(void **state)
{
    struct vw_port *port = open_ring_port("tring");
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tring", TEST_TYPE);
    static unsigned char header[VW_PORT_HEADER], bytes[5][1500], got[1600];
    static struct iovec iov[5][1501];
    struct vw_frame frames[5];

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t length = i == 3 ? 13 : i == 1 ? 1500 : 60;

        fill_frame(bytes[i], length < 18 ? 18 : length, i);
        iov[i][0] = (struct iovec){header, sizeof(header)};
        for (uint32_t j = 0; j < length; j++)
            iov[i][j + 1] = (struct iovec){bytes[i] + j, 1};
        frames[i] = (struct vw_frame){iov[i], length + 1, length};
    }
    assert_int_equal(port->ops->transmit(queue, frames, 5), 5);
    all_completed(queue, 3, VW_PORT_SENT);
    assert_int_equal(completed(queue), VW_PORT_REFUSED);
    assert_int_equal(completed(queue), VW_PORT_SENT);
    for (uint32_t i = 0; i < 5; i++) {
        if (i == 3)
            continue;
        assert_int_equal(recv(packet, got, sizeof(got), 0), frames[i].length);
        check_frame(got, frames[i].length, i);
    }
    close(packet);
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_finds_no_memory_at_the_end_of_a_batch_goes_later),
        cmocka_unit_test(what_was_overtaken_is_lost_and_counted),
        cmocka_unit_test(memory_that_never_comes_costs_one_frame_of_a_batch),
        cmocka_unit_test(a_ring_that_fails_is_done_without),
        cmocka_unit_test(a_kernel_short_of_memory_for_requests_is_asked_again),
        cmocka_unit_test(without_io_uring_it_does_without),
        cmocka_unit_test(reads_go_along_with_writes),
        cmocka_unit_test(a_drained_queue_hides_nothing),
        cmocka_unit_test(a_batch_for_a_deleted_interface),
        cmocka_unit_test(odd_frames_keep_their_place),
    };

    setenv("VW_TEST_IO", "uring", 1);
    if (!enter_own_namespace())
        return 1;
    if (!io_works())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
