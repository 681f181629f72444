/* graph_text.c - a task's graph as a short text, in the compact prompt (compact.h).
 *
 *     in x f32[16,64,32,32]              also: param, buffer, const (a small one's value behind =), scalar
 *     in y f32[8,16]/[1,8]               strides behind a slash, where it is not contiguous
 *     conv2d_1(x, conv.weight, None)     the name says the operator; no type: it has that of its first tensor
 *     getitem_2 = max(x, 1) f32[16]      where the name does not
 *     out conv2d_1
 *     blocks.1 as blocks.0               parameters of the same names, types and order
 *
 * What lies in memory has strides; a node's follow from its operator.
 * A node whose result nothing reads is left out, also one that only updates a buffer that no other node reads (the
 * counters of a batch norm), with that buffer.  An operator's overload is left out, since it follows from the
 * arguments. The form is regular rather than pretty, because a model copies names and sizes from it.
 */
#include "agent/compact.h"

#include "base/dtype.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *short_dtype(const char *name)
{
	int dtype = ww_dtype_of(name);
	return dtype ? ww_dtype_short(dtype) : name;
}

static void add_sizes(const json_t *sizes, struct ww_str *out)
{
	const json_t *v;
	size_t i;
	ww_str_addc(out, '[');
	json_array_foreach(sizes, i, v)
		ww_str_addf(out, "%s%lld", i ? "," : "", (long long)json_integer_value(v));
	ww_str_addc(out, ']');
}

static int is_contiguous(const json_t *t)
{
	const json_t *sizes = json_object_get(t, "sizes"), *strides = json_object_get(t, "strides");
	json_int_t step = 1;
	for (size_t d = json_array_size(sizes); strides && d-- > 0;) {
		json_int_t n = json_integer_value(json_array_get(sizes, d));
		if (n != 1 && json_integer_value(json_array_get(strides, d)) != step)
			return 0;
		step *= n;
	}
	return 1;
}

static void add_type(const json_t *t, struct ww_str *out)
{
	ww_str_adds(out, short_dtype(ww_json_str(t, "dtype", "?")));
	add_sizes(json_object_get(t, "sizes"), out);
}

/* Of a tensor in memory. */
static void add_layout(const json_t *t, struct ww_str *out)
{
	add_type(t, out);
	if (!is_contiguous(t)) {
		ww_str_addc(out, '/');
		add_sizes(json_object_get(t, "strides"), out);
	}
}

static void add_value(const json_t *v, struct ww_str *out);

static void add_list(const json_t *list, struct ww_str *out)
{
	const json_t *item;
	size_t i;
	ww_str_addc(out, '[');
	json_array_foreach(list, i, item) {
		ww_str_adds(out, i ? "," : "");
		add_value(item, out);
	}
	ww_str_addc(out, ']');
}

