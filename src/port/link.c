/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * A request is one message on a socket of its own, answered before the call returns. The monitor
 * is a member of RTNLGRP_LINK. Its socket can overflow when many interfaces change at once: the
 * kernel then reports ENOBUFS, and what was lost is asked for again on the same socket, so that
 * the answer arrives as one more event and nothing ever blocks. The question has to wait until
 * the socket is empty: while it is congested, the kernel drops the answer, too.
 *
 * Not every message about an interface means what its type says: when a bridge lets a port go,
 * RTM_DELLINK of the family AF_BRIDGE names an interface that goes on living. Only AF_UNSPEC
 * speaks of the interface itself.
 */
#include "port/link.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

/* An interface with every attribute but statistics takes about 2 KiB. */
#define MESSAGE_MAX 16384

/* One call of vw_link_monitor_read is bounded; the descriptor stays readable if more is there. */
#define READS_MAX 64

/* Reads a number from an attribute of exactly `size` bytes; leaves `to` alone otherwise. */
static void get_number(const struct nlattr *attribute, size_t size, void *to)
{
    if (mnl_attr_get_payload_len(attribute) == size)
        memcpy(to, mnl_attr_get_payload(attribute), size);
}

static bool get_flag(const struct nlattr *attribute)
{
    uint8_t value = 0;

    get_number(attribute, sizeof(value), &value);
    return value != 0;
}

static int on_tun_attribute(const struct nlattr *attribute, void *context)
{
    struct vw_link *link = context;
    uint8_t type = 0;

    switch (mnl_attr_get_type(attribute)) {
    case IFLA_TUN_TYPE:
        get_number(attribute, sizeof(type), &type);
        link->is_tap = type == IFF_TAP;
        break;
    case IFLA_TUN_PI:
        link->packet_information = get_flag(attribute);
        break;
    case IFLA_TUN_MULTI_QUEUE:
        link->multi_queue = get_flag(attribute);
        break;
    case IFLA_TUN_PERSIST:
        link->persistent = get_flag(attribute);
        break;
    case IFLA_TUN_NUM_QUEUES:
        get_number(attribute, sizeof(link->queues_open), &link->queues_open);
        break;
    default:
        break;
    }
    return MNL_CB_OK;
}

/* The kind comes before its data. */
static int on_info_attribute(const struct nlattr *attribute, void *context)
{
    struct vw_link *link = context;

    if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND)
        link->is_tun = mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) >= 0 &&
                       strcmp(mnl_attr_get_str(attribute), "tun") == 0;
    else if (mnl_attr_get_type(attribute) == IFLA_INFO_DATA && link->is_tun)
        mnl_attr_parse_nested(attribute, on_tun_attribute, link);
    return MNL_CB_OK;
}

static int on_link_attribute(const struct nlattr *attribute, void *context)
{
    struct vw_link *link = context;

    switch (mnl_attr_get_type(attribute)) {
    case IFLA_IFNAME:
        if (mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) >= 0)
            strncpy(link->name, mnl_attr_get_str(attribute), sizeof(link->name) - 1);
        break;
    case IFLA_MTU:
        get_number(attribute, sizeof(link->mtu), &link->mtu);
        break;
    case IFLA_ADDRESS:
        get_number(attribute, sizeof(link->mac), link->mac);
        break;
    case IFLA_LINKINFO:
        mnl_attr_parse_nested(attribute, on_info_attribute, link);
        break;
    default:
        break;
    }
    return MNL_CB_OK;
}

static int on_link(const struct nlmsghdr *message, void *context)
{
    struct vw_link *link = context;
    const struct ifinfomsg *info = mnl_nlmsg_get_payload(message);

    if (message->nlmsg_type != RTM_NEWLINK || mnl_nlmsg_get_payload_len(message) < sizeof(*info))
        return MNL_CB_OK;
    memset(link, 0, sizeof(*link));
    link->index = info->ifi_index;
    link->flags = info->ifi_flags;
    mnl_attr_parse(message, sizeof(*info), on_link_attribute, link);
    return MNL_CB_OK;
}

/* Sends one request and takes in its answers up to the acknowledgement. */
static int request(struct nlmsghdr *message, mnl_cb_t callback, void *context)
{
    struct mnl_socket *socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    char buffer[MESSAGE_MAX];
    int result = MNL_CB_ERROR;

    if (socket == NULL)
        return -errno;
    message->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
    message->nlmsg_seq = 1;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) == 0 &&
        mnl_socket_sendto(socket, message, message->nlmsg_len) >= 0) {
        unsigned self = mnl_socket_get_portid(socket);

        do {
            ssize_t length = mnl_socket_recvfrom(socket, buffer, sizeof(buffer));

            if (length < 0 && errno == EINTR) {
                result = MNL_CB_OK;
                continue;
            }
            result = length < 0 ? MNL_CB_ERROR
                                : mnl_cb_run(buffer, (size_t)length, 1, self, callback, context);
        } while (result == MNL_CB_OK);
    }
    result = result == MNL_CB_ERROR ? -errno : 0;
    mnl_socket_close(socket);
    return result;
}

