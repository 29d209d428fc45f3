/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a wake-up ever lost between our driver and our device? Each transmit policy, both sides going
 * to sleep at every chance: the device's worker does so by itself, the driver after each burst.
 *
 * A round ends when the policy's promise is kept: all frames came back through the loop, and those
 * whose completion the policy asks calls for are completed. Policies that ask for calls only when
 * the queue is full are made to fill it. A sleep that nothing ends is a stall (driver_lab.h).
 * VW_ROUNDS makes it longer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../driver_lab.h"

static uint64_t rounds(void)
{
    const char *text = getenv("VW_ROUNDS");

    return text ? strtoull(text, NULL, 0) : 1000;
}

/* Close to the other side most of the time, as a lost wake-up needs it. */
static void loiter(struct lab *lab)
{
    for (uint32_t spins = random_below(&lab->random, 2000); spins > 0; spins--)
        vw_cpu_relax();
}

static unsigned burst(struct lab *lab, unsigned count, bool urgent, bool more)
{
    struct vw_tx_packet packets[4];

    for (unsigned i = 0; i < count; i++) {
        uint32_t index = lab->free[lab->free_count - 1 - i];

        lab->pieces[index][0] =
            (struct vw_piece){lab->memory + (size_t)index * lab->stride + 64, 60};
        packets[i] = (struct vw_tx_packet){.pieces = lab->pieces[index],
                                           .piece_count = 1,
                                           .token = (void *)(uintptr_t)index,
                                           .urgent = urgent,
                                           .headroom = 64};
        lab_frame(0, (uint8_t *)lab->pieces[index][0].data, 60, false);
    }
    /* Those that are not taken stay where they are: under the ones that come back meanwhile. */
    uint32_t offered[4];
    memcpy(offered, &lab->free[lab->free_count - count], count * sizeof(*offered));
    lab->free_count -= count;
    int taken = vw_tx_burst(lab->net, 0, packets, count, more);
    if (taken < 0)
        fail_msg("vw_tx_burst: %s", strerror(-taken));
    for (unsigned i = (unsigned)taken; i < count; i++)
        lab->free[lab->free_count++] = offered[count - 1 - i];
    lab->sent += (unsigned)taken;
    return (unsigned)taken;
}

static void count_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct lab *lab = context;

    lab->received += count;
    vw_rx_release(lab->net, pair, packets, count);
}

/* Polls; sleeps if that found nothing. */
static void poll_or_sleep(struct lab *lab, uint64_t before)
{
    int count = vw_poll(lab->net, 0, 64, count_frames, lab);

    assert_true(count >= 0);
    if (count < 64 && lab->received + lab->done == before) {
        loiter(lab);
        lab_sleep(lab);
    }
}

/* Every policy that asks for calls: until all is back and completed. */
static void await_all(struct lab *lab)
{
    while (lab->received < lab->sent || lab->done < lab->sent)
        poll_or_sleep(lab, lab->received + lab->done);
}

static void await_received(struct lab *lab)
{
    while (lab->received < lab->sent)
        poll_or_sleep(lab, lab->received + lab->done);
}

static void round_of_calls(struct lab *lab)
{
    unsigned count = 1 + random_below(&lab->random, 4);
    bool more = random_one_in(&lab->random, 4);

    burst(lab, count, false, more);
    if (more && random_one_in(&lab->random, 2))
        burst(lab, 1, false, false);
    await_all(lab);
}

/* The last frame is an urgent one; what is before it may wait. */
static void round_of_urgent(struct lab *lab)
{
    burst(lab, 1 + random_below(&lab->random, 3), false, true);
    while (burst(lab, 1, true, false) == 0)
        poll_or_sleep(lab, lab->received + lab->done);
    await_all(lab);
}

/* Fills the queue, then sleeps until it goes on. */
static void round_of_orphans(struct lab *lab)
{
    uint64_t before = lab->sent;

    while (lab->sent < before + 80) {
        unsigned count = 1 + random_below(&lab->random, 4);

        if (burst(lab, count, false, random_one_in(&lab->random, 3)) == 0)
            poll_or_sleep(lab, lab->received + lab->done);
    }
    assert_int_equal(vw_tx_burst(lab->net, 0, NULL, 0, 0), 0);
    await_received(lab);
}

/* An adaptive device gives up so soon that it sleeps at every chance, too. */
static void litmus(enum vw_tx_policy policy, const char *features, enum manner manner,
                   enum vw_device_mode mode)
{
    const struct lab_case test = {.features = features,
                                  .policy = policy,
                                  .mode = VW_RX_AUTO,
                                  .manner = manner,
                                  .device_mode = mode,
                                  .busy_poll_us = 3,
                                  .ring = 64,
                                  .pieces = 1,
                                  .shortest = 60,
                                  .longest = 60};
    struct lab *lab = lab_begin(&test, "loop");
    uint64_t count = rounds();

    if (manner == OWN_LOOP) /* from then on, policies arm by themselves */
        vw_queue_fd(lab->net, 0);
    for (uint64_t round = 0; round < (policy == VW_TX_ORPHAN ? count / 16 : count); round++) {
        if (policy == VW_TX_URGENT)
            round_of_urgent(lab);
        else if (policy == VW_TX_ORPHAN)
            round_of_orphans(lab);
        else
            round_of_calls(lab);
    }
    assert_null(vw_queue_error(lab->net, 0));
    print_message("# %s, %s, %s, device %s: %llu frames, slept %llu times\n", policy_name(policy),
                  features, manner_name(manner),
                  mode == VW_DEVICE_ADAPTIVE ? "adaptive" : "interrupt",
                  (unsigned long long)lab->sent, (unsigned long long)lab->waits);
    lab_end(lab);
}

static void each(enum vw_tx_policy policy)
{
    static const char *const rings[] = {
        "packed=off,event_idx=off,in_order=off", "packed=off,in_order=off", "packed=off",
        "packed=on,event_idx=off,in_order=off",  "packed=on,in_order=off",  "packed=on"};

    for (unsigned i = 0; i < VW_ARRAY_SIZE(rings); i++) {
        for (enum manner manner = OWN_LOOP; manner <= WAITING; manner++) {
            litmus(policy, rings[i], manner, VW_DEVICE_ADAPTIVE);
            litmus(policy, rings[i], manner, VW_DEVICE_INTERRUPT);
        }
    }
}

#define POLICY(name, policy)                                                                       \
    static void name(void **unused)                                                                \
    {                                                                                              \
        (void)unused;                                                                              \
        each(policy);                                                                              \
    }

POLICY(deferred, VW_TX_DEFERRED)
POLICY(orphan, VW_TX_ORPHAN)
POLICY(urgent, VW_TX_URGENT)
POLICY(delayed, VW_TX_DELAYED)
POLICY(scheduled, VW_TX_SCHEDULED)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred), cmocka_unit_test(orphan),    cmocka_unit_test(urgent),
        cmocka_unit_test(delayed),  cmocka_unit_test(scheduled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
