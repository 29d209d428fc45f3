/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segmentation and merging against the kernel's own.
 *
 * Theory of operation
 * -------------------
 * Segments: a packet socket sends a frame with a virtio-net header to a TAP without offloads, so
 * that the kernel has to segment it; what comes out of the TAP is compared, byte for byte, with
 * what net/segment.h makes of the same frame.
 *
 * Merging: frames are written to a TAP with IFF_NAPI, whose receive path merges (GRO). The TAP's
 * gro_flush_timeout keeps frames together that come one system call after the other, as long as
 * the kernel's clock does not tick in between; it may, and then the kernel merges less. So the same
 * frames are sent again until kernel and port/merge.h agree. A difference in the rules never does.
 */
#include "tap_lab.h"

#include <netinet/udp.h>
#include <sys/mount.h>
#include <time.h>

#include "../offload_frames.h"
#include "base/iov.h"
#include "net/segment.h"
#include "port/merge.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define ATTEMPTS 50
#define MOST 40 /* frames of one attempt */

static uint8_t payload[65536];

/* A packet socket with virtio-net headers of 10 bytes. */
static int offload_socket(const char *name)
{
    int fd = packet_socket(name, ETH_P_ALL), on = 1;

    assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)), 0);
    return fd;
}

/* ---- segmentation ------------------------------------------------------------------------------
 */

/* The TAP's next frame from the recipes' address. */
static struct vw_frame next_segment(struct vw_port_queue *queue)
{
    struct vw_frame frame;

    for (;;) {
        while (queue->port->ops->receive(queue, &frame, 1) == 0)
            assert_true(wait_as_wanted(queue, true, false));
        if (memcmp((uint8_t *)frame.iov[1].iov_base + 6, "\x52\x54\0\0\0\x02", 6) == 0)
            return frame;
        queue->port->ops->release(queue, 1);
    }
}

static void compare_segments(struct vw_port *port, int packet, const struct recipe *recipe,
                             unsigned size)
{
    static struct recipe_frame whole;
    struct vw_net_segmenter segmenter;
    struct vw_net_header header;
    uint8_t headers[VW_NET_SEGMENT_HEADERS], joined[10000];
    struct iovec pieces[4];
    size_t count;

    recipe_make(&whole, recipe);
    struct virtio_net_hdr_v1 wire = recipe_header(recipe, &whole, size);
    struct iovec sent[2] = {{&wire, sizeof(struct virtio_net_hdr)}, {whole.bytes, whole.length}};
    if (writev(packet, sent, 2) < 0)
        fail_msg("send: %s", strerror(errno));
    vw_net_header_decode(&header, &wire, sizeof(wire));
    assert_int_equal(vw_net_segment_begin(&segmenter, &header, sent + 1, 1, (uint32_t)whole.length),
                     0);
    for (; vw_net_segment_left(&segmenter); vw_net_segment_next(&segmenter)) {
        struct vw_frame kernel = next_segment(port->queues[0]);
        uint32_t length = vw_net_segment_make(&segmenter, headers, pieces, 4, &count);

        memcpy(joined, headers, segmenter.header_length);
        vw_iov_read(pieces, count, 0, joined + segmenter.header_length, sizeof(joined));
        assert_int_equal(kernel.length, length);
        assert_memory_equal(kernel.iov[1].iov_base, joined, length);
        port->ops->release(port->queues[0], 1);
    }
}

static void segments_are_the_kernels(void **state)
{
    struct vw_port *port = open_port("tap,name=gso,mtu=9000", 1);
    int packet = offload_socket("gso");

    (void)state;
    for (unsigned kind = 0; kind < 4 * 3 * 2; kind++) {
        struct recipe recipe = {
            .ipv6 = kind & 1,
            .udp = kind & 2,
            .ip_option_words = kind / 4 % 3,
            .tcp_option_words = kind / 12 * 5,
            .partial = true,
            .ttl = 64,
            .tos = 2,
            .flags = RECIPE_ACK | RECIPE_PSH | RECIPE_FIN,
            .id = 0xfffd,
            .window = 500,
            .sequence = 0xffffff00,
            .acknowledged = 7,
            .flow = 0x12345,
            .source_port = 1000,
            .destination_port = 2000,
            .payload = payload,
            .payload_length = 30000 + kind,
        };
        compare_segments(port, packet, &recipe, 1400);
        compare_segments(port, packet, &recipe, 8001);
        recipe.flags = RECIPE_ACK | RECIPE_CWR | RECIPE_ECE;
        compare_segments(port, packet, &recipe, 1000);
        recipe.payload_length = 1001;
        compare_segments(port, packet, &recipe, 1000);
        recipe.payload_length = 2000;
        compare_segments(port, packet, &recipe, 1000);
    }
    close(packet);
    port->ops->close(port);
}

