/* rule_spatial.c - operators over feature maps: convolution, pooling, padding, resampling, norms. */
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "3" where all are the same, else "(3, 1)". */
static void tuple(char out[60], const int64_t *v, int n)
{
	int same = 1, at = 0;
	for (int i = 1; i < n; i++)
		same &= v[i] == v[0];
	if (same) {
		snprintf(out, 60, "%lld", (long long)v[0]);
		return;
	}
	at += snprintf(out, 60, "(");
	for (int i = 0; i < n; i++)
		at += snprintf(out + at, 60 - (size_t)at, "%s%lld", i ? ", " : "", (long long)v[i]);
	snprintf(out + at, 60 - (size_t)at, ")");
}

static int is_map(const struct val *x, int space)
{
	return sy_is_float(x) && x->t.rank == space + 2 && x->channels_first;
}

/* ---- Convolution */

struct window {
	int space;
	int64_t k[3], stride[3], pad[3], dilation[3], extra[3]; /* extra: of a transposed one's output */
	int64_t groups, out;
};

static void draw_kernel(struct ww_comp *c, const struct ww_synth_op *op, struct window *w)
{
	static const int64_t sizes[] = { 3, 3, 3, 5, 7, 1, 4, 9 };
	int64_t k = op->variant & 32 ? 1 : PICK(c, sizes);
	if (w->space == 3 && k > 3)
		k = 3;
	if (op->variant & 16 && k == 1)
		k = 3;
	for (int i = 0; i < w->space; i++)
		w->k[i] = k;
	if (w->space > 1 && k > 1 && sy_chance(c, 0.2))
		w->k[sy_below(c, (uint64_t)w->space)] = sy_chance(c, 0.5) ? 1 : k + 2;
}

static void draw_window(struct ww_comp *c, const struct ww_synth_op *op, struct window *w)
{
	int transposed = op->variant & 8;
	int64_t stride = sy_chance(c, transposed ? 0.7 : 0.25) ? 2 : 1,
			dilation = !transposed && sy_chance(c, 0.15) ? 2 : 1;
	draw_kernel(c, op, w);
	int same = sy_chance(c, 0.7);
	for (int i = 0; i < w->space; i++) {
		w->stride[i] = w->k[i] == 1 && !transposed && !(op->variant & 32) ? 1 : stride;
		if (op->variant & 32)
			w->stride[i] = 1;
		w->dilation[i] = w->k[i] == 1 ? 1 : dilation;
		w->pad[i] = same ? w->dilation[i] * (w->k[i] - 1) / 2 : 0;
		w->extra[i] = transposed && w->stride[i] > 1 && sy_chance(c, 0.4) ? 1 : 0;
	}
}

static int64_t conv_size(int64_t n, const struct window *w, int i, int transposed)
{
	int64_t span = w->dilation[i] * (w->k[i] - 1);
	if (transposed)
		return (n - 1) * w->stride[i] - 2 * w->pad[i] + span + w->extra[i] + 1;
	return n + 2 * w->pad[i] < span + 1 ? 0 : (n + 2 * w->pad[i] - span - 1) / w->stride[i] + 1;
}

static void draw_groups(struct ww_comp *c, const struct ww_synth_op *op, int64_t in, struct window *w)
{
	int64_t lo = in / 4 > 4 ? in / 4 : 4, hi = in * 4 < 1024 ? in * 4 : 1024;
	w->out = sy_draw_dim(c, lo, hi > 8 ? hi : 8);
	w->groups = 1;
	if (op->variant & 16) {
		w->groups = in;
		w->out = in * (sy_chance(c, 0.15) ? 2 : 1);
	} else if (sy_chance(c, 0.15)) {
		w->groups = sy_draw_divisor(c, in, in < 32 ? in : 32);
		w->out = (w->out + w->groups - 1) / w->groups * w->groups;
	}
}

