/* shape.c - lowering of views, copies, indexing and concatenation: each is an index map, which moves no memory. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

static void identity(struct pl *pl, struct gnode *n)
{
	struct val *v = self(pl, n);

	done(n, n->meta[0].dt ? pl_cast(pl, v, n->meta[0].dt) : v);
}

static void dropout(struct pl *pl, struct gnode *n)
{
	if (pl_arg_int(pl, n, 2, "train", 0) && pl_arg_num(pl, n, 1, "p", 0) > 0)
		pl_cannot(pl, n, "it is random");
	done(n, self(pl, n));
}

/* The sizes of a reshape's result: where a group of dimensions of the result has as many elements as one of the
 * operand, the operand's expression is kept; other sizes are the numbers that the graph records. */
static void target_sizes(struct pl *pl, const struct val *a, const struct gmeta *m, const struct ix **size)
{
	int i = 0, j = 0, i0 = 0, j0 = 0;
	int64_t na = 1, nb = 1;

	while (j < m->rank || i < a->rank) {
		if (i > i0 && j > j0 && na == nb) {
			const struct ix *left = ix_const(pl, 1);
			int open = -1, used[PL_MAX_RANK] = { 0 };

			for (int t = j0; t < j; t++) {
				int s = i0;

				while (s < i && (used[s] || ix_num(a->size[s]) != m->size[t] || m->size[t] == 1))
					s++;
				size[t] = s < i ? a->size[s] : ix_const(pl, m->size[t]);
				if (s < i)
					used[s] = 1;
				else if (m->size[t] != 1 || j - j0 == 1)
					open = open == -1 ? t : -2;
			}
			for (int s = i0; s < i; s++)
				left = used[s] ? left : ix_mul(pl, left, a->size[s]);
			if (open >= 0)
				size[open] = left;
			i0 = i;
			j0 = j;
			na = nb = 1;
		} else if (i < a->rank && (na < nb || j == m->rank || (na == nb && i == i0))) {
			na *= ix_num(a->size[i++]);
		} else if (j < m->rank) {
			nb *= m->size[j++];
		} else {
			break;
		}
	}
	for (int t = j0; t < m->rank; t++) {
		const struct ix *left = ix_const(pl, 1);

		for (int s = i0; s < a->rank; s++)
			left = ix_mul(pl, left, a->size[s]);
		size[t] = m->rank - j0 == 1 ? left : ix_const(pl, m->size[t]);
	}
}

static void reshape(struct pl *pl, struct gnode *n)
{
	const struct ix *size[PL_MAX_RANK];
	struct val *a = self(pl, n);

	if (n->meta[0].dt != a->dt)
		pl_cannot(pl, n, "it views the memory as another type");
	target_sizes(pl, a, &n->meta[0], size);
	done(n, pl_reshape(pl, a, n->meta[0].rank, size));
}

static void permute(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t d[PL_MAX_RANK];
	int perm[PL_MAX_RANK], k = pl_arg_ints(pl, n, 1, "dims", d, PL_MAX_RANK);

	if (k != a->rank)
		pl_cannot(pl, n, "its list dims does not name all dimensions");
	for (int i = 0; i < k; i++)
		perm[i] = pl_dim(pl, n, d[i], a->rank);
	done(n, pl_permute(pl, a, perm));
}

struct val *pl_swap_dims(struct pl *pl, struct val *a, int x, int y)
{
	int perm[PL_MAX_RANK];

	for (int i = 0; i < a->rank; i++)
		perm[i] = i == x ? y : i == y ? x : i;
	return pl_permute(pl, a, perm);
}

static void transpose(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);

	done(n,
		pl_swap_dims(pl, a, pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim0", 0), a->rank),
			pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim1", 1), a->rank)));
}

static void t_(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);

	done(n, a->rank < 2 ? a : pl_transposed(pl, a));
}

static void reversed(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int perm[PL_MAX_RANK];

	for (int i = 0; i < a->rank; i++)
		perm[i] = a->rank - 1 - i;
	done(n, pl_permute(pl, a, perm));
}

static void movedim(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t s[PL_MAX_RANK], t[PL_MAX_RANK];
	int perm[PL_MAX_RANK], src[PL_MAX_RANK] = { 0 }, k = pl_arg_ints(pl, n, 1, "source", s, PL_MAX_RANK);

	if (pl_arg_ints(pl, n, 2, "destination", t, PL_MAX_RANK) != k)
		pl_cannot(pl, n, "its lists source and destination differ in length");
	for (int i = 0; i < a->rank; i++)
		perm[i] = -1;
	for (int i = 0; i < k; i++) {
		int from = pl_dim(pl, n, s[i], a->rank);

		perm[pl_dim(pl, n, t[i], a->rank)] = from;
		src[from] = 1;
	}
	for (int i = 0, o = 0; i < a->rank; i++) {
		if (perm[i] >= 0)
			continue;
		while (src[o])
			o++;
		perm[i] = o++;
	}
	done(n, pl_permute(pl, a, perm));
}

