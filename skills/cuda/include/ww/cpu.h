/* cpu.h - the kernel ABI of the cpu target, and the whole cpu half of the cookbook.
 *
 * A solution for the cpu target is kernels.c plus plan.c.  Each launch of the plan names a C function of kernels.c,
 *
 *     void name(const struct ww_block *b, void *const *arg);
 *
 * which the runner calls once for every block of the launch's grid, from as many threads as the machine was told to
 * use, in no promised order.  arg[i] points at the value of the launch's i-th argument: for a buffer that value is a
 * pointer (so arg[i] is a T **), for ww_arg_i64() a long long, and so on; WW_ARG() reads it.
 *
 * Rules of a kernel: no threads, no allocation, no input or output, no mutable static state.  Blocks of one launch must
 * not depend on one another; the next launch starts after the last block of this one has ended, and sees all it wrote,
 * non-temporal stores included (the runner fences).  b->shared is per-thread memory of the size that ww_shared() asked
 * for, 64-byte aligned, with undefined content.
 *
 * kernels.c is C17, compiled with -O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=fast, and may
 * include <ww/...>, <immintrin.h>, <math.h>, <stddef.h> and <stdint.h>.
 *
 * How fusion is spelled.  C has neither templates nor lambdas, so a functor is a pair: a function marked WW_FN (always
 * inlined) and a pointer to a context, a local struct of the kernel that holds its pointers and scalars.  A skeleton is
 * itself always inlined and gets the functor's name as an ordinary argument; the compiler sees a constant function
 * pointer and inlines through it, the context's fields become registers, and several differently fused instances live
 * side by side in one file:
 *
 *     struct k0 { const float *x, *w; float *y; long long cols; };
 *     WW_FN ww_vf k0_load(const void *ctx, long long r, long long i, int n)
 *     {
 *         const struct k0 *c = ctx;
 *         return ww_vf_load(c->x + r * c->cols + i, n);
 *     }
 *     WW_FN void k0_store(const void *ctx, long long r, long long i, ww_vf v, int n)
 *     {
 *         const struct k0 *c = ctx;
 *         ww_vf_stream(c->y + r * c->cols + i, v, n);
 *     }
 *     WW_KERNEL(k0)
 *     {
 *         const struct k0 c = { WW_ARG(const float *, WW_ROWS_ARGS), 0, WW_ARG(float *, WW_ROWS_ARGS + 1),
 *                               WW_ROWS_COLS(arg) };
 *         ww_cpu_softmax(b, arg, k0_load, k0_store, &c);
 *     }
 *
 * (Rejected: including a skeleton many times with macros set, which hides its parameters and breaks debuggers; macros
 * that expand to whole functions, whose errors all fall on one line.)
 *
 * A functor works on one vector of WW_VL floats of which the first n count (1 <= n <= WW_VL).  In main loops n is the
 * constant WW_VL, so the partial case of ww_vf_load() and ww_vf_store() folds away; only row ends pay for it.  What a
 * load functor returns in lanes n and up is ignored.
 *
 * Each skeleton reads its geometry from the launch's first arguments, which the recipe of the same name in
 * <ww/recipe/cpu_*.h> has put there; WW_..._ARGS says how many, and the user's own arguments follow. */
#ifndef WW_CPU_H
#define WW_CPU_H

#include <stddef.h>
#include <stdint.h>

struct ww_block {
	long long x, y, z;    /* this block */
	long long nx, ny, nz; /* the grid */
	int thread, threads;  /* which worker runs it, of how many */
	void *shared;         /* this thread's scratch, 64-byte aligned, content undefined */
	long long shared_bytes;
};

/* A function of the cookbook or a functor: always inlined, silent when unused. */
#define WW_FN static inline __attribute__((always_inline, unused))

/* The definition of a kernel; its parameters are called b and arg. */
#define WW_KERNEL(name) \
	void name(const struct ww_block *b, void *const *arg); \
	void name(const struct ww_block *b __attribute__((unused)), void *const *arg __attribute__((unused)))

/* The i-th argument of the launch, of type `type`. */
#define WW_ARG(type, i) (*(type const *)arg[i])

#if defined(__clang__)
#define WW_UNROLL(n) _Pragma("unroll")
#else
#define WW_PRAGMA_(x) _Pragma(#x)
#define WW_UNROLL(n) WW_PRAGMA_(GCC unroll n)
#endif

#define WW_CDIV(a, b) (((a) + (b) - 1) / (b))
WW_FN long long ww_min_ll(long long a, long long b) { return a < b ? a : b; }
WW_FN long long ww_max_ll(long long a, long long b) { return a > b ? a : b; }

#include <ww/cpu/vec.h>
#include <ww/cpu/math.h>
#include <ww/cpu/pointwise.h>
#include <ww/cpu/rowwise.h>
#include <ww/cpu/reduce.h>
#include <ww/cpu/scan.h>
#include <ww/cpu/sort.h>
#include <ww/cpu/scatter.h>
#include <ww/cpu/gemm.h>
#include <ww/cpu/conv.h>
#include <ww/cpu/attention.h>
#include <ww/cpu/rnn.h>

#endif
