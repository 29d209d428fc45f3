/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/header.h"

#include <endian.h>
#include <string.h>

#include "base/bits.h"

/* The shortest transport headers, and where their checksums lie. */
#define TCP_HEADER 20
#define TCP_CSUM 16
#define UDP_HEADER 8
#define UDP_CSUM 6

#define TUNNEL_BITS (VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6)

unsigned vw_net_header_size(uint64_t features)
{
    if (vw_has(features, VIRTIO_NET_F_HASH_REPORT))
        return sizeof(struct virtio_net_hdr_v1_hash);
    /* Section 5.1.6.1: num_buffers is missing only for a legacy driver without MRG_RXBUF. */
    if (vw_has(features, VIRTIO_F_VERSION_1) || vw_has(features, VIRTIO_NET_F_MRG_RXBUF))
        return sizeof(struct virtio_net_hdr_v1);
    return sizeof(struct virtio_net_hdr);
}

void vw_net_header_decode(struct vw_net_header *header, const void *wire, unsigned size)
{
    struct virtio_net_hdr_v1_hash raw = {0};

    memcpy(&raw, wire, vw_min64(size, sizeof(raw)));
    *header = (struct vw_net_header){
        .flags = raw.hdr.flags,
        .gso_type = raw.hdr.gso_type,
        .hdr_len = le16toh(raw.hdr.hdr_len),
        .gso_size = le16toh(raw.hdr.gso_size),
        .csum_start = le16toh(raw.hdr.csum_start),
        .csum_offset = le16toh(raw.hdr.csum_offset),
        .num_buffers = le16toh(raw.hdr.num_buffers),
        .hash_value = le32toh(raw.hash_value),
        .hash_report = le16toh(raw.hash_report),
    };
}

void vw_net_header_encode(const struct vw_net_header *header, void *wire, unsigned size)
{
    struct virtio_net_hdr_v1_hash raw = {
        .hdr.flags = header->flags,
        .hdr.gso_type = header->gso_type,
        .hdr.hdr_len = htole16(header->hdr_len),
        .hdr.gso_size = htole16(header->gso_size),
        .hdr.csum_start = htole16(header->csum_start),
        .hdr.csum_offset = htole16(header->csum_offset),
        .hdr.num_buffers = htole16(header->num_buffers),
        .hash_value = htole32(header->hash_value),
        .hash_report = htole16(header->hash_report),
    };

    memcpy(wire, &raw, vw_min64(size, sizeof(raw)));
}

/* Section 5.1.6.2: the checksum goes to csum_start + csum_offset, which must lie in the frame. */
static enum vw_net_header_error check_checksum(const struct vw_net_header *header, uint32_t length,
                                               uint64_t features)
{
    if (!vw_has(features, VIRTIO_NET_F_CSUM))
        return VW_NET_HEADER_CSUM_UNNEGOTIATED;
    if (header->csum_start < VW_NET_ETHERNET_HEADER ||
        (uint32_t)header->csum_start + header->csum_offset + 2 > length)
        return VW_NET_HEADER_CSUM_PLACE;
    return VW_NET_HEADER_OK;
}

/* What the check needs to know of a gso_type. */
struct gso_kind {
    unsigned feature;        /* that the guest must have accepted */
    uint32_t earliest_start; /* of the transport header: behind the shortest IP header */
    uint16_t header;         /* shortest transport header */
    uint16_t csum_offset;
};

static enum vw_net_header_error find_gso_kind(uint8_t gso_type, struct gso_kind *kind)
{
    if (gso_type & TUNNEL_BITS)
        return VW_NET_HEADER_GSO_TUNNEL;
    switch (gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_TCPV4:
        *kind = (struct gso_kind){VIRTIO_NET_F_HOST_TSO4, 14 + 20, TCP_HEADER, TCP_CSUM};
        return VW_NET_HEADER_OK;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        *kind = (struct gso_kind){VIRTIO_NET_F_HOST_TSO6, 14 + 40, TCP_HEADER, TCP_CSUM};
        return VW_NET_HEADER_OK;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        *kind = (struct gso_kind){VIRTIO_NET_F_HOST_USO, 14 + 20, UDP_HEADER, UDP_CSUM};
        return VW_NET_HEADER_OK;
    case VIRTIO_NET_HDR_GSO_UDP:
        return VW_NET_HEADER_GSO_UFO;
    case VIRTIO_NET_HDR_GSO_NONE:
        return VW_NET_HEADER_ECN; /* ECN, and nothing that it belongs to */
    default:
        return VW_NET_HEADER_GSO_UNKNOWN;
    }
}

