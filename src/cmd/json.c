/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/bits.h"
#include "base/shared.h"
#include "net/features.h"

uint64_t counter_value(const void *counters, const struct counter *counter)
{
    return vw_shared_load(
        (const uint64_t *)(const void *)((const char *)counters + counter->offset));
}

json_t *json_counters(const void *counters, const struct counter *list, size_t count)
{
    json_t *object = json_object();

    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, list[i].name,
                            json_integer((json_int_t)counter_value(counters, &list[i])));
    return object;
}

json_t *json_features(uint64_t features)
{
    json_t *array = json_array();

    for (unsigned bit = 0; bit < 64; bit++) {
        const struct vw_feature *feature = vw_feature_by_bit(bit);
        char number[8];

        if (!vw_has(features, bit))
            continue;
        snprintf(number, sizeof(number), "bit%u", bit);
        json_array_append_new(array, json_string(feature != NULL ? feature->name : number));
    }
    return array;
}

double cpu_seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void json_print(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER);

    if (text != NULL)
        puts(text);
    free(text);
    json_decref(object);
    fflush(stdout);
}
