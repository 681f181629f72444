/* loop.c - the loops of pointwise and row kernels.
 *
 * Pointwise: one pass, without reductions; vectors run along the last axis.  Rows: a pass over the columns for each
 * stage of reductions, then one that writes; what a later pass needs again is read again, or kept where that is
 * cheaper: on the cpu in the thread's scratch (keep.c), on cuda in registers.  Softmaxes and norms go to the cookbook's
 * skeletons on the cpu (skeleton.c).  Where memory runs along the rows (softmax over channels), each lane is a row.  On
 * the cpu an expression without a vector form makes the kernel scalar. */
#include "policy/planner/schedule/loop.h"

#include <math.h>
#include <string.h>

#include <ww/recipe/ring.h>

int pl_or_else(int knob, int value) { return knob ? knob : value; }

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

int pl_stored_per_column(const struct kern *k, int o)
{
	for (int d = 0; d < k->out[o]->rank; d++)
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(k->out_idx[o][d], k->col[c]))
				return 1;
	return 0;
}

int pl_stores_per_column(const struct kern *k)
{
	for (int o = 0; o < k->n_out; o++)
		if (pl_stored_per_column(k, o))
			return 1;
	return 0;
}

/* cuda: are there outputs beside those that no column changes (piece_space())? */
static int stores_once_too(const struct kern *k)
{
	for (int o = 0; o < k->n_out && k->kind == K_ROW; o++)
		if (!pl_stored_per_column(k, o))
			return 1;
	return 0;
}

