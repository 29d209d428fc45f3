/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening and closing a device, its loss, and its return.
 *
 * Theory of operation
 * -------------------
 * The steps from nothing to running queues stand in `open_device` and `activate`, in the order that
 * transport/transport.h demands. The second half of them is done again, with the same memory, when
 * a device that was lost is back: it must offer all features that were negotiated with its
 * predecessor, since frames in flight and buffers with the caller were made for them. Rings then
 * begin anew; what the lost device had not completed is given to the new one, in the order of
 * sending.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/open.h"
#include "driver/policy.h"
#include "net/features.h"

#define BIT(name) (UINT64_C(1) << (name))

int vw_driver_fail(struct vw_net *net, int error, const char *format, ...)
{
    va_list arguments;
    char before[sizeof(net->why)];

    memcpy(before, net->why, sizeof(before));
    va_start(arguments, format);
    vsnprintf(net->why, sizeof(net->why), format, arguments);
    va_end(arguments);
    /* A device that is no good is tried again and again, and told of once. */
    if (net->connected || strcmp(before, net->why) != 0)
        vw_log(&net->log, VW_LOG_ERROR, "%s", net->why);
    return error;
}

static int transport_failed(struct vw_net *net, int error, const char *step)
{
    return vw_driver_fail(net, error, "%s: %s", step,
                          net->transport->why[0] ? net->transport->why : strerror(-error));
}

/* ---- features and configuration ---- */

/* Features that only say that a field of the configuration space is valid, or mean nothing without
 * one. */
#define CONFIG_FEATURES                                                                            \
    (BIT(VIRTIO_NET_F_MAC) | BIT(VIRTIO_NET_F_STATUS) | BIT(VIRTIO_NET_F_MTU) |                    \
     BIT(VIRTIO_NET_F_SPEED_DUPLEX) | BIT(VIRTIO_NET_F_RSS) | BIT(VIRTIO_NET_F_HASH_REPORT) |      \
     BIT(VIRTIO_NET_F_GUEST_ANNOUNCE))

struct space {
    uint8_t bytes[VW_NET_CONFIG_SIZE];
    bool there;
};

static void read_space(struct vw_net *net, struct space *space)
{
    struct vw_transport *transport = net->transport;

    memset(space->bytes, 0, sizeof(space->bytes));
    space->there =
        transport->ops->read_config(transport, 0, sizeof(space->bytes), space->bytes) == 0;
}

/* Several pairs need no control queue where each queue is enabled by a message of its own. */
static uint64_t without_control(uint64_t features)
{
    return vw_features_close(features & ~BIT(VIRTIO_NET_F_CTRL_VQ)) |
           (features & BIT(VIRTIO_NET_F_MQ));
}

/*
 * A back-end without a configuration space leaves that, and the control queue with it, to its VMM:
 * DPDK's net_vhost and VPP offer CTRL_VQ all the same, and never look at the queue.
 */
static uint64_t choose_features(const struct vw_net *net, uint64_t offered, bool config)
{
    uint64_t features = vw_driver_wanted_features(net) & offered;

    return config ? vw_features_close(features)
                  : without_control(vw_features_close(features) & ~CONFIG_FEATURES);
}

static unsigned pairs_of_device(struct vw_net *net, const struct space *space)
{
    struct vw_transport *transport = net->transport;
    unsigned pairs = 1;

    if (space->there && vw_has(net->features, VIRTIO_NET_F_MQ))
        return net->config.max_pairs;
    return transport->ops->max_pairs(transport, &pairs) == 0 && pairs != 0 ? pairs : 1;
}

static int take_pairs(struct vw_net *net, const struct space *space)
{
    unsigned pairs = pairs_of_device(net, space);

    net->max_pairs = pairs;
    /* vhost-user numbers queues with 8 bits. */
    if (vw_net_control_queue_index(net->features, pairs) > 255)
        net->features = without_control(net->features);
    if (net->options.queue_pairs > 1 && !vw_has(net->features, VIRTIO_NET_F_MQ))
        return vw_driver_fail(net, -ENOTSUP, "the device has only one queue pair, not %u",
                              net->options.queue_pairs);
    if (net->options.queue_pairs > pairs)
        return vw_driver_fail(net, -ENOTSUP, "the device has %u queue pairs, not %u", pairs,
                              net->options.queue_pairs);
    return 0;
}

