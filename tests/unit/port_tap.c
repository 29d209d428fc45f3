/* SPDX-License-Identifier: BSD-3-Clause */
/* The TAP port against the kernel: opening an interface, and watching its link. */
#include <libmnl/libmnl.h>

#include "tap_lab.h"

/*
 * In front of libmnl's: on demand it gives the monitor one message in each turn, as if the others
 * had not yet arrived, so that what each one does can be seen.
 */
static bool one_in_a_turn;

ssize_t mnl_socket_recvfrom(const struct mnl_socket *socket, void *buffer, size_t size)
{
    static bool given;

    if (one_in_a_turn && given) {
        given = false;
        errno = EAGAIN;
        return -1;
    }
    given = one_in_a_turn;
    return recv(mnl_socket_get_fd(socket), buffer, size, 0);
}

static void a_new_interface_is_set_up_and_vanishes(void **state)
{
    struct vw_port *port = open_port("tap,name=tnew,mtu=1400", 0);

    (void)state;
    assert_string_equal(port->description, "tap tnew");
    assert_true(interface_flags("tnew") & IFF_UP);
    assert_true(port->link_up);
    assert_true(port->link_fd >= 0);
    assert_int_equal(port->mtu, 1400);
    assert_int_equal(port->queue_count, 1);
    port->ops->close(port);
    assert_int_equal(if_nametoindex("tnew"), 0);
}

static void the_kernel_chooses_a_name(void **state)
{
    struct vw_port *first = open_port("tap", 0);
    struct vw_port *second = open_port("tap", 0);

    (void)state;
    assert_string_equal(first->description, "tap vw0");
    assert_string_equal(second->description, "tap vw1");
    assert_int_equal(first->mtu, 1500);
    first->ops->close(first);
    second->ops->close(second);
}

/* Leaves an interface behind whose last user set everything differently. */
static void make_persistent(const char *name, unsigned flags)
{
    int header = 10, sndbuf = 1000;
    int fd = tun_open(name, flags);

    assert_int_equal(ioctl(fd, TUNSETVNETHDRSZ, &header), 0);
    assert_int_equal(ioctl(fd, TUNSETSNDBUF, &sndbuf), 0);
    assert_int_equal(ioctl(fd, TUNSETOFFLOAD, (unsigned long)TUN_F_CSUM), 0);
    assert_int_equal(ioctl(fd, TUNSETPERSIST, 1UL), 0);
    close(fd);
}

static void an_existing_interface_is_used_and_stays(void **state)
{
    struct vw_port_wait wait;
    int value = 0;

    (void)state;
    make_persistent("tkeep", IFF_TAP | IFF_NO_PI);
    struct vw_port *port = open_port("tap,name=tkeep", 1);
    assert_false(interface_flags("tkeep") & IFF_UP); /* it was down; it belongs to someone else */
    assert_false(port->link_up);
    port->ops->want(port->queues[0], true, false, &wait);
    assert_int_equal(ioctl(wait.fd, TUNGETVNETHDRSZ, &value), 0);
    assert_int_equal(value, VW_PORT_HEADER);
    assert_int_equal(ioctl(wait.fd, TUNGETVNETLE, &value), 0);
    assert_int_equal(value, 1);
    assert_int_equal(ioctl(wait.fd, TUNGETSNDBUF, &value), 0);
    assert_int_equal(value, INT_MAX);
    assert_true(fcntl(wait.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(wait.fd, F_GETFD) & FD_CLOEXEC);
    /* The last user's checksum offload is gone: the kernel completes the checksum. */
    run("ip link set tkeep up");
    link_becomes(port, true);
    int udp = udp_socket("tkeep");
    assert_int_equal(send(udp, "stale", 5, 0), 5);
    struct vw_frame frame = receive_type(port->queues[0], ETH_P_IP);
    assert_int_equal(header_of(&frame).flags, 0);
    close(udp);
    port->ops->close(port);

    port = open_port("tap,name=tkeep,mtu=1300", 1);
    assert_int_equal(port->mtu, 1300);
    assert_true(port->link_up);
    port->ops->close(port);
    assert_true(interface_flags("tkeep") & IFF_UP);
    run("ip link del tkeep");
}

static void queues_must_suit_an_existing_interface(void **state)
{
    (void)state;
    make_persistent("tone", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    refused("tap,name=tone,queues=2", 0, -EINVAL, "has a single queue");
    make_persistent("tmany", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE);
    for (unsigned queues = 1; queues <= 3; queues++) {
        struct vw_port *port = open_port("tap,name=tmany", queues);

        assert_int_equal(port->queue_count, queues);
        port->ops->close(port);
    }
    run("ip link del tone");
    run("ip link del tmany");
}

static void an_interface_in_use_is_refused(void **state)
{
    struct vw_port *one = open_port("tap,name=tone", 1);
    struct vw_port *many = open_port("tap,name=tmany", 2);

    (void)state;
    refused("tap,name=tone", 1, -EBUSY, "tone is already used by another program");
    refused("tap,name=tmany", 2, -EBUSY, "tmany is already used by another program");
    assert_int_equal(send_numbered(one->queues[0], 1), VW_PORT_SENT); /* and it is unharmed */
    one->ops->close(one);
    many->ops->close(many);
}

static void other_interfaces_are_refused(void **state)
{
    int fd = tun_open("ttun", IFF_TUN);

    (void)state;
    refused("tap,name=lo", 1, -EINVAL, "lo exists and is not a TAP");
    refused("tap,name=ttun", 1, -EINVAL, "ttun exists and is not a TAP");
    close(fd);
    refused("tap,name=tmtu,mtu=65535", 1, -EINVAL, "cannot set the MTU");
    assert_int_equal(if_nametoindex("tmtu"), 0); /* nothing half made is left */
}

static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};

    if (syscall(SYS_capset, &header, none) != 0)
        _exit(2);
}

