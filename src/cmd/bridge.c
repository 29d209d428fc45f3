/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire bridge`: joins a device to a port of this system, such as a TAP, as its driver.
 *
 * Theory of operation
 * -------------------
 * Frames from the device go to the port from the receive buffers where they lie, and these are
 * given back when the port has completed them. Frames from the port are copied once, into memory
 * that the device sees. Offloads are handed on in both directions: what one side leaves undone the
 * other is told of, and only what it cannot do is done here (port/cut.h).
 *
 * Nothing is dropped for want of room. While frames wait for one side none are taken from the
 * other, so that a sender is slowed down as by a wire with flow control.
 *
 * Each thread serves a queue pair and the port's queue of the same number. It looks at both as long
 * as one of them has something; then, as the mode says, it lingers, asks the device for a call,
 * looks once more, and sleeps until either side has something.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/iov.h"
#include "base/linger.h"
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/traffic.h"
#include "net/features.h"
#include "net/header.h"
#include "port/cut.h"

#define BATCH VW_PORT_BATCH

/* Frames from the device that the port has not completed: a power of two. Four batches, of which a
 * port may keep one. */
#define HELD 256

/* A received frame has at most 48 pieces (the driver's VW_RX_MAX_PIECES); others are refused. */
#define PIECES 63

/* Before each frame: the library puts the virtio-net header there. */
#define HEADROOM 64
#define BUFFER_SIZE (HEADROOM + VW_PORT_MAX_FRAME)

/* Buffers beyond this many would not be used: a batch is never larger than 64. */
#define BUFFERS_MAX 512

/* Turns between two looks at the port's link, which cost a system call. */
#define TURNS_BETWEEN_LOOKS 65536

/* With no buffer left and nobody who tells. */
#define NO_BUFFER_TIMEOUT_MS 1

struct buffer {
    struct vw_piece piece;
    char *memory;
};

struct bridge {
    struct vw_port_queue *queue;

    /* From the device. Free-running: completed <= taken <= received <= completed + HELD. */
    uint32_t received, taken, completed;
    struct vw_rx_packet packets[HELD];
    struct vw_frame frames[HELD];
    char headers[HELD][VW_PORT_HEADER];
    struct iovec iov[HELD][1 + PIECES];

    /* From the port: buffers, and those that wait for room in the transmit queue. */
    struct buffer *buffers, *free[BUFFERS_MAX];
    unsigned free_count;
    struct vw_tx_packet waiting[BATCH];
    unsigned waiting_first, waiting_end;

    struct vw_linger linger;
    uint32_t turns;
};

_Static_assert((HELD & (HELD - 1)) == 0, "free-running indices wrap");

static unsigned buffer_count(const struct traffic_options *options)
{
    return (unsigned)vw_min64(options->net.tx_ring_size + BATCH, BUFFERS_MAX);
}

static size_t bridge_memory(const struct traffic_options *options)
{
    return (size_t)buffer_count(options) * (BUFFER_SIZE + VW_CACHE_LINE);
}

/* ---- set-up and end -------------------------------------------------------------------------- */

static void bridge_release(struct traffic_worker *worker)
{
    struct bridge *bridge = worker->role;

    if (bridge == NULL)
        return;
    free(bridge->buffers);
    free(bridge);
    worker->role = NULL;
}

/* What the port lends may leave undone what the device does. */
static int use_port(struct vw_port *port, const struct vw_net_info *info)
{
    if (port->mtu > info->mtu)
        vw_log(port->log, VW_LOG_WARNING,
               "the MTU of %s is %u, that of the device %u: give --port an mtu=, or larger frames "
               "may be lost",
               port->description, port->mtu, info->mtu);
    int result = vw_port_cut(port);
    if (result < 0)
        return result;
    int64_t taken = port->ops->set_guest_offloads(
        port, vw_features_guest_of(info->features & VW_NET_HOST_OFFLOADS));
    return taken < 0 ? (int)taken : 0;
}

static int bridge_prepare(struct traffic_worker *worker)
{
    const struct traffic *traffic = worker->traffic;
    struct bridge *bridge = calloc(1, sizeof(*bridge));
    unsigned count = buffer_count(&traffic->options);
    struct vw_net_info info;

    worker->role = bridge;
    if (bridge == NULL)
        return -ENOMEM;
    vw_linger_init(&bridge->linger, traffic->options.mode == TRAFFIC_ADAPTIVE
                                        ? UINT64_C(1000) * traffic->options.net.spin_us
                                        : 0);
    bridge->buffers = calloc(count, sizeof(*bridge->buffers));
    if (bridge->buffers == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) {
        bridge->buffers[i].memory = vw_alloc(worker->net, BUFFER_SIZE);
        if (bridge->buffers[i].memory == NULL)
            return -ENOMEM;
        bridge->free[bridge->free_count++] = &bridge->buffers[i];
    }
    bridge->queue = traffic->bridged.port->queues[worker->pair];
    if (worker->pair > 0)
        return 0;
    vw_net_info(traffic->net, &info);
    return use_port(traffic->bridged.port, &info);
}

/* ---- device to port -------------------------------------------------------------------------- */

static unsigned room_for_received(const struct bridge *bridge)
{
    uint32_t waiting = bridge->received - bridge->taken;

    /* What waits for the port is not to grow: then the device's frames wait in its ring. */
    return waiting > 0 ? 0
                       : (unsigned)vw_min64(HELD - (bridge->received - bridge->completed), BATCH);
}

/* Makes a frame for the port of what was received. It lies in memory that the device may write: the
 * header, which decides, was copied by the library, and is checked by the same rules as a guest's.
 */
static bool make_frame(struct bridge *bridge, const struct vw_rx_packet *packet)
{
    uint32_t place = bridge->received % HELD;
    struct iovec *iov = bridge->iov[place];
    struct vw_net_header header = {
        .flags = packet->offload.flags,
        .gso_type = packet->offload.gso_type,
        .hdr_len = packet->offload.hdr_len,
        .gso_size = packet->offload.gso_size,
        .csum_start = packet->offload.csum_start,
        .csum_offset = packet->offload.csum_offset,
    };

    if (packet->piece_count > PIECES ||
        vw_net_header_check(&header, packet->length, VW_NET_HOST_OFFLOADS) != VW_NET_HEADER_OK)
        return false;
    vw_net_header_encode(&header, bridge->headers[place], VW_PORT_HEADER);
    iov[0] = (struct iovec){bridge->headers[place], VW_PORT_HEADER};
    for (unsigned i = 0; i < packet->piece_count; i++)
        iov[1 + i] = (struct iovec){packet->pieces[i].data, packet->pieces[i].length};
    bridge->frames[place] = (struct vw_frame){iov, 1 + packet->piece_count, packet->length};
    bridge->packets[place] = *packet;
    return true;
}

/* A vw_rx_function. */
static void take(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct traffic_worker *worker = context;
    struct bridge *bridge = worker->role;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += packets[i].length;
        if (make_frame(bridge, &packets[i])) {
            bridge->received++;
        } else {
            traffic_count(&worker->refused_frames, 1);
            vw_rx_release(worker->net, pair, &packets[i], 1);
        }
    }
    traffic_count(&worker->received_frames, count);
    traffic_count(&worker->received_bytes, bytes);
}

/* With `arm` what is to be done before a sleep is done, too. Returns how many frames came, or -1.
 */
static int receive(struct traffic_worker *worker, bool arm)
{
    struct bridge *bridge = worker->role;
    unsigned room = room_for_received(bridge);
    int count = 0;

    if (arm || worker->traffic->options.mode == TRAFFIC_INTERRUPT) {
        count =
            vw_poll(worker->net, worker->pair, room > 0 ? room : 1, room > 0 ? take : NULL, worker);
    } else if (room > 0) {
        struct vw_rx_packet packets[BATCH];

        count = vw_rx_burst(worker->net, worker->pair, packets, room);
        if (count > 0)
            take(worker, worker->pair, packets, (unsigned)count);
    }
    if (count >= 0 || count == -ENOTCONN)
        return count < 0 ? 0 : count;
    traffic_fail(worker, -count, "receive");
    return -1;
}

/* Frames that the port is finished with go back. Returns how many, or -1. */
static int complete(struct traffic_worker *worker)
{
    struct bridge *bridge = worker->role;
    enum vw_port_result results[BATCH];
    uint32_t count = bridge->taken - bridge->completed;

    if (count == 0)
        return 0;
    count = bridge->queue->port->ops->complete(bridge->queue, results,
                                               (uint32_t)vw_min64(count, BATCH));
    for (uint32_t i = 0; i < count; i++) {
        vw_rx_release(worker->net, worker->pair, &bridge->packets[bridge->completed++ % HELD], 1);
        if (vw_likely(results[i] == VW_PORT_SENT))
            continue;
        traffic_count(&worker->refused_frames, 1);
        if (results[i] == VW_PORT_GONE) {
            traffic_fail(worker, ENODEV, "send to the port");
            return -1;
        }
    }
    return (int)count;
}

static int to_port(struct traffic_worker *worker, bool arm)
{
    struct bridge *bridge = worker->role;
    int received = receive(worker, arm);
    uint32_t before = bridge->taken;

    if (received < 0)
        return -1;
    while (bridge->taken != bridge->received) {
        uint32_t place = bridge->taken % HELD, to_end = HELD - place;
        uint32_t count = bridge->queue->port->ops->transmit(
            bridge->queue, &bridge->frames[place],
            (uint32_t)vw_min64(bridge->received - bridge->taken, to_end));

        bridge->taken += count;
        if (count == 0)
            break;
    }
    int completed = complete(worker);
    return completed < 0 ? -1 : received + completed + (int)(bridge->taken - before);
}

/* ---- port to device -------------------------------------------------------------------------- */

static void bridge_sent(struct traffic_worker *worker, void *token)
{
    struct bridge *bridge = worker->role;

    bridge->free[bridge->free_count++] = token;
}

static struct vw_tx_packet make_packet(struct bridge *bridge, const struct vw_frame *frame)
{
    struct buffer *buffer = bridge->free[--bridge->free_count];
    struct vw_net_header header;

    vw_net_header_decode(&header, frame->iov[0].iov_base, VW_PORT_HEADER);
    buffer->piece = (struct vw_piece){buffer->memory + HEADROOM, frame->length};
    vw_iov_read(frame->iov, frame->iov_count, VW_PORT_HEADER, buffer->piece.data, frame->length);
    return (struct vw_tx_packet){
        .pieces = &buffer->piece,
        .piece_count = 1,
        .offload = {.flags = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM,
                    .gso_type = header.gso_type,
                    .hdr_len = header.hdr_len,
                    .gso_size = header.gso_size,
                    .csum_start = header.csum_start,
                    .csum_offset = header.csum_offset},
        .token = buffer,
        .headroom = HEADROOM,
    };
}

static bool wants_from_port(const struct bridge *bridge)
{
    return bridge->waiting_first == bridge->waiting_end && bridge->free_count > 0;
}

static unsigned fetch(struct bridge *bridge)
{
    const struct vw_port_ops *ops = bridge->queue->port->ops;
    struct vw_frame frames[BATCH];
    uint32_t count;

    if (!wants_from_port(bridge))
        return 0;
    count = ops->receive(bridge->queue, frames, (uint32_t)vw_min64(bridge->free_count, BATCH));
    for (uint32_t i = 0; i < count; i++)
        bridge->waiting[i] = make_packet(bridge, &frames[i]);
    bridge->waiting_first = 0;
    bridge->waiting_end = count;
    ops->release(bridge->queue, count);
    return count;
}

static int from_port(struct traffic_worker *worker)
{
    struct bridge *bridge = worker->role;

    if (bridge->free_count < BATCH || bridge->waiting_first != bridge->waiting_end)
        vw_tx_reap(worker->net, worker->pair);
    int moved = (int)fetch(bridge);
    if (bridge->waiting_first == bridge->waiting_end)
        return moved;
    int sent = traffic_send(worker, &bridge->waiting[bridge->waiting_first],
                            bridge->waiting_end - bridge->waiting_first);
    if (sent < 0)
        return -1;
    bridge->waiting_first += (unsigned)sent;
    return moved + sent;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int turn(struct traffic_worker *worker, bool arm)
{
    int forth = to_port(worker, arm);
    int back = forth < 0 ? -1 : from_port(worker);

    return forth < 0 || back < 0 ? -1 : forth + back;
}

static void look_at_link(const struct traffic_worker *worker)
{
    struct vw_port *port = ((struct bridge *)worker->role)->queue->port;

    if (worker->pair == 0 && port->link_fd >= 0)
        port->link_changed(port);
}

/* Calls are asked for, and nothing was there afterwards. */
static void bridge_sleep(struct traffic_worker *worker)
{
    struct bridge *bridge = worker->role;
    struct vw_port *port = bridge->queue->port;
    struct vw_port_wait want;
    int timeout_ms = bridge->free_count == 0 ? NO_BUFFER_TIMEOUT_MS : TRAFFIC_PATIENCE_MS;

    port->ops->want(bridge->queue, wants_from_port(bridge), bridge->taken != bridge->received,
                    &want);
    struct pollfd fds[] = {
        {.fd = vw_queue_fd(worker->net, worker->pair), .events = POLLIN},
        {.fd = want.fd, .events = (short)want.events},
        {.fd = worker->pair == 0 ? port->link_fd : -1, .events = POLLIN},
    };
    if (want.timeout_ms >= 0 && want.timeout_ms < timeout_ms)
        timeout_ms = want.timeout_ms;
    if (poll(fds, VW_ARRAY_SIZE(fds), timeout_ms) > 0 && fds[2].revents != 0)
        look_at_link(worker);
}

/* Until what came from the port has reached the device. */
static void finish(struct traffic_worker *worker)
{
    double deadline = vw_clock_seconds() + TRAFFIC_DRAIN_SECONDS;
    struct bridge *bridge = worker->role;

    while ((bridge->waiting_first != bridge->waiting_end ||
            vw_tx_in_flight(worker->net, worker->pair) > 0) &&
           vw_clock_seconds() < deadline) {
        int sent = bridge->waiting_first == bridge->waiting_end ? 0 : from_port(worker);

        if (sent < 0)
            return;
        vw_tx_reap(worker->net, worker->pair);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    traffic_count(&worker->refused_frames, bridge->waiting_end - bridge->waiting_first);
}

static void bridge_run(struct traffic_worker *worker)
{
    struct bridge *bridge = worker->role;
    bool arm = false;
    int moved;

    while (!traffic_ends(worker) && (moved = turn(worker, arm)) >= 0) {
        if (++bridge->turns % TURNS_BETWEEN_LOOKS == 0)
            look_at_link(worker);
        if (moved > 0) {
            if (bridge->linger.since != 0)
                vw_linger_found(&bridge->linger, vw_clock_ns());
            arm = false;
        } else if (worker->traffic->options.mode == TRAFFIC_POLL ||
                   vw_linger_goes_on(&bridge->linger, vw_clock_ns())) {
            vw_cpu_relax();
            arm = false;
        } else if (!arm) {
            arm = true; /* and look once more */
        } else {
            vw_linger_sleeps(&bridge->linger);
            bridge_sleep(worker);
        }
    }
    if (worker->error[0] == '\0')
        finish(worker);
    bridge->queue->port->ops->drain(bridge->queue); /* it is done with the device's memory */
}

static const char help[] =
    "usage: virtwire bridge --socket-path=PATH --port PORT [OPTION...]\n"
    "\n"
    "Joins a virtio-net device to a port of this system, most often a TAP interface: what the\n"
    "device sends arrives there, and what the system sends there goes to the device. To the\n"
    "system the device is thus a network card. Large frames and partial checksums are handed on\n"
    "as they are if the device takes them. Ends with a summary, at Ctrl-C or at --duration.\n"
    "\n"
    "frames:\n"
    "  --port PORT           tap,name=vw0, or another: man virtwire-device\n"
    "  --duration=S          seconds to run (until Ctrl-C)\n";

static const struct traffic_role role = {
    .name = "bridge",
    .help = help,
    .sends = true,
    .forwards = true,
    .memory = bridge_memory,
    .prepare = bridge_prepare,
    .release = bridge_release,
    .run = bridge_run,
    .sent = bridge_sent,
};

int command_bridge(int argc, char **argv)
{
    return traffic_main(&role, argc, argv);
}
