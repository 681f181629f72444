/* synth_show.c - `warpwright synth show SET#ID`, `synth stats SET` and `synth convert SET FILE`. */
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/synth.h"
#include "synth/similar.h"
#include "task/set.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- show -------------------------------------------------------------------------------------------------------- */

static json_t *row_json(const struct ww_set_row *row, const struct ww_fingerprint *f, const struct ww_outline *o)
{
	json_t *out = json_pack("{s:I, s:o}", "row", (json_int_t)row->number, "fields", json_deep_copy(row->fields));
	if (f->operators)
		json_object_update_new(out, json_pack("{s:s, s:s}", "signature", f->signature, "operators", f->operators));
	else
		json_object_set_new(out, "graph_error", json_string(o->graph_error));
	if (o->tokens)
		json_object_set_new(out, "tokens", json_string(o->tokens));
	return out;
}

static void print_row(const struct ww_set_row *row, const struct ww_fingerprint *f, const struct ww_outline *o)
{
	const char *key;
	json_t *value;
	printf("row         %lld\nid          %s\n", (long long)row->number, row->id);
	json_object_foreach((json_t *)(uintptr_t)row->fields, key, value) {
		ww_auto_str text = WW_STR_INIT(4096);
		if (!strcmp(key, "code") || !strcmp(key, "id"))
			continue;
		ww_json_add(&text, value);
		printf("%-11s %s\n", key, text.p);
	}
	if (f->operators)
		printf("computed    %s\n            %s\n", f->signature, f->operators);
	else
		printf("no graph    %s\n", o->graph_error);
	printf("\n%s", row->code);
}

static enum ww_rc show(
	const struct ww_synth_values *v, const struct ww_set *set, const struct ww_set_row *row, struct ww_err *err)
{
	struct ww_outliner *worker = NULL;
	struct ww_outline o = { 0 };
	struct ww_fingerprint f = { 0 };
	struct ww_task task = { 0 };
	enum ww_rc rc;
	WW_CHECK(ww_set_task(set, row, &task, err));
	WW_TRY(ww_outliner_new(&worker,
		&(struct ww_outline_opts){ .max_s = v->max_s, .roots = task.roots, .interrupted = &ww_cmd_interrupted }, err));
	WW_TRY(ww_outline(worker, &task, 0, &o, err));
	WW_TRY(ww_fingerprint_of(&o, &f, err));
	if (v->json)
		ww_cmd_print_json(row_json(row, &f, &o));
	else
		print_row(row, &f, &o);
out:
	ww_fingerprint_release(&f);
	ww_outline_release(&o);
	ww_outliner_free(worker);
	ww_task_release(&task);
	return rc;
}

static enum ww_rc unnamed(const char *what, struct ww_err *err)
{
	if (strchr(what, '#'))
		return ww_err_set(err, WW_ERR_USAGE, "synth show takes SET#ID, and there is no task set at %s", what);
	return ww_err_set(
		err, WW_ERR_USAGE, "synth show takes SET#ID, and %s names no task; name a row, as %s#1", what, what);
}

int ww_synth_show(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_set *set = NULL;
	const struct ww_set_row *row;
	char path[PATH_MAX];
	const char *id = ww_set_split(argv[0], path);
	enum ww_rc rc = id ? ww_set_open(&set, path, NULL, &err) : unnamed(argv[0], &err);
	if (rc == WW_OK)
		rc = ww_set_find(set, id, &row, &err);
	if (rc == WW_OK)
		rc = show(v, set, row, &err);
	ww_set_close(set);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

struct stats {
	int64_t rows, broken, code_bytes;
	json_t *splits, *sources, *ops, *sizes;
};

static void count(json_t *counts, const char *key)
{
	json_object_set_new(counts, key, json_integer((json_int_t)ww_json_int(counts, key, 0) + 1));
}

static void count_row(struct stats *s, const struct ww_set_row *row)
{
	char n[24];
	const json_t *op;
	size_t i;
	s->rows++;
	s->broken += row->problem != NULL;
	if (row->problem)
		return;
	s->code_bytes += (int64_t)row->code_bytes;
	count(s->splits, ww_json_str(row->fields, "split", "none named"));
	count(s->sources, ww_json_str(row->fields, "data_source", "none named"));
	json_array_foreach(row->ops, i, op)
		count(s->ops, json_string_value(op));
	snprintf(n, sizeof(n), "%zu", json_array_size(row->ops));
	count(s->sizes, n);
}

struct counted {
	const char *name;
	int64_t n;
};

static int by_count(const void *a, const void *b)
{
	const struct counted *x = a, *y = b;
	return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->name, y->name);
}

