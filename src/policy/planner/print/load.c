/* load.c - writes what an expression reads: an element, or a vector of them along the lane.
 *
 * On the cpu a vector is loaded where lanes are neighbours, and otherwise by the cheapest form that the cookbook has
 * for its places: turned around, a window, a gather, a lookup.  On cuda loads with step 1 are collected in vload[] and
 * done by 16 bytes ahead of the loop over the lanes. */
#include "policy/planner/print/write.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

enum { MAX_GUARDED = 16 /* no more than so many vectors are loaded under conditions: each takes registers */ };

/* Does x contain an index that was loaded inside the loop over the lanes, so that each lane has its own? */
static int looked_up(const struct ix *x)
{
	for (int i = 0; x && i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			if (t->kind == IX_TEMP ? t->value > 1
								   : t->kind != IX_SYM && t->kind != IX_VAR && (looked_up(t->a) || looked_up(t->b)))
				return 1;
		}
	return 0;
}

/* Does the expression belong to a functor of an anchor (cuda), which has no row level? */
static int is_functor(const struct expr *e) { return e->block[1] == e->block[2]; }

enum { WIDEST = 8 };

/* cuda: do all lanes of a vector share the place?  It depends on the lane by quotients by multiples of any vector's
 * elements alone (statistics of groups of columns). */
static int is_of_vector(const struct expr *e, const struct ix *off)
{
	int64_t n;

	for (int i = 0; i < off->n; i++)
		for (int a = 0; a < off->m[i].n; a++) {
			const struct ix_atom *t = off->m[i].atom[a];

			if (pl_has_lane(e, pl_of_var(e->pl, t)) &&
				!(t->kind == IX_DIV && ix_as_var(t->a) == e->lane && ix_is_const(t->b, &n) && n % WIDEST == 0))
				return 0;
		}
	return 1;
}

/* Have the vector loaded before the loop over the lanes.  In a functor also an element that all lanes share, or the
 * lanes' elements one by one, `step` apart: loaded behind the branches of its stores, each store would wait for them.
 * 0: there are too many vectors (64 steps of a recurrence, each of which reads two); this one's elements are loaded in
 * the loop.
 */
static int load_cuda_vec(struct expr *e, struct buf *b, const struct ix *off, const struct ix *step, struct etext *t)
{
	struct pl *pl = e->pl;
	const struct ix *cond = e->scope ? e->cond : NULL;
	const int one = is_of_vector(e, off);
	const char *index = one ? "[0]" : e->vload_index;

	for (int i = 0; i < e->n_vload; i++)
		if (e->vload[i].buf == b && ix_same(e->vload[i].base, off) && !e->vload[i].apart &&
			(!e->vload[i].cond || (cond && ix_same(e->vload[i].cond, cond))))
			return t->t = pl_fmt(pl, "%s%s", e->vload[i].name, index), 1;
	if (e->n_vload >= (int)WW_ARRAY_LEN(e->vload))
		return 0;
	e->vload[e->n_vload] = (struct vload){
		.buf = b, .base = off, .stage = e->stage, .cond = cond, .one = one, .step = step
	};
	e->vload[e->n_vload].name = pl_fmt(pl, "x%d", e->n_vload);
	t->t = pl_fmt(pl, "%s%s", e->vload[e->n_vload++].name, index);
	return 1;
}

enum { APART = 4 /* elements between lanes, of which whole vectors are loaded */ };

/* Is the dimension that memory runs along a multiple of n?  Checked by the plan, too. */
static int runs_in(struct pl *pl, const struct buf *b, int n)
{
	for (int d = 0; d < b->rank; d++)
		if (ix_is(b->stride[d], 1) && ix_num(b->size[d]) > 1) {
			if (ix_num(b->size[d]) % n)
				return 0;
			pl_guard_terms(pl, pl_fmt(pl, " | %s", ix_text(pl, b->size[d])), n);
			return 1;
		}
	return 0;
}

