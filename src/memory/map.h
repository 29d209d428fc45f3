/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mapping of regions that a peer describes by a file descriptor, an offset and a size.
 *
 * A peer may lie about each of them. The file's real size is compared before anything is mapped,
 * and memory that the peer takes away afterwards (ftruncate) is caught by memory/guard.h.
 */
#ifndef VW_MEMORY_MAP_H
#define VW_MEMORY_MAP_H

#include <stdint.h>

#include "memory/memory.h"

/*
 * Maps `region->size` bytes at `offset` of the file `fd` shared and writable, and fills
 * region->local, mapping and mapping_size. The descriptor may be closed afterwards.
 *
 * Returns 0, or -EINVAL for a size or an offset that overflows, -EBADF for no descriptor, -ENOTSUP
 * if it is no file in memory or on a local disk, -ENXIO if the file is too short, or the error of
 * fstat or mmap.
 */
int vw_memory_map(struct vw_memory_region *region, int fd, uint64_t offset);

/* Unmaps one region, or all regions of a table and empties it. */
void vw_memory_unmap(struct vw_memory_region *region);
void vw_memory_unmap_all(struct vw_memory *memory);

#endif
