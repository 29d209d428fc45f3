/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port on one queue of any network interface, through AF_XDP.
 *
 * Theory of operation
 * -------------------
 * The socket shares an area of CHUNKS chunks with the kernel. A program of five instructions at the
 * interface hands the frames of the queue to the socket and leaves those of other queues to the
 * host. It is held by a link, which vanishes with this process however that ends.
 *
 *   receive ...... frames are lent where the kernel put them; release gives the chunks back to the
 *                  fill ring, oldest first.
 *   transmit ..... a frame is copied into a chunk, so that it is complete at once. Chunks come back
 *                  through the completion ring. While none is free, frames stay with the device.
 *
 * Where the driver can, the kernel does without a copy of its own; else it copies (settings tell).
 * In that mode a system call moves transmitted frames on, 32 at a time, and it may stop before the
 * ring is empty; then each receive, and want after each millisecond, tries again, less and less
 * often while the interface is down.
 *
 * AF_XDP knows neither checksum nor segmentation offloads here, so the port has no features, and
 * cut.h does both in front of it. What the host's own stack sends through a veth pair may still
 * lack its checksum: its transmit offload has to be switched off at the other end.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <xdp/xsk.h>

#include "base/iov.h"
#include "base/system_calls.h"
#include "port/kinds.h"
#include "port/link.h"
#include "port/results.h"

/* 4 MiB in all, half of it for each direction: a process may usually lock 8 MiB. A chunk holds a
 * frame of an MTU of 3822 behind the 256 bytes that the kernel keeps free. */
#define CHUNK 4096
#define CHUNKS_EACH_WAY 512
#define AREA ((size_t)2 * CHUNKS_EACH_WAY * CHUNK)
#define KERNELS_HEADROOM 256
#define LONGEST_FRAME (CHUNK - KERNELS_HEADROOM)

#define RETRY_TIMEOUT_MS 1

/* While the interface is down no event tells this thread that it is up again. Each try that fails
 * doubles the time to the next, up to this: 8 wake-ups a second, and frames that waited go out 0.1
 * s late at most. */
#define DOWN_TIMEOUT_MS 128

/* A worker that never sleeps asks for the kernel's counters after so many turns without a frame. */
#define IDLE_TURNS 4096

#define BUSY_TRIES 25
#define BUSY_PAUSE_MS 20

/* The kernel sends 32 frames in one system call. */
#define KICKS (CHUNKS_EACH_WAY / 32 + 1)

struct afxdp_queue {
    struct vw_port_queue queue;
    struct xsk_umem *umem;
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, transmit;
    struct xsk_ring_cons completed, receive;
    char *area;
    uint64_t free[CHUNKS_EACH_WAY]; /* chunks for transmit */
    uint32_t free_count;
    uint64_t lent[VW_PORT_BATCH]; /* a ring of chunks, oldest first */
    uint32_t lent_first, lent_count;
    uint32_t idle;           /* turns without a frame */
    int retry_ms;            /* how long until the next try to send what is unsent */
    bool down, gone, unsent; /* unsent: the kernel has not taken all of the transmit ring */
    struct vw_port_results results;
    struct iovec iov[VW_PORT_BATCH][2];
    struct virtio_net_hdr_v1 headers[VW_PORT_BATCH]; /* of the frames lent: no offload */
};

struct afxdp {
    struct vw_port port;
    struct vw_link_monitor monitor;
    int map_fd, program_fd, link_fd;
    bool deleted; /* told to the worker by the control thread */
    struct vw_port_queue *queues[1];
    struct afxdp_queue queue;
};

static struct afxdp *afxdp_of(struct vw_port *port)
{
    return vw_container_of(port, struct afxdp, port);
}

static struct afxdp_queue *queue_of(struct vw_port_queue *queue)
{
    return vw_container_of(queue, struct afxdp_queue, queue);
}

static void look_whether_gone(struct afxdp_queue *queue)
{
    struct vw_port *port = queue->queue.port;

    if (queue->gone || !vw_shared_load(&afxdp_of(port)->deleted))
        return;
    vw_log(port->log, VW_LOG_WARNING, "%s: the interface was deleted", port->description);
    queue->gone = true;
}