/* cuda, pointwise: lanes two or four elements apart (a pixel shuffle back, every other element).  Loaded one by one, an
 * element of a lane is in the memory banks of many others (eight bfloat16 of each thread, four apart: 16 accesses for
 * one; 32 x 1,024 x 64 x 48 twice: 418 us, memory takes 143, H200).  So all between them are loaded by 16 bytes, and
 * each lane takes its own.  rest: the offset without the lane.  0: they do not begin where vectors do. */
static int load_apart(
	struct expr *e, struct buf *b, const struct ix *off, const struct ix *coef, const struct ix *rest, struct etext *t)
{
	struct ix *which = pl_alloc(e->pl, sizeof(*which) + (size_t)rest->n * sizeof(which->m[0]));
	int64_t apart, lo, hi;
	int aligned = 16 / pl_itemsize(b->dt);
	struct vload *v;

	if (e->k->kind != K_POINT || e->scope || !ix_is_const(coef, &apart) || (apart != 2 && apart != APART) ||
		(b->dt != WW_F32 && !pl_is_half(b->dt)))
		return 0;
	which->n = 0;
	for (int i = 0; i < rest->n; i++) {
		struct ix *one = pl_alloc(e->pl, sizeof(*one) + sizeof(one->m[0]));

		one->n = 1;
		one->m[0] = rest->m[i];
		if (!pl_divides(one, e->lane, (int)apart))
			which->m[which->n++] = rest->m[i];
	}
	off = ix_sub(e->pl, off, which);
	if (ix_looks_up(rest) || !ix_range(which, &lo, &hi) || lo < 0 || hi >= apart ||
		!pl_divides(off, e->lane, aligned) || !runs_in(e->pl, b, (int)apart))
		return 0;
	for (int i = 0; i < e->n_vload; i++)
		if (e->vload[i].buf == b && e->vload[i].apart == apart && ix_same(e->vload[i].base, off) &&
			ix_same(e->vload[i].which, which))
			return t->t = pl_fmt(e->pl, "%s%s", e->vload[i].name, e->vload_index), 1;
	if (e->n_vload >= (int)WW_ARRAY_LEN(e->vload))
		return 0;
	pl_guard_terms(e->pl, pl_cuda_terms(e->pl, "", off, e->lane), aligned);
	v = &e->vload[e->n_vload];
	*v = (struct vload){ .buf = b, .base = off, .stage = e->stage, .apart = (int)apart, .which = which };
	v->name = pl_fmt(e->pl, "x%d", e->n_vload++);
	t->t = pl_fmt(e->pl, "%s%s", v->name, e->vload_index);
	return 1;
}

enum { REPEATS = 8 /* lanes that share an element, at most */ };

/* cuda, pointwise: each element is for two, four or eight neighbouring lanes (a resampling to twice as many).  Loaded
 * one by one, a thread of eight bfloat16 has four loads of two bytes for one store of sixteen (65,536 x 64 x 64 to
 * 128 x 128: 740 us, memory takes 628, H200).  0: it is no such load, or they do not begin where vectors do. */
static int load_repeated(struct expr *e, struct buf *b, const struct ix *off, struct etext *t)
{
	const struct ix *quotient, *rest;
	const struct ix_atom *div = NULL;
	int64_t n;
	struct vload *v;

	for (int i = 0; i < off->n; i++)
		if (off->m[i].n == 1 && off->m[i].c == 1 && off->m[i].atom[0]->kind == IX_DIV &&
			ix_as_var(off->m[i].atom[0]->a) == e->lane)
			div = off->m[i].atom[0];
	if (!div || e->k->kind != K_POINT || e->scope || !ix_is_const(div->b, &n) || (n != 2 && n != 4 && n != REPEATS) ||
		(b->dt != WW_F32 && !pl_is_half(b->dt)) || ix_looks_up(off))
		return 0;
	quotient = pl_of_var(e->pl, div);
	rest = ix_sub(e->pl, off, quotient);
	if (pl_has_lane(e, rest) || !pl_divides(ix_mulc(e->pl, rest, n), e->lane, 16 / pl_itemsize(b->dt)))
		return 0;
	for (int i = 0; i <= e->n_vload; i++) {
		if (i == (int)WW_ARRAY_LEN(e->vload))
			return 0;
		v = &e->vload[i];
		if (i < e->n_vload && (v->buf != b || v->repeats != n || !ix_same(v->base, off)))
			continue;
		if (i == e->n_vload) {
			*v = (struct vload){ .buf = b, .base = off, .stage = e->stage, .repeats = (int)n };
			v->whole = ix_mulc(e->pl, rest, n);
			v->name = pl_fmt(e->pl, "x%d", e->n_vload++);
		}
		t->t = pl_fmt(e->pl, "%s%.*sl / %lld]", v->name, (int)strlen(e->vload_index) - 2, e->vload_index, (long long)n);
		return 1;
	}
	return 0;
}