/* ---- merging -----------------------------------------------------------------------------------
 */

struct result {
    uint8_t bytes[RECIPE_MAX];
    size_t length;
    struct virtio_net_hdr_v1 header;
};

static struct recipe_frame frames[MOST];
static struct result ours[MOST], kernels[MOST];
static unsigned frame_count, ours_count, kernels_count;

/* hdr_len is a hint, and the kernel's says how its memory is laid out. */
static void note_result(struct result *result, const void *header, size_t header_size,
                        const void *bytes, size_t length)
{
    memset(&result->header, 0, sizeof(result->header));
    memcpy(&result->header, header, header_size);
    if (result->header.gso_type == VIRTIO_NET_HDR_GSO_NONE)
        memset(&result->header, 0, sizeof(result->header));
    result->header.hdr_len = 0;
    result->header.num_buffers = 0;
    memcpy(result->bytes, bytes, length);
    result->length = length;
}

static void merge_ours(void)
{
    struct virtio_net_hdr_v1 wire = {0};
    struct vw_port *port = NULL;
    struct iovec iov[MOST][2];
    struct vw_frame list[MOST], frame;

    assert_int_equal(vw_port_open("loop", 1, NULL, &port, NULL, 0), 0);
    struct vw_port_queue *queue = port->queues[0];
    assert_int_equal(vw_port_merge(port, VW_PORT_COALESCE_ON), 0);
    for (unsigned i = 0; i < frame_count; i++) {
        iov[i][0] = (struct iovec){&wire, VW_PORT_HEADER};
        iov[i][1] = (struct iovec){frames[i].bytes, frames[i].length};
        list[i] = (struct vw_frame){iov[i], 2, (uint32_t)frames[i].length};
    }
    assert_int_equal(port->ops->transmit(queue, list, frame_count), frame_count);
    for (ours_count = 0; port->ops->receive(queue, &frame, 1) == 1; ours_count++) {
        struct result *result = &ours[ours_count];

        note_result(result, frame.iov[0].iov_base, VW_PORT_HEADER, frame.iov[1].iov_base,
                    frame.length);
        memcpy(result->bytes, frames[0].bytes, 12); /* the loop swapped the addresses */
        port->ops->release(queue, 1);
    }
    port->ops->close(port);
}

/* How many frames a received one was. */
static unsigned segments_of(const struct result *result)
{
    unsigned size = result->header.gso_size;

    if (size == 0)
        return 1;
    return (unsigned)((result->length - frames[0].payload + size - 1) / size);
}

static void merge_kernels(int tap, int packet)
{
    static uint8_t buffer[sizeof(struct virtio_net_hdr) + RECIPE_MAX];
    unsigned received = 0;

    kernels_count = 0;
    for (unsigned i = 0; i < frame_count; i++)
        assert_int_equal(write(tap, frames[i].bytes, frames[i].length), frames[i].length);
    while (received < frame_count) {
        const size_t header = sizeof(struct virtio_net_hdr);
        ssize_t length = recv(packet, buffer, sizeof(buffer), 0);

        /* What is left to do for the ring of the port before interrupts a wait with a time limit.
         */
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            fail_msg("frame %u of %u: %s", received, frame_count, strerror(errno));
        if (memcmp(buffer + header + 6, frames[0].bytes + 6, 6) != 0)
            continue; /* the kernel's own */
        note_result(&kernels[kernels_count], buffer, header, buffer + header,
                    (size_t)length - header);
        received += segments_of(&kernels[kernels_count++]);
    }
}

static bool agree(void)
{
    if (ours_count != kernels_count)
        return false;
    for (unsigned i = 0; i < ours_count; i++) {
        if (ours[i].length != kernels[i].length ||
            memcmp(&ours[i].header, &kernels[i].header, sizeof(ours[i].header)) != 0 ||
            memcmp(ours[i].bytes, kernels[i].bytes, ours[i].length) != 0)
            return false;
    }
    return true;
}

static void print_results(const char *who, const struct result *results, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        print_error("%s %u: %zu bytes, %u segments, type %u, flags %u\n", who, i, results[i].length,
                    segments_of(&results[i]), results[i].header.gso_type, results[i].header.flags);
}

static void compare_merges(int tap, int packet, const char *what)
{
    merge_ours();
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        merge_kernels(tap, packet);
        if (agree())
            return;
    }
    print_results("ours", ours, ours_count);
    print_results("kernel", kernels, kernels_count);
    fail_msg("%s: the kernel merges otherwise", what);
}

static struct recipe next_of(const struct recipe *recipe)
{
    struct recipe next = *recipe;

    next.sequence += (uint32_t)recipe->payload_length;
    next.id++;
    return next;
}

/* Changes the frame in the middle of a run, or from there on. */
struct change {
    const char *name;
    void (*change)(struct recipe *recipe);
    bool from_there_on;
};

