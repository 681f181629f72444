#include "cmd/agent_opts.h"

#include "agent/parallel.h"
#include "base/target.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "host/machine.h"
#include "policy/policy.h"
#include "task/ref.h"

#include <limits.h>
#include <string.h>

/* "planner" or "planner:HOW" */
static int is_planner(const char *policy)
{
	size_t n = strlen("planner");
	return !strncmp(policy, "planner", n) && (!policy[n] || policy[n] == ':');
}

enum ww_rc ww_agent_values_settle(struct ww_agent_values *v, struct ww_err *err)
{
	if (v->no_algebra && !is_planner(v->policy))
		return ww_err_set(
			err, WW_ERR_USAGE, "--no-algebra is about the planner; leave it out with --policy %s", v->policy);
	if (v->no_algebra)
		v->policy = "planner:no-algebra"; /* recorded with the run, so that one is not resumed as the other */
	return WW_OK;
}

enum ww_form ww_agent_values_form(const struct ww_agent_values *v)
{
	int f = 0;
	while (f + 1 < WW_FORM_COUNT && strcmp(v->form, ww_form_name((enum ww_form)f)))
		f++;
	return (enum ww_form)f;
}

static enum ww_loop loop_of(const struct ww_agent_values *v)
{
	int l = 0;
	while (l + 1 < WW_LOOP_COUNT && strcmp(v->loop, ww_loop_name((enum ww_loop)l)))
		l++;
	return (enum ww_loop)l;
}

static enum ww_rc check_prompt(const struct ww_agent_values *v, struct ww_policy *p, struct ww_err *err)
{
	int compact = ww_agent_values_prompt(v, p) == WW_PROMPT_COMPACT;
	if (compact && strcmp(v->form, "plan"))
		return ww_err_set(
			err, WW_ERR_USAGE, "the compact prompt is about plans; --form %s needs --prompt full", v->form);
	if (!compact && !strncmp(v->policy, "planner+", strlen("planner+")))
		return ww_err_set(err, WW_ERR_USAGE, "--policy %s is told the compact prompt; leave out --prompt", v->policy);
	return WW_OK;
}

enum ww_rc ww_agent_values_policy(
	const struct ww_agent_values *v, uint64_t seed, struct ww_policy **out, struct ww_err *err)
{
	if (is_planner(v->policy) && strcmp(v->form, "plan"))
		return ww_err_set(err, WW_ERR_USAGE, "the planner writes plans; --form %s needs a model as --policy", v->form);
	struct ww_policy_opts o = { .spec = v->policy,
		.seed = seed,
		.base_url = v->base_url,
		.prices = v->prices,
		.effort = v->effort,
		.need_price = v->max_usd > 0,
		.max_reply_tokens = v->max_reply_tokens,
		.model_batch = v->model_batch,
		.model_cache = v->model_cache,
		.call_s = v->call_s };
	WW_CHECK((enum ww_rc)ww_policy_open(&o, out, err));
	enum ww_rc rc = check_prompt(v, *out, err);
	if (rc != WW_OK) {
		(*out)->ops->free(*out);
		*out = NULL;
	}
	return rc;
}

enum ww_prompt ww_agent_values_prompt(const struct ww_agent_values *v, struct ww_policy *policy)
{
	const char *own = policy && policy->ops->prompt ? policy->ops->prompt(policy) : NULL;
	return ww_prompt_of(strcmp(v->prompt, "auto") || !own ? v->prompt : own);
}

enum ww_rc ww_agent_values_skill(const struct ww_agent_values *v, struct ww_skill *skill, int *has, struct ww_err *err)
{
	/* The built-in one is about plans. */
	*has = strcmp(v->skill, "none") && (strcmp(v->skill, "cuda") || !strcmp(v->form, "plan"));
	if (!*has)
		return WW_OK;
	return strcmp(v->skill, "cuda") ? ww_skill_open(skill, v->skill, err) : ww_skill_open_builtin(skill, err);
}

enum ww_rc ww_agent_values_budget(
	const struct ww_agent_values *v, const struct ww_rundir *dir, int n, struct ww_budget **out, struct ww_err *err)
{
	struct ww_budget_limits l = { v->max_usd, v->max_gpu_s, v->max_tokens };
	if (!(*out = ww_budget_new(&l)))
		return ww_nomem(err);
	if (n > 1)
		return ww_agent_parallel_used(dir->path, *out, err);
	if (dir->has_past) {
		struct ww_budget_use u = ww_budget_use_of(&dir->past);
		ww_budget_spend(*out, &u);
	}
	return WW_OK;
}

static int64_t context_of(const struct ww_agent_values *v, struct ww_policy *p)
{
	int64_t own = p->ops->context_tokens ? p->ops->context_tokens(p) : 0;
	return own && own < v->context_tokens ? own : v->context_tokens;
}

struct ww_agent_opts ww_agent_values_opts(
	const struct ww_agent_values *v, const struct ww_judge_opts *judge, struct ww_policy *policy)
{
	return (struct ww_agent_opts){ .policy = policy,
		.target = judge->target,
		.form = ww_agent_values_form(v),
		.loop = loop_of(v),
		.prompt = ww_agent_values_prompt(v, policy),
		.rule = judge->rule,
		.baselines = judge->baselines,
		.max_turns = (int)v->max_turns,
		.max_seconds = v->max_seconds,
		.closing_seconds = v->max_seconds,
		.context_tokens = context_of(v, policy),
		.no_compaction = v->no_compaction,
		.interrupted = &ww_cmd_interrupted };
}

json_t *ww_agent_versions(const struct ww_skill *skill)
{
	static const char *const packages[] = { "torch", "numpy", "triton" };
	char python[PATH_MAX], version[64];
	struct ww_err ignored;
	json_t *o = json_pack("{s:s}", "warpwright", WW_VERSION);
	if (ww_ref_find_python(python, &ignored) == WW_OK) {
		ww_host_python_version(python, version, sizeof(version));
		json_object_set_new(o, "python", json_string(version));
		for (size_t i = 0; i < WW_ARRAY_LEN(packages); i++)
			if (ww_host_python_package(python, packages[i], version, sizeof(version), NULL))
				json_object_set_new(o, packages[i], json_string(version));
	}
	if (skill)
		json_object_set_new(o, "skill", json_sprintf("%s %.16s", skill->name, skill->id));
	return o;
}

void ww_agent_header(struct ww_episode_header *h, const struct ww_agent_values *v, const struct ww_judge_opts *judge,
	const struct ww_task *task, const char *device_name, uint64_t seed, const struct ww_skill *skill)
{
	*h = (struct ww_episode_header){ .task_path = task->path,
		.target = (char *)(uintptr_t)ww_target_name(judge->target),
		.device = (char *)(uintptr_t)device_name,
		.policy = (char *)(uintptr_t)v->policy,
		.rule = (char *)(uintptr_t)ww_rule_name(judge->rule),
		.seed = seed,
		.versions = ww_agent_versions(skill),
		.command = ww_rundir_command() };
	memcpy(h->task_id, task->id, sizeof(h->task_id));
	ww_utc_text(h->started);
}

void ww_agent_header_release(struct ww_episode_header *h)
{
	json_decref(h->versions);
	json_decref(h->command);
}
