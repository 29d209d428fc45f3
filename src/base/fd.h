/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kind of thing a descriptor is that a peer handed over.
 *
 * A descriptor can lead to a file system that is the peer's own program (FUSE), or to a server that
 * is away (NFS, 9p). There even fstat, poll or a page fault waits for as long as that one likes,
 * and O_NONBLOCK changes nothing. So none of that is done before it is known that the kernel itself
 * stands behind the descriptor, and it is found out by asking the kernel alone.
 */
#ifndef VW_BASE_FD_H
#define VW_BASE_FD_H

#include <stdbool.h>

/* An eventfd. Needs /proc; without it the answer is no. */
bool vw_fd_is_eventfd(int fd);

/* A UNIX socket; `stream`: only one of that type. */
bool vw_fd_is_unix_socket(int fd, bool stream);

#endif
