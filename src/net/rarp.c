/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/rarp.h"

#include <string.h>

void vw_net_rarp(uint8_t frame[VW_NET_RARP_SIZE], const uint8_t mac[VW_NET_MAC_SIZE])
{
    static const uint8_t fixed[] = {
        0x80, 0x35, /* EtherType: reverse ARP */
        0x00, 0x01, /* hardware: Ethernet */
        0x08, 0x00, /* protocol: IPv4 */
        6,    4,    /* lengths of their addresses */
        0x00, 0x03, /* operation: "request reverse" */
    };

    memset(frame, 0, VW_NET_RARP_SIZE);
    memset(frame, 0xff, VW_NET_MAC_SIZE);
    memcpy(frame + 6, mac, VW_NET_MAC_SIZE);
    memcpy(frame + 12, fixed, sizeof(fixed));
    memcpy(frame + 22, mac, VW_NET_MAC_SIZE); /* of the sender, whose IP address is 0.0.0.0 */
    memcpy(frame + 32, mac, VW_NET_MAC_SIZE); /* of whom it asks about */
}
