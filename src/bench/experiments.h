/* SPDX-License-Identifier: BSD-3-Clause */
/* The experiments, each from the file of its name. */
#ifndef VW_BENCH_EXPERIMENTS_H
#define VW_BENCH_EXPERIMENTS_H

#include "bench/bench.h"

extern const struct bench_experiment bench_tx_completion;
extern const struct bench_experiment bench_tap_napi;
extern const struct bench_experiment bench_tx_batch;
extern const struct bench_experiment bench_tx_interrupt;
extern const struct bench_experiment bench_rx_big;
extern const struct bench_experiment bench_policy_grid;
extern const struct bench_experiment bench_peers;

#endif
