/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Polling by NAPI's rules, and an adaptive wait.
 *
 * Theory of operation
 * -------------------
 * A poll first takes note of the calls that came, then reaps, receives, posts buffers, publishes
 * what a burst held back, and only then arms, and looks again: *flush, arm, look*. What the second
 * look finds has the poll scheduled once more, which the caller sees as a readable descriptor.
 * Each ring's arming has the full barrier between the two ([call], in ring/). A call that comes
 * after the note was taken is noted by the next wait, so none is lost.
 *
 * Both call descriptors and the pair's own eventfd hang edge-triggered in one epoll: a call is
 * noted by the epoll_wait that reports it, and need not be read.
 *
 * Who waits decides who arms. In the caller's own loop (after vw_queue_fd) vw_poll does. With
 * vw_wait, it does so itself, for the policy, too, just before it sleeps: while the caller is busy
 * or spins nothing is armed, and the device is spared the calls. A caller that never waits is never
 * armed for.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system_calls.h"
#include "driver/policy.h"

enum { CALL_RX, CALL_TX, SCHEDULED, SOURCES };

/* ---- descriptors ---- */

static int watch(struct vw_driver_pair *pair, int fd, uint32_t source)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = source};

    if (fd >= 0 && epoll_ctl(pair->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
        return vw_driver_fail(pair->net, -errno, "a call descriptor cannot be waited for");
    return 0;
}

int vw_pair_create(struct vw_driver_pair *pair)
{
    for (unsigned i = 0; i < VW_ARRAY_SIZE(pair->linger); i++)
        vw_linger_init(&pair->linger[i], UINT64_C(1000) * pair->net->options.spin_us);
    pair->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pair->schedule_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pair->epoll_fd < 0 || pair->schedule_fd < 0)
        return vw_driver_fail(pair->net, -errno, "no descriptors for queue pair %u", pair->index);
    return watch(pair, pair->schedule_fd, SCHEDULED);
}

void vw_pair_destroy(struct vw_driver_pair *pair)
{
    if (pair->epoll_fd >= 0)
        close(pair->epoll_fd);
    if (pair->schedule_fd >= 0)
        close(pair->schedule_fd);
}

/* They stay the same for the life of the transport. */
int vw_pair_watch(struct vw_driver_pair *pair)
{
    struct vw_transport *transport = pair->net->transport;

    int error = watch(pair, transport->ops->call_fd(transport, pair->rx.queue.index), CALL_RX);
    return error ? error
                 : watch(pair, transport->ops->call_fd(transport, pair->tx.queue.index), CALL_TX);
}

static void tell(struct vw_driver_pair *pair)
{
    const uint64_t one = 1;

    pair->may_wait = true;
    vw_count_system_call();
    (void)!write(pair->schedule_fd, &one, sizeof(one));
}

void vw_pair_schedule(struct vw_driver_pair *pair)
{
    if (pair->scheduled)
        return;
    pair->scheduled = true;
    if (pair->own_loop && !pair->polling)
        tell(pair);
}

void vw_pair_wake(struct vw_driver_pair *pair)
{
    pair->scheduled = true;
    tell(pair);
}

/* ---- calls ---- */

/* What a wait reported. A call may be for something that was reaped meanwhile: then it is spurious,
 * which the caller of this finds out. */
struct calls {
    bool rx, tx;
};

static struct calls note_calls(struct vw_driver_pair *pair, const struct epoll_event *events,
                               int count)
{
    struct calls calls = {false, false};

    if (vw_pair_is_down(pair)) /* its rings are the control thread's */
        return calls;
    for (int i = 0; i < count; i++) {
        calls.rx |= events[i].data.u32 == CALL_RX;
        calls.tx |= events[i].data.u32 == CALL_TX;
    }
    if (calls.rx) {
        vw_counter_add(&pair->rx.counters.calls, 1);
        vw_rx_disarm(&pair->rx);
    }
    if (calls.tx) {
        vw_counter_add(&pair->tx.counters.calls, 1);
        vw_tx_disarm(&pair->tx);
    }
    return calls;
}

/* After a complete poll the descriptors may have become readable; otherwise it costs nothing. */
static struct calls look_for_calls(struct vw_driver_pair *pair)
{
    struct epoll_event events[SOURCES];

    if (!pair->own_loop || !pair->may_wait)
        return (struct calls){false, false};
    pair->may_wait = false;
    vw_count_system_call();
    return note_calls(pair, events, epoll_wait(pair->epoll_fd, events, SOURCES, 0));
}

/* ---- the poll ---- */

/* Reaps for whoever waits for it, and lets go what a burst held back. */
static unsigned serve_transmit(struct vw_driver_pair *pair)
{
    unsigned reaped = vw_tx_collect(pair);

    vw_tx_flush(pair);
    return reaped;
}

