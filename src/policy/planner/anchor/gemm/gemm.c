/* gemm.c - matrix products. */
#include "policy/planner/anchor/gemm/gemm.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <string.h>

/* sum over k of a[..., m, k] b[..., k, n] as a reduction of a product. */
static struct val *by_reduction(struct pl *pl, struct val *a, struct val *b)
{
	int r = a->rank, perm[PL_MAX_RANK];

	for (int i = 0; i < r; i++)
		perm[i] = i;
	perm[r - 1] = r - 2;
	perm[r - 2] = r - 1;
	b = pl_permute(pl, b, perm);    /* (..., n, k) */
	a = pl_unsqueeze(pl, a, r - 1); /* (..., m, 1, k) */
	b = pl_unsqueeze(pl, b, r - 2); /* (..., 1, n, k) */
	if (ix_is(a->size[r], 1))       /* an outer product */
		return pl_squeeze(pl, pl_op2(pl, OP_MUL, a, b), r);
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, a, b), 1u << r, 0);
}

/* Is the product so small that a warp for each element is faster than a tile's loop over k (66 us for 4 x 90 x 512 on
 * an H200)?  Not for k up to 64: such a reduction would be fused and computed again by each reader. */
static int is_small(const struct pl *pl, const struct val *a, const struct ix *n)
{
	return pl->target == WW_TARGET_CUDA && a->dt == WW_F32 && !pl_all_plain(pl) && ix_num(a->size[a->rank - 1]) > 64 &&
		(double)pl_numel_now(a) * (double)ix_num(n) <= 1 << 21;
}

/* Have the rows of A and of a large result so few elements that a tile of tensor cores, of 32 columns and steps of 16
 * along k or more, would be mostly empty?  (1048576 x 8 x 8, four of them, took 368 us on an H200, for 268 MB.) */
static int is_sliver(const struct pl *pl, const struct val *a, const struct ix *n)
{
	const int64_t k = ix_num(a->size[a->rank - 1]);

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && k > 4 && k <= 8 && ix_num(n) <= 16 &&
		ix_num(n) % 4 == 0 && pl_numel_now(a) / k * ix_num(n) >= 1024 * (int64_t)pl->dev.sm_count;
}

/* Store what v is a view of, if it is computed: a GEMM reads each element many times. */
static void store_base(struct pl *pl, struct val *v)
{
	while (v->kind == V_VIEW && !v->root)
		v = v->arg[0];
	if (v->kind == V_OP || v->kind == V_RED)
		pl_make_root(pl, v);
}

struct val *pl_gemm_to(struct pl *pl, struct gnode *n, struct val *a, struct val *b, int out)
{
	int nb = a->rank - 2, dt = pl_promote(a->dt, b->dt), few;
	const struct ix *size[PL_MAX_RANK], *m = a->size[nb], *k = a->size[nb + 1], *nn = b->size[nb + 1];
	struct anchor *s;

	pl_guard_eq(pl, k, b->size[nb], "the inner sizes of a matrix product");
	a = pl_cast(pl, a, dt);
	b = pl_cast(pl, b, dt);
	few = is_small(pl, a, nn) || (is_sliver(pl, a, nn) && ix_num(m) > 1 && ix_num(nn) > 1);
	if (few) {
		store_base(pl, a);
		store_base(pl, b);
	}
	if (few || ix_num(m) == 1 || ix_num(nn) == 1 || ix_num(k) <= 4 || !(dt == WW_F32 || pl_is_half(dt)))
		return pl_cast(pl, by_reduction(pl, pl_cast(pl, a, out), pl_cast(pl, b, out)), out);
	if (pl->target == WW_TARGET_CUDA) {
		a = pl_constants_below(pl, a);
		b = pl_constants_below(pl, b);
	}
	s = pl_anchor(pl, n, S_GEMM, "gemm");
	memcpy(size, a->size, sizeof(size));
	size[nb + 1] = nn;
	s->gemm.n_batch = nb;
	pl_anchor_operand(s, a);
	pl_anchor_operand(s, b);
	return pl_anchor_out(pl, s, out, nb + 2, size);
}

struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	return pl_gemm_to(pl, n, a, b, pl_promote(a->dt, b->dt));
}

/* Unit stride along rows or columns, and one stride from batch to batch; or two, for gemm_mma. */
static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	const struct ix *const *st = o->stride;
	int nb = s->gemm.n_batch, r = nb + 2, by_row, by_col;

	by_row = ix_num(st[r - 1]) == 1 && ix_num(st[r - 2]) > 0;
	by_col = ix_num(st[r - 2]) == 1 && ix_num(st[r - 1]) > 0;
	if (!by_row && !(by_col && (which == 1 || pl->target == WW_TARGET_CUDA)))
		return 0;
	if (pl_gemm_one_stride(o, 0, nb))
		return 1;
	return pl->target == WW_TARGET_CUDA && pl->dev.cc >= 80 && !pl_all_plain(pl) && pl_gemm_one_stride(o, 0, nb - 1) &&
		pl_gemm_reads_two_strides(pl, s, which);
}

