/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/iov.h"

/* A place in a list: the element, and the bytes of it that are behind. */
struct cursor {
    const struct iovec *iov;
    size_t count;
    size_t offset;
};

static struct cursor cursor_at(const struct iovec *iov, size_t count, size_t offset)
{
    while (count > 0 && offset >= iov->iov_len) {
        offset -= iov->iov_len;
        iov++;
        count--;
    }
    return (struct cursor){.iov = iov, .count = count, .offset = offset};
}

/* The bytes that lie together at the cursor; 0 only at the end of the list. */
static size_t cursor_room(const struct cursor *cursor)
{
    return cursor->count > 0 ? cursor->iov->iov_len - cursor->offset : 0;
}

static char *cursor_pointer(const struct cursor *cursor)
{
    return (char *)cursor->iov->iov_base + cursor->offset;
}

static void cursor_advance(struct cursor *cursor, size_t bytes)
{
    *cursor = cursor_at(cursor->iov, cursor->count, cursor->offset + bytes);
}

size_t vw_iov_length(const struct iovec *iov, size_t count)
{
    size_t length = 0;

    for (size_t i = 0; i < count; i++)
        length += iov[i].iov_len;
    return length;
}

size_t vw_iov_copy(const struct iovec *to, size_t to_count, size_t to_offset,
                   const struct iovec *from, size_t from_count, size_t from_offset, size_t length)
{
    struct cursor target = cursor_at(to, to_count, to_offset);
    struct cursor source = cursor_at(from, from_count, from_offset);
    size_t done = 0;

    while (done < length) {
        size_t step = length - done;

        if (step > cursor_room(&target))
            step = cursor_room(&target);
        if (step > cursor_room(&source))
            step = cursor_room(&source);
        if (step == 0)
            break;
        memcpy(cursor_pointer(&target), cursor_pointer(&source), step);
        cursor_advance(&target, step);
        cursor_advance(&source, step);
        done += step;
    }
    return done;
}

size_t vw_iov_drop(struct iovec *iov, size_t count, size_t bytes)
{
    struct cursor rest = cursor_at(iov, count, bytes);
    size_t skipped = count - rest.count;

    if (rest.count > 0 && rest.offset > 0) {
        iov[skipped].iov_base = cursor_pointer(&rest);
        iov[skipped].iov_len -= rest.offset;
    }
    return skipped;
}

size_t vw_iov_truncate(struct iovec *iov, size_t count, size_t bytes)
{
    size_t i = 0;

    while (i < count && bytes > 0) {
        if (iov[i].iov_len > bytes)
            iov[i].iov_len = bytes;
        bytes -= iov[i].iov_len;
        i++;
    }
    return i;
}

size_t vw_iov_slice(struct iovec *to, size_t room, const struct iovec *iov, size_t count,
                    size_t offset, size_t length)
{
    struct cursor from = cursor_at(iov, count, offset);
    size_t pieces = 0;

    while (length > 0 && cursor_room(&from) > 0) {
        size_t step = length < cursor_room(&from) ? length : cursor_room(&from);

        if (pieces == room)
            return pieces + 1;
        to[pieces++] = (struct iovec){.iov_base = cursor_pointer(&from), .iov_len = step};
        cursor_advance(&from, step);
        length -= step;
    }
    return pieces;
}
