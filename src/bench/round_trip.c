/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a cache line takes from one core to another and back.
 *
 * Two threads, one on each core, hand one line to and fro. The median of many short runs counts, so
 * that an interrupt does not.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/engine.h"
#include "bench/statistics.h"

#define ROUNDS 200 /* in a run: some ten microseconds */
#define MAX_RUNS 100000
#define STOP 0xffffffffU

struct line {
    _Alignas(128) _Atomic unsigned turn;
};

static double seconds(void)
{
    return (double)vw_clock_ns() * 1e-9;
}

/* Answers each odd number with the even one that follows. */
static void *answer(void *argument)
{
    struct line *line = argument;
    unsigned seen;

    for (;;) {
        seen = atomic_load_explicit(&line->turn, memory_order_acquire);
        if (seen == STOP)
            return NULL;
        if (seen & 1)
            atomic_store_explicit(&line->turn, seen + 1, memory_order_release);
    }
}

static double one_run(struct line *line)
{
    double began = seconds();

    for (unsigned i = 0; i < ROUNDS; i++) {
        atomic_store_explicit(&line->turn, 1, memory_order_release);
        while (atomic_load_explicit(&line->turn, memory_order_acquire) != 2)
            ;
    }
    return (seconds() - began) / ROUNDS;
}

static int start_on(unsigned core, struct line *line, pthread_t *thread)
{
    pthread_attr_t attributes;
    cpu_set_t cores;
    int error;

    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(cores), &cores);
    error = pthread_create(thread, &attributes, answer, line);
    pthread_attr_destroy(&attributes);
    return error;
}

/* On the first core, the other thread is there. */
static double measure(struct line *line, double length)
{
    double *runs = bench_allocate(MAX_RUNS * sizeof(*runs)), end, median;
    size_t count = 0;

    one_run(line); /* until the other answers */
    end = seconds() + length;
    do
        runs[count++] = one_run(line);
    while (count < MAX_RUNS && seconds() < end);
    median = bench_median(runs, count);
    free(runs);
    return median;
}

double bench_round_trip(unsigned one_core, unsigned other_core, double length)
{
    double result = NAN;
    cpu_set_t before, core;
    struct line line = {0};
    pthread_t thread;

    CPU_ZERO(&core);
    CPU_SET(one_core, &core);
    if (one_core == other_core || sched_getaffinity(0, sizeof(before), &before) != 0 ||
        sched_setaffinity(0, sizeof(core), &core) != 0)
        return NAN;
    if (start_on(other_core, &line, &thread) == 0) {
        result = measure(&line, length);
        atomic_store(&line.turn, STOP);
        pthread_join(thread, NULL);
    }
    sched_setaffinity(0, sizeof(before), &before);
    return result;
}
