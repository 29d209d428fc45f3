/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Toeplitz hash of a frame, and the receive queue that it leads to (virtio 1.x, sections
 * 5.1.6.4.3 and 5.1.6.5.7).
 *
 * Theory of operation
 * -------------------
 * The Toeplitz hash of an input is the exclusive or, over all bits of the input that are set, of
 * the 32 bits of the key that start at the bit's position. It is therefore linear, and the hashes
 * of all values of each half byte at each position can be made ahead, once for a key. A frame of
 * TCP over IPv4 then takes 24 look-ups in a table that stays in the first-level cache.
 */
#ifndef VW_NET_HASH_H
#define VW_NET_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "net/config.h"
#include "net/dissect.h"

/* The longest input: two IPv6 addresses and two ports. */
#define VW_NET_HASH_INPUT 36

struct vw_net_toeplitz {
    uint32_t table[2 * VW_NET_HASH_INPUT][16]; /* 4.5 KiB: [half byte][its value] */
};

/* Prepares for a key. Shorter keys than 40 bytes count as if zeros followed. */
void vw_net_toeplitz_init(struct vw_net_toeplitz *toeplitz, const uint8_t *key, unsigned length);

/* The hash of up to VW_NET_HASH_INPUT bytes. */
uint32_t vw_net_toeplitz(const struct vw_net_toeplitz *toeplitz, const uint8_t *input,
                         unsigned length);

/* As control commands set it. Types, key and steering are zero after reset. */
struct vw_net_rss {
    uint32_t hash_types; /* enabled types; bit n belongs to hash_report n + 1 */
    uint8_t key_length;
    uint8_t key[VW_NET_RSS_MAX_KEY];
    bool steering;                        /* the table decides; else steering is automatic */
    uint16_t mask;                        /* entries - 1; a power of two minus one */
    uint16_t unclassified;                /* pair for frames without a hash */
    uint16_t table[VW_NET_RSS_MAX_TABLE]; /* pairs (receiveq index >> 1), each below max_pairs */
};

struct vw_net_hash {
    uint32_t value;
    uint16_t report; /* VIRTIO_NET_HASH_REPORT_*; NONE: value is 0 */
};

/*
 * Hashes a dissected frame by the enabled types. `data` are the bytes that were dissected.
 * Fragments are hashed by their addresses alone.
 */
struct vw_net_hash vw_net_hash_frame(const struct vw_net_toeplitz *toeplitz, uint32_t hash_types,
                                     const struct vw_net_packet *packet, const uint8_t *data);

/* The queue pair for a frame with this hash; only if rss->steering. */
static inline uint16_t vw_net_rss_pair(const struct vw_net_rss *rss, struct vw_net_hash hash)
{
    if (hash.report == VIRTIO_NET_HASH_REPORT_NONE)
        return rss->unclassified;
    return rss->table[hash.value & rss->mask];
}

#endif
