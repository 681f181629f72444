/* mcp_call.c - calls of tools: checked, started in a thread, cancelled, answered.
 *
 * A call belongs to its thread; what other threads touch (cancelled, steps, task) is under the server's lock.
 * Nothing is sent while that lock is held, so a client that does not read holds up its own calls only.  The order at
 * the end of a call: it leaves the list under the lock, which settles whether it was cancelled before, then the answer
 * is sent, then n_calls falls; waiting for "no calls" is therefore also waiting for the last answer.
 *
 * A call that becomes a task, and each call over stdio, gets a thread; a peer that blocks (HTTP, where each request has
 * a thread) carries out the others itself.
 */
#include "serve/mcp_internal.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/schema.h"
#include "base/time.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- One call ---------------------------------------------------------------------------------------------------- */

static json_t *answer_json(const struct ww_mcp_answer *a)
{
	ww_auto_str text = WW_STR_INIT(4 * WW_MCP_TEXT_MAX_BYTES);
	ww_str_add_bounded(&text, a->text.p, a->text.len, WW_MCP_TEXT_MAX_BYTES);
	json_t *o = json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text", text.p, "isError", a->is_error);
	if (a->data && !a->is_error)
		json_object_set(o, "structuredContent", a->data);
	return o;
}

static json_t *error_answer(const char *text)
{
	return json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text", text, "isError", 1);
}

static json_t *work(struct ww_mcp_call *c)
{
	struct ww_mcp_answer a = { .text = WW_STR_INIT(64 << 20) };
	struct ww_err err = WW_ERR_INIT;
	if (c->tool->run(c->m->o.ctx, c->args, c, &a, &err) != WW_OK) {
		a.is_error = 1;
		ww_str_reset(&a.text);
		ww_str_adds(&a.text, err.msg);
	}
	json_t *o = answer_json(&a);
	json_decref(a.data);
	ww_str_release(&a.text);
	return o;
}

static void call_free(struct ww_mcp_call *c) /* under the lock */
{
	ww_mcp_peer_unref(c->peer);
	json_decref(c->id);
	json_decref(c->args);
	json_decref(c->token);
	free(c);
}

