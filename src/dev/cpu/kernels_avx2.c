/* kernels_avx2.c - the inner loops for AVX2: 8 lanes.  Flags: src/dev/module.cmake. */
#define W 8
#define LANES { 0, 1, 2, 3, 4, 5, 6, 7 }
#define NAME ww_cpu_kernels_avx2
#define LABEL "avx2"
#include "dev/cpu/kernels_impl.h"
