/* Unit tests of plan validation and printing: good plans of every kind, then one wrong field at a time. */
#include "unit.h"

#include "image_maker.h"

#include <limits.h>
#include <math.h>

static struct ww_facts facts;

/* Node numbers of the plan below. */
enum { N_LAUNCH, N_PDL, N_MEMSET, N_COPY, N_GEMM, N_CONV, N_CONVT, N_TMAP, N_NODES };
enum { B_X, B_W, B_Y, B_S, B_IMAGE, B_KERNEL, B_RESULT };

static const struct ww_gemm good_gemm = { .m = 8,
	.n = 32,
	.k = 64,
	.batch = 1,
	.a = { B_X, 0, WW_F32, 0, 64, 0 },
	.b = { B_W, 0, WW_F32, 0, 32, 0 },
	.d = { B_Y, 0, WW_F32, 0, 32, 0 },
	.alpha = 1,
	.epilogue = WW_EPI_BIAS_RELU,
	.bias_buf = B_W,
	.workspace_bytes = 1 << 20 };
/* (2, 4, 16, 16) by (6, 2, 3, 3) in two groups, stride 2, padding 1 -> (2, 6, 8, 8) */
static const struct ww_conv good_conv = { .nd = 2,
	.dtype = WW_F32,
	.groups = 2,
	.n = 2,
	.c = 4,
	.k = 6,
	.in = { 16, 16 },
	.kernel = { 3, 3 },
	.out = { 8, 8 },
	.stride = { 2, 2 },
	.pad = { 1, 1 },
	.dilation = { 1, 1 },
	.x_buf = B_IMAGE,
	.w_buf = B_KERNEL,
	.y_buf = B_RESULT };
static const struct ww_tmap good_tmap = { .buf = B_X,
	.dtype = WW_F32,
	.rank = 2,
	.size = { 64, 8 },
	.stride_bytes = { 0, 256 },
	.box = { 32, 8 },
	.swizzle = WW_SWIZZLE_128B,
	.fill = WW_FILL_NAN };

static void add_launches(struct ww_plan *p)
{
	ww_define(p, "TILE", 64);
	ww_define(p, "SMALL", -3);
	ww_launch(p, "norm<float, TILE>", 132, 2, 1, 256, 1, 1);
	ww_arg_buf(p, B_X, 16);
	ww_arg_buf(p, B_S, 1);
	ww_arg_i32(p, -5);
	ww_arg_i64(p, 1ll << 40);
	ww_arg_f32(p, 0.5f);
	ww_arg_f64(p, -INFINITY);
	ww_shared(p, 200000);
	ww_cluster(p, 2, 2, 1);
	ww_cooperative(p);
	ww_launch(p, "second", 1, 1, 1, 32, 4, 1);
	ww_pdl(p);
}

/* ww_pdl_all(): each launch behind another one, neither cooperative. */
static void launches_that_may_overlap(void **state)
{
	static const char kinds[] = "llcllmll"; /* launch, cooperative launch, memset */
	static const uint32_t want[] = { 0, WW_NODE_PDL, WW_NODE_COOPERATIVE, 0, WW_NODE_PDL, 0, 0, WW_NODE_PDL };
	(void)state;
	for (int old = 0; old < 3; old++) { /* a device that cannot; without the call */
		facts = maker_facts(WW_TARGET_CUDA);
		if (old == 1)
			facts.device.cc = 80;
		struct ww_plan *p = maker_plan(&facts);
		assert_int_equal(ww_scratch(p, 4096), B_S);
		for (int i = 0; kinds[i]; i++) {
			if (kinds[i] == 'm')
				ww_memset(p, B_S, 0, 4096, 0);
			else
				ww_launch(p, "k", 1, 1, 1, 32, 1, 1);
			if (kinds[i] == 'c')
				ww_cooperative(p);
			if (i == 3 && old < 2)
				ww_pdl_all(p);
		}
		struct ww_image *m = maker_image(p);
		struct ww_str why = WW_STR_INIT(1024);
		assert_non_null(m);
		assert_true(ww_image_validate(m, m->total_bytes, &facts, &why));
		for (int i = 0; kinds[i]; i++)
			if (kinds[i] != 'm')
				assert_int_equal(ww_image_nodes(m)[i].launch.flags, old ? want[i] & ~(uint32_t)WW_NODE_PDL : want[i]);
		ww_str_release(&why);
		free(m);
	}
}

