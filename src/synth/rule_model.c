/* rule_model.c - operators as models and their training have them: attention, recurrences, distances, losses. */
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void done(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, double mag)
{
	sy_count_op(c, op->name);
	x->by = op;
	x->facts = 0;
	x->flat = 0;
	x->mag = mag;
	x->channels_first = 0;
}

/* ---- Attention.  Heads: B x H x S x D; the value is the query. */

struct heads {
	int64_t b, h, s, d, kv, keys;
	double flops;
};

static int attention_heads(const struct ww_comp *c, const struct val *x, struct heads *a)
{
	if (!sy_is_float(x) || x->t.rank != 4 || (x->channels_first && !c->whole) || x->t.d[3] < 8 || x->t.d[3] > 256 ||
		x->t.d[2] < 4)
		return 0;
	*a = (struct heads){ x->t.d[0], x->t.d[1], x->t.d[2], x->t.d[3], x->t.d[1], x->t.d[2], 0 };
	return 1;
}

static int attention_masked(
	struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct heads *a, const char *k, const char *v)
{
	struct ww_synth_type out = x->t, m = { WW_SYNTH_BOOL, 4, { a->b, 1, op->variant == ATT_MASK ? 1 : a->s, a->keys } };
	if (op->variant == ATT_BIAS)
		m = (struct ww_synth_type){ c->dtype, 4, { 1, a->h, a->s, a->keys } };
	struct input *in = sy_add_input(
		c, op->variant == ATT_BIAS ? "attn_bias" : "attn_mask", &m, op->variant == ATT_BIAS ? IN_NORMAL : IN_BOOL);
	if (!in)
		return 0;
	sy_assign(c, x, &out, 4.0 * (double)ww_synth_bytes(&m), 2 * a->flops,
		"F.scaled_dot_product_attention(%s, %s, %s, attn_mask=%s)", x->name, k, v, in->name);
	return 1;
}

static void attention_manual(struct ww_comp *c, struct val *x, const struct heads *a, const char *k, const char *v)
{
	struct ww_synth_type out = x->t, s = { x->t.dtype, 4, { a->b, a->h, a->s, a->keys } };
	struct val score = *x;
	sy_variable(c, score.name, "scores");
	sy_line(c, "%s = torch.matmul(%s, %s.transpose(-2, -1)) / %lld ** 0.5", score.name, x->name, k, (long long)a->d);
	if (a->s == a->keys && sy_chance(c, 0.5)) {
		char mask[16];
		sy_variable(c, mask, "causal");
		sy_line(c, "%s = torch.ones(%s.shape[-2:], dtype=torch.bool, device=%s.device).triu(1)", mask, score.name,
			score.name);
		sy_line(c, "%s = %s.masked_fill(%s, float('-inf'))", score.name, score.name, mask);
	}
	sy_line(c, "%s = F.softmax(%s, dim=-1)", score.name, score.name);
	sy_assign(c, x, &out, 8.0 * (double)ww_synth_bytes(&s), 2 * a->flops, "torch.matmul(%s, %s)", score.name, v);
	c->memory_bytes += 3.0 * (double)ww_synth_bytes(&s);
	c->uses_f = 1;
}

