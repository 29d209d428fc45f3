/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each message has to look like, and how it is answered, written down a second time and
 * independently of the table in src/vhost/table.c; and what each payload may hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "vhost/message.h"

#define ALL UINT64_MAX
#define F_MTU 3
#define F_ACCESS_PLATFORM 33
#define F_PACKED 34
#define NONE (-1)

enum golden_reply {
    ACK, /* only with REPLY_ACK acknowledged and NEED_REPLY set */
    OWN, /* always */
};

struct golden {
    uint32_t number;
    const char *name;
    uint32_t size_min, size_max;
    unsigned fds_min, fds_max;
    enum golden_reply reply;
    bool essential;
    int protocol, offered, acknowledged; /* gates, by bit number */
    bool never;
    uint32_t size; /* of the well-formed message that fill makes, with `fds` descriptors */
    unsigned fds;
};

static const struct golden front_end[] = {
    {1, "GET_FEATURES", 0, 0, 0, 0, OWN, false, NONE, NONE, NONE, false, 0, 0},
    {2, "SET_FEATURES", 8, 8, 0, 0, ACK, true, NONE, NONE, NONE, false, 8, 0},
    {3, "SET_OWNER", 0, 0, 0, 0, ACK, false, NONE, NONE, NONE, false, 0, 0},
    {4, "RESET_OWNER", 0, 0, 0, 0, ACK, false, NONE, NONE, NONE, false, 0, 0},
    {5, "SET_MEM_TABLE", 8, 264, 0, 8, ACK, true, NONE, NONE, NONE, false, 40, 1},
    {6, "SET_LOG_BASE", 8, 16, 0, 1, OWN, false, 1, NONE, NONE, false, 16, 1},
    {7, "SET_LOG_FD", 0, 0, 1, 1, ACK, false, NONE, 26, NONE, false, 0, 1},
    {8, "SET_VRING_NUM", 8, 8, 0, 0, ACK, true, NONE, NONE, NONE, false, 8, 0},
    {9, "SET_VRING_ADDR", 40, 40, 0, 0, ACK, true, NONE, NONE, NONE, false, 40, 0},
    {10, "SET_VRING_BASE", 8, 8, 0, 0, ACK, true, NONE, NONE, NONE, false, 8, 0},
    {11, "GET_VRING_BASE", 8, 8, 0, 0, OWN, false, NONE, NONE, NONE, false, 8, 0},
    {12, "SET_VRING_KICK", 8, 8, 1, 1, ACK, true, NONE, NONE, NONE, false, 8, 1},
    {13, "SET_VRING_CALL", 8, 8, 1, 1, ACK, true, NONE, NONE, NONE, false, 8, 1},
    {14, "SET_VRING_ERR", 8, 8, 1, 1, ACK, false, NONE, NONE, NONE, false, 8, 1},
    {15, "GET_PROTOCOL_FEATURES", 0, 0, 0, 0, OWN, false, NONE, 30, NONE, false, 0, 0},
    {16, "SET_PROTOCOL_FEATURES", 8, 8, 0, 0, ACK, true, NONE, 30, NONE, false, 8, 0},
    {17, "GET_QUEUE_NUM", 0, 0, 0, 0, OWN, false, 0, NONE, NONE, false, 0, 0},
    {18, "SET_VRING_ENABLE", 8, 8, 0, 0, ACK, true, NONE, 30, NONE, false, 8, 0},
    {19, "SEND_RARP", 8, 8, 0, 0, ACK, false, 2, NONE, NONE, false, 8, 0},
    {20, "NET_SET_MTU", 8, 8, 0, 0, ACK, false, 4, F_MTU, NONE, false, 8, 0},
    {21, "SET_BACKEND_REQ_FD", 0, 0, 1, 1, ACK, false, 5, NONE, NONE, false, 0, 1},
    {22, "IOTLB_MSG", 26, 32, 0, 0, OWN, false, NONE, NONE, F_ACCESS_PLATFORM, false, 32, 0},
    {23, "SET_VRING_ENDIAN", 8, 8, 0, 0, ACK, true, 6, NONE, NONE, false, 8, 0},
    {24, "GET_CONFIG", 12, 268, 0, 0, OWN, false, 9, NONE, NONE, false, 18, 0},
    {25, "SET_CONFIG", 12, 268, 0, 0, ACK, false, 9, NONE, NONE, false, 18, 0},
    {26, "CREATE_CRYPTO_SESSION", 0, 1024, 0, 0, OWN, false, 7, NONE, NONE, false, 0, 0},
    {27, "CLOSE_CRYPTO_SESSION", 0, 8, 0, 0, ACK, false, 7, NONE, NONE, false, 8, 0},
    {28, "POSTCOPY_ADVISE", 0, 0, 0, 0, OWN, false, 8, NONE, NONE, false, 0, 0},
    {29, "POSTCOPY_LISTEN", 0, 0, 0, 0, ACK, false, 8, NONE, NONE, false, 0, 0},
    {30, "POSTCOPY_END", 0, 0, 0, 0, OWN, false, 8, NONE, NONE, false, 0, 0},
    {31, "GET_INFLIGHT_FD", 20, 24, 0, 0, OWN, false, 12, NONE, NONE, false, 24, 0},
    {32, "SET_INFLIGHT_FD", 20, 24, 1, 1, ACK, true, 12, NONE, NONE, false, 24, 1},
    {33, "GPU_SET_SOCKET", 0, 0, 1, 1, ACK, false, NONE, NONE, NONE, true, 0, 1},
    {34, "RESET_DEVICE", 0, 0, 0, 0, ACK, false, 13, NONE, NONE, false, 0, 0},
    {35, "VRING_KICK", 8, 8, 0, 0, ACK, false, 14, NONE, NONE, false, 8, 0},
    {36, "GET_MAX_MEM_SLOTS", 0, 0, 0, 0, OWN, false, 15, NONE, NONE, false, 0, 0},
    {37, "ADD_MEM_REG", 40, 40, 1, 1, ACK, true, 15, NONE, NONE, false, 40, 1},
    {38, "REM_MEM_REG", 40, 40, 0, 1, ACK, true, 15, NONE, NONE, false, 40, 0},
    {39, "SET_STATUS", 8, 8, 0, 0, ACK, false, 16, NONE, NONE, false, 8, 0},
    {40, "GET_STATUS", 0, 0, 0, 0, OWN, false, 16, NONE, NONE, false, 0, 0},
    {41, "GET_SHARED_OBJECT", 16, 16, 0, 0, OWN, false, 18, NONE, NONE, false, 16, 0},
    {42, "SET_DEVICE_STATE_FD", 8, 8, 1, 1, OWN, false, 19, NONE, NONE, false, 8, 1},
    {43, "CHECK_DEVICE_STATE", 0, 0, 0, 0, OWN, false, 19, NONE, NONE, false, 0, 0},
    {44, "GET_SHMEM_CONFIG", 0, 0, 0, 0, OWN, false, NONE, NONE, NONE, true, 0, 0},
};

