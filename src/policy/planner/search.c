/* search.c - coordinate descent over the knobs of all kernels, driven by verdicts.
 *
 * The first trial takes every default.  If it is correct, each following trial changes one knob of one kernel against
 * the best so far and keeps the change when the time falls by more than the noise.  Kernels whose templates have the
 * most to gain come first (matrix products, convolutions, attention, then rows, then maps), and a knob's values in
 * the order of how often they win.  Before all else on cuda, all convolutions run channels-last (in PyTorch's order,
 * where the first trial has them so), those whose results are beyond L2 are ours, all launches overlap, all
 * convolutions go to our templates at once, then all to the library, and so do all products, and all of the library's
 * convolutions take its next algorithm: a network has too many for one trial each.
 *
 * Where the best is slower than PyTorch in eager mode, trials leave the operators of one kernel after another to
 * PyTorch, what has helped on top of each other; then the search goes on with the kernels that are left.
 *
 * If the first trial is not correct, one follows with the library's convolutions in full fp32 (PyTorch's own run may do
 * without TF32, and the rule then leaves no room for it), then one with everything plain (no vectors, general
 * templates, no library).
 *
 * A model's solution may come first (pl_search_propose()).  Where knobs of ours write it, the search begins there;
 * else it stands beside the search, as one more solution that may be submitted.
 *
 * The solution that is submitted is the best by the loop's own order (reward, then time), not the base of the
 * variations, which changes only by more than the noise.  The loop judges its best and the submitted one once more, so
 * one judgement serves both.
 *
 * The search ends when every variation was tried, after SEARCH_MAX_TRIALS, or when judging took JUDGE_SECONDS after the
 * first verdict.  It keeps no state outside the struct and reads nothing but verdicts, so that replaying an episode's
 * verdicts leads to the same next trial; the seconds that count are the ones recorded in the verdicts. */
#include "policy/planner/search.h"

#include <math.h>
#include <string.h>

static const double JUDGE_SECONDS = 25;
static const double NOISE = 0.015, SLOWER = 0.97; /* than eager mode, by more than the noise */
enum { MAX_LEAVE = 8, LEFT_BYTES = 64 << 10 };

static const struct knob_row library_row = { KNOB(library), "library", { LIBRARY_NO, LIBRARY_YES, LIBRARY_HALVES } };
enum { VALUES = WW_ARRAY_LEN(library_row.value) };

static void add_rows(struct search *s, enum kkind kind, int anchor, int all, const struct knob_row *row)
{
	for (; row && row->name; row++)
		s->coords[s->n_coords++] = (struct coord){ .kind = kind, .anchor = anchor, .all = all, .row = *row };
}

/* The knobs of this target, in the order in which they are tried. */
static void list_coords(struct search *s)
{
	const struct knob_row library[] = { library_row, { 0 } },
						  choice[] = { { KNOB(choice), "algorithm", { 1, 2 } }, { 0 } };

	for (int all = 1; all >= 0 && s->cuda; all--)
		for (int i = S_COUNT - 1; i >= 0; i--)
			if (pl_anchor_ops[i]->by_library)
				add_rows(s, K_ANCHOR, i, all, library);
	if (s->cuda)
		add_rows(s, K_ANCHOR, S_CONV, 1, choice);
	for (int i = 0; i < S_COUNT; i++)
		add_rows(s, K_ANCHOR, i, 0, pl_anchor_ops[i]->knobs[s->cuda]);
	add_rows(s, K_ROW, -1, 0, pl_row_knobs[s->cuda]);
	add_rows(s, K_POINT, -1, 0, pl_point_knobs[s->cuda]);
}

static int *knob(struct trial *t, int kernel, const struct coord *c)
{
	return (int *)(void *)((char *)&t->knobs[kernel] + c->row.field);
}

static int is_anchor(const struct search *s, int kernel, int anchor)
{
	return s->cuda && s->shape->kern_kind[kernel] == K_ANCHOR && s->shape->kern_spec[kernel] == anchor;
}

/* How many of the first `end` kernels compute such an anchor. */
static int count_anchors(const struct search *s, int end, int anchor)
{
	int n = 0;

	for (int i = 0; i < end && i < SEARCH_KERNELS; i++)
		n += is_anchor(s, i, anchor);
	return n;
}

