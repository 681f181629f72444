/* exec_cpu.c - plans on the cpu target: kernels are functions of a shared object, run by a pool of threads.
 *
 * This file is carried by exported libraries (exec.h), so it needs nothing but libc and dlopen.
 *
 * Threads.  Between the launches of a plan a barrier has to cost less than a microsecond, so waiting threads spin
 * briefly.  After the plan, however, every thread has to sleep at once, because the judge ends a call's time only when
 * /proc says that all threads of the runner sleep: the wait for the next job is a futex without any spinning.  The
 * barrier counts arrivals; the last one raises `phase` and wakes sleeping threads.  Rejected: OpenMP (its runtime
 * decides how long it spins, and brings a second copy of itself beside PyTorch's); condition variables (a mutex handed
 * from thread to thread at each barrier).
 *
 * Nodes.  Every thread walks the whole list.  The blocks of a launch are handed out in chunks by one atomic counter a
 * node (small enough that the last ones level the threads, large enough that the counter is not the work); memory and
 * library nodes are cut into one share a thread.  A barrier stands between nodes.  Argument values are written anew for
 * every issue, so that nothing that a kernel does to them reaches the next one.
 *
 * GEMM.  OpenBLAS runs with one thread; the pool's threads each compute a slice of D: whole matrices where the batch is
 * large enough, else a range of columns or of rows, whichever is longer.  Its own threads would linger: it spins for
 * milliseconds after a call.  Each slice packs the shared operand again, which costs less than 1% beyond a few hundred
 * columns.
 *
 * Convolution.  One documented choice: fp32, direct, accumulated in fp32 in the order input channel, then kernel
 * position; parallel over the output planes (image, output channel).  Each plane starts as the bias (or zero) and every
 * (input channel, kernel position) adds a scaled, shifted input row to an output row, so that the inner loop is a
 * multiply-add over contiguous memory where the stride is 1.  It needs no workspace and is right for every combination
 * of stride, padding, dilation, groups, transposition and layout; it is not meant to be fast: a solution that wants a
 * fast convolution writes one. */
#include "judge/run/exec.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { SPINS = 2000, MAX_THREADS = 1024 };

struct pool {
	int threads;
	void (*fn)(void *ctx, int thread);
	void *ctx;
	_Atomic unsigned job;            /* raised for each job; workers sleep on it */
	_Atomic unsigned running;        /* workers still inside fn; the caller sleeps on it */
	_Atomic unsigned arrived, phase; /* barrier */
	_Atomic int quit;
	struct worker {
		struct pool *pool;
		pthread_t id;
		int thread;
	} workers[];
};

static void futex_wait(_Atomic unsigned *word, unsigned while_equal)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_equal, NULL, NULL, 0);
}

static void futex_wake(_Atomic unsigned *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
	_mm_pause();
#endif
}

/* Order non-temporal stores before what follows. */
static void fence(void)
{
#if defined(__x86_64__)
	_mm_sfence();
#endif
	atomic_thread_fence(memory_order_seq_cst);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	unsigned seen = 0;

	for (;;) {
		while (atomic_load(&p->job) == seen)
			futex_wait(&p->job, seen);
		seen = atomic_load(&p->job);
		if (atomic_load(&p->quit))
			return NULL;
		p->fn(p->ctx, w->thread);
		fence();
		if (atomic_fetch_sub(&p->running, 1) == 1)
			futex_wake(&p->running);
	}
}

static void pool_free(struct pool *p)
{
	if (!p)
		return;
	atomic_store(&p->quit, 1);
	atomic_fetch_add(&p->job, 1);
	futex_wake(&p->job);
	for (int i = 1; i < p->threads; i++)
		pthread_join(p->workers[i].id, NULL);
	free(p);
}