static void conv_args(
	struct ww_comp *c, const struct ww_synth_op *op, const struct window *w, int64_t in, int bias, char *args)
{
	char k[60], s[60], p[60], d[60], e[60];
	int n = w->space, at;
	const char *from = sy_channel(c, in), *to = sy_channel(c, w->out);
	tuple(k, w->k, n);
	tuple(s, w->stride, n);
	tuple(p, w->pad, n);
	tuple(d, w->dilation, n);
	tuple(e, w->extra, n);
	int alike = k[0] != '(' && strcmp(k, "1");
	at = snprintf(args, MAX_ARGS, "%s, %s, %s%s", from, to,
		alike ? "" : "kernel_size=", alike ? sy_hyper(c, "kernel_size", w->k[0]) : k);
	at += strcmp(s, "1") ? snprintf(args + at, MAX_ARGS - (size_t)at, ", stride=%s", s) : 0;
	at += strcmp(p, "0") ? snprintf(args + at, MAX_ARGS - (size_t)at, ", padding=%s", p) : 0;
	at += strcmp(e, "0") ? snprintf(args + at, MAX_ARGS - (size_t)at, ", output_padding=%s", e) : 0;
	at += strcmp(d, "1") ? snprintf(args + at, MAX_ARGS - (size_t)at, ", dilation=%s", d) : 0;
	if (w->groups > 1 && w->groups == in)
		at += snprintf(args + at, MAX_ARGS - (size_t)at, ", groups=%s", from);
	else if (w->groups > 1)
		at += snprintf(args + at, MAX_ARGS - (size_t)at, ", groups=%s", sy_hyper(c, "groups", w->groups));
	snprintf(args + at, MAX_ARGS - (size_t)at, "%s", bias ? "" : ", bias=False");
}

RULE(conv)
{
	char args[MAX_ARGS];
	struct window w = { .space = op->variant & 7 };
	int transposed = op->variant & 8;
	if (!is_map(x, w.space))
		return 0;
	int64_t in = x->t.d[1];
	struct ww_synth_type out = x->t;
	draw_window(c, op, &w);
	draw_groups(c, op, in, &w);
	double taps = (double)(in / w.groups);
	for (int i = 0; i < w.space; i++) {
		out.d[i + 2] = conv_size(x->t.d[i + 2], &w, i, transposed);
		taps *= (double)w.k[i];
		if (out.d[i + 2] < 2 || (w.k[i] > x->t.d[i + 2] && !transposed))
			return 0;
	}
	out.d[1] = w.out;
	int bias = sy_chance(c, 0.7);
	double mag = x->mag + 1;
	/* TF32 is PyTorch's default for convolutions, not for products of matrices. */
	double speed = c->dtype == WW_SYNTH_F32 && w.groups == 1 ? 0.5 : w.groups > 1 ? 4 : 2;
	c->flops = 2 * taps * (double)(transposed ? ww_synth_numel(&x->t) / in * w.out : ww_synth_numel(&out)) * speed;
	conv_args(c, op, &w, in, bias, args);
	sy_apply(c, op, x, args, &out);
	x->mag = mag;
	x->facts = bias ? BIASED : 0;
	x->channels_first = 1;
	return 1;
}

/* A blur or an edge filter that is no parameter: F.conv2d of every channel with a buffer. */
RULE(filter)
{
	static const char *const kernels[] = { "[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]|/ 16.0",
		"[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]|* 1.0",
		"[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]|* 1.0" };
	if (!is_map(x, 2) || x->t.d[2] < 4 || x->t.d[3] < 4 || c->dtype != WW_SYNTH_F32)
		return 0;
	const char *k = PICK(c, kernels), *bar = strchr(k, '|'), *name = sy_attribute(c, "kernel");
	struct ww_synth_type out = x->t;
	sy_init_line(c, "self.register_buffer('%s', (torch.tensor([%.*s]) %s).repeat(%s, 1, 1, 1))", name, (int)(bar - k),
		k, bar + 1, sy_channel(c, x->t.d[1]));
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 18.0 * (double)ww_synth_numel(&out) * 4,
		"F.conv2d(%s, self.%s, padding=1, groups=%s.shape[1])", x->name, name, x->name);
	x->by = op;
	x->mag += 3;
	sy_count_op(c, op->name);
	return 1;
}

