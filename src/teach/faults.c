/* faults.c - mistakes of the kinds that a small policy makes, and what verify says about them.
 *
 * A mistake replaces one token of a solution: a size, name, number or type by another one of the same file, or a name
 * by one that is not defined; or it removes a bracket or a statement.  The judge's builder and compiler, which need no
 * device, say what is wrong with plan.c and which kernels do not compile.  Running a kernel needs a device, so two
 * kinds are made whose outcome is certain: another operation on values (a mismatch, whose figures are drawn) and an
 * index far outside its buffer (cuda: an illegal address).
 *
 * Each kind is as frequent as the shipped policy made it on held-out tasks (bench/results/nano.md). */
#include "agent/extract.h"
#include "agent/tools.h"
#include "base/mem.h"
#include "teach/teach.h"
#include "judge/reasons.h"
#include "judge/run/proto.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 32 << 20, TRIES = 6 };

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* A token.  One is only replaced by another of its kind: 'S' sizes, '0' numbers, 'W' types, 'i' 'v' 'x' ... names with
 * that letter, 'k' a kernel's macros, 'n' names of tensors, ',' brackets and separators, '+' an operation on values,
 * '[' an operation inside an index.  0: it is never replaced. */
struct word {
	const char *p;
	size_t n;
	char kind;
	int first;  /* the first token of a statement that is one line */
	int output; /* inside WW_OUTPUT() */
};
struct words {
	struct word *w;
	size_t n;
};

static int is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static int is_type(const char *p, size_t n)
{
	static const char *const types[] = { "WW_F32", "WW_F16", "WW_BF16" };
	for (size_t i = 0; i < WW_ARRAY_LEN(types); i++)
		if (n == strlen(types[i]) && !memcmp(p, types[i], n))
			return 1;
	return 0;
}

static char kind_of_name(const char *p, size_t n)
{
	size_t digits = 0;
	while (1 + digits < n && isdigit((unsigned char)p[1 + digits]))
		digits++;
	if (is_type(p, n))
		return 'W';
	if (n > 3 && (!memcmp(p, "in_", 3) || !memcmp(p, "out", 3) || !memcmp(p, "p_", 2)))
		return 'n';
	if (digits && 1 + digits == n && strchr("Sivxra", *p))
		return *p;
	return *p == 'k' && digits && 1 + digits < n ? 'k' : 0;
}

/* The scanner's state. */
struct scan {
	const char *text, *line; /* behind its indentation */
	int index;               /* open brackets [ */
	int round;               /* open parentheses of this line */
	int output;              /* inside WW_OUTPUT() */
};

static int begins(const char *p, const char *with) { return !strncmp(p, with, strlen(with)); }

static char kind_of_operation(const struct scan *at)
{
	if (at->index || (at->round > 1 && (begins(at->line, "ww::load") || begins(at->line, "ww::store"))))
		return '[';
	size_t n = strcspn(at->line, "\n");
	int is_value = begins(at->line, "const float ") || begins(at->line, "const ww_vf ");
	return is_value && !memmem(at->line, n, "load(", 5) ? '+' : 0;
}

static char kind_of(const struct scan *at, const char *p, size_t n)
{
	if (isdigit((unsigned char)*p))
		return memchr(p, '.', n) ? 0 : '0';
	if (is_name(*p))
		return kind_of_name(p, n);
	if (strchr("+-*", *p) && p > at->text && p[-1] == ' ' && p[1] == ' ')
		return kind_of_operation(at);
	return strchr("(),;", *p) ? ',' : 0;
}

/* Bytes of the comment, preprocessor line, string or blank at p; 0: a token begins there. */
static size_t skip_bytes(const char *p, const char *begin)
{
	if (!strncmp(p, "/*", 2)) {
		const char *end = strstr(p, "*/");
		return end ? (size_t)(end - p) + 2 : strlen(p);
	}
	if (*p == '#' && (p == begin || p[-1] == '\n'))
		return strcspn(p, "\n");
	if (*p == '"') {
		size_t n = 1 + strcspn(p + 1, "\"\n");
		return p[n] == '"' ? n + 1 : n;
	}
	return isspace((unsigned char)*p) ? 1 : 0;
}

