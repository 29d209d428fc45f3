/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening a TAP port: an interface made by us, one that exists, or descriptors that we inherit.
 *
 * Theory of operation
 * -------------------
 * Much of what a descriptor does belongs to the interface and survives the program that set it:
 * the header's size, its byte order, the send buffer, the offloads. So each is set, whatever it
 * seems to be. Some facts cannot be asked of the descriptor: TUNGETIFF's bit 0x1000 is both
 * IFF_NO_PI and IFF_NOFILTER, and a mismatch of IFF_MULTI_QUEUE is a mere EINVAL. Therefore the
 * interface is looked up through netlink first, and most refusals here say precisely why.
 *
 * An interface of our making is set up only when all its queues are attached and configured, so
 * that no frame finds it half ready. An existing one keeps its state: it belongs to someone else.
 *
 * An inherited descriptor may lie in another network namespace, where netlink does not see its
 * interface, but perhaps another one of the same name. Its MAC address, which the descriptor
 * itself knows, tells them apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "port/tap.h"

#define TUN_DEVICE "/dev/net/tun"
#define TUN_MAJOR 10 /* a misc device */
#define TUN_MINOR 200

/* The kernel puts the next free number here. */
#define NAME_TEMPLATE "vw%d"

/* One opening under way. */
struct opening {
    const struct vw_port_options *options;
    const struct vw_port_error *error;
    struct vw_tap *tap;
    char name[IFNAMSIZ];
    bool napi;
};

/* ifr_flags is a short, and IFF_TUN_EXCL its sign bit. */
static void set_flags(struct ifreq *request, unsigned flags)
{
    uint16_t value = (uint16_t)flags;

    memcpy(&request->ifr_flags, &value, sizeof(value));
}

static unsigned get_flags(const struct ifreq *request)
{
    return (uint16_t)request->ifr_flags;
}

static bool has_flags(unsigned flags, unsigned wanted)
{
    return (flags & wanted) == wanted;
}

/* The queue owns `fd` from here on, unless this fails. */
static int add_queue(struct vw_tap *tap, int fd)
{
    struct vw_port *port = &tap->port;
    struct vw_tap_queue *queue = vw_port_allocate(sizeof(*queue));

    if (queue == NULL)
        return -ENOMEM;
    queue->buffers = vw_port_buffers_map(VW_PORT_BATCH + 1);
    if (queue->buffers == NULL) {
        free(queue);
        return -ENOMEM;
    }
    vw_tap_received_init(&queue->received);
    queue->queue.port = port;
    queue->queue.index = port->queue_count;
    queue->fd = fd;
    queue->attached = true;
    port->queues[port->queue_count++] = &queue->queue;
    return 0;
}

static int first_fd(const struct vw_tap *tap)
{
    return vw_tap_queue_of(tap->port.queues[0])->fd;
}

static int check_name(struct opening *opening)
{
    const char *name = opening->options->name;

    if (name == NULL)
        name = NAME_TEMPLATE;
    if (strlen(name) >= IFNAMSIZ)
        return vw_port_fail(opening->error, -EINVAL,
                            "name=%s: an interface's name has at most %d characters", name,
                            IFNAMSIZ - 1);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strpbrk(name, "/: \t\n\v\f\r") != NULL)
        return vw_port_fail(opening->error, -EINVAL,
                            "name=%s: an interface's name contains no '/', ':' or space", name);
    strcpy(opening->name, name);
    return 0;
}

static int check_existing(struct opening *opening, const struct vw_link *link)
{
    const struct vw_port_error *error = opening->error;

    if (!link->is_tun || !link->is_tap)
        return vw_port_fail(error, -EINVAL, "%s exists and is not a TAP: choose another name",
                            link->name);
    if (link->queues_open > 0)
        return vw_port_fail(error, -EBUSY,
                            "%s is already used by another program (%u queues "
                            "open): stop that one, or choose another name",
                            link->name, link->queues_open);
    if (opening->options->queues > 1 && !link->multi_queue)
        return vw_port_fail(error, -EINVAL,
                            "%s has a single queue: use queues=1, or make it anew "
                            "with 'ip tuntap add dev %s mode tap vnet_hdr "
                            "multi_queue'",
                            link->name, link->name);
    return 0;
}

