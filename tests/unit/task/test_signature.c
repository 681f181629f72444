/* Signatures: spellings of one computation have one, other computations have others. */
#include "unit.h"

#include "base/json.h"
#include "task/signature.h"

#include <stdlib.h>

/* A graph from lines "name operator [sizes] [arguments]": @x refers to a name.  x (4, 8), y (4, 8), i (integers), m
 * (booleans) are inputs, w (8, 8), b (8), c (8, 8, 3, 3), p (8, 8, 1, 1) parameters, k a buffer; the last line is the
 * output. */
static json_t *graph_of(const char *lines)
{
	json_auto_t *places = json_loads(
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [4, 8]}, {\"name\": \"y\", \"dtype\": \"float32\", \"sizes\": [4, 8]},"
		" {\"name\": \"i\", \"dtype\": \"int64\", \"sizes\": [4]}, {\"name\": \"m\", \"dtype\": \"bool\", \"sizes\": [4, 8]}],"
		" \"params\": [{\"name\": \"w\", \"dtype\": \"float32\", \"sizes\": [8, 8], \"role\": \"param\"}, {\"name\": \"b\", \"dtype\": \"float32\","
		" \"sizes\": [8], \"role\": \"param\"}, {\"name\": \"c\", \"dtype\": \"float32\", \"sizes\": [8, 8, 3, 3], \"role\": \"param\"},"
		" {\"name\": \"p\", \"dtype\": \"float32\", \"sizes\": [8, 8, 1, 1], \"role\": \"param\"},"
		" {\"name\": \"k\", \"dtype\": \"bool\", \"sizes\": [8, 8], \"role\": \"buffer\"}]}",
		0, NULL);
	ww_auto_str text = WW_STR_INIT(1 << 16);
	char name[32] = "x", op[80], sizes[80], args[300];
	int n;
	assert_non_null(places);
	ww_str_adds(&text, "[");
	for (const char *p = lines; *p; p += n + (p[n] == ';')) {
		n = (int)strcspn(p, ";");
		ww_auto_str line = WW_STR_INIT(2000), spelled = WW_STR_INIT(2000);
		ww_str_add(&line, p, (size_t)n);
		assert_int_equal(sscanf(line.p, " %31s %79s %79s %299[^\n]", name, op, sizes, args), 4);
		for (const char *a = args; *a; a++) {
			size_t len = strcspn(a + 1, ",] ");
			if (*a != '@') {
				ww_str_addc(&spelled, *a);
				continue;
			}
			ww_str_addf(&spelled, "{\"ref\": \"%.*s\"}", (int)len, a + 1);
			a += len;
		}
		ww_str_addf(&text,
			"%s{\"name\": \"%s\", \"op\": \"aten.%s\", \"args\": %s, \"kwargs\": {}, \"out\": [{\"dtype\": \"%s\", \"sizes\": %s}]}",
			text.len > 1 ? "," : "", name, op, spelled.p, strstr(op, "gt.") ? "bool" : "float32", sizes);
	}
	ww_str_adds(&text, "]");
	json_error_t why;
	json_t *nodes = json_loads(text.p, 0, &why), *out = json_deep_copy(places);
	if (!nodes)
		fail_msg("%s in %s", why.text, text.p);
	json_object_set_new(out, "nodes", nodes);
	json_object_set_new(out, "outputs", json_pack("[{s:s}]", "ref", name));
	return out;
}

