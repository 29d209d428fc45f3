/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fd.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The link's text is made by the kernel: no path begins like this one. */
bool vw_fd_is_eventfd(int fd)
{
    static const char wanted[] = "anon_inode:[eventfd]";
    char name[32], text[sizeof(wanted)];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, text, sizeof(text));
    return length == (ssize_t)strlen(wanted) && memcmp(text, wanted, (size_t)length) == 0;
}

bool vw_fd_is_unix_socket(int fd, bool stream)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           (!stream || type == SOCK_STREAM);
}
