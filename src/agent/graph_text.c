/* graph_text.c - a task's graph as a short text, in the compact prompt (compact.h).
 *
 *     in x f32[16,64,32,32]                           strides behind a slash, where it is not contiguous:
 * f32[8,16]/[1,8] scalar int 3 param conv.weight f32[128,64,3,3]               also: buffer, const; a small constant's
 * value behind = conv2d = conv2d(x, conv.weight, None, [1,1])    no type: it has that of its first tensor flatten =
 * flatten(conv2d, 1) f32[16,131072] out flatten
 *
 * What lies in memory has strides; a node's follow from its operator.
 * Nothing that a solution depends on is left out: an operator's overload follows from its arguments.  Regular rather
 * than pretty: who reads it copies names and sizes.
 */
#include "agent/compact.h"

#include "base/json.h"

#include <string.h>

static const char *short_dtype(const char *name)
{
	static const char *const names[][2] = { { "float32", "f32" }, { "float64", "f64" }, { "float16", "f16" },
		{ "bfloat16", "bf16" }, { "int64", "i64" }, { "int32", "i32" }, { "int16", "i16" }, { "int8", "i8" },
		{ "uint8", "u8" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++)
		if (!strcmp(names[i][0], name))
			return names[i][1];
	return name;
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

static void add_tensors(const json_t *list, const char *kind, json_t *types, struct ww_str *out)
{
	const json_t *t, *value;
	size_t i;
	json_array_foreach(list, i, t) {
		const char *name = ww_json_str(t, "name", "?"), *role = ww_json_str(t, "role", kind);
		json_object_set(types, name, (json_t *)(uintptr_t)t);
		if (!ww_json_bool(t, "used", 1))
			continue;
		ww_str_addf(out, "%s %s ", !strcmp(role, "constant") ? "const" : role, name);
		add_layout(t, out);
		if ((value = json_object_get(t, "value"))) {
			ww_str_adds(out, " = ");
			add_value(value, out);
		}
		ww_str_addc(out, '\n');
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

static void add_node(const json_t *node, json_t *types, struct ww_str *out)
{
	const json_t *list = json_object_get(node, "out"), *t;
	const char *name = ww_json_str(node, "name", "?");
	size_t i;
	ww_str_addf(out, "%s = ", name);
	add_op(ww_json_str(node, "op", "?"), out);
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

void ww_graph_text(const json_t *graph, struct ww_str *out)
{
	json_auto_t *types = json_object();
	const json_t *node;
	size_t i;
	add_tensors(json_object_get(graph, "inputs"), "in", types, out);
	add_scalars(json_object_get(graph, "scalars"), out);
	add_tensors(json_object_get(graph, "params"), "param", types, out);
	json_array_foreach(json_object_get(graph, "nodes"), i, node)
		add_node(node, types, out);
	add_outputs(json_object_get(graph, "outputs"), types, out);
}
