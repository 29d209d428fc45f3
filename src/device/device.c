/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "device/internal.h"
#include "device/interrupt.h"
#include "memory/guard.h"
#include "memory/map.h"
#include "port/cut.h"

/* In client mode: how long to wait before the next attempt to connect. */
#define RETRY_MS 500

/* What we understand of vhost-user. In-flight tracking, logging and postcopy are not among it. */
static const uint64_t protocol_features =
    UINT64_C(1) << VW_VU_PF_MQ | UINT64_C(1) << VW_VU_PF_RARP | UINT64_C(1) << VW_VU_PF_REPLY_ACK |
    UINT64_C(1) << VW_VU_PF_MTU | UINT64_C(1) << VW_VU_PF_BACKEND_REQ |
    UINT64_C(1) << VW_VU_PF_CONFIG | UINT64_C(1) << VW_VU_PF_RESET_DEVICE |
    UINT64_C(1) << VW_VU_PF_INBAND_NOTIFICATIONS | UINT64_C(1) << VW_VU_PF_CONFIGURE_MEM_SLOTS |
    UINT64_C(1) << VW_VU_PF_STATUS;

int vw_device_watch(struct vw_device *device, int fd, uint32_t events, enum vw_device_event event)
{
    struct epoll_event wanted = {.events = events, .data.u32 = event};

    return epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fd, &wanted) < 0 ? -errno : 0;
}

