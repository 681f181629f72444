/* chain.c - one to five operators: which, in what order, and how their results meet.
 *
 * The first row is drawn by the recipe's shares of categories and decides what the input looks like (rows, feature
 * maps, heads, indices).  What follows is drawn by the same shares, bent towards what people write there: an activation
 * or a norm behind a product, a product behind a norm.
 */
#include "synth/grammar.h"

#include <stdio.h>
#include <string.h>

enum { TRIES = 60 };

int sy_try_op(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	struct cls *k = c->at;
	size_t init = k->init.len, forward = k->forward.len;
	int inputs = c->n_in, names = k->n_attr, sizes = k->n_h, ok = op->rule(c, op, x);
	if (!ok && (c->n_in != inputs || k->init.len != init || k->forward.len != forward))
		c->failed = 1;
	if (!ok) {
		k->n_attr = names;
		k->n_h = sizes;
	}
	return ok && !c->failed;
}

int sy_try_row(struct ww_comp *c, const char *name, struct val *x) { return sy_try_op(c, sy_op_named(name), x); }

const struct ww_synth_op *sy_draw_row(struct ww_comp *c, const double *weights)
{
	enum ww_synth_category which = (enum ww_synth_category)sy_weighted(c, weights, WW_SYNTH_CATEGORIES);
	double sum = 0;
	const struct ww_synth_op *last = NULL;
	for (int i = 0; i < sy_ops(c); i++)
		sum += sy_op(c, i)->category == which ? sy_op(c, i)->weight : 0;
	double at = sy_uniform(c, 0, sum);
	for (int i = 0; i < sy_ops(c); i++) {
		const struct ww_synth_op *op = sy_op(c, i);
		if (op->category != which)
			continue;
		last = op;
		if (at < op->weight)
			break;
		at -= op->weight;
	}
	return last;
}

/* ---- Inputs */

struct val sy_main_input(struct ww_comp *c, int rank, const int64_t *lo, const int64_t *hi)
{
	struct ww_synth_type t = { .dtype = c->dtype };
	sy_draw_shape(c, &t, rank, lo, hi);
	struct input *in = sy_add_input(c, "x", &t, sy_chance(c, 0.9) ? IN_NORMAL : IN_UNIFORM);
	if (!in)
		ww_bug(__FILE__, __LINE__, "no room for the first input");
	if (rank > 1 && sy_chance(c, c->r->strided))
		in->layout = rank == 4 && sy_chance(c, 0.5) ? LAYOUT_CHANNELS_LAST
			: sy_chance(c, 0.6)                     ? LAYOUT_TRANSPOSED
													: LAYOUT_SLICED;
	return sy_input_value(c, in);
}

static struct val map_input(struct ww_comp *c, int space)
{
	static const int64_t lo[3][5] = { { 1, 4, 32 }, { 1, 3, 8, 8 }, { 1, 3, 4, 8, 8 } };
	static const int64_t hi[3][5] = { { 1024, 512, 65536 }, { 512, 512, 512, 512 }, { 64, 128, 64, 128, 128 } };
	struct val x = sy_main_input(c, space + 2, lo[space - 1], hi[space - 1]);
	x.channels_first = 1;
	return x;
}

static struct val heads_input(struct ww_comp *c)
{
	static const int64_t lo[] = { 1, 1, 16, 16 }, hi[] = { 128, 32, 4096, 128 };
	return sy_main_input(c, 4, lo, hi);
}

static struct val row_input(struct ww_comp *c)
{
	static const int64_t lo2[] = { 16, 16 }, hi2[] = { 1 << 20, 16384 };
	static const int64_t lo3[] = { 1, 8, 16 }, hi3[] = { 1024, 8192, 4096 };
	static const int64_t lo4[] = { 1, 4, 4, 8 }, hi4[] = { 256, 64, 2048, 512 };
	switch (sy_below(c, 6)) {
	case 0:
	case 1: return sy_main_input(c, 2, lo2, hi2);
	case 5: return sy_main_input(c, 4, lo4, hi4);
	default: return sy_main_input(c, 3, lo3, hi3);
	}
}

static struct val index_input(struct ww_comp *c)
{
	static const int64_t lo[] = { 1, 8 }, hi[] = { 4096, 4096 };
	struct ww_synth_type t = { .dtype = WW_SYNTH_I64 };
	double size = c->size;
	c->size -= 7; /* each becomes a row */
	sy_draw_shape(c, &t, 2, lo, hi);
	c->size = size;
	struct input *in = sy_add_input(c, "tokens", &t, IN_INDEX);
	if (!in)
		ww_bug(__FILE__, __LINE__, "no room for the first input");
	in->high = sy_draw_dim(c, 64, 65536);
	return sy_input_value(c, in);
}

