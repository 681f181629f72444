/* ix.c - polynomials over sizes and loop counters: construction, simplification, text.
 *
 * Why polynomials: the planner asks three things of an index.  Is it the same as that other one (two reads of one
 * element are one read)?  What is its step along the loop that is to become a vector (1: a vector load; 0: a
 * broadcast)?  And does (i * S + j) / S reduce to i when reshapes are stacked?  A sum of monomials with sorted atoms
 * answers the first by comparison, the second by collecting the monomials that hold the variable, and the third by
 * splitting a dividend into the monomials that the divisor divides and a rest whose range is known.
 *
 * Ranges are taken at the sizes that the graph was traced with.  That is sound for other sizes as long as the reshapes
 * that made the quotients are: the plan guards each of them (see graph lowering).
 *
 * Rejected: hash-consed trees with rewrite rules, which need many more rules to see that two sums are equal. */
#include "policy/planner/build.h"

#include <string.h>

static struct ix *ix_new(struct pl *pl, int n)
{
	struct ix *x = pl_alloc(pl, sizeof(*x) + (size_t)(n ? n : 1) * sizeof(x->m[0]));

	x->n = n;
	return x;
}

static struct ix_atom *atom_new(struct pl *pl, enum ix_kind kind, const char *name)
{
	struct ix_atom *t = pl_alloc(pl, sizeof(*t));

	t->kind = kind;
	t->id = pl->n_atoms++;
	t->name = name;
	return t;
}

static const struct ix *of_atom(struct pl *pl, const struct ix_atom *t)
{
	struct ix *x = ix_new(pl, 1);

	x->m[0].c = 1;
	x->m[0].n = 1;
	x->m[0].atom[0] = t;
	return x;
}

const struct ix *ix_const(struct pl *pl, int64_t c)
{
	struct ix *x = ix_new(pl, c != 0);

	if (c)
		x->m[0].c = ix_bounded(c);
	return x;
}

const struct ix *ix_sym(struct pl *pl, const char *name, int64_t value)
{
	struct ix_atom *t = atom_new(pl, IX_SYM, name);

	t->value = value;
	return of_atom(pl, t);
}

const struct ix *ix_var(struct pl *pl, const char *name, const struct ix *extent)
{
	struct ix_atom *t = atom_new(pl, IX_VAR, name);

	t->b = extent;
	return of_atom(pl, t);
}

const struct ix *ix_temp(struct pl *pl, const char *name) { return of_atom(pl, atom_new(pl, IX_TEMP, name)); }

const struct ix *ix_temp_along(struct pl *pl, const char *name, const struct ix *lane, const struct ix *bound)
{
	struct ix_atom *t = atom_new(pl, IX_TEMP, name);

	t->a = lane;
	t->b = bound;
	return of_atom(pl, t);
}

static const struct ix_atom *what_it_is(const struct ix_atom *t)
{
	while (t->is)
		t = t->is;
	return t;
}

static int is_sym(const struct ix *a)
{
	return a->n == 1 && a->m[0].c == 1 && a->m[0].n == 1 && a->m[0].atom[0]->kind == IX_SYM;
}

/* A size without what is known of it: the number that its fixed symbols and its factor make, and the symbols left. */
struct factors {
	int64_t c;
	int n;
	struct ix_atom *atom[IX_MAX_ATOMS];
};

static int factor(const struct ix *x, struct factors *f)
{
	*f = (struct factors){ .c = x->n == 1 ? x->m[0].c : 0 };
	for (int i = 0; f->c > 0 && i < x->m[0].n; i++) {
		struct ix_atom *a = (struct ix_atom *)x->m[0].atom[i];

		if (a->kind != IX_SYM)
			return 0;
		a = (struct ix_atom *)what_it_is(a);
		if (a->fixed)
			f->c = ix_times(f->c, a->value);
		else
			f->atom[f->n++] = a;
	}
	return f->c > 0;
}

/* Two equal products, divided by the symbols that they share: what is left makes a symbol equal to a number, or two
 * symbols equal. */
