/* SPDX-License-Identifier: BSD-3-Clause */
/* The main thread of pktgen, sink and echo. */
#include "base/clock.h"
#include "cmd/traffic.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/shared.h"
#include "cmd/command.h"
#include "cmd/device_report.h"
#include "cmd/json.h"
#include "cmd/traffic_opening.h"
#include "driver/open.h"

/* What woke the main thread. */
enum woke {
    WOKE_SIGNAL,
    WOKE_TIMER,
    WOKE_DEADLINE,
    WOKE_DEVICE,
    WOKE_ENDED, /* the last thread */
};

static void library_log(void *context, enum vw_level level, const char *line)
{
    const struct traffic *traffic = context;

    /* Why it could not be opened is told by whoever tried. */
    if (level == VW_ERROR && traffic->net == NULL && !traffic->options.verbose)
        return;
    if (level <= VW_WARNING || traffic->options.verbose)
        command_log(NULL, (enum vw_log_level)level, line);
}

_Static_assert((int)VW_ERROR == (int)VW_LOG_ERROR && (int)VW_DEBUG == (int)VW_LOG_DEBUG,
               "the library's levels are those of its inside");

static void library_sent(void *context, unsigned pair, void *token, int sent)
{
    struct traffic *traffic = context;
    struct traffic_worker *worker = &traffic->workers[pair];

    /* The device was lost, and there will be no other: its buffer is of no use any more. */
    if (!sent) {
        traffic_count(&worker->lost_frames, 1);
        return;
    }
    worker->completed++;
    traffic->role->sent(worker, token);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int watch(struct traffic *traffic, int fd, enum woke tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = tag};

    return epoll_ctl(traffic->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Signals come as events. Blocked before any thread exists, so that none ever gets one. */
static int take_events(struct traffic *traffic)
{
    sigset_t signals;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    traffic->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    traffic->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    traffic->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    traffic->deadline_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    traffic->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (traffic->epoll_fd < 0 || traffic->signal_fd < 0 || traffic->timer_fd < 0 ||
        traffic->deadline_fd < 0 || traffic->ended_fd < 0 ||
        watch(traffic, traffic->signal_fd, WOKE_SIGNAL) < 0 ||
        watch(traffic, traffic->timer_fd, WOKE_TIMER) < 0 ||
        watch(traffic, traffic->deadline_fd, WOKE_DEADLINE) < 0 ||
        watch(traffic, traffic->ended_fd, WOKE_ENDED) < 0)
        return -errno;
    /* Naps between the frames of a rate are to end in time: the default slack is 50 us. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    return 0;
}

static int open_device(struct traffic *traffic)
{
    struct vw_net_options *options = &traffic->options.net;
    struct vw_transport *transport = NULL;
    struct traffic_opening opening = {.watched = false};
    char error[256] = "";

    options->log = library_log;
    options->log_context = traffic;
    if (traffic->role->sent != NULL) {
        options->tx_done = library_sent;
        options->tx_context = traffic;
    }
    if (traffic->role->memory != NULL) {
        size_t memory = options->queue_pairs * traffic->role->memory(&traffic->options);

        /* a page for each pair, for what the allocation itself may need */
        memory += options->queue_pairs * 4096UL;
        if (memory > options->memory)
            options->memory = memory;
    }
    if (traffic->options.in_process != NULL) {
        int status =
            traffic_device_open(&traffic->own, traffic->role, &traffic->options, &transport);
        if (status != EXIT_SUCCESS)
            return status;
    }
    /* A device of our own does not keep us waiting, and is closed in order. */
    if (transport == NULL)
        traffic_opening_begin(&opening, options->listen ? options->socket_path : NULL);
    int result = vw_net_open_over(options, transport, &traffic->net, error, sizeof(error));
    traffic_opening_end(&opening);
    if (result < 0) {
        fprintf(stderr, "virtwire %s: %s\n", traffic->role->name,
                *error != '\0' ? error : strerror(-result));
        return result == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    return watch(traffic, vw_net_fd(traffic->net), WOKE_DEVICE) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int prepare_worker(struct traffic *traffic, unsigned pair)
{
    struct traffic_worker *worker = &traffic->workers[pair];

    worker->traffic = traffic;
    worker->net = traffic->net;
    worker->pair = pair;
    /* Not touched until a flow is seen: the table costs what its flows fill. */
    worker->reader.flows = calloc(VW_PROBE_FLOW_TABLE, sizeof(*worker->reader.flows));
    worker->scratch = malloc(VW_PROBE_MAX_FRAME);
    struct vw_stream_state *states = calloc(VW_STREAM_MAX, sizeof(*states));
    vw_stream_reader_init(&worker->streams, states, traffic->options.acknowledge);
    worker->reader.streams = &worker->streams;
    if (worker->reader.flows == NULL || worker->scratch == NULL || states == NULL)
        return -ENOMEM;
    return traffic->role->prepare != NULL ? traffic->role->prepare(worker) : 0;
}

static void *worker_main(void *argument)
{
    struct traffic_worker *worker = argument;
    struct traffic *traffic = worker->traffic;

    traffic->role->run(worker);
    if (atomic_fetch_sub(&traffic->running, 1) == 1)
        (void)!eventfd_write(traffic->ended_fd, 1);
    return NULL;
}

static int start_workers(struct traffic *traffic)
{
    struct vw_net_info info;
    int result = 0;

    vw_net_info(traffic->net, &info);
    traffic->worker_count = info.queue_pairs;
    for (unsigned i = 0; i < traffic->worker_count && result == 0; i++)
        result = prepare_worker(traffic, i);
    if (result < 0)
        return result;
    traffic->running = traffic->worker_count;
    traffic->started = vw_clock_seconds();
    for (unsigned i = 0; i < traffic->worker_count; i++) {
        struct traffic_worker *worker = &traffic->workers[i];
        char name[16];

        result = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (result != 0)
            return -result;
        worker->started = true;
        snprintf(name, sizeof(name), "vw-%.6s-%u", traffic->role->name, i % 1000);
        pthread_setname_np(worker->thread, name);
    }
    return 0;
}

/* Both ends, where both are ours. */
static void report(struct traffic *traffic, bool final)
{
    if (traffic->own.device != NULL)
        report_all("in process", traffic->own.device, traffic->own.port, traffic->options.json);
    traffic_report_all(traffic, final);
}

/* ---- running --------------------------------------------------------------------------------- */

static void set_timer(int fd, double seconds, bool again)
{
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    struct itimerspec when = {.it_value = time};

    if (again)
        when.it_interval = time;
    timerfd_settime(fd, 0, &when, NULL);
}

static void on_signals(struct traffic *traffic)
{
    struct signalfd_siginfo info;

    while (read(traffic->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGUSR1)
            report(traffic, false);
        else
            atomic_store(&traffic->ending, true);
    }
}

static void on_device(struct traffic *traffic)
{
    int events = vw_process(traffic->net);

    if (events >= 0 && (events & VW_EVENT_ANNOUNCE))
        vw_announced(traffic->net); /* probes need nobody to learn where they come from */
    if (events >= 0 && ((events & VW_EVENT_DISCONNECTED) == 0 || traffic->options.net.reconnect ||
                        (events & VW_EVENT_RECONNECTED) != 0))
        return;
    fprintf(stderr, "virtwire %s: the device is gone\n", traffic->role->name);
    traffic->failed = true;
    atomic_store(&traffic->ending, true);
}

/* Until all threads have ended. */
static void serve(struct traffic *traffic)
{
    struct traffic_before before = {.seconds = traffic->started};
    struct epoll_event events[8];
    bool ended = false;

    if (traffic->options.stats_interval > 0)
        set_timer(traffic->timer_fd, traffic->options.stats_interval, true);
    if (traffic->options.duration > 0)
        set_timer(traffic->deadline_fd, traffic->options.duration, false);
    while (!ended) {
        int count = epoll_wait(traffic->epoll_fd, events, VW_ARRAY_SIZE(events), -1);

        for (int i = 0; i < count; i++) {
            uint64_t expirations;

            switch ((enum woke)events[i].data.u32) {
            case WOKE_SIGNAL:
                on_signals(traffic);
                break;
            case WOKE_TIMER:
                if (read(traffic->timer_fd, &expirations, sizeof(expirations)) > 0)
                    traffic_report_rates(traffic, &before);
                break;
            case WOKE_DEADLINE:
                if (read(traffic->deadline_fd, &expirations, sizeof(expirations)) > 0)
                    atomic_store(&traffic->ending, true);
                break;
            case WOKE_DEVICE:
                on_device(traffic);
                break;
            case WOKE_ENDED:
                ended = true;
                break;
            }
        }
        if (traffic->ended == 0 && (ended || atomic_load(&traffic->ending)))
            traffic->ended = vw_clock_seconds();
    }
}

static void join_workers(struct traffic *traffic)
{
    atomic_store(&traffic->ending, true);
    for (unsigned i = 0; i < traffic->worker_count; i++) {
        struct traffic_worker *worker = &traffic->workers[i];

        if (worker->started)
            pthread_join(worker->thread, NULL);
        worker->started = false;
        if (worker->error[0] == '\0')
            continue;
        fprintf(stderr, "virtwire %s: %s\n", traffic->role->name, worker->error);
        traffic->failed = true;
    }
}

static void close_all(struct traffic *traffic)
{
    /* Closing gives back what is in flight, so that the roles go after it. */
    if (traffic->net != NULL)
        vw_net_close(traffic->net);
    traffic_device_close(&traffic->own);
    traffic_device_close(&traffic->bridged);
    for (unsigned i = 0; i < traffic->worker_count; i++) {
        struct traffic_worker *worker = &traffic->workers[i];

        if (traffic->role->release != NULL)
            traffic->role->release(worker);
        free(worker->reader.flows);
        free(worker->streams.streams);
        free(worker->scratch);
    }
    close(traffic->ended_fd);
    close(traffic->deadline_fd);
    close(traffic->timer_fd);
    close(traffic->signal_fd);
    close(traffic->epoll_fd);
}

static int run(struct traffic *traffic)
{
    if (take_events(traffic) < 0) {
        fprintf(stderr, "virtwire %s: cannot start: %s\n", traffic->role->name, strerror(errno));
        return EXIT_FAILURE;
    }
    int status = traffic->options.port == NULL
                     ? EXIT_SUCCESS
                     : traffic_port_open(&traffic->bridged, traffic->role, &traffic->options,
                                         "port", traffic->options.port);
    if (status == EXIT_SUCCESS)
        status = open_device(traffic);
    if (status == EXIT_SUCCESS) {
        int error = start_workers(traffic);

        if (error == 0)
            serve(traffic);
        join_workers(traffic);
        if (error == 0)
            report(traffic, true);
        else
            fprintf(stderr, "virtwire %s: cannot start: %s\n", traffic->role->name,
                    strerror(-error));
        if (error < 0 || traffic->failed || (traffic->options.strict && !traffic_is_clean(traffic)))
            status = EXIT_FAILURE;
    }
    close_all(traffic);
    return status;
}

int traffic_main(const struct traffic_role *role, int argc, char **argv)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));

    if (traffic == NULL)
        return EXIT_FAILURE;
    traffic->role = role;
    int status = traffic_parse_command_line(role, argc, argv, &traffic->options);
    if (status < 0 && role->select != NULL && role->select(&traffic->options) != NULL)
        traffic->role = role->select(&traffic->options);
    if (status < 0)
        status = run(traffic);
    free(traffic);
    return status;
}
