/* env.c - see env.h.
 *
 * The loop runs in a thread of the episode and asks its policy for the next message.  That policy is this file: it
 * shows the client the new messages (an observation) and waits for an action, which becomes the next message.
 *
 *     client thread   reset ──▶ OPENING        step ──▶ WORKING                      observe waits for ASKED or OVER
 *     loop's thread             task opens ──▶ ASKED ◀── tools answered   ...  ──▶ OVER (ended, or failed)
 *
 * Which messages are new follows from the conversation alone (those after the last one of the policy), as everywhere in
 * the loop.
 */
#include "serve/env.h"

#include "agent/agent.h"
#include "agent/tools.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/schema.h"
#include "base/rng.h"
#include "base/target.h"
#include "base/time.h"
#include "base/tmpdir.h"
#include "judge/profile/profile.h"
#include "serve/mcp.h"
#include "task/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TASKS = 100000, OBSERVED_TEXT_BYTES = 4 << 20, MAX_CALLS = 64 };
/* A client waits for the end of its episode; on a machine that stays busy a repeat is as disturbed as the first. */
enum { CLOSING_SECONDS = 60 };

/* JSON schemas of what goes in and out, a property a line. */
const char ww_env_reset_schema[] =
	"{\"type\":\"object\",\"title\":\"WarpwrightReset\",\"properties\":{"
	"\"task\":{\"type\":[\"string\",\"null\"],\"description\":\"a task: its name or id in the server's --tasks\"},"
	"\"task_source\":{\"type\":[\"string\",\"null\"],\"description\":\"the task as text, instead of its name\"},"
	"\"seed\":{\"type\":[\"integer\",\"null\"],\"minimum\":0,\"description\":\"which of the server's tasks, where "
	"none is named; recorded with the episode\"},"
	"\"episode_id\":{\"type\":[\"string\",\"null\"],\"description\":\"what the client calls the episode\"},"
	"\"max_turns\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"description\":\"steps until the episode ends; at "
	"most the server's own limit\"},"
	"\"max_seconds\":{\"type\":[\"number\",\"null\"],\"minimum\":1,\"description\":\"seconds until it ends; "
	"likewise\"}},"
	"\"additionalProperties\":false}";
const char ww_env_action_schema[] =
	"{\"type\":\"object\",\"title\":\"WarpwrightAction\",\"properties\":{"
	"\"tool\":{\"type\":[\"string\",\"null\"],\"description\":\"the tool to call; wait asks again for a pending "
	"answer; none ends the episode\"},"
	"\"arguments\":{\"type\":[\"object\",\"string\",\"null\"],\"description\":\"its arguments; a string is taken for "
	"the text that a model wrote\"},"
	"\"calls\":{\"type\":[\"array\",\"null\"],\"description\":\"several calls, each {tool, arguments}, instead of one\","
	"\"items\":{\"type\":\"object\",\"properties\":{\"tool\":{\"type\":\"string\"},"
	"\"arguments\":{\"type\":[\"object\",\"string\",\"null\"]}},\"required\":[\"tool\"],\"additionalProperties\":false}},"
	"\"text\":{\"type\":[\"string\",\"null\"],\"description\":\"what the policy says beside its calls\"},"
	"\"reasoning\":{\"type\":[\"string\",\"null\"],\"description\":\"what it thought before\"},"
	"\"metadata\":{\"type\":[\"object\",\"null\"],\"description\":\"ignored\"}},"
	"\"additionalProperties\":false}";
