/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for people. A library never prints: it hands each line to the callback that its user
 * gave, with a level. What a peer can cause at will is rate-limited, so that a hostile guest cannot
 * fill a disk.
 */
#ifndef VW_BASE_LOG_H
#define VW_BASE_LOG_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum vw_log_level {
    VW_LOG_ERROR,
    VW_LOG_WARNING,
    VW_LOG_INFO,
    VW_LOG_DEBUG,
};

/* Called from any thread; `line` has no newline at its end. */
typedef void (*vw_log_function)(void *context, enum vw_log_level level, const char *line);

struct vw_log {
    vw_log_function function; /* NULL: silent */
    void *context;
    enum vw_log_level level; /* lines above this level are not formatted */
    const char *name;        /* put before each line, for example the socket's path; may be NULL */
};

/*
 * At most `burst` lines in each interval of `seconds`; the rest is counted, and the count is told
 * with the first line that passes again. Safe to use from several threads.
 */
struct vw_log_limit {
    _Atomic uint64_t window; /* number of the current interval, from 1 */
    _Atomic uint32_t used;
    _Atomic uint32_t suppressed;
};

#define VW_LOG_LIMIT_BURST 10
#define VW_LOG_LIMIT_SECONDS 5

void vw_log(const struct vw_log *log, enum vw_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As vw_log, for what a peer can cause. */
void vw_log_limited(const struct vw_log *log, struct vw_log_limit *limit, enum vw_log_level level,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
