/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/iov.h"
#include "base/log.h"
#include "base/overflow.h"

#define BYTES 24

/*
 * Lists over BYTES bytes, cut in every way that `cuts` says: bit i cuts after byte i. Each piece is
 * an allocation of its own, so that a step over its end is seen, and empty pieces lie between.
 */
struct list {
    struct iovec iov[2 * BYTES + 2];
    size_t count;
};

static void add_piece(struct list *list, const uint8_t *from, size_t length)
{
    void *piece = malloc(length ? length : 1);

    assert_non_null(piece);
    if (length > 0)
        memcpy(piece, from, length);
    list->iov[list->count++] = (struct iovec){.iov_base = piece, .iov_len = length};
}

static struct list cut(const uint8_t *bytes, size_t length, uint32_t cuts)
{
    struct list list = {.count = 0};
    size_t start = 0;

    for (size_t i = 0; i < length; i++) {
        if (!(cuts >> i & 1) && i + 1 < length)
            continue;
        add_piece(&list, bytes + start, i + 1 - start);
        if (i % 3 == 0)
            add_piece(&list, bytes, 0);
        start = i + 1;
    }
    return list;
}

static void release(const struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->iov[i].iov_base);
}

static void flatten(const struct iovec *iov, size_t count, uint8_t *to)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
}

static void fill_bytes(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
}

/* A fixed walk over ways to cut: none, all, alternating, and ones without a pattern. */
static uint32_t cuts_of(unsigned round)
{
    static const uint32_t first[] = {0, 0xffffffff, 0x55555555, 0xaaaaaaaa, 1, 1u << (BYTES - 2)};

    return round < VW_ARRAY_SIZE(first) ? first[round] : round * 2654435761u;
}

static void reads_every_range_of_every_list(void **unused)
{
    uint8_t bytes[BYTES], got[BYTES + 4];

    (void)unused;
    fill_bytes(bytes, BYTES);
    for (unsigned round = 0; round < 40; round++) {
        struct list list = cut(bytes, BYTES, cuts_of(round));

        assert_int_equal(vw_iov_length(list.iov, list.count), BYTES);
        for (size_t offset = 0; offset <= BYTES + 2; offset++) {
            for (size_t length = 0; length <= BYTES + 2; length++) {
                size_t left = offset < BYTES ? BYTES - offset : 0;
                size_t want = length < left ? length : left;

                memset(got, 0xee, sizeof(got));
                assert_int_equal(vw_iov_read(list.iov, list.count, offset, got, length), want);
                if (want > 0)
                    assert_memory_equal(got, bytes + offset, want);
                for (size_t i = want; i < sizeof(got); i++)
                    assert_int_equal(got[i], 0xee);
            }
        }
        release(&list);
    }
}

static void writes_exactly_the_range(void **unused)
{
    uint8_t bytes[BYTES], from[BYTES + 4], got[BYTES];

    (void)unused;
    fill_bytes(from, sizeof(from));
    for (unsigned round = 0; round < 40; round++) {
        for (size_t offset = 0; offset <= BYTES; offset += 1 + round % 3) {
            size_t length = (round * 7 + offset) % (BYTES + 4);
            size_t want = length < BYTES - offset ? length : BYTES - offset;

            memset(bytes, 0xdd, BYTES);
            struct list list = cut(bytes, BYTES, cuts_of(round));
            assert_int_equal(vw_iov_write(list.iov, list.count, offset, from, length), want);
            memcpy(bytes + offset, from, want);
            flatten(list.iov, list.count, got);
            assert_memory_equal(got, bytes, BYTES);
            release(&list);
        }
    }
}

static void copies_between_lists_cut_differently(void **unused)
{
    uint8_t source[BYTES], target[BYTES], got[BYTES];

    (void)unused;
    fill_bytes(source, BYTES);
    for (unsigned round = 0; round < 400; round++) {
        size_t to = round % 5, from = round % 7, length = round % (BYTES + 5);
        size_t room = BYTES - (to > from ? to : from);
        size_t want = length < room ? length : room;

        memset(target, 0xcc, BYTES);
        struct list a = cut(target, BYTES, cuts_of(round));
        struct list b = cut(source, BYTES, cuts_of(round / 7));
        assert_int_equal(vw_iov_copy(a.iov, a.count, to, b.iov, b.count, from, length), want);
        memcpy(target + to, source + from, want);
        flatten(a.iov, a.count, got);
        assert_memory_equal(got, target, BYTES);
        release(&a);
        release(&b);
    }
}

