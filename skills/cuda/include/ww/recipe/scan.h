/* recipe/scan.h - the plan half of <ww/scan.cuh>.  See skills/cuda/references/cookbook-cuda-rows.md. */
#ifndef WW_RECIPE_SCAN_H
#define WW_RECIPE_SCAN_H

#include <ww/plan.h>
#include <ww/recipe/common.h>

struct ww_scan_rows {
	const char *kernel;
	long long rows, cols;
	int itemsize; /* default 4 */
	int vec;      /* default the widest, at most 4, that divides cols */
	int threads;  /* of a row, 1 to 1024; default by its length */
	int chunks;   /* vectors a thread and tile; default by the length of the row, at most 8 */
	int costly;   /* an operation takes longer than to read an element: as few threads as registers allow */
};

/* A thread for each vector of a short row, up to four vectors of a long one.  Of many short rows each thread takes
 * more, at most 16 elements, as long as neighbours read a sector: what a thread does once a row and the steps between
 * threads are shared by them.  Of elements one by one a warp has up to 256 of many rows: with a block for each row, of
 * two warps that wait for each other, most of the time was its start. */
static int ww_scan_threads(struct ww_plan *p, const struct ww_scan_rows *r, int vec)
{
	const int itemsize = r->itemsize ? r->itemsize : 4, least = r->costly ? 0 : 32;
	const long long each = vec == 1 && r->rows >= 128LL * ww_device(p)->sm_count ? 8 : 4;
	int threads = 1;

	while (threads < 32 && (long long)threads * vec < r->cols)
		threads *= 2;
	while (threads >= 32 && threads < 512 && threads * vec * each < r->cols)
		threads *= 2;
	while (threads > 1 && threads <= 32 && threads / 2 * vec * itemsize >= least &&
		ww_cdiv(r->cols, threads / 2 * vec) * vec <= 16 && r->rows * (threads / 2) >= 1024LL * ww_device(p)->sm_count)
		threads /= 2;
	return threads;
}

/* Leading arguments: long long rows, long long cols. */
static void ww_recipe_scan_rows(struct ww_plan *p, const struct ww_scan_rows *r)
{
	int vec = r->vec ? r->vec : (int)ww_min(4, ww_widest(r->cols, r->itemsize));
	int threads = r->threads, chunks = r->chunks, block;

	if (r->rows < 1 || r->cols < 1 || r->cols % vec) {
		ww_fail(p, "scan_rows: cols must be a positive multiple of vec");
		return;
	}
	if (!threads)
		threads = ww_scan_threads(p, r, vec);
	if (!chunks) { /* tiles of equal size, and no more warps than fill them */
		const long long tiles = ww_cdiv(r->cols, ww_min(8, 32 / vec) * threads * vec);

		chunks = (int)ww_cdiv(r->cols, threads * vec * tiles);
		if (!r->threads && threads > 32)
			threads = (int)(32 * ww_cdiv(r->cols, 32 * vec * chunks * tiles));
	}
	if (threads < 1 || threads > 1024 || (threads > 32 ? threads % 32 : threads & (threads - 1))) {
		ww_fail(p, "scan_rows: threads must be 1, 2, 4, 8, 16 or a multiple of 32 up to 1024");
		return;
	}
	if (chunks * vec > (threads > 512 ? 16 : 32)) {
		ww_fail(p, "scan_rows: chunks * vec must be at most 32, 16 above 512 threads");
		return;
	}
	block = threads > 32 ? threads : 128;
	ww_tunable(p, r->kernel, "VEC", vec);
	ww_tunable(p, r->kernel, "TPR", threads);
	ww_tunable(p, r->kernel, "CHUNKS", chunks);
	ww_tunable(p, r->kernel, "BLOCK", block);
	ww_launch(p, r->kernel, ww_cdiv(r->rows, block / threads), 1, 1, block, 1, 1);
	ww_arg_i64(p, r->rows);
	ww_arg_i64(p, r->cols);
}

struct ww_scan_mid {
	const char *kernel;
	long long outer, len, inner;
	int vec;   /* default 1: more threads */
	int parts; /* threads that share a column, 1 to 8; default: what fills the device */
	int block; /* threads, 32 * parts to 1024; default 128, or what parts needs */
};

/* Leading arguments: long long outer, long long len, long long inner. */
static void ww_recipe_scan_mid(struct ww_plan *p, const struct ww_scan_mid *r)
{
	int vec = r->vec ? r->vec : 1, parts = r->parts, block = r->block;
	long long columns = r->outer * (r->inner / vec);

	if (r->inner < 1 || r->inner % vec) {
		ww_fail(p, "scan_mid: inner must be a positive multiple of vec");
		return;
	}
	if (!parts)
		for (parts = 1; parts < 8 && columns * parts < 1024LL * ww_device(p)->sm_count && 16 * parts <= r->len;)
			parts *= 2;
	if (!block)
		block = (int)ww_max(128, 32 * parts);
	if (parts < 1 || parts > 8 || block % (32 * parts) || block > 1024) {
		ww_fail(p, "scan_mid: at most 8 parts, of whole warps each");
		return;
	}
	ww_tunable(p, r->kernel, "VEC", vec);
	ww_tunable(p, r->kernel, "PARTS", parts);
	ww_tunable(p, r->kernel, "BLOCK", block);
	ww_launch(p, r->kernel, ww_cdiv(columns, block / parts), 1, 1, block, 1, 1);
	ww_arg_i64(p, r->outer);
	ww_arg_i64(p, r->len);
	ww_arg_i64(p, r->inner);
}

#endif