void pl_red_element(const struct kern *k, int i, const struct ix **idx)
{
	memcpy(idx, k->red_idx[i], (size_t)k->red[i]->rank * sizeof(*idx));
	memcpy(idx + k->red[i]->rank, k->ocol, (size_t)k->n_ocol * sizeof(*idx));
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

const struct ix *pl_in_row(struct pl *pl, const struct kern *k, const struct ix *off)
{
	const struct ix *first[PL_MAX_RANK];

	for (int d = 0; d < k->n_row; d++)
		first[d] = ix_const(pl, 0);
	return ix_subst(pl, off, k->row, first, k->n_row);
}

/* v from the block's rows in shared memory (`own`: which of them is the thread's), or from the ring's one. */
static void take_staged(struct pl *pl, const struct kern *k, struct vload *v)
{
	struct buf *b = pl_alloc(pl, sizeof(*b));

	*b = *v->buf;
	b->name = "staged";
	v->buf = b;
	v->base = pl_in_row(pl, k, v->base);
	if (k->loop->staged)
		v->base = ix_add(pl, ix_mul(pl, ix_temp(pl, "own"), k->loop->len), v->base);
}

/* Does no row change what v loads (a weight for each column)? */
static int is_of_column(const struct kern *k, const struct vload *v)
{
	for (int d = 0; d < k->n_row; d++)
		if (ix_has(v->base, k->row[d]))
			return 0;
	return !v->cond && v->buf->dt != WW_BOOL && !ix_looks_up(v->base);
}

/* Vector loads of a cuda pass: those that were first needed in it, where earlier ones stay in registers. */
static void pass_loads(struct writer *w, struct pass *p)
{
	struct vload *load = pl_alloc(w->pl, sizeof(w->e.vload));

	for (int i = 0; i < w->e.n_vload; i++)
		if (w->e.vload[i].stage == p->stage) {
			load[p->n_load++] = w->e.vload[i];
			load[p->n_load - 1].any = w->l->ring && w->l->singly && is_of_column(w->k, &w->e.vload[i]);
			if (w->e.vload[i].apart || load[p->n_load - 1].any)
				continue;
			w->l->terms = pl_cuda_row_terms(w->pl, w->k, w->l->terms, pl_divided(&w->e.vload[i]));
			w->l->terms = pl_cuda_cond_terms(w->pl, w->l->terms, w->e.vload[i].cond, w->e.lane);
			if (w->e.vload[i].buf == w->l->staged ||
				(w->e.vload[i].buf == w->l->ring && pl_lies_in_rows(w->pl, w->k, w->e.vload[i].base)))
				take_staged(w->pl, w->k, &load[p->n_load - 1]);
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
int pl_write_loop(struct pl *pl, struct kern *k, const char *start, const char *cond, const char *row_cond)
{
	struct writer w = { .pl = pl, .k = k, .l = k->loop, .row = pl_text(pl), .col = pl_text(pl) };
	struct loop *l = k->loop;
	int cuda = pl->target == WW_TARGET_CUDA;

	l->lane = l->along == ROWS || !k->n_col ? k->row[k->n_row - 1] : k->col[k->n_col - 1];
	pl_expr_init(&w.e, pl, k);
	w.e.vec = !cuda && l->along != SCALARS;
	w.e.down = cuda && l->along == ROWS;
	w.e.cuda_vec = cuda && (l->along == COLUMNS || (w.e.down && (l->held || l->paired)));
	w.e.vload_index = l->paired ? "[l]" : w.e.down ? "[j][0]" : l->held ? "[j][l]" : l->asks_ahead ? "[u][l]" : "[l]";
	w.e.lane = cuda || w.e.vec ? l->lane : NULL;
	w.e.block[1] = &w.row;
	w.e.block[2] = &w.col;
	l->n_pass = 0;
	l->terms = l->finish = "";
	l->others = 0;
	for (int s = 0; s < k->n_stage; s++)
		if (has_stage(k, s))
			write_pass(&w, s, start, cond);
	if (k->kind == K_POINT || pl_stores_per_column(k)) /* a point of no dimensions has a column of one */
		write_pass(&w, k->n_stage, start, cond);
	else if (l->side)
		write_beside(&w);
	else
		write_finish(&w, row_cond);
	if (cuda && pl_stores_per_column(k) && stores_once_too(k))
		write_finish(&w, row_cond);
	return !w.e.need_scalar;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

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

	l->tile = pl_or_else(kn->cpu_rows.tile, 32768);
	l->unroll = pl_or_else(kn->cpu_rows.unroll, 4);
	l->along = has_places(k) ? SCALARS : pl_memory_along_rows(pl, k) ? ROWS : COLUMNS; /* places have no vector form */
	if (l->along == ROWS && pl_write_loop(pl, k, "", "", ""))
		return;
	l->along = l->along == ROWS ? COLUMNS : l->along;
	if (l->along == COLUMNS && !kn->plain && !kn->cpu_rows.loops && pl_find_skeleton(pl, k))
		return;
	if (l->along == COLUMNS && !kn->plain)
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, PL_MAX_CACHED);
	l->side = l->along == COLUMNS && !kn->plain ? side_by_side(pl, k) : NULL;
	if (l->side && pl_write_loop(pl, k, "", "", "")) {
		l->unroll = (int)ww_max(1, ww_min(l->unroll, ix_num(l->lane->b) / ww_max(1, pl->dev.vector_bytes / 4)));
		return;
	}
	l->side = NULL;
	if (pl_write_loop(pl, k, "", "", "")) {
		l->stream = pl_stores_per_column(k) ? pl_streamed(pl, k) : NULL;
		return;
	}
	l->along = SCALARS;
	l->n_cached = 0;
	pl_write_loop(pl, k, "", "", "");
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

/* Columns of a window; of one that is little more than loads; and how many of a single operand of 16 bits are under way
 * at once, or of few rows, which are few threads that wait.  Of 4 bytes four are (print/cuda.c, LONG_COLUMNS). */
enum { WINDOW = 16, WINDOW_OF_LOADS = 64, LITTLE_WORK = 2, UNDER_WAY = 8 };

/* Do columns of row kernel k read one operand, of at most 2 bytes? */
static int reads_narrow(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int found = 0, narrow = 1;

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(off[i], k->col[c])) {
				found++;
				narrow &= pl_itemsize(buf[i]->dt) <= 2;
				break;
			}
	return found == 1 && narrow;
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
	return cost <= LITTLE_WORK && (k->loop->paired || reads_narrow(pl, k)) ? UNDER_WAY : 4;
}

/* Threads that share a row: PL_DOWN, or more of few rows, as FEW_ROWS of print/cuda.c has it; of blocks of 1,024
 * threads each has half of the registers. */
int pl_fits_down(const struct pl *pl, int64_t rows, int64_t cols, int values)
{
	enum { HELD_OF_1024 = 40 };
	int64_t sms = pl->dev.sm_count > 0 ? pl->dev.sm_count : 132, wide = 32, high = PL_DOWN;

	while (wide * high <= 512 && cols >= (rows * high < 8 * sms ? 4 : 16) * high && rows * high < 128 * sms) {
		high *= 2;
		wide = ww_max(8, wide / 2);
	}
	return (cols + high - 1) / high * values <= (wide * high > 512 ? HELD_OF_1024 : PL_HELD);
}

/* A thread is a row: do so many values of each column fit registers? */
static int fits_down(struct pl *pl, const struct kern *k, int values)
{
	return pl_fits_down(pl, ix_num(pl_extent(pl, k->row, k->n_row)), ix_num(k->loop->len), values);
}

/* Can what several passes read? */
static int is_held_down(struct pl *pl, const struct kern *k)
{
	return k->loop->n_pass > 1 && pl_loads_held(k) > 0 && fits_down(pl, k, pl_loads_held(k));
}

/* cuda: how many values a row may keep beside what it loads.  From 8,192 columns on a block has 1,024 threads, of 64
 * registers each; from 131,072 on, in clusters, a value takes 32 of them. */
static int kept_at_most(int64_t n_cols) { return n_cols <= 8192 ? 2 : n_cols <= 131072; }

/* cuda: are rows that a block would hold so few that most multiprocessors would have none, and so much work that it
 * pays to share them?  Blocks of a cluster wait for each other twice.  16 rows of 15,000 and a gelu (a group norm of
 * two images) are 9 us by bench/planner/count, 4 in clusters. */
static int are_few(struct pl *pl, struct kern *k, int64_t cols)
{
	enum { WORK = 3 << 17 }; /* in the units of ops.def: some 4 us of one multiprocessor */

	return !pl_scans(k) && !pl_knobs(pl, k->id)->plain && cols >= 2 * PL_SHARED &&
		cols * cost_of_finish(pl, k) >= WORK && 2 * ix_num(pl_extent(pl, k->row, k->n_row)) <= pl->dev.sm_count;
}

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
		(n_cols <= (l->cluster ? PL_SHARED_REGISTERS : 32768) && !kn->rows.reread &&
			(kn->plain || !is_streamed_once(pl, k, passes, n_cols)));
	l->cluster &= l->held && (n_cols > PL_ALONE || are_few(pl, k, n_cols));
	l->stepwise = !l->held && !kn->plain && has_many_rows(pl, k);
	if (!l->held)
		return;
	pl_save_no_pass(k);
	if (l->along == COLUMNS)
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, kept_at_most(n_cols));
}