#define POLL_BATCH 64u

/* Hands frames to the caller, without the lock: it may call the same pair from there. */
static unsigned serve_receive(struct vw_driver_pair *pair, unsigned budget, vw_rx_function receive,
                              void *context)
{
    struct vw_rx_packet packets[POLL_BATCH];
    unsigned total = 0, count;

    while (total < budget) {
        count = budget - total < POLL_BATCH ? budget - total : POLL_BATCH;
        count = vw_rx_take(pair, packets, count);
        if (count == 0)
            break;
        if (vw_likely(!vw_pair_is_down(pair))) {
            pair->rx.idle = false;
            vw_rx_refill(pair, false);
        }
        vw_pair_unlock(pair);
        receive(context, pair->index, packets, count);
        vw_pair_lock(pair);
        total += count;
    }
    return total;
}

/* Everything is posted and visible: nothing of ours keeps the device from going on. */
static void settle(struct vw_driver_pair *pair)
{
    pair->rx.idle = true;
    vw_rx_refill(pair, true);
    vw_tx_flush(pair);
}

static bool in_flight(const struct vw_tx *tx)
{
    return tx->free_count < tx->queue.size;
}

/* For completions: as the policy does it, which in vw_wait did not get to it. */
static bool arm_transmit(struct vw_driver_pair *pair)
{
    return pair->tx.rules->arm_after_kick && !pair->own_loop ? vw_tx_arm_delayed(&pair->tx)
                                                             : vw_tx_arm(&pair->tx);
}

/* Arms what is waited for. False: something is there already. */
static bool arm(struct vw_driver_pair *pair, bool receive)
{
    bool nothing = true;

    if (receive && !vw_rx_arm(&pair->rx)) {
        vw_rx_disarm(&pair->rx);
        nothing = false;
    }
    /* What transmit armed stays as it is: it has looked again, and its policy chose the place. */
    if (vw_tx_awaited(&pair->tx) && in_flight(&pair->tx) && !pair->tx.armed &&
        !arm_transmit(pair)) {
        vw_tx_disarm(&pair->tx);
        nothing = false;
    }
    return nothing;
}

static bool is_broken(struct vw_driver_pair *pair)
{
    bool receive = vw_driver_queue_broken(&pair->rx.queue);

    return vw_driver_queue_broken(&pair->tx.queue) || receive; /* both are told */
}

static int poll_pair(struct vw_driver_pair *pair, unsigned budget, vw_rx_function receive,
                     void *context)
{
    struct calls calls = look_for_calls(pair);

    pair->scheduled = false;
    pair->polling = true;
    if (receive)
        vw_rx_disarm(&pair->rx);
    if (vw_tx_awaited(&pair->tx))
        vw_tx_disarm(&pair->tx);
    unsigned reaped = serve_transmit(pair);
    unsigned total = receive ? serve_receive(pair, budget, receive, context) : 0;
    pair->polling = false;
    if (calls.tx && reaped == 0)
        vw_counter_add(&pair->tx.counters.spurious_calls, 1);
    if (calls.rx && total == 0)
        vw_counter_add(&pair->rx.counters.spurious_calls, 1);
    if (vw_pair_is_down(pair) || (total >= budget && budget > 0))
        return (int)total;
    /* What the callback sent, or had scheduled, is served by this poll. */
    pair->scheduled = false;
    if (vw_tx_awaited(&pair->tx))
        vw_tx_collect(pair);
    settle(pair);
    if (pair->own_loop) {
        pair->may_wait = true;
        if (!arm(pair, receive != NULL))
            vw_pair_schedule(pair);
        vw_tx_tell_woken(pair);
    }
    return is_broken(pair) && total == 0 ? -EIO : (int)total;
}

/* What a lost device had used and completed before. */
static int poll_without_device(struct vw_driver_pair *pair, unsigned budget, vw_rx_function receive,
                               void *context)
{
    look_for_calls(pair);
    pair->scheduled = false;
    pair->may_wait = true;
    vw_tx_collect(pair);
    return receive ? (int)serve_receive(pair, budget, receive, context) : 0;
}

int vw_poll(struct vw_net *net, unsigned index, unsigned budget, vw_rx_function receive,
            void *context)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);
    int result;

    if (!pair || budget > INT32_MAX)
        return -EINVAL;
    if (vw_pair_in_done(pair))
        return -EBUSY;
    vw_pair_lock(pair);
    result = vw_pair_is_down(pair) ? poll_without_device(pair, budget, receive, context)
                                   : poll_pair(pair, budget, receive, context);
    vw_pair_unlock(pair);
    return result;
}

