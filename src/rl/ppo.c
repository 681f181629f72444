/* ppo.c - see ppo.h.
 *
 * Sampling and learning take turns on one device: the engine adopts the policy that is learnt, rests while it is
 * updated, and goes on with the new weights.  Episodes are read back from their files, also right after they were
 * sampled: what a resumed run learns from is what the first one learnt from.
 *
 * staleness N: the episodes of N + 1 steps are sampled at once, by the weights before the first of them, and learnt
 * step by step; which steps belong together follows from their numbers alone.
 */
#include "rl/ppo.h"
#include "agent/parallel.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/range.h"
#include "base/time.h"
#include "host/lease.h"
#include "rl/rollout.h"
#include "task/held_out.h"
#include "task/set.h"
#include "task/shipped.h"
#include "train/checkpoint.h"
#include "train/rl_step.h"
#include "train/run_dir.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STOP_AFTER = 3, PUBLISHED_STEPS = 150, SAMPLING_TOKENS = 8192 };
enum { PUBLISHED_CONTEXT = 32768, PUBLISHED_AGENT_CONTEXT = 131072 };

struct ppo {
	const struct ww_recipe *o;
	const struct ww_rl_judges *judges;
	const struct ww_train_hooks *hooks;
	struct ww_train_result *out;
	struct ww_run_dir dir;
	struct ww_dev *dev;
	struct ww_share share;
	struct ww_tok *tok;
	struct ww_config config;
	int dtype;
	int64_t context, steps;
	struct ww_rollout rollout;
	struct ww_infer_limits limits;
	struct ww_memory memory;
	struct ww_model *policy_m, *critic_m, *reference_m;
	struct ww_learner *policy, *critic, *reference; /* critic, reference: NULL without */
	struct ww_engine *engine;
	struct ww_schedule schedule;
	struct ww_train_state state;
	struct ww_settings settings; /* what the policy is told */
	/* The stage's own state. */
	double first_reward;
	int64_t low_entropy, low_reward, many_invalid; /* steps in a row */
	int64_t saved_step;
	/* One step. */
	struct ww_trajectory *t;
	int64_t *group, age; /* age: steps since the weights that sampled it */
	struct ww_observed seen;
	double sampling_s, generating_s, judging_s, learning_s;
	int64_t rows; /* of the live table */
};

/* With tools, turn by turn: also where stage rft samples. */
static int is_agentic(const struct ww_recipe *o) { return strcmp(o->stage, "ppo") != 0; }

/* ---- opening */

static enum ww_rc check_recipe(const struct ww_recipe *o, struct ww_err *err)
{
	const struct ww_needed needed[] = { { "model", o->model }, { "tasks", o->tasks }, { "output", o->output } };
	WW_CHECK(ww_recipe_needs(o, needed, WW_ARRAY_LEN(needed), err));
	if (o->episodes % o->samples)
		return ww_err_set(err, WW_ERR_USAGE, "episodes (%" PRId64 ") must be a multiple of samples (%" PRId64 ")",
			o->episodes, o->samples);
	if (o->samples > WW_AGENT_PARALLEL_MAX)
		return ww_err_set(err, WW_ERR_USAGE, "samples is at most %d", WW_AGENT_PARALLEL_MAX);
	if (o->parallel * o->samples > WW_GENERATE_ROWS)
		return ww_err_set(err, WW_ERR_USAGE, "parallel * samples is at most %d: so many replies are generated at once",
			WW_GENERATE_ROWS);
	if (o->reference && o->kl <= 0)
		return ww_err_set(err, WW_ERR_USAGE, "reference has no effect without kl; give kl a value above 0");
	if (o->critic && strcmp(o->advantage, "critic"))
		return ww_err_set(err, WW_ERR_USAGE, "advantage: %s has no critic; remove critic", o->advantage);
	return WW_OK;
}

static enum ww_rc add_task(struct ppo *p, size_t *cap, char *name, struct ww_err *err)
{
	if (!name || !WW_GROW(p->rollout.tasks, cap, p->rollout.n_tasks + 1)) {
		free(name);
		return ww_nomem(err);
	}
	p->rollout.tasks[p->rollout.n_tasks++] = name;
	return WW_OK;
}