static int attention_with(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, struct heads *a)
{
	double mag = 8.3;
	int half = c->dtype == WW_SYNTH_F16;
	if (op->variant == ATT_GROUPED) {
		int64_t g = sy_draw_divisor(c, a->h, 16);
		if (g < 2)
			return 0;
		a->kv = a->h / g;
	}
	if (op->variant == ATT_INPUTS && sy_chance(c, 0.4))
		a->keys = sy_draw_dim(c, 16, a->s * 2 > 32 ? a->s * 2 : 32);
	/* the product of two inputs overflows half precision where it is written out */
	if (op->variant == ATT_MANUAL && half)
		return 0;
	struct ww_synth_type kt = { x->t.dtype, 4, { a->b, a->kv, a->keys, a->d } }, out = x->t;
	if (c->n_in + 3 > MAX_INPUTS || c->at != c->cls[0])
		return 0;
	const char *k = sy_add_input(c, "k", &kt, IN_NORMAL)->name, *v = sy_add_input(c, "v", &kt, IN_NORMAL)->name;
	double more = 2.0 * (double)ww_synth_bytes(&kt);
	a->flops = 2.0 * (double)(a->b * a->h * a->s) * (double)(a->keys * a->d);
	int causal = op->variant == ATT_CAUSAL || (op->variant == ATT_GROUPED && sy_chance(c, 0.5));
	if (op->variant == ATT_MASK || op->variant == ATT_BIAS) {
		if (!attention_masked(c, op, x, a, k, v))
			return 0;
	} else if (op->variant == ATT_MANUAL) {
		attention_manual(c, x, a, k, v);
	} else if (op->variant == ATT_GROUPED) {
		const char *attr = sy_attribute(c, "groups");
		sy_init_line(c, "self.%s = %s", attr, sy_hyper(c, "groups", a->h / a->kv));
		sy_line(c, "%s = %s.repeat_interleave(self.%s, dim=1)", k, k, attr);
		sy_line(c, "%s = %s.repeat_interleave(self.%s, dim=1)", v, v, attr);
		sy_assign(c, x, &out, more * 4 * (double)(a->h / a->kv), 2 * a->flops,
			"F.scaled_dot_product_attention(%s, %s, %s%s)", x->name, k, v, causal ? ", is_causal=True" : "");
	} else {
		sy_assign(c, x, &out, more, 2 * a->flops, "F.scaled_dot_product_attention(%s, %s, %s%s)", x->name, k, v,
			causal ? ", is_causal=True" : "");
	}
	done(c, op, x, mag);
	return 1;
}

/* Kernel attention: softmax of keys and queries apart, then products in the cheap order. */
static int attention_linear(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct heads *a)
{
	struct ww_synth_type kt = x->t, out = x->t;
	if (c->n_in + 2 > MAX_INPUTS || c->at != c->cls[0] || c->dtype == WW_SYNTH_F16)
		return 0;
	const char *k = sy_add_input(c, "k", &kt, IN_NORMAL)->name, *v = sy_add_input(c, "v", &kt, IN_NORMAL)->name;
	char ctx[16], norm[16];
	double flops = 4.0 * (double)(a->b * a->h * a->s) * (double)(a->d * a->d);
	sy_variable(c, ctx, "context");
	sy_variable(c, norm, "norm");
	sy_line(c, "%s = F.elu(%s) + 1.0", x->name, x->name);
	sy_line(c, "%s = F.elu(%s) + 1.0", k, k);
	sy_line(c, "%s = torch.einsum('bhsd,bhse->bhde', %s, %s)", ctx, k, v);
	sy_line(c, "%s = torch.einsum('bhsd,bhd->bhs', %s, %s.sum(dim=2)).unsqueeze(-1)", norm, x->name, k);
	sy_assign(c, x, &out, 6.0 * (double)ww_synth_bytes(&kt), flops,
		"torch.einsum('bhsd,bhde->bhse', %s, %s) / (%s + 1e-6)", x->name, ctx, norm);
	c->uses_f = 1;
	done(c, op, x, 9);
	return 1;
}

/* On B x S x D: a learned query, or the module with its own projections. */
static int attention_rows(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	char init[120];
	if (!sy_is_float(x) || x->t.rank != 3 || (x->channels_first && !c->whole) || x->t.d[2] < 16 || x->t.d[2] > 4096 ||
		x->t.d[1] < 4)
		return 0;
	int64_t d = x->t.d[2], s = x->t.d[1];
	double rows = (double)(x->t.d[0] * s), mag = x->mag;
	const char *width = sy_feature(c, d);
	if (op->variant == ATT_POOL) {
		struct ww_synth_type out = sy_without_dim(x->t, 1);
		snprintf(init, sizeof(init), "torch.randn(%s) * %.4g", width, 1 / sqrt((double)d));
		const char *q = sy_parameter(c, "query", init);
		char w[16];
		sy_variable(c, w, "weights");
		sy_line(c, "%s = F.softmax(torch.matmul(%s, self.%s), dim=1).unsqueeze(-1)", w, x->name, q);
		sy_assign(c, x, &out, 2.0 * (double)ww_synth_bytes(&x->t), 0, "(%s * %s).sum(dim=1)", x->name, w);
		c->uses_f = 1;
		done(c, op, x, mag);
		return 1;
	}
	int64_t h = sy_draw_divisor(c, d, 16);
	if (h < 2 || d / h < 8)
		return 0;
	const char *name = sy_attribute(c, "attn");
	struct ww_synth_type out = x->t;
	sy_init_line(
		c, "self.%s = nn.MultiheadAttention(%s, %s, batch_first=True)", name, width, sy_hyper(c, "num_heads", h));
	double flops = 8 * rows * (double)(d * d) + 4 * rows * (double)(s * d);
	sy_assign(c, x, &out, 8.0 * (double)ww_synth_bytes(&out), flops, "self.%s(%s, %s, %s, need_weights=False)[0]", name,
		x->name, x->name, x->name);
	done(c, op, x, mag + 1);
	return 1;
}

