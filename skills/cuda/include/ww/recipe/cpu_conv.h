/* recipe/cpu_conv.h - launches for <ww/cpu/conv.h>: NAME_pack, then NAME. */
#ifndef WW_RECIPE_CPU_CONV_H
#define WW_RECIPE_CPU_CONV_H
#include <ww/plan.h>
#include <ww/recipe/cpu_conv_geometry.h>

/* nd = 1, 2 or 3 spatial dimensions, outermost first in the arrays (as torch has them).  c and k are all channels, in
 * and out.  half: x and w are of 16 bits (the kernels ww_cpu_conv_f16, _bf16 and their packs).  Tunables: tile_rows,
 * tile_cols of output (in phase coordinates if transposed); 0: as many whole rows as keep the slab within half of L2.
 */
struct ww_cpu_conv {
	int nd, transposed, groups, half;
	long long n, c, k;
	long long in[3], kernel[3], out[3];
	int stride[3], pad[3], dilation[3];
	int x_buf, w_buf;
	long long x_offset_bytes, w_offset_bytes;
	long long tile_rows, tile_cols;
};
static inline void ww_cpu_conv_args(struct ww_plan *p, const struct ww_conv_geo *g)
{
	const long long *v = (const long long *)g;
	int i;

	for (i = 0; i < WW_CONV_GEO; i++)
		ww_arg_i64(p, v[i]);
}
static inline void ww_cpu_conv_tile(struct ww_plan *p, struct ww_conv_geo *g, const struct ww_cpu_conv *r)
{
	long long l2 = ww_device(p)->l2_bytes ? ww_device(p)->l2_bytes : 1 << 20, want = 2 * ww_device(p)->threads;
	struct ww_conv_span s;

	g->tr = g->tc = 1;
	s = ww_conv_span(g);
	g->tc = r->tile_cols ? r->tile_cols : s.w1 - s.w0;
	g->tr = r->tile_rows ? r->tile_rows : s.h1 - s.h0;
	/* halve rows, then columns, until the slab and the phases' results fit */
	while (!r->tile_rows && g->tr > 1 &&
		(8 * ww_conv_slab_floats(g) > l2 || 4 * ww_conv_scratch_floats(g) > l2 ||
			(g->n * g->groups * g->od * ww_conv_span(g).th < want && g->tr * g->tc > 256)))
		g->tr = (g->tr + 1) / 2;
	while (!r->tile_cols && g->tc > 64 && (4 * ww_conv_slab_floats(g) > l2 || g->tr * g->tc > 32768))
		g->tc = ((g->tc + 1) / 2 + 15) / 16 * 16;
}
static inline void ww_recipe_cpu_conv(struct ww_plan *p, const char *kernel, const struct ww_cpu_conv *r)
{
	struct ww_conv_geo g = { .transposed = r->transposed,
		.n = r->n,
		.groups = r->groups,
		.c = r->c / r->groups,
		.k = r->k / r->groups,
		.half = r->half };
	long long *in = &g.id, *out = &g.od, *k = &g.kd, *s = &g.sd, *pad = &g.pd, *dil = &g.dd;
	int i, packed, skip = 3 - r->nd;

	for (i = 0; i < 3; i++) {
		in[i] = i < skip ? 1 : r->in[i - skip];
		out[i] = i < skip ? 1 : r->out[i - skip];
		k[i] = i < skip ? 1 : r->kernel[i - skip];
		s[i] = i < skip ? 1 : r->stride[i - skip];
		pad[i] = i < skip ? 0 : r->pad[i - skip];
		dil[i] = i < skip ? 1 : r->dilation[i - skip];
		if (k[i] > WW_CONV_MAX_TAPS)
			ww_fail(p, "ww_recipe_cpu_conv: filter longer than WW_CONV_MAX_TAPS");
	}
	ww_cpu_conv_tile(p, &g, r);
	if (4 * ww_conv_scratch_floats(&g) > ww_device(p)->shared_per_block_bytes)
		ww_fail(p, "ww_recipe_cpu_conv: a tile does not fit into a thread's scratch");
	packed = ww_scratch(p, 4 * g.groups * WW_CONV_KPAD(g.k) * g.c * g.kd * g.kh * g.kw);
	ww_launch(p, ww_fmt(p, "%s_pack", kernel), g.k, g.groups, 1, 1, 1, 1);
	ww_cpu_conv_args(p, &g);
	ww_arg_buf(p, r->w_buf, r->w_offset_bytes);
	ww_arg_buf(p, packed, 0);
	ww_launch(p, kernel, g.od * ww_conv_span(&g).th * ww_conv_span(&g).tw, g.n * g.groups, 1, 1, 1, 1);
	ww_shared(p, 4 * ww_conv_scratch_floats(&g));
	ww_cpu_conv_args(p, &g);
	ww_arg_buf(p, r->x_buf, r->x_offset_bytes);
	ww_arg_buf(p, packed, 0);
}
#endif