/* Bytes of a tensor from which on contiguous loads prefetch; and loads by index, whose latency the processor hides
 * less. */
enum { FROM_MEMORY = 1 << 20, FROM_ANYWHERE = 1 << 18 };

/* Is this the first pass over a tensor of at least `least` bytes, which comes from memory?  Then its loads prefetch,
 * also across pages. */
static int first_pass(struct expr *e, const struct buf *b, const struct ix *off, int64_t least)
{
	int64_t bytes = pl_itemsize(b->dt) * pl_buf_numel(b);
	int i = 0;

	if ((b->dt != WW_F32 && b->dt != WW_I64) || bytes < least)
		return 0;
	while (i < e->n_vload && !(e->vload[i].buf == b && ix_same(e->vload[i].base, off)))
		i++;
	if (i == e->n_vload && i < (int)WW_ARRAY_LEN(e->vload)) {
		e->vload[i].buf = b;
		e->vload[i].base = off;
		e->vload[i].stage = e->stage;
		e->n_vload++;
	}
	return i < e->n_vload && e->vload[i].stage == e->stage;
}

int pl_is_size(struct pl *pl, const struct ix_atom *a)
{
	return a->kind == IX_SYM || (a->kind != IX_VAR && a->kind != IX_TEMP && !ix_varies(pl_of_var(pl, a)));
}

int pl_in_fours(struct pl *pl, const struct ix *x, const struct ix_atom *lane)
{
	for (int i = 0; i < x->n; i++) {
		int64_t c = x->m[i].c;
		int is_lane = 0;

		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			is_lane |= t == lane;
			c *= pl_is_size(pl, t) ? ix_num(pl_of_var(pl, t)) : 1;
		}
		if (!is_lane && c % 4)
			return 0;
	}
	return 1;
}

/* Under a condition: can whole vectors of this operand be loaded before the loop over the lanes?  If the condition
 * changes along the axis, the operand must be aligned to vectors of four: a smaller vector would hold for all operands.
 */
static int is_loaded_ahead(const struct expr *e, const struct ix *off)
{
	return e->cond && e->n_vload < MAX_GUARDED && (!pl_has_lane(e, e->cond) || pl_in_fours(e->pl, off, e->lane));
}

static const char *vec_places(struct expr *e, const struct ix *x);

/* p times a quotient, a remainder, a comparison or a lookup that changes along the lane; NULL as vec_places(). */
static const char *vec_atom(struct expr *e, const struct ix_atom *t, const char *p)
{
	const char *a = t->a && t->kind != IX_TEMP ? vec_places(e, t->a) : NULL, *b;
	int64_t lo, hi;

	if (t->kind == IX_TEMP)
		return pl_fmt(e->pl, "%s * %s", p, t->name);
	if (!a)
		return NULL;
	if (t->kind == IX_LT)
		return (b = vec_places(e, t->b)) ? pl_fmt(e->pl, "ww_vi_where(ww_vi_lt(%s, %s), %s)", a, b, p) : NULL;
	if ((t->kind != IX_DIV && t->kind != IX_MOD) || ix_varies(t->b) || !ix_range(t->a, &lo, &hi) || lo < 0 || hi >> 31)
		return NULL;
	return pl_fmt(
		e->pl, "%s * ww_vi_%s(%s, (int32_t)(%s))", p, t->kind == IX_DIV ? "div" : "mod", a, ix_text(e->pl, t->b));
}