const char ww_env_observation_schema[] =
	"{\"type\":\"object\",\"title\":\"WarpwrightObservation\",\"properties\":{"
	"\"text\":{\"type\":\"string\",\"description\":\"the answers of the tools, or at the beginning the task, for a "
	"model to read\"},"
	"\"results\":{\"type\":\"array\",\"description\":\"each answer\",\"items\":{\"type\":\"object\",\"properties\":{"
	"\"tool\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"},\"is_error\":{\"type\":\"boolean\"},"
	"\"data\":{\"description\":\"the same for programs: of verify the verdict\"}}}},"
	"\"pending\":{\"type\":\"boolean\",\"description\":\"the answer is not there yet: step with the tool wait\"},"
	"\"turn\":{\"type\":\"integer\"},"
	"\"max_turns\":{\"type\":\"integer\"},"
	"\"episode_id\":{\"type\":\"string\",\"description\":\"the client's name of the episode, or ours\"},"
	"\"end_reason\":{\"type\":[\"string\",\"null\"],\"description\":\"why the episode is over: submitted, stopped, "
	"turns, seconds, malformed\"},"
	"\"reward_best\":{\"type\":[\"number\",\"null\"],\"description\":\"at the end: that of its best verdict\"},"
	"\"system\":{\"type\":[\"string\",\"null\"],\"description\":\"at the beginning: goal, rules, tools, limits\"},"
	"\"tools\":{\"type\":[\"array\",\"null\"],\"description\":\"at the beginning: name, description and parameters "
	"of each\"}},"
	"\"required\":[\"text\",\"results\",\"pending\",\"turn\",\"max_turns\",\"episode_id\"]}";
const char ww_env_state_schema[] =
	"{\"type\":\"object\",\"title\":\"WarpwrightState\",\"properties\":{"
	"\"episode_id\":{\"type\":[\"string\",\"null\"],\"description\":\"null before the first reset\"},"
	"\"step_count\":{\"type\":\"integer\",\"minimum\":0},"
	"\"task\":{\"type\":[\"string\",\"null\"],\"description\":\"its name\"},"
	"\"target\":{\"type\":\"string\",\"description\":\"cuda or cpu\"},"
	"\"phase\":{\"type\":\"string\",\"description\":\"idle, opening, asked, working, over, failed\"},"
	"\"done\":{\"type\":\"boolean\"},"
	"\"reward\":{\"type\":[\"number\",\"null\"],\"description\":\"once it is over\"},"
	"\"max_turns\":{\"type\":\"integer\"}},\"required\":[\"episode_id\",\"step_count\"]}";

enum phase { IDLE, OPENING, ASKED, WORKING, OVER };
static const char *const phase_names[] = { "idle", "opening", "asked", "working", "over" };

struct client_policy {
	struct ww_policy base; /* first */
	struct ww_env *env;
};

struct ww_env {
	struct ww_env_opts o;
	json_t *reset_schema, *action_schema;
	struct client_policy policy;
	pthread_t thread;
	int has_thread;
	volatile int stopping;
	/* Of the episode; written before its thread starts. */
	struct ww_task task;
	char id[256], dir[PATH_MAX];
	struct ww_tmpdir tmp;
	int max_turns;
	double max_seconds;
	uint64_t seed;
	json_t *graph; /* the loop's thread */
	struct ww_device device;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	enum phase phase;
	json_t *observation; /* of ASKED and OVER; ours */
	json_t *action;      /* of WORKING, until the loop takes it */
	double reward;
	int64_t steps;
	int turn;
	struct ww_err failed; /* of OVER: rc is not WW_OK where the loop could not go on */
};

/* ---- Observations ------------------------------------------------------------------------------------------------ */

static json_t *result_json(const struct ww_message *m)
{
	json_t *data = NULL;
	struct ww_err ignored;
	if (m->data && ww_json_parse(m->data, strlen(m->data), "data", &data, &ignored) != WW_OK)
		data = NULL;
	return json_pack("{s:s, s:s, s:b, s:o?}", "tool", m->tool, "text", m->text, "is_error", m->is_error, "data", data);
}