static int by_library(const struct search *s, int kernel)
{
	int library = s->best.knobs[kernel].library;

	return (s->shape->kern_library[kernel] & LIBRARY_ONLY) ||
		(library == LIBRARY_AUTO ? (s->shape->kern_library[kernel] & BY_LIBRARY) != 0 : library != LIBRARY_NO);
}

static int in_halves(const struct search *s, int kernel)
{
	int library = s->best.knobs[kernel].library;

	return library == LIBRARY_AUTO ? (s->shape->kern_library[kernel] & IN_HALVES) != 0 : library == LIBRARY_HALVES;
}

/* Knobs of GEMMs and convolutions apply where our template computes them; `choice` where the library does. */
static int applies(const struct search *s, const struct coord *c, int kernel)
{
	if (s->shape->kern_kind[kernel] != c->kind || (c->anchor >= 0 && s->shape->kern_spec[kernel] != c->anchor))
		return 0;
	if (!s->cuda || c->anchor < 0 || !pl_anchor_ops[c->anchor]->by_library || c->row.field == KNOB(library))
		return 1;
	if (by_library(s, kernel))
		return c->row.field == KNOB(choice);
	return c->row.field != KNOB(choice) &&
		((s->shape->kern_library[kernel] & OURS_TILED) || (c->anchor == S_GEMM && c->row.field == KNOB(gemm.form)));
}

/* Is `value` of the knob for a product's kind of tiles what it has already? */
static int is_form(const struct search *s, const struct coord *c, int kernel, int value)
{
	return c->anchor == S_GEMM && c->row.field == KNOB(gemm.form) &&
		(s->shape->kern_library[kernel] & OURS_TILED ? 2 : 1) == value;
}

/* Convolutions run channels-last, everything else by default. */
static void trial_last(struct trial *t)
{
	memset(t, 0, sizeof(*t));
	for (int i = 0; i < SEARCH_KERNELS; i++)
		t->knobs[i].last = 1;
	snprintf(t->text, sizeof(t->text), "try convolutions channels-last");
}

void pl_search_init(struct search *s, const struct pl_result *shape, const struct pl_result *last, int cuda,
	const struct search_build *build)
{
	memset(s, 0, sizeof(*s));
	s->order[0] = shape;
	s->order[1] = last;
	s->build = build ? *build : (struct search_build){ NULL, NULL };
	s->cuda = cuda;
	s->best_us = s->top_us = INFINITY;
	s->over_eager = NAN;
	list_coords(s);
	/* Closer estimates are a draw: measured, builds with .74 to .86 of the other's estimate were faster (7 of 7, 1.04
	   to 1.6 times); of seven with .92 to 1.00 two were 1.11 and 1.32 times as fast, five slower (.64 to .98). */
	if (last && last->order_us < 0.92 * shape->order_us)
		trial_last(&s->now);
	s->shape = s->order[s->now.knobs[0].last];
	snprintf(s->now.text, sizeof(s->now.text), "first version: %d kernel%s, default tiles%s", s->shape->n_kern,
		s->shape->n_kern == 1 ? "" : "s", s->now.knobs[0].last ? ", convolutions channels-last" : "");
}

void pl_search_release(struct search *s) { ww_pl_result_release(&s->left); }

/* The build whose kernels a trial's `left` counts. */
static const struct pl_result *counted(const struct search *s, const struct trial *t)
{
	return s->order[t->knobs[0].last];
}

char *pl_search_left(const struct search *s, const struct trial *t)
{
	const struct pl_result *all = counted(s, t);
	struct ww_str names = WW_STR_INIT(LEFT_BYTES);

	for (int i = 0; i < all->n_kern && i < SEARCH_KERNELS; i++)
		if (t->left >> i & 1)
			ww_str_addf(&names, "%s%s", names.len ? ", " : "", all->kern_nodes[i]);
	return ww_str_take(&names);
}

/* The kernels of the best trial, which knobs are varied of. */
static void take_shape(struct search *s)
{
	s->shape = counted(s, &s->now);
	ww_pl_result_release(&s->left);
	if (!s->now.left)
		return;
	s->build.fn(s->build.ctx, &s->now, &s->left);
	s->shape = &s->left;
}