static void unite_products(const struct ix *a, const struct ix *b)
{
	struct factors f, g, *one = &f, *other = &g;

	if (!factor(a, &f) || !factor(b, &g))
		return;
	for (int i = 0; i < f.n; i++)
		for (int k = 0; k < g.n; k++)
			if (f.atom[i] == g.atom[k]) {
				f.atom[i--] = f.atom[--f.n];
				g.atom[k] = g.atom[--g.n];
				break;
			}
	if (!f.n) {
		one = &g;
		other = &f;
	}
	if (one->n == 1 && !other->n && ix_times(one->atom[0]->value, one->c) == other->c)
		one->atom[0]->fixed = 1;
	else if (f.n == 1 && g.n == 1 && f.c == g.c)
		f.atom[0]->id < g.atom[0]->id ? (g.atom[0]->is = f.atom[0]) : (f.atom[0]->is = g.atom[0]);
}

void ix_unite(struct pl *pl, const struct ix *a, const struct ix *b)
{
	const struct ix *first = is_sym(a) ? a : b, *second = first == a ? b : a;
	struct ix_atom *x, *y;
	int64_t c;

	if (!is_sym(first)) {
		if (pl->target == WW_TARGET_CUDA)
			unite_products(a, b);
		return;
	}
	x = (struct ix_atom *)what_it_is(first->m[0].atom[0]);
	if (is_sym(second)) {
		y = (struct ix_atom *)what_it_is(second->m[0].atom[0]);
		if (x->id < y->id)
			y->is = x;
		else if (y->id < x->id)
			x->is = y;
		x->fixed = y->fixed |= x->fixed;
	} else if (ix_is_const(second, &c)) {
		x->fixed = 1;
	}
}

const struct ix *ix_fixed(struct pl *pl, const struct ix *x)
{
	return is_sym(x) && what_it_is(x->m[0].atom[0])->fixed ? ix_const(pl, ix_num(x)) : x;
}

static int atom_same(const struct ix_atom *a, const struct ix_atom *b)
{
	if (a == b || (a->kind == IX_SYM && b->kind == IX_SYM && what_it_is(a) == what_it_is(b)))
		return 1;
	if (a->kind != b->kind || a->kind == IX_SYM || a->kind == IX_VAR)
		return 0;
	if (a->kind == IX_TEMP)
		return !strcmp(a->name, b->name);
	return ix_same(a->a, b->a) && ix_same(a->b, b->b);
}

/* In any order: a symbol that has become another one since may stand elsewhere in an older product. */
static int mono_same(const struct ix_mono *a, const struct ix_mono *b)
{
	unsigned used = 0; /* atoms of b, a bit each */

	if (a->n != b->n)
		return 0;
	for (int i = 0; i < a->n; i++) {
		int j = i;

		for (int tried = 0; used >> j & 1 || !atom_same(a->atom[i], b->atom[j]); tried++, j = (j + 1) % b->n)
			if (tried == b->n)
				return 0;
		used |= 1u << j;
	}
	return 1;
}

int ix_same(const struct ix *a, const struct ix *b)
{
	uint64_t used = 0; /* monomials of b, a bit each */

	if (a == b)
		return 1;
	if (a->n != b->n || a->n > 64)
		return 0;
	for (int i = 0; i < a->n; i++) {
		int j = 0;

		while (j < b->n && ((used >> j & 1) || a->m[i].c != b->m[j].c || !mono_same(&a->m[i], &b->m[j])))
			j++;
		if (j == b->n)
			return 0;
		used |= 1ull << j;
	}
	return 1;
}

int ix_same_all(const struct ix *const *a, const struct ix *const *b, int n)
{
	int d = 0;

	while (d < n && ix_same(a[d], b[d]))
		d++;
	return d == n;
}

/* Variables first, so that C evaluates "i0*S1*S2" in the loop counter's type. */
static int atom_order(const struct ix_atom *t)
{
	static const int rank[] = {
		[IX_VAR] = 0, [IX_TEMP] = 1, [IX_DIV] = 2, [IX_MOD] = 3, [IX_LT] = 4, [IX_EQ] = 5, [IX_SYM] = 6
	};

	return rank[t->kind] * 1000000 + what_it_is(t)->id;
}

