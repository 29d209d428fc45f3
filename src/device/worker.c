/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system_calls.h"
#include "device/internal.h"
#include "device/interrupt.h"
#include "device/pair.h"

/* What woke the worker: one of these, and the number of the pair, above it. */
enum wait_tag {
    WAIT_WAKE,
    WAIT_KICK_RECEIVE,
    WAIT_KICK_TRANSMIT,
    WAIT_PORT,
};
#define WAIT_TAG_BITS 2

/* Events that one wait takes; the kernel keeps those that are left. */
#define EVENTS_A_WAIT 16

/* How often a ring is looked at whose front-end gave no way to kick. The shortest that epoll_wait
 * has; no front-end that we know uses it. */
#define POLL_INTERVAL_MS 1

/* So many turns pass without a sleep until the worker looks at what else may have happened. The
 * system call costs a microsecond, as much as some fifty turns without work. */
#define TURNS_BETWEEN_LOOKS 4096

/* Turns without work between two looks at the clock, which costs as much as one of them. */
#define TURNS_A_GLANCE 8

static int watch(const struct vw_worker *worker, int operation, int fd, uint32_t events,
                 enum wait_tag tag, unsigned pair)
{
    struct epoll_event event = {.events = events, .data.u32 = pair << WAIT_TAG_BITS | tag};

    vw_count_system_call();
    return epoll_ctl(worker->epoll_fd, operation, fd, &event) < 0 ? -errno : 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Makes the epoll set wait for what the port wants, touching it only if that changed. */
static void watch_port(struct vw_pair *pair, const struct vw_port_wait *want)
{
    struct vw_worker *worker = pair->worker;

    if (want->fd == pair->port_fd && want->events == pair->port_events)
        return;
    if (pair->port_fd >= 0 && want->fd != pair->port_fd) {
        vw_count_system_call();
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, pair->port_fd, NULL);
        pair->port_fd = -1;
    }
    if (want->fd >= 0 && watch(worker, pair->port_fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, want->fd,
                               want->events, WAIT_PORT, pair->index) == 0) {
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

static void take_event(struct vw_worker *worker, const struct epoll_event *event)
{
    struct vw_pair *pair = &worker->device->pairs[event->data.u32 >> WAIT_TAG_BITS];

    switch ((enum wait_tag)(event->data.u32 & ((1u << WAIT_TAG_BITS) - 1))) {
    case WAIT_WAKE: /* edge-triggered: nothing to read */
        for (pair = worker->first; pair != NULL; pair = pair->next_of_worker)
            take_in_band_kicks(pair);
        break;
    case WAIT_KICK_RECEIVE:
        kicked(pair, pair->receive);
        break;
    case WAIT_KICK_TRANSMIT:
        kicked(pair, pair->transmit);
        break;
    case WAIT_PORT:
        break; /* level-triggered: the port is asked in the next turn */
    }
}

/* Waits for `timeout_ms` (-1: for ever), but not beyond a deadline of calls that were put off. Only
 * that is finer than a millisecond; a kernel before 5.11 is late by as much. */
static int wait_for_events(struct vw_worker *worker, struct epoll_event *events, int timeout_ms,
                           uint64_t deadline)
{
    if (vw_likely(deadline == VW_NO_DEADLINE))
        return epoll_wait(worker->epoll_fd, events, EVENTS_A_WAIT, timeout_ms);
    int64_t left = vw_coalescing_wait_ns(deadline);
    struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    int count = epoll_pwait2(worker->epoll_fd, events, EVENTS_A_WAIT, &time, NULL);
    if (count < 0 && errno == ENOSYS) {
        vw_count_system_call();
        count = epoll_wait(worker->epoll_fd, events, EVENTS_A_WAIT,
                           (int)(vw_min64((uint64_t)left, UINT64_C(1000000000)) / 1000000) + 1);
    }
    return count;
}

/* Before each sleep, which is counted, and now and then without one: often enough for readers. */
static void tell_system_calls(struct vw_worker *worker)
{
    vw_shared_store(&worker->counters.system_calls, vw_system_calls + vw_interrupt_system_calls());
}

static void take_events(struct vw_worker *worker, int timeout_ms, uint64_t deadline)
{
    struct epoll_event events[EVENTS_A_WAIT];

    vw_count_system_call();
    tell_system_calls(worker);
    int count = wait_for_events(worker, events, timeout_ms, deadline);

    for (int i = 0; i < count; i++)
        take_event(worker, &events[i]);
    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker)
        vw_receive_slept(pair);
}

/* Without a sleep. What no kick will come for is looked for now. */
static void look_around(struct vw_worker *worker)
{
    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker)
        if (pair->transmit->polled)
            pair->transmit_kicked = true;
    take_events(worker, 0, VW_NO_DEADLINE);
}

