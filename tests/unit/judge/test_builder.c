/* Unit tests of the builder: what plans may do, and what they try. */
#include "unit.h"
#include "h200.h"

#include "base/fs.h"
#include "base/time.h"
#include "judge/build/build.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static struct ww_builder *b;

static const struct ww_tensor inputs[] = { { .name = "x",
	.buf = 0,
	.dtype = WW_F32,
	.rank = 2,
	.itemsize = 4,
	.size = { 128, 1000, 1, 1, 1, 1, 1, 1 },
	.stride = { 1000, 1 },
	.numel = 128000,
	.bytes = 512000,
	.contiguous = 1 } };
static const struct ww_tensor params[] = { { .name = "fc.weight",
	.buf = 1,
	.dtype = WW_F32,
	.rank = 2,
	.itemsize = 4,
	.size = { 64, 1000, 1, 1, 1, 1, 1, 1 },
	.stride = { 1000, 1 },
	.numel = 64000,
	.bytes = 256000,
	.contiguous = 1 } };
static const struct ww_tensor outputs[] = { { .name = "output0",
	.buf = 2,
	.dtype = WW_F32,
	.rank = 2,
	.itemsize = 4,
	.size = { 128, 1000, 1, 1, 1, 1, 1, 1 },
	.stride = { 1000, 1 },
	.numel = 128000,
	.bytes = 512000,
	.contiguous = 1 } };
static const struct ww_scalar scalars[] = { { WW_SCALAR_FLOAT, 0, 0.5 } };
static const struct ww_facts facts = { .inputs = inputs,
	.params = params,
	.outputs = outputs,
	.n_inputs = 1,
	.n_params = 1,
	.n_outputs = 1,
	.scalars = scalars,
	.n_scalars = 1,
	.device = H200 };

struct built {
	enum ww_build_result result;
	struct ww_image *image;
	struct ww_str diag;
	double seconds;
};

static struct built build_with(struct ww_builder *builder, const char *source)
{
	struct ww_err err = WW_ERR_INIT;
	struct built r = { .diag = WW_STR_INIT(65536) };
	uint64_t start = ww_now_ns();
	if (ww_builder_build(builder, source, strlen(source), &facts, &r.image, &r.diag, &r.result, &err) != WW_OK)
		fail_msg("infrastructure error: %s", err.msg);
	r.seconds = ww_seconds_since(start);
	return r;
}

static struct built build(const char *source) { return build_with(b, source); }

static void release(struct built *r)
{
	free(r->image);
	ww_str_release(&r->diag);
}

static const char good[] =
	"#include <ww/plan.h>\n"
	"static int helper(long long rows) { return (int)ww_min(rows, 1024); }\n"
	"void plan(struct ww_plan *p)\n"
	"{\n"
	"	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0);\n"
	"	int s = ww_scratch(p, 4096);\n"
	"	unsigned long long big = 1ull << 63; double d = (double)big; float f = (float)(unsigned long long)d;\n"
	"	struct ww_gemm g = { .m = 1 };\n"
	"	g.k = f > 1;\n"
	"	ww_define(p, \"TILE\", 64 + g.k - 1);\n"
	"	ww_memset(p, s, 0, 4096, 0);\n"
	"	ww_launch(p, ww_fmt(p, \"soft<%d, %s>\", 4, \"float\"), x->size[0], 1, 1, helper(256), 1, 1);\n"
	"	ww_arg_buf(p, x->buf, 0); ww_arg_buf(p, y->buf, 0); ww_arg_i32(p, (int)x->size[1]);\n"
	"	ww_arg_f32(p, (float)ww_scalar(p, 0)->f); ww_arg_i64(p, ww_cdiv(x->numel, 3)); ww_shared(p, 1024);\n"
	"}\n";

