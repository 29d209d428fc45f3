/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The back-end: a virtio-net device that a VMM reaches over a vhost-user socket, and a port behind
 * it.
 *
 * Theory of operation
 * -------------------
 * A device has one control thread, that of the caller, and worker threads, usually one for each
 * queue pair.
 * The caller owns the event loop: it polls vw_device_fd for reading and then calls
 * vw_device_process, which accepts front-ends, carries out their messages and serves the control
 * queue. All functions here are for that one thread. Devices share nothing and never wait for one
 * another.
 *
 * A device without a socket is for a driver in the same process (in_process.h).
 *
 * One front-end is served at a time; it may go and come back, or another may, without end. What
 * a front-end or a guest does wrong ends its connection or breaks its queue, is counted and
 * logged, and harms nothing else.
 */
#ifndef VW_DEVICE_DEVICE_H
#define VW_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "device/counters.h"
#include "net/header.h"
#include "port/port.h"

/* vhost-user numbers rings with 8 bits; one is the control queue. */
#define VW_DEVICE_MAX_PAIRS 127

/* What a worker does when there is nothing to do. */
enum vw_device_mode {
    VW_DEVICE_ADAPTIVE,  /* goes on looking for a bounded time, if that has paid lately; sleeps */
    VW_DEVICE_INTERRUPT, /* sleeps */
    VW_DEVICE_POLL,      /* goes on looking, and never asks for a kick */
};

/* How long a worker goes on looking unless told. */
#define VW_DEVICE_BUSY_POLL_US 50

struct vw_device_options {
    const char *socket_path; /* to listen at, or to connect to; NULL with fd, or for no socket */
    int fd;                  /* an open socket, listening or connected; -1 for none */
    bool client;             /* connect to socket_path, again and again, instead of listening */
    enum vw_device_mode mode;
    unsigned busy_poll_us; /* adaptive: how long to go on; 0: VW_DEVICE_BUSY_POLL_US */
    unsigned workers;      /* threads, up to queue_pairs; 0: one for each pair */
    const unsigned *cpus;  /* worker i is pinned to cpus[i % cpu_count]; outlives the device */
    unsigned cpu_count;    /* 0: workers run anywhere */
    unsigned realtime;     /* SCHED_FIFO priority of the workers, 1 to 99; 0: none */
    unsigned queue_pairs;  /* 1 .. VW_DEVICE_MAX_PAIRS, as many as the port has queues */
    uint32_t queue_size;   /* largest ring accepted; 0: 32768 */
    unsigned batch;        /* frames from the guest in one go, 1 .. VW_PORT_BATCH; 0: that */
    bool batch_singly;     /* but each fetched from the ring, and used, by itself */
    bool batch_copy;       /* and copied to memory of our own before the port sees it */
    bool has_mac;
    uint8_t mac[6];
    unsigned mtu;          /* told to the guest; 0: no MTU feature */
    uint64_t features_off; /* features not to be offered */
    uint64_t features_on;  /* of VW_NET_DEVICE_EXTRAS: to be offered, which else they are not */
    struct vw_port *port;  /* outlives the device */
    const struct vw_log *log;
};

struct vw_device;

/*
 * Creates a device and starts its workers. Returns 0, or -errno and one sentence in `error` that
 * says what was wrong and what to do.
 */
int vw_device_create(const struct vw_device_options *options, struct vw_device **device,
                     char *error, unsigned error_size);

/* Ends the connection, stops the workers, removes the socket. The port stays open. */
void vw_device_destroy(struct vw_device *device);

/* A descriptor that is readable when vw_device_process has something to do. */
int vw_device_fd(const struct vw_device *device);

/*
 * Does what there is to do, without waiting. Returns 0; or 1 if the device has ended, since it was
 * given a connected socket and that connection is over.
 */
int vw_device_process(struct vw_device *device);

/* The features that a device of these options would offer, for --print-capabilities. */
uint64_t vw_device_offer(const struct vw_device_options *options);

struct vw_queue_statistics {
    const char *role; /* "receive", "transmit" (both as the guest sees it), "control" */
    unsigned index;
    uint32_t size;
    bool started, enabled, live;
    const char *broken; /* why the ring is broken, or NULL */
    struct vw_queue_counters counters;
    uint64_t header_errors[VW_NET_HEADER_ERROR_COUNT]; /* of drop_header, by reason */
};

struct vw_device_statistics {
    bool connected;
    uint64_t offered, acknowledged; /* features */
    uint64_t protocol;              /* acknowledged protocol features */
    unsigned pairs, active_pairs;
    unsigned queue_count, worker_count;
    bool link_up;
    struct vw_device_counters counters;
};

void vw_device_statistics(const struct vw_device *device, struct vw_device_statistics *statistics);

/* Statistics of queue `index`, below queue_count. */
void vw_device_queue_statistics(const struct vw_device *device, unsigned index,
                                struct vw_queue_statistics *statistics);

/* Counters of worker `index`, below worker_count. */
void vw_device_worker_counters(const struct vw_device *device, unsigned index,
                               struct vw_worker_counters *counters);

#endif
