/* canon_ops.c - ATen operators as canonical nodes: one row of a table an operator, those without a row stay themselves.
 *
 * An operator that is a formula of others becomes that formula, so that a module, a function and the formula written
 * out are one thing.  Kernel sizes, strides, paddings, factors and the like are sizes and dropped; which dimensions are
 * reduced is kept as "last" (the innermost ones), "all" or "other"; modes that are texts stay. */
#include "base/json.h"
#include "task/canon_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct ww_canon_reader R;
typedef struct ww_canon_value V;

struct row {
	const char *op;
	V (*lower)(R *r, const char *what);
	const char *what;
};

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static V value(int node) { return (V){ .node = node, .second = -1, .from = -1 }; }

static const json_t *arg(const R *r, int i, const char *name)
{
	const json_t *a = json_array_get(r->args, (size_t)i);
	return a ? a : name ? json_object_get(r->kwargs, name) : NULL;
}

static int is_given(const json_t *a) { return a && !json_is_null(a); }

static double num(const json_t *a, double def)
{
	return json_is_boolean(a) ? json_is_true(a) : is_given(a) ? ww_json_to_real(a, def) : def;
}

/* An argument as a node: a value, a number, else an unknown constant. */
static int node(R *r, const json_t *a)
{
	const V *v = ww_canon_ref(r, a);
	double x = num(a, NAN);
	if (v)
		return v->node;
	return isfinite(x) ? ww_canon_num(r->c, x) : ww_canon_unknown(r->c);
}

static int x0(R *r) { return node(r, arg(r, 0, NULL)); }
static int x1(R *r) { return node(r, arg(r, 1, NULL)); }

static const json_t *sizes_of(const R *r, const json_t *a)
{
	const V *v = ww_canon_ref(r, a);
	return v ? v->sizes : NULL;
}

static int rank_of(const R *r, const json_t *a) { return (int)json_array_size(sizes_of(r, a)); }

static json_int_t size(const json_t *sizes, int i) { return json_integer_value(json_array_get(sizes, (size_t)i)); }

static const json_t *out_sizes(const R *r) { return json_object_get(json_array_get(r->out, 0), "sizes"); }

static char type_class(const char *dtype)
{
	return !dtype ? 'f' : !strncmp(dtype, "bool", 4) ? 'b' : strstr(dtype, "int") ? 'i' : 'f';
}

/* Which dimensions of operand 0 `dims` (a number, a list, none: all) names; *count: their elements. */
static const char *over(const R *r, const json_t *dims, double *count)
{
	const json_t *sizes = sizes_of(r, arg(r, 0, NULL));
	int rank = (int)json_array_size(sizes), named[64] = { 0 }, all = 1, last = 1;
	int n = json_is_array(dims) ? (int)json_array_size(dims) : is_given(dims);
	for (int i = 0; i < n; i++) {
		json_int_t d = json_integer_value(json_is_array(dims) ? json_array_get(dims, (size_t)i) : dims);
		if (d >= -rank && d < rank && rank <= 64)
			named[d < 0 ? d + rank : d] = 1;
	}
	*count = 1;
	for (int i = rank - 1, gap = 0; i >= 0; i--) {
		int in = !n || named[i];
		*count *= in ? (double)size(sizes, i) : 1;
		if (size(sizes, i) == 1)
			continue;
		all = all && in;
		last = last && !(in && gap);
		gap = gap || !in;
	}
	return all ? "all" : last ? "last" : "other";
}

static int mean(R *r, const char *dims, double count, int x)
{
	return ww_canon_scale(r->c, 1 / (count > 0 ? count : 1), ww_canon_reduce(r->c, "sum", dims, x));
}

/* What keeps apart nodes that differ in numbers alone. */
static double numbers_in(const json_t *a)
{
	double h = 1;
	const char *key;
	json_t *item;
	size_t i;
	if (json_is_array(a))
		json_array_foreach(a, i, item)
			h = fmod(h * 31 + numbers_in(item), 1e9);
	else if (json_is_object(a) && !json_object_get(a, "ref"))
		json_object_foreach((json_t *)(uintptr_t)a, key, item)
			h = fmod(h * 37 + numbers_in(item), 1e9);
	else
		h = json_is_string(a) ? (double)strlen(json_string_value(a)) : num(a, 7);
	return isfinite(h) ? h : 3;
}

static double which(const R *r) { return fmod(numbers_in(r->args) * 41 + numbers_in(r->kwargs), 1e9); }

/* ---- Views and constants ----------------------------------------------------------------------------------------- */

static V of_operand(const R *r, int n, int whole)
{
	const V *from = ww_canon_ref(r, arg(r, 0, NULL));
	V v = value(n);
	v.from = from ? (int)(from - r->v) : -1;
	v.whole_view = whole;
	return v;
}

