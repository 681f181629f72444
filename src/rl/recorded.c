/* recorded.c - see recorded.h. */
#include "rl/recorded.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "judge/verdict.h"
#include "task/held_out.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_REWARD = -1, MAX_REWARD = 3 };

/* A log-probability that a model can have given; one NaN makes NaN of all weights. */
static int are_logprobs(const float *logp, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(logp[i]) || logp[i] > 1e-3f) /* rounding of a sum of exponentials */
			return 0;
	return 1;
}

/* The next reply's context and tokens behind the first t->n ones; only measured where there is no room yet. */
static enum ww_rc add_reply(struct ww_trajectory *t, const struct ww_reply *r, int turn, struct ww_err *err)
{
	if (!r->context_ids || !r->logprobs)
		return ww_err_set(err, WW_ERR_USAGE,
			"turn %d: the tokens before the reply, or its log-probabilities, were not recorded; sample with model:DIR",
			turn);
	if (r->context_at != t->n || (!t->n && !r->n_context))
		return ww_err_set(err, WW_ERR_USAGE,
			"turn %d: the policy was shown other tokens than before; record with --no-compaction", turn);
	if (!are_logprobs(r->logprobs, r->n_tokens))
		return ww_err_set(err, WW_ERR_PROTOCOL,
			"turn %d: a log-probability is no number up to 0; the record is damaged or was changed", turn);
	if (t->ids) {
		memcpy(t->ids + t->n, r->context_ids, r->n_context * sizeof(*t->ids));
		memcpy(t->ids + t->n + r->n_context, r->token_ids, r->n_tokens * sizeof(*t->ids));
		memset(t->own + t->n + r->n_context, 1, r->n_tokens);
		memcpy(t->logp + t->n + r->n_context, r->logprobs, r->n_tokens * sizeof(*t->logp));
	}
	t->n += (int64_t)(r->n_context + r->n_tokens);
	t->own_n += (int64_t)r->n_tokens;
	return WW_OK;
}

static enum ww_rc add_replies(struct ww_trajectory *t, const struct ww_episode *e, struct ww_err *err)
{
	t->n = t->own_n = 0;
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_reply *r = &e->messages[i].reply;
		if (r->message.role == WW_ROLE_ASSISTANT && r->n_tokens)
			WW_CHECK(add_reply(t, r, e->messages[i].turn, err));
	}
	return WW_OK;
}

enum ww_rl_reward ww_rl_reward_of(const char *name)
{
	return strcmp(name, "speedup") ? WW_RL_REWARD_MILESTONE : WW_RL_REWARD_SPEEDUP;
}

/* The closing verdict (of several, made again since it was disturbed, the last), or where the device's budget allowed
 * none the newest correct one; NULL: none. */
static const json_t *verdict_of(const struct ww_episode *e)
{
	const json_t *newest = NULL;
	for (size_t i = e->n_verdicts; i-- > 0;) {
		if (!strcmp(e->verdicts[i].call_id, "final"))
			return e->verdicts[i].verdict;
		if (!newest && ww_json_bool(e->verdicts[i].verdict, "correct", 0))
			newest = e->verdicts[i].verdict;
	}
	return newest;
}

static enum ww_rc speedup_of(const struct ww_episode *e, double *out, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	const json_t *verdict = verdict_of(e);
	ww_verdict_init(&v);
	*out = -1;
	if (e->end.reward_final < 0 || !verdict)
		return WW_OK;
	WW_CHECK(ww_verdict_from_json(verdict, &v, err));
	*out = ww_verdict_speedup_reward(&v);
	return isfinite(*out) ? WW_OK
						  : ww_err_set(err, WW_ERR_USAGE,
								"the closing verdict has no times to take a speed-up from; sample the episodes with "
								"reward: speedup");
}

enum ww_rc ww_rl_recorded(
	const struct ww_episode *e, enum ww_rl_reward reward, struct ww_trajectory *out, struct ww_err *err)
{
	double earned = e->end.reward_final;
	struct ww_trajectory size = { 0 };
	if (!e->ended)
		return ww_err_set(err, WW_ERR_USAGE, "the episode has not ended");
	if (!(earned >= MIN_REWARD && earned <= MAX_REWARD))
		return ww_err_set(err, WW_ERR_PROTOCOL, "its reward is %g, and no verdict has one beyond %d to %d", earned,
			MIN_REWARD, MAX_REWARD);
	if (reward == WW_RL_REWARD_SPEEDUP)
		WW_CHECK(speedup_of(e, &earned, err));
	WW_CHECK(add_replies(&size, e, err));
	WW_CHECK(ww_trajectory_init(out, size.n, err));
	enum ww_rc rc = add_replies(out, e, err);
	out->reward = earned;
	return rc;
}

