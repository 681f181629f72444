/* rule_layout.c - operators that move numbers: views, copies, joins, indices. */
#include "synth/grammar.h"

#include <stdio.h>
#include <string.h>

/* After numbers have moved: keep only `facts`. */
static void moved(struct val *x, unsigned facts, double mag)
{
	x->facts = facts & (NONNEG | UNIT | RAW);
	x->mag = mag;
	x->flat = 0;
}

static int layout_views(struct ww_comp *c, enum layout v, struct val *x, struct ww_synth_type *out, char *args)
{
	int r = x->t.rank, a = (int)sy_below(c, (uint64_t)r), b = (int)sy_below(c, (uint64_t)r);
	switch (v) {
	case LAY_TRANSPOSE:
		if (r < 2 || a == b || (x->by && x->by->variant == LAY_TRANSPOSE && x->by->category == WW_SYNTH_LAYOUT))
			return 0;
		out->d[a] = x->t.d[b];
		out->d[b] = x->t.d[a];
		return snprintf(args, MAX_ARGS, "%d, %d", a, b);
	case LAY_PERMUTE: {
		int p[WW_SYNTH_MAX_RANK], at = 0, same = 1;
		if (r < 3)
			return 0;
		for (int i = 0; i < r; i++)
			p[i] = i;
		for (int i = r - 1; i > 0; i--) {
			int k = (int)sy_below(c, (uint64_t)i + 1), t = p[i];
			p[i] = p[k];
			p[k] = t;
		}
		for (int i = 0; i < r; i++) {
			out->d[i] = x->t.d[p[i]];
			same &= p[i] == i;
			at += snprintf(args + at, MAX_ARGS - (size_t)at, "%s%d", i ? ", " : "", p[i]);
		}
		return !same;
	}
	case LAY_FLATTEN:
		if (r < 3)
			return 0;
		a = (int)sy_between(c, 1, r - 2);
		out->d[a] = sy_product(&x->t, ~((1u << a) - 1));
		out->rank = a + 1;
		return snprintf(args, MAX_ARGS, "start_dim=%d", a);
	case LAY_UNFLATTEN: {
		int64_t f = sy_draw_divisor(c, x->t.d[r - 1], 64);
		if (f < 2 || f == x->t.d[r - 1] || r >= WW_SYNTH_MAX_RANK)
			return 0;
		out->d[r - 1] = f;
		out->d[r] = x->t.d[r - 1] / f;
		out->rank = r + 1;
		return snprintf(args, MAX_ARGS, "-1, (%lld, %lld)", (long long)f, (long long)out->d[r]);
	}
	case LAY_MOVE:
		if (r < 3)
			return 0;
		for (int i = 1; i < r; i++)
			out->d[i - 1] = x->t.d[i];
		out->d[r - 1] = x->t.d[0];
		return snprintf(args, MAX_ARGS, "0, -1");
	case LAY_WINDOWS: {
		int64_t k = sy_between(c, 2, 8) * 2, s = sy_chance(c, 0.5) ? k / 2 : k;
		if (x->t.d[r - 1] < 4 * k || r >= WW_SYNTH_MAX_RANK)
			return 0;
		out->d[r - 1] = (x->t.d[r - 1] - k) / s + 1;
		out->d[r] = k;
		out->rank = r + 1;
		return snprintf(args, MAX_ARGS, "%lld, %lld", (long long)k, (long long)s);
	}
	default: return 0;
	}
}

static int layout_copies(struct ww_comp *c, enum layout v, struct val *x, struct ww_synth_type *out, char *args)
{
	int r = x->t.rank, a = (int)sy_below(c, (uint64_t)r);
	int64_t n = x->t.d[a];
	switch (v) {
	case LAY_FLIP: return n < 4 ? 0 : snprintf(args, MAX_ARGS, "%d", a);
	case LAY_ROLL:
		return n < 4 ? 0 : snprintf(args, MAX_ARGS, "shifts=%lld, dims=%d", (long long)sy_between(c, 1, n - 1), a);
	case LAY_REPEAT: {
		int at = 0, k = (int)sy_between(c, 2, 3);
		for (int i = 0; i < r; i++)
			at += snprintf(args + at, MAX_ARGS - (size_t)at, "%s%d", i ? ", " : "", i == a ? k : 1);
		out->d[a] *= k;
		return 1;
	}
	case LAY_INTERLEAVE: out->d[a] *= 2; return snprintf(args, MAX_ARGS, "2, dim=%d", a);
	case LAY_TRI:
		if (r < 2 || x->t.d[r - 1] < 4 || x->t.d[r - 2] < 4)
			return 0;
		return snprintf(args, MAX_ARGS, "diagonal=%lld", (long long)sy_between(c, -1, 1));
	case LAY_ROT:
		if (r < 2)
			return 0;
		out->d[r - 1] = x->t.d[r - 2];
		out->d[r - 2] = x->t.d[r - 1];
		return snprintf(args, MAX_ARGS, "1, dims=(%d, %d)", r - 2, r - 1);
	case LAY_DIAG_EMBED:
		if (x->t.d[r - 1] > 512 || r >= WW_SYNTH_MAX_RANK)
			return 0;
		out->d[r] = x->t.d[r - 1];
		out->rank = r + 1;
		return 1;
	default: return 0;
	}
}

