/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a cache line takes from one core to another and back.
 *
 *     core_round_trip CORE CORE [MILLISECONDS]
 *
 * prints nanoseconds. On a virtual machine the host moves the virtual cores about, and the same two
 * programs may run at twice the rate when theirs are close: a measurement on two cores is worth
 * something only together with this number, before and after. src/bench/round_trip.c measures it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/engine.h"

int main(int argc, char **argv)
{
    int one = argc > 1 ? atoi(argv[1]) : 0, other = argc > 2 ? atoi(argv[2]) : 1;
    double trip = NAN;

    if (one >= 0 && other >= 0)
        trip = bench_round_trip((unsigned)one, (unsigned)other,
                                (argc > 3 ? atof(argv[3]) : 20) * 1e-3);
    if (isnan(trip)) {
        fprintf(stderr, "core_round_trip: give two different cores that this process may use\n");
        return EXIT_FAILURE;
    }
    printf("%.1f\n", trip * 1e9);
    return EXIT_SUCCESS;
}
