/* expr.c - writes a value at an index as C text.
 *
 * pl_expr() writes statements into the block of the loop level that an expression belongs to (what does not depend on
 * the column is computed once a row) and returns the name of the variable that holds the result.  The same value at the
 * same index is written once in a block.  The text is the same for both targets as long as it is scalar; on the cpu
 * target it can also be written for vectors of floats along one loop variable, where loads with step 1 become vector
 * loads, values that do not depend on that variable stay scalars, and a float or a bool that has no vector form is
 * written lane by lane (by_lanes()).  Other types set need_scalar: the emitter then writes that kernel again with
 * scalars.
 *
 * Conditional reads (padding, concatenation) become an if around everything that is needed for the value: nothing
 * inside may be hoisted out of it, because its loads would be out of bounds (but load_ahead()).  Where the condition
 * changes along a vector, the if asks whether it holds for any lane, and loads are masked. */
#include "policy/planner/print/expr.h"

#include "policy/planner/graph/walk.h"
#include "policy/planner/schedule/schedule.h"

#include <math.h>
#include <string.h>

enum { BRANCH_LOADS = 4 /* a value with so many loads is computed behind a branch inside a loop of a reduction */ };
enum { MAX_GUARDED = 16 /* no more than so many vectors are loaded under conditions: each takes registers */ };

void pl_expr_init(struct expr *e, struct pl *pl, struct kern *k)
{
	memset(e, 0, sizeof(*e));
	e->pl = pl;
	e->k = k;
}

void pl_kern_arg(struct pl *pl, struct kern *k, struct buf *b)
{
	b = b->of ? b->of : b;
	for (int i = 0; i < k->n_arg; i++)
		if (k->arg[i] == b)
			return;
	if (k->n_arg >= 48)
		pl_fail(pl, "a kernel needs more than 48 buffers");
	k->arg[k->n_arg++] = b;
	b->used = 1;
}

int pl_has_lane(const struct expr *e, const struct ix *x) { return e->lane && ix_has(x, e->lane); }

static int level_of(const struct expr *e, const struct ix *x);

static int atom_level(const struct expr *e, const struct ix_atom *t)
{
	int a, b;

	switch (t->kind) {
	case IX_SYM: return 1;
	case IX_TEMP: return (int)t->value;
	case IX_VAR:
		for (int c = 0; c < e->k->n_col; c++)
			if (e->k->col[c] == t)
				return 2;
		return t->value ? (int)t->value : 1;
	default:
		a = level_of(e, t->a);
		b = level_of(e, t->b);
		return a > b ? a : b;
	}
}

static int level_of(const struct expr *e, const struct ix *x)
{
	int level = 1;

	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < x->m[i].n; k++) {
			int l = atom_level(e, x->m[i].atom[k]);

			level = l > level ? l : level;
		}
	return level;
}

/* The loop level of a statement, which must stay inside the enclosing conditional. */
static int at_level(const struct expr *e, int level)
{
	return e->scope && e->scope_level > level ? e->scope_level : level;
}

static void emit(struct expr *e, int level, const char *fmt, ...) WW_PRINTF(3, 4);
static void emit(struct expr *e, int level, const char *fmt, ...)
{
	struct ww_str *s = e->block[level];
	va_list ap;

	for (int i = 0; i < e->scope; i++)
		ww_str_addc(s, '\t');
	va_start(ap, fmt);
	ww_str_vaddf(s, fmt, ap);
	va_end(ap);
	ww_str_addc(s, '\n');
}

static const char *temp(struct expr *e) { return pl_fmt(e->pl, "v%d", e->n_temp++); }

static struct ememo **memo_bucket(struct expr *e, const struct val *v, const struct buf *b)
{
	return &e->bucket[(v ? (unsigned)v->id : (unsigned)((uintptr_t)b >> 6)) & 127u];
}

static struct ememo *memo_find(
	struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n)
{
	for (struct ememo *m = *memo_bucket(e, v, b); m; m = m->next)
		if (m->val == v && m->buf == b && m->n == n && ix_same_all(m->idx, idx, n))
			return m;
	return NULL;
}

static void memo_add(
	struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n, struct etext t)
{
	struct ememo **at = memo_bucket(e, v, b), *m = pl_alloc(e->pl, sizeof(*m));

	m->val = v;
	m->buf = b;
	m->n = n;
	for (int d = 0; d < n; d++)
		m->idx[d] = idx[d];
	m->text = t;
	m->scope = e->scope;
	m->next = *at;
	*at = m;
}

/* Forget texts of this level or a deeper one, and of scopes that have ended. */
static void memo_drop(struct expr *e, int level, int scope)
{
	for (int i = 0; i < 128; i++) {
		struct ememo **p = &e->bucket[i];

		while (*p)
			if ((*p)->text.level >= level || (*p)->scope > scope)
				*p = (*p)->next;
			else
				p = &(*p)->next;
	}
}

void pl_expr_known(struct expr *e, const struct val *v, const struct ix *const *idx, struct etext t)
{
	memo_add(e, v, NULL, idx, v->rank, t);
}

void pl_expr_forget(struct expr *e, int level) { memo_drop(e, level, 0); }

static const char *as_vec(struct expr *e, struct etext t, int dt)
{
	if (t.vec)
		return t.t;
	if (dt == WW_BOOL)
		return pl_fmt(e->pl, "(%s ? ww_vm_first(WW_VL) : ww_vm_first(0))", t.t);
	return pl_fmt(e->pl, "ww_vf_set((float)%s)", t.t);
}

static const char *vec_type(int dt) { return dt == WW_BOOL ? "ww_vm" : "ww_vf"; }

/* An affine index expression along the lane as a vector of floats. */
static const char *vec_ix(struct expr *e, const struct ix *x)
{
	const struct ix *coef, *rest;

	if (!pl_has_lane(e, x))
		return pl_fmt(e->pl, "ww_vf_set((float)%s)", ix_text(e->pl, x));
	if (!ix_affine(e->pl, x, e->lane, &coef, &rest) || ix_varies(coef)) {
		e->need_scalar = 1;
		return "ww_vf_zero()";
	}
	/* the lane variable names the first lane */
	return pl_fmt(
		e->pl, "(ww_vf_of_vi(ww_vi_iota()) * (float)%s + (float)%s)", ix_text(e->pl, coef), ix_text(e->pl, x));
}

