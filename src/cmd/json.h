/* SPDX-License-Identifier: BSD-3-Clause */
/* What all reports in JSON share. */
#ifndef VW_CMD_JSON_H
#define VW_CMD_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* One counter with its name and what it means. */
struct counter {
    const char *name, *text;
    size_t offset; /* of a uint64_t in the structure of counters */
};

uint64_t counter_value(const void *counters, const struct counter *counter);

/* An object with all counters of the list. */
json_t *json_counters(const void *counters, const struct counter *list, size_t count);

/* The names of the features, as an array. */
json_t *json_features(uint64_t features);

/* CPU time of the process so far, that of all its threads. */
double cpu_seconds(void);

/* One line on standard output, at once. Ends the object. */
void json_print(json_t *object);

#endif
