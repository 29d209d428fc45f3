/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker: the thread that serves one queue pair, or several.
 *
 * Theory of operation
 * -------------------
 * The worker goes round: each of its pairs moves at most one batch a direction a turn, so that none
 * starves another. When nothing moved in a whole turn, the device's mode says what follows:
 *
 *   adaptive .... it goes on looking at all rings and ports for a bounded time, if that has paid
 *                 lately (base/linger.h), and then sleeps
 *   interrupt ... it sleeps
 *   poll ........ it goes on looking
 *
 * Kicks are off from the first fetch of a turn until the worker *arms*: asks each ring for the
 * kick that it needs, looks again, and sleeps in one epoll_wait for the kicks and ports of all its
 * pairs, and for the control thread. The order is the whole point: a chain that became available
 * after the last fetch either is seen by the second look inside arm, or its driver sees our request
 * and kicks (the full barriers are in the ring's arm and in the driver's publish).
 *
 * A worker that always finds work, or polls, never gets to that wait; it looks at it without
 * waiting every so many turns, for what else may have happened there.
 */
#ifndef VW_DEVICE_WORKER_H
#define VW_DEVICE_WORKER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/linger.h"
#include "device/counters.h"

struct vw_device;
struct vw_pair;
struct vw_queue;

struct vw_worker {
    struct vw_device *device;
    unsigned index;
    struct vw_pair *first; /* of its pairs, linked by next_of_worker */

    pthread_t thread;
    bool thread_running;
    int start_error; /* of the thread, valid once it has parked */
    int epoll_fd, wake_fd;
    uint32_t turns;
    uint32_t idle_turns; /* in a row */
    struct vw_linger linger;
    struct vw_worker_counters counters;
    _Atomic bool pause, stop;
    sem_t parked, resumed;
};

/*
 * Starts the worker's thread, pinned and with the priority that the device's options say. It starts
 * paused. Returns 0, or -errno, with a sentence in `error` if there is one to be said.
 */
int vw_worker_start(struct vw_worker *worker, char *error, unsigned error_size);
void vw_worker_stop(struct vw_worker *worker);

/* The quiescent point. Control thread only; never nested. */
void vw_worker_pause_begin(struct vw_worker *worker);
void vw_worker_pause_wait(struct vw_worker *worker);
void vw_worker_resume(struct vw_worker *worker);

/*
 * While paused: takes the pair's kick descriptors out of its worker's wait, and into it. The first
 * comes before a descriptor is closed or replaced: as long as the front-end has it open, too, the
 * wait would go on holding it. watch returns -errno for a descriptor that cannot be waited for.
 */
void vw_worker_unwatch_kicks(struct vw_pair *pair);
int vw_worker_watch_kicks(struct vw_pair *pair);

/* An in-band kick for one of the pair's queues. Control thread. */
void vw_worker_kick(struct vw_pair *pair, struct vw_queue *queue);

#endif
