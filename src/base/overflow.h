/* SPDX-License-Identifier: BSD-3-Clause */
/* Address and length arithmetic on numbers that a peer sent. Each returns false on overflow. */
#ifndef VW_BASE_OVERFLOW_H
#define VW_BASE_OVERFLOW_H

#include <stdbool.h>
#include <stdint.h>

static inline bool vw_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool vw_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Is [start, start + length) inside [0, limit)? Never overflows. */
static inline bool vw_range_fits(uint64_t start, uint64_t length, uint64_t limit)
{
    return length <= limit && start <= limit - length;
}

#endif
