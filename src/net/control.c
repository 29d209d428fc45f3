/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/control.h"

#include <endian.h>
#include <string.h>

#include "base/bits.h"
#include "net/features.h"

/*
 * What is left of a command. `there` bytes are at `data`; the guest's chain has `length` bytes,
 * which is more only for a MAC table that is longer than what was copied of it.
 */
struct data {
    const uint8_t *data;
    size_t there;
    uint64_t length;
};

static uint16_t le16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t le32(const uint8_t *at)
{
    return le16(at) | (uint32_t)le16(at + 2) << 16;
}

static uint64_t le64(const uint8_t *at)
{
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static void skip(struct data *data, uint64_t bytes)
{
    size_t step = (size_t)vw_min64(bytes, data->there);

    data->data += step;
    data->there -= step;
    data->length -= bytes;
}

void vw_net_control_reset(struct vw_net_control_state *state, uint64_t features, uint16_t max_pairs,
                          const uint8_t mac[VW_NET_MAC_SIZE])
{
    /* Section 5.1.6.5: modes off, tables empty, one pair; all negotiated offloads on. */
    *state = (struct vw_net_control_state){
        .features = features,
        .max_pairs = max_pairs,
        .pairs = 1,
        .guest_offloads = features & VW_NET_GUEST_OFFLOADS,
    };
    memcpy(state->mac, mac, VW_NET_MAC_SIZE);
}

/* --- Class RX: modes of reception (section 5.1.6.5.1) --- */

static enum vw_net_control_result set_mode(struct vw_net_control_state *state, uint8_t command,
                                           struct data *data)
{
    bool *const modes[] = {
        [VIRTIO_NET_CTRL_RX_PROMISC] = &state->promiscuous,
        [VIRTIO_NET_CTRL_RX_ALLMULTI] = &state->all_multicast,
        [VIRTIO_NET_CTRL_RX_ALLUNI] = &state->all_unicast,
        [VIRTIO_NET_CTRL_RX_NOMULTI] = &state->no_multicast,
        [VIRTIO_NET_CTRL_RX_NOUNI] = &state->no_unicast,
        [VIRTIO_NET_CTRL_RX_NOBCAST] = &state->no_broadcast,
    };

    *modes[command] = data->data[0] != 0;
    return VW_NET_CONTROL_OK;
}

/* --- Class MAC (section 5.1.6.5.2) --- */

/* Takes one half of the table, {le32 n, n addresses}. */
static bool take_mac_table(struct data *data, struct vw_net_mac_table *table)
{
    uint64_t bytes;
    uint32_t count;

    *table = (struct vw_net_mac_table){0};
    if (data->length < 4)
        return false;
    if (data->there < 4) {
        /* Not copied: the half before it was so long that this one's place is out of sight. */
        table->overflow = true;
        return true;
    }
    count = le32(data->data);
    skip(data, 4);
    bytes = (uint64_t)count * VW_NET_MAC_SIZE; /* at most 2^32 * 6 */
    if (bytes > data->length)
        return false;
    if (count > VW_NET_MAC_TABLE || bytes > data->there) {
        table->overflow = true;
    } else {
        table->count = (uint16_t)count;
        memcpy(table->mac, data->data, bytes);
    }
    skip(data, bytes);
    return true;
}

static enum vw_net_control_result set_mac_table(struct vw_net_control_state *state, uint8_t command,
                                                struct data *data)
{
    struct vw_net_mac_table unicast, multicast;

    (void)command;
    if (!take_mac_table(data, &unicast) || !take_mac_table(data, &multicast))
        return VW_NET_CONTROL_SHORT;
    state->unicast = unicast;
    state->multicast = multicast;
    return VW_NET_CONTROL_OK;
}

static enum vw_net_control_result set_mac(struct vw_net_control_state *state, uint8_t command,
                                          struct data *data)
{
    static const uint8_t zero[VW_NET_MAC_SIZE];

    (void)command;
    if ((data->data[0] & 1) || memcmp(data->data, zero, sizeof(zero)) == 0)
        return VW_NET_CONTROL_VALUE;
    memcpy(state->mac, data->data, VW_NET_MAC_SIZE);
    return VW_NET_CONTROL_OK;
}

/* --- Class VLAN (section 5.1.6.5.3) --- */

static enum vw_net_control_result set_vlan(struct vw_net_control_state *state, uint8_t command,
                                           struct data *data)
{
    unsigned vlan = le16(data->data);

    if (vlan >= 4096)
        return VW_NET_CONTROL_VALUE;
    if (command == VIRTIO_NET_CTRL_VLAN_ADD)
        state->vlans[vlan / 64] |= vw_bit(vlan % 64);
    else
        state->vlans[vlan / 64] &= ~vw_bit(vlan % 64);
    return VW_NET_CONTROL_OK;
}

/* --- Class ANNOUNCE (section 5.1.6.5.4) --- */

static enum vw_net_control_result acknowledge_announce(struct vw_net_control_state *state,
                                                       uint8_t command, struct data *data)
{
    (void)command;
    (void)data;
    state->announce = false;
    return VW_NET_CONTROL_OK;
}

/* --- Class MQ (sections 5.1.6.5.5 to 5.1.6.5.7) --- */

static enum vw_net_control_result set_pairs(struct vw_net_control_state *state, uint8_t command,
                                            struct data *data)
{
    uint16_t pairs = le16(data->data);

    (void)command;
    if (pairs < VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN || pairs > state->max_pairs)
        return VW_NET_CONTROL_VALUE;
    state->pairs = pairs;
    /* Of this and RSS_CONFIG, the last one wins. */
    state->rss.steering = false;
    return VW_NET_CONTROL_OK;
}

/* The end that both hash commands have: {u8 length, key}. */
static enum vw_net_control_result take_key(struct data *data, struct vw_net_rss *rss)
{
    if (data->there < 1)
        return VW_NET_CONTROL_SHORT;
    rss->key_length = data->data[0];
    skip(data, 1);
    if (rss->key_length > VW_NET_RSS_MAX_KEY)
        return VW_NET_CONTROL_VALUE;
    if (rss->key_length > data->there)
        return VW_NET_CONTROL_SHORT;
    /* Types but no key: every hash would be 0. */
    if (rss->key_length == 0 && rss->hash_types != 0)
        return VW_NET_CONTROL_VALUE;
    memset(rss->key, 0, sizeof(rss->key));
    memcpy(rss->key, data->data, rss->key_length);
    return VW_NET_CONTROL_OK;
}

/* Takes mask + 1 table entries; `*pairs` becomes the number of pairs that the table reaches. */
static enum vw_net_control_result take_table(struct data *data, struct vw_net_rss *rss,
                                             uint16_t max_pairs, uint16_t *pairs)
{
    size_t entries = rss->mask + 1u;

    if (!vw_is_power_of_two(entries) || entries > VW_NET_RSS_MAX_TABLE)
        return VW_NET_CONTROL_VALUE;
    if (data->there < 2 * entries)
        return VW_NET_CONTROL_SHORT;
    for (size_t i = 0; i < entries; i++) {
        rss->table[i] = le16(data->data + 2 * i);
        if (rss->table[i] >= max_pairs) /* also if reserved bit 15 is set */
            return VW_NET_CONTROL_VALUE;
        if (rss->table[i] >= *pairs)
            *pairs = (uint16_t)(rss->table[i] + 1);
    }
    skip(data, 2 * entries);
    return VW_NET_CONTROL_OK;
}

static enum vw_net_control_result set_rss(struct vw_net_control_state *state, uint8_t command,
                                          struct data *data)
{
    struct vw_net_rss rss = {.steering = true};
    enum vw_net_control_result result;
    uint16_t pairs, transmit_pairs;

    (void)command;
    rss.hash_types = le32(data->data);
    rss.mask = le16(data->data + 4);
    rss.unclassified = le16(data->data + 6);
    if ((rss.hash_types & ~VW_NET_HASH_TYPES) || rss.unclassified >= state->max_pairs)
        return VW_NET_CONTROL_VALUE;
    skip(data, 8);
    pairs = (uint16_t)(rss.unclassified + 1);
    result = take_table(data, &rss, state->max_pairs, &pairs);
    if (result != VW_NET_CONTROL_OK)
        return result;
    if (data->there < 2)
        return VW_NET_CONTROL_SHORT;
    transmit_pairs = le16(data->data);
    if (transmit_pairs < VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN || transmit_pairs > state->max_pairs)
        return VW_NET_CONTROL_VALUE;
    skip(data, 2);
    result = take_key(data, &rss);
    if (result != VW_NET_CONTROL_OK)
        return result;
    state->rss = rss;
    /* A pair is in use if either of its queues is. */
    state->pairs = pairs > transmit_pairs ? pairs : transmit_pairs;
    return VW_NET_CONTROL_OK;
}

static enum vw_net_control_result set_hash(struct vw_net_control_state *state, uint8_t command,
                                           struct data *data)
{
    struct vw_net_rss rss = state->rss; /* the table stays */
    enum vw_net_control_result result;

    (void)command;
    rss.hash_types = le32(data->data);
    if (rss.hash_types & ~VW_NET_HASH_TYPES)
        return VW_NET_CONTROL_VALUE;
    skip(data, 12); /* the reserved fields are where RSS has others, and Linux fills them */
    result = take_key(data, &rss);
    if (result != VW_NET_CONTROL_OK)
        return result;
    state->rss = rss;
    return VW_NET_CONTROL_OK;
}

/* --- Class GUEST_OFFLOADS (section 5.1.6.5.8) --- */

static enum vw_net_control_result set_offloads(struct vw_net_control_state *state, uint8_t command,
                                               struct data *data)
{
    uint64_t offloads = le64(data->data);

    (void)command;
    if (offloads & ~(state->features & VW_NET_GUEST_OFFLOADS))
        return VW_NET_CONTROL_VALUE;
    /* A guest may switch GUEST_CSUM off alone. What needs it is then out of force as well. */
    state->guest_offloads = vw_features_close(offloads);
    return VW_NET_CONTROL_OK;
}

/* --- Class NOTF_COAL (section 5.1.6.5.9) --- */

static struct vw_net_coalescing take_coalescing(const uint8_t *at)
{
    return (struct vw_net_coalescing){.max_packets = le32(at), .max_usecs = le32(at + 4)};
}

/* Transmit queues have odd indices, receive queues even ones (section 5.1.2). */
static enum vw_net_control_result set_coalescing(struct vw_net_control_state *state,
                                                 uint8_t command, struct data *data)
{
    struct vw_net_coalescing coalescing = take_coalescing(data->data);
    unsigned first = command == VIRTIO_NET_CTRL_NOTF_COAL_TX_SET ? 1 : 0;

    for (unsigned i = first; i < VW_NET_COALESCED_QUEUES; i += 2)
        state->coalescing[i] = coalescing;
    return VW_NET_CONTROL_OK;
}

/* "not an enabled transmit or receive virtqueue": the control queue is neither. */
static bool is_coalesced(const struct vw_net_control_state *state, unsigned queue)
{
    return queue < VW_NET_COALESCED_QUEUES && queue < 2u * state->max_pairs &&
           vw_has(state->queues_set_up[queue / 64], queue % 64);
}

static enum vw_net_control_result set_queue_coalescing(struct vw_net_control_state *state,
                                                       uint8_t command, struct data *data)
{
    unsigned queue = le16(data->data);

    (void)command;
    if (!is_coalesced(state, queue))
        return VW_NET_CONTROL_VALUE;
    state->coalescing[queue] = take_coalescing(data->data + 4);
    return VW_NET_CONTROL_OK;
}

/* What is there is answered by vw_net_control_answer. */
static enum vw_net_control_result get_queue_coalescing(struct vw_net_control_state *state,
                                                       uint8_t command, struct data *data)
{
    (void)command;
    return is_coalesced(state, le16(data->data)) ? VW_NET_CONTROL_OK : VW_NET_CONTROL_VALUE;
}

/* --- All commands --- */

static const struct command {
    uint8_t class, command;
    uint8_t feature;
    uint8_t size;    /* of the data at least; the handler looks at what follows itself */
    uint8_t changes; /* if it succeeds */
    enum vw_net_control_result (*handle)(struct vw_net_control_state *state, uint8_t command,
                                         struct data *data);
} commands[] = {
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_F_CTRL_RX, 1, VW_NET_CHANGED_FILTER,
     set_mode},
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, VIRTIO_NET_F_CTRL_RX, 1,
     VW_NET_CHANGED_FILTER, set_mode},
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLUNI, VIRTIO_NET_F_CTRL_RX_EXTRA, 1,
     VW_NET_CHANGED_FILTER, set_mode},
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOMULTI, VIRTIO_NET_F_CTRL_RX_EXTRA, 1,
     VW_NET_CHANGED_FILTER, set_mode},
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOUNI, VIRTIO_NET_F_CTRL_RX_EXTRA, 1,
     VW_NET_CHANGED_FILTER, set_mode},
    {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOBCAST, VIRTIO_NET_F_CTRL_RX_EXTRA, 1,
     VW_NET_CHANGED_FILTER, set_mode},
    {VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_F_CTRL_RX, 8,
     VW_NET_CHANGED_FILTER, set_mac_table},
    {VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_F_CTRL_MAC_ADDR, VW_NET_MAC_SIZE,
     VW_NET_CHANGED_MAC, set_mac},
    {VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, VIRTIO_NET_F_CTRL_VLAN, 2,
     VW_NET_CHANGED_FILTER, set_vlan},
    {VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_DEL, VIRTIO_NET_F_CTRL_VLAN, 2,
     VW_NET_CHANGED_FILTER, set_vlan},
    {VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK, VIRTIO_NET_F_GUEST_ANNOUNCE, 0,
     VW_NET_CHANGED_ANNOUNCE, acknowledge_announce},
    {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_F_MQ, 2,
     VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH, set_pairs},
    {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, VIRTIO_NET_F_RSS, 8,
     VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH, set_rss},
    {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_HASH_CONFIG, VIRTIO_NET_F_HASH_REPORT, 12,
     VW_NET_CHANGED_HASH, set_hash},
    {VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
     VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, 8, VW_NET_CHANGED_OFFLOADS, set_offloads},
    {VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_TX_SET, VIRTIO_NET_F_NOTF_COAL, 8,
     VW_NET_CHANGED_COALESCING, set_coalescing},
    {VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, VIRTIO_NET_F_NOTF_COAL, 8,
     VW_NET_CHANGED_COALESCING, set_coalescing},
    {VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, VIRTIO_NET_F_VQ_NOTF_COAL, 12,
     VW_NET_CHANGED_COALESCING, set_queue_coalescing},
    {VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, VIRTIO_NET_F_VQ_NOTF_COAL, 4, 0,
     get_queue_coalescing},
};

