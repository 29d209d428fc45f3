/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Theory of operation
 * -------------------
 * Applies the rows of table.c to messages. The order of the checks is size, descriptors, gate,
 * contents: a payload is looked into only when it is as long as its request demands.
 *
 * A refusal becomes fatal here, and only here, if its sender could not learn of it and either
 * waits for a reply or would go on as if it had been obeyed.
 */
#include "vhost/message.h"

#include <linux/virtio_net.h>
#include <stdio.h>
#include <string.h>

#define ACK_SIZE 8 /* a u64, 0 for success */

enum vw_vu_verdict vw_vu_check_header(enum vw_vu_requester requester, bool reply,
                                      const struct vw_vu_header *header, const char **why)
{
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, header->request);
    uint32_t max = VW_VU_MAX_PAYLOAD;

    if (info && reply)
        max = info->reply_max > ACK_SIZE ? info->reply_max : ACK_SIZE;
    else if (info)
        max = info->size_max;

    if ((header->flags & VW_VU_FLAG_VERSION) != VW_VU_VERSION)
        *why = "version of the protocol is not 1";
    else if (!reply && (header->flags & VW_VU_FLAG_REPLY))
        *why = "a reply where a request was expected";
    else if (reply && !(header->flags & VW_VU_FLAG_REPLY))
        *why = "a request where a reply was expected";
    else if (header->size > max)
        *why = "payload is longer than such a message can be";
    else
        return VW_VU_OK;
    return VW_VU_FATAL;
}

static bool fds_fit(const struct vw_vu_request_info *info, const struct vw_vu_message *message,
                    unsigned fd_count)
{
    /* The bit and the descriptor exclude each other. */
    if (info->nofd_bit)
        return fd_count == (message->payload.u64 & VW_VU_RING_NOFD ? 0 : 1);
    return fd_count >= info->fds_min && fd_count <= info->fds_max;
}

static const char *gate_fault(const struct vw_vu_gate *gate, const struct vw_vu_limits *limits)
{
    switch (gate->kind) {
    case VW_VU_OPEN:
        return NULL;
    case VW_VU_GATE_PROTOCOL:
        return vw_has(limits->acknowledged_protocol, gate->bit)
                   ? NULL
                   : "its protocol feature was not negotiated";
    case VW_VU_GATE_OFFERED:
        return vw_has(limits->offered_features, gate->bit) ? NULL
                                                           : "its virtio feature was not offered";
    case VW_VU_GATE_ACKNOWLEDGED:
        return vw_has(limits->acknowledged_features, gate->bit)
                   ? NULL
                   : "its virtio feature was not negotiated";
    case VW_VU_GATE_NEVER:
        break;
    }
    return "not supported";
}

static enum vw_vu_verdict check_row(const struct vw_vu_request_info *info,
                                    const struct vw_vu_message *message, unsigned fd_count,
                                    const struct vw_vu_limits *limits, const char **why)
{
    if (message->header.size < info->size_min || message->header.size > info->size_max) {
        *why =
            message->header.size < info->size_min ? "payload is too short" : "payload is too long";
        return VW_VU_FATAL;
    }
    if (!fds_fit(info, message, fd_count)) {
        *why = "wrong number of file descriptors";
        return VW_VU_FATAL;
    }
    for (unsigned i = 0; i < VW_ARRAY_SIZE(info->gates); i++) {
        *why = gate_fault(&info->gates[i], limits);
        if (*why)
            return VW_VU_REFUSED;
    }
    return info->check ? info->check(message, fd_count, limits, why) : VW_VU_OK;
}

/*
 * GET_CONFIG can say no in its own reply, if the front-end knows of it. All other refusals are
 * acknowledgements.
 */
static bool can_refuse(enum vw_vu_requester requester, const struct vw_vu_message *request,
                       uint64_t acknowledged_protocol)
{
    switch (vw_vu_answer(requester, request, acknowledged_protocol)) {
    case VW_VU_ANSWER_ACK:
        return true;
    case VW_VU_ANSWER_OWN:
        return requester == VW_VU_FRONT_END && request->header.request == VW_VU_GET_CONFIG;
    case VW_VU_ANSWER_NONE:
        break;
    }
    return false;
}

static bool refusal_is_fatal(enum vw_vu_requester requester, const struct vw_vu_message *request,
                             uint64_t acknowledged_protocol)
{
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, request->header.request);

    if (!info || can_refuse(requester, request, acknowledged_protocol))
        return false;
    return info->essential ||
           vw_vu_answer(requester, request, acknowledged_protocol) == VW_VU_ANSWER_OWN;
}

