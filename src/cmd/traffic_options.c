/* SPDX-License-Identifier: BSD-3-Clause */
/* The command lines of pktgen, sink and echo. */
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "cmd/command.h"
#include "cmd/parse.h"
#include "cmd/traffic.h"

static const char common_help[] =
    "\n"
    "device (one of the first three):\n"
    "  --socket-path=PATH    connect to the vhost-user back-end that listens there\n"
    "  --fd=N                use the open socket with this number, connected to a back-end\n"
    "  --in-process=PORT     a device of its own, in this process, in front of a port such as\n"
    "                        loop, sink or tap,name=vw0: man virtwire-device\n"
    "  --listen              listen at --socket-path and wait for the back-end instead\n"
    "  --no-reconnect        end when the back-end goes away (default: connect again)\n"
    "  --queue-pairs=N       queue pairs, each with a thread of its own (1)\n"
    "  --ring-size=N         entries of each ring (256)\n"
    "  --features=NAME=off,...   do not accept these features, such as packed, in_order,\n"
    "                        mrg_rxbuf, event_idx, indirect_desc\n"
    "  --rx-mode=auto|small|big|mergeable   how receive buffers are made (auto)\n"
    "  --rx-big=mtu|maximum  mode big: buffers for the MTU, or always for 64 KiB (mtu)\n"
    "  --tx-policy=deferred|orphan|urgent|delayed|scheduled   when sent frames are found\n"
    "                        completed: man virtwire-tx-policies (deferred)\n"
    "  --byte-queue-limits=on|off   limit the bytes in flight as the device keeps up (on)\n"
    "  --mtu=N               MTU (the device's, or 1500)\n"
    "\n"
    "waiting:\n"
    "  --mode=adaptive|interrupt|poll   with nothing to do: spin for a while and then sleep\n"
    "                        (default), sleep at once, or never sleep\n"
    "  --spin-us=N           adaptive: microseconds to spin (100)\n"
    "\n"
    "report:\n"
    "  --stats-interval=S    a line of rates every S seconds; 0 for none (1; with --json 0)\n"
    "  --json                lines and summary as JSON, one object a line\n"
    "  --strict              exit status 1 if anything was lost, reordered, duplicated or corrupt\n"
    "  --verbose             also what is of interest only when something is wrong\n"
    "  --help                this text\n"
    "\n"
    "SIGUSR1 prints the summary so far.\n"
    "\n"
    "examples, with a back-end to try them on:\n"
    "  virtwire device --socket-path=/tmp/vw.sock --port loop &\n"
    "  virtwire pktgen --socket-path=/tmp/vw.sock --loop --size=imix --duration=5\n"
    "\n"
    "  virtwire device --socket-path=/tmp/vw.sock --port sink --mode=poll &\n"
    "  virtwire pktgen --socket-path=/tmp/vw.sock --mode=poll --duration=5 --json\n"
    "\n"
    "  virtwire device --socket-path=/tmp/vw.sock --port source,size=60-1514 &\n"
    "  virtwire sink --socket-path=/tmp/vw.sock --features=packed=off --duration=5\n";

enum option_code {
    OPTION_SOCKET_PATH = 256,
    OPTION_FD,
    OPTION_IN_PROCESS,
    OPTION_LISTEN,
    OPTION_NO_RECONNECT,
    OPTION_QUEUE_PAIRS,
    OPTION_RING_SIZE,
    OPTION_FEATURES,
    OPTION_RX_MODE,
    OPTION_RX_BIG,
    OPTION_TX_POLICY,
    OPTION_BYTE_QUEUE_LIMITS,
    OPTION_MTU,
    OPTION_MODE,
    OPTION_SPIN_US,
    OPTION_STATS_INTERVAL,
    OPTION_JSON,
    OPTION_STRICT,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_BURST,
    OPTION_DURATION,
    OPTION_COUNT,
    OPTION_PORT, /* bridge's alone */
    /* pktgen's alone */
    OPTION_RATE,
    OPTION_SIZE,
    OPTION_FLOWS,
    OPTION_LOOP,
    OPTION_URGENT_EVERY,
    OPTION_COMPLETION_CPU,
    OPTION_SOURCE_MAC,
    OPTION_DESTINATION_MAC,
    OPTION_SOURCE_IP,
    OPTION_DESTINATION_IP,
    OPTION_STREAMS,
    OPTION_WRITE,
    OPTION_ACKNOWLEDGED,
    OPTION_THINK_US,
    /* sink's alone */
    OPTION_ACKNOWLEDGE,
};

