/* recipe/scatter.h - the plan half of <ww/scatter.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_SCATTER_H
#define WW_RECIPE_SCATTER_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/scatter_tile.h>

struct ww_scatter_rows {
	const char *kernel;
	long long rows, len, list; /* `list` elements written to rows of `len` results */
	int threads;               /* of a row, a power of two from 32 to 1024; default 8 elements each, at most 512 */
};

/* Leading arguments: long long rows, int len, int list. */
static void ww_recipe_scatter_rows(struct ww_plan *p, const struct ww_scatter_rows *r)
{
	long long threads = r->threads ? r->threads : 32, block;

	if (r->rows < 1 || r->len < 1 || r->list < 1 || 4 * r->len > WW_SCATTER_SHARED || r->list > 0x7fff0000) {
		ww_fail(p, "scatter_rows: a row of results must fit into shared memory");
		return;
	}
	while (!r->threads && threads < 512 && r->list + r->len > 8 * threads)
		threads *= 2;
	block = threads < 128 && 16 * r->len <= WW_SCATTER_SHARED / 4 ? 128 : threads;
	ww_tunable(p, r->kernel, "BLOCK", block);
	ww_tunable(p, r->kernel, "TPR", threads);
	ww_launch(p, r->kernel, ww_cdiv(r->rows, block / threads), 1, 1, block, 1, 1);
	ww_shared(p, 4 * r->len * (block / threads));
	ww_arg_i64(p, r->rows);
	ww_arg_i32(p, (int)r->len);
	ww_arg_i32(p, (int)r->list);
}

struct ww_scatter_columns {
	const char *kernel;
	long long outer, len, list, inner; /* outer * inner columns of `len` results, to each of which `list` are written */
	int block;                         /* default 256, or less where shared memory holds fewer columns */
};

/* Leading arguments: long long outer, int len, int list, long long inner. */
static void ww_recipe_scatter_columns(struct ww_plan *p, const struct ww_scatter_columns *r)
{
	long long block = r->block ? r->block : 256;

	while (!r->block && block > 32 && 4 * r->len * block > WW_SCATTER_SHARED / 4)
		block /= 2;
	if (r->outer < 1 || r->inner < 1 || r->len < 1 || r->list < 1 || 4 * r->len * block > WW_SCATTER_SHARED ||
		r->list > 0x7fff0000) {
		ww_fail(p, "scatter_columns: a block's columns of results must fit into shared memory");
		return;
	}
	ww_tunable(p, r->kernel, "BLOCK", block);
	ww_launch(p, r->kernel, ww_cdiv(r->outer * r->inner, block), 1, 1, block, 1, 1);
	ww_shared(p, 4 * r->len * block);
	ww_arg_i64(p, r->outer);
	ww_arg_i32(p, (int)r->len);
	ww_arg_i32(p, (int)r->list);
	ww_arg_i64(p, r->inner);
}

/* The same for sums, by all threads of a block together. */
struct ww_scatter_strips {
	const char *kernel;
	long long outer, len, list, inner;
	int cols; /* of a block, a power of two up to 32; default ww_scatter_strip() */
};

/* Leading arguments: long long outer, int len, int list, long long inner. */
static void ww_recipe_scatter_strips(struct ww_plan *p, const struct ww_scatter_strips *r)
{
	const long long columns = r->outer * r->inner, sms = ww_device(p)->sm_count;
	const long long cols = r->cols ? r->cols : ww_scatter_strip(columns, r->len, sms);

	if (r->outer < 1 || r->inner < 1 || r->len < 1 || r->list < 1 || 4 * r->len * cols > WW_SCATTER_SHARED ||
		r->list > 0x7fff0000) {
		ww_fail(p, "scatter_strips: a block's columns of results must fit into shared memory");
		return;
	}
	ww_tunable(p, r->kernel, "BLOCK", ww_scatter_strip_threads(columns, cols, sms));
	ww_tunable(p, r->kernel, "COLS", cols);
	ww_launch(p, r->kernel, ww_cdiv(columns, cols), 1, 1, ww_scatter_strip_threads(columns, cols, sms), 1, 1);
	ww_shared(p, 4 * r->len * cols);
	ww_arg_i64(p, r->outer);
	ww_arg_i32(p, (int)r->len);
	ww_arg_i32(p, (int)r->list);
	ww_arg_i64(p, r->inner);
}

/* The same, of elements that share their place with all `inner` columns; len and list have no limit but an int's. */
struct ww_scatter_slices {
	const char *kernel;
	long long outer, len, list, inner;
	int block, part; /* columns of a block, default up to 256; results of each, default up to 40 */
};

/* Leading arguments: long long outer, int len, int list, long long inner. */
static void ww_recipe_scatter_slices(struct ww_plan *p, const struct ww_scatter_slices *r)
{
	long long block = r->block ? r->block : 32, part = r->part ? r->part : ww_cdiv(r->len, ww_cdiv(r->len, 40));

	while (!r->block && block < 256 && block < r->inner)
		block *= 2;
	if (r->outer < 1 || r->inner < 1 || r->len < 1 || r->list < 1 || r->len > 0x7fff0000 || r->list > 0x7fff0000 ||
		4 * part * block + 33 * block > WW_SCATTER_SHARED) {
		ww_fail(p, "scatter_slices: a block's part of the results must fit into shared memory");
		return;
	}
	ww_tunable(p, r->kernel, "BLOCK", block);
	ww_tunable(p, r->kernel, "PART", part);
	ww_launch(p, r->kernel, r->outer * ww_cdiv(r->inner, block) * ww_cdiv(r->len, part), 1, 1, block, 1, 1);
	ww_shared(p, 4 * part * block);
	ww_arg_i64(p, r->outer);
	ww_arg_i32(p, (int)r->len);
	ww_arg_i32(p, (int)r->list);
	ww_arg_i64(p, r->inner);
}

#endif
