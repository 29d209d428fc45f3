/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests of the TAP port against the kernel, in a network namespace of their own that
 * vanishes with the test. The kernel's side of an interface is driven by packet and UDP sockets,
 * and its state by `ip` and `tc`.
 */
#ifndef VW_TESTS_TAP_LAB_H
#define VW_TESTS_TAP_LAB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "net/uapi.h"
#include "port/port.h"

/* An EtherType for local experiments (IEEE 802), which nothing in the kernel sends by itself. */
#define TEST_TYPE 0x88b5

/* How long an event may take that must come. Reached only by a failure. */
#define PATIENCE_MS 60000

#define PEER_MAC "\x02\x00\x00\x00\x00\x02"

static inline void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline void run(const char *format, ...)
{
    char command[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    int status = system(command);
    if (status != 0)
        fail_msg("'%s' ended with status %d", command, status);
}

/* The way of reading and writing (io=) that this run of the test is about. */
static inline const char *test_io(void)
{
    const char *io = getenv("VW_TEST_IO");

    return io != NULL ? io : "auto";
}

static inline bool with_ring(void)
{
    return strcmp(test_io(), "uring") == 0;
}

/* False, with the line that the test protocol wants, where the kernel has no io_uring for TAPs. */
static inline bool io_works(void)
{
    struct vw_port *port = NULL;
    char error[256] = "";

    if (!with_ring())
        return true;
    vw_port_open("tap,io=uring", 1, NULL, &port, error, sizeof(error));
    if (port == NULL)
        printf("1..0 # SKIP %s\n", error);
    else
        port->ops->close(port);
    return port != NULL;
}

static inline struct vw_port *open_port(const char *wanted, unsigned queues)
{
    struct vw_port *port = NULL;
    char error[256] = "", description[128];

    snprintf(description, sizeof(description), "%s,io=%s", wanted, test_io());
    vw_port_open(description, queues, NULL, &port, error, sizeof(error));
    assert_string_equal(error, "");
    assert_non_null(port);
    return port;
}

static inline void refused(const char *description, unsigned queues, int expected,
                           const char *reason)
{
    struct vw_port *port = NULL;
    char error[256] = "";
    int result = vw_port_open(description, queues, NULL, &port, error, sizeof(error));

    if (result != expected || port != NULL || strstr(error, reason) == NULL)
        fail_msg("'%s' gave %d and \"%s\"", description, result, error);
}

static inline int ioctl_socket(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    return fd;
}

/* The interface's flags, or 0 if there is none. */
static inline unsigned interface_flags(const char *name)
{
    struct ifreq request = {0};
    int fd = ioctl_socket();

    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    int result = ioctl(fd, SIOCGIFFLAGS, &request);
    close(fd);
    return result == 0 ? (unsigned short)request.ifr_flags : 0;
}

static inline void interface_mac(const char *name, unsigned char *mac)
{
    struct ifreq request = {0};
    int fd = ioctl_socket();

    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &request), 0);
    memcpy(mac, request.ifr_hwaddr.sa_data, 6);
    close(fd);
}

static inline int tun_open(const char *name, unsigned flags)
{
    struct ifreq request = {0};
    uint16_t value = (uint16_t)flags;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    memcpy(&request.ifr_flags, &value, sizeof(value));
    assert_int_equal(ioctl(fd, TUNSETIFF, &request), 0);
    return fd;
}

/* A packet socket on the kernel's side that sees frames of the test's type only. */
static inline int packet_socket(const char *name, int type)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons((uint16_t)type),
        .sll_ifindex = (int)if_nametoindex(name),
    };
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int size = 8 << 20;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(address.sll_ifindex > 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    return fd;
}

/* A frame whose bytes all depend on its number. */
static inline void fill_frame(unsigned char *bytes, size_t length, uint32_t number)
{
    memcpy(bytes, "\xff\xff\xff\xff\xff\xff" PEER_MAC "\x88\xb5", 14);
    memcpy(bytes + 14, &number, 4);
    for (size_t i = 18; i < length; i++)
        bytes[i] = (unsigned char)(i * 7 + number * 13);
}

