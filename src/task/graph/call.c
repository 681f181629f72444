/* call.c - see call.h. */
#include "task/graph/call.h"

#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { MAX_ATTRIBUTE_BITS = 31 };

int wrong(struct call *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ww_err_set(c->err, WW_ERR_TASK, "node %.100s (%.100s): %s", c->name, c->op, text);
	return 0;
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

int read_shape(const json_t *j, struct shape *s)
{
	const json_t *sizes = json_object_get(j, "sizes");
	s->rank = (int)json_array_size(sizes);
	for (int d = 0; d < s->rank; d++)
		s->size[d] = json_integer_value(json_array_get(sizes, (size_t)d));
	return 1;
}

int64_t numel(const struct shape *s)
{
	int64_t n = 1;
	for (int d = 0; d < s->rank; d++)
		if (__builtin_mul_overflow(n, s->size[d], &n))
			return INT64_MAX;
	return n;
}

void drop(struct shape *s, int d)
{
	memmove(s->size + d, s->size + d + 1, (size_t)(s->rank - d - 1) * sizeof(*s->size));
	s->rank--;
}

void insert(struct shape *s, int d, int64_t size)
{
	memmove(s->size + d + 1, s->size + d, (size_t)(s->rank - d) * sizeof(*s->size));
	s->size[d] = size;
	s->rank++;
}

/* "[2, 3]" */
static const char *text_of(const struct shape *s, char *text, size_t n)
{
	size_t at = (size_t)snprintf(text, n, "[");
	for (int d = 0; d < s->rank && at < n; d++)
		at += (size_t)snprintf(text + at, n - at, "%s%lld", d ? ", " : "", (long long)s->size[d]);
	if (at < n)
		snprintf(text + at, n - at, "]");
	return text;
}

static int equal(const struct shape *a, const struct shape *b)
{
	return a->rank == b->rank && !memcmp(a->size, b->size, (size_t)a->rank * sizeof(*a->size));
}

int ranks(struct call *c, const char *name, const struct shape *s, int least, int most)
{
	return (s->rank >= least && s->rank <= most) || wrong(c, "%s has %d dimensions", name, s->rank);
}

int same(struct call *c, const char *name, const struct shape *s, const struct shape *want)
{
	char a[128], b[128];
	return equal(s, want) ||
		wrong(c, "%s has sizes %s, where %s belong", name, text_of(s, a, sizeof(a)), text_of(want, b, sizeof(b)));
}

int broadcast(struct call *c, struct shape *to, const struct shape *s)
{
	char a[128], b[128];
	struct shape out = to->rank >= s->rank ? *to : *s;
	const struct shape *other = to->rank >= s->rank ? s : to;
	for (int d = 0; d < other->rank; d++) {
		int64_t *x = &out.size[out.rank - 1 - d], y = other->size[other->rank - 1 - d];
		if (*x != y && *x != 1 && y != 1)
			return wrong(c, "sizes %s and %s do not go together", text_of(to, a, sizeof(a)), text_of(s, b, sizeof(b)));
		*x = *x == 1 ? y : *x;
	}
	*to = out;
	return 1;
}

int expands(struct call *c, const char *name, const struct shape *from, const struct shape *to)
{
	struct shape all = *to;
	return broadcast(c, &all, from) && same(c, name, &all, to);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

const json_t *given(struct call *c, const char *name)
{
	for (int i = 0; i < c->n_arg; i++)
		if ((int)strlen(name) == c->arg[i].name_len && !strncmp(name, c->arg[i].name, strlen(name)))
			return c->arg[i].j;
	return NULL;
}

/* The tensor that a reference means: an input or parameter, or the one result of a node. */
static const json_t *place_of(const struct call *c, const json_t *j)
{
	const json_t *p = json_object_get(c->places, ww_json_str(j, "ref", "")), *out = json_object_get(p, "out");
	return out ? json_array_get(out, 0) : p;
}

int tensor(struct call *c, const char *name, struct shape *s)
{
	const json_t *j = given(c, name);
	*s = scalar_shape();
	if (!j)
		return wrong(c, "its argument %s is missing", name);
	return !json_is_object(j) || read_shape(place_of(c, j), s);
}

int is_integer(struct call *c, const char *name)
{
	const json_t *j = given(c, name);
	const char *type = ww_json_str(json_is_object(j) ? place_of(c, j) : NULL, "dtype", "");
	return !strncmp(type, "int", 3) || !strncmp(type, "uint", 4) || !strcmp(type, "bool") || json_is_integer(j) ||
		wrong(c, "its argument %s is not of integers", name);
}

int items(struct call *c, const char *name) { return (int)json_array_size(given(c, name)); }

int item(struct call *c, const char *name, int i, struct shape *s)
{
	return read_shape(place_of(c, json_array_get(given(c, name), (size_t)i)), s);
}

int64_t int_of(struct call *c, const char *name, int64_t def)
{
	const json_t *j = given(c, name);
	return json_is_integer(j) ? json_integer_value(j) : json_is_boolean(j) ? json_is_true(j) : def;
}

double num_of(struct call *c, const char *name, double def)
{
	const json_t *j = given(c, name);
	return json_is_boolean(j) ? json_is_true(j) : ww_json_to_real(j, def);
}

int ints(struct call *c, const char *name, int64_t *v, int max)
{
	const json_t *j = given(c, name);
	int n = json_is_array(j) ? (int)json_array_size(j) : j != NULL;
	if (n > max)
		return wrong(c, "its argument %s has %d numbers, more than %d", name, n, max), -1;
	for (int i = 0; i < n; i++) {
		const json_t *x = json_is_array(j) ? json_array_get(j, (size_t)i) : j;
		v[i] = json_is_boolean(x) ? json_is_true(x) : json_integer_value(x);
		if (v[i] >= (int64_t)1 << WW_GRAPH_SIZE_BITS || v[i] <= -((int64_t)1 << WW_GRAPH_SIZE_BITS))
			return wrong(c, "its argument %s is out of range", name), -1;
	}
	return n;
}

int each(struct call *c, const char *name, int nd, int64_t def, int64_t least, int64_t *v)
{
	int n = ints(c, name, v, nd);
	if (n < 0)
		return 0;
	if (!n && def == REQUIRED)
		return wrong(c, "its argument %s is missing", name);
	if (n > 1 && n != nd)
		return wrong(c, "its argument %s has %d numbers for %d dimensions", name, n, nd);
	for (int d = nd - 1; d >= 0; d--) {
		v[d] = n == 0 ? def : n == 1 ? v[0] : v[d];
		if (n && (v[d] < least || v[d] >= (int64_t)1 << MAX_ATTRIBUTE_BITS))
			return wrong(c, "its argument %s is %lld", name, (long long)v[d]);
	}
	return 1;
}

int in_range(struct call *c, const char *name, int64_t v, int rank, int *d)
{
	int n = rank ? rank : 1; /* a number has dimensions 0 and -1 */
	if (v < -n || v >= n)
		return wrong(c, "its argument %s is %lld, of %d dimensions", name, (long long)v, rank);
	*d = (int)(v < 0 ? v + n : v);
	return 1;
}

int dim_of(struct call *c, const char *name, int64_t def, int rank, int *d)
{
	return in_range(c, name, int_of(c, name, def), rank, d);
}

int vector_of(struct call *c, const char *name, int64_t n)
{
	struct shape s, want = { 1, { n } };
	return !given(c, name) || (tensor(c, name, &s) && same(c, name, &s, &want));
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

int n_results(const struct call *c) { return (int)json_array_size(c->out); }

int result(struct call *c, int i, struct shape *s)
{
	if (i >= n_results(c))
		return wrong(c, "it has %d results", n_results(c));
	return read_shape(json_array_get(c->out, (size_t)i), s);
}

int gives(struct call *c, int i, const struct shape *want)
{
	struct shape s;
	return result(c, i, &s) && same(c, "its result", &s, want);
}

int all_give(struct call *c, const struct shape *want)
{
	for (int i = 0; i < n_results(c); i++)
		if (!gives(c, i, want))
			return 0;
	return 1;
}

/* ---- What several operators take --------------------------------------------------------------------------------- */

/* The first argument's sizes. */
int self(struct call *c, struct shape *s)
{
	char name[64];
	snprintf(name, sizeof(name), "%.*s", c->arg[0].name_len, c->arg[0].name);
	return tensor(c, name, s);
}

int self_with_dim(struct call *c, const char *name, struct shape *s, int *d)
{
	return self(c, s) && ranks(c, "self", s, 1, WW_GRAPH_MAX_RANK) && dim_of(c, name, 0, s->rank, d);
}

int index_of(struct call *c, int64_t n)
{
	const int64_t i = int_of(c, "index", 0);
	return (i >= -n && i < n) || wrong(c, "its argument index is %lld, of %lld", (long long)i, (long long)n);
}

int offset_of(struct call *c, const char *name, int64_t *off)
{
	*off = int_of(c, name, 0);
	return (*off > INT32_MIN && *off < INT32_MAX) || wrong(c, "its argument %s is %lld", name, (long long)*off);
}

/* A bound of a slice among n elements: from the end where it is negative, moved inside. */
static int64_t bound(int64_t v, int64_t n)
{
	if (v < 0)
		v = v < -n ? 0 : v + n;
	return v > n ? n : v;
}

/* How many elements of n a slice has; -1: wrong. */
int64_t slice_length(struct call *c, int64_t n)
{
	const int64_t step = int_of(c, "step", 1), from = bound(int_of(c, "start", 0), n);
	const int64_t to = bound(int_of(c, "end", INT64_MAX), n);
	if (step < 1 || step > (int64_t)1 << WW_GRAPH_SIZE_BITS) {
		wrong(c, "its argument step is %lld", (long long)step);
		return -1;
	}
	return to > from ? (to - from - 1) / step + 1 : 0;
}

int inner_of(struct call *c, int64_t a, int64_t b)
{
	return a == b || wrong(c, "its inner dimensions are %lld and %lld", (long long)a, (long long)b);
}
