/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver writes, the device reads: each command through vw_net_control. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "net/command.h"
#include "net/features.h"

#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)
#define MAX_PAIRS 4

static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static const uint8_t zero[6];
static const uint8_t group[6] = {0x01, 0x00, 0x5e, 0, 0, 1};

static struct vw_net_control_state fresh(void)
{
    struct vw_net_control_state state;

    vw_net_control_reset(&state, VW_NET_DEVICE_FEATURES, MAX_PAIRS, mac);
    state.queues_set_up[0] = 0xff;
    return state;
}

static struct vw_net_config four_pairs(void)
{
    struct vw_net_config config;

    vw_net_config_init(&config);
    config.max_pairs = MAX_PAIRS;
    return config;
}

/* The device takes it, and only with the feature that the command names. */
static void assert_taken(struct vw_net_control_state *state, const struct vw_net_command *command,
                         unsigned changes)
{
    static struct vw_net_control_state without;
    unsigned changed;

    assert_true(command->length <= VW_NET_COMMAND_MAX);
    assert_true(command->identity <= command->length);
    without = *state;
    without.features &= ~vw_bit(command->feature);
    assert_int_equal(vw_net_control(&without, command->bytes, command->length, &changed),
                     VW_NET_CONTROL_UNNEGOTIATED);
    without.features |= vw_bit(command->feature);
    /* Not a byte may be missing. */
    assert_int_equal(vw_net_control(&without, command->bytes, command->length - 1, &changed),
                     VW_NET_CONTROL_SHORT);
    assert_int_equal(vw_net_control(state, command->bytes, command->length, &changed),
                     VW_NET_CONTROL_OK);
    assert_int_equal(changed, changes);
    uint8_t answer[VW_NET_CONTROL_ANSWER_MAX];
    assert_int_equal(vw_net_control_answer(state, command->bytes, command->length, answer),
                     command->answer_size);
}

static void modes(void **unused)
{
    struct vw_net_control_state state = fresh();
    const bool *const flags[] = {&state.promiscuous,  &state.all_multicast, &state.all_unicast,
                                 &state.no_multicast, &state.no_unicast,    &state.no_broadcast};
    struct vw_net_command command;

    (void)unused;
    for (unsigned mode = 0; mode < VW_ARRAY_SIZE(flags); mode++) {
        for (unsigned on = 2; on-- > 0;) {
            assert_int_equal(vw_net_command_mode(&command, mode, on), 0);
            assert_taken(&state, &command, VW_NET_CHANGED_FILTER);
            for (unsigned other = 0; other < VW_ARRAY_SIZE(flags); other++)
                assert_int_equal(*flags[other], on && other == mode);
        }
    }
    assert_int_equal(vw_net_command_mode(&command, 6, true), -EINVAL);
    assert_int_equal(vw_net_command_mode(&command, UINT32_MAX, true), -EINVAL);
}

static void addresses(void **unused)
{
    static const uint8_t unicast[3][6] = {
        {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, {4, 1, 2, 3, 4, 5}};
    static const uint8_t multicast[2][6] = {{1, 0, 0x5e, 0, 0, 1}, {0x33, 0x33, 0, 0, 0, 1}};
    struct vw_net_control_state state = fresh();
    struct vw_net_command command;

    (void)unused;
    assert_int_equal(vw_net_command_mac(&command, unicast[2]), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_MAC);
    assert_memory_equal(state.mac, unicast[2], 6);
    assert_int_equal(vw_net_command_mac(&command, zero), -EINVAL);
    assert_int_equal(vw_net_command_mac(&command, group), -EINVAL);

    assert_int_equal(vw_net_command_mac_table(&command, unicast, 3, multicast, 2), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_FILTER);
    assert_int_equal(state.unicast.count, 3);
    assert_memory_equal(state.unicast.mac, unicast, sizeof(unicast));
    assert_int_equal(state.multicast.count, 2);
    assert_memory_equal(state.multicast.mac, multicast, sizeof(multicast));
    assert_int_equal(vw_net_command_mac_table(&command, NULL, 0, NULL, 0), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_FILTER);
    assert_int_equal(state.unicast.count + state.multicast.count, 0);
    assert_int_equal(vw_net_command_mac_table(&command, multicast, 1, NULL, 0), -EINVAL);
    assert_int_equal(vw_net_command_mac_table(&command, NULL, 0, unicast, 1), -EINVAL);
}

/* What is too long for a command is refused before an address is looked at. */
static void long_tables(void **unused)
{
    static uint8_t many[510][6];
    struct vw_net_command command;

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(many); i++)
        memcpy(many[i], mac, 6);
    assert_int_equal(vw_net_command_mac_table(&command, many, 510, NULL, 0), 0);
    assert_true(command.length <= VW_NET_COMMAND_MAX);
    assert_int_equal(vw_net_command_mac_table(&command, many, 510, many, 1), -ENOSPC);
    assert_int_equal(vw_net_command_mac_table(&command, many, 511, NULL, 0), -ENOSPC);
    assert_int_equal(vw_net_command_mac_table(&command, many, SIZE_MAX, many, 2), -ENOSPC);
    assert_int_equal(vw_net_command_mac_table(&command, many, 1, many, SIZE_MAX), -ENOSPC);
}