static inline void check_frame(const unsigned char *bytes, size_t length, uint32_t number)
{
    unsigned char expected[1600];

    assert_true(length <= sizeof(expected));
    fill_frame(expected, length, number);
    assert_memory_equal(bytes, expected, length);
}

static inline size_t length_of(uint32_t number)
{
    return 60 + number * 37 % 1455; /* 60 to 1514 */
}

/* Transmits one frame given as a header and bytes; false if the port did not take it. */
static inline bool transmit(struct vw_port_queue *queue, const void *header, void *bytes,
                            size_t length)
{
    unsigned char copy[VW_PORT_HEADER] = {0};
    struct iovec iov[2] = {{copy, sizeof(copy)}, {bytes, length}};
    struct vw_frame frame = {iov, 2, (uint32_t)length};

    if (header != NULL)
        memcpy(copy, header, sizeof(copy));
    return queue->port->ops->transmit(queue, &frame, 1) == 1;
}

static inline enum vw_port_result completed(struct vw_port_queue *queue)
{
    enum vw_port_result result = VW_PORT_RESULT_COUNT;

    assert_int_equal(queue->port->ops->complete(queue, &result, 1), 1);
    return result;
}

static inline enum vw_port_result send_numbered(struct vw_port_queue *queue, uint32_t number)
{
    unsigned char bytes[1600];

    fill_frame(bytes, 60, number);
    assert_true(transmit(queue, NULL, bytes, 60));
    return completed(queue);
}

/* Waits as the queue says. Returns false if there is nothing to wait for. */
static inline bool wait_as_wanted(struct vw_port_queue *queue, bool receive, bool send)
{
    struct vw_port_wait wait;

    queue->port->ops->want(queue, receive, send, &wait);
    if (wait.fd < 0 && wait.timeout_ms < 0)
        return false;
    struct pollfd item = {.fd = wait.fd, .events = (short)wait.events};
    int ready = poll(&item, 1, wait.timeout_ms < 0 ? PATIENCE_MS : wait.timeout_ms);
    if (ready == 0 && wait.timeout_ms < 0)
        fail_msg("nothing arrived");
    return true;
}

/* The next frame of this type; others, which the kernel sends of its own accord, are passed by. */
static inline struct vw_frame receive_type(struct vw_port_queue *queue, uint16_t type)
{
    struct vw_frame frame;

    for (;;) {
        if (queue->port->ops->receive(queue, &frame, 1) == 0) {
            assert_true(wait_as_wanted(queue, true, false));
            continue;
        }
        const unsigned char *bytes = frame.iov[1].iov_base;
        if (bytes[12] == type >> 8 && bytes[13] == (type & 0xff))
            return frame;
        queue->port->ops->release(queue, 1);
    }
}

static inline void link_event(struct vw_port *port)
{
    struct pollfd item = {.fd = port->link_fd, .events = POLLIN};

    assert_int_equal(poll(&item, 1, PATIENCE_MS), 1);
}

/* Reads link events until the state is this one. */
static inline void link_becomes(struct vw_port *port, bool up)
{
    while (port->link_up != up) {
        link_event(port);
        bool before = port->link_up;
        assert_true(port->link_changed(port) == (port->link_up != before));
    }
}

/* ---- IPv4 and UDP by hand ---------------------------------------------------------------- */

#define IP_OFFSET 14
#define UDP_OFFSET 34
#define UDP_DATA 42

