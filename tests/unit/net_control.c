/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/control.h"
#include "net/features.h"

#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)
#define MAX_PAIRS 4

static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

/* A command under construction; little-endian. */
struct bytes {
    uint8_t data[8192];
    size_t length;
};

static void add(struct bytes *bytes, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        bytes->data[bytes->length++] = (uint8_t)(value >> 8 * i);
}

static struct bytes start(unsigned class, unsigned command)
{
    struct bytes bytes = {.length = 0};

    add(&bytes, class, 1);
    add(&bytes, command, 1);
    return bytes;
}

/* `count` addresses that start with `first`. */
static void add_macs(struct bytes *bytes, unsigned count, unsigned first)
{
    for (unsigned i = 0; i < count; i++)
        add(bytes, first | (uint64_t)i << 32, 6);
}

static struct vw_net_control_state fresh(uint64_t features)
{
    struct vw_net_control_state state;

    memset(&state, 0xee, sizeof(state));
    vw_net_control_reset(&state, features, MAX_PAIRS, mac);
    state.queues_set_up[0] = 0x7f; /* all, but for the last transmit queue, 7 */
    return state;
}

/*
 * Runs a command from a buffer of exactly the bytes that the device would have copied, so that
 * AddressSanitizer sees any read behind them, and checks what holds for every command.
 */
static enum vw_net_control_result run(struct vw_net_control_state *state, const struct bytes *bytes,
                                      unsigned *changed)
{
    size_t copied = vw_min64(bytes->length, VW_NET_CONTROL_MAX);
    uint8_t *copy = malloc(copied ? copied : 1);
    struct vw_net_control_state before;
    enum vw_net_control_result result;

    assert_non_null(copy);
    memcpy(&before, state, sizeof(before));
    memcpy(copy, bytes->data, copied);
    result = vw_net_control(state, copy, bytes->length, changed);
    free(copy);
    if (result == VW_NET_CONTROL_OK) {
        bool asks = bytes->data[0] == VIRTIO_NET_CTRL_NOTF_COAL &&
                    bytes->data[1] == VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET;

        assert_int_equal(*changed == 0, asks);
        assert_int_equal(vw_net_control_ack(result), 0);
        if (asks)
            assert_memory_equal(state, &before, sizeof(before));
    } else {
        assert_int_equal(*changed, 0);
        assert_int_equal(vw_net_control_ack(result), 1);
        assert_memory_equal(state, &before, sizeof(before));
    }
    return result;
}

static void assert_done(struct vw_net_control_state *state, const struct bytes *bytes,
                        unsigned changes)
{
    unsigned changed;

    assert_int_equal(run(state, bytes, &changed), VW_NET_CONTROL_OK);
    assert_int_equal(changed, changes);
}

static void assert_refused(struct vw_net_control_state *state, const struct bytes *bytes,
                           enum vw_net_control_result why)
{
    unsigned changed;

    assert_int_equal(run(state, bytes, &changed), why);
}

/* One valid command of each kind. */
struct sample {
    unsigned feature;
    unsigned changes;
    struct bytes bytes;
};

static struct bytes rss_command(unsigned entries, unsigned key_length)
{
    struct bytes bytes = start(4, 1);

    add(&bytes, 0x3f, 4);
    add(&bytes, entries - 1, 2);
    add(&bytes, 1, 2);
    for (unsigned i = 0; i < entries; i++)
        add(&bytes, i % 3, 2);
    add(&bytes, 2, 2);
    add(&bytes, key_length, 1);
    for (unsigned i = 0; i < key_length; i++)
        add(&bytes, i + 1, 1);
    return bytes;
}

