/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vhost-user messages: layouts, one table of all requests, checks, and encoders.
 *
 * Theory of operation
 * -------------------
 * A front-end (the VMM, or our own driver) and a back-end (our device) exchange messages over a
 * UNIX stream socket: a header of 12 bytes, a payload, and file descriptors that travel with the
 * header's first byte. Everything is in the byte order of the host. Two streams of requests
 * exist: the front-end's on the main socket, and the back-end's on a second socket that the
 * front-end hands over with SET_BACKEND_REQ_FD. Each has numbers of its own.
 *
 * One table says for each request how long its payload is, how many descriptors come with it,
 * what must have been negotiated before it may be sent, and how it is answered. Both ends use
 * that table. A back-end does this with each message:
 *
 *   vw_vu_check_header .. when the 12 bytes are there (transport/socket.c does it), so that no
 *                         byte of an absurd payload is waited for
 *   vw_vu_check ......... when the message is complete, before anything acts on it. The verdict:
 *
 *     VW_VU_OK         do it, then answer: vw_vu_answer says how
 *     VW_VU_REFUSED    it is well formed but cannot be done. Send what vw_vu_refuse builds, if
 *                      anything, log the reason, and go on
 *     VW_VU_UNKNOWN    no such request; as VW_VU_REFUSED (a newer front-end may try it)
 *     VW_VU_FATAL      the peer breaks the protocol, or it waits for a reply that does not exist,
 *                      or both ends would go on with different ideas of a ring. Drop the connection
 *
 * In all cases the caller closes the descriptors that it does not keep.
 *
 * This code is pure: no system call, no memory of its own, nothing global but constants. `vu`
 * stands for vhost-user.
 */
#ifndef VW_VHOST_MESSAGE_H
#define VW_VHOST_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

#define VW_VU_VERSION 1u
#define VW_VU_FLAG_VERSION 3u       /* mask of the version in the header's flags */
#define VW_VU_FLAG_REPLY 4u         /* set on each reply */
#define VW_VU_FLAG_NEED_REPLY 8u    /* the sender asks for an acknowledgement */

#define VW_VU_MAX_RINGS 256         /* SET_VRING_KICK has 8 bits for the index */
#define VW_VU_MAX_FDS 8             /* with one message */
#define VW_VU_MAX_TABLE_REGIONS 8   /* SET_MEM_TABLE; ADD_MEM_REG is how a front-end adds more */
#define VW_VU_MAX_CONFIG 256        /* bytes of configuration space in one message */
#define VW_VU_MAX_PAYLOAD 1024      /* more than any request or reply of ours; unknown ones too */

#define VW_VU_RING_MASK 0xffu       /* SET_VRING_KICK, CALL and ERR: the ring index */
#define VW_VU_RING_NOFD 0x100u      /* the same: no descriptor comes with the message */
#define VW_VU_ADDRESS_LOG 1u        /* SET_VRING_ADDR: writes to the used ring are logged */

/* Bits among the virtio features that only vhost-user knows; a guest never sees them. */
#define VW_VU_F_LOG_ALL 26
#define VW_VU_F_PROTOCOL_FEATURES 30

