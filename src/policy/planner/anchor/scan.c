/* scan.c - cumulative sums, products, maxima and minima along one dimension.
 *
 * The template reads its operand by a functor, so the operand's expression is fused.  On cuda it hands the elements of
 * its operand on to its end, too (own[]), which mostly reads them again (the sum of what comes before an element). */
#include "policy/planner/print/print.h"

#include <string.h>

/* Indexed by enum pl_red. */
static const struct {
	const char *what, *op;
} kinds[] = { [RED_SUM] = { "cumsum", "SUM" },
	[RED_PROD] = { "cumprod", "PROD" },
	[RED_MAX] = { "cummax", "MAX" },
	[RED_MIN] = { "cummin", "MIN" },
	[RED_LOGSUMEXP] = { "logcumsumexp", "LOGSUMEXP" } };

/* cuda: does x lie in memory along another dimension than the last one, which threads read side by side?  Then it is
 * turned first, by tiles: threads that read across memory ask for a sector each. */
static int lies_across(struct pl *pl, const struct val *x)
{
	if (pl->target != WW_TARGET_CUDA || pl_numel_now(x) < 1 << 20 || pl_most_along(pl, x, x->rank - 1))
		return 0;
	for (int d = 0; d < x->rank - 1; d++)
		if (pl_most_along(pl, x, d) && ix_num(x->size[d]) >= 8)
			return 1;
	return 0;
}

/* cuda: is x a small reduction, of which each thread of a scan along few rows would wait for many loads in turn, four
 * of them under way at once, while most multiprocessors are idle?  Stored first, it takes a launch of 2 to 4 us (the
 * parts of a maximum of 1,024 elements ahead of a scan of one row of 4,096: 256 loads a thread, 23 us by count). */
static int is_waited_for(struct pl *pl, const struct val *x, int dim, double n)
{
	enum { THREADS = 256, LOADS = 64 };
	double cols = (double)ix_num(x->size[dim]);

	return dim == x->rank - 1 && (double)pl_numel_now(x) < cols * pl->dev.sm_count && n * cols >= LOADS * THREADS;
}

/* The reduction that x is, seen through views, where a scan of x is better off if it is stored.  Besides the above: one
 * of many elements, which the template's threads load one by one for vectors of results, so that each load asks for
 * four times the sectors; and whoever else needs it reads them all again (sums of 64 of 251 MB, then their running sum:
 * 184 us, PyTorch 98). */
static struct val *stored_ahead(struct pl *pl, struct val *x, int dim)
{
	enum { MANY = 16, LARGE = 1 << 22 };
	struct val *r = x;
	double n = 1;

	while (r->kind == V_VIEW && !r->cond && !r->root && pl_numel_now(r->arg[0]) == pl_numel_now(r))
		r = r->arg[0];
	if (pl->target != WW_TARGET_CUDA || r->kind != V_RED || r->root)
		return NULL;
	for (int d = r->rank; d < r->arg[0]->rank; d++)
		n *= (double)ix_num(r->arg[0]->size[d]);
	return (r == x && is_waited_for(pl, x, dim, n)) || (n >= MANY && n * (double)pl_numel_now(r) >= LARGE) ? r : NULL;
}

struct val *pl_scan(struct pl *pl, struct gnode *n, struct val *x, int dim, enum pl_red red)
{
	struct anchor *s = pl_anchor(pl, n, S_SCAN, kinds[red].what);
	struct val *ahead;

	s->scan.red = red;
	s->scan.dim = dim;
	if (lies_across(pl, x)) {
		struct val *turned = x;

		/* what a function is taken of on the way: others may read it, too, and it costs no more */
		while (turned->kind == V_OP && turned->n_arg == 1 && !turned->root &&
			pl_itemsize(turned->arg[0]->dt) <= pl_itemsize(turned->dt) && lies_across(pl, turned->arg[0]))
			turned = turned->arg[0];
		if (turned->kind == V_BUF)
			x = turned = pl_view(pl, turned, turned->rank, turned->size, pl->place);
		pl_make_root(pl, turned);
	} else if ((ahead = stored_ahead(pl, x, dim))) {
		pl_make_root(pl, ahead);
	}
	pl_anchor_operand(s, x);
	return pl_anchor_out(pl, s, x->dt, x->rank, x->size);
}