static int take_mtu(struct vw_net *net)
{
    unsigned device = vw_has(net->features, VIRTIO_NET_F_MTU) ? net->config.mtu : 0;
    unsigned wanted = net->options.mtu;

    if (device != 0 && wanted > device)
        return vw_driver_fail(net, -EINVAL, "mtu is %u, but the device takes %u at most", wanted,
                              device);
    net->mtu = wanted ? wanted : device ? device : 1500;
    return 0;
}

/* The fields that a feature of ours makes valid. Without MQ the number of pairs is none of them. */
static int take_config(struct vw_net *net, const struct space *space)
{
    uint64_t features = space->there ? net->features : net->features & ~BIT(VIRTIO_NET_F_MQ);
    int error = vw_net_config_parse(&net->config, features, space->bytes, sizeof(space->bytes));

    if (error != 0)
        return vw_driver_fail(net, error, "the device's configuration space has impossible values");
    return 0;
}

static int negotiate(struct vw_net *net, uint64_t offered)
{
    struct space space;
    int error;

    read_space(net, &space);
    net->features = choose_features(net, offered, space.there);
    net->rx_mode = net->options.rx_mode;
    if (net->options.tx_policy == VW_TX_URGENT && !vw_has(net->features, VW_F_URGENT))
        return vw_driver_fail(net, -ENOTSUP,
                              "transmit policy urgent needs a device that knows urgent buffers");
    if ((error = take_config(net, &space)) != 0 || (error = take_pairs(net, &space)) != 0 ||
        (error = take_mtu(net)) != 0)
        return error;
    net->guest_offloads = net->features & VW_NET_GUEST_OFFLOADS;
    net->header_size = vw_net_header_size(net->features);
    error = net->transport->ops->accept(net->transport, net->features);
    return error ? transport_failed(net, error, "accepting features") : 0;
}

/* ---- set-up ---- */

static uint64_t memory_needed(const struct vw_net *net)
{
    uint64_t pair = vw_driver_queue_bytes(net, net->options.tx_ring_size, 20) + vw_rx_bytes(net) +
                    (uint64_t)net->options.tx_ring_size * VW_TX_HEADER_STRIDE;
    uint64_t control = vw_driver_queue_bytes(net, VW_CONTROL_RING, 0) + VW_CONTROL_BUFFER;

    /* And a little for what the allocator rounds up. */
    return net->options.memory + net->options.queue_pairs * (pair + 65536) + control + 65536;
}

static int create_memory(struct vw_net *net)
{
    int error = vw_shared_open(&net->shared, memory_needed(net), true);

    if (error != 0)
        return vw_driver_fail(net, error, "no shared memory of %llu bytes: %s",
                              (unsigned long long)memory_needed(net), strerror(-error));
    net->ranges[0] = (struct vw_memory_range){
        .start = (uintptr_t)net->shared.address, .size = net->shared.size, .fd = net->shared.fd};
    atomic_store(&net->range_count, 1);
    net->zero_header = vw_shared_alloc(&net->shared, VW_CACHE_LINE);
    if (!net->zero_header)
        return vw_driver_fail(net, -ENOMEM, "no memory");
    memset(net->zero_header, 0, VW_CACHE_LINE);
    return 0;
}

static int create_pairs(struct vw_net *net)
{
    unsigned count = net->options.queue_pairs;

    net->pairs = aligned_alloc(VW_CACHE_LINE, count * sizeof(*net->pairs));
    if (!net->pairs)
        return vw_driver_fail(net, -ENOMEM, "no memory");
    memset(net->pairs, 0, count * sizeof(*net->pairs));
    for (unsigned i = 0; i < count; i++) {
        struct vw_driver_pair *pair = &net->pairs[i];
        int error;

        pair->net = net;
        pair->index = i;
        pair->epoll_fd = pair->schedule_fd = -1;
        pair->down = true;
        net->pair_count = i + 1;
        if ((error = vw_pair_create(pair)) != 0 || (error = vw_rx_create(pair)) != 0 ||
            (error = vw_tx_create(pair)) != 0)
            return error;
    }
    return vw_driver_control_create(net);
}

