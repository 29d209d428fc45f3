/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target without libFuzzer: `target RUNS SEED [FILE...]` feeds it the files, and then
 * so many pseudo-random inputs. The input that fails is written to `failed-input`.
 */
#include <signal.h>

#include "../model/random.h"
#include "input.h"

#define MAX_INPUT 65536

static uint8_t input[MAX_INPUT];
static size_t input_size;

/* Only a courtesy for whoever looks for the fault; stdio in a handler is good enough for that. */
static void keep_input(int number)
{
    FILE *file = fopen("failed-input", "wb");

    if (file) {
        fwrite(input, 1, input_size, file);
        fclose(file);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static int run_file(const char *name)
{
    FILE *file = fopen(name, "rb");

    if (!file) {
        perror(name);
        return 1;
    }
    input_size = fread(input, 1, sizeof(input), file);
    fclose(file);
    LLVMFuzzerTestOneInput(input, input_size);
    return 0;
}

static void run_random(unsigned long runs, uint64_t seed)
{
    struct random random = {seed};

    for (unsigned long run = 0; run < runs; run++) {
        input_size = random_below(&random, random_one_in(&random, 8) ? 4096 : 512);
        for (size_t i = 0; i < input_size; i++)
            input[i] = (uint8_t)random_next(&random);
        LLVMFuzzerTestOneInput(input, input_size);
    }
}

int main(int count, char **arguments)
{
    uint64_t seed = random_seed();

    if (count < 2) {
        fprintf(stderr, "usage: %s RUNS [SEED [FILE...]]\n", arguments[0]);
        return 2;
    }
    if (count > 2)
        seed = strtoull(arguments[2], NULL, 0);
    signal(SIGABRT, keep_input);
#ifndef __SANITIZE_ADDRESS__ /* which tells more about it, and then aborts */
    signal(SIGSEGV, keep_input);
#endif
    for (int i = 3; i < count; i++)
        if (run_file(arguments[i]) != 0)
            return 1;
    run_random(strtoul(arguments[1], NULL, 0), seed);
    printf("%s runs, seed %#llx: all invariants hold\n", arguments[1], (unsigned long long)seed);
    return 0;
}
