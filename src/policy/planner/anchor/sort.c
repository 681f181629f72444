/* sort.c - argsort: the source indices of elements first, first + 1, ... of each sorted row, as floats; or their
 * values.
 *
 * cuda: rows that fit into a block.  cpu: whole rows along the last dimension, by a radix sort, which pays from some
 * ten elements on.  The template reads its operand by a functor.  Readers gather the values, usually in the expression
 * that is fused behind the template; where no index is needed the template for cuda sorts values alone. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <string.h>

enum { LONGEST = 4096 };                           /* of recipe/sort.h */
enum { CPU_SHORTEST = 33, CPU_LONGEST = 1 << 24 }; /* a float holds such an index exactly */

/* NULL: of a type that <ww/sort.cuh> does not have; small integers are exact as floats. */
static const char *type_of(int dt)
{
	switch (dt) {
	case WW_F16: return "F16";
	case WW_BF16: return "BF16";
	case WW_F32:
	case WW_BOOL:
	case WW_U8:
	case WW_I8:
	case WW_I16: return "F32";
	default: return NULL;
	}
}

/* The first few of each sorted row are gathered once the last of them is found, which takes a comparison an element for
 * each bit of a key, where a sort takes log2(n)^2 / 2 exchanges.  Numbers: of recipe/sort.h; shorter rows are sorted.
 */
enum { FEW = 128, FEW_OF = 256, FEW_OF_LONGEST = 32768 };

int pl_gathers_first(const struct pl *pl, const struct val *x, const struct pl_sorted *part)
{
	int64_t n = ix_num(x->size[part->dim]), count = ix_num(part->count);

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && type_of(x->dt) && part->dim == x->rank - 1 &&
		ix_is(part->first, 0) && count > 1 && count <= FEW && 4 * count <= n && n >= FEW_OF && n <= FEW_OF_LONGEST;
}

int pl_sorts(const struct pl *pl, const struct val *x, const struct pl_sorted *part)
{
	int64_t n = ix_num(x->size[part->dim]);

	if (pl->target == WW_TARGET_CPU)
		return pl_is_float(x->dt) && x->dt != WW_F64 && n >= CPU_SHORTEST && n <= CPU_LONGEST;
	return (pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && type_of(x->dt) && n <= LONGEST) ||
		pl_gathers_first(pl, x, part);
}

/* cpu: the row is the last dimension, and all of it is sorted. */
static struct val *sort_on_cpu(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part)
{
	struct anchor *s = pl_anchor(pl, n, S_SORT, "sort");
	int there[PL_MAX_RANK], back[PL_MAX_RANK], dim = part->dim;
	struct val *at;

	for (int i = 0; i < x->rank; i++) {
		there[i] = i < dim ? i : i + 1 < x->rank ? i + 1 : dim;
		back[there[i]] = i;
	}
	x = pl_permute(pl, x, there);
	s->sort.dim = x->rank - 1;
	s->sort.descending = part->descending;
	pl_anchor_operand(s, x);
	at = pl_permute(pl, pl_anchor_out(pl, s, WW_F32, x->rank, x->size), back);
	return pl_slice(pl, at, dim, part->first, part->count, 1);
}

static struct val *sort_on_cuda(
	struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part, int values, int dt)
{
	struct anchor *s = pl_anchor(pl, n, S_SORT, "sort");
	const struct ix *size[PL_MAX_RANK];

	memcpy(size, x->size, sizeof(size));
	size[part->dim] = part->count;
	s->sort.dim = part->dim;
	s->sort.descending = part->descending;
	s->sort.values = values;
	s->sort.first = ix_num(part->first);
	s->sort.few = pl_gathers_first(pl, x, part);
	pl_guard_eq(pl, part->first, ix_const(pl, s->sort.first), "the place that a sorted row is read at");
	pl_anchor_operand(s, x);
	return pl_anchor_out(pl, s, dt, x->rank, size);
}