/* cuda: windows of so many columns, of which a thread has so many: one by one they are 8 kB a multiprocessor under way,
 * since neighbours load the same (537 million means of 8 floats: 1,804 us, memory takes 1,023, H200). */
enum { FEW_COLUMNS = 8, SEVERAL = 4 };

static int has_several(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	int64_t cols = INT64_MAX;

	return ix_is_const(l->len, &cols) && cols <= FEW_COLUMNS && l->n_pass == 1 && *l->pass[0].inside && k->n_red == 1 &&
		k->n_out == 1 && ix_num(pl_extent(pl, k->row, k->n_row)) >= 1024 * SEVERAL * 8 * (int64_t)pl->dev.sm_count;
}

/* cuda: may a thread of row kernel k, which goes along its columns once, have two neighbouring rows?  Long columns of
 * operands of 16 bits, many of them: a warp asks for 64 bytes of each column else, in as many instructions as of
 * floats (512 x 160 x 3,072 bfloat16: 160 us, memory takes 120, H200).  From so many rows on their threads still fill
 * the machine, since more of them share a column; sums of parts have 512 a multiprocessor at most (split()). */
static int may_be_paired(struct pl *pl, struct kern *k)
{
	enum { ROWS_EACH = 256 /* multiprocessor */, NEIGHBOURS = 32 };
	const struct loop *l = k->loop;
	const struct ix_atom *lane = k->row[k->n_row - 1];
	int64_t cols = ix_num(l->len);

	if (l->n_pass != 1 || l->several || *l->pass[0].inside || *l->pass[0].last || pl_knobs(pl, k->id)->plain ||
		pl_stores_per_column(k) || cols <= WINDOW_OF_LOADS || k->n_red > 2 || ix_num(lane->b) < NEIGHBOURS ||
		ix_num(lane->b) % 2 || ix_num(pl_extent(pl, k->row, k->n_row)) < ROWS_EACH * (int64_t)pl->dev.sm_count)
		return 0;
	for (int o = 0; o < k->n_out; o++) /* what is stored along another axis has threads of its own (stores_beside()) */
		if (!pl_runs_along(pl, pl_offset(pl, k->out[o]->root, k->out_idx[o]), lane))
			return 0;
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->red >= RED_ARGMAX || l->step[i].by || l->step[i].gathers ||
			strcmp(pl_acc_type(k->red[i]->arg[0]->dt), "float") != 0)
			return 0;
	return 1;
}

