/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The monotonic clock, for deadlines and durations: it has no relation to the time of day. A look
 * costs some 25 ns, without a system call.
 */
#ifndef VW_BASE_CLOCK_H
#define VW_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t vw_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t vw_clock_us(void)
{
    return vw_clock_ns() / 1000;
}

static inline double vw_clock_seconds(void)
{
    return (double)vw_clock_ns() * 1e-9;
}

/* Signed, since what is left until a deadline may be less than nothing. */
static inline int64_t vw_clock_ms(void)
{
    return (int64_t)(vw_clock_ns() / 1000000);
}

#endif
