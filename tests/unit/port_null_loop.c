/* SPDX-License-Identifier: BSD-3-Clause */
/* Port descriptions, and the two ports that need no kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/uapi.h"
#include "port/port.h"

#define FRAME_SIZE 60
#define WAITING_RESULTS 256
#define LOOP_SLOTS 256

/* A frame in three pieces after its header, none of which ends where a field does. */
struct test_frame {
    struct virtio_net_hdr_v1 header;
    unsigned char bytes[FRAME_SIZE];
    struct iovec iov[4];
};

static struct vw_frame make_frame(struct test_frame *frame, uint32_t number)
{
    memset(frame, 0, sizeof(*frame));
    memcpy(frame->bytes, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5", 14);
    memcpy(frame->bytes + 14, &number, sizeof(number));
    frame->iov[0] = (struct iovec){&frame->header, sizeof(frame->header)};
    frame->iov[1] = (struct iovec){frame->bytes, 5};
    frame->iov[2] = (struct iovec){frame->bytes + 5, 4};
    frame->iov[3] = (struct iovec){frame->bytes + 9, FRAME_SIZE - 9};
    return (struct vw_frame){frame->iov, 4, FRAME_SIZE};
}

static struct vw_port *open_port(const char *description, unsigned queues)
{
    struct vw_port *port = NULL;
    char error[256] = "";
    int result = vw_port_open(description, queues, NULL, &port, error, sizeof(error));

    assert_string_equal(error, "");
    assert_int_equal(result, 0);
    assert_non_null(port);
    return port;
}

static uint32_t transmit_one(struct vw_port_queue *queue, uint32_t number)
{
    struct test_frame frame;
    struct vw_frame list = make_frame(&frame, number);

    return queue->port->ops->transmit(queue, &list, 1);
}

static uint32_t complete_all(struct vw_port_queue *queue)
{
    enum vw_port_result results[2 * WAITING_RESULTS];
    uint32_t count = queue->port->ops->complete(queue, results, 2 * WAITING_RESULTS);

    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i], VW_PORT_SENT);
    return count;
}

/* The number in a lent frame, whose addresses must have been swapped. */
static uint32_t lent_number(const struct vw_frame *frame)
{
    const unsigned char *bytes = frame->iov[1].iov_base;
    uint32_t number;

    assert_int_equal(frame->iov_count, 2);
    assert_int_equal(frame->iov[0].iov_len, VW_PORT_HEADER);
    assert_int_equal(frame->iov[1].iov_len, FRAME_SIZE);
    assert_int_equal(frame->length, FRAME_SIZE);
    assert_memory_equal(bytes, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5", 14);
    memcpy(&number, bytes + 14, sizeof(number));
    return number;
}

static void bad_descriptions_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *description;
        unsigned queues;
        const char *reason;
    } bad[] = {
        {"", 0, "unknown port ''"},
        {"tun", 0, "unknown port 'tun'"},
        {"nul", 0, "unknown port"},
        {"null,color=red", 0, "unknown option 'color=red'"},
        {"null,,queues=1", 0, "unknown option ''"},
        {"null,name=vw0", 0, "'name' is not for this kind"},
        {"loop,fd=3", 0, "'fd' is not for this kind"},
        {"loop,sndbuf=4096", 0, "'sndbuf' is not for this kind"},
        {"loop,queues=2,queues=2", 0, "given twice"},
        {"loop,queues", 0, "needs a value"},
        {"loop,queues=", 0, "needs a value"},
        {"loop,queues=0", 0, "from 1 to 256"},
        {"loop,queues=257", 0, "from 1 to 256"},
        {"loop,queues=-1", 0, "from 1 to 256"},
        {"loop,queues=+1", 0, "from 1 to 256"},
        {"loop,queues= 1", 0, "from 1 to 256"},
        {"loop,queues=1x", 0, "from 1 to 256"},
        {"loop,queues=0x1", 0, "from 1 to 256"},
        {"loop,queues=4294967297", 0, "from 1 to 256"},
        {"loop,queues=99999999999999999999999999", 0, "from 1 to 256"},
        {"null,mtu=67", 0, "from 68 to 65535"},
        {"null,mtu=65536", 0, "from 68 to 65535"},
        {"null,offload=yes", 0, "must be on or off"},
        {"loop,queues=2", 4, "make them equal"},
        {"loop", 257, "at most 256"},
        {"tap,name=vw0,fd=3", 0, "one of name, path and fd"},
        {"tap,fd=3:4", 1, "2 descriptors for 1 queues"},
        {"tap,fd=3:4,queues=3", 0, "2 descriptors for 3 queues"},
        {"tap,fd=3:3", 0, "given twice"},
        {"tap,fd=3:", 0, "must be descriptor numbers"},
        {"tap,fd=-1", 0, "must be descriptor numbers"},
        {"tap,fd=2147483648", 0, "must be descriptor numbers"},
        {"tap,sndbuf=0", 0, "from 1 to"},
        {"tap,coalesce=yes", 0, "must be off, on or auto"},
        {"tap,coalesce=on,offload=off", 0, "needs offload=on"},
        {"loop,coalesce=on", 0, "'coalesce' is not for this kind"},
        {"tap,name=abcdefghijklmnop", 0, "at most 15 characters"},
        {"tap,name=a/b", 0, "no '/'"},
        {"tap,name=..", 0, "no '/'"},
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
        struct vw_port *port = (struct vw_port *)(uintptr_t)1;
        char error[256] = "";
        int result =
            vw_port_open(bad[i].description, bad[i].queues, NULL, &port, error, sizeof(error));

        if (result != -EINVAL || port != NULL || strstr(error, bad[i].reason) == NULL)
            fail_msg("'%s' gave %d and \"%s\"", bad[i].description, result, error);
    }
}

