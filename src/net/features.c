/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/features.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The macro must be a constant expression, which vw_bit is not. */
#define BIT(number) (UINT64_C(1) << (number))

#define CTRL_VQ BIT(VIRTIO_NET_F_CTRL_VQ)
#define CSUM BIT(VIRTIO_NET_F_CSUM)
#define GUEST_CSUM BIT(VIRTIO_NET_F_GUEST_CSUM)
#define HOST_TSO (BIT(VIRTIO_NET_F_HOST_TSO4) | BIT(VIRTIO_NET_F_HOST_TSO6))
#define GUEST_TSO (BIT(VIRTIO_NET_F_GUEST_TSO4) | BIT(VIRTIO_NET_F_GUEST_TSO6))

/*
 * Section 5.1.3.1 for what a feature needs, and in addition: CTRL_GUEST_OFFLOADS, DEVICE_STATS,
 * CTRL_RX_EXTRA and HASH_REPORT are commands of the control queue and so need it; PACKED exists
 * only since VERSION_1; STANDBY finds its partner by the MAC address.
 */
const struct vw_feature vw_features[] = {
    {"csum", VIRTIO_NET_F_CSUM, 0, 0},
    {"guest_csum", VIRTIO_NET_F_GUEST_CSUM, 0, 0},
    {"ctrl_guest_offloads", VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, CTRL_VQ, 0},
    {"mtu", VIRTIO_NET_F_MTU, 0, 0},
    {"mac", VIRTIO_NET_F_MAC, 0, 0},
    {"gso", VIRTIO_NET_F_GSO, 0, 0},
    {"guest_tso4", VIRTIO_NET_F_GUEST_TSO4, GUEST_CSUM, 0},
    {"guest_tso6", VIRTIO_NET_F_GUEST_TSO6, GUEST_CSUM, 0},
    {"guest_ecn", VIRTIO_NET_F_GUEST_ECN, 0, GUEST_TSO},
    {"guest_ufo", VIRTIO_NET_F_GUEST_UFO, GUEST_CSUM, 0},
    {"host_tso4", VIRTIO_NET_F_HOST_TSO4, CSUM, 0},
    {"host_tso6", VIRTIO_NET_F_HOST_TSO6, CSUM, 0},
    {"host_ecn", VIRTIO_NET_F_HOST_ECN, 0, HOST_TSO},
    {"host_ufo", VIRTIO_NET_F_HOST_UFO, CSUM, 0},
    {"mrg_rxbuf", VIRTIO_NET_F_MRG_RXBUF, 0, 0},
    {"status", VIRTIO_NET_F_STATUS, 0, 0},
    {"ctrl_vq", VIRTIO_NET_F_CTRL_VQ, 0, 0},
    {"ctrl_rx", VIRTIO_NET_F_CTRL_RX, CTRL_VQ, 0},
    {"ctrl_vlan", VIRTIO_NET_F_CTRL_VLAN, CTRL_VQ, 0},
    {"ctrl_rx_extra", VIRTIO_NET_F_CTRL_RX_EXTRA, CTRL_VQ, 0},
    {"guest_announce", VIRTIO_NET_F_GUEST_ANNOUNCE, CTRL_VQ, 0},
    {"mq", VIRTIO_NET_F_MQ, CTRL_VQ, 0},
    {"ctrl_mac_addr", VIRTIO_NET_F_CTRL_MAC_ADDR, CTRL_VQ, 0},
    {"notify_on_empty", VIRTIO_F_NOTIFY_ON_EMPTY, 0, 0},
    {"any_layout", VIRTIO_F_ANY_LAYOUT, 0, 0},
    {"indirect_desc", VIRTIO_RING_F_INDIRECT_DESC, 0, 0},
    {"event_idx", VIRTIO_RING_F_EVENT_IDX, 0, 0},
    {"version_1", VIRTIO_F_VERSION_1, 0, 0},
    {"access_platform", VIRTIO_F_ACCESS_PLATFORM, 0, 0},
    {"packed", VIRTIO_F_RING_PACKED, BIT(VIRTIO_F_VERSION_1), 0},
    {"in_order", VIRTIO_F_IN_ORDER, 0, 0},
    {"order_platform", VIRTIO_F_ORDER_PLATFORM, 0, 0},
    {"sr_iov", VIRTIO_F_SR_IOV, 0, 0},
    {"notification_data", VIRTIO_F_NOTIFICATION_DATA, 0, 0},
    {"notif_config_data", VIRTIO_F_NOTIF_CONFIG_DATA, 0, 0},
    {"ring_reset", VIRTIO_F_RING_RESET, 0, 0},
    {"urgent", VW_F_URGENT, 0, 0}, /* not virtio's: docs/urgent.md */
    {"device_stats", VIRTIO_NET_F_DEVICE_STATS, CTRL_VQ, 0},
    {"hash_tunnel", VIRTIO_NET_F_HASH_TUNNEL, CTRL_VQ,
     BIT(VIRTIO_NET_F_RSS) | BIT(VIRTIO_NET_F_HASH_REPORT)},
    {"vq_notf_coal", VIRTIO_NET_F_VQ_NOTF_COAL, CTRL_VQ, 0},
    {"notf_coal", VIRTIO_NET_F_NOTF_COAL, CTRL_VQ, 0},
    {"guest_uso4", VIRTIO_NET_F_GUEST_USO4, GUEST_CSUM, 0},
    {"guest_uso6", VIRTIO_NET_F_GUEST_USO6, GUEST_CSUM, 0},
    {"host_uso", VIRTIO_NET_F_HOST_USO, CSUM, 0},
    {"hash_report", VIRTIO_NET_F_HASH_REPORT, CTRL_VQ, 0},
    {"guest_hdrlen", VIRTIO_NET_F_GUEST_HDRLEN, 0, 0},
    {"rss", VIRTIO_NET_F_RSS, CTRL_VQ, 0},
    {"rsc_ext", VIRTIO_NET_F_RSC_EXT, 0, HOST_TSO},
    {"standby", VIRTIO_NET_F_STANDBY, BIT(VIRTIO_NET_F_MAC), 0},
    {"speed_duplex", VIRTIO_NET_F_SPEED_DUPLEX, 0, 0},
};
const unsigned vw_feature_count = VW_ARRAY_SIZE(vw_features);

