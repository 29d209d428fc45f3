/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of the back-end, on a socket of their own that the front-end handed over.
 *
 * Theory of operation
 * -------------------
 * A request is noted as a bit, and one request at a time is under way: the next is sent when the
 * front-end has acknowledged the one before (or at once, without REPLY_ACK). User-mode Linux reads
 * one message each time that its edge-triggered socket becomes readable, so that of two messages
 * close together the second would lie there unseen until a third came. Notifications of the same
 * kind that are noted meanwhile merge into one, as they do in an eventfd.
 *
 * Nobody waits: a worker that calls its guest notes the call and goes on; the acknowledgement comes
 * to the control thread, which sends what has been noted since.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "device/internal.h"

/* A front-end that acknowledges without end must not keep the control thread. */
#define ACKNOWLEDGEMENTS_A_TURN 64

static void close_channel(struct vw_device *device)
{
    struct vw_back_end *channel = &device->back_end;

    if (channel->fd < 0)
        return;
    vw_device_unwatch(device, channel->fd);
    vw_socket_receiver_destroy(&channel->receiver);
    close(channel->fd);
    channel->fd = -1;
}

void vw_back_end_set(struct vw_device *device, int fd)
{
    struct vw_back_end *channel = &device->back_end;

    pthread_mutex_lock(&channel->lock);
    close_channel(device);
    channel->fd = fd;
    channel->under_way = channel->config_noted = false;
    memset(channel->calls_noted, 0, sizeof(channel->calls_noted));
    memset(channel->errors_noted, 0, sizeof(channel->errors_noted));
    if (fd >= 0) {
        vw_socket_receiver_init(&channel->receiver, VW_VU_BACK_END, true);
        if (vw_device_watch(device, fd, EPOLLIN, VW_EVENT_BACK_END) < 0)
            close_channel(device);
    }
    pthread_mutex_unlock(&channel->lock);
}

/* Takes the lowest bit that is set; false if none is. */
static bool take_bit(uint64_t *words, unsigned *bit)
{
    for (unsigned i = 0; i < VW_VU_MAX_RINGS / 64; i++) {
        if (words[i] == 0)
            continue;
        *bit = i * 64 + (unsigned)__builtin_ctzll(words[i]);
        words[i] &= words[i] - 1;
        return true;
    }
    return false;
}

static bool next_request(struct vw_back_end *channel, struct vw_vu_message *message)
{
    unsigned ring;

    if (take_bit(channel->calls_noted, &ring)) {
        vw_vu_vring_call(message, ring);
    } else if (take_bit(channel->errors_noted, &ring)) {
        vw_vu_vring_err(message, ring);
    } else if (channel->config_noted) {
        channel->config_noted = false;
        vw_vu_config_change(message);
    } else {
        return false;
    }
    return true;
}

/* Sends what is noted, as far as may be. Locked. */
static void send_noted(struct vw_device *device)
{
    struct vw_back_end *channel = &device->back_end;
    struct vw_vu_message message;

    while (channel->fd >= 0 && !channel->under_way && next_request(channel, &message)) {
        vw_vu_need_reply(VW_VU_BACK_END, &message, device->protocol);
        channel->under_way = (message.header.flags & VW_VU_FLAG_NEED_REPLY) != 0;
        vw_count_system_call();
        if (vw_socket_send_within(channel->fd, &message, NULL, 0, 0) < 0)
            close_channel(device); /* it reads nothing, or is gone */
    }
}

void vw_back_end_readable(struct vw_device *device)
{
    struct vw_back_end *channel = &device->back_end;
    int result = -EAGAIN;

    pthread_mutex_lock(&channel->lock);
    for (unsigned i = 0; i < ACKNOWLEDGEMENTS_A_TURN && channel->fd >= 0; i++) {
        result = vw_socket_receive(&channel->receiver, channel->fd);
        if (result != 1)
            break;
        channel->under_way = false;
        send_noted(device);
    }
    if (channel->fd >= 0 && result != 1 && result != -EAGAIN)
        close_channel(device);
    pthread_mutex_unlock(&channel->lock);
}

static bool note_bit(struct vw_device *device, uint64_t *words, unsigned bit)
{
    struct vw_back_end *channel = &device->back_end;

    pthread_mutex_lock(&channel->lock);
    bool there = channel->fd >= 0;
    if (there) {
        words[bit / 64] |= vw_bit(bit % 64);
        send_noted(device);
    }
    pthread_mutex_unlock(&channel->lock);
    return there;
}

bool vw_back_end_call(struct vw_device *device, unsigned index)
{
    return note_bit(device, device->back_end.calls_noted, index);
}

void vw_back_end_error(struct vw_device *device, unsigned index)
{
    note_bit(device, device->back_end.errors_noted, index);
}

void vw_back_end_config_changed(struct vw_device *device)
{
    struct vw_back_end *channel = &device->back_end;

    if (!vw_has(device->protocol, VW_VU_PF_CONFIG))
        return;
    if (device->in_process != NULL) {
        device->config_changed = true;
        vw_count(&device->counters.config_changes, 1);
        vw_device_come_again(device);
        return;
    }
    pthread_mutex_lock(&channel->lock);
    if (channel->fd >= 0) {
        channel->config_noted = true;
        vw_count(&device->counters.config_changes, 1);
        send_noted(device);
    }
    pthread_mutex_unlock(&channel->lock);
}
