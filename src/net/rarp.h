/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frame with which a back-end tells the switches where a guest is after migration (vhost-user
 * SEND_RARP, for guests without GUEST_ANNOUNCE): a reverse ARP request (RFC 903) to everybody, from
 * the guest's address about itself.
 */
#ifndef VW_NET_RARP_H
#define VW_NET_RARP_H

#include <stdint.h>

#include "net/config.h"

#define VW_NET_RARP_SIZE 60 /* the shortest Ethernet frame, without its check sequence */

void vw_net_rarp(uint8_t frame[VW_NET_RARP_SIZE], const uint8_t mac[VW_NET_MAC_SIZE]);

#endif