static const struct golden back_end[] = {
    {1, "BACKEND_IOTLB_MSG", 26, 32, 0, 0, ACK, false, NONE, NONE, F_ACCESS_PLATFORM, false, 32, 0},
    {2, "BACKEND_CONFIG_CHANGE_MSG", 0, 0, 0, 0, ACK, false, 9, NONE, NONE, false, 0, 0},
    {3, "BACKEND_VRING_HOST_NOTIFIER_MSG", 24, 24, 1, 1, ACK, false, 11, NONE, NONE, false, 24, 1},
    {4, "BACKEND_VRING_CALL", 8, 8, 0, 0, ACK, false, 14, NONE, NONE, false, 8, 0},
    {5, "BACKEND_VRING_ERR", 8, 8, 0, 0, ACK, false, 14, NONE, NONE, false, 8, 0},
    {6, "BACKEND_SHARED_OBJECT_ADD", 16, 16, 0, 0, ACK, false, 18, NONE, NONE, false, 16, 0},
    {7, "BACKEND_SHARED_OBJECT_REMOVE", 16, 16, 0, 0, ACK, false, 18, NONE, NONE, false, 16, 0},
    {8, "BACKEND_SHARED_OBJECT_LOOKUP", 16, 16, 0, 0, OWN, false, 18, NONE, NONE, false, 16, 0},
    {9, "BACKEND_SHMEM_MAP", 40, 40, 1, 1, ACK, false, NONE, NONE, NONE, true, 40, 1},
    {10, "BACKEND_SHMEM_UNMAP", 40, 40, 0, 0, OWN, false, NONE, NONE, NONE, true, 40, 0},
};

/* Both tables, one row after the other. */
#define ROWS (VW_ARRAY_SIZE(front_end) + VW_ARRAY_SIZE(back_end))

static const struct golden *row_at(size_t i, enum vw_vu_requester *requester)
{
    *requester = i < VW_ARRAY_SIZE(front_end) ? VW_VU_FRONT_END : VW_VU_BACK_END;
    return *requester == VW_VU_FRONT_END ? &front_end[i] : &back_end[i - VW_ARRAY_SIZE(front_end)];
}

#define EACH_ROW(row, requester)                                                                   \
    enum vw_vu_requester requester;                                                                \
    const struct golden *row;                                                                      \
    for (size_t i_ = 0; i_ < ROWS && (row = row_at(i_, &requester)); i_++)

static const struct vw_vu_limits everything = {
    .offered_features = ALL,
    .acknowledged_features = ALL,
    .offered_protocol = ALL,
    .acknowledged_protocol = ALL,
    .rings = 4,
};

/* Everything but acknowledgements: a refusal that must be told cannot be. */
static struct vw_vu_limits without_acks(void)
{
    struct vw_vu_limits limits = everything;

    limits.acknowledged_protocol &= ~vw_bit(VW_VU_PF_REPLY_ACK);
    return limits;
}

/* A well-formed message of each kind. */
static void fill(struct vw_vu_message *message, const struct golden *row)
{
    memset(message, 0, sizeof(*message));
    message->header.request = row->number;
    message->header.flags = VW_VU_VERSION;
    message->header.size = row->size;
    switch (row->number) {
    case VW_VU_SET_MEM_TABLE: /* a back-end's request 5 is shorter */
        message->payload.memory.count = row->size == 40;
        message->payload.memory.regions[0].size = 4096;
        break;
    case VW_VU_SET_LOG_BASE:
    case VW_VU_NET_SET_MTU:
        message->payload.u64 = 1500;
        break;
    case VW_VU_ADD_MEM_REG:
    case VW_VU_REM_MEM_REG:
        message->payload.region.region.size = 4096;
        break;
    case VW_VU_SET_VRING_NUM:
        message->payload.state.num = 256;
        break;
    case VW_VU_GET_CONFIG:
    case VW_VU_SET_CONFIG:
        message->payload.config.size = 6;
        break;
    case VW_VU_GET_INFLIGHT_FD:
    case VW_VU_SET_INFLIGHT_FD:
        message->payload.inflight.queues = 2;
        message->payload.inflight.queue_size = 256;
        break;
    default:
        break;
    }
    if (row->size == sizeof(struct vw_vu_iotlb)) {
        message->payload.iotlb.type = 1;
        message->payload.iotlb.permission = 3;
    }
}

