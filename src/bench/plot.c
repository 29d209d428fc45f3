/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"
#include "bench/markup.h"
#include "bench/statistics.h"
#include "bench/texts.h"

/* In units of the drawing, which is as wide as a page's text. */
#define WIDTH 1060.0
#define TEXT_WIDTH                                                                                 \
    6.7 /* of a letter of the size in the style sheet, somewhat more than the mean                 \
         */
#define LABEL_LETTERS 58
#define NAME_LETTERS 26
#define BAR_HEIGHT 15.0
#define BAR_PITCH 19.0
#define GROUP_GAP 11.0
#define AXIS_HEIGHT 40.0
#define VALUE_ROOM 76.0  /* right of the longest bar */
#define GAIN_ROOM 74.0   /* for the percentage, right of the intervals */
#define GAIN_WIDTH 170.0 /* of the intervals */

/* Intervals of two or three samples may reach far: not farther than so many times the samples, or
 * so many percent, or twice the gain. */
#define MOST_REACH 1.3
#define MOST_GAIN 100.0

struct scale {
    double low, high, step; /* of what is shown */
    double left, width;     /* of the drawing */
};

struct plot {
    FILE *to;
    const struct bench_result *result;
    const struct bench_metric_text *text;
    enum bench_metric metric;
    const char *names[PLOT_COLOURS]; /* of variants, by their colours; NULL: no more */
    double label_width, name_width;
    struct scale values, gains;
    bool has_gains;
    double height;
};

/* A bar's figures as they are shown: in the metric's unit, and percent. */
struct bar {
    double *values;
    struct bench_summary summary;
    struct bench_difference gain; /* to the first variant; NAN: it is the first */
    double gain_percent;          /* of the medians, as in the table */
    bool faulty;
};

static void bar_read(struct bar *bar, const struct plot *plot, const struct bench_variant *variant)
{
    size_t count;

    bar->values = bench_allocate(variant->sample_count * sizeof(*bar->values));
    count = bench_values(variant, plot->metric, bar->values, variant->sample_count);
    for (size_t i = 0; i < count; i++)
        bar->values[i] *= plot->text->scale;
    bench_summarize(bar->values, count, &bar->summary);
    bar->faulty = bench_is_faulty(variant);
}

static void bar_open(struct bar *bar, const struct plot *plot, const struct bench_cell *cell,
                     size_t index)
{
    struct bar first;

    bar_read(bar, plot, &cell->variants[index]);
    bar->gain_percent = NAN;
    bar->gain = (struct bench_difference){.percent = NAN, .low_percent = NAN, .high_percent = NAN};
    if (index == 0)
        return;
    bar_read(&first, plot, &cell->variants[0]);
    bench_compare(first.values, first.summary.count, bar->values, bar->summary.count, &bar->gain);
    if (first.summary.median > 0)
        bar->gain_percent = 100 * (bar->summary.median / first.summary.median - 1);
    free(first.values);
}

static void bar_close(struct bar *bar)
{
    free(bar->values);
}

/* ---- how large ------------------------------------------------------------------------------- */

static void scale_include(struct scale *scale, double value)
{
    if (!isfinite(value))
        return;
    scale->low = fmin(scale->low, value);
    scale->high = fmax(scale->high, value);
}

/* Ticks at 1, 2 or 5 times a power of ten, about `ticks` of them, the ends on ticks as well. */
static void scale_round(struct scale *scale, double ticks)
{
    double range = scale->high - scale->low, power, part;

    if (range <= 0)
        range = 1;
    power = pow(10, floor(log10(range / ticks)));
    part = range / ticks / power;
    scale->step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
    scale->low = scale->step * floor(scale->low / scale->step);
    scale->high = scale->step * ceil(scale->high / scale->step);
    if (scale->high <= scale->low)
        scale->high = scale->low + scale->step;
}

static double scale_x(const struct scale *scale, double value)
{
    return scale->left + scale->width * (value - scale->low) / (scale->high - scale->low);
}