static void vlans(void **unused)
{
    struct vw_net_control_state state = fresh();
    struct vw_net_command command, other;

    (void)unused;
    for (unsigned vlan = 0; vlan < 4096; vlan += 195) {
        assert_int_equal(vw_net_command_vlan(&command, vlan, true), 0);
        assert_taken(&state, &command, VW_NET_CHANGED_FILTER);
        assert_true(vw_has(state.vlans[vlan / 64], vlan % 64));
    }
    for (unsigned vlan = 0; vlan < 4096; vlan += 195) {
        assert_int_equal(vw_net_command_vlan(&command, vlan, false), 0);
        assert_taken(&state, &command, VW_NET_CHANGED_FILTER);
    }
    for (unsigned i = 0; i < 64; i++)
        assert_true(state.vlans[i] == 0);
    assert_int_equal(vw_net_command_vlan(&command, 4096, true), -EINVAL);
    /* Different numbers are different commands. */
    assert_int_equal(vw_net_command_vlan(&command, 1, true), 0);
    assert_int_equal(vw_net_command_vlan(&other, 257, true), 0);
    assert_int_equal(command.identity, 4);
    assert_memory_not_equal(command.bytes, other.bytes, 4);
}

static void pairs_and_announce(void **unused)
{
    struct vw_net_control_state state = fresh();
    struct vw_net_command command;

    (void)unused;
    assert_int_equal(vw_net_command_pairs(&command, 3, MAX_PAIRS), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_int_equal(state.pairs, 3);
    assert_int_equal(vw_net_command_pairs(&command, 0, MAX_PAIRS), -EINVAL);
    assert_int_equal(vw_net_command_pairs(&command, 5, MAX_PAIRS), -EINVAL);
    assert_int_equal(vw_net_command_pairs(&command, 0x8001, UINT32_MAX), -EINVAL);
    state.announce = true;
    vw_net_command_announced(&command);
    assert_int_equal(command.length, 2);
    assert_taken(&state, &command, VW_NET_CHANGED_ANNOUNCE);
    assert_false(state.announce);
}

static struct vw_net_rss_settings all_of_rss(uint16_t table[128], uint8_t key[40])
{
    for (unsigned i = 0; i < 128; i++)
        table[i] = (uint16_t)(i * 7 % MAX_PAIRS);
    for (unsigned i = 0; i < 40; i++)
        key[i] = (uint8_t)(i * 11 + 1);
    return (struct vw_net_rss_settings){.hash_types = 0x3f,
                                        .table = table,
                                        .table_size = 128,
                                        .unclassified = 2,
                                        .tx_pairs = 4,
                                        .key = key,
                                        .key_length = 40};
}

static void rss(void **unused)
{
    const struct vw_net_config config = four_pairs();
    struct vw_net_control_state state = fresh();
    struct vw_net_command command;
    uint16_t table[128];
    uint8_t key[40];
    struct vw_net_rss_settings settings = all_of_rss(table, key);

    (void)unused;
    assert_int_equal(vw_net_command_rss(&command, &settings, &config), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_PAIRS | VW_NET_CHANGED_HASH);
    assert_true(state.rss.steering);
    assert_int_equal(state.rss.hash_types, 0x3f);
    assert_int_equal(state.rss.mask, 127);
    assert_int_equal(state.rss.unclassified, 2);
    assert_memory_equal(state.rss.table, table, sizeof(table));
    assert_int_equal(state.rss.key_length, 40);
    assert_memory_equal(state.rss.key, key, 40);
    assert_int_equal(state.pairs, 4);

    settings.key_length = 16;
    settings.hash_types = 3;
    assert_int_equal(vw_net_command_hash(&command, &settings, &config), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_HASH);
    assert_int_equal(state.rss.hash_types, 3);
    assert_int_equal(state.rss.key_length, 16);
    assert_true(state.rss.steering);
    settings.key_length = settings.hash_types = 0; /* off */
    settings.key = NULL;
    assert_int_equal(vw_net_command_hash(&command, &settings, &config), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_HASH);
}

static void impossible_rss_is_refused(void **unused)
{
    const struct vw_net_config config = four_pairs();
    struct vw_net_command command;
    uint16_t table[128], wild[2] = {0, MAX_PAIRS};
    uint8_t key[40];
    const struct vw_net_rss_settings good = all_of_rss(table, key);
    struct vw_net_rss_settings bad[10];

    (void)unused;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++)
        bad[i] = good;
    bad[0].hash_types = 0x200;
    bad[1].table_size = 0;
    bad[2].table_size = 3;
    bad[3].table_size = 256;
    bad[4].unclassified = MAX_PAIRS;
    bad[5].tx_pairs = 0;
    bad[6].tx_pairs = MAX_PAIRS + 1;
    bad[7].key_length = 41;
    bad[8].key_length = 0;
    bad[9].table = wild;
    bad[9].table_size = 2;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++)
        assert_int_equal(vw_net_command_rss(&command, &bad[i], &config), -EINVAL);
    assert_int_equal(vw_net_command_hash(&command, &bad[0], &config), -EINVAL);
    assert_int_equal(vw_net_command_hash(&command, &bad[7], &config), -EINVAL);
    assert_int_equal(vw_net_command_hash(&command, &bad[8], &config), -EINVAL);
    /* A device that claims a table longer than a command has room for. */
    struct vw_net_config boastful = config;
    boastful.rss_max_table = 0x8000;
    static uint16_t zeros[2048];
    struct vw_net_rss_settings large = good;
    large.table = zeros;
    large.table_size = 2048;
    assert_int_equal(vw_net_command_rss(&command, &large, &boastful), -EINVAL);
    large.table_size = 1024;
    assert_int_equal(vw_net_command_rss(&command, &large, &boastful), 0);
    assert_true(command.length <= VW_NET_COMMAND_MAX);
}