static struct ww_image *cuda_image(size_t *bytes)
{
	struct ww_plan *p = maker_plan(&facts);
	assert_int_equal(ww_scratch(p, 4096), B_S);
	assert_int_equal(ww_scratch(p, 2 * 4 * 16 * 16 * 4), B_IMAGE);
	assert_int_equal(ww_scratch(p, 6 * 2 * 9 * 4), B_KERNEL);
	assert_int_equal(ww_scratch(p, 2 * 6 * 8 * 8 * 4), B_RESULT);
	add_launches(p);
	ww_memset(p, B_S, 8, 4088, 255);
	ww_copy(p, B_S, 2048, B_S, 0, 2048);
	ww_gemm(p, &good_gemm);
	ww_conv(p, &good_conv);
	struct ww_conv t = good_conv; /* the transpose: (2, 6, 8, 8) -> (2, 4, 16, 16), output padding 1 */
	t.transposed = 1, t.c = 6, t.k = 4;
	t.in[0] = t.in[1] = 8, t.out[0] = t.out[1] = 16;
	t.x_buf = B_RESULT, t.y_buf = B_IMAGE;
	ww_conv(p, &t);
	ww_launch(p, "tma", 1, 1, 1, 128, 1, 1);
	ww_arg_tmap(p, &good_tmap);
	struct ww_image *m = maker_image(p);
	assert_non_null(m);
	*bytes = m->total_bytes;
	return m;
}

static void good_is_good(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
	size_t n;
	struct ww_image *m = cuda_image(&n);
	struct ww_str why = WW_STR_INIT(1024), text = WW_STR_INIT(65536);
	if (!ww_image_validate(m, n, &facts, &why))
		fail_msg("%s", why.p);
	ww_image_print(m, &facts, &text);
	static const char *const lines[] = { "plan of 8 nodes for cuda", "define TILE 64", "define SMALL -3",
		"buffer 0   input   x  2048 bytes", "buffer 3   scratch scratch0  4096 bytes",
		"launch  norm<float, TILE>  grid 132,2,1  block 256,1,1  cluster 2,2,1  shared 200000  cooperative  "
		"(x+16, scratch0+1, i32 -5, i64 1099511627776, f32 0.5, f64 -inf)",
		"launch  second  grid 1,1,1  block 32,4,1  pdl  ()", "memset  scratch0+8  4088 bytes to 255",
		"copy    scratch0 to scratch0+2048  2048 bytes",
		"gemm    8 x 32 x 64  fp32, bias, relu  alpha 1 beta 0  A=x:f32 ld 64",
		"conv    2d  f32 fp32  n 2 c 4 k 6 groups 2  in 16x16 kernel 3x3 out 8x8  stride/pad/dilation 2/1/1 "
		"2/1/1",
		"conv    2d transposed", "tmap(x f32 64x8 strides 256 box 32x8 swizzle 128 fill nan)" };
	for (size_t i = 0; i < WW_ARRAY_LEN(lines); i++)
		if (!strstr(text.p, lines[i]))
			fail_msg("no \"%s\" in\n%s", lines[i], text.p);
	ww_str_release(&why);
	ww_str_release(&text);
	free(m);
}

/* One change of the good image; `want` is what the refusal must say. */
#define NODE(i) ((struct ww_image_node *)(uintptr_t)&ww_image_nodes(m)[i])
#define REFUSE(change, want) do { \
	size_t n_; \
	struct ww_image *m = cuda_image(&n_); \
	struct ww_str why_ = WW_STR_INIT(1024); \
	change; \
	if (ww_image_validate(m, n_, &facts, &why_) || !strstr(why_.p, want)) \
		fail_msg("%s: expected \"%s\", got \"%s\"", #change, want, why_.p); \
	ww_str_release(&why_); \
	free(m); \
} while (0)
#define ACCEPT(change) do { \
	size_t n_; \
	struct ww_image *m = cuda_image(&n_); \
	struct ww_str why_ = WW_STR_INIT(1024); \
	change; \
	if (!ww_image_validate(m, n_, &facts, &why_)) \
		fail_msg("%s: refused: %s", #change, why_.p); \
	ww_str_release(&why_); \
	free(m); \
} while (0)