static void no_change(struct recipe *recipe)
{
    (void)recipe;
}
static void change_ttl(struct recipe *recipe)
{
    recipe->ttl--;
}
static void change_tos(struct recipe *recipe)
{
    recipe->tos ^= 1;
}
static void change_id(struct recipe *recipe)
{
    recipe->id += 5;
}
static void change_fragmentable(struct recipe *recipe)
{
    recipe->fragmentable = !recipe->fragmentable;
}
static void change_port(struct recipe *recipe)
{
    recipe->source_port++;
}
static void change_sequence(struct recipe *recipe)
{
    recipe->sequence += 3;
}
static void change_acknowledged(struct recipe *recipe)
{
    recipe->acknowledged++;
}
static void change_window(struct recipe *recipe)
{
    recipe->window++;
}
static void change_timestamp(struct recipe *recipe)
{
    recipe->timestamp++;
}
static void change_length(struct recipe *recipe)
{
    recipe->payload_length--;
}
static void change_length_up(struct recipe *recipe)
{
    recipe->payload_length++;
}
static void change_ece(struct recipe *recipe)
{
    recipe->flags ^= RECIPE_ECE;
}
static void change_psh(struct recipe *recipe)
{
    recipe->flags |= RECIPE_PSH;
}
static void change_fin(struct recipe *recipe)
{
    recipe->flags |= RECIPE_FIN;
}

static const struct change changes[] = {
    {"nothing", no_change, false},       {"ttl", change_ttl, false},
    {"tos", change_tos, true},           {"id", change_id, true},
    {"DF", change_fragmentable, true},   {"port", change_port, true},
    {"sequence", change_sequence, true}, {"acknowledgement", change_acknowledged, true},
    {"window", change_window, true},     {"timestamp", change_timestamp, true},
    {"shorter", change_length, false},   {"longer", change_length_up, false},
    {"ece", change_ece, true},           {"psh", change_psh, false},
    {"fin", change_fin, false},
};

/* Ten frames of a flow, the fifth of which differs. */
static void make_run(const struct recipe *flow, const struct change *change)
{
    struct recipe recipe = *flow;

    for (frame_count = 0; frame_count < 10; frame_count++) {
        struct recipe now = recipe;

        if (frame_count == 4)
            change->change(&now);
        if (frame_count == 4 && change->from_there_on)
            recipe = now;
        recipe_make(&frames[frame_count], &now);
        size_t length = recipe.payload_length;
        recipe = next_of(&recipe);
        recipe.sequence += (uint32_t)(now.payload_length - length);
    }
}

/* Frames wait this long to be merged with what comes after them. */
static bool set_flush_timeout(const char *interface)
{
    char folder[] = "/tmp/vw-sysfs-XXXXXX", path[128];
    bool set;

    if (mkdtemp(folder) == NULL)
        return false;
    /* A view of this network namespace's interfaces. */
    if (!enter_own_mounts() || mount("sysfs", folder, "sysfs", 0, NULL) < 0) {
        rmdir(folder);
        return false;
    }
    snprintf(path, sizeof(path), "%s/class/net/%s/gro_flush_timeout", folder, interface);
    set = write_line(path, "20000000");
    umount2(folder, MNT_DETACH);
    rmdir(folder);
    return set;
}

/* The kernel merges datagrams for a socket that asked for it. */
static int udp_gro_socket(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(2000)};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void merged_frames_are_the_kernels(void **state)
{
    int tap = tun_open("gro", IFF_TAP | IFF_NO_PI | IFF_NAPI);

    (void)state;
    run("ip link set gro up");
    if (!set_flush_timeout("gro")) {
        print_message("cannot set gro_flush_timeout here: %s\n", strerror(errno));
        skip();
    }
    int packet = offload_socket("gro"), udp = udp_gro_socket();
    for (unsigned kind = 0; kind < 8; kind++) {
        const struct recipe flow = {
            .ipv6 = kind & 1,
            .udp = kind & 2,
            .fragmentable = kind & 4,
            .tcp_option_words = 3,
            .ttl = 64,
            .flags = RECIPE_ACK,
            .id = 0xfffd,
            .window = 500,
            .sequence = 0xffffff00,
            .source_port = 1000,
            .destination_port = 2000,
            .payload = payload,
            .payload_length = 500,
        };
        for (unsigned i = 0; i < VW_ARRAY_SIZE(changes); i++) {
            make_run(&flow, &changes[i]);
            compare_merges(tap, packet, changes[i].name);
            assert_true(i > 0 || kernels_count == 1);
        }
    }
    close(udp);
    close(packet);
    close(tap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_the_kernels),
        cmocka_unit_test(merged_frames_are_the_kernels),
    };

    if (!enter_own_namespace())
        return 1;
    recipe_fill(payload, sizeof(payload), 5);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