static void expand(struct pl *pl, struct gnode *n)
{
	const struct ix *size[PL_MAX_RANK];
	struct val *a = self(pl, n);
	const struct gmeta *m = &n->meta[0];

	for (int d = 0; d < m->rank; d++) {
		int s = d - (m->rank - a->rank);

		size[d] = s >= 0 && ix_num(a->size[s]) == m->size[d] ? a->size[s] : ix_const(pl, m->size[d]);
	}
	done(n, pl_expand(pl, a, m->rank, size));
}

static void expand_as(struct pl *pl, struct gnode *n)
{
	struct val *o = pl_need_val(pl, n, 1, "other");

	done(n, pl_expand(pl, self(pl, n), o->rank, o->size));
}

static void unsqueeze(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);

	done(n, pl_unsqueeze(pl, a, pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank + 1)));
}

static void squeeze(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t dims[PL_MAX_RANK];
	struct garg *g = pl_arg(n, 1, "dim");
	unsigned mask = 0;

	if (!g || g->kind == G_NONE) {
		mask = ~0u;
	} else {
		int k = pl_arg_ints(pl, n, 1, "dim", dims, PL_MAX_RANK);

		for (int i = 0; i < k; i++)
			mask |= 1u << pl_dim(pl, n, dims[i], a->rank);
	}
	for (int d = a->rank - 1; d >= 0; d--)
		if ((mask >> d & 1) && ix_num(a->size[d]) == 1) {
			pl_guard_eq(pl, a->size[d], ix_const(pl, 1), "a squeezed size");
			a = pl_squeeze(pl, a, d);
		}
	done(n, a);
}

/* A bound of a slice, which may be None, negative or beyond the end, as an index. */
static const struct ix *bound(struct pl *pl, int64_t v, const struct ix *size)
{
	int64_t n = ix_num(size);

	if (v < 0)
		v = v + n < 0 ? 0 : v + n;
	else if (v >= n)
		return size;
	return ix_const(pl, v);
}

static void slice(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank);
	int64_t step = pl_arg_int(pl, n, 4, "step", 1);
	const struct ix *start = bound(pl, pl_arg_int(pl, n, 2, "start", 0), a->size[d]);
	const struct ix *end = bound(pl, pl_arg_int(pl, n, 3, "end", INT64_MAX), a->size[d]);
	const struct ix *len = ix_div(pl, ix_addc(pl, ix_sub(pl, end, start), step - 1), ix_const(pl, step));

	pl_keep_sliced(pl, a);
	done(n, ix_is(start, 0) && step == 1 && ix_same(len, a->size[d]) ? a : pl_slice(pl, a, d, start, len, step));
}

static void select_dim(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank);
	int64_t at = pl_arg_int(pl, n, 2, "index", 0);

	done(n, pl_select(pl, a, d, at < 0 ? ix_addc(pl, a->size[d], at) : ix_const(pl, at)));
}

static void narrow(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank);

	pl_keep_sliced(pl, a);
	done(n,
		pl_slice(pl, a, d, bound(pl, pl_arg_int(pl, n, 2, "start", 0), a->size[d]),
			ix_const(pl, pl_arg_int(pl, n, 3, "length", 1)), 1));
}

/* chunk and split; hsplit, vsplit and dsplit, whose variant is the first letter. */
static void chunk(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = n->variant == 'h' ? a->rank > 1
		: n->variant == 'v'   ? 0
		: n->variant == 'd'   ? 2
							  : pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 0), a->rank);
	const struct ix *at = ix_const(pl, 0);

	pl_keep_sliced(pl, a);
	for (int i = 0; i < n->n_out; i++) {
		int64_t len = n->meta[i].size[d];
		const struct ix *l = n->n_out > 0 && ix_num(a->size[d]) == len * n->n_out
			? ix_div(pl, a->size[d], ix_const(pl, n->n_out))
			: ix_const(pl, len);

		n->out[i] = pl_slice(pl, a, d, at, l, 1);
		at = ix_add(pl, at, l);
	}
	pl_guard_eq(pl, at, a->size[d], "the size that is split");
}

static void unbind(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank);

	for (int i = 0; i < n->n_out; i++)
		n->out[i] = pl_select(pl, a, d, ix_const(pl, i));
	pl_guard_eq(pl, ix_const(pl, n->n_out), a->size[d], "the size that is unbound");
}

