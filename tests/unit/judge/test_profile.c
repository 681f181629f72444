/* Unit tests of src/judge/profile: what a node must move and compute, the roofline, the limiting resource, machine
 * code, text. */
#include "unit.h"

#include "base/json.h"
#include "image_maker.h"
#include "judge/profile/limit.h"
#include "judge/profile/profile.h"
#include "judge/profile/sass.h"
#include "judge/profile/work.h"

#include <math.h>
#include <stdlib.h>

/* ---- Bytes and flops --------------------------------------------------------------------------------------------- */

/* A launch over x, w and a scratch that it names three times, a gemm, a transposed convolution, a memset, a copy. */
static struct ww_image *make_plan(int launches)
{
	struct ww_facts f = maker_facts(WW_TARGET_CUDA);
	struct ww_plan *p = maker_plan(&f);
	const struct ww_tensor *x = ww_input(p, 0), *w = ww_param(p, "w"), *y = ww_output(p, 0);
	int s = ww_scratch(p, 4096), big = ww_scratch(p, 1 << 20);
	for (int i = 0; i < launches; i++) {
		ww_launch(p, "k", 8, 4, 1, 128, 1, 1);
		ww_arg_buf(p, x->buf, 1024);
		ww_arg_buf(p, x->buf, 512);
		ww_arg_buf(p, s, 0);
		ww_arg_buf(p, s, 4092);
		ww_arg_i32(p, 7);
	}
	struct ww_gemm g = { .m = 8,
		.n = 32,
		.k = 64,
		.batch = 1,
		.alpha = 1,
		.epilogue = WW_EPI_BIAS,
		.bias_buf = s,
		.a = { .buf = x->buf, .dtype = WW_F32, .ld = 64 },
		.b = { .buf = w->buf, .dtype = WW_F32, .ld = 32 },
		.d = { .buf = y->buf, .dtype = WW_F32, .ld = 32 } };
	ww_gemm(p, &g);
	struct ww_conv c = { .nd = 1,
		.transposed = 1,
		.dtype = WW_F32,
		.groups = 2,
		.n = 2,
		.c = 4,
		.k = 6,
		.in = { 5 },
		.kernel = { 3 },
		.out = { 7 },
		.stride = { 1 },
		.dilation = { 1 },
		.x_buf = x->buf,
		.w_buf = w->buf,
		.y_buf = big };
	ww_conv(p, &c);
	ww_memset(p, s, 0, 100, 0);
	ww_copy(p, s, 0, x->buf, 0, 256);
	struct ww_image *m = maker_image(p);
	assert_non_null(m);
	return m;
}

static void work(void **state)
{
	struct ww_image *m = make_plan(1);
	double flops[8];
	(void)state;
	/* x from byte 512 on, all of the scratch, each once. */
	assert_true(ww_work_of_node(m, 0).bytes == 2048 - 512 + 4096);
	assert_true(isnan(ww_work_of_node(m, 0).flops));
	assert_true(ww_work_of_node(m, 1).bytes == 4 * (8 * 64 + 64 * 32 + 8 * 32 + 32));
	assert_true(ww_work_of_node(m, 1).flops == 2.0 * 8 * 32 * 64);
	/* Each of 2*4*5 inputs meets 6/2 output channels at 3 places. */
	assert_true(ww_work_of_node(m, 2).flops == 2.0 * (2 * 4 * 5) * (6 / 2) * 3);
	assert_true(ww_work_of_node(m, 2).bytes == 4.0 * (2 * 4 * 5 + 2 * 6 * 7 + 4 * (6 / 2) * 3));
	assert_true(ww_work_of_node(m, 3).bytes == 100 && ww_work_of_node(m, 4).bytes == 512);
	/* One launch: what the library nodes leave is its own. */
	ww_work_flops(m, 2.0 * 8 * 32 * 64 + 720 + 5000, flops);
	assert_true(flops[0] == 5000 && flops[1] == 2.0 * 8 * 32 * 64);
	free(m);
	m = make_plan(2);
	ww_work_flops(m, 1e6, flops);
	assert_true(isnan(flops[0]) && isnan(flops[1]));
	free(m);
}

