/* point.c - the loop of a pointwise kernel: one pass, without reductions; vectors run along the last axis. */
#include "policy/planner/schedule/loop.h"

/* Elements of 16 bytes, at most. */
int pl_widest_element(const struct kern *k)
{
	for (int i = 0; i < k->n_arg; i++)
		if (pl_itemsize(k->arg[i]->dt) >= 4 && k->arg[i]->dt != WW_I64)
			return 4;
	return 8;
}

enum { SPAN = 32 };

/* cuda: the same with at most SPAN bytes of an operand, beyond which a thread's accesses of 16 bytes, each in a line of
 * its own, take turns. */
int pl_widest_loads(const struct kern *k)
{
	const struct pass *p = &k->loop->pass[0];
	int n = pl_widest_element(k);

	for (int i = 0; i < p->n_load; i++)
		n = (int)ww_min(n, SPAN / (pl_itemsize(p->load[i].buf->dt) * ww_max(1, p->load[i].apart)));
	return n;
}

/* cuda: the same of lanes that are some elements apart, within a sector, and are loaded one by one: with vectors of 8 a
 * warp's load of 2 bytes in each 12 (6 channels that lie innermost) asks for 24 lines, with 2 for 6. */
static int vector_apart(struct pl *pl, struct kern *k, int vec)
{
	enum { LARGE = 1 << 20 };
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];
	int64_t step;

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		if (!ix_affine(pl, off[i], k->loop->lane, &coef, &rest) || !ix_is_const(coef, &step))
			continue;
		step *= pl_itemsize(buf[i]->dt);
		if (step == pl_itemsize(buf[i]->dt) || step >= SPAN || pl_buf_numel(buf[i]) < LARGE)
			continue;
		while (vec > 2 && step * vec > SPAN)
			vec /= 2;
	}
	return vec;
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
		if (ix_affine(pl, off[i], lane, &coef, &rest) && (ix_num(coef) < 0 || ix_num(coef) > PL_SECTOR))
			return 1;
	return 0;
}

/* Rows that are not whole vectors start anywhere in a line, and stores around the caches want whole lines: such a row
 * starts with the floats before the first one.  Returns where the first output of that kind stores column `lane`. */
const char *pl_streamed(struct pl *pl, struct kern *k)
{
	const struct loop *l = k->loop;
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4), length = ix_num(l->lane->b);

	if (l->along != COLUMNS || length % lanes == 0 || length < 2 * lanes || !pl_streams(pl, k, l->lane))
		return NULL;
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, k->out[o]->root, k->out_idx[o]);

		if (k->out[o]->root->kind == B_OUTPUT && k->out[o]->root->dt == WW_F32 && pl_runs_along(pl, off, l->lane))
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

/* Are a row's vectors two elements of 16 bits? */
static int is_in_pairs(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int n = pl_all_loads(pl, k, off, buf, 512);

	for (int i = 0; i < n; i++)
		if (pl_itemsize(buf[i]->dt) > 2)
			return 0;
	for (int o = 0; o < k->n_out; o++)
		if (pl_itemsize(k->out[o]->root->dt) != 2)
			return 0;
	return n > 0 && pl_widest(k->loop->len, 8) == 2;
}

/* cuda: does a block of a pointwise kernel stay in its row?  Where what no column changes is read once so, in rows of
 * many vectors; and where vectors are narrow, each of which would find its row anew (bfloat16 padded to 4,098: 14
 * instructions an element, 10). */
static int stays_in_row(struct pl *pl, struct kern *k)
{
	int64_t length = ix_num(k->loop->len), width = pl_widest(k->loop->len, pl_widest_element(k));

	return width == 1 || is_in_pairs(pl, k) ? length >= PL_LONG_ROW / 2 * width
											: length >= PL_LONG_ROW * width && pl_reads_of_rows(pl, k, k->col[0]) > 0;
}

/* cuda: do blocks go down the rows of a table first, and then along them?  Rows that are looked up more than once are
 * read anew where the table is beyond the second level; of a part of each all of them are there (1,792 rows of 512 kB,
 * of 960: 451 us on an H200, PyTorch's kernel, which goes down, 382).  Not of a table of which few rows are asked for,
 * nor of one whose parts do not stay either. */
