/* recipe/cpu_rows.h - launches for <ww/cpu/rowwise.h> and ww_cpu_scan_row(). */
#ifndef WW_RECIPE_CPU_ROWS_H
#define WW_RECIPE_CPU_ROWS_H
#include <ww/plan.h>

/* keep: rows of scratch that the skeleton keeps beside the one that is being read: 2 for softmax; 1 for log_softmax,
 * layernorm, rmsnorm, groupnorm and what is built from ww_cpu_rows() with one row kept; 0 for reductions, moments,
 * cross-entropy and scans, which need no scratch.
 * per: rows a block (0: about 512 KiB a block; long blocks suit skeletons that work on several rows at once). */
struct ww_cpu_rows {
	long long rows, cols;
	int keep;
	long long per;
};
static inline void ww_recipe_cpu_rows(struct ww_plan *p, const char *kernel, const struct ww_cpu_rows *r)
{
	long long per = r->per
		? r->per
		: ww_max(1, ww_min(131072 / ww_max(1, r->cols), ww_cdiv(r->rows, 8 * ww_device(p)->threads)));

	ww_launch(p, kernel, ww_cdiv(r->rows, per), 1, 1, 1, 1, 1);
	if (r->keep)
		ww_shared(p, (r->keep + 1) * (ww_cdiv(r->cols, 16) + 17) * 64);
	ww_arg_i64(p, r->rows);
	ww_arg_i64(p, r->cols);
	ww_arg_i64(p, per);
}
#endif