static int share_all(struct vw_net *net)
{
    struct vw_transport *transport = net->transport;

    for (unsigned i = 0; i < net->range_count; i++) {
        const struct vw_memory_range *range = &net->ranges[i];
        int error = transport->ops->share(transport, range->fd, range->offset,
                                          (void *)(uintptr_t)range->start, range->size);

        if (error != 0)
            return transport_failed(net, error, "sharing memory");
    }
    return 0;
}

static int begin_queue(struct vw_driver_queue *queue)
{
    int error = vw_driver_queue_begin(queue);

    if (error == 0)
        error = vw_driver_queue_tell(queue);
    return error ? transport_failed(queue->net, error, "setting a queue up") : 0;
}

static int begin_queues(struct vw_net *net)
{
    int error;

    for (unsigned i = 0; i < net->pair_count; i++) {
        struct vw_driver_pair *pair = &net->pairs[i];

        if ((error = begin_queue(&pair->rx.queue)) != 0 ||
            (error = begin_queue(&pair->tx.queue)) != 0 || (error = vw_pair_watch(pair)) != 0)
            return error;
        vw_rx_begin(pair);
        vw_tx_begin(pair);
    }
    return net->control.queue.memory ? begin_queue(&net->control.queue) : 0;
}

static int enable_queues(struct vw_net *net)
{
    struct vw_transport *transport = net->transport;
    int error = transport->ops->start(transport);

    for (unsigned i = 0; error == 0 && i < 2 * net->pair_count; i++)
        error = transport->ops->enable_queue(transport, i, true);
    if (error == 0 && net->control.queue.memory)
        error = transport->ops->enable_queue(transport, net->control.queue.index, true);
    return error ? transport_failed(net, error, "starting the queues") : 0;
}

/* From accepted features to running queues. */
static int activate(struct vw_net *net)
{
    int error = share_all(net);

    if (error != 0)
        return error;
    if (vw_has(net->features, VIRTIO_NET_F_MTU))
        net->transport->ops->set_mtu(net->transport, net->mtu); /* few devices want to know */
    if ((error = begin_queues(net)) != 0 || (error = enable_queues(net)) != 0)
        return error;
    for (unsigned i = 0; i < net->pair_count; i++) {
        struct vw_driver_pair *pair = &net->pairs[i];

        vw_pair_lock(pair);
        vw_rx_refill(pair, true);
        vw_tx_resend(pair);
        atomic_store(&pair->down, false);
        vw_pair_wake(pair);
        vw_pair_unlock(pair);
    }
    net->connected = true;
    return vw_driver_control_start(net);
}

static int open_transport(struct vw_net *net)
{
    const struct vw_transport_vhost_user_options options = {.socket_path = net->options.socket_path,
                                                            .fd = net->options.fd,
                                                            .listen = net->options.listen != 0,
                                                            .connect_ms = net->options.connect_ms,
                                                            .request_ms = net->options.request_ms,
                                                            .queues = 0,
                                                            .log = &net->log};
    int error = vw_transport_vhost_user_open(&options, &net->transport);

    return error ? vw_driver_fail(net, error, "the socket%s%s cannot be used: %s",
                                  options.socket_path ? " " : "",
                                  options.socket_path ? options.socket_path : "", strerror(-error))
                 : 0;
}

static int open_device(struct vw_net *net, const struct vw_net_options *options)
{
    uint64_t offered;
    int error;

    if ((error = vw_driver_take_options(net, options)) != 0 ||
        (!net->transport && (error = open_transport(net)) != 0))
        return error;
    if ((error = net->transport->ops->connect(net->transport, &offered)) != 0)
        return transport_failed(net, error, "connecting");
    if ((error = negotiate(net, offered)) != 0 || (error = create_memory(net)) != 0 ||
        (error = create_pairs(net)) != 0)
        return error;
    return activate(net);
}

