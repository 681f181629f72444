/* attention.c - softmax(q k^T scale + mask) v in one pass over the keys. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <math.h>
#include <string.h>
#include <ww/recipe/attention_tile.h>
#include <ww/recipe/gemm_tile.h>

static struct val *by_products(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v,
	struct val *mask, int causal, double scale)
{
	int r = q->rank, perm[PL_MAX_RANK];
	struct val *s;

	for (int i = 0; i < r; i++)
		perm[i] = i == r - 1 ? r - 2 : i == r - 2 ? r - 1 : i;
	/* scores stay fp32, as in PyTorch's kernels: in 16 bits they may overflow before they are scaled */
	s = pl_gemm_to(pl, n, q, pl_permute(pl, k, perm), q->dt == WW_F64 ? WW_F64 : WW_F32);
	s = pl_op2(pl, OP_MUL, s, pl_constf(pl, s->dt, scale));
	if (causal)
		s = pl_where(pl,
			pl_index(pl, WW_BOOL, s->rank, s->size, ix_lt(pl, pl->place[r - 1], ix_addc(pl, pl->place[r - 2], 1))), s,
			pl_constf(pl, s->dt, -INFINITY));
	if (mask)
		s = mask->dt == WW_BOOL ? pl_where(pl, mask, s, pl_constf(pl, s->dt, -INFINITY))
								: pl_op2(pl, OP_ADD, s, pl_cast(pl, mask, s->dt));
	return pl_gemm(pl, n, pl_cast(pl, pl_softmax(pl, s, r - 1, PL_SOFTMAX), v->dt), v);
}

/* ---- Which template ---------------------------------------------------------------------------------------------- */

enum form { TILES, MMA, HALVES }; /* ww::attention, ww::attention_mma, ww::attention16 */
enum { MASK = 3 };                /* the operand that maps scores (a mask, a bias): an expression of the functor */

static int is_wide(int64_t d) { return d == 64 || d == 128; }

static const struct pl_band everything = { WW_ATTENTION_ALL, WW_ATTENTION_ALL }, causal_band = { WW_ATTENTION_ALL, 0 };

static int is_causal(const struct pl_band *b) { return b->below == WW_ATTENTION_ALL && b->above == 0; }

static int is_banded(const struct pl_band *b)
{
	return !is_causal(b) && (b->below != WW_ATTENTION_ALL || b->above != WW_ATTENTION_ALL);
}

/* Keys that a row of a band sees, of so many; 0: no band. */
static long long span_of(const struct pl_band *b, const struct ix *keys)
{
	return is_banded(b) ? ww_attention_span(b->below, b->above, ix_num(keys)) : 0;
}

/* Can ww::attention compute it, whose heads are 64 or 128 wide and whose fp32 operands are split by extra launches?  On
 * the cpu: ww_cpu_attention(), which has heads in groups and maps scores. */
static int fits_tiles(
	const struct pl *pl, struct val *q, struct val *k, struct val *v, int masked, int causal, int64_t group)
{
	int64_t d = ix_num(q->size[q->rank - 1]);
	int scaled = pl_power(q) <= POWER_OF_SCALED && pl_power(k) <= POWER_OF_SCALED && pl_power(v) <= POWER_OF_SCALED;

	if (q->rank != 4 || q->dt != WW_F32 || d != ix_num(v->size[3]) ||
		(causal && ix_num(q->size[2]) != ix_num(k->size[2])))
		return 0;
	return pl->target == WW_TARGET_CUDA ? is_wide(d) && !masked && group == 1 && scaled : d <= 256;
}

static struct ww_attention_size size_of(const struct pl *pl, const struct val *q, const struct val *k,
	const struct val *v, int masked, const struct pl_band *band, int64_t group)
{
	int r = q->rank;

	return (struct ww_attention_size){ .batch = pl_numel_now(q) / (ix_num(q->size[r - 2]) * ix_num(q->size[r - 1])),
		.group = group,
		.t_q = ix_num(q->size[r - 2]),
		.t_k = ix_num(k->size[r - 2]),
		.width = ix_num(q->size[r - 1]),
		.width_v = ix_num(v->size[r - 1]),
		.bytes = pl_itemsize(q->dt),
		.causal = is_causal(band),
		.masked = masked,
		.span = span_of(band, k->size[r - 2]),
		.sms = pl->dev.sm_count ? pl->dev.sm_count : 132 };
}

/* Estimated microseconds of ww::attention on an H200: seven launches that split operands, and products at the rate of
 * gemm3 (560 estimated where 538 were measured, bench/results/cookbook-cuda.md). */