static size_t length_of(const char *p)
{
	size_t n = 0;
	while (is_name(p[n]) || (n && p[n] == '.' && isdigit((unsigned char)*p)))
		n++;
	return n ? n : 1;
}

static int is_statement(const struct scan *at, const char *p)
{
	size_t n = strcspn(p, "\n");
	return p == at->line && p[n - 1] == ';' && !begins(p, "for");
}

/* Update the state by the token that has just been read. */
static void step(struct scan *at, const char *p, size_t n)
{
	at->output = at->output ? *p != ';' : n == 9 && begins(p, "WW_OUTPUT");
	at->index += (*p == '[') - (*p == ']');
	at->round += (*p == '(') - (*p == ')');
}

static enum ww_rc words_of(const char *text, struct words *out, struct ww_err *err)
{
	struct scan at = { .text = text, .line = text };
	WW_CHECK(WW_NEW(out->w, strlen(text) + 1, err));
	for (const char *p = text; *p;) {
		size_t skip = skip_bytes(p, text), n = length_of(p);
		if (*p == '\n') {
			at.line = p + 1 + strspn(p + 1, "\t");
			at.round = 0;
		}
		if (!skip) {
			out->w[out->n++] = (struct word){ p, n, kind_of(&at, p, n), is_statement(&at, p), at.output };
			step(&at, p, n);
		}
		p += skip ? skip : n;
	}
	return WW_OK;
}

static void words_release(struct words *w) { free(w->w); }

/* ---- Replacing a token ------------------------------------------------------------------------------------------- */

/* A token of one of these kinds, drawn evenly; output: only inside WW_OUTPUT().  NULL: there is none. */
static const struct word *draw(const struct words *w, const char *kinds, int output, struct ww_rng *rng)
{
	const struct word *found = NULL;
	uint64_t n = 0;
	for (size_t i = 0; i < w->n; i++)
		if (w->w[i].kind && strchr(kinds, w->w[i].kind) && (!output || w->w[i].output) && !ww_rng_below(rng, ++n))
			found = &w->w[i];
	return found;
}

static const struct word *draw_statement(const struct words *w, struct ww_rng *rng)
{
	const struct word *found = NULL;
	uint64_t n = 0;
	for (size_t i = 0; i < w->n; i++)
		if (w->w[i].first && !ww_rng_below(rng, ++n))
			found = &w->w[i];
	return found;
}

/* A token of the same kind and another text, drawn evenly; NULL: there is none. */
static const struct word *draw_other(const struct words *w, const struct word *of, struct ww_rng *rng)
{
	const struct word *found = NULL;
	uint64_t n = 0;
	for (size_t i = 0; i < w->n; i++)
		if (w->w[i].kind == of->kind && (w->w[i].n != of->n || memcmp(w->w[i].p, of->p, of->n)) &&
			!ww_rng_below(rng, ++n))
			found = &w->w[i];
	return found;
}

/* A copy of text in which the n bytes at p are replaced by by_n bytes; malloc'ed. */
static char *replaced(const char *text, const char *p, size_t n, const char *by, size_t by_n)
{
	ww_auto_str s = WW_STR_INIT(TEXT_MAX);
	ww_str_add(&s, text, (size_t)(p - text));
	ww_str_add(&s, by, by_n);
	ww_str_adds(&s, p + n);
	return ww_str_take(&s);
}

/* Each of these returns a changed copy of text, malloc'ed, or NULL where it finds nothing to change. */
static char *put_other(const char *text, const struct words *w, const char *kinds, int output, struct ww_rng *rng)
{
	const struct word *at = draw(w, kinds, output, rng), *other = at ? draw_other(w, at, rng) : NULL;
	return other ? replaced(text, at->p, at->n, other->p, other->n) : NULL;
}

static char *other_size(const char *text, const struct words *w, struct ww_rng *rng)
{
	return put_other(text, w, "S0", 1, rng);
}

