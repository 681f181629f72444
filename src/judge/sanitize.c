/* sanitize.c - a candidate that failed, once more under NVIDIA's compute-sanitizer (judge --sanitize).
 *
 * A runner of its own is started by the tool, which puts itself between the process and the driver; it gets the same
 * plan, the task's buffers and the draw that they hold, runs once, and ends by itself, because the tool writes its
 * summary then.  One process a tool: memcheck (out of bounds, misaligned), racecheck (hazards on shared memory),
 * initcheck (reads of memory that was never written; for it scratch and outputs are not poisoned, since poison is a
 * write). The buffers are copies in allocations of their own (WW_RUN_EXACT), since a tool knows neither the ends nor
 * the state of what another process has shared.
 *
 * The report may contain text of untrusted code: it is bounded, stripped of the tool's decoration, and quoted. A
 * failure in here is no error of the judgement, which is over: it is a line in the diagnostics. */
#include "judge/stages.h"

#include "base/fs.h"
#include "base/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_BYTES = 3000, LOG_MAX_BYTES = 4 << 20, RUN_LIMIT_S = 60, END_LIMIT_S = 30 };

static int find_tool(char *out)
{
	const char *const roots[] = { getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda" };
	if (ww_fs_which("compute-sanitizer", out))
		return 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(roots); i++)
		if (roots[i] && (size_t)snprintf(out, PATH_MAX, "%s/bin/compute-sanitizer", roots[i]) < PATH_MAX &&
			ww_fs_is_file(out))
			return 1;
	return 0;
}

/* "========= Invalid __global__ read" without its ornament; the lines that say nothing left out. */
static void add_report(struct ww_str *diag, const char *text)
{
	static const char *const idle[] = { "COMPUTE-SANITIZER", "ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards",
		"LEAK SUMMARY", "Host Frame", "Saved host backtrace" };
	ww_auto_str clean = WW_STR_INIT(LOG_MAX_BYTES);
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "\n"), skip = strspn(p, "= \t");
		int drop = skip >= n;
		for (size_t i = 0; !drop && i < WW_ARRAY_LEN(idle); i++)
			drop = memmem(p, n, idle[i], strlen(idle[i])) != NULL;
		if (!drop) {
			ww_str_add(&clean, p + skip, n - skip);
			ww_str_addc(&clean, '\n');
		}
		p += n + (p[n] == '\n');
	}
	if (clean.len)
		ww_str_add_quoted(diag, clean.p, clean.len, REPORT_BYTES);
	else
		ww_str_adds(diag, "| nothing found\n");
}

static enum ww_rc run_once(struct ww_judge_task *t, struct ww_runner *r, const struct ww_image *image,
	const struct ww_compiled *binary, int poison, struct ww_err *err)
{
	struct ww_run_facts facts;
	struct ww_run_result res;
	WW_CHECK(ww_runner_facts(r, &facts, err));
	WW_CHECK(ww_session_load(t, r, image, binary, NULL, 0, &res, err));
	if (res.kind == WW_RUN_OK && poison)
		WW_CHECK(ww_runner_prepare(r, WW_RUN_POISON, &res, err));
	if (res.kind == WW_RUN_OK)
		WW_CHECK(ww_runner_go(r, RUN_LIMIT_S, &res, err));
	if (res.kind == WW_RUN_LATE)
		return ww_err_set(err, WW_ERR_TIMEOUT, "it did not end within %d s", RUN_LIMIT_S);
	return WW_OK;
}

static enum ww_rc one_tool(struct ww_judge_task *t, const char *program, const char *tool, const struct ww_image *image,
	const struct ww_compiled *binary, struct ww_str *diag, struct ww_err *err)
{
	struct ww_tmpdir dir = WW_TMPDIR_INIT;
	struct ww_str text = WW_STR_INIT(LOG_MAX_BYTES);
	struct ww_runner *r = NULL;
	struct ww_err why = WW_ERR_INIT;
	char log[PATH_MAX];
	/* Errors of our own driver calls are left out (exec_cuda.c asks for one parameter too many on purpose). */
	const char *args[] = { "--tool", tool, "--log-file", log, "--print-limit", "12", "--show-backtrace", "device",
		strcmp(tool, "memcheck") ? NULL : "--report-api-errors", "no", NULL };
	enum ww_rc rc;

	WW_TRY(ww_tmpdir_new(&dir, "sanitize", err));
	WW_TRY(ww_fs_join(log, dir.path, "log", err));
	WW_TRY(ww_runner_new_watched(&r, t->judge->opts.device, program, args, err));
	enum ww_rc ran = run_once(t, r, image, binary, strcmp(tool, "initcheck") != 0, &why);
	ww_runner_end(r, END_LIMIT_S);
	ww_str_addf(diag, "compute-sanitizer, %s%s%s:\n", tool,
		ran == WW_OK ? "" : ", which did not come to its end: ", ran == WW_OK ? "" : why.msg);
	WW_TRY(ww_fs_read(log, LOG_MAX_BYTES, &text, err));
	add_report(diag, text.p);
out:
	ww_str_release(&text);
	ww_tmpdir_remove(&dir);
	return rc;
}

enum ww_rc ww_judge_sanitize(struct ww_judge_task *t, const struct ww_image *image, const struct ww_compiled *binary,
	struct ww_str *diag, struct ww_err *err)
{
	static const char *const tools[] = { "memcheck", "racecheck", "initcheck" };
	char program[PATH_MAX];

	if (t->judge->opts.target != WW_TARGET_CUDA) {
		ww_str_adds(diag,
			"note: compute-sanitizer is for the cuda target; here unmapped pages, "
			"guard bytes and poison are all there is\n");
		return WW_OK;
	}
	if (ww_pytorch_count(image)) {
		ww_str_adds(diag, "note: no report of compute-sanitizer: PyTorch runs operators between the kernels\n");
		return WW_OK;
	}
	if (!find_tool(program)) {
		ww_str_adds(diag,
			"note: compute-sanitizer is not installed (it comes with the CUDA toolkit), so there is no report of it\n");
		return WW_OK;
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++) {
		struct ww_err why = WW_ERR_INIT;
		WW_CHECK(ww_judge_interrupted(t->judge, err));
		ww_judge_progress(t->judge, tools[i]);
		if (one_tool(t, program, tools[i], image, binary, diag, &why) != WW_OK)
			ww_str_addf(diag, "note: no report of compute-sanitizer, %s: %s\n", tools[i], why.msg);
	}
	return WW_OK;
}
