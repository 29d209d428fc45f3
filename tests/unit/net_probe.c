/* SPDX-License-Identifier: BSD-3-Clause */
/* Probe frames: what a writer makes and what a reader makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/checksum.h"
#include "net/dissect.h"
#include "net/probe.h"

#define FLOWS 3

/* A writer with three flows and a reader; frames go from one to the other by hand. */
struct lab {
    uint64_t sequences[FLOWS];
    struct vw_probe_writer writer;
    struct vw_probe_reader reader;
    uint8_t frame[VW_PROBE_MAX_FRAME];
};

static int set_up(void **state)
{
    struct lab *lab = calloc(1, sizeof(*lab));
    struct vw_probe_addresses addresses;

    vw_probe_addresses_default(&addresses);
    vw_probe_writer_init(&lab->writer, &addresses, 77, 0, 1, 1, lab->sequences);
    lab->reader.flows = calloc(VW_PROBE_FLOW_TABLE, sizeof(*lab->reader.flows));
    *state = lab;
    return 0;
}

static int tear_down(void **state)
{
    struct lab *lab = *state;

    free(lab->reader.flows);
    free(lab);
    return 0;
}

/* The frame with this number of flow 0 arrives. */
static void arrive(struct lab *lab, uint64_t number)
{
    lab->sequences[0] = number;
    vw_probe_write(&lab->writer, lab->frame, 64);
    vw_probe_read(&lab->reader, lab->frame, 64);
}

static void assert_counters(const struct lab *lab, const struct vw_probe_counters *expected)
{
    const struct vw_probe_counters *counters = &lab->reader.counters;

#define CHECK(name, text)                                                                          \
    if (counters->name != expected->name)                                                          \
        fail_msg(#name ": %llu and not %llu", (unsigned long long)counters->name,                  \
                 (unsigned long long)expected->name);
    VW_PROBE_COUNTERS(CHECK)
#undef CHECK
}

static void every_length_arrives_intact(void **state)
{
    struct lab *lab = *state;
    uint64_t bytes = 0;
    unsigned frames = 0;

    for (uint32_t length = VW_PROBE_MIN_FRAME; length <= VW_PROBE_MAX_FRAME;
         length += length < 2000 ? 1 : 997) {
        vw_probe_write(&lab->writer, lab->frame, length);
        vw_probe_read(&lab->reader, lab->frame, length);
        bytes += length;
        frames++;
    }
    assert_counters(lab, &(struct vw_probe_counters){.frames = frames, .bytes = bytes, .flows = 1});
}

static void a_frame_is_valid_udp(void **state)
{
    struct lab *lab = *state;
    struct vw_net_packet packet;

    for (uint32_t length = VW_PROBE_MIN_FRAME; length <= 9014; length += 37) {
        vw_probe_write(&lab->writer, lab->frame, length);
        assert_int_equal(vw_net_sum(lab->frame + 14, 20), 0xffff);
        vw_net_dissect(&packet, lab->frame, length);
        assert_int_equal(packet.protocol, 17);
        assert_int_equal(packet.transport_offset, 34);
        assert_int_equal(lab->frame[16] << 8 | lab->frame[17], length - 14);
        assert_int_equal(lab->frame[38] << 8 | lab->frame[39], length - 34);
        assert_memory_equal(lab->frame + 36, "\0\x09", 2);
    }
}

/* The layout is a promise: frames may come from another version of the program. */
static void the_layout_is_as_documented(void **state)
{
    struct lab *lab = *state;
    const uint8_t *frame = lab->frame;

    lab->sequences[0] = UINT64_C(0x1122334455667788);
    vw_probe_write(&lab->writer, lab->frame, 60);
    assert_memory_equal(frame + 42, "\x56\x77", 2);
    assert_memory_equal(frame + 48, "\x4d\x00\x00\x00\x88\x77\x66\x55\x44\x33\x22\x11", 12);
}

