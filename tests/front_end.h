/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device in this process, and a small vhost-user front-end with a virtio-net driver to drive it.
 *
 * Theory of operation
 * -------------------
 * The device runs in a thread of its own that does what a program would: poll vw_device_fd, call
 * vw_device_process. The test's thread is front-end and driver in one. Its memory is a file that
 * the device maps once more, cut into regions at odd places, so that buffers straddle regions; a
 * part of a ring must not, so all rings lie in the first region.
 *
 * Nothing here takes a time: a wait that lasts WAIT_MS means a wake-up that was lost, and fails.
 */
#ifndef VW_TESTS_FRONT_END_H
#define VW_TESTS_FRONT_END_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/device.h"
#include "model/random.h"
#include "net/config.h"
#include "net/features.h"
#include "net/header.h"
#include "ring/driver.h"
#include "transport/socket.h"
#include "vhost/message.h"

#define WAIT_MS 60000
#define FRONT_END_GUEST UINT64_C(0x540000000)
#define FRONT_END_USER UINT64_C(0x7e5000000000)
#define FRONT_END_MEMORY (UINT64_C(48) << 20)
#define FRONT_END_RING_PART (UINT64_C(4) << 20)
#define FRONT_END_MAX_PAIRS 2
#define FRONT_END_MAX_SEGMENTS 6
#define FRONT_END_MAX_BYTES (VW_NET_MAX_FRAME + VW_NET_HEADER_MAX)
#define F(name) (UINT64_C(1) << VIRTIO_NET_F_##name)

/* ---- The device and its thread ---- */

struct running_device {
    struct vw_port *port;
    struct vw_device *device;
    pthread_t thread;
    pthread_mutex_t lock; /* around everything that calls the device */
    _Atomic bool stop;
    int stop_fd;
};

static inline void *running_device_main(void *argument)
{
    struct running_device *running = argument;
    struct pollfd wait[2] = {{.fd = vw_device_fd(running->device), .events = POLLIN},
                             {.fd = running->stop_fd, .events = POLLIN}};
    int ended = 0;

    while (!atomic_load(&running->stop) && !ended) {
        poll(wait, 2, -1);
        pthread_mutex_lock(&running->lock);
        ended = vw_device_process(running->device);
        pthread_mutex_unlock(&running->lock);
    }
    return NULL;
}

/* Without a thread that serves it. */
static inline void device_create(struct running_device *running, const char *port,
                                 struct vw_device_options *options)
{
    char error[256] = "";

    assert_int_equal(
        vw_port_open(port, options->queue_pairs, NULL, &running->port, error, sizeof(error)), 0);
    options->port = running->port;
    if (vw_device_create(options, &running->device, error, sizeof(error)) != 0)
        fail_msg("%s", error);
    pthread_mutex_init(&running->lock, NULL);
    atomic_store(&running->stop, false);
    running->stop_fd = eventfd(0, EFD_CLOEXEC);
}

static inline void device_open(struct running_device *running, const char *port,
                               struct vw_device_options *options)
{
    device_create(running, port, options);
    assert_int_equal(pthread_create(&running->thread, NULL, running_device_main, running), 0);
}

static inline void device_stop(struct running_device *running)
{
    atomic_store(&running->stop, true);
    assert_int_equal(eventfd_write(running->stop_fd, 1), 0);
    assert_int_equal(pthread_join(running->thread, NULL), 0);
}

static inline void device_close(struct running_device *running)
{
    vw_device_destroy(running->device);
    running->port->ops->close(running->port);
    close(running->stop_fd);
    pthread_mutex_destroy(&running->lock);
}

static inline struct vw_queue_statistics queue_statistics(struct running_device *running,
                                                          unsigned index)
{
    struct vw_queue_statistics statistics;

    pthread_mutex_lock(&running->lock);
    vw_device_queue_statistics(running->device, index, &statistics);
    pthread_mutex_unlock(&running->lock);
    return statistics;
}

static inline struct vw_device_statistics device_statistics(struct running_device *running)
{
    struct vw_device_statistics statistics;

    pthread_mutex_lock(&running->lock);
    vw_device_statistics(running->device, &statistics);
    pthread_mutex_unlock(&running->lock);
    return statistics;
}

