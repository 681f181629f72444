/* recipe/rnn.h - the plan half of <ww/rnn.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_RNN_H
#define WW_RECIPE_RNN_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/rnn_tile.h>

struct ww_rnn {
	const char *kernel;
	int gates, cells; /* 4 and 1 for LSTM, 3 and 0 for GRU, 1 and 0 for RNN */
	long long steps, batch, hidden, step_stride, row_stride;
	long long units; /* of a block; default: as few as the multiprocessors allow */
};

static void ww_arg_rnn(struct ww_plan *p, const struct ww_rnn *r, int barrier, long long units, long long rows)
{
	ww_arg_buf(p, barrier, 0);
	ww_arg_i32(p, (int)r->steps);
	ww_arg_i32(p, (int)r->batch);
	ww_arg_i32(p, (int)r->hidden);
	ww_arg_i32(p, (int)units);
	ww_arg_i32(p, (int)rows);
	ww_arg_i64(p, r->step_stride);
	ww_arg_i64(p, r->row_stride);
}

/* Leading arguments: unsigned *barrier, int steps, int batch, int hidden, int units, int rows, long long step_stride,
 * long long row_stride; 256 threads at most. Defines KERNEL_KEEP, KERNEL_EACH and KERNEL_HELD. */
static void ww_recipe_rnn(struct ww_plan *p, const struct ww_rnn *r)
{
	const struct ww_device *d = ww_device(p);
	const struct ww_rnn_size size = { r->gates, r->cells, r->steps, r->batch, r->hidden, d->sm_count,
		d->shared_per_block_bytes };
	const struct ww_rnn_rows of = ww_rnn_choose_rows(&size);
	const int by_rows = of.each && !r->units && of.us < ww_rnn_units_us(&size);
	const long long padded = ww_cdiv(r->hidden, 4) * 16, units = r->units ? r->units : ww_cdiv(r->hidden, d->sm_count);
	const long long cells = r->cells * units * r->batch * 4, weights = r->gates * units * padded,
					room = d->shared_per_block_bytes - cells;
	const int keep = weights + 4 * padded <= room;
	const long long rows = ww_min(ww_cdiv(r->batch, 4) * 4, (room - keep * weights) / padded / 4 * 4);
	const int barrier = ww_scratch(p, 4);

	ww_tunable(p, r->kernel, "KEEP", keep);
	ww_tunable(p, r->kernel, "EACH", by_rows ? of.each : 0);
	ww_tunable(p, r->kernel, "HELD", by_rows ? of.held : 0);
	if (by_rows) {
		ww_launch(p, r->kernel, ww_cdiv(r->batch, of.rows), 1, 1, of.threads, 1, 1);
		ww_shared(p, of.bytes);
		ww_arg_rnn(p, r, barrier, r->hidden, of.rows);
		return;
	}
	if (rows < 4) {
		ww_fail(p, "rnn: a state of this size does not fit shared memory");
		return;
	}
	ww_memset(p, barrier, 0, 4, 0);
	ww_launch(p, r->kernel, ww_cdiv(r->hidden, units), 1, 1, 256, 1, 1);
	ww_cooperative(p);
	ww_shared(p, keep * weights + rows * padded + cells);
	ww_arg_rnn(p, r, barrier, units, rows);
}

#endif