static void fill_front_end(struct vw_vu_message *message, uint32_t number)
{
    assert_in_range(number, 1, VW_ARRAY_SIZE(front_end));
    fill(message, &front_end[number - 1]);
}

static enum vw_vu_verdict check(enum vw_vu_requester requester, const struct vw_vu_message *message,
                                unsigned fds, const struct vw_vu_limits *limits)
{
    const char *why = NULL;
    enum vw_vu_verdict verdict = vw_vu_check(requester, message, fds, limits, &why);

    if (verdict != VW_VU_OK)
        assert_non_null(why);
    return verdict;
}

/* The verdict over a front-end's message with NEED_REPLY set and one without acknowledgements. */
static void expect_refused(struct vw_vu_message *message, unsigned fds,
                           const struct vw_vu_limits *limits)
{
    struct vw_vu_limits silent = *limits;
    bool essential = front_end[message->header.request - 1].essential;

    message->header.flags |= VW_VU_FLAG_NEED_REPLY;
    assert_int_equal(check(VW_VU_FRONT_END, message, fds, limits), VW_VU_REFUSED);
    silent.acknowledged_protocol &= ~vw_bit(VW_VU_PF_REPLY_ACK);
    if (message->header.request != VW_VU_SET_PROTOCOL_FEATURES)
        assert_int_equal(check(VW_VU_FRONT_END, message, fds, &silent),
                         essential ? VW_VU_FATAL : VW_VU_REFUSED);
    message->header.flags = VW_VU_VERSION;
    assert_int_equal(check(VW_VU_FRONT_END, message, fds, limits),
                     essential ? VW_VU_FATAL : VW_VU_REFUSED);
}

static void test_names(void **state)
{
    unsigned count = 0;

    (void)state;
    EACH_ROW(row, requester)
    {
        const struct vw_vu_request_info *info = vw_vu_request_info(requester, row->number);

        assert_non_null(info);
        assert_string_equal(info->name, row->name);
        assert_string_equal(vw_vu_request_name(requester, row->number), row->name);
        count++;
    }
    assert_int_equal(count, 54);
    assert_null(vw_vu_request_info(VW_VU_FRONT_END, 0));
    assert_null(vw_vu_request_info(VW_VU_FRONT_END, 45));
    assert_null(vw_vu_request_info(VW_VU_FRONT_END, UINT32_MAX));
    assert_null(vw_vu_request_info(VW_VU_BACK_END, 0));
    assert_null(vw_vu_request_info(VW_VU_BACK_END, 11));
    assert_string_equal(vw_vu_request_name(VW_VU_FRONT_END, 45), "unknown request");
}

static void test_well_formed(void **state)
{
    (void)state;
    EACH_ROW(row, requester)
    {
        struct vw_vu_message message;
        enum vw_vu_verdict expected = VW_VU_OK;

        fill(&message, row);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        if (row->never)
            expected = row->reply == OWN ? VW_VU_FATAL : VW_VU_REFUSED;
        assert_int_equal(check(requester, &message, row->fds, &everything), expected);
    }
}

/* A reply too many or too few freezes the front-end: for each message the exact rule. */
static void test_transcripts(void **state)
{
    (void)state;
    EACH_ROW(row, requester)
    {
        for (unsigned i = 0; i < 4; i++) {
            struct vw_vu_message message, reply;
            bool need = i & 1, negotiated = i & 2;
            uint64_t protocol = negotiated ? ALL : ALL & ~vw_bit(VW_VU_PF_REPLY_ACK);
            enum vw_vu_answer expected = VW_VU_ANSWER_NONE;

            fill(&message, row);
            if (need)
                message.header.flags |= VW_VU_FLAG_NEED_REPLY;
            if (row->number == VW_VU_SET_PROTOCOL_FEATURES)
                message.payload.u64 = protocol;
            if (row->reply == OWN)
                expected = VW_VU_ANSWER_OWN;
            else if (need && negotiated)
                expected = VW_VU_ANSWER_ACK;
            assert_int_equal(vw_vu_answer(requester, &message, protocol), expected);

            memset(&reply, 0xee, sizeof(reply));
            assert_int_equal(vw_vu_ack(requester, &reply, &message, protocol, 0),
                             expected == VW_VU_ANSWER_ACK);
            if (expected == VW_VU_ANSWER_ACK) {
                const uint32_t wire[5] = {row->number, 5, 8, 0, 0};

                assert_memory_equal(&reply, wire, sizeof(wire));
            }
        }
    }
}

/* Its own reply with LOG_SHMFD, an acknowledgement without. */
static void test_log_base_reply(void **state)
{
    uint64_t protocol = ALL & ~vw_bit(VW_VU_PF_LOG_SHMFD);
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_SET_LOG_BASE);
    assert_int_equal(vw_vu_answer(VW_VU_FRONT_END, &message, ALL), VW_VU_ANSWER_OWN);
    assert_int_equal(vw_vu_answer(VW_VU_FRONT_END, &message, protocol), VW_VU_ANSWER_NONE);
    message.header.flags |= VW_VU_FLAG_NEED_REPLY;
    assert_int_equal(vw_vu_answer(VW_VU_FRONT_END, &message, protocol), VW_VU_ANSWER_ACK);
}

