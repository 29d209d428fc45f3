/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/overflow.h"
#include "memory/guard.h"

/* Does the file behind `fd` have bytes up to `end`? Its block size is the mapping's page size. */
static int check_file(int fd, uint64_t end, uint64_t *page)
{
    struct stat status;

    /* First of all: whoever else stands behind the file could let us wait, here and at each page.
     */
    if (!vw_fd_is_local_file(fd))
        return fcntl(fd, F_GETFD) < 0 ? -errno : -ENOTSUP;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size < 0 || (uint64_t)status.st_size < end)
        return -ENXIO;
    /* hugetlbfs reports its huge page here and maps only whole ones. */
    *page = status.st_blksize > 0 ? (uint64_t)status.st_blksize : 4096;
    return 0;
}

int vw_memory_map(struct vw_memory_region *region, int fd, uint64_t offset)
{
    uint64_t end, length, page = 0;
    void *mapping;

    if (region->size == 0 || !vw_add_u64(offset, region->size, &end) || end > INT64_MAX)
        return -EINVAL;
    int error = check_file(fd, end, &page);
    if (error < 0)
        return error;
    /*
     * From the file's start: an offset need not be aligned to a huge page, the file's start is.
     * Rounding the end up to a page of the file is what munmap of a huge page needs; it cannot
     * overflow, since end fits 63 bits and the page is a block size.
     */
    if (!vw_is_power_of_two(page) || !vw_add_u64(end, page - 1, &length))
        return -EINVAL;
    length &= ~(page - 1);
    mapping = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapping == MAP_FAILED)
        return -errno;
    /* A core dump of the device is no place for a guest's memory, nor is a child process. */
    madvise(mapping, length, MADV_DONTDUMP);
    madvise(mapping, length, MADV_DONTFORK);
    error = vw_guard_add(mapping, length);
    if (error < 0) {
        munmap(mapping, length);
        return error;
    }
    region->mapping = mapping;
    region->mapping_size = length;
    region->local = (char *)mapping + offset;
    return 0;
}

void vw_memory_unmap(struct vw_memory_region *region)
{
    if (region->mapping == NULL)
        return;
    vw_guard_remove(region->mapping);
    munmap(region->mapping, region->mapping_size);
    region->mapping = NULL;
}

void vw_memory_unmap_all(struct vw_memory *memory)
{
    for (unsigned i = 0; i < memory->count; i++)
        vw_memory_unmap(&memory->regions[i]);
    memory->count = 0;
}