/* Of a set its rows of the split train, or all where no splits are named. */
static enum ww_rc add_set(struct ppo *p, size_t *cap, const char *path, struct ww_err *err)
{
	const struct ww_set_row *row;
	struct ww_set *set;
	enum ww_rc rc;
	WW_CHECK(ww_set_open(&set, path, &(struct ww_set_opts){ .interrupted = p->hooks->interrupted }, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row) {
		ww_auto_str name = WW_STR_INIT(2 * PATH_MAX);
		if (strcmp(ww_json_str(row->fields, "split", "train"), "train"))
			continue;
		ww_str_addf(&name, "%s#%s", path, row->id);
		if ((rc = add_task(p, cap, strdup(name.p), err)) != WW_OK)
			break;
	}
	ww_set_close(set);
	return rc;
}

static int is_set(const char *name)
{
	char ignored[PATH_MAX];
	size_t n = strlen(name);
	return ww_fs_is_dir(name) || ww_shipped_find(name, ignored) ||
		(ww_fs_is_file(name) && (n < 3 || strcmp(name + n - 3, ".py")));
}

static enum ww_rc open_tasks(struct ppo *p, struct ww_err *err)
{
	const char *list = p->o->tasks;
	size_t cap = 0, n;
	ww_train_stage(p->hooks, "reading the tasks");
	for (const char *at; (at = ww_list_next(&list, &n));) {
		ww_auto_free char *name = strndup(at, n);
		if (name && is_set(name))
			WW_CHECK(add_set(p, &cap, name, err));
		else
			WW_CHECK(add_task(p, &cap, name ? strdup(name) : NULL, err));
	}
	return p->rollout.n_tasks ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "tasks names no task");
}

/* Refuse held-out tasks. */
static enum ww_rc check_tasks(struct ppo *p, struct ww_err *err)
{
	struct ww_held_out *h;
	if (!p->o->held_out)
		return WW_OK;
	ww_train_stage(p->hooks, "comparing %" PRId64 " tasks with the held-out sets", p->rollout.n_tasks);
	WW_CHECK(ww_held_out_open(&h, p->o->held_out, p->hooks->interrupted, err));
	enum ww_rc rc = ww_held_out_check(h, p->rollout.tasks, (size_t)p->rollout.n_tasks, p->hooks->interrupted, err);
	ww_held_out_free(h);
	return rc;
}

static enum ww_rc open_model(struct ppo *p, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, o->model, "config.json", err));
	if (ww_config_read(path, &p->config, err) != WW_OK)
		return ww_err_wrap(err, "model");
	if (p->config.critic)
		return ww_err_set(err, WW_ERR_USAGE, "%s is a critic; take the policy's checkpoint", o->model);
	p->config.dtype = p->dtype = ww_recipe_dtype(o, p->config.dtype);
	p->context = o->context_tokens ? o->context_tokens : is_agentic(o) ? PUBLISHED_AGENT_CONTEXT : PUBLISHED_CONTEXT;
	p->context = ww_min_i64(p->context, p->config.max_position);
	p->rollout.groups = o->episodes / o->samples;
	p->steps = o->steps ? o->steps : PUBLISHED_STEPS;
	p->schedule = (struct ww_schedule){
		.kind = WW_SCHEDULE_CONSTANT, .lr = o->lr > 0 ? o->lr : 3e-6, .warmup = o->warmup, .steps = p->steps
	};
	WW_CHECK(ww_recipe_settings(o, &p->settings, err));
	WW_CHECK(ww_dev_open(o->device, !strcmp(o->numbers, "exact"), &p->dev, err));
	WW_CHECK(ww_fs_join(path, o->tokenizer ? o->tokenizer : o->model, "tokenizer.json", err));
	return ww_tok_open(path, &p->tok, err);
}

static int64_t micro_tokens(const struct ppo *p)
{
	int64_t n = ww_min_i64(WW_TRAIN_MICRO_TOKENS, p->o->episodes * p->context);
	return p->context > WW_TRAIN_MICRO_TOKENS ? p->context : n;
}

