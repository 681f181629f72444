/* loop.c - messages in, one message out, tools in between, until something ends it.
 *
 * The state of a run is the list of its messages and nothing else: the turn is the number of assistant messages, what
 * is to do next follows from the last of them (calls without an answer first), the stop after repeated malformed calls
 * counts trailing answers, the workspace is what the answered calls that change files left.  Going on after a kill
 * therefore needs no code path of its own: read the lines, rebuild the workspace, take the next step.  A step is on
 * disk before the next begins, so at most one tool call is repeated; where its verdict was recorded already, the
 * recorded one is used.
 *
 * A policy's reply is durable three times: event by event in its journal while it arrives, as a line of the episode,
 * and only then is the journal removed and a call carried out.  What a call may cost is held in the budget while it is
 * under way.
 *
 * Rejected: a saved state beside the episode (a kill can leave the two different), and asking the policy again for a
 * reply that is recorded (it has been paid for).
 */
#include "agent/answers.h"
#include "agent/best.h"
#include "agent/compact.h"
#include "agent/extract.h"
#include "agent/loop.h"
#include "agent/prompt.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "judge/solution.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MALFORMED_MAX = 5, REPLY_ROOM_PARTS = 8 };

void ww_loop_tell(struct ww_agent_loop *l, struct ww_agent_event e)
{
	e.turn = l->turn;
	e.episode = l->opts->episode;
	e.seconds = ww_episode_seconds(l->episode);
	if (l->opts->on_event)
		l->opts->on_event(l->opts->event_ctx, &e);
}

int ww_loop_interrupted(const struct ww_agent_loop *l) { return l->opts->interrupted && *l->opts->interrupted; }

