#include "unit.h"

#include "base/json.h"
#include "judge/judge.h"

#include <math.h>

static const struct ww_ratio slower = { 0.9, 0.95, 1.0 }, barely = { 1.05, 1.2, 1.3 }, faster = { 1.06, 1.2, 1.3 };

/* docs/design/rules.md, section 6, one row each. */
static void rewards(void **state)
{
	const struct {
		int correct, degenerate, library_only;
		struct ww_ratio eager, compile;
		double reward;
	} rows[] = { { 0, 0, 0, faster, faster, -1 }, { 1, 0, 0, faster, faster, 3 }, { 1, 0, 0, faster, slower, 2 },
		{ 1, 0, 0, faster, barely, 2 }, { 1, 0, 0, slower, faster, 1 }, { 1, 0, 0, barely, barely, 1 },
		{ 1, 0, 0, slower, slower, 1 }, { 1, 1, 0, faster, faster, 1 }, { 1, 0, 1, faster, faster, 1 },
		{ 0, 1, 0, faster, faster, -1 }, { 1, 0, 0, { NAN, NAN, NAN }, { NAN, NAN, NAN }, 1 },
		{ 1, 0, 0, faster, { NAN, NAN, NAN }, 2 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_verdict v;
		ww_verdict_init(&v);
		v.correct = rows[i].correct;
		v.degenerate = rows[i].degenerate;
		v.library_only = rows[i].library_only;
		v.speedup[WW_BASE_EAGER] = rows[i].eager;
		v.speedup[WW_BASE_COMPILE] = rows[i].compile;
		assert_true(ww_verdict_reward(&v) == rows[i].reward);
		ww_verdict_release(&v);
	}
}

/* The processes of a policy's shell computed in every measurement: what is faster beside them is no win. */
static void a_busy_shell_caps_the_reward(void **state)
{
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	v.correct = v.shell_load = 1;
	v.speedup[WW_BASE_EAGER] = v.speedup[WW_BASE_COMPILE] = faster;
	assert_true(ww_verdict_reward(&v) == 1);
	ww_verdict_release(&v);
}

/* For the ablation: the speed-up over torch.compile as it is, over eager where that was not measured. */
static void raw_speedups(void **state)
{
	static const struct ww_ratio none = { NAN, NAN, NAN };
	const struct {
		int correct, library_only;
		struct ww_ratio eager, compile;
		double reward;
	} rows[] = { { 0, 0, faster, faster, -1 }, { 1, 0, faster, slower, 0.95 }, { 1, 0, slower, barely, 1.2 },
		{ 1, 0, faster, none, 1.2 }, { 1, 1, faster, faster, 1 }, { 1, 1, faster, slower, 0.95 } };
	struct ww_verdict v;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		ww_verdict_init(&v);
		v.correct = rows[i].correct;
		v.library_only = rows[i].library_only;
		v.speedup[WW_BASE_EAGER] = rows[i].eager;
		v.speedup[WW_BASE_COMPILE] = rows[i].compile;
		assert_true(ww_verdict_speedup_reward(&v) == rows[i].reward);
	}
	ww_verdict_init(&v);
	v.correct = 1;
	assert_true(isnan(ww_verdict_speedup_reward(&v)));
}

/* 1 - 1/speedup > 0.05 at the lower end: the edge lies at 1/0.95. */
static void the_edge_of_five_percent(void **state)
{
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	v.speedup[WW_BASE_EAGER] = (struct ww_ratio){ 1 / 0.9499, 2, 3 };
	assert_true(ww_verdict_beats(&v, WW_BASE_EAGER));
	v.speedup[WW_BASE_EAGER] = (struct ww_ratio){ 1 / 0.9501, 2, 3 };
	assert_false(ww_verdict_beats(&v, WW_BASE_EAGER));
}

