#include "task/canon_read.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char what[] = "the task's graph";

const struct ww_canon_value *ww_canon_ref(const struct ww_canon_reader *r, const json_t *arg)
{
	const char *name = json_is_object(arg) ? json_string_value(json_object_get(arg, "ref")) : NULL;
	const json_t *at = name ? json_object_get(r->names, name) : NULL;
	return at ? &r->v[json_integer_value(at)] : NULL;
}

static enum ww_rc define(struct ww_canon_reader *r, const char *name, struct ww_canon_value v, struct ww_err *err)
{
	if (!WW_GROW(r->v, &r->cap, r->n + 1) || json_object_set_new(r->names, name, json_integer((json_int_t)r->n)))
		return ww_nomem(err);
	r->v[r->n++] = v;
	return WW_OK;
}

static const char *class_of(const char *dtype)
{
	return !strncmp(dtype, "bool", 4) ? "b" : strstr(dtype, "int") ? "i" : "f";
}

/* Inputs and parameters; buffers and literals are constants. */
static enum ww_rc read_leaves(struct ww_canon_reader *r, const json_t *graph, const char *key, struct ww_err *err)
{
	json_t *list;
	WW_CHECK(ww_json_get_array(graph, key, what, &list, err));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i), *k = json_object_get(row, "value");
		const char *name, *dtype = ww_json_str(row, "dtype", "");
		int is_constant = strcmp(ww_json_str(row, "role", "param"), "param") != 0;
		WW_CHECK(ww_json_get_str(row, "name", what, &name, err));
		while (json_is_array(k) && json_array_size(k) == 1)
			k = json_array_get(k, 0);
		int node = !is_constant ? ww_canon_leaf(r->c, class_of(dtype))
			: json_is_number(k) ? ww_canon_num(r->c, json_number_value(k))
								: ww_canon_unknown(r->c);
		WW_CHECK(define(r, name,
			(struct ww_canon_value){
				.node = node, .second = -1, .from = -1, .sizes = json_object_get(row, "sizes"), .dtype = dtype },
			err));
	}
	return WW_OK;
}

/* "aten.relu_.default": "relu", in place */
static void name_op(struct ww_canon_reader *r, const char *op)
{
	const char *from = strncmp(op, "aten.", 5) ? op : op + 5, *dot = strchr(from, '.');
	size_t n = dot ? (size_t)(dot - from) : strlen(from);
	n = n < sizeof(r->op) ? n : sizeof(r->op) - 1;
	memcpy(r->op, from, n);
	r->op[n] = 0;
	r->in_place = n > 1 && r->op[n - 1] == '_' && r->op[0] != '_';
	if (r->in_place)
		r->op[n - 1] = 0;
}

/* What an in-place operator wrote is from now on the value of its operand, and of what that is a view of. */
static void write_through(struct ww_canon_reader *r, int at, int node)
{
	for (int i = 0; at >= 0 && i < 64; i++) {
		struct ww_canon_value *v = &r->v[at];
		v->node = node;
		at = v->from;
		if (at >= 0 && !v->whole_view)
			node = ww_canon_op2(r->c, "put", 0, r->v[at].node, node);
	}
}

static enum ww_rc read_node(struct ww_canon_reader *r, const json_t *n, struct ww_err *err)
{
	const char *name, *op;
	WW_CHECK(ww_json_get_str(n, "name", what, &name, err));
	WW_CHECK(ww_json_get_str(n, "op", what, &op, err));
	name_op(r, op);
	r->args = json_object_get(n, "args");
	r->kwargs = json_object_get(n, "kwargs");
	r->out = json_object_get(n, "out");
	const struct ww_canon_value *written = ww_canon_ref(r, json_array_get(r->args, 0));
	int at = r->in_place && written ? (int)(written - r->v) : -1;
	struct ww_canon_value v;
	if (r->in_place && !strcmp(r->op, "copy") && ww_canon_ref(r, json_array_get(r->args, 1)))
		v = *ww_canon_ref(r, json_array_get(r->args, 1));
	else
		v = ww_canon_lower(r);
	v.sizes = json_object_get(json_array_get(r->out, 0), "sizes");
	v.dtype = ww_json_str(json_array_get(r->out, 0), "dtype", NULL);
	if (at >= 0) {
		write_through(r, at, v.node);
		v.from = at;
		v.whole_view = 1;
	}
	return define(r, name, v, err);
}

static enum ww_rc read_outputs(
	struct ww_canon_reader *r, const json_t *graph, int **outputs, int *n_outputs, struct ww_err *err)
{
	json_t *list;
	WW_CHECK(ww_json_get_array(graph, "outputs", what, &list, err));
	WW_CHECK(WW_NEW(*outputs, json_array_size(list) + 1, err));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const struct ww_canon_value *v = ww_canon_ref(r, json_array_get(list, i));
		if (v)
			(*outputs)[(*n_outputs)++] = v->node;
	}
	return WW_OK;
}

enum ww_rc ww_canon_read(struct ww_canon_reader *r, struct ww_canon *c, const json_t *graph, int **outputs,
	int *n_outputs, struct ww_err *err)
{
	json_t *nodes;
	memset(r, 0, sizeof(*r));
	r->c = c;
	r->names = json_object();
	*outputs = NULL;
	*n_outputs = 0;
	WW_CHECK(read_leaves(r, graph, "inputs", err));
	WW_CHECK(read_leaves(r, graph, "params", err));
	WW_CHECK(ww_json_get_array(graph, "nodes", what, &nodes, err));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		WW_CHECK(read_node(r, json_array_get(nodes, i), err));
	WW_CHECK(read_outputs(r, graph, outputs, n_outputs, err));
	return c->failed ? ww_err_set(err, WW_ERR_LIMIT, "the task's graph is too large for a signature") : WW_OK;
}

void ww_canon_reader_release(struct ww_canon_reader *r)
{
	json_decref(r->names);
	free(r->v);
}
