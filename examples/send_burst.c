/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends a burst of frames to a vhost-user back-end and waits until the device has them.
 *
 *   cc send_burst.c $(pkg-config --cflags --libs virtwire) -o send_burst
 *   virtwire device --socket-path=/tmp/v.sock --port null &
 *   ./send_burst /tmp/v.sock 1000
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <virtwire/net.h>

#define BURST 32
#define LENGTH 60

static void fill(uint8_t *frame, const uint8_t source[6])
{
    memset(frame, 0xff, 6);             /* to everybody */
    memcpy(frame + 6, source, 6);       /* from this device */
    frame[12] = 0x88, frame[13] = 0xb5; /* an EtherType for experiments (IEEE 802) */
    memset(frame + 14, 0, LENGTH - 14);
}

/* Takes back what the device has sent. When that is nothing it may have gone away, which vw_process
 * finds out. */
static void reap(struct vw_net *net)
{
    if (vw_tx_reap(net, 0) <= 0)
        vw_process(net);
}

/* One memory for all bursts: it is the caller's again when nothing is in flight. */
static int send_all(struct vw_net *net, struct vw_piece *pieces, unsigned long count)
{
    struct vw_tx_packet packets[BURST];
    unsigned long sent = 0;

    memset(packets, 0, sizeof(packets));
    for (unsigned i = 0; i < BURST; i++) {
        packets[i].pieces = &pieces[i];
        packets[i].piece_count = 1;
    }
    while (sent < count) {
        unsigned burst = count - sent < BURST ? (unsigned)(count - sent) : BURST;
        int taken = vw_tx_burst(net, 0, packets, burst, 0);

        if (taken < 0)
            return taken;
        sent += (unsigned long)taken;
        reap(net); /* makes room, should the ring be full */
    }
    while (vw_tx_in_flight(net, 0) > 0 && vw_queue_error(net, 0) == NULL)
        reap(net);
    return 0;
}

int main(int argc, char **argv)
{
    struct vw_net_options options;
    struct vw_net *net;
    struct vw_net_info info;
    struct vw_piece pieces[BURST];
    struct vw_tx_counters counters;
    char error[256];
    int result;

    if (argc < 2) {
        fprintf(stderr, "usage: %s SOCKET [COUNT]\n", argv[0]);
        return 2;
    }
    vw_net_options_init(&options);
    options.socket_path = argv[1];
    options.reconnect = 0; /* what a lost device did not send is given up */
    if (vw_net_open(&options, &net, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    vw_net_info(net, &info);
    for (unsigned i = 0; i < BURST; i++) {
        pieces[i].data = vw_alloc(net, LENGTH);
        pieces[i].length = LENGTH;
        if (pieces[i].data == NULL)
            return 1;
        fill(pieces[i].data, info.mac);
    }
    result = send_all(net, pieces, argc > 2 ? strtoul(argv[2], NULL, 10) : BURST);
    if (result < 0)
        fprintf(stderr, "sending: %s\n", strerror(-result));
    vw_counters(net, 0, &counters, NULL);
    printf("%" PRIu64 " frames, %" PRIu64 " bytes, %" PRIu64 " kicks, %" PRIu64 " lost\n",
           counters.frames, counters.bytes, counters.kicks, counters.drop_lost);
    vw_net_close(net); /* and all memory of vw_alloc */
    return result < 0 || counters.drop_lost > 0;
}
