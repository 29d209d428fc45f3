/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/guard.h"
#include "memory/map.h"
#include "memory/memory.h"

#define PAGE 4096

static struct vw_memory *fresh(void)
{
    struct vw_memory *memory = calloc(1, sizeof(*memory));

    assert_non_null(memory);
    return memory;
}

/* Local addresses are only computed, never followed: each region has its own, far from others. */
static struct vw_memory_region region_at(uint64_t guest, uint64_t user, uint64_t size)
{
    return (struct vw_memory_region){
        .guest = guest, .user = user, .size = size, .local = (char *)(uintptr_t)(user + (1 << 20))};
}

static int add(struct vw_memory *memory, uint64_t guest, uint64_t user, uint64_t size)
{
    struct vw_memory_region region = region_at(guest, user, size);

    return vw_memory_add(memory, &region);
}

static void regions_are_kept_sorted(void **unused)
{
    struct vw_memory *memory = fresh();

    (void)unused;
    assert_int_equal(add(memory, 0x3000, 0x13000, 0x1000), 0);
    assert_int_equal(add(memory, 0x1000, 0x51000, 0x1000), 0);
    assert_int_equal(add(memory, 0x2000, 0x22000, 0x1000), 0);
    assert_int_equal(add(memory, 0, 0x70000, 0x1000), 0);
    assert_int_equal(memory->count, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(memory->regions[i].guest, i * 0x1000);
    assert_int_equal(memory->regions[2].user, 0x22000);
    free(memory);
}

static void regions_that_cannot_be_are_refused(void **unused)
{
    struct vw_memory *memory = fresh();

    (void)unused;
    assert_int_equal(add(memory, 0x1000, 0x1000, 0), -EINVAL);
    assert_int_equal(add(memory, UINT64_MAX - 0xfff, 0x1000, 0x1000), -EINVAL);
    assert_int_equal(add(memory, 0x1000, UINT64_MAX - 0xfff, 0x1000), -EINVAL);
    assert_int_equal(add(memory, 0x1000, 0x1000, UINT64_MAX), -EINVAL);
    assert_int_equal(memory->count, 0);
    assert_int_equal(add(memory, UINT64_MAX - 0x1000, UINT64_MAX - 0x1000, 0x1000), 0);
    free(memory);
}

static void overlaps_are_refused_in_both_address_spaces(void **unused)
{
    struct vw_memory *memory = fresh();

    (void)unused;
    assert_int_equal(add(memory, 0x10000, 0x90000, 0x2000), 0);
    assert_int_equal(add(memory, 0x10000, 0x20000, 0x2000), -EINVAL); /* the same */
    assert_int_equal(add(memory, 0x11fff, 0x20000, 0x1000), -EINVAL); /* its last byte */
    assert_int_equal(add(memory, 0xf001, 0x20000, 0x1000), -EINVAL);  /* its first byte */
    assert_int_equal(add(memory, 0x10800, 0x20000, 0x10), -EINVAL);   /* inside */
    assert_int_equal(add(memory, 0xf000, 0x20000, 0x8000), -EINVAL);  /* around */
    assert_int_equal(add(memory, 0x50000, 0x91fff, 0x1000), -EINVAL); /* user addresses */
    assert_int_equal(add(memory, 0x50000, 0x8f001, 0x1000), -EINVAL);
    assert_int_equal(add(memory, 0x50000, 0x80000, 0x20000), -EINVAL);
    assert_int_equal(memory->count, 1);
    assert_int_equal(add(memory, 0xf000, 0x8f000, 0x1000), 0); /* touching is not overlapping */
    assert_int_equal(add(memory, 0x12000, 0x92000, 0x1000), 0);
    free(memory);
}

static void there_is_room_for_509_regions(void **unused)
{
    struct vw_memory *memory = fresh();
    struct vw_memory_region removed;
    unsigned hint = 0;
    struct iovec piece;

    (void)unused;
    /* In an order that is not sorted: 211 and 509 have no common divisor. */
    for (unsigned i = 0; i < 509; i++) {
        uint64_t place = 1 + i * 211 % 509;

        assert_int_equal(add(memory, place * 0x10000, place * 0x20000, 0x1000), 0);
    }
    assert_int_equal(memory->count, VW_MEMORY_MAX_REGIONS);
    assert_int_equal(add(memory, 1000 * 0x10000, 1000 * 0x20000, 0x1000), -ENOSPC);
    for (uint64_t place = 1; place <= 509; place++) {
        assert_int_equal(vw_memory_translate(memory, place * 0x10000 + 0xfff, 1, &piece, 1, &hint),
                         1);
        assert_int_equal((uintptr_t)piece.iov_base, place * 0x20000 + (1 << 20) + 0xfff);
        assert_int_equal(hint, place - 1);
    }
    assert_int_equal(vw_memory_remove(memory, 509 * 0x10000, 509 * 0x20000, 0x1000, &removed), 0);
    assert_int_equal(memory->count, 508);
    assert_int_equal(add(memory, 1000 * 0x10000, 1000 * 0x20000, 0x1000), 0);
    free(memory);
}

static void only_the_very_same_region_is_removed(void **unused)
{
    struct vw_memory *memory = fresh();
    struct vw_memory_region removed = {.size = 0};

    (void)unused;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(add(memory, i * 0x1000, 0x50000 + i * 0x1000, 0x1000), 0);
    assert_int_equal(vw_memory_remove(memory, 0x1000, 0x51000, 0x800, &removed), -ENOENT);
    assert_int_equal(vw_memory_remove(memory, 0x1000, 0x52000, 0x1000, &removed), -ENOENT);
    assert_int_equal(vw_memory_remove(memory, 0x1800, 0x51000, 0x1000, &removed), -ENOENT);
    assert_int_equal(removed.size, 0);
    assert_int_equal(vw_memory_remove(memory, 0x1000, 0x51000, 0x1000, &removed), 0);
    assert_int_equal(removed.guest, 0x1000);
    assert_int_equal((uintptr_t)removed.local, 0x51000 + (1 << 20));
    assert_int_equal(memory->count, 2);
    assert_int_equal(memory->regions[1].guest, 0x2000);
    assert_null(vw_memory_from_guest(memory, 0x1000, 1));
    assert_int_equal(vw_memory_remove(memory, 0x1000, 0x51000, 0x1000, &removed), -ENOENT);
    free(memory);
}

/* Three regions: two that touch and one behind a hole, in another order in user addresses. */
static struct vw_memory *three(void)
{
    struct vw_memory *memory = fresh();

    assert_int_equal(add(memory, 0x1000, 0x30000, 0x1000), 0);
    assert_int_equal(add(memory, 0x2000, 0x10000, 0x1000), 0);
    assert_int_equal(add(memory, 0x4000, 0x20000, 0x1000), 0);
    return memory;
}

static uintptr_t local_of(uint64_t user)
{
    return user + (1 << 20);
}

static void one_piece_addresses(void **unused)
{
    struct vw_memory *memory = three();

    (void)unused;
    assert_int_equal((uintptr_t)vw_memory_from_user(memory, 0x10010, 0xff0), local_of(0x10010));
    assert_null(vw_memory_from_user(memory, 0x10010, 0xff1));
    assert_null(vw_memory_from_user(memory, 0x10010, UINT64_MAX));
    assert_null(vw_memory_from_user(memory, 0xffff, 1));
    assert_null(vw_memory_from_user(memory, UINT64_MAX, 1));
    assert_int_equal((uintptr_t)vw_memory_from_guest(memory, 0x1fff, 1), local_of(0x30fff));
    assert_null(vw_memory_from_guest(memory, 0x1fff, 2)); /* both bytes are there, not together */
    assert_null(vw_memory_from_guest(memory, 0x3000, 1));
    assert_null(vw_memory_from_guest(memory, 0xfff, 1));
    assert_null(vw_memory_from_guest(memory, 0x1000, UINT64_MAX));
    free(memory);
}

static void a_run_across_regions_comes_in_pieces(void **unused)
{
    struct vw_memory *memory = three();
    struct iovec pieces[4];
    unsigned hint = 0;

    (void)unused;
    assert_int_equal(vw_memory_translate(memory, 0x1800, 0x1000, pieces, 4, &hint), 2);
    assert_int_equal((uintptr_t)pieces[0].iov_base, local_of(0x30800));
    assert_int_equal(pieces[0].iov_len, 0x800);
    assert_int_equal((uintptr_t)pieces[1].iov_base, local_of(0x10000));
    assert_int_equal(pieces[1].iov_len, 0x800);
    assert_int_equal(hint, 1);

    hint = 0; /* the whole of both, and no byte more: there is a hole */
    assert_int_equal(vw_memory_translate(memory, 0x1000, 0x2000, pieces, 4, &hint), 2);
    assert_int_equal(vw_memory_translate(memory, 0x1000, 0x2001, pieces, 4, &hint), -EFAULT);
    assert_int_equal(vw_memory_translate(memory, 0x2fff, 0x1002, pieces, 4, &hint), -EFAULT);
    assert_int_equal(vw_memory_translate(memory, 0x1800, 0x1000, pieces, 1, &hint), -ENOBUFS);
    assert_int_equal(vw_memory_translate(memory, 0x1800, 8, pieces, 0, &hint), -ENOBUFS);
    free(memory);
}

static void addresses_outside_and_overflowing_lengths(void **unused)
{
    struct vw_memory *memory = three();
    struct iovec pieces[4];

    (void)unused;
    for (unsigned first = 0; first < 3; first++) {
        unsigned hint = first;

        assert_int_equal(vw_memory_translate(memory, 0xfff, 1, pieces, 4, &hint), -EFAULT);
        assert_int_equal(vw_memory_translate(memory, 0x3000, 1, pieces, 4, &hint), -EFAULT);
        assert_int_equal(vw_memory_translate(memory, 0x5000, 1, pieces, 4, &hint), -EFAULT);
        assert_int_equal(vw_memory_translate(memory, UINT64_MAX, 1, pieces, 4, &hint), -EFAULT);
        assert_int_equal(vw_memory_translate(memory, 0x4000, UINT64_MAX, pieces, 4, &hint),
                         -EFAULT);
        assert_int_equal(vw_memory_translate(memory, 0x4000, UINT64_MAX - 0x3fff, pieces, 4, &hint),
                         -EFAULT);
        assert_int_equal(vw_memory_translate(memory, 0x9999, 0, pieces, 4, &hint), 0);
    }
    free(memory);
}

static void any_hint_gives_the_same_answer(void **unused)
{
    struct vw_memory *memory = three();
    struct vw_memory_region removed;
    struct iovec pieces[4];
    unsigned hint;

    (void)unused;
    for (hint = 0; hint < 3; hint++) {
        unsigned used = hint;

        assert_int_equal(vw_memory_translate(memory, 0x4100, 0x10, pieces, 4, &used), 1);
        assert_int_equal((uintptr_t)pieces[0].iov_base, local_of(0x20100));
        assert_int_equal(used, 2);
    }
    /* The region of the hint went away, and its entry still lies there. */
    hint = 2;
    assert_int_equal(vw_memory_remove(memory, 0x4000, 0x20000, 0x1000, &removed), 0);
    assert_int_equal(vw_memory_translate(memory, 0x4100, 0x10, pieces, 4, &hint), -EFAULT);
    assert_int_equal(vw_memory_translate(memory, 0x1100, 0x10, pieces, 4, &hint), 1);
    assert_int_equal(hint, 0);
    free(memory);
}

static int memory_file(off_t size)
{
    int fd = memfd_create("vw-test-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    return fd;
}

static void a_region_of_a_file_is_mapped_and_shared(void **unused)
{
    int fd = memory_file(3 * PAGE);
    struct vw_memory_region region = {.guest = 0, .user = 0, .size = 2 * PAGE};
    char byte = 0;

    (void)unused;
    assert_int_equal(vw_memory_map(&region, fd, PAGE), 0);
    region.local[5] = 'v';
    assert_int_equal(pread(fd, &byte, 1, PAGE + 5), 1);
    assert_int_equal(byte, 'v');
    byte = 'w';
    assert_int_equal(pwrite(fd, &byte, 1, 3 * PAGE - 1), 1);
    assert_int_equal(region.local[2 * PAGE - 1], 'w');
    assert_false(vw_guard_lost(region.mapping));
    vw_memory_unmap(&region);
    assert_null(region.mapping);
    vw_memory_unmap(&region); /* twice is once */
    close(fd);
}

static void an_offset_need_not_be_aligned(void **unused)
{
    int fd = memory_file(2 * PAGE);
    struct vw_memory_region region = {.size = PAGE};
    char byte = 0;

    (void)unused;
    assert_int_equal(vw_memory_map(&region, fd, 100), 0);
    region.local[0] = 'o';
    assert_int_equal(pread(fd, &byte, 1, 100), 1);
    assert_int_equal(byte, 'o');
    vw_memory_unmap(&region);
    close(fd);
}

static void sizes_and_offsets_that_lie_are_refused(void **unused)
{
    static const struct {
        uint64_t size, offset;
        int error;
    } cases[] = {
        {0, 0, -EINVAL},
        {PAGE + 1, 0, -ENXIO}, /* one byte beyond the end of the file */
        {PAGE, 1, -ENXIO},
        {1, PAGE, -ENXIO},
        {PAGE, PAGE, -ENXIO},
        {UINT64_MAX, 1, -EINVAL},
        {1, UINT64_MAX, -EINVAL},
        {PAGE, UINT64_MAX - PAGE + 1, -EINVAL},
        {UINT64_C(1) << 63, 0, -EINVAL},
        {INT64_MAX, 0, -ENXIO},
        {1, INT64_MAX - 1, -ENXIO},
    };
    int fd = memory_file(PAGE);

    (void)unused;
    for (size_t i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        struct vw_memory_region region = {.size = cases[i].size};

        assert_int_equal(vw_memory_map(&region, fd, cases[i].offset), cases[i].error);
        assert_null(region.mapping);
    }
    close(fd);
}

static void what_is_no_memory_is_refused(void **unused)
{
    struct vw_memory_region region = {.size = PAGE};
    int ends[2], event = eventfd(0, EFD_CLOEXEC);

    (void)unused;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(vw_memory_map(&region, ends[0], 0), -ENOTSUP);
    assert_int_equal(vw_memory_map(&region, event, 0), -ENOTSUP);
    assert_int_equal(vw_memory_map(&region, -1, 0), -EBADF);
    close(ends[0]);
    close(ends[1]);
    close(event);
}

static void a_file_that_may_not_be_written_is_refused(void **unused)
{
    int fd = memory_file(PAGE);
    struct vw_memory_region region = {.size = PAGE};

    (void)unused;
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(vw_memory_map(&region, fd, 0), -EPERM);
    assert_null(region.mapping);
    close(fd);
}

static void a_table_is_unmapped_whole(void **unused)
{
    struct vw_memory *memory = fresh();
    int fd = memory_file(4 * PAGE);

    (void)unused;
    for (uint64_t i = 0; i < 4; i++) {
        struct vw_memory_region region = {.guest = i * PAGE, .user = i * PAGE, .size = PAGE};

        assert_int_equal(vw_memory_map(&region, fd, i * PAGE), 0);
        assert_int_equal(vw_memory_add(memory, &region), 0);
    }
    vw_memory_unmap_all(memory);
    assert_int_equal(memory->count, 0);
    close(fd);
    free(memory);
}

static bool readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* The access goes on, reads zeros, and only this mapping is marked. */
static void memory_that_is_cut_off_harms_only_its_own_mapping(void **unused)
{
    int cut = memory_file(4 * PAGE), whole = memory_file(2 * PAGE);
    struct vw_memory_region lost = {.size = 4 * PAGE}, kept = {.size = 2 * PAGE};

    (void)unused;
    assert_int_equal(vw_guard_fd(), -1);
    assert_int_equal(vw_guard_install(), 0);
    assert_true(vw_guard_fd() >= 0);
    assert_false(readable(vw_guard_fd()));
    assert_int_equal(vw_memory_map(&kept, whole, 0), 0);
    assert_int_equal(vw_memory_map(&lost, cut, 0), 0);
    memset(kept.local, 'k', 2 * PAGE);
    memset(lost.local, 'l', 4 * PAGE);

    assert_int_equal(ftruncate(cut, PAGE), 0);
    assert_false(vw_guard_lost(lost.mapping)); /* nobody touched it yet */
    volatile char *byte = lost.local + 3 * PAGE + 7;
    *byte = 'x'; /* SIGBUS, and this same store again */
    assert_int_equal(*byte, 'x');
    assert_int_equal(lost.local[2 * PAGE], 0);
    assert_true(vw_guard_lost(lost.mapping));
    assert_true(vw_guard_lost((char *)lost.mapping + 4 * PAGE - 1));
    assert_true(readable(vw_guard_fd()));
    assert_false(vw_guard_lost(kept.mapping));
    for (int i = 0; i < 2 * PAGE; i++)
        assert_int_equal(kept.local[i], 'k');

    void *was = lost.mapping;
    vw_memory_unmap(&lost);
    assert_false(vw_guard_lost(was));
    vw_memory_unmap(&kept);
    close(cut);
    close(whole);
}

/* A new mapping at an address that was lost before is not lost. */
static void a_mark_goes_with_its_mapping(void **unused)
{
    (void)unused;
    assert_int_equal(vw_guard_install(), 0);
    for (int i = 0; i < 100; i++) {
        int fd = memory_file(PAGE);
        struct vw_memory_region region = {.size = PAGE};

        assert_int_equal(vw_memory_map(&region, fd, 0), 0);
        assert_false(vw_guard_lost(region.mapping));
        assert_int_equal(ftruncate(fd, 0), 0);
        *(volatile char *)region.local = 1;
        assert_true(vw_guard_lost(region.mapping));
        vw_memory_unmap(&region);
        close(fd);
    }
}

/* What the guard does not know of ends the process, as without it. */
static void a_fault_outside_guarded_memory_is_not_hidden(void **unused)
{
    int status = 0;

    (void)unused;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        int fd = memfd_create("vw-test-memory", MFD_CLOEXEC);

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGBUS, SIG_DFL);
        if (vw_guard_install() < 0 || ftruncate(fd, PAGE) < 0)
            _exit(1);
        volatile char *mapping = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapping == MAP_FAILED || ftruncate(fd, 0) < 0)
            _exit(2);
        *mapping = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

/* The list lasts as long as the process: a child fills it. */
static int fill_the_guard(void)
{
    static char *const base = (char *)(uintptr_t)0x100000000000; /* never followed */
    unsigned added = 0;

    while (added <= 64 * 509 && vw_guard_add(base + (size_t)added * PAGE, PAGE) == 0)
        added++;
    if (added != 64 * 509)
        return 1;
    /* What goes makes room, once; not more. */
    for (unsigned i = 0; i < 10; i++)
        vw_guard_remove(base + (size_t)i * 7 * PAGE);
    for (unsigned i = 0; i < 10; i++)
        if (vw_guard_add(base + (size_t)(added + i) * PAGE, PAGE) != 0)
            return 2;
    return vw_guard_add(base, PAGE) == -ENOSPC ? 0 : 3;
}

static void the_guard_has_room_for_many_and_ends(void **unused)
{
    int status = 0;

    (void)unused;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill_the_guard());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_kept_sorted),
        cmocka_unit_test(regions_that_cannot_be_are_refused),
        cmocka_unit_test(overlaps_are_refused_in_both_address_spaces),
        cmocka_unit_test(there_is_room_for_509_regions),
        cmocka_unit_test(only_the_very_same_region_is_removed),
        cmocka_unit_test(one_piece_addresses),
        cmocka_unit_test(a_run_across_regions_comes_in_pieces),
        cmocka_unit_test(addresses_outside_and_overflowing_lengths),
        cmocka_unit_test(any_hint_gives_the_same_answer),
        cmocka_unit_test(a_region_of_a_file_is_mapped_and_shared),
        cmocka_unit_test(an_offset_need_not_be_aligned),
        cmocka_unit_test(sizes_and_offsets_that_lie_are_refused),
        cmocka_unit_test(what_is_no_memory_is_refused),
        cmocka_unit_test(a_file_that_may_not_be_written_is_refused),
        cmocka_unit_test(a_table_is_unmapped_whole),
        cmocka_unit_test(memory_that_is_cut_off_harms_only_its_own_mapping),
        cmocka_unit_test(a_mark_goes_with_its_mapping),
        cmocka_unit_test(a_fault_outside_guarded_memory_is_not_hidden),
        cmocka_unit_test(the_guard_has_room_for_many_and_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