static double tiles_us(const struct ww_attention_size *s)
{
	double rows = ceil((double)s->t_q / 128), w = (double)(s->width + s->width_v), heads = (double)s->batch;
	double bytes = 12 * heads * ((double)s->t_q * (double)s->width + (double)s->t_k * w);
	double tiles = ceil((double)s->t_k / (s->width == 64 ? 128 : 64)) * (s->width == 64 ? 128 : 64);

	return 14 + bytes / 3e6 +
		ceil(heads * rows / (double)s->sms) * (2 + 128 * tiles * w * (s->causal ? .6 : 1) / 850e3);
}

/* Can ww::attention16 compute it? */
static int has_halves(const struct pl *pl, const struct ww_attention_size *s)
{
	const struct ww_attention16_tile tile = ww_attention16_choose(s);

	return pl->dev.cc == 90 && s->bytes == 2 && s->batch <= 65535 && s->width <= 256 && s->width_v <= 256 &&
		!(s->masked && (s->width > 128 || s->width_v > 128)) &&
		ww_attention16_bytes(s, &tile) <= pl->dev.shared_per_block_bytes;
}

/* Estimated microseconds of two products and a softmax, which write and read the scores. */
static double products_us(const struct ww_attention_size *s)
{
	double scores = (double)s->batch * (double)s->t_q * (double)s->t_k;
	struct ww_mma_size a = { .m = s->t_q,
		.n = s->t_k,
		.k = s->width,
		.batch = s->batch,
		.bytes = s->bytes,
		.a_vector = 16 / s->bytes,
		.b_vector = 16 / s->bytes,
		.sms = s->sms };
	struct ww_mma_size b = a;

	b.n = s->width_v;
	b.k = s->t_k;
	return ww_mma_choose(&a).us + ww_mma_choose(&b).us + 2 + scores * (8 + 2 * s->bytes) / 3e6;
}

/* Have q and k the same batches, heads and type? */
static int same_heads(const struct val *q, const struct val *k)
{
	for (int d = 0; d < q->rank - 2; d++)
		if (ix_num(q->size[d]) != ix_num(k->size[d]))
			return 0;
	return q->rank == k->rank && q->dt == k->dt;
}

static int fits_mma(const struct pl *pl, const struct val *q, const struct val *k, const struct val *v, double scale)
{
	int r = q->rank, widest = q->dt == WW_F32 ? 128 : 256;

	return pl->target == WW_TARGET_CUDA && pl->dev.cc >= 80 && !pl_all_plain(pl) && (r == 3 || r == 4) &&
		same_heads(q, k) && same_heads(q, v) && (q->dt == WW_F32 || pl_is_half(q->dt)) && scale > 0 &&
		ix_num(q->size[r - 1]) <= widest && ix_num(v->size[r - 1]) <= widest && pl_numel_now(q) > 0 &&
		pl_numel_now(k) > 0 && pl_numel_now(v) > 0 && ix_num(k->size[r - 2]) == ix_num(v->size[r - 2]);
}

/* Does x depend on its head (axis 1) only through head / group? */
static int shares_heads(struct pl *pl, const struct val *x, int64_t group)
{
	const struct ix *idx[PL_MAX_RANK], *sub[PL_MAX_RANK], *size = ix_const(pl, group);
	const struct ix *rest = ix_var(pl, "rest", size), *head = ix_var(pl, "head", ix_div(pl, x->size[1], size));

	for (int d = 0; d < x->rank; d++)
		idx[d] = d == 1 ? ix_add(pl, ix_mul(pl, head, size), rest) : ix_var(pl, "o", x->size[d]);
	while (x->kind == V_VIEW && !x->root) {
		if (x->cond)
			return 0;
		pl_map_index(pl, x, x->map, x->arg[0]->rank, idx, sub);
		x = x->arg[0];
		memcpy(idx, sub, sizeof(idx));
	}
	for (int d = 0; d < x->rank; d++)
		if (ix_has(idx[d], ix_as_var(rest)))
			return 0;
	return 1;
}

/* Grouped-query attention: the largest number of adjacent heads of q that share a head of k and v. */
static int64_t group_of(struct pl *pl, const struct val *k, const struct val *v)
{
	int64_t heads = k->rank == 4 ? ix_num(k->size[1]) : 1;

	for (int64_t g = heads; g > 1; g--)
		if (heads % g == 0 && shares_heads(pl, k, g) && shares_heads(pl, v, g))
			return g;
	return 1;
}