static inline uint32_t sum_words(const unsigned char *bytes, size_t length, uint32_t sum)
{
    for (size_t i = 0; i < length; i++)
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

static inline void put16(unsigned char *to, unsigned value)
{
    to[0] = (unsigned char)(value >> 8);
    to[1] = (unsigned char)value;
}

static inline uint32_t pseudo_sum(const unsigned char *frame, size_t length)
{
    return sum_words(frame + IP_OFFSET + 12, 8, 17 + (uint32_t)(length - UDP_OFFSET));
}

/* From 10.99.0.2 to 10.99.0.1, its UDP checksum not yet completed. Returns its length. */
static inline size_t udp_frame(unsigned char *frame, const char *to, size_t data)
{
    size_t length = UDP_DATA + data;

    memset(frame, 0, UDP_DATA);
    interface_mac(to, frame);
    memcpy(frame + 6, PEER_MAC "\x08\x00", 8);
    memcpy(frame + IP_OFFSET, "\x45\x00\x00\x00\x00\x00\x40\x00\x40\x11\x00\x00", 12);
    put16(frame + IP_OFFSET + 2, (unsigned)(length - IP_OFFSET));
    memcpy(frame + IP_OFFSET + 12, "\x0a\x63\x00\x02\x0a\x63\x00\x01", 8);
    put16(frame + IP_OFFSET + 10, ~sum_words(frame + IP_OFFSET, 20, 0) & 0xffff);
    put16(frame + UDP_OFFSET, 7000);
    put16(frame + UDP_OFFSET + 2, 7000);
    put16(frame + UDP_OFFSET + 4, (unsigned)(length - UDP_OFFSET));
    put16(frame + UDP_OFFSET + 6, pseudo_sum(frame, length));
    for (size_t i = 0; i < data; i++)
        frame[UDP_DATA + i] = (unsigned char)(i * 11);
    return length;
}

static const struct virtio_net_hdr_v1 udp_partial = {
    .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
    .csum_start = UDP_OFFSET,
    .csum_offset = 6,
};

/* The kernel's end: 10.99.0.1, port 7000, connected to 10.99.0.2 behind the TAP. */
static inline int udp_socket(const char *name)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7000)};
    struct sockaddr_in there = here;
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int fd = ioctl_socket();

    run("ip addr add 10.99.0.1/24 dev %s", name);
    run("ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev %s nud permanent", name);
    here.sin_addr.s_addr = inet_addr("10.99.0.1");
    there.sin_addr.s_addr = inet_addr("10.99.0.2");
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&there, sizeof(there)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    return fd;
}

static inline struct virtio_net_hdr_v1 header_of(const struct vw_frame *frame)
{
    struct virtio_net_hdr_v1 header;

    assert_int_equal(frame->iov[0].iov_len, sizeof(header));
    memcpy(&header, frame->iov[0].iov_base, sizeof(header));
    return header;
}

static inline bool write_line(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line);

    if (fd >= 0)
        close(fd);
    return good;
}

/* Anyone may become root of a user namespace; `ip` is root in it, too, if our user id is mapped. */
static inline bool enter_user_namespace(void)
{
    char line[32];

    snprintf(line, sizeof(line), "0 %u 1", (unsigned)geteuid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_line("/proc/self/uid_map", line);
}

/*
 * A namespace of our own, as root or as root of a user namespace of our own. Without IPv6, since
 * the kernel would send frames of its own accord when an interface comes up: group reports, and
 * searches for routers and for owners of the same address.
 */
static inline bool enter_own_namespace(void)
{
    if (unshare(CLONE_NEWNET) != 0 && !enter_user_namespace()) {
        perror("a network namespace for the test");
        return false;
    }
    write_line("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"); /* not there: no IPv6 at all */
    return true;
}

/*
 * Mounts from here on are seen by nobody else. In a chroot the root of all mounts lies above our
 * own root: then we go up to it for that, and come back.
 */
static inline bool enter_own_mounts(void)
{
    struct stat here, above;

    if (unshare(CLONE_NEWNS) != 0)
        return false;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        return true;
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = root >= 0 && chroot("/proc") == 0 && fchdir(root) == 0;
    while (good && stat(".", &here) == 0 && stat("..", &above) == 0 &&
           (here.st_dev != above.st_dev || here.st_ino != above.st_ino))
        good = chdir("..") == 0;
    good = good && chroot(".") == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    good = good && fchdir(root) == 0 && chroot(".") == 0;
    if (root >= 0)
        close(root);
    return good;
}

/* Waits until a bridge forwards what this port sends: the kernel sees to it in its own time. */
static inline void bridge_port_forwards(const char *name)
{
    run("until bridge link show dev %s | grep -q 'state forwarding'; do sleep 0.01; done", name);
}

#endif