/* ---- The roofline ------------------------------------------------------------------------------------------------ */

static const struct ww_roof gpu = { WW_TARGET_CUDA, 4e12, { 50e12, 350e12, 700e12, 680e12, 4e12 }, 0 };
static const struct ww_roof cpu = { WW_TARGET_CPU, 30e9, { 100e9, 0, 0, 0, 30e9 }, 4 };

static void positions(void **state)
{
	static const struct {
		double bytes, flops, us;
		int dtype, math;
		const char *bound, *peak;
		double of_roofline;
	} rows[] = {
		{ 4e6, 1e6, 1, WW_F32, -1, "memory", "fp32", 1 }, /* 4 TB/s */
		{ 2e6, 1e6, 1, WW_F32, -1, "latency", "fp32", 0.5 },
		{ 1e6, 40e6, 1, WW_F32, -1, "compute", "fp32", 0.8 },  /* 40 Tflop/s */
		{ 1e6, 140e6, 1, WW_F32, -1, "latency", "tf32", 0.4 }, /* more than fp32 units can do: tensor cores */
		{ 1e6, 700e6, 1, WW_F32, -1, "compute", "fp16", 1 },
		{ 1e6, 140e6, 1, WW_F32, WW_MATH_FP32, "compute", "fp32", 2.8 }, /* the node says which */
		{ 1e6, 340e6, 1, WW_BF16, -1, "latency", "bf16", 0.5 },
		{ 4e6, NAN, 1, WW_F32, -1, "memory", NULL, 1 }, /* a launch whose arithmetic nobody knows */
		{ 0, 0, 1, WW_F32, -1, "none", "fp32", 0 }, { 4e6, 1e6, NAN, WW_F32, -1, "none", NULL, NAN } /* not timed */
	};
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_work w = { rows[i].bytes, rows[i].flops };
		struct ww_position p;
		ww_position_set(&p, &gpu, &w, rows[i].us, rows[i].dtype, rows[i].math);
		if (strcmp(p.bound, rows[i].bound) || strcmp(p.peak ? p.peak : "-", rows[i].peak ? rows[i].peak : "-") ||
			(isnan(rows[i].of_roofline) ? !isnan(p.of_roofline) : !(fabs(p.of_roofline - rows[i].of_roofline) < 1e-9)))
			fail_msg("row %zu: %s, %s, %g", i, p.bound, p.peak ? p.peak : "-", p.of_roofline);
	}
}