static struct pool *pool_new(int threads)
{
	if (threads < 1 || threads > MAX_THREADS)
		return NULL;
	struct pool *p = calloc(1, sizeof(*p) + sizeof(p->workers[0]) * (size_t)threads);
	if (!p)
		return NULL;
	p->threads = 1;
	for (int i = 1; i < threads; i++) {
		p->workers[i].pool = p;
		p->workers[i].thread = i;
		if (pthread_create(&p->workers[i].id, NULL, worker_main, &p->workers[i])) {
			pool_free(p);
			return NULL;
		}
		p->threads++;
	}
	return p;
}

static void pool_run(struct pool *p, void (*fn)(void *ctx, int thread), void *ctx)
{
	p->fn = fn;
	p->ctx = ctx;
	atomic_store(&p->running, (unsigned)p->threads - 1);
	if (p->threads > 1) {
		atomic_fetch_add(&p->job, 1);
		futex_wake(&p->job);
	}
	fn(ctx, 0);
	fence();
	for (int i = 0; i < SPINS && atomic_load(&p->running); i++)
		relax();
	for (unsigned left; (left = atomic_load(&p->running)) != 0;)
		futex_wait(&p->running, left);
}

static void pool_barrier(struct pool *p)
{
	unsigned phase = atomic_load(&p->phase);
	fence();
	if (atomic_fetch_add(&p->arrived, 1) + 1 == (unsigned)p->threads) {
		atomic_store(&p->arrived, 0);
		atomic_fetch_add(&p->phase, 1);
		futex_wake(&p->phase);
		return;
	}
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&p->phase) != phase)
			return;
		relax();
	}
	while (atomic_load(&p->phase) == phase)
		futex_wait(&p->phase, phase);
}

/* ---- Library nodes ----------------------------------------------------------------------------------------------- */

/* OpenBLAS, loaded at run time. */
struct blas {
	void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
		int ldb, float beta, float *c, int ldc);
	void (*dgemm)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
		const double *b, int ldb, double beta, double *c, int ldc);
};

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS's numbers */

static int blas_open(struct blas *b)
{
	static const char *const names[] = { "libopenblas.so.0", "libopenblas.so" };
	memset(b, 0, sizeof(*b));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!h)
			continue;
		void (*set_threads)(int) = NULL;
		*(void **)&set_threads = dlsym(h, "openblas_set_num_threads");
		*(void **)&b->sgemm = dlsym(h, "cblas_sgemm");
		*(void **)&b->dgemm = dlsym(h, "cblas_dgemm");
		if (set_threads && b->sgemm && b->dgemm) {
			set_threads(1);
			return 1;
		}
		memset(b, 0, sizeof(*b));
	}
	return 0;
}

void ww_exec_open_library(const struct ww_image *m)
{
	struct blas kept_open;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind == WW_NODE_GEMM) {
			(void)blas_open(&kept_open);
			return;
		}
}

static void blas_warm(const struct blas *b)
{
	static const float x[64 * 64];
	float y[64 * 64];
	b->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, 64, 64, 64, 1, x, 64, x, 64, 0, y, 64);
}

static const char *gemm_refusal(const struct ww_gemm *g)
{
	if (g->math != WW_MATH_FP32)
		return "a gemm node on the cpu target has math fp32 only";
	if ((g->d.dtype != WW_F32 && g->d.dtype != WW_F64) || g->a.dtype != g->d.dtype || g->b.dtype != g->d.dtype ||
		(g->beta != 0 && g->c.dtype != g->d.dtype))
		return "a gemm node on the cpu target takes fp32 or fp64 operands, all of one type";
	if (g->m > INT_MAX || g->n > INT_MAX || g->k > INT_MAX || g->a.ld > INT_MAX || g->b.ld > INT_MAX ||
		g->d.ld > INT_MAX)
		return "a gemm node on the cpu target takes sizes below 2^31";
	if (g->d.trans || (g->beta != 0 && g->c.trans))
		return "a gemm node on the cpu target writes D row-major, not transposed";
	return NULL;
}

