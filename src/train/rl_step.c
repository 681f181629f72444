/* rl_step.c - see rl_step.h. */
#include "train/rl_step.h"
#include "train/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step {
	const struct ww_rl_step_opts *o;
	struct ww_learner *policy, *critic;
	const struct ww_trajectory *t;
	int64_t n;
	int64_t *starts; /* (n + 1) own tokens before each episode */
	float *reward;   /* (n) */
	/* (own) */
	float *recorded, *old, *reference, *value, *advantage, *target, *weight, *entropy;
	struct ww_micro micro;
	struct ww_rl_step_result *out;
};

/* ---- batches */

/* Inputs of an episode: all up to the one that predicts its last own token. */
static int64_t inputs_of(const struct ww_trajectory *t)
{
	int64_t n = t->n;
	while (n && !t->own[n - 1])
		n--;
	return t->own_n ? n - 1 : 0;
}

/* Episodes from `first` on, as many as fit, at least one; the end. */
static int64_t fill(struct step *s, int64_t first, int64_t end)
{
	struct ww_micro *m = &s->micro;
	m->t = m->sequences = m->learned = 0;
	for (; first < end && (!m->t || m->t + inputs_of(&s->t[first]) <= m->max_t); first++) {
		int64_t n = inputs_of(&s->t[first]);
		if (!n)
			continue;
		m->starts[m->sequences++] = (int32_t)m->t;
		memcpy(m->ids + m->t, s->t[first].ids, (size_t)n * sizeof(*m->ids));
		ww_trajectory_rows(&s->t[first], m->t, m->rows + m->learned, m->targets + m->learned, NULL);
		m->learned += s->t[first].own_n;
		m->t += n;
	}
	m->starts[m->sequences] = (int32_t)m->t;
	return first;
}

static struct ww_batch batch_of(const struct ww_micro *m)
{
	return (struct ww_batch){
		.ids = m->ids, .starts = m->starts, .t = m->t, .sequences = m->sequences, .rows = m->rows, .n_rows = m->learned
	};
}

/* A learner's outputs (log-probabilities or values) for all own tokens. */
static enum ww_rc look(struct step *s, struct ww_learner *l, float *out, struct ww_err *err)
{
	for (int64_t first = 0, end; first < s->n; first = end) {
		end = fill(s, first, s->n);
		struct ww_batch b = batch_of(&s->micro);
		if (b.t)
			WW_CHECK(ww_learner_look(l, &b, s->micro.targets, out + s->starts[first], err));
	}
	return WW_OK;
}

/* ---- losses of a batch, whose own tokens begin at `at` */

struct part {
	struct step *s;
	int64_t at;
	double policy, value; /* sums of losses */
	int is_first;         /* epoch */
};

static enum ww_rc policy_loss(void *ctx, const float *logp, float *d, int64_t n, struct ww_err *err)
{
	struct part *p = ctx;
	struct step *s = p->s;
	struct ww_rl_tokens k = { s->weight + p->at, s->advantage + p->at, s->old + p->at, s->recorded + p->at,
		s->reference + p->at, n };
	p->policy += ww_rl_policy_loss(&s->o->clip, &k, logp, d, &s->out->ratios);
	(void)err;
	return WW_OK;
}

static enum ww_rc value_loss(void *ctx, const float *value, float *d, int64_t n, struct ww_err *err)
{
	struct part *p = ctx;
	struct step *s = p->s;
	p->value += ww_rl_value_loss(s->weight + p->at, s->target + p->at, value, n, d);
	(void)err;
	return WW_OK;
}

/* All ratios are 1 and the log-probabilities those that were recorded, so the derivative is known beforehand. */
static enum ww_rc add_fresh(struct part *p, const struct ww_batch *b, struct ww_err *err)
{
	struct step *s = p->s;
	struct ww_rl_tokens k = { s->weight + p->at, s->advantage + p->at, s->recorded + p->at, s->recorded + p->at,
		s->reference + p->at, b->n_rows };
	const float *logp;
	float *d = s->micro.weight;
	ww_rl_policy_loss(&s->o->clip, &k, s->recorded + p->at, d, NULL);
	WW_CHECK(ww_learner_add_targets(s->policy, b, s->micro.targets, d, &logp, err));
	WW_CHECK(policy_loss(p, logp, d, b->n_rows, err));
	return s->out->ratios.log_max == 0
		? WW_OK
		: ww_err_set(err, WW_ERR_USAGE,
			  "a token's recorded log-probability differs by %g from training's: other weights or another arithmetic "
			  "sampled the episodes; sample them again, or set truncate",
			  s->out->ratios.log_max);
}