static void a_description_of_any_length_is_safe(void **state)
{
    struct vw_port *port;
    char description[5000];
    char error[8];

    (void)state;
    memset(description, 'x', sizeof(description));
    description[sizeof(description) - 1] = '\0';
    assert_int_equal(vw_port_open(description, 0, NULL, &port, error, sizeof(error)), -EINVAL);
    assert_true(strlen(error) < sizeof(error));
    assert_int_equal(vw_port_open(description, 0, NULL, &port, NULL, 0), -EINVAL);
}

static void the_options_of_every_port(void **state)
{
    static const struct {
        const char *description;
        unsigned asked, queues, mtu;
        bool offload;
    } good[] = {
        {"null", 0, 1, 0, true},
        {"loop", 3, 3, 0, true},
        {"loop,queues=256", 0, 256, 0, true},
        {"null,queues=2", 2, 2, 0, true},
        {"null,", 0, 1, 0, true},
        {"loop,offload=off,mtu=9000,queues=4", 4, 4, 9000, false},
        {"loop,offload=on", 0, 1, 0, true},
    };

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(good); i++) {
        struct vw_port *port = open_port(good[i].description, good[i].asked);
        uint64_t all = vw_bit(VIRTIO_NET_F_CSUM) | vw_bit(VIRTIO_NET_F_GUEST_CSUM) |
                       vw_bit(VIRTIO_NET_F_HOST_USO) | vw_bit(VIRTIO_NET_F_GUEST_USO6);

        assert_int_equal(port->queue_count, good[i].queues);
        for (unsigned q = 0; q < port->queue_count; q++) {
            assert_ptr_equal(port->queues[q]->port, port);
            assert_int_equal(port->queues[q]->index, q);
        }
        assert_int_equal(port->mtu, good[i].mtu);
        assert_true((port->features & all) == (good[i].offload ? all : 0));
        assert_true(port->ops->set_guest_offloads(port, all | 1ULL << 63) ==
                    (int64_t)(port->features & all));
        assert_int_equal(port->ops->set_active_queues(port, 0), -EINVAL);
        assert_int_equal(port->ops->set_active_queues(port, 1), 0);
        assert_int_equal(port->ops->set_active_queues(port, port->queue_count + 1), -EINVAL);
        assert_true(port->link_up);
        assert_int_equal(port->link_fd, -1);
        port->ops->close(port);
    }
}

static void null_swallows_everything(void **state)
{
    struct vw_port *port = open_port("null", 1);
    struct vw_port_queue *queue = port->queues[0];
    struct vw_port_wait wait;
    struct vw_frame frames[1];

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(transmit_one(queue, i), 1);
        assert_int_equal(complete_all(queue), 1);
    }
    assert_int_equal(queue->counters.transmit_sent, 1000);
    assert_int_equal(port->ops->receive(queue, frames, 1), 0);
    port->ops->release(queue, 1);
    port->ops->drain(queue);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.fd, -1);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->close(port);
}