static int with_critic(const struct ppo *p) { return !strcmp(p->o->advantage, "critic") && strcmp(p->o->stage, "rft"); }

static int with_reference(const struct ppo *p) { return p->o->kl > 0 && strcmp(p->o->stage, "rft"); }

/* Replies at once, and tokens that the cache holds: all of them whole, or what half of the memory beside the learner
 * holds.  Where it is too small, the engine computes some sequences again, to the same bits. */
static enum ww_rc choose_limits(struct ppo *p, const struct ww_memory_ask *learner, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	struct ww_model shape = { .config = p->config, .dtype = p->dtype };
	struct ww_memory least;
	struct ww_memory_ask ask = *learner;
	int64_t sequences = ww_min_i64(o->parallel, p->rollout.groups * (o->staleness + 1)) * o->samples;
	ask.keep = 1;
	WW_CHECK(ww_memory_plan(&ask, p->dev, &least, err));
	uint64_t room = (least.budget - least.total) / 2, token = ww_kv_page_bytes(&shape) / WW_KV_PAGE;
	int64_t fit = (int64_t)(room / (token ? token : 1)), whole = sequences * p->context;
	p->limits = (struct ww_infer_limits){ .cache_tokens = o->cache_tokens ? o->cache_tokens
			: whole < fit                                                 ? whole
			: fit > p->context                                            ? fit
																		  : p->context,
		.max_sequences = sequences,
		.step_tokens = ww_min_i64(SAMPLING_TOKENS, sequences * p->context) };
	if (p->limits.step_tokens < sequences)
		p->limits.step_tokens = sequences;
	return WW_OK;
}

static enum ww_rc open_memory(struct ppo *p, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	struct ww_model shape = { .config = p->config, .dtype = p->dtype };
	struct ww_memory_ask ask = { .config = &p->config,
		.dtype = p->dtype,
		.max_tokens = micro_tokens(p),
		.longest = p->context,
		.keep = o->keep_layers,
		.budget = (uint64_t)(o->memory * 1e9),
		.critic = with_critic(p),
		.reference = with_reference(p),
		.others = p->judges->target == WW_TARGET_CUDA ? (uint64_t)(o->judge_memory * 1e9) : 0 };
	WW_CHECK(choose_limits(p, &ask, err));
	ask.cache = ww_infer_bytes(&shape, &p->limits);
	enum ww_rc rc = ww_memory_plan(&ask, p->dev, &p->memory, err);
	p->out->predicted_bytes = p->memory.total;
	if (rc != WW_OK)
		return rc;
	ww_train_say(p->hooks,
		"memory: %.3f GB (policy %.3f, critic %.3f, reference %.3f, generation %.3f for %" PRId64
		" replies and %" PRId64 " tokens, activations %.3f); %" PRId64 " of %" PRId64 " layers keep their activations",
		(double)p->memory.total / 1e9, (double)(p->memory.model + p->memory.optim) / 1e9,
		(double)p->memory.critic / 1e9, (double)p->memory.reference / 1e9, (double)p->memory.cache / 1e9,
		p->limits.max_sequences, p->limits.cache_tokens, (double)(p->memory.run + p->memory.workspace) / 1e9,
		p->memory.keep, p->memory.layers);
	return WW_OK;
}

/* The tasks' names stand for the data. */
static json_t *description(const struct ppo *p)
{
	char hash[WW_HASH_HEX];
	ww_hash_hex(p->o->tasks, strlen(p->o->tasks), hash);
	return json_pack("{s:I, s:I, s:{s:s, s:I}, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "steps",
		(json_int_t)p->steps, "parameters", (json_int_t)ww_config_params(&p->config), "data", "hash", hash, "tasks",
		(json_int_t)p->rollout.n_tasks, "memory", "model", (json_int_t)p->memory.model, "optimizer",
		(json_int_t)p->memory.optim, "critic", (json_int_t)p->memory.critic, "reference",
		(json_int_t)p->memory.reference, "cache", (json_int_t)p->memory.cache, "run", (json_int_t)p->memory.run,
		"workspace", (json_int_t)p->memory.workspace, "total", (json_int_t)p->memory.total);
}