/* A good plan gives the image that it describes; every test of an attack ends with it. */
static void expect_good(void)
{
	struct built r = build(good);
	if (r.result != WW_BUILD_OK)
		fail_msg("%s: %s", ww_build_result_text(r.result), r.diag.p);
	assert_int_equal(r.image->n_nodes, 2);
	assert_int_equal(r.image->n_buffers, 4);
	assert_int_equal(ww_image_macros(r.image)[0].value, 64);
	const struct ww_image_launch *l = &ww_image_nodes(r.image)[1].launch;
	assert_string_equal(ww_image_string(r.image, l->kernel), "soft<4, float>");
	assert_int_equal(l->grid[0], 128);
	assert_int_equal(l->block[0], 256);
	assert_int_equal(l->n_args, 5);
	assert_true(ww_image_args(r.image)[l->first_arg + 3].f32 == 0.5f);
	assert_int_equal(ww_image_args(r.image)[l->first_arg + 4].i, 42667);
	struct ww_str text = WW_STR_INIT(65536);
	ww_image_print(r.image, &facts, &text);
	assert_non_null(strstr(
		text.p, "launch  soft<4, float>  grid 128,1,1  block 256,1,1  shared 1024  (x, output0, i32 1000, f32 0.5"));
	ww_str_release(&text);
	release(&r);
}

static void expect(const char *body, enum ww_build_result want, const char *text)
{
	char source[8192];
	snprintf(source, sizeof(source), "#include <ww/plan.h>\nvoid plan(struct ww_plan *p)\n{\n%s\n}\n", body);
	struct built r = build(source);
	if (r.result != want || (text && !strstr(r.diag.p, text)))
		fail_msg("%s\ngave: %s: %s", body, ww_build_result_text(r.result), r.diag.p);
	assert_true((r.image != NULL) == (want == WW_BUILD_OK));
	release(&r);
}

static void good_plan(void **state)
{
	(void)state;
	expect_good();
	struct built one = build(good), two = build(good);
	assert_int_equal(one.image->total_bytes, two.image->total_bytes);
	assert_memory_equal(one.image, two.image, one.image->total_bytes);
	release(&one);
	release(&two);
}

static void errors_name_the_line(void **state)
{
	(void)state;
	expect("int a = 3 4;", WW_BUILD_SYNTAX, "plan.c:4: error");
	expect("return undeclared;", WW_BUILD_SYNTAX, "plan.c:4: error: 'undeclared' undeclared");
	expect("extern int system(const char *); system(\"id\");", WW_BUILD_SYNTAX, "system");
	struct built r = build("int x;\n");
	assert_int_equal(r.result, WW_BUILD_SYNTAX);
	assert_non_null(strstr(r.diag.p, "void plan(struct ww_plan *p)"));
	release(&r);
	expect_good();
}

static void misuse_is_reported(void **state)
{
	(void)state;
	expect("ww_fail(p, \"only float32\");", WW_BUILD_FAILED, "only float32");
	expect("ww_input(p, 3);", WW_BUILD_FAILED, "ww_input(3)");
	expect("long long n = ww_input(p, 7)->size[0]; ww_memset(p, -1, 0, 100 / (n - 1), 0);", WW_BUILD_FAILED,
		"ww_input(7)");
	expect("ww_param(p, \"fc.bias\");", WW_BUILD_FAILED, "fc.bias");
	expect("ww_arg_i32(p, 1);", WW_BUILD_FAILED, "does not follow a ww_launch()");
	expect("ww_launch(p, 0, 1, 1, 1, 1, 1, 1);", WW_BUILD_FAILED, "without a kernel name");
	expect("ww_scratch(p, -5);", WW_BUILD_FAILED, "ww_scratch(-5)");
	expect("", WW_BUILD_INVALID, "no node");
	expect("ww_launch(p, \"k\", 1, 1, 1, 2048, 1, 1);", WW_BUILD_INVALID, "node 0 (launch): block x = 2048");
	expect("ww_memset(p, ww_input(p, 0)->buf, 0, 4, 0);", WW_BUILD_INVALID, "can only be read");
	expect("ww_launch(p, \"k\", 1, 1, 1, 1, 1, 1); ww_arg_f32(p, (float)(0.0 / 0.0 * ww_scalar(p, 0)->f));",
		WW_BUILD_INVALID, "NaN");
	expect(
		"ww_pytorch(p, &(struct ww_pytorch){ \"relu\", \"\", \"relu\", 0, 0 });", WW_BUILD_FAILED, "without buffers");
	expect("int y = ww_output(p, 0)->buf; ww_pytorch(p, &(struct ww_pytorch){ \"relu\", \"\", \"relu\", 0, &y });",
		WW_BUILD_INVALID, "not scratch");
	expect_good();
}

