/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends every frame back to where it came from, without a copy: the buffer that was received into
 * is the one that is sent, and goes back to the library when the device has read it.
 *
 *   cc echo.c $(pkg-config --cflags --libs virtwire) -o echo
 *   virtwire device --socket-path=/tmp/v.sock --port tap,name=vw0 &
 *   ./echo /tmp/v.sock
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <virtwire/net.h>

#define BUDGET 64
#define FRAMES 256 /* under way at most */

struct echo {
    struct vw_net *net;
    struct vw_rx_packet frames[FRAMES];
    struct vw_rx_packet *free[FRAMES]; /* a stack of those that are not under way */
    unsigned free_count;
    unsigned long sent, lost;
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

/* A frame was sent, or will never be: its buffer goes back. */
static void tx_done(void *context, unsigned pair, void *token, int sent)
{
    struct echo *echo = context;
    struct vw_rx_packet *frame = token;

    sent ? echo->sent++ : echo->lost++;
    vw_rx_release(echo->net, pair, frame, 1);
    echo->free[echo->free_count++] = frame;
}

static void swap_addresses(uint8_t *frame)
{
    uint8_t destination[6];

    memcpy(destination, frame, 6);
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, destination, 6);
}

static void receive(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct echo *echo = context;
    struct vw_tx_packet out[BUDGET];
    unsigned kept = count < echo->free_count ? count : echo->free_count;
    int taken;

    memset(out, 0, sizeof(out));
    for (unsigned i = 0; i < kept; i++) {
        struct vw_rx_packet *frame = echo->free[echo->free_count - 1 - i];

        *frame = packets[i];
        swap_addresses(frame->pieces[0].data); /* the first piece has the whole header */
        out[i].pieces = frame->pieces;
        out[i].piece_count = frame->piece_count;
        out[i].token = frame;
    }
    /* tx_done may put places back while this runs: those of this burst are taken off before. */
    echo->free_count -= kept;
    taken = vw_tx_burst(echo->net, pair, out, kept, 0);
    for (unsigned i = taken < 0 ? 0 : (unsigned)taken; i < kept; i++)
        tx_done(echo, pair, out[i].token, 0); /* the ring is full, or there is no device */
    vw_rx_release(echo->net, pair, packets + kept, count - kept);
    echo->lost += count - kept;
}

int main(int argc, char **argv)
{
    static struct echo echo;
    struct vw_net_options options;
    const char *broken = NULL;
    char error[256];

    if (argc != 2)
        return fprintf(stderr, "usage: %s SOCKET\n", argv[0]), 2;
    while (echo.free_count < FRAMES) {
        echo.free[echo.free_count] = &echo.frames[echo.free_count];
        echo.free_count++;
    }
    vw_net_options_init(&options);
    options.socket_path = argv[1];
    options.features = "guest_csum=off"; /* whole frames, with checksums */
    options.byte_queue_limits = 0; /* they are for senders that can wait; an echo can only drop */
    options.tx_done = tx_done;
    options.tx_context = &echo;
    if (vw_net_open(&options, &echo.net, error, sizeof(error)) < 0)
        return fprintf(stderr, "%s\n", error), 1;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    while (!stop && broken == NULL) {
        vw_wait(echo.net, 0, 100);
        vw_poll(echo.net, 0, BUDGET, receive, &echo);
        vw_process(echo.net); /* the device may go away and come back */
        broken = vw_queue_error(echo.net, 0);
    }
    if (broken != NULL)
        fprintf(stderr, "%s: the device broke a queue: %s\n", argv[1], broken);
    vw_net_close(echo.net);
    printf("%lu frames sent back, %lu lost\n", echo.sent, echo.lost);
    return broken != NULL;
}
