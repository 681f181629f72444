/* mcp_task.c - tasks: calls whose answer is polled for.
 *
 * A task is a row in the server's list, named by 128 random bits: knowing the name is the right to ask (2026-07-28 has
 * no session to tie it to).  Finished tasks are dropped a day after they were made, or when there are WW_MCP_MAX_TASKS
 * tasks; working ones never.  A cancelled task ends for its client at once; its call ends later, and the result is
 * dropped.
 *
 * The two revisions with tasks differ in names (ttl and ttlMs), in where the result is (tasks/result, which waits, or
 * inside tasks/get) and in what tasks/cancel answers; both see the same rows.
 */
#include "serve/mcp_internal.h"

#include "base/json.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { KEEP_MS = 86400000, POLL_MS = 1000 };

static const char *const status_names[] = { "working", "completed", "failed", "cancelled" };

void ww_mcp_task_free(struct ww_mcp_task *t)
{
	while (t->waiters) {
		struct ww_mcp_waiter *w = t->waiters;
		t->waiters = w->next;
		ww_mcp_peer_unref(w->peer);
		json_decref(w->id);
		free(w);
	}
	json_decref(t->result);
	free(t);
}

static int is_old(const struct ww_mcp_task *t) { return ww_seconds_since(t->created_ns) * 1000 > KEEP_MS; }

/* Drop what is too old, and beyond the limit the oldest that has ended. */
static void drop_some(struct ww_mcp *m)
{
	struct ww_mcp_task **last = NULL;
	for (struct ww_mcp_task **at = &m->tasks; *at;) {
		struct ww_mcp_task *t = *at;
		if (!t->call && is_old(t)) {
			*at = t->next;
			ww_mcp_task_free(t);
			m->n_tasks--;
			continue;
		}
		if (!t->call)
			last = at;
		at = &t->next;
	}
	if (m->n_tasks >= WW_MCP_MAX_TASKS && last) {
		struct ww_mcp_task *t = *last;
		*last = t->next;
		ww_mcp_task_free(t);
		m->n_tasks--;
	}
}

struct ww_mcp_task *ww_mcp_task_new(struct ww_mcp *m, struct ww_mcp_peer *p)
{
	unsigned char bits[16];
	struct ww_mcp_task *t = calloc(1, sizeof(*t));
	if (!t || getrandom(bits, sizeof(bits), 0) != sizeof(bits)) {
		free(t);
		return NULL;
	}
	drop_some(m);
	for (size_t i = 0; i < sizeof(bits); i++)
		snprintf(t->id + 2 * i, 3, "%02x", bits[i]);
	t->owner = p->conversation->serial;
	t->created_ns = ww_now_ns();
	ww_utc_text(t->created);
	memcpy(t->updated, t->created, sizeof(t->updated));
	snprintf(t->message, sizeof(t->message), "started");
	t->next = m->tasks;
	m->tasks = t;
	m->n_tasks++;
	return t;
}

void ww_mcp_task_undo(struct ww_mcp *m)
{
	struct ww_mcp_task *t = m->tasks;
	m->tasks = t->next;
	m->n_tasks--;
	ww_mcp_task_free(t);
}

void ww_mcp_task_ended(struct ww_mcp_task *t, enum ww_mcp_status status, const char *message, json_t *result)
{
	t->status = status;
	t->result = result;
	snprintf(t->message, sizeof(t->message), "%s", message);
	ww_utc_text(t->updated);
}

json_t *ww_mcp_task_json(const struct ww_mcp_task *t, enum ww_mcp_revision v)
{
	int modern = v == WW_MCP_2026_07_28;
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i}", "taskId", t->id, "status", status_names[t->status],
		"statusMessage", t->message, "createdAt", t->created, "lastUpdatedAt", t->updated, modern ? "ttlMs" : "ttl",
		KEEP_MS, modern ? "pollIntervalMs" : "pollInterval", POLL_MS);
}

/* Under the lock. */
static struct ww_mcp_task *find(const struct ww_mcp_request *r)
{
	const char *id = ww_json_str(r->params, "taskId", "");
	struct ww_mcp_task *t = r->peer->m->tasks;
	while (t && strcmp(t->id, id))
		t = t->next;
	return t;
}

static void unknown(const struct ww_mcp_request *r)
{
	ww_mcp_fail(
		r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL, "there is no such task, or it is over for more than a day");
}

/* What tools/call would have answered, as an answer to tasks/result. */
static void respond_result(
	struct ww_mcp_peer *p, const json_t *id, const char *task_id, enum ww_mcp_status status, const json_t *result)
{
	if (status == WW_MCP_CANCELLED || !result) {
		ww_mcp_fail(p, id, WW_MCP_INTERNAL, NULL, "the task was cancelled");
		return;
	}
	json_t *o = json_deep_copy(result);
	json_object_set_new(o, "_meta", json_pack("{s:{s:s}}", "io.modelcontextprotocol/related-task", "taskId", task_id));
	ww_mcp_respond(p, id, o);
}