static void offloads(void **unused)
{
    struct vw_net_control_state state = fresh();
    struct vw_net_command command;
    uint64_t wanted = BIT(GUEST_CSUM) | BIT(GUEST_TSO4) | BIT(GUEST_USO6);

    (void)unused;
    assert_int_equal(vw_net_command_offloads(&command, wanted, state.features), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_OFFLOADS);
    assert_true(state.guest_offloads == wanted);
    assert_int_equal(vw_net_command_offloads(&command, wanted, BIT(GUEST_CSUM)), -EINVAL);
    assert_int_equal(vw_net_command_offloads(&command, BIT(CSUM), UINT64_MAX), -EINVAL);
}

static void coalescing(void **unused)
{
    const struct vw_net_coalescing limits[] = {{32, 100}, {UINT32_MAX, 1}, {7, 0xfffffff0}};
    struct vw_net_control_state state = fresh();
    struct vw_net_command command;
    struct vw_net_coalescing got;
    uint8_t answer[8];

    (void)unused;
    vw_net_command_coalescing(&command, true, &limits[0]);
    assert_taken(&state, &command, VW_NET_CHANGED_COALESCING);
    vw_net_command_coalescing(&command, false, &limits[1]);
    assert_taken(&state, &command, VW_NET_CHANGED_COALESCING);
    assert_int_equal(vw_net_command_queue_coalescing(&command, 5, &limits[2]), 0);
    assert_taken(&state, &command, VW_NET_CHANGED_COALESCING);
    for (unsigned queue = 0; queue < 8; queue++) {
        const struct vw_net_coalescing *want = &limits[queue == 5 ? 2 : queue % 2 == 0 ? 1 : 0];

        assert_int_equal(vw_net_command_ask_coalescing(&command, queue), 0);
        assert_taken(&state, &command, 0);
        vw_net_control_answer(&state, command.bytes, command.length, answer);
        vw_net_answer_coalescing(answer, &got);
        assert_int_equal(got.max_packets, want->max_packets);
        assert_int_equal(got.max_usecs, want->max_usecs);
    }
    assert_int_equal(vw_net_command_queue_coalescing(&command, 0x10000, &limits[0]), -EINVAL);
    assert_int_equal(vw_net_command_ask_coalescing(&command, 0x10000), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes),
        cmocka_unit_test(addresses),
        cmocka_unit_test(long_tables),
        cmocka_unit_test(vlans),
        cmocka_unit_test(pairs_and_announce),
        cmocka_unit_test(rss),
        cmocka_unit_test(impossible_rss_is_refused),
        cmocka_unit_test(offloads),
        cmocka_unit_test(coalescing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