enum ww_rc ww_loop_stop_interrupted(struct ww_err *err) { return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted"); }

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Append `m` to the conversation, which then owns it; *m is zeroed. */
enum ww_rc ww_loop_keep(struct ww_agent_loop *l, struct ww_message *m, struct ww_err *err)
{
	if (!WW_GROW(l->msgs, &l->cap_msgs, l->n_msgs + 1))
		return ww_nomem(err);
	l->turn += m->role == WW_ROLE_ASSISTANT;
	l->msgs[l->n_msgs++] = *m;
	memset(m, 0, sizeof(*m));
	return WW_OK;
}

/* Record, then keep; the reply is released. */
static enum ww_rc say(struct ww_agent_loop *l, struct ww_reply *r, struct ww_err *err)
{
	int turn = l->turn + (r->message.role == WW_ROLE_ASSISTANT);
	enum ww_rc rc = (enum ww_rc)ww_episode_add_message(l->episode, turn, r, err);
	if (rc == WW_OK)
		rc = ww_loop_keep(l, &r->message, err);
	ww_reply_release(r);
	return rc;
}

enum ww_rc ww_loop_say_text(struct ww_agent_loop *l, enum ww_role role, char *text, struct ww_err *err)
{
	struct ww_reply r = { .message = { .role = role, .text = text } };
	return text ? say(l, &r, err) : ww_nomem(err);
}

static const struct ww_message *last_assistant(const struct ww_agent_loop *l)
{
	for (size_t i = l->n_msgs; i-- > 0;)
		if (l->msgs[i].role == WW_ROLE_ASSISTANT)
			return &l->msgs[i];
	return NULL;
}

/* The first call of the last assistant message that has no answer yet. */
static const struct ww_tool_call *pending_call(const struct ww_agent_loop *l)
{
	const struct ww_message *m = last_assistant(l);
	size_t answered = m ? l->n_msgs - 1 - (size_t)(m - l->msgs) : 0;
	return m && answered < m->n_calls ? &m->calls[answered] : NULL;
}

/* ---- Verdicts ---------------------------------------------------------------------------------------------------- */

/* A closing judgement with the call's time is a full one. */
static const char *const depth_names[] = { [WW_JUDGE_COMPILE] = "compile",
	[WW_JUDGE_VERIFY] = "verify",
	[WW_JUDGE_SANITIZE] = "sanitize",
	[WW_JUDGE_DECIDE] = "decide",
	[WW_JUDGE_BRIEF] = "brief",
	[WW_JUDGE_FULL] = "full",
	[WW_JUDGE_CALL] = "full" };

static int is_recorded(const struct ww_agent_loop *l, const char *id)
{
	for (size_t i = 0; i < l->n_recorded; i++)
		if (!strcmp(l->recorded[i], id))
			return 1;
	return 0;
}

enum ww_rc ww_loop_note_recorded(struct ww_agent_loop *l, const char *id, struct ww_err *err)
{
	void *bigger = realloc(l->recorded, (l->n_recorded + 1) * sizeof(*l->recorded));
	if (!bigger)
		return ww_nomem(err);
	l->recorded = bigger;
	memcpy(l->recorded[l->n_recorded++], id, 65);
	return WW_OK;
}

static enum ww_rc record_solution(struct ww_agent_loop *l, const struct ww_workspace_content *c, struct ww_err *err)
{
	if (is_recorded(l, c->id))
		return WW_OK;
	struct ww_episode_file files[WW_SOLUTION_MAX_FILES];
	const char *name, *text;
	size_t n = 0;
	for (; n < WW_SOLUTION_MAX_FILES && (name = ww_solution_file(&c->files, (int)n, &text)); n++)
		files[n] = (struct ww_episode_file){ (char *)(uintptr_t)name, (char *)(uintptr_t)text };
	enum ww_rc rc = (enum ww_rc)ww_episode_add_solution(l->episode, l->turn, c->id, files, n, err);
	return rc == WW_OK ? ww_loop_note_recorded(l, c->id, err) : rc;
}

static void spend_device(const struct ww_agent_loop *l, double s)
{
	if (l->opts->budget && !l->opts->judge.accounts)
		ww_budget_spend(l->opts->budget, &(struct ww_budget_use){ .gpu_s = s });
}

int ww_loop_device_is_spent(const struct ww_agent_loop *l)
{
	return l->opts->budget && ww_budget_device_is_spent(l->opts->budget);
}

/* WW_ERR_LIMIT with l->not_judged: the budget of device seconds is used up. */
enum ww_rc ww_loop_judge_now(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	enum ww_judge_depth depth, struct ww_verdict *v, json_t **data, struct ww_err *err)
{
	const enum ww_judge_depth made = l->opts->decide && depth > WW_JUDGE_DECIDE ? WW_JUDGE_DECIDE : depth;
	/* A closing judgement keeps its depth: opts->judge tells it from a verify by that. */
	const enum ww_judge_depth asked = depth == WW_JUDGE_CALL ? depth : made;
	WW_CHECK(record_solution(l, c, err));
	int is_spent = depth != WW_JUDGE_COMPILE && !l->beyond_budget && ww_loop_device_is_spent(l);
	enum ww_rc rc = is_spent ? ww_err_set(err, WW_ERR_LIMIT, "--max-gpu-seconds is used up: nothing more is judged")
							 : l->opts->judge.run(l->opts->judge.ctx, &c->files.solution, asked, v, err);
	l->not_judged = rc == WW_ERR_LIMIT && ww_loop_device_is_spent(l);
	WW_CHECK(rc);
	if (depth != WW_JUDGE_COMPILE && v->reward > l->measured_reward)
		l->measured_reward = v->reward;
	spend_device(l, ww_budget_gpu_s(v));
	memcpy(v->solution_id, c->id, sizeof(v->solution_id));
	if (!(*data = ww_verdict_to_json(v)))
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a verdict");
	return (enum ww_rc)ww_episode_add_verdict(l->episode, l->turn, call_id, c->id, depth_names[made], *data, err);
}

/* A verdict of opts->answers becomes one of this episode. */
static enum ww_rc take_verdict(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	struct ww_verdict *v, json_t **data, struct ww_err *err)
{
	const struct ww_episode_verdict *was = ww_answers_verdict(&l->answers, call_id, c->id);
	if (!was)
		return ww_err_set(err, WW_ERR_USAGE, "%s: no verdict is recorded for the call %s; name the answers of this run",
			l->opts->answers, call_id);
	WW_CHECK(record_solution(l, c, err));
	*data = json_incref(was->verdict);
	WW_CHECK((enum ww_rc)ww_episode_add_verdict(l->episode, l->turn, call_id, c->id, was->depth, was->verdict, err));
	return ww_verdict_from_json(was->verdict, v, err);
}

/* The verdict that is recorded for this call, in this episode or in opts->answers; else a new judgement. */
enum ww_rc ww_loop_judge_content(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	enum ww_judge_depth depth, struct ww_verdict *v, json_t **data, struct ww_err *err)
{
	const struct ww_episode_verdict *past = ww_answers_verdict(&l->past, call_id, c->id);
	if (!past)
		return l->opts->answers ? take_verdict(l, c, call_id, v, data, err)
								: ww_loop_judge_now(l, c, call_id, depth, v, data, err);
	*data = json_incref(past->verdict);
	return ww_verdict_from_json(past->verdict, v, err);
}

/* Newer verdicts about the best solution replace older ones; a better solution replaces the best. */
static enum ww_rc note_best(struct ww_agent_loop *l, const struct ww_workspace_content *c, const json_t *data,
	const struct ww_verdict *v, int is_recorded, int *is_best, struct ww_err *err)
{
	*is_best = 0;
	if (!ww_best_improves(l->result, v))
		return WW_OK;
	*is_best = 1;
	snprintf(l->measured_id, sizeof(l->measured_id), "%s", is_recorded ? "" : c->id);
	enum ww_rc rc = ww_best_note(l->result, c->id, data, err);
	return rc == WW_OK ? ww_best_store(l->opts->dir, c, data, err) : rc;
}

/* ---- Functions for tools ----------------------------------------------------------------------------------------- */

static enum ww_rc judge_for_tool(struct ww_tool_env *env, enum ww_judge_depth depth, struct ww_verdict *v,
	json_t **data, const char **missing, struct ww_err *err)
{
	struct ww_agent_loop *l = env->ctx;
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	int is_best = 0;
	ww_workspace_content_init(&c);
	WW_CHECK(ww_workspace_take(env->workspace, &c, missing, err));
	if (*missing)
		return WW_OK;
	int is_recorded = ww_answers_verdict(&l->past, env->call_id, c.id) != NULL;
	WW_CHECK(ww_loop_judge_content(l, &c, env->call_id, depth, v, data, err));
	if (depth != WW_JUDGE_COMPILE)
		WW_CHECK(note_best(l, &c, *data, v, is_recorded, &is_best, err));
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_VERDICT, .verdict = v, .is_best = is_best });
	return WW_OK;
}