void vw_device_unwatch(struct vw_device *device, int fd)
{
    epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void vw_device_pause(struct vw_device *device)
{
    if (device->paused)
        return;
    for (unsigned i = 0; i < device->worker_count; i++)
        vw_worker_pause_begin(&device->workers[i]);
    for (unsigned i = 0; i < device->worker_count; i++)
        vw_worker_pause_wait(&device->workers[i]);
    /* Only now: with steering, any worker may have held buffers of any receive queue. */
    for (unsigned i = 0; i < device->pair_count; i++)
        vw_receive_drain(&device->pairs[i]);
    for (unsigned i = 0; i < 2 * device->pair_count; i++)
        if (device->queues[i].coalescing.keeper != NULL)
            vw_queue_decide(&device->queues[i]);
    device->paused = true;
}

void vw_device_resume(struct vw_device *device)
{
    if (!device->paused)
        return;
    device->paused = false;
    for (unsigned i = 0; i < device->worker_count; i++)
        vw_worker_resume(&device->workers[i]);
}

void vw_device_come_again(struct vw_device *device)
{
    (void)!eventfd_write(device->again_fd, 1);
}

/*
 * Frames are to come on the queues of the port that a receive queue serves, and on no others: what
 * waits in those would be lost to flows that the host began.
 */
static void serve_pairs(struct vw_device *device)
{
    unsigned served = 0;

    while (served < device->pair_count && served < device->rules.active_pairs &&
           device->pairs[served].receive->live && device->pairs[served].receive->enabled)
        served++;
    if (served == 0)
        served = 1; /* a port has no fewer */
    if (served == device->served_pairs)
        return;
    if (device->port->ops->set_active_queues(device->port, served) == 0)
        device->served_pairs = served;
}

void vw_device_set_rules(struct vw_device *device)
{
    const struct vw_queue *control_queue = vw_device_control_queue(device);
    uint64_t features = device->acknowledged;
    /* A guest, or the VMM that switches its offloads off, may accept a feature without what that
     * needs; it is not in force then. */
    uint64_t in_force = vw_features_close(features);
    /* What the guest set by commands counts only if the commands come to us. */
    bool commanded = control_queue->live;
    bool chosen = vw_has(features, VIRTIO_NET_F_MQ) || vw_has(features, VIRTIO_NET_F_RSS);
    struct vw_rules *rules = &device->rules;

    rules->features = in_force;
    rules->guest_offloads = device->control.guest_offloads & in_force;
    rules->header_size = vw_net_header_size(features);
    rules->mergeable = vw_has(features, VIRTIO_NET_F_MRG_RXBUF);
    /* Two VLAN tags do not count towards the MTU. */
    rules->max_frame =
        vw_has(features, VIRTIO_NET_F_MTU) ? device->config.mtu + VW_NET_ETHERNET_HEADER + 8u : 0;
    rules->filter = commanded && vw_net_filter_active(&device->control);
    rules->steering = commanded && device->control.rss.steering && device->pair_count > 1;
    rules->hash = commanded && (rules->steering || vw_has(features, VIRTIO_NET_F_HASH_REPORT));
    rules->active_pairs = commanded && chosen ? device->control.pairs : device->pair_count;
    rules->coalescing = false;
    for (unsigned i = 0; i < 2 * device->pair_count; i++) {
        static const struct vw_net_coalescing none;
        struct vw_queue *queue = &device->queues[i];

        vw_queue_set_coalescing(queue, commanded ? &device->control.coalescing[i] : &none);
        rules->coalescing |= queue->coalescing.max_packets != 0;
    }
    serve_pairs(device);
}

uint16_t vw_device_steer(const struct vw_device *device, const struct vw_net_hash *hash)
{
    return vw_net_rss_pair(&device->control.rss, *hash);
}

/* The guest learns that its link went away or came back, and then announces itself anew. */
void vw_device_set_link(struct vw_device *device, bool up)
{
    vw_device_pause(device);
    device->config.link_up = up;
    if (up && vw_has(device->acknowledged, VIRTIO_NET_F_GUEST_ANNOUNCE) &&
        vw_device_control_queue(device)->live)
        device->config.announce = device->control.announce = true;
    vw_log(device->log, VW_LOG_INFO, "%s: link is %s", device->port->description,
           up ? "up" : "down");
    if (vw_has(device->acknowledged, VIRTIO_NET_F_STATUS))
        vw_back_end_config_changed(device);
}

uint64_t vw_device_offer(const struct vw_device_options *options)
{
    uint64_t extras = options->features_on & VW_NET_DEVICE_EXTRAS;
    uint64_t features = (VW_NET_DEVICE_FEATURES | extras) & ~options->features_off;

    if (options->port != NULL)
        features &= ~(VW_NET_HOST_OFFLOADS | VW_NET_GUEST_OFFLOADS) | options->port->features;
    if (!options->has_mac)
        features &= ~vw_bit(VIRTIO_NET_F_MAC);
    if (options->mtu == 0)
        features &= ~vw_bit(VIRTIO_NET_F_MTU);
    if (options->queue_pairs < 2)
        features &= ~(vw_bit(VIRTIO_NET_F_MQ) | vw_bit(VIRTIO_NET_F_RSS));
    return vw_features_close(features);
}

void vw_device_reset_mac(struct vw_device *device)
{
    memset(device->config.mac, 0, VW_NET_MAC_SIZE);
    if (device->options.has_mac)
        memcpy(device->config.mac, device->options.mac, VW_NET_MAC_SIZE);
}

void vw_device_reset_config(struct vw_device *device)
{
    const struct vw_device_options *options = &device->options;

    vw_net_config_init(&device->config);
    device->config.link_up = device->port->link_up;
    device->config.max_pairs = (uint16_t)device->pair_count;
    vw_device_reset_mac(device);
    if (options->mtu != 0)
        device->config.mtu = (uint16_t)options->mtu;
}

/* Pairs are dealt out: a guest that uses only the first ones uses all workers. */
static int create_workers(struct vw_device *device, char *error, unsigned size)
{
    unsigned wanted = device->options.workers;
    unsigned count = wanted == 0 || wanted > device->pair_count ? device->pair_count : wanted;

    device->workers = calloc(count, sizeof(*device->workers));
    if (device->workers == NULL)
        return -ENOMEM;
    device->worker_count = count;
    for (unsigned i = device->pair_count; i-- > 0;) {
        struct vw_worker *worker = &device->workers[i % device->worker_count];
        struct vw_pair *pair = &device->pairs[i];

        pair->worker = worker;
        pair->next_of_worker = worker->first;
        worker->first = pair;
    }
    for (unsigned i = 0; i < device->worker_count; i++) {
        struct vw_worker *worker = &device->workers[i];

        worker->index = i;
        worker->device = device; /* which says that there is a worker to stop */
        int result = vw_worker_start(worker, error, size);
        if (result < 0)
            return result;
    }
    return 0;
}

static int create_pairs(struct vw_device *device)
{
    unsigned count = device->pair_count;

    device->pairs = calloc(count, sizeof(*device->pairs));
    device->queues = calloc(2 * count + 1, sizeof(*device->queues));
    device->memory = calloc(1, sizeof(*device->memory));
    if (device->pairs == NULL || device->queues == NULL || device->memory == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i <= 2 * count; i++) {
        enum vw_queue_role role = i == 2 * count ? VW_QUEUE_CONTROL
                                  : i % 2 == 0   ? VW_QUEUE_RECEIVE
                                                 : VW_QUEUE_TRANSMIT;
        int error = vw_queue_init(&device->queues[i], device, i, role);

        if (error < 0)
            return error;
    }
    for (unsigned i = 0; i < count; i++) {
        struct vw_pair *pair = &device->pairs[i];

        pair->device = device;
        pair->index = i;
        pair->port_fd = pair->kick_fds[0] = pair->kick_fds[1] = -1;
        pair->receive = &device->queues[2 * i];
        pair->transmit = &device->queues[2 * i + 1];
        pair->port_queue = device->port->queues[i];
        if (vw_transmit_create(pair) < 0)
            return -ENOMEM;
    }
    device->ring_enable = true;
    device->paused = true; /* workers start paused */
    vw_session_reset_rings(device);
    return 0;
}

void vw_device_wake_after(struct vw_device *device, unsigned milliseconds)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L + 1}};

    timerfd_settime(device->retry_fd, 0, &when, NULL);
}

