/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of the back-end, on a socket of their own that the front-end handed over.
 *
 * None of ours asks for a reply: a worker that calls the guest must not wait for the front-end,
 * which may itself be waiting for this back-end. What comes in on the socket all the same is read
 * and forgotten.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "device/internal.h"

void vw_back_end_set(struct vw_device *device, int fd)
{
    pthread_mutex_lock(&device->back_end_lock);
    if (device->back_end_fd >= 0) {
        vw_device_unwatch(device, device->back_end_fd);
        vw_socket_receiver_destroy(&device->back_end_receiver);
        close(device->back_end_fd);
    }
    device->back_end_fd = fd;
    if (fd >= 0) {
        vw_socket_receiver_init(&device->back_end_receiver, VW_VU_BACK_END, true);
        vw_device_watch(device, fd, EPOLLIN, VW_EVENT_BACK_END);
    }
    pthread_mutex_unlock(&device->back_end_lock);
}

void vw_back_end_readable(struct vw_device *device)
{
    int result;

    if (device->back_end_fd < 0)
        return;
    do {
        result = vw_socket_receive(&device->back_end_receiver, device->back_end_fd);
    } while (result == 1);
    if (result != -EAGAIN)
        vw_back_end_set(device, -1);
}

/* Sends without waiting. False if there is no channel or it is full. Any thread. */
static bool send_request(struct vw_device *device, const struct vw_vu_message *message)
{
    bool sent = false;

    pthread_mutex_lock(&device->back_end_lock);
    if (device->back_end_fd >= 0)
        sent = vw_socket_send_within(device->back_end_fd, message, NULL, 0, 0) == 0;
    pthread_mutex_unlock(&device->back_end_lock);
    return sent;
}

bool vw_back_end_call(struct vw_device *device, unsigned index)
{
    struct vw_vu_message message;

    vw_vu_vring_call(&message, index);
    return send_request(device, &message);
}

void vw_back_end_error(struct vw_device *device, unsigned index)
{
    struct vw_vu_message message;

    vw_vu_vring_err(&message, index);
    send_request(device, &message);
}

void vw_back_end_config_changed(struct vw_device *device)
{
    struct vw_vu_message message;

    if (!vw_has(device->protocol, VW_VU_PF_CONFIG))
        return;
    vw_vu_config_change(&message);
    if (send_request(device, &message))
        vw_count(&device->counters.config_changes, 1);
}
