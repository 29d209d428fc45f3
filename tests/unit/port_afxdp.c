/* SPDX-License-Identifier: BSD-3-Clause */
/* The AF_XDP port on one end of a veth pair, against packet sockets on the other. */
#include "tap_lab.h"

static void make_pair(void)
{
    run("ip link add x0 type veth peer name x1 && ip link set x0 up && ip link set x1 up");
}

static void remove_pair(void)
{
    run("ip link del x0");
}

static struct vw_port *open_afxdp(void)
{
    struct vw_port *port = NULL;
    char error[256] = "";

    vw_port_open("afxdp,if=x0,queue=0", 1, NULL, &port, error, sizeof(error));
    assert_string_equal(error, "");
    return port;
}

static void frames_from_the_interface(void **state)
{
    unsigned char bytes[1600];

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("x1", TEST_TYPE);

    assert_string_equal(port->description, "afxdp x0 queue 0");
    assert_string_equal(port->settings, "mode=copy"); /* veth cannot do without */
    assert_int_equal(port->mtu, 1500);
    assert_true(port->features == 0);
    /* More than there are chunks, so that each is used several times. */
    for (uint32_t round = 0; round < 30; round++) {
        for (uint32_t n = round * 100; n < round * 100 + 100; n++) {
            fill_frame(bytes, length_of(n), n);
            assert_int_equal(send(packet, bytes, length_of(n), 0), length_of(n));
        }
        for (uint32_t n = round * 100; n < round * 100 + 100; n++) {
            struct vw_frame frame = receive_type(queue, TEST_TYPE);

            assert_int_equal(frame.length, length_of(n));
            check_frame(frame.iov[1].iov_base, frame.length, n);
            assert_int_equal(header_of(&frame).flags, 0);
            memset(frame.iov[0].iov_base, 0xee, VW_PORT_HEADER);
            port->ops->release(queue, 1);
        }
    }
    assert_int_equal(queue->counters.receive_missed, 0);
    close(packet);
    port->ops->close(port);
    remove_pair();
}

static void lent_frames_are_left_alone(void **state)
{
    struct vw_frame lent[2 * VW_PORT_BATCH];
    unsigned char bytes[60];
    uint32_t count = 0;

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("x1", TEST_TYPE);
    for (uint32_t n = 0; n < 200; n++) {
        fill_frame(bytes, 60, n);
        assert_int_equal(send(packet, bytes, 60, 0), 60);
    }
    while (count < VW_PORT_BATCH) {
        uint32_t more = port->ops->receive(queue, &lent[count], 2 * VW_PORT_BATCH - count);

        if (more == 0)
            assert_true(wait_as_wanted(queue, true, false));
        count += more;
    }
    assert_int_equal(count, VW_PORT_BATCH);
    assert_int_equal(port->ops->receive(queue, &lent[count], 1), 0);
    for (uint32_t n = 200; n < 700;
         n++) { /* the kernel runs out of chunks, and writes no lent one */
        fill_frame(bytes, 60, n);
        assert_int_equal(send(packet, bytes, 60, 0), 60);
    }
    uint32_t first = 0, base;
    while (((unsigned char *)lent[first].iov[1].iov_base)[12] != 0x88)
        first++;
    memcpy(&base, (unsigned char *)lent[first].iov[1].iov_base + 14, sizeof(base));
    for (uint32_t i = first; i < VW_PORT_BATCH; i++)
        if (((unsigned char *)lent[i].iov[1].iov_base)[12] == 0x88)
            check_frame(lent[i].iov[1].iov_base, lent[i].length, base++);
    port->ops->release(queue, 1000);
    close(packet);
    port->ops->close(port);
    remove_pair();
}

static void frames_to_the_interface(void **state)
{
    static unsigned char bytes[VW_PORT_BATCH][1600];
    static struct iovec iov[VW_PORT_BATCH][4];
    unsigned char header[VW_PORT_HEADER] = {0}, got[1600];
    struct vw_frame frames[VW_PORT_BATCH];
    uint32_t number = 0;

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("x1", TEST_TYPE);
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < VW_PORT_BATCH; i++) {
            uint32_t n = number + i;

            fill_frame(bytes[i], length_of(n), n);
            iov[i][0] = (struct iovec){header, sizeof(header)};
            iov[i][1] = (struct iovec){bytes[i], 3};
            iov[i][2] = (struct iovec){bytes[i] + 3, n % 50};
            iov[i][3] = (struct iovec){bytes[i] + 3 + n % 50, length_of(n) - 3 - n % 50};
            frames[i] = (struct vw_frame){iov[i], 4, (uint32_t)length_of(n)};
        }
        uint32_t taken = port->ops->transmit(queue, frames, VW_PORT_BATCH);
        for (uint32_t i = 0; i < taken; i++) {
            assert_int_equal(completed(queue), VW_PORT_SENT);
            assert_int_equal(recv(packet, got, sizeof(got), 0), length_of(number + i));
            check_frame(got, length_of(number + i), number + i);
        }
        number += taken;
        if (taken < VW_PORT_BATCH)
            assert_true(wait_as_wanted(queue, false, true));
    }
    assert_true(number > 1000);
    assert_int_equal(queue->counters.transmit_sent, number);
    close(packet);
    port->ops->close(port);
    remove_pair();
}