static void limits_hold(void **state)
{
	(void)state;
	expect("for (int i = 0; i < 1000000; i++) ww_memset(p, 2, 0, 4, 0);", WW_BUILD_LIMIT, "4096 nodes");
	expect("for (int i = 0; i < 5000; i++) ww_scratch(p, 4);", WW_BUILD_LIMIT, "1024 scratch");
	expect("ww_launch(p, \"k\", 1, 1, 1, 1, 1, 1); for (int i = 0; i < 65; i++) ww_arg_i32(p, i);", WW_BUILD_LIMIT,
		"64 arguments");
	expect("for (int i = 0; i < 5000; i++) ww_define(p, ww_fmt(p, \"A%d\", i), i);", WW_BUILD_LIMIT, "4096 ww_define");
	expect("ww_fmt(p, \"%2000d\", 1);", WW_BUILD_LIMIT, "1023 bytes");
	expect("static char name[1 << 20]; for (int i = 0; i < (1 << 20) - 1; i++) name[i] = 'a';\n"
		   "for (int i = 0; i < 100; i++) ww_launch(p, name, 1, 1, 1, 1, 1, 1);",
		WW_BUILD_LIMIT, "larger than");
	expect("ww_scratch(p, 1ll << 62); ww_memset(p, 2, 0, 4, 0);", WW_BUILD_INVALID, "scratch buffer 0");
	expect_good();
}

static void endless_plan(void **state)
{
	(void)state;
	struct built r = build("#include <ww/plan.h>\nvoid plan(struct ww_plan *p) { for (;;) ; }\n");
	assert_int_equal(r.result, WW_BUILD_TIMEOUT);
	assert_true(r.seconds < 4);
	release(&r);
	expect_good();
}

static void crashes(void **state)
{
	(void)state;
	expect("*(volatile int *)8 = 1;", WW_BUILD_CRASHED, "signal 11");
	expect("volatile int z = 0; ww_define(p, \"A\", 1 / z);", WW_BUILD_CRASHED, "signal 8");
	expect("void (*f)(void) = (void (*)(void))16; f();", WW_BUILD_CRASHED, NULL);
	expect("char a[64 << 20]; for (int i = 0; i < sizeof(a); i += 512) a[i] = 1;", WW_BUILD_CRASHED, NULL);
	struct built r = build("#include <ww/plan.h>\nstatic int f(int n) { return f(n + 1) + n; }\n"
						   "void plan(struct ww_plan *p) { ww_define(p, \"A\", f(0)); }\n");
	assert_int_equal(r.result, WW_BUILD_CRASHED);
	release(&r);
	expect_good();
}

/* System calls made by hand: nothing but memory and exit is there.  call() gives the kernel's answer, which the plan
 * reports. */
static const char with_syscall[] = "#include <ww/plan.h>\n"
								   "static long call(long n, long a, long b, long c)\n"
								   "{\n"
								   "	long r;\n"
								   "	__asm__ volatile (\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), "
								   "\"d\"(c) : \"rcx\", \"r11\", \"memory\");\n"
								   "	return r;\n"
								   "}\n"
								   "void plan(struct ww_plan *p)\n"
								   "{\n"
								   "	ww_fail(p, ww_fmt(p, \"got %%d\", (int)call(%s)));\n"
								   "}\n";

static void expect_syscall(const char *args, const char *answer)
{
	char source[4096];
	snprintf(source, sizeof(source), with_syscall, args);
	struct built r = build(source);
	if (!strstr(r.diag.p, answer))
		fail_msg("call(%s): %s: %s", args, ww_build_result_text(r.result), r.diag.p);
	release(&r);
}

