/* recipe/sort.h - the plan half of <ww/sort.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_SORT_H
#define WW_RECIPE_SORT_H

#include <ww/plan.h>
#include <ww/recipe/common.h>

struct ww_sort {
	const char *kernel;
	long long outer, len, inner; /* rows of len elements that are `inner` apart */
	long long first, count;      /* of the sorted row; count 0: all from first on */
	int descending;
	int vec;  /* indices stored at once: 1, or 4 if inner is 1 and 4 divides count and first; default 1 */
	int each; /* words a thread: 4, 8, ..., 32; default 4 */
};

/* Leading arguments: long long outer, int len, long long inner, int first, int count, bool descending (as int). */
static void ww_recipe_sort(struct ww_plan *p, const struct ww_sort *r)
{
	long long count = r->count ? r->count : r->len - r->first, rows = r->outer * r->inner;
	int each = r->each ? r->each : 4, tpr = 1, threads, vec = r->vec ? r->vec : 1;

	if (r->len < 1 || r->len > 4096 || rows < 1 || r->first < 0 || count < 1 || r->first + count > r->len) {
		ww_fail(p, "sort: rows of 1 to 4096 elements, and a part of them");
		return;
	}
	if (count % vec || r->first % vec || (vec > 1 && (vec != 4 || r->inner != 1))) {
		ww_fail(p, "sort: what is stored does not consist of vectors");
		return;
	}
	while (tpr * each < r->len)
		tpr *= 2;
	threads = tpr > 128 ? tpr : 128;
	if (each < 4 || each > 32 || (each & (each - 1)) || tpr > 1024) {
		ww_fail(p, "sort: each must be 4, 8, 16 or 32, and len / each at most 1024");
		return;
	}
	ww_tunable(p, r->kernel, "EACH", each);
	ww_tunable(p, r->kernel, "TPR", tpr);
	ww_tunable(p, r->kernel, "THREADS", threads);
	ww_tunable(p, r->kernel, "VEC", vec);
	ww_launch(p, r->kernel, ww_cdiv(rows, threads / tpr), 1, 1, threads, 1, 1);
	ww_arg_i64(p, r->outer);
	ww_arg_i32(p, (int)r->len);
	ww_arg_i64(p, r->inner);
	ww_arg_i32(p, (int)r->first);
	ww_arg_i32(p, (int)count);
	ww_arg_i32(p, r->descending);
}

struct ww_select {
	const char *kernel;
	long long rows, len; /* contiguous rows of len elements */
	long long first;     /* of the sorted row */
	int descending;
	int each; /* words a thread, at most 40; default what a warp has of the row, or fewer */
};

/* Threads of a row whose elements they hold, `each` at most of them. */
static int ww_select_threads(struct ww_plan *p, long long rows, long long len, int each)
{
	const int most = each ? each : 40;
	int tpr = 32;

	while (tpr < 1024 && ww_cdiv(len, tpr) > most)
		tpr *= 2;
	while (!each && tpr < 1024 && ww_cdiv(len, tpr) > 4 && rows * tpr < 512LL * ww_device(p)->sm_count)
		tpr *= 2;
	return tpr;
}

static void ww_select_launch(struct ww_plan *p, const char *kernel, long long rows, long long len, int tpr)
{
	ww_tunable(p, kernel, "EACH", (int)ww_cdiv(len, tpr));
	ww_tunable(p, kernel, "TPR", tpr);
	ww_tunable(p, kernel, "THREADS", tpr > 32 ? tpr : 128);
	ww_launch(p, kernel, tpr > 32 ? rows : ww_cdiv(rows, 4), 1, 1, tpr > 32 ? tpr : 128, 1, 1);
	ww_arg_i64(p, rows);
	ww_arg_i32(p, (int)len);
}

/* Leading arguments: long long rows, int len, int first, bool descending (as int). */
static void ww_recipe_select(struct ww_plan *p, const struct ww_select *r)
{
	if (r->len < 1 || r->len > 4096 || r->rows < 1 || r->first < 0 || r->first >= r->len) {
		ww_fail(p, "select: rows of 1 to 4096 elements, and a place in them");
		return;
	}
	ww_select_launch(p, r->kernel, r->rows, r->len, ww_select_threads(p, r->rows, r->len, r->each));
	ww_arg_i32(p, (int)r->first);
	ww_arg_i32(p, r->descending);
}

struct ww_first {
	const char *kernel;
	long long rows, len; /* contiguous rows of len elements, at most 32,768 */
	int count;           /* how many of each sorted row, at most 128 */
	int descending;
	int each; /* words a thread, at most 32; default as of ww_select */
};

/* Leading arguments: long long rows, int len, int count, bool descending (as int). */
static void ww_recipe_first(struct ww_plan *p, const struct ww_first *r)
{
	int most = 4;

	if (r->len < 1 || r->len > 32768 || r->rows < 1 || r->count < 1 || r->count > 128 || r->count > r->len) {
		ww_fail(p, "first: rows of 1 to 32768 elements, and at most 128 of each");
		return;
	}
	while (most < r->count)
		most *= 2;
	ww_tunable(p, r->kernel, "MOST", most);
	ww_select_launch(p, r->kernel, r->rows, r->len, ww_select_threads(p, r->rows, r->len, r->each));
	ww_arg_i32(p, r->count);
	ww_arg_i32(p, r->descending);
}

#endif
