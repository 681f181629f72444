/* audit.c - see audit.h.
 *
 * First the rows are counted and the sample is chosen.  Then each row is looked at (task/set_pass.h), and what
 * comparisons need is kept, not the code: about 2 KB a row.  The comparisons run over the rows in their order, so that
 * findings are the same for any number of threads. */
#include "synth/audit.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/time.h"
#include "synth/labels.h"
#include "synth/outlines.h"
#include "synth/similar.h"
#include "task/set_pass.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_BELOW = 4096, DETAIL = 400, SHOWN_PATH = 40 };

/* What is kept of a row. */
struct item {
	int64_t row;
	char *id, *split, *signature, *label;
	char *broken, *fails, *trial; /* why it cannot be read, gives no graph, did not run; else NULL */
	char hash[WW_HASH_HEX];
	struct ww_fingerprint f;
	int ran, degenerate;
};

struct items {
	struct item *i;
	size_t n, cap;
};

/* One pass over one set. */
struct pass {
	const struct ww_audit_opts *o;
	const char *path;
	struct ww_store *store;
	const int64_t *sample; /* row numbers, ascending */
	size_t n_sample;
	int with_labels;
	pthread_mutex_t lock; /* protects items */
	struct items *items;
};

#define NAME(name, meaning) #name,
#define TEXT(name, meaning) meaning,
static const char *const kind_names[] = { WW_AUDIT_KINDS(NAME) }, *const kind_texts[] = { WW_AUDIT_KINDS(TEXT) };
const char *ww_audit_kind_name(enum ww_audit_kind k) { return kind_names[k]; }
const char *ww_audit_kind_text(enum ww_audit_kind k) { return kind_texts[k]; }

static void release_item(struct item *i)
{
	char *const texts[] = { i->id, i->split, i->signature, i->label, i->broken, i->fails, i->trial };
	for (size_t t = 0; t < WW_ARRAY_LEN(texts); t++)
		free(texts[t]);
	ww_fingerprint_release(&i->f);
}

static void release_items(struct items *s)
{
	for (size_t k = 0; k < s->n; k++)
		release_item(&s->i[k]);
	free(s->i);
	memset(s, 0, sizeof(*s));
}

static void say_stage(const struct ww_audit_opts *o, const char *fmt, ...)
{
	ww_auto_str stage = WW_STR_INIT(PATH_MAX);
	va_list ap;
	if (!o->progress)
		return;
	va_start(ap, fmt);
	ww_str_vaddf(&stage, fmt, ap);
	va_end(ap);
	o->progress(o->context, stage.p);
}

/* The end of a long path tells more than its beginning. */
static void report(const struct pass *p)
{
	size_t n = strlen(p->path);
	say_stage(p->o, "%s%s: %zu rows%s", n > SHOWN_PATH ? "..." : "", p->path + (n > SHOWN_PATH ? n - SHOWN_PATH : 0),
		p->items->n, p->n_sample ? ", running those of the sample" : "");
}

static char *line_of(const char *text)
{
	ww_auto_str line = WW_STR_INIT(2 * DETAIL);
	ww_str_add_line(&line, text, DETAIL);
	return ww_str_take(&line);
}

/* ---- The sample -------------------------------------------------------------------------------------------------- */

struct ranked {
	uint64_t rank;
	int64_t row;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : (x->row > y->row) - (x->row < y->row);
}