static char *other_word(const char *text, const struct words *w, struct ww_rng *rng)
{
	return put_other(text, w, "S0Wnkx", 0, rng);
}

static char *no_name(const char *text, const struct words *w, struct ww_rng *rng)
{
	const struct word *at = draw(w, "Sivxrak", 0, rng);
	char name[32];
	if (!at)
		return NULL;
	snprintf(name, sizeof(name), "%c%d%.*s", *at->p, 20 + (int)ww_rng_below(rng, 40),
		at->kind == 'k' ? (int)(at->n - 2) : 0, at->p + 2);
	return replaced(text, at->p, at->n, name, strlen(name));
}

static char *no_bracket(const char *text, const struct words *w, struct ww_rng *rng)
{
	const struct word *at = draw(w, ",", 0, rng);
	return at ? replaced(text, at->p, at->n, "", 0) : NULL;
}

static char *no_statement(const char *text, const struct words *w, struct ww_rng *rng)
{
	const struct word *at = draw_statement(w, rng);
	return at ? replaced(text, at->p, strcspn(at->p, "\n"), "", 0) : NULL;
}

static char *other_operation(const char *text, const struct words *w, char kind, struct ww_rng *rng)
{
	const char kinds[] = { kind, 0 }, all[] = "+-*";
	const struct word *at = draw(w, kinds, 0, rng);
	if (!at)
		return NULL;
	char other = all[ww_rng_below(rng, 3)];
	return other == *at->p ? NULL : replaced(text, at->p, 1, &other, 1);
}

static char *other_value(const char *text, const struct words *w, struct ww_rng *rng)
{
	return other_operation(text, w, '+', rng);
}

static char *other_place(const char *text, const struct words *w, struct ww_rng *rng)
{
	const struct word *at = draw(w, "[", 0, rng);
	return at && *at->p == '+' ? replaced(text, at->p, 1, "*", 1) : NULL;
}

/* ---- The outcome of a mistake ------------------------------------------------------------------------------------ */

enum outcome { PLAN, COMPILE, MISMATCH, CRASH };

static const struct kind {
	int share; /* of 100 */
	enum outcome outcome;
	char *(*make)(const char *text, const struct words *w, struct ww_rng *rng);
} kinds[] = { { 16, PLAN, other_size }, { 16, PLAN, other_word }, { 6, PLAN, no_name }, { 5, PLAN, no_bracket },
	{ 4, PLAN, no_statement }, { 16, COMPILE, no_name }, { 9, COMPILE, no_bracket }, { 21, MISMATCH, other_value },
	{ 7, CRASH, other_place } };

struct maker {
	const struct ww_teach_tools *tools;
	const struct ww_facts *facts;
	const struct ww_teach_solution *right;
	struct ww_image *image; /* of the right plan */
	struct words plan, device;
	struct ww_rng *rng;
};

static void maker_release(struct maker *m)
{
	free(m->image);
	words_release(&m->plan);
	words_release(&m->device);
}

static enum ww_rc build(
	const struct maker *m, const char *plan, struct ww_image **image, struct ww_str *reason, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_BUILD_DIAG_BYTES);
	enum ww_build_result result;
	WW_CHECK(ww_builder_build(m->tools->builder, plan, strlen(plan), m->facts, image, &text, &result, err));
	if (result != WW_BUILD_OK)
		ww_reason_build(result, &text, reason);
	return WW_OK;
}

static enum ww_rc compile(const struct maker *m, const char *device, struct ww_str *reason, struct ww_err *err)
{
	WW_AUTO(ww_compiled_release) struct ww_compiled c;
	enum ww_compile_result result;
	ww_compiled_init(&c);
	WW_CHECK(ww_compiler_compile(m->tools->compiler, device, strlen(device), m->image, &c, &result, err));
	if (result == WW_COMPILE_FAILED)
		ww_reason_compile(result, c.log, reason);
	return WW_OK;
}

static double spread(struct ww_rng *rng, double lo, double hi) { return lo * pow(hi / lo, ww_rng_uniform(rng)); }