/* The same with pairs of rows; 0: they are not loaded together, or what is loaded once a row would need pairs, too. */
static int write_paired(struct pl *pl, struct kern *k, const char *start, const char *first)
{
	enum { LOADS = 3 };
	struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	int halves = 0;

	l->paired = 1;
	pl_write_loop(pl, k, start, "if (live)\n\t", first);
	for (int i = 0; i < p->n_load; i++) {
		if (p->load[i].cond || p->load[i].one || p->load[i].apart || !pl_divides(p->load[i].base, l->lane, 2))
			return 0;
		halves += pl_is_half(p->load[i].buf->dt);
	}
	return halves && halves == p->n_load && halves <= LOADS && !*p->inside && !strstr(p->row, l->lane->name);
}

/* cuda: a thread is a row.  It holds what several passes read, if that fits. */
static void write_down(struct pl *pl, struct kern *k, const char *start, const char *first)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct loop *l = k->loop;

	l->held = !kn->plain && !kn->rows.reread;
	if (l->held) /* in place of what it is made of, most often */
		l->n_cached = pl_keep(pl, k, k->col[k->n_col - 1], l->cached, 1);
	pl_write_loop(pl, k, start, "if (live)\n\t", first);
	if (l->n_cached && !fits_down(pl, k, pl_loads_held(k) + l->n_cached)) {
		l->n_cached = 0;
		pl_write_loop(pl, k, start, "if (live)\n\t", first);
	}
	if (kn->plain || (l->held && is_held_down(pl, k)))
		return;
	l->held = l->n_cached = 0;
	pl_save_passes(pl, k);
	pl_write_loop(pl, k, start, "if (live)\n\t", first);
	l->several = has_several(pl, k) ? SEVERAL : 0;
	if (may_be_paired(pl, k) && !write_paired(pl, k, start, first)) {
		l->paired = 0;
		pl_write_loop(pl, k, start, "if (live)\n\t", first);
	}
}

/* cuda: columns of rows that share a block, at most: PL_TURNED rows of them fit static shared memory. */
enum { TURNED_COLUMNS = 320 };

/* cuda: does the result of a row kernel lie along the rows (a softmax over channels, stored in PyTorch's order behind a
 * channels-last convolution)?  The few rows of a warp would store parts of sectors, at an eighth of memory's speed: 1.1
 * GB of KernelBench level2/91 in some 2 ms (H200).  A block of many rows turns it in shared memory.  Short rows have a
 * thread each, as good as that. */
static int is_turned(struct pl *pl, const struct kern *k)
{
	const struct ix_atom *row = k->n_row ? k->row[k->n_row - 1] : NULL;
	const struct ix *off = pl_offset(pl, k->out[0]->root, k->out_idx[0]);
	int64_t cols = ix_num(k->loop->len);

	return row && k->loop->held && !k->loop->cluster && !pl_knobs(pl, k->id)->rows.threads && k->n_out == 1 &&
		pl_computed_as_float(k->out[0]->dt) && pl_computed_as_float(k->out[0]->root->dt) && cols >= 32 &&
		cols <= TURNED_COLUMNS && ix_num(row->b) >= PL_TURNED && pl_runs_along(pl, off, row) &&
		!pl_runs_along(pl, off, k->col[k->n_col - 1]) && pl_stores_per_column(k) &&
		ix_num(pl_extent(pl, k->row, k->n_row)) >= 2 * PL_TURNED * (int64_t)pl->dev.sm_count;
}

