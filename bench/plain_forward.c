/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measure for bench/coalesce: frames from one TAP to another and back, each with a read() and a
 * write(), without virtio-net headers. Usage: plain_forward TAP TAP
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int open_tap(const char *name)
{
    struct ifreq request;
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    memset(&request, 0, sizeof(request));
    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    return tap >= 0 && ioctl(tap, TUNSETIFF, &request) == 0 ? tap : -1;
}

/* Until there are no more. What the other side does not take is lost, as on a wire. */
static void forward(int from, int to)
{
    static char frame[65536];
    ssize_t length;

    while ((length = read(from, frame, sizeof(frame))) > 0)
        (void)!write(to, frame, (size_t)length);
}

int main(int argc, char **argv)
{
    struct pollfd wait[2];

    if (argc != 3)
        return fprintf(stderr, "usage: %s TAP TAP\n", argv[0]), 2;
    for (int i = 0; i < 2; i++) {
        wait[i] = (struct pollfd){.fd = open_tap(argv[i + 1]), .events = POLLIN};
        if (wait[i].fd < 0)
            return perror(argv[i + 1]), 1;
    }
    while (poll(wait, 2, -1) > 0) {
        forward(wait[0].fd, wait[1].fd);
        forward(wait[1].fd, wait[0].fd);
    }
    return 1;
}
