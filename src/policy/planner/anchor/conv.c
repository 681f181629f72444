/* conv.c - convolutions and transposed ones, of one to three dimensions. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/group.h"

#include <ww/recipe/conv_tile.h>

#include <math.h>
#include <string.h>

/* x and w as values over (n, k, out..., c, kernel...): the general convolution. */
static struct val *by_reduction(struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w,
	int rank, const struct ix *const *out)
{
	int nd = s->conv.nd, all = rank + 1 + nd;
	const struct ix *size[PL_MAX_RANK], *xm[PL_MAX_RANK], *wm[PL_MAX_RANK], *cond = ix_const(pl, 1);
	const struct ix *cg = ix_div(pl, x->size[1], ix_const(pl, s->conv.groups)),
					*kg = ix_div(pl, out[1], ix_const(pl, s->conv.groups));
	const struct ix *group, *c;

	if (all > PL_MAX_RANK)
		pl_cannot(pl, n, "too many dimensions");
	for (int d = 0; d < rank; d++)
		size[d] = out[d];
	size[rank] = cg;
	for (int e = 0; e < nd; e++)
		size[rank + 1 + e] = w->size[2 + e];
	group = ix_div(pl, pl->place[1], kg);
	c = s->conv.groups == 1 ? pl->place[rank] : ix_add(pl, ix_mul(pl, group, cg), pl->place[rank]);
	xm[0] = pl->place[0];
	xm[1] = c;
	wm[0] = s->conv.transposed ? c : pl->place[1];
	wm[1] = s->conv.transposed ? (s->conv.groups == 1 ? pl->place[1] : ix_mod(pl, pl->place[1], kg)) : pl->place[rank];
	for (int e = 0; e < nd; e++) {
		const struct ix *o = pl->place[2 + e], *r = pl->place[rank + 1 + e], *i;

		wm[2 + e] = r;
		if (s->conv.transposed) {
			const struct ix *t = ix_sub(pl, ix_addc(pl, o, s->conv.pad[e]), ix_mulc(pl, r, s->conv.dil[e])),
							*st = ix_const(pl, s->conv.stride[e]);

			i = s->conv.stride[e] == 1 ? t : ix_div(pl, t, st);
			cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), t));
			if (s->conv.stride[e] != 1)
				cond = ix_mul(pl, cond, ix_eqz(pl, ix_mod(pl, t, st), ix_const(pl, 0)));
			cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
		} else {
			i = ix_addc(
				pl, ix_add(pl, ix_mulc(pl, o, s->conv.stride[e]), ix_mulc(pl, r, s->conv.dil[e])), -s->conv.pad[e]);
			if (s->conv.pad[e]) {
				cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), i));
				cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
			}
		}
		xm[2 + e] = i;
	}
	x = pl_view_if(pl, x, all, size, xm, cond, 0);
	w = pl_view(pl, w, all, size, wm);
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, x, w), ((1u << (nd + 1)) - 1) << rank, 0);
}

static const struct ix *out_size(struct pl *pl, const struct anchor *s, int e)
{
	int64_t stride = s->conv.stride[e], reach = s->conv.dil[e] * (ix_num(s->in[1].size[2 + e]) - 1),
			pad = 2 * s->conv.pad[e];
	const struct ix *x = s->in[0].size[2 + e];

	if (s->conv.transposed)
		return ix_addc(pl, ix_mulc(pl, ix_addc(pl, x, -1), stride), reach + 1 + s->conv.opad[e] - pad);
	return ix_addc(pl, ix_div(pl, ix_addc(pl, x, pad - reach - 1), ix_const(pl, stride)), 1);
}

/* ---- Channels last ----------------------------------------------------------------------------------------------- */

int pl_gains_last(const struct anchor *s, const struct ix *k)
{
	int64_t c = ix_num(s->in[0].size[1]), to = 16 / pl_itemsize(s->in[0].val->dt);

	return s->conv.groups == 1 && ix_num(k) % to == 0 && (c % to == 0 || c <= to);
}

/* Input channels of fp32 up to which the engines that PyTorch gets for its order may do without TF32: in six tasks of 3
 * to 16 they did on an H200, in none of 24 and more.  Channels-last the library rounds, and the judge leaves no room
 * for that. */
enum { EXACT_CHANNELS = 16 };

/* Another kind that may do without: 3 x 3 and no stride, 33 to 48 filters, few pixels.  96 channels to 48 did, of 2 x
 * 128 x 128 and of 6 x 64 x 64, and not of 256 x 40 x 40; 48 to 48 of 320 x 28 x 28, and 24, 32 and 64 filters on as
 * few pixels (2 x 128 x 128, 29 x 80 x 80, 25 x 43 x 43) had TF32 (H200). */
enum { EXACT_FILTERS = 48, ROUNDED_FILTERS = 32, EXACT_PIXELS = 1 << 16 };

static int may_be_exact(const struct anchor *s)
{
	int64_t pixels = ix_num(s->in[0].size[0]), filters = ix_num(s->in[1].size[0]);

	if (s->conv.nd != 2 || s->conv.groups > 1 || filters <= ROUNDED_FILTERS || filters > EXACT_FILTERS)
		return 0;
	for (int e = 0; e < 2; e++) {
		if (ix_num(s->in[1].size[2 + e]) != 3 || s->conv.stride[e] != 1 || s->conv.dil[e] != 1)
			return 0;
		pixels *= ix_num(s->in[0].size[2 + e]);
	}
	return pixels <= EXACT_PIXELS;
}

/* Is it a transposed convolution ahead of the one that is lowered now? */
static int was_transposed(const struct pl *pl, const struct gnode *n)
{
	for (int i = 0; i < pl->n_anchor; i++)
		if (pl->anchor[i]->kind == S_CONV && pl->anchor[i]->conv.transposed && !strcmp(pl->anchor[i]->node, n->name))
			return 1;
	return 0;
}

/* Does another convolution of the graph, n's aside, have more channels, so that PyTorch's result has TF32's error?  A
 * transposed one ahead does not count: what it hands on is a sum and a bias.  Of small inputs the bias is nearly all of
 * that, n would round it, and a norm behind n takes away everything but its rounding (30 times PyTorch's error where
 * n alone was rounded, inputs scaled by 2^-6). */
