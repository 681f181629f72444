/* idiom.c - pieces of known models: each takes rows (B x S x D) or feature maps (B x C x H x W) and, but for those that
 * end a network, gives back the same type, so that a network can stack and repeat them.
 */
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Layers */

void sy_add_linear(struct ww_comp *c, struct val *x, const char *base, int64_t n, int bias)
{
	int64_t k = x->t.d[x->t.rank - 1];
	struct ww_synth_type out = sy_with_dim(x->t, x->t.rank - 1, n);
	double mag = x->mag + 1, flops = 2.0 * (double)ww_synth_numel(&x->t) * (double)n;
	char args[80];
	const char *name = sy_attribute(c, base), *from = sy_feature(c, k);
	snprintf(args, sizeof(args), "%s, %s", from, sy_feature(c, n));
	sy_init_line(c, "self.%s = nn.Linear(%s%s)", name, args, bias ? "" : ", bias=False");
	sy_assign(c, x, &out, (double)(k * n) * 4, flops, "self.%s(%s)", name, x->name);
	x->mag = mag;
	x->facts = bias ? BIASED : 0;
	x->by = sy_op_named("linear");
	sy_count_op(c, "linear");
}

void sy_add_conv(
	struct ww_comp *c, struct val *x, const char *base, int64_t out, int k, int stride, int64_t groups, int bias)
{
	int64_t in = x->t.d[1];
	struct ww_synth_type t = sy_with_dim(x->t, 1, out);
	double mag = x->mag + 1, taps = (double)(in / groups);
	for (int i = 2; i < x->t.rank; i++) {
		t.d[i] = (x->t.d[i] - 1) / stride + 1;
		taps *= k;
	}
	const char *name = sy_attribute(c, base), *from = sy_channel(c, in), *to = sy_channel(c, out);
	ww_auto_str args = WW_STR_INIT(200);
	ww_str_addf(&args, "%s, %s, kernel_size=%d", from, to, k);
	if (stride > 1)
		ww_str_addf(&args, ", stride=%d", stride);
	if (k > 1)
		ww_str_addf(&args, ", padding=%d", k / 2);
	if (groups > 1 && groups == in)
		ww_str_addf(&args, ", groups=%s", from);
	else if (groups > 1)
		ww_str_addf(&args, ", groups=%lld", (long long)groups);
	sy_init_line(c, "self.%s = nn.Conv%dd(%s%s)", name, x->t.rank - 2, args.p, bias ? "" : ", bias=False");
	sy_assign(
		c, x, &t, 0, 2 * taps * (double)ww_synth_numel(&t) * (groups > 1 ? 4 : 0.7), "self.%s(%s)", name, x->name);
	x->mag = mag;
	x->facts = bias ? BIASED : 0;
	x->channels_first = 1;
	x->by = sy_op_named("conv2d");
	sy_count_op(c, groups > 1 && groups == in ? "depthwise_conv" : "conv");
}

/* A norm of the features, in the style of rows or of maps. */
void sy_add_norm(struct ww_comp *c, struct val *x)
{
	int map = x->channels_first, r = x->t.rank, first = x->channels_first;
	struct ww_synth_type out = x->t;
	const char *name = sy_attribute(c, "norm");
	int64_t n = x->t.d[map ? 1 : r - 1];
	if (!map)
		sy_init_line(c,
			sy_chance(c, 0.6) || c->dtype == WW_SYNTH_F16 ? "self.%s = nn.LayerNorm(%s)" : "self.%s = nn.RMSNorm(%s)",
			name, sy_feature(c, n));
	else if (sy_chance(c, 0.7) || n % 4 || x->facts & BIASED)
		sy_init_line(c, "self.%s = nn.BatchNorm%dd(%s)", name, r - 2, sy_channel(c, n));
	else
		sy_init_line(
			c, "self.%s = nn.GroupNorm(%lld, %s)", name, (long long)(n % 8 || n < 16 ? 4 : 8), sy_channel(c, n));
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0, "self.%s(%s)", name, x->name);
	x->mag = 5;
	x->channels_first = first;
	x->by = sy_op_named(map ? "batch_norm2d" : "layer_norm");
	sy_count_op(c, map ? "batch_norm" : "layer_norm");
}

void sy_add_act(struct ww_comp *c, struct val *x)
{
	static const char *const acts[] = { "F.relu(%s)", "F.gelu(%s)", "F.silu(%s)", "F.relu(%s)",
		"F.gelu(%s, approximate='tanh')", "F.hardswish(%s)", "F.leaky_relu(%s, 0.1)", "F.mish(%s)" };
	const char *form = PICK(c, acts), *v = strchr(form, '%');
	struct ww_synth_type out = x->t;
	double mag = x->mag;
	int first = x->channels_first;
	sy_assign(c, x, &out, 0, 0, "%.*s%s%s", (int)(v - form), form, x->name, v + 2);
	x->mag = mag;
	x->channels_first = first;
	x->facts = strstr(form, "relu(%s)") && form[2] == 'r' ? NONNEG : 0;
	x->by = sy_op_named("relu");
	sy_count_op(c, "activation");
}

void sy_add_conv_norm_act(
	struct ww_comp *c, struct val *x, const char *base, int64_t out, int k, int stride, int64_t groups)
{
	sy_add_conv(c, x, base, out, k, stride, groups, 0);
	sy_add_norm(c, x);
	sy_add_act(c, x);
}