static unsigned all_samples(struct sample samples[32])
{
    unsigned count = 0;
    struct bytes bytes;

    for (unsigned command = 0; command < 6; command++) {
        bytes = start(0, command);
        add(&bytes, 1, 1);
        samples[count++] =
            (struct sample){command < 2 ? VIRTIO_NET_F_CTRL_RX : VIRTIO_NET_F_CTRL_RX_EXTRA,
                            VW_NET_CHANGED_FILTER, bytes};
    }
    bytes = start(1, 0);
    add(&bytes, 2, 4);
    add_macs(&bytes, 2, 0x02);
    add(&bytes, 3, 4);
    add_macs(&bytes, 3, 0x01);
    samples[count++] = (struct sample){VIRTIO_NET_F_CTRL_RX, VW_NET_CHANGED_FILTER, bytes};
    bytes = start(1, 1);
    add(&bytes, 0x060504030202, 6);
    samples[count++] = (struct sample){VIRTIO_NET_F_CTRL_MAC_ADDR, VW_NET_CHANGED_MAC, bytes};
    for (unsigned command = 0; command < 2; command++) {
        bytes = start(2, command);
        add(&bytes, 4095, 2);
        samples[count++] = (struct sample){VIRTIO_NET_F_CTRL_VLAN, VW_NET_CHANGED_FILTER, bytes};
    }
    bytes = start(3, 0);
    samples[count++] = (struct sample){VIRTIO_NET_F_GUEST_ANNOUNCE, VW_NET_CHANGED_ANNOUNCE, bytes};
    bytes = start(4, 0);
    add(&bytes, MAX_PAIRS, 2);
    samples[count++] =
        (struct sample){VIRTIO_NET_F_MQ, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH, bytes};
    samples[count++] = (struct sample){VIRTIO_NET_F_RSS, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH,
                                       rss_command(128, 40)};
    bytes = start(4, 2);
    add(&bytes, 0x3f, 4);
    add(&bytes, 0x0001000200030004, 8);
    add(&bytes, 40, 1);
    for (unsigned i = 0; i < 40; i++)
        add(&bytes, i, 1);
    samples[count++] = (struct sample){VIRTIO_NET_F_HASH_REPORT, VW_NET_CHANGED_HASH, bytes};
    bytes = start(5, 0);
    add(&bytes, BIT(GUEST_CSUM), 8);
    samples[count++] =
        (struct sample){VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VW_NET_CHANGED_OFFLOADS, bytes};
    for (unsigned command = 0; command < 2; command++) {
        bytes = start(6, command);
        add(&bytes, 32, 4);
        add(&bytes, 100, 4);
        samples[count++] =
            (struct sample){VIRTIO_NET_F_NOTF_COAL, VW_NET_CHANGED_COALESCING, bytes};
    }
    bytes = start(6, 2);
    add(&bytes, 3, 4);
    add(&bytes, 32, 4);
    add(&bytes, 100, 4);
    samples[count++] = (struct sample){VIRTIO_NET_F_VQ_NOTF_COAL, VW_NET_CHANGED_COALESCING, bytes};
    bytes = start(6, 3);
    add(&bytes, 3, 4);
    samples[count++] = (struct sample){VIRTIO_NET_F_VQ_NOTF_COAL, 0, bytes};
    return count;
}

static void every_command_with_its_feature(void **unused)
{
    static struct sample samples[32];
    unsigned count = all_samples(samples);

    (void)unused;
    assert_int_equal(count, 19);
    for (unsigned i = 0; i < count; i++) {
        struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

        assert_done(&state, &samples[i].bytes, samples[i].changes);
        /* Bytes behind a whole command do no harm. */
        add(&samples[i].bytes, 0xffff, 2);
        assert_done(&state, &samples[i].bytes, samples[i].changes);
        state = fresh(VW_NET_DEVICE_FEATURES & ~vw_bit(samples[i].feature));
        assert_refused(&state, &samples[i].bytes, VW_NET_CONTROL_UNNEGOTIATED);
        state = fresh(vw_bit(samples[i].feature) | BIT(GUEST_CSUM));
        assert_done(&state, &samples[i].bytes, samples[i].changes);
    }
}

/* Each command cut at each byte, with the MQ command of 1 byte among them. */
static void every_command_cut_short_is_refused(void **unused)
{
    static struct sample samples[32];
    unsigned count = all_samples(samples), refused = 0;

    (void)unused;
    for (unsigned i = 0; i < count; i++) {
        struct bytes cut = samples[i].bytes;

        while (cut.length-- > 0) {
            struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

            assert_refused(&state, &cut, VW_NET_CONTROL_SHORT);
            refused++;
        }
    }
    assert_true(refused > 400);
}

