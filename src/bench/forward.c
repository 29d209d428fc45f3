/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire bench forward TAP NAMESPACE TAP`: what a plain program does between two TAPs, a read
 * and a write a frame, without any device. The second TAP is made in the namespace of that file.
 * Both have virtio-net headers, so that large frames and partial checksums go through as they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/helpers.h"

/* A header, Ethernet, and the longest IP packet. */
#define LARGEST (12 + 14 + 65535)

static int bring_up(struct ifreq *request)
{
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result;

    request->ifr_flags = IFF_UP;
    result = control >= 0 ? ioctl(control, SIOCSIFFLAGS, request) : -1;
    if (control >= 0)
        close(control);
    return result;
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0 ||
        ioctl(tap, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) < 0 ||
        bring_up(&request) < 0)
        return -1;
    return tap;
}

static int enter(const char *path)
{
    int network = open(path, O_RDONLY | O_CLOEXEC), result;

    if (network < 0)
        return -1;
    result = setns(network, CLONE_NEWNET);
    close(network);
    return result;
}

/* Until there are no more. What the other side does not take is lost, as on a wire. */
static void forward(int from, int to)
{
    char frame[LARGEST];
    ssize_t length;

    while ((length = read(from, frame, sizeof(frame))) > 0)
        (void)!write(to, frame, (size_t)length);
}

int bench_forward(int argc, char **argv)
{
    struct pollfd wait[2] = {{.events = POLLIN}, {.events = POLLIN}};

    if (argc != 4) {
        fprintf(stderr, "usage: virtwire bench forward TAP NAMESPACE TAP\n");
        return 2;
    }
    if ((wait[0].fd = open_tap(argv[1])) < 0 || enter(argv[2]) < 0 ||
        (wait[1].fd = open_tap(argv[3])) < 0) {
        fprintf(stderr, "virtwire bench forward: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    fprintf(stderr, "forwarding\n");
    while (poll(wait, 2, -1) > 0) {
        forward(wait[0].fd, wait[1].fd);
        forward(wait[1].fd, wait[0].fd);
    }
    return EXIT_FAILURE;
}
