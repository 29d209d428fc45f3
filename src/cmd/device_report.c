/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "cmd/device_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cmd/json.h"
#include "net/features.h"

#define QUEUE_COUNTER(name, text) {#name, text, offsetof(struct vw_queue_counters, name)},
#define DEVICE_COUNTER(name, text) {#name, text, offsetof(struct vw_device_counters, name)},
#define WORKER_COUNTER(name, text) {#name, text, offsetof(struct vw_worker_counters, name)},
#define PORT_COUNTER(name) {#name, #name, offsetof(struct vw_port_counters, name)},
#define PROBE_COUNTER(name, text) {#name, text, offsetof(struct vw_probe_counters, name)},
#define STREAM_COUNTER(name, text) {#name, text, offsetof(struct vw_stream_counters, name)},

static const struct counter queue_counters[] = {VW_QUEUE_COUNTERS(QUEUE_COUNTER)};
static const struct counter device_counters[] = {VW_DEVICE_COUNTERS(DEVICE_COUNTER)};
static const struct counter worker_counters[] = {VW_WORKER_COUNTERS(WORKER_COUNTER)};
static const struct counter port_counters[] = {VW_PORT_COUNTERS(PORT_COUNTER)};
static const struct counter probe_counters[] = {VW_PROBE_COUNTERS(PROBE_COUNTER)};
static const struct counter stream_counters[] = {VW_STREAM_COUNTERS(STREAM_COUNTER)};

static bool is_drop(const struct counter *counter)
{
    return strncmp(counter->name, "drop_", 5) == 0;
}

static json_t *json_queue(const struct vw_queue_statistics *queue)
{
    json_t *object = json_counters(&queue->counters, queue_counters, VW_ARRAY_SIZE(queue_counters));

    for (unsigned i = 1; i < VW_NET_HEADER_ERROR_COUNT; i++) {
        char name[64];

        if (queue->header_errors[i] == 0)
            continue;
        snprintf(name, sizeof(name), "drop_header_%s", vw_net_header_error_name(i));
        json_object_set_new(object, name, json_integer((json_int_t)queue->header_errors[i]));
    }
    json_object_set_new(object, "index", json_integer(queue->index));
    json_object_set_new(object, "role", json_string(queue->role));
    json_object_set_new(object, "size", json_integer(queue->size));
    json_object_set_new(object, "started", json_boolean(queue->started));
    json_object_set_new(object, "enabled", json_boolean(queue->enabled));
    json_object_set_new(object, "live", json_boolean(queue->live));
    json_object_set_new(object, "broken_by",
                        queue->broken != NULL ? json_string(queue->broken) : json_null());
    return object;
}

static json_t *json_port(const struct vw_port *port)
{
    json_t *object = json_object(), *queues = json_array();

    for (unsigned i = 0; i < port->queue_count; i++) {
        const struct vw_port_queue *queue = port->queues[i];
        json_t *counters =
            json_counters(&queue->counters, port_counters, VW_ARRAY_SIZE(port_counters));

        if (queue->probe != NULL)
            json_object_set_new(
                counters, "probe",
                json_counters(queue->probe, probe_counters, VW_ARRAY_SIZE(probe_counters)));
        if (queue->stream != NULL)
            json_object_set_new(
                counters, "stream",
                json_counters(queue->stream, stream_counters, VW_ARRAY_SIZE(stream_counters)));
        json_array_append_new(queues, counters);
    }
    json_object_set_new(object, "description", json_string(port->description));
    json_object_set_new(object, "settings", json_string(port->settings));
    json_object_set_new(object, "queues", queues);
    return object;
}

static uint64_t system_calls_of(const struct vw_device *device, unsigned workers)
{
    struct vw_worker_counters counters;
    uint64_t sum = 0;

    for (unsigned i = 0; i < workers; i++) {
        vw_device_worker_counters(device, i, &counters);
        sum += counters.system_calls;
    }
    return sum;
}