static int others_round(const struct pl *pl, const struct gnode *n)
{
	for (int i = 0; i < pl->n_node; i++) {
		const struct gnode *o = &pl->node[i];

		if (o == n || !o->row || o->row->fn != n->row->fn || o->n_arg < 2 || o->arg[1].kind != G_VAL ||
			was_transposed(pl, o))
			continue;
		for (int b = 0; b < pl->n_buf; b++)
			if (pl->buf[b]->rank > 2 && pl->buf[b]->val && !strcmp(pl->buf[b]->pname, o->arg[1].name) &&
				ix_num(pl->buf[b]->size[1]) > EXACT_CHANNELS)
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

static int is_exact(const struct pl *pl, const struct gnode *n, const struct anchor *s)
{
	int alone = s->conv.transposed ? is_strided_volume(s) && has_many_taps(s)
								   : ix_num(s->in[0].size[1]) <= EXACT_CHANNELS || may_be_exact(s);

	return s->in[0].val->dt == WW_F32 && alone && !others_round(pl, n);
}

/* Are contiguous and channels-last the same layout of x? */
static int same_order(const struct val *x)
{
	int space = 0;

	for (int d = 2; d < x->rank; d++)
		space |= !ix_is(x->size[d], 1);
	return !space || ix_is(x->size[1], 1);
}

static int is_turned(const struct val *v, const struct val *x)
{
	return v->last && (v->kind == V_VIEW ? v->arg[0] : v->kind == V_ANCHOR ? v->anchor->in[0].val : NULL) == x;
}

static int is_turn_of(const struct anchor *s, const struct val *x) { return s->kind == S_TURN && s->in[0].val == x; }

/* Is x an input or a parameter that is stored channels-last already? */
static int is_stored_last(struct pl *pl, const struct val *x)
{
	const struct ix *last[PL_MAX_RANK];

	if (x->kind != V_BUF || x->root->contiguous)
		return 0;
	pl_channels_last(pl, x->rank, x->size, last);
	for (int d = 0; d < x->rank; d++)
		if (!ix_is(x->size[d], 1) && ix_num(x->root->stride[d]) != ix_num(last[d]))
			return 0;
	return 1;
}

/* Is x an input or a parameter whose planes and channels fill a tile? */
static int large_buffer(const struct val *x)
{
	int64_t plane = 1;

	for (int d = 2; d < x->rank; d++)
		plane *= ix_num(x->size[d]);
	return x->kind == V_BUF && x->root->contiguous && plane >= 32 && ix_num(x->size[1]) >= 8;
}

/* Does x lie channels-last already, or as it would? */
static int lies_last(struct pl *pl, const struct val *x) { return x->last || same_order(x) || is_stored_last(pl, x); }

/* Store x channels-last; rules that read it from now on read that copy. */
static struct val *channels_last(struct pl *pl, struct gnode *n, struct val *x)
{
	struct val *v;

	if (lies_last(pl, x))
		return x;
	for (int i = 0; i < pl->n_anchor; i++) {
		if (is_turn_of(pl->anchor[i], x))
			return pl->anchor[i]->out;
		for (int k = 0; k < pl->anchor[i]->n_in; k++)
			if (is_turned(pl->anchor[i]->in[k].val, x))
				return pl->anchor[i]->in[k].val;
	}
	if (large_buffer(x))
		return pl_turn(pl, n, x);
	v = pl_view(pl, x, x->rank, x->size, pl->place);
	v->last = 1;
	pl_make_root(pl, v);
	for (int i = 0; i < pl->n_node; i++)
		for (int o = 0; o < PL_MAX_OUTS; o++)
			if (pl->node[i].out[o] == x)
				pl->node[i].out[o] = v;
	return v;
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

/* Is it better a forward convolution of filters turned around?  Where these are stored anyway: a kernel of its own
 * would be needed else.  Of few channels the forward engines may do without TF32. */
static int is_forward(struct pl *pl, const struct anchor *s)
{
	int forward = s->conv.last && pl_is_slow_gradient(s) && ix_num(s->in[0].size[1]) > EXACT_CHANNELS &&
		!lies_last(pl, s->in[1].val);

	for (int e = 0; e < s->conv.nd; e++)
		forward &= !s->conv.opad[e] && s->conv.pad[e] < ix_num(s->in[1].size[2 + e]);
	return forward;
}

/* Of stride 1: what the first tap of a filter does in one, the last tap does in the other. */
static void make_forward(struct pl *pl, struct anchor *s)
{
	struct val *w = s->in[1].val;
	const struct ix *size[PL_MAX_RANK] = { w->size[1], w->size[0] };
	const struct ix *map[PL_MAX_RANK] = { pl->place[1], pl->place[0] };

	for (int e = 0; e < s->conv.nd; e++) {
		const struct ix *last = ix_addc(pl, w->size[2 + e], -1);

		size[2 + e] = w->size[2 + e];
		map[2 + e] = ix_sub(pl, last, pl->place[2 + e]);
		s->conv.pad[e] = ix_num(last) - s->conv.pad[e];
	}
	s->conv.transposed = 0;
	s->in[1].val = pl_view(pl, w, w->rank, size, map);
	memcpy(s->in[1].size, s->in[1].val->size, sizeof(s->in[1].size));
}

/* A transposed convolution in phases, along one dimension: place o of the result, at t = o + pad without padding, is 0
 * where `apart` does not divide t; else element t / apart % step of a pixel at t / apart / step - lead of a forward
 * convolution. */
struct phases {
	int64_t apart, step, lead;
};

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Fills f, a forward convolution of stride 1 whose channels are the phases of s, and ph for each dimension: those of a
 * phase take every step-th tap, and all have as many as the longest.  0: steps and dilation have no such form. */
static int in_phases(const struct anchor *s, const struct ix *const *out, struct anchor *f, struct phases *ph)
{
	for (int e = 0; e < s->conv.nd; e++) {
		int64_t g = common_divisor(s->conv.dil[e], s->conv.stride[e]), taps = ix_num(s->in[1].size[2 + e]), reach, end;

		ph[e].apart = g;
		ph[e].step = s->conv.stride[e] / g;
		f->conv.dil[e] = s->conv.dil[e] / g;
		if (ph[e].step > 1 && f->conv.dil[e] > 1)
			return 0;
		taps = (taps + ph[e].step - 1) / ph[e].step;
		reach = (taps - 1) * f->conv.dil[e];
		end = (s->conv.pad[e] + ix_num(out[2 + e]) - 1) / g / ph[e].step;
		ph[e].lead = ww_min(reach, (s->conv.pad[e] + g - 1) / g / ph[e].step);
		while (ph[e].lead >= 0 && end - ph[e].lead >= ix_num(s->in[0].size[2 + e]) + reach - 2 * ph[e].lead)
			ph[e].lead--;
		if (ph[e].lead < 0)
			return 0;
		f->conv.stride[e] = 1;
		f->conv.opad[e] = 0;
		f->conv.pad[e] = reach - ph[e].lead;
	}
	f->conv.transposed = 0;
	return 1;
}

/* The filters of f: (phases x k, c, taps), of which the last tap is the first one of w's. */
static struct val *phase_filters(struct pl *pl, const struct anchor *s, struct val *w, const struct phases *ph)
{
	const struct ix *size[PL_MAX_RANK] = { w->size[1], w->size[0] }, *map[PL_MAX_RANK] = { pl->place[1] },
					*phase = ix_div(pl, pl->place[0], w->size[1]), *cond = ix_const(pl, 1);

	map[1] = ix_mod(pl, pl->place[0], w->size[1]);
	for (int e = s->conv.nd - 1; e >= 0; e--) {
		const struct ix *step = ix_const(pl, ph[e].step);
		int64_t taps = (ix_num(w->size[2 + e]) + ph[e].step - 1) / ph[e].step;

		size[0] = ix_mul(pl, size[0], step);
		size[2 + e] = ix_const(pl, taps);
		map[2 + e] = ix_add(
			pl, ix_mod(pl, phase, step), ix_mul(pl, ix_sub(pl, ix_const(pl, taps - 1), pl->place[2 + e]), step));
		cond = ix_mul(pl, cond, ix_lt(pl, map[2 + e], w->size[2 + e]));
		phase = ix_div(pl, phase, step);
	}
	return pl_view_if(pl, w, w->rank, size, map, cond, 0);
}

/* The result's elements, each from its phase. */
static struct val *from_phases(struct pl *pl, const struct anchor *s, struct val *y, const struct ix *channels,
	const struct ix *const *out, const struct phases *ph)
{
	const struct ix *map[PL_MAX_RANK] = { pl->place[0] }, *phase = ix_const(pl, 0), *cond = ix_const(pl, 1);

	for (int e = 0; e < s->conv.nd; e++) {
		const struct ix *t = ix_addc(pl, pl->place[2 + e], s->conv.pad[e]), *apart = ix_const(pl, ph[e].apart),
						*step = ix_const(pl, ph[e].step);

		if (ph[e].apart > 1)
			cond = ix_mul(pl, cond, ix_eqz(pl, ix_mod(pl, t, apart), ix_const(pl, 0)));
		t = ix_div(pl, t, apart);
		phase = ix_add(pl, ix_mul(pl, phase, step), ix_mod(pl, t, step));
		map[2 + e] = ix_addc(pl, ix_div(pl, t, step), -ph[e].lead);
	}
	map[1] = ix_add(pl, ix_mul(pl, phase, channels), pl->place[1]);
	return pl_view_if(pl, y, y->rank, out, map, cond, 0);
}

/* cuda, channels-last: a transposed convolution whose gradient cuDNN computes slowly, as one forward convolution for
 * all phases of its stride and a reader that takes them apart.  Taps that a phase lacks are zeros.  NULL: not by the
 * estimates, its stride and dilation have no such form, or PyTorch computes it without TF32, which the forward engine
 * has. */
static struct val *by_phases(
	struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	const struct ix *size[PL_MAX_RANK] = { x->size[0] };
	struct phases ph[3];
	struct anchor f = *s, t = *s;
	struct val *y;

	if (!s->conv.last || s->conv.exact || !pl_is_slow_stride(s) || ix_num(x->size[1]) <= EXACT_CHANNELS ||
		!in_phases(s, out, &f, ph))
		return NULL;
	f.in[1].val = phase_filters(pl, s, w, ph);
	memcpy(f.in[1].size, f.in[1].val->size, sizeof(f.in[1].size));
	size[1] = f.in[1].size[0];
	for (int e = 0; e < s->conv.nd; e++)
		size[2 + e] = ix_addc(
			pl, x->size[2 + e], 2 * f.conv.pad[e] - f.conv.dil[e] * (ix_num(f.in[1].size[2 + e]) - 1));
	f.out = pl_val(pl, V_ANCHOR, x->dt, x->rank, size);
	t.out = pl_val(pl, V_ANCHOR, x->dt, x->rank, out);
	if (pl_conv_last_us(&t) < pl_conv_last_us(&f))
		return NULL;
	*s = f;
	pl_anchor_operand(s, channels_last(pl, n, x));
	pl_anchor_operand(s, channels_last(pl, n, f.in[1].val));
	y = pl_anchor_out(pl, s, x->dt, x->rank, size);
	if (!ix_same(size[1], out[1])) { /* else few pixels: turned, so that neighbours of the result read neighbours */
		y->last = 1;
		pl_make_root(pl, y);
	}
	return from_phases(pl, &t, y, out[1], out, ph);
}

/* Is x a part of a tensor, in that one's order of dimensions (one of its chunks)? */
static int is_slice(const struct pl *pl, const struct val *x)
{
	if (x->kind != V_VIEW || x->cond || x->rank != x->arg[0]->rank)
		return 0;
	for (int d = 0; d < x->rank; d++)
		for (int e = 0; e < x->rank; e++)
			if (ix_has(x->map[d], ix_as_var(pl->place[e])) != (d == e))
				return 0;
	return 1;
}

/* The arguments of x in whose order x lies, while nothing is stored in between: of its rank. */
static int follows(const struct pl *pl, const struct val *x, int i)
{
	return !x->root && (x->kind == V_OP || is_slice(pl, x)) && x->arg[i]->rank == x->rank;
}

/* Is x stored channels-last, or computed from a channels-last convolution?  Looks at *left values at most. */
static int from_last(const struct pl *pl, const struct val *x, int *left)
{
	if (x->last || (x->kind == V_ANCHOR && x->anchor->kind == S_CONV && x->anchor->conv.last))
		return 1;
	for (int i = 0; i < x->n_arg; i++)
		if (follows(pl, x, i) && --*left > 0 && from_last(pl, x->arg[i], left))
			return 1;
	return 0;
}

int pl_is_last(const struct pl *pl, const struct val *x)
{
	int left = 100;

	return pl_all_last(pl) && x->rank >= 3 && from_last(pl, x, &left);
}

struct val *pl_follow_last(struct pl *pl, struct gnode *n, struct val *x)
{
	return pl_is_last(pl, x) ? channels_last(pl, n, x) : x;
}

static int convolves_after(const struct pl *pl, const struct gnode *n)
{
	for (n++; n < pl->node + pl->n_node; n++)
		if (n->row && (n->row->flags & PL_CONVOLUTION))
			return 1;
	return 0;
}

struct val *pl_copy_last(const struct pl *pl, const struct gnode *n, struct val *x, const struct val *beside)
{
	if (x->kind == V_BUF && pl_is_last(pl, beside) && convolves_after(pl, n))
		for (int i = 0; i < pl->n_anchor; i++)
			if (is_turn_of(pl->anchor[i], x))
				return pl->anchor[i]->out;
	return x;
}

/* How many tensors of x's size an expression reads, of *left values at most. */
static int count_large(const struct pl *pl, const struct val *x, int64_t numel, int *left)
{
	int n = 0;

	if (--*left < 0)
		return 0;
	if (x->root || x->kind == V_BUF || x->kind == V_ANCHOR)
		return pl_numel_now(x) == numel;
	for (int i = 0; i < x->n_arg && (x->kind == V_OP || x->kind == V_VIEW); i++)
		n += count_large(pl, x->arg[i], numel, left);
	return n;
}

struct val *pl_norm_last(struct pl *pl, struct gnode *n, struct val *x)
{
	int left = 100, convolutions = 0;

	for (int i = 0; i < pl->n_node; i++)
		convolutions |= pl->node[i].row && (pl->node[i].row->flags & PL_CONVOLUTION);
	if (!pl_all_last(pl) || x->rank < 4 || !convolutions)
		return x;
	if (!x->last && large_buffer(x))
		return channels_last(pl, n, x);
	return count_large(pl, x, pl_numel_now(x), &left) > 1 ? pl_follow_last(pl, n, x) : x;
}

static void keep_last(const struct pl *pl, struct val *x, int *left)
{
	if (x->root || --*left < 0)
		return;
	if (x->kind == V_ANCHOR && x->anchor->kind == S_CONV && x->anchor->conv.last)
		x->last = 1;
	for (int i = 0; i < x->n_arg; i++)
		if (follows(pl, x, i))
			keep_last(pl, x->arg[i], left);
}

/* What a permutation is of; *mask: dimensions of it.  NULL: x is none. */
static struct val *permuted(const struct pl *pl, struct val *x, unsigned *mask)
{
	unsigned of = 0, seen = 0;

	if (x->kind != V_VIEW || x->root || x->cond || x->rank != x->arg[0]->rank)
		return NULL;
	for (int e = 0; e < x->rank; e++)
		for (int d = 0; d < x->rank; d++)
			if (ix_same(x->map[e], pl->place[d])) {
				seen |= 1u << d;
				of |= (*mask >> d & 1) << e;
			}
	if (seen != (1u << x->rank) - 1)
		return NULL;
	*mask = of;
	return x->arg[0];
}

static void keep_for(const struct pl *pl, struct val *x, unsigned mask, int channels_alone)
{
	const unsigned all = (1u << x->rank) - 1, channels = 2;
	int left = 100;

	for (struct val *of = permuted(pl, x, &mask); of; of = permuted(pl, x, &mask))
		x = of;
	if (pl_all_last(pl) && x->rank >= 3 && (mask == channels || (!channels_alone && (mask | 1) == (all & ~channels))))
		keep_last(pl, x, &left);
}

void pl_keep_last(const struct pl *pl, struct val *x, unsigned mask) { keep_for(pl, x, mask, 0); }

void pl_keep_channels(const struct pl *pl, struct val *x, unsigned mask) { keep_for(pl, x, mask, 1); }

void pl_keep_sliced(const struct pl *pl, struct val *x)
{
	int left = 100;

	if (!pl_is_last(pl, x) || x->root)
		return;
	keep_last(pl, x, &left);
	x->last = x->kind == V_OP || x->last;
}

enum { SHORT_PRODUCT = 64 }; /* channels of one pixel */

/* Is the filter as large as the image (a squeeze-excite's 1 x 1 after the average)?  Then each image gives one pixel,
 * and the convolution is a matrix product.  On the cpu a vector of pixels would use one lane; on cuda the library has a
 * pass for what follows behind its kernel, and a thread of our template goes along all channels, more than
 * SHORT_PRODUCT of which take longer than a product of one wave of tiles; channels-last the template is not used. */
static int is_product(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	enum { ONE_WAVE = 1 << 27 };
	int64_t taps = 1, channels = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		if (ix_num(out[2 + e]) != 1 || s->conv.pad[e] || ix_num(s->in[0].size[2 + e]) != ix_num(s->in[1].size[2 + e]))
			return 0;
		taps *= ix_num(s->in[1].size[2 + e]);
	}
	if (s->conv.groups > 1 || s->conv.transposed)
		return 0;
	return pl->target == WW_TARGET_CPU ||
		(taps == 1 && (channels > SHORT_PRODUCT || pl_all_last(pl)) && !pl_all_plain(pl) &&
			pl_numel_now(s->in[0].val) * ix_num(out[1]) <= ONE_WAVE);
}

static struct val *by_product(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int rank)
{
	const struct ix *rows[2] = { x->size[0], x->size[1] }, *filters[2] = { w->size[0], w->size[1] };
	const struct ix *size[PL_MAX_RANK] = { x->size[0], w->size[0] };

	for (int d = 2; d < rank; d++) {
		pl_guard_eq(pl, x->size[d], w->size[d], "a filter as large as its image");
		rows[1] = ix_mul(pl, rows[1], x->size[d]);
		filters[1] = ix_mul(pl, filters[1], w->size[d]);
		size[d] = ix_const(pl, 1);
	}
	x = pl_reshape(pl, x, 2, rows);
	w = pl_transposed(pl, pl_reshape(pl, w, 2, filters));
	x = pl_gemm(pl, n, x, w);
	if (x->kind == V_ANCHOR) /* else it is one in either order */
		x->anchor->gemm.of_conv = ix_num(rows[1]) <= SHORT_PRODUCT;
	return pl_reshape(pl, x, rank, size);
}

/* cuda: do the filters lie side by side on the image, whose channels are few (the patches of a transformer)?  The
 * library would widen channels that do not fill 16 bytes, by passes of its own; as a product of patches nothing is read
 * twice. */
static int is_patches(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	int64_t taps = 1, c = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		int64_t side = ix_num(s->in[1].size[2 + e]);

		if (s->conv.stride[e] != side || s->conv.pad[e] || (side > 1 && s->conv.dil[e] != 1) ||
			ix_num(out[2 + e]) * side != ix_num(s->in[0].size[2 + e]))
			return 0;
		taps *= side;
	}
	return pl->target == WW_TARGET_CUDA && s->conv.groups == 1 && !s->conv.transposed && taps > 1 && taps * c >= 16 &&
		c * pl_itemsize(s->in[0].val->dt) < 16;
}

/* (n, c, out * side...) as rows (n, out...) of (c, side...), times the filters. */
static struct val *by_patches(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *rows[2] = { out[0], x->size[1] };
	const struct ix *filters[2] = { w->size[0], w->size[1] };
	const struct ix *result[3], *plane = ix_const(pl, 1);
	int nd = s->conv.nd;

	for (int e = 0; e < nd; e++) {
		int64_t side = ix_num(w->size[2 + e]);

		size[1 + e] = out[2 + e];
		size[2 + nd + e] = ix_const(pl, side);
		map[2 + e] = ix_add(pl, ix_mulc(pl, pl->place[1 + e], side), pl->place[2 + nd + e]);
		plane = ix_mul(pl, plane, out[2 + e]);
		rows[1] = ix_mulc(pl, rows[1], side);
		filters[1] = ix_mulc(pl, filters[1], side);
	}
	rows[0] = ix_mul(pl, out[0], plane);
	size[0] = out[0];
	size[1 + nd] = x->size[1];
	map[0] = pl->place[0];
	map[1] = pl->place[1 + nd];
	pl_guard_eq(pl, x->size[1], w->size[1], "a convolution's channels");
	x = pl_reshape(pl, pl_view(pl, x, 2 + 2 * nd, size, map), 2, rows);
	x = pl_gemm(pl, n, x, pl_transposed(pl, pl_reshape(pl, w, 2, filters)));
	result[0] = out[0];
	result[1] = plane;
	result[2] = w->size[0];
	x = pl_permute(pl, pl_reshape(pl, x, 3, result), (int[]){ 0, 2, 1 });
	return pl_reshape(pl, x, 2 + nd, out);
}

/* cuda, 16 bits: is a filter one element, and the convolution a product of it and each image's pixels?  cuDNN has only
 * engines for channels-last here and turns both sides around them (40 x 256 x 32 x 32 to 640, bf16: 117 us, 29 of
 * these the product); fp32 in TF32 it multiplies as it lies, and of few channels with a bias, whose pass our product
 * would save, ours was slower all the same (24001-241: 126 us, 172 as a product, H200).  Not of few channels, which are
 * our direct template's, nor of rows that no 16 bytes divide, which would be copied (201 channels of 11 x 243: 41 us in
 * place of 33). */
static int is_product_of_pixels(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	int64_t pixels = 1, channels = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		if (!ix_is(s->in[1].size[2 + e], 1) || s->conv.stride[e] != 1 || s->conv.pad[e])
			return 0;
		pixels *= ix_num(out[2 + e]);
	}
	return pl->target == WW_TARGET_CUDA && !pl_all_last(pl) && pl_is_half(s->in[0].val->dt) && s->conv.groups == 1 &&
		!s->conv.transposed && pixels >= 32 && pixels % 8 == 0 && ix_num(out[1]) >= 32 && channels >= 32 &&
		channels % 8 == 0;
}

