/* Checks of exports that find too little memory of the device.  The Python of the checks is made up: it says what
 * PyTorch says, as often as a case wants.  No GPU is needed: a judge's caller may say who else holds memory.
 *
 * budget: 4 CPU-seconds */
#include "unit.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/time.h"
#include "export/parts.h"
#include "judge/build/build.h"
#include "judge/internal.h"
#include "task/task.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* $WW_TEST_DIR: attempts (how many there were), jobs (what each was told), lacking (in how many the text of `lack` is
 * said). */
static const char python_text[] = "#!/bin/sh\n"
								  "cd \"$WW_TEST_DIR\" || exit 1\n"
								  "read -r jobs\n"
								  "echo \"$jobs\" >> jobs\n"
								  "n=$(wc -l < jobs)\n"
								  "said=pass\n"
								  "[ \"$n\" -gt \"$(cat lacking)\" ] || said=lack\n"
								  "for job in $(echo \"$jobs\" | grep -o check.py); do cat $said; done\n";
#define OUT_OF_MEMORY \
	"OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 139.80 " \
	"GiB of which 626.31 MiB is free. Process 71 has 130.00 GiB memory in use. Including non-PyTorch memory, this " \
	"process has 512.00 MiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch"
#define OUTPUT(report, code) "{\"output\": \"" report "\\n\", \"code\": " code "}\n"
#define PASS "{\\\"worst\\\": 0.5, \\\"pass\\\": true"
#define FAILED "{\\\"worst\\\": 0.0, \\\"pass\\\": false, \\\"error\\\": "

static char top[] = "/tmp/ww_test_room_XXXXXX";
static struct ww_builder *builder;
static struct ww_compiler *compiler;
static int others_for; /* how many times others are said to hold memory, from now on */
static int asked, interrupts;
static volatile int interrupted;
static char waits[4096]; /* the stages that begin with "waiting" */

static int is_shared(void *ctx)
{
	(void)ctx;
	asked++;
	interrupted = interrupts;
	return others_for > 0 && others_for--;
}

static void note_stage(void *ctx, const char *stage)
{
	(void)ctx;
	if (!strncmp(stage, "waiting", strlen("waiting")))
		snprintf(waits + strlen(waits), sizeof(waits) - strlen(waits), "%s\n", stage);
}

static void put(const char *name, const char *text)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_join(path, top, name, &err), WW_OK);
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

