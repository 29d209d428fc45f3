/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Port descriptions: the kind, then options in any order, in the syntax of getsubopt().
 *
 * Theory of operation
 * -------------------
 * An option is refused if it is unknown, not for this kind, given twice, empty or out of range:
 * what a person typed is either done or told to be wrong, never passed over. The sentence names
 * the option and what it may be.
 */
#include "port/port.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "port/kinds.h"

/* A TAP with a name and 256 descriptors of six digits fits. */
#define DESCRIPTION_MAX 2048

enum option {
    OPTION_NAME,
    OPTION_FD,
    OPTION_QUEUES,
    OPTION_MTU,
    OPTION_OFFLOAD,
    OPTION_SNDBUF,
    OPTION_IO,
    OPTION_NAPI,
    OPTION_PATH,
    OPTION_COALESCE,
    OPTION_IF,
    OPTION_QUEUE,
    OPTION_SIZE,
    OPTION_FLOWS,
    OPTION_FRAMES,
    OPTION_STREAMS,
    OPTION_WRITE,
    OPTION_ACKNOWLEDGE,
    OPTION_COUNT,
};

/* getsubopt()'s type lacks the const, but it writes to none of them. */
static char *const option_names[] = {
    [OPTION_NAME] = (char *)"name",
    [OPTION_FD] = (char *)"fd",
    [OPTION_QUEUES] = (char *)"queues",
    [OPTION_MTU] = (char *)"mtu",
    [OPTION_OFFLOAD] = (char *)"offload",
    [OPTION_SNDBUF] = (char *)"sndbuf",
    [OPTION_IO] = (char *)"io",
    [OPTION_NAPI] = (char *)"napi",
    [OPTION_PATH] = (char *)"path",
    [OPTION_COALESCE] = (char *)"coalesce",
    [OPTION_IF] = (char *)"if",
    [OPTION_QUEUE] = (char *)"queue",
    [OPTION_SIZE] = (char *)"size",
    [OPTION_FLOWS] = (char *)"flows",
    [OPTION_FRAMES] = (char *)"count",
    [OPTION_STREAMS] = (char *)"streams",
    [OPTION_WRITE] = (char *)"write",
    [OPTION_ACKNOWLEDGE] = (char *)"acknowledge",
    [OPTION_COUNT] = NULL,
};

#define FOR_ALL (1U << OPTION_QUEUES | 1U << OPTION_MTU | 1U << OPTION_OFFLOAD)

static const struct kind {
    const char *name;
    unsigned options; /* by number, as a mask */
    int (*open)(const struct vw_port_options *options, const struct vw_log *log,
                struct vw_port **port, const struct vw_port_error *error);
} kinds[] = {
    {"tap",
     FOR_ALL | 1U << OPTION_NAME | 1U << OPTION_FD | 1U << OPTION_SNDBUF | 1U << OPTION_IO |
         1U << OPTION_NAPI | 1U << OPTION_PATH | 1U << OPTION_COALESCE,
     vw_port_tap_open},
    {"afxdp", FOR_ALL | 1U << OPTION_IF | 1U << OPTION_QUEUE, vw_port_afxdp_open},
    {"loop", FOR_ALL, vw_port_loop_open},
    {"null", FOR_ALL, vw_port_null_open},
    {"sink", FOR_ALL | 1U << OPTION_ACKNOWLEDGE, vw_port_sink_open},
    {"source",
     FOR_ALL | 1U << OPTION_SIZE | 1U << OPTION_FLOWS | 1U << OPTION_FRAMES | 1U << OPTION_STREAMS |
         1U << OPTION_WRITE,
     vw_port_source_open},
};

int vw_port_fail(const struct vw_port_error *error, int result, const char *format, ...)
{
    va_list arguments;

    if (error->text != NULL && error->size > 0) {
        va_start(arguments, format);
        vsnprintf(error->text, error->size, format, arguments);
        va_end(arguments);
    }
    return result;
}

void *vw_port_allocate(size_t size)
{
    void *memory =
        aligned_alloc(VW_CACHE_LINE, (size + VW_CACHE_LINE - 1) / VW_CACHE_LINE * VW_CACHE_LINE);

    if (memory != NULL)
        memset(memory, 0, size);
    return memory;
}