static void unknown_commands_are_refused(void **unused)
{
    unsigned known = 0;

    (void)unused;
    for (unsigned class = 0; class < 256; class ++) {
        for (unsigned command = 0; command < 256; command++) {
            struct vw_net_control_state state = fresh(UINT64_MAX);
            struct bytes bytes = start(class, command);
            unsigned changed;

            if (run(&state, &bytes, &changed) != VW_NET_CONTROL_UNKNOWN)
                known++;
        }
    }
    assert_int_equal(known, 19);
}

static void reset_gives_what_the_specification_wants(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    assert_int_equal(state.pairs, 1);
    assert_int_equal(state.max_pairs, MAX_PAIRS);
    assert_int_equal(state.guest_offloads, VW_NET_DEVICE_FEATURES & VW_NET_GUEST_OFFLOADS);
    assert_memory_equal(state.mac, mac, 6);
    assert_false(state.promiscuous || state.all_multicast || state.all_unicast ||
                 state.no_multicast || state.no_unicast || state.no_broadcast || state.announce);
    assert_int_equal(state.unicast.count + state.multicast.count, 0);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(state.vlans); i++)
        assert_int_equal(state.vlans[i], 0);
    assert_false(state.rss.steering);
    assert_int_equal(state.rss.hash_types, 0);
}

static void modes_of_reception(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    const bool *modes[] = {&state.promiscuous,  &state.all_multicast, &state.all_unicast,
                           &state.no_multicast, &state.no_unicast,    &state.no_broadcast};

    (void)unused;
    for (unsigned command = 0; command < 6; command++) {
        for (unsigned value = 0; value < 3; value++) {
            struct bytes bytes = start(0, command);

            add(&bytes, 2 - value, 1);
            assert_done(&state, &bytes, VW_NET_CHANGED_FILTER);
            for (unsigned other = 0; other < 6; other++)
                assert_int_equal(*modes[other], other == command && value < 2);
        }
    }
}

static struct bytes mac_table(unsigned unicast, unsigned multicast)
{
    struct bytes bytes = start(1, 0);

    add(&bytes, unicast, 4);
    add_macs(&bytes, unicast, 0x02);
    add(&bytes, multicast, 4);
    add_macs(&bytes, multicast, 0x01);
    return bytes;
}

static void mac_tables_of_every_size(void **unused)
{
    static const struct {
        unsigned unicast, multicast;
        bool unicast_overflow, multicast_overflow;
    } table[] = {
        {0, 0, false, false},   {1, 0, false, false},   {0, 1, false, false},
        {64, 64, false, false}, {65, 64, true, false},  {64, 65, false, true},
        {65, 65, true, true},   {100, 64, true, false}, /* both in sight */
        {160, 64, true, true}, /* the second half begins in sight and ends out of it */
        {500, 1, true, true},  /* the second half is out of sight */
        {0, 1000, false, true}, {600, 600, true, true},
    };
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++) {
        struct bytes bytes = mac_table(table[i].unicast, table[i].multicast);

        assert_done(&state, &bytes, VW_NET_CHANGED_FILTER);
        assert_int_equal(state.unicast.overflow, table[i].unicast_overflow);
        assert_int_equal(state.multicast.overflow, table[i].multicast_overflow);
        assert_int_equal(state.unicast.count, table[i].unicast_overflow ? 0 : table[i].unicast);
        assert_int_equal(state.multicast.count,
                         table[i].multicast_overflow ? 0 : table[i].multicast);
        for (unsigned j = 0; j < state.multicast.count; j++) {
            assert_int_equal(state.multicast.mac[j][0], 1);
            assert_int_equal(state.multicast.mac[j][4], j);
        }
    }
}