static struct nlmsghdr *link_message(char *buffer, uint16_t type, int index,
                                     struct ifinfomsg **info)
{
    struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

    message->nlmsg_type = type;
    *info = mnl_nlmsg_put_extra_header(message, sizeof(**info));
    (*info)->ifi_family = AF_UNSPEC;
    (*info)->ifi_index = index;
    return message;
}

int vw_link_get(const char *name, struct vw_link *link)
{
    char buffer[512];
    struct ifinfomsg *info;
    struct nlmsghdr *message = link_message(buffer, RTM_GETLINK, 0, &info);

    memset(link, 0, sizeof(*link));
    if (strlen(name) >= IFNAMSIZ)
        return -ENODEV;
    mnl_attr_put_strz(message, IFLA_IFNAME, name);
    mnl_attr_put_u32(message, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    int result = request(message, on_link, link);
    return result == 0 && link->index == 0 ? -ENODEV : result;
}

int vw_link_set(int index, unsigned mtu, bool up)
{
    char buffer[512];
    struct ifinfomsg *info;
    struct nlmsghdr *message = link_message(buffer, RTM_NEWLINK, index, &info);

    if (up) {
        info->ifi_flags = IFF_UP;
        info->ifi_change = IFF_UP;
    }
    if (mtu != 0)
        mnl_attr_put_u32(message, IFLA_MTU, mtu);
    return request(message, NULL, NULL);
}

int vw_link_monitor_open(struct vw_link_monitor *monitor)
{
    memset(monitor, 0, sizeof(*monitor));
    monitor->socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (monitor->socket == NULL)
        return -errno;
    if (mnl_socket_bind(monitor->socket, RTMGRP_LINK, MNL_SOCKET_AUTOPID) < 0) {
        int result = -errno;

        vw_link_monitor_close(monitor);
        return result;
    }
    return 0;
}

void vw_link_monitor_start(struct vw_link_monitor *monitor, const struct vw_link *link)
{
    monitor->index = link->index;
    monitor->up = (link->flags & IFF_UP) != 0;
    monitor->present = true;
}

void vw_link_monitor_close(struct vw_link_monitor *monitor)
{
    if (monitor->socket != NULL)
        mnl_socket_close(monitor->socket);
    monitor->socket = NULL;
}

int vw_link_monitor_fd(const struct vw_link_monitor *monitor)
{
    return monitor->socket != NULL ? mnl_socket_get_fd(monitor->socket) : -1;
}

static int on_link_event(const struct nlmsghdr *message, void *context)
{
    struct vw_link_monitor *monitor = context;
    const struct ifinfomsg *info = mnl_nlmsg_get_payload(message);

    if (mnl_nlmsg_get_payload_len(message) < sizeof(*info) || monitor->index == 0 ||
        info->ifi_index != monitor->index || info->ifi_family != AF_UNSPEC)
        return MNL_CB_OK;
    if (message->nlmsg_type == RTM_NEWLINK) {
        monitor->up = (info->ifi_flags & IFF_UP) != 0;
        monitor->present = true;
    } else if (message->nlmsg_type == RTM_DELLINK) {
        monitor->up = false;
        monitor->present = false;
    }
    return MNL_CB_OK;
}

/* Asks for the interface's state after events were lost; the answer is one more event. */
static void ask_again(struct vw_link_monitor *monitor)
{
    char buffer[512];
    struct ifinfomsg *info;
    struct nlmsghdr *message = link_message(buffer, RTM_GETLINK, monitor->index, &info);

    message->nlmsg_flags |= NLM_F_REQUEST;
    mnl_socket_sendto(monitor->socket, message, message->nlmsg_len);
}

void vw_link_monitor_read(struct vw_link_monitor *monitor)
{
    char buffer[MESSAGE_MAX];

    if (monitor->socket == NULL)
        return;
    for (unsigned i = 0; i < READS_MAX; i++) {
        ssize_t length = mnl_socket_recvfrom(monitor->socket, buffer, sizeof(buffer));

        if (length >= 0) {
            if (mnl_cb_run(buffer, (size_t)length, 0, 0, on_link_event, monitor) < 0 &&
                errno == ENODEV) { /* the answer to ask_again */
                monitor->up = false;
                monitor->present = false;
            }
        } else if (errno == ENOBUFS || errno == ENOSPC) {
            monitor->lost = true;
        } else if (errno != EINTR) { /* EAGAIN: that was all */
            if (!monitor->lost || monitor->index == 0)
                return;
            monitor->lost = false;
            ask_again(monitor);
        }
    }
}
