/* roots.c - which values must be in memory, before any kernel is planned.
 *
 * The graph's outputs are; so is what an anchor (a matrix product, a convolution, attention, a scan) reads, since its
 * template walks through memory by strides: the value itself, or the one behind views that strides can express. The
 * readers of each anchor are counted here, because an anchor with a single reader can end in that reader's expression.
 */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

static void make_root(struct pl *pl, struct val *v, int dt)
{
	if (v->root)
		return;
	v->root = pl_buf(pl, B_SCRATCH, dt, v->rank, v->size);
	if (v->last) {
		pl_channels_last(pl, v->rank, v->size, v->root->stride);
		v->root->contiguous = 0;
	}
}

void pl_make_root(struct pl *pl, struct val *v) { make_root(pl, v, v->dt); }

static void store(struct pl *pl, struct val *v, int dt, const char *why)
{
	int is_new = !v->root;

	make_root(pl, v, dt);
	if (is_new)
		v->root->why = why;
}

/* Statistics, parts of sums, and products ahead of their bias stay in fp32 where the operator works on 16 bits, as in
 * PyTorch's kernels: a sum of squares of half precision is soon beyond its range, and a variance rounded to it is off
 * in the third digit. */
void pl_store_because(struct pl *pl, struct val *v, const char *why)
{
	int inside = !v->result &&
		(v->kind == V_RED || v->kind == V_OP || (v->kind == V_ANCHOR && pl_anchor_ops[v->anchor->kind]->stores_fp32));

	store(pl, v, inside && pl_is_half(v->dt) ? WW_F32 : v->dt, why);
}

void pl_store_as_typed(struct pl *pl, struct val *v, const char *why) { store(pl, v, v->dt, why); }

void pl_own_vars(struct pl *pl, const struct val *v, const struct ix **idx)
{
	for (int d = 0; d < v->rank; d++)
		idx[d] = ix_is(v->size[d], 1) ? ix_const(pl, 0) : ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), v->size[d]);
}

static const char *operand_of(struct pl *pl, const struct anchor *s)
{
	return pl_fmt(pl, "an operand of a %s, whose template reads memory by strides", s->what);
}

/* Find the buffer that an operand can be read from by strides; 0: it must be stored as it is. */
static int by_strides(struct pl *pl, const struct anchor *s, int which, struct operand *o)
{
	const struct ix *idx[PL_MAX_RANK], *own[PL_MAX_RANK], *sub[PL_MAX_RANK], *off;
	struct val *v = o->val;
	struct buf *b, fake = { 0 };

	for (int d = 0; d < v->rank; d++)
		own[d] = idx[d] = ix_var(pl, "o", v->size[d]);
	while (v->kind == V_VIEW && !v->cond && !v->root) {
		pl_map_index(pl, v, v->map, v->arg[0]->rank, idx, sub);
		v = v->arg[0];
		for (int d = 0; d < v->rank; d++)
			idx[d] = sub[d];
	}
	b = v->root;
	if (!b) {
		fake.rank = v->rank;
		pl_contiguous(pl, v->rank, v->size, fake.stride);
		b = &fake;
	}
	if (v->dt != o->val->dt || (v->root && v->root->dt != v->dt))
		return 0;
	off = pl_offset(pl, b, idx);
	for (int d = 0; d < o->val->rank; d++) {
		const struct ix *coef, *rest;

		if (!ix_affine(pl, off, ix_as_var(own[d]), &coef, &rest) || ix_varies(coef))
			return 0;
		o->stride[d] = coef;
		off = rest;
	}
	if (ix_varies(off))
		return 0;
	o->offset = off;
	if (!pl_anchor_ops[s->kind]->fits(pl, s, which, o))
		return 0;
	pl_store_as_typed(pl, v, operand_of(pl, s));
	o->buf = v->root;
	o->val = v; /* from now on: what has to be scheduled */
	return 1;
}

enum { MOST_MOVED = 64 };

/* What is computed of each element of a product's result, as the product has them. */
struct moved {
	struct val *product, *view; /* all is computed of this view of it */
	const struct val *from[MOST_MOVED];
	struct val *to[MOST_MOVED];
	int n;
};

/* Does only anchor s, or a value on the way to it, read what v's operator returns? */
static int has_one_reader(const struct pl *pl, const struct anchor *s, const struct val *v)
{
	return !v->node || v->node->name == s->node || pl_count_readers(pl, v->node->name) == 1;
}