/* The messages to the policy since its own last one. */
static json_t *observe_messages(struct ww_env *e, const struct ww_message *const *msgs, size_t n, const char *tail)
{
	ww_auto_str text = WW_STR_INIT(OBSERVED_TEXT_BYTES);
	json_t *results = json_array();
	size_t from = n;
	while (from > 0 && msgs[from - 1]->role != WW_ROLE_ASSISTANT)
		from--;
	for (size_t i = from; i < n; i++) {
		const struct ww_message *m = msgs[i];
		if (m->role == WW_ROLE_SYSTEM)
			continue;
		ww_str_addf(&text, "%s%s", text.len ? "\n" : "", m->text);
		if (m->role == WW_ROLE_TOOL)
			json_array_append_new(results, result_json(m));
	}
	ww_str_addf(&text, "%s%s", text.len && *tail ? "\n" : "", tail);
	return json_pack("{s:s, s:o, s:b, s:i, s:i, s:s, s:n}", "text", text.p, "results", results, "pending", 0, "turn",
		e->turn, "max_turns", e->max_turns, "episode_id", e->id, "end_reason");
}

static void add_beginning(json_t *o, const struct ww_message *first)
{
	json_t *tools = ww_tools_json();
	if (tools)
		json_object_set_new(o, "tools", tools);
	if (first->role == WW_ROLE_SYSTEM)
		json_object_set_new(o, "system", json_string(first->text));
}

/* Under the lock; takes the observation. */
static void show(struct ww_env *e, enum phase phase, json_t *observation)
{
	json_decref(e->observation);
	e->observation = observation;
	e->phase = phase;
	pthread_cond_broadcast(&e->changed);
}

/* ---- The policy -------------------------------------------------------------------------------------------------- */

/* {"tool", "arguments"} as a call; 0: out of memory. */
static int add_call(struct ww_message *m, const json_t *o)
{
	const json_t *args = json_object_get(o, "arguments");
	struct ww_str text = WW_STR_INIT(WW_MCP_MAX_MESSAGE_BYTES);
	if (json_is_string(args))
		ww_str_adds(&text, json_string_value(args));
	else if (json_is_object(args))
		ww_json_add(&text, args);
	else
		ww_str_adds(&text, "{}");
	struct ww_tool_call *c = &m->calls[m->n_calls++];
	c->id = strdup("");
	c->name = strdup(ww_json_str(o, "tool", ""));
	c->arguments = ww_str_take(&text);
	return c->id && c->name && c->arguments;
}

static enum ww_rc to_reply(const json_t *action, struct ww_reply *out, struct ww_err *err)
{
	const json_t *calls = json_object_get(action, "calls"), *o;
	const char *reasoning = ww_json_str(action, "reasoning", NULL);
	struct ww_message *m = &out->message;
	size_t n = json_is_array(calls) ? json_array_size(calls) : 1, i;
	int good = 1;
	m->role = WW_ROLE_ASSISTANT;
	m->text = strdup(ww_json_str(action, "text", ""));
	m->calls = calloc(n + 1, sizeof(*m->calls));
	if (reasoning)
		good = (m->reasoning = strdup(reasoning)) != NULL;
	good = good && m->text && m->calls;
	json_array_foreach(calls, i, o)
		good = good && add_call(m, o);
	if (good && ww_json_str(action, "tool", NULL))
		good = add_call(m, action);
	out->finish = m->n_calls ? WW_FINISH_TOOL_CALLS : WW_FINISH_STOP;
	if (good)
		return WW_OK;
	ww_reply_release(out);
	return ww_err_set(err, WW_ERR_NOMEM, "out of memory for an action");
}

static int policy_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct ww_env *e = ((struct client_policy *)self)->env;
	const struct ww_message **msgs;
	json_t *action = NULL;
	WW_CHECK(WW_NEW(msgs, ask->n + 1, err));
	for (size_t i = 0; i < ask->n; i++)
		msgs[i] = &ask->msgs[i];
	pthread_mutex_lock(&e->lock);
	json_t *o = observe_messages(e, msgs, ask->n, "");
	if (!e->turn && ask->n)
		add_beginning(o, ask->msgs);
	free(msgs);
	if (!e->stopping)
		show(e, ASKED, o);
	else
		json_decref(o);
	while (!e->action && !e->stopping)
		pthread_cond_wait(&e->changed, &e->lock);
	action = e->action;
	e->action = NULL;
	e->turn++;
	pthread_mutex_unlock(&e->lock);
	enum ww_rc rc = e->stopping || !action ? ww_err_set(err, WW_ERR_INTERRUPTED, "the client has left")
										   : to_reply(action, out, err);
	json_decref(action);
	return rc;
}