RULE(attention)
{
	struct heads a;
	if (op->variant == ATT_POOL || op->variant == ATT_MODULE)
		return attention_rows(c, op, x);
	if (!attention_heads(c, x, &a))
		return 0;
	return op->variant == ATT_LINEAR ? attention_linear(c, op, x, &a) : attention_with(c, op, x, &a);
}

/* ---- Recurrences */

static int scan_gates(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	struct ww_synth_type out = x->t, h = sy_without_dim(x->t, 1);
	int64_t steps = x->t.d[1];
	if (steps > 64 || steps < 4)
		return 0;
	char state[16], outs[16];
	double mag = x->mag;
	const char *width = sy_feature(c, x->t.d[2]), *gate = NULL;
	sy_variable(c, state, "state");
	sy_variable(c, outs, "outputs");
	if (op->variant == 20) {
		char init[80];
		snprintf(init, sizeof(init), "torch.rand(%s)", width);
		gate = sy_parameter(c, "decay", init);
		sy_line(c, "decay = torch.sigmoid(self.%s)", gate);
	} else {
		gate = sy_attribute(c, "gate");
		sy_init_line(c, "self.%s = nn.Linear(%s, %s)", gate, width, width);
		sy_line(c, "gates = torch.sigmoid(self.%s(%s))", gate, x->name);
	}
	sy_line(c, "%s = torch.zeros_like(%s[:, 0])", state, x->name);
	sy_line(c, "%s = []", outs);
	sy_line(c, "for t in range(%s.shape[1]):", x->name);
	if (op->variant == 20)
		sy_line(c, "    %s = decay * %s + (1.0 - decay) * %s[:, t]", state, state, x->name);
	else
		sy_line(c, "    %s = gates[:, t] * %s + (1.0 - gates[:, t]) * %s[:, t]", state, state, x->name);
	sy_line(c, "    %s.append(%s)", outs, state);
	for (int64_t i = 0; i < steps; i++)
		sy_work(c, 4.0 * (double)ww_synth_bytes(&h), 0);
	sy_assign(c, x, &out, 0, op->variant == 21 ? 2.0 * (double)ww_synth_numel(&x->t) * (double)x->t.d[2] : 0,
		"torch.stack(%s, dim=1)", outs);
	done(c, op, x, mag);
	return 1;
}

/* The state that a cell goes on from; without one its weights of the state have no effect. */
static int cell_state(struct ww_comp *c, const struct ww_synth_type *t, int lstm, char *out, size_t n)
{
	const struct input *h = sy_add_input(c, "h", t, IN_NORMAL), *m = lstm ? sy_add_input(c, "c", t, IN_NORMAL) : NULL;
	if (!h || (lstm && !m))
		return 0;
	snprintf(out, n, lstm ? ", (%s, %s)" : ", %s", h->name, lstm ? m->name : "");
	return 1;
}

RULE(recurrence)
{
	char args[MAX_ARGS], state[64] = "";
	int cell = op->variant > 10 && op->variant < 20, gates = op->variant % 10;
	int r = x->t.rank;
	if (!sy_is_float(x) || c->dtype != WW_SYNTH_F32 || x->channels_first || r != (cell ? 2 : 3) ||
		x->t.d[r - 1] > 2048 || x->t.d[r - 1] < 4)
		return 0;
	if (op->variant >= 20)
		return scan_gates(c, op, x);
	int64_t in = x->t.d[r - 1], h = sy_draw_dim(c, 16, 1024), steps = cell ? 1 : x->t.d[1];
	struct ww_synth_type out = sy_with_dim(x->t, r - 1, h);
	if (steps > 512 || (cell && !cell_state(c, &out, gates == 4, state, sizeof(state))))
		return 0;
	int both = !cell && sy_chance(c, 0.2), layers = !cell && sy_chance(c, 0.3) ? 2 : 1;
	snprintf(args, sizeof(args), "%s, %s%s%s%s", sy_feature(c, in), sy_hyper(c, "hidden_size", h),
		layers > 1 ? ", num_layers=2" : "", cell ? "" : ", batch_first=True", both ? ", bidirectional=True" : "");
	const char *name = sy_attribute(c, cell ? "cell" : gates == 4 ? "lstm" : gates == 3 ? "gru" : "rnn");
	ww_auto_str made = WW_STR_INIT(300);
	ww_str_addf(&made, "%.*s%s)", (int)(strlen(op->m) - 2), op->m, args);
	sy_init_line(c, "self.%s = %s", name, made.p);
	double per_step = 2.0 * gates * (double)x->t.d[0] * (double)h * (double)(h + in);
	for (int64_t i = 0; i < steps * layers * (both + 1); i++)
		sy_work(c, (double)(h * h) * 16, per_step);
	if (both)
		out.d[r - 1] = 2 * h;
	sy_assign(c, x, &out, 0, 0, cell && gates == 3 ? "self.%s(%s%s)" : "self.%s(%s%s)[0]", name, x->name, state);
	done(c, op, x, 1);
	x->facts = UNIT;
	return 1;
}