/* x, which depends on the lane, as a vector of integers; NULL if x divides by a variable or contains loaded indices. */
static const char *vec_places(struct expr *e, const struct ix *x)
{
	struct pl *pl = e->pl;
	const char *sum = NULL;

	for (int i = 0; i < x->n; i++) {
		struct ix *same = pl_alloc(pl, sizeof(*same) + sizeof(same->m[0])); /* the factors that all lanes share */
		const char *p;

		same->n = 1;
		same->m[0] = (struct ix_mono){ .c = x->m[i].c };
		for (int a = 0; a < x->m[i].n; a++)
			if (!pl_has_lane(e, pl_of_var(pl, x->m[i].atom[a])))
				same->m[0].atom[same->m[0].n++] = x->m[i].atom[a];
		p = pl_fmt(pl, "ww_vi_set((int32_t)(%s))", ix_text(pl, same));
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			if (!pl_has_lane(e, pl_of_var(pl, t)))
				continue;
			p = t == e->lane ? pl_fmt(pl, "%s * (ww_vi_iota() + ww_vi_set((int32_t)%s))", p, t->name)
							 : vec_atom(e, t, p);
			if (!p)
				return NULL;
		}
		sum = sum ? pl_fmt(pl, "%s + %s", sum, p) : p;
	}
	return sum ? pl_fmt(pl, "(%s)", sum) : "ww_vi_set(0)";
}

/* A test at run time whether the indices along the lane are contiguous. */
struct run {
	const struct ix *last; /* the last lane */
	const char *same;      /* for each comparison "&& (value at the first lane) == (value at the last)" */
};

/* An affine comparison that gives the same at the first and the last lane does so at all lanes; then the indices are
 * contiguous if the last one is n - 1 behind the first.  0: x has another kind of comparison, so no such test exists.
 */
static int find_run(struct expr *e, const struct ix *x, struct run *run)
{
	const struct ix *coef, *rest;

	for (int i = 0; i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];
			const struct ix *less;

			if (t == e->lane || !pl_has_lane(e, pl_of_var(e->pl, t)))
				continue;
			less = pl_of_var(e->pl, t);
			if (t->kind != IX_LT || !ix_affine(e->pl, ix_sub(e->pl, t->a, t->b), e->lane, &coef, &rest))
				return 0;
			run->same = pl_fmt(e->pl, "%s && %s == %s", run->same, ix_text(e->pl, less),
				ix_text(e->pl, ix_subst(e->pl, less, &e->lane, &run->last, 1)));
		}
	return 1;
}

/* The lookup that x consists of, or NULL. */
static const struct ix_atom *as_lookup(const struct ix *x)
{
	const struct ix_atom *t = x->n == 1 && x->m[0].c == 1 && x->m[0].n == 1 ? x->m[0].atom[0] : NULL;

	return t && t->kind == IX_TEMP && t->b ? t : NULL;
}

/* A vector load of elements at any indices (reflection padding); NULL if the indices have no vector form. */
static const char *load_places(struct expr *e, struct buf *b, const struct ix *off, const char *suffix)
{
	struct ix *base = pl_alloc(e->pl, sizeof(*base) + (size_t)off->n * sizeof(base->m[0]));
	struct ix *along = pl_alloc(e->pl, sizeof(*along) + (size_t)off->n * sizeof(along->m[0]));
	const struct ix_atom *lookup;
	const char *places, *at;
	struct run run = { .same = "" };

	base->n = along->n = 0;
	if (e->mask || !suffix || b->dt == WW_BOOL || pl_buf_numel(b) > 1 << 28)
		return NULL;
	for (int i = 0; i < off->n; i++) {
		int moves = 0;

		for (int a = 0; a < off->m[i].n; a++)
			moves |= pl_has_lane(e, pl_of_var(e->pl, off->m[i].atom[a]));
		if (moves)
			along->m[along->n++] = off->m[i];
		else
			base->m[base->n++] = off->m[i];
	}
	places = vec_places(e, along);
	if (!places)
		return NULL;
	at = pl_fmt(e->pl, "%s + %s", b->name, ix_text(e->pl, base));
	lookup = as_lookup(along);
	if (lookup && b->dt == WW_F32)
		return pl_fmt(e->pl, "ww_vf_load_among(%s, %s, %s, n)", at, lookup->name, ix_text(e->pl, lookup->b));
	places = pl_fmt(e->pl, "ww_vf_load_at%s(%s, %s, n)", suffix, at, places);
	run.last = ix_temp(e->pl, pl_fmt(e->pl, "(%s + n - 1)", e->lane->name));
	if (find_run(e, along, &run))
		places = pl_fmt(e->pl, "%s - %s == n - 1%s ? ww_vf_load%s(%s + %s, n) : %s",
			ix_text(e->pl, ix_subst(e->pl, along, &e->lane, &run.last, 1)), ix_text(e->pl, along), run.same, suffix, at,
			ix_text(e->pl, along), places);
	return places;
}

