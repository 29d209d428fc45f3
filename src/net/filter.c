/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/filter.h"

#include <string.h>

#define TYPE_VLAN 0x8100

static bool same_mac(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, VW_NET_MAC_SIZE) == 0;
}

static bool in_table(const struct vw_net_mac_table *table, const uint8_t *mac)
{
    for (unsigned i = 0; i < table->count; i++)
        if (same_mac(table->mac[i], mac))
            return true;
    return false;
}

/* Section 5.1.6.5.1: NOMULTI wins over ALLMULTI, NOUNI over ALLUNI; broadcast has its own. */
static bool mac_wanted(const struct vw_net_control_state *state, const uint8_t *mac)
{
    static const uint8_t broadcast[VW_NET_MAC_SIZE] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t unknown[VW_NET_MAC_SIZE];

    if (same_mac(mac, broadcast))
        return !state->no_broadcast;
    if (mac[0] & 1) {
        if (state->no_multicast)
            return false;
        return state->all_multicast || state->multicast.overflow ||
               in_table(&state->multicast, mac);
    }
    if (state->no_unicast)
        return false;
    /* A guest that was given no address has chosen one that we do not know. */
    return state->all_unicast || state->unicast.overflow || same_mac(state->mac, mac) ||
           same_mac(state->mac, unknown) || in_table(&state->unicast, mac);
}

static bool vlan_wanted(const struct vw_net_control_state *state, unsigned vlan)
{
    return vw_has(state->vlans[vlan / 64], vlan % 64);
}

enum vw_net_verdict vw_net_filter(const struct vw_net_control_state *state, const uint8_t *data,
                                  size_t length)
{
    if (length < 14)
        return VW_NET_DROP_SHORT;
    if (!vw_net_filter_active(state))
        return VW_NET_PASS;
    /* Section 5.1.6.5.3: for customer tags; those of a provider's network are no matter of it. */
    if (vw_has(state->features, VIRTIO_NET_F_CTRL_VLAN) &&
        (data[12] << 8 | data[13]) == TYPE_VLAN) {
        if (length < VW_NET_FILTER_BYTES)
            return VW_NET_DROP_SHORT;
        if (!vlan_wanted(state, (data[14] << 8 | data[15]) & 0xfffu))
            return VW_NET_DROP_VLAN;
    }
    if (vw_has(state->features, VIRTIO_NET_F_CTRL_RX) && !mac_wanted(state, data))
        return VW_NET_DROP_MAC;
    return VW_NET_PASS;
}