static void leave_list(struct ww_mcp_call *c)
{
	struct ww_mcp_call **at = &c->m->calls;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

/* Under the lock: the task's state, and who waits for its result. */
static struct ww_mcp_waiter *end_task(struct ww_mcp_call *c, json_t *result)
{
	struct ww_mcp_task *t = c->task;
	int failed = ww_json_bool(result, "isError", 0);
	t->call = NULL;
	if (t->status == WW_MCP_WORKING)
		ww_mcp_task_ended(t, failed && c->revision != WW_MCP_2026_07_28 ? WW_MCP_FAILED : WW_MCP_COMPLETED,
			failed ? "the tool failed; the result says how" : "done", json_deep_copy(result));
	struct ww_mcp_waiter *w = t->waiters;
	t->waiters = NULL;
	return w;
}

/* Returns with the lock held. */
static void carry_out(struct ww_mcp_call *c)
{
	struct ww_mcp *m = c->m;
	json_t *result = work(c);
	struct ww_mcp_waiter *waiters = NULL;
	char task_id[33] = "";
	enum ww_mcp_status status = WW_MCP_COMPLETED;

	pthread_mutex_lock(&m->lock);
	leave_list(c);
	int silent = c->cancelled;
	if (c->task) {
		waiters = end_task(c, result);
		memcpy(task_id, c->task->id, sizeof(task_id));
		status = c->task->status;
	}
	pthread_mutex_unlock(&m->lock);

	if (*task_id)
		ww_mcp_answer_waiters(m, waiters, task_id, status, result);
	else if (!silent)
		ww_mcp_respond(c->peer, c->id, ww_mcp_complete(c->revision, json_incref(result)));
	else
		ww_mcp_no_answer(c->peer);
	json_decref(result);

	pthread_mutex_lock(&m->lock);
	call_free(c);
	m->n_calls--;
	pthread_cond_broadcast(&m->idle);
}

static void *thread_main(void *call)
{
	struct ww_mcp *m = ((struct ww_mcp_call *)call)->m;
	carry_out(call);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static int start_thread(struct ww_mcp_call *c)
{
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int good = !pthread_create(&thread, &attr, thread_main, c);
	pthread_attr_destroy(&attr);
	return good;
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

/* A reference to a part of the message, which is not changed any more. */
static json_t *keep(const json_t *v) { return json_incref((json_t *)(uintptr_t)v); }

/* Under the lock; NULL: out of memory. */
static struct ww_mcp_call *call_new(const struct ww_mcp_request *r, const struct ww_mcp_tool *tool, const json_t *args)
{
	struct ww_mcp_call *c = calloc(1, sizeof(*c));
	const json_t *token = json_object_get(r->meta, "progressToken");
	if (!c)
		return NULL;
	c->m = r->peer->m;
	c->peer = ww_mcp_peer_ref(r->peer);
	c->revision = r->revision;
	c->tool = tool;
	c->id = keep(r->id);
	c->args = args ? keep(args) : json_object();
	c->token = json_is_string(token) || json_is_integer(token) ? keep(token) : NULL;
	return c;
}

/* Under the lock.  *created gets the answer where the call became a task.  0: no memory, or no thread. */
static int start(struct ww_mcp_call *c, int as_task, json_t **created)
{
	struct ww_mcp *m = c->m;
	if (as_task && !(c->task = ww_mcp_task_new(m, c->peer)))
		return 0;
	if ((as_task || !c->peer->waits) && !start_thread(c)) {
		if (as_task)
			ww_mcp_task_undo(m);
		return 0;
	}
	if (as_task) {
		c->task->call = c;
		*created = ww_mcp_task_json(c->task, c->revision);
	}
	c->next = m->calls;
	m->calls = c;
	m->n_calls++;
	return 1;
}

/* The first answer about a new task, in its revision's form. */
static json_t *created_json(const struct ww_mcp_request *r, json_t *task)
{
	if (r->revision != WW_MCP_2026_07_28)
		return json_pack("{s:o}", "task", task);
	json_object_set_new(task, "resultType", json_string("task"));
	return ww_mcp_complete(r->revision, task);
}

static int is_running(const struct ww_mcp_request *r)
{
	for (const struct ww_mcp_call *c = r->peer->m->calls; c; c = c->next)
		if (c->peer->conversation == r->peer->conversation && !c->task && json_equal(c->id, r->id))
			return 1;
	return 0;
}

/* Under the lock: whether a session has used its share of the calls. */
static int has_its_share(const struct ww_mcp_request *r)
{
	const struct ww_mcp *m = r->peer->m;
	int n = 0;
	for (const struct ww_mcp_call *c = m->calls; c; c = c->next)
		n += c->peer->conversation == r->peer->conversation;
	return m->o.max_of_session && n >= m->o.max_of_session;
}

static void begin(const struct ww_mcp_request *r, const struct ww_mcp_tool *tool, const json_t *args, int as_task)
{
	struct ww_mcp *m = r->peer->m;
	const char *why = NULL;
	json_t *created = NULL;
	struct ww_mcp_call *c = NULL;
	pthread_mutex_lock(&m->lock);
	if (m->n_calls >= m->o.max_running || has_its_share(r))
		why = "too many calls run already: wait for one of them, or cancel it";
	else if (is_running(r))
		why = "a call with this id runs already";
	else if (!(c = call_new(r, tool, args)) || !start(c, as_task, &created))
		why = "the call could not be started: no memory, or no thread";
	if (why && c)
		call_free(c);
	pthread_mutex_unlock(&m->lock);
	/* The thread may have ended already and the task be gone, but `created` is ours. */
	if (why) {
		json_decref(created);
		ww_mcp_fail(r->peer, r->id, WW_MCP_BUSY, NULL, "%s", why);
	} else if (created) {
		ww_mcp_respond(r->peer, r->id, created_json(r, created));
	} else if (r->peer->waits) {
		carry_out(c);
		pthread_mutex_unlock(&m->lock);
	}
}

void ww_mcp_tools_call(const struct ww_mcp_request *r)
{
	struct ww_mcp *m = r->peer->m;
	const char *name = ww_json_str(r->params, "name", NULL);
	const json_t *args = json_object_get(r->params, "arguments"), *want = json_object_get(r->params, "task");
	size_t i = 0;
	while (name && i < m->o.n_tools && strcmp(m->o.tools[i].name, name))
		i++;
	if (!name || i == m->o.n_tools || (args && !json_is_object(args))) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL,
			!name || i < m->o.n_tools ? "tools/call needs \"name\" and, if any, \"arguments\" as an object"
									  : "Unknown tool: %.100s",
			name);
		return;
	}
	int slow = m->o.tools[i].slow,
		as_task = r->revision == WW_MCP_2026_07_28 ? slow && r->follows_tasks
												   : r->revision == WW_MCP_2025_11_25 && json_is_object(want);
	if (as_task && !slow) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_NO_METHOD, NULL, "%s is quick and cannot be a task", name);
		return;
	}
	ww_auto_str why = WW_STR_INIT(1024);
	if (ww_schema_fits(m->inputs[i], args, &why)) {
		begin(r, &m->o.tools[i], args, as_task);
	} else if (as_task && r->revision != WW_MCP_2026_07_28) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL, "%s: %s", name, why.p);
	} else { /* for the model to read and correct */
		ww_auto_str text = WW_STR_INIT(2048);
		ww_str_addf(&text, "%s: %s", name, why.p);
		ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, error_answer(text.p)));
	}
}