/* Section 5.1.6.2.1. The checksum's place is already checked. */
static enum vw_net_header_error check_gso(const struct vw_net_header *header, uint32_t length,
                                          uint64_t features, struct gso_kind *kind)
{
    enum vw_net_header_error error = find_gso_kind(header->gso_type, kind);

    if (error != VW_NET_HEADER_OK)
        return error;
    if (!vw_has(features, kind->feature))
        return VW_NET_HEADER_GSO_UNNEGOTIATED;
    if ((header->gso_type & VIRTIO_NET_HDR_GSO_ECN) &&
        (kind->header != TCP_HEADER || !vw_has(features, VIRTIO_NET_F_HOST_ECN)))
        return VW_NET_HEADER_ECN;
    if (!(header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return VW_NET_HEADER_GSO_NO_CSUM;
    /* 0xffff has a meaning of its own inside Linux, which refuses it. */
    if (header->gso_size == 0 || header->gso_size == 0xffff)
        return VW_NET_HEADER_GSO_SIZE;
    if (header->csum_start < kind->earliest_start ||
        (uint32_t)header->csum_start + kind->header > length)
        return VW_NET_HEADER_GSO_PLACE;
    if (header->csum_offset != kind->csum_offset)
        return VW_NET_HEADER_GSO_CSUM_OFFSET;
    if (kind->header == UDP_HEADER && length - header->csum_start - UDP_HEADER >
                                          (uint32_t)header->gso_size * VW_NET_MAX_UDP_SEGMENTS)
        return VW_NET_HEADER_GSO_SEGMENTS;
    return VW_NET_HEADER_OK;
}

/* Takes over what was checked about GSO, unless the frame is one segment anyway. */
static void take_gso(struct vw_net_header *clean, const struct vw_net_header *header,
                     uint32_t length, const struct gso_kind *kind)
{
    uint16_t gso_size = header->gso_size;

    /* A guest must not make us cut 64 KiB into single bytes. */
    if (kind->header == TCP_HEADER && gso_size < VW_NET_MIN_TCP_SEGMENT)
        gso_size = VW_NET_MIN_TCP_SEGMENT;
    /* Options may make the TCP header longer than thought here: then the payload is shorter than
     * thought, and a frame stays GSO that need not. */
    if (length - header->csum_start - kind->header <= gso_size)
        return;
    clean->gso_type = header->gso_type;
    clean->gso_size = gso_size;
}

enum vw_net_header_error vw_net_header_check(struct vw_net_header *header, uint32_t length,
                                             uint64_t features)
{
    enum vw_net_header_error error;
    struct vw_net_header clean = {0};
    struct gso_kind kind;
    uint32_t known_headers = 0;

    if (length < VW_NET_ETHERNET_HEADER)
        return VW_NET_HEADER_FRAME_SHORT;
    if (length > VW_NET_MAX_FRAME)
        return VW_NET_HEADER_FRAME_LONG;
    if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        error = check_checksum(header, length, features);
        if (error != VW_NET_HEADER_OK)
            return error;
        clean.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        clean.csum_start = header->csum_start;
        clean.csum_offset = header->csum_offset;
        known_headers = (uint32_t)header->csum_start + header->csum_offset + 2;
    }
    if (header->gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        error = check_gso(header, length, features, &kind);
        if (error != VW_NET_HEADER_OK)
            return error;
        take_gso(&clean, header, length, &kind);
        known_headers = (uint32_t)header->csum_start + kind.header;
    }
    /* Section 5.1.6.2.2: never more than a hint, whatever was negotiated. */
    clean.hdr_len = (uint16_t)vw_min64(header->hdr_len, length);
    if (clean.hdr_len < known_headers)
        clean.hdr_len = (uint16_t)vw_min64(known_headers, UINT16_MAX);
    *header = clean;
    return VW_NET_HEADER_OK;
}

static const struct {
    const char *name, *text;
} errors[VW_NET_HEADER_ERROR_COUNT] = {
    [VW_NET_HEADER_OK] = {"ok", "no error"},
    [VW_NET_HEADER_FRAME_SHORT] = {"frame_short", "frame is shorter than an Ethernet header"},
    [VW_NET_HEADER_FRAME_LONG] = {"frame_long", "frame is longer than any can be"},
    [VW_NET_HEADER_CSUM_UNNEGOTIATED] = {"csum_unnegotiated",
                                         "partial checksum, but CSUM was not negotiated"},
    [VW_NET_HEADER_CSUM_PLACE] = {"csum_place", "checksum's place is not inside the frame"},
    [VW_NET_HEADER_GSO_UNKNOWN] = {"gso_unknown", "gso_type does not exist"},
    [VW_NET_HEADER_GSO_UFO] = {"gso_ufo", "UDP fragmentation is not offered"},
    [VW_NET_HEADER_GSO_TUNNEL] = {"gso_tunnel", "segmentation in UDP tunnels is not offered"},
    [VW_NET_HEADER_GSO_UNNEGOTIATED] = {"gso_unnegotiated",
                                        "segmentation of this kind was not negotiated"},
    [VW_NET_HEADER_GSO_NO_CSUM] = {"gso_no_csum", "segmentation without partial checksum"},
    [VW_NET_HEADER_GSO_SIZE] = {"gso_size", "gso_size is 0 or 65535"},
    [VW_NET_HEADER_GSO_PLACE] = {"gso_place", "transport header is not inside the frame"},
    [VW_NET_HEADER_GSO_CSUM_OFFSET] = {"gso_csum_offset",
                                       "csum_offset is not that of the protocol to segment"},
    [VW_NET_HEADER_GSO_SEGMENTS] = {"gso_segments", "gso_size asks for too many segments"},
    [VW_NET_HEADER_ECN] = {"ecn", "ECN without TCP, or HOST_ECN was not negotiated"},
};

const char *vw_net_header_error_text(enum vw_net_header_error error)
{
    return (unsigned)error < VW_NET_HEADER_ERROR_COUNT ? errors[error].text : "unknown error";
}

const char *vw_net_header_error_name(enum vw_net_header_error error)
{
    return (unsigned)error < VW_NET_HEADER_ERROR_COUNT ? errors[error].name : "unknown";
}

/* `tso4` and so on: the feature with which a receiver takes frames of that kind. */
static unsigned work(const struct vw_net_header *header, bool csum, bool tso4, bool tso6, bool uso,
                     bool ecn)
{
    bool taken;

    switch (header->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_NONE:
        taken = true;
        break;
    case VIRTIO_NET_HDR_GSO_TCPV4:
        taken = tso4;
        break;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        taken = tso6;
        break;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        taken = uso;
        break;
    default:
        taken = false;
        break;
    }
    if (!taken || ((header->gso_type & VIRTIO_NET_HDR_GSO_ECN) && !ecn))
        return VW_NET_WORK_SEGMENT;
    if ((header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && !csum)
        return VW_NET_WORK_CHECKSUM;
    return 0;
}

unsigned vw_net_header_work_for_guest(const struct vw_net_header *header, uint64_t features)
{
    /* UDP_L4 does not say whether it is IPv4 or IPv6, so a guest must take both. */
    bool uso =
        vw_has(features, VIRTIO_NET_F_GUEST_USO4) && vw_has(features, VIRTIO_NET_F_GUEST_USO6);

    return work(header, vw_has(features, VIRTIO_NET_F_GUEST_CSUM),
                vw_has(features, VIRTIO_NET_F_GUEST_TSO4),
                vw_has(features, VIRTIO_NET_F_GUEST_TSO6), uso,
                vw_has(features, VIRTIO_NET_F_GUEST_ECN));
}

unsigned vw_net_header_work_for_port(const struct vw_net_header *header, uint64_t features)
{
    return work(header, vw_has(features, VIRTIO_NET_F_CSUM),
                vw_has(features, VIRTIO_NET_F_HOST_TSO4), vw_has(features, VIRTIO_NET_F_HOST_TSO6),
                vw_has(features, VIRTIO_NET_F_HOST_USO), vw_has(features, VIRTIO_NET_F_HOST_ECN));
}

void vw_net_header_checksum_done(struct vw_net_header *header)
{
    header->flags &= (uint8_t)~VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header->csum_start = 0;
    header->csum_offset = 0;
}

void vw_net_header_finish_for_guest(struct vw_net_header *header, uint64_t features)
{
    /* Section 5.1.6.4.1: without GUEST_CSUM flags are 0; with it a checksum is either still to be
     * completed, or found valid. */
    if (!vw_has(features, VIRTIO_NET_F_GUEST_CSUM))
        header->flags = 0;
    if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    } else {
        header->flags &= VIRTIO_NET_HDR_F_DATA_VALID;
        header->csum_start = 0;
        header->csum_offset = 0;
    }
    header->num_buffers = 1;
    header->hash_value = 0;
    header->hash_report = VIRTIO_NET_HASH_REPORT_NONE;
}
