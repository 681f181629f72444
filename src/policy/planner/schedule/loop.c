/* loop.c - the loops of pointwise and row kernels.
 *
 * Pointwise: one pass, without reductions; vectors run along the last axis.  Rows: a pass over the columns for each
 * stage of reductions, then one that writes; what a later pass needs again is read again, or kept where that is
 * cheaper: on the cpu in the thread's scratch (keep.c), on cuda in registers.  Softmaxes and norms go to the cookbook's
 * skeletons on the cpu (skeleton.c).  Where memory runs along the rows (softmax over channels), each lane is a row.  On
 * the cpu an expression without a vector form makes the kernel scalar. */
#include "policy/planner/schedule/schedule.h"

#include <math.h>
#include <string.h>

const struct ix *pl_extent(struct pl *pl, const struct ix_atom *const *axis, int n)
{
	const struct ix *x = ix_const(pl, 1);

	for (int i = 0; i < n; i++)
		x = ix_mul(pl, x, axis[i]->b);
	return x;
}

int pl_scans(const struct kern *k)
{
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->scans)
			return 1;
	return 0;
}

int pl_stores_per_column(const struct kern *k)
{
	for (int o = 0; o < k->n_out; o++)
		for (int d = 0; d < k->out[o]->rank; d++)
			for (int c = 0; c < k->n_col; c++)
				if (ix_has(k->out_idx[o][d], k->col[c]))
					return 1;
	return 0;
}

void pl_red_element(const struct kern *k, int i, const struct ix **idx)
{
	memcpy(idx, k->red_idx[i], (size_t)k->red[i]->rank * sizeof(*idx));
	memcpy(idx + k->red[i]->rank, k->ocol, (size_t)k->n_ocol * sizeof(*idx));
}

/* ---- The lane ---------------------------------------------------------------------------------------------------- */

enum { SECTOR = 8 }; /* floats that memory is read by: 32 bytes */

/* Places that are read along memory by the columns, and by the rows; near: by rows at most SECTOR elements apart. */
struct lines {
	double col, row, near;
};

/* How many places the kernel visits through an offset: one for each value of the axes in it, or each element of the
 * index space where data says which; 0 where no column changes it. */
static double places(const struct kern *k, const struct ix *off)
{
	int by_column = ix_looks_up(off);
	double n = 1;

	for (int c = 0; c < k->n_col; c++)
		by_column |= ix_has(off, k->col[c]);
	for (int d = 0; d < k->n_row + k->n_col; d++) {
		const struct ix_atom *v = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

		if (ix_has(off, v) || ix_looks_up(off))
			n *= (double)ix_num(v->b);
	}
	return by_column ? n : 0;
}

/* What an access counts for in the choice of axes: 1 where memory runs along v. */
static int runs_along(struct pl *pl, const struct ix *off, const struct ix_atom *v)
{
	const struct ix *coef, *rest;

	return ix_affine(pl, off, v, &coef, &rest) && ix_is(coef, 1);
}

/* cuda: lanes so many floats apart, either way, share sectors: two lanes or more each of them, or some lanes where the
 * distance is odd.  At an even distance beyond half a sector a lane reads vectors along the columns instead. */
static int shares_sectors(int64_t step)
{
	int64_t distance = step < 0 ? -step : step;

	return distance <= SECTOR / 2 || (distance < SECTOR && distance % 2);
}

static void count_lines(
	struct pl *pl, const struct kern *k, const struct ix *off, const struct ix_atom *lane, struct lines *l)
{
	int cuda = pl->target == WW_TARGET_CUDA;
	const struct ix *coef, *rest;

	if (ix_affine(pl, off, k->col[k->n_col - 1], &coef, &rest) && (ix_is(coef, 1) || (!cuda && ix_is(coef, -1))))
		l->col += places(k, off);
	if (ix_affine(pl, off, lane, &coef, &rest) &&
		(cuda ? !ix_is(coef, 0) && shares_sectors(ix_num(coef)) : ix_is(coef, 1) || ix_is(coef, -1)))
		l->row += places(k, off);
	if (ix_affine(pl, off, lane, &coef, &rest) && ix_num(coef) >= 1 && ix_num(coef) <= SECTOR)
		l->near += places(k, off);
}

/* How full vectors along so many elements are. */
static double filled(const struct pl *pl, int64_t n)
{
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4);

	return (double)n / (double)((n + lanes - 1) / lanes * lanes);
}

/* Rows that lie beside each other, from which on a lane is a row: of windows that overlap fewer, since a lane for each
 * of their elements reads what other windows read, too (3 x 3 of images of 14 x 14: 998 us, a row each 110 by count).
 */
enum { LEAST_BESIDE = 16, LEAST_OVERLAPPING = 4 };

/* Does the kernel visit each element of b several times, for so many rows that threads for all of them fill the
 * machine? */
static int overlaps(struct pl *pl, const struct kern *k, const struct ix *off, const struct buf *b)
{
	double elements = 1, rows = 1;

	for (int d = 0; d < k->n_row; d++)
		rows *= (double)ix_num(k->row[d]->b);
	for (int d = 0; d < b->rank; d++)
		elements *= (double)ix_num(b->size[d]);
	return rows >= 1024.0 * pl->dev.sm_count && !ix_looks_up(off) && places(k, off) >= 2 * elements;
}

/* Does memory run along the rows, axis `lane` of them?  Few columns and more rows (pooling windows, small kernels) suit
 * a lane for each row as well, unless what is stored runs along the columns: a store of 4 bytes costs as much as one of
 * 32, and later passes over the columns read the cache.  cpu: where neither reads what lies near (a reflection), only
 * columns that fill less than half a vector. */
static int memory_along(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct lines *loads)
{
	const struct ix *off[512];
	int cuda = pl->target == WW_TARGET_CUDA;
	struct buf *buf[512];
	struct lines stores = { 0 };
	int64_t n_col, n_row = ix_num(lane->b), least = LEAST_BESIDE;

	*loads = (struct lines){ 0 };
	for (int i = 0, n = cuda ? pl_all_loads(pl, k, off, buf, 512) : pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		count_lines(pl, k, off[i], lane, loads);
		least = cuda && ix_has(off[i], lane) && overlaps(pl, k, off[i], buf[i]) ? LEAST_OVERLAPPING : least;
	}
	for (int o = 0; o < k->n_out && cuda; o++)
		count_lines(pl, k, pl_offset(pl, k->out[o]->root, k->out_idx[o]), lane, &stores);
	n_col = ix_num(cuda ? pl_extent(pl, k->col, k->n_col) : k->col[k->n_col - 1]->b);
	if (loads->row > loads->col + 4 * stores.col)
		return 1;
	return cuda ? n_col < 64 && n_row >= least && loads->row > 0 && stores.col == 0
				: n_col < 16 && filled(pl, n_row) > filled(pl, n_col) && loads->near >= loads->col &&
			(loads->near > 0 || filled(pl, n_col) < 0.5);
}

