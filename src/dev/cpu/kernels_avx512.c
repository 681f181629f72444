/* kernels_avx512.c - the inner loops for AVX-512: 16 lanes.  Flags: src/dev/module.cmake. */
#define W 16
#define NAME ww_cpu_kernels_avx512
#define LABEL "avx512"
#include "dev/cpu/kernels_impl.h"
