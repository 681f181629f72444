/* rules_shape.c - rules of elementwise operators, reductions, and views. */
#include "task/graph/rules.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

int nothing_rule(struct call *c)
{
	(void)c;
	return 1;
}

/* ---- Elementwise ------------------------------------------------------------------------------------------------- */

/* All tensors among the arguments, broadcast. */
static int all_broadcast(struct call *c, struct shape *want)
{
	struct shape s;
	*want = scalar_shape();
	for (int i = 0; i < c->n_arg; i++) {
		char name[64];
		if (c->arg[i].kind != 'T' || !c->arg[i].j)
			continue;
		snprintf(name, sizeof(name), "%.*s", c->arg[i].name_len, c->arg[i].name);
		if (!tensor(c, name, &s) || !broadcast(c, want, &s))
			return 0;
	}
	return 1;
}

int point_rule(struct call *c)
{
	struct shape want;
	return all_broadcast(c, &want) && all_give(c, &want);
}

int like_self_rule(struct call *c)
{
	struct shape s;
	return self(c, &s) && all_give(c, &s);
}

/* copy and fill: what is written is expanded. */
int into_self_rule(struct call *c)
{
	struct shape s, src;
	const char *from = given(c, "src") ? "src" : "value";
	return self(c, &s) && (!given(c, from) || (tensor(c, from, &src) && expands(c, from, &src, &s))) && all_give(c, &s);
}

int along_rule(struct call *c)
{
	struct shape s;
	int d;
	return self(c, &s) && dim_of(c, "dim", -1, s.rank, &d) && all_give(c, &s);
}

int flip_one_rule(struct call *c)
{
	struct shape s;
	return self(c, &s) && ranks(c, "self", &s, c->row->variant, WW_GRAPH_MAX_RANK) && all_give(c, &s);
}

/* (N, C, ...), whose weight has one number, or C; for the kernel it has been broadcast. */
int prelu_rule(struct call *c)
{
	struct shape s, w;
	if (!self(c, &s) || !tensor(c, "weight", &w))
		return 0;
	if (w.rank == 1 && w.size[0] != 1 && !(s.rank > 1 && s.size[1] == w.size[0]) && s.rank != 1)
		return wrong(c, "its weight has %lld numbers", (long long)w.size[0]);
	return (w.rank <= 1 || expands(c, "weight", &w, &s)) && all_give(c, &s);
}

int glu_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self(c, &s) || !ranks(c, "self", &s, 1, WW_GRAPH_MAX_RANK) || !dim_of(c, "dim", -1, s.rank, &d))
		return 0;
	if (s.size[d] % 2)
		return wrong(c, "its operand has %lld elements along dimension %d", (long long)s.size[d], d);
	s.size[d] /= 2;
	return all_give(c, &s);
}

/* ---- Reductions -------------------------------------------------------------------------------------------------- */

/* The dimensions that are reduced, as a mask; *none: the list is empty, which means all, or of some none. */
static int reduced_dims(struct call *c, const struct shape *s, uint64_t *mask, int *none)
{
	int64_t v[WW_GRAPH_MAX_RANK];
	int n = ints(c, "dim", v, WW_GRAPH_MAX_RANK), d;
	const int empty = json_is_array(given(c, "dim")) && !n;
	*mask = 0;
	*none = empty;
	if (n < 0)
		return 0;
	if (n == 0 && c->row->variant) { /* matrix norms */
		v[0] = -2, v[1] = -1;
		n = 2;
	}
	if (n == 0 && given(c, "k"))
		v[n++] = -1;
	for (int i = 0; i < n; i++) {
		if (!in_range(c, "dim", v[i], s->rank, &d))
			return 0;
		if (*mask >> d & 1)
			return wrong(c, "its argument dim names dimension %d twice", d);
		*mask |= (uint64_t)1 << d;
	}
	if (!n)
		*mask = ~(uint64_t)0;
	return c->row->variant == 0 || ranks(c, "self", s, 2, WW_GRAPH_MAX_RANK);
}

static struct shape without(struct shape s, uint64_t mask, int keep)
{
	for (int d = s.rank - 1; d >= 0; d--)
		if (mask >> d & 1) {
			if (keep)
				s.size[d] = 1;
			else
				drop(&s, d);
		}
	return s;
}