static void system_calls_are_refused(void **state)
{
	(void)state;
	expect_syscall("2, (long)\"/etc/passwd\", 0, 0", "got -13");      /* open */
	expect_syscall("257, -100, (long)\"/etc/passwd\", 0", "got -13"); /* openat */
	expect_syscall("57, 0, 0, 0", "got -1");                          /* fork */
	expect_syscall("58, 0, 0, 0", "got -1");                          /* vfork */
	expect_syscall("56, 0x11, 0, 0", "got -1");                       /* clone */
	expect_syscall("435, 0, 0, 0", "got -1");                         /* clone3 */
	expect_syscall("59, (long)\"/bin/sh\", 0, 0", "got -1");          /* execve */
	expect_syscall("41, 1, 1, 0", "got -1");                          /* socket */
	expect_syscall("62, -1, 9, 0", "got -1");                         /* kill */
#ifndef WW_SANITIZE                                                   /* whose runtime needs these three */
	expect_syscall("1, 2, (long)\"hello\", 5", "got -");              /* write */
	expect_syscall("228, 0, 0, 0", "got -");                          /* clock_gettime */
	expect_syscall("39, 0, 0, 0", "got -");                           /* getpid */
#endif
	expect_syscall("318, (long)p, 8, 0", "got -1");     /* getrandom */
	expect_syscall("101, 0, 0, 0", "signal 31");        /* ptrace: killed */
	expect_syscall("231, 0, 0, 0", "did not return");   /* exit_group(0) without an answer */
	expect_syscall("231, 127, 0, 0", "did not return"); /* nor with a code that looks like ours */
	expect_good();
}

#ifndef WW_SANITIZE /* whose allocator reads the clock, and which does not let a plan walk over the stack */
/* The auxiliary vector: up the stack from here to AT_PAGESZ, then back to its beginning. */
#define AUXV                                                                                                    \
	"long *a = (long *)&p, *w;\nwhile (a[0] != 6 || a[1] != 4096) a++;\n"                                        \
	"while (a[-1] != 0 || (a[-2] > 0 && a[-2] < 4096)) a -= 2;\n"

static void process_has_no_clock_and_no_words(void **state)
{
	(void)state;
	/* Environment and arguments lie before it. */
	expect(AUXV "for (w = a - 1; !(w[0] > 0 && w[0] < 4096); w--)\n"
				"	if (w[0] && *(char *)w[0]) ww_fail(p, ww_fmt(p, \"it reads %s\", (char *)w[0]));\n"
				"ww_fail(p, \"nothing to read\");",
		WW_BUILD_FAILED, "nothing to read");
	/* The kernel's code that tells the time (AT_SYSINFO_EHDR), and its data before it. */
	expect(AUXV "for (; a[0] != 33; a += 2) ;\nif (*(volatile char *)a[1] == 127) ww_fail(p, \"it is there\");",
		WW_BUILD_CRASHED, NULL);
	expect(AUXV "for (; a[0] != 33; a += 2) ;\nww_fail(p, ww_fmt(p, \"%d\", *(volatile char *)(a[1] - 4096)));",
		WW_BUILD_CRASHED, NULL);
	expect_good();
}
#endif

static void files_cannot_be_included(void **state)
{
	(void)state;
	static const char *const sources[] = { "#include \"/etc/passwd\"\n", "#include </etc/passwd>\n",
		"#include \"../../../../../etc/passwd\"\n", "#define F \"/etc/passwd\"\n#include F\n",
		"#inc\\\nlude \"/etc/passwd\"\n", "/**/ #include \"/etc/passwd\"\n", "#include <stdio.h>\n",
		"#include_next <ww/plan.h>\n", "#include \"/proc/self/environ\"\n" };
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		struct built r = build(sources[i]);
		assert_int_equal(r.result, WW_BUILD_SYNTAX);
		if (strstr(r.diag.p, "root:") || strstr(r.diag.p, "PATH=") || !strstr(r.diag.p, "plan.c:"))
			fail_msg("%s: %s", sources[i], r.diag.p);
		release(&r);
	}
	expect_good();
}

static void include_is_found_where_c_has_it(void **state)
{
	(void)state;
	struct built r = build(
		"/* a comment\n#include <ww/plan.h>\n*/ // #include\n#if 0\n#include <ww/plan.h>\n#endif\n"
		"#  include \"ww/plan.h\" // twice\n#include <ww/plan.h>\nvoid plan(struct ww_plan *p)\n{\n\tnope();\n"
		"\tww_memset(p, 2, 0, 4, 0) }\n");
	assert_int_equal(r.result, WW_BUILD_SYNTAX);
	assert_non_null(strstr(r.diag.p, "plan.c:12: error: ';' expected"));
	release(&r);
}