/* Free if our tiles compute the product, not the library. */
static int ends_free(struct pl *pl, const struct anchor *s)
{
	int library = 0;
	double us;

	if (pl->target == WW_TARGET_CPU || pl_all_plain(pl))
		return 1;
	pl_gemm_best_form(pl, s, NULL, &library, &us);
	return !library;
}

static int ends_for(struct pl *pl, const struct anchor *s, int reads) { return pl_gemm_pays(pl, s, s, reads); }

/* The operands of the transposed product: the second one's columns are its rows, and the first one's rows its columns,
 * of one matrix `rows` for each of so many items (NULL: as they are). */
static void exchange(
	struct pl *pl, struct anchor *s, const struct ix *items, const struct ix *rows, const struct operand *from)
{
	int nb = s->gemm.n_batch;

	for (int i = 0; i < 2; i++) {
		struct operand *o = &s->in[i];

		*o = from[1 - i];
		for (int d = 0; d < 2; d++) {
			o->size[nb + d] = from[1 - i].size[nb + 1 - d];
			o->stride[nb + d] = from[1 - i].stride[nb + 1 - d];
		}
		if (!items)
			continue;
		for (int d = 2; d > 0; d--) {
			o->size[d] = o->size[d - 1];
			o->stride[d] = o->stride[d - 1];
		}
		o->rank = 3;
		o->size[0] = items;
		o->stride[0] = i ? ix_mul(pl, rows, o->stride[2]) : ix_const(pl, 0);
		if (i)
			o->size[2] = rows;
	}
	s->gemm.n_batch = items ? 1 : nb;
}

/* Is the transposed product slower by no more than its result takes to be read once?  What reads it across memory, or
 * passes over it to turn it, takes at least that longer. */
static int turn(struct pl *pl, struct anchor *s, const struct ix *items, const struct ix *rows, int reads)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	struct val *o = s->out, *out;
	struct anchor t = *s;
	int nb = s->gemm.n_batch, rank = nb + 2 + (items != NULL);

	if (rank > PL_MAX_RANK || s->computes)
		return 0;
	exchange(pl, &t, items, rows, s->in);
	for (int d = 0; d < nb; d++) {
		size[d] = o->size[d];
		map[d] = pl->place[d];
	}
	if (items) {
		size[0] = items;
		map[0] = ix_div(pl, pl->place[0], rows);
	}
	size[rank - 2] = o->size[nb + 1];
	size[rank - 1] = items ? rows : o->size[nb];
	map[rank - 2] = pl->place[nb + 1];
	map[rank - 1] = items ? ix_mod(pl, pl->place[0], rows) : pl->place[nb];
	out = t.out = pl_val(pl, V_ANCHOR, o->dt, rank, size);
	out->node = o->node;
	out->result = o->result;
	out->anchor = s;
	if (!pl_gemm_turn_pays(pl, s, &t, reads))
		return 0;
	if (items)
		pl_guard_eq(pl, ix_mul(pl, items, rows), o->size[0], "the rows of a product that is turned");
	*s = t;
	o->kind = V_VIEW;
	o->anchor = NULL;
	o->arg[0] = out;
	o->n_arg = 1;
	memcpy(o->map, map, sizeof(map));
	return 1;
}

/* cpu: has A so few rows that B is not packed but read once in place, with vectors along k?  Each element then costs a
 * sum across lanes, which does not pay for a short k. */
static int is_thin(const struct anchor *sp, const struct knobs *kn)
{
	int64_t m = ix_num(sp->out->size[sp->gemm.n_batch]), k = ix_num(pl_gemm_inner(sp)),
			most = pl_gemm_dt(sp) == WW_F32 ? 32 : 64;

	return pl_gemm_is_nk(sp) && kn->cpu_gemm.form != 1 && (kn->cpu_gemm.form == 2 || m <= ww_min(most, 8 + k / 4));
}

/* The library can do all that kernel k does. */
static int ends_in_library(struct pl *pl, const struct kern *k, struct pl_end *end)
{
	return k->out[0]->root && pl_ends_as(pl, k, end);
}

