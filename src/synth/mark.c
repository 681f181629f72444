/* mark.c - see mark.h. */
#include "synth/mark.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "synth/outlines.h"
#include "task/set.h"

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

/* A pass over one set, several tasks at a time. */
struct marking {
	const char *path;
	const volatile int *interrupted;
	struct ww_store *store;
	pthread_mutex_t lock; /* all that follows */
	struct ww_set *set;
	json_t *marks; /* in the order of rows; null where there is none */
	int over;
	int64_t rows, without_graph;
	size_t first; /* of those without a graph, and why */
	char why[200];
	struct ww_err err;
};

/* The next row's task and the place of its mark; 0: none is left. */
static int take_row(struct marking *m, struct ww_task *task, char id[80], size_t *at, struct ww_err *err)
{
	const struct ww_set_row *row = NULL;
	WW_LOCKED(&m->lock);
	enum ww_rc rc = m->over ? WW_OK : ww_set_next(m->set, &row, err);
	while (rc == WW_OK && row && row->problem)
		rc = ww_set_next(m->set, &row, err);
	if (rc == WW_OK && row && (rc = ww_set_task(m->set, row, task, err)) == WW_OK) {
		snprintf(id, 80, "%s", row->id);
		*at = json_array_size(m->marks);
		rc = json_array_append_new(m->marks, json_null()) ? ww_nomem(err) : WW_OK;
	}
	m->over |= rc != WW_OK || !row;
	return !m->over;
}

static enum ww_rc mark_row(struct marking *m, struct ww_outliner *worker, const struct ww_task *task, const char *id,
	size_t at, struct ww_err *err)
{
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	WW_AUTO(ww_outline_release) struct ww_outline o = { 0 };
	WW_CHECK(ww_synth_outline(m->store, worker, task, &o, err));
	enum ww_rc rc = ww_fingerprint_of(&o, &f, err);
	WW_LOCKED(&m->lock);
	m->rows++;
	if (rc == WW_OK && !f.operators && (!m->without_graph++ || at < m->first)) {
		m->first = at;
		snprintf(m->why, sizeof(m->why), "%s: %.100s", id, o.graph_error ? o.graph_error : "no graph");
	}
	if (rc == WW_OK && json_array_set_new(m->marks, at, mark_of(&f)))
		rc = ww_nomem(err);
	return rc == WW_ERR_PROTOCOL || rc == WW_ERR_LIMIT ? WW_OK : rc;
}

static void *mark_rows(void *context)
{
	struct marking *m = context;
	char real[PATH_MAX], id[80];
	struct ww_outline_opts o = { .roots = ww_set_folder(m->path, real), .interrupted = m->interrupted };
	struct ww_outliner *worker = NULL;
	struct ww_err err = WW_ERR_INIT;
	size_t at;
	enum ww_rc rc = ww_outliner_new(&worker, &o, &err);
	while (rc == WW_OK) {
		WW_AUTO(ww_task_release) struct ww_task task = { 0 };
		if (!take_row(m, &task, id, &at, &err)) {
			rc = err.rc;
			break;
		}
		rc = mark_row(m, worker, &task, id, at, &err);
	}
	ww_outliner_free(worker);
	WW_LOCKED(&m->lock);
	m->over |= rc != WW_OK;
	if (rc != WW_OK && m->err.rc == WW_OK)
		m->err = err;
	return NULL;
}

/* Append the marks of a set, `jobs` tasks at a time: a task takes a second of a processor. */
static enum ww_rc mark_set(
	json_t *marks, const char *path, int jobs, const volatile int *interrupted, struct ww_err *err)
{
	struct marking m = { path, interrupted, .lock = PTHREAD_MUTEX_INITIALIZER, .err = WW_ERR_INIT };
	pthread_t threads[MAX_MARKING];
	json_t *mark;
	size_t i;
	int n = 0;
	m.marks = json_array();
	enum ww_rc rc = m.marks ? ww_store_open(&m.store, NULL, err) : ww_nomem(err);
	if (rc == WW_OK)
		rc = ww_set_open(&m.set, path, &(struct ww_set_opts){ .keep_broken = 1, .interrupted = interrupted }, err);
	while (rc == WW_OK && n < jobs && n < MAX_MARKING && !pthread_create(&threads[n], NULL, mark_rows, &m))
		n++;
	if (rc == WW_OK && !n)
		rc = ww_err_set(err, WW_ERR_LIMIT, "no thread can be started; lower --jobs or end other programs");
	for (int t = 0; t < n; t++)
		pthread_join(threads[t], NULL);
	if (rc == WW_OK && (rc = m.err.rc) != WW_OK)
		*err = m.err;
	json_array_foreach(m.marks, i, mark)
		if (rc == WW_OK && !json_is_null(mark) && json_array_append(marks, mark))
			rc = ww_nomem(err);
	if (rc == WW_OK && m.without_graph)
		ww_log(WW_LOG_WARN, "%s: %lld of %lld tasks have no graph and are compared by their text alone (%s)", path,
			(long long)m.without_graph, (long long)m.rows, m.why);
	json_decref(m.marks);
	ww_set_close(m.set);
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
