/* SPDX-License-Identifier: BSD-3-Clause */
/* Live lines and summaries of pktgen, sink and echo. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/shared.h"
#include "cmd/json.h"
#include "cmd/traffic.h"

#define TX_COUNTER(name, text) {#name, text, offsetof(struct vw_tx_counters, name)},
#define RX_COUNTER(name, text) {#name, text, offsetof(struct vw_rx_counters, name)},
#define PROBE_COUNTER(name, text) {#name, text, offsetof(struct vw_probe_counters, name)},
#define STREAM_COUNTER(name, text) {#name, text, offsetof(struct vw_stream_counters, name)},
#define STREAM_SENT_COUNTER(name, text)                                                            \
    {#name, text, offsetof(struct traffic_stream_counters, name)},

static const struct counter tx_counters[] = {VW_TX_COUNTERS(TX_COUNTER)};
static const struct counter rx_counters[] = {VW_RX_COUNTERS(RX_COUNTER)};
static const struct counter probe_counters[] = {VW_PROBE_COUNTERS(PROBE_COUNTER)};
static const struct counter stream_counters[] = {VW_STREAM_COUNTERS(STREAM_COUNTER)};
static const struct counter stream_sent_counters[] = {TRAFFIC_STREAM_COUNTERS(STREAM_SENT_COUNTER)};

struct totals {
    uint64_t sent_frames, sent_bytes, lost_frames, refused_frames;
    uint64_t received_frames, received_bytes;
    uint64_t system_calls;
    struct vw_probe_counters probe;
    struct vw_stream_counters stream;
    struct traffic_stream_counters stream_sent;
};

static struct totals total_of(const struct traffic *traffic)
{
    struct totals totals = {0};

    for (unsigned i = 0; i < traffic->worker_count; i++) {
        const struct traffic_worker *worker = &traffic->workers[i];

        totals.sent_frames += vw_shared_load(&worker->sent_frames);
        totals.sent_bytes += vw_shared_load(&worker->sent_bytes);
        totals.lost_frames += vw_shared_load(&worker->lost_frames);
        totals.refused_frames += vw_shared_load(&worker->refused_frames);
        totals.received_frames += vw_shared_load(&worker->received_frames);
        totals.received_bytes += vw_shared_load(&worker->received_bytes);
        totals.system_calls += vw_shared_load(&worker->system_calls);
        totals.system_calls += vw_shared_load(&worker->completions.system_calls);
#define ADD(name, text) totals.probe.name += vw_shared_load(&worker->reader.counters.name);
        VW_PROBE_COUNTERS(ADD)
#undef ADD
#define ADD(name, text) totals.stream.name += vw_shared_load(&worker->streams.counters.name);
        VW_STREAM_COUNTERS(ADD)
#undef ADD
#define ADD(name, text) totals.stream_sent.name += vw_shared_load(&worker->stream_sent.name);
        TRAFFIC_STREAM_COUNTERS(ADD)
#undef ADD
    }
    return totals;
}

/* What came since the latest report, or, at the end, in the whole run. */
static struct vw_histogram times_of(const struct traffic *traffic, size_t offset,
                                    struct vw_histogram *told, bool final)
{
    struct vw_histogram all = {{0}}, before = *told;

    for (unsigned i = 0; i < traffic->worker_count; i++)
        vw_histogram_merge(&all, (const void *)((const char *)&traffic->workers[i] + offset));
    *told = all;
    if (!final)
        vw_histogram_subtract(&all, &before);
    return all;
}

static bool receives(const struct traffic *traffic)
{
    return !traffic->role->sends || traffic->options.loop || traffic->role->forwards;
}

bool traffic_is_clean(const struct traffic *traffic)
{
    struct totals totals = total_of(traffic);
    const struct vw_probe_counters *probe = &totals.probe;

    if (totals.lost_frames + totals.refused_frames != 0)
        return false;
    if (probe->lost + probe->reordered + probe->duplicate + probe->stale + probe->corrupt != 0)
        return false;
    if (totals.stream.lost + totals.stream.late + totals.stream.corrupt != 0)
        return false;
    if (traffic->options.loop && traffic->options.streams > 0)
        return totals.stream.segments == totals.sent_frames;
    return !traffic->options.loop || probe->frames == totals.sent_frames;
}

/* ---- live ------------------------------------------------------------------------------------ */

