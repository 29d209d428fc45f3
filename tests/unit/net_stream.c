/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP streams: how a sender forms segments, what is in their frames, what a reader finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/stream.h"

#define STREAM 5

/* A sender and a reader; frames go from one to the other by hand. */
struct lab {
    struct vw_stream_pattern pattern;
    struct vw_stream_rules rules;
    struct vw_stream_sender sender;
    struct vw_probe_addresses addresses;
    struct vw_stream_reader reader;
    struct vw_stream_state *states;
    struct vw_stream_segment segment; /* the last one sent */
    uint8_t frame[VW_STREAM_FRAME_MAX], pending[VW_STREAM_PAYLOAD];
};

static void begin(struct lab *lab, uint32_t write, bool segmentation, bool acknowledged,
                  uint32_t sequence)
{
    lab->rules = vw_stream_rules_for(write, 1500, segmentation, acknowledged);
    vw_stream_sender_init(&lab->sender, sequence);
}

static int set_up(void **state)
{
    struct lab *lab = calloc(1, sizeof(*lab));

    vw_stream_pattern_init(&lab->pattern);
    vw_probe_addresses_default(&lab->addresses);
    lab->states = calloc(VW_STREAM_MAX, sizeof(*lab->states));
    vw_stream_reader_init(&lab->reader, lab->states, 2);
    begin(lab, 100, true, false, 0);
    *state = lab;
    return 0;
}

static int tear_down(void **state)
{
    struct lab *lab = *state;

    free(lab->states);
    free(lab);
    return 0;
}

static uint32_t write_once(struct lab *lab)
{
    return vw_stream_write(&lab->sender, &lab->rules, &lab->pattern, STREAM, lab->pending);
}

/* Sends what is due, as a frame; returns its payload's length. */
static uint32_t send(struct lab *lab, uint64_t in_flight, bool partial)
{
    uint32_t length = vw_stream_due(&lab->sender, &lab->rules, in_flight);

    if (length == 0)
        return 0;
    memcpy(lab->frame + VW_STREAM_HEADERS, lab->pending, length);
    vw_stream_cut(&lab->sender, &lab->rules, length, &lab->segment);
    memmove(lab->pending, lab->pending + length, lab->sender.length);
    vw_stream_write_headers(lab->frame, &lab->addresses, STREAM, &lab->segment, partial);
    return length;
}

static bool arrive(struct lab *lab)
{
    return vw_stream_read(&lab->reader, lab->frame, VW_STREAM_HEADERS + lab->segment.length);
}

/* The checksum by its definition (RFC 1071): 16-bit words, big-endian, one after the other. */
static uint16_t plain_sum(const uint8_t *at, uint32_t length, uint32_t sum)
{
    for (uint32_t i = 0; i < length; i++)
        sum += i % 2 == 0 ? (uint32_t)at[i] << 8 : at[i];
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static uint16_t plain_pseudo_sum(const uint8_t *frame, uint32_t tcp_length)
{
    return plain_sum(frame + 26, 8, 6 + tcp_length);
}

/* ---- the sender ------------------------------------------------------------------------------ */

static void each_write_goes_by_itself_while_nothing_is_under_way(void **state)
{
    struct lab *lab = *state;

    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(write_once(lab), 100);
        assert_int_equal(send(lab, 0, true), 100);
        assert_int_equal(lab->segment.sequence, 100 * i);
        assert_int_equal(lab->segment.flags, VW_STREAM_ACK | VW_STREAM_PSH);
        assert_false(vw_stream_is_urgent(&lab->segment));
    }
}

static void small_writes_join_the_pending_segment_while_bytes_are_with_the_driver(void **state)
{
    struct lab *lab = *state;

    write_once(lab);
    assert_int_equal(send(lab, 0, true), 100);
    for (unsigned i = 0; i < 7; i++) {
        write_once(lab);
        assert_int_equal(send(lab, 154, true), 0);
    }
    assert_int_equal(send(lab, 0, true), 700); /* completed */
    assert_true(lab->segment.flags & VW_STREAM_PSH);
}

static void a_full_segment_goes_though_bytes_are_with_the_driver(void **state)
{
    struct lab *lab = *state;

    while (lab->sender.length < lab->rules.segment_max) {
        assert_int_equal(send(lab, 154, true), 0);
        write_once(lab);
    }
    assert_int_equal(lab->rules.segment_max, 44 * 1460);
    assert_int_equal(send(lab, 154, true), 64240);
    /* 642 writes and 40 bytes: it ends in the middle of one */
    assert_int_equal(lab->segment.flags, VW_STREAM_ACK);
    assert_true(vw_stream_is_urgent(&lab->segment));
    assert_int_equal(write_once(lab), 60);
    assert_int_equal(send(lab, 0, true), 60);
    assert_true(lab->segment.flags & VW_STREAM_PSH);
}

