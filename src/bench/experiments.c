/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/experiments.h"

/* In the order of the seeds. */
const struct bench_experiment *const bench_experiments[] = {
    &bench_tx_completion, &bench_tap_napi, &bench_tx_batch, &bench_rx_big, &bench_policy_grid,
};
const size_t bench_experiment_count = sizeof(bench_experiments) / sizeof(bench_experiments[0]);