/* Are the results stored along axis v, or not in its order at all? */
static int stored_along(struct pl *pl, const struct kern *k, const struct ix_atom *v)
{
	for (int o = 0; o < k->n_out; o++)
		if (!runs_along(pl, pl_offset(pl, k->out[o]->root, k->out_idx[o]), v))
			return 0;
	return 1;
}

/* Few results: one for 16 columns or more, beside which it does not count where they are stored; of windows, which
 * nothing is read along, for 4. */
static int stores_little(struct pl *pl, const struct kern *k, const struct lines *loads)
{
	return !pl_stores_per_column(k) && ix_num(pl_extent(pl, k->col, k->n_col)) >= (loads->col > 0 ? 16 : 4);
}

/* On cuda another axis of the rows becomes the last one, where what is read and what is stored both run along it (a
 * result with the channels innermost; a norm along another axis of an operand with the channels innermost), and no less
 * is read along it than along the last one: statistics of each channel say little of where the image lies. */
static int memory_along_rows(struct pl *pl, struct kern *k)
{
	struct lines last, loads;
	int along_last;

	if (!k->n_row)
		return 0;
	along_last = memory_along(pl, k, k->row[k->n_row - 1], &last);
	for (int d = 0; d < k->n_row - 1 && pl->target == WW_TARGET_CUDA; d++) {
		const struct ix_atom *v = k->row[d];

		if (memory_along(pl, k, v, &loads) && loads.row >= last.row &&
			(stored_along(pl, k, v) || stores_little(pl, k, &loads))) {
			memmove(&k->row[d], &k->row[d + 1], (size_t)(k->n_row - 1 - d) * sizeof(*k->row));
			k->row[k->n_row - 1] = v;
			return 1;
		}
	}
	return along_last;
}

/* Is v long enough that threads side by side along it fill sectors, and does memory run along it? */
static int runs_long(struct pl *pl, struct kern *k, const struct ix_atom *v)
{
	struct lines loads;

	return ix_num(v->b) >= SECTOR && memory_along(pl, k, v, &loads);
}

/* cuda: does memory run along the remainders, or the quotients, of the last axis of the rows by a size that an operand
 * takes quotients of it by (the rows of a product that another dimension of its operand lies inside of; channels that
 * were shuffled)?  The axis is two then. */
static int memory_along_part(struct pl *pl, struct kern *k)
{
	const struct kern whole = *k;
	const struct ix_atom *lane = k->n_row ? k->row[k->n_row - 1] : NULL;
	const struct ix *off[512], *size = NULL;
	struct buf *buf[512];
	int n_var = pl->n_var, last = k->n_row;

	for (int i = 0, n = lane ? pl_kern_loads(pl, k, off, buf, 512) : 0; i < n && !size; i++)
		size = pl_axis_divisor(off[i], lane);
	if (!size || k->n_row == PL_MAX_RANK)
		return 0;
	pl_split_axis(pl, k, last - 1, size);
	if (runs_long(pl, k, k->row[last]))
		return 1;
	const struct ix_atom *quotient = k->row[last - 1];
	k->row[last - 1] = k->row[last];
	k->row[last] = quotient;
	if (runs_long(pl, k, quotient))
		return 1;
	*k = whole;
	pl->n_var = n_var;
	return 0;
}

static int has_places(const struct kern *k)
{
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->red >= RED_ARGMAX)
			return 1;
	return 0;
}

/* ---- Statements -------------------------------------------------------------------------------------------------- */

struct writer {
	struct pl *pl;
	struct kern *k;
	struct loop *l;
	struct expr e;
	struct ww_str row, col;
};

/* What was written since the last call. */
static const char *cut(struct writer *w, struct ww_str *s)
{
	const char *t = s->p;

	*s = pl_text(w->pl);
	return t;
}

const char *pl_linear_column(struct pl *pl, struct kern *k)
{
	const struct ix *lin = ix_const(pl, 0);

	for (int c = 0; c < k->n_col; c++)
		lin = ix_add(pl, ix_mul(pl, lin, k->col[c]->b), pl_of_var(pl, k->col[c]));
	return ix_text(pl, lin);
}

/* How sum i is called when it is done: "s" where the accumulator is of another type. */
static struct etext result_of(struct writer *w, int i)
{
	const struct val *r = w->k->red[i];
	int cpu = w->pl->target == WW_TARGET_CPU, vec = cpu && w->l->along == ROWS;

	if (r->scans)
		return (struct etext){ pl_fmt(w->pl, "scan%d[j][l]", i), 0, 2 };
	const char *name = r->red >= RED_ARGMAX ? cpu ? "w%d" : "((long long)w%d)"
		: cpu && !vec && (w->l->along == COLUMNS || (r->red == RED_SUM && r->arg[0]->dt == WW_F32)) ? "s%d"
																									: "a%d";

	return (struct etext){ pl_fmt(w->pl, name, i), vec, 1 };
}

static void write_step(struct writer *w, int i)
{
	const struct ix *idx[PL_MAX_RANK];
	struct val *r = w->k->red[i];
	struct step *s = &w->l->step[i];

	s->result = result_of(w, i);
	if (s->by) {
		s->centre = pl_gathered_about(&w->e, w->k, i).t;
		return;
	}
	pl_red_element(w->k, i, idx);
	w->e.self = r->root ? r : NULL;
	s->value = pl_expr(&w->e, r->arg[0], idx);
	s->before = cut(w, &w->col);
	if (w->e.vec && (!pl_is_float(r->arg[0]->dt) || r->arg[0]->dt == WW_F64))
		w->e.need_scalar = 1;
}

/* What earlier passes left in the scratch or in registers, before the statements of a pass; what it leaves, behind
 * them. */
static const char *cached_loads(struct writer *w, int stage)
{
	const char *s = "";

	for (int i = 0; i < w->l->n_cached; i++) {
		const struct pl_cached *c = &w->l->cached[i];

		if (c->stage >= stage)
			continue;
		if (w->pl->target == WW_TARGET_CUDA) {
			pl_expr_known(&w->e, c->val, c->idx,
				(struct etext){ pl_fmt(w->pl, w->e.down ? "kept%d[j][0]" : "kept%d[j][l]", i), 0, 2 });
			continue;
		}
		s = pl_fmt(
			w->pl, "%sconst ww_vf kept%d_v = ww_vf_load(kept%d + %s, n);\n", s, i, i, pl_linear_column(w->pl, w->k));
		pl_expr_known(&w->e, c->val, c->idx, (struct etext){ pl_fmt(w->pl, "kept%d_v", i), 1, 2 });
	}
	return s;
}