/* The message that chooses REPLY_ACK may ask for an acknowledgement itself. */
static void test_protocol_features_reply(void **state)
{
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_SET_PROTOCOL_FEATURES);
    message.header.flags |= VW_VU_FLAG_NEED_REPLY;
    message.payload.u64 = vw_bit(VW_VU_PF_REPLY_ACK);
    assert_int_equal(vw_vu_answer(VW_VU_FRONT_END, &message, 0), VW_VU_ANSWER_ACK);
    message.payload.u64 = 0;
    assert_int_equal(vw_vu_answer(VW_VU_FRONT_END, &message, ALL), VW_VU_ANSWER_NONE);
}

static void test_sizes(void **state)
{
    (void)state;
    EACH_ROW(row, requester)
    {
        for (uint32_t size = 0; size <= VW_VU_MAX_PAYLOAD + 1; size++) {
            struct vw_vu_message message;
            bool fits = size >= row->size_min && size <= row->size_max;
            const char *why;

            fill(&message, row);
            message.header.size = size;
            message.header.flags |= VW_VU_FLAG_NEED_REPLY;
            if (!fits)
                assert_int_equal(check(requester, &message, row->fds, &everything), VW_VU_FATAL);
            assert_int_equal(vw_vu_check_header(requester, false, &message.header, &why),
                             size > row->size_max ? VW_VU_FATAL : VW_VU_OK);
        }
    }
}

static void test_descriptors(void **state)
{
    static const unsigned counts[] = {0, 1, 2, 8, 9, 32};

    (void)state;
    EACH_ROW(row, requester)
    {
        for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
            struct vw_vu_message message;
            unsigned fds = counts[i];
            enum vw_vu_verdict expected = VW_VU_OK;

            fill(&message, row);
            message.header.flags |= VW_VU_FLAG_NEED_REPLY;
            if (row->number == VW_VU_SET_MEM_TABLE && requester == VW_VU_FRONT_END) {
                message.payload.memory.count = 0;
                expected = fds == 0 ? VW_VU_OK : VW_VU_FATAL;
            } else if (row->number == VW_VU_SET_LOG_BASE && requester == VW_VU_FRONT_END) {
                expected = fds == 1 ? VW_VU_OK : VW_VU_FATAL;
            } else if (fds < row->fds_min || fds > row->fds_max) {
                expected = VW_VU_FATAL;
            } else if (row->never) {
                expected = row->reply == OWN ? VW_VU_FATAL : VW_VU_REFUSED;
            }
            assert_int_equal(check(requester, &message, fds, &everything), expected);
        }
    }
}

/* NOFD and a descriptor exclude each other; one of them has to be there. */
static void test_nofd(void **state)
{
    struct vw_vu_message message;

    (void)state;
    for (uint32_t number = VW_VU_SET_VRING_KICK; number <= VW_VU_SET_VRING_ERR; number++) {
        fill_front_end(&message, number);
        message.payload.u64 = VW_VU_RING_NOFD | 3;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_FATAL);
        message.payload.u64 = 3;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_OK);
    }
}

/* Each gate shut by itself: refused, or fatal where nobody could tell the sender. */
static void test_gates(void **state)
{
    (void)state;
    EACH_ROW(row, requester)
    {
        for (int gate = 0; gate < 3; gate++) {
            int bit = gate == 0 ? row->protocol : gate == 1 ? row->offered : row->acknowledged;
            struct vw_vu_limits limits = everything;
            struct vw_vu_message message;
            bool own = row->reply == OWN;

            if (bit == NONE)
                continue;
            fill(&message, row);
            message.header.flags |= VW_VU_FLAG_NEED_REPLY;
            if (gate == 0)
                limits.acknowledged_protocol &= ~vw_bit((unsigned)bit);
            else if (gate == 1)
                limits.offered_features &= ~vw_bit((unsigned)bit);
            else
                limits.acknowledged_features &= ~vw_bit((unsigned)bit);
            /* SET_LOG_BASE is acknowledged where it has no own reply; GET_CONFIG can say no. */
            if (requester == VW_VU_FRONT_END &&
                (row->number == VW_VU_SET_LOG_BASE || row->number == VW_VU_GET_CONFIG))
                own = false;
            if (row->number == VW_VU_SET_PROTOCOL_FEATURES)
                message.payload.u64 = ALL;
            assert_int_equal(check(requester, &message, row->fds, &limits),
                             own ? VW_VU_FATAL : VW_VU_REFUSED);
        }
    }
}

/* With only its own gates open, a message passes: no gate too many. */
static void test_gates_alone(void **state)
{
    (void)state;
    EACH_ROW(row, requester)
    {
        struct vw_vu_limits limits = {.rings = 4};
        struct vw_vu_message message;

        if (row->never)
            continue;
        if (row->protocol != NONE)
            limits.acknowledged_protocol = vw_bit((unsigned)row->protocol);
        if (row->offered != NONE)
            limits.offered_features = vw_bit((unsigned)row->offered);
        if (row->acknowledged != NONE)
            limits.acknowledged_features = vw_bit((unsigned)row->acknowledged);
        fill(&message, row);
        assert_int_equal(check(requester, &message, row->fds, &limits), VW_VU_OK);
    }
}

