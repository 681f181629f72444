/* The whole judge on the cpu target: an honest solution, wrong ones, and every kind of fault, on one task with one
 * reference worker.  Skipped where there is no Python with PyTorch.
 *
 * all: the order of calls, a disturbed measurement, memory that others hold, the profile of the reference
 *
 * budget: 9 CPU-seconds, all 30 */
#include "unit.h"

#include "agent/tools.h"
#include "base/json.h"
#include "base/time.h"
#include "judge/facts.h"
#include "judge/load.h"
#include "judge/profile/profile.h"
#include "task/ref.h"
#include "task/task.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>

static const char task_source[] = "import torch\n"
								  "import torch.nn as nn\n"
								  "class Model(nn.Module):\n"
								  "    def __init__(self):\n"
								  "        super().__init__()\n"
								  "        self.bias = nn.Parameter(torch.zeros(1000))\n"
								  "    def forward(self, x):\n"
								  "        return torch.relu(x + self.bias) * 2\n"
								  "def get_inputs():\n"
								  "    return [torch.randn(67, 1000)]\n"
								  "def get_init_inputs():\n"
								  "    return []\n";

#define PLAN(before, kernel, y_offset)                                                                                    \
	"#include <ww/plan.h>\n"                                                                                          \
	"void plan(struct ww_plan *p)\n{\n"                                                                               \
	"	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, \"bias\"), *y = ww_output(p, 0);\n"          \
	"	int s = ww_scratch(p, 4000);\n" before "\n"                                                               \
	"	ww_launch(p, \"" kernel "\", x->size[0], 1, 1, 1, 1, 1);\n"                                               \
	"	ww_shared(p, 256);\n"                                                                                     \
	"	ww_arg_buf(p, x->buf, 0);\n	ww_arg_buf(p, b->buf, 0);\n	ww_arg_buf(p, y->buf, " y_offset ");\n"   \
	"	ww_arg_buf(p, s, 0);\n	ww_arg_i64(p, x->size[1]);\n}\n"
#define KERNEL(head, body)                                                                                                \
	"#include <ww/cpu.h>\n" head "\n"                                                                                 \
	"WW_KERNEL(k)\n{\n"                                                                                               \
	"	const float *x = WW_ARG(const float *, 0), *bias = WW_ARG(const float *, 1);\n"                           \
	"	float *y = WW_ARG(float *, 2), *scratch = WW_ARG(float *, 3), *shared = b->shared;\n"                     \
	"	long long n = WW_ARG(long long, 4), row = b->x;\n	(void)scratch, (void)shared, (void)bias;\n" body "\n}\n"
#define LOOP(value, to) "for (long long i = 0; i < " to "; i++) { float v = " value "; y[row * n + i] = v > 0 ? 2 * v : 0; }"
#define GOOD LOOP("x[row * n + i] + bias[i]", "n")

static const char good_plan[] = PLAN("", "k", "0"), good_kernel[] = KERNEL("", GOOD);
static const char slow_kernel[] = KERNEL("", "for (volatile int again = 0; again < 400; again++) { " GOOD " }");