static void draw_diff(const struct ww_tensor *t, struct ww_rng *rng, struct ww_ref_diff *d)
{
	int exact = t->dtype == WW_F32;
	d->numel = t->numel;
	d->rank = t->rank;
	for (int i = 0; i < t->rank; i++)
		d->worst[i] = (int64_t)ww_rng_below(rng, (uint64_t)(t->size[i] > 0 ? t->size[i] : 1));
	d->violations = d->numel - (int64_t)((double)d->numel * spread(rng, 1e-6, 0.5));
	d->err_rel = spread(rng, 0.01, 2);
	d->err_abs = spread(rng, 0.01, 10);
	d->e_rel = exact ? spread(rng, 2e-8, 5e-7) : spread(rng, 1e-4, 1e-3);
	d->limit_rel = exact ? 1e-5 : 4 * d->e_rel;
	d->e_max = spread(rng, 1e-7, 1e-5);
	d->limit_abs = d->e_max * spread(rng, 16, 1000);
	d->first_expected = ww_rng_uniform(rng) * 2 - 1;
	d->first_found = d->first_expected + spread(rng, 0.01, 1);
	d->worst_expected = ww_rng_uniform(rng) * 4 - 2;
	d->worst_found = d->worst_expected + d->err_abs;
	snprintf(d->pattern, sizeof(d->pattern), "%s", d->violations > d->numel / 10 * 9 ? "all" : "scattered");
}

static void say_mismatch(const struct maker *m, struct ww_verdict *v, struct ww_str *reason)
{
	struct ww_ref_diff d = { .pass = 0 };
	int output = (int)ww_rng_below(m->rng, (uint64_t)m->facts->n_outputs);
	draw_diff(&m->facts->outputs[output], m->rng, &d);
	v->err_rel = d.err_rel;
	v->err_abs = d.err_abs;
	ww_reason_diff(&d, output, "a plain draw", reason);
}

/* The reason why the judge refuses `wrong`; it stays empty where the mistake does not have this outcome. */
static enum ww_rc outcome_reason(const struct maker *m, enum outcome outcome, const struct ww_teach_solution *wrong,
	struct ww_verdict *v, struct ww_str *reason, struct ww_err *err)
{
	static const enum ww_status status[] = { [PLAN] = WW_STATUS_PLAN_FAILED,
		[COMPILE] = WW_STATUS_COMPILE_FAILED,
		[MISMATCH] = WW_STATUS_MISMATCH,
		[CRASH] = WW_STATUS_CRASHED };
	ww_auto_free struct ww_image *image = NULL;
	v->status = status[outcome];
	if (outcome == PLAN)
		return build(m, wrong->plan, &image, reason, err);
	if (outcome == COMPILE)
		return compile(m, wrong->device, reason, err);
	if (outcome == MISMATCH)
		say_mismatch(m, v, reason);
	else
		ww_reason_run("crashed", "run", WW_RUN_ILLEGAL_ADDRESS ": CUDA_ERROR_ILLEGAL_ADDRESS", reason);
	return WW_OK;
}

static char *failed_text(struct ww_verdict *v, const struct ww_str *reason)
{
	ww_auto_str text = WW_STR_INIT(1 << 20);
	v->reward = ww_verdict_reward(v);
	free(v->diagnostics);
	v->diagnostics = ww_reason_bounded(reason);
	if (!v->diagnostics)
		return NULL;
	ww_tool_verdict_text(v, WW_JUDGE_FULL, &text);
	return ww_compact_output(text.p, text.len);
}

static int can_make(const struct maker *m, enum outcome o)
{
	return o == COMPILE ? m->tools->compiler != NULL : o != CRASH || m->facts->device.target == WW_TARGET_CUDA;
}