static int open_device(const struct vw_port_error *error)
{
    int fd = open(TUN_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0)
        return fd;
    int result = -errno;
    if (result == -ENOENT || result == -ENODEV || result == -ENXIO)
        return vw_port_fail(error, result,
                            TUN_DEVICE " is missing: load the tun module "
                                       "('modprobe tun'), or give the device to this container");
    if (result == -EACCES || result == -EPERM)
        return vw_port_fail(error, result,
                            "no permission to open " TUN_DEVICE ": run as a user "
                            "that may read and write it");
    return vw_port_fail(error, result, "cannot open " TUN_DEVICE ": %s", strerror(-result));
}

/* TUNSETIFF takes unknown flags without a word, so the kernel is asked first. */
static int check_kernel(int fd, unsigned flags, const struct vw_port_error *error)
{
    unsigned known = 0;

    if (ioctl(fd, TUNGETFEATURES, &known) < 0 || !has_flags(known, flags & ~(unsigned)IFF_TUN_EXCL))
        return vw_port_fail(error, -EOPNOTSUPP, "this kernel's TAP lacks virtio-net headers%s",
                            (flags & IFF_MULTI_QUEUE) != 0 ? " or several queues" : "");
    return 0;
}

/* Whether to ask for IFF_NAPI. */
static int choose_napi(struct opening *opening)
{
    enum vw_port_napi wish = opening->options->napi;
    unsigned known = 0;

    if (wish == VW_PORT_NAPI_OFF)
        return 0;
    int fd = open_device(opening->error);
    if (fd < 0)
        return fd;
    opening->napi = ioctl(fd, TUNGETFEATURES, &known) == 0 && has_flags(known, IFF_NAPI);
    close(fd);
    if (wish == VW_PORT_NAPI_ON && !opening->napi)
        return vw_port_fail(opening->error, -EOPNOTSUPP, "napi=on: this kernel's TAP lacks it");
    return 0;
}

static int attach_failed(const struct opening *opening, bool exists, int result)
{
    const struct vw_port_error *error = opening->error;
    const char *name = opening->name;

    switch (result) {
    case -EPERM:
        return vw_port_fail(error, result,
                            "%s: making this TAP, or using one of another user, "
                            "needs CAP_NET_ADMIN; or make it beforehand with 'ip "
                            "tuntap add dev %s mode tap user USER vnet_hdr'",
                            name, name);
    case -EBUSY:
        return vw_port_fail(error, result,
                            "%s is already used by another program: stop that one, "
                            "or choose another name",
                            name);
    case -E2BIG:
        return vw_port_fail(error, result, "%s: the kernel does not give a TAP %u queues", name,
                            opening->options->queues);
    case -EINVAL:
        return vw_port_fail(error, result,
                            exists ? "%s exists, and is not a TAP that can be used "
                                     "with this number of queues"
                                   : "%s: the kernel refuses this name",
                            name);
    default:
        return vw_port_fail(error, result, "%s: cannot attach to the TAP: %s", name,
                            strerror(-result));
    }
}

/*
 * Attaches one queue. A further queue changes nothing of the interface, so whether the headers are
 * there is read back from it.
 */
static int attach(struct opening *opening, int fd, unsigned flags, bool exists)
{
    struct ifreq request;
    int result = check_kernel(fd, flags, opening->error);

    if (result < 0)
        return result;
    memset(&request, 0, sizeof(request));
    strcpy(request.ifr_name, opening->name);
    set_flags(&request, flags);
    if (ioctl(fd, TUNSETIFF, &request) < 0)
        return attach_failed(opening, exists, -errno);
    memcpy(opening->name, request.ifr_name, IFNAMSIZ);
    memset(&request, 0, sizeof(request));
    if (ioctl(fd, TUNGETIFF, &request) < 0 ||
        !has_flags(get_flags(&request), IFF_TAP | IFF_VNET_HDR))
        return vw_port_fail(opening->error, -EBUSY,
                            "%s is used by another program without "
                            "virtio-net headers",
                            opening->name);
    return 0;
}

