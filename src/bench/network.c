/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUR_NETWORK "/proc/thread-self/ns/net"
#define PREFIX_BITS 24

/* ---- namespaces ------------------------------------------------------------------------------ */

static int write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t count = file >= 0 ? write(file, text, strlen(text)) : -1;
    int error = errno;

    if (file >= 0)
        close(file);
    errno = error;
    return count < 0 ? -1 : 0;
}

/* Root of a user namespace of our own. Needs to be the only thread. */
static int become_root(void)
{
    char *users = bench_format("0 %u 1", (unsigned)geteuid());
    char *groups = bench_format("0 %u 1", (unsigned)getegid());
    int result = unshare(CLONE_NEWUSER);

    if (result == 0)
        result = write_file("/proc/self/setgroups", "deny");
    if (result == 0)
        result = write_file("/proc/self/uid_map", users);
    if (result == 0)
        result = write_file("/proc/self/gid_map", groups);
    free(users);
    free(groups);
    return result;
}

/* This thread into the namespace; returns the one where it was, or -1 with errno. */
static int enter(int network)
{
    int before = open(OUR_NETWORK, O_RDONLY | O_CLOEXEC);

    if (before >= 0 && setns(network, CLONE_NEWNET) < 0) {
        close(before);
        return -1;
    }
    return before;
}

/* And back. Nothing that the bench does later is right in another namespace than its own. */
static void leave(int before)
{
    if (setns(before, CLONE_NEWNET) < 0)
        abort();
    close(before);
}

/* What the stack of the namespace in which we are is to be like. */
static void set_up(void)
{
    /* No router solicitations and neighbour discovery among the frames that are counted. */
    write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    /* Between two slices all stand still: a stream goes on as it was. */
    write_file("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
}

int bench_network_open(struct bench_context *context)
{
    int before, network = -1, error;

    if (geteuid() != 0 && become_root() < 0)
        return bench_fail(context,
                          "no rights to make network namespaces: %s. Run it as root, or allow "
                          "unprivileged user namespaces",
                          strerror(errno));
    before = open(OUR_NETWORK, O_RDONLY | O_CLOEXEC);
    if (before < 0 || unshare(CLONE_NEWNET) < 0) {
        error = errno;
        if (before >= 0)
            close(before);
        return bench_fail(context, "cannot make a network namespace: %s", strerror(error));
    }
    network = open(OUR_NETWORK, O_RDONLY | O_CLOEXEC);
    error = errno;
    set_up();
    leave(before);
    return network >= 0
               ? network
               : bench_fail(context, "cannot open a network namespace: %s", strerror(error));
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* One request, and its acknowledgement. 0 or -1 with errno. */
static int request(struct nlmsghdr *message)
{
    struct mnl_socket *socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    char answer[1024];
    int result = -1, error;
    ssize_t length;

    if (socket == NULL)
        return -1;
    message->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) == 0 &&
        mnl_socket_sendto(socket, message, message->nlmsg_len) >= 0 &&
        (length = mnl_socket_recvfrom(socket, answer, sizeof(answer))) >= 0 &&
        mnl_cb_run(answer, (size_t)length, 0, mnl_socket_get_portid(socket), NULL, NULL) >= 0)
        result = 0;
    error = errno;
    mnl_socket_close(socket);
    errno = error;
    return result;
}

static int add_address(unsigned interface, struct in_addr address)
{
    char buffer[256] = "";
    struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);
    struct ifaddrmsg *body = mnl_nlmsg_put_extra_header(message, sizeof(*body));

    message->nlmsg_type = RTM_NEWADDR;
    message->nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL;
    body->ifa_family = AF_INET;
    body->ifa_prefixlen = PREFIX_BITS;
    body->ifa_index = interface;
    mnl_attr_put_u32(message, IFA_LOCAL, address.s_addr);
    mnl_attr_put_u32(message, IFA_ADDRESS, address.s_addr);
    return request(message);
}

int bench_network_address(struct bench_context *context, int network, const char *interface,
                          const char *address)
{
    struct in_addr binary;
    int before = enter(network), result = -1, error = errno;

    if (before >= 0) {
        unsigned index = if_nametoindex(interface);

        if (index != 0 && inet_pton(AF_INET, address, &binary) == 1)
            result = add_address(index, binary);
        error = errno;
        leave(before);
    }
    return result == 0 ? 0
                       : bench_fail(context, "cannot give %s the address %s: %s", interface,
                                    address, strerror(error));
}

/* ---- counters -------------------------------------------------------------------------------- */

/* The words of two lines, a heading and its values, which both begin with the protocol. */
static double value_under(char *names, char *values, const char *name)
{
    char *name_rest, *value_rest;
    char *heading = strtok_r(names, " \n", &name_rest);
    char *value = strtok_r(values, " \n", &value_rest);

    while (heading != NULL && value != NULL) {
        if (strcmp(heading, name) == 0)
            return strtod(value, NULL);
        heading = strtok_r(NULL, " \n", &name_rest);
        value = strtok_r(NULL, " \n", &value_rest);
    }
    return NAN;
}

double bench_network_counter(const struct bench_process *process, const char *protocol,
                             const char *name)
{
    char *path = bench_format("/proc/%d/net/snmp", bench_process_id(process));
    FILE *file = fopen(path, "re");
    char names[1024], values[1024];
    size_t length = strlen(protocol);
    double value = NAN;

    free(path);
    if (file == NULL)
        return NAN;
    while (isnan(value) && fgets(names, sizeof(names), file) != NULL &&
           fgets(values, sizeof(values), file) != NULL)
        if (strncmp(names, protocol, length) == 0 && names[length] == ':')
            value = value_under(names, values, name);
    fclose(file);
    return value;
}
