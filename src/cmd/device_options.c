/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/device_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "cmd/command.h"
#include "cmd/parse.h"
#include "net/config.h"
#include "net/features.h"

static const char help[] =
    "usage: virtwire device --socket-path=PATH --port PORT [OPTION...]\n"
    "\n"
    "A vhost-user-net back-end: serves the network card of a virtual machine and moves its\n"
    "frames to and from a port. Runs until SIGTERM; the guest may come and go.\n"
    "\n"
    "socket (one of them; given again, it begins another device in the same process, and the\n"
    "options behind it are that device's):\n"
    "  --socket-path=PATH    listen at this UNIX socket\n"
    "  --fd=N                use the open socket with this number, connected or listening\n"
    "  --client              connect to --socket-path instead of listening, and connect again\n"
    "                        whenever the connection ends\n"
    "\n"
    "port:\n"
    "  --port tap,name=vw0   a TAP interface, made if there is none of that name. More:\n"
    "                          queues=N    queues, one a queue pair (default --queue-pairs)\n"
    "                          mtu=N       MTU of the interface, also told to the guest\n"
    "                          offload=on|off   checksum and segmentation offloads (on)\n"
    "                          sndbuf=N    bytes in flight into the host before waiting\n"
    "                          io=auto|uring|plain   many frames in one system call through\n"
    "                                      io_uring, or one; auto takes the faster one (auto)\n"
    "                          napi=off|on|auto   let the kernel merge segments; dear (off)\n"
    "  --port tap,path=/dev/tap7   a macvtap interface\n"
    "  --port tap,fd=N[:N...]  TAP descriptors that were opened before\n"
    "  --port afxdp,if=eth0,queue=0   one queue of a network interface, through AF_XDP\n"
    "  --port null           nowhere: frames are counted and dropped\n"
    "  --port loop           back to the guest, with the MAC addresses swapped: a self-test\n"
    "  --port sink           nowhere, but probe frames (virtwire pktgen) are checked and counted\n"
    "                          acknowledge=N   acknowledge each N segments of TCP streams (never)\n"
    "  --port source         as sink, and probe frames come from it. More:\n"
    "                          size=N[:N...]|N-N|imix   length of the frames (64)\n"
    "                          flows=N, count=N   flows, and frames of each queue in all\n"
    "                          streams=N, write=BYTES   TCP streams in place of probes\n"
    "\n"
    "device:\n"
    "  --queue-pairs=N       queue pairs (1, or the port's queues=)\n"
    "  --queue-size=N        largest ring that is accepted (32768)\n"
    "  --mac=AA:BB:CC:DD:EE:FF   the guest's address (the guest or its VMM chooses)\n"
    "  --mtu=N               MTU told to the guest (the port's mtu=, or none)\n"
    "  --mode=adaptive|interrupt|poll   with nothing to do: go on looking for a moment if that\n"
    "                        has paid lately, and then sleep (default); sleep at once; or look\n"
    "                        without end, for a core of its own\n"
    "  --busy-poll-us=N      adaptive: how long a moment is, in microseconds (50)\n"
    "  --workers=N           threads, which share the queue pairs (one for each pair)\n"
    "  --cpus=LIST           pin the workers to these CPUs in turn, such as 2,4-7\n"
    "  --realtime=PRIORITY   real-time priority of the workers, 1 to 99\n"
    "  --batch=N             frames from the guest that are fetched, sent and given back in\n"
    "                        one go, 1 to 64 (64)\n"
    "  --batch-fetch=together|singly   how the ring is read and written for a batch: at once,\n"
    "                        or frame by frame, for comparison (together)\n"
    "  --batch-copy=on|off   copy frames from the guest before the port sees them, for\n"
    "                        comparison (off)\n"
    "  --features=NAME=off,...   do not offer these features, such as packed, in_order,\n"
    "                        mrg_rxbuf, event_idx, indirect_desc, guest_tso4; 'help' lists all\n"
    "\n"
    "report:\n"
    "  --stats-interval=S    every S seconds, a line of live counters\n"
    "  --json                counters as JSON\n"
    "  --verbose             also what is of interest only when something is wrong\n"
    "  --print-capabilities  what this program can do, as JSON, and exit\n"
    "  --help                this text\n"
    "\n"
    "SIGUSR1 prints all counters. SIGTERM ends the program with status 0.\n"
    "\n"
    "examples:\n"
    "  virtwire device --socket-path=/run/vm1.sock --port tap,name=vw0\n"
    "  virtwire device --socket-path=/run/vm1.sock --port tap,name=vw0,queues=4,mtu=9000\n"
    "  virtwire device --socket-path=/tmp/loop.sock --port loop --stats-interval=1\n"
    "  virtwire device --socket-path=/tmp/a.sock --port tap,name=vw0 \\\n"
    "                  --socket-path=/tmp/b.sock --port tap,name=vw1\n"
    "\n"
    "and then, for example:\n"
    "  qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on \\\n"
    "    -m 1G -machine q35,memory-backend=mem -chardev socket,id=c0,path=/run/vm1.sock \\\n"
    "    -netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0 ...\n";

