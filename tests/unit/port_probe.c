/* SPDX-License-Identifier: BSD-3-Clause */
/* The ports for measurements, sink and source: against each other, and against wrong frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "net/probe.h"
#include "net/uapi.h"
#include "port/port.h"

static struct vw_port *open_port(const char *description, unsigned queues)
{
    struct vw_port *port = NULL;
    char error[256] = "";
    int result = vw_port_open(description, queues, NULL, &port, error, sizeof(error));

    assert_string_equal(error, "");
    assert_int_equal(result, 0);
    return port;
}

static void close_port(struct vw_port *port)
{
    port->ops->close(port);
}

static uint32_t receive(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t max)
{
    return queue->port->ops->receive(queue, frames, max);
}

/* All frames are taken and are sent. */
static void transmit(struct vw_port_queue *queue, struct vw_frame *frames, uint32_t count)
{
    enum vw_port_result results[VW_PORT_BATCH];

    assert_int_equal(queue->port->ops->transmit(queue, frames, count), count);
    assert_int_equal(queue->port->ops->complete(queue, results, VW_PORT_BATCH), count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i], VW_PORT_SENT);
}

/* Moves `count` frames from a source to a sink in batches of changing size. */
static void move(struct vw_port_queue *from, struct vw_port_queue *to, unsigned count)
{
    struct vw_frame frames[VW_PORT_BATCH];

    for (unsigned moved = 0, batch = 1; moved < count; moved += batch) {
        batch = batch % VW_PORT_BATCH + 1;
        if (batch > count - moved)
            batch = count - moved;
        assert_int_equal(receive(from, frames, batch), batch);
        transmit(to, frames, batch);
        from->port->ops->release(from, batch);
    }
}

static void what_a_source_makes_a_sink_finds_intact(void **state)
{
    static const char *const sizes[] = {
        "", ",size=60", ",size=imix", ",size=60:9000", ",size=2000-2100,flows=7", ",size=65549"};

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(sizes); i++) {
        char description[64] = "source";
        struct vw_port *sink = open_port("sink", 1);
        struct vw_port *source = open_port(strcat(description, sizes[i]), 1);
        const struct vw_probe_counters *probe = sink->queues[0]->probe;

        move(source->queues[0], sink->queues[0], 2000);
        assert_int_equal(probe->frames, 2000);
        assert_int_equal(probe->lost + probe->reordered + probe->duplicate + probe->corrupt, 0);
        assert_int_equal(probe->foreign + probe->before + probe->restarts, 0);
        assert_int_equal(probe->flows, i == 4 ? 7 : 1);
        assert_int_equal(sink->queues[0]->counters.transmit_sent, 2000);
        assert_int_equal(source->queues[0]->counters.receive_frames, 2000);
        close_port(source);
        close_port(sink);
    }
}

static void a_sink_counts_what_is_wrong(void **state)
{
    struct vw_port *sink = open_port("sink", 1), *source = open_port("source", 1);
    const struct vw_probe_counters *probe = sink->queues[0]->probe;
    struct vw_frame frames[8];

    (void)state;
    assert_int_equal(receive(source->queues[0], frames, 8), 8);
    transmit(sink->queues[0], frames, 2);
    transmit(sink->queues[0], frames + 1, 1);      /* duplicate */
    transmit(sink->queues[0], frames + 4, 2);      /* 2 and 3 are missing */
    transmit(sink->queues[0], frames + 3, 1);      /* late */
    ((char *)frames[6].iov[1].iov_base)[55] ^= 64; /* corrupt */
    ((char *)frames[7].iov[1].iov_base)[12] ^= 64; /* foreign */
    transmit(sink->queues[0], frames + 6, 2);
    assert_int_equal(probe->frames, 6);
    assert_int_equal(probe->duplicate, 1);
    assert_int_equal(probe->reordered, 1);
    assert_int_equal(probe->lost, 1);
    assert_int_equal(probe->corrupt, 1);
    assert_int_equal(probe->foreign, 1);
    close_port(source);
    close_port(sink);
}

/* Frames as guests make them: in pieces that end anywhere, long and short ones in one batch. */
static void a_sink_takes_frames_in_pieces(void **state)
{
    struct vw_port *sink = open_port("sink", 1), *source = open_port("source,size=60:3000:64", 1);
    struct vw_frame frames[VW_PORT_BATCH];
    struct iovec pieces[VW_PORT_BATCH][4];
    struct virtio_net_hdr_v1 header = {0};

    (void)state;
    assert_int_equal(receive(source->queues[0], frames, VW_PORT_BATCH), VW_PORT_BATCH);
    for (unsigned i = 0; i < VW_PORT_BATCH; i++) {
        char *bytes = frames[i].iov[1].iov_base;

        pieces[i][0] = (struct iovec){&header, sizeof(header)};
        pieces[i][1] = (struct iovec){bytes, 1 + i % 50};
        pieces[i][2] = (struct iovec){bytes + 1 + i % 50, 3};
        pieces[i][3] = (struct iovec){bytes + 4 + i % 50, frames[i].length - 4 - i % 50};
        frames[i].iov = pieces[i];
        frames[i].iov_count = 4;
    }
    transmit(sink->queues[0], frames, VW_PORT_BATCH);
    assert_int_equal(sink->queues[0]->probe->frames, VW_PORT_BATCH);
    assert_int_equal(sink->queues[0]->probe->lost + sink->queues[0]->probe->corrupt, 0);
    close_port(source);
    close_port(sink);
}

