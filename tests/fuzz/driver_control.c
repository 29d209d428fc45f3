/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's commands and what it takes from the configuration space, against a hostile device:
 * replies of any length and content, configurations with any values, again and again.
 */
#include "hostile_device.h"

static void set_rss(struct vw_net *net, struct input *input)
{
    uint16_t table[128];
    uint8_t key[64] = {0};
    const struct vw_rss rss = {.hash_types = (uint32_t)input_take(input, 2),
                               .table = table,
                               .table_size = input_byte(input) % 129,
                               .unclassified = input_byte(input) % 3,
                               .tx_pairs = input_byte(input) % 3,
                               .key = key,
                               .key_length = input_byte(input) % 65};

    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++)
        table[i] = input_byte(input) % 3;
    vw_set_rss(net, &rss);
    vw_set_hash(net, rss.hash_types, key, rss.key_length);
}

static void set_addresses(struct vw_net *net, struct input *input)
{
    uint8_t table[8][6];
    unsigned unicast = input_byte(input) % 4, multicast = input_byte(input) % 4;

    memset(table, 0, sizeof(table));
    input_copy(input, table, sizeof(table));
    vw_set_mac_table(net, (const uint8_t(*)[6])table, unicast, (const uint8_t(*)[6])table + 4,
                     multicast);
    vw_set_mac(net, table[0]);
}

static void command(struct vw_net *net, struct input *input)
{
    unsigned value = (unsigned)input_take(input, 2);

    switch (input_byte(input) % 10) {
    case 0:
        vw_set_promiscuous(net, (int)value & 1);
        break;
    case 1:
        vw_set_all_multicast(net, (int)value & 1);
        break;
    case 2:
        set_addresses(net, input);
        break;
    case 3:
        vw_vlan_add(net, value);
        break;
    case 4:
        vw_vlan_remove(net, value);
        break;
    case 5:
        vw_set_queue_pairs(net, value % 4);
        break;
    case 6:
        vw_set_guest_offloads(net, input_take(input, 8));
        break;
    case 7:
        set_rss(net, input);
        break;
    case 8:
        vw_set_coalescing(net, (int)(value % 4) - 1, value & 4, value & 255, value >> 8);
        vw_set_adaptive_coalescing(net, (int)value & 8);
        break;
    default:
        vw_announced(net);
    }
}

static void check_info(const struct vw_net *net)
{
    struct vw_net_info info;

    vw_net_info(net, &info);
    INVARIANT(info.queue_pairs >= 1 && info.queue_pairs <= info.max_queue_pairs);
    INVARIANT(info.mtu >= 68 && info.mtu <= 65535);
    INVARIANT(info.rx_buffer_descriptors >= 1 && info.rx_buffer_bytes >= 1518);
    INVARIANT(!info.has_mac || !(info.mac[0] & 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    static struct hostile device;
    struct vw_net_options options;

    vw_net_options_init(&options);
    options.tx_ring_size = options.rx_ring_size = 4;
    options.queue_pairs = 1 + input_byte(&input) % 2;
    if (!hostile_open(&device, &input, &options))
        return 0;
    while (input.left > 0) {
        uint8_t kind = input_byte(&input);

        if (kind % 4 == 0)
            vw_process(device.net);
        else if (kind % 4 == 1)
            hostile_act(&device);
        else
            command(device.net, &input);
        check_info(device.net);
    }
    hostile_end(&device);
    return 0;
}
