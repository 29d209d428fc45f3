/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/testpmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT "testpmd> "

/* Of a machine that does something else as well: it answers within milliseconds otherwise. */
#define PATIENCE 30

struct bench_testpmd {
    struct bench_process *process;
    size_t position; /* in its output: so much is read */
    char *answer;    /* what it printed between the last two prompts; never NULL */
};

static bool is_in_path(const char *program)
{
    const char *path = getenv("PATH");
    char *all = bench_format("%s", path != NULL ? path : "/usr/bin:/bin"), *rest = all;
    bool found = false;

    for (char *folder; !found && (folder = strsep(&rest, ":")) != NULL;) {
        char *file = bench_format("%s/%s", folder, program);

        found = access(file, X_OK) == 0;
        free(file);
    }
    free(all);
    return found;
}

int bench_testpmd_present(struct bench_context *context)
{
    if (!is_in_path("dpdk-testpmd"))
        return bench_fail(context,
                          "there is no dpdk-testpmd in PATH: install the package dpdk-dev");
    if (!is_in_path("stdbuf"))
        return bench_fail(context, "there is no stdbuf in PATH: install the package coreutils");
    return 0;
}

static bool has_prompt(void *argument)
{
    struct bench_testpmd *testpmd = argument;
    char *text = bench_process_output(testpmd->process, testpmd->position);
    char *prompt = strstr(text, PROMPT);

    if (prompt == NULL) {
        free(text);
        return false;
    }
    testpmd->position += (size_t)(prompt - text) + strlen(PROMPT);
    *prompt = '\0';
    free(testpmd->answer);
    testpmd->answer = text;
    return true;
}

static int wait_for_prompt(struct bench_context *context, struct bench_testpmd *testpmd)
{
    return bench_wait_for(context, testpmd->process, "testpmd's prompt", PATIENCE, has_prompt,
                          testpmd);
}

int bench_testpmd_command(struct bench_context *context, struct bench_testpmd *testpmd,
                          const char *command)
{
    char *line = bench_format("%s\n", command);
    int result = bench_process_write(context, testpmd->process, line);

    free(line);
    return result < 0 ? -1 : wait_for_prompt(context, testpmd);
}

int bench_testpmd_forward(struct bench_context *context, struct bench_testpmd *testpmd,
                          const char *mode, const char *how)
{
    char *set = bench_format("set fwd %s", mode), *start = bench_format("start %s", how);
    int result = bench_testpmd_command(context, testpmd, set);

    if (result == 0)
        result = bench_testpmd_command(context, testpmd, start);
    free(set);
    free(start);
    return result;
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Adds the number behind a name. False: there is none. */
static bool add_number(const char *text, const char *name, double *sum)
{
    const char *at = strstr(text, name);
    unsigned long long number;

    if (at == NULL || sscanf(at + strlen(name), "%llu", &number) != 1)
        return false;
    *sum += (double)number;
    return true;
}

int bench_testpmd_count(struct bench_context *context, struct bench_testpmd *testpmd,
                        struct bench_testpmd_counters *counters)
{
    const char *text;

    *counters = (struct bench_testpmd_counters){0};
    if (bench_testpmd_command(context, testpmd, "show port stats 0") < 0)
        return -1;
    text = testpmd->answer;
    if (!add_number(text, "RX-packets:", &counters->received) ||
        !add_number(text, "TX-packets:", &counters->sent) ||
        !add_number(text, "RX-missed:", &counters->failed) ||
        !add_number(text, "RX-errors:", &counters->failed) ||
        !add_number(text, "RX-nombuf:", &counters->failed) ||
        !add_number(text, "TX-errors:", &counters->failed) ||
        !add_number(text, "Rx-pps:", &counters->received_per_second) ||
        !add_number(text, "Tx-pps:", &counters->sent_per_second))
        return bench_fail(context, "testpmd's counters are not understood: \"%.400s\"", text);
    return 0;
}

/* ---- its life -------------------------------------------------------------------------------- */

/* One word a core for the main thread and one for that which forwards; memory without hugepages,
 * with which it is no slower here; nothing of another testpmd's. */
static struct bench_process *start(struct bench_context *context,
                                   const struct bench_testpmd_options *options)
{
    char *environment = bench_format("RUNTIME_DIRECTORY=%s", context->folder);
    char *line = bench_format(
        "stdbuf -oL dpdk-testpmd --lcores 0@%u,1@%u --no-huge -m 256 --no-pci --iova-mode=va "
        "--no-telemetry --file-prefix=bench%d-%s %s%s -- -i --no-mlockall "
        "--total-num-mbufs=16384 --burst=%u --txpkts=%u",
        options->core, options->core, (int)getpid(), options->name,
        options->vectorised ? "--force-max-simd-bitwidth=512 " : "", options->devices,
        options->burst, options->frame_bytes);
    const char *arguments[64];
    struct bench_process_options how = {.name = options->name,
                                        .arguments = arguments,
                                        .core = options->core,
                                        .network = options->network,
                                        .input = true,
                                        .environment = environment};
    struct bench_process *process;
    char *rest = line;
    size_t count = 0;

    for (char *word; count < 63 && (word = strsep(&rest, " ")) != NULL;)
        arguments[count++] = word;
    arguments[count] = NULL;
    process = bench_process_start(context, &how);
    free(environment);
    free(line);
    return process;
}

struct bench_testpmd *bench_testpmd_start(struct bench_context *context,
                                          const struct bench_testpmd_options *options)
{
    struct bench_process *process = start(context, options);
    struct bench_testpmd *testpmd;

    if (process == NULL)
        return NULL;
    testpmd = bench_allocate(sizeof(*testpmd));
    testpmd->process = process;
    testpmd->answer = bench_format("%s", "");
    if (wait_for_prompt(context, testpmd) == 0) {
        char *errors = bench_process_errors(process);

        if (strstr(errors, "No probed ethernet devices") == NULL) {
            free(errors);
            return testpmd;
        }
        bench_fail(context, "testpmd could not make its device:\n%s", errors);
        free(errors);
    }
    bench_testpmd_end(testpmd);
    return NULL;
}

void bench_testpmd_end(struct bench_testpmd *testpmd)
{
    if (testpmd == NULL)
        return;
    /* By SIGTERM it takes more than two seconds. Its files are in the bench's folder. */
    bench_process_kill(testpmd->process);
    free(testpmd->answer);
    free(testpmd);
}

struct bench_process *bench_testpmd_process(struct bench_testpmd *testpmd)
{
    return testpmd->process;
}