static void mono_mul(struct pl *pl, const struct ix_mono *a, const struct ix_mono *b, struct ix_mono *out)
{
	if (a->n + b->n > IX_MAX_ATOMS)
		pl_fail(pl, "an index expression has more than %d factors", IX_MAX_ATOMS);
	out->c = ix_times(a->c, b->c);
	out->n = 0;
	for (int i = 0, j = 0; i < a->n || j < b->n;) {
		if (j == b->n || (i < a->n && atom_order(a->atom[i]) <= atom_order(b->atom[j])))
			out->atom[out->n++] = a->atom[i++];
		else
			out->atom[out->n++] = b->atom[j++];
	}
}

static void push(struct ix *x, const struct ix_mono *m)
{
	for (int i = 0; i < x->n; i++)
		if (mono_same(&x->m[i], m)) {
			x->m[i].c = ix_plus(x->m[i].c, m->c);
			if (!x->m[i].c)
				x->m[i] = x->m[--x->n];
			return;
		}
	if (m->c)
		x->m[x->n++] = *m;
}

static int find_merge(struct pl *pl, struct ix *x);

/* Merge the terms that flattening and splitting an axis have left. */
static const struct ix *finish(struct pl *pl, struct ix *x)
{
	while (find_merge(pl, x))
		;
	return x;
}

static const struct ix *add_scaled(struct pl *pl, const struct ix *a, const struct ix *b, int64_t scale)
{
	struct ix *x = ix_new(pl, a->n + b->n);

	x->n = 0;
	for (int i = 0; i < a->n; i++)
		push(x, &a->m[i]);
	for (int i = 0; i < b->n; i++) {
		struct ix_mono m = b->m[i];

		m.c = ix_times(m.c, scale);
		push(x, &m);
	}
	return finish(pl, x);
}

const struct ix *ix_add(struct pl *pl, const struct ix *a, const struct ix *b) { return add_scaled(pl, a, b, 1); }
const struct ix *ix_sub(struct pl *pl, const struct ix *a, const struct ix *b) { return add_scaled(pl, a, b, -1); }
const struct ix *ix_addc(struct pl *pl, const struct ix *a, int64_t c) { return ix_add(pl, a, ix_const(pl, c)); }
const struct ix *ix_mulc(struct pl *pl, const struct ix *a, int64_t c) { return ix_mul(pl, a, ix_const(pl, c)); }

static const struct ix *mul_raw(struct pl *pl, const struct ix *a, const struct ix *b)
{
	struct ix *x = ix_new(pl, a->n * b->n);

	x->n = 0;
	for (int i = 0; i < a->n; i++)
		for (int j = 0; j < b->n; j++) {
			struct ix_mono m = { 0 };

			mono_mul(pl, &a->m[i], &b->m[j], &m);
			push(x, &m);
		}
	return x;
}

const struct ix *ix_mul(struct pl *pl, const struct ix *a, const struct ix *b)
{
	const struct ix *x = mul_raw(pl, a, b);
	struct ix *y = ix_new(pl, x->n);

	memcpy(y->m, x->m, (size_t)x->n * sizeof(x->m[0]));
	return finish(pl, y);
}

/* m without its atom number k. */
static struct ix_mono without(const struct ix_mono *m, int k)
{
	struct ix_mono r = *m;

	memmove(&r.atom[k], &r.atom[k + 1], (size_t)(r.n - k - 1) * sizeof(r.atom[0]));
	r.n--;
	return r;
}

/* m with numbers in place of the symbols that are known to equal one. */
static struct ix_mono in_numbers(const struct ix_mono *m)
{
	struct ix_mono r = { .c = m->c };

	for (int i = 0; i < m->n; i++)
		if (m->atom[i]->kind == IX_SYM && what_it_is(m->atom[i])->fixed)
			r.c = ix_times(r.c, m->atom[i]->value);
		else
			r.atom[r.n++] = m->atom[i];
	return r;
}

