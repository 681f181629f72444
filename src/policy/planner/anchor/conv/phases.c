/* phases.c - transposed convolutions of three dimensions as forward ones: of filters turned around (stride 1), or of
 * the phases of a larger stride. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* Is it better a forward convolution of filters turned around?  Where these are stored anyway: a kernel of its own
 * would be needed else.  Of few channels the forward engines may do without TF32; else they have it, and PyTorch's
 * gradient may do without. */
static int is_forward(struct pl *pl, const struct anchor *s)
{
	int forward = s->conv.last && !s->conv.exact && pl_is_slow_gradient(s) &&
		ix_num(s->in[0].size[1]) > EXACT_CHANNELS && !pl_conv_lies_last(pl, s->in[1].val);

	for (int e = 0; e < s->conv.nd; e++)
		forward &= !s->conv.opad[e] && s->conv.pad[e] < ix_num(s->in[1].size[2 + e]);
	return forward;
}

/* Of stride 1: what the first tap of a filter does in one, the last tap does in the other. */
void pl_conv_make_forward(struct pl *pl, struct anchor *s)
{
	struct val *w = s->in[1].val;
	const struct ix *size[PL_MAX_RANK] = { w->size[1], w->size[0] };
	const struct ix *map[PL_MAX_RANK] = { pl->place[1], pl->place[0] };

	if (!is_forward(pl, s))
		return;
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

struct val *pl_conv_by_phases(
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
	if (pl_conv_last_us(&t, 0) < pl_conv_last_us(&f, 0))
		return NULL;
	*s = f;
	pl_anchor_operand(s, pl_conv_store_last(pl, n, x));
	pl_anchor_operand(s, pl_conv_store_last(pl, n, f.in[1].val));
	y = pl_anchor_out(pl, s, x->dt, x->rank, size);
	if (!ix_same(size[1], out[1])) { /* else few pixels: turned, so that neighbours of the result read neighbours */
		y->last = 1;
		pl_make_root(pl, y);
	}
	return from_phases(pl, &t, y, out[1], out, ph);
}