static void cached_stores(struct writer *w, int stage)
{
	for (int i = 0; i < w->l->n_cached; i++) {
		const struct pl_cached *c = &w->l->cached[i];
		struct etext t;

		if (c->stage != stage)
			continue;
		t = pl_expr(&w->e, c->val, c->idx);
		if (w->pl->target == WW_TARGET_CUDA) {
			ww_str_addf(&w->row, w->e.down ? "float kept%d[CH][1];\n" : "float kept%d[CH][V];\n", i);
			ww_str_addf(&w->col, w->e.down ? "kept%d[j][0] = %s;\n" : "kept%d[j][l] = %s;\n", i, t.t);
			continue;
		}
		ww_str_addf(&w->col,
			t.vec ? "ww_vf_store(kept%d + %s, %s, n);\n" : "ww_vf_store(kept%d + %s, ww_vf_set((float)%s), n);\n", i,
			pl_linear_column(w->pl, w->k), t.t);
	}
}

/* Vector loads of a cuda pass: those that were first needed in it, where earlier ones stay in registers. */
static void pass_loads(struct writer *w, struct pass *p)
{
	struct vload *load = pl_alloc(w->pl, sizeof(w->e.vload));

	for (int i = 0; i < w->e.n_vload; i++)
		if (w->e.vload[i].stage == p->stage) {
			load[p->n_load++] = w->e.vload[i];
			if (w->e.vload[i].apart)
				continue;
			w->l->terms = pl_cuda_terms(w->pl, w->l->terms, w->e.vload[i].base, w->e.lane);
			w->l->terms = pl_cuda_cond_terms(w->pl, w->l->terms, w->e.vload[i].cond, w->e.lane);
		}
	p->load = load;
}

static void write_pass(struct writer *w, int stage, const char *start, const char *cond)
{
	struct pass *p = &w->l->pass[w->l->n_pass++];
	struct kern *k = w->k;

	*p = (struct pass){ .stage = stage, .arrays = "", .after = "" };
	pl_expr_forget(&w->e, 2);
	if (w->pl->target == WW_TARGET_CUDA && !w->l->held)
		w->e.n_vload = 0;
	if (stage < k->n_stage || w->pl->target == WW_TARGET_CUDA)
		w->e.stage = stage;
	p->first = cached_loads(w, stage);
	w->e.inside = w->e.down && !w->l->held && stage < k->n_stage && pl_unrolled_down(w->pl, k) == ix_num(w->l->len)
		? ""
		: NULL;
	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == stage)
			write_step(w, i);
	if (stage == k->n_stage && w->pl->target == WW_TARGET_CUDA)
		p->after = pl_cuda_stores(&w->e, k, 2, start, &w->l->terms, &p->arrays, cond);
	else if (stage == k->n_stage)
		pl_cpu_stores(&w->e, k, 2);
	p->inside = w->e.inside ? w->e.inside : "";
	cached_stores(w, stage);
	p->last = cut(w, &w->col);
	p->row = cut(w, &w->row);
	if (w->pl->target == WW_TARGET_CUDA)
		pass_loads(w, p);
	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == stage) {
			w->e.red_text[i] = w->l->step[i].result;
			w->e.red_done[i] = 1;
		}
}

/* Outputs that no column changes, after the passes. */
static void write_finish(struct writer *w, const char *cond)
{
	const char *decl, *terms = "";

	pl_expr_forget(&w->e, 2);
	w->e.cuda_vec = 0;
	w->e.block[2] = &w->row;
	if (w->pl->target == WW_TARGET_CUDA)
		pl_cuda_stores(&w->e, w->k, 1, "", &terms, &decl, cond);
	else
		pl_cpu_stores(&w->e, w->k, 1);
	w->l->finish = cut(w, &w->row);
}

/* The same for a block of rows side by side, with a row in each lane. */
static void write_beside(struct writer *w)
{
	pl_expr_forget(&w->e, 1);
	w->e.lane = w->l->side;
	w->e.block[1] = w->e.block[2] = &w->row;
	for (int i = 0; i < w->k->n_red; i++)
		w->e.red_text[i] = (struct etext){ pl_fmt(w->pl, "all%d", i), 1, 1 };
	pl_cpu_stores(&w->e, w->k, 1);
	w->l->finish = cut(w, &w->row);
}

static int has_stage(const struct kern *k, int stage)
{
	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == stage)
			return 1;
	return 0;
}

/* Write all passes; 0 where the vectors that were asked for have no form. */
static int write_loop(struct pl *pl, struct kern *k, const char *start, const char *cond, const char *row_cond)
{
	struct writer w = { .pl = pl, .k = k, .l = k->loop, .row = pl_text(pl), .col = pl_text(pl) };
	struct loop *l = k->loop;
	int cuda = pl->target == WW_TARGET_CUDA;

	l->lane = l->along == ROWS || !k->n_col ? k->row[k->n_row - 1] : k->col[k->n_col - 1];
	pl_expr_init(&w.e, pl, k);
	w.e.vec = !cuda && l->along != SCALARS;
	w.e.down = cuda && l->along == ROWS;
	w.e.cuda_vec = cuda && (l->along == COLUMNS || (w.e.down && l->held));
	w.e.vload_index = w.e.down ? "[j][0]" : l->held ? "[j][l]" : l->asks_ahead ? "[u][l]" : "[l]";
	w.e.lane = cuda || w.e.vec ? l->lane : NULL;
	w.e.block[1] = &w.row;
	w.e.block[2] = &w.col;
	l->n_pass = 0;
	l->terms = l->finish = "";
	for (int s = 0; s < k->n_stage; s++)
		if (has_stage(k, s))
			write_pass(&w, s, start, cond);
	if (k->kind == K_POINT || pl_stores_per_column(k)) /* a point of no dimensions has a column of one */
		write_pass(&w, k->n_stage, start, cond);
	else if (l->side)
		write_beside(&w);
	else
		write_finish(&w, row_cond);
	return !w.e.need_scalar;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Elements of 16 bytes, at most. */
static int widest(const struct kern *k)
{
	for (int i = 0; i < k->n_arg; i++)
		if (pl_itemsize(k->arg[i]->dt) >= 4 && k->arg[i]->dt != WW_I64)
			return 4;
	return 8;
}

enum { SPAN = 32 };

/* cuda: the same with at most SPAN bytes of an operand, beyond which a thread's accesses of 16 bytes, each in a line of
 * its own, take turns. */
static int widest_loads(const struct kern *k)
{
	const struct pass *p = &k->loop->pass[0];
	int n = widest(k);

	for (int i = 0; i < p->n_load; i++)
		n = (int)ww_min(n, SPAN / (pl_itemsize(p->load[i].buf->dt) * ww_max(1, p->load[i].apart)));
	return n;
}

static int64_t elements_of(const struct buf *b)
{
	int64_t n = 1;

	for (int d = 0; d < b->rank; d++)
		n *= ix_num(b->size[d]);
	return n;
}

/* Elements that are read and written along axis v, but not along the lane.  Where data says a place, all rows may. */
static double along_only(
	struct pl *pl, struct kern *k, const struct ix_atom *v, const struct ix_atom *lane, int *itemsize)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int n = pl_kern_loads(pl, k, off, buf, 500);
	double sum = 0;

	for (int o = 0; o < k->n_out && n < 512; o++) {
		off[n] = pl_offset(pl, k->out[o]->root, k->out_idx[o]);
		buf[n++] = k->out[o]->root;
	}
	for (int i = 0; i < n; i++) {
		double places = 1;

		if (!ix_has(off[i], lane) || runs_along(pl, off[i], lane) || !runs_along(pl, off[i], v))
			continue;
		for (int d = 0; d < k->n_row; d++)
			places *= ix_has(off[i], k->row[d]) || ix_looks_up(off[i]) ? (double)ix_num(k->row[d]->b) : 1;
		if (ix_looks_up(off[i]))
			places = fmin(places, (double)elements_of(buf[i]));
		*itemsize = places > sum ? pl_itemsize(buf[i]->dt) : *itemsize;
		sum += places;
	}
	return sum;
}

/* Does `off` run along the remainders of v by size, or along the quotients, at least 8 of them? */
static int along_part(struct pl *pl, const struct ix *off, const struct ix_atom *v, const struct ix *size)
{
	const struct ix *n = ix_div(pl, v->b, size), *part = ix_var(pl, "part", n), *rest = ix_var(pl, "rest", size),
					*e = ix_add(pl, ix_mul(pl, part, size), rest), *split = ix_subst(pl, off, &v, &e, 1);

	return (ix_num(size) >= 8 && runs_along(pl, split, ix_as_var(rest))) ||
		(ix_num(n) >= 8 && runs_along(pl, split, ix_as_var(part)));
}

/* A row of which one operand takes quotients and remainders by a size, and lies along one of them, becomes two (the
 * batches and channels of a product's rows; channels that were shuffled). */
static void split_across(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512];
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		for (int d = 0; d < k->n_row - 1 && k->n_row < PL_MAX_RANK; d++) {
			const struct ix *size = pl_axis_divisor(off[i], k->row[d]);

			if (!size || !ix_has(off[i], lane) || runs_along(pl, off[i], lane) ||
				!along_part(pl, off[i], k->row[d], size))
				continue;
			pl_split_axis(pl, k, d, size);
			n = pl_kern_loads(pl, k, off, buf, 512);
		}
}

/* The rows of k, and an operand's offset through them, as they are once they were split by all sizes that it takes
 * quotients and remainders of them by. */
struct split_rows {
	const struct ix_atom *row[PL_MAX_RANK];
	const struct ix *off;
	int n;
};

static void split_row(struct pl *pl, struct split_rows *s, int d, const struct ix *size)
{
	const struct ix_atom *v = s->row[d];
	const struct ix *q = ix_var(pl, "quotient", ix_div(pl, v->b, size)), *r = ix_var(pl, "remainder", size),
					*e = ix_add(pl, ix_mul(pl, q, size), r);

	s->off = ix_subst(pl, s->off, &v, &e, 1);
	memmove(&s->row[d + 2], &s->row[d + 1], (size_t)(s->n - d - 1) * sizeof(*s->row));
	s->row[d] = ix_as_var(q);
	s->row[d + 1] = ix_as_var(r);
	s->n++;
}

static struct split_rows split_all(struct pl *pl, const struct kern *k, const struct ix *off)
{
	struct split_rows s = { .off = off, .n = k->n_row - 1 };
	const struct ix *size;

	memcpy(s.row, k->row, (size_t)s.n * sizeof(*s.row));
	for (int d = 0; d < s.n; d++)
		while (s.n < PL_MAX_RANK - 1 && (size = pl_axis_divisor(s.off, s.row[d])))
			split_row(pl, &s, d, size);
	return s;
}

/* The row that the offset steps along by `step`; -1: none. */
static int row_of_step(struct pl *pl, const struct split_rows *s, const struct ix *step)
{
	const struct ix *coef, *rest;

	for (int d = 0; d < s->n; d++)
		if (ix_has(s->off, s->row[d]) && ix_affine(pl, s->off, s->row[d], &coef, &rest) && ix_same(coef, step))
			return d;
	return -1;
}

/* k's own rows as those of s, of its i-th load. */
static void split_as(struct pl *pl, struct kern *k, const struct split_rows *s, int i)
{
	const struct ix *off[512], *size;
	struct buf *buf[512];

	pl_kern_loads(pl, k, off, buf, 512);
	for (int d = 0; k->n_row - 1 < s->n; d++)
		while (k->n_row - 1 < s->n && (size = pl_axis_divisor(off[i], k->row[d]))) {
			pl_split_axis(pl, k, d, size);
			pl_kern_loads(pl, k, off, buf, 512);
		}
}

/* Rows a and b of k, b being the inner one in an operand's memory, become one, the last one ahead of the lane. */
static void join_rows(struct pl *pl, struct kern *k, int a, int b)
{
	const struct ix_atom *outer = k->row[a], *inner = k->row[b], *lane = k->row[k->n_row - 1];
	int n = 0;

	for (int d = 0; d < k->n_row - 1; d++)
		if (d != a && d != b)
			k->row[n++] = k->row[d];
	k->row[n] = outer;
	k->row[n + 1] = inner;
	k->row[n + 2] = lane;
	pl_join_axes(pl, k, n);
}

/* cuda: memory of an operand that lies across may run along two rows, the inner one of them shorter than a sector
 * (patches of 4 x 4 pixels, whose channels become the last dimension): they become one row of whole sectors. */
static void join_across(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512];
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		struct split_rows s = split_all(pl, k, off[i]);
		int inner = row_of_step(pl, &s, ix_const(pl, 1)), outer = -1;

		if (inner >= 0 && ix_has(off[i], lane) && ix_num(s.row[inner]->b) < SECTOR)
			outer = row_of_step(pl, &s, s.row[inner]->b);
		if (outer < 0)
			continue;
		split_as(pl, k, &s, i);
		join_rows(pl, k, outer, inner);
		return;
	}
}

enum { APART = 8 }; /* lanes so many elements apart read vectors, of which they take theirs (load_apart()) */

/* cuda: lanes that are some elements apart read all of memory between them, which other rows use (the parity of a
 * pixel that becomes a channel).  These rows become the last ones: threads of a block then, for which the first level
 * keeps it. */