static struct val *by_pixels(
	struct pl *pl, struct gnode *n, struct val *x, struct val *w, int rank, const struct ix *const *out)
{
	const struct ix *pixels = pl_sizes(pl, x, 2, rank), *image[3] = { x->size[0], x->size[1], pixels };
	const struct ix *filters[2] = { w->size[0], w->size[1] }, *batch[3] = { x->size[0], w->size[0], w->size[1] };
	const struct ix *map[2] = { pl->place[1], pl->place[2] };

	pl_guard_eq(pl, x->size[1], w->size[1], "a convolution's channels");
	w = pl_view(pl, pl_reshape(pl, w, 2, filters), 3, batch, map);
	x = pl_gemm(pl, n, w, pl_reshape(pl, x, 3, image));
	x->anchor->gemm.of_conv = 1;
	return pl_reshape(pl, x, rank, out);
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

/* ---- Which kernel ------------------------------------------------------------------------------------------------ */

/* ww::conv_direct; ww::conv_tc; the library's convolution of operands packed as halves (ww::after_halves); the library
 * channels-last, whose reader keeps that layout (LAST) or transposes (TURNED); in PyTorch's order, for a reader of
 * pixels' channels (TO_LAST). */
enum form { DIRECT, TENSOR_CORES, HALVES, LAST, TURNED, TO_LAST };

static int fits_tensor_cores(const struct pl *pl, const struct anchor *sp)
{
	return !sp->conv.library_only && sp->out->dt == WW_F32 && sp->conv.groups == 1 && sp->conv.nd == 2 &&
		ix_num(sp->in[0].size[1]) >= 16 && ix_num(sp->out->size[1]) >= 32 && sp->conv.stride[0] <= 8 &&
		sp->conv.stride[1] <= 8 && pl->dev.cc == 90;
}

/* Of results that no 16 bytes divide the library's engines for halves store single elements. */
static int fits_halves(const struct pl *pl, const struct anchor *sp)
{
	return !sp->conv.library_only && sp->out->dt == WW_F32 && sp->conv.groups == 1 && !sp->conv.transposed &&
		!sp->conv.exact && ix_num(sp->in[0].size[1]) >= 16 && ix_num(sp->out->size[1]) % 8 == 0 &&
		ix_num(sp->out->size[0]) <= 65535 && pl->dev.cc >= 80;
}

double pl_conv_work(const struct anchor *sp, double *taps)
{
	double work = (double)pl_numel_now(sp->out) * (double)ix_num(sp->in[0].size[1]) / sp->conv.groups;

	*taps = 1;
	for (int e = 0; e < sp->conv.nd; e++)
		*taps *= (double)ix_num(sp->in[1].size[2 + e]) / (double)(sp->conv.transposed ? sp->conv.stride[e] : 1);
	return work * *taps;
}

static double filled(const struct ix *size, int64_t tile)
{
	int64_t n = ix_num(size);

	return (double)n / (double)((n + tile - 1) / tile * tile);
}

/* Does our direct template, whose threads have a few pixels, take less time than the library?  cuDNN's tiles are mostly
 * empty where a group has few channels, and channels that do not fill 16 bytes it turns slowly. */
static int is_light(const struct pl *pl, const struct anchor *sp, int bare)
{
	static const double NEAR_US = 1; /* of a draw it is ours, which has no pass behind it */

	return pl_conv_direct_us(pl, sp) < 0.9 * pl_conv_library_us(sp, bare) + NEAR_US;
}

/* Multiply-adds of a depthwise convolution along lines in 16 bits, whose threads have one pixel each, from which on
 * the library is faster: 27 million took 1.16 times as long by the library, 415 million .83 (networks, H200). */
static const double LONG_LINES = 1e8;

/* Does the tensor-core template take longer than the library?  The estimates are for convolutions that cuDNN has good
 * engines for. */
static int is_slower(const struct pl *pl, const struct anchor *sp, int bare)
{
	for (int e = 0; e < sp->conv.nd; e++)
		if (sp->conv.dil[e] != 1)
			return 0;
	return !sp->conv.transposed && pl_gains_last(sp, sp->out->size[1]) &&
		pl_conv_library_us(sp, bare) < 0.96 * pl_conv_tc_us(pl, sp);
}

/* Does the first version pack its operands as halves? */
static int is_by_halves(const struct pl *pl, const struct anchor *sp, int bare)
{
	double others = fmin(pl_conv_library_us(sp, bare), pl_conv_turned_us(sp));

	if (!fits_halves(pl, sp))
		return 0;
	if (fits_tensor_cores(pl, sp))
		others = fmin(others, pl_conv_tc_us(pl, sp));
	return pl_conv_halves_us(sp) < fmin(others, pl_conv_direct_us(pl, sp));
}

/* Does the first version use the library?  Measured on an H200: the tensor-core template beat the library (1.05 to 2.7
 * times) if the work pays for its packing and its tiles of 64 input and 128 output channels are filled to 0.4, or to
 * 0.25 if dilated and with a fused reader.  Transposed convolutions filled to 0.5 lost (0.7), as did a dilated one with
 * nothing fused (0.77).  conv_direct (a thread a pixel) won for depthwise and for transposed grouped ones (2 to 30
 * times).  The search tries both. */
static int by_library(struct pl *pl, const struct anchor *sp, const struct knobs *kn, int bare)
{
	double taps, work = pl_conv_work(sp, &taps), least = 0.4;
	int groups = sp->conv.groups, depthwise = groups == ix_num(sp->in[0].size[1]),
		line = sp->conv.nd == 1 && pl_is_half(sp->out->dt) && work > LONG_LINES,
		in_groups = groups > 1 && (sp->conv.transposed || (depthwise && !line));

	if (sp->conv.library_only || kn->library > LIBRARY_NO)
		return 1;
	if (kn->library == LIBRARY_NO || kn->plain || in_groups || is_light(pl, sp, bare))
		return 0;
	if (sp->conv.exact)
		return 1;
	if (is_by_halves(pl, sp, bare))
		return 1;
	for (int e = 0; e < sp->conv.nd; e++)
		least = sp->conv.dil[e] > 1 && !bare ? 0.25 : least;
	least = sp->conv.transposed ? 0.6 : least;
	return !fits_tensor_cores(pl, sp) || taps < 3 || work < 1 << 29 ||
		filled(sp->in[0].size[1], 64) * filled(sp->out->size[1], 128) < least || is_slower(pl, sp, bare);
}

/* Is the first version a thread a pixel, although the tensor-core template, which rounds as TF32 does and packs its
 * operands, may fit? */
static int is_by_threads(const struct pl *pl, const struct anchor *sp, const struct knobs *kn, int bare)
{
	return kn->library == LIBRARY_AUTO && (is_light(pl, sp, bare) || sp->conv.exact);
}

/* Is a transposed convolution of few pixels a product of each pixel and all filters, whose results are then folded? Our
 * template would pack the filters, which are most of what is read, and have few tiles (331 channels of 9 x 4 to 727, 9
 * x 9: 78 MB packed across memory, then read by 12 blocks).  The product reads them once, as they lie. */
static int is_folded(struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	enum { FOLD_US = 5 }; /* and three times the bytes of its columns */
	const struct knobs first = { 0 };
	struct anchor t = *s;
	int64_t images = ix_num(out[0]), pixels = 1, columns = ix_num(out[1]);

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || !s->conv.transposed || s->conv.nd != 2)
		return 0;
	t.out = pl_val(pl, V_ANCHOR, s->in[0].val->dt, 4, out);
	if (!fits_tensor_cores(pl, &t) || by_library(pl, &t, &first, 0) || is_by_threads(pl, &t, &first, 0))
		return 0;
	for (int e = 0; e < 2; e++) {
		pixels *= ix_num(s->in[0].size[2 + e]);
		columns *= ix_num(s->in[1].size[2 + e]);
	}
	return pl_product_us(pl, columns, pixels, ix_num(s->in[0].size[1]), images) + FOLD_US +
		3 * 4e-6 * (double)(images * columns * pixels) <
		0.75 * pl_conv_tc_us(pl, &t);
}

