/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a report says of the machine: read and measured when the run begins, since the same machine
 * may be another tomorrow.
 */
#include <dirent.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/engine.h"
#include "bench/report.h"
#include "bench/statistics.h"

#define CALLS 1000 /* between two looks at the clock */
#define REPEATS 20
#define KICKS 150
#define KICK_PAUSE_NS 1500000 /* the other sleeps well: a short sleep is left faster */
#define ROUND_TRIP_SECONDS 0.05

/* commit.c, made by the build */
extern const char bench_commit[];

/* ---- texts ----------------------------------------------------------------------------------- */

/* A file's first line, without its newline; to be freed, NULL: there is none. */
static char *first_line(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;

    if (file == NULL)
        return NULL;
    if (getline(&line, &room, file) < 0) {
        free(line);
        line = NULL;
    } else {
        line[strcspn(line, "\n")] = '\0';
    }
    fclose(file);
    return line;
}

/* The value of a key in /proc/cpuinfo, of the first processor; to be freed. */
static char *cpu_fact(const char *key)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL, *found = NULL, *colon;
    size_t room = 0;

    while (file != NULL && found == NULL && getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL && colon[1] == ' ')
            found = bench_format("%s", colon + 2);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return found != NULL ? found : bench_format("unknown");
}

static char *cpu_text(void)
{
    char *model = cpu_fact("model name"), *text;
    cpu_set_t cores;

    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof(cores), &cores);
    text = bench_format("%s, %d cores", model, CPU_COUNT(&cores));
    free(model);
    return text;
}

static char *mitigations_text(void)
{
    static const char folder[] = "/sys/devices/system/cpu/vulnerabilities";
    char *text = bench_format("%s", ""), *longer, *path, *state;
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);

    for (int i = 0; i < count; i++) {
        path = bench_format("%s/%s", folder, entries[i]->d_name);
        state = entries[i]->d_name[0] != '.' ? first_line(path) : NULL;
        if (state != NULL && strcmp(state, "Not affected") != 0) {
            longer = bench_format("%s%s%s: %s", text, *text != '\0' ? "; " : "", entries[i]->d_name,
                                  state);
            free(text);
            text = longer;
        }
        free(state);
        free(path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (*text == '\0') {
        free(text);
        text = bench_format(count < 0 ? "unknown" : "none needed");
    }
    return text;
}

static char *dpdk_text(void)
{
    FILE *output = popen(
        "dpdk-testpmd -v --in-memory --no-huge -m 16 --no-pci --no-telemetry -- --version 2>&1",
        "re");
    char line[256], *text = NULL, *name, *end;

    while (output != NULL && fgets(line, sizeof(line), output) != NULL) {
        name = strstr(line, "DPDK ");
        if (name == NULL || text != NULL)
            continue;
        end = strchrnul(name, '\'');
        text = bench_format("%.*s", (int)(end - name), name);
    }
    if (output != NULL)
        pclose(output);
    return text != NULL ? text : bench_format("none");
}

static char *kernel_text(void)
{
    struct utsname name;

    uname(&name);
    return bench_format("%s %s %s", name.sysname, name.release, name.machine);
}

static char *time_text(void)
{
    time_t now = time(NULL);
    struct tm parts;
    char text[32];

    gmtime_r(&now, &parts);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return bench_format("%s", text);
}

static char *joined(int argc, char **argv)
{
    char *text = bench_format("virtwire"), *longer;

    for (int i = 0; i < argc; i++) {
        longer = bench_format("%s %s", text, argv[i]);
        free(text);
        text = longer;
    }
    return text;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static void system_call(int nothing)
{
    (void)nothing;
    syscall(SYS_getppid);
}

static void write_event(int event)
{
    (void)!eventfd_write(event, 1);
}

/* Median time of one call. */
static double cost_of(void (*call)(int), int argument)
{
    double times[REPEATS], began;

    for (int i = 0; i < REPEATS; i++) {
        began = vw_clock_seconds();
        for (int j = 0; j < CALLS; j++)
            call(argument);
        times[i] = (vw_clock_seconds() - began) / CALLS;
    }
    return bench_median(times, REPEATS);
}

struct sleeper {
    int event;
    unsigned core;
    _Atomic double woke; /* when it ran; 0: it sleeps, or soon will */
    _Atomic bool ending;
};

static void *sleep_and_wake(void *argument)
{
    struct sleeper *sleeper = argument;
    struct pollfd waited = {.fd = sleeper->event, .events = POLLIN};
    eventfd_t count;
    cpu_set_t core;

    CPU_ZERO(&core);
    CPU_SET(sleeper->core, &core);
    pthread_setaffinity_np(pthread_self(), sizeof(core), &core);
    while (!atomic_load(&sleeper->ending)) {
        poll(&waited, 1, -1);
        atomic_store(&sleeper->woke, vw_clock_seconds());
        eventfd_read(sleeper->event, &count);
    }
    return NULL;
}

/* On the driver's core. */
static void kick_sleeper(struct sleeper *sleeper, struct bench_machine *machine)
{
    double costs[KICKS], latencies[KICKS], began, woke;

    for (int i = 0; i < KICKS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = KICK_PAUSE_NS}, NULL);
        atomic_store(&sleeper->woke, 0);
        began = vw_clock_seconds();
        write_event(sleeper->event);
        costs[i] = vw_clock_seconds() - began;
        while ((woke = atomic_load(&sleeper->woke)) == 0)
            ;
        latencies[i] = woke - began;
    }
    machine->kick_cost = bench_median(costs, KICKS);
    machine->kick_latency = bench_median(latencies, KICKS);
}