static void occupancy(void **state)
{
	struct ww_device d = {
		.sm_count = 132, .max_threads_per_sm = 2048, .regs_per_sm = 65536, .shared_per_sm_bytes = 233472
	};
	static const struct {
		int block, registers, fit;
		long long shared;
		const char *by;
		double share;
	} rows[] = { { 256, 32, 8, 0, "threads", 1 }, { 256, 128, 2, 0, "registers", 0.25 },
		{ 128, 32, 2, 100000, "shared memory", 0.125 }, { 32, 16, 32, 0, "blocks", 0.5 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_image_launch l = {
			.grid = { 1320, 1, 1 }, .block = { rows[i].block, 1, 1 }, .shared_bytes = rows[i].shared
		};
		struct ww_occupancy o;
		ww_occupancy_set(&o, &d, &l, rows[i].registers, 0, rows[i].fit);
		assert_true(fabs(o.share - rows[i].share) < 1e-9 && fabs(o.waves - 10.0 / rows[i].fit) < 1e-9);
		assert_string_equal(o.limited_by, rows[i].by);
	}
}

/* ---- The limiting resource --------------------------------------------------------------------------------------- */

struct case_ {
	const struct ww_roof *roof;
	double bytes, flops, us;
	long long grid;
	int local, fit;
	double busy, counter[2]; /* bytes that DRAM moved, issue_pct; 0: no counters */
	const char *name, *word;
};

static void limits(void **state)
{
	static const struct case_ rows[] = { { &gpu, 4e8, NAN, 110, 4096, 0, 8, 0, { 0 }, "memory",
											 "of what a copy reaches" },
		{ &gpu, 4e8, NAN, 50, 4096, 0, 8, 0, { 0 }, "cache", "from a cache" },
		{ &gpu, 1e6, 45e8, 100, 4096, 0, 8, 0, { 0 }, "compute", "fp32 peak" },
		{ &gpu, 1e6, NAN, 2, 4096, 0, 8, 0, { 0 }, "short", "2.0 us" },
		{ &gpu, 1e6, NAN, 100, 40, 0, 8, 0, { 0 }, "threads", "40 blocks for 132" },
		{ &gpu, 1e6, NAN, 100, 4096, 96, 8, 0, { 0 }, "spills", "96 bytes" },
		{ &gpu, 1e6, NAN, 100, 4096, 0, 1, 0, { 0 }, "occupancy", "12%" },
		{ &gpu, 1e6, NAN, 100, 1100, 0, 8, 0, { 0 }, "tail", "1.04 waves" },
		{ &gpu, 1e6, NAN, 100, 8448, 0, 8, 0, { 0 }, "latency", "does not count" },
		{ &gpu, 4e8, NAN, 110, 4096, 96, 8, 0, { 400.4e6, 20 }, "memory", "91% of what a copy reaches is in use" },
		{ &gpu, 4e8, NAN, 110, 4096, 0, 8, 0, { 88e6, 30 }, "latency", "30%" },
		{ &gpu, 4e8, NAN, 110, 4096, 96, 8, 0, { 88e6, 30 }, "spills", "96 bytes" },
		{ &gpu, 1e6, NAN, 110, 4096, 0, 8, 0, { 308e6, 95 }, "memory", "70% of what a copy" }, /* issue only feeds it */
		{ &gpu, 4e3, NAN, 5.2, 4096, 0, 8, 0, { 4e3, 1 }, "short", "5.2 us" },
		{ &cpu, 27e6, 1e6, 1000, 64, 0, 0, 4, { 0 }, "memory", "90%" },
		{ &cpu, 1e6, 80e6, 1000, 64, 0, 0, 4, { 0 }, "compute", "80%" },
		{ &cpu, 1e6, 1e6, 1000, 2, 0, 0, 1.5, { 0 }, "threads", "the grid has 2 blocks" },
		{ &cpu, 1e6, 1e6, 1000, 64, 0, 0, 2, { 0 }, "threads", "differ in length" },
		{ &cpu, 1e4, 1e4, 10, 64, 0, 0, 2, { 0 }, "short", "10.0 us" } };
	struct ww_device d = {
		.sm_count = 132, .max_threads_per_sm = 2048, .regs_per_sm = 65536, .shared_per_sm_bytes = 233472
	};
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		const struct case_ *c = &rows[i];
		struct ww_image_node node = { .kind = WW_NODE_LAUNCH,
			.launch = { .grid = { c->grid, 1, 1 }, .block = { 256, 1, 1 } } };
		struct ww_run_profile_node row = {
			.us = c->us, .registers = 32, .local_bytes = c->local, .blocks_per_sm = c->fit, .busy_threads = c->busy
		};
		struct ww_work w = { c->bytes, c->flops }, none = { c->bytes, NAN };
		struct ww_position p, plan;
		struct ww_occupancy o;
		struct ww_str s = WW_STR_INIT(1024);
		for (int k = 0; k < WW_COUNTER_COUNT; k++)
			row.counter[k] = NAN;
		if (c->counter[0] > 0) {
			row.counter[WW_COUNTER_DRAM_READ] = 0.75 * c->counter[0];
			row.counter[WW_COUNTER_DRAM_WRITE] = 0.25 * c->counter[0];
			row.counter[WW_COUNTER_ISSUE_PCT] = c->counter[1];
			row.counter[WW_COUNTER_STALL_LONG] = 3;
		}
		ww_position_set(&p, c->roof, &w, c->us, WW_F32, -1);
		ww_position_set(&plan, c->roof, &none, c->us, WW_F32, -1);
		ww_occupancy_set(&o, &d, &node.launch, row.registers, 0, c->fit);
		struct ww_limit_facts f = { &d, c->roof, &node, &row, &p, &plan, &o, c->us };
		const char *name = ww_limit_name(&f, &s);
		if (strcmp(name, c->name) || !strstr(s.p, c->word))
			fail_msg("row %zu: %s (%s), not %s with \"%s\"", i, name, s.p, c->name, c->word);
		ww_str_release(&s);
	}
}