/* The same as integers, which are exact. */
static const char *vec_int(struct expr *e, const struct ix *x)
{
	const struct ix *coef, *rest;

	if (!pl_has_lane(e, x))
		return pl_fmt(e->pl, "ww_vi_set((int32_t)(%s))", ix_text(e->pl, x));
	if (!ix_affine(e->pl, x, e->lane, &coef, &rest) || ix_varies(coef)) {
		e->need_scalar = 1;
		return "ww_vi_set(0)";
	}
	return pl_fmt(e->pl, "(ww_vi_iota() * ww_vi_set((int32_t)(%s)) + ww_vi_set((int32_t)(%s)))", ix_text(e->pl, coef),
		ix_text(e->pl, x));
}

static const char *vec_cond(struct expr *e, const struct ix *x)
{
	const char *s = NULL;

	if (x->n != 1 || x->m[0].c != 1) {
		e->need_scalar = 1;
		return "ww_vm_first(0)";
	}
	for (int i = 0; i < x->m[0].n; i++) {
		const struct ix_atom *t = x->m[0].atom[i];
		const char *c;

		if (t->kind != IX_LT) {
			e->need_scalar = 1;
			return "ww_vm_first(0)";
		}
		c = pl_fmt(e->pl, "ww_vi_lt(%s, %s)", vec_int(e, t->a), vec_int(e, t->b));
		s = s ? pl_fmt(e->pl, "ww_vm_and(%s, %s)", s, c) : c;
	}
	return s;
}

/* ---- Loads ------------------------------------------------------------------------------------------------------- */

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

/* Have the vector loaded before the loop over the lanes.  In a functor also an element that all lanes share, or the
 * lanes' elements one by one, `step` apart: loaded behind the branches of its stores, each store would wait for them.
 */
static struct etext load_cuda_vec(struct expr *e, struct buf *b, const struct ix *off, const struct ix *step, int level)
{
	struct pl *pl = e->pl;
	struct etext t = { NULL, 0, level };

	const struct ix *cond = e->scope ? e->cond : NULL;
	const char *index = pl_has_lane(e, off) ? e->vload_index : "[0]";

	for (int i = 0; i < e->n_vload; i++)
		if (e->vload[i].buf == b && ix_same(e->vload[i].base, off) && !e->vload[i].apart &&
			(!e->vload[i].cond || (cond && ix_same(e->vload[i].cond, cond)))) {
			t.t = pl_fmt(pl, "%s%s", e->vload[i].name, index);
			return t;
		}
	if (e->n_vload >= 64)
		pl_fail(pl, "a kernel has more than 64 vector loads");
	e->vload[e->n_vload] = (struct vload){
		.buf = b, .base = off, .stage = e->stage, .cond = cond, .one = !pl_has_lane(e, off), .step = step
	};
	e->vload[e->n_vload].name = pl_fmt(pl, "x%d", e->n_vload);
	t.t = pl_fmt(pl, "%s%s", e->vload[e->n_vload++].name, index);
	return t;
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
	if (e->n_vload >= 64)
		return 0;
	pl_guard_terms(e->pl, pl_cuda_terms(e->pl, "", off, e->lane), aligned);
	v = &e->vload[e->n_vload];
	*v = (struct vload){ .buf = b, .base = off, .stage = e->stage, .apart = (int)apart, .which = which };
	v->name = pl_fmt(e->pl, "x%d", e->n_vload++);
	t->t = pl_fmt(e->pl, "%s%s", v->name, e->vload_index);
	return 1;
}

/* Bytes of a tensor from which on contiguous loads prefetch; and loads by index, whose latency the processor hides
 * less. */
enum { FROM_MEMORY = 1 << 20, FROM_ANYWHERE = 1 << 18 };

/* Is this the first pass over a tensor of at least `least` bytes, which comes from memory?  Then its loads prefetch,
 * also across pages. */
static int first_pass(struct expr *e, const struct buf *b, const struct ix *off, int64_t least)
{
	int64_t bytes = pl_itemsize(b->dt);
	int i = 0;

	for (int d = 0; d < b->rank; d++)
		bytes *= ix_num(b->size[d]);
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

/* Is each term of x but the lane a multiple of 4, so that vectors of four stay aligned? */
static int in_fours(struct pl *pl, const struct ix *x, const struct ix_atom *lane)
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
	return e->cond && e->n_vload < MAX_GUARDED && (!pl_has_lane(e, e->cond) || in_fours(e->pl, off, e->lane));
}

static int is_own(const struct expr *e, const struct val *v);
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
	int64_t most = 1;

	base->n = along->n = 0;
	for (int d = 0; d < b->rank; d++)
		most *= ix_num(b->size[d]);
	if (e->mask || !suffix || b->dt == WW_BOOL || most > 1 << 28)
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
		emit(e, t.level, "if (%s == 0)\n\tww_prefetch_ahead(%s, %s);", v->name, at, ix_text(e->pl, coef));
	emit(e, t.level, "const ww_vf %s = ww_vf_window(%s, %s, %s, %s, n);", t.t, at, ix_text(e->pl, coef), v->name,
		ix_text(e->pl, v->b));
}

/* cuda: an element of a window of two or four that lie side by side, none of them under a condition: all are one load,
 * which the steps of the unrolled loop share.  `name`: the element's.  0: no such window. */
static int load_of_window(struct expr *e, const struct buf *b, const struct ix *off, const char *name, int level)
{
	const struct ix_atom *w = e->cuda_vec && e->scope == e->window_scope ? e->window : NULL;
	const struct ix *coef, *first;
	int64_t n;

	if (!w || !ix_is_const(w->b, &n) || (n != 2 && n != 4) || !pl_computed_as_float(b->dt) || ix_looks_up(off) ||
		!ix_affine(e->pl, off, w, &coef, &first) || !ix_is(coef, 1) || !pl_divides(first, w, (int)n))
		return 0;
	pl_guard_terms(e->pl, pl_cuda_terms(e->pl, "", first, w), (int)n);
	emit(e, level, "float %s_all[%lld];", name, (long long)n);
	emit(e, level, "ww::load(%s + %s, %s_all);", b->name, ix_text(e->pl, first), name);
	emit(e, level, "const float %s = %s_all[%s];", name, name, w->name);
	return 1;
}

