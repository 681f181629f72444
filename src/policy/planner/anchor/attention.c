/* attention.c - softmax(q k^T scale) v in one pass over the keys. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <math.h>
#include <string.h>

static struct val *by_products(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v,
	struct val *mask, int causal, double scale)
{
	int r = q->rank, perm[PL_MAX_RANK];
	struct val *s;

	for (int i = 0; i < r; i++)
		perm[i] = i == r - 1 ? r - 2 : i == r - 2 ? r - 1 : i;
	/* fp32 up to the weights, as PyTorch's kernels have it: a product of 16 bits may be too large before it is scaled
	 */
	s = pl_gemm_to(pl, n, q, pl_permute(pl, k, perm), q->dt == WW_F64 ? WW_F64 : WW_F32);
	s = pl_op2(pl, OP_MUL, s, pl_constf(pl, s->dt, scale));
	if (causal)
		s = pl_where(pl,
			pl_index(pl, WW_BOOL, s->rank, s->size, ix_lt(pl, pl->place[r - 1], ix_addc(pl, pl->place[r - 2], 1))), s,
			pl_constf(pl, s->dt, -INFINITY));
	if (mask)
		s = mask->dt == WW_BOOL ? pl_where(pl, mask, s, pl_constf(pl, s->dt, -INFINITY))
								: pl_op2(pl, OP_ADD, s, pl_cast(pl, mask, s->dt));
	return pl_gemm(pl, n, pl_cast(pl, pl_softmax(pl, s, r - 1, 0), v->dt), v);
}

struct val *pl_attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v, struct val *mask,
	int causal, double scale)
{
	int64_t d = ix_num(q->size[q->rank - 1]);
	struct anchor *s;

	if (q->rank != 4 || q->dt != WW_F32 || mask || d != ix_num(v->size[3]) ||
		(causal && ix_num(q->size[2]) != ix_num(k->size[2])) ||
		(pl->target == WW_TARGET_CUDA ? d != 64 && d != 128 : d > 256))
		return by_products(pl, n, q, k, v, mask, causal, scale);
	s = pl_anchor(pl, n, S_ATTN, "attention");
	s->attn.scale = scale;
	s->attn.causal = causal;
	pl_anchor_operand(s, q);
	pl_anchor_operand(s, k);
	pl_anchor_operand(s, v);
	return pl_anchor_out(pl, s, q->dt, 4, q->size);
}

static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	int aligned = ix_num(o->offset) % 4 == 0;

	(void)s, (void)which;
	for (int d = 0; d < 3; d++)
		aligned &= ix_num(o->stride[d]) % 4 == 0;
	return ix_is(o->stride[3], 1) && (aligned || pl->target == WW_TARGET_CPU);
}

static void build(struct pl *pl, struct kern *k)
{
	k->loop->lane = pl_lane_of(pl, k, 3);
	k->loop->width = 2;
	k->loop->store = pl_store_body(pl, k, "col");
}

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_attn.bq), "bq", { 64, 128 } },
	{ KNOB(cpu_attn.bk), "bk", { 96, 384 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *strides = "", *bufs = "", *scale = pl_fmt(pl, "%.9g", sp->attn.scale);

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, "void @_store(const void *ctx, long long z, long long row, long long i, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = i;\n\n\t(void)z;\n\t(void)row;\n", pl_axes(pl, k, 0, 2, "z"),
			pl_axis(pl, k, 2, "row"), k->loop->lane->name),
		k->loop->store);
	pl_cpu_kernel(pl, k, s, "WW_ATTN_ARGS", "ww_cpu_attention(b, arg, ww_attn_plain, @_store, &c)");
	for (int i = 0; i < 3; i++) {
		const struct operand *o = &sp->in[i];

		strides = pl_fmt(pl, "%s .%c_stride = { %s, %s, %s },", strides, "qkv"[i], ix_text(pl, o->stride[0]),
			ix_text(pl, o->stride[1]), ix_text(pl, o->stride[2]));
		bufs = pl_fmt(pl, "%s .%c_buf = %s, .%c_offset_bytes = %s,", bufs, "qkv"[i], pl_plan_buf(pl, o->buf), "qkv"[i],
			pl_bytes(pl, o));
	}
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_attention(p, \"@\", &(struct ww_cpu_attention){\n"
		"\t\t.batch = %s, .heads = %s, .group = 1, .lq = %s, .lk = %s, .d = %s,\n\t\t%s\n\t\t%s\n"
		"\t\t.causal = %d, .scale = %s%sf, .bq = %d, .bk = %d });\n%s",
		ix_text(pl, sp->out->size[0]), ix_text(pl, sp->out->size[1]), ix_text(pl, sp->out->size[2]),
		ix_text(pl, sp->in[1].size[2]), ix_text(pl, sp->out->size[3]), bufs, strides, sp->attn.causal, scale,
		strpbrk(scale, ".e") ? "" : ".0", kn->cpu_attn.bq, kn->cpu_attn.bk, pl_plan_args(pl, k, "\t"));
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static const char *const name[] = { "batch", "head", "at" };
	const struct anchor *sp = k->anchor;
	const char *heads = "", *axes = "";

	for (int i = 0; i < 3; i++) {
		const struct operand *o = &sp->in[i];

		if (ix_as_var(k->anchor_idx[i]))
			axes = pl_fmt(pl, "%s\t\tconst ix_t %s = %s;\n", axes, ix_as_var(k->anchor_idx[i])->name, name[i]);
		heads = pl_fmt(pl,
			"%s\t\t.%c = { .buf = %s, .offset_bytes = %s, .stride_b = %s, .stride_h = %s, .stride_t = %s },\n", heads,
			"qkv"[i], pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, o->stride[0]), ix_text(pl, o->stride[1]),
			ix_text(pl, o->stride[2]));
	}
	pl_cuda_functor(pl, k, s, "", "int batch, int head, int at, int col",
		pl_fmt(pl, "%s\n\t\t(void)batch;\n\t\t(void)head;\n\t\t(void)at;\n", axes));
	pl_cuda_kernel(pl, k, s, "384, 1",
		"const __grid_constant__ ww_tensor_map tq, const __grid_constant__ ww_tensor_map tk,\n"
		"\t\tconst __grid_constant__ ww_tensor_map tv, const unsigned *amax, float scale, int b, int h, int h_kv, "
		"int t_q, int t_k",
		"attention<@_D, @_CAUSAL>(tq, tk, tv, amax, scale, b, h, h_kv, t_q, t_k");
	k->launch = pl_named(pl, k,
		"\tww_recipe_attention(p, &(struct ww_attention){ .kernel = \"@\",\n"
		"%s\t\t.b = %s, .h = %s, .h_kv = %s, .t_q = %s, .t_k = %s, .d = %s, .causal = %d, .scale = %.17g });\n%s",
		heads, ix_text(pl, sp->out->size[0]), ix_text(pl, sp->out->size[1]), ix_text(pl, sp->out->size[1]),
		ix_text(pl, sp->out->size[2]), ix_text(pl, sp->in[1].size[2]), ix_text(pl, sp->out->size[3]), sp->attn.causal,
		sp->attn.scale, pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_attention_ops = { .header = "attention",
	.fuses = FUSES_READER,
	.fits = fits,
	.build = build,
	.knobs = { cpu_knobs },
	.print = { print_cpu, print_cuda } };
