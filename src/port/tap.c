/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP port at work: one descriptor for each queue, and as few system calls as there may be.
 *
 * Theory of operation
 * -------------------
 * transmit writes the frames, headers first, straight from the guest's memory: one by one, or, with
 * a ring (tap_ring.h), all of a batch in one system call. Either way every frame that it takes is
 * complete at once; the results wait for the device in a FIFO all the same, because a port is
 * asynchronous to its user. Where the host cannot take a frame *now*, it stays with the device,
 * which will offer it again, so nothing is lost and nothing overtakes:
 *
 *   EAGAIN            the send buffer is full. EPOLLOUT comes when half of it is free; the time
 *                     limit is for a buffer so small that half of it never is.
 *   ENOBUFS, ENOMEM   the host has no memory. No event will ever tell that it has again, so time
 *                     does; and a frame that finds none for a second is given up, so that one
 *                     which can never be had does not stop the queue for ever.
 *
 * In a batch the frames behind such a one have been tried as well. Where the send buffer is
 * limited, the writes are linked, so that they were not; that costs 30 % more a frame. Where it is
 * not, only memory can be short, and a frame that found none while a later one did is lost.
 *
 * Every other error concerns the one frame: EINVAL (a header that the kernel does not accept; the
 * device may complete the checksum itself and offer the frame anew), EIO (the interface is down).
 * After EBADFD the interface was deleted. The descriptor is then readable and in error for ever,
 * so that any wait for it would burn the core; want never asks for it again.
 *
 * receive reads into VW_PORT_BATCH buffers, as many in one system call as there were frames before.
 * With a ring, the reads of the next turn go along with its writes; receive then finds them done.
 * The kernel writes 10 of the header's 12 bytes and skips the others, and cuts a frame that is
 * longer than the buffer without a word, so the buffer is one byte longer than any frame, and one
 * that fills it was cut.
 */
#include "port/tap.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/iov.h"
#include "base/system_calls.h"

#define WRITE_IOV_MAX 1024    /* the kernel's UIO_MAXIOV */
#define NO_ROOM_TIMEOUT_MS 10 /* see EAGAIN above */
#define NO_MEMORY_TIMEOUT_MS 1
#define NO_MEMORY_TRIES 1000 /* about a second */

static void tap_gone(struct vw_tap_queue *tap)
{
    if (!tap->gone)
        vw_log(tap->queue.port->log, VW_LOG_WARNING, "%s: the interface was deleted",
               tap->queue.port->description);
    tap->gone = true;
}

/* macvtap, whose descriptors work like a TAP's, says ENOLINK or ENODEV where TAP says EBADFD. */
static bool is_gone(int error)
{
    return error == EBADFD || error == ENODEV || error == ENXIO || error == ENOLINK ||
           error == EBADF;
}

static char *buffer_of(const struct vw_tap_queue *tap, uint32_t index)
{
    return tap->buffers + (size_t)index * VW_PORT_BUFFER_STRIDE;
}

void vw_tap_received_init(struct vw_tap_received *received)
{
    for (uint32_t i = 0; i < VW_PORT_BATCH; i++)
        received->free[i] = (uint8_t)(VW_PORT_BATCH - 1 - i);
    received->free_count = VW_PORT_BATCH;
    received->goal = 1;
}

uint32_t vw_tap_received_discard(struct vw_tap_received *received)
{
    uint32_t count = received->read;

    for (; received->read > 0; received->read--)
        received->free[received->free_count++] =
            received
                ->order[(received->first + received->lent + received->read - 1) % VW_PORT_BATCH];
    return count;
}

void vw_tap_ring_lost(struct vw_tap_queue *tap, int error)
{
    vw_log(tap->queue.port->log, VW_LOG_WARNING,
           "%s: io_uring fails (%s); going on with one system call a frame",
           tap->queue.port->description, strerror(-error));
    vw_tap_ring_close(&tap->ring);
}

/* Reads under way: which buffers, and what became of them. */
struct read_batch {
    uint32_t count;
    uint8_t buffers[VW_PORT_BATCH];
    int results[VW_PORT_BATCH]; /* length, or -errno */
};

static void add_reads(struct vw_tap_queue *tap, struct read_batch *reads, uint32_t count)
{
    struct vw_tap_received *received = &tap->received;

    reads->count = (uint32_t)vw_min64(count, received->free_count);
    for (uint32_t i = 0; i < reads->count; i++) {
        reads->buffers[i] = received->free[--received->free_count];
        vw_tap_ring_read(&tap->ring, buffer_of(tap, reads->buffers[i]), VW_PORT_BUFFER_SIZE,
                         &reads->results[i]);
    }
}