/* x (batch, heads, ...) with one head for each group. */
static struct val *one_of_group(struct pl *pl, struct val *x, int64_t group)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];

	if (group == 1)
		return x;
	pl_guard_eq(pl, x->size[1], ix_const(pl, ix_num(x->size[1])), "the number of heads");
	for (int d = 0; d < x->rank; d++) {
		size[d] = d == 1 ? ix_const(pl, ix_num(x->size[1]) / group) : x->size[d];
		map[d] = d == 1 ? ix_mulc(pl, pl->place[1], group) : pl->place[d];
	}
	return pl_view(pl, x, x->rank, size, map);
}

/* The value that stands for a score in the functor's expression. */
static struct val *score(struct pl *pl, int dt)
{
	struct val *v = pl_constf(pl, dt, NAN);

	v->given = "v";
	return v;
}

/* The functor's expression of a score with `mask` applied. */
static struct val *masked(struct pl *pl, struct val *mask, const struct val *q, const struct val *k)
{
	const struct ix *size[PL_MAX_RANK];
	int r = q->rank;

	memcpy(size, q->size, sizeof(size));
	size[r - 1] = k->size[r - 2];
	if (mask->dt == WW_BOOL)
		return pl_where(pl, pl_expand(pl, mask, r, size), score(pl, WW_F32), pl_constf(pl, WW_F32, -INFINITY));
	return pl_op2(pl, OP_ADD, score(pl, WW_F32), pl_expand(pl, pl_cast(pl, mask, WW_F32), r, size));
}

/* The expression of a score, or NULL if it is the score itself. */
static struct val *mapped(struct val *becomes)
{
	const struct val *v = becomes;

	while (v->kind == V_OP && v->op == OP_CAST)
		v = v->arg[0];
	return v->given ? NULL : becomes;
}

static void guard_sizes(struct pl *pl, const struct val *q, const struct val *k, const struct val *v)
{
	int r = q->rank;

	for (int d = 0; d < r - 2; d++) {
		pl_guard_eq(pl, q->size[d], k->size[d], "the heads of attention");
		pl_guard_eq(pl, q->size[d], v->size[d], "the heads of attention");
	}
	pl_guard_eq(pl, q->size[r - 1], k->size[r - 1], "the head size");
	pl_guard_eq(pl, k->size[r - 2], v->size[r - 2], "the lengths of keys and values");
}

/* becomes: the expression of a score that the softmax takes; NULL: the score itself. */
static struct val *attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v,
	struct val *becomes, const struct pl_band *band, double scale, int64_t group, int tiles)
{
	const struct ix *size[PL_MAX_RANK];
	struct anchor *s = pl_anchor(pl, n, S_ATTN, "attention");
	int r = q->rank;

	s->attn.scale = scale;
	s->attn.band = *band;
	s->attn.group = (int)group;
	s->attn.tiles = tiles;
	guard_sizes(pl, q, k, v);
	memcpy(size, q->size, sizeof(size));
	size[r - 1] = v->size[r - 1];
	for (struct val *const *x = (struct val *const[]){ q, v, NULL }; *x; x++)
		pl_guard_eq(pl, (*x)->size[r - 1], ix_const(pl, ix_num((*x)->size[r - 1])), "the width of heads");
	pl_anchor_operand(s, q);
	pl_anchor_operand(s, one_of_group(pl, k, group));
	pl_anchor_operand(s, one_of_group(pl, v, group));
	if (becomes)
		pl_anchor_operand(s, becomes);
	return pl_anchor_out(pl, s, q->dt, r, size);
}

/* Is attention in one kernel faster than two GEMMs with a softmax between them? */
static int pays(const struct pl *pl, const struct val *q, const struct val *k, const struct val *v, int has_mask,
	const struct pl_band *band, int64_t group)
{
	struct ww_attention_size at = size_of(pl, q, k, v, has_mask, band, group);
	struct ww_attention_tile tile = ww_attention_choose(&at);
	const double us = products_us(&at);

	return (tile.us < us && ww_attention_mma_bytes(&at, &tile, 0, 0, 0) <= pl->dev.shared_per_block_bytes) ||
		(has_halves(pl, &at) && ww_attention16_choose(&at).us + 6 < us);
}

struct val *pl_attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v, struct val *mask,
	int causal, double scale)
{
	int mma = fits_mma(pl, q, k, v, scale), cpu = pl->target == WW_TARGET_CPU;
	int64_t group = (mma || cpu) && same_heads(q, k) && same_heads(q, v) ? group_of(pl, k, v) : 1;
	int tiles = (cpu || scale > 0) && fits_tiles(pl, q, k, v, mask != NULL, causal, group);
	struct pl_band band = causal ? causal_band : everything;
	struct val *becomes = (mma || tiles) && mask ? masked(pl, mask, q, k) : NULL;

	if (becomes && !cpu)
		becomes = pl_without_band(pl, becomes, &band);
	becomes = becomes ? mapped(becomes) : NULL;

	if (!tiles && !(mma && pays(pl, q, k, v, becomes != NULL, &band, group)))
		return by_products(pl, n, q, k, v, mask, causal, scale);
	return attention(pl, n, q, k, v, becomes, &band, scale, group, tiles);
}

