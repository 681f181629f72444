/* Whose work a plan is: rows of a task's graph and a plan's library nodes, each with what is left for its launches.
 * budget: 1 CPU-second */
#include "unit.h"

#include "judge/internal.h"
#include "judge/own_work.h"

#include "image_maker.h"

/* Graph nodes on x (8, 64) and w (64, 32), as the reference worker writes them. */
#define NODE(op, args, sizes, flops) \
	"{\"name\": \"" op "\", \"op\": \"aten." op ".default\", \"args\": [" args "], \"kwargs\": {}, \"out\": [{\"sizes\": [" sizes \
	"]}], \"flops\": " #flops "}"
#define REF(name)  "{\"ref\": \"" name "\"}"
#define OUT(name, sizes) "{\"ref\": \"" name "\", \"sizes\": [" sizes "]}"
#define MM         NODE("mm", REF("x") "," REF("w"), "8, 32", 32768)
#define LINEAR     NODE("linear", REF("x") "," REF("w") "," REF("bias"), "8, 32", 32768)
#define AFTER(op, of) NODE(op, REF(of), "8, 32", 256)
#define RESULT(of) OUT(of, "8, 32")

/* The library nodes of a plan: `nodes` products of `rows` rows each. */
struct library {
	int nodes, rows, math, epilogue;
	double alpha;
	int sum;        /* a product with ones behind them, as a mean */
	int accumulate; /* from the second on into the first's result */
	int decoys;     /* so many products in a narrower type besides */
};
static const struct library plain = { 1, 8, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library biased = { 1, 8, WW_MATH_FP32, WW_EPI_BIAS, 1, 0, 0, 0 };
static const struct library biased_relu = { 1, 8, WW_MATH_FP32, WW_EPI_BIAS_RELU, 1, 0, 0, 0 };
static const struct library scaled = { 1, 8, WW_MATH_FP32, WW_EPI_NONE, 0.5, 0, 0, 0 };
static const struct library halves = { 2, 4, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library three_rows = { 1, 3, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library seven_rows = { 1, 7, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library in_parts = { 3, 8, WW_MATH_TF32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library narrow = { 1, 8, WW_MATH_TF32, WW_EPI_NONE, 1, 0, 0, 0 };
static const struct library along_k = { 2, 8, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 1, 0 };
static const struct library with_decoys = { 1, 8, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 2 };
static const struct library half_with_decoys = { 1, 3, WW_MATH_FP32, WW_EPI_NONE, 1, 0, 0, 2 };
static const struct library with_sum = { 1, 8, WW_MATH_FP32, WW_EPI_NONE, 1, 1, 0, 0 };

static const struct {
	const char *what, *nodes, *outputs;
	const struct library *library;
	int half, algebraic;
	enum ww_own_work want;
} rows[] = {
	{ "a product, moved by a kernel", MM, RESULT("mm"), &plain, 0, 0, WW_WORK_LIBRARY },
	{ "in two parts", MM, RESULT("mm"), &halves, 0, 0, WW_WORK_LIBRARY },
	{ "of operands that a kernel has moved", NODE("cat", "[" REF("x") "," REF("x") "]", "8, 64", 512) "," MM,
		RESULT("mm"), &plain, 0, 0, WW_WORK_LIBRARY },
	{ "all but a row", MM, RESULT("mm"), &seven_rows, 0, 0, WW_WORK_LIBRARY },
	{ "less than half of the rows", MM, RESULT("mm"), &three_rows, 0, 0, WW_WORK_BOTH },
	{ "a bias by a kernel", LINEAR, RESULT("linear"), &plain, 0, 0, WW_WORK_BOTH },
	{ "a bias by the library", LINEAR, RESULT("linear"), &biased, 0, 0, WW_WORK_LIBRARY },
	{ "a bias by a kernel, the product in parts along k", LINEAR, RESULT("linear"), &along_k, 0, 0, WW_WORK_BOTH },
	{ "a bias by the library, a second addition by a kernel", LINEAR "," AFTER("add", "linear"), RESULT("add"), &biased,
		0, 0, WW_WORK_BOTH },
	{ "what is flattened into a copy", MM "," AFTER("flatten", "mm"), RESULT("flatten"), &plain, 0, 0,
		WW_WORK_LIBRARY },
	{ "saved by algebra", MM, RESULT("mm"), &three_rows, 0, 1, WW_WORK_LIBRARY },
	{ "relu, its product saved by algebra", MM "," AFTER("relu", "mm"), RESULT("relu"), &three_rows, 0, 1,
		WW_WORK_BOTH },
	{ "a convolution in a narrower type", NODE("conv2d", REF("x") "," REF("w"), "8, 32", 32768), RESULT("conv2d"),
		&in_parts, 0, 0, WW_WORK_LIBRARY },
	{ "relu by the library", LINEAR "," AFTER("relu", "linear"), RESULT("relu"), &biased_relu, 0, 0, WW_WORK_LIBRARY },
	{ "relu by a kernel", LINEAR "," AFTER("relu", "linear"), RESULT("relu"), &biased, 0, 0, WW_WORK_BOTH },
	{ "relu in place by a kernel", LINEAR "," AFTER("relu_", "linear"), RESULT("relu_"), &biased, 0, 0, WW_WORK_BOTH },
	{ "gelu", LINEAR "," AFTER("gelu", "linear"), RESULT("gelu"), &biased_relu, 0, 0, WW_WORK_BOTH },
	{ "a factor by alpha", MM "," AFTER("mul", "mm"), RESULT("mul"), &scaled, 0, 0, WW_WORK_LIBRARY },
	{ "a factor by a kernel", MM "," AFTER("mul", "mm"), RESULT("mul"), &plain, 0, 0, WW_WORK_BOTH },
	{ "a mean by a product with ones", MM "," NODE("mean", REF("mm"), "8", 256), OUT("mean", "8"), &with_sum, 0, 0,
		WW_WORK_LIBRARY },
	{ "a mean by a kernel, the product in two parts", MM "," NODE("mean", REF("mm"), "8", 256), OUT("mean", "8"),
		&halves, 0, 0, WW_WORK_BOTH },
	{ "a norm before it",
		NODE("layer_norm", REF("x"), "8, 64", 512) "," NODE("mm", REF("layer_norm") "," REF("w"), "8, 32", 32768),
		RESULT("mm"), &plain, 0, 0, WW_WORK_BOTH },
	{ "a small output besides", MM "," NODE("amax", REF("x"), "8", 512), RESULT("mm") "," OUT("amax", "8"), &plain, 0,
		0, WW_WORK_LIBRARY },
	{ "a large output besides", MM "," NODE("sin", REF("x"), "8, 64", 512), RESULT("mm") "," OUT("sin", "8, 64"),
		&plain, 0, 0, WW_WORK_BOTH },
	{ "an operator of somebody's",
		"{\"name\": \"own\", \"op\": \"torchvision.nms\", \"args\": [" REF("x") "], \"kwargs\": {}, \"flops\": 1}",
		RESULT("own"), &plain, 0, 0, WW_WORK_BOTH },
	{ "in parts of a narrower type", MM, RESULT("mm"), &in_parts, 0, 0, WW_WORK_BOTH },
	{ "a product, and others in a narrower type for show", MM, RESULT("mm"), &with_decoys, 0, 0, WW_WORK_LIBRARY },
	{ "less than half of a product, the whole in parts of a narrower type", MM, RESULT("mm"), &half_with_decoys, 0, 0,
		WW_WORK_BOTH },
	{ "more than asked for, of half operands", MM, RESULT("mm"), &in_parts, 1, 0, WW_WORK_LIBRARY },
	{ "one product of a narrower type", MM, RESULT("mm"), &narrow, 0, 0, WW_WORK_LIBRARY },
};

static struct ww_image *plan_with(const struct library *l, int launches)
{
	struct ww_facts f = maker_facts(WW_TARGET_CUDA);
	struct ww_plan *p = maker_plan(&f);
	int h = ww_scratch(p, 8 * 64 * 4), ones = ww_scratch(p, 64 * 4);
	for (int i = 0; l && i < l->nodes + l->decoys; i++) {
		int decoy = i >= l->nodes;
		struct ww_gemm g = { .m = decoy ? 8 : l->rows,
			.n = 32,
			.k = 64,
			.batch = 1,
			.alpha = l->alpha,
			.math = decoy ? WW_MATH_TF32 : l->math,
			.epilogue = l->epilogue,
			.a = { .buf = 0, .dtype = WW_F32, .ld = 64 },
			.b = { .buf = 1, .dtype = WW_F32, .ld = 32 },
			.beta = i && l->accumulate,
			.c = { .buf = h, .dtype = WW_F32, .ld = 32 },
			.d = { .buf = h, .dtype = WW_F32, .ld = 32 },
			.bias_buf = ones };
		ww_gemm(p, &g);
	}
	if (l && l->sum)
		ww_gemm(p,
			&(struct ww_gemm){ .m = 8,
				.n = 1,
				.k = 32,
				.batch = 1,
				.alpha = 1,
				.a = { .buf = h, .dtype = WW_F32, .ld = 32 },
				.b = { .buf = ones, .dtype = WW_F32, .ld = 1 },
				.d = { .buf = 2, .dtype = WW_F32, .ld = 1 } });
	if (launches) {
		ww_launch(p, "k", 1, 1, 1, 32, 1, 1);
		ww_arg_buf(p, 2, 0);
	}
	return maker_image(p);
}

static void work_of_a_plan(void **state)
{
	char text[4096];
	int wrong = 0;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_image *m = plan_with(rows[i].library, 1);
		snprintf(text, sizeof(text), "{\"nodes\": [%s], \"outputs\": [%s]}", rows[i].nodes, rows[i].outputs);
		json_t *graph = json_loads(text, 0, NULL);
		assert_non_null(m);
		assert_non_null(graph);
		enum ww_own_work found = ww_judge_own_work(graph, rows[i].half, rows[i].algebraic, m);
		if (found != rows[i].want)
			print_error("%s: %d, expected %d\n", rows[i].what, found, rows[i].want);
		wrong += found != rows[i].want;
		json_decref(graph);
		free(m);
	}
	assert_int_equal(wrong, 0);
}

static void one_kind_of_node(void **state)
{
	struct ww_image *launches = plan_with(NULL, 1), *library = plan_with(&plain, 0);
	(void)state;
	assert_int_equal(ww_judge_own_work(NULL, 0, 0, launches), WW_WORK_OWN);
	assert_int_equal(ww_judge_own_work(NULL, 0, 0, library), WW_WORK_LIBRARY);
	free(launches);
	free(library);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(work_of_a_plan), cmocka_unit_test(one_kind_of_node) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