static enum ww_rc open_learners(struct ppo *p, const char *from, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	char critic[PATH_MAX];
	struct ww_learner_opts l = ww_recipe_learner(o, micro_tokens(p), p->memory.keep);
	ww_train_stage(p->hooks, "loading the model");
	WW_CHECK(ww_model_open(from[0] ? from : o->model, p->dev, p->dtype, &p->policy_m, err));
	WW_CHECK(ww_learner_new(p->policy_m, &l, &p->policy, err));
	l.host = p->policy;
	if (with_reference(p)) {
		struct ww_learner_opts frozen = l;
		frozen.frozen = 1;
		WW_CHECK(ww_model_open(o->reference ? o->reference : o->model, p->dev, p->dtype, &p->reference_m, err));
		WW_CHECK(ww_learner_new(p->reference_m, &frozen, &p->reference, err));
	}
	if (!with_critic(p))
		return WW_OK;
	WW_CHECK(ww_checkpoint_critic(from, critic, err));
	WW_CHECK(ww_model_open_critic(from[0] ? critic
			: o->critic                   ? o->critic
										  : o->model,
		p->dev, p->dtype, &p->critic_m, err));
	return ww_learner_new(p->critic_m, &l, &p->critic, err);
}

static struct ww_trained trained(const struct ppo *p)
{
	return (struct ww_trained){ .policy = p->policy,
		.critic = p->critic,
		.tokenizer_dir = p->o->tokenizer ? p->o->tokenizer : p->o->model,
		.settings = p->settings };
}

static enum ww_rc open_curriculum(struct ppo *p, struct ww_err *err)
{
	struct ww_rollout *r = &p->rollout;
	if (strcmp(p->o->curriculum, "success"))
		return WW_OK;
	WW_CHECK(WW_NEW(r->drawn, (p->o->staleness + 1) * r->groups, err));
	return ww_curriculum_new(r->tasks, r->n_tasks, (uint64_t)p->o->seed, &r->curriculum, err);
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
		p->many_invalid = ww_json_int(p->state.stage, "many_invalid", 0);
		if (p->rollout.curriculum)
			ww_curriculum_load(p->rollout.curriculum, json_object_get(p->state.stage, "curriculum"));
		json_decref(p->state.stage);
		p->state.stage = NULL;
		ww_train_say(p->hooks, "resuming %s", from);
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
	WW_CHECK(ww_engine_adopt(&e, p->policy_m, p->tok, &p->engine, err));
	p->rollout.engine = p->engine;
	return WW_OK;
}

/* ---- sampling */

/* The steps whose episodes are sampled together are first..first + staleness. */
static enum ww_rc sample(struct ppo *p, int64_t step, struct ww_err *err)
{
	struct ww_rollout *r = &p->rollout;
	uint64_t start = ww_now_ns();
	double before = ww_engine_busy_s(p->engine), held = ww_lease_held_s();
	int64_t first = step - (step - 1) % (p->o->staleness + 1), last = ww_min_i64(first + p->o->staleness, p->steps);
	r->sampled = r->judged = r->reused = 0;
	r->verdicts_s = 0;
	ww_observed_release(&p->seen);
	if (r->curriculum && step == first) {
		r->first = first;
		ww_curriculum_draw(r->curriculum, first, last, r->groups, r->drawn);
	}
	/* Where step > first, the first step came to its update, so all other steps' episodes are there. */
	WW_CHECK(ww_rollout_fill(r, step, step == first ? last : step, step - 1, err));
	WW_CHECK(ww_rollout_read(r, step, p->t, p->group, &p->seen, &p->age, err));
	if (p->age > p->o->staleness)
		return ww_err_set(err, WW_ERR_USAGE,
			"its episodes were sampled %" PRId64 " updates before; staleness allows %" PRId64, p->age, p->o->staleness);
	p->sampling_s = ww_seconds_since(start);
	p->generating_s = ww_engine_busy_s(p->engine) - before;
	p->judging_s = ww_lease_held_s() - held;
	return WW_OK;
}