static void share_vectors(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		int64_t apart = ix_has(off[i], lane) && ix_affine(pl, off[i], lane, &coef, &rest) ? ix_num(coef) : 0;

		if (apart < 2 || apart > APART)
			continue;
		struct split_rows s = split_all(pl, k, off[i]);
		int at = s.n - 1;

		while (at >= 0 &&
			!(ix_has(s.off, s.row[at]) && ix_affine(pl, s.off, s.row[at], &coef, &rest) && ix_num(coef) > 0 &&
				ix_num(coef) * ix_num(s.row[at]->b) <= apart))
			at--;
		if (at < 0)
			continue;
		split_as(pl, k, &s, i);
		const struct ix_atom *v = k->row[at];
		memmove(&k->row[at], &k->row[at + 1], (size_t)(k->n_row - 2 - at) * sizeof(*k->row));
		k->row[k->n_row - 2] = v;
		return;
	}
}

enum { SLAB = 16384 }; /* bytes, of which the first level holds one for each block of a multiprocessor */

/* cuda: is what lies across, along v, in slabs of few elements each way (37 x 53), which a block reads from the first
 * level but for the first time?  The lane is odd, so that a thread has one element, and so is the distance of lanes: no
 * two of them are in a bank.  Threads along what is stored then take no longer than tiles, and store whole lines
 * (480 x 33 x 53 x 37 repeated of a transposition: 150 us in tiles, torch.compile, along lines, 90, H200). */
static int is_slab(struct pl *pl, struct kern *k, const struct ix_atom *v, const struct ix_atom *lane)
{
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];

	for (int o = 0; o < k->n_out; o++)
		if (!runs_along(pl, pl_offset(pl, k->out[o]->root, k->out_idx[o]), lane))
			return 0;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		if (!ix_has(off[i], lane) || runs_along(pl, off[i], lane))
			continue;
		if (!ix_affine(pl, off[i], lane, &coef, &rest) || ix_num(coef) % 2 == 0 || !runs_along(pl, off[i], v) ||
			ix_num(lane->b) * ix_num(v->b) * pl_itemsize(buf[i]->dt) > SLAB)
			return 0;
	}
	return ix_num(lane->b) % 2 != 0;
}

/* Where operands lie across each other, as behind a permutation, the axis that the others run along becomes the last
 * one of the rows.  cuda: a warp does a tile, 32 bytes along that axis, the rest along the lane, so that both are read
 * by whole sectors.  cpu: a block does a few columns of all rows before the next ones, so that a line that is read
 * across is in the first-level cache until all of it was used.  Returns the rows of a warp's tile; *itemsize: bytes of
 * an element that lies across. */
static int place_across(struct pl *pl, struct kern *k, int *itemsize)
{
	const struct ix_atom *lane = k->row[k->n_row - 1], *v;
	int best = -1, size = 4;
	double most = 1 << 16;                                         /* in the cache of one multiprocessor anyhow */
	int cuda = pl->target == WW_TARGET_CUDA, least = cuda ? 4 : 8; /* of the lane: a warp's tile, a vector */

	if (cuda) {
		split_across(pl, k);
		join_across(pl, k);
	}
	for (int d = 0; d < k->n_row - 1; d++) {
		double n = along_only(pl, k, k->row[d], lane, &size);

		if (n > most && ix_num(k->row[d]->b) >= 8 && ix_num(lane->b) >= least) {
			most = n;
			best = d;
			*itemsize = size;
		}
	}
	if (best < 0 || (cuda && is_slab(pl, k, k->row[best], lane)))
		return 0;
	v = k->row[best];
	memmove(&k->row[best], &k->row[best + 1], (size_t)(k->n_row - 2 - best) * sizeof(*k->row));
	k->row[k->n_row - 2] = v;
	return (int)ww_min(ix_num(lane->b) % 2 ? 8 : 16, 32 / *itemsize); /* odd: a thread has one element of the lane */
}

enum { IN_CACHE = 1 << 24, LONG_RUN = 64 }; /* bytes: below a third of the second level's; two sectors */

enum { READ_AGAIN = 4 };

/* Is load i, whose place data says, one of whole runs along the lane, few of which are read again?  Then it comes from
 * memory about once in any order.  The data are integers that do not change along the lane. */
static int reads_runs(struct pl *pl, const struct kern *k, const struct ix *const *off, struct buf *const *buf, int n,
	int i, int64_t elements)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];

	for (int j = 0; j < n; j++)
		if (pl_is_int(buf[j]->dt) && ix_has(off[j], lane))
			return 0;
	return runs_along(pl, off[i], lane) && places(k, off[i]) < (double)(READ_AGAIN * elements);
}

/* cuda: places that data says, along an axis that the rows go by outside of another one (gather along the first
 * dimension), in an operand beyond the cache: rows go along the data's axis first, since what they read then is the
 * operand's part for one index of the other axes.  What is written then is rows far apart, so not where that gains
 * nothing. */
static void gather_inside(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int best = -1, last = k->n_row - 2; /* the lane is the last axis */
	int64_t most = IN_CACHE;

	if (last < 1 || ix_num(k->row[last + 1]->b) * pl_itemsize(k->out[0]->dt) < LONG_RUN)
		return;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		int64_t elements = elements_of(buf[i]), bytes = elements * pl_itemsize(buf[i]->dt);
		int free = -1, inner = 0;

		for (int d = 0; d <= last; d++) {
			if (free < 0 && !ix_has(off[i], k->row[d]))
				free = d;
			inner |= free >= 0 && ix_has(off[i], k->row[d]);
		}
		if (ix_looks_up(off[i]) && inner && bytes > most && !reads_runs(pl, k, off, buf, n, i, elements)) {
			most = bytes;
			best = free;
		}
	}
	if (best >= 0) {
		const struct ix_atom *v = k->row[best];

		memmove(&k->row[best], &k->row[best + 1], (size_t)(last - best) * sizeof(*k->row));
		k->row[last] = v;
	}
}

/* cpu: as many streams of lines are foreseen by the processor (4.7 MB turned, from memory: 300 us; with 128 580 us). */
enum { ACROSS_COLUMNS = 32, TURNED_ROWS = 32, TURNED_VECTOR = 8 };

enum { STREAM_FROM = 6 };

int pl_streams(struct pl *pl, struct kern *k, const struct ix_atom *lane)
{
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4), length = ix_num(lane->b);
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];

	if (k->kind != K_POINT || length % lanes == 0 || length >= STREAM_FROM * lanes)
		return 1;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		if (ix_affine(pl, off[i], lane, &coef, &rest) && (ix_num(coef) < 0 || ix_num(coef) > SECTOR))
			return 1;
	return 0;
}

/* Rows that are not whole vectors start anywhere in a line, and stores around the caches want whole lines: such a row
 * starts with the floats before the first one.  Returns where the first output of that kind stores column `lane`. */
static const char *streamed(struct pl *pl, struct kern *k)
{
	const struct loop *l = k->loop;
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4), length = ix_num(l->lane->b);

	if (l->along != COLUMNS || length % lanes == 0 || length < 2 * lanes || !pl_streams(pl, k, l->lane))
		return NULL;
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, k->out[o]->root, k->out_idx[o]);

		if (k->out[o]->root->kind == B_OUTPUT && k->out[o]->root->dt == WW_F32 && runs_along(pl, off, l->lane))
			return pl_fmt(pl, "%s + %s", k->out[o]->root->name, ix_text(pl, off));
	}
	return NULL;
}