static int goes_down(struct pl *pl, struct kern *k)
{
	enum { TABLE = 32 << 20, PARTS = 24 << 20, ASKED = 2 }; /* bytes; rows of the table for one that is asked for */
	const struct ix *off[512];
	struct buf *buf[512];
	const struct loop *l = k->loop;
	const double len = (double)ix_num(l->len), rows = (double)ix_num(l->outer);

	for (int i = 0, n = pl_all_loads(pl, k, off, buf, 512); i < n; i++) {
		const double elements = (double)pl_buf_numel(buf[i]), size = pl_itemsize(buf[i]->dt);
		const double part = ww_min(len, (double)l->threads * l->unroll * l->vec);

		if (ix_looks_up(off[i]) && ix_has(off[i], l->lane) && elements * size >= TABLE && part < len &&
			ASKED * rows * len >= elements && elements / len * part * size <= PARTS)
			return 1;
	}
	return 0;
}

/* Of a thread whose block stays in its row, at most. */
static int vectors_in_row(struct pl *pl, struct kern *k) { return is_in_pairs(pl, k) ? 8 : 4; }

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
			!(pl_divides(pl_divided(&p->load[i]), l->lane, n) && pl_cond_divides(pl, p->load[i].cond, l->lane, n)))
			n /= 2;
	for (int o = 0; o < k->n_out; o++) {
		const struct ix *off = pl_offset(pl, k->out[o]->root, k->out_idx[o]);

		while (n > 1 && pl_runs_along(pl, off, l->lane) && !pl_divides(off, l->lane, n))
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
	const int64_t elements = ix_num(l->outer) * ix_num(l->len), least = 256 * AHEAD_BLOCKS * (int64_t)pl->dev.sm_count;

	for (int i = 0; i < n_off; i++)
		looks_up |= ix_looks_up(off[i]);
	n = (int)ww_min(most_ahead(n_off, bytes), ww_max(looks_up ? 2 : 1, 16 / bytes));
	if (n > AHEAD && elements / (vec * n) < least) /* as many as of 32 bits, then */
		n = AHEAD;
	if (n == 1 || k->n_out > 1 || !*p->after || (p->n_load && !looks_up) || n_off > AHEAD_LOADS ||
		elements / (vec * n) < least)
		return 1;
	return pl_cost(pl, k->out[0], k->out_idx[0]) <= AHEAD_COST ? n : 1;
}

int pl_fits_beside(const struct pl *pl, int64_t rows, int64_t cols, int vec, int size, int most)
{
	int64_t threads = PL_SEGMENT / size / vec, turns;

	while (threads * ww_min(PL_BESIDE, most / vec) < cols)
		threads *= 2;
	turns = ww_cdiv(cols, threads);
	return cols < PL_LONG_ROW / 2 && turns >= 3 && 4 * cols >= 3 * threads * turns &&
		rows * threads >= 256 * AHEAD_BLOCKS * (int64_t)pl->dev.sm_count;
}

/* cuda: may a block have rows side by side, each done by a few threads?  Short ones that no vector of 16 bytes divides,
 * where each vector would find its row anew, and what is computed once a row (35 x 81 x 75 rows of 108 bf16, each times
 * a sigmoid: 76 us one by one, memory takes 22, H200), or where a place is long to compute (a reflection).  Not of so
 * few elements that multiprocessors would be half empty, nor of rows that leave more than a quarter of their threads'
 * places empty, nor where an operand lies across: its neighbours are other rows' (not one that is flipped; a turned
 * tensor repeated, 160 x 33 x 53 x 37 floats: 100 us, 84 one by one, H200). */
static void rows_beside(struct pl *pl, struct kern *k)
{
	const struct ix *off[512], *step, *rest;
	struct buf *buf[512];
	struct loop *l = k->loop;
	int vec = vector_of(pl, k), size = pl_itemsize(k->out[0]->dt), n_load = 0, differs = 0, across = 0, most;

	for (int i = 0, n = pl_all_loads(pl, k, off, buf, 512); i < n; i++) {
		n_load += ix_has(off[i], l->lane);
		size = ix_has(off[i], l->lane) ? (int)ww_max(size, pl_itemsize(buf[i]->dt)) : size;
		differs |= ix_looks_up(off[i]) || pl_axis_divisor(off[i], l->lane);
		across |= ix_has(off[i], l->lane) && ix_affine(pl, off[i], l->lane, &step, &rest) && !ix_is(step, 1) &&
			!ix_is(step, -1);
	}
	if (vec * size >= 16 || k->n_out > 1 || !*l->pass[0].after || n_load > AHEAD_LOADS || differs || across ||
		!(*l->pass[0].row || !l->pass[0].n_load))
		return;
	most = (n_load > AHEAD_LOADS / 2 ? 1 : 2) * 16 / size;
	l->by_row = pl_fits_beside(pl, ix_num(l->outer), ix_num(l->len) / vec, vec, size, most);
	l->beside = l->by_row ? most : 0;
	l->segment = PL_SEGMENT / size;
}