static char *at(const struct ww_mat *m, void *const *buffers, long long batch, long long row, long long col, int item)
{
	long long e = batch * m->batch_stride + (m->trans ? col * m->ld + row : row * m->ld + col);
	return (char *)buffers[m->buf] + m->offset_bytes + e * item;
}

struct slice {
	long long row, rows, col, cols;
};

#define EPILOGUE(type)                                                                                   \
	static void epilogue_##type(const struct ww_gemm *g, type *d, const type *bias, long long rows, long long cols) \
	{                                                                                                \
		int relu = g->epilogue == WW_EPI_RELU || g->epilogue == WW_EPI_BIAS_RELU;                \
		for (long long i = 0; i < rows; i++) {                                                   \
			type *row = d + i * g->d.ld;                                                     \
			for (long long j = 0; bias && j < cols; j++)                                     \
				row[j] += bias[j];                                                       \
			for (long long j = 0; relu && j < cols; j++)                                     \
				row[j] = row[j] < 0 ? 0 : row[j];                                        \
		}                                                                                        \
	}
EPILOGUE(float)
EPILOGUE(double)

static void gemm_slice(
	const struct blas *b, const struct ww_gemm *g, void *const *buffers, long long batch, const struct slice *s)
{
	int item = g->d.dtype == WW_F64 ? 8 : 4;
	char *a = at(&g->a, buffers, batch, s->row, 0, item), *bb = at(&g->b, buffers, batch, 0, s->col, item);
	char *d = at(&g->d, buffers, batch, s->row, s->col, item);
	int ta = g->a.trans ? TRANS : NO_TRANS, tb = g->b.trans ? TRANS : NO_TRANS;

	if (g->beta != 0) {
		char *c = at(&g->c, buffers, batch, s->row, s->col, item);
		for (long long i = 0; c != d && i < s->rows; i++)
			memcpy(d + i * g->d.ld * item, c + i * g->c.ld * item, (size_t)(s->cols * item));
	}
	char *bias = g->epilogue == WW_EPI_BIAS || g->epilogue == WW_EPI_BIAS_RELU
		? (char *)buffers[g->bias_buf] + g->bias_offset_bytes + s->col * item
		: NULL;
	if (g->d.dtype == WW_F64) {
		b->dgemm(ROW_MAJOR, ta, tb, (int)s->rows, (int)s->cols, (int)g->k, g->alpha, (void *)a, (int)g->a.ld,
			(void *)bb, (int)g->b.ld, g->beta, (void *)d, (int)g->d.ld);
		epilogue_double(g, (void *)d, (void *)bias, s->rows, s->cols);
	} else {
		b->sgemm(ROW_MAJOR, ta, tb, (int)s->rows, (int)s->cols, (int)g->k, (float)g->alpha, (void *)a, (int)g->a.ld,
			(void *)bb, (int)g->b.ld, (float)g->beta, (void *)d, (int)g->d.ld);
		epilogue_float(g, (void *)d, (void *)bias, s->rows, s->cols);
	}
}

/* [from, to) of `total` for this thread, in multiples of `unit`. */
static void share(long long total, long long unit, int thread, int threads, long long *from, long long *to)
{
	long long units = (total + unit - 1) / unit;
	*from = units * thread / threads * unit;
	*to = units * (thread + 1) / threads * unit;
	if (*to > total)
		*to = total;
}

static void gemm_node(const struct blas *b, const struct ww_gemm *g, void *const *buffers, int thread, int threads)
{
	long long batch = g->batch > 0 ? g->batch : 1, from, to;
	struct slice s = { 0, g->m, 0, g->n };

	if (batch >= threads) {
		share(batch, 1, thread, threads, &from, &to);
		for (long long i = from; i < to; i++)
			gemm_slice(b, g, buffers, i, &s);
		return;
	}
	if (g->m >= g->n) {
		share(g->m, 8, thread, threads, &s.row, &to);
		s.rows = to - s.row;
	} else {
		share(g->n, 16, thread, threads, &s.col, &to);
		s.cols = to - s.col;
	}
	for (long long i = 0; s.rows > 0 && s.cols > 0 && i < batch; i++)
		gemm_slice(b, g, buffers, i, &s);
}

