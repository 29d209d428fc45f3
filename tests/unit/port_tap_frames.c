/* SPDX-License-Identifier: BSD-3-Clause */
/* The TAP port against the kernel: frames both ways, offloads, several queues. */
#include "tap_lab.h"

static void frames_from_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=tin", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tin", TEST_TYPE);
    unsigned char bytes[1600];

    (void)state;
    for (uint32_t n = 0; n < 300; n++) { /* fewer than the 500 that the kernel's ring holds */
        fill_frame(bytes, length_of(n), n);
        assert_int_equal(send(packet, bytes, length_of(n), 0), length_of(n));
    }
    for (uint32_t n = 0; n < 300; n++) {
        struct vw_frame frame = receive_type(queue, TEST_TYPE);

        assert_int_equal(frame.length, length_of(n));
        assert_int_equal(frame.iov[1].iov_len, frame.length);
        check_frame(frame.iov[1].iov_base, frame.length, n);
        assert_int_equal(header_of(&frame).flags, 0);
        assert_int_equal(header_of(&frame).gso_type, VIRTIO_NET_HDR_GSO_NONE);
        assert_int_equal(header_of(&frame).num_buffers, 0);
        /* What the device may write there must not be seen again with the next frame. */
        memset(frame.iov[0].iov_base, 0xee, VW_PORT_HEADER);
        port->ops->release(queue, 1);
    }
    assert_true(queue->counters.receive_frames >= 300);
    close(packet);
    port->ops->close(port);
}

static void lent_frames_are_left_alone(void **state)
{
    struct vw_port *port = open_port("tap,name=tlend", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tlend", TEST_TYPE);
    struct vw_frame lent[2 * VW_PORT_BATCH];
    unsigned char bytes[1600];
    uint32_t first = 0, count = 0;

    (void)state;
    for (uint32_t n = 0; n < 200; n++) {
        fill_frame(bytes, 60, n);
        assert_int_equal(send(packet, bytes, 60, 0), 60);
    }
    while (count < VW_PORT_BATCH)
        count += port->ops->receive(queue, &lent[count], 2 * VW_PORT_BATCH - count);
    assert_int_equal(count, VW_PORT_BATCH); /* all buffers are lent */
    assert_int_equal(port->ops->receive(queue, &lent[count], 1), 0);
    port->ops->release(queue, 10);
    assert_int_equal(port->ops->receive(queue, &lent[count], VW_PORT_BATCH), 10);
    /* The kernel's own frames come before the first of ours, if at all. */
    while (((unsigned char *)lent[first].iov[1].iov_base)[12] != 0x88 || first < 10)
        first++;
    uint32_t base;
    memcpy(&base, (unsigned char *)lent[first].iov[1].iov_base + 14, sizeof(base));
    for (uint32_t i = first; i < VW_PORT_BATCH + 10; i++)
        check_frame(lent[i].iov[1].iov_base, lent[i].length, base + i - first);
    port->ops->release(queue, 1000); /* more than are lent is all of them */
    assert_int_equal(port->ops->receive(queue, lent, VW_PORT_BATCH), VW_PORT_BATCH);
    close(packet);
    port->ops->close(port);
}

static void frames_to_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=tout", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tout", TEST_TYPE);
    static unsigned char bytes[VW_PORT_BATCH][1600];
    static struct iovec iov[VW_PORT_BATCH][4];
    unsigned char header[VW_PORT_HEADER] = {0}, got[1600];
    struct vw_frame frames[VW_PORT_BATCH];
    enum vw_port_result results[VW_PORT_BATCH];

    (void)state;
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < VW_PORT_BATCH; i++) {
            uint32_t n = round * VW_PORT_BATCH + i;

            fill_frame(bytes[i], length_of(n), n);
            iov[i][0] = (struct iovec){header, sizeof(header)};
            iov[i][1] = (struct iovec){bytes[i], 3};
            iov[i][2] = (struct iovec){bytes[i] + 3, n % 50};
            iov[i][3] = (struct iovec){bytes[i] + 3 + n % 50, length_of(n) - 3 - n % 50};
            frames[i] = (struct vw_frame){iov[i], 4, (uint32_t)length_of(n)};
        }
        assert_int_equal(port->ops->transmit(queue, frames, VW_PORT_BATCH), VW_PORT_BATCH);
        assert_int_equal(port->ops->complete(queue, results, VW_PORT_BATCH), VW_PORT_BATCH);
        for (uint32_t i = 0; i < VW_PORT_BATCH; i++)
            assert_int_equal(results[i], VW_PORT_SENT);
    }
    for (uint32_t n = 0; n < 5 * VW_PORT_BATCH; n++) {
        assert_int_equal(recv(packet, got, sizeof(got), 0), length_of(n));
        check_frame(got, length_of(n), n);
    }
    assert_int_equal(queue->counters.transmit_sent, 5 * VW_PORT_BATCH);
    assert_int_equal(queue->counters.batches, with_ring() ? 5 : 0);
    assert_int_equal(queue->counters.batched, with_ring() ? 5 * VW_PORT_BATCH : 0);
    close(packet);
    port->ops->close(port);
}

