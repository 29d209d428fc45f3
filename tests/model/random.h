/* SPDX-License-Identifier: BSD-3-Clause */
/* Repeatable pseudo-random numbers (the splitmix64 sequence), and the seed that a test starts from.
 */
#ifndef VW_TESTS_RANDOM_H
#define VW_TESTS_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0 <= result < limit; limit is not 0. */
static inline uint32_t random_below(struct random *random, uint32_t limit)
{
    return (uint32_t)(((random_next(random) >> 32) * limit) >> 32);
}

static inline int random_one_in(struct random *random, uint32_t n)
{
    return random_below(random, n) == 0;
}

/* VW_SEED repeats a run that failed; without it every run is the same. */
static inline uint64_t random_seed(void)
{
    const char *text = getenv("VW_SEED");

    return text ? strtoull(text, NULL, 0) : UINT64_C(0x5eed);
}

#endif