static int is_fresh(const struct step *s)
{
	return s->o->fresh && s->o->epochs == 1 && !s->o->minibatch && ww_learner_model(s->policy)->dev->exact &&
		s->o->clip.truncate <= 0;
}

static enum ww_rc add_policy(struct part *p, struct ww_batch *b, struct ww_err *err)
{
	struct step *s = p->s;
	struct ww_loss loss = { policy_loss, p };
	b->entropy = p->is_first;
	WW_CHECK(is_fresh(s) ? add_fresh(p, b, err) : ww_learner_add(s->policy, b, s->micro.targets, &loss, err));
	return p->is_first ? ww_learner_entropy(s->policy, s->entropy + p->at, err) : WW_OK;
}

/* Gradients of the episodes first..end-1 and an update of each. */
static enum ww_rc update(struct step *s, int64_t first, int64_t end, int is_first, struct ww_err *err)
{
	struct part p = { s, 0, 0, 0, is_first };
	struct ww_rl_set set = { s->starts + first, end - first };
	int with_policy = s->policy && s->o->lr > 0, with_critic = s->critic && s->o->critic_lr > 0;
	if (s->starts[first] == s->starts[end])
		return WW_OK;
	ww_rl_weights(&set, s->o->mean, s->weight + s->starts[first]);
	for (int side = 0; side < 2; side++) /* all of the policy's batches, then all of the critic's: each is bound once */
		for (int64_t from = first, to; from < end && (side ? with_critic : with_policy); from = to) {
			to = fill(s, from, end);
			struct ww_batch b = batch_of(&s->micro);
			struct ww_loss value = { value_loss, &p };
			p.at = s->starts[from];
			if (b.t)
				WW_CHECK(side ? ww_learner_add(s->critic, &b, NULL, &value, err) : add_policy(&p, &b, err));
		}
	if (with_policy)
		WW_CHECK(ww_learner_update(s->policy, s->o->lr, &s->out->norm, err));
	if (with_critic)
		WW_CHECK(ww_learner_update(s->critic, s->o->critic_lr, &s->out->critic_norm, err));
	if (is_first) {
		double share = (double)(s->starts[end] - s->starts[first]) / (double)s->starts[s->n];
		s->out->policy_loss += share * p.policy;
		s->out->value_loss += share * p.value;
	}
	return WW_OK;
}

/* ---- a step */

static enum ww_rc gather(struct step *s, struct ww_err *err)
{
	int64_t longest = ww_learner_max_tokens(s->policy ? s->policy : s->critic);
	double sum = 0;
	s->starts[0] = 0;
	for (int64_t e = 0; e < s->n; e++) {
		if (inputs_of(&s->t[e]) > longest)
			return ww_err_set(err, WW_ERR_LIMIT, "an episode has %lld tokens, the workspace %lld",
				(long long)inputs_of(&s->t[e]), (long long)longest);
		s->starts[e + 1] = s->starts[e] + s->t[e].own_n;
		s->reward[e] = (float)s->t[e].reward;
		s->out->episodes += s->t[e].own_n > 0;
		s->out->tokens += inputs_of(&s->t[e]);
		sum += s->t[e].reward;
	}
	s->out->own_tokens = s->starts[s->n];
	s->out->reward = s->n ? sum / (double)s->n : NAN;
	return ww_micro_init(&s->micro, longest, err);
}

/* How much of the reward's variance the values explain, over all own tokens and at each episode's middle one. */
static enum ww_rc explain(struct step *s, struct ww_err *err)
{
	int64_t n = s->starts[s->n], k = 0;
	ww_auto_free float *room = malloc((size_t)(n + 2 * s->n + 1) * sizeof(*room));
	if (!room)
		return ww_nomem(err);
	float *middle = room + n, *value = middle + s->n;
	for (int64_t e = 0; e < s->n; e++) {
		for (int64_t i = s->starts[e]; i < s->starts[e + 1]; i++)
			room[i] = s->reward[e];
		if (s->t[e].own_n) {
			middle[k] = s->reward[e];
			value[k++] = s->value[(s->starts[e] + s->starts[e + 1]) / 2];
		}
	}
	s->out->explained = ww_rl_explained(room, s->value, n);
	s->out->explained_middle = ww_rl_explained(middle, value, k);
	return WW_OK;
}

