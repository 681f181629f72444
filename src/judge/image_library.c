/* image_library.c - validation of GEMM and convolution nodes and of tensor maps, and what they may combine.
 *
 * A library node runs inside our runner with our libraries: its operands must lie in their buffers for every element
 * that the library can touch, results must not overlap what they are computed from, and types and modes must be ones
 * that the libraries have. Overlap is judged by the span of bytes from the first to the last element, which also
 * refuses a few interleaved layouts that do no harm; batches of one result may be interleaved by rows, as attention
 * heads are.
 */
#include "judge/image_internal.h"

#include "base/dtype.h"

#include <limits.h>
#include <math.h>

#define DIM_MAX ((long long)INT32_MAX)
enum { CHOICE_MAX = 15 };
static const long long WORKSPACE_MAX = 1LL << 36;

/* ---- What both kinds share --------------------------------------------------------------------------------------- */

/* Operand types and math mode go together, on this target. */
static int check_math(struct ww_check *c, int dtype, int math)
{
	int cuda = c->m->target == WW_TARGET_CUDA, ok = 0;
	switch (math) {
	case WW_MATH_FP32: ok = dtype == WW_F32 || dtype == WW_F64; break;
	case WW_MATH_TF32: ok = cuda && dtype == WW_F32; break;
	case WW_MATH_FP16: ok = cuda && dtype == WW_F16; break;
	case WW_MATH_BF16: ok = cuda && dtype == WW_BF16; break;
	}
	WW_NEED(c, ok, "math mode %d with operands of type %s", math, ww_dtype_short(dtype));
	return 1;
}

static int check_epilogue(struct ww_check *c, int epilogue, long long workspace)
{
	WW_NEED(c, epilogue >= WW_EPI_NONE && epilogue <= WW_EPI_BIAS_RELU, "unknown epilogue %d", epilogue);
	WW_NEED(c, workspace >= 0 && workspace <= WORKSPACE_MAX, "a workspace of %lld bytes is not in 0..2^36", workspace);
	return 1;
}

/* ---- GEMM -------------------------------------------------------------------------------------------------------- */

struct span {
	int buf;
	long long at;
	ww_wide bytes;
};

static int meet(struct span a, struct span b) { return ww_ranges_meet(a.buf, a.at, a.bytes, b.buf, b.at, b.bytes); }

/* Matrix x of rows by cols as the operation sees it. */
static int check_mat(struct ww_check *c, const char *what, const struct ww_mat *x, long long rows, long long cols,
	long long batch, int write, struct span *span)
{
	int size = ww_dtype_bytes(x->dtype);
	WW_NEED(c, size, "%s: unknown type %d", what, x->dtype);
	WW_NEED(c, x->trans == 0 || (x->trans == 1 && !write), "%s: trans = %d", what, x->trans);
	long long stored_rows = x->trans ? cols : rows, stored_cols = x->trans ? rows : cols;
	WW_NEED(c, x->ld >= stored_cols && x->ld <= LLONG_MAX / 16, "%s: ld = %lld with rows of %lld elements", what, x->ld,
		stored_cols);
	WW_NEED(
		c, x->batch_stride >= 0 && x->batch_stride <= LLONG_MAX / 16, "%s: batch_stride = %lld", what, x->batch_stride);
	WW_NEED(c, x->offset_bytes % size == 0, "%s: offset %lld is not a multiple of %d", what, x->offset_bytes, size);
	ww_wide elements = (ww_wide)(batch - 1) * x->batch_stride + (ww_wide)(stored_rows - 1) * x->ld + stored_cols;
	*span = (struct span){ x->buf, x->offset_bytes, elements * size };
	return ww_check_range(c, what, x->buf, x->offset_bytes, span->bytes, write);
}

/* Every element of a batched result is written once: matrices behind one another, or beside one another in common
 * rows. */
