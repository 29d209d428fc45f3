/* SPDX-License-Identifier: BSD-3-Clause */
/* What the caller wants of a device, checked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "net/features.h"

#define BIT(name) (UINT64_C(1) << (name))

void vw_net_options_init(struct vw_net_options *options)
{
    *options = (struct vw_net_options){
        .size = sizeof(*options),
        .fd = -1,
        .connect_ms = 5000,
        .request_ms = 5000,
        .queue_pairs = 1,
        .tx_ring_size = 256,
        .rx_ring_size = 256,
        .byte_queue_limits = 1,
        .reconnect = 1,
        .memory = 16u << 20,
        .spin_us = 100, /* a lone frame is completed within this: docs/performance.md, "Sleeping" */
    };
}

/* One "name=on" or "name=off". */
static int take_feature(struct vw_net *net, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    size_t name = equals ? (size_t)(equals - text) : length;
    bool on = equals && length - name == 3 && memcmp(equals, "=on", 3) == 0;
    bool off = equals && length - name == 4 && memcmp(equals, "=off", 4) == 0;
    int bit = vw_feature_by_name(text, name);

    if (bit < 0)
        return vw_driver_fail(net, -EINVAL, "there is no feature named \"%.*s\"", (int)name, text);
    if (!on && !off)
        return vw_driver_fail(net, -EINVAL, "feature \"%.*s\": say =on or =off", (int)name, text);
    net->refused &= ~vw_bit((unsigned)bit);
    net->asked &= ~vw_bit((unsigned)bit);
    *(on ? &net->asked : &net->refused) |= vw_bit((unsigned)bit);
    return 0;
}

static int take_features(struct vw_net *net, const char *text)
{
    while (text && *text != '\0') {
        size_t length = strcspn(text, ",");

        if (length > 0 && take_feature(net, text, length) != 0)
            return -EINVAL;
        text += length + (text[length] == ',');
    }
    return 0;
}

static int check_options(struct vw_net *net)
{
    const struct vw_net_options *options = &net->options;

    if (!net->transport && (options->socket_path != NULL) == (options->fd >= 0))
        return vw_driver_fail(net, -EINVAL, "give either socket_path or fd");
    if (options->listen && !options->socket_path)
        return vw_driver_fail(net, -EINVAL, "to listen, socket_path is needed");
    if (options->queue_pairs < 1 || options->queue_pairs > 127)
        return vw_driver_fail(net, -EINVAL, "queue_pairs is %u; choose 1 to 127",
                              options->queue_pairs);
    /* What the ring's format makes of it is known later; memory for it is needed before. */
    if (options->tx_ring_size < 2 || options->tx_ring_size > 32768)
        return vw_driver_fail(net, -EINVAL, "tx_ring_size is %u; choose 2 to 32768",
                              options->tx_ring_size);
    if (options->rx_ring_size < 1 || options->rx_ring_size > 32768)
        return vw_driver_fail(net, -EINVAL, "rx_ring_size is %u; choose 1 to 32768",
                              options->rx_ring_size);
    if ((unsigned)options->tx_policy > VW_TX_SCHEDULED)
        return vw_driver_fail(net, -EINVAL, "there is no transmit policy %d", options->tx_policy);
    if ((unsigned)options->rx_mode > VW_RX_MERGEABLE)
        return vw_driver_fail(net, -EINVAL, "there is no receive mode %d", options->rx_mode);
    if ((unsigned)options->rx_big > VW_RX_BIG_MAXIMUM)
        return vw_driver_fail(net, -EINVAL, "there is no size %d of big receive buffers",
                              options->rx_big);
    if (options->mtu != 0 && (options->mtu < VW_NET_MIN_MTU || options->mtu > VW_NET_MAX_MTU))
        return vw_driver_fail(net, -EINVAL, "mtu is %u; choose 68 to 65535", options->mtu);
    if (options->memory > (size_t)64 << 30)
        return vw_driver_fail(net, -EINVAL, "memory is more than 64 GiB");
    return 0;
}

static void log_line(void *context, enum vw_log_level level, const char *line)
{
    const struct vw_net *net = context;

    net->options.log(net->options.log_context, (enum vw_level)level, line);
}

_Static_assert((int)VW_ERROR == (int)VW_LOG_ERROR && (int)VW_DEBUG == (int)VW_LOG_DEBUG,
               "levels of the library are those of its log");

/* A caller that was compiled with an older header has fewer fields: those behind keep defaults. */
int vw_driver_take_options(struct vw_net *net, const struct vw_net_options *given)
{
    size_t size = given->size;

    vw_net_options_init(&net->options);
    if (size < offsetof(struct vw_net_options, fd) || size > 4096)
        return vw_driver_fail(net, -EINVAL, "options were not made by vw_net_options_init");
    memcpy(&net->options, given, size < sizeof(*given) ? size : sizeof(*given));
    net->options.features = NULL;
    if (net->options.socket_path) {
        net->options.socket_path = strdup(net->options.socket_path);
        if (!net->options.socket_path)
            return vw_driver_fail(net, -ENOMEM, "no memory");
    }
    net->log = (struct vw_log){.function = net->options.log ? log_line : NULL,
                               .context = net,
                               .level = VW_LOG_DEBUG,
                               .name = net->options.socket_path};
    int error = check_options(net);
    return error ? error : take_features(net, given->features);
}

void vw_driver_drop_options(struct vw_net *net)
{
    free((void *)(uintptr_t)net->options.socket_path);
    net->options.socket_path = NULL;
}

/*
 * All that this driver can make use of. Not among it: UFO, which Linux gave up; GUEST_HDRLEN, since
 * our hdr_len is as good with it as without; RING_RESET; and what needs an IOMMU.
 */
#define KNOWN                                                                                      \
    ((VW_NET_DEVICE_FEATURES & ~BIT(VIRTIO_F_ANY_LAYOUT)) | BIT(VIRTIO_NET_F_NOTF_COAL) |          \
     BIT(VIRTIO_NET_F_VQ_NOTF_COAL))

uint64_t vw_driver_wanted_features(const struct vw_net *net)
{
    const uint64_t long_frames = BIT(VIRTIO_NET_F_GUEST_TSO4) | BIT(VIRTIO_NET_F_GUEST_TSO6) |
                                 BIT(VIRTIO_NET_F_GUEST_ECN) | BIT(VIRTIO_NET_F_GUEST_USO4) |
                                 BIT(VIRTIO_NET_F_GUEST_USO6);
    uint64_t wanted = KNOWN;

    if (net->options.rx_mode == VW_RX_SMALL)
        wanted &= ~(long_frames | BIT(VIRTIO_NET_F_MRG_RXBUF));
    if (net->options.rx_mode == VW_RX_BIG)
        wanted &= ~BIT(VIRTIO_NET_F_MRG_RXBUF);
    if (net->options.queue_pairs == 1)
        wanted &= ~BIT(VIRTIO_NET_F_MQ);
    if (net->options.tx_policy == VW_TX_URGENT)
        wanted |= BIT(VW_F_URGENT);
    wanted |= net->asked & BIT(VW_F_URGENT); /* to switch to that policy later */
    return wanted & ~net->refused;
}
