/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP streams, as `virtwire bench stream-send` and `stream-receive`.
 *
 * Theory of operation
 * -------------------
 * A thread for each stream writes, or reads, as fast as it can. The bytes of a stream are a pattern
 * whose period is a prime, so that any byte that is lost, added or moved shifts all that follow,
 * and a comparison finds it; whoever reads compares everything. The main thread waits for signals
 * and prints what the threads have counted.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shared.h"
#include "bench/helpers.h"

#define PERIOD 65521
#define LARGEST 65536 /* one read or write */
#define MOST_STREAMS 256
#define EXIT_USAGE 2

struct stream {
    const uint8_t *pattern;
    int socket;
    unsigned size; /* of a write */
    pthread_t thread;
    uint64_t bytes, calls, corrupt; /* reads with wrong bytes; the thread writes, all read */
};

struct streams {
    const char *name;
    unsigned count;
    struct stream all[MOST_STREAMS];
    uint8_t pattern[PERIOD + LARGEST];
};

static void make_pattern(struct streams *streams)
{
    uint8_t *pattern = streams->pattern;
    uint32_t state = 1;

    for (size_t i = 0; i < PERIOD; i++) {
        state = state * 1664525 + 1013904223;
        pattern[i] = (uint8_t)(state >> 24);
    }
    for (size_t i = PERIOD; i < sizeof(streams->pattern); i++)
        pattern[i] = pattern[i - PERIOD];
    for (unsigned i = 0; i < streams->count; i++)
        streams->all[i].pattern = pattern;
}

static int fail(const char *name, const char *doing)
{
    fprintf(stderr, "virtwire bench %s: cannot %s: %s\n", name, doing, strerror(errno));
    return EXIT_FAILURE;
}

static void count(uint64_t *counter, uint64_t add)
{
    vw_shared_store(counter, *counter + add);
}

/* ---- the threads ----------------------------------------------------------------------------- */

static void *send_all(void *argument)
{
    struct stream *stream = argument;

    for (;;) {
        ssize_t sent = send(stream->socket, stream->pattern + stream->bytes % PERIOD, stream->size,
                            MSG_NOSIGNAL);

        if (sent < 0)
            return NULL; /* the other end is gone: the run is over */
        count(&stream->bytes, (uint64_t)sent);
        count(&stream->calls, 1);
    }
}

static void *receive_all(void *argument)
{
    struct stream *stream = argument;
    uint8_t *buffer = malloc(LARGEST);
    ssize_t received;

    while (buffer != NULL && (received = recv(stream->socket, buffer, LARGEST, 0)) > 0) {
        if (memcmp(buffer, stream->pattern + stream->bytes % PERIOD, (size_t)received) != 0)
            count(&stream->corrupt, 1);
        count(&stream->bytes, (uint64_t)received);
        count(&stream->calls, 1);
    }
    free(buffer);
    return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------- */

static void print_counters(const struct streams *streams)
{
    json_int_t bytes = 0, calls = 0, corrupt = 0;
    json_t *object;

    for (unsigned i = 0; i < streams->count; i++) {
        bytes += (json_int_t)vw_shared_load(&streams->all[i].bytes);
        calls += (json_int_t)vw_shared_load(&streams->all[i].calls);
        corrupt += (json_int_t)vw_shared_load(&streams->all[i].corrupt);
    }
    object = json_pack("{s:s, s:s, s:f, s:I, s:I, s:I}", "type", "report", "command", streams->name,
                       "monotonic_seconds", (double)vw_clock_ns() * 1e-9, "bytes", bytes, "calls",
                       calls, "corrupt", corrupt);
    json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    putchar('\n');
    fflush(stdout);
}

/* Starts the threads, and serves signals until one says that it is over. */
static int run(struct streams *streams, void *(*body)(void *))
{
    sigset_t signals;
    int number;

    /* Not before: a signal is not to wait for streams that never come. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    for (unsigned i = 0; i < streams->count; i++)
        if ((errno = pthread_create(&streams->all[i].thread, NULL, body, &streams->all[i])) != 0)
            return fail(streams->name, "start a thread");
    fprintf(stderr, "streaming\n");
    while (sigwait(&signals, &number) == 0 && number == SIGUSR1)
        print_counters(streams);
    return EXIT_SUCCESS; /* and with it the threads end */
}

/* A number from 1 to `most`; 0: it is none. */
static unsigned parse(const char *text, unsigned long most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    return *text >= '0' && *text <= '9' && *end == '\0' && value <= most ? (unsigned)value : 0;
}

static int parse_arguments(int argc, char **argv, int expected, struct sockaddr_in *address,
                           struct streams *streams)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    streams->name = argv[0];
    if (argc == expected) {
        address->sin_port = htons((uint16_t)parse(argv[2], 65535));
        streams->count = parse(argv[3], MOST_STREAMS);
    }
    if (streams->count > 0 && address->sin_port != 0 &&
        inet_pton(AF_INET, argv[1], &address->sin_addr) == 1)
        return EXIT_SUCCESS;
    fprintf(stderr, "usage: virtwire bench stream-receive ADDRESS PORT STREAMS\n"
                    "       virtwire bench stream-send ADDRESS PORT STREAMS BYTES-A-WRITE\n");
    return EXIT_USAGE;
}

int bench_stream_receive(int argc, char **argv)
{
    struct streams streams = {0};
    struct sockaddr_in address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int status = parse_arguments(argc, argv, 4, &address, &streams);

    if (status != EXIT_SUCCESS)
        return status;
    make_pattern(&streams);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, MOST_STREAMS) < 0)
        return fail(streams.name, "listen");
    fprintf(stderr, "listening\n");
    for (unsigned i = 0; i < streams.count; i++)
        if ((streams.all[i].socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
            return fail(streams.name, "accept");
    return run(&streams, receive_all);
}

int bench_stream_send(int argc, char **argv)
{
    struct streams streams = {0};
    struct sockaddr_in address;
    int status = parse_arguments(argc, argv, 5, &address, &streams);
    unsigned size = status == EXIT_SUCCESS ? parse(argv[4], LARGEST) : 0;

    if (status == EXIT_SUCCESS && size == 0) {
        fprintf(stderr, "virtwire bench stream-send: a write has 1 to %d bytes\n", LARGEST);
        status = EXIT_USAGE;
    }
    if (status != EXIT_SUCCESS)
        return status;
    make_pattern(&streams);
    for (unsigned i = 0; i < streams.count; i++) {
        struct stream *stream = &streams.all[i];

        stream->size = size;
        stream->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(stream->socket, (struct sockaddr *)&address, sizeof(address)) < 0)
            return fail(streams.name, "connect");
    }
    return run(&streams, send_all);
}