/* The statements of a pointwise kernel by vectors.  0: they have no vector form. */
static int write_point(struct pl *pl, struct kern *k)
{
	struct loop *l = k->loop;

	l->outer = pl_extent(pl, k->row, l->n_row);
	l->len = k->col[0]->b;
	l->last_row = l->n_row ? k->row[l->n_row - 1]->b : NULL;
	l->along = pl->target == WW_TARGET_CUDA && pl_knobs(pl, k->id)->plain ? SCALARS : COLUMNS;
	l->by_row = pl->target == WW_TARGET_CUDA && !l->across && !pl_knobs(pl, k->id)->plain && l->n_row &&
		stays_in_row(pl, k);
	return pl_write_loop(pl, k, "c", l->by_row ? "if (live)\n\t" : "", "");
}

/* cuda: elements of a vector where many loads of each are across memory and threads are few: all wait for a thread's
 * loads, and half as many each take half as long (six filters of 32 x 32 x 3 x 3 in 16 bits, turned: 43 loads by 1,280
 * threads, 9 us by bench/planner/count; 11 by 5,120, 4). */
static int vector_of_few(struct pl *pl, struct kern *k, int vec)
{
	enum { LOADS = 12, THREADS = 512 };
	const struct ix *off[512];
	struct buf *buf[512];
	const struct loop *l = k->loop;
	double elements = (double)ix_num(l->outer) * (double)ix_num(l->len);
	int across = 0;

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		across += ix_has(off[i], l->lane) && !pl_runs_along(pl, off[i], l->lane);
	while (vec > 1 && across * vec > LOADS && elements / vec < (double)THREADS * pl->dev.sm_count)
		vec /= 2;
	return vec;
}

/* The rows of a pointwise kernel, and its column.  Returns whether that is the axis that lies across. */
static int place_point(struct pl *pl, struct kern *k)
{
	int cuda = pl->target == WW_TARGET_CUDA, plain = pl_knobs(pl, k->id)->plain, itemsize = 4, turned;
	struct loop *l = k->loop;

	if (!k->n_row)
		k->row[k->n_row++] = ix_as_var(ix_var(pl, "one", ix_const(pl, 1)));
	l->across = plain ? 0 : pl_place_across(pl, k, &itemsize);
	turned = cuda && l->across && is_turned(pl, k, itemsize);
	if (turned)
		swap(&k->row[k->n_row - 2], &k->row[k->n_row - 1]);
	if (cuda && !plain && !l->across) {
		pl_share_vectors(pl, k);
		pl_gather_inside(pl, k);
	}
	k->col[k->n_col++] = k->row[--k->n_row];
	l->n_row = k->n_row;
	if (!cuda && !l->across && !plain && is_short(pl, k))
		l->inside = k->row[--l->n_row];
	return turned;
}

/* Does no row change what is loaded? */
static int is_of_columns(const struct kern *k, const struct vload *v)
{
	int rows = v->cond || v->apart || ix_looks_up(v->base);

	for (int d = 0; d < k->n_row; d++)
		rows |= ix_has(v->base, k->row[d]);
	return !rows;
}

/* Puts the loads that no row changes behind the others; returns how many these are. */
static int columns_last(struct pl *pl, const struct kern *k, struct pass *p)
{
	struct vload *load = pl_alloc(pl, (size_t)p->n_load * sizeof(*load));
	int n = 0, kept = 0;

	for (int of_columns = 0; of_columns < 2; of_columns++)
		for (int i = 0; i < p->n_load; i++)
			if (is_of_columns(k, &p->load[i]) == of_columns) {
				load[n++] = p->load[i];
				kept += of_columns;
			}
	p->load = load;
	return kept;
}