static void small_queues_hold_even_a_full_segment(void **state)
{
    struct lab *lab = *state;

    begin(lab, 65535, true, false, 0);
    assert_int_equal(write_once(lab), 64240);
    assert_int_equal(send(lab, VW_STREAM_IN_FLIGHT_MAX + 1, true), 0);
    assert_int_equal(send(lab, VW_STREAM_IN_FLIGHT_MAX, true), 64240);
}

static void without_segmentation_a_segment_is_one_frame_of_the_wire(void **state)
{
    struct lab *lab = *state;

    begin(lab, 4096, false, false, 0);
    assert_int_equal(write_once(lab), 1460);
    assert_int_equal(send(lab, 54, false), 1460);
    assert_int_equal(write_once(lab), 1460);
    assert_int_equal(send(lab, 54, false), 1460);
    assert_int_equal(write_once(lab), 4096 - 2 * 1460);
    assert_int_equal(send(lab, 54, false), 0); /* not full: it waits */
    assert_int_equal(send(lab, 0, false), 4096 - 2 * 1460);
    assert_true(lab->segment.flags & VW_STREAM_PSH);
}

static void nagle_holds_less_than_an_mss_while_a_small_one_is_not_acknowledged(void **state)
{
    struct lab *lab = *state;

    begin(lab, 1000, true, true, 0);
    write_once(lab);
    assert_int_equal(send(lab, 0, true), 1000);
    write_once(lab);
    assert_int_equal(send(lab, 0, true), 0);
    write_once(lab); /* 2000: one whole MSS of it goes, without PSH */
    assert_int_equal(send(lab, 0, true), 1460);
    assert_true(vw_stream_is_urgent(&lab->segment));
    assert_int_equal(lab->sender.length, 540);
    assert_int_equal(send(lab, 0, true), 0);
    vw_stream_acknowledge(&lab->sender, 1000);
    assert_int_equal(send(lab, 0, true), 540);
    assert_true(lab->segment.flags & VW_STREAM_PSH);
}

static void an_acknowledgement_pulls_the_cork_once(void **state)
{
    struct lab *lab = *state;

    begin(lab, 1000, true, true, 0);
    write_once(lab);
    send(lab, 0, true);
    write_once(lab);
    vw_stream_acknowledge(&lab->sender, 1000);
    assert_int_equal(send(lab, 1054, true), 1000);
    write_once(lab);
    assert_int_equal(send(lab, 1054, true), 0);
    vw_stream_acknowledge(&lab->sender, 1000); /* no news */
    assert_int_equal(send(lab, 1054, true), 0);
    vw_stream_acknowledge(&lab->sender, 5000); /* never sent */
    assert_int_equal(send(lab, 1054, true), 0);
    assert_int_equal(lab->sender.acknowledged, 1000);
}

