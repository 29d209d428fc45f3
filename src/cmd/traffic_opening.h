/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ends pktgen, sink and echo while they still open their device.
 *
 * Theory of operation
 * -------------------
 * vw_net_open waits for a back-end, and for each of its answers, up to the limits of its options;
 * the main thread, which takes signals once it runs, is inside it. Meanwhile another thread waits
 * for the signals that end the program, which all threads block, and ends it as such a signal does
 * by default: there is no summary yet to be printed. A socket to listen at is removed before.
 */
#ifndef VW_CMD_TRAFFIC_OPENING_H
#define VW_CMD_TRAFFIC_OPENING_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct traffic_opening {
    pthread_t thread;
    bool watched;
    sigset_t enders;         /* blocked in the calling thread, too */
    const char *socket_path; /* where the device is listened for; NULL: it is not */
};

/* The device is about to be opened. Without memory for a thread the end comes when that is over. */
void traffic_opening_begin(struct traffic_opening *opening, const char *socket_path);

/* It is open, or could not be opened. Signals from now on are the caller's. */
void traffic_opening_end(struct traffic_opening *opening);

#endif
