/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runner for `virtwire device` on one core and a driver (`virtwire pktgen`, `sink`, `echo`) on
 * the other.
 *
 * Both print documents of their counters when they are asked; a slice is the difference of two.
 * Frames are counted where they arrive: by the probes of the device's port (sink) or of the
 * driver. Where neither does, as with a TAP, the frames that the device's port took (to the device)
 * or that the driver received are counted.
 *
 * Experiments with more than this around it (a network, streams) use the parts: bench_pair_start,
 * bench_pair_go, bench_pair_begin, bench_pair_finish, bench_pair_stop and bench_pair_end.
 */
#ifndef VW_BENCH_PAIR_H
#define VW_BENCH_PAIR_H

#include <jansson.h>

#include "bench/bench.h"
#include "bench/process.h"

enum bench_direction {
    BENCH_TO_DEVICE,
    BENCH_TO_DRIVER,
    BENCH_LOOP, /* to the device and back; frames are counted when they are back */
};

/* The documents of a slice, for `more`. */
struct bench_pair_slice {
    const json_t *device_before, *device_after, *driver_before, *driver_after;
    double seconds;
    double frames; /* that arrived in the slice */
};

/* Parameters of the runner, and of bench_pair_start. All bytes 0 but the texts: an ordinary one. */
struct bench_pair_parameters {
    char device[512]; /* options of `virtwire device`, separated by blanks, such as
                         "--port sink --mode=poll"; without the socket and --json */
    char driver[512]; /* subcommand and options: "pktgen --mode=poll --burst=32" */
    enum bench_direction direction;
    bool one_core;                              /* both sides on the device's core */
    bool device_sleeps, driver_sleeps;          /* it need not have all of its core */
    const int *device_network, *driver_network; /* descriptors of network namespaces; NULL: ours */
    bool idle;           /* no frames flow by themselves: bench_pair_start does not wait for any */
    const char *feature; /* that must be negotiated; NULL: none in particular */
    const char *absent;  /* that must not */
    /* Reads more from the documents before and after the slice; NULL: nothing more to read. */
    void (*more)(const struct bench_pair_slice *slice, struct bench_sample *sample);
};

extern const struct bench_runner bench_pair_runner;

/* ---- the parts ------------------------------------------------------------------------------- */

struct bench_pair;

/* Starts both, and waits until frames flow; they go on flowing. NULL after bench_fail. Notes
 * command lines and features. The parameters must outlive the pair. */
struct bench_pair *bench_pair_start(struct bench_context *context, struct bench_variant *variant,
                                    const struct bench_pair_parameters *parameters);
void bench_pair_end(struct bench_pair *pair); /* NULL is no pair */

void bench_pair_go(struct bench_pair *pair);
void bench_pair_stop(struct bench_pair *pair);

/* Reads the counters at the beginning and at the end of a slice, while the pair goes; the latter
 * fills the sample: all metrics that follow from the documents, seconds, busy and faulty. 0 or -1
 * after bench_fail. */
int bench_pair_begin(struct bench_context *context, struct bench_pair *pair);
int bench_pair_finish(struct bench_context *context, struct bench_pair *pair,
                      struct bench_sample *sample);

/* The two processes. */
struct bench_process *bench_pair_device(struct bench_pair *pair);
struct bench_process *bench_pair_driver(struct bench_pair *pair);

/* A counter in a document: names of objects separated by points, with places in arrays as numbers,
 * such as "port.queues.0.probe.frames"; `*` stands for the sum over all elements of an array. NAN:
 * there is none. */
double bench_document_number(const json_t *document, const char *path);

/* The difference of two documents. */
double bench_document_difference(const json_t *before, const json_t *after, const char *path);

/* The features that a document names, separated by blanks, to be freed; is one of them this? */
char *bench_document_features(const json_t *document);
bool bench_document_has_feature(const json_t *document, const char *name);

#endif