static int reduced(struct call *c, int some)
{
	struct shape s, want, first;
	uint64_t mask;
	int none, keep = (int)int_of(c, "keepdim", 0);
	if (!self(c, &s) || !reduced_dims(c, &s, &mask, &none))
		return 0;
	for (int d = 0; some && d < s.rank; d++)
		if ((mask >> d & 1) && !s.size[d])
			return wrong(c, "dimension %d, which it reduces, has no elements", d);
	want = without(s, mask, keep);
	if (none && result(c, 0, &first) && first.rank == s.rank && !keep) /* any and all: of no dimensions */
		want = s;
	return all_give(c, &want);
}

int reduce_rule(struct call *c) { return reduced(c, 0); }

/* An extremum, a median, the k-th value: of one element at least. */
int reduce_some_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!reduced(c, 1))
		return 0;
	if (!given(c, "k"))
		return 1;
	const int64_t k = int_of(c, "k", 0);
	if (!self(c, &s) || !dim_of(c, "dim", -1, s.rank, &d))
		return 0;
	return (k >= 1 && k <= (s.rank ? s.size[d] : 1)) || wrong(c, "its argument k is %lld", (long long)k);
}

int number_rule(struct call *c)
{
	struct shape s;
	if (!all_broadcast(c, &s))
		return 0;
	s = scalar_shape();
	return all_give(c, &s);
}

static int reduction_of(struct call *c, int64_t *how)
{
	*how = int_of(c, "reduction", 1);
	return (*how >= 0 && *how <= 2) || wrong(c, "its argument reduction is %lld", (long long)*how);
}

static int loss_of(struct call *c, const struct shape *each_one)
{
	struct shape one = scalar_shape();
	int64_t how;
	return reduction_of(c, &how) && all_give(c, how ? &one : each_one);
}

int loss_rule(struct call *c)
{
	struct shape want;
	return all_broadcast(c, &want) && loss_of(c, &want);
}

/* One loss for each row: cosine embedding. */
int rows_loss_rule(struct call *c)
{
	struct shape a, b, t;
	if (!tensor(c, "input1", &a) || !tensor(c, "input2", &b) || !tensor(c, "target", &t) || !broadcast(c, &a, &b) ||
		!ranks(c, "input1", &a, 1, 2))
		return 0;
	drop(&a, a.rank - 1);
	return broadcast(c, &a, &t) && loss_of(c, &a);
}

/* x (N, C, d...) or (C), target without C, or of probabilities as x. */
int class_loss_rule(struct call *c)
{
	struct shape x, t, want;
	int of_all;
	int64_t how, ignored;
	if (!self(c, &x) || !tensor(c, "target", &t) || !ranks(c, "self", &x, 1, WW_GRAPH_MAX_RANK))
		return 0;
	const int d = x.rank > 1;
	want = x;
	drop(&want, d);
	of_all = x.rank == t.rank && !strncmp(c->op, "aten.cross", 10);
	if (!of_all && !is_integer(c, "target"))
		return 0;
	/* a batch of one row may have a target without a batch */
	if (!same(c, "target", &t, of_all ? &x : &want) || !vector_of(c, "weight", x.size[d]) || !reduction_of(c, &how))
		return 0;
	ignored = int_of(c, "ignore_index", -100);
	if (ignored <= INT32_MIN || ignored >= INT32_MAX)
		return wrong(c, "its argument ignore_index is out of range");
	if (n_results(c) > 1) { /* with the total weight */
		struct shape one = scalar_shape();
		return gives(c, 0, how ? &one : &want) && gives(c, 1, &one);
	}
	return loss_of(c, &want);
}