static V view(R *r, const char *what) { return of_operand(r, x0(r), 1); }

static V part(R *r, const char *what)
{
	const json_t *sizes = sizes_of(r, arg(r, 0, NULL));
	int x = x0(r);
	if (sizes && json_equal(sizes, out_sizes(r)))
		return view(r, what);
	return of_operand(r, ww_canon_op(r->c, "part", which(r), 0, &x, 1), 0);
}

static V parts(R *r, const char *what)
{
	V v = of_operand(r, x0(r), 0);
	v.parts = 1;
	return v;
}

static V getitem(R *r, const char *what)
{
	const V *of = ww_canon_ref(r, arg(r, 0, NULL));
	int i = (int)num(arg(r, 1, NULL), 0), x = of ? of->node : 0;
	char label[32];
	if (of && of->parts)
		return of_operand(r, ww_canon_op(r->c, "part", i, 0, &x, 1), 0);
	if (i == 1 && of && of->second >= 0)
		return value(of->second);
	snprintf(label, sizeof(label), "result/%d", i);
	return value(i ? ww_canon_op1(r->c, label, x) : x);
}

static V cast(R *r, const char *what)
{
	const V *from = ww_canon_ref(r, arg(r, 0, NULL));
	char to = type_class(ww_json_str(json_array_get(r->out, 0), "dtype", NULL)),
		 was = type_class(from ? from->dtype : NULL);
	if (to == was || to == 'f' || was == 'b')
		return view(r, what);
	return value(
		to == 'i' ? ww_canon_op1(r->c, "trunc", x0(r)) : ww_canon_op2(r->c, "ne", 1, x0(r), ww_canon_num(r->c, 0)));
}

static V zeros(R *r, const char *what) { return value(ww_canon_num(r->c, 0)); }
static V ones(R *r, const char *what) { return value(ww_canon_num(r->c, 1)); }
static V full(R *r, const char *what) { return value(node(r, arg(r, 1, "fill_value"))); }
static V unknown(R *r, const char *what) { return value(ww_canon_unknown(r->c)); }

static V random_numbers(R *r, const char *what)
{
	r->random = r->random ? r->random : what;
	return unknown(r, what);
}

static V dropout(R *r, const char *what)
{
	if (num(arg(r, 1, "p"), 0) > 0 && num(arg(r, 2, "train"), 0))
		r->random = r->random ? r->random : what;
	return view(r, what);
}

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static int plus(R *r, int x, int y) { return ww_canon_add(r->c, x, y); }
static int times(R *r, int x, int y) { return ww_canon_mul(r->c, x, y); }
static int number(R *r, double v) { return ww_canon_num(r->c, v); }

static V add(R *r, const char *what)
{
	double alpha = num(arg(r, 2, "alpha"), 1);
	int x = x0(r), y = x1(r);
	if (!strcmp(what, "rsub"))
		return value(ww_canon_add(r->c, y, ww_canon_scale(r->c, -alpha, x)));
	return value(plus(r, x, ww_canon_scale(r->c, !strcmp(what, "sub") ? -alpha : alpha, y)));
}

static V mul(R *r, const char *what) { return value(times(r, x0(r), x1(r))); }
static V neg(R *r, const char *what) { return value(ww_canon_scale(r->c, -1, x0(r))); }

static V divide(R *r, const char *what)
{
	int q = ww_canon_div(r->c, x0(r), x1(r));
	return value(is_given(arg(r, 2, "rounding_mode")) || *what ? ww_canon_op1(r->c, "round", q) : q);
}

static V power(R *r, const char *what)
{
	double e = *what ? strtod(what, NULL) : num(arg(r, 1, NULL), NAN);
	if (isfinite(e))
		return value(ww_canon_pow(r->c, x0(r), e));
	return value(ww_canon_op2(r->c, "pow", 0, x0(r), x1(r)));
}

static V addc(R *r, const char *what)
{
	int y = x1(r), z = node(r, arg(r, 2, NULL)), p = *what ? ww_canon_div(r->c, y, z) : times(r, y, z);
	return value(plus(r, x0(r), ww_canon_scale(r->c, num(arg(r, 3, "value"), 1), p)));
}

static V lerp(R *r, const char *what)
{
	int x = x0(r);
	return value(plus(r, x, times(r, node(r, arg(r, 2, "weight")), ww_canon_sub(r->c, x1(r), x))));
}

/* ---- Pointwise functions ----------------------------------------------------------------------------------------- */

static int sigmoid_of(R *r, int x)
{
	return ww_canon_pow(r->c, plus(r, number(r, 1), ww_canon_exp(r->c, ww_canon_scale(r->c, -1, x))), -1);
}