static enum ww_rc inspect_for_tool(struct ww_tool_env *env, json_t **data, struct ww_err *err)
{
	const struct ww_agent_opts *o = env->opts;
	*data = ww_tool_inspect_data(o->target, o->judge.device, o->judge.graph);
	return WW_OK;
}

static enum ww_rc profile_for_tool(
	struct ww_tool_env *env, int of_solution, json_t **data, const char **missing, struct ww_err *err)
{
	const struct ww_agent_loop *l = env->ctx;
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	ww_workspace_content_init(&c);
	if (of_solution)
		WW_CHECK(ww_workspace_take(env->workspace, &c, missing, err));
	if (*missing)
		return WW_OK;
	if (ww_loop_device_is_spent(l))
		WW_CHECK(ww_err_set(err, WW_ERR_LIMIT, "--max-gpu-seconds is used up: nothing more is judged"));
	WW_CHECK(l->opts->judge.profile(l->opts->judge.ctx, of_solution ? &c.files.solution : NULL, data, err));
	spend_device(l, ww_budget_profile_gpu_s(*data));
	return WW_OK;
}

static const char *used_up(const struct ww_agent_loop *l)
{
	if (ww_episode_seconds(l->episode) >= l->opts->max_seconds)
		return "seconds";
	return l->opts->budget ? ww_budget_reached(l->opts->budget) : NULL;
}