/* A run that cannot begin; later on, steps of such tasks alone teach nothing and are passed. */
static enum ww_rc check_sampled(const struct ppo *p, struct ww_err *err)
{
	int64_t own = p->state.total_tokens;
	for (int64_t i = 0; i < p->o->episodes; i++)
		own += p->t[i].own_n;
	return own ? WW_OK
			   : ww_err_set(err, WW_ERR_USAGE,
					 "no prompt of its tasks fits into context-tokens (%" PRId64 "); raise it, or take other tasks",
					 p->context);
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
		.clip = { o->clip_low, o->clip_high, o->dual_clip, o->truncate, o->kl },
		.reference = p->reference,
		.mean = strcmp(o->mean, "token") ? WW_RL_MEAN_EPISODE : WW_RL_MEAN_TOKEN,
		.epochs = o->update_epochs,
		.minibatch = o->minibatch,
		.lr = ww_schedule_lr(&p->schedule, step),
		.critic_lr = o->critic_lr,
		.fresh = p->age == 0 };
}

/* Add the statistics of the step's episodes. */
static int add_episodes(json_t *v, const struct ppo *p, const struct ww_rl_spread *spread)
{
	const struct ww_observed *s = &p->seen;
	const int64_t *m = s->milestones, n = s->episodes;
	json_t *more = json_pack(
		"{s:[I, I, I, I, I], s:I, s:I, s:f, s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:I, "
		"s:I, s:I, s:I, s:f, s:o, s:o}",
		"rewards", (json_int_t)m[0], (json_int_t)m[1], (json_int_t)m[2], (json_int_t)m[3], (json_int_t)m[4], "groups",
		(json_int_t)spread->groups, "mixed", (json_int_t)spread->mixed, "mixed_share",
		ww_share_of(spread->mixed, spread->groups), "within", ww_json_real(spread->within), "episodes", (json_int_t)n,
		"cut", (json_int_t)s->cut, "cut_share", ww_share_of(s->cut, n), "pass", ww_share_of(m[1] + m[2] + m[3], n),
		"faster_eager", ww_share_of(m[2] + m[3], n), "faster_compile", ww_share_of(m[3], n), "calls",
		(json_int_t)s->calls, "invalid", (json_int_t)s->invalid, "invalid_share", ww_share_of(s->invalid, s->calls),
		"verdicts", (json_int_t)s->verdicts, "failed_verdicts", (json_int_t)s->failed, "disturbed",
		(json_int_t)s->disturbed, "duplicates", (json_int_t)s->duplicates, "turns",
		n ? (double)s->turns / (double)n : 0, "tools", s->tools ? json_incref(s->tools) : json_object(), "after_failed",
		s->after_failed ? json_incref(s->after_failed) : json_object());
	int ok = more && json_object_update(v, more) == 0;
	json_decref(more);
	return ok;
}

/* Where the time of a step's devices went: those that judge, and the learner's, which may be one of them and generates
 * too, not at the same time. */
struct activity {
	double devices, seconds; /* seconds: of the devices together */
	double generating, learning, judging, idle;
	double verdicts; /* a second, while episodes were sampled */
};

static struct activity activity_of(const struct ppo *p, double seconds)
{
	const struct ww_rollout *r = &p->rollout;
	struct activity a = { .devices = (p->judges->devices ? p->judges->devices : 1) + p->judges->apart,
		.generating = p->generating_s,
		.learning = p->learning_s,
		.judging = p->judging_s,
		.verdicts = (double)r->judged / fmax(p->sampling_s, 1e-9) };
	a.seconds = a.devices * fmax(seconds, 1e-9);
	a.idle = fmax(0, a.seconds - a.generating - a.learning - a.judging);
	return a;
}

static int add_activity(json_t *v, const struct ppo *p, const struct activity *a, int64_t tokens)
{
	const struct ww_rollout *r = &p->rollout;
	json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f}", "sampled",
		(json_int_t)r->sampled, "judged", (json_int_t)r->judged, "judged_before", (json_int_t)r->reused, "age",
		(json_int_t)p->age, "sampling_seconds", p->sampling_s, "generating_seconds", a->generating, "learning_seconds",
		a->learning, "judging_seconds", a->judging, "idle_seconds", a->idle, "busy_share", 1 - a->idle / a->seconds,
		"verdicts_per_second", a->verdicts, "verdict_seconds", r->verdicts_s, "context_tokens", (json_int_t)tokens,
		"learning_tokens_per_second", (double)(tokens * p->o->update_epochs) / fmax(a->learning, 1e-9));
	int ok = more && json_object_update(v, more) == 0;
	json_decref(more);
	return ok;
}