static const struct {
	const char *name, *kernel, *plan;
	enum ww_status status;
	const char *word; /* of the diagnostics; what is NaN falls at the first draw */
} cases[] = { { "honest", good_kernel, good_plan, WW_STATUS_OK, "" },
	{ "a missing tail", KERNEL("", LOOP("x[row * n + i] + bias[i]", "n - 3")), good_plan, WW_STATUS_MISMATCH, "NaN" },
	{ "a missing bias", KERNEL("", LOOP("x[row * n + i]", "n")), good_plan, WW_STATUS_MISMATCH, "parameters re-drawn" },
	{ "a wrong constant", KERNEL("", LOOP("1.001f * x[row * n + i] + bias[i]", "n")), good_plan, WW_STATUS_MISMATCH,
		"expected" },
	{ "an output of NaN", KERNEL("", GOOD " y[row * n] = 0.0f / (float)(n - n);"), good_plan, WW_STATUS_MISMATCH,
		"NaN" },
	{ "an output not written", KERNEL("", ""), good_plan, WW_STATUS_MISMATCH, "NaN" },
	{ "unwritten scratch", KERNEL("", LOOP("x[row * n + i] + bias[i] + 0 * scratch[i]", "n")), good_plan,
		WW_STATUS_MISMATCH, "zero" },
	{ "unwritten shared memory", KERNEL("", LOOP("x[row * n + i] + bias[i] + 0 * shared[i % 64]", "n")), good_plan,
		WW_STATUS_MISMATCH, "zero" },
	{ "a write to an input", KERNEL("", GOOD " ((float *)x)[row * n] = 0;"), good_plan, WW_STATUS_CRASHED,
		"can only be read" },
	{ "a write to a parameter", KERNEL("", GOOD " ((float *)bias)[3] = 0;"), good_plan, WW_STATUS_CRASHED,
		"parameter 0" },
	{ "a write far beyond", KERNEL("", GOOD " y[67 * 1000 + 4096] = 0;"), good_plan, WW_STATUS_CRASHED,
		"beyond the end of output 0" },
	{ "a write just beyond", KERNEL("", GOOD " if (row == 66) y[67 * 1000 + 1] = 0;"), good_plan, WW_STATUS_MISMATCH,
		"overrun" },
	{ "a write before scratch", KERNEL("", GOOD " scratch[-1] = 0;"), good_plan, WW_STATUS_CRASHED,
		"before the start of scratch 0" },
	{ "a read of nowhere", KERNEL("", "y[row * n] = *(volatile float *)16;"), good_plan, WW_STATUS_CRASHED,
		"belongs to no buffer" },
	{ "an endless loop", KERNEL("", "for (volatile int i = 0; ; ) i++;"), good_plan, WW_STATUS_TIMEOUT, "no end" },
	{ "a division by zero", KERNEL("", "volatile int z = 0; y[0] = (float)(7 / z);"), good_plan, WW_STATUS_CRASHED,
		"zero" },
	{ "a trap", KERNEL("", "__builtin_trap();"), good_plan, WW_STATUS_CRASHED, "illegal instruction" },
	{ "an import", KERNEL("extern void _exit(int);", "_exit(0);"), good_plan, WW_STATUS_REFUSED, "_exit" },
	{ "state between calls", KERNEL("static int calls;", "y[0] = (float)calls++;"), good_plan, WW_STATUS_REFUSED, "" },
	{ "a syntax error", KERNEL("", "syntax error"), good_plan, WW_STATUS_COMPILE_FAILED, "error" },
	{ "a plan with a syntax error", good_kernel, "void plan(", WW_STATUS_PLAN_FAILED, "" },
	{ "a plan that refuses", good_kernel, PLAN("ww_fail(p, \"not today\");", "k", "0"), WW_STATUS_PLAN_FAILED,
		"not today" },
	{ "a plan out of its buffers", good_kernel, PLAN("", "k", "y->bytes + 64"), WW_STATUS_PLAN_FAILED, "" },
	{ "an endless plan", good_kernel, PLAN("for (;;) ;", "k", "0"), WW_STATUS_PLAN_FAILED, "" },
	{ "honest after all that", good_kernel, good_plan, WW_STATUS_OK, "" } };

static struct ww_judge *judge;
static struct ww_judge_task *task;

static void run(const char *kernel, const char *plan, enum ww_judge_depth depth, struct ww_verdict *v)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution s = {
		.device_source = kernel, .plan_source = plan, .device_bytes = strlen(kernel), .plan_bytes = strlen(plan)
	};
	if (ww_judge_run(task, &s, depth, v, &err) != WW_OK)
		fail_msg("ww_judge_run: %s", err.msg);
}

static void statuses(void **state)
{
	struct ww_verdict v;
	int wrong = 0;
	(void)state;
	ww_verdict_init(&v);
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		run(cases[i].kernel, cases[i].plan, WW_JUDGE_VERIFY, &v);
		int good = v.status == cases[i].status && strstr(v.diagnostics, cases[i].word) &&
			v.correct == (v.status == WW_STATUS_OK) && (v.reward > 0) == v.correct &&
			(strcmp(cases[i].word, "NaN") != 0 || v.draws == 1);
		if (!good)
			print_error("%s: %s (correct %d, %d draws), expected %s with \"%s\"; diagnostics: %s\n", cases[i].name,
				ww_status_name(v.status), v.correct, v.draws, ww_status_name(cases[i].status), cases[i].word,
				v.diagnostics);
		wrong += !good;
	}
	ww_verdict_release(&v);
	assert_int_equal(wrong, 0);
}

