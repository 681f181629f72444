/* recipe/cpu_rows.h - launches for <ww/cpu/rowwise.h> and ww_cpu_scan_row(). */
#ifndef WW_RECIPE_CPU_ROWS_H
#define WW_RECIPE_CPU_ROWS_H
#include <ww/plan.h>

/* keep: rows of scratch that the skeleton keeps: 2 for softmax; 1 for log_softmax, layernorm, rmsnorm, groupnorm and
 * what is built from ww_cpu_rows() with one row kept; 0 for reductions, moments, cross-entropy and scans.
 * per: rows a block (0: about 64 KiB a block). */
struct ww_cpu_rows { long long rows, cols; int keep; long long per; };
static void ww_recipe_cpu_rows(struct ww_plan *p, const char *kernel, const struct ww_cpu_rows *r)
{
	long long per = r->per ? r->per : ww_max(1, ww_min(32768 / ww_max(1, r->cols), ww_cdiv(r->rows, 4 * ww_device(p)->threads)));

	ww_launch(p, kernel, ww_cdiv(r->rows, per), 1, 1, 1, 1, 1);
	if (r->keep)
		ww_shared(p, r->keep * ww_cdiv(r->cols, 16) * 64);
	ww_arg_i64(p, r->rows);
	ww_arg_i64(p, r->cols);
	ww_arg_i64(p, per);
}
#endif