static void a_frame_in_very_many_pieces(void **state)
{
    struct vw_port *port = open_port("tap,name=tpieces", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("tpieces", TEST_TYPE);
    static const uint32_t counts[] = {1023, 1024, 1500};
    unsigned char header[VW_PORT_HEADER] = {0}, bytes[1600], got[1600];
    struct iovec iov[1501];

    (void)state;
    for (unsigned c = 0; c < VW_ARRAY_SIZE(counts); c++) {
        fill_frame(bytes, counts[c], c);
        iov[0] = (struct iovec){header, sizeof(header)};
        for (uint32_t i = 0; i < counts[c]; i++)
            iov[i + 1] = (struct iovec){bytes + i, 1};
        struct vw_frame frame = {iov, counts[c] + 1, counts[c]};
        assert_int_equal(port->ops->transmit(queue, &frame, 1), 1);
        assert_int_equal(completed(queue), VW_PORT_SENT);
        assert_int_equal(recv(packet, got, sizeof(got), 0), counts[c]);
        check_frame(got, counts[c], c);
    }
    assert_int_equal(queue->counters.transmit_linearised, 2);
    close(packet);
    port->ops->close(port);
}

#define CSUM vw_bit(VIRTIO_NET_F_GUEST_CSUM)
#define TSO4 vw_bit(VIRTIO_NET_F_GUEST_TSO4)
#define TSO6 vw_bit(VIRTIO_NET_F_GUEST_TSO6)
#define ECN vw_bit(VIRTIO_NET_F_GUEST_ECN)
#define USO4 vw_bit(VIRTIO_NET_F_GUEST_USO4)
#define USO6 vw_bit(VIRTIO_NET_F_GUEST_USO6)

static void offloads_that_take_effect(void **state)
{
    struct vw_port *port = open_port("tap,name=toff", 1);
    uint64_t uso = port->features & (USO4 | USO6);
    const struct {
        uint64_t asked, effective;
    } cases[] = {
        {0, 0},
        {CSUM, CSUM},
        {TSO4 | TSO6 | ECN | USO4 | USO6, 0}, /* all of them need the checksum */
        {CSUM | TSO4, CSUM | TSO4},
        {CSUM | TSO6 | ECN, CSUM | TSO6 | ECN},
        {CSUM | ECN, CSUM},
        {CSUM | USO4, CSUM},
        {CSUM | USO6, CSUM},
        {CSUM | USO4 | USO6, CSUM | uso},
        {CSUM | TSO4 | TSO6 | ECN | USO4 | USO6, CSUM | TSO4 | TSO6 | ECN | uso},
        {~UINT64_C(0), CSUM | TSO4 | TSO6 | ECN | uso},
    };

    (void)state;
    assert_true(uso == 0 || uso == (USO4 | USO6));
    assert_true(vw_has(port->features, VIRTIO_NET_F_HOST_USO) == (uso != 0));
    assert_true(vw_has(port->features, VIRTIO_NET_F_CSUM));
    assert_true(vw_has(port->features, VIRTIO_NET_F_HOST_TSO4));
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++)
        assert_true(port->ops->set_guest_offloads(port, cases[i].asked) ==
                    (int64_t)cases[i].effective);
    port->ops->close(port);

    port = open_port("tap,name=toff,offload=off", 1);
    assert_true(port->features == 0);
    assert_true(port->ops->set_guest_offloads(port, CSUM | TSO4) == 0);
    port->ops->close(port);
}

static void partial_checksums_from_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=tcsum", 1);
    struct vw_port_queue *queue = port->queues[0];
    int udp = udp_socket("tcsum");
    char data[101];

    (void)state;
    memset(data, 0x5a, sizeof(data));
    for (int on = 0; on <= 1; on++) {
        assert_true(port->ops->set_guest_offloads(port, on ? CSUM : 0) == (on ? (int64_t)CSUM : 0));
        assert_int_equal(send(udp, data, sizeof(data), 0), sizeof(data));
        struct vw_frame frame = receive_type(queue, ETH_P_IP);
        struct virtio_net_hdr_v1 header = header_of(&frame);
        const unsigned char *bytes = frame.iov[1].iov_base;
        uint32_t pseudo = pseudo_sum(bytes, frame.length);

        assert_int_equal(frame.length, UDP_DATA + sizeof(data));
        assert_memory_equal(bytes + UDP_DATA, data, sizeof(data));
        assert_int_equal(header.flags, on ? VIRTIO_NET_HDR_F_NEEDS_CSUM : 0);
        if (on) {
            assert_int_equal(header.csum_start, UDP_OFFSET);
            assert_int_equal(header.csum_offset, 6);
            assert_int_equal(bytes[UDP_OFFSET + 6] << 8 | bytes[UDP_OFFSET + 7], pseudo);
        } else {
            assert_int_equal(sum_words(bytes + UDP_OFFSET, frame.length - UDP_OFFSET, pseudo),
                             0xffff);
        }
        port->ops->release(queue, 1);
    }
    close(udp);
    port->ops->close(port);
}