/* (n, c, pixels), each pixel times (c, k taps), as columns (n, k taps, pixels). */
static struct val *by_fold(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	const struct ix *image[3] = { x->size[0], x->size[1], pl_sizes(pl, x, 2, 4) }, *matrix[3], *map[2];
	const struct ix *filters[2] = { w->size[0], pl_sizes(pl, w, 1, 4) };
	struct pl_fold f;

	for (int e = 0; e < 2; e++) {
		f.k[e] = ix_num(w->size[2 + e]);
		f.dil[e] = s->conv.dil[e];
		f.pad[e] = s->conv.pad[e];
		f.step[e] = s->conv.stride[e];
		f.blocks[e] = x->size[2 + e];
	}
	pl_guard_eq(pl, x->size[1], w->size[0], "a convolution's channels");
	matrix[0] = x->size[0];
	matrix[1] = filters[1];
	matrix[2] = filters[0];
	map[0] = pl->place[2];
	map[1] = pl->place[1];
	w = pl_view(pl, pl_reshape(pl, w, 2, filters), 3, matrix, map);
	x = pl_gemm(pl, n, w, pl_reshape(pl, x, 3, image));
	if (x->kind == V_ANCHOR)
		x->anchor->gemm.of_conv = 1;
	return pl_fold(pl, x, &f, out + 2);
}

