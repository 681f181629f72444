/* mark.c - see mark.h. */
#include "synth/mark.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "synth/outlines.h"
#include "task/set_pass.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 8, MAX_HEX = 8 << 20, MAX_MARKS_BYTES = 1 << 30, MAX_MARKING = 16 };

static json_t *hex_of(const uint32_t *v, size_t n)
{
	ww_auto_str s = WW_STR_INIT(MAX_HEX);
	for (size_t i = 0; i < n; i++)
		ww_str_addf(&s, "%08x", v[i]);
	return s.cut ? NULL : json_string(s.p);
}

static enum ww_rc read_hex(const json_t *mark, const char *key, uint32_t **v, size_t *n, struct ww_err *err)
{
	const char *text = ww_json_str(mark, key, "");
	char part[HEX + 1] = "";
	size_t count = strlen(text) / HEX;
	WW_CHECK(WW_NEW(*v, count + 1, err));
	for (*n = 0; *n < count; (*n)++) {
		memcpy(part, text + *n * HEX, HEX);
		(*v)[*n] = (uint32_t)strtoul(part, NULL, 16);
	}
	return WW_OK;
}

static json_t *mark_of(const struct ww_fingerprint *f)
{
	return json_pack("{s:s, s:s, s:o, s:o}", "signature", f->signature, "operators", f->operators ? f->operators : "",
		"text", hex_of(f->text, f->n_text), "graph", hex_of(f->graph, f->n_graph));
}

enum ww_rc ww_synth_mark(const char *tokens, const json_t *graph, json_t **out, struct ww_err *err)
{
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	struct ww_outline o = { .tokens = tokens, .graph = graph };
	WW_CHECK(ww_fingerprint_of(&o, &f, err));
	*out = mark_of(&f);
	return *out ? WW_OK : ww_nomem(err);
}

enum ww_rc ww_synth_mark_read(const json_t *mark, struct ww_fingerprint *out, struct ww_err *err)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->signature, sizeof(out->signature), "%s", ww_json_str(mark, "signature", ""));
	if (!(out->operators = strdup(ww_json_str(mark, "operators", ""))))
		return ww_nomem(err);
	WW_CHECK(read_hex(mark, "text", &out->text, &out->n_text, err));
	return read_hex(mark, "graph", &out->graph, &out->n_graph, err);
}

/* ---- Sets that are kept apart */

/* The marks of one set. */
struct marking {
	struct ww_store *store;
	pthread_mutex_t lock; /* all that follows */
	json_t *marks;        /* in the order of rows; null where there is none yet */
	int64_t rows, without_graph;
	int64_t first; /* of those without a graph, and why */
	char why[200];
};

static enum ww_rc keep_mark(struct marking *m, int64_t at, const struct ww_fingerprint *f, struct ww_err *err)
{
	while (json_array_size(m->marks) <= (size_t)at)
		if (json_array_append_new(m->marks, json_null()))
			return ww_nomem(err);
	return json_array_set_new(m->marks, (size_t)at, mark_of(f)) ? ww_nomem(err) : WW_OK;
}

static enum ww_rc mark_row(void *context, struct ww_outliner *worker, const struct ww_pass_row *r, struct ww_err *err)
{
	struct marking *m = context;
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	WW_AUTO(ww_outline_release) struct ww_outline o = { 0 };
	if (r->broken.rc != WW_OK) {
		*err = r->broken;
		return err->rc;
	}
	WW_CHECK(ww_synth_outline(m->store, worker, &r->task, &o, err));
	enum ww_rc rc = ww_fingerprint_of(&o, &f, err);
	WW_LOCKED(&m->lock);
	m->rows++;
	if (rc != WW_OK)
		return rc == WW_ERR_PROTOCOL || rc == WW_ERR_LIMIT ? WW_OK : rc;
	if (!f.operators && (!m->without_graph++ || r->at < m->first)) {
		m->first = r->at;
		snprintf(m->why, sizeof(m->why), "%s: %.100s", r->id, o.graph_error ? o.graph_error : "no graph");
	}
	return keep_mark(m, r->at, &f, err);
}

static int is_task(const struct ww_set_row *row) { return !row->problem; }

/* Append the marks of a set, `jobs` tasks at a time: a task takes a second of a processor. */
static enum ww_rc mark_set(
	json_t *marks, const char *path, int jobs, const volatile int *interrupted, struct ww_err *err)
{
	struct marking m = { .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct ww_set_pass all = { .path = path,
		.jobs = jobs < MAX_MARKING ? jobs : MAX_MARKING,
		.worker = { .interrupted = interrupted },
		.wanted = is_task,
		.row = mark_row,
		.context = &m };
	json_t *mark;
	size_t i;
	m.marks = json_array();
	enum ww_rc rc = m.marks ? ww_store_open(&m.store, NULL, err) : ww_nomem(err);
	if (rc == WW_OK)
		rc = ww_set_pass(&all, err);
	json_array_foreach(m.marks, i, mark)
		if (rc == WW_OK && !json_is_null(mark) && json_array_append(marks, mark))
			rc = ww_nomem(err);
	if (rc == WW_OK && m.without_graph)
		ww_log(WW_LOG_WARN, "%s: %lld of %lld tasks have no graph and are compared by their text alone (%s)", path,
			(long long)m.without_graph, (long long)m.rows, m.why);
	json_decref(m.marks);
	ww_store_close(m.store);
	return rc;
}

static enum ww_rc marks_of(const char *file, const char *const *sets, int n, int jobs, const volatile int *interrupted,
	json_t **marks, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_MARKS_BYTES);
	if (ww_fs_is_file(file)) {
		WW_CHECK(ww_fs_read(file, MAX_MARKS_BYTES, &text, err));
		return ww_json_parse(text.p, text.len, file, marks, err);
	}
	*marks = json_array();
	for (int i = 0; i < n; i++)
		WW_CHECK(mark_set(*marks, sets[i], jobs, interrupted, err));
	ww_json_add(&text, *marks);
	return text.cut ? ww_nomem(err) : ww_fs_write(file, text.p, text.len, err);
}

enum ww_rc ww_synth_apart_from(struct ww_similar *s, const char *dir, const char *const *sets, int n, int jobs,
	const volatile int *interrupted, struct ww_err *err)
{
	char file[PATH_MAX];
	json_auto_t *marks = NULL;
	const json_t *mark;
	size_t i;
	if (!n)
		return WW_OK;
	WW_CHECK(ww_fs_join(file, dir, "apart.json", err));
	WW_CHECK(marks_of(file, sets, n, jobs, interrupted, &marks, err));
	json_array_foreach(marks, i, mark) {
		WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
		WW_CHECK(ww_synth_mark_read(mark, &f, err));
		WW_CHECK(ww_similar_add(s, &f, (int64_t)i, err));
	}
	return WW_OK;
}