int multi_margin_rule(struct call *c)
{
	struct shape x, t;
	if (!self(c, &x) || !tensor(c, "target", &t) || !ranks(c, "self", &x, 0, 2) || !is_integer(c, "target"))
		return 0;
	if (!x.rank)
		insert(&x, 0, 1);
	if (!vector_of(c, "weight", x.size[x.rank - 1]))
		return 0;
	drop(&x, x.rank - 1);
	return (t.rank > 1 || x.rank == 0 || same(c, "target", &t, &x)) && loss_of(c, x.rank ? &x : &t);
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

int reshape_rule(struct call *c)
{
	struct shape s, out;
	if (!self(c, &s) || !result(c, 0, &out))
		return 0;
	return numel(&s) == numel(&out) ||
		wrong(c, "it makes %lld elements of %lld", (long long)numel(&out), (long long)numel(&s));
}

int permute_rule(struct call *c)
{
	struct shape s, want;
	int64_t v[WW_GRAPH_MAX_RANK];
	int n = ints(c, "dims", v, WW_GRAPH_MAX_RANK), d;
	uint64_t seen = 0;
	if (n < 0 || !self(c, &s))
		return 0;
	want = s;
	for (int i = 0; i < n; i++) {
		if (!in_range(c, "dims", v[i], s.rank, &d))
			return 0;
		seen |= (uint64_t)1 << d;
		want.size[i] = s.size[d];
	}
	if (n != s.rank || __builtin_popcountll(seen) != n)
		return wrong(c, "its argument dims does not name each dimension once");
	return gives(c, 0, &want);
}

static int swapped(struct call *c, struct shape *s, int x, int y)
{
	if (s->rank) {
		int64_t t = s->size[x];
		s->size[x] = s->size[y];
		s->size[y] = t;
	}
	return gives(c, 0, s);
}

int transpose_rule(struct call *c)
{
	const char *a = c->row->variant ? "axis0" : "dim0", *b = c->row->variant ? "axis1" : "dim1";
	struct shape s;
	int x, y;
	return self(c, &s) && dim_of(c, a, 0, s.rank, &x) && dim_of(c, b, 1, s.rank, &y) && swapped(c, &s, x, y);
}

/* t, mT and the like: the last two dimensions; variant: at most so many. */
int turned_rule(struct call *c)
{
	struct shape s;
	if (!self(c, &s) || !ranks(c, "self", &s, c->row->variant == 2 ? 0 : 2, c->row->variant))
		return 0;
	return s.rank < 2 ? gives(c, 0, &s) : swapped(c, &s, s.rank - 2, s.rank - 1);
}

int reversed_rule(struct call *c)
{
	struct shape s, want;
	if (!self(c, &s))
		return 0;
	want = s;
	for (int d = 0; d < s.rank; d++)
		want.size[d] = s.size[s.rank - 1 - d];
	return gives(c, 0, &want);
}

int movedim_rule(struct call *c)
{
	struct shape s, want;
	int64_t from[WW_GRAPH_MAX_RANK], to[WW_GRAPH_MAX_RANK];
	int n = ints(c, "source", from, WW_GRAPH_MAX_RANK), m = ints(c, "destination", to, WW_GRAPH_MAX_RANK), a, b;
	int at[WW_GRAPH_MAX_RANK], next = 0;
	uint64_t sources = 0, places = 0;
	if (n < 0 || m < 0 || !self(c, &s))
		return 0;
	if (n != m)
		return wrong(c, "it moves %d dimensions to %d places", n, m);
	for (int i = 0; i < n; i++) {
		if (!in_range(c, "source", from[i], s.rank, &a) || !in_range(c, "destination", to[i], s.rank, &b))
			return 0;
		if ((sources >> a & 1) || (places >> b & 1))
			return wrong(c, "it moves a dimension twice");
		sources |= (uint64_t)1 << a;
		places |= (uint64_t)1 << b;
		at[b] = a;
	}
	want = s;
	for (int d = 0; d < s.rank; d++) {
		if (!(places >> d & 1)) {
			while (sources >> next & 1)
				next++;
			at[d] = next++;
		}
		want.size[d] = s.size[at[d]];
	}
	return gives(c, 0, &want);
}

int expand_rule(struct call *c)
{
	struct shape s, out;
	return self(c, &s) && result(c, 0, &out) && expands(c, "self", &s, &out);
}

int expand_as_rule(struct call *c)
{
	struct shape s, want;
	return self(c, &s) && tensor(c, "other", &want) && expands(c, "self", &s, &want) && gives(c, 0, &want);
}

int unsqueeze_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self(c, &s) || !ranks(c, "self", &s, 0, WW_GRAPH_MAX_RANK - 1) || !dim_of(c, "dim", 0, s.rank + 1, &d))
		return 0;
	insert(&s, d, 1);
	return gives(c, 0, &s);
}