/* The place where the multicast count itself crosses the end of what was copied. */
static void mac_tables_around_the_end_of_the_copy(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned unicast = 150; unicast < 180; unicast++) {
        struct bytes bytes = mac_table(unicast, 2);

        assert_done(&state, &bytes, VW_NET_CHANGED_FILTER);
        assert_true(state.unicast.overflow);
        assert_int_equal(state.multicast.overflow, bytes.length > VW_NET_CONTROL_MAX);
    }
}

/* known-faults: a MAC table count of 2^31, and what else does not fit the chain. */
static void mac_tables_that_lie_are_refused(void **unused)
{
    static const uint32_t counts[] = {1,          2,          65,         0x2aaaaaab,
                                      0x7fffffff, 0x80000000, 0xaaaaaaab, 0xffffffff};
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
        struct bytes bytes = start(1, 0);

        add(&bytes, counts[i], 4);
        add(&bytes, 0, 4);
        assert_refused(&state, &bytes, VW_NET_CONTROL_SHORT);
        bytes = start(1, 0);
        add(&bytes, 0, 4);
        add(&bytes, counts[i], 4);
        add(&bytes, 0, 5);
        assert_refused(&state, &bytes, VW_NET_CONTROL_SHORT);
    }
}

static void own_address(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes = start(1, 1);

    (void)unused;
    add(&bytes, 0x060504030202, 6);
    assert_done(&state, &bytes, VW_NET_CHANGED_MAC);
    assert_memory_equal(state.mac, bytes.data + 2, 6);
    bytes.data[2] |= 1; /* a group's */
    assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
    memset(bytes.data + 2, 0, 6);
    assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
}

static void vlans(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned vlan = 0; vlan < 4096; vlan++) {
        struct bytes bytes = start(2, 0);

        add(&bytes, vlan, 2);
        assert_done(&state, &bytes, VW_NET_CHANGED_FILTER);
        assert_true(vw_has(state.vlans[vlan / 64], vlan % 64));
        if (vlan % 3 == 0) {
            bytes.data[1] = 1;
            assert_done(&state, &bytes, VW_NET_CHANGED_FILTER);
            assert_false(vw_has(state.vlans[vlan / 64], vlan % 64));
        }
    }
    for (unsigned command = 0; command < 2; command++) {
        struct bytes bytes = start(2, command);

        add(&bytes, 4096, 2);
        assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
        bytes.data[2] = bytes.data[3] = 0xff;
        assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
    }
}

static void announce(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes = start(3, 0);

    (void)unused;
    state.announce = true;
    assert_done(&state, &bytes, VW_NET_CHANGED_ANNOUNCE);
    assert_false(state.announce);
}

static void queue_pairs(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned pairs = 0; pairs < 65536; pairs++) {
        struct bytes bytes = {.data = {4, 0, (uint8_t)pairs, (uint8_t)(pairs >> 8)}, .length = 4};
        unsigned changed;

        if (pairs >= 1 && pairs <= MAX_PAIRS) {
            assert_int_equal(run(&state, &bytes, &changed), VW_NET_CONTROL_OK);
            assert_int_equal(state.pairs, pairs);
        } else if (pairs < 100 || pairs % 1021 == 0) {
            assert_int_equal(run(&state, &bytes, &changed), VW_NET_CONTROL_VALUE);
        }
    }
}