static void structure(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
	REFUSE(m->magic++, "not a plan");
	REFUSE(m->abi = 2, "not a plan");
	REFUSE(m->target = WW_TARGET_CPU, "another target");
	REFUSE(m->total_bytes--, "size");
	REFUSE(n_ -= 8, "size");
	REFUSE(n_ = 20, "20 bytes");
	REFUSE(m->buffers_at += 8, "buffers are not where");
	REFUSE(m->nodes_at = 0, "nodes are not where");
	REFUSE(m->n_nodes = UINT32_MAX, "4096 nodes");
	REFUSE(m->n_args = UINT32_MAX, "arguments reach beyond");
	REFUSE(m->n_args++, "not where they must be");
	REFUSE(m->n_macros = 4097, "4096 macros");
	REFUSE(m->strings_bytes++, "strings reach beyond");
	REFUSE(((char *)m)[n_ - 1] = 'x', "not terminated");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_X].bytes++, "buffer 0 is not the task's");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_X].role = WW_BUF_OUTPUT,
		"buffer 0 is not the task's");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_S].role = WW_BUF_OUTPUT,
		"buffer 3 is not scratch");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_S].bytes = 0, "scratch buffer 0");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_S].bytes = UINT64_MAX, "scratch buffer 0");
	REFUSE(((struct ww_image_buffer *)(uintptr_t)ww_image_buffers(m))[B_S].bytes = 1ull << 34, "device's memory");
	REFUSE(NODE(0)->kind = 77, "node 0 (?): unknown kind 77");
	REFUSE(NODE(0)->reserved = 1, "reserved");
	REFUSE(NODE(N_TMAP)->kind = WW_NODE_MEMSET, "node 7 (memset)");
	REFUSE(((struct ww_image_macro *)(uintptr_t)ww_image_macros(m))[1].name = ww_image_macros(m)[0].name,
		"\"TILE\") twice");
	REFUSE(((struct ww_image_macro *)(uintptr_t)ww_image_macros(m))[1].name = 0, "not a C identifier");
	REFUSE(((struct ww_image_macro *)(uintptr_t)ww_image_macros(m))[1].name = m->strings_bytes, "has no name");
	REFUSE(memcpy((char *)m + m->strings_at + ww_image_macros(m)[0].name, "WW_X", 4), "reserved");
	REFUSE(memcpy((char *)m + m->strings_at + ww_image_macros(m)[0].name, "__XY", 4), "reserved");
	REFUSE(memcpy((char *)m + m->strings_at + ww_image_macros(m)[0].name, "1ABC", 4), "not a C identifier");
	REFUSE(memcpy((char *)m + m->strings_at + ww_image_macros(m)[0].name, "A(x)", 4), "not a C identifier");
}

static void launches(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
#define L(i) NODE(i)->launch
#define ARG(i) ((struct ww_image_arg *)(uintptr_t)ww_image_args(m))[i]
	REFUSE(L(0).grid[0] = 0, "grid x = 0");
	REFUSE(L(0).grid[1] = 70000, "grid y = 70000");
	REFUSE(L(0).grid[0] = 1ll << 40, "grid x");
	REFUSE(L(0).block[0] = 0, "block x = 0");
	REFUSE(L(0).block[2] = 128, "block z = 128");
	REFUSE(L(0).block[1] = 8, "2048 threads");
	REFUSE(L(0).shared_bytes = 232449, "shared memory");
	REFUSE(L(0).shared_bytes = -1, "shared memory");
	REFUSE(L(0).cluster[0] = 5, "does not divide");
	REFUSE(L(0).cluster[2] = 0, "does not divide");
	REFUSE((L(0).grid[0] = 32, L(0).cluster[0] = 32), "not in 1..16");
	REFUSE((L(0).grid[0] = 16, L(0).cluster[0] = 16), "more than 16 blocks");
	REFUSE(L(0).flags = 4, "unknown flags");
	REFUSE(L(0).flags |= WW_NODE_PDL, "the node ahead");
	REFUSE(L(N_TMAP).flags = WW_NODE_PDL, "the node ahead");
	REFUSE(L(0).kernel = m->strings_bytes, "no kernel name");
	REFUSE(L(0).kernel = 0, "has 0 characters");
	REFUSE(((char *)m)[m->strings_at + L(0).kernel] = '\n', "no name has");
	REFUSE(((char *)m)[m->strings_at + L(0).kernel] = ';', "no name has");
	REFUSE(((char *)m)[m->strings_at + L(0).kernel] = '\x1b', "no name has");
	REFUSE(L(0).n_args = 65, "more than 64");
	REFUSE(L(0).n_args--, "not its own");
	REFUSE(L(0).first_arg = 1, "not its own");
	REFUSE(L(1).n_args = 60, "not its own");
	REFUSE(ARG(0).buf = 99, "argument 0: 99 is not a buffer");
	REFUSE(ARG(0).buf = -1, "argument 0: -1 is not a buffer");
	REFUSE(ARG(0).i = 2048, "not inside buffer 0");
	REFUSE(ARG(0).i = INT64_MIN, "not inside buffer 0");
	REFUSE(ARG(0).i = 2, "element size");
	REFUSE(ARG(2).i = 1ll << 31, "not a 32-bit integer");
	REFUSE(ARG(4).f32 = NAN, "argument 4 is NaN");
	REFUSE(ARG(5).f64 = NAN, "argument 5 is NaN");
	REFUSE(ARG(0).kind = 0, "unknown kind");
	REFUSE(ARG(0).kind = WW_ARG_TMAP, "node 7 (launch): argument 0: no tensor map of its own");
	REFUSE(ARG(6).buf = 1, "no tensor map of its own");
	facts.device.cc = 80;
	REFUSE((void)m, "compute capability 9.0");
}