int squeeze_rule(struct call *c)
{
	struct shape s;
	int64_t v[WW_GRAPH_MAX_RANK];
	int n = ints(c, "dim", v, WW_GRAPH_MAX_RANK), d;
	uint64_t mask = given(c, "dim") ? 0 : ~(uint64_t)0;
	if (n < 0 || !self(c, &s))
		return 0;
	for (int i = 0; i < n; i++) {
		if (!in_range(c, "dim", v[i], s.rank, &d))
			return 0;
		mask |= (uint64_t)1 << d;
	}
	for (d = s.rank - 1; d >= 0; d--)
		if ((mask >> d & 1) && s.size[d] == 1)
			drop(&s, d);
	return gives(c, 0, &s);
}

int slice_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self_with_dim(c, "dim", &s, &d))
		return 0;
	s.size[d] = slice_length(c, s.size[d]);
	return s.size[d] >= 0 && gives(c, 0, &s);
}

int select_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self_with_dim(c, "dim", &s, &d) || !index_of(c, s.size[d]))
		return 0;
	drop(&s, d);
	return gives(c, 0, &s);
}

int narrow_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self_with_dim(c, "dim", &s, &d))
		return 0;
	const int64_t n = s.size[d], start = int_of(c, "start", 0), length = int_of(c, "length", 0);
	if (length < 0 || length > n || start < -n || start > n || (start < 0 ? start + n : start) > n - length)
		return wrong(
			c, "it takes %lld elements from %lld on, of %lld", (long long)length, (long long)start, (long long)n);
	s.size[d] = length;
	return gives(c, 0, &s);
}

/* chunk, split and the like; variant: the dimension of hsplit and its kin, which have no argument for it. */
enum { H_SPLIT = 1, V_SPLIT, D_SPLIT };

int pieces_rule(struct call *c)
{
	struct shape s, part;
	int64_t total = 0;
	int d = 0;
	if (!self_with_dim(c, "dim", &s, &d))
		return 0;
	if (c->row->variant)
		d = c->row->variant == H_SPLIT ? s.rank > 1 : c->row->variant - V_SPLIT ? 2 : 0;
	if (d >= s.rank)
		return wrong(c, "its operand has %d dimensions", s.rank);
	for (int i = 0; i < n_results(c); i++) {
		if (!result(c, i, &part) || part.rank != s.rank)
			return wrong(c, "piece %d has another number of dimensions", i);
		total += part.size[d];
		part.size[d] = s.size[d];
		if (!same(c, "a piece", &part, &s))
			return 0;
	}
	return total == s.size[d] ||
		wrong(c, "its pieces have %lld elements of %lld", (long long)total, (long long)s.size[d]);
}

int unbind_rule(struct call *c)
{
	struct shape s;
	int d;
	if (!self_with_dim(c, "dim", &s, &d))
		return 0;
	if (n_results(c) != s.size[d])
		return wrong(c, "it makes %d of %lld", n_results(c), (long long)s.size[d]);
	drop(&s, d);
	return all_give(c, &s);
}

/* ---- Several tensors --------------------------------------------------------------------------------------------- */

static int some_items(struct call *c) { return items(c, "tensors") > 0 || wrong(c, "its argument tensors is empty"); }

/* Tensors joined along d, each first changed by `as`; one of sizes [0] counts nothing. */
static int joined(struct call *c, int d, void (*as)(struct shape *s, int how), int how)
{
	struct shape want = { .rank = -1 }, s;
	int64_t total = 0;
	for (int i = 0; i < items(c, "tensors"); i++) {
		if (!item(c, "tensors", i, &s))
			return 0;
		if (s.rank == 1 && !s.size[0])
			continue;
		if (as)
			as(&s, how);
		if (d >= s.rank || (want.rank >= 0 && s.rank != want.rank))
			return wrong(c, "tensor %d has %d dimensions", i, s.rank);
		total += s.size[d];
		s.size[d] = 0;
		if (want.rank >= 0 && !same(c, "a tensor", &s, &want))
			return 0;
		want = s;
	}
	if (want.rank < 0)
		return 1; /* all are empty */
	want.size[d] = total;
	return gives(c, 0, &want);
}