static int layout_parts(struct ww_comp *c, enum layout v, struct val *x, struct ww_synth_type *out, char *args)
{
	int r = x->t.rank, a = r > 1 ? (int)sy_between(c, 1, r - 1) : 0;
	int64_t n = x->t.d[a], lo = n / 4, len = n / 2;
	char lead[20] = "";
	for (int i = 0; i < a; i++)
		strcat(lead, ":, ");
	if (n < 8 && v != LAY_DIAGONAL)
		return 0;
	switch (v) {
	case LAY_SLICE:
		len = sy_between(c, n / 4 + 1, n - 1);
		lo = sy_chance(c, 0.5) ? 0 : sy_between(c, 0, n - len);
		out->d[a] = len;
		return lo + len == n ? snprintf(args, MAX_ARGS, "%s%lld:", lead, (long long)lo)
							 : snprintf(args, MAX_ARGS, "%s%lld:%lld", lead, (long long)lo, (long long)(lo + len));
	case LAY_STEP: out->d[a] = (n + 1) / 2; return snprintf(args, MAX_ARGS, "%s::2", lead);
	case LAY_NARROW:
		out->d[a] = len;
		return snprintf(args, MAX_ARGS, "%d, %lld, %lld", a, (long long)lo, (long long)len);
	case LAY_SELECT:
		if (r < 3)
			return 0;
		*out = sy_without_dim(x->t, a);
		return snprintf(args, MAX_ARGS, "%d, %lld", a, (long long)sy_between(c, 0, n - 1));
	case LAY_DIAGONAL: {
		if (r < 2)
			return 0;
		int64_t m = x->t.d[r - 2] < x->t.d[r - 1] ? x->t.d[r - 2] : x->t.d[r - 1];
		*out = sy_without_dim(x->t, r - 1);
		out->d[r - 2] = m;
		args[0] = 0;
		return m >= 8;
	}
	default: return 0;
	}
}

/* Layouts of two statements, and those on halves of an axis. */
static int layout_halves(struct ww_comp *c, enum layout v, struct val *x)
{
	char a[16], b[16];
	int axis = sy_feature_axis(x), dim = axis == x->t.rank - 1 ? -1 : axis;
	int64_t n = x->t.d[axis];
	struct ww_synth_type out = x->t;
	if (n % 2 || n < 4 || (v == LAY_SPLIT_SUM && !sy_fits(c, 2 * x->mag)))
		return 0;
	sy_variable(c, a, "first");
	sy_variable(c, b, "second");
	sy_line(c, "%s, %s = %s.chunk(2, dim=%d)", a, b, x->name, dim);
	if (v == LAY_CHUNK_SWAP)
		sy_assign(c, x, &out, 0, 0, "torch.cat([%s, %s], dim=%d)", b, a, dim);
	else if (v == LAY_ROTATE_HALF)
		sy_assign(c, x, &out, 0, 0, "torch.cat([-%s, %s], dim=%d)", b, a, dim);
	else if (v == LAY_INTERLEAVE_HALVES) {
		int at = axis + 1;
		sy_assign(c, x, &out, 0, 0, "torch.stack([%s, %s], dim=%d).flatten(%d, %d)", a, b, at, axis, at);
	} else {
		out = sy_with_dim(out, axis, n / 2);
		sy_assign(c, x, &out, 0, 0, v == LAY_SPLIT_SUM ? "%s * %s + %s" : "torch.maximum(%s, %s)", a, b, a);
	}
	return 1;
}