static const char *out_of_for_tool(struct ww_tool_env *env) { return used_up(env->ctx); }

/* ---- One step ---------------------------------------------------------------------------------------------------- */

static int judges(const struct ww_tool_call *call)
{
	static const char *const tools[] = { "compile", "verify", "profile" };
	return ww_word_at(call->name, tools, WW_ARRAY_LEN(tools)) >= 0;
}

/* A policy that is a program (the planner) calls its tools in a single turn too. */
static enum ww_rc refuse_judging(struct ww_tool_result *r)
{
	*r = (struct ww_tool_result){ .text = WW_STR_INIT(1024), .is_error = 1 };
	ww_str_adds(&r->text, "a single turn (--loop single): the solution is judged once, at the end");
	return WW_OK;
}

/* What the policy is shown of a tool's text; takes it. */
static char *said_text(const struct ww_agent_loop *l, struct ww_str *text)
{
	return l->opts->prompt == WW_PROMPT_COMPACT ? ww_compact_output(text->p, text->len) : ww_str_take(text);
}

enum ww_rc ww_loop_content_of(const struct ww_agent_loop *l, const struct ww_episode_solution *s,
	struct ww_workspace_content *c, struct ww_err *err)
{
	ww_solution_begin(&c->files, l->opts->form, l->opts->target);
	for (size_t k = 0; k < s->n_files; k++)
		if (ww_solution_has_place(l->opts->form, l->opts->target, s->files[k].path))
			WW_CHECK(ww_solution_add(&c->files, s->files[k].path, s->files[k].text, strlen(s->files[k].text), err));
	ww_solution_end(&c->files);
	memcpy(c->id, s->id, sizeof(c->id));
	return WW_OK;
}

/* A verdict that was given during a recorded call. */
static enum ww_rc repeat_verdict(struct ww_agent_loop *l, const struct ww_episode_verdict *was, struct ww_err *err)
{
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	json_auto_t *data = NULL;
	const struct ww_episode_solution *s = ww_episode_find_solution(&l->answers, was->solution);
	int is_best = 0;
	ww_workspace_content_init(&c);
	ww_verdict_init(&v);
	if (!s || ww_answers_verdict(&l->past, was->call_id, was->solution))
		return WW_OK;
	WW_CHECK(ww_loop_content_of(l, s, &c, err));
	WW_CHECK(take_verdict(l, &c, was->call_id, &v, &data, err));
	if (strcmp(was->depth, "compile"))
		WW_CHECK(note_best(l, &c, data, &v, 1, &is_best, err));
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_VERDICT, .verdict = &v, .is_best = is_best });
	return WW_OK;
}

/* What opts->answers says in place of a tool; what the call did to files is done again. */
static enum ww_rc repeat_answer(struct ww_agent_loop *l, const struct ww_tool_call *call, struct ww_err *err)
{
	WW_AUTO(ww_reply_release) struct ww_reply reply = { .message = { .role = WW_ROLE_TOOL } };
	const struct ww_message *m;
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_TOOL, .tool = call->name });
	if (ww_answers_find(&l->answers, call, &m, err) != WW_OK)
		return ww_err_wrap(err, "%s", l->opts->answers);
	if (!m->is_error)
		WW_CHECK(ww_tools_redo(&l->env, call, m->data, err));
	for (size_t i = 0; i < l->answers.n_verdicts; i++)
		if (ww_answers_is_of(&l->answers.verdicts[i], call->id))
			WW_CHECK(repeat_verdict(l, &l->answers.verdicts[i], err));
	WW_CHECK((enum ww_rc)ww_message_copy(&reply.message, m));
	return say(l, &reply, err);
}