/* Chunks whose frames the kernel has sent are free again. */
static void reclaim(struct afxdp_queue *queue)
{
    uint32_t index, count = xsk_ring_cons__peek(&queue->completed, CHUNKS_EACH_WAY, &index);

    for (uint32_t i = 0; i < count; i++)
        queue->free[queue->free_count++] = *xsk_ring_cons__comp_addr(&queue->completed, index + i);
    xsk_ring_cons__release(&queue->completed, count);
}

/* Makes the kernel send what is in the transmit ring. */
static void kick(struct afxdp_queue *queue)
{
    int fd = xsk_socket__fd(queue->socket);
    int error = 0, retried_ms = queue->retry_ms;

    queue->unsent = queue->down = false;
    queue->retry_ms = RETRY_TIMEOUT_MS;
    if (!xsk_ring_prod__needs_wakeup(&queue->transmit))
        return;
    for (unsigned i = 0; i < KICKS; i++) {
        vw_count_system_call();
        error = sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
        if (error != EAGAIN)
            break;
    }
    queue->down = error == ENETDOWN;
    queue->unsent = error != 0;
    if (queue->down && retried_ms > 0)
        queue->retry_ms = (int)vw_min64(2 * (uint64_t)retried_ms, DOWN_TIMEOUT_MS);
}

/* Copies the frame into a chunk and puts that into the transmit ring. False: there is no room. */
static bool put(struct afxdp_queue *queue, const struct vw_frame *frame)
{
    uint32_t index;

    if (queue->free_count == 0 || xsk_ring_prod__reserve(&queue->transmit, 1, &index) == 0)
        return false;
    uint64_t chunk = queue->free[--queue->free_count];
    vw_iov_read(frame->iov + 1, frame->iov_count - 1, 0, queue->area + chunk, frame->length);
    *xsk_ring_prod__tx_desc(&queue->transmit, index) =
        (struct xdp_desc){.addr = chunk, .len = frame->length};
    xsk_ring_prod__submit(&queue->transmit, 1);
    return true;
}

static bool fits(const struct afxdp_queue *queue, const struct vw_frame *frame)
{
    return frame->length >= VW_PORT_ETHERNET_HEADER && frame->length <= LONGEST_FRAME &&
           frame->length <= queue->queue.port->mtu + VW_PORT_ETHERNET_HEADER + 4;
}

static uint32_t afxdp_transmit(struct vw_port_queue *port_queue, struct vw_frame *frames,
                               uint32_t count)
{
    struct afxdp_queue *queue = queue_of(port_queue);
    uint32_t taken = 0, sent = 0;

    look_whether_gone(queue);
    if (queue->down)
        kick(queue); /* is it still? */
    reclaim(queue);
    for (; taken < count && !vw_port_results_full(&queue->results); taken++) {
        enum vw_port_result result = VW_PORT_SENT;

        if (queue->gone) {
            result = VW_PORT_GONE;
        } else if (queue->down) {
            result = VW_PORT_DOWN;
        } else if (!fits(queue, &frames[taken])) {
            result = VW_PORT_REFUSED;
        } else if (!put(queue, &frames[taken])) {
            vw_port_count(&port_queue->counters.transmit_full);
            break;
        } else {
            sent++;
        }
        vw_port_results_add(&queue->results, port_queue, result);
    }
    if (sent > 0)
        kick(queue);
    return taken;
}

static uint32_t afxdp_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                               uint32_t max)
{
    return vw_port_results_take(&queue_of(queue)->results, results, max);
}

/* The kernel counts the frames for which it found no chunk, or no room in the ring. */
static void count_missed(struct afxdp_queue *queue)
{
    struct xdp_statistics statistics;
    socklen_t size = sizeof(statistics);

    vw_count_system_call();
    if (getsockopt(xsk_socket__fd(queue->socket), SOL_XDP, XDP_STATISTICS, &statistics, &size) == 0)
        vw_shared_store(&queue->queue.counters.receive_missed,
                        statistics.rx_dropped + statistics.rx_ring_full);
}

