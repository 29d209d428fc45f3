/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kind of thing a descriptor is that a peer handed over.
 *
 * A descriptor can lead to a file system that is the peer's own program (FUSE), or to a server that
 * is away (NFS, 9p). There even fstat, poll, close or a page fault waits for as long as that one
 * likes, and O_NONBLOCK changes nothing. So none of that is done before it is known that the kernel
 * itself stands behind the descriptor, and it is found out by asking the kernel alone: by /proc,
 * without which the answer is no.
 */
#ifndef VW_BASE_FD_H
#define VW_BASE_FD_H

#include <stdbool.h>

bool vw_fd_is_eventfd(int fd);

/* A UNIX socket; `stream`: only one of that type. */
bool vw_fd_is_unix_socket(int fd, bool stream);

/* A file in memory (memfd, tmpfs, hugetlbfs), or on a disk's file system that this process sees:
 * its pages come within a bounded time. */
bool vw_fd_is_local_file(int fd);

/* Closes a descriptor of any kind, without waiting for whatever stands behind it. */
void vw_fd_close(int fd);

#endif