static json_t *json_workers(const struct vw_device *device, unsigned count)
{
    struct vw_worker_counters counters;
    json_t *workers = json_array();

    for (unsigned i = 0; i < count; i++) {
        vw_device_worker_counters(device, i, &counters);
        json_array_append_new(
            workers, json_counters(&counters, worker_counters, VW_ARRAY_SIZE(worker_counters)));
    }
    return workers;
}

static const char *ring_format(uint64_t features)
{
    return vw_has(features, VIRTIO_F_RING_PACKED) ? "packed" : "split";
}

static void report_all_json(const char *name, const struct vw_device *device,
                            const struct vw_port *port)
{
    struct vw_device_statistics statistics;
    struct vw_queue_statistics queue;
    json_t *object = json_object(), *queues = json_array();

    vw_device_statistics(device, &statistics);
    for (unsigned i = 0; i < statistics.queue_count; i++) {
        vw_device_queue_statistics(device, i, &queue);
        json_array_append_new(queues, json_queue(&queue));
    }
    json_object_set_new(object, "socket", json_string(name));
    json_object_set_new(object, "monotonic_seconds", json_real(vw_clock_seconds()));
    json_object_set_new(object, "cpu_seconds", json_real(cpu_seconds()));
    json_object_set_new(object, "system_calls",
                        json_integer((json_int_t)system_calls_of(device, statistics.worker_count)));
    json_object_set_new(object, "connected", json_boolean(statistics.connected));
    json_object_set_new(object, "link_up", json_boolean(statistics.link_up));
    json_object_set_new(object, "ring_format", json_string(ring_format(statistics.acknowledged)));
    json_object_set_new(object, "features", json_features(statistics.acknowledged));
    json_object_set_new(object, "offered", json_features(statistics.offered));
    json_object_set_new(object, "queue_pairs", json_integer(statistics.pairs));
    json_object_set_new(object, "active_queue_pairs", json_integer(statistics.active_pairs));
    json_object_set_new(
        object, "device",
        json_counters(&statistics.counters, device_counters, VW_ARRAY_SIZE(device_counters)));
    json_object_set_new(object, "queues", queues);
    json_object_set_new(object, "workers", json_workers(device, statistics.worker_count));
    json_object_set_new(object, "port", json_port(port));
    json_print(object);
}

/* Only what is not zero: a reader looks for what happened. */
static void print_counters(const char *indent, const void *counters, const struct counter *list,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = counter_value(counters, &list[i]);

        if (value != 0)
            printf("%s%14" PRIu64 "  %s%s\n", indent, value, is_drop(&list[i]) ? "dropped: " : "",
                   list[i].text);
    }
}

static void print_queue(const struct vw_queue_statistics *queue)
{
    const struct vw_queue_counters *counters = &queue->counters;

    if (!queue->started && counters->frames == 0 && counters->commands == 0 && counters->kicks == 0)
        return;
    printf("  queue %u, %s, %u entries%s%s%s\n", queue->index, queue->role, queue->size,
           queue->live ? (queue->enabled ? "" : ", disabled") : ", stopped",
           queue->broken != NULL ? ", broken: " : "", queue->broken != NULL ? queue->broken : "");
    print_counters("    ", counters, queue_counters, VW_ARRAY_SIZE(queue_counters));
    for (unsigned i = 1; i < VW_NET_HEADER_ERROR_COUNT; i++)
        if (queue->header_errors[i] != 0)
            printf("    %14" PRIu64 "  of these: %s\n", queue->header_errors[i],
                   vw_net_header_error_text(i));
    if (counters->frames != 0)
        printf("    %14.3f  kicks a frame\n    %14.3f  calls a frame\n",
               (double)counters->kicks / (double)counters->frames,
               (double)counters->calls / (double)counters->frames);
}

static void print_workers(const struct vw_device *device, unsigned count)
{
    struct vw_worker_counters counters;

    for (unsigned i = 0; i < count; i++) {
        vw_device_worker_counters(device, i, &counters);
        if (counters.sleeps + counters.system_calls == 0)
            continue;
        printf("  worker %u\n", i);
        print_counters("    ", &counters, worker_counters, VW_ARRAY_SIZE(worker_counters));
    }
}

