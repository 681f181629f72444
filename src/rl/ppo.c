/* ppo.c - see ppo.h.
 *
 * Sampling and learning take turns on one device: the engine adopts the policy that is learnt, rests while it is
 * updated, and goes on with the new weights.  Episodes are read back from their files, also right after they were
 * sampled: what a resumed run learns from is what the first one learnt from.
 */
#include "rl/ppo.h"
#include "agent/parallel.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/target.h"
#include "base/time.h"
#include "host/lease.h"
#include "policy/model.h"
#include "rl/recorded.h"
#include "train/checkpoint.h"
#include "train/rl_step.h"
#include "train/run_dir.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_TOKENS = 16384, STOP_AFTER = 3, PUBLISHED_STEPS = 150, SAMPLING_TOKENS = 8192 };

struct ppo {
	const struct ww_recipe *o;
	const struct ww_ppo_judges *judges;
	const struct ww_train_hooks *hooks;
	struct ww_train_result *out;
	struct ww_run_dir dir;
	struct ww_dev *dev;
	struct ww_share share;
	struct ww_tok *tok;
	struct ww_config config;
	int dtype;
	int64_t context, steps, groups; /* groups: tasks of a step */
	char **tasks;
	int64_t n_tasks;
	struct ww_infer_limits limits;
	struct ww_memory memory;
	struct ww_model *policy_m, *critic_m;
	struct ww_learner *policy, *critic;
	struct ww_engine *engine;
	struct ww_schedule schedule;
	struct ww_train_state state;
	/* The stage's own state. */
	double first_reward;
	int64_t low_entropy, low_reward;
	int64_t saved_step;
	/* One step. */
	struct ww_trajectory *t;
	int64_t *group, sampled, milestones[5], cut; /* milestones: by reward -1, 1, 2, 3, others */
};

static void say(struct ppo *p, const char *fmt, ...) WW_PRINTF(2, 3);
static void say(struct ppo *p, const char *fmt, ...)
{
	ww_auto_str line = WW_STR_INIT(4096);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&line, fmt, ap);
	va_end(ap);
	p->hooks->say(p->hooks->ctx, line.p);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- opening */

static enum ww_rc check_recipe(const struct ww_recipe *o, struct ww_err *err)
{
	if (!o->model || !o->tasks || !o->output)
		return ww_err_set(err, WW_ERR_USAGE, "stage ppo needs model, tasks and output");
	if (o->config || o->data)
		return ww_err_set(err, WW_ERR_USAGE, "%s is of stage sft; remove it", o->config ? "config" : "data");
	if (o->episodes % o->samples)
		return ww_err_set(err, WW_ERR_USAGE, "episodes (%" PRId64 ") must be a multiple of samples (%" PRId64 ")",
			o->episodes, o->samples);
	if (o->samples > WW_AGENT_PARALLEL_MAX)
		return ww_err_set(err, WW_ERR_USAGE, "samples is at most %d", WW_AGENT_PARALLEL_MAX);
	if (o->critic && strcmp(o->advantage, "critic"))
		return ww_err_set(err, WW_ERR_USAGE, "advantage: %s has no critic; remove critic", o->advantage);
	return WW_OK;
}

static enum ww_rc open_tasks(struct ppo *p, struct ww_err *err)
{
	size_t cap = 0;
	for (const char *at = p->o->tasks; *at;) {
		size_t n = strcspn(at, ",");
		if (n && !WW_GROW(p->tasks, &cap, p->n_tasks + 1))
			return ww_nomem(err);
		if (n && !(p->tasks[p->n_tasks++] = strndup(at, n)))
			return ww_nomem(err);
		at += n + (at[n] == ',');
	}
	return p->n_tasks ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "tasks names no task");
}

