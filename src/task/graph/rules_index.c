/* rules_index.c - rules of indexing, of writing to places, and of what makes tensors. */
#include "task/graph/rules.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

/* ---- Indexing ---------------------------------------------------------------------------------------------------- */

int embedding_rule(struct call *c)
{
	struct shape w, at;
	if (!tensor(c, "weight", &w) || !tensor(c, "indices", &at) || !ranks(c, "weight", &w, 2, 2) ||
		!is_integer(c, "indices") || !ranks(c, "indices", &at, 0, WW_GRAPH_MAX_RANK - 1))
		return 0;
	insert(&at, at.rank, w.size[1]);
	return gives(c, 0, &at);
}

int index_select_rule(struct call *c)
{
	struct shape s, at;
	int d;
	if (!self(c, &s) || !tensor(c, "index", &at) || !ranks(c, "index", &at, 0, 1) || !is_integer(c, "index") ||
		!dim_of(c, "dim", 0, s.rank, &d))
		return 0;
	if (s.rank)
		s.size[d] = at.rank ? at.size[0] : 1;
	return gives(c, 0, &s);
}

/* An index of the rank of what it indexes, nowhere larger but along dimension d. */
static int index_within(struct call *c, const struct shape *at, const struct shape *of, int d)
{
	if (at->rank != of->rank && (at->rank > 1 || of->rank > 1))
		return wrong(c, "its index has %d dimensions, of %d", at->rank, of->rank);
	for (int i = 0; i < at->rank && i < of->rank; i++)
		if (i != d && at->size[i] > of->size[i])
			return wrong(c, "its index has size %lld in dimension %d, of %lld", (long long)at->size[i], i,
				(long long)of->size[i]);
	return 1;
}

int gather_rule(struct call *c)
{
	struct shape s, at;
	int d;
	if (!self(c, &s) || !tensor(c, "index", &at) || !is_integer(c, "index") || !dim_of(c, "dim", 0, s.rank, &d))
		return 0;
	return (!numel(&at) || index_within(c, &at, &s, d)) && gives(c, 0, &at);
}

int one_hot_rule(struct call *c)
{
	struct shape s;
	const int64_t n = int_of(c, "num_classes", -1);
	if (!self(c, &s) || !is_integer(c, "self") || !ranks(c, "self", &s, 0, WW_GRAPH_MAX_RANK - 1))
		return 0;
	if (n < 1 || n >= (int64_t)1 << WW_GRAPH_SIZE_BITS)
		return wrong(c, "its argument num_classes is %lld", (long long)n);
	insert(&s, s.rank, n);
	return gives(c, 0, &s);
}

int take_rule(struct call *c)
{
	struct shape at;
	return tensor(c, "index", &at) && is_integer(c, "index") && gives(c, 0, &at);
}

int take_along_rule(struct call *c)
{
	struct shape s, at, want;
	int d;
	if (!self(c, &s) || !tensor(c, "indices", &at) || !is_integer(c, "indices"))
		return 0;
	if (!given(c, "dim"))
		return result(c, 0, &want) && ranks(c, "its result", &want, 1, 1);
	if (!dim_of(c, "dim", 0, s.rank, &d) || !ranks(c, "indices", &at, s.rank, s.rank))
		return 0;
	if (s.rank) {
		want = at;
		want.size[d] = s.size[d] = 1;
		if (!broadcast(c, &want, &s))
			return 0;
		want.size[d] = at.size[d];
		return gives(c, 0, &want);
	}
	return gives(c, 0, &at);
}

/* Indices of x: tensors or None.  *want: the sizes of x[indices]; *joint: those of the indices together; *mask: what
 * dimensions they are of.  *open: a mask of booleans, whose number of elements only data says. */
