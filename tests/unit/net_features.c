/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "net/features.h"

#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)

static void table_is_in_order_and_unique(void **state)
{
    (void)state;
    for (unsigned i = 0; i < vw_feature_count; i++) {
        const struct vw_feature *feature = &vw_features[i];

        assert_true(feature->bit < 64);
        assert_true(i == 0 || vw_features[i - 1].bit < feature->bit);
        assert_ptr_equal(vw_feature_by_bit(feature->bit), feature);
        assert_int_equal(vw_feature_by_name(feature->name, strlen(feature->name)), feature->bit);
        assert_false(vw_has(feature->needs | feature->one_of, feature->bit));
    }
}

static void names_mean_the_numbers_of_the_specification(void **state)
{
    static const struct {
        const char *name;
        int bit;
    } known[] = {
        {"csum", 0},
        {"guest_csum", 1},
        {"ctrl_guest_offloads", 2},
        {"mtu", 3},
        {"mac", 5},
        {"guest_tso4", 7},
        {"guest_tso6", 8},
        {"guest_ecn", 9},
        {"guest_ufo", 10},
        {"host_tso4", 11},
        {"host_tso6", 12},
        {"host_ecn", 13},
        {"host_ufo", 14},
        {"mrg_rxbuf", 15},
        {"status", 16},
        {"ctrl_vq", 17},
        {"ctrl_rx", 18},
        {"ctrl_vlan", 19},
        {"ctrl_rx_extra", 20},
        {"guest_announce", 21},
        {"mq", 22},
        {"ctrl_mac_addr", 23},
        {"indirect_desc", 28},
        {"event_idx", 29},
        {"version_1", 32},
        {"packed", 34},
        {"in_order", 35},
        {"guest_uso4", 54},
        {"guest_uso6", 55},
        {"host_uso", 56},
        {"hash_report", 57},
        {"rss", 60},
        {"speed_duplex", 63},
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(known); i++)
        assert_int_equal(vw_feature_by_name(known[i].name, strlen(known[i].name)), known[i].bit);
    assert_int_equal(vw_feature_by_name("", 0), -ENOENT);
    assert_int_equal(vw_feature_by_name("cs", 2), -ENOENT);
    assert_int_equal(vw_feature_by_name("csums", 5), -ENOENT);
    assert_int_equal(vw_feature_by_name("csums", 4), 0);
    assert_null(vw_feature_by_bit(4));
    assert_null(vw_feature_by_bit(64));
}

static void closing_drops_what_lacks_its_prerequisites(void **state)
{
    static const struct {
        uint64_t set, closed;
    } table[] = {
        {0, 0},
        {BIT(HOST_TSO4), 0},
        {BIT(HOST_TSO4) | BIT(CSUM), BIT(HOST_TSO4) | BIT(CSUM)},
        /* two steps: without GUEST_CSUM no TSO, without TSO no ECN */
        {BIT(GUEST_TSO4) | BIT(GUEST_ECN), 0},
        {BIT(GUEST_CSUM) | BIT(GUEST_TSO6) | BIT(GUEST_ECN),
         BIT(GUEST_CSUM) | BIT(GUEST_TSO6) | BIT(GUEST_ECN)},
        {BIT(GUEST_CSUM) | BIT(GUEST_ECN), BIT(GUEST_CSUM)},
        {BIT(MQ) | BIT(RSS) | BIT(HASH_REPORT) | BIT(CTRL_RX) | BIT(CTRL_VLAN) |
             BIT(CTRL_MAC_ADDR) | BIT(GUEST_ANNOUNCE) | BIT(CTRL_RX_EXTRA) | BIT(NOTF_COAL) |
             BIT(VQ_NOTF_COAL) | BIT(CTRL_GUEST_OFFLOADS),
         0},
        {UINT64_C(1) << VIRTIO_F_RING_PACKED, 0},
        {BIT(HASH_TUNNEL) | BIT(CTRL_VQ), BIT(CTRL_VQ)},
        {BIT(HASH_TUNNEL) | BIT(RSS) | BIT(CTRL_VQ), BIT(HASH_TUNNEL) | BIT(RSS) | BIT(CTRL_VQ)},
        {UINT64_C(1) << 4, UINT64_C(1) << 4}, /* no name: none of our business */
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++)
        assert_int_equal(vw_features_close(table[i].set), table[i].closed);
    assert_int_equal(vw_features_close(UINT64_MAX), UINT64_MAX);
}

static void the_offer_is_closed_and_without_ufo(void **state)
{
    (void)state;
    assert_int_equal(vw_features_close(VW_NET_DEVICE_FEATURES), VW_NET_DEVICE_FEATURES);
    assert_false(vw_has(VW_NET_DEVICE_FEATURES, 10));
    assert_false(vw_has(VW_NET_DEVICE_FEATURES, 14));
    assert_true(vw_has(VW_NET_DEVICE_FEATURES, 52) && vw_has(VW_NET_DEVICE_FEATURES, 53));
    /* Not virtio's, and so only for those who ask. */
    assert_int_equal(VW_NET_DEVICE_EXTRAS, UINT64_C(1) << 48);
    assert_int_equal(VW_NET_DEVICE_EXTRAS & VW_NET_DEVICE_FEATURES, 0);
    assert_int_equal(vw_feature_by_name("urgent", 6), 48);
    for (unsigned bit = 0; bit < 64; bit++)
        if (vw_has(VW_NET_DEVICE_FEATURES, bit))
            assert_non_null(vw_feature_by_bit(bit));
}