static enum ww_rc prepare(struct step *s, const int64_t *group, struct ww_err *err)
{
	struct ww_rl_set set = { s->starts, s->n };
	for (int64_t e = 0; e < s->n; e++)
		ww_trajectory_rows(&s->t[e], 0, NULL, NULL, s->recorded + s->starts[e]);
	memcpy(s->old, s->recorded, (size_t)s->starts[s->n] * sizeof(*s->old));
	if (s->o->clip.truncate > 0 && s->policy)
		WW_CHECK(look(s, s->policy, s->old, err));
	if (s->o->clip.kl > 0 && s->policy)
		WW_CHECK(look(s, s->o->reference, s->reference, err));
	if (!s->critic) {
		ww_rl_group_advantages(
			&set, s->o->advantage == WW_RL_BY_RLOO ? WW_RL_RLOO : WW_RL_GRPO, group, s->reward, s->advantage);
		return WW_OK;
	}
	WW_CHECK(look(s, s->critic, s->value, err));
	ww_rl_gae(&set, &s->o->policy_gae, s->reward, s->value, s->advantage, NULL);
	ww_rl_gae(&set, &s->o->critic_gae, s->reward, s->value, NULL, s->target);
	return explain(s, err);
}

static enum ww_rc run(struct step *s, const int64_t *group, struct ww_err *err)
{
	struct ww_rl_set set = { s->starts, s->n };
	int64_t each = s->o->minibatch ? s->o->minibatch : s->n;
	if (group)
		s->out->spread = ww_rl_spread_of(group, s->reward, s->n);
	WW_CHECK(prepare(s, group, err));
	for (int64_t epoch = 0; epoch < s->o->epochs; epoch++)
		for (int64_t first = 0; first < s->n; first += each)
			WW_CHECK(update(s, first, first + each < s->n ? first + each : s->n, epoch == 0, err));
	ww_rl_weights(&set, s->o->mean, s->weight);
	for (int64_t i = 0; i < s->starts[s->n]; i++)
		s->out->entropy += (double)s->weight[i] * (double)s->entropy[i];
	return WW_OK;
}

enum ww_rc ww_rl_step(const struct ww_rl_step_opts *o, struct ww_learner *policy, struct ww_learner *critic,
	const struct ww_trajectory *t, const int64_t *group, int64_t n, struct ww_rl_step_result *out, struct ww_err *err)
{
	struct step s = { .o = o, .policy = policy, .critic = critic, .t = t, .n = n, .out = out };
	int64_t own = 0;
	float *room = NULL,
		  **parts[] = { &s.recorded, &s.old, &s.reference, &s.value, &s.advantage, &s.target, &s.weight, &s.entropy };
	enum ww_rc rc;
	*out = (struct ww_rl_step_result){
		.explained = NAN, .explained_middle = NAN, .norm = NAN, .critic_norm = NAN, .spread = { .within = NAN }
	};
	WW_BUG((o->advantage == WW_RL_BY_CRITIC) != !!critic || (!policy && !critic) || (o->clip.kl > 0 && !o->reference));
	for (int64_t e = 0; e < n; e++)
		own += t[e].own_n;
	WW_TRY(WW_NEW(s.starts, n + 1, err));
	WW_TRY(WW_NEW(s.reward, n + 1, err));
	WW_TRY(WW_NEW(room, own * (int64_t)WW_ARRAY_LEN(parts) + 1, err));
	for (size_t i = 0; i < WW_ARRAY_LEN(parts); i++)
		*parts[i] = room + (int64_t)i * own;
	WW_TRY(gather(&s, err));
	if (own)
		WW_TRY(run(&s, group, err));
out:
	ww_micro_release(&s.micro);
	free(s.starts);
	free(s.reward);
	free(room);
	return rc;
}