enum option_code {
    OPTION_SOCKET_PATH = 256,
    OPTION_FD,
    OPTION_CLIENT,
    OPTION_PORT,
    OPTION_QUEUE_PAIRS,
    OPTION_QUEUE_SIZE,
    OPTION_MAC,
    OPTION_MTU,
    OPTION_MODE,
    OPTION_BUSY_POLL_US,
    OPTION_WORKERS,
    OPTION_CPUS,
    OPTION_REALTIME,
    OPTION_BATCH,
    OPTION_BATCH_FETCH,
    OPTION_BATCH_COPY,
    OPTION_FEATURES,
    OPTION_STATS_INTERVAL,
    OPTION_JSON,
    OPTION_VERBOSE,
    OPTION_PRINT_CAPABILITIES,
    OPTION_HELP,
};

static const struct option options[] = {
    {"socket-path", required_argument, NULL, OPTION_SOCKET_PATH},
    {"fd", required_argument, NULL, OPTION_FD},
    {"client", no_argument, NULL, OPTION_CLIENT},
    {"port", required_argument, NULL, OPTION_PORT},
    {"queue-pairs", required_argument, NULL, OPTION_QUEUE_PAIRS},
    {"queue-size", required_argument, NULL, OPTION_QUEUE_SIZE},
    {"mac", required_argument, NULL, OPTION_MAC},
    {"mtu", required_argument, NULL, OPTION_MTU},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"busy-poll-us", required_argument, NULL, OPTION_BUSY_POLL_US},
    {"workers", required_argument, NULL, OPTION_WORKERS},
    {"cpus", required_argument, NULL, OPTION_CPUS},
    {"realtime", required_argument, NULL, OPTION_REALTIME},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"batch-fetch", required_argument, NULL, OPTION_BATCH_FETCH},
    {"batch-copy", required_argument, NULL, OPTION_BATCH_COPY},
    {"features", required_argument, NULL, OPTION_FEATURES},
    {"stats-interval", required_argument, NULL, OPTION_STATS_INTERVAL},
    {"json", no_argument, NULL, OPTION_JSON},
    {"verbose", no_argument, NULL, OPTION_VERBOSE},
    {"print-capabilities", no_argument, NULL, OPTION_PRINT_CAPABILITIES},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static int fail(const char *format, const char *value)
{
    return command_usage_error("device", format, value);
}

static void list_features(void)
{
    puts("features, each of which --features=NAME=off takes out of the offer:");
    for (unsigned i = 0; i < vw_feature_count; i++)
        if (vw_has(VW_NET_DEVICE_FEATURES, vw_features[i].bit))
            printf("  %s\n", vw_features[i].name);
    puts("features that are offered only with --features=NAME=on, to virtwire's own driver:");
    for (unsigned i = 0; i < vw_feature_count; i++)
        if (vw_has(VW_NET_DEVICE_EXTRAS, vw_features[i].bit))
            printf("  %s\n", vw_features[i].name);
}

/* NAME=off,NAME=on,... */
static int parse_features(const char *text, uint64_t *off, uint64_t *on)
{
    if (strcmp(text, "help") == 0) {
        list_features();
        return EXIT_SUCCESS;
    }
    if (*text == '\0')
        return fail("--features: names none%s", "");
    while (*text != '\0') {
        size_t item = strcspn(text, ",");
        const char *equals = memchr(text, '=', item);
        size_t length = equals != NULL ? (size_t)(equals - text) : item;
        int bit = vw_feature_by_name(text, length);

        if (bit < 0 || !vw_has(VW_NET_DEVICE_FEATURES | VW_NET_DEVICE_EXTRAS, (unsigned)bit))
            return command_usage_error("device",
                                       "--features: '%.*s' is no feature of this device; "
                                       "--features=help lists them",
                                       (int)length, text);
        uint64_t feature = vw_bit((unsigned)bit);
        size_t value = equals != NULL ? item - length - 1 : 0;
        if (value == 3 && strncmp(equals + 1, "off", 3) == 0)
            *off |= feature, *on &= ~feature;
        else if (value == 2 && strncmp(equals + 1, "on", 2) == 0)
            *off &= ~feature, *on |= feature;
        else
            return command_usage_error("device", "--features: write %.*s=off or %.*s=on",
                                       (int)length, text, (int)length, text);
        text += item;
        text += *text == ',';
    }
    return -1;
}

