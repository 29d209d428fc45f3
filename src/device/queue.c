/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shared.h"
#include "base/system_calls.h"
#include "device/internal.h"
#include "device/interrupt.h"

/* Elements that the transmit path needs free in front of a frame: one for the header, and two more
 * to splice a checksum in (transmit.c). */
#define TRANSMIT_HEADROOM 3

int vw_queue_init(struct vw_queue *queue, struct vw_device *device, unsigned index,
                  enum vw_queue_role role)
{
    memset(queue, 0, sizeof(*queue));
    queue->device = device;
    queue->index = index;
    queue->role = role;
    queue->kick_fd = queue->call.fd = queue->error.fd = -1;
    return -pthread_mutex_init(&queue->lock, NULL);
}

void vw_queue_destroy(struct vw_queue *queue)
{
    vw_queue_reset(queue);
    free(queue->chains);
    free(queue->pool.iov);
    pthread_mutex_destroy(&queue->lock);
}

static void replace_fd(int *slot, int fd)
{
    if (*slot >= 0)
        close(*slot);
    *slot = fd;
}

static bool unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_NONBLOCK || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

/*
 * Kicks are waited for, edge-triggered, and never read: that saves a system call a kick (1.1 us of
 * about 4: docs/performance.md). A socket or a pipe would fill up; and reading them can block,
 * whatever flags are set, where the front-end holds the same end and its own read of it stands
 * still.
 */
int vw_queue_set_kick_fd(struct vw_queue *queue, int fd)
{
    bool good = fd < 0 || vw_fd_is_eventfd(fd);

    if (!good)
        vw_fd_close(fd);
    replace_fd(&queue->kick_fd, good ? fd : -1);
    return good ? 0 : -EINVAL;
}

static int set_notifier(struct vw_notifier *notifier, int fd)
{
    bool is_socket = fd >= 0 && vw_fd_is_unix_socket(fd, false);
    bool good = fd < 0 || is_socket || (vw_fd_is_eventfd(fd) && unblock(fd));

    if (!good)
        vw_fd_close(fd);
    replace_fd(&notifier->fd, good ? fd : -1);
    notifier->is_socket = is_socket;
    return good ? 0 : -EINVAL;
}

int vw_queue_set_call_fd(struct vw_queue *queue, int fd)
{
    return set_notifier(&queue->call, fd);
}

int vw_queue_set_error_fd(struct vw_queue *queue, int fd)
{
    return set_notifier(&queue->error, fd);
}

void vw_queue_reset(struct vw_queue *queue)
{
    vw_queue_set_kick_fd(queue, -1);
    vw_queue_set_call_fd(queue, -1);
    vw_queue_set_error_fd(queue, -1);
    queue->size = 0;
    queue->addressed = false;
    queue->base = 0;
    queue->base_exact = queue->base_told = false;
    queue->started = queue->enabled = queue->live = false;
    queue->call_in_band = queue->polled = false;
    queue->chain_first = queue->chain_count = 0;
    queue->pool.used = 0;
}