static int indexed(struct call *c, const struct shape *x, struct shape *want, int *open)
{
	const json_t *list = given(c, "indices");
	struct shape joint = scalar_shape(), s;
	int first = -1, last = -1, apart = 0;
	*want = scalar_shape();
	*open = 0;
	if ((int)json_array_size(list) > x->rank)
		return wrong(c, "it has %d indices for %d dimensions", (int)json_array_size(list), x->rank);
	for (int i = 0; i < (int)json_array_size(list); i++) {
		if (json_is_null(json_array_get(list, (size_t)i)))
			continue;
		const json_t *p = json_object_get(c->places, ww_json_str(json_array_get(list, (size_t)i), "ref", ""));
		const json_t *t = json_object_get(p, "out") ? json_array_get(json_object_get(p, "out"), 0) : p;
		const char *type = ww_json_str(t, "dtype", "");
		if (!strcmp(type, "bool") || !strcmp(type, "uint8"))
			*open = 1;
		else if (strncmp(type, "int", 3) != 0)
			return wrong(c, "an index is not of integers");
		apart |= last >= 0 && last != i - 1;
		first = first < 0 ? i : first;
		last = i;
		if (!*open && (!read_shape(t, &s) || !broadcast(c, &joint, &s)))
			return 0;
	}
	if (first < 0)
		return wrong(c, "all its indices are None");
	if (*open)
		return 1;
	if (x->rank + joint.rank > WW_GRAPH_MAX_RANK)
		return wrong(c, "its result has too many dimensions");
	for (int d = 0; d < x->rank; d++) {
		const int is = d < (int)json_array_size(list) && !json_is_null(json_array_get(list, (size_t)d));
		if (!apart && d == first)
			for (int k = 0; k < joint.rank; k++)
				insert(want, want->rank, joint.size[k]);
		if (!is)
			insert(want, want->rank, x->size[d]);
	}
	for (int k = 0; apart && k < joint.rank; k++)
		insert(want, k, joint.size[k]);
	return 1;
}

int index_rule(struct call *c)
{
	struct shape s, want;
	int open;
	return self(c, &s) && indexed(c, &s, &want, &open) && (open || gives(c, 0, &want));
}

int index_put_rule(struct call *c)
{
	struct shape s, want, v;
	int open;
	return self(c, &s) && indexed(c, &s, &want, &open) && tensor(c, "values", &v) &&
		(open || expands(c, "values", &v, &want)) && gives(c, 0, &s);
}

int scatter_rule(struct call *c)
{
	struct shape s, at, src;
	int d;
	if (!self(c, &s) || !tensor(c, "index", &at) || !is_integer(c, "index") || !dim_of(c, "dim", 0, s.rank, &d))
		return 0;
	if (numel(&at) && (!index_within(c, &at, &s, d)))
		return 0;
	if (numel(&at) && given(c, "src") && (!tensor(c, "src", &src) || !index_within(c, &at, &src, -1)))
		return 0;
	return gives(c, 0, &s);
}

/* index_add and its kin: source has self's sizes, but for dimension dim those of the index. */
int index_write_rule(struct call *c)
{
	struct shape s, at, src, want;
	int d;
	if (!self(c, &s) || !tensor(c, "index", &at) || !ranks(c, "index", &at, 0, 1) || !is_integer(c, "index") ||
		!dim_of(c, "dim", 0, s.rank, &d))
		return 0;
	want = s;
	if (s.rank)
		want.size[d] = at.rank ? at.size[0] : 1;
	if (given(c, "source")) {
		if (!tensor(c, "source", &src))
			return 0;
		if (src.rank && s.rank ? !same(c, "source", &src, &want)
							   : numel(&src) != 1 && !wrong(c, "its source has several elements"))
			return 0;
	}
	if (json_is_object(given(c, "value")) && (!tensor(c, "value", &src) || !ranks(c, "value", &src, 0, 0)))
		return 0;
	return gives(c, 0, &s);
}

int embedding_bag_rule(struct call *c)
{
	struct shape w, at, off, scale, want;
	const int64_t mode = int_of(c, "mode", 0);
	if (!tensor(c, "weight", &w) || !tensor(c, "indices", &at) || !tensor(c, "offsets", &off) ||
		!ranks(c, "weight", &w, 2, 2) || !ranks(c, "indices", &at, 1, 1) || !ranks(c, "offsets", &off, 1, 1) ||
		!is_integer(c, "indices") || !is_integer(c, "offsets"))
		return 0;
	if (mode < 0 || mode > 2)
		return wrong(c, "its argument mode is %lld", (long long)mode);
	if (given(c, "per_sample_weights") &&
		(!tensor(c, "per_sample_weights", &scale) || !same(c, "per_sample_weights", &scale, &at)))
		return 0;
	const int64_t bags = off.size[0] - (int_of(c, "include_last_offset", 0) != 0);
	want = (struct shape){ 2, { bags, w.size[1] } };
	return (bags >= 0 || wrong(c, "it has no offsets")) && gives(c, 0, &want);
}

int masked_scatter_rule(struct call *c)
{
	struct shape s, mask, src;
	return self(c, &s) && tensor(c, "mask", &mask) && tensor(c, "source", &src) && broadcast(c, &s, &mask) &&
		gives(c, 0, &s);
}

