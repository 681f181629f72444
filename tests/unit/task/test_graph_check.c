/* ww_graph_check(): it takes every graph that PyTorch has made, and names what is wrong with others. */
#include "unit.h"

#include "base/json.h"
#include "task/graph/check.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static json_t *fixture(const char *name)
{
	char path[4096];
	struct ww_err err = WW_ERR_INIT;
	json_t *g = NULL;
	snprintf(path, sizeof(path), "%s/tests/data/graphs/%s", getenv("WW_SOURCE_DIR"), name);
	if (ww_json_read_file(path, 1 << 24, &g, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return g;
}

static json_t *node_of(json_t *graph, const char *name) /* or an input, a parameter, an output */
{
	static const char *const lists[] = { "nodes", "inputs", "params", "outputs" };
	for (size_t i = 0; i < WW_ARRAY_LEN(lists); i++) {
		const json_t *found = ww_json_named(json_object_get(graph, lists[i]), name);
		if (found)
			return (json_t *)found;
	}
	fail_msg("no %s", name);
	return NULL;
}

static void recorded_graphs_are_fine(void **state)
{
	char dir[4096];
	struct dirent *e;
	int n = 0;
	(void)state;
	snprintf(dir, sizeof(dir), "%s/tests/data/graphs", getenv("WW_SOURCE_DIR"));
	DIR *d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		struct ww_err err = WW_ERR_INIT;
		const json_t *node;
		size_t i;
		if (!strstr(e->d_name, ".json"))
			continue;
		json_auto_t *g = fixture(e->d_name);
		if (ww_graph_check(g, &err) != WW_OK)
			fail_msg("%s: %s", e->d_name, err.msg);
		json_array_foreach(json_object_get(g, "nodes"), i, node)
			if (!ww_graph_knows(node))
				fail_msg("%s: %s is not in ops.def", e->d_name, ww_json_str(node, "op", "?"));
		n++;
	}
	closedir(d);
	assert_true(n > 150);
}

/* One part of a recorded graph is replaced.  key: "3" is argument 3; "out.0.sizes"; KEY of keyword arguments:
 * "kwargs.KEY". */
static const struct {
	const char *file, *node, *key, *value, *why;
} broken[] = {
	/* tensors */
	{ "conv2d.json", "x", "sizes", "[4,8,21]", "a stride for each size" },
	{ "conv2d.json", "x", "sizes", "[4,8,-21,23]", "out of range" },
	{ "conv2d.json", "x", "strides", "[3864,483,23,-1]", "out of range" },
	{ "conv2d.json", "x", "sizes", "[40000000,40000000,21,23]", "too many elements" },
	{ "conv2d.json", "x", "dtype", "\"float31\"", "its type is not known" },
	{ "conv2d.json", "x", "name", "\"c.weight\"", "used twice" },
	{ "conv2d.json", "x", "name", "\"x\\n\"", "no usable name" },
	{ "conv2d.json", "x", "out", "[]", "it has results" },
	{ "conv2d.json", "output0", "sizes", "[4,16,11,13]", "where [4, 16, 11, 12] belong" },
	{ "conv2d.json", "output0", "ref", "\"nothing\"", "no tensor" },
	/* references */
	{ "conv2d.json", "conv2d", "0", "{\"ref\":\"relu\"}", "not defined before it" },
	{ "conv2d.json", "relu", "0", "{\"ref\":\"relu\"}", "not defined before it" },
	{ "sorts.json", "exp", "0", "{\"ref\":\"sort\"}", "self is of another kind" },
	{ "sorts.json", "getitem_1", "1", "2", "result 2 of 2" },
	{ "sorts.json", "getitem_1", "out.0.sizes", "[3,151]", "belong" },
	/* kinds and numbers of arguments */
	{ "conv2d.json", "conv2d", "1", "null", "weight is missing" },
	{ "conv2d.json", "conv2d", "3", "[2,\"2\"]", "stride is of another kind" },
	{ "example_softmax.json", "softmax", "1", "{\"ref\":\"x\"}", "dim is of another kind" },
	{ "conv2d.json", "conv2d", "0", "[[[[[[[[[[[1]]]]]]]]]]]", "nested too deep" },
	{ "conv2d.json", "conv2d", "out", "[]", "it has 0 results, not 1" },
	{ "conv2d.json", "conv2d", "args", "{}", "no arguments" },
	{ "conv2d.json", "conv2d", "tf32", "1", "its tf32 is no flag" },
	/* attributes */
	{ "conv2d.json", "conv2d", "3", "[2,0]", "stride is 0" },
	{ "conv2d.json", "conv2d", "3", "[2,2,2,2]", "stride has 4 numbers" },
	{ "conv2d.json", "conv2d", "4", "[-1,1]", "padding is -1" },
	{ "conv2d.json", "c.weight", "sizes", "[16,7,3,3]", "its filter takes 7" },
	{ "conv2d.json", "c.weight", "sizes", "[16,8,0,3]", "its filter has 0 elements" },
	{ "conv2d.json", "c.bias", "sizes", "[15]", "bias has sizes [15]" },
	{ "conv2d.json", "conv2d", "out.0.sizes", "[4,16,11,13]", "where [4, 16, 11, 12] belong" },
	{ "conv2d.json", "b.weight", "sizes", "[17]", "weight has sizes [17]" },
	{ "pools.json", "max_pool2d", "1", "[9,99]", "does not fit" },
	{ "pools.json", "max_pool2d_1", "3", "[2,2]", "more than half its window" },
	{ "groupnorm.json", "group_norm", "1", "0", "0 groups" },
	{ "groupnorm.json", "group_norm", "1", "5", "5 groups of 16" },
	/* dimensions */
	{ "example_softmax.json", "softmax", "1", "2", "dim is 2, of 2 dimensions" },
	{ "example_softmax.json", "softmax", "1", "-9223372036854775808", "of 2 dimensions" },
	{ "gather.json", "gather", "1", "-3", "dim is -3" },
	{ "sorts.json", "topk", "1", "12", "k is 12" },
	{ "example_attention.json", "q", "sizes", "[1,12,1024,65]", "inner dimensions are 65 and 64" },
	{ "example_attention.json", "k", "sizes", "[1,11,1024,64]", "do not go together" },
	{ "ce.json", "cross_entropy_loss", "3", "3", "reduction is 3" },
	{ "ce.json", "t", "sizes", "[63]", "where [64] belong" },
	{ "ce.json", "t", "dtype", "\"float32\"", "not of integers" },
};

static void set(json_t *graph, const char *name, const char *key, const char *text)
{
	json_t *to = node_of(graph, name), *v = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_non_null(v);
	if (*key >= '0' && *key <= '9')
		assert_int_equal(json_array_set_new(json_object_get(to, "args"), (size_t)atoi(key), v), 0);
	else if (!strcmp(key, "out.0.sizes"))
		json_object_set_new(json_array_get(json_object_get(to, "out"), 0), "sizes", v);
	else
		json_object_set_new(to, key, v);
}

static void others_are_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(broken); i++) {
		struct ww_err err = WW_ERR_INIT;
		json_auto_t *g = fixture(broken[i].file);
		set(g, broken[i].node, broken[i].key, broken[i].value);
		if (ww_graph_check(g, &err) != WW_ERR_TASK || !strstr(err.msg, broken[i].why))
			fail_msg("%s, %s of %s is %s: \"%s\", expected \"%s\"", broken[i].file, broken[i].key, broken[i].node,
				broken[i].value, err.msg, broken[i].why);
		assert_null(strchr(err.msg, '\n'));
	}
}

