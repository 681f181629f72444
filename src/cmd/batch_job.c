/* batch_job.c - one line of a batch: from JSON to a job whose files have been read.
 *
 * Everything that the verdict depends on goes into the job's key (contents, not paths), so that a resumed batch repeats
 * exactly the jobs whose contents have changed.  An unknown member is an error: a job with a misspelt "baselines" must
 * not be judged with the default ones. */
#include "cmd/batch.h"
#include "cmd/judging.h"

#include "base/hash.h"
#include "base/json.h"
#include "judge/batch.h"

#include <stdlib.h>
#include <string.h>

static const char what[] = "the job";
static const char *const members[] = { "id", "task", "solution", "target", "rule", "baselines", "depth", "baseline",
	"max_run_seconds", "max_time_seconds", "again" };

static enum ww_rc check_members(const json_t *o, const char *const *names, size_t n, const char *of, struct ww_err *err)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)o, key, value)
		if (ww_word_at(key, names, n) < 0)
			return ww_err_set(err, WW_ERR_USAGE, "%s has an unknown member \"%.40s\"", of, key);
	return WW_OK;
}

/* An optional member that is one of some words; *out is its place among them, or stays. */
static enum ww_rc read_word(
	const json_t *o, const char *key, const char *const *words, int n, int *out, struct ww_err *err)
{
	const json_t *v = json_object_get(o, key);
	int at = json_is_string(v) ? ww_word_at(json_string_value(v), words, (size_t)n) : -1;
	if (at >= 0)
		*out = at;
	if (!v || at >= 0)
		return WW_OK;
	ww_auto_str list = WW_STR_INIT(256);
	for (int i = 0; i < n; i++)
		ww_str_addf(&list, "%s\"%s\"", !i ? "" : i + 1 < n ? ", " : " or ", words[i]);
	return ww_err_set(err, WW_ERR_USAGE, "%s's \"%s\" is not %s", what, key, list.p);
}

static enum ww_rc read_seconds(
	const json_t *o, const char *key, double min, double max, double *out, struct ww_err *err)
{
	const json_t *v = json_object_get(o, key);
	if (!v)
		return WW_OK;
	if (!json_is_number(v) || !(json_number_value(v) >= min && json_number_value(v) <= max))
		return ww_err_set(err, WW_ERR_USAGE, "%s's \"%s\" is no number from %g to %g", what, key, min, max);
	*out = json_number_value(v);
	return WW_OK;
}

static enum ww_rc read_options(const json_t *o, struct ww_batch_job *job, enum ww_target *want, struct ww_err *err)
{
	static const char *const rules[] = { "strict", "paper" },
							 *const depths[] = { "compile", "verify", "decide", "brief", "full" };
	static const enum ww_judge_depth depth_values[] = { WW_JUDGE_COMPILE, WW_JUDGE_VERIFY, WW_JUDGE_DECIDE,
		WW_JUDGE_BRIEF, WW_JUDGE_FULL };
	static const char *const targets[] = { "auto", "cuda", "cpu" };
	static const enum ww_target target_values[] = { 0, WW_TARGET_CUDA, WW_TARGET_CPU };
	int rule = job->opts.rule, depth = -1, target = -1;
	const char *baselines;
	WW_CHECK(read_word(o, "rule", rules, 2, &rule, err));
	WW_CHECK(read_word(o, "depth", depths, 5, &depth, err));
	WW_CHECK(read_word(o, "target", targets, 3, &target, err));
	if (json_object_get(o, "baselines")) {
		WW_CHECK(ww_json_get_str(o, "baselines", what, &baselines, err));
		WW_CHECK(ww_judging_baselines(baselines, &job->opts.baselines, err));
	}
	WW_CHECK(read_seconds(o, "max_run_seconds", 0, 3600, &job->opts.max_run_s, err));
	WW_CHECK(read_seconds(o, "max_time_seconds", 0.1, 10, &job->opts.max_time_s, err));
	job->opts.rule = (enum ww_rule)rule;
	job->depth = depth < 0 ? job->depth : depth_values[depth];
	*want = target < 0 ? job->opts.target : target_values[target];
	return WW_OK;
}

