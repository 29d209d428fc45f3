/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segmentation and merging of whatever a guest sends.
 *
 * Input: a byte that chooses, then either any header and frame in any pieces, or the fields of
 * frames that make sense (tests/offload_frames.h), with a few bytes changed.
 *
 * Invariants. What is cut has as many bytes of payload as before, in the same order, and each
 * segment's checksums are right. What is merged, too: cut again, it yields the frames that were
 * merged, byte for byte, but for identifications that nobody looks at.
 */
#include "input.h"

#include "../offload_frames.h"
#include "base/bits.h"
#include "base/iov.h"
#include "net/coalesce.h"
#include "net/features.h"
#include "net/segment.h"

#define MOST_PIECES 64
#define MOST_FRAMES 8

static struct recipe_frame frames[MOST_FRAMES], whole;
static uint8_t joined[RECIPE_MAX];

/* Cuts the bytes into pieces of lengths from the input. */
static size_t take_pieces(struct input *input, uint8_t *bytes, size_t length, struct iovec *iov)
{
    size_t count = 0, at = 0;

    while (at < length && count + 1 < MOST_PIECES) {
        size_t piece = vw_min64(input_byte(input), length - at);

        if (input->left == 0)
            piece = length - at;
        iov[count++] = (struct iovec){bytes + at, piece};
        at += piece;
    }
    if (at < length)
        iov[count++] = (struct iovec){bytes + at, length - at};
    return count;
}

static uint16_t field(const uint8_t *bytes, size_t at)
{
    return (uint16_t)(bytes[at] << 8 | bytes[at + 1]);
}

/* The checksums of a segment in one piece, whose headers are where the segmenter says. */
static void check_checksums(const struct vw_net_segmenter *segmenter, const uint8_t *bytes,
                            size_t length)
{
    const uint8_t *ip = bytes + segmenter->ip_offset;
    const uint8_t *transport = bytes + segmenter->transport_offset;
    size_t rest = length - segmenter->transport_offset;
    bool usual = segmenter->ipv6 ? segmenter->transport_offset == segmenter->ip_offset + 40 : true;
    uint32_t sum;

    if (!segmenter->ipv6) {
        INVARIANT(recipe_sum(0, ip, (ip[0] & 0xfu) * 4) == 0xffff);
        INVARIANT(field(ip, 2) == (uint16_t)(length - segmenter->ip_offset));
    } else {
        INVARIANT(field(ip, 4) == (uint16_t)(length - segmenter->ip_offset - 40));
    }
    if (!usual) /* the addresses may lie in an extension header */
        return;
    sum = segmenter->ipv6 ? recipe_sum(0, ip + 8, 32) : recipe_sum(0, ip + 12, 8);
    sum += (segmenter->tcp ? 6 : 17) + (uint32_t)(rest & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    INVARIANT(recipe_sum(sum, transport, rest) == 0xffff);
}

/* Cuts what may be cut, and checks the segments. */
static void cut(const struct vw_net_header *header, const struct iovec *iov, size_t count,
                const uint8_t *bytes, size_t length)
{
    struct vw_net_segmenter segmenter;
    uint8_t headers[VW_NET_SEGMENT_HEADERS];
    struct iovec pieces[MOST_PIECES];
    size_t done, used = 0;

    if (vw_net_segment_begin(&segmenter, header, iov, count, (uint32_t)length) < 0)
        return;
    for (done = segmenter.header_length; vw_net_segment_left(&segmenter);
         vw_net_segment_next(&segmenter)) {
        uint32_t made = vw_net_segment_make(&segmenter, headers, pieces, MOST_PIECES, &used);
        uint32_t data = made - segmenter.header_length;

        INVARIANT(made >= segmenter.header_length && data <= header->gso_size);
        memcpy(joined, headers, segmenter.header_length);
        INVARIANT(vw_iov_read(pieces, used, 0, joined + segmenter.header_length, RECIPE_MAX) ==
                  data);
        INVARIANT(memcmp(joined + segmenter.header_length, bytes + done, data) == 0);
        check_checksums(&segmenter, joined, made);
        done += data;
    }
    INVARIANT(done == length);
}

static void any_frame(struct input *input)
{
    struct vw_net_header header;
    struct iovec iov[MOST_PIECES];
    uint8_t wire[12] = {0};

    input_copy(input, wire, sizeof(wire));
    vw_net_header_decode(&header, wire, sizeof(wire));
    whole.length = input_copy(input, whole.bytes, 2000);
    if (vw_net_header_check(&header, (uint32_t)whole.length, VW_NET_HOST_OFFLOADS) !=
        VW_NET_HEADER_OK)
        return;
    size_t count = take_pieces(input, whole.bytes, whole.length, iov);
    struct vw_net_mergeable mergeable;
    if (vw_net_mergeable_look(&mergeable, &header, VW_NET_HOST_OFFLOADS, iov, count,
                              (uint32_t)whole.length)) {
        INVARIANT(mergeable.header_length + mergeable.payload == whole.length);
        vw_net_mergeable_verify(&mergeable, iov, count);
    }
    if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE)
        cut(&header, iov, count, whole.bytes, whole.length);
}

