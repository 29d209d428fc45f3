/* SPDX-License-Identifier: BSD-3-Clause */
/* Text in a page of HTML, and in an SVG inside it. */
#ifndef VW_BENCH_MARKUP_H
#define VW_BENCH_MARKUP_H

#include <stdarg.h>
#include <stdio.h>

/* Writes text so that it is nothing but text, also between double quotes. Control characters become
 * blanks, except the newline. */
void markup_text(FILE *to, const char *text);

/* The same of a text made as printf does. */
void markup_format(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void markup_list(FILE *to, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

#endif
