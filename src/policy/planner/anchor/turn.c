/* turn.c - a copy of what is stored to channels-last, for channels-last convolutions (cuda).
 *
 * A pointwise kernel that reads pixel by pixel would load a cache line for each element; a block transposes a tile in
 * shared memory instead. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

struct val *pl_turn(struct pl *pl, struct gnode *n, struct val *x)
{
	struct anchor *s = pl_anchor(pl, n, S_TURN, "channels last");
	struct val *v;

	pl_anchor_operand(s, x);
	v = pl_anchor_out(pl, s, x->dt, x->rank, x->size);
	v->last = 1;
	pl_make_root(pl, v);
	return v;
}

static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	(void)s, (void)which;
	return pl_operand_contiguous(pl, o) && ix_is(o->offset, 0);
}

static void build(struct pl *pl, struct kern *k)
{
	const struct val *out = k->anchor->out;

	k->loop->inner = pl_sizes(pl, out, 2, out->rank);
	k->loop->width = pl_widest(out->size[1], 4);
	k->loop->lane = pl_lane_of(pl, k, 1);
	k->loop->store = pl_store_body(pl, k, "chan");
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct val *out = k->anchor->out;

	pl_cuda_pixel_functor(pl, k, s);
	pl_cuda_kernel(pl, k, s, "256",
		pl_fmt(pl, "const %s *turned_x, long long turned_rows", pl_ctype(out->dt, pl->target)),
		"after_library_turned<ix_t, @_ROWS, @_COLS, @_VEC, @_RUNS>(turned_x, turned_rows");
	k->launch = pl_named(pl, k, "\tww_recipe_after_library_turned(p, \"@\", %s, %s, %s, %s, %d);\n%s",
		pl_plan_buf(pl, k->anchor->in[0].buf), ix_text(pl, out->size[0]), ix_text(pl, k->loop->inner),
		ix_text(pl, out->size[1]), k->loop->width, pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_turn_ops = {
	.header = "library", .fits = fits, .build = build, .print = { NULL, print_cuda }
};