static struct device_arguments *next_device(struct device_command_line *line)
{
    struct device_arguments *device = &line->devices[line->count++];

    memset(device, 0, sizeof(*device));
    device->device.fd = -1;
    device->device.queue_pairs = 1;
    return device;
}

/* --socket-path or --fd: of the device at hand, or of another if it has a socket already. */
static int begin_device(struct device_command_line *line, struct device_arguments **device)
{
    if ((*device)->device.socket_path == NULL && (*device)->device.fd < 0)
        return -1;
    if (line->count == MAX_DEVICES)
        return command_usage_error("device", "more than %d devices in one process", MAX_DEVICES);
    *device = next_device(line);
    return -1;
}

static const char *const fetches[] = {"together", "singly"};
static const char *const off_on[] = {"off", "on"};
static const char *const modes[] = {
    [VW_DEVICE_ADAPTIVE] = "adaptive",
    [VW_DEVICE_INTERRUPT] = "interrupt",
    [VW_DEVICE_POLL] = "poll",
};

/* How the workers run. Returns -2 if it is no such option. */
static int parse_worker_option(int option, const char *argument, struct device_arguments *device)
{
    struct vw_device_options *to = &device->device;
    unsigned long number = 0;
    unsigned choice = 0;
    int status = -2;

    switch (option) {
    case OPTION_MODE:
        status = parse_choice("device", "mode", argument, modes, VW_ARRAY_SIZE(modes), &choice);
        to->mode = (enum vw_device_mode)choice;
        break;
    case OPTION_BUSY_POLL_US:
        status = parse_number("device", "busy-poll-us", argument, 1, 1000000, &number);
        to->busy_poll_us = (unsigned)number;
        break;
    case OPTION_WORKERS:
        status = parse_number("device", "workers", argument, 1, VW_DEVICE_MAX_PAIRS, &number);
        to->workers = (unsigned)number;
        break;
    case OPTION_CPUS:
        status = parse_cpus("device", "cpus", argument, device->cpus, VW_ARRAY_SIZE(device->cpus),
                            &to->cpu_count);
        to->cpus = device->cpus;
        break;
    case OPTION_BATCH:
        status = parse_number("device", "batch", argument, 1, VW_PORT_BATCH, &number);
        to->batch = (unsigned)number;
        break;
    case OPTION_BATCH_FETCH:
        status = parse_choice("device", "batch-fetch", argument, fetches, VW_ARRAY_SIZE(fetches),
                              &choice);
        to->batch_singly = choice == 1;
        break;
    case OPTION_BATCH_COPY:
        status =
            parse_choice("device", "batch-copy", argument, off_on, VW_ARRAY_SIZE(off_on), &choice);
        to->batch_copy = choice == 1;
        break;
    case OPTION_REALTIME:
        status = parse_number("device", "realtime", argument, 1, 99, &number);
        to->realtime = (unsigned)number;
        break;
    }
    return status;
}

static int parse_device_option(struct device_command_line *line, int option, const char *argument,
                               struct device_arguments **current)
{
    struct device_arguments *device = *current;
    unsigned long number = 0;
    int status = parse_worker_option(option, argument, device);