static void choose(struct pl *pl, const struct kern *k, struct loop *l)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct pl_end end;
	double us;
	int library = 0,
		strides = pl_gemm_one_stride(&sp->in[0], 0, sp->gemm.n_batch) &&
		pl_gemm_one_stride(&sp->in[1], 0, sp->gemm.n_batch);
	int half = pl_gemm_dt(sp) != WW_F32, tiles = pl->dev.cc == 90 && strides && (!half || pl_gemm_fits16(sp));

	l->outer = pl_sizes(pl, sp->out, 0, sp->gemm.n_batch);
	if (sp->computes) {
		l->form = MMA;
		return;
	}
	if (pl->target == WW_TARGET_CPU) {
		l->form = is_thin(sp, kn) ? THIN : ANY;
		return;
	}
	l->form = kn->plain ? ANY : pl_gemm_best_form(pl, sp, ends_in_library(pl, k, &end) ? &end : NULL, &library, &us);
	if (kn->gemm.form == 1 && l->form != ANY)
		l->form = MMA;
	else if (kn->gemm.form == 2 && tiles)
		l->form = half ? HALF : SPLIT;
	if (kn->library)
		library = kn->library != LIBRARY_NO;
	l->library = (l->form >= HALF ? OURS_TILED : 0) | (library && pl_gemm_fits_library(sp) ? BY_LIBRARY : 0);
}

double pl_gemm_us(struct pl *pl, struct kern *k)
{
	struct pl_end end;
	int library;
	double us;

	pl_gemm_best_form(pl, k->anchor, ends_in_library(pl, k, &end) ? &end : NULL, &library, &us);
	return us;
}

static int reads_operands(struct pl *pl, const struct kern *k)
{
	struct loop l = { 0 };

	choose(pl, k, &l);
	return pl->target == WW_TARGET_CUDA && l.form == ANY && !(l.library & BY_LIBRARY);
}

/* The statements of load(), by which gemm_mma_of computes vectors of the first operand; l->vec: their elements. */
static void build_operand(struct pl *pl, struct kern *k)
{
	const struct operand *a = &k->anchor->in[0];
	const struct ix *inner = pl_gemm_inner(k->anchor), *along, *idx[PL_MAX_RANK];
	struct loop *l = k->loop;

	along = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), inner);
	pl_operand_place(k->anchor, 0, k->anchor_idx, along, idx);
	l->lane = ix_as_var(along);
	l->width = pl_widest(inner, 16 / pl_itemsize(a->val->dt));
	do {
		l->singly = 0;
		l->load = pl_load_body(pl, k, "c", idx);
		l->vec = l->width;
	} while (l->singly && (l->width /= 2));
}

static void build(struct pl *pl, struct kern *k)
{
	const struct val *out = k->anchor->out;
	int nb = k->anchor->gemm.n_batch;
	struct loop *l = k->loop;
	struct pl_end end = { .alpha = 1 };
	int whole = ends_in_library(pl, k, &end);

	if (k->anchor->computes)
		build_operand(pl, k);
	l->lane = pl_lane_of(pl, k, nb + 1);
	choose(pl, k, l);
	l->width = ix_num(out->size[nb + 1]) % 2 || (pl->target == WW_TARGET_CUDA && (l->form == THIN || l->form == SHORT))
		? 1
		: 2;
	/* A pass over the result; of few columns (16, 32) wider accesses were slower (.9, H200). */
	if (pl->target == WW_TARGET_CUDA && (l->library & BY_LIBRARY) && !whole && ix_num(out->size[nb + 1]) >= 64)
		l->width = (int)ww_max(l->width, pl_store_width(pl, k, "col", 16 / pl_itemsize(pl_gemm_library_dt(k->anchor))));
	else if (l->form == HALF && pl_store_width(pl, k, "col", 8) == 8)
		l->width = 8;
	if (!(l->library & BY_LIBRARY) || !whole)
		l->store = pl_store_body(pl, k, "col");
	else if (end.bias)
		pl_kern_arg(pl, k, end.bias);
	if (!l->store && end.added)
		pl_kern_arg(pl, k, end.added);
	for (int i = 0; i < 2 && reads_operands(pl, k); i++)
		pl_kern_arg(pl, k, k->anchor->in[i].buf);
}

const struct anchor_ops pl_gemm_ops = { .header = "gemm",
	.by_library = "products",
	.stores_fp32 = 1,
	.fuses = FUSES_READER,
	.computes = pl_gemm_computes,
	.fits = fits,
	.reads_operands = reads_operands,
	.ends_free = ends_free,
	.ends_for = ends_for,
	.turn = turn,
	.build = build,
	.knobs = { pl_gemm_cpu_knobs, pl_gemm_cuda_knobs },
	.print = { pl_gemm_print_cpu, pl_gemm_print_cuda } };
