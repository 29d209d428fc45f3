/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "net/config.h"

#define BIT(number) (UINT64_C(1) << VIRTIO_NET_F_##number)
#define CONFIG_BITS                                                                                \
    (BIT(MAC) | BIT(STATUS) | BIT(MQ) | BIT(MTU) | BIT(SPEED_DUPLEX) | BIT(RSS) | BIT(HASH_REPORT))

static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static const uint8_t expected[24] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x03, 0x00,
                                     0x08, 0x00, 0x28, 0x23, 0x10, 0x27, 0x00, 0x00,
                                     0x01, 0x28, 0x80, 0x00, 0xff, 0x01, 0x00, 0x00};

static struct vw_net_config sample(void)
{
    struct vw_net_config config;

    vw_net_config_init(&config);
    memcpy(config.mac, mac, sizeof(mac));
    config.announce = true;
    config.max_pairs = 8;
    config.mtu = 9000;
    config.speed = 10000;
    return config;
}

static void bytes_are_where_the_specification_has_them(void **state)
{
    struct vw_net_config config = sample();
    uint8_t space[24];

    (void)state;
    vw_net_config_read(&config, 0, sizeof(space), space);
    assert_memory_equal(space, expected, sizeof(expected));
    config.link_up = config.announce = false;
    vw_net_config_read(&config, 6, 2, space);
    assert_int_equal(space[0] | space[1], 0);
}

/* Every range that starts inside or just behind the space, of every size to beyond 256. */
static void any_range_can_be_read(void **state)
{
    struct vw_net_config config = sample();
    uint8_t got[300];

    (void)state;
    for (uint32_t offset = 0; offset < 30; offset++) {
        for (uint32_t size = 0; size < 260; size++) {
            memset(got, 0xee, sizeof(got));
            vw_net_config_read(&config, offset, size, got);
            for (uint32_t i = 0; i < size; i++)
                assert_int_equal(got[i], offset + i < 24 ? expected[offset + i] : 0);
            assert_int_equal(got[size], 0xee);
        }
    }
    memset(got, 0xee, sizeof(got));
    vw_net_config_read(&config, UINT32_MAX, 4, got);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(got[i], i < 4 ? 0 : 0xee);
}

static void only_a_legacy_driver_writes_its_address(void **state)
{
    static const uint8_t bytes[24] = {2, 3, 4, 5, 6, 7};
    struct vw_net_config config = sample(), before = config;

    (void)state;
    assert_int_equal(vw_net_config_write(&config, UINT64_C(1) << VIRTIO_F_VERSION_1, 0, 6, bytes),
                     -EPERM);
    assert_int_equal(vw_net_config_write(&config, BIT(CTRL_MAC_ADDR), 0, 6, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, 0, 7, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, 5, 2, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, 6, 2, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, UINT32_MAX, 2, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, 1, UINT32_MAX, bytes), -EPERM);
    assert_int_equal(vw_net_config_write(&config, 0, 0, 0, bytes), -EPERM);
    assert_memory_equal(config.mac, before.mac, 6);
    assert_int_equal(config.mtu, before.mtu);

    assert_int_equal(vw_net_config_write(&config, 0, 5, 1, bytes), 0);
    assert_int_equal(config.mac[5], 2);
    assert_int_equal(vw_net_config_write(&config, 0, 0, 6, bytes), 0);
    assert_memory_equal(config.mac, bytes, 6);
}

static void a_driver_understands_the_space(void **state)
{
    struct vw_net_config config;

    (void)state;
    assert_int_equal(vw_net_config_parse(&config, CONFIG_BITS, expected, 24), 0);
    assert_memory_equal(config.mac, mac, 6);
    assert_true(config.link_up && config.announce);
    assert_int_equal(config.max_pairs, 8);
    assert_int_equal(config.mtu, 9000);
    assert_int_equal(config.speed, 10000);
    assert_int_equal(config.duplex, VW_NET_DUPLEX_FULL);
    assert_int_equal(config.rss_max_key, 40);
    assert_int_equal(config.rss_max_table, 128);
    assert_int_equal(config.hash_types, 0x1ff);
}

