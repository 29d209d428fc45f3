/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network namespaces of the bench, and addresses of interfaces in them.
 *
 * A namespace has no name and leaves nothing behind: it lives as long as its descriptor, or a
 * process in it. Without root a user namespace gives the rights, where the system allows that; the
 * bench and all that it starts from then on is in it. All functions are for the main thread.
 */
#ifndef VW_BENCH_NETWORK_H
#define VW_BENCH_NETWORK_H

#include "bench/bench.h"
#include "bench/process.h"

/* A new namespace, without IPv6 and its unasked-for frames: a descriptor, to be closed by the
 * caller; -1 after bench_fail. */
int bench_network_open(struct bench_context *context);

/* Gives an interface, which exists, an IPv4 address such as "10.0.0.1", and its network of 24 bits.
 * 0 or -1 after bench_fail. */
int bench_network_address(struct bench_context *context, int network, const char *interface,
                          const char *address);

/* A counter of the IP stack of the namespace in which the process is, by its names in
 * /proc/net/snmp, such as "Tcp", "InSegs"; NAN: there is none. */
double bench_network_counter(const struct bench_process *process, const char *protocol,
                             const char *name);

#endif