/* A device that does not complete is held back; it loses no result. */
static void results_wait_for_the_device(void **state)
{
    struct vw_port *port = open_port("null", 1);
    struct vw_port_queue *queue = port->queues[0];
    struct vw_port_wait wait;

    (void)state;
    for (uint32_t i = 0; i < WAITING_RESULTS; i++)
        assert_int_equal(transmit_one(queue, i), 1);
    assert_int_equal(transmit_one(queue, 0), 0);
    port->ops->want(queue, false, true, &wait);
    assert_int_equal(wait.timeout_ms, 0);
    assert_int_equal(complete_all(queue), WAITING_RESULTS);
    assert_int_equal(complete_all(queue), 0);
    assert_int_equal(transmit_one(queue, 0), 1);
    assert_int_equal(complete_all(queue), 1);
    port->ops->close(port);
}

static void loop_returns_frames_in_order(void **state)
{
    struct vw_port *port = open_port("loop", 1);
    struct vw_port_queue *queue = port->queues[0];
    struct vw_frame lent[7];
    uint32_t sent = 0, seen = 0, count;

    (void)state;
    /* Uneven bursts walk round the ring several times, past every alignment of its indices. */
    while (seen < 5000) {
        for (uint32_t burst = 0; burst < 13 && sent < 5000; burst++) {
            if (transmit_one(queue, sent) == 0)
                break;
            sent++;
        }
        complete_all(queue);
        count = port->ops->receive(queue, lent, 7);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(lent_number(&lent[i]), seen++);
        port->ops->release(queue, count);
    }
    assert_int_equal(queue->counters.receive_frames, 5000);
    assert_int_equal(queue->counters.transmit_sent, 5000);
    assert_true(queue->counters.transmit_full > 0);
    port->ops->close(port);
}

static void a_full_loop_takes_no_more(void **state)
{
    struct vw_port *port = open_port("loop", 1);
    struct vw_port_queue *queue = port->queues[0];
    static struct test_frame frames[LOOP_SLOTS + 10];
    static struct vw_frame list[LOOP_SLOTS + 10], lent[LOOP_SLOTS];
    struct vw_port_wait wait;
    uint32_t sent = 0;

    (void)state;
    for (uint32_t i = 0; i < LOOP_SLOTS + 10; i++)
        list[i] = make_frame(&frames[i], i);
    while (sent < LOOP_SLOTS) { /* in bursts that do not divide the ring */
        uint32_t taken = port->ops->transmit(queue, list + sent, 50);

        assert_int_equal(taken, sent + 50 > LOOP_SLOTS ? LOOP_SLOTS - sent : 50);
        assert_int_equal(complete_all(queue), taken);
        sent += taken;
    }
    port->ops->want(queue, false, true, &wait);
    assert_int_equal(wait.fd, -1);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->want(queue, true, true, &wait);
    assert_int_equal(wait.timeout_ms, 0); /* there is something to receive */

    /* Lending frees nothing; only giving back does. */
    assert_int_equal(port->ops->receive(queue, lent, LOOP_SLOTS), LOOP_SLOTS);
    assert_int_equal(port->ops->transmit(queue, list + sent, 10), 0);
    port->ops->want(queue, true, true, &wait);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->release(queue, 3);
    port->ops->want(queue, false, true, &wait);
    assert_int_equal(wait.timeout_ms, 0);
    assert_int_equal(port->ops->transmit(queue, list + sent, 10), 3);
    /* The frames that are still lent were not overwritten. */
    for (uint32_t i = 3; i < LOOP_SLOTS; i++)
        assert_int_equal(lent_number(&lent[i]), i);
    port->ops->release(queue, 100000); /* more than is lent: all of it, and not what is stored */
    assert_int_equal(port->ops->receive(queue, lent, LOOP_SLOTS), 3);
    assert_int_equal(lent_number(&lent[0]), LOOP_SLOTS);
    assert_int_equal(lent_number(&lent[2]), LOOP_SLOTS + 2);
    port->ops->close(port);
}

