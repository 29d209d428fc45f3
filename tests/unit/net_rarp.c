/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "net/rarp.h"

static void the_frame_byte_by_byte(void **state)
{
    static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
    static const uint8_t expected[60] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff,             /* to everybody */
        0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x80, 0x35, /* from the guest, RARP */
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x03, /* Ethernet, IPv4, request */
        0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x00, 0x00, 0x00, 0x00,
        0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x00, 0x00, 0x00, 0x00,
    };
    uint8_t frame[64];

    (void)state;
    memset(frame, 0xee, sizeof(frame));
    vw_net_rarp(frame, mac);
    assert_memory_equal(frame, expected, sizeof(expected));
    for (unsigned i = VW_NET_RARP_SIZE; i < sizeof(frame); i++)
        assert_int_equal(frame[i], 0xee);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_frame_byte_by_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