/* ---- Pooling */

static int64_t pool_size(int64_t n, int64_t k, int64_t s, int64_t p, int ceil_mode)
{
	int64_t out = (n + 2 * p - k + (ceil_mode ? s - 1 : 0)) / s + 1;
	return ceil_mode && (out - 1) * s >= n + p ? out - 1 : out;
}

static int pool_adaptive(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, int space)
{
	char args[60];
	int64_t size[3];
	struct ww_synth_type out = x->t;
	static const int64_t common[] = { 1, 7, 4, 5, 2, 14 };
	int64_t first = PICK(c, common);
	for (int i = 0; i < space; i++) {
		size[i] = sy_chance(c, 0.15) ? first + 1 : first;
		if (size[i] >= x->t.d[i + 2])
			return 0;
		out.d[i + 2] = size[i];
	}
	if (sy_product(&x->t, ~3u) / sy_product(&out, ~3u) > 4096 || sy_reduces_flat(x, ((1u << space) - 1) << 2))
		return 0;
	tuple(args, size, space);
	unsigned keep = x->facts & (NONNEG | UNIT);
	double mag = x->mag;
	sy_apply(c, op, x, args, &out);
	x->facts = keep;
	x->mag = mag;
	return 1;
}

RULE(pool)
{
	static const int64_t kernels[] = { 2, 2, 3, 3, 4, 5 };
	char args[MAX_ARGS], text[60];
	int space = op->variant & 7, average = op->variant & 16, power = op->variant & 32;
	if (!is_map(x, space))
		return 0;
	if (power && (!sy_fits(c, 2 * x->mag + 4) || c->dtype == WW_SYNTH_F16))
		return 0;
	if (op->variant & 8)
		return pool_adaptive(c, op, x, space);
	int64_t k[3], s = 0;
	struct ww_synth_type out = x->t;
	k[0] = k[1] = k[2] = PICK(c, kernels);
	if (space > 1 && sy_chance(c, 0.1))
		k[0] = k[0] == 2 ? 1 : 2;
	s = sy_chance(c, 0.6) || k[0] != k[1] ? 0 : sy_chance(c, 0.5) ? 1 : 2;
	int ceil_mode = !power && sy_chance(c, 0.1);
	int64_t p = !power && s && sy_chance(c, 0.5) ? k[1] / 2 : 0;
	for (int i = 0; i < space; i++) {
		out.d[i + 2] = x->t.d[i + 2] + 2 * p < k[i] ? 0 : pool_size(x->t.d[i + 2], k[i], s ? s : k[i], p, ceil_mode);
		if (out.d[i + 2] < 2)
			return 0;
	}
	tuple(text, k, space);
	int at = snprintf(args, sizeof(args), k[0] == k[1] ? "%s" : "%s", text);
	at += s ? snprintf(args + at, sizeof(args) - (size_t)at, ", stride=%lld", (long long)s) : 0;
	at += p ? snprintf(args + at, sizeof(args) - (size_t)at, ", padding=%lld", (long long)p) : 0;
	at += ceil_mode ? snprintf(args + at, sizeof(args) - (size_t)at, ", ceil_mode=True") : 0;
	if (average && p && sy_chance(c, 0.4))
		snprintf(args + at, sizeof(args) - (size_t)at, ", count_include_pad=False");
	unsigned keep = x->facts & (NONNEG | UNIT | BIASED);
	double mag = x->mag + (power ? 2 : 0);
	sy_apply(c, op, x, args, &out);
	x->facts = power ? NONNEG : keep;
	x->mag = mag;
	return 1;
}