static void test_header(void **state)
{
    struct vw_vu_header header = {VW_VU_SET_OWNER, VW_VU_VERSION, 0};
    const char *why;

    (void)state;
    for (uint32_t flags = 0; flags < 16; flags++) {
        bool version = (flags & 3) == 1, reply = flags & 4;

        header.flags = flags;
        assert_int_equal(vw_vu_check_header(VW_VU_FRONT_END, false, &header, &why),
                         version && !reply ? VW_VU_OK : VW_VU_FATAL);
        assert_int_equal(vw_vu_check_header(VW_VU_FRONT_END, true, &header, &why),
                         version && reply ? VW_VU_OK : VW_VU_FATAL);
    }
    header.flags = VW_VU_VERSION;
    header.size = UINT32_MAX;
    assert_int_equal(vw_vu_check_header(VW_VU_FRONT_END, false, &header, &why), VW_VU_FATAL);
    header.request = 4711;
    assert_int_equal(vw_vu_check_header(VW_VU_FRONT_END, false, &header, &why), VW_VU_FATAL);
    header.size = VW_VU_MAX_PAYLOAD;
    assert_int_equal(vw_vu_check_header(VW_VU_FRONT_END, false, &header, &why), VW_VU_OK);
}

static void test_unknown(void **state)
{
    static const uint32_t numbers[] = {0, 45, 1000, 0x10001, UINT32_MAX};

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(numbers); i++) {
        struct vw_vu_message message, reply;
        const uint32_t wire[5] = {numbers[i], 5, 8, 1, 0};
        bool fatal = true;

        vw_vu_request(&message, numbers[i], 100);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 9, &everything), VW_VU_UNKNOWN);
        assert_false(vw_vu_refuse(VW_VU_FRONT_END, &reply, &message, ALL, &fatal));
        assert_false(fatal);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        assert_false(vw_vu_refuse(VW_VU_FRONT_END, &reply, &message, 0, NULL));
        assert_true(vw_vu_refuse(VW_VU_FRONT_END, &reply, &message, ALL, &fatal));
        assert_false(fatal);
        assert_memory_equal(&reply, wire, sizeof(wire));
    }
}

/* Every bit that was not offered, singly: QEMU and others have accepted such. */
static void test_features(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        struct vw_vu_limits limits = everything;
        struct vw_vu_message message;

        limits.offered_features = ~vw_bit(bit);
        fill_front_end(&message, VW_VU_SET_FEATURES);
        message.payload.u64 = ~vw_bit(bit);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
        message.payload.u64 = vw_bit(bit);
        expect_refused(&message, 0, &limits);
    }
}

static void test_protocol_features(void **state)
{
    struct vw_vu_message message;

    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        struct vw_vu_limits limits = everything;

        limits.offered_protocol = ~vw_bit(bit);
        fill_front_end(&message, VW_VU_SET_PROTOCOL_FEATURES);
        message.payload.u64 = vw_bit(bit);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_FATAL);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        message.payload.u64 |= vw_bit(VW_VU_PF_REPLY_ACK);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_REFUSED);
    }
    /* In-band notifications need the other socket and acknowledgements; else it is the end. */
    for (unsigned i = 0; i < 4; i++) {
        fill_front_end(&message, VW_VU_SET_PROTOCOL_FEATURES);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        message.payload.u64 = vw_bit(VW_VU_PF_INBAND_NOTIFICATIONS) |
                              (i & 1 ? vw_bit(VW_VU_PF_BACKEND_REQ) : 0) |
                              (i & 2 ? vw_bit(VW_VU_PF_REPLY_ACK) : 0);
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything),
                         i == 3 ? VW_VU_OK : VW_VU_FATAL);
    }
}

static void fill_memory(struct vw_vu_message *message, uint32_t count)
{
    vw_vu_request(message, VW_VU_SET_MEM_TABLE, 8 + count * 32);
    message->payload.memory.count = count;
    for (uint32_t i = 0; i < count && i < VW_VU_MAX_TABLE_REGIONS; i++) {
        message->payload.memory.regions[i].guest = i * 0x10000;
        message->payload.memory.regions[i].user = 0x7f0000000000 + i * 0x10000;
        message->payload.memory.regions[i].size = 0x10000;
    }
}

static void test_memory_table(void **state)
{
    struct vw_vu_message message;

    (void)state;
    for (uint32_t count = 0; count <= 8; count++) {
        for (unsigned fds = 0; fds <= 9; fds++) {
            fill_memory(&message, count);
            assert_int_equal(check(VW_VU_FRONT_END, &message, fds, &everything),
                             fds == count ? VW_VU_OK : VW_VU_FATAL);
        }
    }
    /* Room for two, one region: User-mode Linux. */
    fill_memory(&message, 1);
    message.header.size = 8 + 2 * 32;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_OK);
    /* Fewer bytes than regions. */
    fill_memory(&message, 2);
    message.header.size = 8 + 2 * 32 - 1;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 2, &everything), VW_VU_FATAL);
    /* A number of regions that overflows 32 bits when multiplied. */
    fill_memory(&message, 8);
    message.payload.memory.count = 9;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 8, &everything), VW_VU_FATAL);
    message.payload.memory.count = 0x08000000;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
    message.payload.memory.count = UINT32_MAX;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 8, &everything), VW_VU_FATAL);
}