static struct val recurrent_input(struct ww_comp *c, int cell)
{
	static const int64_t lo[] = { 1, 8, 16 }, hi[] = { 1024, 256, 1024 };
	int64_t lo2[] = { 1, 16 }, hi2[] = { 65536, 2048 };
	return cell ? sy_main_input(c, 2, lo2, hi2) : sy_main_input(c, 3, lo, hi);
}

struct val sy_input_for(struct ww_comp *c, const struct ww_synth_op *op)
{
	int space = op->variant & 7;
	switch (op->category) {
	case WW_SYNTH_CONVOLUTION: return map_input(c, space ? space : 2);
	case WW_SYNTH_POOLING:
		return map_input(c, space > 0 && space < 4 && op->name[0] != 'g' ? space : (int)sy_between(c, 1, 3));
	case WW_SYNTH_PADDING: return map_input(c, space ? space : (int)sy_between(c, 1, 2));
	case WW_SYNTH_RESAMPLING: {
		int any = strncmp(op->name, "interpolate", 11) || op->variant == RES_ANY || op->variant == RES_AREA;
		return map_input(c, any ? 2 : op->variant == RES_1D ? 1 : op->variant == RES_3D ? 3 : 2);
	}
	case WW_SYNTH_NORM:
		if (strstr(op->name, "1d") || strstr(op->name, "2d") || strstr(op->name, "3d"))
			return sy_chance(c, 0.2) && !strcmp(op->name, "batch_norm1d") ? row_input(c) : map_input(c, op->variant);
		return strstr(op->name, "layer_norm") || strstr(op->name, "rms") ? row_input(c) : map_input(c, 2);
	case WW_SYNTH_ATTENTION:
		return op->variant == ATT_POOL || op->variant == ATT_MODULE ? sy_rows_input(c) : heads_input(c);
	case WW_SYNTH_RECURRENCE: return recurrent_input(c, op->variant > 10 && op->variant < 20);
	case WW_SYNTH_INDEXING: return strstr(op->rule_name, "embedding") ? index_input(c) : row_input(c);
	case WW_SYNTH_MATRIX:
	case WW_SYNTH_DISTANCE:
	case WW_SYNTH_LOSS:
	case WW_SYNTH_SORT: return row_input(c);
	default: return sy_chance(c, 0.6) ? row_input(c) : map_input(c, sy_chance(c, 0.7) ? 2 : (int)sy_between(c, 1, 3));
	}
}

/* ---- One after the other */

/* What people write behind an operator of a category, beyond the recipe's shares. */
static void bend(double *w, const struct val *x, int last)
{
	enum ww_synth_category by = x->by ? x->by->category : WW_SYNTH_CATEGORIES;
	if (by == WW_SYNTH_MATRIX || by == WW_SYNTH_CONVOLUTION || by == WW_SYNTH_BINARY) {
		w[WW_SYNTH_ACTIVATION] *= 3;
		w[WW_SYNTH_NORM] *= 2;
		w[WW_SYNTH_BINARY] *= 1.5;
	} else if (by == WW_SYNTH_NORM) {
		w[WW_SYNTH_ACTIVATION] *= 3;
		w[WW_SYNTH_MATRIX] *= 2;
		w[WW_SYNTH_CONVOLUTION] *= 2;
	} else if (by == WW_SYNTH_ACTIVATION) {
		w[WW_SYNTH_MATRIX] *= 2;
		w[WW_SYNTH_CONVOLUTION] *= 2;
		w[WW_SYNTH_POOLING] *= 2;
		w[WW_SYNTH_REDUCTION] *= 1.5;
	}
	if (!last)
		w[WW_SYNTH_LOSS] = w[WW_SYNTH_DISTANCE] = 0;
	if (by == WW_SYNTH_LAYOUT)
		w[WW_SYNTH_LAYOUT] *= 0.2;
}

int sy_follow(struct ww_comp *c, struct val *x, int n, const double *weights)
{
	for (int i = 0; i < n; i++) {
		int ok = 0;
		for (int t = 0; t < TRIES && !ok && !c->failed; t++) {
			double w[WW_SYNTH_CATEGORIES];
			memcpy(w, weights, sizeof(w));
			bend(w, x, i == n - 1 && c->at == c->cls[0]);
			const struct ww_synth_op *op = sy_draw_row(c, w);
			ok = op && op != x->by && sy_try_op(c, op, x);
		}
		if (!ok)
			return 0;
	}
	return 1;
}

/* ---- Patterns */

static int same_type(const struct val *a, const struct val *b)
{
	return a->t.dtype == b->t.dtype && a->t.rank == b->t.rank &&
		!memcmp(a->t.d, b->t.d, sizeof(a->t.d[0]) * (size_t)a->t.rank);
}