/* Does `value` of the library's knob change nothing about a kernel? */
static int is_so(const struct search *s, int kernel, int value)
{
	if (value == LIBRARY_NO && s->ours && s->shape == s->order[0] && (s->shape->kern_library[kernel] & OURS_BEYOND_L2))
		return 1; /* that was vary_ours() */
	if (value == LIBRARY_HALVES)
		return s->exact || in_halves(s, kernel) || !(s->shape->kern_library[kernel] & FITS_HALVES);
	return by_library(s, kernel) == (value == LIBRARY_YES) && !in_halves(s, kernel);
}

/* Let `value` of the library's knob compute kernel `only` of s->now, or with -1 every such anchor: how many
 * changed.
 */
static int set_library(struct search *s, int anchor, int only, int value)
{
	int n = s->shape->n_kern < SEARCH_KERNELS ? s->shape->n_kern : SEARCH_KERNELS, changed = 0;

	for (int i = 0; i < n; i++) {
		if (!is_anchor(s, i, anchor) || (s->shape->kern_library[i] & LIBRARY_ONLY) || (only >= 0 && i != only) ||
			is_so(s, i, value))
			continue;
		s->now.knobs[i].library = value == LIBRARY_YES && s->exact ? LIBRARY_FP32 : value;
		s->now.knobs[i].choice = 0;
		changed++;
	}
	return changed;
}

/* Move one of several anchors, or all, to the library or away from it. */
static int vary_library(struct search *s, const struct coord *c, int kernel, int value)
{
	/* all of them are one trial, counted for the first of them; one of one only is the same as all */
	if (c->all ? count_anchors(s, kernel, c->anchor) > 0 : count_anchors(s, s->shape->n_kern, c->anchor) < 2)
		return 0;
	s->now = s->best;
	snprintf(s->now.text, sizeof(s->now.text), "try %s%s %s the library", c->all ? "all " : "",
		c->all ? pl_anchor_ops[c->anchor]->by_library : s->shape->kern_title[kernel],
		value == LIBRARY_NO        ? "without"
			: value == LIBRARY_YES ? "by"
								   : "in halves by");
	return set_library(s, c->anchor, c->all ? -1 : kernel, value);
}

/* All anchors of a kind that are the library's take its algorithm number `value`. */
static int vary_choices(struct search *s, const struct coord *c, int kernel, int value)
{
	int n = s->shape->n_kern < SEARCH_KERNELS ? s->shape->n_kern : SEARCH_KERNELS, changed = 0;

	if (count_anchors(s, kernel, c->anchor) > 0)
		return 0;
	s->now = s->best;
	snprintf(s->now.text, sizeof(s->now.text), "try algorithm %d for all %s by the library", value,
		pl_anchor_ops[c->anchor]->by_library);
	for (int i = 0; i < n; i++)
		if (is_anchor(s, i, c->anchor) && by_library(s, i) && s->best.knobs[i].choice != value) {
			s->now.knobs[i].choice = value;
			changed++;
		}
	return changed > 1;
}

/* Library nodes without TF32, where they may have used it: how many of the build's. */
static int set_fp32(struct trial *t, const struct pl_result *shape)
{
	int n = 0;

	for (int i = 0; i < shape->n_kern && i < SEARCH_KERNELS; i++)
		if (shape->kern_kind[i] == K_ANCHOR && pl_anchor_ops[shape->kern_spec[i]]->library_tf32) {
			t->knobs[i].library = LIBRARY_FP32;
			n++;
		}
	return n;
}

const struct pl_result *pl_build_last(const json_t *graph, const json_t *device, const char *target,
	const struct pl_options *options, const struct pl_result *first, struct pl_result *out)
{
	struct trial t;

	memset(out, 0, sizeof(*out));
	if (strcmp(target, "cuda"))
		return NULL;
	trial_last(&t);
	ww_pl_build(graph, device, target, t.knobs, SEARCH_KERNELS, options, out);
	return out->ok && strcmp(out->plan_text, first->plan_text) != 0 ? out : NULL;
}

/* Run all convolutions in the other order of dimensions: another build, with kernels of its own. */
static void vary_order(struct search *s)
{
	int last = !s->best.knobs[0].last;

	memset(&s->now, 0, sizeof(s->now));
	if (last)
		trial_last(&s->now);
	else
		snprintf(s->now.text, sizeof(s->now.text), "try convolutions in PyTorch's order");
	if (s->exact)
		set_fp32(&s->now, s->order[last]);
}

/* Convolutions in PyTorch's order whose results are beyond L2, by our template where the library was first, or may have
 * been in the other order. */
