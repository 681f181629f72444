/* plot.h - a plot as SVG: axes with ticks and labels, lines, bands, marks, and a legend below it.
 *
 * Set the ranges, then ww_plot_begin(), the marks in data units, ww_plot_end().  Points outside the ranges are drawn at
 * the edge.  `series` is 0 to 5 and chooses one of the page's colours; larger numbers begin again, their lines with
 * dashes, then with dots. */
#pragma once

#include "base/str.h"

struct ww_plot {
	double x0, x1, y0, y1;     /* first and last value of each axis */
	int log_y;                 /* y0 and y1 are above 0 */
	int whole_x;               /* x counts things: no ticks between whole numbers */
	int from_zero;             /* y begins at 0 where no value is below */
	const char *x, *y, *label; /* what the axes show, with units; label: the whole plot, for screen readers */
	struct ww_str *out;
};

struct ww_plot_point {
	double x, y;
};

/* Start with empty ranges; widen them to include (x, y).  Values that are not finite change nothing. */
void ww_plot_init(struct ww_plot *p, struct ww_str *out);
void ww_plot_include(struct ww_plot *p, double x, double y);
/* Widen the ranges by a margin and draw the axes.  ww_plot_include() may not be called any more. */
void ww_plot_begin(struct ww_plot *p);
void ww_plot_end(struct ww_plot *p);

void ww_plot_line(struct ww_plot *p, int series, const struct ww_plot_point *at, size_t n);
/* A horizontal line over the whole width, dashed; its legend says what it is. */
void ww_plot_level(struct ww_plot *p, int series, double y);
/* A vertical line; the title is its tooltip. */
void ww_plot_moment(struct ww_plot *p, double x, const char *title);
/* The area between low[i] and high[i], behind what is drawn next. */
void ww_plot_band(struct ww_plot *p, const struct ww_plot_point *low, const struct ww_plot_point *high, size_t n);
/* An interval of y at one x, as a thin vertical line. */
void ww_plot_interval(struct ww_plot *p, int series, double x, double low, double high);
/* MISS is a cross at the bottom of the plot, whatever y is. */
enum ww_plot_mark { WW_PLOT_DOT, WW_PLOT_RING, WW_PLOT_MISS };
void ww_plot_mark(struct ww_plot *p, enum ww_plot_mark kind, int series, double x, double y, const char *title);

/* After ww_plot_end(): <p class="legend">, one entry for each line or mark, </p>. */
void ww_plot_legend_begin(struct ww_str *out);
void ww_plot_legend_line(struct ww_str *out, int series, int dashed, const char *text);
void ww_plot_legend_mark(struct ww_str *out, enum ww_plot_mark kind, int series, const char *text);
void ww_plot_legend_end(struct ww_str *out);
