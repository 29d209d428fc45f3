/* SPDX-License-Identifier: BSD-3-Clause */
/* The TAP port on a macvtap interface, on a TAP with NAPI, and on one in a bridge. */
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tap_lab.h"

#define NODE "/tmp/macvtap"

static bool may_make_nodes;

/* mv0 on one end of a veth pair, whose other end is ve1. A node for it is made here: the one that
 * the kernel makes in /dev has a number which another namespace may use, too. */
static void make_macvtap(void)
{
    unsigned major, minor;

    run("ip link add ve0 type veth peer name ve1 && ip link set ve0 up && ip link set ve1 up");
    run("ip link add link ve0 name mv0 type macvtap mode bridge && ip link set mv0 up");
    FILE *file = popen("cat /sys/class/net/mv0/macvtap/tap*/dev", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%u:%u", &major, &minor), 2);
    pclose(file);
    assert_int_equal(mknod(NODE, S_IFCHR | 0600, makedev(major, minor)), 0);
}

static void macvtap(void **state)
{
    unsigned char bytes[1600], got[1600];

    (void)state;
    if (!may_make_nodes)
        skip();
    make_macvtap();
    struct vw_port *port = open_port("tap,path=" NODE ",queues=2", 2);
    assert_string_equal(port->description, "tap mv0");
    assert_int_equal(port->mtu, 1500);
    assert_true(port->link_up);
    int packet = packet_socket("ve1", TEST_TYPE);
    for (uint32_t n = 0; n < 100; n++) {
        fill_frame(bytes, length_of(n), n);
        assert_true(transmit(port->queues[n % 2], NULL, bytes, length_of(n)));
        assert_int_equal(completed(port->queues[n % 2]), VW_PORT_SENT);
        assert_int_equal(recv(packet, got, sizeof(got), 0), length_of(n));
        check_frame(got, length_of(n), n);
    }
    /* The kernel spreads flows over the queues; with one active they all come there. */
    assert_int_equal(port->ops->set_active_queues(port, 1), 0);
    for (uint32_t n = 0; n < 100; n++) {
        fill_frame(bytes, length_of(n), n);
        assert_int_equal(send(packet, bytes, length_of(n), 0), length_of(n));
        struct vw_frame frame = receive_type(port->queues[0], TEST_TYPE);
        assert_int_equal(frame.length, length_of(n));
        check_frame(frame.iov[1].iov_base, frame.length, n);
        port->ops->release(port->queues[0], 1);
    }
    assert_int_equal(port->ops->set_active_queues(port, 2), 0);
    assert_true(port->ops->set_guest_offloads(port, vw_bit(VIRTIO_NET_F_GUEST_CSUM)) ==
                (int64_t)vw_bit(VIRTIO_NET_F_GUEST_CSUM));
    run("ip link set mv0 down");
    link_becomes(port, false);
    run("ip link set mv0 up");
    link_becomes(port, true);
    run("ip link del mv0");
    link_becomes(port, false);
    assert_int_equal(send_numbered(port->queues[0], 1), VW_PORT_GONE);
    struct vw_frame frame;
    while (port->ops->receive(port->queues[0], &frame, 1) == 1)
        port->ops->release(port->queues[0], 1);
    assert_false(wait_as_wanted(port->queues[0], true, false));
    close(packet);
    port->ops->close(port);
    unlink(NODE);
    run("ip link del ve0");
}

static void wrong_paths_are_refused(void **state)
{
    (void)state;
    refused("tap,path=/nowhere/tap7", 1, -ENOENT, "path=/nowhere/tap7: No such file");
    refused("tap,path=/dev/null", 1, -ENOTTY, "not the device of a macvtap interface");
    refused("tap,path=/dev/net/tun", 1, -EINVAL, "for a TAP give name=");
    refused("tap,path=/tmp", 1, -EINVAL, "not the device of a macvtap interface");
    refused("tap,path=/dev/tap7,name=vw0", 1, -EINVAL, "give one of name, path and fd");
    refused("tap,path=/dev/tap7,napi=on", 1, -EINVAL, "napi= is for a TAP that is opened by");
    refused("tap,fd=0,napi=auto", 1, -EINVAL, "napi= is for a TAP that is opened by");
    refused("tap,napi=yes", 1, -EINVAL, "napi=yes: must be off, on or auto");
}

static bool has_napi(struct vw_port_queue *queue)
{
    struct vw_port_wait wait;
    struct ifreq request;

    memset(&request, 0, sizeof(request));
    queue->port->ops->want(queue, true, false, &wait);
    assert_int_equal(ioctl(wait.fd, TUNGETIFF, &request), 0);
    return (request.ifr_flags & IFF_NAPI) != 0;
}

static void napi(void **state)
{
    static const char *const wishes[] = {"off", "on", "auto"};

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(wishes); i++) {
        unsigned char got[100];
        char description[64], expected[16];

        snprintf(description, sizeof(description), "tap,name=tnapi,queues=2,napi=%s", wishes[i]);
        struct vw_port *port = open_port(description, 2);
        snprintf(expected, sizeof(expected), "napi=%s", i == 0 ? "off" : "on");
        assert_non_null(strstr(port->settings, expected));
        int packet = packet_socket("tnapi", TEST_TYPE);
        for (uint32_t n = 0; n < 50; n++) {
            assert_int_equal(has_napi(port->queues[n % 2]), i != 0);
            assert_int_equal(send_numbered(port->queues[n % 2], n), VW_PORT_SENT);
            assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
            check_frame(got, 60, n);
        }
        run("ip link set tnapi down");
        assert_int_equal(send_numbered(port->queues[0], 1), VW_PORT_DOWN);
        run("ip link del tnapi");
        assert_int_equal(send_numbered(port->queues[0], 1), VW_PORT_GONE);
        close(packet);
        port->ops->close(port);
    }
}

static void in_a_bridge(void **state)
{
    unsigned char got[100];

    (void)state;
    run("ip tuntap add dev tport mode tap vnet_hdr && ip link add tbr type bridge");
    run("ip link set tport master tbr && ip link set tport up && ip link set tbr up");
    struct vw_port *port = open_port("tap,name=tport", 1);
    int packet = packet_socket("tbr", TEST_TYPE);
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(send_numbered(port->queues[0], n), VW_PORT_SENT);
        assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
        check_frame(got, 60, n);
    }
    close(packet);
    port->ops->close(port);
    assert_true(interface_flags("tport") & IFF_UP); /* it was there before */
    run("ip link del tbr && ip link del tport");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(macvtap),
        cmocka_unit_test(wrong_paths_are_refused),
        cmocka_unit_test(napi),
        cmocka_unit_test(in_a_bridge),
    };

    if (!enter_own_namespace())
        return 1;
    if (!io_works())
        return 0;
    /* /sys and /tmp of our own: the one shows our interfaces, the other takes our node. */
    may_make_nodes = enter_own_mounts() && mount("sysfs", "/sys", "sysfs", 0, NULL) == 0 &&
                     mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 &&
                     mknod("/tmp/probe", S_IFCHR | 0600, makedev(1, 3)) == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
