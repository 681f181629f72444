/* call.c - how long does a call of the exported operator take?
 *
 * The judge times a plan as a CUDA graph in a runner; a user calls an operator from Python.  What lies between
 * (PyTorch's dispatch, allocation of outputs and scratch, one launch for each node) is no part of a kernel's speed, but
 * it is what KernelBench's clock would see, so a verdict can have both.  The operator is exported into a private
 * directory and timed by a fresh process that holds nothing of the judge's: no reference, no seeds, no expected output.
 * Device code cannot reach that process's clock, and the process is confined like a reference worker, since it runs the
 * task's file.
 *
 * It takes about five seconds (importing PyTorch, building the C library), so it is done for closing judgements only,
 * never in a search.  Rejected: loading the operator into the reference worker (a fault of the device code would take
 * the references with it); adding a constant for PyTorch's dispatch to the graph's time (a guess). */
#include "export/parts.h"
#include "base/json.h"
#include "task/task.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { OUTPUT_BYTES = 65536 };

static enum ww_rc read_times(const json_t *report, double *us, int max, int *n, struct ww_err *err)
{
	const json_t *times = json_object_get(report, "us");
	size_t count = json_array_size(times);
	if (!count || count > (size_t)max)
		return ww_err_set(
			err, WW_ERR_WORKER, "timing the exported operator: %s", ww_json_str(report, "error", "no times"));
	for (size_t i = 0; i < count; i++) {
		us[i] = json_number_value(json_array_get(times, i));
		if (!isfinite(us[i]) || us[i] <= 0)
			return ww_err_set(err, WW_ERR_WORKER, "timing the exported operator gave no times");
	}
	*n = (int)count;
	return WW_OK;
}

static enum ww_rc run(struct ww_export *x, struct ww_export_python *python, int device,
	const struct ww_export_turn *turn, double *us, int max, int *n, struct ww_err *err)
{
	ww_auto_str out = WW_STR_INIT(OUTPUT_BYTES), tail = WW_STR_INIT(512), line = WW_STR_INIT(2 * PATH_MAX);
	int status;
	json_auto_t *args = json_pack(
		"[o,o,o]", json_sprintf("%s/time_call.py", x->dir), json_sprintf("%d", max), json_sprintf("%d", device));
	ww_json_add(&line, args);
	ww_str_addc(&line, '\n');
	WW_CHECK(ww_export_python_run(python, line.p, turn, x->o->interrupted, &out, &status, err));
	json_auto_t *report = ww_export_report(&out, &tail);
	if (report)
		return read_times(report, us, max, n, err);
	return ww_err_set(err, WW_ERR_WORKER, "the process that timed the exported operator died: %s", tail.p);
}

static enum ww_rc time_call(struct ww_judge_task *judged, const struct ww_task *task, const struct ww_solution *s,
	int device, enum ww_rc (*alone)(void *alone_ctx, struct ww_err *err), void *alone_ctx,
	const volatile int *interrupted, double *us, int max, int *n, struct ww_err *err)
{
	const struct ww_export_turn turn = { alone, NULL, alone_ctx };
	const struct ww_export_opts o = {
		.judged = judged, .task = task, .solution = s, .format = WW_EXPORT_TORCH, .dir = "", .interrupted = interrupted
	};
	WW_AUTO(ww_export_python_end) struct ww_export_python python = WW_EXPORT_PYTHON_NONE;
	WW_AUTO(ww_export_end) struct ww_export x;
	*n = 0;
	WW_CHECK(ww_export_begin(&x, &o, err));
	WW_CHECK(ww_export_python_take(&python, WW_EXPORT_CALL, err));
	snprintf(x.dir, sizeof(x.dir), "%s", python.dir.path);
	WW_CHECK(ww_export_torch(&x, err));
	WW_CHECK(ww_export_render(&x, "time_call.py", "src/export/templates/time_call.py.in", err));
	WW_CHECK(x.vars.failed ? ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting") : WW_OK);
	return run(&x, &python, device, &turn, us, max, n, err);
}

const struct ww_judge_caller ww_export_caller = { time_call };