static int count_lines(const char *name)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str text = WW_STR_INIT(65536);
	int n = 0;
	assert_int_equal(ww_fs_join(path, top, name, &err), WW_OK);
	if (!ww_fs_is_file(path))
		return 0;
	assert_int_equal(ww_fs_read(path, 65536, &text, &err), WW_OK);
	for (const char *p = text.p; p && (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

/* Whether each line of `jobs` has this text. */
static int each_is_told(const char *text)
{
	char command[PATH_MAX + 128];
	snprintf(command, sizeof(command), "! grep -v '%s' '%s/jobs'", text, top);
	return system(command) == 0;
}

/* Export the worked solution in the first n formats.  lacking: in how many attempts the checks say `said`. */
static void export(int n, int lacking, const char *said, double waited_s, enum ww_rc *rc, struct ww_err *errs)
{
	static const char kernels[] =
		"#include <ww/cpu.h>\nWW_KERNEL(copy)\n{\n\tconst float *x = WW_ARG(const float *, 0);\n"
		"\tWW_ARG(float *, 1)[b->x] = x[b->x];\n}\n";
	static const char plan[] = "#include <ww/plan.h>\nvoid plan(struct ww_plan *p)\n{\n"
							   "\tww_launch(p, \"copy\", 8, 1, 1, 1, 1, 1);\n\tww_arg_buf(p, ww_input(p, 0)->buf, 0);\n"
							   "\tww_arg_buf(p, ww_output(p, 0)->buf, 0);\n}\n";
	struct ww_tensor in = { .name = "x",
		.buf = 0,
		.dtype = WW_F32,
		.rank = 1,
		.itemsize = 4,
		.size = { 8, 1, 1, 1, 1, 1, 1, 1 },
		.stride = { 1 },
		.numel = 8,
		.bytes = 32,
		.contiguous = 1 };
	struct ww_tensor out = in;
	out.name = "output0";
	out.buf = 1;
	struct ww_judge judge = { .opts = { .target = WW_TARGET_CPU,
								  .device = 3,
								  .interrupted = &interrupted,
								  .progress = note_stage,
								  .shared = is_shared },
		.builder = builder,
		.compiler = compiler,
		.room_waited_s = waited_s };
	struct ww_judge_task judged = { .judge = &judge, .lock = PTHREAD_MUTEX_INITIALIZER, .graph = json_object() };
	judged.facts = (struct ww_facts){
		.inputs = &in, .outputs = &out, .n_inputs = 1, .n_outputs = 1, .device = { .target = WW_TARGET_CPU }
	};
	struct ww_task task = { .path = (char *)"", .name = (char *)"copied", .source = (char *)"", .id = "0" };
	struct ww_solution solution = { .device_source = kernels,
		.plan_source = plan,
		.device_bytes = sizeof(kernels) - 1,
		.plan_bytes = sizeof(plan) - 1 };
	struct ww_export_opts o[WW_EXPORT_COUNT];
	char dirs[WW_EXPORT_COUNT][PATH_MAX], times[16], command[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_runner_new(&judge.spares[0], WW_TARGET_CPU, 0, 1, 0, &err), WW_OK);
	judge.n_spares = 1;
	snprintf(command, sizeof(command), "rm -rf '%s/jobs' '%s'/to-*", top, top);
	assert_int_equal(system(command), 0);
	snprintf(times, sizeof(times), "%d\n", lacking);
	put("lacking", times);
	put("lack", said);
	*waits = 0;
	asked = 0;
	for (int i = 0; i < n; i++) {
		snprintf(dirs[i], sizeof(dirs[i]), "%s/to-%d", top, i);
		o[i] = (struct ww_export_opts){ .judged = &judged,
			.task = &task,
			.solution = &solution,
			.format = (enum ww_export_format)i,
			.dir = dirs[i],
			.interrupted = &interrupted };
		errs[i] = (struct ww_err)WW_ERR_INIT;
	}
	ww_exports(o, n, rc, errs);
	assert_int_equal(judge.n_spares, 0); /* the checks need the memory that the judge's processes hold */
	for (int i = 0; i < n; i++)
		assert_int_equal(ww_fs_is_dir(dirs[i]), rc[i] == WW_OK);
	json_decref(judged.graph);
}

static void memory_of_others_is_waited_for(void **state)
{
	enum ww_rc rc;
	struct ww_err err;
	(void)state;
	others_for = 2;
	uint64_t start = ww_now_ns();
	export(1, 2, OUTPUT(FAILED "\\\"" OUT_OF_MEMORY "\\\"}", "1"), 0, &rc, &err);
	assert_int_equal(rc, WW_OK);
	assert_true(ww_seconds_since(start) > 1.5 && count_lines("jobs") == 3 && asked == 2);
	assert_string_equal(waits,
		"waiting for 1.5 GiB of the device's memory, held by others\n"
		"waiting for 1.5 GiB of the device's memory, held by others\n");
}

/* The other exports' checks may have had it: those that failed are made again one by one, without waiting. */
static void all_formats_at_once(void **state)
{
	enum ww_rc rc[WW_EXPORT_COUNT];
	struct ww_err errs[WW_EXPORT_COUNT];
	(void)state;
	others_for = 0;
	export(WW_EXPORT_COUNT, 1, OUTPUT(FAILED "\\\"RuntimeError: CUDA error: out of memory\\\"}", "1"), 0, rc, errs);
	for (int i = 0; i < WW_EXPORT_COUNT; i++)
		assert_int_equal(rc[i], WW_OK);
	assert_int_equal(count_lines("jobs"), 1 + WW_EXPORT_COUNT);
	assert_true(each_is_told("\"device\": *3,"));
	assert_string_equal(waits, "");
}

/* Those that held it when the check failed may have gone when that is asked, so it is tried once more. */
static void where_nobody_else_is_it_fails(void **state)
{
	enum ww_rc rc;
	struct ww_err err;
	(void)state;
	others_for = 0;
	export(1, 99, OUTPUT(FAILED "\\\"" OUT_OF_MEMORY "\\\"}", "1"), 0, &rc, &err);
	assert_int_equal(rc, WW_ERR_WORKER);
	assert_non_null(strstr(err.msg, "export failed its check: OutOfMemoryError: CUDA out of memory. Tried to"));
	assert_true(count_lines("jobs") == 2 && asked == 2 && !*waits);
	export(1, 99, OUTPUT(FAILED "\\\"AssertionError: weight differs\\\"}", "1"), 0, &rc, &err);
	assert_int_equal(rc, WW_ERR_WORKER);
	assert_true(count_lines("jobs") == 1 && !asked);
}

static void the_wait_has_a_limit(void **state)
{
	enum ww_rc rc;
	struct ww_err err;
	(void)state;
	others_for = 1000;
	export(1, 99, OUTPUT(FAILED "\\\"" OUT_OF_MEMORY "\\\"}", "1"), 600, &rc, &err);
	assert_int_equal(rc, WW_ERR_WORKER);
	assert_true(count_lines("jobs") == 2 && !*waits);
}

static void an_interruption_ends_the_wait(void **state)
{
	enum ww_rc rc;
	struct ww_err err;
	(void)state;
	others_for = 1000;
	interrupts = 1;
	export(1, 99, OUTPUT(FAILED "\\\"" OUT_OF_MEMORY "\\\"}", "1"), 0, &rc, &err);
	interrupts = interrupted = 0;
	assert_int_equal(rc, WW_ERR_INTERRUPTED);
	assert_true(count_lines("jobs") == 1 && asked == 1);
}

/* Without the reference in fp64 the check allows more: memory that others hold is no reason for that. */
static void the_reference_in_fp64_needs_memory_too(void **state)
{
	static const char said[] = OUTPUT(PASS ", \\\"no_fp64\\\": \\\"" OUT_OF_MEMORY "\\\"}", "0");
	enum ww_rc rc;
	struct ww_err err;
	(void)state;
	others_for = 1;
	export(1, 1, said, 0, &rc, &err);
	assert_true(rc == WW_OK && count_lines("jobs") == 2);
	others_for = 0;
	export(1, 99, said, 0, &rc, &err);
	assert_true(rc == WW_OK && count_lines("jobs") == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(memory_of_others_is_waited_for),
		cmocka_unit_test(all_formats_at_once), cmocka_unit_test(where_nobody_else_is_it_fails),
		cmocka_unit_test(the_wait_has_a_limit), cmocka_unit_test(an_interruption_ends_the_wait),
		cmocka_unit_test(the_reference_in_fp64_needs_memory_too) };
	const struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	char python[PATH_MAX], command[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	if (!mkdtemp(top))
		return 1;
	snprintf(python, sizeof(python), "%s/python", top);
	put("python", python_text);
	put("pass", OUTPUT(PASS "}", "0"));
	if (chmod(python, 0755) || setenv("WW_PYTHON", python, 1) || setenv("WW_TEST_DIR", top, 1))
		return 1;
	if (ww_builder_open(&builder, &err) != WW_OK || ww_compiler_open(&compiler, &o, &err) != WW_OK) {
		print_error("%s\n", err.msg);
		return 1;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ww_builder_close(builder);
	ww_compiler_close(compiler);
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command) ? 1 : failed;
}