/* Requests of the front-end. */
enum vw_vu_request {
    VW_VU_GET_FEATURES = 1,
    VW_VU_SET_FEATURES = 2,
    VW_VU_SET_OWNER = 3,
    VW_VU_RESET_OWNER = 4,
    VW_VU_SET_MEM_TABLE = 5,
    VW_VU_SET_LOG_BASE = 6,
    VW_VU_SET_LOG_FD = 7,
    VW_VU_SET_VRING_NUM = 8,
    VW_VU_SET_VRING_ADDR = 9,
    VW_VU_SET_VRING_BASE = 10,
    VW_VU_GET_VRING_BASE = 11,
    VW_VU_SET_VRING_KICK = 12,
    VW_VU_SET_VRING_CALL = 13,
    VW_VU_SET_VRING_ERR = 14,
    VW_VU_GET_PROTOCOL_FEATURES = 15,
    VW_VU_SET_PROTOCOL_FEATURES = 16,
    VW_VU_GET_QUEUE_NUM = 17,
    VW_VU_SET_VRING_ENABLE = 18,
    VW_VU_SEND_RARP = 19,
    VW_VU_NET_SET_MTU = 20,
    VW_VU_SET_BACKEND_REQ_FD = 21,
    VW_VU_IOTLB_MSG = 22,
    VW_VU_SET_VRING_ENDIAN = 23,
    VW_VU_GET_CONFIG = 24,
    VW_VU_SET_CONFIG = 25,
    VW_VU_CREATE_CRYPTO_SESSION = 26,
    VW_VU_CLOSE_CRYPTO_SESSION = 27,
    VW_VU_POSTCOPY_ADVISE = 28,
    VW_VU_POSTCOPY_LISTEN = 29,
    VW_VU_POSTCOPY_END = 30,
    VW_VU_GET_INFLIGHT_FD = 31,
    VW_VU_SET_INFLIGHT_FD = 32,
    VW_VU_GPU_SET_SOCKET = 33,
    VW_VU_RESET_DEVICE = 34,
    VW_VU_VRING_KICK = 35,
    VW_VU_GET_MAX_MEM_SLOTS = 36,
    VW_VU_ADD_MEM_REG = 37,
    VW_VU_REM_MEM_REG = 38,
    VW_VU_SET_STATUS = 39,
    VW_VU_GET_STATUS = 40,
    VW_VU_GET_SHARED_OBJECT = 41,
    VW_VU_SET_DEVICE_STATE_FD = 42,
    VW_VU_CHECK_DEVICE_STATE = 43,
    VW_VU_GET_SHMEM_CONFIG = 44,
    VW_VU_REQUEST_END, /* one more than the last */
};

/* Requests of the back-end, on the socket of SET_BACKEND_REQ_FD. */
enum vw_vu_back_end_request {
    VW_VU_BACK_END_IOTLB_MSG = 1,
    VW_VU_BACK_END_CONFIG_CHANGE_MSG = 2,
    VW_VU_BACK_END_VRING_HOST_NOTIFIER_MSG = 3,
    VW_VU_BACK_END_VRING_CALL = 4,
    VW_VU_BACK_END_VRING_ERR = 5,
    VW_VU_BACK_END_SHARED_OBJECT_ADD = 6,
    VW_VU_BACK_END_SHARED_OBJECT_REMOVE = 7,
    VW_VU_BACK_END_SHARED_OBJECT_LOOKUP = 8,
    VW_VU_BACK_END_SHMEM_MAP = 9,
    VW_VU_BACK_END_SHMEM_UNMAP = 10,
    VW_VU_BACK_END_REQUEST_END,
};

/* Protocol features, by bit number. The meaning of 20 and above differs between peers: not ours. */
enum vw_vu_protocol_feature {
    VW_VU_PF_MQ = 0,
    VW_VU_PF_LOG_SHMFD = 1,
    VW_VU_PF_RARP = 2,
    VW_VU_PF_REPLY_ACK = 3,
    VW_VU_PF_MTU = 4,
    VW_VU_PF_BACKEND_REQ = 5,
    VW_VU_PF_CROSS_ENDIAN = 6,
    VW_VU_PF_CRYPTO_SESSION = 7,
    VW_VU_PF_PAGEFAULT = 8,
    VW_VU_PF_CONFIG = 9,
    VW_VU_PF_BACKEND_SEND_FD = 10,
    VW_VU_PF_HOST_NOTIFIER = 11,
    VW_VU_PF_INFLIGHT_SHMFD = 12,
    VW_VU_PF_RESET_DEVICE = 13,
    VW_VU_PF_INBAND_NOTIFICATIONS = 14,
    VW_VU_PF_CONFIGURE_MEM_SLOTS = 15,
    VW_VU_PF_STATUS = 16,
    VW_VU_PF_XEN_MMAP = 17,
    VW_VU_PF_SHARED_OBJECT = 18,
    VW_VU_PF_DEVICE_STATE = 19,
};