/* x = f(a, b) elementwise of equal types. */
static void combine(struct ww_comp *c, struct val *x, const char *op, const struct val *y, double mag)
{
	struct ww_synth_type out = x->t;
	int first = x->channels_first;
	sy_assign(c, x, &out, (double)ww_synth_bytes(&y->t), 0, "%s %s %s", x->name, op, y->name);
	x->mag = mag;
	x->channels_first = first;
	x->by = sy_op_named(*op == '+' ? "add" : "mul");
	sy_count_op(c, *op == '+' ? "add" : "mul");
}

static double larger(double a, double b) { return a > b ? a : b; }

/* ---- Rows */

struct val sy_rows_input(struct ww_comp *c)
{
	static const int64_t widths[] = { 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048 };
	int64_t d = PICK(c, widths);
	if (c->style == WW_SYNTH_ODD || c->style == WW_SYNTH_PRIME)
		d = sy_draw_dim(c, 8, 160) * 8;
	int64_t lo[] = { 1, 16, d }, hi[] = { 512, 2048, d };
	struct ww_synth_type t = { .dtype = c->dtype };
	enum ww_synth_style style = c->style;
	sy_draw_shape(c, &t, 3, lo, hi);
	t.d[2] = d;
	c->style = style;
	return sy_input_value(c, sy_add_input(c, "x", &t, IN_NORMAL));
}

/* q, k, v as B x H x S x D/H. */
static void split_heads(struct ww_comp *c, struct val *v, const char *heads, int64_t h)
{
	sy_line(c, "%s = %s.unflatten(-1, (self.%s, -1)).transpose(1, 2)", v->name, v->name, heads);
	v->t = (struct ww_synth_type){ v->t.dtype, 4, { v->t.d[0], h, v->t.d[1], v->t.d[2] / h } };
	v->channels_first = 0;
}

/* Rotary positions: cos and sin are made from a table of frequencies. */
static void rotary(struct ww_comp *c, int64_t head, int64_t steps, const char *q, const char *k)
{
	char cos[28], sin[28];
	const char *both[] = { q, k };
	snprintf(cos, sizeof(cos), "%s", sy_attribute(c, "cos"));
	snprintf(sin, sizeof(sin), "%s", sy_attribute(c, "sin"));
	sy_init_line(
		c, "freqs = 10000.0 ** (-torch.arange(0, %lld).float() / %lld)", (long long)(head / 2), (long long)(head / 2));
	sy_init_line(c, "angles = torch.outer(torch.arange(%lld).float(), freqs)", (long long)steps);
	sy_init_line(c, "self.register_buffer('%s', torch.cat([angles, angles], dim=-1).cos())", cos);
	sy_init_line(c, "self.register_buffer('%s', torch.cat([angles, angles], dim=-1).sin())", sin);
	for (int i = 0; i < 2; i++) {
		sy_line(c, "first, second = %s.chunk(2, dim=-1)", both[i]);
		sy_line(c, "%s = %s * self.%s + torch.cat([-second, first], dim=-1) * self.%s", both[i], both[i], cos, sin);
	}
	sy_count_op(c, "rotary");
}

static void attend(struct ww_comp *c, struct val *q, const char *k, const char *v, int64_t head, int window)
{
	struct ww_synth_type out = q->t, s = sy_with_dim(q->t, 3, q->t.d[2]);
	double flops = 4.0 * (double)ww_synth_numel(&q->t) * (double)q->t.d[2];
	switch (window ? 3 : sy_below(c, 3)) {
	case 0: sy_assign(c, q, &out, 0, flops, "F.scaled_dot_product_attention(%s, %s, %s)", q->name, k, v); break;
	case 1:
		sy_assign(c, q, &out, 0, flops, "F.scaled_dot_product_attention(%s, %s, %s, is_causal=True)", q->name, k, v);
		break;
	default:
		/* half precision keeps its scores small by scaling first */
		sy_line(c, "%s = %s * %.6g", q->name, q->name, 1 / sqrt((double)head));
		sy_line(c, "scores = torch.matmul(%s, %s.transpose(-2, -1))", q->name, k);
		if (window) {
			sy_line(c, "pos = torch.arange(scores.shape[-1], device=scores.device)");
			sy_line(c, "near = (pos[:, None] - pos[None, :]).abs() <= %lld", (long long)(q->t.d[2] / 8 + 1));
			sy_line(c, "scores = scores.masked_fill(~near, float('-inf'))");
		}
		if (sy_chance(c, 0.3))
			sy_line(c, "scores = 30.0 * torch.tanh(scores / 30.0)");
		sy_line(c, "probs = F.softmax(scores, dim=-1)");
		sy_assign(c, q, &out, 9.0 * (double)ww_synth_bytes(&s), flops, "torch.matmul(probs, %s)", v);
		c->memory_bytes += 3.0 * c->repeats * (double)ww_synth_bytes(&s);
		c->uses_f = 1;
	}
	sy_count_op(c, "attention");
}

