/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values on command lines. Each function returns -1 to go on, or the exit status after having told
 * what is wrong. `command` is the subcommand's name, `option` the option's without its dashes.
 */
#ifndef VW_CMD_PARSE_H
#define VW_CMD_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* Notes that an option is given, by a number below 64 of its own; a second time is refused, since
 * it contradicts the first or says nothing new. `where` follows in the message, or is "". */
int note_given(const char *command, const char *option, unsigned number, const char *where,
               uint64_t *given);

/* A whole number in a range. */
int parse_number(const char *command, const char *option, const char *text, unsigned long low,
                 unsigned long high, unsigned long *number);

/* CPU numbers and ranges of them, such as 0,2-3, each one that this process may use; *count of at
 * most `room` go to `cpus`. */
int parse_cpus(const char *command, const char *option, const char *text, unsigned *cpus,
               unsigned room, unsigned *count);

/* A number with at most one letter behind it: k, M or G for thousands. More than 0. */
int parse_scaled(const char *command, const char *option, const char *text, double *number);

/* One of `count` words; *choice is its place. */
int parse_choice(const char *command, const char *option, const char *text,
                 const char *const *words, size_t count, unsigned *choice);

/* One card's own address: neither a group's nor zero. */
int parse_mac(const char *command, const char *option, const char *text, uint8_t mac[6]);

/* An IPv4 address, to host order. */
int parse_ipv4(const char *command, const char *option, const char *text, uint32_t *address);

/* A path that a UNIX socket can have; `socket`: an open descriptor of such a stream socket. */
int check_socket_path(const char *command, const char *path);
int check_socket(const char *command, int socket);

#endif
