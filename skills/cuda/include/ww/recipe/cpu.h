/* recipe/cpu.h - all plan recipes of the cpu half of the cookbook.  See skills/cuda/references/cookbook-cpu.md. */
#ifndef WW_RECIPE_CPU_H
#define WW_RECIPE_CPU_H
#include <ww/recipe/cpu_pointwise.h>
#include <ww/recipe/cpu_rows.h>
#include <ww/recipe/cpu_reduce.h>
#include <ww/recipe/cpu_gemm.h>
#include <ww/recipe/cpu_conv.h>
#include <ww/recipe/cpu_attention.h>
#include <ww/recipe/cpu_rnn.h>
#include <ww/recipe/cpu_scatter.h>
#endif
