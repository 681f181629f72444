/* parts.cu - where the time of conv_tc goes: the whole kernel, and parts of it, on six convolutions.
 *
 *     ninja -C build bench-conv-parts && build/tests/bench-conv-parts [SHAPE...]
 *
 * It needs a GPU of compute capability 9.0 and, for the rows "library", cuDNN where the loader finds it; nothing else
 * of ours.  A line of JSON a measurement: microseconds of a launch, the best of three series of four, and the result's
 * bytes (MB a microsecond).  Parts:
 *
 *     whole       loads, products, ends (bias and ReLU)
 *     unstored    without the stores alone: what would be stored is compared with a number that it never is
 *     ends        without loads and products: the sums are zeros
 *     loads       tensor copies alone: each stage is let go of as soon as it has come
 *     pack        the largest magnitudes, the image as NHWC fp16, and the weights, in this order
 *     library     cuDNN's channels-last TF32 convolution of operands that lie so, without a bias
 *     halves      cuDNN's channels-last convolution of halves, of image and weights packed for it, and the join: the
 * pass behind it that turns, scales and ends its result
 *
 * of kernels that differ in their tile and end, whose rows "whole" also have the microseconds of the estimate:
 *
 *     planned     the squarest tile of those that waste least, stored from registers
 *     wide        one of whole rows of the image, stored from registers; "same": bit by bit what `planned` stores
 *     staged      that tile, results staged in shared memory
 *     narrow      the planned tile, staged
 *     pairs       two pairs of consumers by turns, 128 pixels, staged
 *     few         64 filters in a tile, of the wide one's pixels, stored from registers
 *     few_pairs   the same, two pairs by turns, staged
 *     chosen      what a plan takes
 *
 * Rejected: one program built by a plan at run time (compiling 40 kernels there takes minutes). */
#include <ww/conv.cuh>

#include "parts.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

enum { SERIES = 3, LAUNCHES = 4 };

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench-conv-parts: %s\n", what);
	exit(3);
}
static void need(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		fprintf(stderr, "%s: ", cudaGetErrorString(e));
	need(e == cudaSuccess, what);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* R x R elements, stride 1. */
template <int N, int C, int K, int H, int W, int R, int PAD> struct geometry {
	static constexpr int n = N, c = C, k = K, h = H, w = W, r = R, s = R, ph = PAD, pw = PAD;
	static constexpr int oh = H + 2 * PAD - R + 1, ow = W + 2 * PAD - R + 1, cb = (C + 63) / 64;
	static constexpr int groups = 1, transposed = 0, d = 1, t = 1, od = 1, sd = 1, sh = 1, sw = 1, pd = 0, dd = 1,
						 dh = 1;
	static constexpr int dw = 1, pair = 0, exact = 0, kt = 1, pt = 1;
};
template <class G, int BN, int TW, int TH, int STAGES, int STAGED, int FILTERS = 128> struct tiled : G {
	static constexpr int bn = BN, tw = TW, th = TH, tn = BN / TW / TH, stages = STAGES, staged = STAGED,
						 filters = FILTERS;
};
template <class G> static constexpr parts_conv conv_of = { G::n, G::c, G::k, G::h, G::w, G::r, G::ph };

/* A bias and a ReLU, as the planner writes them.  Nothing is stored where `stores` is 0, `never` being negative. */
template <class S> struct bias_relu {
	const float *bias;
	float *y, never;
	int stores;

	/* Vectors by name: behind a condition the compiler stored their elements one by one. */
	static __device__ void put(float *p, const float (&o)[1]) { *p = o[0]; }
	static __device__ void put(float *p, const float (&o)[2])
	{
		asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(o[0]), "f"(o[1]) : "memory");
	}
	static __device__ void put(float *p, const float (&o)[4])
	{
		asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(o[0]), "f"(o[1]), "f"(o[2]), "f"(o[3])
			: "memory");
	}

	template <int N> struct ahead {
		float x[1];
	};
	template <int N> __device__ void fetch(int, int k, int, ahead<N> &given) const { ww::load(bias + k, given.x); }
	template <int N> __device__ void store(int n, int k, int pix, const float (&v)[N], ahead<N> &given) const
	{
		float o[N];

#pragma unroll
		for (int i = 0; i < N; i++)
			o[i] = ww::relu(v[i] + given.x[0]);
		if (stores || o[0] == never)
			put(y + ((long long)n * S::k + k) * (S::oh * S::ow) + pix, o);
	}
	template <int N> __device__ void store(int n, int k, int pix, const float (&v)[N]) const
	{
		ahead<N> given;
		fetch<N>(n, k, pix, given);
		store<N>(n, k, pix, v, given);
	}
};