/* A plan near the arithmetic peak whose launches are several: each of them is told so. */
static void limit_of_the_plan(void **state)
{
	struct ww_image_node node = { .kind = WW_NODE_LAUNCH, .launch = { .grid = { 64, 1, 1 }, .block = { 1, 1, 1 } } };
	struct ww_run_profile_node row = { .us = 1000, .busy_threads = 4 };
	struct ww_work mine = { 1e6, NAN }, all = { 2e6, 160e6 };
	struct ww_position p, plan;
	struct ww_occupancy o = { NAN, NULL, NAN };
	struct ww_device d = { .sm_count = 0 };
	struct ww_str s = WW_STR_INIT(1024);
	(void)state;
	for (int k = 0; k < WW_COUNTER_COUNT; k++)
		row.counter[k] = NAN;
	ww_position_set(&p, &cpu, &mine, 1000, WW_F32, -1);
	ww_position_set(&plan, &cpu, &all, 2000, WW_F32, -1);
	struct ww_limit_facts f = { &d, &cpu, &node, &row, &p, &plan, &o, 1000 };
	assert_string_equal(ww_limit_name(&f, &s), "compute");
	assert_non_null(strstr(s.p, "by the plan as a whole"));
	ww_str_release(&s);
}

/* ---- Machine code ------------------------------------------------------------------------------------------------ */

#define I(address, text) "        /*" address "*/                   " text " ;     /* 0x0000000000000000 */\n" \
			 "                                                        /* 0x000fe20000000800 */\n"
static const char listing[] = "\n\tcode for sm_90\n\t\tFunction : other\n\t.headerflags\t@\"EF_CUDA_SM90\"\n" I(
	"0000", "FFMA R0, R1, R2, R3") I("0010", "BRA 0x0")
	I("0020", "EXIT") "\t\t..........\n\n\t\tFunction : kernel_two\n" I("0000", "LDC R1, c[0x0][0x28]")
		I("0010", "IADD3 R2, R2, 0x1, RZ") I("0020", "@P0 BRA 0x10") /* a loop without work */
	I("0030", "LDG.E.128 R4, desc[UR4][R2.64]") I("0040", "FFMA R0, R4, R5, R0") I("0050", "FFMA R0, R6, R7, R0")
		I("0060", "@!P1 BRA 0x30") /* the one that works */
	I("0070", "@P2 BRA 0x10")      /* around both */
	I("0080", "@P3 BRA 0xa0") I("0090", "STG.E desc[UR4][R2.64], R0") I("00a0", "EXIT") I("00b0", "BRA 0xb0")
		I("00c0", "NOP") "\t\t..........\n\t\tFunction : straight\n" I("0000", "MUFU.EX2 R0, R1") I("0010", "EXIT")
			I("0020", "BRA 0x20");

