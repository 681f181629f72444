/* gemm_mma.cu - times gemm_mma over shapes, tiles and splits, and compares each result with sums in double.
 *
 *     nvcc -O2 -arch=sm_90a -std=c++17 -Iskills/cuda/include bench/kernels/gemm_mma.cu -o gemm_mma
 *
 * A time is that of one of 20 launches in a CUDA graph, the best of three such graphs, operands in the cache where they
 * fit. */
#include <ww/gemm_mma.cuh>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>
struct E {
	float *d;
	int m, n;
	template <int N> __device__ void store(int z, int r, int c, const float (&v)[N]) const
	{
		float *p = d + ((long long)z * m + r) * n + c;
		if (N == 2)
			ww::store(p, v);
		else
			p[0] = v[0];
	}
};
template <class T, int BM, int BN, int SP, bool AK, bool BK, int V> __global__ void __launch_bounds__(
	ww::mma_shape<T, BM, BN>::threads) kern(ww::mma_operand<T> a, ww::mma_operand<T> b, int m, int n, int k, float *d)
{
	ww::gemm_mma<T, BM, BN, 3, SP, AK, BK, V, V>(a, b, m, n, k, E{ d, m, n });
}
template <class T> __global__ void ref(const T *a, const T *b, int m, int n, int k, bool AK, bool BK, double *d)
{
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= m * n)
		return;
	int r = i / n, c = i % n;
	double s = 0;
	for (int l = 0; l < k; l++)
		s += (double)ww::to_float(a[AK ? (long long)r * k + l : (long long)l * m + r]) *
			(double)ww::to_float(b[BK ? (long long)c * k + l : (long long)l * n + c]);
	d[i] = s;
}
template <class T> __global__ void fill(T *p, long long n, unsigned seed)
{
	long long i = blockIdx.x * 256ll + threadIdx.x;
	if (i < n) {
		unsigned h = (unsigned)i * 2654435761u ^ seed;
		h ^= h >> 15;
		h *= 2246822519u;
		h ^= h >> 13;
		h *= 3266489917u;
		h ^= h >> 16;
		p[i] = ww::from_float<T>(((int)(h & 0xffffff) - 0x800000) / (float)0x800000);
	}
}
template <class T, int BM, int BN, int SP, bool AK, bool BK, int V>
void one(const char *ty, T *a, T *b, float *d, double *want, int m, int n, int k, int batch)
{
	const int bytes = sizeof(T), bk = bytes == 4 ? 32 : 64;
	const int al = AK ? k : m, bl = BK ? k : n;
	if (al % V || bl % V)
		return;
	if (SP > 1 && (k + bk - 1) / bk < 2 * SP)
		return;
	auto f = kern<T, BM, BN, SP, AK, BK, V>;
	int ae = AK ? BM * (bk + 8) : bk * (BM + 16 / bytes), be = BK ? BN * (bk + 8) : bk * (BN + 16 / bytes);
	int sh = 3 * (ae + be) * bytes;
	if (SP > 1 && sh < 4 * BM * BN)
		sh = 4 * BM * BN;
	if (cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, sh)) {
		printf("attr fail\n");
		return;
	}
	ww::mma_operand<T> oa = { a, al, (long long)m * k, 0, 1 }, ob = { b, bl, (long long)n * k, 0, 1 };
	cudaLaunchConfig_t c = {};
	c.gridDim = dim3(((m + BM - 1) / BM) * ((n + BN - 1) / BN) * batch * SP);
	c.blockDim = dim3(ww::mma_shape<T, BM, BN>::threads);
	c.dynamicSmemBytes = sh;
	cudaStream_t s;
	cudaStreamCreate(&s);
	c.stream = s;
	cudaLaunchAttribute at[1];
	at[0].id = cudaLaunchAttributeClusterDimension;
	at[0].val.clusterDim = { SP, 1, 1 };
	c.attrs = at;
	c.numAttrs = SP > 1;
	cudaMemsetAsync(d, 0xff, 4ll * m * n * batch, s);
	cudaError_t er = cudaLaunchKernelEx(&c, f, oa, ob, m, n, k, d);
	cudaStreamSynchronize(s);
	er = er ? er : cudaGetLastError();
	if (er) {
		printf("FAIL %s %d %d %d: %s\n", ty, BM, BN, SP, cudaGetErrorString(er));
		exit(1);
	}
	std::vector<float> h(m * n);
	std::vector<double> w(m * n);
	cudaMemcpy(h.data(), d, 4ll * m * n, cudaMemcpyDeviceToHost);
	cudaMemcpy(w.data(), want, 8ll * m * n, cudaMemcpyDeviceToHost);
	double e2 = 0, w2 = 0, mx = 0;
	for (int i = 0; i < m * n; i++) {
		double e = h[i] - w[i];
		e2 += e * e;
		w2 += w[i] * w[i];
		mx = fmax(mx, fabs(e));
		if (e != e)
			mx = INFINITY;
	}
	cudaGraph_t g;
	cudaGraphExec_t x;
	cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
	for (int i = 0; i < 20; i++)
		cudaLaunchKernelEx(&c, f, oa, ob, m, n, k, d);
	cudaStreamEndCapture(s, &g);
	cudaGraphInstantiate(&x, g, 0);
	cudaEvent_t t0, t1;
	cudaEventCreate(&t0);
	cudaEventCreate(&t1);
	cudaGraphLaunch(x, s);
	float best = 1e9;
	for (int r = 0; r < 3; r++) {
		cudaEventRecord(t0, s);
		cudaGraphLaunch(x, s);
		cudaEventRecord(t1, s);
		cudaEventSynchronize(t1);
		float ms;
		cudaEventElapsedTime(&ms, t0, t1);
		best = fminf(best, ms);
	}
	printf("%s m %d n %d k %d batch %d  tile %dx%d split %d along %d%d vec %d: %.2f us  rms %.2e max %.2e\n", ty, m, n,
		k, batch, BM, BN, SP, AK, BK, V, best * 50, sqrt(e2 / w2), mx);
	fflush(stdout);
	cudaGraphExecDestroy(x);
	cudaGraphDestroy(g);
	cudaStreamDestroy(s);
}
template <class T, bool AK, bool BK, int V>
void tiles(const char *ty, T *a, T *b, float *d, double *w, int m, int n, int k, int batch)
{
	ref<T><<<(m * n + 255) / 256, 256>>>(a, b, m, n, k, AK, BK, w);
#define R(BM, BN) one<T,BM,BN,1,AK,BK,V>(ty,a,b,d,w,m,n,k,batch); one<T,BM,BN,4,AK,BK,V>(ty,a,b,d,w,m,n,k,batch); one<T,BM,BN,8,AK,BK,V>(ty,a,b,d,w,m,n,k,batch);
	R(64, 64) R(128, 64) R(128, 128) R(32, 32) R(64, 32) R(16, 64)
}
template <class T> void type(const char *ty)
{
	T *a, *b;
	float *d;
	double *w;
	cudaMalloc(&a, sizeof(T) * (1ll << 27));
	cudaMalloc(&b, sizeof(T) * (1ll << 26));
	cudaMalloc(&d, 4ll << 27);
	cudaMalloc(&w, 8ll << 25);
	fill<T><<<(1 << 27) / 256, 256>>>(a, 1ll << 27, 1);
	fill<T><<<(1 << 26) / 256, 256>>>(b, 1ll << 26, 7);
	int s[][4] = { { 64, 64, 64, 1 }, { 256, 256, 256, 1 }, { 768, 2048, 2048, 1 }, { 2464, 80, 96, 1 },
		{ 512, 128, 256, 1 }, { 127, 2112, 12928, 1 }, { 1024, 1024, 1024, 1 }, { 2048, 2048, 2048, 1 },
		{ 4096, 1024, 1024, 1 }, { 8, 1088, 128, 1 }, { 32, 1024, 4096, 1 }, { 32, 32, 128, 4096 },
		{ 288, 288, 128, 640 }, { 48, 128, 128, 256 }, { 64, 512, 8192, 1 }, { 7744, 320, 104, 1 },
		{ 131072, 32, 256, 1 } };
	for (auto &q : s) {
		tiles<T, true, true, 16 / sizeof(T)>(ty, a, b, d, w, q[0], q[1], q[2], q[3]);
	}
	for (int i : { 2, 6 }) {
		auto &q = s[i];
		ref<T><<<(q[0] * q[1] + 255) / 256, 256>>>(a, b, q[0], q[1], q[2], true, false, w);
		one<T, 64, 64, 1, true, false, 16 / sizeof(T)>(ty, a, b, d, w, q[0], q[1], q[2], q[3]);
		one<T, 128, 64, 1, true, false, 16 / sizeof(T)>(ty, a, b, d, w, q[0], q[1], q[2], q[3]);
	}
	ref<T><<<(1215 * 1665 + 255) / 256, 256>>>(a, b, 1215, 1665, 135, true, true, w);
	one<T, 64, 64, 1, true, true, 1>(ty, a, b, d, w, 1215, 1665, 135, 1);
	one<T, 32, 32, 1, true, true, 1>(ty, a, b, d, w, 1215, 1665, 135, 1);
	ref<T><<<(1216 * 1666 + 255) / 256, 256>>>(a, b, 1216, 1666, 1024, false, false, w);
	one<T, 64, 64, 1, false, false, 2>(ty, a, b, d, w, 1216, 1666, 1024, 1);
	one<T, 64, 64, 4, false, false, 2>(ty, a, b, d, w, 1216, 1666, 1024, 1);
}
int main()
{
	type<float>("f32");
	type<__half>("f16");
}
