/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "device/internal.h"
#include "device/interrupt.h"
#include "device/pair.h"

/* What woke the worker. */
enum wait_tag {
    WAIT_WAKE,
    WAIT_KICK_RECEIVE,
    WAIT_KICK_TRANSMIT,
    WAIT_PORT,
};

/* How often a ring is looked at whose front-end gave no way to kick. The shortest that epoll_wait
 * has; no front-end that we know uses it. */
#define POLL_INTERVAL_MS 1

/* Poll mode: so many turns without work pass between two looks at what else may have happened. The
 * system call costs a microsecond, as much as some fifty of those turns. */
#define SPINS_BETWEEN_LOOKS 4096

static int watch(int epoll_fd, int operation, int fd, uint32_t events, enum wait_tag tag)
{
    struct epoll_event event = {.events = events, .data.u32 = tag};

    return epoll_ctl(epoll_fd, operation, fd, &event) < 0 ? -errno : 0;
}

/* Makes the epoll set wait for what the port wants, touching it only if that changed. */
static void watch_port(struct vw_pair *pair, const struct vw_port_wait *want)
{
    if (want->fd == pair->port_fd && want->events == pair->port_events)
        return;
    if (pair->port_fd >= 0 && want->fd != pair->port_fd) {
        epoll_ctl(pair->epoll_fd, EPOLL_CTL_DEL, pair->port_fd, NULL);
        pair->port_fd = -1;
    }
    if (want->fd >= 0 && watch(pair->epoll_fd, pair->port_fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
                               want->fd, want->events, WAIT_PORT) == 0) {
        pair->port_fd = want->fd;
        pair->port_events = want->events;
    }
}

static void kicked(struct vw_pair *pair, struct vw_queue *queue)
{
    vw_count(&queue->counters.kicks, 1);
    if (queue->role == VW_QUEUE_TRANSMIT)
        pair->transmit_kicked = true;
}

/* Kicks that came as messages: the control thread counts them up, this thread follows. */
static void take_in_band_kicks(struct vw_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        uint32_t kicks = atomic_load(&pair->in_band_kicks[i]);

        for (; pair->in_band_seen[i] != kicks; pair->in_band_seen[i]++)
            kicked(pair, i == 0 ? pair->receive : pair->transmit);
    }
}

/* Waits for `timeout_ms` (-1: for ever), but not beyond a deadline of calls that were put off. Only
 * that is finer than a millisecond; a kernel before 5.11 is late by as much. */
static int wait_for_events(struct vw_pair *pair, struct epoll_event *events, int room,
                           int timeout_ms, uint64_t deadline)
{
    if (vw_likely(deadline == VW_NO_DEADLINE))
        return epoll_wait(pair->epoll_fd, events, room, timeout_ms);
    int64_t left = vw_coalescing_wait_ns(deadline);
    struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    int count = epoll_pwait2(pair->epoll_fd, events, room, &time, NULL);
    if (count < 0 && errno == ENOSYS)
        count = epoll_wait(pair->epoll_fd, events, room,
                           (int)(vw_min64((uint64_t)left, UINT64_C(1000000000)) / 1000000) + 1);
    return count;
}

static void sleep_until_event(struct vw_pair *pair, int timeout_ms, uint64_t deadline)
{
    struct epoll_event events[4];
    int count = wait_for_events(pair, events, VW_ARRAY_SIZE(events), timeout_ms, deadline);

    for (int i = 0; i < count; i++) {
        switch ((enum wait_tag)events[i].data.u32) {
        case WAIT_WAKE: /* edge-triggered: nothing to read */
            take_in_band_kicks(pair);
            break;
        case WAIT_KICK_RECEIVE:
            kicked(pair, pair->receive);
            break;
        case WAIT_KICK_TRANSMIT:
            kicked(pair, pair->transmit);
            break;
        case WAIT_PORT:
            break; /* level-triggered: the port is asked in the next round */
        }
    }
    vw_receive_slept(pair);
}

/*
 * Arm, look again, sleep. The order is the whole point: a chain that became available after the
 * last fetch either is seen by the second look inside arm, or its driver sees our request and
 * kicks (the full barriers are in the ring's arm and in the driver's publish).
 */
static void worker_sleep(struct vw_pair *pair, uint64_t deadline)
{
    struct vw_port_wait want;

    if (!vw_transmit_arm(pair) || !vw_receive_arm(pair))
        return;
    pair->port_queue->port->ops->want(pair->port_queue, vw_receive_wanted(pair),
                                      vw_transmit_blocked(pair), &want);
    int limit = vw_receive_timeout(pair);
    if (limit >= 0 && (want.timeout_ms < 0 || want.timeout_ms > limit))
        want.timeout_ms = limit;
    if ((pair->receive->polled || pair->transmit->polled) &&
        (want.timeout_ms < 0 || want.timeout_ms > POLL_INTERVAL_MS)) {
        want.timeout_ms = POLL_INTERVAL_MS;
        pair->transmit_kicked = true;
    }
    watch_port(pair, &want);
    if (deadline != VW_NO_DEADLINE && want.timeout_ms >= 0 &&
        vw_coalescing_wait_ns(deadline) > (int64_t)want.timeout_ms * 1000000)
        deadline = VW_NO_DEADLINE; /* the other one is sooner */
    sleep_until_event(pair, want.timeout_ms, deadline);
}