#define VW_VU_PACKED __attribute__((packed))

struct vw_vu_header {
    uint32_t request;
    uint32_t flags;
    uint32_t size; /* of the payload */
} VW_VU_PACKED;

struct vw_vu_state {
    uint32_t index;
    uint32_t num;
} VW_VU_PACKED;

struct vw_vu_address {
    uint32_t index;
    uint32_t flags;
    uint64_t descriptor; /* addresses of the front-end's process */
    uint64_t used;       /* before available, unlike everywhere else */
    uint64_t available;
    uint64_t log;        /* a guest address */
} VW_VU_PACKED;

struct vw_vu_region {
    uint64_t guest;
    uint64_t size;
    uint64_t user;
    uint64_t offset; /* in the file */
} VW_VU_PACKED;

struct vw_vu_memory {
    uint32_t count;
    uint32_t padding;
    struct vw_vu_region regions[VW_VU_MAX_TABLE_REGIONS];
} VW_VU_PACKED;

struct vw_vu_single_region {
    uint64_t padding;
    struct vw_vu_region region;
} VW_VU_PACKED;

struct vw_vu_log_area {
    uint64_t size;
    uint64_t offset;
} VW_VU_PACKED;

struct vw_vu_iotlb {
    uint64_t iova;
    uint64_t size;
    uint64_t user;
    uint8_t permission;
    uint8_t type;
    uint8_t tail[6]; /* peers send the padding of a C structure; the fields end before it */
} VW_VU_PACKED;

struct vw_vu_config {
    uint32_t offset;
    uint32_t size;
    uint32_t flags; /* SET_CONFIG: 0 a write by the driver, 1 live migration */
    uint8_t bytes[VW_VU_MAX_CONFIG];
} VW_VU_PACKED;

struct vw_vu_inflight {
    uint64_t mmap_size;
    uint64_t mmap_offset;
    uint16_t queues;
    uint16_t queue_size;
    uint8_t tail[4]; /* as in vw_vu_iotlb */
} VW_VU_PACKED;

struct vw_vu_area {
    uint64_t ring; /* as SET_VRING_KICK */
    uint64_t size;
    uint64_t offset;
} VW_VU_PACKED;

struct vw_vu_device_state {
    uint32_t direction; /* 0 save, 1 load */
    uint32_t phase;
} VW_VU_PACKED;

#define VW_VU_HEADER_SIZE 12
#define VW_VU_CONFIG_HEADER 12 /* the part of vw_vu_config before its bytes */

/* A message as it lies on the wire: header.size bytes of the payload are sent or valid. */
struct vw_vu_message {
    struct vw_vu_header header;
    union {
        uint64_t u64;
        struct vw_vu_state state;
        struct vw_vu_address address;
        struct vw_vu_memory memory;
        struct vw_vu_single_region region;
        struct vw_vu_log_area log;
        struct vw_vu_iotlb iotlb;
        struct vw_vu_config config;
        struct vw_vu_inflight inflight;
        struct vw_vu_area area;
        struct vw_vu_device_state device_state;
        uint8_t bytes[VW_VU_MAX_PAYLOAD];
    } VW_VU_PACKED payload;
} VW_VU_PACKED;

_Static_assert(sizeof(struct vw_vu_header) == VW_VU_HEADER_SIZE, "vhost-user header");
_Static_assert(sizeof(struct vw_vu_state) == 8, "vhost-user vring state");
_Static_assert(sizeof(struct vw_vu_address) == 40, "vhost-user vring address");
_Static_assert(sizeof(struct vw_vu_region) == 32, "vhost-user memory region");
_Static_assert(sizeof(struct vw_vu_memory) == 264, "vhost-user memory table");
_Static_assert(sizeof(struct vw_vu_single_region) == 40, "vhost-user single memory region");
_Static_assert(sizeof(struct vw_vu_log_area) == 16, "vhost-user log");
_Static_assert(sizeof(struct vw_vu_iotlb) == 32, "vhost-user IOTLB message");
_Static_assert(sizeof(struct vw_vu_config) == 268, "vhost-user configuration space");
_Static_assert(sizeof(struct vw_vu_inflight) == 24, "vhost-user in-flight area");
_Static_assert(sizeof(struct vw_vu_area) == 24, "vhost-user vring area");
_Static_assert(sizeof(struct vw_vu_message) == VW_VU_HEADER_SIZE + VW_VU_MAX_PAYLOAD,
               "vhost-user message");

