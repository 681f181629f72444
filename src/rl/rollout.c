/* rollout.c - see rollout.h.
 *
 * Equal solutions of a task are verified once in a step: samples of one prompt often agree, and judging is what costs.
 * Not so a closing judgement, which is the reward: it is a judgement of its own, on draws that no verdict has told of.
 */
#include "rl/rollout.h"
#include "agent/parallel.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/target.h"
#include "base/time.h"
#include "policy/model.h"
#include "rl/recorded.h"
#include "task/task.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- where a group's episodes are */

static enum ww_rc group_dir(const char *run, int64_t step, int64_t g, char *out, struct ww_err *err)
{
	int n = snprintf(out, PATH_MAX, "%s/episodes/step-%08" PRId64 "/%04" PRId64, run, step, g + 1);
	return n < PATH_MAX ? WW_OK : ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", run);
}

static uint64_t seed_of(const struct ww_rollout *r, int64_t step, int64_t i)
{
	return ww_hash_mix(ww_hash_mix((uint64_t)r->o->seed, (uint64_t)step), (uint64_t)i) >> 11; /* JSON's numbers */
}

static const char *task_of(const struct ww_rollout *r, int64_t step, int64_t g)
{
	int64_t turn = (step - 1) * r->groups + g;
	return r->tasks[r->curriculum ? r->drawn[turn - (r->first - 1) * r->groups] : turn % r->n_tasks];
}

/* Episode i of a group; *ended: it is there, whole. */
static enum ww_rc read_episode(const char *dir, int i, struct ww_episode *e, int *ended, struct ww_err *err)
{
	char path[PATH_MAX], file[PATH_MAX];
	WW_CHECK(ww_agent_parallel_dir(dir, i, path, err));
	WW_CHECK(ww_fs_join(file, path, "episode.jsonl", err));
	*ended = 0;
	if (ww_fs_is_file(file))
		WW_CHECK((enum ww_rc)ww_episode_read(file, e, err));
	*ended = e->ended;
	return WW_OK;
}

static enum ww_rc is_whole(const char *dir, int64_t samples, int *whole, struct ww_err *err)
{
	*whole = ww_fs_is_dir(dir);
	for (int i = 0; *whole && i < samples; i++) {
		WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
		WW_CHECK(read_episode(dir, i, &e, whole, err));
	}
	return WW_OK;
}

/* ---- what is under way */

/* With the lock held: reports come in the order of their counts. */
static void report(const struct ww_rollout *r)
{
	ww_train_stage(r->hooks, "sampling: %" PRId64 " of %" PRId64 " episodes, %" PRId64 " replies, %" PRId64 " verdicts",
		r->ended, r->missing, r->replies, r->judged);
}

static void count_reply(void *ctx, const struct ww_agent_event *e)
{
	struct ww_rollout *r = ctx;
	if (e->kind != WW_AGENT_SAID)
		return;
	WW_LOCKED(&r->lock);
	r->replies++;
	report(r);
}

static void count_ended(struct ww_rollout *r, int64_t n)
{
	WW_LOCKED(&r->lock);
	r->sampled += n;
	r->ended += n;
	report(r);
}

/* ---- judging, but for closing judgements once for each content */

struct once {
	struct ww_rollout *r;
	const struct ww_agent_judge *judge;
	pthread_mutex_t lock;
	json_t *verdicts; /* content and depth -> verdict */
};

static void key_of(const struct ww_solution *s, enum ww_judge_depth depth, char out[WW_HASH_HEX])
{
	struct ww_hash_part parts[2 * WW_SOLUTION_MAX_FILES + 3] = { { &depth, sizeof(depth) } };
	int n = 1;
	if (s->form == WW_FORM_PLAN) {
		parts[n++] = (struct ww_hash_part){ s->device_source, s->device_bytes + 1 };
		parts[n++] = (struct ww_hash_part){ s->plan_source, s->plan_bytes };
	}
	for (int i = 0; i < s->n_files; i++) {
		parts[n++] = (struct ww_hash_part){ s->files[i].path, strlen(s->files[i].path) + 1 };
		parts[n++] = (struct ww_hash_part){ s->files[i].text, s->files[i].bytes + 1 };
	}
	ww_hash_parts_hex(parts, (size_t)n, out);
}

