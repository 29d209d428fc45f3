/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How often which value came, in buckets that are a 32nd of their value wide at most: medians and
 * percentiles of any number of values in bounded memory, exact to 1.6 %.
 *
 * Theory of operation
 * -------------------
 * Values below 32 have a bucket each. Each power of two above is cut into 32 buckets of equal
 * width: the number of a bucket is the place of the highest bit and the 5 bits behind it. One
 * thread adds, others read meanwhile; a histogram less an earlier copy of it is that of the time
 * between.
 */
#ifndef VW_BASE_HISTOGRAM_H
#define VW_BASE_HISTOGRAM_H

#include <stdint.h>

#include "base/shared.h"

#define VW_HISTOGRAM_BITS 5
#define VW_HISTOGRAM_STEPS (1u << VW_HISTOGRAM_BITS) /* of each power of two */
#define VW_HISTOGRAM_BUCKETS ((64 - VW_HISTOGRAM_BITS + 1) * VW_HISTOGRAM_STEPS)

struct vw_histogram {
    uint64_t counts[VW_HISTOGRAM_BUCKETS];
};

static inline unsigned vw_histogram_bucket(uint64_t value)
{
    if (value < VW_HISTOGRAM_STEPS)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - VW_HISTOGRAM_BITS;
    return shift * VW_HISTOGRAM_STEPS + (unsigned)(value >> shift);
}

/* The value in the middle of a bucket. */
static inline uint64_t vw_histogram_value(unsigned bucket)
{
    if (bucket < VW_HISTOGRAM_STEPS)
        return bucket;
    unsigned shift = bucket / VW_HISTOGRAM_STEPS - 1;
    return ((uint64_t)(bucket % VW_HISTOGRAM_STEPS + VW_HISTOGRAM_STEPS) << shift) +
           ((UINT64_C(1) << shift) >> 1);
}

static inline void vw_histogram_add(struct vw_histogram *histogram, uint64_t value)
{
    uint64_t *count = &histogram->counts[vw_histogram_bucket(value)];

    vw_shared_store(count, vw_shared_load(count) + 1);
}

/* Adds `from`, which may be changing, to `to`, which is the caller's own. */
static inline void vw_histogram_merge(struct vw_histogram *to, const struct vw_histogram *from)
{
    for (unsigned i = 0; i < VW_HISTOGRAM_BUCKETS; i++)
        to->counts[i] += vw_shared_load(&from->counts[i]);
}

static inline void vw_histogram_subtract(struct vw_histogram *from, const struct vw_histogram *what)
{
    for (unsigned i = 0; i < VW_HISTOGRAM_BUCKETS; i++)
        from->counts[i] -= what->counts[i];
}

static inline uint64_t vw_histogram_count(const struct vw_histogram *histogram)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < VW_HISTOGRAM_BUCKETS; i++)
        count += histogram->counts[i];
    return count;
}

/* The smallest value that `percent` (1 to 100) of all do not exceed; 0 if there are none. */
static inline uint64_t vw_histogram_percentile(const struct vw_histogram *histogram,
                                               unsigned percent)
{
    uint64_t count = vw_histogram_count(histogram), sum = 0;
    uint64_t rank = count / 100 * percent + (count % 100 * percent + 99) / 100;

    for (unsigned i = 0; i < VW_HISTOGRAM_BUCKETS && count > 0; i++) {
        sum += histogram->counts[i];
        if (sum >= rank)
            return vw_histogram_value(i);
    }
    return 0;
}

#endif