static struct ww_signature signature_of(const char *lines)
{
	struct ww_signature s;
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *graph = graph_of(lines);
	if (ww_task_signature(graph, &s, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(strlen(s.text), WW_SIGNATURE_TEXT - 1);
	return s;
}

static void compare(const char *a, const char *b, int equal)
{
	struct ww_signature s = signature_of(a), t = signature_of(b);
	if ((strcmp(s.text, t.text) == 0) != equal)
		fail_msg("%s\n  %s\n%s\n  %s", a, s.operators, b, t.operators);
	ww_signature_release(&s);
	ww_signature_release(&t);
}

/* x . */
static const char *const same[][2] = {
	{ "a relu.default [4,8] [@x]", "a relu_.default [2,3] [@x]" },
	{ "a relu.default [4,8] [@x]", "a clamp.default [4,8] [@x,0]" },
	{ "a relu.default [4,8] [@x]", "g gt.Scalar [4,8] [@x,0]; a mul.Tensor [4,8] [@x,@g]" },
	{ "a relu.default [4,8] [@x]",
		"g gt.Scalar [4,8] [@x,0]; z zeros_like.default [4,8] [@x]; a where.self [4,8] [@g,@x,@z]" },
	{ "a relu.default [4,8] [@x]", "g abs.default [4,8] [@x]; s add.Tensor [4,8] [@x,@g]; a div.Tensor [4,8] [@s,2]" },
	{ "a linear.default [4,8] [@x,@w,@b]", "t t.default [8,8] [@w]; a addmm.default [4,8] [@b,@x,@t]" },
	{ "a linear.default [4,8] [@x,@w,@b]",
		"t transpose.int [8,8] [@w,0,1]; m1 matmul.default [4,8] [@x,@t]; a add.Tensor [4,8] [@b,@m1]" },
	{ "a linear.default [4,8] [@x,@w]", "a einsum.default [4,8] [\"ij,kj->ik\",[@x,@w]]" },
	{ "a linear.default [4,8] [@x,@w]", "s mul.Tensor [4,8,8] [@x,@w]; a sum.dim_IntList [4,8] [@s,[-1]]" },
	{ "a conv2d.default [4,8,6,6] [@x,@p]", "a linear.default [4,8] [@x,@w]" },
	{ "a softmax.int [4,8] [@x,1]",
		"t amax.default [4,1] [@x,[1],true]; d sub.Tensor [4,8] [@x,@t]; e exp.default [4,8] [@d]; s sum.dim_IntList [4,1] [@e,[1],true]; a div.Tensor [4,8] [@e,@s]" },
	{ "a softmax.int [4,8] [@x,1]",
		"l logsumexp.default [4,1] [@x,[1],true]; d sub.Tensor [4,8] [@x,@l]; a exp.default [4,8] [@d]" },
	{ "s mul.Tensor [4,8] [@x,@y]; a relu.default [4,8] [@s]",
		"s mul.Tensor [4,8] [@x,@y]; g gt.Scalar [4,8] [@s,0]; a mul.Tensor [4,8] [@s,@g]" },
	{ "s add.Tensor [4,8] [@x,@y]; a relu.default [4,8] [@s]",
		"s add.Tensor [4,8] [@x,@y]; g abs.default [4,8] [@s]; t add.Tensor [4,8] [@g,@s]; a div.Tensor [4,8] [@t,2]" },
	{ "a hardsigmoid.default [4,8] [@x]",
		"t add.Tensor [4,8] [@x,3]; r relu6.default [4,8] [@t]; a div.Tensor [4,8] [@r,6]" },
	{ "a log_softmax.int [4,8] [@x,1]", "s softmax.int [4,8] [@x,-1]; a log.default [4,8] [@s]" },
	{ "a log_softmax.int [4,8] [@x,1]", "l logsumexp.default [4,1] [@x,[1],true]; a sub.Tensor [4,8] [@x,@l]" },
	{ "a sigmoid.default [4,8] [@x]",
		"n1 neg.default [4,8] [@x]; e exp.default [4,8] [@n1]; p1 add.Tensor [4,8] [@e,1]; a reciprocal.default [4,8] [@p1]" },
	{ "a silu.default [4,8] [@x]", "s sigmoid.default [4,8] [@x]; a mul.Tensor [4,8] [@s,@x]" },
	{ "a gelu.default [4,8] [@x]",
		"d div.Tensor [4,8] [@x,1.41421356]; e erf.default [4,8] [@d]; o add.Tensor [4,8] [@e,1]; h mul.Tensor [4,8] [@x,0.5]; a mul.Tensor [4,8] [@h,@o]" },
	{ "a hardswish.default [4,8] [@x]",
		"t add.Tensor [4,8] [@x,3]; r relu6.default [4,8] [@t]; q mul.Tensor [4,8] [@x,@r]; a div.Tensor [4,8] [@q,6]" },
	{ "a layer_norm.default [4,8] [@x,[8],@w,@b,1e-5]",
		"u mean.dim [4,1] [@x,[-1],true]; d sub.Tensor [4,8] [@x,@u]; q mul.Tensor [4,8] [@d,@d]; v mean.dim [4,1] [@q,[-1],true];"
		" e add.Tensor [4,1] [@v,1e-5]; s sqrt.default [4,1] [@e]; n1 div.Tensor [4,8] [@d,@s]; g mul.Tensor [4,8] [@n1,@w]; a add.Tensor [4,8] [@g,@b]" },
	{ "a mse_loss.default [] [@x,@y]",
		"d sub.Tensor [4,8] [@y,@x]; q pow.Tensor_Scalar [4,8] [@d,2]; a mean.default [] [@q]" },
	{ "t mul.Tensor [4,8] [@x,2]; u mul.Tensor [4,8] [@x,3]; a add.Tensor [4,8] [@t,@u]", "a mul.Tensor [4,8] [@x,5]" },
	{ "t add.Tensor [4,8] [@x,0]; a mul.Tensor [4,8] [@t,1]; z tanh.default [4,8] [@a]", "z tanh.default [4,8] [@x]" },
	{ "t add.Tensor [4,8] [@x,@y]; a mul.Tensor [4,8] [@t,@w]",
		"t add.Tensor [4,8] [@y,@x]; a mul.Tensor [4,8] [@w,@t]" },
	{ "a maximum.default [4,8] [@x,@y]", "a max.other [4,8] [@y,@x]" },
	{ "t view.default [32] [@x,[32]]; a tanh.default [32] [@t]", "a tanh.default [4,8] [@x]" },
	{ "s add_.Tensor [4,8] [@x,@y]; a tanh.default [4,8] [@x]",
		"s add.Tensor [4,8] [@x,@y]; a tanh.default [4,8] [@s]" },
};

static const char *const different[][2] = {
	{ "a relu.default [4,8] [@x]", "a tanh.default [4,8] [@x]" },
	{ "a linear.default [4,8] [@x,@w,@b]", "a linear.default [4,8] [@x,@w]" },
	{ "a softmax.int [4,8] [@x,1]", "a softmax.int [4,8] [@x,0]" },
	{ "a sum.default [] [@x]", "a sum.dim_IntList [4] [@x,[1]]" },
	{ "t tanh.default [4,8] [@x]; a relu.default [4,8] [@t]", "t relu.default [4,8] [@x]; a tanh.default [4,8] [@t]" },
	{ "t tanh.default [4,8] [@x]; a add.Tensor [4,8] [@t,@x]",
		"t tanh.default [4,8] [@x]; a add.Tensor [4,8] [@t,@y]" },
	{ "a pow.Tensor_Scalar [4,8] [@x,2]", "a pow.Tensor_Scalar [4,8] [@x,3]" },
	{ "a conv2d.default [4,8,6,6] [@x,@c]", "a conv_transpose2d.input [4,8,6,6] [@x,@c]" },
	{ "a max_pool2d.default [4,8,6,6] [@x,[2,2]]", "a avg_pool2d.default [4,8,6,6] [@x,[2,2]]" },
	{ "a sub.Tensor [4,8] [@x,@y]", "a add.Tensor [4,8] [@x,@y]" },
	{ "a embedding.default [4,8] [@w,@i]", "a tanh.default [4,8] [@w]" },
};

static void spellings_have_one_signature(void **state)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(same); i++)
		compare(same[i][0], same[i][1], 1);
}

