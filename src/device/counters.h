/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every number that a device counts, in one list each, so that no counter can miss from a report.
 *
 * A counter has one writing thread, or is written under the lock of the ring that it belongs to;
 * other threads read it while it changes. A relaxed store is therefore enough, and no locked
 * instruction is spent on a frame.
 */
#ifndef VW_DEVICE_COUNTERS_H
#define VW_DEVICE_COUNTERS_H

#include <stdint.h>

/* X(name, text for people). Names that begin with "drop_" are reasons to drop a frame. */
#define VW_QUEUE_COUNTERS(X)                                                                       \
    X(frames, "frames carried")                                                                    \
    X(bytes, "bytes carried, without the virtio-net header")                                       \
    X(batches, "batches of frames")                                                                \
    X(kicks, "kicks received from the guest")                                                      \
    X(calls, "calls sent to the guest")                                                            \
    X(calls_refused, "calls that their descriptor did not take")                                   \
    X(calls_put_off, "publications whose call was put off by notification coalescing")             \
    X(waits, "times that the queue waited: for guest buffers (receive) or for the port "           \
             "(transmit)")                                                                         \
    X(gso_frames, "frames larger than the MTU, to be segmented")                                   \
    X(frames_cut, "frames segmented in software, counted as the segments that they became")        \
    X(checksums_completed, "checksums completed in software")                                      \
    X(commands, "control commands carried out")                                                    \
    X(commands_refused, "control commands refused")                                                \
    X(broken, "times that the guest broke the ring")                                               \
    X(drop_header, "virtio-net header that breaks the rules")                                      \
    X(drop_short, "frame shorter than an Ethernet header")                                         \
    X(drop_long, "frame longer than any port carries")                                             \
    X(drop_disabled, "queue disabled by the front-end")                                            \
    X(drop_disconnected, "frame left over when the front-end went")                                \
    X(drop_port_refused, "the port refused the frame")                                             \
    X(drop_port_down, "the port's interface is down")                                              \
    X(drop_port_gone, "the port's interface was deleted")                                          \
    X(drop_port_failed, "the port failed in another way")                                          \
    X(drop_filter, "destination address or VLAN that the guest does not want")                     \
    X(drop_mtu, "frame larger than the negotiated MTU")                                            \
    X(drop_no_offload, "segmentation that the guest did not accept")                               \
    X(drop_too_small, "frame larger than the guest's receive buffers")                             \
    X(drop_ring_full, "no buffer in the receive queue that RSS chose")

struct vw_queue_counters {
#define VW_COUNTER_FIELD(name, text) uint64_t name;
    VW_QUEUE_COUNTERS(VW_COUNTER_FIELD)
};

#define VW_DEVICE_COUNTERS(X)                                                                      \
    X(connections, "front-ends that connected")                                                    \
    X(connections_refused, "connections refused, since a front-end was connected")                 \
    X(connections_dropped, "connections ended for breaking the protocol")                          \
    X(messages, "vhost-user messages")                                                             \
    X(messages_refused, "vhost-user messages refused")                                             \
    X(memory_lost, "guests whose memory vanished while in use")                                    \
    X(config_changes, "configuration changes told to the guest")

struct vw_device_counters {
    VW_DEVICE_COUNTERS(VW_COUNTER_FIELD)
};

#define VW_WORKER_COUNTERS(X)                                                                      \
    X(spins_found, "times that looking on for a while found work")                                 \
    X(spins_vain, "times that it found none")                                                      \
    X(sleeps, "sleeps")                                                                            \
    X(system_calls, "system calls: sleeps and looks, calls, reads and writes of the port")

struct vw_worker_counters {
    VW_WORKER_COUNTERS(VW_COUNTER_FIELD)
};

#undef VW_COUNTER_FIELD

static inline void vw_count(uint64_t *counter, uint64_t add)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + add, __ATOMIC_RELAXED);
}

static inline uint64_t vw_counter(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif
