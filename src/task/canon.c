/* canon.c - canonical nodes and the identities that hold between them (canon.h).
 *
 * Every constructor looks at its operands only, so that a graph is canonical once it has been built from its leaves.
 * The identities, each in the constructor of its outermost operation:
 *
 *   sums       flat, equal terms are one with a factor, 0 is dropped, a factor that all terms have is taken out;
 *              (x + |x|) k is relu
 *   products   flat, numbers are one, equal factors are a power, 1 is dropped; x (x > 0) is relu
 *   powers     of a power: exponents multiplied, the root of a square is |x|
 *   exp, log   exp(x - max x) is exp(x) exp(-max x), exp(x - log y) is exp(x) / y; log(exp x) is x; the log
 *              of a product with exp or a quotient in it is a sum
 *   reductions a number, and a factor that was itself reduced, are taken out of a sum; sum of a sum is one sum;
 *              sum(a b) is matmul(a, b)
 *   matmul     without order (transposes are views); a number is taken out; diag(a) b is a product
 *   max, min   with 0: relu; with a number: clamp; max(x, k x) is leaky_relu, max(x, -x) is |x|
 *   where      of a constant condition and a constant: an additive mask; (x > 0 ? x : 0) is relu, (x > 0 ? x : k x)
 *              leaky_relu
 *
 * Rejected: a term rewriter over patterns (slower, and the order of rules would matter); deciding equality by running
 * (tasks of other sizes have other inputs). */
#include "task/canon.h"
#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 256 << 20, FIRST_TABLE = 1 << 12, TERMS_MAX = 256, FLAT_MAX = 6 };

enum ww_rc ww_canon_init(struct ww_canon *c, struct ww_err *err)
{
	memset(c, 0, sizeof(*c));
	ww_arena_init(&c->arena, ARENA_BYTES);
	c->table_cap = FIRST_TABLE;
	WW_CHECK(WW_NEW(c->table, c->table_cap, err));
	ww_canon_num(c, 0); /* node 0, which failures give */
	return c->failed ? ww_nomem(err) : WW_OK;
}

void ww_canon_release(struct ww_canon *c)
{
	ww_arena_release(&c->arena);
	free(c->node);
	free(c->table);
}

/* ---- Making nodes ------------------------------------------------------------------------------------------------ */

static uint64_t bits_of(double v)
{
	uint64_t b;
	memcpy(&b, &v, sizeof(b));
	return b;
}

static uint64_t hash_node(const struct ww_canon_node *x)
{
	uint64_t h = ww_hash_mix(x->label_hash, (uint64_t)x->kind * 2 + (uint64_t)x->unknown);
	h = ww_hash_mix(h, bits_of(x->value));
	for (int i = 0; i < x->n; i++)
		h = ww_hash_mix(h, (uint64_t)x->in[i]);
	return h;
}

static int same_node(const struct ww_canon_node *a, const struct ww_canon_node *b)
{
	return a->kind == b->kind && a->label_hash == b->label_hash && bits_of(a->value) == bits_of(b->value) &&
		a->unknown == b->unknown && a->n == b->n && (!a->n || !memcmp(a->in, b->in, (size_t)a->n * sizeof(*a->in)));
}

static int *slot_of(struct ww_canon *c, const struct ww_canon_node *x)
{
	size_t at = hash_node(x) & (c->table_cap - 1);
	while (c->table[at] && !same_node(&c->node[c->table[at] - 1], x))
		at = (at + 1) & (c->table_cap - 1);
	return &c->table[at];
}

static int grow_table(struct ww_canon *c)
{
	int *old = c->table;
	if (c->n * 2 < c->table_cap)
		return 1;
	c->table = calloc(c->table_cap *= 2, sizeof(*c->table));
	if (!c->table) {
		c->table = old;
		c->table_cap /= 2;
		return 0;
	}
	for (size_t i = 0; i < c->n; i++)
		*slot_of(c, &c->node[i]) = (int)i + 1;
	free(old);
	return 1;
}

