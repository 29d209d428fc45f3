/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that is called when frames were sent, and takes them back, while another sends.
 *
 * Theory of operation
 * -------------------
 * It stands for a kernel's interrupt and its poll: it sleeps until the device calls (or the policy
 * schedules the poll), and then polls at once, on whatever CPU it was told to. On the sender's own
 * CPU it takes that away from the sender, as an interrupt does, if it may be a real-time thread.
 *
 * A pair is for one thread at a time, so there is a lock, as in a kernel. The sender takes it for
 * each burst, and would take it again before the other has woken up: so the other says that it
 * wants it, and the sender stands back until it has it.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "base/shared.h"
#include "cmd/traffic.h"

/* Frames that one poll hands out: none are received, but what is must be given back. */
#define BUDGET 64

static void *completions_main(void *argument)
{
    struct traffic_worker *worker = argument;
    struct traffic_completions *completions = &worker->completions;
    struct pollfd called = {.fd = vw_queue_fd(worker->net, worker->pair), .events = POLLIN};

    while (!atomic_load_explicit(&completions->ending, memory_order_relaxed)) {
        vw_count_system_call();
        poll(&called, 1, TRAFFIC_PATIENCE_MS);
        atomic_store(&completions->wanted, true);
        pthread_mutex_lock(&completions->lock);
        atomic_store(&completions->wanted, false);
        vw_poll(worker->net, worker->pair, BUDGET, traffic_check, worker);
        pthread_mutex_unlock(&completions->lock);
        vw_shared_store(&completions->system_calls, vw_system_calls);
    }
    return NULL;
}

/* At least as urgent as the sender; says whether it is a real-time thread. */
static bool make_urgent(pthread_t thread)
{
    struct sched_param priority = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

    return pthread_setschedparam(thread, SCHED_FIFO, &priority) == 0;
}

int traffic_completions_start(struct traffic_worker *worker)
{
    struct traffic_completions *completions = &worker->completions;
    int cpu = worker->traffic->options.completion_cpu;
    pthread_attr_t attributes;
    cpu_set_t cpus;
    int error;

    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    vw_queue_fd(worker->net, worker->pair); /* from here on there is somebody to call */
    pthread_mutex_init(&completions->lock, NULL);
    completions->used = true;
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
    error = pthread_create(&completions->thread, &attributes, completions_main, worker);
    pthread_attr_destroy(&attributes);
    if (error != 0) {
        completions->used = false;
        return -error;
    }
    pthread_setname_np(completions->thread, "vw-completions");
    completions->realtime = make_urgent(completions->thread);
    return 0;
}

void traffic_completions_stop(struct traffic_worker *worker)
{
    struct traffic_completions *completions = &worker->completions;

    atomic_store(&completions->ending, true);
    pthread_join(completions->thread, NULL);
    pthread_mutex_destroy(&completions->lock);
    completions->used = false;
}

void traffic_stand_back(struct traffic_worker *worker)
{
    const struct traffic_completions *completions = &worker->completions;

    do
        if (completions->realtime)
            vw_cpu_relax();
        else
            sched_yield();
    while (atomic_load_explicit(&completions->wanted, memory_order_relaxed));
}