enum vw_vu_verdict vw_vu_check(enum vw_vu_requester requester, const struct vw_vu_message *message,
                               unsigned fd_count, const struct vw_vu_limits *limits,
                               const char **why)
{
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, message->header.request);
    enum vw_vu_verdict verdict = vw_vu_check_header(requester, false, &message->header, why);

    if (verdict != VW_VU_OK)
        return verdict;
    if (!info) {
        *why = "no such request is known";
        return VW_VU_UNKNOWN;
    }
    verdict = check_row(info, message, fd_count, limits, why);
    if (verdict == VW_VU_REFUSED &&
        refusal_is_fatal(requester, message, limits->acknowledged_protocol))
        verdict = VW_VU_FATAL;
    return verdict;
}

/* The reply to GET_CONFIG has the size of its request, or says no by having none. */
static bool own_reply_fits(const struct vw_vu_request_info *info,
                           const struct vw_vu_message *request, const struct vw_vu_message *reply)
{
    uint32_t size = reply->header.size;

    if (size < info->reply_min || size > info->reply_max)
        return false;
    if (request->header.request == VW_VU_GET_CONFIG)
        return size == 0 || size == request->header.size;
    return true;
}

/* What must be the same in the reply to GET_CONFIG, so that no other bytes pass for those asked. */
static bool config_reply_matches(const struct vw_vu_message *request,
                                 const struct vw_vu_message *reply)
{
    return reply->payload.config.offset == request->payload.config.offset &&
           reply->payload.config.size == request->payload.config.size;
}

enum vw_vu_verdict vw_vu_check_reply(enum vw_vu_requester requester,
                                     const struct vw_vu_message *request,
                                     const struct vw_vu_message *reply, unsigned fd_count,
                                     const char **why)
{
    uint32_t number = request->header.request;
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, number);
    enum vw_vu_verdict verdict = vw_vu_check_header(requester, true, &reply->header, why);
    bool own = info && info->reply != VW_VU_REPLY_ACK;
    bool config = requester == VW_VU_FRONT_END && number == VW_VU_GET_CONFIG;

    if (verdict != VW_VU_OK)
        return verdict;
    verdict = VW_VU_FATAL;
    if (reply->header.request != number) {
        *why = "a reply to another request";
    } else if (own ? !own_reply_fits(info, request, reply) : reply->header.size != ACK_SIZE) {
        *why = "reply has the wrong size";
    } else if (fd_count > (own ? info->reply_fds_max : 0)) {
        *why = "too many file descriptors with a reply";
    } else if (config && reply->header.size == 0) {
        *why = "the peer refused to read its configuration space";
        verdict = VW_VU_REFUSED;
    } else if (config && !config_reply_matches(request, reply)) {
        *why = "reply is about another part of the configuration space";
    } else if (!own && reply->payload.u64 != 0) {
        *why = "the peer refused the request";
        verdict = VW_VU_REFUSED;
    } else {
        verdict = VW_VU_OK;
    }
    return verdict;
}

const char *vw_vu_describe(enum vw_vu_requester requester, const struct vw_vu_header *header,
                           unsigned fd_count, const char *why, char *text, size_t size)
{
    uint32_t number = header->request;
    uint32_t bytes = header->size;

    if (vw_vu_request_info(requester, number))
        snprintf(text, size, "%s (%u bytes, %u descriptors): %s",
                 vw_vu_request_name(requester, number), bytes, fd_count, why);
    else
        snprintf(text, size, "request %u (%u bytes, %u descriptors): %s", number, bytes, fd_count,
                 why);
    return text;
}

enum vw_vu_answer vw_vu_answer(enum vw_vu_requester requester, const struct vw_vu_message *request,
                               uint64_t acknowledged_protocol)
{
    uint32_t number = request->header.request;
    const struct vw_vu_request_info *info = vw_vu_request_info(requester, number);
    uint64_t protocol = acknowledged_protocol;

    if (info && info->reply == VW_VU_REPLY_OWN)
        return VW_VU_ANSWER_OWN;
    if (info && info->reply == VW_VU_REPLY_OWN_IF_GATED && vw_has(protocol, info->gates[0].bit))
        return VW_VU_ANSWER_OWN;
    if (requester == VW_VU_FRONT_END && number == VW_VU_SET_PROTOCOL_FEATURES &&
        request->header.size == sizeof(request->payload.u64))
        protocol = request->payload.u64;
    /* By what was acknowledged, not by what was offered: a front-end that did not choose
     * REPLY_ACK may leave anything in the bit, and expects nothing. */
    if (vw_has(protocol, VW_VU_PF_REPLY_ACK) && (request->header.flags & VW_VU_FLAG_NEED_REPLY))
        return VW_VU_ANSWER_ACK;
    return VW_VU_ANSWER_NONE;
}

