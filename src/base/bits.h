/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Feature bits are always named by their *number*; only these helpers turn a number into a mask.
 * (A bit number used as a mask is a fault that several back-ends have shipped.)
 */
#ifndef VW_BASE_BITS_H
#define VW_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t vw_bit(unsigned number)
{
    return number < 64 ? UINT64_C(1) << number : 0;
}

static inline bool vw_has(uint64_t bits, unsigned number)
{
    return (bits & vw_bit(number)) != 0;
}

#define VW_ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The structure that contains a member, from the member's address. */
#define vw_container_of(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer) - __builtin_offsetof(type, member)))

static inline uint64_t vw_min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline bool vw_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

#define vw_likely(condition) __builtin_expect(!!(condition), 1)
#define vw_unlikely(condition) __builtin_expect(!!(condition), 0)
#define VW_ALWAYS_INLINE inline __attribute__((always_inline))
#define VW_CACHE_LINE 64

#endif