static uint32_t afxdp_receive(struct vw_port_queue *port_queue, struct vw_frame *frames,
                              uint32_t max)
{
    struct afxdp_queue *queue = queue_of(port_queue);
    uint32_t index;

    look_whether_gone(queue);
    if (vw_unlikely(queue->unsent) && !queue->gone)
        kick(queue);
    max = (uint32_t)vw_min64(max, VW_PORT_BATCH - queue->lent_count);
    uint32_t count = xsk_ring_cons__peek(&queue->receive, max, &index);
    for (uint32_t i = 0; i < count; i++) {
        const struct xdp_desc *descriptor = xsk_ring_cons__rx_desc(&queue->receive, index + i);
        uint32_t slot = (queue->lent_first + queue->lent_count++) % VW_PORT_BATCH;
        struct iovec *iov = queue->iov[slot];

        queue->lent[slot] = descriptor->addr;
        queue->headers[slot] = (struct virtio_net_hdr_v1){0};
        iov[0] = (struct iovec){&queue->headers[slot], VW_PORT_HEADER};
        iov[1] = (struct iovec){queue->area + descriptor->addr, descriptor->len};
        frames[i] = (struct vw_frame){iov, 2, descriptor->len};
        vw_port_count(&port_queue->counters.receive_frames);
    }
    xsk_ring_cons__release(&queue->receive, count);
    if (count == 0 && ++queue->idle % IDLE_TURNS == 0)
        count_missed(queue);
    return count;
}

static void afxdp_release(struct vw_port_queue *port_queue, uint32_t count)
{
    struct afxdp_queue *queue = queue_of(port_queue);
    uint32_t index;

    count = (uint32_t)vw_min64(count, queue->lent_count);
    if (count == 0 || xsk_ring_prod__reserve(&queue->fill, count, &index) != count)
        return; /* the ring has room for all of them */
    for (uint32_t i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&queue->fill, index + i) =
            queue->lent[queue->lent_first++ % VW_PORT_BATCH] & ~(uint64_t)(CHUNK - 1);
    xsk_ring_prod__submit(&queue->fill, count);
    queue->lent_count -= count;
    if (xsk_ring_prod__needs_wakeup(&queue->fill)) {
        vw_count_system_call();
        (void)!recvfrom(xsk_socket__fd(queue->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
    }
}

static void afxdp_want(struct vw_port_queue *port_queue, bool receive, bool transmit,
                       struct vw_port_wait *wait)
{
    struct afxdp_queue *queue = queue_of(port_queue);

    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = -1};
    if (queue->gone) {
        wait->timeout_ms = transmit ? 0 : -1; /* transmit takes them at once */
        return;
    }
    if (queue->unsent)
        kick(queue);
    count_missed(queue);
    if (receive) {
        wait->events = EPOLLIN;
        wait->fd = xsk_socket__fd(queue->socket);
    }
    /* No event tells that chunks are free: the socket is writable as soon as its ring has room. */
    if (transmit || queue->unsent)
        wait->timeout_ms = queue->down ? queue->retry_ms : RETRY_TIMEOUT_MS;
}

static void afxdp_drain(struct vw_port_queue *queue)
{
    (void)queue; /* every frame was copied, and so complete, when transmit returned */
}

static int64_t afxdp_set_guest_offloads(struct vw_port *port, uint64_t features)
{
    (void)port;
    (void)features;
    return 0;
}

static int afxdp_set_active_queues(struct vw_port *port, unsigned count)
{
    (void)port;
    return count == 1 ? 0 : -EINVAL;
}

static bool afxdp_link_changed(struct vw_port *port)
{
    struct afxdp *afxdp = afxdp_of(port);
    bool before = port->link_up;

    vw_link_monitor_read(&afxdp->monitor);
    if (!afxdp->monitor.present)
        vw_shared_store(&afxdp->deleted, true);
    port->link_up = afxdp->monitor.up;
    return port->link_up != before;
}

static void close_queue(struct afxdp_queue *queue)
{
    if (queue->socket != NULL)
        xsk_socket__delete(queue->socket);
    if (queue->umem != NULL)
        xsk_umem__delete(queue->umem);
    if (queue->area != NULL)
        munmap(queue->area, AREA);
    queue->socket = NULL;
    queue->umem = NULL;
    queue->area = NULL;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void afxdp_close(struct vw_port *port)
{
    struct afxdp *afxdp = afxdp_of(port);

    close_fd(afxdp->link_fd); /* the first: no frame finds a socket that is half gone */
    close_queue(&afxdp->queue);
    close_fd(afxdp->program_fd);
    close_fd(afxdp->map_fd);
    vw_link_monitor_close(&afxdp->monitor);
    free(afxdp);
}

static const struct vw_port_ops afxdp_ops = {
    .name = "afxdp",
    .close = afxdp_close,
    .set_guest_offloads = afxdp_set_guest_offloads,
    .set_active_queues = afxdp_set_active_queues,
    .transmit = afxdp_transmit,
    .complete = afxdp_complete,
    .receive = afxdp_receive,
    .release = afxdp_release,
    .want = afxdp_want,
    .drain = afxdp_drain,
};

/* ---- opening ----------------------------------------------------------------------------- */

static int open_area(struct afxdp_queue *queue)
{
    const struct xsk_umem_config config = {
        .fill_size = CHUNKS_EACH_WAY, .comp_size = CHUNKS_EACH_WAY, .frame_size = CHUNK};
    void *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (area == MAP_FAILED)
        return -errno;
    queue->area = area;
    return xsk_umem__create(&queue->umem, area, AREA, &queue->fill, &queue->completed, &config);
}

/* The first half of the area is for received frames, the second for transmitted ones. */
static void hand_out_chunks(struct afxdp_queue *queue)
{
    uint32_t index = 0;

    xsk_ring_prod__reserve(&queue->fill, CHUNKS_EACH_WAY, &index);
    for (uint32_t i = 0; i < CHUNKS_EACH_WAY; i++) {
        *xsk_ring_prod__fill_addr(&queue->fill, index + i) = (uint64_t)i * CHUNK;
        queue->free[i] = (uint64_t)(CHUNKS_EACH_WAY + i) * CHUNK;
    }
    xsk_ring_prod__submit(&queue->fill, CHUNKS_EACH_WAY);
    queue->free_count = CHUNKS_EACH_WAY;
}

static int open_socket(struct afxdp_queue *queue, const struct vw_port_options *options)
{
    const struct xsk_socket_config config = {
        .rx_size = CHUNKS_EACH_WAY,
        .tx_size = CHUNKS_EACH_WAY,
        .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
        .bind_flags = XDP_USE_NEED_WAKEUP, /* without a copy if the driver is able to */
    };

    return xsk_socket__create(&queue->socket, options->interface, options->queue, queue->umem,
                              &queue->receive, &queue->transmit, &config);
}

/* The kernel lets go of a queue some time after its last socket was closed. */
static int open_queue(struct afxdp_queue *queue, const struct vw_port_options *options)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000};
    int result;

    for (unsigned i = 0; i < BUSY_TRIES; i++) {
        result = open_area(queue);
        if (result == 0) {
            hand_out_chunks(queue);
            result = open_socket(queue, options);
        }
        if (result != -EBUSY)
            break;
        close_queue(queue);
        nanosleep(&pause, NULL);
    }
    return result;
}