char *vw_port_buffers_map(unsigned count)
{
    void *buffers = mmap(NULL, (size_t)count * VW_PORT_BUFFER_STRIDE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return buffers == MAP_FAILED ? NULL : buffers;
}

void vw_port_buffers_unmap(char *buffers, unsigned count)
{
    if (buffers != NULL)
        munmap(buffers, (size_t)count * VW_PORT_BUFFER_STRIDE);
}

/* Decimal digits and nothing else, up to `end`'s terminator, from `low` to `high`. */
static bool parse_number(const char *text, unsigned low, unsigned high, unsigned *number)
{
    uint64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > high)
            return false;
    }
    *number = (unsigned)value;
    return value >= low;
}

static int parse_range(const char *name, const char *text, unsigned low, unsigned high,
                       unsigned *number, const struct vw_port_error *error)
{
    if (!parse_number(text, low, high, number))
        return vw_port_fail(error, -EINVAL, "%s=%s: must be a number from %u to %u", name, text,
                            low, high);
    return 0;
}

/* "5" or "5:6:7", every descriptor once: two queues on one descriptor would share its frames. */
static int parse_fds(char *text, struct vw_port_options *options, const struct vw_port_error *error)
{
    char *item;

    options->fd_count = 0;
    while ((item = strsep(&text, ":")) != NULL) {
        unsigned fd;

        if (!parse_number(item, 0, INT_MAX, &fd))
            return vw_port_fail(error, -EINVAL,
                                "fd=...%s: must be descriptor numbers such as "
                                "fd=5 or fd=5:6",
                                item);
        for (unsigned i = 0; i < options->fd_count; i++) {
            if (options->fds[i] == (int)fd)
                return vw_port_fail(error, -EINVAL, "fd: descriptor %u is given twice", fd);
        }
        if (options->fd_count >= VW_PORT_MAX_QUEUES)
            return vw_port_fail(error, -EINVAL, "fd: more than %d descriptors", VW_PORT_MAX_QUEUES);
        options->fds[options->fd_count++] = (int)fd;
    }
    return 0;
}

/* One of `count` words; `*choice` becomes its place. */
static int parse_choice(const char *name, const char *text, const char *const *words,
                        unsigned count, unsigned *choice, const struct vw_port_error *error)
{
    char list[64] = "";

    for (unsigned i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *choice = i;
            return 0;
        }
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
                 i == 0          ? ""
                 : i + 1 < count ? ", "
                                 : " or ",
                 words[i]);
    }
    return vw_port_fail(error, -EINVAL, "%s=%s: must be %s", name, text, list);
}

static int parse_option(enum option option, char *value, struct vw_port_options *options,
                        const struct vw_port_error *error)
{
    static const char *const on_off[] = {"on", "off"};
    static const char *const ios[] = {"auto", "uring", "plain"};
    static const char *const napis[] = {"off", "on", "auto"};
    static const char *const coalesces[] = {"off", "on", "auto"};
    const char *name = option_names[option];
    unsigned choice = 0;
    int result;

    switch (option) {
    case OPTION_NAME:
        options->name = value;
        return 0;
    case OPTION_FD:
        return parse_fds(value, options, error);
    case OPTION_QUEUES:
        return parse_range(name, value, 1, VW_PORT_MAX_QUEUES, &options->queues, error);
    case OPTION_MTU: /* the range of the device's own field (virtio 1.3, section 5.1.4.1) */
        return parse_range(name, value, 68, 65535, &options->mtu, error);
    case OPTION_OFFLOAD:
        result = parse_choice(name, value, on_off, VW_ARRAY_SIZE(on_off), &choice, error);
        options->offload = choice == 0;
        return result;
    case OPTION_SNDBUF:
        return parse_range(name, value, 1, INT_MAX, &options->sndbuf, error);
    case OPTION_IO:
        result = parse_choice(name, value, ios, VW_ARRAY_SIZE(ios), &choice, error);
        options->io = (enum vw_port_io)choice;
        return result;
    case OPTION_NAPI:
        result = parse_choice(name, value, napis, VW_ARRAY_SIZE(napis), &choice, error);
        options->napi = (enum vw_port_napi)choice;
        return result;
    case OPTION_IF:
        options->interface = value;
        return 0;
    case OPTION_QUEUE:
        return parse_range(name, value, 0, 4095, &options->queue, error);
    case OPTION_PATH:
        options->path = value;
        return 0;
    case OPTION_COALESCE:
        result = parse_choice(name, value, coalesces, VW_ARRAY_SIZE(coalesces), &choice, error);
        options->coalesce = (enum vw_port_coalesce)choice;
        return result;
    case OPTION_SIZE:
        if (!vw_probe_sizes_parse(&options->sizes, value))
            return vw_port_fail(error, -EINVAL,
                                "size=%s: must be a length from %d to %d, such as size=64, "
                                "size=64:1514, size=60-9000 or size=imix",
                                value, VW_PROBE_MIN_FRAME, VW_PROBE_MAX_FRAME);
        return 0;
    case OPTION_FLOWS:
        return parse_range(name, value, 1, VW_PROBE_MAX_FLOWS, &options->flows, error);
    case OPTION_FRAMES:
        return parse_range(name, value, 1, UINT_MAX, &options->frames, error);
    case OPTION_STREAMS:
        return parse_range(name, value, 1, VW_STREAM_MAX, &options->streams, error);
    case OPTION_WRITE:
        return parse_range(name, value, 1, VW_STREAM_WRITE_MAX, &options->write, error);
    case OPTION_ACKNOWLEDGE:
        return parse_range(name, value, 1, 1000, &options->acknowledge, error);
    case OPTION_COUNT:
        break;
    }
    return -EINVAL;
}

