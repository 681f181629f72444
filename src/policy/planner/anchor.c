/* anchor.c - the anchors that have templates of their own: GEMM, convolution, attention, scan, recurrent layer.
 *
 * An anchor names what it computes and its operands; who stores its result, and what is fused behind it, is decided by
 * the grouping.  Operands must be readable by strides: a value that is a view of a buffer with affine indices is passed
 * as it is (transposes and head splits cost nothing), anything else is stored first.
 *
 * Where no template fits (types, ranks, vectors instead of matrices) the same function is built from views and
 * reductions. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

static struct anchor *anchor_new(struct pl *pl, struct gnode *n, enum anchor_kind kind, const char *what)
{
	struct anchor *s = pl_alloc(pl, sizeof(*s));

	if (pl->n_anchor >= PL_MAX_KERNELS)
		pl_fail(pl, "more than %d anchors", PL_MAX_KERNELS);
	s->kind = kind;
	s->id = pl->n_anchor;
	s->node = n->name;
	s->what = what;
	pl->anchor[pl->n_anchor++] = s;
	return s;
}

static struct val *anchor_out(struct pl *pl, struct anchor *s, int dt, int rank, const struct ix *const *size)
{
	struct val *v = pl_val(pl, V_ANCHOR, dt, rank, size);

	v->anchor = s;
	s->out = v;
	return v;
}

static void operand(struct anchor *s, struct val *v) { s->in[s->n_in++].val = v; }

/* sum over k of a[..., m, k] b[..., k, n] as a reduction of a product. */
static struct val *product_by_reduction(struct pl *pl, struct val *a, struct val *b)
{
	int r = a->rank, perm[PL_MAX_RANK];

	for (int i = 0; i < r; i++)
		perm[i] = i;
	perm[r - 1] = r - 2;
	perm[r - 2] = r - 1;
	b = pl_permute(pl, b, perm);    /* (..., n, k) */
	a = pl_unsqueeze(pl, a, r - 1); /* (..., m, 1, k) */
	b = pl_unsqueeze(pl, b, r - 2); /* (..., 1, n, k) */
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, a, b), 1u << r, 0);
}

struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	int nb = a->rank - 2;
	const struct ix *size[PL_MAX_RANK], *m = a->size[nb], *k = a->size[nb + 1], *nn = b->size[nb + 1];
	struct anchor *s;
	int dt = pl_promote(a->dt, b->dt);

	pl_guard_eq(pl, k, b->size[nb], "the inner sizes of a matrix product");
	a = pl_cast(pl, a, dt);
	b = pl_cast(pl, b, dt);
	if (ix_num(m) == 1 || ix_num(nn) == 1 || ix_num(k) <= 4 ||
		!(dt == WW_F32 || (pl->target == WW_TARGET_CUDA && (dt == WW_F16 || dt == WW_BF16))))
		return product_by_reduction(pl, a, b);
	s = anchor_new(pl, n, S_GEMM, "gemm");
	memcpy(size, a->size, sizeof(size));
	size[nb + 1] = nn;
	s->k = k;
	s->nbatch = nb;
	operand(s, a);
	operand(s, b);
	return anchor_out(pl, s, dt, nb + 2, size);
}

/* x and w as values over (n, k, out..., c, kernel...): the general convolution. */
static struct val *conv_by_reduction(struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w,
	int rank, const struct ix *const *out)
{
	int nd = s->nd, all = rank + 1 + nd;
	const struct ix *size[PL_MAX_RANK], *xm[PL_MAX_RANK], *wm[PL_MAX_RANK], *cond = ix_const(pl, 1);
	const struct ix *cg = ix_div(pl, x->size[1], ix_const(pl, s->groups)),
					*kg = ix_div(pl, out[1], ix_const(pl, s->groups));
	const struct ix *group, *c;

	if (all > PL_MAX_RANK)
		pl_cannot(pl, n, "too many dimensions");
	for (int d = 0; d < rank; d++)
		size[d] = out[d];
	size[rank] = cg;
	for (int e = 0; e < nd; e++)
		size[rank + 1 + e] = w->size[2 + e];
	group = ix_div(pl, pl->place[1], kg);
	c = s->groups == 1 ? pl->place[rank] : ix_add(pl, ix_mul(pl, group, cg), pl->place[rank]);
	xm[0] = pl->place[0];
	xm[1] = c;
	wm[0] = s->transposed ? c : pl->place[1];
	wm[1] = s->transposed ? (s->groups == 1 ? pl->place[1] : ix_mod(pl, pl->place[1], kg)) : pl->place[rank];
	for (int e = 0; e < nd; e++) {
		const struct ix *o = pl->place[2 + e], *r = pl->place[rank + 1 + e], *i;

		wm[2 + e] = r;
		if (s->transposed) {
			const struct ix *t = ix_sub(pl, ix_addc(pl, o, s->pad[e]), ix_mulc(pl, r, s->dil[e])),
							*st = ix_const(pl, s->stride[e]);

			i = s->stride[e] == 1 ? t : ix_div(pl, t, st);
			cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), t));
			if (s->stride[e] != 1)
				cond = ix_mul(pl, cond, ix_eqz(pl, ix_mod(pl, t, st), ix_const(pl, 0)));
			cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
		} else {
			i = ix_addc(pl, ix_add(pl, ix_mulc(pl, o, s->stride[e]), ix_mulc(pl, r, s->dil[e])), -s->pad[e]);
			if (s->pad[e]) {
				cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), i));
				cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
			}
		}
		xm[2 + e] = i;
	}
	x = pl_view_if(pl, x, all, size, xm, cond, 0);
	w = pl_view(pl, w, all, size, wm);
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, x, w), ((1u << (nd + 1)) - 1) << rank, 0);
}