static void fill(struct ww_verdict *v)
{
	ww_verdict_init(v);
	v->status = WW_STATUS_MISMATCH;
	v->rule = WW_RULE_PAPER;
	v->algebraic = v->suspect = 1;
	v->err_rel = INFINITY;
	v->err_abs = 0.25;
	v->eager_err_rel = 1e-7;
	v->time = (struct ww_times){ 12.5, 14.5 };
	v->time_device = (struct ww_ratio){ 12, 12.5, 13 };
	v->baseline_measured[WW_BASE_EAGER] = 1;
	v->baselines[WW_BASE_EAGER] = (struct ww_times){ 20, 30 };
	v->speedup[WW_BASE_EAGER] = (struct ww_ratio){ 1.5, 1.6, 1.7 };
	v->speedup_call[WW_BASE_EAGER] = (struct ww_ratio){ 2.5, 2.6, 2.7 };
	v->floor_us = 3;
	v->reward = 2;
	v->draws = 5;
	v->checked_calls = 8;
	v->seconds.total = 1.5;
	strcpy(v->device_method, "graph");
	strcpy(v->device_name, "NVIDIA \"X\"");
	strcpy(v->solution_id, "ab");
	strcpy(v->task_id, "cd");
	v->diagnostics = strdup("two\nlines \xc3\xa4");
}

/* Of a plan in parts both are said: how it was timed, and that a baseline could not be captured. */
static void uncaptured_baselines(void **state)
{
	static const char *const methods[][2] = { { "graph", "kernels" }, { "kernels", "kernels" },
		{ "parts", "parts+kernels" }, { "parts+kernels", "parts+kernels" } };
	struct ww_verdict v;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(methods); i++) {
		ww_verdict_init(&v);
		strcpy(v.device_method, methods[i][0]);
		ww_verdict_uncaptured(&v);
		assert_string_equal(v.device_method, methods[i][1]);
		ww_verdict_release(&v);
	}
}

static const char golden[] =
	"{\"version\":1,\"status\":\"mismatch\",\"correct\":false,\"rule\":\"paper\",\"form\":\"plan\",\"degenerate\":false,"
	"\"algebraic\":true,\"library_only\":false,\"suspect\":true,\"disturbed\":true,\"err_rel\":\"inf\",\"err_abs\":0.25,"
	"\"time\":{\"device_us\":12.5,\"call_us\":14.5},\"time_device\":{\"lo\":12.0,\"mid\":12.5,\"hi\":13.0},"
	"\"device_method\":\"graph\",\"baselines\":{\"eager\":{\"device_us\":20.0,\"call_us\":30.0},\"compile\":null,\"autotune\":null,"
	"\"solution\":null},\"speedup\":{\"eager\":{\"lo\":1.5,\"mid\":1.6000000000000001,\"hi\":1.7},\"compile\":null,"
	"\"autotune\":null,\"solution\":null},\"speedup_call\":{\"eager\":{\"lo\":2.5,\"mid\":2.6000000000000001,"
	"\"hi\":2.7000000000000002},\"compile\":null,\"autotune\":null,\"solution\":null},\"floor_us\":3.0,\"floor_flops_us\":null,"
	"\"reward\":2.0,\"aten_ops\":[\"aten.mm\",\"aten.relu\"],\"draws\":5,\"checked_calls\":8,\"attempts\":1,\"set_aside\":0,"
	"\"disturbance\":\"others\",\"repeats\":0,\"nondeterministic\":0,\"diagnostics\":\"two\\nlines \xc3\xa4\","
	"\"seconds\":{\"reference\":0.0,\"plan\":0.0,\"compile\":0.0,\"wait\":0.0,\"verify\":0.0,\"time\":0.0,"
	"\"total\":1.5,\"examine\":0.0,\"prepare\":0.0,\"start\":0.0,\"load\":0.0,\"draw\":0.0,"
	"\"run\":0.0,\"compare\":0.0,\"repeat\":0.0,\"ties\":0.0,\"baseline\":0.0},\"device\":\"NVIDIA \\\"X\\\"\",\"solution_id\":\"ab\","
	"\"binary_id\":\"\",\"task_id\":\"cd\"}";