static void a_full_verdict(void **state)
{
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	run(good_kernel, good_plan, WW_JUDGE_FULL, &v);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(v.draws >= 5 && v.checked_calls >= 8);
	assert_true(v.time_device.lo <= v.time.device_us && v.time.device_us <= v.time_device.hi && v.time.device_us > 0);
	assert_true(v.speedup[WW_BASE_EAGER].lo <= v.speedup[WW_BASE_EAGER].mid && v.speedup[WW_BASE_EAGER].lo > 0);
	assert_true(v.baseline_measured[WW_BASE_EAGER] && !v.baseline_measured[WW_BASE_COMPILE]);
	assert_false(v.degenerate);
	assert_false(v.library_only);
	assert_false(v.algebraic);
	ww_verdict_release(&v);
}

/* As many processes as processors compute for 0.1 s of processor time each: do others keep them from it? */
static int others_compute(void)
{
	pid_t pids[64];
	int n = (int)sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t start = ww_now_ns();
	n = n > 64 ? 64 : n;
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			while (clock() < CLOCKS_PER_SEC / 10)
				;
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++)
		waitpid(pids[i], NULL, 0);
	return ww_seconds_since(start) > 0.12;
}

/* A kernel that does its work four hundred times: a few rounds say that it wins nothing.  On a busy machine nothing may
 * be certain, and where there are too few rounds without waiting those with waiting count too. */
static void a_decided_verdict(void **state)
{
	struct ww_verdict v;
	int quick = 0, busy = 0;
	(void)state;
	ww_verdict_init(&v);
	for (int k = 0; k < 3 && !quick; k++) {
		run(slow_kernel, good_plan, WW_JUDGE_DECIDE, &v);
		assert_int_equal(v.status, WW_STATUS_OK);
		assert_true(v.reward == 1 && v.draws >= 5 && v.repeats >= 1);
		assert_true(v.rounds >= 6 && v.checked_calls >= (v.decided ? 3 : 8));
		assert_true(!v.decided || (!v.disturbed && v.speedup[WW_BASE_EAGER].hi < 1 / 0.95));
		quick = v.decided && v.rounds <= 20;
		busy |= others_compute();
	}
	int decided = v.decided, rounds = v.rounds;
	ww_verdict_release(&v);
	if (!quick && !busy)
		fail_msg("decided %d, %d rounds", decided, rounds);
	if (!quick) {
		print_message("# skip: others have the processors, so that no few rounds decide\n");
		skip();
	}
}

/* Rates that were measured when the machine was busy accuse nobody: arithmetic is held to what the processor cannot
 * exceed, the bandwidth is measured again, and what is kept only grows. */
static void low_peaks_accuse_nobody(void **state)
{
	const struct ww_ref_peaks low = { 1e3, 1e3, 1e3, 1e3, 1e3 }, lower = { 1, 1, 1, 1, 1 };
	struct ww_err err = WW_ERR_INIT;
	double asked = task->matrix_flops, bytes = task->bytes, limit = judge->facts.plain_limit_flops;
	unsigned baselines = judge->opts.baselines;
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	judge->peaks = low;
	task->matrix_flops = 1e5;
	task->bytes = (double)task->facts.device.l3_bytes + 4e5;
	judge->opts.baselines = 0;
	run(good_kernel, good_plan, WW_JUDGE_BRIEF, &v);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_false(v.algebraic);
	assert_false(v.suspect);
	assert_true(
		judge->peaks.fp32_flops > 1e8 && judge->peaks.memory_bytes_per_s > 1e8 && judge->peaks.fp32_flops < limit);
	double most = judge->peaks.fp32_flops;
	assert_int_equal(ww_judge_peaks_seen(judge, &lower, &err), WW_OK);
	assert_true(judge->peaks.fp32_flops == most);
	judge->peaks = low; /* as another judge, which has measured long ago; the store knows better */
	assert_int_equal(ww_judge_peaks_seen(judge, &lower, &err), WW_OK);
	assert_true(judge->peaks.fp32_flops == most);
	task->matrix_flops = 1e15; /* more than anything can have done */
	run(good_kernel, good_plan, WW_JUDGE_BRIEF, &v);
	assert_true(v.algebraic);
	task->matrix_flops = asked;
	task->bytes = bytes;
	judge->opts.baselines = baselines;
	ww_verdict_release(&v);
}

/* As many other processes as processors: the verdict is still one, and says that its times are not to be trusted; or it
 * has set aside what they spoilt and the rest agrees within 2%. */