/* Whose requests a socket carries: selects the half of the table. */
enum vw_vu_requester {
    VW_VU_FRONT_END,
    VW_VU_BACK_END,
};

enum vw_vu_reply_rule {
    VW_VU_REPLY_ACK,          /* none of its own; an acknowledgement where it was negotiated */
    VW_VU_REPLY_OWN,          /* always answered by a reply of its own, and never twice */
    VW_VU_REPLY_OWN_IF_GATED, /* its own reply if its protocol feature was acknowledged */
};

struct vw_vu_limits;

enum vw_vu_verdict {
    VW_VU_OK,
    VW_VU_REFUSED,
    VW_VU_UNKNOWN,
    VW_VU_FATAL,
};

/* What must have been negotiated before a request may be sent. */
struct vw_vu_gate {
    enum {
        VW_VU_OPEN = 0,              /* nothing */
        VW_VU_GATE_PROTOCOL,         /* protocol feature `bit` acknowledged */
        VW_VU_GATE_OFFERED,          /* virtio feature `bit` offered */
        VW_VU_GATE_ACKNOWLEDGED,     /* virtio feature `bit` acknowledged */
        VW_VU_GATE_NEVER,            /* nothing that virtwire negotiates allows it */
    } kind;
    unsigned bit;
};

/* The row of a request. */
struct vw_vu_request_info {
    const char *name; /* as in the specification: "SET_VRING_NUM" */
    uint16_t size_min, size_max;
    uint8_t fds_min, fds_max;
    bool nofd_bit;  /* the NOFD bit of the u64 says that no descriptor comes */
    bool essential; /* a refusal that cannot be told to the peer is fatal */
    struct vw_vu_gate gates[2];
    enum vw_vu_reply_rule reply;
    uint16_t reply_min, reply_max; /* payload of its own reply */
    uint8_t reply_fds_max;
    enum vw_vu_verdict (*check)(const struct vw_vu_message *message, unsigned fd_count,
                                const struct vw_vu_limits *limits, const char **why);
};

/* The row of a request, or NULL if there is no such request. */
const struct vw_vu_request_info *vw_vu_request_info(enum vw_vu_requester requester,
                                                    uint32_t request);

/* Its name for people; "unknown request" if there is none. */
const char *vw_vu_request_name(enum vw_vu_requester requester, uint32_t request);

/* What was negotiated so far, and how much there is of everything. */
struct vw_vu_limits {
    uint64_t offered_features;      /* as GET_FEATURES answered */
    uint64_t acknowledged_features; /* as the last SET_FEATURES said */
    uint64_t offered_protocol;
    uint64_t acknowledged_protocol;
    uint32_t rings;                 /* ring indices are below this */
    uint32_t max_ring_size;         /* 0: 32768 */
    uint32_t config_size;           /* 0: 256 */
};

/*
 * Checks a header before its payload is read. `reply`: replies to requests of `requester` are
 * expected, otherwise requests. Returns VW_VU_OK or VW_VU_FATAL, with a phrase in *why.
 */
enum vw_vu_verdict vw_vu_check_header(enum vw_vu_requester requester, bool reply,
                                      const struct vw_vu_header *header, const char **why);

/*
 * Checks a complete request that came with `fd_count` descriptors: size, descriptors, gate, then
 * contents. *why is a phrase for a log line, unless VW_VU_OK.
 */
enum vw_vu_verdict vw_vu_check(enum vw_vu_requester requester, const struct vw_vu_message *message,
                               unsigned fd_count, const struct vw_vu_limits *limits,
                               const char **why);

/*
 * Checks a reply to `request`. VW_VU_REFUSED: the reply is an acknowledgement that says no, or a
 * GET_CONFIG reply without contents.
 */