struct val *pl_scan_back(struct pl *pl, struct gnode *n, struct val *v, int dim)
{
	const struct ix *map[PL_MAX_RANK];
	struct anchor *s, *old = v->kind == V_ANCHOR && !v->root ? v->anchor : NULL;

	if (pl->target != WW_TARGET_CUDA || !old || old->kind != S_SCAN || old->scan.dim != dim || old->scan.excluded ||
		(old->in[0].val->root && old->in[0].val->kind != V_BUF))
		return NULL;
	memcpy(map, pl->place, sizeof(map));
	map[dim] = ix_sub(pl, ix_addc(pl, v->size[dim], -1), pl->place[dim]);
	s = pl_anchor(pl, n, S_SCAN, old->what);
	s->scan = old->scan;
	s->scan.back = !old->scan.back;
	pl_anchor_operand(s, pl_view(pl, old->in[0].val, v->rank, v->size, map));
	return pl_anchor_out(pl, s, v->dt, v->rank, v->size);
}

static int is_zero(const struct val *v)
{
	if (v->kind == V_OP && v->op == OP_WHERE)
		return is_zero(v->arg[1]) && is_zero(v->arg[2]);
	return v->kind == V_VIEW && !v->cond ? is_zero(v->arg[0]) : v->kind == V_CONST && v->f == 0;
}

/* The operand of which x is all but the last element along dim, or NULL. */
static struct val *without_last(struct pl *pl, const struct val *x, int dim)
{
	if (x->kind != V_VIEW || x->root || x->cond || x->arg[0]->rank != x->rank)
		return NULL;
	for (int d = 0; d < x->rank; d++)
		if (!ix_same(x->map[d], pl->place[d]) || ix_num(x->arg[0]->size[d]) != ix_num(x->size[d]) + (d == dim))
			return NULL;
	for (int d = 0; d < x->rank; d++)
		pl_guard_eq(pl, x->arg[0]->size[d], d == dim ? ix_addc(pl, x->size[d], 1) : x->size[d],
			"what a running sum leaves the last element out of");
	return x->arg[0];
}

struct val *pl_scan_excluded(struct pl *pl, struct gnode *n, const struct val *first, struct val *v, int dim)
{
	struct anchor *s, *old = v->kind == V_ANCHOR && !v->root ? v->anchor : NULL;
	struct val *x;

	if (pl->target != WW_TARGET_CUDA || !old || old->kind != S_SCAN || old->scan.red != RED_SUM || old->scan.back ||
		old->scan.excluded || old->scan.dim != dim || dim != v->rank - 1 || !pl_computed_as_float(v->dt) || !v->node ||
		pl_count_readers(pl, v->node->name) != 1 || !ix_is(first->size[dim], 1) || !is_zero(first))
		return NULL;
	x = without_last(pl, old->in[0].val, dim);
	if (!x)
		return NULL;
	s = pl_anchor(pl, n, S_SCAN, old->what);
	s->scan = old->scan;
	s->scan.excluded = 1;
	pl_anchor_operand(s, x);
	return pl_anchor_out(pl, s, v->dt, v->rank, x->size);
}

enum { LONGEST_HELD = 4096 }; /* columns that a row kernel scans in registers: the totals of warps fit into its box */

struct val *pl_scan_in_row(struct pl *pl, struct anchor *s)
{
	int last = s->out->rank - 1;
	struct val *x = s->in[0].val;