struct val *pl_concatenated(struct pl *pl, struct val **v, int n, int d)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *total = ix_const(pl, 0), *at = total;
	struct pieces *p = n <= (int)WW_ARRAY_LEN(p->v) ? pl_alloc(pl, sizeof(*p)) : NULL;
	struct val *out = NULL;

	for (int i = 0; i < n; i++)
		total = ix_add(pl, total, v[i]->size[d]);
	memcpy(size, v[0]->size, sizeof(size));
	size[d] = total;
	for (int i = 0; i < n; i++) {
		const struct ix *end = ix_add(pl, at, v[i]->size[d]);
		struct val *piece;

		if (p) {
			p->v[i] = v[i];
			p->at[i] = at;
		}
		for (int k = 0; k < v[i]->rank; k++)
			map[k] = k == d ? ix_sub(pl, pl->place[k], at) : pl->place[k];
		piece = pl_view_if(pl, v[i], v[i]->rank, size, map,
			ix_mul(pl, ix_lt(pl, ix_addc(pl, at, -1), pl->place[d]), ix_lt(pl, pl->place[d], end)), 0);
		if (!out) {
			out = piece;
		} else {
			struct val *in = pl_index(pl, WW_BOOL, v[0]->rank, size, ix_lt(pl, pl->place[d], at));

			out = pl_where(pl, in, out, piece);
		}
		at = end;
	}
	if (p && n > 1) {
		p->n = n;
		p->dim = d;
		p->at[n] = at;
		out->pieces = p;
	}
	return out;
}

/* Is `from` computed from `of` by pointwise operations and views? */
static int reaches(struct val *from, const struct val *of, char *seen)
{
	if (from == of)
		return 1;
	if (seen[from->id] || from->root || from->force_root || (from->kind != V_OP && from->kind != V_VIEW))
		return 0;
	seen[from->id] = 1;
	for (int i = 0; i < from->n_arg; i++)
		if (reaches(from->arg[i], of, seen))
			return 1;
	return 0;
}

/* Do the pieces have one element each, the last computed from the first (an unrolled recurrence)? */
static int is_chain(struct pl *pl, struct val **v, int n, int d)
{
	for (int i = 0; i < n; i++)
		if (!ix_is(v[i]->size[d], 1) || v[i]->kind != V_VIEW || v[i]->arg[0]->kind != V_OP)
			return 0;
	return reaches(v[n - 1], v[0]->arg[0], pl_alloc(pl, (size_t)pl->n_val));
}

/* A few pieces become an expression in their readers.  Of many, every reader would test the condition of each piece, so
 * the result is stored, by a kernel for each 16 pieces; one kernel stores more of them if they share work
 * (pl_unroll()). */
struct val *pl_cat(struct pl *pl, struct val **v, int n, int d)
{
	enum { FEW = 4, PIECES = 16 };
	struct val *all, **part;
	int k = 0, chain = n > FEW && n <= PL_MAX_STORES && is_chain(pl, v, n, d);

	if (n <= PIECES || chain) {
		all = pl_concatenated(pl, v, n, d);
		all->chain = chain ? d + 1 : 0;
		if (n > FEW)
			pl_make_root(pl, all);
		return all;
	}
	part = pl_alloc(pl, (size_t)n * sizeof(*part));
	for (int i = 0; i < n; i += PIECES)
		part[k++] = pl_cat(pl, v + i, n - i < PIECES ? n - i : PIECES, d);
	return pl_cat(pl, part, k, d);
}

static int list_vals(struct pl *pl, struct gnode *n, struct val **v, int max)
{
	struct garg *l = pl_arg(n, 0, "tensors");
	int k = 0;

	if (!l || l->kind != G_LIST)
		pl_cannot(pl, n, "its argument \"tensors\" is not a list");
	for (int i = 0; i < l->n; i++) {
		struct val *a = pl_val_of(pl, &l->item[i]);

		if (k >= max)
			pl_cannot(pl, n, "it has more than 4096 tensors");
		if (pl_numel_now(a))
			v[k++] = pl_cast(pl, a, n->meta[0].dt);
	}
	if (!k)
		pl_cannot(pl, n, "all its tensors are empty");
	return k;
}

/* Does only this reader need v, which a channels-last convolution computes?  Then the reader stores it; the convolution
 * stores its own result, without a pass behind the library. */
static int ends_in_reader(const struct pl *pl, const struct val *v)
{
	return v->kind == V_OP && !v->root && v->node && pl_is_last(pl, v) && pl_count_readers(pl, v->node->name) == 1;
}

/* Is a batch norm all that reads n, a concatenation of channels?  It takes the statistics of the pieces, and what it
 * normalises is one pass. */