enum { SHORT_LANE = 128 };

/* Lanes so short that what finds a row's place costs as much as the row: a loop over the rows before the last axis is
 * inside, as long as enough others are left. */
static int is_short(const struct pl *pl, const struct kern *k)
{
	int64_t rows = 1;

	for (int d = 0; d < k->n_row - 1; d++)
		rows *= ix_num(k->row[d]->b);
	return k->n_row > 1 && ix_num(k->col[0]->b) <= SHORT_LANE && rows >= 4 * ww_max(1, pl->dev.threads) &&
		ix_num(k->row[k->n_row - 1]->b) * ix_num(k->col[0]->b) <= 16384;
}

static int or_else(int knob, int value) { return knob ? knob : value; }

/* cuda: does a block of a pointwise kernel stay in its row?  Where what no column changes is read once so, in rows of
 * many vectors; and where elements are done one by one, each of which would find its row anew. */
static int stays_in_row(struct pl *pl, struct kern *k)
{
	int64_t length = ix_num(k->loop->len), width = pl_widest(k->loop->len, widest(k));

	return width == 1 ? length >= PL_LONG_ROW / 2
					  : length >= PL_LONG_ROW * width && pl_reads_of_rows(pl, k, k->col[0]) > 0;
}

static int is_row(const struct kern *k, const struct ix_atom *a)
{
	for (int d = 0; d < k->n_row; d++)
		if (k->row[d] == a)
			return 1;
	return 0;
}

/* Is each place a sum of multiples of the rows?  Not so of windows, whose neighbours share what they load. */
static int is_plain(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		for (int m = 0; m < off[i]->n; m++)
			for (int a = 0; a < off[i]->m[m].n; a++)
				if (!is_row(k, off[i]->m[m].atom[a]) && !pl_is_size(pl, off[i]->m[m].atom[a]))
					return 0;
	return 1;
}

/* cuda: does a thread have neighbours of the axis that lies across, the last one of the rows, rather than of the lane?
 * Where no whole vectors divide the lane (an image of 75 x 75), but the other axis: a thread then loads a sector of
 * what lies along it, and a warp stores to so many lines one element each.  One element, or two, of the lane alone are
 * too little to be under way (61 x 64 x 75 x 75: 112 us, memory takes 63, H200).  Not of so few elements that
 * multiprocessors would be half empty. */
static int is_turned(struct pl *pl, struct kern *k, int itemsize)
{
	int64_t elements = 1;

	for (int d = 0; d < k->n_row; d++)
		elements *= ix_num(k->row[d]->b);
	return ix_num(k->row[k->n_row - 1]->b) % (16 / itemsize) && ix_num(k->row[k->n_row - 2]->b) % TURNED_VECTOR == 0 &&
		elements >= TURNED_VECTOR * 1024 * (int64_t)pl->dev.sm_count && is_plain(pl, k);
}

static void swap(const struct ix_atom **a, const struct ix_atom **b)
{
	const struct ix_atom *t = *a;

	*a = *b;
	*b = t;
}

/* Elements of the lane that are read and written at once, at the traced sizes; l->vec at most. */
static int vector_of(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	int n = pl_widest(l->len, l->vec);

	for (int i = 0; i < p->n_load; i++)
		while (n > 1 && !p->load[i].one && !p->load[i].apart &&
			!(pl_divides(p->load[i].base, l->lane, n) && pl_cond_divides(pl, p->load[i].cond, l->lane, n)))
			n /= 2;
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, k->out[o]->root, k->out_idx[o]);

		while (n > 1 && runs_along(pl, off, l->lane) && !pl_divides(off, l->lane, n))
			n /= 2;
	}
	return n;
}

enum { AHEAD = 4, AHEAD_LOADS = 4, AHEAD_COST = 40, AHEAD_BLOCKS = 8 };

/* Single elements of 16 bits, of few operands: twice as many are the same bytes and registers under way. */
static int most_ahead(int n_load, int bytes) { return bytes == 2 && n_load <= AHEAD_LOADS / 2 ? 2 * AHEAD : AHEAD; }

/* cuda: vectors of a thread of a pointwise kernel.  Several where one has less than 16 bytes (rows that no wider vector
 * divides): too little would be under way (4,872,713 floats one by one: 20.6 us, with eight ahead 16.5, H200).  Not of
 * so few elements that multiprocessors would be half empty, nor of expressions that need the registers. */
static int vectors_ahead(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	struct loop *l = k->loop;
	int vec = vector_of(pl, k), n_load = pl_all_loads(pl, k, off, buf, 512);
	int n = (int)ww_min(most_ahead(n_load, vec * pl_itemsize(k->out[0]->dt)), l->vec / vec);
	int64_t elements = ix_num(l->outer) * ix_num(l->len);

	if (n == 1 || k->n_out > 1 || !l->pass[0].n_load || *l->pass[0].row ||
		elements / (l->vec / n) < 256 * AHEAD_BLOCKS * (int64_t)pl->dev.sm_count)
		return 1;
	return n_load <= AHEAD_LOADS && pl_cost(pl, k->out[0], k->out_idx[0]) <= AHEAD_COST ? n : 1;
}

/* cuda: how many vectors a thread of a pointwise kernel computes before it stores the first, where their loads cannot
 * be written ahead: they are of single elements (of padded rows, or across memory), or wait for others (rows of a
 * table), and behind a store the compiler begins none.  1: it has one. */
static int vectors_in_turn(struct pl *pl, struct kern *k)
{
	const struct ix *off[AHEAD_LOADS + 1];
	struct buf *buf[AHEAD_LOADS + 1];
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	int n_off = pl_all_loads(pl, k, off, buf, AHEAD_LOADS + 1), looks_up = 0, vec = vector_of(pl, k), n;
	int bytes = vec * pl_itemsize(k->out[0]->dt);
	int64_t elements = ix_num(l->outer) * ix_num(l->len);

	for (int i = 0; i < n_off; i++)
		looks_up |= ix_looks_up(off[i]);
	n = (int)ww_min(most_ahead(n_off, bytes), ww_max(looks_up ? 2 : 1, 16 / bytes));
	if (n == 1 || k->n_out > 1 || !*p->after || (p->n_load && !looks_up) || n_off > AHEAD_LOADS ||
		elements / (vec * n) < 256 * AHEAD_BLOCKS * (int64_t)pl->dev.sm_count)
		return 1;
	return pl_cost(pl, k->out[0], k->out_idx[0]) <= AHEAD_COST ? n : 1;
}

