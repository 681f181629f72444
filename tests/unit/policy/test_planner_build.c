/* The planner's builds over recorded graphs: every fixture gives a solution for both targets, the same one each time,
 * and the texts compile.  Numbers are the judge's to check: tests/cli/optimize.t runs whole examples.
 *
 * all: texts of every kind of graph compile; else of each target the largest
 * budget: 3 CPU-seconds, all 9 */
#include "unit.h"

#include "base/fs.h"
#include "base/json.h"
#include "policy/planner/planner.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <ww/recipe/conv_tile.h>
#include <ww/recipe/gemm_tile.h>
#include <ww/recipe/ring.h>
#include <ww/recipe/rnn_stack_tile.h>

static const char *source_dir(void)
{
	const char *s = getenv("WW_SOURCE_DIR");

	return s ? s : ".";
}

static json_t *device(void)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:I}", "threads", 2, "vector_bytes", 32, "cc", 90, "sm_count", 132,
		"shared_per_block_bytes", (json_int_t)232448);
}

static json_t *fixture(const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	char path[512];
	json_t *g = NULL;

	snprintf(path, sizeof(path), "%s/tests/data/graphs/%s", source_dir(), name);
	if (ww_json_read_file(path, 1 << 24, &g, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return g;
}

static void build(const json_t *g, const char *target, struct pl_result *r)
{
	json_t *d = device();

	ww_pl_build(g, d, target, NULL, 0, NULL, r);
	json_decref(d);
}

static void test_every_fixture_is_covered(void **state)
{
	char dir[512];
	struct dirent *e;
	int n = 0;
	DIR *d;

	(void)state;
	snprintf(dir, sizeof(dir), "%s/tests/data/graphs", source_dir());
	d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		static const char *const targets[] = { "cpu", "cuda" };
		json_t *g;

		if (!strstr(e->d_name, ".json"))
			continue;
		g = fixture(e->d_name);
		for (int t = 0; t < 2; t++) {
			struct pl_result a, b;

			build(g, targets[t], &a);
			if (!a.ok)
				fail_msg("%s for %s: %s", e->d_name, targets[t], a.why);
			build(g, targets[t], &b);
			assert_string_equal(a.device_text, b.device_text);
			assert_string_equal(a.plan_text, b.plan_text);
			assert_true(a.n_kern >= 1);
			ww_pl_result_release(&a);
			ww_pl_result_release(&b);
		}
		json_decref(g);
		n++;
	}
	closedir(d);
	assert_true(n >= 50);
}

/* Chains around reductions and matrix products are one kernel, as the essay of group.c promises. */
static void test_fusion(void **state)
{
	static const struct {
		const char *name;
		int kernels;
	} want[] = { { "example_softmax.json", 1 }, { "example_layernorm_gelu.json", 1 }, { "example_rmsnorm.json", 1 },
		{ "example_residual_layernorm.json", 1 }, { "example_linear_gelu.json", 1 },
		{ "example_conv_bias_relu.json", 1 }, { "example_cumsum.json", 1 }, { "example_attention.json", 1 },
		{ "example_mlp.json", 2 }, { "cuda_linear_gelu.json", 1 }, { "cuda_swiglu.json", 3 }, { "groupnorm.json", 1 },
		{ "acts.json", 1 }, { "rope.json", 1 }, { "example_cross_entropy.json", 2 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name);
		struct pl_result r;

		for (int t = 0; t < 2; t++) {
			build(g, t ? "cuda" : "cpu", &r);
			assert_true(r.ok);
			if (r.n_kern != want[i].kernels)
				fail_msg(
					"%s for %s: %d kernels, expected %d", want[i].name, t ? "cuda" : "cpu", r.n_kern, want[i].kernels);
			ww_pl_result_release(&r);
		}
		json_decref(g);
	}
}

static void holds(const char *text, const char *const *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strstr(text, want[i]))
			fail_msg("no \"%s\"", want[i]);
}

/* Statistics of the same rows are one kernel, moments of sums in parts two, windows across memory lie in tiles, blocks
 * stay in long rows, and truth values are read as vectors of bytes. */