enum vw_net_control_result vw_net_control(struct vw_net_control_state *state, const void *command,
                                          size_t length, unsigned *changed)
{
    const uint8_t *bytes = command;
    enum vw_net_control_result result;

    *changed = 0;
    if (length < sizeof(struct virtio_net_ctrl_hdr))
        return VW_NET_CONTROL_SHORT;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(commands); i++) {
        const struct command *known = &commands[i];
        struct data data = {bytes + 2, vw_min64(length, VW_NET_CONTROL_MAX) - 2, length - 2};

        if (known->class != bytes[0] || known->command != bytes[1])
            continue;
        if (!vw_has(state->features, known->feature))
            return VW_NET_CONTROL_UNNEGOTIATED;
        if (data.there < known->size)
            return VW_NET_CONTROL_SHORT;
        result = known->handle(state, known->command, &data);
        if (result == VW_NET_CONTROL_OK)
            *changed = known->changes;
        return result;
    }
    return VW_NET_CONTROL_UNKNOWN;
}

static void put_le32(uint8_t *at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

size_t vw_net_control_answer(const struct vw_net_control_state *state, const void *command,
                             size_t length, uint8_t answer[VW_NET_CONTROL_ANSWER_MAX])
{
    const uint8_t *bytes = command;

    if (length < 6 || bytes[0] != VIRTIO_NET_CTRL_NOTF_COAL ||
        bytes[1] != VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET || !is_coalesced(state, le16(bytes + 2)))
        return 0;
    const struct vw_net_coalescing *coalescing = &state->coalescing[le16(bytes + 2)];
    put_le32(answer, coalescing->max_packets);
    put_le32(answer + 4, coalescing->max_usecs);
    return 8;
}

const char *vw_net_control_result_text(enum vw_net_control_result result)
{
    static const char *const texts[VW_NET_CONTROL_RESULT_COUNT] = {
        [VW_NET_CONTROL_OK] = "done",
        [VW_NET_CONTROL_SHORT] = "command is cut short",
        [VW_NET_CONTROL_UNKNOWN] = "no such command",
        [VW_NET_CONTROL_UNNEGOTIATED] = "command's feature was not negotiated",
        [VW_NET_CONTROL_VALUE] = "a value is out of its range",
    };

    return (unsigned)result < VW_NET_CONTROL_RESULT_COUNT ? texts[result] : "unknown result";
}