/* A verdict beside `each` processes a processor that spin and are nobody's shell. */
static void run_crowded(const char *kernel, int each, struct ww_verdict *v)
{
	pid_t pids[64];
	long n = each * sysconf(_SC_NPROCESSORS_ONLN);
	n = n > 64 ? 64 : n;
	for (long i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			alarm(60);
			for (volatile unsigned k = 0;; k++)
				;
		}
	}
	ww_verdict_init(v);
	run(kernel, good_plan, WW_JUDGE_FULL, v);
	for (long i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

/* PyTorch's two threads wait for each other, and so lose more by others than a solution of one thread does. */
static void others_processes_are_no_win(void **state)
{
	struct ww_verdict v;
	(void)state;
	run_crowded(slow_kernel, 3, &v);
	print_message("%s; %.2f [%.2f, %.2f] times eager\n", v.disturbance, v.speedup[WW_BASE_EAGER].mid,
		v.speedup[WW_BASE_EAGER].lo, v.speedup[WW_BASE_EAGER].hi);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(v.reward == 1);
	ww_verdict_release(&v);
}

static void a_disturbed_measurement_says_so(void **state)
{
	struct ww_verdict v;
	(void)state;
	run_crowded(good_kernel, 1, &v);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(v.correct && v.attempts >= 1 && v.time.device_us > 0 && v.checked_calls >= 8);
	assert_true(v.disturbed || v.time_device.hi - v.time_device.lo < 0.02 * v.time_device.mid);
	assert_true(!v.disturbed || strstr(v.disturbance, "other") || strstr(v.disturbance, "the times"));
	ww_verdict_release(&v);
}

/* Against itself, beside PyTorch; a baseline that is wrong is the caller's mistake and no verdict. */
static void against_another_solution(void **state)
{
	struct ww_verdict v;
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution good, wrong;
	(void)state;
	good = (struct ww_solution){ .device_source = good_kernel,
		.device_bytes = strlen(good_kernel),
		.plan_source = good_plan,
		.plan_bytes = strlen(good_plan) };
	wrong = good;
	wrong.device_source = cases[2].kernel; /* a missing bias */
	wrong.device_bytes = strlen(cases[2].kernel);
	ww_verdict_init(&v);
	assert_int_equal(ww_judge_run_against(task, &good, &good, WW_JUDGE_FULL, &v, &err), WW_OK);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(v.baseline_measured[WW_BASE_SOLUTION] && v.baseline_measured[WW_BASE_EAGER]);
	assert_true(
		v.speedup[WW_BASE_SOLUTION].lo > 0 && v.speedup[WW_BASE_SOLUTION].lo <= v.speedup[WW_BASE_SOLUTION].mid);
	assert_true(v.checked_calls >= 8 && v.attempts >= 1 && v.attempts <= 3 && v.disturbed == (v.disturbance[0] != 0));
	assert_int_equal(ww_judge_run_against(task, &wrong, &good, WW_JUDGE_FULL, &v, &err), WW_OK);
	assert_int_equal(v.status, WW_STATUS_MISMATCH);
	assert_int_equal(ww_judge_run_against(task, &good, &wrong, WW_JUDGE_FULL, &v, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "baseline solution"));
	ww_verdict_release(&v);
}

/* A baseline that is slow when it goes first and fast behind the candidate, whose answers it finds in the outputs: what
 * counts is the mean of both orders.  Poison is one word throughout, of four.  Both wait by one function, a chain of
 * multiplications: a counter in memory takes one cycle or five, as the processor and the compiler please. */
#define CHAIN                                                                                                             \
	"static int poisoned(const unsigned *y)\n"                                                                           \
	"{\n	int alike = 1;\n	for (int k = 1; k < 16; k++)\n		alike &= y[k] == y[0];\n	return alike;\n}\n"   \
	"static __attribute__((noinline)) unsigned chain(unsigned s, int n)\n"                                             \
	"{\n	for (int k = 0; k < n; k++)\n		s = s * 1664525u + 1013904223u;\n	return s;\n}\n"
#define WAIT(n) "if (!row) *(volatile unsigned *)scratch = chain(*(const unsigned *)x, " n ");\n"

static void nobody_gains_by_the_order(void **state)
{
	static const char steady[] = KERNEL(CHAIN, WAIT("100000") GOOD),
					  restless[] = KERNEL(CHAIN, WAIT("poisoned((const unsigned *)y) ? 200000 : 0") GOOD);
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution candidate = { .device_source = steady,
		.device_bytes = strlen(steady),
		.plan_source = good_plan,
		.plan_bytes = strlen(good_plan) };
	struct ww_solution baseline = candidate;
	struct ww_verdict v;
	int quiet = 0;
	(void)state;
	baseline.device_source = restless;
	baseline.device_bytes = strlen(restless);
	ww_verdict_init(&v);
	for (int k = 0; k < 3 && !quiet; k++) {
		assert_int_equal(ww_judge_run_against(task, &candidate, &baseline, WW_JUDGE_FULL, &v, &err), WW_OK);
		assert_int_equal(v.status, WW_STATUS_OK);
		quiet = !v.disturbed && v.time.device_us < 500;
	}
	double ratio = v.speedup[WW_BASE_SOLUTION].mid, us = v.time.device_us;
	ww_verdict_release(&v);
	if (!quiet) {
		print_message("# skip: others have the processors, so that no order counts\n");
		skip();
	}
	if (ratio < 0.7 || ratio > 1.4) /* each order alone: 0.45 and 1.6 */
		fail_msg("%.2f times, %.1f us", ratio, us);
}

/* A coin of the kernel's own: the time stamp counter, mixed. */
#define COIN(sides) "(__builtin_ia32_rdtsc() * 0x9e3779b97f4a7c15ull >> 40) % " #sides " == 0"

/* Other bits each time, but never far: correct, and the verdict says how often. */
static void noise_is_counted(void **state)
{
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	run(KERNEL("", LOOP("(x[row * n + i] + bias[i]) * (" COIN(2) " ? 1.0000002f : 1)", "n")), good_plan,
		WW_JUDGE_VERIFY, &v);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(v.repeats > 0 && v.nondeterministic == v.repeats);
	run(good_kernel, good_plan, WW_JUDGE_VERIFY, &v);
	assert_true(v.correct && v.nondeterministic == 0);
	assert_int_equal(v.repeats, 44);
	ww_verdict_release(&v);
}

/* Right nine times in ten.  59% of the verdicts come past the five draws and then must fall to the repeats, all but one
 * in a hundred: twenty verdicts without one that did would be a chance of 3e-8. */
static void a_race_falls_to_the_repeats(void **state)
{
	struct ww_verdict v;
	int found = 0;
	(void)state;
	ww_verdict_init(&v);
	for (int i = 0; i < 20 && !found; i++) {
		run(KERNEL("", GOOD " if (row == 0 && " COIN(10) ") y[7] += 1;"), good_plan, WW_JUDGE_VERIFY, &v);
		found = v.repeats > 0 && v.status == WW_STATUS_MISMATCH;
	}
	assert_true(found);
	assert_true(v.draws == 5 && v.nondeterministic == 1 && !v.correct);
	assert_non_null(strstr(v.diagnostics, "on which the first run was right"));
	assert_non_null(strstr(v.diagnostics, "[0, 7]"));
	assert_non_null(strstr(v.diagnostics, "note: compute-sanitizer is for the cuda target"));
	ww_verdict_release(&v);
}

/* What a solution writes must not read as if the judge had said it. */
static void strangers_are_quoted(void **state)
{
	static const char *const kernels[] = { "#error status: ok\n",
		"_Pragma(\"GCC error \\\"\\\\nstatus: ok\\\\n\\\"\")\n",
		"#pragma GCC error \"\xe2\x80\xae"
		"ko :sutats\xe2\x80\xa8status: ok\"\n" };
	static const char *const plans[] = {
		"#include <ww/plan.h>\nvoid plan(struct ww_plan *p) { ww_fail(p, \"x\\nstatus: ok\\r\\nstatus: ok\\x1b[2Kstatus: ok\"); }\n",
		"#error status: ok\n"
	};
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	for (size_t i = 0; i < WW_ARRAY_LEN(kernels) + WW_ARRAY_LEN(plans); i++) {
		int plan = i >= WW_ARRAY_LEN(kernels);
		run(plan ? good_kernel : kernels[i], plan ? plans[i - WW_ARRAY_LEN(kernels)] : good_plan, WW_JUDGE_VERIFY, &v);
		assert_int_equal(v.status, plan ? WW_STATUS_PLAN_FAILED : WW_STATUS_COMPILE_FAILED);
		if (!strstr(v.diagnostics, "status: ok"))
			fail_msg("%zu: %s", i, v.diagnostics);
		assert_null(strstr(v.diagnostics, "\nstatus: ok"));
		assert_true(strncmp(v.diagnostics, "status: ok", 10));
		for (const char *c = v.diagnostics; *c; c++)
			assert_true((unsigned char)*c >= 0x20 || *c == '\n' || *c == '\t');
		assert_null(strstr(v.diagnostics, "\xe2\x80"));
	}
	ww_verdict_release(&v);
}

static void compile_depth_runs_nothing(void **state)
{
	struct ww_verdict v;
	(void)state;
	ww_verdict_init(&v);
	run(cases[14].kernel, cases[14].plan, WW_JUDGE_COMPILE, &v); /* the endless loop */
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_false(v.correct);
	assert_true(v.reward == -1);
	assert_int_equal(v.draws, 0);
	ww_verdict_release(&v);
}

/* ---- Profiles ---------------------------------------------------------------------------------------------------- */

static json_t *profile(const char *kernel, const char *plan)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution s = {
		.device_source = kernel, .plan_source = plan, .device_bytes = strlen(kernel), .plan_bytes = strlen(plan)
	};
	json_t *o;
	if (ww_profile_solution(task, &s, &o, &err) != WW_OK)
		fail_msg("ww_profile_solution: %s", err.msg);
	return o;
}