static enum ww_rc write_log(
	struct ppo *p, const struct ww_train_step *r, const struct ww_rl_step_result *x, struct ww_err *err)
{
	struct activity a = activity_of(p, r->seconds);
	json_auto_t *v = json_pack(
		"{s:I, s:f, s:o, s:o, s:f, s:o, s:o, s:f, s:o, s:o, s:I, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:I, s:I, s:f}",
		"step", (json_int_t)r->step, "reward", x->reward, "loss", ww_json_real(x->policy_loss), "value_loss",
		ww_json_real(x->value_loss), "entropy", x->entropy, "explained", ww_json_real(x->explained), "explained_middle",
		ww_json_real(x->explained_middle), "lr", r->lr, "norm", ww_json_real((double)x->norm), "critic_norm",
		ww_json_real((double)x->critic_norm), "own_tokens", (json_int_t)x->own_tokens, "ratio_min", x->ratios.ratio_min,
		"ratio_max", x->ratios.ratio_max, "kl",
		ww_json_real(p->reference && x->ratios.n ? x->ratios.kl_sum / (double)x->ratios.n : NAN), "log_ratio_max",
		x->ratios.log_max, "log_ratio_mean", x->ratios.n ? x->ratios.log_sum / (double)x->ratios.n : 0, "clipped",
		x->ratios.n ? (double)x->ratios.clipped / (double)x->ratios.n : 0, "seconds", r->seconds, "device_bytes",
		(json_int_t)r->device_bytes, "total_tokens", (json_int_t)r->total_tokens, "tokens_per_second",
		(double)r->tokens / fmax(r->seconds, 1e-9));
	if (!v || !add_episodes(v, p, &x->spread) || !add_activity(v, p, &a, x->tokens))
		return ww_nomem(err);
	return ww_run_dir_log(&p->dir, v, &p->state.log_bytes, err);
}

/* The live table: a row for each step, the head above every twentieth. */
static void say_step(struct ppo *p, const struct ww_train_step *r, const struct ww_rl_step_result *x)
{
	enum { HEAD_EVERY = 20 };
	struct activity a = activity_of(p, r->seconds);
	const int64_t n = p->seen.episodes;
	if (p->rows++ % HEAD_EVERY == 0)
		ww_train_say(p->hooks,
			"      step reward correct faster turns entropy explained tokens/s verdicts/s generate learn judge idle "
			"seconds");
	ww_train_say(p->hooks,
		"%4" PRId64 "/%-5" PRId64 " %6.3f %7.2f %6.2f %5.1f %7.3f %9.2f %8.0f %10.2f %7.0f%% %4.0f%% %4.0f%% %3.0f%% "
		"%7.1f",
		r->step, r->steps, x->reward, 1 - ww_share_of(p->seen.milestones[0], n), ww_share_of(p->seen.milestones[3], n),
		n ? (double)p->seen.turns / (double)n : 0, x->entropy, x->explained, (double)r->tokens / fmax(r->seconds, 1e-9),
		a.verdicts, 100 * a.generating / a.seconds, 100 * a.learning / a.seconds, 100 * a.judging / a.seconds,
		100 * a.idle / a.seconds, r->seconds);
}