static struct etext load(struct expr *e, struct buf *b, const struct ix *const *idx)
{
	const struct ix_atom *window;
	struct pl *pl = e->pl;
	const struct ix *off = pl_offset(pl, b, idx), *coef = NULL, *rest;
	struct etext t = { NULL, 0, 1 };
	struct ememo *m = memo_find(e, NULL, b, &off, 1);
	const char *at;

	if (m)
		return m->text;
	pl_kern_arg(pl, e->k, b);
	t.level = at_level(e, level_of(e, off));
	if (e->cuda_vec && (!e->down || t.level == 2) && (!e->scope || is_loaded_ahead(e, off)) &&
		(b->dt == WW_F32 || b->dt == WW_F16 || b->dt == WW_BF16 || b->dt == WW_BOOL ||
			(b->dt == WW_I64 && e->k->kind == K_POINT)) &&
		(pl_has_lane(e, off) ? ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, 1)
							 : is_functor(e) && !e->scope && (rest = off)) &&
		!(is_functor(e) ? ix_looks_up(rest) : looked_up(rest))) /* a functor loads its indices later */
		return load_cuda_vec(e, b, off, NULL, t.level);
	if (e->across && e->cuda_vec && !e->scope && (b->dt == WW_F32 || pl_is_half(b->dt)) && pl_has_lane(e, off) &&
		ix_affine(pl, off, e->lane, &coef, &rest) && !ix_looks_up(off))
		return load_cuda_vec(e, b, off, coef, t.level);
	if (e->cuda_vec && pl_has_lane(e, off) && ix_affine(pl, off, e->lane, &coef, &rest) &&
		load_apart(e, b, off, coef, rest, &t))
		return t;
	t.t = temp(e);
	at = pl_fmt(pl, "%s + %s", b->name, ix_text(pl, off));
	if (e->vec && pl_has_lane(e, off)) {
		const char *suffix = b->dt == WW_F32 ? ""
			: b->dt == WW_F16                ? "_f16"
			: b->dt == WW_BF16               ? "_bf16"
			: b->dt == WW_BOOL               ? "_u8"
											 : NULL;

		t.vec = 1;
		if (suffix && b->dt != WW_BOOL && !e->mask && ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, -1)) {
			emit(e, t.level, "const ww_vf %s = ww_vf_turn(ww_vf_load%s(%s - (n - 1), n), n);", t.t, suffix, at);
			memo_add(e, NULL, b, &off, 1, t);
			return t;
		}
		if (!suffix || !ix_affine(pl, off, e->lane, &coef, &rest) || ix_varies(coef) ||
			((!ix_is(coef, 1) || (e->mask && b->dt == WW_BOOL)) && b->dt != WW_F32)) {
			const char *text = load_places(e, b, off, suffix);

			e->need_scalar |= !text;
			if (!text)
				return t.t = "ww_vf_zero()", t;
			if (!ix_looks_up(off) && first_pass(e, b, off, FROM_ANYWHERE))
				emit(e, t.level, "ww_prefetch_ahead(%s, 1);", at);
			emit(e, t.level, "const ww_vf %s = %s;", t.t, text);
			memo_add(e, NULL, b, &off, 1, t);
			return t;
		}
		if (e->mask && ix_is(coef, 1))
			emit(e, t.level, "const ww_vf %s = ww_vf_load%s_where(%s, %s);", t.t, suffix, at, e->mask);
		else if (e->mask)
			emit(
				e, t.level, "const ww_vf %s = ww_vf_gather_where(%s, %s, %s, n);", t.t, at, ix_text(pl, coef), e->mask);
		else if (ix_is(coef, 1))
			emit(e, t.level,
				b->dt == WW_BOOL ? "const ww_vm %s = ww_vf_ne(ww_vf_load%s(%s, n), ww_vf_zero());"
								 : "const ww_vf %s = ww_vf_load%s(%s, n);",
				t.t, first_pass(e, b, off, FROM_MEMORY) ? "_ahead" : suffix, at);
		else if ((window = within_window(e, off, coef)))
			emit_window(e, b, off, coef, window, t);
		else
			emit(e, t.level, "const ww_vf %s = ww_vf_gather%s(%s, %s, n);", t.t,
				ix_num(coef) >= 2 && ix_num(coef) <= 8 && first_pass(e, b, off, FROM_MEMORY) ? "_ahead" : "", at,
				ix_text(pl, coef));
	} else if (!load_of_window(e, b, off, t.t, t.level)) {
		emit(e, t.level, "const %s %s = %s;", pl_acc_type(b->dt), t.t,
			pl_from_store(pl, pl_fmt(pl, "%s[%s]", b->name, ix_text(pl, off)), b->dt));
	}
	memo_add(e, NULL, b, &off, 1, t);
	return t;
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static const char *cast_vec(struct expr *e, const char *t, int from, int to)
{
	if (from == WW_F64 || to == WW_F64)
		e->need_scalar = 1;
	if (from == WW_BOOL && to != WW_BOOL)
		return pl_fmt(e->pl, "ww_vf_of_vm(%s)", t);
	if (to == WW_BOOL && from != WW_BOOL)
		return pl_fmt(e->pl, "ww_vf_ne(%s, ww_vf_zero())", t);
	if (pl_is_float(from) && !pl_is_float(to))
		return pl_fmt(e->pl, "ww_vf_trunc(%s)", t);
	return t;
}

/* Where neighbouring lanes read neighbouring elements of a buffer of 64-bit integers: the first one's address, the
 * level at which it is known, and whether they come from memory; else NULL. */
static const char *integers_at(struct expr *e, struct val *v, const struct ix *const *idx, int *level, int *ahead)
{
	const struct ix *sub[2][PL_MAX_RANK], *off, *coef, *rest;

	for (int i = 0; v->kind == V_VIEW && !v->cond && !v->root; i ^= 1, v = v->arg[0]) {
		pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub[i]);
		idx = sub[i];
	}
	if (!e->vec || e->mask || !v->root || is_own(e, v) || v->root->dt != WW_I64)
		return NULL;
	off = pl_offset(e->pl, v->root, idx);
	if (!pl_has_lane(e, off) || !ix_affine(e->pl, off, e->lane, &coef, &rest) || !ix_is(coef, 1))
		return NULL;
	pl_kern_arg(e->pl, e->k, v->root);
	*level = at_level(e, level_of(e, off));
	*ahead = first_pass(e, v->root, off, FROM_MEMORY);
	return pl_fmt(e->pl, "%s + %s", v->root->name, ix_text(e->pl, off));
}

