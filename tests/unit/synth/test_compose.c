/* test_compose.c - candidates: every row can be written, every number gives one within the recipe's bounds, the same
 * one each time.  That PyTorch gives the predicted shapes is tests/cli/synth_run.t's.
 *
 * budget: 3 CPU-seconds */
#include "unit.h"

#include "synth/redundant.h"
#include "synth/synth.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANDIDATES = 5000 };

static void every_row_is_written(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r;
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate k = WW_SYNTH_CANDIDATE_INIT;
	assert_int_equal(ww_synth_recipe_set(&r, "small", WW_TARGET_CUDA, &err), WW_OK);
	assert_true(ww_synth_ops() >= 250);
	for (int i = 0; i < ww_synth_ops(); i++) {
		const struct ww_synth_op *op = ww_synth_op(i);
		if (ww_synth_compose_op(&r, op, (uint64_t)i, 0, &k, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_non_null(strstr(k.source.p, "class Model(nn.Module):"));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(ww_synth_op_name(op), ww_synth_op_name(ww_synth_op(j)));
	}
}

static void without_catalogue(struct ww_synth_recipe *r, const char *set, enum ww_target target)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_synth_recipe_set(r, set, target, &err), WW_OK);
	ww_synth_recipe_add(r, NULL);
}

static void candidates_fit_their_recipe(void **state)
{
	static const struct {
		const char *set;
		enum ww_target target;
	} recipes[] = { { "small", WW_TARGET_CUDA }, { "large", WW_TARGET_CUDA }, { "small", WW_TARGET_CPU },
		{ "large", WW_TARGET_CPU } };
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r[WW_ARRAY_LEN(recipes)];
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate k = WW_SYNTH_CANDIDATE_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(recipes); i++)
		without_catalogue(&r[i], recipes[i].set, recipes[i].target);
	for (uint64_t i = 0; i < CANDIDATES; i++) {
		const struct ww_synth_recipe *q = &r[i % WW_ARRAY_LEN(recipes)];
		if (ww_synth_compose(q, 1, i, &k, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_true(k.us >= q->min_us && k.us <= q->max_us && k.input_bytes <= q->max_input_bytes);
	}
}

/* Of chains in narrow bounds one candidate in ten thousand needs more than 96 attempts. */
static void a_rare_candidate_is_found(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r = { .target = WW_TARGET_CUDA };
	char path[4200];
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate k = WW_SYNTH_CANDIDATE_INIT;
	snprintf(
		path, sizeof(path), "%s/recipes/synth/nano-cuda.yaml", getenv("WW_SOURCE_DIR") ? getenv("WW_SOURCE_DIR") : ".");
	assert_int_equal(ww_synth_recipe_read(&r, path, &err), WW_OK);
	ww_synth_recipe_add(&r, NULL);
	if (ww_synth_compose(&r, 11, 9782, &k, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static void a_number_is_one_candidate(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r;
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate a = WW_SYNTH_CANDIDATE_INIT;
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate b = WW_SYNTH_CANDIDATE_INIT;
	without_catalogue(&r, "small", WW_TARGET_CPU);
	for (uint64_t i = 0; i < 50; i++) {
		assert_int_equal(ww_synth_compose(&r, 7, i, &a, &err), WW_OK);
		assert_int_equal(ww_synth_compose(&r, 7, 49 - i, &b, &err), WW_OK);
		assert_int_equal(ww_synth_compose(&r, 7, i, &b, &err), WW_OK);
		assert_string_equal(a.source.p, b.source.p);
		assert_int_equal(ww_synth_compose(&r, 8, i, &b, &err), WW_OK);
		assert_string_not_equal(a.source.p, b.source.p);
	}
}

static void recipes_are_checked(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = { { "set: small\noperaters: {1: 2}\n", "did you mean operators" }, { "set: huge\n", "large or small" },
		{ "set: small\nmin-us: soon\n", "min-us must be a number" },
		{ "set: small\ndtypes: {float33: 1}\n", "did you mean float32" },
		{ "set: small\nforms: {chain: 0}\n", "no share above 0" },
		{ "set: small\nmin-us: 100\nmax-us: 150\n", "twice min-us" }, { "- 1\n", "mapping" } };
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r = { .target = WW_TARGET_CPU };
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		char path[] = "/tmp/ww-recipe-XXXXXX";
		int fd = mkstemp(path);
		assert_true(fd >= 0 && write(fd, bad[i].text, strlen(bad[i].text)) == (ssize_t)strlen(bad[i].text));
		close(fd);
		assert_int_equal(ww_synth_recipe_read(&r, path, &err), WW_ERR_USAGE);
		unlink(path);
		if (!strstr(err.msg, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.msg, bad[i].says);
		r.target = WW_TARGET_CPU;
	}
}

static void what_is_redundant_is_found(void **state)
{
#define NODE(name, op, args) \
	"{\"name\":\"" name "\",\"op\":\"aten." op "\",\"args\":[" args "],\"kwargs\":{},\"out\":[{\"sizes\":[4,1,8]}]}"
#define X "{\"ref\":\"x\"}"
#define A "{\"ref\":\"a\"}"
#define GRAPH(nodes, out) "{\"nodes\":[" nodes "],\"outputs\":[{\"ref\":\"" out "\"}]}"
	static const struct {
		const char *graph;
		int redundant;
	} cases[] = { { GRAPH(NODE("a", "relu.default", X) "," NODE("b", "relu.default", A), "b"), 1 },
		{ GRAPH(NODE("a", "relu.default", X) "," NODE("b", "tanh.default", A), "b"), 0 },
		{ GRAPH(NODE("a", "sigmoid.default", X) "," NODE("b", "relu.default", A), "b"), 1 },
		{ GRAPH(NODE("a", "sub.Tensor", X "," X), "a"), 1 },
		{ GRAPH(NODE("a", "add.Tensor", X ",{\"ref\":\"y\"}") "," NODE("b", "sub.Tensor", A ",{\"ref\":\"y\"}"), "b"),
			1 },
		{ GRAPH(NODE("a", "mul.Tensor", X ",1.0"), "a"), 1 }, { GRAPH(NODE("a", "mul.Tensor", X ",2.0"), "a"), 0 },
		{ GRAPH(NODE("a", "softmax.int", X ",1"), "a"), 1 }, { GRAPH(NODE("a", "softmax.int", X ",-1"), "a"), 0 },
		{ GRAPH(NODE("a", "transpose.int", X ",1,2") "," NODE("b", "transpose.int", A ",1,2"), "b"), 1 },
		{ GRAPH(NODE("a", "tanh.default", X) "," NODE("b", "exp.default", X), "b"), 1 } };
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		json_auto_t *g = json_loads(cases[i].graph, 0, NULL);
		ww_auto_str why = WW_STR_INIT(300);
		assert_non_null(g);
		if (ww_synth_redundant(g, &why) != cases[i].redundant)
			fail_msg("case %zu: \"%s\"", i, why.p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_row_is_written),
		cmocka_unit_test(candidates_fit_their_recipe), cmocka_unit_test(a_rare_candidate_is_found),
		cmocka_unit_test(a_number_is_one_candidate), cmocka_unit_test(recipes_are_checked),
		cmocka_unit_test(what_is_redundant_is_found) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