/* ---- What lowering calls ----------------------------------------------------------------------------------------- */

struct val *pl_conv(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int nd, const int64_t *stride,
	const int64_t *pad, const int64_t *dil, int transposed, const int64_t *opad, int64_t groups)
{
	struct anchor *s = pl_anchor(pl, n, S_CONV, transposed ? "transposed convolution" : "convolution");
	const struct ix *size[PL_MAX_RANK];
	struct val *y;
	int cuda = pl->target == WW_TARGET_CUDA, template, library;

	template = x->dt == w->dt &&
		(x->dt == WW_F32 || (pl_is_half(x->dt) && (!cuda || is_small(w, groups, ix_num(x->size[1])))));
	library = cuda && x->dt == w->dt && (x->dt == WW_F32 || pl_is_half(x->dt)) && !pl_all_plain(pl);
	s->conv.nd = nd;
	s->conv.transposed = transposed;
	s->conv.groups = (int)groups;
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
	if (is_product(pl, s, size)) {
		pl->n_anchor--;
		return by_product(pl, n, x, w, nd + 2);
	}
	if (library && 2 + 2 * nd <= PL_MAX_RANK && is_patches(pl, s, size)) {
		struct anchor of = *s;

		pl->n_anchor--;
		return by_patches(pl, n, &of, x, w, size);
	}
	s->conv.pytorch_last = library && pl_stored_last(&n->meta[0]);
	if (library && !s->conv.pytorch_last && is_product_of_pixels(pl, s, size)) {
		pl->n_anchor--;
		return by_pixels(pl, n, x, w, nd + 2, size);
	}
	s->conv.last = library && pl_all_last(pl) && (s->conv.pytorch_last || pl_gains_last(s, size[1]));
	s->conv.exact = !s->conv.pytorch_last && is_exact(pl, n, s);
	s->conv.library_only = !template || s->conv.last;
	if (library && template && is_folded(pl, s, size)) {
		const struct anchor of = *s;

		pl->n_anchor--;
		return by_fold(pl, n, &of, x, w, size);
	}
	if (!template && !library) {
		pl->n_anchor--;
		return by_reduction(pl, n, s, x, w, nd + 2, size);
	}
	if ((y = by_phases(pl, n, s, x, w, size)))
		return y;
	if (is_forward(pl, s)) {
		make_forward(pl, s);
		w = s->in[1].val;
	}
	pl_anchor_operand(s, s->conv.last ? channels_last(pl, n, x) : x);
	pl_anchor_operand(s, s->conv.last ? channels_last(pl, n, w) : w);
	return pl_anchor_out(pl, s, x->dt, nd + 2, size);
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

/* ---- Schedule ---------------------------------------------------------------------------------------------------- */

/* A tile of the tensor-core template has a multiprocessor to itself, and its end waits for loads two pixels after two
 * pixels.  Of at most one wave of tiles nothing hides that: with two tensors to read it took 22 us more than a pass (3
 * x 3, 256 channels of 2 x 40 x 40, H200). */
static int ends_apart(struct pl *pl, const struct anchor *sp, int reads)
{
	const struct knobs kn = { 0 };

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && !sp->conv.last && reads >= 2 &&
		pl_numel_now(sp->out) <= (int64_t)128 * 64 * pl->dev.sm_count && fits_tensor_cores(pl, sp) &&
		!by_library(pl, sp, &kn, 0) && !is_by_threads(pl, sp, &kn, 0);
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

/* The tensor-core template's tile and end.  A transposed convolution ends from registers (neighbours in a tile are a
 * stride apart in memory), in the tile that its recipe chooses.  Where no tile is as the knobs ask, one is as the
 * estimate has it. */
static struct ww_conv_way way_of(struct pl *pl, const struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id), none = { .conv.filters = kn->conv.filters };
	struct ww_conv_way way = { WW_CONV_REGISTERS, kn->conv.bn, 128, { kn->conv.tw <= 64 ? kn->conv.tw : 0, 0, 0, 0 },
		0 };

	if (k->anchor->conv.transposed)
		return way;
	way = pl_conv_way(pl, k->anchor, kn);
	return way.tile.tiles ? way : pl_conv_way(pl, k->anchor, &none);
}

/* Does the tensor-core template store four pixels at a time?  Unstaged where a block does two phases of a row, as
 * ww_recipe_conv_tc() has it. */
static int stores_fours(struct pl *pl, const struct kern *k)
{
	const struct anchor *sp = k->anchor;

	return ix_num(sp->out->size[3]) % 4 == 0 &&
		(way_of(pl, k).end != WW_CONV_REGISTERS ||
			(sp->conv.transposed && sp->conv.stride[1] == 2 && pl_knobs(pl, k->id)->conv.bn != 256));
}

/* Which kernels in PyTorch's order, and enum pl_library_facts of them. */
static void choose(struct pl *pl, const struct kern *k, const struct knobs *kn, int bare, struct loop *l)
{
	const struct anchor *sp = k->anchor;
	int by = by_library(pl, sp, kn, bare), fit = fits_halves(pl, sp) && !k->out[0]->last,
		halves = by && fit && (kn->library == LIBRARY_HALVES || (!kn->library && is_by_halves(pl, sp, bare)));

	l->form = !kn->plain && !is_by_threads(pl, sp, kn, bare) && fits_tensor_cores(pl, sp) ? TENSOR_CORES : DIRECT;
	l->library = (sp->conv.library_only ? LIBRARY_ONLY : 0) | (l->form == TENSOR_CORES ? OURS_TILED : 0) |
		(l->form == TENSOR_CORES && !sp->conv.transposed && pl_is_beyond_l2(sp) ? OURS_BEYOND_L2 : 0) |
		(by ? BY_LIBRARY : 0) | (halves ? IN_HALVES : 0) | (fit ? FITS_HALVES : 0);
	l->form = halves ? HALVES : by && k->out[0]->last ? TO_LAST : l->form;
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
		choose(pl, k, kn, pl_is_bare(k), l);
		if ((l->library & BY_LIBRARY) && l->form != HALVES && pl_is_bare(k))
			return;
	}
	l->inner = pl_sizes(pl, sp->out, 2, 2 + sp->conv.nd);
	if (l->form == TO_LAST) {
		end_at_channels(pl, k);
		return;
	}
	plane = ix_num(l->inner);
	fours = (l->library & BY_LIBRARY) || (l->form == TENSOR_CORES && stores_fours(pl, k));
	end_at_pixels(pl, k, plane % 2 ? 1 : fours && plane % 4 == 0 ? 4 : 2);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static const char *sizes(struct pl *pl, const struct ix *const *size, int nd)
{
	const char *s = ix_text(pl, size[2]);

	for (int e = 1; e < nd; e++)
		s = pl_fmt(pl, "%s, %s", s, ix_text(pl, size[2 + e]));
	return s;
}

static const char *numbers(struct pl *pl, const int64_t *v, int nd)
{
	const char *s = pl_fmt(pl, "%lld", (long long)v[0]);

	for (int e = 1; e < nd; e++)
		s = pl_fmt(pl, "%s, %lld", s, (long long)v[e]);
	return s;
}

/* The fields that the recipes of both targets have; `lead` and `choice`: further fields of cuda. */
static const char *geometry(struct pl *pl, const struct anchor *sp, const char *lead, const char *choice)
{
	int nd = sp->conv.nd;

	return pl_fmt(pl,
		".nd = %d, .transposed = %d, %s.groups = %d, .n = %s, .c = %s, .k = %s, .in = { %s }, .kernel = { %s }, "
		".out = { %s },\n"
		"\t\t.stride = { %s }, .pad = { %s }, .dilation = { %s }, %s.x_buf = %s, .w_buf = %s, .x_offset_bytes = %s, "
		".w_offset_bytes = %s",
		nd, sp->conv.transposed, lead, sp->conv.groups, ix_text(pl, sp->out->size[0]), ix_text(pl, sp->in[0].size[1]),
		ix_text(pl, sp->out->size[1]), sizes(pl, sp->in[0].size, nd), sizes(pl, sp->in[1].size, nd),
		sizes(pl, sp->out->size, nd), numbers(pl, sp->conv.stride, nd), numbers(pl, sp->conv.pad, nd),
		numbers(pl, sp->conv.dil, nd), choice, pl_plan_buf(pl, sp->in[0].buf), pl_plan_buf(pl, sp->in[1].buf),
		pl_bytes(pl, &sp->in[0]), pl_bytes(pl, &sp->in[1]));
}

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_conv.tile_rows), "tile_rows", { 4, 8, 16, 2 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	int dt = k->anchor->in[0].val->dt;
	const char *suffix = pl_cpu_suffix(dt);

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s,
		"void @_epi(const void *ctx, long long img, long long chan, long long pixel, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = pixel;\n\n\t(void)img;\n\t(void)chan;\n", pl_axis(pl, k, 0, "img"),
			pl_axis(pl, k, 1, "chan"), k->loop->lane->name),
		k->loop->store);
	ww_str_adds(s, pl_named(pl, k, "WW_KERNEL(@_pack)\n{\n\tww_cpu_conv_pack%s(b, arg);\n}\n\n", suffix));
	pl_cpu_kernel(pl, k, s, "WW_CONV_ARGS", pl_fmt(pl, "ww_cpu_conv%s(b, arg, @_epi, &c)", suffix));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_conv(p, \"@\", &(struct ww_cpu_conv){\n\t\t%s,\n\t\t.tile_rows = %d });\n%s",
		geometry(pl, k->anchor, dt == WW_F32 ? "" : ".half = 1, ", ""), pl_knobs(pl, k->id)->cpu_conv.tile_rows,
		pl_plan_args(pl, k, "\t"));
}

