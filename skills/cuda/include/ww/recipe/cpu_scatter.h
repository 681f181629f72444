/* recipe/cpu_scatter.h - launches for <ww/cpu/scatter.h>. */
#ifndef WW_RECIPE_CPU_SCATTER_H
#define WW_RECIPE_CPU_SCATTER_H
#include <ww/plan.h>

/* (outer, len, inner), to which `list` elements are written along len.  per: rows of a block (scatter_rows, inner 1);
 * cols: columns of a block, a multiple of 16; 0 chooses. */
struct ww_cpu_scatter {
	long long outer, len, inner, list;
	long long per, cols;
};
static inline void ww_cpu_scatter_args(struct ww_plan *p, const struct ww_cpu_scatter *r, long long of_block)
{
	ww_arg_i64(p, r->outer);
	ww_arg_i64(p, r->inner);
	ww_arg_i64(p, of_block);
}
static inline void ww_recipe_cpu_scatter_rows(struct ww_plan *p, const char *kernel, const struct ww_cpu_scatter *r)
{
	long long per = r->per
		? r->per
		: ww_max(1, ww_min(262144 / ww_max(1, r->len + r->list), ww_cdiv(r->outer, 4 * ww_device(p)->threads)));

	ww_launch(p, kernel, ww_cdiv(r->outer, per), 1, 1, 1, 1, 1);
	ww_shared(p, 4 * (4096 + ww_cdiv(r->len, 16) * 16));
	ww_cpu_scatter_args(p, r, per);
}
/* For scatter_mid and scatter_slices: as many columns as keep the results of a block within half of L2. */
static inline void ww_recipe_cpu_scatter(struct ww_plan *p, const char *kernel, const struct ww_cpu_scatter *r)
{
	long long l2 = ww_device(p)->l2_bytes ? ww_device(p)->l2_bytes : 1 << 20, most = ww_cdiv(r->inner, 16) * 16;
	long long cols = r->cols ? r->cols : ww_max(16, ww_min(most, l2 / 8 / ww_max(1, r->len) / 16 * 16));

	while (!r->cols && cols > 64 && ww_cdiv(r->inner, cols) * r->outer < 2 * ww_device(p)->threads)
		cols = ww_cdiv(cols / 2, 16) * 16;
	ww_launch(p, kernel, ww_cdiv(r->inner, cols), r->outer, 1, 1, 1, 1);
	ww_shared(p, 4 * r->len * cols);
	ww_cpu_scatter_args(p, r, cols);
}
#endif
