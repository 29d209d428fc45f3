/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * A frame is so many cache lines that lie in a slot of its own; its number, in the slot's last
 * bytes, is written last and tells that the rest is there. So the least number of lines moves that
 * a frame takes: its own, and for each batch one with the count of frames that were copied. There
 * are no descriptors, no headers, no used entries, no buffers that wander, and nothing is checked
 * but the number.
 *
 *     sender                                  receiver
 *     fills slot, then stores its number  ->  waits for the number (acquire), copies the slot
 *      (release)
 *     waits for room (acquire)            <-  stores how many it has copied, once a batch (release)
 *
 * There and back, the receiver is a second sender, into slots of its own. The first one sends a
 * frame for each that is back, so that nobody needs to tell that a slot is free.
 *
 * Asking for the lines some slots ahead, as the drivers do with theirs, gains nothing here (35 and
 * 36 million frames of 64 bytes a second), and there and back it costs half of the rate: all slots
 * are under way, and what lies ahead is still to be read.
 */
#include "bench/handover.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench.h"

#define LINE 64
#define WARM_UP 64 /* batches that are not counted */

/* Slots in one direction, as one of its ends sees them. */
struct lane {
    char *slots;
    size_t slot_bytes;
    uint64_t at; /* number of the next frame; 1 is the first, since slots begin as zeros */
};

struct handover {
    struct lane there, back;
    bool turn; /* the frames go there and back */
    double seconds, result;
    _Alignas(LINE) _Atomic uint64_t copied; /* frames, by the receiver; one way only */
    _Alignas(LINE) _Atomic bool stop;
};

static char *slot_of(const struct lane *lane, uint64_t number)
{
    return lane->slots + (number % BENCH_HANDOVER_SLOTS) * lane->slot_bytes;
}

static _Atomic uint64_t *number_in(const struct lane *lane, char *slot)
{
    return (_Atomic uint64_t *)(void *)(slot + lane->slot_bytes - sizeof(uint64_t));
}

/* All of the slot but the number. */
static void copy(char *to, const char *from, size_t slot_bytes)
{
    size_t last = slot_bytes - LINE;

    for (size_t line = 0; line < last; line += LINE)
        memcpy(to + line, from + line, LINE);
    memcpy(to + last, from + last, LINE - sizeof(uint64_t));
}

static void put(struct lane *lane, const char *frame)
{
    char *slot = slot_of(lane, lane->at);

    copy(slot, frame, lane->slot_bytes);
    /* pairs with the acquire in take() */
    atomic_store_explicit(number_in(lane, slot), lane->at, memory_order_release);
    lane->at++;
}

/* Waits for the next frame. False: the end has come. */
static bool take(struct handover *handover, struct lane *lane, char *frame)
{
    char *slot = slot_of(lane, lane->at);

    /* pairs with the release in put() */
    while (atomic_load_explicit(number_in(lane, slot), memory_order_acquire) != lane->at)
        if (atomic_load_explicit(&handover->stop, memory_order_relaxed))
            return false;
    copy(frame, slot, lane->slot_bytes);
    lane->at++;
    return true;
}

/* ---- one way --------------------------------------------------------------------------------- */

static void send_batch(struct handover *handover, struct lane *lane, const char *frame)
{
    uint64_t last = lane->at + BENCH_HANDOVER_BATCH - 1;

    /* pairs with the release in receive_all() */
    while (last >
           atomic_load_explicit(&handover->copied, memory_order_acquire) + BENCH_HANDOVER_SLOTS)
        ;
    for (unsigned i = 0; i < BENCH_HANDOVER_BATCH; i++)
        put(lane, frame);
}

static void receive_all(struct handover *handover, struct lane *lane, char *frame)
{
    while (take(handover, lane, frame))
        if ((lane->at - 1) % BENCH_HANDOVER_BATCH == 0)
            /* pairs with the acquire in send_batch() */
            atomic_store_explicit(&handover->copied, lane->at - 1, memory_order_release);
}

/* ---- there and back -------------------------------------------------------------------------- */

/* A batch that is back goes out anew, as long as no more are to be under way. */
static void turn_batch(struct handover *handover, struct lane *to, struct lane *from, char *frame)
{
    for (unsigned i = 0; i < BENCH_HANDOVER_BATCH; i++) {
        if (to->at > BENCH_HANDOVER_SLOTS)
            take(handover, from, frame);
        put(to, frame);
    }
}

static void return_all(struct handover *handover, struct lane *from, struct lane *to, char *frame)
{
    while (take(handover, from, frame))
        put(to, frame);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void *second_core(void *argument)
{
    struct handover *handover = argument;
    struct lane there = handover->there, back = handover->back;
    char *frame = bench_allocate(there.slot_bytes);

    if (handover->turn)
        return_all(handover, &there, &back, frame);
    else
        receive_all(handover, &there, frame);
    free(frame);
    return NULL;
}

static void *first_core(void *argument)
{
    struct handover *handover = argument;
    struct lane there = handover->there, back = handover->back;
    char *frame = bench_allocate(there.slot_bytes);
    uint64_t began = 0, now = 0, first = 0;

    for (uint64_t batch = 0; (double)(now - began) * 1e-9 <= handover->seconds; batch++) {
        if (handover->turn)
            turn_batch(handover, &there, &back, frame);
        else
            send_batch(handover, &there, frame);
        if (batch % WARM_UP == 0) {
            now = vw_clock_ns();
            if (batch <= WARM_UP) {
                began = now;
                first = there.at;
            }
        }
    }
    handover->result = (double)(there.at - first) * 1e9 / (double)(now - began);
    atomic_store_explicit(&handover->stop, true, memory_order_relaxed);
    free(frame);
    return NULL;
}

static bool start_on(unsigned core, void *(*run)(void *), void *argument, pthread_t *thread)
{
    pthread_attr_t attributes;
    cpu_set_t set;
    bool started;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_attr_init(&attributes);
    started = pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0 &&
              pthread_create(thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

static char *slots_new(size_t slot_bytes)
{
    char *slots = aligned_alloc(LINE, BENCH_HANDOVER_SLOTS * slot_bytes);

    if (slots == NULL)
        abort();
    memset(slots, 0, BENCH_HANDOVER_SLOTS * slot_bytes);
    return slots;
}

double bench_handover(unsigned from_core, unsigned to_core, unsigned frame_bytes, bool back,
                      double seconds)
{
    size_t slot_bytes = (frame_bytes + LINE - 1) / LINE * LINE;
    struct handover handover = {
        .there = {.slots = slots_new(slot_bytes), .slot_bytes = slot_bytes, .at = 1},
        .back = {.slots = slots_new(slot_bytes), .slot_bytes = slot_bytes, .at = 1},
        .turn = back,
        .seconds = seconds,
        .result = NAN};
    pthread_t first, second;

    if (from_core != to_core && start_on(to_core, second_core, &handover, &second)) {
        if (start_on(from_core, first_core, &handover, &first))
            pthread_join(first, NULL);
        atomic_store_explicit(&handover.stop, true, memory_order_relaxed);
        pthread_join(second, NULL);
    }
    free(handover.there.slots);
    free(handover.back.slots);
    return handover.result;
}