int cat_rule(struct call *c)
{
	struct shape s;
	int d = 0, rank = 0;
	for (int i = 0; i < items(c, "tensors"); i++) {
		if (!item(c, "tensors", i, &s))
			return 0;
		rank = s.rank > rank ? s.rank : rank;
	}
	if (!some_items(c) || !dim_of(c, "dim", 0, rank, &d))
		return 0;
	return rank ? joined(c, d, NULL, 0) : wrong(c, "its tensors have no dimensions");
}

int stack_rule(struct call *c)
{
	struct shape want, s;
	int d;
	if (!some_items(c) || !item(c, "tensors", 0, &want) || !ranks(c, "a tensor", &want, 0, WW_GRAPH_MAX_RANK - 1) ||
		!dim_of(c, "dim", 0, want.rank + 1, &d))
		return 0;
	for (int i = 1; i < items(c, "tensors"); i++)
		if (!item(c, "tensors", i, &s) || !same(c, "a tensor", &s, &want))
			return 0;
	insert(&want, d, items(c, "tensors"));
	return gives(c, 0, &want);
}

/* hstack, vstack, dstack, column_stack: the variant is the first letter. */
static void stacked_as(struct shape *s, int how)
{
	if (s->rank == 0)
		insert(s, 0, 1);
	if (how == 'c' && s->rank == 1)
		insert(s, 1, 1);
	if ((how == 'v' || how == 'd') && s->rank == 1)
		insert(s, 0, 1);
	if (how == 'd' && s->rank == 2)
		insert(s, 2, 1);
}

int stack_as_rule(struct call *c)
{
	const int how = c->row->variant;
	struct shape s;
	if (!some_items(c) || !item(c, "tensors", 0, &s))
		return 0;
	return joined(c, how == 'd' ? 2 : how == 'v' ? 0 : how == 'h' && s.rank < 2 ? 0 : 1, stacked_as, how);
}

int block_diag_rule(struct call *c)
{
	struct shape want = { 2, { 0, 0 } }, s;
	for (int i = 0; i < items(c, "tensors"); i++) {
		if (!item(c, "tensors", i, &s) || !ranks(c, "a tensor", &s, 0, 2))
			return 0;
		want.size[0] += s.rank == 2 ? s.size[0] : 1;
		want.size[1] += s.rank ? s.size[s.rank - 1] : 1;
	}
	return some_items(c) && gives(c, 0, &want);
}

int meshgrid_rule(struct call *c)
{
	const char *indexing = json_string_value(given(c, "indexing"));
	const int n = items(c, "tensors"), xy = indexing && !strcmp(indexing, "xy");
	struct shape want = { .rank = n }, s;
	if (n < 1 || n > WW_GRAPH_MAX_RANK || n_results(c) != n)
		return wrong(c, "it has %d tensors and %d results", n, n_results(c));
	for (int i = 0; i < n; i++) {
		if (!item(c, "tensors", i, &s) || !ranks(c, "a tensor", &s, 0, 1))
			return 0;
		want.size[xy && i < 2 && n > 1 ? 1 - i : i] = s.rank ? s.size[0] : 1;
	}
	return all_give(c, &want);
}

int broadcast_all_rule(struct call *c)
{
	struct shape want = scalar_shape(), s;
	for (int i = 0; i < items(c, "tensors"); i++)
		if (!item(c, "tensors", i, &s) || !broadcast(c, &want, &s))
			return 0;
	if (n_results(c) != items(c, "tensors"))
		return wrong(c, "it has %d results", n_results(c));
	return all_give(c, &want);
}

/* ---- Padding and repetition -------------------------------------------------------------------------------------- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* The argument `name`: before and after, for the last dimension first. */
static int padded(struct call *c, const char *name, int how)
{
	struct shape s;
	int64_t p[2 * WW_GRAPH_MAX_RANK];
	int n = ints(c, name, p, 2 * WW_GRAPH_MAX_RANK);
	if (n < 0 || !self(c, &s))
		return 0;
	if (n % 2 || n / 2 > s.rank)
		return wrong(c, "its argument %s has %d numbers for %d dimensions", name, n, s.rank);
	for (int i = 0; i < n / 2; i++) {
		int64_t *size = &s.size[s.rank - 1 - i], lo = p[2 * i], hi = p[2 * i + 1], most = at_least(lo, hi);
		if ((how == REFLECT && most >= *size && most > 0) || (how == CIRCULAR && most > *size) ||
			(how != CONSTANT && !*size && most > 0) || *size + lo + hi < 0 || *size + lo < 0 || *size + hi < 0)
			return wrong(c, "it pads %lld elements by %lld and %lld", (long long)*size, (long long)lo, (long long)hi);
		*size += lo + hi;
	}
	return gives(c, 0, &s);
}