/* Another PyTorch may have other operators, overloads and arguments: that is no fault of the graph's. */
static void what_is_not_known_is_no_fault(void **state)
{
	static const char *const changes[][2] = { { "op", "\"aten.convoluted2d.default\"" },
		{ "op", "\"aten.conv2d.deterministic\"" }, { "kwargs", "{\"accumulate_in\":\"float64\"}" },
		{ "op", "\"mylib.conv2d.default\"" } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(changes); i++) {
		struct ww_err err = WW_ERR_INIT;
		json_auto_t *g = fixture("conv2d.json");
		assert_true(ww_graph_knows(node_of(g, "conv2d")));
		set(g, "conv2d", changes[i][0], changes[i][1]);
		if (ww_graph_check(g, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_false(ww_graph_knows(node_of(g, "conv2d")));
	}
}

/* A complex number is its two parts and nothing else. */
static void complex_numbers_are_numbers(void **state)
{
	static const struct {
		const char *value, *why;
	} numbers[] = { { "{\"complex\":[0,2]}", NULL }, { "{\"complex\":[\"-inf\",1.5]}", NULL },
		{ "{\"complex\":[0]}", "other is of another kind" }, { "{\"complex\":[[],2]}", "other is of another kind" },
		{ "{\"complex\":[0,2],\"slice\":[1]}", "other is of another kind" },
		{ "{\"complex\":[0,2],\"ref\":\"nothing\"}", "not defined before it" } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(numbers); i++) {
		struct ww_err err = WW_ERR_INIT;
		json_auto_t *g = fixture("across.json");
		set(g, "mul", "1", numbers[i].value);
		enum ww_rc rc = ww_graph_check(g, &err);
		if (numbers[i].why ? rc != WW_ERR_TASK || !strstr(err.msg, numbers[i].why) : rc != WW_OK)
			fail_msg("%s: \"%s\"", numbers[i].value, err.msg);
	}
}

static void a_graph_has_bounds(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *g = fixture("conv2d.json"), *many = json_array();
	(void)state;
	for (int i = 0; i <= WW_GRAPH_MAX_NODES; i++)
		json_array_append_new(many, json_integer(i));
	json_object_set(g, "nodes", many);
	assert_int_equal(ww_graph_check(g, &err), WW_ERR_TASK);
	assert_non_null(strstr(err.msg, "more than 100000 nodes"));
	json_object_set_new(g, "nodes", json_integer(3));
	assert_int_equal(ww_graph_check(g, &err), WW_ERR_TASK);
	assert_int_equal(ww_graph_check(NULL, &err), WW_ERR_TASK);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(recorded_graphs_are_fine), cmocka_unit_test(others_are_named),
		cmocka_unit_test(what_is_not_known_is_no_fault), cmocka_unit_test(complex_numbers_are_numbers),
		cmocka_unit_test(a_graph_has_bounds) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
