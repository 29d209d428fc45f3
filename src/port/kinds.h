/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to src/port: what the kinds of port share while they are opened. */
#ifndef VW_PORT_KINDS_H
#define VW_PORT_KINDS_H

#include <stdint.h>

#include "base/bits.h"
#include "net/probe.h"
#include "net/uapi.h"
#include "port/merge.h"
#include "port/port.h"

_Static_assert(sizeof(struct virtio_net_hdr_v1) == VW_PORT_HEADER, "virtio 1.3, section 5.1.6");

#define VW_PORT_ETHERNET_HEADER 14

/* Checksum and segmentation offloads in both directions, all but UDP segmentation ... */
#define VW_PORT_OFFLOADS                                                                           \
    (vw_bit(VIRTIO_NET_F_CSUM) | vw_bit(VIRTIO_NET_F_HOST_TSO4) | vw_bit(VIRTIO_NET_F_HOST_TSO6) | \
     vw_bit(VIRTIO_NET_F_HOST_ECN) | vw_bit(VIRTIO_NET_F_GUEST_CSUM) |                             \
     vw_bit(VIRTIO_NET_F_GUEST_TSO4) | vw_bit(VIRTIO_NET_F_GUEST_TSO6) |                           \
     vw_bit(VIRTIO_NET_F_GUEST_ECN))

/* ... and UDP segmentation, which older kernels do not have. */
#define VW_PORT_OFFLOADS_USO                                                                       \
    (vw_bit(VIRTIO_NET_F_HOST_USO) | vw_bit(VIRTIO_NET_F_GUEST_USO4) |                             \
     vw_bit(VIRTIO_NET_F_GUEST_USO6))

/* How a TAP is read and written. */
enum vw_port_io {
    VW_PORT_IO_AUTO,  /* whichever is faster here */
    VW_PORT_IO_URING, /* io_uring: a batch in one system call */
    VW_PORT_IO_PLAIN, /* a system call for each frame */
};

/* IFF_NAPI of a TAP: frames go through a queue of the kernel and its GRO. */
enum vw_port_napi {
    VW_PORT_NAPI_OFF,
    VW_PORT_NAPI_ON,
    VW_PORT_NAPI_AUTO, /* on if the kernel has it */
};

/* A description, taken apart. */
struct vw_port_options {
    const char *name; /* NULL: not given */
    unsigned queues;  /* never 0 once the options are complete */
    unsigned mtu;     /* 0: not given */
    unsigned sndbuf;  /* 0: not given */
    enum vw_port_io io;
    enum vw_port_napi napi;
    const char *path;      /* NULL: not given */
    const char *interface; /* NULL: not given */
    unsigned queue;        /* of the interface */
    bool offload;
    enum vw_port_coalesce coalesce;
    struct vw_probe_sizes sizes; /* count 0: not given */
    unsigned flows;              /* 0: not given */
    unsigned frames;             /* 0: without end */
    unsigned streams;            /* 0: probes */
    unsigned write;              /* 0: not given */
    unsigned acknowledge;        /* 0: never */
    unsigned fd_count;           /* 0: not given */
    int fds[VW_PORT_MAX_QUEUES];
};

/* Where the sentence about a failure goes. */
struct vw_port_error {
    char *text;
    unsigned size;
};

/* Writes the sentence and returns `result`, a negative errno. */
int vw_port_fail(const struct vw_port_error *error, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One for each kind; the port's log is set before any of its operations can be called. */
int vw_port_null_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **port, const struct vw_port_error *error);
int vw_port_loop_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **port, const struct vw_port_error *error);
int vw_port_sink_open(const struct vw_port_options *options, const struct vw_log *log,
                      struct vw_port **port, const struct vw_port_error *error);
int vw_port_source_open(const struct vw_port_options *options, const struct vw_log *log,
                        struct vw_port **port, const struct vw_port_error *error);
int vw_port_afxdp_open(const struct vw_port_options *options, const struct vw_log *log,
                       struct vw_port **port, const struct vw_port_error *error);
int vw_port_tap_open(const struct vw_port_options *options, const struct vw_log *log,
                     struct vw_port **port, const struct vw_port_error *error);

/*
 * Zeroed memory of whole cache lines, so that no two queues share one; NULL if there is none.
 * Freed with free().
 */
void *vw_port_allocate(size_t size);

/*
 * Frame buffers, each for a header and the longest frame, and one byte more that tells a frame
 * which just fits from one that was cut. They are mapped and not touched: a buffer costs what the
 * frames in it fill. The stride is odd in pages, so that the buffers' first bytes fall into
 * different sets of the first-level cache. NULL if there is no memory.
 */
#define VW_PORT_BUFFER_SIZE (VW_PORT_HEADER + VW_PORT_MAX_FRAME + 1)
#define VW_PORT_BUFFER_STRIDE ((VW_PORT_BUFFER_SIZE + 63) / 64 * 64)
char *vw_port_buffers_map(unsigned count);
void vw_port_buffers_unmap(char *buffers, unsigned count);

#endif