int pad_by_rule(struct call *c) { return padded(c, c->row->variant == CONSTANT ? "pad" : "padding", c->row->variant); }

int pad_rule(struct call *c)
{
	static const char *const modes[] = { "constant", "reflect", "replicate", "circular" };
	const char *mode = json_string_value(given(c, "mode"));
	for (int how = CONSTANT; how <= CIRCULAR; how++)
		if (!strcmp(mode ? mode : modes[0], modes[how]))
			return padded(c, "pad", how);
	return wrong(c, "its argument mode is \"%.20s\"", mode);
}

int repeat_rule(struct call *c)
{
	const char *name = c->row->variant ? "dims" : "repeats";
	struct shape s;
	int64_t v[WW_GRAPH_MAX_RANK];
	int n = ints(c, name, v, WW_GRAPH_MAX_RANK);
	if (n < 0 || !self(c, &s))
		return 0;
	if (n < s.rank && !c->row->variant)
		return wrong(c, "its argument repeats has %d numbers for %d dimensions", n, s.rank);
	while (s.rank < n)
		insert(&s, 0, 1);
	for (int d = 0; d < n; d++) {
		int64_t *size = &s.size[s.rank - n + d];
		if (v[d] < 0 || __builtin_mul_overflow(*size, v[d], size))
			return wrong(c, "it repeats %lld times", (long long)v[d]);
	}
	return gives(c, 0, &s);
}

int repeat_each_rule(struct call *c)
{
	struct shape s, want, times;
	const int64_t n = int_of(c, "repeats", 0);
	int d;
	if (!self(c, &s))
		return 0;
	if (json_is_object(given(c, "repeats"))) { /* a tensor of counts: only data says how many */
		if (!tensor(c, "repeats", &times) || !ranks(c, "repeats", &times, 0, 1) || !result(c, 0, &want))
			return 0;
		return !given(c, "dim") ? ranks(c, "its result", &want, 1, 1) : ranks(c, "its result", &want, s.rank, s.rank);
	}
	if (!given(c, "dim")) {
		s.size[0] = numel(&s);
		s.rank = 1;
	}
	if (!ranks(c, "self", &s, 1, WW_GRAPH_MAX_RANK) || !dim_of(c, "dim", 0, s.rank, &d))
		return 0;
	if (n < 0 || __builtin_mul_overflow(s.size[d], n, &s.size[d]))
		return wrong(c, "it repeats %lld times", (long long)n);
	return gives(c, 0, &s);
}

int roll_rule(struct call *c)
{
	struct shape s;
	int64_t by[WW_GRAPH_MAX_RANK], v[WW_GRAPH_MAX_RANK];
	int n = ints(c, "shifts", by, WW_GRAPH_MAX_RANK), m = ints(c, "dims", v, WW_GRAPH_MAX_RANK), d;
	if (n < 0 || m < 0 || !self(c, &s))
		return 0;
	if (m ? n != m : n != 1)
		return wrong(c, "it has %d shifts for %d dimensions", n, m);
	for (int i = 0; i < m; i++)
		if (!in_range(c, "dims", v[i], s.rank, &d))
			return 0;
	return gives(c, 0, &s);
}

/* Dimensions that an argument names, each once. */
static int named_once(struct call *c, const char *name, const struct shape *s, int64_t *v, int most)
{
	int n = ints(c, name, v, WW_GRAPH_MAX_RANK), d;
	uint64_t seen = 0;
	if (n < 0)
		return 0;
	for (int i = 0; i < n; i++) {
		if (!in_range(c, name, v[i], s->rank, &d))
			return 0;
		if (seen >> d & 1)
			return wrong(c, "its argument %s names dimension %d twice", name, d);
		seen |= (uint64_t)1 << d;
		v[i] = d;
	}
	return most < 0 || n == most || wrong(c, "its argument %s has %d numbers", name, n);
}

int flip_rule(struct call *c)
{
	struct shape s;
	int64_t v[WW_GRAPH_MAX_RANK];
	return self(c, &s) && named_once(c, "dims", &s, v, -1) && gives(c, 0, &s);
}