template <class S> struct whole_job : ww::conv_job<S, bias_relu<S>> {};
/* A job without loads and products. */
template <class S> struct ends_job : ww::conv_job<S, bias_relu<S>> {
	__device__ __forceinline__ int steps(int) const { return 0; }
};

template <class J, class S, int PAIRS> __global__ void __launch_bounds__(ww::pipeline_shape<PAIRS>::threads, 1)
	conv(const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb, const unsigned *sw,
		const unsigned *sx, bias_relu<S> e)
{
	const J job = { { &ta, &tb, sw, sx, e, ww::pipeline_extra<S::bn, S::stages, S::filters>() } };
	ww::pipeline<__half, S::stages, S::bn, 1, 0, 1, PAIRS, S::filters>(job);
}

/* pipeline() with consumers that only wait and let go. */
template <class S> __global__ void __launch_bounds__(384, 1)
	loads(const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb, bias_relu<S> e)
{
	extern __shared__ unsigned char ww_dynamic_shared[];
	typedef ww::conv_job<S, bias_relu<S>> J;
	const unsigned base = (ww::saddr(ww_dynamic_shared) + 1023) & ~1023u;
	const unsigned full = base + ww::stages<S::bn, S::stages, S::filters>::all_bytes, empty = full + 8 * S::stages;
	const J job = { &ta, &tb, nullptr, nullptr, e, nullptr };

	if (threadIdx.x == 0) {
		for (int s = 0; s < S::stages; s++) {
			ww::bar_init(full + 8 * s, 1);
			ww::bar_init(empty + 8 * s, 8);
		}
		ww::bar_init_fence();
	}
	__syncthreads();
	if (threadIdx.x == 0)
		ww::pipeline_produce<J, S::stages, S::bn, 1, S::filters>(job, base, full, empty);
	if (threadIdx.x < 128)
		return;
	int stage = 0;
	unsigned phase = 0;
	for (int tile = blockIdx.x; tile < job.tiles(); tile += gridDim.x)
		for (int k = job.steps(tile); k; k--) {
			ww::bar_wait(full + 8 * stage, phase);
			__syncwarp();
			ww::pipeline_release<1>(empty, stage);
			if (++stage == S::stages)
				stage = 0, phase ^= 1;
		}
}

__global__ void draw(float *p, long long n, float by)
{
	for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
		i += (long long)gridDim.x * blockDim.x) {
		const unsigned s = ((unsigned)i * 2654435761u) ^ (unsigned)(i >> 32);
		p[i] = by * ((float)((s ^ s >> 15) * 2246822519u >> 8) / (1 << 23) - 1.f);
	}
}

__global__ void differ(const unsigned *a, const unsigned *b, long long n, unsigned long long *count)
{
	for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
		if (a[i] != b[i])
			atomicAdd(count, 1ull);
}

/* ---- Host -------------------------------------------------------------------------------------------------------- */

static int sms;
static cudaStream_t stream;
static cudaEvent_t before, after;
static decltype(&cuTensorMapEncodeTiled) encode;

static void *room(long long bytes)
{
	void *p;

	need(cudaMalloc(&p, (size_t)bytes), "device memory");
	return p;
}

template <class F> static double time_of(F launch)
{
	double best = 1e30;

	launch();
	for (int s = 0; s < SERIES; s++) {
		float ms;

		need(cudaEventRecord(before, stream), "event");
		for (int i = 0; i < LAUNCHES; i++)
			launch();
		need(cudaEventRecord(after, stream), "event");
		need(cudaEventSynchronize(after), "a kernel failed");
		need(cudaEventElapsedTime(&ms, before, after), "event");
		best = ms * 1e3 / LAUNCHES < best ? ms * 1e3 / LAUNCHES : best;
	}
	need(cudaGetLastError(), "a launch failed");
	return best;
}

static const char *shape;
static double result_mb;

static void say(const char *part, const char *kernel, const char *tile, double us, const char *more = "")
{
	printf("{\"shape\": \"%s\", \"part\": \"%s\", \"kernel\": \"%s\", \"tile\": \"%s\", ", shape, part, kernel, tile);
	printf("\"us\": %.1f, \"result_mb\": %.1f, \"mb_per_us\": %.3f%s}\n", us, result_mb, result_mb / us, more);
	fflush(stdout);
}

