/* recipe/rnn_stack.h - the plan half of <ww/rnn_stack.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_RNN_STACK_H
#define WW_RECIPE_RNN_STACK_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/rnn_stack_tile.h>

struct ww_rnn_stack {
	const char *kernel;
	int gates, cells; /* 4 and 1 for LSTM, 3 and 0 for GRU, 1 and 0 for RNN */
	int chains;
	/* 0: each chain but the first reads the one before, and out is (chains, slots, batch, hidden).  1: none does, and
	 * out is (slots, batch, chains, hidden). */
	int beside;
	int out; /* the buffer, from its beginning */
	long long steps, batch, hidden;
};

/* Leading arguments: int steps, int batch, int hidden, int units, int rows, int out_row, long long out_chain.  Defines
 * KERNEL_THREADS, KERNEL_ALONE, KERNEL_LANES, KERNEL_HELD, KERNEL_EACH and KERNEL_VEC. */
static void ww_recipe_rnn_stack(struct ww_plan *p, const struct ww_rnn_stack *r)
{
	const struct ww_device *d = ww_device(p);
	const struct ww_rnn_stack_size size = { r->gates, r->cells, r->chains, !r->beside && r->chains > 1, r->steps,
		r->batch, r->hidden, d->sm_count, d->shared_per_block_bytes };
	const struct ww_rnn_stack_tile t = ww_rnn_stack_choose(&size);
	const long long slot = r->batch * r->hidden, slots = r->steps + r->cells;

	if (!t.lanes) {
		ww_fail(p, "rnn: chains of this number and size do not fit the multiprocessors");
		return;
	}
	ww_tunable(p, r->kernel, "THREADS", t.threads);
	ww_tunable(p, r->kernel, "ALONE", t.alone);
	ww_tunable(p, r->kernel, "LANES", t.lanes);
	ww_tunable(p, r->kernel, "HELD", t.held);
	ww_tunable(p, r->kernel, "EACH", t.each);
	ww_tunable(p, r->kernel, "VEC", ww_widest(r->hidden, 4) == 4 ? 4 : 1);
	if (!t.alone || size.below)
		ww_memset(p, r->out, 0, 4 * r->chains * slots * slot, 255); /* no state is there yet */
	ww_launch(p, r->kernel, r->chains * (t.alone ? ww_cdiv(r->batch, t.each) : ww_cdiv(r->hidden, t.units)), 1, 1,
		t.threads, 1, 1);
	if (!t.alone || size.below)
		ww_cooperative(p);
	ww_shared(p, t.bytes);
	ww_arg_i32(p, (int)r->steps);
	ww_arg_i32(p, (int)r->batch);
	ww_arg_i32(p, (int)r->hidden);
	ww_arg_i32(p, t.units);
	ww_arg_i32(p, t.rows);
	ww_arg_i32(p, (int)(r->beside ? r->chains * r->hidden : r->hidden));
	ww_arg_i64(p, r->beside ? r->hidden : slots * slot);
}

#endif