static int is_plain_view(const struct pl *pl, const struct anchor *s, const struct val *v)
{
	return v->kind == V_VIEW && !v->cond && !v->root && !v->force_root && !v->last && has_one_reader(pl, s, v);
}

/* Is v made of constants and of one view?  Fills m->view. */
static int is_of_one_view(const struct pl *pl, const struct anchor *s, struct val *v, struct moved *m, int *n)
{
	if (v->kind == V_CONST)
		return 1;
	if (is_plain_view(pl, s, v)) {
		m->view = m->view ? m->view : v;
		return m->view == v;
	}
	if (v->kind != V_OP || v->root || v->force_root || ++*n > MOST_MOVED || !has_one_reader(pl, s, v))
		return 0;
	for (int i = 0; i < v->n_arg; i++)
		if (!is_of_one_view(pl, s, v->arg[i], m, n))
			return 0;
	return 1;
}

static struct val *moved(struct pl *pl, struct moved *m, struct val *v)
{
	struct val *new;

	if (v == m->view)
		return m->product;
	if (v->kind == V_CONST)
		return v;
	for (int i = 0; i < m->n; i++)
		if (m->from[i] == v)
			return m->to[i];
	new = pl_val(pl, V_OP, v->dt, m->product->rank, m->product->size);
	new->op = v->op;
	new->n_arg = v->n_arg;
	new->node = v->node;
	new->result = v->result;
	new->power = v->power;
	new->exponent = v->exponent;
	for (int i = 0; i < v->n_arg; i++)
		new->arg[i] = moved(pl, m, v->arg[i]);
	m->from[m->n] = v;
	m->to[m->n++] = new;
	return new;
}

/* cuda: operand v of s is a function of each element of a product, in another order (experts' hidden rows, which their
 * second product has expert by expert): the function of the product as it lies, in which that ends, behind views that
 * strides may follow.  NULL: v is not.  In its own order it would be a pass over memory. */
static struct val *as_product_lies(struct pl *pl, const struct anchor *s, struct val *v)
{
	struct moved m = { 0 };
	struct val *op = v;
	int n = 0;

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl))
		return NULL;
	while (is_plain_view(pl, s, op))
		op = op->arg[0];
	if (op->kind != V_OP || !is_of_one_view(pl, s, op, &m, &n) || !m.view)
		return NULL;
	for (m.product = m.view; is_plain_view(pl, s, m.product); m.product = m.product->arg[0])
		if (pl_numel_now(m.product) != pl_numel_now(m.product->arg[0]))
			return NULL;
	if (m.product->kind != V_ANCHOR || m.product->anchor->kind != S_GEMM || m.product->root ||
		!has_one_reader(pl, s, m.product))
		return NULL;
	return pl_same_views(pl, v, op, pl_same_views(pl, m.view, m.product, moved(pl, &m, op)));
}

/* Can operand `which` be read by strides where the product that it is a function of leaves it? */
static int by_strides_of_product(struct pl *pl, const struct anchor *s, int which, struct operand *o)
{
	struct val *own = o->val, *other = as_product_lies(pl, s, own);

	if (!other)
		return 0;
	o->val = other;
	if (by_strides(pl, s, which, o))
		return 1;
	o->val = own;
	return 0;
}

/* Does the anchor's kernel compute operand `which`, which no other stores?  Strides are those that it would be stored
 * with. */
static int is_computed(struct pl *pl, struct anchor *s, int which)
{
	const struct anchor_ops *ops = pl_anchor_ops[s->kind];
	struct operand *o = &s->in[which];

	if (!ops->computes || pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || !ops->computes(pl, s, which))
		return 0;
	s->computes |= 1u << which;
	o->offset = ix_const(pl, 0);
	pl_contiguous(pl, o->rank, o->size, o->stride);
	return 1;
}

/* Are both the same view of the same value? */
static int views_alike(const struct val *a, const struct val *b)
{
	int same = a->kind == V_VIEW && b->kind == V_VIEW && a->dt == b->dt && a->rank == b->rank && a->last == b->last &&
		!a->cond && !b->cond && a->arg[0]->rank == b->arg[0]->rank;

	for (int d = 0; same && d < a->rank; d++)
		same = ix_same(a->size[d], b->size[d]);
	for (int d = 0; same && d < a->arg[0]->rank; d++)
		same = ix_same(a->map[d], b->map[d]);
	return same && (a->arg[0] == b->arg[0] || views_alike(a->arg[0], b->arg[0]));
}

