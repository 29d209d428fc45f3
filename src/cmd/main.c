/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/command.h"

static const struct {
    const char *name;
    command_function run;
    const char *summary;
} commands[] = {
    {"device", command_device, "serve a virtual machine's network card over vhost-user"},
    {"pktgen", command_pktgen, "send probe frames into a device, and check them"},
    {"sink", command_sink, "receive frames from a device, and check probes"},
    {"echo", command_echo, "send every frame back to the device that it came from"},
    {"bridge", command_bridge, "join a device to a TAP interface, or another port"},
    {"bench", command_bench, "measure mechanisms of virtio networking, on and off"},
};

static void print_help(FILE *to)
{
    fputs("virtwire: virtio-net in user space\n"
          "\n"
          "usage: virtwire COMMAND [OPTION...]\n"
          "\n"
          "commands:\n",
          to);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "'virtwire COMMAND --help' tells more, with examples.\n"
          "'virtwire --version' prints the version.\n",
          to);
}

void command_log(void *context, enum vw_log_level level, const char *line)
{
    static const char *const prefixes[] = {"error: ", "warning: ", "", "debug: "};

    (void)context;
    fprintf(stderr, "virtwire: %s%s\n", prefixes[level], line);
}

int command_usage_error(const char *command, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "virtwire%s%s: ", *command != '\0' ? " " : "", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry 'virtwire%s%s --help'.\n", *command != '\0' ? " " : "", command);
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("virtwire " VIRTWIRE_VERSION);
        return EXIT_SUCCESS;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return command_usage_error("", "there is no command '%s'", argv[1]);
}

/* What was printed last has gone out, or that is an error; but not where nobody reads any more. */
int main(int argc, char **argv)
{
    int status = run(argc, argv);

    if (fflush(stdout) == EOF && errno != EPIPE && status == EXIT_SUCCESS) {
        fprintf(stderr, "virtwire: standard output: %s\n", strerror(errno));
        status = EXIT_FAILURE;
    }
    return status;
}
