#include "task/held_out.h"

#include "base/json.h"
#include "base/mem.h"
#include "task/outline.h"
#include "task/set.h"
#include "task/signature.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 4 };

struct ww_held_out {
	json_t *by; /* signature or content hash: "SET#ID" */
	size_t n;
};

/* One pass over the rows of a set or the tasks to train on. */
struct pass {
	struct ww_held_out *h;
	const volatile int *interrupted;
	struct ww_outliner *outliner; /* NULL: no task has needed it yet */
};

/* The signature that a row records, or the graph's; "" where there is no graph. */
static enum ww_rc signature_of(
	struct pass *p, const char *recorded, const struct ww_task *task, char *out, struct ww_err *err)
{
	WW_AUTO(ww_outline_release) struct ww_outline o = { .body = NULL };
	WW_AUTO(ww_signature_release) struct ww_signature s = { .operators = NULL };
	struct ww_err ignored = WW_ERR_INIT;
	*out = 0;
	if (ww_signature_is(recorded)) {
		strcpy(out, recorded);
		return WW_OK;
	}
	if (!p->outliner)
		WW_CHECK(ww_outliner_new(
			&p->outliner, &(struct ww_outline_opts){ .graph_only = 1, .interrupted = p->interrupted }, err));
	WW_CHECK(ww_outline(p->outliner, task, 0, &o, err));
	if (o.graph && ww_task_signature(o.graph, &s, &ignored) == WW_OK)
		strcpy(out, s.text);
	return WW_OK;
}

/* ---- The held-out tasks ------------------------------------------------------------------------------------------ */

static enum ww_rc hold(struct pass *p, const struct ww_set *set, const struct ww_set_row *row, struct ww_err *err)
{
	WW_AUTO(ww_task_release) struct ww_task task = { .path = NULL };
	char signature[WW_SIGNATURE_TEXT];
	WW_CHECK(ww_set_task(set, row, &task, err));
	WW_CHECK(signature_of(p, ww_json_str(row->fields, "signature", NULL), &task, signature, err));
	if (*signature)
		json_object_set_new(p->h->by, signature, json_string(task.path));
	json_object_set_new(p->h->by, task.id, json_string(task.path));
	p->h->n++;
	return WW_OK;
}

static enum ww_rc hold_set(struct pass *p, const char *path, struct ww_err *err)
{
	const struct ww_set_opts opts = { .keep_broken = 1, .interrupted = p->interrupted };
	const struct ww_set_row *row;
	struct ww_set *set;
	enum ww_rc rc;
	WW_CHECK(ww_set_open(&set, path, &opts, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row)
		if (!row->problem && strcmp(ww_json_str(row->fields, "split", ""), "train") &&
			(rc = hold(p, set, row, err)) != WW_OK)
			break;
	ww_set_close(set);
	return rc;
}

enum ww_rc ww_held_out_open(
	struct ww_held_out **out, const char *sets, const volatile int *interrupted, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct pass p = { .interrupted = interrupted };
	char path[PATH_MAX];
	int part;
	*out = NULL;
	WW_CHECK(WW_NEW(p.h, 1, err));
	if (!(p.h->by = json_object()))
		WW_TRY(ww_nomem(err));
	while ((part = ww_list_part(&sets, path, sizeof(path))) > 0)
		WW_TRY(hold_set(&p, path, err));
	if (part < 0)
		WW_TRY(ww_err_set(err, WW_ERR_USAGE, "the name of a held-out set is too long"));
	*out = p.h;
	p.h = NULL;
out:
	ww_outliner_free(p.outliner);
	ww_held_out_free(p.h);
	return rc;
}

void ww_held_out_free(struct ww_held_out *h)
{
	if (!h)
		return;
	json_decref(h->by);
	free(h);
}

size_t ww_held_out_count(const struct ww_held_out *h) { return h->n; }

const char *ww_held_out_find(const struct ww_held_out *h, const char *signature, const char *task_id)
{
	const char *const keys[] = { signature, task_id };
	for (size_t i = 0; i < WW_ARRAY_LEN(keys); i++)
		if (keys[i] && json_object_get(h->by, keys[i]))
			return json_string_value(json_object_get(h->by, keys[i]));
	return NULL;
}

/* ---- Tasks to train on ------------------------------------------------------------------------------------------- */

/* The task, and the signature that its row of a set records: malloc'ed, NULL where there is none. */
static enum ww_rc load(const char *name, struct ww_task *task, char **recorded, struct ww_err *err)
{
	char path[PATH_MAX];
	const char *id = ww_set_split(name, path);
	const struct ww_set_row *row;
	struct ww_set *set;
	*recorded = NULL;
	if (!id)
		return ww_task_load(task, name, err);
	WW_CHECK(ww_set_open(&set, path, NULL, err));
	enum ww_rc rc = ww_set_find(set, id, &row, err);
	if (rc == WW_OK)
		rc = ww_set_task(set, row, task, err);
	const char *signature = rc == WW_OK ? ww_json_str(row->fields, "signature", NULL) : NULL;
	if (signature && !(*recorded = strdup(signature)))
		rc = ww_nomem(err);
	ww_set_close(set);
	return rc;
}

/* The held-out task that this one equals: *held borrowed, NULL: none. */
static enum ww_rc find_equal(
	struct pass *p, const struct ww_held_out *h, const char *name, const char **held, struct ww_err *err)
{
	WW_AUTO(ww_task_release) struct ww_task task = { .path = NULL };
	ww_auto_free char *recorded = NULL;
	char signature[WW_SIGNATURE_TEXT];
	if (p->interrupted && *p->interrupted)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	WW_CHECK(load(name, &task, &recorded, err));
	WW_CHECK(signature_of(p, recorded, &task, signature, err));
	*held = ww_held_out_find(h, signature, task.id);
	return WW_OK;
}

enum ww_rc ww_held_out_check(
	const struct ww_held_out *h, char *const *tasks, size_t n, const volatile int *interrupted, struct ww_err *err)
{
	struct pass p = { .interrupted = interrupted };
	ww_auto_str names = WW_STR_INIT(1024);
	const char *first = NULL;
	size_t found = 0;
	enum ww_rc rc = WW_OK;
	for (size_t i = 0; i < n; i++) {
		const char *held = NULL;
		WW_TRY(find_equal(&p, h, tasks[i], &held, err));
		if (held && found++ < LISTED)
			ww_str_addf(&names, "%s%.200s", found > 1 ? ", " : "", tasks[i]);
		first = first ? first : held;
	}
	if (found)
		rc = ww_err_set(err, WW_ERR_USAGE,
			"%zu of the tasks to train on are held out, by their signatures: %s%s (the first is %.300s); leave them out",
			found, names.p, found > LISTED ? ", ..." : "", first);
out:
	ww_outliner_free(p.outliner);
	return rc;
}