static void memory_nodes(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
	REFUSE(NODE(N_MEMSET)->set.buf = B_X, "can only be read");
	REFUSE(NODE(N_MEMSET)->set.buf = B_W, "can only be read");
	REFUSE(NODE(N_MEMSET)->set.buf = 50, "not a buffer");
	REFUSE(NODE(N_MEMSET)->set.bytes = 4089, "reach beyond");
	REFUSE(NODE(N_MEMSET)->set.bytes = INT64_MAX, "reach beyond");
	REFUSE(NODE(N_MEMSET)->set.offset_bytes = INT64_MAX, "reach beyond");
	REFUSE(NODE(N_MEMSET)->set.offset_bytes = -8, "reach beyond");
	REFUSE(NODE(N_MEMSET)->set.bytes = 0, "0 bytes");
	REFUSE(NODE(N_MEMSET)->set.byte = 256, "not a byte");
	REFUSE(NODE(N_COPY)->copy.dst = B_X, "can only be read");
	REFUSE(NODE(N_COPY)->copy.src = -1, "not a buffer");
	REFUSE(NODE(N_COPY)->copy.bytes = -1, "-1 bytes");
	REFUSE(NODE(N_COPY)->copy.dst_offset_bytes = 2047, "overlap");
	REFUSE(NODE(N_COPY)->copy.src_offset_bytes = INT64_MAX, "reach beyond");
	ACCEPT(NODE(N_COPY)->copy.src = B_X);
}

