/* library.c - for parts.cu, what is C: cuDNN's convolution as a library node has it (channels-last, of TF32 or halves),
 * and what plans choose. */
#include "judge/run/exec_cuda_conv.c"

#include <ww/recipe/conv.h>

#include "parts.h"

enum { SMS = 132 };

static struct {
	struct ww_dnn *dnn;
	struct ww_dnn_conv *node;
	struct ww_conv conv;
} library;

long long parts_library(const struct parts_conv *c, int half, char *why)
{
	size_t bytes = 0;

	library.conv = (struct ww_conv){ .x_buf = 0,
		.w_buf = 1,
		.y_buf = 2,
		.nd = 2,
		.dtype = half ? WW_F16 : WW_F32,
		.math = half ? WW_MATH_FP16 : WW_MATH_TF32,
		.layout = WW_LAYOUT_NHWC,
		.groups = 1,
		.n = c->n,
		.c = c->c,
		.k = c->k,
		.in = { c->h, c->w },
		.kernel = { c->r, c->r },
		.out = { c->h + 2 * c->pad - c->r + 1, c->w + 2 * c->pad - c->r + 1 },
		.stride = { 1, 1 },
		.pad = { c->pad, c->pad },
		.dilation = { 1, 1 } };
	if (!library.dnn && ww_dnn_open(&library.dnn, why))
		return -1;
	ww_dnn_unload(library.dnn, library.node);
	library.node = NULL;
	if (ww_dnn_load(library.dnn, &library.node, &library.conv, (size_t)8 << 30, &bytes, why))
		return -1;
	return (long long)bytes;
}

int parts_library_issue(void *const *buffers, void *workspace, void *stream, char *why)
{
	return ww_dnn_issue(library.dnn, library.node, &library.conv, buffers, workspace, stream, why);
}

static struct ww_conv_forward forward(const struct parts_conv *c, int filters)
{
	return (struct ww_conv_forward){ c->n, c->c, c->k, c->h + 2 * c->pad - c->r + 1, c->w + 2 * c->pad - c->r + 1,
		(double)c->r * c->r, 1, 1, filters, 0, 0, 0, 0, 0 };
}

double parts_estimate(const struct parts_conv *c, int end, int filters, const int *tile)
{
	struct ww_conv_forward f = forward(c, filters);
	int bn = tile[0] * tile[1] * tile[2];
	struct ww_conv_tile t = ww_conv_tile(bn, tile[0], tile[1], f.n, f.oh, f.ow);

	return ww_conv_forward_us(&f, end, bn, &t, SMS);
}

int parts_choice(const struct parts_conv *c, int *tile)
{
	struct ww_conv_forward f = forward(c, 128);
	struct ww_conv_way way = ww_conv_best_way(&f, 0, 0, 0, SMS);

	tile[0] = way.tile.tw, tile[1] = way.tile.th, tile[2] = way.tile.tn;
	return way.end;
}

int parts_runs(long long rows, long long cols) { return ww_turned_runs(rows, cols); }
