/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "net/features.h"
#include "net/filter.h"

#define ALL VW_NET_DEVICE_FEATURES
#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)

static const uint8_t own[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static const uint8_t other[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x57};
static const uint8_t group[6] = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
static const uint8_t everybody[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static struct vw_net_control_state fresh(uint64_t features)
{
    struct vw_net_control_state state;

    vw_net_control_reset(&state, features, 1, own);
    return state;
}

static enum vw_net_verdict decide(const struct vw_net_control_state *state, const uint8_t *mac,
                                  int vlan, unsigned type, size_t length)
{
    uint8_t *frame = calloc(1, length ? length : 1);
    uint8_t whole[18] = {0};
    enum vw_net_verdict verdict;

    assert_non_null(frame);
    memcpy(whole, mac, 6);
    whole[12] = (uint8_t)(type >> 8);
    whole[13] = (uint8_t)type;
    whole[14] = (uint8_t)(vlan >> 8);
    whole[15] = (uint8_t)vlan;
    memcpy(frame, whole, length);
    verdict = vw_net_filter(state, frame, length);
    free(frame);
    return verdict;
}

static enum vw_net_verdict untagged(const struct vw_net_control_state *state, const uint8_t *mac)
{
    return decide(state, mac, 0, 0x0800, 18);
}

static enum vw_net_verdict tagged(const struct vw_net_control_state *state, int vlan)
{
    return decide(state, own, vlan, 0x8100, 18);
}

static void everything_passes_without_the_features(void **unused)
{
    struct vw_net_control_state state = fresh(ALL & ~BIT(CTRL_RX) & ~BIT(CTRL_VLAN));

    (void)unused;
    assert_false(vw_net_filter_active(&state));
    assert_int_equal(untagged(&state, own), VW_NET_PASS);
    assert_int_equal(untagged(&state, other), VW_NET_PASS);
    assert_int_equal(untagged(&state, group), VW_NET_PASS);
    assert_int_equal(untagged(&state, everybody), VW_NET_PASS);
    assert_int_equal(tagged(&state, 4095), VW_NET_PASS);
    state = fresh(ALL & ~BIT(CTRL_RX));
    assert_int_equal(untagged(&state, other), VW_NET_PASS);
    state = fresh(ALL & ~BIT(CTRL_VLAN));
    assert_int_equal(tagged(&state, 4095), VW_NET_PASS);
}

static void after_reset_own_and_broadcast_pass(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);

    (void)unused;
    assert_true(vw_net_filter_active(&state));
    assert_int_equal(untagged(&state, own), VW_NET_PASS);
    assert_int_equal(untagged(&state, everybody), VW_NET_PASS);
    assert_int_equal(untagged(&state, other), VW_NET_DROP_MAC);
    assert_int_equal(untagged(&state, group), VW_NET_DROP_MAC);
}

static void an_unknown_own_address_lets_all_unicast_pass(void **unused)
{
    static const uint8_t none[6];
    struct vw_net_control_state state;

    (void)unused;
    vw_net_control_reset(&state, ALL & ~BIT(MAC), 1, none);
    assert_int_equal(untagged(&state, other), VW_NET_PASS);
    assert_int_equal(untagged(&state, group), VW_NET_DROP_MAC);
}

/* All 64 combinations of modes against the rules of section 5.1.6.5.1. */
static void modes_and_their_order(void **unused)
{
    (void)unused;
    for (unsigned bits = 0; bits < 64; bits++) {
        struct vw_net_control_state state = fresh(ALL);
        bool promiscuous = bits & 1, all_multicast = bits & 2, all_unicast = bits & 4,
             no_multicast = bits & 8, no_unicast = bits & 16, no_broadcast = bits & 32;

        state.promiscuous = promiscuous;
        state.all_multicast = all_multicast;
        state.all_unicast = all_unicast;
        state.no_multicast = no_multicast;
        state.no_unicast = no_unicast;
        state.no_broadcast = no_broadcast;
        assert_int_equal(untagged(&state, own) == VW_NET_PASS, promiscuous || !no_unicast);
        assert_int_equal(untagged(&state, other) == VW_NET_PASS,
                         promiscuous || (!no_unicast && all_unicast));
        assert_int_equal(untagged(&state, group) == VW_NET_PASS,
                         promiscuous || (!no_multicast && all_multicast));
        assert_int_equal(untagged(&state, everybody) == VW_NET_PASS, promiscuous || !no_broadcast);
    }
}

static void addresses_of_the_table_pass(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);

    (void)unused;
    state.unicast.count = 2;
    memcpy(state.unicast.mac[1], other, 6);
    state.multicast.count = 64;
    memcpy(state.multicast.mac[63], group, 6);
    assert_int_equal(untagged(&state, other), VW_NET_PASS);
    assert_int_equal(untagged(&state, group), VW_NET_PASS);
    state.unicast.count = 1;
    state.multicast.count = 63;
    assert_int_equal(untagged(&state, other), VW_NET_DROP_MAC);
    assert_int_equal(untagged(&state, group), VW_NET_DROP_MAC);
    state.unicast.overflow = state.multicast.overflow = true;
    assert_int_equal(untagged(&state, other), VW_NET_PASS);
    assert_int_equal(untagged(&state, group), VW_NET_PASS);
    state.no_unicast = state.no_multicast = true;
    assert_int_equal(untagged(&state, other), VW_NET_DROP_MAC);
    assert_int_equal(untagged(&state, group), VW_NET_DROP_MAC);
}

