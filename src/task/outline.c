#include "task/outline.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/ask.h"
#include "task/graph/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double START_S = 120, SLACK_S = 120, MAX_S = 60;
static const uint64_t MAX_BYTES = 4ull << 30;
enum { PARTS = 3 };

struct ww_outliner {
	struct ww_outline_opts o;
	char *roots;
	struct ww_ref *worker;
	struct ww_ref_info info; /* python and torch */
};

enum ww_rc ww_outliner_new(struct ww_outliner **out, const struct ww_outline_opts *opts, struct ww_err *err)
{
	struct ww_outliner *o;
	*out = NULL;
	WW_CHECK(WW_NEW(o, 1, err));
	o->o = *opts;
	o->o.max_s = opts->max_s > 0 ? opts->max_s : MAX_S;
	o->o.max_bytes = opts->max_bytes ? opts->max_bytes : MAX_BYTES;
	o->roots = strdup(opts->roots ? opts->roots : "");
	o->o.roots = o->roots;
	if (!o->roots) {
		free(o);
		return ww_nomem(err);
	}
	*out = o;
	return WW_OK;
}

void ww_outliner_free(struct ww_outliner *o)
{
	if (!o)
		return;
	ww_ref_close(o->worker);
	free(o->roots);
	free(o);
}

/* Whether each root of a task lies in one that the worker sees. */
static int sees(const struct ww_outliner *o, const struct ww_task *task)
{
	for (const char *at = task->roots; at && *at; at += *at == ':') {
		size_t n = strcspn(at, ":");
		int found = 0;
		for (const char *seen = o->roots; *seen && !found; seen += *seen == ':') {
			size_t k = strcspn(seen, ":");
			found = k && k <= n && !strncmp(seen, at, k) && (k == n || at[k] == '/');
			seen += k;
		}
		if (n && !found)
			return 0;
		at += n;
	}
	return 1;
}

/* A worker sees what it was started with, so a task from elsewhere needs another one. */
static enum ww_rc see(struct ww_outliner *o, const struct ww_task *task, struct ww_err *err)
{
	if (sees(o, task))
		return WW_OK;
	char *roots = strdup(task->roots);
	if (!roots)
		return ww_nomem(err);
	free(o->roots);
	o->o.roots = o->roots = roots;
	ww_ref_close(o->worker);
	o->worker = NULL;
	return WW_OK;
}

/* A machine without PyTorch is at fault itself, and no task: it shows here. */
static enum ww_rc get_ready(struct ww_outliner *o, struct ww_err *err)
{
	json_t *body, *versions;
	WW_CHECK(ww_ref_ask(o->worker, json_pack("{s:s}", "request", "outliner"), NULL, 0, START_S, &body, err));
	enum ww_rc rc = ww_json_get_object(body, "versions", WW_REF_ANSWER, &versions, err);
	if (rc == WW_OK) {
		snprintf(o->info.python, sizeof(o->info.python), "%s", ww_json_str(versions, "python", ""));
		snprintf(o->info.torch, sizeof(o->info.torch), "%s", ww_json_str(versions, "torch", ""));
	}
	return ww_ref_finish(o->worker, body, rc, err);
}

static enum ww_rc start(struct ww_outliner *o, struct ww_err *err)
{
	const struct ww_task places = { .roots = o->roots };
	const struct ww_ref_opts opts = { .target = o->o.trial && !strcmp(o->o.trial, "cuda") ? WW_TARGET_CUDA
																						  : WW_TARGET_CPU,
		.text_only = 1,
		.one_compiler = 1,
		.max_resident_bytes = o->o.max_bytes + ((uint64_t)2 << 30),
		.visible = &places,
		.interrupted = o->o.interrupted };
	if (o->worker && ww_ref_alive(o->worker))
		return WW_OK;
	ww_ref_close(o->worker);
	o->worker = NULL;
	WW_CHECK(ww_ref_open(&o->worker, &opts, err));
	enum ww_rc rc = get_ready(o, err);
	if (rc != WW_OK) {
		ww_ref_close(o->worker);
		o->worker = NULL;
	}
	return rc;
}

static json_t *request(const struct ww_outliner *o, const struct ww_task *task, int with_trial)
{
	json_t *q = ww_ref_task_request("outline", task);
	if (!q)
		return NULL;
	json_object_set_new(q, "seconds", json_real(o->o.max_s));
	json_object_set_new(q, "graph_only", json_boolean(o->o.graph_only));
	json_object_set_new(q, "memory_bytes", json_integer((json_int_t)o->o.max_bytes));
	if (with_trial && o->o.trial)
		json_object_set_new(
			q, "trial", json_pack("{s:s, s:i, s:i}", "target", o->o.trial, "device", o->o.device, "threads", 1));
	return q;
}

enum ww_rc ww_outliner_info(struct ww_outliner *o, const struct ww_ref_info **out, struct ww_err *err)
{
	WW_CHECK(start(o, err));
	*out = &o->info;
	return WW_OK;
}

/* The outline of a task that has ended the whole worker. */
static enum ww_rc outline_of_lost(json_t **body, const struct ww_err *how, struct ww_err *err)
{
	*body = json_pack("{s:s, s:s, s:s}", "tokens_error", how->msg, "graph_error", how->msg, "trial_error", how->msg);
	return *body ? WW_OK : ww_nomem(err);
}

void ww_outline_of(json_t *body, struct ww_outline *out)
{
	struct ww_err err = WW_ERR_INIT;
	out->body = body;
	out->tokens = ww_json_str(body, "tokens", NULL);
	out->graph = json_object_get(body, "graph");
	if (out->graph && ww_graph_check(out->graph, &err) != WW_OK) {
		json_object_set_new(body, "graph_error", json_string(err.msg));
		out->graph = NULL;
	}
	out->trial = json_object_get(body, "trial");
	out->tokens_error = out->tokens ? NULL : ww_json_str(body, "tokens_error", "no answer");
	out->graph_error = out->graph ? NULL : ww_json_str(body, "graph_error", "no answer");
	out->trial_error = out->trial ? NULL : ww_json_str(body, "trial_error", "not run");
}

enum ww_rc ww_outline(
	struct ww_outliner *o, const struct ww_task *task, int with_trial, struct ww_outline *out, struct ww_err *err)
{
	json_t *body = NULL;
	memset(out, 0, sizeof(*out));
	WW_CHECK(see(o, task, err));
	WW_CHECK(start(o, err));
	enum ww_rc rc = ww_ref_ask(
		o->worker, request(o, task, with_trial), NULL, 0, PARTS * o->o.max_s + SLACK_S, &body, err);
	if (rc == WW_ERR_TIMEOUT || rc == WW_ERR_WORKER || rc == WW_ERR_LIMIT || rc == WW_ERR_PROTOCOL)
		rc = outline_of_lost(&body, err, err);
	if (rc == WW_OK)
		ww_outline_of(body, out);
	return rc;
}

void ww_outline_release(struct ww_outline *o)
{
	json_decref(o->body);
	memset(o, 0, sizeof(*o));
}
