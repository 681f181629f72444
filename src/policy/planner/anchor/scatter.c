/* scatter.c - elements written to places that data says, one after the other (cpu): scatter, scatter_add,
 * scatter_reduce, index_add, index_put.
 *
 * Each written element is read once, in its order, as PyTorch's kernels do it; lowering otherwise has each element of
 * the result ask all written ones.  The template reads its operands by functors, so that their expressions are fused;
 * in[]: the tensor that is written to, the places, what is written.  Operands 1 and 2 run over the written elements
 * where the result has the dimension that is written along. */
#include "policy/planner/print/print.h"

#include "policy/planner/graph/walk.h"

#include <math.h>
#include <string.h>

enum { SELF, PLACE, SRC };

enum form {
	LAST,
	MIDDLE,
	SLICES
}; /* along the last dimension; another one; the same where all behind it shares its
    * place */

/* Floats of scratch that a thread has (WW_CPU_SHARED_BYTES, less a batch of short rows), and least columns of a block.
 */
enum { MOST_FLOATS = (4 << 20) - 8192, LEAST_COLS = 16 };

/* Microseconds for a vector of results and a written element that come together; and of the template: for a written
 * element, for one of the result, and of a launch.  One thread with AVX-512. */
static const double pairs_us = 2.2e-3, written_us = 1e-3, result_us = 4e-4, launch_us = 2;

int pl_scatters(const struct pl *pl, const struct val *to, int dim, const struct ix *list)
{
	double result = (double)pl_numel_now(to), len = (double)ix_num(to->size[dim]), n = (double)ix_num(list);
	double last = (double)ix_num(to->size[to->rank - 1]), vectors = result / last * ceil(last / 16);

	return pl->target == WW_TARGET_CPU && pl_is_float(to->dt) && to->dt != WW_F64 &&
		len * (dim == to->rank - 1 ? 1 : LEAST_COLS) <= MOST_FLOATS &&
		vectors * n * pairs_us > launch_us + result / len * n * written_us + result * result_us;
}

struct val *pl_scatter(struct pl *pl, struct gnode *n, enum pl_scatter how, const struct val *to, struct val *init,
	int dim, struct val *place, struct val *src)
{
	struct anchor *s = pl_anchor(pl, n, S_SCATTER, "scatter");

	s->scatter.how = how;
	s->scatter.dim = dim;
	pl_anchor_operand(s, init);
	pl_anchor_operand(s, place);
	pl_anchor_operand(s, src);
	return pl_anchor_out(pl, s, init->dt, to->rank, to->size);
}

static int own_axis(const struct anchor *s, int which) { return which == SELF ? -1 : s->scatter.dim; }

/* Do all elements behind the dimension that is written along, counted by `inner`, share their place? */
static int shares_place(struct pl *pl, struct val *place, const struct ix *const *at, const struct ix_atom *inner)
{
	struct walk w;

	pl_walk_init(&w, pl, NULL);
	pl_walk(&w, place, at);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->off && ix_has(l->off, inner))
			return 0;
		for (int d = 0; d < l->val->rank; d++)
			if (ix_has(l->idx[d], inner))
				return 0;
	}
	return 1;
}

/* at[]: the index of an operand whose axes behind dim are one, of the name of `column` and of the operand's own sizes,
 * so that they are one in its memory, too.  Returns that axis. */
static const struct ix_atom *join_own(
	struct pl *pl, const struct anchor *s, int which, const struct ix_atom *column, const struct ix **at)
{
	const struct val *v = s->in[which].val;
	const struct ix *all = ix_const(pl, 1), *under = all, *m;

	if (v->rank != s->out->rank)
		return column;
	for (int d = s->scatter.dim + 1; d < v->rank; d++)
		all = ix_mul(pl, all, v->size[d]);
	m = ix_var(pl, column->name, all);
	for (int d = v->rank - 1; d > s->scatter.dim; d--) {
		at[d] = ix_is(v->size[d], 1) ? ix_const(pl, 0) : ix_mod(pl, ix_div(pl, m, under), v->size[d]);
		under = ix_mul(pl, under, v->size[d]);
	}
	return ix_as_var(m);
}