void traffic_report_rates(const struct traffic *traffic, struct traffic_before *before)
{
    struct totals totals = total_of(traffic);
    const struct vw_probe_counters *probe = &totals.probe;
    struct traffic_before now = {
        .sent_frames = totals.sent_frames,
        .sent_bytes = totals.sent_bytes,
        .received_frames = totals.received_frames,
        .received_bytes = totals.received_bytes,
        .seconds = vw_clock_seconds(),
    };
    double seconds = now.seconds - before->seconds;
    double sent = (double)(now.sent_frames - before->sent_frames) / seconds;
    double sent_mbit = (double)(now.sent_bytes - before->sent_bytes) * 8e-6 / seconds;
    double received = (double)(now.received_frames - before->received_frames) / seconds;
    double received_mbit = (double)(now.received_bytes - before->received_bytes) * 8e-6 / seconds;

    *before = now;
    if (traffic->options.json) {
        json_print(json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "type", "rates",
                             "command", traffic->role->name, "seconds", seconds,
                             "sent_frames_per_second", sent, "sent_mbit_per_second", sent_mbit,
                             "received_frames_per_second", received, "received_mbit_per_second",
                             received_mbit, "lost", (json_int_t)probe->lost, "corrupt",
                             (json_int_t)probe->corrupt));
        return;
    }
    printf("%7.1f s:", now.seconds - traffic->started);
    if (traffic->role->sends)
        printf(" sent %.0f frames/s, %.1f Mb/s", sent, sent_mbit);
    if (receives(traffic))
        printf("%s received %.0f frames/s, %.1f Mb/s; %" PRIu64 " lost, %" PRIu64 " corrupt",
               traffic->role->sends ? ";" : "", received, received_mbit, probe->lost,
               probe->corrupt);
    putchar('\n');
    fflush(stdout);
}

/* ---- everything ------------------------------------------------------------------------------ */

static const char *rx_mode_name(enum vw_rx_mode mode)
{
    switch (mode) {
    case VW_RX_SMALL:
        return "small";
    case VW_RX_BIG:
        return "big";
    case VW_RX_MERGEABLE:
        return "mergeable";
    case VW_RX_AUTO:
        break;
    }
    return "auto";
}

static json_t *json_direction(uint64_t frames, uint64_t bytes, double seconds)
{
    return json_pack("{s:I, s:I, s:f, s:f}", "frames", (json_int_t)frames, "bytes",
                     (json_int_t)bytes, "frames_per_second", (double)frames / seconds,
                     "mbit_per_second", (double)bytes * 8e-6 / seconds);
}

static json_t *json_rx_buffer(const struct vw_net_info *info)
{
    return json_pack("{s:I, s:I, s:I}", "descriptors", (json_int_t)info->rx_buffer_descriptors,
                     "bytes", (json_int_t)info->rx_buffer_bytes, "in_ring",
                     (json_int_t)info->rx_ring_buffers);
}

static json_t *json_queue(const struct traffic *traffic, unsigned pair)
{
    const char *error = vw_queue_error(traffic->net, pair);
    struct vw_tx_counters transmit;
    struct vw_rx_counters receive;
    json_t *object = json_object();

    vw_counters(traffic->net, pair, &transmit, &receive);
    json_object_set_new(object, "pair", json_integer(pair));
    json_object_set_new(object, "transmit",
                        json_counters(&transmit, tx_counters, VW_ARRAY_SIZE(tx_counters)));
    json_object_set_new(object, "receive",
                        json_counters(&receive, rx_counters, VW_ARRAY_SIZE(rx_counters)));
    json_object_set_new(object, "probe",
                        json_counters(&traffic->workers[pair].reader.counters, probe_counters,
                                      VW_ARRAY_SIZE(probe_counters)));
    json_object_set_new(object, "error", error != NULL ? json_string(error) : json_null());
    return object;
}

static json_t *json_times(const struct vw_histogram *times)
{
    json_int_t count = (json_int_t)vw_histogram_count(times);

    if (count == 0)
        return json_null();
    return json_pack("{s:f, s:f, s:I}", "median", (double)vw_histogram_percentile(times, 50) * 1e-9,
                     "p99", (double)vw_histogram_percentile(times, 99) * 1e-9, "count", count);
}

