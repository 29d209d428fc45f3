/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control queue: one command at a time, and what to tell a device that is back.
 *
 * Theory of operation
 * -------------------
 * A command is synchronous, but never for longer than its limit. While its answer is awaited the
 * transport's events are served: the device may wait for an acknowledgement of its own, and it may
 * be lost. What `process` told then is kept for vw_process, and a timer wakes whoever waits for it.
 *
 * A device that did not answer in time still has the command, and the memory that it lies in. Until
 * the answer comes, or the device is set up again, no other command is tried: it would be
 * -ETIMEDOUT at once. Some back-ends offer a control queue and never look at it (DPDK's net_vhost);
 * opening them takes a second if there is a command to send, and all else works.
 *
 * What was set is remembered as the commands that set it, each in place of an earlier one for the
 * same thing and after all others. In this order they are sent to a device that came back, so that
 * where two commands meet (pairs and RSS, limits for all queues and for one) the last one wins
 * again.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/internal.h"
#include "net/command.h"

/* Commands at set-up: long for a device that answers, short for a user who waits for one that does
 * not. */
#define START_LIMIT_MS 1000u

/* Where the parts of a command lie in the buffer. */
#define ACK_AT VW_NET_COMMAND_MAX
#define ANSWER_AT (ACK_AT + 1)
_Static_assert(ANSWER_AT + VW_NET_CONTROL_ANSWER_MAX <= VW_CONTROL_BUFFER, "all of it fits");

struct vw_remembered {
    struct vw_remembered *next;
    struct vw_net_command command;
};

/* ---- life ---- */

static int watch(struct vw_net *net, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (fd >= 0 && epoll_ctl(net->control.epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return -errno;
    return 0;
}

static int create_descriptors(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;

    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    control->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (control->epoll_fd < 0 || control->timer_fd < 0)
        return -errno;
    int error = watch(net, control->timer_fd);
    return error ? error : watch(net, net->transport->ops->event_fd(net->transport));
}

static int remember_first_pairs(struct vw_net *net)
{
    struct vw_net_command *command;

    /* After reset a device uses one pair (5.1.6.5.5). */
    if (net->pair_count == 1 || !vw_has(net->features, VIRTIO_NET_F_MQ))
        return 0;
    struct vw_remembered *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    command = &entry->command;
    vw_net_command_pairs(command, net->pair_count, net->pair_count);
    net->control.first = entry;
    net->control.last = &entry->next;
    return 0;
}

int vw_driver_control_create(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;

    control->epoll_fd = control->timer_fd = -1;
    control->last = &control->first;
    if (!vw_has(net->features, VIRTIO_NET_F_CTRL_VQ))
        return 0;
    int error = vw_driver_queue_create(net, &control->queue,
                                       vw_net_control_queue_index(net->features, net->max_pairs),
                                       VW_CONTROL_RING, 0);
    if (error != 0)
        return error;
    control->limit_ms = net->options.request_ms;
    control->buffer = vw_shared_alloc(&net->shared, VW_CONTROL_BUFFER);
    if (!control->buffer)
        error = -ENOMEM;
    if (error == 0)
        error = create_descriptors(net);
    if (error == 0)
        error = remember_first_pairs(net);
    return error ? vw_driver_fail(net, error, "no memory or descriptors for the control queue") : 0;
}

/* Also of a device that was never opened in full. */
void vw_driver_control_destroy(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;

    if (!control->last)
        return; /* it was never made */
    vw_adaptive_destroy(net);
    while (control->first) {
        struct vw_remembered *entry = control->first;

        control->first = entry->next;
        free(entry);
    }
    if (control->epoll_fd >= 0)
        close(control->epoll_fd);
    if (control->timer_fd >= 0)
        close(control->timer_fd);
    if (control->buffer)
        vw_shared_free(&net->shared, control->buffer);
    vw_driver_queue_destroy(&control->queue);
}

/* ---- events ---- */

int vw_driver_event_fd(const struct vw_net *net)
{
    return net->control.queue.memory ? net->control.epoll_fd
                                     : net->transport->ops->event_fd(net->transport);
}

void vw_driver_wake_after(struct vw_net *net, unsigned milliseconds)
{
    const struct itimerspec when = {
        .it_value = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L + 1}};

    timerfd_settime(net->control.timer_fd, 0, &when, NULL);
}

/* Serves the transport; what it tells is kept. True: the device is lost. */
static bool serve_transport(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;
    int events = net->transport->ops->process(net->transport);

    if (events > 0) {
        control->events |= events;
        vw_driver_wake_after(net, 0);
    }
    return events < 0 || (control->events & VW_TRANSPORT_LOST) != 0;
}

int vw_driver_events(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;
    int events = net->transport->ops->process(net->transport);
    uint64_t expirations;

    if (events < 0)
        return events;
    events |= control->events;
    control->events = 0;
    if (control->queue.memory && read(control->timer_fd, &expirations, sizeof(expirations)) > 0 &&
        control->adaptive.on && net->connected && !(events & VW_TRANSPORT_LOST))
        vw_adaptive_sample(net);
    return events;
}

/* ---- a command ---- */

/* The command came back, or comes back only now. */
static bool answered(struct vw_driver_control *control, uint32_t *written)
{
    struct vw_completion completion;

    if (vw_driver_ring_reap(&control->queue.ring, &completion, 1) == 0)
        return false;
    control->outstanding = false;
    *written = completion.length;
    return true;
}

/* Sleeps until a call, an event of the transport, or the end of the time. */
static int sleep_for_answer(struct vw_net *net, int64_t left_ms)
{
    struct vw_transport *transport = net->transport;
    int call_fd = transport->ops->call_fd(transport, net->control.queue.index);
    struct pollfd wait[2] = {{.fd = call_fd, .events = POLLIN},
                             {.fd = transport->ops->event_fd(transport), .events = POLLIN}};
    uint64_t calls;

    /* Without a call descriptor there is nothing better than to look again. */
    int count = poll(wait, 2, call_fd < 0 ? 1 : (int)left_ms);
    if (count < 0 && errno != EINTR)
        return -errno;
    if (count > 0 && (wait[0].revents & POLLIN))
        (void)!read(call_fd, &calls, sizeof(calls));
    if (count > 0 && wait[1].revents != 0 && serve_transport(net))
        return -ENOTCONN;
    return 0;
}

static int await_answer(struct vw_net *net, unsigned limit_ms, uint32_t *written)
{
    struct vw_driver_control *control = &net->control;
    int64_t end = vw_clock_ms() + limit_ms;

    for (;;) {
        if (answered(control, written))
            return 0;
        if (vw_driver_queue_broken(&control->queue))
            return -EIO;
        if (!vw_driver_ring_enable_calls(&control->queue.ring))
            continue; /* arm, look again */
        int64_t left = end - vw_clock_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        int error = sleep_for_answer(net, left);
        if (error != 0)
            return error;
    }
}

/* Header, data, acknowledgement and answer in a segment each, as Linux has them: virtio 1.x lets a
 * device assume no such thing, and some assume it. */
static int offer(struct vw_driver_control *control, const struct vw_net_command *command)
{
    const uint64_t at = (uintptr_t)control->buffer;
    struct vw_segment segments[4] = {{at, 2}};
    uint32_t readable = 1, writable = 1;

    memcpy(control->buffer, command->bytes, command->length);
    control->buffer[ACK_AT] = (char)0xff; /* neither OK nor ERR */
    if (command->length > 2)
        segments[readable++] = (struct vw_segment){at + 2, command->length - 2};
    segments[readable] = (struct vw_segment){at + ACK_AT, 1};
    if (command->answer_size > 0)
        segments[readable + writable++] = (struct vw_segment){at + ANSWER_AT, command->answer_size};
    return vw_driver_ring_add(&control->queue.ring, segments, readable, writable, control);
}

static int perform(struct vw_net *net, const struct vw_net_command *command, unsigned limit_ms,
                   uint8_t *answer)
{
    struct vw_driver_control *control = &net->control;
    uint32_t written = 0;
    int error;

    if (control->outstanding && !answered(control, &written))
        return vw_driver_queue_broken(&control->queue) ? -EIO : -ETIMEDOUT;
    if ((error = offer(control, command)) != 0)
        return error;
    control->outstanding = true;
    vw_driver_queue_publish(&control->queue, NULL);
    if ((error = await_answer(net, limit_ms, &written)) != 0)
        return error;
    if (vw_shared_load(&control->buffer[ACK_AT]) != VIRTIO_NET_OK)
        return -EREMOTEIO;
    /* How long it is, is of interest only where there is an answer. */
    if (command->answer_size > 0 && written < 1u + command->answer_size)
        return -EREMOTEIO;
    if (answer)
        memcpy(answer, control->buffer + ANSWER_AT, command->answer_size);
    return 0;
}

int vw_driver_command(struct vw_net *net, const struct vw_net_command *command, uint8_t *answer)
{
    struct vw_driver_control *control = &net->control;

    if (!control->queue.memory || !vw_has(net->features, command->feature))
        return -ENOTSUP;
    if (!net->connected || (control->events & VW_TRANSPORT_LOST))
        return -ENOTCONN;
    return perform(net, command, control->limit_ms, answer);
}

/* ---- what was set ---- */

void vw_driver_forget(struct vw_net *net, const struct vw_net_command *command)
{
    struct vw_driver_control *control = &net->control;

    for (struct vw_remembered **at = &control->first; *at; at = &(*at)->next) {
        struct vw_remembered *entry = *at;

        if (entry->command.identity != command->identity ||
            memcmp(entry->command.bytes, command->bytes, command->identity) != 0)
            continue;
        *at = entry->next;
        if (control->last == &entry->next)
            control->last = at;
        free(entry);
        return;
    }
}

int vw_driver_set(struct vw_net *net, const struct vw_net_command *command)
{
    struct vw_driver_control *control = &net->control;
    struct vw_remembered *entry =
        malloc(offsetof(struct vw_remembered, command.bytes) + command->length);

    if (!entry)
        return -ENOMEM;
    int error = vw_driver_command(net, command, NULL);
    if (error != 0) {
        free(entry);
        return error;
    }
    vw_driver_forget(net, command);
    entry->next = NULL;
    memcpy(&entry->command, command, offsetof(struct vw_net_command, bytes) + command->length);
    *control->last = entry;
    control->last = &entry->next;
    return 0;
}

int vw_driver_control_start(struct vw_net *net)
{
    struct vw_driver_control *control = &net->control;
    unsigned limit_ms = control->limit_ms < START_LIMIT_MS ? control->limit_ms : START_LIMIT_MS;

    control->outstanding = false; /* the ring is new */
    control->events &= ~VW_TRANSPORT_LOST;
    if (control->adaptive.on) /* while there was no device the timer may have run out */
        vw_driver_wake_after(net, control->adaptive.interval_ms);
    for (const struct vw_remembered *entry = control->first; entry; entry = entry->next) {
        const struct vw_net_command *command = &entry->command;
        int error = perform(net, command, limit_ms, NULL);

        if (error == -ENOTCONN)
            return vw_driver_fail(net, error, "the device was lost while it was set up");
        if (error == 0)
            continue;
        if (error == -EREMOTEIO && command->feature == VIRTIO_NET_F_MQ)
            return vw_driver_fail(net, error, "the device refuses to use the queue pairs");
        vw_log(&net->log, VW_LOG_WARNING, "control command %u.%u: %s", command->bytes[0],
               command->bytes[1],
               error == -ETIMEDOUT ? "the device does not answer; it may ignore its control queue"
                                   : strerror(-error));
        if (error == -ETIMEDOUT || error == -EIO)
            return 0;
    }
    return 0;
}
