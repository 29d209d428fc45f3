/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything in net/ that a guest feeds: header, frame, and a sequence of control commands.
 *
 * Input: 8 bytes of features, 20 of a header, le16 with the length of a frame, the frame, and then
 * commands, each with an le16 of its length before it. Beside what the sanitizers find, what the
 * headers in src/net promise is checked here: a fault aborts.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/checksum.h"
#include "net/config.h"
#include "net/control.h"
#include "net/dissect.h"
#include "net/features.h"
#include "net/filter.h"
#include "net/hash.h"
#include "net/header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_PAIRS 8

struct input {
    const uint8_t *data;
    size_t size;
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Takes up to `length` bytes into `to`, with zeros behind them. */
static size_t take(struct input *input, void *to, size_t length)
{
    size_t there = length < input->size ? length : input->size;

    if (length > 0)
        memset(to, 0, length);
    if (there > 0)
        memcpy(to, input->data, there);
    input->data += there;
    input->size -= there;
    return there;
}

static size_t take_length(struct input *input)
{
    uint8_t bytes[2];

    take(input, bytes, sizeof(bytes));
    return (size_t)(bytes[0] | bytes[1] << 8);
}

/* Takes up to `length` bytes as a block of exactly their size. */
static uint8_t *take_block(struct input *input, size_t length, size_t *there)
{
    uint8_t *block;

    *there = length < input->size ? length : input->size;
    block = malloc(*there ? *there : 1);
    require(block != NULL);
    take(input, block, *there);
    return block;
}

static void fuzz_header(const uint8_t wire[VW_NET_HEADER_MAX], uint8_t *frame, size_t length,
                        uint64_t features)
{
    struct iovec pieces[2] = {{frame, length / 3}, {frame + length / 3, length - length / 3}};
    struct vw_net_header header, again;

    vw_net_header_decode(&header, wire, vw_net_header_size(features));
    if (vw_net_header_check(&header, (uint32_t)length, features) != VW_NET_HEADER_OK)
        return;
    again = header;
    require(vw_net_header_check(&again, (uint32_t)length, features) == VW_NET_HEADER_OK);
    require(memcmp(&again, &header, sizeof(header)) == 0);
    require(vw_net_header_work_for_port(&header, features) == 0);
    if (header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        require(vw_net_complete_checksum(pieces, 2, header.csum_start, header.csum_offset,
                                         length) == 0);
    vw_net_header_finish_for_guest(&header, features);
    require(header.num_buffers == 1);
}

static void fuzz_frame(const struct vw_net_control_state *state, const uint8_t *frame,
                       size_t length)
{
    struct vw_net_toeplitz toeplitz;
    struct vw_net_packet packet;
    struct vw_net_hash hash;
    enum vw_net_verdict verdict = vw_net_filter(state, frame, length);

    require(verdict == VW_NET_PASS || length < 14 || vw_net_filter_active(state));
    vw_net_dissect(&packet, frame, length);
    require(packet.ip_version != 4 || packet.destination + 4u <= length);
    require(packet.ip_version != 6 || packet.routed_destination + 16u <= length);
    require(packet.ip_version != 6 || packet.home_source + 16u <= length);
    require(packet.transport != VW_NET_TRANSPORT_TCP || packet.ports + 4u <= length);
    vw_net_toeplitz_init(&toeplitz, state->rss.key, state->rss.key_length);
    hash = vw_net_hash_frame(&toeplitz, state->rss.hash_types, &packet, frame);
    require(hash.report == 0 || vw_has(state->rss.hash_types, hash.report - 1u));
    if (state->rss.steering)
        require(vw_net_rss_pair(&state->rss, hash) < state->pairs);
}

static void fuzz_command(struct vw_net_control_state *state, struct input *input)
{
    static struct vw_net_control_state before;
    size_t length = take_length(input), there;
    /* A chain may be longer than what is copied of it: lengths of 32768 and more say so. */
    size_t wanted = length & 0x7fff;
    uint8_t *command = take_block(input, wanted, &there);
    uint8_t answer[VW_NET_CONTROL_ANSWER_MAX];
    unsigned changed;

    if (there >= VW_NET_CONTROL_MAX && length != wanted)
        there = length;
    memcpy(&before, state, sizeof(before));
    if (vw_net_control(state, command, there, &changed) != VW_NET_CONTROL_OK || changed == 0)
        require(changed == 0 && memcmp(&before, state, sizeof(before)) == 0);
    require(vw_net_control_answer(state, command, there, answer) <= sizeof(answer));
    free(command);
    require(state->pairs >= 1 && state->pairs <= MAX_PAIRS);
    require((state->guest_offloads & ~(state->features & VW_NET_GUEST_OFFLOADS)) == 0);
    require(vw_features_close(state->guest_offloads) == state->guest_offloads);
    require(state->unicast.count <= VW_NET_MAC_TABLE);
    require(state->multicast.count <= VW_NET_MAC_TABLE);
    require(state->rss.mask < VW_NET_RSS_MAX_TABLE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t mac[VW_NET_MAC_SIZE] = {0x52, 0x54, 0, 0, 0, 1};
    struct input input = {data, size};
    struct vw_net_control_state state;
    uint8_t wire[VW_NET_HEADER_MAX];
    uint64_t features;
    uint8_t *frame;
    size_t length;

    take(&input, &features, sizeof(features));
    features = vw_features_close(features & VW_NET_DEVICE_FEATURES);
    take(&input, wire, sizeof(wire));
    length = take_length(&input);
    frame = take_block(&input, length, &length);
    vw_net_control_reset(&state, features, MAX_PAIRS, mac);
    memset(state.queues_set_up, (int)features & 0xff, sizeof(state.queues_set_up));
    fuzz_header(wire, frame, length, features);
    fuzz_frame(&state, frame, length);
    while (input.size > 0)
        fuzz_command(&state, &input);
    fuzz_frame(&state, frame, length);
    free(frame);
    return 0;
}
