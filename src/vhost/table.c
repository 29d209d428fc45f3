/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * One row for each request of either end. A reader who wants to know what virtwire takes, and in
 * which shape, finds it here and nowhere else; message.c only applies the rows.
 *
 * Gates are as the specification has them, but for two. SET_VRING_ENABLE and NET_SET_MTU ask for a
 * virtio feature "negotiated", and QEMU sends both before its first SET_FEATURES, so that a
 * feature *offered* has to be enough.
 *
 * Rows that VW_VU_GATE_NEVER or an unoffered feature closes are there so that a peer's attempt is
 * named in the log, and answered by the right rule.
 */
#include "vhost/message.h"

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

#include "vhost/payload.h"

#define SIZE(minimum, maximum) .size_min = (minimum), .size_max = (maximum)
#define EMPTY SIZE(0, 0)
#define U64 SIZE(8, 8)
#define STATE SIZE(8, 8)
#define UUID SIZE(16, 16)
#define CONFIG SIZE(VW_VU_CONFIG_HEADER, sizeof(struct vw_vu_config))
#define IOTLB SIZE(26, sizeof(struct vw_vu_iotlb))
#define INFLIGHT SIZE(20, sizeof(struct vw_vu_inflight))
#define SHMEM_MAPPING SIZE(40, 40)

#define FDS(minimum, maximum) .fds_min = (minimum), .fds_max = (maximum)
#define FD_OR_NOFD .fds_min = 0, .fds_max = 1, .nofd_bit = true

#define PROTOCOL(number) .gates[0] = {VW_VU_GATE_PROTOCOL, VW_VU_PF_##number}
#define OFFERED(number) .gates[1] = {VW_VU_GATE_OFFERED, number}
#define ACKNOWLEDGED(number) .gates[1] = {VW_VU_GATE_ACKNOWLEDGED, number}
#define NEVER .gates[0] = {VW_VU_GATE_NEVER, 0}

#define OWN(minimum, maximum, fds)                                                                 \
    .reply = VW_VU_REPLY_OWN, .reply_min = (minimum), .reply_max = (maximum), .reply_fds_max = (fds)
#define ESSENTIAL .essential = true
#define CHECK(name) .check = vw_vu_check_##name