/* The node that equals x, made where there is none. */
static int put(struct ww_canon *c, struct ww_canon_node x)
{
	uint64_t h = ww_hash_fnv(x.label, strlen(x.label));
	x.label_hash = ww_hash_mix(h, h >> 32);
	int *slot = c->failed ? NULL : slot_of(c, &x);
	if (slot && *slot)
		return *slot - 1;
	int *in = c->failed ? NULL : ww_arena_alloc(&c->arena, (size_t)(x.n + 1) * sizeof(*in));
	const char *label = in ? ww_arena_strdup(&c->arena, x.label) : NULL;
	if (!label || c->n >= WW_CANON_MAX_NODES || !WW_GROW(c->node, &c->cap, c->n + 1) || !grow_table(c)) {
		c->failed = 1;
		return 0;
	}
	if (x.n)
		memcpy(in, x.in, (size_t)x.n * sizeof(*in));
	x.in = in;
	x.label = label;
	c->node[c->n] = x;
	*slot_of(c, &x) = (int)++c->n;
	return (int)c->n - 1;
}

int ww_canon_leaf(struct ww_canon *c, const char *type_class)
{
	return put(c, (struct ww_canon_node){ .kind = WW_CANON_LEAF, .label = type_class, .value = ++c->next_unknown });
}

int ww_canon_num(struct ww_canon *c, double value)
{
	return put(c, (struct ww_canon_node){ .kind = WW_CANON_CONST, .label = "k", .value = value });
}

int ww_canon_unknown(struct ww_canon *c)
{
	return put(
		c, (struct ww_canon_node){ .kind = WW_CANON_CONST, .label = "k", .unknown = 1, .value = ++c->next_unknown });
}

