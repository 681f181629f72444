/* A plot's labels at phone width, where its text is 19 units high (the style in src/page/page.c). */
#include "unit.h"

#include "page/page.h"
#include "page/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 640, TEXT = 19, PADDING_PX = 14 };

/* Digits of a wide font (DejaVu Sans) take 0.64 of the height, points and dashes 0.36. */
static double width_of(const char *text)
{
	double w = 0;
	for (; *text != '<'; text++)
		w += TEXT * (strchr(".-", *text) ? 0.36 : 0.64);
	return w;
}

/* The longest part of a y label that lies left of the picture. */
static double overhang(double y0, double y1)
{
	ww_auto_str s = WW_STR_INIT(1 << 20);
	struct ww_plot p;
	double most = 0;
	int n = 0;
	ww_plot_init(&p, &s);
	ww_plot_include(&p, 0, y0);
	ww_plot_include(&p, 10, y1);
	p.x = p.y = "axis";
	ww_plot_begin(&p);
	ww_plot_end(&p);
	for (const char *at = s.p; (at = strstr(at, "<text x=\"")); at++) {
		const char *x = at + strlen("<text x=\""), *text = strchr(at, '>') + 1,
				   *middle = strstr(at, "dominant-baseline");
		if (!middle || middle > text)
			continue;
		most = fmax(most, width_of(text) - strtod(x, NULL));
		n++;
	}
	assert_in_range(n, 3, 12);
	return most;
}

/* A picture of a body of `px` pixels shows what lies outside it, up to the body's padding. */
static double room(int px)
{
	ww_auto_str s = WW_STR_INIT(1 << 20);
	ww_page_begin(&s, "page");
	return strstr(s.p, "overflow:visible") ? (double)PADDING_PX * WIDTH / (px - 2 * PADDING_PX) : 0;
}

static void labels_are_not_clipped_on_a_phone(void **state)
{
	static const double ranges[][2] = { { 0.1, 13 }, { 2.3015, 2.3035 }, { 0, 12500 }, { 2e-4, 9e-4 },
		{ -1e6, 1.5e6 } };
	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		for (int px = 400; px <= 600; px += 100)
			assert_true(overhang(ranges[i][0], ranges[i][1]) <= room(px));
}

/* A series that never changes had five labels with the same number, and one of zeros an axis up to 1e-12. */
/* There are six colours; a comparison of the ablations has seven runs and more. */
static void each_of_eighteen_lines_is_told_apart(void **state)
{
	static const struct ww_plot_point at[] = { { 0, 0 }, { 1, 1 } };
	char lines[18][2][400];
	(void)state;
	for (int i = 0; i < 18; i++) {
		ww_auto_str s = WW_STR_INIT(1 << 16), legend = WW_STR_INIT(1 << 16);
		struct ww_plot p;
		ww_plot_init(&p, &s);
		ww_plot_include(&p, 0, 0);
		ww_plot_include(&p, 1, 1);
		p.x = p.y = "axis";
		ww_plot_begin(&p);
		ww_plot_line(&p, i, at, 2);
		ww_plot_legend_line(&legend, i, 0, "run");
		snprintf(lines[i][0], 400, "%s", strstr(s.p, "<polyline"));
		snprintf(lines[i][1], 400, "%s", legend.p);
		for (int j = 0; j < i; j++)
			assert_true(strcmp(lines[i][0], lines[j][0]) && strcmp(lines[i][1], lines[j][1]));
	}
}

static void one_value_has_an_axis(void **state)
{
	static const struct {
		double y;
		int from_zero;
		const char *labels;
	} cases[] = { { 0.5, 0, "0.3 0.4 0.5 0.6 0.7" }, { 1, 1, "0 0.2 0.4 0.6 0.8 1" }, { 0, 1, "0 0.2 0.4 0.6 0.8 1" },
		{ 0, 0, "-1 -0.5 0 0.5 1" } };
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ww_auto_str s = WW_STR_INIT(1 << 20), labels = WW_STR_INIT(1 << 10);
		struct ww_plot p;
		ww_plot_init(&p, &s);
		ww_plot_include(&p, 0, cases[i].y);
		ww_plot_include(&p, 10, cases[i].y);
		p.x = p.y = "axis";
		p.from_zero = cases[i].from_zero;
		ww_plot_begin(&p);
		for (const char *at = s.p; (at = strstr(at, "dominant-baseline=\"middle\">")); at++) {
			const char *text = strchr(at, '>') + 1;
			ww_str_addf(&labels, "%s%.*s", labels.len ? " " : "", (int)strcspn(text, "<"), text);
		}
		assert_string_equal(labels.p, cases[i].labels);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(labels_are_not_clipped_on_a_phone),
		cmocka_unit_test(one_value_has_an_axis), cmocka_unit_test(each_of_eighteen_lines_is_told_apart) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