static void test_memory_regions(void **state)
{
    static const struct vw_vu_region bad[] = {
        {0x20000, 0, 0x7fff00000000, 0},                  /* no bytes */
        {UINT64_MAX - 10, 4096, 0x7fff00000000, 0},       /* overflows in guest addresses */
        {0x20000, 4096, UINT64_MAX - 10, 0},              /* in user addresses */
        {0x20000, 4096, 0x7fff00000000, UINT64_MAX - 10}, /* in its file */
        {0x20000, UINT64_MAX, 0x7fff00000000, 0},
        {0xffff, 4096, 0x7fff00000000, 0},   /* overlaps the first region's last byte */
        {0x20000, 4096, 0x7f000000ffff, 0},  /* the same in user addresses */
        {0, 0x10000, 0x7fff00000000, 0},     /* the same region again */
        {0x1000, 0x1000, 0x7fff00000000, 0}, /* inside */
    };
    struct vw_vu_message message;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
        fill_memory(&message, 2);
        message.payload.memory.regions[1] = bad[i];
        expect_refused(&message, 2, &everything);
        fill_memory(&message, 2);
        message.payload.memory.regions[1] = message.payload.memory.regions[0];
        message.payload.memory.regions[0] = bad[i];
        expect_refused(&message, 2, &everything);
    }
    for (unsigned i = 0; i < 5; i++) {
        fill_front_end(&message, VW_VU_ADD_MEM_REG);
        message.payload.region.region = bad[i];
        expect_refused(&message, 1, &everything);
        fill_front_end(&message, VW_VU_REM_MEM_REG);
        message.payload.region.region = bad[i];
        expect_refused(&message, 0, &everything);
    }
}

/* An index is compared at its full width: 0x10000 is not ring 0. */
static void test_ring_index(void **state)
{
    static const uint32_t numbers[] = {
        VW_VU_SET_VRING_NUM,    VW_VU_SET_VRING_ADDR,   VW_VU_SET_VRING_BASE,
        VW_VU_SET_VRING_ENABLE, VW_VU_SET_VRING_ENDIAN, VW_VU_VRING_KICK,
    };
    static const uint32_t indices[] = {4, 0x100, 0x10000, 0x80000000, UINT32_MAX};
    struct vw_vu_message message;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(numbers); i++) {
        fill_front_end(&message, numbers[i]);
        message.payload.state.index = 3;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
        for (unsigned j = 0; j < VW_ARRAY_SIZE(indices); j++) {
            message.payload.state.index = indices[j];
            expect_refused(&message, 0, &everything);
        }
    }
    for (unsigned j = 0; j < VW_ARRAY_SIZE(indices); j++) {
        /* Its sender waits for a reply that cannot say no. */
        fill_front_end(&message, VW_VU_GET_VRING_BASE);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        message.payload.state.index = indices[j];
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
    }
    for (uint32_t number = VW_VU_SET_VRING_KICK; number <= VW_VU_SET_VRING_ERR; number++) {
        static const uint64_t values[] = {4, 0xff, 0x200, 0x10000, UINT64_C(1) << 63};

        for (unsigned j = 0; j < VW_ARRAY_SIZE(values); j++) {
            fill_front_end(&message, number);
            message.payload.u64 = values[j];
            expect_refused(&message, 1, &everything);
        }
    }
}

static void test_ring_num(void **state)
{
    static const uint32_t bad[] = {0, 32769, 0x10000, 0x10100, UINT32_MAX};
    struct vw_vu_limits limits = everything;
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_SET_VRING_NUM);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(bad); i++) {
        message.payload.state.num = bad[i];
        expect_refused(&message, 0, &limits);
    }
    message.payload.state.num = 32768;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
    message.payload.state.num = 5;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
    limits.offered_features &= ~vw_bit(F_PACKED);
    expect_refused(&message, 0, &limits);
    limits.max_ring_size = 1024;
    message.payload.state.num = 1024;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
    message.payload.state.num = 2048;
    expect_refused(&message, 0, &limits);
}

static void test_ring_base_and_switch(void **state)
{
    struct vw_vu_limits split = everything;
    struct vw_vu_message message;

    (void)state;
    split.acknowledged_features &= ~vw_bit(F_PACKED);
    fill_front_end(&message, VW_VU_SET_VRING_BASE);
    message.payload.state.num = 0x80008000;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
    expect_refused(&message, 0, &split);
    message.payload.state.num = 0xffff;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &split), VW_VU_OK);

    fill_front_end(&message, VW_VU_SET_VRING_ENABLE);
    message.payload.state.num = 1;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
    message.payload.state.num = 2;
    expect_refused(&message, 0, &everything);
}

static void test_ring_address(void **state)
{
    struct vw_vu_limits split = everything;
    struct vw_vu_message message;
    struct vw_vu_address good = {.descriptor = 0x1000, .available = 0x2002, .used = 0x3004};

    (void)state;
    split.acknowledged_features &= ~vw_bit(F_PACKED);
    fill_front_end(&message, VW_VU_SET_VRING_ADDR);
    message.payload.address = good;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &split), VW_VU_OK);
    expect_refused(&message, 0, &everything); /* packed: aligned to 4 */
    message.payload.address = good;
    message.payload.address.descriptor = 0x1008;
    expect_refused(&message, 0, &split);
    message.payload.address = good;
    message.payload.address.available = 0x2001;
    expect_refused(&message, 0, &split);
    message.payload.address = good;
    message.payload.address.used = 0x3002;
    expect_refused(&message, 0, &split);
}

static void test_config(void **state)
{
    struct vw_vu_limits limits = everything;
    struct vw_vu_message message;

    (void)state;
    for (uint32_t number = VW_VU_GET_CONFIG; number <= VW_VU_SET_CONFIG; number++) {
        vw_vu_request(&message, number, 12 + 256);
        message.payload.config.size = 256;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
        message.payload.config.size = 255; /* the payload says otherwise */
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
        message.payload.config.size = 0x10000;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
        message.payload.config.size = UINT32_MAX;
        message.header.size = 12;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);

        vw_vu_request(&message, number, 12 + 6);
        message.payload.config.size = 6;
        message.payload.config.offset = 250;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
        message.payload.config.offset = 251;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_REFUSED);
        message.payload.config.offset = UINT32_MAX;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_REFUSED);
        limits.config_size = 24;
        message.payload.config.offset = 19;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_REFUSED);
        message.payload.config.offset = 18;
        assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
    }
    message.payload.config.flags = 1; /* SET_CONFIG by live migration */
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_OK);
    message.payload.config.flags = 2;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &limits), VW_VU_REFUSED);
}