/* Room for as many chains and pieces as a ring of this size can hold. It only ever grows. */
static int make_room(struct vw_queue *queue, uint32_t size)
{
    bool receives = queue->role == VW_QUEUE_RECEIVE;
    uint32_t chains = receives ? size : VW_PORT_BATCH;
    uint32_t pieces = receives ? 2 * size + 1024
                               : size + VW_MEMORY_MAX_REGIONS + chains * (TRANSMIT_HEADROOM + 1);

    if (chains > queue->chain_capacity) {
        struct vw_chain *grown = realloc(queue->chains, chains * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        queue->chains = grown;
        queue->chain_capacity = chains;
    }
    if (pieces > queue->pool.capacity) {
        struct iovec *grown = realloc(queue->pool.iov, pieces * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        queue->pool.iov = grown;
        queue->pool.capacity = pieces;
    }
    queue->pool.headroom = queue->role == VW_QUEUE_TRANSMIT ? TRANSMIT_HEADROOM : 0;
    return 0;
}

/* One part of the ring at a front-end's address: mapped in one piece, and aligned? */
static void *find_area(const struct vw_memory *memory, const struct vw_ring_config *config,
                       enum vw_ring_area area, uint64_t user, const char **why)
{
    uint64_t size = vw_ring_area_size(config->format, area, config->size);
    void *local = vw_memory_from_user(memory, user, size);

    if (local == NULL)
        *why = "a part of the ring lies outside the memory table";
    else if ((uintptr_t)local % vw_ring_area_alignment(config->format, area) != 0) {
        *why = "a part of the ring is not aligned";
        local = NULL;
    }
    return local;
}

static int find_areas(const struct vw_queue *queue, const struct vw_memory *memory,
                      struct vw_ring_config *config, const char **why)
{
    config->descriptor_area =
        find_area(memory, config, VW_RING_DESCRIPTOR_AREA, queue->descriptor_user, why);
    config->driver_area = find_area(memory, config, VW_RING_DRIVER_AREA, queue->driver_user, why);
    config->device_area = find_area(memory, config, VW_RING_DEVICE_AREA, queue->device_user, why);
    return config->descriptor_area != NULL && config->driver_area != NULL &&
                   config->device_area != NULL
               ? 0
               : -EFAULT;
}

static bool flag_of(const struct vring_packed_desc *descriptor, unsigned bit)
{
    return (vw_load_le16(&descriptor->flags) >> bit & 1) != 0;
}

/* Was any descriptor of this packed ring ever marked used in an odd round? */
static bool any_used_bit(const struct vring_packed_desc *descriptors, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        if (flag_of(&descriptors[i], VRING_PACKED_DESC_F_USED))
            return true;
    return false;
}

/*
 * The place where a packed ring goes on whose back-end died, from the ring itself. The AVAIL bit of
 * a descriptor tells in which round it was last written, whoever did it; it flips where the
 * driver's next place is. From there, the oldest buffer first, the first one that is not used is
 * where the device stood. That holds while each buffer takes one ring entry: the caller knows.
 */
static uint32_t find_packed_place(const struct vring_packed_desc *descriptors, uint32_t size)
{
    bool round = flag_of(&descriptors[0], VRING_PACKED_DESC_F_AVAIL);
    uint32_t next = 1;

    while (next < size && flag_of(&descriptors[next], VRING_PACKED_DESC_F_AVAIL) == round)
        next++;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t place = next + i < size ? next + i : next + i - size;
        bool available = flag_of(&descriptors[place], VRING_PACKED_DESC_F_AVAIL);

        if (available != flag_of(&descriptors[place], VRING_PACKED_DESC_F_USED))
            return place | (available ? 0x8000u : 0);
    }
    return next == size ? (round ? 0 : 0x8000u) : next | (round ? 0x8000u : 0);
}

/*
 * Not every front-end fills a packed ring's base as vhost-user has it (two halves, each a position
 * and a wrap bit).
 *
 *   DPDK sends the available half alone; the used one is then the same, since nothing was in
 *   flight.
 *   User-mode Linux sends 0 for a fresh ring, which would be position 0 of an even round: but in
 *   that round at least one descriptor still has the used bit of the round before, and in a fresh
 *   ring none has.
 *   QEMU sends the base of a fresh ring after its back-end died, since nobody told it another; or
 *   that of a transmit ring from whose first entry on it dropped frames, in an odd round, whatever
 *   stood before them, when the driver sent some while there was no back-end. If the ring is not
 *   fresh, and buffers of several pieces go through indirect tables, so that each takes one entry,
 *   the ring tells where it stands; what QEMU dropped is then passed by on the way.
 */
static uint32_t complete_packed_base(struct vw_queue *queue, const struct vw_ring_config *config)
{
    const struct vring_packed_desc *descriptors = config->descriptor_area;
    bool fresh = !any_used_bit(descriptors, config->size);
    uint32_t base = queue->base;

    if (base == 0 && fresh)
        base = 0x8000;
    if (base >> 16 == 0)
        base = base << 16 | base;
    bool qemus =
        base == 0x80008000 || (queue->role == VW_QUEUE_TRANSMIT && base >> 16 == (base & 0xffff) &&
                               (base & 0x8000) != 0 && (base & 0x7fff) < config->size);
    if (qemus && !fresh && vw_has(config->features, VIRTIO_RING_F_INDIRECT_DESC) &&
        !vw_has(config->features, VIRTIO_F_IN_ORDER)) {
        uint32_t place = find_packed_place(descriptors, config->size);

        base = place << 16 | place;
        vw_device_ring_skip_used(&queue->ring);
    }
    return base;
}

/*
 * Where a split ring goes on. A front-end whose back-end died names a base that takes chains for
 * done which that back-end never used (Cloud Hypervisor names the available index itself). We use
 * chains in order and none is in flight after an orderly stop, so the used index in the ring tells
 * what really was completed; the rest is processed (again), as DPDK does it, too.
 */
static uint32_t resumable_split_base(uint32_t base, const struct vw_ring_config *config)
{
    const struct vring_used *used = config->device_area;
    uint16_t completed = vw_load_le16(&used->idx);

    if (base > UINT16_MAX) /* no index: left for the ring to refuse */
        return base;
    return (uint16_t)(base - completed) <= config->size ? completed : base;
}

static uint32_t starting_base(struct vw_queue *queue, const struct vw_ring_config *config)
{
    if (config->format == VW_RING_SPLIT)
        return resumable_split_base(queue->base, config);
    /* A packed ring of our own at the start of an even round has base 0 as well, and a first
     * descriptor without the used bit if it lay within a chain. */
    return queue->base_exact ? queue->base : complete_packed_base(queue, config);
}

static void take_down(struct vw_queue *queue)
{
    if (!queue->live)
        return;
    queue->base = vw_device_ring_base(&queue->ring);
    queue->base_exact = true;
    queue->live = false;
}

int vw_queue_refresh(struct vw_queue *queue, enum vw_ring_format format, uint64_t features,
                     const struct vw_memory *memory, const char **why)
{
    struct vw_ring_config config = {.format = format, .size = queue->size, .features = features};

    /* Moving a ring does not mend it: only a ring that was stopped starts anew. */
    enum vw_ring_error broken = queue->live ? queue->ring.error : VW_RING_OK;
    bool skips_used = queue->live && queue->ring.skips_used;

    take_down(queue);
    if (!queue->started || queue->size == 0 || !queue->addressed || memory->count == 0)
        return 0;
    if (!vw_ring_size_valid(format, queue->size)) {
        *why = "a ring of this size cannot be";
        return -EINVAL;
    }
    int error = find_areas(queue, memory, &config, why);
    if (error < 0)
        return error;
    error = make_room(queue, queue->size);
    if (error < 0) {
        *why = "out of memory";
        return error;
    }
    error = vw_device_ring_init(&queue->ring, &config, memory);
    if (error == 0)
        error = vw_device_ring_set_base(&queue->ring, starting_base(queue, &config));
    if (error < 0) {
        *why = "the base is not a position in this ring";
        return error;
    }
    queue->chain_first = queue->chain_count = 0;
    queue->pool.used = 0;
    queue->broken_told = broken;
    queue->ring.error = broken;
    if (skips_used)
        vw_device_ring_skip_used(&queue->ring);
    queue->live = true;
    return 0;
}

uint32_t vw_queue_stop(struct vw_queue *queue)
{
    take_down(queue);
    queue->started = queue->polled = false;
    return queue->base;
}

void vw_queue_set_base(struct vw_queue *queue, uint32_t base)
{
    queue->base_exact = queue->base_exact && queue->base_told && queue->base == base;
    queue->base_told = false;
    queue->base = base;
}

void vw_queue_give_back(struct vw_queue *queue)
{
    if (vw_queue_held(queue) > 0)
        vw_device_ring_give_back(&queue->ring, &queue->chains[queue->chain_first],
                                 vw_queue_held(queue));
}

/*
 * Writes 8 bytes, as an eventfd wants and as User-mode Linux's stream sockets expect. One that is
 * full holds what the front-end has not taken yet; one that blocks is not written to again.
 */
static bool notify(struct vw_queue *queue, struct vw_notifier *notifier, const char *what)
{
    uint64_t one = 1;

    if (notifier->is_socket) {
        vw_count_system_call();
        return send(notifier->fd, &one, sizeof(one), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(one);
    }
    int error = vw_interrupt_write(notifier->fd);
    if (error == -EINTR) {
        replace_fd(&notifier->fd, -1);
        atomic_store(&queue->device->blocked, true);
        vw_log_limited(queue->device->log, &queue->device->log_limit, VW_LOG_WARNING,
                       "queue %u: the front-end made its %s descriptor block; it gets no more",
                       queue->index, what);
    }
    return error == 0;
}

void vw_queue_call(struct vw_queue *queue)
{
    bool told = false;

    if (queue->call.fd >= 0)
        told = notify(queue, &queue->call, "call");
    else if (queue->call_in_band)
        told = vw_back_end_call(queue->device, queue->index);
    else
        return; /* the driver polls */
    vw_count(&queue->counters.calls, 1);
    /* A descriptor that is full holds calls that the guest has not taken: none is lost. */
    if (!told)
        vw_count(&queue->counters.calls_refused, 1);
}

void vw_queue_break(struct vw_queue *queue, enum vw_ring_error error)
{
    if (queue->ring.error == VW_RING_OK)
        queue->ring.error = error;
}

void vw_queue_report_broken(struct vw_queue *queue)
{
    static const char *const roles[] = {"receive", "transmit", "control"};

    if (vw_likely(queue->ring.error == VW_RING_OK) || queue->broken_told != VW_RING_OK)
        return;
    __atomic_store_n(&queue->broken_told, queue->ring.error, __ATOMIC_RELAXED);
    vw_count(&queue->counters.broken, 1);
    vw_log_limited(queue->device->log, &queue->device->log_limit, VW_LOG_WARNING,
                   "queue %u (%s): the guest broke the ring: %s; the queue stays stopped until the "
                   "guest sets it up again",
                   queue->index, roles[queue->role], vw_ring_error_text(queue->ring.error));
    if (queue->error.fd >= 0)
        notify(queue, &queue->error, "error");
    else if (queue->call_in_band)
        vw_back_end_error(queue->device, queue->index);
}