static void machine_code(void **state)
{
	(void)state;
	json_t *o = ww_sass_parse(listing, "kernel_two"), *mix;
	assert_non_null(o);
	assert_int_equal(ww_json_int(o, "instructions", 0), 11); /* without the trap and the padding */
	assert_true(ww_json_bool(o, "is_loop", 0));
	assert_int_equal(ww_json_int(o, "lines", 0), 4);
	assert_non_null(strstr(ww_json_str(o, "loop", ""), "0030  LDG.E.128 R4"));
	assert_null(strstr(ww_json_str(o, "loop", ""), "STG"));
	mix = json_object_get(o, "mix");
	assert_int_equal(ww_json_int(mix, "FFMA", 0), 2);
	assert_int_equal(ww_json_int(mix, "LDG.128", 0), 1);
	json_decref(o);
	o = ww_sass_parse(listing, "straight");
	assert_false(ww_json_bool(o, "is_loop", 1));
	assert_int_equal(ww_json_int(o, "instructions", 0), 2);
	json_decref(o);
	assert_null(ww_sass_parse(listing, "kernel")); /* a prefix of a name is no name */
	assert_null(ww_sass_parse("", "kernel"));
	assert_null(ww_sass_parse("\t\tFunction : kernel\n        /*zz*/ ;;; /*", "kernel"));
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static json_t *solution(int n_nodes, const char *kernel)
{
	json_t *rows = json_array();
	for (int i = 0; i < n_nodes; i++)
		json_array_append_new(rows,
			json_pack("{s:i, s:s, s:s, s:f, s:f, s:f, s:[i,i,i], s:s, s:s, s:n}", "node", i, "kind", "launch", "kernel",
				kernel, "us", (double)((i * 37) % 101), "share", 0.01, "alone_us", 2.0, "grid", 1, 2, 3, "limit",
				"memory", "sentence", "because", "flops"));
	return json_pack("{s:s, s:s, s:{s:f, s:i, s:i, s:s, s:i}, s:o, s:{s:b, s:s}, s:{s:s}}", "what", "solution",
		"status", "ok", "totals", "us", 10.5, "nodes", n_nodes, "launches", n_nodes, "sentence", "because of this",
		"longest", 30, "nodes", rows, "counters", "available", 0, "reason", "not permitted", "device", "name", "X");
}

static void text(void **state)
{
	struct ww_str s = WW_STR_INIT(1 << 20);
	(void)state;
	json_t *o = solution(100, "a_kernel\x1b[31m");
	ww_profile_text(o, &s);
	assert_true(s.len <= WW_PROFILE_TEXT_BYTES);
	assert_true(strstr(s.p, "because of this") < strstr(s.p, "a_kernel"));
	assert_null(strchr(s.p, '\x1b'));
	assert_non_null(strstr(s.p, "no hardware counters: not permitted"));
	assert_non_null(strstr(s.p, "76 shorter ones"));
	/* The longest first: 100 us is node 30 of (i * 37) mod 101. */
	assert_true(strstr(s.p, "#30 a_kernel") && strstr(s.p, "#30 a_kernel") < strstr(s.p, "#60 a_kernel"));
	json_decref(o);
	ww_str_reset(&s);
	/* The end goes first when there is too much. */
	char *loop = malloc(64 << 10);
	for (size_t i = 0; i < (64 << 10) - 1; i++)
		loop[i] = i % 50 == 49 ? '\n' : 'x';
	loop[(64 << 10) - 1] = 0;
	o = solution(2, "k");
	json_object_set_new(o, "sass", json_pack("{s:b, s:s, s:i}", "available", 1, "loop", loop, "instructions", 5));
	ww_profile_text(o, &s);
	assert_true(s.len <= WW_PROFILE_TEXT_BYTES && s.len > WW_PROFILE_TEXT_BYTES - 256);
	assert_non_null(strstr(s.p, "because of this"));
	assert_non_null(strstr(s.p, "cut; --json has everything\n"));
	json_decref(o);
	free(loop);
	ww_str_reset(&s);
	o = json_pack("{s:s, s:s, s:s}", "what", "solution", "status", "compile_failed", "diagnostics", "line 3: error");
	assert_false(ww_profile_ok(o));
	ww_profile_text(o, &s);
	assert_string_equal(s.p, "status: compile_failed\nline 3: error");
	json_decref(o);
	ww_str_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(work), cmocka_unit_test(positions),
		cmocka_unit_test(occupancy), cmocka_unit_test(limits), cmocka_unit_test(limit_of_the_plan),
		cmocka_unit_test(machine_code), cmocka_unit_test(text) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