/* A copy of v that another anchor reads (a gate and what it opens, of one input), or v. */
static struct val *copied_before(struct pl *pl, struct val *v)
{
	for (int a = 0; !v->root && a < pl->n_anchor; a++)
		for (int i = 0; i < pl->anchor[a]->n_in; i++) {
			struct val *other = pl->anchor[a]->in[i].val;

			if (other != v && other->root && other->root->contiguous && other->root->dt == v->dt &&
				views_alike(other, v))
				return other;
		}
	return v;
}

void pl_anchor_operands(struct pl *pl, struct anchor *s)
{
	for (int i = 0; i < s->n_in; i++) {
		struct operand *o = &s->in[i];
		struct val *v = o->val;

		if (pl_fuses_operand(s, i) || o->buf || is_computed(pl, s, i) || by_strides(pl, s, i, o) ||
			by_strides_of_product(pl, s, i, o))
			continue;
		if (v->root && (!v->root->contiguous || v->root->dt != v->dt)) /* a copy without gaps, in order, of its type */
			v = pl_view(pl, v, v->rank, v->size, pl->place);
		v = copied_before(pl, v);
		pl_store_as_typed(pl, v, operand_of(pl, s));
		o->buf = v->root;
		o->val = v;
		o->offset = ix_const(pl, 0);
		pl_contiguous(pl, v->rank, v->size, o->stride);
	}
}

struct passes {
	struct val **todo;
	int n;
};

static int count_pass(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct passes *p = ctx;

	(void)idx;
	if (v->kind == V_RED && v->passes++ == 0)
		p->todo[p->n++] = v;
	return 0;
}

/* Count, for every reduction, the loops in which it is needed: one for each root, and one for each reduction. */
static void count_passes(struct pl *pl, struct val *const *root, int n)
{
	struct passes p = { pl_alloc(pl, (size_t)(pl->n_val + n) * sizeof(*p.todo)), n };
	int n_var = pl->n_var;

	memcpy(p.todo, root, (size_t)n * sizeof(*root));
	for (int i = 0; i < p.n; i++) {
		struct val *v = i >= n || p.todo[i]->kind == V_RED ? p.todo[i]->arg[0] : p.todo[i];
		const struct ix *idx[PL_MAX_RANK];
		struct walk w;

		pl_walk_init(&w, pl, p.todo[i]);
		w.stop = count_pass;
		w.stop_ctx = &p;
		pl_own_vars(pl, v, idx);
		pl_walk(&w, v, idx);
	}
	pl->n_var = n_var; /* no text has these variables */
}

/* What the stored value v reads, at indices of its own; also inside of reductions. */
static struct leaf *leaves_of(struct pl *pl, struct val *v, struct walk *w)
{
	const struct ix *idx[PL_MAX_RANK];

	pl_walk_init(w, pl, v);
	w->into_reds = 1;
	pl_own_vars(pl, v, idx);
	pl_walk(w, v, idx);
	return w->first;
}

/* Count the stored values that read each anchor's result, now that all are known: what reads a sum that is stored for
 * another product does not read the product in it. */
static void count_consumers(struct pl *pl, struct val *const *root, int n)
{
	int n_var = pl->n_var;

	for (int a = 0; a < pl->n_anchor; a++)
		pl->anchor[a]->consumers = pl->anchor[a]->readers = 0;
	for (int i = 0; i < n; i++) {
		struct walk w;

		if (root[i]->kind == V_ANCHOR && root[i]->root) /* not what an anchor computes as its operand */
			root[i]->anchor->consumers += 2;
		for (struct leaf *l = leaves_of(pl, root[i], &w); l; l = l->next)
			if (l->kind == LEAF_ANCHOR) {
				struct anchor *s = l->val->anchor;

				s->consumers++;
				s->readers += !s->readers || s->reader != root[i];
				s->reader = root[i];
			}
	}
	pl->n_var = n_var;
}

/* ---- Products that are turned ------------------------------------------------------------------------------------ */

/* How a product is read: by how many rows of an item (as anchor_ops.turn has them), all of them by columns. */
struct turning {
	const struct ix *items, *rows;
	int known, straight;
};

