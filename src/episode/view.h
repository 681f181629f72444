/* view.h - an episode as text, as a page, as a conversation for training, and many of them as a table. */
#pragma once

#include "base/str.h"

#include "episode/episode.h"

struct ww_episode_show {
	int color, full; /* full: shorten nothing */
};
/* For a terminal: no control characters but the colours, which `color` asks for. */
void ww_episode_text(const struct ww_episode *e, const struct ww_episode_show *how, struct ww_str *out);
/* The page of one episode: table, curve, conversation (src/page/page.h). */
void ww_episode_html(const struct ww_episode *e, struct ww_str *out);
/* The page of a run of one or more episodes of one task: module, table, search, graph, kernels, how it was made. */
struct ww_episode_run {
	const struct ww_episode *episodes;
	size_t n;                /* at least 1 */
	const json_t *verdict;   /* of the best solution (verdict.json); NULL: none is correct */
	const char *source;      /* text of the task; NULL: unknown */
	const json_t *explained; /* explain.json (docs/optimize.md, "Why"); NULL: there is none */
};
void ww_episode_run_html(const struct ww_episode_run *r, struct ww_str *out);

/* The verdict that answers a call; NULL: the call asked for none. */
const struct ww_episode_verdict *ww_episode_verdict_of(const struct ww_episode *e, const char *call_id);
/* The next verdict, from *at on, that a process in the policy's shell asked for during this call; NULL: no more. */
const struct ww_episode_verdict *ww_episode_verdict_inside(const struct ww_episode *e, const char *call_id, size_t *at);
/* The tool that asked for it: "compile" or "verify". */
const char *ww_episode_asked(const struct ww_episode_verdict *v);
/* The tool calls of processes in the shell that a tool message records: [{"id", "name", ...}], a new reference; NULL:
 * none. */
json_t *ww_episode_calls_inside(const struct ww_message *answer);
/* "ok, 120.0 us, 1.67x eager, reward 3 (disturbed)" of a verdict's object; one clean line. */
void ww_episode_verdict_line(const json_t *verdict, struct ww_str *out);
/* Tokens, USD and GPU seconds of the whole episode, lost calls included. */
struct ww_episode_use {
	double usd, gpu_s;
	int64_t prompt_tokens, completion_tokens;
};
struct ww_episode_use ww_episode_use_of(const struct ww_episode *e);

/* {"messages": [...], "tools": [...], "task", "target", "policy", "reward_final", ...}: a conversation as Hugging Face
 * datasets, TRL and chat templates read it, and `train`.  flags: arguments of calls as the policy wrote them and not as
 * objects; replies without their tokens.  NULL out of memory. */
enum { WW_EPISODE_TEXT_ARGUMENTS = 1, WW_EPISODE_NO_TOKENS = 2 };
json_t *ww_episode_to_chat(const struct ww_episode *e, int flags);
/* {"ids", "context_at", "context", "logprobs", "sampling_logprobs"} of a reply: its tokens as they were sampled, and
 * those before it; lists that it lacks are left out.  Owned by the caller. */
json_t *ww_episode_tokens(const struct ww_reply *r);

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

struct ww_episode_stats;
struct ww_episode_stats *ww_episode_stats_new(void); /* NULL: out of memory */
void ww_episode_stats_free(struct ww_episode_stats *s);
/* WW_ERR_NOMEM is the only failure. */
int ww_episode_stats_add(struct ww_episode_stats *s, const struct ww_episode *e, struct ww_err *err);
/* Groups by policy and target, and their sum. */
json_t *ww_episode_stats_json(const struct ww_episode_stats *s);
void ww_episode_stats_text(const struct ww_episode_stats *s, struct ww_str *out);
