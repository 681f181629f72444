/* rule_matrix.c - matrix products: linear layers, products of values with weights and with each other, einsum. */
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double bytes_of(const struct ww_comp *c, double numel) { return numel * (c->dtype == WW_SYNTH_F32 ? 4 : 2); }

/* After a product with weights of the usual scale. */
static void mixed(struct val *x, const struct ww_synth_op *op, double mag, int biased)
{
	x->mag = mag;
	x->facts = biased ? BIASED : 0;
	x->flat = 0;
	x->by = op;
	x->channels_first = 0;
}

static int64_t draw_width(struct ww_comp *c, int64_t in)
{
	int64_t lo = in / 8 > 8 ? in / 8 : 8, hi = in * 4 < 16384 ? in * 4 : 16384;
	return sy_draw_dim(c, lo, hi > 16 ? hi : 16);
}

static int linear_low_rank(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, int64_t k, int64_t n)
{
	int64_t rank = sy_draw_dim(c, 4, k / 4 > 8 ? k / 4 : 8);
	double rows = (double)ww_synth_numel(&x->t) / (double)k, mag = x->mag + 1;
	struct ww_synth_type mid = sy_with_dim(x->t, x->t.rank - 1, rank), out = sy_with_dim(x->t, x->t.rank - 1, n);
	const char *in = sy_feature(c, k), *r = sy_hyper(c, "rank", rank), *to = sy_feature(c, n);
	const char *down = sy_attribute(c, "down");
	sy_init_line(c, "self.%s = nn.Linear(%s, %s, bias=False)", down, in, r);
	const char *up = sy_attribute(c, "up");
	sy_init_line(c, "self.%s = nn.Linear(%s, %s)", up, r, to);
	sy_assign(c, x, &mid, 0, 2 * rows * (double)(k * rank), "self.%s(%s)", down, x->name);
	sy_assign(c, x, &out, 0, 2 * rows * (double)(rank * n), "self.%s(%s)", up, x->name);
	mixed(x, op, mag, 1);
	sy_count_op(c, op->name);
	return 1;
}

RULE(linear)
{
	char args[MAX_ARGS];
	int r = x->t.rank;
	int64_t k = r ? x->t.d[r - 1] : 0, n = draw_width(c, k > 1 ? k : 2);
	if (!sy_is_float(x) || r < 2 || k < 4 || k > 65536 || (x->channels_first && r > 2 && !c->whole))
		return 0;
	struct ww_synth_type out = sy_with_dim(x->t, r - 1, n);
	double rows = (double)ww_synth_numel(&x->t) / (double)k, flops = 2 * rows * (double)k * (double)n, mag = x->mag + 1;
	int bias = sy_chance(c, 0.8);
	const char *in = sy_feature(c, k), *to = sy_feature(c, n);
	sy_work(c, bytes_of(c, (double)k * (double)n), 0);
	switch (op->variant) {
	case 0:
		snprintf(args, sizeof(args), "%s, %s%s", in, to, bias ? "" : ", bias=False");
		c->flops = flops;
		sy_apply(c, op, x, args, &out);
		break;
	case 1: {
		char init[120], wname[40];
		snprintf(init, sizeof(init), "torch.randn(%s, %s) * %s ** -0.5", to, in, in);
		snprintf(wname, sizeof(wname), "%s", sy_parameter(c, "weight", init));
		sy_assign(c, x, &out, 0, flops, "F.linear(%s, self.%s)", x->name, wname);
		sy_count_op(c, op->name);
		bias = 0;
		break;
	}
	case 2: {
		if (k > 256 || n > 256 || !sy_fits(c, 2 * x->mag + 4))
			return 0;
		struct input *y = sy_add_input(c, "y", &x->t, IN_NORMAL);
		if (!y)
			return 0;
		const char *name = sy_attribute(c, "bilinear");
		sy_init_line(c, "self.%s = nn.Bilinear(%s, %s, %s)", name, in, in, to);
		mag = 2 * x->mag + 4;
		sy_assign(c, x, &out, 0, 2 * rows * (double)(k * k) * (double)n, "self.%s(%s, %s)", name, x->name, y->name);
		sy_count_op(c, op->name);
		break;
	}
	default: return linear_low_rank(c, op, x, k, n);
	}
	mixed(x, op, mag, bias);
	return 1;
}

/* ---- Products */

/* A weight k x n, by its two names. */
static const char *weight(struct ww_comp *c, int64_t k, int64_t n, char out[40])
{
	char init[120];
	snprintf(init, sizeof(init), "torch.randn(%s, %s) * %.4g", sy_feature(c, k), sy_feature(c, n), 1 / sqrt((double)k));
	snprintf(out, 40, "self.%s", sy_parameter(c, "weight", init));
	sy_work(c, bytes_of(c, (double)k * (double)n), 0);
	return out;
}

struct dims {
	int r;
	int64_t m, k, n; /* x is ... x m x k */
	double rows, batch;
};

