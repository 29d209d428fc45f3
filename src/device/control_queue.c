/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control queue: commands of the guest's driver (virtio 1.x, section 5.1.6.5).
 *
 * It is served by the control thread, since commands change what the workers follow. A command is
 * in force before its chain is given back. A front-end may serve the control queue itself, as
 * QEMU does; then this queue is never started.
 */
#include <sys/epoll.h>

#include "device/internal.h"

/* Chains taken in one go. A driver waits for each command, so there is seldom more than one. */
#define COMMANDS 8

/* A driver that posts commands without end must not keep the control thread, nor its own workers
 * paused. */
#define BATCHES_A_TURN 8

static void apply_changes(struct vw_device *device, unsigned changed)
{
    struct vw_port *port = device->port;

    if (changed & VW_NET_CHANGED_MAC)
        memcpy(device->config.mac, device->control.mac, VW_NET_MAC_SIZE);
    if (changed & VW_NET_CHANGED_ANNOUNCE)
        device->config.announce = device->control.announce;
    if (changed & VW_NET_CHANGED_HASH)
        vw_net_toeplitz_init(&device->toeplitz, device->control.rss.key,
                             device->control.rss.key_length);
    vw_device_set_rules(device);
    if (changed & VW_NET_CHANGED_OFFLOADS)
        port->ops->set_guest_offloads(port, device->rules.guest_offloads);
}

/* Which queues the driver has set up: commands for a single queue may be for these only. */
static void note_queues(struct vw_device *device)
{
    uint64_t *set_up = device->control.queues_set_up;

    memset(set_up, 0, sizeof(device->control.queues_set_up));
    for (unsigned i = 0; i < 2 * device->pair_count; i++)
        if (device->queues[i].started)
            set_up[i / 64] |= vw_bit(i % 64);
}

static void run_command(struct vw_device *device, struct vw_queue *queue, struct vw_chain *chain)
{
    uint8_t command[VW_NET_CONTROL_MAX], answer[1 + VW_NET_CONTROL_ANSWER_MAX];
    size_t answer_size = 1;
    unsigned changed = 0;

    size_t copied = vw_iov_read(chain->iov, chain->readable_count, 0, command, sizeof(command));
    memset(command + copied, 0, sizeof(command) - copied);
    vw_device_pause(device);
    note_queues(device);
    enum vw_net_control_result result =
        vw_net_control(&device->control, command, chain->readable_length, &changed);
    if (changed != 0)
        apply_changes(device, changed);
    if (result == VW_NET_CONTROL_OK) {
        vw_count(&queue->counters.commands, 1);
        answer_size +=
            vw_net_control_answer(&device->control, command, chain->readable_length, answer + 1);
    } else {
        vw_count(&queue->counters.commands_refused, 1);
        vw_log_limited(device->log, &device->log_limit, VW_LOG_WARNING,
                       "control command %u.%u of %u bytes refused: %s", command[0], command[1],
                       chain->readable_length, vw_net_control_result_text(result));
    }
    answer[0] = vw_net_control_ack(result);
    chain->written = (uint32_t)vw_iov_write(chain->iov + chain->readable_count,
                                            chain->writable_count, 0, answer, answer_size);
}

static bool run_batch(struct vw_device *device, struct vw_queue *queue)
{
    struct vw_chain *chains = queue->chains;

    queue->pool.used = 0;
    uint32_t count = vw_device_ring_fetch(&queue->ring, chains, COMMANDS, &queue->pool);
    for (uint32_t i = 0; i < count; i++) {
        chains[i].written = 0;
        if (chains[i].writable_count == 0) {
            /* There is no place for the answer that the driver waits for. */
            vw_queue_break(queue, VW_RING_WRONG_DIRECTION);
            count = i;
            break;
        }
        run_command(device, queue, &chains[i]);
    }
    vw_queue_report_broken(queue);
    if (count == 0)
        return false;
    vw_device_ring_use(&queue->ring, chains, count);
    vw_queue_publish(queue, NULL, count);
    return true;
}

void vw_control_queue_run(struct vw_device *device)
{
    struct vw_queue *queue = vw_device_control_queue(device);

    if (!queue->live || !queue->enabled)
        return;
    for (unsigned batch = 0; batch < BATCHES_A_TURN; batch++) {
        vw_device_ring_disarm(&queue->ring);
        if (!run_batch(device, queue) && vw_device_ring_arm(&queue->ring)) /* and look again */
            return;
    }
    vw_device_come_again(device);
}

void vw_control_queue_unwatch(struct vw_device *device)
{
    if (device->control_kick_watched >= 0)
        vw_device_unwatch(device, device->control_kick_watched);
    device->control_kick_watched = -1;
}

int vw_control_queue_watch(struct vw_device *device)
{
    struct vw_queue *queue = vw_device_control_queue(device);

    if (queue->kick_fd < 0)
        return 0;
    int error = vw_device_watch(device, queue->kick_fd, EPOLLIN | EPOLLET, VW_EVENT_CONTROL_KICK);
    if (error == 0)
        device->control_kick_watched = queue->kick_fd;
    return error;
}
