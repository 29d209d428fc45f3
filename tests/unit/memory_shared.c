/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory and its allocator: blocks never overlap, everything comes back, and what the other
 * side does to the memory or its file disturbs neither.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../model/random.h"
#include "base/bits.h"
#include "memory/shared.h"

static void the_file(void **state)
{
    struct vw_shared shared;
    struct stat status;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 100000, false), 0);
    assert_false(shared.huge);
    assert_int_equal(shared.size % 4096, 0);
    assert_true(shared.size >= 100000 && shared.size < 104096);
    assert_int_equal(fstat(shared.fd, &status), 0);
    assert_int_equal(status.st_size, shared.size);
    /* The other side sees the same bytes, and cannot take them away. */
    char *theirs = mmap(NULL, shared.size, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0);
    assert_true(theirs != MAP_FAILED);
    theirs[99999] = 'x';
    assert_int_equal(shared.address[99999], 'x');
    assert_int_equal(ftruncate(shared.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(shared.fd, 1 << 20), -1);
    munmap(theirs, shared.size);
    assert_true(vw_shared_contains(&shared, shared.address, shared.size));
    assert_false(vw_shared_contains(&shared, shared.address, shared.size + 1));
    assert_false(vw_shared_contains(&shared, shared.address - 1, 1));
    assert_false(vw_shared_contains(&shared, shared.address + shared.size, 1));
    assert_false(vw_shared_contains(&shared, shared.address + 1, SIZE_MAX));
    vw_shared_close(&shared);
    assert_int_equal(shared.fd, -1);
}

/* Whether there are hugepages or not: it works. */
static void hugepages_are_never_needed(void **state)
{
    struct vw_shared shared;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 3 << 20, true), 0);
    if (shared.huge)
        assert_int_equal(shared.size % (2 << 20), 0);
    memset(shared.address, 1, shared.size);
    void *block = vw_shared_alloc(&shared, 3 << 20);
    assert_non_null(block);
    assert_int_equal(vw_shared_free(&shared, block), 0);
    vw_shared_close(&shared);
    assert_int_equal(vw_shared_open(&shared, 0, true), -EINVAL);
    assert_int_equal(vw_shared_open(&shared, SIZE_MAX, true), -EINVAL);
}

static void whole_and_again(void **state)
{
    struct vw_shared shared;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 65536, false), 0);
    for (unsigned i = 0; i < 3; i++) {
        char *all = vw_shared_alloc(&shared, 65536);

        assert_ptr_equal(all, shared.address);
        assert_null(vw_shared_alloc(&shared, 1));
        assert_int_equal(vw_shared_in_use(&shared), 65536);
        assert_int_equal(vw_shared_free(&shared, all), 0);
    }
    assert_null(vw_shared_alloc(&shared, 0));
    assert_null(vw_shared_alloc(&shared, 65537));
    assert_null(vw_shared_alloc(&shared, SIZE_MAX));
    assert_int_equal(vw_shared_in_use(&shared), 0);
    vw_shared_close(&shared);
}

/* Neighbours grow together, whatever the order in which they come back. */
static void coalescing(void **state)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct vw_shared shared;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 3 * 4096, false), 0);
    for (unsigned i = 0; i < 6; i++) {
        void *blocks[3];

        for (unsigned b = 0; b < 3; b++) {
            blocks[b] = vw_shared_alloc(&shared, 4096);
            assert_non_null(blocks[b]);
        }
        for (unsigned b = 0; b < 3; b++)
            assert_int_equal(vw_shared_free(&shared, blocks[orders[i][b]]), 0);
        void *all = vw_shared_alloc(&shared, 3 * 4096);
        assert_non_null(all);
        assert_int_equal(vw_shared_free(&shared, all), 0);
    }
    vw_shared_close(&shared);
}

/* Only one block is long enough, and it hangs behind many that are not in the same list. */
static void the_last_that_fits(void **state)
{
    struct vw_shared shared;
    void *blocks[64], *walls[64];
    unsigned count = 0;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 64 * 3 * 64 + 4 * 64, false), 0);
    char *fits = vw_shared_alloc(&shared, 3 * 64);
    char *wall = vw_shared_alloc(&shared, 64);
    assert_true(fits != NULL && wall != NULL);
    while (count < 64 && (blocks[count] = vw_shared_alloc(&shared, 2 * 64)) != NULL) {
        walls[count] = vw_shared_alloc(&shared, 64);
        count++;
    }
    while (vw_shared_alloc(&shared, 64) != NULL)
        ;
    assert_int_equal(count, 64);
    assert_int_equal(vw_shared_free(&shared, fits), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(vw_shared_free(&shared, blocks[i]), 0);
    assert_ptr_equal(vw_shared_alloc(&shared, 3 * 64), fits);
    assert_null(vw_shared_alloc(&shared, 3 * 64));
    assert_non_null(walls[0]);
    vw_shared_close(&shared);
}