RULE(global_pool)
{
	char dims[30];
	int r = x->t.rank, space = r - 2;
	unsigned axes = ((1u << r) - 1) & ~3u;
	if (!sy_is_float(x) || !x->channels_first || space < 1 || x->facts & ORDERED || sy_reduces_flat(x, axes) ||
		sy_product(&x->t, axes) < 4 || sy_product(&x->t, axes) > 4096)
		return 0;
	struct ww_synth_type out = { x->t.dtype, 2, { x->t.d[0], x->t.d[1] } };
	unsigned keep = x->facts & (NONNEG | UNIT);
	double mag = x->mag;
	snprintf(dims, sizeof(dims), "%s", space == 1 ? "-1" : space == 2 ? "(2, 3)" : "(2, 3, 4)");
	if (op->variant < 2) {
		sy_apply(c, op, x, dims, &out);
	} else {
		out.d[1] *= 2;
		sy_assign(c, x, &out, (double)ww_synth_bytes(&x->t), 0, "torch.cat([%s.mean(dim=%s), %s.amax(dim=%s)], dim=1)",
			x->name, dims, x->name, dims);
		sy_count_op(c, op->name);
	}
	x->by = op;
	x->facts = keep;
	x->mag = mag;
	x->channels_first = 0;
	return 1;
}

/* ---- Padding */

RULE(pad)
{
	char args[MAX_ARGS];
	int space = op->variant, any = !space, at = 0;
	if (!sy_is_float(x) || x->t.rank < 2 || (!any && !is_map(x, space)) || (any && !x->channels_first && x->t.rank < 2))
		return 0;
	if (any)
		space = x->t.rank > 2 && sy_chance(c, 0.6) ? 2 : 1;
	struct ww_synth_type out = x->t;
	int64_t most = strstr(op->name, "constant") || strstr(op->name, "zero") ? 7 : 3;
	for (int i = 0; i < space; i++) {
		int axis = x->t.rank - 1 - i;
		int64_t lo = sy_between(c, i ? 0 : 1, most), hi = sy_chance(c, 0.5) ? lo : sy_between(c, 1, most);
		if (x->t.d[axis] <= 2 * most || x->t.d[axis] < 8)
			return 0;
		out.d[axis] += lo + hi;
		at += snprintf(
			args + at, sizeof(args) - (size_t)at, "%s%lld, %lld", i ? ", " : "", (long long)lo, (long long)hi);
	}
	unsigned keep = x->facts & (NONNEG | UNIT | RAW);
	snprintf(args + at, sizeof(args) - (size_t)at, "|%g", keep & NONNEG || sy_chance(c, 0.6) ? 0.0 : -0.5);
	if (!strstr(op->f ? op->f : op->m, "@@"))
		*strchr(args, '|') = 0;
	sy_apply(c, op, x, args, &out);
	x->facts = keep;
	return 1;
}

/* ---- Resampling */

static int resample_size(struct ww_comp *c, const struct ww_synth_op *op, const struct val *x, int space,
	struct ww_synth_type *out, char args[MAX_ARGS])
{
	static const int64_t ups[] = { 2, 2, 2, 3, 4 };
	char text[60];
	int64_t size[3], up = PICK(c, ups);
	if (op->variant != RES_AREA && sy_chance(c, 0.6)) {
		for (int i = 0; i < space; i++)
			out->d[i + 2] = x->t.d[i + 2] * up;
		snprintf(args, MAX_ARGS, "scale_factor=%lld", (long long)up);
		return 1;
	}
	for (int i = 0; i < space; i++) {
		int64_t n = x->t.d[i + 2];
		size[i] = op->variant == RES_AREA ? (n + 1) / 2 + 1 : sy_draw_dim(c, n > 8 ? n / 2 : 4, n * 2 > 8 ? n * 2 : 8);
		if (size[i] == n)
			size[i]++;
		out->d[i + 2] = size[i];
	}
	tuple(text, size, space);
	snprintf(args, MAX_ARGS, "size=%s", text);
	return 1;
}