static int softplus_of(R *r, int x) { return ww_canon_log(r->c, plus(r, number(r, 1), ww_canon_exp(r->c, x))); }
static int relu_of(R *r, int x) { return ww_canon_max(r->c, x, number(r, 0)); }
static int clamp_of(R *r, int x) { return ww_canon_min(r->c, relu_of(r, x), number(r, 1)); }

static int hard_sigmoid(R *r, int x) { return ww_canon_scale(r->c, 1.0 / 6, clamp_of(r, plus(r, x, number(r, 3)))); }

static int gelu_of(R *r, int x, int by_tanh)
{
	int inner = by_tanh
		? ww_canon_scale(r->c, 0.79788456, plus(r, x, ww_canon_scale(r->c, 0.044715, ww_canon_pow(r->c, x, 3))))
		: ww_canon_scale(r->c, 0.70710678, x);
	return ww_canon_scale(
		r->c, 0.5, times(r, x, plus(r, number(r, 1), ww_canon_op1(r->c, by_tanh ? "tanh" : "erf", inner))));
}

static V pointwise(R *r, const char *what)
{
	struct ww_canon *c = r->c;
	int x = x0(r);
	switch (*what) {
	case 's': return value(sigmoid_of(r, x));
	case 'w': return value(times(r, x, sigmoid_of(r, x))); /* silu */
	case 'p': return value(softplus_of(r, x));
	case 'l': return value(ww_canon_log(c, sigmoid_of(r, x)));
	case 'm': return value(times(r, x, ww_canon_op1(c, "tanh", softplus_of(r, x)))); /* mish */
	case 'r': return value(relu_of(r, x));
	case '6': return value(clamp_of(r, x));
	case 'h': return value(hard_sigmoid(r, x));              /* hardsigmoid */
	case 'H': return value(times(r, x, hard_sigmoid(r, x))); /* hardswish */
	case 'L': return value(ww_canon_op1(c, "leaky_relu", x));
	case 'n': return value(ww_canon_div(c, x, plus(r, number(r, 1), ww_canon_op1(c, "abs", x))));
	case 't': return value(ww_canon_sub(c, x, ww_canon_op1(c, "tanh", x)));
	case 'e': return value(ww_canon_exp(c, x));
	case '2': return value(ww_canon_exp(c, ww_canon_scale(c, 0.693147, x))); /* exp2 */
	case '1': return value(plus(r, ww_canon_exp(c, x), number(r, -1)));      /* expm1 */
	case 'g': return value(ww_canon_log(c, x));
	case 'G': return value(ww_canon_scale(c, 1.5, ww_canon_log(c, x))); /* log2, log10 */
	default: return value(ww_canon_log(c, plus(r, number(r, 1), x)));   /* log1p */
	}
}

static V gelu(R *r, const char *what)
{
	const json_t *how = arg(r, 1, "approximate");
	how = how ? how : json_object_get(r->kwargs, "approximate");
	return value(gelu_of(r, x0(r), json_is_string(how) && !strcmp(json_string_value(how), "tanh")));
}

static V clamp(R *r, const char *what)
{
	const json_t *low = arg(r, 1, "min"), *high = arg(r, *what == 'x' ? 1 : 2, "max");
	int x = x0(r);
	if (*what != 'x' && is_given(low))
		x = ww_canon_max(r->c, x, node(r, low));
	return value(*what != 'n' && is_given(high) ? ww_canon_min(r->c, x, node(r, high)) : x);
}

static V hardtanh(R *r, const char *what)
{
	return value(ww_canon_min(r->c, ww_canon_max(r->c, x0(r), number(r, num(arg(r, 1, "min_val"), -1))), number(r, 1)));
}

static V glu(R *r, const char *what)
{
	int x = x0(r);
	return value(
		times(r, ww_canon_op(r->c, "part", 0, 0, &x, 1), sigmoid_of(r, ww_canon_op(r->c, "part", 1, 0, &x, 1))));
}

/* ---- Comparisons and choices ------------------------------------------------------------------------------------- */

static V compare(R *r, const char *what)
{
	int swap = *what == 'g', x = swap ? x1(r) : x0(r), y = swap ? x0(r) : x1(r);
	return value(ww_canon_op2(r->c, what[1] == 't' ? "lt" : "le", 0, x, y));
}

static V invert(R *r, const char *what)
{
	int x = x0(r), less = ww_canon_is(r->c, x, "lt");
	if (less || ww_canon_is(r->c, x, "le"))
		return value(ww_canon_op2(r->c, less ? "le" : "lt", 0, r->c->node[x].in[1], r->c->node[x].in[0]));
	return value(ww_canon_op1(r->c, "not", x));
}