/* ---- Distances */

static int distance_matrix(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	int r = x->t.rank;
	int64_t m = x->t.d[r - 2], n = sy_draw_dim(c, 8, m * 2 > 16 ? m * 2 : 16), d = x->t.d[r - 1];
	if (m < 4 || m > 4096 || d > 1024 || !sy_fits(c, 2 * x->mag + sy_log2_of((double)d)))
		return 0;
	struct ww_synth_type t = sy_with_dim(x->t, r - 2, n), out = sy_with_dim(x->t, r - 1, n);
	if (op->variant == DIST_L1 && (double)ww_synth_numel(&out) * (double)d > 4e8)
		return 0;
	struct input *y = sy_add_input(c, "y", &t, IN_NORMAL);
	if (!y)
		return 0;
	const char *a = x->name, *b = y->name;
	double more = (double)ww_synth_bytes(&t), flops = 2.0 * (double)ww_synth_numel(&out) * (double)d,
		   mag = x->mag + sy_log2_of((double)d) / 2 + 1;
	switch ((enum distance)op->variant) {
	case DIST_CDIST: sy_assign(c, x, &out, more, flops, "torch.cdist(%s, %s)", a, b); break;
	case DIST_RBF:
		sy_assign(c, x, &out, 2 * more, flops, "torch.exp(-torch.cdist(%s, %s).square() / %lld)", a, b,
			(long long)(d > 2 ? d : 2));
		mag = 1;
		break;
	case DIST_COSINE_MATRIX:
		sy_assign(
			c, x, &out, 2 * more, flops, "F.normalize(%s, dim=-1) @ F.normalize(%s, dim=-1).transpose(-1, -2)", a, b);
		mag = 1;
		break;
	case DIST_L1:
		sy_assign(c, x, &out, 3 * (double)ww_synth_bytes(&out) * (double)d, 0,
			"(%s.unsqueeze(-2) - %s.unsqueeze(-3)).abs().sum(dim=-1)", a, b);
		mag += sy_log2_of((double)d) / 2;
		break;
	default:
		sy_line(c, "dot = torch.matmul(%s, %s.transpose(-1, -2))", a, b);
		sy_assign(c, x, &out, 3 * more, flops,
			"%s.square().sum(dim=-1, keepdim=True) - 2.0 * dot + %s.square().sum(dim=-1).unsqueeze(-2)", a, b);
		mag *= 2;
	}
	done(c, op, x, mag);
	x->facts = op->variant == DIST_COSINE_MATRIX ? UNIT : op->variant == DIST_SQUARED ? 0 : NONNEG;
	return 1;
}

RULE(distance)
{
	int r = x->t.rank, pairs = op->variant == DIST_COSINE || op->variant == DIST_PAIRWISE;
	if (!sy_is_float(x) || r < 2 || x->channels_first || c->dtype != WW_SYNTH_F32 || x->t.d[r - 1] < 4)
		return 0;
	if (!pairs)
		return distance_matrix(c, op, x);
	struct ww_synth_type out = sy_without_dim(x->t, r - 1);
	if (x->t.d[r - 1] > 1024 || ww_synth_numel(&out) < 16)
		return 0;
	struct input *y = sy_add_input(c, "y", &x->t, IN_NORMAL);
	if (!y)
		return 0;
	double mag = x->mag + sy_log2_of((double)x->t.d[r - 1]) / 2 + 1, more = (double)ww_synth_bytes(&x->t);
	if (op->variant == DIST_COSINE)
		sy_assign(c, x, &out, 2 * more, 0, "F.cosine_similarity(%s, %s, dim=-1)", x->name, y->name);
	else
		sy_assign(c, x, &out, more, 0, "F.pairwise_distance(%s, %s)", x->name, y->name);
	done(c, op, x, op->variant == DIST_COSINE ? 1 : mag);
	x->facts = op->variant == DIST_COSINE ? UNIT : NONNEG;
	return 1;
}