/* All drops of a queue, whatever the reason. */
static inline uint64_t dropped(const struct vw_queue_statistics *statistics)
{
    uint64_t sum = 0;

#define ADD(name, text)                                                                            \
    if (strncmp(#name, "drop_", 5) == 0)                                                           \
        sum += statistics->counters.name;
    VW_QUEUE_COUNTERS(ADD)
#undef ADD
    return sum;
}

/* Waits until a counter of a queue, which only grows, is `value`. */
#define wait_for_counter(running, queue, name, value)                                              \
    do {                                                                                           \
        for (unsigned turn_ = 0;                                                                   \
             queue_statistics((running), (queue)).counters.name < (uint64_t)(value); turn_++) {    \
            assert_true(turn_ < WAIT_MS);                                                          \
            usleep(1000);                                                                          \
        }                                                                                          \
    } while (0)

/* ---- The front-end ---- */

struct buffer {
    uint64_t offset; /* in the memory file */
    uint32_t size;
    uint32_t count;
    struct vw_segment segments[FRONT_END_MAX_SEGMENTS];
};

struct front_ring {
    unsigned index; /* vhost-user's */
    uint32_t size;
    uint64_t areas[3]; /* offsets in the memory file, by enum vw_ring_area */
    struct vw_driver_ring ring;
    void *state;
    int kick, call;
    struct buffer *buffers;
    struct buffer **free;
    unsigned buffer_count, free_count;
};

struct front_end {
    int socket, file;
    struct vw_socket_receiver receiver;
    uint64_t features, protocol;
    unsigned header_size, pairs, device_pairs;
    char *memory;
    uint64_t allocated, cuts[8]; /* where regions begin; [0] is 0 */
    unsigned region_count;
    struct random random;
    struct front_ring receive[FRONT_END_MAX_PAIRS], transmit[FRONT_END_MAX_PAIRS], control;
};

struct received {
    struct vw_net_header header;
    uint32_t length, buffers;
    uint8_t bytes[FRONT_END_MAX_BYTES];
};

static inline bool has_control_queue(const struct front_end *front)
{
    return (front->features & F(CTRL_VQ)) != 0;
}

/* Sends a request and takes its reply, or its acknowledgement if that was negotiated. */
static inline int request(struct front_end *front, struct vw_vu_message *message, int fd)
{
    const struct vw_vu_request_info *info =
        vw_vu_request_info(VW_VU_FRONT_END, message->header.request);
    const char *why = "";

    vw_vu_need_reply(VW_VU_FRONT_END, message, front->protocol);
    assert_int_equal(vw_socket_send(front->socket, message, &fd, fd >= 0), 0);
    if (info->reply != VW_VU_REPLY_OWN && !(message->header.flags & VW_VU_FLAG_NEED_REPLY))
        return 0;
    assert_int_equal(vw_socket_receive_wait(&front->receiver, front->socket, WAIT_MS), 1);
    return vw_vu_check_reply(VW_VU_FRONT_END, message, &front->receiver.message,
                             front->receiver.fd_count, &why) == VW_VU_OK
               ? 0
               : -EINVAL;
}

static inline void tell(struct front_end *front, struct vw_vu_message *message, int fd)
{
    assert_int_equal(request(front, message, fd), 0);
}

static inline uint64_t ask_u64(struct front_end *front, uint32_t number)
{
    struct vw_vu_message message;

    vw_vu_request(&message, number, 0);
    tell(front, &message, -1);
    return front->receiver.message.payload.u64;
}

static inline void tell_u64(struct front_end *front, uint32_t number, uint64_t value)
{
    struct vw_vu_message message;

    vw_vu_request_u64(&message, number, value);
    tell(front, &message, -1);
}

static inline void tell_state(struct front_end *front, uint32_t number, uint32_t index,
                              uint32_t value)
{
    struct vw_vu_message message;

    vw_vu_request_state(&message, number, index, value);
    tell(front, &message, -1);
}

static inline void tell_ring_fd(struct front_end *front, uint32_t number, uint32_t index, int fd)
{
    struct vw_vu_message message;

    vw_vu_request_ring_fd(&message, number, index, fd >= 0);
    tell(front, &message, fd);
}

static inline struct vw_vu_region front_region(const struct front_end *front, unsigned i)
{
    uint64_t end = i + 1 < front->region_count ? front->cuts[i + 1] : FRONT_END_MEMORY;

    return (struct vw_vu_region){.guest = FRONT_END_GUEST + front->cuts[i],
                                 .user = FRONT_END_USER + front->cuts[i],
                                 .size = end - front->cuts[i],
                                 .offset = front->cuts[i]};
}

static inline void tell_memory(struct front_end *front)
{
    struct vw_vu_message message;
    int fds[VW_VU_MAX_FDS];

    vw_vu_request(&message, VW_VU_SET_MEM_TABLE, 8 + front->region_count * 32);
    message.payload.memory.count = front->region_count;
    for (unsigned i = 0; i < front->region_count; i++) {
        message.payload.memory.regions[i] = front_region(front, i);
        fds[i] = front->file;
    }
    vw_vu_need_reply(VW_VU_FRONT_END, &message, front->protocol);
    assert_int_equal(vw_socket_send(front->socket, &message, fds, front->region_count), 0);
    if (message.header.flags & VW_VU_FLAG_NEED_REPLY) {
        assert_int_equal(vw_socket_receive_wait(&front->receiver, front->socket, WAIT_MS), 1);
        assert_true(front->receiver.message.payload.u64 == 0);
    }
}

/* Cuts the memory anew: at odd places behind the rings. */
static inline void cut_memory(struct front_end *front)
{
    front->region_count = 1 + random_below(&front->random, 6);
    front->cuts[0] = 0;
    for (unsigned i = 1; i < front->region_count; i++) {
        uint64_t part = (FRONT_END_MEMORY - FRONT_END_RING_PART) / front->region_count;

        front->cuts[i] = FRONT_END_RING_PART + part * (i - 1) + 1 +
                         random_below(&front->random, (uint32_t)part - 1);
    }
}

static inline uint64_t take_memory(struct front_end *front, uint64_t size, uint64_t alignment)
{
    uint64_t at = (front->allocated + alignment - 1) & ~(alignment - 1);

    front->allocated = at + size;
    assert_true(front->allocated <= FRONT_END_MEMORY);
    return at;
}

/* ---- Rings ---- */

static inline void ring_start(struct front_end *front, struct front_ring *ring, uint32_t base)
{
    struct vw_vu_message message;

    tell_state(front, VW_VU_SET_VRING_NUM, ring->index, ring->size);
    tell_state(front, VW_VU_SET_VRING_BASE, ring->index, base);
    vw_vu_request(&message, VW_VU_SET_VRING_ADDR, sizeof(struct vw_vu_address));
    message.payload.address =
        (struct vw_vu_address){.index = ring->index,
                               .descriptor = FRONT_END_USER + ring->areas[VW_RING_DESCRIPTOR_AREA],
                               .available = FRONT_END_USER + ring->areas[VW_RING_DRIVER_AREA],
                               .used = FRONT_END_USER + ring->areas[VW_RING_DEVICE_AREA]};
    tell(front, &message, -1);
    tell_ring_fd(front, VW_VU_SET_VRING_KICK, ring->index, ring->kick);
    tell_ring_fd(front, VW_VU_SET_VRING_CALL, ring->index, ring->call);
    tell_state(front, VW_VU_SET_VRING_ENABLE, ring->index, 1);
}

static inline uint32_t ring_stop(struct front_end *front, struct front_ring *ring)
{
    tell_state(front, VW_VU_GET_VRING_BASE, ring->index, 0);
    assert_int_equal(front->receiver.message.payload.state.index, ring->index);
    return front->receiver.message.payload.state.num;
}

static inline uint32_t fresh_base(const struct front_end *front)
{
    return vw_has(front->features, VIRTIO_F_RING_PACKED) ? 0x80008000 : 0;
}

/* The driver half begins anew, with zeroed areas. Buffers in flight are free again. */
static inline void ring_begin(struct front_end *front, struct front_ring *ring)
{
    bool packed = vw_has(front->features, VIRTIO_F_RING_PACKED);
    struct vw_ring_config config = {.format = packed ? VW_RING_PACKED : VW_RING_SPLIT,
                                    .size = ring->size,
                                    .features = front->features,
                                    .descriptor_area = front->memory + ring->areas[0],
                                    .driver_area = front->memory + ring->areas[1],
                                    .device_area = front->memory + ring->areas[2]};
    uint64_t tables = ring->areas[0] + 16 * (uint64_t)ring->size;
    struct vw_indirect_tables indirect = {.memory = front->memory + tables,
                                          .address = FRONT_END_GUEST + tables,
                                          .segments = FRONT_END_MAX_SEGMENTS};

    free(ring->state);
    ring->state = calloc(1, vw_driver_ring_state_size(ring->size));
    assert_non_null(ring->state);
    assert_int_equal(vw_driver_ring_init(&ring->ring, &config, ring->state, &indirect), 0);
    for (unsigned i = 0; i < ring->buffer_count; i++)
        ring->free[i] = &ring->buffers[i];
    ring->free_count = ring->buffer_count;
}

static inline void ring_make(struct front_end *front, struct front_ring *ring, unsigned index,
                             uint32_t size)
{
    bool packed = vw_has(front->features, VIRTIO_F_RING_PACKED);

    *ring = (struct front_ring){.index = index, .size = size};
    for (enum vw_ring_area area = VW_RING_DESCRIPTOR_AREA; area <= VW_RING_DEVICE_AREA; area++) {
        uint64_t bytes = vw_ring_area_size(packed ? VW_RING_PACKED : VW_RING_SPLIT, area, size);

        if (area == VW_RING_DESCRIPTOR_AREA) /* indirect tables follow the descriptors */
            bytes += (uint64_t)size * FRONT_END_MAX_SEGMENTS * 16;
        ring->areas[area] = take_memory(front, bytes, 16);
    }
    ring->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ring->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/* `count` buffers of `size` bytes, in `segments` segments each, wherever memory is next. */
static inline void ring_buffers(struct front_end *front, struct front_ring *ring, unsigned count,
                                uint32_t smallest, uint32_t largest, uint32_t segments)
{
    if (front->allocated < FRONT_END_RING_PART)
        front->allocated = FRONT_END_RING_PART;
    ring->buffers = calloc(count, sizeof(*ring->buffers));
    ring->free = calloc(count, sizeof(struct buffer *));
    ring->buffer_count = count;
    assert_true(ring->buffers != NULL && ring->free != NULL);
    for (unsigned i = 0; i < count; i++) {
        struct buffer *buffer = &ring->buffers[i];
        uint32_t left;

        buffer->size = left = smallest + random_below(&front->random, largest - smallest + 1);
        buffer->offset = take_memory(front, left, 1);
        buffer->count = segments;
        for (uint32_t s = 0; s < segments; s++) {
            uint32_t part = s + 1 == segments ? left : 1 + left / (segments - s) / 2;

            buffer->segments[s] = (struct vw_segment){.address = FRONT_END_GUEST + buffer->offset +
                                                                 (buffer->size - left),
                                                      .length = part};
            left -= part;
        }
    }
}

static inline void ring_unmake(struct front_ring *ring)
{
    free(ring->state);
    free(ring->buffers);
    free(ring->free);
    close(ring->kick);
    close(ring->call);
}

static inline void ring_kick(struct front_ring *ring)
{
    assert_int_equal(eventfd_write(ring->kick, 1), 0);
}

static inline void ring_publish(struct front_ring *ring)
{
    if (vw_driver_ring_publish(&ring->ring))
        ring_kick(ring);
}

/* ---- Frames ---- */

/* Adds one frame to the transmit ring, cut at random. False if there is no room. */
static inline bool send_frame(struct front_end *front, unsigned pair,
                              const struct vw_net_header *header, const uint8_t *bytes,
                              uint32_t length)
{
    struct front_ring *ring = &front->transmit[pair];
    uint32_t left = front->header_size + length, most = FRONT_END_MAX_SEGMENTS;

    if (ring->free_count == 0)
        return false;
    struct buffer *buffer = ring->free[ring->free_count - 1];
    char *to = front->memory + buffer->offset;

    assert_true(left <= buffer->size);
    vw_net_header_encode(header, to, front->header_size);
    memcpy(to + front->header_size, bytes, length);
    if (most > ring->size)
        most = ring->size;
    buffer->count = 1 + random_below(&front->random, most);
    for (uint32_t s = 0; s < buffer->count; s++) {
        /* Often short ones in front, so that the header is cut; sometimes empty ones. */
        uint32_t part = random_below(&front->random, random_one_in(&front->random, 2) ? 24 : left);

        if (part > left || s + 1 == buffer->count)
            part = left;
        buffer->segments[s] = (struct vw_segment){.address = FRONT_END_GUEST + buffer->offset +
                                                             (front->header_size + length - left),
                                                  .length = part};
        left -= part;
    }
    if (vw_driver_ring_add(&ring->ring, buffer->segments, buffer->count, 0, buffer) < 0)
        return false;
    ring->free_count--;
    return true;
}

/* Takes back what was transmitted; the device has written nothing into it. */
static inline unsigned reap_transmitted(struct front_end *front, unsigned pair)
{
    struct front_ring *ring = &front->transmit[pair];
    struct vw_completion completions[16];
    uint32_t count = vw_driver_ring_reap(&ring->ring, completions, VW_ARRAY_SIZE(completions));

    assert_int_equal(ring->ring.error, VW_RING_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(completions[i].length, 0);
        ring->free[ring->free_count++] = completions[i].token;
    }
    return count;
}

/* Posts up to `most` receive buffers. */
static inline unsigned post_buffers(struct front_end *front, unsigned pair, unsigned most)
{
    struct front_ring *ring = &front->receive[pair];
    unsigned posted = 0;

    for (; posted < most && ring->free_count > 0; posted++) {
        struct buffer *buffer = ring->free[ring->free_count - 1];

        if (vw_driver_ring_add(&ring->ring, buffer->segments, 0, buffer->count, buffer) < 0)
            break;
        ring->free_count--;
    }
    return posted;
}

/* Takes one buffer's bytes; returns false if none was used. */
static inline bool take_buffer(struct front_end *front, unsigned pair, uint8_t *to, uint32_t room,
                               uint32_t *length)
{
    struct front_ring *ring = &front->receive[pair];
    struct vw_completion completion;

    if (vw_driver_ring_reap(&ring->ring, &completion, 1) == 0) {
        assert_int_equal(ring->ring.error, VW_RING_OK);
        return false;
    }
    struct buffer *buffer = completion.token;
    assert_true(completion.length <= buffer->size && completion.length <= room);
    memcpy(to, front->memory + buffer->offset, completion.length);
    memset(front->memory + buffer->offset, 0xa5, buffer->size);
    ring->free[ring->free_count++] = buffer;
    *length = completion.length;
    return true;
}

/* Receives one frame, of as many buffers as its header says: they are all there at once. */
static inline bool receive_frame(struct front_end *front, unsigned pair, struct received *frame)
{
    uint8_t *raw = malloc(FRONT_END_MAX_BYTES);
    uint32_t length, more = 0;

    assert_non_null(raw);
    if (!take_buffer(front, pair, raw, FRONT_END_MAX_BYTES, &length)) {
        free(raw);
        return false;
    }
    assert_true(length >= front->header_size);
    vw_net_header_decode(&frame->header, raw, front->header_size);
    frame->buffers =
        vw_has(front->features, VIRTIO_NET_F_MRG_RXBUF) ? frame->header.num_buffers : 1;
    assert_true(frame->buffers >= 1 && frame->buffers <= front->receive[pair].size);
    for (uint32_t i = 1; i < frame->buffers; i++) {
        assert_true(take_buffer(front, pair, raw + length, FRONT_END_MAX_BYTES - length, &more));
        assert_true(more > 0);
        length += more;
    }
    frame->length = length - front->header_size;
    memcpy(frame->bytes, raw + front->header_size, frame->length);
    free(raw);
    return true;
}

/* Arms every ring in use, looks again, and sleeps until a call. */
static inline void wait_for_calls(struct front_end *front)
{
    struct pollfd wait[2 * FRONT_END_MAX_PAIRS];
    unsigned count = 0;
    bool ready = false;

    for (unsigned i = 0; i < front->pairs; i++) {
        struct front_ring *rings[2] = {&front->receive[i], &front->transmit[i]};

        for (unsigned r = 0; r < 2; r++) {
            ready |= !vw_driver_ring_enable_calls(&rings[r]->ring);
            wait[count++] = (struct pollfd){.fd = rings[r]->call, .events = POLLIN};
        }
    }
    if (!ready && poll(wait, count, WAIT_MS) == 0)
        fail_msg("nothing moves: a wake-up was lost");
    for (unsigned i = 0; i < count; i++) {
        eventfd_t calls;

        (void)!eventfd_read(wait[i].fd, &calls);
    }
    if (random_one_in(&front->random, 2))
        for (unsigned i = 0; i < front->pairs; i++) {
            vw_driver_ring_disable_calls(&front->receive[i].ring);
            vw_driver_ring_disable_calls(&front->transmit[i].ring);
        }
}

/* Waits for one frame on a pair. Takes back what was transmitted in any case, also if the frame is
 * there: who only sends and awaits would run out of descriptors. */
static inline void await_frame(struct front_end *front, unsigned pair, struct received *frame)
{
    for (;;) {
        bool moved = false;

        for (unsigned i = 0; i < front->pairs; i++)
            moved |= reap_transmitted(front, i) > 0;
        if (receive_frame(front, pair, frame))
            return;
        if (!moved)
            wait_for_calls(front);
    }
}

/* ---- Control commands ---- */

/* One command and its data, cut at random; returns the acknowledgement. If that is OK, `expected`
 * bytes of an answer follow it. */
static inline uint8_t control_ask(struct front_end *front, uint8_t class, uint8_t command,
                                  const void *data, uint32_t length, void *answer,
                                  uint32_t expected)
{
    struct front_ring *ring = &front->control;
    struct buffer *buffer = &ring->buffers[0];
    char *to = front->memory + buffer->offset;
    struct vw_segment segments[4];
    struct vw_completion completion;
    uint32_t cut = random_below(&front->random, length + 3);
    struct pollfd wait = {.fd = ring->call, .events = POLLIN};
    eventfd_t calls;

    assert_true(2 + length + 1 + expected <= buffer->size);
    to[0] = (char)class;
    to[1] = (char)command;
    memcpy(to + 2, data, length);
    to[2 + length] = 0x55;
    segments[0] = (struct vw_segment){FRONT_END_GUEST + buffer->offset, cut};
    segments[1] = (struct vw_segment){FRONT_END_GUEST + buffer->offset + cut, 2 + length - cut};
    segments[2] = (struct vw_segment){FRONT_END_GUEST + buffer->offset + 2 + length, 1 + expected};
    assert_int_equal(vw_driver_ring_add(&ring->ring, segments, 2, 1, buffer), 0);
    ring_publish(ring);
    while (vw_driver_ring_reap(&ring->ring, &completion, 1) == 0) {
        if (!vw_driver_ring_enable_calls(&ring->ring))
            continue;
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        (void)!eventfd_read(ring->call, &calls);
    }
    bool done = to[2 + length] == VIRTIO_NET_OK;
    assert_int_equal(completion.length, done ? 1 + expected : 1);
    if (done && expected > 0)
        memcpy(answer, to + 2 + length + 1, expected);
    return (uint8_t)to[2 + length];
}

static inline uint8_t control(struct front_end *front, uint8_t class, uint8_t command,
                              const void *data, uint32_t length)
{
    return control_ask(front, class, command, data, length, NULL, 0);
}

static inline uint8_t use_pairs(struct front_end *front, uint16_t pairs)
{
    uint8_t data[2] = {(uint8_t)pairs, (uint8_t)(pairs >> 8)};

    return control(front, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, data, 2);
}

/* ---- From nothing to a working device ---- */

static inline void front_end_memory(struct front_end *front, uint64_t seed)
{
    *front = (struct front_end){.random = {seed}};
    front->file = memfd_create("vw-test-guest", MFD_CLOEXEC);
    assert_true(front->file >= 0);
    assert_int_equal(ftruncate(front->file, (off_t)FRONT_END_MEMORY), 0);
    front->memory =
        mmap(NULL, FRONT_END_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, front->file, 0);
    assert_true(front->memory != MAP_FAILED);
    cut_memory(front);
}

static inline void negotiate(struct front_end *front, int socket, uint64_t features)
{
    front->socket = socket;
    front->protocol = 0;
    vw_socket_receiver_init(&front->receiver, VW_VU_FRONT_END, true);
    uint64_t offered = ask_u64(front, VW_VU_GET_FEATURES);
    assert_true((features & ~offered) == 0);
    uint64_t protocol = ask_u64(front, VW_VU_GET_PROTOCOL_FEATURES);
    assert_true(vw_has(protocol, VW_VU_PF_REPLY_ACK));
    protocol &= ~vw_bit(VW_VU_PF_INBAND_NOTIFICATIONS);
    tell_u64(front, VW_VU_SET_PROTOCOL_FEATURES, protocol);
    front->protocol = protocol;
    vw_net_header_size(features);
    front->features = features;
    front->header_size = vw_net_header_size(features);
    struct vw_vu_message message;
    vw_vu_request(&message, VW_VU_SET_OWNER, 0);
    tell(front, &message, -1);
    tell_u64(front, VW_VU_SET_FEATURES, features | vw_bit(VW_VU_F_PROTOCOL_FEATURES));
}

/* How rings and buffers are made. */
struct shape {
    enum vw_device_mode mode;
    unsigned pairs; /* of the front-end, and of the device */
    unsigned device_pairs;
    uint32_t size;           /* of each ring but the control queue */
    uint32_t transmit_bytes; /* of a transmit buffer */
    uint32_t receive_smallest, receive_largest, receive_segments;
    unsigned batch; /* of the device; 0: the default */
    bool batch_singly;
};

static inline void make_rings(struct front_end *front, const struct shape *shape)
{
    front->pairs = shape->pairs;
    front->device_pairs = shape->device_pairs;
    for (unsigned i = 0; i < shape->pairs; i++) {
        ring_make(front, &front->receive[i], 2 * i, shape->size);
        ring_make(front, &front->transmit[i], 2 * i + 1, shape->size);
    }
    if (has_control_queue(front))
        ring_make(front, &front->control,
                  vw_net_control_queue_index(front->features, shape->device_pairs), 16);
    assert_true(front->allocated <= FRONT_END_RING_PART);
    for (unsigned i = 0; i < shape->pairs; i++) {
        unsigned direct = shape->size / shape->receive_segments;
        bool indirect = vw_has(front->features, VIRTIO_RING_F_INDIRECT_DESC);

        ring_buffers(front, &front->receive[i], indirect ? shape->size : direct,
                     shape->receive_smallest, shape->receive_largest, shape->receive_segments);
        ring_buffers(front, &front->transmit[i], shape->size < 96 ? shape->size : 96,
                     shape->transmit_bytes, shape->transmit_bytes, 1);
    }
    if (has_control_queue(front))
        ring_buffers(front, &front->control, 1, 4096, 4096, 1);
}

static inline void start_rings(struct front_end *front)
{
    for (unsigned i = 0; i < front->pairs; i++) {
        ring_begin(front, &front->receive[i]);
        ring_begin(front, &front->transmit[i]);
    }
    if (has_control_queue(front)) {
        ring_begin(front, &front->control);
        ring_start(front, &front->control, fresh_base(front));
    }
    for (unsigned i = 0; i < front->pairs; i++) {
        ring_start(front, &front->receive[i], fresh_base(front));
        ring_start(front, &front->transmit[i], fresh_base(front));
    }
    if (front->features & F(MQ))
        assert_int_equal(use_pairs(front, (uint16_t)front->pairs), VIRTIO_NET_OK);
}

static inline void front_end_end(struct front_end *front)
{
    if (front->socket >= 0)
        close(front->socket);
    vw_socket_receiver_destroy(&front->receiver);
    for (unsigned i = 0; i < front->pairs; i++) {
        ring_unmake(&front->receive[i]);
        ring_unmake(&front->transmit[i]);
    }
    if (has_control_queue(front))
        ring_unmake(&front->control);
    munmap(front->memory, FRONT_END_MEMORY);
    close(front->file);
}

/* A device on one end of a socket pair, and a front-end on the other, ready for traffic. */
static inline void begin(struct running_device *running, struct front_end *front, const char *port,
                         uint64_t features, const struct shape *shape, uint64_t seed)
{
    struct vw_device_options options = {.queue_pairs = shape->device_pairs,
                                        .features_on = features & VW_NET_DEVICE_EXTRAS,
                                        .mode = shape->mode,
                                        .batch = shape->batch,
                                        .batch_singly = shape->batch_singly,
                                        .has_mac = true,
                                        .mac = {0x52, 0x54, 0, 0x12, 0x34, 0x56}};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    options.fd = ends[0];
    device_open(running, port, &options);
    front_end_memory(front, seed);
    negotiate(front, ends[1], features);
    make_rings(front, shape);
    tell_memory(front);
    start_rings(front);
}

static inline void end(struct running_device *running, struct front_end *front)
{
    device_stop(running);
    front_end_end(front);
    device_close(running);
}

#endif