static void the_window_bounds_what_is_not_acknowledged(void **state)
{
    struct lab *lab = *state;
    uint64_t sent = 0, length;

    begin(lab, 64240, true, true, 0);
    do {
        write_once(lab);
        length = send(lab, 0, true);
        sent += length;
    } while (length > 0);
    assert_in_range(sent, VW_STREAM_WINDOW - 64240 + 1, VW_STREAM_WINDOW);
    vw_stream_acknowledge(&lab->sender, 64240);
    assert_int_not_equal(send(lab, 0, true), 0);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void checksums_agree_with_their_definition(void **state)
{
    struct lab *lab = *state;

    for (uint32_t write = 1; write < 3000; write += 97) {
        begin(lab, write, true, false, 12345 + write);
        write_once(lab);
        assert_int_equal(send(lab, 0, false), write);
        assert_int_equal(plain_sum(lab->frame + 14, 20, 0), 0xffff);
        assert_int_equal(
            plain_sum(lab->frame + 34, 20 + write, plain_pseudo_sum(lab->frame, 20 + write)),
            0xffff);
        write_once(lab);
        send(lab, 0, true);
        assert_int_equal(lab->frame[50] << 8 | lab->frame[51],
                         plain_pseudo_sum(lab->frame, 20 + write));
    }
}

static void acknowledgements_are_right_and_go_back(void **state)
{
    struct lab *lab = *state;
    uint8_t frame[VW_PROBE_MIN_FRAME];
    uint32_t acknowledgement;
    unsigned stream;

    begin(lab, 1460, false, true, 700);
    for (unsigned i = 1; i <= 6; i++) {
        write_once(lab);
        send(lab, 0, false);
        assert_true(arrive(lab));
        assert_int_equal(vw_stream_acknowledgement_due(&lab->reader), i % 2 == 0);
        if (i % 2 == 1)
            continue;
        vw_stream_make_acknowledgement(&lab->reader, frame);
        assert_false(vw_stream_acknowledgement_due(&lab->reader));
        assert_int_equal(plain_sum(frame + 14, 20, 0), 0xffff);
        assert_int_equal(plain_sum(frame + 34, 20, plain_pseudo_sum(frame, 20)), 0xffff);
        assert_memory_equal(frame, lab->addresses.source, 6);
        assert_memory_equal(frame + 6, lab->addresses.destination, 6);
        assert_true(
            vw_stream_read_acknowledgement(frame, sizeof(frame), &stream, &acknowledgement));
        assert_int_equal(stream, STREAM);
        assert_int_equal(acknowledgement, 700 + 1460 * i);
        assert_true(vw_stream_read(&lab->reader, frame, sizeof(frame)));
        assert_int_equal(lab->reader.counters.acknowledgements, i / 2);
    }
    assert_int_equal(lab->reader.counters.acknowledged, 3);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static void every_byte_arrives_also_where_sequence_numbers_begin_again(void **state)
{
    struct lab *lab = *state;
    uint64_t bytes = 0;

    begin(lab, 777, true, false, UINT32_MAX - 5000);
    for (unsigned i = 0; i < 4000; i++) {
        write_once(lab);
        uint32_t length = send(lab, i % 7 == 0 ? 0 : 1, i % 2);
        if (length > 0)
            assert_true(arrive(lab));
        bytes += length;
    }
    assert_int_equal(lab->reader.counters.bytes, bytes);
    assert_in_range(bytes, 3900 * 777, 4000 * 777);
    assert_int_equal(lab->reader.counters.streams, 1);
    assert_int_equal(
        lab->reader.counters.lost + lab->reader.counters.late + lab->reader.counters.corrupt, 0);
}

static void what_is_missing_late_or_begins_again_is_counted(void **state)
{
    struct lab *lab = *state;
    const struct vw_stream_counters *counters = &lab->reader.counters;

    for (unsigned i = 0; i < 5; i++) {
        write_once(lab);
        send(lab, 0, true);
        if (i != 2)
            arrive(lab);
    }
    assert_int_equal(counters->lost, 100);
    arrive(lab);
    assert_int_equal(counters->late, 1);
    lab->segment = (struct vw_stream_segment){.sequence = 5000, .flags = VW_STREAM_SYN};
    vw_stream_write_headers(lab->frame, &lab->addresses, STREAM, &lab->segment, false);
    arrive(lab);
    assert_int_equal(counters->restarts, 1);
    begin(lab, 100, true, false, 5001);
    write_once(lab);
    send(lab, 0, true);
    arrive(lab);
    assert_int_equal(counters->lost, 100);
    assert_int_equal(counters->corrupt, 0);
}

static void no_byte_of_a_segment_can_change_unseen(void **state)
{
    struct lab *lab = *state;

    for (unsigned partial = 0; partial < 2; partial++) {
        for (unsigned at = 14; at < 54 + 100; at++) {
            struct vw_stream_counters before = lab->reader.counters;

            begin(lab, 100, true, false, 0);
            write_once(lab);
            send(lab, 0, partial);
            lab->frame[at] ^= 0x10;
            arrive(lab);
            /* The rest of TCP's header is of no meaning to the reader, and with a partial checksum
             * nothing protects it; a changed port is another stream, or none of ours. */
            if (!partial || at < 34 || at >= 54)
                assert_int_equal(lab->reader.counters.segments, before.segments);
        }
    }
}

static void other_frames_are_not_ours(void **state)
{
    struct lab *lab = *state;

    write_once(lab);
    send(lab, 0, true);
    assert_false(vw_stream_read(&lab->reader, lab->frame, VW_STREAM_HEADERS - 1));
    lab->frame[23] = 17;
    assert_false(arrive(lab));
    lab->frame[23] = 6;
    lab->frame[36] = 0x80; /* to another port */
    assert_false(arrive(lab));
    lab->frame[36] = 0;
    lab->frame[34] = 1; /* a source port below ours */
    assert_false(arrive(lab));
    lab->frame[34] = 0xff; /* beyond */
    assert_false(arrive(lab));
    assert_int_equal(lab->reader.counters.corrupt + lab->reader.counters.segments, 0);
}

/* Two segments arrive; `frame` becomes their acknowledgement. */
static void acknowledge_two(struct lab *lab, uint8_t *frame)
{
    for (unsigned i = 0; i < 2; i++) {
        write_once(lab);
        send(lab, 0, true);
        arrive(lab);
    }
    vw_stream_make_acknowledgement(&lab->reader, frame);
}

static void put_sum(uint8_t *at, uint16_t sum)
{
    at[0] = (uint8_t)(sum >> 8);
    at[1] = (uint8_t)sum;
}

/* The IPv4 header was changed: its checksum fits again. */
static void set_ip_checksum(uint8_t *frame)
{
    put_sum(frame + 24, 0);
    put_sum(frame + 24, (uint16_t)~plain_sum(frame + 14, 20, 0));
}

/* The same of an acknowledgement, with that of TCP. */
static void set_checksums(uint8_t *frame)
{
    set_ip_checksum(frame);
    put_sum(frame + 50, 0);
    put_sum(frame + 50, (uint16_t)~plain_sum(frame + 34, 20, plain_pseudo_sum(frame, 20)));
}

static void a_damaged_acknowledgement_moves_nobody(void **state)
{
    struct lab *lab = *state;
    uint8_t frame[VW_PROBE_MIN_FRAME];
    uint32_t acknowledgement;
    unsigned stream;

    acknowledge_two(lab, frame);
    /* from the IPv4 header's first byte to the last of the TCP header */
    for (unsigned at = 14; at < 54; at++) {
        frame[at] ^= 0x21;
        assert_false(
            vw_stream_read_acknowledgement(frame, sizeof(frame), &stream, &acknowledgement));
        frame[at] ^= 0x21;
    }
    frame[17] += 40; /* longer than the frame, and summed so */
    set_checksums(frame);
    assert_false(vw_stream_read_acknowledgement(frame, sizeof(frame), &stream, &acknowledgement));
    frame[17] -= 40;
    set_checksums(frame);
    assert_true(vw_stream_read_acknowledgement(frame, sizeof(frame), &stream, &acknowledgement));
}

static void a_fragment_is_no_segment(void **state)
{
    struct lab *lab = *state;
    static const uint16_t fragments[] = {0x2000, 0x0001, 0x1fff, 0x3000};

    for (unsigned i = 0; i < 4; i++) {
        write_once(lab);
        send(lab, 0, true);
        lab->frame[20] = (uint8_t)(fragments[i] >> 8);
        lab->frame[21] = (uint8_t)fragments[i];
        set_ip_checksum(lab->frame);
        assert_false(arrive(lab));
    }
    assert_int_equal(lab->reader.counters.segments, 0);
}

static void a_reset_acknowledges_nothing(void **state)
{
    struct lab *lab = *state;
    uint8_t frame[VW_PROBE_MIN_FRAME];
    uint32_t acknowledgement;
    unsigned stream;

    acknowledge_two(lab, frame);
    frame[47] |= VW_STREAM_RST;
    set_checksums(frame);
    assert_false(vw_stream_read_acknowledgement(frame, sizeof(frame), &stream, &acknowledgement));
    assert_false(vw_stream_read(&lab->reader, frame, sizeof(frame)));
}

static void lengths_in_headers_are_not_believed(void **state)
{
    struct lab *lab = *state;

    for (unsigned length = 0; length < 65536; length += 13) {
        write_once(lab);
        send(lab, 0, true);
        lab->frame[16] = (uint8_t)(length >> 8);
        lab->frame[17] = (uint8_t)length;
        /* the sum of the IPv4 header fits, so that only the length is wrong */
        set_ip_checksum(lab->frame);
        arrive(lab);
    }
    /* none has the length that its pseudo-header was summed with, which is 140 */
    assert_int_equal(lab->reader.counters.segments, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_write_goes_by_itself_while_nothing_is_under_way),
        TEST(small_writes_join_the_pending_segment_while_bytes_are_with_the_driver),
        TEST(a_full_segment_goes_though_bytes_are_with_the_driver),
        TEST(small_queues_hold_even_a_full_segment),
        TEST(without_segmentation_a_segment_is_one_frame_of_the_wire),
        TEST(nagle_holds_less_than_an_mss_while_a_small_one_is_not_acknowledged),
        TEST(an_acknowledgement_pulls_the_cork_once),
        TEST(the_window_bounds_what_is_not_acknowledged),
        TEST(checksums_agree_with_their_definition),
        TEST(acknowledgements_are_right_and_go_back),
        TEST(every_byte_arrives_also_where_sequence_numbers_begin_again),
        TEST(what_is_missing_late_or_begins_again_is_counted),
        TEST(no_byte_of_a_segment_can_change_unseen),
        TEST(other_frames_are_not_ours),
        TEST(a_damaged_acknowledgement_moves_nobody),
        TEST(a_fragment_is_no_segment),
        TEST(a_reset_acknowledges_nothing),
        TEST(lengths_in_headers_are_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
