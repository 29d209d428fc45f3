/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/stream.h"

#include "base/bits.h"
#include "base/shared.h"
#include "net/wire.h"

#define ETHERTYPE_IPV4 0x0800
#define PROTOCOL_TCP 6
#define TIME_TO_LIVE 64
#define ADVERTISED_WINDOW 65535

enum offset {
    AT_ETHERTYPE = 12,
    AT_IP = 14,
    AT_FRAGMENT = AT_IP + 6,
    AT_PROTOCOL = AT_IP + 9,
    AT_SOURCE_IP = AT_IP + 12,
    AT_TCP = VW_STREAM_TRANSPORT,
    AT_SEQUENCE = AT_TCP + 4,
    AT_ACKNOWLEDGEMENT = AT_TCP + 8,
    AT_DATA_OFFSET = AT_TCP + 12,
    AT_FLAGS = AT_TCP + 13,
    AT_WINDOW = AT_TCP + 14,
    AT_CHECKSUM = AT_TCP + VW_STREAM_CHECKSUM,
    AT_PAYLOAD = VW_STREAM_HEADERS,
};

/* ---- contents -------------------------------------------------------------------------------- */

void vw_stream_pattern_init(struct vw_stream_pattern *pattern)
{
    uint32_t random = 1;

    for (unsigned i = 0; i < VW_STREAM_PATTERN; i++) {
        random = random * 1664525 + 1013904223;
        pattern->bytes[i] = (uint8_t)(random >> 24);
    }
}

/* Where in the pattern a byte is. */
static uint32_t place_of(unsigned stream, uint32_t sequence)
{
    return (uint32_t)((sequence + (uint64_t)stream * 257) % VW_STREAM_PATTERN);
}

/* How many bytes from this one on are next to each other in the pattern: up to its end, and to the
 * number after which sequence numbers begin again. */
static uint32_t run_of(uint32_t place, uint32_t sequence, uint32_t length)
{
    uint64_t run = vw_min64(length, VW_STREAM_PATTERN - place);

    return (uint32_t)vw_min64(run, (UINT64_C(1) << 32) - sequence);
}

void vw_stream_fill(const struct vw_stream_pattern *pattern, unsigned stream, uint32_t sequence,
                    uint8_t *to, uint32_t length)
{
    uint32_t run;

    for (; length > 0; to += run, sequence += run, length -= run) {
        uint32_t place = place_of(stream, sequence);

        run = run_of(place, sequence, length);
        memcpy(to, pattern->bytes + place, run);
    }
}

