/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/probe.h"

#include <endian.h>
#include <string.h>

#include "base/bits.h"
#include "base/shared.h"
#include "net/stream.h"

#define ETHERTYPE_IPV4 0x0800
#define PROTOCOL_UDP 17
#define TIME_TO_LIVE 64

enum offset {
    AT_ETHERTYPE = 12,
    AT_IP = 14,
    AT_IP_LENGTH = AT_IP + 2,
    AT_IP_PROTOCOL = AT_IP + 9,
    AT_IP_CHECKSUM = AT_IP + 10,
    AT_UDP = 34,
    AT_UDP_LENGTH = AT_UDP + 4,
    AT_MAGIC = VW_PROBE_HEADERS,
    AT_CHECKSUM = VW_PROBE_CONSTANT,
    AT_SUMMED = 48, /* from here on the checksum counts */
    AT_RUN = 48,
    AT_FLOW = 50,
    AT_SEQUENCE = 52,
    AT_FILLING = VW_PROBE_MIN_FRAME,
};

#define MAGIC 0x7756 /* "Vw" in memory */

/* Odd numbers without a pattern: 2^64 divided by the golden ratio, and the square root of 3. */
#define STEP_A UINT64_C(0x9e3779b97f4a7c15)
#define STEP_B UINT64_C(0xbb67ae8584caa73b)

/* Out of the way of what every frame does: inlined, it costs that its registers. */
#define COLD __attribute__((noinline))

/* ---- byte access ----------------------------------------------------------------------------- */

static void put_be16(uint8_t *at, uint32_t value)
{
    uint16_t wire = htobe16((uint16_t)value);

    memcpy(at, &wire, sizeof(wire));
}

static void put_be32(uint8_t *at, uint32_t value)
{
    uint32_t wire = htobe32(value);

    memcpy(at, &wire, sizeof(wire));
}

static uint16_t get_16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint32_t get_le32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static uint64_t get_le64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static void put_le32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static void put_le64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

/* ---- checksum -------------------------------------------------------------------------------- */

/*
 * Both halves of each word are added to numbers that depend on the place, and multiplied: words
 * that changed places are seen as well as words that changed. One multiplication for eight bytes,
 * and no step waits for the one before.
 */
static VW_ALWAYS_INLINE uint64_t sum_word(uint64_t word, uint64_t key)
{
    return (uint64_t)(uint32_t)(word + key) * (uint32_t)((word >> 32) + (key >> 32));
}

/* Fewer than eight bytes. */
static COLD uint64_t sum_rest(const uint8_t *at, uint32_t left, uint64_t key)
{
    uint64_t sum = 0;

    if (left >= 4) {
        sum += sum_word(get_le32(at), key);
        at += 4, left -= 4, key += STEP_A;
    }
    for (; left > 0; at++, left--, key += STEP_A)
        sum += sum_word(*at, key);
    return sum;
}

/* What a frame's length adds to its checksum, and how a sum becomes one. */
static VW_ALWAYS_INLINE uint64_t sum_length(uint32_t length)
{
    return length * STEP_A;
}

static VW_ALWAYS_INLINE uint32_t sum_end(uint64_t sum)
{
    return (uint32_t)(sum ^ sum >> 32);
}

