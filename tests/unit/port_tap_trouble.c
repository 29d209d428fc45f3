/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP port against a kernel that refuses, deletes the interface or has no room.
 *
 * Failures that no kernel gives on demand are put in by a writev() of this file in front of the C
 * library's.
 */
#include "tap_lab.h"

static int fail_with;       /* errno, or 0 */
static unsigned fail_count; /* so many calls fail */
static unsigned writev_calls;

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    writev_calls++;
    if (fail_count > 0) {
        fail_count--;
        errno = fail_with;
        return -1;
    }
    return syscall(SYS_writev, fd, iov, count);
}

/* tailscale 13041 and others: one frame that the kernel refuses stops nothing. */
static void a_refused_frame_does_not_harm_the_others(void **state)
{
    static const struct virtio_net_hdr_v1 bad[] = {
        {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 60000, .csum_offset = 16},
        {.hdr_len = 1000},
        {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = 0x7f, .gso_size = 100},
    };
    struct vw_port *port = open_port("tap,name=trefuse", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("trefuse", TEST_TYPE);
    unsigned char bytes[60], got[1600];
    uint32_t n = 0;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
        assert_int_equal(send_numbered(queue, n++), VW_PORT_SENT);
        fill_frame(bytes, sizeof(bytes), 999);
        assert_true(transmit(queue, &bad[i], bytes, sizeof(bytes)));
        assert_int_equal(completed(queue), VW_PORT_REFUSED);
    }
    unsigned calls = writev_calls;
    assert_true(transmit(queue, NULL, bytes, 13)); /* no Ethernet frame: not even offered */
    assert_int_equal(completed(queue), VW_PORT_REFUSED);
    assert_int_equal(writev_calls, calls);
    assert_int_equal(send_numbered(queue, n++), VW_PORT_SENT);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
        check_frame(got, 60, i);
    }
    assert_int_equal(queue->counters.transmit_refused, VW_ARRAY_SIZE(bad) + 1);
    close(packet);
    port->ops->close(port);
}

/* Cloud Hypervisor 208, crosvm: a deleted TAP is ready and in error for ever. */
static void a_deleted_interface_burns_no_core(void **state)
{
    struct vw_port *port = open_port("tap,name=tdel,queues=2", 2);
    struct vw_port_wait wait;
    unsigned char bytes[60];
    struct vw_frame frame;

    (void)state;
    assert_int_equal(port->ops->set_active_queues(port, 1), 0); /* one attached, one detached */
    run("ip link del tdel");
    for (unsigned q = 0; q < 2; q++) {
        struct vw_port_queue *queue = port->queues[q];
        unsigned rounds = 0;

        /* A device without room for frames must not be woken by the error. */
        queue->port->ops->want(queue, false, false, &wait);
        assert_int_equal(wait.fd, -1);
        assert_int_equal(wait.timeout_ms, -1);
        do {
            assert_true(rounds++ < 3);
            while (port->ops->receive(queue, &frame, 1) == 1) /* what was queued before */
                port->ops->release(queue, 1);
        } while (wait_as_wanted(queue, true, false));
        fill_frame(bytes, sizeof(bytes), 1);
        unsigned calls = writev_calls;
        for (unsigned i = 0; i < 3; i++) {
            assert_true(transmit(queue, NULL, bytes, sizeof(bytes)));
            assert_int_equal(completed(queue), VW_PORT_GONE);
        }
        assert_int_equal(writev_calls, calls); /* it asks no more */
        assert_int_equal(queue->counters.transmit_gone, 3);
    }
    link_becomes(port, false);
    assert_true(port->ops->set_guest_offloads(port, vw_bit(VIRTIO_NET_F_GUEST_CSUM)) == -ENODEV);
    assert_true(port->ops->set_active_queues(port, 2) < 0);
    port->ops->close(port);
}

/* The transmitter finds out by itself, too. */
static void a_deleted_interface_ends_transmission(void **state)
{
    struct vw_port *port = open_port("tap,name=tdel", 1);
    struct vw_port_queue *queue = port->queues[0];

    (void)state;
    assert_int_equal(send_numbered(queue, 1), VW_PORT_SENT);
    run("ip link del tdel");
    assert_int_equal(send_numbered(queue, 2), VW_PORT_GONE);
    assert_false(wait_as_wanted(queue, true, false));
    port->ops->close(port);
}

/*
 * Offers numbered frames at once, to an address of nobody, so that a bridge floods the frame
 * itself, with its owner, not a clone. Returns how many the port took.
 */
static uint32_t send_to_nobody(struct vw_port_queue *queue, uint32_t first, uint32_t count)
{
    static unsigned char header[VW_PORT_HEADER], bytes[8][1000];
    struct iovec iov[8][2];
    struct vw_frame frames[8];

    for (uint32_t i = 0; i < count; i++) {
        fill_frame(bytes[i], sizeof(bytes[i]), first + i);
        memcpy(bytes[i], "\x02\x00\x00\x00\x00\x03", 6);
        iov[i][0] = (struct iovec){header, sizeof(header)};
        iov[i][1] = (struct iovec){bytes[i], sizeof(bytes[i])};
        frames[i] = (struct vw_frame){iov[i], 2, sizeof(bytes[i])};
    }
    return queue->port->ops->transmit(queue, frames, count);
}

