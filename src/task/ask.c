/* ask.c - one request to the reference worker and its answer (ask.h).
 *
 * This is the one place where an answer's error becomes a return code.  An answer that lacks a member is a broken
 * protocol: the worker is killed, since nothing that follows could be trusted.
 */
#include "task/ask.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ww_rc answered_error(const json_t *body, struct ww_err *err)
{
	const json_t *e = json_object_get(body, "error");
	const char *kind = ww_json_str(e, "kind", "internal"), *text = ww_json_str(e, "message", "no reason given");
	enum ww_rc rc = !strcmp(kind, "task") ? WW_ERR_TASK
		: !strcmp(kind, "memory")         ? WW_ERR_ROOM
		: !strcmp(kind, "missing")        ? WW_ERR_MISSING
		: !strcmp(kind, "device")         ? WW_ERR_DEVICE
		: !strcmp(kind, "request")        ? WW_ERR_USAGE
										  : WW_ERR_WORKER;
	return ww_err_set(err, rc, "%s%s", rc == WW_ERR_WORKER ? "the reference worker failed: " : "", text);
}

void ww_ref_drop_fds(int **fds, int *n)
{
	for (int i = 0; i < *n; i++)
		close((*fds)[i]);
	free(*fds);
	*fds = NULL;
	*n = 0;
}

enum ww_rc ww_ref_check_answer(struct ww_ref *r, json_t **body, struct ww_err *err)
{
	int ok;
	enum ww_rc rc = ww_json_get_bool(*body, "ok", WW_REF_ANSWER, &ok, err);
	if (rc != WW_OK)
		ww_worker_kill(&r->worker, err);
	else if (!ok)
		rc = answered_error(*body, err);
	if (rc != WW_OK) {
		json_decref(*body);
		*body = NULL;
	}
	return rc;
}

enum ww_rc ww_ref_ask_fds(struct ww_ref *r, json_t *q, const int *sent, int n_sent, double seconds, json_t **body,
	int **fds, int *n_fds, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int *got = NULL, n = 0;
	uint64_t start = ww_now_ns(), by = ww_deadline_ns(seconds);
	*body = NULL;
	if (!q)
		return ww_nomem(err);
	WW_BUG(r->armed);
	WW_TRY(ww_ref_await(r, err));
	WW_TRY(ww_worker_send(&r->worker, q, sent, n_sent, by, err));
	WW_TRY(ww_worker_receive(&r->worker, body, &got, &n, by, err));
	ww_log(
		WW_LOG_DEBUG, "reference worker: %s, %.0f us", ww_json_str(q, "request", "?"), ww_seconds_since(start) * 1e6);
	WW_TRY(ww_ref_check_answer(r, body, err));
	if (fds) {
		*fds = got;
		*n_fds = n;
		got = NULL;
		n = 0;
	}
out:
	ww_ref_drop_fds(&got, &n);
	json_decref(q);
	return rc;
}

enum ww_rc ww_ref_ask(
	struct ww_ref *r, json_t *q, const int *fds, int n, double seconds, json_t **body, struct ww_err *err)
{
	return ww_ref_ask_fds(r, q, fds, n, seconds, body, NULL, NULL, err);
}

enum ww_rc ww_ref_finish(struct ww_ref *r, json_t *body, enum ww_rc rc, struct ww_err *err)
{
	json_decref(body);
	if (rc == WW_ERR_PROTOCOL)
		ww_worker_kill(&r->worker, err);
	return rc;
}