static struct recipe take_recipe(struct input *input)
{
    static uint8_t payload[4096];
    uint8_t kind = input_byte(input);

    return (struct recipe){
        .ipv6 = kind & 1,
        .udp = kind & 2,
        .fragmentable = kind & 4,
        .partial = kind & 8,
        .tags = kind >> 4 & 1,
        .ip_option_words = kind >> 5 & 1,
        .tcp_option_words = kind >> 6,
        .ttl = 64,
        .flags = input_byte(input) & 3 ? RECIPE_ACK : input_byte(input),
        .id = (uint16_t)input_take(input, 2),
        .sequence = (uint32_t)input_take(input, 4),
        .source_port = 1,
        .destination_port = 2,
        .payload = payload,
        .payload_length = input_take(input, 2) % sizeof(payload),
    };
}

/* A large frame, whole or with some bytes changed. */
static void large_frame(struct input *input)
{
    struct recipe recipe = take_recipe(input);
    struct iovec iov[MOST_PIECES];
    struct vw_net_header header;

    recipe_make(&whole, &recipe);
    struct virtio_net_hdr_v1 wire = recipe_header(&recipe, &whole, (unsigned)input_take(input, 2));
    for (unsigned changes = input_byte(input) % 4; changes > 0; changes--)
        whole.bytes[input_byte(input) % whole.length] ^= input_byte(input);
    vw_net_header_decode(&header, &wire, sizeof(wire));
    size_t count = take_pieces(input, whole.bytes, whole.length, iov);
    cut(&header, iov, count, whole.bytes, whole.length);
}

/* The frame that frames[first .. first + count) were merged to, cut again, yields them. */
static void check_merge(struct vw_net_merge *merge, unsigned first)
{
    struct vw_net_segmenter segmenter;
    struct vw_net_header header;
    uint8_t headers[VW_NET_SEGMENT_HEADERS];
    struct iovec iov, pieces[2];
    size_t used = 0;

    vw_net_merge_finish(merge, &header);
    whole.length = merge->first.header_length;
    memcpy(whole.bytes, merge->first.headers, whole.length);
    for (unsigned i = 0; i < merge->count; i++) {
        size_t data = frames[first + i].length - merge->first.header_length;

        memcpy(whole.bytes + whole.length, frames[first + i].bytes + merge->first.header_length,
               data);
        whole.length += data;
    }
    INVARIANT(whole.length == merge->first.header_length + merge->payload);
    iov = (struct iovec){whole.bytes, whole.length};
    INVARIANT(vw_net_segment_begin(&segmenter, &header, &iov, 1, (uint32_t)whole.length) == 0);
    INVARIANT(segmenter.count == merge->count);
    for (unsigned i = 0; vw_net_segment_left(&segmenter); vw_net_segment_next(&segmenter), i++) {
        const struct recipe_frame *was = &frames[first + i];
        uint32_t made = vw_net_segment_make(&segmenter, headers, pieces, 2, &used);
        size_t skip = merge->fixed_id ? was->ip + 20 : 0;

        INVARIANT(made == was->length);
        INVARIANT(memcmp(headers + skip, was->bytes + skip, was->payload - skip) == 0);
    }
}

/* Frames of a flow that go on from one to the next, most of the time. */
static void flow(struct input *input)
{
    struct vw_net_merge merge = {.closed = true};
    struct recipe recipe = take_recipe(input);
    unsigned first = 0;

    recipe.partial = false;
    for (unsigned i = 0; i <= MOST_FRAMES; i++) {
        struct vw_net_mergeable next;
        const struct vw_net_header header = {0};
        bool may = false;

        if (i < MOST_FRAMES) {
            recipe_make(&frames[i], &recipe);
            recipe.sequence += (uint32_t)recipe.payload_length;
            recipe.id = (uint16_t)(recipe.id + (input_byte(input) & 7 ? 1 : 0));
            for (unsigned changes = input_byte(input) & 7 ? 0 : 1; changes > 0; changes--)
                frames[i].bytes[input_byte(input) % frames[i].length] ^= input_byte(input);
            struct iovec iov = {frames[i].bytes, frames[i].length};
            may = vw_net_mergeable_look(&next, &header, VW_NET_HOST_OFFLOADS, &iov, 1,
                                        (uint32_t)frames[i].length) &&
                  vw_net_mergeable_verify(&next, &iov, 1);
            if (may && vw_net_merge_fits(&merge, &next)) {
                vw_net_merge_add(&merge, &next);
                continue;
            }
        }
        if (merge.count > 1)
            check_merge(&merge, first);
        merge = (struct vw_net_merge){.closed = true};
        first = i;
        if (may)
            vw_net_merge_begin(&merge, &next);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};

    switch (input_byte(&input) % 3) {
    case 0:
        any_frame(&input);
        break;
    case 1:
        large_frame(&input);
        break;
    default:
        flow(&input);
    }
    return 0;
}