static const struct vw_vu_request_info front_end_requests[VW_VU_REQUEST_END] = {
    [VW_VU_GET_FEATURES] = {"GET_FEATURES", EMPTY, OWN(8, 8, 0)},
    [VW_VU_SET_FEATURES] = {"SET_FEATURES", U64, ESSENTIAL, CHECK(features)},
    [VW_VU_SET_OWNER] = {"SET_OWNER", EMPTY},
    [VW_VU_RESET_OWNER] = {"RESET_OWNER", EMPTY},
    [VW_VU_SET_MEM_TABLE] = {"SET_MEM_TABLE", SIZE(8, sizeof(struct vw_vu_memory)),
                             FDS(0, VW_VU_MAX_TABLE_REGIONS), ESSENTIAL, CHECK(memory_table)},
    /* A reply of no bytes or of a u64: back-ends differ. */
    [VW_VU_SET_LOG_BASE] = {"SET_LOG_BASE", SIZE(8, sizeof(struct vw_vu_log_area)), FDS(0, 1),
                            PROTOCOL(LOG_SHMFD), .reply = VW_VU_REPLY_OWN_IF_GATED, .reply_max = 8,
                            CHECK(log_base)},
    [VW_VU_SET_LOG_FD] = {"SET_LOG_FD", EMPTY, FDS(1, 1), OFFERED(VW_VU_F_LOG_ALL)},

    [VW_VU_SET_VRING_NUM] = {"SET_VRING_NUM", STATE, ESSENTIAL, CHECK(ring_num)},
    [VW_VU_SET_VRING_ADDR] = {"SET_VRING_ADDR", SIZE(40, 40), ESSENTIAL, CHECK(ring_address)},
    [VW_VU_SET_VRING_BASE] = {"SET_VRING_BASE", STATE, ESSENTIAL, CHECK(ring_base)},
    [VW_VU_GET_VRING_BASE] = {"GET_VRING_BASE", STATE, OWN(8, 8, 0), CHECK(ring_index)},
    [VW_VU_SET_VRING_KICK] = {"SET_VRING_KICK", U64, FD_OR_NOFD, ESSENTIAL, CHECK(ring_fd)},
    [VW_VU_SET_VRING_CALL] = {"SET_VRING_CALL", U64, FD_OR_NOFD, ESSENTIAL, CHECK(ring_fd)},
    [VW_VU_SET_VRING_ERR] = {"SET_VRING_ERR", U64, FD_OR_NOFD, CHECK(ring_fd)},

    [VW_VU_GET_PROTOCOL_FEATURES] = {"GET_PROTOCOL_FEATURES", EMPTY,
                                     OFFERED(VW_VU_F_PROTOCOL_FEATURES), OWN(8, 8, 0)},
    [VW_VU_SET_PROTOCOL_FEATURES] = {"SET_PROTOCOL_FEATURES", U64,
                                     OFFERED(VW_VU_F_PROTOCOL_FEATURES), ESSENTIAL,
                                     CHECK(protocol_features)},
    [VW_VU_GET_QUEUE_NUM] = {"GET_QUEUE_NUM", EMPTY, PROTOCOL(MQ), OWN(8, 8, 0)},
    [VW_VU_SET_VRING_ENABLE] = {"SET_VRING_ENABLE", STATE, OFFERED(VW_VU_F_PROTOCOL_FEATURES),
                                ESSENTIAL, CHECK(ring_switch)},
    [VW_VU_SEND_RARP] = {"SEND_RARP", U64, PROTOCOL(RARP)},
    [VW_VU_NET_SET_MTU] = {"NET_SET_MTU", U64, PROTOCOL(MTU), OFFERED(VIRTIO_NET_F_MTU),
                           CHECK(mtu)},
    [VW_VU_SET_BACKEND_REQ_FD] = {"SET_BACKEND_REQ_FD", EMPTY, FDS(1, 1), PROTOCOL(BACKEND_REQ)},
    [VW_VU_IOTLB_MSG] = {"IOTLB_MSG", IOTLB, ACKNOWLEDGED(VIRTIO_F_ACCESS_PLATFORM), OWN(8, 8, 0),
                         CHECK(iotlb)},
    [VW_VU_SET_VRING_ENDIAN] = {"SET_VRING_ENDIAN", STATE, PROTOCOL(CROSS_ENDIAN), ESSENTIAL,
                                CHECK(ring_switch)},
    /* A reply without bytes says that it cannot be done. */
    [VW_VU_GET_CONFIG] = {"GET_CONFIG", CONFIG, PROTOCOL(CONFIG),
                          OWN(0, sizeof(struct vw_vu_config), 0), CHECK(config)},
    [VW_VU_SET_CONFIG] = {"SET_CONFIG", CONFIG, PROTOCOL(CONFIG), CHECK(set_config)},

    [VW_VU_CREATE_CRYPTO_SESSION] = {"CREATE_CRYPTO_SESSION", SIZE(0, VW_VU_MAX_PAYLOAD),
                                     PROTOCOL(CRYPTO_SESSION), OWN(0, VW_VU_MAX_PAYLOAD, 0)},
    [VW_VU_CLOSE_CRYPTO_SESSION] = {"CLOSE_CRYPTO_SESSION", SIZE(0, 8), PROTOCOL(CRYPTO_SESSION)},
    [VW_VU_POSTCOPY_ADVISE] = {"POSTCOPY_ADVISE", EMPTY, PROTOCOL(PAGEFAULT), OWN(0, 8, 1)},
    [VW_VU_POSTCOPY_LISTEN] = {"POSTCOPY_LISTEN", EMPTY, PROTOCOL(PAGEFAULT)},
    [VW_VU_POSTCOPY_END] = {"POSTCOPY_END", EMPTY, PROTOCOL(PAGEFAULT), OWN(8, 8, 0)},
    [VW_VU_GET_INFLIGHT_FD] = {"GET_INFLIGHT_FD", INFLIGHT, PROTOCOL(INFLIGHT_SHMFD),
                               OWN(20, sizeof(struct vw_vu_inflight), 1), CHECK(inflight)},
    [VW_VU_SET_INFLIGHT_FD] = {"SET_INFLIGHT_FD", INFLIGHT, FDS(1, 1), PROTOCOL(INFLIGHT_SHMFD),
                               ESSENTIAL, CHECK(inflight)},
    [VW_VU_GPU_SET_SOCKET] = {"GPU_SET_SOCKET", EMPTY, FDS(1, 1), NEVER},
    [VW_VU_RESET_DEVICE] = {"RESET_DEVICE", EMPTY, PROTOCOL(RESET_DEVICE)},
    [VW_VU_VRING_KICK] = {"VRING_KICK", STATE, PROTOCOL(INBAND_NOTIFICATIONS), CHECK(ring_index)},

    [VW_VU_GET_MAX_MEM_SLOTS] = {"GET_MAX_MEM_SLOTS", EMPTY, PROTOCOL(CONFIGURE_MEM_SLOTS),
                                 OWN(8, 8, 0)},
    [VW_VU_ADD_MEM_REG] = {"ADD_MEM_REG", SIZE(40, 40), FDS(1, 1), PROTOCOL(CONFIGURE_MEM_SLOTS),
                           ESSENTIAL, CHECK(memory_region)},
    /* No descriptor belongs here, but some front-ends send one: it is taken, and closed. */
    [VW_VU_REM_MEM_REG] = {"REM_MEM_REG", SIZE(40, 40), FDS(0, 1), PROTOCOL(CONFIGURE_MEM_SLOTS),
                           ESSENTIAL, CHECK(memory_region)},
    [VW_VU_SET_STATUS] = {"SET_STATUS", U64, PROTOCOL(STATUS), CHECK(status)},
    [VW_VU_GET_STATUS] = {"GET_STATUS", EMPTY, PROTOCOL(STATUS), OWN(8, 8, 0)},
    [VW_VU_GET_SHARED_OBJECT] = {"GET_SHARED_OBJECT", UUID, PROTOCOL(SHARED_OBJECT), OWN(0, 16, 1)},
    [VW_VU_SET_DEVICE_STATE_FD] = {"SET_DEVICE_STATE_FD", STATE, FDS(1, 1), PROTOCOL(DEVICE_STATE),
                                   OWN(8, 8, 1), CHECK(device_state)},
    [VW_VU_CHECK_DEVICE_STATE] = {"CHECK_DEVICE_STATE", EMPTY, PROTOCOL(DEVICE_STATE),
                                  OWN(8, 8, 0)},
    /* The number of its protocol feature differs between peers. */
    [VW_VU_GET_SHMEM_CONFIG] = {"GET_SHMEM_CONFIG", EMPTY, NEVER, OWN(8, VW_VU_MAX_PAYLOAD, 0)},
};