static void without_the_capability_it_says_so(void **state)
{
    int status;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        struct vw_port *port;
        char error[256] = "";

        drop_capabilities();
        int result = vw_port_open("tap,name=tperm", 1, NULL, &port, error, sizeof(error));
        _exit(result == -EPERM && strstr(error, "CAP_NET_ADMIN") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Made beforehand for its user, a TAP can be used without any privilege. */
static void its_owner_needs_no_capability(void **state)
{
    int fd = tun_open("towner", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR), status;

    (void)state;
    assert_int_equal(ioctl(fd, TUNSETOWNER, (unsigned long)geteuid()), 0);
    assert_int_equal(ioctl(fd, TUNSETPERSIST, 1UL), 0);
    close(fd);
    run("ip link set towner up");
    pid_t child = fork();
    if (child == 0) {
        struct vw_port *port;
        char error[256] = "";

        drop_capabilities();
        int result = vw_port_open("tap,name=towner", 1, NULL, &port, error, sizeof(error));
        _exit(result == 0 && port->link_up && port->features != 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run("ip link del towner");
}

static void descriptors_can_be_inherited(void **state)
{
    unsigned flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
    int first = tun_open("tinh", flags), second = tun_open("tinh", flags);
    unsigned char bytes[64];
    char description[64];

    (void)state;
    snprintf(description, sizeof(description), "tap,fd=%d:%d,mtu=1450", first, second);
    struct vw_port *port = open_port(description, 2);
    assert_string_equal(port->description, "tap tinh");
    assert_int_equal(port->mtu, 1450);
    assert_false(port->link_up); /* nobody set it up, and it is not ours to do so */
    assert_true(fcntl(first, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(second, F_GETFL) & O_NONBLOCK);
    run("ip link set tinh up");
    link_becomes(port, true);
    int packet = packet_socket("tinh", TEST_TYPE);
    assert_int_equal(send_numbered(port->queues[1], 5), VW_PORT_SENT);
    assert_int_equal(recv(packet, bytes, sizeof(bytes), 0), 60);
    check_frame(bytes, 60, 5);
    close(packet);
    port->ops->close(port);
    assert_int_equal(fcntl(first, F_GETFD), -1); /* they belonged to the port */
    assert_int_equal(fcntl(second, F_GETFD), -1);
}

static void refused_fds(int first, int second, const char *reason)
{
    char description[64];

    if (second < 0)
        snprintf(description, sizeof(description), "tap,fd=%d", first);
    else
        snprintf(description, sizeof(description), "tap,fd=%d:%d", first, second);
    refused(description, 0, -EINVAL, reason);
    assert_true(fcntl(first, F_GETFD) >= 0); /* still whose they were */
    if (second >= 0)
        assert_true(fcntl(second, F_GETFD) >= 0);
}

static void wrong_descriptors_are_refused(void **state)
{
    unsigned good = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    int fds[2];
    int unattached = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    int tun = tun_open("tw0", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR);
    int plain = tun_open("tw1", IFF_TAP | IFF_NO_PI);
    int with_information = tun_open("tw2", IFF_TAP | IFF_VNET_HDR);
    int single = tun_open("tw3", good);
    int many = tun_open("tw4", good | IFF_MULTI_QUEUE);
    int other = tun_open("tw5", good | IFF_MULTI_QUEUE);

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    refused_fds(fds[0], -1, "not attached to a TAP");
    refused_fds(unattached, -1, "not attached to a TAP");
    refused_fds(tun, -1, "is a TUN");
    refused_fds(plain, -1, "without IFF_VNET_HDR");
    refused_fds(with_information, -1, "without IFF_NO_PI");
    refused_fds(single, many, "without IFF_MULTI_QUEUE");
    refused_fds(many, other, "belongs to tw5, the ones before it to tw4");
    refused_fds(many, fds[0], "not attached to a TAP");
    close(fds[0]);
    close(fds[1]);
    char description[64];
    snprintf(description, sizeof(description), "tap,fd=%d", fds[0]);
    refused(description, 0, -EBADF, "is not open");
    const int all[] = {unattached, tun, plain, with_information, single, many, other};
    for (unsigned i = 0; i < VW_ARRAY_SIZE(all); i++)
        close(all[i]);
}

static void an_interface_that_is_down(void **state)
{
    struct vw_port *port = open_port("tap,name=tdown", 1);
    struct vw_port_queue *queue = port->queues[0];

    (void)state;
    assert_false(port->link_changed(port) && !port->link_up);
    for (int i = 0; i < 3; i++) {
        run("ip link set tdown down");
        link_becomes(port, false);
        assert_int_equal(send_numbered(queue, 1), VW_PORT_DOWN);
        run("ip link set tdown up");
        link_becomes(port, true);
        assert_int_equal(send_numbered(queue, 2), VW_PORT_SENT);
    }
    assert_int_equal(queue->counters.transmit_down, 3);
    port->ops->close(port);
}

static void count_line(void *context, enum vw_log_level level, const char *line)
{
    (void)level;
    (void)line;
    ++*(unsigned *)context;
}

/* When a bridge lets its port go, the kernel says RTM_DELLINK about an interface that lives on. */
static void leaving_a_bridge_is_not_the_end(void **state)
{
    unsigned lines = 0;
    const struct vw_log log = {.function = count_line, .context = &lines, .level = VW_LOG_WARNING};
    struct vw_port *port;
    char error[256] = "";

    (void)state;
    assert_int_equal(vw_port_open("tap,name=tbport", 1, &log, &port, error, sizeof(error)), 0);
    run("ip link add tbr type bridge");
    run("ip link set tbport master tbr");
    run("ip link set tbport nomaster");
    link_event(port);
    one_in_a_turn = true;
    for (struct pollfd item = {.fd = port->link_fd, .events = POLLIN}; poll(&item, 1, 0) == 1;) {
        assert_false(port->link_changed(port));
        assert_true(port->link_up);
    }
    one_in_a_turn = false;
    assert_int_equal(lines, 0); /* nor was it taken to have moved away */
    run("ip link set tbport down");
    link_becomes(port, false);
    run("ip link set tbport up");
    link_becomes(port, true);
    run("ip link del tbr");
    port->ops->close(port);
}

/* The monitor's socket overflows when nobody reads it; the state is found out all the same. */
static void lost_link_events_are_made_up_for(void **state)
{
    struct vw_port *port = open_port("tap,name=tlost", 1);
    int small = 1;

    (void)state;
    assert_int_equal(setsockopt(port->link_fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    for (int i = 0; i < 10; i++) {
        run("ip link set tlost up");
        run("ip link set tlost down");
    }
    link_becomes(port, false);
    for (int i = 0; i < 10; i++) {
        run("ip link set tlost down");
        run("ip link set tlost up");
    }
    link_becomes(port, true);
    for (int i = 0; i < 10; i++)
        run("ip link set tlost mtu %d", 1400 + i);
    run("ip link del tlost");
    link_becomes(port, false);
    port->ops->close(port);
}

/* A child that stays in another namespace until its pipe is closed. */
static pid_t other_namespace(int *keep)
{
    int ready[2], hold[2];
    char byte;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        close(hold[1]);
        if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    close(hold[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *keep = hold[1];
    return child;
}

static void an_interface_in_another_namespace(void **state)
{
    struct vw_port *port = open_port("tap,name=tmove", 1);
    int keep, status;
    pid_t child = other_namespace(&keep);
    char description[64];

    (void)state;
    run("ip link set tmove netns %d", (int)child);
    while (if_nametoindex("tmove") != 0)
        ;
    link_event(port);
    port->link_changed(port);
    assert_true(port->link_up); /* it is not deleted; we merely cannot see it */
    port->ops->close(port);

    int fd = tun_open("taway", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    run("ip link set taway netns %d", (int)child);
    int decoy = tun_open("taway", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    snprintf(description, sizeof(description), "tap,fd=%d,mtu=1400", fd);
    refused(description, 1, -ENODEV, "not in this network namespace");
    snprintf(description, sizeof(description), "tap,fd=%d", fd);
    port = open_port(description, 1);
    assert_int_equal(port->link_fd, -1);
    assert_int_equal(port->mtu, 0);
    assert_true(port->link_up);
    port->ops->close(port);
    close(decoy);
    close(keep);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_interface_is_set_up_and_vanishes),
        cmocka_unit_test(the_kernel_chooses_a_name),
        cmocka_unit_test(an_existing_interface_is_used_and_stays),
        cmocka_unit_test(queues_must_suit_an_existing_interface),
        cmocka_unit_test(an_interface_in_use_is_refused),
        cmocka_unit_test(other_interfaces_are_refused),
        cmocka_unit_test(without_the_capability_it_says_so),
        cmocka_unit_test(its_owner_needs_no_capability),
        cmocka_unit_test(descriptors_can_be_inherited),
        cmocka_unit_test(wrong_descriptors_are_refused),
        cmocka_unit_test(an_interface_that_is_down),
        cmocka_unit_test(leaving_a_bridge_is_not_the_end),
        cmocka_unit_test(lost_link_events_are_made_up_for),
        cmocka_unit_test(an_interface_in_another_namespace),
    };

    if (!enter_own_namespace())
        return 1;
    if (!io_works())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
