/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * A UNIX socket leaves a file behind when its process is killed, and nothing can be bound to that
 * name any more. Whether someone still listens is found out by connecting: a refusal says that the
 * file is dead, and only then it is unlinked. Two processes that start at once could both come to
 * that conclusion, the slower one about the file that the faster one has just made; so the whole
 * of it happens under a lock on the directory, which leaves no file behind either.
 *
 * At the end the file is unlinked only if it is still the one that we made: someone may have
 * replaced it in the meantime.
 */
#include "transport/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Tries to lock the directory, 10 ms apart. The lock is held for microseconds by those who hold it
 * rightly; someone else's lock (anyone who can read the directory may take one) must not keep us
 * from starting. */
#define LOCK_TRIES 50

static int make_address(struct sockaddr_un *address, const char *path)
{
    size_t length = strlen(path);

    if (length == 0)
        return -EINVAL;
    if (length >= sizeof(address->sun_path))
        return -ENAMETOOLONG;
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length + 1);
    return 0;
}

/* A descriptor that holds the lock until it is closed, or -1: then we go on without. */
static int lock_directory(const struct sockaddr_un *address)
{
    char directory[sizeof(address->sun_path) + 1];
    char *slash;
    int fd;

    memcpy(directory, address->sun_path, sizeof(address->sun_path));
    slash = strrchr(directory, '/');
    if (slash)
        slash[1] = '\0';
    fd = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    for (int i = 0; i < LOCK_TRIES; i++) {
        const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};

        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        nanosleep(&pause, NULL);
    }
    close(fd);
    return -1;
}

static int connect_address(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error;

    if (fd < 0)
        return -errno;
    while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
        if (errno == EINTR)
            continue;
        error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int vw_socket_connect(const char *path)
{
    struct sockaddr_un address;
    int error = make_address(&address, path);

    return error ? error : connect_address(&address);
}

/* The name is taken. Returns 0 if it is free now. */
static int remove_stale(const struct sockaddr_un *address)
{
    struct stat status;
    int probe;

    if (lstat(address->sun_path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode))
        return -EEXIST;
    probe = connect_address(address);
    if (probe >= 0)
        close(probe);
    /* A full backlog (EAGAIN) or a datagram socket (EPROTOTYPE) is alive as well. */
    if (probe >= 0 || probe == -EAGAIN || probe == -EPROTOTYPE)
        return -EADDRINUSE;
    if (probe != -ECONNREFUSED && probe != -ENOENT)
        return probe;
    if (unlink(address->sun_path) < 0 && errno != ENOENT)
        return -errno;
    return 0;
}

static int bind_address(int fd, const struct sockaddr_un *address)
{
    return bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
}

/* Under the lock: binds, and remembers which file that made. */
static int bind_and_listen(struct vw_socket_listener *listener, const struct sockaddr_un *address)
{
    struct stat status;
    int error = bind_address(listener->fd, address);

    if (error == -EADDRINUSE) {
        error = remove_stale(address);
        if (error == 0)
            error = bind_address(listener->fd, address);
    }
    if (error)
        return error;
    if (lstat(address->sun_path, &status) < 0)
        return -errno;
    listener->owns_path = true;
    listener->device = status.st_dev;
    listener->inode = status.st_ino;
    memcpy(listener->path, address->sun_path, sizeof(listener->path));
    return listen(listener->fd, SOMAXCONN) < 0 ? -errno : 0;
}

int vw_socket_listen(struct vw_socket_listener *listener, const char *path)
{
    struct sockaddr_un address;
    int lock, error;

    memset(listener, 0, sizeof(*listener));
    listener->fd = -1;
    error = make_address(&address, path);
    if (error)
        return error;
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener->fd < 0)
        return -errno;
    lock = lock_directory(&address);
    error = bind_and_listen(listener, &address);
    if (error)
        vw_socket_listener_close(listener);
    if (lock >= 0)
        close(lock);
    return error;
}

static bool option_is(int fd, int option, int expected)
{
    int value;
    socklen_t size = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == expected;
}

int vw_socket_listen_adopt(struct vw_socket_listener *listener, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    memset(listener, 0, sizeof(*listener));
    listener->fd = -1;
    if (flags < 0 || !option_is(fd, SO_DOMAIN, AF_UNIX) || !option_is(fd, SO_TYPE, SOCK_STREAM) ||
        !option_is(fd, SO_ACCEPTCONN, 1))
        return -EINVAL;
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    listener->fd = fd;
    return 0;
}

void vw_socket_listener_close(struct vw_socket_listener *listener)
{
    struct stat status;

    if (listener->owns_path && lstat(listener->path, &status) == 0 &&
        status.st_dev == listener->device && status.st_ino == listener->inode)
        unlink(listener->path);
    listener->owns_path = false;
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
}

int vw_socket_accept(const struct vw_socket_listener *listener)
{
    int fd;

    do {
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

int vw_socket_peer(int socket, struct vw_socket_peer *peer)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
        return -errno;
    peer->pid = credentials.pid;
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    return 0;
}
