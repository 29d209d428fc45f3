/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands of the control queue (virtio 1.x, section 5.1.6.5).
 *
 * Theory of operation
 * -------------------
 * The device gathers the readable bytes of a chain into a private buffer of
 * VW_NET_CONTROL_MAX bytes, however the descriptors cut them, and hands the copy to
 * vw_net_control. The command is checked in full before the first change, so that a refused
 * command leaves the state as it was. What changed is told as a mask, so that the device knows
 * whom to tell: its effects must be in force before the chain is given back (section 5.1.6.5).
 * The answer is one byte, vw_net_control_ack, and for a command that asks for values those behind
 * it, vw_net_control_answer; the used length is as many bytes as were written.
 *
 * Bytes behind a complete command are ignored: no field's place depends on them.
 *
 * A MAC table may be longer than ours. As with network cards, the addresses that do not fit are
 * not refused: all unicast, or all multicast, frames pass then. For that it is enough to see the
 * first VW_NET_CONTROL_MAX bytes of the command and to know its full length.
 */
#ifndef VW_NET_CONTROL_H
#define VW_NET_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/config.h"
#include "net/hash.h"

/*
 * Bytes of a command to copy at most. Every command that can be taken in full is shorter: a table
 * of 64 + 64 addresses has 778 bytes, RSS with 128 entries and a key of 40 bytes has 309.
 */
#define VW_NET_CONTROL_MAX 1024

/* Addresses kept in each half of the MAC table: 64 are what QEMU keeps for both together. */
#define VW_NET_MAC_TABLE 64

/*
 * When a queue's calls are due (section 5.1.6.5.9): with the max_packets-th packet after the last
 * call, or max_usecs after the first one, whichever comes first; if either is 0, with every packet.
 */
struct vw_net_coalescing {
    uint32_t max_packets;
    uint32_t max_usecs;
};

/* Queues that can have limits of their own: vhost-user numbers rings with 8 bits. */
#define VW_NET_COALESCED_QUEUES 256

struct vw_net_mac_table {
    uint16_t count;
    bool overflow; /* the guest's table did not fit: all pass */
    uint8_t mac[VW_NET_MAC_TABLE][VW_NET_MAC_SIZE];
};

struct vw_net_control_state {
    uint64_t features;       /* negotiated */
    uint16_t max_pairs;      /* of the device */
    uint16_t pairs;          /* in use: 1 after reset */
    uint64_t guest_offloads; /* GUEST_* bits in force */
    uint8_t mac[VW_NET_MAC_SIZE];
    bool announce; /* ANNOUNCE is set in the configuration's status */
    bool promiscuous, all_multicast, all_unicast, no_multicast, no_unicast, no_broadcast;
    struct vw_net_mac_table unicast, multicast;
    uint64_t vlans[4096 / 64];
    struct vw_net_rss rss;
    /* Of each receive and transmit queue, by index. "The last command wins" (5.1.6.5.9.1): commands
     * for all queues write all of it. Without RING_RESET, which we never offer, a queue is enabled
     * again only after a reset of the device, so that device-wide values need not be kept. */
    struct vw_net_coalescing coalescing[VW_NET_COALESCED_QUEUES];
    /* The device keeps this up to date: queues that the driver has set up. Commands for others are
     * refused. */
    uint64_t queues_set_up[VW_NET_COALESCED_QUEUES / 64];
};

/* What a command changed. */
#define VW_NET_CHANGED_FILTER 0x01u   /* receive modes, MAC table, VLANs */
#define VW_NET_CHANGED_MAC 0x02u      /* the device's own address: also in the configuration */
#define VW_NET_CHANGED_PAIRS 0x04u    /* queue pairs in use */
#define VW_NET_CHANGED_HASH 0x08u     /* hash types, key or table: prepare the key anew */
#define VW_NET_CHANGED_OFFLOADS 0x10u /* guest_offloads */
#define VW_NET_CHANGED_ANNOUNCE 0x20u /* announce is now false: also in the configuration */
#define VW_NET_CHANGED_COALESCING 0x40u

enum vw_net_control_result {
    VW_NET_CONTROL_OK,
    VW_NET_CONTROL_SHORT,        /* fewer bytes than the command has */
    VW_NET_CONTROL_UNKNOWN,      /* no such class or command */
    VW_NET_CONTROL_UNNEGOTIATED, /* its feature was not accepted */
    VW_NET_CONTROL_VALUE,        /* a value out of its range */
    VW_NET_CONTROL_RESULT_COUNT,
};

/* The state after reset with these negotiated features. */
void vw_net_control_reset(struct vw_net_control_state *state, uint64_t features, uint16_t max_pairs,
                          const uint8_t mac[VW_NET_MAC_SIZE]);

/*
 * Carries out one command. `length` is the number of readable bytes in the chain; the first
 * min(length, VW_NET_CONTROL_MAX) of them are at `command`, in private memory. `*changed` gets a
 * mask of VW_NET_CHANGED_*, 0 if the command was refused; a mask may name what was set to the value
 * that it had before, and a command that only asks changes nothing.
 */
enum vw_net_control_result vw_net_control(struct vw_net_control_state *state, const void *command,
                                          size_t length, unsigned *changed);

/*
 * What a command that was carried out answers behind the acknowledgement (VQ_GET does). Returns the
 * number of bytes, 0 for none. `command` and `length` as given to vw_net_control.
 */
#define VW_NET_CONTROL_ANSWER_MAX 8
size_t vw_net_control_answer(const struct vw_net_control_state *state, const void *command,
                             size_t length, uint8_t answer[VW_NET_CONTROL_ANSWER_MAX]);

/* The acknowledgement byte to write: VIRTIO_NET_OK or VIRTIO_NET_ERR. */
static inline uint8_t vw_net_control_ack(enum vw_net_control_result result)
{
    return result == VW_NET_CONTROL_OK ? VIRTIO_NET_OK : VIRTIO_NET_ERR;
}

/* One phrase for a log line. */
const char *vw_net_control_result_text(enum vw_net_control_result result);

#endif
