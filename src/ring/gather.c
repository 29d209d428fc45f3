/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/gather.h"

/*
 * An indirect table in guest memory. As a rule it lies in one piece of local memory; if not, each
 * entry is collected from the pieces that it lies in.
 */
struct table {
    uint64_t guest;
    uint32_t entries;
    const char *local; /* NULL: not in one piece */
};

static int open_table(struct table *table, const struct vw_gather *gather, uint64_t address,
                      uint32_t length, uint32_t ring_size)
{
    unsigned hint = gather->hint;
    struct iovec piece;

    if (length == 0 || length % VW_DESCRIPTOR_SIZE != 0 || length / VW_DESCRIPTOR_SIZE > ring_size)
        return VW_RING_BAD_INDIRECT;
    table->guest = address;
    table->entries = length / VW_DESCRIPTOR_SIZE;
    table->local = NULL;
    int pieces = vw_memory_translate(gather->memory, address, length, &piece, 1, &hint);
    if (pieces == 1)
        table->local = piece.iov_base;
    else if (pieces != -ENOBUFS)
        return VW_RING_BAD_ADDRESS;
    return 0;
}

/* Reads 16 bytes that are not aligned, or not in one piece. */
static int collect_entry(struct vw_descriptor *entry, const struct vw_gather *gather,
                         uint64_t address, bool packed)
{
    struct iovec pieces[VW_DESCRIPTOR_SIZE];
    unsigned hint = gather->hint;
    union {
        char bytes[VW_DESCRIPTOR_SIZE];
        uint64_t words[2];
    } copy;
    size_t done = 0;

    int count = vw_memory_translate(gather->memory, address, VW_DESCRIPTOR_SIZE, pieces,
                                    VW_ARRAY_SIZE(pieces), &hint);
    if (count < 0)
        return VW_RING_BAD_ADDRESS;
    for (int i = 0; i < count; i++) {
        memcpy(copy.bytes + done, pieces[i].iov_base, pieces[i].iov_len);
        done += pieces[i].iov_len;
    }
    /* The compiler must keep this copy, not read the guest's memory a second time. */
    __asm__ __volatile__("" : "+m"(copy));
    *entry = vw_descriptor_decode(le64toh(copy.words[0]), le64toh(copy.words[1]), packed);
    return 0;
}

static VW_ALWAYS_INLINE int read_entry(struct vw_descriptor *entry, const struct table *table,
                                       const struct vw_gather *gather, uint32_t index, bool packed)
{
    uint64_t offset = (uint64_t)index * VW_DESCRIPTOR_SIZE;

    if (vw_likely(table->local && ((uintptr_t)table->local & 7) == 0)) {
        *entry = vw_descriptor_copy(table->local + offset, packed);
        return 0;
    }
    return collect_entry(entry, gather, table->guest + offset, packed);
}

/*
 * Split: entries are chained by `next`, from entry 0. Packed: entries follow one another, and only
 * WRITE means anything in their flags. No nesting in either (2.7.5.3.1, 2.8.7.1).
 */
static VW_ALWAYS_INLINE int gather_table(struct vw_gather *gather, uint64_t address,
                                         uint32_t length, uint32_t ring_size, bool packed)
{
    struct vw_descriptor entry;
    struct table table;
    uint32_t index = 0;

    int result = open_table(&table, gather, address, length, ring_size);
    if (result != 0)
        return result;
    for (uint32_t count = 1;; count++) {
        result = read_entry(&entry, &table, gather, index, packed);
        if (result != 0)
            return result;
        if (vw_unlikely(entry.flags & VRING_DESC_F_INDIRECT))
            return VW_RING_NESTED_INDIRECT;
        result = vw_gather_add(gather, entry.address, entry.length,
                               (entry.flags & VRING_DESC_F_WRITE) != 0);
        if (result != 0)
            return result;
        if (packed ? count == table.entries : !(entry.flags & VRING_DESC_F_NEXT))
            return 0;
        if (vw_unlikely(count == table.entries))
            return VW_RING_LOOP;
        index = packed ? index + 1 : entry.other;
        if (vw_unlikely(index >= table.entries))
            return VW_RING_BAD_INDIRECT;
    }
}

int vw_gather_split_table(struct vw_gather *gather, uint64_t address, uint32_t length,
                          uint32_t ring_size)
{
    return gather_table(gather, address, length, ring_size, false);
}

int vw_gather_packed_table(struct vw_gather *gather, uint64_t address, uint32_t length,
                           uint32_t ring_size)
{
    return gather_table(gather, address, length, ring_size, true);
}