static int is_normalised(const struct pl *pl, const struct gnode *n, int d)
{
	if (d != 1 || pl->target != WW_TARGET_CUDA || pl_count_readers(pl, n->name) != 1)
		return 0;
	for (const struct gnode *o = n + 1; o < pl->node + pl->n_node; o++)
		if (o->n_arg && pl_refers(&o->arg[0], n->name))
			return !strcmp(o->row ? o->row->op : "", "batch_norm");
	return 0;
}

static void cat(struct pl *pl, struct gnode *n)
{
	enum { NORMALISED = 8 }; /* pieces of one expression, for one reader whose rows are each of one of them */
	struct val *v[4096], *scan;
	int k = list_vals(pl, n, v, 4096), d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), v[0]->rank);

	scan = k == 2 ? pl_scan_excluded(pl, n, v[0], v[1], d) : NULL;
	if (scan) {
		done(n, scan);
		return;
	}

	for (int i = 0; i < k; i++)
		if (ends_in_reader(pl, v[i]))
			pl_keep_sliced(pl, v[i]);
		else
			v[i] = pl_follow_last(pl, n, v[i]);
	done(n, k <= NORMALISED && is_normalised(pl, n, d) ? pl_concatenated(pl, v, k, d) : pl_cat(pl, v, k, d));
}

static void stack(struct pl *pl, struct gnode *n)
{
	struct val *v[4096];
	int k = list_vals(pl, n, v, 4096), d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), v[0]->rank + 1);

	for (int i = 0; i < k; i++)
		v[i] = pl_unsqueeze(pl, v[i], d);
	done(n, pl_cat(pl, v, k, d));
}

/* hstack, vstack, dstack and column_stack, whose variant is the first letter: tensors of too few dimensions get more.
 */
static void stack_as(struct pl *pl, struct gnode *n)
{
	struct val *v[4096];
	int k = list_vals(pl, n, v, 4096);
	int kind = n->variant;

	for (int i = 0; i < k; i++) {
		if (kind == 'c' && v[i]->rank == 1)
			v[i] = pl_unsqueeze(pl, v[i], 1);
		else if (kind == 'v' && v[i]->rank == 1)
			v[i] = pl_unsqueeze(pl, v[i], 0);
		else if (kind == 'd' && v[i]->rank == 1)
			v[i] = pl_unsqueeze(pl, pl_unsqueeze(pl, v[i], 0), 2);
		else if (kind == 'd' && v[i]->rank == 2)
			v[i] = pl_unsqueeze(pl, v[i], 2);
	}
	done(n, pl_cat(pl, v, k, kind == 'd' ? 2 : kind == 'v' ? 0 : kind == 'h' && v[0]->rank == 1 ? 0 : 1));
}

static void block_diag(struct pl *pl, struct gnode *n)
{
	struct val *v[4096], *out = NULL;
	int k = list_vals(pl, n, v, 4096);
	const struct ix *size[2] = { ix_const(pl, 0), ix_const(pl, 0) }, *at[2] = { size[0], size[1] };

	for (int i = 0; i < k; i++)
		for (int d = 0; d < 2; d++) {
			if (v[i]->rank != 2)
				pl_cannot(pl, n, "its blocks are not matrices");
			size[d] = ix_add(pl, size[d], v[i]->size[d]);
		}
	for (int i = 0; i < k; i++) {
		const struct ix *map[2], *in = ix_const(pl, 1);
		struct val *part;

		for (int d = 0; d < 2; d++) {
			map[d] = ix_sub(pl, pl->place[d], at[d]);
			in = ix_mul(
				pl, in, ix_mul(pl, ix_lt(pl, ix_addc(pl, at[d], -1), pl->place[d]), ix_lt(pl, map[d], v[i]->size[d])));
			at[d] = ix_add(pl, at[d], v[i]->size[d]);
		}
		part = pl_view_if(pl, v[i], 2, size, map, in, 0);
		out = out ? pl_op2(pl, OP_ADD, out, part) : part;
	}
	done(n, out);
}

static struct val *flipped(struct pl *pl, struct val *a, int d)
{
	const struct ix *map[PL_MAX_RANK];

	for (int k = 0; k < a->rank; k++)
		map[k] = k == d ? ix_sub(pl, ix_addc(pl, a->size[k], -1), pl->place[k]) : pl->place[k];
	return pl_view(pl, a, a->rank, a->size, map);
}

static void flip_one(struct pl *pl, struct gnode *n) { done(n, flipped(pl, self(pl, n), n->variant)); }