/* Does v, at own[], read element idx[] of the product with its columns ahead of its rows (channels ahead of pixels)? */
static int reads_turned(struct pl *pl, const struct anchor *s, const struct val *v, const struct ix *const *own,
	const struct ix *const *idx, struct turning *t)
{
	const struct val *o = s->out;
	const struct ix *lead, *trail;
	int nb = o->rank - 2, p = 0;

	while (p < v->rank && !ix_same(idx[nb + 1], own[p]))
		p++;
	if (p >= v->rank - 1 || v->last || (v->root && !v->root->contiguous) || ix_is(o->size[nb], 1) ||
		ix_num(v->size[p]) != ix_num(o->size[nb + 1]))
		return 0;
	t->items = NULL;
	t->rows = pl_sizes(pl, v, p + 1, v->rank);
	if (ix_num(t->rows) == 1) /* one pixel an image lies the same either way */
		return 0;
	trail = pl_ravel(pl, own, v->size, p + 1, v->rank);
	lead = pl_ravel(pl, own, v->size, 0, p);
	if (nb)
		return ix_same(pl_ravel(pl, idx, o->size, 0, nb), lead) && ix_same(idx[nb], trail);
	if (ix_num(o->size[0]) != ix_num(t->rows))
		t->items = pl_sizes(pl, v, 0, p);
	return ix_same(idx[0], ix_add(pl, ix_mul(pl, lead, t->rows), trail));
}

/* ---- What products end in ---------------------------------------------------------------------------------------- */

/* By value: the only operation that reads it, wherever that is computed. */
struct reader {
	struct val *op;
	int several;
	int whole; /* something reads all of it, and not a slice */
};

static struct val *behind_views(struct val *v)
{
	while (v->kind == V_VIEW && !v->cond && !v->root)
		v = v->arg[0];
	return v;
}

/* v, an operation, a reduction, a gathering or a view with a condition, is entered. */
static int note_reader(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct reader *reader = ctx;
	int n = v->kind == V_OP ? v->n_arg : v->kind == V_GATHER ? 2 : v->kind == V_RED || (v->kind == V_VIEW && v->cond);

	(void)idx;
	for (int i = 0; i < n; i++) {
		const struct val *x = behind_views(v->arg[i]);
		struct reader *r = &reader[x->id];

		r->several |= v->kind != V_OP || (r->op && r->op != v);
		r->whole |= pl_numel_now(v->arg[i]) >= pl_numel_now(x);
		r->op = v;
	}
	return 0;
}

static struct reader *find_readers(struct pl *pl, struct val *const *root, int n)
{
	struct reader *reader = pl_alloc(pl, (size_t)pl->n_val * sizeof(*reader));
	int n_var = pl->n_var;

	for (int i = 0; i < n; i++) {
		const struct ix *idx[PL_MAX_RANK];
		struct walk w;

		if (root[i]->kind == V_VIEW)
			reader[behind_views(root[i]->arg[0])->id].several = 1;
		pl_walk_init(&w, pl, root[i]);
		w.into_reds = 1;
		w.stop = note_reader;
		w.stop_ctx = reader;
		pl_own_vars(pl, root[i], idx);
		pl_walk(&w, root[i], idx);
	}
	pl->n_var = n_var;
	return reader;
}

/* Of 16 bits, what the operator of the product returns, since a library adds the bias on the way: without it the sum
 * ahead of the bias is stored, in fp32, twice the bytes for each that reads it.  NULL: nothing but the product. */
static struct val *with_bias(const struct anchor *s, const struct reader *reader)
{
	struct val *end = reader[s->out->id].op;

	return !end || reader[s->out->id].several || end->root || !end->result || s->out->result || !pl_is_half(end->dt) ||
			pl_numel_now(end) != pl_numel_now(s->out)
		? NULL
		: end;
}

/* Can v, which is not stored yet, be what the library computes with the product, which it reads at at[]? */
static int is_of_library(
	struct pl *pl, const struct anchor *s, const struct val *v, const struct ix *const *own, const struct ix *const *at)
{
	struct kern *k = pl_alloc(pl, sizeof(*k));
	struct buf b = { .dt = v->dt, .rank = v->rank, .contiguous = 1 };
	struct val stored = *v;
	struct pl_end end;