static void a_driver_assumes_what_no_feature_says(void **state)
{
    uint8_t hostile[24];
    struct vw_net_config config;

    (void)state;
    memset(hostile, 0xff, sizeof(hostile));
    assert_int_equal(vw_net_config_parse(&config, 0, hostile, 24), 0);
    assert_true(config.link_up);
    assert_false(config.announce);
    assert_int_equal(config.max_pairs, 1);
    assert_int_equal(config.mtu, 0);
    assert_int_equal(config.speed, VW_NET_SPEED_UNKNOWN);
    assert_int_equal(config.duplex, VW_NET_DUPLEX_UNKNOWN);
    assert_int_equal(config.hash_types, 0);
    assert_int_equal(vw_net_config_parse(&config, 0, NULL, 0), 0);
}

static void a_driver_distrusts_the_space(void **state)
{
    static const struct {
        uint64_t features;
        uint8_t at, low, high; /* two bytes changed */
        int result;
    } table[] = {
        {BIT(MQ), 8, 0, 0, -EINVAL},
        {BIT(RSS), 8, 0, 0, -EINVAL},
        {BIT(MQ), 8, 0x00, 0x80, 0},
        {BIT(MQ), 8, 0x01, 0x80, -EINVAL},
        {BIT(MQ), 8, 0xff, 0xff, -EINVAL},
        {BIT(MAC), 0, 0x53, 0x54, -EINVAL},
        {BIT(MTU), 8, 0, 0, 0},
    };
    uint8_t space[24];
    struct vw_net_config config = sample();

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++) {
        memcpy(space, expected, sizeof(space));
        space[table[i].at] = table[i].low;
        space[table[i].at + 1] = table[i].high;
        assert_int_equal(vw_net_config_parse(&config, table[i].features, space, 24),
                         table[i].result);
    }
    memset(space, 0, sizeof(space));
    config = sample();
    assert_int_equal(vw_net_config_parse(&config, BIT(MAC), space, 24), -EINVAL);
    assert_int_equal(config.mtu, 9000); /* untouched */

    memcpy(space, expected, sizeof(space));
    space[10] = 67;
    space[11] = 0;
    space[15] = 0x80;
    assert_int_equal(vw_net_config_parse(&config, CONFIG_BITS, space, 24), 0);
    assert_int_equal(config.mtu, 0);
    assert_int_equal(config.speed, VW_NET_SPEED_UNKNOWN);
}

static void a_driver_needs_what_features_promise(void **state)
{
    static const struct {
        uint64_t features;
        uint32_t needed;
    } table[] = {
        {BIT(MAC), 6},  {BIT(STATUS), 8},       {BIT(MQ), 10},           {BIT(MTU), 12},
        {BIT(RSS), 24}, {BIT(HASH_REPORT), 24}, {BIT(SPEED_DUPLEX), 17}, {CONFIG_BITS, 24},
    };
    struct vw_net_config config;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(table); i++)
        for (uint32_t size = 0; size <= 24; size++)
            assert_int_equal(vw_net_config_parse(&config, table[i].features, expected, size),
                             size < table[i].needed ? -ENODATA : 0);
}

/* Section 5.1.2: by the maximum, and by what was negotiated. */
static void the_control_queue_is_behind_all_pairs(void **state)
{
    (void)state;
    assert_int_equal(vw_net_control_queue_index(BIT(MQ), 8), 16);
    assert_int_equal(vw_net_control_queue_index(BIT(RSS), 8), 16);
    assert_int_equal(vw_net_control_queue_index(BIT(CTRL_VQ), 8), 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_where_the_specification_has_them),
        cmocka_unit_test(any_range_can_be_read),
        cmocka_unit_test(only_a_legacy_driver_writes_its_address),
        cmocka_unit_test(a_driver_understands_the_space),
        cmocka_unit_test(a_driver_assumes_what_no_feature_says),
        cmocka_unit_test(a_driver_distrusts_the_space),
        cmocka_unit_test(a_driver_needs_what_features_promise),
        cmocka_unit_test(the_control_queue_is_behind_all_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