/* ---- Convolution ------------------------------------------------------------------------------------------------- */

static const char *conv_refusal(const struct ww_conv *c)
{
	if (c->dtype != WW_F32 || c->math != WW_MATH_FP32)
		return "a conv node on the cpu target is fp32 only";
	return NULL;
}

/* Sizes and element strides of one image of x or y in three spatial dimensions, missing ones being 1 in front. */
struct grid {
	long long size[3], step[3], channel, image;
};

static void grid_init(struct grid *g, const struct ww_conv *c, const long long *size, long long channels)
{
	int lead = 3 - c->nd;
	long long points = 1;
	for (int i = 0; i < 3; i++)
		g->size[i] = i < lead ? 1 : size[i - lead];
	long long unit = c->layout == WW_LAYOUT_NHWC ? channels : 1;
	for (int i = 2; i >= 0; i--) {
		g->step[i] = points * unit;
		points *= g->size[i];
	}
	g->channel = c->layout == WW_LAYOUT_NHWC ? 1 : points;
	g->image = points * channels;
}

struct taps {
	long long kernel[3], stride[3], pad[3], dil[3];
};

static void taps_init(struct taps *t, const struct ww_conv *c)
{
	int lead = 3 - c->nd;
	for (int i = 0; i < 3; i++) {
		int real = i >= lead;
		t->kernel[i] = real ? c->kernel[i - lead] : 1;
		t->stride[i] = real ? c->stride[i - lead] : 1;
		t->pad[i] = real ? c->pad[i - lead] : 0;
		t->dil[i] = real && c->dilation[i - lead] ? c->dilation[i - lead] : 1;
	}
}

/* For one kernel position of one dimension: the range [lo, hi) of the dense side's index i whose partner
 * i * stride + shift lies in [0, limit).  Forward: i runs over outputs; transposed: over inputs. */
static void range(long long count, long long stride, long long shift, long long limit, long long *lo, long long *hi)
{
	*lo = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
	*hi = shift >= limit ? 0 : (limit - 1 - shift) / stride + 1;
	if (*hi > count)
		*hi = count;
}

static void row_add(float *y, long long y_step, const float *x, long long x_step, float w, long long n)
{
	if (y_step == 1 && x_step == 1) {
		for (long long i = 0; i < n; i++)
			y[i] += w * x[i];
		return;
	}
	for (long long i = 0; i < n; i++)
		y[i * y_step] += w * x[i * x_step];
}

/* Add one input channel at one kernel position to a plane. */
static void plane_add(float *y, const struct grid *gy, const float *x, const struct grid *gx, const struct taps *t,
	const long long k[3], float w, int transposed)
{
	const struct grid *dense = transposed ? gx : gy, *sparse = transposed ? gy : gx;
	long long shift[3], lo[3], hi[3];
	for (int d = 0; d < 3; d++) {
		shift[d] = k[d] * t->dil[d] - t->pad[d];
		range(dense->size[d], t->stride[d], shift[d], sparse->size[d], &lo[d], &hi[d]);
		if (lo[d] >= hi[d])
			return;
	}
	for (long long i = lo[0]; i < hi[0]; i++)
		for (long long j = lo[1]; j < hi[1]; j++) {
			long long a = i * dense->step[0] + j * dense->step[1] + lo[2] * dense->step[2];
			long long b = (i * t->stride[0] + shift[0]) * sparse->step[0] +
				(j * t->stride[1] + shift[1]) * sparse->step[1] + (lo[2] * t->stride[2] + shift[2]) * sparse->step[2];
			long long b_step = t->stride[2] * sparse->step[2];
			if (transposed)
				row_add(y + b, b_step, x + a, dense->step[2], w, hi[2] - lo[2]);
			else
				row_add(y + a, dense->step[2], x + b, b_step, w, hi[2] - lo[2]);
		}
}