/* ---- when nothing moves ---------------------------------------------------------------------- */

static int sooner(int a_ms, int b_ms)
{
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

/* Has the pair's port watched; returns how long the pair lets the worker sleep, in milliseconds. */
static int prepare_wait(struct vw_pair *pair)
{
    struct vw_port_wait want;

    pair->port_queue->port->ops->want(pair->port_queue, vw_receive_wanted(pair),
                                      vw_transmit_blocked(pair), &want);
    watch_port(pair, &want);
    int timeout_ms = sooner(want.timeout_ms, vw_receive_timeout(pair));
    if (pair->receive->polled || pair->transmit->polled) {
        timeout_ms = sooner(timeout_ms, POLL_INTERVAL_MS);
        pair->transmit_kicked = true;
    }
    return timeout_ms;
}

/* Arm, look again, sleep. */
static void worker_sleep(struct vw_worker *worker, uint64_t deadline)
{
    int timeout_ms = -1;

    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker)
        if (!vw_transmit_arm(pair) || !vw_receive_arm(pair))
            return;
    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker)
        timeout_ms = sooner(timeout_ms, prepare_wait(pair));
    if (deadline != VW_NO_DEADLINE && timeout_ms >= 0 &&
        vw_coalescing_wait_ns(deadline) > (int64_t)timeout_ms * 1000000)
        deadline = VW_NO_DEADLINE; /* the other one is sooner */
    if (vw_linger_sleeps(&worker->linger))
        vw_count(&worker->counters.spins_vain, 1);
    vw_count(&worker->counters.sleeps, 1);
    take_events(worker, timeout_ms, deadline);
}

/* Nothing moved in this turn: is there to be another one at once? */
static bool goes_on(struct vw_worker *worker)
{
    switch (worker->device->options.mode) {
    case VW_DEVICE_INTERRUPT:
        return false;
    case VW_DEVICE_POLL:
        break;
    case VW_DEVICE_ADAPTIVE:
        if (vw_linger_pays(&worker->linger) && ++worker->idle_turns % TURNS_A_GLANCE != 0)
            break;
        if (!vw_linger_goes_on(&worker->linger, vw_clock_ns()))
            return false;
    }
    vw_cpu_relax();
    return true;
}

static void found_work(struct vw_worker *worker)
{
    worker->idle_turns = 0;
    if (vw_unlikely(worker->linger.since != 0) && vw_linger_found(&worker->linger, vw_clock_ns()))
        vw_count(&worker->counters.spins_found, 1);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void park(struct vw_worker *worker)
{
    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker)
        vw_transmit_drain(pair);
    sem_post(&worker->parked);
    while (sem_wait(&worker->resumed) < 0)
        ; /* only EINTR */
}

/* One turn of each pair; true if anything moved. Lowers `deadline` to that of calls put off. */
static bool run_pairs(struct vw_worker *worker, uint64_t *deadline)
{
    bool moved = false;

    for (struct vw_pair *pair = worker->first; pair != NULL; pair = pair->next_of_worker) {
        moved |= vw_transmit_run(pair);
        moved |= vw_receive_run(pair);
        if (vw_unlikely(worker->device->rules.coalescing))
            *deadline = vw_min64(*deadline, vw_coalescing_run(pair));
    }
    return moved;
}

static void *worker_main(void *argument)
{
    struct vw_worker *worker = argument;

    worker->start_error = vw_interrupt_begin(false);
    for (;;) {
        uint64_t deadline = VW_NO_DEADLINE;

        /* First, since it may take the event that comes with a pause or the end, and does not
         * come again: a turn that may sleep must look at both after it. */
        if (++worker->turns % TURNS_BETWEEN_LOOKS == 0)
            look_around(worker);
        if (atomic_load(&worker->stop))
            break;
        if (atomic_load(&worker->pause)) {
            park(worker);
            continue;
        }
        if (run_pairs(worker, &deadline))
            found_work(worker);
        else if (!goes_on(worker))
            worker_sleep(worker, deadline);
    }
    if (worker->start_error == 0)
        vw_interrupt_end();
    return NULL;
}

