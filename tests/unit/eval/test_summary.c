/* The arithmetic of a summary against values worked out by hand, and which rows it is about. */
#include "unit.h"

#include "base/json.h"
#include "eval/page.h"
#include "eval/summary.h"

#include <math.h>
#include <string.h>

static struct ww_eval_row row(int correct, double lo, double mid, double peak)
{
	struct ww_eval_row r = { .correct = correct, .peak = peak };
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		r.speedup[b] = (struct ww_ratio){ NAN, NAN, NAN };
	r.speedup[WW_BASE_EAGER] = (struct ww_ratio){ lo, mid, mid + 0.1 };
	return r;
}

static void near(double x, double y) { assert_true(fabs(x - y) < 1e-12 * fmax(1, fabs(y))); }

/* Speed-ups 2, 1.02 (its lower end below 1/0.95), 0.96, 0.5 and one that is wrong. */
static void counts_and_means(void **state)
{
	struct ww_eval_row rows[] = { row(1, 1.9, 2, 0.8), row(1, 1.0, 1.02, 0.4), row(1, 0.9, 0.96, 0.2),
		row(1, 0.45, 0.5, NAN), row(0, 3, 3, 0.9) };
	struct ww_eval_score s;
	ww_eval_score(rows, 5, &s);
	const struct ww_eval_against *a = &s.against[WW_BASE_EAGER];
	assert_int_equal(s.n, 5);
	assert_int_equal(s.correct, 4);
	assert_int_equal(a->measured, 4);
	assert_int_equal(a->faster, 1);
	assert_int_equal(a->not_slower, 3);
	assert_int_equal(a->fast[0], 2); /* more than 1 times */
	assert_int_equal(a->fast[1], 1);
	assert_int_equal(a->fast[2], 1);
	assert_int_equal(a->fast[3], 0); /* 2 is not more than 2 */
	near(a->mean.mid, pow(2 * 1.02 * 0.96 * 0.5, 1.0 / 4));
	near(a->mean_all, pow(2 * 1.02 * 0.96 * 0.5 * 1.0, 1.0 / 5));
	near(s.peak, 0.4); /* of 0.8, 0.4, 0.2 */
	assert_true(a->mean.lo >= 0.5 && a->mean.lo < a->mean.mid && a->mean.hi > a->mean.mid && a->mean.hi <= 2);
	assert_int_equal(s.against[WW_BASE_COMPILE].measured, 0);
}

/* 1 / 0.95 = 1.05263: what counts as more than 5% faster. */
static void five_percent(void **state)
{
	struct ww_eval_row rows[] = { row(1, 1.0526, 1.2, NAN), row(1, 1.0527, 1.2, NAN), row(1, 0.9, 0.95, NAN),
		row(1, 0.9, 0.9499, NAN) };
	struct ww_eval_score s;
	ww_eval_score(rows, 4, &s);
	assert_int_equal(s.against[WW_BASE_EAGER].faster, 1);
	assert_int_equal(s.against[WW_BASE_EAGER].not_slower, 3);
}

static void nothing(void **state)
{
	struct ww_eval_row wrong = row(0, NAN, NAN, NAN);
	struct ww_eval_score s;
	ww_eval_score(NULL, 0, &s);
	assert_int_equal(s.n, 0);
	assert_true(isnan(s.against[0].mean.mid) && isnan(s.against[0].mean_all));
	ww_eval_score(&wrong, 1, &s);
	assert_true(isnan(s.against[0].mean.mid));
	near(s.against[0].mean_all, 1);
}

/* ---- From lines -------------------------------------------------------------------------------------------------- */

static json_t *verdict(int correct, double speed, const char *flag)
{
	json_t *v = json_pack("{s:s, s:b, s:{s:f, s:f}, s:{s:{s:f, s:f, s:f}}, s:s}", "status", correct ? "ok" : "mismatch",
		"correct", correct, "time", "device_us", 50.0, "call_us", 60.0, "speedup", "compile", "lo", speed, "mid", speed,
		"hi", speed, "diagnostics", "output 0 is wrong:\n| by much\nmore");
	if (*flag)
		json_object_set_new(v, flag, json_true());
	return v;
}

static void add(struct ww_eval_run *r, const char *id, int level, json_t *strict)
{
	json_array_append_new(json_object_get(r->about, "problems"), json_pack("{s:s, s:i}", "id", id, "level", level));
	if (strict)
		json_object_set_new(r->lines, id,
			json_pack("{s:s, s:s, s:f, s:{s:o}}", "id", id, "family", "scan", "floor_us", 20.0, "verdicts", "strict",
				strict));
}

static double mean_of(const json_t *s, const char *selection, const char *group)
{
	const json_t *by = json_object_get(json_object_get(json_object_get(s, "rules"), "strict"), "device");
	const json_t *score = json_object_get(json_object_get(by, selection), group);
	return ww_json_num(json_object_get(json_object_get(score, "compile"), "geomean"), "mid", NAN);
}

