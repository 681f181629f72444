/* rules_product.c - rules of products: matrices, batches, einsum, and linear algebra. */
#include "task/graph/rules.h"

#include <ctype.h>
#include <string.h>

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* torch.matmul: vectors, matrices, batches that are broadcast. */
static int product(struct call *c, struct shape a, struct shape b, struct shape *want)
{
	const int av = a.rank == 1, bv = b.rank == 1;
	if (!ranks(c, "its first operand", &a, 1, WW_GRAPH_MAX_RANK - 1) ||
		!ranks(c, "its second operand", &b, 1, WW_GRAPH_MAX_RANK - 1))
		return 0;
	if (av)
		insert(&a, 0, 1);
	if (bv)
		insert(&b, 1, 1);
	const int64_t m = a.size[a.rank - 2], n = b.size[b.rank - 1];
	if (!inner_of(c, a.size[a.rank - 1], b.size[b.rank - 2]))
		return 0;
	a.rank -= 2;
	b.rank -= 2;
	if (!broadcast(c, &a, &b))
		return 0;
	if (!av)
		insert(&a, a.rank, m);
	if (!bv)
		insert(&a, a.rank, n);
	*want = a;
	return 1;
}

/* Operands by name; variant: the rank of the first one and ten times that of the second, where they are fixed. */
static int operands(struct call *c, struct shape *a, struct shape *b)
{
	static const char *const names[][2] = { { "self", "other" }, { "self", "mat2" }, { "self", "vec" },
		{ "self", "tensor" }, { "mat1", "mat2" }, { "batch1", "batch2" }, { "mat", "vec" } };
	const int r = c->row->variant;
	for (size_t i = WW_ARRAY_LEN(names); i-- > 0;)
		if (given(c, names[i][0]) && given(c, names[i][1]))
			return tensor(c, names[i][0], a) && tensor(c, names[i][1], b) &&
				(!r || (ranks(c, names[i][0], a, r % 10, r % 10) && ranks(c, names[i][1], b, r / 10, r / 10))) &&
				(a->rank < 3 || b->rank < 3 || r != 33 || inner_of(c, a->size[0], b->size[0]));
	return wrong(c, "an operand is missing");
}

int matmul_rule(struct call *c)
{
	struct shape a, b, want;
	return operands(c, &a, &b) && product(c, a, b, &want) && gives(c, 0, &want);
}

int add_product_rule(struct call *c)
{
	struct shape a, b, want, s;
	return operands(c, &a, &b) && product(c, a, b, &want) && tensor(c, "self", &s) && expands(c, "self", &s, &want) &&
		gives(c, 0, &want);
}

int addbmm_rule(struct call *c)
{
	struct shape a, b, want, s;
	if (!operands(c, &a, &b) || !inner_of(c, a.size[2], b.size[1]))
		return 0;
	want = (struct shape){ 2, { a.size[1], b.size[2] } };
	return tensor(c, "self", &s) && expands(c, "self", &s, &want) && gives(c, 0, &want);
}

/* outer, ger; variant: addr. */
int outer_rule(struct call *c)
{
	const char *x = c->row->variant ? "vec1" : "self";
	struct shape a, b, s;
	if (!tensor(c, x, &a) || !tensor(c, "vec2", &b) || !ranks(c, x, &a, 1, 1) || !ranks(c, "vec2", &b, 1, 1))
		return 0;
	insert(&a, 1, b.size[0]);
	return (!c->row->variant || (tensor(c, "self", &s) && expands(c, "self", &s, &a))) && gives(c, 0, &a);
}

int linear_rule(struct call *c)
{
	struct shape x, w;
	if (!tensor(c, "input", &x) || !tensor(c, "weight", &w) || !ranks(c, "input", &x, 1, WW_GRAPH_MAX_RANK) ||
		!ranks(c, "weight", &w, 1, 2) || !inner_of(c, x.size[x.rank - 1], w.size[w.rank - 1]))
		return 0;
	if (w.rank == 1) {
		drop(&x, x.rank - 1);
		return gives(c, 0, &x);
	}
	x.size[x.rank - 1] = w.size[0];
	if (given(c, "bias")) {
		struct shape b;
		if (!tensor(c, "bias", &b) || !expands(c, "bias", &b, &x))
			return 0;
	}
	return gives(c, 0, &x);
}

int inner_rule(struct call *c)
{
	struct shape a, b;
	if (!tensor(c, "self", &a) || !tensor(c, "other", &b))
		return 0;
	if (!a.rank || !b.rank)
		return broadcast(c, &a, &b) && gives(c, 0, &a);
	if (!inner_of(c, a.size[a.rank - 1], b.size[b.rank - 1]) || a.rank + b.rank > WW_GRAPH_MAX_RANK)
		return 0;
	a.rank--;
	for (int d = 0; d + 1 < b.rank; d++)
		insert(&a, a.rank, b.size[d]);
	return gives(c, 0, &a);
}