/* ---- Losses.  A mean over very many elements hardly depends on the draw, so a loss is taken a row at a time there. */

static const struct input *target(struct ww_comp *c, const struct val *x, enum input_kind kind)
{
	return sy_add_input(c, "target", &x->t, kind);
}

/* Loss of each row: `form` gives one number an element. */
static void by_rows(struct ww_comp *c, struct val *x, double more, const char *form)
{
	struct ww_synth_type out = { x->t.dtype, 1, { x->t.d[0] } };
	sy_assign(c, x, &out, more, 0, "(%s).flatten(1).mean(dim=1)", form);
}

/* F.xxx(a, b) with reduction='none'. */
static void loss_function(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const char *args)
{
	ww_auto_str text = WW_STR_INIT(600);
	for (const char *p = op->f; *p; p++) {
		if (*p == '$')
			ww_str_adds(&text, x->name);
		else if (*p == '@' && p[1] == '@' && ++p)
			ww_str_adds(&text, "0.5");
		else if (*p == '@')
			ww_str_adds(&text, args);
		else
			ww_str_addc(&text, *p);
	}
	char *end = strstr(text.p, ").mean()");
	int own = end != NULL;
	if (own)
		end[1] = 0;
	else
		text.p[strlen(text.p) - 1] = 0;
	ww_auto_str full = WW_STR_INIT(700);
	ww_str_addf(&full, "%s%s", text.p, own ? "" : ", reduction='none')");
	by_rows(c, x, 2.0 * (double)ww_synth_bytes(&x->t), full.p);
}

static int loss_elements(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	static const enum input_kind kinds[] = {
		[LOSS_MASK] = IN_MASK, [LOSS_SIGN] = IN_SIGN, [LOSS_POSITIVE] = IN_POSITIVE, [LOSS_RANKING] = IN_NORMAL
	};
	enum loss v = (enum loss)op->variant;
	char args[120];
	const struct input *t = target(c, x, v < WW_ARRAY_LEN(kinds) ? kinds[v] : IN_NORMAL), *s = NULL;
	if (!t)
		return 0;
	snprintf(args, sizeof(args), "%s", t->name);
	if (v == LOSS_RANKING) {
		if (!(s = sy_add_input(c, "order", &x->t, IN_SIGN)))
			return 0;
		snprintf(args, sizeof(args), "%s, %s", t->name, s->name);
	}
	loss_function(c, op, x, args);
	return 1;
}

static int loss_classes(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	struct ww_synth_type t = sy_without_dim(x->t, 1), out = { x->t.dtype, 1, { x->t.d[0] } };
	if (x->t.d[1] < 3 || (x->t.rank > 2 && (!x->channels_first || strstr(op->f, "nll") || strstr(op->f, "margin"))))
		return 0;
	t.dtype = WW_SYNTH_I64;
	struct input *in = sy_add_input(c, "target", &t, IN_INDEX);
	if (!in)
		return 0;
	in->high = x->t.d[1];
	ww_auto_str text = WW_STR_INIT(600);
	for (const char *p = op->f; *p; p++)
		ww_str_adds(&text, *p == '$' ? x->name : *p == '@' ? in->name : (char[2]){ *p, 0 });
	text.p[strlen(text.p) - 1] = 0;
	sy_assign(c, x, &out, 2.0 * (double)ww_synth_bytes(&x->t), 0, "%s, reduction='none')%s", text.p,
		t.rank > 1 ? ".flatten(1).mean(dim=1)" : "");
	return 1;
}