static int64_t policy_count(struct ww_policy *self, const struct ww_message *msgs, size_t n) { return 0; }

static void policy_free(struct ww_policy *self) { (void)self; /* part of the environment */ }

static const struct ww_policy_ops policy_ops = {
	.name = "openenv", .next = policy_next, .count_tokens = policy_count, .free = policy_free
};

/* ---- The judge --------------------------------------------------------------------------------------------------- */

static int is_stopped(void *ctx) { return ((struct ww_env *)ctx)->stopping; }

/* Each question carries its own copy of the task, as it may outlive us. */
static enum ww_rc ask_broker(struct ww_env *e, struct ww_broker_ask *a, const struct ww_solution *s,
	struct ww_broker_result *r, struct ww_err *err)
{
	const struct ww_broker_waiter w = { is_stopped, NULL, e };
	struct ww_solution_files *f = &a->files;
	enum ww_rc rc;
	memset(r, 0, sizeof(*r));
	a->client = (uint64_t)(uintptr_t)e;
	WW_TRY(ww_task_copy(&a->task, &e->task, err));
	if (s) {
		ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
		ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
		ww_str_add(&f->device, s->device_source, s->device_bytes);
		ww_str_add(&f->plan, s->plan_source, s->plan_bytes);
		f->solution = (struct ww_solution){ .device_source = f->device.p,
			.device_bytes = f->device.len,
			.plan_source = f->plan.p,
			.plan_bytes = f->plan.len,
			.form = WW_FORM_PLAN };
	}
	return ww_broker_ask(e->o.broker, a, &w, r, err);
out:
	ww_broker_ask_release(a);
	return rc;
}

static enum ww_rc judge_run(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct ww_broker_ask a = { .depth = depth };
	WW_AUTO(ww_broker_result_release) struct ww_broker_result r;
	enum ww_rc rc = ask_broker(ctx, &a, s, &r, err);
	if (rc == WW_OK) {
		ww_verdict_release(v);
		*v = r.verdict;
		ww_verdict_init(&r.verdict);
	}
	return rc;
}

static enum ww_rc profile_work(const struct ww_broker *d, struct ww_judge_task *t, const struct ww_solution *s,
	struct ww_broker_result *r, struct ww_err *err)
{
	const struct ww_agent_judge judge = ww_agent_use_judge(t, ww_broker_opts_of(d)->device_name);
	return judge.profile(judge.ctx, s, &r->data, err);
}

static enum ww_rc judge_profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	struct ww_broker_ask a = { .work = profile_work };
	WW_AUTO(ww_broker_result_release) struct ww_broker_result r;
	WW_CHECK(ask_broker(ctx, &a, s, &r, err));
	*out = json_incref(r.data);
	return WW_OK;
}

static enum ww_rc open_work(const struct ww_broker *d, struct ww_judge_task *t, const struct ww_solution *s,
	struct ww_broker_result *r, struct ww_err *err)
{
	r->device = ww_judge_task_facts(t)->device;
	r->data = json_deep_copy(ww_judge_task_graph(t));
	return r->data ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "out of memory for a graph");
}

/* Graph and device, which the loop wants to know first. */
static enum ww_rc open_task(struct ww_env *e, struct ww_err *err)
{
	struct ww_broker_ask a = { .work = open_work };
	struct ww_broker_result r;
	if (ww_broker_opts_of(e->o.broker)->answer) { /* no judge: there is no graph */
		e->graph = json_object();
		return WW_OK;
	}
	enum ww_rc rc = ask_broker(e, &a, NULL, &r, err);
	if (rc == WW_OK) {
		e->graph = json_incref(r.data);
		e->device = r.device;
	}
	ww_broker_result_release(&r);
	return rc;
}