static V where(R *r, const char *what)
{
	int filled = !strcmp(what, "fill"), third = node(r, arg(r, 2, NULL));
	return value(filled ? ww_canon_where(r->c, x1(r), third, x0(r)) : ww_canon_where(r->c, x0(r), x1(r), third));
}

static V triangle(R *r, const char *what) { return value(times(r, x0(r), ww_canon_unknown(r->c))); }

/* ---- Reductions and norms ---------------------------------------------------------------------------------------- */

static V reduce(R *r, const char *what)
{
	double count;
	const char *dims = over(r, arg(r, 1, "dim"), &count);
	return value(*what == 'm' ? mean(r, dims, count, x0(r)) : ww_canon_reduce(r->c, what, dims, x0(r)));
}

/* max(x), max(x, dim), max(x, y) */
static V extreme(R *r, const char *what)
{
	char other[16];
	double count;
	if (ww_canon_ref(r, arg(r, 1, NULL)))
		return value(what[2] == 'a' ? ww_canon_max(r->c, x0(r), x1(r)) : ww_canon_min(r->c, x0(r), x1(r)));
	const char *dims = over(r, arg(r, 1, "dim"), &count);
	V v = value(ww_canon_reduce(r->c, what, dims, x0(r)));
	snprintf(other, sizeof(other), "arg%s", what + 1);
	v.second = ww_canon_reduce(r->c, other, dims, x0(r));
	return v;
}

/* x - mean(x), and the mean of its square. */
static int centred(R *r, const char *dims, double count, int x, int *variance)
{
	int d = ww_canon_sub(r->c, x, mean(r, dims, count, x));
	*variance = mean(r, dims, count, ww_canon_pow(r->c, d, 2));
	return d;
}

static V variance(R *r, const char *what)
{
	double count;
	int v;
	const char *dims = over(r, arg(r, 1, "dim"), &count);
	centred(r, dims, count, x0(r), &v);
	return value(*what == 's' ? ww_canon_pow(r->c, v, 0.5) : v);
}

/* (x - mean) / sqrt(variance + eps) w + b, with the arguments at these places */
static int affine(R *r, int y, int w, int b)
{
	y = is_given(arg(r, w, NULL)) ? times(r, y, node(r, arg(r, w, NULL))) : y;
	return is_given(arg(r, b, NULL)) ? plus(r, y, node(r, arg(r, b, NULL))) : y;
}

static int normalised(R *r, const char *dims, int x)
{
	int v, d = centred(r, dims, 8, x, &v);
	return times(r, d, ww_canon_pow(r->c, plus(r, v, number(r, 1e-5)), -0.5));
}

static V layer_norm(R *r, const char *what) { return value(affine(r, normalised(r, "last", x0(r)), 2, 3)); }

static V batch_norm(R *r, const char *what) /* x, weight, bias, mean, variance, by the batch's own */
{
	if (num(arg(r, 5, NULL), 1))
		return value(affine(r, normalised(r, what, x0(r)), 1, 2));
	int d = ww_canon_sub(r->c, x0(r), node(r, arg(r, 3, NULL)));
	return value(
		affine(r, times(r, d, ww_canon_pow(r->c, plus(r, node(r, arg(r, 4, NULL)), number(r, 1e-5)), -0.5)), 1, 2));
}

static V rms_norm(R *r, const char *what)
{
	int x = x0(r), m = mean(r, "last", 8, ww_canon_pow(r->c, x, 2));
	return value(affine(r, times(r, x, ww_canon_pow(r->c, plus(r, m, number(r, 1e-5)), -0.5)), 2, 99));
}

static V norm(R *r, const char *what)
{
	double count, p = num(arg(r, 1, "ord"), num(arg(r, 1, "p"), 2));
	const char *dims = over(r, arg(r, 2, "dim"), &count);
	int x = x0(r);
	if (p == 2)
		return value(ww_canon_pow(r->c, ww_canon_reduce(r->c, "sum", dims, ww_canon_pow(r->c, x, 2)), 0.5));
	x = ww_canon_op1(r->c, "abs", x);
	return value(
		p == 1 ? ww_canon_reduce(r->c, "sum", dims, x) : ww_canon_reduce(r->c, p > 2 ? "amax" : "norm", dims, x));
}

static int log_sum_exp(R *r, const char *dims, int x)
{
	return ww_canon_log(r->c, ww_canon_reduce(r->c, "sum", dims, ww_canon_exp(r->c, x)));
}

static int softmax_of(R *r, const char *dims, int x)
{
	int e = ww_canon_exp(r->c, x);
	return ww_canon_div(r->c, e, ww_canon_reduce(r->c, "sum", dims, e));
}

static V softmax(R *r, const char *what)
{
	double count;
	const char *dims = over(r, arg(r, 1, "dim"), &count);
	int x = x0(r);
	if (*what == 'l')
		return value(ww_canon_sub(r->c, x, log_sum_exp(r, dims, x)));
	return value(*what == 'e' ? log_sum_exp(r, dims, x) : softmax_of(r, dims, x));
}

