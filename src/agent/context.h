/* context.h - how many tokens a policy's context holds, and which outputs are removed when it is full. */
#pragma once

#include "base/err.h"

#include "episode/episode.h"
#include "policy/policy.h"

/* Tokens that the provider counted for the first `upto` messages; later ones are estimated by the policy. */
struct ww_context {
	int64_t counted;
	size_t upto;
};

/* A reply came; the conversation now has n messages. */
void ww_context_note(struct ww_context *c, const struct ww_reply *r, size_t n);
/* Tokens of the whole conversation and of the tools' descriptions, 0 where the policy does not count in tokens. */
int64_t ww_context_tokens(const struct ww_context *c, struct ww_policy *p, const struct ww_message *msgs, size_t n,
	const struct ww_tool_spec *tools, size_t n_tools);

/* Choose outputs of tools, oldest first, until `tokens` are freed, none of the last two turns and none that is short.
 * *out is zeroed here and released with ww_context_release(); n_calls is 0 where nothing can be taken out. */
enum ww_rc ww_context_plan(const struct ww_message *msgs, size_t n, int64_t tokens, struct ww_episode_compaction *out,
	struct ww_err *err) WW_MUST_CHECK;
void ww_context_release(struct ww_episode_compaction *c);
/* Put a line in place of each output.  The same compaction gives the same bytes, so a resumed run goes on with the same
 * messages. */
enum ww_rc ww_context_apply(struct ww_context *c, struct ww_message *msgs, size_t n,
	const struct ww_episode_compaction *plan, struct ww_err *err) WW_MUST_CHECK;
