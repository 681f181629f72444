/* band.c - masks that say by the places of a row and a key alone whether the row sees the key: causal masks, windows.
 *
 * A mask is where(condition, score, -infinity), the condition an expression of index values (arange, tril).  If it
 * holds exactly for key - row from one number to another, the template skips the tiles outside of it and the functor
 * does not evaluate it. */
#include "policy/planner/graph/walk.h"
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

/* What a condition is looked at with; from, to: key - row so far. */
struct places {
	struct pl *pl;
	const struct ix *distance; /* key - row */
	int64_t from, to;
};

/* distance <= most, of first - second <= most; 0 where the terms are others than the distance. */
static int at_most(struct places *p, const struct ix *first, const struct ix *second, int64_t most)
{
	const struct ix *d;
	int64_t rest;

	if (!first || !second)
		return 0;
	d = ix_sub(p->pl, first, second);
	if (ix_is_const(ix_sub(p->pl, d, p->distance), &rest)) {
		p->to = most - rest < p->to ? most - rest : p->to;
		return 1;
	}
	if (ix_is_const(ix_add(p->pl, d, p->distance), &rest)) {
		p->from = rest - most > p->from ? rest - most : p->from;
		return 1;
	}
	return 0;
}

static void taken(struct pl *pl, const struct val **v, const struct ix **idx)
{
	const struct ix *sub[PL_MAX_RANK];

	while ((*v)->kind == V_VIEW && !(*v)->root && !(*v)->cond) {
		pl_map_index(pl, *v, (*v)->map, (*v)->arg[0]->rank, idx, sub);
		memcpy(idx, sub, sizeof(sub));
		*v = (*v)->arg[0];
	}
}

/* The number that v has everywhere. */
static int is_everywhere(const struct val *v, double *f)
{
	double other;

	while (v->kind == V_VIEW && !v->cond)
		v = v->arg[0];
	if (v->kind == V_CONST) {
		*f = pl_is_float(v->dt) ? v->f : (double)v->i;
		return !v->given;
	}
	if (v->kind != V_OP || v->root)
		return 0;
	if (v->op == OP_CAST)
		return is_everywhere(v->arg[0], f);
	return v->op == OP_WHERE && is_everywhere(v->arg[1], f) && is_everywhere(v->arg[2], &other) && *f == other;
}

/* A value of an integer type as an index expression at idx; or NULL. */
static const struct ix *whole(struct pl *pl, const struct val *v, const struct ix *const *at)
{
	const struct ix *idx[PL_MAX_RANK], *x, *y;

	memcpy(idx, at, sizeof(idx));
	taken(pl, &v, idx);
	if (v->root || !pl_is_int(v->dt))
		return NULL;
	if (v->kind == V_CONST)
		return v->given ? NULL : ix_const(pl, v->i);
	if (v->kind == V_INDEX) {
		pl_map_index(pl, v, &v->index, 1, idx, &x);
		return x;
	}
	if (v->kind != V_OP || (v->op != OP_ADD && v->op != OP_SUB && v->op != OP_CAST))
		return NULL;
	x = whole(pl, v->arg[0], idx);
	y = v->op == OP_CAST ? NULL : whole(pl, v->arg[1], idx);
	if (v->op == OP_CAST || !x || !y)
		return v->op == OP_CAST ? x : NULL;
	return v->op == OP_ADD ? ix_add(pl, x, y) : ix_sub(pl, x, y);
}

/* a - b <= most, where a may be a magnitude. */
static int difference(
	struct places *p, const struct val *a, const struct val *b, const struct ix *const *at, int64_t most)
{
	const struct ix *idx[PL_MAX_RANK], *x, *second = whole(p->pl, b, at);

	memcpy(idx, at, sizeof(idx));
	taken(p->pl, &a, idx);
	if (a->kind != V_OP || a->op != OP_ABS || a->root || !second)
		return at_most(p, whole(p->pl, a, idx), second, most);
	x = whole(p->pl, a->arg[0], idx);
	return x && at_most(p, x, second, most) && at_most(p, ix_mulc(p->pl, x, -1), second, most);
}

