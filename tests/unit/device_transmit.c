/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device makes of one transmitted frame, wherever its pieces are cut: checksums in unusual
 * places, which are completed before a port sees them, and frames that are refused. The frames
 * come back through a loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../device_traffic.h"

static const struct shape shape = {.pairs = 1,
                                   .device_pairs = 1,
                                   .size = 64,
                                   .transmit_bytes = 4096,
                                   .receive_smallest = 2048,
                                   .receive_largest = 2048,
                                   .receive_segments = 1};

/* Sends a frame in pieces of the given lengths (the last takes the rest), header included. */
static void send_pieces(struct front_end *front, const struct vw_net_header *header,
                        const uint8_t *bytes, uint32_t length, const uint32_t *pieces,
                        uint32_t count)
{
    struct front_ring *ring = &front->transmit[0];
    struct buffer *buffer = ring->free[--ring->free_count];
    char *to = front->memory + buffer->offset;
    struct vw_segment segments[8];
    uint32_t at = 0;

    assert_true(count < VW_ARRAY_SIZE(segments));
    vw_net_header_encode(header, to, front->header_size);
    memcpy(to + front->header_size, bytes, length);
    length += front->header_size;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t part = i == count || pieces[i] > length - at ? length - at : pieces[i];

        segments[i] = (struct vw_segment){FRONT_END_GUEST + buffer->offset + at, part};
        at += part;
    }
    assert_int_equal(vw_driver_ring_add(&ring->ring, segments, count + 1, 0, buffer), 0);
    ring_publish(ring);
}

static void post_all(struct front_end *front)
{
    post_buffers(front, 0, UINT32_MAX);
    ring_publish(&front->receive[0]);
}

static void fill_frame(uint8_t *bytes, uint32_t length, uint32_t seed)
{
    struct random random = {seed};

    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_next(&random);
}

/* One frame with a checksum at start + offset, in pieces, against the model. */
static void checksum_case(struct front_end *front, uint16_t start, uint16_t offset, uint32_t length,
                          const uint32_t *pieces, uint32_t count)
{
    static struct received frame;
    struct vw_net_header header = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = start, .csum_offset = offset};
    uint8_t bytes[512];
    struct buffer *sent = front->transmit[0].free[front->transmit[0].free_count - 1];

    fill_frame(bytes, length, length * 31 + start * 7 + offset);
    send_pieces(front, &header, bytes, length, pieces, count);
    await_frame(front, 0, &frame);
    while (vw_driver_ring_in_flight(&front->transmit[0].ring) > 0)
        if (reap_transmitted(front, 0) == 0)
            wait_for_calls(front);
    /* What the guest transmits is ours to read only. */
    assert_memory_equal(front->memory + sent->offset + front->header_size, bytes, length);
    /* The sum is taken before the addresses are swapped: none of it lies in the first 12 bytes. */
    model_complete(&header, bytes, length);
    model_swap(bytes);
    check_header(&frame.header, &header, 1);
    assert_int_equal(frame.length, length);
    assert_memory_equal(frame.bytes, bytes, length);
    post_all(front);
}

static void unusual_checksums_are_spliced_in_wherever_the_pieces_end(void **unused)
{
    struct running_device running;
    struct front_end front;
    uint64_t count = 0;

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1) | F(CSUM) | F(GUEST_CSUM), &shape,
          random_seed());
    post_all(&front);
    for (uint16_t start = 14; start < 34; start += 3) {
        for (uint16_t offset = 0; offset < 20; offset += 4) {
            uint32_t place = 12u + start + offset; /* counted from the header */
            const uint32_t cuts[][3] = {
                {place, 2, 5},      {place + 1, 1, 1}, {place - 1, 1, 1},   {place - 1, 2, 1},
                {place - 1, 3, 1},  {place - 2, 1, 4}, {12, place - 12, 2}, {12, place - 11, 9},
                {5, 7, place - 11}, {1, 1, 1},         {place + 2, 1, 1},   {12, 14, place - 26},
                {place, 1, 1},      {place + 1, 0, 0}, {0, place, 0},
            };

            for (size_t i = 0; i < VW_ARRAY_SIZE(cuts); i++, count++)
                checksum_case(&front, start, offset, 80 + (uint32_t)i, cuts[i], 3);
            /* In the frame's very last two bytes; and all in one piece. */
            checksum_case(&front, start, offset, start + offset + 2u, cuts[1], 2);
            checksum_case(&front, start, offset, 60, NULL, 0);
            count += 2;
        }
    }
    struct vw_queue_statistics statistics = queue_statistics(&running, 1);
    assert_true(statistics.counters.checksums_completed == count);
    assert_true(statistics.counters.frames == count);
    assert_true(dropped(&statistics) == 0);
    end(&running, &front);
}