static void json_round_trip(void **state)
{
	struct ww_verdict a, b;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str first = WW_STR_INIT(65536), second = WW_STR_INIT(65536);
	json_t *o, *parsed, *again;
	(void)state;
	fill(&a);
	ww_verdict_init(&b);
	o = ww_verdict_to_json(&a);
	assert_non_null(o);
	ww_json_add(&first, o);
	assert_int_equal(ww_json_parse(first.p, first.len, "test", &parsed, &err), WW_OK);
	assert_int_equal(ww_verdict_from_json(parsed, &b, &err), WW_OK);
	again = ww_verdict_to_json(&b);
	ww_json_add(&second, again);
	assert_string_equal(first.p, second.p);
	assert_string_equal(json_string_value(json_object_get(o, "status")), "mismatch");
	assert_true(json_is_null(json_object_get(json_object_get(o, "baselines"), "compile")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "speedup"), "autotune")));
	assert_true(isinf(b.err_rel));
	json_decref(o);
	json_decref(parsed);
	json_decref(again);
	ww_str_release(&first);
	ww_str_release(&second);
	ww_verdict_release(&a);
	ww_verdict_release(&b);
}

/* Programs and stored episodes read this text: existing keys, their order and their forms stay. */
static void json_keeps_its_bytes(void **state)
{
	struct ww_verdict v;
	struct ww_str text = WW_STR_INIT(65536);
	(void)state;
	fill(&v);
	v.disturbed = v.attempts = 1;
	strcpy(v.disturbance, "others");
	strcpy(v.aten_ops, "aten.mm aten.relu");
	json_t *o = ww_verdict_to_json(&v), *expected = json_loads(golden, 0, NULL), *value;
	const char *key;
	void *next;
	json_object_foreach_safe(o, next, key, value) /* later ones, and prose */
		if (!json_object_get(expected, key))
			json_object_del(o, key);
	ww_json_add(&text, o);
	json_decref(expected);
	assert_string_equal(text.p, golden);
	json_decref(o);
	ww_str_release(&text);
	ww_verdict_release(&v);
}

static void flags_as_text(void **state)
{
	struct ww_verdict v;
	struct ww_str text = WW_STR_INIT(4096);
	(void)state;
	fill(&v);
	v.disturbed = v.nondeterministic = 1;
	v.suspect = 0;
	strcpy(v.disturbance, "an other\033[2J");
	ww_verdict_add_flags(&v, "- ", &text);
	assert_non_null(strstr(text.p, "- algebraic: the solution does"));
	assert_non_null(strstr(text.p, "\n- disturbed (an other?[2J): "));
	assert_null(strstr(text.p, "suspect"));
	json_t *o = ww_verdict_to_json(&v);
	ww_str_reset(&text);
	ww_verdict_json_add_flag_names(o, &text);
	assert_string_equal(text.p, "algebraic, disturbed, nondeterministic");
	json_decref(o);
	ww_str_release(&text);
	ww_verdict_release(&v);
}

/* A stored verdict that lacks something, or says something unknown, is an error and not half a verdict. */
static void half_a_verdict_is_an_error(void **state)
{
	static const char *const needed[] = { "version", "status", "rule", "form", "correct", "suspect", "reward",
		"diagnostics", "task_id" };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(needed); i++) {
		struct ww_verdict a, b;
		struct ww_err err = WW_ERR_INIT;
		fill(&a);
		ww_verdict_init(&b);
		json_t *o = ww_verdict_to_json(&a);
		json_object_del(o, needed[i]);
		assert_int_not_equal(ww_verdict_from_json(o, &b, &err), WW_OK);
		assert_non_null(strstr(err.msg, needed[i]));
		json_object_set_new(o, needed[i], json_string("nonsense"));
		if (strcmp(needed[i], "diagnostics") && strcmp(needed[i], "task_id"))
			assert_int_not_equal(ww_verdict_from_json(o, &b, &err), WW_OK);
		json_decref(o);
		ww_verdict_release(&a);
		ww_verdict_release(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(rewards), cmocka_unit_test(a_busy_shell_caps_the_reward),
		cmocka_unit_test(raw_speedups), cmocka_unit_test(the_edge_of_five_percent),
		cmocka_unit_test(uncaptured_baselines), cmocka_unit_test(json_round_trip),
		cmocka_unit_test(json_keeps_its_bytes), cmocka_unit_test(flags_as_text),
		cmocka_unit_test(half_a_verdict_is_an_error) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
