/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest memory that vanishes.
 *
 * Theory of operation
 * -------------------
 * A front-end shares its memory as a file, and may cut that file short while we have it mapped. The
 * next access then raises SIGBUS, which by default ends the process and with it every other guest.
 * The guard keeps a list of all shared mappings. Its SIGBUS handler puts private zero pages where
 * the memory was, marks the mapping as lost, and lets the access go on; the session looks at the
 * mark, and ends the connection of the guest whose memory it was, and of no other.
 *
 * A signal handler belongs to a whole process, so this list is the one piece of global state in
 * the project, and a library does not install handlers behind its user's back: a program calls
 * vw_guard_install once. Without it the list is kept, and nothing else changes.
 */
#ifndef VW_MEMORY_GUARD_H
#define VW_MEMORY_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Installs the SIGBUS handler. Faults outside guarded mappings get the default action. */
int vw_guard_install(void);

/* A descriptor that becomes readable each time memory was lost, for edge-triggered polling by any
 * number of sessions; -1 without vw_guard_install. */
int vw_guard_fd(void);

/* For memory/map.c: a mapping starts and ends. Any thread. -ENOSPC if the list is full. */
int vw_guard_add(void *mapping, size_t size);
void vw_guard_remove(void *mapping);

/* Was memory of this mapping taken away? Any thread. */
bool vw_guard_lost(const void *mapping);

#endif