struct buffers {
	float *x, *w, *bias, *y, *other;
	__half *xs, *ws;
	unsigned *ax, *aw;
};

static ww_tensor_map map_of(void *p, int rank, const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box)
{
	const cuuint32_t ones[5] = { 1, 1, 1, 1, 1 };
	CUtensorMap m;
	ww_tensor_map out;

	need(encode(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, p, size, stride, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
			 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
			 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS,
		"no tensor map");
	static_assert(sizeof(m) == sizeof(out), "one map");
	memcpy(&out, &m, sizeof(out));
	return out;
}

template <class S> static ww_tensor_map weights_map(const buffers &b)
{
	const cuuint64_t line = 2ull * S::r * S::s * S::cb * 64, size[3] = { line / 2, S::k, 1 };
	const cuuint64_t stride[2] = { line, line * S::k };
	const cuuint32_t box[3] = { 64, S::filters, 1 };

	return map_of(b.ws, 3, size, stride, box);
}

template <class S> static ww_tensor_map image_map(const buffers &b)
{
	const cuuint64_t line = 2ull * S::cb * 64, size[4] = { line / 2, S::w, S::h, S::n };
	const cuuint64_t stride[3] = { line, line * S::w, line * S::w * S::h };
	const cuuint32_t box[4] = { 64, S::tw, S::th, S::tn };

	return map_of(b.xs, 4, size, stride, box);
}

template <class S> static int blocks(int pairs, int *shared)
{
	typedef ww::conv_job<S, bias_relu<S>> J;
	const int tiles = J::mt * J::tiles_w * J::tiles_h * J::tiles_n;

	*shared = ww::stages<S::bn, S::stages, S::filters>::all_bytes + 16 * S::stages + 16 + 1024 +
		(S::staged ? pairs * 8 * 4096 : 0);
	return tiles < sms ? tiles : sms;
}

/* All parts of one kernel. */
template <class S, int PAIRS> static void time_kernel(const buffers &b, const char *kernel, bool first)
{
	const ww_tensor_map ta = weights_map<S>(b), tb = image_map<S>(b);
	const long long results = (long long)S::n * S::k * S::oh * S::ow;
	bias_relu<S> e = { b.bias, first ? b.y : b.other, -1.f, 1 };
	const int size[3] = { S::tw, S::th, S::tn }, end = PAIRS == 2 ? 3 : S::staged ? 2 : 1;
	char tile[32], more[64] = "";
	int shared, grid = blocks<S>(PAIRS, &shared), chosen[3];
	unsigned long long *count = (unsigned long long *)b.ax - 1, differing = 0;
	const auto all = conv<whole_job<S>, S, PAIRS>, ends = conv<ends_job<S>, S, PAIRS>;
	auto launch = [&](decltype(all) kernel) {
		kernel<<<grid, ww::pipeline_shape<PAIRS>::threads, shared, stream>>>(ta, tb, b.aw, b.ax, e);
	};

	snprintf(tile, sizeof(tile), "%dx%dx%d", S::tw, S::th, S::tn);
	if (!strcmp(kernel, "chosen"))
		need(parts_choice(&conv_of<S>, chosen) == end && !memcmp(chosen, size, sizeof(size)),
			"a plan chooses another one");
	for (auto kernel : { all, ends })
		need(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
			"shared memory");
	need(cudaMemsetAsync(e.y, 0xff, 4 * results, stream), "memset");
	const double whole = time_of([&] { launch(all); });
	int n = snprintf(more, sizeof(more), ", \"estimate\": %.1f", parts_estimate(&conv_of<S>, end, S::filters, size));
	if (!first) {
		need(cudaMemsetAsync(count, 0, 8, stream), "memset");
		differ<<<1024, 256, 0, stream>>>((unsigned *)b.y, (unsigned *)b.other, results, count);
		need(cudaMemcpyAsync(&differing, count, 8, cudaMemcpyDeviceToHost, stream), "copy");
		need(cudaStreamSynchronize(stream), "a kernel failed");
		snprintf(more + n, sizeof(more) - n, ", \"same\": %s", differing ? "false" : "true");
	}
	say("whole", kernel, tile, whole, more);
	e.stores = 0;
	say("unstored", kernel, tile, time_of([&] { launch(all); }));
	e.stores = 1;
	say("ends", kernel, tile, time_of([&] { launch(ends); }));
	if (first) /* what the others are compared with, in place of sums of nothing */
		launch(all);
	if (PAIRS == 1 && !S::staged) {
		need(cudaFuncSetAttribute((const void *)loads<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
			"shared memory");
		say("loads", kernel, tile, time_of([&] { loads<S><<<grid, 384, shared, stream>>>(ta, tb, e); }));
	}
}

template <class G> static void time_pack(const buffers &b)
{
	const int image = G::c * G::h * G::w, hw = G::h * G::w, taps = G::r * G::s;
	const int parts = image / 16384 < 1 ? 1 : image / 16384 < 64 ? image / 16384 : 64;

	say("pack", "absmax_all", "", time_of([&] {
		cudaMemsetAsync(b.ax, 0, 4 * G::n, stream);
		ww::absmax_all<0><<<dim3(parts, G::n), 256, 0, stream>>>(b.x, image, 0, 1, image, 1, image, b.ax);
	}));
	say("pack", "conv_pack_x", "", time_of([&] {
		ww::conv_pack_x<0>
			<<<dim3((hw + 63) / 64, (G::c + 63) / 64, G::n), 256, 0, stream>>>(b.x, G::c, hw, G::cb, b.xs, b.ax);
	}));
	say("pack", "conv_pack_w", "", time_of([&] {
		ww::conv_pack_w<0><<<G::k, 256, 0, stream>>>(b.w, G::c * taps, taps, G::c, taps, G::s, 0, 1, G::cb, b.ws, b.aw);
	}));
}

/* cuDNN's convolution of x and w, channels-last, to y. */
template <class G> static void time_library(const char *part, int half, void *x, void *w, void *y)
{
	char why[PARTS_WHY];
	const long long bytes = parts_library(&conv_of<G>, half, why);
	void *all[] = { x, w, y }, *work;
	bool ok = bytes >= 0;

	if (ok) {
		work = bytes ? room(bytes) : nullptr;
		const double us = time_of([&] { ok &= !parts_library_issue(all, work, stream, why); });
		if (ok)
			say(part, "cudnn", "", us);
		cudaFree(work);
	}
	if (!ok)
		fprintf(stderr, "%s: %s\n", shape, why);
}

template <class S, int VEC, int RUNS> __global__ void __launch_bounds__(256)
	join(const __half *y, const unsigned *sw, const unsigned *sx, bias_relu<S> e)
{
	ww::after_halves<int, S::k, S::oh * S::ow, VEC, RUNS>(y, (long long)S::n * S::k, sw, sx, e);
}

template <class G> static void time_halves(const buffers &b)
{
	static_assert(G::c % 64 == 0, "rows of packed pixels as the other kernels have them");
	enum : int {
		hw = G::h * G::w,
		taps = G::r * G::s,
		plane = G::oh * G::ow,
		VEC = plane % 4 == 0 ? 4
			: plane % 2 == 0 ? 2
							 : 1
	};
	const bias_relu<G> e = { b.bias, b.y, -1.f, 1 };
	const int runs = parts_runs(G::k, plane);
	const auto kernel = runs == 1 ? join<G, VEC, 1> : runs == 2 ? join<G, VEC, 2> : join<G, VEC, 4>;
	const long long grid = (long long)G::n * ((G::k + 128 / runs - 1) / (128 / runs)) *
		((plane + 32 * runs - 1) / (32 * runs));

	say("halves", "conv_pack_x", "", time_of([&] {
		ww::conv_pack_x<ww::CONV_HALVES>
			<<<dim3((hw + 63) / 64, G::c / 64, G::n), 256, 0, stream>>>(b.x, G::c, hw, G::c / 8, b.xs, b.ax);
	}));
	ww::conv_pack_w<ww::CONV_HALVES>
		<<<G::k, 256, 0, stream>>>(b.w, G::c * taps, taps, G::c, taps, G::s, 0, 1, G::c / 8, b.ws, b.aw);
	time_library<G>("halves", 1, b.xs, b.ws, b.other);
	say("halves", "join", "",
		time_of([&] { kernel<<<(unsigned)grid, 256, 0, stream>>>((const __half *)b.other, b.aw, b.ax, e); }));
}

/* TW x TH: of the planned tile; WIDE x HIGH: of the others; CW x CH: of the one that is chosen, by pairs or not. */
template <class G, int TW, int TH, int WIDE, int HIGH, int PAIRS, int CW, int CH>
static void time_shape(const char *name, int argc, char **argv)
{
	const long long results = (long long)G::n * G::k * G::oh * G::ow, pixels = (long long)G::n * G::h * G::w;
	const int weights = G::k * G::c * G::r * G::s;
	bool wanted = argc < 2;
	buffers b;

	for (int i = 1; i < argc; i++)
		wanted |= !strcmp(argv[i], name);
	if (!wanted)
		return;
	shape = name;
	result_mb = results * 4e-6;
	b = { (float *)room(4 * pixels * G::c), (float *)room(4 * weights), (float *)room(4 * G::k),
		(float *)room(4 * results), (float *)room(4 * results), (__half *)room(128 * pixels * G::cb),
		(__half *)room(128ll * G::k * G::r * G::s * G::cb), (unsigned *)room(8 + 4 * G::n) + 2,
		(unsigned *)room(4 * G::k) };
	draw<<<1024, 256, 0, stream>>>(b.x, pixels * G::c, 1);
	draw<<<1024, 256, 0, stream>>>(b.w, weights, 0.1f);
	draw<<<1, 256, 0, stream>>>(b.bias, G::k, 1);
	time_pack<G>(b);
	time_kernel<tiled<G, 256, TW, TH, 4, 0>, 1>(b, "planned", true);
	time_kernel<tiled<G, 256, WIDE, HIGH, 4, 0>, 1>(b, "wide", false);
	time_kernel<tiled<G, 256, WIDE, HIGH, 4, 1>, 1>(b, "staged", false);
	time_kernel<tiled<G, 256, TW, TH, 4, 1>, 1>(b, "narrow", false);
	time_kernel<tiled<G, 128, (WIDE < 128 ? WIDE : 128), 1, 5, 1>, 2>(b, "pairs", false);
	time_kernel<tiled<G, 256, WIDE, HIGH, 5, 0, 64>, 1>(b, "few", false);
	time_kernel<tiled<G, 256, WIDE, HIGH, 4, 1, 64>, 2>(b, "few_pairs", false);
	time_kernel<tiled<G, PAIRS == 2 ? 128 : 256, CW, CH, PAIRS == 2 ? 5 : 4, PAIRS == 2>, PAIRS>(b, "chosen", false);
	time_library<G>("library", 0, b.x, b.w, b.other);
	time_halves<G>(b);
	for (void *p : { (void *)b.x, (void *)b.w, (void *)b.bias, (void *)b.y, (void *)b.other, (void *)b.xs, (void *)b.ws,
			 (void *)(b.ax - 2), (void *)b.aw })
		cudaFree(p);
}

int main(int argc, char **argv)
{
	cudaDriverEntryPointQueryResult found;
	cudaDeviceProp device;

	need(cudaGetDeviceProperties(&device, 0), "no GPU");
	need(device.major == 9 && device.minor == 0, "not a GPU of compute capability 9.0");
	sms = device.multiProcessorCount;
	need(cudaStreamCreate(&stream), "stream");
	need(cudaEventCreate(&before), "event");
	need(cudaEventCreate(&after), "event");
	need(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found),
		"no driver");
	need(found == cudaDriverEntryPointSuccess, "the driver has no tensor maps");
	time_shape<geometry<53, 192, 192, 17, 17, 3, 1>, 8, 1, 8, 1, 2, 8, 2>("53x192x17x17-192", argc, argv);
	time_shape<geometry<17, 64, 64, 128, 128, 3, 1>, 16, 16, 128, 2, 1, 128, 2>("17x64x128x128-64", argc, argv);
	time_shape<geometry<32, 128, 128, 112, 112, 3, 1>, 16, 16, 128, 2, 2, 16, 8>("32x128x112x112-128", argc, argv);
	time_shape<geometry<128, 64, 128, 128, 128, 3, 0>, 16, 2, 128, 2, 2, 128, 1>("level2-1", argc, argv);
	time_shape<geometry<64, 64, 64, 256, 256, 3, 1>, 16, 16, 256, 1, 1, 256, 1>("level2-54", argc, argv);
	time_shape<geometry<8, 64, 128, 512, 1024, 3, 0>, 16, 2, 256, 1, 2, 128, 1>("level1-55", argc, argv);
	return 0;
}