/* return bpf_redirect_map(&map, context->rx_queue_index, XDP_PASS); */
static int load_program(int map_fd)
{
    const struct bpf_insn program[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W,
         .dst_reg = BPF_REG_2,
         .src_reg = BPF_REG_1,
         .off = offsetof(struct xdp_md, rx_queue_index)},
        {.code = BPF_DW, /* and BPF_LD and BPF_IMM, which are 0 */
         .dst_reg = BPF_REG_1,
         .src_reg = BPF_PSEUDO_MAP_FD,
         .imm = map_fd},
        {.code = 0}, /* the second half of the one before */
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };

    return bpf_prog_load(BPF_PROG_TYPE_XDP, "virtwire", "BSD-3-Clause", program,
                         VW_ARRAY_SIZE(program), NULL);
}

static int attach_program(struct afxdp *afxdp, int interface, unsigned queue)
{
    afxdp->map_fd =
        bpf_map_create(BPF_MAP_TYPE_XSKMAP, "virtwire", sizeof(int), sizeof(int), queue + 1, NULL);
    if (afxdp->map_fd < 0)
        return -errno;
    int result = xsk_socket__update_xskmap(afxdp->queue.socket, afxdp->map_fd);
    if (result < 0)
        return result;
    afxdp->program_fd = load_program(afxdp->map_fd);
    if (afxdp->program_fd < 0)
        return -errno;
    afxdp->link_fd = bpf_link_create(afxdp->program_fd, interface, BPF_XDP, NULL);
    return afxdp->link_fd < 0 ? -errno : 0;
}