/* known-faults: a feature accepted that was never offered; every such bit singly. */
static void every_bit_outside_the_offer_is_refused(void **state)
{
    const uint64_t offer = VW_NET_DEVICE_FEATURES;
    unsigned refused = 0;

    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        struct vw_features_fault fault = {0};
        int result =
            vw_features_check_accepted(offer, offer | vw_bit(bit), VW_FEATURES_OF_DRIVER, &fault);

        if (vw_has(offer, bit)) {
            assert_int_equal(result, 0);
            continue;
        }
        refused++;
        assert_int_equal(result, -EINVAL);
        assert_int_equal(fault.bit, bit);
        assert_int_equal(fault.missing, 0);
    }
    assert_int_equal(refused, 64 - __builtin_popcountll(offer));
}

/* Each feature alone: stands only if it needs nothing, and else the fault tells what. */
static void every_missing_prerequisite_is_told(void **state)
{
    (void)state;
    for (unsigned i = 0; i < vw_feature_count; i++) {
        const struct vw_feature *feature = &vw_features[i];
        struct vw_features_fault fault = {0};
        int result = vw_features_check_accepted(UINT64_MAX, vw_bit(feature->bit),
                                                VW_FEATURES_OF_DRIVER, &fault);

        if (!feature->needs && !feature->one_of) {
            assert_int_equal(result, 0);
            continue;
        }
        assert_int_equal(result, -EINVAL);
        assert_int_equal(fault.bit, feature->bit);
        assert_int_equal(fault.missing, feature->needs ? feature->needs : feature->one_of);
    }
}

/* QEMU acknowledges these to a back-end, and keeps the control queue to itself. */
static void a_front_end_may_have_the_control_queue(void **state)
{
    const uint64_t accepted = BIT(MQ) | BIT(GUEST_ANNOUNCE) | BIT(CSUM) | BIT(HOST_TSO4);
    struct vw_features_fault fault = {0};

    (void)state;
    assert_int_equal(vw_features_check_accepted(VW_NET_DEVICE_FEATURES, accepted,
                                                VW_FEATURES_OF_FRONT_END, &fault),
                     0);
    assert_int_equal(
        vw_features_check_accepted(VW_NET_DEVICE_FEATURES, accepted, VW_FEATURES_OF_DRIVER, &fault),
        -EINVAL);
    assert_int_equal(fault.bit, VIRTIO_NET_F_GUEST_ANNOUNCE);
    assert_int_equal(fault.missing, BIT(CTRL_VQ));
    /* Nothing else is forgiven. */
    assert_int_equal(vw_features_check_accepted(VW_NET_DEVICE_FEATURES, BIT(MQ) | BIT(HOST_TSO4),
                                                VW_FEATURES_OF_FRONT_END, &fault),
                     -EINVAL);
    assert_int_equal(fault.bit, VIRTIO_NET_F_HOST_TSO4);
}

static void sets_as_text(void **state)
{
    char text[64];

    (void)state;
    assert_int_equal(vw_features_format(0, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    assert_int_equal(vw_features_format(BIT(CSUM) | BIT(MQ) | 1 << 4, text, sizeof(text)), 12);
    assert_string_equal(text, "csum bit4 mq");
    memset(text, 'x', sizeof(text));
    assert_int_equal(vw_features_format(BIT(CSUM) | BIT(MQ) | 1 << 4, text, 8), 12);
    assert_string_equal(text, "csum bi");
    assert_int_equal(text[8], 'x');
    assert_int_equal(vw_features_format(BIT(MQ), NULL, 0), 2);
    assert_true(vw_features_format(UINT64_MAX, text, sizeof(text)) > sizeof(text));
    assert_int_equal(strlen(text), sizeof(text) - 1);
}

static void faults_as_text(void **state)
{
    struct vw_features_fault fault = {.bit = VIRTIO_NET_F_HOST_UFO};
    char text[128];

    (void)state;
    vw_features_fault_format(&fault, text, sizeof(text));
    assert_string_equal(text, "feature host_ufo was accepted but not offered");
    fault = (struct vw_features_fault){VIRTIO_NET_F_MQ, BIT(CTRL_VQ)};
    vw_features_fault_format(&fault, text, sizeof(text));
    assert_string_equal(text, "feature mq was accepted without ctrl_vq");
    fault = (struct vw_features_fault){VIRTIO_NET_F_HOST_ECN, BIT(HOST_TSO4) | BIT(HOST_TSO6)};
    vw_features_fault_format(&fault, text, sizeof(text));
    assert_string_equal(text, "feature host_ecn was accepted without one of: host_tso4 host_tso6");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_in_order_and_unique),
        cmocka_unit_test(names_mean_the_numbers_of_the_specification),
        cmocka_unit_test(closing_drops_what_lacks_its_prerequisites),
        cmocka_unit_test(the_offer_is_closed_and_without_ufo),
        cmocka_unit_test(every_bit_outside_the_offer_is_refused),
        cmocka_unit_test(every_missing_prerequisite_is_told),
        cmocka_unit_test(a_front_end_may_have_the_control_queue),
        cmocka_unit_test(sets_as_text),
        cmocka_unit_test(faults_as_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