static enum ww_rc answer_call(struct ww_agent_loop *l, const struct ww_tool_call *call, struct ww_err *err)
{
	WW_AUTO(ww_tool_result_release) struct ww_tool_result r;
	WW_AUTO(ww_reply_release) struct ww_reply reply = { .message = { .role = WW_ROLE_TOOL } };
	struct ww_message *m = &reply.message;
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_TOOL, .tool = call->name });
	enum ww_rc rc = judges(call) && l->opts->loop == WW_LOOP_SINGLE ? refuse_judging(&r)
																	: ww_tools_call(&l->env, call, &r, err);
	if (rc == WW_ERR_LIMIT && ww_loop_device_is_spent(l)) {
		ww_str_adds(&r.text, "the budget of seconds on the device is used up; the episode ends");
		r.is_error = 1;
		rc = WW_OK;
	}
	if (rc != WW_OK)
		return rc;
	if (r.malformed && !r.data)
		r.data = json_pack("{s:b}", "malformed", 1);
	m->is_error = r.is_error;
	m->text = said_text(l, &r.text);
	m->call_id = strdup(call->id);
	m->tool = strdup(call->name);
	if (r.data) {
		struct ww_str text = WW_STR_INIT(256 << 20);
		ww_json_add(&text, r.data);
		m->data = ww_str_take(&text);
	}
	if (!m->text || !m->call_id || !m->tool || (r.data && !m->data))
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a tool's answer");
	return say(l, &reply, err);
}

/* Call ids become turn and place, whatever the policy called them: verdicts are found by them after a resume, so they
 * must be unique in the episode, and a replayed episode has the same ones. */
static enum ww_rc settle_call_ids(struct ww_agent_loop *l, struct ww_message *m, struct ww_err *err)
{
	for (size_t i = 0; i < m->n_calls; i++) {
		struct ww_str id = WW_STR_INIT(64);
		ww_str_addf(&id, "call_%d_%zu", l->turn + 1, i);
		free(m->calls[i].id);
		if (!(m->calls[i].id = ww_str_take(&id)))
			return ww_nomem(err);
	}
	return WW_OK;
}

static void tell_said(struct ww_agent_loop *l, const char *text)
{
	ww_auto_str line = WW_STR_INIT(256);
	text += strspn(text, " \t\r\n");
	ww_str_add_bounded(&line, text, strcspn(text, "\r\n"), 160);
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_SAID, .text = line.p });
}

static enum ww_rc put_extracted(void *ctx, const char *name, const char *code, size_t n, struct ww_err *err)
{
	const struct ww_agent_loop *l = ctx;
	ww_auto_str why = WW_STR_INIT(512); /* a file that does not fit stays missing, which the verdict reports */
	return ww_workspace_write(&l->workspace, name, code, n, &why, err);
}

