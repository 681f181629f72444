/* Solutions of the three forms in a workspace, and the loops without tools: files
from an answer, a single answer, answers followed by their verdicts, resumed after each line. */
#include "script.h"

#include "agent/extract.h"
#include "agent/workspace.h"

#include <limits.h>

/* ---- Files out of an answer -------------------------------------------------------------------------------------- */

static enum ww_rc note(void *ctx, const char *name, const char *code, size_t n, struct ww_err *err)
{
	ww_str_addf(ctx, "%s=%.*s", name, (int)n, code);
	return WW_OK;
}

static void extraction(void **state)
{
	static const struct {
		enum ww_form form;
		const char *text, *files;
	} rows[] = {
		{ WW_FORM_PLAN, "so:\n```cuda kernels.cu\nK\n```\nand\n```c\nvoid plan(struct ww_plan *p)\n```\n",
			"kernels.cu=K\nplan.c=void plan(struct ww_plan *p)\n" },
		{ WW_FORM_PLAN, "```cpp\n// plan.c\nx\n```\n```c++\ny\n```\n", "plan.c=// plan.c\nx\nkernels.cu=y\n" },
		{ WW_FORM_PLAN, "```python\nprint(1)\n```\n```\nsome text\n```\n", "" },
		{ WW_FORM_PLAN, "```cuda\n__global__ k;\n", "kernels.cu=__global__ k;\n" },
		{ WW_FORM_KERNELBENCH, "```python\nclass ModelNew(nn.Module):\n```\n",
			"kernel.py=class ModelNew(nn.Module):\n" },
		{ WW_FORM_KERNELBENCH, "```python\nclass Model(nn.Module):\n```\n", "" },
		{ WW_FORM_KERNELBENCH, "```python\n# kernel.py\nx\n```\n", "kernel.py=# kernel.py\nx\n" },
		{ WW_FORM_CUDA_AGENT,
			"```cpp\n// kernels/add.cu\nA\n```\n```python\nclass ModelNew:\n```\n```cpp\n// ../x.cu\nB\n```\n",
			"kernels/add.cu=// kernels/add.cu\nA\nmodel_new.py=class ModelNew:\n" },
		{ WW_FORM_CUDA_AGENT, "```\n// kernels/a/b.cu\n```\n```\n// kernels/x.py\n```\n", "" },
	};
	struct ww_err err;
	int n;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		ww_auto_str files = WW_STR_INIT(4096);
		assert_int_equal(ww_extract_files(rows[i].text, rows[i].form, WW_TARGET_CUDA, note, &files, &n, &err), WW_OK);
		assert_string_equal(files.p, rows[i].files);
	}
}

/* ---- Forms ------------------------------------------------------------------------------------------------------- */

/* A folder for a run, PATH_MAX bytes. */
static void make_folder(char *out, const char *name)
{
	struct ww_err err;
	assert_int_equal(ww_fs_join(out, dir, name, &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(out, &err), WW_OK);
}

static void holds_file(const char *where, const char *name, const char *text)
{
	struct ww_err err;
	ww_auto_str s = WW_STR_INIT(4096);
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, where, name, &err), WW_OK);
	assert_int_equal(ww_fs_read(path, 4096, &s, &err), WW_OK);
	assert_string_equal(s.p, text);
}

/* CUDA Agent's working directory: the task is in it, model_new.py and kernels/ are the solution, notes are not. */
static void working_directory(void **state)
{
	static const struct line lines[] = { { "write", { "write", "write", "write" },
											 { "{\"path\":\"kernels/a.cu\",\"text\":\"us=90\"}",
												 "{\"path\":\"notes.md\",\"text\":\"n\"}",
												 "{\"path\":\"kernels/a_binding.cpp\",\"text\":\"b\"}" } },
		{ "early", { "verify" }, { "{}" } },
		{ "more", { "write", "verify", "read" },
			{ "{\"path\":\"model_new.py\",\"text\":\"class ModelNew: pass\"}", "{}", "{\"path\":\"model.py\"}" } },
		{ "hand in", { "submit" }, { "{}" } } };
	struct fixture f;
	char where[PATH_MAX], solution[PATH_MAX];
	make_folder(where, "agent");
	prepare(&f, where, lines, 4);
	f.opts.form = WW_FORM_CUDA_AGENT;
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	assert_true(f.result.has_best && f.result.best.time.device_us == 90);
	assert_int_equal(ww_fs_join(solution, where, "solution", &f.err), WW_OK);
	holds_file(solution, "model_new.py", "class ModelNew: pass");
	holds_file(solution, "kernels/a.cu", "us=90");
	holds_file(solution, "kernels/a_binding.cpp", "b");
	struct ww_solution_files files;
	assert_int_equal(ww_solution_load(&files, solution, WW_TARGET_CPU, &f.err), WW_OK);
	assert_int_equal(files.solution.form, WW_FORM_CUDA_AGENT);
	assert_int_equal(files.n, 3);
	ww_solution_files_release(&files);
	ww_auto_str record = WW_STR_INIT(1 << 20);
	normal_form(where, &record);
	assert_non_null(strstr(record.p, "\"form\":\"cuda-agent\""));
	assert_non_null(strstr(record.p, "write model_new.py first"));
	assert_non_null(strstr(record.p, "class Model: pass")); /* model.py was read */
	finish(&f);
	prepare(&f, where, lines, 4);
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_ERR_USAGE); /* it has ended, and in another form */
	finish(&f);
}