static int read_plain(struct vw_tap_queue *tap, uint32_t index)
{
    ssize_t length;

    do {
        vw_count_system_call();
        length = read(tap->fd, buffer_of(tap, index), VW_PORT_BUFFER_SIZE);
    } while (length < 0 && errno == EINTR);
    return length < 0 ? -errno : (int)length;
}

/* Is it a whole frame? What is not is counted. */
static bool check_read(struct vw_tap_queue *tap, int result)
{
    struct vw_port_counters *counters = &tap->queue.counters;

    if (result == -EAGAIN || result == -ECANCELED)
        return false;
    /* These lose one frame: a segment of a kind that has no header, or no memory for one. */
    if (result == -EINVAL || result == -EFAULT || result == -ENOMEM) {
        vw_port_count(&counters->receive_failed);
        return false;
    }
    /* Anything else will not pass, and a descriptor that is ready and of no use burns CPU. */
    if (result < 0) {
        tap_gone(tap);
        return false;
    }
    if (result < VW_PORT_HEADER + VW_PORT_ETHERNET_HEADER) {
        vw_port_count(&counters->receive_short);
        return false;
    }
    if (result == VW_PORT_BUFFER_SIZE) {
        vw_port_count(&counters->receive_clipped);
        return false;
    }
    return true;
}

/*
 * Puts the frames that arrived behind those that wait, and the other buffers back. Returns true if
 * there were fewer frames than reads. The number for the next time grows and shrinks with them: a
 * read that finds nothing costs half as much as one that does.
 */
static bool take_reads(struct vw_tap_queue *tap, const struct read_batch *reads)
{
    struct vw_tap_received *received = &tap->received;
    uint32_t frames = 0;
    bool dry = false;

    for (uint32_t i = 0; i < reads->count; i++) {
        uint8_t buffer = reads->buffers[i];

        dry |= reads->results[i] == -EAGAIN;
        if (!check_read(tap, reads->results[i])) {
            received->free[received->free_count++] = buffer;
            continue;
        }
        received->length[buffer] = (uint32_t)reads->results[i];
        received->order[(received->first + received->lent + received->read++) % VW_PORT_BATCH] =
            buffer;
        frames++;
    }
    received->goal =
        (uint32_t)vw_min64(dry ? frames + (frames == 0) : 2 * received->goal, VW_PORT_BATCH);
    return dry;
}

/*
 * Puts a frame in more pieces than one system call takes into one piece. The device bounded its
 * length, and the pieces' lengths are private to us; only their bytes may still change.
 */
static struct iovec linearise(struct vw_tap_queue *tap, const struct vw_frame *frame)
{
    char *buffer = tap->buffers + (size_t)VW_PORT_BATCH * VW_PORT_BUFFER_STRIDE;
    size_t length = vw_iov_read(frame->iov, frame->iov_count, 0, buffer,
                                VW_PORT_HEADER + (size_t)frame->length);

    vw_port_count(&tap->queue.counters.transmit_linearised);
    return (struct iovec){buffer, length};
}

static int write_frame(struct vw_tap_queue *tap, const struct vw_frame *frame)
{
    struct iovec linear;
    const struct iovec *iov = frame->iov;
    int count = (int)frame->iov_count;
    ssize_t written;

    if (frame->iov_count > WRITE_IOV_MAX) {
        linear = linearise(tap, frame);
        iov = &linear;
        count = 1;
    }
    do {
        vw_count_system_call();
        written = writev(tap->fd, iov, count);
    } while (written < 0 && errno == EINTR);
    return written < 0 ? errno : 0;
}