/* cuda: columns of rows that are staged and of their results, at most, so that 32 rows of both are 46 kB; and how
 * costly a row's element may be, as in fewer_threads(). */
enum { STAGED_COLUMNS = 64, STAGED_WIDE = 256, STAGED_WORK = 96 };

/* The place of row and column in what has rows of `wide` elements, one behind the other. */
static const struct ix *place_in_rows(struct pl *pl, const struct kern *k, const struct ix *wide, int column)
{
	const struct ix *row = ix_const(pl, 0), *col = row;

	for (int d = 0; d < k->n_row; d++)
		row = ix_add(pl, ix_mul(pl, row, k->row[d]->b), pl_of_var(pl, k->row[d]));
	for (int c = 0; c < k->n_col && column; c++)
		col = ix_add(pl, ix_mul(pl, col, k->col[c]->b), pl_of_var(pl, k->col[c]));
	return ix_add(pl, ix_mul(pl, row, wide), col);
}

int pl_lies_in_rows(struct pl *pl, const struct kern *k, const struct ix *off)
{
	return ix_same(off, place_in_rows(pl, k, k->loop->len, 1));
}

static int has_any(const struct ix *off, const struct ix_atom *const *v, int n)
{
	for (int i = 0; i < n; i++)
		if (ix_has(off, v[i]))
			return 1;
	return 0;
}

/* Does kernel k store all of each row of one tensor, rows one behind the other? */
static int stores_whole_rows(struct pl *pl, struct kern *k)
{
	struct buf *b = k->out[0]->root;
	const struct ix *filled = ix_const(pl, 0), *wide;

	if (!b->rank || b->of || !pl_is_float(b->dt) || b->dt == WW_F64)
		return 0;
	wide = b->size[b->rank - 1];
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, b, k->out_idx[o]), *rest;
		int column = pl_stored_per_column(k, o);

		rest = ix_sub(pl, off, place_in_rows(pl, k, wide, column));
		if (k->out[o]->root != b || ix_varies(rest))
			return 0;
		filled = ix_add(pl, filled, column ? k->loop->len : ix_const(pl, 1));
	}
	if (ix_num(filled) != ix_num(wide) || ix_num(wide) > STAGED_WIDE)
		return 0;
	if (!ix_same(filled, wide))
		pl_guard(pl,
			pl_fmt(pl, "\tif (%s != %s)\n\t\tww_fail(p, \"rows of results that are not whole\");\n",
				ix_text(pl, filled), ix_text(pl, wide)));
	k->loop->stored = b;
	k->loop->wide = wide;
	return 1;
}

/* cuda: many short rows, one behind the other, that no vector of more than 4 bytes divides.  A few threads a row ask
 * for 4 elements of each at a time, and most of a row's instructions are theirs to agree: 4.6 million rows of 29
 * bfloat16 185 us, 63 of memory; 973,397 of 29 floats, and their results, 150 and 57 (H200).  A block brings its rows
 * to shared memory by whole vectors, and stores from there; there a thread, or two, has a row. */
static void find_staged(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	struct loop *l = k->loop;
	int64_t cols = ix_num(l->len);
	int cost = cost_of_finish(pl, k), size = 0;

	if (l->along != COLUMNS || !l->held || l->cluster || l->turned || pl_scans(k) || pl_knobs(pl, k->id)->plain ||
		pl_knobs(pl, k->id)->rows.threads || cols < 8 || cols > STAGED_COLUMNS || !k->n_row ||
		ix_num(pl_extent(pl, k->row, k->n_row)) < 1024 * (int64_t)pl->dev.sm_count)
		return;
	for (int i = 0; i < k->n_red; i++) {
		const struct ix *idx[PL_MAX_RANK];

		pl_red_element(k, i, idx);
		cost += pl_cost(pl, k->red[i]->arg[0], idx);
	}
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		if (!has_any(off[i], k->col, k->n_col) && !ix_looks_up(off[i]))
			continue;
		if (ix_same(off[i], place_in_rows(pl, k, l->len, 1)) && pl_is_float(buf[i]->dt) && buf[i]->dt != WW_F64 &&
			(!l->staged || l->staged == buf[i])) {
			l->staged = buf[i];
			size = pl_itemsize(buf[i]->dt);
		} else if (has_any(off[i], k->row, k->n_row) || ix_looks_up(off[i])) {
			size = 0;
			break;
		}
	}
	if (!size || cols * size % 8 == 0 || cost > STAGED_WORK || (pl_stores_per_column(k) && !stores_whole_rows(pl, k)))
		l->staged = NULL;
}

