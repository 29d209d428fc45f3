/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many system calls a thread has made to move frames: kicks, calls, sleeps, reads and writes of
 * ports. Whoever makes one for a frame counts it here, next to it, so that a thread that makes none
 * pays nothing; the thread itself tells the others from time to time. Set-up and control are not
 * counted.
 */
#ifndef VW_BASE_SYSTEM_CALLS_H
#define VW_BASE_SYSTEM_CALLS_H

#include <stdint.h>

/* The calling thread's, since it began. Not for signal handlers: an addition may be interrupted. */
extern _Thread_local uint64_t vw_system_calls;

static inline void vw_count_system_call(void)
{
    vw_system_calls++;
}

#endif