static void tell_settings(struct afxdp *afxdp)
{
    struct xdp_options options = {0};
    socklen_t size = sizeof(options);
    int result =
        getsockopt(xsk_socket__fd(afxdp->queue.socket), SOL_XDP, XDP_OPTIONS, &options, &size);
    bool zero_copy = result == 0 && (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;

    snprintf(afxdp->port.settings, sizeof(afxdp->port.settings), "mode=%s",
             zero_copy ? "zero-copy" : "copy");
}

static int watch_link(struct afxdp *afxdp, const struct vw_port_options *options,
                      const struct vw_port_error *error)
{
    struct vw_port *port = &afxdp->port;
    struct vw_link link = {0};
    int result = vw_link_monitor_open(&afxdp->monitor);

    if (result == 0)
        result = vw_link_get(options->interface, &link);
    if (result == 0 && options->mtu != 0)
        result = vw_link_set(link.index, options->mtu, false);
    if (result == 0)
        result = vw_link_get(options->interface, &link);
    if (result < 0)
        return vw_port_fail(error, result, "if=%s: %s", options->interface,
                            result == -ENODEV ? "there is no such interface" : strerror(-result));
    if (link.mtu + VW_PORT_ETHERNET_HEADER + 4 > LONGEST_FRAME)
        return vw_port_fail(
            error, -EMSGSIZE, "if=%s: its MTU of %u is too large for AF_XDP: at most %d",
            options->interface, link.mtu, LONGEST_FRAME - VW_PORT_ETHERNET_HEADER - 4);
    vw_link_monitor_start(&afxdp->monitor, &link);
    port->mtu = link.mtu;
    port->link_fd = vw_link_monitor_fd(&afxdp->monitor);
    port->link_up = afxdp->monitor.up;
    return 0;
}

static int explain(const struct vw_port_options *options, int result,
                   const struct vw_port_error *error)
{
    const char *reason = strerror(-result);

    if (result == -EPERM || result == -EACCES)
        reason = "AF_XDP needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
    else if (result == -EBUSY || result == -EEXIST)
        reason = "another XDP program, or AF_XDP socket, is there already";
    else if (result == -EINVAL)
        reason = "the interface has no such queue, or the kernel no AF_XDP";
    else if (result == -ENOMEM || result == -ENOBUFS)
        reason = "no memory that may be locked (ulimit -l): 4 MiB are needed";
    return vw_port_fail(error, result, "if=%s,queue=%u: %s", options->interface, options->queue,
                        reason);
}

static int open_all(struct afxdp *afxdp, const struct vw_port_options *options,
                    const struct vw_port_error *error)
{
    int result = watch_link(afxdp, options, error);

    if (result < 0)
        return result;
    result = open_queue(&afxdp->queue, options);
    if (result == 0)
        result = attach_program(afxdp, afxdp->monitor.index, options->queue);
    if (result < 0)
        return explain(options, result, error);
    tell_settings(afxdp);
    return 0;
}

int vw_port_afxdp_open(const struct vw_port_options *options, const struct vw_log *log,
                       struct vw_port **port, const struct vw_port_error *error)
{
    if (options->interface == NULL)
        return vw_port_fail(error, -EINVAL, "afxdp: give the interface, such as if=veth0");
    if (strlen(options->interface) >= IFNAMSIZ)
        return vw_port_fail(error, -EINVAL, "if=%s: an interface's name has at most %d characters",
                            options->interface, IFNAMSIZ - 1);
    if (options->queues != 1)
        return vw_port_fail(error, -EINVAL,
                            "afxdp: serves one queue of an interface: use one queue pair");
    struct afxdp *afxdp = vw_port_allocate(sizeof(*afxdp));
    if (afxdp == NULL)
        return vw_port_fail(error, -ENOMEM, "afxdp: no memory");
    afxdp->map_fd = afxdp->program_fd = afxdp->link_fd = -1;
    afxdp->port.ops = &afxdp_ops;
    afxdp->port.log = log;
    afxdp->port.link_fd = -1;
    afxdp->port.link_changed = afxdp_link_changed;
    afxdp->port.queue_count = 1;
    afxdp->port.queues = afxdp->queues;
    afxdp->queues[0] = &afxdp->queue.queue;
    afxdp->queue.queue.port = &afxdp->port;
    snprintf(afxdp->port.description, sizeof(afxdp->port.description), "afxdp %s queue %u",
             options->interface, options->queue);
    int result = open_all(afxdp, options, error);
    if (result < 0) {
        afxdp_close(&afxdp->port);
        return result;
    }
    *port = &afxdp->port;
    return 0;
}