bool vw_stream_equal(const struct vw_stream_pattern *pattern, unsigned stream, uint32_t sequence,
                     const uint8_t *bytes, uint32_t length)
{
    uint32_t run;

    for (; length > 0; bytes += run, sequence += run, length -= run) {
        uint32_t place = place_of(stream, sequence);

        run = run_of(place, sequence, length);
        if (memcmp(bytes, pattern->bytes + place, run) != 0)
            return false;
    }
    return true;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Sum of the pseudo-header, in memory order, folded and not inverted (RFC 9293, 3.1). */
static uint16_t pseudo_sum(const uint8_t *frame, uint32_t tcp_length)
{
    uint8_t pseudo[12];

    memcpy(pseudo, frame + AT_SOURCE_IP, 8);
    pseudo[8] = 0;
    pseudo[9] = PROTOCOL_TCP;
    vw_put_be16(pseudo + 10, (uint16_t)tcp_length);
    return vw_net_sum(pseudo, sizeof(pseudo));
}

void vw_stream_write_headers(uint8_t *frame, const struct vw_probe_addresses *addresses,
                             unsigned stream, const struct vw_stream_segment *segment, bool partial)
{
    uint32_t tcp_length = VW_TCP_HEADER + segment->length;
    /* A copy: with UBSan, GCC warns of the second address where `addresses` would be NULL. */
    const struct vw_probe_addresses from_to = *addresses;
    uint8_t *ip = frame + AT_IP;

    memcpy(frame, from_to.destination, 6);
    memcpy(frame + 6, from_to.source, 6);
    vw_put_be16(frame + AT_ETHERTYPE, ETHERTYPE_IPV4);
    memset(ip, 0, VW_IPV4_HEADER + VW_TCP_HEADER);
    ip[0] = 0x45; /* version 4, five words */
    vw_put_be16(ip + 2, (uint16_t)(VW_IPV4_HEADER + tcp_length));
    ip[6] = 0x40; /* do not fragment */
    ip[8] = TIME_TO_LIVE;
    ip[9] = PROTOCOL_TCP;
    vw_put_be32(ip + 12, addresses->source_ip);
    vw_put_be32(ip + 16, addresses->destination_ip);
    vw_ipv4_set_checksum(ip);
    vw_put_be16(frame + AT_TCP, (uint16_t)(VW_STREAM_PORT + stream));
    vw_put_be16(frame + AT_TCP + 2, VW_PROBE_UDP_PORT); /* discard, for TCP, too */
    vw_put_be32(frame + AT_SEQUENCE, segment->sequence);
    vw_put_be32(frame + AT_ACKNOWLEDGEMENT, segment->acknowledgement);
    frame[AT_DATA_OFFSET] = VW_TCP_HEADER / 4 << 4;
    frame[AT_FLAGS] = segment->flags;
    vw_put_be16(frame + AT_WINDOW, ADVERTISED_WINDOW);
    uint16_t sum = pseudo_sum(frame, tcp_length);
    if (!partial)
        sum = (uint16_t)~vw_net_sum_add(sum, 12, vw_net_sum(frame + AT_TCP, tcp_length));
    memcpy(frame + AT_CHECKSUM, &sum, sizeof(sum));
}

/* Both sides of an acknowledgement are swapped: its destination port has the stream. */
static void write_acknowledgement(uint8_t *frame, const struct vw_stream_state *state,
                                  unsigned stream)
{
    struct vw_stream_segment segment = {.acknowledgement = state->next, .flags = VW_STREAM_ACK};
    uint16_t sum;

    memset(frame, 0, VW_PROBE_MIN_FRAME);
    vw_stream_write_headers(frame, &state->addresses, stream, &segment, true);
    vw_put_be16(frame + AT_TCP, VW_PROBE_UDP_PORT);
    vw_put_be16(frame + AT_TCP + 2, (uint16_t)(VW_STREAM_PORT + stream));
    sum = (uint16_t)~vw_net_sum(frame + AT_TCP, VW_TCP_HEADER); /* the pseudo-header is in it */
    memcpy(frame + AT_CHECKSUM, &sum, sizeof(sum));
}

/* Without options, and no fragment (more to come, or not the first). */
static bool is_plain_tcp(const uint8_t *frame, uint32_t length)
{
    return length >= VW_STREAM_HEADERS && vw_get_be16(frame + AT_ETHERTYPE) == ETHERTYPE_IPV4 &&
           frame[AT_IP] == 0x45 && frame[AT_PROTOCOL] == PROTOCOL_TCP &&
           (vw_get_be16(frame + AT_FRAGMENT) & 0x3fff) == 0;
}

static bool checksum_fits(const uint8_t *frame, uint32_t tcp_length, bool *partial)
{
    uint16_t field, sum = pseudo_sum(frame, tcp_length);

    memcpy(&field, frame + AT_CHECKSUM, sizeof(field));
    *partial = field == sum;
    return *partial || vw_net_sum_add(sum, 12, vw_net_sum(frame + AT_TCP, tcp_length)) == 0xffff;
}

/* Of plain TCP: do lengths and checksums fit? The length of the payload is told. */
static bool is_intact(const uint8_t *frame, uint32_t length, uint32_t *payload, bool *partial)
{
    uint32_t ip_length = vw_get_be16(frame + AT_IP + 2);

    if (ip_length < VW_IPV4_HEADER + VW_TCP_HEADER || ip_length > length - AT_IP)
        return false;
    *payload = ip_length - VW_IPV4_HEADER - VW_TCP_HEADER;
    return frame[AT_DATA_OFFSET] == VW_TCP_HEADER / 4 << 4 &&
           vw_net_sum(frame + AT_IP, VW_IPV4_HEADER) == 0xffff &&
           checksum_fits(frame, ip_length - VW_IPV4_HEADER, partial);
}

bool vw_stream_read_acknowledgement(const uint8_t *frame, uint32_t length, unsigned *stream,
                                    uint32_t *acknowledgement)
{
    uint32_t payload;
    bool partial;

    if (!is_plain_tcp(frame, length) || vw_get_be16(frame + AT_TCP) != VW_PROBE_UDP_PORT ||
        (frame[AT_FLAGS] & (VW_STREAM_SYN | VW_STREAM_RST | VW_STREAM_ACK)) != VW_STREAM_ACK ||
        !is_intact(frame, length, &payload, &partial))
        return false;
    *stream = (unsigned)vw_get_be16(frame + AT_TCP + 2) - VW_STREAM_PORT;
    *acknowledgement = vw_get_be32(frame + AT_ACKNOWLEDGEMENT);
    return *stream < VW_STREAM_MAX;
}

/* ---- sending --------------------------------------------------------------------------------- */

struct vw_stream_rules vw_stream_rules_for(uint32_t write, unsigned mtu, bool segmentation,
                                           bool acknowledged)
{
    uint32_t headers = VW_IPV4_HEADER + VW_TCP_HEADER;
    uint32_t mss = mtu > headers ? mtu - headers : 1;

    return (struct vw_stream_rules){
        .write = write,
        .mss = mss,
        .segment_max = segmentation ? VW_STREAM_PAYLOAD / mss * mss : mss,
        .in_flight_max = VW_STREAM_IN_FLIGHT_MAX,
        .window = acknowledged ? VW_STREAM_WINDOW : 0,
    };
}

void vw_stream_sender_init(struct vw_stream_sender *sender, uint32_t sequence)
{
    *sender = (struct vw_stream_sender){
        .sent = sequence,
        .acknowledged = sequence,
        .small_end = sequence,
    };
}

uint32_t vw_stream_write(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                         const struct vw_stream_pattern *pattern, unsigned stream, uint8_t *segment)
{
    if (sender->write_left == 0)
        sender->write_left = rules->write;
    uint32_t length = (uint32_t)vw_min64(sender->write_left, rules->segment_max - sender->length);
    vw_stream_fill(pattern, stream, sender->sent + sender->length, segment + sender->length,
                   length);
    sender->length += length;
    sender->write_left -= length;
    return length;
}

/* Is one of the segments that were less than an MSS not acknowledged? */
static bool small_in_flight(const struct vw_stream_sender *sender)
{
    return (int32_t)(sender->small_end - sender->acknowledged) > 0;
}

uint32_t vw_stream_due(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                       uint64_t in_flight)
{
    bool corked = in_flight > 0 && sender->length < rules->segment_max && !sender->news;
    uint32_t length = sender->length;

    sender->news = false;
    if (length == 0 || corked || in_flight > rules->in_flight_max)
        return 0;
    if (rules->window == 0)
        return length;
    if (sender->sent + length - sender->acknowledged > rules->window)
        return 0;
    return small_in_flight(sender) ? length - length % rules->mss : length;
}

void vw_stream_cut(struct vw_stream_sender *sender, const struct vw_stream_rules *rules,
                   uint32_t length, struct vw_stream_segment *segment)
{
    bool pushed = length == sender->length && sender->write_left == 0;

    *segment = (struct vw_stream_segment){
        .sequence = sender->sent,
        .length = length,
        .flags = VW_STREAM_ACK | (pushed ? VW_STREAM_PSH : 0),
    };
    sender->sent += length;
    sender->length -= length;
    if (length % rules->mss != 0)
        sender->small_end = sender->sent;
}

void vw_stream_acknowledge(struct vw_stream_sender *sender, uint32_t acknowledgement)
{
    /* What was never sent cannot be acknowledged, what was already is no news. */
    if ((int32_t)(acknowledgement - sender->acknowledged) <= 0 ||
        (int32_t)(sender->sent - acknowledgement) < 0)
        return;
    sender->acknowledged = acknowledgement;
    sender->news = true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void count(uint64_t *counter, uint64_t add)
{
    vw_shared_store(counter, vw_shared_load(counter) + add);
}

void vw_stream_reader_init(struct vw_stream_reader *reader, struct vw_stream_state *streams,
                           unsigned every)
{
    *reader = (struct vw_stream_reader){.streams = streams, .every = every, .mss = 1460};
    vw_stream_pattern_init(&reader->pattern);
}

/* The checksum is right, or it is left to the device and the field has what belongs there. */
static void begin(struct vw_stream_reader *reader, struct vw_stream_state *state,
                  const uint8_t *frame, uint32_t sequence)
{
    count(state->seen ? &reader->counters.restarts : &reader->counters.streams, 1);
    state->seen = true;
    state->next = sequence;
    state->unacknowledged = 0;
    memcpy(state->addresses.destination, frame + 6, 6);
    memcpy(state->addresses.source, frame, 6);
    state->addresses.destination_ip = vw_get_be32(frame + AT_SOURCE_IP);
    state->addresses.source_ip = vw_get_be32(frame + AT_SOURCE_IP + 4);
}

/* So much of a stream came: is it to be acknowledged? */
static void note_arrival(struct vw_stream_reader *reader, struct vw_stream_state *state,
                         unsigned stream, uint32_t payload)
{
    if (reader->every == 0)
        return;
    state->unacknowledged += (payload + reader->mss - 1) / reader->mss;
    if (state->unacknowledged < reader->every)
        return;
    state->unacknowledged = 0;
    if (state->due)
        return;
    state->due = true;
    reader->due[reader->due_added++ % VW_STREAM_MAX] = (uint16_t)stream;
}

static void take_segment(struct vw_stream_reader *reader, unsigned stream, const uint8_t *frame,
                         const struct vw_stream_segment *segment)
{
    struct vw_stream_state *state = &reader->streams[stream];
    bool syn = (segment->flags & VW_STREAM_SYN) != 0;

    if (syn || !state->seen)
        begin(reader, state, frame, segment->sequence + syn);
    if (syn)
        return;
    int32_t ahead = (int32_t)(segment->sequence - state->next);
    if (ahead < 0) {
        count(&reader->counters.late, 1);
        return;
    }
    if (ahead > 0)
        count(&reader->counters.lost, (uint32_t)ahead);
    state->next = segment->sequence + segment->length;
    note_arrival(reader, state, stream, segment->length);
}

bool vw_stream_read(struct vw_stream_reader *reader, const uint8_t *frame, uint32_t length)
{
    uint32_t acknowledgement;
    unsigned stream;

    if (vw_stream_read_acknowledgement(frame, length, &stream, &acknowledgement)) {
        count(&reader->counters.acknowledgements, 1);
        return true;
    }
    if (!is_plain_tcp(frame, length) || vw_get_be16(frame + AT_TCP + 2) != VW_PROBE_UDP_PORT)
        return false;
    stream = (unsigned)vw_get_be16(frame + AT_TCP) - VW_STREAM_PORT;
    if (stream >= VW_STREAM_MAX)
        return false;
    uint32_t payload;
    bool partial = false;

    if (!is_intact(frame, length, &payload, &partial)) {
        count(&reader->counters.corrupt, 1);
        return true;
    }
    struct vw_stream_segment segment = {
        .sequence = vw_get_be32(frame + AT_SEQUENCE),
        .length = payload,
        .flags = frame[AT_FLAGS],
    };
    if (!vw_stream_equal(&reader->pattern, stream, segment.sequence, frame + AT_PAYLOAD,
                         segment.length)) {
        count(&reader->counters.corrupt, 1);
        return true;
    }
    count(&reader->counters.segments, 1);
    count(&reader->counters.bytes, segment.length);
    count(&reader->counters.frame_bytes, length);
    count(&reader->counters.pushed, (segment.flags & VW_STREAM_PSH) != 0);
    count(&reader->counters.partial, partial);
    take_segment(reader, stream, frame, &segment);
    return true;
}

void vw_stream_make_acknowledgement(struct vw_stream_reader *reader, uint8_t *frame)
{
    unsigned stream = reader->due[reader->due_taken++ % VW_STREAM_MAX];
    struct vw_stream_state *state = &reader->streams[stream];

    state->due = false;
    write_acknowledgement(frame, state, stream);
    count(&reader->counters.acknowledged, 1);
}