static void measure_kicks(struct bench_machine *machine)
{
    struct sleeper sleeper = {.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                              .core = machine->cores[1]};
    pthread_t thread;

    if (sleeper.event < 0)
        return;
    machine->kick_idle_cost = cost_of(write_event, sleeper.event);
    eventfd_read(sleeper.event, &(eventfd_t){0});
    if (machine->cores[0] != machine->cores[1] &&
        pthread_create(&thread, NULL, sleep_and_wake, &sleeper) == 0) {
        kick_sleeper(&sleeper, machine);
        atomic_store(&sleeper.ending, true);
        write_event(sleeper.event);
        pthread_join(thread, NULL);
    }
    close(sleeper.event);
}

static void measure(struct bench_machine *machine)
{
    cpu_set_t before, core;

    machine->system_call = machine->kick_cost = machine->kick_latency = NAN;
    machine->kick_idle_cost = NAN;
    CPU_ZERO(&core);
    CPU_SET(machine->cores[0], &core);
    if (sched_getaffinity(0, sizeof(before), &before) == 0 &&
        sched_setaffinity(0, sizeof(core), &core) == 0) {
        machine->system_call = cost_of(system_call, 0);
        measure_kicks(machine);
        sched_setaffinity(0, sizeof(before), &before);
    }
    machine->round_trip =
        bench_round_trip(machine->cores[0], machine->cores[1], ROUND_TRIP_SECONDS);
}

void bench_machine_read(struct bench_machine *machine, const struct bench_options *options,
                        int argc, char **argv)
{
    char *flags = cpu_fact("flags"), *word;

    word = strstr(flags, " hypervisor");
    *machine = (struct bench_machine){
        .kernel = kernel_text(),
        .cpu = cpu_text(),
        .mitigations = mitigations_text(),
        .virtual_machine = bench_format(word != NULL ? "yes" : "no"),
        .virtwire = bench_format(VIRTWIRE_VERSION),
        .commit = bench_format("%s", bench_commit),
        .dpdk = dpdk_text(),
        .when = time_text(),
        .command = joined(argc, argv),
        .cores = {options->cores[0], options->cores[1]},
    };
    free(flags);
    measure(machine);
}

void bench_machine_free(struct bench_machine *machine)
{
    free(machine->kernel);
    free(machine->cpu);
    free(machine->mitigations);
    free(machine->virtual_machine);
    free(machine->virtwire);
    free(machine->commit);
    free(machine->dpdk);
    free(machine->when);
    free(machine->command);
}