static void every_flipped_bit_of_the_payload_is_corruption(void **state)
{
    struct lab *lab = *state;
    uint64_t flips = 0;

    vw_probe_write(&lab->writer, lab->frame, 143);
    for (unsigned bit = 44 * 8; bit < 143 * 8; bit++, flips++) {
        lab->frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        vw_probe_read(&lab->reader, lab->frame, 143);
        lab->frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_counters(lab, &(struct vw_probe_counters){.corrupt = flips});
}

static void parts_in_the_wrong_place_are_corruption(void **state)
{
    struct lab *lab = *state;
    static uint8_t other[VW_PROBE_MAX_FRAME];

    /* the end of the frame before in this one's place: a buffer that was given back too early */
    vw_probe_write(&lab->writer, other, 3000);
    vw_probe_write(&lab->writer, lab->frame, 3000);
    memcpy(lab->frame + 1526, other + 1526, 3000 - 1526);
    vw_probe_read(&lab->reader, lab->frame, 3000);
    /* two words that changed places */
    vw_probe_write(&lab->writer, lab->frame, 3000);
    memcpy(other, lab->frame + 64, 8);
    memcpy(lab->frame + 64, lab->frame + 72, 8);
    memcpy(lab->frame + 72, other, 8);
    vw_probe_read(&lab->reader, lab->frame, 3000);
    /* cut, and with something added */
    vw_probe_write(&lab->writer, lab->frame, 3000);
    memset(lab->frame + 3000, 0, 8);
    vw_probe_read(&lab->reader, lab->frame, 2999);
    vw_probe_read(&lab->reader, lab->frame, 3008);
    assert_counters(lab, &(struct vw_probe_counters){.corrupt = 4});
}

static void what_is_no_probe_is_foreign(void **state)
{
    struct lab *lab = *state;
    static const unsigned places[] = {12, 14, 23, 42, 43};

    vw_probe_write(&lab->writer, lab->frame, 60);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(places); i++) {
        lab->frame[places[i]] ^= 4;
        vw_probe_read(&lab->reader, lab->frame, 60);
        lab->frame[places[i]] ^= 4;
    }
    for (uint32_t length = 0; length < VW_PROBE_MIN_FRAME; length++) {
        /* of just this size, so that a read beyond it is seen */
        uint8_t *exact = malloc(length + 1);
        memcpy(exact + 1, lab->frame, length);
        vw_probe_read(&lab->reader, exact + 1, length);
        free(exact);
    }
    assert_counters(lab, &(struct vw_probe_counters){.foreign = 65});
}

static void gaps_are_losses(void **state)
{
    struct lab *lab = *state;

    arrive(lab, 0);
    arrive(lab, 3);    /* 1, 2 */
    arrive(lab, 5004); /* 5000 more, wider than the window */
    arrive(lab, 5005);
    assert_counters(
        lab, &(struct vw_probe_counters){.frames = 4, .bytes = 256, .lost = 5002, .flows = 1});
}

static void late_frames_are_reordered_and_not_lost(void **state)
{
    struct lab *lab = *state;

    for (unsigned i = 0; i < 2000; i += 2) {
        arrive(lab, i + 1 - (i == 0)); /* 0 3 2 5 4 ... */
        if (i != 0)
            arrive(lab, i);
    }
    assert_counters(
        lab, &(struct vw_probe_counters){
                 .frames = 1999, .bytes = 1999 * 64, .lost = 1, .reordered = 999, .flows = 1});
}

static void duplicates_are_told_from_late_frames(void **state)
{
    struct lab *lab = *state;

    arrive(lab, 0);
    arrive(lab, 0); /* duplicate */
    arrive(lab, 5); /* 1 to 4 missing */
    arrive(lab, 2); /* late */
    arrive(lab, 2); /* duplicate */
    arrive(lab, 5); /* duplicate */
    assert_counters(
        lab, &(struct vw_probe_counters){
                 .frames = 6, .bytes = 384, .lost = 3, .reordered = 1, .duplicate = 3, .flows = 1});
}