int rot90_rule(struct call *c)
{
	struct shape s;
	int64_t v[WW_GRAPH_MAX_RANK] = { 0, 1 };
	if (!self(c, &s) || !ranks(c, "self", &s, 2, WW_GRAPH_MAX_RANK) ||
		(given(c, "dims") && !named_once(c, "dims", &s, v, 2)))
		return 0;
	return int_of(c, "k", 1) % 2 ? swapped(c, &s, (int)v[0], (int)v[1]) : gives(c, 0, &s);
}

/* ---- Diagonals and triangles ------------------------------------------------------------------------------------- */

/* How long a diagonal is. */
static int64_t diagonal_of(int64_t rows, int64_t cols, int64_t off)
{
	int64_t n = off >= 0 ? (rows < cols - off ? rows : cols - off) : (rows + off < cols ? rows + off : cols);
	return n > 0 ? n : 0;
}

/* A vector becomes a matrix, a matrix its diagonal. */
int diag_rule(struct call *c)
{
	struct shape s;
	int64_t off;
	if (!self(c, &s) || !ranks(c, "self", &s, 1, 2) || !offset_of(c, "diagonal", &off))
		return 0;
	if (s.rank == 1) {
		s.size[0] = s.size[1] = s.size[0] + (off < 0 ? -off : off);
		s.rank = 2;
	} else {
		s.size[0] = diagonal_of(s.size[0], s.size[1], off);
		s.rank = 1;
	}
	return gives(c, 0, &s);
}

int diagonal_rule(struct call *c)
{
	struct shape s;
	int64_t off, n;
	int x, y;
	if (!self(c, &s) || !ranks(c, "self", &s, 2, WW_GRAPH_MAX_RANK) || !offset_of(c, "offset", &off) ||
		!dim_of(c, "dim1", 0, s.rank, &x) || !dim_of(c, "dim2", 1, s.rank, &y))
		return 0;
	if (x == y)
		return wrong(c, "its two dimensions are the same one");
	n = diagonal_of(s.size[x], s.size[y], off);
	drop(&s, x > y ? x : y);
	drop(&s, x > y ? y : x);
	insert(&s, s.rank, n);
	return gives(c, 0, &s);
}

int diag_embed_rule(struct call *c)
{
	struct shape s;
	int64_t off, n;
	int x, y;
	if (!self(c, &s) || !ranks(c, "self", &s, 1, WW_GRAPH_MAX_RANK - 1) || !offset_of(c, "offset", &off) ||
		!dim_of(c, "dim1", -2, s.rank + 1, &x) || !dim_of(c, "dim2", -1, s.rank + 1, &y))
		return 0;
	if (x == y)
		return wrong(c, "its two dimensions are the same one");
	n = s.size[--s.rank] + (off < 0 ? -off : off);
	insert(&s, x < y ? x : y, n);
	insert(&s, x < y ? y : x, n);
	return gives(c, 0, &s);
}

/* Matrices of any batch; variant: exactly two dimensions, and a number for result. */
int matrices_rule(struct call *c)
{
	struct shape s, one = scalar_shape();
	int64_t off;
	return self(c, &s) && ranks(c, "self", &s, 2, c->row->variant ? 2 : WW_GRAPH_MAX_RANK) &&
		offset_of(c, "diagonal", &off) && gives(c, 0, c->row->variant ? &one : &s);
}

int diff_rule(struct call *c)
{
	struct shape s, more;
	int d;
	const int64_t n = int_of(c, "n", 1);
	if (!self(c, &s) || !ranks(c, "self", &s, 1, WW_GRAPH_MAX_RANK) || !dim_of(c, "dim", -1, s.rank, &d))
		return 0;
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "append" : "prepend";
		if (!given(c, name) || !n)
			continue;
		if (!tensor(c, name, &more))
			return 0;
		const int64_t k = d < more.rank ? more.size[d] : 0, had = s.size[d];
		if (d < more.rank)
			more.size[d] = had;
		if (!same(c, name, &more, &s))
			return 0;
		s.size[d] += k;
	}
	if (n < 0 || n > INT32_MAX)
		return wrong(c, "its argument n is %lld", (long long)n);
	s.size[d] = at_least(0, s.size[d] - n);
	return gives(c, 0, &s);
}
