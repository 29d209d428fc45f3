/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The features of virtio-net and of its rings: names, numbers, and what each needs.
 *
 * Theory of operation
 * -------------------
 * One table holds all that is known of a feature bit (sections 5.1.3, 5.1.3.1 and 6). Three
 * questions are answered from it: which features does a name on a command line mean; which of a
 * wished set may be offered (a device must not offer a feature without what it needs); and may the
 * set that the other side accepted stand.
 *
 * Sets are 64 bits wide, as in vhost-user's messages. Bits 64 and above cannot be negotiated.
 */
#ifndef VW_NET_FEATURES_H
#define VW_NET_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/urgent.h"
#include "net/uapi.h"

struct vw_feature {
    const char *name; /* as users write it: "guest_tso4" */
    unsigned bit;
    uint64_t needs;  /* all of these features, */
    uint64_t one_of; /* and, if not 0, at least one of these */
};

/* The features that the other side of a receive queue may switch at run time (section 5.1.6.5.9).
 */
#define VW_NET_GUEST_OFFLOADS                                                                      \
    (UINT64_C(1) << VIRTIO_NET_F_GUEST_CSUM | UINT64_C(1) << VIRTIO_NET_F_GUEST_TSO4 |             \
     UINT64_C(1) << VIRTIO_NET_F_GUEST_TSO6 | UINT64_C(1) << VIRTIO_NET_F_GUEST_ECN |              \
     UINT64_C(1) << VIRTIO_NET_F_GUEST_UFO | UINT64_C(1) << VIRTIO_NET_F_GUEST_USO4 |              \
     UINT64_C(1) << VIRTIO_NET_F_GUEST_USO6)

/* All transmit offloads of a device that we ever offer. */
#define VW_NET_HOST_OFFLOADS                                                                       \
    (UINT64_C(1) << VIRTIO_NET_F_CSUM | UINT64_C(1) << VIRTIO_NET_F_HOST_TSO4 |                    \
     UINT64_C(1) << VIRTIO_NET_F_HOST_TSO6 | UINT64_C(1) << VIRTIO_NET_F_HOST_ECN |                \
     UINT64_C(1) << VIRTIO_NET_F_HOST_USO)

/*
 * What our device can offer at most. UFO (10 and 14) is not among it: Linux gave it up, and what a
 * device never offers a guest cannot use. GUEST_HDRLEN is not: hdr_len is checked anyway.
 */
#define VW_NET_DEVICE_FEATURES                                                                     \
    (VW_NET_HOST_OFFLOADS | (VW_NET_GUEST_OFFLOADS & ~(UINT64_C(1) << VIRTIO_NET_F_GUEST_UFO)) |   \
     UINT64_C(1) << VIRTIO_NET_F_CTRL_GUEST_OFFLOADS | UINT64_C(1) << VIRTIO_NET_F_MTU |           \
     UINT64_C(1) << VIRTIO_NET_F_MAC | UINT64_C(1) << VIRTIO_NET_F_MRG_RXBUF |                     \
     UINT64_C(1) << VIRTIO_NET_F_STATUS | UINT64_C(1) << VIRTIO_NET_F_CTRL_VQ |                    \
     UINT64_C(1) << VIRTIO_NET_F_CTRL_RX | UINT64_C(1) << VIRTIO_NET_F_CTRL_VLAN |                 \
     UINT64_C(1) << VIRTIO_NET_F_CTRL_RX_EXTRA | UINT64_C(1) << VIRTIO_NET_F_GUEST_ANNOUNCE |      \
     UINT64_C(1) << VIRTIO_NET_F_MQ | UINT64_C(1) << VIRTIO_NET_F_CTRL_MAC_ADDR |                  \
     UINT64_C(1) << VIRTIO_NET_F_HASH_REPORT | UINT64_C(1) << VIRTIO_NET_F_RSS |                   \
     UINT64_C(1) << VIRTIO_NET_F_NOTF_COAL | UINT64_C(1) << VIRTIO_NET_F_VQ_NOTF_COAL |            \
     UINT64_C(1) << VIRTIO_NET_F_SPEED_DUPLEX | UINT64_C(1) << VIRTIO_F_ANY_LAYOUT |               \
     UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC | UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX |         \
     UINT64_C(1) << VIRTIO_F_VERSION_1 | UINT64_C(1) << VIRTIO_F_RING_PACKED |                     \
     UINT64_C(1) << VIRTIO_F_IN_ORDER)

/* What our device offers only when it is told to: docs/urgent.md says why. */
#define VW_NET_DEVICE_EXTRAS (UINT64_C(1) << VW_F_URGENT)

/* The table, in the order of bits. */
extern const struct vw_feature vw_features[];
extern const unsigned vw_feature_count;

/* The table's entry, or NULL for a bit that has no name. */
const struct vw_feature *vw_feature_by_bit(unsigned bit);

/* The number of the feature with this name of `length` bytes, or -ENOENT. */
int vw_feature_by_name(const char *name, size_t length);

/*
 * The set without every feature whose prerequisites it lacks, until nothing more is lacking.
 * Bits without a name are kept.
 */
uint64_t vw_features_close(uint64_t features);

/* Who accepted a set. */
enum vw_features_peer {
    VW_FEATURES_OF_DRIVER, /* a driver: section 5.1.3.1 binds it in full */
    /* A vhost-user front-end, which may run the control queue itself: QEMU then acknowledges MQ,
     * RSS or GUEST_ANNOUNCE without CTRL_VQ. The rule that these need CTRL_VQ is not applied. */
    VW_FEATURES_OF_FRONT_END,
};

struct vw_features_fault {
    unsigned bit;     /* the feature that may not be accepted */
    uint64_t missing; /* what it needs: all, or one, of these; 0: it was not offered */
};

/*
 * May the set stand? Returns 0, or -EINVAL and the fault with the lowest bit number. A bit outside
 * the offer is told before a missing prerequisite.
 */
int vw_features_check_accepted(uint64_t offered, uint64_t accepted, enum vw_features_peer peer,
                               struct vw_features_fault *fault);

/* The transmit offloads (CSUM, HOST_*) that correspond to receive offloads (GUEST_*), and the other
 * way round: what may come from one side is what the other must be able to do. */
uint64_t vw_features_host_of(uint64_t guest);
uint64_t vw_features_guest_of(uint64_t host);

/*
 * Writes the names, separated by spaces, always with an end; bits without a name appear as
 * "bit63". Returns the bytes that the full text has, as snprintf does.
 */
size_t vw_features_format(uint64_t features, char *text, size_t size);

/* Writes one sentence about a fault, for the log. Returns as snprintf does. */
int vw_features_fault_format(const struct vw_features_fault *fault, char *text, size_t size);

#endif