/* 34 and above is usual: nothing is completed, and the header stays. */
static void usual_checksums_stay_partial(void **unused)
{
    const struct vw_net_header header = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 34, .csum_offset = 6};
    static struct received frame;
    struct running_device running;
    struct front_end front;
    uint8_t bytes[100];

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1) | F(CSUM) | F(GUEST_CSUM), &shape,
          random_seed());
    post_all(&front);
    fill_frame(bytes, sizeof(bytes), 1);
    send_pieces(&front, &header, bytes, sizeof(bytes), NULL, 0);
    await_frame(&front, 0, &frame);
    model_swap(bytes);
    check_header(&frame.header, &header, 1);
    assert_memory_equal(frame.bytes, bytes, sizeof(bytes));
    assert_true(queue_statistics(&running, 1).counters.checksums_completed == 0);
    end(&running, &front);
}

/*
 * The short way for headers that ask for nothing must give what the long way gives: each of the
 * header's bytes alone, wherever the header ends, in one frame between two that are all zero.
 */
static void headers_that_ask_for_nothing_come_out_the_same_wherever_they_are_cut(void **unused)
{
    static const struct vw_net_header none = {0};
    static const struct vw_net_header headers[] = {
        {0},
        {.flags = VIRTIO_NET_HDR_F_DATA_VALID},
        {.hdr_len = 0x0100},
        {.gso_size = 0x0100},
        {.csum_start = 0x0100},
        {.csum_offset = 1},
        {.csum_offset = 0x0100},
        {.num_buffers = 7},
    };
    static struct received frame;
    struct running_device running;
    struct front_end front;
    uint8_t bytes[100];
    uint64_t count = 0;

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1), &shape, random_seed());
    post_all(&front);
    for (uint32_t cut = 1; cut < 30; cut++) {
        for (size_t i = 0; i < 2 * VW_ARRAY_SIZE(headers); i++, count++) {
            const struct vw_net_header *header = i % 2 == 0 ? &none : &headers[i / 2];
            uint32_t length = 14 + cut + (uint32_t)i;

            fill_frame(bytes, length, cut * 100 + (uint32_t)i);
            send_pieces(&front, header, bytes, length, &cut, i % 3 != 0);
            await_frame(&front, 0, &frame);
            model_swap(bytes);
            /* a length of headers is a hint, and the only thing that may remain */
            struct vw_net_header want = {.hdr_len = frame.header.hdr_len};
            assert_true(frame.header.hdr_len <= header->hdr_len);
            check_header(&frame.header, &want, 1);
            assert_int_equal(frame.length, length);
            assert_memory_equal(frame.bytes, bytes, length);
            post_all(&front);
        }
    }
    struct vw_queue_statistics statistics = queue_statistics(&running, 1);
    assert_true(statistics.counters.frames == count);
    assert_true(dropped(&statistics) == 0);
    end(&running, &front);
}

/* Each is refused, counted by its reason, and given back; the next frame goes its way. */
static void frames_that_cannot_be_are_refused_and_counted(void **unused)
{
    static const struct {
        struct vw_net_header header;
        uint32_t length;
    } cases[] = {
        {{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 13, .csum_offset = 6}, 60},
        {{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 20, .csum_offset = 39}, 60},
        {{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 65535, .csum_offset = 65535}, 60},
        {{.gso_type = 77,
          .gso_size = 100,
          .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
          .csum_start = 34,
          .csum_offset = 16},
         60},
        {{.gso_type = VIRTIO_NET_HDR_GSO_TCPV4, .gso_size = 100}, 300},
        {{.flags = 0}, 13},
        {{.flags = 0}, 1},
        {{.flags = 0}, 0},
    };
    static struct received frame;
    struct running_device running;
    struct front_end front;
    uint8_t bytes[400];

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1) | F(CSUM), &shape, random_seed());
    post_all(&front);
    for (size_t i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        fill_frame(bytes, sizeof(bytes), (uint32_t)i);
        send_pieces(&front, &cases[i].header, bytes, cases[i].length, (uint32_t[]){7}, 1);
        send_pieces(&front, &(struct vw_net_header){0}, bytes, 61, NULL, 0);
        await_frame(&front, 0, &frame);
        assert_int_equal(frame.length, 61);
        post_all(&front);
    }
    struct vw_queue_statistics statistics = queue_statistics(&running, 1);
    assert_true(statistics.counters.drop_header == 5);
    assert_true(statistics.counters.drop_short == 3);
    assert_true(statistics.header_errors[VW_NET_HEADER_CSUM_PLACE] == 3);
    assert_true(dropped(&statistics) == 8);
    assert_null(statistics.broken);
    end(&running, &front);
}

/* A chain that ends within the header (CVE-2022-2132), in one piece and in many. */
static void chains_no_longer_than_a_header_are_refused(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "null", vw_bit(VIRTIO_F_VERSION_1), &shape, random_seed());
    struct front_ring *ring = &front.transmit[0];
    for (uint32_t length = 1; length <= 12; length++) {
        for (uint32_t first = 0; first <= length; first++) {
            struct buffer *buffer = ring->free[--ring->free_count];
            struct vw_segment segments[2] = {
                {FRONT_END_GUEST + buffer->offset, first},
                {FRONT_END_GUEST + buffer->offset + first, length - first}};

            assert_int_equal(vw_driver_ring_add(&ring->ring, segments, 2, 0, buffer), 0);
            ring_publish(ring);
            while (reap_transmitted(&front, 0) == 0)
                wait_for_calls(&front);
        }
    }
    struct vw_queue_statistics statistics = queue_statistics(&running, 1);
    assert_true(statistics.counters.drop_short == 90);
    assert_true(statistics.counters.frames == 0);
    assert_null(statistics.broken);
    end(&running, &front);
}

/* Waits until all that was transmitted has come back. */
static void flush(struct front_end *front)
{
    while (vw_driver_ring_in_flight(&front->transmit[0].ring) > 0)
        if (reap_transmitted(front, 0) == 0)
            wait_for_calls(front);
}

/*
 * Behind a frame that the port does not take stand one that is too short and one whose checksum is
 * completed here. Each pause gives all three back to the ring, and they are fetched again.
 */
static void frames_that_are_given_back_are_counted_once(void **unused)
{
    static const struct vw_net_header plain = {.flags = 0};
    static const struct vw_net_header sum = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 15, .csum_offset = 3};
    static struct received frame;
    struct running_device running;
    struct front_end front;
    uint8_t bytes[100];
    unsigned taken = 0, came = 0;

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1) | F(CSUM), &shape, random_seed());
    fill_frame(bytes, sizeof(bytes), 1);
    /* With no receive buffer posted, the loop takes frames until it is full. */
    while (queue_statistics(&running, 1).counters.waits == 0) {
        reap_transmitted(&front, 0);
        if (vw_driver_ring_in_flight(&front.transmit[0].ring) > 0)
            continue;
        send_pieces(&front, &plain, bytes, 61, NULL, 0);
        taken++;
    }
    send_pieces(&front, &plain, bytes, 13, NULL, 0);
    send_pieces(&front, &sum, bytes, 99, NULL, 0);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t waits = queue_statistics(&running, 1).counters.waits;

        tell_memory(&front); /* a pause; afterwards the three are fetched again */
        while (queue_statistics(&running, 1).counters.waits == waits)
            usleep(100);
    }
    struct vw_queue_statistics before = queue_statistics(&running, 1);
    assert_true(before.counters.drop_short == 0 && before.counters.checksums_completed == 0);
    for (; came < taken + 1; came++) {
        post_all(&front);
        await_frame(&front, 0, &frame);
    }
    flush(&front);
    struct vw_queue_statistics after = queue_statistics(&running, 1);
    assert_true(after.counters.drop_short == 1 && after.counters.checksums_completed == 1);
    assert_true(after.counters.frames == came && dropped(&after) == 1);
    end(&running, &front);
}