int histogram_rule(struct call *c)
{
	struct shape want = { 1, { int_of(c, "bins", 100) } };
	if (want.size[0] < 1 || want.size[0] > INT32_MAX)
		return wrong(c, "its argument bins is %lld", (long long)want.size[0]);
	return gives(c, 0, &want);
}

/* searchsorted; variant: bucketize, with one row of boundaries. */
int search_rule(struct call *c)
{
	struct shape edges, v;
	if (!tensor(c, c->row->variant ? "boundaries" : "sorted_sequence", &edges) || !tensor(c, "self", &v) ||
		!ranks(c, "its boundaries", &edges, 1, c->row->variant ? 1 : WW_GRAPH_MAX_RANK))
		return 0;
	if (edges.rank > 1) { /* rows of their own */
		struct shape rows = v;
		if (!ranks(c, "self", &v, edges.rank, edges.rank))
			return 0;
		rows.size[rows.rank - 1] = edges.size[edges.rank - 1];
		if (!same(c, "its boundaries", &edges, &rows))
			return 0;
	}
	return gives(c, 0, &v);
}

int slice_scatter_rule(struct call *c)
{
	struct shape s, src, want;
	int d;
	if (!self_with_dim(c, "dim", &s, &d) || !tensor(c, "src", &src))
		return 0;
	want = s;
	want.size[d] = slice_length(c, s.size[d]);
	return want.size[d] >= 0 && same(c, "src", &src, &want) && gives(c, 0, &s);
}

int select_scatter_rule(struct call *c)
{
	struct shape s, src, want;
	int d;
	if (!self_with_dim(c, "dim", &s, &d) || !tensor(c, "src", &src) || !index_of(c, s.size[d]))
		return 0;
	want = s;
	drop(&want, d);
	return same(c, "src", &src, &want) && gives(c, 0, &s);
}

int topk_rule(struct call *c)
{
	struct shape s;
	int d;
	const int64_t k = int_of(c, "k", 0);
	if (!self(c, &s) || !dim_of(c, "dim", -1, s.rank, &d))
		return 0;
	if (k < 0 || k > (s.rank ? s.size[d] : 1))
		return wrong(c, "its argument k is %lld", (long long)k);
	if (s.rank)
		s.size[d] = k;
	return all_give(c, &s);
}

/* ---- Tensors that are made --------------------------------------------------------------------------------------- */

int sized_rule(struct call *c)
{
	struct shape want = { .rank = ints(c, "size", want.size, WW_GRAPH_MAX_RANK) };
	return want.rank >= 0 && gives(c, 0, &want);
}

int arange_rule(struct call *c)
{
	const double start = num_of(c, "start", 0), end = num_of(c, "end", 0), step = num_of(c, "step", 1);
	const double n = step != 0 ? ceil((end - start) / step) : -1;
	struct shape s;
	if (!(n >= 0 && n < (double)((int64_t)1 << WW_GRAPH_SIZE_BITS)) || !isfinite(start) || !isfinite(end))
		return wrong(c, "it counts from %g to %g by %g", start, end, step);
	if (!result(c, 0, &s) || !ranks(c, "its result", &s, 1, 1))
		return 0;
	/* floats of other types may count one more or less */
	return fabs((double)s.size[0] - n) <= 1 || wrong(c, "it has %lld elements, not %g", (long long)s.size[0], n);
}

int steps_rule(struct call *c)
{
	struct shape want = { 1, { int_of(c, "steps", -1) } };
	if (want.size[0] < 0)
		return wrong(c, "its argument steps is %lld", (long long)want.size[0]);
	return gives(c, 0, &want);
}

int eye_rule(struct call *c)
{
	struct shape want = { 2, { int_of(c, "n", 0), int_of(c, "m", int_of(c, "n", 0)) } };
	return gives(c, 0, &want);
}

int tri_indices_rule(struct call *c)
{
	struct shape s;
	int64_t off;
	const int64_t rows = int_of(c, "row", -1), cols = int_of(c, "col", -1);
	if (rows < 0 || cols < 0 || rows > INT32_MAX || cols > INT32_MAX)
		return wrong(c, "it is of %lld rows and %lld columns", (long long)rows, (long long)cols);
	if (!offset_of(c, "offset", &off) || !result(c, 0, &s) || !ranks(c, "its result", &s, 2, 2))
		return 0;
	if (s.size[0] != 2 || s.size[1] > rows * cols)
		return wrong(c, "its result does not fit %lld rows and %lld columns", (long long)rows, (long long)cols);
	return 1;
}