RULE(resample)
{
	char args[MAX_ARGS];
	int space = x->t.rank - 2;
	if (!sy_is_float(x) || !x->channels_first || space < 1 || space > 3)
		return 0;
	if ((op->variant == RES_1D && space != 1) || (op->variant == RES_2D && space != 2) ||
		(op->variant == RES_3D && space != 3))
		return 0;
	for (int i = 0; i < space; i++)
		if (x->t.d[i + 2] < 4)
			return 0;
	struct ww_synth_type out = x->t;
	resample_size(c, op, x, space, &out, args);
	unsigned keep = strstr(op->name, "cubic") ? 0 : x->facts & (NONNEG | UNIT);
	double mag = x->mag + 1;
	sy_apply(c, op, x, args, &out);
	x->facts = keep;
	x->mag = mag;
	return 1;
}

RULE(pixel_shuffle)
{
	char args[20];
	static const int64_t factors[] = { 2, 2, 3, 4 };
	int64_t f = PICK(c, factors);
	struct ww_synth_type out = x->t;
	if (!is_map(x, 2))
		return 0;
	if (op->variant == 1) {
		if (x->t.d[1] % (f * f))
			return 0;
		out.d[1] /= f * f;
		out.d[2] *= f;
		out.d[3] *= f;
	} else {
		if (x->t.d[2] % f || x->t.d[3] % f || x->t.d[2] <= f || x->t.d[3] <= f)
			return 0;
		out.d[1] *= f * f;
		out.d[2] /= f;
		out.d[3] /= f;
	}
	unsigned keep = x->facts & (NONNEG | UNIT);
	snprintf(args, sizeof(args), "%lld", (long long)f);
	if (op->variant < 2) {
		sy_apply(c, op, x, args, &out);
	} else {
		sy_assign(c, x, &out, 0, 0,
			"%s.unflatten(-1, (-1, %s)).unflatten(2, (-1, %s)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)", x->name, args,
			args);
		sy_count_op(c, op->name);
	}
	x->by = op;
	x->facts = keep;
	return 1;
}

RULE(channel_shuffle)
{
	char args[20];
	int64_t g;
	if (!sy_is_float(x) || !x->channels_first || x->t.rank < 3 || (g = sy_draw_divisor(c, x->t.d[1], 8)) < 2 ||
		g == x->t.d[1])
		return 0;
	if (c->whole && x->t.rank != 4)
		return 0;
	struct ww_synth_type out = x->t;
	unsigned keep = x->facts & (NONNEG | UNIT);
	snprintf(args, sizeof(args), "%lld", (long long)g);
	sy_apply(c, op, x, args, &out);
	x->facts = keep | ORDERED;
	return 1;
}

RULE(grid_sample)
{
	if (!is_map(x, 2) || c->dtype != WW_SYNTH_F32)
		return 0;
	struct ww_synth_type grid = { WW_SYNTH_F32, 4, { x->t.d[0], sy_draw_dim(c, 8, 128), sy_draw_dim(c, 8, 128), 2 } },
						 out = x->t;
	struct input *in = sy_add_input(c, "grid", &grid, IN_UNIFORM);
	if (!in)
		return 0;
	out.d[2] = grid.d[1];
	out.d[3] = grid.d[2];
	static const char *const modes[] = { "bilinear", "bilinear", "bicubic" },
							 *const pads[] = { "zeros", "border", "reflection" };
	const char *mode = PICK(c, modes), *edge = PICK(c, pads);
	sy_assign(c, x, &out, (double)(ww_synth_bytes(&out) + ww_synth_bytes(&grid)), 0,
		"F.grid_sample(%s, torch.tanh(%s), mode='%s', padding_mode='%s', align_corners=False)", x->name, in->name, mode,
		edge);
	x->by = op;
	sy_count_op(c, op->name);
	return 1;
}