static void frames_that_do_not_fit_are_refused(void **state)
{
    static unsigned char bytes[4096];

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    assert_true(transmit(port->queues[0], NULL, bytes, 13));
    assert_int_equal(completed(port->queues[0]), VW_PORT_REFUSED);
    assert_true(transmit(port->queues[0], NULL, bytes, 1519));
    assert_int_equal(completed(port->queues[0]), VW_PORT_REFUSED);
    assert_int_equal(send_numbered(port->queues[0], 1), VW_PORT_SENT);
    port->ops->close(port);
    remove_pair();
}

static void down_up_and_deleted(void **state)
{
    struct vw_port_wait wait;
    unsigned char got[100];

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    struct vw_port_queue *queue = port->queues[0];
    for (uint32_t i = 0; i < 3; i++) {
        run("ip link set x0 down");
        link_becomes(port, false);
        send_numbered(queue, 99); /* finds it out */
        assert_int_equal(send_numbered(queue, 99), VW_PORT_DOWN);
        run("ip link set x0 up");
        link_becomes(port, true);
        int packet = packet_socket("x1", TEST_TYPE);
        assert_int_equal(send_numbered(queue, i), VW_PORT_SENT);
        do { /* the one that found it out comes late */
            assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
        } while (memcmp(got + 14, &i, sizeof(i)) != 0);
        check_frame(got, 60, i);
        close(packet);
    }
    run("ip link del x0");
    link_becomes(port, false);
    assert_int_equal(send_numbered(queue, 1), VW_PORT_GONE);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.fd, -1);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->close(port);
}

/* A frame that waits for an interface to come up cost a thousand wake-ups a second. */
static void an_interface_that_is_down_is_tried_less_and_less_often(void **state)
{
    struct vw_port_wait wait;
    int milliseconds = 0;

    (void)state;
    make_pair();
    struct vw_port *port = open_afxdp();
    struct vw_port_queue *queue = port->queues[0];
    run("ip link set x0 down");
    link_becomes(port, false);
    send_numbered(queue, 1); /* finds it out, and waits */
    for (unsigned tries = 0; tries < 20; tries++) {
        port->ops->want(queue, true, false, &wait);
        assert_in_range(wait.timeout_ms, 1, 1000);
        milliseconds += wait.timeout_ms;
    }
    assert_true(milliseconds > 1000);
    run("ip link set x0 up");
    link_becomes(port, true);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->close(port);
    remove_pair();
}

static void the_interface_is_given_back(void **state)
{
    (void)state;
    make_pair();
    for (unsigned i = 0; i < 3; i++) {
        struct vw_port *port = open_afxdp();

        refused("afxdp,if=x0", 1, -EBUSY, "another XDP program, or AF_XDP socket");
        port->ops->close(port);
        run("test -z \"$(ip -d link show x0 | grep xdp)\"");
    }
    remove_pair();
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    make_pair();
    refused("afxdp", 1, -EINVAL, "give the interface");
    refused("afxdp,if=nobody", 1, -ENODEV, "there is no such interface");
    refused("afxdp,if=x0,queue=7", 1, -EINVAL, "no such queue");
    refused("afxdp,if=x0,queue=9999", 1, -EINVAL, "from 0 to 4095");
    refused("afxdp,if=x0", 2, -EINVAL, "one queue pair");
    run("ip link set x0 mtu 9000");
    refused("afxdp,if=x0", 1, -EMSGSIZE, "is too large for AF_XDP");
    refused("null,if=x0", 1, -EINVAL, "not for this kind");
    remove_pair();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_from_the_interface),
        cmocka_unit_test(lent_frames_are_left_alone),
        cmocka_unit_test(frames_to_the_interface),
        cmocka_unit_test(frames_that_do_not_fit_are_refused),
        cmocka_unit_test(down_up_and_deleted),
        cmocka_unit_test(an_interface_that_is_down_is_tried_less_and_less_often),
        cmocka_unit_test(the_interface_is_given_back),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    if (unshare(CLONE_NEWNET) != 0) { /* a user namespace's root may not load programs */
        printf("1..0 # SKIP AF_XDP needs root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