/* Written out: what PyTorch has no function for, or needs two more inputs. */
static int loss_composed(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	enum loss v = (enum loss)op->variant;
	struct ww_synth_type out = { x->t.dtype, 1, { x->t.d[0] } };
	double more = 4.0 * (double)ww_synth_bytes(&x->t);
	const char *a = x->name;
	const struct input *t = target(c, x, v == LOSS_FOCAL || v == LOSS_DICE ? IN_MASK : IN_NORMAL), *u;
	if (!t)
		return 0;
	const char *b = t->name;
	switch (v) {
	case LOSS_LOG_COSH:
		sy_line(c, "diff = torch.abs(%s - %s)", a, b);
		by_rows(c, x, more, "diff + F.softplus(-2.0 * diff) - math.log(2.0)");
		break;
	case LOSS_FOCAL:
		sy_line(c, "bce = F.binary_cross_entropy_with_logits(%s, %s, reduction='none')", a, b);
		by_rows(c, x, more, "(1.0 - torch.exp(-bce)) ** 2 * bce");
		break;
	case LOSS_DICE:
		sy_line(c, "prob = torch.sigmoid(%s).flatten(1)", a);
		sy_line(c, "truth = %s.flatten(1)", b);
		sy_assign(c, x, &out, more, 0,
			"1.0 - (2.0 * (prob * truth).sum(dim=1) + 1.0) / (prob.sum(dim=1) + truth.sum(dim=1) + 1.0)");
		break;
	case LOSS_JS:
		sy_line(c, "p = F.softmax(%s, dim=-1)", a);
		sy_line(c, "q = F.softmax(%s, dim=-1)", b);
		sy_line(c, "m = torch.log(0.5 * (p + q) + 1e-6)");
		sy_assign(c, x, &out, more, 0,
			"(p * (torch.log(p + 1e-6) - m) + q * (torch.log(q + 1e-6) - m)).flatten(1).sum(dim=1)");
		break;
	case LOSS_KL:
		sy_assign(c, x, &out, more, 0,
			"F.kl_div(F.log_softmax(%s, dim=-1), F.softmax(%s, dim=-1), reduction='none').flatten(1).sum(dim=1)", a, b);
		break;
	case LOSS_DISTIL:
		sy_line(c, "teacher = F.softmax(%s / 2.0, dim=-1)", b);
		sy_assign(c, x, &out, more, 0, "-(teacher * F.log_softmax(%s / 2.0, dim=-1)).flatten(1).sum(dim=1)", a);
		break;
	case LOSS_TRIPLET:
		if (x->t.rank != 2 || !(u = sy_add_input(c, "negative", &x->t, IN_NORMAL)))
			return 0;
		sy_assign(c, x, &out, more, 0, "F.triplet_margin_loss(%s, %s, %s, reduction='none')", a, b, u->name);
		break;
	case LOSS_COSINE:
		sy_assign(c, x, &out, more, 0, "1.0 - F.cosine_similarity(%s.flatten(1), %s.flatten(1), dim=-1)", a, b);
		break;
	default: /* every row against every other, as CLIP and SimCLR have it */
		if (x->t.rank != 2 || x->t.d[0] > 8192 || x->t.d[0] < 8)
			return 0;
		sy_line(c, "logits = F.normalize(%s, dim=-1) @ F.normalize(%s, dim=-1).t() / 0.1", a, b);
		sy_work(c, 0, 2.0 * (double)ww_synth_numel(&x->t) * (double)x->t.d[0]);
		sy_assign(c, x, &out, 8.0 * (double)(x->t.d[0] * x->t.d[0]), 0,
			"F.cross_entropy(logits, torch.arange(logits.shape[0], device=logits.device), reduction='none')");
	}
	c->uses_f |= v != LOSS_DICE;
	return 1;
}

RULE(loss)
{
	enum loss v = (enum loss)op->variant;
	int ok;
	if (!sy_is_float(x) || x->t.rank < 2 || x->t.d[0] < 4 || c->dtype != WW_SYNTH_F32 || x->flat)
		return 0;
	int64_t row = ww_synth_numel(&x->t) / x->t.d[0];
	if (row < 4 || (row > 8192 && v != LOSS_CLASS && v != LOSS_CONTRASTIVE) ||
		(v == LOSS_CLASS && x->t.rank > 2 && row / x->t.d[1] > 4096))
		return 0;
	switch (v) {
	case LOSS_VALUE:
	case LOSS_MASK:
	case LOSS_SIGN:
	case LOSS_POSITIVE:
	case LOSS_RANKING: ok = loss_elements(c, op, x); break;
	case LOSS_CLASS: ok = loss_classes(c, op, x); break;
	default: ok = loss_composed(c, op, x);
	}
	if (!ok)
		return 0;
	done(c, op, x, 10);
	x->facts = v == LOSS_POSITIVE ? 0 : NONNEG;
	return 1;
}
