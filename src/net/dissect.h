/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the headers of a frame lie.
 *
 * Theory of operation
 * -------------------
 * Steering, hashing, filtering and checksums all ask the same questions of a frame, so the answer
 * is found once and handed on. The dissector reads a private copy of the first bytes of a frame,
 * never guest memory: a byte there may change between two looks. It never reads behind the bytes
 * given, takes a bounded number of steps, and stops where it does not understand: what it found
 * until then is valid.
 *
 * Understood: Ethernet II, one 802.1Q or 802.1ad tag, IPv4 with options, IPv6 with hop-by-hop,
 * routing, destination-options, fragment and authentication headers, the ports of TCP and UDP.
 */
#ifndef VW_NET_DISSECT_H
#define VW_NET_DISSECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Bytes at the start of a frame that reach over the headers of every usual one. */
#define VW_NET_DISSECT_BYTES 192

/* At most so many IPv6 extension headers are followed. */
#define VW_NET_MAX_EXTENSIONS 8

enum vw_net_transport {
    VW_NET_TRANSPORT_NONE, /* not known, cut off, or a fragment */
    VW_NET_TRANSPORT_TCP,
    VW_NET_TRANSPORT_UDP,
    VW_NET_TRANSPORT_OTHER, /* a protocol without ports: see `protocol` */
};

/* All offsets count from the start of the frame and lie inside the bytes given. */
struct vw_net_packet {
    bool ethernet;      /* there is a whole Ethernet header */
    bool tagged;        /* a tag follows it, with this type and VLAN */
    uint16_t tag_type;  /* 0x8100 or 0x88a8 */
    uint16_t vlan;      /* 0..4095 */
    uint16_t ethertype; /* of what follows, without the tag */

    uint8_t ip_version; /* 4, 6, or 0 */
    bool fragment;      /* any fragment, also the first */
    bool extended;      /* IPv6 with at least one extension header */
    uint16_t ip_offset; /* where IP starts */
    uint16_t source;    /* where the addresses lie, 4 or 16 bytes each */
    uint16_t destination;
    uint16_t home_source;        /* the home-address option's address, else as source */
    uint16_t routed_destination; /* the type 2 routing header's address, else as destination */

    enum vw_net_transport transport;
    uint8_t protocol; /* IP's number of the transport protocol, if transport is not NONE */
    uint16_t transport_offset;
    uint16_t ports; /* where source port and destination port lie, for TCP and UDP */
};

/* Dissects the first `length` bytes of a frame. */
void vw_net_dissect(struct vw_net_packet *packet, const uint8_t *data, size_t length);

/*
 * The same behind any number of tags: `tag_type` and `vlan` are the innermost one's. Hashes and
 * filters want the outermost; whoever makes new headers of the old ones has to see them all.
 */
void vw_net_dissect_tagged(struct vw_net_packet *packet, const uint8_t *data, size_t length);

/*
 * Copies the first VW_NET_DISSECT_BYTES bytes, or fewer if there are not as many, of the frame
 * that starts at byte `offset` of the list into `data`, and dissects the copy. Returns the number
 * of bytes copied.
 */
size_t vw_net_dissect_iov(struct vw_net_packet *packet, uint8_t data[VW_NET_DISSECT_BYTES],
                          const struct iovec *iov, size_t count, size_t offset);

#endif