static int open_named(struct opening *opening)
{
    struct vw_tap *tap = opening->tap;
    struct vw_link link;
    unsigned flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    int result = check_name(opening);

    if (result == 0)
        result = choose_napi(opening);
    if (result < 0)
        return result;
    if (opening->napi)
        flags |= IFF_NAPI;
    result = vw_link_get(opening->name, &link);
    bool exists = result == 0;
    if (exists)
        result = check_existing(opening, &link);
    else if (result == -ENODEV)
        result = 0;
    else
        return vw_port_fail(opening->error, result, "%s: cannot look the interface up: %s",
                            opening->name, strerror(-result));
    if (exists ? link.multi_queue : opening->options->queues > 1)
        flags |= IFF_MULTI_QUEUE; /* must match the interface */
    if (!exists)
        flags |= IFF_TUN_EXCL; /* or somebody made it in this moment */
    while (result == 0 && tap->port.queue_count < opening->options->queues) {
        int fd = open_device(opening->error);

        if (fd < 0)
            return fd;
        result = attach(opening, fd, flags, exists);
        if (result == 0 && add_queue(tap, fd) < 0)
            result = vw_port_fail(opening->error, -ENOMEM, "%s: no memory", opening->name);
        if (result < 0)
            close(fd);
        flags &= ~(unsigned)IFF_TUN_EXCL;
    }
    tap->created = !exists;
    return result;
}

/* One queue of a macvtap interface: its flags belong to the descriptor. */
static int open_macvtap_queue(struct opening *opening, unsigned flags)
{
    const struct vw_port_error *error = opening->error;
    const char *path = opening->options->path;
    struct ifreq request;
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return vw_port_fail(error, -errno, "path=%s: cannot open it: %s", path, strerror(errno));
    memset(&request, 0, sizeof(request));
    set_flags(&request, flags);
    int result =
        ioctl(fd, TUNSETIFF, &request) < 0 || ioctl(fd, TUNGETIFF, &request) < 0 ? -errno : 0;
    if (result == 0 && !has_flags(get_flags(&request), IFF_TAP | IFF_VNET_HDR))
        result = -EINVAL;
    if (result < 0)
        result =
            vw_port_fail(error, result,
                         "path=%s: not the device of a macvtap interface, such as /dev/tap7", path);
    else if (add_queue(opening->tap, fd) < 0)
        result = vw_port_fail(error, -ENOMEM, "path=%s: no memory", path);
    if (result < 0)
        close(fd);
    else
        memcpy(opening->name, request.ifr_name, IFNAMSIZ);
    return result;
}

/* All queues of a macvtap interface, which `ip link` made and owns. */
static int open_macvtap(struct opening *opening)
{
    const struct vw_port_options *options = opening->options;
    unsigned flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    struct stat status;
    int result = 0;

    if (stat(options->path, &status) < 0)
        return vw_port_fail(opening->error, -errno, "path=%s: %s", options->path, strerror(errno));
    if (!S_ISCHR(status.st_mode) || status.st_rdev == makedev(TUN_MAJOR, TUN_MINOR))
        return vw_port_fail(opening->error, -EINVAL,
                            "path=%s: not the device of a macvtap interface, such as /dev/tap7%s",
                            options->path, S_ISCHR(status.st_mode) ? "; for a TAP give name=" : "");
    if (options->queues > 1)
        flags |= IFF_MULTI_QUEUE;
    while (result == 0 && opening->tap->port.queue_count < options->queues)
        result = open_macvtap_queue(opening, flags);
    return result;
}