/* ---- sets of episodes */

void ww_recorded_set_release(struct ww_recorded_set *s)
{
	for (int64_t i = 0; i < s->n; i++)
		ww_trajectory_release(&s->t[i]);
	free(s->t);
	*s = (struct ww_recorded_set){ 0 };
}

static void add_hash(struct ww_recorded_set *s, const struct ww_trajectory *t)
{
	struct ww_hash_part parts[] = { { s->hash, strlen(s->hash) }, { t->ids, (size_t)t->n * sizeof(*t->ids) },
		{ t->own, (size_t)t->n }, { t->logp, (size_t)t->n * sizeof(*t->logp) }, { &t->reward, sizeof(t->reward) } };
	char hash[WW_HASH_HEX];
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), hash);
	memcpy(s->hash, hash, sizeof(s->hash));
}

struct reader {
	struct ww_recorded_set *s;
	const struct ww_rl_read *o;
	struct ww_held_out *held_out; /* NULL: none */
};

static enum ww_rc is_kept(const struct reader *r, const struct ww_episode *e, int *keep, struct ww_err *err)
{
	const char *held = r->held_out ? ww_held_out_find(r->held_out, e->header.task_signature, e->header.task_id) : NULL;
	*keep = 1;
	if (held)
		return ww_err_set(err, WW_ERR_USAGE, "an episode of a held-out task (%s); remove it from the data", held);
	return r->o->keep ? r->o->keep(r->o->ctx, e, keep, err) : WW_OK;
}

static enum ww_rc read_one(const struct reader *r, const char *path, struct ww_err *err)
{
	struct ww_recorded_set *s = r->s;
	int keep = 1;
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	struct ww_err why = WW_ERR_INIT;
	WW_CHECK((enum ww_rc)ww_episode_read(path, &e, err));
	if (!WW_GROW(s->t, &s->cap, s->n + 1))
		return ww_nomem(err);
	enum ww_rc rc = ww_rl_recorded(&e, r->o->reward, &s->t[s->n], &why);
	if (rc == WW_OK && r->o->vocab && (rc = ww_trajectory_check(&s->t[s->n], r->o->vocab, err)) != WW_OK) {
		ww_trajectory_release(&s->t[s->n]);
		return ww_err_wrap(err, "%s", path);
	}
	if (rc == WW_OK && s->t[s->n].own_n && (is_kept(r, &e, &keep, err) != WW_OK || !keep)) {
		ww_trajectory_release(&s->t[s->n]);
		return keep ? ww_err_wrap(err, "%s", path) : WW_OK;
	}
	if (rc == WW_OK && s->t[s->n].own_n) {
		add_hash(s, &s->t[s->n++]);
		return WW_OK;
	}
	if (rc == WW_OK)
		ww_trajectory_release(&s->t[s->n]);
	s->passed_over++;
	if (rc == WW_OK || rc == WW_ERR_USAGE)
		return WW_OK;
	*err = why;
	return ww_err_wrap(err, "%s", path);
}

static enum ww_rc read_found(void *ctx, const char *path, struct ww_err *err)
{
	return strcmp(strrchr(path, '/'), "/episode.jsonl") ? WW_OK : read_one(ctx, path, err);
}

enum ww_rc ww_rl_recorded_read(
	const char *paths, const struct ww_rl_read *o, struct ww_recorded_set *out, struct ww_err *err)
{
	struct reader r = { .s = out, .o = o };
	char path[PATH_MAX];
	int part = 0;
	enum ww_rc rc = WW_OK;
	*out = (struct ww_recorded_set){ 0 };
	if (o->held_out)
		WW_CHECK(ww_held_out_open(&r.held_out, o->held_out, o->interrupted, err));
	while (rc == WW_OK && (part = ww_list_part(&paths, path, sizeof(path))) > 0)
		rc = ww_fs_is_dir(path) ? ww_fs_walk(path, read_found, &r, err) : read_one(&r, path, err);
	if (rc == WW_OK && part < 0)
		rc = ww_err_set(err, WW_ERR_USAGE, "a path in the data is too long");
	ww_held_out_free(r.held_out);
	return rc;
}