/* ---- Attention written as two products --------------------------------------------------------------------------- */

/* What in_terms_of_score() finds in a softmax's operand: the GEMM that computes the scores, and the factor they have.
 */
struct written {
	struct val *product;
	double scale;
	int failed;
};

/* The GEMM whose whole result v is; or NULL. */
static struct val *product_of(struct val *v)
{
	return v->kind == V_ANCHOR && v->anchor->kind == S_GEMM && !v->root && v->rank == v->anchor->gemm.n_batch + 2
		? v
		: NULL;
}

/* Does v read an anchor's result or a reduction, which the functor cannot compute? */
static int needs_more(const struct val *v)
{
	if (v->root || v->kind == V_BUF)
		return 0;
	if (v->kind == V_ANCHOR || v->kind == V_RED)
		return 1;
	for (int i = 0; i < v->n_arg; i++)
		if (needs_more(v->arg[i]))
			return 1;
	return 0;
}

/* Is v a GEMM's result times constants?  *scale: their product. */
static int is_scaled(struct written *w, struct val *v, double *scale)
{
	int by_const = v->kind == V_OP && v->n_arg == 2 && v->arg[1]->kind == V_CONST && !v->root;

	if (v->kind == V_OP && v->op == OP_CAST && !v->root)
		return is_scaled(w, v->arg[0], scale);
	if (by_const && (v->op == OP_MUL || v->op == OP_DIV) && is_scaled(w, v->arg[0], scale)) {
		*scale = v->op == OP_MUL ? *scale * v->arg[1]->f : *scale / v->arg[1]->f;
		return 1;
	}
	if (!product_of(v))
		return 0;
	w->product = v;
	*scale = 1;
	return 1;
}

/* v with the scaled product replaced by score(); sets w->failed if that is not possible. */
static struct val *in_terms_of_score(struct pl *pl, struct written *w, struct val *v)
{
	struct val *before = w->product, *r;
	double scale;

	if (is_scaled(w, v, &scale)) {
		w->failed |= before && (before != w->product || scale != w->scale);
		w->scale = scale;
		return score(pl, v->dt);
	}
	if (v->kind != V_OP || v->root || v->force_root) {
		w->failed |= needs_more(v);
		return v;
	}
	r = pl_val(pl, V_OP, v->dt, v->rank, v->size);
	r->op = v->op;
	r->n_arg = v->n_arg;
	for (int i = 0; i < v->n_arg; i++)
		r->arg[i] = in_terms_of_score(pl, w, v->arg[i]);
	return r;
}

struct val *pl_attention_of(struct pl *pl, struct gnode *n, struct val *weights, struct val *v)
{
	struct written w = { NULL, 1, 0 };
	struct pl_band band = everything;
	struct val *becomes, *q, *k;
	int perm[PL_MAX_RANK], r = weights->rank;
	int64_t group;

	while (weights->kind == V_OP && weights->op == OP_CAST && !weights->softmax_of)
		weights = weights->arg[0];
	if (!weights->softmax_of || weights->root)
		return NULL;
	becomes = in_terms_of_score(pl, &w, weights->softmax_of);
	if (!w.product || w.failed || w.product->rank != r)
		return NULL;
	for (int i = 0; i < r; i++)
		perm[i] = i == r - 1 ? r - 2 : i == r - 2 ? r - 1 : i;
	q = w.product->anchor->in[0].val;
	k = pl_permute(pl, w.product->anchor->in[1].val, perm);
	if (!fits_mma(pl, q, k, v, w.scale))
		return NULL;
	group = group_of(pl, k, v);
	becomes = mapped(pl_without_band(pl, becomes, &band));
	if (!pays(pl, q, k, v, becomes != NULL, &band, group))
		return NULL;
	return attention(pl, n, q, k, v, becomes, &band, w.scale, group, 0);
}

/* ww::attention needs operands that are contiguous along the width, with aligned rows on cuda. */
static int is_along_width(const struct pl *pl, const struct operand *o)
{
	int aligned = ix_num(o->offset) % 4 == 0;

	for (int d = 0; d < o->rank - 1; d++)
		aligned &= ix_num(o->stride[d]) % 4 == 0;
	return ix_is(o->stride[o->rank - 1], 1) && (aligned || pl->target == WW_TARGET_CPU);
}