static void count(struct ww_rollout *r, int judged, int reused, double verdicts_s)
{
	WW_LOCKED(&r->lock);
	r->judged += judged;
	r->reused += reused;
	r->verdicts_s += verdicts_s;
	report(r);
}

static json_t *known_verdict(struct once *o, const char *key)
{
	WW_LOCKED(&o->lock);
	return json_incref(json_object_get(o->verdicts, key));
}

static int decides(const struct ww_rollout *r)
{
	return strcmp(r->o->decide, "times") && ww_rl_reward_of(r->o->reward) == WW_RL_REWARD_MILESTONE;
}

static enum ww_rc judge_anew(
	struct once *o, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	WW_CHECK(o->judge->run(o->judge->ctx, s, depth, v, err));
	count(o->r, 1, 0, ww_budget_gpu_s(v));
	return WW_OK;
}

static enum ww_rc judge_once(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct once *o = ctx;
	if (depth == WW_JUDGE_CALL)
		return judge_anew(o, s, decides(o->r) ? WW_JUDGE_DECIDE : depth, v, err);
	char key[WW_HASH_HEX];
	key_of(s, depth, key);
	json_auto_t *known = known_verdict(o, key);
	if (known) {
		count(o->r, 0, 1, 0);
		return ww_verdict_from_json(known, v, err);
	}
	WW_CHECK(judge_anew(o, s, depth, v, err));
	json_t *verdict = v->disturbed ? NULL : ww_verdict_to_json(v);
	WW_LOCKED(&o->lock);
	if (verdict)
		json_object_set_new(o->verdicts, key, verdict);
	return WW_OK;
}

static enum ww_rc profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	struct once *o = ctx;
	WW_CHECK(o->judge->profile(o->judge->ctx, s, out, err));
	count(o->r, 0, 0, ww_budget_profile_gpu_s(*out));
	return WW_OK;
}

/* ---- a group of episodes */

/* Tasks of the steps first..last that have to be sampled. */
struct missing {
	struct ww_rollout *r;
	int64_t *step, *group, updated;
	const char **paths;
	int64_t n;
};

static enum ww_rc open_policies(
	struct ww_rollout *r, int64_t step, int64_t g, struct ww_policy **policies, struct ww_err *err)
{
	for (int i = 0; i < r->o->samples; i++) {
		struct ww_policy_opts q = { .seed = seed_of(r, step, g * r->o->samples + i),
			.max_reply_tokens = r->o->reply_tokens };
		WW_CHECK((enum ww_rc)(r->judges->policy ? r->judges->policy(r->judges->ctx, r->engine, &q, &policies[i], err)
												: ww_model_policy_over(r->engine, &q, &policies[i], err)));
	}
	return WW_OK;
}

static struct ww_agent_opts agent_opts(
	struct ww_rollout *r, const struct ww_rl_task *task, struct once *once, const struct ww_episode_header *h)
{
	struct ww_agent_opts a = { .judge = task->judge,
		.task_source = task->source,
		.target = r->judges->target,
		.loop = r->loop,
		.prompt = r->prompt,
		.rule = r->judges->rule,
		.baselines = r->judges->baselines,
		.max_turns = r->turns,
		.max_seconds = 1e7,
		.context_tokens = r->context,
		.no_compaction = 1,
		.long_prompt_ends = 1,
		.decide = decides(r),
		.header = h,
		.interrupted = r->hooks->interrupted,
		.on_event = count_reply,
		.event_ctx = r };
	a.judge.ctx = once;
	a.judge.run = judge_once;
	a.judge.profile = profile;
	a.judge.accounts = 0;
	return a;
}