/* CVE-2020-10722: size and offset of a log that overflow together. */
static void test_log_base(void **state)
{
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_SET_LOG_BASE);
    message.payload.log.size = UINT64_MAX;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_OK);
    message.payload.log.offset = 1;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_FATAL);
    message.payload.log.size = 0;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_FATAL);
    fill_front_end(&message, VW_VU_SET_LOG_BASE);
    message.header.size = 8; /* the form of old, although LOG_SHMFD was chosen */
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_FATAL);
}

static void test_values(void **state)
{
    static const uint64_t mtus[] = {0, 67, 65536, 0x100000000 + 1500};
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_NET_SET_MTU);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(mtus); i++) {
        message.payload.u64 = mtus[i];
        expect_refused(&message, 0, &everything);
    }
    message.payload.u64 = 65535;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);

    fill_front_end(&message, VW_VU_SET_STATUS);
    message.payload.u64 = 256;
    expect_refused(&message, 0, &everything);

    fill_front_end(&message, VW_VU_SET_INFLIGHT_FD);
    message.payload.inflight.queues = 5;
    expect_refused(&message, 1, &everything);
    fill_front_end(&message, VW_VU_SET_INFLIGHT_FD);
    message.payload.inflight.queue_size = 0;
    expect_refused(&message, 1, &everything);
    fill_front_end(&message, VW_VU_SET_INFLIGHT_FD);
    message.payload.inflight.mmap_size = UINT64_MAX;
    message.payload.inflight.mmap_offset = 1;
    expect_refused(&message, 1, &everything);

    fill_front_end(&message, VW_VU_SET_DEVICE_STATE_FD);
    message.payload.device_state.direction = 2;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_FATAL);

    fill_front_end(&message, VW_VU_IOTLB_MSG);
    message.payload.iotlb.type = 5;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
    fill_front_end(&message, VW_VU_IOTLB_MSG);
    message.payload.iotlb.iova = 2;
    message.payload.iotlb.size = UINT64_MAX;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_FATAL);
    message.payload.iotlb.iova = 1;
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
}

/* What a device sends that finds out later that it cannot do a request. */
static void test_refuse(void **state)
{
    struct vw_vu_limits silent = without_acks();

    (void)state;
    EACH_ROW(row, requester)
    {
        struct vw_vu_message message, reply;
        const uint32_t no[5] = {row->number, 5, 8, 1, 0};
        const uint32_t empty[3] = {row->number, 5, 0};
        bool config = requester == VW_VU_FRONT_END && row->number == VW_VU_GET_CONFIG;
        bool fatal;

        fill(&message, row);
        message.header.flags |= VW_VU_FLAG_NEED_REPLY;
        if (row->number == VW_VU_SET_PROTOCOL_FEATURES)
            message.payload.u64 = ALL;
        assert_int_equal(vw_vu_refuse(requester, &reply, &message, ALL, &fatal),
                         row->reply == ACK || config);
        assert_int_equal(fatal, row->reply == OWN && !config);
        if (config)
            assert_memory_equal(&reply, empty, sizeof(empty));
        else if (row->reply == ACK)
            assert_memory_equal(&reply, no, sizeof(no));

        message.header.flags = VW_VU_VERSION;
        assert_int_equal(
            vw_vu_refuse(requester, &reply, &message, silent.acknowledged_protocol, &fatal),
            config);
        assert_int_equal(fatal, !config && (row->essential || row->reply == OWN));
    }
}

/* In the request's place, as a server with one buffer does it. */
static void test_reply_in_place(void **state)
{
    static const uint8_t mac[6] = {0x52, 0x54, 0, 1, 2, 3};
    const uint32_t state_wire[5] = {VW_VU_GET_VRING_BASE, 5, 8, 2, 77};
    uint8_t config_wire[30] = {24, 0, 0, 0, 5, 0, 0, 0, 18, 0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0};
    struct vw_vu_message message;

    (void)state;
    fill_front_end(&message, VW_VU_GET_VRING_BASE);
    message.payload.state.index = 2;
    vw_vu_reply_state(&message, &message, 2, 77);
    assert_memory_equal(&message, state_wire, sizeof(state_wire));

    fill_front_end(&message, VW_VU_GET_CONFIG);
    message.payload.config.offset = 7;
    vw_vu_reply_config(&message, &message, mac);
    memcpy(config_wire + 24, mac, 6);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        assert_memory_equal(&message, config_wire, sizeof(config_wire));

    fill_front_end(&message, VW_VU_SET_CONFIG);
    message.header.flags |= VW_VU_FLAG_NEED_REPLY;
    assert_true(vw_vu_refuse(VW_VU_FRONT_END, &message, &message, ALL, NULL));
    assert_int_equal(message.header.size, 8);
    assert_int_equal(message.payload.u64, 1);
}