static void plane_fill(float *y, const struct grid *g, float v)
{
	for (long long i = 0; i < g->size[0]; i++)
		for (long long j = 0; j < g->size[1]; j++)
			for (long long l = 0; l < g->size[2]; l++)
				y[i * g->step[0] + j * g->step[1] + l * g->step[2]] = v;
}

static void plane_relu(float *y, const struct grid *g)
{
	for (long long i = 0; i < g->size[0]; i++)
		for (long long j = 0; j < g->size[1]; j++)
			for (long long l = 0; l < g->size[2]; l++) {
				float *p = y + i * g->step[0] + j * g->step[1] + l * g->step[2];
				*p = *p < 0 ? 0 : *p;
			}
}

struct conv_ctx {
	const struct ww_conv *c;
	struct grid gx, gy;
	struct taps t;
	const float *x, *w, *bias;
	float *y;
};

/* One plane.  Weights are (k, c/groups, kernel...), transposed (c, k/groups, kernel...). */
static void conv_plane(const struct conv_ctx *v, long long n, long long k)
{
	const struct ww_conv *c = v->c;
	long long cg = c->c / c->groups, kg = c->k / c->groups, group = k / kg;
	long long volume = v->t.kernel[0] * v->t.kernel[1] * v->t.kernel[2];
	float *y = v->y + n * v->gy.image + k * v->gy.channel;

	plane_fill(y, &v->gy, v->bias ? v->bias[k] : 0);
	for (long long ci = 0; ci < cg; ci++) {
		long long channel = group * cg + ci;
		const float *x = v->x + n * v->gx.image + channel * v->gx.channel;
		long long filter = c->transposed ? channel : k, plane = c->transposed ? k % kg : ci,
				  planes = c->transposed ? kg : cg;
		int nhwc = c->layout == WW_LAYOUT_NHWC; /* weights then (filter, kernel..., plane) */
		const float *w = v->w + filter * planes * volume + (nhwc ? plane : plane * volume);
		for (long long p = 0; p < volume; p++) {
			long long at3[3] = { p / (v->t.kernel[1] * v->t.kernel[2]), p / v->t.kernel[2] % v->t.kernel[1],
				p % v->t.kernel[2] };
			plane_add(y, &v->gy, x, &v->gx, &v->t, at3, w[nhwc ? p * planes : p], c->transposed);
		}
	}
	if (c->epilogue == WW_EPI_RELU || c->epilogue == WW_EPI_BIAS_RELU)
		plane_relu(y, &v->gy);
}