static int piece_attention(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2], s = x->t.d[1], h = sy_draw_divisor(c, d, 16), g = 1;
	if (h < 2 || d / h < 16 || d / h > 256 || (d / h) % 2)
		return 0;
	double mag = x->mag + 2;
	struct val identity = sy_branch(c, x, "residual"), k, v;
	int norm = sy_chance(c, 0.7), grouped = sy_chance(c, 0.35), rope = sy_chance(c, 0.35), window = sy_chance(c, 0.2);
	if (norm)
		sy_add_norm(c, x);
	char heads[28];
	snprintf(heads, sizeof(heads), "%s", sy_attribute(c, "num_heads"));
	sy_init_line(c, "self.%s = %s", heads, sy_hyper(c, "heads", h));
	g = grouped ? sy_draw_divisor(c, h, 8) : 1;
	k = sy_branch(c, x, "k");
	v = sy_branch(c, x, "v");
	struct val q = sy_branch(c, x, "q");
	sy_add_linear(c, &q, "q_proj", d, sy_chance(c, 0.5));
	sy_add_linear(c, &k, "k_proj", d / g, 0);
	sy_add_linear(c, &v, "v_proj", d / g, sy_chance(c, 0.5));
	split_heads(c, &q, heads, h);
	sy_line(c, "%s = %s.unflatten(-1, (-1, %lld)).transpose(1, 2)", k.name, k.name, (long long)(d / h));
	sy_line(c, "%s = %s.unflatten(-1, (-1, %lld)).transpose(1, 2)", v.name, v.name, (long long)(d / h));
	if (rope)
		rotary(c, d / h, s, q.name, k.name);
	if (g > 1) {
		sy_line(c, "%s = %s.repeat_interleave(%lld, dim=1)", k.name, k.name, (long long)g);
		sy_line(c, "%s = %s.repeat_interleave(%lld, dim=1)", v.name, v.name, (long long)g);
	}
	attend(c, &q, k.name, v.name, d / h, window);
	struct ww_synth_type out = identity.t;
	sy_assign(c, &q, &out, 0, 0, "%s.transpose(1, 2).flatten(2)", q.name);
	sy_line(c, "%s = %s", x->name, q.name);
	x->t = out;
	x->mag = mag;
	sy_add_linear(c, x, "out_proj", d, sy_chance(c, 0.5));
	combine(c, x, "+", &identity, larger(mag, identity.mag) + 1);
	return 1;
}

static int piece_mlp(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2], wide = d * (sy_chance(c, 0.6) ? 4 : 2);
	struct val identity = sy_branch(c, x, "residual");
	if (sy_chance(c, 0.75))
		sy_add_norm(c, x);
	if (!sy_fits(c, 2 * x->mag + 4))
		return 0;
	if (sy_chance(c, 0.45)) { /* gated */
		static const char *const acts[] = { "F.silu", "F.gelu", "F.relu", "torch.sigmoid" };
		int64_t inner = (d * 8 / 3 + 63) / 64 * 64;
		struct val g = sy_branch(c, x, "gate");
		sy_add_linear(c, &g, "gate_proj", inner, 0);
		sy_add_linear(c, x, "up_proj", inner, 0);
		struct ww_synth_type out = x->t;
		double mag = x->mag + g.mag;
		sy_assign(c, x, &out, (double)ww_synth_bytes(&g.t), 0, "%s(%s) * %s", PICK(c, acts), g.name, x->name);
		x->mag = mag;
		sy_count_op(c, "gated_mul");
		sy_add_linear(c, x, "down_proj", d, 0);
	} else {
		sy_add_linear(c, x, "fc_in", wide, 1);
		sy_add_act(c, x);
		sy_add_linear(c, x, "fc_out", d, 1);
	}
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	return 1;
}

/* A mixture of experts: every expert computes, the router's shares weigh them. */
static int piece_experts(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2], e = sy_between(c, 2, 8), inner = sy_draw_dim(c, 32, d * 2 > 64 ? d * 2 : 64);
	double rows = (double)(x->t.d[0] * x->t.d[1]), mag = x->mag + 3;
	int top = sy_chance(c, 0.5);
	char router[28], act[12];
	static const char *const acts[] = { "F.gelu", "F.silu", "F.relu" };
	snprintf(act, sizeof(act), "%s", PICK(c, acts));
	struct val identity = sy_branch(c, x, "residual");
	const char *n = sy_hyper(c, "num_experts", e), *width = sy_feature(c, d),
			   *hidden = sy_hyper(c, "expert_dim", inner);
	snprintf(router, sizeof(router), "%s", sy_attribute(c, "router"));
	sy_init_line(c, "self.%s = nn.Linear(%s, %s, bias=False)", router, width, n);
	char w_in[28], w_out[28];
	snprintf(w_in, sizeof(w_in), "%s", sy_attribute(c, "w_in"));
	snprintf(w_out, sizeof(w_out), "%s", sy_attribute(c, "w_out"));
	sy_init_line(
		c, "self.%s = nn.Parameter(torch.randn(%s, %s, %s) * %.4g)", w_in, n, width, hidden, 1 / sqrt((double)d));
	sy_init_line(
		c, "self.%s = nn.Parameter(torch.randn(%s, %s, %s) * %.4g)", w_out, n, hidden, width, 1 / sqrt((double)inner));
	sy_line(c, "gates = F.softmax(self.%s(%s), dim=-1)", router, x->name);
	if (top && e > 2) {
		sy_line(c, "best = gates.topk(2, dim=-1).values[..., -1:]");
		sy_line(c, "gates = gates * (gates >= best)");
		sy_line(c, "gates = gates / gates.sum(dim=-1, keepdim=True)");
	}
	sy_line(c, "hidden = %s(torch.einsum('bsd,edh->besh', %s, self.%s))", act, x->name, w_in);
	sy_line(c, "outs = torch.einsum('besh,ehd->besd', hidden, self.%s)", w_out);
	struct ww_synth_type out = x->t;
	sy_work(c, rows * (double)(e * inner) * 16, 4 * rows * (double)(e * inner * d));
	c->memory_bytes += rows * (double)(e * (2 * inner + d)) * 4;
	sy_assign(c, x, &out, rows * (double)(e * d) * 8, 0, "torch.einsum('besd,bse->bsd', outs, gates)");
	x->mag = mag;
	c->uses_f = 1;
	sy_count_op(c, "experts");
	combine(c, x, "+", &identity, larger(mag, identity.mag) + 1);
	return 1;
}