/* The files of an answer into the workspace; in the compact form a call may stand behind them. */
enum ww_rc ww_loop_take_answer(struct ww_agent_loop *l, const struct ww_message *m, struct ww_err *err)
{
	const struct ww_agent_opts *o = l->opts;
	int n;
	if (o->prompt != WW_PROMPT_COMPACT && (o->loop == WW_LOOP_AGENT || m->n_calls))
		return WW_OK;
	return ww_extract_files(m->text, l->opts->form, l->opts->target, put_extracted, l, &n, err);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

/* Called before every attempt, so that retries of a failing server end with the episode's time. */
static int meter_begin(void *ctx, double max_usd, int64_t max_tokens, struct ww_err *err)
{
	struct ww_agent_loop *l = ctx;
	struct ww_budget *b = l->opts->budget;
	enum ww_rc rc = WW_OK;
	if (ww_episode_seconds(l->episode) >= l->opts->max_seconds)
		rc = ww_err_set(err, WW_ERR_LIMIT, "the time limit of the episode (--max-seconds) is reached");
	else if (b)
		rc = ww_budget_hold(b, &l->hold, max_usd, max_tokens, l->opts->interrupted, err);
	l->out_of_budget = rc == WW_ERR_LIMIT;
	return rc;
}

static int meter_lost(
	void *ctx, double usd, int64_t prompt_tokens, int64_t completion_tokens, const char *why, struct ww_err *err)
{
	struct ww_agent_loop *l = ctx;
	struct ww_episode_lost lost = {
		.usd = usd, .prompt_tokens = prompt_tokens, .completion_tokens = completion_tokens, .why = (char *)why
	};
	if (l->opts->budget)
		ww_budget_spend(l->opts->budget, &(struct ww_budget_use){ usd, 0, prompt_tokens + completion_tokens });
	return ww_episode_add_lost(l->episode, l->turn, &lost, err);
}

/* What the policy may call: in the loops without tools nothing. */
static const struct ww_tool_spec *offered(const struct ww_agent_loop *l, size_t *n)
{
	const struct ww_tool_spec *specs = ww_tools_specs(n);
	if (l->opts->prompt == WW_PROMPT_COMPACT)
		return ww_compact_tools(l->opts->loop, n);
	if (l->opts->loop == WW_LOOP_AGENT)
		return specs;
	*n = 0;
	return NULL;
}

/* Tokens that are left for the reply, 0 for no limit; makes room where there is too little. */
static enum ww_rc make_room(struct ww_agent_loop *l, int64_t *left, struct ww_err *err)
{
	const struct ww_agent_opts *o = l->opts;
	size_t n_tools;
	const struct ww_tool_spec *specs = offered(l, &n_tools);
	int64_t room = o->context_tokens / REPLY_ROOM_PARTS;
	int64_t used = ww_context_tokens(&l->context, o->policy, l->msgs, l->n_msgs, specs, n_tools);
	WW_AUTO(ww_context_release) struct ww_episode_compaction plan = { 0 };
	*left = 0;
	if (!o->context_tokens || !used)
		return WW_OK;
	if (used + room > o->context_tokens && !o->no_compaction) {
		WW_CHECK(ww_context_plan(l->msgs, l->n_msgs, used - o->context_tokens / 2, &plan, err));
		if (plan.n_calls)
			WW_CHECK((enum ww_rc)ww_episode_add_compaction(l->episode, l->turn, &plan, err));
		WW_CHECK(ww_context_apply(&l->context, l->msgs, l->n_msgs, &plan, err));
		used = ww_context_tokens(&l->context, o->policy, l->msgs, l->n_msgs, specs, n_tools);
	}
	*left = o->context_tokens - used;
	l->out_of_context = *left < room;
	if (l->out_of_context && !o->long_prompt_ends && !last_assistant(l))
		return ww_err_set(err, WW_ERR_USAGE,
			"the first prompt has %lld tokens and does not fit a context of %lld with a reply of %lld; "
			"raise --context-tokens or --model-cache, take a model with a longer context, "
			"or shorten the prompt with --skill none",
			(long long)used, (long long)o->context_tokens, (long long)room);
	return WW_OK;
}

static enum ww_rc ask(struct ww_agent_loop *l, int64_t max_tokens, struct ww_reply *r, struct ww_err *err)
{
	struct ww_policy *p = l->opts->policy;
	struct ww_meter meter = { l, meter_begin, meter_lost };
	struct ww_ask a = { .msgs = l->msgs,
		.n = l->n_msgs,
		.max_tokens = max_tokens,
		.journal = l->journal,
		.meter = &meter,
		.tools_are_told = l->opts->prompt == WW_PROMPT_COMPACT,
		.interrupted = l->opts->interrupted };
	a.tools = offered(l, &a.n_tools);
	enum ww_rc rc = (enum ww_rc)p->ops->next(p, &a, r, err);
	r->message.role = WW_ROLE_ASSISTANT;
	return rc == WW_OK ? settle_call_ids(l, &r->message, err) : rc;
}

/* Record the reply; then count its cost and remove its journal. */
static enum ww_rc take_reply(struct ww_agent_loop *l, struct ww_reply *r, struct ww_err *err)
{
	struct ww_budget_use use = { r->usd, 0, r->prompt_tokens + r->completion_tokens };
	struct ww_reply usage = { .prompt_tokens = r->prompt_tokens, .completion_tokens = r->completion_tokens };
	l->last_finish = r->finish;
	WW_CHECK(say(l, r, err));
	ww_context_note(&l->context, &usage, l->n_msgs);
	(void)remove(l->journal);
	if (l->opts->budget)
		ww_budget_spend(l->opts->budget, &use);
	tell_said(l, l->msgs[l->n_msgs - 1].text);
	return ww_loop_take_answer(l, &l->msgs[l->n_msgs - 1], err);
}

/* Where context or budget do not allow another question, the episode ends; that is no error. */
static enum ww_rc ask_policy(struct ww_agent_loop *l, struct ww_err *err)
{
	struct ww_reply r = { .usd = 0 };
	int64_t left;
	enum ww_rc rc = make_room(l, &left, err);
	if (rc != WW_OK || l->out_of_context)
		return rc;
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_THINKING });
	rc = ask(l, left, &r, err);
	if (rc == WW_OK)
		rc = take_reply(l, &r, err);
	else
		ww_reply_release(&r);
	if (l->opts->budget)
		ww_budget_drop(l->opts->budget, &l->hold);
	return l->out_of_budget ? WW_OK : rc;
}