int vecdot_rule(struct call *c)
{
	struct shape a, b;
	int d;
	if (!tensor(c, "x", &a) || !tensor(c, "y", &b) || !broadcast(c, &a, &b) ||
		!ranks(c, "x", &a, 1, WW_GRAPH_MAX_RANK) || !dim_of(c, "dim", -1, a.rank, &d))
		return 0;
	drop(&a, d);
	return gives(c, 0, &a);
}

int multi_dot_rule(struct call *c)
{
	struct shape all, s;
	const int n = items(c, "tensors");
	if (n < 2 || !item(c, "tensors", 0, &all) || !ranks(c, "the first tensor", &all, 1, 2))
		return c->err->rc == WW_OK && wrong(c, "it has %d tensors", n);
	for (int i = 1; i < n; i++)
		if (!item(c, "tensors", i, &s) || !ranks(c, "a tensor", &s, i == n - 1 ? 1 : 2, 2) || !product(c, all, s, &all))
			return 0;
	return gives(c, 0, &all);
}

static int is_square(struct call *c, const char *name, struct shape *s)
{
	return tensor(c, name, s) && ranks(c, name, s, 2, WW_GRAPH_MAX_RANK) &&
		(s->size[s->rank - 1] == s->size[s->rank - 2] || wrong(c, "its matrices are not square"));
}

static const char *matrix_name(struct call *c) { return given(c, "A") ? "A" : "self"; }

int square_rule(struct call *c)
{
	struct shape s;
	return is_square(c, matrix_name(c), &s) && gives(c, 0, &s);
}

int determinant_rule(struct call *c)
{
	struct shape s;
	if (!is_square(c, matrix_name(c), &s))
		return 0;
	s.rank -= 2;
	return gives(c, 0, &s);
}

/* a x = b: matrices of a's and b's batches; variants: b first; or of vectors, too. */
enum { B_FIRST = 1, OR_VECTORS };

int solve_rule(struct call *c)
{
	const char *of_a = c->row->variant == B_FIRST ? "input2" : matrix_name(c),
			   *of_b = c->row->variant == B_FIRST ? "self" : "B";
	const int left = (int)int_of(c, "left", 1);
	struct shape a, b, want;
	int vector;
	if (!is_square(c, of_a, &a) || !tensor(c, of_b, &b) || !ranks(c, of_b, &b, 1, WW_GRAPH_MAX_RANK - 1))
		return 0;
	vector = c->row->variant == OR_VECTORS &&
		(b.rank == 1 || (b.rank == a.rank - 1 && !memcmp(b.size, a.size, (size_t)b.rank * sizeof(*b.size))));
	if (vector)
		insert(&b, b.rank, 1);
	if (!ranks(c, of_b, &b, 2, WW_GRAPH_MAX_RANK) || !inner_of(c, a.size[a.rank - 1], b.size[b.rank - (left ? 2 : 1)]))
		return 0;
	const int64_t m = b.size[b.rank - 2], n = b.size[b.rank - 1];
	a.rank -= 2;
	b.rank -= 2;
	if (!broadcast(c, &a, &b))
		return 0;
	want = a;
	insert(&want, want.rank, m);
	if (!vector)
		insert(&want, want.rank, n);
	return gives(c, 0, &want);
}

int tensordot_rule(struct call *c)
{
	struct shape a, b;
	int64_t of_a[WW_GRAPH_MAX_RANK], of_b[WW_GRAPH_MAX_RANK];
	int n = ints(c, "dims_self", of_a, WW_GRAPH_MAX_RANK), m = ints(c, "dims_other", of_b, WW_GRAPH_MAX_RANK), x, y;
	uint64_t in_a = 0, in_b = 0;
	struct shape want = { .rank = 0 };
	if (n < 0 || m < 0 || !tensor(c, "self", &a) || !tensor(c, "other", &b))
		return 0;
	if (n != m || a.rank + b.rank - 2 * n > WW_GRAPH_MAX_RANK)
		return wrong(c, "it sums %d dimensions with %d", n, m);
	for (int i = 0; i < n; i++) {
		if (!in_range(c, "dims_self", of_a[i], a.rank, &x) || !in_range(c, "dims_other", of_b[i], b.rank, &y))
			return 0;
		if ((in_a >> x & 1) || (in_b >> y & 1) || x >= a.rank || y >= b.rank)
			return wrong(c, "it sums a dimension twice");
		if (a.size[x] != 1 && b.size[y] != 1 && !inner_of(c, a.size[x], b.size[y]))
			return 0;
		in_a |= (uint64_t)1 << x;
		in_b |= (uint64_t)1 << y;
	}
	for (int d = 0; d < a.rank; d++)
		if (!(in_a >> d & 1))
			insert(&want, want.rank, a.size[d]);
	for (int d = 0; d < b.rank; d++)
		if (!(in_b >> d & 1))
			insert(&want, want.rank, b.size[d]);
	return gives(c, 0, &want);
}