/* c * b in one monomial is w?  0 where it has too many factors. */
static int is_product(struct pl *pl, const struct ix_mono *c, const struct ix *b, const struct ix_mono *w)
{
	struct ix_mono prod, mine, other;

	if (b->n != 1 || c->n + b->m[0].n > IX_MAX_ATOMS)
		return 0;
	mono_mul(pl, c, &b->m[0], &prod);
	if (pl->target != WW_TARGET_CUDA)
		return prod.c == w->c && mono_same(&prod, w);
	mine = in_numbers(&prod);
	other = in_numbers(w);
	return mine.c == other.c && mono_same(&mine, &other);
}

/* What c * (d's dividend % d's divisor) and w * q are together, or NULL: C*B*(m/B) + C*(m%B) is C*m, and
 * C*B*((m/B)%D) + C*(m%B) is C*(m%(B*D)). */
static const struct ix *merged(
	struct pl *pl, const struct ix_mono *c, const struct ix_atom *d, const struct ix_mono *w, const struct ix_atom *q)
{
	const struct ix *inner = q->kind == IX_MOD ? q->a : NULL;
	const struct ix_atom *div = q;

	if (!is_product(pl, c, d->b, w))
		return NULL;
	if (inner) {
		if (inner->n != 1 || inner->m[0].c != 1 || inner->m[0].n != 1 || inner->m[0].atom[0]->kind != IX_DIV)
			return NULL;
		div = inner->m[0].atom[0];
	}
	if (div->kind != IX_DIV || !ix_same(div->a, d->a) || !ix_same(div->b, d->b))
		return NULL;
	return inner ? ix_mod(pl, d->a, ix_mul(pl, d->b, q->b)) : d->a;
}

static int find_merge(struct pl *pl, struct ix *x)
{
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < x->m[i].n; k++)
			for (int j = 0; j < x->n && x->m[i].atom[k]->kind == IX_MOD; j++)
				for (int l = 0; l < x->m[j].n && i != j; l++) {
					struct ix_mono cm = without(&x->m[i], k), cq = without(&x->m[j], l);
					const struct ix *sum = merged(pl, &cm, x->m[i].atom[k], &cq, x->m[j].atom[l]), *prod;
					struct ix *c1;

					if (!sum)
						continue;
					c1 = ix_new(pl, 1);
					c1->m[0] = cm;
					prod = mul_raw(pl, c1, sum);
					if (prod->n > 2)
						continue; /* no room in place, and no gain */
					x->m[i > j ? i : j] = x->m[x->n - 1];
					x->n--;
					x->m[i > j ? j : i] = x->m[x->n - 1];
					x->n--;
					for (int t = 0; t < prod->n; t++)
						push(x, &prod->m[t]);
					return 1;
				}
	return 0;
}

int ix_is_const(const struct ix *a, int64_t *c)
{
	if (a->n == 0) {
		*c = 0;
		return 1;
	}
	if (a->n == 1 && a->m[0].n == 0) {
		*c = a->m[0].c;
		return 1;
	}
	return 0;
}

int ix_is(const struct ix *a, int64_t c)
{
	int64_t v;

	return ix_is_const(a, &v) && v == c;
}

const struct ix_atom *ix_as_var(const struct ix *a)
{
	if (a->n == 1 && a->m[0].c == 1 && a->m[0].n == 1 && a->m[0].atom[0]->kind == IX_VAR)
		return a->m[0].atom[0];
	return NULL;
}

static int atom_has(const struct ix_atom *t, const struct ix_atom *v)
{
	if (t == v)
		return 1;
	if (t->kind == IX_TEMP)
		return t->a && ix_has(t->a, v);
	if (t->kind == IX_SYM || t->kind == IX_VAR)
		return 0;
	return ix_has(t->a, v) || ix_has(t->b, v);
}

int ix_has(const struct ix *a, const struct ix_atom *v)
{
	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < a->m[i].n; k++)
			if (atom_has(a->m[i].atom[k], v))
				return 1;
	return 0;
}

int ix_varies(const struct ix *a)
{
	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < a->m[i].n; k++) {
			const struct ix_atom *t = a->m[i].atom[k];

			if (t->kind == IX_VAR || t->kind == IX_TEMP)
				return 1;
			if (t->kind != IX_SYM && (ix_varies(t->a) || ix_varies(t->b)))
				return 1;
		}
	return 0;
}