static void the_vlan_table_starts_empty(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);

    (void)unused;
    for (int vlan = 0; vlan < 4096; vlan++)
        assert_int_equal(tagged(&state, vlan), VW_NET_DROP_VLAN);
    assert_int_equal(untagged(&state, own), VW_NET_PASS);
    assert_int_equal(decide(&state, own, 7, 0x88a8, 18), VW_NET_PASS);
}

static void added_vlans_pass(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);
    const uint8_t command[] = {2, 0, 0x45, 0x01};
    unsigned changed;

    (void)unused;
    assert_int_equal(vw_net_control(&state, command, 4, &changed), VW_NET_CONTROL_OK);
    for (int vlan = 0; vlan < 4096; vlan++)
        assert_int_equal(tagged(&state, vlan), vlan == 0x145 ? VW_NET_PASS : VW_NET_DROP_VLAN);
    /* Priority bits are not the VLAN's. */
    assert_int_equal(tagged(&state, 0xe145), VW_NET_PASS);
    /* The address counts for tagged frames as well. */
    assert_int_equal(decide(&state, other, 0x145, 0x8100, 18), VW_NET_DROP_MAC);
}

static void promiscuous_mode_overrides_vlans(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);

    (void)unused;
    state.promiscuous = true;
    assert_false(vw_net_filter_active(&state));
    assert_int_equal(tagged(&state, 5), VW_NET_PASS);
}

static void short_frames_are_dropped(void **unused)
{
    struct vw_net_control_state state = fresh(ALL);

    (void)unused;
    for (size_t length = 0; length < 14; length++)
        assert_int_equal(decide(&state, own, 0, 0x0800, length), VW_NET_DROP_SHORT);
    assert_int_equal(decide(&state, own, 0, 0x0800, 14), VW_NET_PASS);
    for (size_t length = 14; length < 18; length++)
        assert_int_equal(decide(&state, own, 0, 0x8100, length), VW_NET_DROP_SHORT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_passes_without_the_features),
        cmocka_unit_test(after_reset_own_and_broadcast_pass),
        cmocka_unit_test(an_unknown_own_address_lets_all_unicast_pass),
        cmocka_unit_test(modes_and_their_order),
        cmocka_unit_test(addresses_of_the_table_pass),
        cmocka_unit_test(the_vlan_table_starts_empty),
        cmocka_unit_test(added_vlans_pass),
        cmocka_unit_test(promiscuous_mode_overrides_vlans),
        cmocka_unit_test(short_frames_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