static int has_mma(const struct pl *pl)
{
	return pl->target == WW_TARGET_CUDA && pl->dev.cc >= 80 && !pl_all_plain(pl);
}

static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	int r = o->rank;

	(void)s, (void)which;
	return is_along_width(pl, o) || (has_mma(pl) && (ix_is(o->stride[r - 1], 1) || ix_is(o->stride[r - 2], 1)));
}

/* ---- Schedule ---------------------------------------------------------------------------------------------------- */

/* What the kernel computes, of the operands as they lie. */
static struct ww_attention_size size_of_kernel(const struct pl *pl, const struct anchor *s)
{
	const struct operand *q = &s->in[0], *v = &s->in[2];
	const int r = s->out->rank;
	int64_t heads = 1;

	for (int d = 0; d < r - 2; d++)
		heads *= ix_num(s->out->size[d]);
	return (struct ww_attention_size){ .batch = heads,
		.group = s->attn.group,
		.t_q = ix_num(s->out->size[r - 2]),
		.t_k = ix_num(s->in[1].size[r - 2]),
		.width = ix_num(q->size[r - 1]),
		.width_v = ix_num(v->size[r - 1]),
		.bytes = pl_itemsize(q->val->dt),
		.causal = is_causal(&s->attn.band),
		.masked = s->n_in > MASK,
		.span = span_of(&s->attn.band, s->in[1].size[r - 2]),
		.sms = pl->dev.sm_count ? pl->dev.sm_count : 132 };
}

/* Is o contiguous along an axis, with all other terms multiples of n elements? */
static int is_multiple(const struct operand *o, int n, int along)
{
	int fits = ix_num(o->offset) % n == 0 && ix_is(o->stride[along], 1);

	for (int d = 0; d < o->rank; d++)
		fits &= d == along || ix_is(o->size[d], 1) || ix_num(o->stride[d]) % n == 0;
	return fits;
}

/* Do tensor copies read o as it lies? */
static int is_copied_as_it_lies(const struct operand *o)
{
	int fits = is_multiple(o, 8, o->rank - 1);

	for (int d = 0; d < o->rank - 1; d++)
		fits &= ix_is(o->size[d], 1) || ix_num(o->stride[d]) > 0;
	return fits;
}

/* Estimated microseconds of ww::attention16 with the copies of operands that it cannot read as they lie. */
static double halves_us(const struct anchor *s, const struct ww_attention_size *at)
{
	double us = ww_attention16_choose(at).us;

	for (int i = 0; i < MASK; i++) {
		const struct operand *o = &s->in[i];
		const long long rows = i ? at->batch / at->group * at->t_k : at->batch * at->t_q;

		if (!is_copied_as_it_lies(o))
			us += 2 + (double)(rows * ix_num(o->size[o->rank - 1])) * 4 / 3e6;
	}
	return us;
}

/* The same of ww::attention_mma.  Elements of 16 bits that are not aligned to 4 bytes are no asynchronous copies: a
 * thread loads four and waits for them, some 600 clocks (485 us in place of 30 for heads of 67 columns). */
static double mma_us(const struct anchor *s, const struct ww_attention_size *at)
{
	const struct ww_attention_tile t = ww_attention_choose(at);
	const long long rows = 16 * t.warps * t.mt, blocks = (at->t_q + rows - 1) / rows * at->batch;
	const double waves = ceil((double)blocks / (double)(at->sms * t.blocks));
	const double keys = ceil((double)at->t_k / t.keys) * t.keys * ww_attention_part(at, rows);
	double us = t.us;

	for (int i = 1; i < MASK && at->bytes == 2; i++) {
		const struct operand *o = &s->in[i];
		const int r = o->rank;

		if (!is_multiple(o, 2, r - 1) && !is_multiple(o, 2, r - 2))
			us += waves * keys * (double)ix_num(o->size[r - 1]) / (32 * t.warps * t.teams) * 600 / 4 / 1755;
	}
	return us;
}

/* The form that is estimated to be the fastest at the traced sizes. */
static enum form best_form(struct pl *pl, const struct kern *k)
{
	const struct anchor *s = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct ww_attention_size at = size_of_kernel(pl, s);
	int tiles = s->attn.tiles && pl->dev.cc == 90;