/*
 * libkrun 555: a bridge carries the frames to a second TAP behind a slow queue, which holds them,
 * and so the small send buffer of the first, until they may leave. Nothing is lost or overtaken.
 */
static void a_full_send_buffer_loses_nothing(void **state)
{
    struct vw_port *from = open_port("tap,name=tfrom,sndbuf=4096", 1);
    struct vw_port *to = open_port("tap,name=tto", 1);
    struct vw_port_queue *sender = from->queues[0], *receiver = to->queues[0];
    unsigned char bytes[1000];
    uint32_t sent = 0, seen = 0;

    (void)state;
    run("ip link add tslow type bridge && ip link set tslow up");
    run("ip link set tfrom master tslow && ip link set tto master tslow");
    bridge_port_forwards("tfrom");
    bridge_port_forwards("tto");
    run("tc qdisc replace dev tto root tbf rate 8mbit burst 2000 limit 1000000");
    while (seen < sent || sent < 400) {
        struct vw_frame frame;
        bool left = false;

        while (sent < 400 && !left) {
            uint32_t count = sent % 7 + 1, taken = send_to_nobody(sender, sent, count);

            for (uint32_t i = 0; i < taken; i++)
                assert_int_equal(completed(sender), VW_PORT_SENT);
            sent += taken;
            left = taken < count;
        }
        if (left) {
            struct vw_port_wait wait;

            from->ops->want(sender, false, true, &wait);
            assert_true(wait.fd >= 0);
            assert_int_equal(wait.events, EPOLLOUT);
            assert_true(wait.timeout_ms > 0);
        }
        uint32_t before = seen;
        while (to->ops->receive(receiver, &frame, 1) == 1) {
            const unsigned char *got = frame.iov[1].iov_base;

            if (got[12] == 0x88 && got[13] == 0xb5) {
                assert_int_equal(frame.length, sizeof(bytes));
                fill_frame(bytes, sizeof(bytes), seen++);
                assert_memory_equal(got + 6, bytes + 6, sizeof(bytes) - 6);
            }
            to->ops->release(receiver, 1);
        }
        if (seen == before)
            wait_as_wanted(left ? sender : receiver, !left, left);
    }
    assert_int_equal(sender->counters.transmit_sent, sent);
    assert_true(sender->counters.transmit_full > 0);
    run("ip link del tslow");
    from->ops->close(from);
    to->ops->close(to);
}

/* Linux 39286fa41a8b: no event ever tells that there is memory again. */
static void a_lack_of_memory_passes(void **state)
{
    struct vw_port *port = open_port("tap,name=tmem", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tmem", TEST_TYPE);
    static const int errors[] = {ENOBUFS, ENOMEM};
    struct vw_port_wait wait;
    unsigned char bytes[60], got[100];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        fill_frame(bytes, sizeof(bytes), i);
        fail_with = errors[i];
        fail_count = 5;
        for (unsigned tries = 0; tries < 5; tries++) {
            assert_false(transmit(queue, NULL, bytes, sizeof(bytes)));
            port->ops->want(queue, false, true, &wait);
            assert_int_equal(wait.fd, -1); /* it is writable all the time: that would spin */
            assert_true(wait.timeout_ms > 0);
        }
        assert_true(transmit(queue, NULL, bytes, sizeof(bytes)));
        assert_int_equal(completed(queue), VW_PORT_SENT);
        assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
        check_frame(got, 60, i);
    }
    assert_int_equal(queue->counters.transmit_no_memory, 10);
    close(packet);
    port->ops->close(port);
}

static void memory_that_never_comes_costs_one_frame(void **state)
{
    struct vw_port *port = open_port("tap,name=tnever", 1);
    struct vw_port_queue *queue = port->queues[0];
    unsigned char bytes[60];
    unsigned tries = 0;

    (void)state;
    fill_frame(bytes, sizeof(bytes), 0);
    fail_with = ENOMEM;
    fail_count = UINT_MAX;
    while (!transmit(queue, NULL, bytes, sizeof(bytes)))
        assert_true(tries++ < 10000);
    fail_count = 0;
    assert_true(tries > 100);
    assert_int_equal(completed(queue), VW_PORT_FAILED);
    assert_int_equal(send_numbered(queue, 1), VW_PORT_SENT);
    port->ops->close(port);
}

static void interruptions_and_faults(void **state)
{
    struct vw_port *port = open_port("tap,name=tfault", 1);
    struct vw_port_queue *queue = port->queues[0];

    (void)state;
    fail_with = EINTR;
    fail_count = 3;
    assert_int_equal(send_numbered(queue, 1), VW_PORT_SENT);
    fail_with = EFAULT;
    fail_count = 1;
    assert_int_equal(send_numbered(queue, 2), VW_PORT_FAILED);
    assert_int_equal(send_numbered(queue, 3), VW_PORT_SENT);
    assert_int_equal(queue->counters.transmit_failed, 1);
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_frame_does_not_harm_the_others),
        cmocka_unit_test(a_deleted_interface_burns_no_core),
        cmocka_unit_test(a_deleted_interface_ends_transmission),
        cmocka_unit_test(a_full_send_buffer_loses_nothing),
        cmocka_unit_test(a_lack_of_memory_passes),
        cmocka_unit_test(memory_that_never_comes_costs_one_frame),
        cmocka_unit_test(interruptions_and_faults),
    };

    if (!enter_own_namespace())
        return 1;
    if (!io_works())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