/* MLP-mixer: along the tokens. */
static int piece_token_mixer(struct ww_comp *c, struct val *x)
{
	int64_t s = x->t.d[1], d = x->t.d[2];
	if (s > 1024 || s < 4)
		return 0;
	struct val identity = sy_branch(c, x, "residual");
	sy_add_norm(c, x);
	struct ww_synth_type t = sy_with_dim(sy_with_dim(x->t, 1, d), 2, s), back = identity.t;
	sy_assign(c, x, &t, 0, 0, "%s.transpose(1, 2)", x->name);
	x->mag = 5;
	sy_add_linear(c, x, "tokens_in", s * 2, 1);
	sy_add_act(c, x);
	sy_add_linear(c, x, "tokens_out", s, 1);
	double mag = x->mag;
	sy_assign(c, x, &back, 0, 0, "%s.transpose(1, 2)", x->name);
	combine(c, x, "+", &identity, larger(mag, identity.mag) + 1);
	return 1;
}

/* Conformer's and gated convolutions' module, along the sequence. */
static int piece_conv1d(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2], s = x->t.d[1], k = sy_between(c, 1, 4) * 2 + 1;
	if (s < 16 || !sy_fits(c, x->mag + 4))
		return 0;
	struct val identity = sy_branch(c, x, "residual");
	sy_add_norm(c, x);
	sy_add_linear(c, x, "pw_in", 2 * d, 1);
	struct ww_synth_type half = identity.t, t = sy_with_dim(sy_with_dim(x->t, 1, d), 2, s);
	sy_assign(c, x, &half, (double)ww_synth_bytes(&half), 0, "F.glu(%s, dim=-1)", x->name);
	sy_count_op(c, "glu");
	const char *name = sy_attribute(c, "dw_conv");
	int causal = sy_chance(c, 0.4);
	sy_init_line(c, "self.%s = nn.Conv1d(%s, %s, %lld, padding=%lld, groups=%s)", name, sy_feature(c, d),
		sy_feature(c, d), (long long)k, (long long)(causal ? k - 1 : k / 2), sy_feature(c, d));
	sy_line(c, "%s = %s.transpose(1, 2)", x->name, x->name);
	x->t = t;
	struct ww_synth_type out = t;
	sy_assign(c, x, &out, 0, 8.0 * (double)(ww_synth_numel(&t) * k), causal ? "self.%s(%s)[..., :%lld]" : "self.%s(%s)",
		name, x->name, (long long)s);
	sy_count_op(c, "depthwise_conv");
	x->mag = 7;
	sy_add_act(c, x);
	out = identity.t;
	sy_assign(c, x, &out, 0, 0, "%s.transpose(1, 2)", x->name);
	x->mag = 7;
	sy_add_linear(c, x, "pw_out", d, 1);
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	return 1;
}

/* A frozen layer with a trained detour of low rank. */
static int piece_lora(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2], r = sy_between(c, 2, 8) * 4;
	struct val side = sy_branch(c, x, "delta");
	sy_add_linear(c, x, "base", d, 1);
	const char *a = sy_attribute(c, "lora_a"), *b = sy_attribute(c, "lora_b"), *width = sy_feature(c, d),
			   *rank = sy_hyper(c, "rank", r);
	sy_init_line(c, "self.%s = nn.Parameter(torch.randn(%s, %s) * 0.05)", a, width, rank);
	sy_init_line(c, "self.%s = nn.Parameter(torch.randn(%s, %s) * 0.05)", b, rank, width);
	struct ww_synth_type out = side.t;
	sy_assign(c, &side, &out, 0, 4.0 * (double)(ww_synth_numel(&out) * r), "%s @ self.%s @ self.%s * %g", side.name, a,
		b, sy_chance(c, 0.5) ? 2.0 : 0.5);
	sy_count_op(c, "low_rank");
	combine(c, x, "+", &side, x->mag + 1);
	return 1;
}

