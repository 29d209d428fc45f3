/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/experiments.h"

/* In the order of the seeds. One a line, for those who add some. */
/* clang-format off */
const struct bench_experiment *const bench_experiments[] = {
    &bench_tx_completion,
    &bench_tap_napi,
    &bench_tx_batch,
    &bench_tx_interrupt,
    &bench_rx_big,
    &bench_peers,
    &bench_policy_grid,
};
/* clang-format on */
const size_t bench_experiment_count = sizeof(bench_experiments) / sizeof(bench_experiments[0]);