int vw_net_open(const struct vw_net_options *options, struct vw_net **result, char *error,
                size_t error_size)
{
    return vw_net_open_over(options, NULL, result, error, error_size);
}

int vw_net_open_over(const struct vw_net_options *options, struct vw_transport *transport,
                     struct vw_net **result, char *error, size_t error_size)
{
    struct vw_net *net = calloc(1, sizeof(*net));

    if (!net) {
        if (transport)
            transport->ops->close(transport);
        if (error && error_size > 0)
            snprintf(error, error_size, "no memory");
        return -ENOMEM;
    }
    net->shared.fd = -1;
    net->transport = transport;
    int failure = open_device(net, options);
    if (failure != 0) {
        if (error && error_size > 0)
            snprintf(error, error_size, "%s", net->why);
        vw_net_close(net);
        return failure;
    }
    *result = net;
    return 0;
}

/* ---- closing ---- */

static void stop_queues(struct vw_net *net)
{
    struct vw_transport *transport = net->transport;
    uint32_t base;

    for (unsigned i = 0; i < net->pair_count; i++) {
        transport->ops->stop_queue(transport, net->pairs[i].rx.queue.index, &base);
        transport->ops->stop_queue(transport, net->pairs[i].tx.queue.index, &base);
    }
    if (net->control.queue.memory)
        transport->ops->stop_queue(transport, net->control.queue.index, &base);
}

static void close_pair(struct vw_driver_pair *pair)
{
    if (pair->tx.rules) { /* it was made in full */
        if (!vw_pair_is_down(pair))
            vw_tx_salvage(pair);
        vw_tx_lose_all(pair);
        vw_tx_tell_returned(pair);
    }
    vw_tx_destroy(pair);
    vw_rx_destroy(pair);
    vw_pair_destroy(pair);
}

static void close_memory(struct vw_net *net)
{
    for (unsigned i = 1; i < net->range_count; i++)
        close(net->ranges[i].fd);
    if (net->shared.fd >= 0)
        vw_shared_close(&net->shared);
}

void vw_net_close(struct vw_net *net)
{
    if (!net)
        return;
    if (net->transport && net->connected)
        stop_queues(net);
    for (unsigned i = 0; i < net->pair_count; i++)
        close_pair(&net->pairs[i]);
    vw_driver_control_destroy(net);
    if (net->transport)
        net->transport->ops->close(net->transport);
    free(net->pairs);
    close_memory(net);
    vw_driver_drop_options(net);
    free(net);
}

/* ---- loss and return ---- */

/* What the lost device did complete is in the rings: it is neither sent twice nor forgotten. */
static void take_pair_down(struct vw_driver_pair *pair)
{
    vw_pair_lock(pair);
    bool was_up = !vw_pair_is_down(pair);
    if (was_up) {
        vw_rx_salvage(pair);
        vw_rx_reset(pair);
        vw_tx_salvage(pair);
        atomic_store(&pair->down, true);
    }
    vw_pair_wake(pair); /* whoever waits is to know */
    vw_pair_unlock(pair);
}

static void take_down(struct vw_net *net)
{
    net->connected = false;
    for (unsigned i = 0; i < net->pair_count; i++)
        take_pair_down(&net->pairs[i]);
}

static int lose(struct vw_net *net)
{
    if (!net->connected)
        return 0;
    vw_log(&net->log, VW_LOG_WARNING, "the device was lost: %s", net->transport->why);
    take_down(net);
    for (unsigned i = 0; !net->options.reconnect && i < net->pair_count; i++) {
        vw_pair_lock(&net->pairs[i]);
        vw_tx_lose_all(&net->pairs[i]);
        vw_pair_unlock(&net->pairs[i]);
    }
    return VW_EVENT_DISCONNECTED;
}

/* The configuration again, of the same device or of its successor. What the caller set stays. */
static int take_config_again(struct vw_net *net, const struct space *space)
{
    const struct vw_net_config before = net->config;
    int error = take_config(net, space);

    if (error != 0)
        net->config = before;
    else if (net->mac_set)
        memcpy(net->config.mac, before.mac, sizeof(net->config.mac));
    return error;
}