/* Scales and shifts by a condition, as diffusion transformers have it. */
static int piece_modulate(struct ww_comp *c, struct val *x)
{
	int64_t d = x->t.d[2];
	struct ww_synth_type t = { c->dtype, 2, { x->t.d[0], d } }, out = x->t;
	struct input *in = sy_add_input(c, "cond", &t, IN_NORMAL);
	if (!in || !sy_fits(c, 15))
		return 0;
	const char *name = sy_attribute(c, "modulation"), *width = sy_feature(c, d);
	sy_init_line(c, "self.%s = nn.Linear(%s, 2 * %s)", name, width, width);
	const char *norm = sy_attribute(c, "norm");
	sy_init_line(c, "self.%s = nn.LayerNorm(%s, elementwise_affine=False)", norm, width);
	sy_line(c, "shift, scale = self.%s(F.silu(%s)).chunk(2, dim=-1)", name, in->name);
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0,
		"self.%s(%s) * (1.0 + scale.unsqueeze(1)) + shift.unsqueeze(1)", norm, x->name);
	x->mag = 13;
	c->uses_f = 1;
	sy_count_op(c, "layer_norm");
	sy_count_op(c, "modulate");
	return c->cls[0] == c->at;
}

int sy_rows_piece(struct ww_comp *c, struct val *x)
{
	static const struct {
		int (*piece)(struct ww_comp *, struct val *);
		double weight;
	} pieces[] = { { piece_attention, 5 }, { piece_mlp, 5 }, { piece_experts, 1.5 }, { piece_token_mixer, 1.5 },
		{ piece_conv1d, 2 }, { piece_lora, 1 }, { piece_modulate, 1 } };
	double w[WW_ARRAY_LEN(pieces)];
	for (size_t i = 0; i < WW_ARRAY_LEN(pieces); i++)
		w[i] = pieces[i].weight;
	if (c->at != c->cls[0])
		w[6] = 0; /* a block has no input of its own */
	return pieces[sy_weighted(c, w, WW_ARRAY_LEN(pieces))].piece(c, x) && !c->failed;
}

/* ---- Feature maps */

struct val sy_image_input(struct ww_comp *c)
{
	static const int64_t widths[] = { 16, 24, 32, 48, 64, 96, 128, 192, 256 },
						 sides[] = { 7, 8, 14, 16, 20, 28, 32, 40, 56, 64, 112, 128 };
	int64_t w = PICK(c, widths), side = PICK(c, sides);
	if (c->style == WW_SYNTH_ODD || c->style == WW_SYNTH_PRIME)
		side = sy_draw_dim(c, 7, 130);
	if (c->style == WW_SYNTH_TINY)
		w = sy_draw_dim(c, 4, 24);
	int64_t lo[] = { 1, w, side, side }, hi[] = { 512, w, side, side };
	struct ww_synth_type t = { .dtype = c->dtype };
	sy_draw_shape(c, &t, 4, lo, hi);
	struct input *in = sy_add_input(c, "x", &t, IN_NORMAL);
	if (sy_chance(c, c->r->strided))
		in->layout = LAYOUT_CHANNELS_LAST;
	struct val x = sy_input_value(c, in);
	x.channels_first = 1;
	return x;
}

static int piece_residual(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1];
	struct val identity = sy_branch(c, x, "identity");
	sy_add_conv_norm_act(c, x, "conv", n, 3, 1, 1);
	sy_add_conv(c, x, "conv", n, 3, 1, 1, 0);
	sy_add_norm(c, x);
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	sy_add_act(c, x);
	return 1;
}

static int piece_bottleneck(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1], mid = n / 4 > 4 ? n / 4 : 4, groups = sy_chance(c, 0.3) ? sy_draw_divisor(c, mid, 32) : 1;
	struct val identity = sy_branch(c, x, "identity");
	sy_add_conv_norm_act(c, x, "reduce", mid, 1, 1, 1);
	sy_add_conv_norm_act(c, x, "conv", mid, 3, 1, groups);
	sy_add_conv(c, x, "expand", n, 1, 1, 1, 0);
	sy_add_norm(c, x);
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	sy_add_act(c, x);
	return 1;
}

/* Squeeze and excite: channels weighed by their averages. */
static int squeeze_excite(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1], mid = n / 4 > 4 ? n / 4 : 4;
	struct ww_synth_type out = x->t;
	double mag = x->mag;
	int linear = sy_chance(c, 0.5);
	char a[28], b[28];
	snprintf(a, sizeof(a), "%s", sy_attribute(c, "squeeze"));
	snprintf(b, sizeof(b), "%s", sy_attribute(c, "excite"));
	const char *from = sy_channel(c, n), *to = sy_hyper(c, "squeeze_channels", mid);
	sy_init_line(c, linear ? "self.%s = nn.Linear(%s, %s)" : "self.%s = nn.Conv2d(%s, %s, 1)", a, from, to);
	sy_init_line(c, linear ? "self.%s = nn.Linear(%s, %s)" : "self.%s = nn.Conv2d(%s, %s, 1)", b, to, from);
	sy_line(c, linear ? "s = %s.mean(dim=(2, 3))" : "s = F.adaptive_avg_pool2d(%s, 1)", x->name);
	sy_line(c, "s = torch.sigmoid(self.%s(F.relu(self.%s(s))))", b, a);
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0, linear ? "%s * s[:, :, None, None]" : "%s * s", x->name);
	x->mag = mag;
	x->channels_first = 1;
	x->by = sy_op_named("mul");
	c->uses_f = 1;
	sy_count_op(c, "squeeze_excite");
	return 1;
}