	memcpy(b.size, v->size, sizeof(b.size));
	pl_contiguous(pl, v->rank, v->size, b.stride);
	stored.root = &b;
	k->anchor = (struct anchor *)s;
	k->out[0] = &stored;
	k->n_out = 1;
	memcpy(k->out_idx[0], own, (size_t)v->rank * sizeof(*own));
	memcpy(k->anchor_idx, at, (size_t)s->out->rank * sizeof(*at));
	return s->kind == S_GEMM && pl_ends_as(pl, k, &end);
}

/* Have the product computed as v reads it, its columns ahead of its rows, if it can end in v then. */
static int turns_to(
	struct pl *pl, struct anchor *s, const struct val *v, const struct ix *const *own, const struct ix *const *at)
{
	struct turning t = { 0 };

	return pl_anchor_ops[s->kind]->turn && reads_turned(pl, s, v, own, at, &t) &&
		pl_anchor_ops[s->kind]->turn(pl, s, t.items, t.rows, s->readers - 1);
}

/* Is v a sum, or whatever else, of the product and of stored tensors of its size, that its kernel can end in? */
static int can_end_in(struct pl *pl, struct anchor *s, struct val *v)
{
	const struct ix *own[PL_MAX_RANK];
	const struct leaf *product = NULL;
	const struct anchor_ops *ops = pl_anchor_ops[s->kind];
	int others = 0, n_var = pl->n_var, ends;
	struct walk w;

	pl_own_vars(pl, v, own);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, own);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_ANCHOR && l->val == s->out && !product)
			product = l;
		else if (l->kind == LEAF_RED || l->kind == LEAF_ANCHOR || pl_leaf_looks_up(pl, l))
			return 0;
		others += l->kind == LEAF_LOAD && pl_numel_now(l->val) == pl_numel_now(v);
	}
	ends = product && others &&
		(!pl_ends_in(pl, v, s) ? turns_to(pl, s, v, own, product->idx)
							   : ops->ends_for(pl, s, s->readers - 1) || is_of_library(pl, s, v, own, product->idx));
	pl->n_var = n_var;
	return ends;
}

/* Is v computed of stored tensors, some of them at places that data says? */
static int is_looked_up(struct pl *pl, struct val *v)
{
	const struct ix *own[PL_MAX_RANK];
	int n_var = pl->n_var, found = 0, others = 0;
	struct walk w;

	pl_own_vars(pl, v, own);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, own);
	for (struct leaf *l = w.first; l; l = l->next) {
		found |= pl_leaf_looks_up(pl, l);
		others |= l->kind != LEAF_LOAD && l->kind != LEAF_INDEX;
	}
	pl->n_var = n_var;
	return found && !others;
}

/* What all that read the product add to it, where that is looked up (an embedding and its positions) by so many that
 * all sums behind it are stored for less than they save.  NULL: nothing. */
static struct val *looked_up_summand(struct pl *pl, const struct anchor *s, const struct reader *reader)
{
	const struct val *v = s->out;

	if (s->readers < 4 || pl_all_plain(pl))
		return NULL;
	while (!reader[v->id].several && (v = reader[v->id].op) && !v->root && pl_numel_now(v) == pl_numel_now(s->out))
		for (int i = 0; i < v->n_arg; i++) {
			struct val *x = behind_views(v->arg[i]);

			if ((x->kind == V_OP || x->kind == V_GATHER) && x->result && !x->root && x->dt == s->out->dt &&
				pl_numel_now(x) == pl_numel_now(v) && is_looked_up(pl, x))
				return x;
		}
	return NULL;
}

/* The last that its kernel can end in of what all read that read the product: the sum with a residual, which each of
 * them would read and add up again. */
static struct val *with_residual(struct pl *pl, struct anchor *s, const struct reader *reader)
{
	struct val *best = NULL, *v = s->out;

	if (s->readers < 2 || !pl_anchor_ops[s->kind]->ends_for || pl_all_plain(pl))
		return NULL;
	while (!reader[v->id].several && (v = reader[v->id].op) && !v->root && pl_numel_now(v) == pl_numel_now(s->out))
		if (v->result && v->dt == s->out->dt && reader[v->id].whole && can_end_in(pl, s, v))
			best = v;
	return best;
}