static int trailing_malformed(const struct ww_agent_loop *l)
{
	int n = 0;
	for (size_t i = l->n_msgs; i-- > 0;) {
		const struct ww_message *m = &l->msgs[i];
		if (m->role == WW_ROLE_ASSISTANT)
			continue;
		if (m->role != WW_ROLE_TOOL || !m->is_error || !m->data || strcmp(m->data, "{\"malformed\":true}"))
			break;
		n++;
	}
	return n;
}

static int has_solution(const struct ww_agent_loop *l)
{
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	const char *missing = NULL;
	struct ww_err ignored;
	ww_workspace_content_init(&c);
	return ww_workspace_take(&l->workspace, &c, &missing, &ignored) == WW_OK && !missing;
}

/* ---- Answers without tools --------------------------------------------------------------------------------------- */

/* The last message is the verdict on the policy's last answer. */
static int was_told(const struct ww_agent_loop *l)
{
	return l->n_msgs > 2 && l->msgs[l->n_msgs - 1].role == WW_ROLE_USER;
}

/* The last message is an answer, and the policy is to be told its verdict (--loop refine). */
static int wants_verdict(const struct ww_agent_loop *l)
{
	const struct ww_message *m = last_assistant(l);
	return l->opts->loop == WW_LOOP_REFINE && m && m == &l->msgs[l->n_msgs - 1] && !m->n_calls &&
		l->turn < l->opts->max_turns && l->last_finish != WW_FINISH_REFUSAL && !used_up(l);
}

static enum ww_rc tell_verdict(struct ww_agent_loop *l, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	json_auto_t *data = NULL;
	const char *missing = NULL;
	struct ww_str text = WW_STR_INIT(WW_TOOL_TEXT_MAX_BYTES);
	char id[32];
	ww_verdict_init(&v);
	snprintf(id, sizeof(id), "turn_%d", l->turn);
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_TOOL, .tool = "verify" });
	l->env.call_id = id;
	WW_CHECK(judge_for_tool(&l->env, WW_JUDGE_FULL, &v, &data, &missing, err));
	l->env.call_id = "";
	if (missing)
		ww_str_addf(&text, "There is nothing to judge: no block of code is %s.\n", missing);
	else
		ww_tool_verdict_text(&v, WW_JUDGE_FULL, &text);
	if (l->opts->prompt == WW_PROMPT_FULL)
		ww_str_adds(&text, "Answer with the whole files again, better.\n");
	enum ww_rc rc = ww_loop_say_text(l, WW_ROLE_USER, said_text(l, &text), err);
	ww_str_release(&text);
	return rc;
}