static int piece_inverted(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1], wide = n * sy_between(c, 2, 4);
	int k = sy_chance(c, 0.6) ? 3 : 5;
	struct val identity = sy_branch(c, x, "identity");
	sy_add_conv_norm_act(c, x, "expand", wide, 1, 1, 1);
	sy_add_conv_norm_act(c, x, "depthwise", wide, k, 1, wide);
	if (sy_chance(c, 0.5))
		squeeze_excite(c, x);
	sy_add_conv(c, x, "project", n, 1, 1, 1, 0);
	sy_add_norm(c, x);
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	return 1;
}

static int piece_convnext(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1], wide = n * 4;
	struct val identity = sy_branch(c, x, "identity");
	struct ww_synth_type rows = { x->t.dtype, 4, { x->t.d[0], x->t.d[2], x->t.d[3], n } }, back = x->t;
	if (x->t.d[2] < 7)
		return 0;
	sy_add_conv(c, x, "depthwise", n, 7, 1, n, 1);
	sy_assign(c, x, &rows, 0, 0, "%s.permute(0, 2, 3, 1)", x->name);
	x->channels_first = 0;
	const char *name = sy_attribute(c, "norm");
	sy_init_line(c, "self.%s = nn.LayerNorm(%s)", name, sy_channel(c, n));
	sy_assign(c, x, &rows, (double)ww_synth_bytes(&rows), 0, "self.%s(%s)", name, x->name);
	sy_count_op(c, "layer_norm");
	x->mag = 5;
	sy_add_linear(c, x, "pw_in", wide, 1);
	sy_add_act(c, x);
	sy_add_linear(c, x, "pw_out", n, 1);
	char gamma[40], init[80];
	snprintf(init, sizeof(init), "torch.randn(%s) * 0.1", sy_channel(c, n));
	snprintf(gamma, sizeof(gamma), "%s", sy_parameter(c, "gamma", init));
	double mag = x->mag + 2;
	sy_assign(c, x, &back, 0, 0, "(%s * self.%s).permute(0, 3, 1, 2)", x->name, gamma);
	x->channels_first = 1;
	combine(c, x, "+", &identity, larger(mag, identity.mag) + 1);
	return 1;
}

static int piece_spatial_gate(struct ww_comp *c, struct val *x)
{
	struct ww_synth_type out = x->t;
	double mag = x->mag;
	const char *name = sy_attribute(c, "spatial");
	sy_init_line(c, "self.%s = nn.Conv2d(2, 1, kernel_size=7, padding=3)", name);
	sy_line(
		c, "pooled = torch.cat([%s.mean(dim=1, keepdim=True), %s.amax(dim=1, keepdim=True)], dim=1)", x->name, x->name);
	sy_assign(c, x, &out, 2.0 * (double)ww_synth_bytes(&out), 0, "%s * torch.sigmoid(self.%s(pooled))", x->name, name);
	x->mag = mag;
	x->channels_first = 1;
	sy_count_op(c, "spatial_gate");
	return 1;
}

/* GroupNorm, SiLU, convolution: diffusion models. */
static int piece_diffusion(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1];
	struct val identity = sy_branch(c, x, "identity");
	if (n % 4)
		return 0;
	for (int i = 0; i < 2; i++) {
		struct ww_synth_type out = x->t;
		const char *name = sy_attribute(c, "norm");
		sy_init_line(c, "self.%s = nn.GroupNorm(%lld, %s)", name, (long long)(n % 32 ? 4 : 32), sy_channel(c, n));
		sy_assign(c, x, &out, 3.0 * (double)ww_synth_bytes(&out), 0, "F.silu(self.%s(%s))", name, x->name);
		x->mag = 5;
		x->channels_first = 1;
		sy_count_op(c, "group_norm");
		sy_count_op(c, "activation");
		sy_add_conv(c, x, "conv", n, 3, 1, 1, 1);
	}
	combine(c, x, "+", &identity, larger(x->mag, identity.mag) + 1);
	return 1;
}

/* Attention over the positions of a map. */
static int piece_map_attention(struct ww_comp *c, struct val *x)
{
	int64_t n = x->t.d[1], hw = x->t.d[2] * x->t.d[3];
	if (hw > 1600 || n < 16 || n > 256)
		return 0;
	struct ww_synth_type out = x->t, rows = { x->t.dtype, 3, { x->t.d[0], hw, n } },
						 scores = { x->t.dtype, 3, { x->t.d[0], hw, hw } };
	struct val identity = sy_branch(c, x, "identity");
	char qkv[28], proj[28];
	snprintf(qkv, sizeof(qkv), "%s", sy_attribute(c, "qkv"));
	snprintf(proj, sizeof(proj), "%s", sy_attribute(c, "proj"));
	sy_init_line(c, "self.%s = nn.Conv2d(%s, 3 * %s, 1)", qkv, sy_channel(c, n), sy_channel(c, n));
	sy_init_line(c, "self.%s = nn.Conv2d(%s, %s, 1)", proj, sy_channel(c, n), sy_channel(c, n));
	sy_line(c, "q, k, v = self.%s(%s).flatten(2).transpose(1, 2).chunk(3, dim=-1)", qkv, x->name);
	sy_line(c,
		"attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).unflatten(2, (%s.shape[2], %s.shape[3]))",
		x->name, x->name);
	double mag = x->mag + 2, n2 = (double)ww_synth_numel(&rows);
	sy_work(c, 8.0 * (double)ww_synth_bytes(&rows) + 2.0 * (double)ww_synth_bytes(&scores),
		8 * n2 * (double)n + 4 * n2 * (double)hw);
	sy_assign(c, x, &out, 0, 0, "self.%s(attended)", proj);
	x->channels_first = 1;
	c->uses_f = 1;
	sy_count_op(c, "conv");
	sy_count_op(c, "attention");
	combine(c, x, "+", &identity, larger(mag, identity.mag) + 1);
	return 1;
}