static void report_all_text(const char *name, const struct vw_device *device,
                            const struct vw_port *port)
{
    struct vw_device_statistics statistics;
    struct vw_queue_statistics queue;
    char features[1024];

    vw_device_statistics(device, &statistics);
    vw_features_format(statistics.acknowledged, features, sizeof(features));
    printf("%s, %s%s%s\n", name, port->description, port->settings[0] != '\0' ? ", " : "",
           port->settings);
    printf("  %s, link %s", statistics.connected ? "connected" : "no front-end",
           statistics.link_up ? "up" : "down");
    if (statistics.connected)
        printf(", %s rings, features: %s", ring_format(statistics.acknowledged), features);
    putchar('\n');
    print_counters("  ", &statistics.counters, device_counters, VW_ARRAY_SIZE(device_counters));
    for (unsigned i = 0; i < statistics.queue_count; i++) {
        vw_device_queue_statistics(device, i, &queue);
        print_queue(&queue);
    }
    print_workers(device, statistics.worker_count);
    for (unsigned i = 0; i < port->queue_count; i++) {
        if (port->queues[i]->probe == NULL)
            continue;
        printf("  %s, queue %u\n", port->description, i);
        print_counters("    ", port->queues[i]->probe, probe_counters,
                       VW_ARRAY_SIZE(probe_counters));
        if (port->queues[i]->stream != NULL)
            print_counters("    ", port->queues[i]->stream, stream_counters,
                           VW_ARRAY_SIZE(stream_counters));
    }
    fflush(stdout);
}

void report_all(const char *name, const struct vw_device *device, const struct vw_port *port,
                bool json)
{
    if (json)
        report_all_json(name, device, port);
    else
        report_all_text(name, device, port);
}

static struct report_before totals(const struct vw_device *device)
{
    struct report_before now = {0};
    struct vw_device_statistics statistics;
    struct vw_queue_statistics queue;

    vw_device_statistics(device, &statistics);
    for (unsigned i = 0; i < statistics.queue_count; i++) {
        vw_device_queue_statistics(device, i, &queue);
        now.frames[i % 2] += queue.counters.frames;
        now.bytes[i % 2] += queue.counters.bytes;
        now.kicks += queue.counters.kicks;
        now.calls += queue.counters.calls;
        for (size_t j = 0; j < VW_ARRAY_SIZE(queue_counters); j++)
            if (is_drop(&queue_counters[j]))
                now.drops += counter_value(&queue.counters, &queue_counters[j]);
    }
    return now;
}

void report_rates(const char *name, const struct vw_device *device, double seconds, bool json,
                  struct report_before *before)
{
    struct report_before now = totals(device);
    double to_guest = (double)(now.frames[0] - before->frames[0]) / seconds;
    double from_guest = (double)(now.frames[1] - before->frames[1]) / seconds;
    double to_guest_mbit = (double)(now.bytes[0] - before->bytes[0]) * 8e-6 / seconds;
    double from_guest_mbit = (double)(now.bytes[1] - before->bytes[1]) * 8e-6 / seconds;
    double kicks = (double)(now.kicks - before->kicks) / seconds;
    double calls = (double)(now.calls - before->calls) / seconds;
    uint64_t drops = now.drops - before->drops;

    *before = now;
    if (json) {
        json_print(json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "socket", name,
                             "seconds", seconds, "from_guest_frames_per_second", from_guest,
                             "from_guest_mbit_per_second", from_guest_mbit,
                             "to_guest_frames_per_second", to_guest, "to_guest_mbit_per_second",
                             to_guest_mbit, "kicks_per_second", kicks, "calls_per_second", calls,
                             "drops", (json_int_t)drops));
        return;
    }
    printf("%s: from guest %.0f frames/s %.1f Mb/s, to guest %.0f frames/s %.1f Mb/s, "
           "%.0f kicks/s, %.0f calls/s, %" PRIu64 " dropped\n",
           name, from_guest, from_guest_mbit, to_guest, to_guest_mbit, kicks, calls, drops);
    fflush(stdout);
}