static enum ww_rc save(struct ppo *p, struct ww_err *err)
{
	struct ww_trained t = trained(p);
	if (p->saved_step == p->state.step)
		return WW_OK;
	ww_train_stage(p->hooks, "writing a checkpoint");
	WW_CHECK(ww_run_dir_sync(&p->dir, err));
	p->state.stage = json_pack("{s:f, s:I, s:I, s:I}", "first_reward", p->first_reward, "low_entropy",
		(json_int_t)p->low_entropy, "low_reward", (json_int_t)p->low_reward, "many_invalid",
		(json_int_t)p->many_invalid);
	if (p->rollout.curriculum)
		json_object_set_new(p->state.stage, "curriculum", ww_curriculum_save(p->rollout.curriculum));
	enum ww_rc rc = ww_checkpoint_save(p->o->output, &t, &p->state, p->o->keep_checkpoints, err);
	json_decref(p->state.stage);
	p->state.stage = NULL;
	if (rc != WW_OK)
		return rc;
	p->saved_step = p->state.step;
	ww_checkpoint_path(p->o->output, p->state.step, p->out->checkpoint);
	return WW_OK;
}

/* Signs of a collapse, in STOP_AFTER steps in a row. */
static enum ww_rc check_collapse(struct ppo *p, const struct ww_rl_step_result *x, struct ww_err *err)
{
	const struct ww_recipe *o = p->o;
	double invalid = ww_share_of(p->seen.invalid, p->seen.calls);
	p->first_reward = p->state.step == 1 ? x->reward : p->first_reward;
	p->low_entropy = x->entropy < o->stop_entropy ? p->low_entropy + 1 : 0;
	p->low_reward = o->stop_reward > 0 && x->reward < p->first_reward - o->stop_reward ? p->low_reward + 1 : 0;
	p->many_invalid = o->stop_invalid > 0 && invalid > o->stop_invalid ? p->many_invalid + 1 : 0;
	const struct {
		int64_t steps;
		const char *what;
		double bound;
	} signs[] = { { p->low_entropy, "entropy of the last %d steps lay below", o->stop_entropy },
		{ p->low_reward, "reward of the last %d steps lay below", p->first_reward - o->stop_reward },
		{ p->many_invalid, "share of invalid calls of the last %d steps lay above", o->stop_invalid } };
	for (size_t i = 0; i < WW_ARRAY_LEN(signs); i++) {
		char what[80];
		if (signs[i].steps < STOP_AFTER)
			continue;
		WW_CHECK(save(p, err));
		snprintf(what, sizeof(what), signs[i].what, STOP_AFTER);
		return ww_err_set(err, WW_ERR_LIMIT,
			"stopped after step %" PRId64 ": the %s %.3g; a lower lr may help, from an earlier checkpoint",
			p->state.step, what, signs[i].bound);
	}
	return WW_OK;
}

static enum ww_rc learn(struct ppo *p, struct ww_rl_step_result *x, struct ww_err *err)
{
	struct ww_rl_step_opts o = step_opts(p, p->state.step + 1);
	uint64_t start = ww_now_ns();
	ww_train_stage(p->hooks, "learning from %" PRId64 " episodes", p->o->episodes);
	ww_engine_pause(p->engine);
	enum ww_rc rc = ww_share_step(&p->share, p->hooks->interrupted, err);
	if (rc == WW_OK)
		rc = ww_rl_step(&o, p->policy, p->critic, p->t, p->group, p->o->episodes, x, err);
	ww_share_rest(&p->share);
	if (rc == WW_OK)
		rc = ww_engine_resume(p->engine, err);
	p->learning_s = ww_seconds_since(start);
	return rc;
}

static enum ww_rc one_step(struct ppo *p, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	struct ww_train_step r = { .step = p->state.step + 1, .steps = p->steps };
	struct ww_rl_step_result x;
	enum ww_rc rc;
	if ((rc = sample(p, r.step, err)) != WW_OK || (rc = check_sampled(p, err)) != WW_OK ||
		(rc = learn(p, &x, err)) != WW_OK)
		return rc == WW_ERR_INTERRUPTED ? rc : ww_err_wrap(err, "step %" PRId64, r.step);
	if (p->rollout.curriculum)
		ww_curriculum_commit(p->rollout.curriculum);
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
	WW_CHECK(write_log(p, &r, &x, err));
	say_step(p, &r, &x);
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
	ww_learner_free(p->reference);
	ww_learner_free(p->policy);
	ww_model_free(p->critic_m);
	ww_model_free(p->reference_m);
	ww_model_free(p->policy_m);
	for (int64_t i = 0; p->t && i < p->o->episodes; i++)
		ww_trajectory_release(&p->t[i]);
	free(p->t);
	free(p->group);
	ww_observed_release(&p->seen);
	pthread_mutex_destroy(&p->rollout.lock);
	for (int64_t i = 0; i < p->rollout.n_tasks; i++)
		free(p->rollout.tasks[i]);
	free(p->rollout.tasks);
	free(p->rollout.drawn);
	json_decref(p->rollout.too_long);
	ww_curriculum_free(p->rollout.curriculum);
	ww_tok_free(p->tok);
	ww_share_close(&p->share);
	ww_dev_close(p->dev);
	ww_run_dir_close(&p->dir);
}

