/* SPDX-License-Identifier: BSD-3-Clause */
/* `virtwire device`: the event loop around one or more devices. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "cmd/command.h"
#include "cmd/device_options.h"
#include "cmd/device_report.h"
#include "memory/guard.h"

/* What woke the loop: one of these, or WOKE_DEVICE plus the device's number. */
enum woke {
    WOKE_SIGNAL,
    WOKE_TIMER,
    WOKE_DEVICE,
};

struct served {
    struct vw_device *device; /* NULL: not created, or ended */
    struct vw_port *port;
    struct vw_log log;
    char name[128];
    struct report_before before;
};

struct program {
    struct device_command_line line;
    struct served devices[MAX_DEVICES];
    unsigned running;
    int epoll_fd, signal_fd, timer_fd;
};

static int watch(struct program *program, int fd, uint32_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = tag};

    return epoll_ctl(program->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int print_capabilities(void)
{
    json_t *object = json_pack("{s:s, s:[]}", "type", "net", "features");
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER);

    puts(text);
    free(text);
    json_decref(object);
    return EXIT_SUCCESS;
}

/* Signals come as events. Blocked before any thread exists, so that none ever gets one. */
static int take_signals(struct program *program)
{
    sigset_t signals;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    program->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    program->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    program->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (program->epoll_fd < 0 || program->signal_fd < 0 || program->timer_fd < 0)
        return -errno;
    int error = vw_guard_install();
    if (error == 0)
        error = watch(program, program->signal_fd, WOKE_SIGNAL);
    if (error == 0)
        error = watch(program, program->timer_fd, WOKE_TIMER);
    return error;
}

static int start_device(struct program *program, unsigned index)
{
    struct device_arguments *arguments = &program->line.devices[index];
    struct vw_device_options options = arguments->device;
    struct served *served = &program->devices[index];
    char error[256] = "";

    if (options.socket_path != NULL)
        snprintf(served->name, sizeof(served->name), "%s", options.socket_path);
    else
        snprintf(served->name, sizeof(served->name), "fd %d", options.fd);
    served->log = (struct vw_log){
        .function = command_log,
        .level = program->line.verbose ? VW_LOG_DEBUG : VW_LOG_INFO,
        .name = program->line.count > 1 ? served->name : NULL,
    };
    int result = vw_port_open(arguments->port, arguments->pairs_given ? options.queue_pairs : 0,
                              &served->log, &served->port, error, sizeof(error));
    if (result < 0) {
        fprintf(stderr, "virtwire device: --port %s: %s\n", arguments->port, error);
        return result == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    if (served->port->queue_count > VW_DEVICE_MAX_PAIRS)
        return command_usage_error("device", "--port %s: a device has at most %d queue pairs",
                                   arguments->port, VW_DEVICE_MAX_PAIRS);
    options.port = served->port;
    options.queue_pairs = served->port->queue_count;
    if (options.workers > options.queue_pairs)
        return command_usage_error("device", "--workers=%u: there are only %u queue pairs",
                                   options.workers, options.queue_pairs);
    options.log = &served->log;
    if (options.mtu == 0 && served->port->mtu_chosen)
        options.mtu = served->port->mtu;
    if (options.mtu > served->port->mtu && served->port->mtu != 0)
        vw_log(
            &served->log, VW_LOG_WARNING,
            "the guest is told an MTU of %u, but that of %s is %u: set it to the same, or larger "
            "frames are lost",
            options.mtu, served->port->description, served->port->mtu);
    if (vw_device_create(&options, &served->device, error, sizeof(error)) < 0) {
        fprintf(stderr, "virtwire device: %s\n", error);
        return EXIT_FAILURE;
    }
    program->running++;
    vw_log(&served->log, VW_LOG_INFO, "%s %s, port %s",
           options.client ? "will connect to" : "serving", served->name, served->port->description);
    return watch(program, vw_device_fd(served->device), WOKE_DEVICE + index) < 0 ? EXIT_FAILURE
                                                                                 : EXIT_SUCCESS;
}

static void end_device(struct program *program, unsigned index)
{
    struct served *served = &program->devices[index];

    if (served->device != NULL) {
        epoll_ctl(program->epoll_fd, EPOLL_CTL_DEL, vw_device_fd(served->device), NULL);
        vw_device_destroy(served->device);
        program->running--;
    }
    if (served->port != NULL)
        served->port->ops->close(served->port);
    served->device = NULL;
    served->port = NULL;
}

static void report_each(struct program *program, bool rates)
{
    for (unsigned i = 0; i < program->line.count; i++) {
        struct served *served = &program->devices[i];

        if (served->device == NULL)
            continue;
        if (rates)
            report_rates(served->name, served->device, program->line.stats_interval,
                         program->line.json, &served->before);
        else
            report_all(served->name, served->device, served->port, program->line.json);
    }
}

/* True: the program is to end. */
static bool on_signal(struct program *program)
{
    struct signalfd_siginfo info;

    while (read(program->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGUSR1)
            return true;
        report_each(program, false);
    }
    return false;
}

static void on_timer(struct program *program)
{
    uint64_t expirations;

    if (read(program->timer_fd, &expirations, sizeof(expirations)) == (ssize_t)sizeof(expirations))
        report_each(program, true);
}

static void serve(struct program *program)
{
    struct itimerspec interval = {.it_value.tv_sec = program->line.stats_interval,
                                  .it_interval.tv_sec = program->line.stats_interval};
    struct epoll_event events[16];

    timerfd_settime(program->timer_fd, 0, &interval, NULL);
    while (program->running > 0) {
        int count = epoll_wait(program->epoll_fd, events, VW_ARRAY_SIZE(events), -1);

        for (int i = 0; i < count; i++) {
            uint32_t tag = events[i].data.u32;

            if (tag == WOKE_SIGNAL) {
                if (on_signal(program))
                    return;
            } else if (tag == WOKE_TIMER) {
                on_timer(program);
            } else if (program->devices[tag - WOKE_DEVICE].device != NULL &&
                       vw_device_process(program->devices[tag - WOKE_DEVICE].device) == 1) {
                end_device(program, tag - WOKE_DEVICE);
            }
        }
    }
}

static int run(struct program *program)
{
    int status = EXIT_SUCCESS;

    if (take_signals(program) < 0) {
        fprintf(stderr, "virtwire device: cannot start: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    for (unsigned i = 0; i < program->line.count && status == EXIT_SUCCESS; i++)
        status = start_device(program, i);
    if (status == EXIT_SUCCESS)
        serve(program);
    for (unsigned i = 0; i < program->line.count; i++)
        end_device(program, i);
    close(program->timer_fd);
    close(program->signal_fd);
    close(program->epoll_fd);
    return status;
}

int command_device(int argc, char **argv)
{
    struct program *program = calloc(1, sizeof(*program));

    if (program == NULL)
        return EXIT_FAILURE;
    int status = device_parse_command_line(argc, argv, &program->line);
    if (status < 0)
        status = program->line.print_capabilities ? print_capabilities() : run(program);
    free(program);
    return status;
}