static int check_batches(struct ww_check *c, const struct ww_gemm *g)
{
	const struct ww_mat *d = &g->d;
	int behind = d->batch_stride >= (ww_wide)(g->m - 1) * d->ld + g->n;
	int beside = d->batch_stride >= g->n && (ww_wide)(g->batch - 1) * d->batch_stride + g->n <= d->ld;
	WW_NEED(c, g->batch == 1 || behind || beside, "the matrices of D overlap: batch_stride = %lld", d->batch_stride);
	return 1;
}

static int check_gemm_types(struct ww_check *c, const struct ww_gemm *g)
{
	WW_NEED(c, g->a.dtype == g->b.dtype, "A is %s and B is %s", ww_dtype_short(g->a.dtype), ww_dtype_short(g->b.dtype));
	if (!check_math(c, g->a.dtype, g->math))
		return 0;
	int half = g->a.dtype == WW_F16 || g->a.dtype == WW_BF16;
	WW_NEED(c, g->d.dtype == g->a.dtype || (half && g->d.dtype == WW_F32), "D is %s with operands of type %s",
		ww_dtype_short(g->d.dtype), ww_dtype_short(g->a.dtype));
	WW_NEED(c, g->beta == 0 || g->c.dtype == g->d.dtype, "C is %s and D is %s", ww_dtype_short(g->c.dtype),
		ww_dtype_short(g->d.dtype));
	WW_NEED(c, isfinite(g->alpha) && isfinite(g->beta), "alpha or beta is not finite");
	return 1;
}

static int check_gemm_c(struct ww_check *c, const struct ww_gemm *g, struct span d)
{
	struct span s;
	if (g->beta == 0)
		return 1;
	if (!check_mat(c, "C", &g->c, g->m, g->n, g->batch, 0, &s))
		return 0;
	WW_NEED(c, g->c.trans == 0, "C: trans = %d", g->c.trans);
	int same = g->c.buf == g->d.buf && g->c.offset_bytes == g->d.offset_bytes && g->c.ld == g->d.ld &&
		g->c.batch_stride == g->d.batch_stride;
	WW_NEED(c, same || !meet(s, d), "C overlaps D without being D");
	return 1;
}

static int check_bias(struct ww_check *c, int buf, long long at, long long n, int dtype, struct span result)
{
	int size = ww_dtype_bytes(dtype);
	struct span s = { buf, at, (ww_wide)n * size };
	WW_NEED(c, at % size == 0, "bias: offset %lld is not a multiple of %d", at, size);
	if (!ww_check_range(c, "bias", buf, at, s.bytes, 0))
		return 0;
	WW_NEED(c, !meet(s, result), "the result overlaps the bias");
	return 1;
}

int ww_check_gemm(struct ww_check *c, const struct ww_gemm *g)
{
	struct span a, b, d;
	WW_NEED(c,
		g->m >= 1 && g->n >= 1 && g->k >= 1 && g->batch >= 1 && g->m <= DIM_MAX && g->n <= DIM_MAX && g->k <= DIM_MAX &&
			g->batch <= DIM_MAX,
		"m, n, k, batch = %lld, %lld, %lld, %lld are not in 1..2^31-1", g->m, g->n, g->k, g->batch);
	if (!check_gemm_types(c, g) || !check_epilogue(c, g->epilogue, g->workspace_bytes) ||
		!check_mat(c, "A", &g->a, g->m, g->k, g->batch, 0, &a) ||
		!check_mat(c, "B", &g->b, g->k, g->n, g->batch, 0, &b) ||
		!check_mat(c, "D", &g->d, g->m, g->n, g->batch, 1, &d) || !check_batches(c, g) || !check_gemm_c(c, g, d))
		return 0;
	WW_NEED(c, !meet(a, d) && !meet(b, d), "D overlaps A or B");
	return !ww_has_bias(g->epilogue) || check_bias(c, g->bias_buf, g->bias_offset_bytes, g->n, g->d.dtype, d);
}

/* ---- Convolution ------------------------------------------------------------------------------------------------- */

