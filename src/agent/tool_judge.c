/* tool_judge.c - compile, verify, profile: the judge's answers about the workspace.
 *
 * The first two hand out the verdict as it is and differ in how far the judge goes; the third hands out a profile.  A
 * solution that is wrong is a verdict, not a failed call: is_error is set only where there was nothing to judge.
 */
#include "agent/tools.h"

#include "base/json.h"
#include "judge/profile/profile.h"

#include <math.h>
#include <string.h>

/* ---- A verdict as text ------------------------------------------------------------------------------------------- */

static void add_times(const struct ww_verdict *v, struct ww_str *out)
{
	if (isnan(v->time.device_us))
		return;
	ww_str_addf(
		out, "time: %.2f us on the device [%.2f, %.2f]", v->time.device_us, v->time_device.lo, v->time_device.hi);
	if (!isnan(v->time.call_us))
		ww_str_addf(out, ", %.2f us a call", v->time.call_us);
	ww_str_addc(out, '\n');
	for (int b = 0; b < WW_BASE_COUNT; b++)
		if (v->baseline_measured[b])
			ww_str_addf(out, "%s: %.2f us; speed-up %.3f [%.3f, %.3f]\n", ww_baseline_name((enum ww_baseline)b),
				v->baselines[b].device_us, v->speedup[b].mid, v->speedup[b].lo, v->speedup[b].hi);
	if (v->floor_us > 0)
		ww_str_addf(out, "floor by memory traffic: %.2f us\n", v->floor_us);
}

void ww_tool_verdict_text(const struct ww_verdict *v, enum ww_judge_depth depth, struct ww_str *out)
{
	ww_str_addf(out, "status: %s\n", ww_status_name(v->status));
	if (depth != WW_JUDGE_COMPILE) {
		ww_str_addf(out, "correct: %s", v->correct ? "yes" : "no");
		if (!isnan(v->err_rel))
			ww_str_addf(out, " (relative error %.3g, largest absolute error %.3g)", v->err_rel, v->err_abs);
		ww_str_addc(out, '\n');
	}
	if (depth >= WW_JUDGE_DECIDE) {
		add_times(v, out);
		ww_str_addf(out, "reward: %g\n", v->reward);
	}
	ww_verdict_add_flags(v, "", out);
	if (v->diagnostics && *v->diagnostics) {
		ww_str_adds(out, "diagnostics:\n");
		ww_str_add_bounded(out, v->diagnostics, strlen(v->diagnostics), WW_TOOL_TEXT_MAX_BYTES / 2);
		ww_str_addc(out, '\n');
	}
}

/* ---- The tools --------------------------------------------------------------------------------------------------- */

static enum ww_rc judge_to_result(
	struct ww_tool_env *env, enum ww_judge_depth depth, struct ww_tool_result *r, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	const char *missing = NULL;
	ww_verdict_init(&v);
	enum ww_rc rc = env->judge(env, depth, &v, &r->data, &missing, err);
	if (rc == WW_OK && missing) {
		ww_str_addf(&r->text, "there is nothing to judge yet: write %s first, a file of text of at most %d bytes",
			missing, WW_SOLUTION_MAX_BYTES);
		r->is_error = 1;
	} else if (rc == WW_OK) {
		ww_tool_verdict_text(&v, depth, &r->text);
	}
	return rc;
}

static enum ww_rc compile_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	return judge_to_result(env, WW_JUDGE_COMPILE, r, err);
}

static enum ww_rc verify_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	enum ww_judge_depth timed = ww_json_bool(args, "brief", 0) ? WW_JUDGE_BRIEF : WW_JUDGE_FULL;
	if (ww_json_bool(args, "sanitize", 0))
		return judge_to_result(env, WW_JUDGE_SANITIZE, r, err);
	return judge_to_result(env, ww_json_bool(args, "time", 1) ? timed : WW_JUDGE_VERIFY, r, err);
}

static enum ww_rc profile_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *missing = NULL;
	int of_solution = !strcmp(ww_json_str(args, "what", "solution"), "solution");
	enum ww_rc rc = env->profile(env, of_solution, &r->data, &missing, err);
	if (rc == WW_OK && missing) {
		ww_str_addf(&r->text,
			"there is no solution to profile yet: write %s first (text), or ask for \"what\": \"reference\"", missing);
		r->is_error = 1;
	} else if (rc == WW_OK) {
		ww_profile_text(r->data, &r->text);
	}
	return rc;
}

const struct ww_tool ww_tool_compile = {
	{ "compile", "Build the plan, check it, and compile the device code. Fast; runs nothing.", WW_TOOL_NO_ARGS },
	.run = compile_run, .mcp = { "Compile a solution", WW_TOOL_VERDICT, WW_TOOL_SOLUTION, .changes_nothing = 1 }
};

const struct ww_tool ww_tool_verify = {
	{ "verify", "Judge the solution: is it correct, and how fast is it against the baselines?",
		"{\"type\":\"object\",\"properties\":{\"time\":{\"type\":\"boolean\",\"description\":\"false: only check "
		"correctness; true (default): also time it\"},\"brief\":{\"type\":\"boolean\",\"description\":\"true: time it for a "
		"few seconds only, enough to choose between variants; false (default): until the intervals are narrow\"},\"sanitize\":{\"type\":\"boolean\",\"description\":"
		"\"true: only check correctness, and after a mismatch or a crash add compute-sanitizer's report (cuda target); default false\"}},"
		"\"additionalProperties\":false}" },
	.run = verify_run,
	.mcp = { "Verify and time a solution", WW_TOOL_VERDICT, WW_TOOL_SOLUTION, .changes_nothing = 1, .slow = 1 }
};

const struct ww_tool ww_tool_profile = {
	{ "profile",
		"Where the time goes. \"what\": \"reference\": each operator of the task in PyTorch (before anything is written); "
		"\"solution\" (default): each node of your plan, what limits it, registers, occupancy, counters, machine code.",
		"{\"type\":\"object\",\"properties\":{\"what\":{\"type\":\"string\",\"enum\":[\"solution\",\"reference\"],"
		"\"description\":\"solution (default) or reference\"}},\"additionalProperties\":false}" },
	.run = profile_run,
	.mcp = { "Profile a task or a solution", "{\"type\":\"object\"}", WW_TOOL_SOLUTION, .changes_nothing = 1,
		.slow = 1 }
};
