/* plot.c - the picture is 640 units wide and scales with the page; the style (page.c) sets its text for both widths. */
#include "page/plot.h"

#include "page/page.h"

#include <math.h>

enum { WIDTH = 640, HEIGHT = 256, LEFT = 58, RIGHT = 14, TOP = 28, BOTTOM = 50, SERIES = 6, RADIUS = 3 };

void ww_plot_init(struct ww_plot *p, struct ww_str *out)
{
	*p = (struct ww_plot){ .x0 = INFINITY, .x1 = -INFINITY, .y0 = INFINITY, .y1 = -INFINITY, .out = out };
}

void ww_plot_include(struct ww_plot *p, double x, double y)
{
	if (isfinite(x)) {
		p->x0 = fmin(p->x0, x);
		p->x1 = fmax(p->x1, x);
	}
	if (isfinite(y)) {
		p->y0 = fmin(p->y0, y);
		p->y1 = fmax(p->y1, y);
	}
}

static double clamp(double v) { return fmax(0, fmin(1, v)); }

static double px(const struct ww_plot *p, double x)
{
	return LEFT + clamp((x - p->x0) / (p->x1 - p->x0)) * (WIDTH - LEFT - RIGHT);
}

static double py(const struct ww_plot *p, double y)
{
	double part = p->log_y ? log(y / p->y0) / log(p->y1 / p->y0) : (y - p->y0) / (p->y1 - p->y0);
	return HEIGHT - BOTTOM - clamp(part) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, about `parts` of them in a span. */
static double tick_of(double span, int parts)
{
	double raw = span / parts, ten = pow(10, floor(log10(raw))), m = raw / ten;
	return ten * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

/* 12.5k, 1.5M, 3e-4, and other numbers as they are: a label has room for six characters. */
static void add_number(struct ww_str *out, double v)
{
	double size = fabs(v);
	int exponent = size > 0 ? (int)floor(log10(size) + 1e-9) : 0;
	if (exponent < -2)
		ww_str_addf(out, "%.3ge%d", v / pow(10, exponent), exponent);
	else
		ww_str_addf(out, "%.6g%s",
			exponent >= 6       ? v / 1e6
				: exponent >= 4 ? v / 1e3
								: v,
			exponent >= 6       ? "M"
				: exponent >= 4 ? "k"
								: "");
}

static void y_tick(struct ww_plot *p, double y)
{
	ww_str_addf(p->out,
		"<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" "
		"dominant-baseline=\"middle\">",
		LEFT, WIDTH - RIGHT, py(p, y), py(p, y), LEFT - 5, py(p, y));
	add_number(p->out, y);
	ww_str_adds(p->out, "</text>\n");
}

static void y_ticks(struct ww_plot *p)
{
	double step = tick_of(p->y1 - p->y0, 4);
	if (!p->log_y)
		for (double y = ceil(p->y0 / step - 1e-9) * step; y <= p->y1 + step * 1e-9; y += step)
			y_tick(p, fabs(y) < step / 1e6 ? 0 : y);
	else
		for (double ten = pow(10, floor(log10(p->y0))); ten <= p->y1; ten *= 10)
			for (int m = 1; m <= 5; m += m == 2 ? 3 : 1)
				if (m * ten >= p->y0 && m * ten <= p->y1 && (m == 1 || p->y1 / p->y0 < 1e3))
					y_tick(p, m * ten);
}

static void axis_name(struct ww_plot *p, int x, int y, const char *anchor, const char *name)
{
	ww_str_addf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor);
	ww_page_text(p->out, name, 100);
	ww_str_adds(p->out, "</text>\n");
}

static void widen(struct ww_plot *p)
{
	p->x1 = fmax(p->x1, p->x0 + (p->whole_x ? 1 : 1e-9 * fmax(1, fabs(p->x0))));
	if (p->log_y) {
		p->y0 /= 1.4; /* room for the misses */
		p->y1 *= 1.15;
		return;
	}
	if (p->from_zero)
		p->y0 = fmin(0, p->y0);
	double size = fmax(fabs(p->y0), fabs(p->y1)), margin = 0.06 * (p->y1 - p->y0);
	if (p->y1 - p->y0 < 1e-5 * size || size == 0) /* one value: all labels of a narrower range would be that one */
		margin = size > 0 ? size / 2 : 1;
	p->y1 += margin;
	p->y0 -= p->from_zero && p->y0 == 0 ? 0 : margin;
}

void ww_plot_begin(struct ww_plot *p)
{
	widen(p);
	ww_str_addf(p->out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
	ww_page_text(p->out, p->label ? p->label : "", 200);
	ww_str_adds(p->out, "\">\n");
	y_ticks(p);
	double step = fmax(p->whole_x, tick_of(p->x1 - p->x0, 5));
	for (double x = ceil(p->x0 / step - 1e-9) * step; x <= p->x1 + step * 1e-9; x += step) {
		ww_str_addf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", px(p, x), HEIGHT - BOTTOM + 20);
		add_number(p->out, fabs(x) < step / 1e6 ? 0 : x);
		ww_str_adds(p->out, "</text>\n");
	}
	axis_name(p, 0, 14, "start", p->y);
	axis_name(p, WIDTH - RIGHT, HEIGHT - 4, "end", p->x);
}

void ww_plot_end(struct ww_plot *p) { ww_str_adds(p->out, "</svg>\n"); }

static void add_points(struct ww_plot *p, const struct ww_plot_point *at, size_t n, int backwards)
{
	for (size_t i = 0; i < n; i++) {
		const struct ww_plot_point *q = &at[backwards ? n - 1 - i : i];
		ww_str_addf(p->out, "%.1f,%.1f ", px(p, q->x), py(p, q->y));
	}
}

/* What tells a line from those of the same colour: the first six are whole. */
static const char *dashes_of(int series)
{
	static const char *const dashes[] = { "", " stroke-dasharray=\"8 3\"", " stroke-dasharray=\"2 2\"" };
	return dashes[(size_t)series / SERIES % WW_ARRAY_LEN(dashes)];
}

void ww_plot_line(struct ww_plot *p, int series, const struct ww_plot_point *at, size_t n)
{
	ww_str_addf(
		p->out, "<polyline class=\"line\" style=\"stroke:var(--s%d)\"%s points=\"", series % SERIES, dashes_of(series));
	add_points(p, at, n, 0);
	ww_str_adds(p->out, "\"/>\n");
}

void ww_plot_band(struct ww_plot *p, const struct ww_plot_point *low, const struct ww_plot_point *high, size_t n)
{
	ww_str_adds(p->out, "<polygon class=\"band\" points=\"");
	add_points(p, high, n, 0);
	add_points(p, low, n, 1);
	ww_str_adds(p->out, "\"/>\n");
}

void ww_plot_level(struct ww_plot *p, int series, double y)
{
	ww_str_addf(p->out,
		"<line class=\"level\" style=\"stroke:var(--s%d)\" stroke-dasharray=\"6 3\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
		"y2=\"%.1f\"/>\n",
		series % SERIES, LEFT, WIDTH - RIGHT, py(p, y), py(p, y));
}

void ww_plot_interval(struct ww_plot *p, int series, double x, double low, double high)
{
	if (!isfinite(low) || !isfinite(high) || (p->log_y && low <= 0))
		return;
	ww_str_addf(p->out,
		"<line class=\"interval\" style=\"stroke:var(--s%d)\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
		series % SERIES, px(p, x), px(p, x), py(p, low), py(p, high));
}

static void add_title(struct ww_str *out, const char *title, const char *element)
{
	ww_str_adds(out, "><title>");
	ww_page_text(out, title, 300);
	ww_str_addf(out, "</title></%s>\n", element);
}

void ww_plot_moment(struct ww_plot *p, double x, const char *title)
{
	ww_str_addf(p->out, "<line class=\"skip\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"", px(p, x), px(p, x), TOP,
		HEIGHT - BOTTOM);
	add_title(p->out, title, "line");
}

static const char *add_mark(struct ww_str *out, enum ww_plot_mark kind, int series, double x, double y)
{
	int s = series % SERIES;
	if (kind == WW_PLOT_MISS)
		ww_str_addf(out, "<path class=\"miss mark\" d=\"M%.1f %.1fl%d %dm0 -%dl-%d %d\"", x - RADIUS, y - RADIUS,
			2 * RADIUS, 2 * RADIUS, 2 * RADIUS, 2 * RADIUS, 2 * RADIUS);
	else
		ww_str_addf(out, "<circle class=\"%s\" style=\"%s:var(--s%d)\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"",
			kind == WW_PLOT_RING ? "ring" : "dot", kind == WW_PLOT_RING ? "stroke" : "fill", s, x, y,
			RADIUS + (kind == WW_PLOT_RING ? 2.0 : 0));
	return kind == WW_PLOT_MISS ? "path" : "circle";
}

void ww_plot_mark(struct ww_plot *p, enum ww_plot_mark kind, int series, double x, double y, const char *title)
{
	const char *element = add_mark(
		p->out, kind, series, px(p, x), kind == WW_PLOT_MISS ? HEIGHT - BOTTOM - RADIUS - 1 : py(p, y));
	add_title(p->out, title, element);
}

void ww_plot_legend_begin(struct ww_str *out) { ww_str_adds(out, "<p class=\"legend\">"); }

void ww_plot_legend_end(struct ww_str *out) { ww_str_adds(out, "</p>\n"); }

static void legend_text(struct ww_str *out, const char *text)
{
	ww_str_adds(out, "</svg>");
	ww_page_text(out, text, 300);
	ww_str_adds(out, "</span> ");
}

void ww_plot_legend_line(struct ww_str *out, int series, int dashed, const char *text)
{
	ww_str_addf(out,
		"<span><svg viewBox=\"0 0 26 14\" aria-hidden=\"true\"><line class=\"mark\" style=\"stroke:var(--s%d)\"%s x1=\"0\" "
		"x2=\"26\" y1=\"7\" y2=\"7\"/>",
		series % SERIES, dashed ? " stroke-dasharray=\"6 3\"" : dashes_of(series));
	legend_text(out, text);
}

void ww_plot_legend_mark(struct ww_str *out, enum ww_plot_mark kind, int series, const char *text)
{
	ww_str_adds(out, "<span><svg viewBox=\"0 0 26 14\" aria-hidden=\"true\">");
	add_mark(out, kind, series, 13, 7);
	ww_str_adds(out, "/>");
	legend_text(out, text);
}