/* Stored integers equal a number that all lanes share: 64 bits have no vector form, but their comparison has. */
static int equals_number(struct expr *e, struct val *v, const struct ix *const *idx, struct etext *t)
{
	for (int i = 0; i < 2; i++) {
		int ahead;
		const char *at = integers_at(e, v->arg[i], idx, &t->level, &ahead);
		struct etext other;

		if (!at)
			continue;
		other = pl_expr(e, v->arg[1 - i], idx);
		if (other.vec || e->need_scalar)
			return 0;
		t->vec = 1;
		t->level = at_level(e, other.level > t->level ? other.level : t->level);
		t->t = temp(e);
		emit(e, t->level, "const ww_vm %s = ww_vm_eq_i64(%s, %s, n);", t->t, at, other.t);
		return 1;
	}
	return 0;
}

/* The number that v is, NULL: none. */
static const double *number_of(const struct val *v)
{
	while (v->kind == V_VIEW && !v->cond)
		v = v->arg[0];
	return v->kind == V_CONST && !v->given ? &v->f : NULL;
}

static int is_power_of_two(double x)
{
	int exponent;

	return fabs(frexp(x, &exponent)) == 0.5;
}

/* cuda: a quotient or a root without the branch of an exact one; NULL: the operation is another one, or its operands
 * are numbers.  a, s: what is known of the operands, and their texts.  What a row kernel divides all elements of a row
 * by is inverted once. */
static const char *without_branch(
	struct expr *e, const struct val *v, const struct etext *a, const char *const *s, int level)
{
	struct pl *pl = e->pl;
	const double *by = v->op == OP_DIV ? number_of(v->arg[1]) : NULL;
	const char *inverse;

	if (pl->target != WW_TARGET_CUDA || level < 1 || (v->op != OP_DIV && v->op != OP_SQRT) ||
		(by && is_power_of_two(*by)))
		return NULL;
	if (v->op == OP_SQRT)
		return pl_fmt(pl, "pl_sqrtf(%s)", s[0]);
	if (by)
		return pl_fmt(pl, "pl_div_by(%s, %s, 1.0f / %s)", s[0], s[1], s[1]);
	if (level < 2 || e->k->kind != K_ROW || a[1].level > 1)
		return pl_fmt(pl, "pl_divf(%s, %s)", s[0], s[1]);
	inverse = temp(e);
	emit(e, at_level(e, 1), "const float %s = pl_divf(1.0f, %s);", inverse, s[1]);
	return pl_fmt(pl, "pl_div_by(%s, %s, %s)", s[0], s[1], inverse);
}

static struct etext operation(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct pl_op_info *o = &pl_ops[v->op];
	struct etext a[PL_MAX_ARGS], t = { NULL, 0, 1 };
	const char *s[PL_MAX_ARGS], *text;
	int adt = v->arg[0]->dt, compute = v->op == OP_WHERE ? v->dt : adt;

	if (v->op == OP_EQ && pl_is_int(adt) && equals_number(e, v, idx, &t))
		return t;
	for (int n = 0; n < v->n_arg; n++) {
		int i = e->vec && v->op == OP_WHERE && pl_is_int(v->dt) ? v->n_arg - 1 - n : n;

		a[i] = pl_expr(e, v->arg[i], idx);
		if (e->need_scalar && pl_is_int(v->dt)) /* before a condition is written lane by lane in vain */
			return t.vec = 1, t.t = "ww_vf_zero()", t;
		t.vec |= a[i].vec;
		t.level = a[i].level > t.level ? a[i].level : t.level;
		s[i] = a[i].t;
	}
	t.level = at_level(e, t.level);
	if (v->op == OP_CAST) {
		text = t.vec ? cast_vec(e, s[0], adt, v->dt) : pl_cast_text(e->pl, s[0], adt, v->dt);
		if (text == s[0])
			return t.t = s[0], t;
	} else if (t.vec) {
		if (compute == WW_F64 || !o->vec)
			e->need_scalar = 1;
		if (pl_is_int(compute) && !pl_ops[v->op].boolean && v->op != OP_ADD && v->op != OP_SUB && v->op != OP_WHERE &&
			v->op != OP_MAXIMUM && v->op != OP_MINIMUM)
			e->need_scalar = 1;
		if (adt == WW_BOOL && (v->op == OP_EQ || v->op == OP_NE))
			e->need_scalar = 1;
		if (e->need_scalar)
			return t.t = "ww_vf_zero()", t;
		if (v->op == OP_WHERE && !a[0].vec) {
			s[1] = as_vec(e, a[1], v->dt);
			s[2] = as_vec(e, a[2], v->dt);
			text = pl_fill(e->pl, "($0 ? $1 : $2)", s, WW_F32);
		} else if (v->op == OP_WHERE && v->dt == WW_BOOL) {
			e->need_scalar = 1;
			return t.t = "ww_vm_first(0)", t;
		} else {
			for (int i = 0; i < v->n_arg; i++)
				s[i] = as_vec(e, a[i], v->arg[i]->dt);
			text = pl_fill(e->pl, o->vec, s, WW_F32);
		}
	} else {
		const char *tmpl = pl_is_float(compute) ? o->scalar : o->intg;

		if (!tmpl)
			pl_fail(e->pl, "cannot cover %s (node %s): no rule for this type", o->name, pl_node_name(v));
		text = pl_is_float(compute) && compute != WW_F64 ? without_branch(e, v, a, s, t.level) : NULL;
		text = text ? text : pl_fill(e->pl, tmpl, s, compute);
	}
	t.t = temp(e);
	emit(e, t.level, "const %s %s = %s;", t.vec ? vec_type(v->dt) : pl_acc_type(v->dt), t.t, text);
	return t;
}

static int max_level(struct expr *e, const struct ix *const *idx, int n, int least)
{
	for (int d = 0; d < n; d++) {
		int l = level_of(e, idx[d]);

		least = l > least ? l : least;
	}
	return least;
}