static void rot90(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t dims[2] = { 0, 1 }, k = pl_arg_int(pl, n, 1, "k", 1);
	int x, y;

	pl_arg_ints(pl, n, 2, "dims", dims, 2);
	x = pl_dim(pl, n, dims[0], a->rank);
	y = pl_dim(pl, n, dims[1], a->rank);
	for (k = (k % 4 + 4) % 4; k > 0; k--)
		a = flipped(pl, pl_swap_dims(pl, a, x, y), x);
	done(n, a);
}

static void flip(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *map[PL_MAX_RANK];
	int64_t dims[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 1, "dims", dims, PL_MAX_RANK);
	struct val *back = k == 1 ? pl_scan_back(pl, n, a, pl_dim(pl, n, dims[0], a->rank)) : NULL;

	if (back) {
		done(n, back);
		return;
	}
	for (int d = 0; d < a->rank; d++)
		map[d] = pl->place[d];
	for (int i = 0; i < k; i++) {
		int d = pl_dim(pl, n, dims[i], a->rank);

		map[d] = ix_sub(pl, ix_addc(pl, a->size[d], -1), pl->place[d]);
	}
	done(n, pl_view(pl, a, a->rank, a->size, map));
}

const struct ix *pl_wrap(struct pl *pl, const struct ix *x, const struct ix *size)
{
	return ix_sub(pl, x, ix_mul(pl, size, ix_lt(pl, ix_addc(pl, size, -1), x)));
}

static void roll(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *map[PL_MAX_RANK];
	int64_t by[PL_MAX_RANK], dims[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 1, "shifts", by, PL_MAX_RANK), kd = pl_arg_ints(pl, n, 2, "dims", dims, PL_MAX_RANK);

	if (kd == 0 && k == 1) {
		const struct ix *size[1] = { pl_numel(pl, a) };
		int64_t total = ix_num(size[0]);

		map[0] = pl_wrap(pl, ix_addc(pl, pl->place[0], ((-by[0]) % total + total) % total), size[0]);
		done(n, pl_reshape(pl, pl_view(pl, pl_reshape(pl, a, 1, size), 1, size, map), a->rank, a->size));
		return;
	}
	if (kd != k)
		pl_cannot(pl, n, "its lists shifts and dims differ in length");
	for (int d = 0; d < a->rank; d++)
		map[d] = pl->place[d];
	for (int i = 0; i < k; i++) {
		int d = pl_dim(pl, n, dims[i], a->rank);
		int64_t size = ix_num(a->size[d]), s = ((-by[i]) % size + size) % size;

		map[d] = pl_wrap(pl, ix_addc(pl, map[d], s), a->size[d]);
	}
	done(n, pl_view(pl, a, a->rank, a->size, map));
}

static void repeat(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	int64_t by[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 1, "repeats", by, PL_MAX_RANK), lead = k - a->rank;

	if (lead < 0)
		pl_cannot(pl, n, "its list repeats is shorter than the number of dimensions");
	for (int d = 0; d < k; d++) {
		size[d] = d < lead ? ix_const(pl, by[d]) : ix_mulc(pl, a->size[d - lead], by[d]);
		if (d >= lead)
			map[d - lead] = by[d] == 1 ? pl->place[d] : ix_mod(pl, pl->place[d], a->size[d - lead]);
	}
	done(n, pl_view(pl, a, k, size, map));
}

static void repeat_interleave(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	struct garg *r = pl_arg(n, 1, "repeats");
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 0), a->rank);

	if (!r || r->kind != G_INT)
		pl_cannot(pl, n, "its repeats are a tensor");
	for (int k = 0; k < a->rank; k++) {
		size[k] = k == d ? ix_mulc(pl, a->size[k], r->i) : a->size[k];
		map[k] = k == d ? ix_div(pl, pl->place[k], ix_const(pl, r->i)) : pl->place[k];
	}
	done(n, pl_view(pl, a, a->rank, size, map));
}

static void tri(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *keep;
	int64_t diag = pl_arg_int(pl, n, 1, "diagonal", 0);
	const struct ix *r = pl->place[a->rank - 2], *c = pl->place[a->rank - 1];

	/* tril keeps col - row <= diagonal, triu col - row >= diagonal */
	if (n->variant == LOWER_TRIANGLE)
		keep = pl_index(pl, WW_BOOL, a->rank, a->size, ix_lt(pl, c, ix_addc(pl, r, diag + 1)));
	else
		keep = pl_index(pl, WW_BOOL, a->rank, a->size, ix_lt(pl, ix_addc(pl, r, diag - 1), c));
	done(n, pl_where(pl, keep, a, pl_constf(pl, a->dt, 0)));
}