/* Poll mode: kicks are not asked for, but a disabled queue's may come, in band or not. */
static void worker_spin(struct vw_pair *pair)
{
    vw_cpu_relax();
    if (++pair->spins % SPINS_BETWEEN_LOOKS != 0)
        return;
    if (pair->transmit->polled)
        pair->transmit_kicked = true;
    sleep_until_event(pair, 0, VW_NO_DEADLINE);
}

static void park(struct vw_pair *pair)
{
    vw_transmit_drain(pair);
    sem_post(&pair->parked);
    while (sem_wait(&pair->resumed) < 0)
        ; /* only EINTR */
}

static void *worker_main(void *argument)
{
    struct vw_pair *pair = argument;

    pair->start_error = vw_interrupt_begin(false);
    while (!atomic_load(&pair->stop)) {
        if (atomic_load(&pair->pause)) {
            park(pair);
            continue;
        }
        bool moved = vw_transmit_run(pair);
        moved |= vw_receive_run(pair);
        uint64_t deadline = VW_NO_DEADLINE;
        if (vw_unlikely(pair->device->rules.coalescing))
            deadline = vw_coalescing_run(pair);
        if (moved)
            continue;
        if (pair->device->options.poll)
            worker_spin(pair);
        else
            worker_sleep(pair, deadline);
    }
    if (pair->start_error == 0)
        vw_interrupt_end();
    return NULL;
}

static void wake(struct vw_pair *pair)
{
    /* The counter would have to be written 2^64 times to block; a full one wakes as well. */
    (void)!eventfd_write(pair->wake_fd, 1);
}

void vw_worker_kick(struct vw_pair *pair, struct vw_queue *queue)
{
    atomic_fetch_add(&pair->in_band_kicks[queue->role == VW_QUEUE_TRANSMIT], 1);
    wake(pair);
}

void vw_worker_pause_begin(struct vw_pair *pair)
{
    atomic_store(&pair->pause, true);
    wake(pair);
}

void vw_worker_pause_wait(struct vw_pair *pair)
{
    while (sem_wait(&pair->parked) < 0)
        ; /* only EINTR */
}

void vw_worker_resume(struct vw_pair *pair)
{
    atomic_store(&pair->pause, false);
    sem_post(&pair->resumed);
}

void vw_worker_unwatch_kicks(struct vw_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->kick_fds[i] >= 0)
            epoll_ctl(pair->epoll_fd, EPOLL_CTL_DEL, pair->kick_fds[i], NULL);
        pair->kick_fds[i] = -1;
    }
}

/* Edge-triggered: each write wakes, read or not (vw_queue_set_kick_fd). */
int vw_worker_watch_kicks(struct vw_pair *pair)
{
    struct vw_queue *queues[2] = {pair->receive, pair->transmit};
    int result = 0;

    for (int i = 0; i < 2; i++) {
        if (queues[i]->kick_fd < 0 || pair->kick_fds[i] >= 0)
            continue;
        int error = watch(pair->epoll_fd, EPOLL_CTL_ADD, queues[i]->kick_fd, EPOLLIN | EPOLLET,
                          i == 0 ? WAIT_KICK_RECEIVE : WAIT_KICK_TRANSMIT);
        if (error == 0)
            pair->kick_fds[i] = queues[i]->kick_fd;
        else
            result = error;
    }
    return result;
}

int vw_worker_start(struct vw_pair *pair)
{
    char name[16];

    pair->port_fd = -1;
    pair->kick_fds[0] = pair->kick_fds[1] = -1;
    sem_init(&pair->parked, 0, 0);
    sem_init(&pair->resumed, 0, 0);
    pair->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pair->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pair->epoll_fd < 0 || pair->wake_fd < 0)
        return -errno;
    int error = watch(pair->epoll_fd, EPOLL_CTL_ADD, pair->wake_fd, EPOLLIN | EPOLLET, WAIT_WAKE);
    if (error < 0)
        return error;
    atomic_store(&pair->pause, true);
    error = pthread_create(&pair->thread, NULL, worker_main, pair);
    if (error != 0)
        return -error;
    pair->thread_running = true;
    snprintf(name, sizeof(name), "vw-pair-%u", pair->index);
    pthread_setname_np(pair->thread, name);
    vw_worker_pause_wait(pair);
    return pair->start_error;
}

void vw_worker_stop(struct vw_pair *pair)
{
    if (pair->thread_running) {
        atomic_store(&pair->stop, true);
        vw_worker_resume(pair); /* if it is parked */
        wake(pair);             /* if it sleeps */
        pthread_join(pair->thread, NULL);
        pair->thread_running = false;
    }
    if (pair->epoll_fd >= 0)
        close(pair->epoll_fd);
    if (pair->wake_fd >= 0)
        close(pair->wake_fd);
    pair->epoll_fd = pair->wake_fd = -1;
    sem_destroy(&pair->parked);
    sem_destroy(&pair->resumed);
}