static void drops_from_the_front(void **unused)
{
    uint8_t bytes[BYTES], got[BYTES];

    (void)unused;
    fill_bytes(bytes, BYTES);
    for (unsigned round = 0; round < 40; round++) {
        for (size_t drop = 0; drop <= BYTES + 3; drop++) {
            struct list list = cut(bytes, BYTES, cuts_of(round));
            struct iovec iov[2 * BYTES + 2];
            size_t left = drop < BYTES ? BYTES - drop : 0;

            memcpy(iov, list.iov, sizeof(iov));
            size_t skipped = vw_iov_drop(iov, list.count, drop);
            assert_true(skipped <= list.count);
            assert_int_equal(vw_iov_length(iov + skipped, list.count - skipped), left);
            flatten(iov + skipped, list.count - skipped, got);
            assert_memory_equal(got, bytes + BYTES - left, left);
            /* Nothing but the element that straddles is touched. */
            for (size_t i = 0; i < list.count; i++)
                if (i != skipped)
                    assert_memory_equal(&iov[i], &list.iov[i], sizeof(iov[i]));
            release(&list);
        }
    }
}

static void cuts_off_the_end(void **unused)
{
    uint8_t bytes[BYTES], got[BYTES];

    (void)unused;
    fill_bytes(bytes, BYTES);
    for (unsigned round = 0; round < 40; round++) {
        for (size_t keep = 0; keep <= BYTES + 3; keep++) {
            struct list list = cut(bytes, BYTES, cuts_of(round));
            struct iovec iov[2 * BYTES + 2];
            size_t want = keep < BYTES ? keep : BYTES;

            memcpy(iov, list.iov, sizeof(iov));
            size_t count = vw_iov_truncate(iov, list.count, keep);
            assert_true(count <= list.count);
            assert_int_equal(vw_iov_length(iov, count), want);
            flatten(iov, count, got);
            assert_memory_equal(got, bytes, want);
            release(&list);
        }
    }
}

static void empty_lists(void **unused)
{
    struct iovec nothing[2] = {{NULL, 0}, {NULL, 0}};
    char byte = 'x';

    (void)unused;
    assert_int_equal(vw_iov_length(NULL, 0), 0);
    assert_int_equal(vw_iov_read(NULL, 0, 0, &byte, 1), 0);
    assert_int_equal(vw_iov_read(nothing, 2, 0, &byte, 1), 0);
    assert_int_equal(vw_iov_write(nothing, 2, 5, &byte, 1), 0);
    assert_int_equal(byte, 'x');
    assert_int_equal(vw_iov_drop(nothing, 2, 0), 2);
    assert_int_equal(vw_iov_truncate(nothing, 2, 0), 0);
}

static void feature_bits_are_numbers(void **unused)
{
    (void)unused;
    assert_true(vw_bit(0) == 1);
    assert_true(vw_bit(63) == UINT64_C(1) << 63);
    assert_true(vw_bit(64) == 0);
    assert_true(vw_bit(UINT32_MAX) == 0);
    assert_true(vw_has(UINT64_C(1) << 34, 34));
    assert_false(vw_has(UINT64_C(1) << 34, 2)); /* 34 = 32 + 2: no shift modulo 32 */
    assert_false(vw_has(UINT64_MAX, 64));
    assert_false(vw_is_power_of_two(0));
    assert_true(vw_is_power_of_two(1));
    assert_true(vw_is_power_of_two(UINT64_C(1) << 63));
    assert_false(vw_is_power_of_two(UINT64_MAX));
    assert_true(vw_min64(UINT64_MAX, 3) == 3);
}

