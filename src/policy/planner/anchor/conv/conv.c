/* conv.c - convolutions and transposed ones, of one to three dimensions. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/group.h"

#include <string.h>

static const struct ix *out_size(struct pl *pl, const struct anchor *s, int e)
{
	int64_t stride = s->conv.stride[e], reach = s->conv.dil[e] * (ix_num(s->in[1].size[2 + e]) - 1),
			pad = 2 * s->conv.pad[e];
	const struct ix *x = s->in[0].size[2 + e];

	if (s->conv.transposed)
		return ix_addc(pl, ix_mulc(pl, ix_addc(pl, x, -1), stride), reach + 1 + s->conv.opad[e] - pad);
	return ix_addc(pl, ix_div(pl, ix_addc(pl, x, pad - reach - 1), ix_const(pl, stride)), 1);
}

/* Has a filter so few elements that a thread may read them one by one, as each of a depthwise convolution has?  Of 16
 * bits on cuda only then our template is for them. */
static int is_small(const struct val *w, int64_t groups, int64_t channels)
{
	int64_t elements = channels / groups;

	for (int d = 2; d < w->rank; d++)
		elements *= ix_num(w->size[d]);
	return elements <= 160 || (groups > 1 && channels == groups);
}

struct val *pl_conv(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int nd, const int64_t *stride,
	const int64_t *pad, const int64_t *dil, int transposed, const int64_t *opad, int64_t groups)
{
	struct anchor *s = pl_anchor(pl, n, S_CONV, transposed ? "transposed convolution" : "convolution");
	const struct ix *size[PL_MAX_RANK];
	struct val *y, *all;
	int cuda = pl->target == WW_TARGET_CUDA, template, library;

	template = x->dt == w->dt &&
		(x->dt == WW_F32 || (pl_is_half(x->dt) && (!cuda || is_small(w, groups, ix_num(x->size[1])))));
	library = cuda && x->dt == w->dt && (x->dt == WW_F32 || pl_is_half(x->dt)) && !pl_all_plain(pl);
	s->conv.nd = nd;
	s->conv.transposed = transposed;
	s->conv.groups = (int)groups;
	s->conv.wide = pl_power(x) > POWER_OF_SCALED ? WIDE : pl_power(x) > POWER_OF_HALVES ? WIDE_FOR_HALVES : 0;
	s->in[0].val = x;
	s->in[1].val = w;
	memcpy(s->in[0].size, x->size, sizeof(x->size));
	memcpy(s->in[1].size, w->size, sizeof(w->size));
	size[0] = x->size[0];
	size[1] = transposed ? ix_mulc(pl, w->size[1], groups) : w->size[0];
	for (int e = 0; e < nd; e++) {
		s->conv.stride[e] = stride[e];
		s->conv.pad[e] = pad[e];
		s->conv.dil[e] = dil[e];
		s->conv.opad[e] = opad[e];
		size[2 + e] = out_size(pl, s, e);
		if (ix_num(size[2 + e]) != n->meta[0].size[n->meta[0].rank - nd + e])
			pl_cannot(pl, n, "its output size");
		template &= ix_num(w->size[2 + e]) <= 32;
	}
	s->conv.pytorch_last = library && pl_stored_last(&n->meta[0]);
	s->conv.last = library && pl_all_last(pl) && (s->conv.pytorch_last || pl_gains_last(s, size[1]));
	s->conv.exact = pl_conv_is_exact(pl, n, s);
	s->conv.library_only = !template || s->conv.last;
	if ((y = pl_conv_by_product(pl, n, s, x, w, library, size)))
		return y;
	if ((!template && !library) || pl_conv_is_sum(pl, s, size)) {
		pl->n_anchor--;
		return pl_conv_by_reduction(pl, n, s, x, w, nd + 2, size);
	}
	if ((y = pl_conv_of_steps(pl, n, s, x, w, size)) || (y = pl_conv_by_phases(pl, n, s, x, w, size)))
		return y;
	pl_conv_make_forward(pl, s);
	w = s->in[1].val;
	all = library ? pl_conv_together(pl, n, s, x, w, size) : NULL;
	if (all) {
		w = s->in[1].val = all;
		s->in[1].size[0] = size[1] = w->size[0];
	}
	pl_anchor_operand(s, s->conv.last ? pl_conv_store_last(pl, n, x) : x);
	pl_anchor_operand(s, s->conv.last ? pl_conv_store_last(pl, n, w) : w);
	y = pl_anchor_out(pl, s, x->dt, nd + 2, size);
	return all ? pl_conv_part(pl, n, y) : y;
}

