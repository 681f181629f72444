#include "cmd/eval_problem.h"

#include "agent/parallel.h"
#include "agent/rundir.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/target.h"
#include "base/time.h"
#include "eval/summary.h"
#include "judge/profile/profile.h"
#include "policy/policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERDICT_MAX = 16 << 20 };

static void set(struct ww_eval_one *o, const char *key, json_t *value) { json_object_set_new(o->line, key, value); }

enum ww_rc ww_eval_line_begin(struct ww_eval_one *o, struct ww_err *err)
{
	const struct ww_problem *p = o->problem;
	o->line = json_pack("{s:s, s:i, s:s, s:s}", "id", p->id, "level", p->level, "task", p->task.id, "outcome", "error");
	return o->line ? WW_OK : ww_nomem(err);
}

/* ---- The solution ------------------------------------------------------------------------------------------------ */

static void note_solution(struct ww_eval_one *o, const struct ww_solution *s, enum ww_target target)
{
	json_t *files = json_object();
	for (int i = 0; i < s->n_files; i++)
		json_object_set_new(files, s->files[i].path, json_string(s->files[i].text));
	if (s->form == WW_FORM_PLAN) {
		json_object_set_new(files, ww_solution_device_file(target), json_string(s->device_source));
		json_object_set_new(files, "plan.c", json_string(s->plan_source));
	}
	set(o, "solution", files);
}

static void note_verdict(struct ww_eval_one *o, const char *rule, json_t *verdict)
{
	json_t *all = json_object_get(o->line, "verdicts");
	if (!all)
		set(o, "verdicts", all = json_object());
	json_object_set_new(all, rule, verdict);
	set(o, "outcome", json_string("judged"));
}

/* Check correctness by the other rule too.  Times do not depend on the rule, so those of a correct verdict are reused.
 */
static enum ww_rc judge_by_other_rule(struct ww_eval_one *o, struct ww_judge_task *t, const struct ww_solution *s,
	const struct ww_verdict *first, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	enum ww_rule rule = first->rule == WW_RULE_STRICT ? WW_RULE_PAPER : WW_RULE_STRICT;
	ww_verdict_init(&v);
	if (first->status != WW_STATUS_OK && first->status != WW_STATUS_MISMATCH)
		return WW_OK;
	ww_judge_task_rule(t, rule);
	WW_CHECK(ww_judge_run(t, s, first->correct ? WW_JUDGE_VERIFY : WW_JUDGE_CALL, &v, err));
	if (first->correct && v.correct) {
		struct ww_verdict both = *first;
		both.rule = v.rule;
		both.degenerate = v.degenerate;
		both.err_rel = v.err_rel;
		both.err_abs = v.err_abs;
		both.eager_err_rel = v.eager_err_rel;
		both.eager_err_abs = v.eager_err_abs;
		both.draws = v.draws;
		both.reward = ww_verdict_reward(&both);
		note_verdict(o, ww_rule_name(rule), ww_verdict_to_json(&both));
	} else {
		note_verdict(o, ww_rule_name(rule), ww_verdict_to_json(&v));
	}
	return WW_OK;
}

/* ---- What a line says besides ----------------------------------------------------------------------------------- */

/* The least time by bytes and by operations at this device's peaks. */
static void note_floor(struct ww_eval_one *o, const struct ww_judge_task *t, double floor_flops_us)
{
	const json_t *totals = json_object_get(ww_judge_task_graph(t), "totals");
	double rate = ww_judge_task_facts(t)->device.memory_bytes_per_s;
	double bytes = ww_json_num(totals, "bytes", 0), by_bytes = rate > 0 ? bytes / rate * 1e6 : 0;
	set(o, "bytes", json_real(bytes));
	set(o, "flops", json_real(ww_json_num(totals, "flops", 0)));
	set(o, "floor_us", json_real(fmax(by_bytes, isfinite(floor_flops_us) ? floor_flops_us : 0)));
}

/* A verdict by the run's rule, and what follows from it. */
static enum ww_rc take_verdict(struct ww_eval_one *o, struct ww_judge_task *t, const struct ww_solution *s,
	const struct ww_verdict *v, struct ww_err *err)
{
	note_solution(o, s, o->common->judge.target);
	note_verdict(o, ww_rule_name(v->rule), ww_verdict_to_json(v));
	note_floor(o, t, v->floor_flops_us);
	return judge_by_other_rule(o, t, s, v, err);
}