static int listen_at(struct vw_device *device, char *error, unsigned size)
{
    const char *path = device->options.socket_path;
    int result = vw_socket_listen(&device->listener, path);

    switch (result) {
    case 0:
        return vw_device_watch(device, device->listener.fd, EPOLLIN, VW_EVENT_LISTENER);
    case -EADDRINUSE:
        snprintf(error, size, "%s: another process listens there; stop it or choose another path",
                 path);
        break;
    case -EEXIST:
        snprintf(error, size,
                 "%s: there is a file that is no socket; remove it or choose another "
                 "path",
                 path);
        break;
    default:
        snprintf(error, size, "%s: cannot listen there: %s", path, strerror(-result));
    }
    return result;
}

static int adopt_fd(struct vw_device *device, char *error, unsigned size)
{
    int fd = device->options.fd, listening = 0, domain = 0, type = 0;
    socklen_t length = sizeof(listening);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) < 0 || domain != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) < 0 || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0) {
        snprintf(error, size,
                 "descriptor %d is not a UNIX stream socket; pass the number of one that is "
                 "open",
                 fd);
        return -EINVAL;
    }
    if (!listening) {
        vw_session_start(device, fd);
        return 0;
    }
    int result = vw_socket_listen_adopt(&device->listener, fd);
    if (result < 0) {
        snprintf(error, size, "descriptor %d: %s", fd, strerror(-result));
        return result;
    }
    return vw_device_watch(device, device->listener.fd, EPOLLIN, VW_EVENT_LISTENER);
}

static int open_socket(struct vw_device *device, char *error, unsigned size)
{
    device->retry_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (device->retry_fd < 0)
        return -errno;
    vw_device_watch(device, device->retry_fd, EPOLLIN, VW_EVENT_RETRY);
    if (device->options.fd >= 0)
        return adopt_fd(device, error, size);
    if (device->options.socket_path == NULL)
        return 0;
    if (!device->options.client)
        return listen_at(device, error, size);
    vw_device_wake_after(device, 0);
    return 0;
}