/* An error of now, not of the frame. */
static bool passes(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* Returns true if the frame stays with the device, because it can go later but not now. */
static bool can_go_later(struct vw_tap_queue *tap, int error)
{
    if (error == EAGAIN) {
        tap->blocked = VW_TAP_NO_ROOM;
        vw_port_count(&tap->queue.counters.transmit_full);
        return true;
    }
    if (passes(error) && tap->no_memory < NO_MEMORY_TRIES) {
        tap->blocked = VW_TAP_NO_MEMORY;
        tap->no_memory++;
        vw_port_count(&tap->queue.counters.transmit_no_memory);
        return true;
    }
    tap->no_memory = 0;
    return false;
}

static enum vw_port_result result_of(struct vw_tap_queue *tap, int error)
{
    if (error == 0)
        return VW_PORT_SENT;
    if (error == EINVAL)
        return VW_PORT_REFUSED;
    if (error == EIO || error == ENETDOWN)
        return VW_PORT_DOWN;
    if (is_gone(error)) {
        tap_gone(tap);
        return VW_PORT_GONE;
    }
    return VW_PORT_FAILED;
}

static bool is_sendable(const struct vw_frame *frame)
{
    return frame->length >= VW_PORT_ETHERNET_HEADER && frame->length <= VW_PORT_MAX_FRAME;
}

/* The first frame alone. Returns 1, or 0 if it stays. */
static uint32_t offer_one(struct vw_tap_queue *tap, const struct vw_frame *frame)
{
    enum vw_port_result result = VW_PORT_GONE;

    if (!is_sendable(frame)) {
        result = VW_PORT_REFUSED;
    } else if (!tap->gone) {
        int error = write_frame(tap, frame);

        if (can_go_later(tap, error))
            return 0;
        result = result_of(tap, error);
    }
    vw_port_results_add(&tap->results, &tap->queue, result);
    return 1;
}

/*
 * Tells how the frames of a batch fared. The frames behind the last one that is done with stay. One
 * before it that found no memory is lost: it would be overtaken.
 */
static uint32_t settle(struct vw_tap_queue *tap, const int *written, uint32_t count)
{
    uint32_t end = count;

    while (end > 0 && (passes(-written[end - 1]) || written[end - 1] == -ECANCELED))
        end--;
    if (end > 0)
        tap->no_memory = 0;
    for (uint32_t i = 0; i < end; i++) {
        int error = written[i] < 0 ? -written[i] : 0;

        if (vw_unlikely(passes(error)))
            vw_port_count(&tap->queue.counters.transmit_overtaken);
        vw_port_results_add(&tap->results, &tap->queue, result_of(tap, error));
    }
    if (end < count && written[end] != -ECANCELED && !can_go_later(tap, -written[end])) {
        vw_port_results_add(&tap->results, &tap->queue, VW_PORT_FAILED);
        end++;
    }
    return end;
}

/* How many of the first frames one system call takes. */
static uint32_t batch_of(const struct vw_tap_queue *tap, const struct vw_frame *frames,
                         uint32_t count)
{
    uint32_t room = VW_PORT_RESULTS - (tap->results.added - tap->results.taken), n = 0;

    count = (uint32_t)vw_min64(count, vw_min64(room, VW_PORT_BATCH));
    while (n < count && is_sendable(&frames[n]) && frames[n].iov_count <= WRITE_IOV_MAX)
        n++;
    return n;
}

/* Runs what was added to the ring, and falls back to plain system calls if it cannot. */
static void run_ring(struct vw_tap_queue *tap)
{
    struct vw_port_counters *counters = &tap->queue.counters;

    vw_shared_store(&counters->batched, counters->batched + tap->ring.added);
    vw_port_count(&counters->batches);
    int result = vw_tap_ring_run(&tap->ring);
    if (vw_unlikely(result < 0))
        vw_tap_ring_lost(tap, result);
}

/* Several frames in one system call, and the reads that wait to go along. */
static uint32_t offer_batch(struct vw_tap_queue *tap, const struct vw_frame *frames, uint32_t count)
{
    struct vw_tap_received *received = &tap->received;
    struct read_batch reads;
    int written[VW_PORT_BATCH];

    for (uint32_t i = 0; i < count; i++)
        vw_tap_ring_write(&tap->ring, frames[i].iov, frames[i].iov_count,
                          tap->room_limited && i + 1 < count, &written[i]);
    add_reads(tap, &reads, received->along);
    run_ring(tap);
    if (reads.count > 0)
        received->dry = take_reads(tap, &reads);
    received->along = 0;
    return settle(tap, written, count);
}

static uint32_t tap_transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    struct vw_tap_queue *tap = vw_tap_queue_of(queue);
    uint32_t taken = 0;

    tap->blocked = VW_TAP_NOT_BLOCKED;
    if (vw_unlikely(vw_shared_load(&vw_tap_of(queue->port)->deleted)))
        tap_gone(tap);
    while (taken < count && tap->blocked == VW_TAP_NOT_BLOCKED &&
           !vw_port_results_full(&tap->results)) {
        uint32_t batch = 0;

        if (tap->ring.open && !tap->gone)
            batch = batch_of(tap, &frames[taken], count - taken);
        if (batch > 0 && batch + tap->received.along > 1)
            taken += offer_batch(tap, &frames[taken], batch);
        else
            taken += offer_one(tap, &frames[taken]);
    }
    return taken;
}

static uint32_t tap_complete(struct vw_port_queue *queue, enum vw_port_result *results,
                             uint32_t max)
{
    return vw_port_results_take(&vw_tap_queue_of(queue)->results, results, max);
}