static int vary_ours(struct search *s)
{
	const struct pl_result *all = s->order[0];
	int n = 0;

	if (s->ours || s->exact)
		return 0;
	s->ours = 1;
	memset(&s->now, 0, sizeof(s->now));
	for (int i = 0; i < all->n_kern && i < SEARCH_KERNELS; i++)
		if ((all->kern_library[i] & OURS_BEYOND_L2) && (all->kern_library[i] & BY_LIBRARY)) {
			s->now.knobs[i].library = LIBRARY_NO;
			n++;
		}
	snprintf(s->now.text, sizeof(s->now.text), "try %d convolution%s of ours", n, n == 1 ? "" : "s");
	return n;
}

/* Overlap all launches of the best trial, which saves about a microsecond between two of them. */
static void vary_overlap(struct search *s)
{
	s->now = s->best;
	for (int i = 0; i < SEARCH_KERNELS; i++)
		s->now.knobs[i].overlap = 1;
	snprintf(s->now.text, sizeof(s->now.text), "try launches that overlap");
	s->overlapped = 1;
}

/* Kernels by how much PyTorch's own may be faster: anchors of ours, then rows, then maps. */
static int may_be_left(const struct search *s, const struct pl_result *all, int kernel, int kind)
{
	static const enum kkind kinds[] = { K_ANCHOR, K_ROW, K_POINT };

	return all->kern_kind[kernel] == kinds[kind] && *all->kern_nodes[kernel] && !(s->best.left >> kernel & 1) &&
		!(all->kern_library[kernel] & LIBRARY_ONLY);
}

static int builds(const struct search *s, const struct trial *t)
{
	WW_AUTO(ww_pl_result_release) struct pl_result out = { 0 };

	s->build.fn(s->build.ctx, t, &out);
	return out.ok;
}

/* Leave what one more kernel computes to PyTorch, while the best is slower than that. */
static int vary_left(struct search *s)
{
	const struct pl_result *all = counted(s, &s->best);
	int n = all->n_kern < SEARCH_KERNELS ? all->n_kern : SEARCH_KERNELS;

	for (; s->build.fn && s->over_eager < SLOWER && s->n_leave < MAX_LEAVE && s->leaving < 3 * n; s->leaving++) {
		int kernel = s->leaving % n;

		if (!may_be_left(s, all, kernel, s->leaving / n))
			continue;
		memset(&s->now, 0, sizeof(s->now));
		for (int i = 0; i < SEARCH_KERNELS; i++)
			s->now.knobs[i].last = s->best.knobs[0].last;
		s->now.left = s->best.left | (uint64_t)1 << kernel;
		if (!builds(s, &s->now))
			continue;
		snprintf(s->now.text, sizeof(s->now.text), "%.2fx eager so far; try %.150s as PyTorch runs it", s->over_eager,
			all->kern_title[kernel]);
		s->leaving++;
		s->n_leave++;
		return 1;
	}
	return 0;
}

/* The next variation along the knobs' first `end` rows; 0 where there is none.  `coord` counts (row of the table,
 * kernel, value). */
static int vary_knobs(struct search *s, int end)
{
	int n = s->shape->n_kern < SEARCH_KERNELS ? s->shape->n_kern : SEARCH_KERNELS, per = n * VALUES;

	for (; s->coord < end * per; s->coord++) {
		const struct coord *c = &s->coords[s->coord / per];
		int kernel = s->coord % per / VALUES, value = c->row.value[s->coord % VALUES];

		if (!applies(s, c, kernel) || !value || is_form(s, c, kernel, value))
			continue;
		if (c->row.field == KNOB(library) || c->all) {
			if (!(c->row.field == KNOB(library) ? vary_library : vary_choices)(s, c, kernel, value))
				continue;
			s->coord++;
			return 1;
		}
		if (*knob(&s->best, kernel, c) == value)
			continue;
		s->now = s->best;
		*knob(&s->now, kernel, c) = value;
		snprintf(s->now.text, sizeof(s->now.text), "try %s %d for k%d (%.150s)", c->row.name, value, kernel,
			s->shape->kern_title[kernel]);
		s->coord++;
		return 1;
	}
	return 0;
}

