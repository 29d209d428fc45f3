/* SPDX-License-Identifier: BSD-3-Clause */
/* The bare limit of a ring between two cores: what plain cache lines hand over, with no ring. */
#ifndef VW_BENCH_HANDOVER_H
#define VW_BENCH_HANDOVER_H

#include <stdbool.h>

#define BENCH_HANDOVER_SLOTS 256 /* as many frames are under way as in a ring of that size */
#define BENCH_HANDOVER_BATCH 32  /* so many are given back at a time */

/*
 * Frames a second that one core writes and another copies to memory of its own, or, there and
 * `back`, that the first one gets back. Measured for so many seconds, by two threads that end with
 * it. NAN: threads cannot be put on these cores, or they are one.
 */
double bench_handover(unsigned from_core, unsigned to_core, unsigned frame_bytes, bool back,
                      double seconds);

#endif