static int by_row(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static enum ww_rc choose_sample(
	const char *path, const struct ww_audit_opts *o, int64_t **sample, size_t *n_sample, struct ww_err *err)
{
	const struct ww_set_row *row;
	struct ww_set *set;
	struct ranked *r = NULL;
	size_t n = 0, cap = 0;
	enum ww_rc rc;
	*sample = NULL;
	*n_sample = 0;
	WW_CHECK(ww_set_open(&set, path, &(struct ww_set_opts){ 1, o->interrupted }, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row) {
		if (!WW_GROW(r, &cap, n + 1))
			WW_TRY(ww_nomem(err));
		uint64_t h = (o->seed ^ (uint64_t)row->number * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
		r[n++] = (struct ranked){ h ^ h >> 31, row->number };
	}
	rc = rc == WW_ERR_USAGE ? WW_OK : rc; /* the pass reports damaged data */
	if (n)
		qsort(r, n, sizeof(*r), by_rank);
	*n_sample = n < (size_t)o->sample ? n : (size_t)o->sample;
	WW_TRY(WW_NEW(*sample, *n_sample + 1, err));
	for (size_t i = 0; i < *n_sample; i++)
		(*sample)[i] = r[i].row;
	qsort(*sample, *n_sample, sizeof(**sample), by_row);
out:
	ww_set_close(set);
	free(r);
	return rc;
}

/* ---- One row ----------------------------------------------------------------------------------------------------- */

static void look_at_trial(struct item *i, const struct ww_outline *o)
{
	const json_t *strict = json_object_get(o->trial, "strict");
	i->ran = 1;
	i->trial = o->trial_error ? line_of(o->trial_error) : NULL;
	i->degenerate = ww_json_bool(strict, "degenerate", 0);
}

static enum ww_rc look_at(
	const struct pass *p, struct ww_outliner *worker, const struct ww_pass_row *r, struct item *i, struct ww_err *err)
{
	struct ww_outline o;
	ww_auto_str why = WW_STR_INIT(DETAIL);
	const json_t *ops = json_object_get(r->fields, "ops");
	int with_trial = p->n_sample && bsearch(&r->number, p->sample, p->n_sample, sizeof(*p->sample), by_row);
	WW_CHECK(
		with_trial ? ww_outline(worker, &r->task, 1, &o, err) : ww_synth_outline(p->store, worker, &r->task, &o, err));
	enum ww_rc rc = ww_fingerprint_of(&o, &i->f, err);
	if (rc == WW_ERR_PROTOCOL || rc == WW_ERR_LIMIT) { /* of this task's graph */
		i->fails = line_of(err->msg);
		rc = WW_OK;
	} else if (o.graph_error) {
		i->fails = line_of(o.graph_error);
	}
	if (o.graph && p->with_labels && ops && ww_labels_check(ops, o.graph, o.tokens, &why))
		i->label = line_of(why.p);
	if (with_trial)
		look_at_trial(i, &o);
	ww_outline_release(&o);
	return rc;
}

static char *copy_of(const json_t *fields, const char *key)
{
	const char *text = ww_json_str(fields, key, NULL);
	return text ? line_of(text) : NULL;
}

/* What needs no worker. */
static struct item item_of(const struct ww_pass_row *r)
{
	struct item i = { .row = r->number, .id = r->id ? line_of(r->id) : NULL };
	if (r->broken.rc != WW_OK) {
		i.broken = line_of(r->broken.msg);
		return i;
	}
	ww_hash_hex(r->task.source, r->task.source_bytes, i.hash);
	i.split = copy_of(r->fields, "split");
	i.signature = copy_of(r->fields, "signature");
	return i;
}

static enum ww_rc take(void *context, struct ww_outliner *worker, const struct ww_pass_row *r, struct ww_err *err)
{
	struct pass *p = context;
	struct item i = item_of(r);
	enum ww_rc rc = i.broken ? WW_OK : look_at(p, worker, r, &i, err);
	WW_LOCKED(&p->lock);
	if (rc == WW_OK && !WW_GROW(p->items->i, &p->items->cap, p->items->n + 1))
		rc = ww_nomem(err);
	if (rc == WW_OK)
		p->items->i[p->items->n++] = i;
	else
		release_item(&i);
	report(p);
	return rc;
}

static int by_item(const void *a, const void *b)
{
	return by_row(&((const struct item *)a)->row, &((const struct item *)b)->row);
}

/* Every row of a set into items, in order. */
static enum ww_rc look_at_all(struct pass *p, struct ww_err *err)
{
	const struct ww_set_pass all = { .path = p->path,
		.jobs = p->o->jobs,
		.worker = { .max_s = p->o->max_s,
			.trial = p->n_sample ? p->o->target : NULL,
			.device = p->o->device,
			.interrupted = p->o->interrupted },
		.keep_damaged = 1,
		.row = take,
		.context = p };
	pthread_mutex_init(&p->lock, NULL);
	report(p);
	enum ww_rc rc = ww_set_pass(&all, err);
	pthread_mutex_destroy(&p->lock);
	if (p->items->n)
		qsort(p->items->i, p->items->n, sizeof(*p->items->i), by_item);
	return rc;
}

/* ---- Findings ---------------------------------------------------------------------------------------------------- */

static struct ww_audit_finding *find(struct ww_audit *a, enum ww_audit_kind kind, const struct item *i)
{
	static struct ww_audit_finding lost;
	if (!WW_GROW(a->f, &a->cap, a->n + 1))
		return &lost; /* a->n stays the same */
	a->count[kind]++;
	a->f[a->n] = (struct ww_audit_finding){ .kind = kind, .row = i->row, .id = i->id ? strdup(i->id) : NULL };
	return &a->f[a->n++];
}

static void say(struct ww_audit *a, enum ww_audit_kind kind, const struct item *i, const char *detail)
{
	find(a, kind, i)->detail = detail ? strdup(detail) : NULL;
}

static void say_like(struct ww_audit *a, enum ww_audit_kind kind, const struct item *i, const struct item *other)
{
	struct ww_audit_finding *f = find(a, kind, i);
	f->other = other->row;
	f->other_id = other->id ? strdup(other->id) : NULL;
}

static void single_row(struct ww_audit *a, const struct item *i)
{
	const char *random = *i->f.random ? i->f.random : i->trial && strstr(i->trial, " is random") ? i->trial : NULL;
	if (i->broken)
		say(a, WW_AUDIT_broken, i, i->broken);
	if (random)
		say(a, WW_AUDIT_random, i, random);
	else if (i->trial || (i->fails && !i->ran)) /* what ran is a task, with a graph or without */
		say(a, WW_AUDIT_fails, i, i->fails ? i->fails : i->trial);
	if (i->label)
		say(a, WW_AUDIT_label, i, i->label);
	if (i->degenerate || (*i->f.signature && i->f.independent && !random))
		say(a, WW_AUDIT_degenerate, i, i->degenerate ? NULL : "no output depends on an input");
	if (i->signature && *i->f.signature && strcmp(i->signature, i->f.signature))
		say(a, WW_AUDIT_signature, i, i->f.signature);
	a->ran += i->ran;
	a->no_graph += !i->broken && !*i->f.signature;
}

/* Rows that share a text: each with the first of them. */
static void equal_texts(struct ww_audit *a, const struct items *s, enum ww_audit_kind kind,
	const char *(*key)(const struct item *), int (*counts)(const struct item *first, const struct item *i),
	const struct item **sorted, int (*order)(const void *, const void *))
{
	size_t n = 0;
	for (size_t k = 0; k < s->n; k++)
		if (key(&s->i[k]))
			sorted[n++] = &s->i[k];
	qsort(sorted, n, sizeof(*sorted), order);
	for (size_t k = 1, first = 0; k < n; k++) {
		if (strcmp(key(sorted[k]), key(sorted[first])))
			first = k;
		else if (counts(sorted[first], sorted[k]))
			say_like(a, kind, sorted[k], sorted[first]);
	}
}

static const char *hash_of(const struct item *i) { return *i->hash ? i->hash : NULL; }
static const char *id_of(const struct item *i) { return i->id; }
static const char *operators_of(const struct item *i)
{
	return i->split && i->f.operators && *i->f.operators ? i->f.operators : NULL;
}
static int always(const struct item *first, const struct item *i) { return 1; }
static int other_split(const struct item *first, const struct item *i) { return strcmp(first->split, i->split) != 0; }

#define ORDER(name, key) \
	static int name(const void *a, const void *b) \
	{ \
		const struct item *x = *(const struct item *const *)a, *y = *(const struct item *const *)b; \
		int d = strcmp(key(x), key(y)); \
		return d ? d : by_item(x, y); \
	}
ORDER(by_hash, hash_of)
ORDER(by_id, id_of)
ORDER(by_operators, operators_of)

static int by_row_and_kind(const void *a, const void *b)
{
	const struct ww_audit_finding *x = a, *y = b;
	int d = by_row(&x->row, &y->row);
	return d ? d : (int)x->kind - (int)y->kind;
}

static enum ww_rc near_duplicates(struct ww_audit *a, const struct items *s, struct ww_err *err)
{
	struct ww_similar *index;
	struct ww_similar_match m;
	enum ww_rc rc = WW_OK;
	WW_CHECK(ww_similar_new(&index, err));
	const size_t copies = a->n; /* all findings so far are duplicates: their rows are skipped */
	if (copies)
		qsort(a->f, copies, sizeof(*a->f), by_row_and_kind);
	for (size_t k = 0, at = 0; k < s->n; k++) {
		while (at < copies && a->f[at].row < s->i[k].row)
			at++;
		if ((at < copies && a->f[at].row == s->i[k].row) || s->i[k].broken)
			continue;
		if (ww_similar_find(index, &s->i[k].f, 0, &m) && m.similar) {
			say_like(a, WW_AUDIT_near_duplicate, &s->i[k], &s->i[m.tag]);
			a->f[a->n - 1].text = m.text;
			a->f[a->n - 1].graph = m.graph;
			continue;
		}
		WW_TRY(ww_similar_add(index, &s->i[k].f, (int64_t)k, err));
	}
out:
	ww_similar_free(index);
	return rc;
}

/* Held-out sets in one index; a tag is a number into items. */
static enum ww_rc contamination(struct ww_audit *a, const struct items *s, const struct items *held,
	const char *const *names, const int *of, struct ww_err *err)
{
	struct ww_similar *index;
	struct ww_similar_match m;
	enum ww_rc rc = WW_OK;
	WW_CHECK(ww_similar_new(&index, err));
	for (size_t k = 0; k < held->n; k++)
		WW_TRY(ww_similar_add(index, &held->i[k].f, (int64_t)k, err));
	for (size_t k = 0; k < s->n; k++)
		if (ww_similar_find(index, &s->i[k].f, held->n < EXACT_BELOW, &m) && m.similar) {
			say_like(a, WW_AUDIT_contaminated, &s->i[k], &held->i[m.tag]);
			a->f[a->n - 1].other_set = strdup(names[of[m.tag]]);
			a->f[a->n - 1].text = m.text;
			a->f[a->n - 1].graph = m.graph;
		}
out:
	ww_similar_free(index);
	return rc;
}

static enum ww_rc judge_rows(struct ww_audit *a, const struct items *s, struct ww_err *err)
{
	ww_auto_free const struct item **sorted = NULL;
	WW_CHECK(WW_NEW(sorted, s->n + 1, err));
	equal_texts(a, s, WW_AUDIT_duplicate, hash_of, always, sorted, by_hash);
	WW_CHECK(near_duplicates(a, s, err));
	equal_texts(a, s, WW_AUDIT_id, id_of, always, sorted, by_id);
	equal_texts(a, s, WW_AUDIT_split, operators_of, other_split, sorted, by_operators);
	for (size_t k = 0; k < s->n; k++)
		single_row(a, &s->i[k]);
	return WW_OK;
}

/* Held-out sets, one after the other; *of: which set each item is from. */
static enum ww_rc read_against(
	const struct ww_audit_opts *o, struct ww_store *store, struct items *held, int **of, struct ww_err *err)
{
	for (int k = 0; k < o->n_against; k++) {
		struct items more = { 0 };
		struct pass p = { .o = o, .path = o->against[k], .store = store, .items = &more };
		enum ww_rc rc = look_at_all(&p, err);
		int *grown = rc == WW_OK ? realloc(*of, (held->n + more.n + 1) * sizeof(**of)) : NULL;
		if (!grown || !WW_GROW(held->i, &held->cap, held->n + more.n)) {
			release_items(&more);
			*of = grown ? grown : *of;
			return rc == WW_OK ? ww_nomem(err) : rc;
		}
		*of = grown;
		for (size_t i = 0; i < more.n; i++) {
			(*of)[held->n] = k;
			held->i[held->n++] = more.i[i];
		}
		free(more.i);
	}
	return WW_OK;
}

enum ww_rc ww_audit(const char *set, const struct ww_audit_opts *o, struct ww_audit *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct items items = { 0 }, held = { 0 };
	struct pass p = { .o = o, .path = set, .items = &items, .with_labels = 1 };
	ww_auto_free int64_t *sample = NULL;
	ww_auto_free int *of = NULL;
	uint64_t start = ww_now_ns();
	memset(out, 0, sizeof(*out));
	WW_TRY(ww_store_open(&p.store, NULL, err));
	WW_TRY(read_against(o, p.store, &held, &of, err));
	say_stage(o, "choosing the sample of rows that are run");
	WW_TRY(choose_sample(set, o, &sample, &p.n_sample, err));
	p.sample = sample;
	WW_TRY(look_at_all(&p, err));
	say_stage(o, "comparing %zu rows with each other", items.n);
	WW_TRY(judge_rows(out, &items, err));
	if (held.n)
		say_stage(o, "comparing %zu rows with %zu held-out ones", items.n, held.n);
	WW_TRY(contamination(out, &items, &held, o->against, of, err));
	out->rows = (int64_t)items.n;
	if (out->n)
		qsort(out->f, out->n, sizeof(*out->f), by_row_and_kind);
	out->seconds = ww_seconds_since(start);
out:
	ww_store_close(p.store);
	release_items(&items);
	release_items(&held);
	if (rc != WW_OK)
		ww_audit_release(out);
	return rc;
}

void ww_audit_release(struct ww_audit *a)
{
	for (size_t i = 0; i < a->n; i++) {
		free(a->f[i].id);
		free(a->f[i].other_id);
		free(a->f[i].other_set);
		free(a->f[i].detail);
	}
	free(a->f);
	memset(a, 0, sizeof(*a));
}