/* cuda: may a cluster's blocks hold the rows of k in shared memory?  Rows of which a block's registers hold all are
 * better there, and costly ones that a cluster's do: a multiprocessor has 512 threads of a ring.  H200: the moments of
 * sigmoids of 1,024 rows of 258,064 take 355 us more in a ring (KernelBench level2/21), a softmax of 4,096 rows of
 * 50,257 takes 459 us, by registers 616. */
static int may_be_ring(struct pl *pl, struct kern *k)
{
	enum { RING_WORK = 20 }; /* in the units of ops.def: two exponentials */
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct ix *idx[PL_MAX_RANK];
	int fits = pl->dev.cc >= 90 && k->loop->along == COLUMNS && !kn->plain && !kn->rows.threads && !kn->rows.vec &&
		!kn->rows.reread && !pl_scans(k) && !has_places(k) && k->n_red > 0 && k->n_red <= WW_RING_REDUCTIONS &&
		pl_stores_per_column(k) && ix_num(k->loop->len) > PL_ALONE;
	int cost = 0;

	for (int i = 0; fits && i < k->n_red; i++) {
		fits = !strcmp(pl_acc_type(k->red[i]->arg[0]->dt), "float");
		pl_red_element(k, i, idx);
		cost += pl_cost(pl, k->red[i]->arg[0], idx);
	}
	return fits && (cost < RING_WORK || ix_num(k->loop->len) > PL_SHARED_REGISTERS);
}

/* The one operand of reductions that rows change, where its rows lie one behind the other and are enough of them. */
static const struct buf *ringed(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const struct vload *v = NULL;
	long long rows = ix_num(pl_extent(pl, k->row, k->n_row));
	struct ww_ring ring;
	int n = 0;

	for (int p = 0; p < l->n_pass && l->pass[p].stage < k->n_stage; p++)
		for (int i = 0; i < l->pass[p].n_load; i++)
			if (!is_of_column(k, &l->pass[p].load[i])) {
				v = &l->pass[p].load[i];
				n++;
			}
	if (n != 1 || v->cond || v->apart || !pl_is_float(v->buf->dt) || v->buf->of || !pl_lies_in_rows(pl, k, v->base))
		return NULL;
	ring = ww_ring_of(rows, ix_num(l->len), pl_itemsize(v->buf->dt), pl->dev.sm_count, pl->dev.shared_per_block_bytes);
	return ww_ring_is_full(&ring, rows, pl->dev.sm_count) ? v->buf : NULL;
}

/* Are all vectors of a ring's kernel aligned, wherever rows begin in one, or at the sizes at hand? */
static int is_whole(const struct loop *l, int n_col)
{
	return (!l->others && n_col == 1) || (l->others < 2 && ix_num(l->lane->b) % (16 / pl_itemsize(l->ring->dt)) == 0);
}

/* cuda: many long rows of one operand that several passes need (ww/ring.cuh).  Where rows are not whole vectors, what
 * else lies along the columns is loaded one by one if all rows share it, and no ring's if not; nor are columns of
 * several dimensions.  0: k is none of these. */