static void begin(struct ppo *p)
{
	const struct ww_recipe *o = p->o;
	p->rollout = (struct ww_rollout){ .o = o,
		.judges = p->judges,
		.hooks = p->hooks,
		.name = is_agentic(o) ? "model:agentic" : "model:ppo",
		.loop = is_agentic(o) ? WW_LOOP_AGENT : WW_LOOP_SINGLE,
		.turns = is_agentic(o) ? (int)o->turns : 1,
		.lock = PTHREAD_MUTEX_INITIALIZER };
}

static enum ww_rc open_sampling(struct ppo *p, struct ww_err *err)
{
	WW_CHECK(check_recipe(p->o, err));
	WW_CHECK(open_tasks(p, err));
	WW_CHECK(check_tasks(p, err));
	WW_CHECK(open_model(p, err));
	p->rollout.context = p->context;
	p->rollout.vocab = p->config.vocab_size;
	p->rollout.prompt = ww_prompt_of(p->settings.prompt);
	return open_memory(p, err);
}

enum ww_rc ww_ppo_sample(const struct ww_recipe *o, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_err *err)
{
	struct ww_train_result ignored = { 0 };
	struct ppo p = {
		.o = o, .judges = judges, .hooks = hooks, .out = &ignored, .dir = WW_RUN_DIR_INIT, .share = WW_SHARE_INIT
	};
	enum ww_rc rc;
	begin(&p);
	WW_TRY(open_sampling(&p, err));
	WW_TRY(ww_run_dir_open(&p.dir, o->output, err));
	ww_train_stage(hooks, "loading the model");
	WW_TRY(ww_model_open(o->model, p.dev, p.dtype, &p.policy_m, err));
	WW_TRY(ww_engine_adopt(&(struct ww_engine_opts){ .limits = p.limits }, p.policy_m, p.tok, &p.engine, err));
	p.rollout.engine = p.engine;
	WW_TRY(ww_rollout_fill(&p.rollout, 1, 1, 0, err));
	ww_train_say(hooks, "sampled %" PRId64 " of %" PRId64 " episodes", p.rollout.sampled, o->episodes);
out:
	release(&p);
	return rc;
}

enum ww_rc ww_ppo_run(const struct ww_recipe *o, const json_t *values, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err)
{
	struct ppo p = {
		.o = o, .judges = judges, .hooks = hooks, .out = out, .dir = WW_RUN_DIR_INIT, .share = WW_SHARE_INIT
	};
	json_t *own = NULL;
	enum ww_rc rc;
	memset(out, 0, sizeof(*out));
	begin(&p);
	WW_TRY(open_sampling(&p, err));
	WW_TRY(WW_NEW(p.t, o->episodes, err));
	WW_TRY(WW_NEW(p.group, o->episodes, err));
	WW_TRY(ww_run_dir_open(&p.dir, o->output, err));
	if (!(own = description(&p)))
		WW_TRY(ww_nomem(err));
	WW_TRY(ww_run_dir_describe(&p.dir, values, p.dev, o->other_arithmetic, own, err));
	WW_TRY(ww_share_open(&p.share, p.dev->id, err));
	WW_TRY(open_curriculum(&p, err));
	WW_TRY(open_state(&p, err));
	WW_TRY(ww_run_dir_open_log(&p.dir, p.state.log_bytes, err));
	WW_TRY(loop(&p, err));
out:
	json_decref(own);
	release(&p);
	return rc;
}
