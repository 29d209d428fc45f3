/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of a payload's contents, one for each kind of request; private to vhost/. The table
 * calls them after size, descriptors and gate were found right.
 *
 * What cannot be (a table with fewer regions than it says) is VW_VU_FATAL; what we cannot do (an
 * index of a ring that we do not have) is VW_VU_REFUSED.
 */
#ifndef VW_VHOST_PAYLOAD_H
#define VW_VHOST_PAYLOAD_H

#include "vhost/message.h"

#define VW_VU_CHECK(name)                                                                          \
    enum vw_vu_verdict vw_vu_check_##name(const struct vw_vu_message *message, unsigned fd_count,  \
                                          const struct vw_vu_limits *limits, const char **why)

VW_VU_CHECK(features);
VW_VU_CHECK(protocol_features);
VW_VU_CHECK(memory_table);
VW_VU_CHECK(memory_region);
VW_VU_CHECK(log_base);
VW_VU_CHECK(ring_index);
VW_VU_CHECK(ring_num);
VW_VU_CHECK(ring_address);
VW_VU_CHECK(ring_base);
VW_VU_CHECK(ring_fd);
VW_VU_CHECK(ring_switch);
VW_VU_CHECK(mtu);
VW_VU_CHECK(iotlb);
VW_VU_CHECK(config);
VW_VU_CHECK(set_config);
VW_VU_CHECK(inflight);
VW_VU_CHECK(status);
VW_VU_CHECK(device_state);
VW_VU_CHECK(area);

#endif
