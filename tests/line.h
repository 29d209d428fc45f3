/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vhost-user front-end with the smallest driver there can be: one receive and one transmit ring,
 * one frame at a time, which goes out and is to come back.
 *
 * Nothing here takes a time: a wait that lasts LINE_WAIT_MS means a wake-up that was lost, and
 * fails.
 */
#ifndef VW_TESTS_LINE_H
#define VW_TESTS_LINE_H

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/bits.h"
#include "memory/shared.h"
#include "ring/driver.h"
#include "transport/transport.h"

#define LINE_WAIT_MS 60000
#define LINE_SIZE 64 /* of a ring */
#define LINE_HEADER 12
#define LINE_FRAME 200
#define LINE_BUFFER 2048

struct side {
    struct vw_transport_queue queue;
    struct vw_driver_ring ring;
    void *state;
};

struct line {
    struct vw_transport *transport;
    const struct vw_transport_ops *ops;
    struct vw_shared memory;
    uint64_t features;
    struct side receive, transmit;
    uint8_t next; /* tells frames from one another */
};

static inline bool line_packed(const struct line *line)
{
    return vw_has(line->features, VIRTIO_F_RING_PACKED);
}

static inline void line_open(struct line *line, uint64_t features,
                             const struct vw_transport_vhost_user_options *options)
{
    memset(line, 0, sizeof(*line));
    line->features = features | vw_bit(VIRTIO_F_VERSION_1);
    line->next = 1;
    assert_int_equal(vw_shared_open(&line->memory, 1 << 20, false), 0);
    assert_int_equal(vw_transport_vhost_user_open(options, &line->transport), 0);
    line->ops = line->transport->ops;
}

static inline void *line_area(struct line *line, enum vw_ring_format format,
                              enum vw_ring_area which)
{
    void *memory = vw_shared_alloc(&line->memory, vw_ring_area_size(format, which, LINE_SIZE));

    assert_non_null(memory);
    return memory;
}

static inline void side_make(struct line *line, struct side *side, unsigned index)
{
    enum vw_ring_format format = line_packed(line) ? VW_RING_PACKED : VW_RING_SPLIT;

    side->queue.index = index;
    side->queue.base = line_packed(line) ? 0x80008000 : 0;
    side->queue.ring =
        (struct vw_ring_config){.format = format,
                                .size = LINE_SIZE,
                                .features = line->features,
                                .descriptor_area = line_area(line, format, VW_RING_DESCRIPTOR_AREA),
                                .driver_area = line_area(line, format, VW_RING_DRIVER_AREA),
                                .device_area = line_area(line, format, VW_RING_DEVICE_AREA)};
    side->state = calloc(1, vw_driver_ring_state_size(LINE_SIZE));
    assert_non_null(side->state);
    assert_int_equal(vw_driver_ring_init(&side->ring, &side->queue.ring, side->state, NULL), 0);
}

static inline void side_unmake(struct line *line, struct side *side)
{
    vw_shared_free(&line->memory, side->queue.ring.descriptor_area);
    vw_shared_free(&line->memory, side->queue.ring.driver_area);
    vw_shared_free(&line->memory, side->queue.ring.device_area);
    free(side->state);
}

static inline void line_start(struct line *line)
{
    assert_int_equal(line->ops->set_queue(line->transport, &line->receive.queue), 0);
    assert_int_equal(line->ops->set_queue(line->transport, &line->transmit.queue), 0);
    assert_int_equal(line->ops->enable_queue(line->transport, 0, true), 0);
    assert_int_equal(line->ops->enable_queue(line->transport, 1, true), 0);
    assert_int_equal(line->ops->start(line->transport), 0);
}

static inline void line_connect(struct line *line)
{
    uint64_t offered;

    assert_int_equal(line->ops->connect(line->transport, &offered), 0);
    assert_true((line->features & ~offered) == 0);
    assert_int_equal(line->ops->accept(line->transport, line->features), 0);
    assert_int_equal(line->ops->share(line->transport, line->memory.fd, 0, line->memory.address,
                                      line->memory.size),
                     0);
    side_make(line, &line->receive, 0);
    side_make(line, &line->transmit, 1);
    line_start(line);
}

static inline void side_give(struct line *line, struct side *side, char *memory, uint32_t length)
{
    struct vw_segment segment = {(uintptr_t)memory, length};
    bool receives = side == &line->receive;

    assert_int_equal(vw_driver_ring_add(&side->ring, &segment, !receives, receives, memory), 0);
    if (vw_driver_ring_publish(&side->ring))
        line->ops->kick(line->transport, side->queue.index);
}

/* Waits for one used buffer. */
static inline uint32_t side_take(struct line *line, struct side *side, const char *expected)
{
    struct vw_completion completion;
    struct pollfd wait = {.fd = line->ops->call_fd(line->transport, side->queue.index),
                          .events = POLLIN};
    eventfd_t calls;

    while (vw_driver_ring_reap(&side->ring, &completion, 1) == 0) {
        assert_int_equal(side->ring.error, VW_RING_OK);
        if (!vw_driver_ring_enable_calls(&side->ring))
            continue;
        assert_int_equal(poll(&wait, 1, LINE_WAIT_MS), 1);
        (void)!eventfd_read(wait.fd, &calls);
    }
    assert_ptr_equal(completion.token, expected);
    return completion.length;
}

/* One frame out and back, in buffers that were made for it. */
static inline void line_exchange(struct line *line)
{
    char *out = vw_shared_alloc(&line->memory, LINE_HEADER + LINE_FRAME);
    char *in = vw_shared_alloc(&line->memory, LINE_BUFFER);

    assert_true(out != NULL && in != NULL);
    memset(out, 0, LINE_HEADER);
    memset(out + LINE_HEADER, line->next++, LINE_FRAME);
    memset(in, 0xee, LINE_BUFFER);
    side_give(line, &line->receive, in, LINE_BUFFER);
    side_give(line, &line->transmit, out, LINE_HEADER + LINE_FRAME);
    assert_int_equal(side_take(line, &line->receive, in), LINE_HEADER + LINE_FRAME);
    side_take(line, &line->transmit, out);
    assert_memory_equal(in + LINE_HEADER, out + LINE_HEADER, LINE_FRAME);
    assert_int_equal(vw_shared_free(&line->memory, out), 0);
    assert_int_equal(vw_shared_free(&line->memory, in), 0);
}

/* The rings are made anew with the next line_connect. */
static inline void line_stop(struct line *line)
{
    side_unmake(line, &line->receive);
    side_unmake(line, &line->transmit);
}

static inline void line_close(struct line *line)
{
    line->ops->close(line->transport);
    assert_int_equal(vw_shared_in_use(&line->memory), 0);
    vw_shared_close(&line->memory);
}

/* Where both rings of a line stand that has exchanged `frames`, one descriptor each. */
static inline uint32_t line_base(const struct line *line, uint32_t frames)
{
    uint32_t half = (frames % LINE_SIZE) | (frames / LINE_SIZE % 2 ? 0 : 0x8000);

    return line_packed(line) ? half << 16 | half : frames & 0xffff;
}

#endif
