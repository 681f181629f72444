/* share.c - one text for kernels that differ only in their buffers, or in where they begin in them.
 *
 * A network repeats its blocks: of twenty convolutions with the same shape and the same operations behind them only the
 * buffers differ, and those are arguments.  Compiling each costs seconds and, on cuda, megabytes of a binary whose size
 * is limited.  So a kernel that computes what an earlier one does, from other buffers, has no schedule of its own: its
 * launch names the earlier one.  A loop over time that was traced is as many kernels as steps, each of which reads its
 * step of one buffer: such a part is an argument, too, if it is aligned as the whole is.
 *
 * Two kernels are the same where their values are, operation by operation, at the same indices, with the variables of
 * one in place of the other's and one buffer in place of each buffer; where their anchors have the same facts, sizes
 * and strides; and where their knobs are equal.  Everything that a schedule chooses follows from these.  What a recipe
 * makes of sizes and knobs are macros of the kernel, so equal launches define equal values, which ww_define() takes
 * twice. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

enum { MAX_BUFS = 64, ALIGN_BYTES = 64 /* the widest vector of a target */ };

struct pair {
	const struct val *a, *b;
	const struct ix *idx[PL_MAX_RANK];
	struct pair *next;
};

struct same {
	struct pl *pl;
	struct kern *a, b;   /* b: with a's variables */
	struct val *self[2]; /* entered although they are stored */
	struct buf_pair buf[MAX_BUFS];
	int n_buf;
	struct pair *seen[256]; /* found to be the same, by number of a's value */
};

/* Buffer x of a is y of b, from `offset` on, everywhere. */
static int same_part(struct same *s, struct buf *x, struct buf *y, const struct ix *offset)
{
	for (int i = 0; i < s->n_buf; i++)
		if (s->buf[i].theirs == x || s->buf[i].mine == y)
			return s->buf[i].theirs == x && s->buf[i].mine == y && ix_same(s->buf[i].offset, offset);
	if (s->n_buf == MAX_BUFS || x->dt != y->dt)
		return 0;
	s->buf[s->n_buf++] = (struct buf_pair){ x, y, offset };
	return 1;
}

static int same_buf(struct same *s, struct buf *x, struct buf *y) { return same_part(s, x, y, ix_const(s->pl, 0)); }

/* Element ix of buffer x is element iy of y, or of a part of y that the launch can name: templates take whole ones. */
static int same_place(struct same *s, struct buf *x, const struct ix *ix, struct buf *y, const struct ix *iy)
{
	const struct ix *offset = ix_sub(s->pl, iy, ix);

	if (!ix_is(offset, 0) &&
		(s->a->anchor || ix_varies(offset) || ix_num(offset) < 0 || ix_num(offset) * pl_itemsize(y->dt) % ALIGN_BYTES))
		return 0;
	return same_part(s, x, y, offset);
}

static int same_val(
	struct same *s, struct val *a, const struct ix *const *ia, struct val *b, const struct ix *const *ib);

static int was_seen(struct same *s, const struct val *a, const struct ix *const *ia, const struct val *b)
{
	struct pair **at = &s->seen[a->id & 255], *p;

	for (p = *at; p; p = p->next)
		if (p->a == a && p->b == b && ix_same_all(p->idx, ia, a->rank))
			return 1;
	p = pl_alloc(s->pl, sizeof(*p));
	p->a = a;
	p->b = b;
	memcpy(p->idx, ia, (size_t)a->rank * sizeof(*ia));
	p->next = *at;
	*at = p;
	return 0;
}

static int is_load(const struct same *s, int side, const struct val *v)
{
	return v->kind == V_BUF || (v->root && v != s->self[side]);
}

/* The value behind views that only move. */
static struct val *behind_views(struct same *s, int side, struct val *v, const struct ix **idx)
{
	const struct ix *sub[PL_MAX_RANK];

	for (; v->kind == V_VIEW && !v->cond && !is_load(s, side, v); v = v->arg[0]) {
		pl_map_index(s->pl, v, v->map, v->arg[0]->rank, idx, sub);
		memcpy(idx, sub, sizeof(sub));
	}
	return v;
}

/* Arguments at an index in which dimension `dim` is looked up, or which runs over dimensions of its own. */
static int same_inside(
	struct same *s, struct val *a, const struct ix *const *ia, struct val *b, const struct ix *const *ib)
{
	const struct ix *xa[PL_MAX_RANK], *xb[PL_MAX_RANK];

	if (a->kind == V_RED) {
		memcpy(xa, ia, (size_t)a->rank * sizeof(*ia));
		memcpy(xb, ib, (size_t)a->rank * sizeof(*ib));
		if (!ix_same_all(a->arg[0]->size + a->rank, b->arg[0]->size + a->rank, a->nred))
			return 0;
		for (int d = a->rank; d < a->arg[0]->rank; d++)
			xa[d] = xb[d] = ix_var(s->pl, "r", a->arg[0]->size[d]);
	} else {
		pl_map_index(s->pl, a, a->map, a->arg[0]->rank, ia, xa);
		pl_map_index(s->pl, b, b->map, b->arg[0]->rank, ib, xb);
		if (a->kind == V_GATHER)
			xa[a->dim] = xb[a->dim] = ix_temp(s->pl, "g");
	}
	return same_val(s, a->arg[0], xa, b->arg[0], xb);
}