static int by_number(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

static int is_const(const struct ww_canon *c, int x) { return c->node[x].kind == WW_CANON_CONST; }

int ww_canon_op(struct ww_canon *c, const char *label, double which, int commutes, const int *in, int n)
{
	int constant = n > 0, sorted[TERMS_MAX];
	n = n < TERMS_MAX ? n : TERMS_MAX;
	for (int i = 0; i < n; i++) {
		sorted[i] = in[i];
		constant = constant && is_const(c, in[i]);
	}
	if (constant)
		return ww_canon_unknown(c);
	if (commutes)
		qsort(sorted, (size_t)n, sizeof(*sorted), by_number);
	return put(c,
		(struct ww_canon_node){
			.kind = WW_CANON_OP, .label = label, .value = which, .commutes = commutes, .n = n, .in = sorted });
}

int ww_canon_op1(struct ww_canon *c, const char *label, int x) { return ww_canon_op(c, label, 0, 0, &x, 1); }

int ww_canon_op2(struct ww_canon *c, const char *label, int commutes, int x, int y)
{
	return ww_canon_op(c, label, 0, commutes, (int[]){ x, y }, 2);
}

int ww_canon_is(const struct ww_canon *c, int x, const char *label)
{
	return c->node[x].kind == WW_CANON_OP && !strcmp(c->node[x].label, label);
}

int ww_canon_is_num(const struct ww_canon *c, int x, double value)
{
	const struct ww_canon_node *k = &c->node[x];
	return k->kind == WW_CANON_CONST && !k->unknown && k->value == value;
}

/* ---- Sums and products ------------------------------------------------------------------------------------------- */

/* A list of (value, number): of a sum terms with factors, of a product bases with exponents; and a constant beside. */
struct terms {
	int x[TERMS_MAX];
	double k[TERMS_MAX];
	int n, unknown, full;
	double number;
};

static void add_term(struct terms *t, int x, double k)
{
	for (int i = 0; i < t->n; i++)
		if (t->x[i] == x) {
			t->k[i] += k;
			return;
		}
	if (t->n == TERMS_MAX) {
		t->full = 1;
		return;
	}
	t->x[t->n] = x;
	t->k[t->n++] = k;
}

static void drop_zeros(struct terms *t)
{
	int n = 0;
	for (int i = 0; i < t->n; i++)
		if (t->k[i] != 0) {
			t->x[n] = t->x[i];
			t->k[n++] = t->k[i];
		}
	t->n = n;
}

/* Of a product with a number in it, the number; else 1. */
static double factor_of(const struct ww_canon *c, int x)
{
	const struct ww_canon_node *p = &c->node[x];
	for (int i = 0; ww_canon_is(c, x, "mul") && i < p->n; i++)
		if (is_const(c, p->in[i]) && !c->node[p->in[i]].unknown)
			return c->node[p->in[i]].value;
	return 1;
}

/* A product without its number. */
static int without_factor(struct ww_canon *c, int x)
{
	int rest[TERMS_MAX], n = 0, in_n = c->node[x].n, *in = c->node[x].in;
	if (factor_of(c, x) == 1)
		return x;
	for (int i = 0; i < in_n; i++)
		if (!is_const(c, in[i]) || c->node[in[i]].unknown)
			rest[n++] = in[i];
	return n == 1 ? rest[0] : ww_canon_op(c, "mul", 0, 1, rest, n);
}

/* Longer sums stay values of their own, or each of a deep network's would hold all before it. */
static int is_flat(const struct ww_canon *c, int x, const char *label)
{
	return ww_canon_is(c, x, label) && c->node[x].n <= FLAT_MAX;
}

static void collect_sum(struct ww_canon *c, struct terms *t, int x, double k)
{
	const struct ww_canon_node p = c->node[x];
	if (p.kind == WW_CANON_CONST) {
		t->number += k * p.value * !p.unknown;
		t->unknown |= p.unknown;
	} else if (is_flat(c, x, "add")) {
		for (int i = 0; i < p.n; i++)
			collect_sum(c, t, p.in[i], k);
	} else {
		double f = factor_of(c, x);
		int base = without_factor(c, x);
		if (f != 1 && is_flat(c, base, "add"))
			collect_sum(c, t, base, k * f);
		else
			add_term(t, base, k * f);
	}
}

static int constant_of(struct ww_canon *c, const struct terms *t)
{
	return t->unknown ? ww_canon_unknown(c) : ww_canon_num(c, t->number);
}

/* k (x + |x|) */
static int is_relu_sum(const struct ww_canon *c, const struct terms *t)
{
	if (t->n != 2 || t->unknown || t->number != 0 || t->k[0] != t->k[1])
		return 0;
	for (int i = 0; i < 2; i++)
		if (ww_canon_is(c, t->x[i], "abs") && c->node[t->x[i]].in[0] == t->x[1 - i])
			return 1;
	return 0;
}

static int make_sum(struct ww_canon *c, struct terms *t)
{
	int in[TERMS_MAX + 1], n = 0;
	double common = t->n ? t->k[0] : 1;
	drop_zeros(t);
	if (!t->n)
		return constant_of(c, t);
	if (is_relu_sum(c, t))
		return ww_canon_scale(
			c, 2 * t->k[0], ww_canon_max(c, t->x[ww_canon_is(c, t->x[0], "abs")], ww_canon_num(c, 0)));
	for (int i = 0; i < t->n; i++)
		if (t->k[i] != common)
			common = 1;
	for (int i = 0; i < t->n; i++)
		in[n++] = ww_canon_scale(c, t->k[i] / common, t->x[i]);
	t->number /= common;
	if (t->unknown || t->number != 0)
		in[n++] = constant_of(c, t);
	return ww_canon_scale(c, common, n == 1 ? in[0] : ww_canon_op(c, "add", 0, 1, in, n < TERMS_MAX ? n : TERMS_MAX));
}

static int is_abs_of(const struct ww_canon *c, int y, int x)
{
	return ww_canon_is(c, y, "abs") && c->node[y].in[0] == x;
}

int ww_canon_add(struct ww_canon *c, int x, int y)
{
	struct terms t = { 0 };
	if (is_abs_of(c, y, x) || is_abs_of(c, x, y)) /* where x is a sum itself, its terms would hide it */
		return ww_canon_scale(c, 2, ww_canon_max(c, is_abs_of(c, y, x) ? x : y, ww_canon_num(c, 0)));
	collect_sum(c, &t, x, 1);
	collect_sum(c, &t, y, 1);
	return t.full ? ww_canon_op2(c, "add", 1, x, y) : make_sum(c, &t);
}

int ww_canon_sub(struct ww_canon *c, int x, int y) { return ww_canon_add(c, x, ww_canon_scale(c, -1, y)); }

/* The exponent of a power, and its base. */
static double exponent_of(const struct ww_canon *c, int x, int *base)
{
	const struct ww_canon_node *p = &c->node[x];
	*base = x;
	if (p->kind != WW_CANON_OP || strncmp(p->label, "pow/", 4) || p->n != 1)
		return 1;
	*base = p->in[0];
	return p->value;
}

static void collect_product(struct ww_canon *c, struct terms *t, int x, double e)
{
	const struct ww_canon_node p = c->node[x];
	if (p.kind == WW_CANON_CONST) {
		t->number *= p.unknown ? 1 : pow(p.value, e);
		t->unknown |= p.unknown;
	} else if (is_flat(c, x, "mul")) {
		for (int i = 0; i < p.n; i++)
			collect_product(c, t, p.in[i], e);
	} else {
		int base;
		double own = exponent_of(c, x, &base);
		if (own != 1 && is_flat(c, base, "mul"))
			collect_product(c, t, base, e * own);
		else
			add_term(t, base, e * own);
	}
}

static int power(struct ww_canon *c, int x, double e)
{
	char label[40];
	if (e == 1 || ww_canon_is_num(c, x, 1))
		return x;
	snprintf(label, sizeof(label), "pow/%g", e);
	return ww_canon_op(c, label, e, 0, &x, 1);
}

/* x and (x > 0): the result's place among the factors, or -1. */
static int relu_factor(const struct ww_canon *c, const struct terms *t)
{
	for (int i = 0; i < t->n; i++) {
		const struct ww_canon_node *p = &c->node[t->x[i]];
		for (int j = 0; ww_canon_is(c, t->x[i], "lt") && t->k[i] == 1 && j < t->n; j++)
			if (ww_canon_is_num(c, p->in[0], 0) && p->in[1] == t->x[j] && t->k[j] == 1)
				return i;
	}
	return -1;
}

static int make_product(struct ww_canon *c, struct terms *t)
{
	int in[TERMS_MAX + 1], n = 0, at;
	drop_zeros(t);
	while ((at = relu_factor(c, t)) >= 0) {
		int x = c->node[t->x[at]].in[1];
		for (int j = 0; j < t->n; j++)
			t->k[j] = t->x[j] == x || j == at ? 0 : t->k[j];
		t->k[at] = 1;
		t->x[at] = ww_canon_max(c, x, ww_canon_num(c, 0));
		drop_zeros(t);
	}
	if (!isfinite(t->number))
		t->unknown = 1;
	if (!t->n || (!t->unknown && t->number == 0))
		return constant_of(c, t);
	for (int i = 0; i < t->n; i++)
		in[n++] = power(c, t->x[i], t->k[i]);
	if (t->unknown || t->number != 1)
		in[n++] = constant_of(c, t);
	return n == 1 ? in[0] : ww_canon_op(c, "mul", 0, 1, in, n < TERMS_MAX ? n : TERMS_MAX);
}

/* y is x > 0 */
static int is_sign_of(const struct ww_canon *c, int y, int x)
{
	const struct ww_canon_node *p = &c->node[y];
	return ww_canon_is(c, y, "lt") && ww_canon_is_num(c, p->in[0], 0) && p->in[1] == x;
}

int ww_canon_mul(struct ww_canon *c, int x, int y)
{
	struct terms t = { .number = 1 };
	if (is_sign_of(c, y, x) || is_sign_of(c, x, y))
		return ww_canon_max(c, is_sign_of(c, y, x) ? x : y, ww_canon_num(c, 0));
	collect_product(c, &t, x, 1);
	collect_product(c, &t, y, 1);
	return t.full ? ww_canon_op2(c, "mul", 1, x, y) : make_product(c, &t);
}

int ww_canon_scale(struct ww_canon *c, double k, int x) { return k == 1 ? x : ww_canon_mul(c, ww_canon_num(c, k), x); }

int ww_canon_pow(struct ww_canon *c, int x, double e)
{
	struct terms t = { .number = 1 };
	int base;
	if (e == 0.5 && exponent_of(c, x, &base) == 2)
		return ww_canon_op1(c, "abs", base);
	collect_product(c, &t, x, e);
	return t.full ? power(c, x, e) : make_product(c, &t);
}

int ww_canon_div(struct ww_canon *c, int x, int y) { return ww_canon_mul(c, x, ww_canon_pow(c, y, -1)); }

/* ---- Exponentials ------------------------------------------------------------------------------------------------ */

/* Whether x is made of results of reductions alone: the same along the dimension that is reduced next. */
static int is_reduced(const struct ww_canon *c, int x, int depth)
{
	const struct ww_canon_node *p = &c->node[x];
	if (p->kind != WW_CANON_OP)
		return p->kind == WW_CANON_CONST;
	if (!strncmp(p->label, "amax/", 5) || !strncmp(p->label, "sum/", 4))
		return 1;
	for (int i = 0; i < p->n; i++)
		if (depth > 8 || !is_reduced(c, p->in[i], depth + 1))
			return 0;
	return p->n > 0;
}

static int has_max(const struct ww_canon *c, int x)
{
	const struct ww_canon_node *p = &c->node[x];
	if (p->kind == WW_CANON_OP && !strncmp(p->label, "amax/", 5))
		return 1;
	for (int i = 0; ww_canon_is(c, x, "mul") && i < p->n; i++)
		if (has_max(c, p->in[i]))
			return 1;
	return 0;
}

int ww_canon_exp(struct ww_canon *c, int x)
{
	int n = c->node[x].n, *in = c->node[x].in;
	int base = without_factor(c, x);
	if (ww_canon_is(c, base, "log"))
		return ww_canon_pow(c, c->node[base].in[0], factor_of(c, x));
	for (int i = 0; ww_canon_is(c, x, "add") && i < n; i++)
		if (ww_canon_is(c, without_factor(c, in[i]), "log"))
			return ww_canon_mul(c, ww_canon_exp(c, in[i]), ww_canon_exp(c, ww_canon_sub(c, x, in[i])));
	for (int i = 0; ww_canon_is(c, x, "add") && i < n; i++)
		if (has_max(c, in[i])) {
			int rest = ww_canon_num(c, 0); /* fewer terms than x, so that this ends */
			for (int k = 0; k < n; k++)
				rest = k == i ? rest : ww_canon_add(c, rest, in[k]);
			return ww_canon_mul(c, ww_canon_op1(c, "exp", in[i]), ww_canon_exp(c, rest));
		}
	return ww_canon_op1(c, "exp", x);
}

int ww_canon_log(struct ww_canon *c, int x)
{
	const struct ww_canon_node p = c->node[x];
	int base, sum = 0, splits = 0;
	double e = exponent_of(c, x, &base);
	if (ww_canon_is(c, x, "exp"))
		return p.in[0];
	if (e != 1)
		return ww_canon_scale(c, e, ww_canon_log(c, base));
	for (int i = 0; ww_canon_is(c, x, "mul") && i < p.n; i++)
		splits |= ww_canon_is(c, p.in[i], "exp") || exponent_of(c, p.in[i], &base) < 0;
	if (!splits)
		return ww_canon_op1(c, "log", x);
	sum = ww_canon_num(c, 0);
	for (int i = 0; i < p.n; i++)
		sum = ww_canon_add(c, sum, ww_canon_log(c, p.in[i]));
	return sum;
}

/* ---- Reductions and products of matrices ------------------------------------------------------------------------- */

/* A product's factors that can be taken out of what follows (*out; else the number 1), and the rest. */
static int take_out(struct ww_canon *c, int x, int reduced_too, int *out)
{
	const struct ww_canon_node p = c->node[x];
	int rest = ww_canon_num(c, 1);
	*out = rest;
	if (!ww_canon_is(c, x, "mul"))
		return x;
	for (int i = 0; i < p.n; i++)
		if ((is_const(c, p.in[i]) && !c->node[p.in[i]].unknown) || (reduced_too && is_reduced(c, p.in[i], 0)))
			*out = ww_canon_mul(c, *out, p.in[i]);
		else
			rest = ww_canon_mul(c, rest, p.in[i]);
	return rest;
}

static const char *merge_over(const char *a, const char *b)
{
	return !strcmp(a, "all") || !strcmp(b, "all") ? "all" : strcmp(a, b) ? "other" : a;
}

int ww_canon_reduce(struct ww_canon *c, const char *what, const char *over, int x)
{
	char label[64];
	int out, is_sum = !strcmp(what, "sum");
	size_t n = strlen(what);
	if (is_sum) {
		int rest = take_out(c, x, 1, &out);
		if (!ww_canon_is_num(c, out, 1))
			return ww_canon_mul(c, out, ww_canon_reduce(c, what, over, rest));
	}
	const struct ww_canon_node p = c->node[x];
	if (p.kind == WW_CANON_CONST)
		return x;
	if (is_sum && ww_canon_is(c, x, "mul") && p.n == 2 && !is_const(c, p.in[0]) && !is_const(c, p.in[1]))
		return ww_canon_matmul(c, p.in[0], p.in[1]);
	if (p.kind == WW_CANON_OP && !strncmp(p.label, what, n) && p.label[n] == '/')
		return ww_canon_reduce(c, what, merge_over(over, p.label + n + 1), p.in[0]);
	snprintf(label, sizeof(label), "%s/%s", what, over);
	return ww_canon_op1(c, label, x);
}

int ww_canon_matmul(struct ww_canon *c, int x, int y)
{
	int kx, ky;
	x = take_out(c, x, 0, &kx);
	y = take_out(c, y, 0, &ky);
	int diagonal = ww_canon_is(c, x, "diag") ? x : ww_canon_is(c, y, "diag") ? y : -1;
	int p = diagonal >= 0 ? ww_canon_mul(c, c->node[diagonal].in[0], diagonal == x ? y : x)
						  : ww_canon_op2(c, "matmul", 1, x, y);
	return ww_canon_mul(c, ww_canon_mul(c, kx, ky), p);
}

/* ---- Choices ----------------------------------------------------------------------------------------------------- */

static int is_multiple(struct ww_canon *c, int x, int of) { return x != of && without_factor(c, x) == of; }

static int multiple(struct ww_canon *c, int x, int k)
{
	return factor_of(c, k) == -1 ? ww_canon_op1(c, "abs", x) : ww_canon_op1(c, "leaky_relu", x);
}

int ww_canon_max(struct ww_canon *c, int x, int y)
{
	if (is_const(c, x))
		return is_const(c, y) ? ww_canon_unknown(c) : ww_canon_max(c, y, x);
	if (ww_canon_is_num(c, y, 0))
		return ww_canon_is(c, x, "relu") ? x : ww_canon_op1(c, "relu", x);
	if (is_const(c, y))
		return ww_canon_op1(c, "clamp_min", x);
	if (is_multiple(c, y, x))
		return multiple(c, x, y);
	return is_multiple(c, x, y) ? multiple(c, y, x) : x == y ? x : ww_canon_op2(c, "maximum", 1, x, y);
}

int ww_canon_min(struct ww_canon *c, int x, int y)
{
	if (is_const(c, x))
		return is_const(c, y) ? ww_canon_unknown(c) : ww_canon_min(c, y, x);
	if (is_const(c, y))
		return ww_canon_op1(c, "clamp_max", x);
	return x == y ? x : ww_canon_op2(c, "minimum", 1, x, y);
}

int ww_canon_where(struct ww_canon *c, int condition, int x, int y)
{
	const struct ww_canon_node p = c->node[condition];
	if (p.kind == WW_CANON_CONST && (is_const(c, x) || is_const(c, y)))
		return ww_canon_add(c, is_const(c, x) ? y : x, ww_canon_unknown(c));
	int less = ww_canon_is(c, condition, "lt") || ww_canon_is(c, condition, "le");
	int of = less && ww_canon_is_num(c, p.in[0], 0) ? p.in[1] : -1;
	if (less && ww_canon_is_num(c, p.in[1], 0)) { /* x < 0: the other way round */
		int other = x;
		of = p.in[0];
		x = y;
		y = other;
	}
	if (of >= 0 && x == of && ww_canon_is_num(c, y, 0))
		return ww_canon_max(c, x, y);
	if (of >= 0 && x == of && is_multiple(c, y, x))
		return multiple(c, x, y);
	return ww_canon_op(c, "where", 0, 0, (int[]){ condition, x, y }, 3);
}