/* Once for each task, where its first prompt did not fit. */
static void say_long_prompt(struct ww_rollout *r, const struct ww_rl_task *task, const struct ww_agent_result *result)
{
	if (strcmp(result->end.reason, "context") || result->turns)
		return;
	WW_LOCKED(&r->lock);
	if (!r->too_long)
		r->too_long = json_object();
	if (json_object_get(r->too_long, task->id))
		return;
	json_object_set_new(r->too_long, task->id, json_true());
	ww_train_say(r->hooks,
		"%s: its prompt does not fit into context-tokens (%" PRId64 "); nothing is learnt from its episodes",
		task->path, r->context);
}

static enum ww_rc run_group(void *arg, int64_t k, const struct ww_rl_task *task, struct ww_err *err)
{
	const struct missing *m = arg;
	struct ww_rollout *r = m->r;
	int64_t step = m->step[k], g = m->group[k];
	int n = (int)r->o->samples;
	struct ww_policy *policies[WW_AGENT_PARALLEL_MAX] = { 0 };
	char dir[PATH_MAX], answers[PATH_MAX], updated[24];
	struct once once = { r, &task->judge, PTHREAD_MUTEX_INITIALIZER, json_object() };
	ww_auto_free struct ww_agent_result *results = calloc((size_t)n, sizeof(*results));
	snprintf(updated, sizeof(updated), "%" PRId64, m->updated);
	struct ww_episode_header h = { .task_path = (char *)(uintptr_t)task->path,
		.target = (char *)(uintptr_t)ww_target_name(r->judges->target),
		.device = (char *)(uintptr_t)task->judge.device_name,
		.policy = (char *)(uintptr_t)r->name,
		.rule = (char *)(uintptr_t)ww_rule_name(r->judges->rule),
		.seed = seed_of(r, step, g * n),
		.versions = json_pack("{s:s, s:s}", "warpwright", WW_VERSION, "policy_step", updated) };
	struct ww_agent_opts a = agent_opts(r, task, &once, &h);
	enum ww_rc rc = results && h.versions ? WW_OK : ww_nomem(err);
	memcpy(h.task_id, task->id, sizeof(h.task_id));
	ww_utc_text(h.started);
	a.dir = dir;
	WW_TRY(rc);
	WW_TRY(group_dir(r->o->output, step, g, dir, err));
	WW_TRY(ww_fs_mkdirs(dir, err));
	if (r->o->answers) {
		WW_TRY(group_dir(r->o->answers, step, g, answers, err));
		a.answers = answers;
	}
	WW_TRY(open_policies(r, step, g, policies, err));
	WW_TRY(ww_agent_parallel(&a, policies, n, results, err));
	say_long_prompt(r, task, &results[0]);
out:
	for (int i = 0; i < n; i++) {
		if (policies[i])
			policies[i]->ops->free(policies[i]);
		if (results)
			ww_agent_result_release(&results[i]);
	}
	count_ended(r, n);
	pthread_mutex_destroy(&once.lock);
	json_decref(once.verdicts);
	json_decref(h.versions);
	return rc;
}

/* ---- recorded answers: nothing is judged */

static enum ww_rc no_judge(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	(void)ctx, (void)s, (void)depth, (void)v;
	return ww_err_set(err, WW_ERR_USAGE,
		"the run asks for a verdict that is not among the recorded answers; name the output of the same run");
}

static enum ww_rc replay_one(struct missing *m, int64_t k, struct ww_err *err)
{
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	struct ww_device device = { .target = m->r->judges->target };
	char dir[PATH_MAX];
	int ended;
	WW_CHECK(group_dir(m->r->o->answers, m->step[k], m->group[k], dir, err));
	WW_CHECK(read_episode(dir, 0, &e, &ended, err));
	if (!ended)
		return ww_err_set(err, WW_ERR_USAGE, "%s holds no whole episode; answers names the output of another run", dir);
	WW_CHECK(ww_task_load(&task, m->paths[k], err));
	if (strcmp(task.id, e.header.task_id))
		return ww_err_set(err, WW_ERR_USAGE, "%s: its task is another one than %s", dir, m->paths[k]);
	struct ww_rl_task t = { .judge = { .run = no_judge, .device = &device, .device_name = e.header.device },
		.path = m->paths[k],
		.source = task.source };
	memcpy(t.id, task.id, sizeof(t.id));
	return run_group(m, k, &t, err);
}

