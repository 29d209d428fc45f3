/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What busybox lacks inside a test guest: UDP, and the number of queue pairs.
 *
 *   agent tcp-send ADDRESS PORT FILE             sends a file in large pieces, as TSO likes it
 *   agent tcp-receive PORT FILE                  writes what one connection brings to a file
 *   agent udp-echo PORT                          sends each datagram back, until killed
 *   agent udp-send ADDRESS PORT COUNT SIZE       sends numbered datagrams, as fast as they go
 *   agent udp-receive PORT COUNT SIZE SECONDS    counts good ones until COUNT, or a silence
 *   agent channels INTERFACE COUNT               how many queue pairs the driver uses
 *
 * Byte i of datagram n is (n * 31 + i * 7) mod 256 after a 4-byte big-endian n, so that a wrong
 * length, place or order shows. lab/traffic.py knows the same rule.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static uint8_t datagram[65536];
static uint8_t expected[65536];

static int fail(const char *what)
{
    fprintf(stderr, "agent: %s: %s\n", what, strerror(errno));
    return 1;
}

static void fill(uint8_t *bytes, size_t size, uint32_t number)
{
    uint32_t network = htonl(number);

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number * 31 + i * 7);
    memcpy(bytes, &network, size < sizeof(network) ? size : sizeof(network));
}

static int bound_socket(int kind, const char *port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int buffer = 8 << 20, one = 1;
    int fd = socket(AF_INET, kind, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (kind == SOCK_DGRAM)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0)
        return -1;
    return fd;
}

/* Copies until the end of `from`; 0 or -1. */
static int copy(int from, int to)
{
    ssize_t got, done;

    while ((got = read(from, datagram, sizeof(datagram))) > 0)
        for (ssize_t at = 0; at < got; at += done) {
            done = write(to, datagram + at, (size_t)(got - at));
            if (done < 0)
                return -1;
        }
    return (int)got;
}

static int tcp_send(char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    int file = open(argv[2], O_RDONLY), fd = socket(AF_INET, SOCK_STREAM, 0);
    char end;

    if (file < 0 || inet_pton(AF_INET, argv[0], &to.sin_addr) != 1)
        return fail("arguments");
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 || copy(file, fd) != 0)
        return fail("tcp-send");
    shutdown(fd, SHUT_WR);
    return read(fd, &end, 1) == 0 ? 0 : fail("the other end");
}

static int tcp_receive(char **argv)
{
    int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int listener = bound_socket(SOCK_STREAM, argv[0]), fd;

    if (file < 0 || listener < 0 || listen(listener, 1) != 0)
        return fail("arguments");
    fd = accept(listener, NULL, NULL);
    return fd >= 0 && copy(fd, file) == 0 ? 0 : fail("tcp-receive");
}

static int udp_echo(char **argv)
{
    int fd = bound_socket(SOCK_DGRAM, argv[0]);

    if (fd < 0)
        return fail("bind");
    for (;;) {
        struct sockaddr_storage from;
        socklen_t from_size = sizeof(from);
        ssize_t got = recvfrom(fd, datagram, sizeof(datagram), 0, (struct sockaddr *)&from,
                               &from_size);

        if (got >= 0)
            sendto(fd, datagram, (size_t)got, 0, (struct sockaddr *)&from, from_size);
    }
}

static int udp_send(char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    uint32_t count = (uint32_t)atol(argv[2]);
    size_t size = (size_t)atol(argv[3]);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (inet_pton(AF_INET, argv[0], &to.sin_addr) != 1 || size > sizeof(datagram))
        return fail("arguments");
    for (uint32_t n = 0; n < count; n++) {
        fill(datagram, size, n);
        if (sendto(fd, datagram, size, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
            return fail("sendto");
    }
    printf("sent %u\n", count);
    return 0;
}

static int udp_receive(char **argv)
{
    uint32_t count = (uint32_t)atol(argv[1]), good = 0, bad = 0;
    size_t size = (size_t)atol(argv[2]);
    struct timeval silence = {.tv_sec = atol(argv[3])};
    int fd = bound_socket(SOCK_DGRAM, argv[0]);

    if (fd < 0)
        return fail("bind");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
    while (good + bad < count) {
        ssize_t got = recv(fd, datagram, sizeof(datagram), 0);
        uint32_t number;

        if (got < 0)
            break;
        memcpy(&number, datagram, sizeof(number));
        fill(expected, size, ntohl(number));
        if ((size_t)got == size && memcmp(datagram, expected, size) == 0)
            good++;
        else
            bad++;
    }
    printf("good %u bad %u\n", good, bad);
    return 0;
}

static int channels(char **argv)
{
    struct ethtool_channels request = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq ifr = {.ifr_data = (char *)&request};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", argv[0]);
    if (ioctl(fd, SIOCETHTOOL, &ifr) != 0)
        return fail("ETHTOOL_GCHANNELS");
    request.cmd = ETHTOOL_SCHANNELS;
    request.combined_count = (uint32_t)atol(argv[1]);
    if (ioctl(fd, SIOCETHTOOL, &ifr) != 0)
        return fail("ETHTOOL_SCHANNELS");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int arguments;
        int (*run)(char **argv);
    } commands[] = {
        {"tcp-send", 3, tcp_send},
        {"tcp-receive", 2, tcp_receive},
        {"udp-echo", 1, udp_echo},
        {"udp-send", 4, udp_send},
        {"udp-receive", 4, udp_receive},
        {"channels", 2, channels},
    };

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (argc > 1 && strcmp(argv[1], commands[i].name) == 0 &&
            argc == commands[i].arguments + 2)
            return commands[i].run(argv + 2);
    fprintf(stderr, "agent: unknown command\n");
    return 2;
}
