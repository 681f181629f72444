/* call.c - how long does a call of the exported operator take?
 *
 * The judge times a plan as a CUDA graph in a runner; a user calls an operator from Python.  What lies between
 * (PyTorch's dispatch, allocation of outputs and scratch, one launch for each node) is no part of a kernel's speed, but
 * it is what KernelBench's clock would see, so a verdict can have both.  The operator is exported into a private
 * directory and timed by a fresh process that holds nothing of the judge's: no reference, no seeds, no expected output.
 * Device code cannot reach that process's clock, and the process is confined like a reference worker, since it runs the
 * task's file.
 *
 * It takes about five seconds of a processor (importing PyTorch, building the C library), so it is done for closing
 * judgements only, never in a search; the process works by itself while the judge verifies and times the plan.
 * Rejected: loading the operator into the reference worker (a fault of the device code would take the references with
 * it); adding a constant for PyTorch's dispatch to the graph's time (a guess). */
#include "export/parts.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/task.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { OUTPUT_BYTES = 65536 };

static enum ww_rc read_times(const json_t *report, double *us, int max, int *n, double *gib, struct ww_err *err)
{
	const json_t *times = json_object_get(report, "us");
	const char *why = ww_json_str(report, "error", "no times");
	size_t count = json_array_size(times);
	if (!count || count > (size_t)max)
		return ww_err_set(err, ww_export_lacks_memory(why, gib) ? WW_ERR_ROOM : WW_ERR_WORKER,
			"timing the exported operator: %s", why);
	for (size_t i = 0; i < count; i++) {
		us[i] = json_number_value(json_array_get(times, i));
		if (!isfinite(us[i]) || us[i] <= 0)
			return ww_err_set(err, WW_ERR_WORKER, "timing the exported operator gave no times");
	}
	*n = (int)count;
	return WW_OK;
}

struct call {
	struct ww_export_python python;
};

static void end(void *call)
{
	struct call *c = call;
	if (c)
		ww_export_python_end(&c->python);
	free(c);
}

/* Into the process's directory. */
static enum ww_rc export_into(struct call *c, const struct ww_export_opts *o, struct ww_err *err)
{
	WW_AUTO(ww_export_end) struct ww_export x;
	WW_CHECK(ww_export_begin(&x, o, err));
	snprintf(x.dir, sizeof(x.dir), "%s", c->python.dir.path);
	WW_CHECK(ww_export_torch(&x, err));
	WW_CHECK(ww_export_render(&x, "time_call.py", "src/export/templates/time_call.py.in", err));
	return x.vars.failed ? ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting") : WW_OK;
}

static void tell(struct call *c, int device, int max)
{
	ww_auto_str line = WW_STR_INIT(2 * PATH_MAX);
	json_auto_t *args = json_pack("[o,o,o]", json_sprintf("%s/time_call.py", c->python.dir.path),
		json_sprintf("%d", max), json_sprintf("%d", device));
	ww_json_add(&line, args);
	ww_str_addc(&line, '\n');
	ww_export_python_tell(&c->python, line.p);
}

static enum ww_rc begin(struct ww_judge_task *judged, const struct ww_task *task, const struct ww_solution *s,
	int device, int max, void **call, struct ww_err *err)
{
	const struct ww_export_opts o = {
		.judged = judged, .task = task, .solution = s, .format = WW_EXPORT_TORCH, .dir = ""
	};
	struct call *c;
	*call = NULL;
	WW_CHECK(WW_NEW(c, 1, err));
	c->python = (struct ww_export_python)WW_EXPORT_PYTHON_NONE;
	enum ww_rc rc = ww_export_python_take(&c->python, WW_EXPORT_CALL, err); /* it imports while the export is written */
	if (rc == WW_OK)
		rc = export_into(c, &o, err);
	if (rc != WW_OK) {
		end(c);
		return rc;
	}
	tell(c, device, max);
	*call = c;
	return WW_OK;
}

static enum ww_rc time_it(void *call, const struct ww_judge_use *use, const volatile int *interrupted, double *us,
	int max, int *n, double *gib, struct ww_err *err)
{
	struct call *c = call;
	ww_auto_str out = WW_STR_INIT(OUTPUT_BYTES), tail = WW_STR_INIT(512);
	int status;
	*n = 0;
	WW_CHECK(ww_export_python_finish(&c->python, use, interrupted, &out, &status, err));
	json_auto_t *report = ww_export_report(&out, &tail);
	if (report)
		return read_times(report, us, max, n, gib, err);
	return ww_err_set(err, WW_ERR_WORKER, "the process that timed the exported operator died: %s", tail.p);
}

const struct ww_judge_caller ww_export_caller = { begin, time_it, end };