/* The vector of what rows change, 16 bytes of the widest: what none does may be wider, since it is read once. */
static int vector_of_rows(const struct kern *k)
{
	const struct pass *p = &k->loop->pass[0];
	int size = pl_itemsize(k->out[0]->dt);

	for (int i = 0; i < p->n_load; i++)
		if (!is_of_columns(k, &p->load[i]))
			size = (int)ww_max(size, pl_itemsize(p->load[i].buf->dt));
	return size < 2 ? 1 : 16 / size;
}

/* Does a row read several rows of one operand, as the rows beside it do (a filter along rows)?  In one block they find
 * these in the first level. */
static int shares_rows(const struct kern *k, const struct pass *p)
{
	for (int i = 0; i < p->n_load; i++) {
		int n = 0;

		for (int j = 0; j < p->n_load; j++)
			n += p->load[j].buf == p->load[i].buf && !is_of_columns(k, &p->load[j]);
		if (n >= 3)
			return 1;
	}
	return 0;
}

/* cuda: how many rows has a thread, which keeps its columns?  1: it is not worth it.  Where two operands or more are of
 * columns (what channels are normalised by, channels-last) each vector would load and convert them anew: of a batch
 * norm in 16 bits five loads and 20 instructions an element, one and a quarter and 12 where four rows share them.  Not
 * of so few elements that multiprocessors would be half empty, nor of expressions that need the registers. */
static int rows_down(struct pl *pl, struct kern *k)
{
	enum { COLUMNS_AT_MOST = 1024, ROWS_DOWN = 4, KEPT = 64, KEPT_COST = 3 * AHEAD_COST };
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	int64_t len = ix_num(l->len), elements = ix_num(l->outer) * len;
	int kept = 0, vec = vector_of_rows(k), n;

	for (int i = 0; i < p->n_load; i++)
		kept += is_of_columns(k, &p->load[i]) * vec;
	n = kept > KEPT / 2 ? ROWS_DOWN / 2 : ROWS_DOWN;
	while (n > 1 && elements / (vec * n) < 256 * AHEAD_BLOCKS * (int64_t)pl->dev.sm_count)
		n /= 2;
	return k->n_out == 1 && *p->after && !*p->row && len % vec == 0 && kept >= 2 * vec && kept <= KEPT &&
			len <= (shares_rows(k, p) ? 2 : 1) * COLUMNS_AT_MOST && p->n_load * vec > kept &&
			pl_cost(pl, k->out[0], k->out_idx[0]) <= KEPT_COST
		? n
		: 1;
}

/* Does the offset have a variable that is neither a row nor the lane: that of a reduction on the spot? */
static int is_reduced(const struct kern *k, const struct ix *off)
{
	for (int m = 0; m < off->n; m++)
		for (int a = 0; a < off->m[m].n; a++)
			if (off->m[m].atom[a]->kind == IX_VAR && off->m[m].atom[a] != k->loop->lane &&
				!is_row(k, off->m[m].atom[a]))
				return 1;
	return 0;
}

/* cuda: do windows of neighbours begin more than half a sector and less than a line apart?  A warp's load of one
 * element of each asks for as many lines as they lie apart; with neighbours in a thread for four times as many, up to
 * one each, and the first level hands over a line at a time.  Not of what neighbours share (a product with a small
 * matrix). */
static int is_spread(struct pl *pl, struct kern *k)
{
	enum { ALONG = 4, LINE = 32 };
	const struct ix *off[512];
	struct buf *buf[512];
	const struct loop *l = k->loop;
	int n = ix_num(l->len) > ALONG ? pl_all_loads(pl, k, off, buf, 512) : 0, found = 0;

	for (int i = 0; i < n; i++) {
		int64_t step = pl_goes_on(pl, off[i], l->lane, ALONG) / ALONG;

		if (!is_reduced(k, off[i]))
			continue;
		if (step <= PL_SECTOR / 2 || step >= LINE)
			return 0;
		found = 1;
	}
	return found;
}

enum { TILE_ROWS = 8 };

/* May blocks have 512 threads?  A warp's tile that has 16 rows has 32 bytes of the lane: a block of 16 warps stores
 * whole lines, of eight only halves.  Not of so few elements that multiprocessors would be half empty, nor of a short
 * lane that 64 elements do not divide: more threads would have no column. */
static int has_wide_tiles(const struct pl *pl, const struct loop *l)
{
	return ix_num(l->outer) * ix_num(l->len) >= 8 * 512 * 8 * (int64_t)pl->dev.sm_count &&
		(ix_num(l->len) % 64 == 0 || ix_num(l->len) >= 1024);
}

