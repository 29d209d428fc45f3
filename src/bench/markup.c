/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/markup.h"

#include <stdlib.h>

void markup_text(FILE *to, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", to);
            break;
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        case '\'':
            fputs("&#39;", to);
            break;
        default:
            fputc((unsigned char)*text >= 0x20 || *text == '\n' ? *text : ' ', to);
        }
}

void markup_format(FILE *to, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    markup_list(to, format, arguments);
    va_end(arguments);
}

void markup_list(FILE *to, const char *format, va_list arguments)
{
    char *text;

    if (vasprintf(&text, format, arguments) < 0)
        abort();
    markup_text(to, text);
    free(text);
}