void ww_mcp_answer_waiters(
	struct ww_mcp *m, struct ww_mcp_waiter *w, const char *task_id, enum ww_mcp_status status, json_t *result)
{
	while (w) {
		struct ww_mcp_waiter *next = w->next;
		respond_result(w->peer, w->id, task_id, status, result);
		pthread_mutex_lock(&m->lock);
		ww_mcp_peer_unref(w->peer);
		pthread_mutex_unlock(&m->lock);
		json_decref(w->id);
		free(w);
		w = next;
	}
}

void ww_mcp_drop_waiters(struct ww_mcp_peer *p)
{
	for (struct ww_mcp_task *t = p->m->tasks; t; t = t->next)
		for (struct ww_mcp_waiter **at = &t->waiters, *w; (w = *at);) {
			if (w->peer != p) {
				at = &w->next;
				continue;
			}
			*at = w->next;
			ww_mcp_peer_unref(p);
			json_decref(w->id);
			free(w);
		}
}

/* ---- Methods ----------------------------------------------------------------------------------------------------- */

void ww_mcp_tasks_get(const struct ww_mcp_request *r)
{
	json_t *o = NULL;
	pthread_mutex_lock(&r->peer->m->lock);
	const struct ww_mcp_task *t = find(r);
	if (t)
		o = ww_mcp_task_json(t, r->revision);
	if (t && r->revision == WW_MCP_2026_07_28 && t->status == WW_MCP_COMPLETED)
		json_object_set_new(o, "result", ww_mcp_complete(r->revision, json_deep_copy(t->result)));
	pthread_mutex_unlock(&r->peer->m->lock);
	if (o)
		ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, o));
	else
		unknown(r);
}

void ww_mcp_tasks_result(const struct ww_mcp_request *r)
{
	struct ww_mcp *m = r->peer->m;
	struct ww_mcp_waiter *w = NULL;
	char id[33] = "";
	enum ww_mcp_status status = WW_MCP_WORKING;
	json_t *result = NULL;
	pthread_mutex_lock(&m->lock);
	struct ww_mcp_task *t = find(r);
	if (t) {
		memcpy(id, t->id, sizeof(id));
		status = t->status;
		result = t->result ? json_deep_copy(t->result) : NULL;
	}
	if (t && status == WW_MCP_WORKING && (w = calloc(1, sizeof(*w)))) {
		*w = (struct ww_mcp_waiter){ ww_mcp_peer_ref(r->peer), json_deep_copy(r->id), t->waiters };
		t->waiters = w;
	}
	pthread_mutex_unlock(&m->lock);
	if (!t)
		unknown(r);
	else if (!w)
		respond_result(r->peer, r->id, id, status, result);
	json_decref(result);
}

void ww_mcp_tasks_list(const struct ww_mcp_request *r)
{
	json_t *list = json_array();
	pthread_mutex_lock(&r->peer->m->lock);
	for (const struct ww_mcp_task *t = r->peer->m->tasks; t; t = t->next)
		if (t->owner == r->peer->conversation->serial)
			json_array_append_new(list, ww_mcp_task_json(t, r->revision));
	pthread_mutex_unlock(&r->peer->m->lock);
	ww_mcp_respond(r->peer, r->id, json_pack("{s:o}", "tasks", list));
}

/* Our tools ask their clients nothing, so an update answers nothing. */
void ww_mcp_tasks_update(const struct ww_mcp_request *r)
{
	pthread_mutex_lock(&r->peer->m->lock);
	int found = find(r) != NULL;
	pthread_mutex_unlock(&r->peer->m->lock);
	if (found)
		ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, json_object()));
	else
		unknown(r);
}

void ww_mcp_tasks_cancel(const struct ww_mcp_request *r)
{
	struct ww_mcp *m = r->peer->m;
	struct ww_mcp_waiter *w = NULL;
	json_t *o = NULL;
	int was_over = 0;
	pthread_mutex_lock(&m->lock);
	struct ww_mcp_task *t = find(r);
	if (t) {
		was_over = t->status != WW_MCP_WORKING;
		if (!was_over)
			ww_mcp_task_ended(t, WW_MCP_CANCELLED, "cancelled by request", NULL);
		if (t->call)
			ww_mcp_call_cancel(t->call);
		w = t->waiters;
		t->waiters = NULL;
		o = ww_mcp_task_json(t, r->revision);
	}
	pthread_mutex_unlock(&m->lock);
	ww_mcp_answer_waiters(m, w, "", WW_MCP_CANCELLED, NULL);
	if (!t) {
		unknown(r);
	} else if (r->revision == WW_MCP_2026_07_28) {
		ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, json_object()));
	} else if (was_over) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL, "the task is over already");
	} else {
		ww_mcp_respond(r->peer, r->id, json_incref(o));
	}
	json_decref(o);
}
