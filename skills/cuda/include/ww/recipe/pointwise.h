/* recipe/pointwise.h - the plan half of <ww/pointwise.cuh>.  See skills/cuda/references/cookbook-cuda.md.
 *
 * Rules of every recipe: a field left 0 takes a default; the tunables become macros named KERNEL_TUNABLE; after the
 * leading arguments the caller adds its own with ww_arg_*().
 */
#ifndef WW_RECIPE_POINTWISE_H
#define WW_RECIPE_POINTWISE_H

#include <ww/plan.h>
#include <ww/recipe/common.h>

struct ww_pointwise {
	const char *kernel;
	long long n;  /* elements */
	int itemsize; /* of the widest element in the kernel; default 4 */
	int vec;      /* elements an access; default 16 / itemsize */
	int unroll;   /* accesses a thread; default 2 */
	int block;    /* default 256 */
};

/* Leading argument: long long n. */
static void ww_recipe_pointwise(struct ww_plan *p, const struct ww_pointwise *r)
{
	int vec = r->vec ? r->vec : 16 / (r->itemsize ? r->itemsize : 4);
	int unroll = r->unroll ? r->unroll : 2, block = r->block ? r->block : 256;

	ww_tunable(p, r->kernel, "VEC", vec);
	ww_tunable(p, r->kernel, "UNROLL", unroll);
	ww_tunable(p, r->kernel, "BLOCK", block);
	/* one more vector, for the tail */
	ww_launch(p, r->kernel, ww_cdiv(r->n / vec + (r->n % vec != 0), (long long)block * unroll), 1, 1, block, 1, 1);
	ww_arg_i64(p, r->n);
}

#endif