static void test_rows_apart(void **state)
{
	static const char *const want[] = { "/* rows: bitwise_not, masked_fill, softmax, mean, amax */",
		"/* pointwise: bitwise_not, masked_fill, softmax, avg_pool2d, unflatten, add */", "enum { HIGH = k",
		"row = blockIdx.x / chunks", "unsigned char x0[CH][V];", " < S4))\n\t\t\tww::load(in_bias" };
	json_t *g = fixture("rows_apart.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	holds(r.device_text, want, WW_ARRAY_LEN(want));
	assert_non_null(strstr(r.plan_text, "int high = 8, down = 4, tall = 1;"));
	assert_int_equal(r.n_kern, 13);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* One pass over long rows goes step by step; a row in each thread holds what two passes read; an expensive value that
 * two passes need is computed once; a norm along another axis than memory has a thread for each row, and a loop that
 * asks for several columns at once. */
static void test_rows_in_steps(void **state)
{
	static const char *const want[] = { "#pragma unroll 4\n\tfor (ix_t c = (ix_t)(rank * T + lane) * V;", "pl_first<",
		"ww::load(in_y + ", "a0 = (a0 + x0[j][0]);", "(x0[j][0] - v", "kept0[j][l] = v", "(kept0[j][l] * v" },
							 *const planned[] = { "t < 512 && cols >= 2 * 4 * t * v",
								 "ww_define(p, \"k1_CH\", ww_cdiv(cols, ty));" };
	json_t *g = fixture("rows_in_steps.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	holds(r.device_text, want, WW_ARRAY_LEN(want));
	holds(r.plan_text, planned, WW_ARRAY_LEN(planned));
	assert_null(strstr(strstr(r.device_text, "ww::load(in_y + ") + 12, "in_y + "));
	assert_non_null(
		strstr(strstr(r.device_text, "/* rows: linalg_vector_norm */"), "#pragma unroll 4\n\tfor (ix_t c = ty;"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Windows that overlap are done where their results are, without a branch for each element; maxima of large ones go
 * along one dimension after the other; a result that lies in another order is stored along memory, and a block stays in
 * a row of single elements. */
static void test_overlapping_windows(void **state)
{
	static const char *const want[] = { "/* pointwise: hardtanh, avg_pool2d, abs_1, add, log */", "pl_within(",
		"/* pointwise: batch_norm, silu, avg_pool2d_1 */", "/* pointwise: max_pool3d */", "\tconst ix_t cols = S",
		"/* pointwise: im2col, movedim */\nextern \"C\" __global__ void __launch_bounds__(" };
	json_t *g = fixture("overlapping_windows.json");
	struct pl_result r;
	const char *s;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	holds(r.device_text, want, WW_ARRAY_LEN(want));
	s = strstr(r.device_text, want[WW_ARRAY_LEN(want) - 1]);
	assert_non_null(strstr(s, "row = blockIdx.x / chunks"));
	assert_null(strstr(s, "HIGH = "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A window by threads of a result each is unrolled whole, and is written without comparisons for results whose window
 * lies inside of the tensor. */
static void test_windows_inside(void **state)
{
	static const char *const want[] = {
		"\tif (((-1) < (i21 - 4)) && ((i21 + 17) < S2)) {\n\tconstexpr bool inside = true;\n", "#pragma unroll 12\n",
		"if (inside || (((-1) < "
	};
	json_t *g = fixture("windows.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	holds(r.device_text, want, WW_ARRAY_LEN(want));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Halves of an axis and operands of a concatenation along it are read by vectors; resampling counts places without
 * 64-bit numbers; a softmax of a pool is rows of the softmax, with a pool of many elements stored; a short odd row has
 * threads of several elements each. */
static void test_vectors_in_step(void **state)
{
	static const char *const device_text[] = { "if ((c < S14))\n\t\t\tww::load(in_x + (i27*S2 + (S2 / 2) + c)",
		"if (((S14 - 1) < c))\n\t\t\tww::load(in_skip", "(long long)(int)(", "/* rows: max_pool2d */",
		"/* rows: softmax */", "/* rows: softmax_1 */" };
	static const char *const plan_text[] = { "| 1 * (S2 / 2) |", "t * v * 4 > (v * 4 < 16 ? 16 : 64)" };
	json_t *g = fixture("vectors_in_step.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	holds(r.device_text, device_text, WW_ARRAY_LEN(device_text));
	holds(r.plan_text, plan_text, WW_ARRAY_LEN(plan_text));
	assert_null(strstr(r.device_text, "(long long)v"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A pixel that windows of 4 x 4 at steps of 2, or 5 x 5 at steps of 3, are folded to is the sum of 4 elements. */
static void test_folded(void **state)
{
	static const char *const want[] = { "rows = (S0*S1*384), cols = 4,", "rows = (S0*S9*357), cols = 4," };
	json_t *g = fixture("folded.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	holds(r.device_text, want, WW_ARRAY_LEN(want));
	assert_null(strstr(r.device_text, " % 3) == 0"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* So many kernels for cuda, with all that is wanted in their text; returns what the plan says. */
static struct pl_result cuda_holds(const char *name, const char *const *want, size_t n, int kernels)
{
	json_t *g = fixture(name);
	struct pl_result r;

	build(g, "cuda", &r);
	assert_true(r.ok);
	holds(r.device_text, want, n);
	assert_int_equal(r.n_kern, kernels);
	json_decref(g);
	return r;
}

/* An anchor ends in a reader that also needs statistics of other things: a kernel ahead of it stores these. */
static void test_ends_ahead(void **state)
{
	static const char *const want[] = { "/* rows: group_norm */", "/* cumsum: group_norm, add, cumsum, maximum */",
		"/* rows: layer_norm */", "/* gemm: linear, layer_norm, add_1 */" };
	struct pl_result r = cuda_holds("ends_ahead.json", want, WW_ARRAY_LEN(want), WW_ARRAY_LEN(want));

	(void)state;
	ww_pl_result_release(&r);
}

/* What a row kernel reads is written before it, also where kernels ahead of it were joined. */
static void test_rows_in_order(void **state)
{
	json_t *g = fixture("rows_in_order.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	const char *factor = strstr(r.plan_text, "rows: amax_1\n"), *reader = strstr(r.plan_text, "tanh, sum_3\n");
	assert_non_null(strstr(r.plan_text, "k0  rows: amax, mean, amin, mul, sum_1\n"));
	assert_non_null(factor);
	assert_non_null(reader);
	assert_true(factor < reader);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Threads lie along what most is read along: the image, not the channels of its statistics. */
static void test_rows_along_most(void **state)
{
	static const char *const want[] = { "rows: instance_norm, min_1 */", "rows = (S1*S2)",
		"row = (live ? at : rows - 1) / S2" };
	struct pl_result r = cuda_holds("normed_minimum.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	ww_pl_result_release(&r);
}

/* cuda: where no index of a sort is read, values are sorted, of an operand that is not stored. */
static void test_sorted_values(void **state)
{
	static const char *const want[] = { "ww::SORT_F32, k0_EACH, k0_TPR, k0_THREADS, k0_VEC, true>", "SORT_F32, k1_EACH",
		"ww::SORT_BF16, k2_EACH, k2_TPR, k2_THREADS, k2_VEC, true>", "SORT_F32, k3_EACH" };
	struct pl_result r = cuda_holds("sorted_values.json", want, WW_ARRAY_LEN(want), WW_ARRAY_LEN(want));

	(void)state;
	assert_null(strstr(r.plan_text, "ww_scratch("));
	ww_pl_result_release(&r);
}

/* An operand that lies across in slabs of the first level's size is read along what is stored; what is looked up,
 * padded or read across is loaded for several vectors of a thread before one is stored. */
static void test_stored_behind(void **state)
{
	static const char *const want[] = { "/* pointwise: repeat */", "/* pointwise: embedding, relu */",
		"\tfloat o0[k0_U][V];\n", "\tfloat o0[k1_U][V];\n", "\tfloat o0[k2_U][V];\n", "\tfloat o0[k3_U][V];\n",
		"\t\tif (live)\n\t\t\tww::store_stream(out2 + " };
	struct pl_result r = cuda_holds("stored_behind.json", want, WW_ARRAY_LEN(want), 4);

	(void)state;
	assert_null(strstr(r.device_text, "HIGH = "));
	assert_null(strstr(r.device_text, "own < rows")); /* what is repeated lies across: no rows side by side */
	ww_pl_result_release(&r);
}

/* A dimension that a reshape splits is as long as its parts, as PyTorch would have it, which the plan checks.  Then
 * what is read through it is one axis, of which vectors are. */
static void test_unflattened(void **state)
{
	static const char *const want[] = { "cols = (S0*15) / V", "ww::load(in_x + c, x0);" };
	struct pl_result r = cuda_holds("unflattened.json", want, WW_ARRAY_LEN(want), 1);

	(void)state;
	assert_non_null(strstr(r.plan_text, "WW_EQUAL(S1, 15);"));
	ww_pl_result_release(&r);
}

/* Short rows with a gate of their own, and reflected ones, that no wide vector divides: several in a block. */
static void test_rows_beside(void **state)
{
	static const char *const want[] = { "live = at < cols && own < rows;", "\tfloat o0[k0_U][V];\n",
		"\tfloat o0[k1_U][V];\n", "rows = (S0*S1*S2), own =", "row = own < rows ? own : rows - 1, first" };
	struct pl_result r = cuda_holds("rows_beside.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	ww_pl_result_release(&r);
}

/* Rows whose result lies across: a kernel for what is known of each, and one in tiles. */
static void test_stored_across(void **state)
{
	static const char *const want[] = { "/* rows: pow_1, mean, add, rsqrt */", "/* pointwise: mul, transpose",
		"HIGH = k1_HIGH" };
	struct pl_result r = cuda_holds("stored_across.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	ww_pl_result_release(&r);
}

/* Statistics of groups of columns: one load for a vector of a scan's operand. */
static void test_groups_scanned(void **state)
{
	static const char *const want[] = { "\t\tfloat x1[1];\n", "ww::load(t0 + (i8*2 + (c / 24)), x1);" };
	struct pl_result r = cuda_holds("groups_scanned.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	ww_pl_result_release(&r);
}

/* Bicubic to twice the lines or more: lines are stored in fp32, of which each result has four. */
static void test_lines_resampled(void **state)
{
	static const char *const want[] = { "/* pointwise: relu, upsample_bicubic2d */",
		"/* pointwise: upsample_bicubic2d */", "float *__restrict__ t0)" };
	struct pl_result r = cuda_holds("lines_resampled.json", want, WW_ARRAY_LEN(want), 4);

	(void)state;
	ww_pl_result_release(&r);
}

/* A sum of one operand along its outer axis has eight of its elements under way, whatever is read once a row. */
static void test_gated_squares(void **state)
{
	static const char *const want[] = { "#pragma unroll 4\n\tfor (ix_t c = ty;", "in_x[", "p_gate[" };
	struct pl_result r = cuda_holds("gated_squares.json", want, WW_ARRAY_LEN(want), 1);

	(void)state;
	ww_pl_result_release(&r);
}

/* Windows of short lines that overlap: a thread is a window, unless it would be one of few. */
static void test_short_windows(void **state)
{
	static const char *const want[] = { "__launch_bounds__(k0_TX * k0_TY)", "k1_T * k1_R)", "k2_TX * k2_TY" };
	struct pl_result r = cuda_holds("short_windows.json", want, WW_ARRAY_LEN(want), 3);

	(void)state;
	ww_pl_result_release(&r);
}

/* Lanes two or four elements apart take theirs out of vectors, and so are 64-bit places read; a thread has at most 32
 * bytes of an operand. */
static void test_lanes_apart(void **state)
{
	static const char *const want[] = { "pl_load_apart<4>(in_x + ", "((1 + i27) % 4), x0);", "pl_load_apart<2>(in_w + ",
		"= pl_signbitf(x0[l]);", " = row % 2;", "pl_load(in_i + ", "(ix_t)x0[l])]" };
	struct pl_result r = cuda_holds("lanes_apart.json", want, WW_ARRAY_LEN(want), 6);

	(void)state;
	assert_non_null(strstr(strstr(r.plan_text, "/* k0: "), "int v = 4;"));
	assert_non_null(strstr(strstr(r.plan_text, "/* k4: "), "int v = 4;"));
	ww_pl_result_release(&r);
}

/* cuda: a row that is scanned is held for other scans and for reductions of it, ahead of the scan or behind it. */
static void test_scans_in_rows(void **state)
{
	static const char *const want[] = { "ww::scan_held<ww::OP_SUM, T>(scan0, box);",
		"ww::scan_held<ww::OP_MAX, T>(scan1, box);", "ww::scan_held<ww::OP_SUM, T>(scan2, box);",
		"a1 = (a1 + scan0[j][l]);", "ww::scan_held<ww::OP_PROD, T>(scan2, box);" };
	struct pl_result r = cuda_holds("scans_in_rows.json", want, WW_ARRAY_LEN(want), 3);

	(void)state;
	assert_null(strstr(r.plan_text, "ww_scratch("));
	ww_pl_result_release(&r);
}

/* cuda: pieces that are scanned are loaded by vectors, ahead of all branches; statistics beside what is normalised are
 * stored once a row by its kernel; of sorted rows one element is selected; a running sum that is summed is none. */
static void test_pieces_scanned(void **state)
{
	static const char *const want[] = { "/* cumsum: neg, cat, cumsum */", "\t\t\tww::load(in_x + (",
		"false, true>(rows", "/* rows: var, rms_norm, tanh, cat_1 */",
		"if (live && lane == 0 && rank == 0)\n\t\tout1[(",
		"ww::select_rows<ww::SORT_F32, k2_EACH, k2_TPR>(rows, len, first, descending", "/* rows: tanh_1, mean */",
		"(S9 - i" };
	struct pl_result r = cuda_holds("pieces_scanned.json", want, WW_ARRAY_LEN(want), 9);

	(void)state;
	ww_pl_result_release(&r);
}

/* cuda: many rows of 16 bits are scanned in vectors of eight, of four where eight do not divide what they begin at. */
static void test_scans_of_halves(void **state)
{
	static const char *const loads[] = { "\t\tww::load(in_x + (i", " + 4 + c), x0);", "\t\tww::load(in_y + (i",
		" + 8 + c), x0);" };
	static const char *const want[] = { ".vec = 4, .threads = 0", ".vec = 8, .itemsize = 2, .threads = 0" };
	struct pl_result r = cuda_holds("scans_of_halves.json", loads, WW_ARRAY_LEN(loads), 2);

	(void)state;
	holds(r.plan_text, want, WW_ARRAY_LEN(want));
	ww_pl_result_release(&r);
}

/* cuda: so is one that is scanned from its end. */
static void test_scans_back_in_rows(void **state)
{
	static const char *const want[] = { "float scan2[CH][V];", "ww::scan_clear<ww::OP_SUM>(scan2);",
		"ww::scan_held<ww::OP_SUM, T, true>(scan2, box);", "ww::scan_held<ww::OP_MAX, T, true>(scan0, box);" };
	struct pl_result r = cuda_holds("scans_back_in_rows.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	assert_null(strstr(r.plan_text, "ww_scratch("));
	ww_pl_result_release(&r);
}

/* cuda: an outer product is no reduction; an image that is read turned is summed along memory; what lies between lanes
 * that are apart belongs to threads of the same block. */
static void test_lines_shared(void **state)
{
	static const char *const want[] = { "/* pointwise: einsum */", "ww::load(in_z + (i", " = row % 4;",
		"pl_load_apart<4>(in_w + (" };
	struct pl_result r = cuda_holds("lines_shared.json", want, WW_ARRAY_LEN(want), 3);

	(void)state;
	ww_pl_result_release(&r);
}

/* cuda: a pool that is done on the spot ahead of a softmax is not done again in its second pass; an extremum and its
 * place are found by one kernel. */
static void test_windows_kept(void **state)
{
	static const char *const want[] = { "float kept0[CH][V];", "pl_across_arg<PL_MAX, T>(a1, w1, box);" };
	struct pl_result r = cuda_holds("windows_kept.json", want, WW_ARRAY_LEN(want), 4);

	(void)state;
	ww_pl_result_release(&r);
}

/* cuda: what is costly is stored ahead of a resampling that reads it several times; a softmax's statistics are not. */
static void test_resampled_costly(void **state)
{
	static const char *const want[] = { "/* rows: softmax, pow_1, sub */", "/* pointwise: upsample_bicubic2d */",
		"/* pointwise: gelu */", "/* pointwise: upsample_bilinear2d */" };
	struct pl_result r = cuda_holds("resampled_costly.json", want, WW_ARRAY_LEN(want), 5);

	(void)state;
	ww_pl_result_release(&r);
}

/* cuda: half of a dimension is a multiple of whole vectors, of which a thread has one; of single elements of 16 bits,
 * rows of a table, it has eight, of fewer of them four. */
static void test_vectors_of_halves(void **state)
{
	struct pl_result r = cuda_holds("halves_turned.json", NULL, 0, 2);

	(void)state;
	assert_non_null(strstr(r.plan_text, "ww_define(p, \"k0_U\", 1);"));
	assert_non_null(strstr(r.plan_text, "ww_define(p, \"k1_U\", 8);"));
	ww_pl_result_release(&r);
	r = cuda_holds("padded_halves.json", NULL, 0, 1);
	assert_non_null(strstr(r.plan_text, "ww_define(p, \"k0_U\", 4);"));
	ww_pl_result_release(&r);
}

/* cuda: what is turned around, scanned and turned around again is scanned from its end. */
static void test_scans_from_the_end(void **state)
{
	static const char *const want[] = { "ww::scan_rows<ww::OP_SUM, k0_TPR, k0_VEC, k0_CHUNKS, true>(",
		"ww::scan_mid<ww::OP_MAX, k1_VEC, k1_BLOCK / k1_PARTS, k1_PARTS, true>(" };
	struct pl_result r = cuda_holds("scans_from_the_end.json", want, WW_ARRAY_LEN(want), 2);

	(void)state;
	ww_pl_result_release(&r);
}

/* plan.c begins with the kernels and the graph nodes that each computes; the run's page reads them there. */
static void test_titles_name_the_nodes(void **state)
{
	static const char *const want[][2] = { { "example_mlp.json",
											   " *   k0  gemm: linear, gelu\n *   k1  gemm: linear_1, add\n */" },
		{ "example_softmax.json", " *   k0  rows: softmax\n */" },
		{ "example_attention.json", " *   k0  attention: scaled_dot_product_attention\n */" },
		{ "example_residual_layernorm.json", " *   k0  rows: add, layer_norm\n */" } };

	(void)state;
	for (size_t i = 0; i < 2 * WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i / 2][0]);
		struct pl_result r;

		build(g, i % 2 ? "cuda" : "cpu", &r);
		assert_true(r.ok);
		if (!strstr(r.plan_text, want[i / 2][1]))
			fail_msg("%s: %.300s", want[i / 2][0], r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

static int count(const char *text, const char *what)
{
	int n = 0;

	while ((text = strstr(text, what))) {
		text++;
		n++;
	}
	return n;
}

/* A strided convolution's plane is walked through as one axis, with vectors, like a plane of the task's own input. */
static void test_computed_sizes_have_names(void **state)
{
	json_t *g = fixture("conv2d.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "WW_SIZE(S4, (((S2 - 1) / 2) + 1));\n\tWW_SIZE(S5, (((S3 - 1) / 2) + 1));"));
	assert_non_null(strstr(r.device_text, "ww::load(t0 + "));
	assert_non_null(strstr(r.device_text, "(out0 + "));
	assert_null(strstr(r.device_text, "% S5"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: what no vector load reaches costs its lanes alone, a filter as large as its image is a product, and what is read
 * once at a distance is asked for ahead. */
static void test_cpu_vectors(void **state)
{
	json_t *g = fixture("cpu_vectors.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "ww_vf_log1p("));
	assert_null(strstr(r.device_text, "expf("));
	assert_non_null(strstr(r.plan_text, "gemm: conv2d, relu\n"));
	assert_non_null(strstr(r.plan_text, "gemm: conv2d_1\n"));
	assert_non_null(strstr(r.device_text, "ww_vf_gather_ahead(in_odd + "));
	ww_pl_result_release(&r);
	json_decref(g);
	g = fixture("bn_train.json"); /* planes that are not whole vectors start with what is before a line */
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "ww_vf_before(out0 + "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: elements behind a reflection are collected by a vector of places, of 16 bits too, and few columns do not turn
 * vectors to rows along which nothing is read. */
static void test_cpu_places(void **state)
{
	json_t *g = fixture("reflected_norm.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_int_equal(r.n_kern, 1);
	assert_non_null(strstr(r.device_text, " ww_vf_load_at_bf16(in_x + "));
	assert_non_null(strstr(r.device_text, " == n - 1 && ")); /* in the middle of a row they are a run */
	assert_non_null(strstr(r.device_text, "ww_vf_sigmoid("));
	assert_null(strstr(r.device_text, "sigmoidf("));
	assert_null(strstr(r.device_text, "[l] = "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: windows that were unfolded, and axes that were joined behind a transposition, are read by vectors along the axis
 * that memory has, over the rows of which a loop runs inside. */
static void test_split_lanes(void **state)
{
	json_t *g = fixture("split_lanes.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "= ww_vf_gather(in_x + "));
	assert_non_null(strstr(r.device_text, "= ww_vf_load(in_y + "));
	assert_non_null(strstr(r.device_text, "\t\tfor (ix_t i19 = 0; i19 < S6; i19++) {\n"));
	assert_null(strstr(r.device_text, "[l] = "));
	assert_non_null(strstr(r.device_text, "ww_vf_store(out1 + ")); /* rows of 20 share lines */
	assert_null(strstr(r.device_text, "ww_vf_stream("));
	ww_pl_result_release(&r);
	json_decref(g);
	g = fixture("across.json"); /* lines that are read across memory keep the caches */
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "ww_vf_stream(out0 + "));
	assert_null(strstr(r.device_text, "ww_vf_store(out0 + "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* The states of a recurrence that is written out, stacked, are stored by one pass: each is computed once, and no
 * condition asks which it is. */
static void test_states_share_work(void **state)
{
	json_t *g = fixture("written_scan.json"), *d = device();
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_int_equal(r.n_kern, 2);
	assert_non_null(strstr(r.device_text, "ww_vf_stream(out0 + (i9*S3*20 + S3*19 + "));
	assert_non_null(strstr(r.device_text, "ww_vf_scatter(out1 + "));
	assert_null(strstr(r.device_text, "if ((i"));
	ww_pl_result_release(&r);
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(r.n_kern, 2);
	assert_non_null(strstr(r.device_text, "(out0 + (i9*S3*20 + S3*19 + "));
	assert_null(strstr(r.device_text, "if ((i"));
	ww_pl_result_release(&r);
	json_decref(d);
	json_decref(g);
}

/* The steps of a loop over time that was traced are one kernel each, whose arguments begin where the step does. */
static void test_steps_are_one_text(void **state)
{
	json_t *g = fixture("loop_over_time.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "pointwise: select_4, cat_4 (k3 again)"));
	assert_non_null(strstr(r.plan_text, "ww_arg_buf(p, in_x->buf, (S1*S2*12));"));
	assert_non_null(strstr(r.plan_text, "if ((S1*S2*12) % 64)"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: long lists are written one element after the other; of short ones each result asks all. */
static void test_scattered(void **state)
{
	static const struct {
		const char *name, *kernels;
	} want[] = { { "lookups.json", "ww_cpu_scatter_mid(b, arg, WW_SCATTER_SUM, " },
		{ "long_sums.json", "ww_cpu_scatter_rows(b, arg, WW_SCATTER_SUM, " },
		{ "operators.json", "ww_vm_eq_i64(in_i + " } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name);
		struct pl_result r;

		build(g, "cpu", &r);
		assert_true(r.ok);
		assert_non_null(strstr(r.device_text, want[i].kernels));
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A value without elements has no launch, and a sum over none has one; the plan says that it is for none. */
static void test_no_elements(void **state)
{
	static const char graph[] =
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [8, 0], \"strides\": [1, 1]}], \"params\": [], "
		"\"nodes\": [{\"name\": \"s\", \"op\": \"aten.sum.dim_IntList\", \"args\": [{\"ref\": \"x\"}, [1]], \"kwargs\": {}, "
		"\"out\": [{\"dtype\": \"float32\", \"sizes\": [8], \"strides\": [1]}]}, {\"name\": \"r\", \"op\": "
		"\"aten.relu.default\", \"args\": [{\"ref\": \"x\"}], \"kwargs\": {}, \"out\": [{\"dtype\": \"float32\", "
		"\"sizes\": [8, 0], \"strides\": [7, 1]}]}], \"outputs\": [{\"ref\": \"s\", \"dtype\": \"float32\", \"sizes\": [8], "
		"\"strides\": [1]}, {\"ref\": \"r\", \"dtype\": \"float32\", \"sizes\": [8, 0], \"strides\": [7, 1]}]}";
	json_t *g = json_loads(graph, 0, NULL);
	struct pl_result r;

	(void)state;
	assert_non_null(g);
	for (int cuda = 0; cuda < 2; cuda++) {
		build(g, cuda ? "cuda" : "cpu", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(r.n_kern, 1);
		assert_non_null(strstr(r.plan_text, "WW_EQUAL(in_x->size[1], 0);"));
		assert_null(strstr(r.plan_text, "out1->stride"));
		assert_null(strstr(r.plan_text, "work = 0;")); /* which the launch divides by */
		ww_pl_result_release(&r);
	}
	json_decref(g);
}

/* What goes around an end (circular padding, roll) has no remainders. */
static void test_wrapped_places(void **state)
{
	json_t *g = fixture("shapes.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, " == n - 1 && ((S1 - 1) < ("));
	assert_null(strstr(r.device_text, ") % S1)"));
	assert_non_null(strstr(r.device_text, "ww_vf_turn(ww_vf_load(in_x + ")); /* flip: from the last to the first one */
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: places that are quotients of the lane are a vector, whose lines are asked for. */
static void test_places_by_quotients(void **state)
{
	json_t *g = fixture("repeated.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "ww_vi_div("));
	assert_non_null(strstr(r.device_text, "ww_vi_mod("));
	assert_non_null(strstr(r.device_text, "ww_prefetch_ahead(in_x + "));
	assert_null(strstr(r.device_text, "[l] = "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: places that are stored integers are read as a vector, and compared as one. */
static void test_lookups(void **state)
{
	json_t *g = fixture("lookups.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "ww_vi_load_i64(p_order + "));
	assert_non_null(strstr(r.device_text, "ww_vf_load_among(in_x + "));
	assert_non_null(strstr(r.device_text, ", row += at == 0) {\n")); /* no division for each short row */
	assert_null(strstr(r.device_text, "[l] = "));
	ww_pl_result_release(&r);
	json_decref(g);
	g = fixture("pooled_upsample.json"); /* places that are computed, too */
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "= ww_vi_trunc("));
	assert_non_null(strstr(r.device_text, "ww_vf_load_among("));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: the elements of small windows at a distance share their loads, in loops that are unrolled. */
static void test_cpu_windows(void **state)
{
	json_t *g = fixture("pools.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "= ww_vf_window(in_x + "));
	assert_non_null(strstr(r.device_text, "WW_UNROLL(8)\n"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A result in another order of memory (a transposition of it is returned) is computed in that order, and strides are
 * its sizes: what goes through the operand as it goes through the result is one axis. */
static void test_results_in_other_orders(void **state)
{
	json_t *g = fixture("permout.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "WW_EQUAL(out0->stride[0], (S1*S2));"));
	assert_non_null(strstr(r.device_text, "const ix_t cols = (S0*S1*S2), "));
	assert_null(strstr(r.device_text, "= row / "));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* cpu: what follows the reductions of short rows is vectors, a row in each lane. */
static void test_cpu_rows_beside(void **state)
{
	json_t *g = fixture("short_rows.json");
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.device_text, "= ww_vf_across(WW_OP_MAX, part0 + "));
	assert_non_null(strstr(r.device_text, "ww_vf_log1p("));
	assert_null(strstr(r.device_text, "log1pf("));
	assert_null(strstr(r.device_text, "expf("));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Convolutions and products on cuda: who computes them in the first version, and under the knobs. */
static void test_library_nodes(void **state)
{
	static const struct {
		const char *name;
		int library, ours; /* knob; what is plain for all */
		const char *has, *has_not;
	} want[] = { { "example_conv_bias_relu.json", LIBRARY_AUTO, 0, "ww_recipe_conv_tc", "ww_recipe_conv_library" },
		{ "example_conv_bias_relu.json", LIBRARY_YES, 0, "WW_MATH_TF32", "ww_recipe_conv_tc" },
		{ "example_conv_bias_relu.json", LIBRARY_FP32, 0, "WW_MATH_FP32", "WW_MATH_TF32" },
		{ "example_conv_bias_relu.json", LIBRARY_HALVES, 0, "ww_recipe_conv_halves", "ww_recipe_conv_library" },
		{ "convs.json", LIBRARY_AUTO, 0, "ww_recipe_conv_library", "ww_recipe_conv_tc" },
		{ "convs.json", LIBRARY_AUTO, 1, "ww_recipe_conv_direct", "ww_recipe_conv_library" },
		{ "example_linear_gelu.json", LIBRARY_AUTO, 0, "ww_recipe_gemm3", "ww_recipe_gemm_library" },
		{ "example_linear_gelu.json", LIBRARY_YES, 0, "ww_recipe_gemm_library", "ww_recipe_gemm3" },
		{ "mlp3.json", LIBRARY_AUTO, 0, "ww_recipe_gemm_mma", "ww_recipe_gemm_library" },
		{ "mlp3.json", LIBRARY_AUTO, 1, "ww_recipe_gemm_any", "ww_recipe_gemm_mma" },
		{ "mlp3.json", LIBRARY_AUTO, 0, "rows: linear_1, sigmoid", "gemm: linear_1" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name), *d = device();
		struct knobs knobs[8] = { 0 };
		struct pl_result r;

		for (size_t k = 0; k < WW_ARRAY_LEN(knobs); k++)
			knobs[k] = (struct knobs){ .library = want[i].library, .plain = want[i].ours };
		ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
		assert_true(r.ok);
		if (!strstr(r.plan_text, want[i].has) || strstr(r.plan_text, want[i].has_not))
			fail_msg("%s, library %d: %s", want[i].name, want[i].library, r.plan_text);
		/* each library node's result is read by a kernel, or is where it belongs */
		assert_int_equal(
			count(r.plan_text, "ww_recipe_after_library(p"), count(r.plan_text, "library_y = ww_scratch(p"));
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* The tensor-core template's other ends and smaller tiles, of transposed convolutions too. */
static void test_staged_ends(void **state)
{
	static const struct {
		const char *name;
		int end, filters;
		const char *says; /* NULL: from registers */
	} want[] = { { "example_conv_bias_relu.json", WW_CONV_REGISTERS, 0, NULL },
		{ "example_conv_bias_relu.json", WW_CONV_STAGED, 0, ", .staged = 1,\n" },
		{ "example_conv_bias_relu.json", WW_CONV_PAIRS, 0, ", .staged = 1, .pairs = 2,\n" },
		{ "conv_end.json", WW_CONV_STAGED, 0, ", .staged = 1,\n" },
		{ "example_conv_transpose_gelu.json", WW_CONV_STAGED, 64, ", .staged = 1, .filters = 64,\n" },
		{ "example_conv_transpose_gelu.json", WW_CONV_REGISTERS, 0, NULL },
		{ "conv_end.json", WW_CONV_PAIRS, 64, ", .staged = 1, .pairs = 2, .filters = 64,\n" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name), *d = device();
		const struct knobs knobs = { .library = LIBRARY_NO, .conv.end = want[i].end, .conv.filters = want[i].filters };
		struct pl_result r;

		ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
		assert_true(r.ok);
		assert_non_null(strstr(r.plan_text, "ww_recipe_conv_tc("));
		if (want[i].says ? !strstr(r.plan_text, want[i].says) : strstr(r.plan_text, ".staged") != NULL)
			fail_msg("%s, %d: %s", want[i].name, want[i].end, r.plan_text);
		assert_int_equal(strstr(r.device_text, "__launch_bounds__(640, 1)") != NULL, want[i].end == WW_CONV_PAIRS);
		assert_int_equal(strstr(r.plan_text, ".filters") != NULL, want[i].filters && want[i].says);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* The tensor-core template's estimate, its end and its tile for convolutions that were measured, us of the kernel with
 * the end that was fastest there. */
static void test_conv_ends(void **state)
{
	static const struct {
		struct ww_conv_forward c;
		int end;
		double us;
	} want[] = { { { 17, 64, 64, 128, 128, 9, 1, 1, 128, 0, 0, 0, 0, 0 }, WW_CONV_REGISTERS, 105.4 },
		{ { 128, 64, 128, 126, 126, 9, 1, 1, 128, 0, 0, 0, 0, 0 }, WW_CONV_PAIRS, 720.7 },
		{ { 64, 64, 64, 256, 256, 9, 1, 1, 128, 0, 0, 0, 0, 0 }, WW_CONV_REGISTERS, 1370.9 },
		{ { 8, 64, 128, 510, 1022, 9, 1, 1, 128, 0, 0, 0, 0, 0 }, WW_CONV_PAIRS, 1502.5 },
		{ { 17, 64, 64, 128, 128, 9, 1, 1, 0, 0, 0, 0, 0, 0 }, WW_CONV_PAIRS, 58.2 },
		{ { 64, 64, 64, 256, 256, 9, 1, 1, 0, 0, 0, 0, 0, 0 }, WW_CONV_PAIRS, 701.1 },
		{ { 128, 64, 128, 126, 126, 9, 1, 1, 0, 0, 0, 0, 0, 0 }, WW_CONV_PAIRS, 710.0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		struct ww_conv_way way = ww_conv_best_way(&want[i].c, 0, 0, 0, 132);

		if (way.end != want[i].end || fabs(way.us / want[i].us - 1) > 0.05)
			fail_msg("%zu: end %d, %.1f us", i, way.end, way.us);
		assert_int_equal(way.filters, want[i].c.filters == 0 && want[i].c.k <= 64 ? 64 : 128);
		assert_true(way.tile.tw * way.tile.th * way.tile.tn == way.bn && way.tile.tn == 1);
	}
}

/* A transposed convolution whose blocks do both phases of a row stores four pixels at a time, for which `z`, read from
 * its third element on, is not aligned: what the sum reads of it is no vector. */
static void test_pairs_of_phases_store_fours(void **state)
{
	const struct knobs knobs = { .library = LIBRARY_NO };
	json_t *
		d = device(),
	   *g = json_loads(
		   "{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [2, 64, 32, 32], \"strides\": [65536, 1024, 32, 1]},"
		   "  {\"name\": \"z\", \"dtype\": \"float32\", \"sizes\": [524290], \"strides\": [1]}],"
		   " \"params\": [{\"name\": \"w\", \"dtype\": \"float32\", \"sizes\": [64, 64, 4, 4], \"strides\": [1024, 16, 4, 1]}], \"nodes\": ["
		   "  {\"name\": \"up\", \"op\": \"aten.conv_transpose2d.input\","
		   "   \"args\": [{\"ref\": \"x\"}, {\"ref\": \"w\"}, null, [2, 2], [1, 1]], \"kwargs\": {},"
		   "   \"out\": [{\"dtype\": \"float32\", \"sizes\": [2, 64, 64, 64], \"strides\": [262144, 4096, 64, 1]}]},"
		   "  {\"name\": \"part\", \"op\": \"aten.slice.Tensor\", \"args\": [{\"ref\": \"z\"}, 0, 2, 524290], \"kwargs\": {},"
		   "   \"out\": [{\"dtype\": \"float32\", \"sizes\": [524288], \"strides\": [1]}]},"
		   "  {\"name\": \"like\", \"op\": \"aten.view.default\", \"args\": [{\"ref\": \"part\"}, [2, 64, 64, 64]], \"kwargs\": {},"
		   "   \"out\": [{\"dtype\": \"float32\", \"sizes\": [2, 64, 64, 64], \"strides\": [262144, 4096, 64, 1]}]},"
		   "  {\"name\": \"sum\", \"op\": \"aten.add.Tensor\", \"args\": [{\"ref\": \"up\"}, {\"ref\": \"like\"}], \"kwargs\": {},"
		   "   \"out\": [{\"dtype\": \"float32\", \"sizes\": [2, 64, 64, 64], \"strides\": [262144, 4096, 64, 1]}]}],"
		   " \"outputs\": [{\"name\": \"output0\", \"ref\": \"sum\", \"dtype\": \"float32\", \"sizes\": [2, 64, 64, 64],"
		   "   \"strides\": [262144, 4096, 64, 1]}]}",
		   0, NULL);
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "ww_recipe_conv_tc("));
	assert_non_null(strstr(r.device_text, "in_z"));
	assert_null(strstr(r.device_text, "ww::load(in_z"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Where launches overlap, every kernel of every solution waits before all else, the cookbook's own too. */
static void test_overlapping_kernels_wait(void **state)
{
	const struct knobs overlap = { .overlap = 1 };
	char dir[512], path[600];
	struct ww_err err = WW_ERR_INIT;
	struct dirent *e;
	int n = 0;

	(void)state;
	snprintf(dir, sizeof(dir), "%s/tests/data/graphs", source_dir());
	DIR *d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		json_t *g = fixture(e->d_name), *dev = device();
		struct pl_result r, cpu;
		ww_pl_build(g, dev, "cuda", &overlap, 1, NULL, &r);
		ww_pl_build(g, dev, "cpu", &overlap, 1, NULL, &cpu);
		if (r.ok) {
			n += count(r.device_text, "__global__");
			if (count(r.device_text, "__global__") != count(r.device_text, "\n{\n\tww::wait_for_last();\n") ||
				!strstr(r.plan_text, "\tww_pdl_all(p);\n\tww_define(p, \"PDL_\", 1);\n"))
				fail_msg("%s: %s%s", e->d_name, r.plan_text, r.device_text);
		}
		assert_false(cpu.ok && strstr(cpu.plan_text, "ww_pdl_all"));
		ww_pl_result_release(&r);
		ww_pl_result_release(&cpu);
		json_decref(g);
		json_decref(dev);
	}
	closedir(d);
	assert_true(n > 100);
	for (int i = 0; i < 2; i++) {
		struct ww_str s = WW_STR_INIT(1 << 20);
		snprintf(path, sizeof(path), "%s/skills/cuda/include/ww/%s.cuh", source_dir(), i ? "conv" : "split");
		assert_int_equal(ww_fs_read(path, 1 << 20, &s, &err), WW_OK);
		assert_int_equal(count(s.p, "__global__"), count(s.p, "\n{\n\twait_for_last();\n"));
		ww_str_release(&s);
	}
}

/* Small products of any kind are a launch each, without copies of heads before or behind them; a group norm whose rows
 * have a name and a number for their length is one kernel; odd rows are read in vectors where all of them have some. */
static void test_small_products(void **state)
{
	json_t *g = fixture("small_products.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_gemm_mma(p"), 7);
	assert_int_equal(count(r.plan_text, "ww_recipe_attention_mma(p"), 1);
	assert_null(strstr(r.plan_text, "pointwise: linear"));
	assert_null(strstr(r.plan_text, "pointwise: transpose"));
	assert_non_null(strstr(r.plan_text, "rows: gt, mul_1, where, group_norm, add\n"));
	assert_non_null(strstr(r.device_text, "ww::load(in_w + c, "));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* What is computed of a batch of 0 has no kernel and no PyTorch either, whatever the operator: a norm of groups, layers
 * of recurrences in both directions, attention.  A sum over it has one. */
static void test_batch_of_none(void **state)
{
	json_t *g = fixture("batch_of_none.json");

	(void)state;
	for (int t = 0; t < 2; t++) {
		struct pl_result r;

		build(g, t ? "cuda" : "cpu", &r);
		assert_true(r.ok);
		assert_int_equal(r.n_kern, 2);
		assert_null(strstr(r.plan_text, "ww_pytorch"));
		assert_non_null(strstr(r.plan_text, "rows: sum"));
		assert_non_null(strstr(r.plan_text, "pointwise: silu"));
		assert_non_null(strstr(r.plan_text, "ww_fail(p, \"the graph computes with empty tensors\")"));
		ww_pl_result_release(&r);
	}
	json_decref(g);
}

/* One node over x (4, 8), y (8) and z (3, 1, 4, 8), all float32, with such a result. */
static void build_one(const char *op, const char *args, const char *sizes, const char *strides, struct pl_result *r)
{
	char text[2048];
	json_t *g;

	snprintf(text, sizeof(text),
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [4, 8], \"strides\": [8, 1]},"
		" {\"name\": \"y\", \"dtype\": \"float32\", \"sizes\": [8], \"strides\": [1]},"
		" {\"name\": \"z\", \"dtype\": \"float32\", \"sizes\": [3, 1, 4, 8], \"strides\": [32, 32, 8, 1]}], \"params\": [],"
		" \"nodes\": [{\"name\": \"n\", \"op\": \"aten.%s\", \"args\": %s, \"kwargs\": {},"
		"  \"out\": [{\"dtype\": \"float32\", \"sizes\": %s, \"strides\": %s}]}],"
		" \"outputs\": [{\"name\": \"output0\", \"ref\": \"n\", \"dtype\": \"float32\", \"sizes\": %s, \"strides\": %s}]}",
		op, args, sizes, strides, sizes, strides);
	g = json_loads(text, 0, NULL);
	assert_non_null(g);
	build(g, "cuda", r);
	json_decref(g);
}

/* Running sums of all but the last element, behind a zero, are one scan of all elements. */
static void test_scan_excluded(void **state)
{
	static const char *const want[] = { "k0_CHUNKS, false, false, true>(rows, cols,", "ww::store_stream(out0 + (i" };
	struct pl_result r = cuda_holds("scan_excluded.json", want, WW_ARRAY_LEN(want), 1);

	(void)state;
	assert_non_null(strstr(r.plan_text, ".vec = 4,"));
	ww_pl_result_release(&r);
}

/* Windows of few elements that mostly lie inside have four to a thread, where there are enough of them. */
static void test_several_windows(void **state)
{
	static const struct {
		int images, several;
	} want[] = { { 8, 1 }, { 4, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *x = json_pack("{s:s, s:s, s:[i,i,i], s:[i,i,i]}", "name", "x", "dtype", "float32", "sizes",
			want[i].images, 20, 32768, "strides", 20 * 32768, 32768, 1);
		json_t *y = json_pack("{s:s, s:s, s:s, s:[i,i,i], s:[i,i,i]}", "name", "output0", "ref", "n", "dtype",
			"float32", "sizes", want[i].images, 20, 32769, "strides", 20 * 32769, 32769, 1);
		json_t *g = json_pack("{s:[o], s:[], s:[{s:s, s:s, s:[{s:s}, [i], [i], [i]], s:{}, s:[O]}], s:[o]}", "inputs",
			x, "params", "nodes", "name", "n", "op", "aten.avg_pool1d.default", "args", "ref", "x", 8, 1, 4, "kwargs",
			"out", y, "outputs", y);
		struct pl_result r;

		assert_non_null(g);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(!!strstr(r.device_text, "result(true, first + u * TX);"), want[i].several);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* What nobody reads again is the first that the second level replaces, by rows of 4,096: not where it stays there, nor
 * so much that the hint costs more than it saves, nor beside as many results. */
static void test_read_once(void **state)
{
	static const struct {
		int rows, results, once;
	} want[] = { { 1024, 1, 0 }, { 4096, 1, 1 }, { 32768, 1, 0 }, { 4096, 4096, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *x = json_pack("{s:s, s:s, s:[i,i], s:[i,i]}", "name", "x", "dtype", "float32", "sizes", want[i].rows,
			4096, "strides", 4096, 1);
		json_t *y = json_pack("{s:s, s:s, s:s, s:[i,i], s:[i,i]}", "name", "output0", "ref", "n", "dtype", "float32",
			"sizes", want[i].rows, want[i].results, "strides", want[i].results, 1);
		json_t *g = json_pack("{s:[o], s:[], s:[{s:s, s:s, s:[{s:s}, o, b], s:{}, s:[O]}], s:[o]}", "inputs", x,
			"params", "nodes", "name", "n", "op", want[i].results > 1 ? "aten.softmax.int" : "aten.sum.dim_IntList",
			"args", "ref", "x", want[i].results > 1 ? json_integer(1) : json_pack("[i]", 1), want[i].results == 1,
			"kwargs", "out", y, "outputs", y);
		struct pl_result r;

		assert_non_null(g);
		if (want[i].results > 1)
			json_array_remove(json_object_get(json_array_get(json_object_get(g, "nodes"), 0), "args"), 2);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(!!strstr(r.device_text, "ww::load_once(in_x"), want[i].once);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A sum of rows of 16,384 products goes along them four steps at a time, of four factors two. */
static void test_many_loads(void **state)
{
	(void)state;
	for (int factors = 3; factors <= 4; factors++) {
		json_t *inputs = json_array(), *nodes = json_array(), *g;
		struct pl_result r;

		for (int i = 0; i < factors; i++) {
			json_array_append_new(inputs,
				json_pack("{s:o, s:s, s:[i, i], s:[i, i]}", "name", json_sprintf("x%d", i), "dtype", "float32", "sizes",
					2048, 16384, "strides", 16384, 1));
			if (i)
				json_array_append_new(nodes,
					json_pack("{s:o, s:s, s:[{s:o}, {s:o}], s:{}, s:[{s:s, s:[i, i], s:[i, i]}]}", "name",
						json_sprintf("m%d", i), "op", "aten.mul.Tensor", "args", "ref",
						i > 1 ? json_sprintf("m%d", i - 1) : json_string("x0"), "ref", json_sprintf("x%d", i), "kwargs",
						"out", "dtype", "float32", "sizes", 2048, 16384, "strides", 16384, 1));
		}
		json_array_append_new(nodes,
			json_pack("{s:s, s:s, s:[{s:o}, [i]], s:{}, s:[{s:s, s:[i], s:[i]}]}", "name", "n", "op",
				"aten.sum.dim_IntList", "args", "ref", json_sprintf("m%d", factors - 1), 1, "kwargs", "out", "dtype",
				"float32", "sizes", 2048, "strides", 1));
		g = json_pack("{s:o, s:[], s:o, s:[{s:s, s:s, s:s, s:[i], s:[i]}]}", "inputs", inputs, "params", "nodes", nodes,
			"outputs", "name", "output0", "ref", "n", "dtype", "float32", "sizes", 2048, "strides", 1);
		assert_non_null(g);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_non_null(strstr(r.device_text, factors < 4 ? "#pragma unroll 4\n" : "#pragma unroll 2\n"));
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A softmax of halves that overlapping windows average is stored by the kernel of its rows, in place of its maxima and
 * sums. */
static void test_pooled_softmax(void **state)
{
	json_t *g = json_loads(
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float16\", \"sizes\": [64, 16, 65, 64], \"strides\": [66560, "
		"4160, 64, 1]}], \"params\": [], \"nodes\": [{\"name\": \"softmax\", \"op\": \"aten.softmax.int\", \"args\": "
		"[{\"ref\": \"x\"}, -1], \"kwargs\": {}, \"out\": [{\"dtype\": \"float16\", \"sizes\": [64, 16, 65, 64], "
		"\"strides\": [66560, 4160, 64, 1]}]}, {\"name\": \"pool\", \"op\": \"aten.avg_pool2d.default\", \"args\": "
		"[{\"ref\": \"softmax\"}, [2, 2], [1, 1]], \"kwargs\": {}, \"out\": [{\"dtype\": \"float16\", \"sizes\": [64, 16, "
		"64, 63], \"strides\": [64512, 4032, 63, 1]}]}], \"outputs\": [{\"name\": \"output0\", \"ref\": \"pool\", "
		"\"dtype\": \"float16\", \"sizes\": [64, 16, 64, 63], \"strides\": [64512, 4032, 63, 1]}]}",
		0, NULL);
	struct pl_result r;

	(void)state;
	assert_non_null(g);
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_int_equal(r.n_kern, 2);
	assert_int_equal(count(r.plan_text, "ww_scratch(p"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Flipped rows of 331 floats lie side by side in a block, as others of no whole vectors do. */
static void test_flipped_beside(void **state)
{
	json_t *x = json_pack(
		"{s:s, s:s, s:[i,i], s:[i,i]}", "name", "x", "dtype", "float32", "sizes", 15360, 331, "strides", 331, 1);
	json_t *y = json_pack("{s:s, s:s, s:s, s:[i,i], s:[i,i]}", "name", "output0", "ref", "n", "dtype", "float32",
		"sizes", 15360, 331, "strides", 331, 1);
	json_t *g = json_pack("{s:[o], s:[], s:[{s:s, s:s, s:[{s:s}, [i]], s:{}, s:[O]}], s:[o]}", "inputs", x, "params",
		"nodes", "name", "n", "op", "aten.flip.default", "args", "ref", "x", 1, "kwargs", "out", y, "outputs", y);
	struct pl_result r;

	(void)state;
	assert_non_null(g);
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.device_text, "live = at < cols && own < rows"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Columns of 64 to 127 are shared by two threads where they are one to four waves of blocks. */
static void test_short_columns(void **state)
{
	(void)state;
	for (int length = 56; length <= 112; length += 56) {
		json_t *x = json_pack("{s:s, s:s, s:[i,i,i], s:[i,i,i]}", "name", "x", "dtype", "float32", "sizes", 4096,
			length, 160, "strides", length * 160, 160, 1);
		json_t *y = json_pack("{s:s, s:s, s:s, s:[i,i], s:[i,i]}", "name", "output0", "ref", "n", "dtype", "float32",
			"sizes", 4096, 160, "strides", 160, 1);
		json_t *g = json_pack("{s:[o], s:[], s:[{s:s, s:s, s:[{s:s}, [i]], s:{}, s:[O]}], s:[o]}", "inputs", x,
			"params", "nodes", "name", "n", "op", "aten.amax.default", "args", "ref", "x", 1, "kwargs", "out", y,
			"outputs", y);
		struct pl_result r;

		assert_non_null(g);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(!!strstr(r.plan_text, "ty = 2;"), length >= 64);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Products that PyTorch has and models rarely: a linear layer of one vector, attention whose batches are broadcast. */
static void test_rare_products(void **state)
{
	struct pl_result r;

	(void)state;
	build_one("linear.default", "[{\"ref\": \"x\"}, {\"ref\": \"y\"}]", "[4]", "[1]", &r);
	assert_string_equal(r.why, "");
	ww_pl_result_release(&r);
	build_one("scaled_dot_product_attention.default", "[{\"ref\": \"z\"}, {\"ref\": \"x\"}, {\"ref\": \"x\"}]",
		"[3, 1, 4, 8]", "[32, 32, 8, 1]", &r);
	assert_string_equal(r.why, "");
	ww_pl_result_release(&r);
}

/* State that PyTorch writes to in place, and reads again later: the second operator cannot be PyTorch's, too. */
static void test_state_written_by_pytorch(void **state)
{
#define VECTOR "\"dtype\": \"float32\", \"sizes\": [8], \"strides\": [1]"
	static const char text[] =
		"{\"inputs\": [{\"name\": \"x\", " VECTOR "}], \"params\": [{\"name\": \"s\", " VECTOR
		", \"used\": true}], \"nodes\": ["
		"{\"name\": \"a\", \"op\": \"aten.mvlgamma_.default\", \"args\": [{\"ref\": \"s\"}], \"out\": [{" VECTOR "}]},"
		"{\"name\": \"b\", \"op\": \"aten.add.Tensor\", \"args\": [{\"ref\": \"x\"}, {\"ref\": \"s\"}], \"out\": [{" VECTOR
		"}]},"
		"{\"name\": \"c\", \"op\": \"aten.mvlgamma.default\", \"args\": [{\"ref\": \"s\"}], \"out\": [{" VECTOR "}]},"
		"{\"name\": \"d\", \"op\": \"aten.add.Tensor\", \"args\": [{\"ref\": \"b\"}, {\"ref\": \"c\"}], \"out\": [{" VECTOR
		"}]}],"
		"\"outputs\": [{\"ref\": \"d\", " VECTOR "}]}";
#undef VECTOR
	json_t *g = json_loads(text, 0, NULL);
	struct pl_result r;

	(void)state;
	assert_non_null(g);
	build(g, "cpu", &r);
	assert_false(r.ok);
	assert_non_null(strstr(r.why, "no rule for this operator"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A graph that PyTorch does not make is refused before a rule sees it; an operator that is called as no PyTorch that we
 * know calls it is PyTorch's. */
static void test_impossible_graphs(void **state)
{
	struct pl_result r;

	(void)state;
	build_one("softmax.int", "[{\"ref\": \"x\"}, 2]", "[4, 8]", "[8, 1]", &r);
	assert_false(r.ok);
	assert_non_null(strstr(r.why, "not one that PyTorch makes: node n (aten.softmax.int): its argument dim is 2"));
	ww_pl_result_release(&r);
	build_one("softmax.int", "[{\"ref\": \"x\"}, 1, null, 3]", "[4, 8]", "[8, 1]", &r);
	assert_false(r.ok);
	assert_non_null(strstr(r.why, "no rule for this operator"));
	ww_pl_result_release(&r);
}

/* Products of a small matrix and many rows, of which tiles would be mostly empty, are done by threads of several
 * results each, whose other factor is read once; what follows is fused. */
static void test_small_matrices(void **state)
{
	json_t *g = fixture("small_matrices.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_launch(p"), 2);
	assert_non_null(strstr(r.plan_text, "pointwise: unflatten, einsum, flatten, relu\n"));
	assert_non_null(strstr(r.plan_text, "pointwise: linear, silu\n"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* What a kernel of its own stores for a concatenation alone is stored where that has it; a pointwise kernel does what
 * is left, or is not there. */
static void test_joined_pieces(void **state)
{
	json_t *g = fixture("joined_pieces.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "pointwise: slice_1, tanh, cat\n"));
	assert_null(strstr(r.plan_text, "cat_2\n"));
	assert_int_equal(count(r.plan_text, "ww_scratch(p"), 3);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

static json_t *tensor_of(int channels)
{
	return json_pack("[{s:s, s:[i, i, i, i], s:[i, i, i, i]}]", "dtype", "float32", "sizes", 2, channels, 6, 6,
		"strides", channels * 36, 36, 6, 1);
}

static json_t *node_of(const char *name, int i, const char *op, json_t *args, int channels)
{
	return json_pack("{s:o, s:s, s:o, s:{}, s:o, s:i, s:i}", "name", json_sprintf("%s_%d", name, i), "op", op, "args",
		args, "kwargs", "out", tensor_of(channels), "bytes", 0, "flops", 0);
}

/* A dense network: each layer reads the images of all layers before it.  Each question about a pair of kernels walks
 * over what they read, and what the walks leave must not add up: these took more than 1 GiB. */
static void test_dense_network(void **state)
{
	enum { LAYERS = 56, GROWTH = 4 };
	json_t *refs = json_pack("[{s:s}]", "ref", "x"), *nodes = json_array(), *params = json_array(), *g;
	struct pl_result r;

	(void)state;
	for (int i = 0; i < LAYERS; i++) {
		int c = GROWTH * (i + 1);

		json_array_append_new(params,
			json_pack("{s:o, s:s, s:[i, i, i, i], s:[i, i, i, i], s:s, s:b}", "name", json_sprintf("w%d", i), "dtype",
				"float32", "sizes", GROWTH, c, 3, 3, "strides", c * 9, 9, 3, 1, "role", "param", "used", 1));
		json_array_append_new(
			nodes, node_of("cat", i, "aten.cat.default", json_pack("[o, i]", json_deep_copy(refs), 1), c));
		json_array_append_new(
			nodes, node_of("relu", i, "aten.relu.default", json_pack("[{s:o}]", "ref", json_sprintf("cat_%d", i)), c));
		json_array_append_new(nodes,
			node_of("conv2d", i, "aten.conv2d.default",
				json_pack("[{s:o}, {s:o}, n, [i, i], [i, i]]", "ref", json_sprintf("relu_%d", i), "ref",
					json_sprintf("w%d", i), 1, 1, 1, 1),
				GROWTH));
		json_array_append_new(refs, json_pack("{s:o}", "ref", json_sprintf("conv2d_%d", i)));
	}
	json_array_append_new(
		nodes, node_of("cat", LAYERS, "aten.cat.default", json_pack("[o, i]", refs, 1), GROWTH * (LAYERS + 1)));
	g = json_pack("{s:i, s:s, s:{s:s}, s:[{s:s, s:s, s:[i, i, i, i], s:[i, i, i, i]}], s:[], s:o, s:o, "
				  "s:[{s:s, s:o, s:s, s:[i, i, i, i], s:[i, i, i, i]}], s:i, s:[]}",
		"version", 1, "source", "export", "task", "name", "dense.py", "inputs", "name", "x", "dtype", "float32",
		"sizes", 2, GROWTH, 6, 6, "strides", GROWTH * 36, 36, 6, 1, "scalars", "params", params, "nodes", nodes,
		"outputs", "name", "output0", "ref", json_sprintf("cat_%d", LAYERS), "dtype", "float32", "sizes", 2,
		GROWTH * (LAYERS + 1), 6, 6, "strides", GROWTH * (LAYERS + 1) * 36, 36, 6, 1, "output_tree", 0, "mutated");
	assert_non_null(g);
	build(g, "cuda", &r);
	if (!r.ok)
		fail_msg("%s", r.why);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Rows that are selected of a scan along them are selected of its operand, unless something else reads the scan, or it
 * runs across them. */
static void test_selected_scans(void **state)
{
	json_t *g = fixture("scans_taken.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_non_null(strstr(r.plan_text, "cumsum: cumsum, clamp, index_select\n"));
	assert_non_null(strstr(r.plan_text, "pointwise: index_select_2\n"));
	assert_non_null(strstr(r.plan_text, "pointwise: index_select_3\n"));
	assert_int_equal(count(r.plan_text, "ww_scratch(p"), 2);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Recurrent layers of few units, of which a block can hold all, are ours: chains of a block each, and of more rows than
 * multiprocessors have room for so, by rows. */
static void test_recurrent_rows(void **state)
{
	static const struct {
		const char *name;
		int rows, stacks, left; /* 64 rows of 331 units: blocks that share a chain take longer than cuDNN */
	} want[] = { { "rnn_of_rows.json", 0, 3, 0 }, { "rnn_forms.json", 1, 2, 0 }, { "gru_of_few_steps.json", 0, 0, 1 } };
	json_t *d = device();

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name);
		struct pl_result r;

		ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
		assert_true(r.ok);
		assert_int_equal(count(r.plan_text, "ww_pytorch(p"), want[i].left);
		assert_int_equal(count(r.plan_text, "ww_recipe_rnn(p"), want[i].rows);
		assert_int_equal(count(r.plan_text, "ww_recipe_rnn_stack(p"), want[i].stacks);
		ww_pl_result_release(&r);
		json_decref(g);
	}
	json_decref(d);
}

/* Which launch of a stack: a block a chain where registers hold its weights, of few rows each; else blocks share it. */
static void test_recurrent_alone(void **state)
{
	static const struct {
		int gates, chains, batch, hidden, alone;
	} rows[] = { { 3, 2, 1, 64, 1 }, { 4, 1, 64, 64, 1 }, { 1, 1, 8, 96, 1 }, { 3, 2, 1, 128, 0 }, { 4, 2, 4, 96, 0 },
		{ 3, 2, 1024, 64, 0 }, { 1, 2, 1, 256, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		const struct ww_rnn_stack_size s = { rows[i].gates, rows[i].gates == 4, rows[i].chains, rows[i].chains > 1, 96,
			rows[i].batch, rows[i].hidden, 132, 232448 };
		const struct ww_rnn_stack_tile t = ww_rnn_stack_choose(&s);

		assert_true(t.lanes);
		assert_int_equal(t.alone, rows[i].alone);
		if (t.alone) {
			assert_true(t.units >= rows[i].hidden && t.threads <= 512 && t.each <= t.lanes);
			assert_true(rows[i].chains * ((rows[i].batch + t.each - 1) / t.each) <= 132);
		}
	}
}

/* Layers on each other are one launch, a wavefront, and so are both directions of one; its memory is marked as not yet
 * written ahead of each launch.  On the cpu, and where more layers than fit are on each other, there are several. */
static void test_recurrent_stack(void **state)
{
	json_t *g = fixture("rnn_stack.json"), *d = device(), *small = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_rnn_stack(p"), 4);
	assert_int_equal(count(r.plan_text, "ww_recipe_rnn(p"), 0);
	assert_non_null(strstr(r.plan_text, ".gates = 4, .cells = 1, .chains = 3, .beside = 0"));
	assert_non_null(strstr(r.plan_text, ".gates = 4, .cells = 1, .chains = 2, .beside = 1"));
	assert_non_null(strstr(r.device_text, "a.w_ih[2] = w_ih_2"));
	assert_non_null(strstr(r.plan_text, "WW_EQUAL(S4, 20)")); /* of the first states; weights have this hidden size */
	ww_pl_result_release(&r);
	json_object_set_new(small, "sm_count", json_integer(1)); /* all blocks of a launch are resident */
	ww_pl_build(g, small, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_null(strstr(r.plan_text, ".chains = 3"));
	ww_pl_result_release(&r);
	ww_pl_build(g, d, "cpu", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_cpu_rnn(p"), 9);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
	json_decref(small);
}

/* Attention of any type, with a mask, a bias, a cap, shared heads, and written as products, is a launch: its scores are
 * not stored, and nothing of keys and values is copied for heads that share them. */
static void test_attention(void **state)
{
	json_t *g = fixture("attention_masks.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_launch(p") + count(r.plan_text, "ww_scratch(p"), 0);
	assert_int_equal(count(r.plan_text, "ww_recipe_attention_mma(p"), 3);
	assert_int_equal(count(r.plan_text, ".group = 2"), 1);
	assert_int_equal(count(r.plan_text, ".masked = 2"), 2);
	assert_int_equal(count(r.plan_text, ".masked = 1"), 1); /* 45 keys */
	assert_non_null(strstr(r.device_text, "tanhf"));
	assert_int_equal(count(r.device_text, "\t\tww::as_stored<__half, N> x0;\n"), 1); /* converted where it is used */
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Masks that are a band of row and key, however they are written, are the template's: it skips what is outside.  One
 * that is more than a band stays an expression of the score. */
static void test_attention_in_bands(void **state)
{
	json_t *g = fixture("attention_bands.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_attention"), 4);
	assert_int_equal(count(r.plan_text, ".banded = 1, .below = 21, .above = 21"), 1);
	assert_int_equal(count(r.plan_text, ".causal = 1, .masked = 0"), 1);
	assert_int_equal(count(r.plan_text, ".banded = 1, .below = 39, .above = 0"), 1);
	assert_int_equal(count(r.device_text, "void score("), 1);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Large heads of 16 bits are the warpgroups', read as they lie among a projection's columns; so are those of an odd
 * width, which attention_mma would read element by element. */
static void test_attention_of_halves(void **state)
{
	json_t *g = fixture("attention_halves.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_attention16(p"), 2);
	assert_int_equal(count(r.plan_text, "ww_launch(p") + count(r.plan_text, "ww_scratch(p"), 0);
	assert_int_equal(count(r.device_text, "attention16_shape<__half"), 1);
	assert_int_equal(count(r.device_text, "attention16_shape<__nv_bfloat16"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* A product's k is known to be as long as its batch once the strides have been written: its rows are still one behind
 * the other, and no copy is made. */
static void test_sizes_that_become_alike(void **state)
{
	json_t *g = fixture("sizes_alike.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_gemm"), 2);
	assert_int_equal(count(r.plan_text, "ww_launch(p"), 0);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Many rows that see few keys are attention16's, too: its blocks stay, and the next rows come while the last ones are
 * stored. */
static void test_attention_of_few_keys(void **state)
{
	json_t *g = fixture("attention_few_keys.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_attention16(p"), 1);
	assert_int_equal(count(r.plan_text, ".turns = 1"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Channels-last, what only reductions to channels, or of channels, read is not turned; nor are gates and their values,
 * halves of a result. */
static void test_reductions_follow_the_layout(void **state)
{
	static const char *const graphs[] = { "conv2d.json", "conv_min.json", "gated_last.json" };
	struct knobs knobs[8] = { 0 };

	(void)state;
	for (size_t k = 0; k < WW_ARRAY_LEN(knobs); k++)
		knobs[k].last = 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(graphs); i++) {
		json_t *g = fixture(graphs[i]), *d = device();
		struct pl_result r;

		ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
		assert_true(r.ok);
		assert_non_null(strstr(r.plan_text, "WW_LAYOUT_NHWC"));
		assert_int_equal(count(r.plan_text, "turned(p"), 1); /* the task's own input */
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* Channels-last, what pools without overlap read is the convolution's own result: its bias and activation are a part of
 * them.  Rows of windows that lie so have neighbouring threads for neighbouring channels, too. */
static void test_pools_follow_the_layout(void **state)
{
	json_t *g = fixture("pooled_last.json"), *d = device();
	struct knobs knobs[16] = { 0 };
	struct pl_result r;

	(void)state;
	for (size_t k = 0; k < WW_ARRAY_LEN(knobs); k++)
		knobs[k].last = 1;
	ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_conv_library(p"), 3);
	assert_int_equal(count(r.plan_text, "after_library(p"), 0);
	assert_non_null(strstr(r.device_text, "/* rows: max_pool2d_2, clamp, mean_1 */"));
	assert_non_null(strstr(strstr(r.device_text, "/* rows: max_pool2d_2, clamp, mean_1 */"), "pl_down<PL_SUM"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* n x c x side x side to k, and the statistics of a batch norm behind it. */
static json_t *convolution_and_norm(int n, int c, int k, int side, int kernel)
{
	int plane = side * side;
	json_t *sizes = json_pack("[i,i,i,i]", n, k, side, side),
		   *strides = json_pack("[i,i,i,i]", k * plane, plane, side, 1),
		   *out = json_pack("{s:s, s:o, s:o}", "dtype", "float32", "sizes", sizes, "strides", strides),
		   *last = json_deep_copy(out);

	json_object_update_new(last, json_pack("{s:s, s:s}", "name", "output0", "ref", "bn"));
	return json_pack("{s:i, s:[{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}], s:[{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}], "
					 "s:[{s:s, s:s, s:[{s:s}, {s:s}, n, [i,i], [i,i]], s:{}, s:[O]}, "
					 "{s:s, s:s, s:[{s:s}, n, n, n, n, b, f, f, b], s:{}, s:[o]}], s:[o]}",
		"version", 1, "inputs", "name", "x", "dtype", "float32", "sizes", n, c, side, side, "strides", c * plane, plane,
		side, 1, "params", "name", "w", "dtype", "float32", "sizes", k, c, kernel, kernel, "strides",
		c * kernel * kernel, kernel * kernel, kernel, 1, "nodes", "name", "conv", "op", "aten.conv2d.default", "args",
		"ref", "x", "ref", "w", 1, 1, kernel / 2, kernel / 2, "kwargs", "out", out, "name", "bn", "op",
		"aten.batch_norm.default", "args", "ref", "conv", 1, 0.1, 1e-5, 1, "kwargs", "out", out, "outputs", last);
}

/* Channels-last, statistics of images of 7 x 7 are of one part an image, by one kernel and a second one that joins the
 * parts; a row of the image would be seven elements. */
static void test_parts_of_small_images(void **state)
{
	json_t *g = convolution_and_norm(200, 64, 64, 7, 3), *d = device();
	struct knobs knobs = { .last = 1 };
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "  rows: bn\n"), 2);
	assert_int_equal(count(r.plan_text, "  pointwise: bn\n"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* n x c x side x side, gelu, and maxima of side x side windows `stride` apart. */
static json_t *gelu_and_pool(int n, int c, int side, int window, int stride)
{
	int out = (side - window) / stride + 1;
	json_t *x = json_pack("{s:s, s:[i,i,i,i], s:[i,i,i,i]}", "dtype", "float32", "sizes", n, c, side, side, "strides",
		c * side * side, side * side, side, 1);
	json_t *y = json_pack("{s:s, s:[i,i,i,i], s:[i,i,i,i]}", "dtype", "float32", "sizes", n, c, out, out, "strides",
		c * out * out, out * out, out, 1);
	json_t *input = json_deep_copy(x), *output = json_deep_copy(y);

	json_object_set_new(input, "name", json_string("x"));
	json_object_update_new(output, json_pack("{s:s, s:s}", "name", "output0", "ref", "pool"));
	return json_pack("{s:i, s:[o], s:[], s:[{s:s, s:s, s:[{s:s}], s:{}, s:[o]}, {s:s, s:s, s:[{s:s}, [i,i], [i,i]], "
					 "s:{}, s:[o]}], s:[o]}",
		"version", 1, "inputs", input, "params", "nodes", "name", "gelu", "op", "aten.gelu.default", "args", "ref", "x",
		"kwargs", "out", x, "name", "pool", "op", "aten.max_pool2d.default", "args", "ref", "gelu", window, window,
		stride, stride, "kwargs", "out", y, "outputs", output);
}

/* A gelu that sixteen windows would compute is stored; not one that each window has for itself, or nearly. */
static void test_costly_windows(void **state)
{
	static const struct {
		int window, stride, kernels;
	} rows[] = { { 4, 1, 2 }, { 4, 4, 1 }, { 3, 2, 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = gelu_and_pool(16, 64, 64, rows[i].window, rows[i].stride);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (r.n_kern != rows[i].kernels)
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Microseconds of a build in PyTorch's order over those of the one channels-last. */
static double gain_of_last(json_t *g)
{
	json_t *d = device();
	struct knobs knobs = { .last = 1 };
	struct pl_result first, last;

	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &first);
	ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &last);
	if (!first.ok || !last.ok)
		fail_msg("%s %s", first.why, last.why);
	double gain = first.order_us / last.order_us;
	ww_pl_result_release(&first);
	ww_pl_result_release(&last);
	json_decref(d);
	json_decref(g);
	return gain;
}

/* Which order looks cheaper: channels-last where cuDNN would turn operands and result, statistics behind it or not;
 * PyTorch's for products, for channels that cuDNN pads (both builds are the same), where launches are all, for so few
 * channels, or filters on few pixels, that PyTorch does without TF32, and where our template is as fast. */
static void test_order_of_dimensions(void **state)
{
	static const struct {
		int n, c, k, side, kernel, last;
	} rows[] = { { 25, 64, 64, 43, 3, 1 }, { 64, 128, 128, 56, 3, 0 }, { 256, 24, 64, 128, 3, 1 },
		{ 64, 128, 128, 56, 1, 0 }, { 64, 127, 128, 56, 3, 0 }, { 1, 24, 24, 8, 3, 0 }, { 256, 8, 64, 128, 3, 0 },
		{ 256, 16, 64, 128, 3, 0 }, { 6, 96, 48, 64, 3, 0 }, { 320, 48, 48, 28, 3, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		double gain = gain_of_last(convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, rows[i].kernel));

		if ((gain > 1 / 0.95) != rows[i].last)
			fail_msg("row %zu: %.2f", i, gain);
	}
}

/* 3 x 3 and a stride of 2: 33 to 48 filters of few channels are as PyTorch has them, which does without TF32. */
static void test_order_of_strided_filters(void **state)
{
	static const struct {
		int n, c, k, side, last;
	} rows[] = { { 256, 32, 40, 112, 0 }, { 160, 256, 48, 56, 1 }, { 256, 32, 64, 112, 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side / 2, 3);
		json_t *x = json_array_get(json_object_get(g, "inputs"), 0);
		json_t *args = json_object_get(json_array_get(json_object_get(g, "nodes"), 0), "args");
		int side = rows[i].side, plane = side * side;

		json_object_set_new(x, "sizes", json_pack("[i,i,i,i]", rows[i].n, rows[i].c, side, side));
		json_object_set_new(x, "strides", json_pack("[i,i,i,i]", rows[i].c * plane, plane, side, 1));
		json_array_set_new(args, 3, json_pack("[i,i]", 2, 2));
		double gain = gain_of_last(g);

		if ((gain > 1) != rows[i].last)
			fail_msg("row %zu: %.2f", i, gain);
	}
}

/* A transposed convolution ahead rounds to TF32, but less than one behind it would: that stays as PyTorch has it. */
static void test_order_behind_a_transposed_convolution(void **state)
{
	json_t *g = convolution_and_norm(6, 96, 48, 64, 3), *nodes = json_object_get(g, "nodes");
	json_t *x = json_array_get(json_object_get(g, "inputs"), 0), *up = json_deep_copy(x);

	(void)state;
	json_object_update_new(
		x, json_pack("{s:[i,i,i,i], s:[i,i,i,i]}", "sizes", 6, 96, 32, 32, "strides", 96 * 1024, 1024, 32, 1));
	json_array_append_new(json_object_get(g, "params"),
		json_pack("{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}", "name", "wide", "dtype", "float32", "sizes", 96, 96, 2, 2,
			"strides", 384, 4, 2, 1));
	json_array_insert_new(nodes, 0,
		json_pack("{s:s, s:s, s:[{s:s}, {s:s}, n, [i,i]], s:{}, s:[o]}", "name", "up", "op",
			"aten.conv_transpose2d.input", "args", "ref", "x", "ref", "wide", 2, 2, "kwargs", "out", up));
	json_object_set_new(json_array_get(json_object_get(json_array_get(nodes, 1), "args"), 0), "ref", json_string("up"));
	assert_true(gain_of_last(g) < 1 / 0.95);
}

/* A convolution whose result is beyond L2 is our template's where its tiles are filled, and packed as halves where they
 * are half empty; of the same layer on a small image the template stays. */
static void test_large_results(void **state)
{
	static const struct {
		int channels, filters, side, halves;
	} rows[] = { { 64, 128, 256, 0 }, { 72, 136, 256, 1 }, { 64, 128, 16, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(64, rows[i].channels, rows[i].filters, rows[i].side, 3);
		json_t *norm = json_array_get(json_object_get(g, "nodes"), 1);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.relu.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}]", "ref", "conv"));
		assert_true(gain_of_last(json_incref(g)) < 1 / 0.9);
		build(g, "cuda", &r);
		assert_true(r.ok);
		assert_int_equal(count(r.plan_text, "ww_recipe_conv_halves(p, "), rows[i].halves);
		assert_int_equal(count(r.plan_text, "ww_recipe_conv_tc(p, "), !rows[i].halves);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* What an exponential reads of a convolution is not stored as halves: of the largest results, which are all that is
 * left of a softmax, their rounding is more than that of TF32's operands.  Of a bounded function they may be. */
static void test_exponentials_of_halves(void **state)
{
	static const struct {
		const char *op;
		int halves;
	} rows[] = { { "aten.softmax.int", 0 }, { "aten.exp.default", 0 }, { "aten.sigmoid.default", 1 },
		{ "aten.mish.default", 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(64, 72, 136, 256, 3);
		json_t *end = json_array_get(json_object_get(g, "nodes"), 1);
		struct pl_result r;

		json_object_set_new(end, "op", json_string(rows[i].op));
		json_object_set_new(
			end, "args", i ? json_pack("[{s:s}]", "ref", "conv") : json_pack("[{s:s}, i]", "ref", "conv", 1));
		build(g, "cuda", &r);
		assert_true(r.ok);
		if (count(r.plan_text, "ww_recipe_conv_halves(p, ") != rows[i].halves)
			fail_msg("%s: %s", rows[i].op, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A convolution that PyTorch computes without TF32 is not rounded, whatever its channels, unless another one's is: as
 * the graph says, and where it does not by a guess (-1). */
static void test_what_pytorch_rounds(void **state)
{
	static const struct {
		int channels, tf32, others, halves; /* others: of another convolution behind it; 2: there is none */
	} rows[] = { { 72, -1, 2, 1 }, { 72, 1, 2, 1 }, { 72, 0, 2, 0 }, { 72, 0, 0, 0 }, { 72, 0, 1, 1 }, { 72, 0, -1, 1 },
		{ 72, -1, 0, 1 }, { 72, -1, 1, 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(64, rows[i].channels, 136, 256, 3), *nodes = json_object_get(g, "nodes");
		json_t *conv = json_array_get(nodes, 0), *end = json_array_get(nodes, 1), *d = device();
		struct knobs knobs = { .library = LIBRARY_AUTO };
		struct pl_result r;

		json_object_set_new(end, "op", json_string("aten.relu.default"));
		json_object_set_new(end, "args", json_pack("[{s:s}]", "ref", "conv"));
		if (rows[i].others < 2) {
			json_array_append_new(json_object_get(g, "params"),
				json_pack("{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}", "name", "v", "dtype", "float32", "sizes", 136, 136, 3,
					3, "strides", 1224, 9, 3, 1));
			json_object_set_new(end, "op", json_string("aten.conv2d.default"));
			json_object_set_new(
				end, "args", json_pack("[{s:s}, {s:s}, n, [i,i], [i,i]]", "ref", "conv", "ref", "v", 1, 1, 1, 1));
			if (rows[i].others >= 0)
				json_object_set_new(end, "tf32", json_boolean(rows[i].others));
		}
		if (rows[i].tf32 >= 0)
			json_object_set_new(conv, "tf32", json_boolean(rows[i].tf32));
		ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
		assert_string_equal(r.why, "");
		if ((count(r.plan_text, "\"k0\"") && count(r.plan_text, "ww_recipe_conv_halves(p, \"k0\"")) != rows[i].halves)
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* Tiles of one wave are half as large, from registers; not of transposed ones, of many steps, nor where they are then
 * two waves. */
static void test_one_wave_of_tiles(void **state)
{
	static const struct {
		struct ww_conv_forward c;
		int small;
	} rows[] = { { { 1, 64, 191, 111, 24, 25, 1, 1, 0, 1, 0, 0, 0, 0 }, 1 },
		{ { 1, 64, 191, 111, 24, 25, 1, 1, 128, 1, 0, 0, 0, 0 }, 0 },
		{ { 1, 64, 191, 111, 24, 25, 1, 1, 0, 1, 2, 1, 24, 0 }, 0 },
		{ { 1, 64, 191, 111, 24, 25, 1, 1, 0, 3, 0, 0, 0, 0 }, 0 },
		{ { 1, 416, 768, 9, 9, 49, 2, 2, 0, 1, 0, 0, 0, 0 }, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		const struct ww_conv_way w = ww_conv_best_way(&rows[i].c, 0, 0, 0, 132);

		if ((w.end == WW_CONV_REGISTERS && w.bn == 128 && w.filters == 64) != rows[i].small)
			fail_msg("row %zu: end %d, %d pixels, %d filters", i, w.end, w.bn, w.filters);
	}
}

/* What PyTorch computes without TF32 is ours by pairs of fp16 where its engine takes longer by the estimates: not one
 * of few terms, nor of few channels, nor of one tap. */
static void test_pairs_of_fp16(void **state)
{
	static const struct {
		int n, c, k, side, kernel, tf32, pairs;
	} rows[] = { { 8, 96, 64, 40, 3, 0, 1 }, { 8, 96, 64, 40, 3, 1, 0 }, { 32, 40, 48, 56, 3, 0, 1 },
		{ 64, 128, 128, 28, 3, 0, 1 }, { 1, 32, 32, 8, 3, 0, 0 }, { 64, 16, 64, 56, 3, 0, 0 },
		{ 64, 256, 256, 28, 1, 0, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, rows[i].kernel);
		struct pl_result r;

		json_object_set_new(json_array_get(json_object_get(g, "nodes"), 0), "tf32", json_boolean(rows[i].tf32));
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!!strstr(r.plan_text, ".exact = 1") != rows[i].pairs)
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Of two convolutions of one input that are concatenated PyTorch may round one: they are then two. */
static void test_one_of_two_is_rounded(void **state)
{
	(void)state;
	for (int last = 0; last < 2; last++)
		for (int said = 0; said < 2; said++) {
			json_t *g = convolution_and_norm(8, 64, 64, 32, 3), *nodes = json_object_get(g, "nodes"), *d = device();
			json_t *conv = json_array_get(nodes, 0), *other = json_deep_copy(conv), *end = json_array_get(nodes, 1);
			json_t *form = json_pack("{s:s, s:[i,i,i,i], s:[i,i,i,i]}", "dtype", "float32", "sizes", 8, 128, 32, 32,
				"strides", 128 << 10, 1 << 10, 32, 1);
			struct knobs knobs = { .last = last };
			struct pl_result r;

			if (said) {
				json_object_set_new(conv, "tf32", json_true());
				json_object_set_new(other, "tf32", json_false());
			}
			json_object_set_new(other, "name", json_string("other"));
			json_array_insert_new(nodes, 1, other);
			json_object_update(json_array_get(json_object_get(g, "outputs"), 0), form);
			json_object_update_new(end,
				json_pack("{s:s, s:[[{s:s}, {s:s}], i], s:[o]}", "op", "aten.cat.default", "args", "ref", "conv", "ref",
					"other", 1, "out", form));
			ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
			assert_string_equal(r.why, "");
			assert_int_equal(count(r.plan_text, ".k = 128, "), !said);
			ww_pl_result_release(&r);
			json_decref(g);
			json_decref(d);
		}
}

/* Beside one that PyTorch rounds, a convolution that it does not round is not, either, where a result shows it: one of
 * its own, or a part of one.  In a sum the other's error hides it. */
static void test_what_shows_a_rounding(void **state)
{
	static const struct {
		const char *join;
		int halves;
	} rows[] = { { NULL, 0 }, { "cat", 0 }, { "add.Tensor", 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(64, 72, 136, 256, 3), *nodes = json_object_get(g, "nodes"), *d = device();
		json_t *conv = json_array_get(nodes, 0), *other = json_deep_copy(conv), *end = json_array_get(nodes, 1);
		json_t *outs = json_object_get(g, "outputs"), *out = json_array_get(outs, 0), *form;
		struct pl_result r;

		json_array_append_new(json_object_get(g, "params"),
			json_pack("{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}", "name", "v", "dtype", "float32", "sizes", 136, 72, 3, 3,
				"strides", 648, 9, 3, 1));
		json_object_set_new(conv, "tf32", json_false());
		json_object_set_new(other, "tf32", json_true());
		json_object_set_new(other, "name", json_string("other"));
		json_array_set_new(json_object_get(other, "args"), 1, json_pack("{s:s}", "ref", "v"));
		json_array_set_new(json_object_get(other, "args"), 4, json_pack("[i,i]", 2, 2));
		json_array_append_new(json_object_get(other, "args"), json_pack("[i,i]", 1, 1));
		json_array_set_new(json_object_get(other, "args"), 5, json_pack("[i,i]", 2, 2));
		json_array_insert_new(nodes, 1, other);
		if (rows[i].join) {
			char op[64];
			int cat = !strcmp(rows[i].join, "cat");

			snprintf(op, sizeof(op), "aten.%s%s", rows[i].join, cat ? ".default" : "");
			json_object_set_new(end, "op", json_string(op));
			json_object_set_new(end, "args",
				cat ? json_pack("[[{s:s}, {s:s}]]", "ref", "conv", "ref", "other")
					: json_pack("[{s:s}, {s:s}]", "ref", "conv", "ref", "other"));
			if (cat) {
				form = json_pack("{s:s, s:[i,i,i,i], s:[i,i,i,i]}", "dtype", "float32", "sizes", 128, 136, 256, 256,
					"strides", 136 << 16, 1 << 16, 256, 1);
				json_object_update(out, form);
				json_object_set_new(end, "out", json_pack("[o]", form));
			}
		} else {
			json_array_remove(nodes, 2);
			json_object_set_new(out, "ref", json_string("conv"));
			form = json_deep_copy(out);
			json_object_update_new(form, json_pack("{s:s, s:s}", "name", "output1", "ref", "other"));
			json_array_append_new(outs, form);
		}
		ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
		assert_string_equal(r.why, "");
		if ((count(r.plan_text, "ww_recipe_conv_halves(p, \"k0\"") != 0) != rows[i].halves)
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* Attention's templates take no negative scale: it is two products and a softmax then. */
static void test_negative_scale(void **state)
{
	(void)state;
	for (int negative = 0; negative < 2; negative++) {
		json_t *g = fixture("cuda_attention.json"), *n;
		struct pl_result r;
		size_t i;

		json_array_foreach(json_object_get(g, "nodes"), i, n)
			if (negative && strstr(json_string_value(json_object_get(n, "op")), "scaled_dot_product"))
				json_object_set_new(n, "kwargs", json_pack("{s:f}", "scale", -0.125));
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(count(r.plan_text, "ww_recipe_attention") > 0, !negative);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Two convolutions of one input are one with the filters of both, whose part each has; not with another dilation, nor
 * of as many filters as 16 bytes do not divide, nor one that another convolution reads as it is.  Filters of which a
 * part is written to in between are read anew. */
static void test_convolutions_of_one_input(void **state)
{
	static const struct {
		int filters, dilation, chained, written, together, convolutions;
	} rows[] = { { 64, 1, 0, 0, 1, 1 }, { 64, 2, 0, 0, 0, 2 }, { 62, 1, 0, 0, 0, 2 }, { 64, 1, 1, 0, 0, 2 },
		{ 64, 1, 0, 1, 1, 2 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		for (int last = 0; last < 2; last++) {
			int dilation = rows[i].dilation;
			json_t *g = convolution_and_norm(8, 64, rows[i].filters, 32, 3), *d = device();
			json_t *nodes = json_object_get(g, "nodes"), *end = json_array_get(nodes, 1), *other;
			struct knobs knobs = { .last = last };
			struct pl_result r;

			json_array_append_new(json_object_get(json_array_get(nodes, 0), "args"), json_pack("[i,i]", 1, 1));
			other = json_deep_copy(json_array_get(nodes, 0));
			json_object_update_new(other,
				json_pack("{s:s, s:[{s:s}, {s:s}, n, [i,i], [i,i], [i,i]]}", "name", "other", "args", "ref",
					rows[i].chained ? "conv" : "x", "ref", "w", 1, 1, dilation, dilation, dilation, dilation));
			json_array_insert_new(nodes, 1, other);
			if (rows[i].written) {
				json_t *out = json_pack(
					"{s:s, s:[i,i,i], s:[i,i,i]}", "dtype", "float32", "sizes", 64, 3, 3, "strides", 9, 3, 1);

				json_array_insert_new(nodes, 1,
					json_pack("{s:s, s:s, s:[{s:s}, i, i], s:{}, s:[O]}", "name", "filter", "op", "aten.select.int",
						"args", "ref", "w", 0, 3, "kwargs", "out", out));
				json_array_insert_new(nodes, 2,
					json_pack("{s:s, s:s, s:[{s:s}, i], s:{}, s:[o]}", "name", "twice", "op", "aten.mul_.Tensor",
						"args", "ref", "filter", 2, "kwargs", "out", out));
			}
			json_object_update_new(end,
				json_pack("{s:s, s:[{s:s}, {s:s}]}", "op", "aten.mul.Tensor", "args", "ref", "conv", "ref", "other"));
			ww_pl_build(g, d, "cuda", &knobs, 1, NULL, &r);
			assert_string_equal(r.why, "");
			assert_int_equal(count(r.plan_text, ".k = 128, "), rows[i].together);
			assert_int_equal(count(r.plan_text, "  convolution: "), rows[i].convolutions);
			ww_pl_result_release(&r);
			json_decref(g);
			json_decref(d);
		}
}

/* A softmax of an image's rows, whose kernel would store across memory what a convolution reads channels-last, is
 * stored as it lies and turned; a small one is not, nor one of the channels. */
static void test_rows_ahead_of_a_convolution(void **state)
{
	static const struct {
		int images, dim, turned;
	} rows[] = { { 32, -1, 1 }, { 2, -1, 0 }, { 32, 1, 0 } };
	struct knobs last = { .last = 1 };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].images, 32, 64, 32, 3), *d = device(), *softmax;
		json_t *nodes = json_object_get(g, "nodes"), *conv = json_array_get(nodes, 0);
		struct pl_result r;

		softmax = json_deep_copy(json_array_get(nodes, 1));
		json_object_update_new(softmax,
			json_pack("{s:s, s:s, s:[{s:s}, i]}", "name", "softmax", "op", "aten.softmax.int", "args", "ref", "x",
				rows[i].dim));
		json_object_update_new(json_array_get(json_object_get(softmax, "out"), 0),
			json_pack(
				"{s:[i,i,i,i], s:[i,i,i,i]}", "sizes", rows[i].images, 32, 32, 32, "strides", 32768, 1024, 32, 1));
		json_object_set_new(json_array_get(json_object_get(conv, "args"), 0), "ref", json_string("softmax"));
		json_array_insert_new(nodes, 0, softmax);
		ww_pl_build(g, d, "cuda", &last, 1, NULL, &r);
		assert_string_equal(r.why, "");
		assert_int_equal(count(r.plan_text, "  rows: softmax\n"), rows[i].turned);
		assert_int_equal(count(r.plan_text, "  channels last: conv\n"), rows[i].turned);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* x, a convolution of it, and a batch norm of both side by side: each channel's statistics are taken once, those of x
 * where x has been normalised before, and no kernel of statistics reads the concatenation. */
static void test_statistics_of_pieces(void **state)
{
	json_t *g = convolution_and_norm(8, 24, 24, 32, 3), *nodes = json_object_get(g, "nodes");
	json_t *conv = json_array_get(nodes, 0), *bn = json_array_get(nodes, 1), *first = json_deep_copy(bn),
		   *cat = json_deep_copy(bn), *out;
	struct pl_result r;

	(void)state;
	json_object_set_new(first, "name", json_string("first"));
	json_object_set_new(json_array_get(json_object_get(first, "args"), 0), "ref", json_string("x"));
	json_object_set_new(bn, "out", json_deep_copy(json_object_get(bn, "out")));
	json_array_insert_new(nodes, 0, first);
	json_object_set_new(json_array_get(json_object_get(conv, "args"), 0), "ref", json_string("first"));
	json_object_update_new(cat,
		json_pack("{s:s, s:s, s:[[{s:s}, {s:s}], i]}", "name", "cat", "op", "aten.cat.default", "args", "ref", "x",
			"ref", "conv", 1));
	json_object_set_new(json_array_get(json_object_get(bn, "args"), 0), "ref", json_string("cat"));
	for (int i = 0; i < 3; i++) {
		out = i < 2 ? json_array_get(json_object_get(i ? bn : cat, "out"), 0)
					: json_array_get(json_object_get(g, "outputs"), 0);
		json_object_update_new(
			out, json_pack("{s:[i,i,i,i], s:[i,i,i,i]}", "sizes", 8, 48, 32, 32, "strides", 48 * 1024, 1024, 32, 1));
	}
	json_array_insert_new(nodes, 2, cat);
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.plan_text, "  rows: first"));
	assert_non_null(strstr(r.plan_text, "  rows: bn"));
	assert_null(strstr(r.plan_text, "  rows: cat"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* What is pooled channels-last and stored in PyTorch's order is done by neighbours of both, where it is large. */
static void test_pooled_across(void **state)
{
	static const struct {
		int images, beside;
	} rows[] = { { 256, 1 }, { 2, 0 } };
	struct knobs last = { .last = 1 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		json_t *g = convolution_and_norm(rows[i].images, 24, 64, 64, 3), *d = device();
		json_t *nodes = json_object_get(g, "nodes"), *pool = json_deep_copy(json_array_get(nodes, 1)), *out;
		struct pl_result r;

		json_object_update_new(pool,
			json_pack("{s:s, s:s, s:[{s:s}, [i,i], [i,i]]}", "name", "pool", "op", "aten.max_pool2d.default", "args",
				"ref", "bn", 2, 2, 2, 2));
		for (int o = 0; o < 2; o++) {
			out = json_array_get(o ? json_object_get(g, "outputs") : json_object_get(pool, "out"), 0);
			json_object_update_new(out,
				json_pack("{s:[i,i,i,i], s:[i,i,i,i]}", "sizes", rows[i].images, 64, 32, 32, "strides", 64 * 1024, 1024,
					32, 1));
		}
		json_object_set_new(out, "ref", json_string("pool"));
		json_array_append_new(nodes, pool);
		ww_pl_build(g, d, "cuda", &last, 1, NULL, &r);
		assert_string_equal(r.why, "");
		assert_int_equal(count(r.device_text, "enum { WIDE = 8, HIGH = 32 };"), rows[i].beside);
		/* of any number of channels, though of these every one is in a whole tile */
		assert_int_equal(count(r.device_text, " && beside < "), rows[i].beside);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* The backward direction is one step where the last step is read as such, not where it is the seventh of seven: of
 * longer sequences that is another one. */
static void test_step_by_number(void **state)
{
	static const struct {
		int step, one;
	} rows[] = { { -1, 1 }, { 6, 0 } };

	(void)state;
	for (int i = 0; i < 2; i++) {
		json_t *g = fixture("last_step.json"), *node;
		struct pl_result r;
		size_t k;

		json_array_foreach(json_object_get(g, "nodes"), k, node)
			if (!strcmp(json_string_value(json_object_get(node, "op")), "aten.select.int"))
				json_array_set_new(json_object_get(node, "args"), 2, json_integer(rows[i].step));
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(count(r.plan_text, ".steps = 1, ") > 0, rows[i].one);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Few long rows with much work behind them are shared by the blocks of clusters; of as many as there are
 * multiprocessors, or with less work, each has a block. */
static void test_few_long_rows(void **state)
{
	static const struct {
		int images, gelu, shared;
	} rows[] = { { 2, 1, 1 }, { 2, 0, 0 }, { 32, 1, 0 } };

	(void)state;
	for (int i = 0; i < 3; i++) {
		json_t *g = convolution_and_norm(rows[i].images, 192, 192, 25, 3), *nodes = json_object_get(g, "nodes");
		json_t *norm = json_array_get(nodes, 1), *gelu = json_deep_copy(norm);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.group_norm.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}, i, n, n, f]", "ref", "conv", 8, 1e-5));
		json_object_update_new(
			gelu, json_pack("{s:s, s:s, s:[{s:s}]}", "name", "gelu", "op", "aten.gelu.default", "args", "ref", "bn"));
		if (rows[i].gelu) {
			json_array_append_new(nodes, gelu);
			json_object_set_new(json_array_get(json_object_get(g, "outputs"), 0), "ref", json_string("gelu"));
		} else {
			json_decref(gelu);
		}
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if ((strstr(r.device_text, "pl_cluster<") != NULL) != rows[i].shared)
			fail_msg("row %d: %s", i, r.device_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Gates of experts in bfloat16 are compared with the second one of their row as fp32, all of them stored once: rounded,
 * the third is often as large. */
static void test_gates_ahead_of_rounding(void **state)
{
	json_t *g = fixture("expert_gates.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.device_text, "sort_rows<ww::SORT_F32"));
	assert_null(strstr(r.device_text, "pl_as_bf16"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A softmax over channels stores what lies across its rows, but its blocks turn it: channels-last is first. */
static void test_order_of_softmax(void **state)
{
	json_t *g = convolution_and_norm(64, 24, 64, 96, 3);
	json_t *softmax = json_array_get(json_object_get(g, "nodes"), 1);

	(void)state;
	json_object_set_new(softmax, "op", json_string("aten.softmax.int"));
	json_object_set_new(softmax, "args", json_pack("[{s:s}, i]", "ref", "conv", 1));
	assert_true(gain_of_last(g) > 1 / 0.9);
}

/* Filters that lie side by side on an image of few channels are a product of patches; of more channels, or with
 * overlap, a convolution. */
static void test_patches(void **state)
{
	static const struct {
		int c, kernel, stride, product;
	} rows[] = { { 3, 16, 16, 1 }, { 1, 14, 14, 1 }, { 3, 16, 15, 0 }, { 8, 4, 4, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		int side = 5, in = (side - 1) * rows[i].stride + rows[i].kernel;
		json_t *g = convolution_and_norm(64, rows[i].c, 224, side, rows[i].kernel);
		json_t *x = json_array_get(json_object_get(g, "inputs"), 0);
		json_t *args = json_object_get(json_array_get(json_object_get(g, "nodes"), 0), "args");
		struct pl_result r;

		json_object_set_new(x, "sizes", json_pack("[i,i,i,i]", 64, rows[i].c, in, in));
		json_object_set_new(x, "strides", json_pack("[i,i,i,i]", rows[i].c * in * in, in * in, in, 1));
		json_array_set_new(args, 3, json_pack("[i,i]", rows[i].stride, rows[i].stride));
		json_array_set_new(args, 4, json_pack("[i,i]", 0, 0));
		build(g, "cuda", &r);
		if (!r.ok || !strstr(r.plan_text, "gemm: conv\n") != !rows[i].product)
			fail_msg("row %zu: %s", i, r.ok ? r.plan_text : r.why);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Channels-last, a large group norm sums channel by channel, and what it normalises is no row of its groups: in rows
 * each group's few channels would be read out of whole sectors.  So its network begins channels-last.  Of a small one
 * launches are what takes time. */
static void test_group_norm_channels_last(void **state)
{
	static const struct {
		int images, side;
	} rows[] = { { 128, 56 }, { 40, 28 } };
	struct knobs last = { .last = 1 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		json_t *g = convolution_and_norm(rows[i].images, 24, 24, rows[i].side, 3), *d = device();
		json_t *norm = json_array_get(json_object_get(g, "nodes"), 1);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.group_norm.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}, i, n, n, f]", "ref", "conv", 4, 1e-5));
		ww_pl_build(g, d, "cuda", &last, 1, NULL, &r);
		assert_true(r.ok);
		if ((strstr(r.plan_text, "pointwise: bn\n") == NULL) != i || count(r.plan_text, "  rows: bn\n") != 2 - i)
			fail_msg("%d images: %s", rows[i].images, r.plan_text);
		ww_pl_result_release(&r);
		if (i == 0)
			assert_true(gain_of_last(json_incref(g)) > 1 / 0.95);
		json_decref(g);
		json_decref(d);
	}
}

/* Our template for tensor cores, or the library, which is faster where the template's tiles do not fill a small image,
 * or one round of multiprocessors.  Of up to 64 filters tiles of 64 count; cuDNN is slow where filters have more than
 * nine taps. */
static void test_template_or_library(void **state)
{
	static const struct {
		int n, c, k, side, kernel, template;
	} rows[] = { { 71, 192, 96, 58, 3, 1 }, { 80, 64, 128, 40, 3, 1 }, { 8, 192, 192, 40, 3, 1 },
		{ 53, 192, 192, 17, 3, 0 }, { 25, 64, 64, 43, 3, 0 }, { 2, 256, 256, 40, 3, 0 }, { 2, 250, 250, 40, 3, 1 },
		{ 512, 48, 48, 20, 3, 1 }, { 512, 48, 12, 20, 3, 0 }, { 2, 256, 160, 96, 9, 1 }, { 37, 128, 79, 7, 5, 1 },
		{ 37, 128, 79, 7, 3, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, rows[i].kernel);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_true(r.ok);
		if ((strstr(r.plan_text, "ww_recipe_conv_tc(") != NULL) != rows[i].template)
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A gate and its value, dilated so that they are not one: the second convolution has the image that the first one has
 * packed. */
static void test_image_packed_once(void **state)
{
	json_t *g = convolution_and_norm(71, 192, 96, 58, 3), *nodes = json_object_get(g, "nodes");
	json_t *gate = json_deep_copy(json_array_get(nodes, 0)), *params = json_object_get(g, "params");
	json_t *w = json_deep_copy(json_array_get(params, 0)), *product = json_array_get(nodes, 1);
	struct pl_result r;

	(void)state;
	json_object_set_new(w, "name", json_string("v"));
	json_array_append_new(params, w);
	json_object_set_new(gate, "name", json_string("gate"));
	json_array_set_new(json_object_get(gate, "args"), 1, json_pack("{s:s}", "ref", "v"));
	json_array_set_new(json_object_get(gate, "args"), 4, json_pack("[i,i]", 2, 2));
	json_array_append_new(json_object_get(gate, "args"), json_pack("[i,i]", 2, 2));
	json_object_set_new(product, "op", json_string("aten.mul.Tensor"));
	json_object_set_new(product, "args", json_pack("[{s:s}, {s:s}]", "ref", "conv", "ref", "gate"));
	json_array_insert_new(nodes, 1, gate);
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_int_equal(count(r.plan_text, "ww_recipe_conv_tc("), 2);
	assert_int_equal(count(r.plan_text, "_packed = ww_recipe_conv_tc("), 1);
	assert_int_equal(count(r.plan_text, ".packed = &k"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* The text of a build channels-last; released by the caller. */
static struct pl_result build_last(json_t *g)
{
	json_t *d = device();
	struct knobs knobs[64] = { { 0 } };
	struct pl_result r;

	for (size_t k = 0; k < WW_ARRAY_LEN(knobs); k++)
		knobs[k].last = 1;
	ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
	assert_true(r.ok);
	json_decref(d);
	return r;
}

/* Channels-last, statistics are of so few parts that the kernel behind them does not wait for thousands. */
static void test_parts_of_statistics(void **state)
{
	static const struct {
		int n, c, side;
		const char *has;
	} rows[] = { { 64, 24, 190, "rows = 24, cols = (S0*95)" }, { 480, 8, 32, "rows = 8, cols = (S0*4)" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].c, rows[i].side, 3);
		struct pl_result r = build_last(g);

		if (!strstr(r.plan_text, rows[i].has))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* An input that was turned for a convolution is read so beside its result. */
static void test_turned_input(void **state)
{
	json_t *g = fixture("blocks.json");
	struct pl_result r = build_last(g);

	(void)state;
	if (strstr(r.device_text, "= in_x[(i"))
		fail_msg("%s", r.device_text);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A concatenation reads what a channels-last convolution stored and ends it on the way: no pass behind the library. */
static void test_concatenated_last(void **state)
{
	json_t *g = fixture("concatenated_last.json");
	struct pl_result r = build_last(g);

	(void)state;
	assert_non_null(strstr(r.plan_text, "  pointwise: conv_transpose2d, cat, conv2d\n"));
	assert_null(strstr(r.plan_text, "ww_recipe_after_library(p"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A convolution whose channels do not fill 16 bytes is in PyTorch's order among those that run channels-last: its
 * result is turned in shared memory for these, and no thread stores or reads across memory. */
static void test_results_to_last(void **state)
{
	json_t *g = fixture("results_to_last.json"), *d = device();
	struct knobs knobs[64] = { { 0 } };
	struct pl_result r;

	(void)state;
	for (size_t k = 0; k < WW_ARRAY_LEN(knobs); k++)
		knobs[k] = (struct knobs){ .last = 1, .library = LIBRARY_YES };
	ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_recipe_conv_library(p"), 3);
	assert_int_equal(count(r.plan_text, "ww_recipe_after_library_turned(p"), 3);
	assert_null(strstr(r.device_text, "] = acc[l]"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Products of few columns, and of a short k to an odd number of them, run at memory's speed, in tiles only where the
 * search asks for them. */
static void test_few_columns_or_terms(void **state)
{
	static const char *const file[] = { "thin_products.json", "short_products.json" },
							 *const call[] = { "ww_recipe_gemm_thin(p", "ww_recipe_gemm_short(p" };
	json_t *d = device();

	(void)state;
	for (int i = 0; i < 4; i++) {
		const struct knobs kn = { .gemm.form = i / 2, .library = i / 2 ? LIBRARY_NO : LIBRARY_AUTO };
		const struct knobs knobs[2] = { kn, kn };
		json_t *g = fixture(file[i % 2]);
		struct pl_result r;

		ww_pl_build(g, d, "cuda", knobs, 2, NULL, &r);
		assert_true(r.ok);
		assert_int_equal(count(r.plan_text, call[i % 2]), i / 2 ? 0 : 2);
		assert_int_equal(count(r.plan_text, "ww_recipe_gemm_mma(p"), i / 2 ? 2 : 0);
		ww_pl_result_release(&r);
		json_decref(g);
	}
	json_decref(d);
}

/* What a product of few columns reads is computed by its kernel, and stored by none; but where a product of many
 * columns reads it, too. */
static void test_computed_operands(void **state)
{
	static const struct {
		const char *graph;
		int kernels, computed;
	} want[] = { { "gate_product.json", 1, 1 }, { "gate_products.json", 5, 0 } };
	json_t *d = device();

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].graph);
		struct pl_result r;

		ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
		assert_true(r.ok);
		assert_int_equal(r.n_kern, want[i].kernels);
		assert_int_equal(count(r.device_text, "ww::gemm_mma_of<"), want[i].computed);
		ww_pl_result_release(&r);
		json_decref(g);
	}
	json_decref(d);
}

/* What reads a large tensor again begins with its end, which is in the cache: the gate behind a pool, whose two
 * products in between touch little, and what reads a scan of rows.  A smaller one fits as a whole. */
static void test_from_the_end(void **state)
{
	static const struct {
		const char *graph;
		int n;
	} want[] = { { "pooled_gate.json", 1 }, { "scanned_gate.json", 1 }, { "gate_product.json", 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].graph), *d = device();
		struct pl_result r;

		ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
		assert_true(r.ok);
		assert_int_equal(count(r.device_text, "(ix_t)ww::from_end_x() *"), want[i].n);
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* Results of many rows that lie along these are turned by the block: no warp stores parts of sectors. */
static void test_turned_rows(void **state)
{
	json_t *g = fixture("turned_rows.json"), *d = device();
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.device_text, "[c * (R + 1) + threadIdx.x % R]"), 2);
	assert_int_equal(count(r.device_text, "if (live)"), 0);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Channels-last, a dilated transposed convolution with a stride is one forward convolution of its phases, of those taps
 * that meet; not one of many taps, which PyTorch computes without TF32. */
static void test_phases(void **state)
{
	static const struct {
		const char *graph, *want;
	} rows[] = { { "phases.json", ".transposed = 1" },
		{ "phases_apart.json", ".k = 64, .in = { S1, S2, S3 }, .kernel = { 2, 2, 2 }" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = fixture(rows[i].graph);
		struct pl_result r = build_last(g);

		if (!strstr(r.plan_text, rows[i].want) || !strstr(r.plan_text, ".transposed = 1") != (i == 1))
			fail_msg("%s: %s", rows[i].graph, strstr(r.plan_text, "ww_recipe_conv_library(p"));
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Channels-last, a softmax over channels reads the convolution's own result. */
static void test_softmax_last(void **state)
{
	json_t *g = fixture("softmax_last.json");
	struct pl_result r = build_last(g);

	(void)state;
	assert_int_equal(count(r.plan_text, "ww_recipe_conv_library(p"), 1);
	assert_int_equal(count(r.device_text, "ww::after_library"), 1); /* that turns the input */
	assert_non_null(strstr(r.device_text, "/* rows: conv_transpose2d, softmax, mul, sigmoid */"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Channels-last, a transposed convolution in three dimensions, of stride 1, is a forward one of filters turned
   around. */
static void test_transposed_volume(void **state)
{
	json_t *g = fixture("transposed_volume.json");
	struct pl_result r = build_last(g);

	(void)state;
	if (!strstr(r.plan_text, ".transposed = 0") || !strstr(r.plan_text, ".pad = { 0, 2, 1 }"))
		fail_msg("%s", r.plan_text);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Channels-last, a large instance norm has two kernels of statistics and a pointwise one: in rows of its channels the
 * convolution's result would be turned ahead of it. */
static void test_instance_norm_channels_last(void **state)
{
	static const int images[] = { 128, 40 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		json_t *g = convolution_and_norm(images[i], 24, 24, 56, 3),
			   *norm = json_array_get(json_object_get(g, "nodes"), 1);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.instance_norm.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}, n, n, n, n, b, f, f, b]", "ref", "conv", 1, 0.1, 1e-5, 1));
		r = build_last(g);
		if ((strstr(r.plan_text, "pointwise: bn\n") == NULL) != i || count(r.plan_text, "  rows: bn\n") != 2 - i)
			fail_msg("%d images: %s", images[i], r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Channels-last to contiguous images: a thread has neighbouring channels where no vector divides the image. */
static void test_odd_images(void **state)
{
	(void)state;
	for (int odd = 0; odd < 2; odd++) {
		json_t *g = convolution_and_norm(61, 64, 64, 76 - odd, 3);
		struct pl_result r = build_last(g);

		if ((strstr(r.plan_text, "high = 32") != NULL) != odd || count(r.plan_text, "int v = 8;") != odd)
			fail_msg("%s", r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A convolution of so few channels that the library's tiles would be mostly empty is our direct template, also where
 * the tensor-core template fits, which would round what PyTorch does not.  What PyTorch does not round is conv_few
 * where its estimate is far below theirs (16 to 16: 27 us; conv_direct took 56 and cuDNN 70 on an H200). */
static void test_light_convolutions(void **state)
{
	static const struct {
		int n, c, k, side, kernel;
		const char *recipe;
	} rows[] = { { 64, 24, 6, 128, 1, "ww_recipe_conv_direct(" }, { 64, 6, 24, 128, 1, "ww_recipe_conv_direct(" },
		{ 64, 24, 64, 128, 1, "ww_recipe_conv_library(" }, { 64, 6, 6, 128, 7, "ww_recipe_conv_direct(" },
		{ 1, 512, 8, 4, 3, "ww_recipe_conv_library(" }, { 512, 16, 16, 20, 3, "ww_recipe_conv_few(" },
		{ 128, 8, 64, 128, 3, "ww_recipe_conv_few(" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, rows[i].kernel);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_true(r.ok);
		if (!strstr(r.plan_text, rows[i].recipe))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

static void set_type(json_t *list, const char *type)
{
	json_t *t;
	size_t i;

	json_array_foreach(list, i, t)
		json_object_set_new(t, "dtype", json_string(type));
}

static void set_groups(json_t *g, int c, int kernel, int groups)
{
	json_t *w = json_array_get(json_object_get(g, "params"), 0);
	json_t *args = json_object_get(json_array_get(json_object_get(g, "nodes"), 0), "args");

	json_array_set_new(json_object_get(w, "sizes"), 1, json_integer(c / groups));
	json_array_set_new(json_object_get(w, "strides"), 0, json_integer(c / groups * kernel * kernel));
	json_array_append_new(args, json_pack("[i,i]", 1, 1));
	json_array_append_new(args, json_integer(groups));
}

/* A convolution in groups of what lies in 16 bits, as test_light_convolutions() has it. */
static json_t *half_convolution(int n, int c, int k, int side, int kernel, int groups)
{
	json_t *g = convolution_and_norm(n, c, k, side, kernel), *node;
	size_t i;

	set_type(json_object_get(g, "inputs"), "float16");
	set_type(json_object_get(g, "params"), "float16");
	json_array_foreach(json_object_get(g, "nodes"), i, node)
		set_type(json_object_get(node, "out"), "float16");
	set_groups(g, c, kernel, groups);
	return g;
}

/* Statistics of a large batch norm go by parts in PyTorch's order, too, which are read along memory, and what it
 * normalises is a pointwise kernel; a small one is held by rows. */
static void test_large_batch_norm(void **state)
{
	static const struct {
		int side, half, parts;
	} rows[] = { { 112, 0, 1 }, { 28, 0, 0 }, { 160, 1, 1 }, { 112, 1, 0 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = rows[i].half ? half_convolution(8, 96, 160, rows[i].side, 3, 1)
								 : convolution_and_norm(8, 96, 160, rows[i].side, 3);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (count(r.plan_text, "  rows: bn\n") != 1 + rows[i].parts ||
			count(r.plan_text, "  pointwise: bn\n") != rows[i].parts ||
			(rows[i].parts && !strstr(r.device_text, "pl_squares g0")))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* An image of one pixel (a squeeze-excite's) times a filter is a product, whose end has what follows; of few channels
 * it stays a thread an element in PyTorch's order, and of several pixels a convolution. */
static void test_images_of_one_pixel(void **state)
{
	static const struct {
		int n, c, k, side, half, last;
		const char *has;
	} rows[] = { { 16, 192, 48, 1, 0, 0, " rows: conv, bn\n" }, { 512, 192, 48, 1, 0, 0, " gemm: conv, bn\n" },
		{ 48, 768, 192, 1, 1, 0, " gemm: conv, bn\n" }, { 16, 32, 192, 1, 0, 0, " convolution: conv, bn\n" },
		{ 320, 64, 256, 1, 0, 0, " gemm: conv, bn\n" }, { 16, 32, 192, 1, 0, 1, " gemm: conv, bn\n" },
		{ 16, 192, 48, 2, 0, 0, " convolution: conv, bn\n" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = rows[i].half ? half_convolution(rows[i].n, rows[i].c, rows[i].k, rows[i].side, 1, 1)
								 : convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, 1);
		json_t *norm = json_array_get(json_object_get(g, "nodes"), 1);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.relu.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}]", "ref", "conv"));
		if (rows[i].last)
			r = build_last(g);
		else
			build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, rows[i].has))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* fp32 filters of one element are the library's, with a bias too, for which it has a pass. */
static void test_pixels_and_bias(void **state)
{
	static const struct {
		int n, c, k, side, bias;
		const char *has;
	} rows[] = { { 16, 64, 128, 91, 1, " convolution: conv, bn\n" }, { 64, 32, 80, 110, 1, " convolution: conv, bn\n" },
		{ 16, 64, 128, 91, 0, " convolution: conv, bn\n" }, { 64, 192, 192, 56, 1, " convolution: conv, bn\n" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].k, rows[i].side, 1);
		json_t *nodes = json_object_get(g, "nodes"), *norm = json_array_get(nodes, 1);
		struct pl_result r;

		json_object_set_new(norm, "op", json_string("aten.relu.default"));
		json_object_set_new(norm, "args", json_pack("[{s:s}]", "ref", "conv"));
		json_array_append_new(json_object_get(g, "params"),
			json_pack("{s:s, s:s, s:[i], s:[i]}", "name", "b", "dtype", "float32", "sizes", rows[i].k, "strides", 1));
		if (rows[i].bias)
			json_array_set_new(json_object_get(json_array_get(nodes, 0), "args"), 2, json_pack("{s:s}", "ref", "b"));
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, rows[i].has))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A transposed convolution of few pixels, whose filters are most of what is read, is a product whose columns are
 * folded; of many pixels it is the tensor cores' template, which packs the filters. */
static void test_folded_columns(void **state)
{
	static const struct {
		int n, side;
		const char *has;
	} rows[] = { { 1, 6, " gemm: conv\n" }, { 8, 48, "ww_recipe_conv_tc(" } };
	enum { C = 331, K = 727, KERNEL = 9 };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		int n = rows[i].n, in = rows[i].side, side = 2 * in - 1;
		json_t *g = json_pack(
			"{s:i, s:[{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}], s:[{s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}], "
			"s:[{s:s, s:s, s:[{s:s}, {s:s}, n, [i,i], [i,i]], s:{}, s:[{s:s, s:[i,i,i,i], s:[i,i,i,i]}]}], "
			"s:[{s:s, s:s, s:s, s:[i,i,i,i], s:[i,i,i,i]}]}",
			"version", 1, "inputs", "name", "x", "dtype", "float32", "sizes", n, C, in, in, "strides", C * in * in,
			in * in, in, 1, "params", "name", "w", "dtype", "float32", "sizes", C, K, KERNEL, KERNEL, "strides",
			K * KERNEL * KERNEL, KERNEL * KERNEL, KERNEL, 1, "nodes", "name", "conv", "op",
			"aten.conv_transpose2d.input", "args", "ref", "x", "ref", "w", 2, 2, 4, 4, "kwargs", "out", "dtype",
			"float32", "sizes", n, K, side, side, "strides", K * side * side, side * side, side, 1, "outputs", "name",
			"output0", "ref", "conv", "dtype", "float32", "sizes", n, K, side, side, "strides", K * side * side,
			side * side, side, 1);
		struct pl_result r;

		assert_non_null(g);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, rows[i].has))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A convolution of x by w, whose node is `op` with these further arguments; dimensions beyond the channels are `x`, `w`
 * and `y`, its result's, of which 0 is none. */
static json_t *convolved(const char *op, const char *args, int n, int c, int k, const int x[3], const int w[3],
	const int y[3], int transposed)
{
	char text[2000], size[3][64], stride[3][64], rest[64];
	const int first[3][2] = { { n, c }, { transposed ? c : k, transposed ? k : c }, { n, k } };
	const int *last[3] = { x, w, y };

	for (int i = 0; i < 3; i++) {
		int all = 1;

		snprintf(size[i], sizeof(size[i]), "%d, %d", first[i][0], first[i][1]);
		rest[0] = 0;
		for (int e = 2; e >= 0; e--)
			if (last[i][e]) {
				char behind[64];

				memcpy(behind, rest, sizeof(behind));
				snprintf(rest, sizeof(rest), ", %d%.40s", all, behind);
				all *= last[i][e];
			}
		snprintf(stride[i], sizeof(stride[i]), "%d, %d%.40s", first[i][1] * all, all, rest);
		for (int e = 0; e < 3; e++)
			if (last[i][e])
				snprintf(size[i] + strlen(size[i]), sizeof(size[i]) - strlen(size[i]), ", %d", last[i][e]);
	}
	snprintf(text, sizeof(text),
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [%s], \"strides\": [%s]}], "
		"\"params\": [{\"name\": \"w\", \"dtype\": \"float32\", \"sizes\": [%s], \"strides\": [%s]}], "
		"\"nodes\": [{\"name\": \"y\", \"op\": \"aten.%s\", \"args\": [{\"ref\": \"x\"}, {\"ref\": \"w\"}, null, %s], "
		"\"kwargs\": {}, \"out\": [{\"dtype\": \"float32\", \"sizes\": [%s], \"strides\": [%s]}]}], "
		"\"outputs\": [{\"ref\": \"y\", \"dtype\": \"float32\", \"sizes\": [%s], \"strides\": [%s]}]}",
		size[0], stride[0], size[1], stride[1], op, args, size[2], stride[2], size[2], stride[2]);
	return json_loads(text, 0, NULL);
}

/* A transposed convolution on tensor cores has its phases beside each other where a stride divides eight; lines are
 * images of one row.  By cuDNN a line with dilation takes several times as long channels-last, and is not first.  Few
 * channels in three dimensions are conv_few's. */
static void test_transposed_beside(void **state)
{
	static const struct {
		const char *op, *args;
		int n, c, k, x[3], w[3], y[3];
		const char *says, *never;
	} rows[] = { { "conv_transpose2d.input", "[2, 2], [1, 1]", 32, 64, 64, { 96, 128 }, { 4, 4 }, { 192, 256 },
					 ".staged = 1, .pairs = 2,\n", "conv_library" },
		{ "conv_transpose2d.input", "[1, 1], [1, 1]", 32, 64, 64, { 192, 256 }, { 3, 3 }, { 192, 256 },
			".staged = 1, .pairs = 2, .filters = 64,\n", "conv_library" },
		{ "conv_transpose2d.input", "[3, 3]", 32, 64, 64, { 96, 128 }, { 3, 3 }, { 288, 384 }, "conv_library",
			"conv_tc" },
		{ "conv_transpose1d.default", "[2], [1]", 32, 128, 128, { 40000 }, { 4 }, { 80000 },
			".staged = 1, .pairs = 2,\n", "conv_library" },
		{ "conv1d.default", "[3], [0], [4]", 32, 64, 128, { 120000 }, { 3 }, { 39998 }, "ww_recipe_conv_tc(",
			"conv_library" },
		{ "conv_transpose3d.input", "[2, 2, 2], [1, 1, 1], [1, 1, 1]", 16, 32, 64, { 16, 32, 32 }, { 3, 3, 3 },
			{ 32, 64, 64 }, ".staged = 1, .pairs = 2,\n", "conv_library" },
		{ "conv_transpose3d.input", "[2, 2, 2], [1, 1, 1]", 4, 32, 32, { 32, 64, 128 }, { 3, 3, 3 }, { 63, 127, 255 },
			"ww_recipe_conv_tc(", "conv_library" },
		{ "conv_transpose3d.input", "[1, 1, 1]", 8, 48, 48, { 64, 64, 64 }, { 3, 3, 3 }, { 66, 66, 66 },
			".pairs = 2, .filters = 64,\n", "conv_library" },
		{ "conv_transpose3d.input", "[1, 1, 1], [1, 1, 1]", 8, 64, 128, { 20, 36, 36 }, { 3, 3, 3 }, { 20, 36, 36 },
			"ww_recipe_conv_tc(", "conv_library" },
		{ "conv3d.default", "[1, 1, 1]", 16, 3, 64, { 40, 60, 60 }, { 3, 3, 3 }, { 38, 58, 58 }, "ww_recipe_conv_few(",
			"conv_library" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		int up = strncmp(rows[i].op, "conv_transpose", 14) == 0;
		json_t *g = convolved(
				   rows[i].op, rows[i].args, rows[i].n, rows[i].c, rows[i].k, rows[i].x, rows[i].w, rows[i].y, up),
			   *d = device();
		const struct knobs turned = { .last = 1 };
		struct pl_result r, last;

		assert_non_null(g);
		build(g, "cuda", &r);
		ww_pl_build(g, d, "cuda", &turned, 1, NULL, &last);
		assert_true(r.ok && last.ok);
		if (!strstr(r.plan_text, rows[i].says) || strstr(r.plan_text, rows[i].never))
			fail_msg("row %zu: %s", i, r.plan_text);
		if (rows[i].x[1] == 0 && !up)
			assert_true(last.order_us > 1.2 * r.order_us);
		ww_pl_result_release(&r);
		ww_pl_result_release(&last);
		json_decref(g);
		json_decref(d);
	}
}

/* Pieces of phases beside each other begin where a vector of the image's rows does, by zeros in front of a filter; rows
 * that no vector divides have none. */
static void test_phases_of_vectors(void **state)
{
	static const struct {
		long long s, ow, plane, taps;
		int pad;
	} want[] = { { 3, 256, 128, 2, 1 }, { 4, 256, 128, 3, 1 }, { 4, 258, 129, 2, 0 }, { 4, 513, 257, 2, 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		const struct ww_conv_forward c = { 16, 64, 128, want[i].ow, want[i].ow, (double)(want[i].s * want[i].s), 2, 2,
			0, 1, 0, 0, 0, 0 },
									 f = ww_conv_beside(&c, want[i].s, want[i].pad, 1, 1);

		assert_int_equal(f.ow, want[i].plane);
		assert_true(f.taps == (double)(want[i].s * want[i].taps) / 2);
	}
}

/* cuDNN computes groups of few channels in fp32 and PyTorch's order without tensor cores (512 x 48 x 14 x 14 in three
 * groups: 640 us of an H200): our template takes an eighth of that.  Wide groups are the library's. */
static void test_small_groups(void **state)
{
	static const struct {
		int n, c, side, groups;
		const char *recipe;
	} rows[] = { { 512, 48, 14, 3, "ww_recipe_conv_direct(" }, { 256, 32, 16, 2, "ww_recipe_conv_direct(" },
		{ 64, 256, 28, 2, "ww_recipe_conv_library(" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = convolution_and_norm(rows[i].n, rows[i].c, rows[i].c, rows[i].side, 3);
		struct pl_result r;

		set_groups(g, rows[i].c, 3, rows[i].groups);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, rows[i].recipe))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* In 16 bits, too, filters of few elements are read by threads: of depthwise convolutions with several filters a
 * channel, of few channels, and of few in each group; larger ones never by the template for tensor cores.  A filter of
 * one element is a product, which cuDNN would turn both sides for. */
static void test_filters_of_16_bits(void **state)
{
	static const struct {
		int n, c, k, kernel, groups;
		const char *recipe;
	} rows[] = { { 64, 112, 224, 3, 112, "ww_recipe_conv_direct(" }, { 64, 1, 5, 1, 1, "ww_recipe_conv_direct(" },
		{ 64, 32, 64, 3, 8, "ww_recipe_conv_direct(" }, { 64, 8, 8, 3, 1, "ww_recipe_conv_direct(" },
		{ 64, 64, 64, 3, 1, "ww_recipe_conv_library(" }, { 64, 64, 96, 1, 1, "ww_recipe_gemm" },
		{ 2048, 16, 32, 3, 1, "ww_recipe_conv_few(" }, { 2048, 32, 32, 3, 1, "ww_recipe_conv_library(" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		json_t *g = half_convolution(rows[i].n, rows[i].c, rows[i].k, 16, rows[i].kernel, rows[i].groups);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, rows[i].recipe) || strstr(r.plan_text, "ww_recipe_conv_tc("))
			fail_msg("row %zu: %s", i, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Images that data chooses, stored channels-last: a warp reads whole sectors of the planes (160 x 256 x 32 x 4 by 256
 * indices: 302 MB from the second level by count without, 67 so). */
static void test_chosen_images_turned(void **state)
{
	static const char graph[] =
		"{\"version\": 1, \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [160, 256, 32, 4], "
		"\"strides\": [32768, 128, 4, 1]}, {\"name\": \"i\", \"dtype\": \"int64\", \"sizes\": [256], \"strides\": [1]}"
		"], \"params\": [], \"nodes\": [{\"name\": \"n\", \"op\": \"aten.index.Tensor\", \"args\": [{\"ref\": \"x\"}, "
		"[{\"ref\": \"i\"}]], \"kwargs\": {}, \"out\": [{\"dtype\": \"float32\", \"sizes\": [256, 256, 32, 4], "
		"\"strides\": [32768, 1, 1024, 256]}]}], \"outputs\": [{\"name\": \"output0\", \"ref\": \"n\", \"dtype\": "
		"\"float32\", \"sizes\": [256, 256, 32, 4], \"strides\": [32768, 1, 1024, 256]}]}";
	json_t *g = json_loads(graph, 0, NULL);
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.plan_text, "_HIGH"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* All images share a filter: gemm16 reads it as one matrix, and copies of it are not made. */
static void test_shared_filters(void **state)
{
	json_t *g = fixture("shared_filters.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.plan_text, "ww_recipe_gemm16("));
	assert_null(strstr(r.plan_text, "ww_recipe_pad(p, &(struct ww_matrix){ .buf = p_first_weight->buf"));
	assert_non_null(strstr(r.plan_text, ".rows = 640, .k = 256, .batch = 1,"));
	assert_non_null(strstr(r.device_text, "k1_ONE>"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Sums of a product and what came in, which several kernels read, are stored by the product, of a mixer turned; an
 * embedding that they begin with is looked up once. */
static void test_residual_sums(void **state)
{
	json_t *g = fixture("residual_sums.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_int_equal(count(r.plan_text, "  pointwise: embedding, add\n"), 1);
	assert_int_equal(count(r.plan_text, "  gemm: linear_1, add_1\n"), 1);
	assert_int_equal(count(r.plan_text, "  gemm: linear_3, add_2 (k3 again)\n"), 1);
	assert_int_equal(count(r.plan_text, "  gemm: linear_5, transpose_1, add_3\n"), 1);
	assert_int_equal(count(r.plan_text, "  gemm: linear_8, add_5\n"), 1);
	assert_int_equal(count(r.plan_text, "  rows: layer_norm_1\n"), 1);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* A product that is turned and added to what came in ends in that sum, whichever way the sum is stored. */
static void test_turned_results(void **state)
{
	json_t *g = fixture("turned_results.json");
	struct pl_result r;

	(void)state;
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_non_null(strstr(r.plan_text, "gemm: linear_1, transpose_1, add\n"));
	assert_non_null(strstr(r.plan_text, "gemm: linear_2, mul, permute, add_1\n"));
	assert_non_null(strstr(r.plan_text, "gemm: linear_3, mul_1, permute_1, add_2\n"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* grid_sample of each mode and padding is ours; what is sampled bicubically, by sixteen loads, is stored once for the
 * passes of a norm. */
static void test_sampled(void **state)
{
	static const char graph[] =
		"{\"version\": 1, \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [8, 32, 64, 96], "
		"\"strides\": [196608, 6144, 96, 1]}, {\"name\": \"grid\", \"dtype\": \"float32\", \"sizes\": [8, 128, 32, 2], "
		"\"strides\": [8192, 64, 2, 1]}], \"params\": [], \"nodes\": [{\"name\": \"s\", \"op\": "
		"\"aten.grid_sampler.default\", \"args\": [{\"ref\": \"x\"}, {\"ref\": \"grid\"}, %d, %d, false], \"kwargs\": "
		"{}, \"out\": [{\"dtype\": \"float32\", \"sizes\": [8, 32, 128, 32], \"strides\": [131072, 4096, 32, 1]}]}, "
		"{\"name\": \"n\", \"op\": \"aten.group_norm.default\", \"args\": [{\"ref\": \"s\"}, 2], \"kwargs\": {}, \"out\""
		": [{\"dtype\": \"float32\", \"sizes\": [8, 32, 128, 32], \"strides\": [131072, 4096, 32, 1]}]}], \"outputs\": "
		"[{\"name\": \"output0\", \"ref\": \"n\", \"dtype\": \"float32\", \"sizes\": [8, 32, 128, 32], \"strides\": "
		"[131072, 4096, 32, 1]}]}";

	(void)state;
	for (int mode = 0; mode < 3; mode++)
		for (int padding = 0; padding < 3; padding++) {
			char text[sizeof(graph)];
			struct pl_result r;
			json_t *g;

			snprintf(text, sizeof(text), graph, mode, padding);
			g = json_loads(text, 0, NULL);
			build(g, "cuda", &r);
			assert_string_equal(r.why, "");
			if (strstr(r.plan_text, "ww_pytorch(") || (mode == 2 && count(r.device_text, "in_x[") != 16))
				fail_msg("%d %d: %s", mode, padding, r.device_text);
			ww_pl_result_release(&r);
			json_decref(g);
		}
}

/* Parts of a sum over 16 bits, and what is computed from it before the operator rounds, are stored as fp32. */
static void test_statistics_are_not_rounded(void **state)
{
	static const char graph[] =
		"{\"version\": 1, \"inputs\": [{\"name\": \"x\", \"dtype\": \"float16\", \"sizes\": [2, 8, 256, 256], "
		"\"strides\": [524288, 65536, 256, 1]}], \"params\": [], \"nodes\": [{\"name\": \"v\", \"op\": "
		"\"aten.var.correction\", \"args\": [{\"ref\": \"x\"}, [0, 2, 3]], \"kwargs\": {\"correction\": 0}, \"out\": "
		"[{\"dtype\": \"float16\", \"sizes\": [8], \"strides\": [1]}]}], \"outputs\": [{\"name\": \"output0\", "
		"\"ref\": \"v\", \"dtype\": \"float16\", \"sizes\": [8], \"strides\": [1]}]}";
	json_t *g = json_loads(graph, 0, NULL), *d = device();
	struct pl_result r;

	(void)state;
	assert_non_null(g);
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_true(r.ok);
	assert_int_equal(count(r.plan_text, "ww_scratch("), 2); /* parts of two sums; the mean stays in registers */
	assert_null(strstr(r.device_text, "__half *__restrict__ t"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Without skeletons a later pass finds in the scratch what was expensive to compute, and nothing else. */
static void test_kept_values(void **state)
{
	static const struct {
		const char *name;
		int kept;
	} want[] = { { "example_softmax.json", 1 }, { "example_residual_layernorm.json", 1 },
		{ "example_layernorm_gelu.json", 0 }, { "example_rmsnorm.json", 0 } };
	const struct knobs loops = { .cpu_rows.loops = 1 };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name), *d = device();
		struct pl_result r;

		ww_pl_build(g, d, "cpu", &loops, 1, NULL, &r);
		assert_true(r.ok);
		assert_int_equal(strstr(r.device_text, "ww_vf_store(kept0") != NULL, want[i].kept);
		assert_int_equal(strstr(r.plan_text, "ww_shared(") != NULL, want[i].kept);
		assert_null(strstr(r.device_text, "kept1"));
		ww_pl_result_release(&r);
		json_decref(g);
		json_decref(d);
	}
}

/* Row kernels of the cpu target find the cookbook's skeletons by their shape, also where a special or a cast lies in
 * front, and not where the columns are two axes or the kernel is told not to. */
static void test_row_skeletons(void **state)
{
	static const struct {
		const char *name, *call;
	} want[] = { { "example_softmax.json", "ww_cpu_softmax(b, arg, k0_load" },
		{ "example_layernorm_gelu.json", "ww_cpu_layernorm(b, arg, " },
		{ "example_residual_layernorm.json", "ww_cpu_layernorm(b, arg, " },
		{ "example_rmsnorm.json", "ww_cpu_rmsnorm(b, arg, " }, { "example_cross_entropy.json", "ww_row_lse(k0_load, " },
		{ "mlp3.json", "ww_cpu_log_softmax(b, arg, " }, { "half.json", "ww_cpu_softmax(b, arg, " },
		{ "instnorm.json", "ww_cpu_layernorm(b, arg, " }, { "groupnorm.json", NULL }, { "example_cumsum.json", NULL } };
	static const char *const any[] = { "ww_cpu_softmax(", "ww_cpu_log_softmax(", "ww_cpu_layernorm(", "ww_cpu_rmsnorm(",
		"ww_row_lse(" };
	struct knobs loops[64] = { 0 };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(loops); i++)
		loops[i].cpu_rows.loops = 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name), *d = device();
		struct pl_result r, plain;

		ww_pl_build(g, d, "cpu", NULL, 0, NULL, &r);
		ww_pl_build(g, d, "cpu", loops, WW_ARRAY_LEN(loops), NULL, &plain);
		assert_true(r.ok && plain.ok);
		if (want[i].call && !strstr(r.device_text, want[i].call))
			fail_msg("%s: no %s", want[i].name, want[i].call);
		for (size_t j = 0; j < WW_ARRAY_LEN(any); j++) {
			assert_null(strstr(plain.device_text, any[j]));
			if (!want[i].call)
				assert_null(strstr(r.device_text, any[j]));
		}
		ww_pl_result_release(&r);
		ww_pl_result_release(&plain);
		json_decref(g);
		json_decref(d);
	}
}

/* Blocks that repeat are written once: a network of four convolutions with their norms, four layers and twenty steps of
 * a cell. */
static void test_repeated_kernels_are_shared(void **state)
{
	(void)state;
	for (int t = 0; t < 2; t++) {
		json_t *g = fixture("blocks.json");
		struct pl_result r;
		int shared = 0, written = 0;

		build(g, t ? "cuda" : "cpu", &r);
		assert_true(r.ok);
		for (const char *at = r.plan_text; (at = strstr(at, " again)")); at++)
			shared++;
		for (const char *at = r.device_text; (at = strstr(at, t ? "__global__" : "WW_KERNEL(")); at++)
			written++;
		assert_true(shared >= 40);
		assert_true(written <= 40);
		assert_non_null(strstr(r.plan_text, "k3  rows"));
		assert_null(strstr(r.device_text, t ? " k3(" : "WW_KERNEL(k3)"));
		assert_null(strstr(r.plan_text, "\"k3\""));
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Two poolings one after the other: windows inside an expression, whose variables have other names each time. */
static void test_windows_are_shared(void **state)
{
	static const char out[] = "[{\"dtype\":\"float32\",\"sizes\":[2,3,8,8],\"strides\":[192,64,8,1]}]";
	char text[2048];
	json_t *g;

	(void)state;
	snprintf(text, sizeof(text),
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"sizes\":[2,3,8,8],\"strides\":[192,64,8,1]}],\"nodes\":["
		"{\"name\":\"a\",\"op\":\"aten.avg_pool2d.default\",\"args\":[{\"ref\":\"x\"},[3,3],[1,1],[1,1]],\"out\":%s},"
		"{\"name\":\"b\",\"op\":\"aten.avg_pool2d.default\",\"args\":[{\"ref\":\"a\"},[3,3],[1,1],[1,1]],\"out\":%s}],"
		"\"outputs\":[{\"ref\":\"a\",\"dtype\":\"float32\",\"sizes\":[2,3,8,8],\"strides\":[192,64,8,1]},"
		"{\"ref\":\"b\",\"dtype\":\"float32\",\"sizes\":[2,3,8,8],\"strides\":[192,64,8,1]}]}",
		out, out);
	g = json_loads(text, 0, NULL);
	assert_non_null(g);
	for (int t = 0; t < 2; t++) {
		struct pl_result r;

		build(g, t ? "cuda" : "cpu", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(r.n_kern, 2);
		assert_int_equal(count(r.plan_text, " again)"), 1);
		assert_int_equal(count(r.device_text, t ? "__global__" : "WW_KERNEL("), 1);
		ww_pl_result_release(&r);
	}
	json_decref(g);
}

static void test_unknown_operator_is_named(void **state)
{
	json_t *g = fixture("example_softmax.json");
	struct pl_result r;

	(void)state;
	json_object_set_new(json_array_get(json_object_get(g, "nodes"), 0), "op", json_string("aten.nonesuch.default"));
	build(g, "cpu", &r);
	assert_false(r.ok);
	assert_non_null(strstr(r.why, "aten.nonesuch.default"));
	ww_pl_result_release(&r);
	json_decref(g);
}

/* ---- A refusal names the case at hand */

/* An EmbeddingBag over a table of 10 by 4 and 6 indices; offsets, weights of the indices and padding as given. */
static json_t *bag_graph(const char *offsets, const char *weights, const char *padding)
{
	char text[4096];
	snprintf(text, sizeof(text),
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"int64\",\"sizes\":[6],\"strides\":[1]},"
		"{\"name\":\"o\",\"dtype\":\"int64\",\"sizes\":[3],\"strides\":[1]},"
		"{\"name\":\"s\",\"dtype\":\"float32\",\"sizes\":[6],\"strides\":[1]}],"
		"\"params\":[{\"name\":\"w\",\"dtype\":\"float32\",\"sizes\":[10,4],\"strides\":[4,1],\"role\":\"param\",\"used\":true}],"
		"\"nodes\":[{\"name\":\"arange\",\"op\":\"aten.arange.start_step\",\"args\":[0,6,2],\"kwargs\":{\"dtype\":\"int64\"},"
		"\"out\":[{\"dtype\":\"int64\",\"sizes\":[3],\"strides\":[1]}]},"
		"{\"name\":\"bag\",\"op\":\"aten.embedding_bag.padding_idx\",\"args\":[{\"ref\":\"w\"},{\"ref\":\"x\"},{\"ref\":\"%s\"},"
		"false,1,false,%s,false,%s],\"out\":[{\"dtype\":\"float32\",\"sizes\":[3,4],\"strides\":[4,1]},"
		"{\"dtype\":\"int64\",\"sizes\":[6],\"strides\":[1]},{\"dtype\":\"int64\",\"sizes\":[3],\"strides\":[1]},"
		"{\"dtype\":\"int64\",\"sizes\":[3],\"strides\":[1]}]},"
		"{\"name\":\"r\",\"op\":\"getitem\",\"args\":[{\"ref\":\"bag\"},0],\"kwargs\":{},"
		"\"out\":[{\"dtype\":\"float32\",\"sizes\":[3,4],\"strides\":[4,1]}]}],"
		"\"outputs\":[{\"ref\":\"r\",\"dtype\":\"float32\",\"sizes\":[3,4],\"strides\":[4,1]}]}",
		offsets, weights, padding);
	return json_loads(text, 0, NULL);
}

/* Bags of one length and of others, weighted, with padding. */
static void test_every_bag_is_covered(void **state)
{
	static const char *const rows[][3] = { { "arange", "null", "null" }, { "o", "null", "null" },
		{ "arange", "{\"ref\":\"s\"}", "null" }, { "arange", "null", "3" }, { "o", "null", "3" } };

	(void)state;
	for (size_t i = 0; i < 2 * WW_ARRAY_LEN(rows); i++) {
		json_t *g = bag_graph(rows[i / 2][0], rows[i / 2][1], rows[i / 2][2]);
		struct pl_result r;

		assert_non_null(g);
		build(g, i % 2 ? "cuda" : "cpu", &r);
		if (!r.ok)
			fail_msg("%s", r.why);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* The size at hand and the limit. */
static void test_refusals_name_the_case(void **state)
{
	static const char text[] =
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"sizes\":[99,99],\"strides\":[99,1]}],\"nodes\":["
		"{\"name\":\"inv\",\"op\":\"aten.linalg_inv.default\",\"args\":[{\"ref\":\"x\"}],"
		"\"out\":[{\"dtype\":\"float32\",\"sizes\":[99,99],\"strides\":[99,1]}]}],"
		"\"outputs\":[{\"ref\":\"inv\",\"dtype\":\"float32\",\"sizes\":[99,99],\"strides\":[99,1]}]}";
	json_t *g = json_loads(text, 0, NULL);
	struct pl_result r;

	(void)state;
	build(g, "cpu", &r);
	assert_false(r.ok);
	if (!strstr(r.why, "aten.linalg_inv.default (node inv): matrices of 99 rows; up to 32"))
		fail_msg("%s", r.why);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* The build ends while a kernel is being written: an operation on integers that has no text. */
static void test_a_refusal_leaks_nothing(void **state)
{
	static const char text[] =
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"int64\",\"sizes\":[4096],\"strides\":[1]}],\"nodes\":["
		"{\"name\":\"mul\",\"op\":\"aten.mul.Tensor\",\"args\":[{\"ref\":\"x\"},{\"ref\":\"x\"}],"
		"\"out\":[{\"dtype\":\"int64\",\"sizes\":[4096],\"strides\":[1]}]},"
		"{\"name\":\"exp\",\"op\":\"aten.exp.default\",\"args\":[{\"ref\":\"mul\"}],"
		"\"out\":[{\"dtype\":\"int64\",\"sizes\":[4096],\"strides\":[1]}]}],"
		"\"outputs\":[{\"ref\":\"exp\",\"dtype\":\"int64\",\"sizes\":[4096],\"strides\":[1]}]}";
	json_t *g = json_loads(text, 0, NULL);

	(void)state;
	for (int t = 0; t < 2; t++) {
		size_t before = 0;

		for (int i = 0; i < 8; i++) { /* malloc's own caches are warm after some */
			struct pl_result r;

			build(g, t ? "cuda" : "cpu", &r);
			assert_false(r.ok);
			assert_non_null(strstr(r.why, "EXP (node exp): no rule for this type"));
			ww_pl_result_release(&r);
			before = i == 3 ? mallinfo2().uordblks : before;
		}
		assert_int_equal(mallinfo2().uordblks, before); /* both 0 under LeakSanitizer, which looks itself */
	}
	json_decref(g);
}

/* Graphs of float32 (8, 8) from x: rows of name, operator, operand, second operand, and what else the row says. */
struct op_row {
	const char *name, *op, *a, *b, *more;
};

static json_t *graph_of(const struct op_row *row, size_t n)
{
	static const char tensor[] = "\"dtype\":\"float32\",\"sizes\":[8,8],\"strides\":[8,1]";
	char text[4000], *t = text, *end = text + sizeof(text);

	t += snprintf(t, (size_t)(end - t), "{\"inputs\":[{\"name\":\"x\",%s}],\"nodes\":[", tensor);
	for (size_t i = 0; i < n; i++)
		t += snprintf(t, (size_t)(end - t),
			"%s{\"name\":\"%s\",\"op\":\"aten.%s\",\"args\":[{\"ref\":\"%s\"}%s%s%s],\"out\":[{%s}]%s}", i ? "," : "",
			row[i].name, row[i].op, row[i].a, row[i].b ? ",{\"ref\":\"" : "", row[i].b ? row[i].b : "",
			row[i].b ? "\"}" : "", tensor, row[i].more ? row[i].more : "");
	snprintf(t, (size_t)(end - t), "],\"outputs\":[{\"ref\":\"%s\",%s}]}", row[n - 1].name, tensor);
	return json_loads(text, 0, NULL);
}

/* What no rule covers runs as PyTorch runs it, between kernels: segments are as few as the order allows.  Both lists of
 * nodes, and what is handed over. */
static void test_partition(void **state)
{
	/* two of one level, one behind a kernel behind them */
	static const struct op_row ops[] = { { "relu", "relu.default", "x", NULL, NULL },
		{ "one", "nonesuch.default", "relu", NULL, NULL }, { "two", "nonesuch.default", "x", NULL, NULL },
		{ "both", "exp.default", "one", NULL, NULL }, { "three", "nonesuch.default", "both", NULL, NULL },
		{ "last", "exp.default", "three", NULL, NULL }, { "add", "add.Tensor", "last", "two", NULL } };
	struct pl_result r;
	json_t *g = graph_of(ops, WW_ARRAY_LEN(ops));

	(void)state;
	assert_non_null(g);
	for (int cuda = 0; cuda < 2; cuda++) {
		build(g, cuda ? "cuda" : "cpu", &r);
		assert_string_equal(r.why, "");
		assert_int_equal(count(r.plan_text, "ww_pytorch(p"), 2);
		assert_non_null(strstr(r.plan_text, ".nodes = \"one two\", .reads = \"relu\", .writes = \"one two\""));
		assert_non_null(strstr(r.plan_text, ".nodes = \"three\", .reads = \"both\", .writes = \"three\""));
		assert_non_null(strstr(r.plan_text, "traced sizes"));
		assert_int_equal(r.n_own, 3); /* relu; exp; exp and add */
		ww_pl_result_release(&r);
	}
	json_decref(g);
}

/* What PyTorch computes faster by the rules' own estimates is PyTorch's on cuda, unless nothing would be left for
 * kernels of ours. */
static void test_left_to_pytorch(void **state)
{
	static const struct {
		const char *name, *left, *own, *cpu;
	} want[] = { { "sorted_losses.json", "PyTorch: sort, getitem", "rows: sort", "sort: " },
		{ "gru_of_many.json", "PyTorch: gru, getitem", "recurrent layers: gru", "recurrent layer: gru" },
		/* no block holds a row of 70,000 sums; on the cpu each element is added once, in its order */
		{ "wide_sums.json", "PyTorch: scatter_add", "rows: relu, new_zeros, scatter_add",
			"scatter: relu, new_zeros, scatter_add" } };
	static const char alone[] =
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [8000], \"strides\": [1]}], \"params\": [], "
		"\"nodes\": [{\"name\": \"n\", \"op\": \"aten.msort.default\", \"args\": [{\"ref\": \"x\"}], \"kwargs\": {}, "
		"\"out\": [{\"dtype\": \"float32\", \"sizes\": [8000], \"strides\": [1]}]}], "
		"\"outputs\": [{\"ref\": \"n\", \"dtype\": \"float32\", \"sizes\": [8000], \"strides\": [1]}]}";
	const struct pl_options own = { .own = 1 };
	json_t *d = device(), *g;
	struct pl_result r;

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		g = fixture(want[i].name);
		for (int k = 0; k < 3; k++) {
			ww_pl_build(g, d, k == 2 ? "cpu" : "cuda", NULL, 0, k == 1 ? &own : NULL, &r);
			assert_string_equal(r.why, "");
			assert_int_equal(strstr(r.plan_text, "ww_pytorch(p") != NULL, k == 0);
			assert_non_null(strstr(r.plan_text, k == 2 ? want[i].cpu : k ? want[i].own : want[i].left));
			ww_pl_result_release(&r);
		}
		json_decref(g);
	}
	g = json_loads(alone, 0, NULL);
	assert_non_null(g);
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	assert_null(strstr(r.plan_text, "ww_pytorch(p"));
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* Operators without a rule that work in place, or stand ahead of one that does. */
static void test_in_place(void **state)
{
	static const struct op_row writes[] = { { "clone", "clone.default", "x", NULL, NULL },
		{ "f_", "nonesuch_.default", "clone", NULL, NULL }, { "add", "add.Tensor", "clone", "x", NULL } };
	static const struct op_row ahead[] = { { "u", "nonesuch.default", "x", NULL, NULL },
		{ "clone", "clone.default", "x", NULL, NULL }, { "relu_", "relu_.default", "clone", NULL, NULL },
		{ "add", "add.Tensor", "clone", "u", NULL } };
	static const struct op_row stale[] = { { "clone", "clone.default", "x", NULL, NULL },
		{ "u", "nonesuch.default", "clone", NULL, ",\"bytes\":0" }, { "relu_", "relu_.default", "clone", NULL, NULL },
		{ "add", "add.Tensor", "clone", "u", NULL } };
	static const struct op_row input[] = { { "relu_", "relu_.default", "x", NULL, NULL },
		{ "u", "nonesuch.default", "x", NULL, NULL }, { "add", "add.Tensor", "u", "x", NULL } };
	static const struct {
		const struct op_row *row;
		size_t n;
		const char *plan, *why;
	} cases[] = { { writes, WW_ARRAY_LEN(writes), ".nodes = \"f_\", .reads = \"clone\", .writes = \"f_\"", NULL },
		{ ahead, WW_ARRAY_LEN(ahead), ".nodes = \"u\", .reads = \"\", .writes = \"u\"", NULL },
		{ stale, WW_ARRAY_LEN(stale), NULL, "no rule for this operator" },
		{ input, WW_ARRAY_LEN(input), NULL, "no rule for this operator" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		json_t *g = graph_of(cases[i].row, cases[i].n);
		struct pl_result r;

		assert_non_null(g);
		build(g, i % 2 ? "cuda" : "cpu", &r);
		assert_int_equal(r.ok, cases[i].plan != NULL);
		if (!strstr(r.ok ? r.plan_text : r.why, r.ok ? cases[i].plan : cases[i].why))
			fail_msg("%zu: %s", i, r.ok ? r.plan_text : r.why);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* ---- Spellings of torch.einsum: equations that mean the same give the same texts. */

static char *einsum_text(const char *equation, const char *target)
{
	json_t *g = fixture("matmuls.json"), *node;
	struct pl_result r;
	size_t i;
	char *text;

	json_array_foreach(json_object_get(g, "nodes"), i, node)
		if (!strcmp(ww_json_str(node, "name", ""), "einsum"))
			json_array_set_new(json_object_get(node, "args"), 0, json_string(equation));
	build(g, target, &r);
	text = strdup(!r.ok                                  ? r.why
			: strstr(r.plan_text, ".nodes = \"einsum\"") ? "cannot cover aten.einsum"
														 : r.device_text);
	ww_pl_result_release(&r);
	json_decref(g);
	return text;
}

static void test_einsum_spellings(void **state)
{
	static const char *const same[] = { "bij , bjk -> bik", "...ij,...jk->...ik", "...ij,...jk", "b...j,bjk->b...k" };
	static const char *const wrong[] = { "bii,bjk->bik", "bij,bjk->bikz", "bij,bjk->bi", "bi,bjk->bik", "bij->bij",
		"b1j,bjk->bik", "" };
	char *plain, *other;

	(void)state;
	for (int t = 0; t < 2; t++) {
		const char *target = t ? "cuda" : "cpu";

		plain = einsum_text("bij,bjk->bik", target);
		assert_non_null(strstr(plain, "k0"));
		for (size_t i = 0; i < WW_ARRAY_LEN(same); i++) {
			other = einsum_text(same[i], target);
			if (strcmp(plain, other))
				fail_msg("\"%s\" for %s gives other kernels: %.200s", same[i], target, other);
			free(other);
		}
		for (size_t i = 0; i < WW_ARRAY_LEN(wrong); i++) {
			other = einsum_text(wrong[i], target);
			if (!strstr(other, "aten.einsum")) /* by its rule, or as a graph that PyTorch does not make */
				fail_msg("\"%s\" was taken", wrong[i]);
			free(other);
		}
		free(plain);
	}
}

/* x (m, k) times the transpose of w (n, k), then relu; `result` is the output. */
static json_t *product(const char *dtype, int m, int n, int k, const char *result)
{
	char text[2000];

	snprintf(text, sizeof(text),
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"%s\",\"sizes\":[%d,%d],\"strides\":[%d,1]}],"
		"\"params\":[{\"name\":\"w\",\"dtype\":\"%s\",\"sizes\":[%d,%d],\"strides\":[%d,1],\"role\":\"param\",\"used\":true}],"
		"\"nodes\":[{\"name\":\"linear\",\"op\":\"aten.linear.default\",\"args\":[{\"ref\":\"x\"},{\"ref\":\"w\"}],"
		"\"out\":[{\"dtype\":\"%s\",\"sizes\":[%d,%d],\"strides\":[%d,1]}]},"
		"{\"name\":\"relu\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"linear\"}],"
		"\"out\":[{\"dtype\":\"%s\",\"sizes\":[%d,%d],\"strides\":[%d,1]}]}],"
		"\"outputs\":[{\"ref\":\"%s\",\"dtype\":\"%s\",\"sizes\":[%d,%d],\"strides\":[%d,1]}]}",
		dtype, m, k, k, dtype, n, k, k, dtype, m, n, n, dtype, m, n, n, result, dtype, m, n, n);
	return json_loads(text, 0, NULL);
}

/* The cpu's templates read 16 bits: no kernel widens operands first. */
static void test_half_on_the_cpu(void **state)
{
	static const char *const want[][2] = { { "bfloat16", "ww_cpu_gemm_bf16(b" }, { "float16", "ww_cpu_gemm_f16(b" },
		{ "float32", "ww_cpu_gemm(b" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = product(want[i][0], 64, 40, 56, "relu");
		struct pl_result r;

		assert_non_null(g);
		build(g, "cpu", &r);
		assert_true(r.ok);
		assert_int_equal(r.n_kern, 1);
		assert_non_null(strstr(r.device_text, want[i][1]));
		assert_int_equal(strstr(r.plan_text, ".half = 1") != NULL, i < 2);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Few rows read B once where it lies, as far as K pays for a sum across lanes for each result. */
static void test_few_rows_on_the_cpu(void **state)
{
	static const struct {
		const char *dtype;
		int m, k;
		const char *want;
	} want[] = { { "bfloat16", 17, 896, "ww_cpu_gemm_thin_bf16(b" }, { "float16", 2, 512, "ww_cpu_gemm_thin_f16(b" },
		{ "float32", 32, 256, "ww_cpu_gemm_thin(b" }, { "float32", 33, 256, "ww_cpu_gemm(b" },
		{ "float32", 24, 32, "ww_cpu_gemm(b" }, { "float32", 8, 32, "ww_cpu_gemm_thin(b" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = product(want[i].dtype, want[i].m, 40, want[i].k, "relu");
		struct pl_result r;

		assert_non_null(g);
		build(g, "cpu", &r);
		assert_true(r.ok);
		assert_non_null(strstr(r.device_text, want[i].want));
		assert_int_equal(
			strstr(r.plan_text, "ww_recipe_cpu_gemm_thin(p") != NULL, strstr(want[i].want, "_thin") != NULL);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* product() of a matrix that is stored (k, n). */
static json_t *turned_product(const char *dtype, int m, int n, int k, const char *result)
{
	json_t *g = product(dtype, m, n, k, result), *w = json_array_get(json_object_get(g, "params"), 0);

	json_object_set_new(w, "sizes", json_pack("[i,i]", k, n));
	json_object_set_new(w, "strides", json_pack("[i,i]", n, 1));
	json_object_set_new(json_array_get(json_object_get(g, "nodes"), 0), "op", json_string("aten.mm.default"));
	return g;
}

/* Which form a product takes by its size, what it is made of before it, and what it is not. */
static void test_forms_of_products(void **state)
{
	static const struct {
		const char *dtype;
		int m, n, k;
		const char *with, *without;
		int pads; /* operands that are copied to aligned rows along k */
		const char *result;
		int turned;
	} want[] = { { "float32", 512, 128, 256, "ww_recipe_gemm_mma(p", "ww_recipe_split(p", 0, "relu", 0 },
		{ "float32", 4096, 4096, 4096, "ww_recipe_gemm3(p", "ww_recipe_gemm_mma(p", 0, "relu", 0 },
		{ "float32", 262144, 128, 128, "ww_recipe_gemm_mma(p", "ww_recipe_split(p", 0, "relu", 0 },
		{ "bfloat16", 13381, 467, 257, "ww_recipe_gemm16(p", "library", 2, "relu", 0 },
		{ "bfloat16", 13381, 467, 256, "ww_recipe_gemm16(p", "library", 0, "relu", 0 },
		{ "float16", 127, 64, 67, "ww_recipe_gemm_mma(p", "ww_recipe_pad(p", 0, "relu", 0 },
		/* few columns or a short K are not the library's; measured: bench/results/products.md */
		{ "float32", 393728, 16, 24, "ww_recipe_gemm_mma(p", "library", 0, "linear", 0 },
		{ "float16", 477, 2, 1272, "ww_recipe_gemm_mma(p", "library", 0, "linear", 0 },
		{ "float32", 93184, 208, 104, "ww_recipe_gemm3(p", "library", 0, "linear", 0 },
		{ "float32", 18089, 448, 64, "ww_recipe_gemm_mma(p", "library", 0, "linear", 0 },
		/* an odd number of columns, some 300 us by gemm_mma, which stores them one by one */
		{ "float32", 65536, 469, 80, "ww_recipe_gemm3(p", "ww_recipe_gemm_mma(p", 0, "linear", 0 },
		/* element by element 7.7 and 4.0 ms, cuBLAS on aligned copies .4 and .9 */
		{ "bfloat16", 54272, 627, 3983, "ww_recipe_gemm16(p", "ww_recipe_gemm_mma(p", 2, "linear", 1 },
		{ "bfloat16", 8133, 8192, 5086, "ww_recipe_gemm16(p", "ww_recipe_gemm_mma(p", 2, "relu", 1 },
		{ "float16", 127, 64, 67, "ww_recipe_gemm_mma(p", "ww_recipe_pad(p", 0, "relu", 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = (want[i].turned ? turned_product : product)(
			want[i].dtype, want[i].m, want[i].n, want[i].k, want[i].result);
		struct pl_result r;

		assert_non_null(g);
		build(g, "cuda", &r);
		assert_true(r.ok);
		if (!strstr(r.plan_text, want[i].with) || strstr(r.plan_text, want[i].without) ||
			count(r.plan_text, "ww_recipe_pad(p") != want[i].pads)
			fail_msg("%s %d x %d x %d: %s", want[i].dtype, want[i].m, want[i].n, want[i].k, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* A bias that is all that follows a product of the library's is the library's epilogue; what else follows is
 * the end of our tiles, eight columns at a time where eight divides them. */
static void test_ends_of_products(void **state)
{
	static const struct {
		int m, n, k;
		const char *result, *plan, *kernels, *dtype;
	} want[] = { { 114176, 856, 856, "linear", ".epilogue = WW_EPI_BIAS, .bias_buf = p_b->buf", "", "bfloat16" },
		{ 64144, 61, 87, "linear", ".epilogue = WW_EPI_BIAS, .bias_buf = p_b->buf", "", "float32" },
		{ 114176, 856, 856, "relu", "ww_recipe_gemm16(p", "k0_CLUSTER, k0_GROUP, 8>(", "bfloat16" },
		{ 114176, 852, 856, "relu", "ww_recipe_gemm16(p", "k0_CLUSTER, k0_GROUP>(", "bfloat16" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = product(want[i].dtype, want[i].m, want[i].n, want[i].k, want[i].result),
			   *linear = json_array_get(json_object_get(g, "nodes"), 0);
		struct pl_result r;

		json_array_append_new(json_object_get(g, "params"),
			json_pack("{s:s,s:s,s:[i],s:[i],s:s,s:b}", "name", "b", "dtype", want[i].dtype, "sizes", want[i].n,
				"strides", 1, "role", "param", "used", 1));
		json_array_append_new(json_object_get(linear, "args"), json_pack("{s:s}", "ref", "b"));
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, want[i].plan) || !strstr(r.device_text, want[i].kernels) ||
			strstr(r.plan_text, "after_library"))
			fail_msg("%d x %d: %s%s", want[i].m, want[i].n, r.plan_text, r.device_text);
		assert_int_equal(strstr(r.device_text, "__global__") != NULL, i > 1);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* cuda: what memory says.  Rows of a product along which the operand's memory does not run are lanes by their part
 * along which it does; a costly value that a lane needs again stays in its registers; a bias ahead of a split is the
 * product's end, stored in 16 bits; heads that become features are written by the library where they belong; what reads
 * two tensors beside one wave of a convolution's tiles is a kernel of its own. */
static void test_memory_orders(void **state)
{
	static const struct {
		const char *name, *plan, *not_in_plan, *kernels, *not_in_kernels;
	} want[] = { { "rows_of_parts.json", "k0_TX", "k0_CL", "i34 + i25*21)]", "in_x[((" },
		{ "kept_down.json", "k0_TX", "k0_CL", "kept0[j][0] = v0", "erff(x0[j][0]);\n\tconst float v5" },
		{ "modulated.json", "k2_V", "k3_V", "__nv_bfloat16 *t1", "float *__restrict__ t1" },
		{ "heads_to_features.json", ".ld = 256, .batch_stride = 32 }", "after_library", "k1", "k0" },
		{ "conv_end.json", "k1_V", "k2", "ww::conv_tc<k0_shape>", "k0_f{p_conv_bias, in_y" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, want[i].plan) || strstr(r.plan_text, want[i].not_in_plan) ||
			!strstr(r.device_text, want[i].kernels) || strstr(r.device_text, want[i].not_in_kernels))
			fail_msg("%s: %s%s", want[i].name, r.plan_text, r.device_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* All tensors of x are of this type. */
static void to_dtype(json_t *x, const char *dtype)
{
	const char *key;
	json_t *at;
	size_t i;

	if (json_is_object(x) && json_object_get(x, "dtype"))
		json_object_set_new(x, "dtype", json_string(dtype));
	json_object_foreach(x, key, at)
		to_dtype(at, dtype);
	json_array_foreach(x, i, at)
		to_dtype(at, dtype);
}

/* Long rows of 16 bits that blocks of a cluster share: as many bytes a thread as of fp32. */
static void test_long_rows_of_16_bits(void **state)
{
	static const struct {
		const char *dtype, *elements;
	} want[] = { { "float16", "rows * cl >= 8LL * ww_device(p)->sm_count && cols <= 128 * cl * 56 ? 56" },
		{ "float32", "cols > t * cl * (t >= 256 && rows * cl >= 8LL" } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = convolution_and_norm(30, 256, 256, 32, 1);
		struct pl_result r;

		to_dtype(g, want[i].dtype);
		build(g, "cuda", &r);
		assert_string_equal(r.why, "");
		if (!strstr(r.plan_text, want[i].elements))
			fail_msg("%s", r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Many long rows come to a cluster's shared memory: as few blocks as have room for two rows or more, 16 on a whole
 * device; few rows, or longer ones, do not.  The solution holds for fewer rows. */
static void test_rings(void **state)
{
	static const char *const want[] = { "ww::ring<float, CL, k0_DEPTH, k0_VECTORS, 2> ring(in_x, rows, cols,",
		"ww::load(staged + i5_0, x0);", "a1 = pl_all<PL_SUM, CL>(ring.share(1, a1));" };
	static const struct {
		long long rows, cols;
		int itemsize, sms, blocks, depth;
	} rings[] = { { 4096, 50257, 4, 132, 2, 2 }, { 4096, 393216, 4, 132, 16, 2 }, { 4096, 393216, 4, 120, 0, 0 },
		{ 32768, 65535, 4, 132, 4, 3 }, { 32768, 65535, 2, 132, 2, 3 }, { 32768, 17000, 4, 132, 1, 3 },
		{ 100, 393216, 4, 132, 0, 0 }, { 4096, 500000, 4, 132, 0, 0 } };
	struct pl_result r = cuda_holds("cuda_softmax.json", want, WW_ARRAY_LEN(want), 1);

	(void)state;
	assert_non_null(strstr(r.plan_text, "ww_shared(p, r.bytes);"));
	ww_pl_result_release(&r);
	for (size_t i = 0; i < WW_ARRAY_LEN(rings); i++) {
		struct ww_ring ring = ww_ring_of(rings[i].rows, rings[i].cols, rings[i].itemsize, rings[i].sms, 232448);

		assert_true(ring.each > 0); /* plan.c divides by it before the refusal is read */
		if (ring.blocks)
			assert_int_equal(ww_ring_is_full(&ring, rings[i].rows, rings[i].sms), rings[i].blocks > 0);
		if (rings[i].blocks) {
			assert_int_equal(ring.blocks, rings[i].blocks);
			assert_int_equal(ring.depth, rings[i].depth);
		}
		assert_true(ring.bytes <= 232448 - 1024 && (long long)ring.vectors * ring.blocks * 16 <= 8 << 20);
	}
}

/* A product of 16 bits that later rows read is written by the library, with its bias and in 16 bits. */
static void test_sums_with_bias(void **state)
{
	json_t *g = product("float16", 3072, 1280, 5120, "relu"), *nodes = json_object_get(g, "nodes");
	struct pl_result r;

	(void)state;
	json_array_append_new(json_object_get(g, "params"),
		json_pack("{s:s,s:s,s:[i],s:[i],s:s,s:b}", "name", "b", "dtype", "float16", "sizes", 1280, "strides", 1, "role",
			"param", "used", 1));
	json_array_append_new(
		json_object_get(json_array_get(nodes, 0), "args"), json_pack("{s:s}", "ref", "b")); /* a bias */
	json_array_set_new(nodes, 1,
		json_pack("{s:s,s:s,s:[{s:s},[i]],s:[{s:s,s:[i,i],s:[i,i]}]}", "name", "relu", "op", "aten.layer_norm.default",
			"args", "ref", "linear", 1280, "out", "dtype", "float16", "sizes", 3072, 1280, "strides", 1280, 1));
	build(g, "cuda", &r);
	assert_string_equal(r.why, "");
	if (!strstr(r.plan_text, ".dtype = WW_F16, .ld = 1280") || !strstr(r.plan_text, "WW_EPI_BIAS") ||
		strstr(r.plan_text, "after_library"))
		fail_msg("%s%s", r.plan_text, r.device_text);
	ww_pl_result_release(&r);
	json_decref(g);
}

/* Products of both types as an H200 took them, with the fastest tile: the estimate is near, and so is the choice. */
static void test_tiles_as_measured(void **state)
{
	static const struct {
		struct ww_mma_size s;
		double us;
	} want[] = { { { 64, 64, 64, 1, 4, 4, 4, 132, 0 }, 2.32 }, { { 127, 2112, 12928, 1, 4, 4, 4, 132, 0 }, 193.08 },
		{ { 2048, 2048, 2048, 1, 4, 4, 4, 132, 0 }, 300.22 }, { { 288, 288, 128, 640, 4, 4, 4, 132, 0 }, 362.12 },
		{ { 1215, 1665, 135, 1, 4, 1, 1, 132, 0 }, 29.20 }, { { 2048, 2048, 2048, 1, 2, 8, 8, 132, 0 }, 64.90 },
		{ { 127, 2112, 12928, 1, 2, 8, 8, 132, 0 }, 56.23 }, { { 64, 512, 8192, 1, 2, 8, 8, 132, 0 }, 12.52 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		const struct ww_mma_tile t = ww_mma_choose(&want[i].s);

		if (t.us < want[i].us / 1.2 || t.us > want[i].us * 1.2)
			fail_msg("%lld x %lld x %lld takes %.1f us, estimated %.1f", want[i].s.m, want[i].s.n, want[i].s.k,
				want[i].us, t.us);
		if (want[i].s.k > 8000) /* long and thin: shared by as many blocks as can */
			assert_int_equal(t.split, 8);
	}
	/* 128 tiles of 64 x 32 are a block alone on each multiprocessor, which took 49 us */
	assert_int_equal(ww_mma_choose(&(struct ww_mma_size){ 256, 1024, 2048, 1, 4, 4, 4, 132, 0 }).split, 8);
}

/* Many rows up to 1,024 words are split by a warp each, few of them by a block each: it has the more loads under way.
 */
static void test_rows_split_by_warps(void **state)
{
	(void)state;
	assert_int_equal(ww_split_held(32, 8, 132), 1);
	assert_int_equal(ww_split_held(512, 8, 132), 4);
	assert_int_equal(ww_split_held(576, 131072, 132), 5);
	assert_int_equal(ww_split_held(1024, 131072, 132), 8);
	assert_int_equal(ww_split_held(576, 512, 132), 0);
	assert_int_equal(ww_split_held(1056, 131072, 132), 0);
}

static void test_hostile_graphs(void **state)
{
	static const char *const text[] = {
		"{}", "[]", "{\"nodes\":3,\"outputs\":[]}", "{\"nodes\":[],\"outputs\":[{\"ref\":\"x\"}]}",
		"{\"nodes\":[{\"name\":\"a\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"a\"}],\"out\":[{\"dtype\":\"float32\",\"sizes\":[4],\"strides\":[1]}]}],"
		"\"outputs\":[{\"ref\":\"a\",\"dtype\":\"float32\",\"sizes\":[4],\"strides\":[1]}]}",
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"sizes\":[-4],\"strides\":[1]}],\"nodes\":[],\"outputs\":[]}",
		"{\"inputs\":[{\"name\":\"x\",\"dtype\":\"complex64\",\"sizes\":[4],\"strides\":[1]}],\"nodes\":[],\"outputs\":[]}"
	};

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(text); i++) {
		json_t *g = json_loads(text[i], 0, NULL);
		struct pl_result r;

		assert_non_null(g);
		build(g, "cpu", &r);
		assert_false(r.ok);
		assert_true(r.why[0] != 0);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* ---- The texts compile.  plan.c's ww_define() and WW_SIZE() lines give the macros; their values do not matter for the
 * syntax. */

static void put(const char *dir, const char *name, const char *text)
{
	struct ww_err err = WW_ERR_INIT;
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (ww_fs_write(path, text, strlen(text), &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static int value_of(const char *name)
{
	static const struct {
		const char *end;
		int v;
	} known[] = { { "_V", 1 }, { "_T", 32 }, { "_R", 4 }, { "_CH", 4 }, { "_CL", 1 }, { "_TX", 32 }, { "_TY", 2 },
		{ "_U", 1 }, { "_BLOCK", 256 }, { "IX64_", 0 } };

	for (size_t i = 0; i < WW_ARRAY_LEN(known); i++)
		if (strlen(name) >= strlen(known[i].end) && !strcmp(name + strlen(name) - strlen(known[i].end), known[i].end))
			return known[i].v;
	return 64;
}

static void add_defines(struct ww_str *cmd, const char *plan)
{
	for (const char *at = plan; (at = strstr(at, "ww_define(p, \"")); at++) {
		char name[64] = "";

		sscanf(at, "ww_define(p, \"%63[A-Za-z0-9_]", name);
		ww_str_addf(cmd, " -D%s=%d", name, value_of(name));
	}
	for (const char *at = plan; (at = strstr(at, "WW_SIZE(")); at++) {
		char name[64] = "";

		sscanf(at, "WW_SIZE(%63[A-Za-z0-9_]", name);
		ww_str_addf(cmd, " -D%s_=64", name);
	}
}

static void run(const char *cmd, const char *what)
{
	if (system(cmd) != 0)
		fail_msg("%s does not compile: %s", what, cmd);
}

static void check_text(const char *dir, const char *name, const char *target)
{
	json_t *g = fixture(name);
	struct ww_str cmd = WW_STR_INIT(1 << 16);
	int cuda = !strcmp(target, "cuda");
	struct pl_result r;

	build(g, target, &r);
	assert_true(r.ok);
	put(dir, cuda ? "kernels.cu" : "kernels.c", r.device_text);
	put(dir, "plan.c", r.plan_text);
	ww_str_addf(
		&cmd, "cc -w -fsyntax-only -I%s/include -I%s/skills/cuda/include %s/plan.c", source_dir(), source_dir(), dir);
	run(cmd.p, name);
	ww_str_reset(&cmd);
	if (cuda)
		ww_str_addf(&cmd, "nvcc -w -std=c++17 -arch=sm_90a -cubin -o %s/k.cubin", dir);
	else
		ww_str_adds(&cmd, "cc -std=c17 -Wall -Werror -Wno-unused -fsyntax-only");
	add_defines(&cmd, r.plan_text);
	ww_str_addf(&cmd, " -I%s/include -I%s/skills/cuda/include %s/%s", source_dir(), source_dir(), dir,
		cuda ? "kernels.cu" : "kernels.c");
	run(cmd.p, name);
	ww_str_release(&cmd);
	ww_pl_result_release(&r);
	json_decref(g);
}

static int all;

static void test_texts_compile(void **state)
{
	static const char *const cpu[] = { "transformer.json", "convs.json", "half.json", "sums.json", "pools.json",
		"shapes.json", "losses.json", "scans.json", "example_softmax.json", "example_cross_entropy.json", "mlp3.json" };
	static const char *const gpu[] = { "groupnorm.json", "sums.json", "pools.json", "shapes.json", "gather.json",
		"gathered_max.json" };
	char dir[] = "/tmp/ww_planner_XXXXXX", tool[4096];
	struct ww_err err = WW_ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < (all ? WW_ARRAY_LEN(cpu) : 3); i++)
		check_text(dir, cpu[i], "cpu");
	if (ww_fs_which("nvcc", tool))
		for (size_t i = 0; i < (all ? WW_ARRAY_LEN(gpu) : 1); i++)
			check_text(dir, gpu[i], "cuda");
	else
		print_message("SKIP kernels.cu: no nvcc\n");
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
}

/* One operator on x and y (4, 8, 8), in `sizes` afterwards. */
static json_t *one_operator(const char *op, const char *args, const char *out)
{
	static const char tensor[] = "\"dtype\": \"float32\", \"sizes\": [4, 8, 8], \"strides\": [64, 8, 1]";
	char text[2000];
	json_error_t e;

	snprintf(text, sizeof(text),
		"{\"inputs\": [{\"name\": \"x\", %s}, {\"name\": \"y\", %s}], \"params\": [], \"nodes\": [{\"name\": \"n\", "
		"\"op\": \"aten.%s\", \"args\": %s, \"kwargs\": {}, \"out\": [{\"dtype\": \"float32\", %s}]}], "
		"\"outputs\": [{\"ref\": \"n\", \"dtype\": \"float32\", %s}]}",
		tensor, tensor, op, args, out, out);
	return json_loads(text, 0, &e);
}

/* What would be computed again for each reader, or for each pair, is stored, or is a template's; rows follow memory. */
static void test_work_is_not_repeated(void **state)
{
	static const struct {
		const char *name, *plan, *kernels;
	} want[] = {
		/* eight factors for each of the eight corners that each pixel reads; a norm over (1, h, w) is one of (h, w) */
		{ "pooled_upsample.json", "k0  rows: prod\n *   k1  rows: prod, upsample_bilinear2d, layer_norm\n */", "" },
		/* the tokens' memory runs along the rows, but what is read for each column does not */
		{ "embed_norm.json", "k0  rows: embedding, add, layer_norm\n */", "k0_T * k0_R" },
		/* a reduction whose row is looked up is no reduction of that row */
		{ "gathered_max.json", "k0  rows: add, max_1\n *   k1  pointwise: index_select\n */", "" },
		/* nor one that exists only where the padding's condition holds: row -1 would be read */
		{ "shifted_max.json", "k0  rows: amax\n *   k1  pointwise: pad\n */", "" },
		/* of 16 bits no sum is rounded before its bias is added; a residual whose sizes are named otherwise is added */
		{ "gated_half.json", "k0  gemm: linear, relu\n *   k1  gemm: linear_1, mul\n *   k2  gemm: linear_2, add\n */",
			"" },
		/* an operand that two products need in another order is copied once */
		{ "gated_across.json", "k0  pointwise: linear\n *   k1  gemm: linear\n *   k2  gemm: ", "" },
		/* a product's operand read across memory, along quotients of its rows: a warp reads whole sectors */
		{ "turned_heads.json", "k0  pointwise: tanh, add, transpose, unflatten, einsum\n", "HIGH = k0_HIGH" },
		/* 33 sums of 2,048 each, side by side in memory: in parts, of one dimension as of two */
		{ "few_columns.json",
			"k0  rows: sum_1\n *   k1  rows: sum_1\n *   k2  rows: view, square, mean\n *   k3  rows: mean\n */", "" },
		/* experts' hidden rows are activated where their product ends, and read expert by expert by strides */
		{ "experts.json", "k1  gemm: einsum, silu\n *   k2  gemm: einsum_1\n", "" },
		/* a scan whose operand's statistics needed another scan stored is no part of a row kernel any more */
		{ "scan_of_scanned_groups.json", "k1  rows: add, group_norm\n *   k2  cumsum: add, group_norm, cumsum_1\n",
			"" },
		/* channels that lie side by side ahead of a depthwise convolution and behind it are not turned for it */
		{ "convolved_steps.json", "k2  pointwise: conv1d, relu, transpose_1, linear\n *   k3  gemm: linear\n", "" },
		/* so are 2,048 of them, by blocks of several rows, which read the same ones */
		{ "convolved_wide.json", "k2  pointwise: conv1d, relu, transpose_1, linear\n",
			"enum { V = k2_V };\n\tconst ix_t cols = 2048 / V, rows = " },
		/* of as many channels as filters, also at other sizes */
		{ "convolved_steps.json", "\tWW_EQUAL(S3, 128);\n", "" },
		/* heads are joined where attention stores them, also where its length is a symbol that equals a number */
		{ "joined_heads.json",
			"k1  attention: scaled_dot_product_attention, transpose_3, flatten, linear\n *   k2  gemm: linear\n */",
			"" },
		/* two operands that are scaled, of the same size, have one launch */
		{ "joined_heads.json", "k0  pointwise: unflatten, transpose, mul, unflatten_1, transpose_1, mul_1\n", "" },
		/* channels behind a permutation are turned for a norm of them, unless its result lies as its operand */
		{ "norm_across.json",
			"k1  pointwise: conv2d, permute\n *   k2  rows: layer_norm\n *   k3  gemm: linear\n *   k4  rows: permute_1, "
			"permute_2, rms_norm, permute_3, add\n */",
			"" },
		/* a product's operand that lies along the channels, which are a part of its rows, is read by tiles */
		{ "mixed_tokens.json", "k1  pointwise: layer_norm, transpose, linear\n", "enum { HIGH = k1_HIGH, " },
		/* what a channel has is loaded once a row, not behind the padding's condition for each of 16 columns */
		{ "padded_norm.json", "k0  rows: sub, mul, relu, max_pool2d\n", "p_scale[i5];\n\tif (((-1) < " },
		/* a running log of sums of exponentials is a scan, and not a sum for each prefix */
		{ "log_scans.json", "k0  logcumsumexp: logcumsumexp\n *   k1  logcumsumexp: mul, logcumsumexp_1\n */", "" },
		/* a piece of a concatenation that is a scan, beside a maximum of the same rows: one row kernel */
		{ "scan_beside_maximum.json", "k0  rows: max_1, hardtanh, cumsum, sub, cat\n */",
			"ww::scan_held<ww::OP_SUM, T>(" },
		/* sums of 64 that are scanned, and read beside the scan, are stored */
		{ "sums_scanned.json", "k0  rows: sum_1\n *   k1  cumsum: sum_1, ", "" },
		/* windows that others' windows read are stored, and all else is one kernel */
		{ "windows_of_windows.json",
			"k1  rows: mul, view, pad, avg_pool3d, squeeze, mul_1, add, pow_1, div, add_1\n */", "" },
		/* windows that begin at quotients: a thread for each, which reads one element of each row's lines */
		{ "adaptive_windows.json", "k0  pointwise: elu, adaptive_avg_pool1d, transpose\n", "" },
		{ "adaptive_windows.json", "\t\tint v = 1;\n", "" },
		/* in three dimensions, too, where so many windows are computed that threads hide 27 loads in turn */
		{ "volume_windows.json", "k0  pointwise: silu, adaptive_avg_pool3d\n", "" },
		/* memory runs along columns that are joined of a slice's dimensions, and what a row of them shares is no reason
		   for a lane for each row */
		{ "losses_of_slices.json", "\"k3_T\", t);", "" },
		/* the first few of long rows are gathered, of all values sorted */
		{ "first_few.json", "ww_recipe_first(p, &(struct ww_first){ .kernel = \"k0\"",
			"ww::first_rows<ww::SORT_BF16, " },
		{ "first_few.json", "k3  sort: sort\n", "ww::sort_rows<ww::SORT_F32, " },
		/* along another dimension than the last one, too: PyTorch has none of them */
		{ "first_across.json", "ww_recipe_first(p, &(struct ww_first){ .kernel = \"k1\"",
			"ww::first_rows<ww::SORT_F32, " },
		{ "first_across.json", "ww_recipe_first(p, &(struct ww_first){ .kernel = \"k4\"",
			"ww::first_rows<ww::SORT_BF16, " },
		/* of the backward direction whose last step alone is read, one step */
		{ "last_step.json", "k7  recurrent layer: lstm\n", "" },
		{ "last_step.json", ".steps = 1, ", "" },
		/* of a running minimum without its places the operand is part of the scan */
		{ "running_minimum.json", "k0  cummin: clamp, cummin, add, maximum\n */", "" },
		/* rows go along the axis that data says a place of first: what they read is one part of the operand */
		{ "gather_outer.json", "k0  pointwise: gather, glu\n", " = row / S3;\n" },
		/* rows of a table beyond L2, of which many are asked for more than once: blocks go down them; not of few */
		{ "gathered_down.json", "k0  pointwise: index_1\n",
			"row = blockIdx.x % rows, first = blockIdx.x / rows * (k0_U" },
		{ "gathered_down.json", "k1  pointwise: index_2\n",
			"row = blockIdx.x / chunks, first = blockIdx.x % chunks * (k1_U" },
		/* all columns that a thread holds are asked for before the first is added, also where some have none */
		{ "held_columns.json", "k0  rows: ", " < cols ? (ix_t)j * TY + ty : cols - 1;\n" },
		/* losses of 72 terms are read where they lie by statistics of all of them; parts of a maximum have a launch of
		   their own ahead of the sums that need all of them, and so have 64 parts that few threads would add up */
		{ "loss_of_rows.json",
			"k4  rows: sub, div, hardtanh, log_softmax\n *   k5  rows: log_softmax\n *   k6  rows: sub, div, hardtanh, "
			"log_softmax\n *   k7  rows: log_softmax\n *   k8  pointwise: sub, div, hardtanh, log_softmax\n */",
			"" },
		/* a mean that two kernels need is stored, and not its square */
		{ "norm_of_means.json", "k0  rows: mean\n *   k1  rows: rms_norm\n *   k2  pointwise: rms_norm\n", "" },
		/* each of 16 terms is eight loads, and counts for one place in four */
		{ "scattered_resample.json", "k0  cumsum: upsample_trilinear3d, new_zeros, index_add, cumsum\n",
			"= 0.0f;\n\t\t\t\tif (v" },
		/* a product's functor knows a row that is looked up only behind its loads of vectors: scalars */
		{ "gathered_residual.json", "k0  gemm: ", "= p_e_weight[" },
		/* what two readers need is stored with its bias, by the product; so is a sum with what came before */
		{ "product_ends.json", "k0  gemm: linear\n *   k1  gemm: linear_1, relu\n *   k2  gemm: linear_2, add\n", "" },
		/* the library adds a bias and a matrix of the product's size, where it is faster */
		{ "library_ends.json", "WW_EPI_BIAS, .bias_buf = p_q_bias->buf, ", "" },
		{ "library_ends.json", ".beta = 1, .c = { .buf = t3, ", "" },
		/* a product less a maximum is no multiply-add, whose product would not be rounded as the maximum is */
		{ "gemm_reduce.json", "", "pl_minusf(" },
		/* an operand read against its direction does not lie along the rows, but the others do */
		{ "flipped_mean.json", "k0  rows: sin, mean, flip\n", "row = (live ? at : rows - 1) / S2, " },
		/* patches of 4 x 4: a row of an image is joined of four quotients and remainders, and read by tiles */
		{ "patches_across.json", "k0  pointwise: ", "row = (below * DOWN + warp % DOWN) * HIGH" },
		/* what each element is divided by has no branch ahead of other loads */
		{ "patches_across.json", "k0  pointwise: ", "pl_div_by(v3, 3.0f, 1.0f / 3.0f)" },
		/* vectors of 8 bytes: a thread asks for two */
		{ "narrow_rows.json", "\"k0_U\", 2);", "float x0[k0_U][V];\n" },
		/* sums of long lists by one kernel each, with what is in front of them and behind */
		{ "scattered_sums.json", "k0  scatter: new_zeros, relu, index_add, softshrink\n",
			"ww::scatter_rows<ww::OP_SUM, k0_BLOCK, k0_TPR>(" },
		{ "scattered_sums.json", "k1  scatter: new_zeros_1, scatter_add\n",
			"ww::scatter_columns<ww::OP_MAX, k3_BLOCK>(" },
		/* of few columns all threads of a block share some, also where results have a count beside them */
		{ "scattered_strips.json", "k0  scatter: new_zeros, scatter_add, relu\n",
			"ww::scatter_strips<ww::OP_SUM, k0_BLOCK, k0_COLS>(" },
		/* long columns are shared by more threads where few waves of blocks have all */
		{ "flipped_mean.json", "while (ty < 32 && cols >= 128 * ty && rows * ty >= 2048LL", "" },
		/* weights of a norm over two dimensions, turned, are read as the operand is by a norm over one of them */
		{ "norms_turned.json", "k2  rows: layer_norm, square, rms_norm\n", "ix_t c = ty; c < cols; c += TY) {" },
		{ "norms_turned.json", "", "= t0[(i33*34 + i32)];" },
		/* long columns of 16 bits in pairs, also where two reductions read them */
		{ "paired_columns.json", "const long long rows = (S0*S1*S3*S4) / v, cols = S2;",
			"ww::load(in_x + (i22*S2*S3*S4 + i20*S3*S4 + i21_0), x0);\n" },
		/* and with weights beside the operand, what no column changes ahead of the loop */
		{ "paired_norms.json", "ww_define(p, \"k2_V\", v);\n", "pl_turns<4> all0[V];\n\t#pragma unroll 4\n" },
		/* a scan stores its piece where the concatenation has it, whose other piece is made of it; not where rows begin
		   within a sector */
		{ "pieces_read.json",
			"ww_arg_buf(p, in_x->buf, 0);\n\tww_arg_buf(p, out0->buf, 0);\n\n\t/* k1: pointwise: hypot, chunk, silu, mul, cat",
			"ww::store(out0 + (i20*S1*S6 + i21*S6 + c), o0);\n" },
		{ "pieces_read.json", "ww_arg_buf(p, in_z->buf, 0);\n\tww_arg_buf(p, t3, 0);\n",
			"ww::store_stream(out3 + (S1*S2 + " },
		/* of one operand that lies across a thread has two neighbouring rows, loaded ahead of the stores */
		{ "turned_pairs.json",
			"ww_cdiv(S1, down * high * 2) * ww_cdiv(S0 / v, 32 / high * (16 / down)), 1, 1, 512, 1, 1);",
			"\t\tconst ix_t own = ((below * DOWN + warp % DOWN) * HIGH + lane / WIDE) * k0_U + u;\n" },
		{ "turned_pairs.json", "ww_define(p, \"k1_U\", 2);\n", "HIGH + lane / WIDE) * k1_U + u;\n" },
		/* a prime number of rows, and of columns, in equal parts; what is left of them is read with the parts */
		{ "prime_columns.json", "const long long rows = (S1*57), cols = 36;", "in_x[(S1*2052 + " },
		{ "prime_columns.json", "const long long rows = 256, cols = 1024;", "in_z[(262144 + " },
		/* of these lengths alone */
		{ "prime_columns.json", "\tWW_EQUAL(S0, 2053);\n", "" },
		{ "prime_columns.json", "\tWW_EQUAL(S3, 262147);\n", "" },
		/* all of many short rows: the parts are of many of these, and where there are few long rows the parts of each
		 */
		{ "tall_sums.json", "const long long rows = 500, cols = (S1*600);", "in_x[(S1*300000 + " },
		{ "tall_sums.json", "const long long rows = (S2*500), cols = (S4*S8);", "ww::load(in_y + " },
		{ "tall_sums.json", "const long long rows = S5, cols = S6;", "ww::load(in_z + (" },
		{ "tall_sums.json", "const long long rows = (S2*256), cols = 1024;", " + 262144 + " },
		/* the variance of shorter ones is one kernel, of longer ones in parts */
		{ "prime_variance.json", "const long long rows = S1, cols = S0;", "in_y[(S3*16409 + " },
		/* as few as sums of parts have; an odd number of them lies in blocks of a line */
		{ "split_columns.json", "rows = (S1*16) / v, cols = S3;",
			"ww::load(in_x + (i8*(S0 / 16)*S1 + i10*S1 + i9_0), x0);\n" },
		{ "split_columns.json", "\t\t\tif (tx > 64 && tx * ty > 256)\n\t\t\t\ttx /= 2;\n",
			"in_y[(i13*(S0 / 16)*S2 + i15*S2 + i14)]" },
		/* what rows became, over the root mean square of all of it: one kernel behind the rows' */
		{ "normed_losses.json",
			"k0  rows: smooth_l1_loss, mean, add, sqrt\n *   k1  rows: pow_1, mean_1, add_1, rsqrt, mul\n */", "" },
		/* an operand beside one that lies channels-last, of which columns are summed for each channel, is turned once;
		   a sum over the channels reads it as it lies */
		{ "turned_beside.json", "k0  channels last: div\n *   k1  rows: div, relu, sum_1\n *   k2  rows: mul, sum_2\n",
			"" },
		{ "turned_beside.json", "k2  rows: mul, sum_2\n", "in_y[" },
		/* the rows of a small matrix are vectors, loaded ahead of the sums over them */
		{ "small_matrices.json", "", "ww::load(p_blocks + (i17*64 + 8 + c), x1);" },
		/* places that all columns share are looked for once for all of them */
		{ "added_rows.json", "k0  scatter: new_zeros, index_add\n",
			"ww::scatter_slices<ww::OP_SUM, k0_BLOCK, k0_PART>(" },
		/* what is computed once for a row of results does not make an element costly: a norm behind which is resampled
		 */
		{ "resampled_norm.json", "k2  pointwise: group_norm, upsample_linear1d\n", "" },
		/* what several norms read of a product is stored with its bias and what came in, which the library adds */
		{ "residual_norms.json", "k2  gemm: linear_1, add\n *   k3  rows: layer_norm_1 (k0 again)\n", "" },
		{ "residual_norms.json", "WW_EPI_BIAS, .bias_buf = p_b_bias->buf, .bias_offset_bytes = 0,\n\t\t\t.beta = 1,",
			"" },
		/* pairs of rows by a product, as PyTorch; of a tensor with itself by differences */
		{ "distances.json", "k2  gemm: cdist, neg, exp\n *   k3  rows: cdist_1\n */", "" },
	};

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = fixture(want[i].name);
		struct pl_result r;

		build(g, "cuda", &r);
		assert_true(r.ok);
		if (!strstr(r.plan_text, want[i].plan) || !strstr(r.device_text, want[i].kernels))
			fail_msg("%s: %.600s", want[i].name, r.plan_text);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* log_softmax is x - m - log s, in this order, where more than a sum of losses reads it. */
static void test_log_softmax(void **state)
{
	static const char same[] = "\"sizes\": [4, 8, 8], \"strides\": [64, 8, 1]";
	json_t *g = one_operator("log_softmax.int", "[{\"ref\": \"x\"}, -1]", same), *d = device();
	const struct pl_options own = { .own = 1 };
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, &own, &r);
	assert_true(r.ok);
	if (strstr(r.device_text, "(v2 + a0)") || !strstr(r.device_text, "(v2 - v3)"))
		fail_msg("%s", r.device_text);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* A square has elements 2^24 times as large as others where an input's are 2^12 times: too many for halves.  A fourth
 * power has too many for any image packed as fp16.  What bounds or normalises them, as the inputs at most, does not. */
static void test_range_of_packed_images(void **state)
{
#define NODE(name, op, args) "{\"name\": \"" name "\", \"op\": \"aten." op "\", \"args\": " args "}, "
#define REF(name) "{\"ref\": \"" name "\"}"
#define TIMES(name, a, b) NODE(name, "mul.Tensor", "[" REF(a) ", " REF(b) "]")
#define FOURTH TIMES("a", "x", "x") TIMES("b", "a", "a")
#define NORM(training) NODE("c", "batch_norm.default", "[" REF("b") ", null, null, " REF("m") ", " REF("m") ", " training ", 0.1, 1e-5, true]")
	static const struct {
		const char *nodes; /* of x; "c" is the convolution's operand */
		int packed, halves;
	} rows[] = { { NODE("c", "relu.default", "[" REF("x") "]"), 1, 1 }, { TIMES("c", "x", "x"), 1, 0 },
		{ TIMES("a", "x", "x") TIMES("c", "a", "x"), 0, 0 }, { FOURTH TIMES("c", "b", "b"), 0, 0 },
		{ NODE("c", "pow.Tensor_Scalar", "[" REF("x") ", 3]"), 0, 0 },
		{ FOURTH NODE("c", "sqrt.default", "[" REF("b") "]"), 1, 0 },
		{ FOURTH NODE("d", "sigmoid.default", "[" REF("b") "]") TIMES("c", "x", "d"), 1, 1 },
		{ FOURTH NORM("true"), 1, 1 }, { FOURTH NORM("false"), 0, 0 },
		{ FOURTH NODE("c", "cat.default", "[[" REF("b") ", " REF("x") "], 1]"), 0, 0 },
		{ FOURTH NODE("c", "div.Tensor", "[" REF("x") ", " REF("b") "]"), 1, 1 } };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		const int cat = strstr(rows[i].nodes, "cat.") != NULL;

		for (int halves = 0; halves < 2; halves++) {
			json_t *g = convolution_and_norm(8, 64 << cat, 112, 64, 3), *list = json_object_get(g, "nodes"),
				   *d = device();
			json_t *x = json_array_get(json_object_get(g, "inputs"), 0), *nodes, *node;
			const char *recipe = halves ? "ww_recipe_conv_halves(" : "ww_recipe_conv_tc(";
			struct knobs knobs[8] = { 0 };
			struct pl_result r;
			char text[2000];
			size_t k;

			snprintf(text, sizeof(text), "[%sfalse]", rows[i].nodes);
			nodes = json_loads(text, 0, NULL);
			json_array_remove(nodes, json_array_size(nodes) - 1);
			json_object_set_new(x, "sizes", json_pack("[i,i,i,i]", 8, 64, 64, 64));
			json_object_set_new(x, "strides", json_pack("[i,i,i,i]", 64 * 4096, 4096, 64, 1));
			json_array_append_new(json_object_get(g, "params"),
				json_pack("{s:s, s:s, s:[i], s:[i]}", "name", "m", "dtype", "float32", "sizes", 64, "strides", 1));
			json_array_foreach(nodes, k, node) {
				json_t *sizes = json_deep_copy(json_object_get(x, "sizes")),
					   *strides = json_deep_copy(json_object_get(x, "strides"));

				if (cat && k + 1 == json_array_size(nodes)) {
					json_array_set_new(sizes, 1, json_integer(128));
					json_array_set_new(strides, 0, json_integer(128 * 4096));
				}
				json_object_set_new(node, "kwargs", json_object());
				json_object_set_new(node, "out",
					json_pack("[{s:s, s:o, s:o}]", "dtype", "float32", "sizes", sizes, "strides", strides));
				json_array_insert(list, k, node);
			}
			json_object_set_new(
				json_array_get(json_object_get(json_array_get(list, k), "args"), 0), "ref", json_string("c"));
			for (k = 0; k < WW_ARRAY_LEN(knobs); k++)
				knobs[k] = (struct knobs){ .library = halves ? LIBRARY_HALVES : LIBRARY_NO };
			ww_pl_build(g, d, "cuda", knobs, WW_ARRAY_LEN(knobs), NULL, &r);
			if (!r.ok)
				fail_msg("%s: %s", rows[i].nodes, r.why);
			if ((strstr(r.plan_text, recipe) != NULL) != (halves ? rows[i].halves : rows[i].packed))
				fail_msg("%s, %s: %s", rows[i].nodes, recipe, r.plan_text);
			ww_pl_result_release(&r);
			json_decref(nodes);
			json_decref(g);
			json_decref(d);
		}
	}
}

/* So is a head of attention: of values' squares ww::attention computes it, not of their fourth powers. */
static void test_range_of_packed_heads(void **state)
{
	(void)state;
	for (int squared = 0; squared <= 2; squared++) {
		json_t *g = fixture("cuda_attention.json"), *list = json_object_get(g, "nodes"),
			   *first = json_array_get(list, 0);
		char name[8] = "v", next[8];
		struct pl_result r;

		for (int i = 0; i < squared; i++, memcpy(name, next, sizeof(name))) {
			snprintf(next, sizeof(next), "n%d", i);
			json_array_insert_new(list, (size_t)i,
				json_pack("{s:s, s:s, s:[{s:s}, {s:s}], s:{}, s:O}", "name", next, "op", "aten.mul.Tensor", "args",
					"ref", name, "ref", name, "kwargs", "out", json_object_get(first, "out")));
		}
		json_array_set_new(json_object_get(first, "args"), 2, json_pack("{s:s}", "ref", name));
		build(g, "cuda", &r);
		assert_true(r.ok);
		assert_int_equal(strstr(r.plan_text, "ww_recipe_attention(p") != NULL, squared < 2);
		assert_int_equal(strstr(r.plan_text, "ww_recipe_attention_mma(p") != NULL, squared == 2);
		ww_pl_result_release(&r);
		json_decref(g);
	}
}

/* Without algebra no rule moves a factor or a term: docs/planner.md has the same rows. */
static void test_algebra(void **state)
{
	static const char same[] = "\"sizes\": [4, 8, 8], \"strides\": [64, 8, 1]",
					  rows[] = "\"sizes\": [4, 8], \"strides\": [8, 1]",
					  half[] = "\"sizes\": [4, 4, 4], \"strides\": [16, 4, 1]";
	static const struct {
		const char *op, *args, *out; /* args NULL: of a fixture */
		const char *with, *without;  /* stands in the kernels of the cuda target */
	} want[] = { { "softmax.int", "[{\"ref\": \"x\"}, -1]", same, "kept0[j][l] * v", "pl_div_by(kept0[j][l], a1, " },
		{ "cuda_cross_entropy.json", NULL, NULL, "(v4 + a0)", "(v6 - v7)" },
		{ "cosine_similarity.default", "[{\"ref\": \"x\"}, {\"ref\": \"y\"}, -1]", rows, "pl_divf(a0, v6)",
			"pl_div_by(x0[j][l], v3, " },
		{ "avg_pool2d.default", "[{\"ref\": \"x\"}, [2, 2]]", half, "(a0 * 0.25f)", "(a0 / 4.0f)" },
		{ "adaptive_avg_pool2d.default", "[{\"ref\": \"x\"}, [4, 4]]", half, "(a0 * 0.25f)", "(a0 / 4.0f)" },
		{ "pow.Tensor_Scalar", "[{\"ref\": \"x\"}, 0.75]", same, "sqrtf(", "powf(" },
		{ "rnn_forms.json", NULL, NULL, "= p_rnn_bias_hh_l0[", "const float *bias, float *out" },
		{ "long_statistics.json", NULL, NULL, "g0.about(", "a1 = (a1 + " } };
	const struct pl_options own = { .own = 1 }, plain = { .no_algebra = 1, .own = 1 };

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(want); i++) {
		json_t *g = want[i].args ? one_operator(want[i].op, want[i].args, want[i].out) : fixture(want[i].op),
			   *d = device();
		struct pl_result with, without;

		assert_non_null(g);
		ww_pl_build(g, d, "cuda", NULL, 0, &own, &with);
		ww_pl_build(g, d, "cuda", NULL, 0, &plain, &without);
		assert_true(with.ok && without.ok);
		if (!strstr(with.device_text, want[i].with) || strstr(with.device_text, want[i].without) ||
			strstr(without.device_text, want[i].with) || !strstr(without.device_text, want[i].without))
			fail_msg("%s: %s%s", want[i].op, with.device_text, without.device_text);
		ww_pl_result_release(&with);
		ww_pl_result_release(&without);
		json_decref(g);
		json_decref(d);
	}
}

/* Without elements, or with one where rows are scanned: the planner covers it or says why not. */
static void test_one_element_and_none(void **state)
{
#define COLUMN "\"dtype\": \"float32\", \"sizes\": [24, 1], \"strides\": [1, 1]"
	/* clang-format off */
#define STEP(name, op, args) \
	"{\"name\": \"" name "\", \"op\": \"aten." op "\", \"args\": [" args "], \"out\": [{" COLUMN "}]}"
	static const char scans[] =
		"{\"inputs\": [{\"name\": \"x\", " COLUMN "}], \"params\": [], \"nodes\": ["
		STEP("a", "cumsum.default", REF("x") ", -1") ", "
		STEP("b", "mul.Tensor", REF("a") ", " REF("x")) ", "
		STEP("c", "cumsum.default", REF("b") ", -1") ", "
		STEP("d", "exp.default", REF("x")) ", "
		STEP("e", "cumsum.default", REF("d") ", -1") ", "
		STEP("f", "cumsum.default", REF("e") ", -1")
		"], \"outputs\": [{\"ref\": \"c\", " COLUMN "}, {\"ref\": \"f\", " COLUMN "}]}";
/* clang-format on */
#undef STEP
#undef COLUMN
	json_error_t e;
	json_t *d = device(), *g = json_loads(scans, 0, &e);
	struct pl_result r;

	(void)state;
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	assert_string_equal(r.why, "");
	ww_pl_result_release(&r);
	json_decref(g);
	g = one_operator(
		"adaptive_avg_pool1d.default", "[{\"ref\": \"x\"}, [0]]", "\"sizes\": [4, 8, 0], \"strides\": [1, 1, 1]");
	ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
	if (r.ok || !strstr(r.why, "its result has no elements"))
		fail_msg("%s", r.why);
	ww_pl_result_release(&r);
	json_decref(g);
	json_decref(d);
}

/* A stride of 1 for each size of every tensor. */
static void set_strides(json_t *j)
{
	const json_t *sizes = json_object_get(j, "sizes");
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach(j, i, v)
		set_strides(v);
	json_object_foreach(j, key, v)
		set_strides(v);
	if (sizes) {
		v = json_array();
		for (i = 0; i < json_array_size(sizes); i++)
			json_array_append_new(v, json_integer(1));
		json_object_set_new(j, "strides", v);
	}
}

/* A variance of no channels, a turned product of no columns, attention of no queries or heads (as two products) are
 * covered. */
static void test_operators_of_none(void **state)
{
	/* clang-format off */
#define OF(sizes) "\"dtype\": \"float32\", \"sizes\": " sizes
#define INPUT(name, sizes) "{\"name\": \"" name "\", " OF(sizes) "}"
#define STEP(name, op, args, sizes) \
	"{\"name\": \"" name "\", \"op\": \"aten." op "\", \"args\": [" args "], \"out\": [{" OF(sizes) "}]}"
#define GRAPH(inputs, nodes, result) \
	"{\"inputs\": [" inputs "], \"params\": [], \"nodes\": [" nodes "], \"outputs\": [{\"ref\": \"r\", " OF(result) "}]}"
	static const char *const texts[] = {
		GRAPH(INPUT("x", "[16, 0, 68, 72]"), STEP("r", "var.correction", REF("x") ", [0, 2, 3]", "[0]"), "[0]"),
		GRAPH(INPUT("x", "[512, 256]") ", " INPUT("w", "[256, 0]"),
			STEP("a", "mm.default", REF("x") ", " REF("w"), "[512, 0]") ", "
			STEP("t", "t.default", REF("a"), "[0, 512]") ", "
			STEP("r", "cumsum.default", REF("t") ", -1", "[0, 512]"), "[0, 512]"),
		GRAPH(INPUT("q", "[2, 0, 64]") ", " INPUT("k", "[2, 8, 64]") ", " INPUT("v", "[2, 8, 64]"),
			STEP("r", "scaled_dot_product_attention.default", REF("q") ", " REF("k") ", " REF("v") ", null, 0.0, true",
				"[2, 0, 64]"), "[2, 0, 64]"),
		GRAPH(INPUT("q", "[0, 8, 64]") ", " INPUT("k", "[0, 64, 8]") ", " INPUT("v", "[0, 8, 64]"),
			STEP("a", "matmul.default", REF("q") ", " REF("k"), "[0, 8, 8]") ", "
			STEP("s", "softmax.int", REF("a") ", -1", "[0, 8, 8]") ", "
			STEP("r", "matmul.default", REF("s") ", " REF("v"), "[0, 8, 64]"), "[0, 8, 64]") };
/* clang-format on */
#undef GRAPH
#undef STEP
#undef INPUT
#undef OF
	json_t *d = device();

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(texts); i++) {
		json_error_t e;
		json_t *g = json_loads(texts[i], 0, &e);
		struct pl_result r;

		assert_non_null(g);
		set_strides(g);
		ww_pl_build(g, d, "cuda", NULL, 0, NULL, &r);
		assert_string_equal(r.why, "");
		ww_pl_result_release(&r);
		json_decref(g);
	}
	json_decref(d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_fixture_is_covered),
		cmocka_unit_test(test_one_element_and_none), cmocka_unit_test(test_operators_of_none),
		cmocka_unit_test(test_fusion), cmocka_unit_test(test_rows_apart), cmocka_unit_test(test_rows_in_steps),
		cmocka_unit_test(test_overlapping_windows), cmocka_unit_test(test_vectors_in_step),
		cmocka_unit_test(test_ends_ahead), cmocka_unit_test(test_rows_in_order), cmocka_unit_test(test_unflattened),
		cmocka_unit_test(test_rows_beside), cmocka_unit_test(test_stored_across), cmocka_unit_test(test_groups_scanned),
		cmocka_unit_test(test_library_nodes), cmocka_unit_test(test_staged_ends), cmocka_unit_test(test_conv_ends),
		cmocka_unit_test(test_pairs_of_phases_store_fours), cmocka_unit_test(test_rows_along_most),
		cmocka_unit_test(test_sorted_values), cmocka_unit_test(test_lanes_apart), cmocka_unit_test(test_lines_shared),
		cmocka_unit_test(test_resampled_costly), cmocka_unit_test(test_vectors_of_halves),
		cmocka_unit_test(test_windows_kept), cmocka_unit_test(test_scans_back_in_rows),
		cmocka_unit_test(test_pieces_scanned), cmocka_unit_test(test_scans_of_halves),
		cmocka_unit_test(test_short_windows), cmocka_unit_test(test_gated_squares),
		cmocka_unit_test(test_lines_resampled), cmocka_unit_test(test_stored_behind),
		cmocka_unit_test(test_overlapping_kernels_wait), cmocka_unit_test(test_small_products),
		cmocka_unit_test(test_batch_of_none), cmocka_unit_test(test_read_once), cmocka_unit_test(test_many_loads),
		cmocka_unit_test(test_pooled_softmax), cmocka_unit_test(test_flipped_beside),
		cmocka_unit_test(test_short_columns), cmocka_unit_test(test_rare_products),
		cmocka_unit_test(test_impossible_graphs), cmocka_unit_test(test_state_written_by_pytorch),
		cmocka_unit_test(test_small_matrices), cmocka_unit_test(test_recurrent_rows),
		cmocka_unit_test(test_recurrent_alone), cmocka_unit_test(test_recurrent_stack),
		cmocka_unit_test(test_joined_pieces), cmocka_unit_test(test_dense_network),
		cmocka_unit_test(test_selected_scans), cmocka_unit_test(test_attention),
		cmocka_unit_test(test_attention_in_bands), cmocka_unit_test(test_attention_of_halves),
		cmocka_unit_test(test_attention_of_few_keys), cmocka_unit_test(test_sizes_that_become_alike),
		cmocka_unit_test(test_reductions_follow_the_layout), cmocka_unit_test(test_parts_of_small_images),
		cmocka_unit_test(test_order_of_dimensions), cmocka_unit_test(test_order_behind_a_transposed_convolution),
		cmocka_unit_test(test_negative_scale), cmocka_unit_test(test_convolutions_of_one_input),
		cmocka_unit_test(test_rows_ahead_of_a_convolution), cmocka_unit_test(test_scans_in_rows),
		cmocka_unit_test(test_light_convolutions), cmocka_unit_test(test_patches),
		cmocka_unit_test(test_parts_of_statistics), cmocka_unit_test(test_turned_input),
		cmocka_unit_test(test_scans_from_the_end), cmocka_unit_test(test_odd_images),
		cmocka_unit_test(test_template_or_library), cmocka_unit_test(test_image_packed_once),
		cmocka_unit_test(test_filters_of_16_bits), cmocka_unit_test(test_shared_filters),
		cmocka_unit_test(test_residual_sums), cmocka_unit_test(test_turned_results),
		cmocka_unit_test(test_group_norm_channels_last), cmocka_unit_test(test_computed_sizes_have_names),
		cmocka_unit_test(test_cpu_vectors), cmocka_unit_test(test_cpu_rows_beside), cmocka_unit_test(test_cpu_places),
		cmocka_unit_test(test_pools_follow_the_layout), cmocka_unit_test(test_large_results),
		cmocka_unit_test(test_step_by_number), cmocka_unit_test(test_windows_inside),
		cmocka_unit_test(test_results_in_other_orders), cmocka_unit_test(test_split_lanes),
		cmocka_unit_test(test_states_share_work), cmocka_unit_test(test_steps_are_one_text),
		cmocka_unit_test(test_cpu_windows), cmocka_unit_test(test_wrapped_places),
		cmocka_unit_test(test_places_by_quotients), cmocka_unit_test(test_lookups), cmocka_unit_test(test_scattered),
		cmocka_unit_test(test_no_elements), cmocka_unit_test(test_titles_name_the_nodes),
		cmocka_unit_test(test_row_skeletons), cmocka_unit_test(test_kept_values),
		cmocka_unit_test(test_statistics_are_not_rounded), cmocka_unit_test(test_unknown_operator_is_named),
		cmocka_unit_test(test_refusals_name_the_case), cmocka_unit_test(test_every_bag_is_covered),
		cmocka_unit_test(test_a_refusal_leaks_nothing), cmocka_unit_test(test_repeated_kernels_are_shared),
		cmocka_unit_test(test_windows_are_shared), cmocka_unit_test(test_einsum_spellings),
		cmocka_unit_test(test_half_on_the_cpu), cmocka_unit_test(test_few_rows_on_the_cpu),
		cmocka_unit_test(test_ends_of_products), cmocka_unit_test(test_memory_orders),
		cmocka_unit_test(test_sums_with_bias), cmocka_unit_test(test_long_rows_of_16_bits),
		cmocka_unit_test(test_rings), cmocka_unit_test(test_several_windows), cmocka_unit_test(test_scan_excluded),
		cmocka_unit_test(test_forms_of_products), cmocka_unit_test(test_tiles_as_measured),
		cmocka_unit_test(test_rows_split_by_warps), cmocka_unit_test(test_hostile_graphs),
		cmocka_unit_test(test_texts_compile), cmocka_unit_test(test_algebra),
		cmocka_unit_test(test_range_of_packed_images), cmocka_unit_test(test_range_of_packed_heads),
		cmocka_unit_test(test_folded), cmocka_unit_test(test_work_is_not_repeated),
		cmocka_unit_test(test_left_to_pytorch), cmocka_unit_test(test_partition), cmocka_unit_test(test_in_place),
		cmocka_unit_test(test_small_groups), cmocka_unit_test(test_images_of_one_pixel),
		cmocka_unit_test(test_pixels_and_bias), cmocka_unit_test(test_folded_columns),
		cmocka_unit_test(test_transposed_beside), cmocka_unit_test(test_sampled),
		cmocka_unit_test(test_chosen_images_turned), cmocka_unit_test(test_large_batch_norm),
		cmocka_unit_test(test_costly_windows), cmocka_unit_test(test_concatenated_last),
		cmocka_unit_test(test_results_to_last), cmocka_unit_test(test_turned_rows),
		cmocka_unit_test(test_computed_operands), cmocka_unit_test(test_from_the_end),
		cmocka_unit_test(test_few_columns_or_terms), cmocka_unit_test(test_transposed_volume),
		cmocka_unit_test(test_instance_norm_channels_last), cmocka_unit_test(test_gates_ahead_of_rounding),
		cmocka_unit_test(test_statistics_of_pieces), cmocka_unit_test(test_pooled_across),
		cmocka_unit_test(test_few_long_rows), cmocka_unit_test(test_exponentials_of_halves),
		cmocka_unit_test(test_what_pytorch_rounds), cmocka_unit_test(test_pairs_of_fp16),
		cmocka_unit_test(test_one_wave_of_tiles), cmocka_unit_test(test_what_shows_a_rounding),
		cmocka_unit_test(test_one_of_two_is_rounded), cmocka_unit_test(test_order_of_strided_filters),
		cmocka_unit_test(test_order_of_softmax), cmocka_unit_test(test_softmax_last), cmocka_unit_test(test_phases),
		cmocka_unit_test(test_log_softmax), cmocka_unit_test(test_phases_of_vectors) };

	all = unit_all(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