/* ---- A policy's episodes ----------------------------------------------------------------------------------------- */

struct episodes {
	struct ww_rundir dir;
	struct ww_policy **policies; /* n */
	struct ww_agent_result *results;
	struct ww_budget *budget;
	int n;
};

static void episodes_release(struct episodes *e)
{
	for (int i = 0; i < e->n; i++) {
		if (e->policies && e->policies[i])
			e->policies[i]->ops->free(e->policies[i]);
		if (e->results)
			ww_agent_result_release(&e->results[i]);
	}
	free(e->policies);
	free(e->results);
	ww_budget_free(e->budget);
	ww_rundir_release(&e->dir);
}

static enum ww_rc open_episodes(struct episodes *e, struct ww_eval_one *o, struct ww_err *err)
{
	const struct ww_eval_common *c = o->common;
	const struct ww_task *task = &o->job.task;
	e->n = c->samples;
	WW_CHECK(WW_NEW(e->policies, e->n, err));
	WW_CHECK(WW_NEW(e->results, e->n, err));
	for (int i = 0; i < e->n; i++)
		ww_verdict_init(&e->results[i].best);
	WW_CHECK(ww_rundir_open(&e->dir, o->dir, task, ww_target_name(c->judge.target), c->agent->policy, e->n, err));
	WW_CHECK(ww_agent_values_budget(c->agent, &e->dir, e->n, &e->budget, err));
	for (int i = 0; i < e->n; i++)
		WW_CHECK(ww_agent_values_policy(c->agent, (uint64_t)c->agent->seed + (uint64_t)i, &e->policies[i], err));
	return WW_OK;
}

static enum ww_rc run_episodes(struct episodes *e, struct ww_eval_one *o, struct ww_judge_task *t, struct ww_err *err)
{
	const struct ww_eval_common *c = o->common;
	struct ww_agent_opts a = ww_agent_values_opts(c->agent, &c->judge, e->policies[0]);
	struct ww_episode_header h;
	if (e->n == 1 && e->dir.has_past && e->dir.past.ended)
		return ww_agent_result_of(&e->dir.past, e->results, err);
	ww_agent_header(&h, c->agent, &c->judge, &o->job.task, c->device_name, (uint64_t)c->agent->seed, c->skill);
	a.judge = ww_agent_use_judge(t, c->device_name);
	a.dir = e->dir.path;
	a.task_source = o->job.task.source;
	a.skill = c->skill;
	a.budget = e->budget;
	a.header = &h;
	ww_verdict_release(&e->results[0].best);
	enum ww_rc rc = e->n > 1 ? ww_agent_parallel(&a, e->policies, e->n, e->results, err)
							 : ww_agent_run(&a, e->results, err);
	ww_agent_header_release(&h);
	return rc;
}

static void note_episodes(struct ww_eval_one *o, const struct episodes *e)
{
	struct ww_budget_use u = ww_budget_used(e->budget);
	json_t *list = json_array();
	for (int i = 0; i < e->n; i++) {
		const struct ww_agent_result *r = &e->results[i];
		json_array_append_new(list,
			json_pack("{s:i, s:f, s:s, s:f, s:f}", "turns", r->turns, "seconds", r->end.seconds, "reason",
				r->end.reason, "reward_final", r->end.reward_final, "reward_best", r->end.reward_best));
	}
	set(o, "episodes", list);
	set(o, "used", json_pack("{s:f, s:f, s:I}", "usd", u.usd, "gpu_seconds", u.gpu_s, "tokens", (json_int_t)u.tokens));
}

/* The policy's last message, where it wrote nothing that can be judged. */
static enum ww_rc note_last_words(struct ww_eval_one *o, const struct episodes *e, struct ww_err *err)
{
	WW_AUTO(ww_episode_release) struct ww_episode episode;
	WW_CHECK((enum ww_rc)ww_episode_read(e->dir.episode, &episode, err));
	set(o, "outcome", json_string("none"));
	for (size_t i = episode.n_messages; i-- > 0;) {
		const struct ww_message *m = &episode.messages[i].reply.message;
		if (m->role != WW_ROLE_ASSISTANT || !*m->text)
			continue;
		ww_auto_str text = WW_STR_INIT(1024);
		ww_str_add_line(&text, m->text, 400);
		set(o, "why", json_string(text.p));
		break;
	}
	return WW_OK;
}