static void product_weight(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	char w[40];
	struct ww_synth_type out = sy_with_dim(x->t, d->r - 1, d->n);
	weight(c, d->k, d->n, w);
	const char *form = op->variant == MM_WEIGHT ? (sy_chance(c, 0.5) ? "%s @ %s" : "torch.matmul(%s, %s)")
		: op->variant == MM_TRIL                ? "torch.matmul(%s, torch.triu(%s))"
												: "torch.tensordot(%s, %s, dims=1)";
	double mag = x->mag + 1, flops = 2 * d->rows * (double)(d->k * d->n);
	ww_auto_str text = WW_STR_INIT(200);
	if (op->variant == MM_EINSUM)
		ww_str_addf(&text, "torch.einsum('...k,kn->...n', %s, %s)", x->name, w);
	else {
		const char *first = x->name, *next = w;
		for (const char *p = form; *p; p++)
			if (*p == '%' && p[1] == 's') {
				ww_str_adds(&text, first);
				first = next;
				p++;
			} else {
				ww_str_addc(&text, *p);
			}
	}
	sy_assign(c, x, &out, 0, flops, "%s", text.p);
	mixed(x, op, mag, 0);
}

/* With another input; both have the scale of inputs, so half precision overflows for large values. */
static int product_input(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	double mag = x->mag + 8.3 + sy_log2_of((double)d->k) / 2;
	struct ww_synth_type t = x->t, out = sy_with_dim(x->t, d->r - 1, d->n);
	if (!sy_fits(c, mag))
		return 0;
	int shared = op->variant == MM_INPUT && d->r > 2 && sy_chance(c, 0.4);
	t.d[d->r - 2] = d->k;
	t.d[d->r - 1] = d->n;
	while (shared && t.rank > 2)
		t = sy_without_dim(t, 0);
	if (op->variant == MM_TRANSPOSED) {
		t.d[t.rank - 2] = d->n;
		t.d[t.rank - 1] = d->k;
	}
	struct input *y = sy_add_input(c, "y", &t, IN_NORMAL);
	if (!y)
		return 0;
	double more = (double)ww_synth_bytes(&t), flops = 2 * d->rows * (double)(d->k * d->n);
	if (op->variant == MM_BMM)
		sy_assign(c, x, &out, more, flops, "torch.bmm(%s, %s)", x->name, y->name);
	else if (op->variant == MM_TRANSPOSED)
		sy_assign(c, x, &out, more, flops, "torch.matmul(%s, %s.transpose(-1, -2))", x->name, y->name);
	else
		sy_assign(c, x, &out, more, flops, "torch.matmul(%s, %s)", x->name, y->name);
	mixed(x, op, mag, 0);
	return 1;
}

/* bias + x y, with a factor. */
static int product_add(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	double mag = x->mag + 8.3 + sy_log2_of((double)d->k) / 2;
	struct ww_synth_type t = x->t, out = sy_with_dim(x->t, d->r - 1, d->n), b = out;
	t.d[d->r - 2] = d->k;
	t.d[d->r - 1] = d->n;
	if (sy_chance(c, 0.6) && b.rank > 2)
		b = sy_without_dim(b, 0);
	if (!sy_fits(c, mag) || c->n_in + 2 > MAX_INPUTS || c->at != c->cls[0])
		return 0;
	const struct input *y = sy_add_input(c, "y", &t, IN_NORMAL), *bias = sy_add_input(c, "bias", &b, IN_NORMAL);
	sy_assign(c, x, &out, (double)(ww_synth_bytes(&t) + ww_synth_bytes(&b)), 2 * d->rows * (double)(d->k * d->n),
		"torch.%s(%s, %s, %s, beta=%g, alpha=%g)", op->variant == MM_ADDMM ? "addmm" : "baddbmm", bias->name, x->name,
		y->name, sy_chance(c, 0.5) ? 1.0 : 0.5, sy_chance(c, 0.5) ? 1.0 : 0.125);
	mixed(x, op, mag, 0);
	return 1;
}

static int product_self(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	double mag = 2 * x->mag + sy_log2_of((double)d->k) / 2 + (x->facts & NONNEG ? sy_log2_of((double)d->k) / 2 : 0);
	if (!sy_fits(c, mag))
		return 0;
	struct ww_synth_type out = sy_with_dim(x->t, d->r - 1, d->m);
	sy_assign(c, x, &out, 0, 2 * d->rows * (double)(d->k * d->m), "torch.matmul(%s, %s.transpose(-1, -2))%s", x->name,
		x->name,
		sy_chance(c, 0.5) ? ""
			: d->k > 64   ? " / 16.0"
						  : " / 4.0");
	mixed(x, op, mag, 0);
	return 1;
}