static const struct option options[] = {
    {"socket-path", required_argument, NULL, OPTION_SOCKET_PATH},
    {"fd", required_argument, NULL, OPTION_FD},
    {"in-process", required_argument, NULL, OPTION_IN_PROCESS},
    {"listen", no_argument, NULL, OPTION_LISTEN},
    {"no-reconnect", no_argument, NULL, OPTION_NO_RECONNECT},
    {"queue-pairs", required_argument, NULL, OPTION_QUEUE_PAIRS},
    {"ring-size", required_argument, NULL, OPTION_RING_SIZE},
    {"features", required_argument, NULL, OPTION_FEATURES},
    {"rx-mode", required_argument, NULL, OPTION_RX_MODE},
    {"rx-big", required_argument, NULL, OPTION_RX_BIG},
    {"tx-policy", required_argument, NULL, OPTION_TX_POLICY},
    {"byte-queue-limits", required_argument, NULL, OPTION_BYTE_QUEUE_LIMITS},
    {"mtu", required_argument, NULL, OPTION_MTU},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"spin-us", required_argument, NULL, OPTION_SPIN_US},
    {"stats-interval", required_argument, NULL, OPTION_STATS_INTERVAL},
    {"json", no_argument, NULL, OPTION_JSON},
    {"strict", no_argument, NULL, OPTION_STRICT},
    {"verbose", no_argument, NULL, OPTION_VERBOSE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"burst", required_argument, NULL, OPTION_BURST},
    {"duration", required_argument, NULL, OPTION_DURATION},
    {"count", required_argument, NULL, OPTION_COUNT},
    {"port", required_argument, NULL, OPTION_PORT},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"size", required_argument, NULL, OPTION_SIZE},
    {"flows", required_argument, NULL, OPTION_FLOWS},
    {"loop", no_argument, NULL, OPTION_LOOP},
    {"urgent-every", required_argument, NULL, OPTION_URGENT_EVERY},
    {"completion-cpu", required_argument, NULL, OPTION_COMPLETION_CPU},
    {"source-mac", required_argument, NULL, OPTION_SOURCE_MAC},
    {"destination-mac", required_argument, NULL, OPTION_DESTINATION_MAC},
    {"source-ip", required_argument, NULL, OPTION_SOURCE_IP},
    {"destination-ip", required_argument, NULL, OPTION_DESTINATION_IP},
    {"streams", required_argument, NULL, OPTION_STREAMS},
    {"write", required_argument, NULL, OPTION_WRITE},
    {"acknowledged", no_argument, NULL, OPTION_ACKNOWLEDGED},
    {"think-us", required_argument, NULL, OPTION_THINK_US},
    {"acknowledge", required_argument, NULL, OPTION_ACKNOWLEDGE},
    {NULL, 0, NULL, 0},
};

/* Places are the numbers of the library's or of our own enum. */
static const char *const policies[] = {
    [VW_TX_DEFERRED] = "deferred", [VW_TX_ORPHAN] = "orphan",       [VW_TX_URGENT] = "urgent",
    [VW_TX_DELAYED] = "delayed",   [VW_TX_SCHEDULED] = "scheduled",
};
static const char *const rx_modes[] = {
    [VW_RX_AUTO] = "auto",
    [VW_RX_SMALL] = "small",
    [VW_RX_BIG] = "big",
    [VW_RX_MERGEABLE] = "mergeable",
};
static const char *const rx_big[] = {
    [VW_RX_BIG_MTU] = "mtu",
    [VW_RX_BIG_MAXIMUM] = "maximum",
};
static const char *const modes[] = {
    [TRAFFIC_ADAPTIVE] = "adaptive",
    [TRAFFIC_INTERRUPT] = "interrupt",
    [TRAFFIC_POLL] = "poll",
};
static const char *const off_on[] = {"off", "on"};

/* One option with its name and value. */
struct given {
    const char *command, *name, *value;
};

static int number(const struct given *given, unsigned long low, unsigned long high, unsigned *to)
{
    unsigned long value;
    int status = parse_number(given->command, given->name, given->value, low, high, &value);

    *to = (unsigned)value;
    return status;
}

#define CHOICE(given, words, to)                                                                   \
    parse_choice((given)->command, (given)->name, (given)->value, words, VW_ARRAY_SIZE(words), to)