static const struct knob_row cuda_knobs[] = { { KNOB(conv.end), "end",
												  { WW_CONV_PAIRS, WW_CONV_STAGED, WW_CONV_REGISTERS } },
	{ KNOB(conv.filters), "filters", { 64, 128 } }, { KNOB(conv.bn), "bn", { 256, 128 } },
	{ KNOB(conv.tw), "tw", { 16, 32, 128, 64, 8 } }, { KNOB(choice), "algorithm", { 1, 2, 4, 3 } }, { 0 } };

/* The statement of plan.c that has the library write to buffer `y`. */
static const char *node(struct pl *pl, const struct kern *k, const char *y)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int dt = k->anchor->out->dt;

	return pl_fmt(pl, "\t\tww_recipe_conv_library(p, &(struct ww_conv){ %s, .y_buf = %s });\n",
		geometry(pl, k->anchor,
			pl_fmt(pl, ".dtype = %s, .math = WW_MATH_%s, %s", pl_dtype_name(dt),
				pl_math_name(dt, kn->library == LIBRARY_FP32 ? "FP32" : "TF32"),
				k->anchor->conv.last ? ".layout = WW_LAYOUT_NHWC, " : ""),
			pl_fmt(pl, ".choice = %d, ", kn->choice)),
		y);
}