static void rss_is_taken_in_full(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes = rss_command(128, 40);

    (void)unused;
    assert_int_equal(bytes.length, 309);
    assert_done(&state, &bytes, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_true(state.rss.steering);
    assert_int_equal(state.rss.hash_types, 0x3f);
    assert_int_equal(state.rss.mask, 127);
    assert_int_equal(state.rss.unclassified, 1);
    assert_int_equal(state.rss.key_length, 40);
    assert_int_equal(state.pairs, 3); /* two to transmit, but the table names pair 2 */
    for (unsigned i = 0; i < 128; i++)
        assert_int_equal(state.rss.table[i], i % 3);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(state.rss.key[i], i + 1);

    bytes = rss_command(1, 8);
    assert_done(&state, &bytes, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_int_equal(state.pairs, 2);
    assert_int_equal(state.rss.key[7], 8);
    for (unsigned i = 8; i < 40; i++)
        assert_int_equal(state.rss.key[i], 0); /* nothing is left of the longer key */
}

static void rss_values_out_of_range(void **unused)
{
    static const struct {
        unsigned at, low, high; /* two bytes of the command for 128 entries, changed */
        enum vw_net_control_result result;
    } table[] = {
        {2, 0x00, 0x02, VW_NET_CONTROL_VALUE},   /* hash type 9 */
        {4, 0x01, 0x00, VW_NET_CONTROL_VALUE},   /* hash type 16 */
        {6, 126, 0, VW_NET_CONTROL_VALUE},       /* mask + 1 is no power of two */
        {6, 128, 0, VW_NET_CONTROL_VALUE},       /* the same */
        {6, 255, 0, VW_NET_CONTROL_VALUE},       /* a table larger than ours */
        {6, 0xff, 0xff, VW_NET_CONTROL_VALUE},   /* mask + 1 is 65536 */
        {8, MAX_PAIRS, 0, VW_NET_CONTROL_VALUE}, /* unclassified */
        {10, MAX_PAIRS, 0, VW_NET_CONTROL_VALUE},
        {10 + 254, MAX_PAIRS, 0, VW_NET_CONTROL_VALUE},
        {10 + 254, 0, 0x80, VW_NET_CONTROL_VALUE}, /* reserved bit of an entry */
        {266, 0, 0, VW_NET_CONTROL_VALUE},         /* max_tx_vq */
        {266, MAX_PAIRS + 1, 0, VW_NET_CONTROL_VALUE},
        {268, 41, 1, VW_NET_CONTROL_VALUE}, /* key length */
        {268, 255, 1, VW_NET_CONTROL_VALUE},
        {268, 0, 1, VW_NET_CONTROL_VALUE},
    };
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++) {
        struct bytes bytes = rss_command(128, 40);

        add(&bytes, 0, 8); /* so that a longer key would not be short */
        bytes.data[table[i].at] = (uint8_t)table[i].low;
        bytes.data[table[i].at + 1] = (uint8_t)table[i].high;
        assert_refused(&state, &bytes, table[i].result);
    }
}

static void rss_without_hash_types_needs_no_key(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes = rss_command(4, 0);

    (void)unused;
    memset(bytes.data + 2, 0, 4);
    assert_done(&state, &bytes, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_int_equal(state.rss.hash_types, 0);
}

static void the_last_steering_command_wins(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes rss = rss_command(128, 40), mq = start(4, 0);

    (void)unused;
    add(&mq, 4, 2);
    assert_done(&state, &rss, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_done(&state, &mq, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_false(state.rss.steering);
    assert_int_equal(state.pairs, 4);
    assert_done(&state, &rss, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_true(state.rss.steering);
    assert_int_equal(state.pairs, 3);
}

static void hash_config_leaves_the_table(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes rss = rss_command(128, 40), hash = start(4, 2);

    (void)unused;
    add(&hash, 0x1, 4);
    add(&hash, UINT64_MAX, 8); /* "reserved": Linux fills them */
    add(&hash, 4, 1);
    add(&hash, 0x44332211, 4);
    assert_done(&state, &rss, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_done(&state, &hash, VW_NET_CHANGED_HASH);
    assert_int_equal(state.rss.hash_types, 1);
    assert_int_equal(state.rss.key_length, 4);
    assert_int_equal(state.rss.key[3], 0x44);
    assert_int_equal(state.rss.key[4], 0);
    assert_true(state.rss.steering);
    assert_int_equal(state.rss.mask, 127);
    hash.data[14] = 41;
    add(&hash, 0, 8);
    for (unsigned i = 0; i < 4; i++)
        add(&hash, 0, 8);
    assert_refused(&state, &hash, VW_NET_CONTROL_VALUE);
    hash.data[3] = 2;
    hash.data[14] = 4;
    assert_refused(&state, &hash, VW_NET_CONTROL_VALUE);
}

static void guest_offloads(void **unused)
{
    const uint64_t negotiated = VW_NET_DEVICE_FEATURES & ~BIT(GUEST_USO4);
    struct vw_net_control_state state = fresh(negotiated);

    (void)unused;
    for (unsigned bit = 0; bit < 64; bit++) {
        bool allowed = vw_has(VW_NET_GUEST_OFFLOADS & negotiated, bit);
        struct bytes bytes = start(5, 0);

        add(&bytes, BIT(GUEST_CSUM) | BIT(GUEST_TSO4) | vw_bit(bit), 8);
        if (allowed) {
            assert_done(&state, &bytes, VW_NET_CHANGED_OFFLOADS);
            assert_int_equal(state.guest_offloads, BIT(GUEST_CSUM) | BIT(GUEST_TSO4) | vw_bit(bit));
        } else {
            assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
        }
    }
}

static void offloads_that_need_others_fall_with_them(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes = start(5, 0);

    (void)unused;
    add(&bytes, BIT(GUEST_TSO4) | BIT(GUEST_ECN), 8);
    assert_done(&state, &bytes, VW_NET_CHANGED_OFFLOADS);
    assert_int_equal(state.guest_offloads, 0);
    memset(bytes.data + 2, 0, 8);
    assert_done(&state, &bytes, VW_NET_CHANGED_OFFLOADS);
    assert_int_equal(state.guest_offloads, 0);
}

static void every_result_has_its_words(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i <= VW_NET_CONTROL_RESULT_COUNT; i++)
        assert_non_null(vw_net_control_result_text(i));
}

static struct bytes coalescing_command(unsigned command, unsigned packets, unsigned usecs)
{
    struct bytes bytes = start(6, command);

    add(&bytes, packets, 4);
    add(&bytes, usecs, 4);
    return bytes;
}

static struct bytes queue_coalescing_command(unsigned queue, unsigned packets, unsigned usecs)
{
    struct bytes bytes = start(6, 2);

    add(&bytes, queue, 2);
    add(&bytes, 0xeeee, 2); /* reserved */
    add(&bytes, packets, 4);
    add(&bytes, usecs, 4);
    return bytes;
}

/* Asks for a queue's limits; false if the command was refused. */
static bool ask_coalescing(struct vw_net_control_state *state, unsigned queue,
                           struct vw_net_coalescing *coalescing)
{
    struct bytes bytes = start(6, 3);
    uint8_t answer[VW_NET_CONTROL_ANSWER_MAX];
    unsigned changed;

    add(&bytes, queue, 2);
    add(&bytes, 0, 2);
    if (run(state, &bytes, &changed) != VW_NET_CONTROL_OK) {
        assert_int_equal(vw_net_control_answer(state, bytes.data, bytes.length, answer), 0);
        return false;
    }
    assert_int_equal(vw_net_control_answer(state, bytes.data, bytes.length, answer), 8);
    memcpy(&coalescing->max_packets, answer, 4); /* the tests run on little-endian machines */
    memcpy(&coalescing->max_usecs, answer + 4, 4);
    return true;
}

static void assert_coalescing(struct vw_net_control_state *state, unsigned queue, uint32_t packets,
                              uint32_t usecs)
{
    struct vw_net_coalescing coalescing;

    assert_true(ask_coalescing(state, queue, &coalescing));
    assert_int_equal(coalescing.max_packets, packets);
    assert_int_equal(coalescing.max_usecs, usecs);
    assert_int_equal(state->coalescing[queue].max_packets, packets);
    assert_int_equal(state->coalescing[queue].max_usecs, usecs);
}

/* Packets come before microseconds; the last command wins, for a queue or for all of a kind. */
static void coalescing_the_last_command_wins(void **unused)
{
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct bytes bytes;

    (void)unused;
    for (unsigned queue = 0; queue < 7; queue++)
        assert_coalescing(&state, queue, 0, 0);
    bytes = queue_coalescing_command(3, 7, 70);
    assert_done(&state, &bytes, VW_NET_CHANGED_COALESCING);
    bytes = queue_coalescing_command(4, 8, 80);
    assert_done(&state, &bytes, VW_NET_CHANGED_COALESCING);
    assert_coalescing(&state, 3, 7, 70);
    assert_coalescing(&state, 4, 8, 80);
    assert_coalescing(&state, 5, 0, 0);
    bytes = coalescing_command(0, 16, 0xfffffffe);
    assert_done(&state, &bytes, VW_NET_CHANGED_COALESCING);
    assert_coalescing(&state, 1, 16, 0xfffffffe);
    assert_coalescing(&state, 3, 16, 0xfffffffe);
    assert_coalescing(&state, 4, 8, 80);
    bytes = coalescing_command(1, 5, 6);
    assert_done(&state, &bytes, VW_NET_CHANGED_COALESCING);
    assert_coalescing(&state, 4, 5, 6);
    assert_coalescing(&state, 5, 16, 0xfffffffe);
    bytes = queue_coalescing_command(5, 0, 0);
    assert_done(&state, &bytes, VW_NET_CHANGED_COALESCING);
    assert_coalescing(&state, 5, 0, 0);
    vw_net_control_reset(&state, VW_NET_DEVICE_FEATURES, MAX_PAIRS, mac);
    state.queues_set_up[0] = UINT64_MAX;
    assert_coalescing(&state, 1, 0, 0);
}

/* The last transmit queue is not set up; the control queue and what is behind it never count. */
static void coalescing_of_other_queues_is_refused(void **unused)
{
    static const unsigned queues[] = {7, 8, 9, 63, 64, 255, 256, 0x8000, 0xffff};
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    struct vw_net_coalescing coalescing;

    (void)unused;
    memset(&state.queues_set_up, 0xff, sizeof(state.queues_set_up));
    state.queues_set_up[0] &= ~vw_bit(7);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(queues); i++) {
        struct bytes bytes = queue_coalescing_command(queues[i], 1, 1);

        assert_refused(&state, &bytes, VW_NET_CONTROL_VALUE);
        assert_false(ask_coalescing(&state, queues[i], &coalescing));
    }
}

/* Nothing but VQ_GET answers more than its acknowledgement. */
static void other_commands_have_no_answer(void **unused)
{
    static struct sample samples[32];
    struct vw_net_control_state state = fresh(VW_NET_DEVICE_FEATURES);
    unsigned count = all_samples(samples), answers = 0;
    uint8_t answer[VW_NET_CONTROL_ANSWER_MAX];

    (void)unused;
    for (unsigned i = 0; i < count; i++)
        answers += vw_net_control_answer(&state, samples[i].bytes.data, samples[i].bytes.length,
                                         answer) > 0;
    assert_int_equal(answers, 1);
    assert_int_equal(vw_net_control_answer(&state, "\6\3\0", 3, answer), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_with_its_feature),
        cmocka_unit_test(every_command_cut_short_is_refused),
        cmocka_unit_test(unknown_commands_are_refused),
        cmocka_unit_test(reset_gives_what_the_specification_wants),
        cmocka_unit_test(modes_of_reception),
        cmocka_unit_test(mac_tables_of_every_size),
        cmocka_unit_test(mac_tables_around_the_end_of_the_copy),
        cmocka_unit_test(mac_tables_that_lie_are_refused),
        cmocka_unit_test(own_address),
        cmocka_unit_test(vlans),
        cmocka_unit_test(announce),
        cmocka_unit_test(queue_pairs),
        cmocka_unit_test(rss_is_taken_in_full),
        cmocka_unit_test(rss_values_out_of_range),
        cmocka_unit_test(rss_without_hash_types_needs_no_key),
        cmocka_unit_test(the_last_steering_command_wins),
        cmocka_unit_test(hash_config_leaves_the_table),
        cmocka_unit_test(guest_offloads),
        cmocka_unit_test(offloads_that_need_others_fall_with_them),
        cmocka_unit_test(every_result_has_its_words),
        cmocka_unit_test(coalescing_the_last_command_wins),
        cmocka_unit_test(coalescing_of_other_queues_is_refused),
        cmocka_unit_test(other_commands_have_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