static int start(struct vw_device *device, char *error, unsigned size)
{
    int result;

    device->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (device->epoll_fd < 0)
        return -errno;
    device->again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (device->again_fd < 0)
        return -errno;
    vw_device_watch(device, device->again_fd, EPOLLIN | EPOLLET, VW_EVENT_AGAIN);
    vw_device_reset_config(device);
    result = create_pairs(device);
    if (result == 0)
        result = create_workers(device, error, size);
    if (result < 0)
        return result;
    if (device->port->link_fd >= 0)
        vw_device_watch(device, device->port->link_fd, EPOLLIN, VW_EVENT_LINK);
    if (vw_guard_fd() >= 0)
        vw_device_watch(device, vw_guard_fd(), EPOLLIN | EPOLLET, VW_EVENT_MEMORY_LOST);
    result = open_socket(device, error, size);
    vw_device_resume(device);
    return result;
}

int vw_device_create(const struct vw_device_options *options, struct vw_device **created,
                     char *error, unsigned size)
{
    struct vw_device *device = calloc(1, sizeof(*device));

    *created = NULL;
    if (device == NULL)
        return -ENOMEM;
    device->options = *options;
    if (device->options.queue_size == 0)
        device->options.queue_size = VW_RING_MAX_SIZE;
    if (device->options.busy_poll_us == 0)
        device->options.busy_poll_us = VW_DEVICE_BUSY_POLL_US;
    if (device->options.batch == 0 || device->options.batch > VW_PORT_BATCH)
        device->options.batch = VW_PORT_BATCH;
    device->log = options->log;
    device->port = options->port;
    device->pair_count = device->served_pairs = options->queue_pairs;
    device->epoll_fd = device->listener.fd = device->retry_fd = device->socket = -1;
    device->back_end.fd = device->control_kick_watched = device->again_fd = -1;
    if (vw_port_cut(options->port) < 0) {
        snprintf(error, size, "no memory");
        free(device);
        return -ENOMEM;
    }
    device->offered = vw_device_offer(options);
    device->protocol_offered = protocol_features;
    if (device->pair_count < 2)
        device->protocol_offered &= ~vw_bit(VW_VU_PF_MQ);
    if (options->mtu == 0)
        device->protocol_offered &= ~vw_bit(VW_VU_PF_MTU);
    pthread_mutex_init(&device->back_end.lock, NULL);
    snprintf(error, size, "out of memory, threads or descriptors");
    int result = vw_interrupt_begin(true);
    device->interrupts = result == 0;
    if (result == 0)
        result = start(device, error, size);
    if (result < 0) {
        vw_device_destroy(device);
        return result;
    }
    *created = device;
    return 0;
}

void vw_device_destroy(struct vw_device *device)
{
    if (device->pairs != NULL && device->queues != NULL && device->memory != NULL)
        vw_session_end(device, "the device ends", false);
    vw_device_resume(device);
    for (unsigned i = 0; i < device->worker_count; i++)
        if (device->workers[i].device != NULL)
            vw_worker_stop(&device->workers[i]);
    for (unsigned i = 0; device->queues != NULL && i <= 2 * device->pair_count; i++)
        if (device->queues[i].device != NULL)
            vw_queue_destroy(&device->queues[i]);
    for (unsigned i = 0; device->pairs != NULL && i < device->pair_count; i++)
        vw_transmit_destroy(&device->pairs[i]);
    if (device->listener.fd >= 0)
        vw_socket_listener_close(&device->listener);
    if (device->retry_fd >= 0)
        close(device->retry_fd);
    if (device->again_fd >= 0)
        close(device->again_fd);
    if (device->epoll_fd >= 0)
        close(device->epoll_fd);
    if (device->interrupts)
        vw_interrupt_end();
    pthread_mutex_destroy(&device->back_end.lock);
    free(device->memory);
    free(device->queues);
    free(device->workers);
    free(device->pairs);
    free(device);
}

