/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef VW_BENCH_REPORT_STYLE_H
#define VW_BENCH_REPORT_STYLE_H

/* The style sheet of the page that report_html.c writes. */
extern const char bench_report_style[];

#endif