static void conv_node(const struct ww_conv *c, void *const *buffers, int thread, int threads)
{
	struct conv_ctx v = { .c = c };
	long long from, to;

	v.x = (const float *)(const void *)((char *)buffers[c->x_buf] + c->x_offset_bytes);
	v.w = (const float *)(const void *)((char *)buffers[c->w_buf] + c->w_offset_bytes);
	v.y = (float *)(void *)((char *)buffers[c->y_buf] + c->y_offset_bytes);
	v.bias = ww_has_bias(c->epilogue)
		? (const float *)(const void *)((char *)buffers[c->bias_buf] + c->bias_offset_bytes)
		: NULL;
	grid_init(&v.gx, c, c->in, c->c);
	grid_init(&v.gy, c, c->out, c->k);
	taps_init(&v.t, c);
	share(c->n * c->k, 1, thread, threads, &from, &to);
	for (long long i = from; i < to; i++)
		conv_plane(&v, i / c->k, i % c->k);
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* As <ww/cpu.h> has it. */
struct ww_block {
	long long x, y, z, nx, ny, nz;
	int thread, threads;
	void *shared;
	long long shared_bytes;
};
typedef void kernel_fn(const struct ww_block *b, void *const *arg);
union value {
	void *p;
	int i32;
	long long i64;
	float f32;
	double f64;
};

enum { PAGE = 4096, SHARED_GUARD = 1 << 20 };

struct ww_exec {
	struct pool *pool;
	const struct ww_image *image;
	void *const *buffers;          /* of the issue in progress, */
	uint32_t from, to;             /* and its nodes */
	kernel_fn **kernels;           /* one a node; NULL where the node is no launch */
	_Atomic long long *next_block; /* one a node */
	union value *values;           /* one an argument of the image */
	void **args;                   /* pointers at values, same index */
	char *shared;                  /* of all threads, unmapped pages around each */
	size_t shared_bytes, shared_stride;
	struct blas blas;
	void *binary;
	void (*mark)(void *ctx, uint32_t node, int thread, int done); /* NULL: nobody watches */
	void *mark_ctx;
};

_Thread_local const char *ww_exec_kernel_name;

static int refuse(char *why, enum ww_exec_error e, const char *text)
{
	snprintf(why, WW_EXEC_WHY, "%s", text);
	return e;
}

static int find_kernels(struct ww_exec *e, const struct ww_exec_kernel *kernels, int n_kernels, char *why)
{
	const struct ww_image_node *nodes = ww_image_nodes(e->image);
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		if (nodes[i].kind != WW_NODE_LAUNCH)
			continue;
		const char *name = ww_image_string(e->image, nodes[i].launch.kernel);
		*(void **)&e->kernels[i] = e->binary ? dlsym(e->binary, ww_exec_symbol(kernels, n_kernels, name)) : NULL;
		if (!e->kernels[i]) {
			snprintf(why, WW_EXEC_WHY, "kernels.c defines no function \"%.200s\"", name);
			return WW_EXEC_REFUSED;
		}
		if (nodes[i].launch.shared_bytes > (int64_t)e->shared_bytes)
			e->shared_bytes = (size_t)nodes[i].launch.shared_bytes;
	}
	return WW_EXEC_OK;
}

static void warm_blas(void *ctx, int thread)
{
	struct ww_exec *e = ctx;
	(void)thread;
	blas_warm(&e->blas);
	pool_barrier(e->pool); /* all at once, so that each thread's buffer is mapped */
	blas_warm(&e->blas);
}

static int check_library_nodes(struct ww_exec *e, char *why)
{
	const struct ww_image_node *nodes = ww_image_nodes(e->image);
	int gemms = 0;
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		const char *refusal = nodes[i].kind == WW_NODE_GEMM ? gemm_refusal(&nodes[i].gemm)
			: nodes[i].kind == WW_NODE_CONV                 ? conv_refusal(&nodes[i].conv)
															: NULL;
		if (refusal) {
			snprintf(why, WW_EXEC_WHY, "node %u: %s", i, refusal);
			return WW_EXEC_REFUSED;
		}
		gemms += nodes[i].kind == WW_NODE_GEMM;
	}
	if (!gemms)
		return WW_EXEC_OK;
	if (!blas_open(&e->blas))
		return refuse(why, WW_EXEC_UNAVAILABLE,
			"the plan has a gemm node and libopenblas.so.0 is not installed (Debian: libopenblas0)");
	pool_run(e->pool, warm_blas, e);
	return WW_EXEC_OK;
}

/* Each thread's memory ends at an unmapped page. */
static int make_shared(struct ww_exec *e)
{
	size_t pages = (e->shared_bytes + PAGE - 1) / PAGE * PAGE;
	e->shared_stride = pages + SHARED_GUARD;
	size_t total = e->shared_stride * (size_t)e->pool->threads + SHARED_GUARD;
	void *m = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return 0;
	e->shared = m;
	for (int t = 0; t < e->pool->threads; t++)
		if (mprotect(e->shared + SHARED_GUARD + e->shared_stride * (size_t)t, pages, PROT_READ | PROT_WRITE))
			return 0;
	return 1;
}