RULE(unfold)
{
	char args[MAX_ARGS];
	int64_t k = sy_chance(c, 0.5) ? 3 : 4, s = sy_chance(c, 0.5) ? k : 2;
	if (!is_map(x, 2) || x->t.d[2] < 2 * k || x->t.d[3] < 2 * k)
		return 0;
	int64_t h = (x->t.d[2] - k) / s + 1, w = (x->t.d[3] - k) / s + 1;
	struct ww_synth_type out = { x->t.dtype, 3, { x->t.d[0], x->t.d[1] * k * k, h * w } };
	unsigned keep = x->facts & (NONNEG | UNIT);
	double mag = x->mag + 2;
	snprintf(args, sizeof(args), "%lld, stride=%lld", (long long)k, (long long)s);
	if (!op->variant) {
		sy_apply(c, op, x, args, &out);
	} else {
		struct ww_synth_type full = sy_with_dim(sy_with_dim(x->t, 2, (h - 1) * s + k), 3, (w - 1) * s + k);
		if (s >= k)
			return 0;
		sy_assign(c, x, &full, 2.0 * (double)ww_synth_bytes(&out), 0, "F.fold(F.unfold(%s, %s), (%lld, %lld), %s)",
			x->name, args, (long long)full.d[2], (long long)full.d[3], args);
		sy_count_op(c, op->name);
	}
	x->by = op;
	x->facts = keep;
	x->mag = mag;
	return 1;
}

/* ---- Norms */

/* Whether a norm would cancel what was just computed, or follow another norm. */
static int norm_undoes(const struct val *x, unsigned facts)
{
	return x->facts & (facts | SCALED | OFFSET) || x->flat || (x->by && x->by->category == WW_SYNTH_NORM) ||
		(x->by && x->by->category == WW_SYNTH_SOFTMAX);
}

static void normed(struct val *x, unsigned axes)
{
	x->mag = 5;
	x->facts = 0;
	x->flat = axes;
}

RULE(batch_norm)
{
	char args[60];
	int space = op->variant;
	int row = space == 1 && x->t.rank == 2 && !x->channels_first && sy_is_float(x);
	if ((!row && !is_map(x, space)) || norm_undoes(x, BIASED) || sy_product(&x->t, ~2u) < 8)
		return 0;
	struct ww_synth_type out = x->t;
	snprintf(args, sizeof(args), "%s", row ? sy_feature(c, x->t.d[1]) : sy_channel(c, x->t.d[1]));
	sy_apply(c, op, x, args, &out);
	normed(x, ((1u << x->t.rank) - 1) & ~2u);
	return 1;
}

RULE(instance_norm)
{
	char args[60];
	if (!is_map(x, op->variant) || norm_undoes(x, BIASED) || sy_product(&x->t, ~3u) < 8)
		return 0;
	struct ww_synth_type out = x->t;
	snprintf(args, sizeof(args), "%s%s", sy_channel(c, x->t.d[1]), sy_chance(c, 0.5) ? ", affine=True" : "");
	sy_apply(c, op, x, args, &out);
	normed(x, ((1u << x->t.rank) - 1) & ~3u);
	return 1;
}

RULE(group_norm)
{
	char args[80];
	int64_t g;
	if (!sy_is_float(x) || x->t.rank < 2 || (x->t.rank > 2 && !x->channels_first) || norm_undoes(x, 0))
		return 0;
	g = sy_chance(c, 0.1) ? 1 : sy_draw_divisor(c, x->t.d[1], 32);
	if (x->t.d[1] / g * sy_product(&x->t, ~3u) < 8 || (x->facts & BIASED && g == x->t.d[1]))
		return 0;
	struct ww_synth_type out = x->t;
	snprintf(args, sizeof(args), "%s, %s", sy_hyper(c, "num_groups", g),
		x->channels_first ? sy_channel(c, x->t.d[1]) : sy_feature(c, x->t.d[1]));
	sy_apply(c, op, x, args, &out);
	normed(x, ((1u << x->t.rank) - 1) & ~1u);
	return 1;
}