int vw_queue_fd(const struct vw_net *net, unsigned index)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);

    if (!pair)
        return -EINVAL;
    bool locked = vw_pair_enter(pair);
    if (!pair->own_loop) {
        /* Nothing was armed so far; what was missed is found by a first poll. */
        pair->sleeps = pair->own_loop = true;
        vw_pair_wake(pair);
    }
    vw_pair_leave(pair, locked);
    return pair->epoll_fd;
}

/* ---- the wait ---- */

/* Is there something for the poll, or can a queue that was stopped go on? What was sent and has
 * completed is reaped in passing. */
static bool something(struct vw_driver_pair *pair)
{
    bool scheduled = pair->scheduled || pair->tx.woken;

    pair->scheduled = pair->tx.woken = false;
    return scheduled || vw_rx_pending(pair) || pair->tx.returned_count > 0 ||
           (!vw_pair_is_down(pair) && vw_tx_awaited(&pair->tx) && in_flight(&pair->tx) &&
            vw_tx_collect(pair) > 0);
}

/* Looks at the clock only now and then: it costs as much as a look at both rings. */
#define LOOKS_A_GLANCE 16

static bool spin(struct vw_driver_pair *pair, struct vw_linger *linger)
{
    bool found;

    while (vw_linger_goes_on(linger, vw_clock_ns())) {
        for (unsigned i = 0; i < LOOKS_A_GLANCE; i++) {
            vw_pair_lock(pair);
            found = vw_pair_is_down(pair) || something(pair) || is_broken(pair);
            vw_pair_unlock(pair);
            if (found)
                return true;
            vw_cpu_relax();
        }
    }
    return false;
}

/* What the wait is for: completions come within the time that a device takes to wake up and to
 * work, frames when somebody sends some. Each is remembered apart. */
static struct vw_linger *linger_of(struct vw_driver_pair *pair)
{
    bool completions = !vw_pair_is_down(pair) && vw_tx_awaited(&pair->tx) && in_flight(&pair->tx);

    return &pair->linger[completions];
}

/* The wait is over, and not by its timeout. */
static void note_found(struct vw_driver_pair *pair, struct vw_linger *linger)
{
    if (linger->since != 0 && vw_linger_found(linger, vw_clock_ns()))
        vw_counter_add(&pair->rx.counters.spins_found, 1);
    vw_linger_forget(&pair->linger[0]);
    vw_linger_forget(&pair->linger[1]);
}

/* Under the lock. True: nothing is there, and a call is asked for; or there is no device. */
static bool ready_to_sleep(struct vw_driver_pair *pair)
{
    if (vw_pair_is_down(pair))
        return !something(pair);
    settle(pair);
    return !something(pair) && arm(pair, true) && !is_broken(pair);
}

static int sleep_for_calls(struct vw_driver_pair *pair, struct vw_linger *linger, int timeout_ms)
{
    struct epoll_event events[SOURCES];

    if (vw_linger_sleeps(linger))
        vw_counter_add(&pair->rx.counters.spins_vain, 1);
    vw_counter_add(&pair->rx.counters.sleeps, 1);
    vw_count_system_call();
    int count = epoll_wait(pair->epoll_fd, events, SOURCES, timeout_ms);
    int error = errno;

    vw_pair_lock(pair);
    if (count > 0) {
        struct calls calls = note_calls(pair, events, count);

        pair->scheduled = false;
        if (calls.rx && !vw_pair_is_down(pair) && !vw_rx_pending(pair))
            vw_counter_add(&pair->rx.counters.spurious_calls, 1);
    }
    vw_pair_unlock(pair);
    return count > 0 ? 1 : count == 0 ? 0 : -error;
}

static int arm_and_sleep(struct vw_driver_pair *pair, struct vw_linger *linger, int timeout_ms)
{
    vw_pair_lock(pair);
    bool sleepy = ready_to_sleep(pair);
    if (!sleepy)
        pair->scheduled = false;
    vw_pair_unlock(pair);
    return sleepy ? sleep_for_calls(pair, linger, timeout_ms) : 1;
}

int vw_wait(struct vw_net *net, unsigned index, int timeout_ms)
{
    struct vw_driver_pair *pair = vw_pair_of(net, index);

    if (!pair)
        return -EINVAL;
    if (vw_pair_in_done(pair))
        return -EBUSY;
    vw_pair_lock(pair);
    pair->sleeps = true;
    bool down = vw_pair_is_down(pair), broken = false;
    if (!down) {
        vw_rx_disarm(&pair->rx);
        settle(pair);
    }
    bool found = something(pair);
    if (!down && !found)
        broken = is_broken(pair);
    struct vw_linger *linger = linger_of(pair);
    vw_pair_unlock(pair);
    if (broken)
        return -EIO;
    found = found || (!down && timeout_ms != 0 && spin(pair, linger));
    int result = found ? 1 : arm_and_sleep(pair, linger, timeout_ms);
    if (result != 0)
        note_found(pair, linger);
    return result;
}