int bilinear_rule(struct call *c)
{
	struct shape a, b, w;
	if (!tensor(c, "input1", &a) || !tensor(c, "input2", &b) || !tensor(c, "weight", &w) ||
		!ranks(c, "input1", &a, 1, WW_GRAPH_MAX_RANK) || !ranks(c, "weight", &w, 3, 3) ||
		!ranks(c, "input2", &b, a.rank, a.rank))
		return 0;
	if (!inner_of(c, a.size[a.rank - 1], w.size[1]) || !inner_of(c, b.size[b.rank - 1], w.size[2]) ||
		!vector_of(c, "bias", w.size[0]))
		return 0;
	a.size[a.rank - 1] = b.size[b.rank - 1] = w.size[0];
	return same(c, "input2", &b, &a) && gives(c, 0, &a);
}

int kron_rule(struct call *c)
{
	struct shape a, b;
	if (!tensor(c, "self", &a) || !tensor(c, "other", &b))
		return 0;
	while (a.rank < b.rank)
		insert(&a, 0, 1);
	for (int d = 0; d < b.rank; d++)
		if (__builtin_mul_overflow(a.size[a.rank - b.rank + d], b.size[d], &a.size[a.rank - b.rank + d]))
			return wrong(c, "its result is too large");
	return gives(c, 0, &a);
}

int cross_rule(struct call *c)
{
	struct shape a, b;
	int d;
	if (!tensor(c, "self", &a) || !tensor(c, "other", &b) || !broadcast(c, &a, &b) ||
		!ranks(c, "self", &a, 1, WW_GRAPH_MAX_RANK))
		return 0;
	if (given(c, "dim") || c->row->variant) {
		if (!dim_of(c, "dim", -1, a.rank, &d))
			return 0;
		if (a.size[d] != 3)
			return wrong(c, "dimension %d has size %lld, not 3", d, (long long)a.size[d]);
	}
	return gives(c, 0, &a);
}

/* Letters of one operand or of the result, an ellipsis as digits from the last dimension on; returns where they end. */
static const char *read_term(struct call *c, const char *s, int dots, char *out, int room)
{
	int n = 0;
	for (; *s && *s != ',' && *s != '-'; s++) {
		if (!strncmp(s, "...", 3)) {
			for (int d = dots; d > 0 && n < room; d--)
				out[n++] = (char)(127 + d); /* no letter */
			s += 2;
		} else if (isalpha((unsigned char)*s) && n < room) {
			out[n++] = *s;
		} else if (*s != ' ') {
			return wrong(c, "its equation is no equation"), NULL;
		}
	}
	out[n] = 0;
	return s;
}

static int letters(const char *s)
{
	int n = 0;
	for (; *s && *s != ',' && *s != '-'; s++)
		n += isalpha((unsigned char)*s) != 0;
	return n;
}

int einsum_rule(struct call *c)
{
	const char *s = json_string_value(given(c, "equation"));
	int64_t extent[256];
	int dots = 0, seen[256] = { 0 };
	char term[WW_GRAPH_MAX_RANK + 1], order[256];
	struct shape t, want = { .rank = 0 };
	int n = 0;
	if (!s || items(c, "tensors") < 1)
		return wrong(c, "it has no equation or no operands");
	memset(extent, -1, sizeof(extent));
	for (int i = 0; i < items(c, "tensors"); i++) {
		if (!item(c, "tensors", i, &t))
			return 0;
		const int own = t.rank - letters(s);
		if (!(s = read_term(c, s, own, term, WW_GRAPH_MAX_RANK)))
			return 0;
		if ((int)strlen(term) != t.rank || *s != (i + 1 < items(c, "tensors") ? ',' : *s == '-' ? '-' : 0))
			return wrong(c, "its equation does not fit operand %d", i);
		dots = own > dots ? own : dots;
		for (int d = 0; d < t.rank; d++) {
			int64_t *x = &extent[(unsigned char)term[d]];
			if (*x > 1 && t.size[d] > 1 && *x != t.size[d])
				return wrong(c, "a letter has sizes %lld and %lld", (long long)*x, (long long)t.size[d]);
			*x = *x < 0 || *x == 1 ? t.size[d] : *x;
			seen[(unsigned char)term[d]]++;
		}
		s += *s == ',';
	}
	if (!strncmp(s, "->", 2)) {
		if (!(s = read_term(c, s + 2, dots, order, 200)) || *s)
			return c->err->rc == WW_OK && wrong(c, "its equation is no equation");
	} else if (*s) {
		return wrong(c, "its equation is no equation");
	} else {
		for (int d = dots; d > 0; d--)
			order[n++] = (char)(127 + d);
		for (int l = 'A'; l <= 'z'; l++)
			if (seen[l] == 1)
				order[n++] = (char)l;
		order[n] = 0;
	}
	for (n = 0; order[n]; n++) {
		const int64_t x = extent[(unsigned char)order[n]];
		if (x < 0 || n >= WW_GRAPH_MAX_RANK || memchr(order, order[n], (size_t)n))
			return wrong(c, "its equation has a result that no operand gives");
		insert(&want, want.rank, x);
	}
	return gives(c, 0, &want);
}