static enum ww_rc open_model(struct ppo *p, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, o->model, "config.json", err));
	WW_CHECK(ww_config_read(path, &p->config, err));
	if (p->config.critic)
		return ww_err_set(err, WW_ERR_USAGE, "%s is a critic; take the policy's checkpoint", o->model);
	p->dtype = !strcmp(o->dtype, "fp32") ? WW_F32 : !strcmp(o->dtype, "bf16") ? WW_BF16 : p->config.dtype;
	p->dtype = p->dtype == WW_F32 ? WW_F32 : WW_BF16;
	p->config.dtype = p->dtype;
	p->context = least(o->context_tokens, p->config.max_position);
	p->groups = o->episodes / o->samples;
	p->steps = o->steps ? o->steps : PUBLISHED_STEPS;
	p->schedule = (struct ww_schedule){
		.kind = WW_SCHEDULE_CONSTANT, .lr = o->lr > 0 ? o->lr : 3e-6, .warmup = o->warmup, .steps = p->steps
	};
	WW_CHECK(ww_dev_open(o->device, !strcmp(o->numbers, "exact"), &p->dev, err));
	WW_CHECK(ww_fs_join(path, o->tokenizer ? o->tokenizer : o->model, "tokenizer.json", err));
	return ww_tok_open(path, &p->tok, err);
}

static int with_critic(const struct ppo *p) { return !strcmp(p->o->advantage, "critic"); }

static enum ww_rc open_memory(struct ppo *p, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	struct ww_model shape = { .config = p->config, .dtype = p->dtype };
	p->limits = (struct ww_infer_limits){ .cache_tokens = o->samples * p->context,
		.max_sequences = o->samples,
		.step_tokens = least(SAMPLING_TOKENS, o->samples * p->context) };
	struct ww_memory_ask ask = { .config = &p->config,
		.dtype = p->dtype,
		.max_tokens = p->context > MICRO_TOKENS ? p->context : least(MICRO_TOKENS, o->episodes * p->context),
		.longest = p->context,
		.keep = o->keep_layers,
		.budget = (uint64_t)(o->memory * 1e9),
		.critic = with_critic(p),
		.cache = ww_infer_bytes(&shape, &p->limits) };
	enum ww_rc rc = ww_memory_plan(&ask, p->dev, &p->memory, err);
	p->out->predicted_bytes = p->memory.total;
	if (rc != WW_OK)
		return rc;
	say(p,
		"memory: %.3f GB (policy %.3f, critic %.3f, generation %.3f, activations %.3f); %" PRId64 " of %" PRId64
		" layers keep their activations",
		(double)p->memory.total / 1e9, (double)(p->memory.model + p->memory.optim) / 1e9,
		(double)p->memory.critic / 1e9, (double)p->memory.cache / 1e9,
		(double)(p->memory.run + p->memory.workspace) / 1e9, p->memory.keep, p->memory.layers);
	return WW_OK;
}

/* The tasks' names stand for the data. */
static json_t *description(const struct ppo *p)
{
	char hash[WW_HASH_HEX];
	ww_hash_hex(p->o->tasks, strlen(p->o->tasks), hash);
	return json_pack("{s:I, s:I, s:{s:s, s:I}, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "steps", (json_int_t)p->steps,
		"parameters", (json_int_t)ww_config_params(&p->config), "data", "hash", hash, "tasks", (json_int_t)p->n_tasks,
		"memory", "model", (json_int_t)p->memory.model, "optimizer", (json_int_t)p->memory.optim, "critic",
		(json_int_t)p->memory.critic, "cache", (json_int_t)p->memory.cache, "run", (json_int_t)p->memory.run,
		"workspace", (json_int_t)p->memory.workspace, "total", (json_int_t)p->memory.total);
}

static enum ww_rc open_learners(struct ppo *p, const char *from, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	char critic[PATH_MAX];
	struct ww_learner_opts l = { .beta1 = (float)o->beta1,
		.beta2 = (float)o->beta2,
		.eps = (float)o->eps,
		.weight_decay = (float)o->weight_decay,
		.clip = (float)o->clip,
		.max_tokens = p->context > MICRO_TOKENS ? p->context : least(MICRO_TOKENS, o->episodes * p->context),
		.keep = p->memory.keep };
	WW_CHECK(ww_model_open(from[0] ? from : o->model, p->dev, p->dtype, &p->policy_m, err));
	WW_CHECK(ww_learner_new(p->policy_m, &l, &p->policy, err));
	if (!with_critic(p))
		return WW_OK;
	WW_CHECK(ww_checkpoint_critic(from, critic, err));
	WW_CHECK(ww_model_open_critic(from[0] ? critic
			: o->critic                   ? o->critic
										  : o->model,
		p->dev, p->dtype, &p->critic_m, err));
	l.host = p->policy;
	return ww_learner_new(p->critic_m, &l, &p->critic, err);
}