static void the_window_has_exact_edges(void **state)
{
    struct lab *lab = *state;

    arrive(lab, 0);
    arrive(lab, VW_PROBE_WINDOW + 1); /* all between is missing; the window begins at 2 */
    arrive(lab, 1);                   /* stale */
    arrive(lab, 2);                   /* late */
    arrive(lab, 2);                   /* duplicate */
    assert_counters(lab, &(struct vw_probe_counters){.frames = 5,
                                                     .bytes = 320,
                                                     .lost = VW_PROBE_WINDOW - 1,
                                                     .reordered = 1,
                                                     .duplicate = 1,
                                                     .stale = 1,
                                                     .flows = 1});
}

/* What was seen a window ago must not make a new number a duplicate. */
static void the_window_forgets(void **state)
{
    struct lab *lab = *state;

    for (unsigned i = 0; i < VW_PROBE_WINDOW; i++)
        arrive(lab, i);
    arrive(lab, VW_PROBE_WINDOW + 100);
    for (unsigned i = 0; i < 100; i++)
        arrive(lab, VW_PROBE_WINDOW + 99 - i);
    assert_counters(lab, &(struct vw_probe_counters){.frames = VW_PROBE_WINDOW + 101,
                                                     .bytes = (VW_PROBE_WINDOW + 101) * 64,
                                                     .reordered = 100,
                                                     .flows = 1});
}

static void numbers_wrap(void **state)
{
    struct lab *lab = *state;
    uint64_t first = -UINT64_C(3);

    arrive(lab, first);
    arrive(lab, first + 1);
    arrive(lab, first + 3); /* 0; the last number before the wrap is missing */
    arrive(lab, first + 5); /* 2; 1 is missing */
    arrive(lab, first + 2); /* late over the wrap */
    arrive(lab, first + 1); /* duplicate over the wrap */
    assert_counters(lab, &(struct vw_probe_counters){.frames = 6,
                                                     .bytes = 384,
                                                     .lost = 1,
                                                     .reordered = 1,
                                                     .duplicate = 1,
                                                     .before = first,
                                                     .flows = 1});
}

static void a_flow_that_begins_out_of_order_is_counted_from_its_lowest(void **state)
{
    struct lab *lab = *state;

    arrive(lab, 7);
    arrive(lab, 4); /* 5 and 6 are missing now */
    arrive(lab, 6);
    arrive(lab, 8);
    assert_counters(
        lab, &(struct vw_probe_counters){
                 .frames = 4, .bytes = 256, .lost = 1, .reordered = 2, .before = 4, .flows = 1});
}

static void a_new_run_begins_anew(void **state)
{
    struct lab *lab = *state;

    arrive(lab, 0);
    arrive(lab, 1);
    lab->writer.run++;
    arrive(lab, 0);
    arrive(lab, 2);
    assert_counters(lab, &(struct vw_probe_counters){
                             .frames = 4, .bytes = 256, .lost = 1, .flows = 1, .restarts = 1});
}

static void flows_take_turns_and_are_counted_apart(void **state)
{
    struct lab *lab = *state;
    struct vw_probe_addresses addresses;

    /* the second of two queues: flows 1, 3, 5 */
    vw_probe_addresses_default(&addresses);
    vw_probe_writer_init(&lab->writer, &addresses, 1, 1, 2, FLOWS, lab->sequences);
    for (unsigned i = 0; i < 3000; i++) {
        vw_probe_write(&lab->writer, lab->frame, 60 + i % 100);
        assert_int_equal(lab->frame[50] | lab->frame[51] << 8, 1 + i % FLOWS * 2);
        assert_int_equal(lab->frame[34] << 8 | lab->frame[35],
                         VW_PROBE_SOURCE_PORT + 1 + i % FLOWS * 2);
        if (i != 1000) /* the 333rd of flow 3 */
            vw_probe_read(&lab->reader, lab->frame, 60 + i % 100);
    }
    for (unsigned i = 0; i < FLOWS; i++)
        assert_int_equal(lab->sequences[i], 1000);
    assert_int_equal(lab->reader.counters.flows, FLOWS);
    assert_int_equal(lab->reader.counters.frames, 2999);
    assert_int_equal(lab->reader.counters.lost, 1);
    assert_int_equal(lab->reader.counters.reordered, 0);
    assert_int_equal(lab->reader.counters.corrupt, 0);
}

