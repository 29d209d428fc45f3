/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a back-end is reached, first and again.
 *
 * A socket that was handed over is used once. A path is connected to, or listened at, as often as
 * there is need: `connect` waits for its time; after a loss nobody waits, but a timer (or the
 * listening socket) makes the event descriptor readable, and what is found then is kept as the
 * candidate that the next `connect` takes.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/vhost_user.h"

/* Between attempts to connect. A refused connect costs microseconds, and a back-end that restarts
 * takes tens of milliseconds (virtwire) to half a second (DPDK). Waiting doubles up to the second
 * value, which is also that of the timer, so that a back-end which is gone for hours costs nothing
 * that can be measured. */
#define FIRST_PAUSE_MS 5
#define RETRY_PAUSE_MS 100
/* For one that is there, but unsuitable: somebody has to set it right, which takes seconds. */
#define LONGEST_PAUSE_MS 5000

/* A socket at a path that is not there yet, that nobody listens at yet, or whose queue is full. */
static bool worth_retrying(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -EAGAIN;
}

int vw_vhost_user_prepare(struct vw_vhost_user *user)
{
    struct epoll_event event = {.events = EPOLLIN};
    int error = 0;

    if (user->options.socket_path == NULL)
        return 0;
    if (user->options.listen) {
        error = vw_socket_listen(&user->listener, user->options.socket_path);
        return error;
    }
    user->retry_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (user->retry_fd < 0)
        return -errno;
    event.data.fd = user->retry_fd;
    if (epoll_ctl(user->epoll_fd, EPOLL_CTL_ADD, user->retry_fd, &event) < 0)
        error = -errno;
    return error;
}

void vw_vhost_user_unprepare(struct vw_vhost_user *user)
{
    vw_socket_listener_close(&user->listener);
    if (user->retry_fd >= 0)
        close(user->retry_fd);
    if (user->candidate >= 0)
        close(user->candidate);
}

static void pause_ms(int64_t milliseconds)
{
    struct timespec time = {.tv_sec = (time_t)(milliseconds / 1000),
                            .tv_nsec = (long)(milliseconds % 1000) * 1000000};

    nanosleep(&time, NULL);
}

/* A back-end that the driver gave up will hardly be better in a moment. */
void vw_vhost_user_pause_longer(struct vw_vhost_user *user)
{
    unsigned pause = user->pause_ms ? 2 * user->pause_ms : 2 * RETRY_PAUSE_MS;

    user->pause_ms = pause < LONGEST_PAUSE_MS ? pause : LONGEST_PAUSE_MS;
}

static int reach_by_connecting(struct vw_vhost_user *user)
{
    int64_t deadline = vw_clock_ms() + user->options.connect_ms;
    int64_t pause = FIRST_PAUSE_MS;

    for (;;) {
        int socket = vw_socket_connect(user->options.socket_path);
        int64_t left = deadline - vw_clock_ms();

        if (socket >= 0)
            return socket;
        if (!worth_retrying(socket) || left <= 0)
            return vw_vhost_user_fail(user, socket, "no back-end can be reached at %s: %s",
                                      user->options.socket_path, strerror(-socket));
        pause_ms(pause < left ? pause : left);
        pause = 2 * pause < RETRY_PAUSE_MS ? 2 * pause : RETRY_PAUSE_MS;
    }
}

static int reach_by_listening(struct vw_vhost_user *user)
{
    int64_t deadline = vw_clock_ms() + user->options.connect_ms;

    for (;;) {
        int socket = vw_socket_accept(&user->listener);
        int64_t left = deadline - vw_clock_ms();
        struct pollfd wait = {.fd = user->listener.fd, .events = POLLIN};

        if (socket >= 0)
            return socket;
        if (socket != -EAGAIN && socket != -ECONNABORTED)
            return vw_vhost_user_fail(user, socket, "accepting a back-end at %s: %s",
                                      user->options.socket_path, strerror(-socket));
        if (left <= 0)
            return vw_vhost_user_fail(user, -ETIMEDOUT, "no back-end connected to %s within %u ms",
                                      user->options.socket_path, user->options.connect_ms);
        poll(&wait, 1, (int)left);
    }
}

int vw_vhost_user_reach(struct vw_vhost_user *user)
{
    int socket = user->candidate;

    user->candidate = -1;
    if (socket >= 0)
        return socket;
    if (user->options.socket_path == NULL)
        return vw_vhost_user_fail(user, -ENOTCONN,
                                  "a socket that was handed over cannot be connected again");
    return user->options.listen ? reach_by_listening(user) : reach_by_connecting(user);
}

void vw_vhost_user_watch_for_back_end(struct vw_vhost_user *user, bool watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = user->listener.fd};
    struct itimerspec time = {0};

    if (user->listener.fd >= 0)
        epoll_ctl(user->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, user->listener.fd, &event);
    unsigned pause = user->pause_ms > RETRY_PAUSE_MS ? user->pause_ms : RETRY_PAUSE_MS;
    if (watch)
        time.it_value = time.it_interval =
            (struct timespec){.tv_sec = pause / 1000, .tv_nsec = (long)(pause % 1000) * 1000000};
    if (user->retry_fd >= 0)
        timerfd_settime(user->retry_fd, 0, &time, NULL);
}

int vw_vhost_user_look_for_back_end(struct vw_vhost_user *user)
{
    uint64_t expired;

    if (user->retry_fd >= 0 && read(user->retry_fd, &expired, sizeof(expired)) < 0)
        return 0; /* it is not time yet */
    if (user->candidate >= 0) {
        close(user->candidate); /* it waited for long enough to be another one's by now */
        user->candidate = -1;
    }
    if (user->options.listen)
        user->candidate = vw_socket_accept(&user->listener);
    else if (user->options.socket_path != NULL)
        user->candidate = vw_socket_connect(user->options.socket_path);
    if (user->candidate < 0) {
        user->candidate = -1;
        return 0;
    }
    vw_vhost_user_watch_for_back_end(user, false);
    return VW_TRANSPORT_REACHABLE;
}