/* cuda: what is stored of a product that several kernels read.  Returns how many such values there are. */
static int store_ends(struct pl *pl, struct val **list, int n)
{
	struct reader *reader = find_readers(pl, list, n);
	int found = 0;

	for (int a = 0; a < pl->n_anchor; a++) {
		struct anchor *s = pl->anchor[a];
		struct val *end;

		if (s->consumers < 2 || s->out->root || !pl_anchor_ops[s->kind]->stores_fp32 || n + found + 2 > PL_MAX_ROOTS)
			continue;
		if ((end = looked_up_summand(pl, s, reader))) {
			pl_store_as_typed(pl, end, "what products end in reads it, which would look it up element by element");
			list[n + found++] = end;
		}
		if ((end = with_residual(pl, s, reader)) || (end = with_bias(s, reader))) {
			pl_store_as_typed(pl, end, "several kernels read what the product ends in");
			list[n + found++] = end;
		}
	}
	return found;
}

/* cuda: what is stored reads a product turned around only (what a mixer's second product adds to, a residual of
 * channels ahead of pixels): then the transposed product is computed, so that it ends in its reader, or is read along
 * memory. */
static void turn_products(struct pl *pl, struct val *const *list, int n)
{
	struct turning *turning = pl_alloc(pl, (size_t)(pl->n_anchor + 1) * sizeof(*turning));
	int n_var = pl->n_var;

	for (int i = 0; i < n; i++) {
		const struct ix *own[PL_MAX_RANK];
		struct walk w;

		if (list[i]->kind == V_ANCHOR)
			turning[list[i]->anchor->id].straight = 1;
		pl_walk_init(&w, pl, list[i]);
		pl_own_vars(pl, list[i], own);
		pl_walk(&w, list[i], own);
		for (struct leaf *l = w.first; l; l = l->next) {
			struct turning now = { 0 }, *t;

			if (l->kind != LEAF_ANCHOR || !pl_anchor_ops[l->val->anchor->kind]->turn)
				continue;
			t = &turning[l->val->anchor->id];
			if (t->straight) /* `rows` is of no turn then */
				continue;
			t->straight |= !reads_turned(pl, l->val->anchor, list[i], own, l->idx, &now) ||
				(t->known && (!t->items != !now.items || !ix_same(t->rows, now.rows)));
			t->items = now.items;
			t->rows = now.rows;
			t->known = 1;
		}
	}
	for (int a = 0; a < pl->n_anchor; a++)
		if (turning[a].known && !turning[a].straight && !pl->anchor[a]->out->root)
			pl_anchor_ops[pl->anchor[a]->kind]->turn(pl, pl->anchor[a], turning[a].items, turning[a].rows, 0);
	pl->n_var = n_var;
}

void pl_find_roots(struct pl *pl, struct val **todo, int n_todo)
{
	static const int max = PL_MAX_ROOTS;
	struct val **list = pl_alloc(pl, (size_t)max * sizeof(*list));
	int n = 0;

	for (int i = 0; i < n_todo; i++)
		list[n++] = todo[i];
	for (int i = 0; i < n; i++) {
		struct walk w;

		for (struct leaf *l = leaves_of(pl, list[i], &w); l; l = l->next) {
			struct val *found[PL_MAX_OPERANDS];
			int nf = 0;

			if (l->kind == LEAF_ANCHOR) {
				struct anchor *s = l->val->anchor;

				pl_anchor_operands(pl, s);
				for (int k = 0; k < s->n_in && !s->scheduled; k++)
					found[nf++] = s->in[k].val;
				s->scheduled = 1;
			} else if (l->kind == LEAF_LOAD && l->val->kind != V_BUF) {
				found[nf++] = l->val;
			} else if (l->kind == LEAF_RED && l->val->force_root && !l->val->root) {
				pl_store_because(pl, l->val, "a part of a reduction that has too few results for one kernel");
				found[nf++] = l->val;
			}
			for (int k = 0; k < nf; k++) {
				int known = found[k]->kind == V_BUF;

				for (int j = 0; j < n && !known; j++)
					known = list[j] == found[k];
				if (known)
					continue;
				if (n >= max)
					pl_fail(pl, "more than %d values to store", max);
				list[n++] = found[k];
			}
		}
	}
	for (int i = 0; i < pl->n_anchor; i++)
		pl->anchor[i]->scheduled = 0;
	count_consumers(pl, list, n);
	if (pl->target == WW_TARGET_CUDA)
		n += store_ends(pl, list, n);
	if (pl->target == WW_TARGET_CUDA && !pl_all_plain(pl))
		turn_products(pl, list, n);
	count_consumers(pl, list, n);
	pl->stored = list;
	pl->n_stored = n;
	count_passes(pl, list, n);
}