static void what_is_no_block(void **state)
{
    struct vw_shared shared;
    char outside[128];
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 65536, false), 0);
    char *first = vw_shared_alloc(&shared, 200), *second = vw_shared_alloc(&shared, 200);
    assert_int_equal(vw_shared_free(&shared, NULL), 0);
    assert_int_equal(vw_shared_free(&shared, outside), -EINVAL);
    assert_int_equal(vw_shared_free(&shared, first + 1), -EINVAL);
    assert_int_equal(vw_shared_free(&shared, first + 64), -EINVAL);
    assert_int_equal(vw_shared_free(&shared, second + 256), -EINVAL); /* begins a free block */
    assert_int_equal(vw_shared_free(&shared, shared.address + 65536), -EINVAL);
    assert_int_equal(vw_shared_free(&shared, second), 0);
    assert_int_equal(vw_shared_free(&shared, second), -EINVAL);
    assert_int_equal(vw_shared_free(&shared, first), 0);
    assert_int_equal(vw_shared_free(&shared, second), -EINVAL);
    assert_int_equal(vw_shared_in_use(&shared), 0);
    vw_shared_close(&shared);
}

/* The device may write anywhere: the allocator does not look there. */
static void scribbled_memory(void **state)
{
    struct vw_shared shared;
    void *blocks[100];
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 1 << 20, false), 0);
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = vw_shared_alloc(&shared, 1 + 97 * i);
    for (unsigned i = 0; i < 100; i += 2)
        assert_int_equal(vw_shared_free(&shared, blocks[i]), 0);
    memset(shared.address, 0xff, shared.size);
    for (unsigned i = 1; i < 100; i += 2)
        assert_int_equal(vw_shared_free(&shared, blocks[i]), 0);
    assert_ptr_equal(vw_shared_alloc(&shared, shared.size), shared.address);
    vw_shared_close(&shared);
}

#define LIVE 512

/* Random sizes; each block is filled with its own byte and checked when it goes. */
static void churn(struct vw_shared *shared, uint64_t seed, unsigned rounds, uint32_t largest)
{
    struct random random = {seed};
    struct {
        unsigned char *bytes;
        size_t size;
        unsigned char fill;
    } live[LIVE] = {{0}};

    for (unsigned i = 0; i < rounds; i++) {
        unsigned slot = random_below(&random, LIVE);

        if (live[slot].bytes != NULL) {
            for (size_t b = 0; b < live[slot].size; b++)
                if (live[slot].bytes[b] != live[slot].fill)
                    abort();
            if (vw_shared_free(shared, live[slot].bytes) != 0)
                abort();
            live[slot].bytes = NULL;
            continue;
        }
        live[slot].size = 1 + random_below(&random, random_one_in(&random, 16) ? largest : 300);
        live[slot].fill = (unsigned char)random_below(&random, 256);
        live[slot].bytes = vw_shared_alloc(shared, live[slot].size);
        if (live[slot].bytes == NULL)
            continue;
        if ((uintptr_t)live[slot].bytes % VW_SHARED_ALIGNMENT != 0 ||
            !vw_shared_contains(shared, live[slot].bytes, live[slot].size))
            abort();
        memset(live[slot].bytes, live[slot].fill, live[slot].size);
    }
    for (unsigned slot = 0; slot < LIVE; slot++)
        if (live[slot].bytes != NULL && vw_shared_free(shared, live[slot].bytes) != 0)
            abort();
}

static void random_sizes(void **state)
{
    struct vw_shared shared;
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 256 << 10, false), 0);
    churn(&shared, 1, 40000, 20000);
    assert_int_equal(vw_shared_in_use(&shared), 0);
    assert_ptr_equal(vw_shared_alloc(&shared, shared.size), shared.address);
    vw_shared_close(&shared);
}

struct worker {
    struct vw_shared *shared;
    uint64_t seed;
};

static void *churn_main(void *argument)
{
    struct worker *worker = argument;

    churn(worker->shared, worker->seed, 20000, 20000);
    return NULL;
}

static void several_threads(void **state)
{
    struct vw_shared shared;
    struct worker workers[3];
    pthread_t threads[3];
    (void)state;

    assert_int_equal(vw_shared_open(&shared, 1 << 20, false), 0);
    for (unsigned i = 0; i < 3; i++) {
        workers[i] = (struct worker){&shared, 7 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, churn_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(vw_shared_in_use(&shared), 0);
    assert_ptr_equal(vw_shared_alloc(&shared, shared.size), shared.address);
    vw_shared_close(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file),           cmocka_unit_test(hugepages_are_never_needed),
        cmocka_unit_test(whole_and_again),    cmocka_unit_test(coalescing),
        cmocka_unit_test(the_last_that_fits), cmocka_unit_test(what_is_no_block),
        cmocka_unit_test(scribbled_memory),   cmocka_unit_test(random_sizes),
        cmocka_unit_test(several_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