static int same_at(struct pl *pl, const struct val *a, const struct ix *xa, const struct ix *const *ia,
	const struct val *b, const struct ix *xb, const struct ix *const *ib)
{
	const struct ix *ya, *yb;

	pl_map_index(pl, a, &xa, 1, ia, &ya);
	pl_map_index(pl, b, &xb, 1, ib, &yb);
	return ix_same(ya, yb);
}

/* The same operation, neither value stored. */
static int same_form(
	struct same *s, struct val *a, const struct ix *const *ia, struct val *b, const struct ix *const *ib)
{
	int red;

	switch (a->kind) {
	case V_CONST: return !a->given == !b->given && a->i == b->i && !memcmp(&a->f, &b->f, sizeof(a->f));
	case V_INDEX: return same_at(s->pl, a, a->index, ia, b, b->index, ib);
	case V_ANCHOR: return a->anchor == s->a->anchor && b->anchor == s->b.anchor && ix_same_all(ia, ib, a->rank);
	case V_OP:
		if (a->op != b->op || a->n_arg != b->n_arg)
			return 0;
		for (int i = 0; i < a->n_arg; i++)
			if (!same_val(s, a->arg[i], ia, b->arg[i], ib))
				return 0;
		return 1;
	case V_GATHER: return a->dim == b->dim && same_val(s, a->arg[1], ia, b->arg[1], ib) && same_inside(s, a, ia, b, ib);
	case V_RED:
		red = pl_red_known(s->a, a, ia);
		if (a->red != b->red || a->scans != b->scans || a->nred != b->nred || a->rank != b->rank ||
			red != pl_red_known(&s->b, b, ib))
			return 0;
		return red >= 0 || same_inside(s, a, ia, b, ib);
	default:
		return !memcmp(&a->fill, &b->fill, sizeof(a->fill)) && same_at(s->pl, a, a->cond, ia, b, b->cond, ib) &&
			same_inside(s, a, ia, b, ib);
	}
}

/* Is a at ia, in kernel a, what b at ib is in kernel b? */
static int same_val(
	struct same *s, struct val *a, const struct ix *const *ia, struct val *b, const struct ix *const *ib)
{
	const struct ix *xa[PL_MAX_RANK], *xb[PL_MAX_RANK];

	memcpy(xa, ia, (size_t)a->rank * sizeof(*ia));
	memcpy(xb, ib, (size_t)b->rank * sizeof(*ib));
	a = behind_views(s, 0, a, xa);
	b = behind_views(s, 1, b, xb);
	if (a->dt != b->dt || is_load(s, 0, a) != is_load(s, 1, b))
		return 0;
	if (was_seen(s, a, xa, b))
		return 1;
	if (is_load(s, 0, a))
		return pl_buf_numel(a->root) == pl_buf_numel(b->root) &&
			same_place(s, a->root, pl_offset(s->pl, a->root, xa), b->root, pl_offset(s->pl, b->root, xb));
	return a->kind == b->kind && same_form(s, a, xa, b, xb);
}

static int same_anchor(struct same *s)
{
	const struct anchor *a = s->a->anchor, *b = s->b.anchor;
	const struct ix *xa[PL_MAX_RANK], *xb[PL_MAX_RANK], *last;
	const struct anchor_ops *ops;

	if (!a || !b)
		return a == b;
	ops = pl_anchor_ops[a->kind];
	if (a->kind != b->kind || a->n_in != b->n_in || a->computes != b->computes || a->out->dt != b->out->dt ||
		a->out->rank != b->out->rank ||
		memcmp(&a->gemm, &b->gemm, offsetof(struct anchor, consumers) - offsetof(struct anchor, gemm)) ||
		!ix_same_all(a->out->size, b->out->size, a->out->rank) ||
		!ix_same_all(s->a->anchor_idx, s->b.anchor_idx, a->out->rank))
		return 0;
	for (int i = 0; i < a->n_in; i++) {
		const struct operand *x = &a->in[i], *y = &b->in[i];

		if (x->rank != y->rank || !ix_same_all(x->size, y->size, x->rank))
			return 0;
		/* of its own length, which conditions on it are decided by */
		last = ix_var(s->pl, "last", ops->own_axis ? ix_const(s->pl, 1) : x->size[x->rank - 1]);
		pl_operand_place(a, i, s->a->anchor_idx, last, xa);
		pl_operand_place(b, i, s->b.anchor_idx, last, xb);
		if (pl_fuses_operand(a, i) ? !same_val(s, x->val, xa, y->val, xb)
								   : x->buf->dt != y->buf->dt || !ix_same(x->offset, y->offset) ||
					!ix_same_all(x->stride, y->stride, x->rank))
			return 0;
		if (ops->reads_operands && ops->reads_operands(s->pl, s->a) && !same_buf(s, x->buf, y->buf))
			return 0;
	}
	return 1;
}

