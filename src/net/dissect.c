/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/dissect.h"

#include "base/iov.h"

#define ETHERNET 14
#define TAG 4
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_VLAN 0x8100
#define TYPE_SERVICE_VLAN 0x88a8

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_AUTHENTICATION 51
#define PROTOCOL_NO_NEXT 59
#define PROTOCOL_DESTINATION 60

#define OPTION_PAD1 0
#define OPTION_HOME_ADDRESS 0xc9

/* The bytes given. Offsets into them are always below 64 KiB: `length` is cut to that. */
struct view {
    const uint8_t *data;
    size_t length;
};

static bool has(const struct view *view, size_t offset, size_t bytes)
{
    return offset <= view->length && bytes <= view->length - offset;
}

static uint16_t be16(const struct view *view, size_t offset)
{
    return (uint16_t)(view->data[offset] << 8 | view->data[offset + 1]);
}

static void dissect_transport(struct vw_net_packet *packet, const struct view *view, size_t at,
                              uint8_t protocol)
{
    bool with_ports = protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP;

    /* Later fragments have no transport header, and the first alone is no better. */
    if (packet->fragment || protocol == PROTOCOL_NO_NEXT || !has(view, at, with_ports ? 4 : 0))
        return;
    packet->protocol = protocol;
    packet->transport_offset = (uint16_t)at;
    packet->ports = with_ports ? (uint16_t)at : 0;
    packet->transport = protocol == PROTOCOL_TCP   ? VW_NET_TRANSPORT_TCP
                        : protocol == PROTOCOL_UDP ? VW_NET_TRANSPORT_UDP
                                                   : VW_NET_TRANSPORT_OTHER;
}

/* RFC 791. */
static void dissect_ipv4(struct vw_net_packet *packet, const struct view *view, size_t at)
{
    size_t header;

    if (!has(view, at, 20) || view->data[at] >> 4 != 4)
        return;
    header = (view->data[at] & 0xf) * 4u;
    if (header < 20)
        return;
    packet->ip_version = 4;
    packet->ip_offset = (uint16_t)at;
    packet->source = packet->home_source = (uint16_t)(at + 12);
    packet->destination = packet->routed_destination = (uint16_t)(at + 16);
    /* "More fragments", or an offset that is not 0. */
    packet->fragment = (be16(view, at + 6) & 0x3fff) != 0;
    dissect_transport(packet, view, at + header, view->data[at + 9]);
}

/* RFC 6275, section 6.3: looks for the home-address option in [at, end). */
static void find_home_address(struct vw_net_packet *packet, const struct view *view, size_t at,
                              size_t end)
{
    while (at < end) {
        uint8_t type = view->data[at];
        size_t length;

        if (type == OPTION_PAD1) {
            at++;
            continue;
        }
        if (end - at < 2)
            return;
        length = view->data[at + 1];
        if (length > end - at - 2)
            return;
        if (type == OPTION_HOME_ADDRESS && length == 16) {
            packet->home_source = (uint16_t)(at + 2);
            return;
        }
        at += 2 + length;
    }
}

/*
 * One extension header of `protocol` at `*at` (RFC 8200, section 4). Returns false if it is none,
 * or if it is cut off; otherwise moves `*at` and `*protocol` to what follows.
 */
static bool skip_extension(struct vw_net_packet *packet, const struct view *view, size_t *at,
                           uint8_t *protocol)
{
    size_t start = *at, length;

    if (!has(view, start, 8))
        return false;
    length = 8 + view->data[start + 1] * 8u;
    if (*protocol == PROTOCOL_AUTHENTICATION)
        length = 8 + view->data[start + 1] * 4u; /* RFC 4302: counted otherwise */
    if (*protocol == PROTOCOL_FRAGMENT)
        length = 8;
    if (!has(view, start, length))
        return false;
    if (*protocol == PROTOCOL_DESTINATION)
        find_home_address(packet, view, start + 2, start + length);
    else if (*protocol == PROTOCOL_ROUTING && view->data[start + 2] == 2 && length == 24)
        packet->routed_destination = (uint16_t)(start + 8); /* RFC 6275, section 6.4 */
    else if (*protocol == PROTOCOL_FRAGMENT && (be16(view, start + 2) & 0xfff9) != 0)
        packet->fragment = true; /* an "atomic" one, whole in itself, is none */
    *protocol = view->data[start];
    *at = start + length;
    return true;
}

