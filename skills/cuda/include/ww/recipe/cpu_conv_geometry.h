/* recipe/cpu_conv_geometry.h - the geometry of a convolution launch, shared by the kernels (conv.h) and the recipe
 * (cpu_conv.h), so that both agree on tiles and scratch.  Plain C without libc. */
#ifndef WW_CPU_CONV_GEOMETRY_H
#define WW_CPU_CONV_GEOMETRY_H

/* The first WW_CONV_GEO arguments of both launches, i64 each, in this order. */
struct ww_conv_geo {
	long long transposed, n, groups;
	long long c, k;                   /* input and output channels of one group */
	long long id, ih, iw, od, oh, ow; /* 1 where a dimension is not there */
	long long kd, kh, kw, sd, sh, sw, pd, ph, pw, dd, dh, dw;
	long long tr, tc; /* rows and columns of a tile, in phase coordinates */
	long long half;   /* whether x and w have 16 bits */
};
#define WW_CONV_GEO 26
#define WW_CONV_MAX_TAPS 128			/* of one dimension */
#define WW_CONV_SLACK 192			/* floats that whole vectors may touch behind the last pixel */
#define WW_CONV_KPAD(k) (((k) + 7) / 8 * 8)	/* channels of a group as packed, at most */

/* The phase coordinates that the output covers, [h0, h1) x [w0, w1), and into how many tiles they are cut.  For an
 * ordinary convolution they are the output's; for a transposed one, output pixel y lies at (y + pad) / stride. */
struct ww_conv_span {
	long long h0, h1, w0, w1, th, tw;
};
static inline struct ww_conv_span ww_conv_span(const struct ww_conv_geo *g)
{
	struct ww_conv_span s = { 0, g->oh, 0, g->ow, 0, 0 };

	if (g->transposed) {
		s.h0 = g->ph / g->sh;
		s.h1 = (g->oh - 1 + g->ph) / g->sh + 1;
		s.w0 = g->pw / g->sw;
		s.w1 = (g->ow - 1 + g->pw) / g->sw + 1;
	}
	s.th = (s.h1 - s.h0 + g->tr - 1) / g->tr;
	s.tw = (s.w1 - s.w0 + g->tc - 1) / g->tc;
	return s;
}

/* Floats of the slab alone, and of all scratch, for tiles of tr x tc. */
static inline long long ww_conv_slab_floats(const struct ww_conv_geo *g)
{
	long long planes = g->transposed ? 1 : g->sh * g->sw;

	return g->c * g->kd * planes * (g->tr + (g->kh - 1) * g->dh / g->sh) * (g->tc + (g->kw - 1) * g->dw / g->sw);
}
/* Floats for the rows of a plane that a tile reads, widened from 16 bits. */
static inline long long ww_conv_line_floats(const struct ww_conv_geo *g)
{
	long long rows = (g->tr + (g->kh - 1) * g->dh / g->sh) * (g->transposed ? 1 : g->sh);

	return g->half ? rows * g->iw + WW_CONV_SLACK : 0;
}
static inline long long ww_conv_scratch_floats(const struct ww_conv_geo *g)
{
	long long f = g->transposed ? g->sh * g->sw : 1, sc = g->tc + (g->kw - 1) * g->dw / g->sw;

	return ww_conv_slab_floats(g) + f * 8 * (g->tr * sc + WW_CONV_SLACK) + f * g->tr * g->tc +
		g->c * g->kd * g->kh * g->kw + 4 * WW_CONV_SLACK + ww_conv_line_floats(g);
}

#endif