/* ---- filling */

static enum ww_rc find_missing(struct missing *m, int64_t first, int64_t last, struct ww_err *err)
{
	struct ww_rollout *r = m->r;
	char dir[PATH_MAX];
	int whole;
	for (int64_t step = first; step <= last; step++)
		for (int64_t g = 0; g < r->groups; g++) {
			WW_CHECK(group_dir(r->o->output, step, g, dir, err));
			WW_CHECK(is_whole(dir, r->o->samples, &whole, err));
			if (whole)
				continue;
			m->step[m->n] = step;
			m->group[m->n] = g;
			m->paths[m->n++] = task_of(r, step, g);
		}
	return WW_OK;
}

enum ww_rc ww_rollout_fill(struct ww_rollout *r, int64_t first, int64_t last, int64_t updated, struct ww_err *err)
{
	int64_t most = (last - first + 1) * r->groups;
	struct missing m = { .r = r, .updated = updated };
	enum ww_rc rc;
	WW_TRY(WW_NEW(m.step, most, err));
	WW_TRY(WW_NEW(m.group, most, err));
	WW_TRY(WW_NEW(m.paths, most, err));
	WW_TRY(find_missing(&m, first, last, err));
	r->missing = m.n * r->o->samples;
	r->ended = r->replies = 0;
	if (m.n)
		ww_train_stage(r->hooks, "sampling: opening the first of %" PRId64 " tasks", m.n);
	if (m.n && !r->o->answers)
		WW_TRY(r->judges->each(r->judges->ctx, m.paths, m.n, run_group, &m, err));
	for (int64_t k = 0; r->o->answers && k < m.n; k++)
		WW_TRY(replay_one(&m, k, err));
out:
	free(m.step);
	free(m.group);
	free(m.paths);
	return rc;
}

enum ww_rc ww_rollout_read(const struct ww_rollout *r, int64_t step, struct ww_trajectory *t, int64_t *group,
	struct ww_observed *seen, int64_t *age, struct ww_err *err)
{
	char dir[PATH_MAX];
	*age = 0;
	if (r->curriculum)
		ww_curriculum_begin(r->curriculum);
	for (int64_t k = 0; k < r->o->episodes; k++) {
		WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
		int64_t g = k / r->o->samples;
		int ended, i = (int)(k % r->o->samples);
		WW_CHECK(group_dir(r->o->output, step, g, dir, err));
		WW_CHECK(read_episode(dir, i, &e, &ended, err));
		if (!ended)
			return ww_err_set(err, WW_ERR_WORKER, "%s: episode %d did not end", dir, i + 1);
		ww_trajectory_release(&t[k]);
		if (ww_rl_recorded(&e, ww_rl_reward_of(r->o->reward), &t[k], err) != WW_OK)
			return ww_err_wrap(err, "%s: episode %d", dir, i + 1);
		if (ww_trajectory_check(&t[k], r->vocab, err) != WW_OK)
			return ww_err_wrap(err, "%s: episode %d", dir, i + 1);
		ww_observe(seen, &e);
		if (r->curriculum && !i)
			ww_curriculum_visit(r->curriculum, e.header.task_path);
		if (r->curriculum)
			ww_curriculum_note(r->curriculum, e.header.task_path, e.end.reward_final);
		int64_t old = step - 1 - atoll(ww_json_str(e.header.versions, "policy_step", "0"));
		*age = old > *age ? old : *age;
		group[k] = g;
	}
	return WW_OK;
}