enum { WINDOW = 8 };

int pl_unrolls(const struct ix *extent)
{
	int64_t n;

	return ix_is_const(extent, &n) && n > 1 && n <= WINDOW;
}

/* The variable of a short loop over adjacent elements, where lanes are `coef` apart: the elements of a sliding window.
 */
static const struct ix_atom *within_window(struct expr *e, const struct ix *off, const struct ix *coef)
{
	const struct ix *step, *rest;
	int64_t n;

	if (e->mask || !ix_is_const(coef, &n) || n < 2 || n > WINDOW)
		return NULL;
	for (int i = 0; i < off->n; i++) {
		const struct ix_atom *v = off->m[i].n == 1 ? off->m[i].atom[0] : NULL;
		int is_row = !v || v->kind != IX_VAR || v == e->lane;

		for (int d = 0; d < e->k->n_row && !is_row; d++)
			is_row = e->k->row[d] == v;
		if (!is_row && pl_unrolls(v->b) && ix_affine(e->pl, off, v, &step, &rest) && ix_is(step, 1))
			return v;
	}
	return NULL;
}

/* Element v of each lane's window; `off` is the offset of that element. */
static void emit_window(
	struct expr *e, struct buf *b, const struct ix *off, const struct ix *coef, const struct ix_atom *v, struct etext t)
{
	const struct ix *zero = ix_const(e->pl, 0);
	const char *at = pl_fmt(e->pl, "%s + %s", b->name, ix_text(e->pl, ix_subst(e->pl, off, &v, &zero, 1)));

	if (first_pass(e, b, off, FROM_MEMORY))
		pl_emit(e, t.level, "if (%s == 0)\n\tww_prefetch_ahead(%s, %s);", v->name, at, ix_text(e->pl, coef));
	pl_emit(e, t.level, "const ww_vf %s = ww_vf_window(%s, %s, %s, %s, n);", t.t, at, ix_text(e->pl, coef), v->name,
		ix_text(e->pl, v->b));
}

/* cuda: an element of a window of two or four that lie side by side, none of them under a condition: all are one load,
 * which the steps of the unrolled loop share.  `name`: the element's.  0: no such window. */
static int load_of_window(struct expr *e, const struct buf *b, const struct ix *off, const char *name, int level)
{
	const struct ix_atom *w = e->cuda_vec && e->scope == e->window_scope ? e->window : NULL;
	const struct ix *coef, *first;
	int64_t n;

	if (!w || !ix_is_const(w->b, &n) || (n != 2 && n != 4 && n * pl_itemsize(b->dt) != 16) ||
		!pl_computed_as_float(b->dt) || ix_looks_up(off) || !ix_affine(e->pl, off, w, &coef, &first) ||
		!ix_is(coef, 1) || !pl_divides(first, w, (int)n))
		return 0;
	pl_guard_terms(e->pl, pl_cuda_terms(e->pl, "", first, w), (int)n);
	pl_emit(e, level, "float %s_all[%lld];", name, (long long)n);
	pl_emit(e, level, "ww::load(%s + %s, %s_all);", b->name, ix_text(e->pl, first), name);
	pl_emit(e, level, "const float %s = %s_all[%s];", name, name, w->name);
	return 1;
}

/* Is x made of sizes, the rows, the lane and w alone? */
static int is_of(const struct expr *e, const struct ix *x, const struct ix_atom *w)
{
	for (int i = 0; i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];
			int known = t == w || t == e->lane || pl_is_size(e->pl, t);

			for (int d = 0; d < e->k->n_row && !known; d++)
				known = e->k->row[d] == t;
			if (!known)
				return 0;
		}
	return 1;
}

