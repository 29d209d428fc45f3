/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals while pktgen, sink and echo open their device; traffic_opening.h has the theory. */
#include "cmd/traffic_opening.h"

#include <sys/socket.h>
#include <unistd.h>

#include "transport/socket.h"

/* The path may belong to somebody else: the library was about to find that out, or it was taken
 * over. Who listens there is told to those who connect. */
static bool is_ours(const char *path)
{
    int fd = vw_socket_connect(path);
    struct ucred listener;
    socklen_t size = sizeof(listener);
    bool ours = fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 &&
                listener.pid == getpid();

    if (fd >= 0)
        close(fd);
    return ours;
}

static void *end_by_signal(void *argument)
{
    const struct traffic_opening *opening = argument;
    int number;

    if (sigwait(&opening->enders, &number) != 0)
        return NULL;
    /* What follows could be cancelled, and the signal would be lost. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    if (opening->socket_path != NULL && is_ours(opening->socket_path))
        unlink(opening->socket_path);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &opening->enders, NULL);
    raise(number);
    return NULL;
}

void traffic_opening_begin(struct traffic_opening *opening, const char *socket_path)
{
    opening->socket_path = socket_path;
    sigemptyset(&opening->enders);
    sigaddset(&opening->enders, SIGTERM);
    sigaddset(&opening->enders, SIGINT);
    sigaddset(&opening->enders, SIGHUP);
    opening->watched = pthread_create(&opening->thread, NULL, end_by_signal, opening) == 0;
}

void traffic_opening_end(struct traffic_opening *opening)
{
    if (!opening->watched)
        return;
    pthread_cancel(opening->thread);
    pthread_join(opening->thread, NULL);
    opening->watched = false;
}
