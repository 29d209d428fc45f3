/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/rarp.h"

#include <string.h>

struct rarp_frame {
    uint8_t destination[VW_NET_MAC_SIZE];
    uint8_t source[VW_NET_MAC_SIZE];
    uint8_t fixed[10];
    uint8_t sender[VW_NET_MAC_SIZE]; /* whose IP address is 0.0.0.0 */
    uint8_t sender_address[4];
    uint8_t target[VW_NET_MAC_SIZE]; /* about whom it asks */
    uint8_t target_address[4];
    uint8_t padding[18];
};

_Static_assert(sizeof(struct rarp_frame) == VW_NET_RARP_SIZE, "RFC 903, in an Ethernet frame");

void vw_net_rarp(uint8_t frame[VW_NET_RARP_SIZE], const uint8_t mac[VW_NET_MAC_SIZE])
{
    struct rarp_frame rarp = {
        .destination = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        .fixed =
            {
                0x80, 0x35, /* EtherType: reverse ARP */
                0x00, 0x01, /* hardware: Ethernet */
                0x08, 0x00, /* protocol: IPv4 */
                6, 4,       /* lengths of their addresses */
                0x00, 0x03, /* operation: "request reverse" */
            },
    };

    memcpy(rarp.source, mac, VW_NET_MAC_SIZE);
    memcpy(rarp.sender, mac, VW_NET_MAC_SIZE);
    memcpy(rarp.target, mac, VW_NET_MAC_SIZE);
    memcpy(frame, &rarp, sizeof(rarp));
}