static int layout_regroup(struct ww_comp *c, enum layout v, struct val *x)
{
	int r = x->t.rank;
	struct ww_synth_type out = x->t;
	if (v == LAY_HEADS) {
		int64_t h = sy_draw_divisor(c, x->t.d[r - 1], 32);
		if (r != 3 || h < 2 || x->channels_first)
			return 0;
		out = (struct ww_synth_type){ x->t.dtype, 4, { x->t.d[0], h, x->t.d[1], x->t.d[2] / h } };
		sy_assign(
			c, x, &out, 0, 0, "%s.unflatten(-1, (%s, -1)).transpose(1, 2).contiguous()", x->name, "self.num_heads");
		sy_init_line(c, "self.num_heads = %s", sy_hyper(c, "num_heads", h));
		return 1;
	}
	static const int64_t sizes[] = { 7, 8, 4, 14, 2 };
	int64_t w = PICK(c, sizes), hh, ww;
	if (r != 4 || !x->channels_first || x->t.d[2] % w || x->t.d[3] % w || x->t.d[2] == w)
		return 0;
	hh = x->t.d[2] / w;
	ww = x->t.d[3] / w;
	out = (struct ww_synth_type){ x->t.dtype, 3, { x->t.d[0] * hh * ww, w * w, x->t.d[1] } };
	sy_assign(c, x, &out, 0, 0,
		"%s.unflatten(3, (-1, %d)).unflatten(2, (-1, %d)).permute(0, 2, 4, 3, 5, 1).flatten(0, 2).flatten(1, 2)",
		x->name, (int)w, (int)w);
	x->channels_first = 0;
	return 1;
}

RULE(layout)
{
	char args[MAX_ARGS] = "";
	enum layout v = (enum layout)op->variant;
	struct ww_synth_type out = x->t;
	unsigned keep = x->facts;
	double mag = x->mag;
	int ok;
	if (!sy_is_float(x) || x->t.rank < 1 || x->flat)
		return 0;
	if (v >= LAY_CHUNK_SWAP) {
		int nonneg = v != LAY_ROTATE_HALF;
		ok = v >= LAY_WINDOW_PARTITION ? layout_regroup(c, v, x) : layout_halves(c, v, x);
		if (!ok)
			return 0;
		sy_count_op(c, op->name);
		moved(x, nonneg ? keep : keep & RAW, v == LAY_SPLIT_SUM ? 2 * mag : mag);
		x->by = op;
		return 1;
	}
	ok = layout_views(c, v, x, &out, args);
	if (!ok) {
		out = x->t;
		ok = layout_copies(c, v, x, &out, args);
	}
	if (!ok) {
		out = x->t;
		ok = layout_parts(c, v, x, &out, args);
	}
	if (!ok)
		return 0;
	int rank = x->t.rank;
	sy_apply(c, op, x, args, &out);
	moved(x, keep, mag);
	x->facts |= v == LAY_TRANSPOSE ? STRIDED : v == LAY_FLIP || v == LAY_ROLL || v == LAY_ROT ? ORDERED : 0;
	if (out.rank != rank || v == LAY_TRANSPOSE || v == LAY_PERMUTE || v == LAY_MOVE || v == LAY_ROT)
		x->channels_first = x->channels_first && (out.rank > 3 || out.rank == rank);
	return 1;
}

/* ---- Joining */