int sy_image_piece(struct ww_comp *c, struct val *x)
{
	static const struct {
		int (*piece)(struct ww_comp *, struct val *);
		double weight;
	} pieces[] = { { piece_residual, 4 }, { piece_bottleneck, 3 }, { squeeze_excite, 2 }, { piece_inverted, 4 },
		{ piece_convnext, 3 }, { piece_spatial_gate, 1 }, { piece_diffusion, 2 }, { piece_map_attention, 1.5 } };
	double w[WW_ARRAY_LEN(pieces)];
	for (size_t i = 0; i < WW_ARRAY_LEN(pieces); i++)
		w[i] = pieces[i].weight;
	return pieces[sy_weighted(c, w, WW_ARRAY_LEN(pieces))].piece(c, x) && !c->failed;
}

/* ---- Idioms that stand alone, beside a single piece */

/* Convolution, norm, activation, pool. */
static int idiom_conv_stack(struct ww_comp *c, struct val *x)
{
	*x = sy_image_input(c);
	int64_t n = sy_draw_dim(c, 16, 256);
	int stride = sy_chance(c, 0.4) ? 2 : 1;
	sy_add_conv_norm_act(c, x, "conv", n, sy_chance(c, 0.8) ? 3 : 5, stride, 1);
	if (sy_chance(c, 0.6) && x->t.d[2] > 3)
		return sy_try_row(c, sy_chance(c, 0.6) ? "max_pool2d" : "avg_pool2d", x);
	return 1;
}

/* Up by a transposed convolution, the encoder's map beside it, and a convolution over both. */
static int idiom_decoder(struct ww_comp *c, struct val *x)
{
	*x = sy_image_input(c);
	int64_t n = x->t.d[1], half = n / 2 > 4 ? n / 2 : 4;
	struct ww_synth_type up = { x->t.dtype, 4, { x->t.d[0], half, x->t.d[2] * 2, x->t.d[3] * 2 } },
						 cat = sy_with_dim(up, 1, 2 * half);
	struct input *skip = sy_add_input(c, "skip", &up, IN_NORMAL);
	const char *name = sy_attribute(c, "up");
	if (!skip)
		return 0;
	sy_init_line(c, "self.%s = nn.ConvTranspose2d(%s, %s, kernel_size=2, stride=2)", name, sy_channel(c, n),
		sy_channel(c, half));
	sy_assign(c, x, &up, 0, 2.0 * (double)ww_synth_numel(&up) * (double)n, "self.%s(%s)", name, x->name);
	sy_count_op(c, "conv_transpose");
	x->channels_first = 1;
	sy_assign(c, x, &cat, 0, 0, "torch.cat([%s, %s], dim=1)", x->name, skip->name);
	sy_count_op(c, "cat");
	x->channels_first = 1;
	x->mag = 10;
	sy_add_conv_norm_act(c, x, "conv", half, 3, 1, 1);
	return 1;
}

/* Queries attend to a memory of another length. */
static int idiom_cross_attention(struct ww_comp *c, struct val *x)
{
	*x = sy_rows_input(c);
	int64_t d = x->t.d[2], h = sy_draw_divisor(c, d, 16), m = sy_draw_dim(c, 16, 1024);
	if (h < 2 || d / h < 16 || d / h > 256)
		return 0;
	struct ww_synth_type mt = sy_with_dim(x->t, 1, m), out = x->t;
	struct input *memory = sy_add_input(c, "memory", &mt, IN_NORMAL);
	if (!memory)
		return 0;
	struct val identity = sy_branch(c, x, "residual"), k = sy_input_value(c, memory), v;
	v = sy_branch(c, &k, "v");
	k = sy_branch(c, &k, "k");
	sy_add_linear(c, x, "q_proj", d, 1);
	sy_add_linear(c, &k, "k_proj", d, 0);
	sy_add_linear(c, &v, "v_proj", d, 1);
	char heads[28];
	snprintf(heads, sizeof(heads), "%s", sy_attribute(c, "num_heads"));
	sy_init_line(c, "self.%s = %s", heads, sy_hyper(c, "heads", h));
	split_heads(c, x, heads, h);
	split_heads(c, &k, heads, h);
	split_heads(c, &v, heads, h);
	double flops = 4.0 * (double)ww_synth_numel(&out) * (double)m;
	sy_assign(c, x, &out, 0, flops, "F.scaled_dot_product_attention(%s, %s, %s).transpose(1, 2).flatten(2)", x->name,
		k.name, v.name);
	sy_count_op(c, "attention");
	x->mag = 10;
	sy_add_linear(c, x, "out_proj", d, 1);
	combine(c, x, "+", &identity, 12);
	if (sy_chance(c, 0.6))
		sy_add_norm(c, x);
	return 1;
}

