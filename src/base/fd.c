/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Reads what /proc says that the descriptor leads to. The kernel makes this text: of a file it is a
 * path, which begins with a slash, and of what has no path a kind and a number. Returns the length,
 * cut to `size`, or -1.
 */
static ssize_t read_link(int fd, char *text, size_t size)
{
    char name[32];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return readlink(name, text, size);
}

bool vw_fd_is_eventfd(int fd)
{
    static const char wanted[] = "anon_inode:[eventfd]";
    char text[sizeof(wanted)];

    return read_link(fd, text, sizeof(text)) == (ssize_t)strlen(wanted) &&
           memcmp(text, wanted, strlen(wanted)) == 0;
}

bool vw_fd_is_unix_socket(int fd, bool stream)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           (!stream || type == SOCK_STREAM);
}

/* The number of the mount that the file was opened through, or -1. */
static int mount_of(int fd)
{
    char line[128];
    int mount = -1;

    snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(line, "re");
    if (file == NULL)
        return -1;
    while (mount < 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "mnt_id:", 7) == 0)
            mount = atoi(line + 7);
    fclose(file);
    return mount;
}

/* Is this line of mountinfo about a file system on a disk? Its type comes after the only field that
 * is a single "-" (proc_pid_mountinfo(5)). */
static bool on_disk(const char *line)
{
    static const char *const types[] = {"ext2 ", "ext3 ", "ext4 ", "xfs ", "btrfs ", "f2fs "};
    const char *type = strstr(line, " - ");

    for (size_t i = 0; type != NULL && i < sizeof(types) / sizeof(types[0]); i++)
        if (strncmp(type + 3, types[i], strlen(types[i])) == 0)
            return true;
    return false;
}

static bool is_on_disk(int fd)
{
    int mount = mount_of(fd);
    char *line = NULL;
    size_t size = 0;
    bool found = false;

    FILE *file = mount >= 0 ? fopen("/proc/self/mountinfo", "re") : NULL;
    if (file == NULL)
        return false;
    while (!found && getline(&line, &size, file) > 0)
        found = atoi(line) == mount && on_disk(line);
    free(line);
    fclose(file);
    return found;
}

/* Only files in memory have seals to be asked for, and they all have. */
static bool is_in_memory(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

bool vw_fd_is_local_file(int fd)
{
    return is_in_memory(fd) || is_on_disk(fd);
}

static void *close_one(void *argument)
{
    close((int)(intptr_t)argument);
    return NULL;
}

/*
 * A file system may be asked, and waited for, when a file of it is closed; nothing ends that wait.
 * What is not certainly the kernel's own is closed by a thread that nobody waits for.
 */
void vw_fd_close(int fd)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char first = '/';

    if ((read_link(fd, &first, 1) == 1 && first != '/') || is_in_memory(fd)) {
        close(fd);
        return;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, close_one, (void *)(intptr_t)fd) != 0)
        close(fd);
    pthread_attr_destroy(&attributes);
}