static void report_all_json(struct traffic *traffic, const struct totals *totals,
                            const struct vw_net_info *info, double seconds, bool final)
{
    json_t *object = json_object(), *queues = json_array();
    struct vw_histogram times = times_of(traffic, offsetof(struct traffic_worker, last_frame),
                                         &traffic->told_last_frame, final);
    struct vw_histogram latencies =
        times_of(traffic, offsetof(struct traffic_worker, latency), &traffic->told_latency, final);

    for (unsigned i = 0; i < traffic->worker_count; i++)
        json_array_append_new(queues, json_queue(traffic, i));
    json_object_set_new(object, "type", json_string(final ? "summary" : "report"));
    json_object_set_new(object, "command", json_string(traffic->role->name));
    json_object_set_new(object, "monotonic_seconds", json_real(vw_clock_seconds()));
    json_object_set_new(object, "seconds", json_real(seconds));
    json_object_set_new(object, "cpu_seconds", json_real(cpu_seconds()));
    json_object_set_new(object, "system_calls", json_integer((json_int_t)totals->system_calls));
    json_object_set_new(object, "connected", json_boolean(info->connected));
    json_object_set_new(object, "ring_format", json_string(info->packed ? "packed" : "split"));
    json_object_set_new(object, "features", json_features(info->features));
    json_object_set_new(object, "rx_mode", json_string(rx_mode_name(info->rx_mode)));
    json_object_set_new(object, "rx_buffer", json_rx_buffer(info));
    json_object_set_new(object, "mtu", json_integer(info->mtu));
    json_object_set_new(object, "sent",
                        json_direction(totals->sent_frames, totals->sent_bytes, seconds));
    json_object_set_new(object, "last_frame_seconds", json_times(&times));
    if (traffic->options.streams > 0 && traffic->options.loop)
        json_object_set_new(object, "latency_seconds", json_times(&latencies));
    json_object_set_new(object, "sent_to_lost_device",
                        json_integer((json_int_t)totals->lost_frames));
    json_object_set_new(object, "refused", json_integer((json_int_t)totals->refused_frames));
    json_object_set_new(object, "received",
                        json_direction(totals->received_frames, totals->received_bytes, seconds));
    json_object_set_new(
        object, "probe",
        json_counters(&totals->probe, probe_counters, VW_ARRAY_SIZE(probe_counters)));
    json_object_set_new(
        object, "stream",
        json_counters(&totals->stream, stream_counters, VW_ARRAY_SIZE(stream_counters)));
    if (traffic->options.streams > 0)
        json_object_set_new(object, "stream_sent",
                            json_counters(&totals->stream_sent, stream_sent_counters,
                                          VW_ARRAY_SIZE(stream_sent_counters)));
    json_object_set_new(object, "clean", json_boolean(traffic_is_clean(traffic)));
    json_object_set_new(object, "queues", queues);
    json_print(object);
}

/* Only what is not zero: a reader looks for what happened. */
static void print_counters(const void *counters, const struct counter *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (counter_value(counters, &list[i]) != 0)
            printf("    %14" PRIu64 "  %s\n", counter_value(counters, &list[i]), list[i].text);
}

static void print_direction(const char *name, uint64_t frames, uint64_t bytes, double seconds)
{
    printf("  %s %" PRIu64 " frames in %.1f s: %.0f frames/s, %.1f Mb/s\n", name, frames, seconds,
           (double)frames / seconds, (double)bytes * 8e-6 / seconds);
}

static void print_queue(const struct traffic *traffic, unsigned pair)
{
    const char *error = vw_queue_error(traffic->net, pair);
    struct vw_tx_counters transmit;
    struct vw_rx_counters receive;

    vw_counters(traffic->net, pair, &transmit, &receive);
    printf("  queue pair %u%s%s\n", pair, error != NULL ? ", broken: " : "",
           error != NULL ? error : "");
    if (traffic->role->sends) {
        printf("   transmit\n");
        print_counters(&transmit, tx_counters, VW_ARRAY_SIZE(tx_counters));
    }
    if (receives(traffic)) {
        printf("   receive\n");
        print_counters(&receive, rx_counters, VW_ARRAY_SIZE(rx_counters));
    }
}

static void report_all_text(const struct traffic *traffic, const struct totals *totals,
                            const struct vw_net_info *info, double seconds)
{
    printf("virtwire %s: %s rings, receive buffers %s, MTU %u%s\n", traffic->role->name,
           info->packed ? "packed" : "split", rx_mode_name(info->rx_mode), info->mtu,
           info->connected ? "" : ", not connected");
    if (traffic->role->sends)
        print_direction("sent", totals->sent_frames, totals->sent_bytes, seconds);
    if (totals->lost_frames != 0)
        printf("    %14" PRIu64 "  of these to a device that was lost\n", totals->lost_frames);
    if (totals->refused_frames != 0)
        printf("    %14" PRIu64 "  could not be sent\n", totals->refused_frames);
    if (receives(traffic)) {
        print_direction("received", totals->received_frames, totals->received_bytes, seconds);
        print_counters(&totals->probe, probe_counters, VW_ARRAY_SIZE(probe_counters));
        print_counters(&totals->stream, stream_counters, VW_ARRAY_SIZE(stream_counters));
    }
    print_counters(&totals->stream_sent, stream_sent_counters, VW_ARRAY_SIZE(stream_sent_counters));
    printf("  %.3f s of CPU time, %" PRIu64 " system calls to move frames\n", cpu_seconds(),
           totals->system_calls);
    for (unsigned i = 0; i < traffic->worker_count; i++)
        print_queue(traffic, i);
    fflush(stdout);
}

void traffic_report_all(struct traffic *traffic, bool final)
{
    double end = traffic->ended > 0 ? traffic->ended : vw_clock_seconds();
    double seconds = end > traffic->started ? end - traffic->started : 1e-9;
    struct totals totals = total_of(traffic);
    struct vw_net_info info;

    vw_net_info(traffic->net, &info);
    if (traffic->options.json)
        report_all_json(traffic, &totals, &info, seconds, final);
    else
        report_all_text(traffic, &totals, &info, seconds);
}