static bool is_extension(uint8_t protocol)
{
    return protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING ||
           protocol == PROTOCOL_FRAGMENT || protocol == PROTOCOL_AUTHENTICATION ||
           protocol == PROTOCOL_DESTINATION;
}

static void dissect_ipv6(struct vw_net_packet *packet, const struct view *view, size_t at)
{
    uint8_t protocol;

    if (!has(view, at, 40) || view->data[at] >> 4 != 6)
        return;
    packet->ip_version = 6;
    packet->ip_offset = (uint16_t)at;
    packet->source = packet->home_source = (uint16_t)(at + 8);
    packet->destination = packet->routed_destination = (uint16_t)(at + 24);
    protocol = view->data[at + 6];
    at += 40;
    for (unsigned i = 0; is_extension(protocol); i++) {
        packet->extended = true;
        /* Behind the first fragment header of a fragment nothing can be relied on. */
        if (i == VW_NET_MAX_EXTENSIONS || packet->fragment ||
            !skip_extension(packet, view, &at, &protocol))
            return;
    }
    dissect_transport(packet, view, at, protocol);
}

void vw_net_dissect(struct vw_net_packet *packet, const uint8_t *data, size_t length)
{
    struct view view = {.data = data, .length = length < UINT16_MAX ? length : UINT16_MAX};
    size_t at = ETHERNET;

    *packet = (struct vw_net_packet){0};
    if (!has(&view, 0, ETHERNET))
        return;
    packet->ethernet = true;
    packet->ethertype = be16(&view, 12);
    if (packet->ethertype == TYPE_VLAN || packet->ethertype == TYPE_SERVICE_VLAN) {
        if (!has(&view, ETHERNET, TAG))
            return;
        packet->tagged = true;
        packet->tag_type = packet->ethertype;
        packet->vlan = be16(&view, ETHERNET) & 0xfff;
        packet->ethertype = be16(&view, ETHERNET + 2);
        at += TAG;
    }
    if (packet->ethertype == TYPE_IPV4)
        dissect_ipv4(packet, &view, at);
    else if (packet->ethertype == TYPE_IPV6)
        dissect_ipv6(packet, &view, at);
}

static bool is_tag(const struct view *view, size_t at)
{
    if (!has(view, at, TAG))
        return false;
    return be16(view, at) == TYPE_VLAN || be16(view, at) == TYPE_SERVICE_VLAN;
}

void vw_net_dissect_tagged(struct vw_net_packet *packet, const uint8_t *data, size_t length)
{
    struct view view = {.data = data, .length = length < UINT16_MAX ? length : UINT16_MAX};
    size_t outer = 0;

    /* A frame with its outermost tag left out looks like one that starts so much later. */
    while (is_tag(&view, outer + ETHERNET - 2) && is_tag(&view, outer + ETHERNET - 2 + TAG))
        outer += TAG;
    vw_net_dissect(packet, data + outer, view.length - outer);
    packet->ip_offset = (uint16_t)(packet->ip_offset + outer);
    packet->source = (uint16_t)(packet->source + outer);
    packet->destination = (uint16_t)(packet->destination + outer);
    packet->home_source = (uint16_t)(packet->home_source + outer);
    packet->routed_destination = (uint16_t)(packet->routed_destination + outer);
    packet->transport_offset = (uint16_t)(packet->transport_offset + outer);
    if (packet->ports != 0)
        packet->ports = (uint16_t)(packet->ports + outer);
}

size_t vw_net_dissect_iov(struct vw_net_packet *packet, uint8_t data[VW_NET_DISSECT_BYTES],
                          const struct iovec *iov, size_t count, size_t offset)
{
    size_t length = vw_iov_read(iov, count, offset, data, VW_NET_DISSECT_BYTES);

    vw_net_dissect(packet, data, length);
    return length;
}