const char *pl_cond_text(struct pl *pl, const struct ix *x)
{
	const char *s = NULL;

	if (x->n != 1 || x->m[0].c != 1 || !x->m[0].n)
		return ix_text(pl, x);
	for (int i = 0; i < x->m[0].n; i++) {
		struct ix *one = pl_alloc(pl, sizeof(*one) + sizeof(one->m[0]));

		one->n = one->m[0].n = 1;
		one->m[0].c = 1;
		one->m[0].atom[0] = x->m[0].atom[i];
		s = s ? pl_fmt(pl, "%s && %s", s, ix_text(pl, one)) : ix_text(pl, one);
	}
	return s;
}

const struct ix *pl_lane_bound(struct pl *pl, const struct ix_atom *compared, const struct ix_atom *lane)
{
	const struct ix *coef, *rest;

	if (compared->kind != IX_LT)
		return NULL;
	if (!ix_has(compared->b, lane) && ix_affine(pl, compared->a, lane, &coef, &rest) && ix_is(coef, 1)) /* i + r < b */
		return ix_sub(pl, compared->b, rest);
	if (!ix_has(compared->a, lane) && ix_affine(pl, compared->b, lane, &coef, &rest) && ix_is(coef, 1)) /* a < i + r */
		return ix_addc(pl, ix_sub(pl, compared->a, rest), 1);
	return NULL;
}

/* Is the condition the same for all lanes of a vector: does it change only where vectors begin? */
static int is_of_vectors(struct expr *e, const struct ix *cond)
{
	if (!pl_has_lane(e, cond))
		return 1;
	if (cond->n != 1 || cond->m[0].c != 1)
		return 0;
	for (int i = 0; i < cond->m[0].n; i++) {
		const struct ix_atom *t = cond->m[0].atom[i];
		const struct ix *bound;

		if (!pl_has_lane(e, pl_of_var(e->pl, t)))
			continue;
		bound = pl_lane_bound(e->pl, t, e->lane);
		if (!bound || ix_varies(bound) || !in_fours(e->pl, bound, e->lane))
			return 0;
	}
	return 1;
}

/* Can vectors be loaded under this condition?  It must be the same for all lanes and known where they are loaded.  A
 * row kernel's rows must be short, since each operand of a concatenation takes registers of its own. */
static int guards_vectors(struct expr *e, const struct ix *cond)
{
	int64_t cols = 1;

	for (int c = 0; c < e->k->n_col && e->k->kind == K_ROW; c++)
		cols *= ix_num(e->k->col[c]->b);
	return e->cuda_vec && e->block[1] != e->block[2] && cols <= 16384 && is_of_vectors(e, cond) && !ix_looks_up(cond) &&
		(!e->scope || e->cond);
}

/* A view whose condition changes along the vector (cpu): loads are masked. */
static struct etext masked(struct expr *e, struct val *v, const struct ix *cond, const struct ix *const *sub, int level)
{
	const char *outer = e->mask, *holds = vec_cond(e, cond), *mask = temp(e);
	struct etext t = { temp(e), 1, level }, in;
	int old_level = e->scope_level;

	if (e->need_scalar || v->dt == WW_F64 || !pl_is_float(v->dt)) {
		e->need_scalar = 1;
		return t;
	}
	emit(e, level, "ww_vf %s = ww_vf_set(%s);", t.t, pl_literal(e->pl, WW_F32, v->fill, 0));
	emit(e, level, "const ww_vm %s = ww_vm_and(%s, %s);", mask, outer ? outer : "ww_vm_first(n)", holds);
	emit(e, level, "if (ww_vm_any(%s)) {", mask);
	e->scope++;
	e->scope_level = level;
	e->mask = mask;
	in = pl_expr(e, v->arg[0], sub);
	emit(e, level, "%s = ww_vf_sel(%s, %s, %s);", t.t, mask, as_vec(e, in, v->dt), t.t);
	memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	e->mask = outer;
	emit(e, level, "}");
	return t;
}

enum { CLAMPED_LOADS = 2 /* of an element of a window, up to which it is loaded whatever its condition */ };

/* Of the variables of a window in off, the one with the least step: do neighbouring lanes share elements along it? */
static int shares_window(struct expr *e, const struct ix *off)
{
	const struct ix *coef, *rest;
	int64_t least = 0, length = 0, lane;

	if (!ix_affine(e->pl, off, e->lane, &coef, &rest))
		return 1;
	lane = ix_num(coef);
	for (int i = 0; i < off->n; i++)
		for (int a = 0; a < off->m[i].n; a++) {
			const struct ix_atom *v = off->m[i].atom[a];
			int own = v->kind != IX_VAR || v == e->lane;

			for (int d = 0; d < e->k->n_row + e->k->n_col && !own; d++)
				own = v == (d < e->k->n_row ? e->k->row[d] : e->k->col[d - e->k->n_row]);
			if (own || !ix_affine(e->pl, off, v, &coef, &rest) || (least && ix_num(coef) >= least))
				continue;
			least = ix_num(coef);
			length = ix_num(v->b);
		}
	return !least || lane < least * length;
}

/* Inside a window on cuda: is v a load or two along the lane, with what is made of them?  Then it costs less than a
 * branch for each element, and what neighbouring lanes load is the same to the compiler.  Windows that lie side by side
 * share nothing: 25 places kept within two sizes took longer than 25 branches. */
static int is_clamped(struct expr *e, struct val *v, const struct ix *const *sub)
{
	struct walk w;
	int loads = 0, shared = 0;

	if (e->pl->target != WW_TARGET_CUDA || !e->walks)
		return 0;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v->arg[0], sub);
	for (struct leaf *l = w.first; l; l = l->next) {
		if ((l->kind != LEAF_LOAD && l->kind != LEAF_INDEX) || ix_looks_up(l->off))
			return 0;
		if (l->kind == LEAF_LOAD && pl_has_lane(e, l->off)) {
			loads++;
			shared |= shares_window(e, l->off);
		}
	}
	return shared && loads > 0 && loads <= CLAMPED_LOADS;
}

/* v without a branch: load the element of its argument that is nearest to sub, and take the fill in its place where the
 * condition does not hold. */
static struct etext clamped(
	struct expr *e, struct val *v, const struct ix *cond, const struct ix *const *sub, int level)
{
	const struct ix *in[PL_MAX_RANK], *size;
	struct etext t = { NULL, 0, level }, x;
	int64_t lo, hi;

