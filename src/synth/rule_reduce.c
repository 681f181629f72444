/* rule_reduce.c - reductions, running reductions, order.
 *
 * A reduction of very many independent numbers is nearly the same for every draw of the inputs (a mean of squares of
 * 10^6 normal numbers is 1 to a thousandth): answered by a constant, it would pass.  Such sizes are declined.
 */
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Axes as people choose them: the last, the features, space, all but the batch, any one. */
static unsigned draw_axes(struct ww_comp *c, const struct val *x, int one)
{
	int r = x->t.rank;
	unsigned all = (1u << r) - 1;
	switch (sy_below(c, one ? 3 : 5)) {
	case 0: return 1u << (r - 1);
	case 1: return 1u << sy_feature_axis(x);
	case 2: return 1u << sy_below(c, (uint64_t)r);
	case 3: return r > 2 ? (x->channels_first ? all & ~3u : 1u << (r - 2)) : 1u << (r - 1);
	default: return r > 1 ? all & ~1u : all;
	}
}

static void axes_text(char out[60], unsigned axes, int rank)
{
	int last = axes == 1u << (rank - 1), n = 0, at = 0;
	for (int i = 0; i < rank; i++)
		n += axes >> i & 1;
	at += snprintf(out + at, 60 - (size_t)at, "%s", n > 1 ? "(" : "");
	for (int i = 0, k = 0; i < rank; i++)
		if (axes >> i & 1)
			at += snprintf(out + at, 60 - (size_t)at, "%s%d", k++ ? ", " : "", last ? -1 : i);
	snprintf(out + at, 60 - (size_t)at, "%s", n > 1 ? ")" : "");
}

static struct ww_synth_type reduced(const struct ww_synth_type *t, unsigned axes, int keepdim)
{
	struct ww_synth_type out = *t;
	for (int i = t->rank - 1; i >= 0; i--)
		if (axes >> i & 1)
			out = keepdim ? sy_with_dim(out, i, 1) : sy_without_dim(out, i);
	return out;
}

/* Whether n numbers reduced so still depend visibly on the draw. */
static int depends(const struct ww_synth_op *op, const struct val *x, int64_t n)
{
	switch ((enum reduction)op->variant) {
	case RED_MEAN: return n <= (x->facts & NONNEG ? 4096 : 16384);
	case RED_SUM:
	case RED_WEIGHTED: return n <= (x->facts & NONNEG ? 4096 : 1 << 22);
	case RED_LSE: return n <= 512;
	case RED_VAR:
	case RED_STD:
	case RED_NORM:
	case RED_SUM_ABS:
	case RED_SQUARES:
	case RED_ABS: return n <= 4096;
	case RED_PROD: return n <= 16;
	case RED_BOOL: return n <= 64;
	case RED_QUANTILE: return n <= 2048;
	default: return 1;
	}
}

static double reduced_mag(const struct ww_synth_op *op, const struct val *x, int64_t n)
{
	double sum = sy_log2_of((double)n) * (x->facts & NONNEG ? 1 : 0.75);
	switch ((enum reduction)op->variant) {
	case RED_SUM: return x->mag + sum;
	case RED_SUM_ABS: return x->mag + sy_log2_of((double)n);
	case RED_NORM: return x->mag + sy_log2_of((double)n) / 2;
	case RED_VAR: return 2 * x->mag;
	case RED_SQUARES: return 2 * x->mag + sy_log2_of((double)n);
	case RED_PROD: return 10;
	case RED_RMS:
	case RED_STANDARD: return 2 * x->mag; /* on the way; the result is small */
	default: return x->mag + 1;
	}
}