/* Categories that mostly keep the shape. */
static void keeping(const struct ww_comp *c, double w[WW_SYNTH_CATEGORIES])
{
	memcpy(w, c->r->categories, sizeof(double) * WW_SYNTH_CATEGORIES);
	for (int i = 0; i < WW_SYNTH_CATEGORIES; i++)
		if (i != WW_SYNTH_ACTIVATION && i != WW_SYNTH_POINTWISE && i != WW_SYNTH_BINARY && i != WW_SYNTH_NORM &&
			i != WW_SYNTH_SCAN)
			w[i] = 0;
}

/* x = x + identity, with a projection where the widths differ. */
static int add_identity(struct ww_comp *c, struct val *x, struct val *identity)
{
	int axis = sy_feature_axis(x);
	struct val other = *identity;
	if (!same_type(x, identity)) {
		struct ww_synth_type wide = sy_with_dim(
			identity->t, axis < identity->t.rank ? axis : 0, x->t.rank ? x->t.d[axis] : 1);
		other.t = wide;
		if (!same_type(x, &other) || !sy_is_float(x))
			return 0;
		other = *identity;
		if (x->channels_first)
			sy_add_conv(c, &other, "shortcut", x->t.d[1], 1, 1, 1, 0);
		else
			sy_add_linear(c, &other, "shortcut", x->t.d[axis], 0);
	}
	struct ww_synth_type out = x->t;
	double mag = (x->mag > identity->mag ? x->mag : identity->mag) + 1;
	int first = x->channels_first;
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0, "%s + %s", x->name, other.name);
	x->mag = mag;
	x->by = sy_op_named("add");
	x->channels_first = first;
	sy_count_op(c, "add");
	return 1;
}

static int residual(struct ww_comp *c, int n, const struct ww_synth_op *first, struct val *x)
{
	double w[WW_SYNTH_CATEGORIES];
	if (!sy_is_float(x) || x->t.rank < 2)
		return 0;
	struct val identity = sy_branch(c, x, "identity");
	if (!sy_try_op(c, first, x))
		return 0;
	keeping(c, w);
	return sy_follow(c, x, n - 2, w) && add_identity(c, x, &identity);
}

static int meet(struct ww_comp *c, struct val *a, struct val *b)
{
	static const char *const forms[] = { "%s + %s", "%s * %s", "torch.maximum(%s, %s)", "torch.cat([%s, %s], dim=%d)",
		"%s - %s" };
	int how = (int)sy_below(c, 5), axis = sy_feature_axis(a), first = a->channels_first;
	struct ww_synth_type out = a->t;
	double mag = how == 1 ? a->mag + b->mag : (a->mag > b->mag ? a->mag : b->mag) + 1;
	if (!sy_is_float(a) || !same_type(a, b) || a->t.rank < 2) {
		int other = a->t.rank - 1;
		struct ww_synth_type t = a->t.rank ? sy_with_dim(b->t, other, a->t.d[other]) : b->t;
		struct val probe = *b;
		probe.t = t;
		if (!sy_is_float(a) || a->t.rank < 2 || a->t.rank != b->t.rank || !same_type(a, &probe))
			return 0;
		how = 3;
		axis = other;
	}
	if (!sy_fits(c, mag))
		return 0;
	if (how == 3)
		out.d[axis] += b->t.d[axis];
	ww_auto_str text = WW_STR_INIT(200);
	const char *names[] = { a->name, b->name };
	int k = 0;
	for (const char *p = forms[how]; *p; p++) {
		if (*p == '%' && p[1] == 's')
			ww_str_adds(&text, names[k++]);
		else if (*p == '%')
			ww_str_addf(&text, "%d", axis == a->t.rank - 1 ? -1 : axis);
		else {
			ww_str_addc(&text, *p);
			continue;
		}
		p++;
	}
	sy_assign(c, a, &out, (double)ww_synth_bytes(&b->t), 0, "%s", text.p);
	a->mag = mag;
	a->by = sy_op_named(how == 1 ? "mul" : how == 2 ? "maximum" : how == 3 ? "cat_input" : how == 4 ? "sub" : "add");
	a->channels_first = first;
	sy_count_op(c, how == 3 ? "cat" : a->by->name);
	return 1;
}