/* Letters, not bytes. */
static size_t letters(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static double text_width(const char *text, size_t most)
{
    size_t count = letters(text);

    return TEXT_WIDTH * (double)(count < most ? count : most);
}

/* The first variants share the first colour. Of more names than colours the rest share the last. */
static size_t colour_of(struct plot *plot, const char *name, bool first)
{
    if (first)
        return 0;
    for (size_t i = 1; i < PLOT_COLOURS; i++) {
        if (plot->names[i] == NULL)
            plot->names[i] = name;
        if (strcmp(plot->names[i], name) == 0)
            return i;
    }
    return PLOT_COLOURS - 1;
}

static bool measure_bar(struct plot *plot, const struct bench_cell *cell, size_t index)
{
    double largest = 0;
    struct bar bar;
    bool measured;

    bar_open(&bar, plot, cell, index);
    measured = bar.summary.count > 0;
    for (size_t i = 0; i < bar.summary.count; i++)
        largest = fmax(largest, bar.values[i]);
    scale_include(&plot->values, largest);
    if (isfinite(bar.summary.high))
        scale_include(&plot->values, fmin(bar.summary.high, MOST_REACH * largest));
    scale_include(&plot->gains, bar.gain.percent);
    if (isfinite(bar.gain.low_percent)) {
        double most = fmax(MOST_GAIN, 2 * bar.gain.percent);

        scale_include(&plot->gains, fmax(bar.gain.low_percent, -100));
        scale_include(&plot->gains, fmin(bar.gain.high_percent, most));
    }
    plot->has_gains |= isfinite(bar.gain_percent);
    bar_close(&bar);
    return measured;
}

/* False: there is nothing to show. */
static bool measure(struct plot *plot)
{
    const struct bench_cell_list *list = &plot->result->cells;
    bool measured = false;

    plot->height = AXIS_HEIGHT;
    for (size_t i = 0; i < list->count; i++) {
        const struct bench_cell *cell = &list->cells[i];
        char *label = bench_cell_name(cell);

        plot->label_width = fmax(plot->label_width, text_width(label, LABEL_LETTERS) + 14);
        for (size_t v = 0; v < cell->variant_count; v++) {
            double width = text_width(cell->variants[v].name, NAME_LETTERS) + 12;

            plot->name_width = fmax(plot->name_width, width);
            measured |= measure_bar(plot, cell, v);
        }
        plot->height += BAR_PITCH * (double)cell->variant_count + GROUP_GAP;
        free(label);
    }
    plot->values.left = plot->label_width + plot->name_width;
    plot->values.width = WIDTH - VALUE_ROOM - plot->values.left;
    if (plot->has_gains)
        plot->values.width -= GAIN_WIDTH + GAIN_ROOM;
    plot->gains.left = plot->values.left + plot->values.width + VALUE_ROOM;
    plot->gains.width = GAIN_WIDTH;
    scale_round(&plot->values, 5);
    scale_round(&plot->gains, 3);
    return measured;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Text that may be cut: a whole one is in the table below. */
static void draw_text(FILE *to, double x, double y, const char *class, const char *text,
                      size_t most)
{
    char *cut = bench_format("%s", text), *end = cut;

    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    if (letters(cut) > most) {
        for (size_t count = 0; count < most || ((unsigned char)*end & 0xc0) == 0x80; end++)
            count += ((unsigned char)end[1] & 0xc0) != 0x80;
        *end = '\0';
    }
    markup_text(to, cut);
    fputs(letters(text) > most ? "…</text>\n" : "</text>\n", to);
    free(cut);
}

static void draw_line(FILE *to, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(to, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1,
            y1, x2, y2);
}

static void draw_axis(const struct plot *plot, const struct scale *scale, const char *format,
                      const char *title)
{
    int ticks = (int)lround((scale->high - scale->low) / scale->step);

    draw_text(plot->to, scale->left, 12, "axis", title, LABEL_LETTERS);
    for (int i = 0; i <= ticks; i++) {
        double value = scale->low + i * scale->step, x = scale_x(scale, value);
        char number[48];

        bool zero = fabs(value) < scale->step / 2;

        snprintf(number, sizeof(number), zero ? "0" : format, value);
        draw_line(plot->to, zero ? "zero" : "grid", x, AXIS_HEIGHT - 6, x, plot->height);
        draw_text(plot->to, x, AXIS_HEIGHT - 12, "tick", number, sizeof(number));
    }
}

/* An end that is not in the drawing has no stop. */
static void draw_interval(FILE *to, const struct scale *scale, double low, double high, double y)
{
    double left = scale_x(scale, fmax(low, scale->low));
    double right = scale_x(scale, fmin(high, scale->high));

    if (!isfinite(low) || !isfinite(high))
        return;
    draw_line(to, "whisker", left, y, right, y);
    if (low >= scale->low)
        draw_line(to, "whisker", left, y - 3.5, left, y + 3.5);
    if (high <= scale->high)
        draw_line(to, "whisker", right, y - 3.5, right, y + 3.5);
}

/* What appears when the pointer rests on the bar, and is read aloud. */
static void describe_bar(const struct plot *plot, const struct bench_variant *variant,
                         const struct bar *bar)
{
    const struct bench_metric_text *text = plot->text;
    FILE *to = plot->to;

    fputs("<title>", to);
    markup_format(to, "%s: median %.*f %s", variant->name, text->digits, bar->summary.median,
                  text->unit);
    if (isfinite(bar->summary.low))
        markup_format(to, ", 95 %% interval of the mean %.*f to %.*f, deviation %.1f %%",
                      text->digits, bar->summary.low, text->digits, bar->summary.high,
                      bar->summary.deviation_percent);
    markup_format(to, ", %zu %s", bar->summary.count,
                  bar->summary.count == 1 ? "sample" : "samples");
    if (isfinite(bar->gain.low_percent))
        markup_format(to, "; difference %+.1f %% to %+.1f %%, p %.2g", bar->gain.low_percent,
                      bar->gain.high_percent, bar->gain.p);
    if (bar->faulty)
        fputs("; frames were lost or damaged", to);
    fputs("</title>\n", to);
}

static void draw_gain(const struct plot *plot, const struct bar *bar, double middle)
{
    const struct scale *scale = &plot->gains;
    FILE *to = plot->to;
    char number[48];

    if (!isfinite(bar->gain_percent))
        return;
    draw_interval(to, scale, bar->gain.low_percent, bar->gain.high_percent, middle);
    if (isfinite(bar->gain.percent))
        fprintf(to, "<circle class=\"gain\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
                scale_x(scale, bar->gain.percent), middle);
    snprintf(number, sizeof(number), bar->gain.significant ? "[%+.1f %%]" : "%+.1f %%",
             bar->gain_percent);
    draw_text(to, scale->left + scale->width + GAIN_ROOM, middle + 4,
              bar->gain.significant ? "percent strong" : "percent", number, sizeof(number));
}

static void draw_bar(struct plot *plot, const struct bench_cell *cell, size_t index, double top)
{
    const struct bench_variant *variant = &cell->variants[index];
    const struct scale *scale = &plot->values;
    double middle = top + BAR_HEIGHT / 2, end;
    FILE *to = plot->to;
    struct bar bar;
    char number[64];

    bar_open(&bar, plot, cell, index);
    fprintf(to, "<g class=\"bar c%zu%s\">\n", colour_of(plot, variant->name, index == 0),
            bar.faulty ? " faulty" : "");
    draw_text(to, scale->left - 8, middle + 4, "name", variant->name, NAME_LETTERS);
    if (bar.summary.count > 0) {
        end = scale_x(scale, bar.summary.median);
        describe_bar(plot, variant, &bar);
        fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", scale->left,
                top, fmax(end - scale->left, 1), BAR_HEIGHT);
        for (size_t i = 0; i < bar.summary.count; i++) {
            double x = scale_x(scale, bar.values[i]), y = middle + ((double)(i % 5) - 2) * 2.2;

            fprintf(to, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"1.5\"/>\n", x, y);
            end = fmax(end, x);
        }
        draw_interval(to, scale, bar.summary.low, bar.summary.high, middle);
        if (isfinite(bar.summary.high))
            end = fmax(end, scale_x(scale, fmin(bar.summary.high, scale->high)));
        snprintf(number, sizeof(number), "%.*f%s", plot->text->digits, bar.summary.median,
                 bar.faulty ? " !" : "");
        draw_text(to, end + 7, middle + 4, "value", number, sizeof(number));
        draw_gain(plot, &bar, middle);
    } else {
        draw_text(to, scale->left + 6, middle + 4, "missing", "not measured", LABEL_LETTERS);
    }
    fputs("</g>\n", to);
    bar_close(&bar);
}

static double draw_cell(struct plot *plot, const struct bench_cell *cell, double top)
{
    double height = BAR_PITCH * (double)cell->variant_count;
    char *label = bench_cell_name(cell);

    draw_text(plot->to, 0, top + height / 2 + 2, "label", label, LABEL_LETTERS);
    for (size_t v = 0; v < cell->variant_count; v++)
        draw_bar(plot, cell, v, top + BAR_PITCH * (double)v);
    free(label);
    return top + height + GROUP_GAP;
}

/* The text that stands for the drawing. */
static void describe(const struct plot *plot, const char *id)
{
    FILE *to = plot->to;

    fprintf(to, "<title id=\"%s-title\">", id);
    markup_format(to, "%s: %s", plot->result->experiment->name, plot->text->title);
    fprintf(to, "</title>\n<desc id=\"%s-desc\">", id);
    markup_format(to,
                  "Bars for each variant of %zu cells: median %s%s%s, samples as dots, 95 %% "
                  "confidence interval of the mean as a whisker.",
                  plot->result->cells.count, plot->text->title, *plot->text->unit ? " in " : "",
                  plot->text->unit);
    if (plot->has_gains)
        fputs(" To the right the difference to the first variant of the cell, in percent.", to);
    fputs(" The figures are in the tables of this section.</desc>\n", to);
}

bool bench_plot(FILE *to, const struct bench_result *result, enum bench_metric metric,
                const char *id)
{
    struct plot plot = {
        .to = to, .result = result, .text = &bench_metrics[metric], .metric = metric};
    double top = AXIS_HEIGHT;
    char format[16], *title;
    int digits;

    if (!measure(&plot))
        return false;
    fprintf(to,
            "<svg id=\"%s\" class=\"plot\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
            "aria-labelledby=\"%s-title %s-desc\">\n",
            id, WIDTH, plot.height, id, id);
    describe(&plot, id);
    digits = plot.values.step < 1 ? (int)ceil(-log10(plot.values.step) - 1e-9) : 0;
    snprintf(format, sizeof(format), "%%.%df", digits);
    title = bench_format("%s%s%s", plot.text->title, *plot.text->unit != '\0' ? ", " : "",
                         plot.text->unit);
    draw_axis(&plot, &plot.values, format, title);
    free(title);
    if (plot.has_gains)
        draw_axis(&plot, &plot.gains, "%+.3g", "difference, %");
    for (size_t i = 0; i < result->cells.count; i++)
        top = draw_cell(&plot, &result->cells.cells[i], top);
    fputs("</svg>\n", to);
    return true;
}