/* Why the episode ends now, or NULL.  Asked when no call is pending. */
static const char *stop_reason(const struct ww_agent_loop *l)
{
	const struct ww_message *m = last_assistant(l), *end = l->msgs + l->n_msgs;
	for (const struct ww_message *t = m; m && t < end; t++)
		if (t->role == WW_ROLE_TOOL && !strcmp(t->tool, "submit") && !t->is_error)
			return "submitted";
	if (l->opts->loop == WW_LOOP_SINGLE && m && has_solution(l))
		return "single";
	if (m && !m->n_calls && !was_told(l) && (l->opts->loop != WW_LOOP_REFINE || l->turn < l->opts->max_turns))
		return l->last_finish == WW_FINISH_LENGTH ? "length"
			: l->last_finish == WW_FINISH_REFUSAL ? "refusal"
												  : "stopped";
	if (trailing_malformed(l) >= MALFORMED_MAX)
		return "malformed";
	if (l->turn >= l->opts->max_turns)
		return "turns";
	return l->out_of_context ? "context" : used_up(l);
}

static enum ww_rc work(struct ww_agent_loop *l, const char **reason, struct ww_err *err)
{
	for (;;) {
		if (ww_loop_interrupted(l))
			return ww_loop_stop_interrupted(err);
		const struct ww_tool_call *call = pending_call(l);
		int told = !call && wants_verdict(l);
		if (!call && !told && (*reason = stop_reason(l)))
			return WW_OK;
		WW_CHECK(call  ? (l->opts->answers ? repeat_answer(l, call, err) : answer_call(l, call, err))
				: told ? tell_verdict(l, err)
					   : ask_policy(l, err));
	}
}

/* ---- The whole ---------------------------------------------------------------------------------------------- */

enum ww_rc ww_agent_run(const struct ww_agent_opts *opts, struct ww_agent_result *out, struct ww_err *err)
{
	struct ww_agent_loop l = { .opts = opts, .result = out, .workspace = { .dirfd = -1 }, .measured_reward = -1 };
	const char *reason = NULL;
	enum ww_rc rc;
	memset(out, 0, sizeof(*out));
	ww_verdict_init(&out->best);
	ww_shell_init(&l.shell);
	l.shell.interrupted = opts->interrupted;
	l.shell.skill = opts->skill;
	l.env = (struct ww_tool_env){ .opts = opts,
		.workspace = &l.workspace,
		.shell = &l.shell,
		.inspect = inspect_for_tool,
		.judge = judge_for_tool,
		.profile = profile_for_tool,
		.out_of = out_of_for_tool,
		.ctx = &l,
		.call_id = "" };
	if (opts->budget)
		ww_budget_enter(opts->budget);
	WW_TRY(ww_loop_open(&l, err));
	WW_TRY(work(&l, &reason, err));
	WW_TRY(ww_loop_finish(&l, reason, err));
out:
	if (opts->budget)
		ww_budget_leave(opts->budget);
	out->turns = l.turn;
	if (l.episode)
		out->seconds = ww_episode_seconds(l.episode);
	for (size_t i = 0; i < l.n_msgs; i++)
		ww_message_release(&l.msgs[i]);
	free(l.msgs);
	free(l.recorded);
	ww_shell_close(&l.shell);
	ww_workspace_close(&l.workspace);
	ww_episode_release(&l.past);
	ww_episode_release(&l.answers);
	ww_episode_close(l.episode);
	return rc;
}