	for (int d = 0; d < v->arg[0]->rank; d++) {
		const char *at;

		in[d] = sub[d];
		size = v->arg[0]->size[d];
		if (ix_range(sub[d], &lo, &hi) && lo >= 0 && hi < ix_num(size))
			continue;
		at = temp(e);
		emit(e, level, "const ix_t %s = pl_within(%s, %s);", at, ix_text(e->pl, sub[d]), ix_text(e->pl, size));
		in[d] = ix_temp(e->pl, at);
		((struct ix_atom *)(uintptr_t)in[d]->m[0].atom[0])->value = level;
	}
	x = pl_expr(e, v->arg[0], in);
	t.t = temp(e);
	emit(e, level, "const %s %s = (%s ? %s : %s);", pl_acc_type(v->dt), t.t, pl_cond_text(e->pl, cond), x.t,
		pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill));
	return t;
}

/* Do a and b share an axis of the kernel? */
static int have_axis(const struct kern *k, const struct ix *a, const struct ix *b)
{
	for (int d = 0; d < k->n_row + k->n_col; d++) {
		const struct ix_atom *v = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

		if (ix_has(a, v) && ix_has(b, v))
			return 1;
	}
	return 0;
}

/* cuda: v at idx is read only where `cond` holds.  Those of its loads that are one a row, at indices that cond does not
 * restrict (the statistics of a channel whose image is padded), are done ahead of the loop: behind the condition each
 * column would repeat them. */
static void load_ahead(struct expr *e, struct val *v, const struct ix *const *idx, const struct ix *cond)
{
	struct walk w;

	if (e->pl->target != WW_TARGET_CUDA || e->k->kind == K_ANCHOR || e->scope || e->walks || level_of(e, cond) < 2)
		return;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_LOAD && !l->guarded && level_of(e, l->off) == 1 && !ix_looks_up(l->off) &&
			!have_axis(e->k, l->off, cond))
			load(e, l->val->root, l->idx);
}

/* Does a comparison change in one direction from a row's first column to its last one? */
static int is_monotone(struct expr *e, const struct ix_atom *t)
{
	const struct ix *diff = ix_sub(e->pl, t->b, t->a), *coef, *rest;
	int64_t step;
	int up = 0, down = 0;

	for (int c = 0; c < e->k->n_col && t->kind == IX_LT; c++) {
		if (!ix_affine(e->pl, diff, e->k->col[c], &coef, &rest) || !ix_is_const(coef, &step))
			return 0;
		up |= step > 0;
		down |= step < 0;
	}
	return t->kind == IX_LT && !(up && down);
}

static const char *both(struct pl *pl, const struct ix *a, const struct ix *b)
{
	if (ix_is(a, 1) || ix_is(b, 1))
		return pl_cond_text(pl, ix_is(a, 1) ? b : a);
	return pl_fmt(pl, "%s && %s", pl_cond_text(pl, a), pl_cond_text(pl, b));
}

/* A condition at the first and the last column of the row, both of which hold only where all between do; NULL: that is
 * not so. */
static const char *for_all_columns(struct expr *e, const struct ix *cond)
{
	const struct ix *first[PL_MAX_RANK], *last[PL_MAX_RANK];

	if (cond->n != 1 || cond->m[0].c != 1 || ix_looks_up(cond))
		return NULL;
	for (int i = 0; i < cond->m[0].n; i++)
		if (!is_monotone(e, cond->m[0].atom[i]))
			return NULL;
	for (int c = 0; c < e->k->n_col; c++) {
		first[c] = ix_const(e->pl, 0);
		last[c] = ix_addc(e->pl, e->k->col[c]->b, -1);
	}
	return both(e->pl, ix_subst(e->pl, cond, e->k->col, first, e->k->n_col),
		ix_subst(e->pl, cond, e->k->col, last, e->k->n_col));
}

/* The text of a view's condition; for rows that lie inside, the pass is written without it. */
static const char *condition(struct expr *e, const struct ix *cond, int level)
{
	const char *text = pl_cond_text(e->pl, cond), *all = e->inside && level == 2 ? for_all_columns(e, cond) : NULL;

	if (!all)
		return text;
	if (!strstr(e->inside, all))
		e->inside = pl_fmt(e->pl, "%s%s%s", e->inside, *e->inside ? " && " : "", all);
	return pl_fmt(e->pl, "inside || (%s)", text);
}

/* A view that reads its argument only where a condition holds. */
static struct etext guarded(struct expr *e, struct val *v, const struct ix *const *idx, const struct ix *const *sub)
{
	struct etext t = { NULL, 0, 1 }, in;
	const struct ix *cond, *old_cond = e->cond;
	int level, old_level = e->scope_level, vec = 0;

	pl_map_index(e->pl, v, &v->cond, 1, idx, &cond);
	if (ix_is(cond, 1))
		return pl_expr(e, v->arg[0], sub);
	if (ix_is(cond, 0))
		return t.t = pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill), t;
	level = at_level(e, max_level(e, idx, v->rank, level_of(e, cond)));
	if (e->vec && pl_has_lane(e, cond))
		return masked(e, v, cond, sub, level);
	if (is_clamped(e, v, sub))
		return clamped(e, v, cond, sub, level);
	for (int d = 0; d < v->arg[0]->rank && e->vec; d++)
		vec |= pl_has_lane(e, sub[d]);
	t.t = temp(e);
	t.level = level;
	t.vec = vec;
	if (vec && v->dt == WW_BOOL)
		e->need_scalar = 1;
	if (vec)
		emit(e, level, "ww_vf %s = ww_vf_set(%s);", t.t, pl_literal(e->pl, WW_F32, v->fill, 0));
	else
		emit(e, level, "%s %s = %s;", pl_acc_type(v->dt), t.t, pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill));
	load_ahead(e, v->arg[0], sub, cond);
	emit(e, level, "if (%s) {", condition(e, cond, level));
	if (!guards_vectors(e, cond))
		e->cond = NULL;
	else
		e->cond = e->scope ? ix_mul(e->pl, e->cond, cond) : cond;
	e->scope++;
	e->scope_level = level;
	in = pl_expr(e, v->arg[0], sub);
	e->cond = old_cond;
	emit(e, level, "%s = %s;", t.t, vec ? as_vec(e, in, v->dt) : in.t);
	memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	emit(e, level, "}");
	if (in.vec && !vec)
		e->need_scalar = 1;
	return t;
}