int ix_looks_up(const struct ix *a)
{
	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < a->m[i].n; k++) {
			const struct ix_atom *t = a->m[i].atom[k];

			if (t->kind == IX_TEMP ||
				(t->kind != IX_SYM && t->kind != IX_VAR && (ix_looks_up(t->a) || ix_looks_up(t->b))))
				return 1;
		}
	return 0;
}

static int64_t atom_num(const struct ix_atom *t)
{
	switch (t->kind) {
	case IX_SYM: return t->value;
	case IX_VAR:
	case IX_TEMP: return 0;
	case IX_DIV: {
		int64_t b = ix_num(t->b);
		return b ? ix_num(t->a) / b : 0;
	}
	case IX_MOD: {
		int64_t b = ix_num(t->b);
		return b ? ix_num(t->a) % b : 0;
	}
	case IX_LT: return ix_num(t->a) < ix_num(t->b);
	case IX_EQ: return ix_num(t->a) == ix_num(t->b);
	}
	return 0;
}

int64_t ix_num(const struct ix *a)
{
	int64_t s = 0;

	for (int i = 0; i < a->n; i++) {
		int64_t p = a->m[i].c;

		for (int k = 0; k < a->m[i].n; k++)
			p = ix_times(p, atom_num(a->m[i].atom[k]));
		s = ix_plus(s, p);
	}
	return s;
}

static int atom_range(const struct ix_atom *t, int64_t *lo, int64_t *hi)
{
	int64_t b;

	switch (t->kind) {
	case IX_SYM: *lo = *hi = t->value; return 1;
	case IX_VAR:
		*lo = 0;
		*hi = ix_num(t->b) - 1;
		return 1;
	case IX_TEMP: return 0;
	case IX_LT:
	case IX_EQ:
		*lo = 0;
		*hi = 1;
		return 1;
	case IX_DIV:
		b = ix_num(t->b);
		if (b <= 0 || !ix_range(t->a, lo, hi) || *lo < 0)
			return 0;
		*lo /= b;
		*hi /= b;
		return 1;
	case IX_MOD:
		b = ix_num(t->b);
		if (b <= 0 || !ix_range(t->a, lo, hi) || *lo < 0)
			return 0;
		*lo = 0;
		*hi = *hi < b - 1 ? *hi : b - 1;
		return 1;
	}
	return 0;
}

int ix_range(const struct ix *a, int64_t *lo, int64_t *hi)
{
	int64_t l = 0, h = 0;

	for (int i = 0; i < a->n; i++) {
		int64_t pl_ = a->m[i].c, ph = a->m[i].c;

		for (int k = 0; k < a->m[i].n; k++) {
			int64_t x, y, p[4];

			if (!atom_range(a->m[i].atom[k], &x, &y))
				return 0;
			p[0] = ix_times(pl_, x), p[1] = ix_times(pl_, y), p[2] = ix_times(ph, x), p[3] = ix_times(ph, y);
			pl_ = ph = p[0];
			for (int t = 1; t < 4; t++) {
				pl_ = p[t] < pl_ ? p[t] : pl_;
				ph = p[t] > ph ? p[t] : ph;
			}
		}
		l = ix_plus(l, pl_);
		h = ix_plus(h, ph);
	}
	*lo = l;
	*hi = h;
	return 1;
}

/* a / b for single monomials, exactly; 0 where b does not divide a. */
static int mono_div(const struct ix_mono *a, const struct ix_mono *b, struct ix_mono *q)
{
	*q = *a;
	if (!b->c || a->c % b->c)
		return 0;
	q->c = a->c / b->c;
	for (int i = 0; i < b->n; i++) {
		int k = 0;

		while (k < q->n && !atom_same(q->atom[k], b->atom[i]))
			k++;
		if (k == q->n)
			return 0;
		*q = without(q, k);
	}
	return 1;
}

/* The same on cuda where a has a number and b the symbol that equals it, or the other way round. */
static int div_in_numbers(struct pl *pl, const struct ix_mono *a, const struct ix_mono *b, struct ix_mono *q)
{
	const struct ix_mono mine = in_numbers(a), other = in_numbers(b);

	return pl->target == WW_TARGET_CUDA && mono_div(&mine, &other, q);
}