static struct ww_trained trained(const struct ppo *p)
{
	return (struct ww_trained){
		.policy = p->policy, .critic = p->critic, .tokenizer_dir = p->o->tokenizer ? p->o->tokenizer : p->o->model
	};
}

static enum ww_rc open_state(struct ppo *p, struct ww_err *err)
{
	char from[PATH_MAX];
	struct ww_trained t;
	WW_CHECK(ww_checkpoint_find(p->o->output, p->o->keep_checkpoints, from, err));
	if (from[0]) {
		WW_CHECK(ww_checkpoint_state(from, &p->state, err));
		p->first_reward = ww_json_num(p->state.stage, "first_reward", 0);
		p->low_entropy = ww_json_int(p->state.stage, "low_entropy", 0);
		p->low_reward = ww_json_int(p->state.stage, "low_reward", 0);
		json_decref(p->state.stage);
		p->state.stage = NULL;
		say(p, "resuming %s", from);
		snprintf(p->out->checkpoint, sizeof(p->out->checkpoint), "%s", from);
	}
	WW_CHECK(open_learners(p, from, err));
	t = trained(p);
	if (from[0])
		WW_CHECK(ww_checkpoint_load(from, &t, &p->state, err));
	p->saved_step = from[0] ? p->state.step : -1;
	p->out->first_step = p->state.step + 1;
	p->out->last = (struct ww_train_step){ .step = p->state.step, .loss = NAN };
	struct ww_engine_opts e = { .limits = p->limits };
	return ww_engine_adopt(&e, p->policy_m, p->tok, &p->engine, err);
}

/* ---- sampling */

/* Of one task's n-th time in a step. */
static enum ww_rc group_dir(const struct ppo *p, int64_t step, int64_t g, char *out, struct ww_err *err)
{
	int n = snprintf(out, PATH_MAX, "%s/episodes/step-%08" PRId64 "/%04" PRId64, p->o->output, step, g + 1);
	return n < PATH_MAX ? ww_fs_mkdirs(out, err) : ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", p->o->output);
}

static uint64_t seed_of(const struct ppo *p, int64_t step, int64_t i)
{
	return ww_hash_mix(ww_hash_mix((uint64_t)p->o->seed, (uint64_t)step), (uint64_t)i) >> 11; /* JSON's numbers */
}

static enum ww_rc run_episodes(
	struct ppo *p, const char *dir, const struct ww_ppo_task *task, int64_t step, int64_t g, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	int n = (int)o->samples;
	struct ww_policy *policies[WW_AGENT_PARALLEL_MAX] = { 0 };
	ww_auto_free struct ww_agent_result *results = calloc((size_t)n, sizeof(*results));
	struct ww_episode_header h = { .task_path = task->path,
		.target = (char *)(uintptr_t)ww_target_name(p->judges->target),
		.device = (char *)(uintptr_t)task->judge.device_name,
		.policy = (char *)"model:ppo",
		.rule = (char *)(uintptr_t)ww_rule_name(p->judges->rule),
		.seed = seed_of(p, step, g * n),
		.versions = json_pack("{s:s}", "warpwright", WW_VERSION) };
	struct ww_agent_opts a = { .judge = task->judge,
		.dir = dir,
		.task_source = task->source,
		.target = p->judges->target,
		.loop = WW_LOOP_SINGLE,
		.rule = p->judges->rule,
		.baselines = p->judges->baselines,
		.max_turns = 1,
		.max_seconds = 1e7,
		.context_tokens = p->context,
		.no_compaction = 1,
		.header = &h,
		.interrupted = p->hooks->interrupted };
	enum ww_rc rc = results && h.versions ? WW_OK : ww_nomem(err);
	memcpy(h.task_id, task->id, sizeof(h.task_id));
	ww_utc_text(h.started);
	for (int i = 0; rc == WW_OK && i < n; i++) {
		struct ww_policy_opts q = { .seed = seed_of(p, step, g * n + i), .max_reply_tokens = o->reply_tokens };
		rc = (enum ww_rc)ww_model_policy_over(p->engine, &q, &policies[i], err);
	}
	if (rc == WW_OK)
		rc = ww_agent_parallel(&a, policies, n, results, err);
	for (int i = 0; i < n; i++) {
		if (policies[i])
			policies[i]->ops->free(policies[i]);
		if (results)
			ww_agent_result_release(&results[i]);
	}
	json_decref(h.versions);
	return rc;
}