/* `first`: the first word that the checksum covers, which was read already. */
static VW_ALWAYS_INLINE uint32_t checksum(const uint8_t *frame, uint32_t length, uint64_t first)
{
    uint64_t sum = sum_length(length) + sum_word(first, STEP_B), key = STEP_B + STEP_A;
    uint32_t at = AT_SUMMED + 8;

    for (; at + 8 <= length; at += 8, key += STEP_A)
        sum += sum_word(get_le64(frame + at), key);
    if (at + 4 == length)
        sum += sum_word(get_le32(frame + at), key);
    else if (at < length)
        sum += sum_rest(frame + at, length - at, key);
    return sum_end(sum);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Seven short, four middle and one long, mixed. */
static const struct vw_probe_sizes imix = {
    .lengths = {60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60},
    .count = 12,
};

/* Digits up to any other character, which *text then points to. 0: out of range, or none. */
static uint32_t parse_length(const char **text)
{
    uint32_t length = 0;

    for (; **text >= '0' && **text <= '9'; (*text)++) {
        length = length * 10 + (uint32_t)(**text - '0');
        if (length > VW_PROBE_MAX_FRAME)
            return 0;
    }
    return length >= VW_PROBE_MIN_FRAME ? length : 0;
}

bool vw_probe_sizes_parse(struct vw_probe_sizes *sizes, const char *text)
{
    if (strcmp(text, "imix") == 0) {
        *sizes = imix;
        return true;
    }
    *sizes = (struct vw_probe_sizes){0};
    for (;;) {
        uint32_t length = parse_length(&text);

        if (length == 0 || sizes->count == VW_PROBE_MAX_SIZES)
            return false;
        sizes->lengths[sizes->count++] = length;
        if (*text == '\0')
            break;
        if (*text == '-' && sizes->count == 1)
            sizes->range = true;
        else if ((*text != ':' && *text != ',') || sizes->range)
            return false;
        text++;
    }
    return !sizes->range || (sizes->count == 2 && sizes->lengths[0] <= sizes->lengths[1]);
}

uint32_t vw_probe_sizes_longest(const struct vw_probe_sizes *sizes)
{
    uint32_t longest = 0;

    for (unsigned i = 0; i < sizes->count; i++)
        if (sizes->lengths[i] > longest)
            longest = sizes->lengths[i];
    return longest;
}

/* ---- writing --------------------------------------------------------------------------------- */

void vw_probe_addresses_default(struct vw_probe_addresses *addresses)
{
    *addresses = (struct vw_probe_addresses){
        .destination = {0x02, 0x00, 0x00, 0x00, 0x00, 0x02},
        .source = {0x02, 0x00, 0x00, 0x00, 0x00, 0x01},
        .destination_ip = 0xc6120002, /* 198.18.0.2 */
        .source_ip = 0xc6120001,
    };
}

void vw_probe_writer_init(struct vw_probe_writer *writer,
                          const struct vw_probe_addresses *addresses, uint16_t run, unsigned first,
                          unsigned step, unsigned count, uint64_t *sequences)
{
    uint8_t *headers = writer->headers;

    *writer = (struct vw_probe_writer){
        .run = run,
        .first = first,
        .step = step,
        .count = count,
        .sequences = sequences,
    };
    memcpy(headers, addresses->destination, 6);
    memcpy(headers + 6, addresses->source, 6);
    put_be16(headers + AT_ETHERTYPE, ETHERTYPE_IPV4);
    headers[AT_IP] = 0x45;     /* version 4, five words */
    headers[AT_IP + 6] = 0x40; /* do not fragment */
    headers[AT_IP + 8] = TIME_TO_LIVE;
    headers[AT_IP_PROTOCOL] = PROTOCOL_UDP;
    put_be32(headers + AT_IP + 12, addresses->source_ip);
    put_be32(headers + AT_IP + 16, addresses->destination_ip);
    put_be16(headers + AT_UDP + 2, VW_PROBE_UDP_PORT);
    for (unsigned i = 0; i < 20; i += 2)
        writer->ip_sum += be16toh(get_16(headers + AT_IP + i));
}

/* A number in the network's order as the two bytes from `byte` on of a word that is stored
 * little-endian. */
static VW_ALWAYS_INLINE uint64_t be16_in_word(uint32_t value, unsigned byte)
{
    return (uint64_t)__builtin_bswap16((uint16_t)value) << 8 * byte;
}

/* The words of the headers that depend on the frame's length. */
static COLD void set_length(struct vw_probe_writer *writer, uint32_t length)
{
    const uint8_t *headers = writer->headers;
    uint32_t sum = writer->ip_sum + (length - AT_IP);

    sum = (sum & 0xffff) + (sum >> 16);
    sum += sum >> 16;
    writer->at_16 = get_le64(headers + 16) | be16_in_word(length - AT_IP, AT_IP_LENGTH - 16);
    writer->at_24 = get_le64(headers + 24) | be16_in_word(~sum, AT_IP_CHECKSUM - 24);
    writer->at_32 = get_le64(headers + 32) | be16_in_word(length - AT_UDP, AT_UDP_LENGTH - 32);
    writer->length = length;
}

/*
 * All that is in front of the checksum. In a buffer that is used again it is there already, as a
 * rule, and is not written then: whoever read the frame before keeps its copy of the cache line.
 */
static VW_ALWAYS_INLINE void write_headers(const struct vw_probe_writer *writer, uint8_t *frame,
                                           unsigned flow)
{
    uint64_t at_0 = get_le64(writer->headers), at_8 = get_le64(writer->headers + 8);
    uint64_t at_32 = writer->at_32 | be16_in_word(VW_PROBE_SOURCE_PORT + flow, AT_UDP - 32);
    uint32_t at_40 = MAGIC << 16; /* behind the UDP checksum, 0 */

    if (vw_likely(((get_le64(frame) ^ at_0) | (get_le64(frame + 8) ^ at_8) |
                   (get_le64(frame + 16) ^ writer->at_16) | (get_le64(frame + 24) ^ writer->at_24) |
                   (get_le64(frame + 32) ^ at_32) | (get_le32(frame + 40) ^ at_40)) == 0))
        return;
    put_le64(frame, at_0);
    put_le64(frame + 8, at_8);
    put_le64(frame + 16, writer->at_16);
    put_le64(frame + 24, writer->at_24);
    put_le64(frame + 32, at_32);
    put_le32(frame + 40, at_40);
}

/* The last bytes, fewer than eight; returns their part of the checksum. */
static COLD uint64_t fill_rest(uint8_t *at, uint32_t left, uint64_t word, uint64_t key)
{
    for (uint32_t i = 0; i < left; i++, word >>= 8)
        at[i] = (uint8_t)word;
    return sum_rest(at, left, key);
}

/*
 * Each word of the payload is added to the checksum on its way to the frame and not read again: as
 * a rule the line is still with the core that read the frame before, and a load of what was just
 * stored in parts would wait until it has come.
 */
static VW_ALWAYS_INLINE uint32_t write_payload(uint8_t *frame, uint32_t length, uint64_t identity,
                                               uint64_t sequence, uint64_t seed)
{
    uint64_t sum = sum_length(length) + sum_word(identity, STEP_B), key = STEP_B + STEP_A;
    uint64_t filling = seed * STEP_B;
    /* the upper half of the sequence number, and where the filling begins */
    uint64_t word = sequence >> 32 | filling << 32;
    uint32_t at = AT_SUMMED + 8;

    put_le64(frame + AT_RUN, identity);
    for (; at + 8 <= length; at += 8, key += STEP_A, word = filling += STEP_A) {
        put_le64(frame + at, word);
        sum += sum_word(word, key);
    }
    if (at + 4 == length) {
        put_le32(frame + at, (uint32_t)word);
        sum += sum_word((uint32_t)word, key);
    } else if (at < length) {
        sum += fill_rest(frame + at, length - at, word, key);
    }
    return sum_end(sum);
}

void vw_probe_write(struct vw_probe_writer *writer, void *memory, uint32_t length)
{
    uint8_t *frame = memory;
    unsigned flow = writer->first + writer->next * writer->step;
    uint64_t sequence = writer->sequences[writer->next]++;

    if (++writer->next == writer->count)
        writer->next = 0;
    if (vw_unlikely(length != writer->length))
        set_length(writer, length);
    uint64_t identity = writer->run | (uint64_t)flow << 16 | sequence << 32;
    uint32_t sum =
        write_payload(frame, length, identity, sequence, sequence + ((uint64_t)flow << 40));
    write_headers(writer, frame, flow);
    put_le32(frame + AT_CHECKSUM, sum);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void count(uint64_t *counter, uint64_t add)
{
    vw_shared_store(counter, vw_shared_load(counter) + add);
}

/* `at_40`: the word there, with magic number and checksum. */
static VW_ALWAYS_INLINE bool is_probe(const uint8_t *frame, uint64_t at_40)
{
    uint32_t kind = __builtin_bswap16(ETHERTYPE_IPV4) | 0x45 << 16;

    /* all conditions at once: one branch */
    return (((get_le32(frame + AT_ETHERTYPE) ^ kind) & 0xffffff) |
            (frame[AT_IP_PROTOCOL] ^ PROTOCOL_UDP) | ((at_40 >> 16 ^ MAGIC) & 0xffff)) == 0;
}

/* Was number `sequence` of the last VW_PROBE_WINDOW seen? Notes that it was. */
static bool test_and_set(struct vw_probe_flow *flow, uint64_t sequence)
{
    uint64_t *word = &flow->window[sequence % VW_PROBE_WINDOW / 64];
    uint64_t bit = UINT64_C(1) << sequence % 64;
    bool was_set = (*word & bit) != 0;

    *word |= bit;
    return was_set;
}

/* Moves the window over `skipped` numbers that did not come, from the expected one on. */
static COLD void skip(struct vw_probe_flow *flow, uint64_t skipped)
{
    if (skipped >= VW_PROBE_WINDOW) {
        memset(flow->window, 0, sizeof(flow->window));
        return;
    }
    for (uint64_t i = 0; i < skipped; i++)
        flow->window[(flow->next + i) % VW_PROBE_WINDOW / 64] &=
            ~(UINT64_C(1) << (flow->next + i) % 64);
}

static COLD void begin(struct vw_probe_reader *reader, struct vw_probe_flow *flow, uint16_t run,
                       uint64_t sequence)
{
    count(flow->seen ? &reader->counters.restarts : &reader->counters.flows, 1);
    count(&reader->counters.before, sequence);
    *flow = (struct vw_probe_flow){.next = sequence, .base = sequence, .run = run, .seen = true};
}

/* A number before the expected one. */
static COLD void late(struct vw_probe_reader *reader, struct vw_probe_flow *flow, uint64_t sequence)
{
    struct vw_probe_counters *counters = &reader->counters;

    if (flow->next - sequence > VW_PROBE_WINDOW) {
        count(&counters->stale, 1);
    } else if (test_and_set(flow, sequence)) {
        count(&counters->duplicate, 1);
    } else {
        count(&counters->reordered, 1);
        if ((int64_t)(sequence - flow->base) < 0) {
            /* Before the first that came: what lies between was not counted as lost so far. */
            count(&counters->lost, flow->base - sequence - 1);
            count(&counters->before, -(flow->base - sequence));
            flow->base = sequence;
        } else {
            count(&counters->lost, -UINT64_C(1));
        }
    }
}

/* No probe: perhaps a segment of a TCP stream. */
static COLD void read_other(struct vw_probe_reader *reader, const uint8_t *frame, uint32_t length)
{
    if (reader->streams == NULL || !vw_stream_read(reader->streams, frame, length))
        count(&reader->counters.foreign, 1);
}

/* What a burst adds to the counters that every good frame changes. */
struct tally {
    uint64_t frames, bytes;
};

static VW_ALWAYS_INLINE void read_frame(struct vw_probe_reader *reader, const uint8_t *frame,
                                        uint32_t length, struct tally *tally)
{
    struct vw_probe_counters *counters = &reader->counters;
    uint64_t at_40;

    if (vw_unlikely(length < VW_PROBE_MIN_FRAME ||
                    !is_probe(frame, at_40 = get_le64(frame + AT_MAGIC - 2)))) {
        read_other(reader, frame, length);
        return;
    }
    uint64_t identity = get_le64(frame + AT_RUN);
    uint64_t sequence = get_le64(frame + AT_SEQUENCE);
    if (vw_unlikely(checksum(frame, length, identity) != (uint32_t)(at_40 >> 32))) {
        count(&counters->corrupt, 1);
        return;
    }
    tally->frames++;
    tally->bytes += length;
    struct vw_probe_flow *flow = &reader->flows[(uint16_t)(identity >> 16)];
    if (vw_unlikely(!flow->seen || flow->run != (uint16_t)identity))
        begin(reader, flow, (uint16_t)identity, sequence);

    int64_t ahead = (int64_t)(sequence - flow->next);
    if (vw_unlikely(ahead < 0)) {
        late(reader, flow, sequence);
        return;
    }
    if (vw_unlikely(ahead > 0)) {
        count(&counters->lost, (uint64_t)ahead);
        skip(flow, (uint64_t)ahead);
    }
    flow->next = sequence + 1;
    flow->window[sequence % VW_PROBE_WINDOW / 64] |= UINT64_C(1) << sequence % 64;
}

void vw_probe_read_burst(struct vw_probe_reader *reader, const struct iovec *frames,
                         unsigned frame_count)
{
    struct tally tally = {0};

    for (unsigned i = 0; i < frame_count; i++)
        read_frame(reader, frames[i].iov_base, (uint32_t)frames[i].iov_len, &tally);
    count(&reader->counters.frames, tally.frames);
    count(&reader->counters.bytes, tally.bytes);
}