/* cuda, in the loop of a small reduction: is v a where() whose value takes several loads and counts for few terms
 * (scatter, resampling)?  Then it is computed only where its condition holds. */
static int is_branch(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct walk w;
	int loads = 0;

	if (!e->walks || e->vec || v->op != OP_WHERE || v->arg[2]->kind != V_CONST || e->pl->target != WW_TARGET_CUDA)
		return 0;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v->arg[1], idx);
	for (struct leaf *l = w.first; l; l = l->next)
		loads += l->kind == LEAF_LOAD;
	return loads >= BRANCH_LOADS;
}

static struct etext branch(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext cond = pl_expr(e, v->arg[0], idx), in, t = { NULL, 0, 1 };
	int old_level = e->scope_level;

	t.level = at_level(e, max_level(e, idx, v->rank, cond.level));
	t.t = temp(e);
	emit(e, t.level, "%s %s = %s;", pl_acc_type(v->dt), t.t, pl_literal(e->pl, v->dt, v->arg[2]->f, v->arg[2]->i));
	emit(e, t.level, "if (%s) {", cond.t);
	e->scope++;
	e->scope_level = t.level;
	in = pl_expr(e, v->arg[1], idx);
	emit(e, t.level, "%s = %s;", t.t, in.t);
	memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	emit(e, t.level, "}");
	return t;
}

struct etext pl_places(struct expr *e, struct val *v, const struct ix *const *idx, int64_t end)
{
	struct etext at = { NULL, 1, 1 };
	int ahead;

	if ((at.t = integers_at(e, v, idx, &at.level, &ahead))) {
		if (ahead)
			emit(e, at.level, "ww_prefetch_ahead(%s, 2);", at.t);
		at.t = pl_fmt(e->pl, "ww_vi_load_i64(%s, n)", at.t);
		return at;
	}
	at = pl_expr(e, v, idx);
	if (at.vec && (e->need_scalar || e->mask || end > 1 << 24)) {
		e->need_scalar = 1;
		at.t = NULL;
	} else if (at.vec) {
		at.t = pl_fmt(e->pl, "ww_vi_trunc(%s)", at.t); /* places below 2^24 are exact in floats */
	}
	return at;
}

static struct etext gathered(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK], *name;
	struct etext at = pl_places(e, v->arg[1], idx, ix_num(v->arg[0]->size[v->dim]));
	const char *places = at.vec ? at.t : NULL;

	if (!at.t)
		return at.t = "ww_vf_zero()", at;
	pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub);
	if (places) {
		at.t = temp(e);
		emit(e, at.level, "const ww_vi %s = %s;", at.t, places);
		name = ix_temp_along(e->pl, at.t, pl_of_var(e->pl, e->lane), v->arg[0]->size[v->dim]);
	} else {
		name = ix_temp(e->pl, e->pl->target == WW_TARGET_CUDA ? pl_fmt(e->pl, "(ix_t)%s", at.t) : at.t);
	}
	((struct ix_atom *)(uintptr_t)name->m[0].atom[0])->value = at.level;
	sub[v->dim] = name;
	return pl_expr(e, v->arg[0], sub);
}

/* 1: this kernel has already computed reduction v at idx; *t: its text.  (Another kernel may store it, too.) */
static int done_here(const struct expr *e, const struct val *v, const struct ix *const *idx, struct etext *t)
{
	for (int i = 0; i < e->k->n_red; i++) {
		if (e->k->red[i] != v || !e->red_done[i] || !ix_same_all(e->k->red_idx[i], idx, v->rank))
			continue;
		*t = e->red_text[i];
		return 1;
	}
	return 0;
}

/* A small reduction as a loop inside the expression. */
static struct etext reduction(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK];
	struct val *a = v->arg[0];
	struct etext t = { NULL, 0, 1 }, in;
	const struct ix *old_cond = e->cond;
	const struct ix_atom *old_window = e->window;
	int level, old_level = e->scope_level, old_scope = e->window_scope, dt = v->dt;

	level = at_level(e, max_level(e, idx, v->rank, 1));
	t.level = level;
	for (int d = 0; d < v->rank; d++) {
		sub[d] = idx[d];
		t.vec |= e->vec && pl_has_lane(e, idx[d]);
	}
	if (v->red >= RED_ARGMAX || (t.vec && dt != WW_F32 && dt != WW_F16 && dt != WW_BF16)) {
		if (v->red >= RED_ARGMAX)
			pl_fail(e->pl, "cannot cover %s (node %s): inside an expression", pl_red_names[v->red], pl_node_name(v));
		e->need_scalar = 1;
	}
	t.t = temp(e);
	emit(e, level, "%s %s = %s;", t.vec ? "ww_vf" : pl_acc_type(dt), t.t,
		t.vec ? pl_fmt(e->pl, "ww_vf_set(%s)", pl_ident(e->pl, v->red, dt)) : pl_ident(e->pl, v->red, dt));
	for (int d = v->rank; d < a->rank; d++) {
		const struct ix *x = ix_var(e->pl, pl_fmt(e->pl, "r%d", e->pl->n_var++), a->size[d]);

		((struct ix_atom *)(uintptr_t)x->m[0].atom[0])->value = level;
		sub[d] = x;
		if (e->vec && pl_unrolls(a->size[d]))
			emit(e, level, "WW_UNROLL(8)");
		if (e->cuda_vec && pl_unrolls(a->size[d]))
			emit(e, level, "#pragma unroll");
		emit(e, level, "for (ix_t %s = 0; %s < %s; %s++) {", ix_text(e->pl, x), ix_text(e->pl, x),
			ix_text(e->pl, a->size[d]), ix_text(e->pl, x));
		e->scope++;
	}
	e->scope_level = level;
	e->cond = NULL;
	e->window = ix_as_var(sub[a->rank - 1]);
	e->window_scope = e->scope;
	e->walks++;
	in = pl_expr(e, a, sub);
	e->walks--;
	e->window = old_window;
	e->window_scope = old_scope;
	e->cond = old_cond;
	emit(e, level, "%s = %s;", t.t, pl_combine(e->pl, v->red, dt, t.t, t.vec ? as_vec(e, in, dt) : in.t, t.vec));
	if (in.vec && !t.vec)
		e->need_scalar = 1;
	for (int d = v->rank; d < a->rank; d++) {
		memo_drop(e, 9, e->scope - 1);
		e->scope--;
		emit(e, level, "}");
	}
	e->scope_level = old_level;
	return t;
}