static int write_ring(struct pl *pl, struct kern *k, const char *start, const char *first)
{
	struct loop *l = k->loop;

	if (!may_be_ring(pl, k))
		return 0;
	l->held = l->cluster = 1;
	pl_write_loop(pl, k, start, "", first);
	l->held = 0;
	l->ring = ringed(pl, k);
	if (!l->ring)
		return 0;
	pl_write_loop(pl, k, start, "", first);
	if (!is_whole(l, k->n_col) && k->n_col == 1) {
		l->singly = 1;
		pl_write_loop(pl, k, start, "", first);
	}
	if (!is_whole(l, k->n_col)) {
		l->ring = NULL;
		l->singly = 0;
	}
	return l->ring != NULL;
}

/* cuda: rows that are read along the lane (channels that lie innermost) and stored along the row ahead of it (pixels,
 * in PyTorch's order): how many of the lane neighbouring threads do, a sector of 32 bytes; 0: not so.  Each result
 * would be a sector else (pooled 128 channels of 288 x 32 x 32: 302 us, memory takes 180, by bench/planner/count).  Of
 * few results all stays in the second level. */
static int stores_beside(struct pl *pl, struct kern *k)
{
	enum { LEAST = 1 << 20 };
	int wide = 32;

	if (k->n_row < 2 || pl_stores_per_column(k) || pl_knobs(pl, k->id)->plain)
		return 0;
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, k->out[o]->root, k->out_idx[o]);

		if (!ix_has(off, k->row[k->n_row - 1]) || pl_runs_along(pl, off, k->row[k->n_row - 1]) ||
			!pl_runs_along(pl, off, k->row[k->n_row - 2]) || pl_numel_now(k->out[o]) < LEAST)
			return 0;
		wide = (int)ww_min(wide, 32 / pl_itemsize(k->out[o]->root->dt));
	}
	return ix_num(k->row[k->n_row - 1]->b) % wide || ix_varies(k->row[k->n_row - 1]->b) ? 0 : wide;
}

static void cuda_rows(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *start = pl_fmt(pl, "%s_0", k->col[k->n_col - 1]->name);
	struct loop *l = k->loop;

	l->along = !pl_scans(k) && (pl_memory_along_rows(pl, k) || pl_memory_along_part(pl, k)) ? ROWS
		: kn->plain                                                                         ? SCALARS
																							: COLUMNS;
	if (l->along == ROWS) {
		write_down(pl, k, start, "if (live && ty == 0)\n\t");
		l->across = l->several ? 0 : stores_beside(pl, k);
	} else if (!write_ring(pl, k, start, "if (lane == 0 && rank == 0)\n\t")) {
		hold_across(pl, k);
		l->turned = l->along == COLUMNS && is_turned(pl, k) ? "" : NULL;
		find_staged(pl, k);
		pl_write_loop(pl, k, start, "if (live)\n\t", "if (live && lane == 0 && rank == 0)\n\t");
	}
	l->threads = kn->rows.threads;
	l->vec = l->paired ? 2 : pl_or_else(kn->rows.vec, l->along == COLUMNS ? pl_widest_element(k) : 1);
}

/* cuda: bytes of the widest element that columns read, and whether many neighbouring rows lie side by side in memory.
 * Here and not where text is made: a later kernel that shares it has other variables. */
static void look_at_columns(struct pl *pl, struct kern *k)
{
	enum { MANY = 256 };
	const struct ix *off[512];
	struct buf *buf[512];
	struct loop *l = k->loop;

	l->widest = 1;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(off[i], k->col[c]))
				l->widest = (int)ww_max(l->widest, pl_itemsize(buf[i]->dt));
		for (int r = 0; r < k->n_row; r++)
			l->in_lines |= ix_num(k->row[r]->b) >= MANY && ix_has(off[i], k->row[r]) &&
				pl_runs_along(pl, off[i], k->row[r]);
	}
}

static void loop_rows(struct pl *pl, struct kern *k)
{
	struct loop *l = k->loop;

	l->len = pl_extent(pl, k->col, k->n_col);
	if (pl->target == WW_TARGET_CUDA) {
		look_at_columns(pl, k);
		cuda_rows(pl, k);
	} else {
		cpu_rows(pl, k);
	}
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
			(k->kind == K_POINT ? pl_loop_point : loop_rows)(pl, k);
	}
	if (pl->target == WW_TARGET_CUDA && !pl_all_plain(pl)) {
		pl_choose_directions(pl);
		pl_mark_read_once(pl);
	}
}
