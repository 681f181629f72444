/* library.c - for parts.cu, what is C: cuDNN's convolution as a library node has it (channels-last, TF32), and
 * the tiles that plans choose. */
#include "judge/run/exec_cuda_conv.c"

#include <ww/recipe/conv.h>

#include "parts.h"

static struct {
	struct ww_dnn *dnn;
	struct ww_dnn_conv *node;
	struct ww_conv conv;
} library;

long long parts_library(const struct parts_conv *c, char *why)
{
	size_t bytes = 0;

	library.conv = (struct ww_conv){ .x_buf = 0,
		.w_buf = 1,
		.y_buf = 2,
		.nd = 2,
		.dtype = WW_F32,
		.math = WW_MATH_TF32,
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

void parts_tile(int staged, int bn, long long n, long long oh, long long ow, int *tile)
{
	struct ww_conv_tile t = staged ? ww_conv_wide_tile(bn, 0, n, oh, ow, 1, 1)
								   : ww_conv_best_tile(bn, 0, n, oh, ow, 1, 1);

	tile[0] = t.tw, tile[1] = t.th, tile[2] = t.tn;
}