/* The fields of struct ww_conv2d: of the last two dimensions, and of a third before them. */
static const char *geometry2(struct pl *pl, const struct anchor *sp)
{
	static const int64_t none[] = { 0 }, one[] = { 1 };
	int nd = sp->conv.nd, y = nd - 2, x = nd - 1;
	const char *t = pl_fmt(pl, ".h = %s, .w = %s, .r = %s, .s = %s", nd == 1 ? "1" : ix_text(pl, sp->in[0].size[nd]),
		ix_text(pl, sp->in[0].size[nd + 1]), nd == 1 ? "1" : ix_text(pl, sp->in[1].size[nd]),
		ix_text(pl, sp->in[1].size[nd + 1]));
	const struct {
		const char *name;
		const int64_t *v, *absent;
	} pairs[] = { { "stride", sp->conv.stride, one }, { "pad", sp->conv.pad, none }, { "dil", sp->conv.dil, one },
		{ "out_pad", sp->conv.opad, none } };

	for (size_t i = 0; i < WW_ARRAY_LEN(pairs); i++)
		t = pl_fmt(pl, "%s, .%s = { %lld, %lld }", t, pairs[i].name,
			(long long)(y < 0 ? *pairs[i].absent : pairs[i].v[y]), (long long)pairs[i].v[x]);
	if (nd == 3)
		t = pl_fmt(pl, "%s, .d = %s, .t = %s", t, ix_text(pl, sp->in[0].size[2]), ix_text(pl, sp->in[1].size[2]));
	for (size_t i = 0; nd == 3 && i < WW_ARRAY_LEN(pairs); i++)
		t = pl_fmt(pl, "%s, .%s3 = %lld", t, pairs[i].name, (long long)pairs[i].v[0]);
	return t;
}

