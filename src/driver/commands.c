/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program may set on its device: the public side of the control queue.
 *
 * Each function makes a command (net/command.h), has it carried out (control.c), and then brings
 * what the driver itself knows up to date. What a command would only break is refused before it is
 * sent.
 */
#include <errno.h>
#include <string.h>

#include "driver/internal.h"
#include "net/command.h"
#include "net/features.h"

/* ---- reception ---- */

static int set_mode(struct vw_net *net, unsigned mode, bool on)
{
    struct vw_net_command command;
    int error = vw_net_command_mode(&command, mode, on);

    return error ? error : vw_driver_set(net, &command);
}

int vw_set_promiscuous(struct vw_net *net, int on)
{
    return set_mode(net, VIRTIO_NET_CTRL_RX_PROMISC, on != 0);
}

int vw_set_all_multicast(struct vw_net *net, int on)
{
    return set_mode(net, VIRTIO_NET_CTRL_RX_ALLMULTI, on != 0);
}

int vw_set_mac(struct vw_net *net, const uint8_t mac[6])
{
    struct vw_net_command command;
    int error = vw_net_command_mac(&command, mac);

    if (error == 0)
        error = vw_driver_set(net, &command);
    if (error == 0)
        memcpy(net->config.mac, mac, sizeof(net->config.mac));
    net->mac_set |= error == 0;
    return error;
}

int vw_set_mac_table(struct vw_net *net, const uint8_t (*unicast)[6], unsigned unicast_count,
                     const uint8_t (*multicast)[6], unsigned multicast_count)
{
    struct vw_net_command command;
    int error =
        vw_net_command_mac_table(&command, unicast, unicast_count, multicast, multicast_count);

    return error ? error : vw_driver_set(net, &command);
}

int vw_vlan_add(struct vw_net *net, unsigned vlan)
{
    struct vw_net_command command;
    int error = vw_net_command_vlan(&command, vlan, true);

    return error ? error : vw_driver_set(net, &command);
}

/* A device that comes back knows of no VLAN: there is nothing to remember, but to forget. */
int vw_vlan_remove(struct vw_net *net, unsigned vlan)
{
    struct vw_net_command command;
    int error = vw_net_command_vlan(&command, vlan, false);

    if (error == 0)
        error = vw_driver_command(net, &command, NULL);
    if (error == 0 && vw_net_command_vlan(&command, vlan, true) == 0)
        vw_driver_forget(net, &command);
    return error;
}

int vw_announced(struct vw_net *net)
{
    struct vw_net_command command;

    vw_net_command_announced(&command);
    int error = vw_driver_command(net, &command, NULL);
    if (error == 0)
        net->config.announce = false;
    return error;
}

/* ---- queues ---- */

int vw_set_queue_pairs(struct vw_net *net, unsigned pairs)
{
    struct vw_net_command command;
    int error = vw_net_command_pairs(&command, pairs, net->pair_count);

    return error ? error : vw_driver_set(net, &command);
}

/* The device's own limits, but for the pairs: only those that were opened have queues. */
static struct vw_net_config limits_of(const struct vw_net *net)
{
    struct vw_net_config limits = net->config;

    limits.max_pairs = (uint16_t)net->pair_count;
    return limits;
}

int vw_set_rss(struct vw_net *net, const struct vw_rss *rss)
{
    const struct vw_net_config limits = limits_of(net);
    const struct vw_net_rss_settings settings = {.hash_types = rss->hash_types,
                                                 .table = rss->table,
                                                 .table_size = rss->table_size,
                                                 .unclassified = rss->unclassified,
                                                 .tx_pairs = rss->tx_pairs,
                                                 .key = rss->key,
                                                 .key_length = rss->key_length};
    struct vw_net_command command;

    if (!vw_has(net->features, VIRTIO_NET_F_RSS))
        return -ENOTSUP; /* before values are held against limits that the device never named */
    int error = vw_net_command_rss(&command, &settings, &limits);
    return error ? error : vw_driver_set(net, &command);
}

