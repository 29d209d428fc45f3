/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a cache line takes from one core to another and back.
 *
 *     core_round_trip CORE CORE [MILLISECONDS]
 *
 * prints nanoseconds. On a virtual machine the host moves the virtual cores about, and the same two
 * programs may run at twice the rate when theirs are close: a measurement on two cores is worth
 * something only together with this number, before and after.
 *
 * Two threads, one on each core, hand one line to and fro. The median of many short runs is
 * printed, so that an interrupt does not count.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 200 /* in a run: some ten microseconds */
#define MAX_RUNS 100000
#define STOP 0xffffffffU

static _Alignas(128) _Atomic unsigned line;

static double seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Answers each odd number with the even one that follows. */
static void *answer(void *nothing)
{
    unsigned seen;

    for (;;) {
        seen = atomic_load_explicit(&line, memory_order_acquire);
        if (seen == STOP)
            return nothing;
        if (seen & 1)
            atomic_store_explicit(&line, seen + 1, memory_order_release);
    }
}

static double one_run(void)
{
    double began = seconds();

    for (unsigned i = 0; i < ROUNDS; i++) {
        atomic_store_explicit(&line, 1, memory_order_release);
        while (atomic_load_explicit(&line, memory_order_acquire) != 2)
            ;
    }
    return (seconds() - began) / ROUNDS;
}

/* Both threads on their cores, or an errno value. */
static int start(const int core_numbers[2], pthread_t *thread)
{
    pthread_attr_t attributes;
    cpu_set_t cores[2];

    for (int i = 0; i < 2; i++) {
        CPU_ZERO(&cores[i]);
        CPU_SET(core_numbers[i], &cores[i]);
    }
    if (sched_setaffinity(0, sizeof(cores[0]), &cores[0]) != 0)
        return errno;
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(cores[1]), &cores[1]);
    int error = pthread_create(thread, &attributes, answer, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;

    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv)
{
    int cores[2] = {argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1};
    double *runs = calloc(MAX_RUNS, sizeof(*runs));
    double end = seconds() + (argc > 3 ? atof(argv[3]) : 20) * 1e-3;
    unsigned count = 0;
    pthread_t thread;

    if (runs == NULL || cores[0] == cores[1] || cores[0] < 0 || cores[1] < 0 ||
        start(cores, &thread) != 0) {
        fprintf(stderr, "core_round_trip: give two different cores that this process may use\n");
        return EXIT_FAILURE;
    }
    one_run(); /* until the other thread is there */
    do
        runs[count++] = one_run();
    while (count < MAX_RUNS && seconds() < end);
    atomic_store(&line, STOP);
    pthread_join(thread, NULL);
    qsort(runs, count, sizeof(*runs), compare);
    printf("%.1f\n", runs[count / 2] * 1e9);
    free(runs);
    return EXIT_SUCCESS;
}