/* Is it an open TAP with virtio-net headers, and of the same interface as those before it? */
static int check_inherited(struct opening *opening, int fd, unsigned *flags)
{
    const struct vw_port_error *error = opening->error;
    struct ifreq request;
    int mode = fcntl(fd, F_GETFL);

    if (mode < 0)
        return vw_port_fail(error, -errno, "fd=%d: this descriptor is not open", fd);
    memset(&request, 0, sizeof(request));
    if (ioctl(fd, TUNGETIFF, &request) < 0)
        return vw_port_fail(error, -EINVAL, "fd=%d: this descriptor is not attached to a TAP", fd);
    *flags = get_flags(&request);
    if (!has_flags(*flags, IFF_TAP))
        return vw_port_fail(error, -EINVAL, "fd=%d: %s is a TUN interface, not a TAP", fd,
                            request.ifr_name);
    if (!has_flags(*flags, IFF_VNET_HDR))
        return vw_port_fail(error, -EINVAL, "fd=%d: %s was opened without IFF_VNET_HDR", fd,
                            request.ifr_name);
    if ((mode & O_ACCMODE) != O_RDWR)
        return vw_port_fail(error, -EINVAL, "fd=%d: must be open for reading and writing", fd);
    if (opening->options->fd_count > 1 && !has_flags(*flags, IFF_MULTI_QUEUE))
        return vw_port_fail(error, -EINVAL,
                            "fd=%d: %s was opened without IFF_MULTI_QUEUE, but "
                            "several descriptors are given",
                            fd, request.ifr_name);
    if (opening->name[0] != '\0' && strncmp(opening->name, request.ifr_name, IFNAMSIZ) != 0)
        return vw_port_fail(error, -EINVAL, "fd=%d: belongs to %s, the ones before it to %s", fd,
                            request.ifr_name, opening->name);
    memcpy(opening->name, request.ifr_name, IFNAMSIZ);
    opening->name[IFNAMSIZ - 1] = '\0';
    return 0;
}