/* Its queues have the numbers that ours have: with a control queue, behind those of all pairs. */
static int check_pairs(struct vw_net *net, const struct space *space)
{
    unsigned pairs = pairs_of_device(net, space);

    if (pairs >= net->pair_count &&
        (pairs == net->max_pairs || !vw_has(net->features, VIRTIO_NET_F_CTRL_VQ)))
        return 0;
    return vw_driver_fail(net, -ENOTSUP, "the device that came back has %u queue pairs, not %u",
                          pairs, net->max_pairs);
}

static int check_successor(struct vw_net *net, uint64_t offered)
{
    struct space space;
    int error;

    if (net->features & ~offered)
        return vw_driver_fail(net, -ENOTSUP,
                              "the device that came back lacks features %#llx that are in use",
                              (unsigned long long)(net->features & ~offered));
    read_space(net, &space);
    if (!space.there && (net->features & CONFIG_FEATURES))
        return vw_driver_fail(net, -ENOTSUP, "the device that came back has no configuration");
    if ((error = take_config_again(net, &space)) != 0 || (error = check_pairs(net, &space)) != 0 ||
        (error = take_mtu(net)) != 0 || (error = vw_driver_reshape(net)) != 0)
        return error;
    error = net->transport->ops->accept(net->transport, net->features);
    return error ? transport_failed(net, error, "accepting features") : 0;
}

static bool differs(const struct vw_net_config *a, const struct vw_net_config *b)
{
    return memcmp(a->mac, b->mac, sizeof(a->mac)) != 0 || a->link_up != b->link_up ||
           a->max_pairs != b->max_pairs || a->mtu != b->mtu || a->announce != b->announce;
}

static int reconnect(struct vw_net *net)
{
    const struct vw_net_config before = net->config;
    unsigned mtu = net->mtu;
    uint64_t offered;
    int error = net->transport->ops->connect(net->transport, &offered);

    if (error != 0) {
        transport_failed(net, error, "connecting again");
        return 0;
    }
    error = check_successor(net, offered);
    if (error == 0)
        error = activate(net);
    if (error != 0) { /* for another one, or for this one when it was set right */
        take_down(net);
        net->transport->ops->disconnect(net->transport);
        net->config = before;
        net->mtu = mtu;
        vw_driver_reshape(net);
        return VW_EVENT_UNSUITABLE;
    }
    net->why[0] = '\0';
    vw_log(&net->log, VW_LOG_INFO, "the device is back");
    return VW_EVENT_RECONNECTED | (differs(&before, &net->config) ? VW_EVENT_CONFIG : 0);
}

/* The device takes frames of its MTU from now on, even where more was wanted. */
static void follow_mtu(struct vw_net *net)
{
    unsigned before = net->mtu;

    if (!vw_has(net->features, VIRTIO_NET_F_MTU) || net->config.mtu == 0)
        return;
    net->mtu = net->options.mtu != 0 && net->options.mtu < net->config.mtu ? net->options.mtu
                                                                           : net->config.mtu;
    if (net->mtu != before && vw_driver_reshape(net) != 0) {
        net->mtu = before;
        vw_driver_reshape(net);
    }
}

static int read_config_again(struct vw_net *net)
{
    bool announced = net->config.announce;
    struct space space;

    read_space(net, &space);
    if (!space.there || take_config_again(net, &space) != 0)
        return 0;
    follow_mtu(net);
    return VW_EVENT_CONFIG | (net->config.announce && !announced ? VW_EVENT_ANNOUNCE : 0);
}

int vw_net_fd(const struct vw_net *net)
{
    return vw_driver_event_fd(net);
}

int vw_process(struct vw_net *net)
{
    int events, result = 0;

    if (vw_net_in_done(net))
        return -EBUSY;
    events = vw_driver_events(net);
    if (events < 0)
        return events;
    if (events & VW_TRANSPORT_LOST)
        result |= lose(net);
    if ((events & VW_TRANSPORT_REACHABLE) && !net->connected && net->options.reconnect)
        result |= reconnect(net);
    if ((events & VW_TRANSPORT_CONFIG_CHANGED) && net->connected)
        result |= read_config_again(net);
    return result;
}
