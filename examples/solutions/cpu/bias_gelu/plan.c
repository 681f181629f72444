/* y = gelu(x + bias): one launch over chunks of rows. */
#include <ww/plan.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *bias = ww_param(p, "bias"), *y = ww_output(p, 0);
	long long cols = bias->numel, rows = x->numel / ww_max(cols, 1);

	if (x->dtype != WW_F32 || bias->dtype != WW_F32 || !x->contiguous || !y->contiguous)
		ww_fail(p, "this kernel reads contiguous float32");
	if (x->rank < 1 || x->size[x->rank - 1] != cols)
		ww_fail(p, "the bias must span the last dimension");
	if (x->numel == 0)
		return;

	/* About 64 KiB of x a block: small enough to balance the threads, large enough that a call costs nothing. */
	long long per_block = ww_max(1, 16384 / cols);
	ww_launch(p, "bias_gelu", ww_cdiv(rows, per_block), 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, bias->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, rows);
	ww_arg_i64(p, cols);
	ww_arg_i64(p, per_block);
}