/* ---- An episode -------------------------------------------------------------------------------------------------- */

static enum ww_rc make_dir(struct ww_env *e, struct ww_err *err)
{
	char name[64];
	if (!e->o.episodes) {
		WW_CHECK(ww_tmpdir_new(&e->tmp, "openenv", err));
		snprintf(e->dir, sizeof(e->dir), "%s", e->tmp.path);
		return WW_OK;
	}
	snprintf(name, sizeof(name), "%016llx", (unsigned long long)ww_rng_secret());
	WW_CHECK(ww_fs_join(e->dir, e->o.episodes, name, err));
	return ww_fs_mkdirs(e->dir, err);
}

static enum ww_rc run_loop(struct ww_env *e, struct ww_agent_result *result, struct ww_err *err)
{
	const struct ww_broker_opts *d = ww_broker_opts_of(e->o.broker);
	struct ww_episode_header h = { .task_path = e->task.path,
		.target = (char *)(uintptr_t)ww_target_name(d->judge.target),
		.device = (char *)(uintptr_t)d->device_name,
		.policy = (char *)"openenv",
		.rule = (char *)(uintptr_t)ww_rule_name(d->judge.rule),
		.seed = e->seed };
	struct ww_agent_opts a = { .policy = &e->policy.base,
		.dir = e->dir,
		.task_source = e->task.source,
		.skill = e->o.skill,
		.target = d->judge.target,
		.rule = d->judge.rule,
		.baselines = d->judge.baselines,
		.max_turns = e->max_turns,
		.max_seconds = e->max_seconds,
		.closing_seconds = CLOSING_SECONDS,
		.header = &h,
		.interrupted = &e->stopping,
		.judge = { .ctx = e,
			.run = judge_run,
			.profile = judge_profile,
			.graph = e->graph,
			.device = &e->device,
			.device_name = d->device_name } };
	memcpy(h.task_id, e->task.id, sizeof(h.task_id));
	ww_utc_text(h.started);
	h.versions = json_pack("{s:s}", "warpwright", WW_VERSION);
	enum ww_rc rc = ww_agent_run(&a, result, err);
	json_decref(h.versions);
	return rc;
}

/* The answers that no question followed are in the record. */
static json_t *last_observation(struct ww_env *e, const struct ww_agent_result *r)
{
	char path[PATH_MAX], tail[160];
	struct ww_err ignored;
	struct ww_episode ep;
	const struct ww_message **msgs = NULL;
	size_t n = 0;
	memset(&ep, 0, sizeof(ep));
	if (ww_fs_join(path, e->dir, "episode.jsonl", &ignored) == WW_OK && ww_episode_read(path, &ep, &ignored) == WW_OK &&
		(msgs = calloc(ep.n_messages + 1, sizeof(*msgs))))
		for (; n < ep.n_messages; n++)
			msgs[n] = &ep.messages[n].reply.message;
	snprintf(tail, sizeof(tail), "The episode is over (%s). Reward %g.", r->end.reason, r->end.reward_final);
	json_t *o = observe_messages(e, msgs, n, tail);
	json_object_set_new(o, "end_reason", json_string(r->end.reason));
	json_object_set_new(o, "reward_best", json_real(r->end.reward_best));
	free(msgs);
	ww_episode_release(&ep);
	return o;
}

static void *episode_main(void *arg)
{
	struct ww_env *e = arg;
	struct ww_agent_result result;
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc;
	memset(&result, 0, sizeof(result));
	ww_verdict_init(&result.best);
	WW_TRY(open_task(e, &err));
	WW_TRY(make_dir(e, &err));
	WW_TRY(run_loop(e, &result, &err));
out:
	pthread_mutex_lock(&e->lock);
	if (rc != WW_OK && e->graph) /* the task was opened: what fails now is no fault of a message */
		rc = ww_err_set(&e->failed, rc == WW_ERR_USAGE ? WW_ERR_SYSTEM : rc,
			"%.900s; the episode is lost and has no reward: reset to do it again", err.msg);
	else
		e->failed = err;
	e->failed.rc = rc;
	e->reward = result.end.reward_final;
	show(e, OVER, rc == WW_OK ? last_observation(e, &result) : NULL);
	pthread_mutex_unlock(&e->lock);
	ww_agent_result_release(&result);
	return NULL;
}