	if (s->in_row || pl->target != WW_TARGET_CUDA || s->kind != S_SCAN || s->scan.dim != last || s->scan.excluded ||
		s->scan.red >= RED_ARGMAX || !pl_is_float(x->dt) || x->dt == WW_F64 || s->readers != 1 ||
		ix_is(s->out->size[last], 1) || ix_num(s->out->size[last]) > LONGEST_HELD)
		return s->in_row; /* a column of one element has no variable */
	s->in_row = pl_val(pl, V_RED, s->out->dt, last, s->out->size);
	s->in_row->node = s->out->node;
	s->in_row->arg[0] = x;
	s->in_row->n_arg = s->in_row->nred = 1;
	s->in_row->scans = s->scan.back ? SCANS_BACK : SCANS_ON;
	s->in_row->red = s->scan.red;
	return s->in_row;
}

enum form { LAST, MIDDLE }; /* along the last dimension or another one */

/* cuda: is all that the scan reads and stores of 16 bits? */
static int is_of_halves(const struct pl *pl, const struct kern *k)
{
	return pl->target == WW_TARGET_CUDA && pl_is_half(k->anchor->in[0].val->dt) && pl_is_half(k->out[0]->dt);
}

/* Elements that a thread reads at once: cuda, of 16 bits 16 bytes, where there are threads enough: of short rows each
 * thread has 16 elements, and vectors of 8 bytes lie apart by as much.  Along another dimension two, since a warp that
 * reads 64 bytes asks for half of a line; where columns are few, threads matter more. */
static int width_of(const struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	int64_t inner = ix_num(l->inner), all = ix_num(l->outer) * ix_num(l->len);

	if (l->form == LAST && is_of_halves(pl, k) && ix_num(l->len) % 8 == 0 &&
		all / 16 >= 1024 * (int64_t)pl->dev.sm_count)
		return 8;
	if (l->form == LAST)
		return ix_num(l->len) % 4 == 0 ? 4 : 1;
	return pl->target == WW_TARGET_CUDA && pl_itemsize(k->out[0]->dt) == 2 && inner % 2 == 0 &&
			ix_num(l->outer) * inner >= 4096 * (int64_t)pl->dev.sm_count
		? 2
		: 1;
}

static void build(struct pl *pl, struct kern *k)
{
	const struct val *out = k->anchor->out;
	int dim = k->anchor->scan.dim, last = out->rank - 1;
	const struct ix *idx[PL_MAX_RANK];
	struct loop *l = k->loop;

	memcpy(idx, k->anchor_idx, sizeof(idx));
	l->form = dim == last ? LAST : MIDDLE;
	l->outer = pl_sizes(pl, out, 0, dim);
	l->len = out->size[dim];
	l->inner = pl_sizes(pl, out, dim + 1, out->rank);
	l->width = width_of(pl, k);
	l->lane = l->form == MIDDLE ? pl_join(pl, k, dim + 1, out->rank, idx) : pl_lane_of(pl, k, last);
	do {
		l->singly = l->guarded = l->keeps = 0;
		l->load = pl_load_body(pl, k, "c", idx);
		l->own = idx;
		l->store = pl_store_body(pl, k, "c");
		l->own = NULL;
	} while (l->width == 8 && l->singly && (l->width = 4));
}

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_scan.tile), "tile", { 64, 4 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	int mid = l->form == MIDDLE, dim = k->anchor->scan.dim, tile = pl_knobs(pl, k->id)->cpu_scan.tile;
	const char *place = mid ? "long long r, long long at, long long i" : "long long r, long long i";
	const char *decl = pl_fmt(pl, "%s%s\tconst ix_t %s_0 = i;\n\n\t(void)r;\n", pl_axes(pl, k, 0, dim, "r"),
		mid ? pl_fmt(pl, "%s\t(void)at;\n", pl_axis(pl, k, dim, "at")) : "", l->lane->name);

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, pl_fmt(pl, "ww_vf @_load(const void *ctx, %s, int n)", place), decl, l->load);
	pl_cpu_functor(pl, k, s, pl_fmt(pl, "void @_store(const void *ctx, %s, ww_vf acc, int n)", place), decl, l->store);
	pl_cpu_kernel(pl, k, s, mid ? "WW_SCAN_MID_ARGS" : "WW_ROWS_ARGS",
		pl_fmt(pl, "ww_cpu_scan_%s(b, arg, WW_OP_%s, @_load, @_store, &c)", mid ? "mid" : "row",
			kinds[k->anchor->scan.red].op));
	k->launch = mid
		? pl_named(pl, k,
			  "\tww_recipe_cpu_mid(p, \"@\", &(struct ww_cpu_mid){ .outer = %s, .mid = %s, .inner = %s, "
			  ".cols = %d });\n%s",
			  ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->inner), tile, pl_plan_args(pl, k, "\t"))
		: pl_named(pl, k,
			  "\tww_recipe_cpu_rows(p, \"@\", &(struct ww_cpu_rows){ .rows = %s, .cols = %s, .per = %d });\n%s",
			  ix_text(pl, l->outer), ix_text(pl, l->len), tile, pl_plan_args(pl, k, "\t"));
}