/* ---- Loops without tools ----------------------------------------------------------------------------------------- */

#define ANSWER(us) { "```python\nclass ModelNew: # us=" us "\n```\n", { NULL }, { NULL } }

static const struct line answers[] = { { "I think.\n", { NULL }, { NULL } }, ANSWER("180"),
	{ "```python\nclass ModelNew: # wrong\n```\n", { NULL }, { NULL } }, ANSWER("120"), ANSWER("100") };

static void run_answers(struct fixture *f, const char *where, enum ww_loop loop, int turns)
{
	prepare(f, where, answers, 5);
	f->opts.form = WW_FORM_KERNELBENCH;
	f->opts.loop = loop;
	f->opts.max_turns = turns;
	assert_int_equal(ww_agent_run(&f->opts, &f->result, &f->err), WW_OK);
}

static void refining(void **state)
{
	struct fixture f;
	char where[PATH_MAX], again[PATH_MAX], path[PATH_MAX], cut[PATH_MAX], name[32];
	ww_auto_str whole = WW_STR_INIT(1 << 20), text = WW_STR_INIT(1 << 20);
	make_folder(where, "refine");
	run_answers(&f, where, WW_LOOP_REFINE, 4);
	assert_string_equal(f.result.end.reason, "turns");
	assert_int_equal(f.result.turns, 4);
	assert_true(f.result.best.time.device_us == 120);
	assert_int_equal(f.judge.calls, 4); /* two answers, at the end the last one and the best before it */
	finish(&f);
	normal_form(where, &whole);
	assert_non_null(strstr(whole.p, "no block of code is kernel.py"));
	assert_non_null(strstr(whole.p, "line 1: error"));

	/* Cut after each line, and gone on with: the same record. */
	assert_int_equal(ww_fs_join(path, where, "episode.jsonl", &f.err), WW_OK);
	assert_int_equal(ww_fs_read(path, 1 << 20, &text, &f.err), WW_OK);
	int n = 0;
	for (const char *p = text.p, *nl; (nl = strchr(p, '\n')) && nl[1]; p = nl + 1, n++) {
		ww_auto_str now = WW_STR_INIT(1 << 20);
		snprintf(name, sizeof(name), "refine-%d", n);
		make_folder(again, name);
		assert_int_equal(ww_fs_join(cut, again, "episode.jsonl", &f.err), WW_OK);
		assert_int_equal(ww_fs_write(cut, text.p, (size_t)(nl + 1 - text.p), &f.err), WW_OK);
		run_answers(&f, again, WW_LOOP_REFINE, 4);
		finish(&f);
		normal_form(again, &now);
		assert_string_equal(now.p, whole.p);
	}
	assert_true(n > 8);
}

static void single(void **state)
{
	static const struct line calls[] = { { "look", { "inspect" }, { "{}" } }, KERNEL("150"), KERNEL("100") };
	struct fixture f;
	char where[PATH_MAX];
	make_folder(where, "single");
	run_answers(&f, where, WW_LOOP_SINGLE, 50);
	assert_string_equal(f.result.end.reason, "stopped"); /* an answer without a file */
	assert_int_equal(f.result.turns, 1);
	finish(&f);

	/* A policy that is a program calls tools: the first message that leaves a solution ends it, unjudged till then. */
	make_folder(where, "program");
	prepare(&f, where, calls, 3);
	f.opts.loop = WW_LOOP_SINGLE;
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	assert_string_equal(f.result.end.reason, "single");
	assert_int_equal(f.result.turns, 2);
	assert_int_equal(f.judge.calls, 1);
	assert_true(f.result.best.time.device_us == 150);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(extraction), cmocka_unit_test(working_directory),
		cmocka_unit_test(refining), cmocka_unit_test(single) };
	return cmocka_run_group_tests(tests, script_setup, script_teardown);
}