/* Tokens to rows, with positions, normed. */
static int idiom_embedding(struct ww_comp *c, struct val *x)
{
	*x = sy_input_for(c, sy_op_named("embedding"));
	if (!sy_try_row(c, "embedding", x) || !sy_try_row(c, "add_positions", x))
		return 0;
	sy_add_norm(c, x);
	return 1;
}

/* A recurrence, its last state, and a layer. */
static int idiom_recurrent_head(struct ww_comp *c, struct val *x)
{
	*x = sy_input_for(c, sy_op_named("lstm"));
	static const char *const kinds[] = { "lstm", "gru", "rnn_tanh" };
	if (!sy_try_row(c, PICK(c, kinds), x))
		return 0;
	struct ww_synth_type out = sy_without_dim(x->t, 1);
	sy_assign(c, x, &out, 0, 0, sy_chance(c, 0.5) ? "%s[:, -1]" : "%s.mean(dim=1)", x->name);
	x->mag = 1;
	sy_add_linear(c, x, "head", sy_draw_dim(c, 8, 1024), 1);
	return 1;
}

static int idiom_norm_linear(struct ww_comp *c, struct val *x)
{
	*x = sy_rows_input(c);
	int n = (int)sy_between(c, 1, 2);
	for (int i = 0; i < n; i++) {
		if (sy_chance(c, 0.7))
			sy_add_norm(c, x);
		sy_add_linear(c, x, "fc", sy_draw_dim(c, x->t.d[2] / 2 > 16 ? x->t.d[2] / 2 : 16, x->t.d[2] * 3), 1);
		sy_add_act(c, x);
	}
	return 1;
}

/* An image cut into patches. */
static int idiom_patches(struct ww_comp *c, struct val *x)
{
	static const int64_t patches[] = { 4, 7, 8, 14, 16 };
	int64_t p = PICK(c, patches), side = p * sy_draw_dim(c, 4, 28), d = sy_draw_dim(c, 64, 1024) / 8 * 8;
	int64_t lo[] = { 1, 3, side, side }, hi[] = { 512, 3, side, side };
	*x = sy_main_input(c, 4, lo, hi);
	if (x->t.d[2] != x->t.d[3] || x->t.d[2] % p || x->t.d[1] != 3)
		return 0;
	x->channels_first = 1;
	int64_t n = x->t.d[2] / p;
	struct ww_synth_type out = { x->t.dtype, 3, { x->t.d[0], n * n, d } };
	const char *name = sy_attribute(c, "patch_embed"), *size = sy_hyper(c, "patch_size", p);
	sy_init_line(
		c, "self.%s = nn.Conv2d(3, %s, kernel_size=%s, stride=%s)", name, sy_hyper(c, "embed_dim", d), size, size);
	sy_assign(c, x, &out, 0, 2.0 * (double)ww_synth_numel(&out) * (double)(3 * p * p),
		"self.%s(%s).flatten(2).transpose(1, 2)", name, x->name);
	sy_count_op(c, "conv");
	x->mag = 9;
	x->channels_first = 0;
	if (!sy_try_row(c, "add_positions", x))
		return 0;
	if (sy_chance(c, 0.5))
		sy_add_norm(c, x);
	return 1;
}

/* A classifier's end: pool, layer, loss or probabilities. */
static int idiom_head(struct ww_comp *c, struct val *x)
{
	*x = sy_image_input(c);
	if (!sy_try_row(c, "global_avg_pool", x))
		return 0;
	sy_add_linear(c, x, "classifier", sy_draw_dim(c, 10, 1000), 1);
	return sy_try_row(c, c->dtype == WW_SYNTH_F32 && sy_chance(c, 0.5) ? "cross_entropy" : "log_softmax", x);
}

static int idiom_loss(struct ww_comp *c, struct val *x)
{
	static const char *const losses[] = { "cross_entropy", "cross_entropy_smooth", "mse_loss", "distillation_loss",
		"contrastive_loss", "kl_div" };
	static const int64_t lo[] = { 32, 32 }, hi[] = { 65536, 4096 };
	if (c->dtype != WW_SYNTH_F32)
		return 0;
	*x = sy_main_input(c, 2, lo, hi);
	sy_add_linear(c, x, "proj", sy_draw_dim(c, 16, 4096), 1);
	return sy_try_row(c, PICK(c, losses), x);
}

static int idiom_rows(struct ww_comp *c, struct val *x)
{
	*x = sy_rows_input(c);
	return sy_rows_piece(c, x);
}

static int idiom_image(struct ww_comp *c, struct val *x)
{
	*x = sy_image_input(c);
	return sy_image_piece(c, x);
}

int sy_compose_idiom(struct ww_comp *c, struct val *out)
{
	static int (*const idioms[])(struct ww_comp *, struct val *) = { idiom_rows, idiom_image, idiom_conv_stack,
		idiom_decoder, idiom_cross_attention, idiom_embedding, idiom_recurrent_head, idiom_norm_linear, idiom_patches,
		idiom_head, idiom_loss };
	static const double weights[] = { 9, 8, 4, 2, 2, 1, 1, 3, 1, 1, 2 };
	return idioms[sy_choose(c, weights, WW_ARRAY_LEN(idioms))](c, out) && !c->failed;
}