static int milestone_of(double reward)
{
	return reward == -1 ? 0 : reward >= 1 && reward <= 3 && reward == floor(reward) ? (int)reward : 4;
}

/* Read a group's records; *whole: all of them are there and have ended. */
static enum ww_rc read_group(struct ppo *p, const char *dir, int64_t g, int *whole, struct ww_err *err)
{
	char path[PATH_MAX], file[PATH_MAX];
	*whole = 1;
	for (int i = 0; *whole && i < p->o->samples; i++) {
		WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
		struct ww_trajectory *t = &p->t[g * p->o->samples + i];
		WW_CHECK(ww_agent_parallel_dir(dir, i, path, err));
		WW_CHECK(ww_fs_join(file, path, "episode.jsonl", err));
		*whole = ww_fs_is_file(file);
		if (*whole)
			WW_CHECK((enum ww_rc)ww_episode_read(file, &e, err));
		if (!(*whole = *whole && e.ended))
			break;
		ww_trajectory_release(t);
		if (ww_rl_recorded(&e, t, err) != WW_OK)
			return ww_err_wrap(err, "%s", file);
		p->group[g * p->o->samples + i] = g;
	}
	return WW_OK;
}

static enum ww_rc sample_group(struct ppo *p, int64_t step, int64_t g, struct ww_err *err)
{
	const char *path = p->tasks[((step - 1) * p->groups + g) % p->n_tasks];
	struct ww_ppo_task task = { .path = NULL };
	char dir[PATH_MAX];
	int whole;
	WW_CHECK(group_dir(p, step, g, dir, err));
	WW_CHECK(read_group(p, dir, g, &whole, err));
	if (whole)
		return WW_OK;
	WW_CHECK(p->judges->open(p->judges->ctx, path, &task, err));
	enum ww_rc rc = run_episodes(p, dir, &task, step, g, err);
	p->judges->close(p->judges->ctx, &task);
	if (rc == WW_OK)
		rc = read_group(p, dir, g, &whole, err);
	p->sampled += p->o->samples;
	if (rc == WW_OK && !whole)
		return ww_err_set(err, WW_ERR_WORKER, "%s: an episode did not end", dir);
	return rc;
}

static void count_rewards(struct ppo *p)
{
	memset(p->milestones, 0, sizeof(p->milestones));
	p->cut = 0;
	for (int64_t i = 0; i < p->o->episodes; i++) {
		p->milestones[milestone_of(p->t[i].reward)]++;
		p->cut += p->t[i].own_n >= p->o->reply_tokens || p->t[i].n >= p->context;
	}
}

/* ---- learning */

static struct ww_rl_step_opts step_opts(const struct ppo *p, int64_t step)
{
	const struct ww_recipe *o = p->o;
	return (struct ww_rl_step_opts){ .advantage = with_critic(p) ? WW_RL_BY_CRITIC
			: !strcmp(o->advantage, "grpo")                      ? WW_RL_BY_GRPO
																 : WW_RL_BY_RLOO,
		.policy_gae = { o->gamma, o->lambda, o->alpha },
		.critic_gae = { o->gamma, o->critic_lambda, 0 },
		.clip = { o->clip_low, o->clip_high, o->dual_clip, o->truncate },
		.mean = strcmp(o->mean, "token") ? WW_RL_MEAN_EPISODE : WW_RL_MEAN_TOKEN,
		.epochs = o->update_epochs,
		.minibatch = o->minibatch,
		.lr = ww_schedule_lr(&p->schedule, step),
		.critic_lr = o->critic_lr,
		.fresh = 1 };
}