static void print_counts(const char *what, const json_t *counts, size_t most)
{
	struct counted *c = calloc(json_object_size(counts) + 1, sizeof(*c));
	const char *key;
	json_t *v;
	size_t n = 0;
	json_object_foreach((json_t *)(uintptr_t)counts, key, v)
		if (c)
			c[n++] = (struct counted){ key, json_integer_value(v) };
	if (c)
		qsort(c, n, sizeof(*c), by_count);
	printf("%s: %zu\n", what, n);
	for (size_t i = 0; i < n && i < most; i++)
		printf("  %8lld  %s\n", (long long)c[i].n, c[i].name);
	if (n > most)
		printf("  and %zu more (--json lists all)\n", n - most);
	free(c);
}

static void print_stats(struct stats *s, const char *set)
{
	enum { MOST = 20 };
	printf("%s: %lld rows, %lld of them no task, %.1f MiB of code\n", set, (long long)s->rows, (long long)s->broken,
		(double)s->code_bytes / (1 << 20));
	print_counts("splits", s->splits, MOST);
	print_counts("sources", s->sources, MOST);
	print_counts("numbers of operators", s->sizes, MOST);
	print_counts("operators", s->ops, MOST);
}

int ww_synth_stats(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct stats s = {
		.splits = json_object(), .sources = json_object(), .ops = json_object(), .sizes = json_object()
	};
	const struct ww_set_row *row;
	struct ww_set *set;
	enum ww_rc rc = ww_set_open(&set, argv[0], &(struct ww_set_opts){ 1, &ww_cmd_interrupted }, &err);
	while (rc == WW_OK && (rc = ww_set_next(set, &row, &err)) == WW_OK && row)
		count_row(&s, row);
	if (rc == WW_OK && v->json)
		ww_cmd_print_json(json_pack("{s:s, s:I, s:I, s:I, s:O, s:O, s:O, s:O}", "set", argv[0], "rows",
			(json_int_t)s.rows, "broken", (json_int_t)s.broken, "code_bytes", (json_int_t)s.code_bytes, "splits",
			s.splits, "sources", s.sources, "numbers", s.sizes, "ops", s.ops));
	else if (rc == WW_OK)
		print_stats(&s, argv[0]);
	json_t *const counts[] = { s.splits, s.sources, s.ops, s.sizes };
	for (size_t i = 0; i < WW_ARRAY_LEN(counts); i++)
		json_decref(counts[i]);
	ww_set_close(set);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

/* ---- convert ----------------------------------------------------------------------------------------------------- */

static enum ww_rc copy_rows(struct ww_set *set, struct ww_set_writer *to, int64_t *n, struct ww_err *err)
{
	const struct ww_set_row *row;
	enum ww_rc rc;
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row) {
		json_auto_t *fields = json_deep_copy(row->fields);
		json_object_set_new(fields, "id", json_string(row->id));
		WW_CHECK(ww_set_add(to, fields, err));
		++*n;
	}
	return rc;
}

int ww_synth_convert(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT, ignored = WW_ERR_INIT;
	struct ww_set_writer *to = NULL;
	struct ww_set *set = NULL;
	int64_t n = 0;
	enum ww_rc rc = ww_set_open(&set, argv[0], &(struct ww_set_opts){ .interrupted = &ww_cmd_interrupted }, &err);
	if (rc == WW_OK)
		rc = ww_set_create(&to, argv[1], &err);
	if (rc == WW_OK)
		rc = copy_rows(set, to, &n, &err);
	enum ww_rc ended = ww_set_finish(to, rc == WW_OK, rc == WW_OK ? &err : &ignored);
	ww_set_close(set);
	if (rc != WW_OK || ended != WW_OK)
		return ww_cmd_fail(&err);
	if (v->json)
		ww_cmd_print_json(json_pack("{s:s, s:I}", "file", argv[1], "rows", (json_int_t)n));
	else
		printf("%s  %lld rows\n", argv[1], (long long)n);
	return 0;
}