static void test_requests(void **state)
{
    const uint32_t change[3] = {2, 1, 0};
    const uint32_t call[5] = {4, 1, 8, 3, 0};
    const uint32_t err[5] = {5, 1, 8, 2, 0};
    struct vw_vu_message message;

    (void)state;
    memset(&message, 0xee, sizeof(message));
    vw_vu_config_change(&message);
    assert_memory_equal(&message, change, sizeof(change));
    assert_int_equal(check(VW_VU_BACK_END, &message, 0, &everything), VW_VU_OK);
    vw_vu_vring_call(&message, 3);
    assert_memory_equal(&message, call, sizeof(call));
    assert_int_equal(check(VW_VU_BACK_END, &message, 0, &everything), VW_VU_OK);
    vw_vu_vring_call(&message, 4);
    assert_int_equal(check(VW_VU_BACK_END, &message, 0, &everything), VW_VU_REFUSED);
    vw_vu_vring_err(&message, 2);
    assert_memory_equal(&message, err, sizeof(err));

    vw_vu_request_ring_fd(&message, VW_VU_SET_VRING_CALL, 3, false);
    assert_int_equal(check(VW_VU_FRONT_END, &message, 0, &everything), VW_VU_OK);
    vw_vu_request_ring_fd(&message, VW_VU_SET_VRING_CALL, 3, true);
    assert_int_equal(check(VW_VU_FRONT_END, &message, 1, &everything), VW_VU_OK);

    vw_vu_need_reply(VW_VU_FRONT_END, &message, 0);
    assert_int_equal(message.header.flags, VW_VU_VERSION);
    vw_vu_need_reply(VW_VU_FRONT_END, &message, ALL);
    assert_int_equal(message.header.flags, VW_VU_VERSION | VW_VU_FLAG_NEED_REPLY);
    vw_vu_request(&message, VW_VU_GET_FEATURES, 0);
    vw_vu_need_reply(VW_VU_FRONT_END, &message, ALL);
    assert_int_equal(message.header.flags, VW_VU_VERSION);
}

static enum vw_vu_verdict check_reply(const struct vw_vu_message *request,
                                      const struct vw_vu_message *reply, unsigned fds)
{
    const char *why = NULL;
    enum vw_vu_verdict verdict = vw_vu_check_reply(VW_VU_FRONT_END, request, reply, fds, &why);

    if (verdict != VW_VU_OK)
        assert_non_null(why);
    return verdict;
}

static void test_replies(void **state)
{
    struct vw_vu_message request, reply;

    (void)state;
    fill_front_end(&request, VW_VU_GET_FEATURES);
    vw_vu_reply_u64(&reply, &request, 42);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_OK);
    assert_int_equal(check_reply(&request, &reply, 1), VW_VU_FATAL);
    reply.header.size = 4;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    reply.header.size = 9;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    vw_vu_reply_u64(&reply, &request, 42);
    reply.header.request = VW_VU_GET_STATUS;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    vw_vu_reply_u64(&reply, &request, 42);
    reply.header.flags = VW_VU_VERSION;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);

    /* Acknowledgements. */
    fill_front_end(&request, VW_VU_SET_OWNER);
    vw_vu_reply_u64(&reply, &request, 0);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_OK);
    vw_vu_reply_u64(&reply, &request, UINT64_C(1) << 63);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_REFUSED);
    vw_vu_reply(&reply, &request, 0);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);

    /* Back-ends differ about this one. */
    fill_front_end(&request, VW_VU_SET_LOG_BASE);
    vw_vu_reply(&reply, &request, 0);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_OK);
    vw_vu_reply(&reply, &request, 8);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_OK);

    fill_front_end(&request, VW_VU_GET_INFLIGHT_FD);
    vw_vu_reply(&reply, &request, 24);
    assert_int_equal(check_reply(&request, &reply, 1), VW_VU_OK);
    assert_int_equal(check_reply(&request, &reply, 2), VW_VU_FATAL);
}

static void test_config_reply(void **state)
{
    static const uint8_t bytes[6] = {1, 2, 3, 4, 5, 6};
    struct vw_vu_message request, reply;

    (void)state;
    fill_front_end(&request, VW_VU_GET_CONFIG);
    vw_vu_reply_config(&reply, &request, bytes);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_OK);
    reply.header.size--;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    vw_vu_reply_config(&reply, &request, bytes);
    reply.payload.config.size = 200;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    vw_vu_reply_config(&reply, &request, bytes);
    reply.payload.config.offset = 1;
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_FATAL);
    vw_vu_reply(&reply, &request, 0);
    assert_int_equal(check_reply(&request, &reply, 0), VW_VU_REFUSED);
}

static void test_describe(void **state)
{
    struct vw_vu_header header = {VW_VU_SET_VRING_NUM, VW_VU_VERSION, 4};
    char text[200], small[8];

    (void)state;
    assert_string_equal(
        vw_vu_describe(VW_VU_FRONT_END, &header, 2, "it is wrong", text, sizeof(text)),
        "SET_VRING_NUM (4 bytes, 2 descriptors): it is wrong");
    header.request = 99;
    assert_string_equal(vw_vu_describe(VW_VU_FRONT_END, &header, 0, "why", text, sizeof(text)),
                        "request 99 (4 bytes, 0 descriptors): why");
    assert_string_equal(vw_vu_describe(VW_VU_FRONT_END, &header, 0, "why", small, sizeof(small)),
                        "request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_well_formed),
        cmocka_unit_test(test_transcripts),
        cmocka_unit_test(test_log_base_reply),
        cmocka_unit_test(test_protocol_features_reply),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_nofd),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_gates_alone),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_protocol_features),
        cmocka_unit_test(test_memory_table),
        cmocka_unit_test(test_memory_regions),
        cmocka_unit_test(test_ring_index),
        cmocka_unit_test(test_ring_num),
        cmocka_unit_test(test_ring_base_and_switch),
        cmocka_unit_test(test_ring_address),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_log_base),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_reply_in_place),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_config_reply),
        cmocka_unit_test(test_describe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