static enum ww_rc try_kind(const struct maker *m, const struct kind *k, struct ww_teach_fault *out, struct ww_err *err)
{
	int in_plan = k->outcome == PLAN;
	ww_auto_str reason = WW_STR_INIT(1 << 16);
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	ww_verdict_init(&v);
	ww_teach_fault_release(out);
	char *changed = k->make(in_plan ? m->right->plan : m->right->device, in_plan ? &m->plan : &m->device, m->rng);
	if (!changed)
		return WW_OK;
	out->wrong.plan = in_plan ? changed : strdup(m->right->plan);
	out->wrong.device = in_plan ? strdup(m->right->device) : changed;
	if (!out->wrong.plan || !out->wrong.device)
		return ww_nomem(err);
	WW_CHECK(outcome_reason(m, k->outcome, &out->wrong, &v, &reason, err));
	if (reason.len && !(out->verify_text = failed_text(&v, &reason)))
		return ww_nomem(err);
	return WW_OK;
}

static const struct kind *draw_kind(struct ww_rng *rng)
{
	int at = (int)ww_rng_below(rng, 100);
	const struct kind *k = kinds;
	while (at >= k->share)
		at -= k++->share;
	return k;
}

enum ww_rc ww_teach_fault(const struct ww_teach_tools *tools, const struct ww_facts *facts,
	const struct ww_teach_solution *right, struct ww_rng *rng, struct ww_teach_fault *out, struct ww_err *err)
{
	WW_AUTO(maker_release) struct maker m = { .tools = tools, .facts = facts, .right = right, .rng = rng };
	ww_auto_str reason = WW_STR_INIT(1 << 16);
	*out = (struct ww_teach_fault){ .verify_text = NULL };
	WW_CHECK(build(&m, right->plan, &m.image, &reason, err));
	WW_CHECK(words_of(right->plan, &m.plan, err));
	WW_CHECK(words_of(right->device, &m.device, err));
	for (int i = 0; m.image && !out->verify_text && i < TRIES; i++) {
		const struct kind *k = draw_kind(rng);
		if (can_make(&m, k->outcome))
			WW_CHECK(try_kind(&m, k, out, err));
	}
	return WW_OK;
}

static enum ww_rc put_file(void *ctx, const char *name, const char *code, size_t bytes, struct ww_err *err)
{
	return ww_solution_add(ctx, name, code, bytes, err);
}

/* What keeps a plan, or else its kernels, from building; it stays empty where all of it builds. */
static enum ww_rc own_reason(
	struct maker *m, const struct ww_solution *s, struct ww_verdict *v, struct ww_str *reason, struct ww_err *err)
{
	v->status = WW_STATUS_PLAN_FAILED;
	WW_CHECK(build(m, s->plan_source, &m->image, reason, err));
	if (reason->len || !m->tools->compiler)
		return WW_OK;
	v->status = WW_STATUS_COMPILE_FAILED;
	return compile(m, s->device_source, reason, err);
}

enum ww_rc ww_teach_own_fault(const struct ww_teach_tools *tools, const struct ww_facts *facts, const char *text,
	struct ww_teach_fault *out, struct ww_err *err)
{
	WW_AUTO(maker_release) struct maker m = { .tools = tools, .facts = facts };
	WW_AUTO(ww_solution_files_release) struct ww_solution_files files;
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	ww_auto_str reason = WW_STR_INIT(1 << 16);
	int n;
	*out = (struct ww_teach_fault){ .verify_text = NULL };
	ww_verdict_init(&v);
	ww_solution_begin(&files, WW_FORM_PLAN, facts->device.target);
	WW_CHECK(ww_extract_files(text, WW_FORM_PLAN, facts->device.target, put_file, &files, &n, err));
	ww_solution_end(&files);
	if (!files.plan.len || !files.device.len)
		return WW_OK;
	WW_CHECK(own_reason(&m, &files.solution, &v, &reason, err));
	if (!reason.len)
		return WW_OK;
	out->wrong = (struct ww_teach_solution){ ww_str_take(&files.plan), ww_str_take(&files.device) };
	out->verify_text = failed_text(&v, &reason);
	return out->wrong.plan && out->wrong.device && out->verify_text ? WW_OK : ww_nomem(err);
}

void ww_teach_fault_release(struct ww_teach_fault *f)
{
	free(f->wrong.plan);
	free(f->wrong.device);
	free(f->verify_text);
	*f = (struct ww_teach_fault){ .verify_text = NULL };
}