/* diag_embed: the last dimension becomes the diagonal of a square matrix. */
static void diag_embed(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t off = pl_arg_int(pl, n, 1, "offset", 0);
	int rank = a->rank + 1, d1 = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim1", -2), rank),
		d2 = pl_dim(pl, n, pl_arg_int(pl, n, 3, "dim2", -1), rank), o = 0;
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK],
		*side = ix_addc(pl, a->size[a->rank - 1], off < 0 ? -off : off), *in;

	for (int d = 0; d < rank; d++) {
		size[d] = d == d1 || d == d2 ? side : a->size[o];
		if (d != d1 && d != d2)
			map[o++] = pl->place[d];
	}
	map[o] = off >= 0 ? pl->place[d1] : pl->place[d2];
	in = ix_mul(pl, ix_eqz(pl, ix_sub(pl, ix_addc(pl, pl->place[d1], off), pl->place[d2]), ix_const(pl, 0)),
		ix_lt(pl, map[o], a->size[a->rank - 1]));
	done(n, pl_view_if(pl, a, rank, size, map, in, 0));
}

static void meshgrid(struct pl *pl, struct gnode *n)
{
	struct garg *l = pl_arg(n, 0, "tensors");
	int xy = !strcmp(pl_arg_str(n, 1, "indexing", "ij"), "xy");

	for (int i = 0; l && l->kind == G_LIST && i < l->n && i < n->n_out; i++) {
		struct val *v = pl_val_of(pl, &l->item[i]);
		const struct ix *size[PL_MAX_RANK], *map[1];
		int at = xy && i < 2 && l->n > 1 ? 1 - i : i;

		for (int k = 0; k < l->n; k++) {
			struct val *o = pl_val_of(pl, &l->item[k]);
			int d = xy && k < 2 && l->n > 1 ? 1 - k : k;

			size[d] = o->rank ? o->size[0] : ix_const(pl, 1);
		}
		map[0] = pl->place[at];
		n->out[i] = pl_view(pl, v, l->n, size, map);
	}
}

static void diff(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", -1), a->rank);
	int64_t times = pl_arg_int(pl, n, 1, "n", 1);

	if (pl_arg_val(pl, n, 3, "prepend") || pl_arg_val(pl, n, 4, "append") || a->dt == WW_BOOL)
		pl_cannot(pl, n, "prepend, append and bool operands are not covered");
	for (; times > 0; times--) {
		const struct ix *less = ix_addc(pl, a->size[d], -1);

		a = pl_op2(
			pl, OP_SUB, pl_slice(pl, a, d, ix_const(pl, 1), less, 1), pl_slice(pl, a, d, ix_const(pl, 0), less, 1));
	}
	done(n, a);
}

struct val *pl_gather(struct pl *pl, struct val *src, struct val *at, int dim, int rank, const struct ix *const *size,
	const struct ix *const *map)
{
	struct val *v = pl_val(pl, V_GATHER, src->dt, rank, size);

	v->arg[0] = src;
	v->arg[1] = at;
	v->n_arg = 2;
	v->dim = dim;
	for (int d = 0; d < src->rank; d++)
		v->map[d] = d == dim ? ix_const(pl, 0) : map[d];
	return v;
}

struct val *pl_take(struct pl *pl, struct val *src, struct val *index, int dim)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *imap[PL_MAX_RANK];
	int rank = src->rank - 1 + index->rank;

	if (rank > PL_MAX_RANK)
		pl_fail(pl, "more than %d dimensions", PL_MAX_RANK);
	for (int d = 0; d < rank; d++) {
		if (d < dim) {
			size[d] = src->size[d];
			map[d] = pl->place[d];
		} else if (d < dim + index->rank) {
			size[d] = index->size[d - dim];
			imap[d - dim] = pl->place[d];
		} else {
			size[d] = src->size[d - index->rank + 1];
			map[d - index->rank + 1] = pl->place[d];
		}
	}
	return pl_gather(pl, src, pl_view(pl, index, rank, size, imap), dim, rank, size, map);
}

static void embedding(struct pl *pl, struct gnode *n)
{
	done(n, pl_take(pl, pl_need_val(pl, n, 0, "weight"), pl_cast(pl, pl_need_val(pl, n, 1, "indices"), WW_I64), 0));
}

/* cuda: is v a scan along another dimension than `dim`, or made of some by operations whose results nothing else reads?
 */
static int is_of_scans(const struct pl *pl, const struct val *v, int dim)
{
	int found = v->kind == V_ANCHOR && v->anchor->kind == S_SCAN && v->anchor->scan.dim != dim;

	if (pl->target != WW_TARGET_CUDA || v->root || v->force_root || !v->node ||
		pl_count_readers(pl, v->node->name) != 1 || (v->kind != V_OP && !found))
		return 0;
	for (int i = 0; i < v->n_arg && !found; i++)
		found = is_of_scans(pl, v->arg[i], dim);
	return found;
}