const struct vw_feature *vw_feature_by_bit(unsigned bit)
{
    for (unsigned i = 0; i < vw_feature_count; i++)
        if (vw_features[i].bit == bit)
            return &vw_features[i];
    return NULL;
}

int vw_feature_by_name(const char *name, size_t length)
{
    for (unsigned i = 0; i < vw_feature_count; i++) {
        const struct vw_feature *feature = &vw_features[i];

        if (strlen(feature->name) == length && memcmp(feature->name, name, length) == 0)
            return (int)feature->bit;
    }
    return -ENOENT;
}

/* What the feature lacks in the set; 0 if nothing. */
static uint64_t missing(const struct vw_feature *feature, uint64_t features)
{
    if (feature->needs & ~features)
        return feature->needs & ~features;
    if (feature->one_of && !(feature->one_of & features))
        return feature->one_of;
    return 0;
}

uint64_t vw_features_close(uint64_t features)
{
    uint64_t before;

    /* What is dropped may have been needed by others: each round drops one or is the last. */
    do {
        before = features;
        for (unsigned i = 0; i < vw_feature_count; i++)
            if (missing(&vw_features[i], features))
                features &= ~vw_bit(vw_features[i].bit);
    } while (features != before);
    return features;
}

int vw_features_check_accepted(uint64_t offered, uint64_t accepted, enum vw_features_peer peer,
                               struct vw_features_fault *fault)
{
    uint64_t present = accepted;

    if (accepted & ~offered) {
        *fault = (struct vw_features_fault){.bit = (unsigned)__builtin_ctzll(accepted & ~offered)};
        return -EINVAL;
    }
    if (peer == VW_FEATURES_OF_FRONT_END)
        present |= CTRL_VQ;
    for (unsigned i = 0; i < vw_feature_count; i++) {
        uint64_t lacking = missing(&vw_features[i], present);

        if (vw_has(accepted, vw_features[i].bit) && lacking) {
            *fault = (struct vw_features_fault){vw_features[i].bit, lacking};
            return -EINVAL;
        }
    }
    return 0;
}

static const struct {
    unsigned guest, host;
} mirror[] = {
    {VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_CSUM},
    {VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_HOST_TSO4},
    {VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_TSO6},
    {VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_HOST_ECN},
    {VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_HOST_USO},
    {VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_HOST_USO},
};

uint64_t vw_features_host_of(uint64_t guest)
{
    uint64_t host = 0;

    for (unsigned i = 0; i < VW_ARRAY_SIZE(mirror); i++)
        if (vw_has(guest, mirror[i].guest))
            host |= vw_bit(mirror[i].host);
    return host;
}

uint64_t vw_features_guest_of(uint64_t host)
{
    uint64_t guest = 0;

    for (unsigned i = 0; i < VW_ARRAY_SIZE(mirror); i++)
        if (vw_has(host, mirror[i].host))
            guest |= vw_bit(mirror[i].guest);
    return guest;
}

/* Appends to text[size] at `*at`, which counts on when there is no room, as snprintf does. */
static void append(char *text, size_t size, size_t *at, const char *piece)
{
    size_t length = strlen(piece);

    if (*at < size) {
        size_t room = size - *at - 1;
        size_t copied = length < room ? length : room;

        memcpy(text + *at, piece, copied);
        text[*at + copied] = '\0';
    }
    *at += length;
}

static void append_name(char *text, size_t size, size_t *at, unsigned bit)
{
    const struct vw_feature *feature = vw_feature_by_bit(bit);
    char number[16];

    snprintf(number, sizeof(number), "bit%u", bit);
    append(text, size, at, feature ? feature->name : number);
}

size_t vw_features_format(uint64_t features, char *text, size_t size)
{
    size_t at = 0;

    append(text, size, &at, "");
    for (unsigned bit = 0; bit < 64; bit++) {
        if (!vw_has(features, bit))
            continue;
        if (at > 0)
            append(text, size, &at, " ");
        append_name(text, size, &at, bit);
    }
    return at;
}

int vw_features_fault_format(const struct vw_features_fault *fault, char *text, size_t size)
{
    size_t at = 0;

    append(text, size, &at, "feature ");
    append_name(text, size, &at, fault->bit);
    if (fault->missing == 0) {
        append(text, size, &at, " was accepted but not offered");
    } else {
        const struct vw_feature *feature = vw_feature_by_bit(fault->bit);
        bool one = feature && (fault->missing & feature->one_of);
        char names[64];

        vw_features_format(fault->missing, names, sizeof(names));
        append(text, size, &at, one ? " was accepted without one of: " : " was accepted without ");
        append(text, size, &at, names);
    }
    return (int)at;
}
