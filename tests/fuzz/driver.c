/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole driver, by its public functions, against a hostile device: whatever that does, every
 * token comes back once, every frame lies in shared memory, every call returns.
 */
#include "hostile_device.h"

struct target {
    struct hostile device;
    struct vw_rx_packet held[16];
    unsigned held_count;
};

static void send(struct target *target, struct input *input)
{
    struct hostile *device = &target->device;
    struct vw_piece pieces[4][3];
    struct vw_tx_packet packets[4] = {{0}};
    unsigned count = 0;

    for (unsigned token = 0; token < HOSTILE_TOKENS && count < 4; token++) {
        struct vw_tx_packet *packet = &packets[count];

        if (device->given[token])
            continue;
        packet->pieces = pieces[count];
        packet->piece_count = input_byte(input) % 4;
        for (unsigned i = 0; i < packet->piece_count; i++)
            pieces[count][i] = (struct vw_piece){device->frames + 64 + input_byte(input),
                                                 (uint32_t)input_take(input, 2) % 2048};
        packet->headroom = input_byte(input) % 64;
        if (packet->headroom % 4 == 0) {
            packet->offload.flags = input_byte(input) & 3;
            packet->offload.gso_type = input_byte(input) & 7;
            packet->offload.gso_size = (uint16_t)input_take(input, 2);
            packet->offload.csum_start = input_byte(input);
        }
        packet->urgent = packet->headroom & 1;
        packet->token = (void *)(uintptr_t)token;
        device->given[token] = 1; /* before hostile_done can see it */
        count++;
    }
    int taken = vw_tx_burst(device->net, 0, packets, count, input_byte(input) & 1);
    for (unsigned i = taken > 0 ? (unsigned)taken : 0; i < count; i++)
        device->given[(uintptr_t)packets[i].token] = 0;
    INVARIANT(taken <= (int)count);
}

/* Every byte of a frame may be read, and belongs to what was shared. */
static void look_at(struct target *target, const struct vw_rx_packet *packet)
{
    uint32_t length = 0;

    for (unsigned i = 0; i < packet->piece_count; i++) {
        const struct vw_piece *piece = &packet->pieces[i];

        INVARIANT(vw_shared_contains(&target->device.net->shared, piece->data, piece->length));
        memset(piece->data, 0x5a, piece->length);
        length += piece->length;
    }
    INVARIANT(length == packet->length && length >= 14);
}

static void receive(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct target *target = context;

    for (unsigned i = 0; i < count; i++) {
        look_at(target, &packets[i]);
        if (i % 4 == 3 && target->held_count < VW_ARRAY_SIZE(target->held))
            target->held[target->held_count++] = packets[i];
        else
            vw_rx_release(target->device.net, pair, &packets[i], 1);
    }
}

static void step(struct target *target, struct input *input)
{
    struct vw_net *net = target->device.net;
    struct vw_rx_packet packets[8];
    int count;

    switch (input_byte(input) % 16) {
    case 0 ... 2:
        send(target, input);
        break;
    case 3:
        INVARIANT(vw_tx_reap(net, 0) <= HOSTILE_TOKENS);
        break;
    case 4 ... 5:
        count = vw_rx_burst(net, 0, packets, 8);
        INVARIANT(count <= 8);
        if (count > 0)
            receive(target, 0, packets, (unsigned)count);
        break;
    case 6:
        INVARIANT(vw_poll(net, 0, 1 + input_byte(input) % 8, receive, target) <= 8);
        break;
    case 7:
        INVARIANT(vw_wait(net, 0, 0) <= 1);
        break;
    case 8:
        vw_rx_release(net, 0, target->held, target->held_count);
        target->held_count = 0;
        break;
    case 9:
        vw_process(net);
        break;
    case 10:
        vw_set_mtu(net, (unsigned)input_take(input, 2));
        break;
    case 11:
        vw_tx_set_policy(net, 0, (enum vw_tx_policy)(input_byte(input) % 6));
        break;
    default:
        hostile_act(&target->device);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    static struct target target;
    struct vw_net_options options;
    uint8_t kind;

    vw_net_options_init(&options);
    kind = input_byte(&input);
    options.tx_ring_size = options.rx_ring_size = kind & 1 ? 16 : 4;
    options.byte_queue_limits = (kind >> 1) & 1;
    options.reconnect = (kind & 12) != 0;
    options.tx_policy = (enum vw_tx_policy)((kind >> 4) % 5);
    target.held_count = 0;
    if (!hostile_open(&target.device, &input, &options))
        return 0;
    if (kind & 128)
        vw_queue_fd(target.device.net, 0);
    while (input.left > 0)
        step(&target, &input);
    hostile_end(&target.device);
    return 0;
}