static void gemms(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
#define G NODE(N_GEMM)->gemm
	REFUSE(G.m = 0, "not in 1..2^31-1");
	REFUSE(G.k = 1ll << 31, "not in 1..2^31-1");
	REFUSE(G.batch = -1, "not in 1..2^31-1");
	REFUSE(G.m = 9, "A: bytes from 0 on reach beyond");
	REFUSE(G.k = 65, "A: ld = 64 with rows of 65");
	REFUSE(G.b.ld = 33, "B: bytes");
	REFUSE(G.a.ld = INT64_MAX, "A: ld");
	REFUSE(G.a.batch_stride = -1, "A: batch_stride");
	REFUSE(G.a.offset_bytes = 4, "A: bytes");
	REFUSE(G.a.offset_bytes = 2, "multiple of 4");
	REFUSE(G.a.offset_bytes = INT64_MIN, "A: bytes");
	REFUSE(G.a.dtype = WW_F16, "A is f16 and B is f32");
	REFUSE((G.a.dtype = G.b.dtype = WW_I32), "math mode 0 with operands of type i32");
	REFUSE(G.math = WW_MATH_BF16, "math mode 3");
	REFUSE(G.math = 9, "math mode 9");
	REFUSE(G.d.dtype = WW_F64, "D is f64");
	REFUSE(G.d.buf = B_X, "can only be read");
	REFUSE(G.d.trans = 1, "D: trans = 1");
	REFUSE(G.a.trans = 2, "A: trans = 2");
	REFUSE(G.alpha = NAN, "not finite");
	REFUSE(G.beta = INFINITY, "C is");
	REFUSE((G.beta = INFINITY, G.c = G.d), "not finite");
	REFUSE(G.beta = 1, "C is ?");
	REFUSE((G.beta = 1, G.c = G.d, G.c.ld = 64), "C: bytes");
	REFUSE((G.beta = 1, G.c = G.d, G.c.buf = B_S, G.d.buf = B_S, G.c.offset_bytes = 512), "C overlaps D");
	REFUSE(G.epilogue = 4, "unknown epilogue");
	REFUSE(G.bias_buf = 40, "bias: 40");
	REFUSE(G.bias_offset_bytes = 8192, "bias: bytes");
	REFUSE((G.bias_buf = B_Y), "overlaps the bias");
	REFUSE(G.workspace_bytes = (1ll << 36) + 1, "workspace");
	REFUSE(G.workspace_bytes = -1, "workspace");
	REFUSE((G.a.buf = B_S, G.d.buf = B_S), "D overlaps A");
	REFUSE(G.batch = 2, "matrices of D overlap");
	REFUSE((G.m = 4, G.batch = 2, G.d.batch_stride = 64), "matrices of D overlap");
	ACCEPT((G.m = 4, G.batch = 2, G.d.batch_stride = 128));
	ACCEPT((G.n = 16, G.batch = 2, G.d.batch_stride = 16)); /* side by side in common rows */
	ACCEPT((G.beta = 1, G.c = G.d));
	ACCEPT((G.epilogue = 0, G.bias_buf = -7));
	ACCEPT((G.m = 64, G.n = 8, G.a = G.b, G.a.ld = 32, G.a.trans = 1, G.k = 32, G.a.buf = B_W, G.m = 32, G.k = 64,
		G.b.buf = B_X, G.b.trans = 1, G.b.ld = 64, G.n = 8, G.d.ld = 8));
}

static void convolutions(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
#define V NODE(N_CONV)->conv
	REFUSE(V.nd = 0, "nd = 0");
	REFUSE(V.nd = 4, "nd = 4");
	REFUSE(V.transposed = 2, "transposed");
	REFUSE(V.layout = 2, "layout");
	REFUSE(V.groups = 0, "groups");
	REFUSE(V.groups = 4, "groups");
	REFUSE(V.n = 0, "n, c, k");
	REFUSE(V.n = 3, "x: bytes");
	REFUSE(V.n = INT32_MAX, "x: bytes");
	REFUSE(V.k = 8, "w: bytes");
	REFUSE(V.out[0] = 9, "does not follow");
	REFUSE(V.in[1] = 1ll << 40, "not in 1..2^31-1");
	REFUSE(V.kernel[0] = 40, "does not follow");
	REFUSE(V.stride[0] = 0, "stride");
	REFUSE(V.pad[0] = -1, "pad");
	REFUSE(V.dilation[1] = 0, "dilation");
	REFUSE(V.pad[0] = INT32_MAX, "does not follow");
	REFUSE(V.dtype = WW_I8, "math mode 0 with operands of type i8");
	REFUSE(V.math = WW_MATH_FP16, "math mode 2");
	REFUSE(V.y_buf = B_X, "y: ");
	REFUSE(V.y_buf = B_IMAGE, "y overlaps x");
	REFUSE(V.x_offset_bytes = 4, "x: bytes");
	REFUSE(V.x_offset_bytes = -4, "x: bytes");
	REFUSE(V.w_offset_bytes = 3, "multiple of 4");
	REFUSE((V.epilogue = WW_EPI_BIAS, V.bias_buf = B_X, V.bias_offset_bytes = 2040), "bias: bytes");
	REFUSE((V.epilogue = WW_EPI_BIAS, V.bias_buf = B_RESULT), "overlaps the bias");
	REFUSE(NODE(N_CONVT)->conv.out[0] = 14, "does not follow");
	REFUSE(NODE(N_CONVT)->conv.out[0] = 17, "does not follow");
	REFUSE(V.choice = 16, "choice = 16 is not in 0..15");
	REFUSE(V.choice = -1, "choice = -1 is not in 0..15");
	ACCEPT(V.layout = WW_LAYOUT_NHWC);
	ACCEPT((V.epilogue = WW_EPI_BIAS_RELU, V.bias_buf = B_W));
	ACCEPT(V.math = WW_MATH_TF32);
}