/* A list that is shorter than the frame it says, and a frame longer than any. */
static void a_sink_believes_no_length(void **state)
{
    struct vw_port *sink = open_port("sink", 1);
    char *bytes = calloc(1, 100000);
    struct iovec iov[2] = {{bytes, VW_PORT_HEADER}, {bytes, 100}};
    struct vw_frame frames[3] = {{iov, 2, 2000}, {iov, 2, 60000}, {iov, 2, UINT32_MAX}};

    (void)state;
    transmit(sink->queues[0], frames, 3);
    iov[1].iov_len = 100000;
    frames[0].length = 100000;
    transmit(sink->queues[0], frames, 1);
    assert_int_equal(sink->queues[0]->probe->foreign, 4);
    free(bytes);
    close_port(sink);
}

static void a_source_ends_at_its_count(void **state)
{
    struct vw_port *port = open_port("source,count=100", 1);
    struct vw_port_queue *queue = port->queues[0];
    struct vw_frame frames[VW_PORT_BATCH];
    struct vw_port_wait wait;

    (void)state;
    assert_int_equal(receive(queue, frames, VW_PORT_BATCH), VW_PORT_BATCH);
    /* all buffers are lent: nothing more until some come back, and no spinning for them */
    assert_int_equal(receive(queue, frames, VW_PORT_BATCH), 0);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.timeout_ms, -1);
    port->ops->release(queue, 1);
    assert_int_equal(receive(queue, frames, VW_PORT_BATCH), 1);
    port->ops->release(queue, 1000);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.timeout_ms, 0);
    assert_int_equal(receive(queue, frames, VW_PORT_BATCH), 35);
    port->ops->release(queue, 35);
    assert_int_equal(receive(queue, frames, VW_PORT_BATCH), 0);
    port->ops->want(queue, true, false, &wait);
    assert_int_equal(wait.timeout_ms, -1);
    close_port(port);
}

static void queues_have_flows_of_their_own(void **state)
{
    struct vw_port *sink = open_port("sink", 3), *source = open_port("source,flows=8,queues=3", 3);
    struct vw_port *one = open_port("sink", 1);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        move(source->queues[i], sink->queues[i], 600);
        move(source->queues[i], one->queues[0], 600);
        assert_int_equal(sink->queues[i]->probe->flows, i < 2 ? 3 : 2);
        assert_int_equal(sink->queues[i]->probe->lost, 0);
    }
    assert_int_equal(one->queues[0]->probe->flows, 8);
    assert_int_equal(one->queues[0]->probe->frames, 1800);
    close_port(one);
    close_port(source);
    close_port(sink);
}

static void a_source_checks_what_comes_back(void **state)
{
    struct vw_port *port = open_port("source", 1);
    struct vw_frame frames[4];

    (void)state;
    assert_int_equal(receive(port->queues[0], frames, 4), 4);
    transmit(port->queues[0], frames, 2);
    transmit(port->queues[0], frames + 3, 1);
    assert_int_equal(port->queues[0]->probe->frames, 3);
    assert_int_equal(port->queues[0]->probe->lost, 1);
    close_port(port);
}

static void bad_options_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *description;
        unsigned queues;
        const char *reason;
    } bad[] = {
        {"sink,size=64", 0, "'size' is not for this kind"},
        {"sink,flows=1", 0, "'flows' is not for this kind"},
        {"loop,count=1", 0, "'count' is not for this kind"},
        {"source,size=59", 0, "from 60 to 65549"},
        {"source,size=65550", 0, "from 60 to 65549"},
        {"source,size=", 0, "needs a value"},
        {"source,size=64:", 0, "must be a length"},
        {"source,flows=0", 0, "from 1 to 32768"},
        {"source,flows=32769", 0, "from 1 to 32768"},
        {"source,count=0", 0, "from 1 to 4294967295"},
        {"source,flows=2", 3, "less than its 3 queues"},
        {"source,name=vw0", 0, "'name' is not for this kind"},
        {"sunk", 0, "must be tap, afxdp, loop, null, sink or source"},
    };
    struct vw_port *port;
    char error[256];

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
        assert_int_equal(
            vw_port_open(bad[i].description, bad[i].queues, NULL, &port, error, sizeof(error)),
            -EINVAL);
        if (strstr(error, bad[i].reason) == NULL)
            fail_msg("%s: '%s'", bad[i].description, error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_source_makes_a_sink_finds_intact),
        cmocka_unit_test(a_sink_counts_what_is_wrong),
        cmocka_unit_test(a_sink_takes_frames_in_pieces),
        cmocka_unit_test(a_sink_believes_no_length),
        cmocka_unit_test(a_source_ends_at_its_count),
        cmocka_unit_test(queues_have_flows_of_their_own),
        cmocka_unit_test(a_source_checks_what_comes_back),
        cmocka_unit_test(bad_options_are_refused_with_a_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