static const struct knob_row cuda_knobs[] = { { KNOB(scan.threads), "threads", { 512, 128, 1024 } },
	{ KNOB(scan.chunks), "chunks", { 4, 1, 8 } }, { 0 } };

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *op = kinds[k->anchor->scan.red].op;
	int mid = l->form == MIDDLE;
	int excluded = k->anchor->scan.excluded; /* and not from the end */
	const char *back = k->anchor->scan.back ? ", true" : "";
	const char *at = mid ? "ix_t r, ix_t at, ix_t c" : "ix_t r, ix_t c"; /* quotients by sizes: of 32 bits */
	const char *axes = pl_indent(pl,
		pl_fmt(pl, "%s%s", pl_axes(pl, k, 0, k->anchor->scan.dim, "r"),
			mid ? pl_axis(pl, k, k->anchor->scan.dim, "at") : ""),
		1);

	pl_cuda_functor(pl, k, s,
		pl_fmt(pl, "\ttemplate <int N> __device__ void load(%s, float (&v)[N]) const\n\t{\n%s%s\t}\n", at, axes,
			pl_indent(pl, l->load, 2)),
		at, axes);
	if (mid)
		pl_cuda_kernel(pl, k, s, "@_BLOCK", "long long outer, long long len, long long inner",
			pl_fmt(pl, "scan_mid<ww::OP_%s, @_VEC, @_BLOCK / @_PARTS, @_PARTS%s>(outer, len, inner", op, back));
	else
		pl_cuda_kernel(pl, k, s, "@_BLOCK", "long long rows, long long cols",
			pl_fmt(pl, "scan_rows<ww::OP_%s, @_TPR, @_VEC, @_CHUNKS%s>(rows, cols", op,
				excluded          ? l->guarded ? ", false, true, true" : ", false, false, true"
					: !l->guarded ? back
					: *back       ? ", true, true"
								  : ", false, true"));
	k->launch = mid
		? pl_named(pl, k,
			  "\tww_recipe_scan_mid(p, &(struct ww_scan_mid){ .kernel = \"@\", .outer = %s, .len = %s, .inner = %s, "
			  ".vec = %d, .parts = %d });\n%s",
			  ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->inner), l->width, kn->scan.chunks,
			  pl_plan_args(pl, k, "\t"))
		: pl_named(pl, k,
			  "\tww_recipe_scan_rows(p, &(struct ww_scan_rows){ .kernel = \"@\", .rows = %s, .cols = %s, .vec = %d, "
			  "%s.threads = %d, .chunks = %d, .costly = %d });\n%s",
			  ix_text(pl, l->outer), ix_text(pl, l->len), l->width, l->width == 8 ? ".itemsize = 2, " : "",
			  kn->scan.threads, l->width == 8 && kn->scan.chunks > 4 ? 4 : kn->scan.chunks,
			  k->anchor->scan.red == RED_LOGSUMEXP, pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_scan_ops = { .header = "scan",
	.fuses = FUSES_READER | FUSES_OPERAND,
	.build = build,
	.knobs = { cpu_knobs, cuda_knobs },
	.print = { print_cpu, print_cuda } };
