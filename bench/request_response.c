/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and responses through a device on a loop: a number of sessions, each of which sends its
 * next request when the response to the last one is back. The client uses vw_wait, the device its
 * mode; what is measured is how soon a request is back.
 *
 *   request_response SOCKET SESSIONS SECONDS THINK_US
 *
 * THINK_US: how long the client, without looking, works on each response. Prints one line of JSON.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <virtwire/net.h>

#define LENGTH 64
#define HEADROOM 32
#define STRIDE 128
#define MAX_SESSIONS 200
#define MAX_SAMPLES 4000000
#define PATIENCE_MS 1000

struct client {
    struct vw_net *net;
    uint8_t *memory;
    unsigned sessions, think_us;
    uint64_t sent_at[MAX_SESSIONS];
    unsigned due[MAX_SESSIONS], due_count; /* sessions that are to send */
    uint8_t in_flight[MAX_SESSIONS];       /* not completed yet: its memory is the device's */
    float *samples;
    unsigned sample_count;
};

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void work(unsigned microseconds)
{
    uint64_t end = now() + (uint64_t)microseconds * 1000;

    while (microseconds > 0 && now() < end)
        ;
}

static uint8_t *frame_of(const struct client *client, unsigned session)
{
    return client->memory + (size_t)session * STRIDE + HEADROOM;
}

static void on_done(void *context, unsigned pair, void *token, int sent)
{
    struct client *client = context;

    (void)pair, (void)sent;
    client->in_flight[(uintptr_t)token] = 0;
}

static void on_frames(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count)
{
    struct client *client = context;

    for (unsigned i = 0; i < count; i++) {
        uint32_t session;

        memcpy(&session, (const uint8_t *)packets[i].pieces[0].data + 14, sizeof(session));
        if (session >= client->sessions || client->sample_count == MAX_SAMPLES)
            continue;
        client->samples[client->sample_count++] = (float)(now() - client->sent_at[session]) / 1e3f;
        client->due[client->due_count++] = session;
        work(client->think_us);
    }
    vw_rx_release(client->net, pair, packets, count);
}

/* Sends what is due, but for sessions whose last frame is not known to be completed. */
static int send_due(struct client *client)
{
    struct vw_tx_packet packets[MAX_SESSIONS];
    struct vw_piece pieces[MAX_SESSIONS];
    unsigned count = 0, left = 0;

    vw_tx_reap(client->net, 0);
    for (unsigned i = 0; i < client->due_count; i++) {
        unsigned session = client->due[i];

        if (client->in_flight[session]) {
            client->due[left++] = session;
            continue;
        }
        client->in_flight[session] = 1;
        client->sent_at[session] = now();
        pieces[count] = (struct vw_piece){frame_of(client, session), LENGTH};
        packets[count] = (struct vw_tx_packet){.pieces = &pieces[count],
                                               .piece_count = 1,
                                               .headroom = HEADROOM,
                                               .token = (void *)(uintptr_t)session};
        count++;
    }
    client->due_count = left;
    return count > 0 && vw_tx_burst(client->net, 0, packets, count, 0) != (int)count ? -1 : 0;
}

static int run(struct client *client, double seconds)
{
    uint64_t end = now() + (uint64_t)(seconds * 1e9);

    while (now() < end) {
        if (send_due(client) != 0)
            return -1;
        int received = vw_poll(client->net, 0, 64, on_frames, client);
        if (received < 0 ||
            (received == 0 && client->due_count == 0 && vw_wait(client->net, 0, PATIENCE_MS) != 1))
            return -1;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

static void prepare(struct client *client)
{
    for (uint32_t session = 0; session < client->sessions; session++) {
        uint8_t *frame = frame_of(client, session);

        memset(frame, 0, LENGTH);
        memcpy(frame, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5", 14);
        memcpy(frame + 14, &session, sizeof(session));
        client->due[client->due_count++] = session;
    }
}

int main(int argc, char **argv)
{
    struct client *client = calloc(1, sizeof(*client));
    struct vw_net_options options;
    char error[256] = "";

    if (argc != 5 || !client) {
        fprintf(stderr, "usage: request_response SOCKET SESSIONS SECONDS THINK_US\n");
        return 2;
    }
    double seconds = atof(argv[3]);
    client->sessions = (unsigned)atoi(argv[2]);
    client->think_us = (unsigned)atoi(argv[4]);
    client->samples = calloc(MAX_SAMPLES, sizeof(*client->samples));
    vw_net_options_init(&options);
    options.socket_path = argv[1];
    options.byte_queue_limits = 0;
    options.tx_done = on_done;
    options.tx_context = client;
    if (client->sessions < 1 || client->sessions > MAX_SESSIONS || !client->samples ||
        vw_net_open(&options, &client->net, error, sizeof(error)) != 0) {
        fprintf(stderr, "request_response: cannot start: %s\n", error);
        return 1;
    }
    client->memory = vw_alloc(client->net, (size_t)client->sessions * STRIDE);
    if (!client->memory)
        return 1;
    prepare(client);
    if (run(client, seconds) != 0 || client->sample_count == 0) {
        fprintf(stderr, "request_response: a response did not come\n");
        return 1;
    }
    qsort(client->samples, client->sample_count, sizeof(*client->samples), compare);
    printf(
        "{\"sessions\": %u, \"per_second\": %.0f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f}\n",
        client->sessions, client->sample_count / seconds,
        (double)client->samples[client->sample_count / 2],
        (double)client->samples[(uint64_t)client->sample_count * 9 / 10],
        (double)client->samples[(uint64_t)client->sample_count * 99 / 100]);
    vw_net_close(client->net);
    free(client->samples);
    free(client);
    return 0;
}
