/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a lone frame takes when everybody sleeps: from vw_tx_burst until it is completed, and,
 * with a device on a loop, until it is back. Beside it the bare wake-up that this cannot be faster
 * than: an eventfd is written, and another thread, which slept in epoll_wait, says that it is
 * awake. Both are measured in turn, after naps of the same lengths.
 *
 *   lone_frame SOCKET [FRAMES [loop|sink [CPU]]]
 *
 * CPU is where the other thread sleeps: that of the device, for a fair comparison. Prints one line
 * of JSON, in microseconds.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <virtwire/net.h>

#define LENGTH 60
#define HEADROOM 32
#define PATIENCE_MS 1000

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Long enough for every thread to be asleep, and never in step with a timer of somebody's. */
static void nap(void)
{
    long length = 5000000 + rand() % 10000000;

    nanosleep(&(struct timespec){.tv_nsec = length}, NULL);
}

/* ---- the bare wake-up ------------------------------------------------------------------------ */

struct sleeper {
    int event, epoll, cpu;  /* cpu -1: anywhere */
    _Atomic uint64_t woken; /* when */
    atomic_bool end;
};

static void *sleep_again_and_again(void *argument)
{
    struct sleeper *sleeper = argument;
    struct epoll_event event;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sleeper->cpu >= 0) {
        CPU_SET((unsigned)sleeper->cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    }
    while (!atomic_load(&sleeper->end))
        if (epoll_wait(sleeper->epoll, &event, 1, -1) == 1)
            atomic_store(&sleeper->woken, now());
    return NULL;
}

static int sleeper_start(struct sleeper *sleeper, pthread_t *thread)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};

    sleeper->event = eventfd(0, EFD_NONBLOCK);
    sleeper->epoll = epoll_create1(0);
    if (sleeper->event < 0 || sleeper->epoll < 0 ||
        epoll_ctl(sleeper->epoll, EPOLL_CTL_ADD, sleeper->event, &event) < 0)
        return -1;
    return pthread_create(thread, NULL, sleep_again_and_again, sleeper);
}

static uint64_t wake_up(struct sleeper *sleeper)
{
    atomic_store(&sleeper->woken, 0);
    uint64_t start = now(), woken;
    (void)!eventfd_write(sleeper->event, 1);
    while ((woken = atomic_load(&sleeper->woken)) == 0)
        ;
    return woken - start;
}

/* ---- the frame ------------------------------------------------------------------------------- */

struct lone {
    struct vw_net *net;
    unsigned completed, back;
};

static void on_done(void *context, unsigned pair, void *token, int sent)
{
    struct lone *lone = context;

    (void)pair, (void)token, (void)sent;
    lone->completed++;
}

static void on_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct lone *lone = context;

    lone->back += count;
    vw_rx_release(lone->net, pair, packets, count);
}

/* Sends a frame; how long until it was completed, and until it was back. */
static int send_one(struct lone *lone, const struct vw_tx_packet *packet, int loop,
                    uint64_t *completed, uint64_t *back)
{
    uint64_t start = now();

    lone->completed = lone->back = 0;
    *completed = *back = 0;
    if (vw_tx_burst(lone->net, 0, packet, 1, 0) != 1)
        return -1;
    for (;;) {
        if (vw_poll(lone->net, 0, 64, on_frames, lone) < 0)
            return -1;
        if (lone->completed && *completed == 0)
            *completed = now() - start;
        if (lone->back && *back == 0)
            *back = now() - start;
        if (*completed != 0 && (*back != 0 || !loop))
            return 0;
        if (vw_wait(lone->net, 0, PATIENCE_MS) != 1)
            return -1;
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void print(const char *name, uint64_t *times, unsigned count)
{
    qsort(times, count, sizeof(*times), compare);
    printf("\"%s\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"max\": %.1f}", name,
           (double)times[count / 2] / 1e3, (double)times[count * 9 / 10] / 1e3,
           (double)times[count * 99 / 100] / 1e3, (double)times[count - 1] / 1e3);
}

int main(int argc, char **argv)
{
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 500;
    int loop = argc > 3 && strcmp(argv[3], "loop") == 0;
    struct sleeper sleeper = {.cpu = argc > 4 ? atoi(argv[4]) : -1};
    struct lone lone = {0};
    struct vw_net_options options;
    struct vw_rx_counters rx;
    pthread_t thread;
    char error[256] = "";

    if (argc < 2 || count == 0) {
        fprintf(stderr, "usage: lone_frame SOCKET [FRAMES [loop|sink [CPU]]]\n");
        return 2;
    }
    uint64_t *bare = calloc(count, sizeof(*bare)), *completed = calloc(count, sizeof(*completed)),
             *back = calloc(count, sizeof(*back));
    vw_net_options_init(&options);
    options.socket_path = argv[1];
    options.tx_done = on_done;
    options.tx_context = &lone;
    if (!bare || !completed || !back || sleeper_start(&sleeper, &thread) != 0 ||
        vw_net_open(&options, &lone.net, error, sizeof(error)) != 0) {
        fprintf(stderr, "lone_frame: cannot start: %s\n", error);
        return 1;
    }
    uint8_t *frame = (uint8_t *)vw_alloc(lone.net, HEADROOM + LENGTH) + HEADROOM;
    struct vw_piece piece = {frame, LENGTH};
    const struct vw_tx_packet packet = {.pieces = &piece, .piece_count = 1, .headroom = HEADROOM};

    memset(frame, 0, LENGTH);
    memcpy(frame, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5", 14);
    for (unsigned i = 0; i < count; i++) {
        nap();
        bare[i] = wake_up(&sleeper);
        nap();
        if (send_one(&lone, &packet, loop, &completed[i], &back[i]) != 0) {
            fprintf(stderr, "lone_frame: frame %u did not come through\n", i);
            return 1;
        }
    }
    vw_counters(lone.net, 0, NULL, &rx);
    printf("{\"frames\": %u, ", count);
    print("wake_up", bare, count);
    printf(", ");
    print("completed", completed, count);
    if (loop) {
        printf(", ");
        print("back", back, count);
    }
    printf(", \"spins_found\": %llu, \"spins_vain\": %llu, \"sleeps\": %llu}\n",
           (unsigned long long)rx.spins_found, (unsigned long long)rx.spins_vain,
           (unsigned long long)rx.sleeps);
    atomic_store(&sleeper.end, true);
    (void)!eventfd_write(sleeper.event, 1);
    pthread_join(thread, NULL);
    vw_net_close(lone.net);
    free(bare);
    free(completed);
    free(back);
    return 0;
}
