/* mark.c - see mark.h. */
#include "synth/mark.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "synth/outlines.h"
#include "task/set.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 8, MAX_HEX = 8 << 20, MAX_MARKS_BYTES = 1 << 30 };

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

/* What one set gave. */
struct marked {
	int64_t rows, without_graph;
	char why[200]; /* the first one has none */
};

static enum ww_rc mark_row(json_t *marks, struct ww_store *store, struct ww_outliner *worker, const struct ww_set *set,
	const struct ww_set_row *row, struct marked *m, struct ww_err *err)
{
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	WW_AUTO(ww_outline_release) struct ww_outline o = { 0 };
	WW_CHECK(ww_set_task(set, row, &task, err));
	WW_CHECK(ww_synth_outline(store, worker, &task, &o, err));
	enum ww_rc rc = ww_fingerprint_of(&o, &f, err);
	m->rows++;
	if (rc == WW_OK && !f.operators && !m->without_graph++)
		snprintf(m->why, sizeof(m->why), "%.80s: %.100s", row->id, o.graph_error ? o.graph_error : "no graph");
	if (rc == WW_OK && json_array_append_new(marks, mark_of(&f)))
		rc = ww_nomem(err);
	return rc == WW_ERR_PROTOCOL || rc == WW_ERR_LIMIT ? WW_OK : rc;
}

static enum ww_rc mark_set(json_t *marks, const char *path, const volatile int *interrupted, struct ww_err *err)
{
	char real[PATH_MAX];
	struct ww_set_opts so = { .keep_broken = 1, .interrupted = interrupted };
	struct ww_outline_opts oo = { .roots = ww_set_folder(path, real), .interrupted = interrupted };
	struct ww_outliner *worker = NULL;
	struct ww_store *store = NULL;
	struct ww_set *set = NULL;
	const struct ww_set_row *row;
	struct marked m = { 0 };
	enum ww_rc rc = ww_outliner_new(&worker, &oo, err);
	if (rc == WW_OK)
		rc = ww_store_open(&store, NULL, err);
	if (rc == WW_OK)
		rc = ww_set_open(&set, path, &so, err);
	while (rc == WW_OK && (rc = ww_set_next(set, &row, err)) == WW_OK && row)
		if (!row->problem)
			rc = mark_row(marks, store, worker, set, row, &m, err);
	if (rc == WW_OK && m.without_graph)
		ww_log(WW_LOG_WARN, "%s: %lld of %lld tasks have no graph and are compared by their text alone (%s)", path,
			(long long)m.without_graph, (long long)m.rows, m.why);
	ww_set_close(set);
	ww_store_close(store);
	ww_outliner_free(worker);
	return rc;
}

static enum ww_rc marks_of(const char *file, const char *const *sets, int n, const volatile int *interrupted,
	json_t **marks, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_MARKS_BYTES);
	if (ww_fs_is_file(file)) {
		WW_CHECK(ww_fs_read(file, MAX_MARKS_BYTES, &text, err));
		return ww_json_parse(text.p, text.len, file, marks, err);
	}
	*marks = json_array();
	for (int i = 0; i < n; i++)
		WW_CHECK(mark_set(*marks, sets[i], interrupted, err));
	ww_json_add(&text, *marks);
	return text.cut ? ww_nomem(err) : ww_fs_write(file, text.p, text.len, err);
}

enum ww_rc ww_synth_apart_from(struct ww_similar *s, const char *dir, const char *const *sets, int n,
	const volatile int *interrupted, struct ww_err *err)
{
	char file[PATH_MAX];
	json_auto_t *marks = NULL;
	const json_t *mark;
	size_t i;
	if (!n)
		return WW_OK;
	WW_CHECK(ww_fs_join(file, dir, "apart.json", err));
	WW_CHECK(marks_of(file, sets, n, interrupted, &marks, err));
	json_array_foreach(marks, i, mark) {
		WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
		WW_CHECK(ww_synth_mark_read(mark, &f, err));
		WW_CHECK(ww_similar_add(s, &f, (int64_t)i, err));
	}
	return WW_OK;
}