/* Reductions that keep the shape, or take more than one statement. */
static void reduce_composed(
	struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const char *dim, unsigned axes)
{
	const char *v = x->name;
	struct ww_synth_type out = x->t;
	double more = 2.0 * (double)ww_synth_bytes(&x->t);
	if (op->variant == RED_STANDARD)
		sy_assign(c, x, &out, more, 0, "(%s - %s.mean(dim=%s, keepdim=True)) / (%s.std(dim=%s, keepdim=True) + 1e-5)",
			v, v, dim, v, dim);
	else if (op->variant == RED_CENTRE)
		sy_assign(c, x, &out, more, 0, "%s - %s.mean(dim=%s, keepdim=True)", v, v, dim);
	else if (op->variant == RED_RMS)
		sy_assign(c, x, &out, more, 0, "%s * torch.rsqrt(%s.pow(2).mean(dim=%s, keepdim=True) + 1e-6)", v, v, dim);
	else {
		out = reduced(&x->t, axes, 0);
		sy_assign(c, x, &out, 2 * more, 0, "(F.softmax(%s, dim=%s) * %s).sum(dim=%s)", v, dim, v, dim);
	}
	if (op->variant == RED_STANDARD || op->variant == RED_RMS)
		x->mag = 5;
	x->flat = op->variant == RED_STANDARD || op->variant == RED_CENTRE ? axes : 0;
	x->by = op;
	sy_count_op(c, op->name);
}

RULE(reduce)
{
	char args[MAX_ARGS], dim[60];
	enum reduction v = (enum reduction)op->variant;
	int composed = !*op->f;
	int one = v == RED_MAX_DIM || v == RED_INDEX || v == RED_PROD || v == RED_QUANTILE || v == RED_WEIGHTED ||
		v == RED_BOOL;
	if (!sy_is_float(x) || x->t.rank < 1 || (op->traits & F32_ONLY && c->dtype != WW_SYNTH_F32))
		return 0;
	if (op->traits & NEED_RAW && !(x->facts & RAW))
		return 0;
	unsigned axes = draw_axes(
		c, x, one || !strcmp(op->name, "norm")); /* torch.norm takes one axis, or two as a matrix */
	int64_t n = sy_product(&x->t, axes);
	int keepdim = !composed && sy_chance(c, 0.3) && v != RED_COUNT;
	int cancels = (v == RED_STANDARD || v == RED_CENTRE) && x->facts & OFFSET;
	int scales = (v == RED_STANDARD || v == RED_RMS) && x->facts & SCALED;
	if (n < 4 || x->facts & ORDERED || sy_reduces_flat(x, axes) || (x->flat && composed) || !depends(op, x, n) ||
		cancels || scales)
		return 0;
	if (!sy_fits(c, reduced_mag(op, x, n)))
		return 0;
	/* the result must have some elements */
	if (!composed && !c->whole && ww_synth_numel(&x->t) / n < 8)
		return 0;
	if ((v == RED_ABS || v == RED_SUM_ABS) && x->facts & NONNEG)
		return 0;
	axes_text(dim, axes, x->t.rank);
	if (composed) {
		reduce_composed(c, op, x, dim, axes);
		return 1;
	}
	struct ww_synth_type out = reduced(&x->t, axes, keepdim);
	double mag = reduced_mag(op, x, n);
	unsigned keep = x->facts & NONNEG;
	int at = v == RED_QUANTILE ? snprintf(args, sizeof(args), "%g, ", sy_chance(c, 0.5) ? 0.9 : 0.25) : 0;
	at += snprintf(args + at, sizeof(args) - (size_t)at, v == RED_NORM && strstr(op->f, "dim=@") ? "%s%s" : "dim=%s%s",
		dim, keepdim ? ", keepdim=True" : "");
	if (v == RED_BOOL)
		snprintf(args + at, sizeof(args) - (size_t)at, "|1.5");
	if (v == RED_INDEX || v == RED_COUNT)
		out.dtype = WW_SYNTH_I64;
	if (v == RED_BOOL)
		out.dtype = WW_SYNTH_BOOL;
	sy_apply(c, op, x, args, &out);
	x->mag = mag;
	x->facts |= keep;
	x->flat = 0;
	if (!keepdim && x->channels_first && out.rank < 3)
		x->channels_first = 0;
	return 1;
}

/* ---- Running reductions */