/* a = b * quot + rest, taking into quot every monomial that b divides.  Constants split by their own quotient. */
static void split(struct pl *pl, const struct ix *a, const struct ix *b, const struct ix **quot, const struct ix **rest)
{
	struct ix *q = ix_new(pl, a->n), *r = ix_new(pl, a->n);

	q->n = r->n = 0;
	for (int i = 0; i < a->n; i++) {
		struct ix_mono m;

		if (b->n == 1 && (mono_div(&a->m[i], &b->m[0], &m) || div_in_numbers(pl, &a->m[i], &b->m[0], &m))) {
			push(q, &m);
		} else if (b->n == 1 && b->m[0].n == 0 && a->m[i].n == 0 && a->m[i].c >= b->m[0].c) {
			m = a->m[i];
			m.c = a->m[i].c / b->m[0].c;
			push(q, &m);
			m.c = a->m[i].c % b->m[0].c;
			push(r, &m);
		} else {
			push(r, &a->m[i]);
		}
	}
	*quot = q;
	*rest = r;
}

static const struct ix *atom2(struct pl *pl, enum ix_kind kind, const struct ix *a, const struct ix *b)
{
	struct ix_atom *t = atom_new(pl, kind, NULL);

	t->a = a;
	t->b = b;
	return of_atom(pl, t);
}

const struct ix *ix_div(struct pl *pl, const struct ix *a, const struct ix *b)
{
	const struct ix *q, *r;
	int64_t lo, hi, n = ix_num(b), ca, cb;

	if (ix_is(b, 1))
		return a;
	if (ix_same(a, b))
		return ix_const(pl, 1);
	if (ix_is_const(a, &ca) && ix_is_const(b, &cb) && (ca >= 0 || !cb)) /* by 0: of what has no elements */
		return ix_const(pl, cb ? ca / cb : 0);
	split(pl, a, b, &q, &r);
	if (ix_range(r, &lo, &hi) && lo >= 0 && hi < n)
		return q;
	if (ix_range(a, &lo, &hi) && lo >= 0 && ix_range(r, &lo, &hi) && lo >= 0) {
		/* (x / p) / q is x / (p q) */
		if (r->n == 1 && r->m[0].c == 1 && r->m[0].n == 1 && r->m[0].atom[0]->kind == IX_DIV)
			return ix_add(pl, q, ix_div(pl, r->m[0].atom[0]->a, ix_mul(pl, r->m[0].atom[0]->b, b)));
		return ix_add(pl, q, atom2(pl, IX_DIV, r, b));
	}
	return atom2(pl, IX_DIV, a, b);
}

const struct ix *ix_mod(struct pl *pl, const struct ix *a, const struct ix *b)
{
	const struct ix *q, *r;
	int64_t lo, hi, n = ix_num(b), ca, cb;

	if (ix_is(b, 1) || ix_same(a, b))
		return ix_const(pl, 0);
	if (ix_is_const(a, &ca) && ix_is_const(b, &cb) && (ca >= 0 || !cb))
		return ix_const(pl, cb ? ca % cb : 0);
	split(pl, a, b, &q, &r);
	if (ix_range(r, &lo, &hi) && lo >= 0 && hi < n)
		return r;
	if (ix_range(a, &lo, &hi) && lo >= 0 && ix_range(r, &lo, &hi) && lo >= 0)
		return atom2(pl, IX_MOD, r, b);
	return atom2(pl, IX_MOD, a, b);
}

const struct ix *ix_lt(struct pl *pl, const struct ix *a, const struct ix *b)
{
	int64_t lo, hi, lb, hb;

	if (ix_range(a, &lo, &hi) && ix_range(b, &lb, &hb)) {
		if (hi < lb)
			return ix_const(pl, 1);
		if (lo >= hb)
			return ix_const(pl, 0);
	}
	return atom2(pl, IX_LT, a, b);
}

const struct ix *ix_eqz(struct pl *pl, const struct ix *a, const struct ix *b)
{
	if (ix_same(a, b))
		return ix_const(pl, 1);
	return atom2(pl, IX_EQ, a, b);
}

