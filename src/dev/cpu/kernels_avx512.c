/* kernels_avx512.c - the inner loops for AVX-512: 16 lanes.  Flags: src/dev/module.cmake. */
#define W 16
#define LANES { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
#define NAME ww_cpu_kernels_avx512
#define LABEL "avx512"
#include "dev/cpu/kernels_impl.h"