static void diagnostics_are_bounded_and_clean(void **state)
{
	(void)state;
	struct ww_str source = WW_STR_INIT(1 << 20);
	for (int i = 0; i < 5000; i++)
		ww_str_adds(&source, "#warning \x1b[31m aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
	struct built r = build(source.p);
	assert_int_equal(r.result, WW_BUILD_SYNTAX);
	assert_true(r.diag.len < WW_BUILD_DIAG_BYTES + 100);
	assert_null(strchr(r.diag.p, 0x1b));
	release(&r);
	ww_str_release(&source);
	struct ww_err err = WW_ERR_INIT;
	struct built nul = { .diag = WW_STR_INIT(65536) };
	assert_int_equal(ww_builder_build(b, "int\0x;", 6, &facts, &nul.image, &nul.diag, &nul.result, &err), WW_OK);
	assert_int_equal(nul.result, WW_BUILD_SYNTAX);
	release(&nul);
	expect("ww_fail(p, __DATE__);", WW_BUILD_SYNTAX, "plan.c:4: error: #error __DATE__");
}

static void survives_a_killed_zygote(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		kill(ww_builder_pid(b), SIGKILL);
		expect_good();
	}
}

static void *hammer(void *arg)
{
	int *bad = arg;
	for (int i = 0; i < 20; i++) {
		struct built r = build(i % 5 == 4 ? "void plan(void *p) { *(int *)0 = 1; }" : good);
		*bad += r.result != (i % 5 == 4 ? WW_BUILD_CRASHED : WW_BUILD_OK);
		release(&r);
	}
	return NULL;
}

static void many_threads(void **state)
{
	(void)state;
	pthread_t t[8];
	int bad[8] = { 0 };
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, &bad[i]), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(bad[i], 0);
	}
}

/* The same attacks hold at every level: the builder relies on its filter, not on the file view. */
static void lower_levels(void **state)
{
	struct ww_builder *kept = b;
	for (int l = WW_SANDBOX_SECCOMP; l < (int)ww_builder_level(kept); l++) {
		struct ww_err err = WW_ERR_INIT;
		setenv("WARPWRIGHT_SANDBOX", ww_sandbox_level_name((enum ww_sandbox_level)l), 1);
		assert_int_equal(ww_builder_open(&b, &err), WW_OK);
		assert_int_equal(ww_builder_level(b), l);
		expect_good();
		system_calls_are_refused(state);
		files_cannot_be_included(state);
		ww_builder_close(b);
	}
	unsetenv("WARPWRIGHT_SANDBOX");
	b = kept;
}

static void round_trip_time(void **state)
{
	(void)state;
	double best = 1e9;
	for (int i = 0; i < 50; i++) {
		struct built r = build(good);
		best = r.seconds < best ? r.seconds : best;
		release(&r);
	}
	print_message("fastest build: %.2f ms\n", best * 1e3);
	assert_true(best < 0.5); /* a zygote that started anew each time would take longer */
}

static int open_builder(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	if (ww_builder_open(&b, &err) == WW_OK)
		return 0;
	print_error("%s\n", err.msg);
	return -1;
}

static int close_builder(void **state)
{
	(void)state;
	ww_builder_close(b);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(good_plan), cmocka_unit_test(errors_name_the_line),
		cmocka_unit_test(misuse_is_reported), cmocka_unit_test(limits_hold), cmocka_unit_test(endless_plan),
		cmocka_unit_test(crashes), cmocka_unit_test(system_calls_are_refused),
#ifndef WW_SANITIZE
		cmocka_unit_test(process_has_no_clock_and_no_words),
#endif
		cmocka_unit_test(files_cannot_be_included), cmocka_unit_test(include_is_found_where_c_has_it),
		cmocka_unit_test(diagnostics_are_bounded_and_clean), cmocka_unit_test(survives_a_killed_zygote),
		cmocka_unit_test(many_threads), cmocka_unit_test(lower_levels), cmocka_unit_test(round_trip_time) };
	return cmocka_run_group_tests_name("judge/builder", tests, open_builder, close_builder);
}