/* Random delays and copies against a model that remembers everything. */
static void random_traffic_is_counted_exactly(void **state)
{
    struct lab *lab = *state;
    enum { COUNT = 5000 };
    static uint8_t copies[COUNT];
    uint64_t frames = 1, lost = 0, duplicate = 0, highest = 0;
    unsigned seed = 1;

    memset(copies, 0, sizeof(copies));
    arrive(lab, 0);
    copies[0] = 1;
    for (unsigned i = 1; i < COUNT; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned jump = seed >> 16 & 31;
        unsigned number = i > jump ? i - jump : i;

        arrive(lab, number);
        frames++;
        duplicate += copies[number] > 0;
        copies[number] = 1;
        highest = number > highest ? number : highest;
    }
    for (unsigned i = 0; i <= highest; i++)
        lost += copies[i] == 0;
    assert_int_equal(lab->reader.counters.frames, frames);
    assert_int_equal(lab->reader.counters.lost, lost);
    assert_int_equal(lab->reader.counters.duplicate, duplicate);
    assert_int_equal(lab->reader.counters.stale, 0);
    assert_true(lab->reader.counters.reordered > 0 && lost > 0 && duplicate > 0);
}

static void sizes_are_parsed(void **state)
{
    static const char *const bad[] = {
        "",         "59",       "65550", "64:", ":64", "64-", "100-64", "64-70-80",
        "64:70-80", "64-70:80", "64 ",   "x64", "-64", "+64", "IMIX",   "99999999999999999999"};
    struct vw_probe_sizes sizes;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++)
        if (vw_probe_sizes_parse(&sizes, bad[i]))
            fail_msg("'%s' was taken", bad[i]);
    assert_false(vw_probe_sizes_parse(
        &sizes, "60:60:60:60:60:60:60:60:60:60:60:60:60:60:60:60:60")); /* 17 */
    assert_true(vw_probe_sizes_parse(&sizes, "64"));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(vw_probe_sizes_next(&sizes), 64);
    assert_true(vw_probe_sizes_parse(&sizes, "64:1514,60"));
    assert_int_equal(vw_probe_sizes_longest(&sizes), 1514);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(vw_probe_sizes_next(&sizes), 64);
        assert_int_equal(vw_probe_sizes_next(&sizes), 1514);
        assert_int_equal(vw_probe_sizes_next(&sizes), 60);
    }
    assert_true(vw_probe_sizes_parse(&sizes, "60-65549"));
    assert_int_equal(vw_probe_sizes_longest(&sizes), 65549);
    for (unsigned i = 60; i <= 65549; i++)
        assert_int_equal(vw_probe_sizes_next(&sizes), i);
    assert_int_equal(vw_probe_sizes_next(&sizes), 60);
}

static void imix_has_seven_four_and_one(void **state)
{
    struct vw_probe_sizes sizes;
    unsigned of_60 = 0, of_590 = 0, of_1514 = 0;

    (void)state;
    assert_true(vw_probe_sizes_parse(&sizes, "imix"));
    for (unsigned i = 0; i < 1200; i++) {
        uint32_t length = vw_probe_sizes_next(&sizes);

        of_60 += length == 60;
        of_590 += length == 590;
        of_1514 += length == 1514;
    }
    assert_int_equal(of_60, 700);
    assert_int_equal(of_590, 400);
    assert_int_equal(of_1514, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_length_arrives_intact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_frame_is_valid_udp, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_layout_is_as_documented, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_flipped_bit_of_the_payload_is_corruption, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(parts_in_the_wrong_place_are_corruption, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_probe_is_foreign, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gaps_are_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(late_frames_are_reordered_and_not_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(duplicates_are_told_from_late_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_window_has_exact_edges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_window_forgets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_wrap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flow_that_begins_out_of_order_is_counted_from_its_lowest,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_run_begins_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(flows_take_turns_and_are_counted_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_traffic_is_counted_exactly, set_up, tear_down),
        cmocka_unit_test(sizes_are_parsed),
        cmocka_unit_test(imix_has_seven_four_and_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
