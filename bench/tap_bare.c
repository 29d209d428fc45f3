/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel alone takes for frames of 64 bytes through a TAP, without any device around it:
 *
 *     tap_bare CORE [MILLISECONDS]
 *
 * prints nanoseconds a frame of writev() and read(), and of io_uring in batches of 64, as JSON. It
 * makes a TAP of its own in the network namespace in which it runs. The frames that are read wait
 * in the interface before the clock starts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define FRAME 64
#define HEADER 12
#define WAITING 4096 /* frames that wait to be read in each turn */

static int tap, sender;
static struct io_uring ring;
static char headers[BATCH][HEADER], frames[BATCH][FRAME], received[BATCH][2048];
static struct iovec pieces[BATCH][2];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void set_up_link(const char name[IFNAMSIZ])
{
    struct ifreq request = {.ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(request.ifr_name, name, IFNAMSIZ);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        die("set the interface up");
    request.ifr_qlen = 2 * WAITING;
    if (ioctl(fd, SIOCSIFTXQLEN, &request) < 0)
        die("set the length of its queue");
    close(fd);
}

static void open_tap(void)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "bare%d"};
    int header = HEADER, sndbuf = INT_MAX;

    tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0 ||
        ioctl(tap, TUNSETVNETHDRSZ, &header) < 0 || ioctl(tap, TUNSETSNDBUF, &sndbuf) < 0)
        die("open a TAP");
    set_up_link(request.ifr_name);

    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_ifindex = (int)if_nametoindex(request.ifr_name)};
    int on = 1;
    sender = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (sender < 0 || bind(sender, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        setsockopt(sender, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) < 0)
        die("open a packet socket");
}

static void make_frames(void)
{
    for (int i = 0; i < BATCH; i++) {
        memcpy(frames[i], "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5", 14); /* nobody's address */
        pieces[i][0] = (struct iovec){headers[i], HEADER};
        pieces[i][1] = (struct iovec){frames[i], FRAME};
    }
}

static unsigned submit(void)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0, good = 0;

    if (io_uring_submit(&ring) != BATCH)
        die("submit");
    io_uring_for_each_cqe(&ring, head, cqe)
    {
        count++;
        good += cqe->res > 0;
    }
    io_uring_cq_advance(&ring, count);
    return good;
}

static unsigned write_singly(void)
{
    for (int i = 0; i < BATCH; i++)
        if (writev(tap, pieces[i], 2) < 0)
            die("write");
    return BATCH;
}

static unsigned write_batch(void)
{
    for (int i = 0; i < BATCH; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

        io_uring_prep_writev(sqe, tap, pieces[i], 2, 0);
        sqe->rw_flags = RWF_NOWAIT;
    }
    if (submit() != BATCH)
        die("write through io_uring");
    return BATCH;
}

static unsigned read_singly(void)
{
    unsigned good = 0;

    for (int i = 0; i < BATCH; i++)
        good += read(tap, received[i], sizeof(received[i])) > 0;
    return good;
}

static unsigned read_batch(void)
{
    for (int i = 0; i < BATCH; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

        io_uring_prep_read(sqe, tap, received[i], sizeof(received[i]), 0);
        sqe->rw_flags = RWF_NOWAIT;
    }
    return submit();
}

/* Puts frames into the interface, for the next ones to read. */
static void fill(void)
{
    for (int i = 0; i < WAITING; i++)
        if (send(sender, frames[0], FRAME, 0) < 0)
            die("send");
}

static double measure(unsigned (*batch)(void), bool reads, double nanoseconds)
{
    double spent = 0, count = 0;

    while (spent < nanoseconds) {
        if (reads)
            fill();
        double start = now_ns();
        for (int i = 0; i < WAITING / BATCH; i++)
            count += batch();
        spent += now_ns() - start;
    }
    return spent / count;
}

int main(int argc, char **argv)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN};
    cpu_set_t core;

    if (argc < 2) {
        fprintf(stderr, "usage: tap_bare CORE [MILLISECONDS]\n");
        return 2;
    }
    double time = 1e6 * (argc > 2 ? atof(argv[2]) : 100);
    CPU_ZERO(&core);
    CPU_SET((size_t)atoi(argv[1]), &core);
    if (sched_setaffinity(0, sizeof(core), &core) < 0)
        die("pin to the core");
    make_frames();
    open_tap();
    if (io_uring_queue_init_params(BATCH, &ring, &params) < 0)
        die("io_uring");
    double results[4] = {measure(write_singly, false, time), measure(write_batch, false, time),
                         measure(read_singly, true, time), measure(read_batch, true, time)};
    printf("{\"write_ns\": %.1f, \"uring_write_ns\": %.1f, \"read_ns\": %.1f, "
           "\"uring_read_ns\": %.1f}\n",
           results[0], results[1], results[2], results[3]);
    return 0;
}