static int check_conv_axis(struct ww_check *c, const struct ww_conv *v, int i)
{
	int stride = v->stride[i], pad = v->pad[i], dilation = v->dilation[i];
	long long in = v->in[i], kernel = v->kernel[i], out = v->out[i];
	WW_NEED(c, in >= 1 && kernel >= 1 && out >= 1 && in <= DIM_MAX && kernel <= DIM_MAX && out <= DIM_MAX,
		"axis %d: in, kernel, out = %lld, %lld, %lld are not in 1..2^31-1", i, in, kernel, out);
	WW_NEED(c, stride >= 1 && pad >= 0 && dilation >= 1, "axis %d: stride, pad, dilation = %d, %d, %d", i, stride, pad,
		dilation);
	ww_wide reach = (ww_wide)dilation * (kernel - 1) + 1;
	if (!v->transposed) {
		ww_wide room = (ww_wide)in + 2 * (ww_wide)pad - reach;
		WW_NEED(c, room >= 0 && room / stride + 1 == out,
			"axis %d: an output of %lld does not follow from the input of %lld", i, out, in);
		return 1;
	}
	ww_wide extra = out - ((ww_wide)(in - 1) * stride - 2 * (ww_wide)pad + reach);
	WW_NEED(c, extra >= 0 && (extra < stride || extra < dilation),
		"axis %d: an output of %lld does not follow from the input of %lld", i, out, in);
	return 1;
}

/* Bytes of a tensor of these factors, which are at most 2^31 each; more than any memory counts as such. */
static ww_wide product(const long long *f, int n, int size)
{
	ww_wide bytes = size;
	for (int i = 0; i < n && bytes <= (ww_wide)1 << 62; i++)
		bytes *= f[i];
	return bytes;
}

static int check_conv_operand(struct ww_check *c, const char *what, const struct ww_conv *v, int buf, long long at,
	long long a, long long b, const long long *axes, int write, struct span *span)
{
	long long f[5] = { a, b, 1, 1, 1 };
	int size = ww_dtype_bytes(v->dtype);
	for (int i = 0; i < v->nd; i++)
		f[2 + i] = axes[i];
	*span = (struct span){ buf, at, product(f, 5, size) };
	WW_NEED(c, at % size == 0, "%s: offset %lld is not a multiple of %d", what, at, size);
	return ww_check_range(c, what, buf, at, span->bytes, write);
}

static int check_conv_shape(struct ww_check *c, const struct ww_conv *v)
{
	WW_NEED(c, v->nd >= 1 && v->nd <= 3, "nd = %d is not in 1..3", v->nd);
	WW_NEED(c, v->transposed == 0 || v->transposed == 1, "transposed = %d", v->transposed);
	WW_NEED(c, v->layout == WW_LAYOUT_NCHW || v->layout == WW_LAYOUT_NHWC, "unknown layout %d", v->layout);
	WW_NEED(c, v->n >= 1 && v->c >= 1 && v->k >= 1 && v->n <= DIM_MAX && v->c <= DIM_MAX && v->k <= DIM_MAX,
		"n, c, k = %lld, %lld, %lld are not in 1..2^31-1", v->n, v->c, v->k);
	WW_NEED(c, v->groups >= 1 && v->c % v->groups == 0 && v->k % v->groups == 0, "%d groups do not divide the channels",
		v->groups);
	for (int i = 0; i < v->nd; i++)
		if (!check_conv_axis(c, v, i))
			return 0;
	return 1;
}