	if (!has_mma(pl))
		return TILES;
	for (int i = 0; i < MASK; i++)
		tiles &= is_along_width(pl, &s->in[i]);
	if (!tiles && !has_halves(pl, &at))
		return MMA;
	if (kn->attn.form)
		return kn->attn.form == 1 ? MMA : tiles ? TILES : HALVES;
	if (tiles)
		return tiles_us(&at) < ww_attention_choose(&at).us ? TILES : MMA;
	/* of about equal ones the one launch without maps */
	return halves_us(s, &at) < .95 * mma_us(s, &at) ? HALVES : MMA;
}

static void build(struct pl *pl, struct kern *k)
{
	const struct anchor *s = k->anchor;
	int r = s->out->rank;
	struct loop *l = k->loop;

	l->form = pl->target == WW_TARGET_CUDA ? best_form(pl, k) : TILES;
	if (s->n_in > MASK) {
		const struct ix *idx[PL_MAX_RANK], *key = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), s->in[1].size[r - 2]);

		pl_operand_place(s, MASK, k->anchor_idx, key, idx);
		l->lane = ix_as_var(key);
		l->width = pl_widest(s->in[1].size[r - 2], 2);
		l->load = pl_load_body_of(pl, k, MASK, "col", idx);
		if (pl->target == WW_TARGET_CPU)
			l->load = pl_fmt(pl, "const ix_t %s_0 = col;\n%s", l->lane->name, l->load);
	}
	l->lane = pl_lane_of(pl, k, r - 1);
	l->width = l->form != TILES && ix_num(s->out->size[r - 1]) % 2 ? 1 : 2;
	if (l->form == HALVES && pl_store_width(pl, k, "col", 8) == 8)
		l->width = 8;
	l->store = pl_store_body(pl, k, "col");
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_attn.bq), "bq", { 64, 128 } },
	{ KNOB(cpu_attn.bk), "bk", { 96, 384 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *strides = "", *bufs = "", *scale = pl_fmt(pl, "%.9g", sp->attn.scale);
	const char *axes = pl_fmt(pl, "%s%s", pl_axes(pl, k, 0, 2, "z"), pl_axis(pl, k, 2, "row"));

	pl_cpu_context(pl, k, s);
	if (k->loop->load)
		pl_cpu_functor(pl, k, s,
			"ww_vf @_score(const void *ctx, long long z, long long row, long long col, ww_vf v, int n)",
			pl_fmt(pl, "%s\n\t(void)z;\n\t(void)row;\n\t(void)n;\n", axes), k->loop->load);
	pl_cpu_functor(pl, k, s, "void @_store(const void *ctx, long long z, long long row, long long i, ww_vf acc, int n)",
		pl_fmt(pl, "%s\tconst ix_t %s_0 = i;\n\n\t(void)z;\n\t(void)row;\n", axes, k->loop->lane->name),
		k->loop->store);
	pl_cpu_kernel(pl, k, s, "WW_ATTN_ARGS",
		k->loop->load ? "ww_cpu_attention(b, arg, @_score, @_store, &c)"
					  : "ww_cpu_attention(b, arg, ww_attn_plain, @_store, &c)");
	for (int i = 0; i < 3; i++) {
		const struct operand *o = &sp->in[i];

		strides = pl_fmt(pl, "%s .%c_stride = { %s, %s, %s },", strides, "qkv"[i], ix_text(pl, o->stride[0]),
			ix_text(pl, o->stride[1]), ix_text(pl, o->stride[2]));
		bufs = pl_fmt(pl, "%s .%c_buf = %s, .%c_offset_bytes = %s,", bufs, "qkv"[i], pl_plan_buf(pl, o->buf), "qkv"[i],
			pl_bytes(pl, o));
	}
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_attention(p, \"@\", &(struct ww_cpu_attention){\n"
		"\t\t.batch = %s, .heads = %s, .group = %d, .lq = %s, .lk = %s, .d = %s,\n\t\t%s\n\t\t%s\n"
		"\t\t.causal = %d, .scale = %s%sf, .bq = %d, .bk = %d });\n%s",
		ix_text(pl, sp->out->size[0]), ix_text(pl, sp->out->size[1]), sp->attn.group, ix_text(pl, sp->out->size[2]),
		ix_text(pl, sp->in[1].size[2]), ix_text(pl, sp->out->size[3]), bufs, strides, is_causal(&sp->attn.band), scale,
		strpbrk(scale, ".e") ? "" : ".0", kn->cpu_attn.bq, kn->cpu_attn.bk, pl_plan_args(pl, k, "\t"));
}

static const struct knob_row cuda_knobs[] = { { KNOB(attn.form), "template", { 1, 2 } },
	{ KNOB(attn.warps), "warps", { 4, 2, 1 } }, { KNOB(attn.keys), "keys", { 32, 64 } },
	{ KNOB(attn.groups), "groups", { 2, 1 } }, { 0 } };

/* The statements that name the result's axes. */
static const char *axes_of(struct pl *pl, const struct kern *k)
{
	static const char *const name[] = { "batch", "head", "at" };
	int r = k->anchor->out->rank;
	const char *axes = "";

	for (int d = 0; d < r - 1; d++)
		if (ix_as_var(k->anchor_idx[d]))
			axes = pl_fmt(
				pl, "%s\t\tconst ix_t %s = %s;\n", axes, ix_as_var(k->anchor_idx[d])->name, name[d == r - 2 ? 2 : d]);
	return pl_fmt(pl, "%s\n\t\t(void)batch;\n\t\t(void)head;\n\t\t(void)at;\n", axes);
}

static void print_functor(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static const char at[] = "int batch, int head, int at, int col";
	const char *axes = axes_of(pl, k), *load = "";

	if (k->loop->load)
		load = pl_fmt(pl,
			"\ttemplate <int N> struct beside {\n%s\t};\n"
			"\ttemplate <int N> __device__ void ask(%s, beside<N> &given) const\n\t{\n%s%s%s\t}\n"
			"\ttemplate <int N> __device__ void score(%s, float (&v)[N], beside<N> &given) const\n\t{\n%s%s%s\t}\n",
			pl_indent(pl, k->loop->given, 2), at, axes, pl_indent(pl, k->loop->given_refs, 2),
			pl_indent(pl, k->loop->ask, 2), at, axes, pl_indent(pl, k->loop->given_refs, 2),
			pl_indent(pl, k->loop->load, 2));
	pl_cuda_functor(pl, k, s, load, at, axes);
}

static const char *stride(struct pl *pl, const struct operand *o, int d)
{
	return d < 0 ? "0" : ix_text(pl, o->stride[d]);
}

/* The fields that say where the operands lie, and how long they are. */
static const char *sizes_text(struct pl *pl, const struct anchor *sp)
{
	const struct pl_band *band = &sp->attn.band;
	const char *heads = "";
	int r = sp->out->rank;

	for (int i = 0; i < MASK; i++) {
		const struct operand *o = &sp->in[i];

		heads = pl_fmt(pl,
			"%s\t\t.%c = { .buf = %s, .offset_bytes = %s, .stride_b = %s, .stride_h = %s, .stride_t = %s, "
			".stride_i = %s },\n",
			heads, "qkv"[i], pl_plan_buf(pl, o->buf), pl_bytes(pl, o), stride(pl, o, 0), stride(pl, o, r - 3 ? 1 : -1),
			stride(pl, o, r - 2), stride(pl, o, r - 1));
	}
	return pl_fmt(pl,
		"%s\t\t.b = %s, .h = %s, .group = %d, .t_q = %s, .t_k = %s, .width = %s, .width_v = %s, .causal = %d, "
		".masked = %d,\n\t\t.scale = %.17g%s",
		heads, ix_text(pl, sp->out->size[0]), r == 3 ? "1" : ix_text(pl, sp->out->size[1]), sp->attn.group,
		ix_text(pl, sp->out->size[r - 2]), ix_text(pl, sp->in[1].size[r - 2]), ix_text(pl, sp->in[0].size[r - 1]),
		ix_text(pl, sp->out->size[r - 1]), is_causal(band), sp->n_in <= MASK ? 0 : pl_widest(sp->in[1].size[r - 2], 2),
		sp->attn.scale,
		is_banded(band)
			? pl_fmt(pl, ", .banded = 1, .below = %lld, .above = %lld", (long long)band->below, (long long)band->above)
			: "");
}

/* The recipe's call; `recipe` is also the name of its struct, `tile` of fields that the search chooses. */
static void print_launch(struct pl *pl, struct kern *k, const char *recipe, const char *tile)
{
	const struct anchor *sp = k->anchor;

	k->launch = pl_named(pl, k, "\tww_recipe_%s(p, &(struct ww_%s){ .kernel = \"@\", .dtype = %s,\n%s%s });\n%s",
		recipe, recipe, pl_dtype_name(sp->in[0].val->dt), sizes_text(pl, sp), tile, pl_plan_args(pl, k, "\t"));
}

static void print_mma(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const char *type = pl_ctype(k->anchor->in[0].val->dt, pl->target);
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *tile = kn->attn.warps || kn->attn.keys
		? pl_fmt(pl, ", .warps = %d, .keys = %d", kn->attn.warps, kn->attn.keys)
		: "";

	ww_str_adds(s,
		pl_named(pl, k,
			"typedef ww::attention_mma_shape<%s, @_W, @_WV, @_WARPS, @_MT, @_KEYS, @_STAGES, @_QR, @_KR, @_VR, @_QV, "
			"@_KV, @_VV, @_TEAMS>\n\t@_s;\n",
			type));
	pl_cuda_kernel(pl, k, s, "@_s::threads, @_BLOCKS",
		pl_fmt(pl,
			"const %s *q, long long qb, long long qh, long long ql, const %s *k, long long kb, long long kh, "
			"long long kl,\n"
			"\t\tconst %s *v, long long vb, long long vh, long long vl, int group, int heads, int t_q, int t_k, "
			"int width, int width_v,\n\t\tfloat scale",
			type, type, type),
		pl_fmt(pl,
			"attention_mma<@_s, @_BELOW, @_ABOVE, @_MASKED, @_N, @_M, %s>({ q, qb, qh, ql, 1 }, { k, kb, kh, kl, group },\n"
			"\t\t{ v, vb, vh, vl, group }, heads, t_q, t_k, width, width_v, scale",
			type));
	print_launch(pl, k, "attention_mma", tile);
}

static const char maps[] = "const __grid_constant__ ww_tensor_map tq, const __grid_constant__ ww_tensor_map tk,\n"
						   "\t\tconst __grid_constant__ ww_tensor_map tv, ";

static void print_halves(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct ww_attention_size at = size_of_kernel(pl, k->anchor);
	const int turns = ww_attention16_choose_with(&at, kn->attn.groups, 0).turns;

	ww_str_adds(s,
		pl_named(pl, k, "typedef ww::attention16_shape<%s, @_W, @_WV, @_GROUPS, @_KEYS, @_STAGES_Q, @_BLOCKS> @_s;\n",
			pl_ctype(k->anchor->in[0].val->dt, pl->target)));
	pl_cuda_kernel(pl, k, s, "@_s::threads, @_BLOCKS",
		pl_fmt(pl, "%s%sint group, int heads, int t_q, int t_k, int width_v, float scale", maps,
			turns ? "int blocks, " : ""),
		pl_fmt(pl,
			"attention16<@_s, @_BELOW, @_ABOVE, @_MASKED, %s, @_M>(tq, tk, tv, %sgroup, heads, t_q, t_k, width_v, "
			"scale",
			k->loop->width == 8 ? "8" : "@_N", turns ? "blocks, " : ""));
	print_launch(pl, k, "attention16",
		pl_fmt(pl, "%s%s", kn->attn.groups ? pl_fmt(pl, ", .groups = %d", kn->attn.groups) : "",
			turns ? ", .turns = 1" : ""));
}

static void print_tiles(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const char *heads = "";

	for (int i = 0; i < 3; i++) {
		const struct operand *o = &sp->in[i];

		heads = pl_fmt(pl,
			"%s\t\t.%c = { .buf = %s, .offset_bytes = %s, .stride_b = %s, .stride_h = %s, .stride_t = %s },\n", heads,
			"qkv"[i], pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, o->stride[0]), ix_text(pl, o->stride[1]),
			ix_text(pl, o->stride[2]));
	}
	pl_cuda_kernel(pl, k, s, "384, 1",
		pl_fmt(pl, "%sconst unsigned *amax, float scale, int b, int h, int h_kv, int t_q, int t_k", maps),
		"attention<@_D, @_CAUSAL>(tq, tk, tv, amax, scale, b, h, h_kv, t_q, t_k");
	k->launch = pl_named(pl, k,
		"\tww_recipe_attention(p, &(struct ww_attention){ .kernel = \"@\",\n"
		"%s\t\t.b = %s, .h = %s, .h_kv = %s, .t_q = %s, .t_k = %s, .d = %s, .causal = %d, .scale = %.17g });\n%s",
		heads, ix_text(pl, sp->out->size[0]), ix_text(pl, sp->out->size[1]), ix_text(pl, sp->out->size[1]),
		ix_text(pl, sp->out->size[2]), ix_text(pl, sp->in[1].size[2]), ix_text(pl, sp->out->size[3]),
		is_causal(&sp->attn.band), sp->attn.scale, pl_plan_args(pl, k, "\t"));
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	print_functor(pl, k, s);
	switch (k->loop->form) {
	case MMA: print_mma(pl, k, s); break;
	case HALVES: print_halves(pl, k, s); break;
	default: print_tiles(pl, k, s);
	}
}

const struct anchor_ops pl_attention_ops = { .header = "attention",
	.fuses = FUSES_READER | FUSES_MASK,
	.fits = fits,
	.build = build,
	.knobs = { cpu_knobs, cuda_knobs },
	.print = { print_cpu, print_cuda } };
