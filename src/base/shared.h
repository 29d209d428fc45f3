/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Access to memory that the other side of a ring reads and writes at the same time.
 *
 * Theory of operation
 * -------------------
 * Every load and store of such memory goes through this file, so that the compiler can neither
 * repeat nor tear it, and so that the race detector sees it as atomic. Four orders are enough for
 * both ring formats (virtio 1.x, sections 2.7.13 and 2.8.21):
 *
 *   vw_shared_load / vw_shared_store      no order: the value was made visible, or will be, by
 *                                         one of the two below
 *   vw_shared_acquire                     pairs with the peer's vw_shared_release: what the peer
 *                                         wrote before its release is seen after this load
 *   vw_shared_release                     pairs with the peer's vw_shared_acquire
 *   vw_full_barrier                       store -> load: between publishing an index and reading
 *                                         the peer's event word, and between writing an event word
 *                                         and looking at the peer's index again. Release and
 *                                         acquire do not order these two, not even on x86.
 *
 * All values in rings are little-endian; the _le forms convert.
 */
#ifndef VW_BASE_SHARED_H
#define VW_BASE_SHARED_H

#include <endian.h>
#include <stdint.h>

#define vw_shared_load(pointer) __atomic_load_n((pointer), __ATOMIC_RELAXED)
#define vw_shared_store(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELAXED)
#define vw_shared_acquire(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)
#define vw_shared_release(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELEASE)

static inline void vw_full_barrier(void)
{
#if defined(__SANITIZE_THREAD__)
    /* The race detector does not model fences; a read-modify-write is a full barrier to it. */
    static int fence;
    __atomic_fetch_add(&fence, 1, __ATOMIC_SEQ_CST);
#elif defined(__x86_64__)
    /* A locked instruction on the stack orders store -> load for ordinary memory, and costs about
     * half of what mfence does, which the compiler would emit for a seq-cst fence. */
    __asm__ __volatile__("lock; addl $0,-4(%%rsp)" ::: "memory", "cc");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Sends for a cache line that will soon be read, or written: the other core has it, as a rule. Any
 * address is allowed. */
static inline void vw_prefetch(const void *address)
{
    __builtin_prefetch(address);
}

static inline void vw_prefetch_write(const void *address)
{
#if defined(__x86_64__)
    /* Every 64-bit processor takes this instruction, but the compiler, told of none in particular,
     * would only prefetch for reading. */
    __asm__ __volatile__("prefetchw %0" ::"m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

/* Tells the processor that this is a spin loop. */
static inline void vw_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

static inline uint16_t vw_load_le16(const uint16_t *pointer)
{
    return le16toh(vw_shared_load(pointer));
}

static inline uint32_t vw_load_le32(const uint32_t *pointer)
{
    return le32toh(vw_shared_load(pointer));
}

static inline uint64_t vw_load_le64(const uint64_t *pointer)
{
    return le64toh(vw_shared_load(pointer));
}

static inline void vw_store_le16(uint16_t *pointer, uint16_t value)
{
    vw_shared_store(pointer, htole16(value));
}

static inline void vw_store_le32(uint32_t *pointer, uint32_t value)
{
    vw_shared_store(pointer, htole32(value));
}

static inline void vw_store_le64(uint64_t *pointer, uint64_t value)
{
    vw_shared_store(pointer, htole64(value));
}

static inline uint16_t vw_acquire_le16(const uint16_t *pointer)
{
    return le16toh(vw_shared_acquire(pointer));
}

static inline void vw_release_le16(uint16_t *pointer, uint16_t value)
{
    vw_shared_release(pointer, htole16(value));
}

#endif