/* An argument, as Python would write it. */
static void add_value(const json_t *v, struct ww_str *out)
{
	const json_t *slice = json_object_get(v, "slice");
	if (json_is_object(v) && json_object_get(v, "ref"))
		ww_str_adds(out, ww_json_str(v, "ref", ""));
	else if (slice)
		add_list(slice, out);
	else if (json_is_array(v))
		add_list(v, out);
	else if (json_is_string(v))
		ww_str_adds(out, short_dtype(json_string_value(v)));
	else if (json_is_real(v))
		ww_str_addf(out, "%.9g", json_real_value(v));
	else if (json_is_integer(v))
		ww_str_addf(out, "%lld", (long long)json_integer_value(v));
	else
		ww_str_adds(out, json_is_true(v) ? "True" : json_is_false(v) ? "False" : "None");
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static const char *role_of(const json_t *t, const char *kind)
{
	const char *role = ww_json_str(t, "role", kind);
	return strcmp(role, "constant") ? role : "const";
}

/* "param f32[16,64] = 3", or with the name behind the role. */
static void add_tensor(const json_t *t, const char *role, const char *name, struct ww_str *out)
{
	const json_t *value = json_object_get(t, "value");
	ww_str_addf(out, "%s %s%s", role, name, *name ? " " : "");
	add_layout(t, out);
	if (value) {
		ww_str_adds(out, " = ");
		add_value(value, out);
	}
	ww_str_addc(out, '\n');
}

static void add_inputs(const json_t *list, json_t *types, struct ww_str *out)
{
	const json_t *t;
	size_t i;
	json_array_foreach(list, i, t) {
		const char *name = ww_json_str(t, "name", "?");
		json_object_set(types, name, (json_t *)(uintptr_t)t);
		if (ww_json_bool(t, "used", 1))
			add_tensor(t, role_of(t, "in"), name, out);
	}
}

/* Where the first part of a name that is a number begins: "1.norm.weight" in "blocks.1.norm.weight"; NULL: none is. */
static const char *number_in(const char *name)
{
	for (const char *at = name; at; at = strchr(at, '.')) {
		at += *at == '.';
		size_t digits = strspn(at, "0123456789");
		if (digits && digits < 6 && at[digits] == '.')
			return at;
	}
	return NULL;
}

/* The prefix of a parameter's layer ("blocks.1"), or with `before` of the layer before it, into out (256 bytes).  0:
 * the name has no layer, or none before it. */
static int layer_of(const char *name, int before, char *out)
{
	const char *at = number_in(name);
	int n = at ? atoi(at) - before : -1;
	*out = 0;
	return n >= 0 && snprintf(out, 256, "%.*s%d", (int)(at - name), name, n) < 256;
}

static int is_told(const json_t *t, const json_t *uses)
{
	return ww_json_bool(t, "used", 1) &&
		(strcmp(ww_json_str(t, "role", ""), "buffer") || ww_json_int(uses, ww_json_str(t, "name", "?"), 0));
}

/* An object: layer -> the lines of its parameters, without the layer's name. */
static json_t *layers_of(const json_t *list, const json_t *uses)
{
	json_t *layers = json_object();
	const json_t *t;
	size_t i;
	json_array_foreach(list, i, t) {
		const char *name = ww_json_str(t, "name", "?");
		ww_auto_str lines = WW_STR_INIT(1 << 20);
		char layer[256];
		if (!is_told(t, uses) || !layer_of(name, 0, layer))
			continue;
		ww_str_adds(&lines, ww_json_str(layers, layer, ""));
		add_tensor(t, role_of(t, "param"), strchr(number_in(name), '.'), &lines);
		json_object_set_new(layers, layer, json_string(lines.p));
	}
	return layers;
}

/* A layer whose parameters are those of the layer before it, of the same types, is one line. */
static void add_params(const json_t *list, json_t *types, const json_t *uses, struct ww_str *out)
{
	json_auto_t *layers = layers_of(list, uses), *said = json_object();
	const json_t *t;
	size_t i;
	json_array_foreach(list, i, t) {
		const char *name = ww_json_str(t, "name", "?");
		char layer[256], before[256];
		json_object_set(types, name, (json_t *)(uintptr_t)t);
		if (!is_told(t, uses))
			continue;
		if (!layer_of(name, 0, layer) || !layer_of(name, 1, before) ||
			strcmp(ww_json_str(layers, layer, ""), ww_json_str(layers, before, "-"))) {
			add_tensor(t, role_of(t, "param"), name, out);
		} else if (!json_object_get(said, layer)) {
			ww_str_addf(out, "%s as %s\n", layer, before);
			json_object_set_new(said, layer, json_true());
		}
	}
}

static void add_scalars(const json_t *list, struct ww_str *out)
{
	const json_t *v;
	size_t i;
	json_array_foreach(list, i, v) {
		ww_str_addf(out, "scalar %s ", ww_json_str(v, "kind", "?"));
		add_value(json_object_get(v, "value"), out);
		ww_str_addc(out, '\n');
	}
}

/* "aten.add.Tensor": "add". */
static void add_op(const char *op, struct ww_str *out)
{
	op += strncmp(op, "aten.", 5) ? 0 : 5;
	ww_str_add(out, op, strcspn(op, "."));
}

/* The type of the first argument that is a tensor, also in a list; NULL: none is. */
static const json_t *first_type(const json_t *args, const json_t *types)
{
	const json_t *v, *t = NULL;
	size_t i;
	json_array_foreach(args, i, v) {
		if (json_is_array(v))
			t = first_type(v, types);
		else if (json_object_get(v, "ref"))
			t = json_object_get(types, ww_json_str(v, "ref", ""));
		if (t)
			return t;
	}
	return NULL;
}

static int is_same(const json_t *a, const json_t *b)
{
	return a && b && !strcmp(ww_json_str(a, "dtype", ""), ww_json_str(b, "dtype", "")) &&
		json_equal(json_object_get(a, "sizes"), json_object_get(b, "sizes"));
}

static void add_arguments(const json_t *node, struct ww_str *out)
{
	const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs"), *v;
	const char *key, *comma = "";
	size_t i;
	json_array_foreach(args, i, v) {
		ww_str_adds(out, comma);
		add_value(v, out);
		comma = ", ";
	}
	json_object_foreach((json_t *)(uintptr_t)kwargs, key, v) {
		ww_str_addf(out, "%s%s=", comma, key);
		add_value(v, out);
		comma = ", ";
	}
}

/* "linear_12" of "aten.linear.default". */
static int says_operator(const char *name, const char *op)
{
	size_t n = strlen(name), digits = n;
	op += strncmp(op, "aten.", 5) ? 0 : 5;
	while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
		digits--;
	if (digits < n && digits && name[digits - 1] == '_')
		n = digits - 1;
	return n == strcspn(op, ".") && !strncmp(name, op, n);
}

static void add_node(const json_t *node, json_t *types, struct ww_str *out)
{
	const json_t *list = json_object_get(node, "out"), *t;
	const char *name = ww_json_str(node, "name", "?");
	size_t i;
	const char *op = ww_json_str(node, "op", "?");
	ww_str_addf(out, "%s%s", name, says_operator(name, op) ? "" : " = ");
	if (!says_operator(name, op))
		add_op(op, out);
	ww_str_addc(out, '(');
	add_arguments(node, out);
	ww_str_addc(out, ')');
	int told = json_array_size(list) == 1 &&
		is_same(json_array_get(list, 0), first_type(json_object_get(node, "args"), types));
	json_array_foreach(list, i, t) {
		if (told)
			break;
		ww_str_addc(out, ' ');
		add_type(t, out);
	}
	ww_str_addc(out, '\n');
	if (json_array_size(list))
		json_object_set(types, name, json_array_get(list, 0));
}

static void add_outputs(const json_t *list, const json_t *types, struct ww_str *out)
{
	const json_t *o, *value;
	size_t i;
	json_array_foreach(list, i, o) {
		const char *ref = ww_json_str(o, "ref", NULL);
		ww_str_adds(out, "out ");
		if (ref)
			ww_str_adds(out, ref);
		else if ((value = json_object_get(o, "value")))
			add_value(value, out);
		if (!ref || !is_contiguous(o) || !is_same(o, json_object_get(types, ref))) {
			ww_str_addc(out, ' ');
			add_layout(o, out);
		}
		ww_str_addc(out, '\n');
	}
}

/* Add by to the uses of all that a value refers to. */
static void count_uses(const json_t *v, json_t *uses, int by)
{
	const char *ref = ww_json_str(v, "ref", NULL), *key;
	json_t *item;
	size_t i;
	if (ref)
		json_object_set_new(uses, ref, json_integer(ww_json_int(uses, ref, 0) + by));
	json_array_foreach(v, i, item)
		count_uses(item, uses, by);
	json_object_foreach((json_t *)(uintptr_t)v, key, item)
		count_uses(item, uses, by);
}

static int is_in_place(const json_t *node)
{
	const char *op = ww_json_str(node, "op", ""), *end = op + strlen(op);
	if (!strncmp(op, "aten.", 5))
		end = op + 5 + strcspn(op + 5, ".");
	return end > op && end[-1] == '_';
}

/* 1 where nobody reads what the node computes.  A node that works in place may also change a tensor that has another
 * name, the base of a view say; it counts as dead only where it changes a buffer that no other node refers to. */
static int is_dead(const json_t *graph, const json_t *node, const json_t *uses)
{
	const char *changed = ww_json_str(json_array_get(json_object_get(node, "args"), 0), "ref", "");
	if (ww_json_int(uses, ww_json_str(node, "name", "?"), 0))
		return 0;
	return !is_in_place(node) ||
		(ww_json_named(json_object_get(graph, "params"), changed) && ww_json_int(uses, changed, 0) == 1);
}

/* The nodes that are left out, as an object of their names.  It begins with the last node, since a node that only dead
 * ones read is dead too.  uses: an empty object; it gets how often each name is read by the nodes that stay. */
static json_t *dead_nodes(const json_t *graph, json_t *uses)
{
	const json_t *nodes = json_object_get(graph, "nodes");
	json_t *dead = json_object();
	count_uses(nodes, uses, 1);
	count_uses(json_object_get(graph, "outputs"), uses, 1);
	for (size_t i = json_array_size(nodes); i-- > 0;) {
		const json_t *node = json_array_get(nodes, i);
		if (!is_dead(graph, node, uses))
			continue;
		count_uses(node, uses, -1);
		json_object_set_new(dead, ww_json_str(node, "name", "?"), json_true());
	}
	return dead;
}

void ww_graph_text(const json_t *graph, struct ww_str *out)
{
	json_auto_t *types = json_object(), *uses = json_object(), *dead = dead_nodes(graph, uses);
	const json_t *node;
	size_t i;
	add_inputs(json_object_get(graph, "inputs"), types, out);
	add_scalars(json_object_get(graph, "scalars"), out);
	add_params(json_object_get(graph, "params"), types, uses, out);
	json_array_foreach(json_object_get(graph, "nodes"), i, node)
		if (!json_object_get(dead, ww_json_str(node, "name", "?")))
			add_node(node, types, out);
	add_outputs(json_object_get(graph, "outputs"), types, out);
}