/* Which device, and how. Returns -2 if it is no such option. */
static int parse_device(const struct given *given, int option, struct vw_net_options *net)
{
    unsigned value = 0;
    int status = -1;

    switch (option) {
    case OPTION_SOCKET_PATH:
        net->socket_path = given->value;
        return check_socket_path(given->command, given->value);
    case OPTION_FD:
        status = number(given, 0, 1 << 20, &value);
        net->fd = (int)value;
        return status < 0 ? check_socket(given->command, net->fd) : status;
    case OPTION_LISTEN:
        net->listen = 1;
        return status;
    case OPTION_NO_RECONNECT:
        net->reconnect = 0;
        return status;
    case OPTION_QUEUE_PAIRS:
        return number(given, 1, TRAFFIC_MAX_PAIRS, &net->queue_pairs);
    case OPTION_RING_SIZE:
        status = number(given, 1, 32768, &value);
        net->tx_ring_size = net->rx_ring_size = value;
        return status;
    case OPTION_FEATURES:
        net->features = given->value;
        return status;
    case OPTION_RX_MODE:
        status = CHOICE(given, rx_modes, &value);
        net->rx_mode = (enum vw_rx_mode)value;
        return status;
    case OPTION_RX_BIG:
        status = CHOICE(given, rx_big, &value);
        net->rx_big = (enum vw_rx_big)value;
        return status;
    case OPTION_TX_POLICY:
        status = CHOICE(given, policies, &value);
        net->tx_policy = (enum vw_tx_policy)value;
        return status;
    case OPTION_BYTE_QUEUE_LIMITS:
        status = CHOICE(given, off_on, &value);
        net->byte_queue_limits = (int)value;
        return status;
    case OPTION_MTU:
        return number(given, 68, 65535, &net->mtu);
    case OPTION_SPIN_US:
        return number(given, 0, 1000000, &net->spin_us);
    }
    return -2;
}

static int parse_run(const struct given *given, int option, struct traffic_options *run)
{
    unsigned long long_number = 0;
    unsigned value = 0;
    int status = -1;

    switch (option) {
    case OPTION_IN_PROCESS:
        run->in_process = given->value;
        return status;
    case OPTION_MODE:
        status = CHOICE(given, modes, &value);
        run->mode = (enum traffic_mode)value;
        return status;
    case OPTION_STATS_INTERVAL:
        return number(given, 0, 86400, &run->stats_interval);
    case OPTION_JSON:
        run->json = true;
        return status;
    case OPTION_STRICT:
        run->strict = true;
        return status;
    case OPTION_VERBOSE:
        run->verbose = true;
        return status;
    case OPTION_BURST:
        return number(given, 1, TRAFFIC_MAX_BURST, &run->burst);
    case OPTION_DURATION:
        return parse_scaled(given->command, given->name, given->value, &run->duration);
    case OPTION_COUNT:
        status =
            parse_number(given->command, given->name, given->value, 1, 1UL << 62, &long_number);
        run->count = long_number;
        return status;
    case OPTION_PORT:
        run->port = given->value;
        return status;
    }
    return -2;
}

static int parse_pktgen(const struct given *given, int option, struct traffic_options *run)
{
    unsigned value = 0;
    int status;

    switch (option) {
    case OPTION_RATE:
        return parse_scaled(given->command, given->name, given->value, &run->rate);
    case OPTION_SIZE:
        if (vw_probe_sizes_parse(&run->sizes, given->value))
            return -1;
        return command_usage_error(given->command,
                                   "--size=%s: give lengths from %d to %d, such as 64, 64,1514, "
                                   "60-9014 or imix",
                                   given->value, VW_PROBE_MIN_FRAME, VW_PROBE_MAX_FRAME);
    case OPTION_FLOWS:
        return number(given, 1, VW_PROBE_MAX_FLOWS, &run->flows);
    case OPTION_LOOP:
        run->loop = true;
        return -1;
    case OPTION_URGENT_EVERY:
        return number(given, 1, 1U << 31, &run->urgent_every);
    case OPTION_COMPLETION_CPU:
        status = number(given, 0, CPU_SETSIZE - 1, &value);
        run->completion_cpu = (int)value;
        return status;
    case OPTION_SOURCE_MAC:
        return parse_mac(given->command, given->name, given->value, run->addresses.source);
    case OPTION_DESTINATION_MAC:
        return parse_mac(given->command, given->name, given->value, run->addresses.destination);
    case OPTION_SOURCE_IP:
        return parse_ipv4(given->command, given->name, given->value, &run->addresses.source_ip);
    case OPTION_DESTINATION_IP:
        return parse_ipv4(given->command, given->name, given->value,
                          &run->addresses.destination_ip);
    case OPTION_STREAMS:
        return number(given, 1, VW_STREAM_MAX, &run->streams);
    case OPTION_WRITE:
        return number(given, 1, VW_STREAM_WRITE_MAX, &run->write);
    case OPTION_ACKNOWLEDGED:
        run->acknowledged = true;
        return -1;
    case OPTION_THINK_US:
        return number(given, 1, 1000000, &run->think_us);
    case OPTION_ACKNOWLEDGE:
        return number(given, 1, 1000, &run->acknowledge);
    }
    return -2;
}

