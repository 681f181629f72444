/* together.c - convolutions of the same input as one (cuda): a gate and what it is for, the branches of a block.
 *
 * Their filters are stored one behind the other, and each has its channels of the result.  The library turns the input
 * once in place of each time, its engine's tiles are filled by more filters, and the others' launches are saved.  What
 * our templates would do at the end of each is then a pass over the result, so the estimates decide.  What PyTorch
 * computes without TF32 stays as it is: with more filters the library may take an engine that rounds. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/schedule/schedule.h"

#include <math.h>
#include <string.h>

enum { PARTS = 8 };

struct parts {
	struct gnode *node[PARTS];
	struct val *w[PARTS];
	int n;
};

static int same_arg(const struct garg *a, const struct garg *b)
{
	int same = a->kind == b->kind && a->n == b->n;

	if (!same || a->kind == G_NONE)
		return same;
	if (a->kind == G_VAL || a->kind == G_STR)
		return a->out == b->out && !strcmp(a->name, b->name);
	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		same &= same_arg(&a->item[i], &b->item[i]);
	return same && (a->kind == G_FLOAT ? a->f == b->f : a->kind == G_LIST || a->i == b->i);
}

/* Does anyone read o, which has no bias, as it is: a convolution, or who calls the module?  It would be copied. */
static int is_read_bare(const struct pl *pl, const struct gnode *o)
{
	if (o->n_arg > 2 && o->arg[2].kind == G_VAL)
		return 0;
	for (int i = 0; i < pl->n_output; i++)
		if (pl_refers(&pl->output[i], o->name))
			return 1;
	for (const struct gnode *r = o + 1; r < pl->node + pl->n_node; r++)
		if (r->row && (r->row->flags & PL_CONVOLUTION) && r->n_arg && pl_refers(&r->arg[0], o->name))
			return 1;
	return 0;
}

/* Filters that fill no 16 bytes would move the next one's channels off them. */
static int takes_part(const struct pl *pl, const struct gnode *o, const struct val *w, const struct val *x)
{
	return !o->by_pytorch && !o->n_kwarg && w && w->kind == V_BUF && w->dt == x->dt &&
		ix_num(w->size[0]) % (16 / pl_itemsize(x->dt)) == 0 && !is_read_bare(pl, o);
}

/* Is o, behind n, a convolution of the same operand with filters of the same size? */
static int is_alike(const struct gnode *n, const struct gnode *o, const struct val *a, const struct val *b)
{
	int same = o->row && o->row->fn == n->row->fn && o->variant == n->variant && o->n_arg == n->n_arg &&
		same_arg(&o->arg[0], &n->arg[0]) && b && a->rank == b->rank;

	for (int i = 3; same && i < n->n_arg; i++)
		same = same_arg(&o->arg[i], &n->arg[i]);
	for (int d = 1; same && d < a->rank; d++)
		same = ix_same(a->size[d], b->size[d]);
	return same;
}

static void find_parts(
	struct pl *pl, struct gnode *n, const struct anchor *s, const struct val *x, struct val *w, struct parts *p)
{
	p->n = 0;
	if (!takes_part(pl, n, w, x))
		return;
	p->node[0] = n;
	p->w[p->n++] = w;
	for (struct gnode *o = n + 1; o < pl->node + pl->n_node && p->n < PARTS; o++) {
		struct val *v = o->n_arg > 1 && o->arg[1].kind == G_VAL ? pl_graph_given(pl, o->arg[1].name) : NULL;

		if (is_alike(n, o, w, v) && takes_part(pl, o, v, x) && !pl_conv_is_exact(pl, o, s)) {
			p->node[p->n] = o;
			p->w[p->n++] = v;
		}
	}
}

/* s with so many filters. */
static struct anchor of_filters(struct pl *pl, const struct anchor *s, const struct ix *k, const struct ix *const *out)
{
	const struct ix *size[PL_MAX_RANK];
	struct anchor t = *s;

	memcpy(size, out, sizeof(size));
	t.in[1].size[0] = size[1] = k;
	t.out = pl_val(pl, V_ANCHOR, s->in[0].val->dt, 2 + s->conv.nd, size);
	return t;
}

static double bytes_of(const struct anchor *s)
{
	return (double)pl_numel_now(s->out) * (double)pl_itemsize(s->out->dt);
}

/* What n's convolution and those of p take as one, less what they take one by one.  In either case the last kernel
 * reads what all have computed and stores as much as one has. */
static double more_us(struct pl *pl, const struct anchor *s, const struct parts *p, const struct ix *const *out)
{
	const struct ix *k = ix_const(pl, 0);
	double us = 0, weights = 0, part = 0;
	struct anchor all;

	for (int i = 0; i < p->n; i++) {
		struct anchor t = of_filters(pl, s, p->w[i]->size[0], out);

		k = ix_add(pl, k, p->w[i]->size[0]);
		us -= pl_conv_least_us(pl, &t, i + 1 < p->n);
		part = bytes_of(&t);
		weights += (double)pl_numel_now(p->w[i]) * (double)pl_itemsize(p->w[i]->dt);
	}
	all = of_filters(pl, s, k, out);
	if (!s->conv.last && pl_conv_may_be_exact(&all))
		return INFINITY;
	us -= pl_pass_us(bytes_of(&all) - part) - pl_pass_us(0);
	us += pl_conv_least_us(pl, &all, 1) + pl_pass_us(bytes_of(&all) + part);
	return us + (s->conv.last ? 0 : pl_pass_us(2 * weights));
}

struct val *pl_conv_together(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	struct parts p;

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || s->conv.transposed || s->conv.exact || s->conv.groups > 1 ||
		n->meta[0].rank != 2 + s->conv.nd || (n->n_arg > 4 && n->arg[4].kind == G_STR))
		return NULL;
	find_parts(pl, n, s, x, w, &p);
	if (p.n < 2 || more_us(pl, s, &p, out) >= 0)
		return NULL;
	for (int i = 0; i < p.n; i++) {
		p.node[i]->first = n;
		p.node[i]->with = p.w[i];
		p.node[i]->filters = p.w[i]->size[0];
	}
	n->of = x;
	return pl_concatenated(pl, p.w, p.n, 0);
}

struct val *pl_conv_part(struct pl *pl, struct gnode *n, struct val *all)
{
	const struct ix *at = ix_const(pl, 0);

	pl_keep_sliced(pl, all);
	for (struct gnode *o = n; o < pl->node + pl->n_node; o++)
		if (o->first == n) {
			o->part = pl_slice(pl, all, 1, at, o->filters, 1);
			at = ix_add(pl, at, o->filters);
		}
	return n->part;
}

/* An operator in place may have written to either operand since. */
struct val *pl_conv_given(const struct gnode *n, const struct val *x, const struct val *w)
{
	const struct val *of = n->part && w == n->with ? n->first->of : NULL;

	return of && (x == of || pl_is_turned(x, of)) ? n->part : NULL;
}