/* Parts of v along dim.  What a scan makes of a row does not depend on other rows: they are taken of its operand, so
 * that the scan is not stored, only to be read in another order. */
static struct val *taken(struct pl *pl, struct gnode *n, struct val *v, struct val *index, int dim)
{
	struct val *part;

	if (v->kind == V_CONST)
		return v;
	if (index->rank != 1 || ix_num(index->size[0]) > ix_num(v->size[dim]) || !is_of_scans(pl, v, dim))
		return pl_take(pl, v, index, dim);
	if (v->kind == V_ANCHOR) {
		struct anchor *s = pl_anchor(pl, v->node, S_SCAN, v->anchor->what);

		part = taken(pl, n, v->anchor->in[0].val, index, dim);
		s->scan = v->anchor->scan;
		pl_anchor_operand(s, part);
		part = pl_anchor_out(pl, s, v->dt, v->rank, part->size);
		part->node = v->node;
		return part;
	}
	part = pl_val(pl, V_OP, v->dt, v->rank, v->size);
	part->op = v->op;
	part->n_arg = v->n_arg;
	for (int i = 0; i < v->n_arg; i++)
		part->arg[i] = taken(pl, n, v->arg[i], index, dim);
	part->size[dim] = index->size[0];
	part->node = v->node;
	return part;
}

static void index_select(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *index = pl_cast(pl, pl_need_val(pl, n, 2, "index"), WW_I64);

	done(n, taken(pl, n, a, index, pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank)));
}

static void gather(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *at = pl_cast(pl, pl_need_val(pl, n, 2, "index"), WW_I64);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank);

	done(n, pl_gather(pl, a, at, d, at->rank, at->size, pl->place));
}

static void one_hot(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), WW_I64);
	const struct ix *size[PL_MAX_RANK];

	memcpy(size, a->size, sizeof(size));
	if (a->rank >= PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	size[a->rank] = ix_const(pl, n->meta[0].size[a->rank]);
	done(n,
		pl_cast(pl,
			pl_op2(
				pl, OP_EQ, pl_unsqueeze(pl, a, a->rank), pl_index(pl, WW_I64, a->rank + 1, size, pl->place[a->rank])),
			WW_I64));
}

static void diagonal(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t off = pl_arg_int(pl, n, 1, "offset", 0);
	int d0 = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim1", 0), a->rank),
		d1 = pl_dim(pl, n, pl_arg_int(pl, n, 3, "dim2", 1), a->rank);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	int o = 0;

	for (int d = 0; d < a->rank; d++)
		if (d != d0 && d != d1) {
			size[o] = a->size[d];
			map[d] = pl->place[o++];
		}
	size[o] = ix_const(pl, n->meta[0].size[o]);
	map[d0] = ix_addc(pl, pl->place[o], off < 0 ? -off : 0);
	map[d1] = ix_addc(pl, pl->place[o], off > 0 ? off : 0);
	pl_guard_eq(pl, a->size[d0], ix_const(pl, ix_num(a->size[d0])), "the size of a diagonal");
	pl_guard_eq(pl, a->size[d1], ix_const(pl, ix_num(a->size[d1])), "the size of a diagonal");
	done(n, pl_view(pl, a, o + 1, size, map));
}

enum { TRACE = 1 };

/* diag of a vector makes a matrix, of a matrix takes the diagonal; trace sums it. */
static void diag(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t off = n->variant == TRACE ? 0 : pl_arg_int(pl, n, 1, "diagonal", 0);
	const struct ix *size[1], *map[2];

	if (a->rank == 1) {
		diag_embed(pl, n);
		return;
	}
	size[0] = ix_const(pl, n->variant == TRACE ? ww_min(ix_num(a->size[0]), ix_num(a->size[1])) : n->meta[0].size[0]);
	map[0] = ix_addc(pl, pl->place[0], off < 0 ? -off : 0);
	map[1] = ix_addc(pl, pl->place[0], off > 0 ? off : 0);
	for (int d = 0; d < 2; d++)
		pl_guard_eq(pl, a->size[d], ix_const(pl, ix_num(a->size[d])), "the size of a diagonal");
	a = pl_view(pl, a, 1, size, map);
	done(n, n->variant == TRACE ? pl_reduce(pl, RED_SUM, pl_cast(pl, a, n->meta[0].dt), 1, 0) : a);
}