static int same_outputs(struct same *s)
{
	for (int o = 0; o < s->a->n_out; o++) {
		struct val *a = s->a->out[o], *b = s->b.out[o];
		struct buf *x = a->root, *y = b->root;

		s->self[0] = a;
		s->self[1] = b;
		if ((x->kind == B_OUTPUT) != (y->kind == B_OUTPUT) || x->contiguous != y->contiguous || x->of || y->of ||
			!same_place(s, x, pl_offset(s->pl, x, s->a->out_idx[o]), y, pl_offset(s->pl, y, s->b.out_idx[o])) ||
			!same_val(s, a, s->a->out_idx[o], b, s->b.out_idx[o]))
			return 0;
	}
	return 1;
}

static int same_reds(struct same *s)
{
	for (int i = 0; i < s->a->n_red; i++) {
		struct val *a = s->a->red[i], *b = s->b.red[i];
		const struct ix *ia[PL_MAX_RANK], *ib[PL_MAX_RANK];

		if (a->red != b->red || a->scans != b->scans || s->a->red_stage[i] != s->b.red_stage[i] || a->rank != b->rank ||
			!ix_same_all(s->a->red_idx[i], s->b.red_idx[i], a->rank))
			return 0;
		s->self[0] = a;
		s->self[1] = b;
		pl_red_element(s->a, i, ia);
		pl_red_element(&s->b, i, ib);
		if (!same_val(s, a->arg[0], ia, b->arg[0], ib))
			return 0;
	}
	return 1;
}

/* Equal for equal kernels, and mostly not for others: saves the comparison. */
static unsigned sketch(const struct val *v, const struct val *self, int depth)
{
	unsigned h = (unsigned)v->dt;

	while (v->kind == V_VIEW && !v->cond && !v->root)
		v = v->arg[0];
	if (!depth || (v->root && v != self))
		return h;
	h = h * 31 + (unsigned)v->kind;
	h = h * 67 + (v->kind == V_OP ? (unsigned)v->op : 0);
	for (int i = 0; i < v->n_arg; i++)
		h = h * 33 + sketch(v->arg[i], self, depth - 1);
	return h;
}

/* k with the variables of s->a; 0 where its index space is another one. */
static int take_variables(struct same *s, const struct kern *k)
{
	const struct ix_atom *v[2 * PL_MAX_RANK];
	const struct ix *e[2 * PL_MAX_RANK];
	int n = k->n_row + k->n_col;

	if (k->kind != s->a->kind || k->n_row != s->a->n_row || k->n_col != s->a->n_col || k->n_ocol != s->a->n_ocol ||
		k->n_out != s->a->n_out || k->n_red != s->a->n_red)
		return 0;
	for (int i = 0; i < n; i++) {
		const struct ix_atom *to = i < k->n_row ? s->a->row[i] : s->a->col[i - k->n_row];

		v[i] = i < k->n_row ? k->row[i] : k->col[i - k->n_row];
		e[i] = pl_of_var(s->pl, to);
		if (!ix_same(v[i]->b, to->b))
			return 0;
	}
	for (int o = 0; o < k->n_out; o++)
		if (sketch(k->out[o], k->out[o], 6) != sketch(s->a->out[o], s->a->out[o], 6))
			return 0;
	s->b = *k;
	pl_subst_kern(s->pl, &s->b, v, e, n);
	return 1;
}

/* Does k what s->a does? */
static int is_same(struct same *s, struct kern *k)
{
	return !s->a->shared && !s->a->segment && !k->segment &&
		!memcmp(pl_knobs(s->pl, s->a->id), pl_knobs(s->pl, k->id), sizeof(struct knobs)) && take_variables(s, k) &&
		ix_same_all(s->a->ocol, s->b.ocol, k->n_ocol) && same_anchor(s) && same_outputs(s) && same_reds(s);
}

/* At other sizes than those that were traced, too. */
static void guard_alignment(struct pl *pl, const struct buf_pair *p)
{
	const struct ix *bytes = ix_mulc(pl, p->offset, pl_itemsize(p->mine->dt));
	int64_t c;

	if (!ix_is_const(bytes, &c))
		ww_str_addf(&pl->guards, "\tif (%s %% %d)\n\t\tww_fail(p, \"parts of a tensor that are not aligned\");\n",
			ix_text(pl, bytes), ALIGN_BYTES);
}

int pl_share_kernel(struct pl *pl, struct kern *k)
{
	for (int i = 0; i < k->id; i++) {
		struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
		struct same s = { .pl = pl, .a = pl->kern[i] };
		struct buf_pair *pair;

		if (!is_same(&s, k)) {
			ww_arena_rewind(&pl->arena, mark);
			continue;
		}
		pair = pl_alloc(pl, (size_t)s.n_buf * sizeof(*pair));
		memcpy(pair, s.buf, (size_t)s.n_buf * sizeof(*pair));
		for (int n = 0; n < s.n_buf; n++)
			guard_alignment(pl, &pair[n]);
		k->pair = pair;
		k->n_pair = s.n_buf;
		k->shared = s.a;
		return 1;
	}
	return 0;
}