/* ---- for the control thread ------------------------------------------------------------------ */

static void wake(struct vw_worker *worker)
{
    /* The counter would have to be written 2^64 times to block; a full one wakes as well. */
    (void)!eventfd_write(worker->wake_fd, 1);
}

void vw_worker_kick(struct vw_pair *pair, struct vw_queue *queue)
{
    atomic_fetch_add(&pair->in_band_kicks[queue->role == VW_QUEUE_TRANSMIT], 1);
    wake(pair->worker);
}

void vw_worker_pause_begin(struct vw_worker *worker)
{
    atomic_store(&worker->pause, true);
    wake(worker);
}

void vw_worker_pause_wait(struct vw_worker *worker)
{
    while (sem_wait(&worker->parked) < 0)
        ; /* only EINTR */
}

void vw_worker_resume(struct vw_worker *worker)
{
    atomic_store(&worker->pause, false);
    sem_post(&worker->resumed);
}

void vw_worker_unwatch_kicks(struct vw_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->kick_fds[i] >= 0)
            epoll_ctl(pair->worker->epoll_fd, EPOLL_CTL_DEL, pair->kick_fds[i], NULL);
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
        int error = watch(pair->worker, EPOLL_CTL_ADD, queues[i]->kick_fd, EPOLLIN | EPOLLET,
                          i == 0 ? WAIT_KICK_RECEIVE : WAIT_KICK_TRANSMIT, pair->index);
        if (error == 0)
            pair->kick_fds[i] = queues[i]->kick_fd;
        else
            result = error;
    }
    return result;
}

/* ---- start and end --------------------------------------------------------------------------- */

static int pin(const struct vw_worker *worker, char *error, unsigned size)
{
    const struct vw_device_options *options = &worker->device->options;
    cpu_set_t set;

    if (options->cpu_count == 0)
        return 0;
    unsigned cpu = options->cpus[worker->index % options->cpu_count];
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int result = pthread_setaffinity_np(worker->thread, sizeof(set), &set);
    if (result != 0)
        snprintf(error, size, "a worker cannot be pinned to CPU %u: %s", cpu, strerror(result));
    return -result;
}

static int raise_priority(const struct vw_worker *worker, char *error, unsigned size)
{
    struct sched_param parameters = {.sched_priority = (int)worker->device->options.realtime};

    if (parameters.sched_priority == 0)
        return 0;
    int result = pthread_setschedparam(worker->thread, SCHED_FIFO, &parameters);
    if (result != 0)
        snprintf(error, size,
                 "no real-time priority %d for workers: %s; it needs the capability CAP_SYS_NICE, "
                 "or a limit (ulimit -r) as high",
                 parameters.sched_priority, strerror(result));
    return -result;
}

static int start_thread(struct vw_worker *worker, char *error, unsigned size)
{
    char name[16];

    atomic_store(&worker->pause, true);
    int result = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (result != 0)
        return -result;
    worker->thread_running = true;
    snprintf(name, sizeof(name), "vw-worker-%u", worker->index % 1000);
    pthread_setname_np(worker->thread, name);
    vw_worker_pause_wait(worker);
    if (worker->start_error < 0)
        return worker->start_error;
    result = pin(worker, error, size);
    return result < 0 ? result : raise_priority(worker, error, size);
}

int vw_worker_start(struct vw_worker *worker, char *error, unsigned size)
{
    unsigned busy_poll_us = worker->device->options.busy_poll_us;

    vw_linger_init(&worker->linger, UINT64_C(1000) * busy_poll_us);
    sem_init(&worker->parked, 0, 0);
    sem_init(&worker->resumed, 0, 0);
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->epoll_fd < 0 || worker->wake_fd < 0)
        return -errno;
    int result = watch(worker, EPOLL_CTL_ADD, worker->wake_fd, EPOLLIN | EPOLLET, WAIT_WAKE, 0);
    return result < 0 ? result : start_thread(worker, error, size);
}

void vw_worker_stop(struct vw_worker *worker)
{
    if (worker->thread_running) {
        atomic_store(&worker->stop, true);
        vw_worker_resume(worker); /* if it is parked */
        wake(worker);             /* if it sleeps */
        pthread_join(worker->thread, NULL);
        worker->thread_running = false;
    }
    if (worker->epoll_fd >= 0)
        close(worker->epoll_fd);
    if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    worker->epoll_fd = worker->wake_fd = -1;
    sem_destroy(&worker->parked);
    sem_destroy(&worker->resumed);
}