/* ---- Losses ------------------------------------------------------------------------------------------------------ */

static V reduced_loss(R *r, int x, int at)
{
	int how = (int)num(arg(r, at, "reduction"), 1);
	return value(how == 1 ? mean(r, "all", 8, x) : how == 2 ? ww_canon_reduce(r->c, "sum", "all", x) : x);
}

static V difference_loss(R *r, const char *what)
{
	int d = ww_canon_sub(r->c, x0(r), x1(r));
	return reduced_loss(r, *what == '2' ? ww_canon_pow(r->c, d, 2) : ww_canon_op1(r->c, "abs", d), 2);
}

static V picked_loss(R *r, const char *what)
{
	int x = x0(r);
	if (*what)
		x = ww_canon_sub(r->c, x, log_sum_exp(r, rank_of(r, arg(r, 0, NULL)) > 2 ? "other" : "last", x));
	return reduced_loss(r, ww_canon_scale(r->c, -1, ww_canon_op2(r->c, "pick", 0, x, x1(r))), 3);
}

static V cosine(R *r, const char *what)
{
	struct ww_canon *c = r->c;
	int x = x0(r), y = x1(r), both = ww_canon_reduce(c, "sum", "last", times(r, x, y));
	int xx = ww_canon_reduce(c, "sum", "last", ww_canon_pow(c, x, 2)),
		yy = ww_canon_reduce(c, "sum", "last", ww_canon_pow(c, y, 2));
	return value(ww_canon_div(c, both, times(r, ww_canon_pow(c, xx, 0.5), ww_canon_pow(c, yy, 0.5))));
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

static V matmul(R *r, const char *what) { return value(ww_canon_matmul(r->c, x0(r), x1(r))); }

static V linear(R *r, const char *what) { return value(affine(r, ww_canon_matmul(r->c, x0(r), x1(r)), 99, 2)); }

static V addmm(R *r, const char *what)
{
	int p = ww_canon_matmul(r->c, x1(r), node(r, arg(r, 2, NULL)));
	return value(plus(r, ww_canon_scale(r->c, num(arg(r, 3, "beta"), 1), x0(r)),
		ww_canon_scale(r->c, num(arg(r, 4, "alpha"), 1), p)));
}

/* Whether a letter of the operands (the first `n` bytes) is missing behind "->". */
static int contracts(const char *equation, const char *result, const char *letters, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", letters[i]) && !strchr(result, letters[i]))
			return 1;
	return 0;
}

static V einsum(R *r, const char *what)
{
	const json_t *equation = arg(r, 0, NULL), *list = arg(r, 1, NULL);
	const char *text = json_is_string(equation) ? json_string_value(equation) : "", *result = strstr(text, "->");
	int n = (int)json_array_size(list), x = node(r, json_array_get(list, 0));
	int contracted = result ? contracts(text, result, text, (size_t)(result - text)) : 1;
	for (int i = 1; i < n; i++)
		x = contracted ? ww_canon_matmul(r->c, x, node(r, json_array_get(list, (size_t)i)))
					   : times(r, x, node(r, json_array_get(list, (size_t)i)));
	return value(n == 1 && contracted ? ww_canon_reduce(r->c, "sum", "other", x) : x);
}

static int is_pointwise_kernel(const json_t *w)
{
	for (size_t i = 2; i < json_array_size(w); i++)
		if (size(w, (int)i) != 1)
			return 0;
	return json_array_size(w) > 2;
}

/* what: "" or "T" (transposed), or "?" where an argument says it */
static V conv(R *r, const char *what)
{
	const json_t *w = sizes_of(r, arg(r, 1, NULL));
	int general = *what == '?', transposed = general ? (int)num(arg(r, 6, NULL), 0) : *what == 'T';
	int groups = (int)num(arg(r, general ? 8 : transposed ? 6 : 6, "groups"), 1), x = x0(r), y;
	char label[40];
	if (ww_canon_is(r->c, x, "pad/constant"))
		x = r->c->node[x].in[0];
	snprintf(label, sizeof(label), "conv%d%s%s", (int)json_array_size(w) - 2, transposed ? "T" : "",
		groups <= 1                                                    ? ""
			: size(w, transposed ? 0 : 1) == (transposed ? groups : 1) ? "/depthwise"
																	   : "/groups");
	y = groups <= 1 && is_pointwise_kernel(w) ? ww_canon_matmul(r->c, x, x1(r))
											  : ww_canon_op2(r->c, label, 0, x, x1(r));
	return value(affine(r, y, 99, 2));
}

static V attention(R *r, const char *what)
{
	const json_t *mask = arg(r, 3, "attn_mask");
	const V *m = ww_canon_ref(r, mask);
	int s = ww_canon_scale(r->c, 0.125, ww_canon_matmul(r->c, x0(r), x1(r)));
	if (num(arg(r, 5, "is_causal"), 0))
		s = plus(r, s, ww_canon_unknown(r->c));
	if (m && type_class(m->dtype) == 'b')
		s = ww_canon_where(r->c, m->node, s, ww_canon_unknown(r->c));
	else if (m)
		s = plus(r, s, m->node);
	if (num(arg(r, 4, "dropout_p"), 0) > 0)
		r->random = r->random ? r->random : "scaled_dot_product_attention";
	return value(ww_canon_matmul(r->c, softmax_of(r, "last", s), node(r, arg(r, 2, NULL))));
}

/* ---- Pooling, gathering, joining --------------------------------------------------------------------------------- */

static V pool(R *r, const char *what)
{
	const json_t *out = out_sizes(r);
	int rank = (int)json_array_size(out), to_one = rank > 2,
		spatial = strchr(what, '1') ? 1
		: strchr(what, '3')         ? 3
									: 2;
	char label[32];
	for (int i = rank - spatial; i >= 0 && i < rank; i++)
		to_one = to_one && size(out, i) == 1;
	int is_max = *what == 'm';
	if (to_one)
		return value(is_max ? ww_canon_reduce(r->c, "amax", "last", x0(r)) : mean(r, "last", 8, x0(r)));
	snprintf(label, sizeof(label), "%s_pool%d", is_max ? "max" : "avg", spatial);
	return value(ww_canon_op1(r->c, label, x0(r)));
}

static V take(R *r, const char *what)
{
	int at = *what == '2' ? 2 : 1;
	const json_t *a = arg(r, at, NULL);
	for (size_t i = 0; json_is_array(a) && i < json_array_size(a); i++)
		if (is_given(json_array_get(a, i))) {
			a = json_array_get(a, i);
			break;
		}
	int x = x0(r);
	return value(ww_canon_op(
		r->c, *what == 'p' ? "pick" : "take", 0, 0, (int[]){ x, node(r, *what == 'p' ? arg(r, 2, NULL) : a) }, 2));
}

static V pad(R *r, const char *what)
{
	const json_t *mode = arg(r, 2, "mode");
	char label[40];
	snprintf(label, sizeof(label), "pad/%.20s",
		*what                      ? what
			: json_is_string(mode) ? json_string_value(mode)
								   : "constant");
	return value(ww_canon_op1(r->c, label, x0(r)));
}

/* ---- Operators without a row ------------------------------------------------------------------------------------- */

static int is_mode(const char *s)
{
	static const char *const not[] = { "float", "int", "bool", "uint", "bfloat", "half", "double", "cpu", "cuda",
		"contig", "channels", "preserve", "strided", "complex", "meta" };
	for (size_t i = 0; i < WW_ARRAY_LEN(not); i++)
		if (!strncmp(s, not[i], strlen(not[i])))
			return 0;
	return 1;
}

static int operands(R *r, const json_t *a, int *in, int n, int max, char *mode)
{
	json_t *item;
	size_t i;
	if (json_is_array(a)) {
		json_array_foreach(a, i, item)
			n = operands(r, item, in, n, max, mode);
	} else if (json_is_string(a) && is_mode(json_string_value(a))) {
		snprintf(mode, 24, "/%.20s", json_string_value(a));
	} else if (ww_canon_ref(r, a) && n < max) {
		in[n++] = ww_canon_ref(r, a)->node;
	}
	return n;
}

static V other(R *r, const char *what)
{
	static const char *const along[] = { "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "argmax", "argmin",
		"sort", "argsort", "prod", "any", "all", "median", "flip" };
	static const char *const both[] = { "eq", "ne", "logical_and", "logical_or", "logical_xor", "bitwise_and",
		"bitwise_or", "cat" };
	int in[200], n, commutes;
	char mode[24] = "", label[140];
	const char *dims = "", *key;
	json_t *item;
	double count;
	n = operands(r, r->args, in, 0, 200, mode);
	json_object_foreach((json_t *)(uintptr_t)r->kwargs, key, item)
		n = operands(r, item, in, n, 200, mode);
	if (ww_word_at(r->op, along, WW_ARRAY_LEN(along)) >= 0)
		dims = over(r, arg(r, 1, "dim"), &count);
	snprintf(label, sizeof(label), "%s%s%s%s", *what ? what : r->op, mode, *dims ? "/" : "", dims);
	commutes = ww_word_at(label, both, WW_ARRAY_LEN(both)) >= 0;
	if (commutes && n == 1 && !ww_canon_ref(r, arg(r, 1, NULL)) && !json_is_array(arg(r, 0, NULL)))
		in[n++] = x1(r);
	return value(n ? ww_canon_op(r->c, label, which(r), commutes, in, n) : ww_canon_unknown(r->c));
}

static const struct row rows[] = { { "view", view, "" }, { "reshape", view, "" }, { "_unsafe_view", view, "" },
	{ "flatten", view, "" }, { "unflatten", view, "" }, { "squeeze", view, "" }, { "unsqueeze", view, "" },
	{ "permute", view, "" }, { "transpose", view, "" }, { "t", view, "" }, { "numpy_T", view, "" }, { "mT", view, "" },
	{ "movedim", view, "" }, { "moveaxis", view, "" }, { "swapaxes", view, "" }, { "swapdims", view, "" },
	{ "expand", view, "" }, { "expand_as", view, "" }, { "broadcast_to", view, "" }, { "contiguous", view, "" },
	{ "clone", view, "" }, { "alias", view, "" }, { "detach", view, "" }, { "lift_fresh_copy", view, "" },
	{ "view_as", view, "" }, { "reshape_as", view, "" }, { "positive", view, "" }, { "atleast_1d", view, "" },
	{ "atleast_2d", view, "" }, { "atleast_3d", view, "" }, { "ravel", view, "" }, { "adjoint", view, "" },
	{ "repeat", view, "" }, { "tile", view, "" }, { "repeat_interleave", view, "" }, { "identity", view, "" },
	{ "to", cast, "" }, { "_to_copy", cast, "" }, { "type_as", cast, "" }, { "slice", part, "" },
	{ "select", part, "" }, { "narrow", part, "" }, { "split", parts, "" }, { "chunk", parts, "" },
	{ "split_with_sizes", parts, "" }, { "unbind", parts, "" }, { "tensor_split", parts, "" },
	{ "unsafe_chunk", parts, "" }, { "unsafe_split", parts, "" }, { "getitem", getitem, "" },
	{ "dropout", dropout, "dropout" }, { "native_dropout", dropout, "dropout" },
	{ "feature_dropout", dropout, "feature_dropout" }, { "alpha_dropout", dropout, "alpha_dropout" },
	{ "zeros", zeros, "" }, { "zeros_like", zeros, "" }, { "new_zeros", zeros, "" }, { "empty", zeros, "" },
	{ "empty_like", zeros, "" }, { "zero", zeros, "" }, { "ones", ones, "" }, { "ones_like", ones, "" },
	{ "new_ones", ones, "" }, { "full", full, "" }, { "full_like", full, "" }, { "fill", full, "" },
	{ "scalar_tensor", view, "" }, { "arange", unknown, "" }, { "linspace", unknown, "" }, { "eye", unknown, "" },
	{ "rand", random_numbers, "rand" }, { "randn", random_numbers, "randn" },
	{ "rand_like", random_numbers, "rand_like" }, { "randn_like", random_numbers, "randn_like" },
	{ "randint", random_numbers, "randint" }, { "randperm", random_numbers, "randperm" },
	{ "bernoulli", random_numbers, "bernoulli" }, { "multinomial", random_numbers, "multinomial" },
	{ "normal", random_numbers, "normal" }, { "uniform", random_numbers, "uniform" },
	{ "poisson", random_numbers, "poisson" }, { "exponential", random_numbers, "exponential" }, { "add", add, "add" },
	{ "sub", add, "sub" }, { "subtract", add, "sub" }, { "rsub", add, "rsub" }, { "mul", mul, "" },
	{ "multiply", mul, "" }, { "outer", mul, "" }, { "ger", mul, "" }, { "neg", neg, "" }, { "div", divide, "" },
	{ "divide", divide, "" }, { "true_divide", divide, "" }, { "floor_divide", divide, "floor" }, { "pow", power, "" },
	{ "square", power, "2" }, { "sqrt", power, "0.5" }, { "rsqrt", power, "-0.5" }, { "reciprocal", power, "-1" },
	{ "addcmul", addc, "" }, { "addcdiv", addc, "/" }, { "lerp", lerp, "" }, { "sigmoid", pointwise, "s" },
	{ "silu", pointwise, "w" }, { "softplus", pointwise, "p" }, { "log_sigmoid", pointwise, "l" },
	{ "mish", pointwise, "m" }, { "relu", pointwise, "r" }, { "relu6", pointwise, "6" },
	{ "hardsigmoid", pointwise, "h" }, { "hardswish", pointwise, "H" }, { "leaky_relu", pointwise, "L" },
	{ "softsign", pointwise, "n" }, { "tanhshrink", pointwise, "t" }, { "exp", pointwise, "e" },
	{ "exp2", pointwise, "2" }, { "expm1", pointwise, "1" }, { "log", pointwise, "g" }, { "log2", pointwise, "G" },
	{ "log10", pointwise, "G" }, { "log1p", pointwise, "+" }, { "gelu", gelu, "" }, { "clamp", clamp, "" },
	{ "clip", clamp, "" }, { "clamp_min", clamp, "n" }, { "clamp_max", clamp, "x" }, { "hardtanh", hardtanh, "" },
	{ "glu", glu, "" }, { "gt", compare, "gt" }, { "ge", compare, "ge" }, { "lt", compare, "lt" },
	{ "le", compare, "le" }, { "logical_not", invert, "" }, { "bitwise_not", invert, "" }, { "where", where, "" },
	{ "masked_fill", where, "fill" }, { "tril", triangle, "" }, { "triu", triangle, "" }, { "sum", reduce, "sum" },
	{ "mean", reduce, "mean" }, { "amax", reduce, "amax" }, { "amin", reduce, "amin" }, { "max", extreme, "amax" },
	{ "min", extreme, "amin" }, { "maximum", extreme, "amax" }, { "minimum", extreme, "amin" },
	{ "var", variance, "var" }, { "std", variance, "std" }, { "layer_norm", layer_norm, "" },
	{ "native_layer_norm", layer_norm, "" }, { "group_norm", layer_norm, "" }, { "batch_norm", batch_norm, "other" },
	{ "instance_norm", batch_norm, "last" }, { "rms_norm", rms_norm, "" }, { "norm", norm, "" },
	{ "linalg_vector_norm", norm, "" }, { "frobenius_norm", norm, "" }, { "linalg_norm", norm, "" },
	{ "softmax", softmax, "s" }, { "_softmax", softmax, "s" }, { "_safe_softmax", softmax, "s" },
	{ "log_softmax", softmax, "l" }, { "_log_softmax", softmax, "l" }, { "logsumexp", softmax, "e" },
	{ "mse_loss", difference_loss, "2" }, { "l1_loss", difference_loss, "1" },
	{ "cross_entropy_loss", picked_loss, "x" }, { "nll_loss", picked_loss, "" }, { "nll_loss_nd", picked_loss, "" },
	{ "cosine_similarity", cosine, "" }, { "matmul", matmul, "" }, { "mm", matmul, "" }, { "bmm", matmul, "" },
	{ "mv", matmul, "" }, { "dot", matmul, "" }, { "inner", matmul, "" }, { "linear", linear, "" },
	{ "addmm", addmm, "" }, { "baddbmm", addmm, "" }, { "addmv", addmm, "" }, { "einsum", einsum, "" },
	{ "conv1d", conv, "" }, { "conv2d", conv, "" }, { "conv3d", conv, "" }, { "conv_transpose1d", conv, "T" },
	{ "conv_transpose2d", conv, "T" }, { "conv_transpose3d", conv, "T" }, { "convolution", conv, "?" },
	{ "_convolution", conv, "?" }, { "scaled_dot_product_attention", attention, "" }, { "max_pool1d", pool, "m1" },
	{ "max_pool2d", pool, "m2" }, { "max_pool3d", pool, "m3" }, { "max_pool2d_with_indices", pool, "m2" },
	{ "max_pool3d_with_indices", pool, "m3" }, { "max_pool1d_with_indices", pool, "m1" }, { "avg_pool1d", pool, "a1" },
	{ "avg_pool2d", pool, "a2" }, { "avg_pool3d", pool, "a3" }, { "adaptive_avg_pool1d", pool, "a1" },
	{ "adaptive_avg_pool2d", pool, "a2" }, { "adaptive_avg_pool3d", pool, "a3" }, { "adaptive_max_pool1d", pool, "m1" },
	{ "adaptive_max_pool2d", pool, "m2" }, { "adaptive_max_pool3d", pool, "m3" }, { "embedding", take, "" },
	{ "index_select", take, "2" }, { "index", take, "" }, { "gather", take, "p" }, { "pad", pad, "" },
	{ "constant_pad_nd", pad, "constant" }, { "reflection_pad1d", pad, "reflect" },
	{ "reflection_pad2d", pad, "reflect" }, { "replication_pad1d", pad, "replicate" },
	{ "replication_pad2d", pad, "replicate" }, { "stack", other, "cat" }, { "concat", other, "cat" },
	{ "concatenate", other, "cat" }, { "hstack", other, "cat" }, { "vstack", other, "cat" }, { "dstack", other, "cat" },
	{ "column_stack", other, "cat" }, { "diag", other, "diag" }, { "diag_embed", other, "diag" } };

V ww_canon_lower(R *r)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		if (!strcmp(r->op, rows[i].op))
			return rows[i].lower(r, rows[i].what);
	return other(r, "");
}