int ww_check_conv(struct ww_check *c, const struct ww_conv *v)
{
	struct span x, w, y;
	if (!check_conv_shape(c, v) || !check_math(c, v->dtype, v->math) ||
		!check_epilogue(c, v->epilogue, v->workspace_bytes))
		return 0;
	WW_NEED(c, c->m->target == WW_TARGET_CUDA || v->dtype == WW_F32, "on the cpu target convolutions are f32");
	WW_NEED(c, v->choice >= 0 && v->choice <= (c->m->target == WW_TARGET_CUDA ? CHOICE_MAX : 0),
		"choice = %d is not in 0..%d", v->choice, c->m->target == WW_TARGET_CUDA ? CHOICE_MAX : 0);
	long long w0 = v->transposed ? v->c : v->k, w1 = (v->transposed ? v->k : v->c) / v->groups;
	if (!check_conv_operand(c, "x", v, v->x_buf, v->x_offset_bytes, v->n, v->c, v->in, 0, &x) ||
		!check_conv_operand(c, "w", v, v->w_buf, v->w_offset_bytes, w0, w1, v->kernel, 0, &w) ||
		!check_conv_operand(c, "y", v, v->y_buf, v->y_offset_bytes, v->n, v->k, v->out, 1, &y))
		return 0;
	WW_NEED(c, !meet(x, y) && !meet(w, y), "y overlaps x or w");
	return !ww_has_bias(v->epilogue) || check_bias(c, v->bias_buf, v->bias_offset_bytes, v->k, v->dtype, y);
}

/* ---- Tensor maps ------------------------------------------------------------------------------------------------- */

static int check_tmap_box(struct ww_check *c, const struct ww_tmap *t, int size)
{
	static const int swizzle_bytes[] = { 0, 32, 64, 128 };
	for (int i = 0; i < t->rank; i++) {
		WW_NEED(c, t->box[i] >= 1 && t->box[i] <= 256, "tensor map: box[%d] = %d is not in 1..256", i, t->box[i]);
		WW_NEED(c, t->elem_stride[i] >= 0 && t->elem_stride[i] <= 8, "tensor map: elem_stride[%d] = %d is not in 0..8",
			i, t->elem_stride[i]);
	}
	WW_NEED(c, t->swizzle >= WW_SWIZZLE_NONE && t->swizzle <= WW_SWIZZLE_128B, "tensor map: unknown swizzle %d",
		t->swizzle);
	WW_NEED(c, t->box[0] * size % 16 == 0, "tensor map: the box's inner %d bytes are not a multiple of 16",
		t->box[0] * size);
	WW_NEED(c, !t->swizzle || t->box[0] * size <= swizzle_bytes[t->swizzle],
		"tensor map: the box's inner %d bytes exceed the swizzle", t->box[0] * size);
	int is_float = t->dtype == WW_F32 || t->dtype == WW_F64 || t->dtype == WW_F16 || t->dtype == WW_BF16;
	WW_NEED(c, t->fill == WW_FILL_ZERO || (t->fill == WW_FILL_NAN && is_float), "tensor map: fill %d with type %s",
		t->fill, ww_dtype_short(t->dtype));
	return 1;
}

int ww_check_tmap(struct ww_check *c, const struct ww_tmap *t)
{
	int size = ww_dtype_bytes(t->dtype);
	WW_NEED(c, c->m->target == WW_TARGET_CUDA && c->facts->device.cc >= 90, "tensor maps need compute capability 9.0");
	WW_NEED(c, size, "tensor map: unknown type %d", t->dtype);
	WW_NEED(c, t->rank >= 1 && t->rank <= 5, "tensor map: rank %d is not in 1..5", t->rank);
	WW_NEED(c, t->offset_bytes % 16 == 0, "tensor map: offset %lld is not a multiple of 16", t->offset_bytes);
	ww_wide bytes = size;
	for (int i = 0; i < t->rank; i++) {
		WW_NEED(c, t->size[i] >= 1 && t->size[i] <= 1ll << 32, "tensor map: size[%d] = %lld is not in 1..2^32", i,
			t->size[i]);
		WW_NEED(c, i == 0 || (t->stride_bytes[i] > 0 && t->stride_bytes[i] < 1ll << 40 && t->stride_bytes[i] % 16 == 0),
			"tensor map: stride_bytes[%d] = %lld is not a multiple of 16 below 2^40", i, t->stride_bytes[i]);
		bytes += (ww_wide)(t->size[i] - 1) * (i ? t->stride_bytes[i] : size);
	}
	return check_tmap_box(c, t, size) && ww_check_range(c, "tensor map", t->buf, t->offset_bytes, bytes, 0);
}