void *ww_exec_shared(struct ww_exec *e, int thread, size_t *bytes)
{
	size_t pages = e->shared_stride - SHARED_GUARD;
	*bytes = e->shared ? e->shared_bytes : 0;
	if (!e->shared)
		return NULL;
	return e->shared + SHARED_GUARD + e->shared_stride * (size_t)thread + ((pages - e->shared_bytes) & ~(size_t)63);
}

int ww_exec_load(struct ww_exec **out, const struct ww_image *m, const void *binary, size_t binary_bytes,
	const struct ww_exec_kernel *kernels, int n_kernels, int threads, char *why)
{
	struct ww_exec *e = calloc(1, sizeof(*e));
	int rc = WW_EXEC_NOMEM;

	*why = 0;
	*out = e;
	if (!e)
		return refuse(why, rc, "out of memory");
	e->image = m;
	e->kernels = calloc(m->n_nodes + 1u, sizeof(*e->kernels));
	e->next_block = calloc(m->n_nodes + 1u, sizeof(*e->next_block));
	e->values = calloc(m->n_args + 1u, sizeof(*e->values));
	e->args = calloc(m->n_args + 1u, sizeof(*e->args));
	e->pool = pool_new(threads);
	if (!e->kernels || !e->next_block || !e->values || !e->args || !e->pool) {
		refuse(why, rc, "out of memory or threads");
		goto out;
	}
	if (binary_bytes && !(e->binary = dlopen(binary, RTLD_NOW | RTLD_LOCAL))) {
		snprintf(why, WW_EXEC_WHY, "the compiled kernels cannot be loaded: %.300s", dlerror());
		rc = WW_EXEC_REFUSED;
		goto out;
	}
	rc = find_kernels(e, kernels, n_kernels, why);
	if (rc == WW_EXEC_OK)
		rc = check_library_nodes(e, why);
	if (rc == WW_EXEC_OK && e->shared_bytes && !make_shared(e))
		rc = refuse(why, WW_EXEC_NOMEM, "no memory for the threads' shared memory");
out:
	if (rc != WW_EXEC_OK) {
		ww_exec_free(e);
		*out = NULL;
	}
	return rc;
}

void ww_exec_free(struct ww_exec *e)
{
	if (!e)
		return;
	if (e->shared)
		munmap(e->shared, e->shared_stride * (size_t)e->pool->threads + SHARED_GUARD);
	pool_free(e->pool);
	if (e->binary)
		dlclose(e->binary);
	free(e->kernels);
	free(e->next_block);
	free(e->values);
	free(e->args);
	free(e);
}

int ww_exec_threads(const struct ww_exec *e) { return e->pool->threads; }

void ww_exec_parallel(struct ww_exec *e, void (*fn)(void *ctx, int thread), void *ctx) { pool_run(e->pool, fn, ctx); }

void ww_exec_watch(struct ww_exec *e, void (*mark)(void *ctx, uint32_t node, int thread, int done), void *ctx)
{
	e->mark = mark;
	e->mark_ctx = ctx;
}

static void fill_args(struct ww_exec *e, void *const *buffers)
{
	const struct ww_image_arg *a = ww_image_args(e->image);
	for (uint32_t i = 0; i < e->image->n_args; i++) {
		union value *v = &e->values[i];
		e->args[i] = v;
		switch (a[i].kind) {
		case WW_ARG_BUF: v->p = (char *)buffers[a[i].buf] + a[i].i; break;
		case WW_ARG_I32: v->i32 = (int)a[i].i; break;
		case WW_ARG_I64: v->i64 = a[i].i; break;
		case WW_ARG_F32: v->f32 = a[i].f32; break;
		case WW_ARG_F64: v->f64 = a[i].f64; break;
		default: break; /* validation lets no tensor map through on this target */
		}
	}
}