static void print_ours(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *type = pl_ctype(sp->in[0].val->dt, pl->target);
	int tc = k->loop->form == TENSOR_CORES;
	struct ww_conv_way way = { 0, kn->conv.bn, 128, { kn->conv.tw, 0, 0, 0 }, 0 };

	if (tc)
		way = way_of(pl, k);
	ww_str_adds(s, pl_named(pl, k, "WW_CONV_SHAPE(@)\n"));
	if (tc)
		pl_cuda_kernel(pl, k, s, way.end == WW_CONV_PAIRS ? "640, 1" : "384, 1",
			"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
			"\t\tconst unsigned *sw, const unsigned *sx",
			"conv_tc<@_shape>(ta, tb, sw, sx");
	else
		pl_cuda_kernel(pl, k, s, "256", pl_fmt(pl, "const %s *conv_x, const %s *conv_w", type, type),
			"conv_direct<@_shape>(conv_x, conv_w");
	k->launch = pl_named(pl, k,
		"\tww_recipe_conv_%s(p, &(struct ww_conv2d){ .kernel = \"@\", .x_buf = %s, .w_buf = %s, .x_offset_bytes = %s, "
		".w_offset_bytes = %s,\n"
		"\t\t.n = %s, .c = %s, .k = %s, .transposed = %d, .groups = %d, .bn = %d, .tw = %d%s%s,\n\t\t%s });\n%s",
		tc ? "tc" : "direct", pl_plan_buf(pl, sp->in[0].buf), pl_plan_buf(pl, sp->in[1].buf), pl_bytes(pl, &sp->in[0]),
		pl_bytes(pl, &sp->in[1]), ix_text(pl, sp->out->size[0]), ix_text(pl, sp->in[0].size[1]),
		ix_text(pl, sp->out->size[1]), sp->conv.transposed, sp->conv.groups, way.bn, way.tile.tw,
		way.end == WW_CONV_STAGED      ? ", .staged = 1"
			: way.end == WW_CONV_PAIRS ? ", .staged = 1, .pairs = 2"
									   : "",
		tc && !sp->conv.transposed && way.filters == 64 ? ", .filters = 64" : "", geometry2(pl, sp),
		pl_plan_args(pl, k, "\t"));
}

static void print_halves(struct pl *pl, struct kern *k, struct ww_str *s)
{
	pl_cuda_kernel(pl, k, s, "256",
		"const __half *library_y, long long library_rows, const unsigned *sw, const unsigned *sx",
		"after_halves<ix_t, @_ROWS, @_COLS, @_VEC, @_RUNS>(library_y, library_rows, sw, sx");
	k->launch = pl_named(pl, k, "\tww_recipe_conv_halves(p, \"@\", &(struct ww_conv){ %s }, %d);\n%s",
		geometry(pl, k->anchor, "", pl_fmt(pl, ".choice = %d, ", pl_knobs(pl, k->id)->choice)), k->loop->width,
		pl_plan_args(pl, k, "\t"));
}

static void print_last(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct val *out = k->anchor->out;
	const char *y = node(pl, k, "library_y");

	pl_cuda_pixel_functor(pl, k, s);
	pl_cuda_after_library(pl, k, s, k->loop->form == TO_LAST ? "after_library_turned" : "after_library", y, out->dt,
		out->size[0], k->loop->inner, out->size[1]);
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct val *out = k->anchor->out;
	const char *image = pl_var_or(k->anchor_idx[0], "image_"), *chan = pl_var_or(k->anchor_idx[1], "chan_");

	if (!k->loop->store) {
		k->launch = pl_fmt(pl, "\t{\n%s\t}\n", node(pl, k, pl_plan_buf(pl, out->root)));
		return;
	}
	if (k->loop->form == LAST || k->loop->form == TO_LAST) {
		print_last(pl, k, s);
		return;
	}
	pl_cuda_functor(pl, k, s, "", "int image, int chan, int pix",
		pl_fmt(pl, "\t\tconst ix_t %s = image, %s = chan;\n\t\t(void)%s;\n\t\t(void)%s;\n", image, chan, image, chan));
	if (k->loop->form == HALVES)
		print_halves(pl, k, s);
	else if (k->loop->library & BY_LIBRARY)
		pl_cuda_after_library(pl, k, s, k->loop->form == TURNED ? "after_library_turned" : "after_library",
			node(pl, k, "library_y"), out->dt, out->size[0], out->size[1], k->loop->inner);
	else
		print_ours(pl, k, s);
}

const struct anchor_ops pl_conv_ops = { .header = "conv",
	.by_library = "convolutions",
	.library_tf32 = 1,
	.fuses = FUSES_READER,
	.fits = fits,
	.ends_free = ends_free,
	.ends_apart = ends_apart,
	.build = build,
	.knobs = { cpu_knobs, cuda_knobs },
	.print = { print_cpu, print_cuda } };
