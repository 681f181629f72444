/* shapes.c - the tensors and scalars of a graph in plan.h's form (ref.h).
 *
 * A graph comes from another process, so sizes and strides are checked before anybody multiplies them: ranks within
 * WW_MAX_RANK, nothing negative, spans below 2^48 bytes.
 */
#include "base/dtype.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char what[] = "the task's graph";
static const long long MAX_SPAN_BYTES = 1ll << 48;

/* Sizes, strides, count and span; 0 where they make no sense. */
static int lay_out(struct ww_tensor *t, const json_t *sizes, const json_t *strides)
{
	if (json_array_size(sizes) > WW_MAX_RANK || json_array_size(sizes) != json_array_size(strides))
		return 0;
	t->rank = (int)json_array_size(sizes);
	t->numel = 1;
	long long last = 0;
	for (int i = 0; i < WW_MAX_RANK; i++) {
		t->size[i] = 1;
		if (i >= t->rank)
			continue;
		const json_t *size = json_array_get(sizes, (size_t)i), *stride = json_array_get(strides, (size_t)i);
		t->size[i] = json_integer_value(size);
		t->stride[i] = json_integer_value(stride);
		if (!json_is_integer(size) || !json_is_integer(stride) || t->size[i] < 0 || t->stride[i] < 0 ||
			t->size[i] > MAX_SPAN_BYTES || t->stride[i] > MAX_SPAN_BYTES ||
			__builtin_mul_overflow(t->numel, t->size[i], &t->numel))
			return 0;
		long long reach;
		if (t->size[i] > 1 &&
			(__builtin_mul_overflow(t->size[i] - 1, t->stride[i], &reach) ||
				__builtin_add_overflow(last, reach, &last)))
			return 0;
	}
	if (t->numel > 0 && last >= MAX_SPAN_BYTES / t->itemsize)
		return 0;
	t->bytes = t->numel > 0 ? (last + 1) * t->itemsize : 0;
	long long expected = 1;
	t->contiguous = 1;
	for (int i = t->rank - 1; i >= 0; i--) {
		if (t->size[i] != 1 && t->stride[i] != expected && t->numel > 0)
			t->contiguous = 0;
		if (t->numel > 0) /* else the sizes may multiply to anything */
			expected *= t->size[i];
	}
	return 1;
}

static enum ww_rc read_tensors(
	const json_t *graph, const char *key, int *buf, struct ww_tensor **out, int *n, struct ww_err *err)
{
	json_t *rows, *sizes, *strides;
	const char *dtype;
	WW_CHECK(ww_json_get_array(graph, key, what, &rows, err));
	size_t count = json_array_size(rows);
	WW_CHECK(WW_NEW(*out, count, err));
	for (size_t i = 0; i < count; i++) {
		const json_t *o = json_array_get(rows, i);
		struct ww_tensor *t = &(*out)[i];
		WW_CHECK(ww_json_get_str(o, "name", what, &t->name, err));
		WW_CHECK(ww_json_get_str(o, "dtype", what, &dtype, err));
		WW_CHECK(ww_json_get_array(o, "sizes", what, &sizes, err));
		WW_CHECK(ww_json_get_array(o, "strides", what, &strides, err));
		t->dtype = ww_dtype_of(dtype);
		t->itemsize = ww_dtype_bytes(t->dtype);
		if (!t->dtype || !lay_out(t, sizes, strides))
			return ww_err_set(
				err, WW_ERR_PROTOCOL, "%s: %s \"%s\" has an impossible dtype or shape", what, key, t->name);
		t->buf = (*buf)++;
	}
	*n = (int)count;
	return WW_OK;
}

static enum ww_rc read_scalars(const json_t *graph, struct ww_ref_shapes *s, struct ww_err *err)
{
	json_t *rows;
	const char *kind;
	WW_CHECK(ww_json_get_array(graph, "scalars", what, &rows, err));
	size_t n = json_array_size(rows);
	WW_CHECK(WW_NEW(s->scalars, n, err));
	for (size_t i = 0; i < n; i++, s->n_scalars++) {
		const json_t *o = json_array_get(rows, i), *v = json_object_get(o, "value");
		struct ww_scalar *x = &s->scalars[i];
		WW_CHECK(ww_json_get_str(o, "kind", what, &kind, err));
		x->kind = !strcmp(kind, "int") ? WW_SCALAR_INT
			: !strcmp(kind, "float")   ? WW_SCALAR_FLOAT
			: !strcmp(kind, "bool")    ? WW_SCALAR_BOOL
									   : WW_SCALAR_NONE;
		x->i = x->kind == WW_SCALAR_BOOL ? json_is_true(v) : json_integer_value(v);
		x->f = x->kind == WW_SCALAR_FLOAT ? ww_json_to_real(v, NAN) : (double)x->i;
	}
	return WW_OK;
}

enum ww_rc ww_ref_shapes(const json_t *graph, struct ww_ref_shapes *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int buf = 0;
	memset(out, 0, sizeof(*out));
	WW_TRY(read_tensors(graph, "inputs", &buf, &out->inputs, &out->n_inputs, err));
	WW_TRY(read_tensors(graph, "params", &buf, &out->params, &out->n_params, err));
	WW_TRY(read_tensors(graph, "outputs", &buf, &out->outputs, &out->n_outputs, err));
	WW_TRY(read_scalars(graph, out, err));
	out->owner = json_incref((json_t *)(uintptr_t)graph);
out:
	if (rc != WW_OK)
		ww_ref_shapes_release(out);
	return rc;
}

void ww_ref_shapes_release(struct ww_ref_shapes *s)
{
	free(s->inputs);
	free(s->params);
	free(s->outputs);
	free(s->scalars);
	json_decref(s->owner);
	memset(s, 0, sizeof(*s));
}
