/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a wake-up ever lost? A driver and a device on two threads, each of which goes to sleep at
 * every chance, and is woken by nothing but the kicks and calls that the ring asks for.
 *
 * Theory of operation
 * -------------------
 * A lost wake-up needs a store -> load reordering within a few nanoseconds, so both sides have to
 * be awake and close together most of the time: the sleeper spins on its signal for a random while
 * before it really sleeps. One memory mapping and plain payload, so that under the race detector
 * nothing but the ring's own acquire and release orders the payload. A sleep that no signal ends
 * within half a minute is a stall; that is no measure of time, it only ends a test that failed.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "base/shared.h"
#include "random.h"
#include "ring/device.h"
#include "ring/driver.h"

#define SIZE 16
#define GUEST UINT64_C(0x40000000)
#define STALL_SECONDS 30

/* A kick or a call: raised once or often, it ends one sleep. */
struct signal {
    _Atomic int state;
};

enum { IDLE, RAISED, ASLEEP };

static void signal_raise(struct signal *signal)
{
    if (atomic_exchange(&signal->state, RAISED) == ASLEEP)
        syscall(SYS_futex, &signal->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Spins, then sleeps, until the signal is raised. False: it was not. */
static bool signal_wait(struct signal *signal, uint32_t spins)
{
    const struct timespec patience = {.tv_sec = STALL_SECONDS};
    int idle = IDLE;

    while (spins-- > 0) {
        if (atomic_load(&signal->state) == RAISED)
            break;
        vw_cpu_relax();
    }
    if (atomic_compare_exchange_strong(&signal->state, &idle, ASLEEP)) {
        while (atomic_load(&signal->state) == ASLEEP) {
            if (syscall(SYS_futex, &signal->state, FUTEX_WAIT_PRIVATE, ASLEEP, &patience, NULL,
                        0) != 0 &&
                errno == ETIMEDOUT)
                return false;
        }
    }
    atomic_store(&signal->state, IDLE);
    return true;
}

struct payload {
    uint64_t question;
    uint64_t answer;
};

struct lab {
    struct vw_driver_ring driver;
    struct vw_device_ring device;
    struct vw_memory memory;
    struct vw_driver_entry state[SIZE] __attribute__((aligned(16)));
    struct payload payload[SIZE];
    bool free[SIZE];
    struct signal kick, call;
    bool delayed;
    uint64_t seed;
    uint64_t rounds;
    atomic_bool stalled;
    uint64_t driver_sleeps, device_sleeps, wrong; /* read after both threads ended */
    char areas[4096] __attribute__((aligned(64)));
};

/* Buffers in one case. Minutes and hours of it find rarer losses: VW_ROUNDS=100000000. */
static uint64_t rounds(void)
{
    const char *text = getenv("VW_ROUNDS");

#if defined(__SANITIZE_THREAD__)
    return text ? strtoull(text, NULL, 0) : 20000;
#else
    return text ? strtoull(text, NULL, 0) : 100000;
#endif
}

static uint64_t answer_to(uint64_t question)
{
    return question * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* Lets the other side end as well. */
static void stall(struct lab *lab)
{
    atomic_store(&lab->stalled, true);
    signal_raise(&lab->kick);
    signal_raise(&lab->call);
}

static void offer(struct lab *lab, uint64_t *next)
{
    for (unsigned i = 0; i < SIZE; i++) {
        struct payload *payload = &lab->payload[i];
        uint64_t address = GUEST + (uint64_t)((char *)payload - (char *)lab);
        const struct vw_segment segments[] = {{address, 8}, {address + 8, 8}};

        if (!lab->free[i])
            continue;
        payload->question = *next;
        payload->answer = 0;
        if (vw_driver_ring_add(&lab->driver, segments, 1, 1, payload) != 0)
            return;
        lab->free[i] = false;
        (*next)++;
        return;
    }
}

static uint64_t collect(struct lab *lab)
{
    struct vw_completion completions[4];
    uint64_t total = 0;
    uint32_t count;

    while ((count = vw_driver_ring_reap(&lab->driver, completions, 4)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            struct payload *payload = completions[i].token;

            if (completions[i].length != 8 || payload->answer != answer_to(payload->question))
                lab->wrong++;
            lab->free[payload - lab->payload] = true;
        }
        total += count;
    }
    return total;
}

static void *driver_thread(void *argument)
{
    struct lab *lab = argument;
    struct random random = {lab->seed};
    uint64_t next = 0, done = 0;

    while (done < lab->rounds && !atomic_load(&lab->stalled)) {
        for (uint32_t burst = 1 + random_below(&random, 3); burst > 0 && next < lab->rounds;
             burst--)
            offer(lab, &next);
        if (vw_driver_ring_publish(&lab->driver))
            signal_raise(&lab->kick);
        uint64_t got = collect(lab);
        done += got;
        if (got > 0 && next < lab->rounds && random_one_in(&random, 2))
            continue;
        if (vw_driver_ring_in_flight(&lab->driver) == 0)
            continue;
        if (!(lab->delayed ? vw_driver_ring_enable_calls_delayed(&lab->driver)
                           : vw_driver_ring_enable_calls(&lab->driver)))
            continue;
        lab->driver_sleeps++;
        if (!signal_wait(&lab->call, random_below(&random, 3000)))
            stall(lab);
        vw_driver_ring_disable_calls(&lab->driver);
    }
    return NULL;
}

static void answer(struct lab *lab, struct vw_chain *chains, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *question = chains[i].iov[0].iov_base;
        uint64_t *to = chains[i].iov[1].iov_base;

        *to = answer_to(*question);
        chains[i].written = 8;
    }
    vw_device_ring_use(&lab->device, chains, count);
    if (vw_device_ring_publish(&lab->device))
        signal_raise(&lab->call);
}

static void *device_thread(void *argument)
{
    struct lab *lab = argument;
    struct random random = {~lab->seed};
    struct vw_chain chains[4];
    struct iovec iov[16];
    uint64_t done = 0;

    while (done < lab->rounds && !atomic_load(&lab->stalled)) {
        struct vw_iov_pool pool = {.iov = iov, .capacity = 16};
        uint32_t count =
            vw_device_ring_fetch(&lab->device, chains, 1 + random_below(&random, 4), &pool);

        if (count > 0) {
            answer(lab, chains, count);
            done += count;
        } else if (vw_device_ring_arm(&lab->device)) {
            lab->device_sleeps++;
            if (!signal_wait(&lab->kick, random_below(&random, 3000)))
                stall(lab);
            vw_device_ring_disarm(&lab->device);
        }
    }
    return NULL;
}

static void lab_open(struct lab *lab, enum vw_ring_format format, uint64_t features)
{
    struct vw_ring_config config = {.format = format,
                                    .size = SIZE,
                                    .features = features,
                                    .descriptor_area = lab->areas,
                                    .driver_area = lab->areas + 1024,
                                    .device_area = lab->areas + 2048};
    const struct vw_memory_region region = {
        .guest = GUEST, .size = sizeof(*lab), .local = (char *)lab};

    assert_int_equal(vw_memory_add(&lab->memory, &region), 0);
    assert_int_equal(vw_driver_ring_init(&lab->driver, &config, lab->state, NULL), 0);
    assert_int_equal(vw_device_ring_init(&lab->device, &config, &lab->memory), 0);
    for (unsigned i = 0; i < SIZE; i++)
        lab->free[i] = true;
}

static void run(enum vw_ring_format format, uint64_t features, bool delayed)
{
    struct lab *lab = aligned_alloc(64, (sizeof(*lab) + 63) / 64 * 64);
    pthread_t threads[2];

    assert_non_null(lab);
    memset(lab, 0, sizeof(*lab));
    lab_open(lab, format, features);
    lab->delayed = delayed;
    lab->seed = random_seed();
    lab->rounds = rounds();
    assert_int_equal(pthread_create(&threads[0], NULL, driver_thread, lab), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, device_thread, lab), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    print_message("# VW_SEED=%#llx: the driver slept %llu times, the device %llu times\n",
                  (unsigned long long)lab->seed, (unsigned long long)lab->driver_sleeps,
                  (unsigned long long)lab->device_sleeps);
    assert_false(lab->stalled);
    assert_int_equal(lab->wrong, 0);
    assert_int_equal(lab->driver.error, VW_RING_OK);
    assert_int_equal(lab->device.error, VW_RING_OK);
    assert_int_equal(vw_driver_ring_in_flight(&lab->driver), 0);
    free(lab);
}

#define CASE(name, format, features, delayed)                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run(format, features, delayed);                                                            \
    }

#define EVENT_IDX vw_bit(VIRTIO_RING_F_EVENT_IDX)
#define IN_ORDER vw_bit(VIRTIO_F_IN_ORDER)

CASE(split_flags, VW_RING_SPLIT, 0, false)
CASE(split_flags_delayed, VW_RING_SPLIT, 0, true)
CASE(split_event_index, VW_RING_SPLIT, EVENT_IDX, false)
CASE(split_event_index_delayed, VW_RING_SPLIT, EVENT_IDX, true)
CASE(split_in_order, VW_RING_SPLIT, EVENT_IDX | IN_ORDER, false)
CASE(packed_flags, VW_RING_PACKED, 0, false)
CASE(packed_flags_delayed, VW_RING_PACKED, 0, true)
CASE(packed_event_index, VW_RING_PACKED, EVENT_IDX, false)
CASE(packed_event_index_delayed, VW_RING_PACKED, EVENT_IDX, true)
CASE(packed_in_order, VW_RING_PACKED, EVENT_IDX | IN_ORDER, false)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_flags),
        cmocka_unit_test(split_flags_delayed),
        cmocka_unit_test(split_event_index),
        cmocka_unit_test(split_event_index_delayed),
        cmocka_unit_test(split_in_order),
        cmocka_unit_test(packed_flags),
        cmocka_unit_test(packed_flags_delayed),
        cmocka_unit_test(packed_event_index),
        cmocka_unit_test(packed_event_index_delayed),
        cmocka_unit_test(packed_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