/* Lends the oldest frames that were read. */
static uint32_t lend(struct vw_tap_queue *tap, struct vw_frame *frames, uint32_t max)
{
    struct vw_tap_received *received = &tap->received;
    uint32_t count = (uint32_t)vw_min64(max, received->read);

    for (uint32_t i = 0; i < count; i++) {
        uint8_t index = received->order[(received->first + received->lent++) % VW_PORT_BATCH];
        char *buffer = buffer_of(tap, index);
        struct iovec *iov = tap->iov[index];
        uint32_t length = received->length[index] - VW_PORT_HEADER;

        /* num_buffers: the kernel leaves what the last frame had there. */
        memset(buffer + offsetof(struct virtio_net_hdr_v1, num_buffers), 0, sizeof(uint16_t));
        iov[0] = (struct iovec){buffer, VW_PORT_HEADER};
        iov[1] = (struct iovec){buffer + VW_PORT_HEADER, length};
        frames[i] = (struct vw_frame){iov, 2, length};
        vw_port_count(&tap->queue.counters.receive_frames);
    }
    received->read -= count;
    return count;
}

/*
 * Reads several frames in one system call, or one without a ring. Returns true if there are no
 * more.
 */
static bool read_some(struct vw_tap_queue *tap, uint32_t count)
{
    struct read_batch reads;

    if (count > 1 && tap->ring.open) {
        add_reads(tap, &reads, count);
        run_ring(tap);
        return take_reads(tap, &reads);
    }
    reads.count = 1;
    reads.buffers[0] = tap->received.free[--tap->received.free_count];
    reads.results[0] = read_plain(tap, reads.buffers[0]);
    return take_reads(tap, &reads);
}

static uint32_t tap_receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    struct vw_tap_queue *tap = vw_tap_queue_of(queue);
    struct vw_tap_received *received = &tap->received;
    uint32_t count = lend(tap, frames, max), asked = count;
    bool dry = received->dry; /* just now, together with the writes */

    /* A lost frame counts as one of `max`, so that the loop is bounded whatever arrives. */
    while (!dry && asked < max && received->free_count > 0 && !tap->gone) {
        uint32_t some = tap->ring.open ? (uint32_t)vw_min64(received->goal, max - asked) : 1;

        some = (uint32_t)vw_min64(some, received->free_count);
        dry = read_some(tap, some);
        count += lend(tap, &frames[count], max - count);
        asked += some;
    }
    received->dry = false;
    received->along = tap->gone ? 0 : received->goal;
    return count;
}

static void tap_release(struct vw_port_queue *queue, uint32_t count)
{
    struct vw_tap_received *received = &vw_tap_queue_of(queue)->received;

    for (; count > 0 && received->lent > 0; count--, received->lent--)
        received->free[received->free_count++] = received->order[received->first++ % VW_PORT_BATCH];
}

static void tap_want(struct vw_port_queue *queue, bool receive, bool transmit,
                     struct vw_port_wait *wait)
{
    const struct vw_tap_queue *tap = vw_tap_queue_of(queue);

    *wait = (struct vw_port_wait){.fd = -1, .timeout_ms = -1};
    if (receive && tap->received.read > 0)
        wait->timeout_ms = 0;
    if (!tap->gone && receive)
        wait->events |= EPOLLIN;
    if (transmit && wait->timeout_ms != 0) {
        wait->timeout_ms = 0; /* not blocked, or gone: transmit takes them at once */
        if (!tap->gone && tap->blocked == VW_TAP_NO_ROOM) {
            wait->events |= EPOLLOUT;
            wait->timeout_ms = NO_ROOM_TIMEOUT_MS;
        } else if (!tap->gone && tap->blocked == VW_TAP_NO_MEMORY) {
            wait->timeout_ms = NO_MEMORY_TIMEOUT_MS;
        }
    }
    /* Asked about nothing, the descriptor is left alone: even "only errors" would be reported for
     * ever by a deleted interface, and nobody would call receive to find out. */
    if (wait->events != 0)
        wait->fd = tap->fd;
}

static void tap_drain(struct vw_port_queue *queue)
{
    struct vw_tap_received *received = &vw_tap_queue_of(queue)->received;

    /* Every frame was complete when transmit returned. What the reads that went along found out
     * is of the past after a pause. */
    received->dry = false;
    received->along = 0;
}

const struct vw_port_ops vw_tap_ops = {
    .name = "tap",
    .close = vw_tap_close,
    .set_guest_offloads = vw_tap_set_guest_offloads,
    .set_active_queues = vw_tap_set_active_queues,
    .transmit = tap_transmit,
    .complete = tap_complete,
    .receive = tap_receive,
    .release = tap_release,
    .want = tap_want,
    .drain = tap_drain,
};