static void arithmetic_that_overflows_is_refused(void **unused)
{
    uint64_t result;

    (void)unused;
    assert_true(vw_add_u64(UINT64_MAX - 1, 1, &result));
    assert_true(result == UINT64_MAX);
    assert_false(vw_add_u64(UINT64_MAX, 1, &result));
    assert_false(vw_add_u64(UINT64_C(1) << 63, UINT64_C(1) << 63, &result));
    assert_true(vw_mul_u64(UINT32_MAX, UINT32_MAX, &result));
    assert_true(result == UINT64_C(0xfffffffe00000001));
    assert_false(vw_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    assert_true(vw_mul_u64(0, UINT64_MAX, &result));
    assert_true(result == 0);
}

static void ranges(void **unused)
{
    (void)unused;
    assert_true(vw_range_fits(0, 0, 0));
    assert_true(vw_range_fits(0, 10, 10));
    assert_true(vw_range_fits(10, 0, 10));
    assert_true(vw_range_fits(3, 7, 10));
    assert_false(vw_range_fits(4, 7, 10));
    assert_false(vw_range_fits(11, 0, 10));
    assert_false(vw_range_fits(UINT64_MAX, 2, 10));
    assert_false(vw_range_fits(2, UINT64_MAX, 10));
    assert_false(vw_range_fits(UINT64_MAX, UINT64_MAX, UINT64_MAX));
    assert_true(vw_range_fits(0, UINT64_MAX, UINT64_MAX));
}

struct lines {
    unsigned count;
    enum vw_log_level level;
    char last[1024];
};

static void keep_line(void *context, enum vw_log_level level, const char *line)
{
    struct lines *lines = context;

    lines->count++;
    lines->level = level;
    snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static void log_lines_have_the_name_and_the_level(void **unused)
{
    struct lines lines = {.count = 0};
    struct vw_log log = {
        .function = keep_line, .context = &lines, .level = VW_LOG_INFO, .name = "vw.sock"};
    char longest[600];

    (void)unused;
    vw_log(&log, VW_LOG_WARNING, "ring %u of %s", 3u, "port");
    assert_string_equal(lines.last, "vw.sock: ring 3 of port");
    assert_int_equal(lines.level, VW_LOG_WARNING);
    vw_log(&log, VW_LOG_DEBUG, "unseen");
    assert_int_equal(lines.count, 1);

    log.name = NULL;
    vw_log(&log, VW_LOG_INFO, "plain");
    assert_string_equal(lines.last, "plain");

    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    vw_log(&log, VW_LOG_ERROR, "%s", longest);
    assert_true(strlen(lines.last) < sizeof(longest) - 1);
    assert_memory_equal(lines.last, longest, strlen(lines.last));

    log.name = longest; /* a name that leaves no room gives way to the message */
    vw_log(&log, VW_LOG_ERROR, "message");
    assert_string_equal(lines.last, "message");

    vw_log(NULL, VW_LOG_ERROR, "nobody listens");
    log.function = NULL;
    vw_log(&log, VW_LOG_ERROR, "nobody listens");
    assert_int_equal(lines.count, 4);
}

/* A flood that lies in one interval of the limiter; the clock may cross into the next one. */
static uint32_t flood(const struct vw_log *log, struct vw_log_limit *limit, struct lines *lines)
{
    uint64_t first;

    do {
        memset(limit, 0, sizeof(*limit));
        lines->count = 0;
        vw_log_limited(log, limit, VW_LOG_WARNING, "refused %d", 0);
        first = atomic_load(&limit->window);
        for (int i = 1; i < 1000; i++)
            vw_log_limited(log, limit, VW_LOG_WARNING, "refused %d", i);
    } while (atomic_load(&limit->window) != first);
    return lines->count;
}

static void a_flood_of_lines_is_limited_and_counted(void **unused)
{
    struct lines lines = {.count = 0};
    struct vw_log log = {.function = keep_line, .context = &lines, .level = VW_LOG_WARNING};
    struct vw_log_limit limit;
    char told[64];

    (void)unused;
    assert_int_equal(flood(&log, &limit, &lines), VW_LOG_LIMIT_BURST);
    assert_string_equal(lines.last, "refused 9");
    assert_int_equal(atomic_load(&limit.suppressed), 1000 - VW_LOG_LIMIT_BURST);

    /* A later interval: the first line tells what was left out, the second does not again. */
    atomic_store(&limit.window, 1);
    vw_log_limited(&log, &limit, VW_LOG_WARNING, "refused again");
    snprintf(told, sizeof(told), "refused again (%d similar lines left out)",
             1000 - VW_LOG_LIMIT_BURST);
    assert_string_equal(lines.last, told);
    vw_log_limited(&log, &limit, VW_LOG_WARNING, "refused again");
    assert_string_equal(lines.last, "refused again");
}

static void a_line_that_is_not_wanted_costs_no_admission(void **unused)
{
    struct lines lines = {.count = 0};
    struct vw_log log = {.function = keep_line, .context = &lines, .level = VW_LOG_ERROR};
    struct vw_log_limit limit = {0};

    (void)unused;
    for (int i = 0; i < 100; i++)
        vw_log_limited(&log, &limit, VW_LOG_DEBUG, "unseen");
    assert_int_equal(lines.count, 0);
    assert_int_equal(atomic_load(&limit.suppressed), 0);
    vw_log_limited(&log, &limit, VW_LOG_ERROR, "seen");
    assert_string_equal(lines.last, "seen");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_range_of_every_list),
        cmocka_unit_test(writes_exactly_the_range),
        cmocka_unit_test(copies_between_lists_cut_differently),
        cmocka_unit_test(drops_from_the_front),
        cmocka_unit_test(cuts_off_the_end),
        cmocka_unit_test(empty_lists),
        cmocka_unit_test(feature_bits_are_numbers),
        cmocka_unit_test(arithmetic_that_overflows_is_refused),
        cmocka_unit_test(ranges),
        cmocka_unit_test(log_lines_have_the_name_and_the_level),
        cmocka_unit_test(a_flood_of_lines_is_limited_and_counted),
        cmocka_unit_test(a_line_that_is_not_wanted_costs_no_admission),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
