/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Room for 64 guests with the 509 memory slots that each may have, or for more guests with fewer.
 * An entry is free while its start is 0. The handler runs at any moment and only loads and stores
 * atomics; the lock is for adding and removing.
 */
#define GUARD_ENTRIES (64 * 509)

struct guard_entry {
    _Atomic uintptr_t start;
    _Atomic size_t size;
    _Atomic bool lost;
};

static struct guard_entry entries[GUARD_ENTRIES];
static _Atomic unsigned entries_used; /* entries at and above this were never in use */
static unsigned lowest_free;          /* all entries below this are in use; under the lock */
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int lost_fd = -1;

static struct guard_entry *find(uintptr_t address)
{
    unsigned used = atomic_load(&entries_used);

    for (unsigned i = 0; i < used; i++) {
        uintptr_t start = atomic_load(&entries[i].start);

        if (start != 0 && address >= start && address - start < atomic_load(&entries[i].size))
            return &entries[i];
    }
    return NULL;
}

/* The whole mapping is replaced: whatever is read from now on is zero, and nothing faults again. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct guard_entry *entry = info->si_code > 0 ? find(address) : NULL;

    (void)context;
    if (entry != NULL) {
        void *start = (void *)atomic_load(&entry->start);
        size_t size = atomic_load(&entry->size);

        uint64_t one = 1;

        atomic_store(&entry->lost, true);
        (void)!write(atomic_load(&lost_fd), &one, sizeof(one));
        if (mmap(start, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    /* Not ours: the access is repeated after this handler, and now ends the process. */
    signal(signal_number, SIG_DFL);
    errno = saved;
}

int vw_guard_install(void)
{
    struct sigaction action;

    if (atomic_load(&lost_fd) < 0) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

        if (fd < 0)
            return -errno;
        atomic_store(&lost_fd, fd);
    }
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}

int vw_guard_fd(void)
{
    return atomic_load(&lost_fd);
}

int vw_guard_add(void *mapping, size_t size)
{
    int result = -ENOSPC;

    pthread_mutex_lock(&entries_lock);
    for (unsigned i = lowest_free; i < GUARD_ENTRIES; i++) {
        struct guard_entry *entry = &entries[i];

        if (atomic_load(&entry->start) != 0)
            continue;
        lowest_free = i + 1;
        atomic_store(&entry->lost, false);
        atomic_store(&entry->size, size);
        atomic_store(&entry->start, (uintptr_t)mapping); /* last: the entry is complete */
        if (i >= atomic_load(&entries_used))
            atomic_store(&entries_used, i + 1);
        result = 0;
        break;
    }
    pthread_mutex_unlock(&entries_lock);
    return result;
}

void vw_guard_remove(void *mapping)
{
    pthread_mutex_lock(&entries_lock);
    struct guard_entry *entry = find((uintptr_t)mapping);
    if (entry != NULL) {
        atomic_store(&entry->start, 0);
        if (entry - entries < lowest_free)
            lowest_free = (unsigned)(entry - entries);
    }
    pthread_mutex_unlock(&entries_lock);
}

bool vw_guard_lost(const void *mapping)
{
    const struct guard_entry *entry = find((uintptr_t)mapping);

    return entry != NULL && atomic_load(&entry->lost);
}