/* The statements of a pointwise kernel by vectors.  0: they have no vector form. */
static int write_point(struct pl *pl, struct kern *k)
{
	struct loop *l = k->loop;

	l->outer = pl_extent(pl, k->row, l->n_row);
	l->len = k->col[0]->b;
	l->along = pl->target == WW_TARGET_CUDA && pl_knobs(pl, k->id)->plain ? SCALARS : COLUMNS;
	l->by_row = pl->target == WW_TARGET_CUDA && !l->across && !pl_knobs(pl, k->id)->plain && l->n_row &&
		stays_in_row(pl, k);
	return write_loop(pl, k, "c", l->by_row ? "if (live)\n\t" : "", "");
}

/* The rows of a pointwise kernel, and its column.  Returns whether that is the axis that lies across. */
static int place_point(struct pl *pl, struct kern *k)
{
	int cuda = pl->target == WW_TARGET_CUDA, plain = pl_knobs(pl, k->id)->plain, itemsize = 4, turned;
	struct loop *l = k->loop;

	if (!k->n_row)
		k->row[k->n_row++] = ix_as_var(ix_var(pl, "one", ix_const(pl, 1)));
	l->across = plain ? 0 : place_across(pl, k, &itemsize);
	turned = cuda && l->across && is_turned(pl, k, itemsize);
	if (turned)
		swap(&k->row[k->n_row - 2], &k->row[k->n_row - 1]);
	if (cuda && !plain && !l->across) {
		share_vectors(pl, k);
		gather_inside(pl, k);
	}
	k->col[k->n_col++] = k->row[--k->n_row];
	l->n_row = k->n_row;
	if (!cuda && !l->across && !plain && is_short(pl, k))
		l->inside = k->row[--l->n_row];
	return turned;
}

static void loop_point(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int cuda = pl->target == WW_TARGET_CUDA, turned = place_point(pl, k);
	struct loop *l = k->loop;

	if (turned && !write_point(pl, k)) {
		swap(&k->row[l->n_row - 1], &k->col[0]);
		turned = 0;
	}
	if (!turned && !write_point(pl, k)) {
		l->along = SCALARS;
		write_loop(pl, k, "c", "", "");
	}
	if (!cuda && !l->across && l->n_row)
		l->stream = streamed(pl, k);
	l->across = turned ? TURNED_ROWS : l->across;
	l->tile = l->across && !cuda ? ACROSS_COLUMNS : or_else(kn->cpu_point.tile, 16384);
	l->unroll = cuda ? or_else(kn->point.unroll, l->by_row ? 4 : 1) : or_else(kn->cpu_point.unroll, 4);
	l->threads = or_else(kn->point.threads, 256);
	l->vec = turned ? TURNED_VECTOR : l->along == COLUMNS ? widest_loads(k) : 1;
	if (cuda && k->n_out > 1 && k->out[0] == k->out[1]) /* pl_unroll(): what is stored is in registers until then */
		l->vec = k->n_out > 8 ? 1 : (int)ww_min(2, l->vec);
	if (cuda && l->along == COLUMNS && !l->by_row && !l->across && !kn->point.unroll)
		l->unroll = vectors_ahead(pl, k);
	l->asks_ahead = cuda && !l->by_row && !kn->point.unroll && l->unroll > 1;
	if (cuda && l->along == COLUMNS && !l->asks_ahead && !l->across && !kn->point.unroll) {
		int n = vectors_in_turn(pl, k);

		l->behind = n > 1;
		l->unroll = l->behind && !l->by_row ? n : l->unroll;
	}
	if (l->asks_ahead || l->behind)
		write_loop(pl, k, "c", "if (live)\n\t", "");
}

/* Of what follows the reductions. */
static int cost_of_finish(struct pl *pl, const struct kern *k)
{
	int cost = 0;

	for (int o = 0; o < k->n_out; o++)
		cost += pl_cost(pl, k->out[o], k->out_idx[o]);
	return cost;
}

/* Vectors of a row; what a call of libm costs, in the units of pl_ops. */
enum { SHORT_ROW = 16, VERY_SHORT_ROW = 3, COSTLY = 10 };

/* Rows of one result each: what they reduce to is known lane by lane, which costs as much as a few vectors, and what is
 * made of it is scalar, an exponential a call of libm.  Of short rows many are done side by side. */
static const struct ix_atom *side_by_side(struct pl *pl, const struct kern *k)
{
	const struct ix_atom *v = k->n_row ? k->row[k->n_row - 1] : NULL;
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4), length = ix_num(k->loop->len);

	if (!v || pl_stores_per_column(k) || ix_num(v->b) < lanes || length > SHORT_ROW * lanes)
		return NULL;
	return length <= VERY_SHORT_ROW * lanes || cost_of_finish(pl, k) >= COSTLY ? v : NULL;
}

static void cpu_rows(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct loop *l = k->loop;

	l->tile = or_else(kn->cpu_rows.tile, 32768);
	l->unroll = or_else(kn->cpu_rows.unroll, 4);
	l->along = has_places(k) ? SCALARS : memory_along_rows(pl, k) ? ROWS : COLUMNS; /* places have no vector form */
	if (l->along == ROWS && write_loop(pl, k, "", "", ""))
		return;
	l->along = l->along == ROWS ? COLUMNS : l->along;
	if (l->along == COLUMNS && !kn->plain && !kn->cpu_rows.loops && pl_find_skeleton(pl, k))
		return;
	if (l->along == COLUMNS && !kn->plain)
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, PL_MAX_CACHED);
	l->side = l->along == COLUMNS && !kn->plain ? side_by_side(pl, k) : NULL;
	if (l->side && write_loop(pl, k, "", "", "")) {
		l->unroll = (int)ww_max(1, ww_min(l->unroll, ix_num(l->lane->b) / ww_max(1, pl->dev.vector_bytes / 4)));
		return;
	}
	l->side = NULL;
	if (write_loop(pl, k, "", "", "")) {
		l->stream = pl_stores_per_column(k) ? streamed(pl, k) : NULL;
		return;
	}
	l->along = SCALARS;
	l->n_cached = 0;
	write_loop(pl, k, "", "", "");
}

/* cuda: rows of which each multiprocessor has three or more, one to a block that fills it. */
static int has_many_rows(const struct pl *pl, const struct kern *k)
{
	int64_t rows = 1;

	for (int d = 0; d < k->n_row; d++)
		rows *= ix_num(k->row[d]->b);
	return rows >= 3 * (int64_t)pl->dev.sm_count;
}

/* cuda: is one pass over many long rows all?  Then no vector is needed again, and many small blocks, each in another
 * part of its row, leave memory idle less than few large ones that load together and reduce together (3,584 rows of
 * 17,664 floats: 188 us in blocks of 1,024, memory takes 60). */