int vw_set_hash(struct vw_net *net, uint32_t hash_types, const uint8_t *key, unsigned key_length)
{
    const struct vw_net_config limits = limits_of(net);
    const struct vw_net_rss_settings settings = {
        .hash_types = hash_types, .key = key, .key_length = key_length};
    struct vw_net_command command;

    if (!vw_has(net->features, VIRTIO_NET_F_HASH_REPORT))
        return -ENOTSUP;
    int error = vw_net_command_hash(&command, &settings, &limits);
    return error ? error : vw_driver_set(net, &command);
}

/* ---- what frames may be like ---- */

static int use_offloads(struct vw_net *net, uint64_t offloads)
{
    net->guest_offloads = vw_features_close(offloads);
    return vw_driver_reshape(net);
}

/* Receive buffers fit what is in force at any moment: before the device may send longer frames, and
 * as long as it may. */
int vw_set_guest_offloads(struct vw_net *net, uint64_t features)
{
    uint64_t before = net->guest_offloads;
    struct vw_net_command command;

    if (vw_net_in_done(net))
        return -EBUSY;

    int error = vw_net_command_offloads(&command, features, net->features);
    if (error != 0)
        return vw_has(net->features, VIRTIO_NET_F_CTRL_GUEST_OFFLOADS) ? error : -ENOTSUP;
    error = use_offloads(net, before | features);
    if (error == 0)
        error = vw_driver_set(net, &command);
    use_offloads(net, error ? before : features);
    return error;
}

int vw_set_mtu(struct vw_net *net, unsigned mtu)
{
    bool told = vw_has(net->features, VIRTIO_NET_F_MTU);
    unsigned before = net->mtu;
    int error;

    if (vw_net_in_done(net))
        return -EBUSY;

    if (mtu < VW_NET_MIN_MTU || mtu > VW_NET_MAX_MTU || (told && mtu > net->config.mtu))
        return -EINVAL;
    net->mtu = mtu;
    error = vw_driver_reshape(net);
    if (error == 0 && told && net->connected)
        error = net->transport->ops->set_mtu(net->transport, mtu);
    if (error != 0 && error != -ENOTSUP) { /* few devices want to know */
        net->mtu = before;
        vw_driver_reshape(net);
        return error;
    }
    net->options.mtu = mtu;
    return 0;
}

/* ---- calls ---- */

static int limit_queue(struct vw_net *net, unsigned pair, bool transmit,
                       const struct vw_net_coalescing *limits)
{
    const struct vw_driver_pair *of = &net->pairs[pair];
    struct vw_net_command command;
    int error = vw_net_command_queue_coalescing(
        &command, transmit ? of->tx.queue.index : of->rx.queue.index, limits);

    return error ? error : vw_driver_set(net, &command);
}

/* A device may have only one of the two features. */
static int limit_all(struct vw_net *net, bool transmit, const struct vw_net_coalescing *limits)
{
    struct vw_net_command command;
    int error = 0;

    if (vw_has(net->features, VIRTIO_NET_F_NOTF_COAL)) {
        vw_net_command_coalescing(&command, transmit, limits);
        return vw_driver_set(net, &command);
    }
    for (unsigned i = 0; i < net->pair_count && error == 0; i++)
        error = limit_queue(net, i, transmit, limits);
    return error;
}

int vw_set_coalescing(struct vw_net *net, int pair, int transmit, unsigned max_packets,
                      unsigned max_usecs)
{
    const struct vw_net_coalescing limits = {.max_packets = max_packets, .max_usecs = max_usecs};

    if (pair < -1 || (pair >= 0 && (unsigned)pair >= net->pair_count))
        return -EINVAL;
    if (!transmit) /* who sets a value wants it to stay */
        net->control.adaptive.on = false;
    return pair < 0 ? limit_all(net, transmit != 0, &limits)
                    : limit_queue(net, (unsigned)pair, transmit != 0, &limits);
}
