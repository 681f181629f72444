/* check.c - see check.h.
 *
 * One pass in program order.  `places` has every name that was defined so far, so that a reference to a later node, and
 * with it a cycle, is a reference to an unknown name.  Each tensor is looked at where it is stated: type, sizes,
 * strides, what it spans.  A node whose operator is in ops.def is then a call (call.h), of which each argument has the
 * kind that PyTorch declares, and the operator's rule computes the sizes of the results from it.
 *
 * Rejected: refusing what ops.def does not have.  Another PyTorch has other operators and more arguments; such a node
 * runs as PyTorch runs it (ww_graph_knows()), and its sizes need to be consistent with nothing. */
#include "task/graph/check.h"

#include "task/graph/call.h"

#include "base/dtype.h"
#include "base/json.h"
#include "base/mem.h"

#include <string.h>
#include <ww/plan.h>

enum { MAX_DEPTH = 8, MAX_NAME = 4096, MAX_POSITIONAL = 64, MAX_OUTPUTS = 64 };

static enum ww_rc refuse(struct ww_err *err, const char *what, const char *name, const char *why)
{
	return ww_err_set(err, WW_ERR_TASK, "%s %.100s: %s", what, name ? name : "?", why);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* A type of PyTorch's: one that buffers can have, or a name like those ("complex64", "float8_e4m3fn"). */
static int is_type(const char *s, int stored)
{
	const size_t n = strlen(s);
	return ww_dtype_of(s) || (!stored && n && n < 32 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == n);
}

/* NULL, or what is wrong with {dtype, sizes, strides}.  stored: a buffer will hold it. */
static const char *wrong_tensor(const json_t *t, int stored)
{
	static const int64_t most = (int64_t)1 << WW_GRAPH_SIZE_BITS;
	const json_t *sizes = json_object_get(t, "sizes"), *strides = json_object_get(t, "strides");
	const size_t rank = json_array_size(sizes);
	int64_t elements = 1, span = 1;
	int empty = 0;
	if (!is_type(ww_json_str(t, "dtype", ""), stored))
		return "its type is not known";
	if (!json_is_array(sizes) || !json_is_array(strides) || rank != json_array_size(strides))
		return "it does not have a stride for each size";
	if (rank > (stored ? WW_MAX_RANK : WW_GRAPH_MAX_RANK))
		return "it has too many dimensions";
	for (size_t d = 0; d < rank; d++) {
		const json_t *n = json_array_get(sizes, d), *by = json_array_get(strides, d);
		const int64_t size = json_integer_value(n), stride = json_integer_value(by);
		if (!json_is_integer(n) || !json_is_integer(by) || size < 0 || size >= most || stride < 0 || stride >= most)
			return "a size or stride is out of range";
		empty |= size == 0;
	}
	for (size_t d = 0; d < rank && !empty; d++) {
		const int64_t size = json_integer_value(json_array_get(sizes, d));
		const int64_t stride = json_integer_value(json_array_get(strides, d));
		int64_t reach;
		if (__builtin_mul_overflow(elements, size, &elements) || __builtin_mul_overflow(size - 1, stride, &reach) ||
			elements >= most || reach >= most || (span += reach) >= most / 8)
			return "it has too many elements";
	}
	return NULL;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* NULL, or what is wrong with an argument: depth, lengths, names that are not defined yet. */
static const char *wrong_value(const json_t *places, const json_t *j, int depth)
{
	const char *why = NULL, *key;
	json_t *v;
	size_t i;
	if (depth > MAX_DEPTH)
		return "an argument is nested too deep";
	if (json_array_size(j) > GRAPH_MANY || json_object_size(j) > 3)
		return "an argument is too long";
	if (json_object_get(j, "ref"))
		return json_object_get(places, ww_json_str(j, "ref", "")) ? NULL
																  : "it refers to a name that is not defined before it";
	json_array_foreach(j, i, v)
		if ((why = wrong_value(places, v, depth + 1)))
			return why;
	json_object_foreach((json_t *)j, key, v)
		if ((why = wrong_value(places, v, depth + 1)))
			return why;
	return NULL;
}

static int is_int(const json_t *j) { return json_is_integer(j) || json_is_boolean(j); }

static int is_real(const json_t *j)
{
	const char *s = json_string_value(j);
	return json_is_number(j) || json_is_boolean(j) ||
		(s && (!strcmp(s, "inf") || !strcmp(s, "-inf") || !strcmp(s, "nan")));
}

static int is_number(const json_t *j)
{
	const json_t *parts = json_object_get(j, "complex");
	return is_real(j) ||
		(json_object_size(j) == 1 && json_array_size(parts) == 2 && is_real(json_array_get(parts, 0)) &&
			is_real(json_array_get(parts, 1)));
}

/* A reference to one tensor: an input, a parameter, or a node with one result. */
static int is_tensor(const struct call *c, const json_t *j)
{
	const json_t *p = json_object_get(c->places, ww_json_str(j, "ref", ""));
	return p && (!json_object_get(p, "out") || json_array_size(json_object_get(p, "out")) == 1);
}

static int all_are(const struct call *c, const json_t *list, int (*is)(const json_t *j), int or_null)
{
	const json_t *v;
	size_t i;
	json_array_foreach(list, i, v)
		if (is ? !is(v) : !is_tensor(c, v) && !(or_null && json_is_null(v)))
			return 0;
	return json_is_array(list);
}

static int has_kind(const struct call *c, const struct graph_arg *a)
{
	switch (a->kind) {
	case 'T': return is_tensor(c, a->j) || is_number(a->j);
	case 'L': return all_are(c, a->j, NULL, 0);
	case 'O': return all_are(c, a->j, NULL, 1);
	case 'I': return is_int(a->j) || all_are(c, a->j, is_int, 0);
	case 'F': return is_number(a->j) || all_are(c, a->j, is_number, 0);
	case 'i':
	case 'b': return is_int(a->j);
	case 'f':
	case 'n': return is_number(a->j);
	default: return !json_is_object(a->j) && !json_is_array(a->j);
	}
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

/* Part i of a node with several results. */
static int part_rule(struct call *c, const json_t *node)
{
	const json_t *args = json_object_get(node, "args"), *at = json_array_get(args, 1);
	const json_t *from = json_object_get(c->places, ww_json_str(json_array_get(args, 0), "ref", ""));
	const json_t *out = json_object_get(from, "out");
	const char *op = ww_json_str(from, "op", "");
	struct shape s;
	int in_place;
	if (!out || !json_is_integer(at) || json_array_size(args) != 2)
		return wrong(c, "it is not a part of a node's result");
	if (!graph_row_of(op, &in_place)) /* nested results, which are listed flat */
		return 1;
	if (json_integer_value(at) < 0 || json_integer_value(at) >= (json_int_t)json_array_size(out))
		return wrong(c, "it takes result %lld of %d", (long long)json_integer_value(at), (int)json_array_size(out));
	return read_shape(json_array_get(out, (size_t)json_integer_value(at)), &s) && all_give(c, &s);
}

static int obeys_row(struct call *c, const struct graph_row *row, const json_t *node)
{
	struct shape first;
	if (graph_bind(c, row, node) != 0)
		return 1;
	for (int i = 0; i < c->n_arg; i++) {
		const struct graph_arg *a = &c->arg[i];
		if (!a->j && strchr("TLO", a->kind) && !a->optional)
			return wrong(c, "its argument %.*s is missing", a->name_len, a->name);
		if (a->j && !has_kind(c, a))
			return wrong(c, "its argument %.*s is of another kind", a->name_len, a->name);
	}
	if (!strchr(row->results, 'L') && (int)strlen(row->results) != n_results(c))
		return wrong(c, "it has %d results, not %d", n_results(c), (int)strlen(row->results));
	if (c->in_place && (!json_is_object(c->arg[0].j) || !is_tensor(c, c->arg[0].j)))
		return wrong(c, "it writes to what is no tensor");
	if (!row->rule(c))
		return 0;
	if (!c->in_place)
		return 1;
	char name[64];
	snprintf(name, sizeof(name), "%.*s", c->arg[0].name_len, c->arg[0].name);
	return tensor(c, name, &first) && all_give(c, &first);
}

static enum ww_rc check_node(const json_t *places, const json_t *node, struct ww_err *err)
{
	struct call c = { .places = places,
		.name = ww_json_str(node, "name", ""),
		.op = ww_json_str(node, "op", ""),
		.out = json_object_get(node, "out"),
		.err = err };
	const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs"), *t;
	const struct graph_row *row = graph_row_of(c.op, &c.in_place);
	const json_t *tf32 = json_object_get(node, "tf32");
	const char *why;
	size_t i;
	if (tf32 && !json_is_boolean(tf32))
		return wrong(&c, "its tf32 is no flag"), err->rc;
	if (!json_is_array(args) || (kwargs && !json_is_object(kwargs)) || !json_is_array(c.out) || !*c.op ||
		json_array_size(args) > MAX_POSITIONAL || json_array_size(c.out) > GRAPH_MANY)
		return wrong(&c, "it has no arguments or no results, or too many"), err->rc;
	if ((why = wrong_value(places, args, 0)))
		return wrong(&c, "%s", why), err->rc;
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)kwargs, key, v)
		if ((why = wrong_value(places, v, 0)))
			return wrong(&c, "%s", why), err->rc;
	json_array_foreach(c.out, i, t)
		if ((why = wrong_tensor(t, 0)))
			return wrong(&c, "of its result %d: %s", (int)i, why), err->rc;
	const int obeys = !strcmp(c.op, "getitem") ? part_rule(&c, node) : !row || obeys_row(&c, row, node);
	return obeys ? WW_OK : err->rc;
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static int is_name(const char *s)
{
	const size_t n = strlen(s);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 127)
			return 0;
	return n && n <= MAX_NAME;
}

static enum ww_rc define(json_t *places, const char *what, json_t *j, struct ww_err *err)
{
	const char *name = ww_json_str(j, "name", "");
	if (!is_name(name))
		return refuse(err, what, NULL, "it has no usable name");
	if (json_object_get(places, name))
		return refuse(err, what, name, "its name is used twice");
	return json_object_set_nocheck(places, name, j) == 0 ? WW_OK : ww_nomem(err);
}

static enum ww_rc define_all(json_t *places, const char *what, const json_t *list, struct ww_err *err)
{
	json_t *j;
	const char *why;
	size_t i;
	json_array_foreach(list, i, j) {
		WW_CHECK(define(places, what, j, err));
		if ((why = json_object_get(j, "out") ? "it has results" : wrong_tensor(j, 1)))
			return refuse(err, what, ww_json_str(j, "name", ""), why);
	}
	return json_array_size(list) <= WW_GRAPH_MAX_NODES ? WW_OK : refuse(err, what, NULL, "there are too many");
}

static enum ww_rc check_outputs(const json_t *places, const json_t *list, struct ww_err *err)
{
	const json_t *j;
	const char *why;
	size_t i;
	json_array_foreach(list, i, j) {
		struct call c = { .places = places, .name = ww_json_str(j, "name", "output"), .op = "output", .err = err };
		struct shape s, own;
		if ((why = wrong_tensor(j, 1)))
			return refuse(err, "output", c.name, why);
		if (!json_object_get(j, "ref") && !is_number(json_object_get(j, "value")))
			return refuse(err, "output", c.name, "it is neither a node's result nor a number");
		if (json_object_get(j, "ref") && !is_tensor(&c, j))
			return refuse(err, "output", c.name, "it refers to a name that is no tensor");
		if (!json_object_get(j, "ref"))
			continue;
		c.arg[0] = (struct graph_arg){ .name = "ref", .name_len = 3, .kind = 'T', .j = j };
		c.n_arg = 1;
		if (!tensor(&c, "ref", &s) || !read_shape(j, &own) || !same(&c, "it", &own, &s))
			return err->rc;
	}
	return json_array_size(list) <= MAX_OUTPUTS ? WW_OK : refuse(err, "output", NULL, "there are too many");
}

enum ww_rc ww_graph_check(const json_t *graph, struct ww_err *err)
{
	json_auto_t *places = json_object();
	const json_t *nodes = json_object_get(graph, "nodes"), *outputs = json_object_get(graph, "outputs");
	json_t *j;
	size_t i;
	if (!places)
		return ww_nomem(err);
	if (!json_is_array(nodes) || !json_is_array(outputs))
		return ww_err_set(err, WW_ERR_TASK, "it has no nodes or no outputs");
	if (json_array_size(nodes) > WW_GRAPH_MAX_NODES)
		return ww_err_set(err, WW_ERR_TASK, "it has more than %d nodes", WW_GRAPH_MAX_NODES);
	WW_CHECK(define_all(places, "input", json_object_get(graph, "inputs"), err));
	WW_CHECK(define_all(places, "parameter", json_object_get(graph, "params"), err));
	json_array_foreach(nodes, i, j) {
		WW_CHECK(check_node(places, j, err));
		WW_CHECK(define(places, "node", j, err));
	}
	return check_outputs(places, outputs, err);
}
