/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joins a TAP interface of this system to a vhost-user device. What the device leaves undone in a
 * frame (its checksum, its segmentation) is left to the system: struct vw_offload is what a TAP
 * with IFF_VNET_HDR wants before each frame. TUNSETOFFLOAD would do the same the other way.
 *
 *   cc tap_bridge.c $(pkg-config --cflags --libs virtwire) -o tap_bridge
 *   ./tap_bridge /tmp/v.sock vwtap0
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <virtwire/net.h>

#define BUFFERS 128
#define BUFFER_SIZE 65550 /* the longest frame of a segmentation offload */
#define BUDGET 64

struct bridge {
    struct vw_net *net;
    int tap;
    void *free[BUFFERS];
    unsigned free_count;
};

static int open_tap(const char *name)
{
    struct ifreq request;
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

    memset(&request, 0, sizeof(request));
    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0)
        return -1;
    return tap;
}

static void tx_done(void *context, unsigned pair, void *token, int sent)
{
    struct bridge *bridge = context;

    (void)pair;
    (void)sent;
    bridge->free[bridge->free_count++] = token;
}

/* Device to TAP. */
static void receive(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct bridge *bridge = context;

    for (unsigned i = 0; i < count; i++) {
        struct iovec iov[64];
        unsigned pieces = packets[i].piece_count < 63 ? packets[i].piece_count : 63;

        iov[0].iov_base = &packets[i].offload;
        iov[0].iov_len = sizeof(packets[i].offload);
        for (unsigned p = 0; p < pieces; p++) {
            iov[p + 1].iov_base = packets[i].pieces[p].data;
            iov[p + 1].iov_len = packets[i].pieces[p].length;
        }
        /* If the interface is down, or its queue full, the frame is lost, as on a wire. */
        (void)!writev(bridge->tap, iov, (int)pieces + 1);
    }
    vw_rx_release(bridge->net, pair, packets, count);
}

/* TAP to device. More may follow: the kick waits for the next poll. */
static void send_frames(struct bridge *bridge)
{
    for (unsigned i = 0; i < BUDGET && bridge->free_count > 0; i++) {
        void *buffer = bridge->free[bridge->free_count - 1];
        struct vw_tx_packet packet;
        struct vw_piece piece = {buffer, 0};
        struct iovec iov[2] = {{&packet.offload, sizeof(packet.offload)}, {buffer, BUFFER_SIZE}};
        ssize_t length;

        memset(&packet, 0, sizeof(packet));
        length = readv(bridge->tap, iov, 2);
        if (length <= (ssize_t)sizeof(packet.offload))
            break;
        piece.length = (uint32_t)(length - (ssize_t)sizeof(packet.offload));
        packet.pieces = &piece;
        packet.piece_count = 1;
        packet.token = buffer;
        bridge->free_count--; /* before: with some policies tx_done is called by vw_tx_burst */
        if (vw_tx_burst(bridge->net, 0, &packet, 1, 1) != 1)
            tx_done(bridge, 0, buffer, 0);
    }
}

int main(int argc, char **argv)
{
    static struct bridge bridge;
    struct vw_net_options options;
    const char *broken;
    char error[256];

    if (argc != 3)
        return fprintf(stderr, "usage: %s SOCKET TAP\n", argv[0]), 2;
    vw_net_options_init(&options);
    options.socket_path = argv[1];
    options.memory = 32u << 20;
    options.byte_queue_limits = 0; /* the buffers are the limit: fewer than the ring has room for */
    options.tx_done = tx_done;
    options.tx_context = &bridge;
    if (vw_net_open(&options, &bridge.net, error, sizeof(error)) < 0)
        return fprintf(stderr, "%s\n", error), 1;
    bridge.tap = open_tap(argv[2]);
    if (bridge.tap < 0)
        return perror(argv[2]), 1;
    while (bridge.free_count < BUFFERS &&
           (bridge.free[bridge.free_count] = vw_alloc(bridge.net, BUFFER_SIZE)) != NULL)
        bridge.free_count++;
    for (;;) {
        /* First: it gives buffers back, and without any the TAP is not waited for. */
        int busy = vw_poll(bridge.net, 0, BUDGET, receive, &bridge) >= BUDGET;
        struct pollfd wait[3] = {{bridge.tap, bridge.free_count > 0 ? POLLIN : 0, 0},
                                 {vw_queue_fd(bridge.net, 0), POLLIN, 0},
                                 {vw_net_fd(bridge.net), POLLIN, 0}};

        /* Nothing more comes from a device that broke a queue: a wait for it has no end. */
        broken = vw_queue_error(bridge.net, 0);
        if (broken != NULL) {
            fprintf(stderr, "%s: the device broke a queue: %s\n", argv[1], broken);
            break;
        }
        if (poll(wait, 3, busy ? 0 : -1) < 0)
            break;
        if (wait[0].revents & POLLIN)
            send_frames(&bridge);
        if (wait[2].revents)
            vw_process(bridge.net);
    }
    vw_net_close(bridge.net);
    return 1;
}