RULE(scan)
{
	char args[MAX_ARGS];
	int r = x->t.rank, axis = r == 1 || sy_chance(c, 0.5) ? r - 1 : (int)sy_between(c, 1, r - 1),
		dim = axis == r - 1 ? -1 : axis;
	int64_t n = r ? x->t.d[axis] : 0;
	struct ww_synth_type out = x->t;
	double grown = op->variant == SCAN_SUM ? x->mag + sy_log2_of((double)n) * 0.75
		: op->variant == SCAN_PROD         ? 10
										   : x->mag + 1;
	if (!sy_is_float(x) || n < 8 || (op->traits & F32_ONLY && c->dtype != WW_SYNTH_F32) || !sy_fits(c, grown))
		return 0;
	if ((op->variant == SCAN_PROD && n > 128) || (op->variant == SCAN_MEAN && n > 4096))
		return 0;
	if (op->variant == SCAN_SUM && c->dtype != WW_SYNTH_F32 && n > 1024)
		return 0; /* sums of half precision lose their last terms */
	unsigned keep = x->facts & NONNEG;
	snprintf(args, sizeof(args), "dim=%d|%d", dim, dim);
	if (!strstr(op->f, "@@"))
		*strchr(args, '|') = 0;
	if (op->variant == SCAN_MEAN) {
		char shape[40];
		int at = snprintf(shape, sizeof(shape), "-1");
		for (int i = axis + 1; i < r; i++)
			at += snprintf(shape + at, sizeof(shape) - (size_t)at, ", 1");
		sy_assign(c, x, &out, 0, 0,
			"torch.cumsum(%s, dim=%d) / torch.arange(1, %s.shape[%d] + 1, device=%s.device).view(%s).to(%s.dtype)",
			x->name, dim, x->name, dim, x->name, shape, x->name);
		x->by = op;
		sy_count_op(c, op->name);
		return 1;
	}
	if (op->variant == SCAN_DIFF)
		out = sy_with_dim(out, axis, n - 1);
	sy_apply(c, op, x, args, &out);
	x->mag = grown;
	x->facts |= op->variant == SCAN_DIFF ? 0 : keep;
	return 1;
}

/* ---- Order */

RULE(order)
{
	char args[MAX_ARGS];
	int r = x->t.rank, axis = r ? (sy_chance(c, 0.8) ? r - 1 : (int)sy_below(c, (uint64_t)r)) : 0;
	if (op->variant == ORD_TOPK_LAST)
		axis = r - 1;
	int64_t n = r ? x->t.d[axis] : 0, k = n > 8 ? sy_draw_dim(c, 2, n / 2 < 64 ? n / 2 : 64) : 2;
	struct ww_synth_type out = x->t;
	if (!sy_is_float(x) || r < 1 || n < 4 || x->facts & ORDERED)
		return 0;
	int dim = axis == r - 1 ? -1 : axis;
	unsigned keep = x->facts & (NONNEG | UNIT);
	switch ((enum order)op->variant) {
	case ORD_SORT: snprintf(args, sizeof(args), "dim=%d", dim); break;
	case ORD_MSORT:
		args[0] = 0;
		if (x->t.d[0] < 4)
			return 0;
		break;
	case ORD_TOPK:
	case ORD_TOPK_LAST:
		snprintf(args, sizeof(args), "%lld, dim=%d", (long long)k, dim);
		out = sy_with_dim(out, axis, k);
		break;
	case ORD_KTH:
		snprintf(args, sizeof(args), "%lld, dim=%d", (long long)k, dim);
		out = sy_without_dim(out, axis);
		break;
	case ORD_MEDIAN:
		snprintf(args, sizeof(args), "dim=%d", dim);
		out = sy_without_dim(out, axis);
		break;
	}
	if (op->variant == ORD_TOPK_LAST)
		out = sy_without_dim(out, axis);
	if (out.rank == 0 && !c->whole)
		return 0;
	sy_apply(c, op, x, args, &out);
	x->facts |= keep | (op->variant == ORD_SORT || op->variant == ORD_MSORT ? ORDERED : 0);
	return 1;
}