int vw_device_fd(const struct vw_device *device)
{
    return device->epoll_fd;
}

static void accept_front_end(struct vw_device *device)
{
    int socket = vw_socket_accept(&device->listener);

    if (socket == -EAGAIN || socket == -ECONNABORTED)
        return;
    if (socket < 0) {
        /* Out of descriptors, or of memory: the listener would wake us at once again. */
        if (!device->accept_failed)
            vw_log_limited(device->log, &device->log_limit, VW_LOG_ERROR,
                           "a front-end waits, but cannot be accepted: %s", strerror(-socket));
        device->accept_failed = true;
        vw_device_unwatch(device, device->listener.fd);
        vw_device_wake_after(device, RETRY_MS);
        return;
    }
    device->accept_failed = false;
    /* The one before may have gone without our having looked yet. */
    if (device->socket >= 0)
        vw_session_readable(device);
    if (!device->connected) {
        vw_session_start(device, socket);
        return;
    }
    close(socket);
    vw_count(&device->counters.connections_refused, 1);
    vw_log_limited(device->log, &device->log_limit, VW_LOG_WARNING,
                   "a second front-end was refused: one is connected already");
}

/* Time to try again: to accept, or to connect. */
static void try_connect(struct vw_device *device)
{
    uint64_t expirations;

    (void)!read(device->retry_fd, &expirations, sizeof(expirations));
    if (device->listener.fd >= 0)
        vw_device_watch(device, device->listener.fd, EPOLLIN, VW_EVENT_LISTENER);
    if (!device->options.client || device->connected)
        return;
    int socket = vw_socket_connect(device->options.socket_path);
    if (socket >= 0)
        vw_session_start(device, socket);
    else
        vw_device_wake_after(device, RETRY_MS);
}

static void check_memory(struct vw_device *device)
{
    for (unsigned i = 0; i < device->memory->count; i++) {
        if (!vw_guard_lost(device->memory->regions[i].mapping))
            continue;
        vw_count(&device->counters.memory_lost, 1);
        vw_session_end(device, "its memory vanished while in use", true);
        return;
    }
}

static void handle_event(struct vw_device *device, enum vw_device_event event)
{
    struct vw_port *port = device->port;

    switch (event) {
    case VW_EVENT_LISTENER:
        accept_front_end(device);
        break;
    case VW_EVENT_SOCKET:
        vw_session_readable(device);
        break;
    case VW_EVENT_BACK_END:
        vw_back_end_readable(device);
        break;
    case VW_EVENT_CONTROL_KICK:
        vw_count(&vw_device_control_queue(device)->counters.kicks, 1);
        vw_control_queue_run(device);
        break;
    case VW_EVENT_LINK:
        if (port->link_changed(port))
            vw_device_set_link(device, port->link_up);
        break;
    case VW_EVENT_RETRY:
        try_connect(device);
        break;
    case VW_EVENT_MEMORY_LOST:
        check_memory(device);
        break;
    case VW_EVENT_AGAIN:
        vw_control_queue_run(device);
        break;
    }
}

/* After a connection: wait for the next one, in whichever way. */
static int after_connection(struct vw_device *device)
{
    if (device->connected || device->listener.fd >= 0)
        return 0;
    if (!device->options.client)
        return device->options.fd >= 0;
    vw_device_wake_after(device, RETRY_MS);
    return 0;
}

int vw_device_process(struct vw_device *device)
{
    struct epoll_event events[8];
    bool connected = device->connected;
    int count = epoll_wait(device->epoll_fd, events, VW_ARRAY_SIZE(events), 0);

    for (int i = 0; i < count; i++)
        handle_event(device, (enum vw_device_event)events[i].data.u32);
    vw_device_resume(device);
    return connected ? after_connection(device) : 0;
}