/* cuda: has a thread two neighbouring rows of a tile?  A warp then asks for 64 bytes of what lies across at a time, the
 * second row's from the first level, in half as many requests: these bound a copy of single sectors (a transposition
 * of 4 bytes, stored by 64, takes 38 us for 64 MiB, of 2 bytes, stored by 32, 44, memory 32, H200).  Of one operand
 * and of little work, so that registers hold both, and where as many blocks as before keep memory busy. */
static int has_pairs(struct pl *pl, struct kern *k)
{
	enum { BLOCKS = 16, NEIGHBOURS = 64 };
	const struct ix *off[512];
	struct buf *buf[512];
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];

	return l->along == COLUMNS && k->n_out == 1 && *p->after && !*p->row && l->last_row &&
		ix_num(l->last_row) >= NEIGHBOURS && pl_kern_loads(pl, k, off, buf, 512) == 1 &&
		pl_cost(pl, k->out[0], k->out_idx[0]) <= AHEAD_COST &&
		ix_num(l->outer) * ix_num(l->len) >= 2 * BLOCKS * l->threads * l->vec * (int64_t)pl->dev.sm_count;
}

void pl_loop_point(struct pl *pl, struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int cuda = pl->target == WW_TARGET_CUDA, turned = place_point(pl, k), free, down = 1;
	struct loop *l = k->loop;

	if (turned && !write_point(pl, k)) {
		swap(&k->row[l->n_row - 1], &k->col[0]);
		turned = 0;
	}
	if (!turned && !write_point(pl, k)) {
		l->along = SCALARS;
		pl_write_loop(pl, k, "c", "", "");
	}
	if (!cuda && !l->across && l->n_row)
		l->stream = pl_streamed(pl, k);
	l->across = turned ? TURNED_ROWS : l->across;
	l->tile = l->across && !cuda ? ACROSS_COLUMNS : pl_or_else(kn->cpu_point.tile, 16384);
	if (cuda)
		l->unroll = pl_or_else(kn->point.unroll, l->by_row ? vectors_in_row(pl, k) : 1);
	else
		l->unroll = pl_or_else(kn->cpu_point.unroll, 4);
	l->threads = pl_or_else(kn->point.threads, 256);
	if (cuda && !turned && l->across > TILE_ROWS && !kn->point.threads && has_wide_tiles(pl, l))
		l->threads = 512;
	l->vec = turned ? TURNED_VECTOR : l->along == COLUMNS ? pl_widest_loads(k) : 1;
	if (cuda && l->along == COLUMNS && !l->across && is_spread(pl, k))
		l->vec = 1;
	if (cuda && k->n_out > 1 && k->out[0] == k->out[1]) /* pl_unroll(): what is stored is in registers until then */
		l->vec = k->n_out > 8 ? 1 : (int)ww_min(2, l->vec);
	free = cuda && l->along == COLUMNS && !l->across && !kn->point.unroll;
	if (free)
		l->vec = vector_apart(pl, k, l->vec);
	if (cuda && l->along == COLUMNS && !turned && !kn->point.unroll && !l->by_row)
		l->vec = vector_of_few(pl, k, l->vec);
	if (free && !l->by_row && l->n_row)
		rows_beside(pl, k);
	if (free && !l->by_row)
		l->unroll = vectors_ahead(pl, k);
	l->asks_ahead = cuda && !l->by_row && !kn->point.unroll && l->unroll > 1;
	if (free && !l->asks_ahead) {
		int n = vectors_in_turn(pl, k);

		l->behind = n > 1 || l->beside;
		l->unroll = l->behind && !l->by_row ? n : l->unroll;
	}
	if (free && !l->by_row && !l->asks_ahead && !l->behind && l->n_row && (down = rows_down(pl, k)) > 1) {
		l->vec = vector_of_rows(k);
		l->unroll = down;
		l->behind = 1;
	}
	if (cuda && l->across && !turned && !kn->plain && !kn->point.unroll && !kn->point.threads && has_pairs(pl, k)) {
		l->unroll = 2;
		l->behind = 1;
	}
	l->rows_first = cuda && l->by_row && !l->beside && goes_down(pl, k);
	if (l->asks_ahead || l->behind)
		pl_write_loop(pl, k, "c", "if (live)\n\t", "");
	if (down > 1)
		l->kept = columns_last(pl, k, &l->pass[0]);
}