/* Stop the episode in any phase, and drop it. */
static void end_episode(struct ww_env *e)
{
	if (e->has_thread) {
		pthread_mutex_lock(&e->lock);
		e->stopping = 1;
		pthread_cond_broadcast(&e->changed);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
	}
	e->has_thread = 0;
	json_decref(e->observation);
	json_decref(e->action);
	json_decref(e->graph);
	e->observation = e->action = e->graph = NULL;
	ww_task_release(&e->task);
	ww_tmpdir_remove(&e->tmp);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* The at-th usable row of a set into *out; *n: how many there are up to it.  out NULL: count them all. */
static enum ww_rc nth_task(const char *path, uint64_t at, uint64_t *n, struct ww_task *out, struct ww_err *err)
{
	const struct ww_set_row *row = NULL;
	struct ww_set *set;
	enum ww_rc rc;
	*n = 0;
	WW_CHECK(ww_set_open(&set, path, &(struct ww_set_opts){ .keep_broken = 1 }, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row && (row->problem || !out || *n < at))
		*n += !row->problem;
	if (rc == WW_OK && row && out)
		rc = ww_set_task(set, row, out, err);
	ww_set_close(set);
	return rc;
}

/* One of the server's, by number. */
static enum ww_rc draw_task(struct ww_env *e, uint64_t number, struct ww_err *err)
{
	if (!e->o.tasks)
		return ww_err_set(err, WW_ERR_USAGE,
			"the server has no tasks of its own (--tasks): name one by \"task\", or give it as \"task_source\"");
	uint64_t n;
	WW_CHECK(nth_task(e->o.tasks, 0, &n, NULL, err));
	return n ? nth_task(e->o.tasks, number % n, &n, &e->task, err)
			 : ww_err_set(err, WW_ERR_USAGE, "the server's --tasks holds no task; give one as \"task_source\"");
}

/* An id, with or without ".py", of the server's set; elsewhere nothing can be named. */
static enum ww_rc named_task(struct ww_env *e, const char *name, struct ww_err *err)
{
	const struct ww_set_row *row;
	struct ww_set *set;
	size_t n = strlen(name);
	if (!e->o.tasks)
		return ww_err_set(
			err, WW_ERR_USAGE, "the server has no tasks of its own (--tasks): give the task as \"task_source\"");
	if (!n || n > WW_SET_MAX_ID + 3)
		return ww_err_set(err, WW_ERR_USAGE, "\"%.100s\" is no name of a task", name);
	ww_auto_free char *id = strndup(name, n > 3 && !strcmp(name + n - 3, ".py") ? n - 3 : n);
	if (!id)
		return ww_nomem(err);
	WW_CHECK(ww_set_open(&set, e->o.tasks, NULL, err));
	enum ww_rc rc = ww_set_find(set, id, &row, err);
	if (rc == WW_OK)
		rc = ww_set_task(set, row, &e->task, err);
	ww_set_close(set);
	return rc;
}

static enum ww_rc choose_task(struct ww_env *e, const json_t *data, struct ww_err *err)
{
	const char *name = ww_json_str(data, "task", NULL), *text = ww_json_str(data, "task_source", NULL);
	if (name && text)
		return ww_err_set(err, WW_ERR_USAGE, "give \"task\" or \"task_source\", not both");
	if (text)
		return ww_task_from_text(&e->task, "task", text, strlen(text), err);
	return name ? named_task(e, name, err) : draw_task(e, e->seed, err);
}

/* ---- Calls of clients -------------------------------------------------------------------------------------------- */

static enum ww_rc fit(const json_t *schema, const json_t *data, const char *what, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512);
	if (!ww_schema_fits(schema, data ? data : json_null(), &why))
		return ww_err_set(err, WW_ERR_USAGE, "%s: %s", what, why.p);
	return WW_OK;
}

/* It names the episode in later requests and in answers. */
static enum ww_rc check_id(const struct ww_env *e, const json_t *data, struct ww_err *err)
{
	size_t n = strlen(ww_json_str(data, "episode_id", "none is given"));
	return n && n < sizeof(e->id)
		? WW_OK
		: ww_err_set(
			  err, WW_ERR_USAGE, "reset: \"episode_id\" has %zu bytes, and may have 1 to %zu", n, sizeof(e->id) - 1);
}

static void take_options(struct ww_env *e, const json_t *data)
{
	const char *id = ww_json_str(data, "episode_id", NULL);
	const json_t *seed = json_object_get(data, "seed");
	int64_t turns = ww_json_int(data, "max_turns", e->o.max_turns);
	double seconds = ww_json_num(data, "max_seconds", e->o.max_seconds);
	e->seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : ww_rng_secret();
	e->max_turns = turns < e->o.max_turns ? (int)turns : e->o.max_turns;
	e->max_seconds = seconds < e->o.max_seconds ? seconds : e->o.max_seconds;
	if (id)
		snprintf(e->id, sizeof(e->id), "%.255s", id);
	else
		snprintf(e->id, sizeof(e->id), "%016llx", (unsigned long long)ww_rng_secret());
}

enum ww_rc ww_env_reset(struct ww_env *e, const json_t *data, struct ww_err *err)
{
	WW_CHECK(fit(e->reset_schema, data, "reset", err));
	WW_CHECK(check_id(e, data, err));
	end_episode(e);
	e->phase = IDLE;
	take_options(e, data);
	WW_CHECK(choose_task(e, data, err));
	e->stopping = 0;
	e->steps = e->turn = 0;
	e->reward = 0;
	pthread_mutex_lock(&e->lock); /* over HTTP another request may look at the state already */
	e->phase = OPENING;
	pthread_mutex_unlock(&e->lock);
	if (pthread_create(&e->thread, NULL, episode_main, e)) {
		e->phase = IDLE;
		return ww_err_set(err, WW_ERR_SYSTEM, "cannot start a thread");
	}
	e->has_thread = 1;
	return WW_OK;
}

static int is_wait(const json_t *action) { return !strcmp(ww_json_str(action, "tool", ""), "wait"); }

static enum ww_rc check_action(struct ww_env *e, const json_t *action, struct ww_err *err)
{
	const json_t *calls;
	WW_CHECK(fit(e->action_schema, action, "step", err));
	calls = json_object_get(action, "calls");
	if (json_is_array(calls) && (ww_json_str(action, "tool", NULL) || json_array_size(calls) > MAX_CALLS))
		return ww_err_set(err, WW_ERR_USAGE, "step: \"calls\" goes without \"tool\", and holds at most %d", MAX_CALLS);
	return WW_OK;
}

enum ww_rc ww_env_step(struct ww_env *e, const json_t *action, struct ww_err *err)
{
	WW_CHECK(check_action(e, action, err));
	WW_LOCKED(&e->lock);
	if (e->phase == IDLE)
		return ww_err_set(err, WW_ERR_USAGE, "there is no episode: reset first");
	else if (!is_wait(action) && e->phase == OVER)
		return ww_err_set(err, WW_ERR_USAGE, "the episode is over: reset");
	else if (!is_wait(action) && e->phase != ASKED)
		return ww_err_set(
			err, WW_ERR_USAGE, "the answer to the last step is still pending: step with the tool \"wait\"");
	else if (!is_wait(action) && !(e->action = json_deep_copy(action)))
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for an action");
	if (!is_wait(action)) {
		e->phase = WORKING;
		e->steps++;
		pthread_cond_broadcast(&e->changed);
	}
	return WW_OK;
}

static json_t *pending_json(struct ww_env *e)
{
	const char *what = e->phase == OPENING ? "The task is being opened" : "The last step is still at work";
	return json_pack("{s:{s:o, s:[], s:b, s:i, s:i, s:s, s:n}, s:n, s:b}", "observation", "text",
		json_sprintf("%s. Step with the tool \"wait\" to ask again.", what), "results", "pending", 1, "turn", e->turn,
		"max_turns", e->max_turns, "episode_id", e->id, "end_reason", "reward", "done", 0);
}

/* Under the lock. */
static int is_pending(const struct ww_env *e) { return e->phase == OPENING || e->phase == WORKING; }

int ww_env_wait(struct ww_env *e, double seconds)
{
	uint64_t start = ww_now_ns();
	double left_s = seconds;
	WW_LOCKED(&e->lock);
	while (is_pending(e) && left_s > 0) {
		(void)ww_cond_wait(&e->changed, &e->lock, left_s);
		left_s = seconds - ww_seconds_since(start);
	}
	return !is_pending(e);
}

enum ww_rc ww_env_observe(struct ww_env *e, double seconds, json_t **out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*out = NULL;
	(void)ww_env_wait(e, seconds);
	pthread_mutex_lock(&e->lock);
	if (e->phase == OVER && e->failed.rc != WW_OK) {
		*err = e->failed;
		rc = e->failed.rc;
	} else if (is_pending(e)) {
		*out = pending_json(e);
	} else if (e->observation) {
		*out = json_pack("{s:O, s:o, s:b}", "observation", e->observation, "reward",
			e->phase == OVER ? ww_json_real(e->reward) : json_null(), "done", e->phase == OVER);
	}
	pthread_mutex_unlock(&e->lock);
	if (rc == WW_OK && !*out)
		rc = ww_err_set(err, WW_ERR_USAGE, "there is no episode: reset first");
	return rc;
}

json_t *ww_env_state(struct ww_env *e)
{
	WW_LOCKED(&e->lock);
	int running = e->phase != IDLE, failed = e->phase == OVER && e->failed.rc != WW_OK,
		done = e->phase == OVER && !failed;
	return json_pack("{s:s?, s:I, s:s?, s:s, s:s, s:b, s:o, s:i}", "episode_id", running ? e->id : NULL, "step_count",
		(json_int_t)e->steps, "task", running ? e->task.name : NULL, "target",
		ww_target_name(ww_broker_opts_of(e->o.broker)->judge.target), "phase",
		failed ? "failed" : phase_names[e->phase], "done", done, "reward", done ? ww_json_real(e->reward) : json_null(),
		"max_turns", running ? e->max_turns : e->o.max_turns);
}

void ww_env_stop(struct ww_env *e)
{
	WW_LOCKED(&e->lock);
	e->stopping = 1;
	pthread_cond_broadcast(&e->changed);
}

enum ww_rc ww_env_new(struct ww_env **out, const struct ww_env_opts *o, struct ww_err *err)
{
	struct ww_env *e;
	enum ww_rc rc;
	*out = NULL;
	WW_CHECK(WW_NEW(e, 1, err));
	e->o = *o;
	e->policy = (struct client_policy){ { &policy_ops }, e };
	e->tmp = (struct ww_tmpdir)WW_TMPDIR_INIT;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
	WW_TRY(ww_json_parse(ww_env_reset_schema, strlen(ww_env_reset_schema), "reset", &e->reset_schema, err));
	WW_TRY(ww_json_parse(ww_env_action_schema, strlen(ww_env_action_schema), "action", &e->action_schema, err));
	*out = e;
	return WW_OK;
out:
	ww_env_free(e);
	return rc;
}

void ww_env_free(struct ww_env *e)
{
	if (!e)
		return;
	end_episode(e);
	json_decref(e->reset_schema);
	json_decref(e->action_schema);
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->changed);
	free(e);
}