static enum ww_rc write_log(struct ppo *p, const struct ww_train_step *r, const struct ww_rl_step_result *x,
	double sampling_s, struct ww_err *err)
{
	json_auto_t *v = json_pack(
		"{s:I, s:f, s:o, s:o, s:f, s:o, s:o, s:f, s:o, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, "
		"s:I, s:f, s:[I, I, I, I, I]}",
		"step", (json_int_t)r->step, "reward", x->reward, "loss", ww_json_real(x->policy_loss), "value_loss",
		ww_json_real(x->value_loss), "entropy", x->entropy, "explained", ww_json_real(x->explained), "explained_middle",
		ww_json_real(x->explained_middle), "lr", r->lr, "norm", ww_json_real((double)x->norm), "critic_norm",
		ww_json_real((double)x->critic_norm), "episodes", (json_int_t)p->o->episodes, "sampled", (json_int_t)p->sampled,
		"own_tokens", (json_int_t)x->own_tokens, "cut", (json_int_t)p->cut, "ratio_min", x->ratios.ratio_min,
		"ratio_max", x->ratios.ratio_max, "log_ratio_max", x->ratios.log_max, "clipped",
		x->ratios.n ? (double)x->ratios.clipped / (double)x->ratios.n : 0, "seconds", r->seconds, "sampling_seconds",
		sampling_s, "device_bytes", (json_int_t)r->device_bytes, "total_tokens", (json_int_t)r->total_tokens,
		"tokens_per_second", (double)r->tokens / fmax(r->seconds, 1e-9), "rewards", (json_int_t)p->milestones[0],
		(json_int_t)p->milestones[1], (json_int_t)p->milestones[2], (json_int_t)p->milestones[3],
		(json_int_t)p->milestones[4]);
	return v ? ww_run_dir_log(&p->dir, v, &p->state.log_bytes, err) : ww_nomem(err);
}

static enum ww_rc save(struct ppo *p, struct ww_err *err)
{
	struct ww_trained t = trained(p);
	if (p->saved_step == p->state.step)
		return WW_OK;
	WW_CHECK(ww_run_dir_sync(&p->dir, err));
	p->state.stage = json_pack("{s:f, s:I, s:I}", "first_reward", p->first_reward, "low_entropy",
		(json_int_t)p->low_entropy, "low_reward", (json_int_t)p->low_reward);
	enum ww_rc rc = ww_checkpoint_save(p->o->output, &t, &p->state, p->o->keep_checkpoints, err);
	json_decref(p->state.stage);
	p->state.stage = NULL;
	if (rc != WW_OK)
		return rc;
	p->saved_step = p->state.step;
	snprintf(p->out->checkpoint, sizeof(p->out->checkpoint), "%.4000s/checkpoints/step-%08" PRId64, p->o->output,
		p->state.step);
	return WW_OK;
}

/* Signs of a collapse, in STOP_AFTER steps in a row. */
static enum ww_rc check_collapse(struct ppo *p, const struct ww_rl_step_result *x, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	p->first_reward = p->state.step == 1 ? x->reward : p->first_reward;
	p->low_entropy = x->entropy < o->stop_entropy ? p->low_entropy + 1 : 0;
	p->low_reward = o->stop_reward > 0 && x->reward < p->first_reward - o->stop_reward ? p->low_reward + 1 : 0;
	if (p->low_entropy < STOP_AFTER && p->low_reward < STOP_AFTER)
		return WW_OK;
	WW_CHECK(save(p, err));
	return ww_err_set(err, WW_ERR_LIMIT,
		"stopped after step %" PRId64
		": the %s of the last %d steps lay below %.3g; a lower lr may help, from an earlier "
		"checkpoint",
		p->state.step, p->low_entropy >= STOP_AFTER ? "entropy" : "reward", STOP_AFTER,
		p->low_entropy >= STOP_AFTER ? o->stop_entropy : p->first_reward - o->stop_reward);
}

static enum ww_rc learn(struct ppo *p, struct ww_rl_step_result *x, struct ww_err *err)
{
	struct ww_rl_step_opts o = step_opts(p, p->state.step + 1);
	ww_engine_pause(p->engine);
	enum ww_rc rc = ww_share_step(&p->share, p->hooks->interrupted, err);
	if (rc == WW_OK)
		rc = ww_rl_step(&o, p->policy, p->critic, p->t, p->group, p->o->episodes, x, err);
	ww_share_rest(&p->share);
	if (rc == WW_OK)
		rc = ww_engine_resume(p->engine, err);
	return rc;
}