/* cuda, pointwise: what each step of a short sum reads along the lane (the columns of a small matrix).  Read where it
 * is used, each element is a load of its own, in a line of its own where lanes have other matrices; all vectors are
 * loaded ahead, and a step of the unrolled loop picks its own.  0: it is no such load. */
static int load_of_steps(struct expr *e, struct buf *b, const struct ix *off, struct etext *t)
{
	struct pl *pl = e->pl;
	const struct ix_atom *w = e->cuda_vec && e->k->kind == K_POINT && e->scope == 1 ? e->window : NULL;
	const struct ix *coef, *rest, *at[WINDOW];
	const char *text = "";
	int64_t n;

	if (!w || e->window_scope != 1 || e->cond || !ix_is_const(w->b, &n) || n < 2 || n > WINDOW ||
		!pl_computed_as_float(b->dt) || !ix_has(off, w) || ix_looks_up(off) || !is_of(e, off, w) ||
		!ix_affine(pl, off, e->lane, &coef, &rest) || !ix_is(coef, 1) || e->n_vload + n > (int)WW_ARRAY_LEN(e->vload))
		return 0;
	for (int i = 0; i < n; i++) {
		const struct ix *step = ix_const(pl, i);

		at[i] = ix_subst(pl, off, &w, &step, 1);
		if (!pl_divides(at[i], e->lane, 16 / pl_itemsize(b->dt)))
			return 0;
	}
	e->scope = 0; /* ahead of the lanes */
	for (int i = 0; i < n && text; i++) {
		struct etext one = { NULL, 0, 1 };

		if (!load_cuda_vec(e, b, at[i], NULL, &one))
			text = NULL;
		else
			text = i < n - 1 ? pl_fmt(pl, "%s%s == %d ? %s : ", text, w->name, i, one.t)
							 : pl_fmt(pl, "%s%s", text, one.t);
	}
	e->scope = 1;
	if (!text)
		return 0;
	t->t = pl_temp(e);
	pl_emit(e, t->level, "const float %s = %s;", t->t, text);
	return 1;
}

struct etext pl_load(struct expr *e, struct buf *b, const struct ix *const *idx)
{
	const struct ix_atom *window;
	struct pl *pl = e->pl;
	const struct ix *off = pl_offset(pl, b, idx), *coef = NULL, *rest;
	struct etext t = { NULL, 0, 1 };
	struct ememo *m = pl_memo_find(e, NULL, b, &off, 1);
	const char *at;