/* A comparison that is an index expression: a < b, or not. */
static int index_holds(struct places *p, const struct val *v, const struct ix *const *idx, int want)
{
	const struct ix_atom *t;
	const struct ix *x;

	pl_map_index(p->pl, v, &v->index, 1, idx, &x);
	if (x->n != 1 || x->m[0].c != 1 || x->m[0].n != 1 || x->m[0].atom[0]->kind != IX_LT)
		return 0;
	t = x->m[0].atom[0];
	return want ? at_most(p, t->a, t->b, -1) : at_most(p, t->b, t->a, 0);
}

static int holds(struct places *p, const struct val *v, const struct ix *const *at, int want);

static int operation_holds(struct places *p, const struct val *v, const struct ix *const *idx, int want)
{
	struct val *const *a = v->arg;
	double yes, no;

	switch (v->op) {
	case OP_LNOT: return holds(p, a[0], idx, !want);
	case OP_CAST: return holds(p, a[0], idx, want);
	case OP_AND:
	case OP_LAND: return want && holds(p, a[0], idx, 1) && holds(p, a[1], idx, 1);
	case OP_OR:
	case OP_LOR: return !want && holds(p, a[0], idx, 0) && holds(p, a[1], idx, 0);
	case OP_LE: return want ? difference(p, a[0], a[1], idx, 0) : difference(p, a[1], a[0], idx, -1);
	case OP_LT: return want ? difference(p, a[0], a[1], idx, -1) : difference(p, a[1], a[0], idx, 0);
	case OP_GE: return want ? difference(p, a[1], a[0], idx, 0) : difference(p, a[0], a[1], idx, -1);
	case OP_GT: return want ? difference(p, a[1], a[0], idx, -1) : difference(p, a[0], a[1], idx, 0);
	case OP_WHERE:
		return is_everywhere(a[1], &yes) && is_everywhere(a[2], &no) && !yes != !no &&
			holds(p, a[0], idx, yes ? want : !want);
	default: return 0;
	}
}

/* Narrow p to where the condition v at `at` is `want`; 0 where that is not from one distance to another. */
static int holds(struct places *p, const struct val *v, const struct ix *const *at, int want)
{
	const struct ix *idx[PL_MAX_RANK];

	memcpy(idx, at, sizeof(idx));
	taken(p->pl, &v, idx);
	if (v->root || v->dt != WW_BOOL)
		return 0;
	return v->kind == V_INDEX ? index_holds(p, v, idx, want) : v->kind == V_OP && operation_holds(p, v, idx, want);
}

static int is_masked(const struct val *v)
{
	double f;

	return is_everywhere(v, &f) && f == -INFINITY;
}

/* The expression v of a score without the masks that p takes on. */
static struct val *without(struct places *p, struct val *v, const struct ix *const *idx)
{
	struct places then = *p;

	if (v->kind != V_OP || v->root)
		return v;
	if (v->op == OP_CAST) {
		struct val *inner = without(p, v->arg[0], idx);

		return inner == v->arg[0] ? v : inner->given ? inner : pl_cast(p->pl, inner, v->dt);
	}
	for (int i = 1; i < 3 && v->op == OP_WHERE; i++)
		if (is_masked(v->arg[i]) && holds(&then, v->arg[0], idx, i == 2)) {
			*p = then;
			return without(p, v->arg[3 - i], idx);
		}
	return v;
}

struct val *pl_without_band(struct pl *pl, struct val *score, struct pl_band *band)
{
	const struct ix *idx[PL_MAX_RANK];
	int r = score->rank;
	struct places p = { .pl = pl, .from = -band->below, .to = band->above };
	struct val *v;

	for (int d = 0; d < r; d++)
		idx[d] = ix_var(pl, pl_fmt(pl, "p%d", d), score->size[d]);
	if (r < 2)
		return score;
	p.distance = ix_sub(pl, idx[r - 1], idx[r - 2]);
	v = without(&p, score, idx);
	*band = (struct pl_band){ -p.from, p.to };
	return v;
}
