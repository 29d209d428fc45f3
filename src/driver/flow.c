/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows: whose bytes are in flight. A sender may hold back by them (TCP small queues). */
#include <stdlib.h>

#include "driver/internal.h"

struct vw_flow *vw_flow_new(struct vw_net *net)
{
    return net ? calloc(1, sizeof(struct vw_flow)) : NULL;
}

void vw_flow_free(struct vw_flow *flow)
{
    free(flow);
}

uint64_t vw_flow_in_flight(const struct vw_flow *flow)
{
    return vw_shared_load(&flow->bytes);
}
