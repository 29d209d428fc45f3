/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbered frames out through a device on a loop, and back, with every byte compared.
 *
 * Theory of operation
 * -------------------
 * A frame's length, header and contents follow from its session, pair and number, so that the
 * receiver makes the frame once more and compares. A loop holds frames back and never drops one,
 * and a pair keeps its order: the numbers that come back are 0, 1, 2, ...
 */
#ifndef VW_TESTS_DEVICE_TRAFFIC_H
#define VW_TESTS_DEVICE_TRAFFIC_H

#include "front_end.h"

#define NUMBERED_MIN 28 /* addresses, type, session, pair, number */

struct traffic {
    struct front_end *front;
    uint32_t session;
    uint32_t max_frame;
    uint64_t count; /* frames on each pair */
    uint64_t sent[FRONT_END_MAX_PAIRS], received[FRONT_END_MAX_PAIRS];
    /* Called now and then while frames are under way. */
    void (*disturb)(struct traffic *traffic, unsigned round);
    struct running_device *running; /* for disturb */
    unsigned rounds;
    struct received frame;
    uint8_t bytes[FRONT_END_MAX_BYTES];
};

/* The Internet checksum from `start` on, straight from RFC 1071. */
static inline uint16_t model_checksum(const uint8_t *bytes, uint32_t start, uint32_t length)
{
    uint32_t sum = 0;

    for (uint32_t i = start; i < length; i += 2)
        sum += (uint32_t)bytes[i] << 8 | (i + 1 < length ? bytes[i + 1] : 0);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static inline void model_complete(struct vw_net_header *header, uint8_t *bytes, uint32_t length)
{
    uint32_t place = (uint32_t)header->csum_start + header->csum_offset;
    uint16_t sum = model_checksum(bytes, header->csum_start, length);

    if (sum == 0 && header->csum_offset == 6)
        sum = 0xffff;
    bytes[place] = (uint8_t)(sum >> 8);
    bytes[place + 1] = (uint8_t)sum;
    header->flags = 0;
    header->csum_start = header->csum_offset = 0;
}

static inline void model_swap(uint8_t *bytes)
{
    uint8_t destination[6];

    memcpy(destination, bytes, 6);
    memcpy(bytes, bytes + 6, 6);
    memcpy(bytes + 6, destination, 6);
}

static inline uint32_t plan_length(const struct traffic *traffic, struct random *random)
{
    uint32_t usual = traffic->max_frame < 1514 ? traffic->max_frame : 1514;

    switch (random_below(random, 16)) {
    case 0:
        return traffic->max_frame;
    case 1:
        return NUMBERED_MIN;
    case 2:
        return NUMBERED_MIN + random_below(random, traffic->max_frame - NUMBERED_MIN + 1);
    default:
        return NUMBERED_MIN + random_below(random, usual - NUMBERED_MIN + 1);
    }
}

static inline void plan_header(const struct traffic *traffic, struct random *random,
                               uint32_t length, struct vw_net_header *header)
{
    uint64_t tso = F(HOST_TSO4) | F(GUEST_TSO4);

    *header = (struct vw_net_header){.flags = 0};
    if (!(traffic->front->features & F(CSUM)) || length < 60 || !random_one_in(random, 2))
        return;
    header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header->csum_start = 34;
    header->csum_offset = random_one_in(random, 2) ? 6 : 16;
    if ((traffic->front->features & tso) == tso && length > 2000 && random_one_in(random, 2)) {
        header->csum_offset = 16;
        header->gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        header->gso_size = 1000;
        header->hdr_len = 54;
    }
}

static inline uint32_t plan_frame(const struct traffic *traffic, unsigned pair, uint64_t number,
                                  struct vw_net_header *header, uint8_t *bytes)
{
    struct random random = {number * 7919 + pair * 104729 + (uint64_t)traffic->session * 1299709};
    uint32_t length = plan_length(traffic, &random);
    uint16_t wide = (uint16_t)pair;

    plan_header(traffic, &random, length, header);
    memcpy(bytes, "\x52\x54\x00\xaa\x00\x01\x52\x54\x00\xbb\x00\x02\x88\xb5", 14);
    memcpy(bytes + 14, &traffic->session, 4);
    memcpy(bytes + 18, &wide, 2);
    memcpy(bytes + 20, &number, 8);
    for (uint32_t i = NUMBERED_MIN; i < length; i += 8) {
        uint64_t word = random_next(&random);

        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
    return length;
}

/* What the loop and the device make of a planned frame. */
static inline void expect_frame(const struct traffic *traffic, struct vw_net_header *header,
                                uint8_t *bytes, uint32_t length)
{
    model_swap(bytes);
    if (header->flags != 0 && !(traffic->front->features & F(GUEST_CSUM)))
        model_complete(header, bytes, length);
}

static inline void check_header(const struct vw_net_header *got, const struct vw_net_header *want,
                                uint32_t buffers)
{
    assert_int_equal(got->flags, want->flags);
    assert_int_equal(got->csum_start, want->csum_start);
    assert_int_equal(got->csum_offset, want->csum_offset);
    assert_int_equal(got->gso_type, want->gso_type);
    assert_int_equal(got->gso_size, want->gso_size);
    if (buffers == 1 && got->num_buffers != 0)
        assert_int_equal(got->num_buffers, 1);
}

static inline void check_frame(struct traffic *traffic, unsigned pair)
{
    struct received *frame = &traffic->frame;
    struct vw_net_header want;
    uint64_t number;

    assert_true(frame->length >= NUMBERED_MIN);
    memcpy(&number, frame->bytes + 20, 8);
    assert_true(number == traffic->received[pair]);
    uint32_t length = plan_frame(traffic, pair, number, &want, traffic->bytes);
    expect_frame(traffic, &want, traffic->bytes, length);
    assert_int_equal(frame->length, length);
    check_header(&frame->header, &want, frame->buffers);
    if (memcmp(frame->bytes, traffic->bytes, length) != 0)
        assert_memory_equal(frame->bytes, traffic->bytes, length);
    traffic->received[pair]++;
}

static inline bool pump_transmit(struct traffic *traffic, unsigned pair)
{
    struct front_end *front = traffic->front;
    unsigned burst = 1 + random_below(&front->random, 40), added = 0;
    struct vw_net_header header;
    bool moved = reap_transmitted(front, pair) > 0;

    for (; added < burst && traffic->sent[pair] < traffic->count; added++) {
        uint32_t length = plan_frame(traffic, pair, traffic->sent[pair], &header, traffic->bytes);

        if (!send_frame(front, pair, &header, traffic->bytes, length))
            break;
        traffic->sent[pair]++;
    }
    if (added > 0)
        ring_publish(&front->transmit[pair]);
    return moved || added > 0;
}

static inline bool pump_receive(struct traffic *traffic, unsigned pair)
{
    struct front_end *front = traffic->front;
    unsigned burst = 1 + random_below(&front->random, 40), taken = 0;

    for (; taken < burst && receive_frame(front, pair, &traffic->frame); taken++)
        check_frame(traffic, pair);
    /* All at once in the end, or a frame could wait for the buffers that we keep. */
    if (post_buffers(front, pair, random_one_in(&front->random, 4) ? burst : UINT32_MAX) > 0)
        ring_publish(&front->receive[pair]);
    return taken > 0;
}

static inline bool traffic_done(const struct traffic *traffic)
{
    for (unsigned i = 0; i < traffic->front->pairs; i++)
        if (traffic->received[i] < traffic->count)
            return false;
    return true;
}

/* One turn for all pairs. */
static inline void pump(struct traffic *traffic)
{
    struct front_end *front = traffic->front;
    bool moved = false;

    for (unsigned i = 0; i < front->pairs; i++) {
        moved |= pump_transmit(traffic, i);
        moved |= pump_receive(traffic, i);
    }
    if (traffic->disturb != NULL && random_one_in(&front->random, 8))
        traffic->disturb(traffic, traffic->rounds++);
    if (moved || traffic_done(traffic))
        return;
    for (unsigned i = 0; i < front->pairs; i++)
        if (post_buffers(front, i, UINT32_MAX) > 0)
            ring_publish(&front->receive[i]);
    wait_for_calls(front);
}

static inline void run_traffic(struct traffic *traffic)
{
    struct front_end *front = traffic->front;

    for (unsigned i = 0; i < front->pairs; i++) {
        post_buffers(front, i, UINT32_MAX);
        ring_publish(&front->receive[i]);
    }
    while (!traffic_done(traffic))
        pump(traffic);
    for (unsigned i = 0; i < front->pairs; i++)
        while (vw_driver_ring_in_flight(&front->transmit[i].ring) > 0)
            if (reap_transmitted(front, i) == 0)
                wait_for_calls(front);
}

/* As much on each queue as went out and came back, and nothing dropped. */
static inline void check_counters(struct traffic *traffic, struct running_device *running)
{
    for (unsigned i = 0; i < traffic->front->pairs; i++) {
        struct vw_queue_statistics in = queue_statistics(running, 2 * i);
        struct vw_queue_statistics out = queue_statistics(running, 2 * i + 1);

        assert_null(in.broken);
        assert_null(out.broken);
        assert_true(in.counters.frames == traffic->received[i]);
        assert_true(out.counters.frames == traffic->sent[i]);
        assert_true(dropped(&in) == 0 && dropped(&out) == 0);
    }
}

#endif