    if (status != -2)
        return status;
    status = -1;
    switch (option) {
    case OPTION_SOCKET_PATH:
        status = check_socket_path("device", argument);
        if (status < 0)
            status = begin_device(line, current);
        (*current)->device.socket_path = argument;
        break;
    case OPTION_FD:
        status = parse_number("device", "fd", argument, 0, 1 << 20, &number);
        if (status < 0)
            status = check_socket("device", (int)number);
        if (status < 0)
            status = begin_device(line, current);
        (*current)->device.fd = (int)number;
        break;
    case OPTION_CLIENT:
        device->device.client = true;
        break;
    case OPTION_PORT:
        device->port = argument;
        break;
    case OPTION_QUEUE_PAIRS:
        status = parse_number("device", "queue-pairs", argument, 1, VW_DEVICE_MAX_PAIRS, &number);
        device->device.queue_pairs = (unsigned)number;
        device->pairs_given = true;
        break;
    case OPTION_QUEUE_SIZE:
        status = parse_number("device", "queue-size", argument, 1, 32768, &number);
        device->device.queue_size = (uint32_t)number;
        break;
    case OPTION_MAC:
        status = parse_mac("device", "mac", argument, device->device.mac);
        device->device.has_mac = true;
        break;
    case OPTION_MTU:
        status = parse_number("device", "mtu", argument, VW_NET_MIN_MTU, VW_NET_MAX_MTU, &number);
        device->device.mtu = (unsigned)number;
        break;
    case OPTION_FEATURES:
        status =
            parse_features(argument, &device->device.features_off, &device->device.features_on);
        break;
    }
    return status;
}

/* Options of the whole program. Returns -2 if it is none of them. */
static int parse_program_option(struct device_command_line *line, int option, const char *argument)
{
    unsigned long number = 0;
    int status = -1;

    switch (option) {
    case OPTION_STATS_INTERVAL:
        status = parse_number("device", "stats-interval", argument, 1, 86400, &number);
        line->stats_interval = (unsigned)number;
        return status;
    case OPTION_JSON:
        line->json = true;
        return status;
    case OPTION_VERBOSE:
        line->verbose = true;
        return status;
    case OPTION_PRINT_CAPABILITIES:
        line->print_capabilities = true;
        return status;
    case OPTION_HELP:
        fputs(help, stdout);
        return EXIT_SUCCESS;
    }
    return -2;
}

/* Anything may be given once, for each device or for the program, but for --features, which adds
 * up, and the sockets, each of which begins another device. */
static int check_given(struct device_command_line *line, struct device_arguments *device,
                       int option, const char *name)
{
    bool of_program = option >= OPTION_STATS_INTERVAL;

    if (option == OPTION_SOCKET_PATH || option == OPTION_FD || option == OPTION_FEATURES)
        return -1;
    return note_given("device", name, (unsigned)(option - OPTION_SOCKET_PATH),
                      of_program ? "" : " for one device",
                      of_program ? &line->given : &device->given);
}

/* Two devices on one socket would take each other's front-ends. */
static int check_other_sockets(const struct device_command_line *line, unsigned index)
{
    const struct vw_device_options *device = &line->devices[index].device;

    for (unsigned i = 0; i < index; i++) {
        const struct vw_device_options *other = &line->devices[i].device;

        if (device->socket_path != NULL && other->socket_path != NULL &&
            strcmp(device->socket_path, other->socket_path) == 0)
            return fail("--socket-path=%s is given for two devices", device->socket_path);
        if (device->fd >= 0 && device->fd == other->fd)
            return fail("one --fd is given for two devices%s", "");
    }
    return -1;
}

static int check_devices(const struct device_command_line *line)
{
    for (unsigned i = 0; i < line->count; i++) {
        const struct device_arguments *device = &line->devices[i];

        if (device->device.socket_path == NULL && device->device.fd < 0)
            return fail("no socket: give --socket-path=PATH, or --fd=N%s", "");
        if (device->port == NULL)
            return fail("no port: give --port, for example --port tap,name=vw0%s", "");
        if (device->device.client && device->device.socket_path == NULL)
            return fail("--client needs --socket-path, not --fd%s", "");
        if (check_other_sockets(line, i) >= 0)
            return EXIT_USAGE;
    }
    return -1;
}

int device_parse_command_line(int argc, char **argv, struct device_command_line *line)
{
    struct device_arguments *device = next_device(line);
    int option, place = 0, status;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:h", options, &place)) != -1) {
        if (option == 'h')
            option = OPTION_HELP;
        if (option == ':')
            return fail("%s needs a value", argv[optind - 1]);
        if (option == '?')
            return fail("there is no option '%s'", argv[optind - 1]);
        status =
            option == OPTION_HELP ? -1 : check_given(line, device, option, options[place].name);
        if (status < 0)
            status = parse_program_option(line, option, optarg);
        if (status == -2)
            status = parse_device_option(line, option, optarg, &device);
        if (status >= 0)
            return status;
    }
    if (optind < argc)
        return fail("'%s' is not expected here; options begin with --", argv[optind]);
    return line->print_capabilities ? -1 : check_devices(line);
}