static int branching(struct ww_comp *c, int n, const struct ww_synth_op *first, struct val *x)
{
	double w[WW_SYNTH_CATEGORIES];
	int left = n - 1 > 2 ? (int)sy_between(c, 1, n - 2) : 1, right = n - 1 - left;
	keeping(c, w);
	struct val b = sy_branch(c, x, "other");
	/* the first row may change the shape; then both branches have it */
	int shared = sy_chance(c, 0.5);
	if (shared) {
		if (!sy_try_op(c, first, x))
			return 0;
		sy_line(c, "%s = %s", b.name, x->name);
		char name[16];
		memcpy(name, b.name, sizeof(name));
		b = *x;
		memcpy(b.name, name, sizeof(name));
		left--;
	} else if (!sy_try_op(c, first, x)) {
		return 0;
	} else {
		left--;
	}
	if (!sy_follow(c, x, left, w) || !sy_follow(c, &b, right > 0 ? right : 1, w))
		return 0;
	return (shared || same_type(x, &b) || x->t.rank == b.t.rank) && meet(c, x, &b);
}

/* act(gate(x)) * value(x), by layers of equal width, or x * act(layer(x)). */
static int gated(struct ww_comp *c, struct val *x)
{
	static const char *const acts[] = { "torch.sigmoid(%s) * %s", "F.silu(%s) * %s", "F.gelu(%s) * %s",
		"torch.tanh(%s) * %s", "F.relu(%s) * %s" };
	struct val g = *x;
	int self = sy_chance(c, 0.4), map = x->channels_first && x->t.rank == 4, k = sy_chance(c, 0.5) ? 1 : 3;
	const char *act = self ? acts[0] : PICK(c, acts);
	if (!sy_is_float(x) || (!map && (x->channels_first || x->t.rank < 2)) || !sy_fits(c, 2 * x->mag + 2) ||
		x->t.d[sy_feature_axis(x)] < 4)
		return 0;
	int64_t width = self ? x->t.d[sy_feature_axis(x)] : sy_draw_dim(c, 16, map ? 256 : 2048);
	sy_variable(c, g.name, "gate");
	sy_line(c, "%s = %s", g.name, x->name);
	if (map)
		sy_add_conv(c, &g, "gate_conv", width, k, 1, 1, 1);
	else
		sy_add_linear(c, &g, "gate_proj", width, sy_chance(c, 0.5));
	if (!self && map)
		sy_add_conv(c, x, "value_conv", width, k, 1, 1, 1);
	else if (!self)
		sy_add_linear(c, x, "value_proj", width, sy_chance(c, 0.5));
	struct ww_synth_type out = g.t;
	double mag = act == acts[0] || act == acts[3] ? x->mag : x->mag + g.mag;
	ww_auto_str text = WW_STR_INIT(200);
	const char *name = g.name;
	for (const char *p = act; *p; p++) {
		if (*p != '%') {
			ww_str_addc(&text, *p);
			continue;
		}
		ww_str_adds(&text, name);
		name = x->name;
		p++;
	}
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0, "%s", text.p);
	x->mag = mag;
	x->channels_first = map;
	x->by = sy_op_named("mul");
	sy_count_op(c, "gated_mul");
	return 1;
}

int sy_compose_chain(struct ww_comp *c, int n, enum ww_synth_pattern *pattern, struct val *x)
{
	sy_swap_choice(c);
	const struct ww_synth_op *first = sy_draw_row(c, c->r->categories);
	sy_swap_choice(c);
	if (!first || (n > 1 && first->category == WW_SYNTH_LOSS && sy_chance(c, 0.7)))
		return 0;
	*x = sy_input_for(c, first);
	if (n < 3 && *pattern != WW_SYNTH_GATED)
		*pattern = WW_SYNTH_SEQUENTIAL;
	if (n < 2)
		*pattern = WW_SYNTH_SEQUENTIAL;
	switch (*pattern) {
	case WW_SYNTH_RESIDUAL: return residual(c, n, first, x);
	case WW_SYNTH_BRANCHING: return branching(c, n, first, x);
	case WW_SYNTH_GATED:
		if (first->category == WW_SYNTH_LOSS || x->t.dtype == WW_SYNTH_I64)
			return 0;
		if (n > 2 && sy_chance(c, 0.5))
			return sy_try_op(c, first, x) && gated(c, x) && sy_follow(c, x, n - 2 > 1 ? n - 3 : 0, c->r->categories);
		return gated(c, x) && sy_follow(c, x, n - 2 > 0 ? n - 2 : 0, c->r->categories);
	default: break;
	}
	/* the drawn row comes first, or behind something that lets it through */
	if (n > 1 && first->category != WW_SYNTH_INDEXING && sy_chance(c, 0.2)) {
		double w[WW_SYNTH_CATEGORIES];
		keeping(c, w);
		return sy_follow(c, x, 1, w) && sy_try_op(c, first, x) && sy_follow(c, x, n - 2, c->r->categories);
	}
	return sy_try_op(c, first, x) && sy_follow(c, x, n - 1, c->r->categories);
}