static int parse_options(const struct kind *kind, char *text, struct vw_port_options *options,
                         const struct vw_port_error *error)
{
    unsigned seen = 0;

    while (*text != '\0') {
        char *value;
        int option = getsubopt(&text, option_names, &value);
        int result;

        if (option < 0)
            return vw_port_fail(error, -EINVAL, "%s: unknown option '%s'", kind->name, value);
        if ((kind->options & 1U << option) == 0)
            return vw_port_fail(error, -EINVAL, "%s: option '%s' is not for this kind of port",
                                kind->name, option_names[option]);
        if ((seen & 1U << option) != 0)
            return vw_port_fail(error, -EINVAL, "%s: option '%s' is given twice", kind->name,
                                option_names[option]);
        seen |= 1U << option;
        if (value == NULL || *value == '\0')
            return vw_port_fail(error, -EINVAL, "%s: option '%s' needs a value", kind->name,
                                option_names[option]);
        result = parse_option((enum option)option, value, options, error);
        if (result < 0)
            return result;
    }
    return 0;
}

/* The device, queues= and fd= each may say how many queues there are, and then must agree. */
static int agree_on_queues(struct vw_port_options *options, unsigned queues,
                           const struct vw_port_error *error)
{
    if (queues > VW_PORT_MAX_QUEUES)
        return vw_port_fail(error, -EINVAL, "a port has at most %d queues, not %u",
                            VW_PORT_MAX_QUEUES, queues);
    if (queues != 0 && options->queues != 0 && queues != options->queues)
        return vw_port_fail(error, -EINVAL,
                            "the port has queues=%u, but the device has %u queue "
                            "pairs: make them equal",
                            options->queues, queues);
    if (options->queues == 0)
        options->queues = queues;
    if (options->fd_count != 0 && options->queues != 0 && options->fd_count != options->queues)
        return vw_port_fail(error, -EINVAL,
                            "fd= gives %u descriptors for %u queues: give one for "
                            "each queue",
                            options->fd_count, options->queues);
    if (options->queues == 0)
        options->queues = options->fd_count != 0 ? options->fd_count : 1;
    return 0;
}

static const struct kind *find_kind(const char *name)
{
    for (unsigned i = 0; i < VW_ARRAY_SIZE(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0)
            return &kinds[i];
    }
    return NULL;
}

int vw_port_open(const char *description, unsigned queues, const struct vw_log *log,
                 struct vw_port **port, char *error_text, unsigned error_size)
{
    const struct vw_port_error error = {error_text, error_size};
    struct vw_port_options options = {.offload = true, .coalesce = VW_PORT_COALESCE_AUTO};
    char text[DESCRIPTION_MAX];
    char *rest = text;
    const struct kind *kind;
    int result;

    *port = NULL;
    if (strlen(description) >= sizeof(text))
        return vw_port_fail(&error, -EINVAL, "the port's description is too long");
    strcpy(text, description);
    const char *name = strsep(&rest, ",");
    kind = find_kind(name);
    if (kind == NULL)
        return vw_port_fail(&error, -EINVAL,
                            "unknown port '%s': must be tap, afxdp, loop, null, sink or source",
                            name);
    if (rest != NULL) {
        result = parse_options(kind, rest, &options, &error);
        if (result < 0)
            return result;
    }
    result = agree_on_queues(&options, queues, &error);
    if (result < 0)
        return result;
    result = kind->open(&options, log, port, &error);
    if (result == 0)
        (*port)->mtu_chosen = options.mtu != 0;
    return result;
}