/* The rows that let the library compute all anchors of a kind; they come first. */
static int library_rows(const struct search *s)
{
	int n = 0;

	while (n < s->n_coords && s->coords[n].all && s->coords[n].row.field == KNOB(library))
		n++;
	return n;
}

/* The next variation of the best trial; 0 when there is none left.  What is slower than eager is tried by the library
 * before a part of it is left to PyTorch: its products are the same, and nothing is copied to it. */
static int vary(struct search *s)
{
	if (s->order[1] && s->n_trials - s->proposed == s->failed + 1) {
		vary_order(s);
		return 1;
	}
	if (s->cuda && vary_ours(s))
		return 1;
	if (s->over_eager < SLOWER && vary_knobs(s, library_rows(s)))
		return 1;
	if (vary_left(s))
		return 1;
	if (s->shape->can_overlap && !s->overlapped && !s->best.knobs[0].overlap) {
		vary_overlap(s);
		return 1;
	}
	return vary_knobs(s, s->n_coords);
}

/* The library without TF32, where the first version may have used it. */
static int no_tf32(struct search *s)
{
	int n = s->cuda ? set_fp32(&s->now, s->shape) : 0;

	s->exact = n > 0;
	snprintf(s->now.text, sizeof(s->now.text), "the first version failed (%.120s); try the library without TF32",
		s->failure);
	return n;
}

static void plain(struct search *s)
{
	memset(s->now.knobs, 0, sizeof(s->now.knobs));
	for (int i = 0; i < SEARCH_KERNELS; i++)
		s->now.knobs[i].plain = 1;
	s->plain = 1;
	snprintf(s->now.text, sizeof(s->now.text), "the first version failed (%.120s); try plain kernels", s->failure);
}

static void note_top(struct search *s, double us, double reward)
{
	if (s->have_top && (reward < s->top_reward || (reward == s->top_reward && !(us < s->top_us))))
		return;
	s->top = s->now;
	s->have_top = 1;
	s->top_us = us;
	s->top_reward = reward;
}

void pl_search_propose(struct search *s, const struct trial *nearest, int exact)
{
	s->first = s->now;
	s->now = *nearest;
	s->now.proposal = 1;
	s->proposed = !exact;
	s->shape = s->order[s->now.knobs[0].last];
	snprintf(s->now.text, sizeof(s->now.text), "the model's solution");
}

/* Begin the search after the trial of a proposal that no knobs write. */
static void begin_beside(struct search *s, int correct)
{
	if (correct)
		s->now.proposal = 0;
	else
		s->now = s->first;
	s->shape = s->order[s->now.knobs[0].last];
	if (correct)
		snprintf(s->now.text, sizeof(s->now.text), "the planner's version of it: %d kernel%s", s->shape->n_kern,
			s->shape->n_kern == 1 ? "" : "s");
}

void pl_search_feed(struct search *s, const json_t *v)
{
	int correct = ww_json_bool(v, "correct", 0);
	double us = ww_json_to_real(json_object_get(json_object_get(v, "time"), "device_us"), NAN);

	s->n_trials++;
	if (s->n_trials > 1) /* the first one also pays for the references and baselines */
		s->seconds += ww_json_to_real(json_object_get(json_object_get(v, "seconds"), "total"), 0);
	if (!correct)
		snprintf(s->failure, sizeof(s->failure), "%s: %.300s", ww_json_str(v, "status", "no verdict"),
			ww_json_str(v, "diagnostics", ""));
	if (correct)
		note_top(s, us, ww_json_num(v, "reward", 0));
	if (s->now.proposal && s->proposed) {
		begin_beside(s, correct);
		return;
	}
	if (correct && (!s->have_best || us < s->best_us * (1 - NOISE))) {
		s->best = s->now;
		s->best.proposal = 0;
		take_shape(s);
		s->have_best = 1;
		s->best_us = us;
		s->over_eager = ww_json_to_real(
			json_object_get(json_object_get(json_object_get(v, "speedup"), "eager"), "mid"), NAN);
	}
	if (!s->have_best) {
		s->failed++;
		s->now.proposal = 0;
		if (s->failed == 1 && no_tf32(s))
			return;
		if (!s->plain)
			plain(s);
		else
			s->done = 1;
		return;
	}
	if (s->plain || !isfinite(s->best_us) || s->n_trials >= SEARCH_MAX_TRIALS || s->seconds > JUDGE_SECONDS || !vary(s))
		s->done = 1;
}