static void other_computations_have_others(void **state)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(different); i++)
		compare(different[i][0], different[i][1], 0);
}

/* What a device rounds is no part of what is computed. */
static void a_device_has_no_part(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_signature s = signature_of("a conv2d.default [4,8,6,6] [@x,@c]"), t;
	json_auto_t *graph = graph_of("a conv2d.default [4,8,6,6] [@x,@c]");
	json_object_set_new(json_array_get(json_object_get(graph, "nodes"), 0), "tf32", json_true());
	assert_int_equal(ww_task_signature(graph, &t, &err), WW_OK);
	assert_string_equal(s.text, t.text);
	ww_signature_release(&s);
	ww_signature_release(&t);
}

static void names_what_makes_no_task(void **state)
{
	struct ww_signature s = signature_of("r rand.default [4,8] [[4,8]]; a add.Tensor [4,8] [@x,@r]");
	assert_string_equal(s.random, "rand");
	assert_false(s.independent);
	ww_signature_release(&s);
	s = signature_of("d dropout.default [4,8] [@x,0.5,true]");
	assert_string_equal(s.random, "dropout");
	ww_signature_release(&s);
	s = signature_of("d dropout.default [4,8] [@x,0.5,false]; a mul.Tensor [4,8] [@d,0]");
	assert_string_equal(s.random, "");
	assert_true(s.independent);
	ww_signature_release(&s);
	s = signature_of("a tanh.default [4,8] [@w]");
	assert_true(s.independent);
	assert_string_equal(s.operators, "tanh");
	ww_signature_release(&s);
}

/* Written down: whoever changes a rule changes the version, or what was signed before is not recognised. */
static void the_version_holds(void **state)
{
	struct ww_signature s = signature_of(
		"h linear.default [4,8] [@x,@w,@b]; g gelu.default [4,8] [@h]; a softmax.int [4,8] [@g,1]");
	assert_string_equal(s.operators, "add*2 erf exp matmul mul*3 pow/-1 sum/last");
	assert_string_equal(s.text, "s1:466b93eca34193cbd5f533c7cabbfcd0");
	ww_signature_release(&s);
}

static void refuses_what_is_no_graph(void **state)
{
	static const char *const bad[] = { "{}", "{\"inputs\": [], \"params\": [], \"nodes\": 1, \"outputs\": []}",
		"{\"inputs\": [{}], \"params\": [], \"nodes\": [], \"outputs\": []}",
		"{\"inputs\": [], \"params\": [], \"nodes\": [{}], \"outputs\": []}" };
	struct ww_err err = WW_ERR_INIT;
	struct ww_signature s;
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		json_auto_t *graph = json_loads(bad[i], 0, NULL);
		assert_int_equal(ww_task_signature(graph, &s, &err), WW_ERR_PROTOCOL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(spellings_have_one_signature),
		cmocka_unit_test(other_computations_have_others), cmocka_unit_test(a_device_has_no_part),
		cmocka_unit_test(names_what_makes_no_task), cmocka_unit_test(the_version_holds),
		cmocka_unit_test(refuses_what_is_no_graph) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
