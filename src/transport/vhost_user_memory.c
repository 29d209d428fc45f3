/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the back-end may see. Guest and user address of a region are the same: the address
 * in this process, so that a driver writes its own pointers into descriptors and a back-end finds
 * them in either way of looking.
 *
 * With CONFIGURE_MEM_SLOTS regions come and go one by one (ADD_MEM_REG, REM_MEM_REG); without, each
 * change sends the whole table (SET_MEM_TABLE), which holds no more than eight.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/overflow.h"
#include "transport/vhost_user.h"

static bool has_slots(const struct vw_vhost_user *user)
{
    return vw_has(user->protocol, VW_VU_PF_CONFIGURE_MEM_SLOTS);
}

static int send_table(struct vw_vhost_user *user)
{
    struct vw_vu_message message;
    int fds[VW_VU_MAX_TABLE_REGIONS];
    unsigned count = user->region_count;

    vw_vu_request(&message, VW_VU_SET_MEM_TABLE,
                  (uint32_t)(8 + count * sizeof(struct vw_vu_region)));
    message.payload.memory.count = count;
    for (unsigned i = 0; i < count; i++) {
        message.payload.memory.regions[i] = user->regions[i].wire;
        fds[i] = user->regions[i].fd;
    }
    return vw_vhost_user_request(user, &message, fds, count);
}

static int send_slot(struct vw_vhost_user *user, uint32_t request,
                     const struct vw_vhost_user_region *region)
{
    struct vw_vu_message message;

    vw_vu_request(&message, request, sizeof(struct vw_vu_single_region));
    message.payload.region.region = region->wire;
    return vw_vhost_user_request(user, &message, &region->fd, request == VW_VU_ADD_MEM_REG ? 1 : 0);
}

static bool overlaps(const struct vw_vhost_user_region *region, uint64_t start, uint64_t size)
{
    return start < region->wire.user + region->wire.size && region->wire.user < start + size;
}

/* Takes a region out of our list only. */
static void drop_region(struct vw_vhost_user *user, unsigned i)
{
    close(user->regions[i].fd);
    user->region_count--;
    memmove(&user->regions[i], &user->regions[i + 1],
            (user->region_count - i) * sizeof(user->regions[0]));
}

static int check_region(struct vw_vhost_user *user, uint64_t offset, uint64_t start, uint64_t size)
{
    uint64_t end;

    if (size == 0 || !vw_add_u64(start, size, &end) || !vw_add_u64(offset, size, &end))
        return vw_vhost_user_fail(user, -EINVAL, "memory of no bytes, or beyond the last address");
    for (unsigned i = 0; i < user->region_count; i++)
        if (overlaps(&user->regions[i], start, size))
            return vw_vhost_user_fail(user, -EEXIST, "this memory overlaps with what is shared");
    if (user->region_count >= user->max_regions)
        return vw_vhost_user_fail(
            user, -ENOSPC, "the back-end takes no more than %u memory regions", user->max_regions);
    return 0;
}

int vw_vhost_user_share(struct vw_transport *transport, int fd, uint64_t offset, void *address,
                        uint64_t size)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    uint64_t start = (uintptr_t)address;
    int error, own;

    if (user->socket < 0)
        return -ENOTCONN;
    error = check_region(user, offset, start, size);
    if (error < 0)
        return error;
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return vw_vhost_user_fail(user, -errno, "the memory's descriptor: %s", strerror(errno));
    user->regions[user->region_count++] = (struct vw_vhost_user_region){
        .wire = {.guest = start, .size = size, .user = start, .offset = offset}, .fd = own};
    error = has_slots(user)
                ? send_slot(user, VW_VU_ADD_MEM_REG, &user->regions[user->region_count - 1])
                : send_table(user);
    /* A lost connection has forgotten all regions already. */
    if (error == -EREMOTEIO)
        drop_region(user, user->region_count - 1);
    return error;
}

int vw_vhost_user_unshare(struct vw_transport *transport, void *address, uint64_t size)
{
    struct vw_vhost_user *user = vw_vhost_user_of(transport);
    struct vw_vhost_user_region region;
    unsigned i = 0;
    int error;

    if (user->socket < 0)
        return -ENOTCONN;
    while (i < user->region_count &&
           (user->regions[i].wire.user != (uintptr_t)address || user->regions[i].wire.size != size))
        i++;
    if (i == user->region_count)
        return vw_vhost_user_fail(user, -ENOENT, "this memory is not shared");
    region = user->regions[i];
    drop_region(user, i); /* its descriptor is not sent again */
    error = has_slots(user) ? send_slot(user, VW_VU_REM_MEM_REG, &region) : send_table(user);
    /* The caller may unmap it when this returns: the back-end must be done with it. */
    return error < 0 ? error : vw_vhost_user_barrier(user);
}

void vw_vhost_user_forget_memory(struct vw_vhost_user *user)
{
    while (user->region_count > 0)
        drop_region(user, user->region_count - 1);
}
