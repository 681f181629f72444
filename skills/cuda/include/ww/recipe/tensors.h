/* recipe/tensors.h - declare the tensors of a task in plan(), one statement each, with checks of type and sizes.
 *
 *     WW_INPUT(in_x, 0, WW_F32, 3);                    input 0: float32, three dimensions, contiguous
 *     WW_SIZE(S0, in_x->size[0]);                      a size, as S0 here and as the macro S0_ in the device code
 *     WW_PARAM(p_w, "proj.weight", WW_F32, 160, 128);  a parameter of these sizes
 *     WW_OUTPUT(out0, 0, WW_F32, S0, 160);             an output of these
 *     WW_EQUAL(in_x->size[2], 128);
 *
 * If a tensor is different, the plan is refused, so a plan for these sizes never runs on others. */
#ifndef WW_RECIPE_TENSORS_H
#define WW_RECIPE_TENSORS_H

#include <ww/plan.h>

static inline void ww_must(struct ww_plan *p, int holds, const char *name, const char *what)
{
	if (!holds)
		ww_fail(p, ww_fmt(p, "%s: %s", name, what));
}

static inline const struct ww_tensor *ww_must_be(
	struct ww_plan *p, const struct ww_tensor *t, const char *name, int dtype, int rank)
{
	ww_must(p, t->dtype == dtype && t->rank == rank && t->contiguous, name,
		"type, dimensions or layout differ from what this plan was made for");
	return t;
}

/* size[0] is not read, but n counts it. */
static inline const struct ww_tensor *ww_must_have(
	struct ww_plan *p, const struct ww_tensor *t, const char *name, int dtype, const long long *size, int n)
{
	ww_must_be(p, t, name, dtype, n - 1);
	for (int d = 0; d + 1 < n && d < WW_MAX_RANK; d++)
		if (t->size[d] != size[d + 1])
			ww_must(p, 0, name, ww_fmt(p, "size %d differs from what this plan was made for", d));
	return t;
}

#define WW_SIZES_(...) (const long long[]){ 0, ##__VA_ARGS__ }, (int)(sizeof((const long long[]){ 0, ##__VA_ARGS__ }) / 8)
#define WW_INPUT(name, index, dtype, rank) \
	const struct ww_tensor *const name = ww_must_be(p, ww_input(p, index), #name, dtype, rank)
#define WW_PARAM(name, path, dtype, ...) \
	const struct ww_tensor *const name = ww_must_have(p, ww_param(p, path), path, dtype, WW_SIZES_(__VA_ARGS__))
#define WW_OUTPUT(name, index, dtype, ...) \
	const struct ww_tensor *const name = ww_must_have(p, ww_output(p, index), #name, dtype, WW_SIZES_(__VA_ARGS__))
#define WW_SIZE(name, value) \
	const long long name = (value); \
	ww_define(p, #name "_", name)
#define WW_EQUAL(a, b) ww_must(p, (a) == (b), #a " and " #b, "differ, and this plan was made for equal ones")

#endif
