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

/* A value of the graph, if n were rounded: as PyTorch has it; with an error of TF32 that PyTorch has, too; or with one
 * that only n has. */
enum error { AS_PYTORCH, ROUNDED, SHOWN };

static int is_joined(const struct gnode *o)
{
	static const char *const names[] = { "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack",
		"column_stack" };
	int found = 0;

	for (size_t i = 0; o->row && i < WW_ARRAY_LEN(names); i++)
		found |= !strcmp(o->row->op, names[i]);
	return found;
}

/* Elements of several operands hide each other's errors, except where they lie beside each other. */
static enum error error_of(const struct pl *pl, const struct gnode *n, const struct gnode *o, const enum error *of)
{
	int rounded = 0, shown = 0;

	for (int i = 0; i < o->n_read; i++) {
		rounded |= of[o->read[i] - pl->node] == ROUNDED;
		shown |= of[o->read[i] - pl->node] == SHOWN;
	}
	if (o == n)
		return rounded ? ROUNDED : SHOWN;
	if (o->row && o->row->fn == n->row->fn && o->n_arg >= 2 && o->arg[1].kind == G_VAL && !was_transposed(pl, o))
		rounded |= rounds(pl, o);
	return shown && (!rounded || is_joined(o)) ? SHOWN : rounded ? ROUNDED : AS_PYTORCH;
}

/* Would a result of the graph show that n is rounded?  Not where another convolution is, ahead of it, behind it or
 * beside it in a sum, so that PyTorch's result has TF32's error.  A transposed one ahead does not count: what it hands
 * on is a sum and a bias.  Of small inputs the bias is nearly all of that, n would round it, and a norm behind n takes
 * away everything but its rounding (30 times PyTorch's error where n alone was rounded, inputs scaled by 2^-6). */
static int is_shown(struct pl *pl, const struct gnode *n)
{
	struct ww_arena_mark mark;
	enum error *of;
	int shown = 0;

	pl_graph_reads(pl);
	mark = ww_arena_mark(&pl->arena);
	of = pl_alloc(pl, (size_t)pl->n_node * sizeof(*of));
	for (int i = 0; i < pl->n_node; i++) {
		of[i] = error_of(pl, n, &pl->node[i], of);
		for (int k = 0; of[i] == SHOWN && k < pl->n_output; k++)
			shown |= pl_refers(&pl->output[k], pl->node[i].name);
	}
	ww_arena_rewind(&pl->arena, mark);
	return shown;
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

int pl_conv_is_exact(struct pl *pl, const struct gnode *n, const struct anchor *s)
{
	int alone = n->tf32 >= 0 ? !n->tf32 : may_be_alone(s);

	return s->in[0].val->dt == WW_F32 && alone && is_shown(pl, n);
}