static void build(struct pl *pl, struct kern *k)
{
	const struct anchor *s = k->anchor;
	const struct val *out = s->out;
	int dim = s->scatter.dim, last = out->rank - 1;
	const struct ix *idx[PL_MAX_RANK], *at[PL_MAX_RANK];
	const struct ix_atom *column;
	struct loop *l = k->loop;

	memcpy(idx, k->anchor_idx, sizeof(idx));
	column = dim == last ? pl_lane_of(pl, k, last) : pl_join(pl, k, dim + 1, out->rank, idx);
	memcpy(at, idx, sizeof(at));
	l->written = s->in[PLACE].size[dim];
	at[dim] = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), l->written);
	l->nth = ix_as_var(at[dim]);
	l->lane = dim == last ? l->nth : join_own(pl, s, PLACE, column, at);
	l->form = dim == last ? LAST : shares_place(pl, s->in[PLACE].val, at, l->lane) ? SLICES : MIDDLE;
	l->outer = pl_sizes(pl, out, 0, dim);
	l->len = out->size[dim];
	l->inner = pl_sizes(pl, out, dim + 1, out->rank);
	l->place = pl_place_body(pl, k, PLACE, at, l->form == SLICES);
	l->lane = dim == last ? l->nth : join_own(pl, s, SRC, column, at);
	l->src = pl_load_body_of(pl, k, SRC, "c", at);
	l->lane = column;
	l->load = pl_load_body_of(pl, k, SELF, "c", idx);
	l->store = pl_store_body(pl, k, "c");
}

/* Indexed by enum pl_scatter. */
static const char *const names[] = { "SUM", "PROD", "MAX", "MIN", "SET" };

/* A functor with the parameters `of` (@ is the kernel's name), which are given to the variables of the axes; the
 * lane's first element, from i, where the functor has one. */
static void functor(struct pl *pl, struct kern *k, struct ww_str *s, const char *head, const char *of,
	const char *middle, const struct ix_atom *lane, const char *body)
{
	const char *outer = pl_axes(pl, k, 0, k->anchor->scatter.dim, "o");

	pl_cpu_functor(pl, k, s, pl_fmt(pl, "%s(const void *ctx, %s)", head, of),
		pl_fmt(
			pl, "%s%s%s\n\t(void)o;\n", outer, middle, lane ? pl_fmt(pl, "\tconst ix_t %s_0 = i;\n", lane->name) : ""),
		body);
}

static void print_functors(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	int rows = l->form == LAST;
	const struct ix_atom *lane = l->lane, *nth = rows ? l->nth : lane;
	const char *at = rows ? "long long o, long long i" : "long long o, long long m, long long i";
	const char *m = rows ? "" : pl_fmt(pl, "%s\t(void)m;\n", pl_axis(pl, k, k->anchor->scatter.dim, "m"));
	const char *j = rows ? "" : pl_fmt(pl, "\tconst ix_t %s = m;\n\n\t(void)%s;\n", l->nth->name, l->nth->name);

	pl_cpu_context(pl, k, s);
	functor(pl, k, s, "ww_vf @_self", pl_fmt(pl, "%s, int n", at), m, lane, l->load);
	if (l->form == SLICES)
		functor(pl, k, s, "int32_t @_place", "long long o, long long m", j, NULL, l->place);
	else
		functor(pl, k, s, "ww_vi @_place", pl_fmt(pl, "%s, int n", at), j, nth, l->place);
	functor(pl, k, s, "ww_vf @_src", pl_fmt(pl, "%s, int n", at), j, nth, l->src);
	functor(pl, k, s, "void @_store", pl_fmt(pl, "%s, ww_vf acc, int n", at), m, lane, l->store);
}

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static const char *const forms[] = { [LAST] = "rows", [MIDDLE] = "mid", [SLICES] = "slices" };
	const struct loop *l = k->loop;

	print_functors(pl, k, s);
	pl_cpu_kernel(pl, k, s, "WW_SCATTER_ARGS",
		pl_fmt(pl, "ww_cpu_scatter_%s(b, arg, WW_SCATTER_%s, %s, %s, @_self, @_place, @_src, @_store, &c)",
			forms[l->form], names[k->anchor->scatter.how], ix_text(pl, l->len), ix_text(pl, l->written)));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_scatter%s(p, \"@\", &(struct ww_cpu_scatter){ .outer = %s, .len = %s, .inner = %s, "
		".list = %s });\n%s",
		l->form == LAST ? "_rows" : "", ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->inner),
		ix_text(pl, l->written), pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_scatter_ops = { .header = "scatter",
	.fuses = FUSES_READER | FUSES_OPERAND,
	.own_axis = own_axis,
	.build = build,
	.print = { print_cpu, NULL } };