struct val *pl_conv(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int nd, const int64_t *stride,
	const int64_t *pad, const int64_t *dil, int transposed, const int64_t *opad, int64_t groups)
{
	struct anchor *s = anchor_new(pl, n, S_CONV, transposed ? "transposed convolution" : "convolution");
	const struct ix *size[PL_MAX_RANK];
	int cuda = pl->target == WW_TARGET_CUDA, template, library;

	template = x->dt == WW_F32 && w->dt == WW_F32;
	library = cuda && x->dt == w->dt && (x->dt == WW_F32 || x->dt == WW_F16 || x->dt == WW_BF16) && !pl_all_plain(pl);
	s->nd = nd;
	s->transposed = transposed;
	s->groups = (int)groups;
	for (int d = 0; d < nd + 2; d++) {
		s->x_size[d] = x->size[d];
		s->w_size[d] = w->size[d];
	}
	size[0] = x->size[0];
	size[1] = transposed ? ix_mulc(pl, w->size[1], groups) : w->size[0];
	for (int e = 0; e < nd; e++) {
		int64_t k = ix_num(w->size[2 + e]), reach = dil[e] * (k - 1);

		s->stride[e] = stride[e];
		s->pad[e] = pad[e];
		s->dil[e] = dil[e];
		s->opad[e] = opad[e];
		if (transposed)
			size[2 + e] = ix_addc(
				pl, ix_mulc(pl, ix_addc(pl, x->size[2 + e], -1), stride[e]), reach + 1 + opad[e] - 2 * pad[e]);
		else
			size[2 + e] = ix_addc(
				pl, ix_div(pl, ix_addc(pl, x->size[2 + e], 2 * pad[e] - reach - 1), ix_const(pl, stride[e])), 1);
		if (ix_num(size[2 + e]) != n->meta[0].size[n->meta[0].rank - nd + e])
			pl_cannot(pl, n, "its output size");
		template &= k <= 32;
	}
	s->library_only = !template;
	if (template || library) {
		operand(s, x);
		operand(s, w);
		return anchor_out(pl, s, x->dt, nd + 2, size);
	}
	pl->n_anchor--;
	return conv_by_reduction(pl, n, s, x, w, nd + 2, size);
}

struct val *pl_attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v, struct val *mask,
	int causal, double scale)
{
	int r = q->rank, perm[PL_MAX_RANK];
	int64_t d = ix_num(q->size[r - 1]), dv = ix_num(v->size[r - 1]);
	int fits = r == 4 && q->dt == WW_F32 && !mask && d == dv &&
		(pl->target == WW_TARGET_CUDA ? (d == 64 || d == 128) && (!causal || ix_num(q->size[2]) == ix_num(k->size[2]))
									  : d <= 256) &&
		(!causal || ix_num(q->size[2]) == ix_num(k->size[2]));
	struct val *s;

	for (int i = 0; i < r; i++)
		perm[i] = i == r - 1 ? r - 2 : i == r - 2 ? r - 1 : i;
	if (fits) {
		struct anchor *sp = anchor_new(pl, n, S_ATTN, "attention");

		sp->scale = scale;
		sp->causal = causal;
		sp->k = k->size[2];
		operand(sp, q);
		operand(sp, k);
		operand(sp, v);
		return anchor_out(pl, sp, q->dt, r, q->size);
	}
	s = pl_gemm(pl, n, q, pl_permute(pl, k, perm));
	s = pl_op2(pl, OP_MUL, s, pl_constf(pl, s->dt, scale));
	if (causal)
		s = pl_where(pl,
			pl_index(pl, WW_BOOL, s->rank, s->size, ix_lt(pl, pl->place[r - 1], ix_addc(pl, pl->place[r - 2], 1))), s,
			pl_constf(pl, s->dt, -INFINITY));
	if (mask)
		s = mask->dt == WW_BOOL ? pl_where(pl, mask, s, pl_constf(pl, s->dt, -INFINITY)) : pl_op2(pl, OP_ADD, s, mask);
	return pl_gemm(pl, n, pl_softmax(pl, s, r - 1, 0), v);
}

struct val *pl_rnn(struct pl *pl, struct gnode *n, enum pl_cell cell, int reverse, struct val *gx, struct val *w,
	struct val *bias, struct val *h0, struct val *c0)
{
	struct anchor *s = anchor_new(pl, n, S_RNN, "recurrent layer");
	const struct ix *size[3] = { cell == CELL_LSTM ? ix_addc(pl, gx->size[0], 1) : gx->size[0], gx->size[1],
		h0->size[1] };

	s->cell = cell;
	s->reverse = reverse;
	s->has_bias = bias != NULL;
	s->k = gx->size[0];
	operand(s, gx);
	operand(s, pl->target == WW_TARGET_CPU ? pl_permute(pl, w, (int[]){ 1, 0 }) : w);
	operand(s, h0);
	if (bias)
		operand(s, bias);
	if (c0)
		operand(s, c0);
	return anchor_out(pl, s, gx->dt, 3, size);
}

struct val *pl_scan(struct pl *pl, struct gnode *n, struct val *x, int dim, enum pl_red red)
{
	struct anchor *s = anchor_new(pl, n, S_SCAN, red == RED_PROD ? "cumprod" : "cumsum");

	s->red = red;
	s->nd = dim;
	operand(s, x);
	return anchor_out(pl, s, x->dt, x->rank, x->size);
}
