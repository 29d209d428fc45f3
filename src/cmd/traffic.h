/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What pktgen, sink and echo share: they open a device as its driver and move frames until told to
 * end.
 *
 * Theory of operation
 * -------------------
 * One thread for each queue pair runs the subcommand's own loop (struct traffic_role). The main
 * thread sleeps on signals, timers and the device's events, prints live lines, and prints the
 * summary when all have ended. Threads write only their own counters, and the main thread reads
 * them while they change.
 *
 * A thread that has nothing to do waits as the mode says, but never for long, since it looks for
 * the end between two waits: TRAFFIC_PATIENCE_MS costs ten wake-ups a second, which is nothing.
 */
#ifndef VW_CMD_TRAFFIC_H
#define VW_CMD_TRAFFIC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "device/device.h"
#include "net/probe.h"
#include "net/stream.h"
#include "transport/transport.h"
#include "virtwire/net.h"

#define TRAFFIC_MAX_PAIRS 127
#define TRAFFIC_MAX_BURST 256
#define TRAFFIC_PATIENCE_MS 100

/* How long a thread that is to end waits for what is under way. */
#define TRAFFIC_DRAIN_SECONDS 2.0

enum traffic_mode {
    TRAFFIC_ADAPTIVE,  /* spin for a while, then sleep */
    TRAFFIC_INTERRUPT, /* sleep at once */
    TRAFFIC_POLL,      /* never sleep */
};

struct traffic_options {
    struct vw_net_options net;
    const char *in_process; /* the port of a device of our own; NULL: it is reached over a socket */
    enum traffic_mode mode;
    unsigned burst;
    double duration;         /* seconds; 0: no limit */
    uint64_t count;          /* frames of all queues; 0: no limit */
    unsigned stats_interval; /* seconds; 0: no live lines */
    bool json, verbose, strict;
    const char *port; /* bridge's own */

    /* pktgen's own */
    double rate; /* frames a second of all queues; 0: as many as there is room for */
    struct vw_probe_sizes sizes;
    unsigned flows;
    bool loop;             /* the frames come back */
    unsigned urgent_every; /* each such frame is marked urgent; 0: none */
    int completion_cpu;    /* where a thread takes sent frames back; -1: the sender does it */
    struct vw_probe_addresses addresses;
    unsigned streams;  /* TCP streams of each queue pair, in place of probes; 0: none */
    unsigned write;    /* bytes that their applications write at a time; 0: not given */
    bool acknowledged; /* the far side acknowledges */
    unsigned think_us; /* with loop: what an application works on each response */

    unsigned acknowledge; /* sink's own: acknowledge each so many segments of streams; 0: never */
};

/* What senders of streams did. */
#define TRAFFIC_STREAM_COUNTERS(X)                                                                 \
    X(writes, "writes of applications")                                                            \
    X(written, "bytes of these")                                                                   \
    X(segments, "segments sent")                                                                   \
    X(bytes, "payload bytes of these")                                                             \
    X(pushed, "of these segments, with PSH")                                                       \
    X(urgent, "of these segments, marked urgent")                                                  \
    X(corked, "writes that stayed in the pending segment")                                         \
    X(transactions, "writes that came back, in a loop")                                            \
    X(acknowledgements, "acknowledgements that came")

struct traffic_stream_counters {
#define TRAFFIC_STREAM_FIELD(name, text) uint64_t name;
    TRAFFIC_STREAM_COUNTERS(TRAFFIC_STREAM_FIELD)
#undef TRAFFIC_STREAM_FIELD
};

struct traffic;

/* A port, and a device in this process in front of it; with bridge, the port alone. */
struct traffic_device {
    struct vw_log log;
    struct vw_port *port;
    struct vw_device *device;
};

/* The thread that takes sent frames back: traffic_completions.c. */
struct traffic_completions {
    bool used;
    bool realtime;
    pthread_t thread;
    pthread_mutex_t lock; /* of the pair */
    _Atomic bool wanted;  /* the thread waits for the lock */
    _Atomic bool ending;
    uint64_t system_calls; /* of this thread; read by the main thread */
};

struct traffic_worker {
    struct traffic *traffic;
    struct vw_net *net;
    unsigned pair;
    pthread_t thread;
    bool started;

    /* Read by the main thread: written with traffic_count. */
    uint64_t sent_frames, sent_bytes;
    uint64_t lost_frames;    /* sent to a device that was lost */
    uint64_t refused_frames; /* that could not be sent */
    uint64_t received_frames, received_bytes;
    uint64_t system_calls;          /* of the thread, to move frames */
    struct vw_histogram last_frame; /* ns from a burst's start to its last frame's completion */
    struct vw_histogram latency;    /* ns from a write of a stream until it is back, in a loop */

    struct vw_probe_reader reader;
    struct vw_stream_reader streams;            /* part of it */
    struct traffic_stream_counters stream_sent; /* pktgen, with options.streams */
    uint64_t completed; /* transmitted frames that are finished; the thread's own */
    uint8_t *scratch;   /* a frame that came in pieces is put together here */
    struct traffic_completions completions;
    char error[256]; /* why the thread ended before its time; empty: it did not */
    void *role;      /* what the subcommand needs */
};