/* One result of a node with several. */
static void getitem(struct pl *pl, struct gnode *n)
{
	struct garg *a = pl_arg(n, 0, "self");
	int64_t i = pl_arg_int(pl, n, 1, "index", 0);
	struct gnode *from = a && a->kind == G_VAL ? pl_graph_node(pl, a->name) : NULL;

	if (!from || i < 0 || i >= from->n_out)
		pl_cannot(pl, n, "it takes a result that its operator does not have");
	if (from->by_pytorch)
		pl_cannot(pl, n, "it takes one of several results of an operator without a rule");
	done(n, from->out[i]); /* may be NULL (indices of a maximum): an error only where it is used */
}

static void broadcast_tensors(struct pl *pl, struct gnode *n)
{
	struct garg *l = pl_arg(n, 0, "tensors");

	if (!l || l->kind != G_LIST || l->n != n->n_out)
		pl_cannot(pl, n, "its argument \"tensors\" does not fit its results");
	for (int i = 0; i < l->n; i++) {
		const struct ix *size[PL_MAX_RANK];

		for (int d = 0; d < n->meta[i].rank; d++) {
			size[d] = ix_const(pl, n->meta[i].size[d]);
			for (int j = 0; j < l->n; j++) {
				struct val *o = pl_val_of(pl, &l->item[j]);
				int e = d - (n->meta[i].rank - o->rank);

				if (e >= 0 && ix_num(o->size[e]) == n->meta[i].size[d])
					size[d] = o->size[e];
			}
		}
		n->out[i] = pl_expand(pl, pl_val_of(pl, &l->item[i]), n->meta[i].rank, size);
	}
}

static void nothing(struct pl *pl, struct gnode *n)
{
	(void)pl;
	(void)n;
}

#define V(name, fn, write) { name, fn, 0, PL_VIEW, write }
const struct pl_lower_row pl_lower_shape[] = { { "clone", identity },
	{ "contiguous", identity, 0, PL_VIEW | PL_MAY_COPY }, V("alias", identity, pl_write_reshape),
	V("detach", identity, pl_write_reshape), { "detach_", identity }, { "lift_fresh_copy", identity },
	{ "positive", identity }, { "feature_dropout", dropout }, { "alpha_dropout", dropout }, { "dropout", dropout },
	{ "native_dropout", dropout }, V("view", reshape, pl_write_reshape), { "_unsafe_view", reshape },
	{ "reshape", reshape, 0, PL_VIEW | PL_MAY_COPY }, { "flatten", reshape, 0, PL_VIEW | PL_MAY_COPY },
	V("unflatten", reshape, NULL), V("view_as", reshape, NULL), { "reshape_as", reshape }, { "ravel", reshape },
	V("permute", permute, NULL), V("transpose", transpose, pl_write_transpose), V("swapaxes", transpose, NULL),
	{ "swapdims", transpose }, V("t", t_, NULL), V("mT", t_, NULL), { "numpy_T", reversed }, { "matrix_H", t_ },
	{ "adjoint", t_ }, V("movedim", movedim, NULL), { "moveaxis", movedim }, V("expand", expand, NULL),
	{ "broadcast_to", expand }, V("expand_as", expand_as, NULL), V("unsqueeze", unsqueeze, pl_write_reshape),
	V("squeeze", squeeze, pl_write_reshape), V("slice", slice, pl_write_slice),
	V("select", select_dim, pl_write_select), V("narrow", narrow, NULL), V("chunk", chunk, NULL),
	V("split", chunk, NULL), V("split_with_sizes", chunk, NULL), { "tensor_split", chunk }, V("unbind", unbind, NULL),
	{ "hsplit", chunk, 'h' }, { "vsplit", chunk, 'v' }, { "dsplit", chunk, 'd' }, { "hstack", stack_as, 'h' },
	{ "vstack", stack_as, 'v' }, { "dstack", stack_as, 'd' }, { "column_stack", stack_as, 'c' },
	{ "block_diag", block_diag }, { "fliplr", flip_one, 1 }, { "flipud", flip_one, 0 }, { "rot90", rot90 },
	{ "diag_embed", diag_embed }, { "diag", diag }, { "trace", diag, TRACE }, { "meshgrid", meshgrid },
	{ "diff", diff }, { "cat", cat }, { "concat", cat }, { "concatenate", cat }, { "stack", stack }, { "flip", flip },
	{ "roll", roll }, { "repeat", repeat }, { "tile", repeat }, { "repeat_interleave", repeat_interleave },
	{ "tril", tri, LOWER_TRIANGLE }, { "triu", tri, UPPER_TRIANGLE }, { "embedding", embedding },
	{ "index_select", index_select }, { "gather", gather }, { "one_hot", one_hot }, V("diagonal", diagonal, NULL),
	V("getitem", getitem, NULL), { "broadcast_tensors", broadcast_tensors }, { "_assert_tensor_metadata", nothing },
	{ "_assert_async", nothing }, { "sym_size", nothing }, { NULL, NULL } };