void vw_vu_reply(struct vw_vu_message *reply, const struct vw_vu_message *request, uint32_t size)
{
    vw_vu_request(reply, request->header.request, size);
    reply->header.flags = VW_VU_VERSION | VW_VU_FLAG_REPLY;
}

void vw_vu_reply_u64(struct vw_vu_message *reply, const struct vw_vu_message *request,
                     uint64_t value)
{
    vw_vu_reply(reply, request, sizeof(value));
    reply->payload.u64 = value;
}

void vw_vu_reply_state(struct vw_vu_message *reply, const struct vw_vu_message *request,
                       uint32_t index, uint32_t num)
{
    vw_vu_reply(reply, request, sizeof(struct vw_vu_state));
    reply->payload.state.index = index;
    reply->payload.state.num = num;
}

void vw_vu_reply_config(struct vw_vu_message *reply, const struct vw_vu_message *request,
                        const void *bytes)
{
    uint32_t offset = request->payload.config.offset;
    uint32_t flags = request->payload.config.flags;
    uint32_t size = (uint32_t)vw_min64(request->payload.config.size, VW_VU_MAX_CONFIG);

    vw_vu_reply(reply, request, VW_VU_CONFIG_HEADER + size);
    reply->payload.config.offset = offset;
    reply->payload.config.size = size;
    reply->payload.config.flags = flags;
    memcpy(reply->payload.config.bytes, bytes, size);
}

bool vw_vu_ack(enum vw_vu_requester requester, struct vw_vu_message *reply,
               const struct vw_vu_message *request, uint64_t acknowledged_protocol, uint64_t error)
{
    if (vw_vu_answer(requester, request, acknowledged_protocol) != VW_VU_ANSWER_ACK)
        return false;
    vw_vu_reply_u64(reply, request, error);
    return true;
}

bool vw_vu_refuse(enum vw_vu_requester requester, struct vw_vu_message *reply,
                  const struct vw_vu_message *request, uint64_t acknowledged_protocol, bool *fatal)
{
    if (fatal)
        *fatal = refusal_is_fatal(requester, request, acknowledged_protocol);
    if (!can_refuse(requester, request, acknowledged_protocol))
        return false;
    if (!vw_vu_ack(requester, reply, request, acknowledged_protocol, 1))
        vw_vu_reply(reply, request, 0);
    return true;
}

void vw_vu_request(struct vw_vu_message *message, uint32_t request, uint32_t size)
{
    size = (uint32_t)vw_min64(size, VW_VU_MAX_PAYLOAD);
    message->header.request = request;
    message->header.flags = VW_VU_VERSION;
    message->header.size = size;
    memset(message->payload.bytes, 0, size);
}

void vw_vu_request_u64(struct vw_vu_message *message, uint32_t request, uint64_t value)
{
    vw_vu_request(message, request, sizeof(value));
    message->payload.u64 = value;
}

void vw_vu_request_state(struct vw_vu_message *message, uint32_t request, uint32_t index,
                         uint32_t num)
{
    vw_vu_request(message, request, sizeof(struct vw_vu_state));
    message->payload.state.index = index;
    message->payload.state.num = num;
}

void vw_vu_request_ring_fd(struct vw_vu_message *message, uint32_t request, uint32_t index,
                           bool with_fd)
{
    vw_vu_request_u64(message, request,
                      (index & VW_VU_RING_MASK) | (with_fd ? 0 : VW_VU_RING_NOFD));
}

void vw_vu_need_reply(enum vw_vu_requester requester, struct vw_vu_message *message,
                      uint64_t acknowledged_protocol)
{
    uint32_t before = message->header.flags;

    message->header.flags = before | VW_VU_FLAG_NEED_REPLY;
    if (vw_vu_answer(requester, message, acknowledged_protocol) != VW_VU_ANSWER_ACK)
        message->header.flags = before;
}

void vw_vu_config_change(struct vw_vu_message *message)
{
    vw_vu_request(message, VW_VU_BACK_END_CONFIG_CHANGE_MSG, 0);
}

void vw_vu_vring_call(struct vw_vu_message *message, uint32_t index)
{
    vw_vu_request_state(message, VW_VU_BACK_END_VRING_CALL, index, 0);
}

void vw_vu_vring_err(struct vw_vu_message *message, uint32_t index)
{
    vw_vu_request_state(message, VW_VU_BACK_END_VRING_ERR, index, 0);
}