enum vw_vu_verdict vw_vu_check_reply(enum vw_vu_requester requester,
                                     const struct vw_vu_message *request,
                                     const struct vw_vu_message *reply, unsigned fd_count,
                                     const char **why);

/*
 * Writes one sentence for the log about a message that was not accepted, for example
 * "SET_VRING_NUM (8 bytes, 0 descriptors): ring index is not below the number of rings".
 * Returns `text`.
 */
const char *vw_vu_describe(enum vw_vu_requester requester, const struct vw_vu_header *header,
                           unsigned fd_count, const char *why, char *text, size_t size);

/* How a request is answered that was carried out. */
enum vw_vu_answer {
    VW_VU_ANSWER_NONE,
    VW_VU_ANSWER_ACK, /* vw_vu_ack */
    VW_VU_ANSWER_OWN, /* the request's own reply, whatever NEED_REPLY says */
};

/*
 * `acknowledged_protocol` are the protocol features in force before the request. For
 * SET_PROTOCOL_FEATURES the value that it carries counts: a front-end that has just chosen
 * REPLY_ACK may ask for an acknowledgement of that very message, and User-mode Linux does.
 */
enum vw_vu_answer vw_vu_answer(enum vw_vu_requester requester, const struct vw_vu_message *request,
                               uint64_t acknowledged_protocol);

/* Replies. Each fills the header and the payload; the payload may be in the request's place. */
void vw_vu_reply(struct vw_vu_message *reply, const struct vw_vu_message *request, uint32_t size);
void vw_vu_reply_u64(struct vw_vu_message *reply, const struct vw_vu_message *request,
                     uint64_t value);
void vw_vu_reply_state(struct vw_vu_message *reply, const struct vw_vu_message *request,
                       uint32_t index, uint32_t num);

/* The reply to GET_CONFIG: `bytes` are config.size bytes of the space from config.offset on. */
void vw_vu_reply_config(struct vw_vu_message *reply, const struct vw_vu_message *request,
                        const void *bytes);

/*
 * The acknowledgement of a request, `error` 0 for success. Returns false if none is due: nothing
 * is to be sent, or the request's own reply.
 */
bool vw_vu_ack(enum vw_vu_requester requester, struct vw_vu_message *reply,
               const struct vw_vu_message *request, uint64_t acknowledged_protocol,
               uint64_t error);

/*
 * What to send for a request that was refused (by vw_vu_check, or later by the device): an
 * acknowledgement that says no, or a GET_CONFIG reply without contents. Returns false if nothing
 * can be sent. If the request has a reply of its own and none can say no, `*fatal` is set: its
 * sender waits for ever, and the connection is to be dropped. The same for a request that must
 * not fail unnoticed. `fatal` may be NULL.
 */
bool vw_vu_refuse(enum vw_vu_requester requester, struct vw_vu_message *reply,
                  const struct vw_vu_message *request, uint64_t acknowledged_protocol,
                  bool *fatal);

/* Requests, of both ends. The payload is zeroed; the table says what descriptors go along. */
void vw_vu_request(struct vw_vu_message *message, uint32_t request, uint32_t size);
void vw_vu_request_u64(struct vw_vu_message *message, uint32_t request, uint64_t value);
void vw_vu_request_state(struct vw_vu_message *message, uint32_t request, uint32_t index,
                         uint32_t num);

/* SET_VRING_KICK, CALL and ERR. */
void vw_vu_request_ring_fd(struct vw_vu_message *message, uint32_t request, uint32_t index,
                           bool with_fd);

/* Asks for an acknowledgement, if that was negotiated and the request has no reply of its own. */
void vw_vu_need_reply(enum vw_vu_requester requester, struct vw_vu_message *message,
                      uint64_t acknowledged_protocol);

/* Requests of the back-end. */
void vw_vu_config_change(struct vw_vu_message *message);
void vw_vu_vring_call(struct vw_vu_message *message, uint32_t index);
void vw_vu_vring_err(struct vw_vu_message *message, uint32_t index);

#endif