static int is_streamed_once(const struct pl *pl, const struct kern *k, int passes, int64_t n_cols)
{
	return passes == 1 && !pl_stores_per_column(k) && n_cols >= PL_STREAMED && has_many_rows(pl, k);
}

/* Loads of row kernels that are held from one pass to the next. */
int pl_loads_held(const struct kern *k)
{
	int n = 0;

	for (int p = 0; p < k->loop->n_pass && k->loop->pass[p].stage < k->n_stage; p++)
		n += k->loop->pass[p].n_load;
	return n;
}

/* Columns of a window; of one that is little more than loads; and how many of a single operand are under way at once
 * (four of 4 bytes are 32 kB a multiprocessor, a third more than memory's latency takes), or of few rows, which are few
 * threads that wait. */
enum { WINDOW = 16, WINDOW_OF_LOADS = 64, LITTLE_WORK = 2, UNDER_WAY = 8 };

/* Of the operands of row kernel k, those that its columns read. */
static int loads_of_columns(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int found = 0;

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(off[i], k->col[c])) {
				found++;
				break;
			}
	return found;
}

int pl_unrolled_down(struct pl *pl, struct kern *k)
{
	const struct ix *idx[PL_MAX_RANK];
	int64_t n = INT64_MAX;
	int cost = 0;

	for (int i = 0; i < k->n_red; i++) {
		pl_red_element(k, i, idx);
		cost += pl_cost(pl, k->red[i]->arg[0], idx);
	}
	ix_is_const(k->loop->len, &n);
	if (n <= WINDOW || (n <= WINDOW_OF_LOADS && cost <= LITTLE_WORK && !pl_stores_per_column(k)))
		return (int)n;
	if (ix_num(pl_extent(pl, k->row, k->n_row)) < 32 * (int64_t)pl->dev.sm_count)
		return UNDER_WAY;
	return cost <= LITTLE_WORK && loads_of_columns(pl, k) == 1 ? UNDER_WAY : 4;
}

/* A thread is a row: do so many values of each column fit registers, of PL_DOWN threads at most that share the row? */
static int fits_down(const struct kern *k, int values)
{
	return (ix_num(k->loop->len) + PL_DOWN - 1) / PL_DOWN * values <= PL_HELD;
}

/* Can what several passes read? */
static int is_held_down(const struct kern *k)
{
	return k->loop->n_pass > 1 && pl_loads_held(k) > 0 && fits_down(k, pl_loads_held(k));
}

/* cuda: how many values a row may keep beside what it loads.  From 8,192 columns on a block has 1,024 threads, of 64
 * registers each; from 131,072 on, in clusters, a value takes 32 of them. */
static int kept_at_most(int64_t n_cols) { return n_cols <= 8192 ? 2 : n_cols <= 131072; }

/* cuda: rows along memory, where vectors run along the columns. */
static void hold_across(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct loop *l = k->loop;
	int64_t n_cols = ix_num(l->len);
	int passes = kn->plain ? k->n_stage : pl_save_passes(pl, k);

	l->cluster = pl->dev.cc >= 90 && !has_places(k);
	for (int i = 0; i < k->n_red; i++)
		l->cluster &= !strcmp(pl_acc_type(k->red[i]->arg[0]->dt), "float");
	l->held = pl_scans(k) ||
		(n_cols <= (l->cluster ? 262144 : 32768) && !kn->rows.reread &&
			(kn->plain || !is_streamed_once(pl, k, passes, n_cols)));
	l->cluster &= l->held && n_cols > 16384;
	l->stepwise = !l->held && !kn->plain && has_many_rows(pl, k);
	if (!l->held)
		return;
	pl_save_no_pass(k);
	if (l->along == COLUMNS)
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, kept_at_most(n_cols));
}

/* cuda: a thread is a row.  It holds what several passes read, if that fits. */
static void write_down(struct pl *pl, struct kern *k, const char *start, const char *first)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct loop *l = k->loop;

	l->held = !kn->plain && !kn->rows.reread;
	if (l->held) /* in place of what it is made of, most often */
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, 1);
	write_loop(pl, k, start, "if (live)\n\t", first);
	if (l->n_cached && !fits_down(k, pl_loads_held(k) + l->n_cached)) {
		l->n_cached = 0;
		write_loop(pl, k, start, "if (live)\n\t", first);
	}
	if (kn->plain || (l->held && is_held_down(k)))
		return;
	l->held = l->n_cached = 0;
	pl_save_passes(pl, k);
	write_loop(pl, k, start, "if (live)\n\t", first);
}

static void cuda_rows(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *start = pl_fmt(pl, "%s_0", k->col[k->n_col - 1]->name);
	struct loop *l = k->loop;

	l->along = !pl_scans(k) && (memory_along_rows(pl, k) || memory_along_part(pl, k)) ? ROWS
		: kn->plain                                                                   ? SCALARS
																					  : COLUMNS;
	if (l->along == ROWS) {
		write_down(pl, k, start, "if (live && ty == 0)\n\t");
	} else {
		hold_across(pl, k);
		write_loop(pl, k, start, "if (live)\n\t", "if (live && lane == 0 && rank == 0)\n\t");
	}
	l->threads = kn->rows.threads;
	l->vec = or_else(kn->rows.vec, l->along == COLUMNS ? widest(k) : 1);
}

static void loop_rows(struct pl *pl, struct kern *k)
{
	struct loop *l = k->loop;

	l->len = pl_extent(pl, k->col, k->n_col);
	if (pl->target == WW_TARGET_CUDA)
		cuda_rows(pl, k);
	else
		cpu_rows(pl, k);
	l->n_row = k->n_row - (l->along == ROWS || l->side);
	l->outer = pl_extent(pl, k->row, l->n_row);
	l->inner = l->along == ROWS || l->side ? k->row[k->n_row - 1]->b : ix_const(pl, 1);
}

/* The schedule of an earlier kernel, with the buffers of this one. */
static void take_schedule(struct kern *k)
{
	k->loop = k->shared->loop;
	k->n_arg = k->shared->n_arg;
	for (int i = 0; i < k->n_arg; i++)
		for (int n = 0; n < k->n_pair; n++)
			if (k->pair[n].theirs == k->shared->arg[i]) {
				k->arg[i] = k->pair[n].mine;
				k->arg_at[i] = k->pair[n].offset;
			}
}

void pl_schedule(struct pl *pl)
{
	for (int i = 0; i < pl->n_kern; i++) /* all before the first schedule, which changes its kernel's axes */
		pl_share_kernel(pl, pl->kern[i]);
	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		if (k->shared) {
			take_schedule(k);
			continue;
		}
		k->loop = pl_alloc(pl, sizeof(*k->loop));
		if (k->segment)
			continue;
		if (k->anchor)
			pl_anchor_ops[k->anchor->kind]->build(pl, k);
		else
			(k->kind == K_POINT ? loop_point : loop_rows)(pl, k);
	}
}
