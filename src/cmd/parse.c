/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/bits.h"
#include "base/fd.h"
#include "cmd/command.h"

int note_given(const char *command, const char *option, unsigned number, const char *where,
               uint64_t *given)
{
    if (vw_has(*given, number))
        return command_usage_error(command, "--%s is given twice%s", option, where);
    *given |= vw_bit(number);
    return -1;
}

int parse_number(const char *command, const char *option, const char *text, unsigned long low,
                 unsigned long high, unsigned long *number)
{
    char *end;

    errno = 0;
    *number = strtoul(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || *number < low || *number > high)
        return command_usage_error(command, "--%s=%s: give a whole number from %lu to %lu", option,
                                   text, low, high);
    return -1;
}

/* "N" or "N-M" at `text`; returns what follows, or NULL. */
static const char *parse_range(const char *text, unsigned long *first, unsigned long *last)
{
    char *end;

    if (*text < '0' || *text > '9')
        return NULL;
    *first = *last = strtoul(text, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return NULL;
        *last = strtoul(end + 1, &end, 10);
    }
    return *first <= *last && *last < CPU_SETSIZE ? end : NULL;
}

int parse_cpus(const char *command, const char *option, const char *text, unsigned *cpus,
               unsigned room, unsigned *count)
{
    const char *rest = text;
    unsigned long first, last;
    cpu_set_t allowed;

    *count = 0;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    do {
        rest = parse_range(rest, &first, &last);
        if (rest == NULL || (*rest != '\0' && *rest != ',') || last - first >= room - *count)
            return command_usage_error(
                command, "--%s=%s: give CPU numbers such as 0,2-3, %u at most", option, text, room);
        for (; first <= last; first++) {
            if (!CPU_ISSET(first, &allowed))
                return command_usage_error(
                    command, "--%s=%s: CPU %lu does not exist or is not for this process", option,
                    text, first);
            cpus[(*count)++] = (unsigned)first;
        }
    } while (*rest++ == ',');
    return -1;
}

int parse_scaled(const char *command, const char *option, const char *text, double *number)
{
    double scale = 1;
    char *end;

    errno = 0;
    *number = strtod(text, &end);
    switch (*end) {
    case 'k':
        scale = 1e3;
        break;
    case 'M':
        scale = 1e6;
        break;
    case 'G':
        scale = 1e9;
        break;
    }
    *number *= scale;
    end += scale > 1;
    /* strtod takes more than people write: hexadecimal, nan, inf */
    if (errno != 0 || *text < '0' || *text > '9' || strpbrk(text, "xX") != NULL || *end != '\0' ||
        !(*number > 0) || *number > 1e15)
        return command_usage_error(command, "--%s=%s: give a number above 0, such as 500k or 1.5M",
                                   option, text);
    return -1;
}

int parse_choice(const char *command, const char *option, const char *text,
                 const char *const *words, size_t count, unsigned *choice)
{
    char list[256] = "";

    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *choice = (unsigned)i;
            return -1;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s",
                 i == 0           ? ""
                 : i + 1 == count ? " or "
                                  : ", ",
                 words[i]);
    }
    return command_usage_error(command, "--%s=%s: must be %s", option, text, list);
}

int parse_mac(const char *command, const char *option, const char *text, uint8_t mac[6])
{
    static const uint8_t zero[6];
    unsigned bytes[6];
    int used = 0;

    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &bytes[0], &bytes[1], &bytes[2], &bytes[3],
               &bytes[4], &bytes[5], &used) != 6 ||
        text[used] != '\0' || strlen(text) != 17)
        return command_usage_error(command, "--%s=%s: write it as 52:54:00:12:34:56", option, text);
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)bytes[i];
    if (mac[0] & 1)
        return command_usage_error(
            command, "--%s=%s: that is a group's address; the first byte must be even", option,
            text);
    if (memcmp(mac, zero, sizeof(zero)) == 0)
        return command_usage_error(command, "--%s=%s: the zero address is nobody's", option, text);
    return -1;
}

int parse_ipv4(const char *command, const char *option, const char *text, uint32_t *address)
{
    struct in_addr wire;

    if (inet_pton(AF_INET, text, &wire) != 1)
        return command_usage_error(command, "--%s=%s: write it as 198.18.0.1", option, text);
    *address = ntohl(wire.s_addr);
    return -1;
}

int check_socket_path(const char *command, const char *path)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;

    if (*path == '\0')
        return command_usage_error(command, "--socket-path: the path is empty");
    if (strlen(path) > most)
        return command_usage_error(command, "--socket-path=%s: longer than %zu bytes", path, most);
    return -1;
}

int check_socket(const char *command, int socket)
{
    if (!vw_fd_is_unix_socket(socket, true))
        return command_usage_error(
            command, "--fd=%d: that is not a UNIX stream socket; pass the number of an open one",
            socket);
    return -1;
}