RULE(join)
{
	char args[MAX_ARGS], init[120];
	int axis = sy_feature_axis(x), r = x->t.rank, dim = axis == r - 1 ? -1 : axis;
	struct ww_synth_type t = x->t, out = x->t;
	unsigned keep = x->facts;
	double mag = x->mag;
	if (!sy_is_float(x) || r < 2)
		return 0;
	switch ((enum joining)op->variant) {
	case JOIN_CAT:
	case JOIN_STACK: {
		int stack = op->variant == JOIN_STACK;
		if (stack && r >= WW_SYNTH_MAX_RANK)
			return 0;
		if (!stack)
			t = sy_with_dim(t, axis, sy_draw_dim(c, t.d[axis] / 2 > 2 ? t.d[axis] / 2 : 2, t.d[axis] + 2));
		struct input *y = sy_add_input(c, "skip", &t, IN_NORMAL);
		if (!y)
			return 0;
		sy_work(c, (double)ww_synth_bytes(&t) * 2, 0);
		snprintf(args, sizeof(args), "[%s, %s], dim=%d", x->name, y->name, stack ? 1 : dim);
		if (stack) {
			for (int i = r; i > 1; i--)
				out.d[i] = out.d[i - 1];
			out.d[1] = 2;
			out.rank++;
		} else {
			out.d[axis] += t.d[axis];
		}
		keep = 0;
		mag = mag > 8.3 ? mag : 8.3;
		break;
	}
	case JOIN_CRELU:
		if (keep & NONNEG)
			return 0;
		out.d[axis] *= 2;
		keep = 0;
		snprintf(args, sizeof(args), "[%s, -%s], dim=%d", x->name, x->name, dim);
		break;
	case JOIN_TOKEN: {
		if (r != 3 || x->channels_first)
			return 0;
		snprintf(init, sizeof(init), "torch.randn(1, 1, %s)", sy_feature(c, x->t.d[2]));
		const char *p = sy_parameter(c, "cls_token", init);
		out.d[1]++;
		keep = 0;
		snprintf(args, sizeof(args), "[self.%s.expand(%s.shape[0], -1, -1), %s], dim=1", p, x->name, x->name);
		break;
	}
	case JOIN_POSITIONS: {
		if (r != 3 || x->channels_first)
			return 0;
		snprintf(init, sizeof(init), "torch.randn(1, %s, %s) * 0.02", sy_hyper(c, "seq_len", x->t.d[1]),
			sy_feature(c, x->t.d[2]));
		const char *p = sy_parameter(c, "pos_embed", init);
		sy_assign(c, x, &out, (double)ww_synth_bytes(&out) / (double)x->t.d[0], 0, "%s + self.%s", x->name, p);
		x->mag = mag + 1;
		x->by = op;
		sy_count_op(c, op->name);
		return 1;
	}
	}
	sy_apply(c, op, x, args, &out);
	moved(x, keep & ~RAW, mag);
	return 1;
}

/* ---- Indices */

/* One index an element of `t`; for scatter the indices go into as many rows. */
static const struct input *index_input(struct ww_comp *c, const struct ww_synth_type *t, int64_t high)
{
	struct ww_synth_type it = *t;
	it.dtype = WW_SYNTH_I64;
	struct input *in = sy_add_input(c, "index", &it, IN_INDEX);
	if (in)
		in->high = high;
	return in;
}

/* A stride that visits all of n in another order. */
static int64_t coprime(int64_t n)
{
	for (int64_t k = n / 3 + 2;; k++) {
		int64_t a = n, b = k;
		while (b) {
			int64_t t = a % b;
			a = b;
			b = t;
		}
		if (a == 1)
			return k;
	}
}

RULE(index)
{
	enum indexing v = (enum indexing)op->variant;
	int r = x->t.rank, axis = r > 1 && sy_chance(c, 0.6) ? 1 : 0,
		whole = v == IDX_GATHER || v == IDX_TAKE || v == IDX_SCATTER_ADD || v == IDX_SCATTER_MAX;
	struct ww_synth_type out = x->t, it = { WW_SYNTH_I64, 1, { 0 } };
	int64_t n = r ? x->t.d[axis] : 0, rows = n > 8 ? sy_draw_dim(c, n / 2, n * 2) : n;
	unsigned keep = x->facts;
	double mag = x->mag;
	if (!sy_is_float(x) || r < 2 || n < 8 || x->flat)
		return 0;
	if (v == IDX_BUFFER) {
		const char *p = sy_attribute(c, "order");
		sy_init_line(c, "self.register_buffer('%s', torch.arange(%lld) * %lld %% %lld)", p, (long long)n,
			(long long)coprime(n), (long long)n);
		sy_assign(c, x, &out, 0, 0, "%s.index_select(%d, self.%s)", x->name, axis, p);
	} else if (v == IDX_MASK) {
		struct ww_synth_type m = sy_with_dim(x->t, 0, 1);
		m.dtype = WW_SYNTH_BOOL;
		struct input *in = sy_add_input(c, "mask", &m, IN_BOOL);
		if (!in)
			return 0;
		sy_assign(
			c, x, &out, 0, 0, "%s.masked_fill(~%s, %s)", x->name, in->name, c->dtype == WW_SYNTH_F16 ? "-1e4" : "-1e9");
		keep = 0;
		mag = c->dtype == WW_SYNTH_F16 ? 14 : 30;
	} else {
		it.d[0] = v == IDX_INDEX_ADD ? n : rows;
		if (whole)
			it = v == IDX_GATHER || v == IDX_TAKE ? sy_with_dim(x->t, axis, rows) : x->t;
		int64_t groups = n / 2;
		const struct input *in = index_input(
			c, &it, v == IDX_INDEX_ADD || v == IDX_SCATTER_ADD || v == IDX_SCATTER_MAX ? groups : n);
		if (!in)
			return 0;
		double more = (double)ww_synth_bytes(&in->t);
		int adds = v == IDX_INDEX_ADD || v == IDX_SCATTER_ADD;
		out = sy_with_dim(x->t, axis, adds || v == IDX_SCATTER_MAX ? groups : rows);
		if (v == IDX_SELECT)
			sy_assign(c, x, &out, more, 0, "%s.index_select(%d, %s)", x->name, axis, in->name);
		else if (v == IDX_ADVANCED)
			sy_assign(c, x, &out, more, 0, axis ? "%s[:, %s]" : "%s[%s]", x->name, in->name);
		else if (v == IDX_GATHER)
			sy_assign(c, x, &out, more, 0, "torch.gather(%s, %d, %s)", x->name, axis, in->name);
		else if (v == IDX_TAKE)
			sy_assign(c, x, &out, more, 0, "torch.take_along_dim(%s, %s, dim=%d)", x->name, in->name, axis);
		else {
			char shape[120];
			sy_shape_text(shape, sizeof(shape), out.d, out.rank);
			if (c->dtype != WW_SYNTH_F32 && v != IDX_SCATTER_MAX)
				return c->failed = 1, 0; /* sums in an order of their own, rounded at each step */
			if (v == IDX_SCATTER_MAX)
				sy_assign(c, x, &out, 3 * more, 0, "%s.new_zeros(%s).scatter_reduce(%d, %s, %s, reduce='amax')",
					x->name, shape, axis, in->name, x->name);
			else
				sy_assign(c, x, &out, 3 * more, 0, "%s.new_zeros(%s).%s(%d, %s, %s)", x->name, shape,
					v == IDX_INDEX_ADD ? "index_add" : "scatter_add", axis, in->name, x->name);
		}
		if (adds) {
			mag += 3;
			keep &= NONNEG;
		}
		if (v == IDX_SCATTER_MAX)
			keep = NONNEG;
	}
	x->by = op;
	sy_count_op(c, op->name);
	moved(x, keep & ~RAW, mag);
	x->facts |= v == IDX_BUFFER ? ORDERED : 0;
	return 1;
}

