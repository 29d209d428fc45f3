/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network interfaces through rtnetlink: what one is like, setting it up, and watching it.
 *
 * Everything concerns the network namespace in which the process runs.
 */
#ifndef VW_PORT_LINK_H
#define VW_PORT_LINK_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct vw_link {
    char name[IFNAMSIZ];
    int index;
    unsigned flags; /* IFF_UP and others */
    unsigned mtu;
    uint8_t mac[6];
    bool is_tun;             /* made by /dev/net/tun; only then is the rest known */
    bool is_tap;             /* ... and carries Ethernet frames */
    bool packet_information; /* four more bytes before each frame (no IFF_NO_PI) */
    bool multi_queue;
    bool persistent;
    unsigned queues_open; /* descriptors attached now, by whomever */
};

/* Looks an interface up by name. Returns 0, -ENODEV, or another -errno. */
int vw_link_get(const char *name, struct vw_link *link);

/* Sets the MTU unless 0, and the interface up if `up`. Needs CAP_NET_ADMIN. */
int vw_link_set(int index, unsigned mtu, bool up);

/* A subscription to the changes of all interfaces, of which one is looked at. */
struct vw_link_monitor {
    struct mnl_socket *socket;
    int index; /* 0 while there is none */
    bool up;
    bool present;
    bool lost; /* events were lost, and not yet made up for */
};

/*
 * Subscribes; from here on nothing is missed. The caller then reads the state with vw_link_get
 * and hands it to vw_link_monitor_start. Returns 0 or -errno.
 */
int vw_link_monitor_open(struct vw_link_monitor *monitor);
void vw_link_monitor_start(struct vw_link_monitor *monitor, const struct vw_link *link);
void vw_link_monitor_close(struct vw_link_monitor *monitor);

/* To be polled for reading; -1 if the monitor is not open. */
int vw_link_monitor_fd(const struct vw_link_monitor *monitor);

/* Takes in what has happened: updates up and present. Never blocks. */
void vw_link_monitor_read(struct vw_link_monitor *monitor);

#endif