/* ---- Functions for tools ----------------------------------------------------------------------------------------- */

int ww_mcp_call_cancelled(struct ww_mcp_call *c)
{
	int in_vain = !c->task && c->peer->waits && !c->peer->waits(c->peer->ctx);
	WW_LOCKED(&c->m->lock);
	return c->cancelled |= in_vain;
}

uint64_t ww_mcp_call_client(const struct ww_mcp_call *c)
{
	const struct ww_mcp_peer *p = c->peer->conversation;
	return atomic_load(&p->legacy) != WW_MCP_NONE ? p->serial : 0;
}

const struct ww_mcp_tool *ww_mcp_call_tool(const struct ww_mcp_call *c) { return c->tool; }

void ww_mcp_call_progress(struct ww_mcp_call *c, const char *text)
{
	ww_auto_str clean = WW_STR_INIT(1024);
	char task_id[33] = "";
	ww_str_add_bounded(&clean, text, strlen(text), 240);
	pthread_mutex_lock(&c->m->lock);
	int64_t step = ++c->steps;
	int silent = c->cancelled;
	if (c->task && c->task->status == WW_MCP_WORKING) {
		snprintf(c->task->message, sizeof(c->task->message), "%s", clean.p);
		ww_utc_text(c->task->updated);
		memcpy(task_id, c->task->id, sizeof(task_id));
	}
	pthread_mutex_unlock(&c->m->lock);
	/* With 2026-07-28 the request of a task is over when the task is made: its status is polled. */
	if (c->token && !silent && !(c->task && c->revision == WW_MCP_2026_07_28)) {
		json_t *o = json_pack("{s:s, s:s, s:{s:O, s:I, s:s}}", "jsonrpc", "2.0", "method", "notifications/progress",
			"params", "progressToken", c->token, "progress", (json_int_t)step, "message", clean.p);
		if (*task_id)
			json_object_set_new(json_object_get(o, "params"), "_meta",
				json_pack("{s:{s:s}}", "io.modelcontextprotocol/related-task", "taskId", task_id));
		ww_mcp_send(c->peer, o);
	}
}

/* ---- Cancelling -------------------------------------------------------------------------------------------------- */

void ww_mcp_call_cancel(struct ww_mcp_call *c) { c->cancelled = 1; }

/* id NULL: all of the conversation. */
static void cancel_some(struct ww_mcp_peer *p, const json_t *id)
{
	for (struct ww_mcp_call *c = p->m->calls; c; c = c->next)
		if (c->peer->conversation == p->conversation && !c->task && (!id || json_equal(c->id, id)))
			ww_mcp_call_cancel(c);
}

void ww_mcp_cancel_all(struct ww_mcp_peer *p) { cancel_some(p, NULL); }

void ww_mcp_cancel_request(struct ww_mcp_peer *p, const json_t *id)
{
	if (!id)
		return;
	WW_LOCKED(&p->m->lock);
	cancel_some(p, id);
}

void ww_mcp_wind_up(struct ww_mcp *m)
{
	WW_LOCKED(&m->lock);
	for (struct ww_mcp_call *c = m->calls; c; c = c->next)
		if (c->tool->resumes)
			ww_mcp_call_cancel(c);
}

void ww_mcp_stop_calls(struct ww_mcp *m)
{
	WW_LOCKED(&m->lock);
	for (struct ww_mcp_call *c = m->calls; c; c = c->next)
		ww_mcp_call_cancel(c);
	while (m->n_calls)
		pthread_cond_wait(&m->idle, &m->lock);
	while (m->tasks) {
		struct ww_mcp_task *t = m->tasks;
		m->tasks = t->next;
		ww_mcp_task_free(t);
	}
}

int ww_mcp_running(struct ww_mcp *m)
{
	WW_LOCKED(&m->lock);
	return m->n_calls;
}
