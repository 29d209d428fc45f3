/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pause finds every worker, wherever it is.
 *
 * The worker's waits go through an epoll_wait() of this file, which holds it in the moment in which
 * it looks around without a sleep, until the pause has begun. So the event that tells of the pause
 * comes between the worker's look at the pause and its next sleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <time.h>

#include "../device_traffic.h"

#include "device/internal.h"

#define ROUNDS 3

static _Atomic int watched_fd = -1; /* the worker's epoll descriptor: its next look is held */
static sem_t looking, go_on;

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    int expected = fd;

    if (timeout == 0 && atomic_compare_exchange_strong(&watched_fd, &expected, -1)) {
        sem_post(&looking);
        while (sem_wait(&go_on) != 0)
            ; /* only EINTR */
    }
    return epoll_pwait(fd, events, most, timeout, NULL);
}

/* Wakes the worker for nothing until it looks around. */
static void wake_until_it_looks(struct vw_worker *worker)
{
    while (sem_trywait(&looking) != 0) {
        assert_int_equal(eventfd_write(worker->wake_fd, 1), 0);
        sched_yield();
    }
}

static bool parks(struct vw_worker *worker)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_MS / 1000;
    return sem_timedwait(&worker->parked, &end) == 0;
}

static void a_pause_that_begins_while_the_worker_looks_around(void **unused)
{
    const struct shape shape = {.mode = VW_DEVICE_INTERRUPT,
                                .pairs = 1,
                                .device_pairs = 1,
                                .size = 64,
                                .transmit_bytes = 128,
                                .receive_smallest = 2048,
                                .receive_largest = 2048,
                                .receive_segments = 1};
    struct running_device running;
    struct front_end front;

    (void)unused;
    sem_init(&looking, 0, 0);
    sem_init(&go_on, 0, 0);
    begin(&running, &front, "null", vw_bit(VIRTIO_F_VERSION_1), &shape, random_seed());
    struct vw_worker *worker = &running.device->workers[0];
    for (unsigned round = 0; round < ROUNDS; round++) {
        atomic_store(&watched_fd, worker->epoll_fd);
        wake_until_it_looks(worker);
        pthread_mutex_lock(&running.lock);
        vw_worker_pause_begin(worker);
        sem_post(&go_on);
        assert_true(parks(worker));
        vw_worker_resume(worker);
        pthread_mutex_unlock(&running.lock);
    }
    end(&running, &front);
    sem_destroy(&looking);
    sem_destroy(&go_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_that_begins_while_the_worker_looks_around),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