/* One TCP segment of 3000 bytes, to be cut into 1400, 1400 and 200. */
static void send_tcp_segment(int packet)
{
    static unsigned char bytes[10 + 54 + 3000];
    unsigned char *frame = bytes + 10;
    struct virtio_net_hdr header = {
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
        .hdr_len = 54,
        .gso_size = 1400,
        .csum_start = 34,
        .csum_offset = 16,
    };

    memcpy(bytes, &header, sizeof(header));
    memcpy(frame, PEER_MAC "\x02\x00\x00\x00\x00\x01\x08\x00", 14);
    memcpy(frame + IP_OFFSET, "\x45\x00\x00\x00\x00\x00\x40\x00\x40\x06\x00\x00", 12);
    put16(frame + IP_OFFSET + 2, 40 + 3000);
    memcpy(frame + IP_OFFSET + 12, "\x0a\x63\x00\x01\x0a\x63\x00\x02", 8);
    put16(frame + IP_OFFSET + 10, ~sum_words(frame + IP_OFFSET, 20, 0) & 0xffff);
    memcpy(frame + 34, "\x1b\x58\x1b\x58\x00\x00\x00\x01\x00\x00\x00\x01\x50\x10\x20\x00", 16);
    put16(frame + 34 + 16, sum_words(frame + IP_OFFSET + 12, 8, 6 + 20 + 3000));
    assert_int_equal(send(packet, bytes, sizeof(bytes), 0), sizeof(bytes));
}

static void tcp_segments_from_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=ttso", 1);
    struct vw_port_queue *queue = port->queues[0];
    int packet = packet_socket("ttso", ETH_P_IP), on = 1;
    static const uint32_t cut[] = {54 + 1400, 54 + 1400, 54 + 200};

    (void)state;
    assert_int_equal(setsockopt(packet, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)), 0);
    send_tcp_segment(packet);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(cut); i++) {
        struct vw_frame frame = receive_type(queue, ETH_P_IP);

        assert_int_equal(frame.length, cut[i]);
        assert_int_equal(header_of(&frame).gso_type, VIRTIO_NET_HDR_GSO_NONE);
        assert_int_equal(header_of(&frame).flags, 0);
        port->ops->release(queue, 1);
    }
    assert_true(port->ops->set_guest_offloads(port, CSUM | TSO4) > 0);
    send_tcp_segment(packet);
    struct vw_frame frame = receive_type(queue, ETH_P_IP);
    assert_int_equal(frame.length, 54 + 3000);
    assert_int_equal(header_of(&frame).gso_type, VIRTIO_NET_HDR_GSO_TCPV4);
    assert_int_equal(header_of(&frame).gso_size, 1400);
    assert_int_equal(header_of(&frame).flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    close(packet);
    port->ops->close(port);
}

static void udp_segments_from_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=tuso", 1);
    struct vw_port_queue *queue = port->queues[0];
    int udp = udp_socket("tuso"), size = 1000;
    static char data[5000];
    int64_t effective;

    (void)state;
    assert_int_equal(setsockopt(udp, IPPROTO_UDP, 103 /* UDP_SEGMENT */, &size, sizeof(size)), 0);
    for (int on = 0; on <= 1; on++) {
        effective = port->ops->set_guest_offloads(port, on ? CSUM | USO4 | USO6 : 0);
        assert_int_equal(send(udp, data, sizeof(data), 0), sizeof(data));
        bool whole = vw_has((uint64_t)effective, VIRTIO_NET_F_GUEST_USO4);
        for (unsigned i = 0; i < (whole ? 1 : 5); i++) {
            struct vw_frame frame = receive_type(queue, ETH_P_IP);

            assert_int_equal(frame.length, UDP_DATA + (whole ? 5000 : 1000));
            assert_int_equal(header_of(&frame).gso_type,
                             whole ? VIRTIO_NET_HDR_GSO_UDP_L4 : VIRTIO_NET_HDR_GSO_NONE);
            assert_int_equal(header_of(&frame).gso_size, whole ? 1000 : 0);
            port->ops->release(queue, 1);
        }
    }
    close(udp);
    port->ops->close(port);
}