/* Nothing is correct: take the closing verdict on the (first) episode's workspace, if there is one. */
static enum ww_rc take_wrong(struct ww_eval_one *o, struct ww_judge_task *t, struct episodes *e, struct ww_err *err)
{
	WW_AUTO(ww_solution_files_release) struct ww_solution_files files = { .target = 0 };
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	char dir[PATH_MAX], path[PATH_MAX], workspace[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	json_auto_t *data = NULL;
	ww_verdict_init(&v);
	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(e->dir.episode, '/') - e->dir.episode), e->dir.episode);
	WW_CHECK(ww_fs_join(path, dir, "verdict.json", err));
	WW_CHECK(ww_fs_join(workspace, dir, "workspace", err));
	if (!ww_fs_is_file(path) || ww_solution_load(&files, workspace, o->common->judge.target, &ignored) != WW_OK)
		return note_last_words(o, e, err);
	WW_CHECK(ww_json_read_file(path, VERDICT_MAX, &data, err));
	WW_CHECK(ww_verdict_from_json(data, &v, err));
	return take_verdict(o, t, &files.solution, &v, err);
}

static enum ww_rc solve_by_policy(struct ww_eval_one *o, struct ww_judge_task *t, struct ww_err *err)
{
	WW_AUTO(episodes_release) struct episodes e = { .n = 0 };
	WW_AUTO(ww_solution_files_release) struct ww_solution_files files = { .target = 0 };
	WW_CHECK(open_episodes(&e, o, err));
	WW_CHECK(run_episodes(&e, o, t, err));
	note_episodes(o, &e);
	int best = e.n > 1 ? ww_agent_parallel_best(e.results, e.n) : e.results[0].has_best ? 0 : -1;
	if (best < 0)
		return take_wrong(o, t, &e, err);
	WW_CHECK(ww_solution_load(&files, e.dir.solution, o->common->judge.target, err));
	return take_verdict(o, t, &files.solution, &e.results[best].best, err);
}

static enum ww_rc judge_files(struct ww_eval_one *o, struct ww_judge_task *t, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	ww_verdict_init(&v);
	WW_CHECK(ww_judge_run(t, &o->job.files.solution, WW_JUDGE_CALL, &v, err));
	return take_verdict(o, t, &o->job.files.solution, &v, err);
}

enum ww_rc ww_eval_solve(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_eval_one *o = job->ctx;
	uint64_t start = ww_now_ns();
	json_object_del(o->line, "verdicts"); /* of an attempt that found no memory */
	set(o, "family", json_string(ww_eval_family(ww_judge_task_graph(t))));
	set(o, "opened_seconds", json_real(job->opened_s));
	enum ww_rc rc = o->has_files ? judge_files(o, t, err) : solve_by_policy(o, t, err);
	set(o, "seconds", json_real(ww_seconds_since(start)));
	return rc;
}

/* ---- The profile of the slowest ---------------------------------------------------------------------------------- */

enum ww_rc ww_eval_profile_begin(struct ww_eval_one *o, const json_t *line, struct ww_err *err)
{
	const json_t *verdict = ww_eval_verdict(line, ww_eval_rule_of(o->common->run));
	enum ww_target target = o->common->judge.target;
	const char *name;
	json_t *text;
	if (strcmp(ww_json_str(verdict, "form", ""), ww_form_name(WW_FORM_PLAN)))
		return ww_err_set(err, WW_ERR_USAGE, "only plans have a profile");
	o->adds = 1;
	o->line = json_pack("{s:s, s:n}", "id", o->problem->id, "profile");
	ww_solution_begin(&o->job.files, WW_FORM_PLAN, target);
	json_object_foreach(json_object_get(line, "solution"), name, text)
		if (ww_solution_has_place(WW_FORM_PLAN, target, name))
			WW_CHECK(ww_solution_add(&o->job.files, name, json_string_value(text), json_string_length(text), err));
	ww_solution_end(&o->job.files);
	return o->line ? WW_OK : ww_nomem(err);
}

enum ww_rc ww_eval_profile(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_eval_one *o = job->ctx;
	json_auto_t *profile = NULL;
	WW_CHECK(ww_profile_solution(t, &job->files.solution, &profile, err));
	const char *sentence = ww_json_str(json_object_get(profile, "totals"), "sentence", NULL);
	if (sentence)
		set(o, "profile", json_string(sentence));
	return WW_OK;
}