/* {"kernels": TEXT, "plan": TEXT} */
static enum ww_rc take_inline(const json_t *s, enum ww_target want, struct ww_solution_files *f, struct ww_err *err)
{
	static const char *const parts[] = { "kernels", "plan" };
	const char *kernels, *plan;
	WW_CHECK(check_members(s, parts, 2, "the job's solution", err));
	WW_CHECK(ww_json_get_str(s, "kernels", "the job's solution", &kernels, err));
	WW_CHECK(ww_json_get_str(s, "plan", "the job's solution", &plan, err));
	if (!want)
		return ww_err_set(err, WW_ERR_USAGE, "a solution that is given as text needs a \"target\"");
	else if (strlen(kernels) > WW_SOLUTION_MAX_BYTES || strlen(plan) > WW_SOLUTION_MAX_BYTES)
		return ww_err_set(err, WW_ERR_USAGE, "a part of the solution is larger than %d bytes", WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
	ww_str_adds(&f->device, kernels);
	ww_str_adds(&f->plan, plan);
	f->target = want;
	f->solution = (struct ww_solution){ .device_source = f->device.p,
		.plan_source = f->plan.p,
		.device_bytes = f->device.len,
		.plan_bytes = f->plan.len,
		.form = WW_FORM_PLAN };
	return WW_OK;
}

static void make_key(const struct ww_batch_job *job, char key[65])
{
	ww_auto_str s = WW_STR_INIT(1024);
	char solution[65], baseline[65] = "";
	ww_solution_id(&job->files.solution, solution);
	if (job->has_baseline)
		ww_solution_id(&job->baseline.solution, baseline);
	ww_str_addf(&s, "1 %s %s %d %d %u %d %.17g %.17g %s", job->task.id, solution, (int)job->opts.target,
		(int)job->opts.rule, job->opts.baselines, (int)job->depth, job->opts.max_run_s, job->opts.max_time_s, baseline);
	ww_hash_hex(s.p, s.len, key);
}

static enum ww_rc fill(const json_t *o, struct ww_batch_job *job, struct ww_err *err)
{
	const char *task, *baseline;
	enum ww_target want;
	WW_CHECK(check_members(o, members, WW_ARRAY_LEN(members), what, err));
	WW_CHECK(ww_json_get_str(o, "task", what, &task, err));
	WW_CHECK(read_options(o, job, &want, err));
	WW_CHECK(ww_task_load(&job->task, task, err));
	const json_t *solution = json_object_get(o, "solution");
	if (json_is_string(solution))
		WW_CHECK(ww_solution_load(&job->files, json_string_value(solution), want, err));
	else if (json_is_object(solution))
		WW_CHECK(take_inline(solution, want, &job->files, err));
	else
		return ww_err_set(
			err, WW_ERR_USAGE, "%s has no \"solution\": a path, or an object with \"kernels\" and \"plan\"", what);
	job->opts.target = job->files.target;
	if (json_object_get(o, "baseline")) {
		WW_CHECK(ww_json_get_str(o, "baseline", what, &baseline, err));
		WW_CHECK(ww_solution_load(&job->baseline, baseline, job->opts.target, err));
		job->has_baseline = 1;
	}
	return WW_OK;
}

enum ww_rc ww_cmd_batch_parse(const struct ww_cmd_batch *o, const char *text, size_t n, int64_t line, json_t **id,
	struct ww_batch_job *job, char key[65], int *again, struct ww_err *err)
{
	json_auto_t *parsed = NULL;
	enum ww_rc rc = ww_json_parse(text, n, what, &parsed, err);

	job->opts = o->opts;
	job->depth = o->depth;
	*id = json_incref(json_object_get(parsed, "id"));
	if (!*id)
		*id = json_integer(line);
	if (rc == WW_OK && !json_is_object(parsed))
		rc = ww_err_set(err, WW_ERR_USAGE, "a job is a JSON object");
	else if (rc == WW_OK && !json_is_string(*id) && !json_is_integer(*id))
		rc = ww_err_set(err, WW_ERR_USAGE, "a job's id is a text or an integer");
	else if (rc == WW_OK && (rc = fill(parsed, job, err)) == WW_OK)
		make_key(job, key);
	*again = ww_json_bool(parsed, "again", 0);
	if (rc != WW_OK && ww_rc_exit(rc) != 2 && rc != WW_ERR_NOMEM) {
		err->rc = rc = WW_ERR_USAGE; /* unreadable, cut, too large: the line's fault */
	}
	return rc;
}
