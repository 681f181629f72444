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

enum { LISTED = 12 };
static const char version[] = "s1:";

struct ww_held_out {
	json_t *by; /* signature or content hash: "SET#ID" */
	size_t n;
};

/* What is going on over the rows of one set. */
struct pass {
	struct ww_held_out *h;
	const volatile int *interrupted;
	struct ww_outliner *outliner; /* NULL: no row has needed it yet */
	int train;                    /* rows of the split "train", else the others */
};

static int is_signature(const char *s)
{
	return s && strlen(s) == WW_SIGNATURE_TEXT - 1 && !strncmp(s, version, strlen(version));
}

/* The row's recorded signature, or the graph's; "" where there is no graph. */
static enum ww_rc signature_of(
	struct pass *p, const struct ww_set_row *row, const struct ww_task *task, char *out, struct ww_err *err)
{
	const char *recorded = ww_json_str(row->fields, "signature", NULL);
	WW_AUTO(ww_outline_release) struct ww_outline o = { .body = NULL };
	WW_AUTO(ww_signature_release) struct ww_signature s = { .operators = NULL };
	struct ww_err ignored = WW_ERR_INIT;
	*out = 0;
	if (is_signature(recorded)) {
		strcpy(out, recorded);
		return WW_OK;
	}
	if (!p->outliner)
		WW_CHECK(ww_outliner_new(&p->outliner, &(struct ww_outline_opts){ .interrupted = p->interrupted }, err));
	WW_CHECK(ww_outline(p->outliner, task, 0, &o, err));
	if (o.graph && ww_task_signature(o.graph, &s, &ignored) == WW_OK)
		strcpy(out, s.text);
	return WW_OK;
}

/* Each row of the pass's split: its task and signature to `take`. */
static enum ww_rc each_row(struct pass *p, const char *path,
	void (*take)(void *ctx, const struct ww_set_row *row, const struct ww_task *task, const char *signature), void *ctx,
	struct ww_err *err)
{
	const struct ww_set_opts opts = { .keep_broken = 1, .interrupted = p->interrupted };
	const struct ww_set_row *row;
	struct ww_set *set;
	enum ww_rc rc;
	WW_CHECK(ww_set_open(&set, path, &opts, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row) {
		const char *split = ww_json_str(row->fields, "split", "");
		struct ww_task task = { .path = NULL };
		char signature[WW_SIGNATURE_TEXT];
		if (row->problem || (*split && (strcmp(split, "train") == 0) != p->train))
			continue;
		rc = ww_set_task(set, row, &task, err);
		if (rc == WW_OK)
			rc = signature_of(p, row, &task, signature, err);
		if (rc == WW_OK)
			take(ctx, row, &task, signature);
		ww_task_release(&task);
		if (rc != WW_OK)
			break;
	}
	ww_set_close(set);
	return rc;
}

/* ---- The held-out tasks ------------------------------------------------------------------------------------------ */

static void hold(void *ctx, const struct ww_set_row *row, const struct ww_task *task, const char *signature)
{
	struct ww_held_out *h = ctx;
	if (*signature)
		json_object_set_new(h->by, signature, json_string(task->path));
	json_object_set_new(h->by, task->id, json_string(task->path));
	h->n++;
}

enum ww_rc ww_held_out_open(
	struct ww_held_out **out, const char *sets, const volatile int *interrupted, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct pass p = { .interrupted = interrupted };
	char path[PATH_MAX];
	*out = NULL;
	WW_CHECK(WW_NEW(p.h, 1, err));
	if (!(p.h->by = json_object()))
		WW_TRY(ww_nomem(err));
	for (const char *s = sets; *s; s += strcspn(s, ",")) {
		s += strspn(s, ", ");
		int n = (int)strcspn(s, ",");
		if (n >= PATH_MAX)
			WW_TRY(ww_err_set(err, WW_ERR_USAGE, "the name of a held-out set is too long"));
		snprintf(path, sizeof(path), "%.*s", n, s);
		if (n)
			WW_TRY(each_row(&p, path, hold, p.h, err));
	}
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

/* ---- A set to train on ------------------------------------------------------------------------------------------- */

struct found {
	const struct ww_held_out *h;
	struct ww_str rows;
	char first[PATH_MAX];
	size_t n;
};

static void look(void *ctx, const struct ww_set_row *row, const struct ww_task *task, const char *signature)
{
	struct found *f = ctx;
	const char *held = ww_held_out_find(f->h, signature, task->id);
	if (!held)
		return;
	if (!f->n)
		snprintf(f->first, sizeof(f->first), "%s", held);
	if (f->n < LISTED)
		ww_str_addf(&f->rows, "%s%lld", f->n ? ", " : "", (long long)row->number);
	f->n++;
}

enum ww_rc ww_held_out_check(
	const struct ww_held_out *h, const char *set, const volatile int *interrupted, struct ww_err *err)
{
	struct pass p = { .interrupted = interrupted, .train = 1 };
	struct found f = { .h = h, .rows = WW_STR_INIT(1024) };
	enum ww_rc rc = each_row(&p, set, look, &f, err);
	if (rc == WW_OK && f.n)
		rc = ww_err_set(err, WW_ERR_USAGE,
			"%.300s holds %zu held-out tasks, by their signatures: row%s %s%s (the first is %.300s); "
			"leave them out",
			set, f.n, f.n > 1 ? "s" : "", f.rows.p, f.n > LISTED ? ", ..." : "", f.first);
	ww_outliner_free(p.outliner);
	ww_str_release(&f.rows);
	return rc;
}
