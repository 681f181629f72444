/* policy.h - policies: the planner, models and replays that write the next message of an episode.
 *
 * The agent's loop sees a policy only through struct ww_policy_ops: all messages so far go in, one assistant message
 * comes out, with its tokens and log-probabilities where the policy has them.  A policy has no state besides the
 * messages: given the same messages (and seed) a fresh instance must be able to continue, so that an interrupted
 * episode can be resumed and a recorded one replayed.
 */
#pragma once

#include "episode/message.h"

#include <jansson.h>

/* The accounts of a policy whose calls cost something: it asks before each attempt, and reports attempts without a
 * reply; the cost of a reply is in the reply. */
struct ww_meter {
	void *ctx;
	/* A call is about to be made that costs at most so much.  Waits while calls of others may use up what is left.
	 * WW_ERR_LIMIT: nothing is left. */
	int (*begin)(void *ctx, double max_usd, int64_t max_tokens, struct ww_err *err);
	/* The call failed after so much had been used.  Durable when it returns. */
	int (*lost)(
		void *ctx, double usd, int64_t prompt_tokens, int64_t completion_tokens, const char *why, struct ww_err *err);
};

/* One question to a policy: the conversation so far, and on what terms. */
struct ww_ask {
	const struct ww_message *msgs;
	size_t n;
	const struct ww_tool_spec *tools;
	size_t n_tools;
	int tools_are_told; /* the system message says what they are: a prompt of ours does not say it again */
	int64_t max_tokens; /* of the reply, 0: as many as the policy likes */
	/* Where the raw reply is kept while it arrives.  A file left there by a killed process is used instead of asking
	 * again; the caller removes it when the reply is recorded.  May be NULL. */
	const char *journal;
	const struct ww_meter *meter;    /* may be NULL */
	const volatile int *interrupted; /* looked at during long work; may be NULL */
};

struct ww_policy {
	const struct ww_policy_ops *ops;
};

struct ww_policy_ops {
	const char *name; /* "planner" */
	/* The next assistant message after ask->msgs[0..n-1]; fills *out (zeroed by the caller), which the caller releases.
	 * A reply without tool calls ends the episode. */
	int (*next)(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err);
	/* Tokens that the messages take at most, 0 where the policy does not count in tokens. */
	int64_t (*count_tokens)(struct ww_policy *self, const struct ww_message *msgs, size_t n);
	void (*free)(struct ww_policy *self);
	/* The most tokens that a question and its reply may have together, 0 where that is not known.  May be NULL: not
	 * known. */
	int64_t (*context_tokens)(struct ww_policy *self);
	/* The prompt that it was trained with, "full" or "compact"; NULL or "": it does not say.  May be NULL. */
	const char *(*prompt)(struct ww_policy *self);
};

/* The policies.  Each returns 0 and a policy, or an error that says what is wrong. */
/* how: NULL, or "no-algebra" (docs/planner.md, "Algebra"). */
int ww_planner_new(const char *how, struct ww_policy **out, struct ww_err *err);
/* The planner behind a model that was trained with the compact prompt: the model's first answer is the first trial.
 * Takes the model over where it succeeds. */
int ww_planner_over(struct ww_policy *model, struct ww_policy **out, struct ww_err *err);
/* What the planner decided and why (planner/explain.c) in the solution of these texts, from the conversation in which
 * it wrote it: a new reference.  NULL: none of its trials wrote them. */
int ww_planner_explain(const char *how, const struct ww_message *msgs, size_t n, const char *device_text,
	const char *plan_text, json_t **out, struct ww_err *err);
int ww_replay_new(const char *episode_path, struct ww_policy **out, struct ww_err *err);

/* Zero means the default of each. */
struct ww_policy_opts {
	const char *spec; /* what stands after --policy */
	uint64_t seed;
	const char *base_url;             /* of an HTTP policy; else its environment variable, else the provider's own */
	const char *prices;               /* file of prices that go before the built-in ones (src/policy/prices.txt) */
	const char *effort;               /* reasoning effort, in the provider's words; NULL: its default */
	int need_price;                   /* an HTTP policy whose price is not known is an error */
	int64_t max_reply_tokens;         /* 32,768 */
	int64_t model_batch, model_cache; /* of model:DIR: replies at a time, tokens held; chosen by the device */
	double call_s;                    /* one attempt takes at most so long: 1,800 s */
	double stall_s;   /* and so long without a byte: 600 s, since some servers send none while a model thinks */
	double backoff_s; /* first wait before a repetition: 0.5 s */
	int attempts;     /* in all: 8 */
};
int ww_policy_open(const struct ww_policy_opts *opts, struct ww_policy **out, struct ww_err *err);
/* Move the keys of HTTP policies out of the environment into private memory, so that no child inherits them and /proc
 * does not show them.  The first thing that main() does; later calls do nothing. */
void ww_policy_hide_keys(void);