static void set_defaults(struct traffic_options *run)
{
    memset(run, 0, sizeof(*run));
    vw_net_options_init(&run->net);
    run->burst = 32;
    run->stats_interval = UINT32_MAX; /* not given */
    run->completion_cpu = -1;
    vw_probe_addresses_default(&run->addresses);
}

/* Options of probes and of streams do not mix. */
static int check_streams(const char *command, struct traffic_options *run)
{
    if (run->streams == 0 && (run->write != 0 || run->acknowledged || run->think_us != 0))
        return command_usage_error(command, "%s needs --streams",
                                   run->write != 0     ? "--write"
                                   : run->acknowledged ? "--acknowledged"
                                                       : "--think-us");
    if (run->streams == 0)
        return -1;
    if (run->write == 0)
        run->write = 16384;
    const char *other = run->sizes.count != 0      ? "--size"
                        : run->rate > 0            ? "--rate"
                        : run->flows != 0          ? "--flows"
                        : run->urgent_every != 0   ? "--urgent-every"
                        : run->completion_cpu >= 0 ? "--completion-cpu"
                                                   : NULL;
    if (run->loop && run->acknowledged)
        return command_usage_error(command, "--loop does not go with --acknowledged");
    if (run->think_us != 0 && !run->loop)
        return command_usage_error(command, "--think-us needs --loop");
    if (other != NULL)
        return command_usage_error(command, "--streams does not go with %s", other);
    return -1;
}

static int check(const char *command, struct traffic_options *run)
{
    const struct vw_net_options *net = &run->net;

    unsigned ways = (net->socket_path != NULL) + (net->fd >= 0) + (run->in_process != NULL);

    if (ways == 0)
        return command_usage_error(
            command, "no device: give --socket-path=PATH, --fd=N, or --in-process=PORT");
    if (ways > 1)
        return command_usage_error(command, "give one of --socket-path, --fd and --in-process");
    if (run->completion_cpu >= 0 && (run->mode == TRAFFIC_POLL || run->loop))
        return command_usage_error(command, "--completion-cpu: not with --mode=poll, in which "
                                            "nobody is called, nor with --loop");
    if (net->listen && net->socket_path == NULL)
        return command_usage_error(command, "--listen needs --socket-path");
    int status = check_streams(command, run);
    if (status >= 0)
        return status;
    if (run->sizes.count == 0)
        vw_probe_sizes_parse(&run->sizes, "64");
    if (run->stats_interval == UINT32_MAX)
        run->stats_interval = run->json ? 0 : 1;
    if (run->flows == 0)
        run->flows = net->queue_pairs;
    if (run->flows < net->queue_pairs)
        return command_usage_error(command, "--flows=%u: each of %u queue pairs needs one",
                                   run->flows, net->queue_pairs);
    return -1;
}

static bool option_is_for(const struct traffic_role *role, int option)
{
    bool bridge = strcmp(role->name, "bridge") == 0;

    if (option == OPTION_ACKNOWLEDGE)
        return strcmp(role->name, "sink") == 0;
    if (option == OPTION_PORT || option == OPTION_BURST)
        return bridge == (option == OPTION_PORT);
    if (option >= OPTION_RATE)
        return strcmp(role->name, "pktgen") == 0;
    return option != OPTION_COUNT || !role->forwards;
}

int traffic_parse_command_line(const struct traffic_role *role, int argc, char **argv,
                               struct traffic_options *run)
{
    struct given given = {.command = role->name};
    int option, place = 0, status;
    uint64_t before = 0;

    set_defaults(run);
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:h", options, &place)) != -1) {
        if (option == ':')
            return command_usage_error(role->name, "%s needs a value", argv[optind - 1]);
        if (option == '?' || !option_is_for(role, option))
            return command_usage_error(role->name, "there is no option '%s'", argv[optind - 1]);
        if (option == 'h' || option == OPTION_HELP) {
            fputs(role->help, stdout);
            fputs(common_help, stdout);
            return EXIT_SUCCESS;
        }
        given.name = options[place].name;
        given.value = optarg;
        status = note_given(role->name, given.name, (unsigned)(option - OPTION_SOCKET_PATH), "",
                            &before);
        if (status < 0)
            status = parse_device(&given, option, &run->net);
        if (status == -2)
            status = parse_run(&given, option, run);
        if (status == -2)
            status = parse_pktgen(&given, option, run);
        if (status >= 0)
            return status;
    }
    if (optind < argc)
        return command_usage_error(role->name, "'%s' is not expected here; options begin with --",
                                   argv[optind]);
    if (strcmp(role->name, "bridge") == 0 && run->port == NULL)
        return command_usage_error(role->name, "no port: give --port, such as tap,name=vw0");
    return check(role->name, run);
}