static void tensor_maps(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CUDA);
#define T ((struct ww_image_tmap *)(uintptr_t)ww_image_tmaps(m))->t
	REFUSE(T.buf = 77, "not a buffer");
	REFUSE(T.rank = 0, "rank 0");
	REFUSE(T.rank = 6, "rank 6");
	REFUSE(T.dtype = 0, "unknown type");
	REFUSE(T.offset_bytes = 8, "multiple of 16");
	REFUSE(T.offset_bytes = 16, "reach beyond");
	REFUSE(T.offset_bytes = -16, "reach beyond");
	REFUSE(T.size[0] = 0, "size[0] = 0");
	REFUSE(T.size[1] = 9, "reach beyond");
	REFUSE(T.size[1] = 1ll << 32, "reach beyond");
	REFUSE(T.stride_bytes[1] = 8, "stride_bytes[1]");
	REFUSE(T.stride_bytes[1] = 1ll << 40, "stride_bytes[1]");
	REFUSE(T.stride_bytes[1] = 0, "stride_bytes[1]");
	REFUSE(T.box[1] = 257, "box[1]");
	REFUSE(T.box[0] = 64, "exceed the swizzle");
	REFUSE(T.box[0] = 3, "multiple of 16");
	REFUSE(T.elem_stride[0] = 9, "elem_stride");
	REFUSE(T.swizzle = 4, "swizzle");
	REFUSE(T.fill = 2, "fill 2");
	REFUSE(T.dtype = WW_I32, "fill 1 with type i32");
}

static void cpu_target(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CPU);
	struct ww_str why = WW_STR_INIT(1024);
	struct ww_plan *p = maker_plan(&facts);
	ww_launch(p, "rows", 8, 1, 1, 1, 1, 1);
	ww_arg_buf(p, B_X, 0);
	ww_shared(p, 4096);
	struct ww_gemm g = good_gemm;
	ww_gemm(p, &g);
	struct ww_image *m = maker_image(p);
	if (!ww_image_validate(m, m->total_bytes, &facts, &why))
		fail_msg("%s", why.p);
	static const struct {
		int field;
		long long value;
		const char *want;
	} wrong[] = { { 0, 2, "1 x 1 x 1" }, { 1, WW_NODE_COOPERATIVE, "cuda target" }, { 2, 1ll << 32, "grid x" },
		{ 3, WW_MATH_TF32, "math mode" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(wrong); i++) {
		struct ww_image *c = malloc(m->total_bytes);
		memcpy(c, m, m->total_bytes);
		struct ww_image_node *n = (struct ww_image_node *)(uintptr_t)ww_image_nodes(c);
		switch (wrong[i].field) {
		case 0: n[0].launch.block[0] = (int)wrong[i].value; break;
		case 1: n[0].launch.flags = (uint32_t)wrong[i].value; break;
		case 2: n[0].launch.grid[0] = wrong[i].value; break;
		case 3: n[1].gemm.math = (int)wrong[i].value; break;
		}
		ww_str_reset(&why);
		if (ww_image_validate(c, c->total_bytes, &facts, &why) || !strstr(why.p, wrong[i].want))
			fail_msg("expected \"%s\", got \"%s\"", wrong[i].want, why.p);
		free(c);
	}
	ww_str_release(&why);
	free(m);
}

static void empty_plans(void **state)
{
	(void)state;
	facts = maker_facts(WW_TARGET_CPU);
	struct ww_str why = WW_STR_INIT(1024);
	struct ww_tensor nothing = maker_outputs[0];
	struct ww_image *m = maker_image(maker_plan(&facts));
	assert_false(ww_image_validate(m, m->total_bytes, &facts, &why));
	assert_non_null(strstr(why.p, "no node"));
	free(m);
	nothing.size[0] = nothing.numel = nothing.bytes = 0;
	facts.outputs = &nothing;
	m = maker_image(maker_plan(&facts)); /* an output without elements needs no work */
	ww_str_reset(&why);
	assert_true(ww_image_validate(m, m->total_bytes, &facts, &why));
	ww_str_release(&why);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(good_is_good), cmocka_unit_test(launches_that_may_overlap),
		cmocka_unit_test(structure), cmocka_unit_test(launches), cmocka_unit_test(memory_nodes),
		cmocka_unit_test(gemms), cmocka_unit_test(convolutions), cmocka_unit_test(tensor_maps),
		cmocka_unit_test(cpu_target), cmocka_unit_test(empty_plans) };
	return cmocka_run_group_tests_name("judge/image", tests, NULL, NULL);
}