RULE(layer_norm)
{
	char args[MAX_ARGS];
	int r = x->t.rank, n = op->variant == 2 ? (int)sy_between(c, 2, 3) : 1, rms = strstr(op->name, "rms") != NULL;
	if (!sy_is_float(x) || r < 2 || r <= n || (op->variant < 2 && x->channels_first && r > 2 && !c->whole) ||
		norm_undoes(x, 0))
		return 0;
	unsigned axes = ((1u << n) - 1) << (r - n);
	if (sy_product(&x->t, axes) < 8 || sy_product(&x->t, axes) > 1 << 21)
		return 0;
	struct ww_synth_type out = x->t;
	if (op->variant == 1)
		snprintf(args, sizeof(args), "%s.shape[-1:]", x->name);
	else if (n == 1)
		snprintf(args, sizeof(args), "%s", sy_feature(c, x->t.d[r - 1]));
	else {
		char shape[100];
		sy_shape_text(shape, sizeof(shape), x->t.d + r - n, n);
		snprintf(args, sizeof(args), "(%s)", shape);
	}
	if (rms && !sy_fits(c, 2 * x->mag))
		return 0;
	sy_apply(c, op, x, args, &out);
	normed(x, rms ? 0 : axes);
	return 1;
}

RULE(lrn)
{
	char args[80];
	struct ww_synth_type out = x->t;
	if (!sy_is_float(x) || !x->channels_first || x->t.rank < 3 || x->t.d[1] < 5 || c->dtype == WW_SYNTH_F16 ||
		norm_undoes(x, 0))
		return 0;
	snprintf(args, sizeof(args), "size=%lld, alpha=0.01", (long long)(sy_chance(c, 0.5) ? 5 : 3));
	double mag = x->mag;
	sy_apply(c, op, x, args, &out);
	x->mag = mag;
	return 1;
}

RULE(normalize)
{
	char args[80];
	int axis = sy_chance(c, 0.7) ? sy_feature_axis(x) : x->t.rank - 1;
	struct ww_synth_type out = x->t;
	if (!sy_is_float(x) || x->t.rank < 2 || x->t.d[axis] < 4 || x->t.d[axis] > 1024 || norm_undoes(x, 0) ||
		!sy_fits(c, 2 * x->mag))
		return 0;
	snprintf(args, sizeof(args), "%sdim=%d", sy_chance(c, 0.15) ? "p=1.0, " : "", axis == x->t.rank - 1 ? -1 : axis);
	sy_apply(c, op, x, args, &out);
	x->facts = UNIT;
	x->mag = 1;
	return 1;
}

/* ConvNeXt V2's. */
RULE(grn)
{
	if (!is_map(x, 2) || norm_undoes(x, 0) || !sy_fits(c, 2 * x->mag + 6))
		return 0;
	char gamma[40], init[80];
	struct ww_synth_type out = x->t;
	double mag = x->mag;
	snprintf(init, sizeof(init), "torch.randn(1, %s, 1, 1)", sy_channel(c, x->t.d[1]));
	snprintf(gamma, sizeof(gamma), "%s", sy_parameter(c, "gamma", init));
	const char *norm = sy_attribute(c, "norm");
	sy_line(c, "%s = torch.norm(%s, p=2, dim=(2, 3), keepdim=True)", norm, x->name);
	sy_line(c, "%s = %s / (%s.mean(dim=1, keepdim=True) + 1e-6)", norm, norm, norm);
	sy_assign(c, x, &out, (double)ww_synth_bytes(&x->t), 0, "%s * (self.%s * %s) + %s", x->name, gamma, norm, x->name);
	x->mag = mag + 3;
	x->by = op;
	sy_count_op(c, op->name);
	return 1;
}
