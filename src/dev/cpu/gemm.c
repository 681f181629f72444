/* gemm.c - matrix products of the cpu backend.
 *
 * Exact mode uses the kernels of this program: in the NT form each element is one dot product over k in a fixed order,
 * whatever m is and wherever the row lies, which OpenBLAS does not promise (it changes kernels with m).  Fast mode uses
 * OpenBLAS where it is installed; it is opened at run time, since a distribution without it must start (it is 36 MB).
 *
 * bf16 operands are widened first: the product is fp32 anyway, and the cost is linear where the product's is not.
 */
#include "dev/cpu/cpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, PART_M = 48, PART_N = 128, TINY = 1 << 15 };

void ww_cpu_blas_open(struct ww_cpu *d)
{
	static const char *const names[] = { "libopenblas.so.0", "libopenblas.so" };
	for (size_t i = 0; !d->blas && i < WW_ARRAY_LEN(names); i++)
		d->blas = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!d->blas)
		return;
	void (*set_threads)(int);
	*(void **)&d->sgemm = dlsym(d->blas, "cblas_sgemm");
	*(void **)&set_threads = dlsym(d->blas, "openblas_set_num_threads");
	if (set_threads)
		set_threads(ww_pool_threads(d->pool));
	const char *(*config)(void);
	size_t at = strlen(d->dev.bits.libraries);
	*(void **)&config = dlsym(d->blas, "openblas_get_config");
	snprintf(d->dev.bits.libraries + at, sizeof(d->dev.bits.libraries) - at, ", %s, %d threads",
		config ? config() : "OpenBLAS", ww_pool_threads(d->pool));
}

struct job {
	const struct ww_cpu_kernels *k;
	enum ww_gemm_form form;
	const float *a, *b;
	float *c;
	int64_t m, n, kk, pm, pn, cols;
	int accumulate;
};

static void part(void *arg, int64_t i, int worker)
{
	const struct job *j = arg;
	int64_t r = i / j->cols * j->pm, q = i % j->cols * j->pn;
	int64_t m = j->m - r < j->pm ? j->m - r : j->pm, n = j->n - q < j->pn ? j->n - q : j->pn;
	float *c = j->c + r * j->n + q;
	if (j->form == WW_GEMM_NT)
		j->k->gemm_nt(j->a + r * j->kk, j->kk, j->b + q * j->kk, j->kk, c, j->n, m, n, j->kk, j->accumulate);
	else if (j->form == WW_GEMM_NN)
		j->k->gemm_nn(j->a + r * j->kk, j->kk, 1, j->b + q, j->n, c, j->n, m, n, j->kk, j->accumulate);
	else
		j->k->gemm_nn(j->a + r, 1, j->m, j->b + q, j->n, c, j->n, m, n, j->kk, j->accumulate);
}

static void own(struct ww_stream *s, struct job *j)
{
	int64_t work = j->m * j->n * j->kk;
	j->pm = work <= TINY ? j->m : PART_M;
	j->pn = work <= TINY ? j->n : PART_N;
	j->cols = (j->n + j->pn - 1) / j->pn;
	ww_pool_run(s->d->pool, (j->m + j->pm - 1) / j->pm * j->cols, part, j);
}

static void openblas(struct ww_stream *s, const struct job *j)
{
	int ta = j->form == WW_GEMM_TN ? TRANS : NO_TRANS, tb = j->form == WW_GEMM_NT ? TRANS : NO_TRANS;
	int m = (int)j->m, n = (int)j->n, k = (int)j->kk;
	s->d->sgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0f, j->a, ta == TRANS ? m : k, j->b, tb == TRANS ? k : n,
		j->accumulate ? 1.0f : 0.0f, j->c, n);
}

static const float *widen(struct ww_stream *s, struct ww_arr a, int64_t n, int slot)
{
	if (a.dtype == WW_F32)
		return a.p;
	float *p = ww_cpu_scratch(s, slot, n);
	if (p)
		ww_cpu_cast(s, (struct ww_arr){ p, WW_F32 }, a, n);
	return p;
}

void ww_cpu_gemm(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
	int64_t m, int64_t n, int64_t k, int accumulate)
{
	struct ww_arr wide = { c.p, WW_F32 };
	if (s->err.rc != WW_OK || !m || !n)
		return;
	WW_BUG(k <= 0 || m > INT_MAX || n > INT_MAX || k > INT_MAX);
	if (c.dtype != WW_F32) {
		wide.p = ww_cpu_scratch(s, 2, m * n);
		if (wide.p && accumulate)
			ww_cpu_cast(s, wide, c, m * n);
	}
	struct job j = { .k = s->d->k,
		.form = form,
		.a = widen(s, a, m * k, 0),
		.b = widen(s, b, n * k, 1),
		.c = wide.p,
		.m = m,
		.n = n,
		.kk = k,
		.accumulate = accumulate };
	if (s->err.rc != WW_OK)
		return;
	if (s->d->sgemm)
		openblas(s, &j);
	else
		own(s, &j);
	if (c.dtype != WW_F32)
		ww_cpu_cast(s, c, wide, m * n);
}
