/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hostile device behind the driver's public functions: a transport of which every answer comes
 * from the input, and which writes what it likes into the shared memory.
 *
 * It knows where the rings are, as a real device does. It serves them by the rules as often as not,
 * so that the driver gets somewhere, and lies in between. All of it happens in one thread, in kicks
 * and in acts of the target.
 */
#ifndef VW_TESTS_FUZZ_HOSTILE_DEVICE_H
#define VW_TESTS_FUZZ_HOSTILE_DEVICE_H

#include <errno.h>
#include <linux/virtio_config.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/iov.h"
#include "driver/internal.h"
#include "driver/open.h"
#include "input.h"
#include "net/features.h"
#include "ring/device.h"

#define HOSTILE_QUEUES 8
#define HOSTILE_TOKENS 256

struct hostile_queue {
    bool set;
    struct vw_ring_config config;
    struct vw_device_ring ring;
    uint32_t counts; /* of its kicks; it answers some of them */
};

struct hostile {
    struct vw_transport transport;
    struct input *input;
    uint64_t offered;
    int event_fd;
    bool lost, connected;
    struct vw_memory memory;
    struct hostile_queue queues[HOSTILE_QUEUES];
    struct iovec iov[1100];

    /* The driver's side. */
    struct vw_net *net;
    char *frames;
    uint8_t given[HOSTILE_TOKENS]; /* tokens that are the driver's */
    bool in_done;
};

static inline struct hostile *hostile_of(const struct vw_transport *transport)
{
    return (struct hostile *)(uintptr_t)transport;
}

/* Fails one time in 64, with any of a few errors. */
static inline int hostile_whim(struct hostile *device)
{
    static const int errors[] = {-EREMOTEIO, -ENOTCONN, -EPROTO, -ETIMEDOUT};
    uint8_t byte = input_byte(device->input);

    return byte % 64 == 63 ? errors[byte / 64] : 0;
}

static inline void hostile_close(struct vw_transport *transport)
{
    close(hostile_of(transport)->event_fd);
}

static inline int hostile_connect(struct vw_transport *transport, uint64_t *offered)
{
    struct hostile *device = hostile_of(transport);

    device->memory.count = 0;
    for (unsigned i = 0; i < HOSTILE_QUEUES; i++)
        device->queues[i].set = false;
    *offered = device->offered;
    if (input_byte(device->input) % 16 == 15)
        *offered ^= input_take(device->input, 8);
    device->connected = true;
    return hostile_whim(device);
}

static inline int hostile_accept(struct vw_transport *transport, uint64_t features)
{
    (void)features;
    return hostile_whim(hostile_of(transport));
}

static inline void hostile_disconnect(struct vw_transport *transport)
{
    hostile_of(transport)->connected = false;
}

static inline int hostile_share(struct vw_transport *transport, int fd, uint64_t offset,
                                void *address, uint64_t size)
{
    struct hostile *device = hostile_of(transport);
    const struct vw_memory_region region = {
        .guest = (uintptr_t)address, .user = (uintptr_t)address, .size = size, .local = address};

    (void)fd;
    (void)offset;
    INVARIANT(vw_memory_add(&device->memory, &region) == 0);
    return hostile_whim(device);
}

static inline int hostile_unshare(struct vw_transport *transport, void *address, uint64_t size)
{
    (void)transport;
    (void)address;
    (void)size;
    return 0;
}

static inline int hostile_read_config(struct vw_transport *transport, uint32_t offset,
                                      uint32_t size, void *to)
{
    struct hostile *device = hostile_of(transport);
    uint8_t space[64] = {0x52, 0x54, 0, 0x12, 0x34, 0x56, 1, 0, 2, 0, 0xdc, 5};

    INVARIANT(offset + size <= sizeof(space));
    if (input_byte(device->input) % 8 == 7)
        input_copy(device->input, space, 24);
    memcpy(to, space + offset, size);
    return hostile_whim(device);
}

static inline int hostile_max_pairs(struct vw_transport *transport, unsigned *pairs)
{
    *pairs = 1 + input_byte(hostile_of(transport)->input) % 3;
    return 0;
}

static inline int hostile_set_mtu(struct vw_transport *transport, unsigned mtu)
{
    (void)mtu;
    return hostile_whim(hostile_of(transport));
}

static inline int hostile_set_queue(struct vw_transport *transport,
                                    const struct vw_transport_queue *told)
{
    struct hostile *device = hostile_of(transport);

    if (told->index >= HOSTILE_QUEUES)
        return -EINVAL;
    struct hostile_queue *queue = &device->queues[told->index];
    queue->config = told->ring;
    queue->set = vw_device_ring_init(&queue->ring, &told->ring, &device->memory) == 0;
    return hostile_whim(device);
}

static inline int hostile_enable(struct vw_transport *transport, unsigned index, bool enabled)
{
    (void)index;
    (void)enabled;
    return hostile_whim(hostile_of(transport));
}

static inline int hostile_start(struct vw_transport *transport)
{
    return hostile_whim(hostile_of(transport));
}

static inline int hostile_stop_queue(struct vw_transport *transport, unsigned index, uint32_t *base)
{
    (void)index;
    *base = 0;
    return hostile_whim(hostile_of(transport));
}