/* A device-writable piece in a transmit chain breaks this ring, and no other. */
static void a_writable_transmit_buffer_breaks_the_ring(void **unused)
{
    struct running_device running;
    struct front_end front;

    (void)unused;
    begin(&running, &front, "loop", vw_bit(VIRTIO_F_VERSION_1), &shape, random_seed());
    struct front_ring *ring = &front.transmit[0];
    struct buffer *buffer = ring->free[--ring->free_count];
    struct vw_segment segments[2] = {{FRONT_END_GUEST + buffer->offset, 12},
                                     {FRONT_END_GUEST + buffer->offset + 12, 60}};

    assert_int_equal(vw_driver_ring_add(&ring->ring, segments, 1, 1, buffer), 0);
    ring_publish(ring);
    wait_for_counter(&running, 1, broken, 1);
    assert_non_null(queue_statistics(&running, 1).broken);
    assert_null(queue_statistics(&running, 0).broken);

    /* Set up anew it works again. */
    ring_stop(&front, ring);
    memset(front.memory + ring->areas[0], 0, 16 * ring->size);
    ring_begin(&front, ring);
    ring_start(&front, ring, fresh_base(&front));
    assert_null(queue_statistics(&running, 1).broken);
    struct received *frame = malloc(sizeof(*frame));
    assert_non_null(frame);
    post_all(&front);
    assert_true(send_frame(&front, 0, &(struct vw_net_header){0}, (uint8_t[60]){1, 2}, 60));
    ring_publish(ring);
    await_frame(&front, 0, frame);
    assert_int_equal(frame->length, 60);
    free(frame);
    end(&running, &front);
}

/* While the queue is disabled its frames are taken, and go nowhere. */
static void a_disabled_queue_discards(void **unused)
{
    struct running_device running;
    struct front_end front;
    uint8_t bytes[60] = {0x52};

    (void)unused;
    begin(&running, &front, "null", vw_bit(VIRTIO_F_VERSION_1), &shape, random_seed());
    tell_state(&front, VW_VU_SET_VRING_ENABLE, 1, 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(send_frame(&front, 0, &(struct vw_net_header){0}, bytes, sizeof(bytes)));
        vw_driver_ring_publish(&front.transmit[0].ring);
        ring_kick(&front.transmit[0]);
        while (reap_transmitted(&front, 0) == 0)
            wait_for_calls(&front);
    }
    assert_true(queue_statistics(&running, 1).counters.drop_disabled == 20);
    tell_state(&front, VW_VU_SET_VRING_ENABLE, 1, 1);
    assert_true(send_frame(&front, 0, &(struct vw_net_header){0}, bytes, sizeof(bytes)));
    ring_publish(&front.transmit[0]);
    while (reap_transmitted(&front, 0) == 0)
        wait_for_calls(&front);
    assert_true(queue_statistics(&running, 1).counters.frames == 1);
    end(&running, &front);
}

/* One kick, and more frames than a batch: none waits for another kick, each batch is published. */
static void batches_of_every_size(void **unused)
{
    static const unsigned batches[] = {1, 2, 5, 8, 64};
    uint8_t bytes[60] = {0x52};

    (void)unused;
    for (unsigned i = 0; i < 4 * VW_ARRAY_SIZE(batches); i++) {
        struct shape batched = shape;
        struct running_device running;
        struct front_end front;
        uint32_t sent = 0, back = 0;

        batched.batch = batches[i / 4];
        batched.batch_singly = i & 1;
        begin(&running, &front, "null",
              vw_bit(VIRTIO_F_VERSION_1) | vw_bit(VIRTIO_F_IN_ORDER) |
                  (i & 2 ? vw_bit(VIRTIO_F_RING_PACKED) : 0),
              &batched, random_seed());
        while (send_frame(&front, 0, &(struct vw_net_header){0}, bytes, sizeof(bytes)))
            sent++;
        assert_true(sent >= 10);
        ring_publish(&front.transmit[0]);
        for (uint32_t more; back < sent; back += more)
            if ((more = reap_transmitted(&front, 0)) == 0)
                wait_for_calls(&front);
        assert_int_equal(back, sent);
        struct vw_queue_counters counters = queue_statistics(&running, 1).counters;
        assert_true(counters.frames == sent);
        assert_true(counters.batches >= (sent + batched.batch - 1) / batched.batch);
        if (batched.batch == 1)
            assert_true(counters.batches == sent);
        end(&running, &front);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_ask_for_nothing_come_out_the_same_wherever_they_are_cut),
        cmocka_unit_test(unusual_checksums_are_spliced_in_wherever_the_pieces_end),
        cmocka_unit_test(usual_checksums_stay_partial),
        cmocka_unit_test(frames_that_cannot_be_are_refused_and_counted),
        cmocka_unit_test(chains_no_longer_than_a_header_are_refused),
        cmocka_unit_test(frames_that_are_given_back_are_counted_once),
        cmocka_unit_test(a_writable_transmit_buffer_breaks_the_ring),
        cmocka_unit_test(a_disabled_queue_discards),
        cmocka_unit_test(batches_of_every_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