static void offloads_to_the_kernel(void **state)
{
    struct vw_port *port = open_port("tap,name=thost", 1);
    struct vw_port_queue *queue = port->queues[0];
    int udp = udp_socket("thost");
    static unsigned char frame[6000], got[6000];
    struct virtio_net_hdr_v1 header = udp_partial;
    size_t length = udp_frame(frame, "thost", 101);

    (void)state;
    /* The kernel takes the sum for granted, as from its own stack. */
    assert_true(transmit(queue, &header, frame, length));
    assert_int_equal(completed(queue), VW_PORT_SENT);
    assert_int_equal(recv(udp, got, sizeof(got), 0), 101);
    assert_memory_equal(got, frame + UDP_DATA, 101);
    if (vw_has(port->features, VIRTIO_NET_F_HOST_USO)) {
        length = udp_frame(frame, "thost", 4500);
        header.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
        header.gso_size = 1000;
        header.hdr_len = UDP_DATA;
        assert_true(transmit(queue, &header, frame, length));
        assert_int_equal(completed(queue), VW_PORT_SENT);
        for (unsigned i = 0; i < 5; i++) {
            size_t size = i < 4 ? 1000 : 500;

            assert_int_equal(recv(udp, got, sizeof(got), 0), size);
            assert_memory_equal(got, frame + UDP_DATA + i * 1000, size);
        }
    }
    close(udp);
    port->ops->close(port);
}

/* The kernel answers a flow on the queue that its last frame came from, if that one is active. */
static void frames_come_on_active_queues_only(void **state)
{
    struct vw_port *port = open_port("tap,name=tmq,queues=3", 3);
    static const struct {
        unsigned active, expected;
    } steps[] = {{3, 2}, {1, 0}, {1, 0}, {2, 1}, {3, 2}, {1, 0}, {3, 2}};
    int udp = udp_socket("tmq");
    unsigned char bytes[200], got[200];

    (void)state;
    assert_int_equal(port->ops->set_active_queues(port, 0), -EINVAL);
    assert_int_equal(port->ops->set_active_queues(port, 4), -EINVAL);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(steps); i++) {
        struct vw_port_queue *queue = port->queues[steps[i].expected];

        assert_int_equal(port->ops->set_active_queues(port, steps[i].active), 0);
        size_t length = udp_frame(bytes, "tmq", 32 + i);
        assert_true(transmit(queue, &udp_partial, bytes, length));
        assert_int_equal(completed(queue), VW_PORT_SENT);
        assert_int_equal(recv(udp, got, sizeof(got), 0), 32 + i);
        assert_int_equal(send(udp, got, 32 + i, 0), 32 + i);
        struct vw_frame frame = receive_type(queue, ETH_P_IP);
        assert_int_equal(frame.length, UDP_DATA + 32 + i);
        port->ops->release(queue, 1);
        /* No more queues are attached than are active. */
        for (unsigned q = steps[i].active; q < 3; q++)
            assert_int_equal(port->ops->receive(port->queues[q], &frame, 1), 0);
    }
    close(udp);
    port->ops->close(port);
}

/* A guest may go on to transmit on a queue that it no longer receives on. */
static void an_inactive_queue_stops_nothing(void **state)
{
    struct vw_port *port = open_port("tap,name=tidle,queues=2", 2);
    int packet = packet_socket("tidle", TEST_TYPE);
    unsigned char got[100];

    (void)state;
    assert_int_equal(port->ops->set_active_queues(port, 1), 0);
    enum vw_port_result result = send_numbered(port->queues[1], 1);
    assert_true(result == VW_PORT_SENT || result == VW_PORT_FAILED);
    if (result == VW_PORT_SENT)
        assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
    assert_int_equal(port->ops->set_active_queues(port, 2), 0);
    assert_int_equal(send_numbered(port->queues[1], 2), VW_PORT_SENT);
    assert_int_equal(recv(packet, got, sizeof(got), 0), 60);
    check_frame(got, 60, 2);
    close(packet);
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_from_the_kernel),
        cmocka_unit_test(lent_frames_are_left_alone),
        cmocka_unit_test(frames_to_the_kernel),
        cmocka_unit_test(a_frame_in_very_many_pieces),
        cmocka_unit_test(offloads_that_take_effect),
        cmocka_unit_test(partial_checksums_from_the_kernel),
        cmocka_unit_test(tcp_segments_from_the_kernel),
        cmocka_unit_test(udp_segments_from_the_kernel),
        cmocka_unit_test(offloads_to_the_kernel),
        cmocka_unit_test(frames_come_on_active_queues_only),
        cmocka_unit_test(an_inactive_queue_stops_nothing),
    };

    if (!enter_own_namespace())
        return 1;
    if (!io_works())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
