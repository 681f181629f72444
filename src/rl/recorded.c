/* recorded.c - see recorded.h. */
#include "rl/recorded.h"

#include <string.h>

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

enum ww_rc ww_rl_recorded(const struct ww_episode *e, struct ww_trajectory *out, struct ww_err *err)
{
	struct ww_trajectory size = { 0 };
	if (!e->ended)
		return ww_err_set(err, WW_ERR_USAGE, "the episode has not ended");
	WW_CHECK(add_replies(&size, e, err));
	WW_CHECK(ww_trajectory_init(out, size.n, err));
	enum ww_rc rc = add_replies(out, e, err);
	out->reward = e->end.reward_final;
	return rc;
}