static struct etext indexed(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = { NULL, 0, 1 };
	const struct ix *x;

	pl_map_index(e->pl, v, &v->index, 1, idx, &x);
	t.level = at_level(e, level_of(e, x));
	t.vec = e->vec && pl_has_lane(e, x);
	t.t = temp(e);
	if (t.vec)
		emit(e, t.level, "const %s %s = %s;", vec_type(v->dt), t.t, v->dt == WW_BOOL ? vec_cond(e, x) : vec_ix(e, x));
	else
		emit(e, t.level, "const %s %s = %s;", pl_acc_type(v->dt), t.t, ix_text(e->pl, x));
	return t;
}

/* Does this kernel store v itself?  Then v is computed where it is needed and not loaded. */
static int is_own(const struct expr *e, const struct val *v)
{
	for (int o = 0; o < e->k->n_out; o++)
		if (e->k->out[o] == v)
			return 1;
	return v == e->self;
}

/* Does index x contain a lookup's vector of places?  Then the loop over the lanes is written around the lookup. */
static int of_lookup(const struct ix *x)
{
	for (int i = 0; x && i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			if (t->kind == IX_TEMP ? t->a != NULL
								   : t->kind != IX_SYM && t->kind != IX_VAR && (of_lookup(t->a) || of_lookup(t->b)))
				return 1;
		}
	return 0;
}

static int is_of_lookups(const struct ix *const *idx, int n)
{
	for (int d = 0; d < n; d++)
		if (of_lookup(idx[d]))
			return 1;
	return 0;
}

static int has_lanes(const struct val *v) { return v->dt == WW_BOOL || (pl_is_float(v->dt) && v->dt != WW_F64); }

/* A value that has no vector form: a loop over the lanes with scalars inside. */
static struct etext by_lanes(struct expr *e, struct val *v, const struct ix *const *idx)
{
	int level = at_level(e, max_level(e, idx, v->rank, 1)), old_level = e->scope_level;
	const char *mask = e->mask, *lane = e->lane->name, *all = temp(e);
	struct etext t = { temp(e), 1, level }, in;

	e->need_scalar = 0;
	emit(e, level, "float %s[WW_VL] = { 0 };", all);
	emit(e, level, "for (int l = 0; l < n; l++) {");
	e->scope++;
	e->scope_level = level;
	if (mask)
		emit(e, level, "if (!ww_vm_lane(%s, l))\n\tcontinue;", mask);
	emit(e, level, "const ix_t %s_l = %s + l;", lane, lane);
	emit(e, level, "{");
	e->scope++;
	emit(e, level, "const ix_t %s = %s_l;", lane, lane);
	e->vec = 0;
	e->by_lane = 1;
	e->mask = NULL;
	in = pl_expr(e, v, idx);
	emit(e, level, "%s[l] = (float)%s;", all, in.t);
	memo_drop(e, 9, e->scope - 2);
	e->vec = 1;
	e->by_lane = 0;
	e->mask = mask;
	e->scope--;
	emit(e, level, "}");
	e->scope--;
	e->scope_level = old_level;
	emit(e, level, "}");
	emit(e, level,
		v->dt == WW_BOOL ? "const ww_vm %s = ww_vf_ne(ww_vf_load(%s, WW_VL), ww_vf_zero());"
						 : "const ww_vf %s = ww_vf_load(%s, WW_VL);",
		t.t, all);
	return t;
}

/* An element of a buffer that no vector load reaches: only the load is written lane by lane, and what is computed from
 * it stays a vector. */
static struct etext loaded_by_lanes(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = by_lanes(e, v, idx);

	memo_add(e, v, NULL, idx, v->rank, t);
	return t;
}

static struct etext written(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK];
	struct etext t = { NULL, 0, 1 };
	struct val *taken;
	struct ememo *m;
	int failed = e->need_scalar;

	if (v->given)
		return t.vec = e->vec, t.t = e->vec ? v->given : pl_fmt(e->pl, "%s[l]", v->given), t;
	if (v->kind == V_CONST)
		return t.t = pl_literal(e->pl, v->dt, v->f, v->i), t;
	for (int i = 0; i < e->n_bound; i++)
		if (e->bound[i] == v)
			return e->bound_text[i];
	if (v->kind == V_RED && done_here(e, v, idx, &t))
		return t;
	if (v->kind == V_ANCHOR && v->anchor->in_row && done_here(e, v->anchor->in_row, idx, &t))
		return t;
	if ((m = memo_find(e, v, NULL, idx, v->rank)))
		return m->text;
	if (v->kind == V_BUF || (v->root && !is_own(e, v))) {
		t = load(e, v->root, idx);
		return e->vec && e->need_scalar && !failed && has_lanes(v) && !is_of_lookups(idx, v->rank)
			? loaded_by_lanes(e, v, idx)
			: t;
	}
	switch (v->kind) {
	case V_OP:
		taken = pl_taken(e->pl, v, idx);
		t = taken ? pl_expr(e, taken, idx) : is_branch(e, v, idx) ? branch(e, v, idx) : operation(e, v, idx);
		break;
	case V_INDEX: t = indexed(e, v, idx); break;
	case V_GATHER: t = gathered(e, v, idx); break;
	case V_RED: t = reduction(e, v, idx); break;
	case V_VIEW:
		pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub);
		t = v->cond ? guarded(e, v, idx, sub) : pl_expr(e, v->arg[0], sub);
		break;
	default: pl_fail(e->pl, "the result of node %s is not where it is needed", pl_node_name(v));
	}
	if (e->vec && e->need_scalar && !failed && has_lanes(v) && !is_of_lookups(idx, v->rank))
		t = by_lanes(e, v, idx);
	if (!e->need_scalar)
		memo_add(e, v, NULL, idx, v->rank, t);
	return t;
}

struct etext pl_expr(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = written(e, v, idx);

	if (!e->by_lane || !t.vec)
		return t;
	t.t = pl_fmt(e->pl, v->dt == WW_BOOL ? "ww_vm_lane(%s, l)" : pl_is_int(v->dt) ? "(long long)%s[l]" : "%s[l]", t.t);
	t.vec = 0;
	t.level = at_level(e, t.level);
	return t;
}