static void loop_turns_the_header(void **state)
{
    struct vw_port *port = open_port("loop", 1);
    struct vw_port_queue *queue = port->queues[0];
    struct test_frame frame;
    struct vw_frame list = make_frame(&frame, 1), lent;
    struct virtio_net_hdr_v1 header;

    (void)state;
    memset(&frame.header, 0xa5, sizeof(frame.header));
    frame.header.flags = 0xff;
    assert_int_equal(port->ops->transmit(queue, &list, 1), 1);
    frame.header.flags = 0xfe;
    assert_int_equal(port->ops->transmit(queue, &list, 1), 1);

    assert_int_equal(port->ops->receive(queue, &lent, 1), 1);
    memcpy(&header, lent.iov[0].iov_base, sizeof(header));
    assert_int_equal(header.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    assert_int_equal(header.gso_type, 0xa5);
    assert_int_equal(header.hdr_len, 0xa5a5);
    assert_int_equal(header.gso_size, 0xa5a5);
    assert_int_equal(header.csum_start, 0xa5a5);
    assert_int_equal(header.csum_offset, 0xa5a5);
    assert_int_equal(header.num_buffers, 0);

    assert_int_equal(port->ops->receive(queue, &lent, 1), 1);
    memcpy(&header, lent.iov[0].iov_base, sizeof(header));
    assert_int_equal(header.flags, 0);
    port->ops->close(port);
}

static void loop_checks_the_length(void **state)
{
    struct vw_port *port = open_port("loop", 1);
    struct vw_port_queue *queue = port->queues[0];
    static const struct {
        uint32_t length;
        enum vw_port_result result;
    } cases[] = {
        {0, VW_PORT_REFUSED},
        {13, VW_PORT_REFUSED},
        {14, VW_PORT_SENT},
        {VW_PORT_MAX_FRAME, VW_PORT_SENT},
        {VW_PORT_MAX_FRAME + 1, VW_PORT_REFUSED},
        {UINT32_MAX, VW_PORT_REFUSED},
    };
    struct virtio_net_hdr_v1 header = {0};
    unsigned char *bytes = malloc(VW_PORT_MAX_FRAME);
    struct vw_frame lent;
    enum vw_port_result result;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 7, VW_PORT_MAX_FRAME);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        size_t size = cases[i].length > VW_PORT_MAX_FRAME ? VW_PORT_MAX_FRAME : cases[i].length;
        struct iovec iov[2] = {{&header, sizeof(header)}, {bytes, size}};
        struct vw_frame frame = {iov, 2, cases[i].length};

        assert_int_equal(port->ops->transmit(queue, &frame, 1), 1);
        assert_int_equal(port->ops->complete(queue, &result, 1), 1);
        assert_int_equal(result, cases[i].result);
        assert_int_equal(port->ops->receive(queue, &lent, 1), result == VW_PORT_SENT);
        if (result == VW_PORT_SENT) {
            assert_int_equal(lent.length, cases[i].length);
            assert_memory_equal(lent.iov[1].iov_base, bytes, cases[i].length);
            port->ops->release(queue, 1);
        }
    }
    /* A list that is shorter than it says would show what was in the buffer before. */
    struct iovec iov[2] = {{&header, sizeof(header)}, {bytes, 20}};
    struct vw_frame frame = {iov, 2, 21};
    assert_int_equal(port->ops->transmit(queue, &frame, 1), 1);
    assert_int_equal(port->ops->complete(queue, &result, 1), 1);
    assert_int_equal(result, VW_PORT_FAILED);
    assert_int_equal(port->ops->receive(queue, &lent, 1), 0);
    assert_int_equal(queue->counters.transmit_refused, 4);
    assert_int_equal(queue->counters.transmit_failed, 1);
    free(bytes);
    port->ops->close(port);
}

static void queues_of_a_loop_are_separate(void **state)
{
    struct vw_port *port = open_port("loop,queues=2", 2);
    struct vw_frame lent[2];

    (void)state;
    assert_int_equal(transmit_one(port->queues[0], 10), 1);
    assert_int_equal(transmit_one(port->queues[1], 11), 1);
    assert_int_equal(port->ops->receive(port->queues[1], lent, 2), 1);
    assert_int_equal(lent_number(&lent[0]), 11);
    assert_int_equal(port->ops->receive(port->queues[0], lent, 2), 1);
    assert_int_equal(lent_number(&lent[0]), 10);
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_descriptions_are_refused_with_a_reason),
        cmocka_unit_test(a_description_of_any_length_is_safe),
        cmocka_unit_test(the_options_of_every_port),
        cmocka_unit_test(null_swallows_everything),
        cmocka_unit_test(results_wait_for_the_device),
        cmocka_unit_test(loop_returns_frames_in_order),
        cmocka_unit_test(a_full_loop_takes_no_more),
        cmocka_unit_test(loop_turns_the_header),
        cmocka_unit_test(loop_checks_the_length),
        cmocka_unit_test(queues_of_a_loop_are_separate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
