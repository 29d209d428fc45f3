/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/system_calls.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* A write that should take a microsecond is given up after one to two of these. Two settings of
 * the timer and a signal, some 5 us together, in each of them are less than a thousandth of it. */
#define PERIOD_NS (20 * 1000 * 1000)

static _Thread_local struct {
    unsigned users;
    bool at_once;
    timer_t timer;
    volatile sig_atomic_t running, writing;
    volatile uint64_t system_calls; /* of the signal handler */
} own;

static void set_timer(long period_ns)
{
    const struct itimerspec when = {.it_value.tv_nsec = period_ns,
                                    .it_interval.tv_nsec = period_ns};

    timer_settime(own.timer, 0, &when, NULL);
}

static void on_signal(int number)
{
    int saved = errno;

    (void)number;
    if (own.running && !own.writing) {
        own.running = false;
        set_timer(0);
        own.system_calls++;
    }
    own.system_calls++; /* the return */
    errno = saved;
}

static int prepare_signal(void)
{
    struct sigaction action;
    sigset_t signals;

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* without SA_RESTART: that is what it is for */
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGRTMIN, &action, NULL) < 0)
        return -errno;
    sigemptyset(&signals);
    sigaddset(&signals, SIGRTMIN);
    return -pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

int vw_interrupt_begin(bool at_once)
{
    struct sigevent event;

    if (own.users == 0) {
        int error = prepare_signal();
        if (error < 0)
            return error;
        memset(&event, 0, sizeof(event));
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = gettid();
        event.sigev_signo = SIGRTMIN;
        if (timer_create(CLOCK_MONOTONIC, &event, &own.timer) < 0)
            return -errno;
        own.running = own.writing = false;
        own.at_once = at_once;
    }
    own.users++;
    return 0;
}

void vw_interrupt_end(void)
{
    if (--own.users > 0)
        return;
    own.running = false; /* for a signal that is still on its way */
    timer_delete(own.timer);
}

int vw_interrupt_write(int fd)
{
    const uint64_t one = 1;

    own.writing = true;
    /* From here on the handler leaves the timer alone. */
    atomic_signal_fence(memory_order_seq_cst);
    if (!own.running && own.users > 0) {
        own.running = true;
        vw_count_system_call();
        set_timer(PERIOD_NS);
    }
    vw_count_system_call();
    int error = write(fd, &one, sizeof(one)) < 0 ? -errno : 0;
    atomic_signal_fence(memory_order_seq_cst);
    own.writing = false;
    if (own.at_once && own.running) {
        own.running = false;
        vw_count_system_call();
        set_timer(0);
    }
    return error;
}

uint64_t vw_interrupt_system_calls(void)
{
    return own.system_calls;
}
