/* engines.c - what cuDNN's engines do with a convolution: which layout they want, round to TF32, or are slow. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"

#include <string.h>

int pl_gains_last(const struct anchor *s, const struct ix *k)
{
	int64_t c = ix_num(s->in[0].size[1]), to = 16 / pl_itemsize(s->in[0].val->dt);

	return s->conv.groups == 1 && ix_num(k) % to == 0 && (c % to == 0 || c <= to);
}

/* Another kind that may do without: 3 x 3 and 33 to 48 filters, of few pixels without a stride, of few channels with a
 * stride of 2.  96 channels to 48 did, of 2 x 128 x 128 and of 6 x 64 x 64, and not of 256 x 40 x 40; 48 to 48 of 320 x
 * 28 x 28, and 24, 32 and 64 filters on as few pixels (2 x 128 x 128, 29 x 80 x 80, 25 x 43 x 43) had TF32.  At 2 32
 * channels to 40 of 256 x 112 x 112 and to 45 of 149 x 77 x 77 did, and not 256 to 48 of 160 x 56 x 56 (H200). */
enum { EXACT_FILTERS = 48, ROUNDED_FILTERS = 32, EXACT_PIXELS = 1 << 16, EXACT_STRIDED = 96 };

int pl_conv_may_be_exact(const struct anchor *s)
{
	int64_t pixels = ix_num(s->in[0].size[0]), filters = ix_num(s->in[1].size[0]), stride = s->conv.stride[0];

	if (s->conv.nd != 2 || s->conv.groups > 1 || filters <= ROUNDED_FILTERS || filters > EXACT_FILTERS)
		return 0;
	for (int e = 0; e < 2; e++) {
		if (ix_num(s->in[1].size[2 + e]) != 3 || s->conv.stride[e] != stride || s->conv.dil[e] != 1)
			return 0;
		pixels *= ix_num(s->in[0].size[2 + e]);
	}
	return stride == 1 ? pixels <= EXACT_PIXELS : stride == 2 && ix_num(s->in[0].size[1]) <= EXACT_STRIDED;
}

/* Is it a transposed convolution ahead of the one that is lowered now? */
static int was_transposed(const struct pl *pl, const struct gnode *n)
{
	for (int i = 0; i < pl->n_anchor; i++)
		if (pl->anchor[i]->kind == S_CONV && pl->anchor[i]->conv.transposed && !strcmp(pl->anchor[i]->node, n->name))
			return 1;
	return 0;
}

/* Does PyTorch compute convolution o of the graph in TF32?  As it was asked; else one of more channels may be. */
static int rounds(const struct pl *pl, const struct gnode *o)
{
	if (o->tf32 >= 0)
		return o->tf32;
	for (int b = 0; b < pl->n_buf; b++)
		if (pl->buf[b]->rank > 2 && pl->buf[b]->val && !strcmp(pl->buf[b]->pname, o->arg[1].name) &&
			ix_num(pl->buf[b]->size[1]) > EXACT_CHANNELS)
			return 1;
	return 0;
}

/* Does another convolution of the graph, n's aside, round, so that PyTorch's result has TF32's error?  A transposed one
 * ahead does not count: what it hands on is a sum and a bias.  Of small inputs the bias is nearly all of
 * that, n would round it, and a norm behind n takes away everything but its rounding (30 times PyTorch's error where
 * n alone was rounded, inputs scaled by 2^-6). */
static int others_round(const struct pl *pl, const struct gnode *n)
{
	for (int i = 0; i < pl->n_node; i++) {
		const struct gnode *o = &pl->node[i];

		if (o == n || !o->row || o->row->fn != n->row->fn || o->n_arg < 2 || o->arg[1].kind != G_VAL ||
			was_transposed(pl, o))
			continue;
		if (rounds(pl, o))
			return 1;
	}
	return 0;
}

/* A transposed convolution in three dimensions with a stride. */
static int is_strided_volume(const struct anchor *s)
{
	int strided = 0;

	for (int e = 0; e < s->conv.nd; e++)
		strided |= s->conv.stride[e] > 1;
	return s->conv.transposed && s->conv.nd == 3 && s->conv.groups == 1 && s->in[0].val->dt == WW_F32 && strided;
}

/* So many that the engine that PyTorch gets for is_strided_volume() is slow, and does without TF32: 5 x 5 x 5 did, with
 * an error of 4e-8; of 27 taps, dilated, it had TF32 (H200). */
static int has_many_taps(const struct anchor *s)
{
	int64_t taps = 1;

	for (int e = 0; e < s->conv.nd; e++)
		taps *= ix_num(s->in[1].size[2 + e]);
	return taps > 64;
}

int pl_is_slow_gradient(const struct anchor *s)
{
	int unit = s->conv.transposed && s->conv.nd == 3 && s->conv.groups == 1 && s->in[0].val->dt == WW_F32;
	int64_t taps = 1;

	for (int e = 0; e < s->conv.nd; e++) {
		unit &= s->conv.stride[e] == 1 && s->conv.dil[e] == 1;
		taps *= ix_num(s->in[1].size[2 + e]);
	}
	return unit && taps > 1;
}

int pl_is_slow_stride(const struct anchor *s)
{
	int dilated = 0;

	for (int e = 0; e < s->conv.nd; e++)
		dilated |= s->conv.dil[e] > 1;
	return is_strided_volume(s) && (dilated || has_many_taps(s));
}

/* The guess for a graph that was made without a GPU, fitted to convolutions that were seen on one. */
static int may_be_alone(const struct anchor *s)
{
	if (s->conv.pytorch_last)
		return 0;
	return s->conv.transposed ? is_strided_volume(s) && has_many_taps(s)
							  : ix_num(s->in[0].size[1]) <= EXACT_CHANNELS || pl_conv_may_be_exact(s);
}

int pl_conv_is_exact(const struct pl *pl, const struct gnode *n, const struct anchor *s)
{
	int alone = n->tf32 >= 0 ? !n->tf32 : may_be_alone(s);

	return s->in[0].val->dt == WW_F32 && alone && !others_round(pl, n);
}