static void groups_and_selections(void **state)
{
	struct ww_eval_run r = { .path = "x",
		.about = json_pack("{s:{s:s}, s:[]}", "config", "rule", "strict", "problems"),
		.lines = json_object() };
	add(&r, "a", 1, verdict(1, 4, ""));
	add(&r, "b", 1, verdict(1, 9, "degenerate"));
	add(&r, "c", 2, verdict(1, 1, "library_fused"));
	add(&r, "d", 2, verdict(0, 8, ""));
	add(&r, "e", 2, NULL);
	json_t *s = ww_eval_summary(&r);
	near(mean_of(s, "all", "overall"), pow(36, 1.0 / 3));
	near(mean_of(s, "all", "1"), 6);
	near(mean_of(s, "all", "2"), 1);
	near(mean_of(s, "without_degenerate", "overall"), 2);
	near(mean_of(s, "without_library", "overall"), 6);
	near(mean_of(s, "own", "overall"), 4);
	assert_int_equal(ww_json_int(s, "ended", 0), 4);
	const json_t *wrong = json_object_get(s, "not_correct"),
				 *family = json_object_get(json_object_get(s, "families"), "scan");
	assert_int_equal(json_array_size(wrong), 1);
	assert_string_equal(ww_json_str(json_array_get(wrong, 0), "why", ""), "mismatch: output 0 is wrong: by much");
	assert_int_equal(ww_json_int(family, "problems", 0), 4);
	near(ww_json_num(family, "peak_fraction", 0), 0.4);
	ww_auto_str text = WW_STR_INIT(65536);
	ww_eval_summary_text(s, &text);
	assert_non_null(strstr(text.p, "level 2"));
	json_decref(s);
	json_decref(r.about);
	json_decref(r.lines);
}

/* A graph's family is its heaviest operator's. */
static void families(void **state)
{
	static const struct {
		const char *ops[3], *family;
	} rows[] = { { { "aten.relu.default", "aten.conv2d.default", "aten.linear.default" }, "convolution" },
		{ { "aten.mul.Tensor", "aten.add.Tensor", "aten.gelu.default" }, "element by element" },
		{ { "aten.conv_transpose3d.input", "aten.sum.default", "aten.mul.Tensor" }, "transposed convolution" },
		{ { "aten.maximum.default", "aten.sumx.default", "aten.mean.dim" }, "reduction" },
		{ { "aten.mul.Tensor", "aten.cumsum.default", "aten.sum.default" }, "scan" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *graph = json_pack(
			"{s:[{s:s},{s:s},{s:s}]}", "nodes", "op", rows[i].ops[0], "op", rows[i].ops[1], "op", rows[i].ops[2]);
		assert_string_equal(ww_eval_family(graph), rows[i].family);
		json_decref(graph);
	}
}

/* What somebody wrote into run.json and results.jsonl commands neither a terminal nor a browser. */
static void what_a_stranger_wrote(void **state)
{
	static const char bad[] = "\x1b[2Jx<script>\xc2\x9b";
	struct ww_err err = WW_ERR_INIT;
	struct ww_eval_run r = { .path = "x",
		.about = json_pack("{s:{s:s, s:s, s:s}, s:{s:s, s:s}, s:[]}", "config", "rule", bad, "suite", bad, "policy",
			bad, "machine", "device", bad, "torch", bad, "problems"),
		.lines = json_object() };
	(void)state;
	add(&r, bad, 1, verdict(0, 8, bad));
	json_object_set_new(r.about, "began", json_string(bad));
	json_t *s = ww_eval_summary(&r);
	ww_auto_str text = WW_STR_INIT(65536), page = WW_STR_INIT(1 << 20);
	ww_eval_summary_text(s, &text);
	assert_null(strpbrk(text.p, "\x1b\x9b"));
	assert_int_equal(ww_eval_page(&r, 1, &page, &err), WW_OK);
	assert_null(strstr(page.p, "<script>"));
	assert_null(strpbrk(page.p, "\x1b"));
	json_decref(s);
	json_decref(r.about);
	json_decref(r.lines);
}

/* One line says why: of a traceback the exception, not the first frame. */
static void why_it_is_not_correct(void **state)
{
	static const char *const cases[][2] = {
		{ "no ModelNew can be made of the solution:\n|   File \"model_new.py\", line 2\n|     class M(\n|            ^\n"
		  "| SyntaxError: '(' was never closed\n",
			"mismatch: no ModelNew can be made of the solution: SyntaxError: '(' was never closed" },
		{ "kernels.c does not compile:\n| kernels.c:3:1: error: x\n|     3 | int x = ;\n",
			"mismatch: kernels.c does not compile: kernels.c:3:1: error: x" },
		{ "forward() raised:\n|   File \"x\"\n", "mismatch: forward() raised: File \"x\"" },
		{ "mismatch: output 0\nmore\n", "mismatch: output 0" }, { "", "mismatch" }
	};
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		ww_auto_str why = WW_STR_INIT(4096);
		json_auto_t *line = json_pack("{s:{s:{s:b, s:s, s:s}}}", "verdicts", "strict", "correct", 0, "status",
			"mismatch", "diagnostics", cases[i][0]);
		ww_eval_why(line, "strict", &why);
		assert_string_equal(why.p, cases[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(counts_and_means), cmocka_unit_test(five_percent),
		cmocka_unit_test(nothing), cmocka_unit_test(groups_and_selections), cmocka_unit_test(families),
		cmocka_unit_test(what_a_stranger_wrote), cmocka_unit_test(why_it_is_not_correct) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