static int take_inherited(struct opening *opening, int fd, unsigned flags)
{
    struct ifreq request;
    int mode = fcntl(fd, F_GETFL);

    if (mode < 0 || fcntl(fd, F_SETFL, mode | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return vw_port_fail(opening->error, -errno, "fd=%d: %s", fd, strerror(errno));
    if (has_flags(flags, IFF_DETACH_QUEUE)) {
        memset(&request, 0, sizeof(request));
        set_flags(&request, IFF_ATTACH_QUEUE);
        if (ioctl(fd, TUNSETQUEUE, &request) < 0)
            return vw_port_fail(opening->error, -errno, "fd=%d: cannot attach the queue: %s", fd,
                                strerror(errno));
    }
    if (add_queue(opening->tap, fd) < 0)
        return vw_port_fail(opening->error, -ENOMEM, "%s: no memory", opening->name);
    return 0;
}

static int open_inherited(struct opening *opening)
{
    const struct vw_port_options *options = opening->options;

    for (unsigned i = 0; i < options->fd_count; i++) {
        unsigned flags = 0;
        int result = check_inherited(opening, options->fds[i], &flags);

        if (result == 0)
            result = take_inherited(opening, options->fds[i], flags);
        if (result < 0)
            return result;
    }
    return 0;
}

/* A failed opening leaves inherited descriptors to whoever gave them. */
static void give_back_inherited(struct vw_tap *tap)
{
    for (unsigned i = 0; i < tap->port.queue_count; i++)
        vw_tap_queue_of(tap->port.queues[i])->fd = -1;
}

/* What the interface may have kept from its last user (see the theory of operation). */
static int configure(struct opening *opening)
{
    int header = VW_PORT_HEADER;
    int little_endian = 1; /* VERSION_1 (virtio 1.3, section 5.1.6); the default is the host's */
    /* Only with the largest one does the kernel take its short path for small frames. */
    int sndbuf = opening->options->sndbuf != 0 ? (int)opening->options->sndbuf : INT_MAX;
    /* What an inherited descriptor's opener chose is left alone. */
    bool set_sndbuf = opening->options->sndbuf != 0 || opening->options->fd_count == 0;

    /* Of a TAP some belong to the interface; of a macvtap, all to the descriptor. */
    for (unsigned i = 0; i < opening->tap->port.queue_count; i++) {
        int fd = vw_tap_queue_of(opening->tap->port.queues[i])->fd;

        if (ioctl(fd, TUNSETVNETLE, &little_endian) < 0)
            return vw_port_fail(opening->error, -errno, "%s: cannot set little-endian headers: %s",
                                opening->name, strerror(errno));
        if (ioctl(fd, TUNSETVNETHDRSZ, &header) < 0)
            return vw_port_fail(opening->error, -errno, "%s: cannot set a header of %d bytes: %s",
                                opening->name, header, strerror(errno));
        if (set_sndbuf && ioctl(fd, TUNSETSNDBUF, &sndbuf) < 0)
            return vw_port_fail(opening->error, -errno, "%s: cannot set sndbuf=%d: %s",
                                opening->name, sndbuf, strerror(errno));
    }
    bool limited = ioctl(first_fd(opening->tap), TUNGETSNDBUF, &sndbuf) < 0 || sndbuf < INT_MAX;
    for (unsigned i = 0; i < opening->tap->port.queue_count; i++)
        vw_tap_queue_of(opening->tap->port.queues[i])->room_limited = limited;
    return 0;
}

/* Why a ring could not be had, as a sentence of what to do. */
static int no_ring(struct opening *opening, int result)
{
    const char *reason = strerror(-result);

    if (result == -EPERM || result == -EACCES)
        reason = "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a sandbox)";
    else if (result == -ENOSYS)
        reason = "this kernel, or a sandbox, has no io_uring";
    else if (result == -EOPNOTSUPP)
        reason = "this kernel's io_uring cannot read a TAP without waiting (Linux 6.4 can)";
    return vw_port_fail(opening->error, result, "%s: io=uring: %s; io=plain does without",
                        opening->name, reason);
}

static void close_rings(struct vw_tap *tap)
{
    for (unsigned i = 0; i < tap->port.queue_count; i++)
        vw_tap_ring_close(&vw_tap_queue_of(tap->port.queues[i])->ring);
}

/* Decides how the queues are read and written. */
static int choose_io(struct opening *opening)
{
    struct vw_tap *tap = opening->tap;
    enum vw_port_io io = opening->options->io;
    int result = io == VW_PORT_IO_PLAIN ? -ECANCELED : 0;

    for (unsigned i = 0; i < tap->port.queue_count && result == 0; i++) {
        struct vw_tap_queue *queue = vw_tap_queue_of(tap->port.queues[i]);

        result = vw_tap_ring_open(&queue->ring, queue->fd);
        if (result == 0 && i == 0 && io == VW_PORT_IO_AUTO && !vw_tap_ring_is_faster(&queue->ring))
            result = -ECANCELED;
    }
    if (result < 0)
        close_rings(tap);
    if (result < 0 && io == VW_PORT_IO_URING)
        return no_ring(opening, result);
    snprintf(tap->port.settings, sizeof(tap->port.settings), "io=%s napi=%s",
             result == 0 ? "uring" : "plain", opening->napi ? "on" : "off");
    return 0;
}

/*
 * Finds out what the kernel is able to do by trying it, and leaves every offload off. A kernel
 * that lets UDP segments out also takes them in; both came together.
 */
static int probe_offloads(struct opening *opening)
{
    struct vw_port *port = &opening->tap->port;
    int fd = first_fd(opening->tap);
    int64_t able = 0;

    if (opening->options->offload) {
        able = vw_tap_set_offloads(fd, VW_PORT_OFFLOADS | VW_PORT_OFFLOADS_USO);
        if (able > 0)
            port->features = VW_PORT_OFFLOADS;
        if (able > 0 && vw_has((uint64_t)able, VIRTIO_NET_F_GUEST_USO4))
            port->features |= VW_PORT_OFFLOADS_USO;
    }
    if (able >= 0)
        able = vw_tap_set_offloads(fd, 0);
    if (able < 0)
        return vw_port_fail(opening->error, (int)able, "%s: cannot set the offloads: %s",
                            opening->name, strerror((int)-able));
    return 0;
}

/* Does this interface of our namespace belong to our descriptor? */
static bool is_ours(const struct vw_tap *tap, const struct vw_link *link)
{
    struct ifreq request;

    memset(&request, 0, sizeof(request));
    return ioctl(first_fd(tap), SIOCGIFHWADDR, &request) == 0 &&
           memcmp(request.ifr_hwaddr.sa_data, link->mac, sizeof(link->mac)) == 0;
}

static int cannot_see(struct opening *opening)
{
    struct vw_tap *tap = opening->tap;

    if (opening->options->mtu != 0)
        return vw_port_fail(opening->error, -ENODEV,
                            "mtu=%u: %s is not in this network namespace; "
                            "set its MTU there",
                            opening->options->mtu, opening->name);
    vw_log(tap->port.log, VW_LOG_INFO,
           "%s: not in this network namespace; its link state is not "
           "watched",
           tap->port.description);
    tap->port.link_up = true;
    return 0;
}

/* Sets MTU and state, then takes them from the interface, which has the last word. */
static int set_up_link(struct opening *opening)
{
    const struct vw_port_options *options = opening->options;
    struct vw_tap *tap = opening->tap;
    struct vw_port *port = &tap->port;
    struct vw_link link;
    int result = vw_link_get(opening->name, &link);

    if (result < 0 || !is_ours(tap, &link))
        return cannot_see(opening);
    if (link.is_tun && link.packet_information)
        return vw_port_fail(opening->error, -EINVAL, "%s was opened without IFF_NO_PI",
                            opening->name);
    if (tap->created || options->mtu != 0)
        result = vw_link_set(link.index, options->mtu, tap->created);
    if (result < 0)
        return vw_port_fail(opening->error, result, "%s: cannot set %s%s: %s", opening->name,
                            options->mtu != 0 ? "the MTU" : "it up",
                            options->mtu != 0 && tap->created ? ", or set it up" : "",
                            strerror(-result));
    /* First the subscription, then the state: what changes in between is seen twice, not never. */
    result = vw_link_monitor_open(&tap->monitor);
    if (result == 0)
        result = vw_link_get(opening->name, &link);
    if (result < 0)
        return vw_port_fail(opening->error, result, "%s: cannot watch the interface: %s",
                            opening->name, strerror(-result));
    vw_link_monitor_start(&tap->monitor, &link);
    port->mtu = link.mtu;
    port->link_fd = vw_link_monitor_fd(&tap->monitor);
    port->link_up = tap->monitor.up;
    return 0;
}

/* What was asked for and cannot be had is told; what is only the default is not. */
static int check_coalesce(const struct opening *opening)
{
    if (opening->options->coalesce == VW_PORT_COALESCE_ON && !opening->options->offload)
        return vw_port_fail(
            opening->error, -EINVAL,
            "tap: coalesce=on needs offload=on: merged frames are for the kernel to "
            "segment");
    return 0;
}

static int open_all(struct opening *opening)
{
    struct vw_tap *tap = opening->tap;
    const struct vw_port_options *options = opening->options;
    int result = check_coalesce(opening);

    if (result == 0)
        result = options->fd_count > 0   ? open_inherited(opening)
                 : options->path != NULL ? open_macvtap(opening)
                                         : open_named(opening);

    if (result < 0)
        return result;
    snprintf(tap->port.description, sizeof(tap->port.description), "tap %s", opening->name);
    result = configure(opening);
    if (result == 0)
        result = probe_offloads(opening);
    if (result == 0)
        result = choose_io(opening);
    if (result == 0)
        result = set_up_link(opening);
    if (result == 0 && vw_port_merge(&tap->port, opening->options->coalesce) < 0)
        result = vw_port_fail(opening->error, -ENOMEM, "%s: no memory", opening->name);
    return result;
}

int vw_port_tap_open(const struct vw_port_options *options, const struct vw_log *log,
                     struct vw_port **port, const struct vw_port_error *error)
{
    struct opening opening = {.options = options, .error = error};

    if ((options->name != NULL) + (options->fd_count > 0) + (options->path != NULL) > 1)
        return vw_port_fail(error, -EINVAL, "tap: give one of name, path and fd");
    if (options->napi != VW_PORT_NAPI_OFF && (options->fd_count > 0 || options->path != NULL))
        return vw_port_fail(error, -EINVAL, "tap: napi= is for a TAP that is opened by its name");
    opening.tap = vw_port_allocate(sizeof(*opening.tap));
    if (opening.tap == NULL)
        return vw_port_fail(error, -ENOMEM, "tap: no memory");
    struct vw_port *created = &opening.tap->port;
    created->ops = &vw_tap_ops;
    created->log = log;
    created->queues = opening.tap->queues;
    created->link_fd = -1;
    created->link_changed = vw_tap_link_changed;
    int result = open_all(&opening);
    if (result < 0) {
        if (options->fd_count > 0)
            give_back_inherited(opening.tap);
        created->ops->close(created);
        return result;
    }
    *port = created;
    return 0;
}
