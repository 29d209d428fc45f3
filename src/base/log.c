/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <stdio.h>
#include <time.h>

static void emit(const struct vw_log *log, enum vw_log_level level, unsigned suppressed,
                 const char *format, va_list arguments)
{
    char line[512];
    int used = 0;

    if (log->name != NULL)
        used = snprintf(line, sizeof(line), "%s: ", log->name);
    if (used < 0 || (size_t)used >= sizeof(line))
        used = 0;
    int body = vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
    if (body > 0)
        used += body;
    if (suppressed > 0 && (size_t)used < sizeof(line))
        snprintf(line + used, sizeof(line) - (size_t)used, " (%u similar lines left out)",
                 suppressed);
    log->function(log->context, level, line);
}

static bool wanted(const struct vw_log *log, enum vw_log_level level)
{
    return log != NULL && log->function != NULL && level <= log->level;
}

void vw_log(const struct vw_log *log, enum vw_log_level level, const char *format, ...)
{
    va_list arguments;

    if (!wanted(log, level))
        return;
    va_start(arguments, format);
    emit(log, level, 0, format, arguments);
    va_end(arguments);
}

/* May a line pass now? Two threads at the edge of an interval may let one line more through. */
static bool admit(struct vw_log_limit *limit)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t window = (uint64_t)now.tv_sec / VW_LOG_LIMIT_SECONDS + 1;
    if (atomic_exchange(&limit->window, window) != window)
        atomic_store(&limit->used, 0);
    if (atomic_fetch_add(&limit->used, 1) < VW_LOG_LIMIT_BURST)
        return true;
    atomic_fetch_add(&limit->suppressed, 1);
    return false;
}

void vw_log_limited(const struct vw_log *log, struct vw_log_limit *limit, enum vw_log_level level,
                    const char *format, ...)
{
    va_list arguments;

    if (!wanted(log, level) || !admit(limit))
        return;
    va_start(arguments, format);
    emit(log, level, atomic_exchange(&limit->suppressed, 0), format, arguments);
    va_end(arguments);
}
