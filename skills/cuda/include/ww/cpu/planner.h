/* planner.h - helpers of the planner's kernels on the cpu target besides <ww/cpu.h>: the index type, infinities and
 * NaN, and PyTorch's scalar operations. */
#ifndef WW_CPU_PLANNER_H
#define WW_CPU_PLANNER_H

#include <math.h>
#include <ww/cpu.h>

typedef long long ix_t;

#define PL_FN WW_FN
#define PL_INFF __builtin_inff()
#define PL_INF __builtin_inf()
#define PL_NANF __builtin_nanf("")
#define PL_NAN __builtin_nan("")
#include <ww/planner_scalar.h>

PL_FN float pl_maxf(float a, float b) { return a != a || a > b ? a : b; }
PL_FN float pl_minf(float a, float b) { return a != a || a < b ? a : b; }
/* a - b of a product a, which is rounded first: no multiply-add */
PL_FN float pl_minusf(float a, float b)
{
	__asm__("" : "+x"(a));
	return a - b;
}
PL_FN float pl_quotientf(float a, float b) { return a / b; }
PL_FN float pl_rsqrtf(float a) { return 1.0f / sqrtf(a); }
/* PyTorch's of infinities are NaN */
PL_FN float pl_j0f(float a) { return __builtin_j0f(a) + (a - a); } /* <math.h> of C17 does not have these */
PL_FN float pl_j1f(float a) { return __builtin_j1f(a) + (a - a); }
PL_FN float pl_y0f(float a) { return __builtin_y0f(a) + (a - a); }
PL_FN float pl_y1f(float a) { return __builtin_y1f(a) + (a - a); }
#include <ww/planner_special.h>
PL_FN int pl_signbitf(float a) { return __builtin_signbitf(a) != 0; }
PL_FN float pl_as_f16(float a) { return ww_f32_of_f16(ww_f16_of_f32(a)); }
PL_FN float pl_as_bf16(float a) { return ww_f32_of_bf16(ww_bf16_of_f32(a)); }
PL_FN float pl_expm1f(float a) { return expm1f(a); }
PL_FN float pl_log1pf(float a) { return log1pf(a); }
PL_FN float pl_log1p_unitf(float a) { return log1pf(a); }
PL_FN float pl_sigmoidf(float a) { return 1.0f / (1.0f + expf(-a)); }

#endif