int ix_affine(
	struct pl *pl, const struct ix *a, const struct ix_atom *v, const struct ix **coef, const struct ix **rest)
{
	struct ix *c = ix_new(pl, a->n), *r = ix_new(pl, a->n);

	c->n = r->n = 0;
	for (int i = 0; i < a->n; i++) {
		int at = -1;

		for (int k = 0; k < a->m[i].n; k++) {
			if (a->m[i].atom[k] == v) {
				if (at >= 0)
					return 0;
				at = k;
			} else if (atom_has(a->m[i].atom[k], v)) {
				return 0;
			}
		}
		if (at >= 0) {
			struct ix_mono m = without(&a->m[i], at);

			push(c, &m);
		} else {
			push(r, &a->m[i]);
		}
	}
	*coef = c;
	*rest = r;
	return 1;
}

static const struct ix *atom_subst(
	struct pl *pl, const struct ix_atom *t, const struct ix_atom *const *v, const struct ix *const *e, int n)
{
	const struct ix *a, *b;

	for (int i = 0; i < n; i++)
		if (t == v[i])
			return e[i];
	if (t->kind == IX_SYM || t->kind == IX_VAR || t->kind == IX_TEMP)
		return of_atom(pl, t);
	a = ix_subst(pl, t->a, v, e, n);
	b = ix_subst(pl, t->b, v, e, n);
	switch (t->kind) {
	case IX_DIV: return ix_div(pl, a, b);
	case IX_MOD: return ix_mod(pl, a, b);
	case IX_LT: return ix_lt(pl, a, b);
	default: return ix_eqz(pl, a, b);
	}
}

const struct ix *ix_subst(
	struct pl *pl, const struct ix *a, const struct ix_atom *const *v, const struct ix *const *e, int n)
{
	const struct ix *s = NULL;

	/* Most terms are one variable: what stands for it is the result, without sums with 0 and products with 1. */
	for (int i = 0; i < a->n; i++) {
		const struct ix *p = a->m[i].c == 1 && a->m[i].n ? NULL : ix_const(pl, a->m[i].c);

		for (int k = 0; k < a->m[i].n; k++) {
			const struct ix *f = atom_subst(pl, a->m[i].atom[k], v, e, n);

			p = p ? ix_mul(pl, p, f) : f;
		}
		s = s ? ix_add(pl, s, p) : p;
	}
	return s ? s : ix_const(pl, 0);
}

static void atom_print(struct pl *pl, struct ww_str *s, const struct ix_atom *t)
{
	static const char *const op[] = { [IX_DIV] = "/", [IX_MOD] = "%", [IX_LT] = "<", [IX_EQ] = "==" };

	if (t->kind == IX_SYM || t->kind == IX_VAR || t->kind == IX_TEMP)
		ww_str_adds(s, t->name);
	else
		ww_str_addf(s, "(%s %s %s)", ix_text(pl, t->a), op[t->kind], ix_text(pl, t->b));
}

const char *ix_text(struct pl *pl, const struct ix *a)
{
	struct ww_str s = pl_text(pl);
	/* a sum, a product or a negative number: safe only in parentheses */
	int group = a->n > 1 || (a->n == 1 && (a->m[0].c < 0 || a->m[0].n + (a->m[0].c != 1) > 1));

	if (group)
		ww_str_addc(&s, '(');
	for (int i = 0; i < a->n; i++) {
		const struct ix_mono *m = &a->m[i];
		int64_t c = m->c;

		if (i)
			ww_str_adds(&s, c < 0 ? " - " : " + ");
		else if (c < 0)
			ww_str_adds(&s, "-");
		c = c < 0 ? -c : c;
		for (int k = 0; k < m->n; k++) {
			if (k)
				ww_str_addc(&s, '*');
			atom_print(pl, &s, m->atom[k]);
		}
		if (m->n == 0)
			ww_str_addf(&s, "%lld", (long long)c);
		else if (c != 1)
			ww_str_addf(&s, "*%lld", (long long)c);
	}
	if (!a->n)
		ww_str_addc(&s, '0');
	if (group)
		ww_str_addc(&s, ')');
	return s.p;
}