struct val *pl_sort(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part)
{
	return pl->target == WW_TARGET_CPU ? sort_on_cpu(pl, n, x, part) : sort_on_cuda(pl, n, x, part, 0, WW_F32);
}

struct val *pl_sort_values(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part)
{
	return pl->target == WW_TARGET_CUDA && pl_is_float(x->dt) && pl_sorts(pl, x, part)
		? sort_on_cuda(pl, n, x, part, 1, x->dt)
		: NULL;
}

/* Along the last dimension or another one; one element of each row, by its bits; the first few of each row. */
enum form { LAST, MIDDLE, ONE, FIRST };

/* From so many elements on one of a row is selected: sorting 256 takes 36 exchanges an element, its key's bits and its
 * index's 40 comparisons. */
enum { SELECTED = 256 };

static int is_one(const struct pl *pl, const struct anchor *s)
{
	int64_t count;

	return pl->target == WW_TARGET_CUDA && s->sort.dim == s->out->rank - 1 &&
		ix_is_const(s->out->size[s->sort.dim], &count) && count == 1 && ix_num(s->in[0].size[s->sort.dim]) >= SELECTED;
}

static void build(struct pl *pl, struct kern *k)
{
	const struct anchor *s = k->anchor;
	const struct val *out = s->out;
	const struct ix *idx[PL_MAX_RANK];
	int dim = s->sort.dim, last = out->rank - 1;
	const struct ix_atom *column;
	const struct ix *place;
	struct loop *l = k->loop;

	memcpy(idx, k->anchor_idx, sizeof(idx));
	l->form = is_one(pl, s) ? ONE : s->sort.few ? FIRST : dim == last ? LAST : MIDDLE;
	l->outer = pl_sizes(pl, out, 0, dim);
	l->len = s->in[0].size[dim];
	l->inner = pl_sizes(pl, out, dim + 1, out->rank);
	if (pl->target == WW_TARGET_CPU) {
		l->lane = pl_lane_of(pl, k, last);
		l->load = pl_load_body(pl, k, "c", idx);
		l->store = pl_store_body(pl, k, "c");
		return;
	}
	column = l->form == MIDDLE ? pl_join(pl, k, dim + 1, out->rank, idx) : pl_lane_of(pl, k, last);
	place = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), l->len); /* the stored part of the row may be shorter */
	idx[dim] = place;
	l->lane = l->form == MIDDLE ? column : ix_as_var(place);
	l->width = 1;
	l->load = pl_load_body(pl, k, "c", idx);
	if (l->form == MIDDLE && ix_as_var(place))
		l->load = pl_fmt(pl, "const ix_t %s = at;\n%s", ix_as_var(place)->name, l->load);
	l->lane = column;
	l->width = l->form == LAST && ix_num(out->size[dim]) % 4 == 0 && s->sort.first % 4 == 0 ? 4 : 1;
	l->store = pl_store_body(pl, k, "c");
}

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *decl = pl_fmt(pl, "%s\tconst ix_t %s_0 = i;\n\n\t(void)r;\n",
		pl_axes(pl, k, 0, k->anchor->out->rank - 1, "r"), l->lane->name);

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, "ww_vf @_load(const void *ctx, long long r, long long i, int n)", decl, l->load);
	pl_cpu_functor(
		pl, k, s, "void @_store(const void *ctx, long long r, long long i, ww_vf acc, int n)", decl, l->store);
	pl_cpu_kernel(pl, k, s, "WW_ROWS_ARGS",
		pl_fmt(pl, "ww_cpu_sort_rows(b, arg, %d, @_load, @_store, &c)", k->anchor->sort.descending));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_rows(p, \"@\", &(struct ww_cpu_rows){ .rows = %s, .cols = %s, .keep = 3 });\n%s",
		ix_text(pl, l->outer), ix_text(pl, l->len), pl_plan_args(pl, k, "\t"));
}

static const struct knob_row cuda_knobs[] = { { KNOB(sort.each), "each", { 8, 16, 4 } }, { 0 } };