/* Uses the next chain as it should, but for what it writes there and how much it says. */
static inline void hostile_use(struct hostile *device, struct hostile_queue *queue)
{
    struct vw_iov_pool pool = {.iov = device->iov, .capacity = VW_ARRAY_SIZE(device->iov)};
    struct vw_chain chain;
    uint8_t bytes[64] = {0}, kind = input_byte(device->input);

    if (!queue->set || vw_device_ring_fetch(&queue->ring, &chain, 1, &pool) != 1)
        return;
    if (chain.writable_count > 0) {
        size_t count = kind & 1 ? input_copy(device->input, bytes, input_byte(device->input) % 32)
                                : sizeof(bytes);

        if (!(kind & 1))
            bytes[10] = 1; /* one buffer */
        vw_iov_write(chain.iov, chain.writable_count, 0, bytes, count);
        chain.written = kind & 2 ? (uint32_t)input_take(device->input, 4)
                                 : (uint32_t)vw_min64(chain.writable_length, 72);
    }
    if ((kind & 0xe0) == 0xe0)
        chain.id = (uint16_t)input_take(device->input, 2);
    vw_device_ring_use(&queue->ring, &chain, 1);
    vw_device_ring_publish(&queue->ring);
}

/* Writes a few bytes where it likes: mostly in a ring, or anywhere in the memory. */
static inline void hostile_scribble(struct hostile *device)
{
    struct hostile_queue *queue = &device->queues[input_byte(device->input) % HOSTILE_QUEUES];
    const struct vw_shared *shared = &device->net->shared;
    char *area = shared->address;
    uint64_t size = shared->size;

    if (queue->set && input_byte(device->input) % 4 != 0) {
        bool packed = queue->config.format == VW_RING_PACKED;
        enum vw_ring_area which = packed ? VW_RING_DESCRIPTOR_AREA : VW_RING_DEVICE_AREA;

        area = packed ? queue->config.descriptor_area : queue->config.device_area;
        size = vw_ring_area_size(queue->config.format, which, queue->config.size);
    }
    uint64_t at = input_take(device->input, 3) % size;
    input_copy(device->input, area + at, vw_min64(size - at, input_byte(device->input) % 9));
}

static inline void hostile_kick(struct vw_transport *transport, unsigned index)
{
    struct hostile *device = hostile_of(transport);

    if (index < HOSTILE_QUEUES && device->queues[index].counts++ % 4 != 3)
        hostile_use(device, &device->queues[index]);
}

static inline int hostile_call_fd(const struct vw_transport *transport, unsigned index)
{
    (void)transport;
    (void)index;
    return -1;
}

static inline int hostile_event_fd(const struct vw_transport *transport)
{
    return hostile_of(transport)->event_fd;
}

static inline int hostile_process(struct vw_transport *transport)
{
    struct hostile *device = hostile_of(transport);
    int events = input_byte(device->input) % 8;

    if ((events & VW_TRANSPORT_LOST) && !device->connected)
        events &= ~VW_TRANSPORT_LOST;
    if (events & VW_TRANSPORT_LOST)
        device->connected = false;
    if (device->connected)
        events &= ~VW_TRANSPORT_REACHABLE;
    return events;
}

static inline void hostile_done(void *context, unsigned pair, void *token, int sent)
{
    struct hostile *device = context;
    uintptr_t number = (uintptr_t)token;

    (void)pair;
    (void)sent;
    INVARIANT(number < HOSTILE_TOKENS && device->given[number] == 1);
    device->given[number] = 0; /* once */
}

/* False: the driver did not want this device. */
static inline bool hostile_open(struct hostile *device, struct input *input,
                                struct vw_net_options *options)
{
    static const struct vw_transport_ops operations = {.name = "hostile",
                                                       .close = hostile_close,
                                                       .connect = hostile_connect,
                                                       .accept = hostile_accept,
                                                       .disconnect = hostile_disconnect,
                                                       .share = hostile_share,
                                                       .unshare = hostile_unshare,
                                                       .read_config = hostile_read_config,
                                                       .max_pairs = hostile_max_pairs,
                                                       .set_mtu = hostile_set_mtu,
                                                       .set_queue = hostile_set_queue,
                                                       .enable_queue = hostile_enable,
                                                       .start = hostile_start,
                                                       .stop_queue = hostile_stop_queue,
                                                       .kick = hostile_kick,
                                                       .call_fd = hostile_call_fd,
                                                       .event_fd = hostile_event_fd,
                                                       .process = hostile_process};
    char error[200];

    memset(device, 0, sizeof(*device));
    device->transport.ops = &operations;
    device->input = input;
    device->event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); /* always something */
    device->offered =
        input_take(input, 8) | vw_bit(VIRTIO_F_VERSION_1) | vw_bit(VIRTIO_NET_F_CTRL_VQ);
    options->memory = 65536;
    options->request_ms = 0;
    options->spin_us = 0;
    options->tx_done = hostile_done;
    options->tx_context = device;
    if (vw_net_open_over(options, &device->transport, &device->net, error, sizeof(error)) != 0)
        return false;
    device->frames = vw_alloc(device->net, 4096);
    INVARIANT(device->frames != NULL);
    return true;
}

/* Every token is back by then. */
static inline void hostile_end(struct hostile *device)
{
    vw_net_close(device->net);
    for (unsigned i = 0; i < HOSTILE_TOKENS; i++)
        INVARIANT(device->given[i] == 0);
}

/* An act of the device. */
static inline void hostile_act(struct hostile *device)
{
    uint8_t kind = input_byte(device->input);

    if (kind % 8 == 7)
        hostile_scribble(device);
    else
        hostile_use(device, &device->queues[kind / 8 % HOSTILE_QUEUES]);
}

#endif