static const struct vw_vu_request_info back_end_requests[VW_VU_BACK_END_REQUEST_END] = {
    [VW_VU_BACK_END_IOTLB_MSG] = {"BACKEND_IOTLB_MSG", IOTLB,
                                  ACKNOWLEDGED(VIRTIO_F_ACCESS_PLATFORM), CHECK(iotlb)},
    [VW_VU_BACK_END_CONFIG_CHANGE_MSG] = {"BACKEND_CONFIG_CHANGE_MSG", EMPTY, PROTOCOL(CONFIG)},
    [VW_VU_BACK_END_VRING_HOST_NOTIFIER_MSG] = {"BACKEND_VRING_HOST_NOTIFIER_MSG", SIZE(24, 24),
                                                FD_OR_NOFD, PROTOCOL(HOST_NOTIFIER), CHECK(area)},
    [VW_VU_BACK_END_VRING_CALL] = {"BACKEND_VRING_CALL", STATE, PROTOCOL(INBAND_NOTIFICATIONS),
                                   CHECK(ring_index)},
    [VW_VU_BACK_END_VRING_ERR] = {"BACKEND_VRING_ERR", STATE, PROTOCOL(INBAND_NOTIFICATIONS),
                                  CHECK(ring_index)},
    [VW_VU_BACK_END_SHARED_OBJECT_ADD] = {"BACKEND_SHARED_OBJECT_ADD", UUID,
                                          PROTOCOL(SHARED_OBJECT)},
    [VW_VU_BACK_END_SHARED_OBJECT_REMOVE] = {"BACKEND_SHARED_OBJECT_REMOVE", UUID,
                                             PROTOCOL(SHARED_OBJECT)},
    [VW_VU_BACK_END_SHARED_OBJECT_LOOKUP] = {"BACKEND_SHARED_OBJECT_LOOKUP", UUID,
                                             PROTOCOL(SHARED_OBJECT), OWN(8, 8, 1)},
    [VW_VU_BACK_END_SHMEM_MAP] = {"BACKEND_SHMEM_MAP", SHMEM_MAPPING, FDS(1, 1), NEVER},
    [VW_VU_BACK_END_SHMEM_UNMAP] = {"BACKEND_SHMEM_UNMAP", SHMEM_MAPPING, NEVER, OWN(8, 8, 0)},
};

const struct vw_vu_request_info *vw_vu_request_info(enum vw_vu_requester requester,
                                                    uint32_t request)
{
    const struct vw_vu_request_info *table = front_end_requests;
    uint32_t end = VW_VU_REQUEST_END;

    if (requester == VW_VU_BACK_END) {
        table = back_end_requests;
        end = VW_VU_BACK_END_REQUEST_END;
    }
    return request < end && table[request].name ? &table[request] : NULL;
}

const char *vw_vu_request_name(enum vw_vu_requester requester, uint32_t request)
{
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, request);

    return info ? info->name : "unknown request";
}