static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	const struct ix *last[PL_MAX_RANK];

	(void)which;
	if (!s->conv.last)
		return pl_operand_contiguous(pl, o);
	pl_channels_last(pl, o->rank, o->size, last);
	for (int d = 0; d < o->rank; d++)
		if (!ix_is(o->size[d], 1) && ix_num(o->stride[d]) != ix_num(last[d]))
			return 0;
	for (int d = 0; d < o->rank; d++)
		if (!ix_is(o->size[d], 1))
			pl_guard_eq(pl, o->stride[d], last[d], "strides channels-last");
	return 1;
}

/* On the cpu the template calls the functor with the fp32 sum, so a bias is added before it is rounded to 16 bits. */
static int ends_free(struct pl *pl, const struct anchor *s)
{
	(void)s;
	return pl->target == WW_TARGET_CPU;
}

/* A tile of the tensor-core template has a multiprocessor to itself, and its end waits for loads two pixels after two
 * pixels.  Of at most one wave of tiles nothing hides that: with two tensors to read it took 22 us more than a pass (3
 * x 3, 256 channels of 2 x 40 x 40, H200). */
static int ends_apart(struct pl *pl, const struct anchor *sp, int reads)
{
	return !sp->conv.last && reads >= 2 && pl_numel_now(sp->out) <= (int64_t)128 * 64 * pl->dev.sm_count &&
		pl_conv_is_tiled(pl, sp);
}

/* The functor gets adjacent channels of a pixel, as the result is stored channels-last. */
static void end_at_channels(struct pl *pl, struct kern *k)
{
	k->loop->width = pl_widest(k->anchor->out->size[1], 4);
	k->loop->lane = pl_lane_of(pl, k, 1);
	k->loop->store = pl_store_body(pl, k, "chan");
}

/* The functor gets adjacent pixels of a channel. */
static void end_at_pixels(struct pl *pl, struct kern *k, int width)
{
	k->loop->width = width;
	k->loop->lane = pl_join(pl, k, 2, 2 + k->anchor->conv.nd, NULL);
	k->loop->store = pl_store_body(pl, k, "pix");
}

static void build_last(struct pl *pl, struct kern *k)
{
	const struct anchor *sp = k->anchor;
	struct loop *l = k->loop;

	l->library = BY_LIBRARY | LIBRARY_ONLY;
	l->inner = pl_sizes(pl, sp->out, 2, 2 + sp->conv.nd);
	l->form = k->out[0]->last ? LAST : TURNED;
	if (l->form == LAST && k->out[0] == sp->out && sp->out->root->dt == sp->out->dt)
		return;
	if (l->form == LAST)
		end_at_channels(pl, k);
	else
		end_at_pixels(pl, k, pl_widest(l->inner, 4));
}

static void build(struct pl *pl, struct kern *k)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct loop *l = k->loop;
	int64_t plane;
	int fours;

	if (sp->conv.last) {
		build_last(pl, k);
		return;
	}
	if (pl->target == WW_TARGET_CUDA) {
		pl_conv_choose(pl, k, kn, pl_is_bare(k), l);
		if ((l->library & BY_LIBRARY) && l->form != HALVES && pl_is_bare(k))
			return;
	}
	l->inner = pl_sizes(pl, sp->out, 2, 2 + sp->conv.nd);
	if (l->form == TO_LAST) {
		end_at_channels(pl, k);
		return;
	}
	plane = ix_num(l->inner);
	fours = (l->library & BY_LIBRARY) || pl_conv_stores_fours(pl, k);
	end_at_pixels(pl, k, plane % 2 ? 1 : fours && plane % 4 == 0 ? 4 : 2);
}

const struct anchor_ops pl_conv_ops = { .header = "conv",
	.by_library = "convolutions",
	.library_tf32 = 1,
	.fuses = FUSES_READER,
	.fits = fits,
	.ends_free = ends_free,
	.ends_apart = ends_apart,
	.build = build,
	.knobs = { pl_conv_cpu_knobs, pl_conv_cuda_knobs },
	.print = { pl_conv_print_cpu, pl_conv_print_cuda } };