/* From indices to rows of a table. */
RULE(embedding)
{
	char args[MAX_ARGS];
	if (x->t.dtype != WW_SYNTH_I64 || x->t.rank != 2)
		return 0;
	int64_t vocab = 1, width = sy_draw_dim(c, 16, 2048);
	for (int i = 0; i < c->n_in; i++)
		if (!strcmp(c->in[i].name, x->name))
			vocab = c->in[i].high;
	if (vocab < 2)
		return 0;
	struct ww_synth_type out = { c->dtype, 3, { x->t.d[0], x->t.d[1], width } };
	snprintf(args, sizeof(args), "%s, %s", sy_hyper(c, "vocab_size", vocab), sy_feature(c, width));
	if (op->variant == 0) {
		sy_apply(c, op, x, args, &out);
	} else if (op->variant == 1) {
		if (c->dtype == WW_SYNTH_BF16)
			return 0;
		out = sy_without_dim(out, 1);
		size_t n = strlen(args);
		snprintf(
			args + n, sizeof(args) - n, ", mode='%s'", c->dtype == WW_SYNTH_F32 && sy_chance(c, 0.5) ? "mean" : "sum");
		sy_work(c, (double)ww_synth_numel(&x->t) * (double)width * 4, 0);
		sy_apply(c, op, x, args, &out);
	} else {
		if (vocab > 2048 || c->dtype != WW_SYNTH_F32)
			return 0;
		out.d[2] = vocab;
		if (op->variant == 2)
			sy_assign(c, x, &out, (double)ww_synth_numel(&out) * 8, 0, "F.one_hot(%s, %lld).float()", x->name,
				(long long)vocab);
		else {
			struct ww_synth_type w = { WW_SYNTH_F32, 2, { x->t.d[0], x->t.d[1] } };
			struct input *in = sy_add_input(c, "weights", &w, IN_NORMAL);
			if (!in)
				return 0;
			out = sy_without_dim(out, 1);
			sy_assign(c, x, &out, 0, 0, "%s.new_zeros(%lld, %lld).scatter_add(1, %s, %s)", in->name,
				(long long)out.d[0], (long long)vocab, x->name, in->name);
		}
		sy_count_op(c, op->name);
	}
	x->by = op;
	x->mag = 3;
	x->facts = op->variant == 2 ? NONNEG | UNIT : 0;
	x->channels_first = 0;
	return 1;
}