/* The three operators of the task, in PyTorch: each has a time, bytes and a place under the roofline. */
static void profile_of_the_reference(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str s = WW_STR_INIT(1 << 20);
	json_t *o, *row;
	size_t i;
	double sum = 0, last = INFINITY;
	(void)state;
	if (ww_profile_reference(task, &o, &err) != WW_OK)
		fail_msg("ww_profile_reference: %s", err.msg);
	json_t *rows = json_object_get(o, "operators"), *totals = json_object_get(o, "totals");
	assert_int_equal(json_array_size(rows), 3);
	json_array_foreach(rows, i, row) {
		double us = ww_json_num(row, "us", -1);
		assert_true(us > 0 && us <= last);
		assert_true(ww_json_num(row, "bytes", 0) >= 67000 * 8 && ww_json_num(row, "of_roofline", 0) > 0);
		assert_true(fabs(ww_json_num(row, "bytes_per_s", 0) * us * 1e-6 - ww_json_num(row, "bytes", 0)) < 1);
		last = us;
		sum += us;
	}
	assert_true(fabs(sum - ww_json_num(totals, "us", 0)) < 1e-3 && ww_json_num(totals, "call_us", 0) > 0);
	assert_true(ww_json_num(totals, "bytes", 0) == 67000 * 8 + 4000);
	ww_profile_text(o, &s);
	assert_non_null(strstr(s.p, "aten.relu.default -> float32[67, 1000]"));
	ww_str_release(&s);
	json_decref(o);
}