/* Each head has a weight of its own. */
static int product_heads(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	char init[160];
	int64_t h = sy_draw_divisor(c, d->k, 16), k = d->k / h;
	if (h < 2 || k < 4)
		return 0;
	int blocks = op->variant == MM_BLOCKS;
	int64_t n = blocks ? sy_draw_dim(c, 8, 256) : k;
	double mag = x->mag + 1;
	const char *heads = sy_hyper(c, blocks ? "num_blocks" : "num_heads", h);
	snprintf(init, sizeof(init), "torch.randn(%s, %lld, %lld) * %.4g", heads, (long long)k, (long long)n,
		1 / sqrt((double)k));
	const char *w = sy_parameter(c, "weight", init);
	struct ww_synth_type out = sy_with_dim(x->t, d->r - 1, h * n);
	sy_assign(c, x, &out, 0, 2 * d->rows * (double)(k * n) * (double)h,
		"torch.einsum('...hk,hkn->...hn', %s.unflatten(-1, (self.%s.shape[0], -1)), self.%s).flatten(-2)", x->name, w,
		w);
	mixed(x, op, mag, 0);
	return 1;
}

/* A weight along the axis before the last, as MLP-mixers have it. */
static int product_tokens(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	char init[160];
	int64_t n = sy_chance(c, 0.5) ? d->m : sy_draw_dim(c, 8, d->m * 2 > 16 ? d->m * 2 : 16);
	if (d->m < 4 || d->m > 8192)
		return 0;
	double mag = x->mag + 1;
	snprintf(init, sizeof(init), "torch.randn(%lld, %s) * %.4g", (long long)n, sy_hyper(c, "tokens", d->m),
		1 / sqrt((double)d->m));
	const char *w = sy_parameter(c, "mix", init);
	struct ww_synth_type out = sy_with_dim(x->t, d->r - 2, n);
	sy_assign(c, x, &out, 0, 2 * d->rows * (double)(d->k * n), "torch.matmul(self.%s, %s)", w, x->name);
	mixed(x, op, mag, 0);
	return 1;
}

static int product_vector(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	char init[120];
	double mag = x->mag + 1;
	struct ww_synth_type out = sy_without_dim(x->t, d->r - 1);
	if (ww_synth_numel(&out) < 8)
		return 0;
	snprintf(init, sizeof(init), "torch.randn(%s) * %.4g", sy_feature(c, d->k), 1 / sqrt((double)d->k));
	const char *w = sy_parameter(c, "query", init);
	sy_assign(c, x, &out, 0, 0, "torch.matmul(%s, self.%s)", x->name, w);
	mixed(x, op, mag, 0);
	return 1;
}

static int product_outer(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct dims *d)
{
	struct ww_synth_type t = sy_with_dim(x->t, d->r - 1, sy_draw_dim(c, 4, 256)), out = x->t;
	if (d->r >= WW_SYNTH_MAX_RANK || !sy_fits(c, x->mag + 8.3))
		return 0;
	struct input *y = sy_add_input(c, "y", &t, IN_NORMAL);
	if (!y)
		return 0;
	double mag = x->mag + 8.3;
	out.rank++;
	out.d[out.rank - 1] = t.d[d->r - 1];
	if (sy_chance(c, 0.5))
		sy_assign(c, x, &out, (double)ww_synth_bytes(&t), 0, "%s.unsqueeze(-1) * %s.unsqueeze(-2)", x->name, y->name);
	else
		sy_assign(
			c, x, &out, (double)ww_synth_bytes(&t), 0, "torch.einsum('...i,...j->...ij', %s, %s)", x->name, y->name);
	mixed(x, op, mag, 0);
	return 1;
}

RULE(matmul)
{
	int r = x->t.rank, ok = 1;
	if (!sy_is_float(x) || r < 2 || x->t.d[r - 1] < 4 || (x->channels_first && r > 2 && !c->whole))
		return 0;
	struct dims d = { r, x->t.d[r - 2], x->t.d[r - 1], 0, 0, 0 };
	d.n = draw_width(c, d.k);
	d.rows = (double)ww_synth_numel(&x->t) / (double)d.k;
	if (((op->variant == MM_BMM || op->variant == MM_BADDBMM) && r != 3) || (op->variant == MM_ADDMM && r != 2))
		return 0;
	if (op->variant == MM_GRAM && (d.m < 4 || d.m > 8192))
		return 0;
	if (op->variant == MM_TRIL)
		d.n = d.k;
	if (d.k > 32768)
		return 0;
	switch ((enum product)op->variant) {
	case MM_WEIGHT:
	case MM_EINSUM:
	case MM_TRIL:
	case MM_TENSORDOT: product_weight(c, op, x, &d); break;
	case MM_INPUT:
	case MM_TRANSPOSED:
	case MM_BMM: ok = product_input(c, op, x, &d); break;
	case MM_ADDMM:
	case MM_BADDBMM: ok = product_add(c, op, x, &d); break;
	case MM_GRAM: ok = product_self(c, op, x, &d); break;
	case MM_HEADS:
	case MM_BLOCKS: ok = product_heads(c, op, x, &d); break;
	case MM_TOKENS: ok = product_tokens(c, op, x, &d); break;
	case MM_VECTOR: ok = product_vector(c, op, x, &d); break;
	case MM_OUTER: ok = product_outer(c, op, x, &d); break;
	}
	if (ok)
		sy_count_op(c, op->name);
	return ok;
}