/* A subcommand. */
struct traffic_role {
    const char *name;
    const char *help;
    /* Once the command line is read: another role of the same name, or NULL to stay. Or NULL. */
    const struct traffic_role *(*select)(const struct traffic_options *options);
    bool sends;    /* frames of its own */
    bool forwards; /* what it sends is what it received */
    /* Before the device is opened: bytes of its memory that each queue pair needs. */
    size_t (*memory)(const struct traffic_options *options);
    /* Makes worker->role; 0 or -errno. Main thread, the device is open. */
    int (*prepare)(struct traffic_worker *worker);
    void (*release)(struct traffic_worker *worker); /* the device is closed */
    /* The thread; until traffic_ends. */
    void (*run)(struct traffic_worker *worker);
    /* A transmitted frame is finished. NULL: it sends none. */
    void (*sent)(struct traffic_worker *worker, void *token);
};

struct traffic {
    const struct traffic_role *role;
    struct traffic_options options;
    struct traffic_device own;     /* with in_process */
    struct traffic_device bridged; /* bridge: what the device is joined to */
    struct vw_net *net;
    unsigned worker_count;
    struct traffic_worker workers[TRAFFIC_MAX_PAIRS];
    _Atomic bool ending;
    _Atomic unsigned running;
    int epoll_fd, signal_fd, timer_fd, deadline_fd, ended_fd;
    /* `last_frame` and `latency` of all threads, as of the latest report. */
    struct vw_histogram told_last_frame, told_latency;
    double started, ended; /* on vw_clock_seconds' clock; ended 0: not yet */
    bool failed;
};

/* pktgen_streams.c: pktgen with options.streams. */
extern const struct traffic_role traffic_streams_role;

/* The whole of a subcommand but for its role. Returns the exit status. */
int traffic_main(const struct traffic_role *role, int argc, char **argv);

/* traffic_options.c: returns -1 to go on, or an exit status. */
int traffic_parse_command_line(const struct traffic_role *role, int argc, char **argv,
                               struct traffic_options *options);

/* traffic_device.c: opens the device that options->in_process describes, and the way to it. Returns
 * an exit status, having said what was wrong. The close may follow either. */
int traffic_device_open(struct traffic_device *own, const struct traffic_role *role,
                        const struct traffic_options *options, struct vw_transport **transport);
/* The same of a port alone. `option` is the one that described it, without its dashes. */
int traffic_port_open(struct traffic_device *own, const struct traffic_role *role,
                      const struct traffic_options *options, const char *option,
                      const char *description);
void traffic_device_close(struct traffic_device *own);

/* traffic_report.c */
struct traffic_before {
    uint64_t sent_frames, sent_bytes, received_frames, received_bytes;
    double seconds;
};
void traffic_report_rates(const struct traffic *traffic, struct traffic_before *before);
/* `final`: of the whole run; else what is no counter is that since the latest report. */
void traffic_report_all(struct traffic *traffic, bool final);
/* Was anything lost, reordered, duplicated, corrupted or, in a loop, not seen again? */
bool traffic_is_clean(const struct traffic *traffic);

/* ---- for the threads ------------------------------------------------------------------------- */

static inline void traffic_count(uint64_t *counter, uint64_t add)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + add, __ATOMIC_RELAXED);
}

/* What the thread has counted for itself. */
static inline void traffic_tell(struct traffic_worker *worker)
{
    vw_shared_store(&worker->system_calls, vw_system_calls);
}

static inline bool traffic_ends(const struct traffic_worker *worker)
{
    return atomic_load_explicit(&worker->traffic->ending, memory_order_relaxed);
}

/* One look at the device: reaps, and hands received frames to `receive`. Returns how many those
 * were, or -errno after traffic_fail. */
int traffic_poll(struct traffic_worker *worker, vw_rx_function receive);

/* Nothing moved: waits as the mode says, at most `timeout_ms`. */
void traffic_wait(struct traffic_worker *worker, int timeout_ms);

/* Checks received probes, counts them and gives them back. A vw_rx_function; context: worker. */
void traffic_check(void *context, unsigned pair, struct vw_rx_packet *packets, unsigned count);

/*
 * Sends what it can. Returns how many frames from the first on are done with: taken or, one that
 * the device cannot carry, refused and counted. 0: there is no room, or no device for now; -1: the
 * thread is to end, see traffic_fail.
 */
int traffic_send(struct traffic_worker *worker, const struct vw_tx_packet *packets, unsigned count);

/* Starts the thread of options.completion_cpu, 0 or -errno, and ends it. Meanwhile the worker may
 * use the pair only between traffic_lock and traffic_unlock, as traffic_send does; `sent` is called
 * with the lock held. */
int traffic_completions_start(struct traffic_worker *worker);
void traffic_completions_stop(struct traffic_worker *worker);

/* Lets the completions' thread have the lock if it wants it; otherwise a pause in a busy loop. */
void traffic_stand_back(struct traffic_worker *worker);

static inline void traffic_lock(struct traffic_worker *worker)
{
    if (worker->completions.used)
        pthread_mutex_lock(&worker->completions.lock);
}

static inline void traffic_unlock(struct traffic_worker *worker)
{
    if (!worker->completions.used)
        return;
    pthread_mutex_unlock(&worker->completions.lock);
    if (atomic_load_explicit(&worker->completions.wanted, memory_order_relaxed))
        traffic_stand_back(worker);
}

/* Notes why the thread ends. `error` is an errno value. */
void traffic_fail(struct traffic_worker *worker, int error, const char *doing);

#endif