static void profile_of_solutions(void **state)
{
	struct ww_str s = WW_STR_INIT(1 << 20);
	struct ww_verdict v;
	(void)state;
	json_t *o = profile(good_kernel, good_plan), *rows = json_object_get(o, "nodes"), *row = json_array_get(rows, 0);
	assert_string_equal(ww_json_str(o, "status", ""), "ok");
	assert_int_equal(json_array_size(rows), 1);
	assert_true(ww_json_num(row, "us", 0) > 0 &&
		ww_json_num(row, "us", 0) <= ww_json_num(json_object_get(o, "totals"), "us", 0));
	assert_true(ww_json_num(row, "busy_threads", 0) > 0);
	assert_true(ww_json_num(row, "bytes", 0) == 67000 * 8 + 4000 + 4000); /* x, y, bias, scratch */
	assert_true(ww_json_num(row, "flops", 0) == 3 * 67000);
	assert_string_equal(ww_json_str(row, "kernel", ""), "k");
	ww_profile_text(o, &s);
	assert_non_null(strstr(s.p, "what limits its longest node, #0: "));
	json_decref(o);
	ww_str_release(&s);
	/* One that is wrong, one that crashes, two that do not build: each with the judge's words. */
	static const struct {
		const char *kernel, *plan, *status, *word;
	} bad[] = { { KERNEL("", "y[row] = 0;"), good_plan, "ok", "" },
		{ KERNEL("", GOOD " ((float *)x)[row * n] = 0;"), good_plan, "crashed", "can only be read" },
		{ KERNEL("", "syntax error"), good_plan, "compile_failed", "error" },
		{ good_kernel, PLAN("ww_fail(p, \"not today\");", "k", "0"), "plan_failed", "not today" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		o = profile(bad[i].kernel, bad[i].plan);
		const char *status = ww_json_str(o, "status", "?"), *diagnostics = ww_json_str(o, "diagnostics", "");
		if (strcmp(status, bad[i].status) || !strstr(diagnostics, bad[i].word))
			fail_msg("case %zu: %s (%s), not %s with \"%s\"", i, status, diagnostics, bad[i].status, bad[i].word);
		json_decref(o);
	}
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution other = { .form = WW_FORM_KERNELBENCH };
	assert_int_equal(ww_profile_solution(task, &other, &o, &err), WW_OK);
	assert_string_equal(ww_json_str(o, "status", ""), "refused");
	json_decref(o);
	ww_verdict_init(&v); /* and the judge goes on as if nothing had been */
	run(good_kernel, good_plan, WW_JUDGE_VERIFY, &v);
	assert_true(v.correct);
	ww_verdict_release(&v);
}

/* ---- What policies left running ---------------------------------------------------------------------------------- */

/* Until what spins has used 0.1 s of processor time.  A measurement in another process stops it for seconds. */
static void wait_until_it_spins(void)
{
	double used_s = ww_load_policies_s(getpid());
	for (int i = 0; i < 3000 && ww_load_policies_s(getpid()) - used_s <= 0.1; i++)
		usleep(20000);
	assert_true(ww_load_policies_s(getpid()) - used_s > 0.1);
}

/* Shells of processes with another cache directory are not stopped for us (host/pause.h). */
static double shells_of_others_s(void) { return ww_load_policies_s(0) - ww_load_policies_s(getpid()); }

/* Six processes of a policy's shell, each in a session of its own, spin while its solution is judged.  Once they slowed
 * a baseline of two threads more than a candidate of one, which was paid.  They are stopped while the device is held:
 * they use no processor time meanwhile, nothing was measured beside them, and the reward is what it is without them. */
static void spinning_shells_change_nothing(void **state)
{
	struct ww_shell shell;
	struct ww_shell_answer a;
	struct ww_err err = WW_ERR_INIT;
	struct ww_verdict v;
	(void)state;
	ww_shell_init(&shell);
	if (ww_shell_open(&shell, WW_TARGET_CPU, &err) != WW_OK)
		skip(); /* no namespaces */
	assert_int_equal(
		ww_shell_run(
			&shell, "for n in 1 2 3 4 5 6; do setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & done", 30, &a, &err),
		WW_OK);
	ww_shell_answer_release(&a);
	wait_until_it_spins();
	ww_verdict_init(&v);
	uint64_t start = ww_now_ns();
	double used_s = ww_load_policies_s(getpid()), others_s = shells_of_others_s();
	run(slow_kernel, good_plan, WW_JUDGE_FULL, &v);
	used_s = ww_load_policies_s(getpid()) - used_s;
	others_s = shells_of_others_s() - others_s;
	double held_s = v.seconds.verify + v.seconds.time, free_s = ww_seconds_since(start) - held_s;
	printf("%.2f s of processor time, others' shells %.2f s; held for %.2f s, not for %.2f s; %s\n", used_s, others_s,
		held_s, free_s, v.disturbance);
	assert_true(held_s > 0.2 && used_s < free_s * (double)sysconf(_SC_NPROCESSORS_ONLN) + 0.1);
	assert_true(v.status == WW_STATUS_OK && v.reward == 1);
	assert_true(!v.shell_load || others_s != 0);
	ww_verdict_release(&v);
	ww_shell_close(&shell);
}

/* ---- Memory that others hold ------------------------------------------------------------------------------------- */

static int asked;

static int is_shared(void *ctx)
{
	(void)ctx;
	return ++asked;
}

/* No memory is left the first time that its inputs are drawn, when it is opened, and the sixth, when it is judged.  The
 * times are counted in its reference worker's cache directory. */
static const char crowded_source[] = "import os, torch\n"
									 "import torch.nn as nn\n"
									 "class Model(nn.Module):\n"
									 "    def __init__(self):\n"
									 "        super().__init__()\n"
									 "        self.bias = nn.Parameter(torch.zeros(1000))\n"
									 "    def forward(self, x):\n"
									 "        return torch.relu(x + self.bias) * 2\n"
									 "def get_inputs():\n"
									 "    path = os.path.dirname(os.environ['TORCHINDUCTOR_CACHE_DIR']) + '/drawn'\n"
									 "    with open(path, 'a') as f:\n"
									 "        f.write('x')\n"
									 "    if os.path.getsize(path) in (1, 6):\n"
									 "        raise RuntimeError('CUDA out of memory')\n"
									 "    return [torch.randn(67, 1000)]\n"
									 "def get_init_inputs():\n"
									 "    return []\n";

static void memory_of_others_is_waited_for(void **state)
{
	char source[sizeof(crowded_source) + 64]; /* a text of its own: the cache directory is by content, and lasts */
	struct ww_judge_opts o = judge->opts;
	struct ww_judge *j;
	struct ww_judge_task *t = NULL;
	struct ww_err err = WW_ERR_INIT;
	struct ww_solution s = { .device_source = good_kernel,
		.device_bytes = strlen(good_kernel),
		.plan_source = good_plan,
		.plan_bytes = strlen(good_plan) };
	WW_AUTO(ww_task_release) struct ww_task text;
	struct ww_verdict v;
	(void)state;
	o.shared = is_shared;
	snprintf(source, sizeof(source), "%s# %d %llu\n", crowded_source, (int)getpid(), (unsigned long long)ww_now_ns());
	ww_verdict_init(&v);
	assert_int_equal(ww_task_from_text(&text, "crowded", source, strlen(source), &err), WW_OK);
	assert_int_equal(ww_judge_open(&j, &o, &err), WW_OK);
	assert_int_equal(ww_judge_task_open(j, &text, &t, &err), WW_OK);
	assert_int_equal(ww_judge_run(t, &s, WW_JUDGE_VERIFY, &v, &err), WW_OK);
	assert_int_equal(v.status, WW_STATUS_OK);
	assert_true(asked == 2 && v.seconds.wait > 0.4);
	ww_verdict_release(&v);
	ww_judge_task_close(t);
	ww_judge_close(j);
}

static int open_all(void **state)
{
	struct ww_judge_opts o = { .target = WW_TARGET_CPU,
		.sanitize = 1,
		.baselines = 1u << WW_BASE_EAGER,
		.max_run_s = 2,
		.max_time_s = 0.3,
		.max_repeat_s = 60,
		.threads = 1 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_task t;
	(void)state;
	if (ww_task_from_text(&t, "add", task_source, sizeof(task_source) - 1, &err) != WW_OK ||
		ww_judge_open(&judge, &o, &err) != WW_OK || ww_judge_task_open(judge, &t, &task, &err) != WW_OK) {
		print_error("%s\n", err.msg);
		return err.rc == WW_ERR_MISSING ? 0 : -1;
	}
	ww_task_release(&t);
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	ww_judge_task_close(task);
	ww_judge_close(judge);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(statuses), cmocka_unit_test(a_full_verdict),
		cmocka_unit_test(a_decided_verdict), cmocka_unit_test(against_another_solution),
		cmocka_unit_test(low_peaks_accuse_nobody), cmocka_unit_test(compile_depth_runs_nothing),
		cmocka_unit_test(profile_of_solutions), cmocka_unit_test(noise_is_counted),
		cmocka_unit_test(a_race_falls_to_the_repeats), cmocka_unit_test(strangers_are_quoted),
		cmocka_unit_test(spinning_shells_change_nothing) };
	const struct CMUnitTest more[] = { cmocka_unit_test(nobody_gains_by_the_order),
		cmocka_unit_test(a_disturbed_measurement_says_so), cmocka_unit_test(others_processes_are_no_win),
		cmocka_unit_test(profile_of_the_reference), cmocka_unit_test(memory_of_others_is_waited_for) };
	char python[PATH_MAX], command[PATH_MAX + 128];
	struct ww_err err = WW_ERR_INIT;
	if (ww_ref_find_python(python, &err) == WW_OK) {
		snprintf(command, sizeof(command),
			"'%s' -c 'import importlib.util as u, sys; sys.exit(u.find_spec(\"torch\") is None)' 2>/dev/null", python);
		if (system(command) == 0)
			return cmocka_run_group_tests(tests, open_all, close_all) +
				(unit_all(argc, argv) ? cmocka_run_group_tests(more, open_all, close_all) : 0);
	}
	fprintf(stderr, "skipped: no Python with PyTorch\n");
	return 77;
}