static enum ww_rc one_step(struct ppo *p, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	struct ww_train_step r = { .step = p->state.step + 1, .steps = p->steps };
	struct ww_rl_step_result x;
	p->sampled = 0;
	for (int64_t g = 0; g < p->groups; g++)
		WW_CHECK(sample_group(p, r.step, g, err));
	double sampling_s = ww_seconds_since(start);
	count_rewards(p);
	WW_CHECK(learn(p, &x, err));
	p->state.step = r.step;
	p->state.updates = ww_learner_updates(p->policy);
	p->state.critic_updates = p->critic ? ww_learner_updates(p->critic) : 0;
	p->state.total_tokens += x.own_tokens;
	r.lr = ww_schedule_lr(&p->schedule, r.step);
	r.loss = x.policy_loss;
	r.norm = (double)x.norm;
	r.skipped = isfinite(x.norm) || !x.own_tokens ? NULL : "nan";
	r.tokens = r.learned = x.own_tokens;
	r.total_tokens = p->state.total_tokens;
	r.device_bytes = p->dev->peak_bytes;
	r.seconds = ww_seconds_since(start);
	WW_CHECK(write_log(p, &r, &x, sampling_s, err));
	say(p, "step %" PRId64 "/%" PRId64 "  reward %.3f  entropy %.3f  explained %.2f  own tokens %" PRId64 "  %.1f s",
		r.step, r.steps, x.reward, x.entropy, x.explained, x.own_tokens, r.seconds);
	p->out->last = r;
	p->out->seconds += r.seconds;
	p->out->tokens += r.tokens;
	p->out->skipped += r.skipped != NULL;
	ww_guard_note(&p->state.guard, r.skipped ? WW_GUARD_NAN : WW_GUARD_FINE, x.policy_loss);
	if (p->state.guard.skipped_in_row >= p->o->max_skips)
		return ww_err_set(err, WW_ERR_LIMIT,
			"%" PRId64 " steps in a row were skipped, the last one %" PRId64
			": gradients that are not finite; a lower lr may "
			"help",
			p->state.guard.skipped_in_row, p->state.step);
	return check_collapse(p, &x, err);
}

static enum ww_rc loop(struct ppo *p, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	while (rc == WW_OK && p->state.step < p->steps) {
		rc = *p->hooks->interrupted ? WW_ERR_INTERRUPTED : one_step(p, err);
		if (rc == WW_OK &&
			(p->state.step == p->steps || (p->o->checkpoint_every && p->state.step % p->o->checkpoint_every == 0)))
			rc = save(p, err);
	}
	if (rc != WW_ERR_INTERRUPTED)
		return rc;
	WW_CHECK(p->state.step ? save(p, err) : WW_OK);
	return ww_err_set(err, WW_ERR_INTERRUPTED,
		"interrupted after step %" PRId64 "; the same command goes on from there", p->state.step);
}

static void release(struct ppo *p)
{
	ww_engine_close(p->engine);
	ww_learner_free(p->critic);
	ww_learner_free(p->policy);
	ww_model_free(p->critic_m);
	ww_model_free(p->policy_m);
	for (int64_t i = 0; p->t && i < p->o->episodes; i++)
		ww_trajectory_release(&p->t[i]);
	free(p->t);
	free(p->group);
	for (int64_t i = 0; i < p->n_tasks; i++)
		free(p->tasks[i]);
	free(p->tasks);
	ww_tok_free(p->tok);
	ww_share_close(&p->share);
	ww_dev_close(p->dev);
	ww_run_dir_close(&p->dir);
}

enum ww_rc ww_ppo_run(const struct ww_recipe *o, const json_t *values, const struct ww_ppo_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err)
{
	struct ppo p = {
		.o = o, .judges = judges, .hooks = hooks, .out = out, .dir = WW_RUN_DIR_INIT, .share = WW_SHARE_INIT
	};
	json_t *own = NULL;
	enum ww_rc rc;
	memset(out, 0, sizeof(*out));
	WW_TRY(check_recipe(o, err));
	WW_TRY(open_tasks(&p, err));
	WW_TRY(open_model(&p, err));
	WW_TRY(WW_NEW(p.t, o->episodes, err));
	WW_TRY(WW_NEW(p.group, o->episodes, err));
	WW_TRY(open_memory(&p, err));
	WW_TRY(ww_run_dir_open(&p.dir, o->output, err));
	if (!(own = description(&p)))
		WW_TRY(ww_nomem(err));
	WW_TRY(ww_run_dir_describe(&p.dir, values, p.dev, o->other_arithmetic, own, err));
	WW_TRY(ww_share_open(&p.share, p.dev->id, err));
	WW_TRY(open_state(&p, err));
	WW_TRY(ww_run_dir_open_log(&p.dir, p.state.log_bytes, err));
	WW_TRY(loop(&p, err));
out:
	json_decref(own);
	release(&p);
	return rc;
}