	if (m)
		return m->text;
	pl_kern_arg(pl, e->k, b);
	t.level = pl_at_level(e, pl_level_of(e, off));
	if (e->cuda_vec && (!e->down || t.level == 2) && (!e->scope || is_loaded_ahead(e, off)) &&
		(b->dt == WW_F32 || b->dt == WW_F16 || b->dt == WW_BF16 || b->dt == WW_BOOL ||
			(b->dt == WW_I64 && e->k->kind == K_POINT)) &&
		(!is_of_vector(e, off) ? ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, 1)
							   : is_functor(e) && !e->scope && (rest = off)) &&
		!(is_functor(e) ? ix_looks_up(rest) : looked_up(rest)) && /* a functor loads its indices later */
		load_cuda_vec(e, b, off, NULL, &t))
		return t;
	if (e->across && e->cuda_vec && !e->scope && (b->dt == WW_F32 || pl_is_half(b->dt)) && pl_has_lane(e, off) &&
		ix_affine(pl, off, e->lane, &coef, &rest) && !ix_looks_up(off) && load_cuda_vec(e, b, off, coef, &t))
		return t;
	if (e->cuda_vec && pl_has_lane(e, off) && ix_affine(pl, off, e->lane, &coef, &rest) &&
		load_apart(e, b, off, coef, rest, &t))
		return t;
	if (e->cuda_vec && pl_has_lane(e, off) && load_repeated(e, b, off, &t))
		return t;
	if (load_of_steps(e, b, off, &t))
		return t;
	t.t = pl_temp(e);
	at = pl_fmt(pl, "%s + %s", b->name, ix_text(pl, off));
	if (e->vec && pl_has_lane(e, off)) {
		const char *suffix = b->dt == WW_F32 ? ""
			: b->dt == WW_F16                ? "_f16"
			: b->dt == WW_BF16               ? "_bf16"
			: b->dt == WW_BOOL               ? "_u8"
											 : NULL;

		t.vec = 1;
		if (suffix && b->dt != WW_BOOL && !e->mask && ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, -1)) {
			pl_emit(e, t.level, "const ww_vf %s = ww_vf_turn(ww_vf_load%s(%s - (n - 1), n), n);", t.t, suffix, at);
			pl_memo_add(e, NULL, b, &off, 1, t);
			return t;
		}
		if (!suffix || !ix_affine(pl, off, e->lane, &coef, &rest) || ix_varies(coef) ||
			((!ix_is(coef, 1) || (e->mask && b->dt == WW_BOOL)) && b->dt != WW_F32)) {
			const char *text = load_places(e, b, off, suffix);

			e->need_scalar |= !text;
			if (!text)
				return t.t = "ww_vf_zero()", t;
			if (!ix_looks_up(off) && first_pass(e, b, off, FROM_ANYWHERE))
				pl_emit(e, t.level, "ww_prefetch_ahead(%s, 1);", at);
			pl_emit(e, t.level, "const ww_vf %s = %s;", t.t, text);
			pl_memo_add(e, NULL, b, &off, 1, t);
			return t;
		}
		if (e->mask && ix_is(coef, 1))
			pl_emit(e, t.level, "const ww_vf %s = ww_vf_load%s_where(%s, %s);", t.t, suffix, at, e->mask);
		else if (e->mask)
			pl_emit(
				e, t.level, "const ww_vf %s = ww_vf_gather_where(%s, %s, %s, n);", t.t, at, ix_text(pl, coef), e->mask);
		else if (ix_is(coef, 1))
			pl_emit(e, t.level,
				b->dt == WW_BOOL ? "const ww_vm %s = ww_vf_ne(ww_vf_load%s(%s, n), ww_vf_zero());"
								 : "const ww_vf %s = ww_vf_load%s(%s, n);",
				t.t, first_pass(e, b, off, FROM_MEMORY) ? "_ahead" : suffix, at);
		else if ((window = within_window(e, off, coef)))
			emit_window(e, b, off, coef, window, t);
		else
			pl_emit(e, t.level, "const ww_vf %s = ww_vf_gather%s(%s, %s, n);", t.t,
				ix_num(coef) >= 2 && ix_num(coef) <= 8 && first_pass(e, b, off, FROM_MEMORY) ? "_ahead" : "", at,
				ix_text(pl, coef));
	} else if (!load_of_window(e, b, off, t.t, t.level)) {
		pl_emit(e, t.level, "const %s %s = %s;", pl_acc_type(b->dt), t.t,
			pl_from_store(pl, pl_fmt(pl, "%s[%s]", b->name, ix_text(pl, off)), b->dt));
	}
	pl_memo_add(e, NULL, b, &off, 1, t);
	return t;
}

const char *pl_integers_at(struct expr *e, struct val *v, const struct ix *const *idx, int *level, int *ahead)
{
	const struct ix *sub[2][PL_MAX_RANK], *off, *coef, *rest;

	for (int i = 0; v->kind == V_VIEW && !v->cond && !v->root; i ^= 1, v = v->arg[0]) {
		pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub[i]);
		idx = sub[i];
	}
	if (!e->vec || e->mask || !v->root || pl_is_own(e, v) || v->root->dt != WW_I64)
		return NULL;
	off = pl_offset(e->pl, v->root, idx);
	if (!pl_has_lane(e, off) || !ix_affine(e->pl, off, e->lane, &coef, &rest) || !ix_is(coef, 1))
		return NULL;
	pl_kern_arg(e->pl, e->k, v->root);
	*level = pl_at_level(e, pl_level_of(e, off));
	*ahead = first_pass(e, v->root, off, FROM_MEMORY);
	return pl_fmt(e->pl, "%s + %s", v->root->name, ix_text(e->pl, off));
}