/* Words of a thread.  Along a middle axis few threads share a row, so that a warp's loads of adjacent rows are
 * coalesced. Values alone take few registers: with twice as many a third of the shuffles is gone. */
static int words(const struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	int64_t len = ix_num(l->len);
	int many = ix_num(l->outer) * len >= 8192 * (int64_t)pl->dev.sm_count, each = 4;
	int most = l->form == MIDDLE ? 16 : k->anchor->sort.values && many ? 8 : 4;

	while (each < most && each < len)
		each *= 2;
	return each;
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct loop *l = k->loop;
	int mid = l->form == MIDDLE, dim = sp->sort.dim, each = pl_knobs(pl, k->id)->sort.each;
	const char *at = mid ? "long long r, long long at, long long c" : "long long r, long long c, long long i";
	const char *axes = pl_indent(pl, pl_axes(pl, k, 0, dim, "r"), 1);

	pl_cuda_functor(pl, k, s,
		pl_fmt(pl, "\ttemplate <int N> __device__ void load(%s, float (&v)[N]) const\n\t{\n%s%s\t}\n", at, axes,
			pl_indent(pl, l->load, 2)),
		at, pl_fmt(pl, "%s%s", axes, mid ? pl_indent(pl, pl_axis(pl, k, dim, "at"), 1) : ""));
	if (l->form == ONE) {
		pl_cuda_kernel(pl, k, s, "@_THREADS", "long long rows, int len, int first, int descending",
			pl_fmt(pl, "select_rows<ww::SORT_%s, @_EACH, @_TPR%s>(rows, len, first, descending",
				type_of(sp->in[0].val->dt), sp->sort.values ? ", true" : ""));
		k->launch = pl_named(pl, k,
			"\tww_recipe_select(p, &(struct ww_select){ .kernel = \"@\", .rows = %s, .len = %s, .first = %lld, "
			".descending = %d, .each = %d });\n%s",
			ix_text(pl, l->outer), ix_text(pl, l->len), (long long)sp->sort.first, sp->sort.descending, each,
			pl_plan_args(pl, k, "\t"));
		return;
	}
	if (l->form == FIRST) {
		pl_cuda_kernel(pl, k, s, "@_THREADS", "long long rows, int len, int count, int descending",
			pl_fmt(pl, "first_rows<ww::SORT_%s, @_EACH, @_TPR, @_MOST%s>(rows, len, count, descending",
				type_of(sp->in[0].val->dt), sp->sort.values ? ", true" : ""));
		k->launch = pl_named(pl, k,
			"\tww_recipe_first(p, &(struct ww_first){ .kernel = \"@\", .rows = %s, .len = %s, .count = %s, "
			".descending = %d, .each = %d });\n%s",
			ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, sp->out->size[dim]), sp->sort.descending, each,
			pl_plan_args(pl, k, "\t"));
		return;
	}
	pl_cuda_kernel(pl, k, s, "@_THREADS",
		"long long outer, int len, long long inner, int first, int count, int descending",
		pl_fmt(pl,
			"sort_rows<ww::SORT_%s, @_EACH, @_TPR, @_THREADS, @_VEC%s>(outer, len, inner, first, count, descending",
			type_of(sp->in[0].val->dt), sp->sort.values ? ", true" : ""));
	k->launch = pl_named(pl, k,
		"\tww_recipe_sort(p, &(struct ww_sort){ .kernel = \"@\", .outer = %s, .len = %s, .inner = %s, "
		".first = %lld, .count = %s, .descending = %d, .vec = %d, .each = %d });\n%s",
		ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->inner), (long long)sp->sort.first,
		ix_text(pl, sp->out->size[dim]), sp->sort.descending, l->width, each ? each : words(pl, k),
		pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_sort_ops = { .header = "sort",
	.fuses = FUSES_READER | FUSES_OPERAND,
	.build = build,
	.knobs = { NULL, cuda_knobs },
	.print = { print_cpu, print_cuda } };
