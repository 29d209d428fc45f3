/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to src/port: reads and writes of a TAP, many in one system call, through io_uring.
 *
 * Theory of operation
 * -------------------
 * Requests are added, then run: when vw_tap_ring_run returns, each of them is finished and its
 * result is known. Nothing is ever in flight between two calls, so memory may vanish, the worker
 * may pause and the interface may be deleted without anything to cancel or to wait for.
 *
 * This rests on RWF_NOWAIT in every request. io_uring ignores O_NONBLOCK; without that flag it
 * would wait for an empty TAP, or a full send buffer, on its own. With it a request is carried out
 * while it is submitted, in the order of submission, or fails with EAGAIN.
 *
 * The TAP's descriptor is not registered with the ring, though that would save 5 % of a write: the
 * kernel lets go of a ring's files some time after the end of their process, and meanwhile the
 * interface would stay, and be in use.
 */
#ifndef VW_PORT_TAP_RING_H
#define VW_PORT_TAP_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* Requests in one run: a batch of writes and a batch of reads (VW_PORT_BATCH each). */
#define VW_TAP_RING_REQUESTS 128

struct vw_tap_ring {
    struct io_uring uring;
    bool open;
    int fd;         /* the TAP's, which stays the caller's */
    uint32_t added; /* requests since the last run */
};

/*
 * Returns 0 or -errno: io_uring may be missing or forbidden (-ENOSYS, -EPERM), or not know
 * RWF_NOWAIT for this kind of file (-EOPNOTSUPP).
 */
int vw_tap_ring_open(struct vw_tap_ring *ring, int fd);
void vw_tap_ring_close(struct vw_tap_ring *ring);

/*
 * True if a batch of requests costs less than nine tenths of as many system calls here, by a timing
 * that moves no frame and takes less than a millisecond.
 */
bool vw_tap_ring_is_faster(struct vw_tap_ring *ring);

/*
 * Adds a request. `result`, which is valid after the run, is the length, or -errno, or -ECANCELED
 * for a request that was not carried out. A `linked` write that fails cancels the request that is
 * added next, and so on to the end of the links.
 */
void vw_tap_ring_write(struct vw_tap_ring *ring, const struct iovec *iov, uint32_t count,
                       bool linked, int *result);
void vw_tap_ring_read(struct vw_tap_ring *ring, void *buffer, uint32_t size, int *result);

/* Carries out what was added. Returns 0, or -errno if the ring is of no use any more. */
int vw_tap_ring_run(struct vw_tap_ring *ring);

#endif
