/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole driver against the whole device: every policy, ring format, receive mode and manner of
 * a caller, on rings of 64 (driver_lab.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_lab.h"

static char where[200];

static int say_where(void **unused)
{
    (void)unused;
    if (where[0] != '\0')
        print_message("last case: %s (VW_SEED=%#llx)\n", where, (unsigned long long)random_seed());
    where[0] = '\0';
    return 0;
}

static void say(const struct lab_case *test)
{
    snprintf(where, sizeof(where), "%s, %s, receive mode %d, %s, pieces %u, longest %u",
             test->features, policy_name(test->policy), test->mode, manner_name(test->manner),
             test->pieces, test->longest);
}

static void exchange(const struct lab_case *test)
{
    say(test);
    struct lab *lab = lab_begin(test, "loop");
    lab_run(lab, true);
    lab_check_counters(lab, true);
    lab_end(lab);
    where[0] = '\0';
}

static const char *const rings[] = {
    "packed=off,event_idx=off,in_order=off",
    "packed=off,in_order=off",
    "packed=off,indirect_desc=off",
    "packed=on,event_idx=off,in_order=off",
    "packed=on,in_order=off,indirect_desc=off",
    "packed=on",
};

static void every_mode(enum vw_tx_policy policy)
{
    for (unsigned r = 0; r < VW_ARRAY_SIZE(rings); r++)
        for (enum vw_rx_mode mode = VW_RX_SMALL; mode <= VW_RX_MERGEABLE; mode++)
            for (enum manner manner = BUSY; manner < MANNERS; manner++) {
                struct lab_case test = {.features = rings[r],
                                        .policy = policy,
                                        .mode = mode,
                                        .manner = manner,
                                        .ring = 64,
                                        .pieces = 1 + (r * 5 + mode) % VW_TX_MAX_PIECES,
                                        .shortest = 60,
                                        .longest = mode == VW_RX_SMALL ? 1518 : 9000,
                                        .more = r % 2,
                                        .hold = (r + manner) % 2,
                                        .headroom = (r + mode) % 2,
                                        .no_limit = r == 5,
                                        .count = 400};

                exchange(&test);
            }
}

#define POLICY(name, policy)                                                                       \
    static void name(void **unused)                                                                \
    {                                                                                              \
        (void)unused;                                                                              \
        every_mode(policy);                                                                        \
    }

POLICY(deferred, VW_TX_DEFERRED)
POLICY(orphan, VW_TX_ORPHAN)
POLICY(urgent, VW_TX_URGENT)
POLICY(delayed, VW_TX_DELAYED)
POLICY(scheduled, VW_TX_SCHEDULED)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(deferred, say_where),
        cmocka_unit_test_teardown(orphan, say_where),
        cmocka_unit_test_teardown(urgent, say_where),
        cmocka_unit_test_teardown(delayed, say_where),
        cmocka_unit_test_teardown(scheduled, say_where),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
