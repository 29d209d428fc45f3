/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands of the control queue, as a driver writes them (virtio 1.x, section 5.1.6.5). What reads
 * them is net/control.h.
 *
 * Theory of operation
 * -------------------
 * Each function makes one command: its bytes, the feature without which it must not be sent, and
 * how many bytes of an answer the device writes behind its acknowledgement. Values that no device
 * could take are refused with -EINVAL before anything is sent; what only a certain device refuses
 * is left to it.
 */
#ifndef VW_NET_COMMAND_H
#define VW_NET_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/config.h"
#include "net/control.h"

/* Room for a table of 500 addresses, and for RSS with 1024 entries and a key of 255 bytes. */
#define VW_NET_COMMAND_MAX 3072

struct vw_net_command {
    uint8_t feature;     /* number of the feature that it needs */
    uint8_t identity;    /* a command replaces an earlier one with the same bytes up to here */
    uint8_t answer_size; /* bytes that the device writes behind its acknowledgement */
    uint32_t length;
    uint8_t bytes[VW_NET_COMMAND_MAX];
};

/* `mode`: VIRTIO_NET_CTRL_RX_PROMISC and so on. -EINVAL for others. */
int vw_net_command_mode(struct vw_net_command *command, unsigned mode, bool on);

/* -EINVAL for the zero address and for a group's. */
int vw_net_command_mac(struct vw_net_command *command, const uint8_t mac[VW_NET_MAC_SIZE]);

/* -ENOSPC for more addresses than a command has room for; -EINVAL for a group's address among the
 * unicast ones, or the reverse. */
int vw_net_command_mac_table(struct vw_net_command *command,
                             const uint8_t (*unicast)[VW_NET_MAC_SIZE], size_t unicast_count,
                             const uint8_t (*multicast)[VW_NET_MAC_SIZE], size_t multicast_count);

/* -EINVAL for a number above 4095. */
int vw_net_command_vlan(struct vw_net_command *command, unsigned vlan, bool add);

void vw_net_command_announced(struct vw_net_command *command);

/* -EINVAL unless 1 <= pairs <= max_pairs. */
int vw_net_command_pairs(struct vw_net_command *command, unsigned pairs, unsigned max_pairs);

struct vw_net_rss_settings {
    uint32_t hash_types;
    const uint16_t *table; /* pairs */
    size_t table_size;     /* a power of two */
    unsigned unclassified; /* pair for frames without a hash */
    unsigned tx_pairs;
    const uint8_t *key;
    size_t key_length;
};

/* -EINVAL for what the device's configuration rules out. hash takes types and key alone. */
int vw_net_command_rss(struct vw_net_command *command, const struct vw_net_rss_settings *rss,
                       const struct vw_net_config *config);
int vw_net_command_hash(struct vw_net_command *command, const struct vw_net_rss_settings *rss,
                        const struct vw_net_config *config);

/* GUEST_* features to be in force; -EINVAL for one that was not negotiated, or is no offload. */
int vw_net_command_offloads(struct vw_net_command *command, uint64_t offloads, uint64_t negotiated);

/* All transmit, or all receive queues; one queue; and what one queue has. */
void vw_net_command_coalescing(struct vw_net_command *command, bool transmit,
                               const struct vw_net_coalescing *limits);
int vw_net_command_queue_coalescing(struct vw_net_command *command, unsigned queue,
                                    const struct vw_net_coalescing *limits);
int vw_net_command_ask_coalescing(struct vw_net_command *command, unsigned queue);
void vw_net_answer_coalescing(const uint8_t *answer, struct vw_net_coalescing *limits);

#endif