static void run_launch(struct ww_exec *e, uint32_t node, int thread)
{
	const struct ww_image_launch *l = &ww_image_nodes(e->image)[node].launch;
	kernel_fn *fn = e->kernels[node];
	int threads = e->pool->threads;
	long long total = l->grid[0] * l->grid[1] * l->grid[2], chunk = total / (16LL * threads);
	size_t unused;
	struct ww_block b = { .nx = l->grid[0],
		.ny = l->grid[1],
		.nz = l->grid[2],
		.thread = thread,
		.threads = threads,
		.shared = ww_exec_shared(e, thread, &unused),
		.shared_bytes = l->shared_bytes };

	if (chunk < 1)
		chunk = 1;
	ww_exec_kernel_name = ww_image_string(e->image, l->kernel);
	for (;;) {
		long long from = atomic_fetch_add(&e->next_block[node], chunk),
				  to = from + chunk < total ? from + chunk : total;
		for (long long i = from; i < to; i++) {
			b.x = i % b.nx;
			b.y = i / b.nx % b.ny;
			b.z = i / b.nx / b.ny;
			fn(&b, e->args + l->first_arg);
		}
		if (to >= total)
			break;
	}
	ww_exec_kernel_name = NULL;
}

/* Whole pages of a memory node for each thread. */
static void run_memory(const struct ww_image_node *d, void *const *buffers, int thread, int threads)
{
	long long from, to;
	if (d->kind == WW_NODE_MEMSET) {
		share(d->set.bytes, PAGE, thread, threads, &from, &to);
		if (from < to)
			memset((char *)buffers[d->set.buf] + d->set.offset_bytes + from, d->set.byte, (size_t)(to - from));
		return;
	}
	share(d->copy.bytes, PAGE, thread, threads, &from, &to);
	if (from < to)
		memcpy((char *)buffers[d->copy.dst] + d->copy.dst_offset_bytes + from,
			(char *)buffers[d->copy.src] + d->copy.src_offset_bytes + from, (size_t)(to - from));
}

static void run_nodes(void *ctx, int thread)
{
	struct ww_exec *e = ctx;
	int threads = e->pool->threads;
	const struct ww_image_node *nodes = ww_image_nodes(e->image);

	for (uint32_t i = e->from; i < e->to; i++) {
		if (i > e->from)
			pool_barrier(e->pool);
		if (e->mark)
			e->mark(e->mark_ctx, i, thread, 0);
		switch (nodes[i].kind) {
		case WW_NODE_LAUNCH: run_launch(e, i, thread); break;
		case WW_NODE_GEMM: gemm_node(&e->blas, &nodes[i].gemm, e->buffers, thread, threads); break;
		case WW_NODE_CONV: conv_node(&nodes[i].conv, e->buffers, thread, threads); break;
		case WW_NODE_PYTORCH: break;
		default: run_memory(&nodes[i], e->buffers, thread, threads); break;
		}
		if (e->mark)
			e->mark(e->mark_ctx, i, thread, 1);
	}
}

int ww_exec_issue(struct ww_exec *e, void *const *buffers, void *stream, char *why)
{
	return ww_exec_issue_part(e, buffers, 0, e->image->n_nodes, stream, why);
}

int ww_exec_issue_part(struct ww_exec *e, void *const *buffers, uint32_t from, uint32_t to, void *stream, char *why)
{
	(void)stream;
	*why = 0;
	e->from = from;
	e->to = to;
	for (uint32_t i = 0; i < e->image->n_nodes; i++)
		atomic_store(&e->next_block[i], 0);
	fill_args(e, buffers);
	e->buffers = buffers;
	pool_run(e->pool, run_nodes, e);
	return WW_EXEC_OK;
}
